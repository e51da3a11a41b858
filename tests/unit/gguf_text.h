/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gguf_text.h - bytes of GGUF files as short words
 *
 * A text of words, with one space between them, says the bytes one after the other:
 *
 *	G	the magic
 *	b7 h7 w7 q7	a number of 1, 2, 4 or 8 bytes
 *	$name	a string: its length in 8 bytes, and its bytes
 *	'name	bytes alone
 *	/32	zeros up to a multiple of 32 bytes
 *	z9	9 zeros
 */
#ifndef TESTS_UNIT_GGUF_TEXT_H
#define TESTS_UNIT_GGUF_TEXT_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvmm/types.h>

/* A header of version 3 with @t tensors and @k keys. */
#define GT_HEAD(t, k)	"G w3 q" #t " q" #k " "

/* The record of a tensor with one dimension. */
#define GT_VEC(name, n, type, offset)					\
	"$" #name " w1 q" #n " w" #type " q" #offset " "

static inline void gt_number(FILE *f, u64 v, u32 bytes)
{
	while (bytes--) {
		fputc((int)(v & 0xff), f);
		v >>= 8;
	}
}

static inline void gt_zeros(FILE *f, u64 n)
{
	while (n--)
		fputc(0, f);
}

/* Write the bytes of one word. */
static inline void gt_word(FILE *f, const char *word)
{
	const u64 n = strtoull(word + 1, NULL, 0);
	const u64 at = (u64)ftell(f);

	switch (*word) {
	case 'G':
		fputs("GGUF", f);
		break;
	case 'b':
	case 'h':
	case 'w':
	case 'q':
		gt_number(f, n, *word == 'b' ? 1 : *word == 'h' ? 2 :
				*word == 'w' ? 4 : 8);
		break;
	case '$':
		gt_number(f, strlen(word + 1), 8);
		/* fall through */
	case '\'':
		fputs(word + 1, f);
		break;
	case '/':
		gt_zeros(f, (n - at % n) % n);
		break;
	case 'z':
		gt_zeros(f, n);
		break;
	default:
		abort();
	}
}

/* Write a file of those bytes. */
static inline void gt_write(const char *path, const char *text)
{
	char *copy = strdup(text), *word, *rest = copy;
	FILE *f = fopen(path, "w");

	if (!copy || !f)
		abort();
	while ((word = strsep(&rest, " ")))
		if (*word)
			gt_word(f, word);
	if (fclose(f))
		abort();
	free(copy);
}

#endif /* TESTS_UNIT_GGUF_TEXT_H */
