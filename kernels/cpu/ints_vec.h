/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ints_vec.h - vectors of INT_ROWS lanes for products of small integers
 *
 * vq has 16 lanes of 32 bits, or 64 bytes; vy has 16 floats.  They are one register
 * of 512 bits, or two of 256.
 */
#ifndef KERNELS_CPU_INTS_VEC_H
#define KERNELS_CPU_INTS_VEC_H

#include "kernels/cpu/ints.h"
#include "kernels/cpu/vec.h"

#if VW == 16
typedef __m512i vq;
typedef __m512 vy;

/* Are codes above 127 taken as signed bytes, with 128 subtracted? */
#define INT_SIGNED	false

static __inline_always vq vq_load(const u8 *p)
{
	return _mm512_loadu_si512(p);
}

static __inline_always vq vq_set(s32 x)
{
	return _mm512_set1_epi32(x);
}

static __inline_always vq vq_set8(s8 x)
{
	return _mm512_set1_epi8(x);
}

static __inline_always vq vq_and(vq a, vq b)
{
	return _mm512_and_si512(a, b);
}

static __inline_always vq vq_or(vq a, vq b)
{
	return _mm512_or_si512(a, b);
}

/* Shifts of words, whose bits may move to the next byte. */
static __inline_always vq vq_right(vq a, const u32 by)
{
	return _mm512_srli_epi32(a, by);
}

static __inline_always vq vq_left(vq a, const u32 by)
{
	return _mm512_slli_epi32(a, by);
}

/* The number of each byte, 0 to 15, in a table of 16. */
static __inline_always vq vq_look(const u8 *table, vq a)
{
	const __m128i t = _mm_loadu_si128((const void *)table);

	return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(t), a);
}

/* acc + the products of four bytes of each lane with four bytes of x. */
static __inline_always vq vq_dot(vq acc, vq w, s32 x, const bool large)
{
	return _mm512_dpbusd_epi32(acc, w, _mm512_set1_epi32(x));
}

static __inline_always vy vy_of(vq a)
{
	return _mm512_cvtepi32_ps(a);
}

static __inline_always vy vy_set(float x)
{
	return _mm512_set1_ps(x);
}

static __inline_always vy vy_mul(vy a, vy b)
{
	return _mm512_mul_ps(a, b);
}

static __inline_always vy vy_add(vy a, vy b)
{
	return _mm512_add_ps(a, b);
}

static __inline_always vy vy_fma(vy a, vy b, vy c)
{
	return _mm512_fmadd_ps(a, b, c);
}

static __inline_always vy vy_load(const float *p)
{
	return _mm512_loadu_ps(p);
}

/* The first @n floats, at most 16; those after them are 0, or are not written. */
static __inline_always vy vy_load_part(const float *p, u32 n)
{
	return _mm512_maskz_loadu_ps((1u << n) - 1, p);
}

static __inline_always void vy_store_part(float *p, vy a, u32 n)
{
	_mm512_mask_storeu_ps(p, (1u << n) - 1, a);
}

/*
 * Floats with these bytes, less 1, as exponents: halves of the powers of two of e8m0.  The
 * two smallest become 0.
 */
static __inline_always vy vy_half_e8m0(const u8 *p)
{
	const __m128i e = _mm_subs_epu8(_mm_loadu_si128((const void *)p),
					_mm_set1_epi8(1));

	return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu8_epi32(e), 23));
}

static __inline_always vy vy_load_f16(const u8 *p)
{
	return _mm512_cvtph_ps(_mm256_loadu_si256((const void *)p));
}

/* Signed bytes, and bytes without a sign. */
static __inline_always vy vy_load_s8(const u8 *p)
{
	return vy_of(_mm512_cvtepi8_epi32(_mm_loadu_si128((const void *)p)));
}

static __inline_always vy vy_load_u8(const u8 *p)
{
	return vy_of(_mm512_cvtepu8_epi32(_mm_loadu_si128((const void *)p)));
}

#else

struct vq_pair {
	__m256i	a;
	__m256i	b;
};

struct vy_pair {
	__m256	a;
	__m256	b;
};

#define vq		struct vq_pair
#define vy		struct vy_pair

#define INT_SIGNED	true

#define VQ_EACH(a_, b_)	((vq){ .a = (a_), .b = (b_) })
#define VY_EACH(a_, b_)	((vy){ .a = (a_), .b = (b_) })

static __inline_always vq vq_load(const u8 *p)
{
	return VQ_EACH(_mm256_loadu_si256((const void *)p),
		       _mm256_loadu_si256((const void *)(p + 32)));
}

static __inline_always vq vq_set(s32 x)
{
	return VQ_EACH(_mm256_set1_epi32(x), _mm256_set1_epi32(x));
}

static __inline_always vq vq_set8(s8 x)
{
	return VQ_EACH(_mm256_set1_epi8(x), _mm256_set1_epi8(x));
}

