// SPDX-License-Identifier: Apache-2.0
/*
 * check_model_more.c - keys that one family has, or several similar ones
 *
 * Keys that are read and their meaning; keys that contradict each other or that the
 * decoder has no switch for; names of models that write no text.  Each refusal is one
 * line.  What the switches compute is in check_model_golden.c.
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

static const struct change bad[] = {
	{ "smollm3", "no_rope_layers", "[1,0,1]", -EINVAL,
	  "no_rope_layers: is no list of a number for each of 4 layers" },
	{ "smollm3", "no_rope_layers", "[1,0,1,2]", -EINVAL,
	  "no_rope_layers: holds something that is neither 0 nor 1" },
	{ "smollm3", "no_rope_layers", "7", -EINVAL, "no_rope_layers: is no" },
	{ "smollm3", "layer_types", "[\"sliding_attention\","
	  "\"full_attention\",\"full_attention\",\"full_attention\"]", -EINVAL,
	  "layer_types: names \"sliding_attention\"" },
	{ "smollm3-window", "no_rope_layer_interval", "0", -EINVAL,
	  "no_rope_layer_interval: 0 is" },
	{ "cohere", "logit_scale", "0", -EINVAL, "logit_scale: 0 is outside" },
	{ "cohere", "partial_rotary_factor", "0.5", -EOPNOTSUPP,
	  "partial_rotary_factor: 0.5 is not supported" },
	{ "cohere", "use_parallel_residual", "false", -EOPNOTSUPP,
	  "use_parallel_residual: is not known for CohereForCausalLM" },
	{ "cohere", "sliding_window", "16", -EOPNOTSUPP,
	  "sliding_window: is not known" },
	{ "cohere2", "layer_switch", "4", -EINVAL,
	  "layer_switch: 4 is not sliding_window_pattern, 3: correct it" },
	{ "cohere2", "order_of_interleaved_layers", "\"global_attn_first\"",
	  -EOPNOTSUPP, "order_of_interleaved_layers: \"global_attn_first\" is "
	  "not supported: use a model with \"local_attn_first\"" },
	{ "cohere2", "position_embedding_type", "\"rope_neox\"", -EOPNOTSUPP,
	  "position_embedding_type: \"rope_neox\" is not" },
	{ "cohere2", "rotary_pct", "0.5", -EOPNOTSUPP, "rotary_pct: 0.5 is" },
	{ "cohere2", "use_parallel_block", "false", -EOPNOTSUPP,
	  "use_parallel_block: is not supported: use a model with true" },
	{ "cohere2", "sliding_window", "null", -EINVAL,
	  "sliding_window: is null" },
	{ "gemma1", "hidden_activation", "\"gelu\"", -EOPNOTSUPP,
	  "hidden_activation: \"gelu\" is not supported" },
	{ "gemma1", "final_logit_softcapping", "30", -EOPNOTSUPP,
	  "final_logit_softcapping: asks" },
	{ "phi", "partial_rotary_factor", "0.1", -EOPNOTSUPP,
	  "partial_rotary_factor: turns 3 of 32" },
	{ "phi", "use_parallel_residual", "false", -EOPNOTSUPP,
	  "use_parallel_residual: is not known for PhiForCausalLM" },
	{ "starcoder2", "mlp_type", "\"gated\"", -EOPNOTSUPP,
	  "mlp_type: \"gated\" is not supported: use a model with "
	  "\"default\"" },
	{ "starcoder2", "norm_type", "\"rms_norm\"", -EOPNOTSUPP,
	  "norm_type: \"rms_norm\" is not" },
	{ "starcoder2", "norm_epsilon", NULL, -EINVAL,
	  "norm_epsilon: is missing" },
	{ "stablelm", "use_qkv_bias", "1", -EINVAL, "use_qkv_bias: is" },
	{ "stablelm", "head_dim", "64", -EOPNOTSUPP, "head_dim: is not known" },
	{ "phi3-long", "rope_scaling", "{\"type\":\"longrope\","
	  "\"short_factor\":[1,1,1,1,1,1],\"long_factor\":[1,1,1]}", -EINVAL,
	  "long_factor: is no list of a number for each of 6 pairs" },
	{ "phi3-long", "rope_scaling", "{\"type\":\"longrope\","
	  "\"short_factor\":[1,1,1,1,1,0],\"long_factor\":[1,1,1,1,1,1]}",
	  -EINVAL, "short_factor: holds something that is no number" },
	{ "phi3-long", "rope_scaling", "{\"type\":\"longrope\","
	  "\"short_factor\":[1,1,1,1,1,1],\"long_factor\":[1,1,1,1,1,1],"
	  "\"short_mscale\":1.1}", -EOPNOTSUPP,
	  "\"short_mscale\" is not supported with type \"longrope\"" },
	{ "phi3-long", "rope_scaling", "{\"type\":\"linear\",\"factor\":2}",
	  -EOPNOTSUPP, "type \"linear\" is not supported: use a model with "
	  "\"default\" or \"longrope\"" },
	{ "opt", "word_embed_proj_dim", "0", -EINVAL,
	  "word_embed_proj_dim: 0 is" },
	{ "granite3", "residual_multiplier", "0", -EINVAL,
	  "residual_multiplier: 0 is" },
	{ "llama", "embedding_multiplier", "2", -EOPNOTSUPP,
	  "embedding_multiplier: asks" },
	{ "olmo2", "use_qk_norm", "true", -EOPNOTSUPP, "use_qk_norm: is not" },
	/* Names of models that write no text, or read more than text. */
	{ "llama", "architectures", "[\"LlamaForSequenceClassification\"]",
	  -EOPNOTSUPP, "architectures: \"LlamaForSequenceClassification\" is a "
	  "classifier or reward model, which gives scores and no text: use a "
	  "model that writes text from text" },
	{ "llama", "architectures", "[\"Qwen2ForRewardModel\"]", -EOPNOTSUPP,
	  "is a reward model" },
	{ "llama", "architectures", "[\"BertModel\"]", -EOPNOTSUPP,
	  "\"BertModel\" is an embedding model, which gives vectors and no "
	  "text" },
	{ "llama", "architectures", "[\"GPT2Model\"]", -EOPNOTSUPP,
	  "is an embedding model" },
	{ "llama", "architectures", "[\"RobertaForMaskedLM\"]", -EOPNOTSUPP,
	  "is an encoder" },
	{ "llama", "architectures", "[\"BertForTokenClassification\"]",
	  -EOPNOTSUPP, "is a classifier of tokens" },
	{ "llama", "architectures", "[\"T5ForConditionalGeneration\"]",
	  -EOPNOTSUPP, "is an encoder-decoder model, or one that reads images "
	  "or sound" },
	{ "llama", "architectures", "[\"LlavaForConditionalGeneration\"]",
	  -EOPNOTSUPP, "images" },
	{ "llama", "architectures", "[\"Idefics3ForVision2Seq\"]", -EOPNOTSUPP,
	  "is a vision model, which reads images beside text" },
	/* Causal models, and names that end alike, keep the list. */
	{ "llama", "architectures", "[\"FalconForCausalLM\"]", -EOPNOTSUPP,
	  "\"FalconForCausalLM\" is not supported: use a model of Llama" },
	{ "llama", "architectures", "[\"OpenAIGPTLMHeadModel\"]", -EOPNOTSUPP,
	  "is not supported: use a model of Llama" },
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

