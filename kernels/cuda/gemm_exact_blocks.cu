// SPDX-License-Identifier: Apache-2.0
/*
 * gemm_exact_blocks.cu - products of exact mode with weights in blocks
 */
#include "kernels/cuda/gemm_exact.h"

KERNEL(k_gemm_exact1_blocks, THREADS)(struct k_gemm_exact1_blocks_args a)
{
	few_rows<KERN_F32, true, 1, 1, 3>(a.g, gemm_part_of(a.g, blockIdx.y));
}

KERNEL(k_gemm_exact4_blocks, THREADS)(struct k_gemm_exact4_blocks_args a)
{
	few_rows<KERN_F32, true, 4, 2, 2>(a.g, gemm_part_of(a.g, blockIdx.y));
}

KERNEL(k_group_exact1_blocks, THREADS)(struct k_group_exact1_blocks_args a)
{
	group_rows<KERN_F32, true, 1, 1, 3>(a.a);
}

KERNEL(k_group_exact4_blocks, THREADS)(struct k_group_exact4_blocks_args a)
{
	group_rows<KERN_F32, true, 4, 2, 2>(a.a);
}

KERNEL(k_gemm_exact_mid_blocks, THREADS)(struct k_gemm_exact_mid_blocks_args a)
{
	SHARED(float, sm, 2 * many<4>::floats);

	many_rows<4, true>(a.g, sm);
}

KERNEL(k_gemm_exact_tile_blocks, THREADS)(struct k_gemm_exact_tile_blocks_args a)
{
	SHARED(float, sm, 2 * many<8>::floats);

	many_rows<8, true>(a.g, sm);
}
