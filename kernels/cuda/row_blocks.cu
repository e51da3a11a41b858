// SPDX-License-Identifier: Apache-2.0
/*
 * row_blocks.cu - rows of a table in blocks, as numbers
 */
#include "kernels/cuda/blocks.cuh"

/* One block for each row, and a thread for each group of 32. */
KERNEL(k_take_blocks, 256)(struct k_take_blocks_args a)
{
	float f[BLOCK_GROUP];
	u32 row, k, i;

	for (row = blockIdx.x; row < a.m; row += gridDim.x) {
		const u32 at = a.rows[row];
		float *to = a.x + (u64)row * a.d;

		for (k = threadIdx.x * BLOCK_GROUP; k < a.d;
		     k += blockDim.x * BLOCK_GROUP) {
			blocks_group(a.blocks, a.table,
				     at < a.nr_rows ? at : 0, k, true, f);
#pragma unroll
			for (i = 0; i < BLOCK_GROUP; i++)
				f[i] = a.settle ?
				       bf16_to_f32(f32_to_bf16(f[i])) : f[i];
			if (a.vec) {
#pragma unroll
				for (i = 0; i < BLOCK_GROUP; i += 4)
					gl_store16(to + k + i, quad_of(f + i));
				continue;
			}
#pragma unroll
			for (i = 0; i < BLOCK_GROUP; i++)
				to[k + i] = f[i];
		}
	}
}
