// SPDX-License-Identifier: Apache-2.0
/*
 * check_model_moe.c - layers with experts: counters, and sequences in company
 *
 * The counters are compared with the choice of the router and with the products of the
 * model: ops that stand before the real ones record both.  In exact mode a sequence has the
 * same bits alone and among 63 others.  Pieces of their prompts run beside single tokens,
 * in any order.
 */
#include "runtime/model/internal.h"
#include "tests/level.h"
#include "tests/unit/golden_fixture.h"

static const char * const moe_cases[] = {
	"mixtral", "olmoe", "qwen2-moe", "qwen3-moe", "qwen3-moe-all",
	"deepseek2-moe", "deepseek2-groups-moe", "gpt-oss",
};

static void setup(void)
{
	dir_create();
}

static void teardown(void)
{
	dir_destroy();
}

static struct model *load(enum model_dtype dtype, const char *kernel, u32 max_rows)
{
	const struct model_opts opts = {
		.mode = MODEL_EXACT, .dtype = dtype, .dummy = true,
		.kernel = kernel, .nr_threads = 1, .max_rows = max_rows,
	};
	struct model_error err;
	struct model *model;

	ck_assert_msg(!model_load(fixture_dir, &opts, &model, &err), "%s",
		      err.text);
	return model;
}

/* ---- counters ---- */

#define MAX_PARTS	4096u

/* Ops that record the choices and the products of experts, and then call the real ones. */
static struct {
	const struct model	*model;
	const struct kern_ops	*real;
	struct kern_ops		ops;
	/* The expert that a row chooses first; NULL: the router decides. */
	u32			(*plan)(u32 row);
	u32			layers;
	u32			rows;
	u32			touched;
	const struct kern_weight *parts[MAX_PARTS];
	u32			nr_parts;
} spy;

/* Row i chooses expert plan(i) and those behind it. */
static void plan_logits(const struct kern_route *r)
{
	float *logits = (float *)(uintptr_t)r->logits;
	u32 i, e;

	for (i = 0; i < r->m; i++)
		for (e = 0; e < r->experts; e++)
			logits[i * r->experts + (spy.plan(i) + e) % r->experts] =
				-(float)e;
}

static void spy_route(struct kern_ctx *ctx, const struct kern_route *r)
{
	bool seen[KERN_MAX_EXPERTS] = { false };
	u32 i;

	if (spy.plan)
		plan_logits(r);
	spy.real->route(ctx, r);
	for (i = 0; i < r->m * r->chosen; i++) {
		if (spy.plan)
			ck_assert_uint_eq(r->ids[i], (spy.plan(i / r->chosen) +
					  i % r->chosen) % r->experts);
		spy.touched += !seen[r->ids[i]];
		seen[r->ids[i]] = true;
	}
	spy.layers++;
	spy.rows += r->m;
}

static u32 sparse_layers(const struct model *model)
{
	u32 i, nr = 0;

	for (i = 0; i < model->cfg.layers; i++)
		nr += config_is_sparse(&model->cfg, i);
	return nr;
}

static bool is_expert(const struct kern_weight *w)
{
	const struct model_mlp *all = spy.model->w.experts;
	const u32 nr = sparse_layers(spy.model) * spy.model->cfg.moe.experts;

	return (uintptr_t)w >= (uintptr_t)all && (uintptr_t)w < (uintptr_t)(all + nr);
}

/* Each matrix is asked for once a step. */
static void spy_parts(struct kern_ctx *ctx, const struct kern_gemm_part *parts,
		      u32 nr)
{
	u32 i, j;

	for (i = 0; i < nr; i++) {
		if (!is_expert(parts[i].w))
			continue;
		for (j = 0; j < spy.nr_parts; j++)
			ck_assert_msg(spy.parts[j] != parts[i].w,
				      "%s: a matrix is read twice", case_dir);
		ck_assert_uint_lt(spy.nr_parts, MAX_PARTS);
		spy.parts[spy.nr_parts++] = parts[i].w;
	}
	spy.real->gemm_parts(ctx, parts, nr);
}

static struct model *load_spied(u32 max_rows)
{
	struct model *model = load(MODEL_F32, NULL, max_rows);

	memset(&spy, 0, sizeof(spy));
	spy.model = model;
	spy.real = model->ops;
	spy.ops = *model->ops;
	spy.ops.route = spy_route;
	spy.ops.gemm_parts = spy_parts;
	model->ops = &spy.ops;
	return model;
}

/* Run a step of @nr sequences of one token; @add gets the growth of the counters. */
static void step(struct model *model, u32 nr, u32 *seed, struct model_stats *add)
{
	struct model_seq_in in[64] = { 0 };
	u32 tokens[64], i;
	struct model_stats was;
	struct pool pool;

	pool_create(&pool, model_info(model), 64, 16, false, 1);
	for (i = 0; i < nr; i++) {
		tokens[i] = rnd(seed) % VOCAB;
		in[i].tokens = &tokens[i];
		in[i].nr_tokens = 1;
		pool_tables(&pool, 1, &in[i]);
	}
	spy.layers = spy.rows = spy.touched = spy.nr_parts = 0;
	model_get_stats(model, &was);
	ck_assert_int_eq(model_forward(model, &pool.kv, in, nr, NULL), 0);
	model_get_stats(model, add);
#define x(type, name, text) add->name -= was.name;
	MODEL_STATS(x)
#undef x
	pool_destroy(&pool);
}

