// SPDX-License-Identifier: Apache-2.0
/*
 * bench_draw.c - random numbers of a workload
 *
 * All numbers follow from a seed and the number of a stream, alike on every
 * machine, so a workload can be repeated by its seed.  The generator is
 * splitmix64 (Steele, Lea and Flood, 2014); gamma numbers are drawn by the
 * method of Marsaglia and Tsang (2000).
 */
#include <math.h>

#include "runtime/cli/bench.h"

#define DRAW_STEP	0x9e3779b97f4a7c15ull

u64 draw_mix(u64 x)
{
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
	return x ^ (x >> 31);
}

void draw_seed(struct draw *d, u64 seed, u64 stream)
{
	d->state = draw_mix(seed + DRAW_STEP) ^ draw_mix(~stream);
}

u64 draw_u64(struct draw *d)
{
	d->state += DRAW_STEP;
	return draw_mix(d->state);
}

double draw_unit(struct draw *d)
{
	return ((double)(draw_u64(d) >> 11) + 1) * 0x1p-53;
}

u32 draw_between(struct draw *d, u32 lo, u32 hi)
{
	const u64 span = (u64)hi - lo + 1;

	/*
	 * Upper half of the product: no number is likelier by more than 2^-32.
	 */
	return lo + (u32)((draw_u64(d) >> 32) * span >> 32);
}

double draw_normal(struct draw *d)
{
	const double r = sqrt(-2 * log(draw_unit(d)));

	return r * cos(2 * M_PI * draw_unit(d));
}

double draw_gamma(struct draw *d, double shape)
{
	double k, c, x, v;

	/* Below 1: draw for shape + 1 and scale the result down. */
	if (shape < 1)
		return draw_gamma(d, shape + 1) *
		       pow(draw_unit(d), 1 / shape);
	k = shape - 1.0 / 3;
	c = 1 / sqrt(9 * k);
	for (;;) {
		x = draw_normal(d);
		v = 1 + c * x;
		if (v <= 0)
			continue;
		v = v * v * v;
		if (log(draw_unit(d)) < x * x / 2 + k - k * v + k * log(v))
			return k * v;
	}
}

void draw_arrivals(struct draw *d, double rate, double shape, double *at,
		   u32 nr)
{
	double sum = 0, scale;
	u32 i;

	for (i = 0; i < nr; i++) {
		if (isinf(rate))
			at[i] = 0;
		else if (isinf(shape))
			at[i] = sum += 1;
		else
			at[i] = sum += draw_gamma(d, shape);
	}
	scale = sum > 0 ? (double)nr / rate / sum : 0;
	for (i = 0; i < nr; i++)
		at[i] *= scale;
}
