/* SPDX-License-Identifier: Apache-2.0 */
/*
 * step_actor.h - a client that derives every byte from its tokens
 */
#ifndef TESTS_STEP_ACTOR_H
#define TESTS_STEP_ACTOR_H

#include <libkvmm.h>

#include "tests/integration/step_client.h"

#define ACTOR_TOKENS	16u	/* of a block */
#define ACTOR_LAYERS	2u
#define ACTOR_SHARED	32u	/* first ids, the same for all salts */
#define ACTOR_PROMPT	56u

/* Its sequences: two prompts of the same ids, and forks of the first. */
enum { A, B, C, D, ACTOR_SEQS };

/**
 * struct actor - one attached client
 * @step: number of the last step
 * @salt: determines its ids
 * @len:  valid tokens of each sequence
 */
struct actor {
	struct step_page	*p;
	const char		*socket;
	struct kvmm		*k;
	u64			step;
	u32			salt;
	u64			seq[ACTOR_SEQS];
	u32			len[ACTOR_SEQS];
};

/* Note the reason.  Return: false. */
bool __printf(2, 3) actor_wrong(struct actor *a, const char *fmt, ...);
/* Was the answer 0? */
bool actor_good(struct actor *a, const char *what, int err);

/* The ids of positions @from to @from + @nr - 1. */
void actor_ids(u32 *ids, u32 salt, u32 from, u32 nr);
/* Write the bytes of positions @from to @to - 1; check those of the first @to. */
bool actor_write(struct actor *a, u32 s, u32 from, u32 to);
bool actor_check(struct actor *a, u32 s, u32 to);

/* One request of one entry that libkvmm has no call for.  Return: its status. */
int actor_ask(struct actor *a, u16 op, const void *arg, u32 bytes);
int actor_advise(struct actor *a, u32 s, u32 advice, u32 retain, u64 value);

/* Wait until the sequence is READY; its cached tokens are in a->len. */
bool actor_ready(struct actor *a, u32 s);
/*
 * Begin a step of sequences @first to @last, each @ahead of its length; 0
 * tokens: the rest of its prompt.
 */
bool actor_begin(struct actor *a, u32 first, u32 last, u32 ahead, u32 tokens);
/* End step @step: each sequence grew by @tokens. */
bool actor_end(struct actor *a, u64 step, u32 first, u32 last, u32 tokens);

#endif /* TESTS_STEP_ACTOR_H */
