// SPDX-License-Identifier: Apache-2.0
/*
 * globals.c - the functions available in every template
 */
#include <time.h>

#include "runtime/template/internal.h"

static struct value g_raise(struct render *r, const struct args *a)
{
	struct value v[1], s;

	if (!args_take(r, a, "message", 1, v))
		return VALUE(V_UNDEF);
	s = tv_str(r, v[0]);
	if (!r->mem.failed)
		mem_fail(&r->mem, TMPL_RAISED, "%.*s",
			 (int)min(s.len, (u32)TMPL_TEXT), s.s);
	return VALUE(V_UNDEF);
}

static struct value g_strftime(struct render *r, const struct args *a)
{
	struct value v[1];
	char fmt[256], out[1024];
	struct tm tm;
	size_t n;

	if (!args_take(r, a, "format", 1, v) ||
	    !arg_text(r, v[0], "strftime_now"))
		return VALUE(V_UNDEF);
	if (v[0].len >= sizeof(fmt) - 1 || memchr(v[0].s, 0, v[0].len)) {
		run_fail(r, "strftime_now: a format of more than 254 bytes");
		return VALUE(V_UNDEF);
	}
	/*
	 * A mark at the end distinguishes an empty text from one that was too
	 * long.
	 */
	memcpy(fmt, v[0].s, v[0].len);
	strcpy(fmt + v[0].len, "x");
	if (!localtime_r(&r->now, &tm))
		memset(&tm, 0, sizeof(tm));
	n = strftime(out, sizeof(out), fmt, &tm);
	if (!n) {
		run_fail(r, "strftime_now: the text is too long");
		return VALUE(V_UNDEF);
	}
	return ts_copy(r, out, n - 1);
}

static u64 range_count(s64 start, s64 stop, s64 step)
{
	if (step > 0)
		return start < stop ? ((u64)stop - (u64)start - 1) /
		       (u64)step + 1 : 0;
	return start > stop ? ((u64)start - (u64)stop - 1) /
	       (0 - (u64)step) + 1 : 0;
}

static struct value g_range(struct render *r, const struct args *a)
{
	s64 i[3] = { 0, 0, 1 };
	struct range *g;
	u32 k;
	u64 n;

	if (!a->n || a->n > 3 || a->nr_kw)
		run_fail(r, "range takes one to three numbers");
	for (k = 0; k < a->n && !r->mem.failed; k++)
		if (!tv_as_int(a->v[k], &i[a->n == 1 ? 1 : k]))
			run_fail(r, "range takes whole numbers, not %s",
				 tv_type(a->v[k]));
	if (!i[2])
		run_fail(r, "range: the step cannot be 0");
	g = mem_get(&r->mem, sizeof(*g));
	if (!g)
		return VALUE(V_UNDEF);
	n = range_count(i[0], i[1], i[2]);
	if (n > TMPL_RANGE_MAX) {
		run_limit(r, "a range of more than 100000 numbers");
		return VALUE(V_UNDEF);
	}
	g->start = i[0];
	g->step = i[2];
	g->n = (u32)n;
	return VALUE(V_RANGE, .range = g);
}

/*
 * Build a dict from the items of a dict, or from pairs, and from named operands
 */
static struct value build(struct render *r, const struct args *a,
			  enum value_kind kind)
{
	struct value d = tv_dict(r, kind);
	const struct value *items, *pair;
	u32 n, two, i;

	if (a->n > 1)
		run_fail(r, "dict takes one operand without a name");
	if (a->n && !r->mem.failed) {
		struct value from = a->v[0];

		if (from.kind == V_DICT)
			from = tv_dict_view(r, from, "dict_items");
		items = tv_items(r, from, &n);
		for (i = 0; i < n && !r->mem.failed; i++) {
			pair = tv_items(r, items[i], &two);
			if (two != 2)
				run_fail(r, "dict takes pairs");
			else
				tv_dict_set(r, d.dict, pair[0], pair[1]);
		}
	}
	for (i = 0; i < a->nr_kw && !r->mem.failed; i++)
		tv_dict_set(r, d.dict, VALUE_STR(a->kw[i].name, a->kw[i].len),
			    a->kw[i].v);
	return d;
}

static struct value g_dict(struct render *r, const struct args *a)
{
	return build(r, a, V_DICT);
}

static struct value g_namespace(struct render *r, const struct args *a)
{
	struct value ns = build(r, a, V_NAMESPACE);
	u32 i;

	for (i = 0; !r->mem.failed && i < ns.dict->n; i++)
		if (ns.dict->e[i].key.kind == V_STR &&
		    ns.dict->e[i].key.len && ns.dict->e[i].key.s[0] == '_')
			run_fail(r, "an attribute of a namespace cannot begin with '_'");
	return ns;
}

/* Documentation/template.md has a table of these names. */
const struct func tv_globals[] = {
	{ "dict", g_dict }, { "namespace", g_namespace },
	{ "raise_exception", g_raise }, { "range", g_range },
	{ "strftime_now", g_strftime }, { NULL, NULL },
};

const struct func *tv_global_find(const char *s, size_t n)
{
	return tv_func_find(tv_globals, s, n);
}
