// SPDX-License-Identifier: Apache-2.0
/*
 * check_model_adapter_refuse.c - refusals of adapters
 *
 * Each is one line with the file, the key or the tensor, the reason and the remedy.
 */
#include <check.h>
#include <errno.h>
#include <unistd.h>

#include "tests/unit/adapter_fixture.h"

/* A key of adapter_config.json, and the refusal. */
static const struct {
	const char	*key;
	const char	*value;
	int		ret;
	const char	*words;
} bad[] = {
	{ "peft_type", "\"LOHA\"", -EOPNOTSUPP, "peft_type: \"LOHA\" is not supported: use an" },
	{ "peft_type", NULL, -EINVAL, "peft_type: is missing: copy" },
	{ "peft_type", "7", -EINVAL, "peft_type: is no string" },
	{ "task_type", "\"SEQ_CLS\"", -EOPNOTSUPP, "task_type: \"SEQ_CLS\" is not supported: use" },
	{ "r", NULL, -EINVAL, "r: is missing" },
	{ "r", "0", -EINVAL, "r: 0 is outside 1..512" },
	{ "r", "513", -EINVAL, "r: 513 is outside 1..512" },
	{ "r", "4.5", -EINVAL, "r: is no whole number" },
	{ "lora_alpha", NULL, -EINVAL, "lora_alpha: is missing" },
	{ "lora_alpha", "1e30", -EINVAL, "lora_alpha: 1e+30 is outside" },
	{ "lora_alpha", "\"16\"", -EINVAL, "lora_alpha: is no number" },
	{ "use_rslora", "1", -EINVAL, "use_rslora: is neither true nor false" },
	{ "use_dora", "true", -EOPNOTSUPP, "use_dora: DoRA scales the rows of the model's "
	  "matrices: train without it" },
	{ "bias", "\"all\"", -EOPNOTSUPP, "bias: \"all\" is not supported: biases of" },
	{ "lora_bias", "true", -EOPNOTSUPP, "lora_bias: pairs with a bias" },
	{ "modules_to_save", "[\"lm_head\"]", -EOPNOTSUPP, "modules_to_save: whole modules are" },
	{ "trainable_token_indices", "[1]", -EOPNOTSUPP, "trainable_token_indices: embeddings" },
	{ "target_parameters", "[\"mlp.experts.gate_up_proj\"]", -EOPNOTSUPP,
	  "target_parameters: pairs on parameters of experts" },
	{ "layer_replication", "[[0, 2], [1, 2]]", -EOPNOTSUPP, "layer_replication: layers that" },
	{ "use_qalora", "true", -EOPNOTSUPP, "use_qalora: pairs on groups" },
	{ "alora_invocation_tokens", "[5, 6]", -EOPNOTSUPP, "alora_invocation_tokens: an adapter" },
	{ "megatron_config", "{\"a\": 1}", -EOPNOTSUPP, "megatron_config: matrices of Megatron" },
	{ "arrow_config", "{\"top_k\": 1}", -EOPNOTSUPP, "arrow_config: several adapters" },
	{ "use_bdlora", "{\"nblocks\": 1}", -EOPNOTSUPP, "use_bdlora: pairs in diagonal" },
	{ "kasa_config", "{\"beta\": 1}", -EOPNOTSUPP, "kasa_config: pairs with a diagonal" },
	{ "monteclora_config", "{\"a\": 1}", -EOPNOTSUPP, "monteclora_config: pairs that are" },
	{ "init_lora_weights", "\"pissa\"", -EOPNOTSUPP, "init_lora_weights: \"pissa\" changes the" },
	{ "init_lora_weights", "\"pissa_niter_4\"", -EOPNOTSUPP, "\"pissa_niter_4\" changes" },
	{ "init_lora_weights", "\"olora\"", -EOPNOTSUPP, "\"olora\" changes" },
	{ "init_lora_weights", "\"loftq\"", -EOPNOTSUPP, "\"loftq\" changes" },
	{ "init_lora_weights", "\"corda\"", -EOPNOTSUPP, "\"corda\" changes" },
	{ "init_lora_weights", "7", -EINVAL, "init_lora_weights: is neither a name" },
	{ "rank_pattern", "[8]", -EINVAL, "rank_pattern: is no object" },
	{ "rank_pattern", "{\"q_proj\": 0}", -EINVAL, "rank_pattern: \"q_proj\" has no number from "
	  "1 to 512" },
	{ "rank_pattern", "{\"q_proj\": 1.5}", -EINVAL, "rank_pattern: \"q_proj\" has no number" },
	{ "rank_pattern", "{\"layers\\\\.[01]\\\\..*\": 8}", -EOPNOTSUPP,
	  "is a regular expression that is not supported: write names" },
	{ "rank_pattern", "{\"q_proj$\": 8}", -EOPNOTSUPP, "\"q_proj$\" is a regular expression" },
	{ "rank_pattern", "{\"\": 8}", -EOPNOTSUPP, "\"\" is a regular expression" },
	{ "alpha_pattern", "{\"q_proj|v_proj\": 8}", -EOPNOTSUPP, "\"q_proj|v_proj\" is a regular" },
	{ "alpha_pattern", "{\"q_proj\": \"8\"}", -EINVAL, "alpha_pattern: \"q_proj\" has no number" },
	{ "a_key_of_later", "true", -EOPNOTSUPP, "a_key_of_later: is not known, and may change" },
	{ "a_key_of_later", "{\"a\": 0}", -EOPNOTSUPP, "a_key_of_later: is not known" },
	{ "a_key_of_later", "\"yes\"", -EOPNOTSUPP, "a_key_of_later: is not known" },
};

