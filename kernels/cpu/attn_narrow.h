/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attn_narrow.h - elements of KV in f16, e4m3 and int8 as f32
 *
 * A number is its element times the scale of its head and token, one product
 * rounded to f32.  So all variants and all paths of attention compute the same
 * numbers.  Positions that were never written may become any number, as in f32
 * KV, and so may their scales.  The NaN code of e4m3 is not handled: kv_write
 * never stores it, but makes the scale NaN.
 */
#ifndef KERNELS_CPU_ATTN_NARROW_H
#define KERNELS_CPU_ATTN_NARROW_H

#include "kernels/cpu/vec.h"

/* Factor that e4m3_widen() leaves out: its exponents have the bias of f16. */
#define E4M3_TIMES	0x1p8f

#if VW == 16

static __inline_always vf f16_of(__m256i h)
{
	return (vf)_mm512_cvtph_ps(h);
}

/* The bits are moved into an f16, which also serves subnormal numbers. */
static __inline_always vf e4m3_of(__m128i b)
{
	const __m256i c = _mm256_cvtepu8_epi16(b);
	const __m256i mag = _mm256_and_si256(_mm256_slli_epi16(c, 7),
					     _mm256_set1_epi16(0x3f80));
	const __m256i sign = _mm256_and_si256(_mm256_slli_epi16(c, 8),
					      _mm256_set1_epi16(0x8000 - 0x10000));

	return (vf)_mm512_cvtph_ps(_mm256_or_si256(mag, sign));
}

static __inline_always vf i8_of(__m128i b)
{
	return (vf)_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(b));
}

static __inline_always vf f16_widen(const u8 *p)
{
	return f16_of(_mm256_loadu_si256((const __m256i *)p));
}

static __inline_always vf e4m3_widen(const u8 *p)
{
	return e4m3_of(_mm_loadu_si128((const __m128i *)p));
}

static __inline_always vf i8_widen(const u8 *p)
{
	return i8_of(_mm_loadu_si128((const __m128i *)p));
}

#else

typedef u8 vb __attribute__((vector_size(VW)));
typedef s8 vc __attribute__((vector_size(VW)));

/* VW bytes, each in a lane of 32 bits. */
static __inline_always vu bytes_widen(const u8 *p)
{
#if VW == 8
	return (vu)_mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
#else
	vb b;

	memcpy(&b, p, sizeof(b));
	return __builtin_convertvector(b, vu);
#endif
}

/* The same with their signs. */
static __inline_always vi chars_widen(const u8 *p)
{
#if VW == 8
	return (vi)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p));
#else
	vc c;

	memcpy(&c, p, sizeof(c));
	return __builtin_convertvector(c, vi);
#endif
}

/*
 * Widen magnitudes with the fraction in the place of f32's, and an exponent bias
 * that is @less below that of f32.  Adding @less to the exponent gives a
 * subnormal number a leading one, and half the scale: subtract the one, and
 * double the rest.
 */
static __inline_always vf small_widen(vu mag, u32 less)
{
	const vu one = (vu)vi_set((s32)(less << 23));
	const vf f = (vf)(mag + one), low = f - (vf)one;

	return vf_select(mag < 1u << 23, low + low, f);
}

static __inline_always vf f16_widen(const u8 *p)
{
	const vu h = vh_widen(*(const vh_mem *)(const void *)p);
	const vu mag = (h & 0x7fff) << 13;
	const vu special = (vu)(mag >= 0x1fu << 23) & 0x7f800000;

	return (vf)((vu)small_widen(mag, 112) | special | (h & 0x8000) << 16);
}

static __inline_always vf e4m3_widen(const u8 *p)
{
	const vu c = bytes_widen(p);

	return (vf)((vu)small_widen((c & 0x7f) << 20, 112) | (c & 0x80) << 24);
}

static __inline_always vf i8_widen(const u8 *p)
{
	return __builtin_convertvector(chars_widen(p), vf);
}

#endif

/* VW elements from @p on, times their scale @by; f16 has none. */
static __inline_always vf narrow_load(const u8 *p, const float *by,
				      const enum kern_dtype type)
{
	if (type == KERN_F16)
		return f16_widen(p);
	if (type == KERN_E4M3)
		return e4m3_widen(p) * vf_set(*by * E4M3_TIMES);
	return i8_widen(p) * vf_set(*by);
}

#if VW == 16
/* The same for 8 elements, and zeros in the other lanes. */
static __inline_always vf narrow_load_half(const u8 *p, const float *by,
					   const enum kern_dtype type)
{
	const __m128i b = type == KERN_F16 ?
		_mm_loadu_si128((const __m128i *)p) :
		_mm_loadl_epi64((const __m128i *)p);

	if (type == KERN_F16)
		return f16_of(_mm256_zextsi128_si256(b));
	if (type == KERN_E4M3)
		return e4m3_of(b) * vf_set(*by * E4M3_TIMES);
	return i8_of(b) * vf_set(*by);
}
#endif

#endif /* KERNELS_CPU_ATTN_NARROW_H */
