// SPDX-License-Identifier: Apache-2.0
/*
 * it_bench_cli.c - kvrt bench against kvrt serve
 *
 * The results of a run must equal the server's counters: every token of every
 * request counts once.  A server that dies during a run, or that has no room,
 * must appear as failures with their reasons.
 *
 * budget: 60 s
 */
#include <stdio.h>
#include <stdlib.h>
#include <sysexits.h>

#include "tests/integration/serve.h"

static struct rig rig;
static struct served srv;

static void setup(void)
{
	rig_start(&rig, "--pool-size", "64M", "--extent-size", "1M", NULL);
	serve_start(&srv, &rig, NULL);
	serve_await(&srv, 200, 30);
}

static void teardown(void)
{
	rig_stop(&rig);
}

static const char *url(void)
{
	static char text[64];

	snprintf(text, sizeof(text), "http://127.0.0.1:%u", srv.port);
	return text;
}

/* The results of a run that was started with --json -; it must exit with @want. */
static json_t *results(struct job *j, int want)
{
	const int code = job_wait(j, 60);
	char *text = slurp(j->out);
	json_t *v = json_loads(text, 0, NULL);

	ck_assert_msg(code == want, "ended with %d, not %d:\n%s%s", code, want,
		      text, slurp(j->err));
	ck_assert_msg(json_is_object(v), "no results:\n%s", text);
	free(text);
	return v;
}

static s64 whole(const json_t *v, const char *key)
{
	ck_assert_msg(json_is_integer(json_object_get(v, key)), "no %s", key);
	return json_integer_value(json_object_get(v, key));
}

static double real(const json_t *v, const char *key)
{
	ck_assert_msg(json_is_number(json_object_get(v, key)), "no %s", key);
	return json_number_value(json_object_get(v, key));
}

static s64 sum_of(const json_t *v, const char *key)
{
	const json_t *list = json_object_get(v, key), *x;
	s64 sum = 0;
	size_t i;

	json_array_foreach(list, i, x)
		sum += json_is_array(x) ? (s64)json_array_size(x) :
					  json_integer_value(x);
	return sum;
}

/*
 * Every token that the server counted is in the results, and the reverse.  The
 * server publishes its counters after it has sent the last token of a step.
 */
static void ck_counted(const json_t *v, double in, double out, double cached)
{
	serve_await_idle(&srv, 5000);
	ck_assert_int_eq(whole(v, "total_input_tokens") +
			 whole(v, "probe_input_tokens"),
			 (s64)(serve_figure(&srv, "kvrt_prompt_tokens_total") -
			       in));
	ck_assert_int_eq(whole(v, "total_output_tokens") +
			 whole(v, "probe_output_tokens"),
			 (s64)(serve_figure(&srv, "kvrt_generation_tokens_total")
			       - out));
	ck_assert_int_eq(whole(v, "total_cached_tokens"),
			 (s64)(serve_figure(&srv, "kvrt_prefix_cache_hits_total")
			       - cached));
}

static const char *const workloads[][6] = {
	{ "--dataset", "random", "--range-ratio", "0.5", "--input-len", "80" },
	{ "--dataset", "prefix", "--prefix-len", "64", "--suffix-len", "30" },
	{ "--dataset", "sharegpt", "--endpoint", "chat", "--seed", "5" },
	{ "--dataset", "random", "--input-len", "90", "--prompt-form", "text" },
};

