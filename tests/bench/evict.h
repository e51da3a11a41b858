/* SPDX-License-Identifier: Apache-2.0 */
/*
 * evict.h - traces of prompts over a tree of blocks, and caches that run them
 *
 * A trace is a tree of blocks and a list of requests.  A request names the
 * block at the end of its prompt and the one at the end of its answer; the
 * prompt is the path from the root.  A cache finds the longest prefix of the
 * prompt's blocks that it holds, takes in the rest and the answer, and must
 * hold all of the path meanwhile.
 */
#ifndef TESTS_BENCH_EVICT_H
#define TESTS_BENCH_EVICT_H

#include <stdio.h>

#include <kvmm/types.h>

#include "kvmm/core/stat.h"

#define EV_NONE		0xffffffffu
#define EV_TOKENS	16u		/* of a block */
#define EV_PATH_MAX	4096u		/* blocks of a request */

struct ev_req {
	u32	prompt;		/* last block of the prompt */
	u32	end;		/* last block of the answer */
	bool	high;		/* of a chat of high priority */
	u64	at;		/* time, in ns; 0: the trace has no times */
};

struct ev_trace {
	u32		*parent;
	u32		*depth;		/* blocks of the path to the block */
	u32		nr_blocks;
	u32		max_blocks;
	struct ev_req	*reqs;
	u32		nr_reqs;
	u32		max_reqs;
	u32		longest;	/* path */
};

/**
 * struct ev_shape - parameters of a trace
 * @exponent: of Zipf's law
 * @scans:    percent of requests that come once
 * @drift:    percent of requests that move a prompt to another rank
 */
struct ev_shape {
	double	exponent;
	u32	scans;
	u32	drift;
};

/* evict_trace.c: deterministic in @shape and @seed. */
void ev_trace_chats(struct ev_trace *t, const struct ev_shape *shape, u64 seed);
void ev_trace_zipf(struct ev_trace *t, const struct ev_shape *shape, u64 seed);
void ev_trace_free(struct ev_trace *t);

/*
 * evict_load.c: read a trace from a file of tests/data/traces.
 * Return: 0; or the line with the first fault.
 */
u32 ev_trace_read(struct ev_trace *t, FILE *f);
void ev_trace_load(struct ev_trace *t, const char *path);

/* Building of a trace: room for requests, new blocks after a block, a request. */
void ev_trace_init(struct ev_trace *t, u32 nr_reqs);
u32 ev_trace_grow(struct ev_trace *t, u32 at, u32 nr);
void ev_trace_ask(struct ev_trace *t, u32 prompt, u32 end, bool high);

/* Blocks that the prompts have, all requests together. */
u64 ev_asked(const struct ev_trace *t);

/* The blocks of the path to @end, from the root on.  Return: how many. */
u32 ev_path(const struct ev_trace *t, u32 end, u32 *path);

/* Blocks that are used twice or oftener. */
u32 ev_working_set(const struct ev_trace *t);

/* Blocks of prompts that were used before. */
u64 ev_findable(const struct ev_trace *t);

/* The same of the requests of high chats. */
u64 ev_findable_high(const struct ev_trace *t);

/*
 * Each function runs a trace with a cache of @cap blocks.  Return: blocks of
 * prompts that it found.
 *
 * evict_peers.c: these caches evict leaves first.
 */
u64 ev_run_lru(const struct ev_trace *t, u32 cap);
u64 ev_run_lfu(const struct ev_trace *t, u32 cap);
u64 ev_run_arc(const struct ev_trace *t, u32 cap);
u64 ev_run_belady(const struct ev_trace *t, u32 cap);

/* evict_core.c: kvmm's core with a pool of @cap blocks. */
u64 ev_run_core(const struct ev_trace *t, u32 cap);

/* The same with high chats of priority @high; their hits are counted apart. */
void ev_run_core_high(const struct ev_trace *t, u32 cap, u32 high, u64 *found,
		      u64 *found_high);

/**
 * struct ev_records - the records of a model with recurrent layers
 * @every:  tokens between two records that are kept as cache
 * @tokens: tokens whose KV has as many bytes as a record
 */
struct ev_records {
	u32	every;
	u32	tokens;
};

/* The same for a model with records. */
u64 ev_run_records(const struct ev_trace *t, u32 cap, const struct ev_records *rec);

/* ---- the core with lower tiers ---- */

enum ev_tier { EV_DEVICE, EV_HOST, EV_AREA, EV_NR_TIERS };

/**
 * struct ev_replay - a replay of a trace by the core
 * @blocks: size of each tier, in blocks
 * @found:  blocks of prompts that each tier had
 * @counts: events of the core, by CORE_EV_*
 */
struct ev_replay {
	u32	blocks[EV_NR_TIERS];
	u64	found[EV_NR_TIERS];
	u64	counts[NR_CORE_EVENTS];
};

/*
 * Copies and I/O are answered at once, and the time is that of the trace.  The
 * sizes in @r are rounded down to whole extents.
 */
void ev_run_tiers(const struct ev_trace *t, struct ev_replay *r);

#endif /* TESTS_BENCH_EVICT_H */
