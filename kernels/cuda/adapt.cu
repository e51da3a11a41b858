// SPDX-License-Identifier: Apache-2.0
/*
 * adapt.cu - add the products of adapters
 *
 * One launch for each phase and all parts; the blocks of a part are neighbours.  A block of
 * k_adapt_down has up to four rows of x and a row of a for each warp.  Lane l takes pieces of
 * eight columns, l, l + 32, ..., in a chain of fused multiply-adds by rising column; the sums
 * of lanes are added by a fixed tree.  A thread of k_adapt_up has one column of b for up to
 * four rows, and adds up in rising order of j.
 *
 * Rows of a block share the loads of a and b, and no sum.  So a row's bits depend on the row
 * and its adapter.
 */
#include "kernels/cuda/fmath.cuh"
#include "kernels/cuda/gemm_dev.cuh"

#define PIECE	8u	/* columns */

/* The last part with a first block of at most @block. */
DEVICE struct dev_adapt part_of(const struct k_adapt_args &a, u32 block, bool up)
{
	u32 low = 0, high = a.nr;

	while (high - low > 1) {
		const u32 mid = (low + high) / 2;

		if ((up ? a.parts[mid].up : a.parts[mid].down) <= block)
			low = mid;
		else
			high = mid;
	}
	return a.parts[low];
}

/* Columns @k to @k + PIECE - 1 of a row of a; zeros from @cols on. */
template <int TYPE>
DEVICE void load_piece(const void *row, u32 k, u32 cols, bool vec, float (&to)[PIECE])
{
	const u32 n = gemm_per_word<TYPE>();
	u32 i, w;

#pragma unroll
	for (i = 0; i < PIECE; i += 4 * n) {
		const quad q = gemm_load_quad<TYPE>(row, k + i, cols, vec);

#pragma unroll
		for (w = 0; w < 4 * n; w++)
			to[i + w] = gemm_widen<TYPE>(q.w[w / n], w % n);
	}
}

/* Row @j of a times @nr rows of x: the sums of this lane. */
template <int TYPE>
DEVICE void lane_sums(const struct k_adapt_args &a, const struct dev_adapt &p, u32 j,
		      u32 row, u32 nr, float (&sum)[ADAPT_ROWS])
{
	const u8 *from = (const u8 *)p.a + (u64)j * a.cols * (4 / gemm_per_word<TYPE>());
	float w[PIECE];
	u32 k, r, h, i;

	for (k = PIECE * thread_lane(); k < a.cols; k += PIECE * WARP) {
		load_piece<TYPE>(from, k, a.cols, p.vec, w);
#pragma unroll
		for (r = 0; r < ADAPT_ROWS; r++) {
			if (r >= nr)
				continue;
#pragma unroll
			for (h = 0; h < PIECE / 4; h++) {
				const four x = row_load(a.x + p.rows[row + r] * a.x_ld,
							k / 4 + h, a.cols, a.vec);

#pragma unroll
				for (i = 0; i < 4; i++)
					sum[r] = fma_rn(x.v[i], w[4 * h + i], sum[r]);
			}
		}
	}
}

KERNEL(k_adapt_down, 256)(struct k_adapt_args a)
{
	const struct dev_adapt p = part_of(a, blockIdx.x, false);
	const u32 groups = (p.rank + ADAPT_DOWN - 1) / ADAPT_DOWN;
	const u32 block = blockIdx.x - p.down, row = block / groups * ADAPT_ROWS;
	const u32 j = block % groups * ADAPT_DOWN + thread_warp();
	const u32 left = p.m - row, nr = left < ADAPT_ROWS ? left : ADAPT_ROWS;
	float sum[ADAPT_ROWS] = {};
	u32 r;

	if (j < p.rank) {
		if (a.dtype == KERN_F32)
			lane_sums<KERN_F32>(a, p, j, row, nr, sum);
		else
			lane_sums<KERN_BF16>(a, p, j, row, nr, sum);
	}
#pragma unroll
	for (r = 0; r < ADAPT_ROWS; r++) {
		const float all = warp_sum(sum[r]);

		if (j < p.rank && r < nr && !thread_lane())
			a.t[p.t + (u64)(row + r) * p.rank + j] = all;
	}
}

/* Element @i of b. */
DEVICE float b_at(const struct k_adapt_args &a, const struct dev_adapt &p, u64 i)
{
	if (a.dtype == KERN_F32)
		return ((const float *)p.b)[i];
	return bf16_to_f32(((const u16 *)p.b)[i]);
}

KERNEL(k_adapt_up, 256)(struct k_adapt_args a)
{
	const struct dev_adapt p = part_of(a, blockIdx.x, true);
	const u32 groups = (p.outs + ADAPT_UP - 1) / ADAPT_UP;
	const u32 block = blockIdx.x - p.up, row = block / groups * ADAPT_ROWS;
	const u32 n = block % groups * ADAPT_UP + threadIdx.x;
	const u32 left = p.m - row, nr = left < ADAPT_ROWS ? left : ADAPT_ROWS;
	const float *t = a.t + p.t + (u64)row * p.rank;
	float sum[ADAPT_ROWS] = {};
	u32 r, j;

	if (n >= p.outs)
		return;
	for (j = 0; j < p.rank; j++) {
		const float b = b_at(a, p, (u64)j * p.outs + n);

#pragma unroll
		for (r = 0; r < ADAPT_ROWS; r++)
			if (r < nr)
				sum[r] = fma_rn(t[(u64)r * p.rank + j], b, sum[r]);
	}
#pragma unroll
	for (r = 0; r < ADAPT_ROWS; r++)
		if (r < nr) {
			float *y = p.y + p.rows[row + r] * p.y_ld + n;

			*y = fma_rn(p.scale, sum[r], *y);
		}
}
