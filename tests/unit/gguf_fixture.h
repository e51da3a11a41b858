/* SPDX-License-Identifier: Apache-2.0 */
/*
 * gguf_fixture.h - models of tests/data/families as GGUF files
 *
 * The tensors of a folder get the names, shapes and orders that the conversion scripts
 * of llama.cpp give them, and the keys of its config.json become metadata.  Tables and
 * functions here go from the folder to the file, and share nothing with the loader.
 */
#ifndef TESTS_UNIT_GGUF_FIXTURE_H
#define TESTS_UNIT_GGUF_FIXTURE_H

#include "runtime/model/json.h"
#include "tests/unit/gguf_text.h"
#include "tests/unit/golden_fixture.h"

#define GW_MAX		1024u

/*
 * A tensor of the file; the contiguous dimension comes first.  @blocks, if it is set, has
 * the bytes of the file, in @kind, a number of GGUF's types.
 */
struct gw_tensor {
	char	name[128];
	u32	nr_dims;
	u64	dims[4];
	u64	nr;
	float	*v;
	void	*blocks;
	u64	bytes;
	u32	kind;
};

/* A file that is made: its architecture, its configuration, metadata and tensors. */
struct gw {
	const char		*arch;
	json_t			*cfg;
	FILE			*keys;
	char			*text;
	size_t			len;
	u32			nr_keys;
	struct gw_tensor	t[GW_MAX];
	u32			nr;
};

/* A name of a folder, the file's name, and architectures that have it (NULL: all). */
struct gw_name {
	const char	*hf;
	const char	*gguf;
	const char	*only;
};

static const struct gw_name gw_names[] = {
	{ "input_layernorm", "attn_norm", NULL },
	{ "post_attention_layernorm", "post_attention_norm",
	  "gemma2 gemma3 gpt-oss olmo2" },
	{ "post_attention_layernorm", "ffn_norm", NULL },
	{ "pre_feedforward_layernorm", "ffn_norm", NULL },
	{ "post_feedforward_layernorm", "post_ffw_norm", NULL },
	{ "self_attn.q_proj", "attn_q", NULL },
	{ "self_attn.k_proj", "attn_k", NULL },
	{ "self_attn.v_proj", "attn_v", NULL },
	{ "self_attn.o_proj", "attn_output", NULL },
	{ "self_attn.dense", "attn_output", NULL },
	{ "self_attn.q_norm", "attn_q_norm", NULL },
	{ "self_attn.k_norm", "attn_k_norm", NULL },
	{ "self_attn.sinks", "attn_sinks.weight", NULL },
	{ "self_attn.qkv_proj", "attn_qkv", NULL },
	{ "self_attn.q_a_proj", "attn_q_a", NULL },
	{ "self_attn.q_b_proj", "attn_q_b", NULL },
	{ "self_attn.q_a_layernorm", "attn_q_a_norm", NULL },
	{ "self_attn.kv_a_proj_with_mqa", "attn_kv_a_mqa", NULL },
	{ "self_attn.kv_a_layernorm", "attn_kv_a_norm", NULL },
	{ "self_attn.kv_b_proj", "attn_kv_b", NULL },
	{ "mlp.gate_proj", "ffn_gate", NULL },
	{ "mlp.up_proj", "ffn_up", NULL },
	{ "mlp.down_proj", "ffn_down", NULL },
	{ "mlp.gate_up_proj", "ffn_up", NULL },
	{ "mlp.gate", "ffn_gate_inp", NULL },
	{ "mlp.router", "ffn_gate_inp", NULL },
	{ "mlp.shared_expert.gate_proj", "ffn_gate_shexp", NULL },
	{ "mlp.shared_expert.up_proj", "ffn_up_shexp", NULL },
	{ "mlp.shared_expert.down_proj", "ffn_down_shexp", NULL },
	{ "mlp.shared_expert_gate", "ffn_gate_inp_shexp", NULL },
	{ "block_sparse_moe.gate", "ffn_gate_inp", NULL },
	{ "mlp.shared_experts.gate_proj", "ffn_gate_shexp", NULL },
	{ "mlp.shared_experts.up_proj", "ffn_up_shexp", NULL },
	{ "mlp.shared_experts.down_proj", "ffn_down_shexp", NULL },
	{ "mlp.fc1", "ffn_up", NULL },
	{ "mlp.fc2", "ffn_down", NULL },
	{ "mlp.c_fc", "ffn_up", NULL },
	{ "mlp.c_proj", "ffn_down", NULL },
	{ "ln_1", "attn_norm", NULL },
	{ "ln_2", "ffn_norm", NULL },
	{ "attn.c_attn", "attn_qkv", NULL },
	{ "attn.c_proj", "attn_output", NULL },
	{ "attention.query_key_value", "attn_qkv", NULL },
	{ "attention.dense", "attn_output", NULL },
	{ "mlp.dense_h_to_4h", "ffn_up", NULL },
	{ "mlp.dense_4h_to_h", "ffn_down", NULL },
	{ "mamba.in_proj", "ssm_in", NULL },
	{ "mamba.conv1d", "ssm_conv1d", NULL },
	{ "mamba.dt_bias", "ssm_dt.bias", NULL },
	{ "mamba.A_log", "ssm_a", NULL },
	{ "mamba.D", "ssm_d", NULL },
	{ "mamba.norm", "ssm_norm", NULL },
	{ "mamba.out_proj", "ssm_out", NULL },
	{ "shared_mlp.output_linear", "ffn_down", NULL },
	{ "embed_tokens", "token_embd", NULL },
	{ "wte", "token_embd", NULL },
	{ "wpe", "position_embd", NULL },
	{ "embed_in", "token_embd", NULL },
	{ "norm", "output_norm", NULL },
	{ "ln_f", "output_norm", NULL },
	{ "final_layer_norm", "output_norm", NULL },
	{ "final_layernorm", "output_norm", NULL },
	{ "lm_head", "output", NULL },
	{ "embed_out", "output", NULL },
};

