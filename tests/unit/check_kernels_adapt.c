// SPDX-License-Identifier: Apache-2.0
/*
 * check_kernels_adapt.c - the products of adapters
 *
 * For each variant that this CPU runs, those with packed integers too, and for kernels of a
 * device, against the reference: ranks from 1 to the largest, odd sizes, one part to many,
 * several outputs of one x.  Rows of a part have gaps, and rows that no part names must stay.
 * A row's bits must be those of the row alone, at another place in memory, for any number of
 * threads.
 */
#include "cuda_fixture.h"
#include "kernels/impl.h"

#define MAX_OUTS	3u
#define MAX_ROWS	160u
#define SUMS_GUARD	16u

/* @rank: of all adapters; 0: each another one */
struct shape {
	u32	adapters;
	u32	nr_outs;
	u32	rows;
	u32	cols;
	u32	outs;
	u32	rank;
};

/* Rows of x that chose adapters, and the arguments of a call. */
struct scene {
	struct shape		s;
	struct kern_adapt	a;
	struct kern_adapt_part	part[HOSTED_PARTS];
	u32			*rows[HOSTED_PARTS];	/* of each adapter */
	u32			owner[MAX_ROWS];
	float			*x;
	float			*y[MAX_OUTS];
	u64			y_ld[MAX_OUTS];
};

static const struct kern_ops *ref;
static struct kern_ctx *ctx[3];
static struct rng rng;

static void setup(void)
{
	u32 i;

	ref = kern_get("ref");
	rng.s = 5;
	for (i = 0; i < ARRAY_SIZE(ctx); i++)
		ck_assert_int_eq(kern_ctx_create(i + 1, &ctx[i]), 0);
}

static void teardown(void)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(ctx); i++)
		kern_ctx_destroy(ctx[i]);
}

/* All implementations; those of a device come last. */
static const struct kern_ops *any_at(u32 i)
{
	u32 nr = 0;

	while (kern_cpu_ints_at(nr))
		nr++;
	return i < nr ? kern_cpu_ints_at(i) : hosted_at(i - nr);
}

/* Each adapter has a row; other rows have any adapter, or none. */
static void choose(struct scene *sc)
{
	u32 i, j, t, m[HOSTED_PARTS] = { 0 };

	for (i = 0; i < sc->s.rows; i++) {
		sc->owner[i] = i < sc->s.adapters ? i : rng_range(&rng, 0, sc->s.adapters);
		j = rng_range(&rng, 0, i);
		t = sc->owner[i];
		sc->owner[i] = sc->owner[j];
		sc->owner[j] = t;
	}
	for (i = 0; i < sc->s.rows; i++)
		if (sc->owner[i] < sc->s.adapters)
			sc->rows[sc->owner[i]][m[sc->owner[i]]++] = i;
	for (i = 0; i < sc->a.nr; i++)
		sc->part[i].m = m[i / sc->s.nr_outs];
}

static void make_part(struct scene *sc, u32 i, enum kern_dtype type)
{
	static const u32 ranks[] = { 16, 1, 8, 3, 64 };
	const u32 adapter = i / sc->s.nr_outs, out = i % sc->s.nr_outs;
	const u32 rank = sc->s.rank ? sc->s.rank : ranks[adapter % ARRAY_SIZE(ranks)];

	sc->part[i] = (struct kern_adapt_part){
		.a = rng_weight(&rng, rank, sc->s.cols, type).data,
		.b = rng_weight(&rng, rank, sc->s.outs + out, type).data,
		.rank = rank, .scale = i % 4 ? rng_float(&rng) * 2 : 1,
		.rows = sc->rows[adapter], .outs = sc->s.outs + out,
		.y = sc->y[out], .y_ld = sc->y_ld[out],
	};
}

