// SPDX-License-Identifier: Apache-2.0
/*
 * gemm_pack.cu - weights in blocks, in the order of packed.cuh
 *
 * A thread has 32 columns of two rows that share words, g and g + 8 of a panel.
 */
#include "kernels/cuda/blocks.cuh"
#include "kernels/cuda/packed.cuh"

/* e2m1 of twice a number of it. */
DEVICE u32 fp4_code(float v)
{
	const u32 n = (u32)fabsf(v), sign = v < 0.0f ? 8 : 0;

	return sign | (n <= 4 ? n : n == 6 ? 5 : n == 8 ? 6 : 7);
}

/* e4m3 of a number of it; of NaN anything. */
DEVICE u32 e4m3_code(float v)
{
	const u32 bits = float_bits(v), size = bits & 0x7fffffffu;
	const u32 sign = bits >> 24 & 0x80;

	if (size < 121u << 23)
		return sign | (u32)(bits_float(size) * 512.0f);
	return sign | ((size - (120u << 23)) >> 20 & 0x7f);
}

DEVICE u32 code_of(const struct dev_packed &p, float v, u32 zero)
{
	if (p.codes == PACKED_FP4)
		return fp4_code(v);
	if (p.codes == PACKED_E4M3)
		return e4m3_code(v);
	return (u32)((s32)v + (s32)zero) & 255;
}

/* Add the codes of row g + 8 * @h to the words of 32 columns, two a lane and unit of 16. */
template <int BYTES>
DEVICE void add_codes(const struct dev_packed &p,
		      const float (&q)[BLOCK_GROUP], u32 h, u32 zero,
		      u32 (&word)[16])
{
	u32 k;

#pragma unroll
	for (k = 0; k < BLOCK_GROUP; k++) {
		const u32 j = k / 16, t = k / 4 % 4, pair = k / 2 % 2;
		const u32 code = code_of(p, q[k], zero);

		if (BYTES)
			word[(j * 4 + t) * 2 + pair] |= code << 8 *
							(h + k % 2 * 2);
		else
			word[j * 4 + t] |= code << 4 * (h + 2 * pair + k % 2 * 4);
	}
}

/* Store the words of half @s of a unit, of the four lanes of row @g. */
template <int BYTES>
DEVICE void put_codes(u8 *unit, u32 g, u32 s, const u32 (&word)[16])
{
	u32 *to = (u32 *)unit + (BYTES ? s * 128 : 0);
	u32 j, t, i;

#pragma unroll
	for (j = 0; j < 2; j++)
#pragma unroll
		for (t = 0; t < 4; t++)
#pragma unroll
			for (i = 0; i < (BYTES ? 2 : 1); i++)
				to[(g * 4 + t) * 4 + (BYTES ? 2 * j + i :
						      2 * s + j)] =
					word[(j * 4 + t) * (BYTES ? 2 : 1) + i];
}

DEVICE u32 scale_word(const struct dev_packed &p, const u8 *b, float by)
{
	if (p.scale == PACKED_HALVES)
		return u32_at(b);
	if (p.scale == PACKED_ZERO)
		return ((float_bits(by) + 128) & ~255u) | b[4];
	return float_bits(by);
}

/* Store the scales of half @s of a unit, of row @g + 8 * @h; @b is NULL beyond W. */
DEVICE void put_scales(const struct dev_packed &p, u8 *unit, u32 g, u32 h, u32 s,
		       const u8 *b, u32 group, const struct block_scale &by)
{
	u32 *to = (u32 *)(unit + packed_code_bytes(p)) +
		  g * 2 * packed_words(p) + h;

	if (p.scale == PACKED_SUPER) {
		u16 *bytes = (u16 *)(to + 2) + s;

		if (!s)
			to[0] = b ? u32_at(b) : 0;
		*bytes = (u16)(b ? q4_scale(b + 4, group) |
				   q4_min(b + 4, group) << 8 : 0);
		return;
	}
	if (p.group == 16) {
		to[4 * s] = b ? scale_word(p, b, by.by[0]) : 0;
		to[4 * s + 2] = b ? scale_word(p, b, by.by[1]) : 0;
	} else if (p.group == 32 || !s) {
		to[p.group == 32 ? 2 * s : 0] = b ? scale_word(p, b, by.by[0]) : 0;
	}
}

/*
 * Is a number of the columns with one scale none?  Then the scale must be NaN: codes have
 * none.  @q is group @group of the block, and half of those columns if there are 64.
 */
DEVICE bool has_nan(const struct k_gemm_pack_args &a, const u8 *b, u32 group,
		    const float (&q)[BLOCK_GROUP])
{
	float more[BLOCK_GROUP] = {};
	bool nan = false;
	u32 k;

	if (a.p.codes != PACKED_E4M3)
		return false;
	if (a.p.group == 2 * BLOCK_GROUP)
		block_plain(a.blocks.type, b, group ^ 1, more);
#pragma unroll
	for (k = 0; k < BLOCK_GROUP; k++)
		nan = nan || !(q[k] == q[k]) || !(more[k] == more[k]);
	return nan;
}

template <int BYTES>
DEVICE void pack(const struct k_gemm_pack_args &a, u64 panel, u32 g, u32 k)
{
	u8 *unit = a.to + panel * a.p.panel +
		   (u64)(k / PACKED_COLS) * a.p.unit;
	const u32 s = k % PACKED_COLS / BLOCK_GROUP;
	const u32 group = k % a.blocks.elems / BLOCK_GROUP;
	u32 word[16] = {}, h;

#pragma unroll
	for (h = 0; h < 2; h++) {
		const u64 n = panel * PACKED_ROWS + g + 8 * h;
		const u8 *b = n < a.n && k < a.k ?
			      block_of(a.blocks, a.w, n, k) : NULL;
		struct block_scale by = scale_of(0.0f, 0.0f);
		float q[BLOCK_GROUP] = {};

		if (b)
			by = block_plain(a.blocks.type, b, group, q);
		if (b && has_nan(a, b, group, q))
			by = scale_of(bits_float(0x7fc00000u), 0.0f);
		if (b)
			add_codes<BYTES>(a.p, q, h,
					 a.p.scale == PACKED_ZERO ? b[4] :
								    a.p.zero,
					 word);
		put_scales(a.p, unit, g, h, s, b, group, by);
	}
	put_codes<BYTES>(unit, g, s, word);
}

/* A thread for each 32 columns of each pair of rows; units are filled up with zeros. */
KERNEL(k_gemm_pack, 256)(struct k_gemm_pack_args a)
{
	const u32 halves = (a.k + PACKED_COLS - 1) / PACKED_COLS * 2;
	const u64 panels = (a.n + PACKED_ROWS - 1) / PACKED_ROWS;
	const u64 all = panels * halves * 8;
	u64 i;

	for (i = (u64)blockIdx.x * blockDim.x + threadIdx.x; i < all;
	     i += (u64)gridDim.x * blockDim.x) {
		const u32 k = (u32)(i / 8 % halves) * BLOCK_GROUP;

		if (a.p.codes >= PACKED_S8)
			pack<1>(a, i / 8 / halves, i % 8, k);
		else
			pack<0>(a, i / 8 / halves, i % 8, k);
	}
}