/* Write a configuration of an unknown name with one more key. */
static int read_unknown(const char *arch, const char *more)
{
	FILE *f = dir_open("config.json", "w");

	fprintf(f, "{\"architectures\":[\"%s\"],%s}", arch, more);
	ck_assert_int_eq(fclose(f), 0);
	memset(&err, 0, sizeof(err));
	return model_config_read(fixture_dir, &cfg, &err);
}

/* Other keys tell the kind better than the end of a name. */
START_TEST(test_kinds)
{
	static const struct {
		const char	*more;
		const char	*words;
	} more[] = {
		{ "\"vision_config\":{}", "\"XForConditionalGeneration\" is a "
		  "vision model, which reads images beside text: use a model" },
		{ "\"audio_config\":{}", "is a model that reads sound" },
		{ "\"is_encoder_decoder\":true", "is an encoder-decoder model: "
		  "use" },
	};
	u32 i;

	for (i = 0; i < ARRAY_SIZE(more); i++) {
		ck_assert_int_eq(read_unknown("XForConditionalGeneration",
					      more[i].more), -EOPNOTSUPP);
		ck_assert_msg(strstr(err.text, more[i].words) != NULL, "%s",
			      err.text);
	}
	ck_assert_int_eq(read_unknown("Phi3VForCausalLM",
				      "\"vision_config\":{}"), -EOPNOTSUPP);
	ck_assert_ptr_nonnull(strstr(err.text, "is a vision model"));
	/* All names fit the line. */
	ck_assert_int_eq(read_unknown("XForCausalLM", "\"a\":1"), -EOPNOTSUPP);
	ck_assert_ptr_nonnull(strstr(err.text, ", StableLm (ForCausalLM, where"));
}
END_TEST

