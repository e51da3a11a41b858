/* SPDX-License-Identifier: Apache-2.0 */
/*
 * families.h - architectures by name, and what each name presets
 */
#ifndef RUNTIME_MODEL_FAMILIES_H
#define RUNTIME_MODEL_FAMILIES_H

#include "runtime/model/config.h"

/* Every architecture: its name, and the row of the table that describes it. */
#define MODEL_FAMILIES(x)						\
	x("LlamaForCausalLM",	llama)					\
	x("MistralForCausalLM",	mistral)				\
	x("Qwen2ForCausalLM",	qwen2)					\
	x("Qwen3ForCausalLM",	qwen3)					\
	x("Phi3ForCausalLM",	phi3)					\
	x("Gemma2ForCausalLM",	gemma2)					\
	x("Gemma3ForCausalLM",	gemma3)					\
	x("GPT2LMHeadModel",	gpt2)					\
	x("OPTForCausalLM",	opt)					\
	x("GPTNeoXForCausalLM",	neox)

/* Which layers are local, unless "layer_types" says it. */
enum window_kind {
	WINDOW_NONE,		/* no layer, and no key about it */
	WINDOW_ALL,		/* all */
	WINDOW_UPPER,		/* from "max_window_layers" on, if used at all */
	WINDOW_PATTERN,		/* all but every "sliding_window_pattern"th */
};

/* Which keys say how positions are encoded. */
enum rope_keys {
	ROPE_KEYS_NONE,		/* learned positions */
	ROPE_KEYS_PLAIN,
	ROPE_KEYS_NEOX,		/* rotary_pct, rotary_emb_base */
	ROPE_KEYS_LOCAL,	/* and rope_local_base_freq for local layers */
};

/**
 * struct config_keys - what a family calls its sizes; NULL: has no such key
 * @hidden:		width of the residual stream
 * @inter:		width of the MLP
 * @layers:		decoder layers
 * @heads:		query heads
 * @kv_heads:		KV heads
 * @max_position:	longest sequence
 * @eps:		of norms
 * @act:		activation
 * @inter_is_4x:	@inter may be missing, and is then four times @hidden
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
 * struct config_family - one architecture
 * @keys:	what it calls its sizes
 * @preset:	switches that the name alone sets, and defaults of others
 * @kv_is_heads: num_key_value_heads may be missing, and is then that of all
 * @window:	which layers are local
 * @pattern:	WINDOW_PATTERN: its default
 * @def_window:	"sliding_window" if that is missing, 0 for none
 * @rope_keys:	how positions are said
 * @only_plain_rope: no stretched context, whatever the type is called
 * @takes_part:	a part of a head may turn
 * @has_head_dim: "head_dim" is read
 * @def_head_dim: what it is if missing, 0 for hidden / heads
 * @has_attn_bias: "attention_bias" is read
 * @has_mlp_bias: "mlp_bias" is read
 * @caps_attn:	"attn_logit_softcapping" is read
 * @gemma:	"query_pre_attn_scalar" and "final_logit_softcapping" are
 *		read, and embeddings are scaled
 */
struct config_family {
	const struct config_keys	*keys;
	struct model_config		preset;
	bool				kv_is_heads;
	enum window_kind		window;
	u32				pattern;
	u32				def_window;
	enum rope_keys			rope_keys;
	bool				only_plain_rope;
	bool				takes_part;
	bool				has_head_dim;
	u32				def_head_dim;
	bool				has_attn_bias;
	bool				has_mlp_bias;
	bool				caps_attn;
	bool				gemma;
};

/* The row of @arch, or NULL; @name becomes its name, a constant string. */
const struct config_family *config_family_find(const char *arch,
					       const char **name);

/* All architectures, as "a, b, c". */
void config_family_list(char *buf, size_t size);

/* What a key that the family did not ask for may be. */
enum config_key {
	CONFIG_KEY_UNKNOWN,
	CONFIG_KEY_IRRELEVANT,	/* changes no logit of inference */
	CONFIG_KEY_OFF,		/* known; must be false */
	CONFIG_KEY_ON,		/* known; must be true */
};

enum config_key config_key_kind(const char *key);

#endif /* RUNTIME_MODEL_FAMILIES_H */
