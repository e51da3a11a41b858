// SPDX-License-Identifier: Apache-2.0
/*
 * decoder.c - one decoder for every family
 *
 * A batch is rows: one row a token, packed sequence after sequence, of
 * whatever mix of prefill and decode.  All ops but attention treat rows alike
 * and independently; attention is told which rows belong to which block
 * table.  So there is no prefill path and no decode path, and cutting a
 * prompt into chunks changes nothing but how many rows share a call.
 *
 *	x = embed(ids) * scale (+ row of the position)
 *	for every layer:
 *		h = norm(x); q, k, v = h * Wq, Wk, Wv (+ bias)
 *		(norm heads of q and k); (rotate q and k)
 *		write k, v to the blocks; a = attention(q, blocks)
 *		side = (norm) a * Wo (+ bias)
 *		x += side, now or with the MLP's
 *		h = norm(x); m = act(h * Wgate) * (h * Wup) or act(h * Wup)
 *		x += (norm) m * Wdown (+ bias)
 *	logits = norm(x of the wanted rows) * Whead, (capped)
 *
 * What is in parentheses is a switch, and so are the norm and the activation.
 * Nothing here knows a family.
 *
 * Bits.  Kernels are exact, each row by itself; everything added here is
 * element by element.  So a row's bits depend on its tokens and positions
 * alone, in both numeric modes.
 *
 * bf16 arithmetic.  Kernels take and give f32; with MODEL_BF16 every result
 * that another op will read is rounded to bf16 in place, and the blocks hold
 * bf16, which loses nothing more.  Logits are read by no op and stay f32.
 *
 * Nothing is allocated here after decoder_create(), and a batch is judged as
 * a whole before the first byte of KV is written.
 */
#include <stdlib.h>

#include "runtime/model/internal.h"

#define WORK_ALIGN	64u

/* Carve @n elements of @size off the piece; with no piece, only count. */
static void *work_take(struct model_work *w, u64 n, size_t size)
{
	void *p = w->mem ? (u8 *)w->mem + w->bytes : NULL;

	w->bytes += ALIGN_UP(n * size, (u64)WORK_ALIGN);
	return p;
}

static void work_carve(struct model_work *w, const struct model_config *cfg,
		       u64 rows, u64 seqs)
{
	const u64 q = rows * cfg->heads * cfg->head_dim;
	const u64 kv = rows * cfg->kv_heads * cfg->head_dim;
	const bool joined = cfg->layout == LAYOUT_NEOX;

	w->bytes = 0;
	w->x = work_take(w, rows * cfg->hidden, sizeof(*w->x));
	w->h = work_take(w, rows * cfg->hidden, sizeof(*w->h));
	w->side = work_take(w, rows * cfg->hidden, sizeof(*w->side));
	w->q = work_take(w, q, sizeof(*w->q));
	w->k = work_take(w, kv, sizeof(*w->k));
	w->v = work_take(w, kv, sizeof(*w->v));
	w->attn = work_take(w, q, sizeof(*w->attn));
	w->qkv = work_take(w, joined ? 3 * q : 0, sizeof(*w->qkv));
	w->gate = work_take(w, rows * cfg->inter, sizeof(*w->gate));
	w->up = work_take(w, rows * cfg->inter, sizeof(*w->up));
	w->rope = work_take(w, rows * config_rotary(cfg), sizeof(*w->rope));
	w->rope_local = w->rope;
	if (cfg->two_ropes)
		w->rope_local = work_take(w, rows * config_rotary(cfg),
					  sizeof(*w->rope_local));
	w->ids = work_take(w, rows, sizeof(*w->ids));
	w->positions = work_take(w, rows, sizeof(*w->positions));
	w->seqs = work_take(w, seqs, sizeof(*w->seqs));
}

int decoder_create(struct model *model)
{
	struct model_work *w = &model->work;
	const u64 rows = model->info.max_rows, seqs = model->info.max_seqs;

	w->mem = NULL;
	work_carve(w, &model->cfg, rows, seqs);
	if (model->judged)
		return 0;
	w->mem = aligned_alloc(WORK_ALIGN, w->bytes);
	if (!w->mem)
		return -ENOMEM;
	work_carve(w, &model->cfg, rows, seqs);
	return 0;
}

void decoder_destroy(struct model *model)
{
	free(model->work.mem);
	model->work = (struct model_work){ 0 };
}

#define SETTLE_CHUNK	16u	/* a constant count, so that compilers vectorise */

