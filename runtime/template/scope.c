// SPDX-License-Identifier: Apache-2.0
/*
 * scope.c - scopes of names
 *
 * The template has a scope, and so have each iteration of a loop, a macro's
 * call and a block with captured text; an `if` has none.  A variable ends with
 * its scope.  Names are looked up from the inside out, in a macro from the
 * scope that defined it, and in the caller's variables last.
 */
#include "runtime/template/internal.h"

struct frame *scope_push(struct render *r, struct frame *up)
{
	struct frame *f = mem_get(&r->mem, sizeof(*f));

	if (!f)
		return NULL;
	memset(f, 0, sizeof(*f));
	f->up = up;
	return f;
}

static struct var *var_find(struct render *r, struct frame *f, u32 sym)
{
	u32 i;

	run_step(r, f->n / 16);
	for (i = 0; i < f->n; i++)
		if (f->var[i].sym == sym)
			return &f->var[i];
	return NULL;
}

void scope_set(struct render *r, struct frame *f, u32 sym, struct value v)
{
	struct var *var;
	u32 cap;

	if (r->mem.failed)
		return;
	var = var_find(r, f, sym);
	if (var) {
		var->v = v;
		return;
	}
	if (f->n == f->cap) {
		cap = max(f->cap * 2, 4u);
		var = mem_get(&r->mem, cap * sizeof(*var));
		if (!var)
			return;
		if (f->n)
			memcpy(var, f->var, f->n * sizeof(*var));
		f->var = var;
		f->cap = cap;
	}
	f->var[f->n].sym = sym;
	f->var[f->n++].v = v;
}

struct value scope_get(struct render *r, u32 sym)
{
	struct frame *f;
	struct var *var;

	for (f = r->frame; f; f = f->up) {
		var = var_find(r, f, sym);
		if (var)
			return var->v;
	}
	return r->base[sym];
}

static void assign_tuple(struct render *r, const struct node *target,
			 struct value v)
{
	const struct node *n;
	const struct value *items;
	u32 want = 0, nr = 0, i = 0;

	items = tv_items(r, v, &nr);
	for (n = target->a; n; n = n->next)
		want++;
	if (nr != want)
		run_fail(r, "%u values for %u names", nr, want);
	for (n = target->a; n && !r->mem.failed; n = n->next)
		scope_assign(r, n, items[i++]);
}

static void assign_attr(struct render *r, const struct node *n, struct value v)
{
	struct value ns = scope_get(r, n->sym);

	if (ns.kind != V_NAMESPACE)
		run_fail(r, "cannot set an attribute of a value that is no namespace");
	else if (n->s[0] == '_')
		run_fail(r, "an attribute of a namespace cannot begin with '_'");
	else
		tv_dict_set(r, ns.dict, VALUE_STR(n->s, n->len), v);
}

void scope_assign(struct render *r, const struct node *target, struct value v)
{
	if (r->mem.failed)
		return;
	if (target->kind == N_TUPLE)
		assign_tuple(r, target, v);
	else if (target->kind == N_NSREF)
		assign_attr(r, target, v);
	else
		scope_set(r, r->frame, target->sym, v);
}
