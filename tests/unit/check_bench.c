// SPDX-License-Identifier: Apache-2.0
/*
 * check_bench.c - workloads and figures of kvrt bench
 *
 * Random numbers are held against the moments of their distributions, with
 * bounds of several standard errors and fixed seeds; percentiles against a
 * plain oracle; traces against lines that are wrong in every way; streams of
 * events against the expected results.
 */
#include <check.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <sysexits.h>
#include <unistd.h>

#include "runtime/cli/bench_serve.h"
#include "runtime/cli/cli.h"
#include "tests/unit/page.h"

static struct workload w;
static int saved_err;
static FILE *said;

/* Messages on stderr go to a file. */
static void setup(void)
{
	workload_init(&w);
	said = tmpfile();
	ck_assert_ptr_nonnull(said);
	saved_err = dup(STDERR_FILENO);
	dup2(fileno(said), STDERR_FILENO);
}

static void teardown(void)
{
	dup2(saved_err, STDERR_FILENO);
	close(saved_err);
	fclose(said);
	workload_free(&w);
}

static const char *last_said(void)
{
	static char text[1024];

	rewind(said);
	text[fread(text, 1, sizeof(text) - 1, said)] = '\0';
	ck_assert(!ftruncate(fileno(said), 0));
	rewind(said);
	return text;
}

/* ---- random numbers ---- */

#define NR_DRAWN	200000u

static double drawn[NR_DRAWN];

/* Mean and coefficient of variation of the gaps between arrivals. */
static void gaps_of(u64 seed, double rate, double shape, double *mean,
		    double *cv)
{
	double sum = 0, sq = 0, gap;
	struct draw d;
	u32 i;

	draw_seed(&d, seed, 0);
	draw_arrivals(&d, rate, shape, drawn, NR_DRAWN);
	for (i = 0; i < NR_DRAWN; i++) {
		gap = drawn[i] - (i ? drawn[i - 1] : 0);
		ck_assert(gap >= 0);
		sum += gap;
		sq += gap * gap;
	}
	*mean = sum / NR_DRAWN;
	*cv = sqrt(fabs(sq / NR_DRAWN - *mean * *mean)) / *mean;
}

START_TEST(test_arrivals)
{
	static const double shapes[] = { 1, 0.25, 0.5, 4, 100 };
	double mean, cv;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(shapes); i++) {
		gaps_of(i, 8, shapes[i], &mean, &cv);
		/* The load is exactly the requested one. */
		ck_assert_double_eq_tol(mean, 1.0 / 8, 1e-12);
		ck_assert_double_eq_tol(drawn[NR_DRAWN - 1], NR_DRAWN / 8.0,
					1e-6);
		ck_assert_double_eq_tol(cv * sqrt(shapes[i]), 1, 0.02);
	}
}
END_TEST

/* A Poisson process: the share of gaps longer than t is exp(-t). */
START_TEST(test_poisson_tail)
{
	u32 i, k, n;
	struct draw d;

	draw_seed(&d, 5, 0);
	draw_arrivals(&d, 1, 1, drawn, NR_DRAWN);
	for (k = 1; k <= 5; k++) {
		for (n = 0, i = 1; i < NR_DRAWN; i++)
			n += drawn[i] - drawn[i - 1] > k;
		ck_assert_double_eq_tol(n / (NR_DRAWN * exp(-(double)k)), 1,
					5 / sqrt(NR_DRAWN * exp(-(double)k)));
	}
}
END_TEST

START_TEST(test_arrivals_even)
{
	double mean, cv;
	struct draw d;
	u32 i;

	gaps_of(1, 50, INFINITY, &mean, &cv);
	ck_assert_double_lt(cv, 1e-4);
	draw_seed(&d, 1, 0);
	draw_arrivals(&d, INFINITY, 1, drawn, 100);
	for (i = 0; i < 100; i++)
		ck_assert(drawn[i] == 0);
}
END_TEST

START_TEST(test_gamma)
{
	static const double shapes[] = { 0.3, 1, 2.5, 30 };
	double sum, sq, v;
	struct draw d;
	u32 i, k;

	for (k = 0; k < ARRAY_SIZE(shapes); k++) {
		draw_seed(&d, 7, k);
		for (sum = sq = 0, i = 0; i < NR_DRAWN; i++) {
			v = draw_gamma(&d, shapes[k]);
			sum += v;
			sq += v * v;
		}
		sum /= NR_DRAWN;
		sq = sq / NR_DRAWN - sum * sum;
		ck_assert_double_eq_tol(sum / shapes[k], 1, 0.02);
		ck_assert_double_eq_tol(sq / shapes[k], 1, 0.05);
	}
}
END_TEST

