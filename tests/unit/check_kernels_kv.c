// SPDX-License-Identifier: Apache-2.0
/*
 * check_kernels_kv.c - the ops on paged KV against the reference
 *
 * Random batches (decode rows, prompt pieces and whole prompts mixed) over
 * random geometries: block sizes, GQA ratios, head dims, all types, block- and
 * layer-major pools, sliding windows.  The pool is NaN wherever no row was
 * written.  Table entries behind the last block and before the window point far
 * outside the pool, so an op that reads them crashes.
 */
#include "check_kernels.h"

#define WILD_ENTRY	0xffffff00u

static const struct kern_ops *ref;
static struct kern_ctx *ctx;
static struct rng rng;

static void setup(void)
{
	ref = kern_get("ref");
	ck_assert_int_eq(kern_ctx_create(2, &ctx), 0);
}

static void teardown(void)
{
	kern_ctx_destroy(ctx);
}

#define MAX_SEQS	4
#define MAX_TOKENS	160

/* A batch over a pool: rows of K, V and Q for every position of all sequences. */
struct batch {
	struct pool		pool;
	struct kern_attn_seq	seqs[MAX_SEQS];
	u32			*tables[MAX_SEQS];
	u32			len[MAX_SEQS];	/* positions written */
	u32			nr_seqs;
	u32			nr_rows;
	u32			heads;
	u32			layer;
	u32			window;
};

/* The first draw of a test: seeds the rest. */
static struct kern_kv random_kv(u32 i)
{
	static const u32 dims[] = { 16, 32, 48, 64, 80, 96, 128, 256, 24, 120 };
	static const u32 tokens[] = { 16, 32, 64, 48, 80, 96, 112, 128, 144 };

	rng.s = i;
	return (struct kern_kv){
		.block_tokens = tokens[rng_range(&rng, 0, ARRAY_SIZE(tokens) - 1)],
		.nr_layers = rng_range(&rng, 1, 3),
		.kv_heads = rng_range(&rng, 1, 5),
		.head_dim = dims[i % ARRAY_SIZE(dims)],
		.dtype = rng_range(&rng, KERN_F32, KERN_I8),
	};
}

/* Row counts as an engine makes them: one, a piece, or all. */
static void batch_add_seq(struct batch *b, u32 *next_block)
{
	u32 bt = b->pool.kv.block_tokens, i, s = b->nr_seqs++;
	u32 len = rng_range(&rng, 1, MAX_TOKENS), rows = 1;

	if (rng_next(&rng) % 2)
		rows = rng_range(&rng, 1, len);
	b->tables[s] = malloc((MAX_TOKENS / bt + 2) * sizeof(u32));
	for (i = 0; i < MAX_TOKENS / bt + 2; i++)
		b->tables[s][i] = WILD_ENTRY;
	for (i = 0; i < DIV_ROUND_UP(len, bt); i++)
		b->tables[s][i] = b->pool.entries[(*next_block)++];
	b->len[s] = len;
	b->seqs[s] = (struct kern_attn_seq){
		.table = b->tables[s],
		.nr_rows = rows,
		.first_row = b->nr_rows,
		.start_pos = len - rows,
	};
	b->nr_rows += rows;
}

static struct batch batch_of(struct kern_kv kv, u32 i)
{
	u32 blocks = MAX_SEQS * (MAX_TOKENS / kv.block_tokens + 1);
	u32 next = 0, nr = rng_range(&rng, 1, MAX_SEQS);
	struct batch b = {
		.pool = pool_create(&rng, kv, blocks,
				    i & 1 ? LAYER_MAJOR : BLOCK_MAJOR),
		.heads = kv.kv_heads * rng_range(&rng, 1, 9),
		.layer = rng_next(&rng) % kv.nr_layers,
		.window = rng_next(&rng) % 3 ? 0 : rng_range(&rng, 1, 120),
	};

	while (b.nr_seqs < nr)
		batch_add_seq(&b, &next);
	return b;
}

static struct batch batch_create(u32 i)
{
	return batch_of(random_kv(i), i);
}

static void batch_destroy(struct batch *b)
{
	while (b->nr_seqs)
		free(b->tables[--b->nr_seqs]);
	pool_destroy(&b->pool);
}

