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
#define EXPERT(field)	offsetof(struct model_mlp, field)
#define TOP(field)	offsetof(struct model_weights, field)

#define SPEC(n, at, r, c, when, h, whose, turn)				\
	{ .name = n, .offset = at, .rows = DIM_##r, .cols = DIM_##c,	\
	  .need = NEED_##when, .how = HOW_##h, .of = OF_##whose,	\
	  .turned = turn }

/* A matrix; a vector; a norm; one that is several of the decoder's. */
#define M(n, at, r, c, when)						\
	SPEC(n, at, r, c, when, WHOLE, LAYER, false)
#define V(n, at, r, when)						\
	SPEC(n, at, r, NONE, when, WHOLE, LAYER, false)
#define N(n, at, r, when)						\
	SPEC(n, at, r, NONE, when, NORM, LAYER, false)
#define J(n, at, r, c, h)						\
	SPEC(n, at, r, c, ALWAYS, h, LAYER, false)
/* A router; a matrix of one expert. */
#define R(n, at)							\
	SPEC(n, at, EXPERTS, HIDDEN, SPARSE, F32, LAYER, false)
#define E(n, at, r, c)							\
	SPEC(n, at, r, c, SPARSE, WHOLE, EXPERT, false)

/* Any other vector of a recurrent layer. */
#define S(n, at, r)							\
	SPEC(n, at, r, NONE, RECURRENT, STATE, LAYER, false)
/* The norm of q or k. */
#define QK(n, at, r)							\
	SPEC(n, at, r, NONE, QK_NORM, HEAD_NORM, LAYER, false)

/* ---- Llama and families with the same layout ---- */

static const struct weight_spec llama_top[] = {
	M("embed_tokens.weight", TOP(embed), VOCAB, HIDDEN, ALWAYS),
	N("norm.weight", TOP(norm), HIDDEN, ALWAYS),
	V("norm.bias", TOP(norm_bias), HIDDEN, FINAL_BIAS),
	M(NULL, TOP(head), VOCAB, HIDDEN, UNTIED),
};

/* The MLP of a layer without experts. */
#define LLAMA_DENSE							\
	M("mlp.gate_proj.weight", LAYER(mlp.gate), INTER, HIDDEN,	\
	  DENSE),							\
	M("mlp.up_proj.weight", LAYER(mlp.up), INTER, HIDDEN, DENSE),	\
	M("mlp.down_proj.weight", LAYER(mlp.down), HIDDEN, INTER, DENSE)

/* Experts with tensors of their own, and the expert of all rows. */
#define LLAMA_EXPERTS							\
	R("mlp.gate.weight", LAYER(router)),				\
	E("mlp.experts.%u.gate_proj.weight", EXPERT(gate), EXPERT,	\
	  HIDDEN),							\
	E("mlp.experts.%u.up_proj.weight", EXPERT(up), EXPERT, HIDDEN),	\
	E("mlp.experts.%u.down_proj.weight", EXPERT(down), HIDDEN,	\
	  EXPERT),							\
	M("mlp.shared_experts.gate_proj.weight", LAYER(shared.gate),	\
	  SHARED, HIDDEN, SHARED),					\
	M("mlp.shared_experts.up_proj.weight", LAYER(shared.up),	\
	  SHARED, HIDDEN, SHARED),					\
	M("mlp.shared_experts.down_proj.weight", LAYER(shared.down),	\
	  HIDDEN, SHARED, SHARED),					\
	M("mlp.shared_expert.gate_proj.weight", LAYER(shared.gate),	\
	  SHARED, HIDDEN, GATED),					\
	M("mlp.shared_expert.up_proj.weight", LAYER(shared.up),		\
	  SHARED, HIDDEN, GATED),					\
	M("mlp.shared_expert.down_proj.weight", LAYER(shared.down),	\
	  HIDDEN, SHARED, GATED),					\
	SPEC("mlp.shared_expert_gate.weight", LAYER(shared_gate), ONE,	\
	     HIDDEN, GATED, F32, LAYER, false)

/* The projections of attention. */
#define LLAMA_ATTENTION							\
	M("self_attn.q_proj.weight", LAYER(q), Q, HIDDEN, ALWAYS),	\
	M("self_attn.k_proj.weight", LAYER(k), KV, HIDDEN, ALWAYS),	\
	M("self_attn.v_proj.weight", LAYER(v), KV, HIDDEN, ALWAYS),	\
	M("self_attn.o_proj.weight", LAYER(o), HIDDEN, Q, ALWAYS),	\
	V("self_attn.q_proj.bias", LAYER(q_bias), Q, QKV_BIAS),		\
	V("self_attn.k_proj.bias", LAYER(k_bias), KV, QKV_BIAS),	\
	V("self_attn.v_proj.bias", LAYER(v_bias), KV, QKV_BIAS),	\
	V("self_attn.o_proj.bias", LAYER(o_bias), HIDDEN, O_BIAS)

