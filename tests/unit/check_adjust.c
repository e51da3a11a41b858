// SPDX-License-Identifier: Apache-2.0
/*
 * check_adjust.c - penalties, biases and masks, by an oracle and by frequency
 *
 * A plain Python program made tests/data/sampler/golden.json from the
 * definitions.  The same rows, texts and parameters must give the same logits,
 * the same best token and the same logprobs.  Then the tests draw tokens many
 * times, and compare their frequencies by chi-square with the distribution that
 * the Python program found, and with those of shapes of our own.
 *
 * Seeds are fixed, so a test passes always or never.  With random seeds it
 * would fail by chance less than once in 10^6 times.
 */
#include <check.h>
#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "chi_square.h"
#include "runtime/sampler/adjust.h"
#include "runtime/sampler/logprob.h"
#include "tests/level.h"

#define VOCAB_MAX	256u
#define LIST_MAX	64u
/* Standard deviations of a normal distribution beyond which lies 1e-7. */
#define CHI_LIMIT	5.2

static struct sampler_ws *ws;
static json_t *golden;

static void setup(void)
{
	const char *top = getenv("KVMM_TOP");
	char path[512];

	snprintf(path, sizeof(path), "%s/tests/data/sampler/golden.json",
		 top ? top : ".");
	golden = json_load_file(path, 0, NULL);
	ck_assert_msg(json_array_size(golden) >= 50, "%s cannot be read", path);
	ck_assert_int_eq(sampler_ws_create(VOCAB_MAX, &ws), 0);
}

static void teardown(void)
{
	sampler_ws_free(ws);
	json_decref(golden);
}

/* A case of the file, with the arrays that its parameters point to. */
struct scene {
	struct sampling_params p;
	struct sampling_bias bias[LIST_MAX];
	u32 allowed[LIST_MAX];
	u32 bad[LIST_MAX];
	u32 prompt[LIST_MAX];
	u32 text[LIST_MAX];
	u32 stops[LIST_MAX];
	u32 nr_prompt;
	struct sampler_text so_far;
	struct id_counts *counts[2];
	float logits[VOCAB_MAX];
	u32 vocab;
};

static u32 read_ids(const json_t *list, u32 *out)
{
	u32 i;

	ck_assert_uint_le(json_array_size(list), LIST_MAX);
	for (i = 0; i < json_array_size(list); i++)
		out[i] = (u32)json_integer_value(json_array_get(list, i));
	return i;
}

static float number(const json_t *o, const char *key, double none)
{
	const json_t *v = json_object_get(o, key);

	return (float)(v ? json_number_value(v) : none);
}

static void read_params(struct scene *s, json_t *o)
{
	const char *id;
	json_t *v;
	size_t i;

	s->p = (struct sampling_params){
		.temperature = number(o, "temperature", 1),
		.top_p = number(o, "top_p", 1), .min_p = number(o, "min_p", 0),
		.top_k = (u32)number(o, "top_k", 0),
		.repetition_penalty = number(o, "repetition_penalty", 0),
		.presence_penalty = number(o, "presence_penalty", 0),
		.frequency_penalty = number(o, "frequency_penalty", 0),
		.min_tokens = (u32)number(o, "min_tokens", 0),
		.bias = s->bias, .bad = s->bad,
	};
	json_object_foreach(json_object_get(o, "logit_bias"), id, v)
		s->bias[s->p.nr_bias++] = (struct sampling_bias){
			(u32)atoi(id), (float)json_number_value(v),
		};
	v = json_object_get(o, "allowed_token_ids");
	s->p.nr_allowed = read_ids(v, s->allowed);
	s->p.allowed = v ? s->allowed : NULL;
	json_array_foreach(json_object_get(o, "bad_words"), i, v) {
		s->bad[s->p.nr_bad++] = (u32)json_array_size(v);
		s->p.nr_bad += read_ids(v, s->bad + s->p.nr_bad);
	}
}

