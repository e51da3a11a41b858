// SPDX-License-Identifier: Apache-2.0
/*
 * check_cuda_blocks.c - quantized weights on the GPU, run by the stand-in
 *
 * Groups: block_groups.h, which device code includes, gives the numbers of kern_dequant()
 * for any bytes.  Exact mode: products and embeddings with weights in blocks have the bits
 * of the same numbers in f32, in every kernel, at odd addresses.  Fast mode: products with
 * packed weights of every type are near; where x is bf16 already, only sums differ.
 */
#include "block_draw.h"
#include "cuda_gemm_fixture.h"
#include "kernels/block_groups.h"
#include "kernels/cuda/blaslt.h"
#include "tests/standin/sanitized.h"

#define COLS_MAX	1280u
#define ROWS_MAX	140u
#define M_MAX		70u

static u8 data[ROWS_MAX * COLS_MAX * 2];
static float numbers[ROWS_MAX * COLS_MAX], x[M_MAX * COLS_MAX], bias[ROWS_MAX];
static float got[M_MAX * COLS_MAX], want[M_MAX * COLS_MAX];

static void setup(void)
{
	setenv("KVMM_CUBLASLT", "none", 1);
}

static struct kern_weight weight_draw(enum kern_dtype t, u32 rows, u32 cols)
{
	const u64 n = (u64)rows * cols / kern_block_elems(t);
	u64 i;

	ck_assert_uint_le(rows * kern_row_bytes(t, cols), sizeof(data));
	draw_state = t * 1000 + rows + cols;
	for (i = 0; i < n; i++)
		block_draw(t, data + i * kern_block_bytes(t));
	kern_dequant(t, data, (u64)rows * cols, numbers);
	for (i = 0; i < M_MAX * (u64)cols; i++)
		x[i] = draw_float();
	for (i = 0; i < rows; i++)
		bias[i] = draw_float();
	return (struct kern_weight){
		.data = data, .dtype = t, .rows = rows, .cols = cols,
	};
}

/* Columns for the tests: one block, or several that do not fill a run of sums. */
static u32 cols_of(enum kern_dtype t, bool many)
{
	const u32 elems = kern_block_elems(t);

	return many ? ALIGN_UP(elems * 2 + 200, elems) : elems;
}

/* ------------------------------------------------------------------ groups */

/* The group by the functions that device code has. */
static struct block_scale group_plain(enum kern_dtype t, const u8 *b, u32 g, float *to)
{
	switch (t) {
#define x(id, name)							\
	case KERN_##id:							\
		return group_##name(b, g, to);
	BLOCK_GROUPS(x)
#undef x
	default:
		ck_abort_msg("type %u has no groups", t);
	}
}

START_TEST(test_groups)
{
	const enum kern_dtype t = KERN_FIRST_BLOCKS + _i;
	const u32 elems = kern_block_elems(t), bytes = kern_block_bytes(t);
	float all[KERN_BLOCK_MAX_ELEMS], flat[BLOCK_GROUP], f[BLOCK_GROUP];
	u8 b[KERN_BLOCK_MAX_BYTES];
	struct block_scale s;
	u32 round, i, g;

	draw_state = _i;
	for (round = 0; round < 3000; round++) {
		for (i = 0; i < bytes; i++)
			b[i] = draw();
		kern_dequant(t, b, elems, all);
		for (g = 0; g < elems / BLOCK_GROUP; g++) {
			s = group_plain(t, b, g, flat);
			block_scaled(flat, &s, f);
			for (i = 0; i < BLOCK_GROUP; i++)
				if (memcmp(&f[i], &all[g * 32 + i], 4) &&
				    !(isnan(f[i]) && isnan(all[g * 32 + i])))
					ck_abort_msg("%s: element %u of group %u is %a, not %a",
						     kern_dtype_name(t), i, g,
						     (double)f[i],
						     (double)all[g * 32 + i]);
		}
	}
}
END_TEST

/* -------------------------------------------------------------- exact mode */

/* The product of @m rows with @w, @shift bytes off alignment, into @y. */
static void run(struct gpu *g, const struct kern_weight *w, u64 bytes, u32 m, u32 shift,
		float *y)
{
	float *dx = gpu_put(g, x, m * (u64)w->cols * 4, 0);
	float *db = gpu_put(g, bias, w->rows * 4ull, 0);
	float *dy = gpu_put(g, y, m * (u64)w->rows * 4, 0);
	struct kern_weight d = *w;

	d.data = gpu_put(g, w->data, bytes, shift);
	g->ops->gemm(g->ctx, dx, 0, &d, db, m, dy, 0);
	ck_assert_int_eq(g->ops->mem_get(g->ctx, y, dy, m * (u64)w->rows * 4), 0);
	gpu_drop(g, dx, 0);
	gpu_drop(g, db, 0);
	gpu_drop(g, dy, 0);
	gpu_drop(g, d.data, shift);
}