static const struct weight_spec llama_layer[] = {
	N("input_layernorm.weight", LAYER(attn_norm), HIDDEN, PRE_NORM),
	LLAMA_ATTENTION,
	QK("self_attn.q_norm.weight", LAYER(q_norm), Q_NORM),
	QK("self_attn.k_norm.weight", LAYER(k_norm), K_NORM),
	N("post_attention_layernorm.weight", LAYER(mlp_norm), HIDDEN, MLP_NORM),
	N("post_attention_layernorm.weight", LAYER(attn_post), HIDDEN,
	  POST_NORMS),
	N("pre_feedforward_layernorm.weight", LAYER(mlp_norm), HIDDEN,
	  BOTH_NORMS),
	N("post_feedforward_layernorm.weight", LAYER(mlp_post), HIDDEN,
	  POST_NORMS),
	LLAMA_DENSE,
	V("mlp.gate_proj.bias", LAYER(mlp.gate_bias), INTER, DENSE_BIAS),
	V("mlp.up_proj.bias", LAYER(mlp.up_bias), INTER, DENSE_BIAS),
	V("mlp.down_proj.bias", LAYER(mlp.down_bias), HIDDEN, DENSE_BIAS),
	LLAMA_EXPERTS,
};

/* ---- Mixtral: as Llama, with experts in all layers ---- */

static const struct weight_spec mixtral_layer[] = {
	N("input_layernorm.weight", LAYER(attn_norm), HIDDEN, ALWAYS),
	LLAMA_ATTENTION,
	N("post_attention_layernorm.weight", LAYER(mlp_norm), HIDDEN, ALWAYS),
	R("block_sparse_moe.gate.weight", LAYER(router)),
	E("block_sparse_moe.experts.%u.w1.weight", EXPERT(gate), EXPERT,
	  HIDDEN),
	E("block_sparse_moe.experts.%u.w3.weight", EXPERT(up), EXPERT, HIDDEN),
	E("block_sparse_moe.experts.%u.w2.weight", EXPERT(down), HIDDEN,
	  EXPERT),
};

/* ---- StableLM: as Llama, with biases of norms, and norms of single heads ---- */

static const struct weight_spec stablelm_layer[] = {
	N("input_layernorm.weight", LAYER(attn_norm), HIDDEN, PRE_NORM),
	V("input_layernorm.bias", LAYER(attn_norm_bias), HIDDEN, PRE_BIAS),
	LLAMA_ATTENTION,
	SPEC("self_attn.q_layernorm.norms.%u.weight", LAYER(q_norm), HEAD, NONE,
	     QK_NORM, NORM, Q_HEAD, false),
	SPEC("self_attn.k_layernorm.norms.%u.weight", LAYER(k_norm), HEAD, NONE,
	     QK_NORM, NORM, KV_HEAD, false),
	N("post_attention_layernorm.weight", LAYER(mlp_norm), HIDDEN, MLP_NORM),
	V("post_attention_layernorm.bias", LAYER(mlp_norm_bias), HIDDEN,
	  MLP_NORM_BIAS),
	LLAMA_DENSE,
};

/* ---- StarCoder2: as Llama, with an MLP without gate ---- */

static const struct weight_spec starcoder2_layer[] = {
	N("input_layernorm.weight", LAYER(attn_norm), HIDDEN, PRE_NORM),
	V("input_layernorm.bias", LAYER(attn_norm_bias), HIDDEN, PRE_BIAS),
	LLAMA_ATTENTION,
	N("post_attention_layernorm.weight", LAYER(mlp_norm), HIDDEN, MLP_NORM),
	V("post_attention_layernorm.bias", LAYER(mlp_norm_bias), HIDDEN,
	  MLP_NORM_BIAS),
	M("mlp.c_fc.weight", LAYER(mlp.up), INTER, HIDDEN, ALWAYS),
	V("mlp.c_fc.bias", LAYER(mlp.up_bias), INTER, MLP_BIAS),
	M("mlp.c_proj.weight", LAYER(mlp.down), HIDDEN, INTER, ALWAYS),
	V("mlp.c_proj.bias", LAYER(mlp.down_bias), HIDDEN, MLP_BIAS),
};

/* ---- Phi: one norm a layer, and a bias of the output matrix ---- */

static const struct weight_spec phi_top[] = {
	M("embed_tokens.weight", TOP(embed), VOCAB, HIDDEN, ALWAYS),
	N("final_layernorm.weight", TOP(norm), HIDDEN, ALWAYS),
	V("final_layernorm.bias", TOP(norm_bias), HIDDEN, FINAL_BIAS),
	M(NULL, TOP(head), VOCAB, HIDDEN, UNTIED),
	V(NULL, TOP(head_bias), VOCAB, HEAD_BIAS),
};

static const struct weight_spec phi_layer[] = {
	N("input_layernorm.weight", LAYER(attn_norm), HIDDEN, PRE_NORM),
	V("input_layernorm.bias", LAYER(attn_norm_bias), HIDDEN, PRE_BIAS),
	M("self_attn.q_proj.weight", LAYER(q), Q, HIDDEN, ALWAYS),
	M("self_attn.k_proj.weight", LAYER(k), KV, HIDDEN, ALWAYS),
	M("self_attn.v_proj.weight", LAYER(v), KV, HIDDEN, ALWAYS),
	M("self_attn.dense.weight", LAYER(o), HIDDEN, Q, ALWAYS),
	V("self_attn.q_proj.bias", LAYER(q_bias), Q, QKV_BIAS),
	V("self_attn.k_proj.bias", LAYER(k_bias), KV, QKV_BIAS),
	V("self_attn.v_proj.bias", LAYER(v_bias), KV, QKV_BIAS),
	V("self_attn.dense.bias", LAYER(o_bias), HIDDEN, O_BIAS),
	QK("self_attn.q_layernorm.weight", LAYER(q_norm), Q_NORM),
	V("self_attn.q_layernorm.bias", LAYER(q_norm_bias), Q_NORM,
	  QK_NORM_BIAS),
	QK("self_attn.k_layernorm.weight", LAYER(k_norm), K_NORM),
	V("self_attn.k_layernorm.bias", LAYER(k_norm_bias), K_NORM,
	  QK_NORM_BIAS),
	M("mlp.fc1.weight", LAYER(mlp.up), INTER, HIDDEN, ALWAYS),
	V("mlp.fc1.bias", LAYER(mlp.up_bias), INTER, MLP_BIAS),
	M("mlp.fc2.weight", LAYER(mlp.down), HIDDEN, INTER, ALWAYS),
	V("mlp.fc2.bias", LAYER(mlp.down_bias), HIDDEN, MLP_BIAS),
};

