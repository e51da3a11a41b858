// SPDX-License-Identifier: Apache-2.0
/*
 * join.c - ops that a decoder names together
 *
 * A launch on a device costs the CPU some microseconds and the GPU a gap, and a
 * separate op reads again from memory the result that the op before has just
 * written.  So if a decoder has several ops in a row with nothing in between,
 * it names them together, and a device may do them in one launch.  On a CPU rows
 * stay in its caches, and this file calls the single ops, but for products: these
 * start the threads once, and round x once.
 *
 * Invariant: together or one by one, the bits are the same; for products only
 * in exact mode.  So an exact model may use them like any op.
 */
#include "kernels/kernels.h"

#define MANY	8u

void kern_gemm_many(const struct kern_ops *ops, struct kern_ctx *ctx,
		    const float *x, u64 x_ld, const struct kern_gemm_out *out,
		    u32 nr, u32 m)
{
	struct kern_gemm_part parts[MANY];
	u32 i, some;

	if (ops->gemm_many) {
		ops->gemm_many(ctx, x, x_ld, out, nr, m);
		return;
	}
	for (; nr; nr -= some, out += some) {
		some = min(nr, MANY);
		for (i = 0; i < some; i++)
			parts[i] = (struct kern_gemm_part){
				x, x_ld, out[i].w, out[i].bias, m, out[i].y,
				out[i].y_ld,
			};
		kern_gemm_parts(ops, ctx, parts, some);
	}
}

void kern_gemm_parts(const struct kern_ops *ops, struct kern_ctx *ctx,
		     const struct kern_gemm_part *parts, u32 nr)
{
	const struct kern_gemm_part *p = parts;

	if (ops->gemm_parts) {
		ops->gemm_parts(ctx, parts, nr);
		return;
	}
	for (; nr; nr--, p++)
		ops->gemm(ctx, p->x, p->x_ld, p->w, p->bias, p->m, p->y,
			  p->y_ld);
}

static void add_norm_apart(const struct kern_ops *ops, struct kern_ctx *ctx,
			   const struct kern_add_norm *n)
{
	const u64 all = (u64)n->m * n->d;

	ops->add(ctx, n->x, n->y, all);
	if (n->settle)
		ops->settle(ctx, n->x, all);
	if (n->layer)
		ops->layernorm(ctx, n->x, n->w, n->bias, n->m, n->d, n->eps,
			       n->h);
	else
		ops->rmsnorm(ctx, n->x, n->w, n->m, n->d, n->eps, n->h);
	if (n->settle)
		ops->settle(ctx, n->h, all);
}

void kern_add_norm(const struct kern_ops *ops, struct kern_ctx *ctx,
		   const struct kern_add_norm *n)
{
	if (n->settle || (n->layer ? !ops->add_layernorm : !ops->add_rmsnorm))
		add_norm_apart(ops, ctx, n);
	else if (n->layer)
		ops->add_layernorm(ctx, n->x, n->y, n->w, n->bias, n->m, n->d,
				   n->eps, n->h);
	else
		ops->add_rmsnorm(ctx, n->x, n->y, n->w, n->m, n->d, n->eps,
				 n->h);
}

/* Rotate in place, and round if asked to. */
static void turn(const struct kern_ops *ops, struct kern_ctx *ctx,
		 const struct kern_rope_write *r, float *x, u32 heads)
{
	const u32 hd = r->append.kv->head_dim;

	ops->rope(ctx, x, 0, r->m, heads, hd, r->half, r->table);
	if (r->settle)
		ops->settle(ctx, x, (u64)r->m * heads * hd);
}

void kern_rope_write(const struct kern_ops *ops, struct kern_ctx *ctx,
		     const struct kern_rope_write *r)
{
	if (ops->rope_write && !r->settle) {
		ops->rope_write(ctx, &r->append, r->q, 0, r->heads, r->half,
				r->table);
		return;
	}
	turn(ops, ctx, r, r->q, r->heads);
	turn(ops, ctx, r, (float *)(uintptr_t)r->append.k,
	     r->append.kv->kv_heads);
	ops->kv_write(ctx, &r->append);
}