/* Is the architecture one of these words? */
static inline bool gw_is(const struct gw *w, const char *archs)
{
	const size_t len = strlen(w->arch);
	const char *at = archs;

	for (; (at = strstr(at, w->arch)); at += len)
		if ((at == archs || at[-1] == ' ') &&
		    (!at[len] || at[len] == ' '))
			return true;
	return false;
}

/* ---- metadata ---- */

static inline double gw_num(const struct gw *w, const char *key, double none)
{
	const json_t *v = json_object_get(w->cfg, key);

	return json_is_number(v) ? json_number_value(v) : none;
}

static inline void gw_str(FILE *f, const char *s)
{
	gt_number(f, strlen(s), 8);
	fputs(s, f);
}

/* Begin a key; one that begins with '!' has no architecture before it. */
static inline void gw_key(struct gw *w, const char *key, u32 kind)
{
	char full[128];

	snprintf(full, sizeof(full), "%s%s%s", *key == '!' ? "" : w->arch,
		 *key == '!' ? "" : ".", key + (*key == '!'));
	gw_str(w->keys, full);
	gt_number(w->keys, kind, 4);
	w->nr_keys++;
}

static inline void gw_u32(struct gw *w, const char *key, u32 v)
{
	gw_key(w, key, 4);
	gt_number(w->keys, v, 4);
}

static inline void gw_f32(struct gw *w, const char *key, double d)
{
	const float v = (float)d;

	gw_key(w, key, 6);
	fwrite(&v, 4, 1, w->keys);
}

static inline void gw_bool(struct gw *w, const char *key, bool v)
{
	gw_key(w, key, 7);
	fputc(v, w->keys);
}

static inline void gw_text(struct gw *w, const char *key, const char *v)
{
	gw_key(w, key, 8);
	gw_str(w->keys, v);
}

/* Keys that only get another name; 'u' whole numbers, 'f' others, 'b' switches. */
static const struct {
	const char	*hf;
	const char	*gguf;
	char		kind;
} gw_keys[] = {
	{ "num_hidden_layers", "block_count", 'u' },
	{ "n_layer", "block_count", 'u' },
	{ "hidden_size", "embedding_length", 'u' },
	{ "n_embd", "embedding_length", 'u' },
	{ "num_attention_heads", "attention.head_count", 'u' },
	{ "n_head", "attention.head_count", 'u' },
	{ "max_position_embeddings", "context_length", 'u' },
	{ "n_positions", "context_length", 'u' },
	{ "head_dim", "attention.key_length", 'u' },
	{ "head_dim", "attention.value_length", 'u' },
	{ "rms_norm_eps", "attention.layer_norm_rms_epsilon", 'f' },
	{ "layer_norm_eps", "attention.layer_norm_epsilon", 'f' },
	{ "layer_norm_epsilon", "attention.layer_norm_epsilon", 'f' },
	{ "norm_epsilon", "attention.layer_norm_epsilon", 'f' },
	{ "rope_theta", "rope.freq_base", 'f' },
	{ "rotary_emb_base", "rope.freq_base", 'f' },
	{ "rope_local_base_freq", "rope.freq_base_swa", 'f' },
	{ "sliding_window_pattern", "attention.sliding_window_pattern", 'u' },
	{ "num_experts", "expert_count", 'u' },
	{ "num_local_experts", "expert_count", 'u' },
	{ "n_routed_experts", "expert_count", 'u' },
	{ "num_experts_per_tok", "expert_used_count", 'u' },
	{ "moe_intermediate_size", "expert_feed_forward_length", 'u' },
	{ "shared_expert_intermediate_size",
	  "expert_shared_feed_forward_length", 'u' },
	{ "n_shared_experts", "expert_shared_count", 'u' },
	{ "first_k_dense_replace", "leading_dense_block_count", 'u' },
	{ "routed_scaling_factor", "expert_weights_scale", 'f' },
	{ "norm_topk_prob", "expert_weights_norm", 'b' },
	{ "n_group", "expert_group_count", 'u' },
	{ "topk_group", "expert_group_used_count", 'u' },
	{ "kv_lora_rank", "attention.kv_lora_rank", 'u' },
	{ "q_lora_rank", "attention.q_lora_rank", 'u' },
	{ "qk_rope_head_dim", "rope.dimension_count", 'u' },
	{ "v_head_dim", "attention.value_length_mla", 'u' },
	{ "attn_logit_softcapping", "attn_logit_softcapping", 'f' },
	{ "final_logit_softcapping", "final_logit_softcapping", 'f' },
	{ "swiglu_limit", "swiglu_clamp_exp", 'f' },
	{ "use_parallel_residual", "use_parallel_residual", 'b' },
	{ "embedding_multiplier", "embedding_scale", 'f' },
	{ "attention_multiplier", "attention.scale", 'f' },
	{ "residual_multiplier", "residual_scale", 'f' },
	{ "logits_scaling", "logit_scale", 'f' },
	{ "logit_scale", "logit_scale", 'f' },
	{ "mamba_d_conv", "ssm.conv_kernel", 'u' },
	{ "mamba_d_state", "ssm.state_size", 'u' },
	{ "mamba_n_groups", "ssm.group_count", 'u' },
	{ "mamba_n_heads", "ssm.time_step_rank", 'u' },
	{ "shared_intermediate_size", "expert_shared_feed_forward_length",
	  'u' },
	{ "bos_token_id", "!tokenizer.ggml.bos_token_id", 'u' },
	{ "eos_token_id", "!tokenizer.ggml.eos_token_id", 'u' },
};

