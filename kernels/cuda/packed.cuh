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

#endif /* KERNELS_CUDA_PACKED_CUH */
