// SPDX-License-Identifier: Apache-2.0
/*
 * text.c - a buffer that grows, and JSON written into it
 *
 * Answers are written directly, without building a tree first: a streamed token is
 * one small object, thousands a second.  Lack of memory is recorded in ->failed,
 * and the caller checks it once, at the end.
 *
 * JSON strings are valid UTF-8 for any input, and have no byte that would end a line
 * of an event stream.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <kvmm/text.h>

#define TEXT_MIN	256u

void text_free(struct text *t)
{
	free(t->p);
	memset(t, 0, sizeof(*t));
}

void text_clear(struct text *t)
{
	t->len = 0;
	t->failed = false;
}

void text_cut(struct text *t, size_t n)
{
	n = min(n, t->len);
	if (n)
		memmove(t->p, t->p + n, t->len - n);
	t->len -= n;
}

static bool text_reserve(struct text *t, size_t n)
{
	size_t cap = max(t->cap, (size_t)TEXT_MIN);
	char *p;

	if (t->failed || n > SIZE_MAX / 4 - t->len) {
		t->failed = true;
		return false;
	}
	while (cap < t->len + n)
		cap *= 2;
	if (cap == t->cap)
		return true;
	p = realloc(t->p, cap);
	if (!p) {
		t->failed = true;
		return false;
	}
	t->p = p;
	t->cap = cap;
	return true;
}

void text_add(struct text *t, const void *p, size_t n)
{
	if (!n || !text_reserve(t, n))
		return;
	memcpy(t->p + t->len, p, n);
	t->len += n;
}

void text_puts(struct text *t, const char *s)
{
	text_add(t, s, strlen(s));
}

void text_printf(struct text *t, const char *fmt, ...)
{
	va_list ap, again;
	int n;

	va_start(ap, fmt);
	va_copy(again, ap);
	n = vsnprintf(NULL, 0, fmt, ap);
	if (n < 0)
		t->failed = true;
	else if (text_reserve(t, (size_t)n + 1))
		t->len += (size_t)vsnprintf(t->p + t->len, (size_t)n + 1, fmt,
					    again);
	va_end(again);
	va_end(ap);
}

/* Range of a second byte: excludes overlong forms and surrogates. */
static bool utf8_second_ok(u8 first, u8 second)
{
	switch (first) {
	case 0xe0:
		return second >= 0xa0 && second <= 0xbf;
	case 0xed:
		return second >= 0x80 && second <= 0x9f;
	case 0xf0:
		return second >= 0x90 && second <= 0xbf;
	case 0xf4:
		return second >= 0x80 && second <= 0x8f;
	default:
		return second >= 0x80 && second <= 0xbf;
	}
}

size_t text_utf8_len(const char *p, size_t n)
{
	const u8 *b = (const u8 *)p;
	size_t i, len;

	if (!n)
		return 0;
	if (b[0] < 0x80)
		return 1;
	if (b[0] < 0xc2 || b[0] > 0xf4)
		return 0;
	len = b[0] < 0xe0 ? 2 : b[0] < 0xf0 ? 3 : 4;
	if (n < len || !utf8_second_ok(b[0], b[1]))
		return 0;
	for (i = 2; i < len; i++)
		if ((b[i] & 0xc0) != 0x80)
			return 0;
	return len;
}

/* Number of bytes from @p on that a JSON string has unchanged. */
static size_t json_plain(const char *p, size_t n)
{
	size_t i = 0, len;

	while (i < n) {
		const u8 c = (u8)p[i];

		if (c < 0x20 || c == '"' || c == '\\' || c == 0x7f)
			break;
		len = text_utf8_len(p + i, n - i);
		if (!len)
			break;
		i += len;
	}
	return i;
}

static void json_escape(struct text *t, u8 c)
{
	static const char shorts[] = "\"\\\b\f\n\r\t";
	static const char names[] = "\"\\bfnrt";
	const char *s = c ? strchr(shorts, c) : NULL;
	char pair[2] = { '\\' };

	if (s) {
		pair[1] = names[s - shorts];
		text_add(t, pair, 2);
	} else if (c < 0x80) {
		text_printf(t, "\\u%04x", c);
	} else {
		text_puts(t, "\xef\xbf\xbd");
	}
}

void text_json(struct text *t, const char *p, size_t n)
{
	size_t i = 0, len;

	text_add(t, "\"", 1);
	while (i < n) {
		len = json_plain(p + i, n - i);
		text_add(t, p + i, len);
		i += len;
		if (i < n)
			json_escape(t, (u8)p[i++]);
	}
	text_add(t, "\"", 1);
}

void text_jsons(struct text *t, const char *s)
{
	if (s)
		text_json(t, s, strlen(s));
	else
		text_puts(t, "null");
}
