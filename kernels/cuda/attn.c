// SPDX-License-Identifier: Apache-2.0
/*
 * attn.c - launch attention
 *
 * Exact mode, and KV in f32, which is not meant for speed, use one kernel for all
 * sequences.  In fast mode sequences with few rows are decoded and the others
 * prefilled.  Each of these kernels skips the other's sequences (attn.h), so a
 * batch with both kinds launches both kernels.
 *
 * Grids and scratch depend only on the GPU and on the step's bounds; the kernels
 * find their work on the device.  So a graph does the work of the step that it is
 * replayed for, as long as that step is within the same bounds.  Recorded and
 * replayed steps have one row for each sequence.
 */
#include "kernels/cuda/internal.h"

/* As in attn.h, attn_exact.cu and attn_latent.cu. */
#define ATTN_Q			16u
#define ATTN_FEW		64u
#define EXACT_SPAN		512u
#define EXACT_THREADS		256u
#define EXACT_PAD		4u
#define LATENT_Q		8u
#define JOIN_THREADS		256u

/* Most scratch for spans; items that need more are not split. */
#define EXACT_PART_BYTES	(128ull << 20)
/* Blocks on a multiprocessor for which registers suffice. */
#define DECODE_BLOCKS		3u
/* Queries of an item that are joined in parallel. */
#define JOIN_QUERIES		4u

/* A kernel of fast mode for heads of up to @dims; @own: its static shared bytes. */
struct attn_kernel {
	enum kern_dtype		type;
	u32			dims;
	enum cuda_kernel	kernel;
	u32			warps;
	u32			smem;
	u32			own;
};

enum {
#define x(name, smem)	SMEM_##name = (smem),
	CUDA_ATTN_KERNELS(x)
#undef x
};

#define DECODE(t, n, d, w)	{ t, d, CUDA_k_attn_decode_##n##_##d, w,	\
				  SMEM_k_attn_decode_##n##_##d, (w) * 2688u }
static const struct attn_kernel decode_kernels[] = {
	DECODE(KERN_BF16, bf16, 64, 4),
	DECODE(KERN_BF16, bf16, 80, 4),
	DECODE(KERN_BF16, bf16, 96, 4),
	DECODE(KERN_BF16, bf16, 128, 4),
	DECODE(KERN_BF16, bf16, 256, 2),
	DECODE(KERN_F16, f16, 64, 4),
	DECODE(KERN_F16, f16, 128, 4),
	DECODE(KERN_F16, f16, 256, 2),
	DECODE(KERN_E4M3, e4m3, 64, 4),
	DECODE(KERN_E4M3, e4m3, 128, 4),
	DECODE(KERN_E4M3, e4m3, 256, 2),
	DECODE(KERN_I8, i8, 64, 4),
	DECODE(KERN_I8, i8, 128, 4),
	DECODE(KERN_I8, i8, 256, 2),
};

#define PREFILL(t, n, d, w)	{ t, d, CUDA_k_attn_prefill_##n##_##d, w,	\
				  SMEM_k_attn_prefill_##n##_##d, 512 }
static const struct attn_kernel prefill_kernels[] = {
	PREFILL(KERN_BF16, bf16, 64, 8),
	PREFILL(KERN_BF16, bf16, 96, 8),
	PREFILL(KERN_BF16, bf16, 128, 8),
	PREFILL(KERN_BF16, bf16, 256, 4),
	PREFILL(KERN_F16, f16, 128, 8),
	PREFILL(KERN_F16, f16, 256, 4),
	PREFILL(KERN_E4M3, e4m3, 128, 8),
	PREFILL(KERN_E4M3, e4m3, 256, 4),
	PREFILL(KERN_I8, i8, 128, 8),
	PREFILL(KERN_I8, i8, 256, 4),
};

