// SPDX-License-Identifier: Apache-2.0
/*
 * check_kernels_latent.c - the ops of latent attention
 *
 * The reference is checked first: against attention with K and V of all heads,
 * computed here in double from the same numbers by the matrices that the latent
 * form absorbs, and against the documented places of elements and scales.  Then
 * every other implementation, also the device's on its stand-in, must be near the
 * reference: random batches over random geometries, with NaN in all unwritten
 * slots and table entries behind the last block that point far outside the pool.
 * A query's bits must not depend on the batch, the chunks, the blocks, and the
 * threads.
 */
#include "check_kernels.h"

#include <errno.h>

#define WILD_ENTRY	0xffffff00u
#define MAX_SEQS	3u
#define MAX_LEN		1100u

static const struct kern_ops *ref;
static struct kern_ctx *ctx;
static struct rng rng;

static void setup(void)
{
	ref = kern_get("ref");
	ck_assert_int_eq(kern_ctx_create(3, &ctx), 0);
}

static void teardown(void)
{
	kern_ctx_destroy(ctx);
}

static struct kern_kv geometry(u32 rank, u32 rest, u32 tokens,
			       enum kern_dtype type)
{
	return (struct kern_kv){
		.block_tokens = tokens, .nr_layers = 2, .kv_heads = 1,
		.head_dim = rank + rest, .rank = rank, .dtype = type,
	};
}

/* Sequences with all of their vectors written. */
struct scene {
	struct pool		pool;
	struct kern_attn_seq	seqs[MAX_SEQS];
	u32			*tables[MAX_SEQS];
	u32			len[MAX_SEQS];
	u32			nr_seqs;
	u32			nr_rows;
	u32			heads;
	float			*latent;	/* [seqs][MAX_LEN][rank] */
	float			*rest;		/* [seqs][MAX_LEN][hd - rank] */
	float			*q;
	u64			q_ld;
};

/* Write the vectors of sequence @s from position @from up to @to. */
static void scene_write(struct scene *sc, const struct kern_ops *ops, u32 s,
			u32 from, u32 to)
{
	const struct kern_attn_seq seq = {
		.table = sc->tables[s], .nr_rows = to - from,
		.first_row = s * MAX_LEN + from, .start_pos = from,
	};
	const struct kern_kv_append a = {
		.kv = &sc->pool.kv, .layer = 1, .nr_seqs = 1, .seqs = &seq,
		.k = sc->latent, .v = sc->rest,
	};

	ops->kv_write(ctx, &a);
}

static void scene_add(struct scene *sc, u32 len, u32 rows, u32 *block)
{
	const u32 bt = sc->pool.kv.block_tokens, s = sc->nr_seqs++;
	u32 i;

	sc->tables[s] = malloc((MAX_LEN / bt + 2) * sizeof(u32));
	ck_assert_ptr_nonnull(sc->tables[s]);
	for (i = 0; i < MAX_LEN / bt + 2; i++)
		sc->tables[s][i] = i < DIV_ROUND_UP(len, bt) ?
				   sc->pool.entries[(*block)++] : WILD_ENTRY;
	sc->len[s] = len;
	sc->seqs[s] = (struct kern_attn_seq){
		.table = sc->tables[s], .nr_rows = rows,
		.first_row = sc->nr_rows, .start_pos = len - rows,
	};
	sc->nr_rows += rows;
}

/* @len positions in all of @nr sequences, the last @rows of them in the batch. */
static struct scene scene_create(struct kern_kv kv, u32 heads, u32 nr,
				 const u32 *len, const u32 *rows,
				 enum pool_layout layout)
{
	struct scene sc = { .heads = heads };
	u32 blocks = 0, next = 0, s;

	for (s = 0; s < nr; s++)
		blocks += DIV_ROUND_UP(len[s], kv.block_tokens);
	sc.pool = pool_create(&rng, kv, blocks, layout);
	for (s = 0; s < nr; s++)
		scene_add(&sc, len[s], rows[s], &next);
	sc.latent = rng_floats(&rng, (u64)nr * MAX_LEN * kv.rank);
	sc.rest = rng_floats(&rng, (u64)nr * MAX_LEN *
			     (kv.head_dim - kv.rank));
	sc.q_ld = heads * kv.head_dim + 4;
	sc.q = rng_floats(&rng, sc.nr_rows * sc.q_ld);
	for (s = 0; s < nr; s++)
		scene_write(&sc, ref, s, 0, len[s]);
	return sc;
}

