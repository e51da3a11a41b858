// SPDX-License-Identifier: Apache-2.0
/*
 * config_more.c - keys that one family has, or several similar ones
 *
 * Rows of the table of families name these readers.  A reader turns keys into switches of
 * the decoder.  It refuses values for which the decoder has no switch.  It notes keys that
 * only repeat what the name of the family says.
 */
#include <math.h>

#include "runtime/model/config_read.h"

void config_read_factors(struct mj_file *f, struct model_config *cfg)
{
	double embed = 1, attn = 1, residual = 1, logits = 1;

	mj_real(f, f->root, "embedding_multiplier", 1e-6, 1e6, &embed);
	mj_real(f, f->root, "attention_multiplier", 1e-6, 1e6, &attn);
	mj_real(f, f->root, "residual_multiplier", 1e-6, 1e6, &residual);
	mj_real(f, f->root, "logits_scaling", 1e-6, 1e6, &logits);
	cfg->embed_scale = (float)embed;
	cfg->attn_scale = (float)attn;
	cfg->residual_scale = (float)residual;
	cfg->logits_scale = (float)(1 / logits);
	cfg->embed_exact = true;
}

/*
 * The first files name "gelu" and mean the other form, as a second key in later ones says.
 */
void config_read_gemma1(struct mj_file *f, struct model_config *cfg)
{
	const char *again = mj_str(f, f->root, "hidden_activation");

	cfg->embed_scale = sqrtf(cfg->hidden);
	if (cfg->act == KERN_GELU)
		cfg->act = KERN_GELU_TANH;
	if (!f->ret && again && strcmp(again, "gelu_pytorch_tanh"))
		mj_fail(f, -EOPNOTSUPP, "hidden_activation", "\"%.40s\" is not "
			"supported: use a model with \"gelu_pytorch_tanh\"",
			again);
}

static void layer_set(u64 *layers, u32 layer)
{
	layers[layer / 64] |= 1ull << (layer % 64);
}

/* A list of 1 and 0, one for each layer at least: is the layer rotated? */
static void smollm3_read_list(struct mj_file *f, json_t *list,
			      struct model_config *cfg)
{
	double d;
	u32 i;

	if (!json_is_array(list) || json_array_size(list) < cfg->layers) {
		mj_fail(f, -EINVAL, "no_rope_layers", "is no list of a number "
			"for each of %u layers: correct it", cfg->layers);
		return;
	}
	for (i = 0; i < cfg->layers; i++) {
		d = json_number_value(json_array_get(list, i));
		if (!json_is_number(json_array_get(list, i)) ||
		    (d != 0 && d != 1)) {
			mj_fail(f, -EINVAL, "no_rope_layers", "holds something "
				"that is neither 0 nor 1: correct it");
			return;
		}
		if (!d)
			layer_set(cfg->unturned, i);
	}
}

void config_read_smollm3(struct mj_file *f, struct model_config *cfg)
{
	json_t *list = mj_top(f, "no_rope_layers");
	u32 every = 4, i;

	mj_u32(f, f->root, "no_rope_layer_interval", 1, MODEL_MAX_LAYERS,
	       &every);
	if (list) {
		smollm3_read_list(f, list, cfg);
		return;
	}
	for (i = 0; i < cfg->layers; i++)
		if (!((i + 1) % every))
			layer_set(cfg->unturned, i);
}

/* A key that may be missing, and must have the value that the family always has. */
static void more_expect(struct mj_file *f, const char *key, const char *want)
{
	const char *s = mj_str(f, f->root, key);

	if (s && strcmp(s, want))
		mj_fail(f, -EOPNOTSUPP, key, "\"%.40s\" is not supported: use "
			"a model with \"%s\"", s, want);
}

static void more_expect_bool(struct mj_file *f, const char *key, bool want)
{
	bool v = want;

	mj_bool(f, f->root, key, &v);
	if (v != want)
		mj_fail(f, -EOPNOTSUPP, key, "is not supported: use a model "
			"with %s", want ? "true" : "false");
}

