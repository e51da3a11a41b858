/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blocks.cuh - weights in blocks, for the kernels that read them
 *
 * A thread takes a group of 32 elements.  The type is the same for all threads of a launch,
 * so the choice by type does not divide a warp.
 */
#ifndef KERNELS_CUDA_BLOCKS_CUH
#define KERNELS_CUDA_BLOCKS_CUH

#include "kernels/cuda/gemm_dev.cuh"

#include "kernels/block_groups.h"

/* Plain numbers and scales of group @g of block @b. */
DEVICE struct block_scale block_plain(u32 type, const u8 *b, u32 g,
				      float (&to)[BLOCK_GROUP])
{
	switch (type) {
#define x(id, name)							\
	case KERN_##id:							\
		return group_##name(b, g, to);
	BLOCK_GROUPS(x)
#undef x
	}
	return scale_of(0.0f, 0.0f);
}

/* The block of row @n that has column @k. */
DEVICE const u8 *block_of(const struct dev_blocks &w, const void *from, u64 n,
			  u32 k)
{
	return (const u8 *)from + n * w.row + (u64)(k / w.elems) * w.bytes;
}

/* Numbers of 32 elements of row @n from column @k on; zeros if they are not @there. */
DEVICE void blocks_group(const struct dev_blocks &w, const void *from, u64 n,
			 u32 k, bool there, float (&to)[BLOCK_GROUP])
{
	float q[BLOCK_GROUP] = {};
	struct block_scale s = scale_of(0.0f, 0.0f);

	if (there)
		s = block_plain(w.type, block_of(w, from, n, k),
				k % w.elems / BLOCK_GROUP, q);
	block_scaled(q, &s, to);
}

/* Four numbers as 16 bytes. */
DEVICE quad quad_of(const float *f)
{
	quad q;
	u32 i;

#pragma unroll
	for (i = 0; i < 4; i++)
		q.w[i] = float_bits(f[i]);
	return q;
}

#endif /* KERNELS_CUDA_BLOCKS_CUH */
