// SPDX-License-Identifier: Apache-2.0
/*
 * attn_join.cu - add up the partial results of attn_decode.h
 *
 * Block g looks at the first unit of decoding's block g.  If this unit is inside an
 * item, and no earlier block began inside that item, block g joins the item.  Its
 * parts are the second part of block g - 1, and the first parts of block g and of
 * the later blocks up to the item's end; a block without units left no part.  So
 * each item that was cut is joined once, at most one by each block.  Its queries
 * are shared out over y of the grid.
 *
 * Parts are joined a batch at a time.  Each thread computes the weight of one part.
 * Then groups of threads, each of which spans the dims by quads, share out the
 * parts, so that all loads are in flight at once.
 */
#define ATTN_JOIN_ONLY
#include "kernels/cuda/attn_decode.h"

#define JOIN_THREADS	256u

/* The parts of one item: those of block @g - 1 and of the @nr - 1 blocks after it. */
struct join_parts {
	u32	g;
	u32	nr;
	u32	total;
};

/* Part @i, or NULL if its block had no units. */
DEVICE const float *join_part(const struct k_attn_args &a,
			      const struct join_parts &p, u32 i)
{
	const u32 h = p.g - 1 + i;

	if (i && decode_begin(a, p.total, h) == decode_begin(a, p.total, h + 1))
		return NULL;
	return a.part + (u64)(2 * h + (i == 0)) * ATTN_PART(a.kv.head_dim);
}

/* The largest score of all parts; called by the whole block. */
DEVICE float join_top(const struct k_attn_args &a, const struct join_parts &p,
		      u32 q, SHARED_PTR(float) tops)
{
	float m = ATTN_NONE;
	const float *part;
	u32 i;

	for (i = threadIdx.x; i < p.nr; i += JOIN_THREADS) {
		part = join_part(a, p, i);
		if (part)
			m = fmaxf(m, part[ATTN_STAT(a.kv.head_dim, q)]);
	}
	m = warp_max(m);
	if (thread_lane() == 0)
		tops[thread_warp()] = m;
	__syncthreads();
	for (i = 0; i < JOIN_THREADS / WARP; i++)
		m = fmaxf(m, tops[i]);
	return m;
}

/* Query @q: sums into @x, four dims of a thread; returns the sum of weights. */
DEVICE float join_sum(const struct k_attn_args &a, const struct join_parts &p,
		      u32 q, float m, SHARED_PTR(float) weights, float (&x)[4])
{
	const u32 hd = a.kv.head_dim, quads = hd / 4;
	const u32 groups = JOIN_THREADS / quads, d = threadIdx.x % quads * 4;
	/* The threads beyond the last whole group have no part. */
	const u32 mine = threadIdx.x < groups * quads ? threadIdx.x / quads :
			 JOIN_THREADS;
	u32 base, i, j;
	const float *part;
	float w, l = 0.0f;

	for (base = 0; base < p.nr; base += JOIN_THREADS) {
		i = base + threadIdx.x;
		part = i < p.nr ? join_part(a, p, i) : NULL;
		w = 0.0f;
		if (part) {
			w = fast_exp2(part[ATTN_STAT(hd, q)] - m);
			l += part[ATTN_STAT(hd, q) + 1] * w;
		}
		weights[threadIdx.x] = w;
		__syncthreads();
		for (i = mine; i < min(p.nr - base, JOIN_THREADS);
		     i += groups) {
			w = weights[i];
			if (w == 0.0f)
				continue;
			part = a.part + q * hd + d + (u64)(2 * (p.g - 1 + base +
				i) + (base + i == 0)) * ATTN_PART(hd);
			const quad y = gl_load16(part);

#pragma unroll
			for (j = 0; j < 4; j++)
				x[j] += w * bits_float(y.w[j]);
		}
		__syncthreads();
	}
	return warp_sum(l);
}

DEVICE void join_query(const struct k_attn_args &a, const struct attn_item &it,
		       const struct join_parts &p, u32 q,
		       SHARED_PTR(float) weights, SHARED_PTR(float) sums)
{
	const u32 hd = a.kv.head_dim, quads = hd / 4;
	const u32 groups = JOIN_THREADS / quads;
	float x[4] = { 0.0f, 0.0f, 0.0f, 0.0f }, m, l, y, c;
	u32 i, d;

	m = join_top(a, p, q, weights);
	__syncthreads();
	l = join_sum(a, p, q, m, weights, x);
	if (thread_lane() == 0)
		weights[thread_warp()] = l;
	for (i = 0; i < 4; i++)
		sums[threadIdx.x * 4 + i] = x[i];
	__syncthreads();
	l = 0.0f;
	for (i = 0; i < JOIN_THREADS / WARP; i++)
		l += weights[i];
	c = tile_sink(a, it, q, m, &l);
	for (d = threadIdx.x; d < hd; d += JOIN_THREADS) {
		y = 0.0f;
		for (i = 0; i < groups; i++)
			y += sums[i * hd + d];
		attn_store(a, a.out + attn_at(a, it, q, a.out_ld) + d,
			   y * c / l);
	}
	__syncthreads();
}

KERNEL(k_attn_join, 256)(struct k_attn_args a)
{
	SHARED(float, weights, JOIN_THREADS);
	SHARED(float, sums, JOIN_THREADS * 4);
	const u32 total = attn_total<decode_work>(a), g = blockIdx.x + 1;
	const u32 at = decode_begin(a, total, g);
	u32 before, units, i, q;
	struct join_parts p;

	if (g >= a.ctas || at >= total)
		return;
	const struct dev_seq s = attn_find<decode_work>(a, at, &before);

	units = decode_units(a, s);
	i = (at - before) / units;
	before += i * units;
	if (at == before || decode_begin(a, total, g - 1) > before)
		return;
	const struct attn_item it = decode_item(a, s, i);

	/* Block h begins before the end if h < end * ctas / total. */
	p.g = g;
	p.nr = (u32)(((u64)(before + units) * a.ctas + total - 1) / total);
	p.nr = min(p.nr, a.ctas) - g + 1;
	p.total = total;
	for (q = blockIdx.y; q < it.nq; q += gridDim.y)
		join_query(a, it, p, q, weights, sums);
}