/* The counters have the numbers that the spy saw. */
static void assert_counted(const struct model *model, const struct model_stats *st,
			   u32 nr)
{
	const struct moe_config *moe = &model->cfg.moe;
	const u64 bytes = 3ull * model->cfg.hidden * moe->inter * sizeof(float);
	const u32 layers = sparse_layers(model);

	ck_assert_uint_eq(spy.layers, layers);
	ck_assert_uint_eq(st->expert_layers, layers);
	ck_assert_uint_eq(spy.rows, nr * layers);
	ck_assert_uint_eq(st->expert_rows, nr * layers);
	ck_assert_uint_ge(spy.touched, moe->chosen * layers);
	ck_assert_uint_eq(st->experts_touched, spy.touched);
	ck_assert_uint_eq(spy.nr_parts, 3 * spy.touched);
	ck_assert_uint_eq(st->expert_products, 3 * spy.touched);
	ck_assert_uint_eq(st->expert_bytes, spy.touched * bytes);
}

static const u32 batches[] = { 1, 8, 64 };

/* The choice of random rows, with room for few rows in a group of experts, and for many. */
START_TEST(test_counters)
{
	static const u32 rooms[] = { 64, 512 };
	struct model_stats st;
	struct model *model;
	u32 i, j, seed = 7;

	golden_read(moe_cases[_i]);
	config_write(NULL, NULL);
	for (i = 0; i < ARRAY_SIZE(rooms); i++) {
		model = load_spied(rooms[i]);
		for (j = 0; j < ARRAY_SIZE(batches); j++) {
			step(model, batches[j], &seed, &st);
			assert_counted(model, &st, batches[j]);
		}
		model_free(model);
	}
}
END_TEST

static u32 all_as_one(u32 row)
{
	return 3;
}

static u32 one_after_other(u32 row)
{
	return 4 * row;
}

/* Rows with known logits: all choose the same experts, or each chooses others. */
START_TEST(test_known)
{
	struct model_stats st;
	struct model *model;
	u32 j, seed = 7;
	double layers;

	golden_read("olmoe");		/* 4 of 8 experts in 3 layers */
	config_write(NULL, NULL);
	model = load_spied(64);
	for (j = 0; j < ARRAY_SIZE(batches); j++) {
		spy.plan = all_as_one;
		step(model, batches[j], &seed, &st);
		assert_counted(model, &st, batches[j]);
		ck_assert_uint_eq(st.experts_touched, 3 * 4);
		ck_assert_uint_eq(st.expert_bytes, 3ull * 4 * 3 * 64 * 96 * 4);
		spy.plan = one_after_other;
		step(model, batches[j], &seed, &st);
		assert_counted(model, &st, batches[j]);
		ck_assert_uint_eq(st.experts_touched, 3 * (j ? 8 : 4));
		layers = 3;
		ck_assert_double_eq_tol(st.experts_uniform, layers * 8 *
					(1 - pow(0.5, batches[j])), 1e-9);
	}
	model_free(model);
}
END_TEST

/* OLMoE's numbers of experts: the mean of a random model is near that of equal chances. */
START_TEST(test_uniform)
{
	double off, sum = 0, want = 0;
	struct model_stats st;
	struct model *model;
	u32 i, seed = 11;
	char line[160];

	golden_read("olmoe");
	config_write("num_experts", json_integer(64));
	config_add("num_experts_per_tok", json_integer(8));
	model = load_spied(64);
	ck_assert_ptr_null(model_experts_line(model, line, sizeof(line)));
	for (i = 0; i < 8; i++) {
		step(model, 8, &seed, &st);
		assert_counted(model, &st, 8);
		sum += (double)st.experts_touched;
		want += st.experts_uniform;
	}
	/* 64 (1 - (7/8)^8) = 42.01 of each of three layers. */
	ck_assert_double_eq_tol(want / 24, 42.01, 0.01);
	off = sum / want;
	ck_assert_msg(off > 0.8 && off < 1.05, "%g of the expected experts", off);
	ck_assert_ptr_eq(model_experts_line(model, line, sizeof(line)), line);
	ck_assert_ptr_nonnull(strstr(line, " of 64 by 8.0 rows (uniform choice: 42.0), "));
	if (getenv("KVMM_SHOW"))
		printf("%s\n", line);
	model_free(model);
}
END_TEST

/* ---- company ---- */

#define NR_SEQS		64u
#define MAX_LEN		40u
#define MAX_PIECE	7u

/* A sequence of a batch; @logits has those of all its rows, if they are wanted. */
struct member {
	u32			tokens[MAX_LEN];
	u32			len;
	u32			done;
	struct model_seq_in	in;
	float			*logits;
};

