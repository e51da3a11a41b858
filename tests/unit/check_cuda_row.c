// SPDX-License-Identifier: Apache-2.0
/*
 * check_cuda_row.c - the CUDA ops on rows and elements against the reference
 *
 * Odd sizes and sizes around the width of a warp and of a block, addresses that
 * allow access of 16 bytes and others that do not, outputs that are inputs.
 * Bits must not change with the alignment, with other rows, or when ops are
 * joined into one; and rounding to bf16 by the op itself must equal rounding
 * its result.
 */
#include "cuda_fixture.h"

static const struct kern_ops *ref;
static struct rng rng;

static void setup(void)
{
	ref = kern_get("ref");
	rng.s = 21;
	dev_open();
}

static void teardown(void)
{
	dev_close();
}

static const u64 sizes[] = { 1, 3, 4, 5, 127, 1023, 1024, 4103, 40000 };

/* Ops on elements. */
enum element_op {
	OP_ADD,
	OP_SCALE,
	OP_SOFTCAP,
	OP_SETTLE,
	NR_ELEMENT_OPS,
};

static void element_op(const struct kern_ops *ops, struct kern_ctx *ctx,
		       enum element_op op, float *x, const float *y, u64 n)
{
	switch (op) {
	case OP_ADD:
		ops->add(ctx, x, y, n);
		break;
	case OP_SCALE:
		ops->scale(ctx, x, 0.7f, n);
		break;
	case OP_SOFTCAP:
		ops->softcap(ctx, x, 2.5f, n);
		break;
	default:
		ops->settle(ctx, x, n);
	}
}

static void try_elements(enum element_op op, u64 n, u32 skew, bool settle)
{
	float *x = rng_floats(&rng, n), *y = rng_floats(&rng, n);
	const u32 mark = dev.nr;
	float *dx, *dy, *got;
	u64 i;

	for (i = 0; i < n; i++)
		x[i] *= i % 3 ? 10 : 1e-3f;
	dx = dev_inout(x, n, skew);
	dy = dev_floats(y, n, skew);
	dev.ops->settles(dev.ctx, settle);
	element_op(dev.ops, dev.ctx, op, dx, dy, n);
	dev.ops->settles(dev.ctx, false);
	got = dev_result(dx, n);
	element_op(ref, NULL, op, x, y, n);
	if (settle && op != OP_SOFTCAP)		/* its results stay f32 */
		round_all(x, n);
	if (op != OP_SOFTCAP)
		assert_same("elements", got, x, n);
	for (i = 0; i < n; i++)
		assert_close("softcap", (double)got[i], (double)x[i],
			     fabs((double)x[i]) + 1e-30);
	free(x);
	free(y);
	free(got);
	dev_free_to(mark);
}

START_TEST(test_elements)
{
	u32 i, op;

	for (op = 0; op < NR_ELEMENT_OPS; op++)
		for (i = 0; i < ARRAY_SIZE(sizes); i++) {
			try_elements(op, sizes[i], 0, false);
			try_elements(op, sizes[i], 0, true);
			try_elements(op, sizes[i], 1 + i % 3, i % 2);
		}
}
END_TEST

/* NaN stays NaN, ties go to even, a value that is too large becomes infinite. */
START_TEST(test_settle_edges)
{
	static const u32 in[] = {
		0x7fc00001, 0x7f800000, 0xff800000, 0x7f7fffff, 0x3f808000,
		0x3f818000, 0x3f808001, 0x00000001, 0x80000000, 0xffc12345,
	};
	u32 out[ARRAY_SIZE(in)], i, n = ARRAY_SIZE(in);
	float *x = dev_put(in, sizeof(in));

	dev.ops->settle(dev.ctx, x, n);
	dev_get(out, x, sizeof(out));
	for (i = 0; i < n; i++) {
		float f;

		memcpy(&f, &in[i], sizeof(f));
		if (isnan(f))
			ck_assert_uint_gt(out[i] & 0x7fffffff, 0x7f800000);
		else
			ck_assert_uint_eq(out[i], (u32)bf16_of(f) << 16);
	}
}
END_TEST