static void scene_destroy(struct scene *sc)
{
	while (sc->nr_seqs)
		free(sc->tables[--sc->nr_seqs]);
	pool_destroy(&sc->pool);
	free(sc->latent);
	free(sc->rest);
	free(sc->q);
}

static const float SCALE = 0.11f;

static struct kern_attn attn_of(const struct scene *sc, float *out)
{
	return (struct kern_attn){
		.kv = &sc->pool.kv, .layer = 1, .nr_seqs = sc->nr_seqs,
		.seqs = sc->seqs, .q = sc->q, .q_ld = sc->q_ld, .out = out,
		.heads = sc->heads, .scale = SCALE,
	};
}

static u64 out_floats(const struct scene *sc)
{
	return (u64)sc->nr_rows * sc->heads * sc->pool.kv.rank;
}

static struct scene random_scene(u32 i)
{
	static const u32 ranks[] = { 16, 32, 64, 112, 128, 512 };
	static const u32 rests[] = { 16, 32, 64 };
	static const u32 tokens[] = { 16, 32, 48, 64, 128 };
	u32 len[MAX_SEQS], rows[MAX_SEQS], nr, s;

	rng.s = i;
	nr = rng_range(&rng, 1, MAX_SEQS);
	for (s = 0; s < nr; s++) {
		len[s] = rng_range(&rng, 1, 150);
		rows[s] = rng_next(&rng) % 2 ? 1 :
			  rng_range(&rng, 1, min(len[s], 40u));
	}
	return scene_create(geometry(ranks[i % 6], rests[rng_next(&rng) % 3],
				     tokens[rng_next(&rng) % 5], i % 5),
			    rng_range(&rng, 1, 19), nr, len, rows,
			    i & 1 ? LAYER_MAJOR : BLOCK_MAJOR);
}

/* ---- the reference ---- */

#define NOPE	16u
#define VALUE	32u
#define RANK	48u
#define REST	16u

/* Attention of one head with its own K and V, from the latent vectors. */
static void full_head(const struct scene *sc, const double *uk,
		      const double *uv, const double *qn, const double *qr,
		      u32 last, double *out)
{
	double s[MAX_LEN], sum = 0, key;
	u32 t, n, r;

	for (t = 0; t <= last; t++) {
		s[t] = 0;
		for (n = 0; n < NOPE; n++) {
			for (key = 0, r = 0; r < RANK; r++)
				key += uk[n * RANK + r] *
				       (double)sc->latent[t * RANK + r];
			s[t] += qn[n] * key;
		}
		for (r = 0; r < REST; r++)
			s[t] += qr[r] * sc->rest[t * REST + r];
		s[t] = exp(s[t] * SCALE);
		sum += s[t];
	}
	memset(out, 0, VALUE * sizeof(*out));
	for (t = 0; t <= last; t++)
		for (n = 0; n < VALUE; n++)
			for (r = 0; r < RANK; r++)
				out[n] += s[t] / sum * uv[n * RANK + r] *
					  (double)sc->latent[t * RANK + r];
}

static void fill(double *x, u32 n)
{
	while (n--)
		*x++ = rng_float(&rng);
}

/* The absorbed form is attention with full heads. */
START_TEST(test_absorbed)
{
	const u32 len = 70, rows = 3;
	struct scene sc;
	double uk[NOPE * RANK], uv[VALUE * RANK], qn[NOPE], qr[REST];
	double want[VALUE], got, sum;
	float out[3 * RANK];
	struct kern_attn a;
	u32 row, n, r;

	rng.s = 5;
	sc = scene_create(geometry(RANK, REST, 16, KERN_F32), 1, 1, &len,
			  &rows, BLOCK_MAJOR);
	a = attn_of(&sc, out);
	fill(uk, NOPE * RANK);
	fill(uv, VALUE * RANK);
	for (row = 0; row < rows; row++) {
		fill(qn, NOPE);
		fill(qr, REST);
		for (r = 0; r < RANK + REST; r++) {
			for (sum = 0, n = 0; n < NOPE; n++)
				sum += r < RANK ? qn[n] * uk[n * RANK + r] : 0;
			sc.q[row * sc.q_ld + r] = r < RANK ? sum :
						  qr[r - RANK];
		}
		ref->attn_latent(NULL, &a);
		full_head(&sc, uk, uv, qn, qr, len - rows + row, want);
		for (n = 0; n < VALUE; n++) {
			for (got = 0, r = 0; r < RANK; r++)
				got += uv[n * RANK + r] * out[row * RANK + r];
			ck_assert_msg(fabs(got - want[n]) < 1e-5,
				      "row %u, value %u: %g, not %g", row, n,
				      got, want[n]);
		}
	}
	scene_destroy(&sc);
}
END_TEST

