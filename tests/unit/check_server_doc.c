// SPDX-License-Identifier: Apache-2.0
/*
 * check_server_doc.c - Documentation/server.md says what the program does
 *
 * The page must hold the text of --help, the table of fields and the table of
 * paths as the program has them, and name every figure of /metrics.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/cli/cli.h"
#include "runtime/server/fields.h"
#include "runtime/server/route.h"

static char *page;

static void setup(void)
{
	const char *dir = getenv("KVMM_TOP");
	char path[512];
	FILE *f;

	snprintf(path, sizeof(path), "%s/Documentation/server.md",
		 dir ? dir : ".");
	f = fopen(path, "r");
	page = calloc(1, 1 << 20);
	ck_assert_msg(f && page, "%s", path);
	ck_assert_uint_gt(fread(page, 1, (1 << 20) - 1, f), 0);
	fclose(f);
}

static void teardown(void)
{
	free(page);
}

/* The page has @text as it is; a failure shows its first line that is not. */
static void page_has(const char *text, const char *what)
{
	const char *line = text;
	size_t n;

	if (strstr(page, text))
		return;
	for (; *line; line += n) {
		n = strcspn(line, "\n");
		n += line[n] == '\n';
		if (!memmem(page, strlen(page), line, n))
			break;
	}
	ck_abort_msg("Documentation/server.md wants another %s: %.*s", what,
		     (int)strcspn(line, "\n"), line);
}

START_TEST(test_help)
{
	char *help = NULL;
	size_t len = 0;
	FILE *f = open_memstream(&help, &len);

	ck_assert_ptr_nonnull(f);
	kv_opts_help(&cli_serve_program, f);
	fclose(f);
	page_has(help, "text");
	free(help);
}
END_TEST

START_TEST(test_fields)
{
	struct text t = { 0 };

	fields_doc(&t);
	text_add(&t, "", 1);
	page_has(t.p, "table");
	text_free(&t);
}
END_TEST

START_TEST(test_paths)
{
	struct text t = { 0 };

	text_puts(&t, "| method | path | what |\n|---|---|---|\n");
#define x(method, path, fn, guarded, text) \
	text_printf(&t, "| %s | `%s` | %s |\n", #method, path, text);
	ROUTES(x)
#undef x
	text_add(&t, "", 1);
	page_has(t.p, "table");
	text_free(&t);
}
END_TEST

START_TEST(test_figures)
{
	struct backend_view b = { .state = BACKEND_ATTACHED };
	struct metrics *m = calloc(1, sizeof(*m));
	struct loop *loop = calloc(1, sizeof(*loop));
	const struct metrics_view v = {
		.model = "a\"b", .m = m, .loop = loop, .b = &b,
	};
	struct text t = { 0 };
	char name[128], *line;
	u32 nr = 0;

	ck_assert(m && loop);
	metrics_observe(m, METRIC_request_prompt_tokens, 7, 2);
	metrics_write(&t, &v);
	text_add(&t, "", 1);
	for (line = strstr(t.p, "# TYPE "); line; line = strstr(line + 1, "# TYPE ")) {
		char *end = strchr(line + 7, ' ');

		snprintf(name, sizeof(name), "`%.*s`", (int)(end - line - 7),
			 line + 7);
		page_has(name, "figure");
		nr++;
	}
	ck_assert_uint_gt(nr, 30);
	ck_assert_ptr_nonnull(strstr(t.p, "kvrt_request_prompt_tokens_bucket{model_name=\"a\\\"b\",le=\"5\"} 0\n"));
	ck_assert_ptr_nonnull(strstr(t.p, "le=\"10\"} 2\n"));
	ck_assert_ptr_nonnull(strstr(t.p, "kvrt_request_prompt_tokens_bucket{model_name=\"a\\\"b\",le=\"+Inf\"} 2\n"));
	ck_assert_ptr_nonnull(strstr(t.p, "kvrt_request_prompt_tokens_sum{model_name=\"a\\\"b\"} 14\n"));
	text_free(&t);
	free(m);
	free(loop);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("server-doc");
	TCase *tc = tcase_create("page");
	SRunner *sr;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_help);
	tcase_add_test(tc, test_fields);
	tcase_add_test(tc, test_paths);
	tcase_add_test(tc, test_figures);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
