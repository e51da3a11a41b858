/* SPDX-License-Identifier: Apache-2.0 */
/*
 * node.h - a node in simulated time: the core, and engines that use it
 *
 * The core is the real one.  Each engine is a client with its own domain that
 * serves requests by continuous batching.  The shell has the clock: node.c's
 * model of a device gives the time of a step, all else takes no time.  So a run
 * is the same on every machine, and "seconds" in the reports of these benchmarks
 * are of that clock.
 */
#ifndef TESTS_BENCH_NODE_H
#define TESTS_BENCH_NODE_H

#include "kvmm/core/core.h"
#include "tests/bench/beams.h"

#define ND_CLIENTS	4u
#define ND_SEQS		1024u		/* of a client */
#define ND_SECOND	1000000000ull
#define ND_TICK		(ND_SECOND / 200)
/* The model of the device: a step, a sequence in it, a token of prefill. */
#define ND_STEP_NS	8000000ull
#define ND_DECODE_NS	20000ull
#define ND_PREFILL_NS	40000ull
#define ND_CHUNK	2048u		/* tokens of prefill in a step */
/* A copy inside the device, one at a time: 10 GB/s both ways. */
#define ND_COPY_NS_KB	100ull

/* A request of a trace. */
struct nd_req {
	u64	at;		/* when it comes */
	u32	prompt;		/* tokens */
	u32	out;
};

/* lengths.c: lengths with the means that the PagedAttention paper gives. */
enum nd_lengths { ND_SHAREGPT, ND_ALPACA, ND_NR_LENGTHS };
extern const char * const nd_lengths_name[ND_NR_LENGTHS];

/**
 * nd_trace() - @nr requests from a seed
 * @per_second: Poisson arrivals; 0: all are there from the start
 */
struct nd_req *nd_trace(enum nd_lengths lengths, u64 seed, u32 nr,
			double per_second);

/**
 * struct nd_engine_cfg - one client and its requests
 * @block_tokens: of its domain
 * @layers, @heads, @head_bytes: the shape of its KV; K and V alike
 * @nr_groups: layer groups of @layers layers each; 0: one
 * @window:  of each group in tokens; 0: none
 * @limits:  of the device pool; all zero: none
 * @weight:  0: 100
 * @reqs:    in order of arrival
 * @queue:   requests in the engine at once; further requests are turned away if
 *           @drop is set, else come later
 * @admit:   requests in the core at once: a fixed admission limit
 * @samples: sequences of a request, which share its prompt
 * @beams:   searches @samples wide, or NULL.  Requests take turns at them; the
 *           samples of a request become each other as its search says.  There
 *           must be room for all
 * @nr_beams: searches in @beams
 */
struct nd_engine_cfg {
	const char		*name;
	u32			block_tokens;
	u32			layers;
	u32			heads;
	u32			head_bytes;
	u32			nr_groups;
	u32			window[KVMM_MAX_GROUPS];
	struct kvmm_limits	limits;
	u32			weight;
	const struct nd_req	*reqs;
	u32			nr_reqs;
	u32			queue;
	u32			admit;
	u32			samples;
	const struct beam_search *beams;
	u32			nr_beams;
	bool			drop;
};

/* Counts of an engine. */
struct nd_stats {
	u64	tokens;		/* generated, each counted once */
	u64	again;		/* computed again after a preemption */
	u32	finished;
	u32	preempted;
	u64	longest_step;
	u64	longest_wait;	/* of a request for its first token */
	u64	longest_pause;	/* of a sequence that lost its memory */
	u64	longest_min;	/* of a request within memory.min for its memory */
	u32	nr_min;
	u32	min_taken;	/* times that others took memory that memory.min protects */
};

struct nd_seq {
	u64	handle;		/* 0: none */
	u32	req;
	u32	sub;		/* which of the request's samples */
	u32	prompt;
	u32	all;		/* prompt and answer */
	u32	valid;
	u32	most;		/* longest @valid so far */
	u32	epoch;
	u32	to;		/* end in the open step; 0: not in it */
	u32	state;		/* as last seen */
	u64	since;		/* arrived, or lost its memory */
	bool	began;		/* had its first token */
	bool	forked;		/* its samples are there */
	bool	within_min;	/* at its arrival */
	bool	waits;		/* for the other beams to take the step */
};

struct nd_engine {
	struct nd_engine_cfg		cfg;
	struct core_attach_info		info;
	struct kvmm_daemon_ctl		ctl;
	struct kvmm_seq_status		*status;
	struct kvmm_extent_status	*extents;
	struct kvmm_table_page		*tables;
	struct kvmm_event		events[64];
	struct nd_seq			*seqs;
	u32				*queued;	/* ring of requests */
	u32				q_head, q_tail;
	u32				nr_open;	/* requests in the core */
	u32				next_req;
	u64				number, step;
	u64				ends;		/* the open step; 0: none */
	u32				nr_entries;
	u32				entry[ND_SEQS];
	bool				woken;
	u64				refused;	/* when no sequence was granted */
	u32				used_before, marked_before;
	struct nd_stats			st;
};

struct nd_node {
	struct core		*core;
	void			*arena;
	u32			nr_extents;
	u32			*create;
	u32			(*send)[ND_CLIENTS];
	struct nd_engine	*e[ND_CLIENTS];
	u32			nr;
	u64			now, ticked;
	/* After each step's end, before sequences that finished in it are closed. */
	void			(*on_step)(struct nd_node *n, u32 engine);
	/* At each tick. */
	void			(*on_tick)(struct nd_node *n);
	void			*arg;
	u64			*args, *results;
	/* Copies that the core ordered, in order, and when each is over. */
	struct {
		u64	id;
		u64	over;
	} copy[CORE_MAX_MOVES];
	u32			copy_head, nr_copies;
	bool			unsettled;	/* memory was asked for */
};

/**
 * nd_start() - a node of @pool bytes in extents of @extent bytes
 * @cfg: @nr engines, all of one tenant
 */
struct nd_node *nd_start(u64 pool, u64 extent, const struct nd_engine_cfg *cfg,
			 u32 nr);
void nd_run(struct nd_node *n, u64 until);
void nd_stats_reset(struct nd_node *n);
/* Run the walkers, then free all. */
void nd_stop(struct nd_node *n);

#endif /* TESTS_BENCH_NODE_H */
