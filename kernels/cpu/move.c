// SPDX-License-Identifier: Apache-2.0
/*
 * move.c - ops that only move elements: embedding, KV append, KV copy, rows
 *
 * They widen or round single elements.  Their only reduction is the largest
 * magnitude of a head, in narrow.c, which does not depend on order.  So one
 * compilation serves all variants with the same bits.
 *
 * kv_write and kv_copy are the only ops that write the pool.  The threads share
 * out layers, never descriptors, so each layer is copied in the order of the
 * list: a copy may read a block that an earlier copy wrote.
 */
#include "kernels/cpu/packed.h"

static void row_widen(float *dst, const void *src, enum kern_dtype type, u64 n)
{
	const u16 *h = src;
	u64 i;

	if (type == KERN_F32) {
		memcpy(dst, src, n * sizeof(*dst));
		return;
	}
	if (kern_is_blocks(type)) {
		kern_dequant(type, src, n, dst);
		return;
	}
	for (i = 0; i < n; i++)
		dst[i] = type == KERN_F16 ? kern_f16(h[i]) :
					    kern_bf16_to_f32(h[i]);
}

static void row_unpack(float *dst, const u16 *src, u64 n)
{
	u64 i;

	for (i = 0; i < n; i++)
		dst[i] = kern_bf16_to_f32(src[i / 2 * 2 * PACK_ROWS + i % 2]);
}

void kern_embed(struct kern_ctx *ctx, const struct kern_weight *w,
		const u32 *ids, u32 m, float *x)
{
	u64 row = kern_row_bytes(w->dtype, w->cols);
	u32 i;

	for (i = 0; w->packed && i < m; i++)
		row_unpack(x + (u64)i * w->cols,
			   (const u16 *)w->data + pack_row(w, ids[i]), w->cols);
	for (i = 0; !w->packed && i < m; i++)
		row_widen(x + (u64)i * w->cols,
			  (const u8 *)w->data + ids[i] * row, w->dtype,
			  w->cols);
}

void kern_gather(struct kern_ctx *ctx, const float *x, const u32 *rows, u32 m,
		 u32 d, float *y)
{
	u32 i;

	for (i = 0; i < m; i++)
		memcpy(y + (u64)i * d, x + (u64)rows[i] * d, d * sizeof(*y));
}

void kern_split_heads(struct kern_ctx *ctx, const float *qkv, u32 m, u32 heads,
		      u32 head_dim, float *q, float *k, float *v)
{
	const u64 nr = (u64)m * heads, hd = head_dim;
	u64 i;

	for (i = 0; i < nr; i++, qkv += 3 * hd) {
		memcpy(q + i * hd, qkv, hd * sizeof(*q));
		memcpy(k + i * hd, qkv + hd, hd * sizeof(*k));
		memcpy(v + i * hd, qkv + 2 * hd, hd * sizeof(*v));
	}
}

static void kv_write_head(const struct kern_kv *kv, u32 entry, u32 layer,
			  u32 is_v, u32 h, u32 token, const float *x)
{
	float *scale = NULL;

	if (kern_dtype_scaled(kv->dtype))
		scale = kern_kv_scale_addr(kv, entry, layer, is_v, h, token);
	kern_narrow(kern_kv_addr(kv, entry, layer, is_v, h, token), kv->dtype,
		    scale, x, kv->head_dim);
}

/* One latent vector, and the part of the key behind it, with one scale. */
static void kv_write_latent(const struct kern_kv_append *a, u32 entry,
			    u32 token, u32 row)
{
	const struct kern_kv *kv = a->kv;
	const u32 rest = kv->head_dim - kv->rank;
	float x[KERN_MAX_LATENT_DIM];

	memcpy(x, a->k + row * (a->k_ld ? a->k_ld : kv->rank),
	       kv->rank * sizeof(*x));
	memcpy(x + kv->rank, a->v + row * (a->v_ld ? a->v_ld : rest),
	       rest * sizeof(*x));
	kv_write_head(kv, entry, a->layer, 0, 0, token, x);
}

static void kv_write_row(const struct kern_kv_append *a, const u32 *table,
			 u32 pos, u32 row)
{
	const struct kern_kv *kv = a->kv;
	u32 entry = table[pos / kv->block_tokens];
	u32 token = pos % kv->block_tokens;
	u64 dense = (u64)kv->kv_heads * kv->head_dim;
	const float *k = a->k + row * (a->k_ld ? a->k_ld : dense);
	const float *v = a->v + row * (a->v_ld ? a->v_ld : dense);
	u32 h;

	if (kv->rank) {
		kv_write_latent(a, entry, token, row);
		return;
	}
	for (h = 0; h < kv->kv_heads; h++) {
		kv_write_head(kv, entry, a->layer, 0, h, token,
			      k + (u64)h * kv->head_dim);
		kv_write_head(kv, entry, a->layer, 1, h, token,
			      v + (u64)h * kv->head_dim);
	}
}

void kern_kv_write(struct kern_ctx *ctx, const struct kern_kv_append *a)
{
	const struct kern_attn_seq *seq;
	u32 s, i;

	for (s = 0; s < a->nr_seqs; s++) {
		seq = &a->seqs[s];
		for (i = 0; i < seq->nr_rows; i++)
			kv_write_row(a, seq->table, seq->start_pos + i,
				     seq->first_row + i);
	}
}

struct copy_job {
	const struct kern_kv		*kv;
	const struct kern_kv_copy	*copies;
	u32				nr;
};

/* K or V of one head, with its scales. */
static void copy_head(const struct kern_kv *kv, const struct kern_kv_copy *c,
		      u32 layer, u32 is_v, u32 h)
{
	u64 row = (u64)kv->head_dim * kern_dtype_size(kv->dtype);

	memcpy(kern_kv_addr(kv, c->to, layer, is_v, h, 0),
	       kern_kv_addr(kv, c->from, layer, is_v, h, 0), c->tokens * row);
	if (kern_dtype_scaled(kv->dtype))
		memcpy(kern_kv_scale_addr(kv, c->to, layer, is_v, h, 0),
		       kern_kv_scale_addr(kv, c->from, layer, is_v, h, 0),
		       c->tokens * sizeof(float));
}

static void copy_layer(void *arg, u32 layer)
{
	const struct copy_job *job = arg;
	const struct kern_kv_copy *c;
	u32 h, is_v;

	for (c = job->copies; c < job->copies + job->nr; c++)
		for (is_v = 0; is_v < kern_kv_sides(job->kv); is_v++)
			for (h = 0; h < job->kv->kv_heads; h++)
				copy_head(job->kv, c, layer, is_v, h);
}

void kern_kv_copy(struct kern_ctx *ctx, const struct kern_kv *kv,
		  const struct kern_kv_copy *copies, u32 nr)
{
	struct copy_job job = { .kv = kv, .copies = copies, .nr = nr };
	u64 bytes = kern_kv_layer_bytes(kv) * kv->nr_layers * nr;

	if (bytes < KERN_PARALLEL_MIN)
		ctx = NULL;
	kern_parallel(ctx, kv->nr_layers, copy_layer, &job);
}
