// SPDX-License-Identifier: Apache-2.0
/*
 * check_model_cuda.c - whole models on a GPU, or on its stand-in
 *
 * The cases of tests/data/families, which check_model_golden.c has for CPUs:
 * logits near those of another implementation, and the same greedy tokens.  In
 * exact mode the bits are the same whole, in chunks and token by token, alone
 * and in a batch, with steps played from graphs and without, also with KV in
 * other types than activations.  Then every call of the driver fails once: one
 * line reports it, nothing hangs, and all resources are given back.
 *
 * from: full  budget: 40 s
 */
#include <sys/wait.h>

#include "kernels/cuda/internal.h"
#include "runtime/model/internal.h"
#include "tests/standin/sanitized.h"
#include "tests/unit/draw_oracle.h"
#include "tests/unit/golden_fixture.h"
#include "tests/unit/kern_hosted.h"
#include "tests/unit/kv_loss.h"

/* Memory for pools, in the only context of the device. */
static const struct kern_ops *ops;
static struct kern_ctx *ctx;

static void device_open(void)
{
	char why[256];

	if (!hosted_driver())
		ck_abort_msg("no stand-in for the driver: build it first");
	ops = kern_get("cuda");
	ck_assert_msg(!kern_open(ops, 0, NULL, &ctx, why, sizeof(why)), "%s",
		      why);
}

static void setup(void)
{
	dir_create();
}

static void teardown(void)
{
	dir_destroy();
}

static struct model *load_kv(const char *kernel, enum model_mode mode,
			     enum model_dtype dtype, enum model_kv_type kv_type,
			     bool no_graphs)
{
	const struct model_opts opts = {
		.dtype = dtype, .kv_type = kv_type,
		.dummy = true, .mode = mode, .nr_threads = 1,
		.kernel = kernel, .no_graphs = no_graphs,
		.max_rows = 160, .max_seqs = 16,
	};
	struct model_error err;
	struct model *model;

	ck_assert_msg(!model_load(fixture_dir, &opts, &model, &err), "%s",
		      err.text);
	return model;
}

static struct model *load_as(const char *kernel, enum model_mode mode,
			     enum model_dtype dtype, bool no_graphs)
{
	return load_kv(kernel, mode, dtype, MODEL_KV_AUTO, no_graphs);
}

static struct model *load(enum model_dtype dtype, bool no_graphs)
{
	return load_as("cuda", MODEL_EXACT, dtype, no_graphs);
}

/* A pool of blocks on the device, full of NaN. */
static void device_pool(struct pool *p, struct model *model, u32 seed)
{
	pool_create(p, model_info(model), 80, 16, seed % 2, seed);
	p->kv.base = ops->mem_alloc(ctx, p->bytes);
	ck_assert_ptr_nonnull(p->kv.base);
	ops->mem_put(ctx, p->kv.base, p->mem, p->bytes);
	ck_assert_int_eq(ops->wait(ctx), 0);
}

static void device_pool_destroy(struct pool *p)
{
	ops->mem_free(ctx, p->kv.base);
	pool_destroy(p);
}

/* All tokens, the first @whole as chunks of @chunk, with the logits of every row. */
static float *run(struct model *model, u32 whole, u32 chunk)
{
	float *logits = calloc(NR_ALL, VOCAB * sizeof(*logits));
	struct model_seq_in in = { 0 };
	struct pool pool;
	u32 at, n;

	device_pool(&pool, model, chunk);
	pool_tables(&pool, NR_ALL, &in);
	for (at = 0; at < NR_ALL; at += n) {
		n = at < whole ? min(chunk, whole - at) : 1;
		in.tokens = golden.tokens + at;
		in.nr_tokens = in.want_logits = n;
		in.start = at;
		if (model_forward(model, &pool.kv, &in, 1,
				  logits + at * VOCAB))
			ck_abort_msg("%s", model_failure(model));
	}
	device_pool_destroy(&pool);
	return logits;
}

