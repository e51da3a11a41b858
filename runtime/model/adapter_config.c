// SPDX-License-Identifier: Apache-2.0
/*
 * adapter_config.c - adapter_config.json
 *
 * Every key must have been read, or be known to change nothing when an adapter runs, or have
 * a value that turns its feature off.  Any other key is refused by name, because it may
 * change the arithmetic.  The tensors say which modules have a pair, so the keys that chose
 * the modules in training are not read.
 *
 * rank_pattern and alpha_pattern give modules a rank and an alpha of their own.  Their keys
 * are regular expressions for ends of names, from a dot on; the first one that matches is
 * taken.  Plain names are supported, which is what training programs write.
 */
#include <ctype.h>
#include <math.h>
#include <stdio.h>

#include "runtime/model/adapter_internal.h"

#define MAX_ALPHA	1e6

/* They change nothing when an adapter runs. */
static const char * const irrelevant[] = {
	"auto_mapping", "base_model_class", "base_model_name_or_path", "corda_config",
	"ensure_weight_tying", "eva_config", "exclude_modules", "fan_in_fan_out",
	"inference_mode", "layers_pattern", "layers_to_transform", "loftq_config",
	"lora_dropout", "lora_ga_config", "megatron_core", "parent_library", "peft_version",
	"qalora_group_size", "revision", "runtime_config", "target_modules", "unsloth_fixed",
	"velora_config",
};

/* Features that are not supported; the text is the reason and the remedy. */
static const struct {
	const char	*key;
	const char	*why;
} features[] = {
	{ "use_dora", "DoRA scales the rows of the model's matrices: train without it" },
	{ "lora_bias", "pairs with a bias are not supported: train without it" },
	{ "modules_to_save", "whole modules are replaced, and only pairs are supported: train "
	  "without it, or merge the adapter into the model" },
	{ "trainable_token_indices", "embeddings are replaced, and only pairs are supported: "
	  "train without it, or merge the adapter into the model" },
	{ "target_parameters", "pairs on parameters of experts are not supported: train with "
	  "target_modules" },
	{ "layer_replication", "layers that are there several times are not supported: train "
	  "without it, or merge the adapter into the model" },
	{ "use_qalora", "pairs on groups of columns are not supported: train without it" },
	{ "alora_invocation_tokens", "an adapter that begins at some tokens is not supported: "
	  "train without it" },
	{ "megatron_config", "matrices of Megatron are not supported: train without it" },
	{ "arrow_config", "several adapters at once are not supported: name a single one" },
	{ "use_bdlora", "pairs in diagonal blocks are not supported: train without it" },
	{ "kasa_config", "pairs with a diagonal between them are not supported: train without it" },
	{ "monteclora_config", "pairs that are drawn at random are not supported: train without it" },
};

static bool is_off(const json_t *v)
{
	return json_is_null(v) || json_is_false(v) ||
	       (json_is_number(v) && !json_number_value(v)) ||
	       (json_is_string(v) && !json_string_length(v)) ||
	       (json_is_array(v) && !json_array_size(v)) ||
	       (json_is_object(v) && !json_object_size(v));
}

static void refuse_key(struct mj_file *f, const char *key, json_t *v, void *arg)
{
	u32 i;

	(void)arg;
	for (i = 0; i < ARRAY_SIZE(irrelevant); i++)
		if (!strcmp(key, irrelevant[i]))
			return;
	if (is_off(v))
		return;
	for (i = 0; i < ARRAY_SIZE(features); i++)
		if (!strcmp(key, features[i].key))
			mj_fail(f, -EOPNOTSUPP, key, "%s", features[i].why);
	mj_fail(f, -EOPNOTSUPP, key, "is not known, and may change what the adapter computes: "
		"use an adapter without it");
}

/* A string that must be @want, if it is there. */
static void read_word(struct mj_file *f, const char *key, const char *want, const char *remedy)
{
	const char *s = mj_str(f, f->root, key);

	if (s && strcmp(s, want))
		mj_fail(f, -EOPNOTSUPP, key, "\"%.40s\" is not supported: %s", s, remedy);
}

static void read_kind(struct mj_file *f)
{
	if (!mj_has(f, "peft_type"))
		mj_fail(f, -EINVAL, "peft_type", "is missing: copy the file again");
	read_word(f, "peft_type", "LORA", "use an adapter of type \"LORA\"");
	read_word(f, "task_type", "CAUSAL_LM", "use an adapter of type \"CAUSAL_LM\"");
	read_word(f, "bias", "none", "biases of the model are replaced, and only pairs are "
		  "supported: train with \"none\"");
}

