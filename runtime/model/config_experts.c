// SPDX-License-Identifier: Apache-2.0
/*
 * config_experts.c - keys of layers with experts
 *
 * A layer has an MLP, or a router and experts.  Which layers have experts follows from
 * a step and a list, or all have some.  Shares that are divided by their sum are a
 * softmax over the chosen experts.
 */
#include <math.h>

#include "runtime/model/config_read.h"

/* Bytes of all experts of all layers fit 64 bits. */
#define EXPERT_MAX_INTER	(1u << 18)

/* The key that must have a number, by its name or by a second one. */
static void experts_read_chosen(struct mj_file *f,
				const struct config_expert_keys *k,
				struct moe_config *moe)
{
	u32 again;

	mj_need_u32(f, f->root, k->chosen, 1, KERN_MAX_CHOSEN, &moe->chosen);
	again = moe->chosen;
	if (k->chosen_too)
		mj_u32(f, f->root, k->chosen_too, 1, KERN_MAX_CHOSEN, &again);
	if (!f->ret && again != moe->chosen)
		mj_fail(f, -EINVAL, k->chosen_too, "%u is not %s, %u: delete "
			"the wrong one", again, k->chosen, moe->chosen);
	if (!f->ret && moe->chosen > moe->experts)
		mj_fail(f, -EINVAL, k->chosen, "%u is above %s, %u: correct "
			"it", moe->chosen, k->experts, moe->experts);
}

static void experts_read_gate(struct mj_file *f, struct moe_config *moe)
{
	double alpha = moe->alpha, limit = moe->limit;

	mj_real(f, f->root, "swiglu_alpha", 1e-3, 1e3, &alpha);
	mj_real(f, f->root, "swiglu_limit", 1e-3, 1e6, &limit);
	moe->alpha = alpha;
	moe->limit = limit;
}

/* Experts of all tokens are one, with the sum of their widths. */
static void experts_read_shared(struct mj_file *f, const char *key,
				struct moe_config *moe)
{
	u32 nr = 0;

	mj_need_u32(f, f->root, key, 1, KERN_MAX_EXPERTS, &nr);
	if (f->ret)
		return;
	moe->shared_inter = nr * moe->inter;
	if (moe->shared_inter > EXPERT_MAX_INTER)
		mj_fail(f, -EINVAL, key, "%u experts are %u wide together, "
			"above %u: correct it", nr, moe->shared_inter,
			EXPERT_MAX_INTER);
}

/* Groups of experts, of one size. */
static void experts_read_groups(struct mj_file *f, struct moe_config *moe)
{
	mj_need_u32(f, f->root, "n_group", 1, KERN_MAX_EXPERT_GROUPS,
		    &moe->groups);
	mj_need_u32(f, f->root, "topk_group", 1, KERN_MAX_EXPERT_GROUPS,
		    &moe->groups_chosen);
	if (f->ret)
		return;
	if (moe->experts % moe->groups)
		mj_fail(f, -EINVAL, "n_group", "%u does not divide the %u "
			"experts: correct it", moe->groups, moe->experts);
	else if (moe->groups_chosen > moe->groups)
		mj_fail(f, -EINVAL, "topk_group", "%u is above n_group, %u: "
			"correct it", moe->groups_chosen, moe->groups);
	else if (moe->groups_chosen * (moe->experts / moe->groups) <
		 moe->chosen)
		mj_fail(f, -EINVAL, "topk_group", "%u groups have fewer than "
			"%u experts: correct it", moe->groups_chosen,
			moe->chosen);
}

/* A key that some programs of the family read in another way than others. */
static void experts_refuse(struct mj_file *f, const char *key, const char *want)
{
	mj_fail(f, -EOPNOTSUPP, key, "is not supported: use a model with %s",
		want);
}

static void experts_read_method(struct mj_file *f, const char *key,
				struct moe_config *moe)
{
	const char *method = mj_str(f, f->root, key);
	const char *scoring = mj_str(f, f->root, "scoring_func");
	u32 every = 1;
	bool norm = false;

