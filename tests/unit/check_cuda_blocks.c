// SPDX-License-Identifier: Apache-2.0
/*
 * check_cuda_blocks.c - quantized weights on the GPU, run by the stand-in
 *
 * Groups: block_groups.h, which device code includes, gives the numbers of kern_dequant()
 * for any bytes.  Exact mode: products and embeddings with weights in blocks have the bits
 * of the same numbers in f32, in every kernel, at odd addresses.
 */
#include "block_draw.h"
#include "cuda_gemm_fixture.h"
#include "kernels/block_groups.h"

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
				ck_assert_msg(!memcmp(&f[i], &all[g * 32 + i], 4) ||
					      (isnan(f[i]) && isnan(all[g * 32 + i])),
					      "%s: element %u of group %u is %a, not %a",
					      kern_dtype_name(t), i, g, (double)f[i],
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

START_TEST(test_bits)
{
	const enum kern_dtype t = KERN_FIRST_BLOCKS + _i;
	struct gpu g = gpu_open("cuda");
	struct cuda_ctx *c = cuda_of(g.ctx);

	try_bits(&g, t, 1, 35, true, 3);
	try_bits(&g, t, 1, 1, false, 0);
	try_bits(&g, t, 6, 37, true, 1);
	c->sms = 132;
	try_bits(&g, t, 18, 70, true, 0);
	c->sms = 1;
	try_bits(&g, t, 66, 130, false, 2);
	g.ops->settles(g.ctx, true);
	try_bits(&g, t, 20, 3, true, 2);
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
			ck_assert_msg(!memcmp(&f, &got[i * w.cols + k], 4),
				      "%s: row %u, element %u", kern_dtype_name(t),
				      i, k);
		}
	}
	gpu_drop(g, d_ids, 0);
	gpu_drop(g, dy, shift);
	gpu_drop(g, w.data, shift);
}

START_TEST(test_embed)
{
	const enum kern_dtype t = KERN_FIRST_BLOCKS + _i;
	struct gpu g = gpu_open("cuda");

	try_embed(&g, t, 0, false);
	try_embed(&g, t, 4, true);
	gpu_close(&g);
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
	tcase_add_loop_test(t, test_bits, 0, types);
	tcase_add_test(t, test_fast_is_exact);
	tcase_add_test(t, test_many);
	tcase_add_loop_test(t, test_embed, 0, types);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? 1 : 0;
}