/* Some embedding models have the name of a decoder, and a further file. */
START_TEST(test_sentence_transformers)
{
	FILE *f;

	ck_assert_int_eq(read_change("qwen3", NULL, NULL), 0);
	f = dir_open("modules.json", "w");
	fputs("[]", f);
	ck_assert_int_eq(fclose(f), 0);
	ck_assert_int_eq(read_change("qwen3", NULL, NULL), -EOPNOTSUPP);
	ck_assert_ptr_nonnull(strstr(err.text, "modules.json: is part of a "
				     "model of sentence-transformers, which "
				     "gives vectors and no text"));
}
END_TEST

START_TEST(test_norms)
{
	ck_assert_int_eq(read_change("olmo2", NULL, NULL), 0);
	ck_assert(cfg.no_pre_norms && cfg.post_norms && !cfg.norm_sums);
	ck_assert_int_eq(cfg.qk_norm, QK_NORM_WHOLE);
	ck_assert_int_eq(read_change("cohere", NULL, NULL), 0);
	ck_assert(cfg.layer_norm && !cfg.norm_bias && cfg.shared_norm);
	ck_assert(cfg.turn_pairs && cfg.tied);
	ck_assert_int_eq(cfg.qk_norm, QK_NORM_NONE);
	ck_assert_int_eq(read_change("cohere", "use_qk_norm", "true"), 0);
	ck_assert_int_eq(cfg.qk_norm, QK_NORM_EACH);
	ck_assert_int_eq(read_change("cohere", "tie_word_embeddings", NULL),
			 0);
	ck_assert(cfg.tied);
	ck_assert_int_eq(read_change("stablelm", NULL, NULL), 0);
	ck_assert(!cfg.parallel && !cfg.shared_norm);
	ck_assert_int_eq(read_change("stablelm", "use_parallel_residual",
				     "true"), 0);
	ck_assert(cfg.parallel && cfg.shared_norm);
	ck_assert_int_eq(read_change("phi", "qk_layernorm", "true"), 0);
	ck_assert_int_eq(cfg.qk_norm, QK_NORM_SHARED);
	ck_assert(cfg.head_bias && cfg.shared_norm);
}
END_TEST

START_TEST(test_opt)
{
	ck_assert_int_eq(read_change("opt", NULL, NULL), 0);
	ck_assert(!cfg.no_pre_norms && !cfg.norm_sums && !cfg.no_final_norm);
	ck_assert_uint_eq(cfg.embed_dim, cfg.hidden);
	ck_assert_int_eq(read_change("opt", "do_layer_norm_before", "false"),
			 0);
	ck_assert(cfg.no_pre_norms && cfg.norm_sums && cfg.no_final_norm);
	ck_assert_int_eq(read_change("opt", "_remove_final_layer_norm",
				     "true"), 0);
	ck_assert(!cfg.no_pre_norms && cfg.no_final_norm);
	ck_assert_int_eq(read_change("opt", "enable_bias", "false"), 0);
	ck_assert(!cfg.qkv_bias && !cfg.o_bias && !cfg.mlp_bias);
	ck_assert_int_eq(read_change("opt", "word_embed_proj_dim", "32"), 0);
	ck_assert_uint_eq(cfg.embed_dim, 32);
	ck_assert_int_eq(read_change("opt", "word_embed_proj_dim", NULL), 0);
	ck_assert_uint_eq(cfg.embed_dim, cfg.hidden);
}
END_TEST

/* Layers that are not rotated, and layers with a window. */
START_TEST(test_layers)
{
	ck_assert_int_eq(read_change("smollm3", NULL, NULL), 0);
	ck_assert_uint_eq(cfg.unturned[0], 10);
	ck_assert_uint_eq(cfg.window, 0);
	ck_assert_int_eq(read_change("smollm3", "no_rope_layers", "null"), 0);
	ck_assert_uint_eq(cfg.unturned[0], 10);
	ck_assert_int_eq(read_change("smollm3-window", NULL, NULL), 0);
	ck_assert_uint_eq(cfg.unturned[0], 4);
	ck_assert_uint_eq(cfg.local[0], 4);
	ck_assert_uint_eq(cfg.window, 16);
	ck_assert_int_eq(read_change("cohere2", NULL, NULL), 0);
	ck_assert_uint_eq(cfg.local[0], 11);
	ck_assert_uint_eq(cfg.unturned[0], 4);
	ck_assert_int_eq(read_change("cohere2", "layer_types",
				     "[\"full_attention\",\"full_attention\","
				     "\"sliding_attention\","
				     "\"full_attention\"]"), 0);
	ck_assert_uint_eq(cfg.local[0], 4);
	ck_assert_uint_eq(cfg.unturned[0], 11);
	/* A window that limits nothing still decides which layers are rotated. */
	ck_assert_int_eq(read_change("cohere2", "sliding_window", "256"), 0);
	ck_assert_uint_eq(cfg.window, 0);
	ck_assert_uint_eq(cfg.unturned[0], 4);
}
END_TEST

