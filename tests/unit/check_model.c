// SPDX-License-Identifier: Apache-2.0
/*
 * check_model.c - the demo model, end to end, against golden numbers
 *
 * tests/data/demo-model holds logits and greedy continuations that an
 * independent program computed without a KV cache.  Here they must come out of
 * paged KV: blocks scattered over pools of both shapes, memory that starts as
 * NaN, prompts in one piece and in odd pieces, alone and in batches.  The
 * promises of the numeric modes are tested to the bit.
 */
#include <jansson.h>
#include <math.h>

#include "kernels/kernels.h"
#include "tests/level.h"
#include "tests/unit/model_fixture.h"

#define DEMO		"tests/data/demo-model"
#define NR_PROMPTS	8u
#define NR_NEW		96u
#define MAX_PROMPT	64u
#define VOCAB		4096u

static struct golden {
	u32	nr_prompt;
	u32	tokens[MAX_PROMPT + NR_NEW];	/* prompt, continuation */
	float	logits[VOCAB];
} golden[NR_PROMPTS];

static u32 golden_ids(json_t *list, u32 *out)
{
	json_t *v;
	size_t i;

	json_array_foreach(list, i, v)
		out[i] = json_integer_value(v);
	return json_array_size(list);
}

static void golden_load(void)
{
	json_t *root = json_load_file(DEMO "/golden.json", 0, NULL), *list, *v;
	FILE *f = fopen(DEMO "/golden_logits.f32", "r");
	struct golden *g;
	size_t i;

	ck_assert_msg(root && f, "run this from the root of the tree");
	list = json_object_get(root, "continuations");
	ck_assert_uint_eq(json_array_size(list), NR_PROMPTS);
	json_array_foreach(list, i, v) {
		g = &golden[i];
		ck_assert_uint_le(json_array_size(json_object_get(v,
			"prompt_ids")), MAX_PROMPT);
		g->nr_prompt = golden_ids(json_object_get(v, "prompt_ids"),
					  g->tokens);
		ck_assert_uint_eq(golden_ids(json_object_get(v, "greedy_ids"),
			g->tokens + g->nr_prompt), NR_NEW);
		ck_assert_uint_eq(fread(g->logits, sizeof(float), VOCAB, f),
				  VOCAB);
	}
	fclose(f);
	json_decref(root);
}

/* The name of the i-th kernel of this machine, for model_opts; NULL after the last one. */
static const char *kernel_name(u32 i)
{
	static char name[32];
	const struct kern_ops *ops = kern_at(i);

	if (!ops)
		return NULL;
	if (!strcmp(ops->name, "ref"))
		return "ref";
	snprintf(name, sizeof(name), "%s:%s", ops->name, ops->variant);
	return name;
}

/* A fast kernel runs in fast mode alone. */
static bool kernel_is_fast(const char *kernel)
{
	return kern_get(kernel)->mode == KERN_MODE_FAST;
}

static struct model *load(const char *kernel, enum model_dtype dtype,
			  enum model_mode mode)
{
	const struct model_opts opts = {
		.dtype = dtype, .kernel = kernel,
		.mode = kernel_is_fast(kernel) ? MODEL_FAST : mode,
	};
	struct model_error err;
	struct model *model;

	ck_assert_msg(!model_load(DEMO, &opts, &model, &err), "%s", err.text);
	return model;
}

static void forward(struct model *model, struct pool *pool,
		    const struct model_seq_in *seqs, u32 nr, float *logits)
{
	ck_assert_int_eq(model_forward(model, &pool->kv, seqs, nr, logits), 0);
}

static u32 argmax(const float *logits)
{
	u32 i, best = 0;

	for (i = 1; i < VOCAB; i++)
		if (logits[i] > logits[best])
			best = i;
	return best;
}