static inline void gw_plain_keys(struct gw *w)
{
	const json_t *v;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(gw_keys); i++) {
		v = json_object_get(w->cfg, gw_keys[i].hf);
		if (json_is_array(v))
			v = json_array_get(v, 0);
		/* Some folders have the epsilon twice. */
		if (!strcmp(gw_keys[i].hf, "layer_norm_epsilon") &&
		    json_object_get(w->cfg, "norm_epsilon"))
			continue;
		if (json_is_number(v) && gw_keys[i].kind == 'u')
			gw_u32(w, gw_keys[i].gguf, (u32)json_number_value(v));
		else if (json_is_number(v) && gw_keys[i].kind == 'f')
			gw_f32(w, gw_keys[i].gguf, json_number_value(v));
		else if (json_is_boolean(v) && gw_keys[i].kind == 'b')
			gw_bool(w, gw_keys[i].gguf, json_is_true(v));
	}
}

/* Of "longrope" there are the length before stretching and the gain, and no type. */
static inline void gw_long_keys(struct gw *w, const struct gw *inner)
{
	const double old = gw_num(w, "original_max_position_embeddings", 1);
	const double by = gw_num(w, "max_position_embeddings", 1) / old;
	const double gain = by <= 1 ? 1 : sqrt(1 + log(by) / log(old));

	gw_u32(w, "rope.scaling.original_context_length", (u32)old);
	gw_f32(w, "rope.scaling.attn_factor",
	       gw_num(inner, "attention_factor", gain));
}

static inline void gw_rope_keys(struct gw *w)
{
	const json_t *r = json_object_get(w->cfg, "rope_scaling");
	const char *type = json_string_value(json_object_get(r, "rope_type"));
	const double heads = gw_num(w, "num_attention_heads", 1);
	const double dim = gw_num(w, "head_dim",
				  gw_num(w, "hidden_size", 0) / heads);
	double part = gw_num(w, "partial_rotary_factor",
			     gw_num(w, "rotary_pct", 0));
	struct gw inner = *w;

	part = part == 1 ? 0 : part;
	if (part)
		gw_u32(w, "rope.dimension_count", (u32)(part * dim));
	if (!type)
		type = json_string_value(json_object_get(r, "type"));
	if (!type || !strcmp(type, "llama3"))
		return;
	inner.cfg = (json_t *)r;
	if (!strcmp(type, "longrope")) {
		gw_long_keys(w, &inner);
		return;
	}
	gw_text(w, "rope.scaling.type", type);
	gw_f32(w, "rope.scaling.factor", gw_num(&inner, "factor", 1));
	if (strcmp(type, "yarn"))
		return;
	gw_u32(w, "rope.scaling.original_context_length",
	       (u32)gw_num(&inner, "original_max_position_embeddings", 1));
	gw_f32(w, "rope.scaling.yarn_beta_fast", gw_num(&inner, "beta_fast", 32));
	gw_f32(w, "rope.scaling.yarn_beta_slow", gw_num(&inner, "beta_slow", 1));
	if (gw_num(&inner, "mscale_all_dim", 0))
		gw_f32(w, "rope.scaling.yarn_log_multiplier",
		       0.1 * gw_num(&inner, "mscale_all_dim", 0));
}