/*
 * The longest permitted sequence chooses the factors; both are divisors.  The gain depends
 * on the lengths of the file alone.
 */
START_TEST(test_longrope)
{
	float freq[6], first[6];
	u32 i;

	ck_assert_int_eq(read_change("phi3-long", NULL, NULL), 0);
	ck_assert_int_eq(cfg.rope.type, ROPE_LONGROPE);
	ck_assert_uint_eq(cfg.rope.original, 64);
	ck_assert_uint_eq(cfg.max_position, 256);
	ck_assert_double_eq_tol(cfg.rope.gain, sqrt(1 + log(4) / log(64)),
				1e-9);
	rope_inv_freq(&cfg.rope, 12, first);
	rope_fit(&cfg.rope, 64);
	rope_inv_freq(&cfg.rope, 12, freq);
	ck_assert(!memcmp(freq, first, sizeof(freq)));
	for (i = 0; i < 6; i++)
		ck_assert_double_eq_tol(freq[i] * (1 + i / 8.0),
					pow(10000, -(double)i / 6), 1e-6);
	rope_fit(&cfg.rope, 65);
	rope_inv_freq(&cfg.rope, 12, freq);
	for (i = 0; i < 6; i++)
		ck_assert_double_eq_tol(freq[i] * (2.0 + i),
					pow(10000, -(double)i / 6), 1e-6);
	ck_assert_int_eq(read_change("phi3-short", NULL, NULL), 0);
	ck_assert_double_eq(cfg.rope.gain, 1.2);
	ck_assert_int_eq(read_change("phi3-long",
				     "original_max_position_embeddings", NULL),
			 0);
	ck_assert_uint_eq(cfg.rope.original, 256);
	ck_assert_double_eq(cfg.rope.gain, 1);
	ck_assert_int_eq(read_change("phi3-long", "rope_scaling", "{\"type\":"
				     "\"su\",\"short_factor\":[1,1,1,1,1,1],"
				     "\"long_factor\":[2,2,2,2,2,2]}"), 0);
	ck_assert_int_eq(cfg.rope.type, ROPE_LONGROPE);
}
END_TEST

/* Where a key is missing, the family's own default counts. */
START_TEST(test_defaults)
{
	ck_assert_int_eq(read_change("cohere", "rope_theta", NULL), 0);
	ck_assert_double_eq(cfg.rope.theta, 500000);
	ck_assert_int_eq(read_change("cohere2", "rope_theta", NULL), 0);
	ck_assert_double_eq(cfg.rope.theta, 10000);
	ck_assert_int_eq(read_change("cohere", "logit_scale", NULL), 0);
	ck_assert_float_eq(cfg.logits_scale, 0.0625f);
	ck_assert_int_eq(read_change("smollm3", "rope_theta", NULL), 0);
	ck_assert_double_eq(cfg.rope.theta, 2000000);
	ck_assert_int_eq(read_change("phi", "partial_rotary_factor", NULL), 0);
	ck_assert_uint_eq(config_rotary(&cfg), 16);
	ck_assert_int_eq(read_change("stablelm", "partial_rotary_factor",
				     NULL), 0);
	ck_assert_uint_eq(config_rotary(&cfg), 8);
	ck_assert_int_eq(read_change("starcoder2", "sliding_window", NULL), 0);
	ck_assert_uint_eq(cfg.window, 0);
	ck_assert_int_eq(read_change("starcoder2", "use_bias", NULL), 0);
	ck_assert(cfg.qkv_bias && cfg.o_bias && cfg.mlp_bias);
	ck_assert_int_eq(read_change("granite3", "attention_multiplier",
				     NULL), 0);
	ck_assert_float_eq(cfg.attn_scale, 1.0f);
	ck_assert_int_eq(read_change("gemma1", NULL, NULL), 0);
	ck_assert_int_eq(cfg.act, KERN_GELU_TANH);
	ck_assert_float_eq(cfg.embed_scale, 8.0f);
	ck_assert_int_eq(read_change("gpt2", "scale_attn_weights", "false"),
			 0);
	ck_assert_float_eq(cfg.attn_scale, 1.0f);
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

static Suite *more_suite(void)
{
	Suite *s = suite_create("model_more");
	TCase *tc = tcase_create("keys");

	tcase_set_tags(tc, "unit model");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, test_refuses, 0, ARRAY_SIZE(bad));
	tcase_add_test(tc, test_kinds);
	tcase_add_test(tc, test_sentence_transformers);
	tcase_add_test(tc, test_norms);
	tcase_add_test(tc, test_opt);
	tcase_add_test(tc, test_layers);
	tcase_add_test(tc, test_longrope);
	tcase_add_test(tc, test_defaults);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(more_suite());
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