/* max|a - b| / max|b|; infinite if @a has a NaN. */
static double apart(const float *a, const float *b, u32 n)
{
	double diff = 0, size = 0;
	u32 i;

	for (i = 0; i < n; i++) {
		if (isnan(a[i]))
			return INFINITY;
		diff = fmax(diff, fabs((double)a[i] - b[i]));
		size = fmax(size, fabs(b[i]));
	}
	return diff / size;
}

START_TEST(test_info)
{
	struct model *model = load("cpu", MODEL_BF16, MODEL_EXACT);
	const struct model_info *i = model_info(model);

	ck_assert_str_eq(i->arch, "LlamaForCausalLM");
	ck_assert_str_eq(i->dir, DEMO);
	ck_assert_str_eq(i->kernel, "cpu");
	ck_assert_uint_eq(i->nr_vocab, VOCAB);
	ck_assert_uint_eq(i->nr_layers, 4);
	ck_assert_uint_eq(i->hidden, 256);
	ck_assert_uint_eq(i->nr_heads, 4);
	ck_assert_uint_eq(i->nr_kv_heads, 2);
	ck_assert_uint_eq(i->head_dim, 64);
	ck_assert_uint_eq(i->max_position, 1024);
	ck_assert_uint_eq(i->max_len, 1024);
	ck_assert_uint_eq(i->max_rows, MODEL_MAX_ROWS);
	ck_assert_uint_eq(i->max_seqs, MODEL_MAX_ROWS);
	ck_assert_int_eq(i->bos_id, 0);
	ck_assert_uint_eq(i->nr_eos, 1);
	ck_assert_uint_eq(i->eos_ids[0], 0);
	ck_assert_uint_eq(i->k_bytes, 128);
	ck_assert_uint_eq(i->v_bytes, 128);
	ck_assert_uint_eq(i->nr_params, i->weight_bytes / 2);
	ck_assert_uint_gt(i->work_bytes, 0);
	ck_assert_uint_eq(i->gen.has, MODEL_GEN_DO_SAMPLE |
			  MODEL_GEN_TEMPERATURE | MODEL_GEN_TOP_P |
			  MODEL_GEN_MAX_NEW_TOKENS);
	ck_assert_double_eq(i->gen.temperature, 0.8);
	ck_assert_uint_eq(i->gen.max_new_tokens, 256);
	model_free(model);

	model = load("ref", MODEL_F32, MODEL_FAST);
	ck_assert_uint_eq(model_info(model)->k_bytes, 256);
	model_free(model);
	model_free(NULL);
}
END_TEST

/* All prompts as one batch; the logits after each against the golden ones. */
static void check_logits(const char *kernel, enum model_dtype dtype,
			 double tolerance)
{
	struct model *model = load(kernel, dtype, MODEL_EXACT);
	static float logits[NR_PROMPTS][VOCAB];
	struct model_seq_in in[NR_PROMPTS];
	struct pool pool;
	double off;
	u32 i;

	pool_create(&pool, model_info(model), 40, 16, false, 1);
	for (i = 0; i < NR_PROMPTS; i++)
		in[i] = (struct model_seq_in){
			.tokens = golden[i].tokens,
			.nr_tokens = golden[i].nr_prompt,
			.table[0] = pool_table(&pool, golden[i].nr_prompt),
			.want_logits = 1,
		};
	forward(model, &pool, in, NR_PROMPTS, logits[0]);
	for (i = 0; i < NR_PROMPTS; i++) {
		off = apart(logits[i], golden[i].logits, VOCAB);
		ck_assert_msg(off < tolerance, "%s, prompt %u: off by %g",
			      kernel, i, off);
		ck_assert_uint_eq(argmax(logits[i]),
				  golden[i].tokens[golden[i].nr_prompt]);
	}
	pool_destroy(&pool);
	model_free(model);
}

START_TEST(test_golden_logits)
{
	const char *name;
	u32 i;

	golden_load();
	for (i = 0; (name = kernel_name(i)); i++) {
		/* The demo's weights are bf16, so fast mode rounds to bf16. */
		check_logits(name, MODEL_F32,
			     kernel_is_fast(name) ? 2e-2 : 1e-4);
		check_logits(name, MODEL_BF16, 2e-2);
	}
}
END_TEST

