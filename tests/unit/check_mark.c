// SPDX-License-Identifier: Apache-2.0
/*
 * check_mark.c - what an assertion that holds costs and tells (tests/mark.h)
 *
 * Assertions in a loop must not write for each time that they hold.  The place of a test
 * that dies must be that of the last assertion that was new, and a place that fails in a
 * loop must be told although it held before.
 */
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <kvmm/types.h>

#define MANY	20000u


/* Bytes that this process has written so far. */
static u64 written(void)
{
	unsigned long long n = 0;
	char line[64];
	FILE *f = fopen("/proc/self/io", "r");

	if (!f)
		ck_abort_msg("no /proc/self/io");
	while (fgets(line, sizeof(line), f))
		sscanf(line, "wchar: %llu", &n);
	fclose(f);
	return n;
}

START_TEST(test_cost)
{
	const u64 before = written();
	u64 bytes;
	u32 i;

	for (i = 0; i < MANY; i++) {
		ck_assert(i < MANY);
		ck_assert_uint_lt(i, MANY);
		ck_assert_ptr_nonnull(&i);
	}
	bytes = written() - before;
	ck_assert_uint_lt(bytes, MANY);
}
END_TEST

/* ---- tests that end badly ---- */

enum { DIES = __LINE__ + 7 };	/* the line of its last assertion */
START_TEST(dies)
{
	u32 i;

	for (i = 0; i < 3; i++)
		ck_assert(i < 3);
	ck_assert(i == 3);
	raise(SIGKILL);
}
END_TEST

enum { FAILS = __LINE__ + 6 };
START_TEST(fails)
{
	u32 i;

	for (i = 0; i < 3; i++)
		ck_assert(i < 2);
}
END_TEST

/* Run @fn and return the line that libcheck gives for it. */
static int line_of(const TTest *fn)
{
	Suite *s = suite_create("inner");
	TCase *tc = tcase_create("inner");
	SRunner *sr = srunner_create(s);
	TestResult **bad;
	int line = -1;

	tcase_add_test(tc, fn);
	suite_add_tcase(s, tc);
	srunner_set_fork_status(sr, CK_FORK);
	srunner_run_all(sr, CK_SILENT);
	if (srunner_ntests_failed(sr) == 1) {
		bad = srunner_failures(sr);
		line = tr_lno(bad[0]);
		free(bad);
	}
	srunner_free(sr);
	return line;
}

/* Lines that libcheck tells */
static int died_at, failed_at;

START_TEST(test_places)
{
	ck_assert_int_eq(died_at, DIES);
	ck_assert_int_eq(failed_at, FAILS);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("mark");
	TCase *tc = tcase_create("mark");
	SRunner *sr;
	int failed;

	died_at = line_of(dies);
	failed_at = line_of(fails);
	tcase_add_test(tc, test_cost);
	tcase_add_test(tc, test_places);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
