/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chats.h - clients that chat with a server, a few at a time
 */
#ifndef TESTS_BENCH_CHATS_H
#define TESTS_BENCH_CHATS_H

#include "tests/bench/bench.h"

/**
 * struct chats_cfg - the chats of one server
 * @port:    of the server, on 127.0.0.1
 * @chats:   conversations that are open
 * @at_once: chats that wait for an answer; less than @chats
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
 * struct chats_take - figures of a run
 * @requests: answered
 * @begun:    requests of which the first token came
 * @tokens:   of the answers
 * @prompt:   tokens of the prompts
 * @fresh:    prompt tokens that this chat had not computed before
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
 * @nr:   entries of @list, 1 or 2
 * @take: gets the figures of each
 * @tick: called every @tick_ms
 *
 * A turn is a question, put behind all that was said before in its chat, and an
 * answer of a length that was drawn.  A chat that has its answer waits until it
 * is drawn again.  A bad answer ends the benchmark.
 */
void chats_run(struct chats *const *list, u32 nr, u32 requests,
	       struct chats_take *take, u32 tick_ms, void (*tick)(void *arg),
	       void *arg);
void chats_take_free(struct chats_take *take);

#endif /* TESTS_BENCH_CHATS_H */
