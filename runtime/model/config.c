// SPDX-License-Identifier: Apache-2.0
/*
 * config.c - config.json and generation_config.json into switches
 *
 * The decoder knows no model family.  A family is a row of a table here: it
 * presets switches and says which keys it understands; the rest of the keys
 * set the other switches.  Nothing after this file looks at the name again.
 *
 * Rules.  A key that changes the arithmetic is either understood or refused
 * by name; a default is used only where the family's own definition has that
 * default.  Keys that the definition of the family does not read are ignored,
 * as its authors' programs ignore them.  Ranges are checked here, once, such
 * that products of two sizes fit 64 bits everywhere.
 */
#include <stdio.h>

#include "kernels/kernels.h"
#include "runtime/model/config.h"
#include "runtime/model/json.h"

#define CONFIG_FILE	"config.json"
#define GENERATION_FILE	"generation_config.json"

/**
 * struct config_family - an architecture by name, and what it presets
 * @arch:	first entry of "architectures"
 * @qkv_bias:	the projections of q, k and v have a bias, always
 * @qk_norm:	heads of q and k are normalised, always
 * @has_window:	"sliding_window" is a number of positions, or null
 */
struct config_family {
	const char	*arch;
	bool		qkv_bias;
	bool		qk_norm;
	bool		has_window;
};

static const struct config_family families[] = {
	{ .arch = "LlamaForCausalLM" },
	{ .arch = "MistralForCausalLM", .has_window = true },
	{ .arch = "Qwen2ForCausalLM", .qkv_bias = true },
	{ .arch = "Qwen3ForCausalLM", .qk_norm = true },
};

/* Keys that must be absent, null or false: they ask for what we lack. */
static const char * const refused_keys[] = {
	"attention_bias", "mlp_bias", "quantization_config",
	"use_sliding_window", "attn_logit_softcapping",
	"final_logit_softcapping", "query_pre_attn_scalar", "num_experts",
	"num_local_experts", "embedding_multiplier", "residual_multiplier",
	"attention_multiplier", "logits_scaling", "logit_scale",
	"no_rope_layers",
};

/* All architectures, as "a, b, c", for a message. */
static void config_list_families(char *buf, size_t size)
{
	size_t len = 0;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(families) && len < size; i++)
		len += snprintf(buf + len, size - len, "%s%s", i ? ", " : "",
				families[i].arch);
}

static const struct config_family *config_family_find(struct mj_file *f)
{
	json_t *list = mj_get(f->root, "architectures");
	const char *arch = json_string_value(json_array_get(list, 0));
	char known[160];
	u32 i;

	if (!arch || json_array_size(list) != 1) {
		mj_fail(f, -EINVAL, "architectures", "is not a list of one "
			"name: copy the file again");
		return NULL;
	}
	for (i = 0; i < ARRAY_SIZE(families); i++)
		if (!strcmp(arch, families[i].arch))
			return &families[i];
	config_list_families(known, sizeof(known));
	mj_fail(f, -EOPNOTSUPP, "architectures", "\"%.60s\" is not supported: "
		"use a model of %s", arch, known);
	return NULL;
}

static void config_refuse_features(struct mj_file *f)
{
	json_t *v;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(refused_keys); i++) {
		v = mj_get(f->root, refused_keys[i]);
		if (v && !json_is_false(v))
			mj_fail(f, -EOPNOTSUPP, refused_keys[i], "asks for a "
				"feature that is not supported: use a model "
				"without it");
	}
}

static void config_check_act(struct mj_file *f)
{
	const char *act = mj_str(f, f->root, "hidden_act");

	if (act && strcmp(act, "silu") && strcmp(act, "swish"))
		mj_fail(f, -EOPNOTSUPP, "hidden_act", "\"%.40s\" is not "
			"supported: use a model with \"silu\"", act);
}

/* Layers of other kinds than full attention are refused. */
static void config_check_layer_types(struct mj_file *f)
{
	json_t *list = mj_get(f->root, "layer_types"), *v;
	const char *s;
	size_t i;

	json_array_foreach(list, i, v) {
		s = json_string_value(v);
		if (!s || strcmp(s, "full_attention"))
			mj_fail(f, -EOPNOTSUPP, "layer_types", "\"%.40s\" is "
				"not supported: use a model with "
				"\"full_attention\" alone", s ? s : "?");
	}
}