/* Count prompt and text, as the engine does. */
static void scene_count(struct scene *s)
{
	u32 i;

	s->counts[0] = id_counts_create(s->vocab);
	s->counts[1] = id_counts_create(s->vocab);
	ck_assert(s->counts[0] && s->counts[1]);
	for (i = 0; i < s->nr_prompt; i++)
		id_counts_add(s->counts[0], s->prompt[i]);
	for (i = 0; i < s->so_far.nr; i++)
		id_counts_add(s->counts[1], s->text[i]);
	s->so_far.prompt = s->counts[0];
	s->so_far.text = s->counts[1];
}

static void scene_read(struct scene *s, json_t *o)
{
	const json_t *logits = json_object_get(o, "logits");
	u32 i;

	memset(s, 0, sizeof(*s));
	read_params(s, json_object_get(o, "params"));
	s->vocab = (u32)json_array_size(logits);
	for (i = 0; i < s->vocab; i++)
		s->logits[i] = (float)json_number_value(json_array_get(logits, i));
	s->nr_prompt = read_ids(json_object_get(o, "prompt"), s->prompt);
	s->so_far.ids = s->text;
	s->so_far.nr = read_ids(json_object_get(o, "text"), s->text);
	s->so_far.stops = s->stops;
	s->so_far.nr_stops = read_ids(json_object_get(o, "stops"), s->stops);
	scene_count(s);
	ck_assert_int_eq(sampling_params_check(&s->p, NULL), 0);
	ck_assert_int_eq(sampling_ids_check(&s->p, s->vocab, NULL), 0);
}

static void scene_free(struct scene *s)
{
	id_counts_free(s->counts[0]);
	id_counts_free(s->counts[1]);
}

static void same(u32 which, u32 id, float got, const json_t *want)
{
	const double w = json_number_value(want);

	if (json_is_null(want))
		ck_assert_msg(got == -INFINITY, "case %u token %u: %g", which,
			      id, (double)got);
	else
		ck_assert_msg(fabs((double)got - w) <= 1e-5 * fmax(1, fabs(w)),
			      "case %u token %u: %.9g, not %.9g", which, id,
			      (double)got, w);
}

START_TEST(test_golden)
{
	struct scene s;
	json_t *o;
	size_t n;
	u32 i;

	json_array_foreach(golden, n, o) {
		const json_t *want = json_object_get(o, "adjusted");

		scene_read(&s, o);
		sampler_adjust(ws, &s.p, &s.so_far, s.logits, s.vocab);
		for (i = 0; i < s.vocab; i++)
			same((u32)n, i, s.logits[i], json_array_get(want, i));
		ck_assert_int_eq(sampler_greedy(s.logits, s.vocab),
				 json_integer_value(json_object_get(o, "greedy")));
		scene_free(&s);
	}
}
END_TEST

START_TEST(test_golden_logprobs)
{
	struct token_logprob top[VOCAB_MAX], one;
	struct scene s;
	json_t *o;
	size_t n;
	u32 i, rank;

	json_array_foreach(golden, n, o) {
		const json_t *want = json_object_get(o, "logprobs");
		const json_t *order = json_object_get(o, "order");

		scene_read(&s, o);
		ck_assert_int_eq(logprob_top(ws, s.logits, s.vocab, s.vocab,
					     top), (int)s.vocab);
		for (i = 0; i < s.vocab; i++) {
			ck_assert_uint_eq(top[i].id, (u32)json_integer_value(
					  json_array_get(order, i)));
			same((u32)n, top[i].id, top[i].logprob,
			     json_array_get(want, top[i].id));
			ck_assert_int_eq(logprob_of(ws, s.logits, s.vocab,
						    top[i].id, &one, &rank), 0);
			ck_assert(one.logprob == top[i].logprob);
			ck_assert_uint_eq(rank, i + 1);
		}
		scene_free(&s);
	}
}
END_TEST

/* ----------------------------------------------------------- frequencies */

/* Draw over positions, samples and seeds, from the adjusted row. */
static void draw_many(struct scene *s, const double *prob, u32 draws)
{
	u32 count[VOCAB_MAX] = { 0 }, i;
	double z;

	sampler_adjust(ws, &s->p, &s->so_far, s->logits, s->vocab);
	for (i = 0; i < draws; i++) {
		const struct sampler_key key = {
			.seed = 1000 + i / 5000, .sample = i % 3,
		};
		s32 id = sampler_sample(ws, s->logits, s->vocab, &s->p, key,
					i % 5000);

		if (id < 0)
			ck_abort_msg("draw %u: %s", i, sampler_strerror(id));
		count[id]++;
	}
	z = chi_square(count, prob, s->vocab, draws);
	ck_assert_msg(z < CHI_LIMIT, "chi-square is %.1f deviations off", z);
}

