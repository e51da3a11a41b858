// SPDX-License-Identifier: Apache-2.0
/*
 * decoder.c - one decoder for every family
 *
 * A batch is rows: one row a token, packed sequence after sequence, in any mix
 * of prefill and decode.  All ops except attention treat rows alike and
 * independently; attention gets the rows of each block table.  So there is no
 * prefill path and no decode path, and cutting a prompt into chunks only
 * changes how many rows share a call.
 *
 *	x = embed(ids) * scale (* Wproject) (+ row of the position)
 *	for every layer:
 *		h = norm(x), made by the layer before; or x itself
 *		q, k, v = h * Wq, Wk, Wv (+ bias), (+ adapters: adapt.c), as other products
 *		(norm heads of q and k); (rotate q and k)
 *		write k, v to the blocks; a = attention(q, blocks)
 *		(or latent vectors in place of these three: latent.c)
 *		side = (norm) a * Wo (+ bias)
 *		x += side, now or with the MLP's; (x = norm(x))
 *		h = norm(x), or the one before, or x; m = act(h * Wgate) * (h * Wup) or act(h * Wup)
 *		x += (norm) m * Wdown (+ bias), or the output of experts: experts.c;
 *		(x = norm(x))
 *	logits = norm(x of the wanted rows) * Whead, (capped): head.c
 *
 * Parts in parentheses are switches, and so are the norm and the activation.
 * This file knows no family.
 *
 * Bits.  In exact mode kernels are exact, each row by itself; all other
 * operations here are element by element.  So a row's bits depend on its tokens
 * and positions alone.
 *
 * bf16 arithmetic.  Kernels take and give f32; with MODEL_BF16 every result
 * that another op will read is rounded to bf16 in place.  No op reads logits,
 * so they stay f32.
 *
 * Groups.  A layer belongs to a layer group (struct model_group).  Its K and V are in
 * that group's blocks, found by that group's tables, as the layer that it is among those
 * of the group.  The other ops do not know groups, and the bits are the same.
 *
 * KV.  The blocks hold K and V in a type of their own: with bf16 arithmetic
 * bf16 loses nothing more, narrower types do.  The kernels convert; only the
 * geometry names the type here.
 *
 * Ops that follow one another directly are joined (see kernels/join.c): q, k
 * and v; gate and up; rotation and append; the residual and the norm that reads
 * it.  A device does each in one launch.
 *
 * On a device the same ops are queued, on buffers in its memory.  Only tokens
 * come back, and logits where the caller wants them.  A step that the kernels
 * have recorded is replayed without queueing its ops.
 *
 * No memory is allocated here, and a batch is checked as a whole before the
 * first byte of KV is written.
 */
#include "runtime/model/internal.h"

/* One positive number, rounded as settle() does. */
static float settled(const struct model *model, float f)
{
	u32 bits;

	if (!in_bf16(model))
		return f;
	memcpy(&bits, &f, sizeof(bits));
	bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
	memcpy(&f, &bits, sizeof(f));
	return f;
}

void project(struct model *model, const float *x, const struct kern_weight *w,
	     const float *bias, u32 m, float *y)
{
	model->ops->gemm(model->ctx, x, 0, w, bias, m, y, 0);
	settle(model, y, (u64)m * w->rows);
}

void normalise(struct model *model, const float *x, const float *w,
	       const float *bias, u32 m, u32 d, float *y)
{
	const float eps = model->cfg.norm_eps;

	if (!w)
		w = model->work.ones;
	if (model->cfg.layer_norm)
		model->ops->layernorm(model->ctx, x, w, bias, m, d, eps, y);
	else
		model->ops->rmsnorm(model->ctx, x, w, m, d, eps, y);
	settle(model, y, (u64)m * d);
}

/* Scale the addend of the residual stream, a switch. */
static void residual_scale(struct model *model, float *y, u32 m)
{
	const u64 n = (u64)m * model->cfg.hidden;

	if (model->cfg.residual_scale == 1.0f)
		return;
	model->ops->scale(model->ctx, y, model->cfg.residual_scale, n);
	settle(model, y, n);
}

