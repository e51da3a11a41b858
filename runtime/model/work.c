// SPDX-License-Identifier: Apache-2.0
/*
 * work.c - the workspace of a forward
 *
 * Two pieces, allocated once and carved: memory of the ops, in the memory where
 * they run, and host memory in which the program makes up a batch.  On a device
 * logits also need memory from which they are fetched: for as many rows as fit
 * into LOGIT_BYTES. A batch that wants more rows fetches them piece by piece.
 */
#include <stdlib.h>

#include "runtime/model/internal.h"

#define WORK_ALIGN	64u
#define LOGIT_BYTES	(256u << 20)
#define ADAPT_ROWS	64ull	/* rows of sums at least */
#define ADAPT_PRODUCTS	3u	/* most products that share their input */

/* Carve @n elements of @size off a piece; without a piece, only count. */
static void *work_take(void *mem, u64 *bytes, u64 n, size_t size)
{
	void *p = mem ? (u8 *)mem + *bytes : NULL;

	*bytes += ALIGN_UP(n * size, (u64)WORK_ALIGN);
	return p;
}

static float *take_floats(struct model_work *w, u64 n)
{
	return work_take(w->mem, &w->bytes, n, sizeof(float));
}

static u32 *take_words(struct model_work *w, u64 n)
{
	return work_take(w->host, &w->host_bytes, n, sizeof(u32));
}

static void carve_ropes(struct model_work *w, const struct model_config *cfg,
			u64 rows, bool device)
{
	const u64 turns = config_rotary(cfg), half = turns / 2;

	w->rope = take_floats(w, rows * turns);
	w->rope_local = w->rope;
	if (cfg->two_ropes)
		w->rope_local = take_floats(w, rows * turns);
	if (device) {
		w->inv_freq = take_floats(w, half);
		w->inv_local = take_floats(w, half);
		w->inv_rows = take_floats(w, work_has_inv_rows(cfg) ?
					     rows * half : 0);
	}
}

/* The widest MLP. */
static u64 mlp_width(const struct model_config *cfg)
{
	u64 width = 0;
	u32 i;

	for (i = 0; i < cfg->layers; i++)
		width = max(width, (u64)(config_is_sparse(cfg, i) ?
			    max(cfg->moe.inter, cfg->moe.shared_inter) :
			    cfg->inter));
	return width;
}

static void carve_experts(struct model_work *w, const struct model_config *cfg,
			  u64 rows)
{
	const struct moe_config *moe = &cfg->moe;
	const u64 slots = rows * moe->chosen;

	if (!moe->experts)
		return;
	w->logits_of_experts = take_floats(w, rows * moe->experts);
	w->shares = take_floats(w, slots);
	w->chosen = work_take(w->mem, &w->bytes, slots, sizeof(u32));
	w->slots = work_take(w->mem, &w->bytes, slots, sizeof(u32));
	w->from = work_take(w->mem, &w->bytes, slots, sizeof(u32));
	w->gathered = take_floats(w, rows * cfg->hidden);
	w->made = take_floats(w, slots * cfg->hidden);
	w->shared = take_floats(w, moe->shared_inter ? rows * cfg->hidden : 0);
	w->shared_gates = take_floats(w, moe->shared_gate ? rows : 0);
}

static void carve_latent(struct model_work *w, const struct model_config *cfg,
			 u64 rows)
{
	const struct latent_config *l = &cfg->latent;

	if (!l->rank)
		return;
	w->q_a = take_floats(w, rows * l->q_rank);
	w->k_rope = take_floats(w, rows * l->rope);
	w->absorbed = take_floats(w, rows * cfg->heads * (l->rank + l->rope));
	w->mixed = take_floats(w, rows * cfg->heads * l->rank);
}

/* Carve the memory of recurrent layers; nothing without. */
static void carve_state(struct model_work *w, const struct model_config *cfg,
			u64 rows)
{
	const struct kern_state s = config_states(cfg);
	const u64 inner = rows * s.heads * s.head_dim;
	const u64 channels = s.nr_layers ? rows * kern_state_channels(&s) : 0;

	w->z = take_floats(w, inner);
	w->xbc = take_floats(w, channels);
	w->conv = take_floats(w, channels);
	w->dt = take_floats(w, rows * s.heads);
	w->scanned = take_floats(w, inner);
}

/* Carve the sums of adapters: a row for each row of the batch, as often as it fits. */
static void carve_adapts(struct model_work *w, u64 rows, u32 rank)
{
	w->t_len = rank ? max(rows, ADAPT_ROWS) * rank : 0;
	w->adapt_t = take_floats(w, w->t_len);
}

