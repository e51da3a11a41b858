// SPDX-License-Identifier: Apache-2.0
/*
 * row.c - launch the ops on rows and elements
 *
 * An op fills in its kernel's arguments and chooses the number of blocks: as many
 * as the work has, up to a few times the blocks that fill the GPU, since kernels
 * loop in strides of the grid.  The division of a row among threads depends only on
 * the row's length, never on the number of rows.
 */
#include "kernels/cuda/internal.h"

#define ROW_THREADS	256u
#define ROW_WARPS	(ROW_THREADS / 32)

/* At most 32 blocks for each multiprocessor: a few rounds of those that fit. */
static u32 blocks_for(const struct cuda_ctx *c, u64 wanted)
{
	return (u32)min(wanted, (u64)max(c->sms, 1u) * 32);
}

static bool at_16(const void *p)
{
	return !((uintptr_t)p % 16);
}

static struct cuda_grid flat_grid(const struct cuda_ctx *c, u64 n)
{
	return (struct cuda_grid){
		.x = blocks_for(c, DIV_ROUND_UP(n, 4ull * ROW_THREADS)),
		.y = 1, .z = 1, .threads = ROW_THREADS,
	};
}

static struct cuda_grid row_grid(const struct cuda_ctx *c, u64 rows)
{
	return (struct cuda_grid){
		.x = blocks_for(c, rows), .y = 1, .z = 1,
		.threads = ROW_THREADS,
	};
}

void cuda_add(struct kern_ctx *ctx, float *x, const float *y, u64 n)
{
	struct cuda_ctx *c = cuda_of(ctx);
	const struct k_add_args a = {
		.x = x, .y = y, .n = n, .settle = c->settle,
		.vec = at_16(x) && at_16(y),
	};

	if (n)
		cuda_launch(c, CUDA_k_add, flat_grid(c, n), &a);
}

static void map(struct kern_ctx *ctx, enum cuda_kernel k, float *x, float by,
		u64 n)
{
	struct cuda_ctx *c = cuda_of(ctx);
	const struct k_map_args a = {
		.x = x, .n = n, .by = by, .vec = at_16(x),
		/* Logits stay f32. */
		.settle = c->settle && k != CUDA_k_softcap,
	};

	if (n)
		cuda_launch(c, k, flat_grid(c, n), &a);
}

void cuda_scale(struct kern_ctx *ctx, float *x, float by, u64 n)
{
	map(ctx, CUDA_k_scale, x, by, n);
}

void cuda_softcap(struct kern_ctx *ctx, float *x, float cap, u64 n)
{
	map(ctx, CUDA_k_softcap, x, cap, n);
}

void cuda_settle(struct kern_ctx *ctx, float *x, u64 n)
{
	map(ctx, CUDA_k_settle, x, 0, n);
}

/* Take rows of a table, 16 bytes at a time if all rows are aligned. */
static void take(struct cuda_ctx *c, struct k_take_args a)
{
	const u64 row = (u64)a.d * kern_dtype_size(a.dtype);

	a.vec = at_16(a.table) && at_16(a.x) && !(row % 16) && !(a.d % 4);
	if (a.m && a.d)
		cuda_launch(c, CUDA_k_take, row_grid(c, a.m), &a);
}

static void take_blocks(struct cuda_ctx *c, const struct kern_weight *w,
			const u32 *ids, u32 m, float *x)
{
	const struct k_take_blocks_args a = {
		.table = w->data, .rows = ids, .x = x, .m = m, .d = w->cols,
		.blocks = cuda_blocks(w), .nr_rows = w->rows,
		.settle = c->settle, .vec = at_16(x),
	};

	if (m && w->cols)
		cuda_launch(c, CUDA_k_take_blocks, row_grid(c, m), &a);
}

void cuda_embed(struct kern_ctx *ctx, const struct kern_weight *w,
		const u32 *ids, u32 m, float *x)
{
	struct cuda_ctx *c = cuda_of(ctx);

	if (kern_is_blocks(w->dtype)) {
		take_blocks(c, w, ids, m, x);
		return;
	}
	take(c, (struct k_take_args){
		.table = w->data, .rows = ids, .x = x, .m = m, .d = w->cols,
		.nr_rows = w->rows, .dtype = w->dtype, .settle = c->settle,
	});
}

void cuda_gather(struct kern_ctx *ctx, const float *x, const u32 *rows, u32 m,
		 u32 d, float *y)
{
	take(cuda_of(ctx), (struct k_take_args){
		.table = x, .rows = rows, .x = y, .m = m, .d = d,
		.nr_rows = ~0u, .dtype = KERN_F32,
	});
}