START_TEST(test_refuses_config)
{
	open_model("llama", MODEL_F32);
	write_q(4, 4);
	lora_config(4, bad[_i].key, bad[_i].value);
	assert_refused(load(), bad[_i].ret, bad[_i].words);
	ck_assert_ptr_nonnull(strstr(failure.text, "/adapter_config.json: "));
}
END_TEST

/* One more tensor that is refused; @of is the model. */
static const struct {
	const char	*of;
	const char	*name;
	int		ret;
	const char	*words;
} names[] = {
	{ "llama", PEFT Q(0) ".lora_A.weight", -EINVAL, ": its lora_B is missing: copy" },
	{ "llama", PEFT Q(0) ".lora_B.weight", -EINVAL, ": its lora_A is missing: copy" },
	{ "llama", PEFT Q(2) ".lora_A.weight", -EINVAL, ": the model has 2 layers: this adapter is "
	  "for another model" },
	{ "llama", PEFT Q(99999999999999999999) ".lora_A.weight", -EINVAL, "the model has 2 layers" },
	{ "llama", PEFT Q(01) ".lora_A.weight", -EINVAL, "the model has no such part: this adapter" },
	{ "llama", PEFT "model.layers.0.self_attn.w.lora_A.weight", -EINVAL, "has no such part" },
	{ "llama", PEFT "transformer.h.0.attn.c_attn.lora_A.weight", -EINVAL, "has no such part" },
	{ "llama", PEFT "model.layers.0.input_layernorm.lora_A.weight", -EOPNOTSUPP, "this part of "
	  "the model takes no adapter: adapters of q, k, v and o, and of gate, up and down of MLPs "
	  "are supported" },
	{ "llama", PEFT "lm_head.lora_A.weight", -EOPNOTSUPP, "this part of the model takes no" },
	{ "llama", PEFT "model.embed_tokens.lora_A.weight", -EOPNOTSUPP, "this part of the model" },
	{ "llama", PEFT "model.embed_tokens.lora_embedding_A", -EOPNOTSUPP, "pairs of embeddings" },
	{ "llama", PEFT "model.embed_tokens.weight", -EOPNOTSUPP, "the embedding is replaced" },
	{ "llama", PEFT "lm_head.base_layer.weight", -EOPNOTSUPP, "pairs of embeddings and of the" },
	{ "llama", PEFT "lm_head.weight", -EOPNOTSUPP, "the output matrix is replaced" },
	{ "llama", PEFT "lm_head.modules_to_save.weight", -EOPNOTSUPP, "whole modules are replaced" },
	{ "llama", PEFT Q(0) ".lora_magnitude_vector", -EOPNOTSUPP, "DoRA is not supported" },
	{ "llama", PEFT Q(0) ".lora_B.bias", -EOPNOTSUPP, "biases of pairs are not supported" },
	{ "llama", PEFT Q(0) ".weight", -EOPNOTSUPP, "is no tensor of a pair" },
	{ "llama", PEFT Q(0) ".lora_A", -EOPNOTSUPP, "is no tensor of a pair" },
	{ "llama", PEFT Q(0) ".lora_A.weights", -EOPNOTSUPP, "is no tensor of a pair" },
	{ "llama", PEFT Q(0) ".lora_A..weight", -EOPNOTSUPP, "is no tensor of a pair" },
	{ "llama", PEFT Q(0) ".lora_A.a.b.weight", -EOPNOTSUPP, "is no tensor of a pair" },
	{ "llama", PEFT Q(0) ".lora_A.lora_B.weight", -EOPNOTSUPP, "is no tensor of a pair" },
	{ "llama", PEFT ".lora_A.weight", -EINVAL, "has no such part" },
	{ "llama", Q(0) ".lora_A.weight", -EOPNOTSUPP, "is no tensor of a pair" },
	{ "llama", "a", -EOPNOTSUPP, "is no tensor of a pair (\"base_model.model.MODULE.lora_A.weight\"" },
	{ "qwen3-moe-all", PEFT "model.layers.1.mlp.experts.0.up_proj.lora_A.weight", -EOPNOTSUPP,
	  "this part of the model takes no adapter" },
	{ "qwen3-moe-all", PEFT "model.layers.1.mlp.gate.lora_A.weight", -EOPNOTSUPP, "takes no adapter" },
	{ "gpt-oss", PEFT "model.layers.0.mlp.experts.lora_A.weight", -EOPNOTSUPP, "takes no adapter" },
	{ "gpt-oss", PEFT "model.layers.0.mlp.router.lora_A.weight", -EOPNOTSUPP, "takes no adapter" },
	{ "qwen2-moe", PEFT "model.layers.1.mlp.shared_expert.up_proj.lora_A.weight", -EOPNOTSUPP,
	  "this part of the model takes no adapter" },
	{ "deepseek2", PEFT "model.layers.0.self_attn.o_proj.lora_A.weight", -EOPNOTSUPP,
	  "models with latent attention take no adapters" },
	{ "deepseek2", PEFT "model.layers.0.self_attn.kv_b_proj.lora_A.weight", -EOPNOTSUPP,
	  "models with latent attention take no adapters" },
	{ "bamba", PEFT "model.layers.0.mamba.out_proj.lora_A.weight", -EOPNOTSUPP,
	  "recurrent layers take no adapters" },
	{ "bamba", PEFT "model.layers.0.mamba.in_proj.lora_A.weight", -EOPNOTSUPP,
	  "recurrent layers take no adapters" },
};

