// SPDX-License-Identifier: Apache-2.0
/*
 * check_proc_tenant.c - files and lists that a tenant can read
 *
 * Two tenants in one core.  One of them sends every request that the list of
 * files allows.  No answer has data of the other tenant, and no answer depends
 * on it.
 */
#include "tests/unit/proc_fixture.h"

#define US	500ull
#define THEM	501ull

static u32 ours, theirs;

static void setup(void)
{
	fx_setup_tiers(FX_EXTENTS, 32, 0);
	ours = fx_attach(&fx, US, "shared-name");
	theirs = fx_attach(&fx, THEM, "their-secret");
	fx_prefill(&fx, ours, 40, 1);
	fx_prefill(&fx, theirs, 40, 2);
	(void)fx_lease(&fx, ours, 32, 1, "our-lease");
	(void)fx_lease(&fx, theirs, 32, 2, "secret-lease");
}

static int ask(u64 key, const char *req)
{
	return proc_request_as(fx.proc, key, req, strlen(req), &fx.out);
}

/* Replace the capitals of @path by the names that they stand for. */
static void fill_in(const char *path, const char *name, u32 id, char *out,
		    size_t len)
{
	const char *cap;

	if ((cap = strstr(path, "SEQ")))
		snprintf(out, len, "cat client/%u/seq/0%s", id, cap + 3);
	else if ((cap = strstr(path, "NAME")))
		snprintf(out, len, "cat %.*s%s%s", (int)(cap - path), path,
			 name, cap + 4);
	else if ((cap = strstr(path, "ID")))
		snprintf(out, len, "cat %.*s%u%s", (int)(cap - path), path, id,
			 cap + 2);
	else
		snprintf(out, len, "cat %s", path);
}

/* All readable files and lists in one text; to be freed. */
static char *read_all(u64 key)
{
	static const char * const lists[] = { "ls", "ls domain", "ls client",
					      "ls domain/shared-name" };
	struct proc_entry e;
	char req[256], *all;
	size_t len, i;
	FILE *f = open_memstream(&all, &len);

	for (i = 0; proc_get_entry((u32)i, &e); i++) {
		fill_in(e.path, "shared-name", ours, req, sizeof(req));
		if (!ask(key, req))
			fprintf(f, "%s\n%s", req, seq_text(&fx.out));
	}
	for (i = 0; i < ARRAY_SIZE(lists); i++)
		if (!ask(key, lists[i]))
			fprintf(f, "%s\n%s", lists[i], seq_text(&fx.out));
	fclose(f);
	return all;
}

START_TEST(test_nothing_of_others)
{
	char *all = read_all(US);

	ck_assert_ptr_nonnull(strstr(all, "shared-name"));
	ck_assert_ptr_nonnull(strstr(all, "memory.pressure"));
	ck_assert_ptr_nonnull(strstr(all, "our-lease"));
	ck_assert_ptr_null(strstr(all, "secret"));
	ck_assert_ptr_null(strstr(all, "501"));
	free(all);
	/* The operator sees both tenants. */
	all = read_all(PROC_ALL);
	ck_assert_ptr_nonnull(strstr(all, "their-secret"));
	ck_assert_ptr_nonnull(strstr(all, "501"));
	free(all);
}
END_TEST

START_TEST(test_the_same_whatever_others_do)
{
	char *before = read_all(US), *after;

	fx_prefill(&fx, theirs, 60, 9);
	(void)fx_attach(&fx, THEM, "another");
	after = read_all(US);
	ck_assert_str_eq(before, after);
	free(before);
	free(after);
}
END_TEST

START_TEST(test_names_of_others)
{
	char req[256];
	struct proc_entry e;
	u32 i;

	for (i = 0; proc_get_entry(i, &e); i++) {
		if (!strstr(e.path, "NAME") && !strstr(e.path, "ID"))
			continue;
		fill_in(e.path, "their-secret", theirs, req, sizeof(req));
		ck_assert_msg(ask(US, req) == -ENOENT, "%s", req);
		ck_assert_msg(!ask(THEM, req), "%s", req);
		ck_assert_msg(!ask(PROC_ALL, req), "%s", req);
	}
	ck_assert_int_eq(ask(US, "check"), -EPERM);
	ck_assert_int_eq(ask(US, "cat vmstat"), -ENOENT);
	ck_assert_int_eq(ask(US, "ls sys/vm"), -ENOENT);
	ck_assert_int_eq(ask(PROC_ALL, "check"), 0);
}
END_TEST

/* Two tenants with one name: neither learns of the other. */
START_TEST(test_the_same_name)
{
	(void)fx_attach(&fx, THEM, "shared-name");
	ck_assert_int_eq(ask(US, "ls domain"), 0);
	ck_assert_str_eq(seq_text(&fx.out), "shared-name/\n");
	ck_assert_int_eq(ask(PROC_ALL, "ls domain"), 0);
	ck_assert_ptr_nonnull(strstr(seq_text(&fx.out), "shared-name@"));
}
END_TEST

/* A tenant that never attached has nothing, and sees nothing. */
START_TEST(test_unknown_tenant)
{
	char *all = read_all(999);

	ck_assert_ptr_null(strstr(all, "shared-name"));
	ck_assert_ptr_null(strstr(all, "secret"));
	ck_assert_ptr_nonnull(strstr(all, "999\n"));
	free(all);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("proc-tenant");
	TCase *tc = tcase_create("tenants");
	SRunner *sr;
	int failed;

	tcase_add_checked_fixture(tc, setup, fx_teardown);
	tcase_add_test(tc, test_nothing_of_others);
	tcase_add_test(tc, test_the_same_whatever_others_do);
	tcase_add_test(tc, test_names_of_others);
	tcase_add_test(tc, test_the_same_name);
	tcase_add_test(tc, test_unknown_tenant);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
