// SPDX-License-Identifier: Apache-2.0
/*
 * check_search.c - beam search over numbers, against a plain one
 *
 * A made-up model hashes the ids of a beam to the logprobs of the next token,
 * in quarters: sums are exact, and equal ones are common.  Tokens are forbidden
 * at random, down to fewer than there are beams.
 */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "runtime/engine/search.h"
#include "tests/beam_reference.h"

#define MAX_VOCAB	24u
#define MAX_WIDTH	9u
#define MAX_NEW		14u

/* A made-up model: its tokens, how many are forbidden, and its seed. */
struct odd_model {
	u32	vocab;
	u64	seed;
	u32	banned;		/* of 1000 */
	u32	levels;
};

static u64 mix(u64 x)
{
	x ^= x >> 30;
	x *= 0xbf58476d1ce4e5b9ull;
	x ^= x >> 27;
	x *= 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

/* At least one token is allowed. */
static void odd_row(void *arg, const u32 *ids, u32 nr, float *lp)
{
	const struct odd_model *m = arg;
	u64 h = mix(m->seed), x;
	u32 i;

	for (i = 0; i < nr; i++)
		h = mix(h ^ (ids[i] + 1));
	for (i = 0; i < m->vocab; i++) {
		x = mix(h + i);
		lp[i] = -(float)(x % m->levels) / 4;
		if ((x >> 32) % 1000 < m->banned && i != h % m->vocab)
			lp[i] = -INFINITY;
	}
}

/* The likeliest tokens of a row, as logprob_top() gives them. */
static u32 top_of(const float *lp, u32 vocab, u32 k, struct token_logprob *out)
{
	u32 i, at, nr = 0;

	for (i = 0; i < vocab; i++) {
		if (!(lp[i] > -INFINITY))
			continue;
		for (at = nr; at && lp[i] > out[at - 1].logprob; at--)
			;
		if (at == k)
			continue;
		nr += nr < k;
		memmove(out + at + 1, out + at, (nr - 1 - at) * sizeof(*out));
		out[at] = (struct token_logprob){ i, lp[i] };
	}
	return nr;
}

static u32 rnd(u64 *seed, u32 below)
{
	*seed = mix(*seed + 0x9e3779b97f4a7c15ull);
	return (u32)((*seed >> 20) % below);
}

static void compare(const struct search *s, struct ref_search *ref,
		    const u32 *prompt, u32 nr_prompt)
{
	static struct ref_text want[MAX_WIDTH];
	struct search_token got[MAX_NEW];
	const u32 nr = ref_run(ref, prompt, nr_prompt, want);
	u32 k, i;

	ck_assert_uint_eq(search_found(s), nr);
	for (k = 0; k < nr; k++) {
		const struct search_text t = search_text(s, k, got);
		double sum = 0;

		ck_assert_uint_eq(t.stopped, want[k].stopped);
		ck_assert_uint_eq(t.nr + t.stopped, want[k].nr);
		for (i = 0; i < t.nr; i++) {
			ck_assert_uint_eq(got[i].id, want[k].ids[i]);
			ck_assert_uint_ge(got[i].rank, 1);
			sum += (double)got[i].logprob;
		}
		if (t.stopped)
			ck_assert_uint_eq(t.stop_id, want[k].ids[i]);
		else if (want[k].sum > -INFINITY)
			ck_assert_double_eq_tol(sum, t.sum, 1e-9);
		if (!(want[k].sum > -INFINITY)) {
			ck_assert(!(t.sum > -INFINITY));
			continue;
		}
		ck_assert_double_eq_tol(t.sum, want[k].sum, 1e-9);
		ck_assert_double_eq_tol(t.score, want[k].score, 1e-9);
	}
}

/* Run a search like the engine: each beam has all its ids. */
static u32 run(struct search *s, struct ref_search *ref, const u32 *prompt,
	       u32 nr_prompt)
{
	static u32 ids[MAX_WIDTH][64], was[MAX_WIDTH][64];
	u32 len = nr_prompt, steps = 0, b;
	float lp[MAX_VOCAB];

	memcpy(ids[0], prompt, nr_prompt * sizeof(u32));
	for (;;) {
		for (b = 0; b < search_beams(s); b++) {
			odd_row(ref->arg, ids[b], len, lp);
			search_row_set(s, b, top_of(lp, ref->vocab,
						    search_row_size(s),
						    search_row(s, b)));
		}
		steps++;
		if (search_step(s))
			return steps;
		memcpy(was, ids, sizeof(was));
		for (b = 0; b < ref->width; b++) {
			const struct search_next *n = &search_next(s)[b];

			memcpy(ids[b], was[n->parent], len * sizeof(u32));
			ids[b][len] = n->id;
		}
		len++;
	}
}

/* Events, over all cases. */
static struct {
	u32	early, ties, filled, few, stopped;
} seen;

static void one_case(u64 seed)
{
	static const float penalties[] = { 0, 1, 1, 0.5f, 2, -1, -0.3f };
	const u32 prompt[3] = { 1, 2, (u32)seed };
	struct odd_model m = { .seed = seed };
	struct ref_search ref = { .row = odd_row, .arg = &m };
	struct search_params p;
	struct search *s;
	u32 stops[3], steps;

	ref.vocab = m.vocab = 2 + rnd(&seed, MAX_VOCAB - 2);
	m.banned = rnd(&seed, 4) ? 0 : rnd(&seed, 1000);
	m.levels = 2 + rnd(&seed, 60);
	ref.width = 1 + rnd(&seed, MAX_WIDTH);
	ref.max_new = 1 + rnd(&seed, MAX_NEW);
	ref.nr_stops = rnd(&seed, 4);
	for (steps = 0; steps < ref.nr_stops; steps++)
		stops[steps] = rnd(&seed, m.vocab);
	ref.stops = stops;
	p.penalty = penalties[rnd(&seed, 7)];
	ref.penalty = (double)p.penalty;
	ref.early = rnd(&seed, 3);
	p.width = ref.width;
	p.max_new = ref.max_new;
	p.stops = stops;
	p.nr_stops = ref.nr_stops;
	p.early = ref.early;
	ck_assert_int_eq(search_create(&p, &s), 0);
	steps = run(s, &ref, prompt, 3);
	compare(s, &ref, prompt, 3);
	ck_assert_uint_eq(steps, ref.nr_steps);
	seen.early += steps < ref.max_new;
	seen.filled += m.vocab < ref.width;
	seen.few += search_found(s) < ref.width;
	seen.stopped += ref.nr_stops > 0;
	search_free(s);
}

START_TEST(test_random)
{
	u64 i;

	memset(&seen, 0, sizeof(seen));
	for (i = 0; i < 4000; i++)
		one_case((u64)_i * 100000 + i);
	ck_assert_uint_gt(seen.early, 100);
	ck_assert_uint_gt(seen.filled, 100);
	ck_assert_uint_gt(seen.few, 0);
}
END_TEST

/* Equal sums: the lower beam goes first, then the lower token. */
START_TEST(test_ties)
{
	const struct search_params p = { .width = 2, .max_new = 3 };
	static const struct token_logprob row[] = {
		{ 5, -1 }, { 3, -1 }, { 8, -2 },
	};
	const struct search_next *next;
	struct search *s;
	u32 b;

	ck_assert_int_eq(search_create(&p, &s), 0);
	ck_assert_uint_eq(search_row_size(s), 2);
	memcpy(search_row(s, 0), row, 2 * sizeof(row[0]));
	search_row_set(s, 0, 2);
	ck_assert(!search_step(s));
	next = search_next(s);
	ck_assert_uint_eq(next[0].id, 3);
	ck_assert_uint_eq(next[1].id, 5);
	for (b = 0; b < 2; b++) {
		memcpy(search_row(s, b), row + b, 2 * sizeof(row[0]));
		search_row_set(s, b, 2);
	}
	/* Beam 0 has 5 and 3; beam 1 has 3, and 8, which is worse. */
	ck_assert(!search_step(s));
	ck_assert_uint_eq(next[0].parent, 0);
	ck_assert_uint_eq(next[0].id, 3);
	ck_assert_uint_eq(next[1].parent, 0);
	ck_assert_uint_eq(next[1].id, 5);
	search_free(s);
}
END_TEST

START_TEST(test_params)
{
	static const struct search_params bad[] = {
		{ .width = 0, .max_new = 1 },
		{ .width = 1, .max_new = 0 },
		{ .width = 1, .max_new = 1, .early = SEARCH_NR_EARLY },
		{ .width = 1, .max_new = 1, .penalty = NAN },
		{ .width = 1, .max_new = 1, .penalty = 10.5f },
		{ .width = 1, .max_new = 1, .penalty = -10.5f },
	};
	struct search *s;
	u32 i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_int_eq(search_create(&bad[i], &s), -EINVAL);
	search_free(NULL);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("search");
	TCase *tc = tcase_create("search");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, test_random, 0, 2);
	tcase_add_test(tc, test_ties);
	tcase_add_test(tc, test_params);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
