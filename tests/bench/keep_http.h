/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keep_http.h - prompts of kvrt serve, for the benchmarks of kept prefixes
 *
 * A prompt is a list of token ids that comes from a seed, so prompts of different
 * seeds have no block in common.
 */
#ifndef TESTS_BENCH_KEEP_HTTP_H
#define TESTS_BENCH_KEEP_HTTP_H

#include "tests/bench/keep.h"
#include "tests/bench/kvrt.h"

#define KEEP_HTTP_IDS	4096u		/* longest prompt */

/**
 * struct keep_ask - a request
 * @port:   of kvrt, on 127.0.0.1
 * @model:  its name
 * @seed:   of the ids
 * @nr:     ids
 * @answer: tokens; the answer ends with no other token
 */
struct keep_ask {
	u32		port;
	const char	*model;
	u64		seed;
	u32		nr;
	u32		answer;
};

/**
 * struct keep_answer - an answer of kvrt
 * @ns:     from the request to the whole answer
 * @first:  from the request to the first token; only of keep_stream()
 * @cached: tokens of the prompt that were not computed
 * @text:   a hash of the text
 */
struct keep_answer {
	u64	ns;
	u64	first;
	u32	cached;
	u64	text;
};

/* Ask and wait.  A status other than 200 ends the benchmark. */
void keep_ask(const struct keep_ask *q, struct keep_answer *a);

/* The same with a stream of events. */
void keep_stream(const struct keep_ask *q, struct keep_answer *a);

/* ---- keep_pair.c ---- */

#define KEEP_MODELS	2u

extern const char * const keep_model[KEEP_MODELS];

/**
 * struct keep_pair - a daemon and two kvrt, each with its own domain
 * @tiers: it has lower tiers
 */
struct keep_pair {
	struct bench_daemon	d;
	struct bench_kvrt	kvrt[KEEP_MODELS];
	bool			tiers;
};

/* @t: in blocks of 32 KiB; not @tiers: the device pool alone.  AREA_DIR has the area. */
void keep_pair_start(struct keep_pair *n, const struct keep_tiers *t, bool tiers);
void keep_pair_stop(struct keep_pair *n);

/* Blocks of a tier whose size is this key of meminfo; slots fill whole spans. */
u32 keep_pair_slots(const struct keep_pair *n, const char *key);

#endif /* TESTS_BENCH_KEEP_HTTP_H */
