// SPDX-License-Identifier: Apache-2.0
/* Fault points: exactly one passing fails, the one that was named. */
#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include <kvmm/fault.h>

static char text[200];

static int arm(const char *spec)
{
	text[0] = '\0';
	return kv_fault_init(spec, text, sizeof(text));
}

START_TEST(test_unarmed)
{
	ck_assert_int_eq(arm(NULL), 0);
	ck_assert(!kv_fault_armed);
	ck_assert(!kv_fault(KV_FAULT_extent_create));
	ck_assert_int_eq(arm(""), 0);
	ck_assert(!kv_fault_armed);
}
END_TEST

START_TEST(test_every)
{
	int i;

	ck_assert_int_eq(arm("extent_create"), 0);
	for (i = 0; i < 5; i++)
		ck_assert(kv_fault(KV_FAULT_extent_create));
	ck_assert(!kv_fault(KV_FAULT_segment_create));
}
END_TEST

START_TEST(test_nth)
{
	int i;

	ck_assert_int_eq(arm("extent_create:3,mm_die:1"), 0);
	for (i = 1; i < 8; i++)
		ck_assert_int_eq(kv_fault(KV_FAULT_extent_create), i == 3);
	ck_assert(kv_fault(KV_FAULT_mm_die));
	ck_assert(!kv_fault(KV_FAULT_mm_die));
}
END_TEST

static const char * const wrong[] = {
	"nonsense", "extent_create:0", "extent_create:", "extent_create:x",
	"extent_creat", "extent_create,,mm_die", "extent_create:-1",
	"extent_create:99999999999999999999999999",
};

START_TEST(test_wrong)
{
	ck_assert_int_eq(arm(wrong[_i]), -EINVAL);
	ck_assert_ptr_nonnull(strstr(text, "KVMM_FAULT"));
}
END_TEST

static void *pass_often(void *arg)
{
	int *hits = arg;
	int i;

	for (i = 0; i < 1000; i++)
		if (kv_fault(KV_FAULT_extent_send))
			__atomic_add_fetch(hits, 1, __ATOMIC_RELAXED);
	return NULL;
}

/* Of many passings by many threads exactly one is the 2500th. */
START_TEST(test_threads)
{
	pthread_t t[4];
	int hits = 0, i;

	ck_assert_int_eq(arm("extent_send:2500"), 0);
	for (i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, pass_often, &hits);
	for (i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	ck_assert_int_eq(hits, 1);
}
END_TEST

START_TEST(test_names)
{
	u32 i;

	for (i = 0; i < NR_KV_FAULTS; i++) {
		ck_assert_ptr_nonnull(kv_fault_name(i));
		ck_assert_ptr_nonnull(kv_fault_text(i));
		ck_assert_int_eq(arm(kv_fault_name(i)), 0);
		ck_assert(kv_fault((enum kv_fault)i));
	}
	ck_assert_ptr_null(kv_fault_name(NR_KV_FAULTS));
}
END_TEST

START_TEST(test_die)
{
	ck_assert_int_eq(arm("mm_die:2"), 0);
	kv_fault_die(KV_FAULT_mm_die);
	kv_fault_die(KV_FAULT_mm_die);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fault");
	TCase *tc = tcase_create("points");
	SRunner *sr;
	int failed;

	tcase_add_test(tc, test_unarmed);
	tcase_add_test(tc, test_every);
	tcase_add_test(tc, test_nth);
	tcase_add_loop_test(tc, test_wrong, 0, ARRAY_SIZE(wrong));
	tcase_add_test(tc, test_threads);
	tcase_add_test(tc, test_names);
	tcase_add_test_raise_signal(tc, test_die, SIGKILL);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
