// SPDX-License-Identifier: Apache-2.0
/*
 * check_kernels.c - every kernel against the reference, over many shapes
 *
 * For each variant that this CPU runs and for kernels of a device, random
 * shapes (odd sizes and sizes around the tiles among them), random leading
 * dimensions and types; each element of a result must lie within the tolerance
 * that kernels.h states, and elements that are only moved must be bit-equal.
 * Unwritten parts of pools are full of NaN, and outputs are poisoned first.
 */
#include <stdio.h>

#include "check_kernels.h"
#include "tests/level.h"

#define for_each_other(ops, i)						\
	for (i = 1; ((ops) = hosted_some(i)); i++)

static const struct kern_ops *ref;
static struct kern_ctx *ctx;
static struct rng rng;

static void setup(void)
{
	ref = kern_get("ref");
	rng.s = 1;
	ck_assert_ptr_nonnull(ref);
	ck_assert_int_eq(kern_ctx_create(2, &ctx), 0);
}

static void teardown(void)
{
	kern_ctx_destroy(ctx);
}

static void assert_within(const struct kern_ops *ops, const char *what,
			  double got, double want, double scale, double tol)
{
	/* Every ck_assert is a write(): call it only for a failure. */
	if (fabs(got - want) <= tol * scale)
		return;
	ck_abort_msg("%s:%s %s: got %.9g, want %.9g, off by %.3g of its scale %.3g",
		     ops->name, ops->variant, what, got, want,
		     fabs(got - want) / scale, scale);
}

static void assert_near(const struct kern_ops *ops, const char *what,
			double got, double want, double scale)
{
	assert_within(ops, what, got, want, scale, KERN_TOL);
}

START_TEST(test_names)
{
	const struct kern_ops *ops, *exact = NULL, *fast = NULL;
	char name[32];
	u32 i;

	ck_assert_ptr_nonnull(kern_get(NULL));
	ck_assert_ptr_eq(kern_get(NULL), kern_get("cpu"));
	ck_assert_ptr_eq(kern_at(0), ref);
	ck_assert_ptr_null(kern_get("cpu:"));
	ck_assert_ptr_null(kern_get("cpu:pentium"));
	ck_assert_ptr_null(kern_get("refs"));
	ck_assert_ptr_null(kern_get(""));
	for (i = 1; (ops = kern_at(i)); i++) {
		snprintf(name, sizeof(name), "cpu:%s", ops->variant);
		ck_assert_ptr_eq(kern_get(name), ops);
		ck_assert_str_eq(ops->name, "cpu");
		ck_assert_uint_eq(ops->version, KERN_NUMERICS_VERSION);
		*(ops->mode == KERN_MODE_FAST ? &fast : &exact) = ops;
	}
	ck_assert_uint_ge(i, 2);
	/* The widest variant of each mode; the exact one if there is no fast one. */
	ck_assert_int_eq(ref->mode, KERN_MODE_EXACT);
	ck_assert_ptr_eq(kern_get(NULL), exact);
	ck_assert_ptr_eq(kern_get("cpu-fast"), fast ? fast : exact);
	if (fast)
		ck_assert_str_eq(fast->variant, "avx512bf16");
	else
		printf("no variant of fast mode runs here: none is tested\n");
}
END_TEST

static const struct kern_kv good_kv = {
	.unit = 64, .layer_stride = 2 * 2 * 16 * 32 * 4, .block_tokens = 16,
	.nr_layers = 2, .kv_heads = 2, .head_dim = 32, .dtype = KERN_F32,
};

START_TEST(test_kv_check_rejects)
{
	struct kern_kv kv = good_kv;

	ck_assert_int_eq(kern_kv_check(&kv), 0);
	switch (_i) {
	case 0: kv.unit = 0; break;
	case 1: kv.unit = 2; break;
	case 2: kv.layer_stride--; break;
	case 3: kv.layer_stride -= 4; break;
	case 4: kv.block_tokens = 8; break;
	case 5: kv.block_tokens = 24; break;
	case 6: kv.nr_layers = 0; break;
	case 7: kv.kv_heads = 0; break;
	case 8: kv.head_dim = 0; break;
	case 9: kv.head_dim = 28; break;
	case 10: kv.head_dim = KERN_MAX_HEAD_DIM + 16; break;
	case 11: kv.dtype = KERN_I8 + 1; break;
	case 12:
		kv.block_tokens = KERN_BLOCK_MAX + KERN_BLOCK_MIN;
		kv.layer_stride *= 1024;
		break;
	}
	ck_assert_int_eq(kern_kv_check(&kv), -EINVAL);
}
END_TEST

