// SPDX-License-Identifier: Apache-2.0
/*
 * lexer.c - from a template's source to tokens
 *
 * Text between tags is one token, without the blanks that the tags beside it
 * remove.  Four rules, in Jinja2's order, with its settings trim_blocks and
 * lstrip_blocks on:
 *
 *	{%- {{- {#-	remove all blanks before it
 *	{% {#		remove blanks before it if only they precede it on its line,
 *			unless {%+
 *	-%} -}} -#}	remove all blanks after it
 *	%} #}		remove one line end after it, unless +%}
 *
 * Inside of a tag, brackets must match: the first tag end outside of all
 * brackets ends it.
 */
#include "runtime/template/internal.h"

#define LEX_NEST	(TMPL_NEST_MAX * 2)

/**
 * struct lexer - state of the lexer
 * @line_begin:	the beginning of line @line
 * @fresh:	the last text read ended a line
 * @open:	[@nest] brackets to be closed
 */
struct lexer {
	struct arena	*m;
	const char	*p;
	const char	*end;
	const char	*line_begin;
	u32		line;
	bool		fresh;
	struct token	*tok;
	u32		n;
	u32		cap;
	u32		nest;
	char		open[LEX_NEST];
};

static void lex_move(struct lexer *l, const char *to)
{
	const char *nl;

	while ((nl = memchr(l->p, '\n', (size_t)(to - l->p)))) {
		l->line++;
		l->line_begin = nl + 1;
		l->p = nl + 1;
	}
	l->p = to;
	l->m->line = l->line;
	l->m->col = (u32)(to - l->line_begin) + 1;
}

static struct token *lex_add(struct lexer *l, enum token_kind kind)
{
	struct token *t;

	if (l->n == l->cap) {
		u32 cap = max(l->cap * 2, 64u);

		t = mem_get(l->m, cap * sizeof(*t));
		if (!t)
			return NULL;
		if (l->n)
			memcpy(t, l->tok, l->n * sizeof(*t));
		l->tok = t;
		l->cap = cap;
	}
	t = &l->tok[l->n++];
	memset(t, 0, sizeof(*t));
	t->kind = kind;
	t->line = l->line;
	t->col = (u32)(l->p - l->line_begin) + 1;
	t->s = l->p;
	return t;
}

/* The first byte at or after @p that is no blank */
static const char *blanks_end(const char *p, const char *end)
{
	const char *next;

	while (p < end) {
		next = p;
		if (!ts_is_space(ts_next(&next, end)))
			break;
		p = next;
	}
	return p;
}

/* The end of the text @begin..@end without its trailing blanks */
static const char *blanks_begin(const char *begin, const char *end)
{
	struct value s = VALUE_STR(begin, end - begin);

	s = ts_strip(NULL, s, VALUE(V_MISSING), 2);
	return begin + s.len;
}

/* Add the text up to @end, before a tag with @sign after @kind. */
static void lex_data(struct lexer *l, const char *end, char kind, char sign)
{
	const char *cut = end, *line = end;
	struct token *t;

	if (sign == '-') {
		cut = blanks_begin(l->p, end);
	} else if (sign != '+' && kind != '{') {
		while (line > l->p && line[-1] != '\n')
			line--;
		if ((line > l->p || l->fresh) && blanks_end(line, end) == end)
			cut = line;
	}
	if (cut > l->p) {
		t = lex_add(l, T_DATA);
		if (t)
			t->len = (u32)(cut - l->p);
	}
	lex_move(l, end);
}

static bool lex_at(const struct lexer *l, const char *s)
{
	size_t n = strlen(s);

	return (size_t)(l->end - l->p) >= n && !memcmp(l->p, s, n);
}

/* Skip the end of a tag ("%}" and the like), if it is there. */
static bool lex_end(struct lexer *l, const char *close)
{
	char sign = *l->p;
	const char *p = l->p + (sign == '-' || sign == '+');
	const char *after;

	if ((sign == '+' && *close == '}') || l->end - p < 2 ||
	    memcmp(p, close, 2))
		return false;
	after = p + 2;
	if (sign == '-')
		after = blanks_end(after, l->end);
	else if (sign != '+' && *close != '}' && after < l->end &&
		 *after == '\n')
		after++;
	lex_move(l, after);
	l->fresh = after[-1] == '\n';
	return true;
}

