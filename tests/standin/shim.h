/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shim.h - device code on a CPU: threads, barriers, warps
 *
 * Included by kernels/cuda/cu.h if that is compiled as C++.  A launch runs block
 * after block.  Each thread of a block is a fiber, which runs until it waits for
 * others; the next thread is drawn by lot ($KVMM_SHIM_SEED).  No two threads run
 * at the same time, so a race on a GPU is not one here.  It is found by the
 * accesses of each thread and the barriers between them (shim_shared.h), in any
 * order of threads.
 *
 * A defect of device code is reported in one line on standard error, and ends the
 * process by abort().  Functions take the line of their caller as a default
 * argument, so no macros are needed.
 *
 * Stricter than CUDA: every thread of a block must reach every barrier, by the
 * same line of the source, even if it has no work; a mask names lanes that all
 * get there, and never one that ended.
 */
#ifndef TESTS_STANDIN_SHIM_H
#define TESTS_STANDIN_SHIM_H

#include "kernels/cuda/args.h"

/* CUDA's are functions, and so are those that <math.h> brings. */
#undef min
#undef max
#include <math.h>

#define DEVICE		static inline __attribute__((unused))
#define DEVICE_TABLE	static const __attribute__((unused))
#define SHIM_COLD	__attribute__((cold, noinline))
#define SHIM_LIKELY(x)	__builtin_expect(!!(x), 1)

#define SHIM_MAX_THREADS	1024u
/* Shared memory of a block by default, and at most. */
#define SHIM_SMEM_PLAIN		(48u << 10)
#define SHIM_SMEM_MAX		(227u << 10)

/* A place in the source. */
struct shim_where {
	const char *file;
	u32 line;
};

#define SHIM_HERE							\
	const char *file = __builtin_FILE(), u32 line = __builtin_LINE()

struct shim_dim3 {
	u32 x, y, z;
};

extern "C" {
/**
 * struct shim_kernel - one kernel, as its file registers it
 * @arg_bytes: of its structure
 * @call: run one thread
 * @gran: log2 of the smallest element of its dynamic shared memory
 * @static_bytes: of shared memory with a size, as far as it was used
 */
struct shim_kernel {
	const char *name;
	u32 max_threads;
	u32 arg_bytes;
	void (*call)(const void *args);
	u32 gran;
	u32 static_bytes;
	struct shim_kernel *next;
};

/**
 * struct shim_now - the running thread and the clock
 * @me: the thread; @warp: its warp
 * @clock: counts barriers, of blocks and of warps
 * @epoch: @clock at the last barrier of the block
 * @born: @clock when the block began
 * @warp_sync: @clock at the last __syncwarp() of each warp
 */
struct shim_now {
	u32 me;
	u32 warp;
	u32 clock;
	u32 epoch;
	u32 born;
	u32 warp_sync[SHIM_MAX_THREADS / 32];
	struct shim_kernel *kernel;
};

extern struct shim_now shim_now;
extern struct shim_dim3 shim_thread, shim_block, shim_grid, shim_dim;

bool shim_register(struct shim_kernel *k);

/* Report a defect of the running thread in one line; abort(). */
void shim_die(struct shim_where at, const char *fmt, ...)
	__attribute__((noreturn, cold)) __printf(2, 3);

/* The barrier of the block.  Return: number of threads that came with @pred. */
u32 shim_barrier(u32 pred, struct shim_where at);

enum shim_kind {
	SHIM_SYNC,
	SHIM_SHFL,
	SHIM_BALLOT,
	SHIM_MMA_BF16,
	SHIM_MMA_F16,
	SHIM_MAT,
	SHIM_MAT_TRANS,
};

/* Values that a lane gives to the others of its warp. */
struct shim_give {
	u64 value;
	u32 from;		/* lane to take the value of */
	const void *a, *b;
	void *d;
};

/* Wait until all lanes of @mask are here with the same @kind and line; the result. */
u64 shim_warp(enum shim_kind kind, u32 mask, const struct shim_give *g,
	      struct shim_where at);
}

#define threadIdx	(*(const struct shim_dim3 *)&shim_thread)
#define blockIdx	(*(const struct shim_dim3 *)&shim_block)
#define blockDim	(*(const struct shim_dim3 *)&shim_dim)
#define gridDim		(*(const struct shim_dim3 *)&shim_grid)

/* ---- kernels ---- */

/*
 * The one argument of a kernel.  Its type is not known where the kernel is
 * registered: it converts to the parameter's type, and the size of that type says
 * how many bytes a launch must keep.
 */
template <typename Tag, typename T>
struct shim_size {
	static const bool known;
};

