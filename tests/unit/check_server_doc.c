// SPDX-License-Identifier: Apache-2.0
/*
 * check_server_doc.c - Documentation/server.md agrees with the program
 *
 * The page must have the program's text of --help, its table of fields and its
 * table of paths, and name every metric of /metrics.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include <kvmm/kvmm_options.h>

#include "runtime/cli/cli.h"
#include "runtime/server/fields.h"
#include "runtime/server/route.h"
#include "runtime/server/tokens.h"
#include "tests/prom.h"
#include "tests/unit/page.h"

static char *page;

static void setup(void)
{
	page = page_read("server.md");
}

static void teardown(void)
{
	free(page);
}

/* The page has @text unchanged; a failure shows its first line that is missing. */
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

/* Append @text with its options in the letters of code. */
static void text_coded(struct text *t, const char *text)
{
	const char *dash, *end;

	for (; (dash = strstr(text, "--")); text = end) {
		end = dash + strspn(dash, "-abcdefghijklmnopqrstuvwxyz");
		text_printf(t, "%.*s`%.*s`", (int)(dash - text), text,
			    (int)(end - dash), dash);
	}
	text_puts(t, text);
}

START_TEST(test_foreign_table)
{
	struct text t = { 0 };
	u32 i;

	text_puts(&t, "| vllm serve | here |\n|---|---|\n");
	for (i = 0; i < CLI_NR_FOREIGN; i++) {
		text_printf(&t, "| `--%s` | ", cli_foreign[i].name);
		text_coded(&t, cli_foreign[i].here);
		text_puts(&t, " |\n");
	}
	text_add(&t, "", 1);
	page_has(t.p, "table");
	text_free(&t);
}
END_TEST

static bool is_option(const struct kv_opt *opts, u32 nr, const char *name,
		      size_t len)
{
	u32 i;

	for (i = 0; i < nr; i++)
		if (strlen(opts[i].name) == len && !memcmp(opts[i].name, name, len))
			return true;
	return false;
}

/* An option of vLLM is none here, and each option that its line names is one. */
START_TEST(test_foreign)
{
	const struct kv_opt *opts = cli_serve_program.opts;
	const u32 nr = cli_serve_program.nr_opts;
	const char *p, *here;
	size_t n;
	u32 i;

	for (i = 0; i < CLI_NR_FOREIGN; i++) {
		const char *name = cli_foreign[i].name;

		ck_assert_msg(!is_option(opts, nr, name, strlen(name)), "%s",
			      name);
		here = cli_foreign[i].here;
		for (p = here; (p = strstr(p, "--")); p += n) {
			p += 2;
			n = strspn(p, "-abcdefghijklmnopqrstuvwxyz");
			ck_assert_msg(is_option(opts, nr, p, n) ||
				      (strstr(here, "kvmm-hold") &&
				       is_option(kvmm_opts, KVMM_NR_OPTS, p, n)),
				      "%s: --%.*s is no option", name, (int)n, p);
		}
	}
}
END_TEST

START_TEST(test_foreign_line)
{
	static char *argv[] = { (char *)"kvrt serve",
				(char *)"--gpu-memory-utilization=0.9", NULL };
	char values[8192], text[300];

	ck_assert_int_eq(kv_opts_parse(&cli_serve_program, values, 2, argv, text,
				       sizeof(text)), -EINVAL);
	ck_assert_str_eq(text, "unknown option --gpu-memory-utilization: the memory belongs to the daemon: give kvmm-hold --pool-size SIZE, 80% or auto; of it, --memory-max limits one model");
}
END_TEST

