/* SPDX-License-Identifier: Apache-2.0 */
/*
 * soak_load.h - clients of a server that never rest, for it_soak.c
 */
#ifndef TESTS_SOAK_LOAD_H
#define TESTS_SOAK_LOAD_H

#include "tests/integration/serve.h"

/**
 * struct soak_counts - results of the clients
 * @asked:     complete requests that were sent
 * @whole:     of them, those answered completely or by a complete stream
 * @refused:   wrong requests, each answered with 4xx
 * @cancelled: requests that the client left, before the answer or in its middle
 * @streams:   of @whole
 * @compared:  of @whole, those that equalled the first answer
 * @chats:     of @whole
 * @slow:      of @whole, read slowly
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

/* Send all known requests one after the other, and keep their answers. */
void soak_load_learn(struct served *s);
/* Start that many clients. */
void soak_load_start(struct served *s, u32 clients);
/* Add up the counts so far. */
void soak_load_counts(struct soak_counts *sum);
/* Fail the test if a client got a wrong answer. */
void soak_load_judge(void);
/* Let each client finish its action, then judge all of them. */
void soak_load_stop(void);

#endif /* TESTS_SOAK_LOAD_H */
