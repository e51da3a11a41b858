// SPDX-License-Identifier: Apache-2.0
/*
 * check_cuda_gemm.c - products on the GPU, run by the stand-in
 *
 * Near: every kernel against a double sum, at sizes that fit no tile and at
 * addresses that fit no vector.  Exact: every kernel gives the bits computed
 * here from the order of sums that gemm_exact.cu promises; and a row has the
 * same bits in batches of 1 to 40, at every place.
 */
#include "cuda_gemm_fixture.h"
#include "tests/standin/sanitized.h"

static struct rng rng;

static void setup(void)
{
	rng.s = 11;
	setenv("KVMM_CUBLASLT", "none", 1);
}

/* Scratch is full of NaN, as after an op on bad numbers. */
static void dirty(struct gpu *g)
{
	struct cuda_ctx *c = cuda_of(g->ctx);
	const u64 bytes = 1u << 20;
	float *f = poisoned(bytes / sizeof(*f));

	g->ops->mem_put(g->ctx, cuda_scratch(c, bytes), f, bytes);
	free(f);
}

static void try_near(struct gpu *g, struct product p, double tol)
{
	dirty(g);
	product_make(&p, &rng);
	product_run(g, &p, 0, p.m, p.y);
	product_close(&p, tol);
	product_free(&p);
}

/* ------------------------------------------------------------- exact mode */

static const struct product exact_shapes[] = {
	{ .m = 1, .n = 16, .k = 512 },
	{ .m = 1, .n = 33, .k = 1288, .has_bias = true },
	{ .m = 1, .n = 1, .k = 1 },
	{ .m = 1, .n = 19, .k = 77, .x_shift = 4, .w_shift = 4 },
	{ .m = 3, .n = 32, .k = 1024 },
	{ .m = 4, .n = 70, .k = 200, .x_gap = 8, .y_gap = 3 },
	{ .m = 9, .n = 31, .k = 131, .x_gap = 5, .y_gap = 1, .x_shift = 4,
	  .w_shift = 8, .has_bias = true, .settle = true },
	{ .m = 16, .n = 40, .k = 576, .settle = true },
	{ .m = 17, .n = 64, .k = 128 },
	{ .m = 33, .n = 65, .k = 200, .x_gap = 4, .has_bias = true },
	{ .m = 40, .n = 130, .k = 99, .x_shift = 8, .w_shift = 4, .y_gap = 7 },
};

static void set_sms(struct gpu *g, u32 sms)
{
	cuda_of(g->ctx)->sms = sms;
}

/* With many multiprocessors and with one, since other kernels are chosen. */
START_TEST(test_exact_near)
{
	struct gpu g = gpu_open("cuda");
	struct product p;
	u32 i, type;

	for (i = 0; i < 2 * ARRAY_SIZE(exact_shapes); i++) {
		set_sms(&g, i % 2 ? 1 : 132);
		for (type = KERN_F32; type <= KERN_F16; type++) {
			p = exact_shapes[i / 2];
			p.type = type;
			try_near(&g, p, KERN_TOL);
		}
	}
	gpu_close(&g);
}
END_TEST

/* The element as gemm_exact.cu promises it. */
static float exact_of(const struct product *p, u32 m, u32 n)
{
	const float *x = p->x + (u64)m * (p->k + p->x_gap);
	float total = 0, sum = 0;
	u32 k;

	for (k = 0; k < ALIGN_UP(p->k, GEMM_RUN); k++) {
		sum = fmaf(k < p->k ? x[k] : 0,
			   k < p->k ? product_w(p, n, k) : 0, sum);
		if (k % GEMM_RUN == GEMM_RUN - 1) {
			total = total + sum;
			sum = 0;
		}
	}
	if (p->has_bias)
		total += p->bias[n];
	return p->settle ? bf16_to(bf16_of(total)) : total;
}

