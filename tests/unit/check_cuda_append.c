// SPDX-License-Identifier: Apache-2.0
/*
 * check_cuda_append.c - paged KV as the CUDA kernels write it
 *
 * Pools full of NaN, on the device and for the reference, are compared whole,
 * byte by byte, after each op: so a write outside of all sequences is seen,
 * too.  Sequences of prefill and decode are mixed, their blocks lie anywhere,
 * rows between them belong to no sequence, and all types and both layouts are
 * run.
 */
#include "cuda_fixture.h"

static const struct kern_ops *ref;
static struct rng rng;

static void setup(void)
{
	ref = kern_get("ref");
	rng.s = 31;
	dev_open();
}

static void teardown(void)
{
	dev_close();
}

/* A pool, and its copy on the device. */
struct twin {
	struct pool p;
	struct kern_kv kv;		/* the device's */
};

static struct twin twin_create(enum kern_dtype type, u32 hd, u32 heads,
			       u32 tokens, enum pool_layout layout)
{
	const struct kern_kv kv = {
		.block_tokens = tokens, .nr_layers = 2, .kv_heads = heads,
		.head_dim = hd, .dtype = type,
	};
	struct twin t = { .p = pool_create(&rng, kv, 12, layout) };

	t.kv = t.p.kv;
	t.kv.base = dev_put(t.p.kv.base, t.p.bytes);
	return t;
}

static void twin_compare(const struct twin *t, const char *what)
{
	u8 *got = malloc(t->p.bytes);
	u64 i;

	ck_assert_ptr_nonnull(got);
	dev_get(got, t->kv.base, t->p.bytes);
	for (i = 0; i < t->p.bytes; i++)
		if (got[i] != t->p.kv.base[i])
			ck_abort_msg("%s: byte %llu of %llu is %#x, not %#x",
				     what, (unsigned long long)i,
				     (unsigned long long)t->p.bytes, got[i],
				     t->p.kv.base[i]);
	free(got);
}

/* Prefill, decode, and a row of no sequence in between. */
#define NR_SEQS		3u
#define NR_ROWS		23u

static void seqs_make(const struct twin *t, struct kern_attn_seq *s)
{
	const u32 bt = t->p.kv.block_tokens;

	s[0] = (struct kern_attn_seq){ t->p.entries, 20, 0, bt - 3 };
	s[1] = (struct kern_attn_seq){ t->p.entries + 6, 1, 21, 2 * bt };
	s[2] = (struct kern_attn_seq){ t->p.entries + 9, 1, 22, bt - 1 };
}

/* Values at the edges of every type. */
static void kv_values(float *x, u64 n, u32 hd)
{
	u64 i;

	for (i = 0; i < n; i++) {
		x[i] = rng_float(&rng) * (i / hd % 3 ? 3 : 1e-3f);
		if (i / hd % 7 == 3)
			x[i] = 0;	/* a head of zeros */
		if (i / hd % 7 == 4)
			x[i] = (float)rng_range(&rng, 0, 896) / 2 - 224;
		if (i / hd % 11 == 5 && i % hd == 2)
			x[i] = i / hd % 2 ? NAN : -INFINITY;
	}
}

static bool scaled(const struct twin *t)
{
	return t->kv.dtype == KERN_E4M3 || t->kv.dtype == KERN_I8;
}

static void try_write(struct twin *t, u32 gap, u32 skew)
{
	const u32 hd = t->kv.head_dim, heads = t->kv.kv_heads;
	const u64 ld = heads * hd + gap, n = NR_ROWS * ld;
	float *k = rng_floats(&rng, n), *v = rng_floats(&rng, n);
	struct kern_attn_seq seqs[NR_SEQS];
	struct kern_kv_append a = {
		.kv = &t->p.kv, .layer = 1, .nr_seqs = NR_SEQS, .seqs = seqs,
		.k = k, .k_ld = ld, .v = v, .v_ld = ld,
	};

	/* Not every NaN has the same bits in the types without a scale. */
	if (scaled(t)) {
		kv_values(k, n, hd);
		kv_values(v, n, hd);
	}
	seqs_make(t, seqs);
	ref->kv_write(NULL, &a);
	a.kv = &t->kv;
	a.k = dev_floats(k, n, skew);
	a.v = dev_floats(v, n, skew);
	dev.ops->kv_write(dev.ctx, &a);
	twin_compare(t, "kv_write");
	free(k);
	free(v);
}