/* KV heads: one number, or one for each layer where some are recurrent. */
static inline void gw_kv_heads(struct gw *w)
{
	const u32 kv = (u32)gw_num(w, "num_key_value_heads", 0);
	const json_t *types = json_object_get(w->cfg, "layer_types");
	size_t i;
	json_t *v;

	if (!strcmp(w->arch, "deepseek2"))
		gw_u32(w, "attention.head_count_kv", 1);
	else if (kv && strcmp(w->arch, "granitehybrid"))
		gw_u32(w, "attention.head_count_kv", kv);
	if (strcmp(w->arch, "granitehybrid"))
		return;
	gw_key(w, "attention.head_count_kv", 9);
	gt_number(w->keys, 5, 4);
	gt_number(w->keys, json_array_size(types), 8);
	json_array_foreach(types, i, v)
		gt_number(w->keys, strcmp(json_string_value(v), "mamba") ? kv :
								   0, 4);
}

/* Keys with values that follow from others. */
static inline void gw_more_keys(struct gw *w)
{
	const u32 hidden = (u32)gw_num(w, "hidden_size", gw_num(w, "n_embd", 0));
	const char *place = json_string_value(json_object_get(w->cfg,
						"position_embedding_type"));
	const double scalar = gw_num(w, "query_pre_attn_scalar", 0);
	const bool window = !strncmp(w->arch, "qwen", 4);

	gw_u32(w, "feed_forward_length",
	       (u32)gw_num(w, "intermediate_size", 4 * hidden));
	if (!strcmp(w->arch, "gpt-oss"))
		gw_u32(w, "expert_feed_forward_length",
		       (u32)gw_num(w, "intermediate_size", 0));
	if (!window && gw_num(w, "sliding_window", 0))
		gw_u32(w, "attention.sliding_window",
		       (u32)gw_num(w, "sliding_window", 0));
	if (scalar)
		gw_f32(w, "attention.scale", 1 / sqrt(scalar));
	if (gw_num(w, "qk_nope_head_dim", 0))
		gw_u32(w, "attention.key_length_mla",
		       (u32)(gw_num(w, "qk_nope_head_dim", 0) +
			     gw_num(w, "qk_rope_head_dim", 0)));
	if (place)
		gw_bool(w, "rope.scaling.finetuned", !strcmp(place, "rope"));
	if (gw_num(w, "mamba_expand", 0))
		gw_u32(w, "ssm.inner_size",
		       (u32)gw_num(w, "mamba_expand", 2) * hidden);
}

/* ---- tensors ---- */

static inline struct gw_tensor *gw_find(struct gw *w, const char *name)
{
	u32 i;

	for (i = 0; i < w->nr; i++)
		if (!strcmp(w->t[i].name, name))
			return &w->t[i];
	return NULL;
}

/* A tensor of @nr dimensions, the contiguous one first; a list ends with 0. */
static inline struct gw_tensor *gw_new(struct gw *w, const char *name, u64 d0,
				       u64 d1, u64 d2)
{
	struct gw_tensor *t = &w->t[w->nr++];

	ck_assert_uint_le(w->nr, GW_MAX);
	snprintf(t->name, sizeof(t->name), "%s", name);
	t->dims[0] = d0;
	t->dims[1] = d1;
	t->dims[2] = d2;
	t->nr_dims = d2 ? 3 : d1 ? 2 : 1;
	t->nr = d0 * (d1 ? d1 : 1) * (d2 ? d2 : 1);
	t->v = calloc(t->nr, sizeof(*t->v));
	ck_assert_ptr_nonnull(t->v);
	return t;
}

/* The file's name for a name of the folder behind prefix and layer; NULL: none. */
static inline const char *gw_rename(const struct gw *w, const char *hf, char *out)
{
	const struct gw_name *n;
	size_t len;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(gw_names); i++) {
		n = &gw_names[i];
		len = strlen(n->hf);
		if (strncmp(hf, n->hf, len) || (hf[len] && hf[len] != '.') ||
		    (n->only && !gw_is(w, n->only)))
			continue;
		snprintf(out, 64, "%s%s", n->gguf, hf + len);
		return out;
	}
	return NULL;
}

/* The rows of each head's halves become neighbours. */
static inline void gw_pairs(float *v, u64 rows, u64 cols, u32 heads)
{
	const u64 half = rows / heads / 2;
	float *old = malloc(rows * cols * sizeof(*old));
	u64 h, i, s;

	memcpy(old, v, rows * cols * sizeof(*old));
	for (h = 0; h < heads; h++)
		for (i = 0; i < half; i++)
			for (s = 0; s < 2; s++)
				memcpy(v + ((h * half + i) * 2 + s) * cols,
				       old + ((h * 2 + s) * half + i) * cols,
				       cols * sizeof(*v));
	free(old);
}

