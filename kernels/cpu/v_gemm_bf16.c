// SPDX-License-Identifier: Apache-2.0
/*
 * v_gemm_bf16.c - products with bf16 weights in fast mode
 *
 * Rows of x are rounded to bf16, and one instruction multiplies 32 pairs and
 * adds them to 16 partial sums in f32: twice the rate of multiply-adds, and
 * no widening of weights.  Weights are used in place, as in v_gemm.c.
 *
 * An item is a box of the output: up to M_PANEL rows of x by some rows of W.
 * For each part of K_PART elements of K it rounds its rows of x into a panel on
 * its own stack, and passes over the rows of W once: four rows of W, which stay
 * in the first-level cache, against all rows of the panel, which stay in the
 * second-level one.  Meanwhile it prefetches the next four, so that reading and
 * multiplying overlap for every M.  With few rows of x the panel holds all of K,
 * and W is read in the order of memory.
 *
 * The sum of an element runs over K in parts, in order; in a part lane i takes
 * the pairs 2i, 2i + 1 modulo 32, then comes the tree of vec.h; a remainder is
 * padded with zeros; the bias comes last.  That order is the same for every
 * tile, so an element's bits do not depend on M.  (The instruction treats
 * subnormal numbers as zero, which is far below the tolerance.)
 */
#include "kernels/cpu/gemm.h"

#ifdef KERN_FAST

#define K_PART		1024
#define M_PANEL		192
/* bf16 elements in a register, and so in a step of the inner loop. */
#define STEP		32
/* Elements from a row of the panel to the next: rows do not share cache sets. */
#define PANEL_LD	(K_PART + STEP)
/* Most rows of x in a tile, and of W if x has several tiles. */
#define TILE_M		6
#define TILE_N		4
/* Most elements of x in a panel with all of K, for the first-level cache. */
#define WHOLE_MAX	8192
/* With more rows of x than this, rows of W are copied. */
#define COPY_ROWS	24
/* Items for each thread; limits for the columns of y of an item. */
#define ITEMS		16
#define N_STEP_MIN	64ull
#define N_STEP_MAX	1024ull

/* The buffers of an item, on its stack: 410 kB. */
struct panel {
	u16	x[M_PANEL * PANEL_LD] __attribute__((aligned(64)));
	u16	w[TILE_N * PANEL_LD] __attribute__((aligned(64)));
};

/* A box of the output, and the distance of its panel's rows. */
struct box {
	u32	m;
	u32	nr;		/* rows */
	u32	n;
	u32	n_end;
	u64	ld;
};

/* Place of a tile: rows of the panel and of y, rows of W, the part of K. */
struct tile_at {
	u32		m;		/* of y */
	u32		n;
	u32		k;
	u32		len;
	const u16	*x;		/* the tile's first row of the panel */
	u64		x_ld;
	const u16	*w;		/* the tile's rows of W, or a copy */
	u64		w_ld;
	const u16	*ahead[2];	/* rows of W that are needed next */
};

static __inline_always __m512i load_w(const u16 *w, u32 left)
{
	if (left >= STEP)
		return _mm512_loadu_si512(w);
	return _mm512_maskz_loadu_epi16((1u << left) - 1, w);
}

/* One step of STEP elements for a whole tile. */
static __inline_always void tile_step(const u32 mr, const u32 nr, __m512 *acc,
				      const u16 *x, u64 x_ld, const u16 *w,
				      u64 w_ld, u32 left)
{
	__m512i xv[TILE_M], wv;
	u32 m, n;

#pragma GCC unroll 6
	for (m = 0; m < mr; m++)
		xv[m] = _mm512_load_si512(x + m * x_ld);
#pragma GCC unroll 16
	for (n = 0; n < nr; n++) {
		wv = load_w(w + n * w_ld, left);
#pragma GCC unroll 6
		for (m = 0; m < mr; m++)
			acc[m * nr + n] = _mm512_dpbf16_ps(acc[m * nr + n],
							   (__m512bh)xv[m],
							   (__m512bh)wv);
	}
}

