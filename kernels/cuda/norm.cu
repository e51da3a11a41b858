// SPDX-License-Identifier: Apache-2.0
/*
 * norm.cu - norms of rows, with or without adding the residual first
 *
 * A warp takes a short row, a block a long one; the number of threads of a row
 * depends only on its length.  Thread t of T sums up the quads t, t + T, ... in
 * order, element by element.  A fixed tree adds up the sums of a warp, and the
 * sums of warps are added in order.  So the bits of a row depend only on the row.
 *
 * Every thread reads and writes only its own quads, so y may be x.  If add is
 * added to x first, the thread later reads quads that it wrote itself.
 */
#include "kernels/cuda/fmath.cuh"

#define NORM_WARPS	16u

/* The row of this thread's group, and the thread's place in the group. */
struct place {
	u32 row;
	u32 lane;		/* among the row's threads */
	u32 step;		/* number of the row's threads */
};

DEVICE place place_of(const struct k_norm_args &a)
{
	place p;

	p.step = a.threads;
	p.lane = a.threads == WARP ? thread_lane() : threadIdx.x;
	p.row = a.threads == WARP ?
		blockIdx.x * (blockDim.x / WARP) + thread_warp() : blockIdx.x;
	return p;
}

/* x += add for this thread's quads of the row. */
DEVICE void add_first(const struct k_norm_args &a, const place &p, float *x)
{
	const float *add = a.add + (u64)p.row * a.d;
	u32 q, i;

	for (q = p.lane; 4 * q < a.d; q += p.step) {
		four f = row_load(x, q, a.d, a.vec);
		const four g = row_load(add, q, a.d, a.vec);

#pragma unroll
		for (i = 0; i < 4; i++)
			f.v[i] = settled(add_rn(f.v[i], g.v[i]), a.settle);
		row_store(x, q, a.d, a.vec, f);
	}
}

/* The sum of x - mean, or of its squares, over this thread's quads. */
DEVICE float own_sum(const struct k_norm_args &a, const place &p,
		     const float *x, float mean, bool square)
{
	float sum = 0.0f;
	u32 q, i;

	for (q = p.lane; 4 * q < a.d; q += p.step) {
		const four f = row_load(x, q, a.d, a.vec);

#pragma unroll
		for (i = 0; i < 4; i++) {
			const float e = 4 * q + i < a.d ?
					sub_rn(f.v[i], mean) : 0.0f;

			sum = square ? fma_rn(e, e, sum) : add_rn(sum, e);
		}
	}
	return sum;
}

/* y = (x - mean) * inv * w + bias for this thread's quads. */
DEVICE void write_norm(const struct k_norm_args &a, const place &p,
		       const float *x, float mean, float inv)
{
	const float *set = a.w + (u64)(p.row % a.sets) * a.d;
	float *y = a.y + (u64)p.row * a.d;
	u32 q, i;

	for (q = p.lane; 4 * q < a.d; q += p.step) {
		four f = row_load(x, q, a.d, a.vec);
		const four w = row_load(set, q, a.d, a.vec);
		four b = { { 0.0f, 0.0f, 0.0f, 0.0f } };

		if (a.bias)
			b = row_load(a.bias, q, a.d, a.vec);
#pragma unroll
		for (i = 0; i < 4; i++) {
			float v = mul_rn(mul_rn(sub_rn(f.v[i], mean), inv),
					 w.v[i]);

			if (a.bias)
				v = add_rn(v, b.v[i]);
			f.v[i] = settled(v, a.settle);
		}
		row_store(y, q, a.d, a.vec, f);
	}
}

/* The sum over the row's threads; a block uses @part, from @at on. */
DEVICE float row_sum(SHARED_PTR(float) part, u32 at, float own, u32 threads)
{
	float sum = own;
	u32 i;

#pragma unroll
	for (i = WARP / 2; i; i /= 2)
		sum = add_rn(sum, __shfl_xor_sync(FULL_MASK, sum, i));
	if (threads == WARP)
		return sum;
	if (!thread_lane())
		part[at + thread_warp()] = sum;
	__syncthreads();
	sum = part[at];
	for (i = 1; i < threads / WARP; i++)
		sum = add_rn(sum, part[at + i]);
	return sum;
}

KERNEL(k_rmsnorm, 512)(struct k_norm_args a)
{
	SHARED(float, part, NORM_WARPS);
	const place p = place_of(a);
	float *x = a.x + (u64)p.row * a.d;
	const bool there = p.row < a.m;
	float sum = 0.0f;

	if (there && a.add)
		add_first(a, p, x);
	if (there)
		sum = own_sum(a, p, x, 0.0f, true);
	sum = row_sum(part, 0, sum, a.threads);
	sum = add_rn(sum / (float)a.d, a.eps);
	if (there)
		write_norm(a, p, x, 0.0f, 1.0f / sqrtf(sum));
}

KERNEL(k_layernorm, 512)(struct k_norm_args a)
{
	SHARED(float, part, 2 * NORM_WARPS);
	const place p = place_of(a);
	float *x = a.x + (u64)p.row * a.d;
	const bool there = p.row < a.m;
	float mean = 0.0f, var = 0.0f;

	if (there && a.add)
		add_first(a, p, x);
	if (there)
		mean = own_sum(a, p, x, 0.0f, false);
	mean = row_sum(part, 0, mean, a.threads) / (float)a.d;
	if (there)
		var = own_sum(a, p, x, mean, true);
	var = row_sum(part, NORM_WARPS, var, a.threads);
	var = add_rn(var / (float)a.d, a.eps);
	if (there)
		write_norm(a, p, x, mean, 1.0f / sqrtf(var));
}
