// SPDX-License-Identifier: Apache-2.0
/*
 * items.c - contents of values: iteration, attributes, items
 *
 * As in Jinja2, `a.b` looks for an attribute of the type (a method) first and
 * then for an item, `a["b"]` the other way round.  A missing one is Undefined,
 * and looking into Undefined fails.
 */
#include <stdio.h>

#include "runtime/template/internal.h"

/* ---- iteration ---- */

static struct value range_at(const struct range *g, u32 i)
{
	return VALUE_INT(g->start + (s64)i * g->step);
}

static struct value text_items(struct render *r, struct value v)
{
	struct value list = tv_seq(r, V_LIST, (u32)ts_chars(v.s, v.len));
	const char *p = v.s, *end = v.s + v.len, *from;

	run_bytes(r, v.len);
	while (p < end && !r->mem.failed) {
		from = p;
		ts_next(&p, end);
		run_step(r, 1);
		tv_push(r, list, ts_sub(v, from, p));
	}
	return list;
}

static struct value computed_items(struct render *r, struct value v)
{
	struct value list;
	u32 i;

	switch (v.kind) {
	case V_STR:
		return text_items(r, v);
	case V_DICT:
		list = tv_seq(r, V_LIST, v.dict->n);
		for (i = 0; i < v.dict->n && !r->mem.failed; i++)
			tv_push(r, list, v.dict->e[i].key);
		return list;
	case V_RANGE:
		list = tv_seq(r, V_LIST, v.range->n);
		for (i = 0; i < v.range->n && !r->mem.failed; i++)
			tv_push(r, list, range_at(v.range, i));
		return list;
	case V_UNDEF:
		return tv_seq(r, V_LIST, 0);
	default:
		run_fail(r, "a value of type %s cannot be gone through",
			 tv_type(v));
		return VALUE(V_UNDEF);
	}
}

const struct value *tv_items(struct render *r, struct value v, u32 *n)
{
	const struct value *from;

	*n = 0;
	if (r->mem.failed)
		return NULL;
	if (v.kind != V_LIST && v.kind != V_TUPLE && v.kind != V_VIEW &&
	    v.kind != V_GEN)
		v = computed_items(r, v);
	if (r->mem.failed)
		return NULL;
	run_step(r, v.seq->n / 8);
	from = v.seq->v;
	*n = v.seq->n;
	if (v.kind == V_GEN) {
		if (from)
			from += v.seq->next;
		*n -= v.seq->next;
		v.seq->next = v.seq->n;
	}
	return from;
}

bool tv_is_iterable(struct value v)
{
	return (v.kind >= V_STR && v.kind <= V_RANGE) || v.kind == V_UNDEF;
}

bool tv_len(struct render *r, struct value v, s64 *n)
{
	switch (v.kind) {
	case V_UNDEF:
		*n = 0;
		return true;
	case V_STR:
		run_bytes(r, v.len);
		*n = (s64)ts_chars(v.s, v.len);
		return true;
	case V_LIST:
	case V_TUPLE:
	case V_VIEW:
		*n = v.seq->n;
		return true;
	case V_DICT:
		*n = v.dict->n;
		return true;
	case V_RANGE:
		*n = v.range->n;
		return true;
	case V_LOOP:
		*n = v.loop->n;
		return true;
	default:
		return false;
	}
}

/* ---- attributes ---- */

static bool is_word(const char *s, size_t n, const char *word)
{
	return n == strlen(word) && !memcmp(s, word, n);
}

static struct value loop_neighbour(const struct loop *l, s64 at,
				   const char *name)
{
	if (at < 0 || at >= l->n)
		return tv_undef(name, strlen(name));
	return l->items[at];
}

