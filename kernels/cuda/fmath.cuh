/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fmath.cuh - functions of elements, and rows by quads, for device code
 *
 * The functions consist of operations that round to nearest, and that no compiler
 * may fuse or split.  So they have the same bits on every GPU, and in the tests'
 * stand-in.  None of them uses an approximation of the hardware.
 *
 * A row is read and written by quads of four elements.  A quad is one access of 16
 * bytes if the row's alignment allows it, else four accesses; elements past the end
 * of the row read as zero.  The thread that computes an element does not depend on
 * the alignment, so bits do not either.
 */
#ifndef KERNELS_CUDA_FMATH_CUH
#define KERNELS_CUDA_FMATH_CUH

#include "kernels/cuda/cu.h"

/* Four elements. */
struct four {
	float v[4];
};

/* Quad @q of a row of @d. */
DEVICE four row_load(const float *row, u32 q, u32 d, bool vec)
{
	four f;
	u32 i;

	if (vec && 4 * q + 4 <= d) {
		const quad w = gl_load16(row + 4 * q);

#pragma unroll
		for (i = 0; i < 4; i++)
			f.v[i] = bits_float(w.w[i]);
		return f;
	}
#pragma unroll
	for (i = 0; i < 4; i++)
		f.v[i] = 4 * q + i < d ? row[4 * q + i] : 0.0f;
	return f;
}

DEVICE void row_store(float *row, u32 q, u32 d, bool vec, const four &f)
{
	u32 i;

	if (vec && 4 * q + 4 <= d) {
		quad w;

#pragma unroll
		for (i = 0; i < 4; i++)
			w.w[i] = float_bits(f.v[i]);
		gl_store16(row + 4 * q, w);
		return;
	}
#pragma unroll
	for (i = 0; i < 4; i++)
		if (4 * q + i < d)
			row[4 * q + i] = f.v[i];
}

/* A result of an op: rounded to bf16 if the model's arithmetic is that. */
DEVICE float settled(float f, bool settle)
{
	return settle ? bf16_to_f32(f32_to_bf16(f)) : f;
}

DEVICE float sub_rn(float a, float b)
{
	return add_rn(a, -b);
}

/*
 * exp(x) within 2 units in the last place for x in [-87, 88]; 0 below, infinity
 * above 88.7.
 *
 * x = n ln 2 + r with |r| <= ln 2 / 2; e^r by a polynomial of degree 6
 * (minimax of relative error, 3e-9); the exponent is scaled by n in two halves, so
 * that neither factor leaves the range.
 */
DEVICE float f_exp(float x)
{
	const float magic = 0x1.8p23f;	/* adding it rounds to an integer */
	const float top = x > 89.0f ? 89.0f : x;
	const float n = fma_rn(top, 0x1.715476p+0f, magic);
	const float k = sub_rn(n, magic);
	float r = fma_rn(k, -0x1.62ep-1f, top), p;
	s32 e;

	r = fma_rn(k, -0x1.0bfbe8p-15f, r);
	p = fma_rn(0x1.6a23dp-10f, r, 0x1.123a2p-7f);
	p = fma_rn(p, r, 0x1.5558f2p-5f);
	p = fma_rn(p, r, 0x1.555492p-3f);
	p = fma_rn(p, r, 0x1.fffffcp-2f);
	p = add_rn(fma_rn(p, mul_rn(r, r), r), 1.0f);
	if (!(x >= -87.0f))
		return x < 0.0f ? 0.0f : x;	/* or NaN */
	e = (s32)k;
	p = mul_rn(p, bits_float((u32)(e / 2 + 127) << 23));
	return mul_rn(p, bits_float((u32)(e - e / 2 + 127) << 23));
}

/*
 * tanh(x) within 3 units in the last place.  Large arguments use
 * 1 - 2 / (exp(2x) + 1).  It would lose digits of small ones, which use an odd
 * polynomial (minimax, 9e-8).
 */
DEVICE float f_tanh(float x)
{
	const float a = fabsf(x), z = mul_rn(x, x);
	float p;

	if (a > 0.625f) {
		p = sub_rn(1.0f, 2.0f / add_rn(f_exp(add_rn(a, a)), 1.0f));
		return x < 0.0f ? -p : p;
	}
	p = fma_rn(-0x1.901808p-8f, z, 0x1.581fa8p-6f);
	p = fma_rn(p, z, -0x1.b928dep-5f);
	p = fma_rn(p, z, 0x1.110e2ep-3f);
	p = fma_rn(p, z, -0x1.555552p-2f);
	return fma_rn(p, mul_rn(z, x), x);
}

/*
 * Half of erfc(a) for a >= 0, with a relative error below 1e-6: exp(-a^2) times a
 * polynomial in 1 / (1 + a / 2) (minimax on 0 <= a <= 6.5, 3e-7; beyond, the
 * exponential is below 1e-18).
 */
DEVICE float f_half_erfc(float a)
{
	const float t = 1.0f / fma_rn(0.5f, a, 1.0f);
	float p;

	p = fma_rn(-0x1.17ac10p-5f, t, 0x1.0782b0p-2f);
	p = fma_rn(p, t, -0x1.6abcdep-1f);
	p = fma_rn(p, t, 0x1.93fd62p-1f);
	p = fma_rn(p, t, -0x1.dd271ap-3f);
	p = fma_rn(p, t, 0x1.92a9bcp-2f);
	p = fma_rn(p, t, 0x1.003c00p-2f);
	p = fma_rn(p, t, 0x1.24d454p-2f);
	p = fma_rn(p, t, -0x1.a5bae4p-13f);
	return mul_rn(mul_rn(p, f_exp(-mul_rn(a, a))), 0.5f);
}

/* "Rotate half": the new element of the first half, and of the second. */
DEVICE float turn_first(float a, float b, float c, float s)
{
	return fma_rn(a, c, -mul_rn(b, s));
}

DEVICE float turn_second(float a, float b, float c, float s)
{
	return fma_rn(b, c, mul_rn(a, s));
}

#endif /* KERNELS_CUDA_FMATH_CUH */
