/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attn_bf16.h - the inner loops of attention over bf16 KV in fast mode
 *
 * Queries and the weights of the softmax are rounded to bf16, and one
 * instruction multiplies 32 pairs and adds them to 16 sums in f32.  A score
 * takes pairs of dimensions, 2i and 2i + 1 modulo 32 in lane i, and then the
 * tree of vec.h.  The weighted sum takes pairs of positions, an even one and
 * the odd one after it, by rising position.  V of a position out of view is
 * replaced by zeros, and its weight is zero, so a query's sum does not depend on
 * how its keys were split among calls.
 */
#ifndef KERNELS_CPU_ATTN_BF16_H
#define KERNELS_CPU_ATTN_BF16_H

#include "kernels/cpu/attn.h"

#ifdef KERN_FAST

/* bf16 elements in a register. */
#define PAIR_STEP	32

/* 32 bf16 elements, or the last @n of a row and zeros. */
static __inline_always __m512i bf16_load(const void *p, u32 n)
{
	if (__builtin_constant_p(n) && n == PAIR_STEP)
		return _mm512_loadu_si512(p);
	if (__builtin_constant_p(n) && n == VW)
		return _mm512_zextsi256_si512(_mm256_loadu_si256(p));
	return _mm512_maskz_loadu_epi16((1u << n) - 1, p);
}

/* Each of VW floats as bf16. */
static __inline_always void bf16_store(u16 *p, vf v)
{
	_mm256_storeu_si256((__m256i *)p,
			    (__m256i)_mm512_cvtneps_pbh((__m512)v));
}

/* One step of @some elements of the tile of scores. */
static __inline_always void dot_pairs(const u32 mr, const u32 nr, __m512 *acc,
				      const u16 *q, u64 hd, const u8 *k,
				      u32 some)
{
	__m512i qv[STEP_Q], kv;
	u32 m, n;

#pragma GCC unroll 4
	for (m = 0; m < mr; m++)
		qv[m] = bf16_load(q + m * hd, some);
#pragma GCC unroll 16
	for (n = 0; n < nr; n++) {
		kv = bf16_load(k + n * hd * 2, some);
#pragma GCC unroll 4
		for (m = 0; m < mr; m++)
			acc[m * nr + n] = _mm512_dpbf16_ps(acc[m * nr + n],
							   (__m512bh)qv[m],
							   (__m512bh)kv);
	}
}

/* mr queries against nr keys; prefetches from @ahead on. */
static __inline_always vf tile_pairs(const u32 mr, const u32 nr, const u16 *q,
				     u64 hd, const u8 *k, const u8 *ahead)
{
	__m512 acc[VW] = { };
	u64 i;

	for (i = 0; i + PAIR_STEP <= hd; i += PAIR_STEP) {
		line_prefetch(ahead + i * nr * 2, nr * PAIR_STEP * 2);
		dot_pairs(mr, nr, acc, q + i, hd, k + i * 2, PAIR_STEP);
	}
	if (i < hd)
		line_prefetch(ahead + i * nr * 2, nr * PAIR_STEP);
	if (hd - i == VW)
		dot_pairs(mr, nr, acc, q + i, hd, k + i * 2, VW);
	else if (i < hd)
		dot_pairs(mr, nr, acc, q + i, hd, k + i * 2, hd - i);
	return vf_sum_each((const vf *)acc);
}

/* Elements of two rows from @o on, interleaved: pairs of positions. */
#define PAIR_1(o)	((u32)(o) | ((u32)(o) + PAIR_STEP) << 16)
#define PAIR_4(o)	PAIR_1(o), PAIR_1((o) + 1), PAIR_1((o) + 2),	\
			PAIR_1((o) + 3)
#define PAIR_IDX(o)	((__m512i)(vu){ PAIR_4(o), PAIR_4((o) + 4),	\
					PAIR_4((o) + 8), PAIR_4((o) + 12) })

