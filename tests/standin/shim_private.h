/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shim_private.h - declarations that the files of the shim share
 */
#ifndef TESTS_STANDIN_SHIM_PRIVATE_H
#define TESTS_STANDIN_SHIM_PRIVATE_H

#include "tests/standin/shim.h"
#include "tests/standin/standin.h"

/* Lanes of a warp that wait for each other. */
struct shim_group {
	enum shim_kind kind;
	u32 mask;
	u32 arrived;
	struct shim_where at;
};

/**
 * struct shim_warp_state - one warp of the block that runs
 * @all:   its lanes
 * @ready: lanes that could go on now
 * @ended: lanes that have ended
 * @at_barrier: lanes that wait at the barrier of the block
 */
struct shim_warp_state {
	u32 all;
	u32 ready;
	u32 ended;
	u32 at_barrier;
	u32 nr_groups;
	struct shim_group group[32];
	struct shim_give give[32];
	u64 got[32];
};

extern struct shim_warp_state shim_warps[SHIM_MAX_THREADS / 32];
extern u64 shim_lot;

/* The running thread waits, until its lane is ready and drawn. */
void shim_wait(void);

/* Make @lanes of a warp ready to be drawn. */
void shim_wake(u32 warp, u32 lanes);

/* All lanes of @g have come: give each its result. */
void shim_warp_serve(struct shim_warp_state *w, const struct shim_group *g);

/* No thread of the block can go on: report which ones are missing, and where. */
void shim_stuck(void) __attribute__((noreturn));

/* The running launch; the line of the barrier at which threads wait. */
extern const struct shim_launch *shim_launched;
extern struct shim_where shim_barrier_at;

/* Is @addr just past the stack of the running fiber? */
bool shim_stack_full(u64 addr);

/* A block begins: forget all writes. */
void shim_watch_block(void);

/* A launch begins: is it allowed?  From now on faults are those of device code. */
void shim_guard_begin(const struct shim_launch *l);
void shim_guard_end(void);

#endif /* TESTS_STANDIN_SHIM_PRIVATE_H */
