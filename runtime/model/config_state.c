// SPDX-License-Identifier: Apache-2.0
/*
 * config_state.c - keys of models with recurrent layers
 *
 * "layer_types" says which layers are recurrent (Mamba-2) and which attend; Bamba lists
 * the numbers of those that attend.  Keys "mamba_*" have the sizes.  The sizes must agree
 * with each other, as the definitions of these models require; a file in which they do not
 * is refused here, before its tensors are read.
 */
#include "runtime/model/config_read.h"

/* Ranges of sizes: products of two fit 32 bits. */
#define MAX_STATE_HEADS	4096u

static void recurrent_set(struct model_config *cfg, u32 layer)
{
	cfg->recurrent[layer / 64] |= 1ull << (layer % 64);
	cfg->state.layers++;
}

static void state_read_types(struct mj_file *f, struct model_config *cfg)
{
	json_t *list = mj_top(f, "layer_types"), *v;
	const char *s;
	size_t i;

	if (f->ret)
		return;
	if (!json_is_array(list) || json_array_size(list) != cfg->layers) {
		mj_fail(f, -EINVAL, "layer_types", "is no list of a name for "
			"each of %u layers: copy the file again", cfg->layers);
		return;
	}
	json_array_foreach(list, i, v) {
		s = json_string_value(v);
		/* Newer files have the second names. */
		if (s && (!strcmp(s, "mamba") || !strcmp(s, "linear_attention")))
			recurrent_set(cfg, (u32)i);
		else if (!s || (strcmp(s, "attention") &&
				strcmp(s, "full_attention")))
			mj_fail(f, -EOPNOTSUPP, "layer_types", "\"%.40s\" is "
				"not supported: use a model with \"mamba\" "
				"and \"attention\"", s ? s : "?");
	}
	if (!f->ret && cfg->state.layers == cfg->layers)
		mj_fail(f, -EOPNOTSUPP, "layer_types", "names no layer with "
			"attention: use a model with at least one");
}

/* Bamba's key has the layers that are not recurrent. */
static void state_read_indices(struct mj_file *f, struct model_config *cfg)
{
	json_t *list = mj_top(f, "attn_layer_indices"), *v;
	bool attends[MODEL_MAX_LAYERS] = { false };
	size_t i;
	double d;

	if (f->ret)
		return;
	if (!json_is_array(list) || !json_array_size(list)) {
		mj_fail(f, -EOPNOTSUPP, "attn_layer_indices", "names no layer "
			"with attention: use a model with at least one");
		return;
	}
	json_array_foreach(list, i, v) {
		d = json_is_number(v) ? json_number_value(v) : -1;
		if (d < 0 || d >= cfg->layers || d != (u32)d) {
			mj_fail(f, -EINVAL, "attn_layer_indices", "holds something "
				"that is no number of %u layers: correct it",
				cfg->layers);
			return;
		}
		attends[(u32)d] = true;
	}
	for (i = 0; i < cfg->layers; i++)
		if (!attends[i])
			recurrent_set(cfg, (u32)i);
}

/* Half of a head is rotated, and the file may say so a second time. */
static void state_read_rotary(struct mj_file *f, struct model_config *cfg)
{
	u32 turns = config_rotary(cfg);

	mj_u32(f, f->root, "attn_rotary_emb", 0, 1u << 16, &turns);
	if (!f->ret && turns != config_rotary(cfg))
		mj_fail(f, -EOPNOTSUPP, "attn_rotary_emb", "%u is not half of a "
			"head of %u: use a model where it is", turns,
			cfg->head_dim);
}

/* Granite's experts are refused; keys about them mean nothing then. */
static void state_read_experts(struct mj_file *f)
{
	u32 experts = 8;

	mj_u32(f, f->root, "num_local_experts", 0, INT32_MAX, &experts);
	if (!f->ret && experts)
		mj_fail(f, -EOPNOTSUPP, "num_local_experts", "%u experts are "
			"not supported beside recurrent layers: use a model "
			"with 0", experts);
	mj_note(f, "num_experts_per_tok");
	mj_note(f, "intermediate_size");
}

void config_read_positions(struct mj_file *f, struct model_config *cfg)
{
	const char *type = mj_str(f, f->root, "position_embedding_type");

	cfg->unplaced = !type || !strcmp(type, "nope");
	if (type && !cfg->unplaced && strcmp(type, "rope"))
		mj_fail(f, -EOPNOTSUPP, "position_embedding_type", "\"%.40s\" is "
			"not supported: use a model with \"nope\" or \"rope\"",
			type);
	/* They are in every file, the second one in newer ones. */
	if (cfg->unplaced) {
		mj_note(f, "rope_theta");
		mj_note(f, "rope_parameters");
	}
}