	mj_u32(f, f->root, "moe_layer_freq", 1, MODEL_MAX_LAYERS, &every);
	mj_bool(f, f->root, "norm_topk_prob", &norm);
	mj_note(f, "n_group");
	mj_note(f, "topk_group");
	if (scoring && strcmp(scoring, "softmax"))
		experts_refuse(f, "scoring_func", "\"softmax\"");
	if (every != 1)
		experts_refuse(f, "moe_layer_freq", "1");
	if (norm)
		experts_refuse(f, "norm_topk_prob", "false");
	if (method && !strcmp(method, "group_limited_greedy"))
		experts_read_groups(f, moe);
	else if (method && strcmp(method, "greedy"))
		experts_refuse(f, key, "\"greedy\" or "
			       "\"group_limited_greedy\"");
}

/* Layers without experts, by number. */
static void experts_read_dense(struct mj_file *f, const char *key,
			       struct model_config *cfg)
{
	json_t *list = mj_top(f, key), *v;
	double d;
	size_t i;

	if (list && !json_is_array(list))
		mj_fail(f, -EINVAL, key, "is no list: correct it");
	json_array_foreach(list, i, v) {
		d = json_number_value(v);
		if (!json_is_number(v) || d < 0 || d >= cfg->layers ||
		    d != (u32)d) {
			mj_fail(f, -EINVAL, key, "holds something that is no "
				"number of a layer: correct it");
			return;
		}
		cfg->moe.sparse[(u32)d / 64] &= ~(1ull << ((u32)d % 64));
	}
}

/* Which layers have experts. */
static void experts_read_layers(struct mj_file *f,
				const struct config_expert_keys *k,
				struct model_config *cfg)
{
	u32 every = 1, first = 0, i;

	if (k->every)
		mj_u32(f, f->root, k->every, 1, MODEL_MAX_LAYERS, &every);
	if (k->first)
		mj_u32(f, f->root, k->first, 0, MODEL_MAX_LAYERS, &first);
	if (f->ret)
		return;
	for (i = first; i < cfg->layers; i++)
		if (!((i + 1) % every))
			cfg->moe.sparse[i / 64] |= 1ull << (i % 64);
	if (k->dense)
		experts_read_dense(f, k->dense, cfg);
}

/* Keys of families with groups and experts of all tokens. */
static void experts_read_more(struct mj_file *f,
			      const struct config_expert_keys *k,
			      struct moe_config *moe)
{
	double scale = moe->scale;

	if (k->shared)
		experts_read_shared(f, k->shared, moe);
	if (k->shared_inter)
		mj_need_u32(f, f->root, k->shared_inter, 1, EXPERT_MAX_INTER,
			    &moe->shared_inter);
	moe->shared_gate = k->shared_inter;
	if (k->scale)
		mj_real(f, f->root, k->scale, 1e-6, 1e6, &scale);
	moe->scale = scale;
	if (k->method)
		experts_read_method(f, k->method, moe);
}

void config_read_experts(struct mj_file *f, const struct config_family *family,
			 struct model_config *cfg)
{
	const struct config_expert_keys *k = family->experts;
	struct moe_config *moe = &cfg->moe;
	u32 i;

	if (!k || f->ret)
		return;
	moe->groups = moe->groups_chosen = 1;
	moe->scale = 1.0f;
	moe->inter = cfg->inter;
	mj_need_u32(f, f->root, k->experts, 1, KERN_MAX_EXPERTS, &moe->experts);
	experts_read_chosen(f, k, moe);
	if (k->inter)
		mj_need_u32(f, f->root, k->inter, 1, EXPERT_MAX_INTER,
			    &moe->inter);
	else if (moe->inter > EXPERT_MAX_INTER)
		mj_fail(f, -EINVAL, family->keys->inter, "%u is above %u, the "
			"widest expert: correct it", moe->inter,
			EXPERT_MAX_INTER);
	if (k->norm)
		mj_bool(f, f->root, k->norm, &moe->over_chosen);
	if (k->clamped)
		experts_read_gate(f, moe);
	experts_read_more(f, k, moe);
	experts_read_layers(f, k, cfg);
	for (i = 0; i < cfg->layers; i++)
		if (config_is_sparse(cfg, i))
			return;
	*moe = (struct moe_config){ 0 };
}

double config_share_touched(const struct moe_config *moe, u32 rows)
{
	return 1 - pow(1 - (double)moe->chosen / moe->experts, rows);
}
