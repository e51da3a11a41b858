// SPDX-License-Identifier: Apache-2.0
/*
 * check_model_latent.c - configurations with latent vectors
 *
 * Keys that are read, and their meaning; keys that contradict each other or that no
 * kernel supports, each refused in one line; tensors of other shapes.  What such a
 * layer computes is in check_model_golden.c, and its ops are in
 * check_kernels_latent.c.
 */
#include <jansson.h>

#include <errno.h>

#include "tests/unit/config_change.h"

static int read_change(const char *of, const char *key, const char *value)
{
	write_change(&(struct change){ of, key, value, 0, NULL });
	memset(&err, 0, sizeof(err));
	return model_config_read(fixture_dir, &cfg, &err);
}

#define D	"deepseek2"
#define DM	"deepseek2-moe"
#define DG	"deepseek2-groups-moe"

static const struct change bad[] = {
	{ D, "kv_lora_rank", NULL, -EINVAL, "kv_lora_rank: is missing" },
	{ D, "kv_lora_rank", "24", -EOPNOTSUPP,
	  "kv_lora_rank: 24 is not supported: use a model with a multiple of "
	  "16, at most 512" },
	{ D, "kv_lora_rank", "528", -EOPNOTSUPP, "kv_lora_rank: 528 is not" },
	{ D, "qk_rope_head_dim", NULL, -EINVAL, "qk_rope_head_dim: is missing" },
	{ D, "qk_rope_head_dim", "80", -EOPNOTSUPP,
	  "qk_rope_head_dim: 80 is not supported: use a model with a multiple "
	  "of 16, at most 64" },
	{ D, "qk_nope_head_dim", NULL, -EINVAL, "qk_nope_head_dim: is missing" },
	{ D, "qk_nope_head_dim", "8", -EOPNOTSUPP, "qk_nope_head_dim: 8 is" },
	{ D, "v_head_dim", NULL, -EINVAL, "v_head_dim: is missing" },
	{ D, "v_head_dim", "33", -EOPNOTSUPP, "v_head_dim: 33 is not" },
	{ D, "q_lora_rank", "0", -EINVAL, "q_lora_rank: 0 is" },
	{ D, "head_dim", "48", -EINVAL,
	  "head_dim: 48 is not qk_rope_head_dim, 16: correct it" },
	{ D, "qk_head_dim", "64", -EINVAL,
	  "qk_head_dim: 64 is not qk_nope_head_dim and qk_rope_head_dim "
	  "together, 48: correct it" },
	{ D, "num_key_value_heads", "2", -EINVAL,
	  "num_key_value_heads: 2 is not num_attention_heads, 4, of which each "
	  "has keys of its own: correct it" },
	{ D, "attention_bias", "true", -EOPNOTSUPP, "attention_bias: asks" },
	{ D, "partial_rotary_factor", "0.5", -EOPNOTSUPP,
	  "partial_rotary_factor: 0.5 is not" },
	{ D, "sliding_window", "16", -EOPNOTSUPP, "sliding_window: is not" },
	{ DM, "n_routed_experts", NULL, -EINVAL, "n_routed_experts: is missing" },
	{ DM, "n_routed_experts", "5", -EINVAL,
	  "num_experts_per_tok: 6 is above n_routed_experts, 5" },
	{ DM, "n_shared_experts", NULL, -EINVAL, "n_shared_experts: is missing" },
	{ DM, "n_shared_experts", "0", -EINVAL, "n_shared_experts: 0 is" },
	{ DM, "first_k_dense_replace", "-1", -EINVAL,
	  "first_k_dense_replace: -1 is" },
	{ DM, "routed_scaling_factor", "0", -EINVAL,
	  "routed_scaling_factor: 0 is" },
	{ DM, "topk_method", "\"noaux_tc\"", -EOPNOTSUPP,
	  "topk_method: is not supported: use a model with \"greedy\" or "
	  "\"group_limited_greedy\"" },
	{ DM, "scoring_func", "\"sigmoid\"", -EOPNOTSUPP,
	  "scoring_func: is not supported: use a model with \"softmax\"" },
	{ DM, "moe_layer_freq", "2", -EOPNOTSUPP,
	  "moe_layer_freq: is not supported: use a model with 1" },
	{ DM, "norm_topk_prob", "true", -EOPNOTSUPP,
	  "norm_topk_prob: is not supported: use a model with false" },
	{ DG, "n_group", NULL, -EINVAL, "n_group: is missing" },
	{ DG, "n_group", "3", -EINVAL, "n_group: 3 does not divide the 8" },
	{ DG, "n_group", "65", -EINVAL, "n_group: 65 is" },
	{ DG, "topk_group", NULL, -EINVAL, "topk_group: is missing" },
	{ DG, "topk_group", "5", -EINVAL, "topk_group: 5 is above n_group, 4" },
	{ DG, "topk_group", "1", -EINVAL,
	  "topk_group: 1 groups have fewer than 3 experts: correct it" },
	{ "llama", "kv_lora_rank", "32", -EOPNOTSUPP,
	  "kv_lora_rank: is not known for LlamaForCausalLM" },
};