/* The width of all heads must be the width that the projections have. */
static void state_check_heads(struct mj_file *f, struct model_config *cfg,
			      u32 expand)
{
	const struct config_state *s = &cfg->state;
	const u64 inner = (u64)expand * cfg->hidden;

	if (f->ret)
		return;
	if ((u64)s->heads * s->head_dim != inner)
		mj_fail(f, -EINVAL, "mamba_d_head", "%u times mamba_n_heads, %u, "
			"is not mamba_expand times hidden_size, %llu: correct "
			"it", s->head_dim, s->heads, (unsigned long long)inner);
	else if (s->heads % s->groups)
		mj_fail(f, -EINVAL, "mamba_n_groups", "%u does not divide "
			"mamba_n_heads, %u: correct it", s->groups, s->heads);
	else if (s->head_dim % KERN_DIM_ALIGN ||
		 s->head_dim > KERN_MAX_HEAD_DIM)
		mj_fail(f, -EOPNOTSUPP, "mamba_d_head", "%u is not supported: use "
			"a model with a multiple of %u, at most %u", s->head_dim,
			KERN_DIM_ALIGN, KERN_MAX_HEAD_DIM);
	else if (s->d_state % KERN_DIM_ALIGN || s->d_state > KERN_MAX_HEAD_DIM)
		mj_fail(f, -EOPNOTSUPP, "mamba_d_state", "%u is not supported: "
			"use a model with a multiple of %u, at most %u",
			s->d_state, KERN_DIM_ALIGN, KERN_MAX_HEAD_DIM);
	else if (s->conv < 2 || s->conv > KERN_MAX_CONV)
		mj_fail(f, -EOPNOTSUPP, "mamba_d_conv", "%u is not supported: use "
			"a model with 2 to %u", s->conv, KERN_MAX_CONV);
}

static void state_read_sizes(struct mj_file *f, struct model_config *cfg)
{
	struct config_state *s = &cfg->state;
	const char *head = json_string_value(mj_top(f, "mamba_d_head"));
	json_t *o = f->root;
	u32 expand = 2;
	bool biased = false;

	s->groups = 1;
	s->d_state = 256;
	s->conv = 4;
	s->conv_bias = true;
	mj_need_u32(f, o, "mamba_n_heads", 1, MAX_STATE_HEADS, &s->heads);
	mj_u32(f, o, "mamba_n_groups", 1, MAX_STATE_HEADS, &s->groups);
	mj_u32(f, o, "mamba_d_state", 1, 1u << 16, &s->d_state);
	mj_u32(f, o, "mamba_d_conv", 1, 1u << 16, &s->conv);
	mj_u32(f, o, "mamba_expand", 1, 1u << 10, &expand);
	mj_bool(f, o, "mamba_conv_bias", &s->conv_bias);
	mj_bool(f, o, "mamba_proj_bias", &biased);
	mj_note(f, "mamba_chunk_size");
	if (f->ret)
		return;
	s->head_dim = expand * cfg->hidden / s->heads;
	if (!head || strcmp(head, "auto"))
		mj_u32(f, o, "mamba_d_head", 1, 1u << 16, &s->head_dim);
	if (biased)
		mj_fail(f, -EOPNOTSUPP, "mamba_proj_bias", "asks for a feature "
			"that is not supported: use a model without it");
	if (cfg->act != KERN_SILU)
		mj_fail(f, -EOPNOTSUPP, "hidden_act", "is not supported in "
			"recurrent layers: use a model with \"silu\"");
	state_check_heads(f, cfg, expand);
}

void config_read_state(struct mj_file *f, const struct config_family *family,
		       struct model_config *cfg)
{
	if (family->recurrent == RECURRENT_BAMBA) {
		state_read_indices(f, cfg);
		state_read_rotary(f, cfg);
	} else {
		state_read_types(f, cfg);
		state_read_experts(f);
		config_read_factors(f, cfg);
	}
	state_read_sizes(f, cfg);
	/* Sizes of layers that the model does not have. */
	if (!cfg->state.layers)
		memset(&cfg->state, 0, sizeof(cfg->state));
}
