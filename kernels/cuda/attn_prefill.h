/* SPDX-License-Identifier: Apache-2.0 */
/*
 * attn_prefill.h - attention of many queries of a sequence
 *
 * An item is WARPS * 16 queries of one KV head: all heads of its group for one
 * row, then for the next.  It goes over the positions that they see in tiles of
 * KT, which all warps share.  Blocks take items round robin; of a sequence the
 * items that see most positions come first.
 *
 * For 16-bit KV shared memory has two tiles: one is multiplied while the other is
 * copied.  Narrow KV is copied to a third place, and then widened to bf16 once for
 * all warps; the next tile is copied there while this one is multiplied.
 *
 * With heads of 128 dims a block has 256 threads of up to 255 registers, so one
 * block fits on a multiprocessor.  A warp computes 16 x 64 scores at a time.
 */
#ifndef KERNELS_CUDA_ATTN_PREFILL_H
#define KERNELS_CUDA_ATTN_PREFILL_H

#include "kernels/cuda/attn_tile.h"

template <int TYPE, int HD, int WARPS, int KT>
struct prefill_shape {
	typedef tile_shape<TYPE, HD> raw;	/* as in the pool */
	static const bool narrow = raw::narrow;
	static const int type = narrow ? (int)KERN_BF16 : TYPE;
	typedef tile_shape<type, HD> tile;
	static const u32 queries = WARPS * 16;
	static const u32 threads = WARPS * WARP;
	/* In pieces of 16 bytes: K or V of a tile; all tiles; raw K or V. */
	static const u32 half = KT * tile::row;
	static const u32 tiles = (narrow ? 2 : 4) * half;
	static const u32 raw_half = KT * raw::pieces;
	static const u32 bytes = (tiles + (narrow ? 2 * raw_half + KT / 2 :
					   0)) * 16;
};

template <typename S>
struct prefill_work {
	DEVICE u32 count(const struct k_attn_args &a, const struct dev_seq &s)
	{
		if (!s.nr_rows || attn_is_few(a, s))
			return 0;
		return (attn_queries(a, s) + S::queries - 1) / S::queries *
		       a.kv.kv_heads;
	}
};

/* The table's entries of a tile, one lane for 16 positions. */
template <int KT>
DEVICE u32 prefill_entries(const struct k_attn_args &a,
			   const struct attn_item &it, u32 start)
{
	const u32 pos = start + thread_lane() * 16;

	if (thread_lane() >= KT / 16 || pos > it.last || pos + 15 < it.first)
		return 0;
	return it.table[attn_index(a, pos)];
}

/* Copy the tile at @start to piece @to; called by the whole block. */
template <typename S, int KT>
DEVICE void prefill_copy(const struct k_attn_args &a,
			 const struct attn_item &it,
			 const struct attn_place &at, SHARED_PTR(u16) kv,
			 u32 to, u32 start, u32 entries)
{
	typedef typename S::raw raw;
	const u32 half = S::narrow ? S::raw_half : S::half;
	u32 j, i, row, c, pos, piece;
	const u8 *from;
	bool there;

#pragma unroll
	for (j = 0; j < KT * raw::pieces / S::threads; j++) {
		i = threadIdx.x + j * S::threads;
		row = i / raw::pieces;
		c = i % raw::pieces;
		pos = start + row;
		there = c * 16 < at.row && pos >= it.first && pos <= it.last;
		from = attn_block(a, __shfl_sync(FULL_MASK, entries, row / 16));
		from += attn_token(a, pos) * at.row + c * 16;
		piece = to + (S::narrow ? i : row * raw::row +
			      (raw::swizzled ? c ^ (row & 7) : c));
		copy_async16(kv, 8 * piece, from + at.k, there);
		copy_async16(kv, 8 * (piece + half), from + at.v, there);
	}
	if (!S::narrow)
		return;
	/* Scales: four positions in a piece, K then V; blocks hold whole pieces. */
	i = threadIdx.x % (KT / 2);
	row = i % (KT / 4) * 4;
	pos = start + row;
	from = attn_block(a, __shfl_sync(FULL_MASK, entries, row / 16)) +
	       (i < KT / 4 ? at.ks : at.vs) +
	       attn_token(a, pos) * 4;
	there = pos + 3 >= it.first && pos <= it.last;
	if (threadIdx.x < KT / 2)
		copy_async16(kv, 8 * (to + 2 * half + i), from, there);
}