/* Options that most commands of vllm serve and llama-server have name a way, too. */
START_TEST(test_foreign_common)
{
	static const char * const common[] = {
		"enable-auto-tool-choice", "tool-call-parser",
		"reasoning-parser", "guided-decoding-backend",
		"ctx-size", "n-gpu-layers",
	};
	u32 i, n;

	for (i = 0; i < ARRAY_SIZE(common); i++) {
		for (n = 0; n < CLI_NR_FOREIGN &&
		     strcmp(cli_foreign[n].name, common[i]); n++)
			;
		ck_assert_msg(n < CLI_NR_FOREIGN, "%s", common[i]);
	}
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

START_TEST(test_tokens)
{
	struct text t = { 0 };

	tokens_doc(&t);
	text_add(&t, "", 1);
	page_has(t.p, "table");
	text_free(&t);
}
END_TEST

START_TEST(test_paths)
{
	struct text t = { 0 };

	text_puts(&t, "| method | path | meaning |\n|---|---|---|\n");
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
	struct metrics_model *models = calloc(2, sizeof(*models));
	struct metrics *m = calloc(1, sizeof(*m));
	struct loop *loop = calloc(1, sizeof(*loop));
	struct metrics_view v = { .models = models, .nr_models = 2 };
	struct prom *prom = calloc(1, sizeof(*prom));
	struct text t = { 0 };
	char row[400];
	u32 i;

	ck_assert(models && m && loop && prom);
	models[0].name = "a\"b";
	models[1].name = "c";
	models[0].b.counts.experts_touched = 41;
	models[1].b.counts.experts_uniform = 42.5;
	models[0].b.kv = (struct backend_kv){ .block_tokens = 16, .blocks = 100, .tokens = 400 };
	models[1].b.kv = (struct backend_kv){ .block_tokens = 16, .blocks = 1, .tokens = 17 };
	models[1].b.load.waiting = 3;
	metrics_observe(m, METRIC_request_prompt_tokens, 7, 1);
	/* Two loops have the same counts. */
	metrics_add(&models[0].m, m);
	metrics_add(&models[0].m, m);
	loop->nr_conns = 3;
	tally(&loop->status[4], 2);
	tally(&loop->stats.evicted, 5);
	metrics_add_loop(&v, loop);
	metrics_add_loop(&v, loop);
	metrics_write(&t, &v);
	text_add(&t, "", 1);
	ck_assert_msg(prom_read(prom, t.p), "%s", prom->why);
	ck_assert_uint_gt(prom->nr, 30);
	for (i = 0; i < prom->nr; i++) {
		snprintf(row, sizeof(row), "| `%s` | %s | %s |\n",
			 prom->family[i].name, prom->family[i].type,
			 prom->family[i].help);
		page_has(row, "figure");
	}
	ck_assert_uint_eq(page_count(page, "| `kvrt_") + page_count(page, "| `vllm:"), prom->nr);
	prom_free(prom);
	free(prom);
	ck_assert_ptr_nonnull(strstr(t.p, "kvrt_request_prompt_tokens_bucket{model_name=\"a\\\"b\",le=\"5\"} 0\n"));
	ck_assert_ptr_nonnull(strstr(t.p, "le=\"10\"} 2\n"));
	ck_assert_ptr_nonnull(strstr(t.p, "kvrt_request_prompt_tokens_bucket{model_name=\"a\\\"b\",le=\"+Inf\"} 2\n"));
	ck_assert_ptr_nonnull(strstr(t.p, "kvrt_request_prompt_tokens_sum{model_name=\"a\\\"b\"} 14\n"));
	ck_assert_ptr_nonnull(strstr(t.p, "kvrt_request_prompt_tokens_sum{model_name=\"c\"} 0\n"));
	ck_assert_ptr_nonnull(strstr(t.p, "\nkvrt_http_connections 6\n"));
	ck_assert_ptr_nonnull(strstr(t.p, "\nkvrt_http_responses_total{code=\"4xx\"} 4\n"));
	ck_assert_ptr_nonnull(strstr(t.p, "\nkvrt_http_evicted_total 10\n"));
	ck_assert_ptr_nonnull(strstr(t.p, "kvrt_model_experts_touched_total{model_name=\"a\\\"b\"} 41\n"));
	ck_assert_ptr_nonnull(strstr(t.p, "kvrt_model_experts_uniform_total{model_name=\"c\"} 42.5\n"));
	ck_assert_ptr_nonnull(strstr(t.p, "\nvllm:num_requests_waiting{model_name=\"c\"} 3\n"));
	ck_assert_ptr_nonnull(strstr(t.p, "\nvllm:kv_cache_usage_perc{model_name=\"a\\\"b\"} 0.25\n"));
	ck_assert_ptr_nonnull(strstr(t.p, "\nvllm:kv_cache_usage_perc{model_name=\"c\"} 1\n"));
	ck_assert_ptr_nonnull(strstr(t.p, "\nvllm:cache_config_info{model_name=\"c\",block_size=\"16\",num_gpu_blocks=\"1\"} 1\n"));
	text_free(&t);
	free(models);
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
	tcase_add_test(tc, test_foreign_table);
	tcase_add_test(tc, test_foreign);
	tcase_add_test(tc, test_foreign_line);
	tcase_add_test(tc, test_foreign_common);
	tcase_add_test(tc, test_fields);
	tcase_add_test(tc, test_tokens);
	tcase_add_test(tc, test_paths);
	tcase_add_test(tc, test_figures);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