START_TEST(test_between)
{
	u32 n[7] = { 0 }, i;
	struct draw d;

	draw_seed(&d, 3, 3);
	for (i = 0; i < 70000; i++) {
		const u32 v = draw_between(&d, 10, 16);

		ck_assert(v >= 10 && v <= 16);
		n[v - 10]++;
	}
	for (i = 0; i < 7; i++)
		ck_assert(n[i] > 9500 && n[i] < 10500);
	ck_assert_uint_eq(draw_between(&d, 5, 5), 5);
}
END_TEST

/* ---- workloads ---- */

static struct bench_data_opts opts(enum bench_dataset dataset, u32 n)
{
	return (struct bench_data_opts){
		.dataset = dataset, .num_prompts = n, .input_len = 100,
		.output_len = 40, .num_prefixes = 4, .prefix_len = 20,
		.suffix_len = 12, .seed = "1",
	};
}

static void sums(double *in, double *out)
{
	u32 i;

	*in = *out = 0;
	for (i = 0; i < w.nr; i++) {
		*in += (double)w.list[i].in / w.nr;
		*out += (double)w.list[i].out / w.nr;
	}
}

START_TEST(test_random_lengths)
{
	struct bench_data_opts o = opts(BENCH_RANDOM, 20000);
	double in, out;
	u32 i;

	ck_assert_int_eq(workload_make(&w, &o, 0), 0);
	for (i = 0; i < w.nr; i++)
		ck_assert(w.list[i].in == 100 && w.list[i].out == 40);
	workload_free(&w);
	o.range_ratio = "0.25";
	ck_assert_int_eq(workload_make(&w, &o, 0), 0);
	for (i = 0; i < w.nr; i++) {
		ck_assert(w.list[i].in >= 75 && w.list[i].in <= 125);
		ck_assert(w.list[i].out >= 30 && w.list[i].out <= 50);
	}
	sums(&in, &out);
	ck_assert_double_eq_tol(in, 100, 0.6);
	ck_assert_double_eq_tol(out, 40, 0.3);
	o.range_ratio = "1";
	ck_assert_int_eq(workload_make(&w, &o, 0), EX_USAGE);
}
END_TEST

/* The means that the documentation claims. */
START_TEST(test_sharegpt_means)
{
	struct bench_data_opts o = opts(BENCH_SHAREGPT, 400000);
	double in, out;
	u32 i;

	ck_assert_int_eq(workload_make(&w, &o, 0), 0);
	sums(&in, &out);
	ck_assert_double_eq_tol(in, 161.31, 1.5);
	ck_assert_double_eq_tol(out, 337.99, 2);
	for (i = 0; i < w.nr; i++)
		ck_assert(w.list[i].in >= 4 && w.list[i].in <= 1024 &&
			  w.list[i].out >= 4 && w.list[i].out <= 1024);
}
END_TEST

START_TEST(test_prefix_shares)
{
	struct bench_data_opts o = opts(BENCH_PREFIX, 40);
	u32 a[32], b[32], i, k, same, groups[40] = { 0 };

	ck_assert_int_eq(workload_make(&w, &o, 0), 0);
	for (i = 0; i < w.nr; i++) {
		ck_assert_uint_eq(w.list[i].in, 32);
		workload_ids(&w, &w.list[i], 4096, a);
		for (k = 0; k < w.nr; k++) {
			workload_ids(&w, &w.list[k], 4096, b);
			same = !memcmp(a, b, 20 * sizeof(u32));
			groups[i] += same;
			/* Behind the prefix no two prompts are alike. */
			ck_assert(i == k || memcmp(a + 20, b + 20,
						   12 * sizeof(u32)));
		}
	}
	for (i = 0; i < w.nr; i++)
		ck_assert_uint_eq(groups[i], 10);
}
END_TEST