/* Fast mode rounds x if weights are bf16, unless x is rounded already. */
static double gemm_tol(const struct kern_ops *ops, enum kern_dtype type,
		       bool rounded)
{
	if (ops->mode == KERN_MODE_FAST && type == KERN_BF16 && !rounded)
		return KERN_TOL_FAST;
	return KERN_TOL;
}

/* One matrix product with leading dimensions and perhaps a bias. */
static void try_gemm_as(const struct kern_ops *ops, u32 m, u32 n, u32 k,
			enum kern_dtype type, bool pack)
{
	bool rounded = rng_next(&rng) & 1;
	u32 x_ld = k + rng_range(&rng, 0, 3), y_ld = n + rng_range(&rng, 0, 3);
	struct kern_weight w = rng_weight(&rng, n, k, type), as = w;
	float *x = rng_floats(&rng, (u64)m * x_ld);
	float *bias = rng_next(&rng) & 1 ? rng_floats(&rng, n) : NULL;
	float *got = poisoned((u64)m * y_ld), *want = poisoned((u64)m * y_ld);
	double scale, tol = gemm_tol(ops, type, rounded);
	u32 i, j, l;

	for (i = 0; rounded && i < m * x_ld; i++)
		x[i] = bf16_to(bf16_of(x[i]));
	ck_assert(weight_pack(ops, ctx, &w, &as) || !pack);
	ops->gemm(ctx, x, x_ld, pack ? &as : &w, bias, m, got, y_ld);
	if (as.packed)
		free((void *)as.data);
	ref->gemm(NULL, x, x_ld, &w, bias, m, want, y_ld);
	for (i = 0; i < m; i++) {
		for (j = 0; j < n; j++) {
			scale = bias ? fabsf(bias[j]) : 0;
			for (l = 0; l < k; l++)
				scale += fabsf(x[i * x_ld + l] *
					       weight_at(&w, j, l));
			assert_within(ops, "gemm", got[i * y_ld + j],
				      want[i * y_ld + j], scale, tol);
		}
		/* The op must not write between rows. */
		for (j = n; j < y_ld; j++)
			if (!isnan(got[i * y_ld + j]))
				ck_abort_msg("wrote between rows");
	}
	free((void *)w.data);
	free(x);
	free(bias);
	free(got);
	free(want);
}

static void try_gemm(const struct kern_ops *ops, u32 m, u32 n, u32 k,
		     enum kern_dtype type)
{
	try_gemm_as(ops, m, n, k, type, false);
	if (ops->pack && type == KERN_BF16)
		try_gemm_as(ops, m, n, k, type, true);
}

/* Packed weights, every number of rows that has its own tiles, and more. */
START_TEST(test_gemm_packed)
{
	const struct kern_ops *ops;
	struct kern_weight f32;
	u32 v, m, packs = 0;

	for_each_other(ops, v) {
		ck_assert(!ops->pack == !ops->pack_bytes);
		if (!ops->pack)
			continue;
		packs++;
		f32 = rng_weight(&rng, 5, 5, KERN_F32);
		ck_assert_uint_eq(ops->pack_bytes(&f32), 0);
		free((void *)f32.data);
		for (m = 1; m <= 70; m++)
			try_gemm_as(ops, m, rng_range(&rng, 1, 140),
				    rng_range(&rng, 1, 300) * 7, KERN_BF16,
				    true);
		/* x fits in the panel, and does not; more columns than a part has. */
		try_gemm_as(ops, 12, 65, 9001, KERN_BF16, true);
		try_gemm_as(ops, 24, 33, 9001, KERN_BF16, true);
	}
	if (!packs)
		printf("no variant packs weights here: none is tested\n");
}
END_TEST

START_TEST(test_gemm)
{
	static const u32 m[] = { 1, 2, 3, 4, 5, 7, 8, 17, 65 };
	static const u32 k[] = { 1, 3, 15, 16, 17, 33, 64, 100, 1023, 1024,
				 1025, 2048, 2050, 4100 };
	const u32 step = level_is_check() ? 2 : 1;
	const struct kern_ops *ops;
	u32 v, i, j;

	for_each_other(ops, v)
		for (i = 0; i < ARRAY_SIZE(m); i++)
			for (j = (i + v) % step; j < ARRAY_SIZE(k); j += step)
				try_gemm(ops, m[i], rng_range(&rng, 1, 80),
					 k[j], _i ? KERN_BF16 : KERN_F32);
}
END_TEST

