// SPDX-License-Identifier: Apache-2.0
/*
 * attn_exact.cu - attention in exact mode: its bits depend on position and shape
 *
 * For each query and each chunk of KERN_CHUNK absolute positions that it sees:
 *
 *   s[t] = (q . k[t]) * scale, the product of dims 4i + j to sum j, in order,
 *	    and the four sums as (0 + 1) + (2 + 3); softcap * tanh(s / softcap)
 *   m    = max s,  p[t] = exp(s[t] - m)
 *   l    = sum p: p[t] + p[t + 32], then the tree of warp_sum()
 *   o    = sum of p[t] * v[t] for t in rising order
 *
 * Chunks are folded, in order, into their span of EXACT_SPAN absolute positions,
 * and spans, in order, into the result, and a sink comes last, like a span with m =
 * sink, l = 1 and o = 0.  That order never changes, but the
 * division of the work may.  A task is an item of up to ATTN_Q queries with all of
 * its spans.  If there are too few items for the grid, a task has only one span,
 * and its sums are written to memory, where k_attn_exact_join folds them.  Both
 * ways take the same steps in the same order, so they give the same bits, and the
 * choice between them may depend on the rest of the batch.
 *
 * KV is widened to f32 (element times scale, rounded) on its way to shared
 * memory.  A position that a query may not see does not enter the query's sums:
 * it is neither scored nor multiplied.
 *
 * Shared memory holds a chunk of K, then of V in the same place: 33 KiB with heads
 * of 128 dims and 66 KiB with 256, and another 12 or 20 KiB.  Two blocks of 256
 * threads fit on a multiprocessor, with 128 registers a thread (some 30 words
 * spill, outside of the loops over dims and positions).  With heads of 256 dims
 * only one fits on sm_86 and sm_89.  A thread computes the scores of four queries
 * with one position.
 */
#include "kernels/cuda/attn_exact.h"

/* Items of a sequence. */
DEVICE u32 exact_items(const struct k_attn_args &a, const struct dev_seq &s)
{
	return (attn_queries(a, s) + ATTN_Q - 1) / ATTN_Q * a.kv.kv_heads;
}

struct exact_whole {
	DEVICE u32 count(const struct k_attn_args &a, const struct dev_seq &s)
	{
		return exact_items(a, s);
	}
};

struct exact_split {
	DEVICE u32 count(const struct k_attn_args &a, const struct dev_seq &s)
	{
		return exact_items(a, s) * exact_spans(a, s);
	}
};

/* Are items split into spans?  *@tasks: the number of tasks. */
DEVICE bool exact_is_split(const struct k_attn_args &a, u32 *tasks)
{
	const u32 items = attn_total<exact_whole>(a);
	const u32 all = attn_total<exact_split>(a);

	*tasks = items;
	if (items >= a.ctas || all == items ||
	    (u64)all * ATTN_PART(a.kv.head_dim) > a.part_floats)
		return false;
	*tasks = all;
	return true;
}

DEVICE struct attn_item exact_item(const struct k_attn_args &a,
				   const struct dev_seq &s, u32 i)
{
	return attn_item_of(a, s, i % a.kv.kv_heads,
			    i / a.kv.kv_heads * ATTN_Q, ATTN_Q);
}

/* Load K or V of the chunk at @start; zeros for positions that no query sees. */
template <u32 TYPE>
DEVICE void exact_load_as(const struct k_attn_args &a,
			  const struct attn_item &it, SHARED_PTR(float) to,
			  u32 start, bool is_v)
{
	const u32 elem = exact_type<TYPE>::elem;
	const struct attn_place at = attn_place_of(a, it.kv_head, elem);
	const u32 ld = a.kv.head_dim + EXACT_PAD, pieces = at.row / 16;
	u32 i, t, c, pos, token;
	float scale;
	const u8 *b;
	quad x;

	for (i = threadIdx.x; i < EXACT_CHUNK * pieces; i += EXACT_THREADS) {
		t = i / pieces;
		c = i % pieces;
		pos = start + t;
		x.w[0] = x.w[1] = x.w[2] = x.w[3] = 0;
		scale = 0.0f;
		if (pos >= it.first && pos <= it.last) {
			b = attn_block(a, it.table[attn_index(a, pos)]);
			token = attn_token(a, pos);
			x = gl_stream16(b + (is_v ? at.v : at.k) +
					token * at.row + c * 16);
			if (elem == 1)
				scale = *(const float *)
					(b + (is_v ? at.vs : at.ks) + token * 4);
		}
		exact_widen<TYPE>(to, t * ld + c * 16 / elem, x, scale);
	}
}

