// SPDX-License-Identifier: Apache-2.0
/*
 * check_proc_swap.c - the files about the lower tiers, to the byte
 */
#include "tests/unit/proc_fixture.h"

static bool area_gone[CORE_MAX_AREAS];
static bool area_deleted;
static const char *engine;

static int area_info(void *arg, u32 i, struct proc_swap_area *info)
{
	static const char * const path[] = {
		"/swap/one", "/dev/a name\nwith lines", "/third",
	};

	if (i >= ARRAY_SIZE(path) || area_gone[i])
		return -ENOENT;
	info->path = path[i];
	info->device = i == 1;
	info->lost = i == 2;
	info->deleted = !i && area_deleted;
	info->index = 2 - i;
	info->asked = i ? 0 : 1 << 20;
	info->leaves = false;
	return 0;
}

static int swap_info(void *arg, struct proc_swap_info *info)
{
	u32 i, n;

	memset(info, 0, sizeof(*info));
	info->pid = 4711;
	info->engine = engine;
	info->generation = 3;
	info->nr_open = 17;
	info->deaths = 2;
	info->swapd[SWAPD_CNT_reads] = 99;
	for (i = 0; i < CORE_MAX_AREAS; i++)
		for (n = 0; n < NR_SWAPD_AREA_COUNTERS; n++)
			info->area[i][n] = 100 * i + n;
	for (i = 0; i < CORE_MAX_AREAS; i++)
		info->shell[i].busy_ns = 100 * i + 50;
	info->copy_in_ns = 31;
	return 0;
}

static void setup(void)
{
	fx_setup_tiers(FX_EXTENTS, 4, 8);
	fx.swap_area = area_info;
	fx.swap_info = swap_info;
	memset(area_gone, 0, sizeof(area_gone));
	area_deleted = false;
	engine = "io_uring";
}

static void add_area(u32 extents, int prio, u32 want)
{
	u32 area;

	ck_assert_int_eq(core_area_add(fx.core, fx.now,
				       (u64)extents * FX_EXTENT_SIZE, prio,
				       &area), 0);
	ck_assert_uint_eq(area, want);
}

static bool has_line(const char *text, const char *line)
{
	const char *p = strstr(text, line);

	return p && (p == text || p[-1] == '\n') && p[strlen(line)] == '\n';
}

START_TEST(test_swaps)
{
	ck_assert_str_eq(fx_cat("swaps"),
			 "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\tEngine\n");
	add_area(8, 5, 0);
	add_area(2, 0, 1);
	ck_assert_str_eq(fx_cat("swaps"),
			 "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\tEngine\n"
			 "/swap/one                               file\t\t512\t\t0\t\t5\t\tio_uring\n"
			 "/dev/a\\040name\\012with\\040lines         partition\t128\t\t0\t\t0\t\tio_uring\n");
	/* No swapd runs now, or its engine is unknown. */
	engine = NULL;
	ck_assert_ptr_nonnull(strstr(fx_cat("swaps"), "\t5\t\t-\n"));
	fx.swap_info = NULL;
	ck_assert_ptr_nonnull(strstr(fx_cat("swaps"), "\t5\t\t-\n"));
}
END_TEST

/* Lines of the file of options; a name that no line can have is a comment. */
START_TEST(test_config)
{
	const char *text;
	struct core_domain_view v;

	add_area(8, 5, 0);
	add_area(2, 0, 1);
	fx_attach(&fx, 0, "chat");
	fx_attach(&fx, 1000, "a,b");
	fx_attach(&fx, 0, "free");
	ck_assert_int_eq(core_domain_set(fx.core, fx.now, 0, CORE_LIMIT_MIN, 1 << 20), 0);
	ck_assert_int_eq(core_domain_set(fx.core, fx.now, 0, CORE_LIMIT_HIGH,
					 KVMM_LIMIT_MAX), 0);
	ck_assert_int_eq(core_domain_set(fx.core, fx.now, 1, CORE_LIMIT_WEIGHT, 7), 0);
	ck_assert_int_eq(core_get_domain(fx.core, 2, &v), 0);
	ck_assert_uint_eq(v.by_operator, 0);
	text = fx_cat("config");
	ck_assert(has_line(text, "# file: none"));
	ck_assert(has_line(text, "area = /swap/one,size=1M,priority=5"));
	ck_assert(has_line(text, "# left out, for a blank, a comma or another mark in its path: area /dev/a\\040name\\012with\\040lines"));
	ck_assert(has_line(text, "domain = chat,min=1M,high=max"));
	ck_assert(has_line(text, "# left out, for a blank, a comma, a slash or another mark in its name: domain a,b"));
	ck_assert_ptr_null(strstr(text, "free"));
	ck_assert_ptr_null(strstr(text, "swappiness"));
	ck_assert_int_eq(core_tune(fx.core, fx.now, CORE_TUNE_swappiness, 0), 0);
	ck_assert(has_line(fx_cat("config"), "swappiness = 0"));
}
END_TEST