START_TEST(test_counts)
{
	const char *const *o = workloads[_i];
	const double in = serve_figure(&srv, "kvrt_prompt_tokens_total");
	const double out = serve_figure(&srv, "kvrt_generation_tokens_total");
	const double hit = serve_figure(&srv, "kvrt_prefix_cache_hits_total");
	const u32 nr = by_level(12, 200, 1000);
	char number[16];
	struct job j;
	json_t *v;

	snprintf(number, sizeof(number), "%u", nr);
	j = job_start(&rig, "kvrt", "bench", "serve", url(), "--num-prompts",
		      number, "--output-len", "12", "--request-rate", "300",
		      "--burstiness", "0.5", "--max-concurrency", "40",
		      "--goodput", "e2el:600000", "--json", "-",
		      "--save-detailed", o[0], o[1], o[2], o[3], o[4], o[5],
		      NULL);
	v = results(&j, 0);
	ck_assert_int_eq(whole(v, "completed"), nr);
	ck_assert_int_eq(whole(v, "failed"), 0);
	ck_assert_int_eq(whole(v, "shorter_than_asked"), 0);
	ck_assert(json_is_true(json_object_get(v, "tokens_counted_by_server")));
	ck_counted(v, in, out, hit);
	ck_assert_int_eq(sum_of(v, "input_lens"),
			 whole(v, "total_input_tokens"));
	ck_assert_int_eq(sum_of(v, "output_lens"),
			 whole(v, "total_output_tokens"));
	ck_assert_int_le(sum_of(v, "itls"),
			 whole(v, "total_output_tokens") - nr);
	ck_assert_double_eq(real(v, "request_goodput"),
			    real(v, "request_throughput"));
	ck_assert_double_le(real(v, "median_ttft_ms"),
			    real(v, "median_e2el_ms"));
	ck_assert_double_le(real(v, "p50_e2el_ms"), real(v, "p99_e2el_ms"));
	ck_assert_int_le(whole(v, "max_concurrent_requests"), 40);
	ck_assert_double_eq_tol(real(v, "output_throughput") *
				real(v, "duration"),
				(double)whole(v, "total_output_tokens"), 0.01);
	json_decref(v);
	serve_stop(&srv);
}
END_TEST

/* Prompts of a trace share the blocks that the trace says they share. */
START_TEST(test_trace)
{
	char path[RIG_PATH + 16];
	struct job j;
	json_t *v;
	FILE *f;

	snprintf(path, sizeof(path), "%s/trace", rig.dir);
	f = fopen(path, "w");
	fprintf(f, "{\"timestamp\": 0, \"input_length\": 600, \"output_length\": 4, \"hash_ids\": [7, 8]}\n"
		"{\"timestamp\": 600, \"input_length\": 700, \"output_length\": 5, \"hash_ids\": [7, 9]}\n");
	fclose(f);
	j = job_start(&rig, "kvrt", "bench", "serve", url(), "--dataset",
		      "trace", "--trace", path, "--json", "-", NULL);
	v = results(&j, 0);
	ck_assert_int_eq(whole(v, "total_input_tokens"), 1300);
	ck_assert_int_eq(whole(v, "total_output_tokens"), 9);
	ck_assert_int_eq(whole(v, "total_cached_tokens"), 512);
	ck_assert_double_ge(real(v, "duration"), 0.6);
	json_decref(v);
	serve_stop(&srv);
}
END_TEST

/*
 * The server is killed while it answers: one line reports it, and all requests
 * count.
 */
START_TEST(test_server_killed)
{
	struct job j;
	json_t *v;
	char *err;
	s64 sum;

	j = job_start(&rig, "kvrt", "bench", "serve", url(), "--num-prompts",
		      "400", "--input-len", "20", "--output-len", "900",
		      "--max-concurrency", "8", "--json", "-", NULL);
	while (serve_figure(&srv, "kvrt_num_requests_running") < 8)
		nap_ms(10);
	job_kill(&srv.job, SIGKILL);
	job_wait(&srv.job, 10);
	v = results(&j, EX_TEMPFAIL);
	sum = whole(v, "completed") + whole(v, "failed") +
	      whole(v, "not_sent");
	ck_assert_int_eq(sum, 400);
	ck_assert_int_ge(whole(v, "failed"), 8);
	ck_assert_int_gt(whole(v, "not_sent"), 0);
	ck_assert_int_ge(whole(json_object_get(v, "failed_reasons"),
			       "the answer broke off"), 1);
	err = slurp(j.err);
	ck_assert_msg(strstr(err, "no server listens there any more"), "%s", err);
	ck_assert_msg(count_lines(err) == 1, "%s", err);
	free(err);
	json_decref(v);
}
END_TEST

/* Ctrl-C: answered requests are reported, the others are given up. */
START_TEST(test_interrupted)
{
	struct job j;
	json_t *v;

	j = job_start(&rig, "kvrt", "bench", "serve", url(), "--num-prompts",
		      "100", "--input-len", "20", "--output-len", "900",
		      "--max-concurrency", "4", "--json", "-", NULL);
	while (serve_figure(&srv, "kvrt_num_requests_running") < 4)
		nap_ms(10);
	job_kill(&j, SIGINT);
	v = results(&j, EX_TEMPFAIL);
	ck_assert_int_eq(whole(v, "completed") + whole(v, "cut_off") +
			 whole(v, "not_sent"), 100);
	ck_assert_int_ge(whole(v, "cut_off"), 1);
	json_decref(v);
	serve_await_idle(&srv, 3000);
	serve_stop(&srv);
}
END_TEST