/* ---- Phi-3: as Llama, with joined tensors ---- */

static const struct weight_spec phi3_layer[] = {
	N("input_layernorm.weight", LAYER(attn_norm), HIDDEN, ALWAYS),
	J("self_attn.qkv_proj.weight", 0, QKV, HIDDEN, QKV),
	M("self_attn.o_proj.weight", LAYER(o), HIDDEN, Q, ALWAYS),
	N("post_attention_layernorm.weight", LAYER(mlp_norm), HIDDEN, ALWAYS),
	J("mlp.gate_up_proj.weight", LAYER(mlp), TWO_INTER, HIDDEN, GATE_UP),
	M("mlp.down_proj.weight", LAYER(mlp.down), HIDDEN, INTER, ALWAYS),
};

/* ---- DeepSeek-V2: as Llama, with latent vectors ---- */

/* All but the matrix that makes keys and values. */
#define LATENT_LAYER							\
	N("input_layernorm.weight", LAYER(attn_norm), HIDDEN, ALWAYS),	\
	M("self_attn.q_proj.weight", LAYER(q), Q, HIDDEN, NO_Q_RANK),	\
	M("self_attn.q_a_proj.weight", LAYER(q_a), Q_RANK, HIDDEN,	\
	  Q_RANK),							\
	N("self_attn.q_a_layernorm.weight", LAYER(q_norm), Q_RANK,	\
	  Q_RANK),							\
	M("self_attn.q_b_proj.weight", LAYER(q), Q, Q_RANK, Q_RANK),	\
	J("self_attn.kv_a_proj_with_mqa.weight", 0, KV_A, HIDDEN, KV_A),\
	N("self_attn.kv_a_layernorm.weight", LAYER(k_norm), RANK,	\
	  ALWAYS),							\
	M("self_attn.o_proj.weight", LAYER(o), HIDDEN, ATTN_OUT,	\
	  ALWAYS),							\
	N("post_attention_layernorm.weight", LAYER(mlp_norm), HIDDEN,	\
	  ALWAYS),							\
	LLAMA_DENSE,							\
	LLAMA_EXPERTS

static const struct weight_spec latent_layer[] = {
	LATENT_LAYER,
	J("self_attn.kv_b_proj.weight", 0, KV_B, RANK, KV_B),
};

/* Keys and values have a matrix each, as the decoder wants them. */
static const struct weight_spec latent_two_layer[] = {
	LATENT_LAYER,
	M("self_attn.k_b_proj.weight", LAYER(absorb), ABSORB, NOPE, ALWAYS),
	M("self_attn.v_b_proj.weight", LAYER(values), ATTN_OUT, RANK, ALWAYS),
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
	J("attn.c_attn.weight", 0, QKV, HIDDEN, QKV),
	J("attn.c_attn.bias", 0, QKV, NONE, QKV),
	M("attn.c_proj.weight", LAYER(o), HIDDEN, Q, ALWAYS),
	V("attn.c_proj.bias", LAYER(o_bias), HIDDEN, ALWAYS),
	N("ln_2.weight", LAYER(mlp_norm), HIDDEN, ALWAYS),
	V("ln_2.bias", LAYER(mlp_norm_bias), HIDDEN, ALWAYS),
	M("mlp.c_fc.weight", LAYER(mlp.up), INTER, HIDDEN, ALWAYS),
	V("mlp.c_fc.bias", LAYER(mlp.up_bias), INTER, ALWAYS),
	M("mlp.c_proj.weight", LAYER(mlp.down), HIDDEN, INTER, ALWAYS),
	V("mlp.c_proj.bias", LAYER(mlp.down_bias), HIDDEN, ALWAYS),
};

/* ---- OPT ---- */

static const struct weight_spec opt_top[] = {
	M("embed_tokens.weight", TOP(embed), VOCAB, EMBED, ALWAYS),
	M("embed_positions.weight", TOP(pos), POSITIONS, HIDDEN, ALWAYS),
	M("project_in.weight", TOP(project_in), HIDDEN, EMBED, PROJECTED),
	M("project_out.weight", TOP(project_out), EMBED, HIDDEN, PROJECTED),
	N("final_layer_norm.weight", TOP(norm), HIDDEN, FINAL_NORM),
	V("final_layer_norm.bias", TOP(norm_bias), HIDDEN, FINAL_BIAS),
	M(NULL, TOP(head), VOCAB, EMBED, UNTIED),
};