/* Large enough for several panels and both threads. */
START_TEST(test_gemm_large)
{
	const struct kern_ops *ops;
	u32 v;

	for_each_other(ops, v) {
		try_gemm(ops, 1, 700, 1030, KERN_BF16);
		try_gemm(ops, 131, 200, 130, KERN_BF16);
		try_gemm(ops, 70, 131, 1100, KERN_F32);
		try_gemm(ops, 67, 300, 2100, KERN_BF16);
		try_gemm(ops, 199, 70, 1100, KERN_BF16);
	}
}
END_TEST

START_TEST(test_embed)
{
	u32 ids[] = { 6, 0, 31, 31, 1, 46, 32 }, m = ARRAY_SIZE(ids), i, j, v;
	enum kern_dtype type = _i ? KERN_BF16 : KERN_F32;
	struct kern_weight w = rng_weight(&rng, 47, 37, type), as;
	const struct kern_ops *ops;
	float *got = poisoned(m * w.cols), *want = poisoned(m * w.cols);

	ref->embed(NULL, &w, ids, m, want);
	for (i = 0; i < m; i++)
		for (j = 0; j < w.cols; j++)
			ck_assert(want[i * w.cols + j] ==
				  weight_at(&w, ids[i], j));
	for_each_other(ops, v) {
		ops->embed(ctx, &w, ids, m, got);
		ck_assert_bits_eq(got, want, m * w.cols);
		if (!weight_pack(ops, ctx, &w, &as))
			continue;
		memset(got, 0xff, m * w.cols * sizeof(*got));
		ops->embed(ctx, &as, ids, m, got);
		ck_assert_bits_eq(got, want, m * w.cols);
		free((void *)as.data);
	}
	free((void *)w.data);
	free(got);
	free(want);
}
END_TEST

static void try_rmsnorm(const struct kern_ops *ops, u32 m, u32 d)
{
	float *x = rng_floats(&rng, m * d), *w = rng_floats(&rng, d);
	float *want = poisoned(m * d);
	u32 i;

	for (i = 0; i < m * d; i++)
		x[i] *= 0.02f;		/* so that eps matters, too */
	ref->rmsnorm(NULL, x, w, m, d, 1e-5f, want);
	ops->rmsnorm(ctx, x, w, m, d, 1e-5f, x);	/* in place */
	for (i = 0; i < m * d; i++)
		assert_near(ops, "rmsnorm", x[i], want[i], fabsf(want[i]));
	free(x);
	free(w);
	free(want);
}

START_TEST(test_rmsnorm)
{
	static const u32 d[] = { 1, 5, 16, 31, 64, 257, 2048 };
	const struct kern_ops *ops;
	u32 v, i;

	for_each_other(ops, v) {
		for (i = 0; i < ARRAY_SIZE(d); i++)
			try_rmsnorm(ops, rng_range(&rng, 1, 9), d[i]);
		try_rmsnorm(ops, 300, 1030);
	}
}
END_TEST

/* The scale is that of kernels.h; a large mean makes it matter. */
static void try_layernorm(const struct kern_ops *ops, u32 m, u32 d, float mean,
			  const float *bias)
{
	float *x = rng_floats(&rng, m * d), *w = rng_floats(&rng, d);
	float *got = poisoned(m * d), *want = poisoned(m * d);
	double top, var;
	u32 i, j;

	for (i = 0; i < m * d; i++)
		x[i] += mean;
	ref->layernorm(NULL, x, w, bias, m, d, 1e-5f, want);
	ops->layernorm(ctx, x, w, bias, m, d, 1e-5f, got);
	for (i = 0; i < m; i++) {
		top = 0;
		var = 1e-5;
		for (j = 0; j < d; j++) {
			top = fmax(top, fabsf(x[i * d + j]));
			var += pow(x[i * d + j] - (double)mean, 2) / d / 2;
		}
		for (j = 0; j < d; j++)
			assert_near(ops, "layernorm", got[i * d + j],
				    want[i * d + j],
				    2 * top / sqrt(var) * fabsf(w[j]) +
				    (bias ? fabsf(bias[j]) : 0) + 1e-30);
	}
	free(x);
	free(w);
	free(got);
	free(want);
}