static struct value loop_attr(const struct loop *l, const char *s, size_t n)
{
	const struct {
		const char	*name;
		struct value	v;
	} attrs[] = {
		{ "index", VALUE_INT((s64)l->at + 1) },
		{ "index0", VALUE_INT(l->at) },
		{ "revindex", VALUE_INT((s64)l->n - l->at) },
		{ "revindex0", VALUE_INT((s64)l->n - l->at - 1) },
		{ "first", VALUE_BOOL(l->at == 0) },
		{ "last", VALUE_BOOL(l->at + 1 == l->n) },
		{ "length", VALUE_INT(l->n) },
		{ "depth", VALUE_INT(1) },
		{ "depth0", VALUE_INT(0) },
	};
	struct value v;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(attrs); i++)
		if (is_word(s, n, attrs[i].name))
			return attrs[i].v;
	if (is_word(s, n, "previtem"))
		v = loop_neighbour(l, (s64)l->at - 1, "there is no previous item");
	else if (is_word(s, n, "nextitem"))
		v = loop_neighbour(l, (s64)l->at + 1, "there is no next item");
	else
		return tv_undef(s, n);
	return v;
}

static struct value bound_method(struct render *r, struct value v,
				 const struct func *f)
{
	struct bound *b = mem_get(&r->mem, sizeof(*b));

	if (!b)
		return VALUE(V_UNDEF);
	b->self = v;
	b->func = *f;
	return VALUE(V_METHOD, .bound = b);
}

static struct value undef_fail(struct render *r, struct value v)
{
	run_fail(r, "'%.*s' is undefined, and something in it was asked for",
		 (int)min(v.len, 60u), v.s ? v.s : "");
	return v;
}

struct value tv_getattr(struct render *r, struct value v, const char *s,
			size_t n)
{
	const struct func *f;
	struct value *item;

	if (r->mem.failed)
		return VALUE(V_UNDEF);
	if (v.kind == V_UNDEF)
		return undef_fail(r, v);
	if (v.kind == V_LOOP && !is_word(s, n, "cycle"))
		return loop_attr(v.loop, s, n);
	f = tv_method_find(v, s, n);
	if (f)
		return f->fn ? bound_method(r, v, f) : tv_undef(s, n);
	if (v.kind != V_DICT && v.kind != V_NAMESPACE)
		return tv_undef(s, n);
	item = tv_dict_text(r, v.dict, s, n);
	return item ? *item : tv_undef(s, n);
}

/* ---- items ---- */

static struct value seq_at(struct render *r, struct value v, s64 i)
{
	s64 n = 0;
	const char *p;

	tv_len(r, v, &n);
	i += i < 0 ? n : 0;
	if (i < 0 || i >= n)
		return tv_undef("an index beyond the end", 23);
	if (v.kind == V_RANGE)
		return range_at(v.range, (u32)i);
	if (v.kind != V_STR)
		return v.seq->v[i];
	run_bytes(r, v.len);
	p = ts_at(v.s, v.len, (size_t)i);
	return ts_sub(v, p, ts_at(p, (size_t)(v.s + v.len - p), 1));
}

static bool has_items(struct value v)
{
	return v.kind == V_STR || v.kind == V_LIST || v.kind == V_TUPLE ||
	       v.kind == V_RANGE;
}

struct value tv_getitem(struct render *r, struct value v, struct value key)
{
	struct value *item = NULL;
	s64 i;

	if (r->mem.failed)
		return VALUE(V_UNDEF);
	if (v.kind == V_UNDEF)
		return undef_fail(r, v);
	if (v.kind == V_DICT && key.kind != V_LIST && key.kind != V_DICT &&
	    key.kind != V_VIEW)
		item = tv_dict_find(r, v.dict, key);
	if (item)
		return *item;
	if (has_items(v) && tv_as_int(key, &i))
		return seq_at(r, v, i);
	if (key.kind == V_STR)
		return tv_getattr(r, v, key.s, key.len);
	return tv_undef("an item", 7);
}

/* ---- slices ---- */

/* One bound as a position in @n items, clipped as in Python */
static s64 slice_bound(struct render *r, struct value v, s64 n, s64 step,
		       bool end)
{
	s64 low = step < 0 ? -1 : 0, high = step < 0 ? n - 1 : n, i;

	if (v.kind == V_NONE)
		return (step < 0) == end ? low : high;
	if (!tv_as_int(v, &i)) {
		run_fail(r, "a slice wants whole numbers, not %s", tv_type(v));
		return 0;
	}
	if (i < 0)
		i = i < -n ? low : i + n;
	return max(low, min(i, high));
}