/* [token][dim], no V, then one scale for each token. */
START_TEST(test_layout)
{
	const enum kern_dtype type = _i ? KERN_I8 : KERN_F32;
	const u32 len = 16 + 6, rows = 1, elem = _i ? 1 : 4, dims = 48;
	struct scene sc;
	const u8 *at;
	float top = 0, x;
	u32 d;

	rng.s = 6;
	sc = scene_create(geometry(32, 16, 16, type), 1, 1, &len, &rows,
			  BLOCK_MAJOR);
	ck_assert_uint_eq(kern_kv_data_bytes(&sc.pool.kv), 16 * dims * elem);
	ck_assert_uint_eq(kern_kv_layer_bytes(&sc.pool.kv),
			  16 * dims * elem + (_i ? 16 * 4 : 0));
	at = sc.pool.kv.base + sc.pool.kv.unit * sc.tables[0][1] +
	     sc.pool.kv.layer_stride;
	for (d = 0; d < dims; d++) {
		x = d < 32 ? sc.latent[21 * 32 + d] :
			     sc.rest[21 * 16 + d - 32];
		top = fmaxf(top, fabsf(x));
		if (!_i)
			ck_assert(((const float *)(const void *)at)
				  [5 * dims + d] == x);
	}
	if (_i)
		ck_assert(((const float *)(const void *)(at + 16 * dims))[5] ==
			  top / 127);
	scene_destroy(&sc);
}
END_TEST

START_TEST(test_check)
{
	struct kern_kv kv = geometry(512, 64, 16, KERN_BF16);

	kv.unit = 64;
	kv.layer_stride = kern_kv_layer_bytes(&kv);
	ck_assert_int_eq(kern_kv_check(&kv), 0);
	kv.kv_heads = 2;
	kv.layer_stride *= 2;
	ck_assert_int_eq(kern_kv_check(&kv), -EINVAL);
	kv.kv_heads = 1;
	kv.rank = 576;
	ck_assert_int_eq(kern_kv_check(&kv), -EINVAL);
	kv.rank = 504;
	ck_assert_int_eq(kern_kv_check(&kv), -EINVAL);
	kv.rank = 0;		/* 576 is too many dims of a head */
	ck_assert_int_eq(kern_kv_check(&kv), -EINVAL);
	kv.rank = 528;
	kv.head_dim = 544;
	ck_assert_int_eq(kern_kv_check(&kv), -EINVAL);
	kv.rank = 512;
	kv.head_dim = 568;	/* with a rank, no multiple of 8 alone */
	ck_assert_int_eq(kern_kv_check(&kv), -EINVAL);
	kv.head_dim = 592;
	ck_assert_int_eq(kern_kv_check(&kv), -EINVAL);
}
END_TEST

/* ---- the others ---- */

START_TEST(test_write)
{
	struct scene sc = random_scene(_i);
	u8 *want = malloc(sc.pool.bytes);
	const struct kern_ops *ops;
	u32 i, s;

	if (_i % 5 == KERN_I8)
		sc.rest[3] = INFINITY;
	memset(sc.pool.kv.base, 0xff, sc.pool.bytes);
	for (s = 0; s < sc.nr_seqs; s++)
		scene_write(&sc, ref, s, 0, sc.len[s]);
	memcpy(want, sc.pool.kv.base, sc.pool.bytes);
	for (i = 1; (ops = hosted_at(i)); i++) {
		memset(sc.pool.kv.base, 0xff, sc.pool.bytes);
		for (s = 0; s < sc.nr_seqs; s++)
			scene_write(&sc, ops, s, 0, sc.len[s]);
		ck_assert_bits_eq(sc.pool.kv.base, want, sc.pool.bytes);
	}
	free(want);
	scene_destroy(&sc);
}
END_TEST