static void scene_open(struct scene *sc, const struct shape *s, enum kern_dtype type)
{
	const u32 gap = s->rows % 2 ? 3 : 0;
	u32 i;

	memset(sc, 0, sizeof(*sc));
	sc->s = *s;
	sc->x = rng_floats(&rng, (u64)s->rows * (s->cols + gap));
	for (i = 0; i < s->nr_outs; i++) {
		sc->y_ld[i] = i % 2 ? s->outs + i + 5 : 0;
		sc->y[i] = rng_floats(&rng, (u64)s->rows * (s->outs + i + 5));
	}
	for (i = 0; i < s->adapters; i++)
		sc->rows[i] = calloc(s->rows, sizeof(u32));
	sc->a = (struct kern_adapt){
		.x = sc->x, .x_ld = gap ? s->cols + gap : 0, .cols = s->cols,
		.dtype = type, .parts = sc->part, .nr = s->adapters * s->nr_outs,
	};
	for (i = 0; i < sc->a.nr; i++)
		make_part(sc, i, type);
	choose(sc);
	for (i = 0; i < sc->a.nr; i++)
		sc->a.t_len += (u64)sc->part[i].m * sc->part[i].rank;
}

static void scene_close(struct scene *sc)
{
	u32 i;

	for (i = 0; i < sc->a.nr; i++) {
		free((void *)(uintptr_t)sc->part[i].a);
		free((void *)(uintptr_t)sc->part[i].b);
	}
	for (i = 0; i < sc->s.adapters; i++)
		free(sc->rows[i]);
	for (i = 0; i < sc->s.nr_outs; i++)
		free(sc->y[i]);
	free(sc->x);
}

static u64 y_bytes(const struct scene *sc, u32 out)
{
	return (u64)sc->s.rows * (sc->s.outs + out + 5) * sizeof(float);
}

/* Run @ops on copies of y; the sums must stay inside t. */
static void run(const struct kern_ops *ops, struct kern_ctx *c, const struct scene *sc,
		float *y[MAX_OUTS])
{
	struct kern_adapt_part part[HOSTED_PARTS];
	float *t = poisoned(sc->a.t_len + SUMS_GUARD);
	struct kern_adapt a = sc->a;
	u32 i;

	for (i = 0; i < sc->s.nr_outs; i++) {
		y[i] = malloc(y_bytes(sc, i));
		memcpy(y[i], sc->y[i], y_bytes(sc, i));
	}
	for (i = 0; i < a.nr; i++) {
		part[i] = sc->part[i];
		part[i].y = y[i % sc->s.nr_outs];
	}
	a.parts = part;
	a.t = t;
	ops->adapt(c, &a);
	for (i = 0; i < SUMS_GUARD; i++)
		ck_assert_msg(isnan(t[a.t_len + i]), "%s:%s: wrote behind its sums",
			      ops->name, ops->variant);
	free(t);
}

static void free_all(const struct scene *sc, float *y[MAX_OUTS])
{
	u32 i;

	for (i = 0; i < sc->s.nr_outs; i++)
		free(y[i]);
}

static double at(const struct scene *sc, const void *p, u64 i)
{
	return sc->a.dtype == KERN_F32 ? ((const float *)p)[i] : bf16_to(((const u16 *)p)[i]);
}

/* Scales of a row, without |y|. */
static void row_scales(const struct scene *sc, const struct kern_adapt_part *p, u32 row,
		       double *scale)
{
	const float *x = sc->x + row * (sc->a.x_ld ? sc->a.x_ld : sc->a.cols);
	double sum;
	u32 j, k, n;

	memset(scale, 0, p->outs * sizeof(*scale));
	for (j = 0; j < p->rank; j++) {
		sum = 0;
		for (k = 0; k < sc->a.cols; k++)
			sum += fabs(x[k] * at(sc, p->a, (u64)j * sc->a.cols + k));
		for (n = 0; n < p->outs; n++)
			scale[n] += fabs(p->scale * at(sc, p->b, (u64)j * p->outs + n)) * sum;
	}
}

