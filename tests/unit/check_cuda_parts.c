// SPDX-License-Identifier: Apache-2.0
/*
 * check_cuda_parts.c - many products of few rows in one launch, by the stand-in
 *
 * Exact mode: every type of weights has the bits of single calls.  Fast mode: the results
 * are near those of single calls, which split K differently.  The launches are counted, and
 * a recorded launch keeps its own arguments.
 */
#include "block_draw.h"
#include "cuda_gemm_fixture.h"

#define PARTS	140u
#define COLS	512u
#define ROWS	70u
#define X_ROWS	80u

/* Some matrices of one type, and what is multiplied; all but @rows on the device. */
struct world {
	struct gpu		g;
	struct cu_api		api;
	struct kern_weight	w[3];
	void			*mem[3];
	float			*x;
	float			*bias;
	float			*y;
	struct kern_gemm_part	part[PARTS];
	u64			first[PARTS + 1];	/* floats of y before */
};

static CUresult (*real_launch)(CUfunction, unsigned int, unsigned int, unsigned int,
			       unsigned int, unsigned int, unsigned int, unsigned int,
			       CUstream, void **, void **);
static struct rng rng;
static u32 launches;

static CUresult count_launch(CUfunction f, unsigned int gx, unsigned int gy,
			     unsigned int gz, unsigned int bx, unsigned int by,
			     unsigned int bz, unsigned int smem, CUstream s, void **p,
			     void **extra)
{
	launches++;
	return real_launch(f, gx, gy, gz, bx, by, bz, smem, s, p, extra);
}

static void setup(void)
{
	rng.s = 5;
	draw_state = 3;
	setenv("KVMM_CUBLASLT", "none", 1);
}

/* A matrix on the device, packed if the mode does that. */
static struct kern_weight matrix(struct world *w, enum kern_dtype t, u32 i)
{
	const u64 n = (u64)ROWS * COLS;
	const u64 bytes = kern_is_blocks(t) ? ROWS * kern_row_bytes(t, COLS) :
					      n * kern_dtype_size(t);
	struct kern_weight d = { .dtype = t, .rows = ROWS, .cols = COLS };
	u8 *data = malloc(bytes);
	float f;
	u64 j;

	for (j = 0; kern_is_blocks(t) && j < n / kern_block_elems(t); j++)
		block_draw(t, data + j * kern_block_bytes(t));
	for (j = 0; !kern_is_blocks(t) && j < n; j++) {
		f = rng_float(&rng);
		if (t == KERN_F32)
			((float *)(void *)data)[j] = f;
		else
			((u16 *)(void *)data)[j] = t == KERN_F16 ?
						   f16_random(&rng) : bf16_of(f);
	}
	d.data = w->mem[i] = gpu_put(&w->g, data, bytes, 0);
	if (w->g.ops->pack_bytes && w->g.ops->pack_bytes(&d)) {
		w->mem[i] = w->g.ops->mem_alloc(w->g.ctx,
						w->g.ops->pack_bytes(&d));
		w->g.ops->pack(w->g.ctx, &d, w->mem[i]);
	}
	free(data);
	return d;
}

static void world_open(struct world *w, const char *mode, enum kern_dtype t)
{
	struct cuda_ctx *c;
	float *f;
	u32 i;

	w->g = gpu_open(mode);
	c = cuda_of(w->g.ctx);
	c->sms = 132;
	w->api = *c->cu;
	real_launch = w->api.LaunchKernel;
	w->api.LaunchKernel = count_launch;
	c->cu = &w->api;
	for (i = 0; i < 3; i++)
		w->w[i] = matrix(w, t, i);
	f = rng_floats(&rng, X_ROWS * COLS);
	w->x = gpu_put(&w->g, f, X_ROWS * COLS * 4, 0);
	w->bias = gpu_put(&w->g, f, ROWS * 4, 0);
	free(f);
}

/* The device is closed with its memory. */
static void world_close(struct world *w)
{
	gpu_drop(&w->g, w->y, 0);
	gpu_close(&w->g);
}

