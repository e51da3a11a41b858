// SPDX-License-Identifier: Apache-2.0
/*
 * trig.c - cosines and sines of rotary positions, the same bits everywhere
 *
 * The C library uses different code for the sine on CPUs with and without FMA,
 * and KV outlives processes and may move between machines.  So the table is
 * computed here, in plain double arithmetic: reduce by multiples of pi/2 in three
 * parts, then Taylor series that are exact to double on [-pi/4, pi/4], then
 * one rounding to float.
 *
 * The angle itself is the f32 product position * inv_freq, as in the reference
 * implementations of these models.  At large positions its rounding is visible,
 * and a more exact angle would be a different model.
 *
 * Valid for |angle| < 2^20 or so: the first part of pi/2 has 33 bits, so its
 * multiples are exact in double up to there.
 */
#include "kernels/cpu/internal.h"

/* pi/2 as a sum of three; the first two have their low bits zero. */
#define PIO2_1	0x1.921fb544p+0
#define PIO2_2	0x1.0b4611a6p-34
#define PIO2_3	0x1.3198a2e037073p-69
#define TWO_OVER_PI	0x1.45f306dc9c883p-1
/* Adding and subtracting 1.5 * 2^52 rounds a double to an integer. */
#define ROUND_MAGIC	0x1.8p52

/* Both series, alternating, in z = x^2: coefficients of rising powers. */
static const double sin_coef[] = {
	1.0, -1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880,
	-1.0 / 39916800, 1.0 / 6227020800.0, -1.0 / 1307674368000.0,
	1.0 / 355687428096000.0,
};

static const double cos_coef[] = {
	1.0, -1.0 / 2, 1.0 / 24, -1.0 / 720, 1.0 / 40320, -1.0 / 3628800,
	1.0 / 479001600, -1.0 / 87178291200.0, 1.0 / 20922789888000.0,
};

static double poly(const double *coef, u32 n, double z)
{
	double r = coef[--n];

	while (n--)
		r = r * z + coef[n];
	return r;
}

static void sin_cos(double a, double *s, double *c)
{
	double n = (a * TWO_OVER_PI + ROUND_MAGIC) - ROUND_MAGIC;
	double x = ((a - n * PIO2_1) - n * PIO2_2) - n * PIO2_3;
	double sx = x * poly(sin_coef, ARRAY_SIZE(sin_coef), x * x);
	double cx = poly(cos_coef, ARRAY_SIZE(cos_coef), x * x);
	u32 quadrant = (u32)(s64)n & 3;

	*s = quadrant & 1 ? cx : sx;
	*c = quadrant & 1 ? sx : cx;
	if (quadrant & 2)
		*s = -*s;
	if (quadrant == 1 || quadrant == 2)
		*c = -*c;
}

void kern_rope_table(struct kern_ctx *ctx, const float *inv_freq, u32 half,
		     const u32 *positions, u32 m, float *table)
{
	float angle, *row;
	double s, c;
	u32 i, j;

	for (i = 0; i < m; i++) {
		row = table + 2ull * i * half;
		for (j = 0; j < half; j++) {
			angle = (float)positions[i] * inv_freq[j];
			sin_cos(angle, &s, &c);
			row[j] = c;
			row[half + j] = s;
		}
	}
}
