// SPDX-License-Identifier: Apache-2.0
/*
 * strip.c - stripping and replacing, for methods and filters
 */
#include "runtime/template/internal.h"

static bool in_set(u32 c, struct value chars)
{
	const char *p = chars.s, *end;

	if (chars.kind != V_STR)
		return ts_is_space(c);
	for (end = p + chars.len; p < end; )
		if (ts_next(&p, end) == c)
			return true;
	return false;
}

/* The last character before @end */
static const char *char_before(const char *begin, const char *end)
{
	const char *p = end - 1, *q;

	while (p > begin && end - p < 4 && ((u8)*p & 0xc0) == 0x80)
		p--;
	q = p;
	ts_next(&q, end);
	return q == end ? p : end - 1;
}

/*
 * @ends: bit 0 the beginning, bit 1 the end; @chars, or blanks if it is no text
 */
struct value ts_strip(struct render *r, struct value s, struct value chars,
		      int ends)
{
	const char *p = s.s, *end = s.s + s.len, *q;
	size_t each = chars.kind == V_STR ? chars.len / 8 : 0;

	while (ends & 1 && p < end) {
		q = p;
		if (!in_set(ts_next(&q, end), chars))
			break;
		p = q;
		run_bytes(r, 1 + each * 8);
	}
	while (ends & 2 && p < end) {
		q = char_before(p, end);
		end = q;
		if (!in_set(ts_next(&q, s.s + s.len), chars)) {
			end = q;
			break;
		}
		run_bytes(r, 1 + each * 8);
	}
	run_bytes(r, s.len - (size_t)(end - p));
	return ts_sub(s, p, end);
}

/* With an empty @from, put @to before every character and at the end. */
static struct value replace_gaps(struct render *r, struct value s,
				 struct value to, s64 count)
{
	struct sbuf b = { .r = r };
	const char *p = s.s, *end = s.s + s.len, *from;

	while (p < end && !r->mem.failed) {
		if (count-- != 0)
			sb_add(&b, to.s, to.len);
		else
			count = 0;
		run_step(r, 1);
		from = p;
		ts_next(&p, end);
		sb_add(&b, from, (size_t)(p - from));
	}
	if (count != 0)
		sb_add(&b, to.s, to.len);
	return sb_value(&b);
}

/* @count < 0: replace all */
struct value ts_replace(struct render *r, struct value s, struct value from,
			struct value to, s64 count)
{
	const char *p = s.s, *end = s.s + s.len, *hit;
	struct sbuf b = { .r = r };
	struct value v;

	if (r->mem.failed)
		return VALUE(V_UNDEF);
	run_bytes(r, s.len);
	if (!from.len) {
		v = replace_gaps(r, s, to, count);
	} else {
		while (count != 0 && !r->mem.failed &&
		       (hit = ts_find(p, (size_t)(end - p), from.s, from.len))) {
			sb_add(&b, p, (size_t)(hit - p));
			sb_add(&b, to.s, to.len);
			run_step(r, 1);
			p = hit + from.len;
			count -= count > 0;
		}
		if (p == s.s)
			return s;
		sb_add(&b, p, (size_t)(end - p));
		v = sb_value(&b);
	}
	v.safe = s.safe;
	return v;
}