/* x += y, rows of the residual stream's width */
static void residual(struct model *model, float *x, const float *y, u32 m)
{
	const u64 n = (u64)m * model->cfg.hidden;

	model->ops->add(model->ctx, x, y, n);
	settle(model, x, n);
}

/* x += y, and the norm of that into h; @y may be h */
static void residual_norm(struct model *model, const float *y, const float *w,
			  const float *bias, u32 m)
{
	const struct kern_add_norm n = {
		.x = model->work.x, .y = y, .h = model->work.h,
		.w = w ? w : model->work.ones,
		.bias = bias, .m = m, .d = model->cfg.hidden,
		.eps = model->cfg.norm_eps, .layer = model->cfg.layer_norm,
		.settle = in_bf16(model) && !model->ops->settles,
	};

	kern_add_norm(model->ops, model->ctx, &n);
}

/* x += y, and then the norm of x in its place, a switch */
static void residual_sum(struct model *model, const float *y, const float *w,
			 const float *bias, u32 m)
{
	float *x = model->work.x;

	residual(model, x, y, m);
	if (model->cfg.norm_sums)
		normalise(model, x, w, bias, m, model->cfg.hidden, x);
}

void project_many(struct model *model, const float *x,
		  const struct kern_gemm_out *out, u32 nr, u32 m)
{
	u32 i;

	kern_gemm_many(model->ops, model->ctx, x, 0, out, nr, m);
	for (i = 0; i < nr; i++)
		settle(model, out[i].y, (u64)m * out[i].w->rows);
}

/* The input of a layer's attention and of its MLP. */
static const float *layer_input(const struct model *model)
{
	return model->cfg.no_pre_norms ? model->work.x : model->work.h;
}

static void project_heads(struct model *model, u32 layer, u32 m)
{
	const struct model_layer *l = &model->w.layers[layer];
	const u32 hidden = model->cfg.hidden;
	const float *x = layer_input(model);
	struct model_work *w = &model->work;

	if (l->qkv.data) {
		project(model, x, &l->qkv, l->qkv_bias, m, w->qkv);
		adapt(model, layer, x, hidden,
		      &(struct adapt_out){ ADAPTER_QKV, w->qkv, l->qkv.rows }, 1, m);
		model->ops->split_heads(model->ctx, w->qkv, m,
					model->cfg.heads, model->cfg.head_dim,
					w->q, w->k, w->v);
		return;
	}
	project_many(model, x, (struct kern_gemm_out[]){
		{ &l->q, l->q_bias, w->q, 0 },
		{ &l->k, l->k_bias, w->k, 0 },
		{ &l->v, l->v_bias, w->v, 0 },
	}, 3, m);
	adapt(model, layer, x, hidden, (struct adapt_out[]){
		{ ADAPTER_Q, w->q, l->q.rows },
		{ ADAPTER_K, w->k, l->k.rows },
		{ ADAPTER_V, w->v, l->v.rows },
	}, 3, m);
}

/* Rotate q and k (a switch), and append k and v. */
static void turn_and_append(struct model *model,
			    const struct kern_kv_append *app, u32 m,
			    const float *table)
{
	const struct kern_rope_write r = {
		.append = *app, .m = m, .q = model->work.q,
		.heads = model->cfg.heads,
		.half = config_rotary(&model->cfg) / 2, .table = table,
		.settle = in_bf16(model) && !model->ops->settles,
	};

	if (!r.half)
		model->ops->kv_write(model->ctx, app);
	else
		kern_rope_write(model->ops, model->ctx, &r);
}

/* Rotate neighbours of all heads of @x, sorted as kernels expect them. */
static float *turn_pairs(struct model *model, const float *x, u32 heads, u32 m,
			 const float *table, float *y)
{
	const u32 hd = model->cfg.head_dim;

	model->ops->rope_pairs(model->ctx, &(struct kern_rope_pairs){
		.x = x, .x_ld = (u64)heads * hd, .x_step = hd, .y = y,
		.y_ld = (u64)heads * hd, .y_step = hd, .m = m, .heads = heads,
		.half = hd / 2, .table = table,
	});
	settle(model, y, (u64)m * heads * hd);
	return y;
}

