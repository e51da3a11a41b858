// SPDX-License-Identifier: Apache-2.0
/*
 * move.c - ops that only move elements: embedding, KV append, KV copy
 *
 * They widen or round single elements and reduce nothing, so one compilation
 * serves all variants with the same bits.
 *
 * kv_write and kv_copy are the only ops that write the pool.  Copies are
 * spread over layers, never over descriptors, so that a list in which one
 * copy reads what an earlier one wrote still means what its order says.
 */
#include "kernels/cpu/internal.h"

static void row_widen(float *dst, const void *src, enum kern_dtype type, u64 n)
{
	const u16 *h = src;
	u64 i;

	if (type == KERN_F32) {
		memcpy(dst, src, n * sizeof(*dst));
		return;
	}
	for (i = 0; i < n; i++)
		dst[i] = kern_bf16_to_f32(h[i]);
}

static void row_narrow(void *dst, const float *src, enum kern_dtype type, u64 n)
{
	u16 *h = dst;
	u64 i;

	if (type == KERN_F32) {
		memcpy(dst, src, n * sizeof(*src));
		return;
	}
	for (i = 0; i < n; i++)
		h[i] = kern_f32_to_bf16(src[i]);
}

void kern_embed(struct kern_ctx *ctx, const struct kern_weight *w,
		const u32 *ids, u32 m, float *x)
{
	u64 row = (u64)w->cols * kern_dtype_size(w->dtype);
	u32 i;

	for (i = 0; i < m; i++)
		row_widen(x + (u64)i * w->cols,
			  (const u8 *)w->data + ids[i] * row, w->dtype,
			  w->cols);
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

	for (h = 0; h < kv->kv_heads; h++) {
		row_narrow(kern_kv_addr(kv, entry, a->layer, 0, h, token),
			   k + (u64)h * kv->head_dim, kv->dtype, kv->head_dim);
		row_narrow(kern_kv_addr(kv, entry, a->layer, 1, h, token),
			   v + (u64)h * kv->head_dim, kv->dtype, kv->head_dim);
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

static void copy_layer(void *arg, u32 layer)
{
	const struct copy_job *job = arg;
	const struct kern_kv *kv = job->kv;
	u64 row = (u64)kv->head_dim * kern_dtype_size(kv->dtype);
	const struct kern_kv_copy *c;
	u32 h, is_v;

	for (c = job->copies; c < job->copies + job->nr; c++)
		for (is_v = 0; is_v < 2; is_v++)
			for (h = 0; h < kv->kv_heads; h++)
				memcpy(kern_kv_addr(kv, c->to, layer, is_v, h, 0),
				       kern_kv_addr(kv, c->from, layer, is_v, h, 0),
				       c->tokens * row);
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
