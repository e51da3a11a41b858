/* SPDX-License-Identifier: Apache-2.0 */
/*
 * chi_square.h - are draws as frequent as they should be?
 *
 * For tests of random draws, on the host and on a device.
 */
#ifndef TESTS_UNIT_CHI_SQUARE_H
#define TESTS_UNIT_CHI_SQUARE_H

#include <check.h>
#include <math.h>

#include <kvmm/types.h>

/*
 * Chi-square as a number of standard deviations (Wilson and Hilferty): of @n
 * tokens drawn @draws times in all, each @count[] times, with the probabilities
 * @prob[].  Tokens that are expected less than 8 times are merged.
 */
static inline double chi_square(const u32 *count, const double *prob,
				u32 n, u32 draws)
{
	double x2 = 0, rest = 0, rest_got = 0, df = -1;
	u32 i;

	for (i = 0; i < n; i++) {
		const double want = prob[i] * draws, d = count[i] - want;

		if (count[i] && prob[i] == 0)
			ck_abort_msg("token %u is drawn, %u times", i, count[i]);
		if (want < 8) {
			rest += want;
			rest_got += count[i];
			continue;
		}
		x2 += d * d / want;
		df++;
	}
	if (rest >= 8) {
		x2 += (rest_got - rest) * (rest_got - rest) / rest;
		df++;
	}
	if (df < 1)
		return 0;
	return (cbrt(x2 / df) - (1 - 2 / (9 * df))) / sqrt(2 / (9 * df));
}

#endif /* TESTS_UNIT_CHI_SQUARE_H */
