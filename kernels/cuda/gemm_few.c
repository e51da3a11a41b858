// SPDX-License-Identifier: Apache-2.0
/*
 * gemm_few.c - launch products of fast mode that may split K over blocks
 *
 * These are bound by reading W.  If N alone gives the multiprocessors too little to read, K
 * is split.  The blocks of a split leave their sums in scratch memory, and the one that
 * takes the last ticket adds them up.
 */
#include "kernels/cuda/gemm.h"

#define MAX_SPLITS	16u

/* Time for a block to start, in columns of K. */
#define SKINNY_START	64u
/* Blocks on a multiprocessor that keep it reading all the time. */
#define SKINNY_BLOCKS	4u

/*
 * The cost is that of the multiprocessor with most blocks, but at least of the
 * SKINNY_BLOCKS that keep it reading.  A block costs its columns and its start.
 */
u32 cuda_gemm_range(u32 blocks, u32 k, u32 sms)
{
	const u32 all = ALIGN_UP(max(k, 1u), GEMM_SKINNY_K);
	u32 best = all, range, splits, s;
	u64 cost, least = ~0ull;

	for (s = 1; s <= MAX_SPLITS; s++) {
		range = ALIGN_UP(DIV_ROUND_UP(all, s), GEMM_SKINNY_K);
		splits = DIV_ROUND_UP(all, range);
		if (splits > 1 && blocks > CUDA_MAX_TICKETS)
			break;
		cost = max(DIV_ROUND_UP((u64)blocks * splits, (u64)sms),
			   (u64)SKINNY_BLOCKS) * (range + SKINNY_START);
		if (splits > 1)
			cost += SKINNY_BLOCKS * SKINNY_START;
		if (cost < least) {
			least = cost;
			best = range;
		}
	}
	return best;
}

/*
 * Arguments with a split of K into ranges of @range; @rows: the most rows that the shape can
 * have.  Return: is there memory for the sums?
 */
static bool split(struct cuda_ctx *c, const struct gemm_args *a, u32 range, u32 rows,
		  struct gemm_skinny_args *s)
{
	*s = (struct gemm_skinny_args){
		.g = *a, .range = range, .ticket = c->gemm->ticket,
		.splits = DIV_ROUND_UP(max(a->k, 1u), range),
	};
	if (s->splits > 1)
		s->partial = cuda_scratch(c, (u64)s->splits * rows *
					     a->nr_blocks * GEMM_SKINNY_N *
					     sizeof(float));
	return s->splits == 1 || s->partial;
}

/* Columns of x that fit into shared memory, with the gaps between rows. */
static u32 skinny_chunk(u32 m, u32 range, u32 smem)
{
	const u32 fit = 2 * (smem / 4 / m - 16);

	return min(range, fit / GEMM_SKINNY_K * GEMM_SKINNY_K);
}

struct cuda_grid cuda_skinny_grid(struct cuda_ctx *c, enum cuda_kernel k,
				  const struct gemm_args *a,
				  struct gemm_skinny_args *s)
{
	const u32 range = cuda_gemm_range(a->nr_blocks, a->k, c->sms);

	if (!split(c, a, range, GEMM_FEW, s))
		return (struct cuda_grid){ 0 };
	s->chunk = skinny_chunk(a->m, range, cuda_gemm_smem[k]);
	return (struct cuda_grid){
		a->nr_blocks, s->splits, 1, 128,
		a->m * (s->chunk / 2 + 16) * sizeof(u32),
	};
}

void cuda_gemm_skinny(struct cuda_ctx *c, struct gemm_args *a)
{
	const enum cuda_kernel k = a->m <= 8 ? CUDA_k_gemm_skinny8 :
					       CUDA_k_gemm_skinny16;
	struct gemm_skinny_args s;
	struct cuda_grid g;

	cuda_gemm_number(a, GEMM_SKINNY_N);
	g = cuda_skinny_grid(c, k, a, &s);
	cuda_launch(c, k, g, &s);
}

/* Shared memory for @rows of x, and for sums of all rows that a kernel may have. */
static u32 packed_smem(u32 rows, u32 chunk, const struct dev_packed *p)
{
	const u32 sums = max((u32)roundup_pow_of_two(rows), 8u) * chunk /
			 p->group;

	return (rows * (chunk / 2 + 16) +
		(p->scale == PACKED_F32 ? 0 : sums)) * sizeof(u32);
}

/* Columns of x that fit into shared memory, with their sums over groups. */
static u32 packed_chunk(u32 rows, u32 range, const struct dev_packed *p, u32 smem)
{
	u32 chunk = GEMM_SKINNY_K;

	while (chunk < range &&
	       packed_smem(rows, chunk + GEMM_SKINNY_K, p) <= smem)
		chunk += GEMM_SKINNY_K;
	return chunk;
}

/* Packed weights: up to PACKED_M rows in a block.  Only few rows split K. */
struct cuda_grid cuda_packed_grid(struct cuda_ctx *c, enum cuda_kernel k,
				  const struct gemm_args *a,
				  struct gemm_packed_args *p)
{
	const u32 rows = min(a->m, PACKED_M);
	const u32 range = a->m <= PACKED_M ?
			  cuda_gemm_range(a->nr_blocks, a->k, c->sms) :
			  ALIGN_UP(max(a->k, 1u), GEMM_SKINNY_K);

	p->p = cuda_packed(a->dtype, a->k);
	if (!split(c, a, range, PACKED_M, &p->s))
		return (struct cuda_grid){ 0 };
	p->s.chunk = packed_chunk(rows, range, &p->p, cuda_gemm_smem[k]);
	return (struct cuda_grid){
		a->nr_blocks, p->s.splits, DIV_ROUND_UP(a->m, PACKED_M), 128,
		packed_smem(rows, p->s.chunk, &p->p),
	};
}

void cuda_gemm_packed(struct cuda_ctx *c, struct gemm_args *a)
{
	static const enum cuda_kernel of[] = {
		CUDA_k_gemm_packed8, CUDA_k_gemm_packed16, CUDA_k_gemm_packed32,
		CUDA_k_gemm_packed64,
	};
	const enum cuda_kernel k = of[cuda_packed_size(a->m)];
	struct gemm_packed_args p;
	struct cuda_grid g;

	cuda_gemm_number(a, GEMM_SKINNY_N);
	g = cuda_packed_grid(c, k, a, &p);
	cuda_launch(c, k, g, &p);
}
