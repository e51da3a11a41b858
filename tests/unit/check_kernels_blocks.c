// SPDX-License-Identifier: Apache-2.0
/*
 * check_kernels_blocks.c - products and embeddings of weights in f16 and in blocks
 *
 * Exact mode: a product with quantized weights has the bits of the product with the same
 * numbers in f32, in every variant, for any number of rows.  Against the reference every
 * variant has the tolerance of kernels.h.
 */
#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "block_draw.h"
#include "kernels/kernels.h"

#define COLS_MAX	2304u
#define ROWS_MAX	140u
#define M_MAX		70u

static u8 data[ROWS_MAX * COLS_MAX * 2];
static float numbers[ROWS_MAX * COLS_MAX], x[M_MAX * COLS_MAX], bias[ROWS_MAX];
static float got[M_MAX * ROWS_MAX], want[M_MAX * ROWS_MAX];

static struct kern_weight weight_draw(enum kern_dtype t, u32 rows, u32 cols)
{
	const u64 n = (u64)rows * cols / kern_block_elems(t);
	u64 i;
	u16 h;

	draw_state = t * 1000 + rows + cols;
	for (i = 0; i < n; i++) {
		if (t == KERN_F16) {
			h = 0x2000 + draw() % 0x1c00 + (draw() % 2 << 15);
			h = i % 97 ? h : draw() % 1024;
			memcpy(data + 2 * i, &h, sizeof(h));
			numbers[i] = kern_f16(h);
		} else {
			block_draw(t, data + i * kern_block_bytes(t));
		}
	}
	if (t != KERN_F16)
		kern_dequant(t, data, (u64)rows * cols, numbers);
	for (i = 0; i < M_MAX * (u64)cols; i++)
		x[i] = draw_float();
	for (i = 0; i < rows; i++)
		bias[i] = draw_float();
	return (struct kern_weight){
		.data = data, .dtype = t, .rows = rows, .cols = cols,
	};
}

/* The types of the tests: f16, and all types of blocks. */
#define NR_TYPES	(NR_KERN_DTYPES - KERN_FIRST_BLOCKS + 1)

static enum kern_dtype type_at(u32 i)
{
	return i ? KERN_FIRST_BLOCKS + i - 1 : KERN_F16;
}

static u32 cols_of(enum kern_dtype t, u32 shape)
{
	const u32 elems = kern_block_elems(t);

	if (t == KERN_F16)
		return shape ? 1333 : 40;
	return shape ? ALIGN_UP(1100u, elems) : elems;
}

static void check_close(const struct kern_weight *w, u32 m, const char *variant)
{
	double scale;
	u32 i, n, k;

	for (i = 0; i < m; i++) {
		for (n = 0; n < w->rows; n++) {
			scale = fabsf(bias[n]);
			for (k = 0; k < w->cols; k++)
				scale += fabs((double)x[i * w->cols + k] *
					      numbers[n * w->cols + k]);
			if (!(fabs((double)got[i * w->rows + n] -
				   want[i * w->rows + n]) <= KERN_TOL * scale))
				ck_abort_msg("%s %s: row %u, column %u",
					     kern_dtype_name(w->dtype), variant,
					     i, n);
		}
	}
}

/* Products of one shape in all implementations. */
static void check_gemm(enum kern_dtype t, u32 m, u32 rows, u32 cols)
{
	const struct kern_weight w = weight_draw(t, rows, cols);
	struct kern_weight plain = w;
	const struct kern_ops *ops;
	u32 i;

	plain.data = numbers;
	plain.dtype = KERN_F32;
	kern_at(0)->gemm(NULL, x, 0, &w, bias, m, want, 0);
	for (i = 1; (ops = kern_at(i)); i++) {
		ops->gemm(NULL, x, 0, &w, bias, m, got, 0);
		check_close(&w, m, ops->variant);
		ops->gemm(NULL, x, 0, &plain, bias, m, want, 0);
		ck_assert_msg(!memcmp(got, want, m * rows * sizeof(*got)),
			      "%s %s: %u rows: other bits than f32",
			      kern_dtype_name(t), ops->variant, m);
	}
}

START_TEST(test_gemm)
{
	const enum kern_dtype t = type_at(_i);

	check_gemm(t, 1, ROWS_MAX, cols_of(t, 1));
	check_gemm(t, 1, 3, cols_of(t, 0));
	check_gemm(t, 7, 37, cols_of(t, 1));
	check_gemm(t, M_MAX, 70, cols_of(t, 1));
}
END_TEST