/* Heads with weights of their own: the bits of layernorm() of each head. */
START_TEST(test_layernorm_heads)
{
	static const u32 d[] = { 7, 16, 72, 128 };
	const u32 m = 5, heads = 3;
	const struct kern_ops *ops;
	float *x, *w, *got, *want;
	u32 v, i, j;

	for_each_other(ops, v) {
		for (i = 0; i < ARRAY_SIZE(d); i++) {
			x = rng_floats(&rng, m * heads * d[i]);
			w = rng_floats(&rng, heads * d[i]);
			got = poisoned(m * heads * d[i]);
			want = poisoned(m * heads * d[i]);
			for (j = 0; j < m * heads; j++)
				ops->layernorm(ctx, x + j * d[i],
					       w + j % heads * d[i], NULL, 1,
					       d[i], 1e-5f, want + j * d[i]);
			ops->layernorm_heads(ctx, x, w, m, heads, d[i], 1e-5f,
					     got);
			ck_assert(!memcmp(got, want,
					  m * heads * d[i] * sizeof(*got)));
			ops->layernorm_heads(ctx, x, w, m, heads, d[i], 1e-5f,
					     x);
			ck_assert(!memcmp(x, want,
					  m * heads * d[i] * sizeof(*x)));
			free(x);
			free(w);
			free(got);
			free(want);
		}
	}
}
END_TEST

START_TEST(test_layernorm)
{
	static const u32 d[] = { 7, 16, 31, 64, 257, 2048 };
	float *bias = rng_floats(&rng, 2048);
	const struct kern_ops *ops;
	u32 v, i;

	for_each_other(ops, v) {
		for (i = 0; i < ARRAY_SIZE(d); i++) {
			try_layernorm(ops, rng_range(&rng, 1, 9), d[i], i, bias);
			try_layernorm(ops, 2, d[i], 0, NULL);
		}
		try_layernorm(ops, 300, 1030, 3, bias);
	}
	free(bias);
}
END_TEST

START_TEST(test_rope_table)
{
	u32 pos[] = { 0, 1, 2, 7, 100, 4095, 131071, 1000003 };
	u32 m = ARRAY_SIZE(pos), half = 40, i, v;
	const struct kern_ops *ops;
	float inv[40], *got, *want;

	for (i = 0; i < half; i++)
		inv[i] = powf(10000.0f, -(float)i / half);
	got = poisoned(m * 2 * half);
	want = poisoned(m * 2 * half);
	ref->rope_table(NULL, inv, half, pos, m, want);
	for_each_other(ops, v) {
		ops->rope_table(ctx, inv, half, pos, m, got);
		for (i = 0; i < m * 2 * half; i++)
			assert_near(ops, "rope_table", got[i], want[i], 0.1);
	}
	free(got);
	free(want);
}
END_TEST

static void try_rope(const struct kern_ops *ops, u32 m, u32 heads, u32 hd,
		     u32 half)
{
	u64 ld = heads * hd + rng_range(&rng, 0, 5), n = m * ld, i;
	float *x = rng_floats(&rng, n), *got = poisoned(n), *want = poisoned(n);
	float *table = rng_floats(&rng, 2 * m * half);

	memcpy(got, x, n * sizeof(*x));
	memcpy(want, x, n * sizeof(*x));
	ops->rope(ctx, got, ld, m, heads, hd, half, table);
	ref->rope(NULL, want, ld, m, heads, hd, half, table);
	for (i = 0; i < n; i++) {
		if ((i % ld >= heads * hd || i % ld % hd >= 2 * half) &&
		    got[i] != x[i])
			ck_abort_msg("rope turned what is not its own");
		assert_near(ops, "rope", got[i], want[i], 2);
	}
	free(x);
	free(got);
	free(want);
	free(table);
}

START_TEST(test_rope)
{
	const struct kern_ops *ops;
	u32 v;

	for_each_other(ops, v) {
		try_rope(ops, 3, 2, 64, 32);
		try_rope(ops, 1, 5, 32, 16);
		try_rope(ops, 7, 1, 80, 20);	/* partial */
		try_rope(ops, 2, 3, 22, 11);
		try_rope(ops, 90, 32, 128, 64);
	}
}
END_TEST

