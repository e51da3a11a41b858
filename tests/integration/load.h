/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load.h - two runtimes of one model at work on one daemon
 *
 * 24 prompts with one sample, 8 with four, half of them with a long prefix in
 * common; greedy, exact mode, so that what comes out depends on nothing but
 * the prompts.  Where the pool is on a GPU (harness.h) it is a smaller one: a
 * CPU that stands in for a GPU is slow.
 */
#ifndef TESTS_LOAD_H
#define TESTS_LOAD_H

#include "tests/integration/harness.h"

#define LOAD_SINGLE	24	/* prompts with one sample */
#define LOAD_FORKED	8	/* prompts with four */
/* Where a CPU stands in for the GPU; what a pool of 2M does not hold, too. */
#define LOAD_SINGLE_GPU	4
#define LOAD_FORKED_GPU	1
#define LOAD_TOKENS_GPU	"24"

/* What came out. */
struct load_text {
	struct samples	single;
	struct samples	forked;
};

/* What is running. */
struct load {
	struct rig	*rig;
	struct job	single;
	struct job	forked;
};

/* Start both; @tokens each (on a GPU few), KV of @dtype. */
void load_start(struct load *l, struct rig *r, const char *tokens,
		const char *dtype);
/* Both have ended? */
bool load_ended(struct load *l);
/* Both must end with 0; takes what they printed. */
void load_finish(struct load *l, struct load_text *text);
/* load_finish(), and what they printed must be @want. */
void load_judge(struct load *l, const struct load_text *want);

void load_text_free(struct load_text *text);

#endif /* TESTS_LOAD_H */
