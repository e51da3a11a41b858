// SPDX-License-Identifier: Apache-2.0
/*
 * families.c - the tables of architectures and of keys
 *
 * A family is a row: the names of its sizes, the switches that its name
 * presets, and the optional keys that its definition reads.  Only config.c,
 * which fills struct model_config from a row and a file, uses these tables; the
 * decoder sees switches.
 *
 * Keys.  The readers of a configuration note each key they read.  All other
 * keys must be in the second table: keys that change nothing in inference
 * (training, bookkeeping, defaults of sampling), and switches that are
 * supported in one position only.  Any other key is refused, since its meaning
 * for the model is unknown.
 */
#include <stdio.h>

#include "runtime/model/config_read.h"

static const struct config_keys llama_keys = {
	.hidden = "hidden_size",
	.inter = "intermediate_size",
	.layers = "num_hidden_layers",
	.heads = "num_attention_heads",
	.kv_heads = "num_key_value_heads",
	.max_position = "max_position_embeddings",
	.eps = "rms_norm_eps",
	.act = "hidden_act",
};

static const struct config_keys gemma_keys = {
	.hidden = "hidden_size",
	.inter = "intermediate_size",
	.layers = "num_hidden_layers",
	.heads = "num_attention_heads",
	.kv_heads = "num_key_value_heads",
	.max_position = "max_position_embeddings",
	.eps = "rms_norm_eps",
	.act = "hidden_activation",
};

static const struct config_keys gpt2_keys = {
	.hidden = "n_embd",
	.inter = "n_inner",
	.layers = "n_layer",
	.heads = "n_head",
	.max_position = "n_positions",
	.eps = "layer_norm_epsilon",
	.act = "activation_function",
	.inter_is_4x = true,
};

static const struct config_keys opt_keys = {
	.hidden = "hidden_size",
	.inter = "ffn_dim",
	.layers = "num_hidden_layers",
	.heads = "num_attention_heads",
	.max_position = "max_position_embeddings",
	.act = "activation_function",
};

static const struct config_keys neox_keys = {
	.hidden = "hidden_size",
	.inter = "intermediate_size",
	.layers = "num_hidden_layers",
	.heads = "num_attention_heads",
	.max_position = "max_position_embeddings",
	.eps = "layer_norm_eps",
	.act = "hidden_act",
};

static const struct config_keys granite_keys = {
	.hidden = "hidden_size",
	.inter = "shared_intermediate_size",
	.layers = "num_hidden_layers",
	.heads = "num_attention_heads",
	.kv_heads = "num_key_value_heads",
	.max_position = "max_position_embeddings",
	.eps = "rms_norm_eps",
	.act = "hidden_act",
};

static const struct config_family llama = {
	.keys = &llama_keys,
	.preset = { .layout = LAYOUT_LLAMA, .gated = true, .act = KERN_SILU },
	.kv_is_heads = true,
	.rope_keys = ROPE_KEYS_PLAIN,
	.has_head_dim = true,
	.has_attn_bias = true,
	.has_mlp_bias = true,
};

static const struct config_family mistral = {
	.keys = &llama_keys,
	.preset = { .layout = LAYOUT_LLAMA, .gated = true, .act = KERN_SILU },
	.window = WINDOW_ALL,
	.def_window = 4096,
	.rope_keys = ROPE_KEYS_PLAIN,
	.has_head_dim = true,
};

static const struct config_family qwen2 = {
	.keys = &llama_keys,
	.preset = { .layout = LAYOUT_LLAMA, .gated = true, .act = KERN_SILU,
		    .qkv_bias = true },
	.window = WINDOW_UPPER,
	.def_window = 4096,
	.rope_keys = ROPE_KEYS_PLAIN,
	.has_head_dim = true,
};

static const struct config_family qwen3 = {
	.keys = &llama_keys,
	.preset = { .layout = LAYOUT_LLAMA, .gated = true, .act = KERN_SILU,
		    .qk_norm = QK_NORM_SHARED },
	.window = WINDOW_UPPER,
	.def_window = 4096,
	.rope_keys = ROPE_KEYS_PLAIN,
	.has_head_dim = true,
	.def_head_dim = 128,
	.has_attn_bias = true,
};

#define QWEN_EXPERTS							\
	.experts = "num_experts", .chosen = "num_experts_per_tok",	\
	.inter = "moe_intermediate_size", .norm = "norm_topk_prob",	\
	.every = "decoder_sparse_step", .dense = "mlp_only_layers"

