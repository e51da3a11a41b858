/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vec.h - vectors of VW floats, and their operations in exact mode
 *
 * VW is the register width of the variant: 4, 8 or 16 lanes.  Every reduction has
 * VW partial sums: lane j takes the elements with index j modulo VW in rising
 * order.  Then one fixed tree adds the lanes (lane i with lane i + VW/2, and so
 * on down).  A remainder is padded with zeros and takes the same steps.  So an
 * element's bits depend only on its inputs and length, not on the number of
 * neighbours that were computed with it.
 *
 * A multiply-add is fused in the variants that have the instruction and never
 * in "base".  The compiler itself fuses nothing (-ffp-contract=off), so a loop
 * and its remainder agree.  Operations on single elements (rope, add) use plain
 * * and +, which have the same bits in a register and outside.
 */
#ifndef KERNELS_CPU_VEC_H
#define KERNELS_CPU_VEC_H

#include "kernels/cpu/internal.h"

#ifndef KERN_VARIANT
#error "compile v_*.c with -DKERN_VARIANT=base, avx2, avx512 or avx512bf16"
#endif

#define KERN_PASTE_(a, b)	a##_##b
#define KERN_PASTE(a, b)	KERN_PASTE_(a, b)
/* The name of an exported symbol in this variant. */
#define KERN_FN(name)		KERN_PASTE(kern_##name, KERN_VARIANT)

#define KERN_LANES_base		4
#define KERN_LANES_avx2		8
#define KERN_LANES_avx512	16
#define KERN_LANES_avx512bf16	16
#define VW			KERN_PASTE(KERN_LANES, KERN_VARIANT)

/* Products of small integers (v_gemm_ints.c) are compiled. */
#if VW >= 8
#define KERN_INTS
#endif

#if defined(__x86_64__)
#include <immintrin.h>
#endif

/* The ops of this variant. */
void KERN_FN(rmsnorm)(struct kern_ctx *ctx, const float *x, const float *w,
		      u32 m, u32 d, float eps, float *y);
void KERN_FN(layernorm)(struct kern_ctx *ctx, const float *x, const float *w,
			const float *bias, u32 m, u32 d, float eps, float *y);
void KERN_FN(layernorm_heads)(struct kern_ctx *ctx, const float *x,
			      const float *w, u32 m, u32 heads, u32 d,
			      float eps, float *y);
void KERN_FN(gemm)(struct kern_ctx *ctx, const float *x, u64 x_ld,
		   const struct kern_weight *w, const float *bias, u32 m,
		   float *y, u64 y_ld);
void KERN_FN(rope)(struct kern_ctx *ctx, float *x, u64 ld, u32 m, u32 heads,
		   u32 head_dim, u32 half, const float *table);
void KERN_FN(rope_pairs)(struct kern_ctx *ctx,
			 const struct kern_rope_pairs *r);
void KERN_FN(attention)(struct kern_ctx *ctx, const struct kern_attn *a);
void KERN_FN(attn_latent)(struct kern_ctx *ctx, const struct kern_attn *a);
void KERN_FN(gemm_parts)(struct kern_ctx *ctx, const struct kern_gemm_part *parts,
			 u32 nr);
void KERN_FN(silu_mul)(struct kern_ctx *ctx, const float *gate,
		       const float *up, u64 ld, u32 m, u32 d, float *y);
void KERN_FN(act)(struct kern_ctx *ctx, enum kern_act act, const float *gate,
		  const float *up, u64 ld, u32 m, u32 d, float *y);
void KERN_FN(swiglu)(struct kern_ctx *ctx, const float *gate, const float *up,
		     u64 ld, u32 m, u32 d, float alpha, float limit, float *y);
void KERN_FN(route)(struct kern_ctx *ctx, const struct kern_route *r);
void KERN_FN(blend)(struct kern_ctx *ctx, const struct kern_blend *b);
void KERN_FN(add)(struct kern_ctx *ctx, float *x, const float *y, u64 n);
void KERN_FN(scale)(struct kern_ctx *ctx, float *x, float by, u64 n);
void KERN_FN(settle)(struct kern_ctx *ctx, float *x, u64 n);
void KERN_FN(softcap)(struct kern_ctx *ctx, float *x, float cap, u64 n);
void KERN_FN(adapt)(struct kern_ctx *ctx, const struct kern_adapt *a);
void KERN_FN(conv)(struct kern_ctx *ctx, const struct kern_conv *a);
void KERN_FN(scan)(struct kern_ctx *ctx, const struct kern_scan *a);
void KERN_FN(gated_norm)(struct kern_ctx *ctx, const struct kern_gated_norm *a);

/* kern_dequant(), to the bit. */
void KERN_FN(dequant)(enum kern_dtype t, const void *from, u64 n, float *to);

#define __inline_always		inline __attribute__((always_inline))

