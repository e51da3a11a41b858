// SPDX-License-Identifier: Apache-2.0
/*
 * check_logprob.c - logprobs of a row against the definition
 *
 * The oracle is the definition in double: all exponentials, their sum, all
 * tokens sorted.  Rows have ties, forbidden tokens, and distributions from flat
 * to one-sided.
 */
#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "runtime/sampler/logprob.h"

#define VOCAB	700u

static struct sampler_ws *ws;
static float row[VOCAB];
static u32 order[VOCAB];
static double want[VOCAB];

static void setup(void)
{
	ck_assert_int_eq(sampler_ws_create(VOCAB, &ws), 0);
}

static void teardown(void)
{
	sampler_ws_free(ws);
}

static double noise(u32 i, u32 which)
{
	return sampler_random((struct sampler_key){ 77, which }, i);
}

static int order_cmp(const void *a, const void *b)
{
	const u32 x = *(const u32 *)a, y = *(const u32 *)b;

	if (row[x] != row[y])
		return row[x] > row[y] ? -1 : 1;
	return x < y ? -1 : x > y;
}

/* Row @which of @vocab tokens; returns the number of allowed tokens. */
static u32 row_make(u32 vocab, u32 which)
{
	const double width = 1 << which % 6;
	double sum = 0;
	u32 i, nr = 0;

	for (i = 0; i < vocab; i++) {
		row[i] = (float)((noise(i, which) - 0.5) * width);
		if (which % 3 == 1)
			row[i] = roundf(row[i] * 4) / 4;
		if (which % 4 == 3 && i && noise(i, which + 1000) < 0.7)
			row[i] = -INFINITY;
		order[i] = i;
		sum += exp((double)row[i]);
		nr += row[i] != -INFINITY;
	}
	for (i = 0; i < vocab; i++)
		want[i] = (double)row[i] - log(sum);
	qsort(order, vocab, sizeof(*order), order_cmp);
	return nr;
}

static void check_one(u32 id, const struct token_logprob *got)
{
	ck_assert_uint_eq(got->id, id);
	if (row[id] == -INFINITY)
		ck_assert(got->logprob == -INFINITY);
	else
		ck_assert_double_lt(fabs(got->logprob - want[id]), 1e-5);
}

START_TEST(test_top)
{
	static const u32 ks[] = { 0, 1, 2, 5, 20, 64, VOCAB - 1, VOCAB, 9999 };
	static const u32 vocabs[] = { 1, 2, 13, 100, VOCAB };
	static struct token_logprob out[VOCAB];
	u32 which, i, k, vocab, nr;
	int n;

	for (which = 0; which < 300; which++) {
		vocab = vocabs[which % ARRAY_SIZE(vocabs)];
		k = ks[which / 5 % ARRAY_SIZE(ks)];
		nr = row_make(vocab, which);
		n = logprob_top(ws, row, vocab, k, out);
		ck_assert_int_eq(n, (int)min(k, nr));
		for (i = 0; i < (u32)n; i++)
			check_one(order[i], &out[i]);
	}
}
END_TEST

START_TEST(test_of)
{
	struct token_logprob got;
	u32 which, i, rank;

	for (which = 0; which < 12; which++) {
		row_make(100, which);
		for (i = 0; i < 100; i++) {
			ck_assert_int_eq(logprob_of(ws, row, 100, order[i],
						    &got, &rank), 0);
			check_one(order[i], &got);
			ck_assert_uint_eq(rank, i + 1);
		}
	}
	ck_assert_int_eq(logprob_of(ws, row, 100, 3, &got, NULL), 0);
}
END_TEST

/* Far from 0, where the exponentials of the logits themselves overflow. */
START_TEST(test_large_logits)
{
	const float logits[] = { 9e4f, 9e4f, 9e4f - 1, -9e4f };
	struct token_logprob out[4];
	u32 i;

	ck_assert_int_eq(logprob_top(ws, logits, 4, 4, out), 4);
	for (i = 0; i < 4; i++)
		ck_assert_uint_eq(out[i].id, i);
	ck_assert_double_lt(fabs(out[0].logprob + log(2 + exp(-1))), 1e-5);
	ck_assert_double_lt(fabs(out[2].logprob + log(2 + exp(-1)) + 1), 1e-5);
	ck_assert(out[3].logprob <= -1.8e5f);
}
END_TEST

START_TEST(test_unusable_rows)
{
	static const struct {
		float logits[2];
		int err;
	} bad[] = {
		{ { 0, NAN }, -EDOM },
		{ { 0, INFINITY }, -ERANGE },
		{ { -INFINITY, -INFINITY }, -ENODATA },
	};
	struct token_logprob out[2];
	double sum;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		ck_assert_int_eq(logprob_top(ws, bad[i].logits, 2, 2, out),
				 bad[i].err);
		ck_assert_int_eq(logprob_of(ws, bad[i].logits, 2, 0, out, NULL),
				 bad[i].err);
	}
	ck_assert_int_eq(logprob_of(ws, row, 2, 2, out, NULL), -EINVAL);
	ck_assert_int_eq(logprob_of(ws, row, VOCAB + 1, 2, out, NULL), -EINVAL);
	ck_assert_int_eq(logprob_top(ws, row, VOCAB + 1, 2, out), -EINVAL);
	ck_assert_int_eq(logprob_sum(row, 0, &sum), -EINVAL);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("logprob");
	TCase *tc = tcase_create("rows");
	SRunner *sr;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_top);
	tcase_add_test(tc, test_of);
	tcase_add_test(tc, test_large_logits);
	tcase_add_test(tc, test_unusable_rows);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