static void assert_greedy(const char *what, const float *logits)
{
	const float *row;
	u32 i, j, best;

	for (i = NR_PROMPT - 1; i < NR_ALL; i++) {
		row = logits + i * VOCAB;
		for (best = 0, j = 1; j < VOCAB; j++)
			if (row[j] > row[best])
				best = j;
		if (best != golden.tokens[i + 1])
			ck_abort_msg("%s, %s: token %u is %u, not %u",
				     case_dir, what, i + 1, best,
				     golden.tokens[i + 1]);
	}
}

static void assert_same(const char *what, const float *a, const float *b,
			u32 rows)
{
	u32 i;

	for (i = 0; i < rows; i++)
		if (memcmp(a + i * VOCAB, b + i * VOCAB, VOCAB * sizeof(*a)))
			ck_abort_msg("%s: %s: the bits of row %u differ",
				     case_dir, what, i);
}

START_TEST(test_f32)
{
	const struct model_info *info;
	struct model *model;
	float *logits;

	device_open();
	golden_read(cases[_i]);
	config_write(NULL, NULL);
	model = load(MODEL_F32, false);
	info = model_info(model);
	ck_assert_str_eq(info->kernel, "cuda");
	ck_assert_int_eq(strncmp(info->variant, "sm_", 3), 0);
	ck_assert_uint_gt(strlen(info->device), 0);
	ck_assert_uint_gt(info->device_bytes, info->weight_bytes);
	ck_assert_uint_eq(info->mapped_bytes + info->copy_bytes, 0);
	logits = run(model, NR_ALL, 37);
	assert_near("cuda", logits, golden.f32, 1e-4);
	assert_greedy("cuda", logits);
	free(logits);
	model_free(model);
	kern_close(ops, ctx);
}
END_TEST

START_TEST(test_bf16)
{
	struct model *model;
	float *logits;

	device_open();
	golden_read(cases[_i]);
	config_write_half();
	model = load(MODEL_BF16, false);
	logits = run(model, NR_ALL, 50);
	assert_near("cuda", logits, golden.half, 2e-2);
	assert_near("cuda", logits, golden.bf16, 2e-2);
	free(logits);
	model_free(model);
	kern_close(ops, ctx);
}
END_TEST

/* Fast mode has the tolerance of fast mode on the CPU. */
START_TEST(test_fast)
{
	struct model *model;
	float *logits;

	device_open();
	golden_read(cases[_i]);
	config_write(NULL, NULL);
	model = load_as("cuda", MODEL_FAST, MODEL_F32, false);
	ck_assert_str_eq(model_info(model)->kernel, "cuda-fast");
	logits = run(model, NR_ALL, 64);
	assert_near("cuda-fast", logits, golden.f32, MODEL_FAST_TOL);
	free(logits);
	model_free(model);
	kern_close(ops, ctx);
}
END_TEST

#define LLAMA_LAYERS	2	/* of the case "llama" */
#define SINGLE	8u	/* tokens decoded one by one; a stand-in is slow */

/* As a whole, in pieces, and token by token; with graphs and without. */
START_TEST(test_chunks)
{
	const enum model_dtype dtype = _i & 1 ? MODEL_BF16 : MODEL_F32;
	struct model *model;
	float *whole, *cut;

	device_open();
	golden_read(cases[_i]);
	config_write(NULL, NULL);
	model = load(dtype, true);
	whole = run(model, NR_ALL, NR_ALL);
	cut = run(model, NR_ALL, 23);
	assert_same("pieces of 23", cut, whole, NR_ALL);
	free(cut);
	ck_assert_uint_eq(cuda_of(model->ctx)->replays, 0);
	model_free(model);
	model = load(dtype, false);
	cut = run(model, NR_ALL - SINGLE, 64);
	assert_same("token by token", cut, whole, NR_ALL);
	/*
	 * The first step is launched, the second recorded.  A dynamic encoding
	 * replays none, and so does a model with experts.
	 */
	ck_assert_uint_eq(cuda_of(model->ctx)->replays,
			  strstr(case_dir, "dynamic") ||
			  !case_is_smooth(case_dir) ? 0 : SINGLE - 2);
	model_free(model);
	free(cut);
	free(whole);
	kern_close(ops, ctx);
}
END_TEST

