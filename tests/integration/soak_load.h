/* SPDX-License-Identifier: Apache-2.0 */
/*
 * soak_load.h - clients of a server that never rest, for it_soak.c
 */
#ifndef TESTS_SOAK_LOAD_H
#define TESTS_SOAK_LOAD_H

#include "tests/integration/serve.h"

/**
 * struct soak_counts - what the clients did
 * @asked:     requests that were sent, whole
 * @whole:     of these, answered as a whole or by a stream to its end
 * @refused:   those that were no good, each answered with 4xx
 * @cancelled: those that the client left, before the answer or in its middle
 * @streams:   of @whole
 * @compared:  of @whole, those that were the same as the first time
 * @chats:     of @whole
 * @slow:      of @whole, read in sips
 * @opened:    connections
 * @longest:   ms until an answer began, at most
 */
struct soak_counts {
	u64	asked;
	u64	whole;
	u64	refused;
	u64	cancelled;
	u64	streams;
	u64	compared;
	u64	chats;
	u64	slow;
	u64	opened;
	u64	longest;
};

/* Ask, one after the other, what is compared later. */
void soak_load_learn(struct served *s);
/* So many clients ask from now on. */
void soak_load_start(struct served *s, u32 clients);
/* What they did so far. */
void soak_load_counts(struct soak_counts *sum);
/* Fails the test when a client was answered otherwise than it must be. */
void soak_load_judge(void);
/* Each ends what it is at, then all of it is judged. */
void soak_load_stop(void);

#endif /* TESTS_SOAK_LOAD_H */