/* Columns in another order, packed or not: the product with rows of x in that order. */
static void check_order(const struct kern_ops *ops, struct kern_weight w, u32 m)
{
	static u32 order[COLS_MAX];
	static float sorted[M_MAX * COLS_MAX];
	struct kern_ctx *ctx;
	u32 i, k;

	ck_assert_int_eq(kern_ctx_create(2, &ctx), 0);
	for (k = 0; k < w.cols; k++)
		order[k] = (k * 7 + 3) % w.cols;
	for (i = 0; i < m; i++)
		for (k = 0; k < w.cols; k++)
			sorted[i * w.cols + k] = x[i * w.cols + order[k]];
	ops->gemm(ctx, sorted, 0, &w, bias, m, want, 0);
	w.order = order;
	ops->gemm(ctx, x, 0, &w, bias, m, got, 0);
	ck_assert_msg(!memcmp(got, want, m * w.rows * sizeof(*got)), "%s %s",
		      kern_dtype_name(w.dtype), ops->variant);
	ops->gemm(NULL, x, 0, &w, bias, m, got, 0);
	ck_assert(!memcmp(got, want, m * w.rows * sizeof(*got)));
	kern_ctx_destroy(ctx);
}

START_TEST(test_order)
{
	struct kern_weight w = weight_draw(KERN_W4_128, 40, 1280);
	const struct kern_ops *ops;
	void *to;
	u32 i;

	for (i = 0; (ops = kern_at(i)); i++)
		check_order(ops, w, M_MAX);
	ops = kern_get("cpu-fast");
	if (!ops->pack_bytes || !ops->pack_bytes(&w))
		return;
	to = aligned_alloc(64, ops->pack_bytes(&w));
	ops->pack(NULL, &w, to);
	check_order(ops, w, M_MAX);
	free(to);
}
END_TEST

/* The most columns that an order may have, without threads and with them. */
START_TEST(test_order_longest)
{
	const u32 n = KERN_MAX_ORDER;
	u8 *blocks = calloc(1, kern_row_bytes(KERN_W8_128, n));
	u32 *order = calloc(n, sizeof(*order));
	float *row = calloc(n, sizeof(*row)), y[2];
	const struct kern_weight w = {
		.data = blocks, .dtype = KERN_W8_128, .rows = 1, .cols = n,
		.order = order,
	};
	struct kern_ctx *ctx;
	float scale = 1.0f;
	u32 i;

	ck_assert_int_eq(kern_ctx_create(2, &ctx), 0);
	for (i = 0; i < n; i++)
		order[i] = n - 1 - i;
	for (i = 0; i < n / 128; i++)
		memcpy(blocks + i * 132, &scale, sizeof(scale));
	blocks[4] = 3;			/* of the last number of x */
	row[n - 1] = 5.0f;
	kern_get("cpu")->gemm(NULL, row, 0, &w, NULL, 1, &y[0], 0);
	kern_get("cpu")->gemm(ctx, row, 0, &w, NULL, 1, &y[1], 0);
	ck_assert(y[0] == 15.0f && y[1] == 15.0f);
	kern_ctx_destroy(ctx);
	free(blocks);
	free(order);
	free(row);
}
END_TEST

START_TEST(test_embed)
{
	const enum kern_dtype t = type_at(_i);
	const struct kern_weight w = weight_draw(t, 5, cols_of(t, 1));
	const u32 ids[] = { 4, 0, 2, 4 };
	const struct kern_ops *ops;
	u32 i, j;

	for (i = 0; (ops = kern_at(i)); i++) {
		memset(got, 0, sizeof(got));
		ops->embed(NULL, &w, ids, ARRAY_SIZE(ids), got);
		for (j = 0; j < ARRAY_SIZE(ids); j++)
			ck_assert_msg(!memcmp(got + j * w.cols,
					      numbers + ids[j] * w.cols,
					      w.cols * sizeof(*got)),
				      "%s %s", kern_dtype_name(t), ops->variant);
	}
}
END_TEST

/* ---- packed, in fast mode ---- */

static const char * const packers[] = {
	"cpu:avx2int8", "cpu:avx512vnni", "cpu:avx512bf16",
};

/*
 * The most that an element may differ: each x moves by half a step of its group of 32,
 * which is a 127th of its largest magnitude.  Sums of f32 have the tolerance of others, but
 * of codes and minima apart, so by the largest number of the row.
 */
static double ints_bound(const struct kern_weight *w, u32 i, u32 n)
{
	const float *xs = x + (u64)i * w->cols, *ws = numbers + (u64)n * w->cols;
	double most, sum, all = 0, bound = 0, top = 0;
	u32 k, g;

	for (g = 0; g < w->cols; g += 32) {
		most = sum = 0;
		for (k = g; k < g + 32; k++) {
			most = fmax(most, fabs((double)xs[k]));
			sum += fabs((double)ws[k]);
			all += fabs((double)xs[k]);
			top = fmax(top, fabs((double)ws[k]));
		}
		bound += most / 254 * sum;
	}
	return bound * 1.001 + 4 * KERN_TOL * (all * top + fabs(bias[n]));
}

