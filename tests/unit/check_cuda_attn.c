// SPDX-License-Identifier: Apache-2.0
/*
 * check_cuda_attn.c - attention of the CUDA kernels
 *
 * The driver is the one that $KVMM_LIBCUDA names, else the tests' stand-in,
 * with the same device code.  Against the reference: random batches over random
 * geometries, sinks, all types of KV, blocks shared between sequences, NaN where no
 * sequence wrote, entries outside of a view far outside of the pool, poisoned
 * outputs.  In exact mode bit for bit: the result of a row is the same alone
 * (where its KV is split over the grid), inside of a prompt, among many others,
 * and with blocks of another size and layout elsewhere.
 */
#include "check_kernels.h"

#include <stdio.h>

#define WILD_ENTRY	0xffffff00u
#define MAX_SEQS	20
#define MAX_TOKENS	1300

static const struct kern_ops *ref;
static struct rng rng;

/* Exact mode and fast mode. */
static const struct kern_ops *ops[2];
static struct kern_ctx *gpu[2];

static void setup(void)
{
	static const struct kern_opts opts;
	const char *build = getenv("KVMM_BUILD");
	char path[4096], why[256];
	u32 i;

	snprintf(path, sizeof(path), "%s/tests/standin/libcuda.so.1",
		 build ? build : "build");
	setenv("KVMM_LIBCUDA", path, 0);
	setenv("KVMM_CUBLASLT", "none", 0);
	ref = kern_get("ref");
	for (i = 0; i < 2; i++) {
		ops[i] = kern_get(i ? "cuda-fast" : "cuda");
		ck_assert_ptr_nonnull(ops[i]);
		if (kern_open(ops[i], 0, &opts, &gpu[i], why, sizeof(why)))
			ck_abort_msg("%s", why);
	}
}

static void teardown(void)
{
	kern_close(ops[0], gpu[0]);
	kern_close(ops[1], gpu[1]);
}

/* Put bytes of the host on the device. */
static void *put(u32 mode, const void *from, u64 bytes)
{
	void *p = ops[mode]->mem_alloc(gpu[mode], bytes);

	ck_assert_ptr_nonnull(p);
	ops[mode]->mem_put(gpu[mode], p, from, bytes);
	return p;
}

static void get(u32 mode, void *to, const void *from, u64 bytes)
{
	if (ops[mode]->mem_get(gpu[mode], to, from, bytes))
		ck_abort_msg("%s", ops[mode]->failure(gpu[mode]));
}

/* Sequences over a pool in host memory, and a call on some of their rows. */
struct scene {
	struct pool		pool;
	struct kern_attn_seq	seqs[MAX_SEQS];
	u32			*tables[MAX_SEQS];
	u32			nr_seqs;
	u32			nr_rows;
	u32			next_block;
	float			*q;
	float			*sinks;		/* or NULL */
	struct kern_attn	a;
};

/* Write K and V of positions @from to @end of a table. */
static void scene_write(struct scene *s, u32 *table, u32 from, u32 end)
{
	u64 row = (u64)s->pool.kv.kv_heads * s->pool.kv.head_dim;
	struct kern_attn_seq seq = { table, end - from, 0, from };
	float *k = rng_floats(&rng, (end - from) * row);
	float *v = rng_floats(&rng, (end - from) * row);
	struct kern_kv_append app = {
		.kv = &s->pool.kv, .layer = s->a.layer, .nr_seqs = 1,
		.seqs = &seq, .k = k, .v = v,
	};

	ref->kv_write(NULL, &app);
	free(k);
	free(v);
}

/*
 * Add a sequence of @len positions, the last @rows of them in the call; with
 * @share its first blocks are those of sequence 0.
 */
static void scene_add(struct scene *s, u32 len, u32 rows, bool share)
{
	u32 bt = s->pool.kv.block_tokens, i, from = 0;
	u32 *table = malloc((MAX_TOKENS / bt + 2) * sizeof(*table));

	for (i = 0; i < MAX_TOKENS / bt + 2; i++)
		table[i] = WILD_ENTRY;
	for (i = 0; i < DIV_ROUND_UP(len, bt); i++) {
		if (share && s->nr_seqs && from == i * bt && from + bt <= len &&
		    from + bt <= s->seqs[0].start_pos) {
			table[i] = s->tables[0][i];
			from += bt;
			continue;
		}
		ck_assert_uint_lt(s->next_block, s->pool.nr_blocks);
		table[i] = s->pool.entries[s->next_block++];
	}
	if (from < len)
		scene_write(s, table, from, len);
	s->tables[s->nr_seqs] = table;
	s->seqs[s->nr_seqs++] = (struct kern_attn_seq){
		.table = table, .nr_rows = rows, .first_row = s->nr_rows,
		.start_pos = len - rows,
	};
	s->nr_rows += rows;
}

