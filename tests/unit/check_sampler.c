// SPDX-License-Identifier: Apache-2.0
/*
 * check_sampler.c - distributions, edges and the seed law
 *
 * The oracle computes the definition in the slow way: sort all tokens, keep a
 * prefix, divide by the sum.  Frequencies are compared with it by chi-square;
 * seeds are fixed, so a test passes always or never.  With the same random
 * number the oracle must also choose the same token.
 */
#include <check.h>
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "runtime/sampler/sampler.h"

#define VOCAB_MAX	4096

static struct sampler_ws *ws;
static float row[VOCAB_MAX];

static void setup(void)
{
	ck_assert_int_eq(sampler_ws_create(VOCAB_MAX, &ws), 0);
}

static void teardown(void)
{
	sampler_ws_free(ws);
}

static const struct sampling_params greedy = { .top_p = 1 };
static const struct sampling_params plain = { .temperature = 1, .top_p = 1 };

static s32 sample(const float *logits, u32 vocab, struct sampling_params p,
		  u64 seed, u64 position)
{
	return sampler_sample(ws, logits, vocab, &p,
			      (struct sampler_key){ .seed = seed }, position);
}

/* Rows of the tests come from the generator itself, with a seed that no draw uses. */
static double noise(u32 i, u64 which)
{
	return sampler_random((struct sampler_key){ ~0ull, i }, which);
}

/* A row like a model's, roughly normal; @grain > 0 makes ties. */
static void row_make(u32 vocab, u64 which, float width, float grain)
{
	u32 i;

	for (i = 0; i < vocab; i++) {
		double u = noise(i, which * 4) + noise(i, which * 4 + 1) +
			   noise(i, which * 4 + 2) - 1.5;

		row[i] = (float)(u * width);
		if (grain > 0)
			row[i] = roundf(row[i] / grain) * grain;
	}
}

/* ------------------------------------------------------------------ oracle */

static const float *order_logits;

static int order_cmp(const void *a, const void *b)
{
	u32 x = *(const u32 *)a, y = *(const u32 *)b;

	if (order_logits[x] != order_logits[y])
		return order_logits[x] > order_logits[y] ? -1 : 1;
	return x < y ? -1 : x > y;
}

/* Probability of every token; returns the number of tokens with one. */
static u32 oracle(const float *logits, u32 vocab, struct sampling_params p,
		  double *prob)
{
	static u32 order[VOCAB_MAX];
	double sum = 0, run = 0;
	u32 i, k = p.top_k && p.top_k < vocab ? p.top_k : vocab;

	for (i = 0; i < vocab; i++)
		order[i] = i;
	order_logits = logits;
	qsort(order, vocab, sizeof(*order), order_cmp);
	memset(prob, 0, vocab * sizeof(*prob));
	for (i = 0; i < k; i++) {
		prob[order[i]] = expf((logits[order[i]] - logits[order[0]]) /
				      p.temperature);
		sum += prob[order[i]];
	}
	while (k && prob[order[k - 1]] == 0)
		k--;
	while (k && prob[order[k - 1]] < (double)p.min_p) {
		sum -= prob[order[k - 1]];
		prob[order[--k]] = 0;
	}
	for (i = 0; i < k && run < p.top_p * sum; i++)
		run += prob[order[i]];
	k = p.top_p < 1 ? i : k;
	for (; i < vocab && p.top_p < 1; i++)
		prob[order[i]] = 0;
	run = 0;
	for (i = 0; i < vocab; i++)
		run += prob[i];
	for (i = 0; i < vocab; i++)
		prob[i] /= run;
	return k;
}

/* The token that has @u in its interval, in the order of ids. */
static u32 oracle_draw(const double *prob, u32 vocab, double u)
{
	double run = 0;
	u32 i, last = 0;

	for (i = 0; i < vocab; i++) {
		if (!prob[i])
			continue;
		last = i;
		run += prob[i];
		if (run > u)
			break;
	}
	return last;
}

/*
 * Chi-square of counts against probabilities; cells that expect fewer than 5
 * are merged.  Returns its excess in standard deviations.
 */
