// SPDX-License-Identifier: Apache-2.0
/*
 * check_model_split.c - a model that ranks share, against the same model in one piece
 *
 * Ranks are threads here, each with a part of the model and a pool of its own.  All families
 * of tests/data/families, with two and four ranks: logits within 1e-4 of those of
 * transformers in f32, and the same bits with any chunks of the prompt.  Where the shares of
 * ranks lie on the parts in which exact mode sums, the bits are those of the whole model,
 * with plain and with quantized weights.  budget: 90 s
 */
#include <pthread.h>

#include "runtime/model/error.h"
#include "runtime/model/internal.h"
#include "tests/unit/golden_fixture.h"

#define MAX_RANKS	4u
#define ROOM		(1u << 20)

/* Rooms of threads, two for each, which are used in turn. */
struct group {
	pthread_barrier_t	all;
	u32			nr;
	u64			bytes;
	struct {
		struct model_link	link;
		struct group		*group;
		u64			turn;	/* exchanges so far */
		u8			*room[2];
		int			fails;	/* the result of share() */
	} rank[MAX_RANKS];
};

static void *group_room(void *arg)
{
	struct model_link *l = arg;
	struct group *g = ((typeof(&g->rank[0]))arg)->group;

	return g->rank[l->rank].room[g->rank[l->rank].turn % 2];
}

static int group_share(void *arg)
{
	struct model_link *l = arg;
	struct group *g = ((typeof(&g->rank[0]))arg)->group;

	if (g->rank[l->rank].fails)
		return g->rank[l->rank].fails;
	pthread_barrier_wait(&g->all);
	g->rank[l->rank].turn++;
	return 0;
}

static const void *group_of(void *arg, u32 rank)
{
	struct model_link *l = arg;
	struct group *g = ((typeof(&g->rank[0]))arg)->group;

	return g->rank[rank].room[(g->rank[l->rank].turn - 1) % 2];
}

static const char *group_failure(void *arg)
{
	(void)arg;
	return "rank 1 has ended";
}

static void group_open(struct group *g, u32 nr, u64 bytes)
{
	u32 i, j;

	memset(g, 0, sizeof(*g));
	g->nr = nr;
	g->bytes = bytes;
	pthread_barrier_init(&g->all, NULL, nr);
	for (i = 0; i < nr; i++) {
		g->rank[i].group = g;
		g->rank[i].link = (struct model_link){
			.rank = i, .nr = nr, .bytes = bytes, .room = group_room,
			.share = group_share, .of = group_of, .failure = group_failure,
			.arg = &g->rank[i].link,
		};
		for (j = 0; j < 2; j++)
			g->rank[i].room[j] = aligned_alloc(64, ALIGN_UP(bytes, 64ull));
	}
}

static void group_close(struct group *g)
{
	u32 i;

	for (i = 0; i < g->nr; i++) {
		free(g->rank[i].room[0]);
		free(g->rank[i].room[1]);
	}
	pthread_barrier_destroy(&g->all);
}

/* The work of one rank. */
struct run {
	struct model_opts	opts;
	struct model		*model;
	u32			chunk;
	float			*logits;
};

static void *run_rank(void *arg)
{
	struct run *r = arg;

	r->logits = run_chunks(r->model, r->chunk);
	return NULL;
}

static void ignore(void *arg, const char *tag, const void *data, size_t len)
{
	const volatile u8 *p = data;
	size_t i;

	for (i = 0; i < len; i += 4096)
		(void)p[i];
}

static void load_run(struct run *r)
{
	struct model_error err;

	ck_assert_msg(!model_load(fixture_dir, &r->opts, &r->model, &err), "%s", err.text);
	/* It reads all weights, and must leave them as they are. */
	model_identity(r->model, ignore, NULL);
}

/* Logits of all tokens by @nr ranks; @nr 1: by one model in one piece. */
static float *run_ranks(const struct model_opts *opts, u32 nr, u32 chunk, u64 bytes)
{
	struct run run[MAX_RANKS];
	pthread_t thread[MAX_RANKS];
	struct group g;
	float *logits;
	u32 i;

	group_open(&g, nr, bytes);
	for (i = 0; i < nr; i++) {
		run[i] = (struct run){ .opts = *opts, .chunk = chunk };
		run[i].opts.link = nr > 1 ? &g.rank[i].link : NULL;
		run[i].opts.nr_threads = 1;
		load_run(&run[i]);
	}
	for (i = 0; i < nr; i++)
		ck_assert(!pthread_create(&thread[i], NULL, run_rank, &run[i]));
	for (i = 0; i < nr; i++)
		ck_assert(!pthread_join(thread[i], NULL));
	logits = run[0].logits;
	for (i = 0; i < nr; i++) {
		if (i)
			free(run[i].logits);
		model_free(run[i].model);
	}
	group_close(&g);
	return logits;
}

