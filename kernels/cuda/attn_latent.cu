// SPDX-License-Identifier: Apache-2.0
/*
 * attn_latent.cu - attention over latent vectors, in both modes
 *
 * All query heads read the same vector of a token.  The steps, the chunks, the
 * spans and their order are those of attn_exact.cu, with K and V in one vector: a
 * score is the product with all of its dims, and the first rank dims are summed up.
 * So bits depend on position and shape alone.
 *
 * A vector has up to 576 dims, too many for a chunk in shared memory.  So a chunk is
 * read in pieces of LATENT_PIECE dims, once for the scores and once for the sums;
 * the second reading comes from the cache.  An item has LATENT_Q queries, and a
 * thread has one quad of dims of one query in each piece, and one maximum and one
 * sum of weights for all of its pieces.
 *
 * Shared memory is 54 KiB, registers are 128 a thread without spills, and two blocks
 * of 256 threads fit on a multiprocessor (one on sm_86 and sm_89).
 */
#include "kernels/cuda/attn_exact.h"

#define LATENT_Q	8u
#define LATENT_PIECE	128u		/* dims */
#define LATENT_LD	(LATENT_PIECE + EXACT_PAD)
#define LATENT_DIMS	576u		/* KERN_MAX_LATENT_DIM */
#define LATENT_PIECES	4u		/* of the largest rank, 512 */
/* Queries whose scores a thread computes. */
#define LATENT_EACH	2u
/* A partial result: [query][dim] sums, then [query] maximum and sum of weights. */
#define LATENT_PART(a)		(LATENT_Q * ((a).kv.rank + 2))
#define LATENT_STAT(a, q)	(LATENT_Q * (a).kv.rank + 2 * (q))

DEVICE u32 latent_items(const struct k_attn_args &a, const struct dev_seq &s)
{
	return (attn_queries(a, s) + LATENT_Q - 1) / LATENT_Q;
}

struct latent_whole {
	DEVICE u32 count(const struct k_attn_args &a, const struct dev_seq &s)
	{
		return latent_items(a, s);
	}
};

struct latent_split {
	DEVICE u32 count(const struct k_attn_args &a, const struct dev_seq &s)
	{
		return latent_items(a, s) * exact_spans(a, s);
	}
};

/* Are items split into spans?  *@tasks: the number of tasks. */
DEVICE bool latent_is_split(const struct k_attn_args &a, u32 *tasks)
{
	const u32 items = attn_total<latent_whole>(a);
	const u32 all = attn_total<latent_split>(a);

	*tasks = items;
	if (items >= a.ctas || all == items ||
	    (u64)all * LATENT_PART(a) > a.part_floats)
		return false;
	*tasks = all;
	return true;
}

/*
 * Load @dims dims from @dim on of the chunk at @start; zeros for positions that no
 * query sees.
 */
template <u32 TYPE>
DEVICE void latent_load_as(const struct k_attn_args &a,
			   const struct attn_item &it, SHARED_PTR(float) to,
			   u32 start, u32 dim, u32 dims)
{
	const u32 elem = exact_type<TYPE>::elem, row = a.kv.head_dim * elem;
	const u32 quads = dims * elem / 16;
	u32 i, t, c, pos, token;
	float scale;
	const u8 *b;
	quad x;

	for (i = threadIdx.x; i < EXACT_CHUNK * quads; i += EXACT_THREADS) {
		t = i / quads;
		c = i % quads;
		pos = start + t;
		x.w[0] = x.w[1] = x.w[2] = x.w[3] = 0;
		scale = 0.0f;
		if (pos <= it.last) {
			b = attn_block(a, it.table[attn_index(a, pos)]) +
			    a.layer * a.kv.layer_stride;
			token = attn_token(a, pos);
			x = gl_load16(b + token * row + dim * elem + c * 16);
			if (elem == 1)
				scale = *(const float *)
					(b + (u64)a.kv.block_tokens * row +
					 token * 4);
		}
		exact_widen<TYPE>(to, t * LATENT_LD + c * 16 / elem, x, scale);
	}
}

