/* SPDX-License-Identifier: Apache-2.0 */
/*
 * blocks.h - numbers of quantized weights, for the files that compute them
 *
 * Formulas of the GGUF types: the reference implementation of their writers, package
 * "gguf" (gguf/quants.py).  The loops are written such that compilers vectorise them.
 * No step depends on the instruction set, so all files that include this give the same
 * bits, if they are compiled with -ffp-contract=off.  A file may define BLOCKS_LOOK,
 * BLOCKS_E4M3 and their functions, which compilers do not vectorise.
 */
#ifndef KERNELS_BLOCKS_H
#define KERNELS_BLOCKS_H

#include "kernels/block_bits.h"

/* 32 numbers in e4m3, times @d. */
#ifndef BLOCKS_E4M3
static inline void e4m3_numbers(const u8 *restrict b, float d, float *restrict to)
{
	u32 i;

	for (i = 0; i < 32; i++)
		to[i] = d * e4m3_number(b[i]);
}
#endif

/* The low, then the high half of 16 bytes each: elements 0 to 15, 16 to 31. */
static inline void nibbles(const u8 *q, s32 *to)
{
	u32 i;

	for (i = 0; i < 16; i++) {
		to[i] = q[i] & 15;
		to[i + 16] = q[i] >> 4;
	}
}

/* The same with fifth bits, which are one word. */
static inline void fives(const u8 *high, const u8 *q, s32 *to)
{
	const u32 word = u32_at(high);
	u32 i;

	nibbles(q, to);
	for (i = 0; i < 32; i++)
		to[i] |= (s32)(word >> i & 1) << 4;
}

/* 32 integers as numbers, with a zero among them, or from @m on. */
static inline void numbers(const s32 *q, s32 zero, float d, float *to)
{
	u32 i;

	for (i = 0; i < 32; i++)
		to[i] = d * (float)(q[i] - zero);
}

static inline void numbers_from(const s32 *q, float d, float m, float *to)
{
	u32 i;

	for (i = 0; i < 32; i++)
		to[i] = d * (float)q[i] + m;
}

/* The same with numbers of a table in place of the integers, from 16 bytes. */
#ifndef BLOCKS_LOOK
static inline void numbers_of(const s8 *table, const u8 *q, float d, float *to)
{
	s32 n[32];
	u32 i;

	nibbles(q, n);
	for (i = 0; i < 32; i++)
		to[i] = d * (float)table[n[i]];
}
#endif

static inline void dequant_q4_0(const u8 *restrict b, float *restrict to)
{
	s32 q[32];

	nibbles(b + 2, q);
	numbers(q, 8, f16_at(b), to);
}

static inline void dequant_q4_1(const u8 *restrict b, float *restrict to)
{
	s32 q[32];

	nibbles(b + 4, q);
	numbers_from(q, f16_at(b), f16_at(b + 2), to);
}

static inline void dequant_q5_0(const u8 *restrict b, float *restrict to)
{
	s32 q[32];

	fives(b + 2, b + 6, q);
	numbers(q, 16, f16_at(b), to);
}

static inline void dequant_q5_1(const u8 *restrict b, float *restrict to)
{
	s32 q[32];

	fives(b + 4, b + 8, q);
	numbers_from(q, f16_at(b), f16_at(b + 2), to);
}

static inline void dequant_q8_0(const u8 *restrict b, float *restrict to)
{
	const float d = f16_at(b);
	u32 i;

	for (i = 0; i < 32; i++)
		to[i] = d * (float)(s8)b[2 + i];
}

/* Two bits of each of 32 bytes. */
static inline void two_bits(const u8 *q, u32 shift, s32 *to)
{
	u32 i;

	for (i = 0; i < 32; i++)
		to[i] = q[i] >> shift & 3;
}

/* Two halves of 16 integers, each with a scale. */
static inline void halves(const s32 *q, float first, float second, float *to)
{
	u32 i;

	for (i = 0; i < 16; i++)
		to[i] = first * (float)q[i];
	for (i = 16; i < 32; i++)
		to[i] = second * (float)q[i];
}

static inline void dequant_q2_k(const u8 *restrict b, float *restrict to)
{
	const float d = f16_at(b + 80), dmin = f16_at(b + 82);
	float by, min;
	s32 q[32];
	u32 g, i;

	for (g = 0; g < 16; g++) {
		if (g % 2 == 0)
			two_bits(b + 16 + g / 8 * 32, g / 2 % 4 * 2, q);
		by = d * (float)(b[g] & 15);
		min = dmin * (float)(b[g] >> 4);
		for (i = 0; i < 16; i++)
			to[g * 16 + i] = by * (float)q[g % 2 * 16 + i] - min;
	}
}

static inline void dequant_q3_k(const u8 *restrict b, float *restrict to)
{
	const float d = f16_at(b + 108);
	s32 q[32];
	u32 g, i;

	for (g = 0; g < 8; g++) {
		two_bits(b + 32 + g / 4 * 32, g % 4 * 2, q);
		for (i = 0; i < 32; i++)
			q[i] += (b[i] >> g & 1) * 4 - 4;
		halves(q, d * (float)q3_scale(b + 96, 2 * g),
		       d * (float)q3_scale(b + 96, 2 * g + 1), to + g * 32);
	}
}