/* Round up to a chunk of values to bf16, nearest even; NaN stays NaN. */
static inline void settle_chunk(float *x, size_t n)
{
	u32 bits[SETTLE_CHUNK] = { 0 }, rounded, i;

	memcpy(bits, x, n * sizeof(*x));
	for (i = 0; i < SETTLE_CHUNK; i++) {
		rounded = (bits[i] + 0x7fff + (bits[i] >> 16 & 1)) &
			  0xffff0000u;
		bits[i] = (s32)(bits[i] & 0x7fffffff) > 0x7f800000 ?
			  bits[i] : rounded;
	}
	memcpy(x, bits, n * sizeof(*x));
}

/* End of an op: with bf16 arithmetic, round what it gave. */
static void settle(const struct model *model, float *x, u64 n)
{
	u64 i;

	if (model->info.dtype != MODEL_BF16)
		return;
	for (i = 0; i + SETTLE_CHUNK <= n; i += SETTLE_CHUNK)
		settle_chunk(x + i, SETTLE_CHUNK);
	if (i < n)
		settle_chunk(x + i, n - i);
}

/* y[m][rows of w] = x * w + bias */
static void project(struct model *model, const float *x,
		    const struct kern_weight *w, const float *bias, u32 m,
		    float *y)
{
	model->ops->gemm(model->ctx, x, 0, w, bias, m, y, 0);
	settle(model, y, (u64)m * w->rows);
}

/* Norm of @m rows of @d; @y may be @x. */
static void normalise(struct model *model, const float *x, const float *w,
		      const float *bias, u32 m, u32 d, float *y)
{
	const float eps = model->cfg.norm_eps;

	if (model->cfg.layer_norm)
		model->ops->layernorm(model->ctx, x, w, bias, m, d, eps, y);
	else
		model->ops->rmsnorm(model->ctx, x, w, m, d, eps, y);
	settle(model, y, (u64)m * d);
}

/* x += y, rows of the residual stream's width */
static void residual(struct model *model, float *x, const float *y, u32 m)
{
	const u64 n = (u64)m * model->cfg.hidden;

	model->ops->add(model->ctx, x, y, n);
	settle(model, x, n);
}

/* Norm (a switch) and rotation of the heads of q or of k. */
static void turn_heads(struct model *model, float *x, const float *norm, u32 m,
		       u32 heads, const float *table)
{
	const u32 hd = model->cfg.head_dim;

	if (norm)
		normalise(model, x, norm, NULL, m * heads, hd, x);
	if (model->cfg.learned)
		return;
	model->ops->rope(model->ctx, x, 0, m, heads, hd,
			 config_rotary(&model->cfg) / 2, table);
	settle(model, x, (u64)m * heads * hd);
}

/* q, k and v of every row out of heads that hold all three. */
static void split_heads(struct model *model, u32 m)
{
	const u32 hd = model->cfg.head_dim, heads = model->cfg.heads;
	struct model_work *w = &model->work;
	const float *from = w->qkv;
	u64 i;

	for (i = 0; i < (u64)m * heads; i++, from += 3 * (u64)hd) {
		memcpy(w->q + i * hd, from, hd * sizeof(*from));
		memcpy(w->k + i * hd, from + hd, hd * sizeof(*from));
		memcpy(w->v + i * hd, from + 2 * hd, hd * sizeof(*from));
	}
}

static void project_heads(struct model *model, const struct model_layer *l,
			  u32 m)
{
	struct model_work *w = &model->work;

	if (l->qkv.data) {
		project(model, w->h, &l->qkv, l->qkv_bias, m, w->qkv);
		split_heads(model, m);
		return;
	}
	project(model, w->h, &l->q, l->q_bias, m, w->q);
	project(model, w->h, &l->k, l->k_bias, m, w->k);
	project(model, w->h, &l->v, l->v_bias, m, w->v);
}

static void layer_attend(struct model *model, const struct kern_kv *kv,
			 u32 nr_seqs, u32 layer)
{
	const struct model_work *w = &model->work;
	const struct kern_attn a = {
		.kv = kv,
		.layer = layer,
		.nr_seqs = nr_seqs,
		.seqs = w->seqs,
		.q = w->q,
		.out = w->attn,
		.heads = model->cfg.heads,
		.window = config_is_local(&model->cfg, layer) ?
			  model->cfg.window : 0,
		.scale = model->cfg.attn_scale,
		.softcap = model->cfg.attn_cap,
	};
	const struct kern_kv_append app = {
		.kv = kv,
		.layer = layer,
		.nr_seqs = nr_seqs,
		.seqs = w->seqs,
		.k = w->k,
		.v = w->v,
	};

	model->ops->kv_write(model->ctx, &app);
	model->ops->attention(model->ctx, &a);
}

