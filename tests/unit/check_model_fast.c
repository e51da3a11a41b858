// SPDX-License-Identifier: Apache-2.0
/*
 * check_model_fast.c - the allowed distance of fast mode from exact mode
 *
 * The law: logits of fast mode are within MODEL_FAST_TOL of those of exact
 * mode, and a different greedy token is legal only if the two best of exact
 * mode are closer to each other than that.  Every family of tests/data/families
 * is tested, with weights in bf16, in place and packed, in both types of
 * activations.  The two modes round bf16 activations at different values.  So
 * their tolerance is MODEL_FAST_TOL_BF16, and fast mode may be hardly farther
 * from the results of f32 than exact mode.  Both modes get the tokens of the
 * golden continuation, so that a different token does not end the comparison.
 *
 * A model with experts follows the law but for a few positions: where a token is
 * nearly indifferent between two experts, the modes may choose differently.
 */
#include "tests/unit/golden_fixture.h"

#define FAR	1.2	/* times as far from f32 as exact mode, at most */

static bool packs;	/* does fast mode pack weights here? */

static void setup(void)
{
	packs = kern_get("cpu-fast")->pack;
	if (!packs)
		printf("fast mode packs no weights here: none are tested\n");
	dir_create();
}

static void teardown(void)
{
	dir_destroy();
}

/* Write the made-up weights of the case to a file; bf16 holds them exactly. */
static void weights_write(void)
{
	struct model_config cfg;
	struct model_error err;
	struct ckpt *c;

	config_write(NULL, NULL);
	ck_assert_int_eq(model_config_read(fixture_dir, &cfg, &err), 0);
	ck_assert_int_eq(dummy_open(fixture_dir, &cfg, NULL, false, &c,
				    &err), 0);
	shards_write(c, 1, TINY_BF16);
	ckpt_close(c);
}

static float *run_mode(enum model_mode mode, enum model_dtype dtype, u32 chunk,
		       bool pack)
{
	const struct model_opts opts = {
		.mode = mode, .dtype = dtype, .nr_threads = 1,
		.weights = pack ? MODEL_WEIGHTS_PACKED : MODEL_WEIGHTS_MAPPED,
	};
	struct model_error err;
	struct model *model;
	float *logits;

	ck_assert_msg(!model_load(fixture_dir, &opts, &model, &err), "%s",
		      err.text);
	ck_assert_str_eq(model_info(model)->variant,
			 kern_get(mode == MODEL_FAST ? "cpu-fast" :
						       "cpu")->variant);
	ck_assert(!model_info(model)->packed_bytes == !pack);
	logits = run_chunks(model, chunk);
	model_free(model);
	return logits;
}

/* The best token of a row, its lead over the second, and the largest magnitude. */
struct top {
	u32	best;
	float	gap;
	double	size;
};

static struct top top_of(const float *row)
{
	struct top t = { 0, INFINITY, 0 };
	u32 i;

	for (i = 0; i < VOCAB; i++) {
		t.size = fmax(t.size, fabs(row[i]));
		if (row[i] > row[t.best])
			t.best = i;
	}
	for (i = 0; i < VOCAB; i++)
		if (i != t.best)
			t.gap = fminf(t.gap, row[t.best] - row[i]);
	return t;
}

/* The largest difference of logits, as a share of the largest of their row. */
static double distance(const float *a, const float *b)
{
	double most = 0, size;
	u32 i, j;

	for (i = 0; i < NR_ALL; i++, a += VOCAB, b += VOCAB) {
		size = top_of(b).size;
		for (j = 0; j < VOCAB; j++)
			most = fmax(most, fabs(a[j] - b[j]) / size);
	}
	return most;
}

/* Positions whose logits may jump in a model with experts. */
#define MAY_JUMP	(NR_ALL / 8)

/* The largest difference of the logits of one row. */
static double row_distance(const float *a, const float *b, double size)
{
	double most = 0, off;
	u32 j;

	for (j = 0; j < VOCAB; j++) {
		off = fabs(a[j] - b[j]) / size;
		most = off <= most ? most : off;
	}
	return most;
}

