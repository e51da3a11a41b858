// SPDX-License-Identifier: Apache-2.0
/*
 * ref_small.c - f16 and e4m3 by their definition, for the reference
 *
 * A number is (-1)^s * 2^(e - bias) * 1.fraction; if e is 0, it has no leading
 * one and the least exponent.  Rounding counts in units of the last place of
 * the number's own exponent, in double, where all of it is exact.
 */
#include <math.h>

#include "kernels/ref/internal.h"

static s32 bias_of(u32 e)
{
	return (1 << (e - 1)) - 1;
}

/* The largest finite number's bits, without its sign. */
static u32 largest(u32 e, u32 m)
{
	if (e == 4)
		return (1u << (e + m)) - 2;
	return (((1u << e) - 1) << m) - 1;
}

double kern_ref_small(u32 bits, u32 e, u32 m)
{
	u32 low = bits & ((1u << (e + m)) - 1), f = low & ((1u << m) - 1);
	s32 exp = low >> m;
	double x;

	if (low > largest(e, m))
		x = f || e == 4 ? NAN : INFINITY;
	else if (exp)
		x = ldexp((1u << m) + f, exp - bias_of(e) - (s32)m);
	else
		x = ldexp(f, 1 - bias_of(e) - (s32)m);
	return bits >> (e + m) & 1 ? -x : x;
}

u32 kern_ref_round_small(double x, u32 e, u32 m)
{
	u32 sign = (signbit(x) ? 1u : 0) << (e + m), all = (1u << (e + m)) - 1;
	s32 exp, least = 1 - bias_of(e);
	double units;
	u32 bits;

	if (isnan(x))
		return sign | (e == 4 ? all : all ^ (all >> (e + 1)));
	if (isinf(x))
		return sign | (largest(e, m) + (e == 4 ? 0 : 1));
	if (!x)
		return sign;
	frexp(x, &exp);
	exp = max(exp - 1, least);
	units = rint(ldexp(fabs(x), (s32)m - exp));
	/* A fraction that is rounded up to 2.0 carries into the exponent. */
	bits = (u32)min(units + ldexp(exp - least, m), (double)all);
	if (bits > largest(e, m))
		bits = largest(e, m) + (e == 4 ? 0 : 1);
	return sign | bits;
}
