// SPDX-License-Identifier: Apache-2.0
/*
 * ref_kv.c - the plain reference of the ops on paged KV
 *
 * Every element is found by kern_kv_addr(), the definition of the layout, for
 * each access anew.  Attention is the textbook softmax in three passes over the
 * positions that a row sees, and only these: other positions of a block are
 * never loaded.
 */
#include <math.h>

#include "kernels/ref/internal.h"

static u8 *kv_at(const struct kern_kv *kv, const u32 *table, u32 layer,
		 u32 is_v, u32 head, u32 pos)
{
	return kern_kv_addr(kv, table[pos / kv->block_tokens], layer, is_v,
			    head, pos % kv->block_tokens);
}

/* Address of the scale for the same element. */
static float *scale_at(const struct kern_kv *kv, const u32 *table, u32 layer,
		       u32 is_v, u32 head, u32 pos)
{
	return kern_kv_scale_addr(kv, table[pos / kv->block_tokens], layer,
				  is_v, head, pos % kv->block_tokens);
}

/* The scale of the same element, 1 without scales. */
static double scale_of(const struct kern_kv *kv, const u32 *table, u32 layer,
		       u32 is_v, u32 head, u32 pos)
{
	if (!kern_dtype_scaled(kv->dtype))
		return 1;
	return *scale_at(kv, table, layer, is_v, head, pos);
}

/* The scale of @n numbers, as kernels.h defines it. */
static float make_scale(enum kern_dtype type, const float *x, u32 n)
{
	const float limit = type == KERN_I8 ? KERN_I8_MAX : KERN_E4M3_MAX;
	float amax = 0;
	u32 d;

	for (d = 0; d < n; d++) {
		if (!isfinite(x[d]))
			return __builtin_nanf("");
		amax = fmaxf(amax, fabsf(x[d]));
	}
	return amax / limit;
}

/* Write one head of one token. */
static void write_head(const struct kern_kv *kv, u8 *to, float *scale,
		       const float *x)
{
	const float limit = kv->dtype == KERN_I8 ? KERN_I8_MAX : KERN_E4M3_MAX;
	float y = 0;
	u32 d;

	if (kern_dtype_scaled(kv->dtype))
		*scale = make_scale(kv->dtype, x, kv->head_dim);
	for (d = 0; d < kv->head_dim; d++) {
		if (!kern_dtype_scaled(kv->dtype))
			y = x[d];
		else if (*scale > 0)
			y = fmaxf(-limit, fminf(limit, x[d] / *scale));
		kern_ref_store(to, kv->dtype, d, y);
	}
}

/* Write the latent vector of a row, and the part of its key behind it. */
static void write_latent(const struct kern_kv_append *a, const u32 *table,
			 u32 pos, u32 row)
{
	const struct kern_kv *kv = a->kv;
	const u32 rest = kv->head_dim - kv->rank;
	const float *k = a->k + (u64)row * (a->k_ld ? a->k_ld : kv->rank);
	const float *v = a->v + (u64)row * (a->v_ld ? a->v_ld : rest);
	float x[KERN_MAX_LATENT_DIM];
	u32 d;

	for (d = 0; d < kv->head_dim; d++)
		x[d] = d < kv->rank ? k[d] : v[d - kv->rank];
	write_head(kv, kv_at(kv, table, a->layer, 0, 0, pos),
		   scale_at(kv, table, a->layer, 0, 0, pos), x);
}

static void write_row(const struct kern_kv_append *a, const u32 *table,
		      u32 pos, u32 row)
{
	const struct kern_kv *kv = a->kv;
	u64 dense = (u64)kv->kv_heads * kv->head_dim;
	const float *k = a->k + row * (a->k_ld ? a->k_ld : dense);
	const float *v = a->v + row * (a->v_ld ? a->v_ld : dense);
	u64 at;
	u32 h;

	if (kv->rank) {
		write_latent(a, table, pos, row);
		return;
	}
	for (h = 0; h < kv->kv_heads; h++) {
		at = (u64)h * kv->head_dim;
		write_head(kv, kv_at(kv, table, a->layer, 0, h, pos),
			   scale_at(kv, table, a->layer, 0, h, pos), k + at);
		write_head(kv, kv_at(kv, table, a->layer, 1, h, pos),
			   scale_at(kv, table, a->layer, 1, h, pos), v + at);
	}
}

void kern_ref_kv_write(struct kern_ctx *ctx, const struct kern_kv_append *a)
{
	const struct kern_attn_seq *seq;
	u32 s, i;

	for (s = 0; s < a->nr_seqs; s++) {
		seq = &a->seqs[s];
		for (i = 0; i < seq->nr_rows; i++)
			write_row(a, seq->table, seq->start_pos + i,
				  seq->first_row + i);
	}
}