DEVICE void latent_load(const struct k_attn_args &a,
			const struct attn_item &it, SHARED_PTR(float) to,
			u32 start, u32 dim, u32 dims)
{
	switch (a.kv.dtype) {
	case KERN_F32:
		latent_load_as<KERN_F32>(a, it, to, start, dim, dims);
		break;
	case KERN_BF16:
		latent_load_as<KERN_BF16>(a, it, to, start, dim, dims);
		break;
	case KERN_F16:
		latent_load_as<KERN_F16>(a, it, to, start, dim, dims);
		break;
	case KERN_E4M3:
		latent_load_as<KERN_E4M3>(a, it, to, start, dim, dims);
		break;
	default:
		latent_load_as<KERN_I8>(a, it, to, start, dim, dims);
	}
}

/* Sums of one query, with four of its dims in each piece. */
struct latent_sum {
	float	m;
	float	l;
	float	o[LATENT_PIECES][4];
};

DEVICE struct latent_sum latent_nothing(void)
{
	struct latent_sum x;
	u32 k;

	x.m = ATTN_NONE;
	x.l = 0.0f;
#pragma unroll
	for (k = 0; k < LATENT_PIECES; k++)
		x.o[k][0] = x.o[k][1] = x.o[k][2] = x.o[k][3] = 0.0f;
	return x;
}

/* The step that exact_fold() takes, for all dims of a query. */
struct latent_step {
	bool	first;		/* the sums begin with the next positions */
	bool	down;		/* these are scaled down, not the sums before */
	float	c;
};

/*
 * Fold the maximum and the sum of weights of the next positions, which the query
 * sees, into those of @x.
 */
DEVICE struct latent_step latent_fold(struct latent_sum &x, float m, float l)
{
	struct latent_step s;

	s.first = x.m == ATTN_NONE;
	s.down = !s.first && m <= x.m;
	s.c = 0.0f;
	if (s.first) {
		x.m = m;
		x.l = l;
	} else if (s.down) {
		s.c = f_exp(add_rn(m, -x.m));
		x.l = fma_rn(l, s.c, x.l);
	} else {
		s.c = f_exp(add_rn(x.m, -m));
		x.m = m;
		x.l = fma_rn(x.l, s.c, l);
	}
	return s;
}

/* Fold the weighted sums of four dims, @y, into @x. */
DEVICE void latent_fold_dims(const struct latent_step &s, float (&x)[4],
			     const float (&y)[4])
{
	u32 j;

#pragma unroll
	for (j = 0; j < 4; j++)
		x[j] = s.first ? y[j] : s.down ? fma_rn(y[j], s.c, x[j]) :
						 fma_rn(x[j], s.c, y[j]);
}

/* Arrays in the dynamic shared memory. */
struct latent_mem {
	SHARED_PTR(float)	q;
	SHARED_PTR(float)	p;
	SHARED_PTR(float)	max_of;
	SHARED_PTR(float)	sum_of;
	SHARED_PTR(float)	kv;
};

/* Add the products of one piece to four sums of a query and a position. */
DEVICE void latent_dot(const struct latent_mem &m, u32 q_at, u32 k_at, u32 dims,
		       float (&s)[4])
{
	u32 i, j;

#pragma unroll 4
	for (i = 0; i < dims; i += 4) {
		const quad x = sh_load16(m.q, q_at + i);
		const quad y = sh_load16(m.kv, k_at + i);

#pragma unroll
		for (j = 0; j < 4; j++)
			s[j] = fma_rn(bits_float(x.w[j]), bits_float(y.w[j]),
				      s[j]);
	}
}

/* Scores of all queries; ATTN_NONE for positions that a query does not see. */
DEVICE void latent_scores(const struct k_attn_args &a,
			  const struct attn_item &it,
			  const struct latent_mem &m, u32 start)
{
	const u32 hd = a.kv.head_dim, t = threadIdx.x % EXACT_CHUNK;
	const u32 first = threadIdx.x / EXACT_CHUNK;
	const u32 step = EXACT_THREADS / EXACT_CHUNK;
	float s[LATENT_EACH][4];
	u32 dim, dims, i, q, lo, hi;

#pragma unroll
	for (i = 0; i < LATENT_EACH; i++)
		s[i][0] = s[i][1] = s[i][2] = s[i][3] = 0.0f;
	for (dim = 0; dim < hd; dim += LATENT_PIECE) {
		dims = min(hd - dim, LATENT_PIECE);
		latent_load(a, it, m.kv, start, dim, dims);
		__syncthreads();
#pragma unroll
		for (i = 0; i < LATENT_EACH; i++)
			if (first + i * step < it.nq)
				latent_dot(m, (first + i * step) * hd + dim,
					   t * LATENT_LD, dims, s[i]);
		__syncthreads();
	}
#pragma unroll
	for (i = 0; i < LATENT_EACH; i++) {
		q = first + i * step;
		if (q >= it.nq)
			continue;
		exact_view(a, it, q, start, &lo, &hi);
		m.p[q * EXACT_CHUNK + t] = t >= lo && t < hi ?
			mul_rn(add_rn(add_rn(s[i][0], s[i][1]),
				      add_rn(s[i][2], s[i][3])), a.scale) :
			ATTN_NONE;
	}
}