template <typename Tag, typename T>
const bool shim_size<Tag, T>::known =
	(Tag::kernel.arg_bytes = (u32)sizeof(T), true);

template <typename Tag>
struct shim_arg {
	const void *p;

	template <typename T>
	operator T() const
	{
		static_assert(sizeof(T) <= 4096, "arguments of 4 KiB at most");
		static_assert(__is_trivially_copyable(T), "a plain structure");
		(void)&shim_size<Tag, T>::known;
		return *(const T *)p;
	}
};

/* The call finds @name through the type of its argument, of this namespace. */
#define KERNEL(name, threads)						\
	struct shim_is_##name {						\
		static struct shim_kernel kernel;			\
	};								\
	template <typename Arg>						\
	static void shim_call_##name(const void *p)			\
	{								\
		name(Arg{p});						\
	}								\
	struct shim_kernel shim_is_##name::kernel = {			\
		#name, (threads), 0,					\
		shim_call_##name<shim_arg<shim_is_##name> >,		\
		4, 0, NULL };						\
	static const bool shim_has_##name __attribute__((unused)) =	\
		shim_register(&shim_is_##name::kernel);			\
	static void name

/* ---- barriers ---- */

DEVICE void __syncthreads(SHIM_HERE)
{
	shim_barrier(0, shim_where{file, line});
}

DEVICE int __syncthreads_count(int pred, SHIM_HERE)
{
	return (int)shim_barrier(pred != 0, shim_where{file, line});
}

DEVICE int __syncthreads_or(int pred, SHIM_HERE)
{
	return shim_barrier(pred != 0, shim_where{file, line}) != 0;
}

DEVICE int __syncthreads_and(int pred, SHIM_HERE)
{
	return shim_barrier(pred == 0, shim_where{file, line}) == 0;
}

DEVICE void __syncwarp(u32 mask = 0xffffffffu, SHIM_HERE)
{
	const struct shim_give g = {};

	shim_warp(SHIM_SYNC, mask, &g, shim_where{file, line});
}

/* ---- warps ---- */

template <typename T>
DEVICE T shim_shfl(u32 mask, T v, u32 from, struct shim_where at)
{
	struct shim_give g = {};
	u64 got;

	static_assert(sizeof(T) == 4 || sizeof(T) == 8, "4 or 8 bytes");
	memcpy(&g.value, &v, sizeof(v));
	g.from = from;
	got = shim_warp(SHIM_SHFL, mask, &g, at);
	memcpy(&v, &got, sizeof(v));
	return v;
}

/* First lane of the caller's part of the warp, of @width lanes. */
DEVICE u32 shim_part(u32 width)
{
	return shim_thread.x % 32 & ~(width - 1);
}

template <typename T>
DEVICE T __shfl_sync(u32 mask, T v, int from, int width = 32, SHIM_HERE)
{
	return shim_shfl(mask, v, shim_part(width) + (from & (width - 1)),
			 shim_where{file, line});
}

template <typename T>
DEVICE T __shfl_xor_sync(u32 mask, T v, int x, int width = 32, SHIM_HERE)
{
	const u32 lane = shim_thread.x % 32, from = lane ^ (u32)x;
	const bool in = from < shim_part(width) + (u32)width;

	return shim_shfl(mask, v, in ? from : lane, shim_where{file, line});
}

template <typename T>
DEVICE T __shfl_up_sync(u32 mask, T v, u32 by, int width = 32, SHIM_HERE)
{
	const u32 lane = shim_thread.x % 32;
	const bool in = lane >= shim_part(width) + by;

	return shim_shfl(mask, v, in ? lane - by : lane,
			 shim_where{file, line});
}

template <typename T>
DEVICE T __shfl_down_sync(u32 mask, T v, u32 by, int width = 32, SHIM_HERE)
{
	const u32 lane = shim_thread.x % 32;
	const bool in = lane + by < shim_part(width) + (u32)width;

	return shim_shfl(mask, v, in ? lane + by : lane,
			 shim_where{file, line});
}

DEVICE u32 __ballot_sync(u32 mask, int pred, SHIM_HERE)
{
	struct shim_give g = {};

	g.value = pred != 0;
	return (u32)shim_warp(SHIM_BALLOT, mask, &g, shim_where{file, line});
}

DEVICE int __any_sync(u32 mask, int pred, SHIM_HERE)
{
	return __ballot_sync(mask, pred, file, line) != 0;
}

DEVICE int __all_sync(u32 mask, int pred, SHIM_HERE)
{
	return __ballot_sync(mask, pred, file, line) == mask;
}

#include "tests/standin/shim_shared.h"
#include "tests/standin/shim_math.h"

#endif /* TESTS_STANDIN_SHIM_H */