static void check_packed(const struct kern_ops *ops, enum kern_dtype t, u32 m,
			 u32 rows, u32 cols, struct kern_ctx *ctx)
{
	const struct kern_weight w = weight_draw(t, rows, cols);
	struct kern_weight p = w;
	float *once = calloc(rows, sizeof(*once));
	const size_t bytes = ops->pack_bytes(&p);
	void *to = aligned_alloc(64, bytes);
	u32 i, n;

	ck_assert_uint_gt(bytes, 0);
	ck_assert_uint_eq(bytes % 64, 0);
	memset(to, 0xff, bytes);
	ops->pack(ctx, &p, to);
	ck_assert(p.packed && !ops->pack_bytes(&p));
	kern_at(0)->gemm(NULL, x, 0, &w, bias, m, want, 0);
	ops->gemm(ctx, x, 0, &p, bias, m, got, 0);
	for (i = 0; i < m; i++)
		for (n = 0; n < rows; n++)
			if (!(fabs((double)got[i * rows + n] -
				   want[i * rows + n]) <= ints_bound(&w, i, n)))
				ck_abort_msg("%s %s: row %u, column %u: %g, not %g",
					     kern_dtype_name(t), ops->variant, i,
					     n, (double)got[i * rows + n],
					     (double)want[i * rows + n]);
	/* The same bits alone. */
	for (i = 0; i < m; i += 5) {
		ops->gemm(NULL, x + (u64)i * cols, 0, &p, bias, 1, once, 0);
		ck_assert_msg(!memcmp(once, got + (u64)i * rows,
				      rows * sizeof(*once)),
			      "%s %s: row %u has other bits alone",
			      kern_dtype_name(t), ops->variant, i);
	}
	free(to);
	free(once);
}

START_TEST(test_packed)
{
	const enum kern_dtype t = KERN_FIRST_BLOCKS + _i;
	const struct kern_weight none = { .dtype = t, .rows = 1, .cols = 256 };
	const struct kern_ops *ops;
	struct kern_ctx *ctx;
	u32 i;

	ck_assert_int_eq(kern_ctx_create(2, &ctx), 0);
	for (i = 0; i < ARRAY_SIZE(packers); i++) {
		ops = kern_get(packers[i]);
		if (!ops || !ops->pack_bytes(&none))
			continue;
		check_packed(ops, t, 1, ROWS_MAX, cols_of(t, 1), ctx);
		check_packed(ops, t, 15, 5, cols_of(t, 0), NULL);
		check_packed(ops, t, M_MAX, 70, cols_of(t, 1), ctx);
	}
	kern_ctx_destroy(ctx);
}
END_TEST

/* Rows of x that are no numbers, or too small or large for quotients. */
START_TEST(test_packed_odd)
{
	static const float odd[] = { NAN, INFINITY, 0.0f, 1e-40f, 1e36f };
	const struct kern_ops *ops = kern_get("cpu-fast");
	struct kern_weight w = weight_draw(KERN_Q8_0, 16, 32);
	u64 to[4096 / 8] __attribute__((aligned(64)));
	u32 i, k;

	if (!ops->pack_bytes || !ops->pack_bytes(&w))
		return;
	ck_assert_uint_le(ops->pack_bytes(&w), sizeof(to));
	ops->pack(NULL, &w, to);
	for (i = 0; i < ARRAY_SIZE(odd); i++) {
		for (k = 0; k < 32; k++)
			x[k] = k ? 0.0f : odd[i];
		ops->gemm(NULL, x, 0, &w, NULL, 1, got, 0);
		ck_assert(isfinite(odd[i]) ? isfinite(got[3]) : isnan(got[3]));
	}
}
END_TEST

/* The largest and the smallest scales of MXFP4. */
START_TEST(test_packed_e8m0)
{
	static const u8 scales[] = { 255, 254, 2, 1, 0 };
	const struct kern_ops *ops = kern_get(packers[_i]);
	u64 to[4096 / 8] __attribute__((aligned(64)));
	struct kern_weight w = weight_draw(KERN_MXFP4, 16, 32);
	u32 i;

	if (!ops || !ops->pack_bytes(&w))
		return;
	for (i = 0; i < ARRAY_SIZE(scales); i++) {
		data[17 * i] = scales[i];
		memset(data + 17 * i + 1, 0x11, 16);	/* 0.5 */
	}
	ck_assert_uint_le(ops->pack_bytes(&w), sizeof(to));
	for (i = 0; i < 32; i++)
		x[i] = 0x1p-20f;
	kern_at(0)->gemm(NULL, x, 0, &w, NULL, 1, want, 0);
	ops->pack(NULL, &w, to);
	ops->gemm(NULL, x, 0, &w, NULL, 1, got, 0);
	for (i = 0; i < 16; i++)
		ck_assert_msg(fabsf(got[i] - want[i]) <= fabsf(want[i]) * 1e-5f + 1e-40f,
			      "%s: row %u: %a, not %a", ops->variant, i,
			      (double)got[i], (double)want[i]);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("kernels_blocks");
	TCase *tc = tcase_create("blocks");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, test_gemm, 0, NR_TYPES);
	tcase_add_test(tc, test_order);
	tcase_add_test(tc, test_order_longest);
	tcase_add_loop_test(tc, test_embed, 0, NR_TYPES);
	tcase_add_loop_test(tc, test_packed, 0,
			    NR_KERN_DTYPES - KERN_FIRST_BLOCKS);
	tcase_add_test(tc, test_packed_odd);
	tcase_add_loop_test(tc, test_packed_e8m0, 0, ARRAY_SIZE(packers));
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
