/* SPDX-License-Identifier: Apache-2.0 */
/*
 * block_bits.h - scales and elements of quantized weights, for C and device code
 *
 * The numbers that the small parts of a block stand for.  blocks.h makes numbers of whole
 * blocks with them, in loops for CPUs, and block_groups.h of groups of 32, for a thread of
 * a GPU.
 *
 * Device code must include cu.h first.
 */
#ifndef KERNELS_BLOCK_BITS_H
#define KERNELS_BLOCK_BITS_H

#ifdef DEVICE
#define BLOCK_FN	DEVICE
#define BLOCK_TABLE	DEVICE_TABLE
#define block_mul	mul_rn
#define block_sub(a, b)	add_rn(a, -(b))
#define block_float	bits_float
#else
#include "kernels/quant.h"

#define BLOCK_FN	static inline
#define BLOCK_TABLE	static const
#define block_mul(a, b)	((a) * (b))
#define block_sub(a, b)	((a) - (b))

static inline float block_float(u32 bits)
{
	float f;

	memcpy(&f, &bits, sizeof(f));
	return f;
}
#endif

/* Numbers of IQ4_NL and IQ4_XS, and twice those of MXFP4 (e2m1). */
BLOCK_TABLE s8 nl_values[16] = {
	-127, -104, -83, -65, -49, -35, -22, -10,
	1, 13, 25, 38, 53, 69, 89, 113,
};
BLOCK_TABLE s8 fp4_values[16] = {
	0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12,
};

/* Words of bytes at any address, low byte first. */
BLOCK_FN u32 u16_at(const u8 *p)
{
	return p[0] | (u32)p[1] << 8;
}

BLOCK_FN u32 u32_at(const u8 *p)
{
	return u16_at(p) | u16_at(p + 2) << 16;
}

BLOCK_FN float f32_at(const u8 *p)
{
	return block_float(u32_at(p));
}

BLOCK_FN float f16_number(u16 bits)
{
	const u32 h = bits, sign = (h & 0x8000) << 16, exp = h >> 10 & 31;
	const u32 man = h & 1023;
	const float small = block_mul((float)man, 0x1p-24f);

	if (exp == 31)
		return block_float(sign | 0x7f800000u | man << 13);
	if (exp)
		return block_float(sign | (exp + 112) << 23 | man << 13);
	return sign ? -small : small;
}

BLOCK_FN float f16_at(const u8 *p)
{
	return f16_number((u16)u16_at(p));
}

/* 2^(e - 128): half of the power of two that an e8m0 stands for, see fp4_values. */
BLOCK_FN float e8m0_half(u8 e)
{
	return block_float(e < 2 ? 0x00200000u << e : (u32)(e - 1) << 23);
}

/* e4m3 has no infinity, and one NaN of each sign. */
BLOCK_FN float e4m3_number(u8 b)
{
	const u32 size = b & 0x7f, sign = (u32)(b & 0x80) << 24;
	const float small = block_mul((float)(s32)size, 0x1p-9f);
	const float most = block_float(size == 0x7f ? 0x7fc00000u :
				      (size << 20) + (120u << 23));
	const float f = size >= 8 ? most : small;

	return sign ? -f : f;
}

/* Scale @i of 16, of six bits, in 12 bytes. */
BLOCK_FN s32 q3_scale(const u8 *s, u32 i)
{
	const u32 low = s[i % 8] >> (i / 8 * 4) & 15;
	const u32 high = s[8 + i % 4] >> (i / 4 * 2) & 3;

	return (s32)(low | high << 4) - 32;
}

/* Scale and minimum @i of 8, of six bits each, in 12 bytes. */
BLOCK_FN u32 q4_scale(const u8 *s, u32 i)
{
	return i < 4 ? s[i] & 63 :
	       (s[i + 4] & 15) | (u32)(s[i - 4] >> 6) << 4;
}

BLOCK_FN u32 q4_min(const u8 *s, u32 i)
{
	return i < 4 ? s[i + 4] & 63 :
	       s[i + 4] >> 4 | (u32)(s[i] >> 6) << 4;
}

/* Scale @g of 8, of six bits. */
BLOCK_FN s32 iq4_scale(const u8 *b, u32 g)
{
	const u32 low = b[4 + g / 2] >> (g % 2 * 4) & 15;

	return (s32)(low | (u16_at(b + 2) >> (2 * g) & 3) << 4) - 32;
}

#endif /* KERNELS_BLOCK_BITS_H */