/* The query of a thread, and its dim in a piece. */
DEVICE u32 latent_query(void)
{
	return threadIdx.x / (LATENT_PIECE / 4);
}

DEVICE u32 latent_dim(void)
{
	return threadIdx.x % (LATENT_PIECE / 4) * 4;
}

/* The chunk's weighted sum of four dims of the piece in shared memory. */
DEVICE void latent_mix(const struct k_attn_args &a, const struct attn_item &it,
		       const struct latent_mem &m, u32 start, float (&o)[4])
{
	const u32 q = latent_query();
	u32 t, j, lo, hi;

	exact_view(a, it, q, start, &lo, &hi);
	o[0] = o[1] = o[2] = o[3] = 0.0f;
#pragma unroll 2
	for (t = lo; t < hi; t++) {
		const float w = m.p[q * EXACT_CHUNK + t];
		const quad y = sh_load16(m.kv, t * LATENT_LD + latent_dim());

#pragma unroll
		for (j = 0; j < 4; j++)
			o[j] = fma_rn(w, bits_float(y.w[j]), o[j]);
	}
}

/* Fold one chunk of an item into the thread's quads, one in each piece. */
DEVICE void latent_chunk(const struct k_attn_args &a,
			 const struct attn_item &it,
			 const struct latent_mem &m, u32 start,
			 struct latent_sum &span)
{
	const u32 rank = a.kv.rank, q = latent_query();
	struct latent_step step;
	bool sees = false;
	float o[4];
	u32 k, dim;

	latent_scores(a, it, m, start);
	__syncthreads();
	exact_softmax(it, m.p, m.max_of, m.sum_of);
#pragma unroll
	for (k = 0; k < LATENT_PIECES; k++) {
		dim = k * LATENT_PIECE;
		if (dim >= rank)
			continue;
		latent_load(a, it, m.kv, start, dim,
			    min(rank - dim, LATENT_PIECE));
		__syncthreads();
		if (k == 0) {
			sees = q < it.nq && m.max_of[q] != ATTN_NONE;
			if (sees)
				step = latent_fold(span, m.max_of[q],
						   m.sum_of[q]);
		}
		if (sees && dim + latent_dim() < rank) {
			latent_mix(a, it, m, start, o);
			latent_fold_dims(step, span.o[k], o);
		}
		__syncthreads();
	}
}

/* Load the item's queries, unscaled. */
DEVICE void latent_queries(const struct k_attn_args &a,
			   const struct attn_item &it, SHARED_PTR(float) q)
{
	const u32 hd = a.kv.head_dim;
	u32 i;

	for (i = threadIdx.x; i < it.nq * hd; i += EXACT_THREADS)
		q[i] = a.q[attn_at(a, it, i / hd, a.q_ld) + i % hd];
}

/* Write the result, or a span's part of it, for the dims of a query from @d on. */
DEVICE void latent_out(const struct k_attn_args &a, const struct attn_item &it,
		       u32 q, u32 d, const struct latent_sum &x,
		       const float (&o)[4], float *part)
{
	const u32 f = it.q0 + q, rank = a.kv.rank;
	float *to;
	u32 j;

	if (!part) {
		to = a.out + (it.first_row + f / a.group) * a.out_ld +
		     (u64)(f % a.group) * rank + d;
		for (j = 0; j < 4; j++)
			attn_store(a, to + j, o[j] / x.l);
		return;
	}
	for (j = 0; j < 4; j++)
		part[q * rank + d + j] = o[j];
	if (d == 0) {
		part[LATENT_STAT(a, q)] = x.m;
		part[LATENT_STAT(a, q) + 1] = x.l;
	}
}