static void config_read_window(struct mj_file *f,
			       const struct config_family *family,
			       struct model_config *cfg)
{
	json_t *uses = mj_get(f->root, "use_sliding_window");

	/* Qwen states a window and, beside it, that it is not used. */
	if (json_is_false(uses))
		return;
	mj_u32(f, f->root, "sliding_window", 1, INT32_MAX, &cfg->window);
	if (cfg->window && !family->has_window)
		mj_fail(f, -EOPNOTSUPP, "sliding_window", "is not supported "
			"for %s: use a model without it", family->arch);
	if (cfg->window >= cfg->max_position)
		cfg->window = 0;
}

static void config_read_sizes(struct mj_file *f, struct model_config *cfg)
{
	json_t *o = f->root;

	mj_need_u32(f, o, "vocab_size", 1, 1u << 24, &cfg->vocab);
	mj_need_u32(f, o, "hidden_size", 1, 1u << 20, &cfg->hidden);
	mj_need_u32(f, o, "intermediate_size", 1, 1u << 22, &cfg->inter);
	mj_need_u32(f, o, "num_hidden_layers", 1, 4096, &cfg->layers);
	mj_need_u32(f, o, "num_attention_heads", 1, 4096, &cfg->heads);
	mj_need_u32(f, o, "max_position_embeddings", 1, INT32_MAX,
		    &cfg->max_position);
	cfg->kv_heads = cfg->heads;
	mj_u32(f, o, "num_key_value_heads", 1, 4096, &cfg->kv_heads);
	if (!f->ret && cfg->heads % cfg->kv_heads)
		mj_fail(f, -EINVAL, "num_key_value_heads", "%u does not divide "
			"num_attention_heads, %u: correct it", cfg->kv_heads,
			cfg->heads);
}

static void config_read_head_dim(struct mj_file *f, struct model_config *cfg)
{
	if (f->ret)
		return;
	if (mj_has(f, "head_dim"))
		mj_u32(f, f->root, "head_dim", 1, 1u << 16, &cfg->head_dim);
	else if (cfg->hidden % cfg->heads)
		mj_fail(f, -EINVAL, "head_dim", "is missing, and hidden_size "
			"%u is no multiple of num_attention_heads %u: copy "
			"the file again", cfg->hidden, cfg->heads);
	else
		cfg->head_dim = cfg->hidden / cfg->heads;
	if (!f->ret && (cfg->head_dim % KERN_DIM_ALIGN ||
			cfg->head_dim > KERN_MAX_HEAD_DIM))
		mj_fail(f, -EOPNOTSUPP, "head_dim", "%u is not supported: use "
			"a model with a multiple of %u, at most %u",
			cfg->head_dim, KERN_DIM_ALIGN, KERN_MAX_HEAD_DIM);
}

/* The dictionary may hold what its type knows, and nothing else. */
static void config_check_rope_keys(struct mj_file *f, const char *where,
				   json_t *dict, enum rope_type type)
{
	static const struct {
		const char	*key;
		u32		types;	/* BIT(enum rope_type) */
	} known[] = {
		{ "type", ~0u },
		{ "rope_type", ~0u },
		{ "rope_theta", ~0u },
		{ "factor", BIT(ROPE_LINEAR) | BIT(ROPE_LLAMA3) },
		{ "low_freq_factor", BIT(ROPE_LLAMA3) },
		{ "high_freq_factor", BIT(ROPE_LLAMA3) },
		{ "original_max_position_embeddings", BIT(ROPE_LLAMA3) },
	};
	const char *key;
	json_t *v;
	u32 i;

	json_object_foreach(dict, key, v) {
		for (i = 0; i < ARRAY_SIZE(known); i++)
			if (!strcmp(key, known[i].key) &&
			    (known[i].types & BIT(type)))
				break;
		if (i == ARRAY_SIZE(known) && !json_is_null(v))
			mj_fail(f, -EOPNOTSUPP, where, "\"%.40s\" is not "
				"supported with type \"%s\": use a model "
				"without it", key, rope_type_name(type));
	}
}

