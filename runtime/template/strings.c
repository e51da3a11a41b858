// SPDX-License-Identifier: Apache-2.0
/*
 * strings.c - text
 *
 * A text is a piece of bytes that never changes, so stripping, slicing and
 * splitting make no copy.  Python counts characters; they are counted here only
 * if a number is needed.  Joining extends the left text in place when it is the
 * last piece of the arena, so a loop that collects text stays linear.
 *
 * Bytes that are no UTF-8 (JSON gives none) count as one character each.
 */
#include "runtime/template/internal.h"
#include "runtime/tokenizer/utf8.h"

u32 ts_next(const char **p, const char *end)
{
	const u8 *b = (const u8 *)*p;
	size_t len;

	if (*b < 0x80) {
		++*p;
		return *b;
	}
	if (utf8_step(b, (size_t)(end - *p), &len) != UTF8_CHAR) {
		++*p;
		return 0xfffd;
	}
	*p += len;
	return utf8_decode(b, len);
}

/* str.isspace(), which Python's strip and split use */
bool ts_is_space(u32 c)
{
	return (c >= 0x1c && c <= 0x1f) || utf8_is_space(c);
}

size_t ts_chars(const char *s, size_t n)
{
	const char *end = s + n;
	size_t k = 0;

	for (; s < end; k++) {
		if ((u8)*s < 0x80)
			s++;
		else
			ts_next(&s, end);
	}
	return k;
}

const char *ts_at(const char *s, size_t n, size_t chars)
{
	const char *end = s + n;

	while (chars-- && s < end)
		ts_next(&s, end);
	return s;
}

const char *ts_find(const char *s, size_t n, const char *what, size_t m)
{
	return m ? memmem(s, n, what, m) : s ? s : "";
}

struct value ts_sub(struct value s, const char *from, const char *to)
{
	s.s = from;
	s.len = (u32)(to - from);
	return s;
}

struct value ts_copy(struct render *r, const char *s, size_t n)
{
	char *p;

	if (n > UINT32_MAX) {
		run_limit(r, "a text of too many bytes");
		return VALUE(V_UNDEF);
	}
	p = mem_get(&r->mem, n);
	run_bytes(r, n);
	if (!p)
		return VALUE(V_UNDEF);
	if (n)
		memcpy(p, s, n);
	return VALUE_STR(p, n);
}

struct value ts_concat(struct render *r, struct value a, struct value b)
{
	size_t n = (size_t)a.len + b.len;
	struct value v = a;
	char *p;

	if (r->mem.failed)
		return VALUE(V_UNDEF);
	if (!b.len)
		return a;
	if (n > UINT32_MAX) {
		run_limit(r, "a text of too many bytes");
		return VALUE(V_UNDEF);
	}
	p = mem_extend(&r->mem, a.s, a.len, n);
	if (!p) {
		/* A long text may grow again: leave room after its end. */
		p = mem_get(&r->mem, n < 1024 ? n : n * 2);
		run_bytes(r, a.len);
		if (!p)
			return VALUE(V_UNDEF);
		if (n >= 1024)
			mem_extend(&r->mem, p, n * 2, n);
		if (a.len)
			memcpy(p, a.s, a.len);
	}
	run_bytes(r, b.len);
	memcpy(p + a.len, b.s, b.len);
	v.s = p;
	v.len = (u32)n;
	return v;
}

/* ---- building text ---- */

void sb_add(struct sbuf *b, const char *p, size_t n)
{
	size_t cap = max(b->cap, (size_t)64);
	char *to;

	run_bytes(b->r, n);
	if (b->r->mem.failed || !n)
		return;
	if (b->len + n > UINT32_MAX) {
		run_limit(b->r, "a text of too many bytes");
		return;
	}
	while (cap < b->len + n)
		cap *= 2;
	if (cap > b->cap) {
		to = mem_extend(&b->r->mem, b->p, b->cap, cap);
		if (!to) {
			to = mem_get(&b->r->mem, cap);
			if (!to)
				return;
			if (b->len)
				memcpy(to, b->p, b->len);
		}
		b->p = to;
		b->cap = cap;
	}
	memcpy(b->p + b->len, p, n);
	b->len += n;
}

void sb_puts(struct sbuf *b, const char *s)
{
	sb_add(b, s, strlen(s));
}

void sb_char(struct sbuf *b, u32 c)
{
	char s[4];
	size_t n = 1;

	if (c < 0x80) {
		s[0] = (char)c;
	} else if (c < 0x800) {
		s[0] = (char)(0xc0 | c >> 6);
		s[1] = (char)(0x80 | (c & 0x3f));
		n = 2;
	} else if (c < 0x10000) {
		s[0] = (char)(0xe0 | c >> 12);
		s[1] = (char)(0x80 | (c >> 6 & 0x3f));
		s[2] = (char)(0x80 | (c & 0x3f));
		n = 3;
	} else {
		s[0] = (char)(0xf0 | c >> 18);
		s[1] = (char)(0x80 | (c >> 12 & 0x3f));
		s[2] = (char)(0x80 | (c >> 6 & 0x3f));
		s[3] = (char)(0x80 | (c & 0x3f));
		n = 4;
	}
	sb_add(b, s, n);
}

struct value sb_value(struct sbuf *b)
{
	if (b->r->mem.failed)
		return VALUE(V_UNDEF);
	return VALUE_STR(b->p ? b->p : "", b->len);
}
