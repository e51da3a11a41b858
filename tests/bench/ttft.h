/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ttft.h - a kvrt serve, and prompts that are sent down the tiers
 *
 * The model has made-up weights of 116 M parameters.  A prompt is sent down by a low
 * memory.max of its domain and a short request.
 */
#ifndef TESTS_BENCH_TTFT_H
#define TESTS_BENCH_TTFT_H

#include <kvmm/swapd.h>

#include "tests/bench/keep_http.h"
#include "tests/bench/kvrt.h"

#define TTFT_TOKENS	16u		/* of a block */
#define TTFT_LAYERS	16u
#define TTFT_HEADS	12u
#define TTFT_HEAD_BYTES	128u		/* 64 numbers in bf16 */
#define TTFT_BLOCK	((u64)TTFT_TOKENS * TTFT_LAYERS * TTFT_HEADS * TTFT_HEAD_BYTES * 2)
#define TTFT_LEFT	4u		/* blocks of a prompt that was sent down, on the device */

struct ttft_node {
	struct bench_daemon	hold;
	struct bench_kvrt	server;
};

/*
 * Start a daemon with an area of 2 GiB, and kvrt.  @pool: blocks of the device pool;
 * @host: slots of the host pool.
 */
void ttft_start(struct ttft_node *n, u32 pool, u32 host);
void ttft_stop(struct ttft_node *n);

/* Ask for one token after the first @nr ids of @prompt. */
void ttft_ask(const struct ttft_node *n, u32 prompt, u32 nr, struct keep_answer *a);

/* Send all that is on the device down; each call needs another @round. */
void ttft_send_down(const struct ttft_node *n, u32 round);

/* A figure of the daemon's file vmstat. */
u64 ttft_counter(const struct ttft_node *n, const char *key);

#endif /* TESTS_BENCH_TTFT_H */
