// SPDX-License-Identifier: Apache-2.0
/*
 * check_cuda_sample.c - draws on the device against those of the sampler
 *
 * The same rows, parameters and seeds give the same tokens as runtime/sampler,
 * every one: the weight of a token is the same to the bit (kernels/weight.h),
 * and so are the cuts and the random numbers.  Edits of logits and logprobs are
 * compared with the sampler's, and frequencies with exact distributions by
 * chi-square.
 */
#include <errno.h>

#include "chi_square.h"
#include "cuda_fixture.h"
#include "kernels/weight.h"
#include "runtime/sampler/adjust.h"
#include "runtime/sampler/logprob.h"
#include "tests/level.h"

#define VOCAB_MAX	20000u
#define DRAWS_MAX	4096u
#define TEXT_MAX	40u
#define CHI_LIMIT	5.2		/* deviations; beyond lies 1e-7 */

static struct rng rng;
static struct sampler_ws *ws;

static void setup(void)
{
	rng.s = 41;
	ck_assert_int_eq(sampler_ws_create(VOCAB_MAX, &ws), 0);
	dev_open();
}

static void teardown(void)
{
	sampler_ws_free(ws);
	dev_close();
}

/* Rows of logits, draws from them, and the results. */
struct scene {
	u32 vocab;
	u32 rows;
	u64 ld;
	float *logits;
	struct dev_draw draws[DRAWS_MAX];
	u32 nr;
	bool adjusts;
	bool logprobs;
	u32 top_stride;
	u32 saved;
	float *after;			/* the rows after the draws */
	struct dev_drawn drawn[DRAWS_MAX];
	struct dev_top *top;
};

static struct scene *scene_create(u32 rows, u32 vocab, u32 gap)
{
	struct scene *s = calloc(1, sizeof(*s));
	u64 i;

	ck_assert_ptr_nonnull(s);
	s->vocab = vocab;
	s->rows = rows;
	s->ld = vocab + gap;
	s->logits = poisoned(rows * s->ld);
	for (i = 0; i < rows * s->ld; i++)
		if (i % s->ld < vocab)
			s->logits[i] = 4 * (rng_float(&rng) + rng_float(&rng));
	return s;
}

static void scene_free(struct scene *s)
{
	free(s->logits);
	free(s->after);
	free(s->top);
	free(s);
}

static struct dev_draw *scene_draw(struct scene *s, u32 row,
				   const struct sampling_params *p, u64 seed,
				   u32 sample, u64 position)
{
	struct dev_draw *d = &s->draws[s->nr++];

	ck_assert_uint_le(s->nr, DRAWS_MAX);
	*d = (struct dev_draw){
		.seed = seed, .position = position, .sample = sample,
		.row = row, .temperature = p->temperature, .top_p = p->top_p,
		.min_p = p->min_p, .top_k = p->top_k,
		.repetition = p->repetition_penalty,
		.presence = p->presence_penalty,
		.frequency = p->frequency_penalty, .saved = ~0u,
	};
	return d;
}

static void scene_run(struct scene *s, u32 skew)
{
	const u64 n = s->rows * s->ld, tops = (u64)s->nr * s->top_stride;
	float *logits = dev_inout(s->logits, n, skew);
	struct dev_drawn *drawn = dev_alloc(sizeof(s->drawn));
	struct dev_top *top = dev_alloc((tops + 1) * sizeof(*top));
	const struct cuda_sample c = {
		.logits = logits, .drawn = drawn, .top = top,
		.draws = dev_put(s->draws, s->nr * sizeof(s->draws[0])),
		.saved = s->saved ? dev_poison(s->saved, 0) : NULL,
		.ld = s->ld, .vocab = s->vocab, .nr = s->nr,
		.top_stride = s->top_stride, .adjusts = s->adjusts,
		.logprobs = s->logprobs,
	};

	cuda_sample(dev.ctx, &c);
	free(s->after);
	s->after = dev_result(logits, n);
	dev_get(s->drawn, drawn, s->nr * sizeof(s->drawn[0]));
	free(s->top);
	s->top = malloc((tops + 1) * sizeof(*s->top));
	ck_assert_ptr_nonnull(s->top);
	dev_get(s->top, top, tops * sizeof(*s->top));
}

