// SPDX-License-Identifier: Apache-2.0
/*
 * check_core_worth.c - the worth of a cached block, in exact numbers
 *
 * worth.c is arithmetic on one struct kv_lru, so these tests need no core.  A
 * worth is a rate of hits for each block and unit of time, in 2^-24: a tier whose
 * rate is k / (age + i) begins with about k / i.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "kvmm/core/mem/mem.h"

static struct kv_lru l;

static void setup(void)
{
	memset(&l, 0, sizeof(l));
	lru_learn(&l, false);
}

/* ---- ages and tiers ---- */

START_TEST(test_two_buckets_for_each_power_of_two)
{
	static const u32 first[] = { 0, 1, 0, 2, 3, 4, 6, 8, 12, 16, 24, 32 };
	u32 x;

	for (x = 0; x < ARRAY_SIZE(first); x++) {
		if (x == 2)	/* no age is between 1 and 2 */
			continue;
		ck_assert_uint_eq(lru_age_bucket(first[x]), x);
		if (x > 3)
			ck_assert_uint_eq(lru_age_bucket(first[x] - 1), x - 1);
	}
}
END_TEST

START_TEST(test_the_last_bucket_has_all_older_ages)
{
	ck_assert_uint_eq(lru_age_bucket((1u << 15) - 1), 30);
	ck_assert_uint_eq(lru_age_bucket(1u << 15), 31);
	ck_assert_uint_eq(lru_age_bucket(3u << 14), 31);
	ck_assert_uint_eq(lru_age_bucket(~0u), 31);
}
END_TEST

START_TEST(test_what_was_never_found_has_a_tier_by_its_interval)
{
	u32 i;

	for (i = 0; i < LRU_TIER_FOUND; i++)
		ck_assert_uint_eq(lru_tier(0, i), i);
}
END_TEST

START_TEST(test_what_was_found_has_a_tier_by_hits)
{
	ck_assert_uint_eq(lru_tier(1, 0), 4);
	ck_assert_uint_eq(lru_tier(2, 0), 8);
	ck_assert_uint_eq(lru_tier(3, 0), 8);
	ck_assert_uint_eq(lru_tier(4, 0), 12);
	ck_assert_uint_eq(lru_tier(7, 0), 12);
}
END_TEST

/* Intervals of 16, 128 and 768 units begin a class; eight steps are a bucket. */
START_TEST(test_what_was_found_has_a_tier_by_interval)
{
	static const u32 begin[] = { 9 * 8, 15 * 8, 20 * 8 };
	u32 i;

	for (i = 0; i < ARRAY_SIZE(begin); i++) {
		ck_assert_uint_eq(lru_tier(1, begin[i] - 1), 4 + i);
		ck_assert_uint_eq(lru_tier(1, begin[i]), 5 + i);
	}
}
END_TEST

/* ---- learning ---- */

START_TEST(test_an_observation_counts_256)
{
	memset(&l, 0, sizeof(l));
	lru_observe(&l, 5, 2, 7, false, 3);
	lru_observe(&l, 5, 2, 9, true, 1);
	ck_assert_uint_eq(l.enter[5][2], 4 * 256);
	ck_assert_uint_eq(l.leave[5][7], 3 * 256);
	ck_assert_uint_eq(l.leave[5][9], 256);
	ck_assert_uint_eq(l.hit[5][7], 0);
	ck_assert_uint_eq(l.hit[5][9], 256);
}
END_TEST

START_TEST(test_what_is_known_fades_by_a_64th)
{
	lru_observe(&l, 5, 2, 7, true, 64);
	lru_learn(&l, false);
	ck_assert_uint_eq(l.enter[5][2], 64 * 256);
	lru_learn(&l, true);
	ck_assert_uint_eq(l.enter[5][2], 63 * 256);
	ck_assert_uint_eq(l.leave[5][7], 63 * 256);
	ck_assert_uint_eq(l.hit[5][7], 63 * 256);
}
END_TEST

#define NR_AGES 9

/*
 * Before any observation: k / (age + i).  Here k is 1/8, 3/32, 1/16, 1/32 and i
 * is 256 for blocks that were never found, else k is 1, 3/2, 2 and i is 8, 64,
 * 512, 2048.
 */