START_TEST(test_refuses)
{
	const struct change *c = &bad[_i];

	ck_assert_msg(read_change(c->of, c->key, c->value) == c->ret,
		      "%s: %s", c->key, err.text);
	ck_assert_msg(strstr(err.text, c->words) != NULL, "%s", err.text);
	ck_assert_ptr_nonnull(strstr(err.text, "/config.json: "));
	ck_assert_ptr_null(strchr(err.text, '\n'));
}
END_TEST

START_TEST(test_sizes)
{
	ck_assert_int_eq(read_change(D, NULL, NULL), 0);
	ck_assert_uint_eq(cfg.latent.rank, 32);
	ck_assert_uint_eq(cfg.latent.q_rank, 0);
	ck_assert_uint_eq(cfg.latent.nope, 32);
	ck_assert_uint_eq(cfg.latent.rope, 16);
	ck_assert_uint_eq(cfg.latent.value, 32);
	ck_assert_uint_eq(cfg.head_dim, 48);
	ck_assert_uint_eq(cfg.kv_heads, 1);
	ck_assert_uint_eq(config_kv_dim(&cfg), 48);
	ck_assert_uint_eq(config_rotary(&cfg), 16);
	ck_assert_uint_eq(config_heads_kv(&cfg), 4 * 80);
	ck_assert_uint_eq(cfg.moe.experts, 0);	/* no layer has any */
	/* It is the same for all files and each rms_norm_eps. */
	ck_assert(cfg.latent.eps == 1e-6f && cfg.norm_eps == 1e-5f);
	ck_assert_int_eq(read_change(D, "head_dim", "16"), 0);
	ck_assert_int_eq(read_change(D, "qk_head_dim", "48"), 0);
	ck_assert_int_eq(read_change(D, "num_key_value_heads", NULL), 0);
	ck_assert_uint_eq(cfg.kv_heads, 1);
	ck_assert_int_eq(read_change("deepseek2-yarn", NULL, NULL), 0);
	ck_assert_uint_eq(cfg.latent.q_rank, 48);
}
END_TEST

/* mscale turns into a factor on the rotation, mscale_all_dim on scores. */
START_TEST(test_scale)
{
	const double plain = 1 / sqrt(48);
	const double all = 0.1 * 0.9 * log(4) + 1, one = 0.1 * 0.7 * log(4) + 1;

	ck_assert_int_eq(read_change(D, NULL, NULL), 0);
	ck_assert(fabs(cfg.attn_scale - plain) < 1e-7);
	ck_assert_int_eq(read_change("deepseek2-yarn", NULL, NULL), 0);
	ck_assert(fabs(cfg.attn_scale - plain * all * all) < 1e-7);
	ck_assert(fabs(cfg.rope.gain - one / all) < 1e-7);
	ck_assert_int_eq(read_change(D, "rope_scaling", "{\"type\":\"yarn\","
				     "\"factor\":4}"), 0);
	ck_assert(fabs(cfg.attn_scale - plain) < 1e-7);
	ck_assert(fabs(cfg.rope.gain - (0.1 * log(4) + 1)) < 1e-7);
}
END_TEST

START_TEST(test_experts)
{
	ck_assert_int_eq(read_change(DM, NULL, NULL), 0);
	ck_assert_uint_eq(cfg.moe.experts, 8);
	ck_assert_uint_eq(cfg.moe.chosen, 6);
	ck_assert_uint_eq(cfg.moe.inter, 24);
	ck_assert_uint_eq(cfg.moe.shared_inter, 48);
	ck_assert_uint_eq(cfg.moe.groups, 1);
	ck_assert(!cfg.moe.over_chosen && cfg.moe.scale == 1.0f);
	ck_assert(!config_is_sparse(&cfg, 0) && config_is_sparse(&cfg, 1) &&
		  config_is_sparse(&cfg, 2));
	/* "greedy" knows no groups. */
	ck_assert_int_eq(read_change(DM, "n_group", "4"), 0);
	ck_assert_uint_eq(cfg.moe.groups, 1);
	ck_assert_int_eq(read_change(DM, "first_k_dense_replace", NULL), 0);
	ck_assert(config_is_sparse(&cfg, 0));
	ck_assert_int_eq(read_change(DG, NULL, NULL), 0);
	ck_assert_uint_eq(cfg.moe.groups, 4);
	ck_assert_uint_eq(cfg.moe.groups_chosen, 2);
	ck_assert(cfg.moe.scale == 1.5f);
}
END_TEST