/* Ordinary values, and those at which exp() overflows or underflows. */
START_TEST(test_silu_mul)
{
	static const float edge[] = {
		0, -0.0f, 1e-30f, -1e-30f, 20, -20, 85.9f, -85.9f, 86.1f,
		-86.1f, 88, -87.9f, -88.5f, 104, -104, 3e38f,
	};
	const u32 m = 5, d = 77, ld = 80;
	const struct kern_ops *ops;
	float *gate = rng_floats(&rng, m * ld), *up = rng_floats(&rng, m * ld);
	float *got = poisoned(m * d), *want = poisoned(m * d);
	u32 v, i;

	for (i = 0; i < m * ld; i++)
		gate[i] *= 15;
	memcpy(gate + 2 * ld + 50, edge, sizeof(edge));
	ref->silu_mul(NULL, gate, up, ld, m, d, want);
	for_each_other(ops, v) {
		ops->silu_mul(ctx, gate, up, ld, m, d, got);
		for (i = 0; i < m * d; i++)
			assert_near(ops, "silu_mul", got[i], want[i],
				    max(fabsf(want[i]), 1e-30f));
	}
	free(gate);
	free(up);
	free(got);
	free(want);
}
END_TEST

static void try_act(const struct kern_ops *ops, enum kern_act act,
		    const float *gate, const float *up, u32 m, u32 d, u32 ld)
{
	float *got = poisoned(m * d), *want = poisoned(m * d);
	u32 i, at;

	ref->act(NULL, act, gate, up, ld, m, d, want);
	ops->act(ctx, act, gate, up, ld, m, d, got);
	for (i = 0; i < m * d; i++) {
		at = i / d * ld + i % d;
		assert_near(ops, "act", got[i], want[i], act == KERN_RELU ? 0 :
			    fabsf(gate[at]) * (up ? fabsf(up[at]) : 1) + 1e-30);
	}
	free(got);
	free(want);
}

START_TEST(test_act)
{
	static const float edge[] = {
		0, -0.0f, 1e-30f, -1e-30f, 0.01f, -0.01f, 3.7f, -3.7f, 5,
		-5, 6.6f, -6.6f, 20, -20, 104, -104, 1e6f, -1e6f,
	};
	const u32 m = 5, d = 77, ld = 80;
	const struct kern_ops *ops;
	float *gate = rng_floats(&rng, m * ld), *up = rng_floats(&rng, m * ld);
	u32 v, i;

	for (i = 0; i < m * ld; i++)
		gate[i] *= 6;
	memcpy(gate + 2 * ld + 50, edge, sizeof(edge));
	for_each_other(ops, v) {
		try_act(ops, _i, gate, up, m, d, ld);
		try_act(ops, _i, gate, NULL, m, d, ld);
	}
	free(gate);
	free(up);
}
END_TEST

/* From values that the cap hardly changes to values that it fixes. */
START_TEST(test_softcap_and_scale)
{
	const u64 n = 300007;
	const struct kern_ops *ops;
	float *x = rng_floats(&rng, n), *want = poisoned(n), *got = poisoned(n);
	u32 v, i;

	for (i = 0; i < n; i++)
		x[i] *= i % 7 ? 60 : 1e-3f;
	x[5] = 3e38f;
	x[6] = -3e38f;
	for_each_other(ops, v) {
		memcpy(want, x, n * sizeof(*x));
		memcpy(got, x, n * sizeof(*x));
		ref->softcap(NULL, want, 30, n);
		ops->softcap(ctx, got, 30, n);
		for (i = 0; i < n; i++)
			assert_near(ops, "softcap", got[i], want[i],
				    fabsf(x[i]));
		memcpy(want, x, n * sizeof(*x));
		memcpy(got, x, n * sizeof(*x));
		ref->scale(NULL, want, 0.3f, n);
		ops->scale(ctx, got, 0.3f, n);
		ck_assert_bits_eq(got, want, n);
	}
	free(x);
	free(want);
	free(got);
}
END_TEST

START_TEST(test_add)
{
	const u64 n = _i ? 400001 : 13;
	const struct kern_ops *ops;
	float *x = rng_floats(&rng, n), *y = rng_floats(&rng, n);
	float *want = poisoned(n), *got = poisoned(n);
	u32 v;

	memcpy(want, x, n * sizeof(*x));
	ref->add(NULL, want, y, n);
	for_each_other(ops, v) {
		memcpy(got, x, n * sizeof(*x));
		ops->add(ctx, got, y, n);
		ck_assert_bits_eq(got, want, n);
	}
	free(x);
	free(y);
	free(got);
	free(want);
}
END_TEST