static struct kern_weight plain_of(const struct kern_weight *w)
{
	struct kern_weight p = *w;

	p.data = numbers;
	p.dtype = KERN_F32;
	return p;
}

static void try_bits(struct gpu *g, enum kern_dtype t, u32 m, u32 rows, bool many,
		     u32 shift)
{
	const struct kern_weight w = weight_draw(t, rows, cols_of(t, many));
	const struct kern_weight p = plain_of(&w);
	const u64 nr = (u64)m * rows;

	memset(got, 0xff, sizeof(got));
	run(g, &w, rows * kern_row_bytes(t, w.cols), m, shift, got);
	run(g, &p, nr ? rows * (u64)w.cols * 4 : 0, m, 0, want);
	ck_assert_msg(!memcmp(got, want, nr * sizeof(*got)),
		      "%s: %u rows of x, %u by %u: other bits than f32",
		      kern_dtype_name(t), m, rows, w.cols);
}

static void try_all_bits(struct gpu *g, enum kern_dtype t)
{
	struct cuda_ctx *c = cuda_of(g->ctx);

	g->ops->settles(g->ctx, false);
	try_bits(g, t, 1, 35, true, 3);
	try_bits(g, t, 1, 1, false, 0);
	try_bits(g, t, 6, 37, true, 1);
	c->sms = 132;
	try_bits(g, t, 18, 70, true, 0);
	c->sms = 1;
	try_bits(g, t, 66, 130, false, 2);
	g->ops->settles(g->ctx, true);
	try_bits(g, t, 20, 3, true, 2);
}

/* A quarter of the types, since each context takes time to open. */
#define NR_QUARTER	((NR_KERN_DTYPES - KERN_FIRST_BLOCKS) / 4)
_Static_assert((NR_KERN_DTYPES - KERN_FIRST_BLOCKS) % 4 == 0, "all types are tested");

START_TEST(test_bits)
{
	struct gpu g = gpu_open("cuda");
	u32 i;

	for (i = 0; i < NR_QUARTER; i++)
		try_all_bits(&g, KERN_FIRST_BLOCKS + _i * NR_QUARTER + i);
	gpu_close(&g);
}
END_TEST

/* Fast mode has no better kernel for weights that are stored so. */
START_TEST(test_fast_is_exact)
{
	struct gpu g = gpu_open("cuda-fast");

	try_bits(&g, KERN_Q6_K, 5, 17, true, 0);
	try_bits(&g, KERN_Q4_0, 33, 17, true, 0);
	gpu_close(&g);
}
END_TEST

/* Q, K and V of two types, with one x. */
START_TEST(test_many)
{
	static const enum kern_dtype types[] = { KERN_Q4_K, KERN_Q4_K, KERN_Q6_K };
	struct gpu g = gpu_open("cuda");
	struct kern_gemm_out out[3];
	struct kern_weight w[3];
	float *y[3], *dx;
	u32 i;

	for (i = 0; i < 3; i++) {
		w[i] = weight_draw(types[i], 20 + i, 512);
		y[i] = malloc(7 * w[i].rows * sizeof(float));
		w[i].data = gpu_put(&g, data, w[i].rows *
				    kern_row_bytes(types[i], 512), 0);
		out[i] = (struct kern_gemm_out){
			.w = &w[i], .y = gpu_put(&g, got, 7 * w[i].rows * 4, 0),
		};
	}
	dx = gpu_put(&g, x, sizeof(x), 0);
	g.ops->gemm_many(g.ctx, dx, 0, out, 3, 7);
	for (i = 0; i < 3; i++) {
		const u64 bytes = 7 * w[i].rows * sizeof(float);

		ck_assert_int_eq(g.ops->mem_get(g.ctx, y[i], out[i].y, bytes), 0);
		g.ops->gemm(g.ctx, dx, 0, &w[i], NULL, 7, out[i].y, 0);
		ck_assert_int_eq(g.ops->mem_get(g.ctx, got, out[i].y, bytes), 0);
		ck_assert(!memcmp(got, y[i], bytes));
		gpu_drop(&g, w[i].data, 0);
		gpu_drop(&g, out[i].y, 0);
		free(y[i]);
	}
	gpu_drop(&g, dx, 0);
	gpu_close(&g);
}
END_TEST