/* The lane sums of @nr registers, @nr a power of two up to VW, in order. */
static __inline_always vf sums_of(const __m512 *acc, const u32 nr)
{
	vf t[VW];
	u32 i, n = nr;

#pragma GCC unroll 16
	for (i = 0; i < nr; i++)
		t[i] = (vf)acc[i];
#define FOLD_HALF(l)							\
	do {								\
		_Pragma("GCC unroll 8")					\
		for (i = 0; i < DIV_ROUND_UP(n, 2); i++)		\
			t[i] = vf_fold(t[2 * i], t[n > 1 ? 2 * i + 1 : 0], l); \
		n = DIV_ROUND_UP(n, 2);					\
	} while (0)
	FOLD_HALF(16);
	FOLD_HALF(8);
	FOLD_HALF(4);
	FOLD_HALF(2);
#undef FOLD_HALF
	return t[0];
}

/* Write or, from the second part of K on, add a row of sums to y. */
static __inline_always void row_store(const struct gemm_job *j,
				      const struct tile_at *at, u32 m,
				      const u32 nr, const float *sums)
{
	float *y = j->y + (at->m + m) * j->y_ld + at->n;
	const float *bias = at->k + at->len == j->k ? j->bias : NULL;
	float v;
	u32 n;

#pragma GCC unroll 16
	for (n = 0; n < nr; n++) {
		v = at->k ? y[n] + sums[n] : sums[n];
		y[n] = bias ? v + bias[at->n + n] : v;
	}
}

/* All sums of a tile, to y. */
static __inline_always void tile_store(const struct gemm_job *j,
				       const struct tile_at *at, const u32 mr,
				       const u32 nr, const __m512 *acc)
{
	float f[32];
	u32 i, m;

#pragma GCC unroll 2
	for (i = 0; i + 16 <= mr * nr; i += 16)
		vf_store(f + i, sums_of(acc + i, 16));
	if (mr * nr - i >= 8) {
		vf_store(f + i, sums_of(acc + i, 8));
		i += 8;
	}
	if (mr * nr - i >= 4) {
		vf_store(f + i, sums_of(acc + i, 4));
		i += 4;
	}
#pragma GCC unroll 4
	for (; i < mr * nr; i++)
		f[i] = sums_of(acc + i, 1)[0];
#pragma GCC unroll 6
	for (m = 0; m < mr; m++)
		row_store(j, at, m, nr, f + m * nr);
}

/* @own: prefetch as many rows of W as are used; else the two in at->ahead. */
static __inline_always void tile(const struct gemm_job *j,
				 const struct tile_at *at, const u32 mr,
				 const u32 nr, const bool own)
{
	const u16 *x = at->x;
	const u16 *w = at->w;
	const u16 *a = at->ahead[0], *b = at->ahead[1];
	__m512 acc[32] = { };
	u32 i, n;

	for (i = 0; i + STEP <= at->len; i += STEP) {
		if (own && mr > 1) {
#pragma GCC unroll 16
			for (n = 0; n < nr; n++)
				_mm_prefetch(a + n * (u64)j->k + i,
					     _MM_HINT_T0);
		} else {
			_mm_prefetch(a + i, _MM_HINT_T0);
			_mm_prefetch(b + i, _MM_HINT_T0);
		}
		tile_step(mr, nr, acc, x + i, at->x_ld, w + i, at->w_ld, STEP);
	}
	if (i < at->len)
		tile_step(mr, nr, acc, x + i, at->x_ld, w + i, at->w_ld, at->len - i);
	tile_store(j, at, mr, nr, acc);
}

/* A compiled copy for each tile. */
#define TILE(mr, nr, own)						\
static __attribute__((noinline)) void					\
tile_##mr##_##nr##_##own(const struct gemm_job *j,			\
			 const struct tile_at *at)			\
{									\
	tile(j, at, mr, nr, own);					\
}

