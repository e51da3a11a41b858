// SPDX-License-Identifier: Apache-2.0
/*
 * check_hostpool.c - the host pool, with what can be had and without
 *
 * Whether this machine has huge pages set aside is not known: what is asserted
 * holds either way, and fault points take them away.
 */
#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kvmm/fault.h>

#include "kvmm/dev/hostpool.h"

static struct hostpool hp;

static void arm(const char *spec)
{
	char text[128];

	ck_assert_int_eq(kv_fault_init(spec, text, sizeof(text)), 0);
}

static void make(u64 bytes)
{
	ck_assert_int_eq(hostpool_create(&hp, bytes, 0xabc, -1), 0);
	ck_assert_uint_eq(hp.bytes, bytes);
	ck_assert_uint_ge(hp.mapped, bytes);
}

/* All of it is there, zero, and the descriptor shows the same pages. */
static void use(void)
{
	struct stat st;
	char *other;
	u64 at;

	ck_assert_int_eq(fstat(hp.fd, &st), 0);
	ck_assert_uint_eq((u64)st.st_size, hp.mapped);
	other = mmap(NULL, hp.mapped, PROT_READ, MAP_SHARED, hp.fd, 0);
	ck_assert_ptr_ne(other, MAP_FAILED);
	for (at = 0; at < hp.mapped; at += 4096) {
		ck_assert_int_eq(hp.base[at], 0);
		hp.base[at] = (char)(at >> 12);
		ck_assert_int_eq(other[at], (char)(at >> 12));
	}
	munmap(other, hp.mapped);
}

START_TEST(test_any)
{
	make(4u << 20);
	use();
	hostpool_destroy(&hp);
	ck_assert_int_eq(hp.fd, -1);
	hostpool_destroy(&hp);
}
END_TEST

START_TEST(test_ordinary_pages)
{
	arm("host_huge");
	make(3u << 20);
	ck_assert(!hp.huge);
	ck_assert_uint_eq(hp.mapped, 3u << 20);
	use();
	hostpool_destroy(&hp);
}
END_TEST

START_TEST(test_not_locked)
{
	arm("host_huge,host_lock");
	make(1u << 20);
	ck_assert(!hp.locked);
	use();
	hostpool_destroy(&hp);
}
END_TEST

/* Whoever has the descriptor cannot make it shorter or longer. */
START_TEST(test_sealed)
{
	make(1u << 20);
	ck_assert_int_eq(ftruncate(hp.fd, 4096), -1);
	ck_assert_int_eq(ftruncate(hp.fd, (off_t)hp.mapped * 2), -1);
	ck_assert_int_eq(fcntl(hp.fd, F_GET_SEALS),
			 F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	hostpool_destroy(&hp);
}
END_TEST

START_TEST(test_all_pages_exist)
{
	struct stat st;

	arm("host_huge");
	make(2u << 20);
	ck_assert_int_eq(fstat(hp.fd, &st), 0);
	ck_assert_uint_eq((u64)st.st_blocks * 512, 2u << 20);
	hostpool_destroy(&hp);
}
END_TEST

START_TEST(test_too_large)
{
	ck_assert_int_lt(hostpool_create(&hp, 1ull << 60, 1, -1), 0);
	ck_assert_int_eq(hp.fd, -1);
	ck_assert_ptr_null(hp.base);
	ck_assert_uint_eq(hostpool_needs(1ull << 60), 1ull << 60);
	ck_assert_uint_eq(hostpool_needs(0), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("hostpool");
	TCase *tc = tcase_create("pool");
	SRunner *sr;
	int failed;

	tcase_add_test(tc, test_any);
	tcase_add_test(tc, test_ordinary_pages);
	tcase_add_test(tc, test_not_locked);
	tcase_add_test(tc, test_sealed);
	tcase_add_test(tc, test_all_pages_exist);
	tcase_add_test(tc, test_too_large);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
