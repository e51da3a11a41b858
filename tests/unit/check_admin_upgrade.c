// SPDX-License-Identifier: Apache-2.0
/*
 * check_admin_upgrade.c - answers of kvmm-hold about the program of an upgrade
 *
 * This file compiles admin/upgrade.c and replaces the link to kvmm-hold and the
 * answer to the operator.
 */
#include <check.h>
#include <fcntl.h>
#include <stdlib.h>

#define deposit_try		fake_deposit_try
#define admin_finish		fake_admin_finish
#define keep_layout		fake_keep_layout
#define upgrade_request		upgrade_wanted
#define upgrade_told		upgrade_answered
#define upgrade_forget_waiter	upgrade_left
#include "kvmm/ipc/admin/upgrade.c"

static struct operators *o;
static struct deposit deposit;
static struct setup *as;
static struct loop loop;
static struct admin first, second;
static const struct admin *finished;
static int finished_with;
static struct hold_record asked;

int deposit_try(struct deposit *p, const struct hold_record *r, int fd)
{
	asked = *r;
	return 0;
}

void admin_finish(struct admin *adm, int err, const char *text)
{
	finished = adm;
	finished_with = err;
}

u64 keep_layout(void)
{
	return 7;
}

static void setup(void)
{
	o = calloc(1, sizeof(*o));
	as = calloc(1, sizeof(*as));
	ck_assert(o && as);
	o->setup = as;
	o->deposit = &deposit;
	o->loop = &loop;
	loop.stop = false;
	finished = NULL;
}

static void teardown(void)
{
	free(as);
	free(o);
}

/* The operator asks; the question is @asked. */
static struct hold_record ask(struct admin *adm)
{
	upgrade_wanted(o, adm, "upgrade 0 /usr/sbin/kvmm", open("/dev/null", O_RDONLY));
	ck_assert_ptr_null(finished);
	ck_assert_ptr_eq(o->upgrade.waiter, adm);
	return asked;
}

static struct hold_record answer_to(const struct hold_record *r, int err)
{
	struct hold_record answer = *r;

	answer.op = HOLD_TELL;
	answer.index = (u32)-err;
	return answer;
}

START_TEST(test_good_program)
{
	const struct hold_record q = ask(&first), yes = answer_to(&q, 0);

	upgrade_answered(o, &yes);
	ck_assert_ptr_eq(finished, &first);
	ck_assert_int_eq(finished_with, 0);
	ck_assert(loop.stop && o->upgrade.granted);
}
END_TEST

START_TEST(test_bad_program)
{
	const struct hold_record q = ask(&first), no = answer_to(&q, -ENOEXEC);

	upgrade_answered(o, &no);
	ck_assert_ptr_eq(finished, &first);
	ck_assert_int_eq(finished_with, -ENOEXEC);
	ck_assert(!loop.stop && !o->upgrade.granted);
}
END_TEST

/* The first operator left: the answer to that question is none for the second. */
START_TEST(test_late_answer)
{
	const struct hold_record q = ask(&first), late = answer_to(&q, 0);
	struct hold_record next, no;

	upgrade_left(o, &first);
	upgrade_answered(o, &late);
	ck_assert(!finished && !loop.stop);
	next = ask(&second);
	ck_assert_uint_ne(next.generation, q.generation);
	upgrade_answered(o, &late);
	ck_assert(!finished && !loop.stop);
	no = answer_to(&next, -ENOEXEC);
	upgrade_answered(o, &no);
	ck_assert_ptr_eq(finished, &second);
	ck_assert_int_eq(finished_with, -ENOEXEC);
}
END_TEST

/* One question at a time. */
START_TEST(test_two_operators)
{
	ask(&first);
	upgrade_wanted(o, &second, "upgrade 0 /usr/sbin/kvmm", open("/dev/null", O_RDONLY));
	ck_assert_ptr_eq(finished, &second);
	ck_assert_int_eq(finished_with, -EBUSY);
	ck_assert_ptr_eq(o->upgrade.waiter, &first);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("admin-upgrade");
	TCase *tc = tcase_create("upgrade");
	SRunner *sr;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_good_program);
	tcase_add_test(tc, test_bad_program);
	tcase_add_test(tc, test_late_answer);
	tcase_add_test(tc, test_two_operators);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