/* All rows of x in one tile: as many rows of W as the registers allow. */
TILE(1, 16, 1) TILE(2, 8, 1) TILE(3, 8, 1) TILE(4, 4, 1) TILE(5, 4, 1)
TILE(6, 4, 1)
/* One of several tiles of x. */
TILE(1, 4, 0) TILE(2, 4, 0) TILE(3, 4, 0) TILE(4, 4, 0) TILE(5, 4, 0)
TILE(6, 4, 0)
/* For the last rows of W, one at a time. */
TILE(1, 1, 0) TILE(2, 1, 0) TILE(3, 1, 0) TILE(4, 1, 0) TILE(5, 1, 0)
TILE(6, 1, 0)

typedef void tile_fn(const struct gemm_job *j, const struct tile_at *at);

static const struct {
	u32	nr;
	tile_fn	*fn;
} tiles_whole[TILE_M + 1] = {
	{ 0, NULL }, { 16, tile_1_16_1 }, { 8, tile_2_8_1 },
	{ 8, tile_3_8_1 }, { 4, tile_4_4_1 }, { 4, tile_5_4_1 },
	{ 4, tile_6_4_1 },
};
static tile_fn * const tiles_part[TILE_M + 1] = {
	NULL, tile_1_4_0, tile_2_4_0, tile_3_4_0, tile_4_4_0, tile_5_4_0,
	tile_6_4_0,
};
static tile_fn * const tiles_one[TILE_M + 1] = {
	NULL, tile_1_1_0, tile_2_1_0, tile_3_1_0, tile_4_1_0, tile_5_1_0,
	tile_6_1_0,
};

/* @len elements of K of @m rows of x as bf16, zeros up to whole steps. */
static void panel_fill(const struct gemm_job *j, const struct box *b, u32 k,
		       u32 len, u16 *panel)
{
	const float *x;
	__mmask16 mask;
	u32 r, i;

	for (r = 0; r < b->nr; r++) {
		x = j->x + (b->m + r) * j->x_ld + k;
		for (i = 0; i < ALIGN_UP(len, STEP); i += VW) {
			mask = i + VW <= len ? 0xffff :
			       i < len ? (1u << (len - i)) - 1 : 0;
			_mm256_store_si256((__m256i *)(panel + r * b->ld + i),
				(__m256i)_mm512_cvtneps_pbh(
					_mm512_maskz_loadu_ps(mask, x + i)));
		}
	}
}

/* All rows of the panel against @nr rows of W at @w, a part of K. */
static void panel_mul(const struct gemm_job *j, const struct box *b,
		      struct tile_at at, const u16 *x, u32 nr,
		      const u16 *ahead)
{
	const u32 nr_tiles = DIV_ROUND_UP(b->nr, TILE_M);
	u32 t, mr, row, share = DIV_ROUND_UP(nr, nr_tiles);

	at.x_ld = b->ld;
	for (t = 0, row = 0; t < nr_tiles; t++, row += mr) {
		/* Tiles of about equal size. */
		mr = (b->nr - row) / (nr_tiles - t);
		at.m = b->m + row;
		at.x = x + row * b->ld;
		at.ahead[0] = ahead + min(t * share, nr - 1) * (u64)j->k;
		at.ahead[1] = share > 1 ? at.ahead[0] + j->k : at.ahead[0];
		if (nr == 1)
			tiles_one[mr](j, &at);
		else if (nr_tiles > 1)
			tiles_part[mr](j, &at);
		else
			tiles_whole[mr].fn(j, &at);
	}
}

static u32 rows_of_w(const struct box *b, u32 n)
{
	u32 nr = b->nr > TILE_M ? TILE_N : tiles_whole[b->nr].nr;

	return n + nr > b->n_end ? 1 : nr;
}

