// SPDX-License-Identifier: Apache-2.0
/*
 * nodes.c - helpers of the parser, and creation of a compiled template
 *
 * Names of variables become numbers here, so that a rendering compares numbers.
 * All memory of a template is in its own arena.
 */
#include <stdlib.h>

#include "runtime/template/internal.h"

#define COMPILE_MEMORY	((size_t)256 << 20)

/*
 * After a failure every node is the parser's spare one, so code that fills
 * nodes in need not check for failure.
 */
struct node *parse_node(struct parser *p, enum node_kind kind)
{
	struct node *n = mem_get(p->m, sizeof(*n));

	if (n && ++p->t->nr_nodes > TMPL_NODES_MAX) {
		mem_fail(p->m, TMPL_LIMIT, "a template of more than %u nodes",
			 TMPL_NODES_MAX);
		n = NULL;
	}
	if (!n)
		n = &p->spare;
	memset(n, 0, sizeof(*n));
	n->kind = kind;
	n->line = p->at->line;
	n->col = p->at->col;
	return n;
}

static bool symbol_grow(struct tmpl *t)
{
	u32 cap = max(t->cap_sym * 2, 32u);
	struct symbol *s = mem_get(&t->mem, cap * sizeof(*s));

	if (!s)
		return false;
	if (t->nr_sym)
		memcpy(s, t->sym, t->nr_sym * sizeof(*s));
	t->sym = s;
	t->cap_sym = cap;
	return true;
}

/* The number of a name; for a new name the next free number */
static u32 symbol_find(const struct tmpl *t, const char *s, size_t len)
{
	u32 i;

	for (i = 0; i < t->nr_sym; i++)
		if (t->sym[i].len == len && !memcmp(t->sym[i].s, s, len))
			break;
	return i;
}

u32 parse_symbol(struct parser *p, const struct token *tok)
{
	struct tmpl *t = p->t;
	u32 i = symbol_find(t, tok->s, tok->len);

	if (i < t->nr_sym)
		return i;
	if (i == TMPL_SYMBOLS_MAX) {
		mem_fail(p->m, TMPL_LIMIT, "a template of more than %u names",
			 TMPL_SYMBOLS_MAX);
		return 0;
	}
	if (i == t->cap_sym && !symbol_grow(t))
		return 0;
	t->sym[i].s = tok->s;
	t->sym[i].len = tok->len;
	t->nr_sym++;
	return i;
}

bool parse_is(const struct parser *p, enum op op)
{
	return p->at->kind == T_OP && p->at->op == op;
}

bool parse_token_is(const struct token *t, const char *s)
{
	return t->kind == T_NAME && t->len == strlen(s) &&
	       !memcmp(t->s, s, t->len);
}

bool parse_is_name(const struct parser *p, const char *s)
{
	return parse_token_is(p->at, s);
}

bool parse_skip(struct parser *p, enum op op)
{
	if (!parse_is(p, op))
		return false;
	p->at++;
	return true;
}

bool parse_skip_name(struct parser *p, const char *s)
{
	if (!parse_is_name(p, s))
		return false;
	p->at++;
	return true;
}

static void fail_at(struct parser *p, const struct token *t)
{
	p->m->line = t->line;
	p->m->col = t->col;
}

void parse_fail(struct parser *p, const char *want)
{
	const struct token *t = p->at;

	fail_at(p, t);
	switch (t->kind) {
	case T_EOF:
		mem_fail(p->m, TMPL_SYNTAX, "the template ends: want %s", want);
		break;
	case T_VAR_END:
	case T_BLOCK_END:
		mem_fail(p->m, TMPL_SYNTAX, "the tag ends: want %s", want);
		break;
	default:
		mem_fail(p->m, TMPL_SYNTAX, "found '%.*s': want %s",
			 (int)min(t->len, 40u), t->s, want);
		break;
	}
}

void parse_refuse(struct parser *p, const struct token *t, const char *what)
{
	fail_at(p, t);
	mem_fail(p->m, TMPL_SYNTAX, "%s '%.*s' is not supported", what,
		 (int)min(t->len, 40u), t->s);
}

void parse_want(struct parser *p, enum op op)
{
	static const char * const names[] = {
		[OP_ASSIGN] = "'='", [OP_COLON] = "':'", [OP_COMMA] = "','",
		[OP_LPAREN] = "'('", [OP_RPAREN] = "')'",
		[OP_RBRACKET] = "']'", [OP_RBRACE] = "'}'",
	};

	if (!parse_skip(p, op))
		parse_fail(p, names[op]);
}

const struct token *parse_want_name(struct parser *p)
{
	const struct token *t = p->at;

	if (t->kind != T_NAME)
		parse_fail(p, "a name");
	else
		p->at++;
	return t;
}

bool parse_enter(struct parser *p)
{
	if (p->nest == TMPL_NEST_MAX) {
		fail_at(p, p->at);
		mem_fail(p->m, TMPL_LIMIT, "more than %u blocks and brackets inside of each other",
			 TMPL_NEST_MAX);
	}
	if (p->m->failed)
		return false;
	p->nest++;
	return true;
}

/* ---- the template as a whole ---- */

struct tmpl *tmpl_compile(const char *src, size_t n, struct tmpl_error *err)
{
	struct tmpl *t = calloc(1, sizeof(*t));
	struct parser p = { .t = t };

	memset(err, 0, sizeof(*err));
	if (!t) {
		err->what = TMPL_NOMEM;
		strcpy(err->text, "out of memory");
		return NULL;
	}
	t->mem.err = err;
	t->mem.max = COMPILE_MEMORY;
	p.m = &t->mem;
	if (n > TMPL_SOURCE_MAX)
		mem_fail(p.m, TMPL_LIMIT, "a template of more than %zu bytes",
			 TMPL_SOURCE_MAX);
	else
		p.at = lex_template(p.m, src, n);
	if (p.at)
		t->body = parse_template(&p);
	t->loop_sym = symbol_find(t, "loop", 4);
	t->hidden_sym[0] = symbol_find(t, "caller", 6);
	t->hidden_sym[1] = symbol_find(t, "varargs", 7);
	t->hidden_sym[2] = symbol_find(t, "kwargs", 6);
	if (t->mem.failed) {
		tmpl_free(t);
		return NULL;
	}
	t->mem.err = NULL;
	return t;
}

void tmpl_free(struct tmpl *t)
{
	if (!t)
		return;
	mem_free(&t->mem);
	free(t);
}

bool tmpl_uses(const struct tmpl *t, const char *name)
{
	return symbol_find(t, name, strlen(name)) < t->nr_sym;
}
