// SPDX-License-Identifier: Apache-2.0
/*
 * unary.c - signs, literals, names, and their suffixes
 *
 * A sign applies to its operand with subscripts and calls; filters and tests
 * then apply to the whole, so -1|abs is 1.
 */
#include "runtime/template/internal.h"

/* Parse a list of expressions up to @close */
static struct node *parse_list(struct parser *p, enum op close)
{
	struct node *first = NULL, **last = &first;

	while (!p->m->failed && !parse_is(p, close)) {
		if (first) {
			parse_want(p, OP_COMMA);
			if (parse_is(p, close))
				break;
		}
		*last = parse_expr(p, true);
		last = &(*last)->next;
	}
	parse_want(p, close);
	return first;
}

static struct node *parse_dict(struct parser *p)
{
	struct node *n = parse_node(p, N_DICT), **last = &n->a;

	p->at++;
	while (!p->m->failed && !parse_is(p, OP_RBRACE)) {
		if (n->a) {
			parse_want(p, OP_COMMA);
			if (parse_is(p, OP_RBRACE))
				break;
		}
		*last = parse_expr(p, true);
		last = &(*last)->next;
		parse_want(p, OP_COLON);
		*last = parse_expr(p, true);
		last = &(*last)->next;
	}
	parse_want(p, OP_RBRACE);
	return n;
}

static struct node *parse_paren(struct parser *p)
{
	struct node *n;

	p->at++;
	if (parse_is(p, OP_RPAREN))
		n = parse_node(p, N_TUPLE);
	else
		n = parse_tuple(p, true);
	parse_want(p, OP_RPAREN);
	return n;
}

/* Strings side by side are one string. */
static struct node *parse_strings(struct parser *p)
{
	struct node *n = parse_node(p, N_CONST);
	const struct token *t;
	size_t len = 0;
	char *s;

	for (t = p->at; t->kind == T_STR; t++)
		len += t->len;
	if (t == p->at + 1) {
		n->val = VALUE_STR(p->at->s, len);
		p->at = t;
		return n;
	}
	s = mem_get(p->m, len);
	n->val = VALUE_STR(s, len);
	for (len = 0; p->at < t; p->at++) {
		if (s)
			memcpy(s + len, p->at->s, p->at->len);
		len += p->at->len;
	}
	return n;
}

static void parse_hidden(struct parser *p, const struct token *t)
{
	static const char * const names[] = { "caller", "varargs", "kwargs" };
	u32 i;

	for (i = 0; i < ARRAY_SIZE(names); i++)
		if (t->len == strlen(names[i]) &&
		    !memcmp(t->s, names[i], t->len))
			p->hidden |= BIT(i);
}

static struct node *parse_name(struct parser *p)
{
	static const struct {
		const char	*s;
		struct value	v;
	} consts[] = {
		{ "true", { .kind = V_BOOL, .b = true } },
		{ "True", { .kind = V_BOOL, .b = true } },
		{ "false", { .kind = V_BOOL } },
		{ "False", { .kind = V_BOOL } },
		{ "none", { .kind = V_NONE } },
		{ "None", { .kind = V_NONE } },
	};
	struct node *n = parse_node(p, N_CONST);
	const struct token *t = p->at;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(consts); i++)
		if (parse_skip_name(p, consts[i].s)) {
			n->val = consts[i].v;
			return n;
		}
	n->kind = N_NAME;
	n->sym = parse_symbol(p, t);
	n->s = t->s;
	n->len = t->len;
	parse_hidden(p, t);
	p->at++;
	return n;
}

static struct node *parse_primary(struct parser *p)
{
	struct node *n;

	switch (p->at->kind) {
	case T_NAME:
		return parse_name(p);
	case T_STR:
		return parse_strings(p);
	case T_INT:
		n = parse_node(p, N_CONST);
		n->val = VALUE_INT((p->at++)->i);
		return n;
	case T_FLOAT:
		n = parse_node(p, N_CONST);
		n->val = VALUE_FLOAT((p->at++)->f);
		return n;
	default:
		break;
	}
	if (parse_is(p, OP_LPAREN))
		return parse_paren(p);
	if (parse_is(p, OP_LBRACE))
		return parse_dict(p);
	n = parse_node(p, N_LIST);
	if (!parse_skip(p, OP_LBRACKET))
		parse_fail(p, "an expression");
	else
		n->a = parse_list(p, OP_RBRACKET);
	return n;
}

/* ---- suffixes ---- */

static bool is_keyword(const struct parser *p)
{
	return p->at->kind == T_NAME && p->at[1].kind == T_OP &&
	       p->at[1].op == OP_ASSIGN;
}

static struct node *parse_arg(struct parser *p)
{
	struct node *n;

	if (parse_is(p, OP_POW))
		parse_refuse(p, p->at, "an argument after");
	if (parse_is(p, OP_MUL)) {
		n = parse_node(p, N_SPREAD);
		p->at++;
		n->a = parse_expr(p, true);
		return n;
	}
	if (!is_keyword(p))
		return parse_expr(p, true);
	n = parse_node(p, N_KEYWORD);
	n->s = p->at->s;
	n->len = p->at->len;
	p->at += 2;
	n->a = parse_expr(p, true);
	return n;
}

struct node *parse_call_args(struct parser *p)
{
	struct node *first = NULL, **last = &first;
	bool named = false;