static const struct config_expert_keys qwen3_experts = { QWEN_EXPERTS };

static const struct config_family qwen3_moe = {
	.keys = &llama_keys,
	.experts = &qwen3_experts,
	.preset = { .layout = LAYOUT_LLAMA, .gated = true, .act = KERN_SILU,
		    .qk_norm = QK_NORM_SHARED },
	.window = WINDOW_UNUSED,
	.rope_keys = ROPE_KEYS_PLAIN,
	.has_head_dim = true,
	.has_attn_bias = true,
};

static const struct config_expert_keys qwen2_experts = {
	QWEN_EXPERTS,
	.shared_inter = "shared_expert_intermediate_size",
};

static const struct config_family qwen2_moe = {
	.keys = &llama_keys,
	.experts = &qwen2_experts,
	.preset = { .layout = LAYOUT_LLAMA, .gated = true, .act = KERN_SILU,
		    .qkv_bias = true },
	.window = WINDOW_UPPER,
	.def_window = 4096,
	.rope_keys = ROPE_KEYS_PLAIN,
	.has_head_dim = true,
};

static const struct config_expert_keys mixtral_experts = {
	.experts = "num_local_experts",
	.chosen = "num_experts_per_tok",
};

static const struct config_family mixtral = {
	.keys = &llama_keys,
	.experts = &mixtral_experts,
	.preset = { .layout = LAYOUT_MIXTRAL, .gated = true, .act = KERN_SILU,
		    .moe = { .over_chosen = true } },
	.window = WINDOW_ALL,
	.rope_keys = ROPE_KEYS_PLAIN,
	.has_head_dim = true,
};

static const struct config_expert_keys olmoe_experts = {
	.experts = "num_experts",
	.chosen = "num_experts_per_tok",
	.norm = "norm_topk_prob",
};

static const struct config_family olmoe = {
	.keys = &llama_keys,
	.experts = &olmoe_experts,
	.preset = { .layout = LAYOUT_LLAMA, .gated = true, .act = KERN_SILU,
		    .qk_norm = QK_NORM_WHOLE },
	.kv_is_heads = true,
	.rope_keys = ROPE_KEYS_PLAIN,
	.has_head_dim = true,
	.has_attn_bias = true,
};

static const struct config_expert_keys deepseek_experts = {
	.experts = "n_routed_experts",
	.chosen = "num_experts_per_tok",
	.inter = "moe_intermediate_size",
	.first = "first_k_dense_replace",
	.shared = "n_shared_experts",
	.scale = "routed_scaling_factor",
	.method = "topk_method",
};

static const struct config_family deepseek2 = {
	.keys = &llama_keys,
	.experts = &deepseek_experts,
	.preset = { .layout = LAYOUT_LATENT, .gated = true, .act = KERN_SILU },
	.kv_is_heads = true,
	.rope_keys = ROPE_KEYS_PLAIN,
	.latent = true,
};

static const struct config_family phi3 = {
	.keys = &llama_keys,
	.preset = { .layout = LAYOUT_PHI3, .gated = true, .act = KERN_SILU },
	.window = WINDOW_ALL,
	.kv_is_heads = true,
	.rope_keys = ROPE_KEYS_PLAIN,
	.only_long_rope = true,
	.takes_part = true,
};

static const struct config_family gemma2 = {
	.keys = &gemma_keys,
	.preset = { .layout = LAYOUT_LLAMA, .gated = true,
		    .act = KERN_GELU_TANH, .norm_plus_one = true,
		    .post_norms = true, .tied = true, .attn_cap = 50.0f,
		    .final_cap = 30.0f },
	.window = WINDOW_PATTERN,
	.pattern = 2,
	.def_window = 4096,
	.rope_keys = ROPE_KEYS_PLAIN,
	.has_head_dim = true,
	.def_head_dim = 256,
	.has_attn_bias = true,
	.caps_attn = true,
	.gemma = true,
};

static const struct config_family gemma3 = {
	.keys = &gemma_keys,
	.preset = { .layout = LAYOUT_LLAMA, .gated = true,
		    .act = KERN_GELU_TANH, .norm_plus_one = true,
		    .post_norms = true, .tied = true, .qk_norm = QK_NORM_SHARED,
		    .two_ropes = true },
	.window = WINDOW_PATTERN,
	.pattern = 6,
	.def_window = 4096,
	.rope_keys = ROPE_KEYS_LOCAL,
	.has_head_dim = true,
	.def_head_dim = 256,
	.has_attn_bias = true,
	.gemma = true,
};