/* Do the spans from @span up to @end of an item. */
DEVICE void latent_task(const struct k_attn_args &a, const struct attn_item &it,
			const struct latent_mem &m, u32 span, u32 end,
			float *part)
{
	struct latent_sum all = latent_nothing(), one;
	struct latent_step step;
	u32 k, dim, start;

	latent_queries(a, it, m.q);
	__syncthreads();
	for (; span < end; span++) {
		one = latent_nothing();
		for (start = span * EXACT_SPAN;
		     start <= it.last && start / EXACT_SPAN == span;
		     start += EXACT_CHUNK)
			latent_chunk(a, it, m, start, one);
		if (one.m == ATTN_NONE)
			continue;
		step = latent_fold(all, one.m, one.l);
#pragma unroll
		for (k = 0; k < LATENT_PIECES; k++)
			latent_fold_dims(step, all.o[k], one.o[k]);
	}
#pragma unroll
	for (k = 0; k < LATENT_PIECES; k++) {
		dim = k * LATENT_PIECE + latent_dim();
		if (latent_query() < it.nq && dim < a.kv.rank)
			latent_out(a, it, latent_query(), dim, all, all.o[k],
				   part);
	}
}

DEVICE struct attn_item latent_item(const struct k_attn_args &a,
				    const struct dev_seq &s, u32 i)
{
	return attn_item_of(a, s, 0, i * LATENT_Q, LATENT_Q);
}

KERNEL(k_attn_latent, 256)(struct k_attn_args a)
{
	DYN_SHARED(float, mem);
	const struct latent_mem m = {
		mem, mem + LATENT_Q * LATENT_DIMS,
		mem + LATENT_Q * (LATENT_DIMS + EXACT_CHUNK),
		mem + LATENT_Q * (LATENT_DIMS + EXACT_CHUNK + 1),
		mem + LATENT_Q * (LATENT_DIMS + EXACT_CHUNK + 2),
	};
	u32 tasks, i, at, before, spans, first;
	float *part;
	const bool split = latent_is_split(a, &tasks);

	for (i = blockIdx.x; i < tasks; i += gridDim.x) {
		const struct dev_seq s = split ?
			attn_find<latent_split>(a, i, &before) :
			attn_find<latent_whole>(a, i, &before);

		spans = exact_spans(a, s);
		first = 0;
		at = i - before;
		part = split ? a.part + (u64)i * LATENT_PART(a) : NULL;
		if (split) {
			first = at % spans;
			at /= spans;
			spans = 1;
		}
		latent_task(a, latent_item(a, s, at), m, first, first + spans,
			    part);
		__syncthreads();
	}
}

/* Join four dims of query @q from @d on of @spans spans, as latent_out() wrote them. */
DEVICE void latent_join(const struct k_attn_args &a, const struct attn_item &it,
			const float *part, u32 spans, u32 q, u32 d)
{
	struct latent_sum all = latent_nothing();
	float o[4];
	u32 k, j;

	for (k = 0; k < spans; k++, part += LATENT_PART(a)) {
		if (part[LATENT_STAT(a, q)] == ATTN_NONE)
			continue;
		for (j = 0; j < 4; j++)
			o[j] = part[q * a.kv.rank + d + j];
		latent_fold_dims(latent_fold(all, part[LATENT_STAT(a, q)],
					     part[LATENT_STAT(a, q) + 1]),
				 all.o[0], o);
	}
	latent_out(a, it, q, d, all, all.o[0], NULL);
}

/* Fold the spans of each item, if items were split. */
KERNEL(k_attn_latent_join, 256)(struct k_attn_args a)
{
	const u32 quads = a.kv.rank / 4;
	u32 tasks, i, j, before, spans;

	if (!latent_is_split(a, &tasks))
		return;
	for (i = blockIdx.x; i < tasks; i += gridDim.x) {
		const struct dev_seq s = attn_find<latent_split>(a, i, &before);

		spans = exact_spans(a, s);
		if ((i - before) % spans)
			continue;
		const struct attn_item it =
			latent_item(a, s, (i - before) / spans);

		for (j = threadIdx.x; j < it.nq * quads; j += EXACT_THREADS)
			latent_join(a, it, a.part + (u64)i * LATENT_PART(a),
				    spans, j / quads, j % quads * 4);
	}
}