/* Rotate q and k (two switches), append k and v; returns q. */
static const float *place_heads(struct model *model, struct kern_kv_append *app,
				u32 layer, u32 m)
{
	const struct model_config *cfg = &model->cfg;
	struct model_work *w = &model->work;
	const float *table = config_is_local(cfg, layer) ? w->rope_local :
							   w->rope;

	if (config_is_unturned(cfg, layer)) {
		model->ops->kv_write(model->ctx, app);
		return w->q;
	}
	if (!cfg->turn_pairs) {
		turn_and_append(model, app, m, table);
		return w->q;
	}
	app->k = turn_pairs(model, w->k, cfg->kv_heads, m, table, w->k_turned);
	model->ops->kv_write(model->ctx, app);
	return turn_pairs(model, w->q, cfg->heads, m, table, w->q_turned);
}

/* The factor on q.k in a layer. */
static float layer_scale(const struct model_config *cfg, u32 layer)
{
	return cfg->attn_by_layer ? cfg->attn_scale / (float)(layer + 1) :
				    cfg->attn_scale;
}

static void layer_attend(struct model *model, const struct layer_kv *lkv,
			 u32 layer, u32 m)
{
	const struct model_work *w = &model->work;
	const bool local = config_is_local(&model->cfg, layer);
	struct kern_kv_append app = {
		.kv = lkv->kv,
		.layer = lkv->at,
		.nr_seqs = lkv->nr_seqs,
		.seqs = lkv->seqs,
		.k = w->k,
		.v = w->v,
	};
	const struct kern_attn a = {
		.kv = lkv->kv,
		.layer = lkv->at,
		.nr_seqs = lkv->nr_seqs,
		.seqs = lkv->seqs,
		.q = place_heads(model, &app, layer, m),
		.out = w->attn,
		.heads = model->cfg.heads,
		.window = local ? model->cfg.window : 0,
		.scale = layer_scale(&model->cfg, layer),
		.softcap = model->cfg.attn_cap,
		.sinks = model->w.layers[layer].sinks,
	};

	model->ops->attention(model->ctx, &a);
}

/* Normalise @heads heads of @m rows, a switch; all ranks have @all_heads. */
static void norm_heads(struct model *model, float *x, const float *w,
		       const float *bias, u32 heads, u32 all_heads, u32 m)
{
	const struct model_config *cfg = &model->cfg;
	const u32 hd = cfg->head_dim;

	switch (cfg->qk_norm) {
	case QK_NORM_NONE:
		return;
	case QK_NORM_SHARED:
		normalise(model, x, w, bias, m * heads, hd, x);
		return;
	case QK_NORM_WHOLE:
		if (model->link)
			exchange_norm(model, x, w, heads, all_heads, m);
		else
			normalise(model, x, w, NULL, m, heads * hd, x);
		return;
	case QK_NORM_EACH:
		model->ops->layernorm_heads(model->ctx, x, w, m, heads, hd,
					    cfg->norm_eps, x);
		settle(model, x, (u64)m * heads * hd);
		return;
	}
}

/* From the layer's input to outputs of heads that have K and V of their own. */
static void heads_attend(struct model *model, const struct layer_kv *lkv,
			 u32 layer, u32 m)
{
	const struct model_layer *l = &model->w.layers[layer];
	const struct model_config *cfg = &model->cfg;
	struct model_work *w = &model->work;

	project_heads(model, layer, m);
	norm_heads(model, w->q, l->q_norm, l->q_norm_bias, cfg->heads,
		   cfg->part.heads, m);
	norm_heads(model, w->k, l->k_norm, l->k_norm_bias, cfg->kv_heads,
		   cfg->part.kv_heads, m);
	layer_attend(model, lkv, layer, m);
}

