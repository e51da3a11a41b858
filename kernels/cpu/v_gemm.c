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
 * multiplied by them, four at a time.  Threads share out the panels (v_gemm_parts.c), and
 * no sum is split among threads.
 *
 * W in blocks (quant.h) becomes numbers in a buffer, a part of a panel at a time.
 *
 * In fast mode v_gemm_bf16.c computes products with bf16 weights, and
 * v_gemm_packed.c those with packed weights; v_gemm_ints.c those with packed blocks.
 */
#include "kernels/cpu/dot.h"
#include "kernels/cpu/gemm.h"

#define K_PART		1024
#define N_PANEL		64
#define M_PANEL		64

/*
 * Place of a tile: rows of x, rows of w and the part of K.  Row @w_row of W has its
 * elements from @k on at @w, in f32, bf16 or f16; the others are @w_ld elements apart.
 */
struct gemm_at {
	u32		m;
	u32		n;
	u32		k;
	u32		len;
	u32		pass;		/* number of the pass over these rows of W */
	u32		nr_passes;
	const u8	*w;
	u32		w_row;
	u64		w_ld;
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
				 const u32 mr, const u32 nr,
				 const enum kern_dtype type, const bool ahead)
{
	const u32 elem = type == KERN_F32 ? 4 : 2;
	const u8 *w = at.w + (at.n - at.w_row) * at.w_ld * elem;
	vf sums;

	sums = dot_tile(mr, nr, j->x + at.m * j->x_ld + at.k, j->x_ld, w,
			at.w_ld, type, at.len, ahead ? w + K_PART * elem : NULL);
	tile_store(j, at, mr, nr, sums);
}

/* mr rows of x against the rows of W from at.n to @n_end, one part of K. */
static __inline_always void rows(const struct gemm_job *j, struct gemm_at at,
				 u32 n_end, const u32 mr,
				 const enum kern_dtype type)
{
	const u32 nr = VW / mr;
	bool more = mr > 1 && at.k + at.len < j->k && at.w_ld == j->k;

	for (; at.n + nr <= n_end; at.n += nr) {
		if (more && at.n / nr % at.nr_passes == at.pass)
			tile(j, at, mr, nr, type, true);
		else
			tile(j, at, mr, nr, type, false);
	}
	for (; at.n < n_end; at.n++)
		tile(j, at, mr, 1, type, false);
}

/* A compiled copy of rows() for each tile and type of weight. */
#define GEMM_ROWS(mr, type)						\
static __attribute__((noinline)) void					\
rows_##mr##_##type(const struct gemm_job *j, struct gemm_at at, u32 n_end) \
{									\
	rows(j, at, n_end, mr, type);					\
}

#define GEMM_TYPE(type)							\
GEMM_ROWS(4, type)							\
GEMM_ROWS(2, type)							\
GEMM_ROWS(1, type)

GEMM_TYPE(KERN_F32)
GEMM_TYPE(KERN_BF16)
GEMM_TYPE(KERN_F16)

typedef void rows_fn(const struct gemm_job *j, struct gemm_at at, u32 n_end);

/* By type, and by rows of x: 1, 2, 4. */
static rows_fn * const rows_of[][3] = {
#define x(type)	[type] = { rows_1_##type, rows_2_##type, rows_4_##type }
	x(KERN_F32), x(KERN_BF16), x(KERN_F16),
#undef x
};

/* Multiply the rows of x of the next tile; returns how many. */
static u32 rows_next(const struct gemm_job *j, struct gemm_at at, u32 n_end,
		     u32 m_left)
{
	const u32 size = m_left >= 4 ? 2 : m_left >= 2 ? 1 : 0;
	const enum kern_dtype type = kern_is_blocks(j->type) ? KERN_F32 :
							       j->type;

	rows_of[type][size](j, at, n_end);
	return 1u << size;
}

/* One part of K for one box of the output. */
static void box_part(const struct gemm_job *j, struct gemm_at at, u32 m_end,
		     u32 n_end)
{
	for (at.pass = 0; at.m < m_end; at.pass++)
		at.m += rows_next(j, at, n_end, m_end - at.m);
}