static const struct weight_spec opt_layer[] = {
	N("self_attn_layer_norm.weight", LAYER(attn_norm), HIDDEN, PRE_NORM),
	V("self_attn_layer_norm.bias", LAYER(attn_norm_bias), HIDDEN, PRE_BIAS),
	N("self_attn_layer_norm.weight", LAYER(attn_post), HIDDEN, SUM_NORM),
	V("self_attn_layer_norm.bias", LAYER(attn_post_bias), HIDDEN, SUM_BIAS),
	M("self_attn.q_proj.weight", LAYER(q), Q, HIDDEN, ALWAYS),
	V("self_attn.q_proj.bias", LAYER(q_bias), Q, QKV_BIAS),
	M("self_attn.k_proj.weight", LAYER(k), KV, HIDDEN, ALWAYS),
	V("self_attn.k_proj.bias", LAYER(k_bias), KV, QKV_BIAS),
	M("self_attn.v_proj.weight", LAYER(v), KV, HIDDEN, ALWAYS),
	V("self_attn.v_proj.bias", LAYER(v_bias), KV, QKV_BIAS),
	M("self_attn.out_proj.weight", LAYER(o), HIDDEN, Q, ALWAYS),
	V("self_attn.out_proj.bias", LAYER(o_bias), HIDDEN, O_BIAS),
	N("final_layer_norm.weight", LAYER(mlp_norm), HIDDEN, MLP_NORM),
	V("final_layer_norm.bias", LAYER(mlp_norm_bias), HIDDEN, MLP_NORM_BIAS),
	N("final_layer_norm.weight", LAYER(mlp_post), HIDDEN, SUM_NORM),
	V("final_layer_norm.bias", LAYER(mlp_post_bias), HIDDEN, SUM_BIAS),
	M("fc1.weight", LAYER(mlp.up), INTER, HIDDEN, ALWAYS),
	V("fc1.bias", LAYER(mlp.up_bias), INTER, MLP_BIAS),
	M("fc2.weight", LAYER(mlp.down), HIDDEN, INTER, ALWAYS),
	V("fc2.bias", LAYER(mlp.down_bias), HIDDEN, MLP_BIAS),
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
	M("mlp.dense_h_to_4h.weight", LAYER(mlp.up), INTER, HIDDEN, ALWAYS),
	V("mlp.dense_h_to_4h.bias", LAYER(mlp.up_bias), INTER, ALWAYS),
	M("mlp.dense_4h_to_h.weight", LAYER(mlp.down), HIDDEN, INTER, ALWAYS),
	V("mlp.dense_4h_to_h.bias", LAYER(mlp.down_bias), HIDDEN, ALWAYS),
};

/* ---- gpt-oss: all experts of a layer in one tensor ---- */

/* All but the experts. */
#define GPT_OSS_LAYER							\
	N("input_layernorm.weight", LAYER(attn_norm), HIDDEN, ALWAYS),	\
	M("self_attn.q_proj.weight", LAYER(q), Q, HIDDEN, ALWAYS),	\
	M("self_attn.k_proj.weight", LAYER(k), KV, HIDDEN, ALWAYS),	\
	M("self_attn.v_proj.weight", LAYER(v), KV, HIDDEN, ALWAYS),	\
	M("self_attn.o_proj.weight", LAYER(o), HIDDEN, Q, ALWAYS),	\
	V("self_attn.q_proj.bias", LAYER(q_bias), Q, QKV_BIAS),		\
	V("self_attn.k_proj.bias", LAYER(k_bias), KV, QKV_BIAS),	\
	V("self_attn.v_proj.bias", LAYER(v_bias), KV, QKV_BIAS),	\
	V("self_attn.o_proj.bias", LAYER(o_bias), HIDDEN, O_BIAS),	\
	V("self_attn.sinks", LAYER(sinks), HEADS, SINKS),		\
	N("post_attention_layernorm.weight", LAYER(mlp_norm), HIDDEN,	\
	  ALWAYS),							\
	R("mlp.router.weight", LAYER(router)),				\
	V("mlp.router.bias", LAYER(router_bias), EXPERTS, ROUTER_BIAS)

/* A vector of one expert. */
#define B(n, at, r)							\
	SPEC(n, at, r, NONE, EXPERT_BIAS, WHOLE, EXPERT, false)

/* Every matrix of an expert is a tensor, and none is turned. */
static const struct weight_spec gpt_oss_each_layer[] = {
	GPT_OSS_LAYER,
	E("mlp.experts.%u.gate_proj.weight", EXPERT(gate), EXPERT, HIDDEN),
	E("mlp.experts.%u.up_proj.weight", EXPERT(up), EXPERT, HIDDEN),
	E("mlp.experts.%u.down_proj.weight", EXPERT(down), HIDDEN, EXPERT),
	B("mlp.experts.%u.gate_proj.bias", EXPERT(gate_bias), EXPERT),
	B("mlp.experts.%u.up_proj.bias", EXPERT(up_bias), EXPERT),
	B("mlp.experts.%u.down_proj.bias", EXPERT(down_bias), HIDDEN),
};

static const struct weight_spec gpt_oss_layer[] = {
	GPT_OSS_LAYER,
	SPEC("mlp.experts.gate_up_proj", 0, TWO_EXPERT, HIDDEN, SPARSE, PAIRS,
	     EXPERTS, true),
	SPEC("mlp.experts.gate_up_proj_bias", 0, TWO_EXPERT, NONE, EXPERT_BIAS,
	     PAIRS, EXPERTS, false),
	SPEC("mlp.experts.down_proj", EXPERT(down), HIDDEN, EXPERT, SPARSE,
	     WHOLE, EXPERTS, true),
	SPEC("mlp.experts.down_proj_bias", EXPERT(down_bias), HIDDEN, NONE,
	     EXPERT_BIAS, WHOLE, EXPERTS, false),
};

/* ---- Granite 4.0 and Bamba: recurrent layers beside layers that attend ---- */