/* A table of @type with the values of @f. */
static void *table_of(const float *f, u64 n, enum kern_dtype type)
{
	u16 *h = malloc(n * sizeof(*f));
	_Float16 half;
	u64 i;

	ck_assert_ptr_nonnull(h);
	if (type == KERN_F32)
		return memcpy(h, f, n * sizeof(*f));
	for (i = 0; i < n; i++) {
		half = (_Float16)f[i];
		if (type == KERN_F16)
			memcpy(&h[i], &half, sizeof(half));
		else
			h[i] = bf16_of(f[i]);
	}
	return h;
}

static void try_embed(enum kern_dtype type, u32 d, u32 skew, bool settle)
{
	static const u32 ids[] = { 6, 0, 31, 31, 1, 46, 32, 12 };
	const u32 m = ARRAY_SIZE(ids), rows = 47, mark = dev.nr;
	const u64 bytes = (u64)rows * d * kern_dtype_size(type);
	float *f = rng_floats(&rng, (u64)rows * d), *want = poisoned(m * d);
	void *t = table_of(f, (u64)rows * d, type);
	struct kern_weight w = { .data = t, .dtype = type, .rows = rows, .cols = d };
	float *y = dev_poison(m * d, skew), *got;

	ref->embed(NULL, &w, ids, m, want);
	if (settle)
		round_all(want, m * d);
	w.data = dev_put_at(t, bytes, skew * 4);
	dev.ops->settles(dev.ctx, settle);
	dev.ops->embed(dev.ctx, &w, dev_put(ids, sizeof(ids)), m, y);
	dev.ops->settles(dev.ctx, false);
	got = dev_result(y, m * d);
	assert_same("embed", got, want, m * d);
	free(f);
	free(want);
	free(t);
	free(got);
	dev_free_to(mark);
}

START_TEST(test_embed)
{
	static const u32 d[] = { 1, 4, 8, 12, 37, 256, 2056, 2060 };
	u32 i, t;

	for (t = KERN_F32; t <= KERN_F16; t++)
		for (i = 0; i < ARRAY_SIZE(d); i++) {
			try_embed(t, d[i], 0, false);
			try_embed(t, d[i], 0, true);
			try_embed(t, d[i], 1, i % 2);
		}
}
END_TEST

START_TEST(test_gather_and_split)
{
	static const u32 rows[] = { 8, 0, 3, 3, 1 };
	const u32 m = 5, heads = 3, hds[] = { 1, 16, 30, 80, 128 };
	u32 i, mark = dev.nr;

	for (i = 0; i < ARRAY_SIZE(hds); i++, dev_free_to(mark)) {
		const u32 hd = hds[i], d = 3 * hd * heads, n = m * heads * hd;
		float *x = rng_floats(&rng, 9 * d), *want = poisoned(m * d);
		float *y = dev_poison(m * d, i % 2), *got, *part[3], *dp[3];
		u32 k;

		ref->gather(NULL, x, rows, m, d, want);
		dev.ops->gather(dev.ctx, dev_floats(x, 9 * d, i % 2),
				dev_put(rows, sizeof(rows)), m, d, y);
		got = dev_result(y, m * d);
		assert_same("gather", got, want, m * d);
		free(got);
		for (k = 0; k < 3; k++) {
			part[k] = poisoned(n);
			dp[k] = dev_poison(n, i % 2);
		}
		ref->split_heads(NULL, want, m, heads, hd, part[0], part[1],
				 part[2]);
		dev.ops->split_heads(dev.ctx, y, m, heads, hd, dp[0], dp[1],
				     dp[2]);
		for (k = 0; k < 3; k++) {
			got = dev_result(dp[k], n);
			assert_same("split_heads", got, part[k], n);
			free(got);
			free(part[k]);
		}
		free(x);
		free(want);
	}
}
END_TEST

/* ------------------------------------------------------------------ norms */

struct norm_case {
	u32 m;
	u32 d;
	bool layer;
	float *x, *w, *bias;
};

static void norm_run(const struct kern_ops *ops, struct kern_ctx *ctx,
		     const struct norm_case *t, const float *x, const float *w,
		     const float *bias, u32 m, float *y)
{
	if (t->layer)
		ops->layernorm(ctx, x, w, bias, m, t->d, 1e-5f, y);
	else
		ops->rmsnorm(ctx, x, w, m, t->d, 1e-5f, y);
}

