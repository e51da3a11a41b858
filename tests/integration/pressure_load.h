/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pressure_load.h - many requests of every kind, drawn from their number
 *
 * The engine runs in the test's process against the rig's daemon, so the test
 * sees every token and may end anything between two of them.  What a request
 * asks for depends on its number alone; whether it is cut short (cancelled, in
 * whole or one sample of it, or by a deadline) is said for each run.
 */
#ifndef TESTS_PRESSURE_LOAD_H
#define TESTS_PRESSURE_LOAD_H

#include "runtime/engine/engine.h"
#include "tests/integration/harness.h"

#define LOAD_PROMPT	128u	/* longest */
#define LOAD_NEW	72u
#define LOAD_N		4u
#define LOAD_OPEN	96u	/* requests in the engine at once */
#define LOAD_SEQS	64u
#define LOAD_BATCH	48u
#define LOAD_BLOCK	16u	/* tokens */
#define LOAD_PRIORITIES	3u

/*
 * Of a hundred requests, how many search with four beams; their tokens come
 * when they are over.
 */
#define LOAD_BEAMS	10

/* One sample, as it came. */
struct load_sample {
	u32			ids[LOAD_NEW];
	u32			nr;
	u32			dones;
	enum engine_reason	reason;
};

/**
 * struct load_req - one request and what came of it
 * @cancel_at:  tokens of sample 0 after which it is cancelled, 0: never
 * @cancel_one: only this sample is; LOAD_N: all of them
 * @sent, @first: when, in ms; @first of any sample, 0: none came
 * @ended:      requests that had ended before its first token, since @sent
 */
struct load_req {
	struct load_run		*run;
	u32			ids[LOAD_PROMPT];
	struct engine_request	c;
	u64			id;
	u32			cancel_at;
	u32			cancel_one;
	u64			sent;
	u64			first;
	u32			ended;
	u32			nr_over;
	struct load_sample	s[LOAD_N];
};

/**
 * struct load_run - one run of all of them
 * @greedy: no sampling, also where a request would
 * @cut:    end some of them early
 * @open:   [@nr_open] those in the engine
 * @want:   most blocks that were wanted at once: the working set
 * @longest_ms, @longest_ended: of all waits, by priority
 * @stats:  of the engine
 */
struct load_run {
	struct load_req		*r;
	u32			nr;
	bool			greedy;
	bool			cut;
	struct engine		*engine;
	u32			nr_sent;
	u32			nr_over;
	struct load_req		*open[LOAD_OPEN];
	u32			nr_open;
	u32			want;
	u64			ms;
	u64			longest_ms[LOAD_PRIORITIES];
	u32			longest_ended[LOAD_PRIORITIES];
	struct engine_stats	stats;
};

/* Run all of them against the daemon; each must end. */
void load_play(struct load_run *run, struct rig *r, struct model *model);
void load_free(struct load_run *run);

#endif /* TESTS_PRESSURE_LOAD_H */