void cuda_split_heads(struct kern_ctx *ctx, const float *qkv, u32 m, u32 heads,
		      u32 head_dim, float *q, float *k, float *v)
{
	struct cuda_ctx *c = cuda_of(ctx);
	const struct k_split_heads_args a = {
		.from = qkv, .q = q, .k = k, .v = v, .heads = (u64)m * heads,
		.head_dim = head_dim,
		.vec = at_16(qkv) && at_16(q) && at_16(k) && at_16(v) &&
		       !(head_dim % 4),
	};

	if (a.heads)
		cuda_launch(c, CUDA_k_split_heads,
			    row_grid(c, DIV_ROUND_UP(a.heads,
						     (u64)ROW_WARPS)), &a);
}

/* Threads of a row of @d elements; the order of its sums depends on it. */
static u32 norm_threads(u32 d)
{
	return d <= 1024 ? 32 : d <= 4096 ? ROW_THREADS : 2 * ROW_THREADS;
}

static void norm(struct cuda_ctx *c, enum cuda_kernel k, struct k_norm_args a)
{
	struct cuda_grid g = { .y = 1, .z = 1 };

	a.threads = norm_threads(a.d);
	a.settle = c->settle;
	a.sets = a.sets ? a.sets : 1;
	a.vec = at_16(a.x) && at_16(a.add) && at_16(a.w) && at_16(a.bias) &&
		at_16(a.y) && !(a.d % 4);
	g.threads = a.threads == 32 ? ROW_THREADS : a.threads;
	g.x = a.threads == 32 ? DIV_ROUND_UP(a.m, ROW_WARPS) : a.m;
	if (a.m && a.d)
		cuda_launch(c, k, g, &a);
}

void cuda_rmsnorm(struct kern_ctx *ctx, const float *x, const float *w, u32 m,
		  u32 d, float eps, float *y)
{
	norm(cuda_of(ctx), CUDA_k_rmsnorm, (struct k_norm_args){
		.x = (float *)(uintptr_t)x, .w = w, .y = y, .m = m, .d = d,
		.eps = eps,
	});
}

void cuda_add_rmsnorm(struct kern_ctx *ctx, float *x, const float *y,
		      const float *w, u32 m, u32 d, float eps, float *h)
{
	norm(cuda_of(ctx), CUDA_k_rmsnorm, (struct k_norm_args){
		.x = x, .add = y, .w = w, .y = h, .m = m, .d = d, .eps = eps,
	});
}

void cuda_layernorm(struct kern_ctx *ctx, const float *x, const float *w,
		    const float *bias, u32 m, u32 d, float eps, float *y)
{
	norm(cuda_of(ctx), CUDA_k_layernorm, (struct k_norm_args){
		.x = (float *)(uintptr_t)x, .w = w, .bias = bias, .y = y,
		.m = m, .d = d, .eps = eps,
	});
}

void cuda_layernorm_heads(struct kern_ctx *ctx, const float *x, const float *w,
			  u32 m, u32 heads, u32 d, float eps, float *y)
{
	norm(cuda_of(ctx), CUDA_k_layernorm, (struct k_norm_args){
		.x = (float *)(uintptr_t)x, .w = w, .y = y, .m = m * heads,
		.d = d, .sets = heads, .eps = eps,
	});
}

void cuda_add_layernorm(struct kern_ctx *ctx, float *x, const float *y,
			const float *w, const float *bias, u32 m, u32 d,
			float eps, float *h)
{
	norm(cuda_of(ctx), CUDA_k_layernorm, (struct k_norm_args){
		.x = x, .add = y, .w = w, .bias = bias, .y = h, .m = m,
		.d = d, .eps = eps,
	});
}

void cuda_rope_table(struct kern_ctx *ctx, const float *inv_freq, u32 half,
		     const u32 *positions, u32 m, float *table)
{
	struct cuda_ctx *c = cuda_of(ctx);
	const struct k_rope_table_args a = {
		.inv_freq = inv_freq, .positions = positions, .table = table,
		.m = m, .half = half,
	};

	if (m && half)
		cuda_launch(c, CUDA_k_rope_table,
			    row_grid(c, DIV_ROUND_UP((u64)m * half,
						     (u64)ROW_THREADS)), &a);
}

