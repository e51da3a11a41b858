// SPDX-License-Identifier: Apache-2.0
/*
 * v_gemm.c - y = x * W^T (+ bias), rows of x against rows of W
 *
 * Both operands run along K in memory, so weights are used as they are in the
 * checkpoint: mapped, and shared by all processes.
 *
 * The sum of an element runs over K in parts of K_PART elements; each part is
 * VW partial sums and a fold (vec.h), the parts are added in order, the bias
 * last.  So an element's bits do not depend on M.
 *
 * One row (decode) is bound by reading W: VW rows of W at a time, each read once
 * from beginning to end.  With more rows W is cut into panels: N_PANEL rows of W
 * by K_PART stay in the second-level cache while up to M_PANEL rows of x are
 * multiplied by them, four at a time.  An item is a panel: threads share out the
 * outputs, and no sum is split among threads.
 *
 * In fast mode v_gemm_bf16.c computes products with bf16 weights, and
 * v_gemm_packed.c those with packed weights.
 */
#include "kernels/cpu/dot.h"
#include "kernels/cpu/gemm.h"

#define K_PART		1024
#define N_PANEL		64
#define M_PANEL		64

/* Place of a tile: rows of x, rows of w and the part of K. */
struct gemm_at {
	u32	m;
	u32	n;
	u32	k;
	u32	len;
	u32	pass;		/* number of the pass over these rows of W */
	u32	nr_passes;
};

/* Write or, from the second part of K on, add the tile's sums to y. */
static __inline_always void tile_store(const struct gemm_job *j,
				       struct gemm_at at, const u32 mr,
				       const u32 nr, vf sums)
{
	bool last = at.k + at.len == j->k;
	float f[VW], *y, v;
	u32 m, n;

	vf_store(f, sums);
	for (m = 0; m < mr; m++) {
		y = j->y + (at.m + m) * j->y_ld + at.n;
		for (n = 0; n < nr; n++) {
			v = at.k ? y[n] + f[m * nr + n] : f[m * nr + n];
			if (last && j->bias)
				v += j->bias[at.n + n];
			y[n] = v;
		}
	}
}

static __inline_always void tile(const struct gemm_job *j, struct gemm_at at,
				 const u32 mr, const u32 nr, const bool bf16,
				 const bool ahead)
{
	u64 first = (u64)at.n * j->k + at.k;
	const u8 *w = (const u8 *)j->w + first * (bf16 ? 2 : 4);
	vf sums;

	sums = dot_tile(mr, nr, j->x + at.m * j->x_ld + at.k, j->x_ld, w,
			j->k, bf16, at.len,
			ahead ? w + K_PART * (bf16 ? 2 : 4) : NULL);
	tile_store(j, at, mr, nr, sums);
}

/* mr rows of x against the rows of W from at.n to @n_end, one part of K. */
static __inline_always void rows(const struct gemm_job *j, struct gemm_at at,
				 u32 n_end, const u32 mr, const bool bf16)
{
	const u32 nr = VW / mr;
	bool more = mr > 1 && at.k + at.len < j->k;

	for (; at.n + nr <= n_end; at.n += nr) {
		if (more && at.n / nr % at.nr_passes == at.pass)
			tile(j, at, mr, nr, bf16, true);
		else
			tile(j, at, mr, nr, bf16, false);
	}
	for (; at.n < n_end; at.n++)
		tile(j, at, mr, 1, bf16, false);
}

/* A compiled copy of rows() for each tile and type of weight. */
#define GEMM_ROWS(mr, type, bf16)					\
static __attribute__((noinline)) void					\
rows_##mr##_##type(const struct gemm_job *j, struct gemm_at at, u32 n_end) \
{									\
	rows(j, at, n_end, mr, bf16);					\
}

GEMM_ROWS(4, f32, false)
GEMM_ROWS(2, f32, false)
GEMM_ROWS(1, f32, false)
GEMM_ROWS(4, bf16, true)
GEMM_ROWS(2, bf16, true)
GEMM_ROWS(1, bf16, true)

/* Multiply the rows of x of the next tile; returns how many. */
static u32 rows_next(const struct gemm_job *j, struct gemm_at at, u32 n_end,
		     u32 m_left)
{
	if (m_left >= 4) {
		(j->bf16 ? rows_4_bf16 : rows_4_f32)(j, at, n_end);
		return 4;
	}
	if (m_left >= 2) {
		(j->bf16 ? rows_2_bf16 : rows_2_f32)(j, at, n_end);
		return 2;
	}
	(j->bf16 ? rows_1_bf16 : rows_1_f32)(j, at, n_end);
	return 1;
}

/* All of K for one box of the output, [at.m, m_end) by [at.n, n_end). */
static void box(const struct gemm_job *j, struct gemm_at at, u32 m_end,
		u32 n_end)
{
	const u32 m_first = at.m;

	at.nr_passes = DIV_ROUND_UP(m_end - at.m, DOT_ROWS);
	for (at.k = 0; at.k < j->k; at.k += K_PART) {
		at.len = min(j->k - at.k, (u32)K_PART);
		at.m = m_first;
		for (at.pass = 0; at.m < m_end; at.pass++)
			at.m += rows_next(j, at, n_end, m_end - at.m);
	}
}

static void panel(void *arg, u32 i)
{
	const struct gemm_job *j = arg;
	struct gemm_at at = {
		.m = i / j->n_items * M_PANEL,
		.n = i % j->n_items * N_PANEL,
	};
	u32 m_end = min(j->m, at.m + M_PANEL);
	u32 n_end = min(j->n, at.n + N_PANEL);
	u32 step = m_end - at.m > DOT_ROWS ? N_PANEL : VW;

	for (; at.n < n_end; at.n += step)
		box(j, at, m_end, min(n_end, at.n + step));
}

void KERN_FN(gemm)(struct kern_ctx *ctx, const float *x, u64 x_ld,
		   const struct kern_weight *w, const float *bias, u32 m,
		   float *y, u64 y_ld)
{
	struct gemm_job j = {
		.x = x,
		.x_ld = x_ld ? x_ld : w->cols,
		.w = w->data,
		.n = w->rows,
		.k = w->cols,
		.bias = bias,
		.m = m,
		.y = y,
		.y_ld = y_ld ? y_ld : w->rows,
		.bf16 = w->dtype == KERN_BF16,
		.n_step = N_PANEL,
		.n_items = DIV_ROUND_UP(w->rows, N_PANEL),
	};

	if ((u64)m * j.n * j.k < KERN_PARALLEL_MIN)
		ctx = NULL;
#ifdef KERN_FAST
	if (j.bf16) {
		if (w->packed)
			KERN_FN(gemm_packed)(ctx, &j);
		else
			KERN_FN(gemm_bf16)(ctx, &j);
		return;
	}
#endif
	kern_parallel(ctx, j.n_items * DIV_ROUND_UP(m, M_PANEL), panel, &j);
}
