// SPDX-License-Identifier: Apache-2.0
/* check_places.c - no slot is handed out while its request is unfinished */
#include <check.h>
#include <stdlib.h>

#include "tests/bench/places.h"

#define NR	64u
#define OUT	32u

static struct places p;

/* The disk forgets one request, and all others overtake it, again and again. */
START_TEST(test_overtaken)
{
	const u32 first = 7 * (u32)_i;
	u32 out[OUT], nr[NR] = { 0 }, n, i, at;

	srand(1 + (u32)_i);
	places_reset(&p, first, NR, (u32)_i);
	for (i = 0; i < OUT; i++)
		out[i] = places_take(&p);
	for (n = 0; n < 20 * NR; n++) {
		i = 1 + (u32)rand() % (OUT - 1);
		places_give(&p, out[i]);
		out[i] = UINT32_MAX;
		at = places_take(&p);
		ck_assert(at >= first && at < first + NR);
		for (i = 0; i < OUT; i++)
			ck_assert_msg(out[i] != at, "slot %u has two requests after %u",
				      at, n);
		for (i = 0; out[i] != UINT32_MAX; i++)
			;
		out[i] = at;
		nr[at - first]++;
	}
	/* All other slots are used. */
	for (i = 0; i < NR; i++)
		ck_assert_int_eq(nr[i] > 0 || first + i == out[0], 1);
}
END_TEST

/* Without a finished request each slot is taken once, and then none. */
START_TEST(test_walk)
{
	bool met[NR] = { false };
	u32 i, at;

	places_reset(&p, 0, NR, (u32)_i);
	for (i = 0; i < NR; i++) {
		at = places_take(&p);
		ck_assert_uint_lt(at, NR);
		ck_assert(!met[at]);
		met[at] = true;
	}
	ck_assert_uint_eq(places_take(&p), UINT32_MAX);
	places_give(&p, 5);
	ck_assert_uint_eq(places_take(&p), 5);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("places");
	TCase *t = tcase_create("places");
	SRunner *r;
	int nr;

	tcase_add_loop_test(t, test_overtaken, 0, 8);
	tcase_add_loop_test(t, test_walk, 0, 8);
	suite_add_tcase(s, t);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	nr = srunner_ntests_failed(r);
	srunner_free(r);
	return nr != 0;
}
