// SPDX-License-Identifier: Apache-2.0
/*
 * gguf_rope.c - metadata of GGUF files about the position encoding
 *
 * Some files say how frequencies are derived, in keys "rope.scaling.".  Others have a
 * tensor with a divisor for each frequency, which stands for the derivation.
 */
#include <math.h>

#include "runtime/model/gguf_conf.h"

#define KEY(what)	"rope.scaling." what

static void rope_theta(struct gguf_conf *c)
{
	const bool neox = c->family->rope_keys == ROPE_KEYS_NEOX;
	const char *to = neox ? "rotary_emb_base" : "rope_theta";

	conf_set(c, to, json_real(10000.0), "rope.freq_base");
	conf_real(c, "rope.freq_base", to);
	if (c->family->rope_keys == ROPE_KEYS_LOCAL)
		conf_real(c, "rope.freq_base_swa", "rope_local_base_freq");
}

/* The share of a head that is rotated, such that it gives @turns dimensions again. */
static double share_of(u32 turns, u32 dim)
{
	double share = (double)turns / dim;

	while ((u32)(dim * share) < turns)
		share = nextafter(share, 1.0);
	return share;
}

static void rope_part(struct gguf_conf *c)
{
	const bool neox = c->family->rope_keys == ROPE_KEYS_NEOX;
	u32 turns = c->head_dim;

	conf_read_u32(c, "rope.dimension_count", &turns);
	if (c->family->latent || !c->head_dim || c->f->ret)
		return;
	if (turns > c->head_dim)
		conf_fail(c, -EINVAL, "rope.dimension_count", "%u is above the "
			  "size of a head, %u: download or copy the file again",
			  turns, c->head_dim);
	else if (turns != c->head_dim || c->family->takes_part)
		conf_set(c, neox ? "rotary_pct" : "partial_rotary_factor",
			 json_real(share_of(turns, c->head_dim)),
			 "rope.dimension_count");
}

/* Put a number into the dictionary, if the file has it.  Messages name @key. */
static void dict_real(struct gguf_conf *c, json_t *dict, const char *key,
		      const char *to)
{
	double v;

	json_object_set_new(c->f->names, to,
			    json_sprintf("%s.%s", c->arch->name, key));
	if (conf_read_real(c, key, &v))
		json_object_set_new(dict, to, json_real(v));
}

/* The file has one number for two factors of the gain: they are equal in all models. */
static void rope_yarn(struct gguf_conf *c, json_t *dict)
{
	double ext = 1, log_mul = 0;

	dict_real(c, dict, KEY("original_context_length"),
		  "original_max_position_embeddings");
	dict_real(c, dict, KEY("yarn_beta_fast"), "beta_fast");
	dict_real(c, dict, KEY("yarn_beta_slow"), "beta_slow");
	dict_real(c, dict, KEY("yarn_attn_factor"), "attention_factor");
	if (conf_read_real(c, KEY("yarn_ext_factor"), &ext) && ext != 1)
		conf_fail(c, -EOPNOTSUPP, KEY("yarn_ext_factor"), "%g is not "
			  "supported: use a model with 1", ext);
	if (conf_read_real(c, KEY("yarn_log_multiplier"), &log_mul) && log_mul) {
		/* The file has a tenth of it, in f32. */
		log_mul = round(log_mul * 1e7) / 1e6;
		json_object_set_new(dict, "mscale", json_real(log_mul));
		json_object_set_new(dict, "mscale_all_dim", json_real(log_mul));
	}
	if (!strcmp(c->arch->name, "gpt-oss"))
		json_object_set_new(dict, "truncate", json_false());
}