static const struct config_family gpt2 = {
	.keys = &gpt2_keys,
	.preset = { .layout = LAYOUT_GPT2, .act = KERN_GELU_TANH,
		    .layer_norm = true, .norm_bias = true, .tied = true,
		    .qkv_bias = true, .o_bias = true, .mlp_bias = true,
		    .learned = true },
	.more = config_read_gpt2,
};

static const struct config_family opt = {
	.keys = &opt_keys,
	.preset = { .layout = LAYOUT_OPT, .act = KERN_RELU,
		    .layer_norm = true, .norm_bias = true, .tied = true,
		    .qkv_bias = true, .o_bias = true, .mlp_bias = true,
		    .learned = true, .learned_from = 2, .norm_eps = 1e-5f },
	.more = config_read_opt,
};

static const struct config_family neox = {
	.keys = &neox_keys,
	.preset = { .layout = LAYOUT_NEOX, .act = KERN_GELU,
		    .layer_norm = true, .norm_bias = true, .parallel = true,
		    .qkv_bias = true, .o_bias = true, .mlp_bias = true },
	.has_parallel = true,
	.rope_keys = ROPE_KEYS_NEOX,
	.takes_part = true,
	.has_attn_bias = true,
};

static const struct config_expert_keys gpt_oss_experts = {
	.experts = "num_local_experts",
	.chosen = "num_experts_per_tok",
	.chosen_too = "experts_per_token",
	.clamped = true,
};

static const struct config_family gpt_oss = {
	.keys = &llama_keys,
	.experts = &gpt_oss_experts,
	.preset = { .layout = LAYOUT_GPT_OSS, .gated = true, .act = KERN_SILU,
		    .qkv_bias = true, .o_bias = true, .sinks = true,
		    .moe = { .over_chosen = true, .router_bias = true,
			     .expert_bias = true, .alpha = 1.702f,
			     .limit = 7.0f } },
	.window = WINDOW_TURNS,
	.def_window = 128,
	.rope_keys = ROPE_KEYS_PLAIN,
	.def_theta = 150000.0,
	.needs_rope = true,
	.has_head_dim = true,
	.def_head_dim = 64,
	.has_attn_bias = true,
};

/* Granite 4.0, dense: layers are recurrent or attend, and have the same MLP. */
static const struct config_family granite = {
	.keys = &granite_keys,
	.preset = { .layout = LAYOUT_GRANITE, .gated = true, .act = KERN_SILU },
	.kv_is_heads = true,
	.rope_keys = ROPE_KEYS_PLAIN,
	.has_attn_bias = true,
	.recurrent = RECURRENT_GRANITE,
};

static const struct config_family bamba = {
	.keys = &llama_keys,
	.preset = { .layout = LAYOUT_BAMBA, .gated = true, .act = KERN_SILU },
	.kv_is_heads = true,
	.rope_keys = ROPE_KEYS_PLAIN,
	.half_turns = true,
	.has_attn_bias = true,
	.has_mlp_bias = true,
	.recurrent = RECURRENT_BAMBA,
};

/* Granite 3, dense. */
static const struct config_family granite3 = {
	.keys = &llama_keys,
	.preset = { .layout = LAYOUT_LLAMA, .gated = true, .act = KERN_SILU },
	.kv_is_heads = true,
	.rope_keys = ROPE_KEYS_PLAIN,
	.has_head_dim = true,
	.has_attn_bias = true,
	.has_mlp_bias = true,
	.more = config_read_factors,
};

static const struct config_family olmo2 = {
	.keys = &llama_keys,
	.preset = { .layout = LAYOUT_LLAMA, .gated = true, .act = KERN_SILU,
		    .no_pre_norms = true, .post_norms = true,
		    .qk_norm = QK_NORM_WHOLE },
	.kv_is_heads = true,
	.rope_keys = ROPE_KEYS_PLAIN,
	.has_head_dim = true,
	.has_attn_bias = true,
};

static const struct config_family smollm3 = {
	.keys = &llama_keys,
	.preset = { .layout = LAYOUT_LLAMA, .gated = true, .act = KERN_SILU,
		    .tied = true },
	.window = WINDOW_UNTURNED,
	.rope_keys = ROPE_KEYS_PLAIN,
	.def_theta = 2000000.0,
	.has_head_dim = true,
	.has_attn_bias = true,
	.has_mlp_bias = true,
	.more = config_read_smollm3,
};