/* Products with the given numbers of rows, in turn; y has room for them. */
static void world_parts(struct world *w, const u32 *rows, u32 nr_rows, u32 nr)
{
	u32 i, m;

	w->first[0] = 0;
	for (i = 0; i < nr; i++)
		w->first[i + 1] = w->first[i] + rows[i % nr_rows] * ROWS;
	w->y = w->g.ops->mem_alloc(w->g.ctx, w->first[nr] * 4 + 4);
	for (i = 0; i < nr; i++) {
		m = rows[i % nr_rows];
		w->part[i] = (struct kern_gemm_part){
			.x = w->x + i * 3 % (X_ROWS - m + 1) * COLS,
			.w = &w->w[i % 3], .bias = i % 2 ? w->bias : NULL,
			.m = m, .y = w->y + w->first[i],
		};
	}
}

/* Fill y with ones, run the products at once or one by one; in memory from malloc(). */
static float *world_run(struct world *w, u32 nr, bool single)
{
	const struct kern_gemm_part *p;
	float *y = poisoned(w->first[nr] + 1);

	w->g.ops->mem_put(w->g.ctx, w->y, y, w->first[nr] * 4 + 4);
	launches = 0;
	if (!single)
		kern_gemm_parts(w->g.ops, w->g.ctx, w->part, nr);
	for (p = w->part; single && p < w->part + nr; p++)
		w->g.ops->gemm(w->g.ctx, p->x, p->x_ld, p->w, p->bias, p->m,
			       p->y, p->y_ld);
	ck_assert_int_eq(w->g.ops->mem_get(w->g.ctx, y, w->y,
					   w->first[nr] * 4 + 4), 0);
	ck_assert_msg(isnan(y[w->first[nr]]), "written behind y");
	return y;
}

/* The same results; @tol 0: the same bits. */
static void try_parts(struct world *w, const u32 *rows, u32 nr_rows, u32 nr,
		      u32 want_launches, double tol)
{
	float *got, *want;
	double top = 0;
	u64 i;

	world_parts(w, rows, nr_rows, nr);
	got = world_run(w, nr, false);
	ck_assert_uint_eq(launches, want_launches);
	want = world_run(w, nr, true);
	for (i = 0; i < w->first[nr]; i++)
		top = fmax(top, fabs((double)want[i]));
	for (i = 0; i < w->first[nr]; i++)
		ck_assert_msg(!memcmp(&got[i], &want[i], 4) ||
			      fabs((double)got[i] - want[i]) < tol * top,
			      "%s: number %llu is %a, not %a",
			      kern_dtype_name(w->w[0].dtype), (unsigned long long)i,
			      (double)got[i], (double)want[i]);
	free(got);
	free(want);
}

static const enum kern_dtype types[] = {
	KERN_F32, KERN_BF16, KERN_F16, KERN_Q4_0, KERN_Q8_0, KERN_Q4_K, KERN_Q6_K,
	KERN_MXFP4,
};

static const u32 one[] = { 1 }, few[] = { 1, 0, 5, 16, 2 };

/* Of 10 products 4 are a group, 17 and 33 rows are alone, and 2 have no rows. */
static const u32 mixed[] = { 3, 17, 1, 33, 0 };

START_TEST(test_exact)
{
	struct world w = { 0 };

	world_open(&w, "cuda", types[_i]);
	try_parts(&w, one, 1, 7, 1, 0);
	gpu_drop(&w.g, w.y, 0);
	try_parts(&w, few, 5, 15, 1, 0);
	gpu_drop(&w.g, w.y, 0);
	w.g.ops->settles(w.g.ctx, true);
	try_parts(&w, mixed, 5, 10, 1 + 4, 0);
	world_close(&w);
}
END_TEST

