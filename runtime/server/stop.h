/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stop.h - find stop strings in a text that comes in pieces
 */
#ifndef RUNTIME_SERVER_STOP_H
#define RUNTIME_SERVER_STOP_H

#include <kvmm/text.h>

#define STOP_MAX	4u	/* strings of a request, as OpenAI allows */
#define STOP_LEN_MAX	4096u	/* bytes of one string */

/**
 * struct stops - the stop strings of a request; all zero: none
 * @keep: the string that stopped the text stays in it
 * @s:    [@nr] own copies, @len bytes each
 * @back: where to go on after a byte that does not fit: the longest prefix of
 *        the string that is also a suffix of the matched part
 */
struct stops {
	u32	nr;
	bool	keep;
	char	*s[STOP_MAX];
	u32	len[STOP_MAX];
	u32	*back[STOP_MAX];
};

/**
 * stops_add() - add a string
 * @s: @len bytes of UTF-8, not empty, copied
 *
 * Return: 0, -E2BIG (too many, or too long), -EINVAL (empty), -ENOMEM.
 */
int __must_check stops_add(struct stops *st, const char *s, size_t len);

void stops_free(struct stops *st);

/**
 * struct stopper - one text; zero it and set @stops for a new one
 * @at:   bytes of each string that the end of the text matches
 * @held: the end of the text, in which a stop string may begin
 */
struct stopper {
	const struct stops	*stops;
	u32			at[STOP_MAX];
	struct text		held;
};

/**
 * stopper_push() - add a piece of the text
 * @p:   @n bytes, whole characters
 * @out: bytes that can no longer be part of a stop string are appended
 *
 * Return: index of the string that ends the text, -1: the text goes on.
 */
int stopper_push(struct stopper *st, const char *p, size_t n,
		 struct text *out);

/* stopper_end() - end the text: the held bytes belong to it */
void stopper_end(struct stopper *st, struct text *out);

void stopper_free(struct stopper *st);

#endif /* RUNTIME_SERVER_STOP_H */