/* The token that the sampler draws; @row may be adjusted. */
static s32 oracle(const struct scene *s, const struct dev_draw *d,
		  const float *row)
{
	const struct sampling_params p = {
		.temperature = d->temperature, .top_p = d->top_p,
		.min_p = d->min_p, .top_k = d->top_k,
	};
	const struct sampler_key key = { d->seed, d->sample };

	return sampler_sample(ws, row, s->vocab, &p, key, d->position);
}

/* No draw may differ. */
static void scene_compare(const struct scene *s)
{
	u32 i;

	for (i = 0; i < s->nr; i++) {
		const struct dev_draw *d = &s->draws[i];
		const float *row = s->logits + d->row * s->ld;
		const s32 want = oracle(s, d, row), got = s->drawn[i].id;

		if (got != want)
			ck_abort_msg("vocab %u, draw %u: %d, not %d (t %g p %g k %u m %g)",
				     s->vocab, i, got, want,
				     (double)d->temperature, (double)d->top_p,
				     d->top_k, (double)d->min_p);
	}
	assert_same("the row", s->after, s->logits, s->rows * s->ld);
}

static const struct sampling_params shapes[] = {
	{ .temperature = 0, .top_p = 1 },
	{ .temperature = 1, .top_p = 1, .top_k = 1 },
	{ .temperature = 1, .top_p = 1 },
	{ .temperature = 0.3f, .top_p = 1 },
	{ .temperature = 2.5f, .top_p = 1 },
	{ .temperature = 100, .top_p = 1 },
	{ .temperature = 1, .top_p = 1, .top_k = 2 },
	{ .temperature = 1, .top_p = 1, .top_k = 20 },
	{ .temperature = 1, .top_p = 1, .top_k = 1u << 30 },
	{ .temperature = 1, .top_p = 0.9f },
	{ .temperature = 1, .top_p = 1e-6f },
	{ .temperature = 1, .top_p = 0.999f },
	{ .temperature = 1, .top_p = 1, .min_p = 0.05f },
	{ .temperature = 1, .top_p = 1, .min_p = 1 },
	{ .temperature = 0.8f, .top_p = 0.95f, .top_k = 40, .min_p = 0.01f },
	{ .temperature = 1.5f, .top_p = 0.5f, .top_k = 200 },
	{ .temperature = 0.01f, .top_p = 0.7f },
};

/* Every shape, on rows of all the lengths that are cut differently. */
START_TEST(test_shapes)
{
	static const u32 vocabs[] = { 1, 2, 32, 33, 257, 1000, 1025, 5000,
				      20000 };
	const u32 vocab = vocabs[_i], times = vocab > 4000 ? 1 : 6;
	struct scene *s = scene_create(2, vocab, _i % 4);
	u32 i, k;

	for (k = 0; k < times; k++)
		for (i = 0; i < ARRAY_SIZE(shapes); i++)
			scene_draw(s, (i + k) % 2, &shapes[i], 7 + k, k % 3,
				   1000 * k + i);
	scene_run(s, 0);
	scene_compare(s);
	scene_free(s);
}
END_TEST

/* Logits that are all equal, or of few values: the ids alone give the order. */
START_TEST(test_ties)
{
	static const struct sampling_params p[] = {
		{ .temperature = 0, .top_p = 1 },
		{ .temperature = 1, .top_p = 1 },
		{ .temperature = 1, .top_p = 1, .top_k = 100 },
		{ .temperature = 1, .top_p = 1, .top_k = 999 },
		{ .temperature = 1, .top_p = 0.5f },
		{ .temperature = 1, .top_p = 0.25f, .top_k = 800 },
		{ .temperature = 1, .top_p = 0.125f, .top_k = 17 },
	};
	const u32 vocab = 1500;
	struct scene *s = scene_create(3, vocab, 0);
	const float ln2 = 0x1.62e43p-1f;
	u32 i, k;

	for (i = 0; i < vocab; i++) {
		s->logits[i] = -3.5f;
		s->logits[vocab + i] = i % 7 ? -0.0f : 0.0f;
		s->logits[2 * vocab + i] = -ln2 * (float)(i * 31 % 4);
	}
	for (k = 0; k < 9; k++)
		for (i = 0; i < ARRAY_SIZE(p); i++)
			scene_draw(s, k % 3, &p[i], 3, k, 77 + i);
	scene_run(s, 1);
	scene_compare(s);
	scene_free(s);
}
END_TEST