/* Write K and V of all positions; sequence @s lies at rows s * MAX_TOKENS. */
static void batch_write(struct batch *b, const struct kern_ops *ops, u64 ld,
			const float *k, const float *v)
{
	struct kern_attn_seq all[MAX_SEQS];
	struct kern_kv_append a = {
		.kv = &b->pool.kv, .layer = b->layer, .nr_seqs = b->nr_seqs,
		.seqs = all, .k = k, .k_ld = ld, .v = v, .v_ld = ld,
	};
	u32 s;

	for (s = 0; s < b->nr_seqs; s++)
		all[s] = (struct kern_attn_seq){
			.table = b->tables[s], .nr_rows = b->len[s],
			.first_row = s * MAX_TOKENS,
		};
	ops->kv_write(ctx, &a);
}

/* Values at the edges of rounding to bf16: ties, infinities, NaN. */
static void edge_values(float *f)
{
	static const u32 bits[] = {
		0x3f808000, 0x3f818000, 0x3f808001, 0x3f807fff, 0x7f800000,
		0xff800000, 0x7fc00000, 0x7f800001, 0x7f7fffff, 0x00000001,
		0x80000000, 0xffffffff,
	};

	memcpy(f, bits, sizeof(bits));
}

static bool is_nan(enum kern_dtype type, u16 h)
{
	return type == KERN_F16 ? (h & 0x7fff) > 0x7c00 : isnan(bf16_to(h));
}

/* A device may store another NaN for a NaN. */
static void assert_pool(const struct kern_ops *ops, const struct pool *p,
			const u8 *want)
{
	const u16 *got = (const u16 *)(const void *)p->kv.base;
	const u16 *must = (const u16 *)(const void *)want;
	const enum kern_dtype type = p->kv.dtype;
	u64 i;

	if (!hosted_is_device(ops) || kern_dtype_size(type) != 2) {
		ck_assert_bits_eq(p->kv.base, want, p->bytes);
		return;
	}
	for (i = 0; i < p->bytes / sizeof(*got); i++)
		if (got[i] != must[i] && !(is_nan(type, got[i]) &&
					   is_nan(type, must[i])))
			ck_abort_msg("%s: %04x at %llu, not %04x", ops->name,
				     got[i], (unsigned long long)i, must[i]);
}

START_TEST(test_kv_write)
{
	struct batch b = batch_create(_i);
	u64 dense = b.pool.kv.kv_heads * b.pool.kv.head_dim, ld = dense + 3;
	float *k = rng_floats(&rng, MAX_SEQS * MAX_TOKENS * ld);
	float *v = rng_floats(&rng, MAX_SEQS * MAX_TOKENS * ld);
	u8 *want = malloc(b.pool.bytes);
	const struct kern_ops *ops;
	u32 i;

	edge_values(k);
	batch_write(&b, ref, ld, k, v);
	memcpy(want, b.pool.kv.base, b.pool.bytes);
	for (i = 1; (ops = hosted_some(i)); i++) {
		if (!takes_heads(ops, &b.pool.kv))
			continue;
		memset(b.pool.kv.base, 0xff, b.pool.bytes);
		batch_write(&b, ops, ld, k, v);
		assert_pool(ops, &b.pool, want);
	}
	batch_destroy(&b);
	free(k);
	free(v);
	free(want);
}
END_TEST

/* The reference itself, at one slot, against the documented layout. */
START_TEST(test_layout)
{
	struct kern_kv kv = { .block_tokens = 16, .nr_layers = 2,
			      .kv_heads = 2, .head_dim = 16 };
	struct pool p = pool_create(&rng, kv, 4, BLOCK_MAJOR);
	struct kern_attn_seq seq = { p.entries, 1, 0, 16 + 5 };
	float k[32], v[32];
	struct kern_kv_append a = { .kv = &p.kv, .layer = 1, .nr_seqs = 1,
				    .seqs = &seq, .k = k, .v = v };
	u8 *at = p.kv.base + 64ull * p.entries[1] + p.kv.layer_stride;
	u32 i;

	for (i = 0; i < 32; i++) {
		k[i] = i;
		v[i] = 100 + i;
	}
	ref->kv_write(NULL, &a);
	/* [K|V][head][token][dim]: head 1 of K, head 1 of V, token 5. */
	ck_assert(!memcmp(at + (16 + 5) * 64, k + 16, 64));
	ck_assert(!memcmp(at + (32 + 16 + 5) * 64, v + 16, 64));
	pool_destroy(&p);
}
END_TEST