/* VW sums of a query, or the last @n; zeros in place of the others. */
static __inline_always __m512 sums_load(const float *p, u32 n)
{
	if (__builtin_constant_p(n) && n == VW)
		return _mm512_loadu_ps(p);
	return _mm512_maskz_loadu_ps((1u << n) - 1, p);
}

static __inline_always void sums_store(float *p, u32 n, __m512 v)
{
	if (__builtin_constant_p(n) && n == VW)
		_mm512_storeu_ps(p, v);
	else
		_mm512_mask_storeu_ps(p, (1u << n) - 1, v);
}

/* Zeros in place of V of a position out of view. */
static const u8 no_row[KERN_MAX_HEAD_DIM * 2] __attribute__((aligned(64)));

/* nv registers of V of a pair of positions; the last load has @n elements. */
static __inline_always void pair_load(const u8 *a, const u8 *b, const u32 nv,
				      u32 n, __m512i *to)
{
	__m512i x, y;
	u32 j;

#pragma GCC unroll 4
	for (j = 0; j < nv; j += 2) {
		x = bf16_load(a + j * 32, j + 2 < nv ? PAIR_STEP : n);
		y = bf16_load(b + j * 32, j + 2 < nv ? PAIR_STEP : n);
		to[j] = _mm512_permutex2var_epi16(x, PAIR_IDX(0), y);
		if (nv > 1)
			to[j + 1] = _mm512_permutex2var_epi16(x, PAIR_IDX(16),
							      y);
	}
}

/**
 * mix_pairs() - acc += p * v, nv registers of the head for mr queries
 * @t:     the tile, for its strides
 * @p:     weights of the first query for this unit
 * @out:   the first query's sums
 * @v:     the unit's V, from the same dimension on
 * @d:     that dimension
 * @n:     elements of the last load of a row: PAIR_STEP, or what the head has left
 * @k:     the keys of the unit to add
 * @ahead: prefetch as many lines from here on
 */
static __inline_always void mix_pairs(const struct tile *t, const u16 *p,
				      float *out, const u8 *v, u32 d, u32 n,
				      struct keys k, const u8 *ahead,
				      const u32 mr, const u32 nv)
{
	const u64 row = t->row, hd = t->hd;
	const u32 last = nv > 1 && n < PAIR_STEP ? n - VW : min(n, (u32)VW);
	__m512 acc[STEP_Q * 4];
	__m512i vv[4], w;
	const u8 *a, *b;
	u32 m, j, pair;
	u64 i;

#pragma GCC unroll 4
	for (m = 0; m < mr; m++)
#pragma GCC unroll 4
		for (j = 0; j < nv; j++)
			acc[m * nv + j] = sums_load(out + m * hd + j * VW,
						    j + 1 < nv ? VW : last);
	for (i = k.lo & ~1u; i < k.hi; i += 2) {
		a = i >= k.lo ? v + i * row : no_row + d * 2;
		b = i + 1 < k.hi ? v + (i + 1) * row : no_row + d * 2;
		pair_load(a, b, nv, n, vv);
		line_prefetch(ahead, 2 * nv * VW * 2);
		ahead += 2 * nv * VW * 2;
#pragma GCC unroll 4
		for (m = 0; m < mr; m++) {
			memcpy(&pair, p + m * 2 * KERN_CHUNK + i, sizeof(pair));
			w = _mm512_set1_epi32(pair);
#pragma GCC unroll 4
			for (j = 0; j < nv; j++)
				acc[m * nv + j] = _mm512_dpbf16_ps(
					acc[m * nv + j], (__m512bh)vv[j],
					(__m512bh)w);
		}
	}
#pragma GCC unroll 4
	for (m = 0; m < mr; m++)
#pragma GCC unroll 4
		for (j = 0; j < nv; j++)
			sums_store(out + m * hd + j * VW,
				   j + 1 < nv ? VW : last, acc[m * nv + j]);
}

#endif /* KERN_FAST */
#endif /* KERNELS_CPU_ATTN_BF16_H */
