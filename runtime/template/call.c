// SPDX-License-Identifier: Apache-2.0
/*
 * call.c - calls: arguments, macros, functions, methods
 *
 * A macro runs in a scope below the one that defined it, and its value is its
 * text.  A default is computed at the call, where the parameters before it are
 * visible.
 */
#include "runtime/template/internal.h"

static u32 count_args(const struct node *list, bool keyword)
{
	u32 n = 0;

	for (; list; list = list->next)
		n += (list->kind == N_KEYWORD) == keyword;
	return n;
}

static void spread(struct render *r, struct value list, struct value v)
{
	const struct value *items;
	u32 n, i;

	items = tv_items(r, v, &n);
	for (i = 0; i < n && !r->mem.failed; i++)
		tv_push(r, list, items[i]);
}

bool call_args(struct render *r, const struct node *list, struct args *a,
	       struct value caller)
{
	u32 nr_kw = count_args(list, true);
	struct value v = tv_seq(r, V_LIST, count_args(list, false));
	struct kwarg *kw = NULL;

	if (nr_kw || caller.kind)
		kw = mem_get(&r->mem, (nr_kw + 1) * sizeof(*kw));
	for (; list && !r->mem.failed; list = list->next) {
		if (list->kind == N_SPREAD) {
			spread(r, v, eval(r, list->a));
		} else if (list->kind != N_KEYWORD) {
			tv_push(r, v, eval(r, list));
		} else {
			kw[a->nr_kw].name = list->s;
			kw[a->nr_kw].len = list->len;
			kw[a->nr_kw++].v = eval(r, list->a);
		}
	}
	if (r->mem.failed)
		return false;
	if (caller.kind)
		kw[a->nr_kw++] = (struct kwarg){ "caller", 6, caller };
	a->v = v.seq->v;
	a->n = v.seq->n;
	a->kw = kw;
	return true;
}

/* ---- macros ---- */

static bool is_word(const struct kwarg *k, const char *s, u32 len)
{
	return k->len == len && !memcmp(k->name, s, len);
}

/* The parameter @i: given by position, by name, or its default */
static struct value param_value(struct render *r, const struct node *p,
				const struct args *a, u32 i, u32 *used)
{
	u32 k;

	run_step(r, a->nr_kw / 8);
	for (k = 0; k < a->nr_kw; k++) {
		if (!is_word(&a->kw[k], p->s, p->len))
			continue;
		++*used;
		if (i < a->n)
			run_fail(r, "the parameter '%.*s' was given twice",
				 (int)min(p->len, 40u), p->s);
		return a->kw[k].v;
	}
	if (i < a->n)
		return a->v[i];
	return p->a ? eval(r, p->a) : tv_undef(p->s, p->len);
}

static bool is_param(struct render *r, const struct node *m,
		     const struct kwarg *k)
{
	const struct node *p;
	u32 n = 0;

	for (p = m->a; p && !is_word(k, p->s, p->len); p = p->next)
		n++;
	run_step(r, n / 8);
	return p != NULL;
}

/*
 * Bind varargs, kwargs and caller, if the body reads them.
 * Return: arguments used.
 */
static u32 bind_hidden(struct render *r, const struct node *m,
		       const struct args *a, u32 nr_params)
{
	struct value rest = tv_seq(r, V_TUPLE, 1), named = tv_dict(r, V_DICT);
	struct value caller = tv_undef("caller", 6);
	u32 i, used = 0;

	for (i = nr_params; i < a->n && m->flags & MACRO_VARARGS; i++)
		tv_push(r, rest, a->v[i]);
	for (i = 0; i < a->nr_kw && !r->mem.failed; i++) {
		if (is_param(r, m, &a->kw[i]))
			continue;
		if (m->flags & MACRO_CALLER && is_word(&a->kw[i], "caller", 6)) {
			caller = a->kw[i].v;
			used++;
		} else if (m->flags & MACRO_KWARGS) {
			tv_dict_set(r, named.dict, VALUE_STR(a->kw[i].name,
				    a->kw[i].len), a->kw[i].v);
			used++;
		}
	}
	if (m->flags & MACRO_CALLER)
		scope_set(r, r->frame, r->t->hidden_sym[0], caller);
	if (m->flags & MACRO_VARARGS)
		scope_set(r, r->frame, r->t->hidden_sym[1], rest);
	if (m->flags & MACRO_KWARGS)
		scope_set(r, r->frame, r->t->hidden_sym[2], named);
	return used;
}

static void bind_params(struct render *r, const struct node *m,
			const struct args *a)
{
	const struct node *p;
	u32 i = 0, used = 0;

	for (p = m->a; p && !r->mem.failed; p = p->next, i++)
		scope_set(r, r->frame, p->sym,
			  param_value(r, p, a, i, &used));
	if (r->mem.failed)
		return;
	if (m->flags)
		used += bind_hidden(r, m, a, i);
	if (a->n > i && !(m->flags & MACRO_VARARGS))
		run_fail(r, "the macro '%.*s' takes no more than %u arguments",
			 (int)min(m->len, 40u), m->s, i);
	else if (used < a->nr_kw)
		run_fail(r, "the macro '%.*s' has no parameter of such a name",
			 (int)min(m->len, 40u), m->s);
}

static struct value call_macro(struct render *r, const struct macro *m,
			       const struct args *a)
{
	struct frame *outer = r->frame;
	u32 loop_depth = r->loop_depth;
	struct value v = VALUE(V_UNDEF);

	if (!run_enter(r))
		return v;
	r->frame = scope_push(r, m->scope);
	if (r->frame)
		bind_params(r, m->node, a);
	if (!r->mem.failed)
		v = run_capture(r, m->node->d);
	r->frame = outer;
	r->loop_depth = loop_depth;
	run_leave(r);
	return v;
}

/* ---- calls ---- */

struct value call_value(struct render *r, struct value fn, struct args *a)
{
	if (r->mem.failed)
		return VALUE(V_UNDEF);
	switch (fn.kind) {
	case V_MACRO:
		return call_macro(r, fn.macro, a);
	case V_FUNC:
		return fn.func->fn(r, a);
	case V_METHOD:
		a->self = fn.bound->self;
		return fn.bound->func.fn(r, a);
	case V_UNDEF:
		run_fail(r, "'%.*s' is undefined, and was called",
			 (int)min(fn.len, 60u), fn.s ? fn.s : "");
		return VALUE(V_UNDEF);
	default:
		run_fail(r, "a value of type %s was called", tv_type(fn));
		return VALUE(V_UNDEF);
	}
}

struct value call_node(struct render *r, const struct node *n,
		       struct value caller)
{
	struct value fn = eval(r, n->a);
	struct args a = { .n = 0 };

	if (!call_args(r, n->b, &a, caller))
		return VALUE(V_UNDEF);
	r->mem.line = n->line;
	r->mem.col = n->col;
	return call_value(r, fn, &a);
}
