/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attn_decode.h - attention of few queries over long KV, bound by memory
 *
 * All KV that the decoded sequences see, item by item, is one list of units of
 * WARPS * 16 positions.  Block g of the grid takes the units from total * g / ctas
 * on, so all blocks end at about the same time, for any lengths.  If one block
 * has all units of an item, it writes the result.  Otherwise each of the item's
 * blocks leaves a partial result, at most two a block: number 2g for an item that
 * begins in an earlier block, 2g + 1 for one that ends in a later block.
 * k_attn_join adds these up.
 *
 * Warps are independent until an item ends.  Warp w takes the w-th 16 positions
 * of each unit, with its own pipeline of STAGES tiles of K and V, which are
 * copied to shared memory without passing through registers.  A tile lies in
 * one block of the pool, so it is one run of memory for K and one for V.  The
 * table's entries are loaded for 32 tiles at a time, one for each lane, and 32
 * tiles ahead.
 *
 * Shared memory is 48 to 82 KiB, so that two or three blocks of threads fit on a
 * multiprocessor of sm_80 and sm_90, one on sm_86 and sm_89.  With two tiles for
 * each warp some 96 KiB are in flight on a multiprocessor of sm_90: several times
 * the bytes that it can read during the memory's latency.
 */
#ifndef KERNELS_CUDA_ATTN_DECODE_H
#define KERNELS_CUDA_ATTN_DECODE_H

#include "kernels/cuda/attn_tile.h"

/* Units of all positions that a sequence's queries see. */
DEVICE u32 decode_units(const struct k_attn_args &a, const struct dev_seq &s)
{
	return ((s.start_pos + s.nr_rows - 1) >> a.unit_shift) -
	       (attn_first(a, s.start_pos) >> a.unit_shift) + 1;
}

DEVICE u32 decode_items(const struct k_attn_args &a, const struct dev_seq &s)
{
	return (attn_queries(a, s) + ATTN_Q - 1) / ATTN_Q * a.kv.kv_heads;
}

struct decode_work {
	DEVICE u32 count(const struct k_attn_args &a, const struct dev_seq &s)
	{
		if (!s.nr_rows || !attn_is_few(a, s))
			return 0;
		return decode_items(a, s) * decode_units(a, s);
	}
};

DEVICE struct attn_item decode_item(const struct k_attn_args &a,
				    const struct dev_seq &s, u32 i)
{
	return attn_item_of(a, s, i % a.kv.kv_heads,
			    i / a.kv.kv_heads * ATTN_Q, ATTN_Q);
}

/* First unit of block @g. */
DEVICE u32 decode_begin(const struct k_attn_args &a, u32 total, u32 g)
{
	return (u32)((u64)total * g / a.ctas);
}

#ifndef ATTN_JOIN_ONLY

/* The copies of a warp. */
template <int TYPE, int HD, int WARPS, int STAGES>
struct decode_pipe {
	typedef tile_shape<TYPE, HD> shape;

	/* Sizes in pieces of 16 bytes: K or V of a stage, a whole stage. */
	static const u32 half = 16 * shape::row;
	static const u32 stage = 2 * half + (shape::narrow ? 8 : 0);
	static const u32 bytes = WARPS * STAGES * stage * 16;
};

/* The tiles of a warp in one part of an item. */
struct decode_run {
	struct attn_place	place;
	u32			first_tile;
	u32			nr;		/* tiles */
	u32			step;		/* from one to the next */
	u32			entries;	/* of the lane's tile in these 32, */
	u32			coming;		/* and in the next 32 */
};

/* The table's entry of tile @i; 0 if no query sees the tile. */
DEVICE u32 decode_entry(const struct k_attn_args &a,
			const struct attn_item &it,
			const struct decode_run &r, u32 i)
{
	const u32 pos = (r.first_tile + i * r.step) * 16;

	if (i >= r.nr || pos > it.last || pos + 15 < it.first)
		return 0;
	return it.table[attn_index(a, pos)];
}