/* Run on the device, for rows from @first on; @in_place: @y is @x. */
static float *norm_dev(const struct norm_case *t, u32 first, u32 m, u32 skew,
		       bool in_place, bool settle)
{
	const u64 n = (u64)m * t->d;
	float *x = dev_inout(t->x + (u64)first * t->d, n, skew);
	float *y = in_place ? x : dev_poison(n, skew), *got;
	float *bias = t->bias ? dev_floats(t->bias, t->d, skew) : NULL;

	dev.ops->settles(dev.ctx, settle);
	norm_run(dev.ops, dev.ctx, t, x, dev_floats(t->w, t->d, skew), bias, m,
		 y);
	dev.ops->settles(dev.ctx, false);
	got = dev_result(y, n);
	return got;
}

/* The scale of kernels.h. */
static double norm_scale(const struct norm_case *t, u32 i, u32 j, double want)
{
	const float *x = t->x + (u64)i * t->d;
	double mean = 0, var = 1e-5, top = 0;
	u32 k;

	if (!t->layer)
		return fabs(want) + 1e-30;
	for (k = 0; k < t->d; k++) {
		mean += (double)x[k] / t->d;
		top = fmax(top, fabs((double)x[k]));
	}
	for (k = 0; k < t->d; k++)
		var += pow((double)x[k] - mean, 2) / t->d;
	return (fabs((double)x[j]) + top) / sqrt(var) * fabs((double)t->w[j]) +
	       (t->bias ? fabs((double)t->bias[j]) : 0) + 1e-30;
}

static void norm_compare(const struct norm_case *t, const float *got)
{
	float *want = poisoned((u64)t->m * t->d);
	u32 i, j;

	norm_run(ref, NULL, t, t->x, t->w, t->bias, t->m, want);
	for (i = 0; i < t->m; i++)
		for (j = 0; j < t->d; j += 1 + t->d / 64) {
			const u64 at = (u64)i * t->d + j;

			assert_close("norm", (double)got[at], (double)want[at],
				     norm_scale(t, i, j, (double)want[at]));
		}
	free(want);
}

static void try_norm(u32 m, u32 d, bool layer, bool bias)
{
	struct norm_case t = {
		.m = m, .d = d, .layer = layer,
		.x = rng_floats(&rng, (u64)m * d), .w = rng_floats(&rng, d),
		.bias = bias ? rng_floats(&rng, d) : NULL,
	};
	const u64 n = (u64)m * d;
	const u32 mark = dev.nr;
	float *got, *other;
	u64 i;

	for (i = 0; i < n; i++)
		t.x[i] = t.x[i] * 0.02f + (layer ? (float)(i / d) : 0);
	got = norm_dev(&t, 0, m, 0, false, false);
	norm_compare(&t, got);
	other = norm_dev(&t, 0, m, 1, true, false);	/* another address */
	assert_same("norm, skewed, in place", other, got, n);
	free(other);
	other = norm_dev(&t, m - 1, 1, 0, true, false);	/* alone */
	assert_same("norm of a row alone", other, got + n - d, d);
	free(other);
	other = norm_dev(&t, 0, m, 0, true, true);
	round_all(got, n);
	assert_same("norm, rounded", other, got, n);
	free(other);
	free(got);
	free(t.x);
	free(t.w);
	free(t.bias);
	dev_free_to(mark);
}

static const u32 widths[] = { 1, 5, 16, 31, 64, 129, 257, 1024, 1025, 2048,
			      4096, 4097, 8200 };

START_TEST(test_norm)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(widths); i++) {
		try_norm(rng_range(&rng, 1, 9), widths[i], _i, i % 2);
		try_norm(17, widths[i] / 8 + 1, _i, true);
	}
}
END_TEST