typedef float vf __attribute__((vector_size(4 * VW)));
typedef s32 vi __attribute__((vector_size(4 * VW)));
typedef u32 vu __attribute__((vector_size(4 * VW)));
typedef u16 vh __attribute__((vector_size(2 * VW)));
/* The same in memory: with any alignment, and of any type. */
typedef float vf_mem __attribute__((vector_size(4 * VW), aligned(4), may_alias));
typedef u16 vh_mem __attribute__((vector_size(2 * VW), aligned(2), may_alias));

static __inline_always vf vf_load(const float *p)
{
	return *(const vf_mem *)p;
}

static __inline_always void vf_store(float *p, vf v)
{
	*(vf_mem *)p = v;
}

static __inline_always vf vf_set(float x)
{
	return x - (vf){ 0 };
}

static __inline_always vi vi_set(s32 x)
{
	return x - (vi){ 0 };
}

/* Each 16-bit lane in 32 bits; gcc 12 needs help to find the instruction. */
static __inline_always vu vh_widen(vh h)
{
#if VW == 16
	return (vu)_mm512_cvtepu16_epi32((__m256i)h);
#elif VW == 8
	return (vu)_mm256_cvtepu16_epi32((__m128i)h);
#else
	return __builtin_convertvector(h, vu);
#endif
}

/* VW numbers in f16, exactly. */
static __inline_always vf vf_of_f16(vh h)
{
#if VW == 16
	return (vf)_mm512_cvtph_ps((__m256i)h);
#elif VW == 8
	return (vf)_mm256_cvtph_ps((__m128i)h);
#else
	const vu bits = vh_widen(h), size = (bits & 0x7fff) << 13;
	const vu special = (vu)(size >= 0x0f800000) & 0x7f800000;
	const vf f = (vf)size * 0x1p112f;

	return (vf)((vu)f | special | (bits & 0x8000) << 16);
#endif
}

/* VW elements of a weight or a KV row in f32, bf16 or f16, from element @i on. */
static __inline_always vf vf_load_as(const void *p, u64 i,
				     const enum kern_dtype type)
{
	if (type == KERN_F32)
		return vf_load((const float *)p + i);
	if (type == KERN_F16)
		return vf_of_f16(*(const vh_mem *)((const u16 *)p + i));
	return (vf)(vh_widen(*(const vh_mem *)((const u16 *)p + i)) << 16);
}

/* The first @n of VW elements, then zeros. */
static __inline_always vf vf_load_part(const void *p, u64 i, u32 n,
				       const enum kern_dtype type)
{
	float f[VW] = { 0 };
	u16 h[VW] = { 0 };

	if (type != KERN_F32) {
		memcpy(h, (const u16 *)p + i, n * sizeof(*h));
		return vf_load_as(h, 0, type);
	}
	memcpy(f, (const float *)p + i, n * sizeof(*f));
	return vf_load(f);
}

static __inline_always void vf_store_part(float *p, vf v, u32 n)
{
	float f[VW];

	vf_store(f, v);
	memcpy(p, f, n * sizeof(*f));
}

static __inline_always vf vf_select(vi mask, vf a, vf b)
{
	return (vf)((mask & (vi)a) | (~mask & (vi)b));
}

#if VW == 16

static __inline_always vf vf_fma(vf a, vf b, vf c)
{
	return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}

static __inline_always vf vf_max(vf a, vf b)
{
	return (vf)_mm512_max_ps((__m512)a, (__m512)b);
}

#elif VW == 8

static __inline_always vf vf_fma(vf a, vf b, vf c)
{
	return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
}

static __inline_always vf vf_max(vf a, vf b)
{
	return (vf)_mm256_max_ps((__m256)a, (__m256)b);
}

#else

static __inline_always vf vf_fma(vf a, vf b, vf c)
{
	return a * b + c;
}

/* As the x86 instruction: the second operand if one of them is NaN. */
static __inline_always vf vf_max(vf a, vf b)
{
	return vf_select(a > b, a, b);
}

#endif

/*
 * Two registers hold segments of L lanes, each for its own sum.  The result adds
 * the halves of each segment: segments of L / 2 lanes, in order.
 */
#define FOLD_AT(j, l)	((j) / ((l) / 2) * (l) + (j) % ((l) / 2))
#define FOLD_4(j, l, o)	FOLD_AT(j, l) + (o), FOLD_AT((j) + 1, l) + (o),	\
			FOLD_AT((j) + 2, l) + (o), FOLD_AT((j) + 3, l) + (o)
#if VW == 16
#define FOLD_IDX(l, o)	FOLD_4(0, l, o), FOLD_4(4, l, o),		\
			FOLD_4(8, l, o), FOLD_4(12, l, o)
#elif VW == 8
#define FOLD_IDX(l, o)	FOLD_4(0, l, o), FOLD_4(4, l, o)
#else
#define FOLD_IDX(l, o)	FOLD_4(0, l, o)
#endif
#define vf_fold_lo(a, b, l)	__builtin_shufflevector(a, b, FOLD_IDX(l, 0))
#define vf_fold_hi(a, b, l)						\
	__builtin_shufflevector(a, b, FOLD_IDX(l, (l) / 2))