START_TEST(test_golden_frequencies)
{
	json_t *o = json_array_get(golden, (size_t)_i);
	const json_t *want = json_object_get(o, "probabilities");
	double prob[VOCAB_MAX];
	struct scene s;
	u32 i;

	scene_read(&s, o);
	for (i = 0; i < s.vocab; i++)
		prob[i] = json_number_value(json_array_get(want, i));
	draw_many(&s, prob, 15000);
	scene_free(&s);
}
END_TEST

/*
 * Each sampler alone, and together, over a wider row.  The text has the tokens
 * 0 to 5, each once more than the one before it; the prompt has 4 to 9.
 */
static const struct sampling_params shapes[] = {
	{ .temperature = 1, .top_p = 1 },
	{ .temperature = 0.6f, .top_p = 1 },
	{ .temperature = 2, .top_p = 1 },
	{ .temperature = 1, .top_p = 1, .top_k = 12 },
	{ .temperature = 1, .top_p = 0.8f },
	{ .temperature = 1, .top_p = 1, .min_p = 0.03f },
	{ .temperature = 1.7f, .top_p = 1, .min_p = 0.1f },
	{ .temperature = 1, .top_p = 0.9f, .min_p = 0.05f },
	{ .temperature = 1.3f, .top_p = 0.9f, .min_p = 0.02f, .top_k = 20 },
	{ .temperature = 1, .top_p = 0.6f, .top_k = 30 },
	{ .temperature = 1, .top_p = 1, .repetition_penalty = 1.4f },
	{ .temperature = 1, .top_p = 1, .presence_penalty = 0.8f },
	{ .temperature = 1, .top_p = 1, .frequency_penalty = 0.3f },
	{ .temperature = 0.9f, .top_p = 0.95f, .top_k = 40, .min_p = 0.01f,
	  .repetition_penalty = 1.2f, .presence_penalty = -0.5f,
	  .frequency_penalty = 0.2f },
};

/* The definition in double, removing tokens one after the other. */
static void shape_oracle(const struct scene *s, double *prob)
{
	const struct sampling_params *p = &s->p;
	double row[VOCAB_MAX], best = -INFINITY, sum = 0, run = 0;
	bool out[VOCAB_MAX] = { false };
	u32 i, k, left = s->vocab;

	for (i = 0; i < s->vocab; i++) {
		const double r = p->repetition_penalty ?
			(double)p->repetition_penalty : 1;
		const double count = i < 6 ? i + 1 : 0;

		row[i] = (double)s->logits[i];
		if (i < 10)
			row[i] = row[i] > 0 ? row[i] / r : row[i] * r;
		row[i] -= (double)p->frequency_penalty * count;
		row[i] -= count > 0 ? (double)p->presence_penalty : 0;
		row[i] /= (double)p->temperature;
		best = fmax(best, row[i]);
	}
	for (i = 0; i < s->vocab; i++) {
		prob[i] = exp(row[i] - best);
		if (prob[i] >= (double)p->min_p)
			continue;
		prob[i] = 0;
		left--;
	}
	for (; p->top_k && left > p->top_k; left--) {
		for (i = 0, k = VOCAB_MAX; i < s->vocab; i++)
			if (prob[i] > 0 && (k == VOCAB_MAX || prob[i] <= prob[k]))
				k = i;
		prob[k] = 0;
	}
	for (i = 0; i < s->vocab; i++)
		sum += prob[i];
	for (left = 0; p->top_p < 1 && run < (double)p->top_p * sum; left++) {
		for (i = 0, k = VOCAB_MAX; i < s->vocab; i++)
			if (!out[i] && (k == VOCAB_MAX || prob[i] > prob[k]))
				k = i;
		out[k] = true;
		run += prob[k];
	}
	for (i = 0, sum = 0; i < s->vocab; i++) {
		prob[i] = p->top_p < 1 && !out[i] ? 0 : prob[i];
		sum += prob[i];
	}
	for (i = 0; i < s->vocab; i++)
		prob[i] /= sum;
}