/* From the layer's input to side. */
static void layer_attention(struct model *model, const struct layer_kv *lkv,
			    u32 layer, u32 m)
{
	const struct model_layer *l = &model->w.layers[layer];
	const struct model_config *cfg = &model->cfg;
	struct model_work *w = &model->work;

	if (cfg->latent.rank)
		latent_attend(model, lkv, l, m);
	else
		heads_attend(model, lkv, layer, m);
	settle(model, w->attn, m * config_attn_out(cfg));
	project_sum(model, w->attn, &l->o, l->o_bias, m, w->side);
	adapt(model, layer, w->attn, l->o.cols,
	      &(struct adapt_out){ ADAPTER_O, w->side, cfg->hidden }, 1, m);
}

/* From side, what attention or a recurrence found, to the input of the MLP. */
static void layer_join(struct model *model, u32 layer, u32 m)
{
	const struct model_layer *l = &model->w.layers[layer];
	const struct model_config *cfg = &model->cfg;
	struct model_work *w = &model->work;

	residual_scale(model, w->side, m);
	if (cfg->post_norms)
		normalise(model, w->side, l->attn_post, NULL, m, cfg->hidden,
			  w->side);
	if (cfg->shared_norm)
		return;
	if (cfg->parallel)
		normalise(model, w->x, l->mlp_norm, l->mlp_norm_bias, m,
			  cfg->hidden, w->h);
	else if (cfg->no_pre_norms)
		residual_sum(model, w->side, l->attn_post, l->attn_post_bias,
			     m);
	else
		residual_norm(model, w->side, l->mlp_norm, l->mlp_norm_bias,
			      m);
}

/* From the MLP's input to x, and to the input of the next layer. */
static void layer_mlp(struct model *model, u32 layer, u32 m)
{
	const struct model_layer *l = &model->w.layers[layer], *next = l + 1;
	const struct model_config *cfg = &model->cfg;
	struct model_work *w = &model->work;

	if (config_is_sparse(cfg, layer))
		experts_run(model, l, m);
	else
		mlp_run(model, layer, &l->mlp, cfg->inter, 0, layer_input(model),
			m, w->h);
	if (cfg->post_norms)
		normalise(model, w->h, l->mlp_post, NULL, m, cfg->hidden,
			  w->h);
	residual_scale(model, w->h, m);
	if (cfg->parallel)
		residual(model, w->h, w->side, m);
	if (cfg->no_pre_norms)
		residual_sum(model, w->h, l->mlp_post, l->mlp_post_bias, m);
	else if (layer + 1 < cfg->layers)
		residual_norm(model, w->h, next->attn_norm,
			      next->attn_norm_bias, m);
	else
		residual(model, w->x, w->h, m);
}

/* Rows past the original context, each with its own frequencies. */
static void turn_late(struct model *model, const struct rope_config *r,
		      const struct kern_rows *rows, u32 m, float *table)
{
	const u32 turns = config_rotary(&model->cfg), half = turns / 2;
	struct model_work *w = &model->work;
	u32 i;

	for (i = 0; i < m; i++)
		if (w->positions[i] >= r->original)
			rope_inv_freq_at(r, turns, w->positions[i] + 1,
					 w->inv_host + (u64)i * half);
	if (model_on_device(model))
		model->ops->mem_put(model->ctx, w->inv_rows, w->inv_host,
				    (u64)m * half * sizeof(*w->inv_rows));
	for (i = 0; i < m; i++)
		if (w->positions[i] >= r->original)
			model->ops->rope_table(model->ctx,
					       w->inv_rows + (u64)i * half,
					       half, rows->positions + i, 1,
					       table + (u64)i * turns);
}

/* Cosines and sines of one encoding for all rows; the first @m are real. */
static void turn_table(struct model *model, const struct rope_config *r,
		       const float *inv_freq, const struct kern_rows *rows,
		       u32 m, float *table)
{
	const u32 turns = config_rotary(&model->cfg);

	model->ops->rope_table(model->ctx, inv_freq, turns / 2,
			       rows->positions, rows->nr_rows, table);
	if (rope_is_dynamic(r))
		turn_late(model, r, rows, m, table);
	if (r->gain != 1.0)
		model->ops->scale(model->ctx, table, r->gain,
				  (u64)rows->nr_rows * turns);
}

