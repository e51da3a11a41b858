/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm.h - shared by the host files of products: gemm.c, gemm_few.c, gemm_group.c
 */
#ifndef KERNELS_CUDA_GEMM_H
#define KERNELS_CUDA_GEMM_H

#include "kernels/cuda/blaslt.h"

/* Most rows of x for the kernels for few rows. */
#define GEMM_FEW	16u

/**
 * struct cuda_gemm - state of products in a context
 * @lt:     cuBLASLt, or NULL
 * @ticket: [CUDA_MAX_TICKETS] zeros, for kernels that may split K
 */
struct cuda_gemm {
	struct blaslt	*lt;
	u32		*ticket;
};

#define CUDA_MAX_TICKETS	16384u

/* The kernels that can do a product. */
enum gemm_way {
	GEMM_EXACT,	/* k_gemm_exact* */
	GEMM_SKINNY,	/* k_gemm_skinny* */
	GEMM_LONG,	/* cuBLASLt, or k_gemm_tile */
	GEMM_PACKED,	/* k_gemm_packed* */
	GEMM_UNPACKED,	/* k_gemm_unpack, and cuBLASLt */
};

/* gemm.c */

/* Bytes of dynamic shared memory of each kernel, from list.h. */
extern const u32 cuda_gemm_smem[CUDA_NR_KERNELS];

/* Arguments of products with one x, without blocks, which depend on the kernel. */
struct gemm_args cuda_gemm_args(struct cuda_ctx *c, const float *x, u64 x_ld,
				const struct kern_gemm_out *out, u32 nr, u32 m);

/* The kernels for @a; @packed: weights of all its parts are. */
enum gemm_way cuda_gemm_way(struct cuda_ctx *c, const struct gemm_args *a,
			    bool packed);

/* Number the blocks along N, of @rows outputs each. */
void cuda_gemm_number(struct gemm_args *a, u32 rows);

/* gemm_few.c */

/**
 * cuda_skinny_grid() - arguments and grid of k_gemm_skinny* or k_group_skinny*
 * @k: the kernel
 * @a: numbered; its m is the most rows of a product
 * @s: gets the arguments, with the split of K
 *
 * Return: the grid; of no blocks after a failure.
 */
struct cuda_grid cuda_skinny_grid(struct cuda_ctx *c, enum cuda_kernel k,
				  const struct gemm_args *a,
				  struct gemm_skinny_args *s);

/* The same of k_gemm_packed* and k_group_packed*. */
struct cuda_grid cuda_packed_grid(struct cuda_ctx *c, enum cuda_kernel k,
				  const struct gemm_args *a,
				  struct gemm_packed_args *p);

/* The number of the kernel for @m rows: 0 to 3 for up to 8, 16, 32, more. */
static inline u32 cuda_packed_size(u32 m)
{
	return m <= 8 ? 0 : m <= 16 ? 1 : m <= 32 ? 2 : 3;
}

void cuda_gemm_skinny(struct cuda_ctx *c, struct gemm_args *a);
void cuda_gemm_packed(struct cuda_ctx *c, struct gemm_args *a);

#endif /* KERNELS_CUDA_GEMM_H */
