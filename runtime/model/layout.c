// SPDX-License-Identifier: Apache-2.0
/*
 * layout.c - tensor names by layout
 *
 * Tables say which tensor goes where, with which shape, under which switch.  A
 * family has no table of its own if its files differ from another's only by the
 * configuration's switches.  Binding, checking for leftovers and making weights
 * up all walk these tables, so there is no second list.
 */
#include <stdio.h>

#include "runtime/model/layout.h"

#define LAYER(field)	offsetof(struct model_layer, field)
#define TOP(field)	offsetof(struct model_weights, field)

/* A matrix; a vector; a norm. */
#define M(name, at, rows, cols, need)					\
	{ name, at, DIM_##rows, DIM_##cols, NEED_##need, HOW_WHOLE }
#define V(name, at, rows, need)						\
	{ name, at, DIM_##rows, DIM_NONE, NEED_##need, HOW_WHOLE }
#define N(name, at, rows, need)						\
	{ name, at, DIM_##rows, DIM_NONE, NEED_##need, HOW_NORM }

/* ---- Llama and families with the same layout ---- */

static const struct weight_spec llama_top[] = {
	M("embed_tokens.weight", TOP(embed), VOCAB, HIDDEN, ALWAYS),
	N("norm.weight", TOP(norm), HIDDEN, ALWAYS),
	M(NULL, TOP(head), VOCAB, HIDDEN, UNTIED),
};

static const struct weight_spec llama_layer[] = {
	N("input_layernorm.weight", LAYER(attn_norm), HIDDEN, ALWAYS),
	M("self_attn.q_proj.weight", LAYER(q), Q, HIDDEN, ALWAYS),
	M("self_attn.k_proj.weight", LAYER(k), KV, HIDDEN, ALWAYS),
	M("self_attn.v_proj.weight", LAYER(v), KV, HIDDEN, ALWAYS),
	M("self_attn.o_proj.weight", LAYER(o), HIDDEN, Q, ALWAYS),
	V("self_attn.q_proj.bias", LAYER(q_bias), Q, QKV_BIAS),
	V("self_attn.k_proj.bias", LAYER(k_bias), KV, QKV_BIAS),
	V("self_attn.v_proj.bias", LAYER(v_bias), KV, QKV_BIAS),
	V("self_attn.o_proj.bias", LAYER(o_bias), HIDDEN, O_BIAS),
	N("self_attn.q_norm.weight", LAYER(q_norm), HEAD, QK_NORM),
	N("self_attn.k_norm.weight", LAYER(k_norm), HEAD, QK_NORM),
	N("post_attention_layernorm.weight", LAYER(mlp_norm), HIDDEN,
	  NO_POST_NORMS),
	N("post_attention_layernorm.weight", LAYER(attn_post), HIDDEN,
	  POST_NORMS),
	N("pre_feedforward_layernorm.weight", LAYER(mlp_norm), HIDDEN,
	  POST_NORMS),
	N("post_feedforward_layernorm.weight", LAYER(mlp_post), HIDDEN,
	  POST_NORMS),
	M("mlp.gate_proj.weight", LAYER(gate), INTER, HIDDEN, ALWAYS),
	M("mlp.up_proj.weight", LAYER(up), INTER, HIDDEN, ALWAYS),
	M("mlp.down_proj.weight", LAYER(down), HIDDEN, INTER, ALWAYS),
	V("mlp.gate_proj.bias", LAYER(gate_bias), INTER, MLP_BIAS),
	V("mlp.up_proj.bias", LAYER(up_bias), INTER, MLP_BIAS),
	V("mlp.down_proj.bias", LAYER(down_bias), HIDDEN, MLP_BIAS),
};

/* ---- Phi-3: as Llama, with joined tensors ---- */

static const struct weight_spec phi3_layer[] = {
	N("input_layernorm.weight", LAYER(attn_norm), HIDDEN, ALWAYS),
	{ "self_attn.qkv_proj.weight", 0, DIM_QKV, DIM_HIDDEN, NEED_ALWAYS,
	  HOW_QKV },
	M("self_attn.o_proj.weight", LAYER(o), HIDDEN, Q, ALWAYS),
	N("post_attention_layernorm.weight", LAYER(mlp_norm), HIDDEN, ALWAYS),
	{ "mlp.gate_up_proj.weight", 0, DIM_TWO_INTER, DIM_HIDDEN,
	  NEED_ALWAYS, HOW_GATE_UP },
	M("mlp.down_proj.weight", LAYER(down), HIDDEN, INTER, ALWAYS),
};

/* ---- GPT-2 ---- */

static const struct weight_spec gpt2_top[] = {
	M("wte.weight", TOP(embed), VOCAB, HIDDEN, ALWAYS),
	M("wpe.weight", TOP(pos), POSITIONS, HIDDEN, ALWAYS),
	N("ln_f.weight", TOP(norm), HIDDEN, ALWAYS),
	V("ln_f.bias", TOP(norm_bias), HIDDEN, ALWAYS),
	M(NULL, TOP(head), VOCAB, HIDDEN, UNTIED),
};

static const struct weight_spec gpt2_layer[] = {
	N("ln_1.weight", LAYER(attn_norm), HIDDEN, ALWAYS),
	V("ln_1.bias", LAYER(attn_norm_bias), HIDDEN, ALWAYS),
	{ "attn.c_attn.weight", 0, DIM_QKV, DIM_HIDDEN, NEED_ALWAYS,
	  HOW_QKV },
	{ "attn.c_attn.bias", 0, DIM_QKV, DIM_NONE, NEED_ALWAYS, HOW_QKV },
	M("attn.c_proj.weight", LAYER(o), HIDDEN, Q, ALWAYS),
	V("attn.c_proj.bias", LAYER(o_bias), HIDDEN, ALWAYS),
	N("ln_2.weight", LAYER(mlp_norm), HIDDEN, ALWAYS),
	V("ln_2.bias", LAYER(mlp_norm_bias), HIDDEN, ALWAYS),
	M("mlp.c_fc.weight", LAYER(up), INTER, HIDDEN, ALWAYS),
	V("mlp.c_fc.bias", LAYER(up_bias), INTER, ALWAYS),
	M("mlp.c_proj.weight", LAYER(down), HIDDEN, INTER, ALWAYS),
	V("mlp.c_proj.bias", LAYER(down_bias), HIDDEN, ALWAYS),
};

/* ---- OPT ---- */

static const struct weight_spec opt_top[] = {
	M("embed_tokens.weight", TOP(embed), VOCAB, HIDDEN, ALWAYS),
	M("embed_positions.weight", TOP(pos), POSITIONS, HIDDEN, ALWAYS),
	N("final_layer_norm.weight", TOP(norm), HIDDEN, ALWAYS),
	V("final_layer_norm.bias", TOP(norm_bias), HIDDEN, ALWAYS),
	M(NULL, TOP(head), VOCAB, HIDDEN, UNTIED),
};

static const struct weight_spec opt_layer[] = {
	N("self_attn_layer_norm.weight", LAYER(attn_norm), HIDDEN, ALWAYS),
	V("self_attn_layer_norm.bias", LAYER(attn_norm_bias), HIDDEN, ALWAYS),
	M("self_attn.q_proj.weight", LAYER(q), Q, HIDDEN, ALWAYS),
	V("self_attn.q_proj.bias", LAYER(q_bias), Q, ALWAYS),
	M("self_attn.k_proj.weight", LAYER(k), KV, HIDDEN, ALWAYS),
	V("self_attn.k_proj.bias", LAYER(k_bias), KV, ALWAYS),
	M("self_attn.v_proj.weight", LAYER(v), KV, HIDDEN, ALWAYS),
	V("self_attn.v_proj.bias", LAYER(v_bias), KV, ALWAYS),
	M("self_attn.out_proj.weight", LAYER(o), HIDDEN, Q, ALWAYS),
	V("self_attn.out_proj.bias", LAYER(o_bias), HIDDEN, ALWAYS),
	N("final_layer_norm.weight", LAYER(mlp_norm), HIDDEN, ALWAYS),
	V("final_layer_norm.bias", LAYER(mlp_norm_bias), HIDDEN, ALWAYS),
	M("fc1.weight", LAYER(up), INTER, HIDDEN, ALWAYS),
	V("fc1.bias", LAYER(up_bias), INTER, ALWAYS),
	M("fc2.weight", LAYER(down), HIDDEN, INTER, ALWAYS),
	V("fc2.bias", LAYER(down_bias), HIDDEN, ALWAYS),
};

/* ---- GPT-NeoX ---- */

static const struct weight_spec neox_top[] = {
	M("embed_in.weight", TOP(embed), VOCAB, HIDDEN, ALWAYS),
	N("final_layer_norm.weight", TOP(norm), HIDDEN, ALWAYS),
	V("final_layer_norm.bias", TOP(norm_bias), HIDDEN, ALWAYS),
	M(NULL, TOP(head), VOCAB, HIDDEN, UNTIED),
};

static const struct weight_spec neox_layer[] = {
	N("input_layernorm.weight", LAYER(attn_norm), HIDDEN, ALWAYS),
	V("input_layernorm.bias", LAYER(attn_norm_bias), HIDDEN, ALWAYS),
	M("attention.query_key_value.weight", LAYER(qkv), QKV, HIDDEN,
	  ALWAYS),
	V("attention.query_key_value.bias", LAYER(qkv_bias), QKV, QKV_BIAS),
	M("attention.dense.weight", LAYER(o), HIDDEN, Q, ALWAYS),
	V("attention.dense.bias", LAYER(o_bias), HIDDEN, O_BIAS),
	N("post_attention_layernorm.weight", LAYER(mlp_norm), HIDDEN, ALWAYS),
	V("post_attention_layernorm.bias", LAYER(mlp_norm_bias), HIDDEN,
	  ALWAYS),
	M("mlp.dense_h_to_4h.weight", LAYER(up), INTER, HIDDEN, ALWAYS),
	V("mlp.dense_h_to_4h.bias", LAYER(up_bias), INTER, ALWAYS),
	M("mlp.dense_4h_to_h.weight", LAYER(down), HIDDEN, INTER, ALWAYS),
	V("mlp.dense_4h_to_h.bias", LAYER(down_bias), HIDDEN, ALWAYS),
};

#define TABLES(_top, _layer)						\
	.top = _top, .nr_top = ARRAY_SIZE(_top),			\
	.layer = _layer, .nr_layer = ARRAY_SIZE(_layer)

static const struct weight_names layouts[] = {
	[LAYOUT_LLAMA] = {
		.prefixes = { "model." }, .layers = "layers.",
		.head = "lm_head.weight", TABLES(llama_top, llama_layer),
		.leftovers = { ".rotary_emb.inv_freq", ".k_scale",
			       ".v_scale" },
	},
	[LAYOUT_PHI3] = {
		.prefixes = { "model." }, .layers = "layers.",
		.head = "lm_head.weight", TABLES(llama_top, phi3_layer),
		.leftovers = { ".rotary_emb.inv_freq", ".k_scale",
			       ".v_scale" },
	},
	[LAYOUT_GPT2] = {
		.prefixes = { "transformer.", "" }, .layers = "h.",
		.head = "lm_head.weight", TABLES(gpt2_top, gpt2_layer),
		/* masks, which every file before 2023 has */
		.leftovers = { ".attn.bias", ".attn.masked_bias" },
		.transposed = true,
	},
	[LAYOUT_OPT] = {
		.prefixes = { "model.decoder.", "decoder." },
		.layers = "layers.", .head = "lm_head.weight",
		TABLES(opt_top, opt_layer),
	},
	[LAYOUT_NEOX] = {
		.prefixes = { "gpt_neox." }, .layers = "layers.",
		.head = "embed_out.weight", TABLES(neox_top, neox_layer),
		.leftovers = { ".rotary_emb.inv_freq", ".attention.bias",
			       ".attention.masked_bias" },
	},
};

const struct weight_names *weight_names_of(enum weight_layout layout)
{
	return &layouts[layout];
}

u64 weight_dim(const struct model_config *cfg, enum weight_dim dim)
{
	const u64 q = (u64)cfg->heads * cfg->head_dim;
	const u64 kv = (u64)cfg->kv_heads * cfg->head_dim;

	switch (dim) {
	case DIM_VOCAB:
		return cfg->vocab;
	case DIM_HIDDEN:
		return cfg->hidden;
	case DIM_INTER:
		return cfg->inter;
	case DIM_Q:
		return q;
	case DIM_KV:
		return kv;
	case DIM_QKV:
		return q + 2 * kv;
	case DIM_HEAD:
		return cfg->head_dim;
	case DIM_TWO_INTER:
		return 2ull * cfg->inter;
	case DIM_POSITIONS:
		return (u64)cfg->max_position + cfg->learned_from;
	case DIM_NONE:
		break;
	}
	return 0;
}

u32 weight_parts(const struct model_config *cfg, const struct weight_spec *s,
		 struct weight_part parts[WEIGHT_PARTS])
{
	switch (s->how) {
	case HOW_QKV:
		parts[0] = (struct weight_part){ LAYER(q),
						 weight_dim(cfg, DIM_Q) };
		parts[1] = (struct weight_part){ LAYER(k),
						 weight_dim(cfg, DIM_KV) };
		parts[2] = (struct weight_part){ LAYER(v), parts[1].rows };
		return 3;
	case HOW_GATE_UP:
		parts[0] = (struct weight_part){ LAYER(gate), cfg->inter };
		parts[1] = (struct weight_part){ LAYER(up), cfg->inter };
		return 2;
	default:
		parts[0] = (struct weight_part){ s->offset,
						 weight_dim(cfg, s->rows) };
		return 1;
	}
}

bool weight_needed(const struct model_config *cfg, enum weight_need need)
{
	switch (need) {
	case NEED_UNTIED:
		return !cfg->tied;
	case NEED_QKV_BIAS:
		return cfg->qkv_bias;
	case NEED_O_BIAS:
		return cfg->o_bias;
	case NEED_MLP_BIAS:
		return cfg->mlp_bias;
	case NEED_QK_NORM:
		return cfg->qk_norm;
	case NEED_POST_NORMS:
		return cfg->post_norms;
	case NEED_NO_POST_NORMS:
		return !cfg->post_norms;
	case NEED_ALWAYS:
		break;
	}
	return true;
}

void weight_top_name(const struct weight_names *n, u32 prefix,
		     const struct weight_spec *s, char *name)
{
	if (s->name)
		snprintf(name, WEIGHT_NAME_MAX, "%s%s", n->prefixes[prefix],
			 s->name);
	else
		snprintf(name, WEIGHT_NAME_MAX, "%s", n->head);
}

void weight_layer_name(const struct weight_names *n, u32 prefix, u32 layer,
		       const struct weight_spec *s, char *name)
{
	snprintf(name, WEIGHT_NAME_MAX, "%s%s%u.%s", n->prefixes[prefix],
		 n->layers, layer, s->name);
}