/* Rows of q, k and v head by head become all q, all k, all v. */
static inline void gw_qkv(float *v, u64 rows, u64 cols, u32 heads)
{
	const u64 dim = rows / heads / 3;
	float *old = malloc(rows * cols * sizeof(*old));
	u64 h, p;

	memcpy(old, v, rows * cols * sizeof(*old));
	for (h = 0; h < heads; h++)
		for (p = 0; p < 3; p++)
			memcpy(v + (p * heads + h) * dim * cols,
			       old + (h * 3 + p) * dim * cols,
			       dim * cols * sizeof(*v));
	free(old);
}

/* Change the numbers as the converter of the architecture does. */
static inline void gw_change(struct gw *w, struct gw_tensor *t, const char *rest)
{
	const u32 heads = (u32)gw_num(w, "num_attention_heads", 1);
	const u32 kv = (u32)gw_num(w, "num_key_value_heads", heads);
	const u64 cols = t->nr_dims > 1 ? t->dims[0] : 1;
	const u64 rows = t->nr / cols;
	u64 i;

	if (gw_is(w, "llama granite granitehybrid smollm3") &&
	    !strncmp(rest, "attn_q.", 7))
		gw_pairs(t->v, rows, cols, heads);
	if (gw_is(w, "llama granite granitehybrid smollm3") &&
	    !strncmp(rest, "attn_k.", 7))
		gw_pairs(t->v, rows, cols, kv);
	if (!strcmp(w->arch, "gptneox") && !strncmp(rest, "attn_qkv.", 9))
		gw_qkv(t->v, rows, cols, heads);
	for (i = 0; i < t->nr && !strncmp(w->arch, "gemma", 5) &&
	     strstr(rest, "norm"); i++)
		t->v[i] += 1.0f;
	for (i = 0; i < t->nr && !strcmp(rest, "ssm_a"); i++)
		t->v[i] = -expf(t->v[i]);
}

/* Shapes that differ. */
static inline void gw_reshape(struct gw *w, struct gw_tensor *t, const char *rest)
{
	const u32 groups = (u32)gw_num(w, "mamba_n_groups", 1);

	if (!strcmp(rest, "ssm_a") || !strcmp(rest, "ssm_d")) {
		t->nr_dims = 2;
		t->dims[1] = t->dims[0];
		t->dims[0] = 1;
	} else if (!strcmp(rest, "ffn_gate_inp_shexp.weight")) {
		t->nr_dims = 1;
	} else if (!strcmp(rest, "ssm_norm.weight")) {
		t->nr_dims = 2;
		t->dims[0] /= groups;
		t->dims[1] = groups;
	} else if (!strcmp(rest, "ssm_conv1d.weight")) {
		t->nr_dims = 2;
		t->dims[1] = t->dims[2];
	}
}

/* An expert's matrix, or a head's norm: a slice of a tensor of all of them. */
static inline void gw_slice(struct gw *w, const struct st_tensor *s,
			    const char *name, u32 i, u32 nr)
{
	const u64 cols = s->shape[s->nr_dims - 1];
	struct gw_tensor *t = gw_find(w, name);

	if (!t)
		t = s->nr_dims == 1 ? gw_new(w, name, cols, nr, 0) :
		    gw_new(w, name, cols, s->shape[0], nr);
	memcpy(t->v + i * s->nr_elems, s->data, s->nr_elems * sizeof(*t->v));
}

/* The joined and turned experts of gpt-oss: rows of their own, gate apart from up. */
static inline void gw_gpt_oss(struct gw *w, const struct st_tensor *s,
			      const char *blk, const char *rest)
{
	const bool pairs = strstr(rest, "gate_up"), bias = strstr(rest, "_bias");
	const u64 cols = bias ? 1 : s->shape[1];
	const u64 rows = s->shape[s->nr_dims - 1], nr = s->shape[0];
	const float *v = s->data;
	struct gw_tensor *t[2];
	char name[64];
	u64 e, r, c;
	u32 i;

	for (i = 0; i < (pairs ? 2 : 1); i++) {
		snprintf(name, sizeof(name), "%sffn_%s_exps.%s", blk, !pairs ?
			 "down" : i ? "up" : "gate", bias ? "bias" : "weight");
		t[i] = bias ? gw_new(w, name, rows / (pairs + 1), nr, 0) :
		       gw_new(w, name, cols, rows / (pairs + 1), nr);
	}
	for (e = 0; e < nr; e++)
		for (c = 0; c < cols; c++)
			for (r = 0; r < rows; r++) {
				i = pairs ? r % 2 : 0;
				t[i]->v[(e * rows / (pairs + 1) +
					 r / (pairs + 1)) * cols + c] =
					v[(e * cols + c) * rows + r];
			}
}