/* x += y; h = norm(x): joined, and one after the other. */
static void try_add_norm(u32 m, u32 d, u32 skew, bool settle, bool layer)
{
	const u64 n = (u64)m * d;
	const u32 mark = dev.nr;
	float *x = rng_floats(&rng, n), *y = rng_floats(&rng, n);
	float *w = rng_floats(&rng, d), *got[4];
	float *dy = dev_floats(y, n, skew), *dw = dev_floats(w, d, skew);
	float *x1 = dev_inout(x, n, skew), *h1 = dev_poison(n, skew);
	float *x2 = dev_inout(x, n, 0), *h2 = dev_inout(y, n, 0);
	u32 i;

	dev.ops->settles(dev.ctx, settle);
	dev.ops->add(dev.ctx, x1, dy, n);
	if (layer) {
		dev.ops->layernorm(dev.ctx, x1, dw, dw, m, d, 1e-6f, h1);
		cuda_add_layernorm(dev.ctx, x2, h2, dw, dw, m, d, 1e-6f, h2);
	} else {
		dev.ops->rmsnorm(dev.ctx, x1, dw, m, d, 1e-6f, h1);
		cuda_add_rmsnorm(dev.ctx, x2, h2, dw, m, d, 1e-6f, h2);
	}
	dev.ops->settles(dev.ctx, false);
	got[0] = dev_result(x1, n);
	got[1] = dev_result(x2, n);
	got[2] = dev_result(h1, n);
	got[3] = dev_result(h2, n);
	assert_same("add and norm, x", got[1], got[0], n);
	assert_same("add and norm, h", got[3], got[2], n);
	for (i = 0; i < 4; i++)
		free(got[i]);
	free(x);
	free(y);
	free(w);
	dev_free_to(mark);
}

START_TEST(test_add_norm)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(widths); i++) {
		try_add_norm(3, widths[i], 0, false, _i);
		try_add_norm(2, widths[i], 1, true, _i);
	}
}
END_TEST

/* ------------------------------------------------------------------- rope */

START_TEST(test_rope_table)
{
	u32 pos[] = { 0, 1, 2, 7, 100, 4095, 131071, 1000003 };
	const u32 m = ARRAY_SIZE(pos), half = 41, n = m * 2 * half;
	float inv[41], *got, *want = poisoned(n), *y = dev_poison(n, 1);
	u32 i;

	for (i = 0; i < half; i++)
		inv[i] = powf(10000.0f, -(float)i / (float)half);
	ref->rope_table(NULL, inv, half, pos, m, want);
	dev.ops->settles(dev.ctx, true);	/* the table is never rounded */
	dev.ops->rope_table(dev.ctx, dev_put(inv, sizeof(inv)), half,
			    dev_put(pos, sizeof(pos)), m, y);
	got = dev_result(y, n);
	for (i = 0; i < n; i++)
		assert_close("rope_table", (double)got[i], (double)want[i],
			     0.1);
	free(got);
	free(want);
}
END_TEST

static void try_rope(u32 m, u32 heads, u32 hd, u32 half, u32 gap, u32 skew)
{
	const u64 ld = heads * hd + gap, n = m * ld;
	const u32 mark = dev.nr;
	float *x = rng_floats(&rng, n), *want = poisoned(n), *got, *rounded;
	float *table = rng_floats(&rng, 2 * m * half);
	float *dt = dev_floats(table, 2 * m * half, skew);
	float *dx = dev_inout(x, n, skew), *dr = dev_inout(x, n, 0);
	u64 i;

	memcpy(want, x, n * sizeof(*x));
	ref->rope(NULL, want, ld, m, heads, hd, half, table);
	dev.ops->rope(dev.ctx, dx, ld, m, heads, hd, half, dt);
	dev.ops->settles(dev.ctx, true);
	dev.ops->rope(dev.ctx, dr, ld, m, heads, hd, half, dt);
	dev.ops->settles(dev.ctx, false);
	got = dev_result(dx, n);
	rounded = dev_result(dr, n);
	for (i = 0; i < n; i++) {
		const bool own = i % ld < heads * hd && i % ld % hd < 2 * half;

		assert_close("rope", (double)got[i], (double)want[i], 1);
		if (own)
			got[i] = bf16_to(bf16_of(got[i]));
		else if (got[i] != x[i])
			ck_abort_msg("rope turned what is not its own");
	}
	assert_same("rope, rounded", rounded, got, n);
	free(x);
	free(want);
	free(got);
	free(rounded);
	free(table);
	dev_free_to(mark);
}

START_TEST(test_rope)
{
	try_rope(3, 2, 64, 32, 0, 0);
	try_rope(1, 5, 32, 16, 4, 0);
	try_rope(7, 1, 80, 20, 3, 0);	/* partial */
	try_rope(2, 3, 22, 11, 0, 1);
	try_rope(2, 3, 48, 6, 0, 0);
	try_rope(9, 16, 128, 64, 0, 0);
	try_rope(2, 3, 128, 64, 0, 1);
}
END_TEST

