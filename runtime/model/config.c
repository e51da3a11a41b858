// SPDX-License-Identifier: Apache-2.0
/*
 * config.c - config.json and generation_config.json to switches
 *
 * The decoder knows no model family.  A family is a row of a table in
 * families.c: it presets switches, has the names of the family's sizes and says
 * which optional keys the family reads.  The keys set the other switches.  No
 * code after this file looks at the row again.
 *
 * Rules.  A default is used only where the family's own definition has that
 * default.  Every key of the file must have been read, or be known to change
 * nothing, or be a switch in the one position that is supported.  Any other key
 * is refused by name, because it may change the arithmetic.  Ranges are checked
 * here, once, such that products of two sizes fit 64 bits everywhere.
 */
#include <math.h>
#include <stdio.h>

#include "runtime/model/config_read.h"
#include "runtime/model/gguf_model.h"

#define CONFIG_FILE	"config.json"
#define GENERATION_FILE	"generation_config.json"

/* Judge a key that was not read. */
static void config_refuse_key(struct mj_file *f, const char *key, json_t *v,
			      void *arg)
{
	const struct model_config *cfg = arg;
	const bool empty = json_is_false(v) ||
			   (json_is_number(v) && !json_number_value(v)) ||
			   (json_is_array(v) && !json_array_size(v)) ||
			   (json_is_object(v) && !json_object_size(v));

	switch (config_key_kind(key)) {
	case CONFIG_KEY_IRRELEVANT:
		return;
	case CONFIG_KEY_OFF:
		if (!empty)
			mj_fail(f, -EOPNOTSUPP, key, "asks for a feature that "
				"is not supported: use a model without it");
		return;
	case CONFIG_KEY_ON:
		if (!json_is_true(v))
			mj_fail(f, -EOPNOTSUPP, key, "asks to leave out what "
				"is always there: use a model with true");
		return;
	case CONFIG_KEY_UNKNOWN:
		break;
	}
	mj_fail(f, -EOPNOTSUPP, key, "is not known for %s, and may change "
		"what it computes: use a model without it", cfg->arch);
}

static void config_read_act(struct mj_file *f,
			    const struct config_family *family,
			    struct model_config *cfg)
{
	static const struct {
		const char	*name;
		enum kern_act	act;
	} acts[] = {
		{ "silu",		KERN_SILU },
		{ "swish",		KERN_SILU },
		{ "gelu",		KERN_GELU },
		{ "gelu_python",	KERN_GELU },
		{ "gelu_new",		KERN_GELU_TANH },
		{ "gelu_fast",		KERN_GELU_TANH },
		{ "gelu_pytorch_tanh",	KERN_GELU_TANH },
		{ "relu",		KERN_RELU },
	};
	const char *act = mj_str(f, f->root, family->keys->act);
	u32 i;

	/* Gemma's files also have the key of older files. */
	if (family->gemma)
		mj_note(f, "hidden_act");
	if (!act)
		return;
	for (i = 0; i < ARRAY_SIZE(acts); i++) {
		if (!strcmp(act, acts[i].name)) {
			cfg->act = acts[i].act;
			return;
		}
	}
	mj_fail(f, -EOPNOTSUPP, family->keys->act, "\"%.40s\" is not "
		"supported: use a model with \"silu\", \"gelu\", "
		"\"gelu_pytorch_tanh\" or \"relu\"", act);
}

static void config_read_sizes(struct mj_file *f,
			      const struct config_family *family,
			      struct model_config *cfg)
{
	const struct config_keys *k = family->keys;
	json_t *o = f->root;

