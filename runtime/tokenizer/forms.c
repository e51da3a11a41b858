// SPDX-License-Identifier: Apache-2.0
/*
 * forms.c - Unicode's normal forms, lower case and marks
 *
 * utf8proc has the decompositions and the compositions.  The order of marks is
 * made here: utf8proc sorts by insertion, and a text of nothing but marks would
 * take quadratic time.
 *
 * The reference library knows an older Unicode (unicode_forms.h).  Code points
 * without a decomposition and combining class there stay unchanged and end a
 * run of marks, as an unassigned code point does.
 *
 * A text is cut at starters that never join with a neighbour: only runs with a
 * code point at or above U+00A0 (U+0300 for a composed canonical form) are
 * processed, and the rest is copied.
 */
#include <stdlib.h>
#include <utf8proc.h>

#include "runtime/tokenizer/internal.h"
#include "runtime/tokenizer/unicode_forms.h"
#include "runtime/tokenizer/utf8.h"

struct range {
	u32 first;
	u32 last;
};

#define x(first, last)	{ first, last },
static const struct range unknown[] = { UNICODE_UNKNOWN(x) };
static const struct range flipped[] = { UNICODE_FLIPPED_MARKS(x) };
#undef x

#define x(cp, low)	{ cp, low },
static const struct range lower[] = { UNICODE_LOWER(x) };
#undef x

/*
 * Runs of up to this many marks are sorted in place, longer ones by counting.
 */
#define SORT_SHORT	24

/* Most code points of a decomposition: that of U+FDFA. */
#define DECOMPOSED_MAX	32

