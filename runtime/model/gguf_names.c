// SPDX-License-Identifier: Apache-2.0
/*
 * gguf_names.c - architectures of GGUF files, and the names of their tensors
 *
 * A row of the last table is an architecture.  Its lists say which tensor of the
 * layout a tensor of the file becomes, and how.  A tensor that is in no list keeps its
 * name, and the loader refuses it as one that the configuration does not ask for.
 *
 * Names and changes are those of the conversion scripts of llama.cpp and of its Python
 * package "gguf".
 */
#include <stdio.h>

#include "runtime/model/error.h"
#include "runtime/model/gguf_conf.h"

/* A tensor that stays as it is; one that does not; the end of a list. */
#define T(name, becomes)	{ .from = name, .to = becomes, .how = GGUF_SAME }
#define H(name, becomes, h)	{ .from = name, .to = becomes, .how = GGUF_##h }
#define END			{ .from = NULL }

static const struct gguf_name llama_top[] = {
	T("token_embd.weight", "model.embed_tokens.weight"),
	T("output_norm.weight", "model.norm.weight"),
	T("output.weight", "lm_head.weight"),
	H("rope_freqs.weight", NULL, CONFIG),
	H("rope_factors_long.weight", NULL, CONFIG),
	H("rope_factors_short.weight", NULL, CONFIG),
	END,
};

/* Norms where attention and MLP have one before them. */
static const struct gguf_name two_norms[] = {
	T("attn_norm.weight", "input_layernorm.weight"),
	T("ffn_norm.weight", "post_attention_layernorm.weight"),
	END,
};

/* Norms of Gemma 2 and 3, before and after. */
static const struct gguf_name four_norms[] = {
	T("attn_norm.weight", "input_layernorm.weight"),
	T("post_attention_norm.weight", "post_attention_layernorm.weight"),
	T("ffn_norm.weight", "pre_feedforward_layernorm.weight"),
	T("post_ffw_norm.weight", "post_feedforward_layernorm.weight"),
	END,
};

/* Projections of attention in the order of the layout. */
static const struct gguf_name attention[] = {
	T("attn_q.weight", "self_attn.q_proj.weight"),
	T("attn_k.weight", "self_attn.k_proj.weight"),
	T("attn_v.weight", "self_attn.v_proj.weight"),
	T("attn_output.weight", "self_attn.o_proj.weight"),
	T("attn_q.bias", "self_attn.q_proj.bias"),
	T("attn_k.bias", "self_attn.k_proj.bias"),
	T("attn_v.bias", "self_attn.v_proj.bias"),
	T("attn_output.bias", "self_attn.o_proj.bias"),
	T("attn_q_norm.weight", "self_attn.q_norm.weight"),
	T("attn_k_norm.weight", "self_attn.k_norm.weight"),
	T("attn_sinks.weight", "self_attn.sinks"),
	END,
};

/* The same, with rows of q and k that are rotated together as neighbours. */
static const struct gguf_name paired_attention[] = {
	H("attn_q.weight", "self_attn.q_proj.weight", Q_PAIRS),
	H("attn_k.weight", "self_attn.k_proj.weight", K_PAIRS),
	T("attn_v.weight", "self_attn.v_proj.weight"),
	T("attn_output.weight", "self_attn.o_proj.weight"),
	H("attn_q.bias", "self_attn.q_proj.bias", Q_PAIRS),
	H("attn_k.bias", "self_attn.k_proj.bias", K_PAIRS),
	T("attn_v.bias", "self_attn.v_proj.bias"),
	T("attn_output.bias", "self_attn.o_proj.bias"),
	END,
};

static const struct gguf_name mlp[] = {
	T("ffn_gate.weight", "mlp.gate_proj.weight"),
	T("ffn_up.weight", "mlp.up_proj.weight"),
	T("ffn_down.weight", "mlp.down_proj.weight"),
	T("ffn_gate.bias", "mlp.gate_proj.bias"),
	T("ffn_up.bias", "mlp.up_proj.bias"),
	T("ffn_down.bias", "mlp.down_proj.bias"),
	END,
};

static const struct gguf_name experts[] = {
	T("ffn_gate_inp.weight", "mlp.gate.weight"),
	H("ffn_gate_exps.weight", "mlp.experts.%u.gate_proj.weight", EXPERTS),
	H("ffn_up_exps.weight", "mlp.experts.%u.up_proj.weight", EXPERTS),
	H("ffn_down_exps.weight", "mlp.experts.%u.down_proj.weight", EXPERTS),
	END,
};

