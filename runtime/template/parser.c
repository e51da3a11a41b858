// SPDX-License-Identifier: Apache-2.0
/*
 * parser.c - statements
 *
 * The tags of a template become a tree.  Features of Jinja2 that chat templates
 * do not use (blocks, includes, imports, with, autoescape, recursive loops) are
 * refused by name and place.
 */
#include "runtime/template/internal.h"

static struct node *parse_body(struct parser *p, const char * const *ends);

static void parse_block_end(struct parser *p)
{
	if (p->at->kind != T_BLOCK_END)
		parse_fail(p, "%}");
	else
		p->at++;
}

/* Parse a body up to the tag @end, and skip its name. */
static struct node *parse_until(struct parser *p, const char *end)
{
	const char * const ends[] = { end, NULL };
	struct node *body;

	parse_block_end(p);
	body = parse_body(p, ends);
	parse_skip_name(p, end);
	return body;
}

static struct node *parse_if(struct parser *p)
{
	static const char * const ends[] = { "elif", "else", "endif", NULL };
	struct node *first = parse_node(p, N_IF), *n = first;

	p->at++;
	p->soft++;
	while (!p->m->failed) {
		n->a = parse_tuple(p, false);
		parse_block_end(p);
		n->d = parse_body(p, ends);
		if (parse_is_name(p, "elif")) {
			n->e = parse_node(p, N_IF);
			n = n->e;
			p->at++;
			continue;
		}
		if (parse_skip_name(p, "else"))
			n->e = parse_until(p, "endif");
		else
			parse_skip_name(p, "endif");
		break;
	}
	p->soft--;
	return first;
}

static struct node *parse_for(struct parser *p)
{
	static const char * const ends[] = { "else", "endfor", NULL };
	struct node *n = parse_node(p, N_FOR);
	u32 soft = p->soft;

	p->at++;
	n->a = parse_target(p, false);
	if (!parse_skip_name(p, "in"))
		parse_fail(p, "'in'");
	n->b = parse_tuple(p, false);
	p->soft = 0;
	if (parse_skip_name(p, "if"))
		n->c = parse_expr(p, true);
	if (parse_is_name(p, "recursive"))
		parse_refuse(p, p->at, "a loop that is");
	parse_block_end(p);
	p->loops++;
	n->d = parse_body(p, ends);
	p->loops--;
	if (parse_skip_name(p, "else"))
		n->e = parse_until(p, "endfor");
	else
		parse_skip_name(p, "endfor");
	p->soft = soft;
	return n;
}

static struct node *parse_input(struct parser *p)
{
	return parse_node(p, N_INPUT);
}

static struct node *parse_set(struct parser *p)
{
	struct node *n = parse_node(p, N_SET);
	u32 soft = p->soft;

	p->at++;
	n->a = parse_target(p, true);
	if (parse_skip(p, OP_ASSIGN)) {
		n->b = parse_tuple(p, true);
		return n;
	}
	n->kind = N_SET_BLOCK;
	n->b = parse_filters(p, parse_input(p));
	p->soft = 0;
	n->d = parse_until(p, "endset");
	p->soft = soft;
	return n;
}

/* Parse the parameters of a macro or of a call */
static struct node *parse_params(struct parser *p)
{
	struct node *first = NULL, **last = &first, *n;
	bool defaults = false;

	parse_want(p, OP_LPAREN);
	while (!p->m->failed && !parse_is(p, OP_RPAREN)) {
		if (first)
			parse_want(p, OP_COMMA);
		n = parse_target_name(p, false);
		n->kind = N_PARAM;
		if (parse_skip(p, OP_ASSIGN))
			n->a = parse_expr(p, true);
		else if (defaults)
			parse_fail(p, "a default, as the parameter before it has");
		defaults |= n->a != NULL;
		*last = n;
		last = &n->next;
	}
	parse_want(p, OP_RPAREN);
	return first;
}

/* Inside of a macro the outer loops and conditions do not count. */
static void parse_macro_body(struct parser *p, struct node *n, const char *end)
{
	u32 loops = p->loops, soft = p->soft;
	u8 hidden = p->hidden;

	p->loops = 0;
	p->soft = 0;
	p->hidden = 0;
	n->d = parse_until(p, end);
	n->flags = p->hidden;
	p->hidden = hidden | n->flags;
	p->soft = soft;
	p->loops = loops;
}

static struct node *parse_macro(struct parser *p)
{
	struct node *n = parse_node(p, N_MACRO), *name;

