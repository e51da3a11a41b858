// SPDX-License-Identifier: Apache-2.0
/*
 * kv.c - launch the kernels that write paged KV
 *
 * The batch on the device (struct dev_batch) has the places of the rows, so a
 * recorded append writes the rows of the step in which it is replayed.  Copies have
 * their descriptors as arguments, so the caller's list is not read after
 * cuda_kv_copy() returns.
 *
 * Blocks of threads of a launch run in any order.  So a launch takes descriptors in
 * the order given, until one reads or writes a KV block that an earlier one of the
 * launch writes, or writes a KV block that an earlier one reads.
 */
#include "kernels/cuda/internal.h"

#define KV_THREADS	256u

static bool at_16(const void *p)
{
	return !((uintptr_t)p % 16);
}

struct dev_kv cuda_kv(const struct kern_kv *kv)
{
	return (struct dev_kv){
		.base = kv->base, .unit = kv->unit,
		.layer_stride = kv->layer_stride,
		.block_tokens = kv->block_tokens, .nr_layers = kv->nr_layers,
		.kv_heads = kv->kv_heads, .head_dim = kv->head_dim,
		.dtype = kv->dtype, .rank = kv->rank,
	};
}

/* Are all layers aligned to 16? */
static bool layers_at_16(const struct kern_kv *kv)
{
	return at_16(kv->base) && !(kv->unit % 16) && !(kv->layer_stride % 16);
}

/* The arguments of an append; its batch is on the device then. */
static struct k_kv_write_args write_args(struct cuda_ctx *c,
					 const struct kern_kv_append *a)
{
	const struct kern_kv *kv = a->kv;
	const u64 dense = (u64)kv->kv_heads * kv->head_dim;
	struct k_kv_write_args w = {
		.kv = cuda_kv(kv), .k = a->k, .v = a->v,
		.k_ld = a->k_ld ? a->k_ld : kv->rank ? kv->rank : dense,
		.v_ld = a->v_ld ? a->v_ld : dense - kv->rank,
		.layer = a->layer, .kv_vec = layers_at_16(kv),
	};

	w.vec = at_16(w.k) && at_16(w.v) && !(w.k_ld % 4) && !(w.v_ld % 4);
	w.batch = cuda_batch_of(c, a->seqs, a->nr_seqs, kv);
	/* Enough for all steps that replay this launch. */
	w.rows = c->bound.nr_rows;
	return w;
}

void cuda_kv_write(struct kern_ctx *ctx, const struct kern_kv_append *a)
{
	struct cuda_ctx *c = cuda_of(ctx);
	const struct k_kv_write_args w = write_args(c, a);
	const struct cuda_grid g = {
		.x = w.rows, .y = 1, .z = 1,
		.threads = w.kv.rank ? 32 : KV_THREADS,
	};

	if (w.rows)
		cuda_launch(c, w.kv.rank ? CUDA_k_latent_write :
					   CUDA_k_kv_write, g, &w);
}

void cuda_rope_write(struct kern_ctx *ctx, const struct kern_kv_append *a,
		     float *q, u64 q_ld, u32 heads, u32 half,
		     const float *table)
{
	struct cuda_ctx *c = cuda_of(ctx);
	struct k_rope_write_args r = {
		.w = write_args(c, a), .q = q, .table = table,
		.k = (float *)(uintptr_t)a->k, .heads = heads, .half = half,
		.q_ld = q_ld ? q_ld : (u64)heads * a->kv->head_dim,
		.settle = c->settle,
	};
	const struct cuda_grid g = {
		.x = r.w.rows, .y = 1, .z = 1, .threads = KV_THREADS,
	};

	r.vec = at_16(q) && !(r.q_ld % 4);
	if (r.w.rows)
		cuda_launch(c, CUDA_k_rope_write, g, &r);
}

/* Must @next run after a descriptor of @a? */
static bool depends(const struct k_kv_copy_args *a,
		    const struct kern_kv_copy *next)
{
	u32 i;

	for (i = 0; i < a->nr; i++)
		if (next->from == a->c[i].to || next->to == a->c[i].to ||
		    next->to == a->c[i].from)
			return true;
	return false;
}

/* Launch the gathered descriptors. */
static void copies_flush(struct cuda_ctx *c, struct k_kv_copy_args *a)
{
	const u64 bytes = (a->kv.rank ? 1ull : 2ull) * a->kv.kv_heads *
			  a->kv.block_tokens * a->kv.head_dim * kern_dtype_size(a->kv.dtype);
	const struct cuda_grid g = {
		.x = (u32)min(DIV_ROUND_UP(bytes, 64ull * KV_THREADS), 64ull),
		.y = a->kv.nr_layers, .z = a->nr, .threads = KV_THREADS,
	};

	if (a->nr)
		cuda_launch(c, CUDA_k_kv_copy, g, a);
	a->nr = 0;
}

void cuda_kv_copy(struct kern_ctx *ctx, const struct kern_kv *kv,
		  const struct kern_kv_copy *copies, u32 nr)
{
	struct cuda_ctx *c = cuda_of(ctx);
	struct k_kv_copy_args a = {
		.kv = cuda_kv(kv), .vec = layers_at_16(kv),
	};
	u32 i;

	for (i = 0; i < nr; i++) {
		if (a.nr == KV_COPY_MAX || depends(&a, &copies[i]))
			copies_flush(c, &a);
		if (!copies[i].tokens || copies[i].from == copies[i].to)
			continue;
		a.c[a.nr++] = (struct dev_kv_copy){
			.from = copies[i].from, .to = copies[i].to,
			.tokens = copies[i].tokens,
		};
	}
	copies_flush(c, &a);
}
