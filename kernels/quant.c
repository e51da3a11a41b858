// SPDX-License-Identifier: Apache-2.0
/*
 * quant.c - types of quantized weights as numbers
 *
 * Formulas of the GGUF types: the reference implementation of their writers, package
 * "gguf" (gguf/quants.py).  These are plain loops.  They define the numbers; faster
 * code (kernels/cpu/v_quant.c) must give the same bits.
 */
#include "kernels/quant.h"

struct block_type {
	const char	*name;
	u32		elems;
	u32		bytes;
	u32		number;
};

static const struct block_type block_types[NR_KERN_DTYPES] = {
	[KERN_F32]	= { "f32",	1, 4, 0 },
	[KERN_BF16]	= { "bf16",	1, 2, 30 },
	[KERN_F16]	= { "f16",	1, 2, 1 },
	[KERN_E4M3]	= { "e4m3",	1, 1, KERN_NO_GGUF },
	[KERN_I8]	= { "int8",	1, 1, KERN_NO_GGUF },
#define x(id, name, elems, bytes, number)				\
	[KERN_##id]	= { name, elems, bytes, number },
	KERN_BLOCK_TYPES(x)
#undef x
};

const char *kern_dtype_name(enum kern_dtype t)
{
	return block_types[t].name;
}

u32 kern_block_elems(enum kern_dtype t)
{
	return block_types[t].elems;
}

u32 kern_block_bytes(enum kern_dtype t)
{
	return block_types[t].bytes;
}

enum kern_dtype kern_dtype_of_gguf(u32 number)
{
	u32 t;

	for (t = KERN_FIRST_BLOCKS; t < NR_KERN_DTYPES; t++)
		if (block_types[t].number == number &&
		    number != KERN_NO_GGUF)
			break;
	return t;
}

/* Numbers of IQ4_NL and IQ4_XS, and twice those of MXFP4 (e2m1). */
static const s8 nl_values[16] = {
	-127, -104, -83, -65, -49, -35, -22, -10,
	1, 13, 25, 38, 53, 69, 89, 113,
};
static const s8 fp4_values[16] = {
	0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12,
};

static float f32_at(const u8 *p)
{
	float f;

	memcpy(&f, p, sizeof(f));
	return f;
}

static float bits_f32(u32 bits)
{
	float f;

	memcpy(&f, &bits, sizeof(f));
	return f;
}

/* Exact: every f16 is an f32. */
static float f16_at(const u8 *p)
{
	const u32 h = p[0] | (u32)p[1] << 8;
	const u32 sign = (h & 0x8000) << 16, exp = h >> 10 & 31;
	const u32 man = h & 1023;
	const float small = man * 0x1p-24f;

	if (exp == 31)
		return bits_f32(sign | 0x7f800000u | man << 13);
	if (exp)
		return bits_f32(sign | (exp + 112) << 23 | man << 13);
	return sign ? -small : small;
}

/* 2^(e - 128): half of the power of two that an e8m0 stands for, see fp4_values. */
static float e8m0_half(u8 e)
{
	return bits_f32(e < 2 ? 0x00200000u << e : (u32)(e - 1) << 23);
}

/* e4m3 has no infinity, and one NaN of each sign. */
static float e4m3(u8 b)
{
	const u32 sign = (u32)(b & 0x80) << 24, exp = b >> 3 & 15, man = b & 7;
	const float small = man * 0x1p-9f;

	if ((b & 0x7f) == 0x7f)
		return bits_f32(sign | 0x7fc00000u);
	if (exp)
		return bits_f32(sign | (exp + 120) << 23 | man << 20);
	return sign ? -small : small;
}

/* The low, then the high half of 16 bytes each: elements 0 to 15, 16 to 31. */
static u32 nibble(const u8 *q, u32 i)
{
	return q[i % 16] >> (i / 16 * 4) & 15;
}

static void q4_0(const u8 *b, float *to)
{
	const float d = f16_at(b);
	u32 i;

	for (i = 0; i < 32; i++)
		to[i] = d * (float)((s32)nibble(b + 2, i) - 8);
}

static void q4_1(const u8 *b, float *to)
{
	const float d = f16_at(b), m = f16_at(b + 2);
	u32 i;

	for (i = 0; i < 32; i++)
		to[i] = d * (float)nibble(b + 4, i) + m;
}

/* The fifth bits are one word. */
static u32 five(const u8 *high, const u8 *low, u32 i)
{
	return nibble(low, i) | (u32)(high[i / 8] >> (i % 8) & 1) << 4;
}

static void q5_0(const u8 *b, float *to)
{
	const float d = f16_at(b);
	u32 i;

	for (i = 0; i < 32; i++)
		to[i] = d * (float)((s32)five(b + 2, b + 6, i) - 16);
}

static void q5_1(const u8 *b, float *to)
{
	const float d = f16_at(b), m = f16_at(b + 2);
	u32 i;

	for (i = 0; i < 32; i++)
		to[i] = d * (float)five(b + 4, b + 8, i) + m;
}

static void q8_0(const u8 *b, float *to)
{
	const float d = f16_at(b);
	u32 i;

	for (i = 0; i < 32; i++)
		to[i] = d * (float)(s8)b[2 + i];
}

/* Two bits of element @i: 32 elements a shift, 128 elements of 32 bytes. */
static u32 two_bits(const u8 *q, u32 i)
{
	return q[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3;
}

static void q2_k(const u8 *b, float *to)
{
	const float d = f16_at(b + 80), dmin = f16_at(b + 82);
	u32 i;
	u8 s;

	for (i = 0; i < 256; i++) {
		s = b[i / 16];
		to[i] = d * (float)(s & 15) * (float)two_bits(b + 16, i) -
			dmin * (float)(s >> 4);
	}
}

/* Scale @i of 16, of six bits, in 12 bytes. */
static s32 q3_scale(const u8 *s, u32 i)
{
	const u32 low = s[i % 8] >> (i / 8 * 4) & 15;
	const u32 high = s[8 + i % 4] >> (i / 4 * 2) & 3;

	return (s32)(low | high << 4) - 32;
}

static void q3_k(const u8 *b, float *to)
{
	const float d = f16_at(b + 108);
	u32 i, high;

	for (i = 0; i < 256; i++) {
		high = b[i % 32] >> (i / 32) & 1;
		to[i] = d * (float)q3_scale(b + 96, i / 16) *
			(float)((s32)two_bits(b + 32, i) - (high ? 0 : 4));
	}
}

/* Scale and minimum @i of 8, of six bits each, in 12 bytes. */
static void q4_scale(const u8 *s, u32 i, u32 *scale, u32 *min)
{
	if (i < 4) {
		*scale = s[i] & 63;
		*min = s[i + 4] & 63;
		return;
	}
	*scale = (s[i + 4] & 15) | (u32)(s[i - 4] >> 6) << 4;
	*min = s[i + 4] >> 4 | (u32)(s[i] >> 6) << 4;
}

static void q4_k(const u8 *b, float *to)
{
	const float d = f16_at(b), dmin = f16_at(b + 2);
	u32 i, scale, min, q;

	for (i = 0; i < 256; i++) {
		q4_scale(b + 4, i / 32, &scale, &min);
		q = b[16 + i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15;
		to[i] = d * (float)scale * (float)q - dmin * (float)min;
	}
}

static void q5_k(const u8 *b, float *to)
{
	const float d = f16_at(b), dmin = f16_at(b + 2);
	u32 i, scale, min, q;

	for (i = 0; i < 256; i++) {
		q4_scale(b + 4, i / 32, &scale, &min);
		q = b[48 + i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15;
		q |= (u32)(b[16 + i % 32] >> (i / 32) & 1) << 4;
		to[i] = d * (float)scale * (float)q - dmin * (float)min;
	}
}

static void q6_k(const u8 *b, float *to)
{
	const float d = f16_at(b + 208);
	u32 i, q;

	for (i = 0; i < 256; i++) {
		q = b[i / 128 * 64 + i % 64] >> (i / 64 % 2 * 4) & 15;
		q |= two_bits(b + 128, i) << 4;
		to[i] = d * (float)(s8)b[192 + i / 16] * (float)((s32)q - 32);
	}
}

static void iq4_nl(const u8 *b, float *to)
{
	const float d = f16_at(b);
	u32 i;

	for (i = 0; i < 32; i++)
		to[i] = d * (float)nl_values[nibble(b + 2, i)];
}

static void iq4_xs(const u8 *b, float *to)
{
	const float d = f16_at(b);
	const u32 high = b[2] | (u32)b[3] << 8;
	u32 i, g, s;

	for (i = 0; i < 256; i++) {
		g = i / 32;
		s = b[4 + g / 2] >> (g % 2 * 4) & 15;
		s |= (high >> (2 * g) & 3) << 4;
		to[i] = d * (float)((s32)s - 32) *
			(float)nl_values[nibble(b + 8 + g * 16, i % 32)];
	}
}

static void mxfp4(const u8 *b, float *to)
{
	const float d = e8m0_half(b[0]);
	u32 i;

	for (i = 0; i < 32; i++)
		to[i] = d * (float)fp4_values[nibble(b + 1, i)];
}

static void w4(const u8 *b, u32 n, float *to)
{
	const float d = f32_at(b);
	u32 i;

	for (i = 0; i < n; i++)
		to[i] = d * (float)((b[5 + i / 2] >> (i % 2 * 4) & 15) - b[4]);
}

static void w8(const u8 *b, u32 n, float *to)
{
	const float d = f32_at(b);
	u32 i;

	for (i = 0; i < n; i++)
		to[i] = d * (float)(s8)b[4 + i];
}

static void f8(const u8 *b, u32 n, float *to)
{
	const float d = f32_at(b);
	u32 i;

	for (i = 0; i < n; i++)
		to[i] = d * e4m3(b[4 + i]);
}

static void block_dequant(enum kern_dtype t, const u8 *b, float *to)
{
	switch (t) {
	case KERN_Q4_0:		return q4_0(b, to);
	case KERN_Q4_1:		return q4_1(b, to);
	case KERN_Q5_0:		return q5_0(b, to);
	case KERN_Q5_1:		return q5_1(b, to);
	case KERN_Q8_0:		return q8_0(b, to);
	case KERN_Q2_K:		return q2_k(b, to);
	case KERN_Q3_K:		return q3_k(b, to);
	case KERN_Q4_K:		return q4_k(b, to);
	case KERN_Q5_K:		return q5_k(b, to);
	case KERN_Q6_K:		return q6_k(b, to);
	case KERN_IQ4_NL:	return iq4_nl(b, to);
	case KERN_IQ4_XS:	return iq4_xs(b, to);
	case KERN_MXFP4:	return mxfp4(b, to);
	case KERN_W4_32:
	case KERN_W4_64:
	case KERN_W4_128:	return w4(b, kern_block_elems(t), to);
	case KERN_W8_32:
	case KERN_W8_128:	return w8(b, kern_block_elems(t), to);
	default:		return f8(b, kern_block_elems(t), to);
	}
}

void kern_dequant(enum kern_dtype t, const void *from, u64 n, float *to)
{
	const u32 elems = kern_block_elems(t), bytes = kern_block_bytes(t);
	const u8 *b = from;
	u64 i;

	for (i = 0; i < n; i += elems, b += bytes)
		block_dequant(t, b, to + i);
}
