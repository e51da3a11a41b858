// SPDX-License-Identifier: Apache-2.0
/*
 * v_gemm_packed.c - products with packed bf16 weights in fast mode
 *
 * As in v_gemm_bf16.c, rows of x are rounded to bf16, and pairs are multiplied
 * and added up in f32.  But a register holds a pair of columns of 16 rows of W
 * (packed.h), which is multiplied by one pair of x in all lanes.  So a sum stays
 * in its lane, and W is read in the order of memory.
 *
 * An item is a box of the output: up to M_PANEL rows of x by some panels of
 * W.  If x fits, all of K is rounded once, and a panel of W is used from
 * beginning to end; otherwise K is cut into parts of K_PART.  A part of a panel
 * of W stays in the second-level cache while tiles of up to TILE_M rows of x
 * are multiplied by it.  The first of these tiles prefetches AHEAD elements
 * ahead.
 *
 * The sum of an element runs over K in parts of K_PART, in order; in a part
 * over pairs, in order; the bias comes last.  This order is the same in every
 * tile, so an element's bits do not depend on M.  They differ from the bits of
 * v_gemm_bf16.c.
 */
#include "kernels/cpu/gemm.h"

#ifdef KERN_FAST

#include "kernels/cpu/packed.h"

#define K_PART		1024u
#define M_PANEL		192u
#define TILE_M		12u
/* Distance of the prefetch, in elements of W: a page. */
#define AHEAD		2048u
/* Elements from a row of x to the next: rows do not share cache sets. */
#define PANEL_LD	(K_PART + 32)
/* Items for each thread; limits for the panels of an item. */
#define ITEMS		16
#define STEP_MIN	2ull
#define STEP_MAX	32ull

/* The rows of x of an item, on its stack: 400 kB. */
struct panel {
	u16	x[M_PANEL * PANEL_LD] __attribute__((aligned(64)));
};

/* A tile: its rows of y and of x, its part of a panel of W and the next part. */
struct tile_at {
	u32		m;		/* of y */
	u32		n;		/* of y: PACK_ROWS columns, or up to its end */
	u32		k;
	u32		len;		/* even */
	const u16	*x;
	u64		x_ld;
	const u16	*w;
	const u16	*next;
};

/* Some rows of x by some panels of W, and the distance of the rows of x. */
struct box {
	u32	m;
	u32	nr;
	u32	p;
	u32	p_end;
	u64	ld;
};

/* Write or, from the second part of K on, add 16 sums to y; then the bias. */
static __inline_always void sums_store(const struct gemm_job *j,
				       const struct tile_at *at, u32 m, u32 n,
				       __m512 sums)
{
	float *y = j->y + (at->m + m) * j->y_ld + n;
	u32 left = j->n > n ? j->n - n : 0;
	__mmask16 mask = left >= 16 ? 0xffff : (1u << left) - 1;

	if (at->k)
		sums = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, y), sums);
	if (j->bias && at->k + at->len >= j->k)
		sums = _mm512_add_ps(sums, _mm512_maskz_loadu_ps(mask, j->bias + n));
	_mm512_mask_storeu_ps(y, mask, sums);
}

/* @first: the first tile of this part of W, which prefetches. */
static __inline_always void tile(const struct gemm_job *j,
				 const struct tile_at *at, const u32 mr,
				 const bool first)
{
	const u64 size = (u64)at->len * PACK_ROWS;
	const u16 *x = at->x, *w = at->w, *ask;
	__m512 acc[2 * TILE_M] = { };
	__m512bh w0, w1, xv;
	u64 i;
	u32 m, pair;

	for (i = 0; i < size; i += 2 * PACK_ROWS, x += 2) {
		w0 = (__m512bh)_mm512_load_si512(w + i);
		w1 = (__m512bh)_mm512_load_si512(w + i + PACK_ROWS);
		if (first) {
			ask = i + AHEAD < size ? w + i + AHEAD :
			      at->next + (i + AHEAD - size);
			_mm_prefetch(ask, _MM_HINT_T0);
			_mm_prefetch(ask + PACK_ROWS, _MM_HINT_T0);
		}
#pragma GCC unroll 12
		for (m = 0; m < mr; m++) {
			memcpy(&pair, x + m * at->x_ld, sizeof(pair));
			xv = (__m512bh)_mm512_set1_epi32(pair);
			acc[2 * m] = _mm512_dpbf16_ps(acc[2 * m], xv, w0);
			acc[2 * m + 1] = _mm512_dpbf16_ps(acc[2 * m + 1], xv, w1);
		}
	}
#pragma GCC unroll 12
	for (m = 0; m < mr; m++) {
		sums_store(j, at, m, at->n, acc[2 * m]);
		sums_store(j, at, m, at->n + 16, acc[2 * m + 1]);
	}
}

/* A compiled copy for each number of rows, as the first tile and as another. */
#define TILE(mr)							\
static __attribute__((noinline)) void					\
tile_##mr##_first(const struct gemm_job *j, const struct tile_at *at)	\
{									\
	tile(j, at, mr, true);						\
}									\
static __attribute__((noinline)) void					\
tile_##mr(const struct gemm_job *j, const struct tile_at *at)		\
{									\
	tile(j, at, mr, false);						\
}

