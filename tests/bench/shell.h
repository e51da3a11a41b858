/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shell.h - the smallest shell around a core, for benchmarks of its requests
 *
 * No daemon, no ring, no other thread: a core in an arena, one client with segments
 * in ordinary memory, and the very functions that the mm thread calls.  Memory that
 * the core asks for is there at once, and acknowledged.  Only the records of the
 * blocks exist.
 */
#ifndef TESTS_BENCH_SHELL_H
#define TESTS_BENCH_SHELL_H

#include "kvmm/core/node/node.h"

#define SHELL_BT	16u		/* tokens of a block, if the layout says no other */
#define SHELL_SEQS	1024u
#define SHELL_EVENTS	4096u
#define SHELL_CHUNK	8192u		/* tokens of prefill in a step */

/**
 * struct shell - a core and its one client
 * @args, @results: of the next request
 * @salt: added to the ids of computed tokens, so that they are other tokens
 * @dom: domain of the client
 */
struct shell {
	struct core			*core;
	void				*arena;
	struct kvmm_daemon_ctl		ctl;
	struct kvmm_seq_status		statuses[SHELL_SEQS];
	struct kvmm_event		events[SHELL_EVENTS];
	struct kvmm_extent_status	*extents;
	struct kvmm_table_page		*tables;
	u64				*args, *results;
	u32				*made, *sent;
	u32				nr_made, nr_sent;
	u64				now, number, step;
	u32				salt;
	u32				dom;
};

/**
 * shell_start() - a core with a pool, and its client
 * @pool, @extent: bytes
 * @nr_groups: layer groups of the client's domain
 * @group: their shapes
 * @step_tokens: the most tokens of a sequence that a step writes
 *
 * An error ends the benchmark.
 */
struct shell *shell_start(u64 pool, u64 extent, u32 nr_groups,
			  const struct kvmm_group *group, u32 step_tokens);

/* Run the walkers over the core, then free all. */
void shell_stop(struct shell *sh);

/* Execute a request on @sh->args, of @len bytes.  Return: 0 or a negative errno. */
int shell_request(struct shell *sh, u16 op, u32 nr, u32 len);

/* The same; an error ends the benchmark. */
void shell_must(struct shell *sh, u16 op, u32 nr, u32 len, const char *what);

/* Make extents and acknowledge them, until the core asks for no more. */
void shell_settle(struct shell *sh);

/**
 * shell_open() - open and match a sequence of @prompt tokens, and room for @more
 * @seed: its tokens; other seeds have other tokens
 *
 * Return: its handle; it is READY or waits.
 */
u64 shell_open(struct shell *sh, u32 prompt, u32 more, u32 seed);

/* The same; a sequence that waits ends the benchmark.  No token is computed. */
u64 shell_ready(struct shell *sh, u32 prompt, u32 more, u32 seed);

/* A step of @tokens tokens from @start for each sequence. */
void shell_begin(struct shell *sh, const u64 *seqs, u32 nr, u32 start, u32 tokens);

/*
 * The same, and begin it again if it was refused until memory is mapped that the core
 * just asked for.  Return: whether all sequences were granted; if not, no step is open.
 */
bool shell_begin_mapped(struct shell *sh, const u64 *seqs, u32 nr, u32 start,
			u32 tokens);
void shell_end(struct shell *sh, const u64 *seqs, u32 nr, u32 start, u32 tokens);

/* Compute tokens from @from to before @to, in steps of @chunk. */
void shell_compute(struct shell *sh, u64 seq, u32 from, u32 to, u32 chunk);

void shell_close(struct shell *sh, const u64 *seqs, u32 nr);

#endif /* TESTS_BENCH_SHELL_H */
