// SPDX-License-Identifier: Apache-2.0
/*
 * moe.cu - rows choose their experts, and add up the outputs of these
 *
 * One thread routes a row: it finds the experts one after the other, each the largest
 * of those that are left, and adds exponentials in the order of ranks, or of all
 * experts' numbers.  A block adds up the outputs of a row's experts, by quads and in
 * the order of ranks.  So a row's bits depend on the row alone.
 */
#include "kernels/cuda/fmath.cuh"

/* Does @x come before @best, which has the lower number?  NaN comes last. */
DEVICE bool comes_first(float x, float best)
{
	return x > best || (best != best && x == x);
}

/* The largest logit of group @g. */
DEVICE float group_best(const struct k_route_args &a, const float *logits, u32 g)
{
	const u32 size = a.experts / a.groups;
	float best = logits[g * size];
	u32 i;

	for (i = 1; i < size; i++)
		if (comes_first(logits[g * size + i], best))
			best = logits[g * size + i];
	return best;
}

/* One bit for each group whose experts can be chosen. */
DEVICE u64 choose_groups(const struct k_route_args &a, const float *logits)
{
	u64 chosen = 0;
	u32 n, g;

	for (n = 0; n < a.groups_chosen; n++) {
		u32 at = a.groups;
		float best = 0.0f;

		for (g = 0; g < a.groups; g++) {
			const float x = group_best(a, logits, g);

			if (chosen >> g & 1 ||
			    (at < a.groups && !comes_first(x, best)))
				continue;
			at = g;
			best = x;
		}
		chosen |= 1ull << at;
	}
	return chosen;
}

DEVICE bool is_taken(const u32 *ids, u32 nr, u32 e)
{
	u32 i;

	for (i = 0; i < nr; i++)
		if (ids[i] == e)
			return true;
	return false;
}

/* The first of the experts that are left, after @nr of them. */
DEVICE u32 next_expert(const struct k_route_args &a, const float *logits,
		       u64 groups, const u32 *ids, u32 nr)
{
	const u32 size = a.experts / a.groups;
	u32 e, at = a.experts;

	for (e = 0; e < a.experts; e++) {
		if (!(groups >> (e / size) & 1) || is_taken(ids, nr, e))
			continue;
		if (at == a.experts || comes_first(logits[e], logits[at]))
			at = e;
	}
	return at;
}

DEVICE void route_row(const struct k_route_args &a, const float *logits,
		      u32 *ids, float *shares)
{
	const u64 groups = a.groups > 1 ? choose_groups(a, logits) : ~0ull;
	float sum = 0.0f, top;
	u32 i;

	for (i = 0; i < a.chosen; i++)
		ids[i] = next_expert(a, logits, groups, ids, i);
	top = logits[ids[0]];
	for (i = 0; i < (a.over_chosen ? a.chosen : a.experts); i++)
		sum = add_rn(sum, f_exp(sub_rn(logits[a.over_chosen ? ids[i] :
								      i], top)));
	for (i = 0; i < a.chosen; i++)
		shares[i] = settled(mul_rn(f_exp(sub_rn(logits[ids[i]], top)) /
					   sum, a.scale), a.settle);
}

KERNEL(k_route, 32)(struct k_route_args a)
{
	u32 row;

	for (row = blockIdx.x * blockDim.x + threadIdx.x; row < a.m;
	     row += gridDim.x * blockDim.x)
		route_row(a, a.logits + (u64)row * a.experts,
			  a.ids + (u64)row * a.chosen,
			  a.shares + (u64)row * a.chosen);
}

/* Four elements of the base of a row, times the sigmoid of its gate. */
DEVICE four base_load(const struct k_blend_args &a, u32 row, u32 q)
{
	four base = row_load(a.base + (u64)row * a.d, q, a.d, a.vec);
	u32 i;

	if (a.gates) {
		const float by = 1.0f / add_rn(1.0f, f_exp(-a.gates[row]));

#pragma unroll
		for (i = 0; i < 4; i++)
			base.v[i] = mul_rn(base.v[i], by);
	}
	return base;
}

KERNEL(k_blend, 256)(struct k_blend_args a)
{
	u32 row, q, i, r;

	for (row = blockIdx.x; row < a.m; row += gridDim.x) {
		const u64 at = (u64)row * a.chosen, out = (u64)row * a.d;

		for (q = threadIdx.x; 4 * q < a.d; q += blockDim.x) {
			four sum = { { 0.0f, 0.0f, 0.0f, 0.0f } };

			if (a.base)
				sum = base_load(a, row, q);
			for (r = 0; r < a.chosen; r++) {
				const four y = row_load(a.y + (u64)a.slots[at +
							r] * a.d, q, a.d,
							a.vec);

#pragma unroll
				for (i = 0; i < 4; i++)
					sum.v[i] = fma_rn(a.shares[at + r],
							  y.v[i], sum.v[i]);
			}
#pragma unroll
			for (i = 0; i < 4; i++)
				sum.v[i] = settled(sum.v[i], a.settle);
			row_store(a.out + out, q, a.d, a.vec, sum);
		}
	}
}