/* Groups of 32 of a block, whose elements but for bits above four begin at @q. */
static inline void k_groups(const u8 *b, const u8 *high, const u8 *q, float *to)
{
	const float d = f16_at(b), dmin = f16_at(b + 2);
	u32 g, i, scale, min, shift;
	s32 n[32];

	for (g = 0; g < 8; g++, to += 32) {
		scale = q4_scale(b + 4, g);
		min = q4_min(b + 4, g);
		shift = g % 2 * 4;
		for (i = 0; i < 32; i++)
			n[i] = q[g / 2 * 32 + i] >> shift & 15;
		for (i = 0; high && i < 32; i++)
			n[i] |= (high[i] >> g & 1) << 4;
		for (i = 0; i < 32; i++)
			to[i] = d * (float)scale * (float)n[i] -
				dmin * (float)min;
	}
}

static inline void dequant_q4_k(const u8 *restrict b, float *restrict to)
{
	k_groups(b, NULL, b + 16, to);
}

static inline void dequant_q5_k(const u8 *restrict b, float *restrict to)
{
	k_groups(b, b + 16, b + 48, to);
}

static inline void dequant_q6_k(const u8 *restrict b, float *restrict to)
{
	const float d = f16_at(b + 208);
	const u8 *low;
	u32 g, i, shift;
	s32 q[32];

	for (g = 0; g < 8; g++, to += 32) {
		two_bits(b + 128 + g / 4 * 32, g % 4 * 2, q);
		low = b + g / 4 * 64 + g % 2 * 32;
		shift = g % 4 / 2 * 4;
		for (i = 0; i < 32; i++)
			q[i] = (q[i] << 4 | (low[i] >> shift & 15)) - 32;
		halves(q, d * (float)(s8)b[192 + 2 * g],
		       d * (float)(s8)b[193 + 2 * g], to);
	}
}

static inline void dequant_iq4_nl(const u8 *restrict b, float *restrict to)
{
	numbers_of(nl_values, b + 2, f16_at(b), to);
}

static inline void dequant_iq4_xs(const u8 *restrict b, float *restrict to)
{
	const float d = f16_at(b);
	u32 g;

	for (g = 0; g < 8; g++, to += 32)
		numbers_of(nl_values, b + 8 + g * 16,
			   d * (float)iq4_scale(b, g), to);
}

static inline void dequant_mxfp4(const u8 *restrict b, float *restrict to)
{
	numbers_of(fp4_values, b + 1, e8m0_half(b[0]), to);
}

static inline void dequant_w4(const u8 *restrict b, u32 n, float *restrict to)
{
	const float d = f32_at(b);
	const s32 zero = b[4];
	u32 i;

	for (i = 0; i < n / 2; i++) {
		to[2 * i] = d * (float)((b[5 + i] & 15) - zero);
		to[2 * i + 1] = d * (float)((b[5 + i] >> 4) - zero);
	}
}

static inline void dequant_w8(const u8 *restrict b, u32 n, float *restrict to)
{
	const float d = f32_at(b);
	u32 i;

	for (i = 0; i < n; i++)
		to[i] = d * (float)(s32)(s8)b[4 + i];
}

static inline void dequant_f8(const u8 *restrict b, u32 n, float *restrict to)
{
	const float d = f32_at(b);
	u32 i;

	for (i = 0; i < n; i += 32)
		e4m3_numbers(b + 4 + i, d, to + i);
}

/* kern_dequant() with the instructions of this file. */
static inline void blocks_dequant(enum kern_dtype t, const u8 *b, u64 n,
				  float *to)
{
	const u32 elems = kern_block_elems(t), bytes = kern_block_bytes(t);
	const float *end = to + n;

	switch (t) {
#define x(id, name)							\
	case KERN_##id:							\
		for (; to < end; to += elems, b += bytes)		\
			dequant_##name(b, to);				\
		break;
	x(Q4_0, q4_0) x(Q4_1, q4_1) x(Q5_0, q5_0) x(Q5_1, q5_1) x(Q8_0, q8_0)
	x(Q2_K, q2_k) x(Q3_K, q3_k) x(Q4_K, q4_k) x(Q5_K, q5_k) x(Q6_K, q6_k)
	x(IQ4_NL, iq4_nl) x(IQ4_XS, iq4_xs) x(MXFP4, mxfp4)
#undef x
#define x(id, name, n)							\
	case KERN_##id:							\
		for (; to < end; to += elems, b += bytes)		\
			dequant_##name(b, n, to);			\
		break;
	x(W4_32, w4, 32) x(W4_64, w4, 64) x(W4_128, w4, 128)
	x(W8_32, w8, 32) x(W8_128, w8, 128) x(F8_32, f8, 32) x(F8_128, f8, 128)
#undef x
	default:
		break;
	}
}

#endif /* KERNELS_BLOCKS_H */