/* A bench of @input and @output tokens ends with @code, and its words. */
static void context_of(const char *input, const char *output, int code,
		       const char *words)
{
	struct job j = job_start(&rig, "kvrt", "bench", "serve", url(),
				 "--num-prompts", "3", "--input-len", input,
				 "--output-len", output, NULL);
	char *err;

	ck_assert_int_eq(job_wait(&j, 60), code);
	err = slurp(j.err);
	ck_assert_msg(strstr(err, words), "no '%s' in: %s", words, err);
	free(err);
}

/* A prompt as long as the context leaves nothing to measure. */
START_TEST(test_context)
{
	context_of("1024", "128", EX_DATAERR,
		   "no prompt leaves room for its answer in a context of 1024 tokens: give --input-len 896 or less\n");
	context_of("2000", "1024", EX_DATAERR,
		   ": give --input-len 512 --output-len 512 or less\n");
	context_of("1000", "40", 0,
		   "3 of 3 requests are cut to 1024 tokens, to fit the model's context: give --input-len 984 or less\n");
	context_of("984", "40", 0, "");
	serve_stop(&srv);
}
END_TEST

/* ---- without a server ---- */

static void setup_engine(void)
{
	rig_start(&rig, "--pool-size", "64M", "--extent-size", "1M", NULL);
}

START_TEST(test_throughput)
{
	struct job j;
	json_t *v;
	u32 i;

	for (i = 0; i < 2; i++) {
		j = job_start(&rig, "kvrt", "bench", "throughput",
			      demo_model(), "--dataset", "prefix",
			      "--num-prompts", "20", "--num-prefixes", "2",
			      "--prefix-len", "64", "--suffix-len", "10",
			      "--output-len", "6", "--threads", "1",
			      "--load-format", "dummy", "--json", "-", NULL);
		v = results(&j, 0);
		ck_assert_int_eq(whole(v, "num_requests"), 20);
		ck_assert_int_eq(whole(v, "total_input_tokens"), 20 * 74);
		ck_assert_int_eq(whole(v, "total_output_tokens"), 20 * 6);
		/*
		 * No prefix of the previous run, however long, is found in the
		 * cache.
		 */
		ck_assert_int_le(whole(v, "total_cached_tokens"), 18 * 64);
		ck_assert_double_eq_tol(real(v, "tokens_per_second") *
					real(v, "elapsed_time"), 20 * 80, 0.01);
		json_decref(v);
	}
}
END_TEST

START_TEST(test_latency)
{
	struct job j;
	double sum = 0;
	json_t *v, *x;
	size_t i;

	j = job_start(&rig, "kvrt", "bench", "latency", demo_model(),
		      "--batch-size", "3", "--output-len", "5", "--num-iters",
		      "4", "--num-iters-warmup", "1", "--threads", "1",
		      "--metric-percentiles", "0,50,100", "--json", "-", NULL);
	v = results(&j, 0);
	ck_assert_uint_eq(json_array_size(json_object_get(v, "latencies")), 4);
	json_array_foreach(json_object_get(v, "latencies"), i, x)
		sum += json_real_value(x);
	ck_assert_double_eq_tol(real(v, "avg_latency"), sum / 4, 1e-6);
	ck_assert_double_le(real(json_object_get(v, "percentiles"), "0"),
			    real(json_object_get(v, "percentiles"), "50"));
	json_decref(v);
	rig_walk(&rig);
}
END_TEST

START_TEST(test_no_daemon)
{
	struct job j;
	char *err;

	j = job_start(&rig, "kvrt", "bench", "latency", demo_model(),
		      "--socket", "/nowhere/attach.sock", NULL);
	ck_assert_int_eq(job_wait(&j, 30), EX_UNAVAILABLE);
	err = slurp(j.err);
	ck_assert_msg(count_lines(err) == 1, "%s", err);
	free(err);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("bench_cli");
	TCase *tc = tcase_create("serve");
	SRunner *sr;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, test_counts, 0, ARRAY_SIZE(workloads));
	tcase_add_test(tc, test_trace);
	tcase_add_test(tc, test_server_killed);
	tcase_add_test(tc, test_interrupted);
	tcase_add_test(tc, test_context);
	suite_add_tcase(s, tc);
	tc = tcase_create("engine");
	tcase_add_checked_fixture(tc, setup_engine, teardown);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, test_throughput);
	tcase_add_test(tc, test_latency);
	tcase_add_test(tc, test_no_daemon);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
