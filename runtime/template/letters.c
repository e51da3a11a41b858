// SPDX-License-Identifier: Apache-2.0
/*
 * letters.c - letter case, and printable characters for repr()
 *
 * The tables are those of the C library's locale C.UTF-8, in any locale of the
 * program.  They map one character to one; of the few characters that Python
 * maps to several, only the sharp s has a rule here.
 */
#include <locale.h>
#include <pthread.h>
#include <wctype.h>

#include "runtime/template/internal.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;
static locale_t unicode;

static void locale_make(void)
{
	unicode = newlocale(LC_CTYPE_MASK, "C.UTF-8", NULL);
}

static locale_t locale_get(void)
{
	pthread_once(&once, locale_make);
	return unicode;
}

u32 ts_upper(u32 c)
{
	locale_t l;

	if (c < 0x80)
		return c >= 'a' && c <= 'z' ? c - 0x20 : c;
	l = locale_get();
	return l ? towupper_l(c, l) : c;
}

u32 ts_lower(u32 c)
{
	locale_t l;

	if (c < 0x80)
		return c >= 'A' && c <= 'Z' ? c + 0x20 : c;
	l = locale_get();
	return l ? towlower_l(c, l) : c;
}

/*
 * Blanks except the space, formats, surrogates, private use: Python escapes
 * them.
 */
static const struct {
	u32	first;
	u32	last;
} hidden[] = {
	{ 0x7f, 0xa0 }, { 0xad, 0xad }, { 0x600, 0x605 }, { 0x61c, 0x61c },
	{ 0x6dd, 0x6dd }, { 0x70f, 0x70f }, { 0x890, 0x891 },
	{ 0x8e2, 0x8e2 }, { 0x1680, 0x1680 }, { 0x180e, 0x180e },
	{ 0x2000, 0x200f }, { 0x2028, 0x202f }, { 0x205f, 0x206f },
	{ 0x3000, 0x3000 }, { 0xd800, 0xf8ff }, { 0xfeff, 0xfeff },
	{ 0xfff0, 0xfffb }, { 0xfffe, 0xffff }, { 0x110bd, 0x110bd },
	{ 0x110cd, 0x110cd }, { 0x13430, 0x1343f }, { 0x1bca0, 0x1bca3 },
	{ 0x1d173, 0x1d17a }, { 0xe0000, 0xe00ff }, { 0xe01f0, 0x10ffff },
};

bool ts_is_printable(u32 c)
{
	locale_t l;
	u32 i;

	if (c < 0x7f)
		return c >= 0x20;
	for (i = 0; i < ARRAY_SIZE(hidden); i++)
		if (c >= hidden[i].first && c <= hidden[i].last)
			return false;
	l = locale_get();
	return !l || iswprint_l(c, l);
}

static bool is_cased(u32 c)
{
	return ts_upper(c) != c || ts_lower(c) != c;
}

static void put_upper(struct sbuf *b, u32 c, bool title)
{
	if (c == 0xdf)
		sb_puts(b, title ? "Ss" : "SS");
	else
		sb_char(b, ts_upper(c));
}

/*
 * @how: 'u' all upper, 'l' all lower, 'c' the first upper and the rest lower,
 *       't' the same for each word as str.title(), 'f' as Jinja2's filter
 *       title, where words begin after blanks, hyphens and opening brackets
 */
struct value ts_map_case(struct render *r, struct value s, char how)
{
	struct sbuf b = { .r = r };
	const char *p = s.s, *end = s.s + s.len;
	bool begin = true;
	struct value v;
	u32 c;

	while (p < end && !r->mem.failed) {
		c = ts_next(&p, end);
		if (how == 'u')
			put_upper(&b, c, false);
		else if (how != 'l' && begin)
			put_upper(&b, c, true);
		else
			sb_char(&b, ts_lower(c));
		if (how == 't')
			begin = !is_cased(c);
		else
			begin = how == 'f' && (ts_is_space(c) || c == '-' ||
					       c == '(' || c == '{' ||
					       c == '[' || c == '<');
	}
	v = sb_value(&b);
	v.safe = s.safe;
	return v;
}