/* The next @nr rows of W, from @n on, part @k; the last ones if W ends before. */
static const u16 *next_of_w(const struct gemm_job *j, u32 n, u32 nr, u32 k)
{
	if (n + nr > j->n) {
		n = j->n - nr;
		k = 0;
	}
	return (const u16 *)j->w + n * (u64)j->k + k;
}

/* Few rows of x: all of K in the panel, W is read in the order of memory. */
static void box_whole(const struct gemm_job *j, const struct box *b,
		      struct panel *p)
{
	struct tile_at at = { .n = b->n, .w_ld = j->k };
	u32 nr;

	panel_fill(j, b, 0, j->k, p->x);
	for (; at.n < b->n_end; at.n += nr) {
		nr = rows_of_w(b, at.n);
		for (at.k = 0; at.k < j->k; at.k += K_PART) {
			at.len = min(j->k - at.k, (u32)K_PART);
			at.w = (const u16 *)j->w + at.n * (u64)j->k + at.k;
			panel_mul(j, b, at, p->x + at.k, nr,
				  at.k + 2 * K_PART <= j->k ? at.w + K_PART :
				  next_of_w(j, at.n + nr, nr, 0));
		}
	}
}

/*
 * Rows of W that are a power of two apart share few sets of the cache.  If many
 * tiles use them, a copy is worth its cost.
 */
static const u16 *w_copy(const struct gemm_job *j, const struct tile_at *at,
			 u32 nr, u16 *to)
{
	u32 i;

	for (i = 0; i < nr; i++)
		memcpy(to + i * PANEL_LD, at->w + i * (u64)j->k,
		       at->len * sizeof(*to));
	return to;
}

/* More rows: a part of K at a time, so that x stays in the caches. */
static void box_parts(const struct gemm_job *j, const struct box *b,
		      struct panel *p)
{
	bool copy = b->nr > COPY_ROWS;
	struct tile_at at = { .w_ld = copy ? PANEL_LD : j->k };
	u32 nr;

	for (; at.k < j->k; at.k += K_PART) {
		at.len = min(j->k - at.k, (u32)K_PART);
		panel_fill(j, b, at.k, at.len, p->x);
		for (at.n = b->n; at.n < b->n_end; at.n += nr) {
			nr = rows_of_w(b, at.n);
			at.w = (const u16 *)j->w + at.n * (u64)j->k + at.k;
			if (copy)
				at.w = w_copy(j, &at, nr, p->w);
			panel_mul(j, b, at, p->x, nr,
				  next_of_w(j, at.n + nr, nr, at.k));
		}
	}
}

static void gemm_item(void *arg, u32 i)
{
	const struct gemm_job *j = arg;
	struct box b = {
		.m = i / j->n_items * M_PANEL,
		.n = i % j->n_items * j->n_step,
		.ld = PANEL_LD,
	};
	struct panel panel;

	b.nr = min(j->m - b.m, (u32)M_PANEL);
	b.n_end = min(j->n, b.n + j->n_step);
	if (b.nr <= TILE_M && (u64)b.nr * j->k <= WHOLE_MAX) {
		b.ld = ALIGN_UP(j->k, STEP) + STEP;
		box_whole(j, &b, &panel);
	} else {
		box_parts(j, &b, &panel);
	}
}

void KERN_FN(gemm_bf16)(struct kern_ctx *ctx, struct gemm_job *j)
{
	u32 m_items = DIV_ROUND_UP(j->m, M_PANEL);
	u32 items = ITEMS * (ctx ? kern_ctx_nr_threads(ctx) : 1);
	u64 step = (u64)j->n * m_items / items;

	j->n_step = min(ALIGN_UP(max(step, 1ull), N_STEP_MIN), N_STEP_MAX);
	j->n_items = DIV_ROUND_UP(j->n, j->n_step);
	kern_parallel(ctx, j->n_items * m_items, gemm_item, j);
}

#endif /* KERN_FAST */
