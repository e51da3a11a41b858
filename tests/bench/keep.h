/* SPDX-License-Identifier: Apache-2.0 */
/*
 * keep.h - prompts that are stored and looked up again, and the ideal cache
 *
 * A prompt has KEEP_BLOCKS whole blocks and one token more, because the last
 * token of a prompt is never taken from the cache.  A block has KEEP_BYTES: with
 * the header of a slot it is 32 KiB, so slots fill the extents of the lower tiers
 * without a rest, and 16 blocks fill 7 extents of the device pool.
 */
#ifndef TESTS_BENCH_KEEP_H
#define TESTS_BENCH_KEEP_H

#include "tests/bench/bench.h"

#define KEEP_BLOCKS	12u		/* of a prompt */
#define KEEP_TOKENS	16u		/* of a block */
#define KEEP_IDS	(KEEP_BLOCKS * KEEP_TOKENS + 1)
#define KEEP_TOKEN	1792u		/* bytes */
#define KEEP_BYTES	(KEEP_TOKENS * KEEP_TOKEN)

/* A well mixed value of @x: ids, content and draws come from it. */
static inline u64 keep_mix(u64 x)
{
	x += 0x9e3779b97f4a7c15ull;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

/**
 * struct keep_tiers - sizes of the tiers, in blocks
 * @dev:  of the device pool; a multiple of 16
 * @host: slots of the host pool
 * @area: slots of the swap area
 */
struct keep_tiers {
	u32	dev;
	u32	host;
	u32	area;
};

/**
 * struct keep_node - a daemon and its client
 * @has:     sizes of the tiers, as the daemon reports them
 * @seed:    of all ids
 * @ns:      device time that the client reports for a computed token, in ns
 * @doing:   the last request, for messages
 * @redone:  lookups done again, because the daemon had died in the middle
 * @killed:  times that kvmm was killed, or is about to be
 */
struct keep_node {
	struct bench_daemon	d;
	struct kvmm		*k;
	struct keep_tiers	has;
	u64			seed;
	double			ns;
	u64			step;
	const char		*doing;
	u32			redone;
	u32			killed;
};

/* Start a daemon with tiers of these sizes, and attach to it. */
void keep_start(struct keep_node *n, const struct keep_tiers *want, u64 seed,
		double ns);
void keep_stop(struct keep_node *n);

/* Switch on memory.writethrough.  Return: false: the daemon does not have it. */
bool keep_writethrough(struct keep_node *n);

/**
 * keep_serve() - open a prompt, check what is found, compute the rest, close it
 *
 * A word of a found block that is not as it was written ends the benchmark.
 * Return: blocks found.
 */
u32 keep_serve(struct keep_node *n, u32 prompt);

/* Text of the daemon's vmstat; free it with free(). */
char *keep_vmstat(struct keep_node *n);

/* Kill kvmm in @us microseconds or a little later; kvmm-hold starts it again. */
void keep_kill(struct keep_node *n, u32 us);
/* Wait until the next kvmm has resumed this client, and then for a short time. */
void keep_await_resumed(struct keep_node *n);

/* ---- keep_lru.c ---- */

/**
 * struct keep_lru - the ideal cache: one tier, nothing lost
 * @cap:  blocks
 * @used: of these
 * @nr:   prompts
 * @prompt: of each, the cached blocks, and when they were used
 */
struct keep_lru {
	u32	cap;
	u32	used;
	u32	clock;
	u32	nr;
	struct {
		u32	blocks;
		u32	used_at;
	} prompt[];
};

/* Free it with free(). */
struct keep_lru *keep_lru_new(u32 cap, u32 nr);

/**
 * keep_lru_serve() - look a prompt up, and store it
 * @blocks: all that it has
 * @more:   blocks that it needs only while it runs
 *
 * Return: blocks found.
 */
u32 keep_lru_serve(struct keep_lru *l, u32 prompt, u32 blocks, u32 more);

/* The next number of [0, 1). */
double keep_uniform(u64 *rng);

/* Draw @nr of @prompts by Zipf's law; the popular ones are spread over the order. */
void keep_draw_zipf(u32 *order, u32 nr, u32 prompts, u64 seed);

#endif /* TESTS_BENCH_KEEP_H */
