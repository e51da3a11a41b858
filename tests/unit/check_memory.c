// SPDX-License-Identifier: Apache-2.0
/*
 * check_memory.c - the memory of a machine, on made-up machines
 *
 * Each machine is a tree of files below a directory.  The tests check the
 * memory that the daemon finds there, and the size of a share of it.
 */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kvmm/ipc/daemon.h"
#include "tests/tmp.h"

#define M	(1ull << 20)
#define G	(1ull << 30)
#define HUGE	"sys/kernel/mm/hugepages/hugepages-2048kB"

static char root[128];
static struct memory_room m;

static void setup(void)
{
	ck_assert_ptr_nonnull(mkdtemp(tmp_name(root, sizeof(root), "memory")));
}

static void teardown(void)
{
	char cmd[160];

	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", root);
	ck_assert_int_eq(system(cmd), 0);
}

/* Write one file of the tree, and make its folders. */
static void put(const char *path, const char *text)
{
	char full[256], *p;
	FILE *f;

	snprintf(full, sizeof(full), "%s/%s", root, path);
	for (p = full + strlen(root) + 1; (p = strchr(p, '/')); p++) {
		*p = '\0';
		ck_assert(!mkdir(full, 0700) || errno == EEXIST);
		*p = '/';
	}
	f = fopen(full, "w");
	ck_assert_ptr_nonnull(f);
	fputs(text, f);
	fclose(f);
}

static void machine(void)
{
	put("proc/meminfo", "MemTotal:       67108864 kB\n"
	    "MemFree:         1048576 kB\nMemAvailable:   33554432 kB\n");
}

static void look(u64 total, u64 available, const char *group)
{
	memory_look(&m, root);
	ck_assert_uint_eq(m.total, total);
	ck_assert_uint_eq(m.available, available);
	ck_assert_str_eq(m.group, group);
}

START_TEST(test_machine)
{
	machine();
	look(64 * G, 32 * G, "");
	ck_assert_uint_eq(m.huge_total, 0);
	ck_assert_uint_eq(m.huge_free, 0);
}
END_TEST

START_TEST(test_nothing_known)
{
	look(UINT64_MAX, UINT64_MAX, "");
}
END_TEST

START_TEST(test_huge_pages)
{
	machine();
	put(HUGE "/nr_hugepages", "100\n");
	put(HUGE "/free_hugepages", "60\n");
	put(HUGE "/resv_hugepages", "10\n");
	look(64 * G, 32 * G, "");
	ck_assert_uint_eq(m.huge_total, 200 * M);
	ck_assert_uint_eq(m.huge_free, 100 * M);
	put(HUGE "/resv_hugepages", "61\n");
	look(64 * G, 32 * G, "");
	ck_assert_uint_eq(m.huge_free, 0);
}
END_TEST

/* The upper cgroup has the tighter limit; reclaimable file pages count as available. */
START_TEST(test_cgroup_v2)
{
	machine();
	put("proc/self/cgroup", "0::/a/b\n");
	put("sys/fs/cgroup/a/b/memory.max", "max\n");
	put("sys/fs/cgroup/a/b/memory.current", "4096\n");
	look(64 * G, 32 * G, "");
	put("sys/fs/cgroup/a/memory.max", "8589934592\n");
	put("sys/fs/cgroup/a/memory.current", "3221225472\n");
	look(8 * G, 5 * G, "/sys/fs/cgroup/a");
	put("sys/fs/cgroup/a/memory.stat", "anon 5\ninactive_file 1073741824\n");
	look(8 * G, 6 * G, "/sys/fs/cgroup/a");
	put("sys/fs/cgroup/a/b/memory.max", "1073741824\n");
	look(G, G - 4096, "/sys/fs/cgroup/a/b");
	/* The cgroup is above its limit already. */
	put("sys/fs/cgroup/a/b/memory.current", "2147483648\n");
	look(G, 0, "/sys/fs/cgroup/a/b");
}
END_TEST

START_TEST(test_cgroup_v1)
{
	machine();
	put("proc/self/cgroup",
	    "9:name=systemd:/\n4:memory:/x\n3:cpu:/y\n0::/\n");
	put("sys/fs/cgroup/memory/x/memory.limit_in_bytes",
	    "9223372036854771712\n");
	put("sys/fs/cgroup/memory/x/memory.usage_in_bytes", "4096\n");
	look(64 * G, 32 * G, "");
	put("sys/fs/cgroup/memory/x/memory.limit_in_bytes", "2147483648\n");
	put("sys/fs/cgroup/memory/x/memory.stat",
	    "inactive_file 7\ntotal_inactive_file 1024\n");
	look(2 * G, 2 * G - 3072, "/sys/fs/cgroup/memory/x");
}
END_TEST