	p->at++;
	name = parse_target_name(p, false);
	n->sym = name->sym;
	n->s = name->s;
	n->len = name->len;
	n->a = parse_params(p);
	parse_macro_body(p, n, "endmacro");
	return n;
}

static struct node *parse_call(struct parser *p)
{
	struct node *n = parse_node(p, N_CALL_BLOCK);

	p->at++;
	n->b = parse_node(p, N_MACRO);
	n->b->s = "caller";
	n->b->len = 6;
	if (parse_is(p, OP_LPAREN))
		n->b->a = parse_params(p);
	n->a = parse_expr(p, true);
	if (n->a->kind != N_CALL)
		parse_fail(p, "the call of a macro");
	parse_macro_body(p, n->b, "endcall");
	return n;
}

static struct node *parse_filter_block(struct parser *p)
{
	struct node *n = parse_node(p, N_FILTER_BLOCK);
	u32 soft = p->soft;

	p->at++;
	n->b = parse_filters(p, parse_filter(p, parse_input(p)));
	p->soft = 0;
	n->d = parse_until(p, "endfilter");
	p->soft = soft;
	return n;
}

/* transformers' own tag, which marks the model's text; the text is the same. */
static struct node *parse_generation(struct parser *p)
{
	struct node *n = parse_node(p, N_SCOPE);

	p->at++;
	parse_macro_body(p, n, "endgeneration");
	return n;
}

static struct node *parse_jump(struct parser *p)
{
	bool leave = parse_is_name(p, "break");
	struct node *n = parse_node(p, leave ? N_BREAK : N_CONTINUE);

	if (!p->loops)
		parse_refuse(p, p->at, "outside of a loop,");
	p->at++;
	return n;
}

/* Parse a statement, after {% */
static struct node *parse_statement(struct parser *p)
{
	static const struct {
		const char	*word;
		struct node	*(*fn)(struct parser *p);
	} tags[] = {
		{ "if", parse_if }, { "for", parse_for }, { "set", parse_set },
		{ "macro", parse_macro }, { "call", parse_call },
		{ "filter", parse_filter_block },
		{ "generation", parse_generation },
		{ "break", parse_jump }, { "continue", parse_jump },
	};
	struct node *n = NULL;
	u32 i;

	if (!parse_enter(p))
		return parse_node(p, N_DATA);
	for (i = 0; i < ARRAY_SIZE(tags); i++)
		if (parse_is_name(p, tags[i].word)) {
			n = tags[i].fn(p);
			break;
		}
	if (!n) {
		n = parse_node(p, N_DATA);
		if (p->at->kind == T_NAME)
			parse_refuse(p, p->at, "the tag");
		else
			parse_fail(p, "the name of a tag");
	}
	parse_block_end(p);
	p->nest--;
	return n;
}

static bool is_end(const struct parser *p, const char * const *ends)
{
	for (; ends && *ends; ends++)
		if (parse_token_is(p->at + 1, *ends))
			return true;
	return false;
}

static struct node *parse_piece(struct parser *p)
{
	struct node *n;

	if (p->at->kind == T_DATA) {
		n = parse_node(p, N_DATA);
		n->s = p->at->s;
		n->len = p->at->len;
		p->at++;
		return n;
	}
	if (p->at->kind == T_BLOCK_BEGIN) {
		p->at++;
		return parse_statement(p);
	}
	p->at++;
	n = parse_node(p, N_PRINT);
	n->a = parse_tuple(p, true);
	if (p->at->kind != T_VAR_END)
		parse_fail(p, "}}");
	else
		p->at++;
	return n;
}

/* Parse up to a tag of @ends, without its name; without @ends up to the end. */
static struct node *parse_body(struct parser *p, const char * const *ends)
{
	struct node *first = NULL, **last = &first;

	while (!p->m->failed) {
		if (p->at->kind == T_EOF) {
			if (ends)
				parse_fail(p, ends[1] ? "the end of a block" :
					   ends[0]);
			break;
		}
		if (p->at->kind == T_BLOCK_BEGIN && is_end(p, ends)) {
			p->at++;
			break;
		}
		*last = parse_piece(p);
		last = &(*last)->next;
	}
	return first;
}

struct node *parse_template(struct parser *p)
{
	struct node *n = parse_body(p, NULL);

	if (p->unknown && !p->m->failed)
		parse_refuse(p, p->unknown, p->unknown_what);
	return n;
}