/* The range with @cp, or NULL. */
static const struct range *range_find(const struct range *r, size_t nr, u32 cp)
{
	size_t lo = 0, hi = nr, mid;

	while (lo < hi) {
		mid = (lo + hi) / 2;
		if (cp > r[mid].last)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo < nr && cp >= r[lo].first ? &r[lo] : NULL;
}

static bool is_unknown(u32 cp)
{
	return range_find(unknown, ARRAY_SIZE(unknown), cp) != NULL;
}

bool form_is_mark(u32 cp)
{
	utf8proc_category_t cat = utf8proc_category((s32)cp);
	bool is_mark = cat == UTF8PROC_CATEGORY_MN ||
		       cat == UTF8PROC_CATEGORY_MC ||
		       cat == UTF8PROC_CATEGORY_ME;

	return is_mark != !!range_find(flipped, ARRAY_SIZE(flipped), cp);
}

u32 form_lowercase(u32 cp, u32 out[2])
{
	size_t i;

	/* The only code point with a lower case of two. */
	if (cp == 0x130) {
		out[0] = 'i';
		out[1] = 0x307;
		return 2;
	}
	out[0] = (u32)utf8proc_tolower((s32)cp);
	for (i = 0; i < ARRAY_SIZE(lower); i++)
		if (lower[i].first == cp)
			out[0] = lower[i].last;
	return 1;
}

static u32 combining_class(u32 cp)
{
	if (cp < 0x300 || is_unknown(cp))
		return 0;
	return (u32)utf8proc_get_property((s32)cp)->combining_class;
}

/* Sort marks by class, equal ones in their order; @tmp has room for @n. */
static void marks_sort(s32 *p, size_t n, s32 *tmp)
{
	size_t at[257] = { 0 }, i, j;
	u32 cls;
	s32 v;

	if (n <= SORT_SHORT) {
		for (i = 1; i < n; i++) {
			v = p[i];
			cls = combining_class((u32)v);
			for (j = i; j && combining_class((u32)p[j - 1]) > cls;
			     j--)
				p[j] = p[j - 1];
			p[j] = v;
		}
		return;
	}
	for (i = 0; i < n; i++)
		at[combining_class((u32)p[i]) + 1]++;
	for (i = 1; i < ARRAY_SIZE(at); i++)
		at[i] += at[i - 1];
	memcpy(tmp, p, n * sizeof(*p));
	for (i = 0; i < n; i++)
		p[at[combining_class((u32)tmp[i])]++] = tmp[i];
}

static void order_marks(s32 *p, size_t n, s32 *tmp)
{
	size_t i = 0, from;

	while (i < n) {
		if (!combining_class((u32)p[i])) {
			i++;
			continue;
		}
		from = i;
		while (i < n && combining_class((u32)p[i]))
			i++;
		if (i - from > 1)
			marks_sort(p + from, i - from, tmp);
	}
}

static int points_reserve(struct norm_scratch *s, size_t n)
{
	size_t cap = max(n, s->cap * 2);
	s32 *p;

	if (n <= s->cap)
		return 0;
	/* Twice: the second half is used for sorting marks. */
	p = realloc(s->points, 2 * cap * sizeof(*p));
	if (!p)
		return -ENOMEM;
	s->points = p;
	s->cap = cap;
	return 0;
}

/* Decompose a run; returns the number of code points, or an error. */
static ssize_t run_decompose(u32 form, struct norm_scratch *s, const u8 *p,
			     size_t len)
{
	const int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE |
			    (form & FORM_COMPAT ? UTF8PROC_COMPAT : 0);
	size_t at = 0, nr = 0, n;
	utf8proc_ssize_t got;
	int boundary = 0;
	u32 cp;

	while (at < len) {
		if (points_reserve(s, nr + DECOMPOSED_MAX))
			return -ENOMEM;
		utf8_step(p + at, len - at, &n);
		cp = utf8_decode(p + at, n);
		at += n;
		if (cp < 0x80 || is_unknown(cp)) {
			s->points[nr++] = (s32)cp;
			continue;
		}
		got = utf8proc_decompose_char((s32)cp, s->points + nr,
					      DECOMPOSED_MAX,
					      (utf8proc_option_t)options,
					      &boundary);
		if (got < 0 || got > DECOMPOSED_MAX)
			return -EOVERFLOW;
		nr += (size_t)got;
	}
	return (ssize_t)nr;
}

/* Compose the parts between code points that the reference does not know. */
static size_t points_compose(s32 *p, size_t n)
{
	size_t from = 0, to, nr = 0, got;

	while (from < n) {
		to = from;
		while (to < n && !is_unknown((u32)p[to]))
			to++;
		got = (size_t)utf8proc_normalize_utf32(p + from,
				(utf8proc_ssize_t)(to - from),
				UTF8PROC_COMPOSE | UTF8PROC_STABLE);
		memmove(p + nr, p + from, got * sizeof(*p));
		nr += got;
		for (; to < n && is_unknown((u32)p[to]); to++)
			p[nr++] = p[to];
		from = to;
	}
	return nr;
}

static int run_apply(u32 form, struct norm_scratch *s, const char *text,
		     size_t len, struct tok_text *out)
{
	ssize_t n = run_decompose(form, s, (const u8 *)text, len);
	u8 buf[4];
	ssize_t i;
	int err = 0;

	if (n < 0)
		return (int)n;
	order_marks(s->points, (size_t)n, s->points + s->cap);
	if (form & FORM_COMPOSE)
		n = (ssize_t)points_compose(s->points, (size_t)n);
	for (i = 0; i < n && !err; i++)
		err = tok_put(out, (const char *)buf, (size_t)
			       utf8proc_encode_char(s->points[i], buf));
	return err;
}

/* May a code point change, or join with the one before it? */
static bool is_active(u32 form, u32 cp)
{
	return cp >= (form == FORM_COMPOSE ? 0x300u : 0xa0u);
}

/* Find the next active code point in [@at, @len). */
static size_t active_find(u32 form, const u8 *p, size_t at, size_t len)
{
	size_t n;

	while (at < len) {
		if (p[at] < 0x80) {
			at++;
			continue;
		}
		utf8_step(p + at, len - at, &n);
		if (is_active(form, utf8_decode(p + at, n)))
			break;
		at += n;
	}
	return at;
}

/* Find the end of the run at @at: the second ASCII byte in a row. */
static size_t active_end(const u8 *p, size_t at, size_t len)
{
	while (at < len && !(p[at] < 0x80 && (at + 1 == len ||
					      p[at + 1] < 0x80)))
		at++;
	return at;
}

int form_apply(u32 form, struct norm_scratch *s, const char *text, size_t len,
	       struct tok_text *out)
{
	const u8 *p = (const u8 *)text;
	size_t done = 0, from, to;
	int err = 0;

	while (!err && done < len) {
		from = active_find(form, p, done, len);
		to = active_end(p, from, len);
		/* A mark joins with the character before it. */
		if (from < len && from > done)
			do
				from--;
			while (from > done && (p[from] & 0xc0) == 0x80);
		err = tok_put(out, text + done, from - done);
		if (!err && from < to)
			err = run_apply(form, s, text + from, to - from, out);
		done = to;
	}
	return err;
}
