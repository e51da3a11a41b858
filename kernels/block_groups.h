/* SPDX-License-Identifier: Apache-2.0 */
/*
 * block_groups.h - a group of 32 elements of a quantized weight, for C and device code
 *
 * A block is groups of 32 elements.  The function of a type reads one group: the plain
 * numbers of its elements, and for each half of the group the factor and the number to
 * subtract.  The number of an element is plain * by - less, each step rounded to f32.
 * Where a type has nothing to subtract, less is 0, which changes no bit.  So the numbers
 * are those of kern_dequant().
 *
 * A thread of a GPU has a group in registers: all loops have constant bounds.  CPUs take
 * blocks.h, with loops for vectors.
 */
#ifndef KERNELS_BLOCK_GROUPS_H
#define KERNELS_BLOCK_GROUPS_H

#include "kernels/block_bits.h"

#ifdef DEVICE
#define BLOCK_UNROLL	_Pragma("unroll")
#else
#define BLOCK_UNROLL
#endif

/* Elements of a group; all blocks are whole groups. */
#define BLOCK_GROUP	32u

/* Factor, and number to subtract, of each half of a group. */
struct block_scale {
	float	by[2];
	float	less[2];
};

/* The same two numbers for both halves. */
BLOCK_FN struct block_scale scale_of(float by, float less)
{
	const struct block_scale s = { { by, by }, { less, less } };

	return s;
}

/* The low, then the high half of 16 bytes each: elements 0 to 15, 16 to 31. */
BLOCK_FN void nibbles(const u8 *q, u32 *to)
{
	u32 i;

	BLOCK_UNROLL
	for (i = 0; i < 16; i++) {
		to[i] = q[i] & 15;
		to[i + 16] = q[i] >> 4;
	}
}

/* The same with fifth bits, which are one word. */
BLOCK_FN void fives(u32 high, const u8 *q, u32 *to)
{
	u32 i;

	nibbles(q, to);
	BLOCK_UNROLL
	for (i = 0; i < 32; i++)
		to[i] |= (high >> i & 1) << 4;
}

/* 32 codes as numbers, with code @zero for 0. */
BLOCK_FN void plain(const u32 *q, s32 zero, float *to)
{
	u32 i;

	BLOCK_UNROLL
	for (i = 0; i < 32; i++)
		to[i] = (float)((s32)q[i] - zero);
}

BLOCK_FN struct block_scale group_q4_0(const u8 *b, u32 g, float *to)
{
	u32 q[32];

	(void)g;
	nibbles(b + 2, q);
	plain(q, 8, to);
	return scale_of(f16_at(b), 0.0f);
}

BLOCK_FN struct block_scale group_q4_1(const u8 *b, u32 g, float *to)
{
	u32 q[32];

	(void)g;
	nibbles(b + 4, q);
	plain(q, 0, to);
	return scale_of(f16_at(b), -f16_at(b + 2));
}

BLOCK_FN struct block_scale group_q5_0(const u8 *b, u32 g, float *to)
{
	u32 q[32];

	(void)g;
	fives(u32_at(b + 2), b + 6, q);
	plain(q, 16, to);
	return scale_of(f16_at(b), 0.0f);
}

BLOCK_FN struct block_scale group_q5_1(const u8 *b, u32 g, float *to)
{
	u32 q[32];

	(void)g;
	fives(u32_at(b + 4), b + 8, q);
	plain(q, 0, to);
	return scale_of(f16_at(b), -f16_at(b + 2));
}

/* Bytes with a sign. */
BLOCK_FN void bytes(const u8 *q, float *to)
{
	u32 i;

	BLOCK_UNROLL
	for (i = 0; i < 32; i++)
		to[i] = (float)(s32)(s8)q[i];
}

BLOCK_FN struct block_scale group_q8_0(const u8 *b, u32 g, float *to)
{
	(void)g;
	bytes(b + 2, to);
	return scale_of(f16_at(b), 0.0f);
}

/* Two bits of each of 32 bytes. */
BLOCK_FN void two_bits(const u8 *q, u32 shift, u32 *to)
{
	u32 i;

	BLOCK_UNROLL
	for (i = 0; i < 32; i++)
		to[i] = q[i] >> shift & 3;
}

BLOCK_FN struct block_scale group_q2_k(const u8 *b, u32 g, float *to)
{
	const float d = f16_at(b + 80), dmin = f16_at(b + 82);
	struct block_scale s;
	u32 q[32], i;

	two_bits(b + 16 + g / 4 * 32, g % 4 * 2, q);
	plain(q, 0, to);
	BLOCK_UNROLL
	for (i = 0; i < 2; i++) {
		s.by[i] = block_mul(d, (float)(b[2 * g + i] & 15));
		s.less[i] = block_mul(dmin, (float)(b[2 * g + i] >> 4));
	}
	return s;
}

BLOCK_FN struct block_scale group_q3_k(const u8 *b, u32 g, float *to)
{
	const float d = f16_at(b + 108);
	struct block_scale s = scale_of(0.0f, 0.0f);
	u32 q[32], i;

	two_bits(b + 32 + g / 4 * 32, g % 4 * 2, q);
	BLOCK_UNROLL
	for (i = 0; i < 32; i++)
		q[i] += (b[i] >> g & 1) << 2;
	plain(q, 4, to);
	BLOCK_UNROLL
	for (i = 0; i < 2; i++)
		s.by[i] = block_mul(d, (float)q3_scale(b + 96, 2 * g + i));
	return s;
}