START_TEST(test_seed_decides)
{
	struct bench_data_opts o = opts(BENCH_RANDOM, 50);
	u32 a[200], b[200], i;
	struct workload v;

	o.range_ratio = "0.5";
	workload_init(&v);
	ck_assert_int_eq(workload_make(&w, &o, 0), 0);
	ck_assert_int_eq(workload_make(&v, &o, 0), 0);
	for (i = 0; i < w.nr; i++) {
		ck_assert_uint_eq(w.list[i].in, v.list[i].in);
		workload_ids(&w, &w.list[i], 4096, a);
		workload_ids(&v, &v.list[i], 4096, b);
		ck_assert_mem_eq(a, b, w.list[i].in * sizeof(u32));
	}
	workload_free(&v);
	o.seed = "2";
	ck_assert_int_eq(workload_make(&v, &o, 0), 0);
	workload_ids(&v, &v.list[0], 4096, b);
	workload_ids(&w, &w.list[0], 4096, a);
	ck_assert_mem_ne(a, b, 50 * sizeof(u32));
	workload_free(&v);
}
END_TEST

START_TEST(test_json_forms)
{
	struct bench_data_opts o = opts(BENCH_PREFIX, 4);
	struct text t = { 0 };
	u32 ids[32], words = 1;
	const char *p;
	json_t *v, *id;
	size_t i;

	ck_assert_int_eq(workload_make(&w, &o, 0), 0);
	workload_ids(&w, &w.list[2], 1000, ids);
	workload_json_ids(&w, &w.list[2], 1000, &t);
	v = json_loadb(t.p, t.len, 0, NULL);
	ck_assert_uint_eq(json_array_size(v), 32);
	json_array_foreach(v, i, id) {
		ck_assert_int_eq(json_integer_value(id), ids[i]);
		ck_assert(ids[i] >= 260 && ids[i] < 1000);
	}
	json_decref(v);
	text_clear(&t);
	workload_json_text(&w, &w.list[2], &t);
	v = json_loadb(t.p, t.len, JSON_DECODE_ANY, NULL);
	for (p = json_string_value(v); *p; p++)
		words += *p == ' ';
	ck_assert_uint_eq(words, 32);
	json_decref(v);
	text_free(&t);
}
END_TEST

START_TEST(test_cut)
{
	struct bench_data_opts o = opts(BENCH_PREFIX, 3);
	u32 i;

	o.output_len = 5;	/* 20 + 12 + 5 */
	ck_assert_int_eq(workload_make(&w, &o, 37), 0);
	ck_assert_uint_eq(w.cut, 0);
	workload_free(&w);
	ck_assert_int_eq(workload_make(&w, &o, 36), 0);
	ck_assert_uint_eq(w.cut, 3);
	ck_assert_uint_eq(w.list[0].in, 32);
	ck_assert_uint_eq(w.list[0].out, 4);
	workload_free(&w);
	ck_assert_int_eq(workload_make(&w, &o, 16), 0);
	for (i = 0; i < 3; i++) {
		ck_assert_uint_eq(w.list[i].in, 15);
		ck_assert_uint_eq(w.list[i].out, 1);
		ck_assert_uint_eq(w.list[i].nr, 1);
		ck_assert_uint_eq(w.pieces[w.list[i].first].nr, 15);
	}
}
END_TEST

/* ---- traces ---- */

static int trace(const char *text, u32 most)
{
	FILE *f = fmemopen((void *)(uintptr_t)text, strlen(text), "r");
	int ret;

	ck_assert_ptr_nonnull(f);
	workload_free(&w);
	ret = trace_read(&w, f, "t.jsonl", most);
	fclose(f);
	return ret;
}

START_TEST(test_trace)
{
	static u32 a[1600], b[1600];

	ck_assert_int_eq(trace(
		"{\"timestamp\": 3000, \"input_length\": 1100, \"output_length\": 7, \"hash_ids\": [0, 1, 2]}\n"
		"\n"
		"{\"timestamp\": 4500.5, \"input_length\": 1600, \"output_length\": 1, \"hash_ids\": [0, 1], \"session\": 3}\r\n"
		"{\"timestamp\": 1000, \"input_length\": 5, \"output_length\": 2}\n",
		10), 0);
	ck_assert_uint_eq(w.nr, 3);
	ck_assert(w.timed);
	/* Requests are in order of time, which begins with the first one. */
	ck_assert(w.list[0].at == 0 && w.list[0].in == 5);
	ck_assert_double_eq_tol(w.list[1].at, 2, 1e-9);
	ck_assert_double_eq_tol(w.list[2].at, 3.5005, 1e-9);
	ck_assert_uint_eq(w.list[1].in, 1100);
	ck_assert_uint_eq(w.list[1].out, 7);
	ck_assert_uint_eq(w.list[2].in, 1600);
	workload_ids(&w, &w.list[1], 4096, a);
	workload_ids(&w, &w.list[2], 4096, b);
	/* Two blocks are shared, the third is not. */
	ck_assert_mem_eq(a, b, 1024 * sizeof(u32));
	ck_assert_mem_ne(a + 1024, b + 1024, 76 * sizeof(u32));
	ck_assert_mem_ne(a, a + 512, 512 * sizeof(u32));
}
END_TEST

