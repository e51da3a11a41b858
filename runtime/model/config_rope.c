// SPDX-License-Identifier: Apache-2.0
/*
 * config_rope.c - keys of the position encoding
 *
 * There are two spellings: rope_theta and rope_scaling side by side, and the
 * newer rope_parameters, which has both, once or once a kind of layer.  A
 * dictionary may only hold the keys of its type: a key that was meant to change
 * frequencies must not be dropped.
 */
#include <math.h>

#include "runtime/model/config_read.h"

static void rope_check_keys(struct mj_file *f, const char *where,
			    json_t *dict, enum rope_type type)
{
	const u32 yarn = BIT(ROPE_YARN), longs = BIT(ROPE_LONGROPE);
	const struct {
		const char	*key;
		u32		types;	/* BIT(enum rope_type) */
	} known[] = {
		{ "type", ~0u },
		{ "rope_type", ~0u },
		{ "rope_theta", ~0u },
		{ "partial_rotary_factor", ~0u },
		{ "factor", ~BIT(ROPE_DEFAULT) },
		{ "low_freq_factor", BIT(ROPE_LLAMA3) },
		{ "high_freq_factor", BIT(ROPE_LLAMA3) },
		{ "original_max_position_embeddings",
		  BIT(ROPE_LLAMA3) | yarn | longs },
		{ "short_factor", longs },
		{ "long_factor", longs },
		{ "beta_fast", yarn },
		{ "beta_slow", yarn },
		{ "attention_factor", yarn | longs },
		{ "mscale", yarn },
		{ "mscale_all_dim", yarn },
		{ "truncate", yarn },
		{ "finetuned", yarn },	/* a remark without effect */
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

static void rope_read_type(struct mj_file *f, const char *where,
			   json_t *dict, const struct config_family *family,
			   struct rope_config *r)
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
	/* The name of the first files. */
	if (family->only_long_rope && !strcmp(name, "su"))
		name = rope_type_name(ROPE_LONGROPE);
	for (i = 0; i < NR_ROPE_TYPES; i++) {
		if (!strcmp(name, rope_type_name(i)) &&
		    (i == ROPE_DEFAULT || i == ROPE_LONGROPE ||
		     !family->only_long_rope)) {
			r->type = i;
			return;
		}
	}
	mj_fail(f, -EOPNOTSUPP, where, "type \"%.40s\" is not supported: use "
		"a model with \"default\"%s or \"longrope\"", name,
		family->only_long_rope ? "" :
		", \"linear\", \"dynamic\", \"llama3\", \"yarn\"");
}

double config_yarn_gain(double stretch, double m)
{
	return stretch <= 1 ? 1 : 0.1 * m * log(stretch) + 1;
}

static void rope_read_yarn(struct mj_file *f, json_t *dict,
			   struct rope_config *r)
{
	double mscale = 0;

	r->beta_fast = 32;
	r->beta_slow = 1;
	r->truncate = true;
	mj_u32(f, dict, "original_max_position_embeddings", 1, INT32_MAX,
	       &r->original);
	mj_real(f, dict, "beta_fast", 1e-3, 1e6, &r->beta_fast);
	mj_real(f, dict, "beta_slow", 1e-3, 1e6, &r->beta_slow);
	mj_bool(f, dict, "truncate", &r->truncate);
	mj_real(f, dict, "mscale", 0, 1e3, &mscale);
	mj_real(f, dict, "mscale_all_dim", 0, 1e3, &r->mscale_all);
	r->gain = mscale && r->mscale_all ?
		  config_yarn_gain(r->factor, mscale) /
		  config_yarn_gain(r->factor, r->mscale_all) : config_yarn_gain(r->factor, 1);
	mj_real(f, dict, "attention_factor", 1e-3, 1e3, &r->gain);
}

static void rope_read_llama3(struct mj_file *f, json_t *dict,
			     struct rope_config *r)
{
	mj_need_real(f, dict, "low_freq_factor", 1e-3, 1e6, &r->low_freq);
	mj_need_real(f, dict, "high_freq_factor", 1e-3, 1e6, &r->high_freq);
	mj_need_u32(f, dict, "original_max_position_embeddings", 1, INT32_MAX,
		    &r->original);
	if (!f->ret && r->high_freq <= r->low_freq)
		mj_fail(f, -EINVAL, "high_freq_factor", "is not above "
			"low_freq_factor: correct it");
}

/* Read the divisors of all rotated pairs. */
static void rope_read_factors(struct mj_file *f, json_t *dict, const char *key,
			      float *factors, u32 pairs)
{
	json_t *list = mj_get(dict, key);
	double d;
	u32 i;

	if (!json_is_array(list) || json_array_size(list) != pairs) {
		mj_fail(f, -EINVAL, key, "is no list of a number for each of "
			"%u pairs of dimensions: correct it", pairs);
		return;
	}
	for (i = 0; i < pairs; i++) {
		d = json_number_value(json_array_get(list, i));
		if (!(d >= 1e-3 && d <= 1e9)) {
			mj_fail(f, -EINVAL, key, "holds something that is no "
				"number from 0.001 to 1e+09: correct it");
			return;
		}
		factors[i] = (float)d;
	}
}

/*
 * Read the lengths and the factors of "longrope", when the share of a head has been read.
 * The length before stretching is in the dictionary, or beside it.
 */
static void rope_read_long(struct mj_file *f, json_t *dict,
			   const struct model_config *cfg,
			   struct rope_config *r)
{
	const u32 pairs = (u32)(cfg->head_dim * r->part) / 2;
	const char *key = "original_max_position_embeddings";
	double stretch;

	r->original = cfg->max_position;
	mj_u32(f, dict, key, 1, INT32_MAX, &r->original);
	mj_u32(f, f->root, key, 1, INT32_MAX, &r->original);
	if (f->ret)
		return;
	if (cfg->latent.rank || pairs > ROPE_MAX_PAIRS) {
		mj_fail(f, -EOPNOTSUPP, "rope_type", "\"longrope\" is not "
			"supported with latent vectors: use a model without "
			"it");
		return;
	}
	r->nr_factors = pairs;
	rope_read_factors(f, dict, "short_factor", r->factors, pairs);
	rope_read_factors(f, dict, "long_factor", r->long_factors, pairs);
	stretch = (double)cfg->max_position / r->original;
	mj_real(f, dict, "factor", 1e-3, 1e6, &stretch);
	r->gain = stretch <= 1 || r->original < 2 ? 1 :
		  sqrt(1 + log(stretch) / log(r->original));
	mj_real(f, dict, "attention_factor", 1e-3, 1e3, &r->gain);
}

static void rope_read_dict(struct mj_file *f, const char *where,
			   json_t *dict, const struct config_family *family,
			   const struct model_config *cfg,
			   struct rope_config *r)
{
	if (!json_is_object(dict)) {
		mj_fail(f, -EINVAL, where, "is no object: correct it");
		return;
	}
	rope_read_type(f, where, dict, family, r);
	if (f->ret)
		return;
	rope_check_keys(f, where, dict, r->type);
	mj_real(f, dict, "rope_theta", 1.0, 1e12, &r->theta);
	mj_real(f, dict, "partial_rotary_factor", 0.0, 1.0, &r->part);
	if (r->type == ROPE_LONGROPE)
		rope_read_long(f, dict, cfg, r);
	else if (r->type != ROPE_DEFAULT)
		mj_need_real(f, dict, "factor", 1.0, 1e6, &r->factor);
	if (r->type == ROPE_LLAMA3)
		rope_read_llama3(f, dict, r);
	else if (r->type == ROPE_YARN)
		rope_read_yarn(f, dict, r);
}

/*
 * Newer files of families with two encodings have one dictionary a kind of
 * layer.
 */
static void rope_read_nested(struct mj_file *f, const char *where,
			     json_t *dict, const struct config_family *family,
			     struct model_config *cfg)
{
	json_t *full = mj_get(dict, "full_attention");
	json_t *local = mj_get(dict, "sliding_attention");
	const u32 known = !!full + !!local;

	if (json_object_size(dict) != known)
		mj_fail(f, -EOPNOTSUPP, where, "names kinds of layer other "
			"than \"full_attention\" and \"sliding_attention\": "
			"use a model without them");
	if (full)
		rope_read_dict(f, where, full, family, cfg, &cfg->rope);
	if (local)
		rope_read_dict(f, where, local, family, cfg, &cfg->rope_local);
}

static void rope_read_scaling(struct mj_file *f,
			      const struct config_family *family,
			      struct model_config *cfg)
{
	json_t *scaling = mj_top(f, "rope_scaling");
	json_t *params = mj_top(f, "rope_parameters");
	const char *where = params ? "rope_parameters" : "rope_scaling";
	json_t *dict = params ? params : scaling;

	if (params && scaling && !json_equal(params, scaling))
		mj_fail(f, -EINVAL, "rope_parameters", "and rope_scaling "
			"differ: delete the wrong one");
	if (!dict) {
		if (family->needs_rope)
			mj_fail(f, -EINVAL, where, "is missing: copy the file "
				"again");
		return;
	}
	if (family->rope_keys == ROPE_KEYS_LOCAL &&
	    (mj_get(dict, "full_attention") ||
	     mj_get(dict, "sliding_attention")))
		rope_read_nested(f, where, dict, family, cfg);
	else
		rope_read_dict(f, where, dict, family, cfg, &cfg->rope);
}

static void rope_read_top(struct mj_file *f,
			  const struct config_family *family,
			  struct model_config *cfg)
{
	struct rope_config *r = &cfg->rope;

	switch (family->rope_keys) {
	case ROPE_KEYS_NEOX:
		r->part = 0.25;
		mj_real(f, f->root, "rotary_emb_base", 1.0, 1e12, &r->theta);
		mj_real(f, f->root, "rotary_pct", 0.0, 1.0, &r->part);
		break;
	case ROPE_KEYS_LOCAL:
		r->theta = 1e6;
		mj_real(f, f->root, "rope_local_base_freq", 1.0, 1e12,
			&cfg->rope_local.theta);
		break;
	default:
		if (family->def_theta)
			r->theta = family->def_theta;
		break;
	}
	if (family->rope_keys != ROPE_KEYS_NEOX) {
		mj_real(f, f->root, "rope_theta", 1.0, 1e12, &r->theta);
		mj_real(f, f->root, "partial_rotary_factor", 0.0, 1.0,
			&r->part);
	}
	if (family->only_long_rope)
		mj_note(f, "original_max_position_embeddings");
}

/* Set the length of the stretched context. */
static void rope_stretch(struct model_config *cfg,
			 const struct config_family *family)
{
	struct rope_config *r = &cfg->rope;
	const u32 trained = cfg->max_position;
	double len = trained;

	if (r->type == ROPE_DYNAMIC || (r->type == ROPE_LINEAR &&
					family->rope_keys != ROPE_KEYS_LOCAL))
		len = trained * r->factor;
	else if (r->type == ROPE_YARN)
		len = max(len, (r->original ? r->original : trained) *
			  r->factor);
	if (!r->original)
		r->original = trained;
	if (!cfg->rope_local.original)
		cfg->rope_local.original = trained;
	cfg->max_position = min(len, (double)INT32_MAX);
}

void config_read_rope(struct mj_file *f, const struct config_family *family,
		      struct model_config *cfg)
{
	const struct rope_config none = {
		.type = ROPE_DEFAULT, .theta = 10000.0, .part = 1.0,
		.factor = 1.0, .gain = 1.0,
	};
	u32 turns;

	cfg->rope = none;
	cfg->rope_local = none;
	if (family->half_turns)
		cfg->rope.part = 0.5;
	if (family->def_part)
		cfg->rope.part = family->def_part;
	if (family->rope_keys == ROPE_KEYS_NONE || cfg->unplaced)
		return;
	rope_read_top(f, family, cfg);
	rope_read_scaling(f, family, cfg);
	if (f->ret)
		return;
	if (!cfg->two_ropes)
		cfg->rope_local = cfg->rope;
	if (family->half_turns && cfg->rope.part != 0.5)
		mj_fail(f, -EOPNOTSUPP, "partial_rotary_factor", "%g is not "
			"supported: use a model with 0.5", cfg->rope.part);
	else if (cfg->rope.part != 1.0 && !family->takes_part &&
		 !family->half_turns)
		mj_fail(f, -EOPNOTSUPP, "partial_rotary_factor", "%g is not "
			"supported: use a model with 1", cfg->rope.part);
	turns = config_rotary(cfg);
	if (!turns || turns % 2 || cfg->rope_local.part != cfg->rope.part)
		mj_fail(f, -EOPNOTSUPP, family->rope_keys == ROPE_KEYS_NEOX ?
			"rotary_pct" : "partial_rotary_factor", "turns %u of "
			"%u dimensions: use a model with an even number of "
			"them", turns, cfg->head_dim);
	if (rope_is_dynamic(&cfg->rope_local) && cfg->two_ropes)
		mj_fail(f, -EOPNOTSUPP, "rope_parameters", "type \"dynamic\" "
			"is not supported for some layers only: use a model "
			"without it");
	rope_stretch(cfg, family);
	if (!cfg->two_ropes)
		cfg->rope_local = cfg->rope;
}
