// SPDX-License-Identifier: Apache-2.0
/*
 * v_quant.c - quantized weights as numbers
 */
#include "kernels/cpu/vec.h"

#ifdef KERN_INTS

/* The bits of VW numbers in e4m3 as those of f16, times 2^-8. */
static __inline_always vh e4m3_as_f16(const u8 *p)
{
#if VW == 16
	vh h = (vh)_mm256_cvtepu8_epi16(_mm_loadu_si128((const void *)p));
#else
	vh h = (vh)_mm_cvtepu8_epi16(_mm_loadl_epi64((const void *)p));
#endif
	return (h & 0x7f) << 7 | (h & 0x80) << 8;
}

#define BLOCKS_LOOK

/* 16 signed bytes as floats, times @d. */
static __inline_always void numbers_store(__m128i q, float d, float *to)
{
#if VW == 16
	vf_store(to, (vf)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(q)) * d);
#else
	const __m128i high = _mm_unpackhi_epi64(q, q);

	vf_store(to, (vf)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(q)) * d);
	vf_store(to + 8, (vf)_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(high)) * d);
#endif
}

/* See blocks.h. */
static __inline_always void numbers_of(const s8 *table, const u8 *q, float d,
				       float *to)
{
	const __m128i t = _mm_loadu_si128((const void *)table);
	const __m128i b = _mm_loadu_si128((const void *)q);
	const __m128i low = _mm_set1_epi8(15);
	const __m128i high = _mm_and_si128(_mm_srli_epi16(b, 4), low);

	numbers_store(_mm_shuffle_epi8(t, _mm_and_si128(b, low)), d, to);
	numbers_store(_mm_shuffle_epi8(t, high), d, to + 16);
}

#define BLOCKS_E4M3

/* e4m3 as f16 of another exponent, which has its subnormal numbers as well. */
static __inline_always vf e4m3_load(const u8 *p)
{
	const vf f = vf_of_f16(e4m3_as_f16(p)) * 256.0f;
	const vi nan = (vi)((vu)f << 1) == (vi)((vu)vf_set(480.0f) << 1);

	return (vf)((vi)f | (nan & 0x7fc00000));
}

/* See blocks.h. */
static __inline_always void e4m3_numbers(const u8 *b, float d, float *to)
{
	u32 i;

	for (i = 0; i < 32; i += VW)
		vf_store(to + i, e4m3_load(b + i) * d);
}
#endif

#include "kernels/blocks.h"

void KERN_FN(dequant)(enum kern_dtype t, const void *from, u64 n, float *to)
{
	blocks_dequant(t, from, n, to);
}