/* Experts of all rows, joined. */
static const struct gguf_name shared_experts[] = {
	T("ffn_gate_shexp.weight", "mlp.shared_experts.gate_proj.weight"),
	T("ffn_up_shexp.weight", "mlp.shared_experts.up_proj.weight"),
	T("ffn_down_shexp.weight", "mlp.shared_experts.down_proj.weight"),
	END,
};

/* An expert of all rows with a gate. */
static const struct gguf_name gated_expert[] = {
	T("ffn_gate_shexp.weight", "mlp.shared_expert.gate_proj.weight"),
	T("ffn_up_shexp.weight", "mlp.shared_expert.up_proj.weight"),
	T("ffn_down_shexp.weight", "mlp.shared_expert.down_proj.weight"),
	H("ffn_gate_inp_shexp.weight", "mlp.shared_expert_gate.weight", ROWS),
	END,
};

static const struct gguf_name mixtral_experts[] = {
	T("ffn_gate_inp.weight", "block_sparse_moe.gate.weight"),
	H("ffn_gate_exps.weight", "block_sparse_moe.experts.%u.w1.weight",
	  EXPERTS),
	H("ffn_up_exps.weight", "block_sparse_moe.experts.%u.w3.weight",
	  EXPERTS),
	H("ffn_down_exps.weight", "block_sparse_moe.experts.%u.w2.weight",
	  EXPERTS),
	END,
};

static const struct gguf_name phi3_layer[] = {
	T("attn_qkv.weight", "self_attn.qkv_proj.weight"),
	T("attn_output.weight", "self_attn.o_proj.weight"),
	T("ffn_up.weight", "mlp.gate_up_proj.weight"),
	T("ffn_down.weight", "mlp.down_proj.weight"),
	END,
};

/*
 * Older files have the matrix of keys and values as one.  Newer ones have two, and
 * that of keys has the rows and columns that the decoder wants.
 */
static const struct gguf_name latent_layer[] = {
	T("attn_q.weight", "self_attn.q_proj.weight"),
	T("attn_q_a.weight", "self_attn.q_a_proj.weight"),
	T("attn_q_a_norm.weight", "self_attn.q_a_layernorm.weight"),
	T("attn_q_b.weight", "self_attn.q_b_proj.weight"),
	T("attn_kv_a_mqa.weight", "self_attn.kv_a_proj_with_mqa.weight"),
	T("attn_kv_a_norm.weight", "self_attn.kv_a_layernorm.weight"),
	T("attn_kv_b.weight", "self_attn.kv_b_proj.weight"),
	H("attn_k_b.weight", "self_attn.k_b_proj.weight", ROWS),
	H("attn_v_b.weight", "self_attn.v_b_proj.weight", ROWS),
	T("attn_output.weight", "self_attn.o_proj.weight"),
	END,
};

static const struct gguf_name gpt_oss_layer[] = {
	T("attn_norm.weight", "input_layernorm.weight"),
	T("post_attention_norm.weight", "post_attention_layernorm.weight"),
	T("ffn_gate_inp.weight", "mlp.router.weight"),
	T("ffn_gate_inp.bias", "mlp.router.bias"),
	H("ffn_gate_exps.weight", "mlp.experts.%u.gate_proj.weight", EXPERTS),
	H("ffn_up_exps.weight", "mlp.experts.%u.up_proj.weight", EXPERTS),
	H("ffn_down_exps.weight", "mlp.experts.%u.down_proj.weight", EXPERTS),
	H("ffn_gate_exps.bias", "mlp.experts.%u.gate_proj.bias", EXPERTS),
	H("ffn_up_exps.bias", "mlp.experts.%u.up_proj.bias", EXPERTS),
	H("ffn_down_exps.bias", "mlp.experts.%u.down_proj.bias", EXPERTS),
	END,
};

static const struct gguf_name gpt2_top[] = {
	T("token_embd.weight", "transformer.wte.weight"),
	T("position_embd.weight", "transformer.wpe.weight"),
	T("output_norm.weight", "transformer.ln_f.weight"),
	T("output_norm.bias", "transformer.ln_f.bias"),
	T("output.weight", "lm_head.weight"),
	END,
};

