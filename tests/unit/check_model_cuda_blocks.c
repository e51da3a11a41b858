// SPDX-License-Identifier: Apache-2.0
/*
 * check_model_cuda_blocks.c - quantized models on a GPU, run by the stand-in
 *
 * A model of tests/data/families is a GGUF file in blocks, and a file in F32 with the
 * numbers that the blocks say.  In exact mode both give the same bits.  In fast mode the
 * matrices of products are packed, and the logits are near.  The memory that was predicted
 * is what the weights take.
 *
 * from: full  budget: 40 s
 */
#include "kernels/cuda/internal.h"
#include "runtime/model/internal.h"
#include "tests/unit/gguf_fixture.h"
#include "tests/unit/kern_hosted.h"

/* Dense, tied, of experts in one tensor, turned, and with latent vectors. */
static const char *const models[] = {
	"llama", "gemma3", "qwen3-moe", "gpt-oss", "deepseek2-moe",
};

static const struct kern_ops *ops;
static struct kern_ctx *ctx;

static void setup(void)
{
	char why[256];

	dir_create();
	setenv("KVMM_CUBLASLT", "none", 1);
	if (!hosted_driver())
		ck_abort_msg("no stand-in for the driver: build it first");
	ops = kern_get("cuda");
	ck_assert_msg(!kern_open(ops, 0, NULL, &ctx, why, sizeof(why)), "%s",
		      why);
}

static void teardown(void)
{
	kern_close(ops, ctx);
	dir_destroy();
}

static struct model *load_at(const char *file, const char *kernel,
			     enum model_weights_use weights, bool judge)
{
	const struct model_opts opts = {
		.dtype = MODEL_F32, .nr_threads = 1, .kernel = kernel,
		.mode = strcmp(kernel, "cuda") ? MODEL_FAST : MODEL_EXACT,
		.weights = weights, .judge = judge, .max_rows = 160,
		.max_seqs = 16,
	};
	struct model *model = NULL;
	struct model_error err;
	char path[320];

	snprintf(path, sizeof(path), "%s/%s", fixture_dir, file);
	ck_assert_msg(!model_load(path, &opts, &model, &err), "%s", err.text);
	return model;
}

/* All tokens: the prompt at once, then some at a time, the last ones one by one. */
static float *run(struct model *model)
{
	float *logits = calloc(NR_ALL, VOCAB * sizeof(*logits));
	struct model_seq_in in = { 0 };
	struct pool pool;
	u32 at, n;

	pool_create(&pool, model_info(model), 80, 16, 1, 7);
	pool.kv.base = ops->mem_alloc(ctx, pool.bytes);
	ck_assert_ptr_nonnull(pool.kv.base);
	ops->mem_put(ctx, pool.kv.base, pool.mem, pool.bytes);
	ck_assert_int_eq(ops->wait(ctx), 0);
	pool_tables(&pool, NR_ALL, &in);
	for (at = 0; at < NR_ALL; at += n) {
		n = at < NR_PROMPT ? NR_PROMPT : at + 12 < NR_ALL ? 9 : 1;
		in.tokens = golden.tokens + at;
		in.nr_tokens = in.want_logits = n;
		in.start = at;
		if (model_forward(model, &pool.kv, &in, 1, logits + at * VOCAB))
			ck_abort_msg("%s", model_failure(model));
	}
	ops->mem_free(ctx, pool.kv.base);
	pool_destroy(&pool);
	return logits;
}

static float *logits_of(const char *file, const char *kernel)
{
	struct model *model = load_at(file, kernel, MODEL_WEIGHTS_AUTO, false);
	float *logits = run(model);

	model_free(model);
	return logits;
}

/* Write q.gguf in blocks, and m.gguf with their numbers in F32. */
static void write_files(const char *name)
{
	struct model_config cfg;
	struct model_error err;
	struct ckpt *c = NULL;
	struct gw *w;

	golden_read(name);
	config_write(NULL, NULL);
	ck_assert_int_eq(model_config_read(fixture_dir, &cfg, &err), 0);
	ck_assert_int_eq(dummy_open(fixture_dir, &cfg, NULL, false, &c, &err),
			 0);
	w = gw_make(c);
	gw_file(w, "q.gguf", 0, 1, 8);
	gw_file(w, "m.gguf", 0, 1, 0);
	gw_free(w);
	ckpt_close(c);
}

static void check_near(const float *got, const float *want)
{
	double worst = 0, size = 0;
	u32 i;

	for (i = 0; i < NR_ALL * VOCAB; i++) {
		worst = fmax(worst, fabs((double)got[i] - want[i]));
		size = fmax(size, fabs((double)want[i]));
	}
	/* A router may choose another expert where two are nearly equal. */
	ck_assert_msg(worst > 0 && worst < 0.05 * size, "%s: off by %g of %g",
		      case_dir, worst, size);
}

START_TEST(test_logits)
{
	float *blocks, *packed, *numbers;

	write_files(models[_i]);
	numbers = logits_of("m.gguf", "cuda");
	blocks = logits_of("q.gguf", "cuda");
	packed = logits_of("q.gguf", "cuda-fast");
	ck_assert_msg(!memcmp(blocks, numbers, NR_ALL * VOCAB * sizeof(*blocks)),
		      "%s: other bits", case_dir);
	check_near(packed, numbers);
	free(blocks);
	free(packed);
	free(numbers);
}
END_TEST

/* Bytes of weights on the device: predicted, packed, and as they are stored. */
START_TEST(test_memory)
{
	struct model *model;
	u64 packed, stored, floats, judged;

	write_files("llama");
	model = load_at("q.gguf", "cuda-fast", MODEL_WEIGHTS_AUTO, true);
	judged = model_info(model)->device_bytes;
	model_free(model);
	model = load_at("q.gguf", "cuda-fast", MODEL_WEIGHTS_AUTO, false);
	packed = model_info(model)->packed_bytes;
	ck_assert_uint_gt(packed, 0);
	ck_assert(model->w.layers[0].q.packed && model->w.head.packed);
	ck_assert(!model->w.embed.packed);
	ck_assert_uint_eq(judged, model_info(model)->device_bytes);
	stored = judged - model->work.bytes;
	model_free(model);
	model = load_at("q.gguf", "cuda-fast", MODEL_WEIGHTS_MAPPED, false);
	ck_assert_uint_eq(model_info(model)->packed_bytes, 0);
	ck_assert(!model->w.layers[0].q.packed);
	model_free(model);
	model = load_at("m.gguf", "cuda-fast", MODEL_WEIGHTS_AUTO, false);
	floats = model_info(model)->device_bytes - model->work.bytes;
	ck_assert_uint_gt(floats, 2 * stored);
	model_free(model);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("model_cuda_blocks");
	TCase *t = tcase_create("model_cuda_blocks");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_tags(t, "unit model cuda");
	tcase_set_timeout(t, 300);
	tcase_add_loop_test(t, test_logits, 0, ARRAY_SIZE(models));
	tcase_add_test(t, test_memory);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? 1 : 0;
}
