// SPDX-License-Identifier: Apache-2.0
/*
 * quantize.c - numbers as quantized weights
 *
 * Q4_K has 8 parts of 32 elements in a block.  A number of a part is scale * q - min,
 * with q in 0..15.  For given q the best scale and minimum are the solution of two linear
 * equations, and the error follows from the same sums.  So a part tries some steps
 * between the levels of q, rounds its numbers with each, and keeps the best solution.
 * The block then gets its two factors in f16, and each part tries the neighbours of its
 * scale and minimum of 6 bits.
 */
#include <math.h>

#include "kernels/quantize.h"

static u32 float_bits(float f)
{
	u32 bits;

	memcpy(&bits, &f, sizeof(bits));
	return bits;
}

/* The nearest f16; ties to even, and beyond the largest one infinity. */
static u16 to_f16(float f)
{
	const u32 bits = float_bits(f), sign = bits >> 16 & 0x8000;
	u32 low = bits & 0x7fffffff, cut;

	if (low >= 0x47800000)
		return sign | 0x7c00;
	if (low < 0x38800000)
		return sign | (u32)lrintf(fabsf(f) * 0x1p24f);
	cut = low & 0x1fff;
	low = (low - (112u << 23)) >> 13;
	return sign | (low + (cut > 0x1000 || (cut == 0x1000 && (low & 1))));
}

/* The nearest e4m3; ties to even, and beyond the largest one that one. */
static u8 to_e4m3(float f)
{
	const u32 bits = float_bits(f), sign = bits >> 24 & 0x80;
	u32 low = bits & 0x7fffffff;

	if (low < 0x3c800000)
		return sign | (u32)lrintf(fabsf(f) * 512);
	low += 0x7ffff + (low >> 20 & 1);
	low = (low - (120u << 23)) >> 20;
	return sign | min(low, 0x7eu);
}

static void put_f16(u8 *b, float f)
{
	const u16 h = to_f16(f);

	b[0] = h & 255;
	b[1] = h >> 8;
}

static float get_f16(const u8 *b)
{
	return kern_f16(b[0] | (u32)b[1] << 8);
}

static float largest(const float *x, u32 n)
{
	float most = 0;
	u32 i;

	for (i = 0; i < n; i++)
		most = max(most, fabsf(x[i]));
	return most;
}

/* Round ties away from zero. */
static void q8_0(const float *x, u8 *b)
{
	const float d = largest(x, 32) / 127, by = d ? 1 / d : 0;
	u32 i;

	put_f16(b, d);
	for (i = 0; i < 32; i++)
		b[2 + i] = (s32)roundf(x[i] * by);
}

static void w8(const float *x, u32 n, u8 *b)
{
	const float d = largest(x, n) / 127, by = d ? 1 / d : 0;
	u32 i;

	memcpy(b, &d, sizeof(d));
	for (i = 0; i < n; i++)
		b[4 + i] = (s32)rintf(x[i] * by);
}

static void f8(const float *x, u32 n, u8 *b)
{
	const float d = largest(x, n) / 448, by = d ? 1 / d : 0;
	u32 i;

	memcpy(b, &d, sizeof(d));
	for (i = 0; i < n; i++)
		b[4 + i] = to_e4m3(x[i] * by);
}

/* ---- Q4_K ---- */

#define PART		32u
#define PARTS		8u
#define LANES		4u
#define LEVELS		15.0f
#define TRIES		24u
#define MOST_6		63

/* Scale and minimum of a part; the minimum is subtracted, and is not negative. */
struct part {
	float	scale;
	float	min;
	float	error;
};

/* Sums over a part. */
struct sums {
	float	x;
	float	xx;
	float	xq;
	float	q;
	float	qq;
};

typedef float lanes __attribute__((vector_size(LANES * sizeof(float))));
typedef s32 masks __attribute__((vector_size(LANES * sizeof(s32))));

/* The levels of numbers; *@at has their places in steps. */
static inline void levels_of(lanes *at)
{
	const lanes most = { LEVELS, LEVELS, LEVELS, LEVELS };
	masks cut;

	*at += 0.5f;
	cut = *at > most;
	*at = (lanes)(((masks)*at & ~cut) | ((masks)most & cut));
	*at = (lanes)((masks)*at & (*at > 0));
	*at = __builtin_convertvector(__builtin_convertvector(*at, masks), lanes);
}

static float sum_lanes(const lanes *v)
{
	float sum = 0;
	u32 j;

	for (j = 0; j < LANES; j++)
		sum += (*v)[j];
	return sum;
}

/* Sums with the levels of numbers for a step of 1 / @by above @low. */
static void part_sums(const float *x, float low, float by, struct sums *s)
{
	lanes v, q, xq = { 0 }, sum = { 0 }, squares = { 0 };
	u32 i;

	for (i = 0; i < PART; i += LANES) {
		memcpy(&v, x + i, sizeof(v));
		q = (v - low) * by;
		levels_of(&q);
		xq += v * q;
		sum += q;
		squares += q * q;
	}
	s->xq = sum_lanes(&xq);
	s->q = sum_lanes(&sum);
	s->qq = sum_lanes(&squares);
}

/* The best scale and minimum for the levels of @s. */
static struct part part_solve(const struct sums *s)
{
	const float det = PART * s->qq - s->q * s->q;
	struct part p = { 0 };