/*
 * The oracle is slow, and a longer run would show nothing new: it runs only the
 * first tokens.
 */
static u32 nr_new(const char *kernel)
{
	return strcmp(kernel, "ref") ? NR_NEW : 16;
}

/* All prompts decode together, each in scattered blocks. */
static void check_greedy(const char *kernel, u32 block_tokens,
			 bool layer_major)
{
	struct model *model = load(kernel, MODEL_F32, MODEL_EXACT);
	static float logits[NR_PROMPTS][VOCAB];
	struct model_seq_in in[NR_PROMPTS];
	u32 next[NR_PROMPTS], i, n;
	struct pool pool;

	pool_create(&pool, model_info(model), 128, block_tokens, layer_major,
		    7);
	for (i = 0; i < NR_PROMPTS; i++)
		in[i] = (struct model_seq_in){
			.tokens = golden[i].tokens,
			.nr_tokens = golden[i].nr_prompt,
			.table[0] = pool_table(&pool, MAX_PROMPT + NR_NEW),
			.want_logits = 1,
		};
	for (n = 0; n < nr_new(kernel); n++) {
		forward(model, &pool, in, NR_PROMPTS, logits[0]);
		for (i = 0; i < NR_PROMPTS; i++) {
			next[i] = argmax(logits[i]);
			ck_assert_msg(next[i] ==
				golden[i].tokens[golden[i].nr_prompt + n],
				"%s, prompt %u: token %u is %u", kernel, i, n,
				next[i]);
			in[i].tokens = &next[i];
			in[i].start += in[i].nr_tokens;
			in[i].nr_tokens = 1;
		}
	}
	pool_destroy(&pool);
	model_free(model);
}

START_TEST(test_golden_greedy)
{
	const char *name = kernel_name(_i);

	if (!name)
		return;
	golden_load();
	check_greedy(name, 16, false);
	if (_i)
		check_greedy(name, 32, true);
}
END_TEST

/* Logits of every row of @total tokens, run in pieces of @chunks. */
static void run_pieces(struct model *model, struct pool *pool,
		       const struct golden *g, u32 total, const u32 *chunks,
		       u32 nr, float *logits)
{
	struct model_seq_in in = { .table[0] = pool_table(pool, total) };
	u32 at, i;

	for (at = 0, i = 0; at < total; at += in.nr_tokens, i++) {
		in.tokens = g->tokens + at;
		in.start = at;
		in.nr_tokens = min(chunks[i % nr], total - at);
		in.want_logits = in.nr_tokens;
		forward(model, pool, &in, 1, logits + (u64)at * VOCAB);
	}
}

/* The same between two other sequences, and in a pool of another shape. */
static void run_crowded(struct model *model, const struct golden *g,
			u32 total, float *logits)
{
	static float all[3 * (MAX_PROMPT + NR_NEW) * VOCAB];
	struct pool pool;
	struct model_seq_in in[3];
	u32 i;

	pool_create(&pool, model_info(model), 64, 16, true, 99);
	for (i = 0; i < 3; i++)
		in[i] = (struct model_seq_in){
			.tokens = i == 1 ? g->tokens : golden[i + 4].tokens,
			.nr_tokens = i == 1 ? total : 50 + i,
			.table[0] = pool_table(&pool, MAX_PROMPT + NR_NEW),
			.want_logits = i == 1 ? total : 3,
		};
	forward(model, &pool, in, 3, all);
	memcpy(logits, all + 3 * VOCAB, (u64)total * VOCAB * sizeof(float));
	pool_destroy(&pool);
}

/*
 * The bits of a token's logits depend only on the tokens before it: not on the
 * chunks of the prompt, nor on blocks, pool, or batch.
 */