START_TEST(test_copy)
{
	struct pool p;
	struct kern_kv_copy c[2];
	u8 *before, *want;
	const struct kern_ops *ops;
	u32 i;

	rng.s = _i;
	p = pool_create(&rng, geometry(64, 32, 32, _i % 5), 4,
			_i & 1 ? LAYER_MAJOR : BLOCK_MAJOR);
	c[0] = (struct kern_kv_copy){ p.entries[0], p.entries[1], 31 };
	c[1] = (struct kern_kv_copy){ p.entries[1], p.entries[2], 7 };
	before = malloc(p.bytes);
	want = malloc(p.bytes);
	for (i = 0; i < p.bytes; i++)
		before[i] = rng_next(&rng);
	memcpy(p.kv.base, before, p.bytes);
	ref->kv_copy(NULL, &p.kv, c, 2);
	memcpy(want, p.kv.base, p.bytes);
	ck_assert(memcmp(want, before, p.bytes));
	for (i = 1; (ops = hosted_at(i)); i++) {
		memcpy(p.kv.base, before, p.bytes);
		ops->kv_copy(ctx, &p.kv, c, 2);
		ck_assert_bits_eq(p.kv.base, want, p.bytes);
	}
	free(before);
	free(want);
	pool_destroy(&p);
}
END_TEST

/* Every |q| and |k| is at most 1, so a score's sum is below half of the dims. */
static void assert_near(const struct kern_ops *ops, const struct scene *sc,
			const float *got, const float *want)
{
	const bool rounds = ops->mode == KERN_MODE_FAST &&
			    sc->pool.kv.dtype != KERN_F32;
	const double tol = (rounds ? KERN_TOL_FAST : KERN_TOL) *
			   (1 + SCALE * sc->pool.kv.head_dim / 2);
	u64 i;

	for (i = 0; i < out_floats(sc); i++)
		if (!(fabs(got[i] - want[i]) <= tol))
			ck_abort_msg("%s:%s element %llu: %.9g, not %.9g",
				     ops->name, ops->variant,
				     (unsigned long long)i, got[i], want[i]);
}

static void try_attention(struct scene *sc)
{
	float *want = poisoned(out_floats(sc)), *got = poisoned(out_floats(sc));
	const struct kern_ops *ops;
	struct kern_attn a = attn_of(sc, want);
	u32 i;

	ref->attn_latent(NULL, &a);
	a.out = got;
	for (i = 1; (ops = hosted_at(i)); i++) {
		memset(got, 0xff, out_floats(sc) * sizeof(*got));
		ops->attn_latent(ctx, &a);
		assert_near(ops, sc, got, want);
	}
	free(want);
	free(got);
}

START_TEST(test_attention)
{
	struct scene sc = random_scene(_i);

	try_attention(&sc);
	scene_destroy(&sc);
}
END_TEST

/* Several spans of the device; many heads and few. */
START_TEST(test_long)
{
	static const u32 len[] = { 1100, 530 }, rows[] = { 1, 2 };
	struct scene sc;

	rng.s = 8 + _i;
	sc = scene_create(geometry(64, 16, 16, _i ? KERN_BF16 : KERN_F32),
			  _i ? 16 : 3, 2, len, rows, BLOCK_MAJOR);
	try_attention(&sc);
	scene_destroy(&sc);
}
END_TEST

/* ---- bits ---- */

/* Row @row of sequence @s alone, by an own pool with blocks of @tokens. */
static void run_alone(const struct kern_ops *ops, const struct scene *sc,
		      u32 s, u32 row, u32 tokens, float *out)
{
	const struct kern_attn_seq *seq = &sc->seqs[s];
	const u32 len = seq->start_pos + row + 1, one = 1;
	struct kern_kv kv = sc->pool.kv;
	struct scene own;
	struct kern_attn a;

	kv.block_tokens = tokens;
	own = scene_create(kv, sc->heads, 1, &len, &one, BLOCK_MAJOR);
	memcpy(own.latent, sc->latent + (u64)s * MAX_LEN * kv.rank,
	       (u64)len * kv.rank * sizeof(float));
	memcpy(own.rest, sc->rest + (u64)s * MAX_LEN *
	       (kv.head_dim - kv.rank),
	       (u64)len * (kv.head_dim - kv.rank) * sizeof(float));
	memcpy(own.q, sc->q + (seq->first_row + row) * sc->q_ld,
	       sc->q_ld * sizeof(float));
	scene_write(&own, ref, 0, 0, len);
	a = attn_of(&own, out);
	ops->attn_latent(NULL, &a);
	scene_destroy(&own);
}

