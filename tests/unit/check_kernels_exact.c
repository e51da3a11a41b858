// SPDX-License-Identifier: Apache-2.0
/*
 * check_kernels_exact.c - the same bits in every batch
 *
 * The law of exact mode, op by op and for every variant that this CPU runs
 * (those of fast mode, too, which keep it though they do not promise it), and
 * for exact kernels of a device.  A row's result is the same alone and at each
 * place of batches of up to 17 rows, with one thread and with several, for a
 * prompt in one piece, in random pieces or token by token.  It does not depend
 * on the blocks' places, sizes and layout, nor on the content of unwritten
 * slots.  Every comparison here is by memcmp; the other files check tolerances.
 */
#include "check_kernels.h"
#include "tests/level.h"

#define MAX_BATCH	17

static struct kern_ctx *one, *two, *four;
static struct rng rng;

/*
 * All but fast mode of a device, which comes last and breaks the law.  Level
 * check has no device: check_cuda_* test its exact kernels in the same way.
 */
static const struct kern_ops *lawful_at(u32 i)
{
	const struct kern_ops *ops = hosted_some(i);

	if (ops && hosted_is_device(ops) && ops->mode == KERN_MODE_FAST)
		return NULL;
	return ops;
}

static void setup(void)
{
	rng.s = 3;
	ck_assert_int_eq(kern_ctx_create(1, &one), 0);
	ck_assert_int_eq(kern_ctx_create(2, &two), 0);
	ck_assert_int_eq(kern_ctx_create(4, &four), 0);
}

static void teardown(void)
{
	kern_ctx_destroy(one);
	kern_ctx_destroy(two);
	kern_ctx_destroy(four);
}

/* --------------------------------------------------------------- row ops */

static void try_gemm(const struct kern_ops *ops, u32 n, u32 k,
		     enum kern_dtype type, bool pack)
{
	struct kern_weight first = rng_weight(&rng, n, k, type), w = first;
	float *x = rng_floats(&rng, MAX_BATCH * k), *bias = rng_floats(&rng, n);
	float *alone = poisoned(MAX_BATCH * n), *got = poisoned(MAX_BATCH * n);
	u32 m, i;

	if (pack && !weight_pack(ops, NULL, &first, &w))
		ck_abort_msg("not packed");
	for (i = 0; i < MAX_BATCH; i++)
		ops->gemm(one, x + i * k, 0, &w, bias, 1, alone + i * n, 0);
	/* Every batch of 1..17 rows, so every row is at every place. */
	for (m = 2; m <= MAX_BATCH; m++) {
		for (i = 0; i + m <= MAX_BATCH; i += m == MAX_BATCH ? 1 : 3) {
			ops->gemm(m & 1 ? two : one, x + i * k, 0, &w, bias, m,
				  got, 0);
			ck_assert_bits_eq(got, alone + i * n, m * n);
		}
	}
	if (pack)
		free((void *)w.data);
	free((void *)first.data);
	free(x);
	free(bias);
	free(alone);
	free(got);
}

START_TEST(test_gemm_rows)
{
	static const u32 n[] = { 1, 7, 16, 31, 65, 130 };
	static const u32 k[] = { 1, 17, 64, 255, 1024, 2060 };
	const struct kern_ops *ops;
	const bool pack = _i == 2;
	u32 v, i;

	for (v = 0; (ops = lawful_at(v)); v++)
		for (i = 0; i < ARRAY_SIZE(n) && (ops->pack || !pack); i++)
			try_gemm(ops, n[i], k[i], _i ? KERN_BF16 : KERN_F32,
				 pack);
}
END_TEST

/* More rows than a panel has, and enough work for all threads; also packed. */
START_TEST(test_gemm_threads)
{
	const u32 m = 210, n = 100, k = 1100;
	struct kern_weight first = rng_weight(&rng, n, k, KERN_BF16), w = first;
	float *x = rng_floats(&rng, m * k), *want = poisoned(m * n);
	float *got = poisoned(m * n);
	const struct kern_ops *ops;
	u32 v, i;

	for (v = 1; (ops = lawful_at(v)); v++) {
		if (_i && !weight_pack(ops, four, &first, &w))
			continue;
		for (i = 0; i < m; i++)
			ops->gemm(one, x + i * k, 0, &w, NULL, 1,
				  want + i * n, 0);
		ops->gemm(NULL, x, 0, &w, NULL, m, got, 0);
		ck_assert_bits_eq(got, want, m * n);
		for (i = 0; i < 10; i++) {
			memset(got, 0xff, m * n * sizeof(*got));
			ops->gemm(i & 1 ? two : four, x, 0, &w, NULL, m, got,
				  0);
			ck_assert_bits_eq(got, want, m * n);
		}
		if (_i)
			free((void *)w.data);
	}
	free((void *)first.data);
	free(x);
	free(want);
	free(got);
}
END_TEST