/* A chain: the second copy reads the result of the first one. */
START_TEST(test_kv_copy)
{
	struct pool p = pool_create(&rng, random_kv(_i), 8,
				    _i & 1 ? LAYER_MAJOR : BLOCK_MAJOR);
	u32 bt = p.kv.block_tokens;
	struct kern_kv_copy c[] = {
		{ p.entries[0], p.entries[1], bt - 1 },
		{ p.entries[1], p.entries[2], bt / 2 },
		{ p.entries[3], p.entries[4], 1 },
		{ p.entries[5], p.entries[6], bt },
	};
	u8 *before = malloc(p.bytes), *want = malloc(p.bytes);
	const struct kern_ops *ops;
	u64 j;
	u32 i;

	for (j = 0; j < p.bytes; j++)
		before[j] = rng_next(&rng);
	memcpy(p.kv.base, before, p.bytes);
	ref->kv_copy(NULL, &p.kv, c, ARRAY_SIZE(c));
	memcpy(want, p.kv.base, p.bytes);
	ck_assert(memcmp(want, before, p.bytes));
	for (i = 1; (ops = hosted_some(i)); i++) {
		memcpy(p.kv.base, before, p.bytes);
		ops->kv_copy(ctx, &p.kv, c, ARRAY_SIZE(c));
		ck_assert_bits_eq(p.kv.base, want, p.bytes);
	}
	pool_destroy(&p);
	free(before);
	free(want);
}
END_TEST

/* Enough bytes that threads divide the layers. */
START_TEST(test_kv_copy_threads)
{
	struct kern_kv kv = { .block_tokens = 64, .nr_layers = 5,
			      .kv_heads = 4, .head_dim = 128 };
	struct pool p = pool_create(&rng, kv, 2, BLOCK_MAJOR);
	struct kern_kv_copy c = { p.entries[0], p.entries[1], 64 };
	u8 *from = p.kv.base + 64ull * c.from, *to = p.kv.base + 64ull * c.to;
	const struct kern_ops *ops = kern_get(NULL);

	memset(from, 0x5a, p.bytes / 2);
	ops->kv_copy(ctx, &p.kv, &c, 1);
	ck_assert_bits_eq(to, from, p.bytes / 2);
	pool_destroy(&p);
}
END_TEST

/* Fast mode rounds queries and the weights of the softmax if KV is narrow. */
static double attn_tol(const struct kern_ops *ops, const struct kern_kv *kv)
{
	if (ops->mode == KERN_MODE_FAST && kv->dtype != KERN_F32)
		return KERN_TOL_FAST;
	return KERN_TOL;
}

/* The scale is that of kernels.h, bounded: every |q|, |k| and |v| is at most 1. */
static void assert_rows_near(const struct kern_ops *ops, struct batch *b,
			     float scale, const float *got, const float *want,
			     u64 ld)
{
	u64 dense = b->heads * b->pool.kv.head_dim;
	double tol = attn_tol(ops, &b->pool.kv) *
		     (1 + scale * b->pool.kv.head_dim / 2);
	u64 i;

	for (i = 0; i < b->nr_rows * ld; i++) {
		if (i % ld >= dense || fabs(got[i] - want[i]) <= tol)
			continue;
		ck_abort_msg("%s:%s row %u: got %.9g, want %.9g", ops->name,
			     ops->variant, (u32)(i / ld), got[i], want[i]);
	}
}

/* Ops must not read whole blocks that lie before every row's window. */
static void forget_before_window(struct batch *b)
{
	u32 s, i, first;

	for (s = 0; s < b->nr_seqs; s++) {
		if (!b->window || b->seqs[s].start_pos < b->window)
			continue;
		first = b->seqs[s].start_pos - b->window + 1;
		for (i = 0; i < first / b->pool.kv.block_tokens; i++)
			b->tables[s][i] = WILD_ENTRY;
	}
}