/* Widen the narrow KV at piece S::tiles to bf16 at piece 0. */
template <int TYPE, typename S, int KT>
DEVICE void prefill_widen(SHARED_PTR(u16) kv, SHARED_PTR(u32) scales)
{
	const u32 all = 2 * S::raw_half, pieces = S::raw::pieces;
	u32 i, j, row, c, to;
	quad x, y;

	for (i = threadIdx.x; i < all; i += S::threads) {
		x = sh_load16(kv, 8 * (S::tiles + i));
		row = i % S::raw_half / pieces;
		c = i % pieces * 2;
		to = i / S::raw_half * S::half + row * S::tile::row;
#pragma unroll
		for (j = 0; j < 8; j++) {
			y.w[j % 4] = bf16_pair(
				narrow_float<TYPE>(x.w[j / 2], j % 2 * 2),
				narrow_float<TYPE>(x.w[j / 2], j % 2 * 2 + 1));
			if (j % 4 == 3)
				sh_store16(kv, 8 * (to + ((c + j / 4) ^
							  (row & 7))), y);
		}
	}
	for (i = threadIdx.x; i < KT / 2; i += S::threads) {
		x = sh_load16(kv, 8 * (S::tiles + all + i));
		sh_store16(scales, i * 4, x);
	}
}

/*
 * Positions that a warp's queries see: @lo to @hi are seen by at least one query,
 * @all_lo to @all_hi by all of them.
 */
struct prefill_view {
	u32	lo;
	u32	hi;
	u32	all_lo;
	u32	all_hi;
};

DEVICE struct prefill_view prefill_view_of(const struct k_attn_args &a,
					   const struct attn_item &it, u32 q0)
{
	struct prefill_view v = { 1, 0, 1, 0 };

	if (q0 >= it.nq)
		return v;
	v.all_hi = attn_pos(a, it, q0);
	v.hi = attn_pos(a, it, min(q0 + 15, it.nq - 1));
	v.lo = attn_first(a, v.all_hi);
	v.all_lo = attn_first(a, v.hi);
	return v;
}

/* The warp's queries with one tile. */
template <typename S, int HD, int KT>
DEVICE void prefill_tile(const struct k_attn_args &a, SHARED_PTR(u16) kv,
			 SHARED_PTR(u32) scales, u32 piece, u32 start,
			 const struct prefill_view &v, struct tile_rows<HD> &w)
{
	const bool all = start >= v.all_lo && start + KT - 1 <= v.all_hi;
	float s[KT / 8][4];

	if (start > v.hi || start + KT <= v.lo)
		return;
	tile_scores<S::type, HD, KT / 16>(kv, piece * 8, w, s);
	if (S::narrow)
		narrow_scale<KT / 8>(scales, 0, s, false);
	tile_softmax<S::type, HD, KT / 8>(a, w, s, start, all);
	if (S::narrow)
		narrow_scale<KT / 8>(scales, KT, s, true);
	tile_mix<S::type, HD, KT / 16>(kv, (piece + S::half) * 8, w, s);
}

