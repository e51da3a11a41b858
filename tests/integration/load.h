/* SPDX-License-Identifier: Apache-2.0 */
/*
 * load.h - two runtimes of one model at work on one daemon
 *
 * 24 prompts with one sample, 8 with four, half of them with a long prefix in
 * common; greedy, exact mode, so that the text depends on the prompts alone.
 * The load on a GPU (harness.h) is smaller: a CPU that stands in for a GPU is
 * slow.
 */
#ifndef TESTS_LOAD_H
#define TESTS_LOAD_H

#include "tests/integration/harness.h"

#define LOAD_SINGLE	24	/* prompts with one sample */
#define LOAD_FORKED	8	/* prompts with four */
/* Few, for a CPU that stands in for the GPU, yet more than a pool of 2M holds. */
#define LOAD_SINGLE_GPU	4
#define LOAD_FORKED_GPU	1
#define LOAD_TOKENS_GPU	"24"

/* Output of both runtimes. */
struct load_text {
	struct samples	single;
	struct samples	forked;
};

/* Two running runtimes. */
struct load {
	struct rig	*rig;
	struct job	single;
	struct job	forked;
};

/* Start both; @tokens each (on a GPU few), KV of @dtype. */
void load_start(struct load *l, struct rig *r, const char *tokens,
		const char *dtype);
/* Have both ended? */
bool load_ended(struct load *l);
/* Both must exit with 0; reads their output. */
void load_finish(struct load *l, struct load_text *text);
/* load_finish(), and the output must equal @want. */
void load_judge(struct load *l, const struct load_text *want);

void load_text_free(struct load_text *text);

#endif /* TESTS_LOAD_H */