static __inline_always vq vq_and(vq a, vq b)
{
	return VQ_EACH(_mm256_and_si256(a.a, b.a), _mm256_and_si256(a.b, b.b));
}

static __inline_always vq vq_or(vq a, vq b)
{
	return VQ_EACH(_mm256_or_si256(a.a, b.a), _mm256_or_si256(a.b, b.b));
}

static __inline_always vq vq_right(vq a, const u32 by)
{
	return VQ_EACH(_mm256_srli_epi32(a.a, by), _mm256_srli_epi32(a.b, by));
}

static __inline_always vq vq_left(vq a, const u32 by)
{
	return VQ_EACH(_mm256_slli_epi32(a.a, by), _mm256_slli_epi32(a.b, by));
}

static __inline_always vq vq_look(const u8 *table, vq a)
{
	const __m128i t = _mm_loadu_si128((const void *)table);
	const __m256i both = _mm256_broadcastsi128_si256(t);

	return VQ_EACH(_mm256_shuffle_epi8(both, a.a),
		       _mm256_shuffle_epi8(both, a.b));
}

/*
 * Sums of two products have 16 bits.  They hold 2 * 127 * 127, so codes above 127 are
 * taken as signed bytes: their magnitudes are multiplied by x with their signs.
 */
static __inline_always __m256i half_dot(__m256i acc, __m256i w, __m256i x,
					const bool large)
{
	const __m256i less = _mm256_xor_si256(w, _mm256_set1_epi8(-128));

	if (large)
		w = _mm256_abs_epi8(less);
	if (large)
		x = _mm256_sign_epi8(x, less);
	x = _mm256_madd_epi16(_mm256_maddubs_epi16(w, x), _mm256_set1_epi16(1));
	return _mm256_add_epi32(acc, x);
}

static __inline_always vq vq_dot(vq acc, vq w, s32 x, const bool large)
{
	const __m256i all = _mm256_set1_epi32(x);

	return VQ_EACH(half_dot(acc.a, w.a, all, large),
		       half_dot(acc.b, w.b, all, large));
}

static __inline_always vy vy_of(vq a)
{
	return VY_EACH(_mm256_cvtepi32_ps(a.a), _mm256_cvtepi32_ps(a.b));
}

static __inline_always vy vy_set(float x)
{
	return VY_EACH(_mm256_set1_ps(x), _mm256_set1_ps(x));
}

static __inline_always vy vy_mul(vy a, vy b)
{
	return VY_EACH(_mm256_mul_ps(a.a, b.a), _mm256_mul_ps(a.b, b.b));
}

static __inline_always vy vy_add(vy a, vy b)
{
	return VY_EACH(_mm256_add_ps(a.a, b.a), _mm256_add_ps(a.b, b.b));
}

static __inline_always vy vy_fma(vy a, vy b, vy c)
{
	return VY_EACH(_mm256_fmadd_ps(a.a, b.a, c.a),
		       _mm256_fmadd_ps(a.b, b.b, c.b));
}

static __inline_always vy vy_load(const float *p)
{
	return VY_EACH(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8));
}

static __inline_always vy vy_load_part(const float *p, u32 n)
{
	float f[INT_ROWS] = { 0 };

	memcpy(f, p, n * sizeof(*f));
	return vy_load(f);
}

static __inline_always void vy_store_part(float *p, vy a, u32 n)
{
	float f[INT_ROWS];

	_mm256_storeu_ps(f, a.a);
	_mm256_storeu_ps(f + 8, a.b);
	memcpy(p, f, n * sizeof(*f));
}

static __inline_always __m256 eight_e8m0(const u8 *p)
{
	const __m128i e = _mm_subs_epu8(_mm_loadl_epi64((const void *)p),
					_mm_set1_epi8(1));

	return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu8_epi32(e), 23));
}

static __inline_always vy vy_half_e8m0(const u8 *p)
{
	return VY_EACH(eight_e8m0(p), eight_e8m0(p + 8));
}

static __inline_always vy vy_load_f16(const u8 *p)
{
	return VY_EACH(_mm256_cvtph_ps(_mm_loadu_si128((const void *)p)),
		       _mm256_cvtph_ps(_mm_loadu_si128((const void *)(p + 16))));
}

static __inline_always vy vy_load_s8(const u8 *p)
{
	return vy_of(VQ_EACH(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)p)),
			     _mm256_cvtepi8_epi32(_mm_loadl_epi64((const void *)(p + 8)))));
}

static __inline_always vy vy_load_u8(const u8 *p)
{
	return vy_of(VQ_EACH(_mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)p)),
			     _mm256_cvtepu8_epi32(_mm_loadl_epi64((const void *)(p + 8)))));
}

#endif

static __inline_always vy vy_zero(void)
{
	return vy_set(0.0f);
}

#endif /* KERNELS_CPU_INTS_VEC_H */
