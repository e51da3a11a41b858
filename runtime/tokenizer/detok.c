// SPDX-License-Identifier: Apache-2.0
/*
 * detok.c - ids to text, one id at a time
 *
 * A token is a run of bytes, and a character can be spread over several tokens.
 * The stream holds back the beginning of a character, at most 3 bytes, until a
 * later token completes it or shows that it cannot be completed.  Bytes that
 * can no longer become a character are written as U+FFFD at once, so the text
 * only ever grows.
 *
 * Byte-level models: one U+FFFD for each longest part that could have begun a
 * character, as if errors were replaced in the whole text at the end.  Models
 * with byte fallback: tokens are whole characters, except tokens that stand for
 * one byte; only these form characters together, and each of them that does not
 * becomes a U+FFFD.  (The library takes back the good characters of a run of
 * byte tokens with a bad one; a stream cannot.)
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
	*d = (struct detok){
		.tok = tok, .skip_special = skip_special,
		.strip = tok->dec.strip,
	};
}

size_t detok_out_max(const struct tokenizer *tok)
{
	struct detok *d;

	return REPLACEMENT_LEN * (sizeof(d->held) + tok->max_token_len);
}

/* Text being written; @over once it did not fit. */
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

static void out_bad(struct detok_out *o, size_t nr)
{
	while (nr--)
		out_put(o, replacement, REPLACEMENT_LEN);
}

/*
 * Write the character or bad part that @p begins with; returns the bytes used,
 * 0 when they must wait for more.
 */
static size_t out_step(struct detok_out *o, const u8 *p, size_t n)
{
	size_t len;

	switch (utf8_step(p, n, &len)) {
	case UTF8_CHAR:
		out_put(o, p, len);
		return len;
	case UTF8_BAD:
		out_bad(o, 1);
		return len;
	case UTF8_SHORT:
		break;
	}
	return 0;
}

/*
 * Settle the held bytes with the first bytes of @p, in a small window: the held
 * bytes and as many more as a character can need.  Returns the bytes of @p
 * used; *@nr_held is the number of bytes still held in @held.
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
			/* Still incomplete, so @p ends inside the window. */
			*nr_held = nr + take - at;
			memcpy(held, win + at, *nr_held);
			return take;
		}
		at += used;
	}
	*nr_held = 0;
	return at - nr;
}

/* Write the bytes of a byte-level token. */
static void push_bytes(struct detok *d, struct detok_out *o, const u8 *p,
		       size_t len)
{
	size_t at = 0, used;

	if (d->nr_held)
		at = held_settle(o, d->held, &d->nr_held, p, len);
	while (at < len) {
		/* Most of a text: copy plain ASCII. */
		for (used = at; used < len && p[used] < 0x80; used++)
			;
		if (used > at) {
			out_put(o, p + at, used - at);
			at = used;
			continue;
		}
		used = out_step(o, p + at, len - at);
		if (!used) {
			d->nr_held = len - at;
			memcpy(d->held, p + at, d->nr_held);
			break;
		}
		at += used;
	}
}

/* Take one byte token of byte fallback. */
static void push_byte(struct detok *d, struct detok_out *o, u8 byte)
{
	size_t len;

	d->held[d->nr_held++] = byte;
	switch (utf8_step(d->held, d->nr_held, &len)) {
	case UTF8_CHAR:
		out_put(o, d->held, len);
		d->nr_held = 0;
		break;
	case UTF8_BAD:
		/* The last byte may begin another character. */
		out_bad(o, len);
		d->nr_held -= len;
		if (d->nr_held) {
			d->nr_held = 0;
			push_byte(d, o, byte);
		}
		break;
	case UTF8_SHORT:
		break;
	}
}

/* Strip marks from the beginning of the text, as the decoder asks. */
static void strip_begin(struct detok *d, const u8 **p, size_t *len)
{
	const struct decoding *dec = &d->tok->dec;

	while (d->strip && *len >= dec->strip_len &&
	       !memcmp(*p, dec->strip_char, dec->strip_len)) {
		*p += dec->strip_len;
		*len -= dec->strip_len;
		d->strip--;
	}
	if (*len)
		d->strip = 0;
}

/* Write a whole token without ByteLevel. */
static void push_text(struct detok *d, struct detok_out *o,
		      const struct token *t)
{
	const struct decoding *dec = &d->tok->dec;
	const u8 *p = (const u8 *)d->tok->pool + t->off;
	size_t len = t->len;

	if (t->flags & TOKEN_BYTE) {
		if (d->strip)
			strip_begin(d, &p, &len);
		if (len)
			push_byte(d, o, *p);
		return;
	}
	out_bad(o, d->nr_held);
	d->nr_held = 0;
	if (!d->started && dec->drop_len) {
		p = (const u8 *)d->tok->pool + t->first;
		len = t->first_len;
	}
	if (d->started && dec->kind == DECODE_JOINED)
		out_put(o, " ", 1);
	if (d->strip)
		strip_begin(d, &p, &len);
	out_put(o, p, len);
}

ssize_t detok_push(struct detok *d, u32 id, char *out, size_t max)
{
	struct detok_out o = { .p = out, .max = max };
	const struct tokenizer *tok = d->tok;
	const struct token *t = &tok->tokens[id];
	struct detok after;

	if (id >= tok->nr_tokens || !t->flags ||
	    (d->skip_special && (t->flags & TOKEN_SPECIAL)))
		return 0;

	after = *d;
	if (tok->dec.kind == DECODE_BYTES)
		push_bytes(&after, &o, (const u8 *)tok->pool + t->off, t->len);
	else
		push_text(&after, &o, t);
	if (o.over)
		return -E2BIG;
	after.started = true;
	*d = after;
	return (ssize_t)o.nr;
}

ssize_t detok_flush(struct detok *d, char *out, size_t max)
{
	const bool bytes = d->tok->dec.kind == DECODE_BYTES;
	struct detok_out o = { .p = out, .max = max };

	out_bad(&o, bytes ? !!d->nr_held : d->nr_held);
	if (o.over)
		return -E2BIG;
	detok_init(d, d->tok, d->skip_special);
	return (ssize_t)o.nr;
}