static void try_order(struct gpu *g, struct product p)
{
	float want;
	u32 m, n;

	product_make(&p, &rng);
	product_run(g, &p, 0, p.m, p.y);
	for (m = 0; m < p.m; m++) {
		for (n = 0; n < p.n; n++) {
			want = exact_of(&p, m, n);
			ck_assert_msg(!memcmp(&want, p.y + m * (p.n + p.y_gap) +
					      n, sizeof(want)),
				      "%ux%ux%u type %u: other bits at (%u, %u)",
				      p.m, p.n, p.k, p.type, m, n);
		}
	}
	product_free(&p);
}

START_TEST(test_exact_order)
{
	struct gpu g = gpu_open("cuda");
	struct product p;
	u32 i, type;

	for (i = 0; i < 2 * ARRAY_SIZE(exact_shapes); i++) {
		set_sms(&g, i % 2 ? 1 : 132);
		for (type = KERN_F32; type <= KERN_F16; type++) {
			p = exact_shapes[i / 2];
			p.type = type;
			try_order(&g, p);
		}
	}
	gpu_close(&g);
}
END_TEST

#define COMPANY	40u

/* Each row alone, then in every batch: the same bits at every place. */
START_TEST(test_exact_company)
{
	struct gpu g = gpu_open("cuda");
	struct product p = { .m = COMPANY, .n = 35, .k = 136,
			     .type = KERN_BF16, .has_bias = true };
	float *got;
	u32 m, i;

	product_make(&p, &rng);
	got = poisoned(COMPANY * p.n + 8);
	for (i = 0; i < COMPANY; i++)
		product_run(&g, &p, i, 1, p.y + i * p.n);
	for (m = 2; m <= COMPANY; m++) {
		set_sms(&g, m % 2 ? 1 : 132);
		for (i = 0; i + m <= COMPANY; i += m < 8 ? 5 : 11) {
			product_run(&g, &p, i, m, got);
			ck_assert_msg(!memcmp(got, p.y + i * p.n,
					      m * p.n * sizeof(*got)),
				      "%u rows from %u on", m, i);
		}
	}
	free(got);
	product_free(&p);
	gpu_close(&g);
}
END_TEST

/* -------------------------------------------------------------- fast mode */

static const struct product fast_shapes[] = {
	{ .m = 1, .n = 64, .k = 256 },
	{ .m = 1, .n = 200, .k = 4096, .has_bias = true },
	{ .m = 1, .n = 1, .k = 8 },
	{ .m = 3, .n = 65, .k = 392, .x_gap = 3, .y_gap = 5, .has_bias = true },
	{ .m = 8, .n = 130, .k = 2312, .x_shift = 4 },
	{ .m = 9, .n = 63, .k = 136, .settle = true },
	{ .m = 16, .n = 72, .k = 2056, .has_bias = true, .settle = true },
	{ .m = 5, .n = 20, .k = 99, .w_shift = 2 },
	{ .m = 16, .n = 33, .k = 64, .w_shift = 8 },
	{ .m = 17, .n = 128, .k = 64 },
	{ .m = 129, .n = 136, .k = 72, .x_gap = 1, .y_gap = 3,
	  .has_bias = true },
	{ .m = 40, .n = 65, .k = 101, .w_shift = 2, .settle = true },
	{ .m = 33, .n = 257, .k = 200, .x_shift = 4 },
};

START_TEST(test_fast_near)
{
	struct gpu g = gpu_open("cuda-fast");
	struct product p;
	u32 i, type;

	for (i = 0; i < 2 * ARRAY_SIZE(fast_shapes); i++) {
		set_sms(&g, i % 2 ? 1 : 132);
		for (type = KERN_F32; type <= KERN_F16; type++) {
			/* Types other than bf16 take the kernels of exact mode. */
			if (type != KERN_BF16 && i / 2 % 4)
				continue;
			p = fast_shapes[i / 2];
			p.type = type;
			try_near(&g, p, type == KERN_BF16 ? KERN_TOL_FAST :
							    KERN_TOL);
		}
	}
	gpu_close(&g);
}
END_TEST

