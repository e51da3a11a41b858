/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attn_exact.h - the steps that kernels of exact attention share
 *
 * attn_exact.cu has the order of the sums.  attn_latent.cu takes the same steps
 * with other shapes.
 */
#ifndef KERNELS_CUDA_ATTN_EXACT_H
#define KERNELS_CUDA_ATTN_EXACT_H

#include "kernels/cuda/attn.h"
#include "kernels/cuda/fmath.cuh"

#define EXACT_THREADS	256u
#define EXACT_CHUNK	64u		/* KERN_CHUNK */
#define EXACT_SPAN	512u
/* Scores, and quads of sums, of a thread: 16 x 64 in a block. */
#define EXACT_EACH	4u
#define EXACT_PAD	4u		/* floats after a row of KV */

/* Spans of the positions that a sequence sees. */
DEVICE u32 exact_spans(const struct k_attn_args &a, const struct dev_seq &s)
{
	return (s.start_pos + s.nr_rows - 1) / EXACT_SPAN -
	       attn_first(a, s.start_pos) / EXACT_SPAN + 1;
}

/* Sums of one query, with four of its dims. */
struct exact_sum {
	float	m;
	float	l;
	float	o[4];
};

DEVICE struct exact_sum exact_nothing(void)
{
	struct exact_sum x;

	x.m = ATTN_NONE;
	x.l = 0.0f;
	x.o[0] = x.o[1] = x.o[2] = x.o[3] = 0.0f;
	return x;
}

/* Fold @y, the next positions, into @x; no step if the query sees none of them. */
DEVICE void exact_fold(struct exact_sum &x, const struct exact_sum &y)
{
	u32 j;
	float c;

	if (y.m == ATTN_NONE)
		return;
	if (x.m == ATTN_NONE) {
		x = y;
	} else if (y.m <= x.m) {
		c = f_exp(add_rn(y.m, -x.m));
		x.l = fma_rn(y.l, c, x.l);
		for (j = 0; j < 4; j++)
			x.o[j] = fma_rn(y.o[j], c, x.o[j]);
	} else {
		c = f_exp(add_rn(x.m, -y.m));
		x.m = y.m;
		x.l = fma_rn(x.l, c, y.l);
		for (j = 0; j < 4; j++)
			x.o[j] = fma_rn(x.o[j], c, y.o[j]);
	}
}

template <u32 TYPE>
struct exact_type {
	static const u32 elem = TYPE == KERN_F32 ? 4 : TYPE <= KERN_F16 ? 2 : 1;
	static const u32 per = 4 / elem;	/* elements of a word */
};

/* Element @i of a word, times its scale, as bits. */
template <u32 TYPE>
DEVICE u32 exact_number(u32 w, u32 i, float scale)
{
	if (TYPE == KERN_F32)
		return w;
	if (TYPE == KERN_BF16)
		return i ? w & 0xffff0000 : w << 16;
	if (TYPE == KERN_F16)
		return float_bits(f16_to_f32((u16)(w >> i * 16)));
	if (TYPE == KERN_E4M3)
		return float_bits(mul_rn(scale, e4m3_to_f32((u8)(w >> i * 8))));
	return float_bits(mul_rn(scale, (float)(signed char)(w >> i * 8)));
}

/* Widen 16 bytes of KV to 4 to 16 floats from @at on. */
template <u32 TYPE>
DEVICE void exact_widen(SHARED_PTR(float) to, u32 at, const quad &x,
			float scale)
{
	const u32 per = exact_type<TYPE>::per;
	u32 i, j;
	quad y;

#pragma unroll
	for (i = 0; i < per; i++) {		/* quads of the result */
#pragma unroll
		for (j = 0; j < 4; j++)
			y.w[j] = exact_number<TYPE>(x.w[(i * 4 + j) / per],
						    (i * 4 + j) % per, scale);
		sh_store16(to, at + i * 4, y);
	}
}

/* Query @q of an item sees the positions @lo up to @hi of the chunk at @start. */
DEVICE void exact_view(const struct k_attn_args &a, const struct attn_item &it,
		       u32 q, u32 start, u32 *lo, u32 *hi)
{
	const u32 pos = attn_pos(a, it, q), first = attn_first(a, pos);

	*lo = first > start ? first - start : 0;
	*hi = pos < start ? 0 : min(pos - start + 1, EXACT_CHUNK);
}

/* Replace scores by weights; store the maximum and the sum of each query. */
DEVICE void exact_softmax(const struct attn_item &it, SHARED_PTR(float) p,
			  SHARED_PTR(float) max_of, SHARED_PTR(float) sum_of)
{
	const u32 lane = thread_lane();
	u32 i, at;
	float x, y, m, l;

	for (i = thread_warp(); i < it.nq; i += EXACT_THREADS / WARP) {
		at = i * EXACT_CHUNK + lane;
		x = p[at];
		y = p[at + WARP];
		m = warp_max(fmaxf(x, y));
		x = x == ATTN_NONE ? 0.0f : f_exp(add_rn(x, -m));
		y = y == ATTN_NONE ? 0.0f : f_exp(add_rn(y, -m));
		p[at] = x;
		p[at + WARP] = y;
		l = warp_sum(add_rn(x, y));
		if (lane == 0) {
			max_of[i] = m;
			sum_of[i] = l;
		}
	}
}

#endif /* KERNELS_CUDA_ATTN_EXACT_H */