START_TEST(test_worth_before_anything_was_seen)
{
	static const u32 age[NR_AGES] = { 0, 1, 2, 3, 100, 512, 1024, 4096, 40000 };
	static const u32 want[LRU_NR_TIERS][NR_AGES] = {
		{ 7955, 7953, 7950, 7948, 5612, 2339, 1365, 389, 50 },
		{ 5898, 5902, 5957, 5978, 4205, 1754, 1023, 292, 38 },
		{ 3906, 3910, 3928, 3945, 2806, 1169, 682, 194, 25 },
		{ 1887, 1891, 1903, 1911, 1399, 584, 341, 97, 12 },
		{ 2096935, 1864018, 1677496, 1525125, 134816, 25889, 13025, 3271, 409 },
		{ 262083, 257861, 254164, 250208, 92767, 23830, 12482, 3236, 408 },
		{ 32638, 32607, 32575, 32575, 26640, 14562, 9361, 2978, 404 },
		{ 8074, 8076, 8081, 8085, 7741, 6240, 5041, 2340, 390 },
		{ 3145499, 2796152, 2516567, 2287736, 202219, 38835, 19538, 4907, 614 },
		{ 393001, 387104, 381211, 375589, 139153, 35746, 18724, 4854, 613 },
		{ 49039, 49039, 48782, 48782, 39968, 21843, 14042, 4468, 606 },
		{ 12163, 12162, 12164, 12169, 11614, 9361, 7561, 3510, 585 },
		{ 4194304, 3728155, 3355258, 3050292, 269631, 51781, 26051, 6543, 818 },
		{ 524040, 516148, 508264, 500658, 185541, 47662, 24965, 6472, 817 },
		{ 65536, 65277, 65277, 65020, 53289, 29125, 18724, 5957, 809 },
		{ 16236, 16226, 16252, 16254, 15485, 12482, 10082, 4681, 780 },
	};
	u32 t, i;

	for (t = 0; t < LRU_NR_TIERS; t++)
		for (i = 0; i < NR_AGES; i++)
			ck_assert_uint_eq(lru_value(&l, t, age[i]), want[t][i]);
}
END_TEST

/*
 * 500 hits at ages of about 24 and 96 among 1500 names: before them the worth
 * rises, since it looks ahead; behind them it is far below; at ages without
 * observations it is unchanged.
 */
START_TEST(test_worth_looks_ahead_to_the_hits)
{
	static const u32 want[LRU_NR_AGES] = {
		136459, 139256, 142287, 145523, 150211, 155272, 166678, 180190,
		216218, 272732, 603771, 26564, 28655, 32435, 54861, 8498,
		6870, 6883, 7093, 7493, 8902, 12482, 9038, 6393, 4598, 3236,
		2319, 1628, 1164, 816, 583, 408,
	};
	u32 x;

	lru_observe(&l, 5, 0, 10, true, 400);
	lru_observe(&l, 5, 0, 14, true, 100);
	lru_observe(&l, 5, 3, 20, false, 1000);
	lru_learn(&l, false);
	for (x = 0; x < LRU_NR_AGES; x++)
		ck_assert_uint_eq(l.value[5][x], want[x]);
}
END_TEST

/* A rate above one hit a unit counts as one. */
START_TEST(test_rate_is_at_most_one)
{
	lru_observe(&l, 12, 0, 0, true, 1u << 20);
	lru_learn(&l, false);
	ck_assert_uint_eq(l.value[12][0], 1u << LRU_WORTH_SHIFT);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("core_worth");
	TCase *t = tcase_create("worth");

	tcase_add_checked_fixture(t, setup, NULL);
	tcase_add_test(t, test_two_buckets_for_each_power_of_two);
	tcase_add_test(t, test_the_last_bucket_has_all_older_ages);
	tcase_add_test(t, test_what_was_never_found_has_a_tier_by_its_interval);
	tcase_add_test(t, test_what_was_found_has_a_tier_by_hits);
	tcase_add_test(t, test_what_was_found_has_a_tier_by_interval);
	tcase_add_test(t, test_an_observation_counts_256);
	tcase_add_test(t, test_what_is_known_fades_by_a_64th);
	tcase_add_test(t, test_worth_before_anything_was_seen);
	tcase_add_test(t, test_worth_looks_ahead_to_the_hits);
	tcase_add_test(t, test_rate_is_at_most_one);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(suite());
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