/* Tensors up to the MLP. */
#define MIXED_LAYER							\
	N("input_layernorm.weight", LAYER(attn_norm), HIDDEN, ALWAYS),	\
	M("self_attn.q_proj.weight", LAYER(q), Q, HIDDEN, ATTENTION),	\
	M("self_attn.k_proj.weight", LAYER(k), KV, HIDDEN, ATTENTION),	\
	M("self_attn.v_proj.weight", LAYER(v), KV, HIDDEN, ATTENTION),	\
	M("self_attn.o_proj.weight", LAYER(o), HIDDEN, Q, ATTENTION),	\
	V("self_attn.q_proj.bias", LAYER(q_bias), Q, ATTENTION_BIAS),	\
	V("self_attn.k_proj.bias", LAYER(k_bias), KV, ATTENTION_BIAS),	\
	V("self_attn.v_proj.bias", LAYER(v_bias), KV, ATTENTION_BIAS),	\
	V("self_attn.o_proj.bias", LAYER(o_bias), HIDDEN, ATTENTION_BIAS),\
	SPEC("mamba.in_proj.weight", 0, STATE_IN, HIDDEN, RECURRENT,	\
	     STATE_IN, LAYER, false),					\
	SPEC("mamba.conv1d.weight", LAYER(conv), CONV, NONE, RECURRENT,	\
	     TAPS, LAYER, false),					\
	V("mamba.conv1d.bias", LAYER(conv_bias), CONV, CONV_BIAS),	\
	S("mamba.dt_bias", LAYER(dt_bias), STATE_HEADS),		\
	S("mamba.A_log", LAYER(a_log), STATE_HEADS),			\
	S("mamba.D", LAYER(skip), STATE_HEADS),				\
	N("mamba.norm.weight", LAYER(state_norm), STATE_NORM, RECURRENT), \
	M("mamba.out_proj.weight", LAYER(o), HIDDEN, INNER, RECURRENT)

static const struct weight_spec granite_layer[] = {
	MIXED_LAYER,
	N("post_attention_layernorm.weight", LAYER(mlp_norm), HIDDEN, ALWAYS),
	J("shared_mlp.input_linear.weight", LAYER(mlp), TWO_INTER, HIDDEN,
	  GATE_UP),
	M("shared_mlp.output_linear.weight", LAYER(mlp.down), HIDDEN, INTER,
	  ALWAYS),
};

static const struct weight_spec bamba_top[] = {
	M("embed_tokens.weight", TOP(embed), VOCAB, HIDDEN, ALWAYS),
	N("final_layernorm.weight", TOP(norm), HIDDEN, ALWAYS),
	M(NULL, TOP(head), VOCAB, HIDDEN, UNTIED),
};

