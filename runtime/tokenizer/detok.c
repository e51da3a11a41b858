// SPDX-License-Identifier: Apache-2.0
/*
 * detok.c - ids to text, one id at a time
 *
 * A token is a run of bytes, and a character can be spread over several
 * tokens.  The stream holds back the begin of a character, at most 3 bytes,
 * until a later token completes it or shows that nothing can.  What can no
 * longer become a character is put out as U+FFFD at once, one for each
 * longest part that could have begun one, which is what replacing errors in
 * the whole text at the end would give; so the text only ever grows.
 *
 * Invariant between calls: @held is a proper prefix of some character.
 */
#include "runtime/tokenizer/internal.h"
#include "runtime/tokenizer/utf8.h"

static const char replacement[] = "\xef\xbf\xbd";

#define REPLACEMENT_LEN	(sizeof(replacement) - 1)

void detok_init(struct detok *d, const struct tokenizer *tok,
		bool skip_special)
{
	*d = (struct detok){ .tok = tok, .skip_special = skip_special };
}

size_t detok_out_max(const struct tokenizer *tok)
{
	struct detok *d;

	return REPLACEMENT_LEN * (sizeof(d->held) + tok->max_token_len);
}

/* Text under construction; @over once it did not fit. */
struct detok_out {
	char *p;
	size_t max;
	size_t nr;
	bool over;
};

static void out_put(struct detok_out *o, const void *bytes, size_t len)
{
	if (o->over || len > o->max - o->nr) {
		o->over = true;
		return;
	}
	memcpy(o->p + o->nr, bytes, len);
	o->nr += len;
}

/*
 * Put out what @p begins with; returns the bytes used, 0 when they must wait
 * for more.
 */
static size_t out_step(struct detok_out *o, const u8 *p, size_t n)
{
	size_t len;

	switch (utf8_step(p, n, &len)) {
	case UTF8_CHAR:
		out_put(o, p, len);
		return len;
	case UTF8_BAD:
		out_put(o, replacement, REPLACEMENT_LEN);
		return len;
	case UTF8_SHORT:
		break;
	}
	return 0;
}

/*
 * Settle what is held with the help of the first bytes of @p, through a small
 * window: the held bytes and as many more as a character can need.  Returns
 * the bytes of @p used; *@nr_held is what is still held of @held.
 */
static size_t held_settle(struct detok_out *o, u8 *held, u8 *nr_held,
			  const u8 *p, size_t n)
{
	u8 win[8];
	size_t nr = *nr_held, take = min(n, (size_t)4), at = 0, used;

	memcpy(win, held, nr);
	memcpy(win + nr, p, take);
	while (at < nr) {
		used = out_step(o, win + at, nr + take - at);
		if (!used) {
			/* Still short, so @p ends inside the window. */
			*nr_held = nr + take - at;
			memcpy(held, win + at, *nr_held);
			return take;
		}
		at += used;
	}
	*nr_held = 0;
	return at - nr;
}

ssize_t detok_push(struct detok *d, u32 id, char *out, size_t max)
{
	struct detok_out o = { .p = out, .max = max };
	struct detok after = *d;
	const char *bytes;
	size_t at = 0, used;
	ssize_t len;

	len = tokenizer_decode(d->tok, id, &bytes);
	if (len <= 0 || (d->skip_special && tokenizer_is_special(d->tok, id)))
		return 0;

	if (after.nr_held)
		at = held_settle(&o, after.held, &after.nr_held,
				 (const u8 *)bytes, len);
	while (at < (size_t)len) {
		used = out_step(&o, (const u8 *)bytes + at, len - at);
		if (!used) {
			after.nr_held = len - at;
			memcpy(after.held, bytes + at, after.nr_held);
			break;
		}
		at += used;
	}
	if (o.over)
		return -E2BIG;
	*d = after;
	return o.nr;
}

ssize_t detok_flush(struct detok *d, char *out, size_t max)
{
	if (!d->nr_held)
		return 0;
	if (max < REPLACEMENT_LEN)
		return -E2BIG;
	memcpy(out, replacement, REPLACEMENT_LEN);
	d->nr_held = 0;
	return REPLACEMENT_LEN;
}