static void copy_head(const struct kern_kv *kv, const struct kern_kv_copy *c,
		      u32 layer, u32 is_v, u32 h, u32 token)
{
	memmove(kern_kv_addr(kv, c->to, layer, is_v, h, token),
		kern_kv_addr(kv, c->from, layer, is_v, h, token),
		(u64)kv->head_dim * kern_dtype_size(kv->dtype));
	if (kern_dtype_scaled(kv->dtype))
		*kern_kv_scale_addr(kv, c->to, layer, is_v, h, token) =
			*kern_kv_scale_addr(kv, c->from, layer, is_v, h, token);
}

static void copy_token(const struct kern_kv *kv, const struct kern_kv_copy *c,
		       u32 layer, u32 token)
{
	u32 is_v, h;

	for (is_v = 0; is_v < kern_kv_sides(kv); is_v++)
		for (h = 0; h < kv->kv_heads; h++)
			copy_head(kv, c, layer, is_v, h, token);
}

void kern_ref_kv_copy(struct kern_ctx *ctx, const struct kern_kv *kv,
		      const struct kern_kv_copy *copies, u32 nr)
{
	u32 i, layer, token;

	for (i = 0; i < nr; i++)
		for (layer = 0; layer < kv->nr_layers; layer++)
			for (token = 0; token < copies[i].tokens; token++)
				copy_token(kv, &copies[i], layer, token);
}

/* Arguments of one query head of one row. */
struct query {
	const struct kern_attn	*a;
	const u32		*table;
	const float		*q;
	const float		*sink;	/* or NULL */
	u32			kv_head;
	u32			first;	/* positions that it sees */
	u32			last;
};

static double score(const struct query *w, u32 pos)
{
	const struct kern_kv *kv = w->a->kv;
	const u8 *k = kv_at(kv, w->table, w->a->layer, 0, w->kv_head, pos);
	double sum = 0;
	u32 d;

	for (d = 0; d < kv->head_dim; d++)
		sum += w->q[d] * kern_ref_load(k, kv->dtype, d);
	sum *= scale_of(kv, w->table, w->a->layer, 0, w->kv_head, pos);
	sum *= w->a->scale;
	if (w->a->softcap)
		sum = w->a->softcap * tanh(sum / w->a->softcap);
	return sum;
}

static void attend(const struct query *w, float *out)
{
	const struct kern_kv *kv = w->a->kv;
	const u32 dims = kv->rank ? kv->rank : kv->head_dim;
	const u32 is_v = !kv->rank;
	double top = -INFINITY, sum = 0, acc[KERN_MAX_LATENT_DIM] = { 0 }, p;
	const u8 *v;
	u32 pos, d;

	for (pos = w->first; pos <= w->last; pos++)
		top = fmax(top, score(w, pos));
	if (w->sink) {
		top = fmax(top, *w->sink);
		sum = exp(*w->sink - top);
	}
	for (pos = w->first; pos <= w->last; pos++) {
		p = exp(score(w, pos) - top);
		v = kv_at(kv, w->table, w->a->layer, is_v, w->kv_head, pos);
		sum += p;
		p *= scale_of(kv, w->table, w->a->layer, is_v, w->kv_head, pos);
		for (d = 0; d < dims; d++)
			acc[d] += p * kern_ref_load(v, kv->dtype, d);
	}
	for (d = 0; d < dims; d++)
		out[d] = acc[d] / sum;
}

static void attend_row(const struct kern_attn *a, const u32 *table, u32 pos,
		       u32 row)
{
	u32 hd = a->kv->head_dim, group = a->heads / a->kv->kv_heads, h;
	const u32 dims = a->kv->rank ? a->kv->rank : hd;
	u64 dense = (u64)a->heads * hd, out_dense = (u64)a->heads * dims;
	struct query w = {
		.a = a,
		.table = table,
		.first = a->window && pos >= a->window ?
			 pos - a->window + 1 : 0,
		.last = pos,
	};

	for (h = 0; h < a->heads; h++) {
		w.q = a->q + row * (a->q_ld ? a->q_ld : dense) + (u64)h * hd;
		w.kv_head = h / group;
		w.sink = a->sinks ? a->sinks + h : NULL;
		attend(&w, a->out + row * (a->out_ld ? a->out_ld : out_dense) +
			   (u64)h * dims);
	}
}

void kern_ref_attention(struct kern_ctx *ctx, const struct kern_attn *a)
{
	const struct kern_attn_seq *seq;
	u32 s, i;

	for (s = 0; s < a->nr_seqs; s++) {
		seq = &a->seqs[s];
		for (i = 0; i < seq->nr_rows; i++)
			attend_row(a, seq->table, seq->start_pos + i,
				   seq->first_row + i);
	}
}