START_TEST(test_trace_most)
{
	ck_assert_int_eq(trace("{\"timestamp\":0,\"input_length\":1,\"output_length\":1}\n"
			       "{\"timestamp\":0,\"input_length\":2,\"output_length\":1}\n"
			       "nothing of this line is read", 2), 0);
	ck_assert_uint_eq(w.nr, 2);
}
END_TEST

#define GOOD "{\"timestamp\":0,\"input_length\":600,\"output_length\":1,\"hash_ids\":[1,2]}\n"

static const struct { const char *line, *why; } wrong[] = {
	{ "x", "is no JSON object" },
	{ "[]", "is no JSON object" },
	{ "{\"timestamp\":0,", "is no JSON object" },
	{ "{\"timestamp\":0,\"timestamp\":0,\"input_length\":1,\"output_length\":1}", "is no JSON object" },
	{ "{\"input_length\":1,\"output_length\":1}", "timestamp" },
	{ "{\"timestamp\":-1,\"input_length\":1,\"output_length\":1}", "timestamp" },
	{ "{\"timestamp\":\"0\",\"input_length\":1,\"output_length\":1}", "timestamp" },
	{ "{\"timestamp\":0,\"output_length\":1}", "input_length" },
	{ "{\"timestamp\":0,\"input_length\":0,\"output_length\":1}", "input_length" },
	{ "{\"timestamp\":0,\"input_length\":1.5,\"output_length\":1}", "input_length" },
	{ "{\"timestamp\":0,\"input_length\":99999999,\"output_length\":1}", "input_length" },
	{ "{\"timestamp\":0,\"input_length\":1,\"output_length\":-4}", "output_length" },
	{ "{\"timestamp\":0,\"input_length\":1,\"output_length\":1,\"hash_ids\":3}", "hash_ids is no list" },
	{ "{\"timestamp\":0,\"input_length\":1,\"output_length\":1,\"hash_ids\":[\"a\"]}", "hash_ids holds" },
	{ "{\"timestamp\":0,\"input_length\":512,\"output_length\":1,\"hash_ids\":[1,2]}", "more than one id" },
};

START_TEST(test_trace_wrong)
{
	char text[1024], want[64];
	const char *have;

	snprintf(text, sizeof(text), GOOD "\n%s\n" GOOD, wrong[_i].line);
	ck_assert_int_eq(trace(text, 100), EX_DATAERR);
	have = last_said();
	snprintf(want, sizeof(want), "t.jsonl: line 3: ");
	ck_assert_msg(strstr(have, want) && strstr(have, wrong[_i].why),
		      "%s: %s", wrong[_i].line, have);
	ck_assert_ptr_eq(strchr(have, '\n') + 1, have + strlen(have));
}
END_TEST

START_TEST(test_trace_empty)
{
	ck_assert_int_eq(trace("\n \n", 5), EX_DATAERR);
	ck_assert_ptr_nonnull(strstr(last_said(), "holds no request"));
}
END_TEST

/* ---- figures ---- */

/* A percentile found by counting smaller values, without sorting. */
static double oracle(const double *v, u32 n, double p)
{
	const double at = p / 100 * (n - 1);
	double near[2] = { 0, 0 };
	u32 i, k, below, same, half;

	for (half = 0; half < 2; half++) {
		const u32 rank = min((u32)at + half, n - 1);

		for (i = 0; i < n; i++) {
			for (below = same = 0, k = 0; k < n; k++) {
				below += v[k] < v[i];
				same += v[k] == v[i];
			}
			if (below <= rank && rank < below + same)
				near[half] = v[i];
		}
	}
	return near[0] + (at - floor(at)) * (near[1] - near[0]);
}