/* Can the case's heads be shared out? */
static bool divides(u32 nr)
{
	struct model_config cfg;
	struct model_error err;

	ck_assert_int_eq(model_config_read(fixture_dir, &cfg, &err), 0);
	return !(cfg.heads % nr) && !(cfg.state.heads % nr);
}

#define LOGITS	(NR_ALL * VOCAB * sizeof(float))

static void setup(void)
{
	dir_create();
}

static void teardown(void)
{
	dir_destroy();
}

/* Every family against transformers, with other chunks: the same bits. */
START_TEST(test_families)
{
	const struct model_opts exact = { .dummy = true, .mode = MODEL_EXACT };
	struct model_opts fast = { .dummy = true };
	float *logits, *again;
	u32 nr;

	golden_read(cases[_i]);
	config_write(NULL, NULL);
	for (nr = 2; nr <= MAX_RANKS && divides(nr); nr *= 2) {
		logits = run_ranks(&exact, nr, 37, ROOM);
		assert_near("ranks", logits, golden.f32, 1e-4);
		/* A room for a few rows. */
		again = run_ranks(&exact, nr, 50, 4096);
		ck_assert(!memcmp(logits, again, LOGITS));
		free(again);
		free(logits);
		logits = run_ranks(&fast, nr, 37, ROOM);
		assert_near("fast ranks", logits, golden.f32, 1e-4);
		free(logits);
	}
}
END_TEST

START_TEST(test_bf16)
{
	const struct model_opts opts = {
		.dummy = true, .mode = MODEL_EXACT, .dtype = MODEL_BF16,
	};
	float *logits;
	u32 nr;

	golden_read(cases[_i]);
	config_write_half();
	for (nr = 2; nr <= MAX_RANKS && divides(nr); nr *= 2) {
		logits = run_ranks(&opts, nr, 37, ROOM);
		assert_near("ranks, bf16", logits, golden.bf16, 2e-2);
		free(logits);
	}
}
END_TEST

/* Sizes of which each of @nr ranks has at least a part; the MLP's last part is short. */
static void aligned_write(const char *name, u32 nr)
{
	golden_read(name);
	config_write("num_attention_heads", json_integer(8 * nr));
	config_add("num_key_value_heads", json_integer(2));
	config_add("head_dim", json_integer(128));
	config_add("hidden_size", json_integer(256));
	config_add("intermediate_size", json_integer(1024 * nr + 512));
	if (strcmp(name, "qwen2-moe"))
		return;
	config_add("moe_intermediate_size", json_integer(256));
	config_add("shared_expert_intermediate_size", json_integer(1024 * nr + 256));
}

static void same_bits(const struct model_opts *opts, u32 nr)
{
	float *whole = run_ranks(opts, 1, 64, ROOM), *logits;

	logits = run_ranks(opts, nr, 64, ROOM);
	ck_assert_msg(!memcmp(logits, whole, LOGITS), "%s, %u ranks", case_dir, nr);
	free(logits);
	free(whole);
}

static const char * const aligned[] = { "llama", "qwen2-moe", "mixtral", "qwen3", "olmo2" };

START_TEST(test_same_bits)
{
	struct model_opts opts = { .dummy = true, .mode = MODEL_EXACT };
	u32 nr;

	for (nr = 2; nr <= MAX_RANKS; nr *= 2) {
		aligned_write(aligned[_i], nr);
		for (opts.dtype = MODEL_F32; opts.dtype <= MODEL_BF16; opts.dtype++)
			same_bits(&opts, nr);
	}
}
END_TEST

static void files_write(void)
{
	struct model_config cfg;
	struct model_error err;
	struct ckpt *c;

	ck_assert_int_eq(model_config_read(fixture_dir, &cfg, &err), 0);
	ck_assert_int_eq(dummy_open(fixture_dir, &cfg, NULL, false, &c, &err), 0);
	shards_write(c, 1, TINY_BF16);
	ckpt_close(c);
}

static void assert_close(const float *a, const float *b, double most)
{
	double off = 0, size = 0;
	u32 i;

	for (i = 0; i < NR_ALL * VOCAB; i++) {
		off = fmax(off, fabs(a[i] - b[i]));
		size = fmax(size, fabs(b[i]));
	}
	ck_assert_msg(off / size < most, "%s: off by %g", case_dir, off / size);
}

