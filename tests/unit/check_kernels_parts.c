// SPDX-License-Identifier: Apache-2.0
/*
 * check_kernels_parts.c - several products at once, to the bit as single ones
 *
 * Every table of ops, weights as they are stored and packed, few and many products, products
 * that share x, and more rows than the room of a context holds.
 */
#include "tests/unit/check_kernels.h"
#include "kernels/quant.h"

#define PARTS	600u		/* several batches */
#define COLS	256u
#define ROWS	70u
#define M	9u

static const enum kern_dtype types[] = { KERN_F32, KERN_BF16, KERN_Q4_0, KERN_Q8_0, KERN_Q4_K };
static const char * const names[] = {
	"cpu", "cpu:avx2int8", "cpu:avx512vnni", "cpu:avx512bf16",
};

/* A matrix of each type, and what is multiplied. */
struct world {
	const struct kern_ops	*ops;
	struct kern_weight	w[ARRAY_SIZE(types)];
	struct kern_gemm_part	part[PARTS];
	float			*x;
	float			*bias;
	float			*want;
	float			*got;
};

static struct rng rng = { 11 };

static struct kern_weight matrix(const struct kern_ops *ops, enum kern_dtype t, u32 rows, u32 cols,
				 bool pack)
{
	struct kern_weight w = rng_weight(&rng, rows, cols, KERN_F32), packed;
	u8 *b = (u8 *)w.data;
	u64 i, bytes = rows * kern_row_bytes(t, cols);

	w.dtype = t;
	if (t == KERN_BF16) {
		free((void *)w.data);
		w = rng_weight(&rng, rows, cols, t);
	}
	/* Bytes below 64 are small numbers as scales in f16. */
	for (i = 0; kern_is_blocks(t) && i < bytes; i++)
		b[i] = rng_next(&rng) & 0x3b;
	if (!pack || !weight_pack(ops, NULL, &w, &packed))
		return w;
	free((void *)w.data);
	return packed;
}

/* Products in an order of types that has neighbours of one and of different kinds. */
static void world_open(struct world *w, bool pack)
{
	u32 i, t;

	w->x = rng_floats(&rng, (u64)PARTS * COLS + M * COLS);
	w->bias = rng_floats(&rng, ROWS);
	w->want = poisoned((u64)PARTS * M * ROWS);
	w->got = poisoned((u64)PARTS * M * ROWS);
	for (t = 0; t < ARRAY_SIZE(types); t++)
		w->w[t] = matrix(w->ops, types[t], ROWS, COLS, pack);
	for (i = 0; i < PARTS; i++)
		w->part[i] = (struct kern_gemm_part){
			.x = w->x + (rng_next(&rng) % 3 ? i : i / 2) * COLS,
			.w = &w->w[i % 50 < 25 ? i / 7 % ARRAY_SIZE(types) :
				   rng_next(&rng) % ARRAY_SIZE(types)],
			.bias = i % 3 ? w->bias : NULL, .m = 1 + rng_next(&rng) % M,
			.y = w->got + (u64)i * M * ROWS,
		};
}

static void world_close(struct world *w)
{
	u32 t;

	for (t = 0; t < ARRAY_SIZE(types); t++)
		free((void *)w->w[t].data);
	free(w->x);
	free(w->bias);
	free(w->want);
	free(w->got);
}

static void check_parts(struct world *w, struct kern_ctx *ctx, u32 nr)
{
	const struct kern_gemm_part *p;
	u32 i;

	kern_gemm_parts(w->ops, ctx, w->part, nr);
	for (i = 0; i < nr; i++) {
		p = &w->part[i];
		w->ops->gemm(ctx, p->x, p->x_ld, p->w, p->bias, p->m,
			     w->want + (u64)i * M * ROWS, 0);
		ck_assert_msg(!memcmp(p->y, w->want + (u64)i * M * ROWS,
				      p->m * ROWS * sizeof(float)),
			      "%s %s: product %u of %u, %s, %u rows, differs",
			      w->ops->name, w->ops->variant, i, nr,
			      kern_dtype_name(p->w->dtype), p->m);
	}
}

START_TEST(test_parts)
{
	static const u32 counts[] = { 1, 2, 31, PARTS };
	struct world w = { .ops = kern_get(names[_i / 2]) };
	struct kern_ctx *ctx;
	u32 i;

	if (!w.ops)
		return;
	ck_assert_int_eq(kern_ctx_create(3, &ctx), 0);
	world_open(&w, _i % 2);
	for (i = 0; i < ARRAY_SIZE(counts); i++) {
		check_parts(&w, ctx, counts[i]);
		check_parts(&w, NULL, counts[i]);
	}
	world_close(&w);
	kern_ctx_destroy(ctx);
}
END_TEST

/* Rows of x that take more than the room: a product is cut, to the same bits as alone. */
START_TEST(test_large)
{
	const u32 cols = 32768, rows = 33, m = 301;
	const enum kern_dtype t = types[1 + _i];
	const struct kern_ops *ops = kern_get("cpu-fast");
	struct kern_weight w = matrix(ops, t, rows, cols, true);
	float *x = rng_floats(&rng, (u64)m * cols), *got = poisoned((u64)2 * m * rows);
	float *want = poisoned(rows);
	struct kern_gemm_part parts[] = {
		{ .x = x, .w = &w, .m = 3, .y = got + (u64)m * rows },
		{ .x = x, .w = &w, .m = m, .y = got },
	};
	struct kern_ctx *ctx;
	u32 i;

	ck_assert_int_eq(kern_ctx_create(2, &ctx), 0);
	kern_gemm_parts(ops, ctx, parts, 2);
	for (i = 0; i < m; i += 25) {
		ops->gemm(NULL, x + (u64)i * cols, 0, &w, NULL, 1, want, 0);
		ck_assert_bits_eq(want, got + (u64)i * rows, rows);
	}
	ck_assert_bits_eq(got, got + (u64)m * rows, 3 * rows);
	free((void *)w.data);
	free(x);
	free(got);
	free(want);
	kern_ctx_destroy(ctx);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("kernels_parts");
	TCase *tc = tcase_create("parts");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, test_parts, 0, 2 * ARRAY_SIZE(names));
	tcase_add_loop_test(tc, test_large, 0, ARRAY_SIZE(types) - 1);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
