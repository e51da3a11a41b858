// SPDX-License-Identifier: Apache-2.0
/*
 * Documentation/daemon.md agrees with the lists in the code: every option with
 * its default, every exit code, every fault point.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include <kvmm/area_opt.h>
#include <kvmm/domain_opt.h>
#include <kvmm/fault.h>

#include <kvmm/kvmm_options.h>
#include <kvmm/tenant_opt.h>

#include "tests/unit/page.h"

static const struct kv_opt keys[] = {
#define x(...) OPT_ENTRY(struct tenant_keys, __VA_ARGS__)
	TENANT_SOCKETS(x)
#undef x
#define x(...) OPT_ENTRY(struct tenant_quota, __VA_ARGS__)
	TENANT_QUOTAS(x)
#undef x
};

static const struct kv_opt swapd_given[] = {
#define x(...) OPT_ENTRY(struct swapd_options, __VA_ARGS__)
	SWAPD_GIVEN_OPTIONS(x)
#undef x
};

static char *page;

static void want_row(const char *row)
{
	ck_assert_row(page, "daemon.md", row);
}

static void want_option(const struct kv_opt *o, const char *name)
{
	char row[1024], *p;

	free(page);
	page = page_read(name);
	snprintf(row, sizeof(row), "| `--%s%s%s` | %s | %s |\n", o->name,
		 o->meta ? " " : "", o->meta ? o->meta : "", o->def ? o->def : "", o->help);
	/* A bar would end the table cell. */
	for (p = strstr(row, "` |") - 1; p > row; p--)
		if (*p == '|')
			*p = '/';
	row[0] = '|';
	ck_assert_row(page, name, row);
}

/* Rows of the table that begins with option @first. */
static u32 rows_from(const char *first)
{
	char head[64], *table, *end;

	snprintf(head, sizeof(head), "| `--%s", first);
	table = strstr(page, head);
	ck_assert_ptr_nonnull(table);
	end = strstr(table, "\n\n");
	ck_assert_ptr_nonnull(end);
	*end = '\0';
	return page_count(table, "| `--");
}

START_TEST(test_options)
{
	want_option(&kvmm_opts[_i], "daemon.md");
}
END_TEST

/* Every row of the table is an option. */
START_TEST(test_no_other_options)
{
	page = page_read("daemon.md");
	ck_assert_uint_eq(rows_from(kvmm_opts[0].name), KVMM_NR_OPTS);
}
END_TEST

START_TEST(test_swapd_options)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(swapd_given); i++)
		want_option(&swapd_given[i], "swapd.md");
	ck_assert_uint_eq(rows_from(swapd_given[0].name),
			  ARRAY_SIZE(swapd_given));
}
END_TEST

/* The same for section [swapd] of the file. */
START_TEST(test_swapd_keys)
{
	static struct kvmm_options o;
	static struct kvmm_config c;
	char row[1024], name[96];
	const char *p;
	u32 i;

	kvmm_config_init(&c, &o);
	page = page_read("swapd.md");
	for (i = 0; i < c.section[1].nr; i++) {
		const struct kv_opt *k = &c.section[1].opts[i];

		snprintf(row, sizeof(row), "| `%s` | `%s` | %s | %s |\n",
			 k->name, kv_config_env_name(&c.section[1], k, name,
						     sizeof(name)),
			 k->kind == KV_OPT_flag ? "no" : k->def, k->help);
		ck_assert_row(page, "swapd.md", row);
	}
	for (i = 0, p = page; (p = strstr(p, "` | `KVMM_SWAPD_")); i++)
		p++;
	ck_assert_uint_eq(i, c.section[1].nr);
}
END_TEST

START_TEST(test_keys)
{
	const struct kv_opt *o = &keys[_i];
	char row[1024];

	page = page_read("daemon.md");
	snprintf(row, sizeof(row), "| `%s=%s` | %s | %s |\n", o->name, o->meta,
		 o->def ? o->def : "", o->help);
	want_row(row);
}
END_TEST

/* The keys of area and domain. */
START_TEST(test_area_keys)
{
	static const char * const rows[] = {
#define x(kind, field, name, def, lo, hi, meta, help)			\
		"| `" name "=" meta "` | " def " | " help " |\n",
		AREA_KEYS(x)
#undef x
#define x(mark, key, unit, help) "| `" #key "=" unit "` | " help " |\n",
		DOMAIN_KEYS(x)
#undef x
	};
	u32 i;

	page = page_read("daemon.md");
	for (i = 0; i < ARRAY_SIZE(rows); i++)
		want_row(rows[i]);
}
END_TEST

START_TEST(test_exits)
{
	char row[1024];

	page = page_read("daemon.md");
	snprintf(row, sizeof(row), "| %d | %s |\n", kvmm_exits[_i].code,
		 kvmm_exits[_i].text);
	want_row(row);
}
END_TEST

START_TEST(test_faults)
{
	char row[1024];

	page = page_read("daemon.md");
	snprintf(row, sizeof(row), "| `%s` | %s |\n", kv_fault_name((u32)_i),
		 kv_fault_text((u32)_i));
	want_row(row);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ipc-doc");
	TCase *tc = tcase_create("daemon.md");
	SRunner *sr;
	int failed;

	tcase_add_loop_test(tc, test_options, 0, KVMM_NR_OPTS);
	tcase_add_test(tc, test_no_other_options);
	tcase_add_test(tc, test_swapd_keys);
	tcase_add_test(tc, test_swapd_options);
	tcase_add_loop_test(tc, test_keys, 0, ARRAY_SIZE(keys));
	tcase_add_test(tc, test_area_keys);
	tcase_add_loop_test(tc, test_exits, 0, KVMM_NR_EXITS);
	tcase_add_loop_test(tc, test_faults, 0, NR_KV_FAULTS);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
