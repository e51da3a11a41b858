/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm.h - one matrix product, shared by the files that compute it
 */
#ifndef KERNELS_CPU_GEMM_H
#define KERNELS_CPU_GEMM_H

#include "kernels/cpu/vec.h"

/**
 * struct gemm_job - y[m][n] = x[m][k] * w[n][k]^T (+ bias[n])
 * @x:       rows @x_ld apart
 * @w:       dense rows, or packed
 * @bias:    NULL for none
 * @y:       rows @y_ld apart
 * @type:    of @w
 * @n_step:  columns of y in an item
 * @n_items: items side by side
 */
struct gemm_job {
	const float	*x;
	u64		x_ld;
	const void	*w;
	u32		n;
	u32		k;
	const float	*bias;
	u32		m;
	float		*y;
	u64		y_ld;
	enum kern_dtype	type;
	u32		n_step;
	u32		n_items;
};

/* Fast mode: x rounded to bf16, products of pairs; @j->type must be bf16. */
void KERN_FN(gemm_bf16)(struct kern_ctx *ctx, struct gemm_job *j);

/* The same with @j->w packed. */
void KERN_FN(gemm_packed)(struct kern_ctx *ctx, struct gemm_job *j);

/* Fast mode: x as integers; @j->w is packed, of a type of ints.h. */
void KERN_FN(gemm_ints)(struct kern_ctx *ctx, struct gemm_job *j);

#endif /* KERNELS_CPU_GEMM_H */