/* The matrix of keys with rows and columns exchanged, and that of values. */
static inline void gw_kv_b(struct gw *w, const struct st_tensor *s,
			   const char *blk)
{
	const u64 heads = (u64)gw_num(w, "num_attention_heads", 1);
	const u64 nope = (u64)gw_num(w, "qk_nope_head_dim", 1);
	const u64 value = (u64)gw_num(w, "v_head_dim", 1), rank = s->shape[1];
	struct gw_tensor *k, *v;
	const float *from = s->data;
	char name[64];
	u64 h, r, c;

	snprintf(name, sizeof(name), "%sattn_k_b.weight", blk);
	k = gw_new(w, name, nope, rank, heads);
	snprintf(name, sizeof(name), "%sattn_v_b.weight", blk);
	v = gw_new(w, name, rank, value, heads);
	for (h = 0; h < heads; h++, from += (nope + value) * rank) {
		for (r = 0; r < nope; r++)
			for (c = 0; c < rank; c++)
				k->v[(h * rank + c) * nope + r] =
					from[r * rank + c];
		memcpy(v->v + h * value * rank, from + nope * rank,
		       value * rank * sizeof(*from));
	}
}

/* Halves of the rows of a joined tensor. */
static inline void gw_halves(struct gw *w, const struct st_tensor *s,
			     const char *blk)
{
	const char *names[] = { "ffn_gate.weight", "ffn_up.weight" };
	char name[64];
	u32 i;

	for (i = 0; i < 2; i++) {
		snprintf(name, sizeof(name), "%s%s", blk, names[i]);
		memcpy(gw_new(w, name, s->shape[1], s->shape[0] / 2, 0)->v,
		       (const float *)s->data + i * s->nr_elems / 2,
		       s->nr_elems / 2 * sizeof(float));
	}
}

/* Exchange rows and columns. */
static inline void gw_turn(struct gw_tensor *t)
{
	float *old = malloc(t->nr * sizeof(*old));
	const u64 rows = t->dims[1], cols = t->dims[0];
	u64 r, c;

	memcpy(old, t->v, t->nr * sizeof(*old));
	for (r = 0; r < rows; r++)
		for (c = 0; c < cols; c++)
			t->v[c * rows + r] = old[r * cols + c];
	t->dims[0] = rows;
	t->dims[1] = cols;
	free(old);
}

/* Tensors with a form of their own; false: it has none. */
static inline bool gw_special(struct gw *w, const struct st_tensor *s,
			      const char *blk, const char *rest)
{
	char what[32], name[128];
	u32 i;

	if (sscanf(rest, "mlp.experts.%u.%31[a-z]_proj.weight", &i, what) == 2) {
		snprintf(name, sizeof(name), "%sffn_%s_exps.weight", blk, what);
		gw_slice(w, s, name, i, (u32)gw_num(w, "num_experts",
			 gw_num(w, "n_routed_experts", 0)));
	} else if (sscanf(rest, "block_sparse_moe.experts.%u.w%1[123].weight",
			  &i, what) == 2) {
		snprintf(name, sizeof(name), "%sffn_%s_exps.weight", blk,
			 *what == '1' ? "gate" : *what == '2' ? "down" : "up");
		gw_slice(w, s, name, i, (u32)gw_num(w, "num_local_experts", 0));
	} else if (sscanf(rest, "self_attn.%c_layernorm.norms.%u.weight", what,
			  &i) == 2) {
		what[1] = '\0';
		snprintf(name, sizeof(name), "%sattn_%s_norm.weight", blk, what);
		gw_slice(w, s, name, i, (u32)gw_num(w, *what == 'q' ?
			 "num_attention_heads" : "num_key_value_heads", 1));
	} else if (!strncmp(rest, "mlp.experts.", 12)) {
		gw_gpt_oss(w, s, blk, rest);
	} else if (!strncmp(rest, "self_attn.kv_b_proj", 19)) {
		gw_kv_b(w, s, blk);
	} else if (!strncmp(rest, "shared_mlp.input_linear", 23)) {
		gw_halves(w, s, blk);
	} else {
		return false;
	}
	return true;
}

static inline void gw_tensor(struct gw *w, const struct st_tensor *s)
{
	const char *rest = strstr(s->name, "layers."), *dot;
	char blk[32] = "", name[64], full[96];
	struct gw_tensor *t;
	u32 layer, i;

	rest = rest ? rest : strstr(s->name, ".h.");
	if (rest && sscanf(strpbrk(rest, "0123456789"), "%u", &layer) == 1) {
		snprintf(blk, sizeof(blk), "blk.%u.", layer);
		rest = strchr(strpbrk(rest, "0123456789"), '.') + 1;
	} else {
		rest = strncmp(s->name, "lm_head", 7) &&
		       strncmp(s->name, "embed_out", 9) ?
		       strchr(s->name, '.') + 1 : s->name;
	}
	if (gw_special(w, s, blk, rest))
		return;
	dot = gw_rename(w, rest, name);
	ck_assert_msg(dot != NULL, "%s", s->name);
	snprintf(full, sizeof(full), "%s%s", blk, name);
	t = gw_new(w, full, s->shape[0], 0, 0);
	t->nr_dims = s->nr_dims;
	for (i = 0; i < s->nr_dims; i++)
		t->dims[i] = s->shape[s->nr_dims - 1 - i];
	t->nr = s->nr_elems;
	free(t->v);
	t->v = malloc(t->nr * sizeof(*t->v));
	memcpy(t->v, s->data, t->nr * sizeof(*t->v));
	if (!strcmp(w->arch, "gpt2") && *blk && t->nr_dims == 2)
		gw_turn(t);
	gw_change(w, t, name);
	gw_reshape(w, t, name);
}