static void config_rope_type(struct mj_file *f, const char *where,
			     json_t *dict, struct rope_config *r)
{
	const char *name = mj_str(f, dict, "rope_type");
	u32 i;

	if (!name)
		name = mj_str(f, dict, "type");
	if (!name) {
		mj_fail(f, -EINVAL, where, "has no \"rope_type\": copy the "
			"file again");
		return;
	}
	for (i = 0; i < NR_ROPE_TYPES; i++) {
		if (!strcmp(name, rope_type_name(i))) {
			r->type = i;
			return;
		}
	}
	mj_fail(f, -EOPNOTSUPP, where, "type \"%.40s\" is not supported: use "
		"a model with \"default\", \"linear\" or \"llama3\"", name);
}

static void config_rope_dict(struct mj_file *f, const char *where,
			     json_t *dict, struct rope_config *r)
{
	if (!json_is_object(dict)) {
		mj_fail(f, -EINVAL, where, "is no object: correct it");
		return;
	}
	config_rope_type(f, where, dict, r);
	if (f->ret)
		return;
	config_check_rope_keys(f, where, dict, r->type);
	mj_real(f, dict, "rope_theta", 1.0, 1e12, &r->theta);
	if (r->type == ROPE_DEFAULT)
		return;
	mj_need_real(f, dict, "factor", 1.0, 1e6, &r->factor);
	if (r->type == ROPE_LINEAR)
		return;
	mj_need_real(f, dict, "low_freq_factor", 1e-3, 1e6, &r->low_freq);
	mj_need_real(f, dict, "high_freq_factor", 1e-3, 1e6, &r->high_freq);
	mj_need_u32(f, dict, "original_max_position_embeddings", 1, INT32_MAX,
		    &r->original);
	if (!f->ret && r->high_freq <= r->low_freq)
		mj_fail(f, -EINVAL, "high_freq_factor", "is not above "
			"low_freq_factor: correct it");
}

/*
 * Two spellings: rope_theta and rope_scaling side by side, and the newer
 * rope_parameters with both in it.
 */
static void config_read_rope(struct mj_file *f, struct rope_config *r)
{
	json_t *scaling = mj_get(f->root, "rope_scaling");
	json_t *params = mj_get(f->root, "rope_parameters");
	double part = 1.0;

	r->type = ROPE_DEFAULT;
	r->theta = 10000.0;
	r->factor = 1.0;
	mj_real(f, f->root, "rope_theta", 1.0, 1e12, &r->theta);
	mj_real(f, f->root, "partial_rotary_factor", 0.0, 1.0, &part);
	if (part != 1.0)
		mj_fail(f, -EOPNOTSUPP, "partial_rotary_factor", "%g is not "
			"supported: use a model with 1", part);
	if (params && scaling && !json_equal(params, scaling))
		mj_fail(f, -EINVAL, "rope_parameters", "and rope_scaling "
			"differ: delete the wrong one");
	if (params)
		config_rope_dict(f, "rope_parameters", params, r);
	else if (scaling)
		config_rope_dict(f, "rope_scaling", scaling, r);
}

static void config_add_eos(struct mj_file *f, json_t *v,
			   struct model_config *cfg)
{
	const double d = json_number_value(v);

	if (!json_is_number(v) || d < 0 || d >= cfg->vocab || d != (u32)d)
		mj_fail(f, -EINVAL, "eos_token_id", "holds something that is "
			"no token id: correct it");
	else if (cfg->nr_eos == MODEL_MAX_EOS)
		mj_fail(f, -EOPNOTSUPP, "eos_token_id", "has more than %u ids: "
			"shorten it", MODEL_MAX_EOS);
	else
		cfg->eos_ids[cfg->nr_eos++] = d;
}