static void layer_attention(struct model *model, const struct kern_kv *kv,
			    u32 nr_seqs, u32 layer, u32 m)
{
	const struct model_layer *l = &model->w.layers[layer];
	const struct model_config *cfg = &model->cfg;
	struct model_work *w = &model->work;
	const float *table = config_is_local(cfg, layer) ? w->rope_local :
							   w->rope;

	normalise(model, w->x, l->attn_norm, l->attn_norm_bias, m,
		  cfg->hidden, w->h);
	project_heads(model, l, m);
	turn_heads(model, w->q, l->q_norm, m, cfg->heads, table);
	turn_heads(model, w->k, l->k_norm, m, cfg->kv_heads, table);
	layer_attend(model, kv, nr_seqs, layer);
	settle(model, w->attn, (u64)m * cfg->heads * cfg->head_dim);
	project(model, w->attn, &l->o, l->o_bias, m, w->side);
	if (l->attn_post)
		normalise(model, w->side, l->attn_post, NULL, m, cfg->hidden,
			  w->side);
	if (!cfg->parallel)
		residual(model, w->x, w->side, m);
}

/* gate = act(gate) * up, or act(up) */
static void activate(struct model *model, u32 m)
{
	const struct model_config *cfg = &model->cfg;
	struct model_work *w = &model->work;

	if (cfg->gated && cfg->act == KERN_SILU)
		model->ops->silu_mul(model->ctx, w->gate, w->up, 0, m,
				     cfg->inter, w->gate);
	else if (cfg->gated)
		model->ops->act(model->ctx, cfg->act, w->gate, w->up, 0, m,
				cfg->inter, w->gate);
	else
		model->ops->act(model->ctx, cfg->act, w->up, NULL, 0, m,
				cfg->inter, w->gate);
	settle(model, w->gate, (u64)m * cfg->inter);
}

static void layer_mlp(struct model *model, u32 layer, u32 m)
{
	const struct model_layer *l = &model->w.layers[layer];
	const struct model_config *cfg = &model->cfg;
	struct model_work *w = &model->work;

	normalise(model, w->x, l->mlp_norm, l->mlp_norm_bias, m, cfg->hidden,
		  w->h);
	if (cfg->gated)
		project(model, w->h, &l->gate, l->gate_bias, m, w->gate);
	project(model, w->h, &l->up, l->up_bias, m, w->up);
	activate(model, m);
	project(model, w->gate, &l->down, l->down_bias, m, w->h);
	if (l->mlp_post)
		normalise(model, w->h, l->mlp_post, NULL, m, cfg->hidden,
			  w->h);
	if (cfg->parallel)
		residual(model, w->h, w->side, m);
	residual(model, w->x, w->h, m);
}

/* The last want_logits rows of every sequence, through the head. */
static void head_logits(struct model *model, const struct model_seq_in *seqs,
			u32 nr_seqs, float *logits)
{
	const u32 hidden = model->cfg.hidden;
	struct model_work *w = &model->work;
	u32 i, from, want, m = 0;

	for (i = 0; i < nr_seqs; i++) {
		want = seqs[i].want_logits;
		from = w->seqs[i].first_row + seqs[i].nr_tokens - want;
		memcpy(w->h + (u64)m * hidden, w->x + (u64)from * hidden,
		       (u64)want * hidden * sizeof(*w->h));
		m += want;
	}
	if (!m)
		return;
	normalise(model, w->h, model->w.norm, model->w.norm_bias, m, hidden,
		  w->h);
	model->ops->gemm(model->ctx, w->h, 0, &model->w.head, NULL, m, logits,
			 0);
	if (model->cfg.final_cap)
		model->ops->softcap(model->ctx, logits, model->cfg.final_cap,
				    (u64)m * model->cfg.vocab);
}

static int seq_check(const struct model *model, const struct model_seq_in *s)
{
	u32 i;

	if (!s->nr_tokens || !s->tokens || !s->table ||
	    s->want_logits > s->nr_tokens ||
	    (u64)s->start + s->nr_tokens > model->info.max_len)
		return -EINVAL;
	for (i = 0; i < s->nr_tokens; i++)
		if (s->tokens[i] >= model->cfg.vocab)
			return -EINVAL;
	return 0;
}

/* Judge the whole batch; *rows is its size, *wanted its rows of logits. */
static int batch_check(const struct model *model,
		       const struct model_seq_in *seqs, u32 nr_seqs, u32 *rows,
		       u32 *wanted)
{
	u64 total = 0;
	u32 i;
	int ret;

	if (nr_seqs > model->info.max_seqs)
		return -E2BIG;
	for (i = 0; i < nr_seqs; i++)
		total += seqs[i].nr_tokens;
	if (total > model->info.max_rows)
		return -E2BIG;
	*rows = total;
	*wanted = 0;
	for (i = 0; i < nr_seqs; i++) {
		ret = seq_check(model, &seqs[i]);
		if (ret)
			return ret;
		*wanted += seqs[i].want_logits;
	}
	return 0;
}

