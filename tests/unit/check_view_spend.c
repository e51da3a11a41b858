// SPDX-License-Identifier: Apache-2.0
/*
 * check_view_spend.c - the budget of a user that reads the operator's files
 */
#include <check.h>
#include <stdlib.h>

#include "kvmm/ipc/view/view.h"

#define BURST	(100 * NSEC_PER_MSEC)
#define SHARE	50u
#define LEAST	20000u
#define ALL_BURST (5 * BURST)
#define ALL_SHARE 10u

static struct spend s;
static const u64 start = 1000 * NSEC_PER_SEC;

static void setup(void)
{
	s = (struct spend){ 0 };
}

START_TEST(test_new_user_has_a_whole_budget)
{
	ck_assert_uint_eq(spend_due(&s, 7, start), start);
	spend_charge(&s, 7, start, BURST);
	ck_assert_uint_eq(spend_due(&s, 7, start), start);
	spend_charge(&s, 7, start, LEAST);
	ck_assert_uint_eq(spend_due(&s, 7, start), start + LEAST * SHARE);
}
END_TEST

START_TEST(test_each_request_costs_the_least)
{
	u32 i, nr = BURST / LEAST;

	for (i = 0; i < nr; i++)
		spend_charge(&s, 7, start, 0);
	ck_assert_uint_eq(spend_due(&s, 7, start), start);
	spend_charge(&s, 7, start, LEAST - 1);
	ck_assert_uint_eq(spend_due(&s, 7, start), start + LEAST * SHARE);
}
END_TEST

START_TEST(test_budget_grows_up_to_the_burst)
{
	spend_charge(&s, 7, start, 3 * BURST);
	ck_assert_uint_eq(spend_due(&s, 7, start), start + 2 * BURST * SHARE);
	ck_assert_uint_eq(spend_due(&s, 7, start + SHARE),
			  start + 2 * BURST * SHARE);
	/* After an hour the user has one burst, not an hour's share. */
	spend_charge(&s, 7, start + 3600 * NSEC_PER_SEC, BURST + LEAST);
	ck_assert_uint_eq(spend_due(&s, 7, start + 3600 * NSEC_PER_SEC),
			  start + 3600 * NSEC_PER_SEC + LEAST * SHARE);
}
END_TEST

START_TEST(test_operator_has_no_bound)
{
	spend_charge(&s, PROC_ALL, start, 100 * BURST);
	ck_assert_uint_eq(spend_due(&s, PROC_ALL, start), start);
}
END_TEST

START_TEST(test_users_do_not_share_a_budget)
{
	spend_charge(&s, 7, start, 2 * BURST);
	ck_assert_uint_gt(spend_due(&s, 7, start), start);
	ck_assert_uint_eq(spend_due(&s, 8, start), start);
}
END_TEST

/* A user that asks again at once has its share of any time, one burst and one request. */
START_TEST(test_greedy_user_has_its_share)
{
	const u64 end = start + 20 * NSEC_PER_SEC;
	const u64 cost[] = { LEAST, 130000, 67 * NSEC_PER_MSEC };
	u64 now = start, spent = 0;

	for (;;) {
		now = spend_due(&s, 7, now);
		if (now >= end)
			break;
		now += cost[_i];
		spend_charge(&s, 7, now, cost[_i]);
		spent += cost[_i];
	}
	ck_assert_uint_le(spent, BURST + cost[_i] + (now - start) / SHARE);
	ck_assert_uint_ge(spent, BURST + (end - start) / SHARE - cost[_i]);
}
END_TEST

/* A person with many user ids has no more than the users together. */
START_TEST(test_all_users_have_a_budget)
{
	u32 i;

	for (i = 0; i < 6; i++)
		spend_charge(&s, 100 + i, start, BURST);
	ck_assert_uint_eq(spend_due(&s, 100, start), start + BURST * ALL_SHARE);
	ck_assert_uint_eq(spend_due(&s, 200, start), start + BURST * ALL_SHARE);
	ck_assert_uint_eq(spend_due(&s, PROC_ALL, start), start);
	ck_assert_uint_eq(spend_due(&s, 200, start + BURST * ALL_SHARE),
			  start + BURST * ALL_SHARE);
	/* The budget of all is whole again after the time that its burst takes. */
	spend_charge(&s, 300, start + 3600 * NSEC_PER_SEC, ALL_BURST);
	ck_assert_uint_eq(spend_due(&s, 301, start + 3600 * NSEC_PER_SEC),
			  start + 3600 * NSEC_PER_SEC);
	spend_charge(&s, 302, start + 3600 * NSEC_PER_SEC, LEAST);
	ck_assert_uint_eq(spend_due(&s, 301, start + 3600 * NSEC_PER_SEC),
			  start + 3600 * NSEC_PER_SEC + LEAST * ALL_SHARE);
}
END_TEST

/* One user more than there are records: a user in debt stays in debt. */
START_TEST(test_fullest_record_is_used_again)
{
	u32 i;

	for (i = 0; i < SPEND_USERS; i++)
		spend_charge(&s, 100 + i, start, i == 9 ? LEAST : 2 * BURST);
	s.all.at = 0;
	spend_charge(&s, 7, start, 2 * BURST);
	s.all.at = 0;
	for (i = 0; i < SPEND_USERS; i++)
		ck_assert_uint_eq(spend_due(&s, 100 + i, start),
				  i == 9 ? start : start + BURST * SHARE);
	ck_assert_uint_eq(spend_due(&s, 7, start), start + BURST * SHARE);
	/* All are in debt: the least debt is forgiven. */
	spend_charge(&s, 100 + 3, start + 1, 0);
	spend_charge(&s, 8, start + 1, 3 * BURST);
	s.all.at = 0;
	ck_assert_uint_eq(spend_due(&s, 8, start + 1), start + 1 + 2 * BURST * SHARE);
	ck_assert_uint_gt(spend_due(&s, 100 + 3, start + 1), start + 1);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("view_spend");
	TCase *tc = tcase_create("budget");
	SRunner *sr;
	int failed;

	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, test_new_user_has_a_whole_budget);
	tcase_add_test(tc, test_each_request_costs_the_least);
	tcase_add_test(tc, test_budget_grows_up_to_the_burst);
	tcase_add_test(tc, test_operator_has_no_bound);
	tcase_add_test(tc, test_users_do_not_share_a_budget);
	tcase_add_loop_test(tc, test_greedy_user_has_its_share, 0, 3);
	tcase_add_test(tc, test_all_users_have_a_budget);
	tcase_add_test(tc, test_fullest_record_is_used_again);
	suite_add_tcase(suite, tc);
	sr = srunner_create(suite);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