/* All implementations on the batch, which ends here. */
static void attention_check(struct batch b, u32 nr)
{
	u64 kv_ld = b.pool.kv.kv_heads * b.pool.kv.head_dim;
	u64 ld = b.heads * b.pool.kv.head_dim + (nr % 3 ? 0 : 5);
	float *k = rng_floats(&rng, MAX_SEQS * MAX_TOKENS * kv_ld);
	float *v = rng_floats(&rng, MAX_SEQS * MAX_TOKENS * kv_ld);
	float *q = rng_floats(&rng, b.nr_rows * ld);
	float *got = poisoned(b.nr_rows * ld), *want = poisoned(b.nr_rows * ld);
	struct kern_attn a = {
		.kv = &b.pool.kv, .layer = b.layer, .nr_seqs = b.nr_seqs,
		.seqs = b.seqs, .q = q, .q_ld = ld, .out_ld = ld,
		.heads = b.heads, .window = b.window,
		.scale = nr % 4 ? 1 / sqrtf(b.pool.kv.head_dim) : 1.5f,
		.softcap = nr % 5 < 2 ? 1.5f + nr % 5 : 0,
	};
	float *sinks = rng_floats(&rng, b.heads);
	const struct kern_ops *ops;
	u32 i;

	/* Sinks below and above the scores. */
	for (i = 0; i < b.heads; i++)
		sinks[i] *= i % 2 ? 9 : 1;
	a.sinks = nr % 3 != 1 ? sinks : NULL;
	batch_write(&b, ref, 0, k, v);
	forget_before_window(&b);
	a.out = want;
	ref->attention(NULL, &a);
	a.out = got;
	for (i = 1; (ops = hosted_some(i)); i++) {
		if (!takes_heads(ops, &b.pool.kv))
			continue;
		memset(got, 0xff, b.nr_rows * ld * sizeof(*got));
		ops->attention(ctx, &a);
		assert_rows_near(ops, &b, a.scale, got, want, ld);
	}
	batch_destroy(&b);
	free(k);
	free(v);
	free(q);
	free(sinks);
	free(got);
	free(want);
}

START_TEST(test_attention)
{
	attention_check(batch_create(_i), _i);
}
END_TEST

/* Sizes that are multiples of 8 and not of 16, with every type of KV. */
START_TEST(test_half_heads)
{
	struct kern_kv kv = random_kv(100 + _i);

	kv.head_dim = 8 + 16 * (_i % (KERN_MAX_HEAD_DIM / 16));
	kv.dtype = _i % (KERN_I8 + 1);
	attention_check(batch_of(kv, _i), _i);
}
END_TEST

/* The reference's sinks, against the formula: only the divisor changes. */
START_TEST(test_sinks)
{
	const struct kern_kv kv = { .block_tokens = 16, .nr_layers = 1,
				    .kv_heads = 1, .head_dim = 16 };
	struct pool p = pool_create(&rng, kv, 2, BLOCK_MAJOR);
	struct kern_attn_seq seq = { p.entries, 5, 0, 0 };
	const float sinks[] = { -3, 0.5f, 20 };
	float *k = rng_floats(&rng, 80), *v = rng_floats(&rng, 80);
	float *q = rng_floats(&rng, 240), *plain = poisoned(240);
	float *out = poisoned(240);
	struct kern_kv_append app = { .kv = &p.kv, .nr_seqs = 1, .seqs = &seq,
				      .k = k, .v = v };
	struct kern_attn a = { .kv = &p.kv, .nr_seqs = 1, .seqs = &seq,
			       .q = q, .out = plain, .heads = 3, .scale = 0.7f };
	double sum, dot;
	u32 h, i, j;

	ref->kv_write(NULL, &app);
	ref->attention(NULL, &a);
	a.out = out;
	a.sinks = sinks;
	ref->attention(NULL, &a);
	for (h = 0; h < 3; h++) {
		sum = 0;		/* the last row sees five positions */
		for (i = 0; i < 5; i++) {
			dot = 0;
			for (j = 0; j < 16; j++)
				dot += (double)q[4 * 48 + h * 16 + j] *
				       (double)k[i * 16 + j];
			sum += exp(dot * 0.7f);
		}
		for (j = 4 * 48 + h * 16; j < 4 * 48 + h * 16 + 16; j++)
			ck_assert_double_eq_tol(out[j], plain[j] * sum /
						(sum + exp((double)sinks[h])),
						1e-6);
	}
	pool_destroy(&p);
	free(k);
	free(v);
	free(q);
	free(plain);
	free(out);
}
END_TEST

static Suite *kernels_kv_suite(void)
{
	Suite *s = suite_create("kernels-kv");
	TCase *tc = tcase_create("against-reference");

	tcase_set_tags(tc, "unit kernels");
	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_layout);
	tcase_add_loop_test(tc, test_kv_write, 0, 20);
	tcase_add_loop_test(tc, test_kv_copy, 0, 16);
	tcase_add_test(tc, test_kv_copy_threads);
	tcase_add_test(tc, test_sinks);
	tcase_add_loop_test(tc, test_attention, 0, hosted_rounds(16, 64));
	tcase_add_loop_test(tc, test_half_heads, 0, hosted_rounds(20, 80));
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(kernels_kv_suite());
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
