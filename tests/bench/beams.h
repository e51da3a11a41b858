/* SPDX-License-Identifier: Apache-2.0 */
/*
 * beams.h - recorded beam searches: which beam each beam comes from
 */
#ifndef TESTS_BENCH_BEAMS_H
#define TESTS_BENCH_BEAMS_H

#include <stddef.h>

#include <kvmm/types.h>

#define BEAMS_FILE	"tests/data/beams/beams.txt"
#define BEAMS_SEARCHES	256u
#define BEAMS_WIDTH	8u
#define BEAMS_STEPS	4096u

/**
 * struct beam_search - one search
 * @width:   beams
 * @prompt:  number of the prompt that it began with
 * @length:  tokens of the prompt
 * @nr:      steps, at least one
 * @parents: @nr times @width: for each beam after a step, its slot before the
 *           step
 */
struct beam_search {
	u32	width;
	u32	prompt;
	u32	length;
	u32	nr;
	u8	*parents;
};

struct beams {
	struct beam_search	search[BEAMS_SEARCHES];
	u32			nr;
};

/**
 * beams_parse() - read searches from a text
 * @b:    all zero before; beams_free() after, also on an error
 * @text: as tests/data/beams/make_beams.py describes, zero-terminated
 * @line: the line of the error
 *
 * Return: 0; -EINVAL: not of that form, or a parent out of range; -E2BIG: more
 * than the limits above; -ENODATA: it ends before a search has its steps;
 * -ENOMEM.
 */
int __must_check beams_parse(struct beams *b, const char *text, u32 *line);

/* The same from a file.  Return: also errors of opening and reading. */
int __must_check beams_read(struct beams *b, const char *path, u32 *line);

void beams_free(struct beams *b);

/* Parents of step @step; a search that is over begins again. */
static inline const u8 *beams_step(const struct beam_search *s, u32 step)
{
	return s->parents + (size_t)(step % s->nr) * s->width;
}

/**
 * beams_ancestor() - how far back the nearest common ancestor of all beams is
 * @steps: steps of the search that count, from its beginning
 *
 * Return: the mean over the steps, in tokens: 0 if at each step all beams come
 * from the same one.
 */
double beams_ancestor(const struct beam_search *s, u32 steps);

/* Blocks of the beams, summed over the ends of steps of requests. */
struct beam_blocks {
	u64	mapped;		/* by beams without sharing */
	u64	distinct;	/* with sharing */
};

/**
 * beams_blocks() - blocks of the beams of a request under perfect sharing
 * @prompt: its tokens
 * @from, @to: ends of steps: 0: the prompt is computed, and there is one beam;
 *          else each beam has as many tokens more
 * @size:   tokens of a block; two beams have one in common if it is full of
 *          tokens from before they parted
 * @sum:    gets the blocks added
 */
void beams_blocks(const struct beam_search *s, u32 prompt, u32 from, u32 to,
		  u32 size, struct beam_blocks *sum);

#endif /* TESTS_BENCH_BEAMS_H */