START_TEST(test_percentiles)
{
	static const double ps[] = { 0, 1, 25, 50, 90, 99, 99.9, 100 };
	double v[120], mean, sq;
	struct series s;
	struct draw d;
	u32 n, i;

	draw_seed(&d, 9, 9);
	for (n = 1; n <= ARRAY_SIZE(v); n += n < 6 ? 1 : 19) {
		memset(&s, 0, sizeof(s));
		for (i = 0, mean = sq = 0; i < n; i++) {
			v[i] = draw_between(&d, 0, 50);
			mean += v[i] / n;
			sq += v[i] * v[i] / n;
			series_add(&s, v[i]);
		}
		series_sort(&s);
		for (i = 0; i < ARRAY_SIZE(ps); i++)
			ck_assert_double_eq_tol(series_percentile(&s, ps[i]),
						oracle(v, n, ps[i]), 1e-9);
		ck_assert_double_eq_tol(series_mean(&s), mean, 1e-9);
		ck_assert_double_eq_tol(series_std(&s) * series_std(&s),
					sq - mean * mean, 1e-6);
		series_free(&s);
	}
	ck_assert(series_percentile(&s, 50) == 0 && series_mean(&s) == 0);
}
END_TEST

/* The same results as those of numpy.percentile(). */
START_TEST(test_percentiles_numpy)
{
	static const double v[] = { 15, 20, 35, 40, 50 };
	struct series s = { 0 };
	u32 i;

	for (i = 0; i < ARRAY_SIZE(v); i++)
		series_add(&s, v[i]);
	ck_assert_double_eq_tol(series_percentile(&s, 40), 29, 1e-9);
	ck_assert_double_eq_tol(series_percentile(&s, 90), 46, 1e-9);
	ck_assert_double_eq_tol(series_std(&s), 12.884098726725126, 1e-9);
	series_free(&s);
}
END_TEST

START_TEST(test_percentiles_parse)
{
	static const char * const bad[] = { "", "a", "50,", ",50", "50;90",
		"101", "-1", "nan", "1,2,3,4,5,6,7,8,9,1,2,3,4,5,6,7,8" };
	struct percentiles p;
	char name[16];
	u32 i;

	ck_assert_int_eq(percentiles_parse(&p, "50,99.9,100"), 0);
	ck_assert_uint_eq(p.nr, 3);
	ck_assert_str_eq(percentile_name(p.p[1], name, sizeof(name)), "p99.9");
	ck_assert_str_eq(percentile_name(p.p[2], name, sizeof(name)), "p100");
	for (i = 0; i < ARRAY_SIZE(bad); i++)
		ck_assert_msg(percentiles_parse(&p, bad[i]) == EX_USAGE, "%s",
			      bad[i]);
}
END_TEST

/* ---- streams ---- */

static struct flow flow;

/* Take @text at the time @now, as if it had been read. */
static void come(double now, bool chat, const char *text)
{
	flow.call.status = 200;
	text_puts(&flow.call.body, text);
	flow_take(&flow, now, chat);
}

static void flow_done(void)
{
	series_free(&flow.gaps);
	text_free(&flow.call.body);
	memset(&flow, 0, sizeof(flow));
}

START_TEST(test_flow_completion)
{
	come(1, false, "data: {\"choices\":[{\"text\":\"a\",\"finish_reason\":null}]}\n\nda");
	come(1.5, false, "ta: {\"choices\":[{\"text\":\"\",\"finish_reason\":null}]}\n\n");
	come(1.75, false, "data: {\"choices\":[{\"text\":\"b\",\"finish_reason\":\"length\"}]}\n\n"
	     "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":3,"
	     "\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\n");
	ck_assert(!flow.ended && !flow.failed);
	come(2, false, ": a comment\n\ndata: [DONE]\n\n");
	ck_assert(flow.ended && !flow.failed);
	ck_assert_uint_eq(flow.events, 3);
	ck_assert(flow.first == 1 && flow.last == 1.75 && flow.seen == 2);
	ck_assert_uint_eq(flow.gaps.nr, 2);
	ck_assert(flow.gaps.v[0] == 0.5 && flow.gaps.v[1] == 0.25);
	ck_assert(flow.usage.known && flow.usage.in == 9 &&
		  flow.usage.out == 3 && flow.usage.cached == 4);
	flow_done();
}
END_TEST

