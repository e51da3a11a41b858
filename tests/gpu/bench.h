/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bench.h - helpers of the parts of the GPU benchmark
 *
 * The project's own ops, by the same table that a model uses, on a device that
 * the part also measures by hand.  The part measures its ceilings first, so that
 * every figure is a share of them.  Ops are timed by events in the stream of
 * their context, behind a read of more memory than the L2 holds: that makes
 * caches cold, and lets the host run ahead, so that no launch is waited for.
 */
#ifndef TESTS_GPU_BENCH_H
#define TESTS_GPU_BENCH_H

#include "kernels/cuda/internal.h"
#include "tests/gpu/probe.h"

#define BENCH_REPEATS_MAX	32

/**
 * struct bench - a device and the ops on it
 * @g:     the device, for measurements by hand
 * @ops:   table of the mode
 * @ctx:   their context, which records steps
 * @c:     the same, as its own files see it
 * @mode:  "fast" or "exact", for names of figures
 * @read:  GB/s, the ceiling
 * @flush: memory that is read before each run
 */
struct bench {
	struct gpu		g;
	const struct kern_ops	*ops;
	struct kern_ctx		*ctx;
	struct cuda_ctx		*c;
	const char		*mode;
	double			read;
	CUdeviceptr		flush;
	u64			flush_bytes;
};

/* Open both for @part, and measure the read ceiling. */
void bench_open(struct bench *b, const char *part, const char *mode);

/* Replace the context by one of @mode, on the same device. */
void bench_mode(struct bench *b, const char *mode);

/* Make the part's context current; call it after a context was closed. */
void bench_current(struct bench *b);

/* If an op failed, end the part with the op's message. */
void bench_ok(struct bench *b);

/* Read the flush memory in the stream of the ops. */
void bench_flush(struct bench *b);

/**
 * bench_op_us() - microseconds of an op, cold, without recording
 * @put: puts the op into the stream
 */
void bench_op_us(struct bench *b, void (*put)(void *), void *arg, double *us,
		 u32 nr);

/* Number of repeats: @of, or 2 in a tiny run. */
u32 bench_repeats(u32 of);

/* The folder with the programs of this build: $KVMM_BUILD or "build". */
const char *bench_build(void);

void part_attn(void);
void part_prefill(void);
void part_gemm(void);
void part_step(void);
void part_swap(void);
void part_oversub(void);
void part_two(void);

#endif /* TESTS_GPU_BENCH_H */