START_TEST(test_shapes)
{
	double prob[VOCAB_MAX];
	struct scene s = { .p = shapes[_i], .vocab = 200 };
	u32 i, k;

	for (i = 0; i < s.vocab; i++) {
		const struct sampler_key key = { 5, i };

		s.logits[i] = (float)(sampler_random(key, 0) +
				      sampler_random(key, 1) - 1) * 5;
	}
	for (i = 0; i < 6; i++)
		for (k = 0; k <= i; k++)
			s.text[s.so_far.nr++] = i;
	for (i = 4; i < 10; i++)
		s.prompt[s.nr_prompt++] = i;
	s.so_far.ids = s.text;
	scene_count(&s);
	shape_oracle(&s, prob);
	draw_many(&s, prob, level_is_check() ? 20000 : 60000);
	scene_free(&s);
}
END_TEST

/* ---------------------------------------------------------------- counts */

/* Counts kept token by token equal those of a recount, at every length. */
START_TEST(test_counts)
{
	struct id_counts *c = id_counts_create(VOCAB_MAX);
	u32 want[VOCAB_MAX] = { 0 }, i, k, nr = 0;

	ck_assert_ptr_nonnull(c);
	ck_assert_uint_eq(id_counts_get(NULL, 3) + id_counts_nr(NULL), 0);
	for (i = 0; i < 3000; i++) {
		const u32 id = (u32)(sampler_random((struct sampler_key){ 1, 0 },
						    i) * VOCAB_MAX);

		nr += !want[id]++;
		id_counts_add(c, id);
		ck_assert_uint_eq(id_counts_nr(c), nr);
		for (k = 0; k < VOCAB_MAX; k++)
			if (id_counts_get(c, k) != want[k])
				ck_abort_msg("%u ids: %u of %u, not %u", i,
					     id_counts_get(c, k), k, want[k]);
	}
	ck_assert_uint_eq(nr, VOCAB_MAX);
	id_counts_free(c);
	id_counts_free(NULL);
}
END_TEST

/* A table that is full, with ids far apart. */
START_TEST(test_counts_full)
{
	static const u32 sizes[] = { 1, 2, 3, 4, 5, 100, 128 };
	struct id_counts *c;
	u32 i, k;

	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		c = id_counts_create(sizes[i]);
		ck_assert_ptr_nonnull(c);
		for (k = 0; k < 2 * sizes[i]; k++)
			id_counts_add(c, (k / 2) * 65536);
		ck_assert_uint_eq(id_counts_nr(c), sizes[i]);
		for (k = 0; k < sizes[i]; k++)
			ck_assert_uint_eq(id_counts_get(c, k * 65536), 2);
		ck_assert_uint_eq(id_counts_get(c, 7), 0);
		id_counts_free(c);
	}
}
END_TEST

/* ------------------------------------------------------------ parameters */

static const struct sampling_bias far_bias = { 61, 1 }, big = { 0, 101 };
static const u32 far_ids[] = { 60, 61 }, short_word[] = { 3, 1, 2 };
static const u32 no_word[] = { 0 }, far_word[] = { 2, 1, 61 };

static const struct {
	struct sampling_params p;
	const char *words;
} bad_params[] = {
	{ { .bias = &big, .nr_bias = 1 }, "logit_bias" },
	{ { .bias = &far_bias, .nr_bias = 1 }, "logit_bias" },
	{ { .bias = &big, .nr_bias = 1025 }, "1024" },
	{ { .allowed = far_ids, .nr_allowed = 2 }, "allowed_token_ids" },
	{ { .allowed = far_ids }, "allowed_token_ids" },
	{ { .bad = short_word, .nr_bad = 3 }, "bad_words" },
	{ { .bad = no_word, .nr_bad = 1 }, "bad_words" },
	{ { .bad = far_word, .nr_bad = 3 }, "bad_words" },
};

