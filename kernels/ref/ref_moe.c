// SPDX-License-Identifier: Apache-2.0
/*
 * ref_moe.c - the plain reference of the ops of layers with experts
 *
 * An expert's rank is the number of experts before it in the order that kernels.h
 * defines; it is counted for each expert anew.  Logits that are no numbers come
 * last, by number.
 */
#include <math.h>

#include "kernels/ref/internal.h"

void kern_ref_swiglu(struct kern_ctx *ctx, const float *gate, const float *up,
		     u64 ld, u32 m, u32 d, float alpha, float limit, float *y)
{
	double g, u;
	u32 i, j;

	ld = ld ? ld : d;
	for (i = 0; i < m; i++) {
		for (j = 0; j < d; j++) {
			g = gate[i * ld + j];
			u = up[i * ld + j];
			g = g > limit ? limit : g;
			u = u > limit ? limit : u < -limit ? -limit : u;
			y[(u64)i * d + j] = g / (1 + exp(-alpha * g)) * (u + 1);
		}
	}
}

/* Does number @a of @x come before number @b? */
static bool before(const double *x, u32 a, u32 b)
{
	if (isnan(x[a]) || isnan(x[b]))
		return isnan(x[b]) && (!isnan(x[a]) || a < b);
	return x[a] > x[b] || (x[a] == x[b] && a < b);
}

static u32 rank_of(const double *x, u32 nr, u32 i)
{
	u32 j, rank = 0;

	for (j = 0; j < nr; j++)
		rank += before(x, j, i);
	return rank;
}

/* The logits of a row; those of groups that are not chosen become no numbers. */
static void read_row(const struct kern_route *r, const float *logits, double *x)
{
	const u32 size = r->experts / r->groups;
	double best[KERN_MAX_EXPERT_GROUPS];
	u32 i;

	for (i = 0; i < r->experts; i++) {
		x[i] = logits[i];
		if (i % size == 0 || x[i] > best[i / size] ||
		    isnan(best[i / size]))
			best[i / size] = x[i];
	}
	for (i = 0; i < r->experts; i++)
		if (rank_of(best, r->groups, i / size) >= r->groups_chosen)
			x[i] = NAN;
}

static void route_row(const struct kern_route *r, const float *logits, u32 *ids,
		      float *shares)
{
	double x[KERN_MAX_EXPERTS], sum = 0;
	u32 i, rank;

	read_row(r, logits, x);
	for (i = 0; i < r->experts; i++) {
		rank = rank_of(x, r->experts, i);
		if (rank < r->chosen)
			ids[rank] = i;
	}
	for (i = 0; i < (r->over_chosen ? r->chosen : r->experts); i++)
		sum += exp((double)logits[r->over_chosen ? ids[i] : i] -
			   logits[ids[0]]);
	for (i = 0; i < r->chosen; i++)
		shares[i] = exp((double)logits[ids[i]] - logits[ids[0]]) / sum *
			    r->scale;
}

void kern_ref_route(struct kern_ctx *ctx, const struct kern_route *r)
{
	u32 i;

	for (i = 0; i < r->m; i++)
		route_row(r, r->logits + (u64)i * r->experts,
			  r->ids + (u64)i * r->chosen,
			  r->shares + (u64)i * r->chosen);
}

void kern_ref_blend(struct kern_ctx *ctx, const struct kern_blend *b)
{
	u64 i, j, at;
	double sum, by;

	for (i = 0; i < b->m; i++) {
		by = b->gates ? 1 / (1 + exp(-(double)b->gates[i])) : 1;
		for (j = 0; j < b->d; j++) {
			sum = b->base ? b->base[i * b->d + j] * by : 0;
			for (at = i * b->chosen; at < (i + 1) * b->chosen; at++)
				sum += (double)b->shares[at] *
				       b->y[(u64)b->slots[at] * b->d + j];
			b->out[i * b->d + j] = sum;
		}
	}
}