/* Quantized weights: exact mode has the bits of the whole model, fast mode is near. */
START_TEST(test_quantized)
{
	struct model_opts opts = { .mode = MODEL_EXACT };
	float *whole, *logits;

	aligned_write("llama", 2);
	files_write();
	for (opts.quantization = MODEL_QUANT_NONE; opts.quantization <= MODEL_QUANT_INT8;
	     opts.quantization++) {
		opts.mode = MODEL_EXACT;
		same_bits(&opts, 2);
		opts.mode = MODEL_FAST;
		whole = run_ranks(&opts, 1, 64, ROOM);
		logits = run_ranks(&opts, 2, 64, ROOM);
		assert_close(logits, whole, MODEL_FAST_TOL);
		free(whole);
		free(logits);
	}
}
END_TEST

/* A rank has about its share of the weights, and says so. */
START_TEST(test_share)
{
	struct model_opts opts = { .dummy = true, .mode = MODEL_EXACT };
	struct model *whole, *part;
	struct model_error err;
	struct group g;
	u64 bytes;

	aligned_write("llama", 2);
	group_open(&g, 2, ROOM);
	ck_assert_int_eq(model_load(fixture_dir, &opts, &whole, &err), 0);
	bytes = model_info(whole)->weight_bytes;
	for (u32 i = 0; i < 2; i++) {
		opts.link = &g.rank[i].link;
		ck_assert_int_eq(model_load(fixture_dir, &opts, &part, &err), 0);
		ck_assert_uint_eq(model_info(part)->nr_ranks, 2);
		ck_assert(model_info(part)->same_bits);
		ck_assert_uint_eq(model_info(part)->nr_kv_heads, 1);
		ck_assert_uint_gt(model_info(part)->weight_bytes, bytes * 2 / 5);
		ck_assert_uint_lt(model_info(part)->weight_bytes, bytes * 3 / 5);
		model_free(part);
	}
	model_free(whole);
	group_close(&g);
}
END_TEST

static const struct {
	const char	*of;
	u32		nr;
	const char	*text;
} refused[] = {
	{ "llama-head40", 4, "4 ranks cannot share 2 attention heads" },
	{ "llama", 3, "3 ranks cannot share 4 attention heads" },
};

START_TEST(test_refused)
{
	struct model_opts opts = { .dummy = true };
	struct model_error err = { "" };
	struct model *model;
	struct group g;

	golden_read(refused[_i].of);
	config_write(NULL, NULL);
	group_open(&g, refused[_i].nr, ROOM);
	opts.link = &g.rank[0].link;
	ck_assert_int_lt(model_load(fixture_dir, &opts, &model, &err), 0);
	ck_assert_msg(strstr(err.text, refused[_i].text) != NULL, "%s", err.text);
	group_close(&g);
}
END_TEST

/* A failed exchange ends the step with an error, and waits for nothing more. */
START_TEST(test_failure)
{
	struct model_opts opts = { .dummy = true };
	struct model_seq_in in = { .nr_tokens = 4, .want_logits = 1 };
	struct model_error err;
	struct model *model;
	float logits[VOCAB];
	struct pool pool;
	struct group g;

	golden_read("llama");
	config_write(NULL, NULL);
	group_open(&g, 2, ROOM);
	memset(g.rank[0].room[1], 0xff, ROOM);
	memset(g.rank[1].room[1], 0xff, ROOM);
	g.rank[0].fails = -EPIPE;
	opts.link = &g.rank[0].link;
	ck_assert_int_eq(model_load(fixture_dir, &opts, &model, &err), 0);
	pool_create(&pool, model_info(model), 2, 16, false, 1);
	pool_tables(&pool, 4, &in);
	in.tokens = golden.tokens;
	ck_assert_ptr_null(model_failure(model));
	ck_assert_int_eq(model_forward(model, &pool.kv, &in, 1, logits), -EIO);
	ck_assert_str_eq(model_failure(model), "rank 1 has ended");
	pool_destroy(&pool);
	model_free(model);
	group_close(&g);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("model_split");
	TCase *tc = tcase_create("model_split");
	SRunner *sr;
	int failed;

	tcase_set_tags(tc, "unit model");
	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, test_families, 0, ARRAY_SIZE(cases));
	tcase_add_loop_test(tc, test_bf16, 0, ARRAY_SIZE(cases));
	tcase_add_loop_test(tc, test_same_bits, 0, ARRAY_SIZE(aligned));
	tcase_add_test(tc, test_quantized);
	tcase_add_test(tc, test_share);
	tcase_add_loop_test(tc, test_refused, 0, ARRAY_SIZE(refused));
	tcase_add_test(tc, test_failure);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
