// SPDX-License-Identifier: Apache-2.0
/*
 * check_cuda_blaslt.c - long products by cuBLASLt, and its failures
 *
 * The library is the stand-in (tests/standin/cublaslt.c), which counts its
 * calls and fails when told to.  A shape is timed once, while no step is
 * recorded, and the fastest algorithm kept.  After any failure the product is
 * right, since our own tiles take over, and no object is left behind.  Our
 * declarations are compared with cublasLt.h where the toolkit is installed.
 *
 * from: full
 */
#include <dlfcn.h>
#include <stddef.h>

#include "cuda_gemm_fixture.h"
#include "kernels/cuda/blaslt.h"
#include "tests/standin/cublaslt.h"

static struct rng rng;
static struct fake_lt *fake;

static void setup(void)
{
	void *lib;

	rng.s = 12;
	standin_env("KVMM_CUBLASLT", "libcublasLt.so");
	lib = dlopen(getenv("KVMM_CUBLASLT"), RTLD_NOW | RTLD_LOCAL);
	ck_assert_msg(lib, "%s", dlerror());
	fake = dlsym(lib, "fake_lt");
	ck_assert_ptr_nonnull(fake);
}

/* One product of @m rows, which must be right, by the library or by our tiles. */
static void right(struct gpu *g, u32 m, u32 n, u32 k, bool settle)
{
	struct product p = { .m = m, .n = n, .k = k, .type = KERN_BF16,
			     .has_bias = m % 2, .settle = settle, .x_gap = 3,
			     .y_gap = 4 };

	product_make(&p, &rng);
	product_run(g, &p, 0, m, p.y);
	product_close(&p, KERN_TOL_FAST);
	product_free(&p);
}

static u32 timed(struct gpu *g)
{
	u32 chosen, n;

	blaslt_count(cuda_gemm_lt(cuda_of(g->ctx)), &chosen, &n);
	return n;
}

static u32 chosen(struct gpu *g)
{
	u32 n, t;

	blaslt_count(cuda_gemm_lt(cuda_of(g->ctx)), &n, &t);
	return n;
}

/*
 * The first use times each algorithm, in 1 and 3 runs; then the fastest runs
 * once.
 */
START_TEST(test_timed_once)
{
	struct gpu g = gpu_open("cuda-fast");

	right(&g, 16, 64, 64, false);
	ck_assert_uint_eq(fake->calls[FAKE_Matmul], 0);
	right(&g, 17, 64, 64, false);
	ck_assert_uint_eq(fake->by[0], 0);
	ck_assert_uint_eq(fake->by[1], 4);
	ck_assert_uint_eq(fake->by[2], 5);
	right(&g, 20, 64, 64, true);
	right(&g, 32, 64, 64, false);
	ck_assert_uint_eq(fake->by[1], 4);
	ck_assert_uint_eq(fake->by[2], 7);
	ck_assert_uint_eq(timed(&g), 1);
	right(&g, 33, 64, 64, false);
	right(&g, 33, 68, 64, true);
	right(&g, 33, 64, 72, false);
	ck_assert_uint_eq(timed(&g), 4);
	gpu_close(&g);
	ck_assert_int_eq(fake->objects, 0);
}
END_TEST

/* Nothing waits while a step is recorded; outside, a guessed algorithm is timed. */
START_TEST(test_recorded)
{
	struct gpu g = gpu_open("cuda-fast");
	struct cuda_ctx *c = cuda_of(g.ctx);
	struct blaslt *lt = cuda_gemm_lt(c);
	struct blaslt_gemm job = { .x_ld = 64, .y_ld = 64, .m = 64, .n = 64,
				   .k = 64 };

	job.y = g.ops->mem_alloc(g.ctx, 64 * 64 * 4);
	job.x = job.w = g.ops->mem_alloc(g.ctx, 64 * 64 * 2);
	c->step = CUDA_STEP_RECORD;
	ck_assert(blaslt_gemm(c, lt, &job));
	ck_assert(blaslt_gemm(c, lt, &job));
	ck_assert_uint_eq(fake->by[1], 2);
	ck_assert_uint_eq(chosen(&g), 1);
	ck_assert_uint_eq(timed(&g), 0);
	c->step = CUDA_STEP_NONE;
	ck_assert(blaslt_gemm(c, lt, &job));
	ck_assert_uint_eq(timed(&g), 1);
	ck_assert_uint_eq(fake->by[2], 5);
	g.ops->mem_free(g.ctx, (void *)(uintptr_t)job.x);
	g.ops->mem_free(g.ctx, job.y);
	gpu_close(&g);
	ck_assert_int_eq(fake->objects, 0);
}
END_TEST

/* An algorithm that does not take another M: the library is asked again. */
START_TEST(test_strict)
{
	struct gpu g = gpu_open("cuda-fast");

	fake->strict = true;
	right(&g, 17, 64, 64, false);
	ck_assert_uint_eq(fake->by[2], 5);
	right(&g, 21, 64, 64, true);
	ck_assert_uint_eq(fake->by[1], 5);
	ck_assert_uint_eq(fake->by[2], 5);
	gpu_close(&g);
	ck_assert_int_eq(fake->objects, 0);
}
END_TEST

