/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm.h - one matrix product, shared by the files that compute it
 */
#ifndef KERNELS_CPU_GEMM_H
#define KERNELS_CPU_GEMM_H

#include "kernels/cpu/vec.h"

/**
 * struct gemm_job - y[m][n] = x[m][k] * w[n][k]^T (+ bias[n])
 * @x:         rows @x_ld apart
 * @w:         dense rows, or packed
 * @bias:      NULL for none
 * @y:         rows @y_ld apart
 * @type:      of @w
 * @packed:    @w is packed
 * @n_step:    columns of y in an item; panels of W in v_gemm_parts.c
 * @n_items:   items side by side
 * @rows:      rows of x in the form that gemm_kind.round() gives them
 * @row_bytes: bytes from one of these to the next; 0: the product takes @x
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
	bool		packed;
	u32		n_step;
	u32		n_items;
	void		*rows;
	u64		row_bytes;
};

static inline struct gemm_job gemm_job_of(const struct kern_gemm_part *p)
{
	return (struct gemm_job){
		.x = p->x, .x_ld = p->x_ld ? p->x_ld : p->w->cols,
		.w = p->w->data, .n = p->w->rows, .k = p->w->cols, .bias = p->bias,
		.m = p->m, .y = p->y, .y_ld = p->y_ld ? p->y_ld : p->w->rows,
		.type = p->w->dtype, .packed = p->w->packed,
	};
}

/* Rows @m to @m + @nr - 1 of x, by panels @p to @p_end - 1 of W. */
struct gemm_box {
	u32	m;
	u32	nr;
	u32	p;
	u32	p_end;
};

/* More rows or panels than there are. */
#define GEMM_ALL	(1u << 28)

/**
 * struct gemm_kind - a way to compute products
 * @w_rows:	rows of W in a panel
 * @m_rows:	most rows of x in a box
 * @step_min:	least panels of a box, unless W ends
 * @step_max:	most panels
 * @row_bytes:	bytes of a row of x as mul() takes it, a multiple of 64; NULL: as it is
 * @round:	make row @row of them at @to
 * @mul:	compute a box
 *
 * Context: several boxes run at once.
 */
struct gemm_kind {
	u32	w_rows;
	u32	m_rows;
	u32	step_min;
	u32	step_max;
	u64	(*row_bytes)(const struct gemm_job *j);
	void	(*round)(const struct gemm_job *j, u32 row, void *to);
	void	(*mul)(const struct gemm_job *j, const struct gemm_box *b);
};

/* @w of f32, bf16, f16 or blocks, as it is stored. */
extern const struct gemm_kind KERN_FN(kind_plain);

/* Fast mode: x rounded to bf16, products of pairs; @w is packed bf16. */
extern const struct gemm_kind KERN_FN(kind_packed);

/* Fast mode: x as integers; @w is packed, of a type of ints.h. */
extern const struct gemm_kind KERN_FN(kind_ints);

/* Fast mode: x rounded to bf16, products of pairs; @w is bf16 that is not packed. */
void KERN_FN(gemm_bf16)(struct kern_ctx *ctx, struct gemm_job *j);

/**
 * gemm_jobs() - run products together
 * @jobs: changed
 *
 * Return: false, nothing is done: one of them is a product of gemm_bf16().
 */
bool KERN_FN(gemm_jobs)(struct kern_ctx *ctx, struct gemm_job *jobs, u32 nr);

#endif /* KERNELS_CPU_GEMM_H */
