// SPDX-License-Identifier: Apache-2.0
/*
 * rope.cu - cosines and sines of positions, and the rotation of heads
 *
 * The table is computed in double arithmetic: the angle is reduced by multiples of
 * pi/2 in three parts, then Taylor series that are exact to double on
 * [-pi/4, pi/4], then one rounding to float.  The angle itself is the f32
 * product position * inv_freq, as in the reference implementations of these
 * models.  Valid for |angle| < 2^20 or so: the first part of pi/2 has
 * 33 bits, so its multiples are exact in double up to there.
 *
 * The table is never rounded to bf16: all models read it in f32.
 */
#include "kernels/cuda/fmath.cuh"

/* pi/2 as a sum of three; the first two have their low bits zero. */
#define PIO2_1		0x1.921fb544p+0
#define PIO2_2		0x1.0b4611a6p-34
#define PIO2_3		0x1.3198a2e037073p-69
#define TWO_OVER_PI	0x1.45f306dc9c883p-1
/* Adding and subtracting 1.5 * 2^52 rounds a double to an integer. */
#define ROUND_MAGIC	0x1.8p52

DEVICE double sin_series(double x, double z)
{
	double r = 1.0 / 355687428096000.0;

	r = fma(r, z, -1.0 / 1307674368000.0);
	r = fma(r, z, 1.0 / 6227020800.0);
	r = fma(r, z, -1.0 / 39916800);
	r = fma(r, z, 1.0 / 362880);
	r = fma(r, z, -1.0 / 5040);
	r = fma(r, z, 1.0 / 120);
	r = fma(r, z, -1.0 / 6);
	return x * fma(r, z, 1.0);
}

DEVICE double cos_series(double z)
{
	double r = 1.0 / 20922789888000.0;

	r = fma(r, z, -1.0 / 87178291200.0);
	r = fma(r, z, 1.0 / 479001600);
	r = fma(r, z, -1.0 / 3628800);
	r = fma(r, z, 1.0 / 40320);
	r = fma(r, z, -1.0 / 720);
	r = fma(r, z, 1.0 / 24);
	r = fma(r, z, -1.0 / 2);
	return fma(r, z, 1.0);
}

KERNEL(k_rope_table, 256)(struct k_rope_table_args a)
{
	const u64 n = (u64)a.m * a.half;
	const u64 step = (u64)gridDim.x * blockDim.x;
	u64 i;

	for (i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
		const u64 row = i / a.half;
		const u32 j = (u32)(i % a.half);
		const double angle = mul_rn((float)a.positions[row],
					    a.inv_freq[j]);
		const double big = fma(angle, TWO_OVER_PI, ROUND_MAGIC);
		const double k = big - ROUND_MAGIC;
		const double x = fma(-k, PIO2_3, fma(-k, PIO2_2,
						     fma(-k, PIO2_1, angle)));
		const double s = sin_series(x, x * x), c = cos_series(x * x);
		const u32 quadrant = (u32)(s64)k & 3;
		float *to = a.table + 2 * row * a.half + j;
		double cosine = quadrant & 1 ? s : c;
		double sine = quadrant & 1 ? c : s;

		if (quadrant == 1 || quadrant == 2)
			cosine = -cosine;
		if (quadrant & 2)
			sine = -sine;
		to[0] = (float)cosine;
		to[a.half] = (float)sine;
	}
}

/* One block for each row; a thread rotates a quad of the first half and the second. */
KERNEL(k_rope, 256)(struct k_rope_args a)
{
	const u32 quads = (a.half + 3) / 4;
	u32 row, at, i;

	for (row = blockIdx.x; row < a.m; row += gridDim.x) {
		const float *cosine = a.table + 2 * (u64)row * a.half;

		for (at = threadIdx.x; at < a.heads * quads; at += blockDim.x) {
			float *head = a.x + row * a.ld +
				      (u64)(at / quads) * a.head_dim;
			const u32 q = at % quads;
			four f = row_load(head, q, a.half, a.vec);
			four g = row_load(head + a.half, q, a.half, a.vec);
			const four c = row_load(cosine, q, a.half, a.vec);
			const four s = row_load(cosine + a.half, q, a.half,
						a.vec);

#pragma unroll
			for (i = 0; i < 4; i++) {
				const float v = f.v[i], w = g.v[i];

				f.v[i] = settled(turn_first(v, w, c.v[i],
							    s.v[i]), a.settle);
				g.v[i] = settled(turn_second(v, w, c.v[i],
							     s.v[i]), a.settle);
			}
			row_store(head, q, a.half, a.vec, f);
			row_store(head + a.half, q, a.half, a.vec, g);
		}
	}
}

/* One block for each row; a thread rotates a pair. */
KERNEL(k_rope_pairs, 256)(struct k_rope_pairs_args a)
{
	u32 row, at;

	for (row = blockIdx.x; row < a.m; row += gridDim.x) {
		const float *cosine = a.table + 2 * (u64)row * a.half;

		for (at = threadIdx.x; at < a.heads * a.half;
		     at += blockDim.x) {
			const u32 h = at / a.half, j = at % a.half;
			const float *x = a.x + row * a.x_ld + h * a.x_step;
			float *y = a.y + row * a.y_ld + h * a.y_step;
			const float v = x[2 * j], w = x[2 * j + 1];
			const float c = cosine[j], s = cosine[a.half + j];

			y[j] = settled(turn_first(v, w, c, s), a.settle);
			y[j + a.half] = settled(turn_second(v, w, c, s),
						a.settle);
		}
	}
}