static const struct weight_spec bamba_layer[] = {
	MIXED_LAYER,
	N("pre_ff_layernorm.weight", LAYER(mlp_norm), HIDDEN, ALWAYS),
	M("feed_forward.gate_proj.weight", LAYER(mlp.gate), INTER, HIDDEN,
	  ALWAYS),
	M("feed_forward.up_proj.weight", LAYER(mlp.up), INTER, HIDDEN, ALWAYS),
	M("feed_forward.down_proj.weight", LAYER(mlp.down), HIDDEN, INTER,
	  ALWAYS),
	V("feed_forward.gate_proj.bias", LAYER(mlp.gate_bias), INTER, MLP_BIAS),
	V("feed_forward.up_proj.bias", LAYER(mlp.up_bias), INTER, MLP_BIAS),
	V("feed_forward.down_proj.bias", LAYER(mlp.down_bias), HIDDEN, MLP_BIAS),
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
	[LAYOUT_MIXTRAL] = {
		.prefixes = { "model." }, .layers = "layers.",
		.head = "lm_head.weight", TABLES(llama_top, mixtral_layer),
		.leftovers = { ".rotary_emb.inv_freq" },
	},
	[LAYOUT_LATENT] = {
		.prefixes = { "model." }, .layers = "layers.",
		.head = "lm_head.weight", TABLES(llama_top, latent_layer),
		.leftovers = { ".rotary_emb.inv_freq" },
	},
	[LAYOUT_STABLELM] = {
		.prefixes = { "model." }, .layers = "layers.",
		.head = "lm_head.weight", TABLES(llama_top, stablelm_layer),
		.leftovers = { ".rotary_emb.inv_freq" },
	},
	[LAYOUT_STARCODER2] = {
		.prefixes = { "model." }, .layers = "layers.",
		.head = "lm_head.weight", TABLES(llama_top, starcoder2_layer),
		.leftovers = { ".rotary_emb.inv_freq" },
	},
	[LAYOUT_PHI] = {
		.prefixes = { "model." }, .layers = "layers.",
		.head = "lm_head.weight", .head_bias = "lm_head.bias",
		TABLES(phi_top, phi_layer),
		.leftovers = { ".rotary_emb.inv_freq" },
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
	[LAYOUT_GPT_OSS] = {
		.prefixes = { "model." }, .layers = "layers.",
		.head = "lm_head.weight", TABLES(llama_top, gpt_oss_layer),
	},
	[LAYOUT_GRANITE] = {
		.prefixes = { "model." }, .layers = "layers.",
		.head = "lm_head.weight", TABLES(llama_top, granite_layer),
		.leftovers = { ".rotary_emb.inv_freq" },
	},
	[LAYOUT_BAMBA] = {
		.prefixes = { "model." }, .layers = "layers.",
		.head = "lm_head.weight", TABLES(bamba_top, bamba_layer),
		.leftovers = { ".rotary_emb.inv_freq" },
	},
	/* Of GGUF files; see gguf_names.c. */
	[LAYOUT_GPT2_ROWS] = {
		.prefixes = { "transformer." }, .layers = "h.",
		.head = "lm_head.weight", TABLES(gpt2_top, gpt2_layer),
	},
	[LAYOUT_GPT_OSS_EACH] = {
		.prefixes = { "model." }, .layers = "layers.",
		.head = "lm_head.weight",
		TABLES(llama_top, gpt_oss_each_layer),
	},
	[LAYOUT_LATENT_TWO] = {
		.prefixes = { "model." }, .layers = "layers.",
		.head = "lm_head.weight", TABLES(llama_top, latent_two_layer),
	},
};

const struct weight_names *weight_names_of(enum weight_layout layout)
{
	return &layouts[layout];
}

/* Weights of the norm of q or k; of all heads together, those of all ranks. */
static u64 norm_dim(const struct model_config *cfg, u32 heads, u32 all_heads)
{
	if (cfg->qk_norm == QK_NORM_SHARED)
		return cfg->head_dim;
	if (cfg->qk_norm == QK_NORM_WHOLE && cfg->part.nr)
		heads = all_heads;
	return (u64)heads * cfg->head_dim;
}

u64 weight_dim(const struct model_config *cfg, enum weight_dim dim)
{
	const u64 q = (u64)cfg->heads * cfg->head_dim;
	const u64 kv = (u64)cfg->kv_heads * cfg->head_dim;
	const struct config_state *s = &cfg->state;
	const u64 conv = (u64)s->heads * s->head_dim +
			 2ull * s->groups * s->d_state;

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
	case DIM_Q_NORM:
		return norm_dim(cfg, cfg->heads, cfg->part.heads);
	case DIM_K_NORM:
		return norm_dim(cfg, cfg->kv_heads, cfg->part.kv_heads);
	case DIM_EMBED:
		return cfg->embed_dim;
	case DIM_HEADS:
		return cfg->heads;
	case DIM_TWO_INTER:
		return 2ull * cfg->inter;
	case DIM_POSITIONS:
		return (u64)cfg->max_position + cfg->learned_from;
	case DIM_EXPERTS:
		return cfg->moe.experts;
	case DIM_EXPERT:
		return cfg->moe.inter;
	case DIM_TWO_EXPERT:
		return 2ull * cfg->moe.inter;
	case DIM_SHARED:
		return cfg->moe.shared_inter;
	case DIM_ONE:
		return 1;
	case DIM_Q_RANK:
		return cfg->latent.q_rank;
	case DIM_RANK:
		return cfg->latent.rank;
	case DIM_KV_A:
		return config_kv_dim(cfg);
	case DIM_KV_B:
		return (u64)cfg->heads * (cfg->latent.nope + cfg->latent.value);
	case DIM_NOPE:
		return cfg->latent.nope;
	case DIM_ABSORB:
		return (u64)cfg->heads * cfg->latent.rank;
	case DIM_ATTN_OUT:
		return config_attn_out(cfg);
	case DIM_STATE_HEADS:
		return s->heads;
	case DIM_INNER:
		return (u64)s->heads * s->head_dim;
	case DIM_STATE_NORM:
		return (u64)(config_shares_group(cfg) ? cfg->part.state_heads : s->heads) *
		       s->head_dim;
	case DIM_CONV:
		return conv;
	case DIM_STATE_IN:
		return (u64)s->heads * s->head_dim + conv + s->heads;
	case DIM_NONE:
		break;
	}
	return 0;
}

/* The rows of gate and up, half of a tensor's. */
static void gate_up_parts(const struct model_config *cfg,
			  const struct weight_spec *s,
			  struct weight_part parts[WEIGHT_PARTS])
{
	const u64 half = weight_dim(cfg, s->rows) / 2;
	const bool vector = s->cols == DIM_NONE;

	parts[0] = (struct weight_part){
		s->offset + (vector ? EXPERT(gate_bias) : EXPERT(gate)), half,
	};
	parts[1] = (struct weight_part){
		s->offset + (vector ? EXPERT(up_bias) : EXPERT(up)), half,
	};
}

static void qkv_parts(const struct model_config *cfg,
		      const struct weight_spec *s,
		      struct weight_part parts[WEIGHT_PARTS])
{
	const u64 q = weight_dim(cfg, DIM_Q), kv = weight_dim(cfg, DIM_KV);
	const bool vector = s->cols == DIM_NONE;

	parts[0] = (struct weight_part){ vector ? LAYER(q_bias) : LAYER(q), q };
	parts[1] = (struct weight_part){ vector ? LAYER(k_bias) : LAYER(k), kv };
	parts[2] = (struct weight_part){ vector ? LAYER(v_bias) : LAYER(v), kv };
}

static void latent_parts(const struct model_config *cfg,
			 const struct weight_spec *s,
			 struct weight_part parts[WEIGHT_PARTS])
{
	const struct latent_config *l = &cfg->latent;

	if (s->how == HOW_KV_A) {
		parts[0] = (struct weight_part){ LAYER(k), l->rank };
		parts[1] = (struct weight_part){ LAYER(v), l->rope };
		return;
	}
	parts[0] = (struct weight_part){
		LAYER(absorb), (u64)cfg->heads * l->nope,
	};
	parts[1] = (struct weight_part){
		LAYER(values), (u64)cfg->heads * l->value,
	};
}

