// SPDX-License-Identifier: Apache-2.0
/*
 * gemm_group.c - many products of few rows in one launch
 *
 * For rows that chose different experts: each product has its own x and its own matrix, and
 * the matrices have shape and type in common.  Alone each would leave most of the
 * multiprocessors idle, and cost the CPU a launch.
 *
 * The products of a group have one shape and type, the same distances of rows, and one family
 * of kernels (gemm_way).  Each has up to GEMM_FEW rows; with packed weights there are groups
 * of products with more, up to PACKED_M.  The kernel is the one for the most rows.  A product
 * alone in its group is a single call.
 *
 * Addresses and numbers of rows are in the arguments of the launch.  So there is nothing to
 * upload, and a recorded launch keeps its own copy.
 *
 * Invariant: in exact mode the bits are those of single calls, since every kernel has the
 * same order of sums.  In fast mode K is split by the load of the launch.
 */
#include "kernels/cuda/gemm.h"

/* Products that are looked at together. */
#define WINDOW	(2u * GEMM_GROUP)

/* 0: a product that is a single call; else only equal numbers can be a group. */
enum group_class {
	GROUP_NONE,
	GROUP_EXACT,
	GROUP_SKINNY,
	GROUP_PACKED,
	GROUP_PACKED_MORE,	/* rows than GEMM_FEW */
};

/**
 * struct group - products that become one launch
 * @class: what kernels they need
 * @a:     arguments of all; m is the most rows
 * @nr:    number of @part
 */
struct group {
	enum group_class	class;
	struct gemm_args	a;
	u32			nr;
	struct gemm_group_part	part[GEMM_GROUP];
};

_Static_assert(sizeof(struct group_packed_args) <= 4096 &&
	       sizeof(struct group_skinny_args) <= 4096 &&
	       sizeof(struct group_exact_args) <= 4096,
	       "arguments of a kernel are at most 4 KiB");

static struct gemm_args args_of(struct cuda_ctx *c, const struct kern_gemm_part *p)
{
	const struct kern_gemm_out out = { p->w, p->bias, p->y, p->y_ld };

	return cuda_gemm_args(c, p->x, p->x_ld ? p->x_ld : p->w->cols, &out, 1,
			      p->m);
}

static enum group_class class_of(struct cuda_ctx *c, const struct gemm_args *a,
				 bool packed)
{
	const bool few = a->m <= GEMM_FEW;

	switch (cuda_gemm_way(c, a, packed)) {
	case GEMM_EXACT:
		return few ? GROUP_EXACT : GROUP_NONE;
	case GEMM_SKINNY:
		return GROUP_SKINNY;
	case GEMM_PACKED:
		return few ? GROUP_PACKED :
		       a->m <= PACKED_M ? GROUP_PACKED_MORE : GROUP_NONE;
	default:
		return GROUP_NONE;
	}
}

static bool alike(const struct gemm_args *a, const struct gemm_args *b)
{
	return a->dtype == b->dtype && a->k == b->k && a->x_ld == b->x_ld &&
	       a->part[0].n == b->part[0].n &&
	       a->part[0].y_ld == b->part[0].y_ld;
}

/* Add the product with arguments @a, which is of the group. */
static void group_add(struct group *g, const struct gemm_args *a)
{
	const struct gemm_part *p = &a->part[0];

	if (!g->nr)
		g->a = *a;
	g->part[g->nr++] = (struct gemm_group_part){
		.x = a->x, .w = p->w, .bias = p->bias, .y = p->y, .m = a->m,
	};
	g->a.m = max(g->a.m, a->m);
	g->a.x_vec = g->a.x_vec && a->x_vec;
	g->a.w_vec = g->a.w_vec && a->w_vec;
}

/* Take from @parts those that go with the first that is not @done. */
static void group_collect(struct cuda_ctx *c, const struct kern_gemm_part *parts,
			  u32 nr, bool *done, struct group *g)
{
	enum group_class class;
	struct gemm_args a;
	u32 i;

	for (i = 0; i < nr && g->nr < GEMM_GROUP; i++) {
		if (done[i])
			continue;
		a = args_of(c, &parts[i]);
		class = class_of(c, &a, parts[i].w->packed);
		if (!g->nr)
			g->class = class;
		else if (class != g->class || !alike(&a, &g->a))
			continue;
		group_add(g, &a);
		done[i] = true;
		if (class == GROUP_NONE)
			return;
	}
}