/* The library is not asked for shapes that it cannot take. */
START_TEST(test_not_its_shapes)
{
	struct gpu g = gpu_open("cuda-fast");
	struct product p = { .m = 20, .n = 64, .k = 64, .type = KERN_BF16,
			     .w_shift = 2 };

	right(&g, 20, 63, 64, false);
	right(&g, 20, 64, 63, false);
	product_make(&p, &rng);
	product_run(&g, &p, 0, p.m, p.y);
	product_close(&p, KERN_TOL_FAST);
	product_free(&p);
	p.w_shift = 0;
	p.type = KERN_F32;
	product_make(&p, &rng);
	product_run(&g, &p, 0, p.m, p.y);
	product_close(&p, KERN_TOL);
	product_free(&p);
	ck_assert_uint_eq(fake->calls[FAKE_Matmul], 0);
	gpu_close(&g);
	g = gpu_open("cuda");
	right(&g, 20, 64, 64, false);
	ck_assert_uint_eq(fake->calls[FAKE_Matmul], 0);
	ck_assert_uint_eq(fake->calls[FAKE_Create], 1);
	gpu_close(&g);
}
END_TEST

/* Each function fails for good: our tiles take over, and the calls end. */
START_TEST(test_fails_always)
{
	struct gpu g;
	u32 calls;

	fake->fail_always[_i] = true;
	g = gpu_open("cuda-fast");
	if (!cuda_gemm_lt(cuda_of(g.ctx)))
		ck_assert_int_eq(fake->objects, 0);
	right(&g, 17, 64, 64, false);
	calls = fake->calls[FAKE_Matmul];
	right(&g, 18, 64, 64, true);
	ck_assert_uint_eq(fake->by[0] + fake->by[1] + fake->by[2], 0);
	ck_assert_uint_eq(fake->calls[FAKE_Matmul], calls);
	ck_assert_uint_gt(fake->calls[_i], 0);
	gpu_close(&g);
	ck_assert_int_eq(fake->objects, 0);
}
END_TEST

/* Each call of each function fails once. */
START_TEST(test_fails_once)
{
	const u32 most = _i == FAKE_Matmul ? 12 : 6;
	struct gpu g;
	u32 at;

	for (at = 1; at <= most; at++) {
		memset(fake, 0, sizeof(*fake));
		fake->fail_at[_i] = at;
		g = gpu_open("cuda-fast");
		right(&g, 17, 64, 64, false);
		right(&g, 19, 64, 64, true);
		right(&g, 17, 64, 64, false);
		gpu_close(&g);
		ck_assert_int_eq(fake->objects, 0);
	}
}
END_TEST

/* More shapes than are remembered are still done by the library. */
START_TEST(test_many_shapes)
{
	struct gpu g = gpu_open("cuda-fast");
	struct cuda_ctx *c = cuda_of(g.ctx);
	struct blaslt_gemm job = { .x_ld = 8, .y_ld = 8, .k = 8, .n = 8 };
	u32 i;

	job.x = g.ops->mem_alloc(g.ctx, 1024 * 16);
	job.w = g.ops->mem_alloc(g.ctx, 1024 * 16);
	job.y = g.ops->mem_alloc(g.ctx, 64 * 1024 * 4);
	c->step = CUDA_STEP_RECORD;
	job.m = 1;
	for (i = 1; i <= 600; i++) {
		job.n = i;
		job.y_ld = ALIGN_UP(i, 4u);
		ck_assert(blaslt_gemm(c, cuda_gemm_lt(c), &job));
	}
	ck_assert_uint_eq(chosen(&g), 512);
	ck_assert_uint_eq(fake->by[1], 600);
	c->step = CUDA_STEP_NONE;
	g.ops->mem_free(g.ctx, (void *)(uintptr_t)job.x);
	g.ops->mem_free(g.ctx, (void *)(uintptr_t)job.w);
	g.ops->mem_free(g.ctx, job.y);
	gpu_close(&g);
	ck_assert_int_eq(fake->objects, 0);
}
END_TEST

/* No library, or one that is something else. */
START_TEST(test_missing)
{
	static const char *const names[] = {
		"none", "/nonexistent/libcublasLt.so", "libm.so.6",
	};
	struct gpu g;

	setenv("KVMM_CUBLASLT", names[_i], 1);
	g = gpu_open("cuda-fast");
	ck_assert_ptr_null(cuda_gemm_lt(cuda_of(g.ctx)));
	right(&g, 17, 64, 64, false);
	gpu_close(&g);
}
END_TEST

/* Declarations against the toolkit's: the comparison is at compile time. */
#ifdef HAVE_CUBLASLT_H
#include "cublaslt_layout.h"
#else
static const char *cublaslt_layout(void)
{
	return "no cublasLt.h where this was built: declarations not compared";
}
#endif

START_TEST(test_declared)
{
	const char *why = cublaslt_layout();

	if (why)
		printf("check_cuda_blaslt: %s\n", why);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cuda_blaslt");
	TCase *t = tcase_create("cuda_blaslt");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_set_tags(t, "unit kernels cuda");
	tcase_add_checked_fixture(t, setup, NULL);
	tcase_set_timeout(t, 120);
	tcase_add_test(t, test_timed_once);
	tcase_add_test(t, test_recorded);
	tcase_add_test(t, test_strict);
	tcase_add_test(t, test_not_its_shapes);
	tcase_add_loop_test(t, test_fails_always, 0, FAKE_NR_CALLS);
	tcase_add_loop_test(t, test_fails_once, 0, FAKE_NR_CALLS);
	tcase_add_test(t, test_many_shapes);
	tcase_add_loop_test(t, test_missing, 0, 3);
	tcase_add_test(t, test_declared);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