static void check_bits(const char *kernel, enum model_dtype dtype)
{
	static const u32 odd[] = { 1, 7, 13, 5, 31, 3 };
	static const u32 whole[] = { 1000 }, ones[] = { 1 };
	static float want[(MAX_PROMPT + NR_NEW) * VOCAB];
	static float got[(MAX_PROMPT + NR_NEW) * VOCAB];
	struct model *model = load(kernel, dtype, MODEL_EXACT);
	const struct golden *g = &golden[6];
	const u32 all = g->nr_prompt + nr_new(kernel);
	const u32 total = level_is_check() ? all / 2 : all;
	const u64 bytes = (u64)total * VOCAB * sizeof(*got);
	struct pool pool;

	pool_create(&pool, model_info(model), 40, 16, false, 5);
	run_pieces(model, &pool, g, total, whole, 1, want);
	run_pieces(model, &pool, g, total, odd, ARRAY_SIZE(odd), got);
	ck_assert_msg(!memcmp(got, want, bytes), "%s: odd chunks", kernel);
	run_pieces(model, &pool, g, total, ones, 1, got);
	ck_assert_msg(!memcmp(got, want, bytes), "%s: decode", kernel);
	memset(got, 0, sizeof(got));
	run_crowded(model, g, total, got);
	ck_assert_msg(!memcmp(got, want, bytes), "%s: crowd", kernel);
	pool_destroy(&pool);
	model_free(model);
}

START_TEST(test_exact_bits)
{
	const char *name = kernel_name(_i / 2);

	if (!name)
		return;
	golden_load();
	check_bits(name, _i % 2 ? MODEL_BF16 : MODEL_F32);
}
END_TEST

/* A fork in the middle of a block, as copy-on-write makes it. */
START_TEST(test_copy_blocks)
{
	struct model *model = load("cpu", _i ? MODEL_BF16 : MODEL_F32,
				   MODEL_EXACT);
	static float want[VOCAB], got[VOCAB];
	u32 fork_table[8], tokens = 5;
	struct model_seq_in in = { 0 };
	struct pool pool;

	golden_load();
	pool_create(&pool, model_info(model), 16, 16, _i, 11);
	in = (struct model_seq_in){
		.tokens = golden[6].tokens, .nr_tokens = 21,
		.table[0] = pool_table(&pool, 48),
	};
	forward(model, &pool, &in, 1, NULL);
	memcpy(fork_table, in.table[0], 3 * sizeof(u32));
	fork_table[1] = *pool_table(&pool, 16);
	model_copy_blocks(model, &pool.kv, 0, &in.table[0][1], &fork_table[1],
			  &tokens, 1);

	/* The parent goes on; the child must not see its new tokens. */
	in.start = 21;
	in.tokens = golden[6].tokens + 21;
	in.nr_tokens = 2;
	in.want_logits = 1;
	forward(model, &pool, &in, 1, want);
	in.tokens = golden[5].tokens + 1;
	forward(model, &pool, &in, 1, got);
	ck_assert(memcmp(got, want, sizeof(got)));
	in.tokens = golden[6].tokens + 21;
	in.table[0] = fork_table;
	forward(model, &pool, &in, 1, got);
	ck_assert(!memcmp(got, want, sizeof(got)));
	pool_destroy(&pool);
	model_free(model);
}
END_TEST

/*
 * More copies than one call of the kernels takes.  The later ones copy half of
 * each block: of the first head's K, eight tokens.
 */
START_TEST(test_copy_many_blocks)
{
	struct model *model = load("cpu", MODEL_BF16, MODEL_FAST);
	const struct model_info *info = model_info(model);
	const u32 half = 8 * info->k_bytes;
	u32 from[100], to[100], tokens[100], i;
	struct pool pool;
	u64 block;
	u8 *b;

	pool_create(&pool, info, 200, 16, false, 2);
	block = pool.bytes / 200;
	for (i = 0; i < 100; i++) {
		from[i] = i * block / POOL_UNIT;
		to[i] = (100 + i) * block / POOL_UNIT;
		tokens[i] = i < 64 ? 16 : 8;
		memset(pool.mem + i * block, i, block);
	}
	model_copy_blocks(model, &pool.kv, 0, from, to, tokens, 100);
	ck_assert(!memcmp(pool.mem, pool.mem + 100 * block, 64 * block));
	for (i = 64; i < 100; i++) {
		b = pool.mem + (100 + i) * block;
		ck_assert(!memcmp(b, pool.mem + i * block, half));
		ck_assert_uint_eq(b[half], 0xff);
	}
	pool_destroy(&pool);
	model_free(model);
}
END_TEST

