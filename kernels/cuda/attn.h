/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attn.h - divide the work of attention, on the device
 *
 * Queries of one KV head of one sequence are flat: query f is row f / group,
 * head f % group of that KV head.  An item is a run of queries: K and V are read
 * once for all of its queries.  A block finds its items from the batch on the
 * device (struct dev_batch) and from the grid.  So a kernel that is replayed from
 * a graph finds the work of the current step, without the host.
 *
 * In fast mode a sequence with few queries (attn_is_few()) is decoded: its KV is
 * split over the GPU.  Other sequences are prefilled: their queries are split.
 */
#ifndef KERNELS_CUDA_ATTN_H
#define KERNELS_CUDA_ATTN_H

#include "kernels/cuda/cu.h"

#ifndef SHARED_PTR
#define SHARED_PTR(type)	type *
#endif

/* Queries of a tile of the tensor cores; also those of an item of decoding. */
#define ATTN_Q		16u
/* Most queries of a KV head for which a sequence is decoded. */
#define ATTN_FEW	64u
/*
 * A partial result: [query][dim] sums, then [query] maximum and sum of weights.
 */
#define ATTN_PART(hd)		(ATTN_Q * ((hd) + 2))
#define ATTN_STAT(hd, q)	(ATTN_Q * (hd) + 2 * (q))

#define ATTN_NONE	bits_float(0xff800000)	/* no score: -inf */

DEVICE u32 attn_queries(const struct k_attn_args &a, const struct dev_seq &s)
{
	return s.nr_rows * a.group;
}

DEVICE bool attn_is_few(const struct k_attn_args &a, const struct dev_seq &s)
{
	return s.nr_rows <= 1 || attn_queries(a, s) <= ATTN_FEW;
}

/* The first position that a row at @pos sees. */
DEVICE u32 attn_first(const struct k_attn_args &a, u32 pos)
{
	return a.window && pos >= a.window ? pos - a.window + 1 : 0;
}

/*
 * Index in the table of the block that has position @pos.  Rounding the inverse up makes
 * no difference below position 2^28, since the divisor is at most 255.
 */
DEVICE u32 attn_index(const struct k_attn_args &a, u32 pos)
{
	const u32 n = pos >> a.block_shift;

	return a.block_inverse ? (u32)((u64)n * a.block_inverse >> 32) : n;
}

/* The token in that block. */
DEVICE u32 attn_token(const struct k_attn_args &a, u32 pos)
{
	return pos - attn_index(a, pos) * a.kv.block_tokens;
}

DEVICE struct dev_seq attn_seq(const struct k_attn_args &a, u32 i)
{
	const quad x = gl_load16(a.batch.seqs + i);
	struct dev_seq s;

	s.table = x.w[0];
	s.nr_rows = x.w[1];
	s.first_row = x.w[2];
	s.start_pos = x.w[3];
	return s;
}

/*
 * The sum of W::count() over all sequences; called by the whole warp.
 */
template <typename W>
DEVICE u32 attn_total(const struct k_attn_args &a)
{
	const u32 nr = a.batch.step->nr_seqs;
	u32 i, sum = 0;

	for (i = thread_lane(); i < nr; i += WARP)
		sum += W::count(a, attn_seq(a, i));
#pragma unroll
	for (i = WARP / 2; i; i /= 2)
		sum += __shfl_xor_sync(FULL_MASK, sum, i);
	return sum;
}

/* The sequence of part @at of the work; *@before: parts of earlier sequences. */
template <typename W>
DEVICE struct dev_seq attn_find(const struct k_attn_args &a, u32 at,
				u32 *before)
{
	const u32 nr = a.batch.step->nr_seqs, lane = thread_lane();
	u32 base = 0, i, j, n, up, sum, hit;

	for (i = 0; i < nr; i += WARP) {
		n = i + lane < nr ? W::count(a, attn_seq(a, i + lane)) : 0;
		sum = n;
#pragma unroll
		for (j = 1; j < WARP; j *= 2) {
			up = __shfl_up_sync(FULL_MASK, sum, j);
			sum += lane >= j ? up : 0;
		}
		hit = __ballot_sync(FULL_MASK, base + sum > at);
		if (hit) {
			hit = __ffs(hit) - 1;
			*before = base + __shfl_sync(FULL_MASK, sum - n, hit);
			return attn_seq(a, i + hit);
		}
		base += __shfl_sync(FULL_MASK, sum, WARP - 1);
	}
	*before = base;
	return attn_seq(a, 0);		/* not reached: @at is below the total */
}

/*
 * Queries @q0 to @q0 + @nq of @kv_head.  @first and @last: the lowest and the
 * highest position that one of them sees.
 */
struct attn_item {
	const u32	*table;
	u32		first_row;
	u32		start_pos;
	u32		kv_head;
	u32		q0;
	u32		nq;
	u32		first;
	u32		last;
};

DEVICE struct attn_item attn_item_of(const struct k_attn_args &a,
				     const struct dev_seq &s, u32 kv_head,
				     u32 q0, u32 most)
{
	struct attn_item it;

	it.table = a.batch.entries + s.table;
	it.first_row = s.first_row;
	it.start_pos = s.start_pos;
	it.kv_head = kv_head;
	it.q0 = q0;
	it.nq = min(most, attn_queries(a, s) - q0);
	it.first = attn_first(a, s.start_pos + q0 / a.group);
	it.last = s.start_pos + (q0 + it.nq - 1) / a.group;
	return it;
}

/* Position of query @q of an item; index of its numbers, with rows @ld apart. */
DEVICE u32 attn_pos(const struct k_attn_args &a, const struct attn_item &it,
		    u32 q)
{
	return it.start_pos + (it.q0 + q) / a.group;
}

DEVICE u64 attn_at(const struct k_attn_args &a, const struct attn_item &it,
		   u32 q, u64 ld)
{
	const u32 f = it.q0 + q;

	return (it.first_row + f / a.group) * ld +
	       (u64)(it.kv_head * a.group + f % a.group) * a.kv.head_dim;
}

/* Query head of query @q of an item. */
DEVICE u32 attn_head(const struct k_attn_args &a, const struct attn_item &it,
		     u32 q)
{
	return it.kv_head * a.group + (it.q0 + q) % a.group;
}

DEVICE void attn_store(const struct k_attn_args &a, float *to, float x)
{
	*to = a.settle ? bf16_to_f32(f32_to_bf16(x)) : x;
}

/*
 * Offsets in a block of an item's K and V, and of their scales; bytes of a token's
 * row.
 */
struct attn_place {
	u64	k;
	u64	v;
	u64	ks;
	u64	vs;
	u32	row;
};

DEVICE struct attn_place attn_place_of(const struct k_attn_args &a, u32 head,
				       u32 elem)
{
	const u64 tokens = a.kv.block_tokens;
	struct attn_place p;

	p.row = a.kv.head_dim * elem;
	p.k = a.layer * a.kv.layer_stride + head * tokens * p.row;
	p.v = p.k + a.kv.kv_heads * tokens * p.row;
	p.ks = a.layer * a.kv.layer_stride +
	       2 * a.kv.kv_heads * tokens * p.row + head * tokens * 4;
	p.vs = p.ks + a.kv.kv_heads * tokens * 4;
	return p;
}

DEVICE const u8 *attn_block(const struct k_attn_args &a, u32 entry)
{
	return a.kv.base + a.kv.unit * entry;
}

#endif /* KERNELS_CUDA_ATTN_H */