/* z, the channels of the convolution, and dt. */
static void state_parts(const struct model_config *cfg,
			struct weight_part parts[WEIGHT_PARTS])
{
	parts[0] = (struct weight_part){ LAYER(z), weight_dim(cfg, DIM_INNER) };
	parts[1] = (struct weight_part){ LAYER(xbc), weight_dim(cfg, DIM_CONV) };
	parts[2] = (struct weight_part){ LAYER(dt), cfg->state.heads };
}

u32 weight_parts(const struct model_config *cfg, const struct weight_spec *s,
		 struct weight_part parts[WEIGHT_PARTS])
{
	switch (s->how) {
	case HOW_QKV:
		qkv_parts(cfg, s, parts);
		return 3;
	case HOW_GATE_UP:
	case HOW_PAIRS:
		gate_up_parts(cfg, s, parts);
		return 2;
	case HOW_KV_A:
	case HOW_KV_B:
		latent_parts(cfg, s, parts);
		return 2;
	case HOW_STATE_IN:
		state_parts(cfg, parts);
		return 3;
	case HOW_TAPS:
		parts[0] = (struct weight_part){
			s->offset, weight_dim(cfg, s->rows) * cfg->state.conv,
		};
		return 1;
	default:
		parts[0] = (struct weight_part){ s->offset,
						 weight_dim(cfg, s->rows) };
		return 1;
	}
}

/* Is the tensor of a norm needed? */
static bool norm_needed(const struct model_config *cfg, enum weight_need need)
{
	const bool weights = !cfg->plain_norms, pre = !cfg->no_pre_norms;
	const bool biases = weights && cfg->norm_bias;
	const bool mlp = pre && !cfg->post_norms && !cfg->shared_norm;

	switch (need) {
	case NEED_PRE_NORM:
		return pre && weights;
	case NEED_PRE_BIAS:
		return pre && biases;
	case NEED_MLP_NORM:
		return mlp && weights;
	case NEED_MLP_NORM_BIAS:
		return mlp && biases;
	case NEED_BOTH_NORMS:
		return pre && cfg->post_norms;
	case NEED_POST_NORMS:
		return cfg->post_norms;
	case NEED_SUM_NORM:
		return cfg->norm_sums && weights;
	case NEED_SUM_BIAS:
		return cfg->norm_sums && biases;
	case NEED_FINAL_NORM:
		return !cfg->no_final_norm && weights;
	case NEED_FINAL_BIAS:
		return !cfg->no_final_norm && biases;
	case NEED_QK_NORM:
		return cfg->qk_norm;
	default:
		return cfg->qk_norm && cfg->norm_bias;
	}
}