/* One output of all rows against the reference; numbers that no part names stay. */
static void check_out(const struct kern_ops *ops, const struct scene *sc, u32 out,
		      const float *got, const float *want)
{
	const u64 ld = sc->y_ld[out] ? sc->y_ld[out] : sc->s.outs + out;
	const struct kern_adapt_part *p;
	double *scale = malloc((sc->s.outs + out) * sizeof(*scale));
	const float *old = sc->y[out];
	u64 i, rest, first = 0;
	u32 row, n;

	for (row = 0; row < sc->s.rows; row++) {
		if (sc->owner[row] == sc->s.adapters)
			continue;
		p = &sc->part[sc->owner[row] * sc->s.nr_outs + out];
		row_scales(sc, p, row, scale);
		i = row * ld;
		ck_assert_bits_eq(got + first, old + first, i - first);
		for (n = 0; n < p->outs; n++, i++)
			assert_close("adapt", (double)got[i], (double)want[i],
				     fabs((double)old[i]) + scale[n]);
		first = i;
	}
	rest = y_bytes(sc, out) / sizeof(*got) - first;
	ck_assert_bits_eq(got + first, old + first, rest);
	free(scale);
}

/* Row @row with each of its parts alone, at another place in memory. */
static void check_alone(const struct kern_ops *ops, const struct scene *sc, u32 row,
			float *const got[MAX_OUTS])
{
	const float *from = sc->x + row * (sc->a.x_ld ? sc->a.x_ld : sc->a.cols);
	float *x = malloc((sc->a.cols + 1) * sizeof(*x)), t[KERN_MAX_ADAPT_RANK];
	float *y = malloc((sc->s.outs + MAX_OUTS) * sizeof(*y));
	struct kern_adapt a = sc->a;
	struct kern_adapt_part p;
	u32 out, none = 0;
	u64 first;

	a.x = memcpy(x + 1, from, a.cols * sizeof(*x));
	a.x_ld = 0;
	a.parts = &p;
	a.nr = 1;
	a.t = t;
	for (out = 0; out < sc->s.nr_outs; out++) {
		p = sc->part[sc->owner[row] * sc->s.nr_outs + out];
		first = row * (p.y_ld ? p.y_ld : p.outs);
		p.m = 1;
		p.rows = &none;
		p.y = memcpy(y, sc->y[out] + first, p.outs * sizeof(*y));
		a.t_len = p.rank;
		ops->adapt(ctx[row % 3], &a);
		ck_assert_bits_eq(y, got[out] + first, p.outs);
	}
	free(x);
	free(y);
}

static void check_bits(const struct kern_ops *ops, const struct scene *sc,
		       float *const got[MAX_OUTS])
{
	float *y[MAX_OUTS];
	u32 row, i, out;

	for (row = 0; row < sc->s.rows; row += hosted_is_device(ops) ? 7 : 1)
		if (sc->owner[row] < sc->s.adapters)
			check_alone(ops, sc, row, got);
	for (i = 0; i < ARRAY_SIZE(ctx) && !hosted_is_device(ops); i++) {
		run(ops, ctx[i], sc, y);
		for (out = 0; out < sc->s.nr_outs; out++)
			ck_assert_bits_eq((u8 *)y[out], (u8 *)got[out], y_bytes(sc, out));
		free_all(sc, y);
	}
}

/* @device: also by kernels of a device */
static void try_shape(const struct shape *s, enum kern_dtype type, bool device)
{
	float *want[MAX_OUTS], *got[MAX_OUTS];
	const struct kern_ops *ops;
	struct scene sc;
	u32 v, out;

	scene_open(&sc, s, type);
	run(ref, NULL, &sc, want);
	for (v = 0; (ops = any_at(v)); v++) {
		if (ops == ref || (hosted_is_device(ops) && !device))
			continue;
		run(ops, NULL, &sc, got);
		for (out = 0; out < s->nr_outs; out++)
			check_out(ops, &sc, out, got[out], want[out]);
		check_bits(ops, &sc, got);
		free_all(&sc, got);
	}
	free_all(&sc, want);
	scene_close(&sc);
}

/* ------------------------------------------------------------------- tests */

static const enum kern_dtype types[] = { KERN_F32, KERN_BF16 };