static const struct config_keys norm_keys = {
	.hidden = "hidden_size",
	.inter = "intermediate_size",
	.layers = "num_hidden_layers",
	.heads = "num_attention_heads",
	.kv_heads = "num_key_value_heads",
	.max_position = "max_position_embeddings",
	.eps = "layer_norm_eps",
	.act = "hidden_act",
};

static const struct config_family cohere = {
	.keys = &norm_keys,
	.preset = { .layout = LAYOUT_LLAMA, .gated = true, .act = KERN_SILU,
		    .layer_norm = true, .parallel = true, .shared_norm = true,
		    .tied = true, .turn_pairs = true },
	.kv_is_heads = true,
	.rope_keys = ROPE_KEYS_PLAIN,
	.def_theta = 500000.0,
	.has_head_dim = true,
	.has_attn_bias = true,
	.more = config_read_cohere,
};

static const struct config_family cohere2 = {
	.keys = &norm_keys,
	.preset = { .layout = LAYOUT_LLAMA, .gated = true, .act = KERN_SILU,
		    .layer_norm = true, .parallel = true, .shared_norm = true,
		    .tied = true, .turn_pairs = true },
	.kv_is_heads = true,
	.window = WINDOW_PATTERN,
	.pattern = 4,
	.def_window = 4096,
	.turns_local = true,
	.rope_keys = ROPE_KEYS_PLAIN,
	.has_head_dim = true,
	.has_attn_bias = true,
	.more = config_read_cohere,
};

static const struct config_family gemma1 = {
	.keys = &llama_keys,
	.preset = { .layout = LAYOUT_LLAMA, .gated = true,
		    .act = KERN_GELU_TANH, .norm_plus_one = true,
		    .tied = true },
	.rope_keys = ROPE_KEYS_PLAIN,
	.has_head_dim = true,
	.def_head_dim = 256,
	.has_attn_bias = true,
	.more = config_read_gemma1,
};

static const struct config_family phi = {
	.keys = &norm_keys,
	.preset = { .layout = LAYOUT_PHI, .act = KERN_GELU_TANH,
		    .layer_norm = true, .norm_bias = true, .parallel = true,
		    .shared_norm = true, .qkv_bias = true, .o_bias = true,
		    .mlp_bias = true, .head_bias = true },
	.kv_is_heads = true,
	.rope_keys = ROPE_KEYS_PLAIN,
	.def_part = 0.5,
	.takes_part = true,
	.has_head_dim = true,
	.more = config_read_phi,
};

static const struct config_keys starcoder2_keys = {
	.hidden = "hidden_size",
	.inter = "intermediate_size",
	.layers = "num_hidden_layers",
	.heads = "num_attention_heads",
	.kv_heads = "num_key_value_heads",
	.max_position = "max_position_embeddings",
	.eps = "norm_epsilon",
	.act = "hidden_act",
};

static const struct config_family starcoder2 = {
	.keys = &starcoder2_keys,
	.preset = { .layout = LAYOUT_STARCODER2, .act = KERN_GELU_TANH,
		    .layer_norm = true, .norm_bias = true, .tied = true,
		    .qkv_bias = true, .o_bias = true, .mlp_bias = true },
	.window = WINDOW_ALL,
	.rope_keys = ROPE_KEYS_PLAIN,
	.has_head_dim = true,
	.more = config_read_starcoder2,
};

static const struct config_family stablelm = {
	.keys = &norm_keys,
	.preset = { .layout = LAYOUT_STABLELM, .gated = true, .act = KERN_SILU,
		    .layer_norm = true, .norm_bias = true },
	.kv_is_heads = true,
	.rope_keys = ROPE_KEYS_PLAIN,
	.def_part = 0.25,
	.takes_part = true,
	.has_parallel = true,
	.more = config_read_stablelm,
};

static const struct {
	const char			*arch;
	const struct config_family	*row;
} families[] = {
#define x(name, row)	{ name, &row },
	MODEL_FAMILIES(x)
#undef x
};

const struct config_family *config_family_find(const char *arch,
					       const char **name)
{
	u32 i;

	for (i = 0; i < ARRAY_SIZE(families); i++) {
		if (!strcmp(arch, families[i].arch)) {
			*name = families[i].arch;
			return families[i].row;
		}
	}
	return NULL;
}