/*
 * Min-p at the weight of a token keeps it, and one last place above it does
 * not: weights are the same to the bit on the device, in the sampler and in
 * weight.h.
 */
START_TEST(test_weights)
{
	const u32 rows = 100, vocab = 2, times = 8;
	struct sampling_params p = { .temperature = 1, .top_p = 1 };
	struct scene *s = scene_create(rows, vocab, 0);
	u32 i, k, drawn = 0;

	for (i = 0; i < rows; i++) {
		float *row = s->logits + i * vocab;
		const float x = -fabsf(rng_float(&rng)), w = weight_exp(x);

		ck_assert_float_eq_tol(w, expf(x), 4e-7f);
		row[0] = 0;
		row[1] = x;
		for (k = 0; k < 2 * times; k++) {
			p.min_p = k < times ? w : nextafterf(w, 2);
			scene_draw(s, i, &p, 21, k % times, i);
		}
	}
	scene_run(s, 0);
	scene_compare(s);
	for (i = 0; i < s->nr; i++) {
		drawn += s->drawn[i].id;
		if (i % (2 * times) >= times)
			ck_assert_int_eq(s->drawn[i].id, 0);
	}
	ck_assert_uint_gt(drawn, rows);
	scene_free(s);
}
END_TEST

/*
 * Thousands of tokens that weigh 2^-17 each: a sum that is put together of two
 * halves loses all of them if a carry is lost.
 */
START_TEST(test_many_small)
{
	static const struct sampling_params p = {
		.temperature = 1, .top_p = 0.95f,
	};
	struct scene *s = scene_create(1, VOCAB_MAX, 0);
	u32 i, best = 0;

	for (i = 0; i < VOCAB_MAX; i++)
		s->logits[i] = i == 7 ? 0 : -11.783f;
	for (i = 0; i < 30; i++)
		scene_draw(s, 0, &p, 1, 0, i);
	scene_run(s, 0);
	scene_compare(s);
	for (i = 0; i < s->nr; i++)
		best += s->drawn[i].id == 7;
	ck_assert_uint_lt(best, s->nr);
	scene_free(s);
}
END_TEST

/* Rows that cannot be drawn from, and rows that hardly can. */
START_TEST(test_edges)
{
	const u32 vocab = 300;
	struct scene *s = scene_create(9, vocab, 0);
	u32 i, k;

	for (i = 0; i < vocab; i++) {
		s->logits[i] = -INFINITY;			/* none */
		s->logits[3 * vocab + i] = -INFINITY;		/* one */
		s->logits[4 * vocab + i] = i % 2 ? -INFINITY : (float)i / 50;
		s->logits[5 * vocab + i] = i == 12 ? 3e38f : -3e38f;
		s->logits[6 * vocab + i] = -1000.0f * (float)i;
		s->logits[7 * vocab + i] = 1e-42f * (float)(i % 9);
	}
	s->logits[vocab + 299] = NAN;
	s->logits[2 * vocab + 7] = INFINITY;
	s->logits[3 * vocab + 211] = -50;
	s->logits[8 * vocab + 3] = INFINITY;
	s->logits[8 * vocab + 2] = NAN;
	for (k = 0; k < 9; k++)
		for (i = 0; i < ARRAY_SIZE(shapes); i++)
			scene_draw(s, k, &shapes[i], 5, 0, i);
	scene_run(s, 0);
	scene_compare(s);
	for (i = 0; i < ARRAY_SIZE(shapes); i++) {
		ck_assert_int_eq(s->drawn[i].id, -ENODATA);
		ck_assert_int_eq(s->drawn[ARRAY_SIZE(shapes) + i].id, -EDOM);
		ck_assert_int_eq(s->drawn[2 * ARRAY_SIZE(shapes) + i].id,
				 -ERANGE);
		ck_assert_int_eq(s->drawn[3 * ARRAY_SIZE(shapes) + i].id, 211);
	}
	scene_free(s);
}
END_TEST

/* ------------------------------------------------------------------ edits */

