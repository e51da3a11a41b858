// SPDX-License-Identifier: Apache-2.0
/*
 * check_row.c - the largest of a row, against a plain loop
 *
 * Every length up to several parts and a rest, the largest at every place,
 * equal numbers after it, and rows of special values.
 */
#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "runtime/sampler/row.h"

#define LONGEST	1600u

static float row[LONGEST + 8];

static struct row_best oracle(const float *r, u32 n)
{
	struct row_best b = { .value = -INFINITY };
	u32 i;

	for (i = 0; i < n; i++) {
		b.nan |= isnan(r[i]);
		if (r[i] > b.value) {
			b.value = r[i];
			b.at = i;
		}
	}
	/* The first one counts, also if the largest is -infinity. */
	for (i = 0; i < n && !(r[i] == b.value); i++)
		;
	b.at = i < n ? i : 0;
	return b;
}

static void compare(const float *r, u32 n)
{
	const struct row_best have = row_best(r, n), want = oracle(r, n);

	ck_assert_msg(have.value == want.value && have.at == want.at &&
		      have.nan == want.nan, "%u: %g at %u, nan %d; not %g at %u, nan %d",
		      n, have.value, have.at, have.nan, want.value, want.at,
		      want.nan);
}

static void fill(u32 seed)
{
	u32 i;

	srand(seed);
	for (i = 0; i < LONGEST + 8; i++)
		row[i] = (float)(rand() % 2001 - 1000) / 8;
}

START_TEST(test_every_length)
{
	u32 n;

	fill(1);
	for (n = 0; n <= LONGEST; n++)
		compare(row + n % 7, n);	/* at any alignment */
}
END_TEST

START_TEST(test_every_place)
{
	u32 i;

	for (i = 0; i < LONGEST; i++) {
		fill(2);
		row[i] = 500;
		compare(row, LONGEST);
		row[LONGEST - 1] = 500;
		compare(row, LONGEST);
		row[i] = NAN;
		compare(row, LONGEST);
	}
}
END_TEST

START_TEST(test_what_is_special)
{
	static const float values[] = {
		-INFINITY, INFINITY, NAN, 0.0f, -0.0f, -1e30f, 1e-40f,
	};
	u32 i, k, n;

	for (i = 0; i < ARRAY_SIZE(values); i++) {
		for (k = 0; k < LONGEST; k++)
			row[k] = values[i];
		for (n = 0; n < 70; n++)
			compare(row, n);
		compare(row, LONGEST);
		for (k = 0; k < ARRAY_SIZE(values); k++) {
			row[700] = values[k];
			compare(row, LONGEST);
			row[LONGEST - 1] = values[k];
			compare(row, LONGEST);
		}
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("row");
	TCase *tc = tcase_create("row");
	SRunner *r;
	int failed;

	tcase_add_test(tc, test_every_length);
	tcase_add_test(tc, test_every_place);
	tcase_add_test(tc, test_what_is_special);
	suite_add_tcase(s, tc);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
