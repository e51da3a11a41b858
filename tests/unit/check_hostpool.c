// SPDX-License-Identifier: Apache-2.0
/*
 * check_hostpool.c - the host pool, with and without huge and locked pages
 *
 * This machine may have huge pages set aside or not.  The assertions hold
 * either way, and fault points take the pages away.
 */
#include <check.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
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

static int create(u64 bytes, int stop, bool again)
{
	const struct hostpool_ask ask = {
		.bytes = bytes, .epoch = 0xabc, .near = -1, .stop = stop,
		.numa = { .node = -1 }, .again = again,
	};

	return hostpool_create(&hp, &ask);
}

static void make(u64 bytes)
{
	ck_assert_int_eq(create(bytes, -1, false), 0);
	ck_assert_uint_eq(hp.bytes, bytes);
	ck_assert_uint_ge(hp.mapped, bytes);
}

/* The whole pool is there and zero, and the descriptor shows the same pages. */
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
	arm("host_huge,host_thp");
	make(3u << 20);
	ck_assert(!hp.huge);
	ck_assert_uint_eq(hp.mapped, 3u << 20);
	ck_assert_uint_eq(hp.found.hugetlb, 0);
	ck_assert_uint_eq(hp.found.resident, 3u << 20);
	use();
	hostpool_destroy(&hp);
}
END_TEST

/* Make the pool.  Return: its text on stderr, to be freed. */
static char *said(bool again)
{
	int old = dup(STDERR_FILENO), fd = memfd_create("said", 0);
	char *text = calloc(1, 4096);

	ck_assert_int_ge(fd, 0);
	dup2(fd, STDERR_FILENO);
	ck_assert_int_eq(create(6u << 20, -1, again), 0);
	dup2(old, STDERR_FILENO);
	hostpool_destroy(&hp);
	ck_assert_int_ge(pread(fd, text, 4095, 0), 0);
	close(old);
	close(fd);
	return text;
}

/* A warning has a remedy with its number, and comes only in the first life. */
START_TEST(test_warned_once)
{
	unsigned long nr = 0;
	char *text, *at;

	arm("host_huge,host_thp,host_lock");
	text = said(false);
	/* With shmem_enabled=always these pages are huge without a request. */
	if (hp.found.thp < 6u << 20) {
		at = strstr(text, "3 huge pages of 2M cannot be had");
		ck_assert_msg(at && strstr(at, "6 MiB of it lie on ordinary"),
			      "%s", text);
		at = strstr(at, ": sysctl vm.nr_hugepages=");
		ck_assert_msg(at, "%s", text);
		ck_assert_int_eq(sscanf(strchr(at, '='), "=%lu,", &nr), 1);
		ck_assert_uint_ge(nr, 3);
	}
	ck_assert_ptr_nonnull(strstr(text, "cannot be locked"));
	ck_assert_ptr_nonnull(strstr(text, "LimitMEMLOCK="));
	ck_assert_ptr_nonnull(strstr(text, ", not locked"));
	free(text);
	text = said(true);
	ck_assert_msg(!strstr(text, "warning"), "%s", text);
	free(text);
}
END_TEST

/* The text describes the pages that were found, on any machine. */
START_TEST(test_huge_is_no_claim)
{
	char *text;

	arm("host_huge");
	text = said(false);
	ck_assert_uint_eq(hp.found.hugetlb, 0);
	ck_assert_uint_eq(hp.found.resident, 6u << 20);
	ck_assert_int_eq(!!strstr(text, "transparent huge pages"),
			 hp.found.thp == 6u << 20);
	ck_assert_int_eq(!!strstr(text, "cannot be had"),
			 hp.found.thp != 6u << 20);
	if (hp.found.thp != 6u << 20)
		fprintf(stderr, "note: no transparent huge pages here: %s\n",
			text);
	free(text);
}
END_TEST

