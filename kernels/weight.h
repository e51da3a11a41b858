/* SPDX-License-Identifier: Apache-2.0 */
/*
 * weight.h - the weight of a token in a draw, to the bit, for C and device code
 *
 * Tokens are drawn by the host's sampler (runtime/sampler) and by a GPU's
 * (kernels/cuda/sample.cu), and a seed must give the same token in both.  So a
 * weight is exp((logit - best) / temperature), at most 1, computed by
 * operations that are the same everywhere: products and sums that round to
 * nearest, none of them fused.  It is counted as a whole number of 2^-shift,
 * with the largest shift for which a row's sum fits into 64 bits.  Sums of
 * whole numbers are exact: no order of adding, no split among threads and no
 * way of finding a cut changes them.  With a vocabulary of 2^18, only
 * tokens lighter than 2^-44 of the best one are left out.
 *
 * C code must be compiled with -ffp-contract=off; device code must include
 * fmath.cuh first.
 */
#ifndef KERNELS_WEIGHT_H
#define KERNELS_WEIGHT_H

#ifdef DEVICE
#define WEIGHT_FN	DEVICE
#define weight_mul	mul_rn
#define weight_add	add_rn
#define weight_float	bits_float
#else
#include <math.h>

#include <kvmm/types.h>

#define WEIGHT_FN	static inline
#define weight_mul(a, b)	((a) * (b))
#define weight_add(a, b)	((a) + (b))

static inline float weight_float(u32 bits)
{
	float f;

	memcpy(&f, &bits, sizeof(f));
	return f;
}
#endif

#define WEIGHT_X_MIN	(-60.0f)	/* logarithm of the least weight */

/*
 * exp(x) for x in [WEIGHT_X_MIN, 0], within 2 units in the last place, and 1
 * for 0: x = n ln 2 + r; e^r by a polynomial of degree 6 (minimax of relative
 * error, 3e-9); n is added to the exponent.  The upper part of ln 2 has so few
 * bits that its products are exact.
 */
WEIGHT_FN float weight_exp(float x)
{
	const float magic = 0x1.8p23f;	/* adding it rounds to an integer */
	const float k = weight_add(weight_add(weight_mul(x, 0x1.715476p+0f),
					      magic), -magic);
	float r = weight_add(x, weight_mul(k, -0x1.62ep-1f)), p;

	r = weight_add(r, weight_mul(k, -0x1.0bfbe8p-15f));
	p = weight_add(weight_mul(0x1.6a23dp-10f, r), 0x1.123a2p-7f);
	p = weight_add(weight_mul(p, r), 0x1.5558f2p-5f);
	p = weight_add(weight_mul(p, r), 0x1.555492p-3f);
	p = weight_add(weight_mul(p, r), 0x1.fffffcp-2f);
	p = weight_add(weight_mul(p, weight_mul(r, r)), r);
	p = weight_add(p, 1.0f);
	return weight_mul(p, weight_float((u32)((s32)k + 127) << 23));
}

/* The shift with which the largest sum of a row is at most 2^62. */
WEIGHT_FN u32 weight_shift(u32 vocab)
{
	u32 bits = 0;

	while (bits < 31 && (1u << bits) < vocab)
		bits++;
	return 62 - bits;
}

/* weight_exp() of any x, without a branch; 0 below WEIGHT_X_MIN, and of a NaN. */
WEIGHT_FN float weight_value(float x)
{
	const bool counts = x >= WEIGHT_X_MIN;
	const float w = weight_exp(counts ? x : WEIGHT_X_MIN);

	return counts ? w : 0.0f;
}

/* Whole units of 2^-@shift of a weight; 0 if it is below @min_p. */
WEIGHT_FN u64 weight_units(float w, float min_p, u32 shift)
{
	/* By way of s64: that conversion takes one instruction. */
	return w < min_p ? 0 :
	       (u64)(s64)weight_mul(w, weight_float((127 + shift) << 23));
}

/* The sum that top-p must reach, in whole units, rounded up. */
WEIGHT_FN u64 weight_share(float top_p, u64 sum)
{
	const u64 t = (u64)ceil((double)top_p * (double)sum);

	return t < 1 ? 1 : t > sum ? sum : t;
}

/*
 * The place of a random number in a row of weight @sum: the upper half of their
 * product.  @random has 53 bits, from the uppermost on.
 */
WEIGHT_FN u64 weight_point(u64 random, u64 sum)
{
	const u64 al = (u32)random, ah = random >> 32;
	const u64 bl = (u32)sum, bh = sum >> 32;
	const u64 mid = ah * bl + (al * bl >> 32);

	return ah * bh + (mid >> 32) + ((al * bh + (u32)mid) >> 32);
}

#endif /* KERNELS_WEIGHT_H */
