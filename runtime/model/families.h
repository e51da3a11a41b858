/* SPDX-License-Identifier: Apache-2.0 */
/*
 * families.h - architectures by name, and the presets of each name
 */
#ifndef RUNTIME_MODEL_FAMILIES_H
#define RUNTIME_MODEL_FAMILIES_H

#include "runtime/model/config.h"
#include "runtime/model/json.h"

/* Every architecture: its name, and the row of the table that describes it. */
#define MODEL_FAMILIES(x)						\
	x("LlamaForCausalLM",	llama)					\
	x("MistralForCausalLM",	mistral)				\
	x("Qwen2ForCausalLM",	qwen2)					\
	x("Qwen3ForCausalLM",	qwen3)					\
	x("Qwen3MoeForCausalLM", qwen3_moe)				\
	x("Qwen2MoeForCausalLM", qwen2_moe)				\
	x("MixtralForCausalLM",	mixtral)				\
	x("OlmoeForCausalLM",	olmoe)					\
	x("Phi3ForCausalLM",	phi3)					\
	x("Gemma2ForCausalLM",	gemma2)					\
	x("Gemma3ForCausalLM",	gemma3)					\
	x("GPT2LMHeadModel",	gpt2)					\
	x("OPTForCausalLM",	opt)					\
	x("DeepseekV2ForCausalLM", deepseek2)				\
	x("GPTNeoXForCausalLM",	neox)					\
	x("GptOssForCausalLM",	gpt_oss)				\
	x("GraniteMoeHybridForCausalLM", granite)			\
	x("BambaForCausalLM",	bamba)					\
	x("GraniteForCausalLM",	granite3)				\
	x("Olmo2ForCausalLM",	olmo2)					\
	x("SmolLM3ForCausalLM",	smollm3)				\
	x("CohereForCausalLM",	cohere)					\
	x("Cohere2ForCausalLM",	cohere2)				\
	x("GemmaForCausalLM",	gemma1)					\
	x("PhiForCausalLM",	phi)					\
	x("Starcoder2ForCausalLM", starcoder2)				\
	x("StableLmForCausalLM", stablelm)

/* Which layers are local if "layer_types" is missing. */
enum window_kind {
	WINDOW_NONE,		/* no layer, and no key for it */
	WINDOW_UNUSED,		/* no layer, but keys that say so */
	WINDOW_ALL,		/* all */
	WINDOW_UPPER,		/* from "max_window_layers" on, if used at all */
	WINDOW_UNTURNED,	/* those without rotation, if used at all */
	WINDOW_TURNS,		/* every other layer, from the first one on */
	WINDOW_PATTERN,		/* all but every "sliding_window_pattern"th */
};

/* The keys that name the recurrent layers. */
enum recurrent_keys {
	RECURRENT_NONE,		/* no layer, and no key for it */
	RECURRENT_GRANITE,	/* layer_types */
	RECURRENT_BAMBA,	/* attn_layer_indices has the others */
};

/* Which keys hold the position encoding. */
enum rope_keys {
	ROPE_KEYS_NONE,		/* learned positions */
	ROPE_KEYS_PLAIN,
	ROPE_KEYS_NEOX,		/* rotary_pct, rotary_emb_base */
	ROPE_KEYS_LOCAL,	/* rope_local_base_freq for local layers, too */
};

/**
 * struct config_keys - a family's names for sizes; NULL: it has no such key
 * @hidden:		width of the residual stream
 * @inter:		width of the MLP
 * @layers:		decoder layers
 * @heads:		query heads
 * @kv_heads:		KV heads
 * @max_position:	longest sequence
 * @eps:		epsilon of norms
 * @act:		activation
 * @inter_is_4x:	@inter may be missing; the default is four times @hidden
 */
struct config_keys {
	const char	*hidden;
	const char	*inter;
	const char	*layers;
	const char	*heads;
	const char	*kv_heads;
	const char	*max_position;
	const char	*eps;
	const char	*act;
	bool		inter_is_4x;
};