/* Other types of KV: near the golden numbers, and the same bits in every chunking. */
START_TEST(test_kv_type)
{
	const double most = KV_GAIN * lossy[_i].u;
	struct model *model;
	float *whole, *cut;

	device_open();
	golden_read(cases[0]);
	config_write(NULL, NULL);
	model = load_kv("cuda", MODEL_EXACT, MODEL_F32, lossy[_i].type, false);
	whole = run(model, NR_ALL, NR_ALL);
	assert_near("cuda", whole, golden.f32, most);
	cut = run(model, NR_ALL - SINGLE, 23);
	assert_same("token by token", cut, whole, NR_ALL);
	ck_assert_uint_eq(cuda_of(model->ctx)->replays, SINGLE - 2);
	free(cut);
	model_free(model);
	model = load_kv("cuda", MODEL_FAST, MODEL_F32, lossy[_i].type, false);
	cut = run(model, NR_ALL - SINGLE, 64);
	assert_near("cuda-fast", cut, golden.f32, most + MODEL_FAST_TOL);
	free(cut);
	free(whole);
	model_free(model);
	kern_close(ops, ctx);
}
END_TEST

/* KV whose heads are no whole pieces of 16 bytes is refused, and the line says why. */
START_TEST(test_kv_refused)
{
	struct model_opts opts = {
		.kernel = "cuda", .kv_type = MODEL_KV_FP8, .dummy = true,
		.mode = MODEL_EXACT,
	};
	struct model_error err;
	struct model *model;

	device_open();
	golden_read("llama-head24");
	config_write(NULL, NULL);
	for (; opts.kv_type <= MODEL_KV_INT8; opts.kv_type++) {
		ck_assert_int_eq(model_load(fixture_dir, &opts, &model, &err),
				 -EOPNOTSUPP);
		ck_assert_msg(strstr(err.text, "kernel \"cuda\" takes no KV in ") &&
			      strstr(err.text, " with heads of 24: "), "%s",
			      err.text);
	}
	kern_close(ops, ctx);
}
END_TEST

#define BATCH	11u

/*
 * Sequences join and leave: decode batches of sizes up to BATCH, each row with
 * the bits that it has alone.
 */
START_TEST(test_batch)
{
	static const u32 sizes[] = { 1, 3, 11, 3, 1, 4, 9, 3, 1, 11 };
	struct model_seq_in in[BATCH] = { 0 };
	float *alone, *logits = calloc(BATCH, VOCAB * sizeof(*logits));
	struct model *model;
	struct pool pool;
	u32 i, step, pos[BATCH];

	device_open();
	golden_read(cases[_i]);
	config_write(NULL, NULL);
	model = load(MODEL_BF16, false);
	alone = run(model, NR_ALL, NR_ALL);
	device_pool(&pool, model, 5);
	for (i = 0; i < BATCH; i++) {
		pos[i] = 7 + i;
		in[i] = (struct model_seq_in){
			.tokens = golden.tokens, .nr_tokens = pos[i],
			.table[0] = pool_table(&pool, 40),
		};
	}
	ck_assert_int_eq(model_forward(model, &pool.kv, in, BATCH, NULL), 0);
	for (step = 0; step < ARRAY_SIZE(sizes); step++) {
		const u32 nr = sizes[step];

		for (i = 0; i < nr; i++)
			in[i] = (struct model_seq_in){
				.tokens = golden.tokens + pos[i],
				.nr_tokens = 1, .start = pos[i],
				.table[0] = in[i].table[0], .want_logits = 1,
			};
		ck_assert_int_eq(model_forward(model, &pool.kv, in, nr,
					       logits), 0);
		for (i = 0; i < nr; i++)
			assert_same("in a batch", logits + i * VOCAB,
				    alone + pos[i] * VOCAB, 1);
		for (i = 0; i < nr; i++)
			pos[i]++;
	}
	/* Batches of the buckets 1, 4 and 16 come three, four and three times. */
	ck_assert_uint_eq(cuda_of(model->ctx)->replays, 4);
	device_pool_destroy(&pool);
	model_free(model);
	free(alone);
	free(logits);
	kern_close(ops, ctx);
}
END_TEST

/* ------------------------------------------------------------------ draws */

#define DRAW_SEQS	4u
#define DRAW_ROWS	(2 * DRAW_SEQS)	/* rows of logits of a prompt */
#define DRAW_SAMPLES	12u
#define DRAWS_MAX	(DRAW_ROWS * DRAW_SAMPLES)