START_TEST(test_write)
{
	static const u32 hds[] = { 16, 80, 128, 256 };
	static const u32 tokens[] = { 16, 48, 64, 144 };
	struct twin t;
	u32 i, mark = dev.nr;

	for (i = 0; i < ARRAY_SIZE(hds); i++, dev_free_to(mark)) {
		t = twin_create(_i, hds[i], 1 + i, tokens[i], i % 2);
		try_write(&t, 0, 0);
		try_write(&t, 3, i % 2);
		pool_destroy(&t.p);
	}
}
END_TEST

/* Layers at addresses that are no multiples of 16. */
START_TEST(test_write_skewed)
{
	struct twin t = twin_create(_i, 48, 2, 16, BLOCK_MAJOR);
	const u32 skew = 4;
	u8 *wide = malloc(t.p.bytes + skew);

	ck_assert_ptr_nonnull(wide);
	memset(wide, 0xff, t.p.bytes + skew);
	t.kv.base = (u8 *)dev_put(wide, t.p.bytes + skew) + skew;
	try_write(&t, 0, 0);
	free(wide);
	pool_destroy(&t.p);
}
END_TEST

/* ------------------------------------------------- rotated and appended */

static void try_rope_write(enum kern_dtype type, u32 heads, u32 kv_heads,
			   u32 hd, u32 half, u32 gap, bool settle)
{
	struct twin t = twin_create(type, hd, kv_heads, 16, BLOCK_MAJOR);
	const u64 q_ld = heads * hd + gap, k_ld = kv_heads * hd + gap;
	const u64 nq = NR_ROWS * q_ld, nk = NR_ROWS * k_ld;
	const u64 nt = NR_ROWS * 2ull * half;
	float *q = rng_floats(&rng, nq), *k = rng_floats(&rng, nk);
	float *v = rng_floats(&rng, nk), *table = rng_floats(&rng, nt);
	float *q1 = dev_inout(q, nq, 0), *q2 = dev_inout(q, nq, 0), *got[4];
	float *k1 = dev_inout(k, nk, 0), *k2 = dev_inout(k, nk, 0);
	float *dt = dev_floats(table, nt, 0);
	struct kern_attn_seq seqs[NR_SEQS];
	struct kern_kv_append a = {
		.kv = &t.kv, .layer = 1, .nr_seqs = NR_SEQS, .seqs = seqs,
		.k = k1, .k_ld = k_ld, .v = dev_floats(v, nk, 0), .v_ld = k_ld,
	};
	u32 i;

	seqs_make(&t, seqs);
	dev.ops->settles(dev.ctx, settle);
	dev.ops->rope(dev.ctx, q1, q_ld, NR_ROWS, heads, hd, half, dt);
	dev.ops->rope(dev.ctx, k1, k_ld, NR_ROWS, kv_heads, hd, half, dt);
	dev.ops->kv_write(dev.ctx, &a);
	dev_get(t.p.kv.base, t.kv.base, t.p.bytes);
	/* The joined op, into an empty pool. */
	a.k = k2;
	t.kv.base = dev_alloc(t.p.bytes);
	q = realloc(q, t.p.bytes);
	ck_assert_ptr_nonnull(q);
	memset(q, 0xff, t.p.bytes);
	dev.ops->mem_put(dev.ctx, t.kv.base, q, t.p.bytes);
	cuda_rope_write(dev.ctx, &a, q2, q_ld, heads, half, dt);
	dev.ops->settles(dev.ctx, false);
	got[0] = dev_result(q1, nq);
	got[1] = dev_result(q2, nq);
	got[2] = dev_result(k1, nk);
	got[3] = dev_result(k2, nk);
	assert_same("rope_write, q", got[1], got[0], nq);
	assert_same("rope_write, k", got[3], got[2], nk);
	twin_compare(&t, "rope_write");
	for (i = 0; i < 4; i++)
		free(got[i]);
	free(q);
	free(k);
	free(v);
	free(table);
	pool_destroy(&t.p);
}