/* Pages of 2 MiB are mapped as such only from a boundary of 2 MiB on. */
START_TEST(test_aligned)
{
	arm(_i ? "host_huge" : "host_huge,host_thp");
	make(5u << 20);
	ck_assert_uint_eq((uintptr_t)hp.base % HOSTPOOL_HUGE, 0);
	hostpool_destroy(&hp);
}
END_TEST

START_TEST(test_fill_fails)
{
	/* Every fill fails: after the huge pages small ones are tried. */
	arm(_i ? "host_fill" : "host_huge,host_thp,host_fill:3");
	ck_assert_int_eq(create(256u << 20, -1, false), -ENOMEM);
	ck_assert_int_eq(hp.fd, -1);
	ck_assert_ptr_null(hp.base);
}
END_TEST

/* The daemon is told to stop before the fill: nothing is left. */
START_TEST(test_stopped)
{
	int stop = eventfd(1, EFD_CLOEXEC);
	char *text;
	u64 one = 0;

	arm("host_huge,host_slow");
	ck_assert_int_eq(create(1u << 30, stop, false), -ECANCELED);
	ck_assert_int_eq(hp.fd, -1);
	ck_assert_ptr_null(hp.base);
	/* The call does not consume the event: other threads wait for it. */
	ck_assert_int_eq(read(stop, &one, sizeof(one)), sizeof(one));
	ck_assert_uint_eq(one, 1);
	close(stop);
	text = said(false);
	ck_assert(!strstr(text, "GiB filled"));
	free(text);
}
END_TEST

/* One thread for each piece, at most one for each CPU; the whole pool is filled once. */
START_TEST(test_threads)
{
	cpu_set_t set;

	arm("host_huge,host_thp");
	make(160u << 20);
	ck_assert_uint_eq(hp.found.resident, 160u << 20);
	ck_assert_int_eq(sched_getaffinity(0, sizeof(set), &set), 0);
	ck_assert_uint_eq(hp.filled.threads, min(CPU_COUNT(&set), 3));
	hostpool_destroy(&hp);
	make(1u << 20);
	ck_assert_uint_eq(hp.filled.threads, 1);
	hostpool_destroy(&hp);
}
END_TEST

/* Under these sanitizers mlock() does nothing and reports success. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define MLOCK_WORKS	false
#else
#define MLOCK_WORKS	true
#endif

/* Root raises its limit; other users keep theirs. */
START_TEST(test_lock_limit)
{
	struct rlimit r, old;

	ck_assert_int_eq(getrlimit(RLIMIT_MEMLOCK, &old), 0);
	r = old;
	r.rlim_cur = 65536;
	ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &r), 0);
	arm("host_huge");
	make(1u << 20);
	/* The soft limit was raised up to the hard limit. */
	ck_assert_int_eq(getrlimit(RLIMIT_MEMLOCK, &r), 0);
	ck_assert_uint_ge(r.rlim_cur, min(old.rlim_max, (rlim_t)1 << 20));
	if (old.rlim_max >= 1u << 20) {
		ck_assert(hp.locked == MLOCK_WORKS);
		ck_assert_uint_eq(hp.found.locked, MLOCK_WORKS << 20);
	}
	hostpool_destroy(&hp);
}
END_TEST

/* A user without rights may lock 64 KiB and no more. */
START_TEST(test_lock_refused)
{
	struct rlimit r = { .rlim_cur = 65536, .rlim_max = 65536 };
	char *text;

	ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &r), 0);
	if (!getuid() && setuid(65534))
		ck_abort_msg("setuid");
	arm("host_huge");
	text = said(false);
	ck_assert(!hp.locked);
	ck_assert_uint_eq(hp.found.locked, 0);
	ck_assert_msg(strstr(text, "6M cannot be locked"), "%s", text);
	free(text);
}
END_TEST

