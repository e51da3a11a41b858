/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kern_bench.h - helpers of the benchmarks of the CPU kernels
 *
 * The kernels and threads under measurement, the two limits that figures are
 * compared with (limits.h), and pools of KV.
 */
#ifndef KERN_BENCH_H
#define KERN_BENCH_H

#include <stdio.h>

#include "kernels/kernels.h"
#include "tests/bench/limits.h"

extern struct kern_bench {
	const struct kern_ops	*ops;
	struct kern_ctx		*ctx;
	FILE			*figures;	/* $KVMM_BENCH_OUT, or NULL */
} kb;

/* Kernels and threads as kern_get() and kern_ctx_create() take them; 0 or -1. */
int kb_open(const char *name, u32 threads);
void kb_close(void);

/* The limits (limits.h), with these kernels and threads. */
static inline double kb_now(void)
{
	return limit_now(kb.ctx);
}

static inline double kb_read(void)
{
	return limit_read(kb.ctx);
}

static inline double kb_peak(void)
{
	return limit_peak(kb.ctx, kb.ops);
}

struct attn_bench {
	struct kern_kv		kv;
	struct kern_attn	a;
	struct kern_attn_seq	seqs[64];
	u32			*table;
	u64			kv_bytes;
};

/*
 * Attention of @nr sequences, the last @rows positions of @len each.  Blocks of 16
 * tokens, block-major; those of a sequence are scattered over the pool.
 */
void attn_bench_setup(struct attn_bench *b, u32 nr, u32 rows, u32 len,
		      u32 heads, u32 kv_heads, u32 hd,
		       enum kern_dtype type);
void attn_bench_free(struct attn_bench *b);

#endif /* KERN_BENCH_H */