void cuda_rope(struct kern_ctx *ctx, float *x, u64 ld, u32 m, u32 heads,
	       u32 head_dim, u32 half, const float *table)
{
	struct cuda_ctx *c = cuda_of(ctx);
	struct k_rope_args a = {
		.x = x, .table = table, .m = m, .heads = heads,
		.head_dim = head_dim, .half = half, .settle = c->settle,
		.ld = ld ? ld : (u64)heads * head_dim,
	};

	a.vec = at_16(x) && at_16(table) && !(a.ld % 4) && !(head_dim % 4) &&
		!(half % 4);
	if (m && heads && half)
		cuda_launch(c, CUDA_k_rope, row_grid(c, m), &a);
}

void cuda_rope_pairs(struct kern_ctx *ctx, const struct kern_rope_pairs *r)
{
	struct cuda_ctx *c = cuda_of(ctx);
	const struct k_rope_pairs_args a = {
		.x = r->x, .y = r->y, .table = r->table, .x_ld = r->x_ld,
		.x_step = r->x_step, .y_ld = r->y_ld, .y_step = r->y_step,
		.m = r->m, .heads = r->heads, .half = r->half,
		.settle = c->settle,
	};

	if (r->m && r->heads && r->half)
		cuda_launch(c, CUDA_k_rope_pairs, row_grid(c, r->m), &a);
}

void cuda_act(struct kern_ctx *ctx, enum kern_act act, const float *gate,
	      const float *up, u64 ld, u32 m, u32 d, float *y)
{
	struct cuda_ctx *c = cuda_of(ctx);
	struct k_act_args a = {
		.gate = gate, .up = up, .y = y, .ld = ld ? ld : d, .m = m,
		.d = d, .act = act, .settle = c->settle,
	};
	struct cuda_grid g = { .z = 1, .threads = ROW_THREADS };

	a.vec = at_16(gate) && at_16(up) && at_16(y) && !(a.ld % 4) &&
		!(d % 4);
	g.x = max(DIV_ROUND_UP(d, 4 * ROW_THREADS), 1u);
	g.y = blocks_for(c, m);
	if (m && d)
		cuda_launch(c, CUDA_k_act, g, &a);
}

void cuda_silu_mul(struct kern_ctx *ctx, const float *gate, const float *up,
		   u64 ld, u32 m, u32 d, float *y)
{
	cuda_act(ctx, KERN_SILU, gate, up, ld, m, d, y);
}

void cuda_swiglu(struct kern_ctx *ctx, const float *gate, const float *up,
		 u64 ld, u32 m, u32 d, float alpha, float limit, float *y)
{
	struct cuda_ctx *c = cuda_of(ctx);
	struct k_swiglu_args a = {
		.gate = gate, .up = up, .y = y, .ld = ld ? ld : d, .m = m,
		.d = d, .alpha = alpha, .limit = limit, .settle = c->settle,
	};
	struct cuda_grid g = { .z = 1, .threads = ROW_THREADS };

	a.vec = at_16(gate) && at_16(up) && at_16(y) && !(a.ld % 4) &&
		!(d % 4);
	g.x = max(DIV_ROUND_UP(d, 4 * ROW_THREADS), 1u);
	g.y = blocks_for(c, m);
	if (m && d)
		cuda_launch(c, CUDA_k_swiglu, g, &a);
}

void cuda_route(struct kern_ctx *ctx, const struct kern_route *r)
{
	struct cuda_ctx *c = cuda_of(ctx);
	const struct k_route_args a = {
		.logits = r->logits, .ids = r->ids, .shares = r->shares,
		.m = r->m, .experts = r->experts, .chosen = r->chosen,
		.groups = r->groups, .groups_chosen = r->groups_chosen,
		.over_chosen = r->over_chosen, .scale = r->scale,
		.settle = c->settle,
	};
	struct cuda_grid g = { .y = 1, .z = 1, .threads = 32 };

	g.x = blocks_for(c, DIV_ROUND_UP(r->m, g.threads));
	if (r->m)
		cuda_launch(c, CUDA_k_route, g, &a);
}

void cuda_blend(struct kern_ctx *ctx, const struct kern_blend *b)
{
	struct cuda_ctx *c = cuda_of(ctx);
	const struct k_blend_args a = {
		.y = b->y, .slots = b->slots, .shares = b->shares,
		.base = b->base, .gates = b->gates, .out = b->out, .m = b->m,
		.chosen = b->chosen, .d = b->d, .settle = c->settle,
		.vec = at_16(b->y) && at_16(b->base) && at_16(b->out) &&
		       !(b->d % 4),
	};

	if (b->m && b->d)
		cuda_launch(c, CUDA_k_blend, row_grid(c, b->m), &a);
}