/* Drop the blocks before every row's window: the kernels do not look at them. */
static void scene_forget(struct scene *s)
{
	u32 i, j, first, bt = s->pool.kv.block_tokens, start;

	for (i = 0; i < s->nr_seqs; i++) {
		start = s->seqs[i].start_pos;
		if (!s->a.window || start < s->a.window)
			continue;
		first = start - s->a.window + 1;
		for (j = 0; j < first / bt; j++)
			s->tables[i][j] = WILD_ENTRY;
	}
}

static void scene_destroy(struct scene *s)
{
	while (s->nr_seqs)
		free(s->tables[--s->nr_seqs]);
	pool_destroy(&s->pool);
	free(s->q);
	free(s->sinks);
}

/* Run the call on the host by the reference, or on a device, with rows of @ld. */
static float *scene_run(const struct scene *s, s32 mode, u64 ld)
{
	u64 floats = s->nr_rows * ld, bytes = floats * sizeof(float);
	struct kern_kv kv = s->pool.kv;
	struct kern_attn a = s->a;
	float *out = poisoned(floats);

	a.kv = &kv;
	a.nr_seqs = s->nr_seqs;
	a.seqs = s->seqs;
	a.q_ld = a.out_ld = ld;
	a.q = s->q;
	a.out = out;
	a.sinks = s->sinks;
	if (mode < 0) {
		ref->attention(NULL, &a);
		return out;
	}
	kv.base = put(mode, s->pool.kv.base, s->pool.bytes);
	a.q = put(mode, s->q, bytes);
	a.out = put(mode, out, bytes);
	if (s->sinks)
		a.sinks = put(mode, s->sinks, a.heads * sizeof(*a.sinks));
	ops[mode]->attention(gpu[mode], &a);
	get(mode, out, a.out, bytes);
	ops[mode]->mem_free(gpu[mode], (void *)(uintptr_t)a.sinks);
	ops[mode]->mem_free(gpu[mode], kv.base);
	ops[mode]->mem_free(gpu[mode], (void *)(uintptr_t)a.q);
	ops[mode]->mem_free(gpu[mode], a.out);
	return out;
}

/* The scale of kernels.h, bounded: every |q|, |k| and |v| is at most 1. */
static void assert_near(const struct scene *s, u32 mode, const float *got,
			const float *want, u64 ld)
{
	const struct kern_kv *kv = &s->pool.kv;
	u64 dense = s->a.heads * kv->head_dim, i;
	double tol = mode && kv->dtype != KERN_F32 ? KERN_TOL_FAST : KERN_TOL;
	u32 poison = 0xffffffff;

	tol *= 1 + s->a.scale * kv->head_dim / 2;
	for (i = 0; i < s->nr_rows * ld; i++) {
		if (i % ld >= dense) {
			ck_assert(!memcmp(&got[i], &poison, 4));
			continue;
		}
		if (fabs(got[i] - want[i]) <= tol)
			continue;
		ck_abort_msg("%s, type %u, hd %u, group %u, window %u: row %u, element %u: got %.9g, want %.9g",
			     ops[mode]->name, kv->dtype, kv->head_dim,
			     s->a.heads / kv->kv_heads, s->a.window,
			     (u32)(i / ld), (u32)(i % ld), got[i], want[i]);
	}
}

/* Sinks below and above the scores. */
static float *sinks_of(u32 heads)
{
	float *f = rng_floats(&rng, heads);
	u32 i;

	for (i = 0; i < heads; i++)
		f[i] *= i % 2 ? 9 : 1;
	return f;
}

