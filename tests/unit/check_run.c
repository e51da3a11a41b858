// SPDX-License-Identifier: Apache-2.0
/*
 * check_run.c - parts of kvrt run: names of models, sizes
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/cli/cli.h"
#include "runtime/cli/run.h"

#define GIB	(1ull << 30)

static char top[256];

static void setup(void)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(top, sizeof(top), "%s/run.XXXXXX", tmp ? tmp : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(top));
}

static void teardown(void)
{
	char cmd[300];

	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", top);
	ck_assert_int_eq(system(cmd), 0);
}

/* ---- names ---- */

START_TEST(test_names)
{
	static const struct { const char *text, *name; } good[] = {
		{ "hf:a/b", "a/b" },
		{ "a/b", "a/b" },
		{ "hf:gpt2", "gpt2" },
		{ "meta-llama/Llama-3.1-8B_x", "meta-llama/Llama-3.1-8B_x" },
	};
	static const char * const bad[] = {
		"", "hf:", "gpt2", "/a/b", "a/", "a//b", "a/b/c", "../a",
		"a/..", "hf:../a", "hf:a/../b", "hf:a/..", "hf:/etc", "a/.b",
		"-a/b", "a b/c", "a/b\n", "hf:hf:a/b", "127.0.0.1:80", "~/a",
		"http://a",
	};
	char name[HUB_NAME_MAX], longest[HUB_NAME_MAX + 8];
	u32 i;

	for (i = 0; i < ARRAY_SIZE(good); i++) {
		ck_assert_msg(hub_name(good[i].text, name), "%s", good[i].text);
		ck_assert_str_eq(name, good[i].name);
	}
	for (i = 0; i < ARRAY_SIZE(bad); i++)
		ck_assert_msg(!hub_name(bad[i], name), "%s", bad[i]);
	memset(longest, 'x', sizeof(longest));
	longest[1] = '/';
	longest[HUB_NAME_MAX] = '\0';
	ck_assert(!hub_name(longest, name));
	longest[HUB_NAME_MAX - 1] = '\0';
	ck_assert(hub_name(longest, name));
}
END_TEST

START_TEST(test_cache)
{
	char dir[300];

	ck_assert(!setenv("HOME", "/h", 1) && !unsetenv("XDG_CACHE_HOME") &&
		  !unsetenv("HF_HOME") && !unsetenv("HF_HUB_CACHE"));
	ck_assert(!hub_cache(dir, sizeof(dir)));
	ck_assert_str_eq(dir, "/h/.cache/huggingface/hub");
	setenv("XDG_CACHE_HOME", "/x", 1);
	ck_assert(!hub_cache(dir, sizeof(dir)));
	ck_assert_str_eq(dir, "/x/huggingface/hub");
	setenv("HF_HOME", "/hf", 1);
	ck_assert(!hub_cache(dir, sizeof(dir)));
	ck_assert_str_eq(dir, "/hf/hub");
	setenv("HF_HUB_CACHE", "/c", 1);
	ck_assert(!hub_cache(dir, sizeof(dir)));
	ck_assert_str_eq(dir, "/c");
	ck_assert_int_eq(hub_cache(dir, 2), -ENAMETOOLONG);
}
END_TEST

/* Make a model in the cache whose branch main is at @revision. */
static void make_model(const char *revision)
{
	char path[400];
	FILE *f;

	snprintf(path, sizeof(path), "%s/models--a--b", top);
	mkdir(path, 0700);
	strcat(path, "/refs");
	mkdir(path, 0700);
	strcat(path, "/main");
	f = fopen(path, "w");
	ck_assert_ptr_nonnull(f);
	fputs(revision, f);
	fclose(f);
	snprintf(path, sizeof(path), "%s/models--a--b/snapshots", top);
	mkdir(path, 0700);
	strcat(path, "/0123");
	mkdir(path, 0700);
}

START_TEST(test_find)
{
	char dir[400], want[400];

	setenv("HF_HUB_CACHE", top, 1);
	ck_assert_int_eq(hub_find("a/b", dir, sizeof(dir)), -ENOENT);
	make_model("0123\n");
	snprintf(want, sizeof(want), "%s/models--a--b/snapshots/0123", top);
	ck_assert_int_eq(hub_find("a/b", dir, sizeof(dir)), 0);
	ck_assert_str_eq(dir, want);
	/* A download that never ended has no snapshot. */
	make_model("4567");
	ck_assert_int_eq(hub_find("a/b", dir, sizeof(dir)), -ENOENT);
	/* The file leads nowhere else. */
	make_model("../../..");
	ck_assert_int_eq(hub_find("a/b", dir, sizeof(dir)), -EINVAL);
	make_model("0123/../../..");
	ck_assert_int_eq(hub_find("a/b", dir, sizeof(dir)), -EINVAL);
	make_model("");
	ck_assert_int_eq(hub_find("a/b", dir, sizeof(dir)), -EINVAL);
}
END_TEST