/* Group @g of 32 of a block, whose elements but for bits above four begin at @low. */
BLOCK_FN struct block_scale k_group(const u8 *b, const u8 *high, const u8 *low,
				    u32 g, float *to)
{
	u32 q[32], i;

	BLOCK_UNROLL
	for (i = 0; i < 32; i++)
		q[i] = low[g / 2 * 32 + i] >> (g % 2 * 4) & 15;
	BLOCK_UNROLL
	for (i = 0; high && i < 32; i++)
		q[i] |= (high[i] >> g & 1) << 4;
	plain(q, 0, to);
	return scale_of(block_mul(f16_at(b), (float)q4_scale(b + 4, g)),
			block_mul(f16_at(b + 2), (float)q4_min(b + 4, g)));
}

BLOCK_FN struct block_scale group_q4_k(const u8 *b, u32 g, float *to)
{
	return k_group(b, NULL, b + 16, g, to);
}

BLOCK_FN struct block_scale group_q5_k(const u8 *b, u32 g, float *to)
{
	return k_group(b, b + 16, b + 48, g, to);
}

BLOCK_FN struct block_scale group_q6_k(const u8 *b, u32 g, float *to)
{
	const u8 *low = b + g / 4 * 64 + g % 2 * 32;
	const float d = f16_at(b + 208);
	struct block_scale s = scale_of(0.0f, 0.0f);
	u32 q[32], i;

	two_bits(b + 128 + g / 4 * 32, g % 4 * 2, q);
	BLOCK_UNROLL
	for (i = 0; i < 32; i++)
		q[i] = q[i] << 4 | (low[i] >> (g % 4 / 2 * 4) & 15);
	plain(q, 32, to);
	BLOCK_UNROLL
	for (i = 0; i < 2; i++)
		s.by[i] = block_mul(d, (float)(s32)(s8)b[192 + 2 * g + i]);
	return s;
}

/* Codes of four bits, of numbers in a table. */
BLOCK_FN void from_table(const s8 *table, const u8 *q, float *to)
{
	u32 n[32], i;

	nibbles(q, n);
	BLOCK_UNROLL
	for (i = 0; i < 32; i++)
		to[i] = (float)(s32)table[n[i]];
}

BLOCK_FN struct block_scale group_iq4_nl(const u8 *b, u32 g, float *to)
{
	(void)g;
	from_table(nl_values, b + 2, to);
	return scale_of(f16_at(b), 0.0f);
}

BLOCK_FN struct block_scale group_iq4_xs(const u8 *b, u32 g, float *to)
{
	from_table(nl_values, b + 8 + g * 16, to);
	return scale_of(block_mul(f16_at(b), (float)iq4_scale(b, g)), 0.0f);
}

BLOCK_FN struct block_scale group_mxfp4(const u8 *b, u32 g, float *to)
{
	(void)g;
	from_table(fp4_values, b + 1, to);
	return scale_of(e8m0_half(b[0]), 0.0f);
}

BLOCK_FN struct block_scale group_w4(const u8 *b, u32 g, float *to)
{
	const s32 zero = b[4];
	const u8 *q = b + 5 + 16 * g;
	u32 i;

	BLOCK_UNROLL
	for (i = 0; i < 16; i++) {
		to[2 * i] = (float)((q[i] & 15) - zero);
		to[2 * i + 1] = (float)((q[i] >> 4) - zero);
	}
	return scale_of(f32_at(b), 0.0f);
}

BLOCK_FN struct block_scale group_w8(const u8 *b, u32 g, float *to)
{
	bytes(b + 4 + 32 * g, to);
	return scale_of(f32_at(b), 0.0f);
}

BLOCK_FN struct block_scale group_f8(const u8 *b, u32 g, float *to)
{
	const u8 *q = b + 4 + 32 * g;
	u32 i;

	BLOCK_UNROLL
	for (i = 0; i < 32; i++)
		to[i] = e4m3_number(q[i]);
	return scale_of(f32_at(b), 0.0f);
}

/* x(type, its function) */
#define BLOCK_GROUPS(x)							\
	x(Q4_0, q4_0) x(Q4_1, q4_1) x(Q5_0, q5_0) x(Q5_1, q5_1)		\
	x(Q8_0, q8_0) x(Q2_K, q2_k) x(Q3_K, q3_k) x(Q4_K, q4_k)		\
	x(Q5_K, q5_k) x(Q6_K, q6_k) x(IQ4_NL, iq4_nl) x(IQ4_XS, iq4_xs)	\
	x(MXFP4, mxfp4) x(W4_32, w4) x(W4_64, w4) x(W4_128, w4)		\
	x(W8_32, w8) x(W8_128, w8) x(F8_32, f8) x(F8_128, f8)

/* Plain numbers to numbers. */
BLOCK_FN void block_scaled(const float *q, const struct block_scale *s,
			   float *to)
{
	u32 i;

	BLOCK_UNROLL
	for (i = 0; i < 16; i++)
		to[i] = block_sub(block_mul(s->by[0], q[i]), s->less[0]);
	BLOCK_UNROLL
	for (i = 16; i < 32; i++)
		to[i] = block_sub(block_mul(s->by[1], q[i]), s->less[1]);
}

#endif /* KERNELS_BLOCK_GROUPS_H */