/* Rows of a batch, the draws from them, and their results. */
struct scene {
	struct kern_draw	draws[DRAWS_MAX];
	u32			nr;
	u8			travels[DRAW_ROWS];
	struct kern_drawn	drawn[DRAWS_MAX];
	struct kern_top		top[DRAWS_MAX][KERN_TOP_MAX];
	float			want[DRAW_ROWS * VOCAB];
	float			got[DRAW_ROWS * VOCAB];
};

static const u32 masked[] = { 3, 17, 17, 40 };
static const u32 allowed[] = { 1, 2, 3, 5, 8, 13, 21, 34, 55, 60 };
static const struct kern_bias biases[] = { { 5, 2.5f }, { 9, -1 } };
static const struct kern_count counts[] = { { 8, 0 }, { 5, 3 }, { 22, 1 } };

/* Every third row travels to the host; the others have @samples draws, of many kinds. */
static void scene_fill(struct scene *s, u32 rows, u32 samples, u32 turn)
{
	u32 row, k;

	s->nr = 0;
	for (row = 0; row < rows; row++) {
		struct kern_draw d = {
			.seed = 7 + turn, .position = 100 * turn + row,
			.row = row, .temperature = row % 4 ? 1.2f : 0,
			.top_p = row % 2 ? 1 : 0.8f, .top_k = row * 3,
			.min_p = row % 5 ? 0 : 0.01f,
			.logprobs = row % 2, .nr_top = row % 2 ? 5 : 0,
		};

		s->travels[row] = row % 3 == 2;
		if (s->travels[row])
			continue;
		if ((row + turn) % 2) {
			d.repetition = 1.3f;
			d.frequency = 0.5f;
			d.presence = -0.25f;
			d.masked = masked;
			d.nr_masked = ARRAY_SIZE(masked);
			d.biases = biases;
			d.nr_biases = ARRAY_SIZE(biases);
			d.counts = counts;
			d.nr_counts = ARRAY_SIZE(counts);
		}
		if (row % 4 == 1) {
			d.allowed = allowed;
			d.nr_allowed = ARRAY_SIZE(allowed);
		}
		for (k = 0; k < samples; k++) {
			d.sample = k;
			s->draws[s->nr++] = d;
		}
	}
}

/* Compare the drawn tokens with the oracle's, over the logits of the same batch. */
static void scene_compare(const struct scene *s, u32 rows)
{
	struct kern_top top[KERN_TOP_MAX];
	struct kern_drawn one;
	u32 i, k;

	for (i = 0; i < s->nr; i++) {
		const struct kern_draw *d = &s->draws[i];
		const struct kern_drawn *got = &s->drawn[i];

		draw_oracle(d, s->want + d->row * VOCAB, VOCAB, &one, top);
		ck_assert_int_eq(got->id, one.id);
		ck_assert_uint_eq(got->rank, one.rank);
		ck_assert_uint_eq(got->nr_top, one.nr_top);
		ck_assert_float_eq_tol(got->logprob, one.logprob, 1e-4f);
		for (k = 0; k < one.nr_top; k++) {
			ck_assert_uint_eq(s->top[i][k].id, top[k].id);
			ck_assert_float_eq_tol(s->top[i][k].logprob,
					       top[k].logprob, 1e-4f);
		}
	}
	for (i = 0; i < rows; i++)
		for (k = 0; k < VOCAB; k++)
			ck_assert(s->travels[i] ?
				  s->got[i * VOCAB + k] == s->want[i * VOCAB + k] :
				  isnan(s->got[i * VOCAB + k]));
}

/* Run the batch twice: all rows travel to the host, and rows are drawn from in place. */
static void scene_run(struct scene *s, struct model *model,
		      const struct model_kv *kv, const struct model_seq_in *in,
		      u32 rows)
{
	const struct model_draws d = {
		.draws = s->draws, .nr = s->nr, .drawn = s->drawn,
		.top = s->top[0], .top_stride = KERN_TOP_MAX,
		.travels = s->travels,
	};

	memset(s->got, 0xff, sizeof(s->got));
	ck_assert_int_eq(model_forward(model, kv, in, DRAW_SEQS, s->want), 0);
	ck_assert_int_eq(model_forward_draw(model, kv, in, DRAW_SEQS, &d,
					    s->got), 0);
	scene_compare(s, rows);
}

