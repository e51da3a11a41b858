// SPDX-License-Identifier: Apache-2.0
/*
 * narrow.c - convert numbers to elements of KV
 *
 * kernels.h defines all types to the bit, so one compilation serves all
 * variants.  Rounding is to nearest, ties to even.  Magnitudes that are normal in
 * the narrow type are rounded by adding half a place to the bits; subnormal ones
 * by adding a float with the type's smallest number as its last place.
 */
#include "kernels/cpu/internal.h"

static u32 bits_of(float f)
{
	u32 bits;

	memcpy(&bits, &f, sizeof(bits));
	return bits;
}

static float float_of(u32 bits)
{
	float f;

	memcpy(&f, &bits, sizeof(f));
	return f;
}

/* Round the magnitude @mag to whole units of the last place of @magic. */
static u32 round_small(u32 mag, float magic)
{
	return bits_of(float_of(mag) + magic) - bits_of(magic);
}

static u16 to_f16(float x)
{
	u32 bits = bits_of(x), sign = bits >> 16 & 0x8000;
	u32 mag = bits & 0x7fffffff;

	if (mag > 0x7f800000)
		return sign | 0x7e00;
	if (mag >= 0x47800000)		/* 2^16 */
		return sign | 0x7c00;
	if (mag < 0x38800000)		/* 2^-14; places of 2^-24 */
		return sign | round_small(mag, 0.5f);
	mag += 0xfff + (mag >> 13 & 1);	/* may carry up to infinity */
	return sign | (mag - 0x38000000) >> 13;
}

/* |x| <= 448 */
static u8 to_e4m3(float x)
{
	u32 bits = bits_of(x), sign = bits >> 24 & 0x80;
	u32 mag = bits & 0x7fffffff;

	if (mag < 0x3c800000)		/* 2^-6; places of 2^-9 */
		return sign | round_small(mag, 0x1p14f);
	mag += 0x7ffff + (mag >> 20 & 1);
	return sign | (mag - 0x3c000000) >> 20;
}

/* |x| <= 127 */
static u8 to_i8(float x)
{
	const float magic = 0x1.8p23f;

	return bits_of(x + magic) - bits_of(magic);
}

static float make_scale(const float *x, u32 n, float limit)
{
	u32 most = 0, i;

	/* Magnitudes compare like their bits, infinities and NaN above all. */
	for (i = 0; i < n; i++)
		most = max(most, bits_of(x[i]) & 0x7fffffffu);
	return most < 0x7f800000 ? float_of(most) / limit :
				   float_of(0x7fc00000);
}

static float within_limit(float x, float limit)
{
	return x > limit ? limit : x < -limit ? -limit : x;
}

static void narrow_scaled(u8 *dst, enum kern_dtype type, float *scale,
			  const float *src, u32 n)
{
	const float limit = type == KERN_I8 ? KERN_I8_MAX : KERN_E4M3_MAX;
	const float by = make_scale(src, n, limit);
	float x;
	u32 i;

	*scale = by;
	if (!(by > 0)) {
		memset(dst, 0, n);
		return;
	}
	for (i = 0; i < n; i++) {
		x = within_limit(src[i] / by, limit);
		dst[i] = type == KERN_I8 ? to_i8(x) : to_e4m3(x);
	}
}

void kern_narrow(void *dst, enum kern_dtype type, float *scale,
		 const float *src, u32 n)
{
	u16 *h = dst;
	u32 i;

	switch (type) {
	case KERN_F32:
		memcpy(dst, src, n * sizeof(*src));
		break;
	case KERN_BF16:
		for (i = 0; i < n; i++)
			h[i] = kern_f32_to_bf16(src[i]);
		break;
	case KERN_F16:
		for (i = 0; i < n; i++)
			h[i] = to_f16(src[i]);
		break;
	default:
		narrow_scaled(dst, type, scale, src, n);
		break;
	}
}
