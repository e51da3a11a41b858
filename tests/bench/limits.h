/* SPDX-License-Identifier: Apache-2.0 */
/*
 * limits.h - limits that kernels are compared with: reading, and multiply-adds
 */
#ifndef TESTS_BENCH_LIMITS_H
#define TESTS_BENCH_LIMITS_H

#include "kernels/kernels.h"

/* Pseudo-random elements in [-1, 1), on huge pages if there are any. */
void *limit_filled(u64 n, enum kern_dtype type);

/*
 * Seconds now: with one thread its CPU time, which other processes of the machine
 * disturb less.
 */
double limit_now(struct kern_ctx *ctx);

/* One pass over an array far larger than the caches, in GB/s. */
double limit_read(struct kern_ctx *ctx);

/* Multiply-adds in registers, as in @ops (bf16 pairs in fast mode), in GFLOP/s. */
double limit_peak(struct kern_ctx *ctx, const struct kern_ops *ops);

#endif /* TESTS_BENCH_LIMITS_H */
