// SPDX-License-Identifier: Apache-2.0
/*
 * check_model_experts.c - configurations of layers with experts
 *
 * Keys that are read, and their meaning; keys that make no sense, each refused in one
 * line; the words of a description.  What such a layer computes is in
 * check_model_golden.c, and its ops are in check_kernels_moe.c.
 */
#include "tests/unit/config_change.h"

static int read_change(const struct change *c)
{
	write_change(c);
	memset(&err, 0, sizeof(err));
	return model_config_read(fixture_dir, &cfg, &err);
}

static const struct change bad[] = {
	{ "qwen3-moe", "num_experts", NULL, -EINVAL,
	  "num_experts: is missing" },
	{ "qwen3-moe", "num_experts", "0", -EINVAL, "num_experts: 0 is" },
	{ "qwen3-moe", "num_experts", "1025", -EINVAL, "num_experts: 1025 is" },
	{ "qwen3-moe", "num_experts", "3", -EINVAL,
	  "num_experts_per_tok: 4 is above num_experts, 3: correct it" },
	{ "qwen3-moe", "num_experts_per_tok", NULL, -EINVAL,
	  "num_experts_per_tok: is missing" },
	{ "qwen3-moe", "num_experts_per_tok", "33", -EINVAL,
	  "num_experts_per_tok: 33 is" },
	{ "qwen3-moe", "moe_intermediate_size", NULL, -EINVAL,
	  "moe_intermediate_size: is missing" },
	{ "qwen3-moe", "moe_intermediate_size", "262145", -EINVAL,
	  "moe_intermediate_size: 262145 is" },
	{ "qwen3-moe", "norm_topk_prob", "1", -EINVAL,
	  "norm_topk_prob: is neither" },
	{ "qwen3-moe", "decoder_sparse_step", "0", -EINVAL,
	  "decoder_sparse_step: 0 is" },
	{ "qwen3-moe", "mlp_only_layers", "7", -EINVAL,
	  "mlp_only_layers: is no list" },
	{ "qwen3-moe", "mlp_only_layers", "[3]", -EINVAL,
	  "mlp_only_layers: holds something that is no number of a layer" },
	{ "qwen3-moe", "mlp_only_layers", "[-1]", -EINVAL,
	  "mlp_only_layers: holds" },
	{ "qwen3-moe", "mlp_only_layers", "[\"1\"]", -EINVAL,
	  "mlp_only_layers: holds" },
	{ "qwen3-moe", "use_sliding_window", "true", -EOPNOTSUPP,
	  "use_sliding_window: asks" },
	{ "qwen3-moe", "layer_types", "[\"sliding_attention\"]", -EOPNOTSUPP,
	  "layer_types: \"sliding_attention\" is not" },
	{ "qwen3-moe", "n_shared_experts", "1", -EOPNOTSUPP,
	  "n_shared_experts: is not known for Qwen3MoeForCausalLM" },
	{ "qwen3", "num_experts", "8", -EOPNOTSUPP, "num_experts: asks" },
	{ "qwen2-moe", "shared_expert_intermediate_size", NULL, -EINVAL,
	  "shared_expert_intermediate_size: is missing" },
	{ "qwen2-moe", "shared_expert_intermediate_size", "262145", -EINVAL,
	  "shared_expert_intermediate_size: 262145 is" },
	{ "mixtral", "num_local_experts", NULL, -EINVAL,
	  "num_local_experts: is missing" },
	{ "mixtral", "num_experts_per_tok", "9", -EINVAL,
	  "num_experts_per_tok: 9 is above num_local_experts, 8: correct it" },
	{ "olmoe", "clip_qkv", "8.0", -EOPNOTSUPP,
	  "clip_qkv: is not known for OlmoeForCausalLM" },
	{ "gpt-oss", "num_local_experts", NULL, -EINVAL,
	  "num_local_experts: is missing" },
	{ "gpt-oss", "num_local_experts", "3", -EINVAL,
	  "num_experts_per_tok: 4 is above num_local_experts, 3: correct it" },
	{ "gpt-oss", "num_experts_per_tok", NULL, -EINVAL,
	  "num_experts_per_tok: is missing" },
	{ "gpt-oss", "experts_per_token", "2", -EINVAL,
	  "experts_per_token: 2 is not num_experts_per_tok, 4: delete" },
	{ "gpt-oss", "intermediate_size", "262145", -EINVAL,
	  "intermediate_size: 262145 is above 262144, the widest expert" },
	{ "gpt-oss", "intermediate_size", NULL, -EINVAL,
	  "intermediate_size: is missing" },
	{ "gpt-oss", "swiglu_limit", "0", -EINVAL, "swiglu_limit: 0 is" },
	{ "gpt-oss", "swiglu_alpha", "\"x\"", -EINVAL,
	  "swiglu_alpha: is no number" },
	{ "gpt-oss", "rope_scaling", NULL, -EINVAL,
	  "rope_scaling: is missing: copy the file again" },
	{ "gpt-oss", "rope_scaling", "null", -EINVAL,
	  "rope_scaling: is missing" },
	{ "gpt-oss", "sliding_window", "null", -EINVAL,
	  "sliding_window: is null, but some layers see a window" },
	{ "gpt-oss", "layer_types", "[\"sliding_attention\"]", -EINVAL,
	  "layer_types: has 1 names for 4 layers: correct it" },
	{ "gpt-oss", "layer_types", "[\"sliding_attention\",\"full_attention\","
	  "\"chunked_attention\",\"full_attention\"]", -EOPNOTSUPP,
	  "layer_types: \"chunked_attention\" is not supported" },
	{ "gpt-oss", "sliding_window_pattern", "2", -EOPNOTSUPP,
	  "sliding_window_pattern: is not known" },
	{ "gpt-oss", "norm_topk_prob", "true", -EOPNOTSUPP,
	  "norm_topk_prob: is not known" },
};