START_TEST(test_rope_write)
{
	const u32 mark = dev.nr;

	try_rope_write(_i, 4, 2, 64, 32, 0, false);
	dev_free_to(mark);
	try_rope_write(_i, 3, 1, 80, 20, 1, true);	/* partial, skewed */
	dev_free_to(mark);
	try_rope_write(_i, 9, 3, 128, 64, 4, true);
	dev_free_to(mark);
	try_rope_write(_i, 2, 2, 256, 128, 0, false);
	dev_free_to(mark);
	try_rope_write(_i, 2, 1, 48, 21, 0, true);
}
END_TEST

/* ----------------------------------------------------------------- copies */

/* All bytes are different, so that a wrong source is seen. */
static void twin_fill(struct twin *t)
{
	u64 i;

	for (i = 0; i < t->p.bytes; i++)
		t->p.kv.base[i] = (u8)rng_next(&rng);
	dev.ops->mem_put(dev.ctx, t->kv.base, t->p.kv.base, t->p.bytes);
}

/* Descriptors in any order, many of which need the results of others. */
static void try_copy(struct twin *t, u32 nr)
{
	struct kern_kv_copy *c = calloc(nr, sizeof(*c));
	const u32 bt = t->kv.block_tokens;
	u32 i;

	ck_assert_ptr_nonnull(c);
	twin_fill(t);
	for (i = 0; i < nr; i++)
		c[i] = (struct kern_kv_copy){
			.from = t->p.entries[rng_range(&rng, 0, 11)],
			.to = t->p.entries[rng_range(&rng, 0, 11)],
			.tokens = i % 3 ? rng_range(&rng, 0, bt) : bt,
		};
	ref->kv_copy(NULL, &t->p.kv, c, nr);
	dev.ops->kv_copy(dev.ctx, &t->kv, c, nr);
	twin_compare(t, "kv_copy");
	free(c);
}

START_TEST(test_copy)
{
	static const u32 nrs[] = { 0, 1, 2, 7, 40 };
	struct twin t;
	u32 i, mark = dev.nr;

	for (i = 0; i < ARRAY_SIZE(nrs); i++, dev_free_to(mark)) {
		t = twin_create(_i, 16 + 32 * (i % 3), 1 + i % 2, 16 << i % 3,
				i % 2);
		try_copy(&t, nrs[i]);
		pool_destroy(&t.p);
	}
}
END_TEST

/* More copies than one launch takes, from one block into as many others. */
START_TEST(test_copy_many)
{
	struct kern_kv_copy c[2 * KV_COPY_MAX + 3];
	struct kern_kv kv = {
		.block_tokens = 16, .nr_layers = 1, .kv_heads = 1,
		.head_dim = 16, .dtype = KERN_I8,
	};
	struct twin t = {
		.p = pool_create(&rng, kv, ARRAY_SIZE(c) + 1, LAYER_MAJOR),
	};
	u32 i;

	t.kv = t.p.kv;
	t.kv.base = dev_alloc(t.p.bytes);
	twin_fill(&t);
	for (i = 0; i < ARRAY_SIZE(c); i++)
		c[i] = (struct kern_kv_copy){
			t.p.entries[ARRAY_SIZE(c)], t.p.entries[i], i % 17,
		};
	ref->kv_copy(NULL, &t.p.kv, c, ARRAY_SIZE(c));
	dev.ops->kv_copy(dev.ctx, &t.kv, c, ARRAY_SIZE(c));
	twin_compare(&t, "kv_copy of many");
	pool_destroy(&t.p);
}
END_TEST

static Suite *cuda_append_suite(void)
{
	Suite *s = suite_create("cuda-append");
	TCase *tc = tcase_create("kv");

	tcase_set_tags(tc, "unit kernels cuda");
	tcase_set_timeout(tc, 120);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, test_write, KERN_F32, KERN_I8 + 1);
	tcase_add_loop_test(tc, test_write_skewed, KERN_F32, KERN_I8 + 1);
	tcase_add_loop_test(tc, test_rope_write, KERN_F32, KERN_I8 + 1);
	tcase_add_loop_test(tc, test_copy, KERN_F32, KERN_I8 + 1);
	tcase_add_test(tc, test_copy_many);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(cuda_append_suite());
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