static double chi_square_excess(const u32 *count, const double *prob, u32 n,
				u32 draws)
{
	double x2 = 0, rest_want = 0, rest_got = 0, df = -1;
	u32 i;

	for (i = 0; i < n; i++) {
		double want = prob[i] * draws, d = count[i] - want;

		if (want < 5) {
			rest_want += want;
			rest_got += count[i];
			continue;
		}
		x2 += d * d / want;
		df++;
	}
	if (rest_want >= 5) {
		x2 += (rest_got - rest_want) * (rest_got - rest_want) /
			rest_want;
		df++;
	}
	return (x2 - df) / sqrt(2 * df);
}

/* --------------------------------------------------------------- generator */

struct philox_case {
	u32 ctr[4];
	u32 key[2];
	u32 out[4];
};

/* Known answers that were published with the generator. */
static const struct philox_case philox_cases[] = {
	{ { 0, 0, 0, 0 }, { 0, 0 },
	  { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
	{ { 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff },
	  { 0xffffffff, 0xffffffff },
	  { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
	{ { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 },
	  { 0xa4093822, 0x299f31d0 },
	  { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
};

START_TEST(test_philox_known_answers)
{
	const struct philox_case *c = &philox_cases[_i];
	u32 out[4];

	sampler_philox(c->ctr, c->key, out);
	ck_assert_mem_eq(out, c->out, sizeof(out));
}
END_TEST

/* A change of any part of the key or the position changes the number. */
START_TEST(test_random_depends_on_every_part)
{
	struct sampler_key key = { .seed = 42, .sample = 3 };
	double u = sampler_random(key, 7);
	int bit;

	ck_assert(u == sampler_random(key, 7));
	for (bit = 0; bit < 64; bit++) {
		struct sampler_key other = key;

		ck_assert(sampler_random(key, 7 ^ BIT_ULL(bit)) != u);
		other.seed ^= BIT_ULL(bit);
		ck_assert(sampler_random(other, 7) != u);
		if (bit >= 32)
			continue;
		other = key;
		other.sample ^= BIT(bit);
		ck_assert(sampler_random(other, 7) != u);
	}
}
END_TEST

/* Uniform along each axis: positions, samples, seeds. */
START_TEST(test_random_is_uniform)
{
	u32 count[100] = { 0 }, i;
	double prob[100], u, sum = 0, lag = 0, before = 0.5;

	for (i = 0; i < 100; i++)
		prob[i] = 0.01;
	for (i = 0; i < 100000; i++) {
		struct sampler_key key = {
			.seed = _i == 2 ? i : 5, .sample = _i == 1 ? i : 0,
		};

		u = sampler_random(key, _i == 0 ? i : 9);
		if (u < 0 || u >= 1)
			ck_abort_msg("%g is not in [0, 1)", u);
		count[(u32)(u * 100)]++;
		sum += u - 0.5;
		lag += (u - 0.5) * (before - 0.5);
		before = u;
	}
	ck_assert_double_lt(chi_square_excess(count, prob, 100, 100000), 3);
	/* Four standard deviations: of the mean, and of the products of neighbours. */
	ck_assert_double_lt(fabs(sum), 4 * sqrt(100000 / 12.));
	ck_assert_double_lt(fabs(lag), 4 * sqrt(100000) / 12);
}
END_TEST

/* ------------------------------------------------------------------ greedy */

START_TEST(test_greedy)
{
	const float logits[] = { -1, 3, 2, 3, -INFINITY, 3 };
	const float zeros[] = { -0.0f, 0.0f };
	struct sampling_params one = { .temperature = 1, .top_p = 1,
				       .top_k = 1 };

	ck_assert_int_eq(sampler_greedy(logits, 6), 1);
	ck_assert_int_eq(sample(logits, 6, greedy, 1, 2), 1);
	ck_assert_int_eq(sample(logits, 6, one, 1, 2), 1);
	ck_assert_int_eq(sampler_greedy(logits, 1), 0);
	ck_assert_int_eq(sampler_greedy(zeros, 2), 0);
}
END_TEST

/* As temperature falls, sampling becomes greedy. */
START_TEST(test_cold_is_greedy)
{
	struct sampling_params cold = plain;
	u64 which;

	for (which = 0; which < 50; which++) {
		row_make(300, which, 8, 0);
		cold.temperature = which % 2 ? 1e-6f : FLT_MIN / 4;
		ck_assert_int_eq(sample(row, 300, cold, which, which),
				 sampler_greedy(row, 300));
	}
}
END_TEST

/* ------------------------------------------------------------------ errors */

struct bad_row {
	float logits[4];
	int err;
};

static const struct bad_row bad_rows[] = {
	{ { 0, NAN, 1, 2 }, -EDOM },
	{ { NAN, 0, 0, 0 }, -EDOM },
	{ { 0, 0, INFINITY, NAN }, -EDOM },
	{ { 0, INFINITY, 1, 2 }, -ERANGE },
	{ { -INFINITY, -INFINITY, -INFINITY, -INFINITY }, -ENODATA },
};

START_TEST(test_unusable_rows)
{
	const struct bad_row *b = &bad_rows[_i];
	struct sampling_params some = { .temperature = 1, .top_p = 0.5f,
					.top_k = 2 };

	ck_assert_int_eq(sampler_greedy(b->logits, 4), b->err);
	ck_assert_int_eq(sample(b->logits, 4, greedy, 0, 0), b->err);
	ck_assert_int_eq(sample(b->logits, 4, plain, 0, 0), b->err);
	ck_assert_int_eq(sample(b->logits, 4, some, 0, 0), b->err);
	ck_assert_str_ne(sampler_strerror(b->err), sampler_strerror(-1));
	ck_assert_str_eq(sampler_strerror(b->err), sampler_strerror(-b->err));
}
END_TEST

struct params_case {
	struct sampling_params p;
	const char *words;		/* NULL: valid */
};

static const struct params_case params_cases[] = {
	{ { .temperature = 0, .top_p = 1 }, NULL },
	{ { .temperature = 100, .top_p = 1e-9f, .top_k = ~0u }, NULL },
	{ { .temperature = -0.01f, .top_p = 1 }, "temperature" },
	{ { .temperature = 100.1f, .top_p = 1 }, "temperature" },
	{ { .temperature = NAN, .top_p = 1 }, "temperature" },
	{ { .temperature = INFINITY, .top_p = 1 }, "temperature" },
	{ { .temperature = 1, .top_p = 0 }, "top_p" },
	{ { .temperature = 1, .top_p = 1.01f }, "top_p" },
	{ { .temperature = 1, .top_p = NAN }, "top_p" },
	{ { .top_p = 1, .min_p = 1, .presence_penalty = -2,
	    .frequency_penalty = 2, .repetition_penalty = 0.01f }, NULL },
	{ { .top_p = 1, .min_p = -0.1f }, "min_p" },
	{ { .top_p = 1, .min_p = 1.1f }, "min_p" },
	{ { .top_p = 1, .min_p = NAN }, "min_p" },
	{ { .top_p = 1, .presence_penalty = 2.1f }, "presence_penalty" },
	{ { .top_p = 1, .presence_penalty = NAN }, "presence_penalty" },
	{ { .top_p = 1, .frequency_penalty = -2.1f }, "frequency_penalty" },
	{ { .top_p = 1, .repetition_penalty = 0.001f }, "repetition_penalty" },
	{ { .top_p = 1, .repetition_penalty = 101 }, "repetition_penalty" },
	{ { .top_p = 1, .repetition_penalty = NAN }, "repetition_penalty" },
};

START_TEST(test_params)
{
	const struct params_case *c = &params_cases[_i];
	const float logits[] = { 1, 2 };
	const char *why = "?";
	int err = sampling_params_check(&c->p, &why);

	ck_assert_int_eq(err, c->words ? -EINVAL : 0);
	ck_assert_int_eq(sampling_params_check(&c->p, NULL), err);
	if (c->words) {
		ck_assert_ptr_nonnull(strstr(why, c->words));
		ck_assert_int_eq(sample(logits, 2, c->p, 0, 0), -EINVAL);
	} else {
		ck_assert_ptr_null(why);
		ck_assert_int_ge(sample(logits, 2, c->p, 0, 0), 0);
	}
}
END_TEST

START_TEST(test_vocab_bounds)
{
	struct sampler_ws *w;

	ck_assert_int_eq(sampler_ws_create(0, &w), -EINVAL);
	ck_assert_int_eq(sampler_ws_create((1u << 30) + 1, &w), -EINVAL);
	ck_assert_int_eq(sample(row, 0, plain, 0, 0), -EINVAL);
	ck_assert_int_eq(sample(row, VOCAB_MAX + 1, plain, 0, 0), -EINVAL);
	ck_assert_int_eq(sampler_greedy(row, 0), -EINVAL);
	sampler_ws_free(NULL);
	row[0] = -3;
	ck_assert_int_eq(sample(row, 1, plain, 0, 0), 0);
}
END_TEST

/* ------------------------------------------------------------------- edges */

/* Draw often; returns a bit for every token that was drawn. */
static u64 support(const float *logits, u32 vocab, struct sampling_params p)
{
	u64 seen = 0, position;

	for (position = 0; position < 4000; position++) {
		s32 id = sample(logits, vocab, p, 11, position);

		if (id < 0 || id >= 64)
			ck_abort_msg("token %d", id);
		seen |= BIT_ULL(id);
	}
	return seen;
}

START_TEST(test_top_k_edges)
{
	/* Best to worst: 4, then 1 = 2 = 6 by id, 0, 3; 5 is forbidden. */
	const float logits[] = { 0.5f, 1, 1, 0, 2, -INFINITY, 1 };
	static const u64 want[] = {
		[0] = 0x5f, [1] = 0x10, [2] = 0x12, [3] = 0x16, [4] = 0x56,
		[5] = 0x57, [6] = 0x5f, [7] = 0x5f, [8] = 0x5f,
	};
	struct sampling_params p = plain;

	for (p.top_k = 0; p.top_k < ARRAY_SIZE(want); p.top_k++)
		ck_assert_uint_eq(support(logits, 7, p), want[p.top_k]);
	p.top_k = UINT32_MAX;
	ck_assert_uint_eq(support(logits, 7, p), 0x5f);
}
END_TEST

START_TEST(test_top_p_edges)
{
	/* Probabilities 1/16, 8/16, 2/16, 4/16, 1/16: the ties 0 and 4. */
	const float logits[] = {
		logf(1), logf(8), logf(2), logf(4), logf(1),
	};
	static const struct {
		float p;
		u64 want;
	} cases[] = {
		{ 1e-9f, 0x02 }, { 0.49f, 0x02 }, { 0.51f, 0x0a },
		{ 0.74f, 0x0a }, { 0.76f, 0x0e }, { 0.87f, 0x0e },
		{ 0.88f, 0x0f }, { 0.93f, 0x0f }, { 0.94f, 0x1f },
		{ 1.0f, 0x1f },
	};
	struct sampling_params p = plain;
	size_t i;

	for (i = 0; i < ARRAY_SIZE(cases); i++) {
		p.top_p = cases[i].p;
		ck_assert_uint_eq(support(logits, 5, p), cases[i].want);
	}
	/* Top-p is a share of the rest after top-k: 8/12 of {8, 4}. */
	p.top_k = 2;
	p.top_p = 0.66f;
	ck_assert_uint_eq(support(logits, 5, p), 0x02);
	p.top_p = 0.67f;
	ck_assert_uint_eq(support(logits, 5, p), 0x0a);
}
END_TEST

/* Equal probabilities that binary fractions hit exactly: "at least". */
START_TEST(test_top_p_exact)
{
	const float logits[64] = { 0 };
	struct sampling_params p = plain;

	p.top_p = 0.25f;
	ck_assert_uint_eq(support(logits, 4, p), 0x1);
	p.top_p = 0.5f;
	ck_assert_uint_eq(support(logits, 4, p), 0x3);
	ck_assert_uint_eq(support(logits, 64, p), 0xffffffff);
	p.top_p = nextafterf(0.5f, 1);
	ck_assert_uint_eq(support(logits, 4, p), 0x7);
	p.top_p = nextafterf(1, 0);
	ck_assert_uint_eq(support(logits, 4, p), 0xf);
}
END_TEST

START_TEST(test_extreme_logits)
{
	const float wide[] = { -FLT_MAX, FLT_MAX, 0, FLT_MAX };
	const float zeros[] = { -0.0f, 0.0f, -0.0f };
	const float tiny[] = { 1e-45f, -1e-45f, -INFINITY };
	struct sampling_params p = plain;

	ck_assert_uint_eq(support(wide, 4, p), 0xa);
	p.top_p = 0.4f;
	ck_assert_uint_eq(support(wide, 4, p), 0x2);
	p.top_p = 0.6f;
	ck_assert_uint_eq(support(zeros, 3, p), 0x3);
	p.top_p = 1;
	ck_assert_uint_eq(support(tiny, 3, p), 0x3);
	p.top_k = 2;
	ck_assert_uint_eq(support(zeros, 3, p), 0x3);
}
END_TEST

/* ----------------------------------------------------------- distributions */

struct shape {
	u32 vocab;
	float width;
	float grain;
	struct sampling_params p;
};

static const struct shape shapes[] = {
	{ 12, 3, 0, { .temperature = 1, .top_p = 1 } },
	{ 12, 3, 0, { .temperature = 0.5f, .top_p = 1 } },
	{ 12, 3, 0, { .temperature = 2, .top_p = 0.8f } },
	{ 50, 4, 1, { .temperature = 1, .top_p = 1, .top_k = 17 } },
	{ 50, 4, 1, { .temperature = 1, .top_p = 0.7f } },
	{ 300, 6, 0, { .temperature = 0.8f, .top_p = 0.95f } },
	{ 300, 6, 0.5f, { .temperature = 1.3f, .top_p = 0.9f, .top_k = 40 } },
	{ 4096, 12, 0, { .temperature = 1, .top_p = 0.9f } },
};

START_TEST(test_distribution)
{
	const struct shape *s = &shapes[_i];
	static double prob[VOCAB_MAX];
	static u32 count[VOCAB_MAX];
	u32 draws = s->vocab < 1000 ? 20000 : 4000, i;

	memset(count, 0, sizeof(count));
	row_make(s->vocab, 77, s->width, s->grain);
	ck_assert_uint_gt(oracle(row, s->vocab, s->p, prob), 2);
	for (i = 0; i < draws; i++) {
		s32 id = sample(row, s->vocab, s->p, 1234, i);

		if (id < 0 || prob[id] == 0)
			ck_abort_msg("draw %u gives token %d", i, id);
		count[id]++;
	}
	ck_assert_double_lt(chi_square_excess(count, prob, s->vocab, draws),
			    3);
}
END_TEST

/* Over thousands of rows and settings, the same number draws the same token. */
START_TEST(test_matches_oracle)
{
	static const float temperatures[] = { 0.3f, 0.7f, 1, 1.5f, 5 };
	static const float top_ps[] = { 1, 0.99f, 0.9f, 0.5f, 0.05f };
	static const u32 top_ks[] = { 0, 2, 5, 40, 199, 200 };
	static const float min_ps[] = { 0, 0, 0.01f, 0.2f };
	static double prob[VOCAB_MAX];
	u32 vocab, i, want;
	s32 got;

	for (i = 0; i < 3000; i++) {
		struct sampling_params p = {
			.temperature = temperatures[i % 5],
			.top_p = top_ps[i / 5 % 5], .top_k = top_ks[i / 25 % 6],
			.min_p = min_ps[i / 150 % 4],
		};
		struct sampler_key key = { .seed = i, .sample = i % 7 };

		vocab = 1 + (u32)(noise(i, 1) * 250);
		row_make(vocab, i, 1 + i % 20, i % 3 ? 0 : 0.5f);
		oracle(row, vocab, p, prob);
		want = oracle_draw(prob, vocab, sampler_random(key, i));
		got = sampler_sample(ws, row, vocab, &p, key, i);
		if (got != (s32)want)
			ck_abort_msg("row %u: token %d, not %u", i, got, want);
	}
}
END_TEST

/* ---------------------------------------------------------------- seed law */

/* A draw depends only on its place, not on order, workspace or other draws. */
START_TEST(test_seed_law)
{
	struct sampling_params p = { .temperature = 1, .top_p = 0.95f,
				     .top_k = 100 };
	struct sampler_ws *other;
	s32 first[200];
	u32 i;

	ck_assert_int_eq(sampler_ws_create(500, &other), 0);
	for (i = 0; i < 200; i++) {
		row_make(500, i, 6, 0);
		first[i] = sample(row, 500, p, 99, i);
	}
	for (i = 200; i--;) {
		row_make(333, 1000 + i, 9, 0.5f);
		ck_assert_int_ge(sample(row, 333, plain, i, i), 0);
		row_make(500, i, 6, 0);
		ck_assert_int_eq(sampler_sample(other, row, 500, &p,
				 (struct sampler_key){ 99, 0 }, i), first[i]);
	}
	sampler_ws_free(other);
}
END_TEST

/* Settings that cut nothing draw the same tokens as no setting. */
START_TEST(test_settings_that_cut_nothing)
{
	struct sampling_params all = plain;
	u32 i;

	for (i = 0; i < 200; i++) {
		row_make(128, i, 5, 0);
		all.top_k = 128 + i % 2;
		ck_assert_int_eq(sample(row, 128, all, 3, i),
				 sample(row, 128, plain, 3, i));
	}
}
END_TEST

/* n samples of one request differ, and so do requests of neighbouring seeds. */
START_TEST(test_samples_differ)
{
	u32 same_sample = 0, same_seed = 0, same_position = 0, i;
	const float flat[64] = { 0 };

	for (i = 0; i < 4096; i++) {
		struct sampler_key a = { .seed = 7, .sample = 0 };
		struct sampler_key b = { .seed = 7, .sample = 1 };
		struct sampler_key c = { .seed = 8, .sample = 0 };
		s32 id = sampler_sample(ws, flat, 64, &plain, a, i);

		same_sample += id == sampler_sample(ws, flat, 64, &plain, b, i);
		same_seed += id == sampler_sample(ws, flat, 64, &plain, c, i);
		same_position += id == sampler_sample(ws, flat, 64, &plain, a,
						      i + 1);
	}
	/* By chance 64 are equal, with a standard deviation of 8. */
	ck_assert_uint_ge(same_sample, 32);
	ck_assert_uint_le(same_sample, 96);
	ck_assert_uint_ge(same_seed, 32);
	ck_assert_uint_le(same_seed, 96);
	ck_assert_uint_ge(same_position, 32);
	ck_assert_uint_le(same_position, 96);
}
END_TEST

static TCase *case_new(Suite *s, const char *name)
{
	TCase *tc = tcase_create(name);

	tcase_set_tags(tc, "unit sampler");
	tcase_set_timeout(tc, 20);
	tcase_add_checked_fixture(tc, setup, teardown);
	suite_add_tcase(s, tc);
	return tc;
}

static Suite *sampler_suite(void)
{
	Suite *s = suite_create("sampler");
	TCase *tc;

	tc = case_new(s, "generator");
	tcase_add_loop_test(tc, test_philox_known_answers, 0,
			    ARRAY_SIZE(philox_cases));
	tcase_add_test(tc, test_random_depends_on_every_part);
	tcase_add_loop_test(tc, test_random_is_uniform, 0, 3);

	tc = case_new(s, "edges");
	tcase_add_test(tc, test_greedy);
	tcase_add_test(tc, test_cold_is_greedy);
	tcase_add_loop_test(tc, test_unusable_rows, 0, ARRAY_SIZE(bad_rows));
	tcase_add_loop_test(tc, test_params, 0, ARRAY_SIZE(params_cases));
	tcase_add_test(tc, test_vocab_bounds);
	tcase_add_test(tc, test_top_k_edges);
	tcase_add_test(tc, test_top_p_edges);
	tcase_add_test(tc, test_top_p_exact);
	tcase_add_test(tc, test_extreme_logits);

	tc = case_new(s, "distributions");
	tcase_add_loop_test(tc, test_distribution, 0, ARRAY_SIZE(shapes));
	tcase_add_test(tc, test_matches_oracle);

	tc = case_new(s, "seed-law");
	tcase_add_test(tc, test_seed_law);
	tcase_add_test(tc, test_settings_that_cut_nothing);
	tcase_add_test(tc, test_samples_differ);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(sampler_suite());
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