/*
 * No rounding where x is bf16 already: so the sum shows that each term is added
 * once, also when K is split.  The same bits come every time.
 */
START_TEST(test_fast_all_summed)
{
	struct gpu g = gpu_open("cuda-fast");
	struct product p = { .m = 7, .n = 130, .k = 3000, .type = KERN_BF16 };
	float *again;
	u32 i, round;

	ck_assert_uint_lt(cuda_gemm_range(3, p.k, 132), p.k);
	set_sms(&g, 132);
	product_make(&p, &rng);
	again = poisoned(p.m * p.n + 8);
	for (i = 0; i < p.m * p.k; i++)
		p.x[i] = bf16_to(bf16_of(p.x[i]));
	product_run(&g, &p, 0, p.m, p.y);
	product_close(&p, KERN_TOL);
	for (round = 0; round < 3; round++) {
		product_run(&g, &p, 0, p.m, again);
		ck_assert(!memcmp(p.y, again, p.m * p.n * sizeof(*again)));
	}
	free(again);
	product_free(&p);
	gpu_close(&g);
}
END_TEST

/* NaN of one row, or of one output's weights, does not spread. */
START_TEST(test_nan_stays)
{
	struct gpu g = gpu_open(_i ? "cuda-fast" : "cuda");
	struct product p = { .m = 20, .n = 70, .k = 64, .type = KERN_BF16 };
	u32 rows[] = { 1, 6, 16, 20 }, i, n, m;

	product_make(&p, &rng);
	((u16 *)(uintptr_t)p.w.data)[5 * p.k + 3] = 0x7fff;
	for (i = 0; i < ARRAY_SIZE(rows); i++) {
		p.x[(rows[i] - 1) * p.k] = INFINITY;
		product_run(&g, &p, 0, rows[i], p.y);
		for (m = 0; m < rows[i]; m++)
			for (n = 0; n < p.n; n++)
				ck_assert_int_eq(!isfinite(p.y[m * p.n + n]),
						 n == 5 || m == rows[i] - 1);
		p.x[(rows[i] - 1) * p.k] = 1;
	}
	product_free(&p);
	gpu_close(&g);
}
END_TEST

/* ----------------------------------------------------- several at a time */

#define MANY	6u

/* Q, K, V and more, of several types: each has the result that it has alone. */
static void try_many(struct gpu *g, u32 m, bool same_bits)
{
	static const enum kern_dtype types[MANY] = {
		KERN_BF16, KERN_BF16, KERN_BF16, KERN_BF16, KERN_BF16, KERN_F32,
	};
	/* The first and the fourth have rows that cuBLASLt would take. */
	static const u32 ns[MANY] = { 72, 1, 33, 64, 17, 20 };
	struct product p[MANY];
	struct kern_gemm_out out[MANY];
	struct kern_weight w[MANY];
	const u32 k = 328;
	float *x;
	u32 i;

	for (i = 0; i < MANY; i++) {
		p[i] = (struct product){ .m = m, .n = ns[i], .k = k,
					 .type = types[i], .y_gap = i % 3,
					 .has_bias = i % 2 };
		product_make(&p[i], &rng);
		memcpy(p[i].x, p[0].x, (u64)m * k * sizeof(float));
		w[i] = p[i].w;
		w[i].data = gpu_put(g, p[i].w.data, (u64)ns[i] * k *
				    kern_dtype_size(types[i]), 0);
		out[i] = (struct kern_gemm_out){
			.w = &w[i], .y_ld = ns[i] + i % 3,
			.bias = i % 2 ? gpu_put(g, p[i].bias, ns[i] * 4, 0) :
					NULL,
			.y = gpu_put(g, p[i].y,
				     (m * (ns[i] + i % 3) + 8) * 4, 0),
		};
	}
	x = gpu_put(g, p[0].x, (u64)m * k * 4, 0);
	cuda_gemm_many(g->ctx, x, 0, out, MANY, m);
	for (i = 0; i < MANY; i++) {
		const u64 bytes = (m * (ns[i] + i % 3) + 8) * 4;
		float *alone = poisoned(bytes / 4);

		ck_assert_int_eq(g->ops->mem_get(g->ctx, p[i].y, out[i].y,
						 bytes), 0);
		product_close(&p[i], types[i] == KERN_F32 || same_bits ?
			      KERN_TOL : KERN_TOL_FAST);
		product_run(g, &p[i], 0, m, alone);
		ck_assert_msg(!same_bits || !memcmp(alone, p[i].y, bytes),
			      "part %u of %u rows", i, m);
		free(alone);
		gpu_drop(g, w[i].data, 0);
		gpu_drop(g, out[i].y, 0);
		if (out[i].bias)
			gpu_drop(g, out[i].bias, 0);
		product_free(&p[i]);
	}
	gpu_drop(g, x, 0);
}