static void norm(const struct kern_ops *ops, struct kern_ctx *ctx, float *x,
		 const float *w, u32 m, u32 d)
{
	ops->rmsnorm(ctx, x, w, m, d, 1e-6f, x);
}

static void rotate(const struct kern_ops *ops, struct kern_ctx *ctx, float *x,
		   const float *w, u32 m, u32 d)
{
	ops->rope(ctx, x, 0, m, 1, d, d / 2, w);
}

static void activate(const struct kern_ops *ops, struct kern_ctx *ctx,
		     float *x, const float *w, u32 m, u32 d)
{
	ops->silu_mul(ctx, x, w, 0, m, d, x);
}

static void layernorm(const struct kern_ops *ops, struct kern_ctx *ctx,
		      float *x, const float *w, u32 m, u32 d)
{
	ops->layernorm(ctx, x, w, w, m, d, 1e-5f, x);
}

static void gelu(const struct kern_ops *ops, struct kern_ctx *ctx, float *x,
		 const float *w, u32 m, u32 d)
{
	ops->act(ctx, KERN_GELU, x, w, 0, m, d, x);
}

static void gelu_tanh(const struct kern_ops *ops, struct kern_ctx *ctx,
		      float *x, const float *w, u32 m, u32 d)
{
	ops->act(ctx, KERN_GELU_TANH, x, NULL, 0, m, d, x);
}

static void cap(const struct kern_ops *ops, struct kern_ctx *ctx, float *x,
		const float *w, u32 m, u32 d)
{
	ops->softcap(ctx, x, 0.7f, (u64)m * d);
}

static void residual(const struct kern_ops *ops, struct kern_ctx *ctx,
		     float *x, const float *w, u32 m, u32 d)
{
	ops->add(ctx, x, w, (u64)m * d);
}

/* Does each row have its own elements of the second operand? */
static const struct {
	void	(*fn)(const struct kern_ops *ops, struct kern_ctx *ctx,
		      float *x, const float *w, u32 m, u32 d);
	bool	per_row;
} row_ops[] = {
	{ norm,		false },
	{ rotate,	true },
	{ activate,	true },
	{ residual,	true },
	{ layernorm,	false },
	{ gelu,		true },
	{ gelu_tanh,	true },
	{ cap,		true },
};

static void try_row_op(const struct kern_ops *ops, u32 op, u32 m, u32 d)
{
	float *x = rng_floats(&rng, m * d), *w = rng_floats(&rng, m * d);
	float *alone = poisoned(m * d), *got = poisoned(m * d);
	u32 i;

	memcpy(alone, x, m * d * sizeof(*x));
	for (i = 0; i < m; i++)
		row_ops[op].fn(ops, one, alone + i * d,
			       row_ops[op].per_row ? w + i * d : w, 1, d);
	memcpy(got, x, m * d * sizeof(*x));
	row_ops[op].fn(ops, two, got, w, m, d);
	ck_assert_bits_eq(got, alone, m * d);
	free(x);
	free(w);
	free(alone);
	free(got);
}

START_TEST(test_row_ops)
{
	const struct kern_ops *ops;
	u32 v, m;

	for (v = 0; (ops = lawful_at(v)); v++) {
		for (m = 1; m <= MAX_BATCH; m++)
			try_row_op(ops, _i, m, 2 * rng_range(&rng, 1, 100));
		try_row_op(ops, _i, 270, 1026);		/* all threads */
	}
}
END_TEST

/* ------------------------------------------------------------- attention */

#define SEQ_LEN		150
#define NR_SEQS		4

/* Sequences with their inputs, without the place of their KV. */
struct story {
	struct kern_kv	kv;	/* all but base and strides */
	u32		heads;
	u32		window;
	float		scale;
	float		softcap;
	float		*sinks;	/* or NULL */
	float		*q;	/* [NR_SEQS][SEQ_LEN][heads][hd] */
	float		*k;
	float		*v;
	u64		q_row;
	u64		kv_row;
};