void config_family_list(char *buf, size_t size)
{
	size_t len = 0;
	const char *end;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(families) && len < size; i++) {
		end = strstr(families[i].arch, FAMILY_ENDING);
		len += snprintf(buf + len, size - len, "%s%.*s", i ? ", " : "",
				end ? (int)(end - families[i].arch) : 64,
				families[i].arch);
	}
}

/* Training, bookkeeping, defaults of sampling: no logit depends on them. */
static const char * const irrelevant[] = {
	"_attn_implementation", "_attn_implementation_autoset",
	"_flash_attn_2_enabled", "_name_or_path", "_num_labels",
	"activation_dropout", "attention_dropout",
	"attention_probs_dropout_prob", "attn_implementation", "attn_pdrop",
	"auto_map", "aux_loss_alpha", "bad_words_ids", "begin_suppress_tokens",
	"cache_implementation", "chunk_size_feed_forward",
	"classifier_dropout", "cls_token_id", "cross_attention_hidden_size",
	"custom_pipelines",
	"decoder_start_token_id", "diversity_penalty", "do_sample", "dropout",
	"early_stopping", "embd_pdrop", "encoder_no_repeat_ngram_size",
	"ep_size",
	"exponential_decay_length_penalty", "finetuning_task",
	"forced_bos_token_id", "forced_eos_token_id", "gradient_checkpointing",
	"hidden_dropout", "hidden_dropout_prob", "id2label", "init_method",
	"initial_context_length", "is_decoder",
	"is_llama_config", "label2id", "layerdrop", "length_penalty", "max_length", "max_new_tokens",
	"max_sequence_length", "min_length", "model_max_length", "model_type",
	"n_ctx", "n_special", "no_repeat_ngram_size",
	"normalization_function", "num_beam_groups", "num_beams",
	"num_logits_to_keep",
	"num_return_sequences", "output_attentions", "output_hidden_states",
	"output_past", "output_router_logits", "output_scores", "pad_token_id",
	"predict_special_tokens", "prefix",
	"pretraining_tp", "problem_type", "reorder_and_upcast_attn",
	"repetition_penalty", "resid_pdrop", "return_dict",
	"return_dict_in_generate", "router_aux_loss_coef", "router_jitter_noise", "sep_token_id", "seq_aux",
	"summary_activation",
	"summary_first_dropout", "summary_proj_to_labels", "summary_type",
	"summary_use_proj", "suppress_tokens", "task_specific_params",
	"temperature", "tie_encoder_decoder", "tokenizer_class", "top_k",
	"top_p", "torchscript", "transformers.js_config",
	"transformers_version", "typical_p", "unk_token_id", "unsloth_fixed",
	"unsloth_version", "use_bfloat16", "use_cache", "use_return_dict",
	"z_loss_coefficient",
};

/*
 * Switches that are supported only when they are off, or only when they are on.
 */
static const char * const off[] = {
	"_remove_final_layer_norm", "add_cross_attention", "attention_bias",
	"attention_multiplier", "attn_logit_softcapping",
	"embedding_multiplier", "final_logit_softcapping",
	"is_encoder_decoder", "logit_scale", "logits_scaling", "mlp_bias",
	"no_rope_layers", "num_experts", "num_local_experts", "pruned_heads",
	"query_pre_attn_scalar",
	"residual_multiplier", "rope_interleaved",
	"scale_attn_by_inverse_layer_idx", "sparse_attention",
	"use_bidirectional_attention",
	"use_mrope", "use_sliding_window",
};

static const char * const on[] = {
	"do_layer_norm_before", "enable_bias", "layer_norm_elementwise_affine",
	"scale_attn_weights",
};

static bool listed(const char * const *list, u32 nr, const char *key)
{
	u32 i;

	for (i = 0; i < nr; i++)
		if (!strcmp(list[i], key))
			return true;
	return false;
}

enum config_key config_key_kind(const char *key)
{
	if (listed(irrelevant, ARRAY_SIZE(irrelevant), key))
		return CONFIG_KEY_IRRELEVANT;
	if (listed(off, ARRAY_SIZE(off), key))
		return CONFIG_KEY_OFF;
	if (listed(on, ARRAY_SIZE(on), key))
		return CONFIG_KEY_ON;
	return CONFIG_KEY_UNKNOWN;
}
