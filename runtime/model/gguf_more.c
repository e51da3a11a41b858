// SPDX-License-Identifier: Apache-2.0
/*
 * gguf_more.c - metadata of GGUF files that only some architectures have
 *
 * Some switches are in no key of the file, because the programs that read it have
 * them in their code.  Then they are set here to what the models of the architecture
 * have.
 */
#include <math.h>

#include "runtime/model/gguf_conf.h"

/* A number that must have one value, if it is in the file at all. */
static void must_be(struct gguf_conf *c, const char *key, double want)
{
	double v = want;

	if (conf_read_real(c, key, &v) && v != want)
		conf_fail(c, -EOPNOTSUPP, key, "%g is not supported: use a "
			  "model with %g", v, want);
}

/*
 * Files of Mistral and Mixtral say "llama", too.  Mixtral has experts, and Mistral a
 * window.
 */
void gguf_more_llama(struct gguf_conf *c)
{
	u32 window = 0, experts = 0;
	const char *name;

	conf_read_u32(c, "expert_count", &experts);
	conf_read_u32(c, "attention.sliding_window", &window);
	if (!experts && !window)
		return;
	c->family = config_family_find(experts ? "MixtralForCausalLM" :
						 "MistralForCausalLM", &name);
	conf_set(c, "architectures", json_pack("[s]", name), NULL);
	if (window)
		conf_u32(c, "attention.sliding_window", "sliding_window");
	if (!experts)
		return;
	conf_u32(c, "expert_count", "num_local_experts");
	conf_u32(c, "expert_used_count", "num_experts_per_tok");
	must_be(c, "expert_gating_func", 1);
}

/* Layers without experts, by their tensors. */
static void dense_layers(struct gguf_conf *c, const char *to)
{
	const u32 layers = conf_layers(c);
	json_t *list = json_array();
	u32 i;

	for (i = 0; i < layers; i++)
		if (conf_layer_has(c, i, "ffn_gate.weight"))
			json_array_append_new(list, json_integer(i));
	conf_set(c, to, list, NULL);
}

/* Keys of a softmax over experts; @norm: are shares divided by their sum? */
static void softmax_experts(struct gguf_conf *c, bool norm)
{
	conf_u32(c, "expert_count", "num_experts");
	conf_u32(c, "expert_used_count", "num_experts_per_tok");
	conf_read_bool(c, "expert_weights_norm", &norm);
	conf_set(c, "norm_topk_prob", json_boolean(norm),
		 "expert_weights_norm");
	must_be(c, "expert_gating_func", 1);
	must_be(c, "expert_weights_scale", 1);
}

void gguf_more_qwen3_moe(struct gguf_conf *c)
{
	softmax_experts(c, true);
	conf_u32(c, "expert_feed_forward_length", "moe_intermediate_size");
	dense_layers(c, "mlp_only_layers");
}

void gguf_more_qwen2_moe(struct gguf_conf *c)
{
	softmax_experts(c, false);
	conf_u32(c, "expert_feed_forward_length", "moe_intermediate_size");
	conf_u32(c, "expert_shared_feed_forward_length",
		 "shared_expert_intermediate_size");
	dense_layers(c, "mlp_only_layers");
}

void gguf_more_olmoe(struct gguf_conf *c)
{
	softmax_experts(c, false);
}

/* A window of 0 says that there is none. */
void gguf_more_phi3(struct gguf_conf *c)
{
	u32 window = 0;

	conf_read_u32(c, "attention.sliding_window", &window);
	conf_set(c, "sliding_window", window ? json_integer(window) :
		 json_null(), "attention.sliding_window");
}

/*
 * The scale of scores.  Models with as many layers as the largest one of the family
 * take the width of the residual stream for each head, others the size of a head.
 */
static void gemma_scale(struct gguf_conf *c, u32 largest)
{
	u32 layers = 0, hidden = 0, heads = 1, dim;
	double scalar, scale;

	conf_read_u32(c, "block_count", &layers);
	conf_read_u32(c, "embedding_length", &hidden);
	conf_read_u32(c, "attention.head_count", &heads);
	dim = heads ? hidden / heads : 0;
	if (layers != largest)
		conf_read_u32(c, "attention.key_length", &dim);
	scalar = dim;
	if (conf_read_real(c, "attention.scale", &scale)) {
		scalar = 1 / (scale * scale);
		if (!isfinite(scalar)) {
			conf_fail(c, -EINVAL, "attention.scale", "%g is no "
				  "factor of scores: download or copy the file "
				  "again", scale);
			return;
		}
		/* The file has it in f32. */
		if (fabs(scalar - round(scalar)) < 1e-5 * scalar)
			scalar = round(scalar);
	}
	if (c->f->ret)
		return;
	conf_set(c, "query_pre_attn_scalar", json_real(scalar),
		 "attention.scale");
}