static void lex_comment(struct lexer *l)
{
	const char *p = l->p;

	while ((p = memchr(p, '#', (size_t)(l->end - p))) &&
	       (p + 1 == l->end || p[1] != '}'))
		p++;
	if (!p) {
		mem_fail(l->m, TMPL_SYNTAX, "a comment has no end: want #}");
		return;
	}
	if (p > l->p && (p[-1] == '-' || p[-1] == '+'))
		p--;
	lex_move(l, p);
	lex_end(l, "#}");
}

/* Is @l->p a tag with only @word, as {% raw %}?  Then @after is its end. */
static bool lex_is_tag(const struct lexer *l, const char *word,
		       const char **after)
{
	const char *p = l->p + 2;
	size_t n = strlen(word);

	if (p < l->end && (*p == '-' || *p == '+'))
		p++;
	p = blanks_end(p, l->end);
	if ((size_t)(l->end - p) < n || memcmp(p, word, n))
		return false;
	*after = blanks_end(p + n, l->end);
	return true;
}

/* {% raw %}: take the text up to {% endraw %} literally */
static bool lex_raw(struct lexer *l)
{
	const char *after, *p;

	if (!lex_is_tag(l, "raw", &after))
		return false;
	p = after < l->end && *after == '-' ? after + 1 : after;
	if (l->end - p < 2 || memcmp(p, "%}", 2))
		return false;
	lex_move(l, *after == '-' ? blanks_end(p + 2, l->end) : p + 2);
	l->fresh = l->p[-1] == '\n';
	for (p = l->p; p < l->end; p++) {
		struct lexer at = *l;

		p = memchr(p, '{', (size_t)(l->end - p));
		if (!p)
			break;
		at.p = p;
		if (!lex_at(&at, "{%") || !lex_is_tag(&at, "endraw", &after))
			continue;
		at.p = after;
		if (after == l->end || !lex_end(&at, "%}"))
			continue;
		lex_data(l, p, '%', p[2]);
		lex_move(l, after);
		lex_end(l, "%}");
		return true;
	}
	mem_fail(l->m, TMPL_SYNTAX, "{%% raw %%} has no end");
	return true;
}

/* ---- inside of a tag ---- */

static enum op lex_op(const char *p, size_t n, u32 *len)
{
	static const struct {
		char	s[3];
		u8	op;
	} ops[] = {
		{ "//", OP_FLOORDIV }, { "**", OP_POW }, { "==", OP_EQ },
		{ "!=", OP_NE }, { "<=", OP_LE }, { ">=", OP_GE },
		{ "+", OP_ADD }, { "-", OP_SUB }, { "*", OP_MUL },
		{ "/", OP_DIV }, { "%", OP_MOD }, { "~", OP_TILDE },
		{ "<", OP_LT }, { ">", OP_GT }, { "=", OP_ASSIGN },
		{ ".", OP_DOT }, { ",", OP_COMMA }, { ":", OP_COLON },
		{ "|", OP_PIPE }, { ";", OP_SEMI }, { "(", OP_LPAREN },
		{ ")", OP_RPAREN }, { "[", OP_LBRACKET },
		{ "]", OP_RBRACKET }, { "{", OP_LBRACE }, { "}", OP_RBRACE },
	};
	u32 i;

	for (i = 0; i < ARRAY_SIZE(ops); i++) {
		*len = (u32)strlen(ops[i].s);
		if (*len <= n && !memcmp(p, ops[i].s, *len))
			return ops[i].op;
	}
	return OP_NONE;
}

/* Track brackets; unbalanced ones are refused. */
static void lex_bracket(struct lexer *l, char c)
{
	const char *pair = strchr("()[]{}", c);

	if (!pair || !c)
		return;
	if (strchr("([{", c)) {
		if (l->nest == LEX_NEST)
			mem_fail(l->m, TMPL_SYNTAX, "more than %u brackets inside of each other",
				 LEX_NEST);
		else
			l->open[l->nest++] = pair[1];
	} else if (!l->nest || l->open[--l->nest] != c) {
		mem_fail(l->m, TMPL_SYNTAX, "'%c' closes nothing", c);
	}
}

static void lex_operator(struct lexer *l)
{
	struct token *t;
	u32 len;
	enum op op = lex_op(l->p, (size_t)(l->end - l->p), &len);

	if (!op) {
		mem_fail(l->m, TMPL_SYNTAX, (u8)*l->p < 0x80 && (u8)*l->p > 0x20 ?
			 "'%c' is not in the language" :
			 "a character that is not in the language", *l->p);
		return;
	}
	lex_bracket(l, *l->p);
	t = lex_add(l, T_OP);
	if (t) {
		t->op = op;
		t->len = len;
	}
	lex_move(l, l->p + len);
}