static struct story story_create(u32 i)
{
	static const u32 dims[] = {
		32, 64, 128, 48, 80, 256, 96, 32, 64, 128,
		24, 120, 40, 72, 8, 104, 88, 56, 248, 136,
	};
	static const u32 groups[] = { 1, 2, 3, 4, 7, 8, 40 };
	struct story s = {
		.kv = {
			.nr_layers = 2,
			.kv_heads = 1 + i % 2 + i % 3,
			.head_dim = dims[i % ARRAY_SIZE(dims)],
			.dtype = (i >> 1) % (KERN_I8 + 1),
		},
		.window = i % 5 == 4 ? 70 : 0,
		.scale = 0.7f,
		.softcap = i % 3 == 2 ? 1.5f : 0,
	};

	rng.s = i;
	s.heads = s.kv.kv_heads * groups[i % ARRAY_SIZE(groups)];
	s.sinks = i % 2 ? rng_floats(&rng, s.heads) : NULL;
	s.q_row = s.heads * s.kv.head_dim;
	s.kv_row = s.kv.kv_heads * s.kv.head_dim;
	s.q = rng_floats(&rng, NR_SEQS * SEQ_LEN * s.q_row);
	s.k = rng_floats(&rng, NR_SEQS * SEQ_LEN * s.kv_row);
	s.v = rng_floats(&rng, NR_SEQS * SEQ_LEN * s.kv_row);
	return s;
}

static void story_destroy(struct story *s)
{
	free(s->sinks);
	free(s->q);
	free(s->k);
	free(s->v);
}

/* One run of a story: a pool, and the progress of each sequence. */
struct telling {
	const struct story	*story;
	const struct kern_ops	*ops;
	struct kern_ctx		*ctx;
	struct pool		pool;
	u32			per_seq;	/* blocks */
	u32			done[NR_SEQS];
	float			*out;		/* as story->q */
};

static struct telling telling_create(const struct story *s,
				     const struct kern_ops *ops,
				     struct kern_ctx *ctx, u32 block_tokens,
				     enum pool_layout layout)
{
	u32 per_seq = DIV_ROUND_UP(SEQ_LEN, block_tokens);
	struct kern_kv kv = s->kv;

	kv.block_tokens = block_tokens;
	return (struct telling){
		.story = s, .ops = ops, .ctx = ctx, .per_seq = per_seq,
		.pool = pool_create(&rng, kv, NR_SEQS * per_seq, layout),
		.out = poisoned(NR_SEQS * SEQ_LEN * s->q_row),
	};
}

static void telling_destroy(struct telling *t)
{
	pool_destroy(&t->pool);
	free(t->out);
}

/* One step: the next rows[i] tokens of each sequence, from sequence @first on. */
static void telling_step(struct telling *t, const u32 *rows, u32 first)
{
	const struct story *st = t->story;
	struct kern_attn_seq seqs[NR_SEQS];
	u64 qb = st->q_row * sizeof(float), kb = st->kv_row * sizeof(float);
	u32 all = rows[0] + rows[1] + rows[2] + rows[3];
	float *q = poisoned(all * st->q_row), *out = poisoned(all * st->q_row);
	float *k = poisoned(all * st->kv_row), *v = poisoned(all * st->kv_row);
	struct kern_kv_append app = { .kv = &t->pool.kv, .layer = 1,
				      .seqs = seqs, .k = k, .v = v };
	struct kern_attn at = { .kv = &t->pool.kv, .layer = 1, .seqs = seqs,
				.q = q, .out = out, .heads = st->heads,
				.window = st->window, .scale = st->scale,
				.softcap = st->softcap, .sinks = st->sinks };
	u32 i, s, n = 0, row = 0;
	u64 from;

	for (i = 0; i < NR_SEQS; i++) {
		s = (first + i) % NR_SEQS;
		if (!rows[s])
			continue;
		from = s * SEQ_LEN + t->done[s];
		seqs[n++] = (struct kern_attn_seq){
			t->pool.entries + s * t->per_seq, rows[s], row,
			t->done[s] };
		memcpy(q + row * st->q_row, st->q + from * st->q_row,
		       rows[s] * qb);
		memcpy(k + row * st->kv_row, st->k + from * st->kv_row,
		       rows[s] * kb);
		memcpy(v + row * st->kv_row, st->v + from * st->kv_row,
		       rows[s] * kb);
		row += rows[s];
	}
	app.nr_seqs = at.nr_seqs = n;
	t->ops->kv_write(t->ctx, &app);
	t->ops->attention(t->ctx, &at);
	for (i = 0; i < n; i++) {
		s = (seqs[i].table - t->pool.entries) / t->per_seq;
		memcpy(t->out + (s * SEQ_LEN + t->done[s]) * st->q_row,
		       out + seqs[i].first_row * st->q_row,
		       seqs[i].nr_rows * qb);
		t->done[s] += rows[s];
	}
	free(q);
	free(out);
	free(k);
	free(v);
}