template <int HD>
DEVICE void prefill_out(const struct k_attn_args &a,
			const struct attn_item &it, u32 q0,
			const struct tile_rows<HD> &w)
{
	const u32 g = thread_lane() / 4, t = thread_lane() % 4;
	u32 i, n, e, q, d;
	float inv, l, *to;

#pragma unroll
	for (i = 0; i < 2; i++) {
		q = q0 + g + i * 8;
		if (q >= it.nq)
			continue;
		to = a.out + attn_at(a, it, q, a.out_ld);
		l = w.l[i];
		inv = tile_sink(a, it, q, w.m[i], &l);
		inv = inv / l;
#pragma unroll
		for (n = 0; n < HD / 8; n++) {
#pragma unroll
			for (e = 0; e < 2; e++) {
				d = n * 8 + t * 2 + e;
				if (d < a.kv.head_dim)
					attn_store(a, to + d,
						   w.o[n][2 * i + e] * inv);
			}
		}
	}
}

/* One item, tile by tile. */
template <int TYPE, typename S, int HD, int KT>
DEVICE void prefill_item(const struct k_attn_args &a,
			 const struct attn_item &it, SHARED_PTR(u16) kv,
			 SHARED_PTR(u32) scales)
{
	const struct attn_place at = attn_place_of(a, it.kv_head, S::raw::elem);
	const u32 q0 = thread_warp() * 16;
	const struct prefill_view v = prefill_view_of(a, it, q0);
	u32 start = it.first & ~(u32)(KT - 1), entries, now = 0, next;
	struct tile_rows<HD> w;

	next = S::narrow ? 0 : 2 * S::half;
	entries = prefill_entries<KT>(a, it, start);
	prefill_copy<S, KT>(a, it, at, kv, S::narrow ? S::tiles : now, start,
			    entries);
	copy_commit();
	entries = prefill_entries<KT>(a, it, start + KT);
	tile_queries<S::type, HD>(a, it, q0, w);
	for (; start <= it.last; start += KT) {
		copy_wait<0>();
		__syncthreads();
		if (S::narrow) {
			prefill_widen<TYPE, S, KT>(kv, scales);
			__syncthreads();
		}
		if (start + KT <= it.last) {
			prefill_copy<S, KT>(a, it, at, kv,
					    S::narrow ? S::tiles : next,
					    start + KT, entries);
			entries = prefill_entries<KT>(a, it, start + 2 * KT);
		}
		copy_commit();
		prefill_tile<S, HD, KT>(a, kv, scales, now, start, v, w);
		now ^= next;
		next ^= now;
		now ^= next;
	}
	tile_end<HD>(w);
	prefill_out<HD>(a, it, q0, w);
	__syncthreads();
}

template <int TYPE, int HD, int WARPS, int KT>
DEVICE void prefill_block(const struct k_attn_args &a, SHARED_PTR(u16) kv)
{
	typedef prefill_shape<TYPE, HD, WARPS, KT> S;
	typedef prefill_work<S> work;
	SHARED(u32, scales, S::narrow ? 2 * KT : 4);
	const u32 total = attn_total<work>(a);
	u32 i, at, before, tiles;

	for (i = blockIdx.x; i < total; i += gridDim.x) {
		const struct dev_seq s = attn_find<work>(a, i, &before);

		tiles = work::count(a, s) / a.kv.kv_heads;
		at = i - before;
		prefill_item<TYPE, S, HD, KT>(a, attn_item_of(a, s,
				at % a.kv.kv_heads,
				(tiles - 1 - at / a.kv.kv_heads) * S::queries,
				S::queries), kv, scales);
	}
}

/* A kernel for heads of up to @hd dims. */
#define ATTN_PREFILL(name, type, hd, warps, kt)				\
	KERNEL(name, (warps) * 32)(struct k_attn_args a)		\
	{								\
		DYN_SHARED(u16, kv);					\
									\
		prefill_block<type, hd, warps, kt>(a, kv);		\
	}								\
	static_assert(prefill_shape<type, hd, warps, kt>::bytes ==	\
		      ATTN_SMEM_##name, "as list.h has it")

#endif /* KERNELS_CUDA_ATTN_PREFILL_H */