/* The products for the arguments of a kernel; each has @rows outputs in a block. */
static struct gemm_group group_of(struct group *g, u32 rows)
{
	struct gemm_group to = { .nr = g->nr };

	cuda_gemm_number(&g->a, rows);
	to.per = g->a.nr_blocks;
	memcpy(to.part, g->part, g->nr * sizeof(*g->part));
	return to;
}

static void launch_exact(struct cuda_ctx *c, struct group *g)
{
	static const enum cuda_kernel one[] = {
		[KERN_F32] = CUDA_k_group_exact1_f32,
		[KERN_BF16] = CUDA_k_group_exact1_bf16,
		[KERN_F16] = CUDA_k_group_exact1_f16,
	}, few[] = {
		[KERN_F32] = CUDA_k_group_exact4_f32,
		[KERN_BF16] = CUDA_k_group_exact4_bf16,
		[KERN_F16] = CUDA_k_group_exact4_f16,
	};
	const u32 m = g->a.m, t = g->a.dtype;
	const enum cuda_kernel k = !kern_is_blocks(t) ? (m == 1 ? one : few)[t] :
				   m == 1 ? CUDA_k_group_exact1_blocks :
					    CUDA_k_group_exact4_blocks;
	struct group_exact_args e = { .group = group_of(g, m == 1 ? 16 : 32) };

	e.g = g->a;
	cuda_launch(c, k, (struct cuda_grid){
		DIV_ROUND_UP(m, m == 1 ? 1 : 4), e.group.per, g->nr, 128,
		cuda_gemm_smem[k],
	}, &e);
}

static void launch_skinny(struct cuda_ctx *c, struct group *g)
{
	const enum cuda_kernel k = g->a.m <= 8 ? CUDA_k_group_skinny8 :
						 CUDA_k_group_skinny16;
	struct group_skinny_args s = { .group = group_of(g, GEMM_SKINNY_N) };
	struct cuda_grid grid;

	g->a.nr_blocks *= g->nr;
	grid = cuda_skinny_grid(c, k, &g->a, &s.s);
	cuda_launch(c, k, grid, &s);
}

static void launch_packed(struct cuda_ctx *c, struct group *g)
{
	static const enum cuda_kernel of[] = {
		CUDA_k_group_packed8, CUDA_k_group_packed16,
		CUDA_k_group_packed32, CUDA_k_group_packed64,
	};
	const enum cuda_kernel k = of[cuda_packed_size(g->a.m)];
	struct group_packed_args p = { .group = group_of(g, GEMM_SKINNY_N) };
	struct cuda_grid grid;

	g->a.nr_blocks *= g->nr;
	grid = cuda_packed_grid(c, k, &g->a, &p.p);
	cuda_launch(c, k, grid, &p);
}

static void group_launch(struct cuda_ctx *c, struct group *g)
{
	if (g->class == GROUP_EXACT)
		launch_exact(c, g);
	else if (g->class == GROUP_SKINNY)
		launch_skinny(c, g);
	else
		launch_packed(c, g);
}

/* One after the other, in groups as large as possible; @nr is at most WINDOW. */
static void window(struct cuda_ctx *c, const struct kern_gemm_part *parts, u32 nr)
{
	bool done[WINDOW] = { false };
	const struct kern_gemm_part *p;
	struct group g;
	u32 i;

	for (i = 0; i < nr; i++)
		done[i] = !parts[i].m;
	for (i = 0; i < nr; i++) {
		if (done[i])
			continue;
		p = &parts[i];
		g.nr = 0;
		group_collect(c, parts + i, nr - i, done + i, &g);
		if (g.nr > 1)
			group_launch(c, &g);
		else
			cuda_gemm((struct kern_ctx *)(void *)c, p->x, p->x_ld,
				  p->w, p->bias, p->m, p->y, p->y_ld);
	}
}

void cuda_gemm_parts(struct kern_ctx *ctx, const struct kern_gemm_part *parts,
		     u32 nr)
{
	u32 some;

	for (; nr; nr -= some, parts += some) {
		some = min(nr, WINDOW);
		window(cuda_of(ctx), parts, some);
	}
}