/* A row has the same bits in the batch and alone, on one thread. */
static void assert_alone(const struct kern_ops *ops, const struct scene *sc,
			 const float *all)
{
	const u64 n = (u64)sc->heads * sc->pool.kv.rank;
	float *alone = poisoned(n);
	u32 s, row;

	for (s = 0; s < sc->nr_seqs; s++) {
		for (row = 0; row < sc->seqs[s].nr_rows; row += 7) {
			run_alone(ops, sc, s, row, row % 2 ? 16 : 80, alone);
			ck_assert_bits_eq(alone, all +
					  (sc->seqs[s].first_row + row) * n,
					  n);
		}
	}
	free(alone);
}

/* Few long sequences are split on a device, more are not. */
START_TEST(test_bits)
{
	static const u32 len[] = { 1100, 150, 64 }, rows[] = { 2, 33, 64 };
	struct kern_ctx *one;
	const struct kern_ops *ops;
	struct kern_attn a;
	struct scene sc;
	float *all;
	u32 i;

	rng.s = 20 + _i;
	ck_assert_int_eq(kern_ctx_create(1, &one), 0);
	sc = scene_create(geometry(_i ? 112 : 32, 16, 32, _i), 5, 3, len, rows,
			  LAYER_MAJOR);
	all = poisoned(out_floats(&sc));
	a = attn_of(&sc, all);
	for (i = 0; (ops = hosted_at(i)); i++) {
		ops->attn_latent(i % 2 ? one : ctx, &a);
		assert_alone(ops, &sc, all);
	}
	free(all);
	scene_destroy(&sc);
	kern_ctx_destroy(one);
}
END_TEST

/* ---- rotation ---- */

/* As rope() of numbers that were sorted before. */
START_TEST(test_pairs)
{
	const u32 half = 8 * (_i + 1), part = 2 * half, heads = 3, m = 5;
	const u64 step = part + 12, ld = heads * step + 3, y_step = part + 4;
	const u64 y_ld = heads * y_step;
	float *x = rng_floats(&rng, m * ld), *table = rng_floats(&rng, m * part);
	float *y = poisoned(m * y_ld), *want = poisoned(m * heads * part);
	const struct kern_rope_pairs r = {
		.x = x, .x_ld = ld, .x_step = step, .y = y, .y_ld = y_ld,
		.y_step = y_step, .m = m, .heads = heads, .half = half,
		.table = table,
	};
	const struct kern_ops *ops;
	u32 i, k, h, j;
	float *to;

	for (i = 0; i < m; i++)
		for (h = 0; h < heads; h++)
			for (j = 0; j < half; j++) {
				to = want + (i * heads + h) * part + j;
				to[0] = x[i * ld + h * step + 2 * j];
				to[half] = x[i * ld + h * step + 2 * j + 1];
			}
	ref->rope(NULL, want, 0, m, heads, part, half, table);
	for (k = 0; (ops = hosted_at(k)); k++) {
		memset(y, 0xff, m * y_ld * sizeof(*y));
		ops->rope_pairs(ctx, &r);
		for (i = 0; i < m * heads; i++)
			for (j = 0; j < part; j++)
				ck_assert(fabs(y[i * y_step + j] -
					       want[i * part + j]) <=
					  2 * KERN_TOL);
		for (i = 0; i < m * heads; i++)	/* nothing else is written */
			for (j = part; j < y_step; j++)
				ck_assert(isnan(y[i * y_step + j]));
	}
	free(x);
	free(y);
	free(want);
	free(table);
}
END_TEST

static Suite *latent_suite(void)
{
	Suite *s = suite_create("kernels-latent");
	TCase *tc = tcase_create("latent");

	tcase_set_tags(tc, "unit kernels");
	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_absorbed);
	tcase_add_loop_test(tc, test_layout, 0, 2);
	tcase_add_test(tc, test_check);
	tcase_add_loop_test(tc, test_write, 0, 10);
	tcase_add_loop_test(tc, test_copy, 0, 5);
	tcase_add_loop_test(tc, test_attention, 0, hosted_rounds(12, 40));
	tcase_add_loop_test(tc, test_long, 0, 2);
	tcase_add_loop_test(tc, test_bits, 0, 2);
	tcase_add_loop_test(tc, test_pairs, 0, 4);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(latent_suite());
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