/* The first files of Cohere2 say in further keys which layers are local. */
static void cohere_read_order(struct mj_file *f)
{
	u32 every, pattern = 4;

	more_expect(f, "order_of_interleaved_layers", "local_attn_first");
	mj_u32(f, f->root, "sliding_window_pattern", 1, MODEL_MAX_LAYERS,
	       &pattern);
	every = pattern;
	mj_u32(f, f->root, "layer_switch", 1, MODEL_MAX_LAYERS, &every);
	if (!f->ret && every != pattern && !mj_has(f, "layer_types"))
		mj_fail(f, -EINVAL, "layer_switch", "%u is not "
			"sliding_window_pattern, %u: correct it", every,
			pattern);
}

void config_read_cohere(struct mj_file *f, struct model_config *cfg)
{
	double scale = 0.0625, part = 1;
	bool qk = false;

	mj_real(f, f->root, "logit_scale", 1e-6, 1e6, &scale);
	cfg->logits_scale = (float)scale;
	mj_bool(f, f->root, "use_qk_norm", &qk);
	if (qk)
		cfg->qk_norm = QK_NORM_EACH;
	more_expect(f, "position_embedding_type", "rope_gptj");
	more_expect_bool(f, "use_embedding_sharing", true);
	more_expect_bool(f, "use_gated_activation", true);
	more_expect_bool(f, "use_parallel_block", true);
	mj_note(f, "use_parallel_embedding");
	mj_real(f, f->root, "rotary_pct", 0, 1, &part);
	if (part != 1)
		mj_fail(f, -EOPNOTSUPP, "rotary_pct", "%g is not supported: use "
			"a model with 1", part);
	if (mj_has(f, "layer_switch") ||
	    mj_has(f, "order_of_interleaved_layers"))
		cohere_read_order(f);
}

void config_read_phi(struct mj_file *f, struct model_config *cfg)
{
	bool qk = false;

	mj_bool(f, f->root, "qk_layernorm", &qk);
	if (qk)
		cfg->qk_norm = QK_NORM_SHARED;
}

void config_read_starcoder2(struct mj_file *f, struct model_config *cfg)
{
	bool biases = true;

	mj_bool(f, f->root, "use_bias", &biases);
	cfg->qkv_bias = cfg->o_bias = cfg->mlp_bias = biases;
	more_expect(f, "mlp_type", "default");
	more_expect(f, "norm_type", "layer_norm");
	/* Names of older programs for hidden_act and norm_epsilon, and how they compute. */
	mj_note(f, "activation_function");
	mj_note(f, "layer_norm_epsilon");
	mj_note(f, "attention_softmax_in_fp32");
	mj_note(f, "scale_attention_softmax_in_fp32");
	mj_note(f, "embedding_dropout");
	mj_note(f, "residual_dropout");
}

void config_read_stablelm(struct mj_file *f, struct model_config *cfg)
{
	bool qk = false;

	mj_bool(f, f->root, "use_qkv_bias", &cfg->qkv_bias);
	mj_bool(f, f->root, "qk_layernorm", &qk);
	if (qk)
		cfg->qk_norm = QK_NORM_EACH;
	cfg->shared_norm = cfg->parallel;
}

void config_read_opt(struct mj_file *f, struct model_config *cfg)
{
	bool before = true, biases = true, weights = true, none = false;

	mj_u32(f, f->root, "word_embed_proj_dim", 1, 1u << 20,
	       &cfg->embed_dim);
	mj_bool(f, f->root, "do_layer_norm_before", &before);
	mj_bool(f, f->root, "_remove_final_layer_norm", &none);
	mj_bool(f, f->root, "enable_bias", &biases);
	mj_bool(f, f->root, "layer_norm_elementwise_affine", &weights);
	cfg->no_pre_norms = cfg->norm_sums = !before;
	cfg->no_final_norm = !before || none;
	cfg->qkv_bias = cfg->o_bias = cfg->mlp_bias = biases;
	cfg->plain_norms = !weights;
	cfg->norm_bias = weights;
}

void config_read_gpt2(struct mj_file *f, struct model_config *cfg)
{
	bool scaled = true;

	mj_bool(f, f->root, "scale_attn_weights", &scaled);
	if (!scaled)
		cfg->attn_scale = 1.0f;
	mj_bool(f, f->root, "scale_attn_by_inverse_layer_idx",
		&cfg->attn_by_layer);
}