/* Copy tile @i to its stage; the warp's stages begin at piece @base. */
template <int TYPE, int HD, int WARPS, int STAGES, typename E>
DEVICE void decode_copy(const struct k_attn_args &a,
			const struct attn_item &it, struct decode_run &r,
			SHARED_PTR(E) kv, u32 base, u32 i)
{
	typedef decode_pipe<TYPE, HD, WARPS, STAGES> pipe;
	typedef tile_shape<TYPE, HD> shape;
	const u32 lane = thread_lane(), per = 16 / sizeof(E);
	const u32 pos = (r.first_tile + i * r.step) * 16;
	u32 entry, j, row, c, to;
	const u8 *from;
	bool there;

	if (i % WARP == 0 && i) {
		r.entries = r.coming;
		r.coming = decode_entry(a, it, r, i + WARP + lane);
	}
	entry = __shfl_sync(FULL_MASK, r.entries, i % WARP);
	if (i >= r.nr || pos > it.last || pos + 15 < it.first)
		return;
	from = attn_block(a, entry) +
	       attn_token(a, pos) * r.place.row;
	to = base + i % STAGES * pipe::stage;
#pragma unroll
	for (j = 0; j < shape::pieces / 2; j++) {
		row = (lane + j * WARP) / shape::pieces;
		c = (lane + j * WARP) % shape::pieces;
		there = c * 16 < r.place.row && pos + row >= it.first &&
			pos + row <= it.last;
		c = row * r.place.row + c * 16;
		row = per * (to + tile_piece<TYPE, HD>(row,
				(lane + j * WARP) % shape::pieces));
		copy_async16(kv, row, from + r.place.k + c, there);
		copy_async16(kv, row + per * pipe::half, from + r.place.v + c,
			     there);
	}
	if (shape::narrow && lane < 8) {
		from = attn_block(a, entry) + (lane < 4 ? r.place.ks :
					       r.place.vs);
		c = attn_token(a, pos) * 4 + lane % 4 * 16;
		copy_async16(kv, per * (to + 2 * pipe::half + lane), from + c,
			     true);
	}
}

/* One tile in shared memory from piece @at on; u16: 16-bit KV, u32: narrow KV. */
template <int TYPE, int HD, u32 HALF>
DEVICE void decode_tile(const struct k_attn_args &a, SHARED_PTR(u16) kv, u32 at,
			struct tile_rows<HD> &w, u32 pos, bool all_seen)
{
	float s[2][4];

	tile_scores<TYPE, HD, 1>(kv, at * 8, w, s);
	tile_softmax<TYPE, HD, 2>(a, w, s, pos, all_seen);
	tile_mix<TYPE, HD, 1>(kv, (at + HALF) * 8, w, s);
}

template <int TYPE, int HD, u32 HALF>
DEVICE void decode_tile(const struct k_attn_args &a, SHARED_PTR(u32) kv, u32 at,
			struct tile_rows<HD> &w, u32 pos, bool all_seen)
{
	float s[2][4];

	narrow_scores<TYPE, HD>(kv, at * 4, w, s);
	narrow_scale<2>(kv, (at + 2 * HALF) * 4, s, false);
	tile_softmax<TYPE, HD, 2>(a, w, s, pos, all_seen);
	narrow_scale<2>(kv, (at + 2 * HALF) * 4 + 16, s, true);
	narrow_mix<TYPE, HD>(kv, (at + HALF) * 4, w, s);
}

/* The warp's tiles of @nr units from the sequence's unit @unit on. */
template <int TYPE, int HD, int WARPS, int STAGES, typename E>
DEVICE void decode_warp(const struct k_attn_args &a,
			const struct attn_item &it, SHARED_PTR(E) kv, u32 unit,
			u32 nr, struct tile_rows<HD> &w)
{
	typedef decode_pipe<TYPE, HD, WARPS, STAGES> pipe;
	const u32 base = thread_warp() * STAGES * pipe::stage;
	struct decode_run r;
	u32 i, pos, lo, hi;

	r.place = attn_place_of(a, it.kv_head, tile_shape<TYPE, HD>::elem);
	r.first_tile = unit * WARPS + thread_warp();
	r.nr = nr;
	r.step = WARPS;
	r.entries = decode_entry(a, it, r, thread_lane());
	r.coming = decode_entry(a, it, r, thread_lane() + WARP);
	/* Positions that every query sees. */
	lo = attn_first(a, it.last);
	hi = attn_pos(a, it, 0);
	for (i = 0; i < STAGES - 1; i++) {
		decode_copy<TYPE, HD, WARPS, STAGES, E>(a, it, r, kv, base, i);
		copy_commit();
	}
	tile_queries<TYPE, HD>(a, it, 0, w);	/* while KV is copied */
	for (i = 0; i < nr; i++) {
		copy_wait<STAGES - 2>();
		__syncwarp();
		decode_copy<TYPE, HD, WARPS, STAGES, E>(a, it, r, kv, base,
							i + STAGES - 1);
		copy_commit();
		pos = (r.first_tile + i * WARPS) * 16;
		if (pos <= it.last && pos + 15 >= it.first)
			decode_tile<TYPE, HD, pipe::half>(a, kv,
				base + i % STAGES * pipe::stage, w, pos,
				pos >= lo && pos + 15 <= hi);
	}
	copy_wait<0>();
	tile_end<HD>(w);
}

/* Floats from a row to the next, of the 32 dims that warps add up at a time. */
#define DECODE_PAD	40u

/* Maximum and sum of weights of query @q over all warps. */
template <int WARPS>
DEVICE void decode_stats(SHARED_PTR(float) stat, u32 q, float *m, float *l)
{
	u32 i;

	*m = ATTN_NONE;
	*l = 0.0f;
	for (i = 0; i < WARPS; i++)
		*m = fmaxf(*m, stat[(i * ATTN_Q + q) * 2]);
	for (i = 0; i < WARPS && *m != ATTN_NONE; i++)
		*l += stat[(i * ATTN_Q + q) * 2 + 1] *
		      fast_exp2(stat[(i * ATTN_Q + q) * 2] - *m);
}