static struct value slice_text(struct render *r, struct value v, s64 from,
			       s64 step, s64 n)
{
	struct sbuf b = { .r = r };
	struct value chars;
	const char *p;
	s64 i;

	run_bytes(r, v.len);
	if (step == 1) {
		p = ts_at(v.s, v.len, (size_t)from);
		return ts_sub(v, p, ts_at(p, (size_t)(v.s + v.len - p),
					  (size_t)n));
	}
	chars = text_items(r, v);
	for (i = 0; i < n && !r->mem.failed; i++)
		sb_add(&b, chars.seq->v[from + i * step].s,
		       chars.seq->v[from + i * step].len);
	chars = sb_value(&b);
	chars.safe = v.safe;
	return chars;
}

static struct value slice_range(struct render *r, const struct range *of,
				s64 from, s64 step, s64 n)
{
	struct range *g = mem_get(&r->mem, sizeof(*g));

	if (!g)
		return VALUE(V_UNDEF);
	g->start = of->start + from * of->step;
	g->step = n > 1 ? of->step * step : of->step;
	g->n = (u32)n;
	return VALUE(V_RANGE, .range = g);
}

static struct value slice_seq(struct render *r, struct value v, s64 from,
			      s64 step, s64 n)
{
	struct value out = tv_seq(r, v.kind, (u32)n);
	s64 i;

	run_step(r, (u64)n / 8);
	for (i = 0; i < n && !r->mem.failed; i++)
		tv_push(r, out, v.seq->v[from + i * step]);
	return out;
}

struct value tv_slice(struct render *r, struct value v,
		      const struct value bound[3])
{
	s64 len = 0, from, to, step = 1, n = 0;

	if (r->mem.failed || v.kind == V_UNDEF)
		return v.kind == V_UNDEF ? undef_fail(r, v) : VALUE(V_UNDEF);
	if (!has_items(v))
		return tv_undef("a slice", 7);
	if (bound[2].kind != V_NONE && !tv_as_int(bound[2], &step))
		run_fail(r, "a slice wants whole numbers, not %s",
			 tv_type(bound[2]));
	if (!step)
		run_fail(r, "the step of a slice cannot be 0");
	step = max(min(step, (s64)1 << 32), -((s64)1 << 32));
	tv_len(r, v, &len);
	from = slice_bound(r, bound[0], len, step, false);
	to = slice_bound(r, bound[1], len, step, true);
	if (r->mem.failed)
		return VALUE(V_UNDEF);
	if (step > 0 && to > from)
		n = (to - from + step - 1) / step;
	else if (step < 0 && from > to)
		n = (from - to - step - 1) / -step;
	if (v.kind == V_STR)
		return slice_text(r, v, n ? from : 0, step, n);
	if (v.kind == V_RANGE)
		return slice_range(r, v.range, n ? from : 0, step, n);
	return slice_seq(r, v, from, step, n);
}

/* ---- paths ---- */

static bool path_number(const char *s, size_t n, s64 *i)
{
	size_t k;

	*i = 0;
	for (k = 0; k < n && k < 9; k++) {
		if (s[k] < '0' || s[k] > '9')
			return false;
		*i = *i * 10 + s[k] - '0';
	}
	return n && k == n;
}

struct value tv_path(struct render *r, struct value v, struct value path)
{
	const char *p = path.s, *end, *dot;
	s64 i;

	if (path.kind == V_INT)
		return tv_getitem(r, v, path);
	if (path.kind != V_STR) {
		run_fail(r, "the name of an attribute is a text, not %s",
			 tv_type(path));
		return VALUE(V_UNDEF);
	}
	for (end = p + path.len; !r->mem.failed; p = dot + 1) {
		dot = memchr(p, '.', (size_t)(end - p));
		if (!dot)
			dot = end;
		run_step(r, 1);
		if (path_number(p, (size_t)(dot - p), &i))
			v = tv_getitem(r, v, VALUE_INT(i));
		else
			v = tv_getitem(r, v, VALUE_STR(p, dot - p));
		if (dot == end)
			break;
	}
	return v;
}
