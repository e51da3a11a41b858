/* SPDX-License-Identifier: Apache-2.0 */
/*
 * planted.h - kernels for the tests of the stand-in itself
 *
 * x(name, most bytes of dynamic shared memory), as in kernels/cuda/list.h.
 * Most of them are right with fault 0, and wrong in one way with each other one.
 */
#ifndef TESTS_STANDIN_PLANTED_H
#define TESTS_STANDIN_PLANTED_H

#include "kernels/cuda/args.h"

#define PLANTED_KERNELS(x)						\
	x(p_barrier, 0)							\
	x(p_behind, 0)							\
	x(p_warp_sync, 0)						\
	x(p_index, 0)							\
	x(p_dynamic, 1024)						\
	x(p_poison, 0)							\
	x(p_mask, 0)							\
	x(p_diverge, 0)							\
	x(p_async, 0)							\
	x(p_align, 0)							\
	x(p_global, 0)							\
	x(p_atomic, 0)							\
	x(p_block, 0)							\
	x(p_warp, 0)							\
	x(p_mma, 0)							\
	x(p_grid, 0)							\
	x(p_big, 200 << 10)						\
	x(p_local, 0)							\
	x(p_speed, 0)

/* Blocks of 64 threads, unless a test says otherwise. */
#define PLANTED_THREADS	64u

struct planted_args {
	u32		fault;
	u32		n;
	const u32	*in;
	u32		*out;
	float		*f;
};

#endif /* TESTS_STANDIN_PLANTED_H */