/* Divisors of frequencies that stand for "llama3". */
static inline void gw_llama3(struct gw *w)
{
	const json_t *r = json_object_get(w->cfg, "rope_scaling");
	const u32 dim = (u32)(gw_num(w, "hidden_size", 0) /
			      gw_num(w, "num_attention_heads", 1));
	const double theta = gw_num(w, "rope_theta", 1e4);
	struct gw in = { .cfg = (json_t *)r };
	const double factor = gw_num(&in, "factor", 1);
	const double low = gw_num(&in, "low_freq_factor", 1);
	const double high = gw_num(&in, "high_freq_factor", 4);
	const double old = gw_num(&in, "original_max_position_embeddings", 1);
	struct gw_tensor *t;
	double wave, mix;
	u32 i;

	if (!low || !json_object_get(r, "low_freq_factor"))
		return;
	t = gw_new(w, "rope_freqs.weight", dim / 2, 0, 0);
	for (i = 0; i < dim / 2; i++) {
		wave = 2 * M_PI * pow(theta, 2.0 * i / dim);
		mix = (old / wave - low) / (high - low);
		t->v[i] = (float)(wave < old / high ? 1 : wave > old / low ?
				  factor : 1 / ((1 - mix) / factor + mix));
	}
}

/* Divisors of frequencies of "longrope", for short texts and for long ones. */
static inline void gw_long(struct gw *w)
{
	static const char * const names[][2] = {
		{ "short_factor", "rope_factors_short.weight" },
		{ "long_factor", "rope_factors_long.weight" },
	};
	const json_t *r = json_object_get(w->cfg, "rope_scaling"), *list, *v;
	struct gw_tensor *t;
	size_t i, j;

	for (i = 0; i < 2; i++) {
		list = json_object_get(r, names[i][0]);
		if (!list)
			return;
		t = gw_new(w, names[i][1], json_array_size(list), 0, 0);
		json_array_foreach(list, j, v)
			t->v[j] = (float)json_number_value(v);
	}
}

/* ---- the file ---- */

/* Write 32 numbers as a block of Q8_0; @v becomes what the block says. */
static inline void gw_block(FILE *f, float *v)
{
	float most = 0, scale;
	u32 bits, i;
	s8 q;

	for (i = 0; i < 32; i++)
		most = fmaxf(most, fabsf(v[i]));
	/* A power of two is an f16. */
	scale = most ? ldexpf(1, (int)ceilf(log2f(most / 127))) : 0x1p-10f;
	memcpy(&bits, &scale, 4);
	gt_number(f, ((bits >> 23) - 112) << 10, 2);
	for (i = 0; i < 32; i++) {
		q = (s8)lrintf(v[i] / scale);
		fputc(q, f);
		v[i] = q * scale;
	}
}

/* The type of a tensor where matrices have @type: 0 F32, 1 F16, 30 BF16, 8 Q8_0. */
static inline u32 gw_type(const struct gw_tensor *t, u32 type)
{
	if (t->blocks)
		return t->kind;
	if (t->nr_dims == 1 || !strncmp(t->name, "blk.0.ssm", 9) ||
	    strstr(t->name, ".ssm_") || strstr(t->name, "norm") ||
	    strstr(t->name, ".bias") || (type == 8 && t->dims[0] % 32))
		return 0;
	return type;
}

static inline void gw_data(FILE *f, struct gw_tensor *t, u32 type)
{
	u64 i;

	if (t->blocks)
		fwrite(t->blocks, 1, t->bytes, f);
	for (i = 0; !t->blocks && i < t->nr; i += type == 8 ? 32 : 1) {
		if (type == 8)
			gw_block(f, t->v + i);
		else
			tiny_put(f, type == 1 ? TINY_F16 : type ? TINY_BF16 :
								  TINY_F32, t->v[i]);
	}
	while (ftell(f) % 32)
		fputc(0, f);
}

static inline u64 gw_bytes(const struct gw_tensor *t, u32 type)
{
	if (t->blocks)
		return t->bytes;
	return type == 8 ? t->nr / 32 * 34 : t->nr * (type ? 2 : 4);
}

