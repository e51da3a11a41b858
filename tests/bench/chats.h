/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chats.h - people who chat with a server, a few at a time
 */
#ifndef TESTS_BENCH_CHATS_H
#define TESTS_BENCH_CHATS_H

#include "tests/bench/bench.h"

/**
 * struct chats_cfg - who chats
 * @port:    of the server, on 127.0.0.1
 * @chats:   conversations that are open
 * @at_once: of these, who wait for an answer; less than @chats
 * @system:  tokens that all of them begin with
 * @most:    a chat that would become longer ends, and a new one begins
 * @vocab:   ids of tokens are below it
 * @seed:    of lengths, tokens and the order of chats
 */
struct chats_cfg {
	u32	port;
	u32	chats;
	u32	at_once;
	u32	system;
	u32	most;
	u32	vocab;
	u64	seed;
};

/**
 * struct chats_take - what a run of them came to
 * @requests: answered
 * @begun:    of which the first token came
 * @tokens:   of the answers
 * @prompt:   tokens that were asked with
 * @fresh:    of these, tokens that this chat had not computed before
 * @ttft:     milliseconds to the first token, of each request
 */
struct chats_take {
	u32	requests;
	u32	begun;
	u64	tokens;
	u64	prompt;
	u64	fresh;
	double	*ttft;
};

struct chats;

struct chats *chats_open(const struct chats_cfg *cfg);
void chats_close(struct chats *c);

/**
 * chats_run() - let all of @list ask @requests times each, and wait for the ends
 * @nr:   of them, 1 or 2
 * @take: gets what each came to
 * @tick: called every @tick_ms
 *
 * A turn is a question, put behind all that was said before in its chat, and an
 * answer of a length that was drawn.  Who has an answer waits for its turn,
 * which is drawn among all that wait.  Ends the benchmark when an answer is no
 * good.
 */
void chats_run(struct chats *const *list, u32 nr, u32 requests,
	       struct chats_take *take, u32 tick_ms, void (*tick)(void *arg),
	       void *arg);
void chats_take_free(struct chats_take *take);

#endif /* TESTS_BENCH_CHATS_H */