START_TEST(test_refuses_names)
{
	open_model(names[_i].of, MODEL_F32);
	nr_loras = 0;
	lora_add(names[_i].name, TINY_F32, 4, 64);
	lora_write();
	lora_config(4, NULL, NULL);
	assert_refused(load(), names[_i].ret, names[_i].words);
	ck_assert_ptr_nonnull(strstr(failure.text, "/adapter_model.safetensors: tensor "));
}
END_TEST

/* A change of the first pair: tensor, and one of its members. */
static const struct {
	u32		which;
	u32		rows;
	u32		cols;
	const char	*words;
} shapes[] = {
	{ 0, 4, 63, "lora_A.weight: shape is [4, 63], the model asks for [4, 64]: this adapter is for "
	  "another model" },
	{ 0, 64, 4, "lora_A.weight: the rank is 64, adapter_config.json says 4: copy both files" },
	{ 0, 4, 0, "lora_A.weight: shape is [4], the model asks for [4, 64]" },
	{ 0, 0, 0, "lora_A.weight: shape is [], the model" },
	{ 1, 63, 4, "lora_B.weight: shape is [63, 4], the model asks for [64, 4]" },
	{ 1, 64, 3, "lora_B.weight: the rank is 3, adapter_config.json says 4" },
};

START_TEST(test_refuses_shapes)
{
	open_model("llama", MODEL_F32);
	write_q(4, 4);
	lora_config(4, NULL, NULL);
	loras[shapes[_i].which].rows = shapes[_i].rows;
	loras[shapes[_i].which].cols = shapes[_i].cols;
	lora_write();
	assert_refused(load(), -EINVAL, shapes[_i].words);
}
END_TEST

START_TEST(test_refuses_ranks)
{
	open_model("llama", MODEL_F32);
	write_q(4, 9);
	lora_config(4, "rank_pattern", "{\"1.self_attn.q_proj\": 9}");
	assert_refused(load_most(8), -EINVAL, "model.layers.1.self_attn.q_proj.lora_A.weight: rank 9 "
		       "is above 8: raise --max-lora-rank");
	ck_assert_int_eq(load_most(9), 0);
}
END_TEST

/* A number of a tensor, and if each type of model takes it. */
static const struct {
	enum tiny_type	type;
	float		value;
	bool		f32;
	bool		bf16;
} odd[] = {
	{ TINY_F32, NAN, false, false },
	{ TINY_F32, INFINITY, false, false },
	{ TINY_F32, -INFINITY, false, false },
	{ TINY_BF16, NAN, false, false },
	{ TINY_F16, NAN, false, false },
	{ TINY_F16, INFINITY, false, false },
	{ TINY_F32, 0x1.fep127f, true, true },
	{ TINY_F32, 0x1.fefffep127f, true, true },
	{ TINY_F32, 0x1.ffp127f, true, false },
	{ TINY_F32, -0x1.fffffep127f, true, false },
	{ TINY_F32, 0x1p-149f, true, true },
};