/*
 * The device draws the same tokens as the host: in a step that is launched,
 * recorded or replayed, and with logits in one piece or in several.  Only the
 * requested logits travel.
 */
START_TEST(test_draws)
{
	struct scene *s = calloc(1, sizeof(*s));
	struct model_seq_in in[DRAW_SEQS] = { 0 };
	struct model *model;
	struct pool pool;
	u32 i, step;

	device_open();
	golden_read("llama");
	config_write(NULL, NULL);
	model = load(_i & 1 ? MODEL_BF16 : MODEL_F32, _i & 2);
	ck_assert(model_info(model)->draws);
	device_pool(&pool, model, 5);
	for (i = 0; i < DRAW_SEQS; i++)
		in[i] = (struct model_seq_in){
			.tokens = golden.tokens, .nr_tokens = 5 + i,
			.table[0] = pool_table(&pool, 40), .want_logits = 2,
		};
	if (_i & 1)
		model->work.max_logits = 3;	/* in pieces */
	scene_fill(s, DRAW_ROWS, _i & 2 ? 2 : DRAW_SAMPLES, 0);
	scene_run(s, model, &pool.kv, in, DRAW_ROWS);
	model->work.max_logits = DRAW_ROWS;
	for (step = 1; step < 4; step++) {
		for (i = 0; i < DRAW_SEQS; i++) {
			in[i].start += in[i].nr_tokens;
			in[i].nr_tokens = in[i].want_logits = 1;
			in[i].tokens = golden.tokens + in[i].start;
		}
		scene_fill(s, DRAW_SEQS, 1, step);
		scene_run(s, model, &pool.kv, in, DRAW_SEQS);
	}
	ck_assert_uint_eq(cuda_of(model->ctx)->replays, _i & 2 ? 0 : 4);
	device_pool_destroy(&pool);
	model_free(model);
	free(s);
	kern_close(ops, ctx);
}
END_TEST

/* Draws that are out of order, or not of this batch, are refused. */
START_TEST(test_draws_refused)
{
	struct kern_drawn drawn[2] = { { .id = -1 }, { .id = -1 } };
	struct kern_draw draw[2] = { { .row = 0 }, { .row = 0 } };
	struct model_seq_in in = { .nr_tokens = 2, .want_logits = 2 };
	struct model_draws d = {
		.draws = draw, .nr = 2, .drawn = drawn,
		.travels = (const u8[2]){ 0 },
	};
	float logits[2 * VOCAB];
	struct model *model;
	struct pool pool;

	device_open();
	golden_read("llama");
	config_write(NULL, NULL);
	model = load(MODEL_F32, false);
	device_pool(&pool, model, 5);
	in.tokens = golden.tokens;
	in.table[0] = pool_table(&pool, 40);
	draw[0].row = 1;
	ck_assert_int_eq(model_forward_draw(model, &pool.kv, &in, 1, &d,
					    logits), -EINVAL);
	draw[0].row = 0;
	draw[1].row = 2;
	ck_assert_int_eq(model_forward_draw(model, &pool.kv, &in, 1, &d,
					    logits), -EINVAL);
	draw[1].row = 1;
	draw[1].nr_top = 1;
	ck_assert_int_eq(model_forward_draw(model, &pool.kv, &in, 1, &d,
					    logits), -EINVAL);
	ck_assert_int_eq(drawn[0].id, -1);
	draw[1].nr_top = 0;
	ck_assert_int_eq(model_forward_draw(model, &pool.kv, &in, 1, &d,
					    logits), 0);
	ck_assert_int_ge(drawn[0].id, 0);
	device_pool_destroy(&pool);
	model_free(model);
	kern_close(ops, ctx);
}
END_TEST

