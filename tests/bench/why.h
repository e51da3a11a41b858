/* SPDX-License-Identifier: Apache-2.0 */
/*
 * why.h - two models on one machine, with one pool or with a half each
 */
#ifndef TESTS_BENCH_WHY_H
#define TESTS_BENCH_WHY_H

#include "tests/bench/bench.h"
#include "tests/bench/chats.h"
#include "tests/bench/kvrt.h"

#define WHY_MODELS	2u

/**
 * struct why_model - a model and its chats
 * @name:  of its domain
 * @dir:   its folder
 * @args:  more options of kvrt, NULL-terminated
 * @token_bytes: of KV
 * @chats: its load; the port is filled in
 */
struct why_model {
	const char		*name;
	char			dir[512];
	const char		*args[12];
	u32			token_bytes;
	struct chats_cfg	chats;
};

/**
 * struct why_arm - one way to have two models on one machine
 * @name:  for people
 * @split: a daemon and a half of the pool for each; else one for both
 * @pool:  bytes, of all daemons together
 * @whole: swapd and kvmm-proc run too
 */
struct why_arm {
	const char		*name;
	bool			split;
	u64			pool;
	bool			whole;
	const struct why_model	*model;
	struct bench_daemon	hold[WHY_MODELS];
	struct bench_kvrt	rt[WHY_MODELS];
	struct chats		*chats[WHY_MODELS];
};

/* The daemon of a model. */
static inline struct bench_daemon *why_hold(struct why_arm *a, u32 model)
{
	return &a->hold[a->split ? model : 0];
}

void why_start(struct why_arm *a);
void why_stop(struct why_arm *a);

/**
 * struct why_sum - figures of one arm over some time
 * @wall, @cpu, @cpu_mm: seconds; of all CPUs; the daemons' part of it
 * @again:   tokens computed that had been computed before
 * @found:   tokens of @prompt found in the prefix cache
 * @swapped: bytes copied between the pool and the host pool, or areas
 * @empty:   seconds times the part of the pool that held no KV
 * @unused:  the same for KV of models that were busy in that time
 */
struct why_sum {
	double	wall, cpu, cpu_mm;
	double	requests, tokens, prompt, found, again, swapped;
	double	empty, unused;
	double	*ttft;
	u32	nr_ttft;
};

/* Ask each model of @busy, a mask, @requests times; add the figures to @s. */
void why_load(struct why_arm *a, u32 busy, u32 requests, struct why_sum *s);
void why_sum_add(struct why_sum *s, const struct why_sum *more);
void why_sum_free(struct why_sum *s);

/* CPU seconds a second of each program of the first daemon, while all models are idle. */
#define WHY_IDLE_MAX	8u
struct why_idle {
	u32	nr;
	char	name[WHY_IDLE_MAX][32];
	double	share[WHY_IDLE_MAX];
};
void why_idle(struct why_arm *a, u32 seconds, struct why_idle *idle);

#endif /* TESTS_BENCH_WHY_H */
