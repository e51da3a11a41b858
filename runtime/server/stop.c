// SPDX-License-Identifier: Apache-2.0
/*
 * stop.c - find stop strings in a text that comes in pieces
 *
 * A stop string may cross the borders of tokens, so the end of the text is held
 * back as long as a stop string may begin there.  The text ends with the first
 * byte that completes a stop string; if that byte completes several, the
 * longest counts.  So the result does not depend on the pieces of the text.
 *
 * Each string is matched with the algorithm of Knuth, Morris and Pratt, so
 * every byte costs the same for any text and strings.  Both come from clients.
 *
 * Pieces and stop strings are whole characters, so the held text and the
 * released text are whole characters, too.
 */
#include <stdlib.h>

#include "runtime/server/stop.h"

static void back_fill(const char *s, u32 len, u32 *back)
{
	u32 i, k = 0;

	back[0] = 0;
	for (i = 1; i < len; i++) {
		while (k && s[i] != s[k])
			k = back[k - 1];
		k += s[i] == s[k];
		back[i] = k;
	}
}

int stops_add(struct stops *st, const char *s, size_t len)
{
	const u32 i = st->nr;

	if (!len)
		return -EINVAL;
	if (i == STOP_MAX || len > STOP_LEN_MAX)
		return -E2BIG;
	st->s[i] = malloc(len);
	st->back[i] = malloc(len * sizeof(**st->back));
	if (!st->s[i] || !st->back[i]) {
		free(st->s[i]);
		free(st->back[i]);
		return -ENOMEM;
	}
	memcpy(st->s[i], s, len);
	st->len[i] = (u32)len;
	back_fill(s, (u32)len, st->back[i]);
	st->nr++;
	return 0;
}

void stops_free(struct stops *st)
{
	u32 i;

	for (i = 0; i < st->nr; i++) {
		free(st->s[i]);
		free(st->back[i]);
	}
	memset(st, 0, sizeof(*st));
}

/* Match one byte: the longest string that it completes, or -1. */
static int stopper_byte(struct stopper *st, char c)
{
	const struct stops *s = st->stops;
	int found = -1;
	u32 i;

	for (i = 0; i < s->nr; i++) {
		u32 k = st->at[i];

		while (k && s->s[i][k] != c)
			k = s->back[i][k - 1];
		k += s->s[i][k] == c;
		st->at[i] = k;
		if (k == s->len[i] &&
		    (found < 0 || s->len[i] > s->len[found]))
			found = (int)i;
	}
	return found;
}

int stopper_push(struct stopper *st, const char *p, size_t n,
		 struct text *out)
{
	const struct stops *s = st->stops;
	struct text *h = &st->held;
	size_t i, keep = 0;
	int found = -1;

	if (!s || !s->nr) {
		text_add(out, p, n);
		return -1;
	}
	for (i = 0; i < n && found < 0; i++)
		found = stopper_byte(st, p[i]);
	text_add(h, p, i);
	if (found >= 0) {
		keep = s->keep ? 0 : s->len[found];
	} else {
		for (i = 0; i < s->nr; i++)
			keep = max(keep, (size_t)st->at[i]);
	}
	if (h->failed || keep > h->len) {
		out->failed = true;
		return found;
	}
	text_add(out, h->p, h->len - keep);
	text_cut(h, found >= 0 ? h->len : h->len - keep);
	return found;
}

void stopper_end(struct stopper *st, struct text *out)
{
	text_add(out, st->held.p, st->held.len);
	text_clear(&st->held);
}

void stopper_free(struct stopper *st)
{
	text_free(&st->held);
}
