/* SPDX-License-Identifier: Apache-2.0 */
/*
 * pressure_load.h - many requests of every kind, drawn from their number
 *
 * The engine runs in the test's process against the rig's daemon, so the test
 * sees every token and may end any request between two of them.  A request
 * depends on its number alone.  Each run decides whether requests are cut
 * short: cancelled, in whole or one sample of it, or ended by a deadline.
 */
#ifndef TESTS_PRESSURE_LOAD_H
#define TESTS_PRESSURE_LOAD_H

#include "runtime/engine/engine.h"
#include "tests/integration/harness.h"

#define LOAD_PROMPT	128u	/* of the longest prompt */
#define LOAD_NEW	72u
#define LOAD_N		4u
#define LOAD_OPEN	96u	/* requests in the engine at once */
#define LOAD_SEQS	64u
#define LOAD_BATCH	48u
#define LOAD_BLOCK	16u	/* tokens */
#define LOAD_PRIORITIES	3u

/* Requests of a hundred that search with four beams; their tokens come at their end. */
#define LOAD_BEAMS	10

/* One sample of an answer. */
struct load_sample {
	u32			ids[LOAD_NEW];
	u32			nr;
	u32			dones;
	enum engine_reason	reason;
};

/**
 * struct load_req - one request and its results
 * @cancel_at:  tokens of sample 0 after which it is cancelled, 0: never
 * @cancel_one: only this sample is; LOAD_N: all of them
 * @sent, @first: times in ms; @first: first token of any sample, 0: none
 * @ended:      requests that ended between @sent and its first token
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
 * struct load_run - one run of all requests
 * @greedy: no sampling, also for requests that ask for it
 * @cut:    end some of them early
 * @open:   [@nr_open] those in the engine
 * @want:   most blocks that requests needed at once: the working set
 * @longest_ms, @longest_ended: the longest wait, by priority
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

/* Run all requests against the daemon; each must end. */
void load_play(struct load_run *run, struct rig *r, struct model *model);
void load_free(struct load_run *run);

#endif /* TESTS_PRESSURE_LOAD_H */
