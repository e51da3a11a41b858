// SPDX-License-Identifier: Apache-2.0
/*
 * Documentation/daemon.md says what the lists in the code say: every option
 * with its default, every exit code, every fault point.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include <kvmm/fault.h>

#include <kvmm/kvmm_options.h>
#include <kvmm/tenant_opt.h>

static const struct kv_opt options[] = {
#define x(...) OPT_ENTRY(struct kvmm_options, __VA_ARGS__)
	KVMM_OPTIONS(x)
#undef x
};

static const struct kv_exit exits[] = {
#define x(_code, _text) { .code = _code, .text = _text },
	KVMM_EXITS(x)
#undef x
};

static const struct kv_opt keys[] = {
#define x(...) OPT_ENTRY(struct tenant_keys, __VA_ARGS__)
	TENANT_SOCKETS(x)
#undef x
#define x(...) OPT_ENTRY(struct tenant_quota, __VA_ARGS__)
	TENANT_QUOTAS(x)
#undef x
};

static char page[1 << 16];

static void read_page(void)
{
	const char *top = getenv("KVMM_TOP");
	char path[512];
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), "%s/Documentation/daemon.md",
		 top ? top : ".");
	f = fopen(path, "r");
	ck_assert_msg(f != NULL, "%s: not there", path);
	n = fread(page, 1, sizeof(page) - 1, f);
	page[n] = '\0';
	fclose(f);
}

/* A row of a table must stand in the page as it is. */
static void want_row(const char *row)
{
	ck_assert_msg(strstr(page, row) != NULL,
		      "Documentation/daemon.md lacks the row:\n%s", row);
}

START_TEST(test_options)
{
	const struct kv_opt *o = &options[_i];
	char row[1024], *p;

	read_page();
	snprintf(row, sizeof(row), "| `--%s%s%s` | %s | %s |\n", o->name,
		 o->meta ? " " : "", o->meta ? o->meta : "", o->def ? o->def : "", o->help);
	/* A bar would end the cell. */
	for (p = strstr(row, "` |") - 1; p > row; p--)
		if (*p == '|')
			*p = '/';
	row[0] = '|';
	want_row(row);
}
END_TEST

START_TEST(test_keys)
{
	const struct kv_opt *o = &keys[_i];
	char row[1024];

	read_page();
	snprintf(row, sizeof(row), "| `%s=%s` | %s | %s |\n", o->name, o->meta,
		 o->def ? o->def : "", o->help);
	want_row(row);
}
END_TEST

START_TEST(test_exits)
{
	char row[1024];

	read_page();
	snprintf(row, sizeof(row), "| %d | %s |\n", exits[_i].code,
		 exits[_i].text);
	want_row(row);
}
END_TEST

START_TEST(test_faults)
{
	char row[1024];

	read_page();
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

	tcase_add_loop_test(tc, test_options, 0, ARRAY_SIZE(options));
	tcase_add_loop_test(tc, test_keys, 0, ARRAY_SIZE(keys));
	tcase_add_loop_test(tc, test_exits, 0, ARRAY_SIZE(exits));
	tcase_add_loop_test(tc, test_faults, 0, NR_KV_FAULTS);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
