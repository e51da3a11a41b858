// SPDX-License-Identifier: Apache-2.0
/*
 * filters.c - filters for texts and single values, and the table of all filters
 */
#include "runtime/template/filters.h"

/* Take the operands, and the value as a text */
static bool take_text(struct render *r, const struct args *a, const char *spec,
		      u32 need, struct value *out, struct value *s)
{
	if (!args_take(r, a, spec, need, out))
		return false;
	*s = tv_str(r, a->self);
	return !r->mem.failed;
}

static struct value map_case(struct render *r, const struct args *a, char how)
{
	struct value s;

	return take_text(r, a, "", 0, NULL, &s) ? ts_map_case(r, s, how) :
	       VALUE(V_UNDEF);
}

static struct value f_upper(struct render *r, const struct args *a)
{
	return map_case(r, a, 'u');
}

static struct value f_lower(struct render *r, const struct args *a)
{
	return map_case(r, a, 'l');
}

static struct value f_title(struct render *r, const struct args *a)
{
	return map_case(r, a, 'f');
}

static struct value f_capitalize(struct render *r, const struct args *a)
{
	return map_case(r, a, 'c');
}

static struct value f_trim(struct render *r, const struct args *a)
{
	struct value v[1], s;

	if (!take_text(r, a, "chars", 0, v, &s) ||
	    (v[0].kind > V_NONE && !arg_text(r, v[0], "trim")))
		return VALUE(V_UNDEF);
	return ts_strip(r, s, v[0], 3);
}

static struct value f_string(struct render *r, const struct args *a)
{
	struct value s;

	return take_text(r, a, "", 0, NULL, &s) ? s : VALUE(V_UNDEF);
}

static struct value f_safe(struct render *r, const struct args *a)
{
	struct value s = f_string(r, a);

	s.safe = 1;
	return s;
}

static struct value f_escape(struct render *r, const struct args *a)
{
	return args_take(r, a, "", 0, NULL) ? tv_escape(r, a->self) :
	       VALUE(V_UNDEF);
}

static struct value f_replace(struct render *r, const struct args *a)
{
	struct value v[3], s, from, to;

	if (!take_text(r, a, "old new count", 2, v, &s))
		return s;
	from = tv_str(r, v[0]);
	to = tv_str(r, v[1]);
	s.safe = 0;
	return ts_replace(r, s, from, to, arg_int(r, v[2], -1));
}

static struct value f_format(struct render *r, const struct args *a)
{
	struct value fmt = tv_str(r, a->self), arg;
	u32 i;

	if (a->n && a->nr_kw)
		run_fail(r, "format takes operands by place or by name, not both");
	arg = a->nr_kw ? tv_dict(r, V_DICT) : tv_seq(r, V_TUPLE, a->n);
	for (i = 0; i < a->n && !r->mem.failed; i++)
		tv_push(r, arg, a->v[i]);
	for (i = 0; i < a->nr_kw && !r->mem.failed; i++)
		tv_dict_set(r, arg.dict, VALUE_STR(a->kw[i].name, a->kw[i].len),
			    a->kw[i].v);
	return r->mem.failed ? VALUE(V_UNDEF) : tv_percent(r, fmt, arg);
}

/* indent(width=4, first=false, blank=false): indent all lines but the first */
static struct value f_indent(struct render *r, const struct args *a)
{
	struct value v[3], s, lines, width, out;
	struct sbuf b = { .r = r };
	struct args none = { .n = 0 };
	u32 i;
	s64 n;

	if (!take_text(r, a, "width first blank", 0, v, &s))
		return VALUE(V_UNDEF);
	width = v[0];
	if (width.kind != V_STR) {
		n = arg_int(r, v[0], 4);
		width = tv_binary(r, OP_MUL, tv_text(" "), VALUE_INT(n));
	}
	none.self = ts_concat(r, ts_copy(r, s.s, s.len), tv_text("\n"));
	lines = r->mem.failed ? s : ts_splitlines(r, &none);
	for (i = 0; !r->mem.failed && i < lines.seq->n; i++) {
		out = lines.seq->v[i];
		if (i)
			sb_puts(&b, "\n");
		if (i ? out.len || tv_truth(r, v[2]) : tv_truth(r, v[1]))
			sb_add(&b, width.s, width.len);
		sb_add(&b, out.s, out.len);
	}
	out = sb_value(&b);
	out.safe = s.safe;
	return out;
}

/* ---- any value ---- */

static struct value f_default(struct render *r, const struct args *a)
{
	struct value v[2], self = a->self;

	if (!args_take(r, a, "default_value boolean", 0, v))
		return VALUE(V_UNDEF);
	if (self.kind != V_UNDEF &&
	    (!tv_truth(r, v[1]) || tv_truth(r, self)))
		return self;
	return v[0].kind ? v[0] : VALUE_STR("", 0);
}

static struct value f_length(struct render *r, const struct args *a)
{
	s64 n = 0;

	if (!args_take(r, a, "", 0, NULL))
		return VALUE(V_UNDEF);
	if (!tv_len(r, a->self, &n))
		run_fail(r, "a value of type %s has no length",
			 tv_type(a->self));
	return VALUE_INT(n);
}

