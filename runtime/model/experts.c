// SPDX-License-Identifier: Apache-2.0
/*
 * experts.c - a layer whose rows choose experts
 *
 * The router gives each row a number for each expert, and the row chooses those with
 * the largest.  Each expert gets the rows that chose it, in the order of the batch, as
 * one product.  The outputs of all experts are in one array, one expert after the
 * other: a row of it is a slot.  Then each row adds up its slots, times its shares, in
 * the order of its own ranks.
 *
 * So a row's bits depend on the row alone in exact mode: products do not depend on
 * which rows they have, and the sum does not depend on where slots are.
 *
 * The host sorts rows by expert.  On a device it fetches the choice of the rows and
 * waits, so such a step is not recorded.
 */
#include "runtime/model/internal.h"

/* The choice of the router: chosen, shares and, on the host, chosen_host. */
static int choose(struct model *model, const struct model_layer *l, u32 m)
{
	const struct moe_config *moe = &model->cfg.moe;
	struct model_work *w = &model->work;
	const u64 slots = (u64)m * moe->chosen;

	project(model, w->h, &l->router, l->router_bias, m,
		w->logits_of_experts);
	model->ops->route(model->ctx, &(struct kern_route){
		.logits = w->logits_of_experts, .m = m,
		.experts = moe->experts, .chosen = moe->chosen,
		.groups = moe->groups, .groups_chosen = moe->groups_chosen,
		.over_chosen = moe->over_chosen, .scale = moe->scale,
		.ids = w->chosen, .shares = w->shares,
	});
	settle(model, w->shares, slots);
	if (model_on_device(model))
		return model->ops->mem_get(model->ctx, w->chosen_host,
					   w->chosen, slots * sizeof(u32));
	memcpy(w->chosen_host, w->chosen, slots * sizeof(u32));
	return 0;
}

/* @from in the host's memory, to @to in that of the ops. */
static void to_ops(struct model *model, u32 *to, const u32 *from, u64 nr)
{
	if (model_on_device(model))
		model->ops->mem_put(model->ctx, to, from, nr * sizeof(*to));
	else
		memcpy(to, from, nr * sizeof(*to));
}

/*
 * Give each choice its slot; @first gets the first slot of each expert, and behind
 * them the number of slots.
 */
static void sort_slots(struct model *model, u32 m,
		       u32 first[KERN_MAX_EXPERTS + 1])
{
	const struct moe_config *moe = &model->cfg.moe;
	struct model_work *w = &model->work;
	const u32 nr = m * moe->chosen;
	u32 next[KERN_MAX_EXPERTS], i, e;

	memset(first, 0, (moe->experts + 1) * sizeof(*first));
	for (i = 0; i < nr; i++)
		first[w->chosen_host[i] + 1]++;
	for (e = 0; e < moe->experts; e++) {
		first[e + 1] += first[e];
		next[e] = first[e];
	}
	for (i = 0; i < nr; i++) {
		w->slots_host[i] = next[w->chosen_host[i]]++;
		w->from_host[w->slots_host[i]] = i / moe->chosen;
	}
	to_ops(model, w->slots, w->slots_host, nr);
	to_ops(model, w->from, w->from_host, nr);
}

/* One expert, for the slots @from to @end. */
static void run_expert(struct model *model, const struct model_mlp *expert,
		       u32 from, u32 end)
{
	const struct model_config *cfg = &model->cfg;
	struct model_work *w = &model->work;
	const u32 m = end - from;

	model->ops->gather(model->ctx, w->h, w->from + from, m, cfg->hidden,
			   w->gathered);
	mlp_run(model, expert, cfg->moe.inter, cfg->moe.alpha, w->gathered, m,
		w->made + (u64)from * cfg->hidden);
}

void experts_run(struct model *model, const struct model_layer *l, u32 m)
{
	const struct model_config *cfg = &model->cfg;
	const struct moe_config *moe = &cfg->moe;
	struct model_work *w = &model->work;
	u32 first[KERN_MAX_EXPERTS + 1], e;

	/* The step's end reports a failure of the device. */
	if (choose(model, l, m))
		return;
	sort_slots(model, m, first);
	for (e = 0; e < moe->experts; e++)
		if (first[e] < first[e + 1])
			run_expert(model, &l->experts[e], first[e],
				   first[e + 1]);
	if (moe->shared_inter)
		mlp_run(model, &l->shared, moe->shared_inter, 0, w->h, m,
			w->shared);
	model->ops->blend(model->ctx, &(struct kern_blend){
		.y = w->made, .slots = w->slots, .shares = w->shares,
		.base = moe->shared_inter ? w->shared : NULL, .m = m,
		.chosen = moe->chosen, .d = cfg->hidden, .out = w->h,
	});
	settle(model, w->h, (u64)m * cfg->hidden);
}