START_TEST(test_by_hand)
{
	static const u32 rows[] = { 1 };
	const float x[] = { 9, 9, 1, 2 }, a[] = { 3, 4, 1, 1 }, b[] = { 5, 6, 7, 1, 0, 2 };
	const struct kern_ops *ops;
	float t[2], y[8];
	u32 v;

	for (v = 0; (ops = any_at(v)); v++) {
		const struct kern_adapt_part p = {
			.a = a, .b = b, .rank = 2, .scale = 0.5f, .rows = rows, .m = 1,
			.outs = 3, .y = y, .y_ld = 4,
		};

		memset(y, 0, sizeof(y));
		y[4] = 1;
		ops->adapt(NULL, &(struct kern_adapt){
			.x = x, .cols = 2, .dtype = KERN_F32, .parts = &p, .nr = 1,
			.t = t, .t_len = 2,
		});
		/* t is 11 and 3. */
		ck_assert_bits_eq(y, ((float[8]){ 0, 0, 0, 0, 30, 33, 41.5f }), 8);
	}
}
END_TEST

START_TEST(test_ranks)
{
	static const u32 ranks[] = { 1, 2, 3, 5, 8, 16, 17, 64, 512 };
	static const u32 sizes[] = { 1, 8, 40, 257 };
	const u32 rank = ranks[_i];
	u32 i, j, t;

	for (i = 0; i < ARRAY_SIZE(sizes); i++)
		for (j = 0; j < ARRAY_SIZE(sizes); j++)
			for (t = 0; t < ARRAY_SIZE(types); t++)
				try_shape(&(struct shape){
					.adapters = 1 + (i + j) % 3, .nr_outs = 1 + j % 2,
					.rows = 5 + i, .cols = sizes[i], .outs = sizes[j],
					.rank = rank,
				}, types[t], i == j && rank != 512);
}
END_TEST

/* One part to many; all rows of one adapter, and each row of another one. */
START_TEST(test_parts)
{
	static const struct shape shapes[] = {
		{ 1, 1, 1, 40, 24, 16 },	{ 1, 3, 21, 257, 40, 0 },
		{ 2, 1, 9, 8, 257, 0 },		{ 23, 3, 50, 40, 33, 0 },
		{ 70, 1, 70, 40, 65, 0 },	{ 70, 1, 111, 33, 40, 8 },
		{ 7, 2, 64, 100, 300, 3 },
	};

	/* The memory of a device for small lists grows for long ones. */
	try_shape(&shapes[0], types[_i % 2], true);
	try_shape(&shapes[_i / 2], types[_i % 2], true);
}
END_TEST

/* Enough work for all threads in both phases, several parts of K too. */
START_TEST(test_threads)
{
	static const struct shape shapes[] = {
		{ 1, 1, 1, 896, 896, 512 },	{ 1, 2, 67, 896, 1024, 16 },
		{ 64, 1, 64, 896, 896, 16 },	{ 3, 1, 8, 2060, 1531, 64 },
		{ 5, 1, 150, 1025, 896, 0 },
	};

	try_shape(&shapes[_i / 2], types[_i % 2], false);
}
END_TEST

START_TEST(test_nothing)
{
	const struct kern_ops *ops;
	u32 v;

	for (v = 0; (ops = kern_at(v)); v++)
		ops->adapt(ctx[1], &(struct kern_adapt){ .cols = 8, .dtype = KERN_F32 });
}
END_TEST

int main(void)
{
	Suite *s = suite_create("kernels-adapt");
	TCase *tc = tcase_create("adapters");
	SRunner *sr;
	int failed;

	tcase_set_tags(tc, "unit kernels");
	tcase_set_timeout(tc, 120);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_by_hand);
	tcase_add_loop_test(tc, test_ranks, 0, 9);
	tcase_add_loop_test(tc, test_parts, 0, 14);
	tcase_add_loop_test(tc, test_threads, 0, 10);
	tcase_add_test(tc, test_nothing);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