	if (s->qq == 0)
		return (struct part){ .error = s->xx };
	if (det > 0) {
		p.scale = (PART * s->xq - s->q * s->x) / det;
		p.min = -(s->qq * s->x - s->q * s->xq) / det;
	}
	if (det <= 0 || p.min < 0) {
		p.min = 0;
		p.scale = s->xq / s->qq;
	}
	if (p.scale < 0)
		return (struct part){ .error = s->xx };
	p.error = s->xx - p.scale * s->xq + p.min * s->x;
	return p;
}

/* Try steps around that which spreads the numbers over all levels. */
static struct part part_search(const float *x)
{
	float low = 0, high = x[0];
	struct sums s = { 0 };
	struct part best, p;
	u32 i;

	for (i = 0; i < PART; i++) {
		low = min(low, x[i]);
		high = max(high, x[i]);
		s.x += x[i];
		s.xx += x[i] * x[i];
	}
	best = (struct part){ .error = s.xx };
	/* All zero, or one negative number. */
	if (!(high > low))
		return (struct part){ .min = -low };
	for (i = 0; i < TRIES; i++) {
		part_sums(x, low, (LEVELS - 1.5f + 0.15f * (float)i) / (high - low),
			  &s);
		p = part_solve(&s);
		if (p.error < best.error)
			best = p;
	}
	/* Once more, from the minimum that was found. */
	if (best.scale > 0) {
		part_sums(x, -best.min, 1 / best.scale, &s);
		p = part_solve(&s);
		if (p.error < best.error)
			best = p;
	}
	return best;
}

/* The error with a scale and a minimum; @q gets the levels unless it is NULL. */
static float part_levels(const float *x, float scale, float min, u8 *q)
{
	const float by = scale > 0 ? 1 / scale : 0;
	lanes v, level, error = { 0 };
	u32 i, j;

	for (i = 0; i < PART; i += LANES) {
		memcpy(&v, x + i, sizeof(v));
		level = (v + min) * by;
		levels_of(&level);
		for (j = 0; q && j < LANES; j++)
			q[i + j] = (u8)level[j];
		level = scale * level - min - v;
		error += level * level;
	}
	return sum_lanes(&error);
}

static s32 nearest_6(float f, float unit)
{
	const s32 n = unit > 0 ? (s32)rintf(f / unit) : 0;

	return min(n, MOST_6);
}

/* The best neighbours of the scale and minimum in units of @d and @dmin. */
static void part_round(const float *x, const struct part *p, float d, float dmin,
		       u8 *scale, u8 *min, u8 *q)
{
	const s32 s0 = nearest_6(p->scale, d), m0 = nearest_6(p->min, dmin);
	float best = INFINITY, error;
	s32 s, m;

	for (s = s0 - 1; s <= s0 + 1; s++) {
		for (m = m0 - 1; m <= m0 + 1; m++) {
			if (s < 0 || m < 0 || s > MOST_6 || m > MOST_6)
				continue;
			error = part_levels(x, d * (float)s, dmin * (float)m,
					    NULL);
			if (!(error < best))
				continue;
			best = error;
			*scale = s;
			*min = m;
		}
	}
	part_levels(x, d * (float)*scale, dmin * (float)*min, q);
}

/* Put 6 bits of each scale and minimum into 12 bytes. */
static void put_scales(const u8 *scale, const u8 *min, u8 *b)
{
	u32 i;

	for (i = 0; i < 4; i++) {
		b[i] = scale[i] | scale[i + 4] >> 4 << 6;
		b[i + 4] = min[i] | min[i + 4] >> 4 << 6;
		b[i + 8] = (scale[i + 4] & 15) | (min[i + 4] & 15) << 4;
	}
}

static void q4_k(const float *x, u8 *b)
{
	u8 scale[PARTS] = { 0 }, low[PARTS] = { 0 }, q[PARTS * PART] = { 0 };
	struct part p[PARTS];
	float most = 0, most_min = 0;
	u32 i;

	for (i = 0; i < PARTS; i++) {
		p[i] = part_search(x + i * PART);
		most = max(most, p[i].scale);
		most_min = max(most_min, p[i].min);
	}
	put_f16(b, most / MOST_6);
	put_f16(b + 2, most_min / MOST_6);
	for (i = 0; i < PARTS; i++)
		part_round(x + i * PART, &p[i], get_f16(b), get_f16(b + 2),
			   &scale[i], &low[i], q + i * PART);
	put_scales(scale, low, b + 4);
	for (i = 0; i < PARTS * PART / 2; i++)
		b[16 + i] = q[i / 32 * 64 + i % 32] |
			    q[i / 32 * 64 + 32 + i % 32] << 4;
}

bool kern_can_quantize(enum kern_dtype t)
{
	return t == KERN_Q8_0 || t == KERN_Q4_K || t == KERN_W8_32 ||
	       t == KERN_W8_128 || t == KERN_F8_32 || t == KERN_F8_128;
}

static void block_quantize(enum kern_dtype t, const float *x, u8 *b)
{
	switch (t) {
	case KERN_Q8_0:
		return q8_0(x, b);
	case KERN_Q4_K:
		return q4_k(x, b);
	case KERN_W8_32:
	case KERN_W8_128:
		return w8(x, kern_block_elems(t), b);
	default:
		return f8(x, kern_block_elems(t), b);
	}
}

void kern_quantize(enum kern_dtype t, const float *from, u64 n, void *to)
{
	const u32 elems = kern_block_elems(t), bytes = kern_block_bytes(t);
	u8 *b = to;
	u64 i;

	for (i = 0; i < n; i += elems, b += bytes)
		block_quantize(t, from + i, b);
}