static const struct gguf_name gpt2_layer[] = {
	T("attn_norm.weight", "ln_1.weight"),
	T("attn_norm.bias", "ln_1.bias"),
	T("attn_qkv.weight", "attn.c_attn.weight"),
	T("attn_qkv.bias", "attn.c_attn.bias"),
	T("attn_output.weight", "attn.c_proj.weight"),
	T("attn_output.bias", "attn.c_proj.bias"),
	T("ffn_norm.weight", "ln_2.weight"),
	T("ffn_norm.bias", "ln_2.bias"),
	T("ffn_up.weight", "mlp.c_fc.weight"),
	T("ffn_up.bias", "mlp.c_fc.bias"),
	T("ffn_down.weight", "mlp.c_proj.weight"),
	T("ffn_down.bias", "mlp.c_proj.bias"),
	END,
};

static const struct gguf_name neox_top[] = {
	T("token_embd.weight", "gpt_neox.embed_in.weight"),
	T("output_norm.weight", "gpt_neox.final_layer_norm.weight"),
	T("output_norm.bias", "gpt_neox.final_layer_norm.bias"),
	T("output.weight", "embed_out.weight"),
	END,
};

static const struct gguf_name neox_layer[] = {
	T("attn_norm.weight", "input_layernorm.weight"),
	T("attn_norm.bias", "input_layernorm.bias"),
	H("attn_qkv.weight", "attention.query_key_value.weight", QKV),
	H("attn_qkv.bias", "attention.query_key_value.bias", QKV),
	T("attn_output.weight", "attention.dense.weight"),
	T("attn_output.bias", "attention.dense.bias"),
	T("ffn_norm.weight", "post_attention_layernorm.weight"),
	T("ffn_norm.bias", "post_attention_layernorm.bias"),
	T("ffn_up.weight", "mlp.dense_h_to_4h.weight"),
	T("ffn_up.bias", "mlp.dense_h_to_4h.bias"),
	T("ffn_down.weight", "mlp.dense_4h_to_h.weight"),
	T("ffn_down.bias", "mlp.dense_4h_to_h.bias"),
	END,
};

static const struct gguf_name recurrent[] = {
	T("ssm_in.weight", "mamba.in_proj.weight"),
	H("ssm_conv1d.weight", "mamba.conv1d.weight", TAPS),
	T("ssm_conv1d.bias", "mamba.conv1d.bias"),
	T("ssm_dt.bias", "mamba.dt_bias"),
	H("ssm_a", "mamba.A_log", LOG),
	H("ssm_d", "mamba.D", FLAT),
	H("ssm_norm.weight", "mamba.norm.weight", FLAT),
	T("ssm_out.weight", "mamba.out_proj.weight"),
	END,
};

static const struct gguf_name granite_mlp[] = {
	H("ffn_gate.weight", "shared_mlp.input_linear.weight", FIRST),
	H("ffn_up.weight", "shared_mlp.input_linear.weight", SECOND),
	T("ffn_down.weight", "shared_mlp.output_linear.weight"),
	END,
};

/* Norms of OLMo 2, of outputs alone. */
static const struct gguf_name post_norms[] = {
	T("post_attention_norm.weight", "post_attention_layernorm.weight"),
	T("post_ffw_norm.weight", "post_feedforward_layernorm.weight"),
	END,
};

/* Norms with a bias. */
static const struct gguf_name biased_top[] = {
	T("token_embd.weight", "model.embed_tokens.weight"),
	T("output_norm.weight", "model.norm.weight"),
	T("output_norm.bias", "model.norm.bias"),
	T("output.weight", "lm_head.weight"),
	END,
};

static const struct gguf_name biased_norms[] = {
	T("attn_norm.weight", "input_layernorm.weight"),
	T("attn_norm.bias", "input_layernorm.bias"),
	T("ffn_norm.weight", "post_attention_layernorm.weight"),
	T("ffn_norm.bias", "post_attention_layernorm.bias"),
	END,
};

/* Each head of q and k has a norm, which is a tensor of its own in the layout. */
static const struct gguf_name head_norms[] = {
	H("attn_q_norm.weight", "self_attn.q_layernorm.norms.%u.weight",
	  EXPERTS),
	H("attn_k_norm.weight", "self_attn.k_layernorm.norms.%u.weight",
	  EXPERTS),
	END,
};

static const struct gguf_name plain_mlp[] = {
	T("ffn_up.weight", "mlp.c_fc.weight"),
	T("ffn_up.bias", "mlp.c_fc.bias"),
	T("ffn_down.weight", "mlp.c_proj.weight"),
	T("ffn_down.bias", "mlp.c_proj.bias"),
	END,
};