DEVICE void exact_load(const struct k_attn_args &a, const struct attn_item &it,
		       SHARED_PTR(float) to, u32 start, bool is_v)
{
	switch (a.kv.dtype) {
	case KERN_F32:
		exact_load_as<KERN_F32>(a, it, to, start, is_v);
		break;
	case KERN_BF16:
		exact_load_as<KERN_BF16>(a, it, to, start, is_v);
		break;
	case KERN_F16:
		exact_load_as<KERN_F16>(a, it, to, start, is_v);
		break;
	case KERN_E4M3:
		exact_load_as<KERN_E4M3>(a, it, to, start, is_v);
		break;
	default:
		exact_load_as<KERN_I8>(a, it, to, start, is_v);
	}
}

DEVICE float exact_dot(SHARED_PTR(float) q, u32 q_at, SHARED_PTR(float) k,
		       u32 k_at, u32 hd)
{
	float s[4] = { 0.0f, 0.0f, 0.0f, 0.0f };
	u32 i, j;

#pragma unroll 4
	for (i = 0; i < hd; i += 4) {
		const quad x = sh_load16(q, q_at + i), y = sh_load16(k, k_at + i);

#pragma unroll
		for (j = 0; j < 4; j++)
			s[j] = fma_rn(bits_float(x.w[j]), bits_float(y.w[j]),
				      s[j]);
	}
	return add_rn(add_rn(s[0], s[1]), add_rn(s[2], s[3]));
}

/* Scores of all queries; ATTN_NONE for positions that a query does not see. */
DEVICE void exact_scores(const struct k_attn_args &a,
			 const struct attn_item &it, SHARED_PTR(float) q,
			 SHARED_PTR(float) k, SHARED_PTR(float) p, u32 start)
{
	const u32 hd = a.kv.head_dim, t = threadIdx.x % EXACT_CHUNK;
	u32 i, lo, hi;
	float s;

	for (i = threadIdx.x / EXACT_CHUNK; i < it.nq;
	     i += EXACT_THREADS / EXACT_CHUNK) {
		exact_view(a, it, i, start, &lo, &hi);
		s = ATTN_NONE;
		if (t >= lo && t < hi) {
			s = exact_dot(q, i * hd, k, t * (hd + EXACT_PAD), hd);
			s = mul_rn(s, a.scale);
			if (a.softcap)
				s = mul_rn(a.softcap,
					   f_tanh(s / a.softcap));
		}
		p[i * EXACT_CHUNK + t] = s;
	}
}

/* The chunk's weighted sum of V: four dims from @d on, for query @q. */
DEVICE struct exact_sum exact_mix(const struct k_attn_args &a,
				  const struct attn_item &it, u32 q, u32 d,
				  SHARED_PTR(float) v, SHARED_PTR(float) p,
				  u32 start)
{
	struct exact_sum x = exact_nothing();
	u32 t, j, lo, hi;

	exact_view(a, it, q, start, &lo, &hi);
#pragma unroll 2
	for (t = lo; t < hi; t++) {
		const float w = p[q * EXACT_CHUNK + t];
		const quad y = sh_load16(v, t * (a.kv.head_dim + EXACT_PAD) + d);

#pragma unroll
		for (j = 0; j < 4; j++)
			x.o[j] = fma_rn(w, bits_float(y.w[j]), x.o[j]);
	}
	return x;
}