/* Each sequence by itself, in one piece. */
static void tell_whole(struct telling *t)
{
	u32 rows[NR_SEQS], s;

	for (s = 0; s < NR_SEQS; s++) {
		memset(rows, 0, sizeof(rows));
		rows[s] = SEQ_LEN;
		telling_step(t, rows, 0);
	}
}

static void tell_token_by_token(struct telling *t)
{
	u32 rows[NR_SEQS] = { 1, 1, 1, 1 }, i;

	for (i = 0; i < SEQ_LEN; i++)
		telling_step(t, rows, i);
}

/* Random pieces of the sequences in each step, or none of some. */
static void tell_in_pieces(struct telling *t)
{
	u32 rows[NR_SEQS], s, left = 1, first = 0;

	while (left) {
		left = 0;
		for (s = 0; s < NR_SEQS; s++) {
			rows[s] = min(rng_range(&rng, 0, 40) *
				      rng_range(&rng, 0, 1) +
				      rng_range(&rng, 0, 1),
				      SEQ_LEN - t->done[s]);
			left += SEQ_LEN - t->done[s];
		}
		telling_step(t, rows, first++);
	}
}

static void assert_same_telling(const struct story *s,
				const struct kern_ops *ops,
				struct kern_ctx *ctx, u32 block_tokens,
				enum pool_layout layout,
				void (*tell)(struct telling *t),
				const float *want)
{
	struct telling t = telling_create(s, ops, ctx, block_tokens, layout);

	tell(&t);
	ck_assert_bits_eq(t.out, want, NR_SEQS * SEQ_LEN * s->q_row);
	telling_destroy(&t);
}

/*
 * Sanitized code takes ten times as long, and these are its dearest tests.  There each story
 * runs on every second implementation, and the next story on the others.
 */
static bool is_left_out(u32 v, int story)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	return (v + (u32)story) % 2;
#else
	(void)v;
	(void)story;
	return false;
#endif
}

START_TEST(test_attention)
{
	struct story s = story_create(_i);
	const struct kern_ops *ops;
	struct telling t;
	u32 v;

	for (v = 1; (ops = lawful_at(v)); v++) {
		if (is_left_out(v, _i) || !takes_heads(ops, &s.kv))
			continue;
		t = telling_create(&s, ops, one, 16, BLOCK_MAJOR);
		tell_whole(&t);
		/*
		 * On a device each op copies the pool there and back;
		 * check_model_cuda.c does this.
		 */
		if (!hosted_is_device(ops))
			assert_same_telling(&s, ops, two, 16, LAYER_MAJOR,
					    tell_token_by_token, t.out);
		assert_same_telling(&s, ops, two, 32, BLOCK_MAJOR,
				    tell_in_pieces, t.out);
		if (!level_is_check() || _i % 2)
			assert_same_telling(&s, ops, four, _i % 4 < 2 ? 64 : 80,
					    LAYER_MAJOR, tell_in_pieces, t.out);
		if (!level_is_check() || !(_i % 2))
			assert_same_telling(&s, ops, NULL, _i % 4 ? 16 : 128,
					    BLOCK_MAJOR, tell_in_pieces, t.out);
		telling_destroy(&t);
	}
	story_destroy(&s);
}
END_TEST

static Suite *kernels_exact_suite(void)
{
	Suite *s = suite_create("kernels-exact");
	TCase *tc = tcase_create("same-bits");

	tcase_set_tags(tc, "unit kernels");
	tcase_set_timeout(tc, 120);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, test_gemm_rows, 0, 3);
	tcase_add_loop_test(tc, test_gemm_threads, 0, 2);
	tcase_add_loop_test(tc, test_row_ops, 0, ARRAY_SIZE(row_ops));
	tcase_add_loop_test(tc, test_attention, 0, 20);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(kernels_exact_suite());
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