static u64 share(const char *text, u64 taken, u64 huge, u64 unit)
{
	struct kv_amount a;

	ck_assert_int_eq(kv_parse_amount(text, &a), 0);
	return limits_share(&a, &m, taken, huge, unit);
}

/* The rules of daemon.md on a machine of 64G, with 32G available. */
START_TEST(test_shares)
{
	machine();
	look(64 * G, 32 * G, "");
	ck_assert_uint_eq(share("25%", 0, 0, 8 * M), 16 * G);
	ck_assert_uint_eq(share("100%", 0, 0, 8 * M), 64 * G);
	ck_assert_uint_eq(share("1%", 0, 0, 8 * M),
			  64 * G / 100 / (8 * M) * 8 * M);
	ck_assert_uint_eq(share("1%", 0, 0, G), 0);
	/* A number of bytes is used as it is, and not rounded. */
	ck_assert_uint_eq(share("12345", 5, 5, 8 * M), 12345);
	/* Half of (32G less a sixteenth of 64G), then half of the rest. */
	ck_assert_uint_eq(share("auto", 0, 0, 8 * M), 14 * G);
	ck_assert_uint_eq(share("auto", 14 * G, 0, 8 * M), 7 * G);
	ck_assert_uint_eq(share("auto", 14 * G, 6 * G, 8 * M), 7 * G);
	ck_assert_uint_eq(share("auto", 14 * G, 9 * G + 1, 8 * M), 9 * G);
	ck_assert_uint_eq(share("auto", 40 * G, 0, 8 * M), 0);
	ck_assert_uint_eq(share("auto", UINT64_MAX - 8 * G, 0, 8 * M), 0);
}
END_TEST

static u64 host_default(u64 pool, u64 unit, u32 token, u64 area, bool own)
{
	const struct kvmm_dev_ops ops = { .own_memory = own };
	const struct setup s = {
		.opt = { .extent_size = unit, .min_token_bytes = token,
			 .area_max = area },
		.pool_size = pool,
		.dev = { .ops = &ops },
	};

	return limits_host_default(&s, &m);
}

/* Without --host-size: a sixteenth of the pool, while that is small. */
START_TEST(test_host_default)
{
	machine();
	look(64 * G, 32 * G, "");
	ck_assert_uint_eq(host_default(256 * M, 8 * M, 1024, 0, false), 16 * M);
	ck_assert_uint_eq(host_default(200 * M, 8 * M, 1024, 0, false), 8 * M);
	ck_assert_uint_eq(host_default(4 * M, M, 1024, 0, false), M);
	ck_assert_uint_eq(host_default(20 * G, 8 * M, 65536, 0, false), G);
	ck_assert_uint_eq(host_default(80 * G, 64 * M, 65536, 0, true), G);
	/* Not beside a pool that leaves too little, with its records or those of areas. */
	ck_assert_uint_eq(host_default(30 * G, 8 * M, 65536, 0, false), 0);
	ck_assert_uint_eq(host_default(28 * G, 8 * M, 65536, 0, false), 0);
	ck_assert_uint_eq(host_default(20 * G, 8 * M, 1024, 256 * G, false), 0);
	ck_assert_uint_eq(host_default(256 * M, 2 * G, 1024, 0, false), 0);
	/* A small machine has a small one, or none. */
	m.total = 2 * G;
	m.available = G;
	ck_assert_uint_eq(host_default(512 * M, 8 * M, 4096, 0, false), 32 * M);
	m.total = 256 * M;
	ck_assert_uint_eq(host_default(64 * M, 8 * M, 4096, 0, false), 0);
	m.total = UINT64_MAX;
	ck_assert_uint_eq(host_default(64 * M, 8 * M, 4096, 0, false), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("memory");
	TCase *tc = tcase_create("machines");
	SRunner *sr;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_machine);
	tcase_add_test(tc, test_nothing_known);
	tcase_add_test(tc, test_huge_pages);
	tcase_add_test(tc, test_cgroup_v2);
	tcase_add_test(tc, test_cgroup_v1);
	tcase_add_test(tc, test_shares);
	tcase_add_test(tc, test_host_default);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
