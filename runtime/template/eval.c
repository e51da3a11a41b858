// SPDX-License-Identifier: Apache-2.0
/*
 * eval.c - expressions
 *
 * `and` and `or` return one of their operands and evaluate the other one only
 * if needed; comparisons may be chained; an `if` without else gives Undefined.
 * An error is reported at the node of the operation that failed.
 */
#include "runtime/template/internal.h"

static void at(struct render *r, const struct node *n)
{
	if (r->mem.failed)
		return;
	r->mem.line = n->line;
	r->mem.col = n->col;
}

static struct value eval_items(struct render *r, const struct node *n,
			       enum value_kind kind)
{
	struct value v = tv_seq(r, kind, 4);
	const struct node *item;

	for (item = n->a; item && !r->mem.failed; item = item->next)
		tv_push(r, v, eval(r, item));
	return v;
}

static struct value eval_dict(struct render *r, const struct node *n)
{
	struct value d = tv_dict(r, V_DICT), key, val;
	const struct node *item;

	for (item = n->a; item && !r->mem.failed; item = item->next->next) {
		key = eval(r, item);
		val = eval(r, item->next);
		at(r, item);
		tv_dict_set(r, d.dict, key, val);
	}
	return d;
}

static struct value eval_item(struct render *r, const struct node *n)
{
	struct value v = eval(r, n->a), key, bound[3];
	const struct node *part[3];
	int i;

	if (n->b->kind != N_SLICE) {
		key = eval(r, n->b);
		at(r, n);
		return tv_getitem(r, v, key);
	}
	part[0] = n->b->a;
	part[1] = n->b->b;
	part[2] = n->b->c;
	for (i = 0; i < 3; i++)
		bound[i] = part[i] ? eval(r, part[i]) : VALUE_NONE;
	at(r, n);
	return tv_slice(r, v, bound);
}

static struct value eval_applied(struct render *r, const struct node *n)
{
	struct args a = { .self = eval(r, n->a) };

	if (!call_args(r, n->b, &a, VALUE(V_MISSING)))
		return VALUE(V_UNDEF);
	at(r, n);
	if (!n->func) {
		run_fail(r, "the %s '%.*s' is not supported",
			 n->kind == N_TEST ? "test" : "filter",
			 (int)min(n->len, 40u), n->s);
		return VALUE(V_UNDEF);
	}
	return n->func->fn(r, &a);
}

static bool compare(struct render *r, enum op op, struct value a,
		    struct value b)
{
	switch (op) {
	case OP_EQ:
		return tv_equal(r, a, b);
	case OP_NE:
		return !tv_equal(r, a, b);
	case OP_IN:
		return tv_in(r, a, b);
	case OP_NOT_IN:
		return !tv_in(r, a, b);
	default:
		return tv_compare(r, op, a, b);
	}
}

static struct value eval_compare(struct render *r, const struct node *n)
{
	struct value a = eval(r, n->a), b;
	const struct node *o;
	bool yes = true;

	for (o = n->b; o && yes && !r->mem.failed; o = o->next) {
		b = eval(r, o->a);
		at(r, o);
		if (!r->mem.failed)
			yes = compare(r, o->op, a, b);
		a = b;
	}
	return VALUE_BOOL(yes);
}

static struct value eval_concat(struct render *r, const struct node *n)
{
	struct value v = tv_str(r, eval(r, n->a)), part;
	const struct node *item;

	v.safe = 0;
	for (item = n->a->next; item && !r->mem.failed; item = item->next) {
		part = tv_str(r, eval(r, item));
		v = ts_concat(r, v, part);
	}
	return v;
}

static struct value eval_binary(struct render *r, const struct node *n)
{
	struct value a = eval(r, n->a), b = eval(r, n->b);

	at(r, n);
	if (r->mem.failed)
		return VALUE(V_UNDEF);
	return tv_binary(r, n->op, a, b);
}

static struct value eval_logic(struct render *r, const struct node *n)
{
	struct value v;

	switch (n->kind) {
	case N_NOT:
		return VALUE_BOOL(!tv_truth(r, eval(r, n->a)));
	case N_AND:
		v = eval(r, n->a);
		return tv_truth(r, v) ? eval(r, n->b) : v;
	case N_OR:
		v = eval(r, n->a);
		return tv_truth(r, v) ? v : eval(r, n->b);
	default:
		if (tv_truth(r, eval(r, n->a)))
			return eval(r, n->b);
		return n->c ? eval(r, n->c) : tv_undef("the inline if", 13);
	}
}

static struct value eval_sign(struct render *r, const struct node *n)
{
	struct value v = eval(r, n->a);

	at(r, n);
	return tv_negate(r, v, n->kind == N_NEG);
}

static struct value eval_attr(struct render *r, const struct node *n)
{
	struct value v = eval(r, n->a);

	at(r, n);
	return tv_getattr(r, v, n->s, n->len);
}

static struct value eval_kind(struct render *r, const struct node *n)
{
	switch (n->kind) {
	case N_CONST:
		return n->val;
	case N_NAME:
		return scope_get(r, n->sym);
	case N_INPUT:
		return r->input;
	case N_LIST:
		return eval_items(r, n, V_LIST);
	case N_TUPLE:
		return eval_items(r, n, V_TUPLE);
	case N_DICT:
		return eval_dict(r, n);
	case N_ATTR:
		return eval_attr(r, n);
	case N_ITEM:
		return eval_item(r, n);
	case N_CALL:
		return call_node(r, n, VALUE(V_MISSING));
	case N_FILTER:
	case N_TEST:
		return eval_applied(r, n);
	case N_NEG:
	case N_POS:
		return eval_sign(r, n);
	case N_BINARY:
		return eval_binary(r, n);
	case N_CONCAT:
		return eval_concat(r, n);
	case N_COMPARE:
		return eval_compare(r, n);
	default:
		return eval_logic(r, n);
	}
}

struct value eval(struct render *r, const struct node *n)
{
	struct value v;

	if (!run_enter(r))
		return VALUE(V_UNDEF);
	run_step(r, 1);
	at(r, n);
	v = eval_kind(r, n);
	at(r, n);
	run_leave(r);
	return r->mem.failed ? VALUE(V_UNDEF) : v;
}
