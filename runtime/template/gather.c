// SPDX-License-Identifier: Apache-2.0
/*
 * gather.c - map, select, reject and similar filters
 *
 * Their results can be iterated once, as in Python.  Python does the work
 * during the iteration; here it is done at once, which makes a difference only
 * for errors.
 */
#include "runtime/template/filters.h"

/* Operands after the first @skip; without any, @v may be NULL. */
static struct args rest_of(const struct args *a, u32 skip)
{
	struct args rest = *a;

	if (skip) {
		rest.v += skip;
		rest.n -= skip;
	}
	return rest;
}

static const struct func *named(struct render *r, struct value name, bool test)
{
	const struct func *f = NULL;

	if (name.kind == V_STR)
		f = test ? tv_test_find(name.s, name.len) :
		    tv_filter_find(name.s, name.len);
	if (!f && name.kind == V_STR)
		run_fail(r, "the %s '%.*s' is not supported",
			 test ? "test" : "filter", (int)min(name.len, 40u),
			 name.s);
	else if (!f)
		run_fail(r, "the name of a %s is a text, not %s",
			 test ? "test" : "filter", tv_type(name));
	return f;
}

static struct value map_attribute(struct render *r, const struct args *a)
{
	struct value out = tv_seq(r, V_GEN, 0), v[2], item;
	const struct value *items;
	u32 n, i;

	if (!args_take(r, a, "attribute default", 1, v))
		return VALUE(V_UNDEF);
	items = tv_items(r, a->self, &n);
	for (i = 0; i < n && !r->mem.failed; i++) {
		item = tv_path(r, items[i], v[0]);
		if (item.kind == V_UNDEF && v[1].kind)
			item = v[1];
		tv_push(r, out, item);
	}
	return out;
}

struct value f_map(struct render *r, const struct args *a)
{
	struct value out;
	const struct value *items;
	const struct func *f;
	struct args each;
	u32 n, i;

	/* A false value counts as empty, also None. */
	if (!tv_truth(r, a->self))
		return tv_seq(r, V_GEN, 0);
	if (!a->n)
		return map_attribute(r, a);
	f = named(r, a->v[0], false);
	each = rest_of(a, 1);
	out = tv_seq(r, V_GEN, 0);
	items = tv_items(r, a->self, &n);
	for (i = 0; i < n && !r->mem.failed; i++) {
		run_step(r, 1);
		each.self = items[i];
		tv_push(r, out, f->fn(r, &each));
	}
	return out;
}

/*
 * @attr: the first operand names the attribute of an item that is tested
 */
static struct value choose(struct render *r, const struct args *a, bool attr,
			   bool want)
{
	struct value out = tv_seq(r, V_GEN, 0), v;
	const struct func *f = NULL;
	const struct value *items;
	struct args each;
	u32 n, i;

	if (!tv_truth(r, a->self))
		return out;
	if (a->n < attr) {
		run_fail(r, "the name of an attribute is missing");
		return VALUE(V_UNDEF);
	}
	each = rest_of(a, attr);
	if (each.n) {
		f = named(r, each.v[0], true);
		each = rest_of(&each, 1);
	}
	items = tv_items(r, a->self, &n);
	for (i = 0; i < n && !r->mem.failed; i++) {
		run_step(r, 1);
		v = attr ? tv_path(r, items[i], a->v[0]) : items[i];
		each.self = v;
		if (f && !r->mem.failed)
			v = f->fn(r, &each);
		if (tv_truth(r, v) == want)
			tv_push(r, out, items[i]);
	}
	return out;
}

struct value f_select(struct render *r, const struct args *a)
{
	return choose(r, a, false, true);
}

struct value f_reject(struct render *r, const struct args *a)
{
	return choose(r, a, false, false);
}

struct value f_selectattr(struct render *r, const struct args *a)
{
	return choose(r, a, true, true);
}

struct value f_rejectattr(struct render *r, const struct args *a)
{
	return choose(r, a, true, false);
}
