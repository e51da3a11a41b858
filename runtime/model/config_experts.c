// SPDX-License-Identifier: Apache-2.0
/*
 * config_experts.c - keys of layers with experts
 *
 * A layer has an MLP, or a router and experts.  Which layers have experts follows from
 * a step and a list, or all have some.  Shares that are divided by their sum are a
 * softmax over the chosen experts.
 */
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
		if (!json_is_number(v) || d < 0 || d != (u32)d ||
		    d >= cfg->layers) {
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
	u32 every = 1, i;

	if (k->every)
		mj_u32(f, f->root, k->every, 1, MODEL_MAX_LAYERS, &every);
	if (f->ret)
		return;
	for (i = 0; i < cfg->layers; i++)
		if (!((i + 1) % every))
			cfg->moe.sparse[i / 64] |= 1ull << (i % 64);
	if (k->dense)
		experts_read_dense(f, k->dense, cfg);
}

void config_read_experts(struct mj_file *f, const struct config_family *family,
			 struct model_config *cfg)
{
	const struct config_expert_keys *k = family->experts;
	struct moe_config *moe = &cfg->moe;

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
	experts_read_layers(f, k, cfg);
}