/* Lay the batch out as rows. */
static void batch_pack(struct model *model, const struct model_seq_in *seqs,
		       u32 nr_seqs)
{
	struct model_work *w = &model->work;
	u32 i, j, row = 0;

	for (i = 0; i < nr_seqs; i++) {
		w->seqs[i] = (struct kern_attn_seq){
			.table = seqs[i].table,
			.nr_rows = seqs[i].nr_tokens,
			.first_row = row,
			.start_pos = seqs[i].start,
		};
		for (j = 0; j < seqs[i].nr_tokens; j++, row++) {
			w->ids[row] = seqs[i].tokens[j];
			w->positions[row] = seqs[i].start + j;
		}
	}
}

/* Cosines and sines of one encoding for all rows. */
static void turn_table(struct model *model, const struct rope_config *r,
		       const float *inv_freq, u32 m, float *table)
{
	const u32 turns = config_rotary(&model->cfg);
	struct model_work *w = &model->work;
	u32 i;

	model->ops->rope_table(model->ctx, inv_freq, turns / 2, w->positions,
			       m, table);
	for (i = 0; rope_is_dynamic(r) && i < m; i++) {
		if (w->positions[i] < r->original)
			continue;
		rope_inv_freq_at(r, turns, w->positions[i] + 1,
				 model->inv_now);
		model->ops->rope_table(model->ctx, model->inv_now, turns / 2,
				       w->positions + i, 1,
				       table + (u64)i * turns);
	}
	if (r->gain != 1.0)
		model->ops->scale(model->ctx, table, r->gain, (u64)m * turns);
}

/* Embeddings of the rows, and what turns their heads. */
static void embed(struct model *model, u32 m)
{
	const struct model_config *cfg = &model->cfg;
	struct model_work *w = &model->work;
	const u64 n = (u64)m * cfg->hidden;
	float scale = cfg->embed_scale;
	u32 i;

	model->ops->embed(model->ctx, &model->w.embed, w->ids, m, w->x);
	settle(model, w->x, n);
	if (scale != 1.0f) {
		settle(model, &scale, 1);
		model->ops->scale(model->ctx, w->x, scale, n);
		settle(model, w->x, n);
	}
	if (!cfg->learned) {
		turn_table(model, &cfg->rope, model->inv_freq, m, w->rope);
		if (cfg->two_ropes)
			turn_table(model, &cfg->rope_local, model->inv_local,
				   m, w->rope_local);
		return;
	}
	for (i = 0; i < m; i++)
		w->positions[i] += cfg->learned_from;
	model->ops->embed(model->ctx, &model->w.pos, w->positions, m, w->h);
	settle(model, w->h, n);
	residual(model, w->x, w->h, m);
}

static struct kern_kv geometry(const struct model *model,
			       const struct model_kv *kv)
{
	return (struct kern_kv){
		.base = kv->base,
		.unit = kv->unit,
		.layer_stride = kv->layer_stride,
		.block_tokens = kv->block_tokens,
		.nr_layers = model->cfg.layers,
		.kv_heads = model->cfg.kv_heads,
		.head_dim = model->cfg.head_dim,
		.dtype = model->info.dtype == MODEL_BF16 ? KERN_BF16 : KERN_F32,
	};
}

int model_forward(struct model *model, const struct model_kv *kv,
		  const struct model_seq_in *seqs, u32 nr_seqs, float *logits)
{
	const struct kern_kv g = geometry(model, kv);
	u32 layer, m, wanted;
	int ret;

	ret = batch_check(model, seqs, nr_seqs, &m, &wanted);
	if (ret)
		return ret;
	if ((wanted && !logits) || kern_kv_check(&g))
		return -EINVAL;
	if (!m)
		return 0;
	batch_pack(model, seqs, nr_seqs);
	embed(model, m);
	for (layer = 0; layer < model->cfg.layers; layer++) {
		layer_attention(model, &g, nr_seqs, layer, m);
		layer_mlp(model, layer, m);
	}
	head_logits(model, seqs, nr_seqs, logits);
	return 0;
}

void model_copy_blocks(struct model *model, const struct model_kv *kv,
		       const u32 *from, const u32 *to, const u32 *tokens,
		       u32 nr)
{
	const struct kern_kv g = geometry(model, kv);
	struct kern_kv_copy copies[64];
	u32 done, i, n;

	for (done = 0; done < nr; done += n) {
		n = min(nr - done, (u32)ARRAY_SIZE(copies));
		for (i = 0; i < n; i++)
			copies[i] = (struct kern_kv_copy){
				.from = from[done + i],
				.to = to[done + i],
				.tokens = tokens[done + i],
			};
		model->ops->kv_copy(model->ctx, &g, copies, n);
	}
}