/* Neither the event of the role nor that of the end is a token. */
START_TEST(test_flow_chat)
{
	come(1, true, "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":null}]}\n\n");
	ck_assert_uint_eq(flow.events, 0);
	come(2, true, "data:{\"choices\":[{\"delta\":{\"content\":\"x\"},\"finish_reason\":null}]}\r\n\r\n");
	come(3, true, "data: {\"choices\":[{\"delta\":{\"reasoning_content\":\"y\"},\"finish_reason\":null}]}\n\n");
	come(4, true, "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n");
	ck_assert_uint_eq(flow.events, 2);
	ck_assert(flow.first == 2 && flow.last == 4);
	flow_done();
}
END_TEST

static const struct { const char *text, *why; } broken[] = {
	{ "data: {nonsense\n\n", "an event is no JSON object" },
	{ "data: 7\n\n", "an event is no JSON object" },
	{ "data: {\"error\":{\"message\":\"out\\nof luck\"}}\n\n", "in the stream: out?of luck" },
	{ "data: {\"error\":true}\n\n", "in the stream: an error" },
};

START_TEST(test_flow_broken)
{
	come(1, false, broken[_i].text);
	ck_assert(flow.failed);
	ck_assert_str_eq(flow.why, broken[_i].why);
	flow_done();
}
END_TEST

START_TEST(test_flow_ends)
{
	flow.call.over = true;
	come(1, false, "<html>hello</html>");
	ck_assert_str_eq(flow.why, "the answer is no stream of events");
	flow_done();
	flow.call.over = true;
	come(1, false, "data: {\"choices\":[{\"text\":\"a\"}]}\n\n");
	ck_assert_str_eq(flow.why, "the stream has no end");
	flow_done();
	flow.call.status = 429;
	flow.call.over = true;
	text_puts(&flow.call.body, "{\"error\":{\"message\":\"full\"}}");
	flow_take(&flow, 1, false);
	ck_assert_str_eq(flow.why, "429: full");
	flow_done();
}
END_TEST

/* ---- the documentation ---- */

static void expect_documented(const struct kv_program *program)
{
	char *help = NULL, *page = page_read("kvrt.md");
	size_t len = 0;
	FILE *f;

	f = open_memstream(&help, &len);
	kv_opts_help(program, f);
	fclose(f);
	ck_assert_msg(strstr(page, help),
		      "Documentation/kvrt.md wants this text:\n%s", help);
	free(page);
	free(help);
}

START_TEST(test_documented)
{
	expect_documented(&bench_serve_program);
	expect_documented(&bench_throughput_program);
	expect_documented(&bench_latency_program);
}
END_TEST

static void add_workloads(Suite *s)
{
	TCase *tc = tcase_create("workloads");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 20);
	tcase_add_test(tc, test_arrivals);
	tcase_add_test(tc, test_poisson_tail);
	tcase_add_test(tc, test_arrivals_even);
	tcase_add_test(tc, test_gamma);
	tcase_add_test(tc, test_between);
	tcase_add_test(tc, test_random_lengths);
	tcase_add_test(tc, test_sharegpt_means);
	tcase_add_test(tc, test_prefix_shares);
	tcase_add_test(tc, test_seed_decides);
	tcase_add_test(tc, test_json_forms);
	tcase_add_test(tc, test_cut);
	tcase_add_test(tc, test_trace);
	tcase_add_test(tc, test_trace_most);
	tcase_add_loop_test(tc, test_trace_wrong, 0, ARRAY_SIZE(wrong));
	tcase_add_test(tc, test_trace_empty);
	suite_add_tcase(s, tc);
}

int main(void)
{
	Suite *s = suite_create("bench");
	TCase *tc = tcase_create("figures");
	SRunner *sr;
	int failed;

	add_workloads(s);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_percentiles);
	tcase_add_test(tc, test_percentiles_numpy);
	tcase_add_test(tc, test_percentiles_parse);
	tcase_add_test(tc, test_flow_completion);
	tcase_add_test(tc, test_flow_chat);
	tcase_add_loop_test(tc, test_flow_broken, 0, ARRAY_SIZE(broken));
	tcase_add_test(tc, test_flow_ends);
	tcase_add_test(tc, test_documented);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