/* -------------------------------------------------------------- embeddings */

/* Rows of a table, also at an odd address, rounded, and beyond the table's end. */
static void try_embed(struct gpu *g, enum kern_dtype t, u32 shift, bool settle)
{
	struct kern_weight w = weight_draw(t, 5, cols_of(t, true));
	const u32 ids[] = { 4, 0, 2, 4, 9 };
	u32 *d_ids = gpu_put(g, ids, sizeof(ids), 0);
	const u64 bytes = ARRAY_SIZE(ids) * (u64)w.cols * 4;
	float *dy = gpu_put(g, want, bytes, shift), f;
	u32 i, k;

	w.data = gpu_put(g, data, 5 * kern_row_bytes(t, w.cols), shift);
	g->ops->settles(g->ctx, settle);
	g->ops->embed(g->ctx, &w, d_ids, ARRAY_SIZE(ids), dy);
	ck_assert_int_eq(g->ops->mem_get(g->ctx, got, dy, bytes), 0);
	for (i = 0; i < ARRAY_SIZE(ids); i++) {
		for (k = 0; k < w.cols; k++) {
			f = numbers[(ids[i] < 5 ? ids[i] : 0) * w.cols + k];
			f = settle ? bf16_to(bf16_of(f)) : f;
			if (memcmp(&f, &got[i * w.cols + k], 4))
				ck_abort_msg("%s: row %u, element %u",
					     kern_dtype_name(t), i, k);
		}
	}
	gpu_drop(g, d_ids, 0);
	gpu_drop(g, dy, shift);
	gpu_drop(g, w.data, shift);
}

START_TEST(test_embed)
{
	struct gpu g = gpu_open("cuda");
	u32 t;

	for (t = KERN_FIRST_BLOCKS; t < NR_KERN_DTYPES; t++) {
		try_embed(&g, t, 0, false);
		try_embed(&g, t, 4, true);
	}
	gpu_close(&g);
}
END_TEST

/* ------------------------------------------------------- packed, fast mode */

/* Room behind the packed weights, which pack() must leave alone. */
#define BEHIND	64u

/* @w on the device, packed there; @to gets the place to free. */
static struct kern_weight packed_put(struct gpu *g, const struct kern_weight *w, void **to)
{
	const size_t bytes = g->ops->pack_bytes(w);
	u8 *fill = malloc(bytes + BEHIND), *back = malloc(bytes + BEHIND);
	struct kern_weight d = *w;
	const void *raw;
	u32 i;

	ck_assert_uint_gt(bytes, 0);
	memset(fill, 0xff, bytes + BEHIND);
	*to = gpu_put(g, fill, bytes + BEHIND, 0);
	raw = gpu_put(g, w->data, w->rows * kern_row_bytes(w->dtype, w->cols), 1);
	d.data = raw;
	g->ops->pack(g->ctx, &d, *to);
	ck_assert(d.packed && d.data == *to && !g->ops->pack_bytes(&d));
	ck_assert_int_eq(g->ops->mem_get(g->ctx, back, *to, bytes + BEHIND), 0);
	for (i = 0; i < BEHIND; i++)
		ck_assert_uint_eq(back[bytes + i], 0xff);
	gpu_drop(g, raw, 1);
	free(fill);
	free(back);
	return d;
}

/*
 * x of bf16 is not rounded, so only sums of f32 differ.  Sums of codes and of minima are
 * apart, so the bound has the largest number of the row.  W4 has scales of 16 bits.
 */
static double packed_bound(const struct kern_weight *w, u32 i, u32 n, bool narrow)
{
	double sum = fabs((double)bias[n]), all = sum, top = 0, t;
	u32 k;

	for (k = 0; k < w->cols; k++) {
		t = fabs((double)numbers[n * w->cols + k]);
		top = fmax(top, t);
		sum += t * fabs((double)x[i * w->cols + k]);
		all += fabs((double)x[i * w->cols + k]);
	}
	return (narrow ? 0x1p-16 : KERN_TOL_FAST) * sum + 4 * KERN_TOL * (all * top + sum);
}

static void packed_close(const struct kern_weight *w, u32 m, const float *y, bool narrow)
{
	double sum;
	u32 i, n, k;

	for (i = 0; i < m; i++) {
		for (n = 0; n < w->rows; n++) {
			sum = bias[n];
			for (k = 0; k < w->cols; k++)
				sum += (double)x[i * w->cols + k] *
				       numbers[n * w->cols + k];
			/* No number is not near. */
			if (fabs(y[i * w->rows + n] - sum) <=
			    packed_bound(w, i, n, narrow))
				continue;
			ck_abort_msg("%s: %u rows of x, %u by %u: (%u, %u) is %g, not %g",
				     kern_dtype_name(w->dtype), m, w->rows, w->cols, i,
				     n, (double)y[i * w->rows + n], sum);
		}
	}
}

