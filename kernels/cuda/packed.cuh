/* SPDX-License-Identifier: Apache-2.0 */
/*
 * packed.cuh - the layout of packed weights, and their codes as bf16
 *
 * W is cut into panels of 16 rows, and a panel into units of 64 columns, one after the
 * other.  A unit has codes in the order in which the lanes of a warp multiply them: 16
 * bytes of each lane, lane after lane, one load of a warp.  Four columns of rows g and
 * g + 8 belong to a lane in each multiplication of 16 columns, with g = lane / 4: those
 * from 4 * (lane % 4) on.
 *
 *	4 bits	a word for each of the unit's four multiplications; register r of the
 *		first factor (see mma_bf16()) has the nibbles r and r + 4
 *	8 bits	two words for each, first of the multiplications 0 and 1 of all lanes,
 *		then of 2 and 3; registers r and r + 1 have the bytes 0 and 2, 1 and 3
 *
 * Behind the codes are words of scales: for each g, for each group of columns, of row g
 * and then of row g + 8.  With PACKED_SUPER the first word of a row has the two f16 of its
 * block, and the second a factor and a minimum of each of the two groups.
 *
 * A number is (code - zero) * by - less.  Codes are whole numbers, or floats of four or
 * eight bits, and bf16 holds all of them.  Scales come in after the multiplication of a
 * group of columns.  So nothing of W is rounded, except the scales of PACKED_ZERO, to 16
 * bits of significand.
 */
#ifndef KERNELS_CUDA_PACKED_CUH
#define KERNELS_CUDA_PACKED_CUH

#include "kernels/cuda/cu.h"

#include "kernels/block_bits.h"

/* Words of scales of a row in a unit. */
DEVICE u32 packed_words(const struct dev_packed &p)
{
	return PACKED_COLS / p.group;
}

DEVICE u32 packed_code_bytes(const struct dev_packed &p)
{
	return PACKED_ROWS * PACKED_COLS / (p.codes < PACKED_S8 ? 2 : 1);
}

DEVICE bool packed_has_less(u32 scale)
{
	return scale != PACKED_F32;
}

/* Register @r of four from a word with 4-bit codes. */
template <int CODES>
DEVICE u32 packed_nibbles(u32 word, u32 r, u32 zero)
{
	const u32 v = word >> 4 * r;

	/* 2^7 + code has the code in its last bits. */
	if (CODES == PACKED_U4)
		return bf16_pair_sub((v & 0x000f000fu) | 0x43004300u, zero);
	/* Exponents of e2m1 and of bf16 differ by 126. */
	return bf16_pair_mul((v & 0x00070007u) << 6 | (v & 0x00080008u) << 12,
			     0x7f007f00u);
}

/* Register @r of two from a word with 8-bit codes. */
template <int CODES>
DEVICE u32 packed_bytes(u32 word, u32 r)
{
	const u32 v = word >> 8 * r;

	/* The last bit of the exponent is the sign: it takes 2^8 away, not 2^7. */
	if (CODES == PACKED_S8)
		return bf16_pair_sub((v & 0x007f007fu) | 0x43004300u,
				     (v & 0x00800080u) | 0x43004300u);
	return bf16_pair_mul((v & 0x007f007fu) << 4 | (v & 0x00800080u) << 8,
			     0x7b807b80u);
}

/* Factor and number to subtract of group @i of a unit, from the words of a row. */
struct packed_scales {
	float	by;
	float	less;
};

DEVICE struct packed_scales packed_scale_of(u32 kind, u32 first, u32 word, u32 i)
{
	struct packed_scales s = { bits_float(word), 0.0f };

	if (kind == PACKED_HALVES) {
		s.by = f16_to_f32((u16)word);
		s.less = -f16_to_f32((u16)(word >> 16));
	} else if (kind == PACKED_SUPER) {
		s.by = mul_rn(f16_to_f32((u16)first),
			      (float)(word >> 16 * i & 255));
		s.less = mul_rn(f16_to_f32((u16)(first >> 16)),
				(float)(word >> (16 * i + 8) & 255));
	} else if (kind == PACKED_ZERO) {
		s.by = bits_float(word & ~255u);
		s.less = mul_rn(s.by, (float)(word & 255));
	}
	return s;
}

/* A unit as it is in memory: a lane's codes, and scales of its two rows. */
template <int CODES>
struct unit {
	quad	code[CODES < PACKED_S8 ? 1 : 2];
	u32	scale[4][2];
};

template <int CODES>
DEVICE void unit_load(struct unit<CODES> &u, const struct dev_packed &p,
		      const u8 *from)
{
	const u32 *scale = (const u32 *)(from + packed_code_bytes(p)) +
			   thread_lane() / 4 * 2 * packed_words(p);
	u32 i;

	u.code[0] = gl_stream16(from + 16 * thread_lane());
	if (CODES >= PACKED_S8)
		u.code[CODES >= PACKED_S8] =
			gl_stream16(from + 512 + 16 * thread_lane());
#pragma unroll
	for (i = 0; i < 4; i++) {
		u.scale[i][0] = i < packed_words(p) ? scale[2 * i] : 0;
		u.scale[i][1] = i < packed_words(p) ? scale[2 * i + 1] : 0;
	}
}

/* The first factor of multiplication @j of a unit. */
template <int CODES>
DEVICE void unit_codes(const struct unit<CODES> &u, u32 j, u32 zero,
		       u32 (&a)[4])
{
	u32 r;

#pragma unroll
	for (r = 0; r < 4; r++) {
		if (CODES < PACKED_S8)
			a[r] = packed_nibbles<CODES>(u.code[0].w[j], r, zero);
		else
			a[r] = packed_bytes<CODES>(u.code[j / 2 % 2 *
							  (CODES >= PACKED_S8)].
						   w[j % 2 * 2 + r / 2], r % 2);
	}
}

/* Factor and number to subtract of group @i of row @h of two. */
template <int CODES>
DEVICE struct packed_scales unit_scale(const struct unit<CODES> &u,
				       const struct dev_packed &p, u32 i, u32 h)
{
	const u32 word = p.scale == PACKED_SUPER ? 1 : i;

	return packed_scale_of(p.scale, u.scale[0][h],
			       word == 0 ? u.scale[0][h] :
			       word == 1 ? u.scale[1][h] :
			       word == 2 ? u.scale[2][h] : u.scale[3][h], i);
}

#endif /* KERNELS_CUDA_PACKED_CUH */