/* Is the tensor needed in @layer, or outside of layers? */
static bool weight_needed(const struct model_config *cfg, enum weight_need need,
			  u32 layer)
{
	const bool sparse = layer != WEIGHT_TOP && config_is_sparse(cfg, layer);
	const bool recurrent = layer != WEIGHT_TOP &&
			       config_is_recurrent(cfg, layer);

	switch (need) {
	case NEED_ATTENTION:
		return !recurrent;
	case NEED_ATTENTION_BIAS:
		return !recurrent && cfg->qkv_bias;
	case NEED_RECURRENT:
		return recurrent;
	case NEED_CONV_BIAS:
		return recurrent && cfg->state.conv_bias;
	case NEED_UNTIED:
		return !cfg->tied;
	case NEED_QKV_BIAS:
		return cfg->qkv_bias;
	case NEED_O_BIAS:
		return cfg->o_bias;
	case NEED_MLP_BIAS:
		return cfg->mlp_bias;
	case NEED_HEAD_BIAS:
		return cfg->head_bias;
	case NEED_PROJECTED:
		return cfg->embed_dim != cfg->hidden;
	case NEED_PRE_NORM:
	case NEED_PRE_BIAS:
	case NEED_MLP_NORM:
	case NEED_MLP_NORM_BIAS:
	case NEED_BOTH_NORMS:
	case NEED_POST_NORMS:
	case NEED_SUM_NORM:
	case NEED_SUM_BIAS:
	case NEED_FINAL_NORM:
	case NEED_FINAL_BIAS:
	case NEED_QK_NORM:
	case NEED_QK_NORM_BIAS:
		return norm_needed(cfg, need);
	case NEED_SINKS:
		return cfg->sinks;
	case NEED_DENSE:
		return !sparse;
	case NEED_DENSE_BIAS:
		return !sparse && cfg->mlp_bias;
	case NEED_SPARSE:
		return sparse;
	case NEED_ROUTER_BIAS:
		return sparse && cfg->moe.router_bias;
	case NEED_EXPERT_BIAS:
		return sparse && cfg->moe.expert_bias;
	case NEED_SHARED:
		return sparse && cfg->moe.shared_inter && !cfg->moe.shared_gate;
	case NEED_GATED:
		return sparse && cfg->moe.shared_gate;
	case NEED_Q_RANK:
		return cfg->latent.q_rank;
	case NEED_NO_Q_RANK:
		return !cfg->latent.q_rank;
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
		snprintf(name, WEIGHT_NAME_MAX, "%s",
			 s->cols == DIM_NONE ? n->head_bias : n->head);
}

/* Name of a layer's tensor; only those of experts and heads have a number in them. */
static void weight_layer_name(const struct weight_names *n, u32 prefix,
			      const struct weight_at *at, char *name)
{
	const char *mark = strstr(at->spec->name, "%u");
	const int len = mark ? (int)(mark - at->spec->name) : 0;

	if (mark)
		snprintf(name, WEIGHT_NAME_MAX, "%s%s%u.%.*s%u%s",
			 n->prefixes[prefix], n->layers, at->layer, len,
			 at->spec->name, at->expert, mark + 2);
	else
		snprintf(name, WEIGHT_NAME_MAX, "%s%s%u.%s",
			 n->prefixes[prefix], n->layers, at->layer,
			 at->spec->name);
}

/* State of a walk. */
struct walk {
	const struct model_config	*cfg;
	const struct weight_names	*names;
	u32				prefix;
	int				(*fn)(void *arg,
					      const struct weight_at *at);
	void				*arg;
};

/* The first expert or head that the process has. */
static u32 walk_first(const struct model_config *cfg, const struct weight_spec *s)
{
	switch (s->of) {
	case OF_EXPERT:
	case OF_EXPERTS:
		return cfg->part.first_expert;
	case OF_Q_HEAD:
		return cfg->part.first_head;
	case OF_KV_HEAD:
		return cfg->part.first_kv_head;
	default:
		return 0;
	}
}

/* Tensors with a number in their names. */
static u32 walk_numbers(const struct model_config *cfg,
			const struct weight_spec *s)
{
	switch (s->of) {
	case OF_EXPERT:
		return config_experts(cfg);
	case OF_Q_HEAD:
		return cfg->heads;
	case OF_KV_HEAD:
		return cfg->kv_heads;
	default:
		return 1;
	}
}

/* The tensors of one row of a table. */
static int walk_spec(const struct walk *w, const struct weight_spec *s,
		     u32 layer)
{
	const u32 numbers = walk_numbers(w->cfg, s);
	char name[WEIGHT_NAME_MAX];
	struct weight_at at = {
		.spec = s, .name = name, .layer = layer,
		.expert = walk_first(w->cfg, s), .first = walk_first(w->cfg, s),
		.heads = weight_of_head(s) ? numbers : 1,
		.stack = s->of == OF_EXPERTS ? config_experts(w->cfg) : 1,
		.rows = weight_dim(w->cfg, s->rows),
		.cols = weight_dim(w->cfg, s->cols),
	};
	int ret = 0;

	if (!weight_needed(w->cfg, s->need, layer))
		return 0;
	at.turned = at.cols && layer != WEIGHT_TOP &&
		    (s->turned || w->names->transposed);
	do {
		if (layer == WEIGHT_TOP)
			weight_top_name(w->names, w->prefix, s, name);
		else
			weight_layer_name(w->names, w->prefix, &at, name);
		ret = w->fn(w->arg, &at);
	} while (!ret && ++at.expert < at.first + numbers);
	return ret;
}

int weights_walk(const struct model_config *cfg, u32 prefix,
		 int (*fn)(void *arg, const struct weight_at *at), void *arg)
{
	const struct weight_names *n = weight_names_of(cfg->layout);
	const struct walk w = {
		.cfg = cfg, .names = n, .prefix = prefix, .fn = fn, .arg = arg,
	};
	u32 i, layer;
	int ret = 0;

	for (i = 0; i < n->nr_top && !ret; i++)
		ret = walk_spec(&w, &n->top[i], WEIGHT_TOP);
	for (layer = 0; layer < cfg->layers; layer++)
		for (i = 0; i < n->nr_layer && !ret; i++)
			ret = walk_spec(&w, &n->layer[i], layer);
	return ret;
}

void *weight_place_of(struct model_weights *w, const struct weight_at *at,
		      u32 i, const struct weight_part *part)
{
	u8 *base = (void *)w;

	if (at->layer != WEIGHT_TOP)
		base = (void *)&w->layers[at->layer];
	if (at->spec->of == OF_EXPERT || at->spec->of == OF_EXPERTS)
		base = (void *)&w->layers[at->layer].experts[at->expert + i];
	return base + part->offset;
}

enum kern_dtype weight_type(const struct st_tensor *t)
{
	if (t->dtype == ST_BLOCKS)
		return t->blocks;
	return t->dtype == ST_F32 ? KERN_F32 :
	       t->dtype == ST_F16 ? KERN_F16 : KERN_BF16;
}

/* Are rows and columns exchanged, or heads sorted? */
static bool weight_is_sorted(const struct weight_at *at,
			     const struct st_tensor *t)
{
	return (at->turned && !t->straight) || at->spec->how == HOW_KV_B;
}

/* Can an order of columns stay?  Products take one, an embedding does not. */
static bool weight_keeps_order(const struct weight_at *at, u32 types)
{
	return types & KERN_ORDER_WEIGHTS && at->cols <= KERN_MAX_ORDER &&
	       (at->layer != WEIGHT_TOP ||
		at->spec->offset == TOP(head));
}

bool weight_in_place(const struct weight_at *at, const struct st_tensor *t,
		     u32 types)
{
	const enum kern_dtype type = weight_type(t);
	const size_t align = kern_is_blocks(type) ? 1 : kern_dtype_size(type);

	return !weight_is_sorted(at, t) && types & KERN_TYPE_BIT(type) &&
	       (!t->order || weight_keeps_order(at, types)) &&
	       (type == KERN_F32 || at->spec->how != HOW_F32) &&
	       !((uintptr_t)t->data % align);
}

enum kern_dtype weight_type_used(const struct weight_at *at,
				 const struct st_tensor *t, u32 types)
{
	if (weight_in_place(at, t, types))
		return weight_type(t);
	return weight_is_sorted(at, t) && t->dtype == ST_BF16 ? KERN_BF16 :
							     KERN_F32;
}