static const char smaps[] =
	"7f0000000000-7f0000400000 rw-s 00000000 00:01 7 /memfd:kvmm-host-1 (deleted)\n"
	"Size:               4096 kB\n"
	"Rss:                4096 kB\n"
	"ShmemPmdMapped:     2048 kB\n"
	"Shared_Hugetlb:        0 kB\n"
	"Locked:             4096 kB\n"
	"VmFlags: rd wr sh mr mw me ms sd\n"
	"7f0000400000-7f0000800000 rw-s 00400000 00:01 7 /memfd:kvmm-host-1 (deleted)\n"
	"Rss:                   0 kB\n"
	"Private_Hugetlb:    4096 kB\n"
	"Locked:                0 kB\n"
	"7f0000800000-7f0000c00000 rw-s 00000000 00:01 8 /memfd:other\n"
	"Rss:                4096 kB\n"
	"ShmemPmdMapped:     4096 kB\n"
	"Locked:             4096 kB\n";

START_TEST(test_look)
{
	struct hostpool_found found;
	FILE *f = fmemopen((void *)smaps, strlen(smaps), "r");

	hostpool_look(f, (void *)0x7f0000000000, 8u << 20, &found);
	fclose(f);
	ck_assert_uint_eq(found.resident, 8u << 20);
	ck_assert_uint_eq(found.thp, 2u << 20);
	ck_assert_uint_eq(found.hugetlb, 4u << 20);
	ck_assert_uint_eq(found.locked, 8u << 20);
}
END_TEST

static const struct {
	const char *text;
	int err;
	struct hostpool_numa n;
} numa_case[] = {
	{ "auto", 0, { HOSTPOOL_AUTO, -1 } },
	{ "local", 0, { HOSTPOOL_LOCAL, -1 } },
	{ "interleave", 0, { HOSTPOOL_INTERLEAVE, -1 } },
	{ "0", 0, { HOSTPOOL_NODE, 0 } },
	{ "1023", 0, { HOSTPOOL_NODE, 1023 } },
	{ "1024", -EINVAL, { 0, 0 } },
	{ "-1", -EINVAL, { 0, 0 } },
	{ "18446744073709551616", -EINVAL, { 0, 0 } },
	{ "", -EINVAL, { 0, 0 } },
	{ "0,1", -EINVAL, { 0, 0 } },
	{ "Local", -EINVAL, { 0, 0 } },
};

START_TEST(test_numa)
{
	struct hostpool_numa n = { .node = 77 };

	ck_assert_int_eq(hostpool_numa_parse(numa_case[_i].text, &n),
			 numa_case[_i].err);
	if (numa_case[_i].err)
		return;
	ck_assert_int_eq(n.place, numa_case[_i].n.place);
	ck_assert_int_eq(n.node, numa_case[_i].n.node);
	/* No machine has node 1023; every machine has the others. */
	ck_assert_int_eq(hostpool_numa_check(&n), n.node == 1023 ? -ENODEV : 0);
}
END_TEST

START_TEST(test_not_locked)
{
	arm("host_huge,host_lock");
	make(1u << 20);
	ck_assert(!hp.locked);
	ck_assert_uint_eq(hp.found.locked, 0);
	use();
	hostpool_destroy(&hp);
}
END_TEST

/* The holder of a descriptor cannot change the length of the pool. */
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
	ck_assert_int_lt(create(1ull << 60, -1, false), 0);
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
	tcase_add_test(tc, test_huge_is_no_claim);
	tcase_add_loop_test(tc, test_aligned, 0, 2);
	tcase_add_loop_test(tc, test_fill_fails, 0, 2);
	tcase_add_test(tc, test_stopped);
	tcase_add_test(tc, test_threads);
	tcase_add_test(tc, test_lock_limit);
	tcase_add_test(tc, test_lock_refused);
	tcase_add_test(tc, test_look);
	tcase_add_loop_test(tc, test_numa, 0, ARRAY_SIZE(numa_case));
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