/* A prompt of its own, or the golden one. */
static void member_make(struct member *m, u32 i, u32 *seed, struct pool *pool,
			bool wanted)
{
	u32 k;

	memset(m, 0, sizeof(*m));
	m->len = i ? MAX_LEN / 2 + rnd(seed) % (MAX_LEN / 2) : MAX_LEN;
	for (k = 0; k < m->len; k++)
		m->tokens[k] = i ? rnd(seed) % VOCAB : golden.tokens[k];
	pool_tables(pool, m->len, &m->in);
	if (wanted) {
		m->logits = calloc(m->len, VOCAB * sizeof(float));
		ck_assert_ptr_nonnull(m->logits);
	}
}

/* The next piece of a member: one token, or some of a prompt. */
static void member_next(struct member *m, u32 piece)
{
	m->in.tokens = m->tokens + m->done;
	m->in.start = m->done;
	m->in.nr_tokens = min(piece, m->len - m->done);
	m->in.want_logits = m->logits ? m->in.nr_tokens : 0;
}

/* Run a step of all members that have tokens left, in a random order; false: none has. */
static bool company_step(struct model *model, const struct model_kv *kv,
			 struct member *all, u32 *seed)
{
	static float logits[NR_SEQS * MAX_PIECE * VOCAB];
	u32 order[NR_SEQS], i, nr = 0, at = 0;
	struct model_seq_in in[NR_SEQS];
	struct member *m;

	for (i = 0; i < NR_SEQS; i++)
		if (all[i].done < all[i].len)
			order[nr++] = i;
	if (!nr)
		return false;
	pool_shuffle(order, nr, seed);
	for (i = 0; i < nr; i++) {
		m = &all[order[i]];
		member_next(m, rnd(seed) % 2 ? 1 : 1 + rnd(seed) % MAX_PIECE);
		in[i] = m->in;
	}
	ck_assert_int_eq(model_forward(model, kv, in, nr, logits), 0);
	for (i = 0; i < nr; i++) {
		m = &all[order[i]];
		if (m->logits)
			memcpy(m->logits + m->done * VOCAB, logits + at * VOCAB,
			       m->in.want_logits * VOCAB * sizeof(float));
		at += m->in.want_logits;
		m->done += m->in.nr_tokens;
	}
	return true;
}

/* The same sequence alone, in one piece. */
static void assert_alone(struct model *model, const struct member *m, u32 i)
{
	float *alone = calloc(m->len, VOCAB * sizeof(*alone));
	struct member one = *m;
	struct pool pool;

	pool_create(&pool, model_info(model), 8, 16, true, i);
	pool_tables(&pool, m->len, &one.in);
	one.done = 0;
	member_next(&one, m->len);
	ck_assert_int_eq(model_forward(model, &pool.kv, &one.in, 1, alone), 0);
	ck_assert_msg(!memcmp(alone, m->logits, m->len * VOCAB * sizeof(*alone)),
		      "%s: sequence %u has other bits in company", case_dir, i);
	pool_destroy(&pool);
	free(alone);
}

/* 64 sequences together; each @every-th is compared with itself alone. */
static void company(struct model *model, u32 seed, u32 every)
{
	static struct member all[NR_SEQS];
	struct model_stats st;
	struct pool pool;
	u32 i;

	pool_create(&pool, model_info(model), NR_SEQS * 3, 16, seed % 2, seed);
	for (i = 0; i < NR_SEQS; i++)
		member_make(&all[i], i, &seed, &pool, i % every == 0);
	while (company_step(model, &pool.kv, all, &seed))
		;
	model_get_stats(model, &st);
	ck_assert_uint_gt(st.expert_rows, NR_SEQS * MAX_LEN / 2);
	for (i = 0; i < NR_SEQS; i += every)
		assert_alone(model, &all[i], i);
	for (i = 0; i < NR_SEQS; i++)
		free(all[i].logits);
	pool_destroy(&pool);
}

START_TEST(test_company)
{
	const struct kern_ops *ops;
	enum model_dtype dtype;
	struct model *model;
	char name[32];
	u32 i;

	golden_read(moe_cases[_i]);
	config_write(NULL, NULL);
	if (level_is_check()) {
		model = load(_i % 2 ? MODEL_BF16 : MODEL_F32, NULL, 0);
		company(model, _i + 1, 16);
		model_free(model);
		return;
	}
	for (i = 0; (ops = kern_at(i)); i++) {
		if (ops->mode != KERN_MODE_EXACT)
			continue;
		snprintf(name, sizeof(name), "%s:%s", ops->name, ops->variant);
		for (dtype = MODEL_F32; dtype <= MODEL_BF16; dtype++) {
			model = load(dtype, strcmp(ops->name, "ref") ? name :
				     "ref", 0);
			company(model, i + 100 * dtype, 4);
			model_free(model);
		}
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("model_moe");
	TCase *tc = tcase_create("experts");
	SRunner *sr;
	int failed;

	tcase_set_tags(tc, "unit model");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, test_counters, 0, ARRAY_SIZE(moe_cases));
	tcase_add_test(tc, test_known);
	tcase_add_test(tc, test_uniform);
	tcase_add_loop_test(tc, test_company, 0, ARRAY_SIZE(moe_cases));
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