static const struct gguf_name phi_top[] = {
	T("token_embd.weight", "model.embed_tokens.weight"),
	T("output_norm.weight", "model.final_layernorm.weight"),
	T("output_norm.bias", "model.final_layernorm.bias"),
	T("output.weight", "lm_head.weight"),
	T("output.bias", "lm_head.bias"),
	END,
};

static const struct gguf_name phi_layer[] = {
	T("attn_output.weight", "self_attn.dense.weight"),
	T("attn_output.bias", "self_attn.dense.bias"),
	T("ffn_up.weight", "mlp.fc1.weight"),
	T("ffn_up.bias", "mlp.fc1.bias"),
	T("ffn_down.weight", "mlp.fc2.weight"),
	T("ffn_down.bias", "mlp.fc2.bias"),
	END,
};

#define LLAMA_NAMES	.layers = "model.layers.", .top = llama_top

static const struct gguf_arch archs[] = {
	{ .name = "llama", .hf = "LlamaForCausalLM", LLAMA_NAMES,
	  .layer = { two_norms, paired_attention, mlp, mixtral_experts },
	  .act = "silu", .more = gguf_more_llama },
	{ .name = "qwen2", .hf = "Qwen2ForCausalLM", LLAMA_NAMES,
	  .layer = { two_norms, attention, mlp }, .act = "silu" },
	{ .name = "qwen3", .hf = "Qwen3ForCausalLM", LLAMA_NAMES,
	  .layer = { two_norms, attention, mlp }, .act = "silu" },
	{ .name = "qwen3moe", .hf = "Qwen3MoeForCausalLM", LLAMA_NAMES,
	  .layer = { two_norms, attention, mlp, experts }, .act = "silu",
	  .more = gguf_more_qwen3_moe },
	{ .name = "qwen2moe", .hf = "Qwen2MoeForCausalLM", LLAMA_NAMES,
	  .layer = { two_norms, attention, mlp, experts, gated_expert },
	  .act = "silu", .more = gguf_more_qwen2_moe },
	{ .name = "olmoe", .hf = "OlmoeForCausalLM", LLAMA_NAMES,
	  .layer = { two_norms, attention, experts }, .act = "silu",
	  .more = gguf_more_olmoe },
	{ .name = "phi3", .hf = "Phi3ForCausalLM", LLAMA_NAMES,
	  .layer = { two_norms, phi3_layer }, .act = "silu",
	  .more = gguf_more_phi3 },
	{ .name = "gemma2", .hf = "Gemma2ForCausalLM", LLAMA_NAMES,
	  .layer = { four_norms, attention, mlp },
	  .act = "gelu_pytorch_tanh", .more = gguf_more_gemma2 },
	{ .name = "gemma3", .hf = "Gemma3ForCausalLM", LLAMA_NAMES,
	  .layer = { four_norms, attention, mlp },
	  .act = "gelu_pytorch_tanh", .more = gguf_more_gemma3 },
	{ .name = "deepseek2", .hf = "DeepseekV2ForCausalLM", LLAMA_NAMES,
	  .layer = { two_norms, latent_layer, mlp, experts, shared_experts },
	  .act = "silu", .more = gguf_more_deepseek2 },
	{ .name = "gpt-oss", .hf = "GptOssForCausalLM", LLAMA_NAMES,
	  .layout = LAYOUT_GPT_OSS_EACH, .other_layout = true,
	  .layer = { attention, gpt_oss_layer }, .act = "silu",
	  .more = gguf_more_gpt_oss },
	{ .name = "gpt2", .hf = "GPT2LMHeadModel",
	  .layout = LAYOUT_GPT2_ROWS, .other_layout = true,
	  .layers = "transformer.h.", .top = gpt2_top, .layer = { gpt2_layer },
	  .act = "gelu_new" },
	{ .name = "gptneox", .hf = "GPTNeoXForCausalLM",
	  .layers = "gpt_neox.layers.", .top = neox_top,
	  .layer = { neox_layer }, .act = "gelu", .more = gguf_more_neox },
	{ .name = "granitehybrid", .hf = "GraniteMoeHybridForCausalLM",
	  LLAMA_NAMES,
	  .layer = { two_norms, paired_attention, recurrent, granite_mlp },
	  .act = "silu", .more = gguf_more_granite },
	{ .name = "granite", .hf = "GraniteForCausalLM", LLAMA_NAMES,
	  .layer = { two_norms, paired_attention, mlp }, .act = "silu",
	  .more = gguf_more_factors },
	{ .name = "olmo2", .hf = "Olmo2ForCausalLM", LLAMA_NAMES,
	  .layer = { post_norms, attention, mlp }, .act = "silu" },
	{ .name = "smollm3", .hf = "SmolLM3ForCausalLM", LLAMA_NAMES,
	  .layer = { two_norms, paired_attention, mlp }, .act = "silu" },
	{ .name = "command-r", .hf = "CohereForCausalLM", LLAMA_NAMES,
	  .layer = { two_norms, attention, mlp }, .act = "silu",
	  .more = gguf_more_cohere },
	{ .name = "cohere2", .hf = "Cohere2ForCausalLM", LLAMA_NAMES,
	  .layer = { two_norms, attention, mlp }, .act = "silu",
	  .more = gguf_more_cohere2 },
	{ .name = "gemma", .hf = "GemmaForCausalLM", LLAMA_NAMES,
	  .layer = { two_norms, attention, mlp }, .act = "gelu_pytorch_tanh" },
	{ .name = "phi2", .hf = "PhiForCausalLM", .layers = "model.layers.",
	  .top = phi_top, .layer = { biased_norms, phi_layer, attention },
	  .act = "gelu_new" },
	{ .name = "starcoder2", .hf = "Starcoder2ForCausalLM",
	  .layers = "model.layers.", .top = biased_top,
	  .layer = { biased_norms, attention, plain_mlp },
	  .act = "gelu_pytorch_tanh", .more = gguf_more_starcoder2 },
	{ .name = "stablelm", .hf = "StableLmForCausalLM",
	  .layers = "model.layers.", .top = biased_top,
	  .layer = { head_norms, biased_norms, attention, mlp },
	  .act = "silu", .more = gguf_more_stablelm },
};