/* The rows of one class of packed weights go to 64. */
START_TEST(test_fast)
{
	const enum kern_dtype t = types[_i];
	const bool packs = kern_is_blocks(t);
	struct world w = { 0 };

	world_open(&w, "cuda-fast", t);
	try_parts(&w, one, 1, 40, 1, 1e-5);
	gpu_drop(&w.g, w.y, 0);
	try_parts(&w, few, 5, 15, 1, 1e-5);
	gpu_drop(&w.g, w.y, 0);
	/* Single calls of bf16 with many rows round x first. */
	try_parts(&w, mixed, 5, 10, packs ? 2 : t == KERN_BF16 ? 9 : 5, 1e-5);
	world_close(&w);
}
END_TEST

/* More products than a launch takes. */
START_TEST(test_many)
{
	struct world w = { 0 };

	world_open(&w, _i ? "cuda-fast" : "cuda", KERN_BF16);
	try_parts(&w, one, 1, GEMM_GROUP, 1, _i ? 1e-5 : 0);
	gpu_drop(&w.g, w.y, 0);
	try_parts(&w, one, 1, PARTS, 3, _i ? 1e-5 : 0);
	world_close(&w);
}
END_TEST

/* One launch for each kind; a single product and one of another type are alone. */
START_TEST(test_kinds)
{
	struct world w = { 0 };
	struct kern_weight half;

	world_open(&w, "cuda", KERN_BF16);
	half = w.w[0];
	half.rows = ROWS / 2;
	w.w[2].dtype = KERN_F16;
	w.w[1] = half;
	try_parts(&w, one, 1, 6, 3, 0);
	gpu_drop(&w.g, w.y, 0);
	try_parts(&w, one, 1, 3, 3, 0);
	gpu_drop(&w.g, w.y, 0);
	try_parts(&w, (const u32[]){ 0 }, 1, 3, 0, 0);
	world_close(&w);
}
END_TEST

/* A recorded launch has its own copy of the products. */
START_TEST(test_recorded)
{
	struct world w = { 0 };
	const struct cu_api *cu;
	float *want, *got;
	CUgraphExec exec;
	CUgraph graph;
	CUstream s;

	world_open(&w, _i ? "cuda-fast" : "cuda", KERN_BF16);
	cu = &w.api;
	s = cuda_of(w.g.ctx)->stream;
	world_parts(&w, few, 5, 10);
	want = world_run(&w, 10, false);
	ck_assert_int_eq(cu->StreamBeginCapture(s, CU_CAPTURE_THREAD_LOCAL), 0);
	kern_gemm_parts(w.g.ops, w.g.ctx, w.part, 10);
	ck_assert_int_eq(cu->StreamEndCapture(s, &graph), 0);
	ck_assert_int_eq(cu->GraphInstantiate(&exec, graph, 0), 0);
	memset(w.part, 0, sizeof(w.part));
	got = poisoned(w.first[10] + 1);
	w.g.ops->mem_put(w.g.ctx, w.y, got, w.first[10] * 4);
	ck_assert_int_eq(cu->GraphLaunch(exec, s), 0);
	ck_assert_int_eq(w.g.ops->mem_get(w.g.ctx, got, w.y, w.first[10] * 4), 0);
	ck_assert(!memcmp(got, want, w.first[10] * sizeof(*got)));
	ck_assert_int_eq(cu->GraphExecDestroy(exec), 0);
	ck_assert_int_eq(cu->GraphDestroy(graph), 0);
	free(want);
	free(got);
	world_close(&w);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cuda_parts");
	TCase *t = tcase_create("cuda_parts");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(t, setup, NULL);
	tcase_set_tags(t, "unit kernels cuda");
	tcase_set_timeout(t, 300);
	tcase_add_loop_test(t, test_exact, 0, ARRAY_SIZE(types));
	tcase_add_loop_test(t, test_fast, 0, ARRAY_SIZE(types));
	tcase_add_loop_test(t, test_many, 0, 2);
	tcase_add_test(t, test_kinds);
	tcase_add_loop_test(t, test_recorded, 0, 2);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? 1 : 0;
}
