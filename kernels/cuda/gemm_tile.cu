// SPDX-License-Identifier: Apache-2.0
/*
 * gemm_tile.cu - products of many rows with bf16 weights, fast mode
 *
 * For shapes that cuBLASLt does not take, or if it is missing.  k_gemm_narrow rounds
 * x to bf16.  Then a block has 128 rows of x and 128 of W, 32 columns at a time in a
 * ring of shared memory that asynchronous copies fill ahead, and each of its 8
 * warps computes 64 x 32 outputs on tensor cores.  Rows of the ring are 80 bytes
 * apart, so eight of them are in different banks.
 */
#include "kernels/cuda/gemm_dev.cuh"

static constexpr u32 THREADS = 256;
static constexpr u32 KT = 32;
static constexpr u32 PITCH = 40;	/* elements */
static constexpr u32 STAGES = 4;
static constexpr u32 STAGE = (GEMM_TILE_M + GEMM_TILE_N) * PITCH;

KERNEL(k_gemm_narrow, 256)(struct k_gemm_narrow_args a)
{
	const u32 words = a.to_ld / 2;
	const u64 n = (u64)a.m * words, step = (u64)gridDim.x * blockDim.x;
	u64 i;

	for (i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
		const u32 m = i / words, k = i % words * 2;
		const float *x = a.x + m * a.x_ld;

		a.to[i] = bf16_pair(k < a.k ? x[k] : 0.0f,
				    k + 1 < a.k ? x[k + 1] : 0.0f);
	}
}

KERNEL(k_gemm_finish, 256)(struct k_gemm_finish_args a)
{
	const u64 n = (u64)a.m * a.n, step = (u64)gridDim.x * blockDim.x;
	u64 i;

	for (i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
		const u32 col = i % a.n;
		float *y = a.y + i / a.n * a.y_ld + col;
		float v = *y;

		if (a.bias)
			v = add_rn(v, a.bias[col]);
		*y = a.settle ? bf16_to_f32(f32_to_bf16(v)) : v;
	}
}

/* Store 16 bytes of a row of W that is not aligned in memory. */
template <class S>
DEVICE void store_quad(S &sm, u32 at, const quad &q)
{
	u32 i;

#pragma unroll
	for (i = 0; i < 4; i++) {
		sm[at + 2 * i] = (u16)q.w[i];
		sm[at + 2 * i + 1] = (u16)(q.w[i] >> 16);
	}
}

/* Load tile @t of W, and of x, which is bf16 and padded with zeros up to x_ld. */
template <class S>
DEVICE void fetch(const struct gemm_args &a, const struct gemm_part &p, u32 m0,
		  u32 n0, u32 t, S &sm, u32 to)
{
	u32 i, row, k, at;

#pragma unroll
	for (i = threadIdx.x; i < (GEMM_TILE_M + GEMM_TILE_N) * KT / 8;
	     i += THREADS) {
		row = i / (KT / 8);
		k = t * KT + i % (KT / 8) * 8;
		at = to + row * PITCH + i % (KT / 8) * 8;
		if (row < GEMM_TILE_M) {
			row = m0 + row;
			copy_async16(sm, at, (const u16 *)a.x +
				     min(row, a.m - 1) * a.x_ld + k,
				     row < a.m && k < a.x_ld);
			continue;
		}
		row = n0 + row - GEMM_TILE_M;
		const u16 *w = (const u16 *)p.w + (u64)min(row, p.n - 1) * a.k;

		if (a.w_vec)
			copy_async16(sm, at, w + k, row < p.n && k < a.k);
		else
			store_quad(sm, at, gemm_load_quad<KERN_BF16>(w, k, a.k,
								false));
	}
}

/* One tile: warp (y, x) of 2 by 4 has rows from 64 * y, outputs from 32 * x on. */
template <class S>
DEVICE void multiply(S &sm, u32 from, float (&sum)[4][4][4])
{
	const u32 lane = thread_lane();
	const u32 row = thread_warp() / 4 * 64 + lane % 16;
	const u32 col = thread_warp() % 4 * 32 + lane % 8 + lane / 16 * 8;
	const u32 x = from + row * PITCH + lane / 16 * 8;
	const u32 w = from + (GEMM_TILE_M + col) * PITCH + lane / 8 % 2 * 8;
	u32 k, i, j;

#pragma unroll
	for (k = 0; k < KT; k += 16) {
		u32 a[4][4], b[2][4];

#pragma unroll
		for (i = 0; i < 4; i++)
			mat_load4(a[i], sm, x + 16 * i * PITCH + k);
#pragma unroll
		for (j = 0; j < 2; j++)
			mat_load4(b[j], sm, w + 16 * j * PITCH + k);
#pragma unroll
		for (i = 0; i < 4; i++)
#pragma unroll
			for (j = 0; j < 4; j++) {
				const u32 pair[2] = { b[j / 2][j % 2 * 2],
						      b[j / 2][j % 2 * 2 + 1] };

				mma_bf16(sum[i][j], a[i], pair);
			}
	}
}

DEVICE void results(const struct gemm_args &a, const struct gemm_part &p,
		    u32 m0, u32 n0, const float (&sum)[4][4][4])
{
	u32 i, j, e, m, n;

	m0 += thread_warp() / 4 * 64 + thread_lane() / 4;
	n0 += thread_warp() % 4 * 32 + thread_lane() % 4 * 2;
#pragma unroll
	for (i = 0; i < 4; i++)
#pragma unroll
		for (j = 0; j < 4; j++)
#pragma unroll
			for (e = 0; e < 4; e++) {
				m = m0 + 16 * i + e / 2 * 8;
				n = n0 + 8 * j + e % 2;
				if (m < a.m && n < p.n)
					gemm_result(p, a.settle, m, n,
						    sum[i][j][e]);
			}
}

KERNEL(k_gemm_tile, THREADS)(struct k_gemm_tile_args args)
{
	const struct gemm_args &a = args.g;
	const struct gemm_part p = gemm_part_of(a, blockIdx.y);
	const u32 m0 = blockIdx.x * GEMM_TILE_M;
	const u32 n0 = (blockIdx.y - p.first) * GEMM_TILE_N;
	const u32 tiles = (a.k + KT - 1) / KT;
	float sum[4][4][4] = {};
	u32 t;
	DYN_SHARED(u16, sm);

	for (t = 0; t < tiles + STAGES - 1; t++) {
		if (t >= STAGES - 1) {
			copy_wait<STAGES - 2>();
			__syncthreads();
		}
		if (t < tiles)
			fetch(a, p, m0, n0, t, sm, t % STAGES * STAGE);
		copy_commit();
		if (t >= STAGES - 1)
			multiply(sm, (t + 1) % STAGES * STAGE, sum);
	}
	results(a, p, m0, n0, sum);
}
