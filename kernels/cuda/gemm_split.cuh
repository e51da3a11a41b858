/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gemm_split.cuh - sums of few rows of x, if K is split over blocks or not
 *
 * A block of four warps has GEMM_SKINNY_N rows of W, 16 in each warp, as the first factor
 * of mma_bf16(), and rows of x as the second.
 */
#ifndef KERNELS_CUDA_GEMM_SPLIT_CUH
#define KERNELS_CUDA_GEMM_SPLIT_CUH

#include "kernels/cuda/gemm_dev.cuh"

static constexpr u32 THREADS = 128;

/* Row of x, and row of the block's W, of sum (@j, @i) of a thread. */
DEVICE u32 sum_m(u32 j, u32 i)
{
	return 8 * j + thread_lane() % 4 * 2 + i % 2;
}

DEVICE u32 sum_n(u32 i)
{
	return thread_warp() * 16 + thread_lane() / 4 + i / 2 * 8;
}

/* Is this the last block of its splits?  If so it sees the sums of all of them. */
template <class S>
DEVICE bool last_of_splits(const struct gemm_skinny_args &a, S &last)
{
	u32 seen;

	fence_device();
	__syncthreads();
	if (!threadIdx.x) {
		seen = atomicAdd(&a.ticket[blockIdx.x], 1u);
		last[0] = seen == a.splits - 1;
		if (seen == a.splits - 1)
			a.ticket[blockIdx.x] = 0;
	}
	__syncthreads();
	fence_device();
	return last[0];
}

/* Add up the sums of the ranges, in order. */
DEVICE void add_splits(const struct gemm_skinny_args &a,
		       const struct gemm_part &p)
{
	const u64 pitch = (u64)a.g.nr_blocks * GEMM_SKINNY_N;
	const u32 n0 = (blockIdx.x - p.first) * GEMM_SKINNY_N;
	u32 i, m, n, z;

	for (i = threadIdx.x; i < a.g.m * GEMM_SKINNY_N; i += THREADS) {
		const float *from = a.partial +
				    (u64)blockIdx.x * GEMM_SKINNY_N;
		float v = 0.0f;

		m = i / GEMM_SKINNY_N;
		n = i % GEMM_SKINNY_N;
#pragma unroll 4
		for (z = 0; z < a.splits; z++)
			v += from[((u64)z * a.g.m + m) * pitch + n];
		if (n0 + n < p.n)
			gemm_result(p, a.g.settle, m, n0 + n, v);
	}
}

/* Store the sums of @m rows of x from @m0 on; @m0 is 0 if K is split. */
template <int NB>
DEVICE void put_sums(const struct gemm_skinny_args &a,
		     const struct gemm_part &p, u32 m0, u32 m,
		     const float (&sum)[NB][4])
{
	const u64 pitch = (u64)a.g.nr_blocks * GEMM_SKINNY_N;
	const u32 n0 = (blockIdx.x - p.first) * GEMM_SKINNY_N;
	u32 i, j, row, n;

#pragma unroll
	for (j = 0; j < NB; j++)
#pragma unroll
		for (i = 0; i < 4; i++) {
			row = sum_m(j, i);
			n = sum_n(i);
			if (row >= m)
				continue;
			if (a.splits > 1)
				a.partial[((u64)blockIdx.y * a.g.m + row) *
					  pitch + (u64)blockIdx.x *
					  GEMM_SKINNY_N + n] = sum[j][i];
			else if (n0 + n < p.n)
				gemm_result(p, a.g.settle, m0 + row, n0 + n,
					    sum[j][i]);
		}
}

#endif /* KERNELS_CUDA_GEMM_SPLIT_CUH */