/* Rotation tables of all rows. */
static void turn_tables(struct model *model, const struct kern_rows *rows,
			u32 m)
{
	const struct model_config *cfg = &model->cfg;
	struct model_work *w = &model->work;

	settles(model, false);
	turn_table(model, &cfg->rope, w->inv_freq, rows, m, w->rope);
	if (cfg->two_ropes)
		turn_table(model, &cfg->rope_local, w->inv_local, rows, m,
			   w->rope_local);
	settles(model, true);
}

/* Embeddings of the rows; if they have a width of their own, their projection. */
static void embed_tokens(struct model *model, const struct kern_rows *rows)
{
	const bool projected = model->w.project_in.data;
	struct model_work *w = &model->work;
	float *to = projected ? w->h : w->x;

	if (model->link)
		exchange_embed(model, rows->ids, rows->nr_rows, to);
	else
		model->ops->embed(model->ctx, &model->w.embed, rows->ids,
				  rows->nr_rows, to);
	settle(model, to, (u64)rows->nr_rows * model->cfg.embed_dim);
	if (projected)
		project(model, w->h, &model->w.project_in, NULL, rows->nr_rows,
			w->x);
}

/* Embeddings of the rows, and their rotation tables. */
static void embed(struct model *model, const struct kern_rows *rows, u32 m)
{
	const struct model_config *cfg = &model->cfg;
	struct model_work *w = &model->work;
	const u64 n = (u64)rows->nr_rows * cfg->hidden;

	settles(model, true);
	embed_tokens(model, rows);
	if (cfg->embed_scale != 1.0f) {
		model->ops->scale(model->ctx, w->x,
				  cfg->embed_exact ? cfg->embed_scale :
				  settled(model, cfg->embed_scale), n);
		settle(model, w->x, n);
	}
	if (config_rotary(cfg))
		turn_tables(model, rows, m);
	if (!cfg->learned)
		return;
	model->ops->embed(model->ctx, &model->w.pos, rows->positions,
			  rows->nr_rows, w->h);
	settle(model, w->h, n);
	residual(model, w->x, w->h, rows->nr_rows);
}

/* Does a row of the batch have its own frequencies? */
static bool turns_late(const struct model *model, u32 m)
{
	const struct model_config *cfg = &model->cfg;
	u32 from = UINT32_MAX, i;

	if (!work_has_inv_rows(cfg))
		return false;
	if (rope_is_dynamic(&cfg->rope))
		from = cfg->rope.original;
	if (cfg->two_ropes && rope_is_dynamic(&cfg->rope_local))
		from = min(from, cfg->rope_local.original);
	for (i = 0; i < m; i++)
		if (model->work.positions[i] >= from)
			return true;
	return false;
}

/* The group of a layer. */
static u32 group_of(const struct model *model, u32 layer)
{
	const struct model_config *cfg = &model->cfg;

	return model->info.nr_groups > 1 && (config_is_local(cfg, layer) ||
					     config_is_recurrent(cfg, layer));
}

/* Mix the tokens of sequences: by attention, or by a recurrence. */
static void layer_mix(struct model *model, const struct layer_kv *lkv, u32 layer,
		      u32 m)
{
	if (config_is_recurrent(&model->cfg, layer))
		layer_recurrent(model, lkv, layer, m);
	else
		layer_attention(model, lkv, layer, m);
}

/* All ops of a step. */
static void step_ops(struct model *model, const struct kern_step *s,
		     const struct kern_rows *rows, const struct head_out *out)
{
	const struct model_layer *first = model->w.layers;
	struct model_work *w = &model->work;
	u32 layer, g, used[MODEL_MAX_GROUPS] = { 0 };
	const u32 m = rows->nr_rows;

	embed(model, rows, s->nr_rows);
	if (!model->cfg.no_pre_norms)
		normalise(model, w->x, first->attn_norm, first->attn_norm_bias,
			  rows->nr_rows, model->cfg.hidden, w->h);
	for (layer = 0; layer < model->cfg.layers; layer++) {
		g = group_of(model, layer);
		layer_mix(model, &(struct layer_kv){
			.kv = &s->kv[g],
			.seqs = s->seqs + (u64)g * s->nr_seqs,
			.nr_seqs = s->nr_seqs, .at = used[g]++,
		}, layer, m);
		layer_join(model, layer, m);
		layer_mlp(model, layer, m);
	}
	head_logits(model, rows, s->nr_wanted, out);
}

