// SPDX-License-Identifier: Apache-2.0
/*
 * check_model_golden.c - every family against another implementation
 *
 * The cases of tests/data/families: a tiny configuration for each family and
 * position encoding, made-up weights, and the results of Hugging Face
 * transformers with them (see make_families.py there).  Contexts are several
 * times as long as the sliding windows.
 *
 * Every kernel of this machine runs each case, sanitized one of them: greedy
 * tokens must be equal, logits within 1e-4 in f32 and 2e-2 in bf16 (maximum of
 * the difference over maximum of the golden).  The bits must not depend on the
 * chunks of the prompt.  Then the same weights go through files of each type, in one piece
 * and in shards, and must give the same bits.
 */
#include "tests/unit/golden_fixture.h"

static struct model *load(const struct kern_ops *ops, enum model_dtype dtype,
			  bool dummy)
{
	struct model_opts opts = {
		.dtype = dtype, .dummy = dummy, .nr_threads = 1,
		.mode = MODEL_EXACT,
	};
	struct model_error err;
	struct model *model;
	char name[32];

	if (ops && ops->mode == KERN_MODE_FAST)
		opts.mode = MODEL_FAST;
	if (ops) {
		snprintf(name, sizeof(name), "%s:%s", ops->name,
			 ops->variant);
		opts.kernel = strcmp(ops->name, "ref") ? name : "ref";
	}
	ck_assert_msg(!model_load(fixture_dir, &opts, &model, &err), "%s",
		      err.text);
	ck_assert_uint_eq(model_info(model)->nr_vocab, VOCAB);
	return model;
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

static void setup(void)
{
	dir_create();
}

static void teardown(void)
{
	dir_destroy();
}

START_TEST(test_f32)
{
	const struct kern_ops *ops;
	struct model *model;
	float *logits;
	u32 i;

	golden_read(cases[_i]);
	config_write(NULL, NULL);
	for (i = 0; (ops = kern_of_case(_i, i)); i++) {
		model = load(ops, MODEL_F32, true);
		logits = run_chunks(model, 37);
		assert_near(ops->variant, logits, golden.f32, 1e-4);
		assert_greedy(ops->variant, logits);
		free(logits);
		model_free(model);
	}
}
END_TEST

START_TEST(test_bf16)
{
	const struct kern_ops *ops;
	struct model *model;
	float *logits;
	u32 i;

	golden_read(cases[_i]);
	config_write_half();
	for (i = 0; (ops = kern_of_case(_i, i)); i++) {
		model = load(ops, MODEL_F32, true);
		logits = run_chunks(model, 50);
		assert_near(ops->variant, logits, golden.half, 1e-4);
		free(logits);
		model_free(model);
		model = load(ops, MODEL_BF16, true);
		logits = run_chunks(model, 50);
		assert_near(ops->variant, logits, golden.half, 2e-2);
		assert_near(ops->variant, logits, golden.bf16, 2e-2);
		free(logits);
		model_free(model);
	}
}
END_TEST

/* As a whole, in pieces, and token by token: the same bits. */
START_TEST(test_chunks)
{
	static const u32 chunks[] = { 1, 16, 23 };
	enum model_dtype dtype;
	struct model *model;
	float *whole, *cut;
	u32 i;

	golden_read(cases[_i]);
	config_write(NULL, NULL);
	for (dtype = MODEL_F32; dtype <= MODEL_BF16; dtype++) {
		model = load(NULL, dtype, true);
		whole = run_chunks(model, NR_ALL);
		for (i = 0; i < ARRAY_SIZE(chunks); i++) {
			cut = run_chunks(model, chunks[i]);
			ck_assert(!memcmp(cut, whole, NR_ALL * VOCAB *
					  sizeof(*cut)));
			free(cut);
		}
		free(whole);
		model_free(model);
	}
}
END_TEST

/*
 * Weights from files of every type, in one piece and in shards.  The first four
 * rows are enough: they use all weights.
 */
START_TEST(test_files)
{
	struct model_config cfg;
	struct model_error err;
	struct model *model;
	enum tiny_type type;
	struct ckpt *c;
	float *made, *read;

	golden_read(cases[_i]);
	config_write(NULL, NULL);
	ck_assert_int_eq(model_config_read(fixture_dir, &cfg, &err), 0);
	ck_assert_int_eq(cfg.file_type, KERN_F32);
	ck_assert_int_eq(dummy_open(fixture_dir, &cfg, NULL, false, &c,
				    &err), 0);
	model = load(NULL, MODEL_F32, true);
	made = run_chunks(model, NR_ALL);
	model_free(model);
	for (type = TINY_F32; type <= TINY_F16; type++) {
		shards_write(c, type == TINY_BF16 ? 3 : 1, type);
		model = load(NULL, MODEL_F32, false);
		read = run_chunks(model, NR_ALL);
		ck_assert_msg(!memcmp(made, read, NR_ALL * VOCAB *
				      sizeof(*made)), "%s, type %u", case_dir,
			      type);
		free(read);
		model_free(model);
		dir_destroy();
		dir_create();
		config_write(NULL, NULL);
	}
	free(made);
	ckpt_close(c);
}
END_TEST

/* kB in one line of our /proc/self/status. */
static u64 status_kb(const char *key)
{
	char line[256];
	unsigned long long v = 0;
	FILE *f = fopen("/proc/self/status", "r");

	ck_assert_ptr_nonnull(f);
	while (fgets(line, sizeof(line), f))
		if (!strncmp(line, key, strlen(key)))
			sscanf(line + strlen(key), " %llu", &v);
	fclose(f);
	return v;
}

static void ignore(void *arg, const char *tag, const void *data, size_t len)
{
	const volatile u8 *p = data;
	size_t i;

	for (i = 0; i < len; i += 4096)
		(void)p[i];
}

/*
 * A model whose matrices are all stored transposed is copied as a whole.  File
 * and copy are never both in memory, neither during the load nor during the
 * identity, which reads the file again.
 */
START_TEST(test_one_copy)
{
	struct model_config cfg;
	struct model_error err;
	struct model *model;
	struct ckpt *c;
	u64 before, peak, weights;
	FILE *f;

	golden_read("gpt2");
	config_write("n_embd", json_integer(768));
	ck_assert_int_eq(model_config_read(fixture_dir, &cfg, &err), 0);
	ck_assert_int_eq(dummy_open(fixture_dir, &cfg, NULL, false, &c,
				    &err), 0);
	shards_write(c, 1, TINY_BF16);
	ckpt_close(c);
	f = fopen("/proc/self/clear_refs", "w");	/* reset the peak */
	ck_assert(f && fputs("5", f) >= 0 && !fclose(f));
	before = status_kb("VmRSS:");
	model = load(NULL, MODEL_F32, false);
	model_identity(model, ignore, NULL);
	peak = status_kb("VmHWM:") - before;
	weights = model_info(model)->weight_bytes >> 10;
	ck_assert_uint_gt(weights, 25000);
	ck_assert_uint_gt(model_info(model)->copy_bytes >> 10,
			  weights * 9 / 10);
	ck_assert_msg(peak < weights * 3 / 2, "%llu kB for weights of %llu kB",
		      (unsigned long long)peak, (unsigned long long)weights);
	model_free(model);
}
END_TEST

/* Fold one part of an identity, with its tag and length. */
static void fold(void *arg, const char *tag, const void *data, size_t len)
{
	u64 *h = arg;
	const u8 *p = data;
	size_t i;

	for (i = 0; tag[i]; i++)
		*h = (*h ^ (u8)tag[i]) * 0x100000001b3ull;
	for (i = 0; i < len; i++)
		*h = (*h ^ p[i]) * 0x100000001b3ull;
	*h = (*h ^ len) * 0x100000001b3ull;
}

static u64 identity(void)
{
	struct model *model = load(NULL, MODEL_F32, true);
	u64 h = 1;

	model_identity(model, fold, &h);
	model_free(model);
	return h;
}

/* Keys that change no tensor, but the bits of logits. */
static const struct {
	const char	*of;
	const char	*key;
	const char	*value;
} turns[] = {
	{ "llama", "hidden_act", "\"gelu\"" },
	{ "llama", "rms_norm_eps", "2e-5" },
	{ "llama", "rope_scaling", "{\"type\":\"linear\",\"factor\":2}" },
	{ "llama-dynamic", "rope_scaling",
	  "{\"type\":\"dynamic\",\"factor\":3}" },
	{ "llama-dynamic", "max_position_embeddings", "65" },
	{ "llama-yarn", "rope_scaling", "{\"type\":\"yarn\",\"factor\":4,"
	  "\"beta_fast\":8,\"original_max_position_embeddings\":64,"
	  "\"attention_factor\":1.5}" },
	{ "mistral", "sliding_window", "17" },
	{ "qwen2-window", "max_window_layers", "0" },
	{ "qwen3-moe", "num_experts_per_tok", "3" },
	{ "qwen3-moe", "norm_topk_prob", "false" },
	{ "qwen2-moe", "norm_topk_prob", "true" },
	{ "mixtral", "num_experts_per_tok", "3" },
	{ "olmoe", "num_experts_per_tok", "3" },
	{ "phi3", "partial_rotary_factor", "0.5" },
	{ "phi3-long", "original_max_position_embeddings", "256" },
	{ "phi3-long", "original_max_position_embeddings", "32" },
	{ "phi3-short", "original_max_position_embeddings", "255" },
	{ "gpt-oss", "swiglu_limit", "2" },
	{ "gpt-oss", "swiglu_alpha", "1.5" },
	{ "gpt-oss", "rope_theta", "150001" },
	{ "gemma2", "attn_logit_softcapping", "2.5" },
	{ "gemma2", "final_logit_softcapping", "2.5" },
	{ "gemma2", "query_pre_attn_scalar", "25" },
	{ "gemma3", "rope_local_base_freq", "9999" },
	{ "gemma3", "sliding_window_pattern", "2" },
	{ "deepseek2-yarn", "rope_scaling", "{\"type\":\"yarn\",\"factor\":4,"
	  "\"mscale\":0.7,\"mscale_all_dim\":0.8,\"beta_fast\":8,"
	  "\"original_max_position_embeddings\":64}" },
	{ "deepseek2-moe", "num_experts_per_tok", "5" },
	{ "deepseek2-moe", "routed_scaling_factor", "2" },
	{ "deepseek2-groups-moe", "topk_group", "3" },
	{ "deepseek2-groups-moe", "topk_method", "\"greedy\"" },
	{ "gpt2", "activation_function", "\"gelu\"" },
	{ "neox", "use_parallel_residual", "false" },
	{ "neox", "rotary_pct", "0.5" },
	{ "bamba", "attn_layer_indices", "[0]" },
	{ "granite3", "attention_multiplier", "0.25" },
	{ "smollm3", "no_rope_layers", "[1,1,0,0]" },
	{ "smollm3-window", "sliding_window", "17" },
	{ "cohere", "logit_scale", "0.5" },
	{ "cohere2", "layer_types", "[\"sliding_attention\","
	  "\"full_attention\",\"full_attention\",\"sliding_attention\"]" },
	{ "phi", "partial_rotary_factor", "0.25" },
	{ "starcoder2", "sliding_window", "17" },
	{ "opt-plain", "do_layer_norm_before", "false" },
	{ "opt-plain", "_remove_final_layer_norm", "true" },
	{ "gpt2", "scale_attn_by_inverse_layer_idx", "true" },
	{ "gpt2", "scale_attn_weights", "false" },
	{ "granite", "embedding_multiplier", "5" },
	{ "granite", "attention_multiplier", "0.25" },
	{ "granite", "residual_multiplier", "0.4" },
	{ "granite", "logits_scaling", "2" },
	{ "granite", "position_embedding_type", "\"rope\"" },
	{ "granite", "layer_types",
	  "[\"mamba\",\"mamba\",\"attention\",\"mamba\"]" },
};

START_TEST(test_identity)
{
	u64 before;

	golden_read(turns[_i].of);
	config_write(NULL, NULL);
	before = identity();
	ck_assert_uint_eq(identity(), before);
	config_write(turns[_i].key, json_loads(turns[_i].value,
					       JSON_DECODE_ANY, NULL));
	ck_assert_uint_ne(identity(), before);
}
END_TEST

/* A judged model reports the same facts as a loaded one. */
START_TEST(test_judged)
{
	const struct model_opts opts = { .dummy = true, .judge = true };
	const struct model_info *a, *b;
	struct model *loaded, *judged;
	struct model_error err;

	golden_read(cases[_i]);
	config_write(NULL, NULL);
	loaded = load(NULL, MODEL_F32, true);
	ck_assert_msg(!model_load(fixture_dir, &opts, &judged, &err), "%s",
		      err.text);
	a = model_info(loaded);
	b = model_info(judged);
	ck_assert_str_eq(a->arch, b->arch);
	ck_assert_uint_eq(a->nr_params, b->nr_params);
	ck_assert_uint_eq(a->nr_tensors, b->nr_tensors);
	ck_assert_uint_eq(a->weight_bytes, b->weight_bytes);
	ck_assert_uint_eq(a->copy_bytes, b->copy_bytes);
	ck_assert_uint_eq(a->mapped_bytes, b->mapped_bytes);
	ck_assert_uint_eq(a->work_bytes, b->work_bytes);
	/* In f32 every tensor is either copied or mapped. */
	ck_assert_uint_eq(a->copy_bytes + a->mapped_bytes, a->weight_bytes);
	model_free(loaded);
	model_free(judged);
}
END_TEST

static Suite *golden_suite(void)
{
	Suite *s = suite_create("model_golden");
	TCase *tc = tcase_create("families");

	tcase_set_tags(tc, "unit model");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, test_f32, 0, ARRAY_SIZE(cases));
	tcase_add_loop_test(tc, test_bf16, 0, ARRAY_SIZE(cases));
	tcase_add_loop_test(tc, test_chunks, 0, ARRAY_SIZE(cases));
	tcase_add_loop_test(tc, test_files, 0, ARRAY_SIZE(cases));
	tcase_add_test(tc, test_one_copy);
	tcase_add_loop_test(tc, test_judged, 0, ARRAY_SIZE(cases));
	tcase_add_loop_test(tc, test_identity, 0, ARRAY_SIZE(turns));
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(golden_suite());
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