static struct value make_seq(struct render *r, enum value_kind kind,
			     const struct value *v, u32 n)
{
	struct value out = tv_seq(r, kind, n);

	if (r->mem.failed)
		return VALUE(V_UNDEF);
	if (n)
		memcpy(out.seq->v, v, n * sizeof(*v));
	out.seq->n = n;
	return out;
}

static struct value f_list(struct render *r, const struct args *a)
{
	const struct value *v;
	u32 n;

	if (!args_take(r, a, "", 0, NULL))
		return VALUE(V_UNDEF);
	v = tv_items(r, a->self, &n);
	return make_seq(r, V_LIST, v, n);
}

static struct value f_first(struct render *r, const struct args *a)
{
	const struct value *v;
	struct seq *q = a->self.seq;
	u32 n;

	if (!args_take(r, a, "", 0, NULL))
		return VALUE(V_UNDEF);
	if (a->self.kind == V_GEN)
		return q->next < q->n ? q->v[q->next++] :
		       tv_undef("the first of nothing", 20);
	v = tv_items(r, a->self, &n);
	return n ? v[0] : tv_undef("the first of nothing", 20);
}

static struct value f_last(struct render *r, const struct args *a)
{
	const struct value *v;
	u32 n;

	if (!args_take(r, a, "", 0, NULL))
		return VALUE(V_UNDEF);
	if (a->self.kind == V_GEN)
		run_fail(r, "last: a generator has no end to begin at");
	v = tv_items(r, a->self, &n);
	return n ? v[n - 1] : tv_undef("the last of nothing", 19);
}

static struct value reverse_text(struct render *r, struct value s)
{
	struct value bound[3] = { VALUE_NONE, VALUE_NONE, VALUE_INT(-1) };

	return tv_slice(r, s, bound);
}

static struct value f_reverse(struct render *r, const struct args *a)
{
	const struct value *v;
	struct value out;
	u32 n, i;

	if (!args_take(r, a, "", 0, NULL))
		return VALUE(V_UNDEF);
	if (a->self.kind == V_STR)
		return reverse_text(r, a->self);
	v = tv_items(r, a->self, &n);
	out = tv_seq(r, V_GEN, n);
	for (i = n; i-- > 0 && !r->mem.failed; )
		tv_push(r, out, v[i]);
	return out;
}

static struct value f_items(struct render *r, const struct args *a)
{
	struct value view;

	if (!args_take(r, a, "", 0, NULL))
		return VALUE(V_UNDEF);
	if (a->self.kind == V_UNDEF)
		return tv_seq(r, V_GEN, 0);
	if (a->self.kind != V_DICT) {
		run_fail(r, "items wants a dict, not %s", tv_type(a->self));
		return VALUE(V_UNDEF);
	}
	view = tv_dict_view(r, a->self, "dict_items");
	view.kind = r->mem.failed ? V_UNDEF : V_GEN;
	return view;
}

static struct value f_join(struct render *r, const struct args *a)
{
	struct sbuf b = { .r = r };
	const struct value *items;
	struct value v[2], sep, s;
	u32 n, i;

	if (!args_take(r, a, "d attribute", 0, v))
		return VALUE(V_UNDEF);
	sep = v[0].kind ? tv_str(r, v[0]) : VALUE_STR("", 0);
	items = tv_items(r, a->self, &n);
	for (i = 0; i < n && !r->mem.failed; i++) {
		s = v[1].kind > V_NONE ? tv_path(r, items[i], v[1]) : items[i];
		s = tv_str(r, s);
		if (i)
			sb_add(&b, sep.s, sep.len);
		if (!r->mem.failed)
			sb_add(&b, s.s, s.len);
	}
	return sb_value(&b);
}

/* Documentation/template.md has a table of these names. */
const struct func tv_filters[] = {
	{ "abs", f_abs }, { "capitalize", f_capitalize },
	{ "count", f_length }, { "d", f_default }, { "default", f_default },
	{ "dictsort", f_dictsort }, { "e", f_escape }, { "escape", f_escape },
	{ "first", f_first }, { "float", f_float }, { "format", f_format },
	{ "indent", f_indent }, { "int", f_int }, { "items", f_items },
	{ "join", f_join }, { "last", f_last }, { "length", f_length },
	{ "list", f_list }, { "lower", f_lower }, { "map", f_map },
	{ "max", f_max }, { "min", f_min }, { "reject", f_reject },
	{ "rejectattr", f_rejectattr }, { "replace", f_replace },
	{ "reverse", f_reverse }, { "round", f_round }, { "safe", f_safe },
	{ "select", f_select }, { "selectattr", f_selectattr },
	{ "sort", f_sort }, { "string", f_string }, { "sum", f_sum },
	{ "title", f_title }, { "tojson", tv_to_json }, { "trim", f_trim },
	{ "unique", f_unique }, { "upper", f_upper }, { NULL, NULL },
};

const struct func *tv_filter_find(const char *s, size_t n)
{
	return tv_func_find(tv_filters, s, n);
}