/* The smallest of @nr kernels for the geometry; that for 256 dims takes any. */
static const struct attn_kernel *choose(const struct attn_kernel *k, u32 nr,
					const struct kern_kv *kv)
{
	u32 i;

	for (i = 0; i < nr; i++)
		if (k[i].type == kv->dtype && k[i].dims >= kv->head_dim)
			break;
	return &k[i];
}

/* Blocks that a multiprocessor holds at once. */
static u32 blocks_of(const struct cuda_ctx *c, u32 smem, u32 most)
{
	/* The driver reserves a KiB for each block. */
	return min(max((c->smem_max + 1024) / (smem + 1024), 1u), most);
}

static bool in_place(const struct kern_kv *kv)
{
	return !((uintptr_t)kv->base % 16) && !(kv->unit % 16) &&
	       !(kv->layer_stride % 16);
}

/* The arguments of a call; its batch is on the device then. */
static struct k_attn_args args_of(struct cuda_ctx *c, const struct kern_attn *a)
{
	const u64 dense = (u64)a->heads * a->kv->head_dim;
	const u64 out = (u64)a->heads * (a->kv->rank ? a->kv->rank :
						       a->kv->head_dim);
	const u32 shift = __builtin_ctz(a->kv->block_tokens);
	const u32 odd = a->kv->block_tokens >> shift;

	return (struct k_attn_args){
		.batch = cuda_batch_of(c, a->seqs, a->nr_seqs, a->kv),
		.kv = cuda_kv(a->kv),
		.q = a->q, .q_ld = a->q_ld ? a->q_ld : dense,
		.out = a->out, .out_ld = a->out_ld ? a->out_ld : out,
		.layer = a->layer, .heads = a->heads,
		.group = a->heads / a->kv->kv_heads,
		.window = a->window, .scale = a->scale,
		.softcap = a->softcap, .sinks = a->sinks,
		.block_shift = shift,
		.block_inverse = odd > 1 ?
			(u32)DIV_ROUND_UP(1ull << 32, (u64)odd) : 0,
		.settle = c->settle,
	};
}

/* Allocate @nr partial results. */
static void parts_take(struct cuda_ctx *c, struct k_attn_args *k, u64 nr)
{
	k->part_floats = nr * ATTN_Q * (k->kv.head_dim + 2);
	k->part = cuda_scratch(c, k->part_floats * sizeof(float));
}

/* Most items of a batch within the bounds. */
static u64 items_bound(const struct cuda_ctx *c, const struct k_attn_args *k)
{
	const u64 rows = (u64)c->bound.max_rows_seq * k->group;

	return c->bound.nr_seqs * DIV_ROUND_UP(rows, ATTN_Q) * k->kv.kv_heads;
}

static void launch_exact(struct cuda_ctx *c, struct k_attn_args *k)
{
	const u32 hd = k->kv.head_dim;
	const u64 spans = c->bound.max_len / EXACT_SPAN + 1;
	const u64 most = EXACT_PART_BYTES / (ATTN_Q * (hd + 2) * sizeof(float));
	struct cuda_grid g = {
		.y = 1, .z = 1, .threads = EXACT_THREADS,
		.smem = (KERN_CHUNK * (hd + EXACT_PAD) +
			 ATTN_Q * (hd + KERN_CHUNK + 2)) * sizeof(float),
	};

	g.x = k->ctas = c->sms * blocks_of(c, g.smem, 2);
	if (c->bound.max_len > EXACT_SPAN)
		parts_take(c, k, min(most, spans * min((u64)k->ctas,
						       items_bound(c, k))));
	cuda_launch(c, CUDA_k_attn_exact, g, k);
	g.smem = 0;
	if (k->part_floats)
		cuda_launch(c, CUDA_k_attn_exact_join, g, k);
}