/* Return: number of tokens that differ. */
static u32 check_law(const float *fast, const float *exact, double tol,
		     const char *what)
{
	u32 i, differ = 0, jumps = 0;
	struct top want, got;
	double off;

	for (i = 0; i < NR_ALL; i++, fast += VOCAB, exact += VOCAB) {
		want = top_of(exact);
		off = row_distance(fast, exact, want.size);
		if (!(off < tol)) {
			if (case_is_smooth(case_dir) || ++jumps > MAY_JUMP)
				ck_abort_msg("%s, %s: a logit of position %u is off by %g",
					     case_dir, what, i, off);
			continue;
		}
		got = top_of(fast);
		if (got.best == want.best)
			continue;
		differ++;
		if (!(want.gap / want.size < tol))
			ck_abort_msg("%s, %s: token %u is %u, not %u, by %g",
				     case_dir, what, i + 1, got.best,
				     want.best, want.gap / want.size);
	}
	return differ;
}

/* Compare fast mode with @exact; it may be no farther from @truth than @exact times FAR. */
static void fast_compare(enum model_dtype dtype, double tol, bool pack,
			 const float *exact, const float *truth,
			 const char *what)
{
	float *fast = run_mode(MODEL_FAST, dtype, 37, pack);
	u32 differ = check_law(fast, exact, tol, what);
	double is, may;

	if (truth && case_is_smooth(case_dir)) {
		is = distance(fast, truth);
		may = distance(exact, truth) * FAR;
		printf("%s %s%s: off f32 by %.4f, exact mode's with %.4f\n",
		       case_dir, what, pack ? " packed" : "", is, may / FAR);
		ck_assert_msg(is < may, "%s, %s: off f32 by %g, more than %g",
			      case_dir, what, is, may);
	}
	printf("%s %s%s: %u of %u tokens differ\n", case_dir, what,
	       pack ? " packed" : "", differ, NR_ALL);
	free(fast);
	/* One token at a time, as in decode. */
	fast = run_mode(MODEL_FAST, dtype, 1, pack);
	check_law(fast, exact, tol, what);
	free(fast);
}

/* Compare both modes with activations of @dtype; returns the logits of exact mode. */
static float *modes_compare(enum model_dtype dtype, double tol,
			    const float *truth, const char *what)
{
	float *exact = run_mode(MODEL_EXACT, dtype, 37, false);

	fast_compare(dtype, tol, false, exact, truth, what);
	if (packs)
		fast_compare(dtype, tol, true, exact, truth, what);
	return exact;
}

START_TEST(test_law)
{
	float *f32, *bf16, *fast;

	golden_read(cases[_i]);
	weights_write();
	f32 = modes_compare(MODEL_F32, MODEL_FAST_TOL, NULL, "f32");
	assert_near("exact", f32, golden.f32, 1e-4);
	fast = run_mode(MODEL_FAST, MODEL_F32, 37, packs);
	assert_near("fast", fast, golden.f32, MODEL_FAST_TOL);
	bf16 = modes_compare(MODEL_BF16, MODEL_FAST_TOL_BF16, f32, "bf16");
	free(f32);
	free(bf16);
	free(fast);
}
END_TEST

/* Exact mode refuses the fast kernel by its name. */
START_TEST(test_refuses_exact)
{
	const struct kern_ops *ops = kern_get("cpu-fast");
	struct model_opts opts = { .mode = MODEL_EXACT, .kernel = "cpu-fast" };
	struct model_error err;
	struct model *model;

	golden_read(cases[0]);
	weights_write();
	if (ops->mode == KERN_MODE_EXACT) {
		printf("no variant of fast mode runs here: nothing to refuse\n");
		return;
	}
	ck_assert_int_eq(model_load(fixture_dir, &opts, &model, &err),
			 -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "kernel \"cpu-fast\" is not "
				     "exact: choose fast mode, or cpu"));
}
END_TEST

static Suite *fast_suite(void)
{
	Suite *s = suite_create("model_fast");
	TCase *tc = tcase_create("law");

	tcase_set_tags(tc, "unit model");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, test_law, 0, ARRAY_SIZE(cases));
	tcase_add_test(tc, test_refuses_exact);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(fast_suite());
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