/* One row of x; W is rounded to bf16, too. */
#define UNPACKED_M	521u

static void unpacked_close(const struct kern_weight *w, const float *row, const float *y)
{
	double sum, scale, t;
	u32 n, k;

	for (n = 0; n < w->rows; n++) {
		sum = scale = 0;
		for (k = 0; k < w->cols; k++) {
			t = (double)row[k] * numbers[n * w->cols + k];
			sum += t;
			scale += fabs(t);
		}
		ck_assert_msg(fabs(y[n] - sum) <= 2 * KERN_TOL_FAST * scale,
			      "%s: output %u is %g, not %g",
			      kern_dtype_name(w->dtype), n, (double)y[n], sum);
	}
}

static void try_packed(struct gpu *g, enum kern_dtype t, u32 m, u32 rows, u32 cols,
		       bool narrow)
{
	const struct kern_weight w = weight_draw(t, rows, cols);
	const u64 bytes = (u64)m * rows * 4;
	float *dx, *db, *dy;
	struct kern_weight d;
	void *to;
	u32 i;

	for (i = 0; narrow && i < m * cols; i++)
		x[i] = bf16_to(bf16_of(x[i]));
	d = packed_put(g, &w, &to);
	dx = gpu_put(g, x, (u64)m * cols * 4, 0);
	db = gpu_put(g, bias, rows * 4ull, 0);
	memset(got, 0xff, sizeof(got));
	dy = gpu_put(g, got, bytes + 4, 0);
	g->ops->gemm(g->ctx, dx, 0, &d, db, m, dy, 0);
	ck_assert_int_eq(g->ops->mem_get(g->ctx, got, dy, bytes + 4), 0);
	ck_assert_msg(isnan(got[m * rows]), "written behind y");
	packed_close(&w, m, got, narrow);
	g->ops->gemm(g->ctx, dx, 0, &d, db, m, dy, 0);
	ck_assert_int_eq(g->ops->mem_get(g->ctx, want, dy, bytes), 0);
	ck_assert_msg(!memcmp(got, want, bytes), "other bits the second time");
	gpu_drop(g, to, 0);
	gpu_drop(g, dx, 0);
	gpu_drop(g, db, 0);
	gpu_drop(g, dy, 0);
}

static void try_all_packed(struct gpu *g, enum kern_dtype t)
{
	const u32 elems = kern_block_elems(t), long_k = ALIGN_UP(1100u, elems);
	const struct kern_weight w = { .dtype = t, .rows = 1, .cols = elems };
	struct cuda_ctx *c = cuda_of(g->ctx);

	if (!g->ops->pack_bytes(&w)) {
		ck_assert_int_eq(t, KERN_Q2_K);
		return;
	}
	c->sms = 132;
	try_packed(g, t, 1, 70, long_k, true);
	try_packed(g, t, 3, 1, elems, false);
	try_packed(g, t, 11, 130, elems * 2, true);
	c->sms = 1;
	try_packed(g, t, 20, 17, long_k, false);
	try_packed(g, t, 64, 16, elems * 2, true);
	try_packed(g, t, 67, 65, elems, true);
}

START_TEST(test_packed)
{
	struct gpu g = gpu_open("cuda-fast");
	u32 i;

	for (i = 0; i < NR_QUARTER; i++)
		try_all_packed(&g, KERN_FIRST_BLOCKS + _i * NR_QUARTER + i);
	gpu_close(&g);
}
END_TEST

/* More columns of x than shared memory has room for: 64 rows, several chunks. */
START_TEST(test_packed_chunks)
{
	struct gpu g = gpu_open("cuda-fast");

	cuda_of(g.ctx)->sms = 1;
	try_packed(&g, KERN_W4_128, 64, 20, 1280, true);
	try_packed(&g, KERN_Q6_K, 40, 20, 1280, true);
	gpu_close(&g);
}
END_TEST

