// SPDX-License-Identifier: Apache-2.0
/*
 * lexeme.c - the numbers and strings of a template's source
 *
 * Python's literals: digits may have single underscores between them, strings
 * have Python's escapes and keep a backslash before any other letter.
 */
#include <stdlib.h>

#include "runtime/template/internal.h"

/* ---- numbers ---- */

static int digit_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c |= 0x20;
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : 99;
}

/* Length of digits of that base, with underscores between them */
static size_t digits_len(const char *p, const char *end, int base)
{
	const char *q = p;

	while (q < end) {
		if (digit_value(*q) < base)
			q++;
		else if (*q == '_' && q > p && q + 1 < end &&
			 digit_value(q[1]) < base)
			q += 2;
		else
			break;
	}
	return (size_t)(q - p);
}

/* Length of a fraction and an exponent after the digits at @p..@q */
static size_t fraction_len(const char *q, const char *end)
{
	const char *p = q;
	size_t n;

	if (end - p >= 2 && *p == '.') {
		n = digits_len(p + 1, end, 10);
		if (n)
			p += n + 1;
	}
	if (p < end && (*p == 'e' || *p == 'E')) {
		const char *e = p + 1;

		if (e < end && (*e == '+' || *e == '-'))
			e++;
		n = digits_len(e, end, 10);
		if (n)
			p = e + n;
	}
	return (size_t)(p - q);
}

static void lex_float(struct arena *m, const char *p, size_t n,
		      struct token *t)
{
	char *copy = mem_get(m, n + 1);
	size_t i, k = 0;

	if (!copy)
		return;
	for (i = 0; i < n; i++)
		if (p[i] != '_')
			copy[k++] = p[i];
	copy[k] = 0;
	t->kind = T_FLOAT;
	t->f = strtod(copy, NULL);
}

static void lex_int(struct arena *m, const char *p, size_t n, int base,
		    struct token *t)
{
	size_t i;

	for (i = 0; i < n; i++) {
		if (p[i] == '_')
			continue;
		if (__builtin_mul_overflow(t->i, base, &t->i) ||
		    __builtin_add_overflow(t->i, digit_value(p[i]), &t->i)) {
			mem_fail(m, TMPL_SYNTAX, "a number beyond 64 bits is not supported");
			return;
		}
	}
}

size_t lex_number(struct arena *m, const char *p, const char *end,
		  bool after_dot, struct token *t)
{
	static const char letters[] = "xob";
	static const int bases[] = { 16, 8, 2 };
	size_t n, more;
	const char *l;

	if (*p == '0' && end - p > 2 && (p[1] | 0x20) > ' ') {
		l = strchr(letters, p[1] | 0x20);
		n = l ? digits_len(p + 2, end, bases[l - letters]) : 0;
		if (n) {
			lex_int(m, p + 2, n, bases[l - letters], t);
			return n + 2;
		}
	}
	n = digits_len(p, end, 10);
	more = after_dot ? 0 : fraction_len(p + n, end);
	if (more)
		lex_float(m, p, n + more, t);
	else
		lex_int(m, p, n, 10, t);
	return n + more;
}

/* ---- strings ---- */

/* The code point of @least to @most digits of @base at @p, or -1 */
static s64 escape_digits(const char *p, const char *end, int base, int least,
			 int most, int *len)
{
	s64 c = 0;
	int i;

	for (i = 0; i < most && p + i < end && digit_value(p[i]) < base; i++)
		c = c * base + digit_value(p[i]);
	*len = i;
	return i < least ? -1 : c;
}

static size_t utf8_put(char *to, u32 c)
{
	if (c < 0x80) {
		to[0] = (char)c;
		return 1;
	}
	if (c < 0x800) {
		to[0] = (char)(0xc0 | c >> 6);
		to[1] = (char)(0x80 | (c & 0x3f));
		return 2;
	}
	if (c < 0x10000) {
		to[0] = (char)(0xe0 | c >> 12);
		to[1] = (char)(0x80 | (c >> 6 & 0x3f));
		to[2] = (char)(0x80 | (c & 0x3f));
		return 3;
	}
	to[0] = (char)(0xf0 | c >> 18);
	to[1] = (char)(0x80 | (c >> 12 & 0x3f));
	to[2] = (char)(0x80 | (c >> 6 & 0x3f));
	to[3] = (char)(0x80 | (c & 0x3f));
	return 4;
}

/* Escapes with the number of a character; @p is after the backslash. */
static int escape_number(struct arena *m, const char *p, const char *end,
			 char *to, size_t *k)
{
	int most = *p == 'x' ? 2 : *p == 'u' ? 4 : *p == 'U' ? 8 : 0;
	int len;
	s64 c;

	if (most)
		c = escape_digits(p + 1, end, 16, most, most, &len);
	else
		c = escape_digits(p, end, 8, 1, 3, &len);
	if (c < 0 || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff)) {
		mem_fail(m, TMPL_SYNTAX, "\\%c in a string wants the digits of a character",
			 *p);
		return 1;
	}
	*k += utf8_put(to + *k, (u32)c);
	return len + (most > 0);
}

/* Decode an escape at @p, after the backslash.  Return: its bytes. */
static int escape(struct arena *m, const char *p, const char *end, char *to,
		  size_t *k)
{
	static const char names[] = "\n\\'\"abfnrtv";
	static const char chars[] = "\0\\'\"\a\b\f\n\r\t\v";
	const char *l = *p ? strchr(names, *p) : NULL;

	if (l) {
		if (*l != '\n')
			to[(*k)++] = chars[l - names];
		return 1;
	}
	if ((*p >= '0' && *p <= '7') || *p == 'x' || *p == 'u' || *p == 'U')
		return escape_number(m, p, end, to, k);
	if (*p == 'N') {
		mem_fail(m, TMPL_SYNTAX, "\\N in a string is not supported");
		return 1;
	}
	to[(*k)++] = '\\';
	return 0;
}

bool lex_string(struct arena *m, const char *p, size_t n, struct token *t)
{
	const char *end = p + n;
	size_t k = 0;
	char *to;

	t->s = p;
	t->len = (u32)n;
	if (!memchr(p, '\\', n))
		return true;
	to = mem_get(m, n * 2 + 4);
	if (!to)
		return false;
	while (p < end && !m->failed) {
		if (*p != '\\' || p + 1 == end) {
			to[k++] = *p++;
			continue;
		}
		p++;
		p += escape(m, p, end, to, &k);
	}
	t->s = to;
	t->len = (u32)k;
	return !m->failed;
}