/* A folder of that name comes first, except behind "hf:". */
START_TEST(test_model)
{
	struct cli_model m;

	setenv("HF_HUB_CACHE", top, 1);
	make_model("0123");
	ck_assert(!chdir(top));
	ck_assert_int_eq(cli_model_find(&m, "a/b"), 0);
	ck_assert_str_eq(m.name, "a/b");
	ck_assert_str_eq(m.domain, "b");
	ck_assert_str_eq(cli_model_domain(&m, NULL), "b");
	ck_assert_str_eq(cli_model_domain(&m, "given"), "given");
	ck_assert(!mkdir("a", 0700) && !mkdir("a/b", 0700));
	ck_assert_int_eq(cli_model_find(&m, "a/b"), 0);
	ck_assert_str_eq(m.dir, "a/b");
	ck_assert_str_eq(m.name, "");
	ck_assert_ptr_null(cli_model_domain(&m, NULL));
	ck_assert_int_eq(cli_model_find(&m, "hf:a/b"), 0);
	ck_assert_str_eq(m.name, "a/b");
	ck_assert_int_eq(cli_model_find(&m, "hf:a/c"), EX_NOINPUT);
}
END_TEST

/* ---- sizes ---- */

/* A sequence of full length fits the pool, in whole blocks of each extent. */
START_TEST(test_sizes)
{
	static const u64 token_bytes[] = { 64, 4096, 36864, 262144, 655360 };
	static const u64 lens[] = { 1, 100, 1024, 8192, 131072 };
	u32 i, k;

	for (i = 0; i < ARRAY_SIZE(token_bytes); i++)
		for (k = 0; k < ARRAY_SIZE(lens); k++) {
			const struct run_need n = {
				.token_bytes = token_bytes[i], .len = lens[k],
				.weight_bytes = 8 * GIB,
			};
			struct run_plan p = { .gpu = (i + k) % 2 };
			u64 block, per_extent, extents;

			ck_assert(run_sizes(&n, 1ull << 40, 0, &p));
			ck_assert_uint_eq(p.max_len, lens[k]);
			ck_assert_uint_eq(p.pool_bytes % p.extent_bytes, 0);
			ck_assert(is_power_of_2(p.extent_bytes) &&
				  is_power_of_2(p.min_token_bytes));
			ck_assert_uint_le(16 * p.min_token_bytes,
					  p.extent_bytes);
			block = 16 * token_bytes[i];
			per_extent = p.extent_bytes / block;
			extents = p.pool_bytes / p.extent_bytes;
			ck_assert_uint_ge(per_extent * extents * 16, lens[k]);
		}
}
END_TEST

/* The daemon must take tokens of the smallest layer group. */
START_TEST(test_sizes_groups)
{
	struct run_need n = { .token_bytes = 262144, .len = 8192 };
	struct run_plan p = { 0 };

	ck_assert(run_sizes(&n, 64 * GIB, 0, &p));
	ck_assert_uint_eq(p.min_token_bytes, 262144 / 8);
	n.least_bytes = 262144 / 6;
	ck_assert(run_sizes(&n, 64 * GIB, 0, &p));
	ck_assert_uint_eq(p.min_token_bytes, 32768 / 8);
}
END_TEST

/* An adapter has extents of its own beside a sequence of full length. */
START_TEST(test_sizes_adapter)
{
	struct run_need n = { .token_bytes = 262144, .len = 8192 };
	struct run_plan p = { 0 }, with = { 0 };

	ck_assert(run_sizes(&n, 64 * GIB, 0, &p));
	n.adapter_bytes = 3 * p.extent_bytes - 1;
	ck_assert(run_sizes(&n, 64 * GIB, 0, &with));
	ck_assert_uint_eq(with.pool_bytes, p.pool_bytes + 3 * p.extent_bytes);
	ck_assert_uint_eq(with.max_len, 8192);
	/* In a pool of the former size the context is shorter. */
	ck_assert(run_sizes(&n, 64 * GIB, p.pool_bytes, &with));
	ck_assert_uint_eq(with.max_len, 8192 - 3 * p.extent_bytes / 262144);
}
END_TEST

/* Too little memory shortens the context, and is refused when none is left. */
START_TEST(test_sizes_small)
{
	const struct run_need n = {
		.token_bytes = 262144, .len = 131072, .weight_bytes = 8 * GIB,
	};
	struct run_plan p = { 0 };

	ck_assert(run_sizes(&n, 16 * GIB, 0, &p));
	ck_assert_uint_eq(p.pool_bytes, 4 * GIB);
	ck_assert_uint_lt(p.max_len, 131072);
	ck_assert_uint_gt(p.max_len, 14000);
	ck_assert_uint_le(p.max_len * 262144ull, p.pool_bytes);
	/* A size that was given is taken. */
	ck_assert(run_sizes(&n, 16 * GIB, 6 * GIB, &p));
	ck_assert_uint_eq(p.pool_bytes, 6 * GIB);
	ck_assert(!run_sizes(&n, 8 * GIB, 0, &p));
	ck_assert(!run_sizes(&n, 1 * GIB, 0, &p));
	ck_assert(!run_sizes(&n, 16 * GIB, 1 << 20, &p));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("run");
	TCase *tc = tcase_create("run");
	SRunner *sr;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_names);
	tcase_add_test(tc, test_cache);
	tcase_add_test(tc, test_find);
	tcase_add_test(tc, test_model);
	tcase_add_test(tc, test_sizes);
	tcase_add_test(tc, test_sizes_adapter);
	tcase_add_test(tc, test_sizes_small);
	tcase_add_test(tc, test_sizes_groups);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