/* Elements and scales that are no numbers spoil their own row alone. */
START_TEST(test_packed_nan)
{
	static const enum kern_dtype types[] = { KERN_F8_128, KERN_Q4_K, KERN_W4_32 };
	struct gpu g = gpu_open("cuda-fast");
	const float nan = NAN;
	const u16 half = 0x7e00;
	struct kern_weight w, d;
	float *dx, *dy;
	void *to;
	u32 i, n;

	for (i = 0; i < ARRAY_SIZE(types); i++) {
		w = weight_draw(types[i], 20, 256);
		if (types[i] == KERN_F8_128)
			data[9 * kern_row_bytes(types[i], 256) + 40] = 0xff;
		else
			memcpy(data + 9 * kern_row_bytes(types[i], 256),
			       types[i] == KERN_Q4_K ? (const void *)&half : &nan,
			       types[i] == KERN_Q4_K ? 2 : 4);
		d = packed_put(&g, &w, &to);
		dx = gpu_put(&g, x, 2 * 256 * 4, 0);
		dy = gpu_put(&g, got, 2 * 20 * 4, 0);
		g.ops->gemm(g.ctx, dx, 0, &d, NULL, 2, dy, 0);
		ck_assert_int_eq(g.ops->mem_get(g.ctx, got, dy, 2 * 20 * 4), 0);
		for (n = 0; n < 40; n++)
			ck_assert_int_eq(isnan(got[n]), n % 20 == 9);
		gpu_drop(&g, to, 0);
		gpu_drop(&g, dx, 0);
		gpu_drop(&g, dy, 0);
	}
	gpu_close(&g);
}
END_TEST

/* Many rows: cuBLASLt multiplies W in bf16, or our tiles do where it does not take N. */
START_TEST(test_unpacked)
{
	static const enum kern_dtype types[] = {
		KERN_Q4_K, KERN_MXFP4, KERN_Q6_K, KERN_F8_128, KERN_W4_64,
	};
	const struct kern_weight w = weight_draw(types[_i], 21 - _i % 2, 256);
	u32 i, chosen, timed;
	struct kern_weight d;
	struct gpu g;
	float *dx, *dy;
	void *to;

	if (standin_absent("test_unpacked"))
		return;
	unsetenv("KVMM_CUBLASLT");
	standin_env("KVMM_CUBLASLT", "libcublasLt.so");
	g = gpu_open("cuda-fast");
	ck_assert_ptr_nonnull(cuda_gemm_lt(cuda_of(g.ctx)));
	d = packed_put(&g, &w, &to);
	dx = gpu_put(&g, x, sizeof(x), 0);
	dy = gpu_put(&g, x, UNPACKED_M * w.rows * 4ull, 0);
	for (i = 0; i < w.rows; i++)
		bias[i] = 0;
	/* Rows of x overlap, which makes more of them. */
	g.ops->gemm(g.ctx, dx, 64, &d, NULL, UNPACKED_M, dy, 0);
	for (i = 0; i < UNPACKED_M; i += 40) {
		ck_assert_int_eq(g.ops->mem_get(g.ctx, got, dy + i * w.rows,
						w.rows * 4), 0);
		unpacked_close(&w, x + 64ull * i, got);
	}
	/* Rows of 20 results are multiples of 16 bytes. */
	blaslt_count(cuda_gemm_lt(cuda_of(g.ctx)), &chosen, &timed);
	ck_assert_uint_eq(chosen, _i % 2);
	gpu_drop(&g, to, 0);
	gpu_drop(&g, dx, 0);
	gpu_drop(&g, dy, 0);
	gpu_close(&g);
}
END_TEST

/* Exact mode packs nothing; fast mode nothing but blocks. */
START_TEST(test_packs)
{
	const struct kern_weight plain = { .dtype = KERN_BF16, .rows = 16, .cols = 64 };

	ck_assert(!kern_get("cuda")->pack_bytes && !kern_get("cuda")->pack);
	ck_assert_uint_eq(kern_get("cuda-fast")->pack_bytes(&plain), 0);
}
END_TEST

int main(void)
{
	const int types = NR_KERN_DTYPES - KERN_FIRST_BLOCKS;
	Suite *s = suite_create("cuda_blocks");
	TCase *t = tcase_create("cuda_blocks");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(t, setup, NULL);
	tcase_set_tags(t, "unit kernels cuda");
	tcase_set_timeout(t, 300);
	tcase_add_loop_test(t, test_groups, 0, types);
	tcase_add_loop_test(t, test_bits, 0, 4);
	tcase_add_test(t, test_fast_is_exact);
	tcase_add_test(t, test_many);
	tcase_add_test(t, test_embed);
	tcase_add_loop_test(t, test_packed, 0, 4);
	tcase_add_test(t, test_packed_chunks);
	tcase_add_test(t, test_packed_nan);
	tcase_add_test(t, test_packs);
	tcase_add_loop_test(t, test_unpacked, 0, 5);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? 1 : 0;
}