START_TEST(test_finite)
{
	const bool bf16 = _i % 2, takes = bf16 ? odd[_i / 2].bf16 : odd[_i / 2].f32;
	int ret;

	open_model("llama", bf16 ? MODEL_BF16 : MODEL_F32);
	write_q(100, 100);
	lora_config(100, NULL, NULL);
	loras[3].type = odd[_i / 2].type;
	loras[3].odd = 5001;
	loras[3].value = odd[_i / 2].value;
	lora_write();
	ret = load_most(128);
	if (takes)
		ck_assert_msg(!ret, "%s", failure.text);
	else
		assert_refused(ret, -EINVAL, bf16 ?
			       "1.self_attn.q_proj.lora_B.weight: element 5001 is not finite in bf16" :
			       "1.self_attn.q_proj.lora_B.weight: element 5001 is not finite: use");
}
END_TEST

/* The type of the tensor in the header is replaced by one of the same length and size. */
START_TEST(test_refuses_types)
{
	char *at, head[4096];
	FILE *f;

	open_model("llama", MODEL_F32);
	write_q(4, 4);
	lora_config(4, NULL, NULL);
	f = dir_open("adapter_model.safetensors", "r+");
	head[fread(head, 1, sizeof(head) - 1, f)] = '\0';
	at = strstr(head + 8, "F32");
	ck_assert_int_eq(fseek(f, at - head, SEEK_SET), 0);
	ck_assert_uint_eq(fwrite("I32", 1, 3, f), 3);
	fclose(f);
	assert_refused(load(), -EOPNOTSUPP, "lora_A.weight: dtype I32 is not supported: save the "
		       "adapter in F32, F16 or BF16");
}
END_TEST

START_TEST(test_refuses_twice)
{
	open_model("llama", MODEL_F32);
	write_q(4, 4);
	lora_config(4, NULL, NULL);
	lora_add(PEFT Q(1) ".lora_A.other.weight", TINY_F32, 4, 64);
	lora_write();
	assert_refused(load(), -EINVAL, "there is another one for the same matrix");
	snprintf(loras[4].name, sizeof(loras[4].name), PEFT Q(1) ".lora_B.default.weight");
	snprintf(loras[3].name, sizeof(loras[3].name), PEFT Q(0) ".lora_B.other.weight");
	lora_write();
	assert_refused(load(), -EINVAL, "0.self_attn.q_proj.lora_B.weight: there is another one");
	nr_loras = 0;
	lora_write();
	assert_refused(load(), -EINVAL, "has no pair of tensors");
}
END_TEST

START_TEST(test_refuses_folders)
{
	char path[200];

	open_model("llama", MODEL_F32);
	write_q(4, 4);
	assert_refused(load(), -ENOENT, "adapter_config.json is missing: name a folder that PEFT "
		       "saved");
	lora_config(4, NULL, NULL);
	snprintf(path, sizeof(path), "%s/adapter_model.safetensors", fixture_dir);
	ck_assert_int_eq(unlink(path), 0);
	assert_refused(load(), -ENOENT, "adapter_model.safetensors is missing");
	dir_write("adapter_model.bin", "PK");
	assert_refused(load(), -EOPNOTSUPP, "/adapter_model.bin: is a program and no list of numbers: "
		       "load the adapter with PEFT and save it with save_pretrained()");
	write_q(4, 4);
	ck_assert_msg(!load(), "%s", failure.text);
	adapter_free(adapter);
	adapter = NULL;
	dir_write("adapter_config.json", "[]");
	assert_refused(load(), -EINVAL, "/adapter_config.json: holds no JSON object");
}
END_TEST

static void setup(void)
{
	dir_create();
	model = NULL;
	adapter = NULL;
	nr_loras = 0;
}

static void teardown(void)
{
	adapter_free(adapter);
	model_free(model);
	dir_destroy();
}

static Suite *refuse_suite(void)
{
	Suite *s = suite_create("model_adapter_refuse");
	TCase *tc = tcase_create("refusals");

	tcase_set_tags(tc, "unit model");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, test_refuses_config, 0, ARRAY_SIZE(bad));
	tcase_add_loop_test(tc, test_refuses_names, 0, ARRAY_SIZE(names));
	tcase_add_loop_test(tc, test_refuses_shapes, 0, ARRAY_SIZE(shapes));
	tcase_add_test(tc, test_refuses_ranks);
	tcase_add_loop_test(tc, test_finite, 0, ARRAY_SIZE(odd) * 2);
	tcase_add_test(tc, test_refuses_types);
	tcase_add_test(tc, test_refuses_twice);
	tcase_add_test(tc, test_refuses_folders);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(refuse_suite());
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