/* bos and eos; eos is one id or a list.  What is absent stays as it was. */
static void config_read_ids(struct mj_file *f, struct model_config *cfg)
{
	json_t *eos = mj_get(f->root, "eos_token_id"), *v;
	u32 bos;
	size_t i;

	if (f->ret)
		return;
	if (mj_has(f, "bos_token_id")) {
		mj_need_u32(f, f->root, "bos_token_id", 0, cfg->vocab - 1,
			    &bos);
		if (!f->ret)
			cfg->bos_id = bos;
	}
	if (!eos)
		return;
	cfg->nr_eos = 0;
	if (!json_is_array(eos))
		config_add_eos(f, eos, cfg);
	json_array_foreach(eos, i, v)
		config_add_eos(f, v, cfg);
}

static void config_parse(struct mj_file *f, struct model_config *cfg)
{
	const struct config_family *family = config_family_find(f);
	double eps = 0.0;

	if (!family)
		return;
	cfg->arch = family->arch;
	cfg->qkv_bias = family->qkv_bias;
	cfg->qk_norm = family->qk_norm;
	cfg->bos_id = -1;
	config_refuse_features(f);
	config_check_act(f);
	config_check_layer_types(f);
	config_read_sizes(f, cfg);
	config_read_head_dim(f, cfg);
	config_read_window(f, family, cfg);
	config_read_rope(f, &cfg->rope);
	mj_need_real(f, f->root, "rms_norm_eps", 0.0, 1.0, &eps);
	cfg->norm_eps = eps;
	mj_bool(f, f->root, "tie_word_embeddings", &cfg->tied);
	config_read_ids(f, cfg);
}

int model_config_read(const char *dir, struct model_config *cfg,
		struct model_error *err)
{
	struct mj_file f;
	int ret;

	memset(cfg, 0, sizeof(*cfg));
	ret = mj_open(&f, dir, CONFIG_FILE, JSON_DECODE_INT_AS_REAL, err);
	if (!ret) {
		config_parse(&f, cfg);
		ret = f.ret;
	}
	mj_close(&f);
	return ret;
}

static void generation_parse(struct mj_file *f, struct model_generation *g)
{
	static const struct {
		const char	*key;
		u32		bit;
	} keys[] = {
		{ "do_sample",		MODEL_GEN_DO_SAMPLE },
		{ "temperature",	MODEL_GEN_TEMPERATURE },
		{ "top_p",		MODEL_GEN_TOP_P },
		{ "top_k",		MODEL_GEN_TOP_K },
		{ "min_p",		MODEL_GEN_MIN_P },
		{ "repetition_penalty",	MODEL_GEN_REPETITION_PENALTY },
		{ "max_new_tokens",	MODEL_GEN_MAX_NEW_TOKENS },
	};
	u32 i;

	for (i = 0; i < ARRAY_SIZE(keys); i++)
		if (mj_has(f, keys[i].key))
			g->has |= keys[i].bit;
	mj_bool(f, f->root, "do_sample", &g->do_sample);
	mj_real(f, f->root, "temperature", 0.0, 1000.0, &g->temperature);
	mj_real(f, f->root, "top_p", 0.0, 1.0, &g->top_p);
	mj_u32(f, f->root, "top_k", 0, INT32_MAX, &g->top_k);
	mj_real(f, f->root, "min_p", 0.0, 1.0, &g->min_p);
	mj_real(f, f->root, "repetition_penalty", 1e-3, 1000.0,
		&g->repetition_penalty);
	mj_u32(f, f->root, "max_new_tokens", 0, INT32_MAX,
	       &g->max_new_tokens);
}

int model_config_generation(const char *dir, struct model_config *cfg,
			   struct model_generation *gen,
			   struct model_error *err)
{
	struct model_error none;
	struct mj_file f;
	int ret;

	memset(gen, 0, sizeof(*gen));
	ret = mj_open(&f, dir, GENERATION_FILE, JSON_DECODE_INT_AS_REAL,
		      &none);
	f.err = err;
	if (ret == -ENOENT) {
		ret = 0;
	} else if (ret) {
		if (err)
			*err = none;
	} else {
		generation_parse(&f, gen);
		config_read_ids(&f, cfg);
		ret = f.ret;
	}
	mj_close(&f);
	return ret;
}