/* All of K for one box of the output, [at.m, m_end) by [at.n, n_end). */
static void box(const struct gemm_job *j, struct gemm_at at, u32 m_end,
		u32 n_end)
{
	at.nr_passes = DIV_ROUND_UP(m_end - at.m, DOT_ROWS);
	at.w_ld = j->k;
	for (at.k = 0; at.k < j->k; at.k += K_PART) {
		at.len = min(j->k - at.k, (u32)K_PART);
		at.w = (const u8 *)j->w + at.k * kern_dtype_size(j->type);
		box_part(j, at, m_end, n_end);
	}
}

/*
 * The same with W in blocks: each part of its rows becomes numbers first.  So the sums
 * are those of the same matrix in f32, to the bit.
 */
static __attribute__((noinline)) void box_blocks(const struct gemm_job *j,
						 struct gemm_at at, u32 m_end,
						 u32 n_end)
{
	const u64 row = kern_row_bytes(j->type, j->k);
	float numbers[N_PANEL * K_PART] __attribute__((aligned(64)));
	const u8 *from;
	u32 n;

	at.nr_passes = DIV_ROUND_UP(m_end - at.m, DOT_ROWS);
	at.w = (const u8 *)numbers;
	at.w_row = at.n;
	at.w_ld = K_PART;
	for (at.k = 0; at.k < j->k; at.k += K_PART) {
		at.len = min(j->k - at.k, (u32)K_PART);
		from = (const u8 *)j->w + kern_row_bytes(j->type, at.k);
		for (n = at.n; n < n_end; n++)
			KERN_FN(dequant)(j->type, from + n * row, at.len,
					 numbers + (n - at.n) * K_PART);
		box_part(j, at, m_end, n_end);
	}
}

static void plain_mul(const struct gemm_job *j, const struct gemm_box *b)
{
	struct gemm_at at = { .m = b->m, .n = b->p * N_PANEL };
	const u32 m_end = b->m + b->nr, n_end = min(j->n, b->p_end * N_PANEL);
	const u32 step = b->nr > DOT_ROWS ? N_PANEL : VW;

	for (; at.n < n_end; at.n += step)
		(kern_is_blocks(j->type) ? box_blocks : box)(j, at, m_end,
						min(n_end, at.n + step));
}

const struct gemm_kind KERN_FN(kind_plain) = {
	.w_rows = N_PANEL, .m_rows = M_PANEL, .step_min = 1, .step_max = 1,
	.mul = plain_mul,
};

/* Room for rows of x without threads. */
#define ALONE_FLOATS	KERN_MAX_ORDER

/* The same with rows of x in the order of the columns of W. */
static __attribute__((noinline)) void gemm_ordered(struct kern_ctx *ctx,
						   struct gemm_job j,
						   const struct kern_weight *w)
{
	float alone[ALONE_FLOATS], *sorted = ctx ? kern_ctx_room(ctx) : alone;
	const u64 floats = ctx ? KERN_ROOM / sizeof(float) : ALONE_FLOATS;
	const u32 fit = floats / j.k, m = j.m;
	struct kern_weight plain = *w;
	u32 i, r, k;

	plain.order = NULL;
	/* The second half of the room is for packed products. */
	for (i = 0; i < m; i += j.m) {
		j.m = min(m - i, fit);
		for (r = 0; r < j.m; r++)
			for (k = 0; k < j.k; k++)
				sorted[(u64)r * j.k + k] =
					j.x[(i + r) * j.x_ld + w->order[k]];
		KERN_FN(gemm)(ctx, sorted, 0, &plain, j.bias, j.m,
			      j.y + i * j.y_ld, j.y_ld);
	}
}

void KERN_FN(gemm)(struct kern_ctx *ctx, const float *x, u64 x_ld,
		   const struct kern_weight *w, const float *bias, u32 m,
		   float *y, u64 y_ld)
{
	struct gemm_job j = gemm_job_of(&(struct kern_gemm_part){
		.x = x, .x_ld = x_ld, .w = w, .bias = bias, .m = m, .y = y,
		.y_ld = y_ld,
	});

	if (w->order) {
		gemm_ordered(ctx, j, w);
		return;
	}
	if (KERN_FN(gemm_jobs)(ctx, &j, 1))
		return;
#ifdef KERN_FAST
	KERN_FN(gemm_bf16)((u64)m * j.n * j.k < KERN_PARALLEL_MIN ? NULL : ctx, &j);
#endif
}