static const struct {
	const char	*fn;
	u32		at[8];	/* numbers of the calls that fail */
} failures[] = {
	{ "Init", { 1 } }, { "DeviceGetCount", { 1 } }, { "DeviceGet", { 1 } },
	{ "DeviceGetAttribute", { 1, 3 } }, { "DeviceGetName", { 1 } },
	{ "DevicePrimaryCtxRetain", { 1 } }, { "CtxSetCurrent", { 1 } },
	{ "StreamCreateWithPriority", { 1 } }, { "ModuleLoadData", { 1 } },
	{ "ModuleGetFunction", { 1, 9 } }, { "FuncSetAttribute", { 1 } },
	{ "MemHostAlloc", { 1, 4 } }, { "EventCreate", { 1, 4 } },
	{ "MemAlloc", { 1, 2, 3, 4, 5, 6, 7, 8 } },
	{ "MemGetInfo", { 1 } }, { "EventSynchronize", { 1, 2, 9 } },
	{ "MemcpyHtoDAsync", { 1, 2, 30, 33, 34, 36 } },
	{ "EventRecord", { 1, 20, 33, 34 } },
	{ "LaunchKernel", { 1, 2, 19, 41, 60, 61, 90, 100 } },
	{ "StreamBeginCapture", { 1, 2 } }, { "StreamEndCapture", { 1, 2 } },
	{ "GraphInstantiate", { 1 } }, { "GraphLaunch", { 1, 2 } },
	{ "MemcpyDtoHAsync", { 1, 2, 3, 4 } },
	{ "StreamSynchronize", { 1, 2, 3, 4, 5, 6 } },
};

enum {
	ENDS_WELL	= 0,
	NO_MODEL	= 10,
	STEP_FAILED	= 11,
	WRONG		= 12,
};

/* One line of text for a person. */
static bool is_line(const char *text)
{
	return text && strlen(text) > 10 && !strchr(text, '\n');
}

/* Runs of the model in live(), and whether steps are recorded. */
static u32 life_steps = 7;
static bool life_no_graphs;

/* One step; of every second one only the token travels.  @drawn is pinned. */
static int live_step(struct model *model, const struct model_kv *kv,
		     const struct model_seq_in *in, u32 step,
		     struct kern_drawn *drawn, float *logits)
{
	const struct kern_draw draw = {
		.temperature = 1, .top_p = 0.9f, .repetition = 1.2f,
		.counts = counts, .nr_counts = ARRAY_SIZE(counts),
	};
	const struct model_draws d = {
		.draws = &draw, .nr = 1, .drawn = drawn,
		.travels = (const u8[1]){ 0 },
	};

	return model_forward_draw(model, kv, in, 1,
				  step % 2 && drawn ? &d : NULL, logits);
}

/* A prompt and decode steps; the model allocates all device memory. */
static int live(void)
{
	struct kern_drawn *drawn;
	const struct model_opts opts = {
		.dtype = MODEL_BF16, .dummy = true, .mode = MODEL_EXACT,
		.kernel = "cuda", .max_rows = 32,
		.no_graphs = life_no_graphs,
	};
	struct model_error err = { "" };
	struct model_seq_in in = { 0 };
	float logits[VOCAB];
	struct model *model;
	struct pool pool;
	u32 step;
	int ret;

	ret = model_load(fixture_dir, &opts, &model, &err);
	if (ret)
		return ret < 0 && is_line(err.text) ? NO_MODEL : WRONG;
	pool_create(&pool, model_info(model), 8, 16, false, 1);
	pool.kv.base = model->ops->mem_alloc(model->ctx, pool.bytes);
	drawn = model_host_alloc(model, sizeof(*drawn));
	in.table[0] = pool_table(&pool, 40);
	for (step = 0; step < life_steps && !ret && pool.kv.base; step++) {
		in.tokens = golden.tokens + in.start;
		in.nr_tokens = step ? 1 : 20;
		in.want_logits = 1;
		ret = live_step(model, &pool.kv, &in, step, drawn, logits);
		in.start += in.nr_tokens;
	}
	if (ret && (ret != -EIO || !is_line(model_failure(model)) ||
		    model_forward(model, &pool.kv, &in, 1, logits) != -EIO))
		return WRONG;
	if (!ret && model_failure(model) && pool.kv.base)
		return WRONG;
	model->ops->mem_free(model->ctx, pool.kv.base);
	model_host_free(model, drawn);
	pool_destroy(&pool);
	model_free(model);
	return ret ? STEP_FAILED : ENDS_WELL;
}