START_TEST(test_bad_params)
{
	struct sampling_params p = bad_params[_i].p;
	const char *why = NULL;

	p.top_p = 1;
	if (!sampling_params_check(&p, &why))
		ck_assert_int_eq(sampling_ids_check(&p, 61, &why), -EINVAL);
	ck_assert_ptr_nonnull(why);
	ck_assert_msg(strstr(why, bad_params[_i].words), "%s", why);
}
END_TEST

/* A copy has its own arrays, for each subset of the three. */
START_TEST(test_params_copy)
{
	const struct sampling_bias bias[] = { { 3, 1 }, { 4, 2 } };
	const u32 allowed[] = { 3, 4, 5 }, bad[] = { 2, 3, 4 };
	const struct sampling_params from = {
		.top_p = 1, .min_tokens = 7,
		.bias = _i & 1 ? bias : NULL, .nr_bias = _i & 1 ? 2 : 0,
		.allowed = _i & 2 ? allowed : NULL, .nr_allowed = _i & 2 ? 3 : 0,
		.bad = _i & 4 ? bad : NULL, .nr_bad = _i & 4 ? 3 : 0,
	};
	struct sampling_params to;

	ck_assert_int_eq(sampling_params_copy(&to, &from), 0);
	ck_assert_uint_eq(to.min_tokens, 7);
	ck_assert_int_eq(sampling_adjusts(&to), 1);
	ck_assert(!from.bias || (to.bias != bias &&
				 !memcmp(to.bias, bias, sizeof(bias))));
	ck_assert(!from.allowed == !to.allowed);
	ck_assert(!from.allowed || (to.allowed != allowed &&
		  !memcmp(to.allowed, allowed, sizeof(allowed))));
	ck_assert(!from.bad || (to.bad != bad &&
				!memcmp(to.bad, bad, sizeof(bad))));
	sampling_params_free(&to);
}
END_TEST

/* Neutral parameters adjust nothing; each adjusting parameter is recognised. */
START_TEST(test_adjusts)
{
	static const struct sampling_bias one = { 0, 1 };
	const struct sampling_params asks[] = {
		{ .repetition_penalty = 1.1f }, { .presence_penalty = 1 },
		{ .frequency_penalty = -1 }, { .min_tokens = 1 },
		{ .bias = &one, .nr_bias = 1 },
		{ .allowed = far_ids, .nr_allowed = 1 },
		{ .bad = far_word, .nr_bad = 3 },
	};
	struct sampling_params none = SAMPLING_PARAMS_DEFAULT;
	u32 i;

	none.min_p = 0.5f;
	none.repetition_penalty = 1;
	ck_assert(!sampling_adjusts(&none) && !sampling_counts(&none));
	for (i = 0; i < ARRAY_SIZE(asks); i++) {
		ck_assert(sampling_adjusts(&asks[i]));
		ck_assert(sampling_counts(&asks[i]) == (i < 3));
		ck_assert(sampling_counts_prompt(&asks[i]) == !i);
	}
}
END_TEST

static TCase *case_new(Suite *s, const char *name)
{
	TCase *tc = tcase_create(name);

	tcase_set_timeout(tc, 30);
	tcase_add_checked_fixture(tc, setup, teardown);
	suite_add_tcase(s, tc);
	return tc;
}

static Suite *adjust_suite(void)
{
	Suite *s = suite_create("adjust");
	TCase *tc = case_new(s, "golden");

	tcase_add_test(tc, test_golden);
	tcase_add_test(tc, test_golden_logprobs);
	tc = case_new(s, "frequencies");
	tcase_add_loop_test(tc, test_golden_frequencies, 0, 60);
	tcase_add_loop_test(tc, test_shapes, 0, (int)ARRAY_SIZE(shapes));
	tc = case_new(s, "parameters");
	tcase_add_test(tc, test_counts);
	tcase_add_test(tc, test_counts_full);
	tcase_add_loop_test(tc, test_bad_params, 0, (int)ARRAY_SIZE(bad_params));
	tcase_add_loop_test(tc, test_params_copy, 0, 8);
	tcase_add_test(tc, test_adjusts);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(adjust_suite());
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