/**
 * struct config_expert_keys - a family's names for experts; NULL: it has no such key
 * @experts:	experts of a layer
 * @chosen:	experts that a token chooses
 * @chosen_too:	another name of @chosen in some files
 * @inter:	width of an expert; NULL: that of the MLP
 * @norm:	true: shares are divided by their sum; the default is false
 * @every:	layers with a number that is a multiple of it have experts, counted
 *		from 1; the default is 1
 * @dense:	list of layers without experts, counted from 0
 * @clamped:	"swiglu_alpha" and "swiglu_limit" are read
 * @first:	number of layers without experts that come first
 * @shared:	experts of all tokens, each as wide as the others
 * @shared_inter: width of the expert of all tokens, which has a gate
 * @scale:	factor on shares
 * @method:	how experts are chosen: "greedy", or "group_limited_greedy" with
 *		"n_group" groups, of which "topk_group" can be chosen from
 */
struct config_expert_keys {
	const char	*experts;
	const char	*chosen;
	const char	*chosen_too;
	const char	*inter;
	const char	*norm;
	const char	*every;
	const char	*dense;
	const char	*first;
	const char	*shared;
	const char	*shared_inter;
	const char	*scale;
	const char	*method;
	bool		clamped;
};

/**
 * struct config_family - one architecture
 * @keys:	names of its sizes
 * @experts:	names for experts; NULL: no layer has any
 * @preset:	switches that the name alone sets, and defaults of others
 * @kv_is_heads: num_key_value_heads may be missing; the default is all heads
 * @window:	which layers are local
 * @pattern:	WINDOW_PATTERN: default of the pattern
 * @def_window:	default of "sliding_window", 0 for none
 * @rope_keys:	keys of the position encoding
 * @def_theta:	default of "rope_theta", 0 for 10000
 * @needs_rope:	"rope_scaling" or "rope_parameters" must be there, since the default is
 *		not the plain encoding
 * @def_part:	default of "partial_rotary_factor", 0 for 1
 * @turns_local: heads are rotated in local layers alone
 * @only_long_rope: the context can be stretched by "longrope" alone
 * @takes_part:	only part of a head may be rotated
 * @has_head_dim: "head_dim" is read
 * @def_head_dim: default of "head_dim", 0 for hidden / heads
 * @has_attn_bias: "attention_bias" is read
 * @has_mlp_bias: "mlp_bias" is read
 * @has_parallel: "use_parallel_residual" is read
 * @caps_attn:	"attn_logit_softcapping" is read
 * @latent:	K and V are made of latent vectors
 * @recurrent:	layers may be recurrent; see config_state.c
 * @half_turns:	half of a head is rotated, whatever a key says
 * @more:	reads further keys; NULL: there are none
 * @gemma:	"query_pre_attn_scalar" and "final_logit_softcapping" are read,
 *		and embeddings are scaled
 */
struct config_family {
	const struct config_keys	*keys;
	const struct config_expert_keys	*experts;
	struct model_config		preset;
	bool				kv_is_heads;
	enum window_kind		window;
	u32				pattern;
	u32				def_window;
	enum rope_keys			rope_keys;
	double				def_theta;
	double				def_part;
	bool				turns_local;
	bool				needs_rope;
	bool				only_long_rope;
	bool				takes_part;
	bool				half_turns;
	bool				has_head_dim;
	u32				def_head_dim;
	bool				has_attn_bias;
	bool				has_mlp_bias;
	bool				has_parallel;
	bool				caps_attn;
	bool				latent;
	enum recurrent_keys		recurrent;
	void				(*more)(struct mj_file *f,
						struct model_config *cfg);
	bool				gemma;
};

/* The row of @arch, or NULL; @name becomes its name, a constant string. */
const struct config_family *config_family_find(const char *arch,
					       const char **name);

#define FAMILY_ENDING	"ForCausalLM"

/* All architectures, as "a, b, c", without that ending. */
void config_family_list(char *buf, size_t size);

/* Kinds of keys that the family does not read. */
enum config_key {
	CONFIG_KEY_UNKNOWN,
	CONFIG_KEY_IRRELEVANT,	/* changes no logit of inference */
	CONFIG_KEY_OFF,		/* known; must be false */
	CONFIG_KEY_ON,		/* known; must be true */
};

enum config_key config_key_kind(const char *key);

#endif /* RUNTIME_MODEL_FAMILIES_H */
