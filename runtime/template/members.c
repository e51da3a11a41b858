// SPDX-License-Identifier: Apache-2.0
/*
 * members.c - methods of lists, dicts and the loop; method lookup
 */
#include "runtime/template/internal.h"

/* ---- list and tuple ---- */

static struct value m_count(struct render *r, const struct args *a)
{
	const struct seq *q = a->self.seq;
	struct value v[1];
	s64 n = 0;
	u32 i;

	if (!args_take(r, a, "value", 1, v))
		return VALUE(V_UNDEF);
	for (i = 0; i < q->n && !r->mem.failed; i++)
		n += tv_equal(r, q->v[i], v[0]);
	return VALUE_INT(n);
}

static struct value m_index(struct render *r, const struct args *a)
{
	const struct seq *q = a->self.seq;
	struct value v[1];
	u32 i;

	if (!args_take(r, a, "value", 1, v))
		return VALUE(V_UNDEF);
	for (i = 0; i < q->n && !r->mem.failed; i++)
		if (tv_equal(r, q->v[i], v[0]))
			return VALUE_INT(i);
	run_fail(r, "index: the value is not in the list");
	return VALUE(V_UNDEF);
}

/* Lists and dicts never change, so a copy is the object itself. */
static struct value m_copy(struct render *r, const struct args *a)
{
	return args_take(r, a, "", 0, NULL) ? a->self : VALUE(V_UNDEF);
}

/* ---- dict ---- */

struct value tv_dict_view(struct render *r, struct value d, const char *name)
{
	struct value view = tv_seq(r, V_VIEW, d.dict->n), v;
	const struct dict_entry *e;
	u32 i;

	if (r->mem.failed)
		return VALUE(V_UNDEF);
	view.seq->name = name;
	for (i = 0; i < d.dict->n && !r->mem.failed; i++) {
		run_step(r, 1);
		e = &d.dict->e[i];
		v = name[5] == 'k' ? e->key : e->val;
		if (name[5] == 'i') {
			v = tv_seq(r, V_TUPLE, 2);
			tv_push(r, v, e->key);
			tv_push(r, v, e->val);
		}
		tv_push(r, view, v);
	}
	return view;
}

static struct value m_items(struct render *r, const struct args *a)
{
	return args_take(r, a, "", 0, NULL) ?
	       tv_dict_view(r, a->self, "dict_items") : VALUE(V_UNDEF);
}

static struct value m_keys(struct render *r, const struct args *a)
{
	return args_take(r, a, "", 0, NULL) ?
	       tv_dict_view(r, a->self, "dict_keys") : VALUE(V_UNDEF);
}

static struct value m_values(struct render *r, const struct args *a)
{
	return args_take(r, a, "", 0, NULL) ?
	       tv_dict_view(r, a->self, "dict_values") : VALUE(V_UNDEF);
}

static struct value m_get(struct render *r, const struct args *a)
{
	struct value v[2], *found;

	if (a->nr_kw)
		run_fail(r, "get takes no operands by name");
	if (!args_take(r, a, "key default", 1, v))
		return VALUE(V_UNDEF);
	found = tv_dict_find(r, a->self.dict, v[0]);
	return found ? *found : v[1].kind ? v[1] : VALUE_NONE;
}

/* ---- loop ---- */

static struct value m_cycle(struct render *r, const struct args *a)
{
	if (!a->n || a->nr_kw) {
		run_fail(r, "loop.cycle wants values");
		return VALUE(V_UNDEF);
	}
	return a->v[a->self.loop->at % a->n];
}

/* ---- lookup ---- */

const struct func tv_row_methods[] = {
	{ "count", m_count }, { "index", m_index }, { "copy", m_copy },
	{ "append", NULL }, { "clear", NULL }, { "extend", NULL },
	{ "insert", NULL }, { "pop", NULL }, { "remove", NULL },
	{ "reverse", NULL }, { "sort", NULL }, { NULL, NULL },
};

const struct func tv_dict_methods[] = {
	{ "items", m_items }, { "keys", m_keys }, { "values", m_values },
	{ "get", m_get }, { "copy", m_copy }, { "clear", NULL },
	{ "fromkeys", NULL }, { "pop", NULL }, { "popitem", NULL },
	{ "setdefault", NULL }, { "update", NULL }, { NULL, NULL },
};

static const struct func loop_methods[] = {
	{ "cycle", m_cycle }, { NULL, NULL },
};

const struct func *tv_func_find(const struct func *f, const char *s, size_t n)
{
	for (; f->name; f++)
		if (strlen(f->name) == n && !memcmp(f->name, s, n))
			return f;
	return NULL;
}

const struct func *tv_method_find(struct value self, const char *s, size_t n)
{
	switch (self.kind) {
	case V_STR:
		return tv_func_find(tv_text_methods, s, n);
	case V_LIST:
	case V_TUPLE:
		return tv_func_find(tv_row_methods, s, n);
	case V_DICT:
		return tv_func_find(tv_dict_methods, s, n);
	case V_LOOP:
		return tv_func_find(loop_methods, s, n);
	default:
		return NULL;
	}
}
