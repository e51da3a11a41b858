// SPDX-License-Identifier: Apache-2.0
/*
 * gemm_exact.cu - products of exact mode with weights in f32, bf16 and f16
 */
#include "kernels/cuda/gemm_exact.h"

#define GEMM_FEW(name, type, mt, r, stages)				\
KERNEL(name, THREADS)(struct name##_args a)				\
{									\
	few_rows<type, false, mt, r, stages>(a.g, gemm_part_of(a.g, blockIdx.y)); \
}

GEMM_FEW(k_gemm_exact1_f32, KERN_F32, 1, 1, 3)
GEMM_FEW(k_gemm_exact1_bf16, KERN_BF16, 1, 1, 3)
GEMM_FEW(k_gemm_exact1_f16, KERN_F16, 1, 1, 3)
GEMM_FEW(k_gemm_exact4_f32, KERN_F32, 4, 2, 2)
GEMM_FEW(k_gemm_exact4_bf16, KERN_BF16, 4, 2, 2)
GEMM_FEW(k_gemm_exact4_f16, KERN_F16, 4, 2, 2)

#define GROUP_FEW(name, type, mt, r, stages)				\
KERNEL(name, THREADS)(struct name##_args a)				\
{									\
	group_rows<type, false, mt, r, stages>(a.a);			\
}

GROUP_FEW(k_group_exact1_f32, KERN_F32, 1, 1, 3)
GROUP_FEW(k_group_exact1_bf16, KERN_BF16, 1, 1, 3)
GROUP_FEW(k_group_exact1_f16, KERN_F16, 1, 1, 3)
GROUP_FEW(k_group_exact4_f32, KERN_F32, 4, 2, 2)
GROUP_FEW(k_group_exact4_bf16, KERN_BF16, 4, 2, 2)
GROUP_FEW(k_group_exact4_f16, KERN_F16, 4, 2, 2)

KERNEL(k_gemm_exact_mid, THREADS)(struct k_gemm_exact_mid_args a)
{
	SHARED(float, sm, 2 * many<4>::floats);

	many_rows<4, false>(a.g, sm);
}

KERNEL(k_gemm_exact_tile, THREADS)(struct k_gemm_exact_tile_args a)
{
	SHARED(float, sm, 2 * many<8>::floats);

	many_rows<8, false>(a.g, sm);
}
