// SPDX-License-Identifier: Apache-2.0
/*
 * v_gemm_packed.c - products with packed bf16 weights in fast mode
 *
 * As in v_gemm_bf16.c, rows of x are rounded to bf16, and pairs are multiplied
 * and added up in f32.  But a register holds a pair of columns of 16 rows of W
 * (packed.h), which is multiplied by one pair of x in all lanes.  So a sum stays
 * in its lane, and W is read in the order of memory.
 *
 * Rows of x are rounded first (v_gemm_parts.c).  A box is up to M_PANEL of these rows
 * by some panels of W.  K is cut into parts of K_PART.  A part of a panel of W stays in
 * the second-level cache while tiles of up to TILE_M rows of x are multiplied by it.
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
/* Distance of the prefetch in elements of W, if there is one tile. */
#define AHEAD		3072u
/* Elements of x that stay in the second-level cache with parts of W. */
#define NEAR		(200u << 10)
/*
 * A tile: its rows of y and of x, its part of a panel of W and the next part, and its
 * number among the tiles of this part.
 */
struct tile_at {
	u32		m;		/* of y */
	u32		n;		/* of y: PACK_ROWS columns, or up to its end */
	u32		k;
	u32		len;		/* even */
	const u16	*x;
	u64		x_ld;
	const u16	*w;
	const u16	*next;
	u32		tile;
	u32		nr_tiles;
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

/* The only tile asks for pairs that are needed soon, of this part and of the next. */
static __inline_always void ask_soon(const struct tile_at *at, u64 i, u64 size)
{
	const u16 *ask = i + AHEAD < size ? at->w + i + AHEAD :
					    at->next + (i + AHEAD - size);

	_mm_prefetch(ask, _MM_HINT_T1);
	_mm_prefetch(ask + PACK_ROWS, _MM_HINT_T1);
}

/*
 * One of several tiles asks for its share of the next part, a little with each pair.  So
 * memory is read all the time, not while the first tile runs alone.
 */
static __inline_always void ask_share(const u16 **ask, u32 step)
{
	_mm_prefetch(*ask, _MM_HINT_T1);
	*ask += step;
}

static __inline_always void tile(const struct gemm_job *j,
				 const struct tile_at *at, const u32 mr,
				 const bool only)
{
	const u64 size = (u64)at->len * PACK_ROWS;
	const u32 step = 2 * PACK_ROWS / at->nr_tiles;
	const u16 *x = at->x, *w = at->w;
	const u16 *ask = at->next + at->tile * (size / at->nr_tiles);
	__m512 acc[2 * TILE_M] = { };
	__m512bh w0, w1, xv;
	u64 i;
	u32 m, pair;

	for (i = 0; i < size; i += 2 * PACK_ROWS, x += 2) {
		w0 = (__m512bh)_mm512_load_si512(w + i);
		w1 = (__m512bh)_mm512_load_si512(w + i + PACK_ROWS);
		if (only)
			ask_soon(at, i, size);
		else
			ask_share(&ask, step);
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

/* A compiled copy for each number of rows, as the only tile and as one of several. */
#define TILE(mr)							\
static __attribute__((noinline)) void					\
tile_##mr##_only(const struct gemm_job *j, const struct tile_at *at)	\
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
#define ENTRY(mr)	[mr] = { tile_##mr, tile_##mr##_only },
	TILES(ENTRY)
#undef ENTRY
};

static __inline_always __mmask16 first_lanes(u32 n)
{
	return n >= VW ? 0xffff : (1u << n) - 1;
}

/* Elements from a row to the next: rows do not share cache sets. */
static u64 packed_ld(const struct gemm_job *j)
{
	return ALIGN_UP((u64)j->k, 32ull) + 32;
}

static u64 packed_row_bytes(const struct gemm_job *j)
{
	return packed_ld(j) * sizeof(u16);
}

/* One row of x as bf16, zeros up to 16. */
static void packed_round(const struct gemm_job *j, u32 row, void *to)
{
	const float *x = j->x + row * j->x_ld;
	u32 i;

	for (i = 0; i < j->k; i += VW)
		_mm256_store_si256((__m256i *)((u16 *)to + i),
			(__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(
				first_lanes(j->k - i), x + i)));
}

/* All rows of the box against one part of a panel of W. */
static void panel_mul(const struct gemm_job *j, const struct gemm_box *b,
		      struct tile_at at)
{
	const u16 *x = (const u16 *)j->rows + b->m * packed_ld(j) + at.k;
	u32 mr, row;

	at.x_ld = packed_ld(j);
	at.nr_tiles = DIV_ROUND_UP(b->nr, TILE_M);
	for (at.tile = 0, row = 0; at.tile < at.nr_tiles; at.tile++, row += mr) {
		/* Tiles of about equal size. */
		mr = (b->nr - row) / (at.nr_tiles - at.tile);
		at.m = b->m + row;
		at.x = x + row * at.x_ld;
		tiles[mr][at.nr_tiles == 1](j, &at);
	}
}

static u32 part_len(const struct gemm_job *j, u32 k)
{
	return ALIGN_UP(min(j->k - k, K_PART), 2u);
}

/* x stays in the cache: W in the order of memory. */
static void box_whole(const struct gemm_job *j, const struct gemm_box *b,
		      u64 size)
{
	struct tile_at at = { .w = (const u16 *)j->w + b->p * size };
	u32 i;

	for (i = b->p; i < b->p_end; i++) {
		at.n = i * PACK_ROWS;
		for (at.k = 0; at.k < j->k; at.k += K_PART) {
			at.len = part_len(j, at.k);
			at.next = at.w + (u64)at.len * PACK_ROWS;
			panel_mul(j, b, at);
			at.w = at.next;
		}
	}
}

/* More rows: a part of K at a time, so that this part of x stays there. */
static void box_parts(const struct gemm_job *j, const struct gemm_box *b,
		      u64 size)
{
	struct tile_at at = { };
	u32 i;

	for (; at.k < j->k; at.k += K_PART) {
		at.len = part_len(j, at.k);
		for (i = b->p; i < b->p_end; i++) {
			at.n = i * PACK_ROWS;
			at.w = (const u16 *)j->w + i * size +
			       (u64)at.k * PACK_ROWS;
			at.next = at.w + size;
			panel_mul(j, b, at);
		}
	}
}

static void packed_mul(const struct gemm_job *j, const struct gemm_box *b)
{
	const u64 size = ALIGN_UP((u64)j->k, 2ull) * PACK_ROWS;

	if (b->nr * packed_ld(j) <= NEAR)
		box_whole(j, b, size);
	else
		box_parts(j, b, size);
}

const struct gemm_kind KERN_FN(kind_packed) = {
	.w_rows = PACK_ROWS, .m_rows = M_PANEL, .step_min = 2, .step_max = 32,
	.row_bytes = packed_row_bytes, .round = packed_round, .mul = packed_mul,
};

#endif /* KERN_FAST */
