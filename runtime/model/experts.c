// SPDX-License-Identifier: Apache-2.0
/*
 * experts.c - a layer whose rows choose experts
 *
 * The router gives each row a number for each expert, and the row chooses those with
 * the largest.  Each expert gets the rows that chose it, in the order of the batch.  So a
 * step reads the weights of an expert once, and not at all if no row chose it.  As many
 * experts as fit the workspace run together.  The outputs of all experts are in one array,
 * one expert after the other: a row of it is a slot.  Then each row adds up its slots,
 * times its shares, in the order of its own ranks.
 *
 * So a row's bits depend on the row alone in exact mode: products do not depend on
 * which rows they have, and the sum does not depend on where slots are.
 *
 * The choice is counted where rows are sorted, and weights are counted where products are
 * asked for (MODEL_STATS): so the counters tell if an expert is read twice.
 *
 * The host sorts rows by expert.  On a device it fetches the choice of the rows and
 * waits, so such a step is not recorded.
 */
#include <stddef.h>

#include "runtime/model/internal.h"

/* Most experts that run together. */
#define GROUP_EXPERTS	64u

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

/* Count the choice of @m rows. */
static void count_choice(struct model *model, u32 m, const u32 *first)
{
	const struct moe_config *moe = &model->cfg.moe;
	struct model_stats *st = &model->stats;
	u32 e;

	st->expert_layers++;
	st->expert_rows += m;
	for (e = 0; e < moe->experts; e++)
		st->experts_touched += first[e] < first[e + 1];
	st->experts_uniform += moe->experts * config_share_touched(moe, m);
}

/* Experts that run together, and the slots of each; see sort_slots(). */
struct group {
	const struct model_mlp	*experts;
	const u32		*first;
	u32			begin;
	u32			end;
};

/* Slots of the group before expert @e. */
static u32 slots_before(const struct group *g, u32 e)
{
	return g->first[e] - g->first[g->begin];
}

/* From @x, rows of all slots, to @y, the same, for one matrix of each expert. */
struct step {
	size_t		weight;		/* places in struct model_mlp */
	size_t		bias;
	const float	*x;
	float		*y;
};

static struct kern_gemm_part part_of(const struct group *g, const struct step *s, u32 e)
{
	const u8 *expert = (const u8 *)&g->experts[e];
	const struct kern_weight *w = (const void *)(expert + s->weight);

	return (struct kern_gemm_part){
		.x = s->x + (u64)slots_before(g, e) * w->cols, .w = w,
		.bias = *(float * const *)(const void *)(expert + s->bias),
		.m = g->first[e + 1] - g->first[e],
		.y = s->y + (u64)slots_before(g, e) * w->rows,
	};
}

static void count_products(struct model *model, const struct kern_gemm_part *parts,
			   u32 nr)
{
	const struct kern_weight *w;
	u32 i;

	model->stats.expert_products += nr;
	for (i = 0; i < nr; i++) {
		w = parts[i].w;
		model->stats.expert_bytes +=
			w->rows * kern_row_bytes(w->dtype, w->cols);
	}
}

/* The products of some steps, all at once.  Those with the same rows are neighbours. */
static void run_steps(struct model *model, const struct group *g,
		      const struct step *steps, u32 nr_steps)
{
	struct kern_gemm_part parts[2 * GROUP_EXPERTS];
	u32 e, i, nr = 0;

	for (e = g->begin; e < g->end; e++)
		for (i = 0; i < nr_steps && g->first[e] < g->first[e + 1]; i++)
			parts[nr++] = part_of(g, &steps[i], e);
	if (!nr)
		return;
	kern_gemm_parts(model->ops, model->ctx, parts, nr);
	count_products(model, parts, nr);
	for (i = 0; i < nr; i++)
		settle(model, parts[i].y, (u64)parts[i].m * parts[i].w->rows);
}

#define STEP(what, from, to)						\
	{ offsetof(struct model_mlp, what), offsetof(struct model_mlp, what##_bias), \
	  from, to }

static void run_group(struct model *model, const struct group *g)
{
	const struct model_config *cfg = &model->cfg;
	struct model_work *w = &model->work;
	const u32 from = g->first[g->begin], m = slots_before(g, g->end);
	const bool gated = cfg->gated || cfg->moe.alpha;
	const struct step widen[] = {
		STEP(up, w->gathered, w->up), STEP(gate, w->gathered, w->gate),
	};
	const struct step narrow = STEP(down, w->gate, w->made + (u64)from * cfg->hidden);

	model->ops->gather(model->ctx, w->h, w->from + from, m, cfg->hidden,
			   w->gathered);
	run_steps(model, g, widen, gated ? 2 : 1);
	mlp_activate(model, m, cfg->moe.inter, cfg->moe.alpha);
	run_steps(model, g, &narrow, 1);
}

/*
 * The end of a group that begins with expert @begin; @last is the end of all experts.  The
 * workspace has room for one row of the widest MLP for each row of a batch, and an expert has
 * at most that many slots.
 */
static u32 group_end(const u32 *first, u32 begin, u32 last, u32 max_rows)
{
	u32 e = begin + 1;

	while (e < last && e - begin < GROUP_EXPERTS &&
	       first[e + 1] - first[begin] <= max_rows)
		e++;
	return e;
}

void experts_run(struct model *model, const struct model_layer *l, u32 m)
{
	const struct model_config *cfg = &model->cfg;
	const struct moe_config *moe = &cfg->moe;
	struct model_work *w = &model->work;
	u32 first[KERN_MAX_EXPERTS + 1];
	const u32 last = cfg->part.first_expert + config_experts(cfg);
	struct group g = { .experts = l->experts, .first = first };

	/* The step's end reports a failure of the device. */
	if (choose(model, l, m))
		return;
	sort_slots(model, m, first);
	count_choice(model, m, first);
	g.begin = cfg->part.first_expert;
	for (; g.begin < last; g.begin = g.end) {
		g.end = group_end(first, g.begin, last, model->info.max_rows);
		if (slots_before(&g, g.end))
			run_group(model, &g);
	}
	if (model->link)
		exchange_slots(model, first);
	if (moe->shared_inter)
		mlp_run(model, ADAPT_NOWHERE, &l->shared, moe->shared_inter, 0, w->h, m,
			w->shared);
	if (moe->shared_gate)
		project(model, w->h, &l->shared_gate, NULL, m, w->shared_gates);
	model->ops->blend(model->ctx, &(struct kern_blend){
		.y = w->made, .slots = w->slots, .shares = w->shares,
		.base = moe->shared_inter ? w->shared : NULL,
		.gates = moe->shared_gate ? w->shared_gates : NULL, .m = m,
		.chosen = moe->chosen, .d = cfg->hidden, .out = w->h,
	});
	settle(model, w->h, (u64)m * cfg->hidden);
}