	mj_need_u32(f, o, "vocab_size", 1, 1u << 24, &cfg->vocab);
	mj_need_u32(f, o, k->hidden, 1, 1u << 20, &cfg->hidden);
	if (k->inter_is_4x && !mj_has(f, k->inter))
		cfg->inter = 4 * cfg->hidden;
	else
		mj_need_u32(f, o, k->inter, 1, 1u << 22, &cfg->inter);
	mj_need_u32(f, o, k->layers, 1, MODEL_MAX_LAYERS, &cfg->layers);
	mj_need_u32(f, o, k->heads, 1, 4096, &cfg->heads);
	mj_need_u32(f, o, k->max_position, 1, INT32_MAX - 16,
		    &cfg->max_position);
	cfg->kv_heads = cfg->heads;
	if (!k->kv_heads)
		return;
	/*
	 * Other families require the key; null means that every head has its
	 * own KV.
	 */
	if (!family->kv_is_heads && !json_object_get(o, k->kv_heads))
		mj_fail(f, -EINVAL, k->kv_heads, "is missing: copy the file "
			"again");
	mj_u32(f, o, k->kv_heads, 1, 4096, &cfg->kv_heads);
	if (!f->ret && cfg->heads % cfg->kv_heads)
		mj_fail(f, -EINVAL, k->kv_heads, "%u does not divide "
			"num_attention_heads, %u: correct it", cfg->kv_heads,
			cfg->heads);
}

static void config_read_head_dim(struct mj_file *f,
				 const struct config_family *family,
				 struct model_config *cfg)
{
	if (f->ret)
		return;
	cfg->head_dim = family->def_head_dim;
	if (family->has_head_dim && mj_has(f, "head_dim"))
		mj_u32(f, f->root, "head_dim", 1, 1u << 16, &cfg->head_dim);
	else if (!cfg->head_dim && cfg->hidden % cfg->heads)
		mj_fail(f, -EINVAL, "head_dim", "is missing, and hidden_size "
			"%u is no multiple of num_attention_heads %u: copy "
			"the file again", cfg->hidden, cfg->heads);
	else if (!cfg->head_dim)
		cfg->head_dim = cfg->hidden / cfg->heads;
	if (!f->ret && (cfg->head_dim % KERN_HEAD_ALIGN ||
			cfg->head_dim > KERN_MAX_HEAD_DIM))
		mj_fail(f, -EOPNOTSUPP, "head_dim", "%u is not supported: use "
			"a model with a multiple of %u, at most %u",
			cfg->head_dim, KERN_HEAD_ALIGN, KERN_MAX_HEAD_DIM);
	cfg->attn_scale = 1.0f / sqrtf(cfg->head_dim);
}

static void config_read_biases(struct mj_file *f,
			       const struct config_family *family,
			       struct model_config *cfg)
{
	if (family->has_attn_bias && mj_has(f, "attention_bias")) {
		mj_bool(f, f->root, "attention_bias", &cfg->qkv_bias);
		cfg->o_bias = cfg->qkv_bias;
	}
	if (family->has_mlp_bias)
		mj_bool(f, f->root, "mlp_bias", &cfg->mlp_bias);
	if (family->has_parallel)
		mj_bool(f, f->root, "use_parallel_residual", &cfg->parallel);
}

/* Read a soft cap; null turns off a cap that the family has by default. */
static void config_read_cap(struct mj_file *f, const char *key, float *cap)
{
	double v = *cap;

	if (json_is_null(json_object_get(f->root, key)))
		v = 0;
	mj_real(f, f->root, key, 1e-3, 1e6, &v);
	*cap = v;
}

static void config_read_gemma(struct mj_file *f,
			      const struct config_family *family,
			      struct model_config *cfg)
{
	double scalar = 256;

	if (family->caps_attn)
		config_read_cap(f, "attn_logit_softcapping", &cfg->attn_cap);
	config_read_cap(f, "final_logit_softcapping", &cfg->final_cap);
	mj_real(f, f->root, "query_pre_attn_scalar", 1e-3, 1e9, &scalar);
	cfg->attn_scale = 1.0 / sqrt(scalar);
	cfg->embed_scale = sqrtf(cfg->hidden);
}

#define DEF_INIT_RANGE	0.02

static const struct {
	const char	*name;
	enum kern_dtype	type;
} config_types[] = {
	{ "float32", KERN_F32 },
	{ "bfloat16", KERN_BF16 },
	{ "float16", KERN_F16 },
};

