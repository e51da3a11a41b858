/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shim_private.h - what the files of the shim share
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
 * @ended: lanes that are through
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

/* The thread that runs waits, until its lane is ready and it is drawn. */
void shim_wait(void);

/* Has any lane of a warp become ready: tell who draws. */
void shim_wake(u32 warp, u32 lanes);

/* The lanes of @g are there: give each what it gets. */
void shim_warp_serve(struct shim_warp_state *w, const struct shim_group *g);

/* Nobody of the block can go on: say who is missing where. */
void shim_stuck(void) __attribute__((noreturn));

/* What runs; the place of the barrier that threads wait at. */
extern const struct shim_launch *shim_launched;
extern struct shim_where shim_barrier_at;

/* Is @addr where the stack of the fiber that runs has ended? */
bool shim_stack_full(u64 addr);

/* A block begins: all that was written is forgotten. */
void shim_watch_block(void);

/* A launch begins: is it allowed?  Who faults from now on is in device code. */
void shim_guard_begin(const struct shim_launch *l);
void shim_guard_end(void);

#endif /* TESTS_STANDIN_SHIM_PRIVATE_H */