/* One attempt; -EAGAIN asks for another. */
static int step_try(struct model *model, const struct kern_step *s,
		    const struct head_out *out)
{
	struct kern_rows rows;
	int ret;

	ret = kern_step_begin(model->ops, model->ctx, s, &rows);
	if (ret)
		return ret;
	if (!rows.replayed)
		step_ops(model, s, &rows, out);
	ret = kern_step_end(model->ops, model->ctx);
	if (ret || !model_on_device(model))
		return ret;
	if (rows.recorded)
		head_take(model, out, 0, s->nr_wanted);
	/*
	 * The pool may hand KV to others from now on: it must have been
	 * written.
	 */
	return model->ops->wait(model->ctx);
}

static int step_run(struct model *model, const struct kern_step *s,
		    const struct head_out *out)
{
	int ret;

	do {
		ret = step_try(model, s, out);
	} while (ret == -EAGAIN);
	return ret;
}

int model_forward_draw(struct model *model, const struct model_kv *kv,
		       const struct model_seq_in *seqs, u32 nr_seqs,
		       const struct model_draws *draws, float *logits)
{
	const struct head_out out = { .logits = logits, .draws = draws };
	const struct model_work *w = &model->work;
	struct kern_kv g[MODEL_MAX_GROUPS];
	struct kern_step s = {
		.kv = g, .nr_groups = model->info.nr_groups, .seqs = w->seqs,
		.nr_seqs = nr_seqs, .ids = w->ids,
		.positions = w->positions, .wanted = w->wanted,
		.max_rows = model->info.max_rows,
		.max_wanted = w->max_logits,
	};
	int ret;

	ret = batch_check(model, seqs, nr_seqs, &s.nr_rows, &s.nr_wanted);
	if (ret)
		return ret;
	if ((s.nr_wanted && !logits && !model->cfg.part.rank) ||
	    !geometries(model, kv, g) ||
	    (draws && !head_check(model, draws, s.nr_wanted)))
		return -EINVAL;
	if (!s.nr_rows)
		return 0;
	if (model_is_null(model)) {
		if (logits)
			null_logits(model, seqs, nr_seqs, logits);
		return 0;
	}
	batch_pack(model, seqs, nr_seqs);
	/* Experts are chosen in between, by the rows themselves. */
	s.once = turns_late(model, s.nr_rows) || model->cfg.moe.experts ||
		 model->work.nr_adapts;
	ret = step_run(model, &s, &out);
	return model->link_err ? -EIO : ret;
}

int model_forward(struct model *model, const struct model_kv *kv,
		  const struct model_seq_in *seqs, u32 nr_seqs, float *logits)
{
	return model_forward_draw(model, kv, seqs, nr_seqs, NULL, logits);
}

int model_put(struct model *model, void *to, const void *from, u64 bytes)
{
	if (!model_on_device(model)) {
		memcpy(to, from, bytes);
		return 0;
	}
	model->ops->mem_put(model->ctx, to, from, bytes);
	return model->ops->wait(model->ctx);
}

void *model_host_alloc(struct model *model, size_t bytes)
{
	return model_on_device(model) && model->ctx ?
	       model->ops->host_alloc(model->ctx, bytes) : NULL;
}

void model_host_free(struct model *model, void *p)
{
	if (p)
		model->ops->host_free(model->ctx, p);
}

const char *model_failure(struct model *model)
{
	if (model->link_err)
		return model->link->failure(model->link->arg);
	return model_on_device(model) && model->ctx ?
	       model->ops->failure(model->ctx) : NULL;
}
