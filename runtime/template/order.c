// SPDX-License-Identifier: Apache-2.0
/*
 * order.c - sort, dictsort, unique, min, max, sum
 *
 * Letters are compared without case unless case_sensitive is given, as Jinja2
 * does.
 */
#include "runtime/template/filters.h"

static struct value key_of(struct render *r, struct value v, bool sensitive)
{
	return v.kind == V_STR && !sensitive ? ts_map_case(r, v, 'l') : v;
}

/* Several attributes, separated by commas, give a list of keys. */
static struct value key_list(struct render *r, struct value v,
			     struct value attr, bool sensitive)
{
	struct value list = tv_seq(r, V_LIST, 2), item;
	const char *p = attr.s, *end = p + attr.len, *comma;

	for (; !r->mem.failed; p = comma + 1) {
		comma = memchr(p, ',', (size_t)(end - p));
		if (!comma)
			comma = end;
		item = tv_path(r, v, VALUE_STR(p, comma - p));
		tv_push(r, list, key_of(r, item, sensitive));
		if (comma == end)
			break;
	}
	return list;
}

/* Copies of the items, and after them their keys */
static struct value *items_and_keys(struct render *r, struct value self,
				    struct value attr, bool sensitive, u32 *n)
{
	const struct value *items = tv_items(r, self, n);
	struct value *v = NULL;
	u32 i;

	if (!r->mem.failed)
		v = mem_get(&r->mem, 2 * (size_t)*n * sizeof(*v));
	for (i = 0; v && i < *n && !r->mem.failed; i++) {
		run_step(r, 1);
		v[i] = items[i];
		if (attr.kind == V_STR && memchr(attr.s, ',', attr.len))
			v[*n + i] = key_list(r, v[i], attr, sensitive);
		else
			v[*n + i] = key_of(r, attr.kind > V_NONE ?
					   tv_path(r, v[i], attr) : v[i],
					   sensitive);
	}
	return r->mem.failed ? NULL : v;
}

static struct value list_of(struct render *r, const struct value *v, u32 n)
{
	struct value out = tv_seq(r, V_LIST, n);
	u32 i;

	for (i = 0; i < n && !r->mem.failed; i++)
		tv_push(r, out, v[i]);
	return out;
}

struct value f_sort(struct render *r, const struct args *a)
{
	struct value arg[3], *v;
	u32 n;

	if (!args_take(r, a, "reverse case_sensitive attribute", 0, arg))
		return VALUE(V_UNDEF);
	v = items_and_keys(r, a->self, arg[2], tv_truth(r, arg[1]), &n);
	if (!v)
		return VALUE(V_UNDEF);
	tv_sort(r, v, v + n, n, tv_truth(r, arg[0]));
	return list_of(r, v, n);
}

struct value f_dictsort(struct render *r, const struct args *a)
{
	struct value arg[3], pairs, attr, *v;
	u32 n;

	if (!args_take(r, a, "case_sensitive by reverse", 0, arg))
		return VALUE(V_UNDEF);
	if (arg[1].kind && !tv_is_text(arg[1], "key") &&
	    !tv_is_text(arg[1], "value"))
		run_fail(r, "dictsort sorts by 'key' or by 'value'");
	if (a->self.kind != V_DICT)
		run_fail(r, "dictsort wants a dict, not %s", tv_type(a->self));
	if (r->mem.failed)
		return VALUE(V_UNDEF);
	pairs = tv_dict_view(r, a->self, "dict_items");
	attr = VALUE_INT(tv_is_text(arg[1], "value"));
	v = items_and_keys(r, pairs, attr, tv_truth(r, arg[0]), &n);
	if (!v)
		return VALUE(V_UNDEF);
	tv_sort(r, v, v + n, n, tv_truth(r, arg[2]));
	return list_of(r, v, n);
}

struct value f_unique(struct render *r, const struct args *a)
{
	struct value arg[2], out = tv_seq(r, V_GEN, 0), *v;
	struct value seen = tv_dict(r, V_DICT);
	u32 n, i;

	if (!args_take(r, a, "case_sensitive attribute", 0, arg))
		return VALUE(V_UNDEF);
	v = items_and_keys(r, a->self, arg[1], tv_truth(r, arg[0]), &n);
	for (i = 0; v && i < n && !r->mem.failed; i++) {
		if (tv_dict_find(r, seen.dict, v[n + i]))
			continue;
		tv_dict_set(r, seen.dict, v[n + i], VALUE_NONE);
		tv_push(r, out, v[i]);
	}
	return out;
}

static struct value extreme(struct render *r, const struct args *a, u8 op)
{
	struct value arg[2], *v;
	u32 n, i, best = 0;

	if (!args_take(r, a, "case_sensitive attribute", 0, arg))
		return VALUE(V_UNDEF);
	v = items_and_keys(r, a->self, arg[1], tv_truth(r, arg[0]), &n);
	if (!v || !n)
		return tv_undef("the least or greatest of nothing", 32);
	for (i = 1; i < n && !r->mem.failed; i++)
		if (tv_compare(r, op, v[n + i], v[n + best]))
			best = i;
	return v[best];
}

struct value f_min(struct render *r, const struct args *a)
{
	return extreme(r, a, OP_LT);
}

struct value f_max(struct render *r, const struct args *a)
{
	return extreme(r, a, OP_GT);
}

struct value f_sum(struct render *r, const struct args *a)
{
	const struct value *items;
	struct value arg[2], sum;
	u32 n, i;

	if (!args_take(r, a, "attribute start", 0, arg))
		return VALUE(V_UNDEF);
	sum = arg[1].kind ? arg[1] : VALUE_INT(0);
	if (sum.kind == V_STR)
		run_fail(r, "sum does not add texts: use join");
	items = tv_items(r, a->self, &n);
	for (i = 0; i < n && !r->mem.failed; i++)
		sum = tv_binary(r, OP_ADD, sum, arg[0].kind > V_NONE ?
				tv_path(r, items[i], arg[0]) : items[i]);
	return sum;
}