#define TILES(x) x(1) x(2) x(3) x(4) x(5) x(6) x(7) x(8) x(9) x(10) x(11) x(12)
TILES(TILE)

static void (*const tiles[TILE_M + 1][2])(const struct gemm_job *j,
					  const struct tile_at *at) = {
#define ENTRY(mr)	[mr] = { tile_##mr, tile_##mr##_first },
	TILES(ENTRY)
#undef ENTRY
};

/* @len elements of K of a box's rows of x as bf16, zeros up to 16. */
static void panel_fill(const struct gemm_job *j, const struct box *b, u32 k,
		       u32 len, u16 *panel)
{
	const float *x;
	__mmask16 mask;
	u32 r, i;

	for (r = 0; r < b->nr; r++) {
		x = j->x + (b->m + r) * j->x_ld + k;
		for (i = 0; i < len; i += VW) {
			mask = i + VW <= len ? 0xffff : (1u << (len - i)) - 1;
			_mm256_store_si256((__m256i *)(panel + r * b->ld + i),
				(__m256i)_mm512_cvtneps_pbh(
					_mm512_maskz_loadu_ps(mask, x + i)));
		}
	}
}

/* All rows of the box against one part of a panel of W. */
static void panel_mul(const struct gemm_job *j, const struct box *b,
		      struct tile_at at, const u16 *x)
{
	const u32 nr_tiles = DIV_ROUND_UP(b->nr, TILE_M);
	u32 t, mr, row;

	at.x_ld = b->ld;
	for (t = 0, row = 0; t < nr_tiles; t++, row += mr) {
		/* Tiles of about equal size. */
		mr = (b->nr - row) / (nr_tiles - t);
		at.m = b->m + row;
		at.x = x + row * b->ld;
		tiles[mr][t == 0](j, &at);
	}
}

static u32 part_len(const struct gemm_job *j, u32 k)
{
	return ALIGN_UP(min(j->k - k, K_PART), 2u);
}

/* x fits: all of K in the panel, W in the order of memory. */
static void box_whole(const struct gemm_job *j, const struct box *b,
		      const u64 size, u16 *x)
{
	struct tile_at at = { .w = (const u16 *)j->w + b->p * size };
	u32 p;

	panel_fill(j, b, 0, j->k, x);
	for (p = b->p; p < b->p_end; p++) {
		at.n = p * PACK_ROWS;
		for (at.k = 0; at.k < j->k; at.k += K_PART) {
			at.len = part_len(j, at.k);
			at.next = at.w + (u64)at.len * PACK_ROWS;
			panel_mul(j, b, at, x + at.k);
			at.w = at.next;
		}
	}
}

/* More rows: a part of K at a time, so that x stays in the cache. */
static void box_parts(const struct gemm_job *j, const struct box *b,
		      const u64 size, u16 *x)
{
	struct tile_at at = { };
	u32 p;

	for (; at.k < j->k; at.k += K_PART) {
		at.len = part_len(j, at.k);
		panel_fill(j, b, at.k, min(j->k - at.k, K_PART), x);
		for (p = b->p; p < b->p_end; p++) {
			at.n = p * PACK_ROWS;
			at.w = (const u16 *)j->w + p * size +
			       (u64)at.k * PACK_ROWS;
			at.next = at.w + size;
			panel_mul(j, b, at, x);
		}
	}
}

static void gemm_item(void *arg, u32 i)
{
	const struct gemm_job *j = arg;
	const u64 size = ALIGN_UP((u64)j->k, 2ull) * PACK_ROWS;
	struct box b = {
		.m = i / j->n_items * M_PANEL,
		.p = i % j->n_items * j->n_step,
		.ld = ALIGN_UP((u64)j->k, 32ull) + 32,
	};
	struct panel panel;

	b.nr = min(j->m - b.m, M_PANEL);
	b.p_end = min(DIV_ROUND_UP(j->n, PACK_ROWS), b.p + j->n_step);
	if (b.nr * b.ld <= ARRAY_SIZE(panel.x)) {
		box_whole(j, &b, size, panel.x);
	} else {
		b.ld = PANEL_LD;
		box_parts(j, &b, size, panel.x);
	}
}

void KERN_FN(gemm_packed)(struct kern_ctx *ctx, struct gemm_job *j)
{
	u32 panels = DIV_ROUND_UP(j->n, PACK_ROWS);
	u32 m_items = DIV_ROUND_UP(j->m, M_PANEL);
	u32 items = ITEMS * (ctx ? kern_ctx_nr_threads(ctx) : 1);
	u64 step = (u64)panels * m_items / items;

	j->n_step = min(max(step, STEP_MIN), STEP_MAX);
	j->n_items = DIV_ROUND_UP(panels, j->n_step);
	kern_parallel(ctx, j->n_items * m_items, gemm_item, j);
}

#endif /* KERN_FAST */