/* Carve the memory of the ops. */
static void carve_ops(struct model_work *w, const struct model_config *cfg,
		      u64 rows, u32 rank, bool device)
{
	const u64 q = rows * cfg->heads * cfg->head_dim;
	const u64 kv = rows * cfg->kv_heads * config_kv_dim(cfg);
	const u64 widest = rows * max(cfg->hidden, cfg->embed_dim);

	w->bytes = 0;
	w->x = take_floats(w, rows * cfg->hidden);
	w->h = take_floats(w, widest);
	w->side = take_floats(w, widest);
	w->q = take_floats(w, q);
	w->k = take_floats(w, kv);
	w->v = take_floats(w, kv);
	w->attn = take_floats(w, rows * config_attn_out(cfg));
	w->q_turned = take_floats(w, cfg->turn_pairs ? q : 0);
	w->k_turned = take_floats(w, cfg->turn_pairs ? kv : 0);
	w->ones = take_floats(w, cfg->plain_norms ? cfg->hidden : 0);
	carve_latent(w, cfg, rows);
	w->qkv = take_floats(w, cfg->layout == LAYOUT_NEOX ? 3 * q : 0);
	carve_state(w, cfg, rows);
	w->gate = take_floats(w, rows * mlp_width(cfg));
	w->up = take_floats(w, rows * mlp_width(cfg));
	carve_experts(w, cfg, rows);
	carve_ropes(w, cfg, rows, device);
	carve_adapts(w, rows, rank);
	w->all_heads = take_floats(w, cfg->part.nr && cfg->qk_norm == QK_NORM_WHOLE ?
				   rows * cfg->part.heads * cfg->head_dim : 0);
	w->all_states = take_floats(w, config_shares_group(cfg) ?
				    2 * rows * cfg->part.state_heads *
				    cfg->state.head_dim : 0);
	w->logits = take_floats(w, (u64)w->max_logits * cfg->vocab);
}

static void carve_adapt_lists(struct model_work *w, const struct model_info *info)
{
	const u64 seqs = w->t_len ? info->max_seqs : 0;

	w->max_adapt_parts = (u32)min(ADAPT_PRODUCTS * seqs, (u64)KERN_MAX_ADAPT_PARTS);
	w->adapts = work_take(w->host, &w->host_bytes, seqs, sizeof(*w->adapts));
	w->adapt_parts = work_take(w->host, &w->host_bytes, w->max_adapt_parts,
				   sizeof(*w->adapt_parts));
	w->adapt_rows = take_words(w, w->t_len ? info->max_rows : 0);
}

/* Carve the memory of the program. */
static void carve_host(struct model_work *w, const struct model_config *cfg,
		       const struct model_info *info)
{
	const u64 rows = info->max_rows;
	const u64 inv = work_has_inv_rows(cfg) ? config_rotary(cfg) / 2 : 0;

	w->host_bytes = 0;
	w->ids = take_words(w, rows);
	w->ids_mine = take_words(w, cfg->part.nr ? rows : 0);
	w->positions = take_words(w, rows);
	w->wanted = take_words(w, rows);
	w->seqs = work_take(w->host, &w->host_bytes,
			    (u64)info->nr_groups * info->max_seqs,
			    sizeof(*w->seqs));
	w->inv_host = work_take(w->host, &w->host_bytes, rows * inv,
				sizeof(float));
	w->told = take_words(w, rows);
	carve_adapt_lists(w, info);
	w->chosen_host = take_words(w, rows * cfg->moe.chosen);
	w->slots_host = take_words(w, rows * cfg->moe.chosen);
	w->from_host = take_words(w, rows * cfg->moe.chosen);
}

/* Put the frequencies where the ops read them. */
static void place_freqs(struct model *model)
{
	const u64 bytes = config_rotary(&model->cfg) / 2 * sizeof(float);
	struct model_work *w = &model->work;

	if (!model_on_device(model)) {
		w->inv_freq = model->inv_freq;
		w->inv_local = model->inv_local;
		w->inv_rows = w->inv_host;
		return;
	}
	model->ops->mem_put(model->ctx, w->inv_freq, model->inv_freq, bytes);
	model->ops->mem_put(model->ctx, w->inv_local, model->inv_local, bytes);
}

/* Put the weights of norms that have none where the ops read them. */
static int place_ones(struct model *model)
{
	const u32 n = model->cfg.plain_norms ? model->cfg.hidden : 0;
	const bool device = model_on_device(model);
	float *to = model->work.ones;
	u32 i;

	if (!n)
		return 0;
	if (device)
		to = malloc(n * sizeof(*to));
	if (!to)
		return -ENOMEM;
	for (i = 0; i < n; i++)
		to[i] = 1.0f;
	if (device) {
		model->ops->mem_put(model->ctx, model->work.ones, to,
				    n * sizeof(*to));
		free(to);
	}
	return 0;
}

int work_create(struct model *model)
{
	const u64 rows = model->info.max_rows;
	const bool device = model_on_device(model);
	struct model_work *w = &model->work;

	if (device)
		w->max_logits = min(rows, max((u64)1, LOGIT_BYTES /
					      sizeof(float) /
					      model->cfg.vocab));
	carve_ops(w, &model->cfg, rows, model->max_rank, device);
	carve_host(w, &model->cfg, &model->info);
	if (model->judged)
		return 0;
	w->mem = device ? model->ops->mem_alloc(model->ctx, w->bytes) :
			  aligned_alloc(WORK_ALIGN, w->bytes);
	w->host = aligned_alloc(WORK_ALIGN, w->host_bytes);
	if (!w->mem || !w->host)
		return -ENOMEM;
	carve_ops(w, &model->cfg, rows, model->max_rank, device);
	carve_host(w, &model->cfg, &model->info);
	memset(w->told, 0xff, rows * sizeof(*w->told));
	place_freqs(model);
	return place_ones(model);
}

void work_destroy(struct model *model)
{
	struct model_work *w = &model->work;

	if (model_on_device(model) && model->ctx)
		model->ops->mem_free(model->ctx, w->mem);
	else
		free(w->mem);
	free(w->host);
	*w = (struct model_work){ 0 };
}