/* Write the tensors from @first on, every @step-th. */
static inline void gw_file(struct gw *w, const char *file, u32 first, u32 step,
			   u32 type)
{
	FILE *f = dir_open(file, "w");
	u64 at = 0;
	u32 i, j, of;

	fputs("GGUF", f);
	gt_number(f, 3, 4);
	gt_number(f, (w->nr - first + step - 1) / step, 8);
	gt_number(f, (first ? 0 : w->nr_keys) + (step > 1 ? 3 : 0), 8);
	if (!first)
		fwrite(w->text, 1, w->len, f);
	if (step > 1) {
		gw_str(f, "split.no");
		gt_number(f, 2, 4);
		gt_number(f, first, 2);
		gw_str(f, "split.count");
		gt_number(f, 2, 4);
		gt_number(f, step, 2);
		gw_str(f, "split.tensors.count");
		gt_number(f, 5, 4);
		gt_number(f, w->nr, 4);
	}
	for (i = first; i < w->nr; i += step) {
		of = gw_type(&w->t[i], type);
		gw_str(f, w->t[i].name);
		gt_number(f, w->t[i].nr_dims, 4);
		for (j = 0; j < w->t[i].nr_dims; j++)
			gt_number(f, w->t[i].dims[j], 8);
		gt_number(f, of, 4);
		gt_number(f, at, 8);
		at = ALIGN_UP(at + gw_bytes(&w->t[i], of), 32ull);
	}
	while (ftell(f) % 32)
		fputc(0, f);
	for (i = first; i < w->nr; i += step)
		gw_data(f, &w->t[i], gw_type(&w->t[i], type));
	ck_assert_int_eq(fclose(f), 0);
}

/* Architectures of GGUF files by those of folders. */
static const char * const gw_archs[][2] = {
	{ "LlamaForCausalLM", "llama" }, { "MistralForCausalLM", "llama" },
	{ "Qwen2ForCausalLM", "qwen2" }, { "Qwen3ForCausalLM", "qwen3" },
	{ "Qwen3MoeForCausalLM", "qwen3moe" }, { "Phi3ForCausalLM", "phi3" },
	{ "Qwen2MoeForCausalLM", "qwen2moe" }, { "OlmoeForCausalLM", "olmoe" },
	{ "MixtralForCausalLM", "llama" },
	{ "Gemma2ForCausalLM", "gemma2" }, { "Gemma3ForCausalLM", "gemma3" },
	{ "GPT2LMHeadModel", "gpt2" }, { "GPTNeoXForCausalLM", "gptneox" },
	{ "DeepseekV2ForCausalLM", "deepseek2" },
	{ "GptOssForCausalLM", "gpt-oss" },
	{ "GraniteMoeHybridForCausalLM", "granitehybrid" },
	{ "GraniteForCausalLM", "granite" }, { "Olmo2ForCausalLM", "olmo2" },
	{ "SmolLM3ForCausalLM", "smollm3" },
	{ "CohereForCausalLM", "command-r" },
	{ "Cohere2ForCausalLM", "cohere2" }, { "GemmaForCausalLM", "gemma" },
	{ "PhiForCausalLM", "phi2" }, { "Starcoder2ForCausalLM", "starcoder2" },
	{ "StableLmForCausalLM", "stablelm" },
};

/* The folder of the case as metadata and tensors; to be freed with gw_free(). */
static inline struct gw *gw_make(const struct ckpt *c)
{
	struct gw *w = calloc(1, sizeof(*w));
	char path[320];
	const char *hf;
	u32 i;

	snprintf(path, sizeof(path), "%s/config.json", fixture_dir);
	w->cfg = json_load_file(path, 0, NULL);
	ck_assert_ptr_nonnull(w->cfg);
	hf = json_string_value(json_array_get(json_object_get(w->cfg,
						"architectures"), 0));
	for (i = 0; i < ARRAY_SIZE(gw_archs); i++)
		if (!strcmp(gw_archs[i][0], hf))
			w->arch = gw_archs[i][1];
	ck_assert_ptr_nonnull(w->arch);
	w->keys = open_memstream(&w->text, &w->len);
	gw_text(w, "!general.architecture", w->arch);
	gw_plain_keys(w);
	gw_rope_keys(w);
	gw_kv_heads(w);
	gw_more_keys(w);
	fclose(w->keys);
	for (i = 0; i < c->nr_tensors; i++)
		gw_tensor(w, c->tensors[i]);
	gw_llama3(w);
	gw_long(w);
	return w;
}

static inline void gw_free(struct gw *w)
{
	u32 i;

	for (i = 0; i < w->nr; i++) {
		free(w->t[i].v);
		free(w->t[i].blocks);
	}
	free(w->text);
	json_decref(w->cfg);
	free(w);
}

#endif /* TESTS_UNIT_GGUF_FIXTURE_H */