void gguf_more_gemma2(struct gguf_conf *c)
{
	gemma_scale(c, 46);
	conf_real(c, "attn_logit_softcapping", "attn_logit_softcapping");
	conf_real(c, "final_logit_softcapping", "final_logit_softcapping");
	conf_u32(c, "attention.sliding_window", "sliding_window");
}

/* A step between layers without a window, or a list that says which layers have one. */
static void window_pattern(struct gguf_conf *c)
{
	const char *key = "attention.sliding_window_pattern";
	const u32 layers = conf_layers(c);
	char full[64];
	json_t *list;
	bool local;
	u32 i;

	snprintf(full, sizeof(full), "%s.%s", c->arch->name, key);
	if (!conf_has(c, key))
		return;
	if (!gguf_item_bool(c->g, full, 0, &local)) {
		conf_u32(c, key, "sliding_window_pattern");
		return;
	}
	list = json_array();
	for (i = 0; i < layers && gguf_item_bool(c->g, full, i, &local); i++)
		json_array_append_new(list, json_string(local ?
					"sliding_attention" : "full_attention"));
	conf_set(c, "layer_types", list, key);
}

void gguf_more_gemma3(struct gguf_conf *c)
{
	gemma_scale(c, 62);
	conf_real(c, "final_logit_softcapping", "final_logit_softcapping");
	conf_u32(c, "attention.sliding_window", "sliding_window");
	window_pattern(c);
}

/*
 * Heads of K and of V have two sizes.  Older files have them in key_length and value_length.
 * Newer files have sizes of latent vectors there, and those of heads in keys with "_mla".
 */
static void deepseek_sizes(struct gguf_conf *c)
{
	u32 rope = 0, key = 0;

	conf_has(c, "attention.head_count_kv");
	conf_u32(c, "attention.head_count", "num_key_value_heads");
	conf_u32(c, "attention.kv_lora_rank", "kv_lora_rank");
	conf_u32(c, "attention.q_lora_rank", "q_lora_rank");
	conf_u32(c, "rope.dimension_count", "qk_rope_head_dim");
	conf_read_u32(c, "rope.dimension_count", &rope);
	conf_read_u32(c, "attention.key_length", &key);
	conf_read_u32(c, "attention.key_length_mla", &key);
	if (key > rope)
		conf_set(c, "qk_nope_head_dim", json_integer(key - rope),
			 "attention.key_length");
	conf_u32(c, "attention.value_length", "v_head_dim");
	conf_u32(c, "attention.value_length_mla", "v_head_dim");
}

void gguf_more_deepseek2(struct gguf_conf *c)
{
	u32 gating = 1, groups = 1;

	deepseek_sizes(c);
	conf_u32(c, "expert_count", "n_routed_experts");
	conf_u32(c, "expert_used_count", "num_experts_per_tok");
	conf_u32(c, "expert_feed_forward_length", "moe_intermediate_size");
	conf_u32(c, "expert_shared_count", "n_shared_experts");
	conf_u32(c, "leading_dense_block_count", "first_k_dense_replace");
	conf_real(c, "expert_weights_scale", "routed_scaling_factor");
	conf_u32(c, "expert_group_count", "n_group");
	conf_u32(c, "expert_group_used_count", "topk_group");
	conf_read_u32(c, "expert_group_count", &groups);
	conf_set(c, "topk_method", json_string(groups > 1 ?
		 "group_limited_greedy" : "greedy"), "expert_group_count");
	if (conf_read_u32(c, "expert_gating_func", &gating) && gating != 1)
		conf_fail(c, -EOPNOTSUPP, "expert_gating_func", "%u is not "
			  "supported: use a model with 1, softmax", gating);
	must_be(c, "expert_weights_norm_eps", 0);
	if (conf_has(c, "expert_weights_norm")) {
		bool norm = false;

		conf_read_bool(c, "expert_weights_norm", &norm);
		conf_set(c, "norm_topk_prob", json_boolean(norm),
			 "expert_weights_norm");
	}
}