/* Load the item's queries, unscaled. */
DEVICE void exact_queries(const struct k_attn_args &a,
			  const struct attn_item &it, SHARED_PTR(float) q)
{
	const u32 hd = a.kv.head_dim;
	u32 i;

	for (i = threadIdx.x; i < it.nq * hd; i += EXACT_THREADS)
		q[i] = a.q[attn_at(a, it, i / hd, a.q_ld) + i % hd];
}

/* The sink of query @q, as a span. */
DEVICE struct exact_sum exact_sink(const struct k_attn_args &a,
				   const struct attn_item &it, u32 q)
{
	struct exact_sum x = exact_nothing();

	x.m = a.sinks[attn_head(a, it, q)];
	x.l = 1.0f;
	return x;
}

/* Write the result, or a span's part of it, for quad @i of an item. */
DEVICE void exact_out(const struct k_attn_args &a, const struct attn_item &it,
		      u32 i, const struct exact_sum &x, float *part)
{
	const u32 hd = a.kv.head_dim, q = i / (hd / 4), d = i % (hd / 4) * 4;
	float *to;
	u32 j;

	if (!part) {
		to = a.out + attn_at(a, it, q, a.out_ld) + d;
		for (j = 0; j < 4; j++)
			attn_store(a, to + j, x.o[j] / x.l);
		return;
	}
	to = part + q * hd + d;
	for (j = 0; j < 4; j++)
		to[j] = x.o[j];
	if (d == 0) {
		to = part + ATTN_STAT(hd, q);
		to[0] = x.m;
		to[1] = x.l;
	}
}

/* Read four dims of query @q from @d on, as written by exact_out(). */
DEVICE struct exact_sum exact_part(const float *part, u32 hd, u32 q, u32 d)
{
	const quad y = gl_load16(part + q * hd + d);
	struct exact_sum x;
	u32 j;

	x.m = part[ATTN_STAT(hd, q)];
	x.l = part[ATTN_STAT(hd, q) + 1];
#pragma unroll
	for (j = 0; j < 4; j++)
		x.o[j] = bits_float(y.w[j]);
	return x;
}

/* Arrays in the dynamic shared memory. */
struct exact_mem {
	SHARED_PTR(float)	q;
	SHARED_PTR(float)	p;
	SHARED_PTR(float)	max_of;
	SHARED_PTR(float)	sum_of;
	SHARED_PTR(float)	kv;
};

/* Fold one chunk of an item into the thread's quads. */
DEVICE void exact_chunk(const struct k_attn_args &a, const struct attn_item &it,
			const struct exact_mem &m, u32 start,
			struct exact_sum (&span)[EXACT_EACH])
{
	const u32 quads = a.kv.head_dim / 4;
	struct exact_sum x;
	u32 k, i;

	exact_load(a, it, m.kv, start, false);
	__syncthreads();
	exact_scores(a, it, m.q, m.kv, m.p, start);
	__syncthreads();
	exact_softmax(it, m.p, m.max_of, m.sum_of);
	exact_load(a, it, m.kv, start, true);
	__syncthreads();
#pragma unroll
	for (k = 0; k < EXACT_EACH; k++) {
		i = threadIdx.x + k * EXACT_THREADS;
		if (i >= it.nq * quads)
			continue;
		x = exact_mix(a, it, i / quads, i % quads * 4, m.kv, m.p,
			      start);
		x.m = m.max_of[i / quads];
		x.l = m.sum_of[i / quads];
		exact_fold(span[k], x);
	}
	__syncthreads();
}