/* Lists of one draw, in the form of the engine and of the device. */
struct edits {
	struct sampling_params p;
	struct sampling_bias bias[TEXT_MAX];
	u32 masked[TEXT_MAX];
	u32 text[TEXT_MAX], prompt[TEXT_MAX];
	struct dev_sample_count counts[2 * TEXT_MAX];
	u32 nr_counts;
	u32 allowed_ids[VOCAB_MAX];
	u32 *allowed;			/* bits */
	struct id_counts *of_text, *of_prompt;
};

static void count_id(struct edits *e, u32 id, u32 n)
{
	u32 i;

	for (i = 0; i < e->nr_counts && e->counts[i].id != id; i++)
		;
	e->counts[i].id = id;
	e->counts[i].count += n;
	e->nr_counts = max(e->nr_counts, i + 1);
}

static struct edits *edits_create(u32 vocab, const struct sampling_params *p,
				  u32 nr, bool some)
{
	struct edits *e = calloc(1, sizeof(*e));
	u32 i, words = DIV_ROUND_UP(vocab, 32);

	ck_assert_ptr_nonnull(e);
	e->p = *p;
	e->of_text = id_counts_create(TEXT_MAX);
	e->of_prompt = id_counts_create(TEXT_MAX);
	for (i = 0; i < nr; i++) {
		e->bias[i] = (struct sampling_bias){
			i * (vocab / nr), 3 * rng_float(&rng),
		};
		e->masked[i] = rng_next(&rng) % vocab;
		e->text[i] = rng_next(&rng) % min(vocab, 20u);
		e->prompt[i] = rng_next(&rng) % vocab;
		id_counts_add(e->of_text, e->text[i]);
		id_counts_add(e->of_prompt, e->prompt[i]);
		count_id(e, e->text[i], 1);
		count_id(e, e->prompt[i], 0);
	}
	e->p.bias = e->bias;
	e->p.nr_bias = nr;
	e->p.min_tokens = 1;		/* the masks are its stop ids */
	if (!some)
		return e;
	e->allowed = calloc(words, sizeof(u32));
	ck_assert_ptr_nonnull(e->allowed);
	for (i = 0; i < vocab; i++)
		if (i % 3 || i == vocab / 2) {
			e->allowed[i / 32] |= 1u << i % 32;
			e->allowed_ids[e->p.nr_allowed++] = i;
		}
	e->p.allowed = e->allowed_ids;
	return e;
}

static void edits_free(struct edits *e)
{
	id_counts_free(e->of_text);
	id_counts_free(e->of_prompt);
	free(e->allowed);
	free(e);
}

/* @row as the sampler edits it. */
static void edits_oracle(const struct edits *e, u32 nr, float *row, u32 vocab)
{
	const struct sampler_text t = {
		.prompt = e->of_prompt, .text = e->of_text, .ids = e->text,
		.nr = 0, .stops = e->masked, .nr_stops = nr,
	};

	sampler_adjust(ws, &e->p, &t, row, vocab);
}

static void edits_put(struct scene *s, struct dev_draw *d,
		      const struct edits *e, u32 nr)
{
	d->adjusts = 1;
	d->nr_masked = nr;
	d->nr_biases = nr;
	d->nr_counts = e->nr_counts;
	d->masked = dev_put(e->masked, nr * sizeof(u32));
	d->biases = dev_put(e->bias, nr * sizeof(e->bias[0]));
	d->counts = dev_put(e->counts, e->nr_counts * sizeof(e->counts[0]));
	if (e->allowed)
		d->allowed = dev_put(e->allowed, DIV_ROUND_UP(s->vocab, 32) *
						 sizeof(u32));
	d->saved = s->saved;
	s->saved += 2 * nr + e->nr_counts;
	s->adjusts = true;
}

static const struct sampling_params edit_shapes[] = {
	{ .temperature = 1, .top_p = 1, .repetition_penalty = 1.3f },
	{ .temperature = 0.7f, .top_p = 0.9f, .presence_penalty = 0.8f },
	{ .temperature = 1, .top_p = 1, .frequency_penalty = -0.3f },
	{ .temperature = 0, .top_p = 1, .repetition_penalty = 0.5f,
	  .presence_penalty = 1, .frequency_penalty = 0.25f },
	{ .temperature = 1, .top_p = 0.8f, .top_k = 30,
	  .repetition_penalty = 1 },
};

