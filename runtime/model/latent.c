// SPDX-License-Identifier: Apache-2.0
/*
 * latent.c - attention with latent vectors
 *
 *	q = h * Wq, or norm(h * Wqa) * Wq
 *	c = norm(h * Wk), a latent vector; r = rotated h * Wv, for all heads
 *	write c, r to the blocks
 *	for every head: a = q's first dimensions * the head's Wabsorb
 *			b = the others, rotated
 *	mixed = attention(a and b, blocks)
 *	for every head: out = mixed * the head's Wvalues
 *
 * A head's key is its own matrix times c, and r; its value is another matrix times
 * c.  A score is linear in the key, so the matrix is applied to the query once, and
 * not to c at every position; and so with the value.  So the blocks have c and r
 * alone, and no key or value of a head is ever computed.
 */
#include "runtime/model/internal.h"

/* The rows of one head, @nr of them. */
static struct kern_weight head_rows(const struct kern_weight *w, u32 head,
				    u32 nr)
{
	struct kern_weight part = *w;

	part.data = (const u8 *)w->data + (u64)head * nr *
		    kern_row_bytes(w->dtype, w->cols);
	part.rows = nr;
	return part;
}

static void norm(struct model *model, float *x, const float *w, u32 m, u32 d)
{
	model->ops->rmsnorm(model->ctx, x, w, m, d, model->cfg.latent.eps, x);
	settle(model, x, (u64)m * d);
}

/* Queries, latent vectors and the rest of the keys. */
static void project_all(struct model *model, const struct model_layer *l, u32 m)
{
	const struct latent_config *c = &model->cfg.latent;
	struct model_work *w = &model->work;
	const struct kern_gemm_out out[] = {
		{ c->q_rank ? &l->q_a : &l->q, NULL,
		  c->q_rank ? w->q_a : w->q, 0 },
		{ &l->k, NULL, w->k, 0 },
		{ &l->v, NULL, w->v, 0 },
	};

	project_many(model, w->h, out, 3, m);
	norm(model, w->k, l->k_norm, m, c->rank);
	if (!c->q_rank)
		return;
	norm(model, w->q_a, l->q_norm, m, c->q_rank);
	project(model, w->q_a, &l->q, NULL, m, w->q);
}

/* Rotate the rest of the keys, and write it and the latent vectors to the blocks. */
static void append(struct model *model, const struct layer_kv *lkv, u32 m)
{
	const struct latent_config *c = &model->cfg.latent;
	const struct model_work *w = &model->work;

	model->ops->rope_pairs(model->ctx, &(struct kern_rope_pairs){
		.x = w->v, .x_ld = c->rope, .y = w->k_rope, .y_ld = c->rope,
		.m = m, .heads = 1, .half = c->rope / 2, .table = w->rope,
	});
	settle(model, w->k_rope, (u64)m * c->rope);
	model->ops->kv_write(model->ctx, &(struct kern_kv_append){
		.kv = lkv->kv, .layer = lkv->at, .nr_seqs = lkv->nr_seqs,
		.seqs = lkv->seqs, .k = w->k, .v = w->k_rope,
	});
}

/* Make the queries of latent vectors. */
static void absorb(struct model *model, const struct model_layer *l, u32 m)
{
	const struct latent_config *c = &model->cfg.latent;
	const u32 heads = model->cfg.heads, hd = model->cfg.head_dim;
	const u32 dim = c->rank + c->rope;
	struct model_work *w = &model->work;
	struct kern_weight part;
	u32 h;

	for (h = 0; h < heads; h++) {
		part = head_rows(&l->absorb, h, c->rank);
		model->ops->gemm(model->ctx, w->q + (u64)h * hd,
				 (u64)heads * hd, &part, NULL, m,
				 w->absorbed + (u64)h * dim, (u64)heads * dim);
	}
	model->ops->rope_pairs(model->ctx, &(struct kern_rope_pairs){
		.x = w->q + c->nope, .x_ld = (u64)heads * hd, .x_step = hd,
		.y = w->absorbed + c->rank, .y_ld = (u64)heads * dim,
		.y_step = dim, .m = m, .heads = heads, .half = c->rope / 2,
		.table = w->rope,
	});
	settle(model, w->absorbed, (u64)m * heads * dim);
}

/* Make the outputs of heads of sums of latent vectors. */
static void make_values(struct model *model, const struct model_layer *l, u32 m)
{
	const struct latent_config *c = &model->cfg.latent;
	const u64 heads = model->cfg.heads;
	struct model_work *w = &model->work;
	struct kern_weight part;
	u32 h;

	for (h = 0; h < heads; h++) {
		part = head_rows(&l->values, h, c->value);
		model->ops->gemm(model->ctx, w->mixed + (u64)h * c->rank,
				 heads * c->rank, &part, NULL, m,
				 w->attn + (u64)h * c->value, heads * c->value);
	}
}

void latent_attend(struct model *model, const struct layer_kv *lkv,
		   const struct model_layer *l, u32 m)
{
	struct model_work *w = &model->work;

	project_all(model, l, m);
	append(model, lkv, m);
	absorb(model, l, m);
	model->ops->attn_latent(model->ctx, &(struct kern_attn){
		.kv = lkv->kv, .layer = lkv->at, .nr_seqs = lkv->nr_seqs,
		.seqs = lkv->seqs, .q = w->absorbed, .out = w->mixed,
		.heads = model->cfg.heads, .scale = model->cfg.attn_scale,
	});
	settle(model, w->mixed, (u64)m * model->cfg.heads *
	       model->cfg.latent.rank);
	make_values(model, l, m);
}