	parse_want(p, OP_LPAREN);
	while (!p->m->failed && !parse_is(p, OP_RPAREN)) {
		if (first) {
			parse_want(p, OP_COMMA);
			if (parse_is(p, OP_RPAREN))
				break;
		}
		*last = parse_arg(p);
		if (named && (*last)->kind != N_KEYWORD)
			parse_fail(p, "arguments by place before '*' and names");
		named |= (*last)->kind == N_KEYWORD ||
			 (*last)->kind == N_SPREAD;
		last = &(*last)->next;
	}
	parse_want(p, OP_RPAREN);
	return first;
}

static struct node *bound_or_null(struct parser *p)
{
	if (parse_is(p, OP_COLON) || parse_is(p, OP_RBRACKET) ||
	    parse_is(p, OP_COMMA))
		return NULL;
	return parse_expr(p, true);
}

static struct node *parse_index(struct parser *p)
{
	struct node *n, *from = bound_or_null(p);

	if (!parse_is(p, OP_COLON)) {
		if (from)
			return from;
		parse_fail(p, "an index");
		return parse_node(p, N_CONST);
	}
	n = parse_node(p, N_SLICE);
	p->at++;
	n->a = from;
	n->b = bound_or_null(p);
	if (parse_skip(p, OP_COLON))
		n->c = bound_or_null(p);
	return n;
}

static struct node *parse_dot(struct parser *p, struct node *of)
{
	struct node *n = parse_node(p, N_ATTR);

	p->at++;
	n->a = of;
	if (p->at->kind == T_INT) {
		n->kind = N_ITEM;
		n->b = parse_node(p, N_CONST);
		n->b->val = VALUE_INT(p->at->i);
		p->at++;
		return n;
	}
	n->s = p->at->s;
	n->len = p->at->len;
	parse_want_name(p);
	return n;
}

static struct node *parse_postfix(struct parser *p, struct node *n)
{
	struct node *of;

	while (!p->m->failed) {
		of = n;
		if (parse_is(p, OP_DOT)) {
			n = parse_dot(p, of);
		} else if (parse_is(p, OP_LBRACKET)) {
			n = parse_node(p, N_ITEM);
			p->at++;
			n->a = of;
			n->b = parse_index(p);
			if (parse_is(p, OP_COMMA))
				parse_refuse(p, p->at, "an index with");
			parse_want(p, OP_RBRACKET);
		} else if (parse_is(p, OP_LPAREN)) {
			n = parse_node(p, N_CALL);
			n->a = of;
			n->b = parse_call_args(p);
		} else {
			break;
		}
	}
	return n;
}

/* In a condition Jinja2 accepts an unknown name until it is evaluated. */
static void parse_unknown(struct parser *p, const struct token *t,
			  const char *what)
{
	if (p->soft || p->unknown)
		return;
	p->unknown = t;
	p->unknown_what = what;
}

struct node *parse_filter(struct parser *p, struct node *of)
{
	struct node *n = parse_node(p, N_FILTER);
	const struct token *t = parse_want_name(p);

	n->a = of;
	n->s = t->s;
	n->len = t->len;
	n->func = tv_filter_find(t->s, t->len);
	if (!n->func)
		parse_unknown(p, t, "the filter");
	if (parse_is(p, OP_LPAREN))
		n->b = parse_call_args(p);
	return n;
}

/* Has a test an operand without parentheses: `x is divisibleby 3`? */
static bool has_operand(struct parser *p)
{
	if (parse_is_name(p, "else") || parse_is_name(p, "or") ||
	    parse_is_name(p, "and"))
		return false;
	if (parse_is_name(p, "is")) {
		parse_fail(p, "one test at a time");
		return false;
	}
	return (p->at->kind >= T_NAME && p->at->kind <= T_FLOAT) ||
	       parse_is(p, OP_LBRACKET) || parse_is(p, OP_LBRACE);
}

static struct node *parse_test(struct parser *p, struct node *of)
{
	struct node *n = parse_node(p, N_TEST), *not = NULL;
	const struct token *t;

	if (parse_is_name(p, "not")) {
		not = parse_node(p, N_NOT);
		not->a = n;
		p->at++;
	}
	t = parse_want_name(p);
	n->a = of;
	n->s = t->s;
	n->len = t->len;
	n->func = tv_test_find(t->s, t->len);
	if (!n->func)
		parse_unknown(p, t, "the test");
	if (parse_is(p, OP_LPAREN))
		n->b = parse_call_args(p);
	else if (has_operand(p))
		n->b = parse_postfix(p, parse_primary(p));
	return not ? not : n;
}

struct node *parse_filters(struct parser *p, struct node *n)
{
	struct node *of;

	while (!p->m->failed) {
		of = n;
		if (parse_skip(p, OP_PIPE)) {
			n = parse_filter(p, of);
		} else if (parse_skip_name(p, "is")) {
			n = parse_test(p, of);
		} else if (parse_is(p, OP_LPAREN)) {
			n = parse_node(p, N_CALL);
			n->a = of;
			n->b = parse_call_args(p);
		} else {
			break;
		}
	}
	return n;
}

struct node *parse_unary(struct parser *p, bool with_filter)
{
	struct node *n;

	if (!parse_enter(p))
		return parse_node(p, N_CONST);
	if (parse_is(p, OP_SUB) || parse_is(p, OP_ADD)) {
		n = parse_node(p, parse_is(p, OP_SUB) ? N_NEG : N_POS);
		p->at++;
		n->a = parse_unary(p, false);
	} else {
		n = parse_primary(p);
	}
	n = parse_postfix(p, n);
	if (with_filter)
		n = parse_filters(p, n);
	p->nest--;
	return n;
}