/* Adjusted rows bit by bit, and two samples from each. */
static void try_edits(u32 vocab, bool some, bool logprobs)
{
	const u32 n = ARRAY_SIZE(edit_shapes), nr = vocab < 40 ? 5 : TEXT_MAX;
	struct scene *s = scene_create(n, vocab, 1);
	struct edits *e[ARRAY_SIZE(edit_shapes)];
	const u32 mark = dev.nr;
	float *row;
	u32 i, k;

	s->logprobs = logprobs;
	for (i = 0; i < n; i++) {
		e[i] = edits_create(vocab, &edit_shapes[i], nr, some);
		edits_put(s, scene_draw(s, i, &e[i]->p, 11, 0, i), e[i], nr);
		scene_draw(s, i, &e[i]->p, 11, 1, i)->allowed =
			s->draws[2 * i].allowed;
		s->draws[2 * i].logprobs = logprobs;
		s->draws[2 * i + 1].logprobs = logprobs;
	}
	scene_run(s, 0);
	for (i = 0; i < n; i++) {
		row = s->logits + i * s->ld;
		if (logprobs)		/* all edits are taken back */
			assert_same("a row put back", s->after + i * s->ld,
				    row, vocab);
		edits_oracle(e[i], nr, row, vocab);
		for (k = 0; k < vocab && !logprobs; k++)
			if (!some || e[i]->allowed[k / 32] >> k % 32 & 1)
				assert_same("an edit", s->after + i * s->ld + k,
					    row + k, 1);
		for (k = 0; k < 2; k++)
			ck_assert_int_eq(s->drawn[2 * i + k].id,
					 oracle(s, &s->draws[2 * i + k], row));
		edits_free(e[i]);
	}
	scene_free(s);
	dev_free_to(mark);
}

START_TEST(test_edits)
{
	try_edits(33, _i & 1, _i & 2);
	try_edits(1000, _i & 1, _i & 2);
}
END_TEST

/* --------------------------------------------------------------- logprobs */

/* Compare logprobs of draws that want them; other draws keep zeros. */
static void logprobs_compare(const struct scene *s, u32 i)
{
	const struct dev_draw *d = &s->draws[i];
	const struct dev_drawn *got = &s->drawn[i];
	const float *row = s->logits + d->row * s->ld;
	struct token_logprob top[SAMPLE_TOP_MAX], one;
	int nr, err;
	u32 k, rank;

	if (!d->logprobs) {
		ck_assert_uint_eq(got->rank | got->nr_top, 0);
		return;
	}
	nr = logprob_top(ws, row, s->vocab, d->nr_top, top);
	if (nr < 0) {
		ck_assert_int_eq(got->id, nr);
		ck_assert_uint_eq(got->rank | got->nr_top, 0);
		return;
	}
	ck_assert_uint_eq(got->nr_top, (u32)nr);
	for (k = 0; k < got->nr_top; k++) {
		const struct dev_top *t = &s->top[i * s->top_stride + k];

		ck_assert_uint_eq(t->id, top[k].id);
		assert_close("logprob", (double)t->logprob,
			     (double)top[k].logprob,
			     1 + fabs((double)top[k].logprob));
	}
	err = logprob_of(ws, row, s->vocab, (u32)got->id, &one, &rank);
	ck_assert_int_eq(err, 0);
	ck_assert_uint_eq(got->rank, rank);
	assert_close("logprob of the drawn", (double)got->logprob,
		     (double)one.logprob, 1 + fabs((double)one.logprob));
}