static void launch_decode(struct cuda_ctx *c, struct k_attn_args *k,
			  const struct kern_kv *kv)
{
	const struct attn_kernel *d =
		choose(decode_kernels, ARRAY_SIZE(decode_kernels), kv);
	struct cuda_grid g = {
		.y = 1, .z = 1, .threads = d->warps * 32, .smem = d->smem,
	};

	k->unit_shift = __builtin_ctz(d->warps * 16);
	g.x = k->ctas = c->sms * blocks_of(c, d->smem + d->own, DECODE_BLOCKS);
	parts_take(c, k, 2ull * k->ctas);
	cuda_launch(c, d->kernel, g, k);
	g = (struct cuda_grid){
		.x = k->ctas - 1, .y = min(k->group, JOIN_QUERIES), .z = 1,
		.threads = JOIN_THREADS,
	};
	cuda_launch(c, CUDA_k_attn_join, g, k);
}

static void launch_prefill(struct cuda_ctx *c, struct k_attn_args *k,
			   const struct kern_kv *kv)
{
	const struct attn_kernel *p =
		choose(prefill_kernels, ARRAY_SIZE(prefill_kernels), kv);
	struct cuda_grid g = {
		.y = 1, .z = 1, .threads = p->warps * 32, .smem = p->smem,
	};

	g.x = k->ctas = c->sms * blocks_of(c, p->smem + p->own,
					   p->warps == 8 ? 1 : 2);
	cuda_launch(c, p->kernel, g, k);
}

/* Is the sequence decoded, not prefilled? */
static bool is_few(const struct kern_attn_seq *s, u32 group)
{
	return s->nr_rows <= 1 || (u64)s->nr_rows * group <= ATTN_FEW;
}

void cuda_attention(struct kern_ctx *ctx, const struct kern_attn *a)
{
	struct cuda_ctx *c = cuda_of(ctx);
	bool few = false, many = false;
	struct k_attn_args k;
	u32 i;

	if (!a->nr_seqs)
		return;
	if (!in_place(a->kv)) {
		cuda_fail(c, "layers of KV that are not at multiples of 16",
			  CUDA_ERROR_INVALID_VALUE);
		return;
	}
	k = args_of(c, a);
	if (c->exact || a->kv->dtype == KERN_F32) {
		launch_exact(c, &k);
		return;
	}
	for (i = 0; i < a->nr_seqs; i++) {
		few = few || is_few(&a->seqs[i], k.group);
		many = many || !is_few(&a->seqs[i], k.group);
	}
	if (few)
		launch_decode(c, &k, a->kv);
	if (many)
		launch_prefill(c, &k, a->kv);
}

void cuda_attn_latent(struct kern_ctx *ctx, const struct kern_attn *a)
{
	struct cuda_ctx *c = cuda_of(ctx);
	struct cuda_grid g = {
		.y = 1, .z = 1, .threads = EXACT_THREADS,
		.smem = SMEM_k_attn_latent,
	};
	u64 items, spans, each;
	struct k_attn_args k;

	if (!a->nr_seqs)
		return;
	if (!in_place(a->kv)) {
		cuda_fail(c, "layers of KV that are not at multiples of 16",
			  CUDA_ERROR_INVALID_VALUE);
		return;
	}
	k = args_of(c, a);
	g.x = k.ctas = c->sms * blocks_of(c, g.smem, 2);
	if (c->bound.max_len > EXACT_SPAN) {
		each = LATENT_Q * (a->kv->rank + 2);
		spans = c->bound.max_len / EXACT_SPAN + 1;
		items = c->bound.nr_seqs *
			DIV_ROUND_UP((u64)c->bound.max_rows_seq * k.group,
				     (u64)LATENT_Q);
		k.part_floats = each * min(spans * min((u64)k.ctas, items),
					   EXACT_PART_BYTES / sizeof(float) /
					   each);
		k.part = cuda_scratch(c, k.part_floats * sizeof(float));
	}
	cuda_launch(c, CUDA_k_attn_latent, g, &k);
	g.smem = 0;
	if (k.part_floats)
		cuda_launch(c, CUDA_k_attn_latent_join, g, &k);
}
