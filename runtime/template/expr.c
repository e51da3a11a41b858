// SPDX-License-Identifier: Apache-2.0
/*
 * expr.c - expressions: from the loosest operator to the tightest
 *
 *	a if c else b, or, and, not, comparisons, + -, ~, * / // %, **
 *
 * and below them unary.c.  Note the precedence of Jinja's `~`, and `**`, which
 * groups to the left here.
 */
#include "runtime/template/internal.h"

static struct node *parse_two(struct parser *p, enum node_kind kind,
			      struct node *a, struct node *b)
{
	struct node *n = parse_node(p, kind);

	n->a = a;
	n->b = b;
	n->line = a->line;
	n->col = a->col;
	return n;
}

static enum op math_op(const struct parser *p, int level)
{
	static const u8 ops[3][4] = {
		{ OP_ADD, OP_SUB },
		{ OP_MUL, OP_DIV, OP_FLOORDIV, OP_MOD },
		{ OP_POW },
	};
	u32 i;

	if (p->at->kind != T_OP)
		return OP_NONE;
	for (i = 0; i < 4 && ops[level][i]; i++)
		if (p->at->op == ops[level][i])
			return p->at->op;
	return OP_NONE;
}

static struct node *parse_concat(struct parser *p);

/* Level 0: + and -, 1: * / // %, 2: **; all group to the left. */
static struct node *parse_math(struct parser *p, int level)
{
	struct node *n, *right;
	u32 line, col;
	enum op op;

	n = level == 0 ? parse_concat(p) :
	    level == 1 ? parse_math(p, 2) : parse_unary(p, true);
	while (!p->m->failed && (op = math_op(p, level))) {
		line = p->at->line;
		col = p->at->col;
		p->at++;
		right = level == 0 ? parse_concat(p) :
			level == 1 ? parse_math(p, 2) : parse_unary(p, true);
		n = parse_two(p, N_BINARY, n, right);
		n->op = op;
		n->line = line;
		n->col = col;
	}
	return n;
}

static struct node *parse_concat(struct parser *p)
{
	struct node *first = parse_math(p, 1), *n, **last;

	if (!parse_is(p, OP_TILDE))
		return first;
	n = parse_node(p, N_CONCAT);
	n->a = first;
	last = &first->next;
	while (!p->m->failed && parse_skip(p, OP_TILDE)) {
		*last = parse_math(p, 1);
		last = &(*last)->next;
	}
	return n;
}

static enum op compare_op(struct parser *p)
{
	if (p->at->kind == T_OP && p->at->op >= OP_EQ && p->at->op <= OP_GE)
		return (p->at++)->op;
	if (parse_skip_name(p, "in"))
		return OP_IN;
	if (!parse_is_name(p, "not"))
		return OP_NONE;
	p->at++;
	if (parse_skip_name(p, "in"))
		return OP_NOT_IN;
	p->at--;
	return OP_NONE;
}

static struct node *parse_compare(struct parser *p)
{
	struct node *first = parse_math(p, 0), *n = NULL, *o, **last = NULL;
	enum op op;

	while (!p->m->failed && (op = compare_op(p))) {
		p->at--;
		o = parse_node(p, N_OPERAND);
		p->at++;
		o->op = op;
		o->a = parse_math(p, 0);
		if (!n) {
			n = parse_two(p, N_COMPARE, first, o);
			last = &o->next;
			continue;
		}
		*last = o;
		last = &o->next;
	}
	return n ? n : first;
}

static struct node *parse_not(struct parser *p)
{
	struct node *n;

	if (!parse_is_name(p, "not"))
		return parse_compare(p);
	n = parse_node(p, N_NOT);
	p->at++;
	if (!parse_enter(p))
		return n;
	n->a = parse_not(p);
	p->nest--;
	return n;
}

static struct node *parse_and(struct parser *p)
{
	struct node *n = parse_not(p);

	while (!p->m->failed && parse_skip_name(p, "and"))
		n = parse_two(p, N_AND, n, parse_not(p));
	return n;
}

static struct node *parse_or(struct parser *p)
{
	struct node *n = parse_and(p);

	while (!p->m->failed && parse_skip_name(p, "or"))
		n = parse_two(p, N_OR, n, parse_and(p));
	return n;
}

struct node *parse_expr(struct parser *p, bool with_cond)
{
	const struct token *unknown = p->unknown;
	struct node *n, *cond;

	if (!parse_enter(p))
		return parse_node(p, N_CONST);
	n = parse_or(p);
	while (with_cond && !p->m->failed && parse_skip_name(p, "if")) {
		p->unknown = unknown;
		cond = parse_node(p, N_COND);
		cond->b = n;
		p->soft++;
		cond->a = parse_or(p);
		if (parse_skip_name(p, "else"))
			cond->c = parse_expr(p, true);
		p->soft--;
		n = cond;
	}
	p->nest--;
	return n;
}

static bool tuple_ends(const struct parser *p)
{
	return p->at->kind == T_VAR_END || p->at->kind == T_BLOCK_END ||
	       p->at->kind == T_EOF || parse_is(p, OP_RPAREN) ||
	       parse_is_name(p, "recursive");
}

struct node *parse_tuple(struct parser *p, bool with_cond)
{
	struct node *first = parse_expr(p, with_cond), *n, **last;

	if (!parse_is(p, OP_COMMA))
		return first;
	n = parse_node(p, N_TUPLE);
	n->a = first;
	last = &first->next;
	while (!p->m->failed && parse_skip(p, OP_COMMA) && !tuple_ends(p)) {
		*last = parse_expr(p, with_cond);
		last = &(*last)->next;
	}
	return n;
}

static bool is_reserved(const struct parser *p)
{
	static const char * const words[] = {
		"true", "false", "none", "True", "False", "None", "and", "or",
		"not", "if", "else", "in", "is",
	};
	u32 i;

	for (i = 0; i < ARRAY_SIZE(words); i++)
		if (parse_is_name(p, words[i]))
			return true;
	return false;
}

struct node *parse_target_name(struct parser *p, bool ns)
{
	struct node *n = parse_node(p, N_NAME);
	const struct token *t;

	if (is_reserved(p))
		parse_fail(p, "the name of a variable");
	t = parse_want_name(p);
	if (p->m->failed)
		return n;
	n->sym = parse_symbol(p, t);
	if (ns && parse_skip(p, OP_DOT)) {
		t = parse_want_name(p);
		n->kind = N_NSREF;
	}
	n->s = t->s;
	n->len = t->len;
	return n;
}

struct node *parse_target(struct parser *p, bool ns)
{
	bool paren = parse_skip(p, OP_LPAREN);
	struct node *first = parse_target_name(p, ns), *n = first, **last;

	if (parse_is(p, OP_COMMA)) {
		n = parse_node(p, N_TUPLE);
		n->a = first;
		last = &first->next;
		while (!p->m->failed && parse_skip(p, OP_COMMA)) {
			if (p->at->kind != T_NAME || parse_is_name(p, "in"))
				break;
			*last = parse_target_name(p, ns);
			last = &(*last)->next;
		}
	}
	if (paren)
		parse_want(p, OP_RPAREN);
	return n;
}