START_TEST(test_many)
{
	static const u32 rows[] = { 1, 5, 16, 30 };
	struct gpu g;
	u32 i;

	if (_i == 2) {
		if (standin_absent("test_many with cuBLASLt"))
			return;
		unsetenv("KVMM_CUBLASLT");
		standin_env("KVMM_CUBLASLT", "libcublasLt.so");
	}
	g = gpu_open(_i ? "cuda-fast" : "cuda");
	ck_assert_int_eq(cuda_gemm_lt(cuda_of(g.ctx)) != NULL, _i == 2);
	for (i = 0; i < ARRAY_SIZE(rows); i++)
		try_many(&g, rows[i], !_i);
	gpu_close(&g);
}
END_TEST

/* No rows, no launch. */
START_TEST(test_no_rows)
{
	struct gpu g = gpu_open("cuda-fast");
	struct kern_weight w = { .dtype = KERN_BF16, .rows = 8, .cols = 8 };

	g.ops->gemm(g.ctx, NULL, 0, &w, NULL, 0, NULL, 0);
	ck_assert_int_eq(g.ops->wait(g.ctx), 0);
	gpu_close(&g);
}
END_TEST

/* ----------------------------------------------------------- split of K */

START_TEST(test_range)
{
	const u32 sms[] = { 1, 46, 108, 132 };
	u32 i, blocks, k, range, splits;

	for (i = 0; i < 4 * 2000; i++) {
		blocks = 1 + rng_next(&rng) % 3000;
		k = 1 + rng_next(&rng) % 30000;
		range = cuda_gemm_range(blocks, k, sms[i % 4]);
		splits = DIV_ROUND_UP(k, range);
		ck_assert_uint_gt(range, 0);
		ck_assert_uint_eq(range % GEMM_SKINNY_K, 0);
		ck_assert_uint_le(splits, 16);
	}
	/* An 8B model's projections: all 132 multiprocessors keep reading. */
	ck_assert_uint_le(cuda_gemm_range(64, 4096, 132), 512);
	ck_assert_uint_le(cuda_gemm_range(64, 14336, 132), 1792);
	/* One multiprocessor is busy anyway; too many blocks have no tickets. */
	ck_assert_uint_ge(cuda_gemm_range(64, 4096, 1), 4096);
	ck_assert_uint_ge(cuda_gemm_range(20000, 4096, 132), 4096);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cuda_gemm");
	TCase *t = tcase_create("cuda_gemm");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(t, setup, NULL);
	tcase_set_tags(t, "unit kernels cuda");
	tcase_set_timeout(t, 300);
	tcase_add_test(t, test_exact_near);
	tcase_add_test(t, test_exact_order);
	tcase_add_test(t, test_exact_company);
	tcase_add_test(t, test_fast_near);
	tcase_add_test(t, test_fast_all_summed);
	tcase_add_loop_test(t, test_nan_stays, 0, 2);
	tcase_add_loop_test(t, test_many, 0, 3);
	tcase_add_test(t, test_no_rows);
	tcase_add_test(t, test_range);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? 1 : 0;
}