/* Batches that must be refused: each changes a valid one of two entries. */
enum refusal {
	REF_TOKEN, REF_NO_TOKENS, REF_NULL_TOKENS, REF_NULL_TABLE, REF_LENGTH,
	REF_START, REF_WANT, REF_LOGITS, REF_BLOCK, REF_STRIDE, REF_ROWS,
	REF_WRAP, REF_SEQS, NR_REFUSALS
};

static void spoil(enum refusal how, struct model_seq_in *in, u32 *nr,
		  struct model_kv *kv, float **logits)
{
	static const u32 wrong[4] = { 1, 2, VOCAB, 3 };

	if (how == REF_TOKEN)
		in[1].tokens = wrong;
	else if (how == REF_NO_TOKENS)
		in[1].nr_tokens = in[1].want_logits = 0;
	else if (how == REF_NULL_TOKENS)
		in[1].tokens = NULL;
	else if (how == REF_NULL_TABLE)
		in[1].table[0] = NULL;
	else if (how == REF_LENGTH)
		in[1].start = 61;
	else if (how == REF_START)
		in[1].start = UINT32_MAX;
	else if (how == REF_WANT)
		in[1].want_logits = 5;
	else if (how == REF_LOGITS)
		*logits = NULL;
	else if (how == REF_BLOCK)
		kv->block_tokens[0] = 24;
	else if (how == REF_STRIDE)
		kv->layer_stride[0] -= 4;
	else if (how == REF_ROWS)
		in[1].nr_tokens = 5;
	else if (how == REF_WRAP)
		in[1].nr_tokens = UINT32_MAX - 3;
	else if (how == REF_SEQS)
		*nr = 3;
}

START_TEST(test_refuses_batch)
{
	const struct model_opts opts = {
		.kernel = "cpu", .max_len = 64, .max_rows = 8, .max_seqs = 2,
	};
	const int ret = _i >= REF_ROWS ? -E2BIG : -EINVAL;
	static const u32 sound[4] = { 0, 1, 2, 3 };
	static float logits[2 * VOCAB];
	struct model_seq_in in[3];
	float *out = logits;
	struct model *model;
	struct pool pool;
	u8 *before;
	u32 i, nr = 2;

	ck_assert_int_eq(model_load(DEMO, &opts, &model, NULL), 0);
	pool_create(&pool, model_info(model), 8, 16, false, 1);
	before = malloc(pool.bytes);
	memcpy(before, pool.mem, pool.bytes);
	for (i = 0; i < 3; i++)
		in[i] = (struct model_seq_in){
			.tokens = sound, .nr_tokens = i < 2 ? 4 : 0,
			.table[0] = pool_table(&pool, 16), .want_logits = i < 2,
		};
	spoil(_i, in, &nr, &pool.kv, &out);
	ck_assert_int_eq(model_forward(model, &pool.kv, in, nr, out), ret);
	ck_assert(!memcmp(before, pool.mem, pool.bytes));
	free(before);
	pool_destroy(&pool);
	model_free(model);
}
END_TEST

