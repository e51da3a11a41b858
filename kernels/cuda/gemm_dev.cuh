/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_dev.cuh - shared by the kernels of products: parts, widening, results
 *
 * A launch multiplies one x by up to GEMM_PARTS matrices.  Blocks along N are
 * numbered through all of them, and each block belongs to one matrix.
 *
 * A launch of k_group_* does up to GEMM_GROUP products, of one shape and type of weights,
 * each with its own x.  A block takes its product's arguments, and goes on as a block of a
 * single product.
 */
#ifndef KERNELS_CUDA_GEMM_DEV_CUH
#define KERNELS_CUDA_GEMM_DEV_CUH

#include "kernels/cuda/cu.h"

/* The part of block @block along N. */
DEVICE struct gemm_part gemm_part_of(const struct gemm_args &a, u32 block)
{
	struct gemm_part p = a.part[0];
	u32 i;

#pragma unroll
	for (i = 1; i < GEMM_PARTS; i++)
		if (i < a.nr_parts && block >= a.part[i].first)
			p = a.part[i];
	return p;
}

/* The part of product @q of a group; @first: number of its first block along N. */
DEVICE struct gemm_part group_part(const struct gemm_args &a,
				   const struct gemm_group_part &q, u32 first)
{
	struct gemm_part p = a.part[0];

	p.w = q.w;
	p.bias = q.bias;
	p.y = q.y;
	p.first = first;
	return p;
}

/* Store a complete sum: add the bias last, then round if @settle. */
DEVICE void gemm_result(const struct gemm_part &p, u32 settle, u32 m, u32 n,
			float v)
{
	if (p.bias)
		v = add_rn(v, p.bias[n]);
	p.y[m * p.y_ld + n] = settle ? bf16_to_f32(f32_to_bf16(v)) : v;
}

DEVICE quad gemm_zero(void)
{
	const quad q = { { 0, 0, 0, 0 } };

	return q;
}

/* Elements of @TYPE in a word, and in 16 bytes. */
template <int TYPE>
DEVICE constexpr u32 gemm_per_word(void)
{
	return TYPE == KERN_F32 ? 1 : 2;
}

/* Number @i of the @TYPE elements in @word. */
template <int TYPE>
DEVICE float gemm_widen(u32 word, u32 i)
{
	if (TYPE == KERN_F32)
		return bits_float(word);
	if (TYPE == KERN_BF16)
		return bits_float(i ? word & 0xffff0000u : word << 16);
	return f16_to_f32((u16)(i ? word >> 16 : word));
}

/* A word of @TYPE elements, one element at a time, for rows that are not aligned. */
template <int TYPE>
DEVICE u32 gemm_load_word(const void *row, u32 k, u32 end)
{
	if (TYPE == KERN_F32)
		return k < end ? ((const u32 *)row)[k] : 0;
	return (k < end ? ((const u16 *)row)[k] : 0) |
	       (k + 1 < end ? (u32)((const u16 *)row)[k + 1] << 16 : 0);
}

/* 16 bytes of row @row from element @k on, zeros from @end on. */
template <int TYPE>
DEVICE quad gemm_load_quad(const void *row, u32 k, u32 end, bool vec)
{
	const u32 n = gemm_per_word<TYPE>();
	quad q;
	u32 i;

	if (vec) {
		if (k >= end)
			return gemm_zero();
		return gl_load16((const u8 *)row + (u64)k * (4 / n));
	}
#pragma unroll
	for (i = 0; i < 4; i++)
		q.w[i] = gemm_load_word<TYPE>(row, k + i * n, end);
	return q;
}

#endif /* KERNELS_CUDA_GEMM_DEV_CUH */