START_TEST(test_logprobs)
{
	static const u32 vocabs[] = { 1, 32, 700, 5000, 9000 };
	static const u32 tops[] = { 0, 1, 5, 20, SAMPLE_TOP_MAX };
	const u32 vocab = vocabs[_i];
	struct scene *s = scene_create(6, vocab, 2);
	u32 i;

	s->logprobs = true;
	s->top_stride = SAMPLE_TOP_MAX;
	for (i = 0; i < vocab; i++) {
		s->logits[s->ld + i] = 2;			/* all alike */
		s->logits[2 * s->ld + i] = i ? -200 : 0;	/* far off */
		s->logits[3 * s->ld + i] = i % 2 ? -INFINITY : (float)(i % 5);
		s->logits[4 * s->ld + i] = i ? -1e38f : 3e38f;
	}
	s->logits[5 * s->ld + vocab / 2] = NAN;
	for (i = 0; i < 6 * ARRAY_SIZE(tops); i++) {
		struct dev_draw *d = scene_draw(s, i % 6, &shapes[2 + i % 9],
						9, 0, i);

		d->logprobs = i % 4 != 3;
		d->nr_top = tops[i / 6];
	}
	scene_run(s, 0);
	scene_compare(s);
	for (i = 0; i < s->nr; i++)
		logprobs_compare(s, i);
	scene_free(s);
}
END_TEST

/* ------------------------------------------------------------ frequencies */

/* The definition in double: tokens are taken from the best on. */
static void exact(const struct scene *s, const struct sampling_params *p,
		  double *prob)
{
	bool taken[64] = { false };
	double w[64], sum = 0, run = 0, best = -INFINITY;
	u32 i, k, at, left = p->top_k ? min(p->top_k, s->vocab) : s->vocab;

	for (i = 0; i < s->vocab; i++)
		best = fmax(best, (double)s->logits[i]);
	for (i = 0; i < s->vocab; i++) {
		w[i] = exp(((double)s->logits[i] - best) /
			   (double)p->temperature);
		prob[i] = 0;
	}
	for (k = 0; k < left; k++) {
		for (i = 0, at = s->vocab; i < s->vocab; i++)
			if (!taken[i] && (at == s->vocab || w[i] > w[at]))
				at = i;
		if (w[at] < (double)p->min_p)
			break;
		taken[at] = true;
		prob[at] = w[at];
		sum += w[at];
	}
	for (i = 0; i < s->vocab; i++)
		taken[i] = !prob[i];
	for (; run < (double)p->top_p * sum; taken[at] = true) {
		for (i = 0, at = s->vocab; i < s->vocab; i++)
			if (!taken[i] && (at == s->vocab || w[i] > w[at]))
				at = i;
		if (at == s->vocab)
			break;
		run += w[at];
	}
	for (i = 0; i < s->vocab; i++)
		prob[i] = taken[i] ? prob[i] / run : 0;
}

START_TEST(test_frequencies)
{
	static const struct sampling_params p[] = {
		{ .temperature = 1, .top_p = 1 },
		{ .temperature = 1.7f, .top_p = 0.8f },
		{ .temperature = 1.3f, .top_p = 1, .top_k = 9 },
		{ .temperature = 2, .top_p = 0.9f, .top_k = 30, .min_p = 0.02f },
	};
	struct scene *s = scene_create(1, 40, 0);
	const u32 draws = level_is_check() ? DRAWS_MAX / 4 : DRAWS_MAX;
	u32 count[64] = { 0 }, i;
	double prob[64], z;

	for (i = 0; i < draws; i++)
		scene_draw(s, 0, &p[_i], 100 + i / 1000, i % 3, i);
	scene_run(s, 0);
	exact(s, &p[_i], prob);
	for (i = 0; i < draws; i++) {
		ck_assert_int_ge(s->drawn[i].id, 0);
		count[s->drawn[i].id]++;
	}
	z = chi_square(count, prob, s->vocab, draws);
	ck_assert_msg(z < CHI_LIMIT, "chi-square is %.1f deviations off", z);
	scene_free(s);
}
END_TEST

static Suite *cuda_sample_suite(void)
{
	Suite *s = suite_create("cuda-sample");
	TCase *tc = tcase_create("draws");

	tcase_set_tags(tc, "unit sampler cuda");
	tcase_set_timeout(tc, 120);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, test_shapes, 0, 9);
	tcase_add_test(tc, test_ties);
	tcase_add_test(tc, test_weights);
	tcase_add_test(tc, test_many_small);
	tcase_add_test(tc, test_edges);
	tcase_add_loop_test(tc, test_edits, 0, 4);
	tcase_add_loop_test(tc, test_logprobs, 0, 5);
	tcase_add_loop_test(tc, test_frequencies, 0, 4);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(cuda_sample_suite());
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
