// SPDX-License-Identifier: Apache-2.0
/*
 * utf8.c - one step through bytes that may or may not be UTF-8
 *
 * The table of Unicode 15, section 3.9: the first byte decides how many bytes
 * follow and the range of the second one.  That range excludes overlong forms
 * (E0, F0), surrogates (ED) and code points above U+10FFFF (F4).  Pure
 * functions, no state.
 */
#include "runtime/tokenizer/utf8.h"

/*
 * Length of the character that @b begins, 0 if none; range of its second byte.
 */
static unsigned int lead_class(u8 b, u8 *lo, u8 *hi)
{
	*lo = 0x80;
	*hi = 0xbf;
	if (b < 0x80)
		return 1;
	if (b < 0xc2)
		return 0;
	if (b < 0xe0)
		return 2;
	if (b < 0xf0) {
		if (b == 0xe0)
			*lo = 0xa0;
		if (b == 0xed)
			*hi = 0x9f;
		return 3;
	}
	if (b == 0xf0)
		*lo = 0x90;
	if (b == 0xf4)
		*hi = 0x8f;
	return b < 0xf5 ? 4 : 0;
}

enum utf8_kind utf8_step(const u8 *p, size_t n, size_t *len)
{
	u8 lo, hi;
	unsigned int want, i;

	*len = 1;
	want = lead_class(p[0], &lo, &hi);
	if (!want)
		return UTF8_BAD;
	for (i = 1; i < want; i++) {
		*len = i;
		if (i == n)
			return UTF8_SHORT;
		if (p[i] < lo || p[i] > hi)
			return UTF8_BAD;
		lo = 0x80;
		hi = 0xbf;
	}
	*len = want;
	return UTF8_CHAR;
}

bool utf8_is_valid(const char *text, size_t n)
{
	const u8 *p = (const u8 *)text;
	size_t at = 0, len;

	while (at < n) {
		if (p[at] < 0x80) {
			at++;
			continue;
		}
		if (utf8_step(p + at, n - at, &len) != UTF8_CHAR)
			return false;
		at += len;
	}
	return true;
}

u32 utf8_decode(const u8 *p, size_t len)
{
	static const u8 lead_mask[5] = { 0, 0x7f, 0x1f, 0x0f, 0x07 };
	u32 cp = p[0] & lead_mask[len];
	size_t i;

	for (i = 1; i < len; i++)
		cp = cp << 6 | (p[i] & 0x3f);
	return cp;
}

bool utf8_is_space(u32 cp)
{
	return (cp >= 0x09 && cp <= 0x0d) || cp == 0x20 || cp == 0x85 ||
	       cp == 0xa0 || cp == 0x1680 || (cp >= 0x2000 && cp <= 0x200a) ||
	       cp == 0x2028 || cp == 0x2029 || cp == 0x202f || cp == 0x205f ||
	       cp == 0x3000;
}

size_t utf8_space_len(const u8 *p, size_t n)
{
	size_t len;

	if (!n || utf8_step(p, n, &len) != UTF8_CHAR ||
	    !utf8_is_space(utf8_decode(p, len)))
		return 0;
	return len;
}

size_t utf8_char_before(const u8 *p, size_t lo, size_t hi)
{
	hi--;
	while (hi > lo && (p[hi] & 0xc0) == 0x80)
		hi--;
	return hi;
}

size_t utf8_space_before(const u8 *p, size_t lo, size_t hi)
{
	size_t at;

	while (hi > lo) {
		at = utf8_char_before(p, lo, hi);
		if (!utf8_space_len(p + at, hi - at))
			break;
		hi = at;
	}
	return hi;
}

void utf8_clean_line(char *s)
{
	u8 *p = (u8 *)s;
	size_t left = strlen(s), len;
	u32 cp;

	for (; left; p += len, left -= len) {
		if (utf8_step(p, left, &len) != UTF8_CHAR) {
			memset(p, '?', len);
			continue;
		}
		cp = utf8_decode(p, len);
		if (cp < 0x20 || (cp >= 0x7f && cp < 0xa0))
			memset(p, '?', len);
	}
}