START_TEST(test_refuses)
{
	ck_assert_int_eq(read_change(&bad[_i]), bad[_i].ret);
	ck_assert_msg(strstr(err.text, bad[_i].words) != NULL, "%s", err.text);
	ck_assert_ptr_nonnull(strstr(err.text, "/config.json: "));
	ck_assert_ptr_null(strchr(err.text, '\n'));
}
END_TEST

static bool sparse(u32 layer)
{
	return config_is_sparse(&cfg, layer);
}

START_TEST(test_qwen3)
{
	struct change c = { "qwen3-moe", NULL, NULL, 0, NULL };

	ck_assert_int_eq(read_change(&c), 0);
	ck_assert_uint_eq(cfg.moe.experts, 8);
	ck_assert_uint_eq(cfg.moe.chosen, 4);
	ck_assert_uint_eq(cfg.moe.inter, 24);
	ck_assert_uint_eq(cfg.inter, 96);
	ck_assert(cfg.moe.over_chosen && !cfg.moe.alpha);
	ck_assert(cfg.moe.scale == 1.0f);
	ck_assert(sparse(0) && !sparse(1) && sparse(2));
	c.of = "qwen3-moe-all";			/* layers by a step */
	ck_assert_int_eq(read_change(&c), 0);
	ck_assert(!cfg.moe.over_chosen);
	ck_assert(!sparse(0) && sparse(1) && !sparse(2) && sparse(3));
	c.of = "qwen3-moe";
	c.key = "norm_topk_prob";		/* the default is false */
	ck_assert_int_eq(read_change(&c), 0);
	ck_assert(!cfg.moe.over_chosen);
	c.key = "mlp_only_layers";
	ck_assert_int_eq(read_change(&c), 0);
	ck_assert(sparse(0) && sparse(1) && sparse(2));
	c.key = "decoder_sparse_step";
	c.value = "3";
	ck_assert_int_eq(read_change(&c), 0);
	ck_assert(!sparse(0) && !sparse(1) && sparse(2));
	c.key = "sliding_window";		/* not used */
	c.value = "64";
	ck_assert_int_eq(read_change(&c), 0);
	ck_assert_uint_eq(cfg.window, 0);
}
END_TEST

START_TEST(test_gpt_oss)
{
	struct change c = { "gpt-oss", NULL, NULL, 0, NULL };

	ck_assert_int_eq(read_change(&c), 0);
	ck_assert_uint_eq(cfg.moe.experts, 8);
	ck_assert_uint_eq(cfg.moe.inter, 24);
	ck_assert(cfg.moe.over_chosen && cfg.moe.router_bias &&
		  cfg.moe.expert_bias);
	ck_assert(cfg.moe.alpha == 1.702f && cfg.moe.limit == 1.0f);
	ck_assert(sparse(0) && sparse(1) && sparse(2) && sparse(3));
	ck_assert(cfg.sinks && cfg.qkv_bias && cfg.o_bias);
	ck_assert_uint_eq(cfg.window, 16);
	ck_assert_uint_eq(cfg.local[0], 5);
	ck_assert_int_eq(cfg.rope.type, ROPE_YARN);
	ck_assert(!cfg.rope.truncate && cfg.rope.theta == 150000);
	ck_assert_uint_eq(cfg.max_position, 256);
	c.key = "swiglu_limit";			/* defaults */
	ck_assert_int_eq(read_change(&c), 0);
	ck_assert(cfg.moe.limit == 7.0f);
	c.key = "layer_types";
	ck_assert_int_eq(read_change(&c), 0);
	ck_assert_uint_eq(cfg.local[0], 5);
	c.key = "rope_theta";
	ck_assert_int_eq(read_change(&c), 0);
	ck_assert(cfg.rope.theta == 150000);
	c.key = "experts_per_token";
	ck_assert_int_eq(read_change(&c), 0);
	ck_assert_uint_eq(cfg.moe.chosen, 4);
	c.key = "attention_bias";
	c.value = "false";
	ck_assert_int_eq(read_change(&c), 0);
	ck_assert(!cfg.qkv_bias && !cfg.o_bias);
}
END_TEST