/* The limits themselves are allowed; an empty batch is not. */
START_TEST(test_takes_limits)
{
	const struct model_opts opts = {
		.kernel = "cpu", .max_len = 16, .max_rows = 8, .max_seqs = 2,
	};
	static const u32 ids[8] = { 0, 1, 2, 3, 4, 5, 6, VOCAB - 1 };
	static float logits[8 * VOCAB];
	struct model_seq_in in = { 0 };
	struct model *model;
	struct pool pool;

	ck_assert_int_eq(model_load(DEMO, &opts, &model, NULL), 0);
	pool_create(&pool, model_info(model), 1, 16, false, 1);
	in = (struct model_seq_in){
		.tokens = ids, .nr_tokens = 8, .table[0] = pool_table(&pool, 16),
		.want_logits = 8,
	};
	forward(model, &pool, &in, 0, NULL);
	forward(model, &pool, &in, 1, logits);
	in.start = 8;
	forward(model, &pool, &in, 1, logits);
	ck_assert(!isnan(logits[8 * VOCAB - 1]));
	pool_destroy(&pool);
	model_free(model);
}
END_TEST

/* Parts of an identity, each hashed with its tag and length. */
static void add_part(void *arg, const char *tag, const void *data, size_t len)
{
	u64 *h = arg;
	size_t i;

	for (i = 0; tag[i]; i++)
		*h = (*h ^ (u8)tag[i]) * 0x100000001b3ull;
	*h = (*h ^ len) * 0x100000001b3ull;
	for (i = 0; i < len; i++)
		*h = (*h ^ ((const u8 *)data)[i]) * 0x100000001b3ull;
}

static u64 identity_of(const char *dir, const struct model_opts *opts)
{
	u64 h = 0xcbf29ce484222325ull;
	struct model_error err;
	struct model *model;

	ck_assert_msg(!model_load(dir, opts, &model, &err), "%s", err.text);
	model_identity(model, add_part, &h);
	model_free(model);
	return h;
}

static const struct tiny plain = {
	.arch = "LlamaForCausalLM", .vocab = 61, .hidden = 48, .inter = 80,
	.layers = 2, .heads = 4, .kv_heads = 2, .head_dim = 16, .tied = true,
	.type = TINY_BF16, .shards = 1,
};

static struct tiny tiny;

static u64 identity_of_tiny(const struct model_opts *opts)
{
	tiny_write(&tiny);
	return identity_of(fixture_dir, opts);
}

static void tiny_setup(void)
{
	dir_create();
	tiny = plain;
	tiny_make(&tiny);
}

static void tiny_teardown(void)
{
	tiny_free(&tiny);
	dir_destroy();
}

START_TEST(test_identity_follows_options)
{
	const struct model_opts base = { .kernel = "cpu" };
	const struct model_opts same[] = {
		{ .kernel = "cpu", .nr_threads = 3 },
		{ .kernel = "cpu", .max_len = 20, .max_rows = 9 },
	};
	const struct model_opts others[] = {
		{ .kernel = "ref" },
		{ .kernel = "cpu", .dtype = MODEL_BF16 },
		{ .kernel = "cpu", .mode = MODEL_EXACT },
		{ .kernel = "cpu", .kv_type = MODEL_KV_INT8 },
	};
	const u64 id = identity_of_tiny(&base);
	u32 i;

	ck_assert_uint_eq(identity_of(fixture_dir, &base), id);
	for (i = 0; i < ARRAY_SIZE(same); i++)
		ck_assert_uint_eq(identity_of(fixture_dir, &same[i]), id);
	for (i = 0; i < ARRAY_SIZE(others); i++)
		ck_assert_uint_ne(identity_of(fixture_dir, &others[i]), id);
	if (kern_at(2))
		ck_assert_uint_ne(identity_of(fixture_dir,
			&(struct model_opts){ .kernel = "cpu:base" }), id);
}
END_TEST

START_TEST(test_identity_follows_model)
{
	const struct model_opts opts = { .kernel = "ref" };
	const u64 id = identity_of_tiny(&opts);
	float *w = tiny.tensors[tiny.nr_tensors - 1].data;

	/* The split of tensors into files is no part of the identity. */
	tiny.shards = 3;
	dir_destroy();
	dir_create();
	ck_assert_uint_eq(identity_of_tiny(&opts), id);
	/* One bit of one weight is part of it. */
	w[7] = -w[7];
	ck_assert_uint_ne(identity_of_tiny(&opts), id);
	w[7] = -w[7];
	tiny.more = "\"rope_theta\":10001.0,";
	ck_assert_uint_ne(identity_of_tiny(&opts), id);
	tiny.more = "\"_name_or_path\":1,";
	ck_assert_uint_eq(identity_of_tiny(&opts), id);
}
END_TEST

