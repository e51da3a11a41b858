// SPDX-License-Identifier: Apache-2.0
/*
 * gemm_skinny.cu - products of few rows with bf16 weights, fast mode
 *
 * These products are bound by reading W.  So W is loaded from memory directly into
 * the registers that the tensor cores read, 16 bytes at a time, once, and never
 * through shared memory.  Rows of W are the 16 rows of a multiplication, rows of x
 * its 8 columns.  A multiplication may take K in any order that both operands
 * share.  So the 8 elements of a row that a thread loads are its share of two
 * multiplications, and the same 8 elements of a row of x are side by side in shared
 * memory; each block rounds x to bf16 once.
 *
 * A warp has 16 rows of W; a block has 4 warps with the same range of K.
 * GEMM_SKINNY_K columns of W are loaded while as many are multiplied.  If N alone
 * does not give enough blocks, K is split over blocks.  Each block writes its sums,
 * and the block that takes the last ticket adds them up in the order of the ranges,
 * so the order in which blocks end does not matter.
 */
#include "kernels/cuda/gemm_split.cuh"

static constexpr u32 STEPS = GEMM_SKINNY_K / 32;
/* Empty words after a row of x: two rows 16 banks apart. */
static constexpr u32 X_PAD = 16;

/* STEPS times 32 columns of the rows g and g + 8 of the warp. */
struct batch {
	quad	q[STEPS][2];
};

DEVICE void batch_load(struct batch &b, const u8 *lo, const u8 *hi, u32 k,
		       u32 end)
{
	u32 i, at;

#pragma unroll
	for (i = 0; i < STEPS; i++) {
		at = k + 32 * i + thread_lane() % 4 * 8;
		if (at < end) {
			b.q[i][0] = gl_stream16(lo + 2ull * at);
			b.q[i][1] = gl_stream16(hi + 2ull * at);
		} else {
			b.q[i][0] = b.q[i][1] = gemm_zero();
		}
	}
}

/* Convert @chunk columns of x from @k on to pairs of bf16. */
template <class S>
DEVICE void x_convert(const struct gemm_skinny_args &a, S &xs, u32 pitch, u32 k)
{
	const struct gemm_args &g = a.g;
	const u32 quads = a.chunk / 4;
	u32 i, m, c;
	quad q;

	for (i = threadIdx.x; i < g.m * quads; i += THREADS) {
		m = i / quads;
		c = i % quads * 4;
		q = gemm_load_quad<KERN_F32>((const float *)g.x + m * g.x_ld, k + c,
					g.k, g.x_vec && k + c + 4 <= g.k);
		xs[m * pitch + c / 2] = bf16_pair(bits_float(q.w[0]),
						  bits_float(q.w[1]));
		xs[m * pitch + c / 2 + 1] = bf16_pair(bits_float(q.w[2]),
						      bits_float(q.w[3]));
	}
}

/* @c: first column of the batch in the chunk of x. */
template <int NB, class S>
DEVICE void batch_multiply(const struct batch &b, S &xs, u32 pitch, u32 c,
			   u32 m, float (&sum)[NB][4])
{
	const u32 row = thread_lane() / 4, at = c / 2 + thread_lane() % 4 * 4;
	u32 i, j;

#pragma unroll
	for (i = 0; i < STEPS; i++) {
		const quad lo = b.q[i][0], hi = b.q[i][1];
		const u32 a0[4] = { lo.w[0], hi.w[0], lo.w[1], hi.w[1] };
		const u32 a1[4] = { lo.w[2], hi.w[2], lo.w[3], hi.w[3] };

#pragma unroll
		for (j = 0; j < NB; j++) {
			quad x = gemm_zero();

			if (row + 8 * j < m)
				x = sh_load16(xs, (row + 8 * j) * pitch + at +
						  16 * i);
			const u32 b0[2] = { x.w[0], x.w[1] };
			const u32 b1[2] = { x.w[2], x.w[3] };

			mma_bf16(sum[j], a0, b0);
			mma_bf16(sum[j], a1, b1);
		}
	}
}

/* Sum up the block's range of K. */
template <int NB, class S>
DEVICE void sum_range(const struct gemm_skinny_args &a,
		      const struct gemm_part &p, S &xs, float (&sum)[NB][4])
{
	const u32 n = (blockIdx.x - p.first) * GEMM_SKINNY_N + sum_n(0);
	const u8 *w = (const u8 *)p.w;
	const u8 *lo = w + 2ull * a.g.k * min(n, p.n - 1);
	const u8 *hi = w + 2ull * a.g.k * min(n + 8, p.n - 1);
	const u32 first = blockIdx.y * a.range;
	const u32 end = min(a.g.k, first + a.range);
	const u32 pitch = a.chunk / 2 + X_PAD;
	struct batch now, next;
	u32 k, c = 0;

	batch_load(next, lo, hi, first, end);
	for (k = first; k < end; k += GEMM_SKINNY_K, c += GEMM_SKINNY_K) {
		now = next;
		batch_load(next, lo, hi, k + GEMM_SKINNY_K, end);
		if (k == first || c == a.chunk) {
			__syncthreads();
			x_convert(a, xs, pitch, k);
			__syncthreads();
			c = 0;
		}
		batch_multiply<NB>(now, xs, pitch, c, a.g.m, sum);
	}
}

template <int NB>
DEVICE void skinny(const struct gemm_skinny_args &a, const struct gemm_part &p)
{
	DYN_SHARED(u32, xs);
	SHARED(u32, last, 1);
	float sum[NB][4] = {};

	sum_range<NB>(a, p, xs, sum);
	put_sums<NB>(a, p, 0, a.g.m, sum);
	if (a.splits > 1 && last_of_splits(a, last))
		add_splits(a, p);
}

/* A product of a group. */
template <int NB>
DEVICE void group_skinny(const struct group_skinny_args &a)
{
	const u32 i = blockIdx.x / a.group.per;
	const struct gemm_group_part &q = a.group.part[i];
	struct gemm_skinny_args s = a.s;

	s.g.x = q.x;
	s.g.m = q.m;
	skinny<NB>(s, group_part(a.s.g, q, i * a.group.per));
}

KERNEL(k_gemm_skinny8, THREADS)(struct k_gemm_skinny8_args a)
{
	skinny<1>(a.s, gemm_part_of(a.s.g, blockIdx.x));
}

KERNEL(k_gemm_skinny16, THREADS)(struct k_gemm_skinny16_args a)
{
	skinny<2>(a.s, gemm_part_of(a.s.g, blockIdx.x));
}

KERNEL(k_group_skinny8, THREADS)(struct k_group_skinny8_args a)
{
	group_skinny<1>(a.a);
}

KERNEL(k_group_skinny16, THREADS)(struct k_group_skinny16_args a)
{
	group_skinny<2>(a.a);
}