static void config_read_type(struct mj_file *f, struct model_config *cfg)
{
	const char *type = mj_str(f, f->root, "torch_dtype");
	const char *newer = mj_str(f, f->root, "dtype");
	u32 i;

	if (newer)
		type = newer;
	for (i = 0; type && i < ARRAY_SIZE(config_types); i++) {
		if (strcmp(type, config_types[i].name))
			continue;
		cfg->type = config_types[i].type;
		cfg->says_type = true;
	}
}

/* Type and spread of weights, for made-up ones. */
static void config_read_made_up(struct mj_file *f, struct model_config *cfg)
{
	double range = DEF_INIT_RANGE;

	config_read_type(f, cfg);
	cfg->file_type = cfg->says_type && cfg->type != KERN_F32 ? KERN_BF16 :
								   KERN_F32;
	mj_real(f, f->root, "init_std", 0, 1e6, &range);
	mj_real(f, f->root, "initializer_range", 0, 1e6, &range);
	cfg->init_range = range < 1e-4 || range > 1e4 ? DEF_INIT_RANGE : range;
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

/* bos and eos; eos is one id or a list.  A missing key changes nothing. */
static void config_read_ids(struct mj_file *f, struct model_config *cfg)
{
	json_t *eos = mj_top(f, "eos_token_id"), *v;
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
	const struct config_family *family = config_read_family(f, cfg);
	const char *arch = cfg->arch;
	double eps;

	if (!family)
		return;
	*cfg = family->preset;
	cfg->arch = arch;
	cfg->bos_id = -1;
	cfg->embed_scale = cfg->residual_scale = cfg->logits_scale = 1.0f;
	config_read_act(f, family, cfg);
	config_read_sizes(f, family, cfg);
	cfg->embed_dim = cfg->hidden;
	if (family->latent)
		config_read_latent(f, cfg);
	else
		config_read_head_dim(f, family, cfg);
	if (family->recurrent == RECURRENT_GRANITE)
		config_read_positions(f, cfg);
	config_read_rope(f, family, cfg);
	if (family->latent && !f->ret)
		config_latent_scale(cfg);
	config_read_biases(f, family, cfg);
	if (family->more && !f->ret)
		family->more(f, cfg);
	if (family->recurrent)
		config_read_state(f, family, cfg);
	else
		config_read_window(f, family, cfg);
	config_read_experts(f, family, cfg);
	if (family->gemma)
		config_read_gemma(f, family, cfg);
	eps = cfg->norm_eps;
	if (family->keys->eps)
		mj_need_real(f, f->root, family->keys->eps, 0.0, 1.0, &eps);
	cfg->norm_eps = eps;
	mj_bool(f, f->root, "tie_word_embeddings", &cfg->tied);
	mj_note(f, "quantization_config");	/* quantized_config.c reads it */
	config_read_made_up(f, cfg);
	config_read_ids(f, cfg);
	mj_each_unseen(f, config_refuse_key, cfg);
}

/* Read the metadata of a GGUF file. */
static int config_read_gguf(const char *path, struct model_config *cfg,
			    struct model_error *err)
{
	const struct gguf_arch *arch;
	struct gguf *g = NULL;
	struct mj_file f;
	int ret;

	ret = gguf_config_open(path, &f, &arch, &g, err);
	if (!ret) {
		config_parse(&f, cfg);
		if (!f.ret)
			gguf_config_finish(&f, arch, g, cfg);
		ret = f.ret;
	}
	mj_close(&f);
	gguf_close(g);
	return ret;
}

int model_config_read(const char *dir, struct model_config *cfg,
		struct model_error *err)
{
	struct mj_file f;
	int ret;

	memset(cfg, 0, sizeof(*cfg));
	if (gguf_is_file(dir))
		return config_read_gguf(dir, cfg, err);
	ret = config_check_modules(dir, err);
	if (ret)
		return ret;
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
	if (gguf_is_file(dir))
		return 0;
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