/* Some ways to begin a training change the model's matrices, too. */
static void read_init(struct mj_file *f)
{
	static const char * const keep[] = { "gaussian", "eva", "orthogonal", "mica" };
	json_t *v = mj_top(f, "init_lora_weights");
	const char *s = json_string_value(v);
	u32 i;

	if (!v || json_is_boolean(v))
		return;
	for (i = 0; s && i < ARRAY_SIZE(keep); i++)
		if (!strcmp(s, keep[i]))
			return;
	if (!s)
		mj_fail(f, -EINVAL, "init_lora_weights", "is neither a name nor true or false: "
			"correct it");
	else
		mj_fail(f, -EOPNOTSUPP, "init_lora_weights", "\"%.40s\" changes the model's "
			"matrices, too: save the adapter with PEFT's "
			"path_initial_model_for_weight_conversion, or merge it into its model", s);
}

/* Is the key of a pattern a name?  A dot matches any character, "\." a dot. */
static bool is_name(const char *key)
{
	key += *key == '^';
	if (!*key)
		return false;
	for (; *key; key++) {
		if (*key == '\\' && key[1] == '.')
			key++;
		else if (!isalnum((u8)*key) && *key != '_' && *key != '.')
			return false;
	}
	return true;
}

/* Does the key match the end of a name from @at on, or, with "^", all of it? */
static bool matches_at(const char *key, const char *at)
{
	for (; *key && *at; key++, at++) {
		if (*key == '\\')
			key++;
		else if (*key == '.')
			continue;
		if (*key != *at)
			return false;
	}
	return !*key && !*at;
}

static bool matches(const char *key, const char *module)
{
	const char *at = module;

	if (*key == '^')
		return matches_at(key + 1, module);
	for (; at; at = strchr(at, '.') ? strchr(at, '.') + 1 : NULL)
		if (matches_at(key, at))
			return true;
	return false;
}

/* A list of numbers by names. */
static json_t *read_pattern(struct mj_file *f, const char *key, double lo, double hi, bool whole)
{
	json_t *list = mj_top(f, key), *v;
	const char *name;
	double d;

	if (!list || f->ret)
		return NULL;
	if (!json_is_object(list)) {
		mj_fail(f, -EINVAL, key, "is no object: correct it");
		return NULL;
	}
	json_object_foreach(list, name, v) {
		d = json_number_value(v);
		if (!is_name(name))
			mj_fail(f, -EOPNOTSUPP, key, "\"" MODEL_NAME_FMT "\" is a regular "
				"expression that is not supported: write names of modules, or "
				"their ends from a dot on", name);
		else if (!json_is_number(v) || !(d >= lo && d <= hi) || (whole && d != floor(d)))
			mj_fail(f, -EINVAL, key, "\"" MODEL_NAME_FMT "\" has no number from "
				"%g to %g: correct it", name, lo, hi);
	}
	return list;
}

int adapter_config_open(struct adapter_config *c, const char *dir, struct model_error *err)
{
	struct mj_file *f = &c->f;

	*c = (struct adapter_config){ .alpha = 0 };
	if (mj_open(f, dir, ADAPTER_CONFIG, JSON_DECODE_INT_AS_REAL, err))
		return f->ret;
	read_kind(f);
	read_init(f);
	mj_bool(f, f->root, "use_rslora", &c->root);
	mj_need_u32(f, f->root, "r", 1, ADAPTER_MAX_RANK, &c->rank);
	mj_need_real(f, f->root, "lora_alpha", -MAX_ALPHA, MAX_ALPHA, &c->alpha);
	c->ranks = read_pattern(f, "rank_pattern", 1, ADAPTER_MAX_RANK, true);
	c->alphas = read_pattern(f, "alpha_pattern", -MAX_ALPHA, MAX_ALPHA, false);
	if (!f->ret)
		mj_each_unseen(f, refuse_key, NULL);
	return f->ret;
}

void adapter_config_close(struct adapter_config *c)
{
	mj_close(&c->f);
}

static double pattern_value(json_t *list, const char *module, double other)
{
	const char *name;
	json_t *v;

	json_object_foreach(list, name, v)
		if (matches(name, module))
			return json_number_value(v);
	return other;
}

u32 adapter_config_rank(const struct adapter_config *c, const char *module)
{
	return (u32)pattern_value(c->ranks, module, c->rank);
}

float adapter_config_scale(const struct adapter_config *c, const char *module, u32 rank)
{
	const double alpha = pattern_value(c->alphas, module, c->alpha);

	return (float)(alpha / (c->root ? sqrt(rank) : rank));
}