static s64 reported(const char *line, const char *key)
{
	char text[64];
	const char *at;

	snprintf(text, sizeof(text), " %s=", key);
	at = strstr(line, text);
	return at ? atoll(at + strlen(text)) : 0;
}

/*
 * Do the pairs of the report agree?  A failed device gives nothing back, but
 * the calls must have been made.
 */
static void assert_given_back(const char *path, const char *rule, bool failed)
{
	static const char * const pairs[][4] = {
		{ "alloc", "free", "cuMemAlloc", "cuMemFree" },
		{ "pinned", "unpinned", "cuMemHostAlloc", "cuMemFreeHost" },
		{ "streams", "streams_gone", "cuStreamCreateWithPriority",
		  "cuStreamDestroy" },
		{ "events", "events_gone", "cuEventCreate", "cuEventDestroy" },
		{ "graphs", "graphs_gone", "cuGraphInstantiate",
		  "cuGraphExecDestroy" },
	};
	const u32 from = failed ? 2 : 0;
	char line[4096] = "";
	FILE *f = fopen(path, "r");
	u32 i;

	/* A driver that never began has no report. */
	if (!f)
		return;
	ck_assert_ptr_nonnull(fgets(line, sizeof(line), f));
	fclose(f);
	for (i = 0; i < ARRAY_SIZE(pairs); i++)
		ck_assert_msg(reported(line, pairs[i][from]) ==
			      reported(line, pairs[i][from + 1]),
			      "%s: taken and not given back: %s", rule, line);
}

/* Run live() in a child with one rule of the environment; returns how it ended. */
static int live_with(const char *key, const char *rule)
{
	char path[160];
	int status;
	pid_t pid;

	snprintf(path, sizeof(path), "%s/count", fixture_dir);
	unlink(path);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid) {
		alarm(60);
		setenv(key, rule, 1);
		setenv("KVMM_STANDIN_COUNT", path, 1);
		exit(live());
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status), "%s %s: signal %d", key, rule,
		      WTERMSIG(status));
	ck_assert_msg(WEXITSTATUS(status) != WRONG, "%s %s", key, rule);
	assert_given_back(path, rule, strstr(key, "FAULT"));
	return WEXITSTATUS(status);
}

START_TEST(test_call_fails)
{
	char rule[64];
	u32 i;

	ck_assert(hosted_driver());
	golden_read("llama");
	config_write(NULL, NULL);
	for (i = 0; i < 8 && failures[_i].at[i]; i++) {
		snprintf(rule, sizeof(rule), "%s:%u=999", failures[_i].fn,
			 failures[_i].at[i]);
		live_with("KVMM_STANDIN_FAIL", rule);
		snprintf(rule, sizeof(rule), "%s:%u=2", failures[_i].fn,
			 failures[_i].at[i]);
		live_with("KVMM_STANDIN_FAIL", rule);
	}
	/* Without the first call of each other function no model can run. */
	if (strcmp(failures[_i].fn, "DeviceGetName") &&
	    strcmp(failures[_i].fn, "MemGetInfo") &&
	    strcmp(failures[_i].fn, "StreamBeginCapture") &&
	    strcmp(failures[_i].fn, "StreamEndCapture") &&
	    strcmp(failures[_i].fn, "GraphInstantiate")) {
		snprintf(rule, sizeof(rule), "%s:1=999", failures[_i].fn);
		ck_assert_int_ne(live_with("KVMM_STANDIN_FAIL", rule),
				 ENDS_WELL);
	}
}
END_TEST

/* Kernels that live() launches with so many steps. */
static s64 launches(u32 steps)
{
	char path[160], line[4096] = "";
	FILE *f;

	life_steps = steps;
	life_no_graphs = true;
	ck_assert_int_eq(live_with("KVMM_STANDIN_FAULT", "launch:1000000"),
			 ENDS_WELL);
	snprintf(path, sizeof(path), "%s/count", fixture_dir);
	f = fopen(path, "r");
	ck_assert_ptr_nonnull(f);
	ck_assert_ptr_nonnull(fgets(line, sizeof(line), f));
	fclose(f);
	return reported(line, "cuLaunchKernel");
}

