// SPDX-License-Identifier: Apache-2.0
/*
 * v_moe.c - the ops of layers with experts
 *
 * Rows are independent, and the threads share them out.  A row's experts are found
 * one after the other, each the largest of those that are left.  Exponentials are
 * added in the order of ranks, or of all experts' numbers, and outputs of experts in
 * the order of ranks.  So a row's bits do not depend on the other rows, nor on where
 * the outputs of its experts are.
 */
#include "kernels/cpu/vec.h"

struct swiglu_job {
	const float	*gate;
	const float	*up;
	float		*y;
	u64		ld;
	u32		m;
	u32		d;
	float		alpha;
	float		limit;
	u32		rows;		/* of an item */
};

/* The smaller one; @x if it is NaN. */
static __inline_always vf vf_at_most(vf x, float limit)
{
	return -vf_max(vf_set(-limit), -x);
}

static __inline_always vf swiglu(const struct swiglu_job *j, vf g, vf u)
{
	g = vf_at_most(g, j->limit);
	u = vf_at_most(vf_max(vf_set(-j->limit), u), j->limit);
	return g / (vf_set(1.0f) + vf_exp(g * -j->alpha)) *
	       (u + vf_set(1.0f));
}

static void swiglu_row(const struct swiglu_job *j, const float *gate,
		       const float *up, float *y)
{
	const u32 d = j->d;
	u32 i;

	for (i = 0; i + VW <= d; i += VW)
		vf_store(y + i, swiglu(j, vf_load(gate + i), vf_load(up + i)));
	if (i < d)
		vf_store_part(y + i,
			      swiglu(j, vf_load_part(gate, i, d - i, KERN_F32),
				     vf_load_part(up, i, d - i, KERN_F32)), d - i);
}

static void swiglu_item(void *arg, u32 i)
{
	const struct swiglu_job *j = arg;
	u32 r, end = min(j->m, (i + 1) * j->rows);

	for (r = i * j->rows; r < end; r++)
		swiglu_row(j, j->gate + r * j->ld, j->up + r * j->ld,
			   j->y + (u64)r * j->d);
}

void KERN_FN(swiglu)(struct kern_ctx *ctx, const float *gate, const float *up,
		     u64 ld, u32 m, u32 d, float alpha, float limit, float *y)
{
	struct swiglu_job j = {
		.gate = gate, .up = up, .y = y, .m = m, .d = d,
		.ld = ld ? ld : d, .alpha = alpha, .limit = limit,
		.rows = max((u64)1, KERN_PARALLEL_MIN / 8 / max(d, 1u)),
	};

	if ((u64)m * d < KERN_PARALLEL_MIN / 2)
		ctx = NULL;
	kern_parallel(ctx, DIV_ROUND_UP(m, j.rows), swiglu_item, &j);
}

/*
 * The largest of @nr numbers whose bit in @taken is clear, the first of equal ones;
 * NaN comes last.
 */
static u32 largest_left(const float *x, u32 nr, const u64 *taken)
{
	u32 i, best = nr;

	for (i = 0; i < nr; i++) {
		if (taken[i / 64] >> (i % 64) & 1)
			continue;
		if (best == nr || x[i] > x[best] ||
		    (x[best] != x[best] && x[i] == x[i]))
			best = i;
	}
	return best;
}

static void take(u64 *taken, u32 i)
{
	taken[i / 64] |= 1ull << (i % 64);
}

/* Take the experts of all groups that are not chosen. */
static void take_groups(const struct kern_route *r, const float *logits,
			u64 *taken)
{
	const u32 size = r->experts / r->groups;
	float best[KERN_MAX_EXPERT_GROUPS];
	const u64 none[KERN_MAX_EXPERTS / 64] = { 0 };
	u64 chosen = 0;
	u32 i;

	for (i = 0; i < r->groups; i++)
		best[i] = logits[i * size +
				 largest_left(logits + i * size, size, none)];
	for (i = 0; i < r->groups_chosen; i++)
		take(&chosen, largest_left(best, r->groups, &chosen));
	for (i = 0; i < r->experts; i++)
		if (!(chosen >> (i / size) & 1))
			take(taken, i);
}

/* x[i] = exp(x[i] - top), and the sum in order. */
static float exps(float *x, u32 nr, float top)
{
	float sum = 0;
	u32 i;

	for (i = 0; i < nr; i += VW)
		vf_store_part(x + i, vf_exp_down(vf_load_part(x, i, min(nr - i,
						 (u32)VW), KERN_F32) - top),
			      min(nr - i, (u32)VW));
	for (i = 0; i < nr; i++)
		sum += x[i];
	return sum;
}

static void route_row(const struct kern_route *r, const float *logits, u32 *ids,
		      float *shares)
{
	u64 taken[KERN_MAX_EXPERTS / 64] = { 0 };
	float all[KERN_MAX_EXPERTS], sum;
	u32 i;

	if (r->groups > 1)
		take_groups(r, logits, taken);
	for (i = 0; i < r->chosen; i++) {
		ids[i] = largest_left(logits, r->experts, taken);
		take(taken, ids[i]);
		shares[i] = logits[ids[i]];
	}
	sum = exps(shares, r->chosen, logits[ids[0]]);
	if (!r->over_chosen) {
		memcpy(all, logits, r->experts * sizeof(*all));
		sum = exps(all, r->experts, logits[ids[0]]);
	}
	for (i = 0; i < r->chosen; i++)
		shares[i] = shares[i] / sum * r->scale;
}

#define ROUTE_ROWS	16u	/* of an item */

static void route_item(void *arg, u32 item)
{
	const struct kern_route *r = arg;
	u64 i, end = min(r->m, (item + 1) * ROUTE_ROWS);

	for (i = (u64)item * ROUTE_ROWS; i < end; i++)
		route_row(r, r->logits + i * r->experts, r->ids + i * r->chosen,
			  r->shares + i * r->chosen);
}

void KERN_FN(route)(struct kern_ctx *ctx, const struct kern_route *r)
{
	struct kern_route job = *r;

	if ((u64)r->m * r->experts * r->chosen < KERN_PARALLEL_MIN)
		ctx = NULL;
	kern_parallel(ctx, DIV_ROUND_UP(r->m, ROUTE_ROWS), route_item, &job);
}

static void blend_row(const struct kern_blend *b, u64 row)
{
	const float *shares = b->shares + row * b->chosen;
	const u32 *slots = b->slots + row * b->chosen;
	const float *base = b->base ? b->base + row * b->d : NULL;
	vf sum, by = vf_set(1.0f);
	u32 i, j, n;

	if (b->gates)
		by = by / (by + vf_exp(vf_set(-b->gates[row])));
	for (j = 0; j < b->d; j += VW) {
		n = min(b->d - j, (u32)VW);
		sum = base ? vf_load_part(base, j, n, KERN_F32) : vf_set(0);
		if (b->gates)
			sum *= by;
		for (i = 0; i < b->chosen; i++)
			sum = vf_fma(vf_set(shares[i]),
				     vf_load_part(b->y, (u64)slots[i] * b->d + j,
						  n, KERN_F32), sum);
		vf_store_part(b->out + row * b->d + j, sum, n);
	}
}

static void blend_item(void *arg, u32 row)
{
	blend_row(arg, row);
}

void KERN_FN(blend)(struct kern_ctx *ctx, const struct kern_blend *b)
{
	struct kern_blend job = *b;

	if ((u64)b->m * b->d * (b->chosen + 1) < KERN_PARALLEL_MIN / 2)
		ctx = NULL;
	kern_parallel(ctx, b->m, blend_item, &job);
}