/* Ties, the largest numbers, infinities and NaN among random numbers. */
START_TEST(test_settle)
{
	static const u32 edges[] = {
		0x3f808000, 0x3f818000, 0x3f808001, 0x3f807fff, 0x7f800000,
		0xff800000, 0x7f7fffff, 0xff7f8000, 0x00000001, 0x80008001,
		0x7fc00000, 0x7f800001, 0xffffffff, 0,
	};
	static const u64 sizes[] = { 1, 15, 16, 17, 300003 };
	const u64 n = sizes[_i];
	float *x = rng_floats(&rng, n), *want = poisoned(n), *got = poisoned(n);
	const struct kern_ops *ops;
	u64 i;
	u32 v;

	memcpy(x, edges, min(n * sizeof(*x), sizeof(edges)));
	memcpy(want, x, n * sizeof(*x));
	ref->settle(NULL, want, n);
	for_each_other(ops, v) {
		memcpy(got, x, n * sizeof(*x));
		ops->settle(ctx, got, n);
		for (i = 0; i < n; i++)
			if (isnan(want[i]) ? !isnan(got[i]) :
			    memcmp(&got[i], &want[i], sizeof(*got)))
				ck_abort_msg("%s settles %a to %a, not to %a",
					     ops->name, x[i], got[i], want[i]);
	}
	free(x);
	free(want);
	free(got);
}
END_TEST

START_TEST(test_gather)
{
	static const u32 rows[] = { 6, 0, 0, 3, 5 };
	const u32 d = _i ? 257 : 64, m = ARRAY_SIZE(rows);
	float *x = rng_floats(&rng, 7 * d), *want = poisoned(m * d);
	float *got = poisoned(m * d);
	const struct kern_ops *ops;
	u32 v;

	ref->gather(NULL, x, rows, m, d, want);
	ck_assert(!memcmp(want, x + 6 * d, d * sizeof(*x)));
	ck_assert(!memcmp(want + 4 * d, x + 5 * d, d * sizeof(*x)));
	for_each_other(ops, v) {
		memset(got, 0xff, m * d * sizeof(*got));
		ops->gather(ctx, x, rows, m, d, got);
		ck_assert_bits_eq(got, want, m * d);
	}
	free(x);
	free(want);
	free(got);
}
END_TEST

START_TEST(test_split_heads)
{
	const u32 m = 5, heads = _i ? 3 : 4, hd = _i ? 80 : 32;
	const u32 n = m * heads * hd;
	float *qkv = rng_floats(&rng, 3 * n), *want[3], *got[3];
	const struct kern_ops *ops;
	u32 v, i;

	for (i = 0; i < 3; i++) {
		want[i] = poisoned(n);
		got[i] = poisoned(n);
	}
	ref->split_heads(NULL, qkv, m, heads, hd, want[0], want[1], want[2]);
	/* V of the second head is the sixth piece. */
	ck_assert(!memcmp(want[2] + hd, qkv + 5 * hd, hd * sizeof(*qkv)));
	for_each_other(ops, v) {
		ops->split_heads(ctx, qkv, m, heads, hd, got[0], got[1],
				 got[2]);
		for (i = 0; i < 3; i++) {
			ck_assert_bits_eq(got[i], want[i], n);
			memset(got[i], 0xff, n * sizeof(*got[i]));
		}
	}
	for (i = 0; i < 3; i++) {
		free(want[i]);
		free(got[i]);
	}
	free(qkv);
}
END_TEST

static Suite *kernels_suite(void)
{
	Suite *s = suite_create("kernels");
	TCase *tc = tcase_create("against-reference");

	tcase_set_tags(tc, "unit kernels");
	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_names);
	tcase_add_loop_test(tc, test_kv_check_rejects, 0, 13);
	tcase_add_loop_test(tc, test_gemm, 0, 2);
	tcase_add_test(tc, test_gemm_large);
	tcase_add_test(tc, test_gemm_packed);
	tcase_add_loop_test(tc, test_embed, 0, 2);
	tcase_add_test(tc, test_rmsnorm);
	tcase_add_test(tc, test_layernorm);
	tcase_add_test(tc, test_layernorm_heads);
	tcase_add_test(tc, test_rope_table);
	tcase_add_test(tc, test_rope);
	tcase_add_test(tc, test_silu_mul);
	tcase_add_loop_test(tc, test_act, KERN_SILU, KERN_RELU + 1);
	tcase_add_test(tc, test_softcap_and_scale);
	tcase_add_loop_test(tc, test_add, 0, 2);
	tcase_add_loop_test(tc, test_settle, 0, 5);
	tcase_add_loop_test(tc, test_gather, 0, 2);
	tcase_add_loop_test(tc, test_split_heads, 0, 2);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(kernels_suite());
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