static struct scene scene_create(u32 i, enum kern_dtype type, u32 group,
				 u32 window)
{
	static const u32 dims[] = {
		64, 128, 80, 96, 256, 48, 16, 112, 192, 24, 120, 72, 200,
	};
	static const u32 tokens[] = { 16, 32, 64, 48, 80, 112, 128, 336 };
	struct kern_kv kv = {
		.block_tokens = tokens[rng_range(&rng, 0, ARRAY_SIZE(tokens) - 1)],
		.nr_layers = rng_range(&rng, 1, 2),
		.kv_heads = rng_range(&rng, 1, 2),
		.head_dim = dims[i % ARRAY_SIZE(dims)],
		.dtype = type,
	};
	struct scene s = {
		.pool = pool_create(&rng, kv, 4 * (MAX_TOKENS / kv.block_tokens + 1),
				    i & 1 ? LAYER_MAJOR : BLOCK_MAJOR),
		.a = {
			.layer = kv.nr_layers - 1,
			.heads = kv.kv_heads * group,
			.window = window,
			.scale = i % 4 ? 1 / sqrtf(kv.head_dim) : 0.4f,
			.softcap = i % 5 < 2 ? 1.5f + i % 5 : 0,
		},
	};

	if (i % 3 != 1)
		s.sinks = sinks_of(s.a.heads);
	return s;
}

static void scene_check(struct scene *s, u64 ld)
{
	float *want, *got;
	u32 mode;

	s->q = rng_floats(&rng, s->nr_rows * ld);
	scene_forget(s);
	want = scene_run(s, -1, ld);
	for (mode = 0; mode < 2; mode++) {
		got = scene_run(s, mode, ld);
		assert_near(s, mode, got, want, ld);
		free(got);
	}
	free(want);
	scene_destroy(s);
}

static const enum kern_dtype types[] = {
	KERN_F32, KERN_BF16, KERN_F16, KERN_E4M3, KERN_I8,
};

/* Rows as an engine makes them: one for each sequence, long ones and short ones. */
START_TEST(test_decode)
{
	static const u32 groups[] = { 4, 1, 8, 7, 16, 3, 40 };
	struct scene s;
	u32 i, nr;

	rng.s = _i;
	s = scene_create(_i / ARRAY_SIZE(types), types[_i % ARRAY_SIZE(types)],
			 groups[_i % ARRAY_SIZE(groups)],
			 _i % 3 ? 0 : rng_range(&rng, 1, 200));
	nr = rng_range(&rng, 1, 5);
	for (i = 0; i < nr; i++)
		scene_add(&s, rng_range(&rng, 1, i ? 150 : 700),
			  rng_range(&rng, 0, 5) ? 1 : 2, rng_next(&rng) % 2);
	scene_check(&s, s.a.heads * s.pool.kv.head_dim + (_i % 3 ? 0 : 5));
}
END_TEST

/* Prompts, or pieces of them, among rows of decode. */
START_TEST(test_mixed)
{
	static const u32 groups[] = { 3, 8, 1, 5, 16 };
	struct scene s;
	u32 i, nr, len, rows;

	rng.s = 1000 + _i;
	s = scene_create(_i / ARRAY_SIZE(types), types[_i % ARRAY_SIZE(types)],
			 groups[_i % ARRAY_SIZE(groups)],
			 _i % 3 ? 0 : rng_range(&rng, 1, 90));
	nr = rng_range(&rng, 1, 3);
	for (i = 0; i < nr; i++) {
		len = rng_range(&rng, 1, 180);
		rows = rng_next(&rng) % 3 ? rng_range(&rng, 1, len) : 1;
		scene_add(&s, len, rows, rng_next(&rng) % 2);
	}
	scene_check(&s, s.a.heads * s.pool.kv.head_dim + (_i % 3 ? 0 : 5));
}
END_TEST

#define FIRST_HALF	9	/* the first size that is no multiple of 16 */

/* Both kernels of fast mode, on heads that are no multiple of 16. */
START_TEST(test_half_heads)
{
	struct scene s;

	rng.s = 3000 + _i;
	s = scene_create(FIRST_HALF + _i / 3, types[_i % 3], _i % 2 ? 3 : 8,
			 _i % 3 ? 0 : 90);
	scene_add(&s, 300 + 100 * _i % 700, 1, false);
	scene_add(&s, 70, 40, false);
	scene_check(&s, s.a.heads * s.pool.kv.head_dim + (_i % 3 ? 0 : 5));
}
END_TEST

/* --------------------------------------------------------------- exact mode */