/* ------------------------------------------------------------ activations */

/* Ordinary values, and those at which exp() leaves the range of a float. */
static void act_values(float *x, u64 n)
{
	static const float edge[] = {
		0, -0.0f, 1e-30f, -1e-30f, 87, -87, 88.5f, -88.5f, 89, -89,
		103, -103, 1e4f, -1e4f, 0.625f, -6.5f, 6.5f, -13, 1e30f, -1e30f,
	};
	u64 i;

	for (i = 0; i < n; i++)
		x[i] = i % 3 ? 6 * rng_float(&rng) :
		       edge[i / 3 % ARRAY_SIZE(edge)];
}

static void act_call(const struct kern_ops *ops, struct kern_ctx *ctx, u32 act,
		     const float *gate, const float *up, u64 ld, u32 m, u32 d,
		     float *y)
{
	if (act > KERN_RELU)
		ops->silu_mul(ctx, gate, up, ld, m, d, y);
	else
		ops->act(ctx, act, gate, up, ld, m, d, y);
}

static void try_act(u32 act, u32 m, u32 d, u32 gap, u32 skew, bool has_up)
{
	const u64 ld = d + gap, n = (u64)m * d;
	const u32 mark = dev.nr;
	float *gate = rng_floats(&rng, m * ld), *up = rng_floats(&rng, m * ld);
	float *want = poisoned(n), *got, *rounded;
	float *du = has_up ? dev_floats(up, m * ld, skew) : NULL;
	float *dg, *dy, *dr = dev_poison(n, 0);
	u64 i;

	act_values(gate, m * ld);
	dg = dev_inout(gate, m * ld, skew);
	dy = gap ? dev_poison(n, skew) : dg;	/* in place if dense */
	act_call(ref, NULL, act, gate, has_up ? up : NULL, ld, m, d, want);
	dev.ops->settles(dev.ctx, true);
	act_call(dev.ops, dev.ctx, act, dg, du, ld, m, d, dr);
	dev.ops->settles(dev.ctx, false);
	act_call(dev.ops, dev.ctx, act, dg, du, gap ? ld : 0, m, d, dy);
	got = dev_result(dy, n);
	rounded = dev_result(dr, n);
	for (i = 0; i < n; i++) {
		const u64 at = i / d * ld + i % d;
		const double by = has_up ? (double)up[at] : 1;

		assert_close("act", (double)got[i], (double)want[i],
			     fabs((double)gate[at] * by) + 1e-30);
		if (act == KERN_RELU && got[i] != want[i])
			ck_abort_msg("relu is not exact");
	}
	round_all(got, n);
	assert_same("act, rounded", rounded, got, n);
	free(gate);
	free(up);
	free(want);
	free(got);
	free(rounded);
	dev_free_to(mark);
}

START_TEST(test_act)
{
	try_act(_i, 1, 1, 0, 0, true);
	try_act(_i, 3, 64, 0, 0, true);
	try_act(_i, 3, 1027, 5, 0, true);
	try_act(_i, 2, 4096, 4, 0, true);
	try_act(_i, 2, 1100, 0, 1, true);
	if (_i > KERN_RELU)
		return;
	try_act(_i, 5, 129, 0, 0, false);
	try_act(_i, 2, 128, 8, 1, false);
}
END_TEST

static Suite *cuda_row_suite(void)
{
	Suite *s = suite_create("cuda-row");
	TCase *tc = tcase_create("rows");

	tcase_set_tags(tc, "unit kernels cuda");
	tcase_set_timeout(tc, 120);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_elements);
	tcase_add_test(tc, test_settle_edges);
	tcase_add_test(tc, test_embed);
	tcase_add_test(tc, test_gather_and_split);
	tcase_add_loop_test(tc, test_norm, 0, 2);
	tcase_add_loop_test(tc, test_add_norm, 0, 2);
	tcase_add_test(tc, test_rope_table);
	tcase_add_test(tc, test_rope);
	tcase_add_loop_test(tc, test_act, 0, KERN_RELU + 2);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(cuda_row_suite());
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
