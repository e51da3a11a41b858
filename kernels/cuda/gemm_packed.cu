// SPDX-License-Identifier: Apache-2.0
/*
 * gemm_packed.cu - products with packed weights of four and eight bits, fast mode
 *
 * The plan is that of gemm_skinny.cu: W goes from memory straight into registers, once,
 * and x is rounded to bf16 in shared memory.  Codes of packed.cuh become bf16 by a few
 * operations on pairs, without rounding.  The tensor cores multiply codes by x for the
 * columns that share a scale; that sum times the scale is added to the total.  What a
 * scale subtracts is the same for all its columns, so it is taken from the total as often
 * as the sum of x says.
 *
 * A block has GEMM_SKINNY_N rows of W, up to PACKED_M rows of x, and a range of K.
 */
#include "kernels/cuda/gemm_split.cuh"
#include "kernels/cuda/packed.cuh"

/* Empty words after a row of x: two rows 16 banks apart. */
static constexpr u32 X_PAD = 16;

/* The rows of x of this block. */
struct rows {
	u32	first;
	u32	nr;
};

/*
 * Round @chunk columns of x from @k on to bf16.  In each 32 columns the four pairs of a lane
 * are side by side.
 */
template <class S>
DEVICE void x_convert(const struct gemm_skinny_args &a, const struct rows &r,
		      S &xs, u32 pitch, u32 k)
{
	const struct gemm_args &g = a.g;
	const u32 quads = a.chunk / 4;
	u32 i, m, c, at;
	quad q;

	for (i = threadIdx.x; i < r.nr * quads; i += THREADS) {
		m = i / quads;
		c = i % quads * 4;
		q = gemm_load_quad<KERN_F32>((const float *)g.x +
					     (u64)(r.first + m) * g.x_ld, k + c,
					     g.k, g.x_vec && k + c + 4 <= g.k);
		at = m * pitch + c / 32 * 16 + c % 16 + c % 32 / 16 * 2;
		xs[at] = bf16_pair(bits_float(q.w[0]), bits_float(q.w[1]));
		xs[at + 1] = bf16_pair(bits_float(q.w[2]), bits_float(q.w[3]));
	}
}

/*
 * Sums of rounded x over each group of columns of the chunk, for all @rows of x.  The
 * columns of a group of 32 or 64 are side by side.
 */
template <class S>
DEVICE void x_sums(const struct gemm_packed_args &a, const struct rows &r, S &xs,
		   u32 pitch, u32 to, u32 rows)
{
	const u32 words = a.p.group / 2, nr = a.s.chunk / a.p.group;
	u32 i, w, m, e;

	for (i = threadIdx.x; i < nr * rows; i += THREADS) {
		float sum = 0.0f;

		m = i % rows;
		for (w = 0; m < r.nr && w < words; w++) {
			e = xs[m * pitch + i / rows * words + w];
			sum += bits_float(e << 16);
			sum += bits_float(e & 0xffff0000u);
		}
		xs[to + i] = float_bits(sum);
	}
}

/* Add the sums of a group to the totals. */
template <int NB, class S>
DEVICE void group_ends(const struct packed_scales (&s)[2], S &xs, u32 sums,
		       bool less, float (&acc)[NB][4], float (&sum)[NB][4])
{
	u32 j, i;

#pragma unroll
	for (j = 0; j < NB; j++)
#pragma unroll
		for (i = 0; i < 4; i++) {
			sum[j][i] = fma_rn(s[i / 2].by, acc[j][i], sum[j][i]);
			acc[j][i] = 0.0f;
			if (less)
				sum[j][i] = fma_rn(-s[i / 2].less,
					bits_float(xs[sums + sum_m(j, i)]),
					sum[j][i]);
		}
}

/* Multiply a unit; @c: its first column in the chunk of x. */
template <int CODES, int NB, class S>
DEVICE void unit_multiply(const struct gemm_packed_args &a, const struct rows &r,
			  const struct unit<CODES> &u, S &xs, u32 pitch,
			  u32 sums, u32 c, float (&sum)[NB][4])
{
	const u32 row = thread_lane() / 4, at = c / 2 + thread_lane() % 4 * 4;
	const u32 zero = 0x43004300u + a.p.zero * 0x00010001u;
	const bool less = packed_has_less(a.p.scale);
	float acc[NB][4] = {};
	u32 j, n, h;

#pragma unroll
	for (j = 0; j < 4; j++) {
		u32 w[4];

		unit_codes<CODES>(u, j, zero, w);
#pragma unroll
		for (n = 0; n < NB; n++) {
			quad x = gemm_zero();

			if (row + 8 * n < r.nr)
				x = sh_load16(xs, (row + 8 * n) * pitch + at +
						  j / 2 * 16);
			const u32 b[2] = { x.w[j % 2 * 2], x.w[j % 2 * 2 + 1] };

			mma_bf16(acc[n], w, b);
		}
		if ((j + 1) * 16 % a.p.group)
			continue;
		const u32 i = j * 16 / a.p.group;
		struct packed_scales s[2];

#pragma unroll
		for (h = 0; h < 2; h++)
			s[h] = unit_scale<CODES>(u, a.p, i, h);
		group_ends<NB>(s, xs, sums + (c / a.p.group + i) * 8 * NB, less,
			       acc, sum);
	}
}