/* A tensor that is there has another shape, or another one is asked for. */
START_TEST(test_tensors)
{
	static const struct change changes[] = {
		{ D, "qk_nope_head_dim", "48", 0,
		  "q_proj.weight: shape is [192, 64], config.json asks for "
		  "[256, 64]" },
		{ D, "v_head_dim", "16", 0,
		  "o_proj.weight: shape is [64, 128], config.json asks for "
		  "[64, 64]" },
		{ D, "kv_lora_rank", "48", 0,
		  "kv_a_proj_with_mqa.weight: shape is [48, 64], config.json "
		  "asks for [64, 64]" },
		{ D, "q_lora_rank", "32", 0, "q_a_proj.weight is missing" },
	};
	const struct model_opts opts = { .judge = true };
	struct model *model;
	struct ckpt *made;
	u32 i;

	ck_assert_int_eq(read_change(D, NULL, NULL), 0);
	ck_assert_int_eq(dummy_open(fixture_dir, &cfg, NULL, false, &made,
				    &err), 0);
	shards_write(made, 1, TINY_F32);
	ckpt_close(made);
	ck_assert_int_eq(model_load(fixture_dir, &opts, &model, &err), 0);
	model_free(model);
	for (i = 0; i < ARRAY_SIZE(changes); i++) {
		write_change(&changes[i]);
		ck_assert_int_eq(model_load(fixture_dir, &opts, &model, &err),
				 -EINVAL);
		ck_assert_msg(strstr(err.text, changes[i].words) != NULL, "%s",
			      err.text);
	}
}
END_TEST

/* The shape of DeepSeek-V2-Lite: the daemon's group, and the bytes of full heads. */
START_TEST(test_lite)
{
	static const struct {
		const char	*key;
		int		value;
	} sizes[] = {
		{ "kv_lora_rank", 512 }, { "qk_nope_head_dim", 128 },
		{ "qk_rope_head_dim", 64 }, { "v_head_dim", 128 },
		{ "hidden_size", 2048 }, { "intermediate_size", 10944 },
		{ "moe_intermediate_size", 1408 }, { "n_routed_experts", 64 },
		{ "num_attention_heads", 16 }, { "num_hidden_layers", 27 },
		{ "num_key_value_heads", 16 }, { "vocab_size", 102400 },
	};
	const struct model_opts opts = {
		.judge = true, .dummy = true, .kv_type = MODEL_KV_BF16,
	};
	const struct model_info *i;
	struct model *model;
	char path[320];
	json_t *o;
	u32 k;

	golden_read(DM);
	snprintf(path, sizeof(path), "%s/config.json", case_dir);
	o = json_load_file(path, 0, NULL);
	ck_assert_ptr_nonnull(o);
	for (k = 0; k < ARRAY_SIZE(sizes); k++)
		json_object_set_new(o, sizes[k].key,
				    json_integer(sizes[k].value));
	snprintf(path, sizeof(path), "%s/config.json", fixture_dir);
	ck_assert_int_eq(json_dump_file(o, path, 0), 0);
	json_decref(o);
	ck_assert_msg(!model_load(fixture_dir, &opts, &model, &err), "%s",
		      err.text);
	i = model_info(model);
	ck_assert_uint_eq(i->nr_params, 15706484224ull);
	ck_assert_uint_eq(model_layer_bytes(i), 1152);
	ck_assert_uint_eq(i->heads_bytes, 16 * (192 + 128) * 2);
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
	Suite *s = suite_create("model-latent");
	TCase *tc = tcase_create("config");
	SRunner *sr;
	int failed;

	tcase_set_tags(tc, "unit model");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, test_refuses, 0, ARRAY_SIZE(bad));
	tcase_add_test(tc, test_sizes);
	tcase_add_test(tc, test_scale);
	tcase_add_test(tc, test_experts);
	tcase_add_test(tc, test_tensors);
	tcase_add_test(tc, test_lite);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