const struct gguf_arch *gguf_arch_of(const struct gguf *g,
				     struct model_error *err)
{
	struct gguf_str s = { "", 0 };
	char known[512] = "";
	size_t len = 0;
	u32 i;

	gguf_str(g, "general.architecture", &s);
	for (i = 0; i < ARRAY_SIZE(archs); i++) {
		if (s.len == strlen(archs[i].name) &&
		    !memcmp(s.at, archs[i].name, s.len))
			return &archs[i];
		len += (size_t)snprintf(known + len, sizeof(known) - len,
					"%s%s", i ? ", " : "", archs[i].name);
	}
	model_fail(err, s.len ? -EOPNOTSUPP : -EINVAL, "%s: "
		   "general.architecture: \"%.*s\" is not supported: use a "
		   "model of %s", gguf_path(g), (int)min(s.len, (u64)60), s.at,
		   known);
	return NULL;
}

static const struct gguf_name *name_find(const struct gguf_name *list,
					 const char *name)
{
	for (; list && list->from; list++)
		if (!strcmp(list->from, name))
			return list;
	return NULL;
}

/* The part behind "blk.N." and its N; NULL for other names. */
static const char *name_in_layer(const char *name, u32 *layer)
{
	const char *p = name + 4;
	u32 n = 0;

	if (strncmp(name, "blk.", 4) || (p[0] == '0' && p[1] != '.'))
		return NULL;
	for (; *p >= '0' && *p <= '9' && n < MODEL_MAX_LAYERS; p++)
		n = n * 10 + (u32)(*p - '0');
	if (p == name + 4 || *p != '.')
		return NULL;
	*layer = n;
	return p + 1;
}

const struct gguf_name *gguf_name_of(const struct gguf_arch *arch,
				     const char *name, u32 *layer)
{
	const char *rest = name_in_layer(name, layer);
	const struct gguf_name *n = NULL;
	u32 i;

	if (!rest) {
		*layer = UINT32_MAX;
		return name_find(arch->top, name);
	}
	for (i = 0; !n && i < GGUF_NAME_LISTS; i++)
		n = name_find(arch->layer[i], rest);
	return n;
}

const struct gguf_tensor *gguf_tensor(const struct gguf *g, const char *name)
{
	u32 lo = 0, hi = gguf_nr_tensors(g), mid;
	int cmp;

	while (lo < hi) {
		mid = lo + (hi - lo) / 2;
		cmp = strcmp(gguf_tensor_at(g, mid)->name, name);
		if (!cmp)
			return gguf_tensor_at(g, mid);
		if (cmp < 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return NULL;
}

bool gguf_has_tensor(const struct gguf *g, const char *name)
{
	return gguf_tensor(g, name);
}
