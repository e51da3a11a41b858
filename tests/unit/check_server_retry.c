// SPDX-License-Identifier: Apache-2.0
/* check_server_retry.c - the time of Retry-After, from made-up ends of requests */
#include <check.h>
#include <stdlib.h>

#include "runtime/server/retry.h"

#define MS	1000000ll

/* A second: before any request ended, and while all end at once. */
START_TEST(test_nothing_known)
{
	struct retry r = { 0 };

	ck_assert_uint_eq(retry_after_s(&r, 0), 1);
	ck_assert_uint_eq(retry_after_s(&r, 512), 1);
	retry_ended(&r, 1000 * MS, 1001 * MS);
	ck_assert_uint_eq(retry_after_s(&r, 512), 1);
}
END_TEST

/* A request ends every 50 ms: half of 512 have ended after 12.8 s. */
START_TEST(test_steady)
{
	struct retry r = { 0 };
	u32 i;

	for (i = 1; i < 100; i++)
		retry_ended(&r, 1, i * 50 * MS);
	ck_assert_uint_eq(retry_after_s(&r, 512), 13);
	ck_assert_uint_eq(retry_after_s(&r, 44), 2);
	ck_assert_uint_eq(retry_after_s(&r, 100000), 60);
	/* Requests end ten times as fast. */
	for (i = 0; i < 100; i++)
		retry_ended(&r, 1, 5000 * MS + i * 5 * MS);
	ck_assert_uint_eq(retry_after_s(&r, 512), 2);
}
END_TEST

/* An hour without requests does not count for the rate of ends. */
START_TEST(test_idle_does_not_count)
{
	struct retry r = { 0 };
	u32 i;

	for (i = 1; i < 20; i++)
		retry_ended(&r, i * 3600000 * MS, i * 3600000 * MS + 50 * MS);
	ck_assert_uint_eq(retry_after_s(&r, 512), 13);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("server-retry");
	TCase *tc = tcase_create("after");
	SRunner *sr;
	int failed;

	tcase_add_test(tc, test_nothing_known);
	tcase_add_test(tc, test_steady);
	tcase_add_test(tc, test_idle_does_not_count);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
