// SPDX-License-Identifier: Apache-2.0
/*
 * check_hostpool.c - the host pool, with what can be had and without
 *
 * Whether this machine has huge pages set aside is not known: what is asserted
 * holds either way, and fault points take them away.
 */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
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
	ck_assert_int_eq(hostpool_create(&hp, bytes, 0xabc, -1, false), 0);
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

/* What is said on stderr while the pool is made, to be freed. */
static char *said(bool again)
{
	int old = dup(STDERR_FILENO), fd = memfd_create("said", 0);
	char *text = calloc(1, 4096);

	ck_assert_int_ge(fd, 0);
	dup2(fd, STDERR_FILENO);
	ck_assert_int_eq(hostpool_create(&hp, 3u << 20, 1, -1, again), 0);
	dup2(old, STDERR_FILENO);
	hostpool_destroy(&hp);
	ck_assert_int_ge(pread(fd, text, 4095, 0), 0);
	close(old);
	close(fd);
	return text;
}

/* The remedy with its number, and only in the first life. */
START_TEST(test_warned_once)
{
	unsigned long nr = 0;
	char *text, *at;

	arm("host_huge,host_lock");
	text = said(false);
	at = strstr(text, "2 huge pages of 2M cannot be had");
	ck_assert_msg(at && (at = strstr(at, ": sysctl vm.nr_hugepages=")),
		      "%s", text);
	ck_assert_int_eq(sscanf(strchr(at, '='), "=%lu\n", &nr), 1);
	ck_assert_uint_ge(nr, 2);
	ck_assert_ptr_nonnull(strstr(text, "cannot be locked"));
	free(text);
	text = said(true);
	ck_assert_msg(!strstr(text, "warning"), "%s", text);
	free(text);
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
	ck_assert_int_lt(hostpool_create(&hp, 1ull << 60, 1, -1, false), 0);
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
	tcase_add_test(tc, test_warned_once);
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