void gguf_more_gpt_oss(struct gguf_conf *c)
{
	conf_u32(c, "expert_count", "num_local_experts");
	conf_u32(c, "expert_used_count", "num_experts_per_tok");
	conf_u32(c, "expert_feed_forward_length", "intermediate_size");
	conf_u32(c, "attention.sliding_window", "sliding_window");
	conf_real(c, "swiglu_clamp_exp", "swiglu_limit");
	must_be(c, "expert_gating_func", 1);
}

void gguf_more_neox(struct gguf_conf *c)
{
	bool parallel = true;

	conf_read_bool(c, "use_parallel_residual", &parallel);
	conf_set(c, "use_parallel_residual", json_boolean(parallel),
		 "use_parallel_residual");
}

/* Layers without KV heads are recurrent. */
static void granite_layers(struct gguf_conf *c)
{
	const char *key = "attention.head_count_kv";
	const u32 layers = conf_layers(c);
	json_t *list = json_array();
	u32 i, heads, kv = 0;

	for (i = 0; i < layers && conf_item(c, key, i, &heads); i++) {
		kv = heads ? heads : kv;
		json_array_append_new(list, json_string(heads ? "attention" :
							"mamba"));
	}
	conf_set(c, "layer_types", list, key);
	conf_set(c, "num_key_value_heads", json_integer(kv), key);
}

static void granite_states(struct gguf_conf *c)
{
	u32 inner = 0, hidden = 0;

	conf_u32(c, "ssm.conv_kernel", "mamba_d_conv");
	conf_u32(c, "ssm.state_size", "mamba_d_state");
	conf_u32(c, "ssm.group_count", "mamba_n_groups");
	conf_u32(c, "ssm.time_step_rank", "mamba_n_heads");
	if (!conf_read_u32(c, "ssm.inner_size", &inner) ||
	    !conf_read_u32(c, "embedding_length", &hidden))
		return;
	if (!hidden || inner % hidden)
		conf_fail(c, -EOPNOTSUPP, "ssm.inner_size", "%u is no multiple "
			  "of embedding_length, %u: use a model where it is",
			  inner, hidden);
	else
		conf_set(c, "mamba_expand", json_integer(inner / hidden),
			 "ssm.inner_size");
}

/* Factors of Granite. */
void gguf_more_factors(struct gguf_conf *c)
{
	conf_real(c, "attention.scale", "attention_multiplier");
	conf_real(c, "embedding_scale", "embedding_multiplier");
	conf_real(c, "residual_scale", "residual_multiplier");
	conf_real(c, "logit_scale", "logits_scaling");
}

void gguf_more_granite(struct gguf_conf *c)
{
	bool turns = true;
	u32 experts = 0;

	granite_layers(c);
	granite_states(c);
	conf_read_bool(c, "rope.scaling.finetuned", &turns);
	conf_set(c, "position_embedding_type",
		 json_string(turns ? "rope" : "nope"),
		 "rope.scaling.finetuned");
	conf_u32(c, "expert_shared_feed_forward_length",
		 "shared_intermediate_size");
	conf_read_u32(c, "expert_count", &experts);
	conf_set(c, "num_local_experts", json_integer(experts),
		 "expert_count");
	conf_has(c, "expert_used_count");
	gguf_more_factors(c);
	conf_set(c, "mamba_conv_bias",
		 json_boolean(conf_any_has(c, "ssm_conv1d.bias")), NULL);
}

void gguf_more_cohere(struct gguf_conf *c)
{
	conf_real(c, "logit_scale", "logit_scale");
	if (conf_any_has(c, "attn_q_norm.weight"))
		conf_set(c, "use_qk_norm", json_true(), NULL);
}

void gguf_more_cohere2(struct gguf_conf *c)
{
	conf_real(c, "logit_scale", "logit_scale");
	conf_u32(c, "attention.sliding_window", "sliding_window");
	window_pattern(c);
}

void gguf_more_starcoder2(struct gguf_conf *c)
{
	conf_set(c, "use_bias", json_boolean(conf_any_has(c, "attn_q.bias")),
		 NULL);
	conf_u32(c, "attention.sliding_window", "sliding_window");
}

void gguf_more_stablelm(struct gguf_conf *c)
{
	conf_set(c, "use_qkv_bias",
		 json_boolean(conf_any_has(c, "attn_q.bias")), NULL);
	conf_set(c, "qk_layernorm",
		 json_boolean(conf_any_has(c, "attn_q_norm.weight")), NULL);
	/* The key of the file has another default than the family. */
	conf_has(c, "use_parallel_residual");
	conf_set(c, "use_parallel_residual",
		 json_boolean(!conf_any_has(c, "ffn_norm.weight")), NULL);
}