/* Add up 32 dims from @d0 on over the warps: the result, or a partial one. */
template <int WARPS>
DEVICE void decode_add(const struct k_attn_args &a, const struct attn_item &it,
		       SHARED_PTR(float) sums, SHARED_PTR(float) stat, u32 d0,
		       float *part)
{
	const u32 hd = a.kv.head_dim;
	u32 i, j, q, d;
	float m, l, x;

	for (i = threadIdx.x; i < ATTN_Q * 32; i += WARPS * WARP) {
		q = i / 32;
		d = d0 + i % 32;
		if (q >= it.nq || d >= hd)
			continue;
		decode_stats<WARPS>(stat, q, &m, &l);
		x = 0.0f;
		for (j = 0; j < WARPS && m != ATTN_NONE; j++)
			x += sums[(j * ATTN_Q + q) * DECODE_PAD + i % 32] *
			     fast_exp2(stat[(j * ATTN_Q + q) * 2] - m);
		if (!part) {
			x *= tile_sink(a, it, q, m, &l);
			attn_store(a, a.out + attn_at(a, it, q, a.out_ld) + d,
				   x / l);
			continue;
		}
		part[q * hd + d] = x;
		if (d == 0) {
			part[ATTN_STAT(hd, q)] = m;
			part[ATTN_STAT(hd, q) + 1] = l;
		}
	}
}

/* End an item: add up the results of all warps. */
template <int TYPE, int HD, int WARPS>
DEVICE void decode_end(const struct k_attn_args &a, const struct attn_item &it,
		       SHARED_PTR(float) sums, SHARED_PTR(float) stat,
		       const struct tile_rows<HD> &w, float *part)
{
	const u32 g = thread_lane() / 4, t = thread_lane() % 4;
	u32 d, n, e, row;

	if (t == 0) {
#pragma unroll
		for (e = 0; e < 2; e++) {
			row = thread_warp() * ATTN_Q + g + e * 8;
			stat[row * 2] = w.m[e];
			stat[row * 2 + 1] = w.l[e];
		}
	}
#pragma unroll
	for (d = 0; d < HD; d += 32) {
#pragma unroll
		for (n = d / 8; n < d / 8 + 4 && n < HD / 8; n++) {
#pragma unroll
			for (e = 0; e < 4; e++) {
				row = thread_warp() * ATTN_Q + g + e / 2 * 8;
				sums[row * DECODE_PAD - d +
				     tile_dim<TYPE>(n, t * 2 + (e & 1))] =
					w.o[n][e];
			}
		}
		__syncthreads();
		decode_add<WARPS>(a, it, sums, stat, d, part);
		__syncthreads();
	}
}

template <int TYPE, int HD, int WARPS, int STAGES, typename E>
DEVICE void decode_block(const struct k_attn_args &a, SHARED_PTR(E) kv)
{
	SHARED(float, sums, WARPS * ATTN_Q * DECODE_PAD);
	SHARED(float, stat, WARPS * ATTN_Q * 2);
	const u32 total = attn_total<decode_work>(a), g = blockIdx.x;
	const u32 end = decode_begin(a, total, g + 1);
	u32 at = decode_begin(a, total, g), before, units, unit, nr;
	struct tile_rows<HD> w;
	float *part;

	while (at < end) {
		const struct dev_seq s = attn_find<decode_work>(a, at, &before);

		units = decode_units(a, s);
		unit = (at - before) % units;
		nr = min(units - unit, end - at);
		const struct attn_item it =
			decode_item(a, s, (at - before) / units);

		part = NULL;
		if (nr < units)
			part = a.part + (u64)(2 * g + (unit == 0)) *
					ATTN_PART(a.kv.head_dim);
		unit += attn_first(a, s.start_pos) >> a.unit_shift;
		decode_warp<TYPE, HD, WARPS, STAGES, E>(a, it, kv, unit, nr, w);
		decode_end<TYPE, HD, WARPS>(a, it, sums, stat, w, part);
		at += nr;
	}
}

/* A kernel for heads of up to @hd dims; @elem: u16, or u32 for narrow KV. */
#define ATTN_DECODE(name, type, hd, warps, stages, elem)		\
	KERNEL(name, (warps) * 32)(struct k_attn_args a)		\
	{								\
		DYN_SHARED(elem, kv);					\
									\
		decode_block<type, hd, warps, stages, elem>(a, kv);	\
	}								\
	static_assert(decode_pipe<type, hd, warps, stages>::bytes ==	\
		      ATTN_SMEM_##name, "as list.h has it")

#endif /* ATTN_JOIN_ONLY */
#endif /* KERNELS_CUDA_ATTN_DECODE_H */