#define vf_fold(a, b, l)	(vf_fold_lo(a, b, l) + vf_fold_hi(a, b, l))

/* Lane i of the result is the sum of a[i]'s lanes, by the fixed tree. */
static __inline_always vf vf_sum_each(const vf a[VW])
{
	vf t[VW];
	u32 i;

#pragma GCC unroll 8
	for (i = 0; i < VW / 2; i++)
		t[i] = vf_fold(a[2 * i], a[2 * i + 1], VW);
#if VW >= 8
#pragma GCC unroll 4
	for (i = 0; i < VW / 4; i++)
		t[i] = vf_fold(t[2 * i], t[2 * i + 1], VW / 2);
#endif
#if VW >= 16
#pragma GCC unroll 2
	for (i = 0; i < VW / 8; i++)
		t[i] = vf_fold(t[2 * i], t[2 * i + 1], VW / 4);
#endif
	return vf_fold(t[0], t[1], 2);
}

/* The sum of one register's lanes, by the same tree. */
static __inline_always float vf_sum(vf v)
{
	v = vf_fold(v, v, VW);
#if VW >= 8
	v = vf_fold(v, v, VW / 2);
#endif
#if VW >= 16
	v = vf_fold(v, v, VW / 4);
#endif
	return vf_fold(v, v, 2)[0];
}

static __inline_always float vf_max_lane(vf v)
{
	v = vf_max(vf_fold_lo(v, v, VW), vf_fold_hi(v, v, VW));
#if VW >= 8
	v = vf_max(vf_fold_lo(v, v, VW / 2), vf_fold_hi(v, v, VW / 2));
#endif
#if VW >= 16
	v = vf_max(vf_fold_lo(v, v, VW / 4), vf_fold_hi(v, v, VW / 4));
#endif
	return vf_max(vf_fold_lo(v, v, 2), vf_fold_hi(v, v, 2))[0];
}

/*
 * exp(x) within 2 ulp for x in [-86, 88]; below, 0; above, exp(88).
 *
 * x = n ln 2 + r with |r| <= ln 2 / 2; e^r by a polynomial of degree 6
 * (minimax of relative error, 3e-9); n is added to the exponent.  The C library's
 * exp() does not serve: it picks its code by CPU and not by variant.
 */
static __inline_always vf vf_exp_clamped(vf x, vf n)
{
	const float magic = 0x1.8p23f;	/* adding it rounds to an integer */
	vf r = n, p;

	n = vf_fma(n, vf_set(0x1.715476p+0f), vf_set(magic));
	p = n - vf_set(magic);
	r = vf_fma(p, vf_set(-0x1.62ep-1f), r);
	r = vf_fma(p, vf_set(-0x1.0bfbe8p-15f), r);
	p = vf_fma(vf_set(0x1.6a23dp-10f), r, vf_set(0x1.123a2p-7f));
	p = vf_fma(p, r, vf_set(0x1.5558f2p-5f));
	p = vf_fma(p, r, vf_set(0x1.555492p-3f));
	p = vf_fma(p, r, vf_set(0x1.fffffcp-2f));
	p = vf_fma(p, r * r, r) + vf_set(1.0f);
	p = (vf)((vu)p + ((vu)n << 23));	/* also for NaN */
	return (vf)((vi)p & ~(x < vf_set(-86.0f)));
}

static __inline_always vf vf_exp(vf x)
{
	vf n = vf_max(vf_set(-86.0f), x);

	return vf_exp_clamped(x, vf_select(n > vf_set(88.0f), vf_set(88.0f),
					   n));
}

/* The bits of vf_exp() for x <= 0. */
static __inline_always vf vf_exp_down(vf x)
{
	return vf_exp_clamped(x, vf_max(vf_set(-86.0f), x));
}

/*
 * tanh(x) within 3 ulp.  Large arguments use 1 - 2 / (exp(2x) + 1).  It would lose
 * digits of small ones, which use an odd polynomial (minimax, 9e-8).
 */
static __inline_always vf vf_tanh(vf x)
{
	const vf a = (vf)((vi)x & 0x7fffffff), z = x * x;
	vf big, p;

	p = vf_fma(vf_set(-0x1.901808p-8f), z, vf_set(0x1.581fa8p-6f));
	p = vf_fma(p, z, vf_set(-0x1.b928dep-5f));
	p = vf_fma(p, z, vf_set(0x1.110e2ep-3f));
	p = vf_fma(p, z, vf_set(-0x1.555552p-2f));
	p = vf_fma(p, z * x, x);
	big = vf_set(1.0f) -
	      vf_set(2.0f) / (vf_exp(a + a) + vf_set(1.0f));
	big = (vf)((vi)big | ((vi)x & vi_set((s32)0x80000000)));
	return vf_select(a > vf_set(0.625f), big, p);
}

#endif /* KERNELS_CPU_VEC_H */