/*
 * The launches of a decode step.  Each layer: the products of q, k and v in
 * one, rotation and append, attention, its product, residual and norm, gate and
 * up, the activation, its product, residual and norm.  Around the layers:
 * embedding, rotary table, the first norm, the wanted rows, their norm, the
 * head.
 */
START_TEST(test_launches)
{
	s64 step;

	ck_assert(hosted_driver());
	golden_read("llama");
	config_write(NULL, NULL);
	/* One of two steps has a draw: two launches more, for edits and draw. */
	step = (launches(5) - launches(3) - 2) / 2;
	ck_assert_int_eq(step, 6 + 9 * LLAMA_LAYERS);
}
END_TEST

/* The device itself fails in a kernel or in a copy. */
START_TEST(test_device_fails)
{
	static const char * const faults[] = {
		"launch:1", "launch:17", "launch:45", "launch:80",
		"launch:120", "launch:150", "copy:2", "copy:36", "copy:40",
	};

	ck_assert(hosted_driver());
	golden_read("llama");
	config_write(NULL, NULL);
	ck_assert_int_eq(live_with("KVMM_STANDIN_FAULT", "launch:1000000"),
			 ENDS_WELL);
	ck_assert_int_ne(live_with("KVMM_STANDIN_FAULT", faults[_i]),
			 ENDS_WELL);
}
END_TEST

/* A fetch of the chosen experts fails, or a kernel before it, or the wait for them. */
START_TEST(test_choice_fails)
{
	static const char * const rules[] = {
		"MemcpyDtoHAsync:1=999", "MemcpyDtoHAsync:3=999",
		"MemcpyDtoHAsync:6=999", "StreamSynchronize:4=999",
	};

	ck_assert(hosted_driver());
	golden_read("gpt-oss");
	config_write(NULL, NULL);
	life_steps = 3;
	ck_assert_int_eq(live_with("KVMM_STANDIN_FAIL", rules[_i]),
			 STEP_FAILED);
	ck_assert_int_ne(live_with("KVMM_STANDIN_FAULT",
				   _i % 2 ? "launch:60" : "launch:25"),
			 ENDS_WELL);
}
END_TEST

static void case_add(Suite *s, TCase *tc, double timeout)
{
	tcase_set_tags(tc, "unit model cuda");
	tcase_set_timeout(tc, timeout);
	tcase_add_checked_fixture(tc, setup, teardown);
	suite_add_tcase(s, tc);
}

static Suite *model_cuda_suite(void)
{
	/* Check runs the first families only: the switches are those of the decoder. */
	const int nr = hosted_rounds(2, ARRAY_SIZE(cases));
	Suite *s = suite_create("model on a GPU");
	TCase *golden_case = tcase_create("golden");
	TCase *exact = tcase_create("exact");
	TCase *fails = tcase_create("fails");

	case_add(s, golden_case, 60);
	tcase_add_loop_test(golden_case, test_f32, 0, nr);
	tcase_add_loop_test(golden_case, test_bf16, 0, nr);
	tcase_add_loop_test(golden_case, test_fast, 0, nr);
	tcase_add_loop_test(golden_case, test_kv_type, 0, NR_LOSSY);
	tcase_add_test(golden_case, test_kv_refused);
	case_add(s, exact, 120);
	tcase_add_loop_test(exact, test_chunks, 0, nr);
	tcase_add_loop_test(exact, test_batch, 0, 2);
	tcase_add_loop_test(exact, test_draws, 0, 4);
	tcase_add_test(exact, test_draws_refused);
	case_add(s, fails, 120);
	if (standin_absent("the case 'fails'"))
		return s;
	tcase_add_test(fails, test_launches);
	tcase_add_loop_test(fails, test_choice_fails, 0, hosted_rounds(2, 4));
	tcase_add_loop_test(fails, test_call_fails, 0, ARRAY_SIZE(failures));
	if (!standin_forgets("test_device_fails"))
		tcase_add_loop_test(fails, test_device_fails, 0, 9);
	return s;
}

int main(void)
{
	SRunner *sr;
	int failed;

	sr = srunner_create(model_cuda_suite());
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
