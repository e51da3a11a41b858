// SPDX-License-Identifier: Apache-2.0
/*
 * ref_adapt.c - the plain reference of adapters
 *
 * The sums of @t are in double, in memory of their own on the stack: the caller's @t gets
 * them rounded, and the products take them as they were.
 */
#include "kernels/ref/internal.h"

/* t[j] = sum of x[k] * a[j][k] */
static void narrow_row(const struct kern_adapt *ad, const struct kern_adapt_part *p,
		       const float *x, double *t)
{
	u32 j, k;

	for (j = 0; j < p->rank; j++) {
		t[j] = 0;
		for (k = 0; k < ad->cols; k++)
			t[j] += x[k] * kern_ref_load(p->a, ad->dtype,
						     (u64)j * ad->cols + k);
	}
}

/* y[n] += scale * sum of t[j] * b[j][n] */
static void widen_row(const struct kern_adapt *ad, const struct kern_adapt_part *p,
		      const double *t, float *y)
{
	double sum;
	u32 j, n;

	for (n = 0; n < p->outs; n++) {
		sum = 0;
		for (j = 0; j < p->rank; j++)
			sum += t[j] * kern_ref_load(p->b, ad->dtype,
						    (u64)j * p->outs + n);
		y[n] = y[n] + p->scale * sum;
	}
}

void kern_ref_adapt(struct kern_ctx *ctx, const struct kern_adapt *a)
{
	const u64 x_ld = a->x_ld ? a->x_ld : a->cols;
	const struct kern_adapt_part *p;
	double t[KERN_MAX_ADAPT_RANK];
	float *to = a->t;
	u32 i, j;

	for (p = a->parts; p < a->parts + a->nr; p++) {
		for (i = 0; i < p->m; i++) {
			narrow_row(a, p, a->x + p->rows[i] * x_ld, t);
			widen_row(a, p, t, p->y + p->rows[i] *
					   (p->y_ld ? p->y_ld : p->outs));
			for (j = 0; j < p->rank; j++)
				*to++ = t[j];
		}
	}
}