static const struct {
	struct model_opts	opts;
	const char		*words;
} bad_opts[] = {
	{ { .dtype = 7 }, "no such dtype" },
	{ { .mode = 7 }, "no such dtype or numeric mode" },
	{ { .kv_type = 7 }, "no such type of KV" },
	{ { .max_len = 129 }, "a length of 129 is above the model's "
	  "max_position_embeddings, 128" },
	{ { .max_rows = 1 << 20 }, "a batch of 1048576 rows is too large" },
	{ { .nr_threads = 100000 }, "100000 threads are too many" },
	{ { .kernel = "gpu" }, "kernel \"gpu\" is unknown" },
	{ { .kernel = "" }, "kernel \"\" is unknown" },
};

START_TEST(test_refuses_options)
{
	struct model *model = NULL;
	struct model_error err;

	tiny_write(&tiny);
	ck_assert_int_eq(model_load(fixture_dir, &bad_opts[_i].opts, &model,
				    &err), -EINVAL);
	ck_assert_ptr_null(model);
	ck_assert_msg(strstr(err.text, bad_opts[_i].words) != NULL, "%s",
		      err.text);
}
END_TEST

START_TEST(test_refuses_folder)
{
	struct model *model = NULL;
	struct model_error err;

	ck_assert_int_eq(model_load("/nonexistent", NULL, &model, &err),
			 -ENOENT);
	ck_assert_ptr_nonnull(strstr(err.text, "/nonexistent/config.json: "
				     "cannot read: No such file"));
	tiny_write_config(&tiny);
	ck_assert_int_eq(model_load(fixture_dir, NULL, &model, &err),
			 -ENOENT);
	ck_assert_ptr_nonnull(strstr(err.text, "neither model.safetensors"));
	dir_write("model.safetensors", "short");
	ck_assert_int_eq(model_load(fixture_dir, NULL, &model, &err),
			 -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "model.safetensors: 5 bytes"));
	dir_write("generation_config.json", "{\"top_p\":7}");
	ck_assert_int_eq(model_load(fixture_dir, NULL, &model, &err),
			 -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "generation_config.json: "
				     "top_p: 7 is outside"));
	ck_assert_ptr_null(model);
}
END_TEST

static Suite *model_suite(void)
{
	Suite *s = suite_create("model");
	TCase *gold = tcase_create("golden");
	TCase *tc = tcase_create("forward");
	TCase *load_tc = tcase_create("load");

	tcase_set_tags(gold, "unit model");
	tcase_set_timeout(gold, 120);
	tcase_add_test(gold, test_info);
	tcase_add_test(gold, test_golden_logits);
	tcase_add_loop_test(gold, test_golden_greedy, 0, 4);
	tcase_add_loop_test(gold, test_exact_bits, 0, 10);
	suite_add_tcase(s, gold);

	tcase_set_tags(tc, "unit model");
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, test_copy_blocks, 0, 2);
	tcase_add_test(tc, test_copy_many_blocks);
	tcase_add_loop_test(tc, test_refuses_batch, 0, NR_REFUSALS);
	tcase_add_test(tc, test_takes_limits);
	suite_add_tcase(s, tc);

	tcase_set_tags(load_tc, "unit model");
	tcase_add_checked_fixture(load_tc, tiny_setup, tiny_teardown);
	tcase_add_test(load_tc, test_identity_follows_options);
	tcase_add_test(load_tc, test_identity_follows_model);
	tcase_add_loop_test(load_tc, test_refuses_options, 0,
			    ARRAY_SIZE(bad_opts));
	tcase_add_test(load_tc, test_refuses_folder);
	suite_add_tcase(s, load_tc);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(model_suite());
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