/* Compare the result of one row of a call. */
static void assert_row(const struct scene *s, const float *got, u32 row,
		       const float *want, const char *what)
{
	u64 dense = s->a.heads * s->pool.kv.head_dim;

	if (memcmp(got + row * dense, want, dense * sizeof(*got)))
		ck_abort_msg("%s: other bits, type %u", what,
			     s->pool.kv.dtype);
}

/* The same sequence in another pool: blocks of @bt tokens, in @layout. */
static struct scene scene_again(const struct scene *s, u32 bt,
				enum pool_layout layout, u64 seed, u32 len,
				u32 rows)
{
	struct kern_kv kv = s->pool.kv;
	struct scene t = { .a = s->a };

	kv.block_tokens = bt;
	t.pool = pool_create(&rng, kv, 4 * MAX_TOKENS / bt, layout);
	if (s->sinks) {
		t.sinks = sinks_of(s->a.heads);
		memcpy(t.sinks, s->sinks, s->a.heads * sizeof(*t.sinks));
	}
	rng.s = seed;
	scene_add(&t, len, rows, false);
	return t;
}

/*
 * The last row of a sequence of @len: alone, behind rows of its own prompt, and
 * among so many others that items are not split.
 */
static void same_bits(struct scene *first, u32 len)
{
	static const u32 bts[] = { 16, 80, 32, 336 };
	u64 dense = first->a.heads * first->pool.kv.head_dim;
	float *q = rng_floats(&rng, dense), *want = NULL, *got;
	u64 seed = rng.s;
	struct scene t;
	u32 i, row, rows;

	for (i = 0; i < ARRAY_SIZE(bts); i++) {
		rows = i == 1 ? min(len, 37u) : 1;
		t = scene_again(first, bts[i], i & 1 ? LAYER_MAJOR :
				BLOCK_MAJOR, seed, len, rows);
		for (; i == 2 && t.nr_seqs < MAX_SEQS;)
			scene_add(&t, rng_range(&rng, 1, 40), 1, false);
		t.q = rng_floats(&rng, t.nr_rows * dense);
		row = rows - 1;
		memcpy(t.q + row * dense, q, dense * sizeof(*q));
		scene_forget(&t);
		got = scene_run(&t, 0, dense);
		if (want)
			assert_row(&t, got, row, want, i == 1 ? "in a prompt" :
				   i == 2 ? "among others" : "elsewhere");
		else
			want = got;
		if (got != want)
			free(got);
		scene_destroy(&t);
	}
	free(want);
	free(q);
}

START_TEST(test_exact)
{
	static const u32 lens[] = { 1, 64, 65, 512, 513, 700, 1290 };
	struct scene s;
	u32 i;

	rng.s = 2000 + _i;
	s = scene_create(_i, types[_i % ARRAY_SIZE(types)],
			 _i % 2 ? 1 : 4, _i % 3 == 2 ? 600 : 0);
	for (i = 0; i < ARRAY_SIZE(lens); i++)
		same_bits(&s, lens[i]);
	scene_destroy(&s);
}
END_TEST

/* ------------------------------------------------------- layer groups */

#define NR_GROUPS	2u

/* A step with two groups: each scene is a group, with the same rows in the same order. */
struct groups {
	struct scene		s[NR_GROUPS];
	struct kern_kv		kv[NR_GROUPS];
	struct kern_attn_seq	seqs[NR_GROUPS * MAX_SEQS];
	struct kern_attn	a[NR_GROUPS];
	float			*want[NR_GROUPS];
	u64			floats;
};