static bool is_name_char(char c, bool first)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
	       (!first && c >= '0' && c <= '9');
}

static void lex_name(struct lexer *l)
{
	struct token *t = lex_add(l, T_NAME);
	const char *p = l->p;

	while (p < l->end && is_name_char(*p, false))
		p++;
	if (t)
		t->len = (u32)(p - l->p);
	lex_move(l, p);
}

static void lex_quoted(struct lexer *l)
{
	const char *p = l->p + 1;
	struct token *t;

	while (p < l->end && *p != *l->p)
		p += *p == '\\' ? 2 : 1;
	if (p >= l->end) {
		mem_fail(l->m, TMPL_SYNTAX, "a string has no end");
		return;
	}
	t = lex_add(l, T_STR);
	if (t && lex_string(l->m, l->p + 1, (size_t)(p - l->p - 1), t))
		lex_move(l, p + 1);
}

static void lex_digits(struct lexer *l)
{
	bool dot = l->n && l->tok[l->n - 1].op == OP_DOT;
	struct token *t = lex_add(l, T_INT);

	if (t)
		lex_move(l, l->p + lex_number(l->m, l->p, l->end, dot, t));
}

/* Read the tokens of one tag, up to its end @close */
static void lex_inside(struct lexer *l, const char *close)
{
	while (!l->m->failed) {
		lex_move(l, blanks_end(l->p, l->end));
		if (l->p == l->end)
			break;
		if (!l->nest && lex_end(l, close))
			return;
		if (is_name_char(*l->p, true))
			lex_name(l);
		else if (*l->p >= '0' && *l->p <= '9')
			lex_digits(l);
		else if (*l->p == '"' || *l->p == '\'')
			lex_quoted(l);
		else
			lex_operator(l);
	}
	mem_fail(l->m, TMPL_SYNTAX, "a tag has no end: want %s", close);
}

static void lex_tag(struct lexer *l, char kind)
{
	const char *after = l->p + 2;
	bool var = kind == '{';

	if (kind == '%' && lex_raw(l))
		return;
	lex_add(l, var ? T_VAR_BEGIN : T_BLOCK_BEGIN);
	if (kind == '#')
		l->n--;
	if (after < l->end && (*after == '-' || *after == '+'))
		after++;
	lex_move(l, after);
	if (kind == '#') {
		lex_comment(l);
		return;
	}
	lex_inside(l, var ? "}}" : "%}");
	lex_add(l, var ? T_VAR_END : T_BLOCK_END);
}

/* The first tag at or after @p, or @end */
static const char *tag_find(const char *p, const char *end)
{
	while ((p = memchr(p, '{', (size_t)(end - p))) && end - p >= 2) {
		if (p[1] == '{' || p[1] == '%' || p[1] == '#')
			return p;
		p++;
	}
	return end;
}

/* A copy of the source with \n as line end and without the last line end */
static const char *newlines(struct arena *m, const char *src, size_t *n)
{
	char *s = mem_get(m, *n + 1);
	size_t i, k = 0;

	if (!s)
		return NULL;
	for (i = 0; i < *n; i++) {
		if (src[i] == '\r') {
			s[k++] = '\n';
			i += i + 1 < *n && src[i + 1] == '\n';
		} else {
			s[k++] = src[i];
		}
	}
	if (k && s[k - 1] == '\n')
		k--;
	s[k] = 0;
	*n = k;
	return s;
}

struct token *lex_template(struct arena *m, const char *src, size_t n)
{
	struct lexer l = { .m = m, .line = 1, .fresh = true };
	const char *tag;
	char sign;

	m->line = 1;
	m->col = 1;
	l.p = newlines(m, src, &n);
	if (!l.p)
		return NULL;
	l.line_begin = l.p;
	l.end = l.p + n;
	while (l.p < l.end && !m->failed) {
		tag = tag_find(l.p, l.end);
		sign = l.end - tag > 2 ? tag[2] : 0;
		lex_data(&l, tag, tag < l.end ? tag[1] : '{',
			 tag < l.end ? sign : '+');
		if (tag < l.end)
			lex_tag(&l, tag[1]);
	}
	lex_add(&l, T_EOF);
	return m->failed ? NULL : l.tok;
}
