/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shim_math.h - numbers of device code, bit for bit where CUDA defines the bits
 *
 * Compiled without contraction, so products and sums are rounded one by one.
 */
#ifndef TESTS_STANDIN_SHIM_MATH_H
#define TESTS_STANDIN_SHIM_MATH_H

DEVICE float bits_float(u32 b)
{
	float f;

	memcpy(&f, &b, sizeof(f));
	return f;
}

DEVICE u32 float_bits(float f)
{
	u32 b;

	memcpy(&b, &f, sizeof(b));
	return b;
}

DEVICE u32 __float_as_uint(float f)
{
	return float_bits(f);
}

DEVICE int __float_as_int(float f)
{
	return (int)float_bits(f);
}

DEVICE float __uint_as_float(u32 b)
{
	return bits_float(b);
}

DEVICE float __int_as_float(int b)
{
	return bits_float((u32)b);
}

/* Round to nearest even; NaN becomes the NaN of the instruction. */
DEVICE u32 shim_to_bf16(float f)
{
	const u32 b = float_bits(f);

	if ((b & 0x7fffffff) > 0x7f800000)
		return 0x7fff;
	return (b + 0x7fff + (b >> 16 & 1)) >> 16;
}

DEVICE u32 shim_to_f16(float f)
{
	const u32 b = float_bits(f), sign = b >> 16 & 0x8000;
	const u32 mag = b & 0x7fffffff;
	u32 m, shift, rest, half;

	if (mag > 0x7f800000)
		return 0x7fff;
	if (mag >= 0x477ff000)		/* 65520 or more */
		return sign | 0x7c00;
	if (mag < 0x33000000)		/* below half of the smallest */
		return sign;
	if (mag >= 0x38800000) {	/* normal */
		m = mag - 0x38000000;
		return sign | ((m + 0xfff + (m >> 13 & 1)) >> 13);
	}
	m = (mag & 0x7fffff) | 0x800000;
	shift = 126 - (mag >> 23);
	rest = m & ((1u << shift) - 1);
	half = 1u << (shift - 1);
	m >>= shift;
	return sign | (m + (rest > half || (rest == half && (m & 1))));
}

DEVICE float f16_to_f32(u16 h)
{
	const u32 sign = (u32)(h & 0x8000) << 16, mag = h & 0x7fff;
	float f;

	if (mag >= 0x7c00)
		return bits_float(sign | 0x7f800000 | (mag & 0x3ff) << 13);
	/* The exponent's bias differs by 112; subnormals come out exact. */
	f = bits_float(mag << 13) * 0x1p112f;
	return bits_float(sign | float_bits(f));
}

DEVICE u32 bf16_pair(float lo, float hi)
{
	return shim_to_bf16(hi) << 16 | shim_to_bf16(lo);
}

DEVICE float shim_half(u32 pair, u32 i)
{
	return bits_float(i ? pair & 0xffff0000u : pair << 16);
}

DEVICE u32 bf16_pair_sub(u32 a, u32 b)
{
	return bf16_pair(shim_half(a, 0) - shim_half(b, 0),
			 shim_half(a, 1) - shim_half(b, 1));
}

DEVICE u32 bf16_pair_mul(u32 a, u32 b)
{
	return bf16_pair(shim_half(a, 0) * shim_half(b, 0),
			 shim_half(a, 1) * shim_half(b, 1));
}

DEVICE u32 f16_pair(float lo, float hi)
{
	return shim_to_f16(hi) << 16 | shim_to_f16(lo);
}

DEVICE float mul_rn(float a, float b)
{
	return a * b;
}

DEVICE float add_rn(float a, float b)
{
	return a + b;
}

DEVICE float fma_rn(float a, float b, float c)
{
	return __builtin_fmaf(a, b, c);
}

DEVICE float shim_flush(float f)
{
	return float_bits(f) & 0x7f800000 ? f :
		bits_float(float_bits(f) & 0x80000000);
}

/* Without subnormals, like the instruction. */
DEVICE float fast_exp2(float x)
{
	return shim_flush(exp2f(shim_flush(x)));
}

DEVICE float rsqrtf(float x)
{
	return 1.0f / sqrtf(x);
}

DEVICE void fence_device(void)
{
}

DEVICE void __threadfence(void)
{
}

DEVICE void __threadfence_block(void)
{
}

DEVICE int __popc(u32 x)
{
	return __builtin_popcount(x);
}

DEVICE int __clz(int x)
{
	return x ? __builtin_clz((u32)x) : 32;
}

DEVICE int __ffs(int x)
{
	return __builtin_ffs(x);
}

DEVICE u32 __umulhi(u32 a, u32 b)
{
	return (u32)((u64)a * b >> 32);
}

DEVICE u64 __umul64hi(u64 a, u64 b)
{
	return (u64)((unsigned __int128)a * b >> 64);
}

#define SHIM_MINMAX(type)						\
	DEVICE type min(type a, type b) { return b < a ? b : a; }	\
	DEVICE type max(type a, type b) { return a < b ? b : a; }
SHIM_MINMAX(int)
SHIM_MINMAX(unsigned int)
SHIM_MINMAX(long)
SHIM_MINMAX(unsigned long)
SHIM_MINMAX(long long)
SHIM_MINMAX(unsigned long long)

#endif /* TESTS_STANDIN_SHIM_MATH_H */