/* Divisors of a tensor as a list of a long context or a short one. */
static void rope_list(struct gguf_conf *c, json_t *dict, const char *name,
		      const char *to)
{
	const struct gguf_tensor *t = gguf_tensor(c->g, name);
	json_t *list = json_array();
	float v;
	u64 i;

	if (!t || t->type || t->nr_dims != 1 || t->nr_elems > ROPE_MAX_PAIRS)
		mj_fail(c->f, -EINVAL, name, "is missing, or no vector of at "
			"most %u numbers in F32: copy the whole model again",
			ROPE_MAX_PAIRS);
	else
		for (i = 0; i < t->nr_elems; i++) {
			memcpy(&v, (const u8 *)t->data + i * 4, 4);
			json_array_append_new(list, json_real(v));
		}
	json_object_set_new(dict, to, list);
}

static void rope_long(struct gguf_conf *c, json_t *dict)
{
	json_object_set_new(dict, "rope_type", json_string("longrope"));
	rope_list(c, dict, "rope_factors_long.weight", "long_factor");
	rope_list(c, dict, "rope_factors_short.weight", "short_factor");
	dict_real(c, dict, KEY("original_context_length"),
		  "original_max_position_embeddings");
	dict_real(c, dict, KEY("attn_factor"), "attention_factor");
}

static void rope_scaling(struct gguf_conf *c)
{
	json_t *dict = json_object();
	char type[32] = "none";

	conf_read_str(c, KEY("type"), type, sizeof(type));
	if (gguf_has_tensor(c->g, "rope_factors_long.weight") ||
	    !strcmp(type, "longrope")) {
		rope_long(c, dict);
	} else if (!strcmp(type, "none")) {
		conf_has(c, KEY("factor"));
		conf_has(c, KEY("original_context_length"));
		conf_has(c, KEY("attn_factor"));
		json_decref(dict);
		return;
	} else {
		json_object_set_new(dict, "rope_type", json_string(type));
		dict_real(c, dict, KEY("factor"), "factor");
		if (!strcmp(type, "yarn"))
			rope_yarn(c, dict);
		else
			conf_has(c, KEY("original_context_length"));
	}
	conf_set(c, "rope_scaling", dict, KEY("type"));
}

void gguf_conf_rope(struct gguf_conf *c)
{
	rope_theta(c);
	rope_part(c);
	rope_scaling(c);
}

/* Divisors of all frequencies of heads. */
static void rope_factors(struct mj_file *f, const struct gguf *g,
			 struct model_config *cfg)
{
	const struct gguf_tensor *t = gguf_tensor(g, "rope_freqs.weight");
	const u32 turns = config_rotary(cfg);
	u32 i;

	if (!t || f->ret)
		return;
	if (t->type || t->nr_dims != 1 || t->nr_elems != turns / 2 ||
	    turns / 2 > ROPE_MAX_PAIRS || cfg->rope.type != ROPE_DEFAULT) {
		mj_fail(f, -EINVAL, "rope_freqs.weight", "is no vector of %u "
			"numbers in F32, or does not go with rope.scaling.type: "
			"copy the whole model again", turns / 2);
		return;
	}
	memcpy(cfg->rope.factors, t->data, t->nr_bytes);
	cfg->rope.nr_factors = turns / 2;
	for (i = 0; i < turns / 2; i++)
		if (!(cfg->rope.factors[i] >= 1e-3f &&
		      cfg->rope.factors[i] <= 1e6f))
			mj_fail(f, -EINVAL, "rope_freqs.weight", "has a number "
				"outside 0.001..1000000: copy the whole model "
				"again");
	if (!cfg->two_ropes)
		cfg->rope_local = cfg->rope;
}

void gguf_config_finish(struct mj_file *f, const struct gguf_arch *arch,
			const struct gguf *g, struct model_config *cfg)
{
	if (arch->other_layout)
		cfg->layout = arch->layout;
	if (cfg->layout == LAYOUT_LATENT &&
	    gguf_has_tensor(g, "blk.0.attn_k_b.weight"))
		cfg->layout = LAYOUT_LATENT_TWO;
	cfg->norm_plus_one = false;
	rope_factors(f, g, cfg);
}