/* As in the kernel's file; a more serious state comes first. */
START_TEST(test_deleted)
{
	add_area(8, 5, 0);
	ck_assert_ptr_nonnull(strstr(fx_cat("swapareas"), "   0 live     "));
	area_deleted = true;
	ck_assert_str_eq(fx_cat("swaps"),
			 "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\tEngine\n"
			 "/swap/one\\040(deleted)                  file\t\t512\t\t0\t\t5\t\tio_uring\n");
	ck_assert_ptr_nonnull(strstr(fx_cat("swapareas"), "   0 deleted  "));
}
END_TEST

/* An area that was removed between the core's copy and the shell's answer. */
START_TEST(test_area_that_went)
{
	add_area(8, 5, 0);
	add_area(2, 0, 1);
	area_gone[0] = true;
	ck_assert_ptr_null(strstr(fx_cat("swaps"), "/swap/one"));
	ck_assert_ptr_nonnull(strstr(fx_cat("swaps"), "partition"));
	ck_assert_ptr_null(strstr(fx_cat("swapareas"), "/swap/one"));
}
END_TEST

/* Like has_line(), with one blank between the columns of @text. */
static bool has_row(const char *text, const char *line)
{
	char *tight = calloc(1, strlen(text) + 1), *to = tight;
	bool has;

	for (; *text; text++)
		if (*text != ' ' || (to > tight && to[-1] != ' ' &&
				     to[-1] != '\n'))
			*to++ = *text;
	has = has_line(tight, line);
	free(tight);
	return has;
}

/* The last column begins at the same place in every line. */
static void aligned(const char *text)
{
	const char *last = strstr(text, " name\n");
	const char *p;

	ck_assert_ptr_nonnull(last);
	for (p = strchr(text, '\n') + 1; *p; p = strchr(p, '\n') + 1)
		ck_assert_msg(p[last - text] == ' ' && p[last - text + 1] == '/',
			      "%s", text);
}

START_TEST(test_swapareas)
{
	const char *text;

	add_area(8, 5, 0);
	add_area(2, 0, 1);
	add_area(1, 0, 2);
	text = fx_cat("swapareas");
	aligned(text);
	ck_assert_msg(has_row(text, "0 live 5 512 0 0 0 0 0 0 0 200 201 202 203 204 205 206 207 208 209 250 /swap/one"),
		      "%s", text);
	ck_assert_msg(has_row(text, "1 live 0 128 0 0 0 0 0 0 0 100 101 102 103 104 105 106 107 108 109 150 /dev/a\\040name\\012with\\040lines"),
		      "%s", text);
	ck_assert_msg(has_row(text, "2 lost 0 64 0 0 0 0 0 0 0 0 1 2 3 4 5 6 7 8 9 50 /third"),
		      "%s", text);
	ck_assert_int_eq(core_area_del(fx.core, fx.now, 1), 0);
	ck_assert_ptr_null(strstr(fx_cat("swapareas"), "/dev"));
}
END_TEST

START_TEST(test_swapstat)
{
	const char *text = fx_cat("swapstat");

	ck_assert(has_line(text, "pid 4711"));
	ck_assert(has_line(text, "generation 3"));
	ck_assert(has_line(text, "nr_open 17"));
	ck_assert(has_line(text, "deaths 2"));
	ck_assert(has_line(text, "copy_in_ns 31"));
	ck_assert(has_line(text, "swapd_reads 99"));
	fx.swap_info = NULL;
	ck_assert(has_line(fx_cat("swapstat"), "pid 0"));
}
END_TEST

START_TEST(test_meminfo_and_zoneinfo)
{
	const char *text;

	add_area(8, 5, 0);
	add_area(2, 0, 1);
	text = fx_cat("meminfo");
	ck_assert(has_line(text, "HostTotal:           256 kB"));
	ck_assert(has_line(text, "HostFree:            256 kB"));
	ck_assert(has_line(text, "HostUsed:              0 kB"));
	ck_assert(has_line(text, "SwapTotal:           640 kB"));
	ck_assert(has_line(text, "SwapFree:            640 kB"));
	text = fx_cat("zoneinfo");
	ck_assert_ptr_nonnull(strstr(text, "        free     16\n"
				     "        online   16\n"
				     "        device   works\n"
				     "Node 0, zone    host0\n"
				     "  pages free     64\n"
				     "        spanned  64\n"
				     "        present  64\n"
				     "        managed  64\n"
				     "      nr_pages_free       64\n"
				     "      nr_pages_sealed     0\n"
				     "      nr_pages_limbo      0\n"
				     "      nr_pages_poison     0\n"));
	ck_assert_str_eq(fx_cat("sys/vm/host_bytes"), "262144\n");
	ck_assert_str_eq(fx_cat("sys/vm/area_bytes"), "524288\n");
	ck_assert_str_eq(fx_cat("sys/vm/swappiness"), "100\n");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("proc-swap");
	TCase *tc = tcase_create("tiers");
	SRunner *sr;
	int failed;

	tcase_add_checked_fixture(tc, setup, fx_teardown);
	tcase_add_test(tc, test_swaps);
	tcase_add_test(tc, test_config);
	tcase_add_test(tc, test_deleted);
	tcase_add_test(tc, test_area_that_went);
	tcase_add_test(tc, test_swapareas);
	tcase_add_test(tc, test_swapstat);
	tcase_add_test(tc, test_meminfo_and_zoneinfo);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