/* Do the spans from @span up to @end of an item; a sink is one more span. */
DEVICE void exact_task(const struct k_attn_args &a, const struct attn_item &it,
		       const struct exact_mem &m, u32 span, u32 end,
		       float *part)
{
	const u32 quads = a.kv.head_dim / 4, sink = a.sinks && !part ? end : ~0u;
	struct exact_sum all[EXACT_EACH], one[EXACT_EACH];
	u32 k, i, start;

#pragma unroll
	for (k = 0; k < EXACT_EACH; k++)
		all[k] = exact_nothing();
	exact_queries(a, it, m.q);
	for (; span < end || span == sink; span++) {
#pragma unroll
		for (k = 0; k < EXACT_EACH; k++) {
			i = threadIdx.x + k * EXACT_THREADS;
			one[k] = span == sink && i < it.nq * quads ?
				 exact_sink(a, it, i / quads) : exact_nothing();
		}
		start = max(it.first & ~(EXACT_CHUNK - 1), span * EXACT_SPAN);
		for (; start <= it.last && start / EXACT_SPAN == span;
		     start += EXACT_CHUNK)
			exact_chunk(a, it, m, start, one);
#pragma unroll
		for (k = 0; k < EXACT_EACH; k++)
			exact_fold(all[k], one[k]);
	}
#pragma unroll
	for (k = 0; k < EXACT_EACH; k++) {
		i = threadIdx.x + k * EXACT_THREADS;
		if (i < it.nq * quads)
			exact_out(a, it, i, all[k], part);
	}
}

/* Two blocks on a multiprocessor: one loads while the other multiplies. */
#ifdef KVMM_SHIM
#define EXACT_BOUNDS	256
#else
#define EXACT_BOUNDS	256, 2
#endif

KERNEL(k_attn_exact, EXACT_BOUNDS)(struct k_attn_args a)
{
	DYN_SHARED(float, mem);
	const u32 hd = a.kv.head_dim;
	const struct exact_mem m = {
		mem, mem + ATTN_Q * hd, mem + ATTN_Q * (hd + EXACT_CHUNK),
		mem + ATTN_Q * (hd + EXACT_CHUNK + 1),
		mem + ATTN_Q * (hd + EXACT_CHUNK + 2),
	};
	u32 tasks, i, at, before, spans, first;
	float *part;
	const bool split = exact_is_split(a, &tasks);

	for (i = blockIdx.x; i < tasks; i += gridDim.x) {
		const struct dev_seq s = split ?
			attn_find<exact_split>(a, i, &before) :
			attn_find<exact_whole>(a, i, &before);

		spans = exact_spans(a, s);
		first = attn_first(a, s.start_pos) / EXACT_SPAN;
		at = i - before;
		part = split ? a.part + (u64)i * ATTN_PART(hd) : NULL;
		if (split) {
			first += at % spans;
			at /= spans;
			spans = 1;
		}
		exact_task(a, exact_item(a, s, at), m, first, first + spans,
			   part);
		__syncthreads();
	}
}

/* Fold the spans of each item, if items were split. */
KERNEL(k_attn_exact_join, 256)(struct k_attn_args a)
{
	const u32 hd = a.kv.head_dim, quads = hd / 4;
	u32 tasks, i, j, k, q, before, spans;
	struct exact_sum all, x;
	const float *part;

	if (!exact_is_split(a, &tasks))
		return;
	for (i = blockIdx.x; i < tasks; i += gridDim.x) {
		const struct dev_seq s = attn_find<exact_split>(a, i, &before);

		spans = exact_spans(a, s);
		if ((i - before) % spans)
			continue;
		const struct attn_item it =
			exact_item(a, s, (i - before) / spans);

		for (j = threadIdx.x; j < it.nq * quads; j += EXACT_THREADS) {
			all = exact_nothing();
			q = j / quads;
			part = a.part + (u64)i * ATTN_PART(hd);
			for (k = 0; k < spans; k++) {
				x = exact_part(part, hd, q, j % quads * 4);
				exact_fold(all, x);
				part += ATTN_PART(hd);
			}
			if (a.sinks)
				exact_fold(all, exact_sink(a, it, q));
			exact_out(a, it, j, all, NULL);
		}
	}
}