/* Sum up the block's range of K. */
template <int CODES, int NB, class S>
DEVICE void sum_range(const struct gemm_packed_args &a, const struct gemm_part &p,
		      const struct rows &r, S &xs, float (&sum)[NB][4])
{
	const struct gemm_skinny_args &s = a.s;
	const u32 panel = min((blockIdx.x - p.first) * (GEMM_SKINNY_N / 16) +
			      thread_warp(), (p.n - 1) / PACKED_ROWS);
	const u8 *w = (const u8 *)p.w + panel * a.p.panel;
	const u32 first = blockIdx.y * s.range;
	const u32 end = min(s.g.k, first + s.range);
	const u32 pitch = s.chunk / 2 + X_PAD, sums = r.nr * pitch;
	struct unit<CODES> now, next;
	u32 k, c = 0;

	unit_load<CODES>(next, a.p, w + (u64)(first / PACKED_COLS) * a.p.unit);
	for (k = first; k < end; k += PACKED_COLS, c += PACKED_COLS) {
		now = next;
		if (k + PACKED_COLS < end)
			unit_load<CODES>(next, a.p, w + (u64)(k / PACKED_COLS + 1) *
						     a.p.unit);
		if (k == first || c == s.chunk) {
			__syncthreads();
			x_convert(s, r, xs, pitch, k);
			__syncthreads();
			if (packed_has_less(a.p.scale)) {
				x_sums(a, r, xs, pitch, sums, 8 * NB);
				__syncthreads();
			}
			c = 0;
		}
		unit_multiply<CODES, NB>(a, r, now, xs, pitch, sums, c, sum);
	}
}

template <int NB>
DEVICE void packed(const struct gemm_packed_args &a, const struct gemm_part &p)
{
	DYN_SHARED(u32, xs);
	SHARED(u32, last, 1);
	const struct rows r = { blockIdx.z * PACKED_M,
				min(a.s.g.m - blockIdx.z * PACKED_M, PACKED_M) };
	float sum[NB][4] = {};

	if (a.p.codes == PACKED_U4)
		sum_range<PACKED_U4, NB>(a, p, r, xs, sum);
	else if (a.p.codes == PACKED_FP4)
		sum_range<PACKED_FP4, NB>(a, p, r, xs, sum);
	else if (a.p.codes == PACKED_S8)
		sum_range<PACKED_S8, NB>(a, p, r, xs, sum);
	else
		sum_range<PACKED_E4M3, NB>(a, p, r, xs, sum);
	put_sums<NB>(a.s, p, r.first, r.nr, sum);
	if (a.s.splits > 1 && last_of_splits(a.s, last))
		add_splits(a.s, p);
}

/* A product of a group. */
template <int NB>
DEVICE void group_packed(const struct group_packed_args &a)
{
	const u32 i = blockIdx.x / a.group.per;
	const struct gemm_group_part &q = a.group.part[i];
	struct gemm_packed_args p = a.p;

	p.s.g.x = q.x;
	p.s.g.m = q.m;
	packed<NB>(p, group_part(a.p.s.g, q, i * a.group.per));
}

#define GEMM_PACKED(name, nb)						\
KERNEL(name, THREADS)(struct name##_args a)				\
{									\
	packed<nb>(a.a, gemm_part_of(a.a.s.g, blockIdx.x));		\
}

GEMM_PACKED(k_gemm_packed8, 1)
GEMM_PACKED(k_gemm_packed16, 2)
GEMM_PACKED(k_gemm_packed32, 4)
GEMM_PACKED(k_gemm_packed64, 8)

#define GROUP_PACKED(name, nb)						\
KERNEL(name, THREADS)(struct name##_args a)				\
{									\
	group_packed<nb>(a.a);						\
}

GROUP_PACKED(k_group_packed8, 1)
GROUP_PACKED(k_group_packed16, 2)
GROUP_PACKED(k_group_packed32, 4)
GROUP_PACKED(k_group_packed64, 8)