/* A tensor of an expert is missing, or has another shape. */
START_TEST(test_tensors)
{
	const struct model_opts opts = { .judge = true };
	struct change c = { "qwen3-moe", NULL, NULL, 0, NULL };
	struct model *model;
	struct ckpt *made;

	ck_assert_int_eq(read_change(&c), 0);
	ck_assert_int_eq(dummy_open(fixture_dir, &cfg, NULL, false, &made,
				    &err), 0);
	shards_write(made, 1, TINY_F32);
	ckpt_close(made);
	ck_assert_int_eq(model_load(fixture_dir, &opts, &model, &err), 0);
	model_free(model);
	c.key = "num_experts";
	c.value = "9";
	write_change(&c);
	ck_assert_int_eq(model_load(fixture_dir, &opts, &model, &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "mlp.gate.weight: shape is [8, "
					       "64], config.json asks for [9, 64]"));
	c.key = "moe_intermediate_size";
	c.value = "25";
	write_change(&c);
	ck_assert_int_eq(model_load(fixture_dir, &opts, &model, &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "mlp.experts.0.gate_proj.weight: "
					       "shape is [24, 64]"));
	c.key = "mlp_only_layers";
	c.value = "[]";
	write_change(&c);
	ck_assert_int_eq(model_load(fixture_dir, &opts, &model, &err), -EINVAL);
	ck_assert_ptr_nonnull(strstr(err.text, "layers.1.mlp.gate.weight is "
					       "missing"));
}
END_TEST

static char said[4096];

static void hear(void *arg, const char *what, const char *text)
{
	const size_t len = strlen(said);

	snprintf(said + len, sizeof(said) - len, "%s: %s\n", what, text);
}

static const struct {
	const char	*of;
	const char	*lines[5];
} descriptions[] = {
	{ "qwen3-moe", { "experts: 4 of 8 in 2 of 3 layers, 24 wide, silu, gated\n",
			 "router: softmax over the chosen experts, factor 1\n",
			 "mlp: 96 wide, silu, gated, in the other layers\n",
			 /* 200,320 without half of 73,728 in experts. */
			 "active: 0.1635 M of 0.2003 M parameters for a token\n",
			 /* All but 16,384 of the embeddings, in f32. */
			 "step of 8: reads 0.7006 MiB of weights, 8.0 of 8 experts" } },
	{ "gpt-oss", { "experts: 4 of 8 in 4 of 4 layers, 24 wide, clamped "
		       "silu, gated, biases\n",
		       "router: softmax over the chosen experts, bias, factor 1\n",
		       "attention: 4 heads of 32, 2 of K and V, biases, also "
		       "behind, sinks\n" } },
};

START_TEST(test_describes)
{
	const struct model_opts opts = { .dummy = true, .judge = true };
	struct change c = { descriptions[_i].of, NULL, NULL, 0, NULL };
	struct model *model;
	u32 i;

	write_change(&c);
	ck_assert_int_eq(model_load(fixture_dir, &opts, &model, &err), 0);
	model_describe(model, hear, NULL);
	for (i = 0; i < 5 && descriptions[_i].lines[i]; i++)
		ck_assert_msg(strstr(said, descriptions[_i].lines[i]) != NULL,
			      "%s", said);
	model_free(model);
}
END_TEST

static void setup(void)
{
	dir_create();
}

static void teardown(void)
{
	dir_destroy();
}

int main(void)
{
	Suite *s = suite_create("model-experts");
	TCase *tc = tcase_create("config");
	SRunner *sr;
	int failed;

	tcase_set_tags(tc, "unit model");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, test_refuses, 0, ARRAY_SIZE(bad));
	tcase_add_test(tc, test_qwen3);
	tcase_add_test(tc, test_gpt_oss);
	tcase_add_test(tc, test_tensors);
	tcase_add_loop_test(tc, test_describes, 0, ARRAY_SIZE(descriptions));
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