static void groups_create(struct groups *g, u32 rows, struct kern_ctx *ctx)
{
	static const u32 bts[NR_GROUPS] = { 16, 48 };
	static const u32 lens[] = { 130, 17, 700 };
	const u64 seed = rng.s;
	u32 i, j;

	for (i = 0; i < NR_GROUPS; i++) {
		struct scene *s = &g->s[i];

		rng.s = seed;
		*s = scene_create(0, KERN_BF16, 2, i ? 50 : 0);
		pool_destroy(&s->pool);
		free(s->sinks);
		s->sinks = NULL;
		*s = scene_again(s, bts[i], BLOCK_MAJOR, seed + i, lens[0], rows);
		for (j = 1; j < ARRAY_SIZE(lens); j++)
			scene_add(s, lens[j], rows, false);
		scene_forget(s);
		g->floats = (u64)s->nr_rows * s->a.heads * s->pool.kv.head_dim;
		s->q = rng_floats(&rng, g->floats);
		g->want[i] = scene_run(s, 0, (u64)s->a.heads * s->pool.kv.head_dim);
		memcpy(g->seqs + (u64)i * s->nr_seqs, s->seqs,
		       s->nr_seqs * sizeof(*s->seqs));
		g->kv[i] = s->pool.kv;
		g->kv[i].group = i;
		g->kv[i].base = ops[0]->mem_alloc(ctx, s->pool.bytes);
		ops[0]->mem_put(ctx, g->kv[i].base, s->pool.kv.base, s->pool.bytes);
		g->a[i] = s->a;
		g->a[i].kv = &g->kv[i];
		g->a[i].nr_seqs = s->nr_seqs;
		g->a[i].seqs = g->seqs + (u64)i * s->nr_seqs;
		g->a[i].q = ops[0]->mem_alloc(ctx, g->floats * sizeof(float));
		ops[0]->mem_put(ctx, (void *)(uintptr_t)g->a[i].q, s->q,
				g->floats * sizeof(float));
		g->a[i].out = ops[0]->mem_alloc(ctx, g->floats * sizeof(float));
	}
}

/* One step; its results must have the bits of calls outside of a step. */
static void groups_step(struct groups *g, struct kern_ctx *ctx, bool replayed)
{
	const u32 zeros[MAX_SEQS * 8] = { 0 };
	const struct kern_step st = {
		.kv = g->kv, .nr_groups = NR_GROUPS, .seqs = g->seqs,
		.nr_seqs = g->s[0].nr_seqs, .nr_rows = g->s[0].nr_rows,
		.ids = zeros, .positions = zeros, .max_rows = 64,
	};
	float *got = poisoned(g->floats);
	struct kern_rows rows;
	u32 i;

	for (i = 0; i < NR_GROUPS; i++)
		ops[0]->mem_put(ctx, g->a[i].out, got,
				g->floats * sizeof(float));
	ck_assert_msg(!kern_step_begin(ops[0], ctx, &st, &rows), "%s",
		      ops[0]->failure(ctx));
	ck_assert_int_eq(rows.replayed, replayed);
	for (i = NR_GROUPS; i-- && !replayed;)
		ops[0]->attention(ctx, &g->a[i]);
	ck_assert_int_eq(kern_step_end(ops[0], ctx), 0);
	for (i = 0; i < NR_GROUPS; i++) {
		ck_assert_int_eq(ops[0]->mem_get(ctx, got, g->a[i].out,
						 g->floats * sizeof(float)), 0);
		ck_assert_msg(!memcmp(got, g->want[i], g->floats * sizeof(*got)),
			      "other bits in group %u", i);
	}
	free(got);
}

/* Prefill, then decode: launched, recorded, and replayed. */
START_TEST(test_groups)
{
	static const struct kern_opts opts = { .graphs = true };
	struct kern_ctx *ctx;
	struct groups g;
	char why[256];
	u32 i, n;

	ck_assert_int_eq(kern_open(ops[0], 0, &opts, &ctx, why, sizeof(why)), 0);
	for (n = 0; n < 2; n++) {
		rng.s = 31 + n;
		groups_create(&g, n ? 1 : 5, ctx);
		for (i = 0; i < 3; i++)
			groups_step(&g, ctx, n && i == 2);
		for (i = 0; i < NR_GROUPS; i++) {
			free(g.want[i]);
			scene_destroy(&g.s[i]);
		}
	}
	kern_close(ops[0], ctx);
}
END_TEST

static Suite *cuda_attn_suite(void)
{
	Suite *s = suite_create("cuda-attn");
	TCase *tc = tcase_create("attention");

	tcase_set_tags(tc, "unit kernels cuda");
	tcase_set_timeout(tc, 300);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, test_decode, 0, hosted_rounds(8, 45));
	tcase_add_loop_test(tc, test_mixed, 0, hosted_rounds(6, 30));
	tcase_add_loop_test(tc, test_half_heads, 0, hosted_rounds(6, 12));
	tcase_add_loop_test(tc, test_exact, 0, hosted_rounds(1, 5));
	tcase_add_test(tc, test_groups);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(cuda_attn_suite());
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
