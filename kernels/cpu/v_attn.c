// SPDX-License-Identifier: Apache-2.0
/*
 * v_attn.c - paged, causal, grouped-query attention in exact mode
 *
 * An item is a tile: up to TILE_Q queries of one sequence that share a KV
 * head (the heads of its group for one row, then for the next), so that K and
 * V are read once for all of them.  The tile goes over KV in chunks of
 * KERN_CHUNK absolute positions; for every query that sees some of a chunk:
 *
 *   s[t]  = q . k[t] for the positions it sees, -inf for the others
 *	   (with a soft cap, cap * tanh(q . k[t] / cap))
 *   m'    = max(m, max s)
 *   c     = exp(m - m'), p[t] = exp(s[t] - m')
 *   l     = l * c + sum p, in the order of vec.h over the whole chunk
 *   acc   = acc * c, then + p[t] * v[t] for t in rising order
 *
 * and at the end acc / l.  A query that sees nothing of a chunk takes no step
 * for it.  So each query's result is a function of its own position, q, and
 * the K and V it sees: which other queries are in the tile, how rows were cut
 * into calls, and where the blocks lie changes nothing.
 *
 * What a query may not see never reaches its sums: its scores are replaced
 * (not scaled), and its loop over v stops before it.  Positions past the last
 * one that any query of the tile sees are not even read.
 */
#include "kernels/cpu/dot.h"

#define TILE_Q		32
#define NEG_INF		(-__builtin_inff())
/* Registers of v that a tile of four queries accumulates at a time. */
#define DV		(VW / 4)
#define DOT_QUERIES	DOT_ROWS

static_assert(KERN_DIM_ALIGN % VW == 0, "head dims are whole registers");
static_assert(KERN_CHUNK % VW == 0, "chunks are whole registers");

/* The keys of a chunk that a query sees: [lo, hi), from the chunk's start. */
struct keys {
	u32	lo;
	u32	hi;
};

struct tile {
	const struct kern_attn	*a;
	const u32		*table;
	u32			kv_head;
	u32			nr;		/* queries */
	u32			hd;
	u32			group;		/* query heads of a KV head */
	u32			first_row;	/* of the batch, query 0's */
	u32			first_head;	/* in the group, query 0's */
	u32			pos[TILE_Q];
	struct keys		see[TILE_Q];	/* of the present chunk */
	float			max[TILE_Q];
	float			sum[TILE_Q];
	float			q[TILE_Q * KERN_MAX_HEAD_DIM];
	float			acc[TILE_Q * KERN_MAX_HEAD_DIM];
	float			s[TILE_Q * KERN_CHUNK];
};

/* Consecutive tokens of one block. */
struct run {
	const u8	*data;
	u32		at;	/* of the first, from the chunk's start */
	u32		n;
};

/* The run that begins at @at of the chunk at @start, and ends before @end. */
static struct run run_at(const struct tile *t, u32 start, u32 at, u32 end,
			 u32 is_v)
{
	const struct kern_kv *kv = t->a->kv;
	u32 pos = start + at, token = pos % kv->block_tokens;
	u32 entry = t->table[pos / kv->block_tokens];

	return (struct run){
		.data = kern_kv_addr(kv, entry, t->a->layer, is_v, t->kv_head,
				     token),
		.at = at,
		.n = min(end - at, kv->block_tokens - token),
	};
}

/*
 * Ask for a run that is needed soon.  Blocks lie anywhere, so the hardware
 * does not foresee the next one; what is asked for is never past the table.
 */
static __inline_always void run_prefetch(struct run r, u32 row_bytes)
{
	u32 i;

	for (i = 0; i < r.n * row_bytes; i += 64)
		__builtin_prefetch(r.data + i);
}

/* Scores of mr queries from @q on against one run of keys. */
static __inline_always void qk_rows(struct tile *t, struct run r, u32 q,
				    const u32 mr, const bool bf16)
{
	const u32 hd = t->hd, nr = VW / mr, elem = bf16 ? 2 : 4;
	const float *qs = t->q + q * hd;
	float f[VW], *s = t->s + q * KERN_CHUNK + r.at;
	u32 i, m;

	for (i = 0; i + nr <= r.n; i += nr) {
		vf_store(f, dot_tile(mr, nr, qs, hd, r.data + i * hd * elem,
				     hd, bf16, hd, NULL));
		for (m = 0; m < mr; m++)
			memcpy(s + m * KERN_CHUNK + i, f + m * nr,
			       nr * sizeof(*f));
	}
	for (; i < r.n; i++) {
		vf_store(f, dot_tile(mr, 1, qs, hd, r.data + i * hd * elem,
				     hd, bf16, hd, NULL));
		for (m = 0; m < mr; m++)
			s[m * KERN_CHUNK + i] = f[m];
	}
}

static __inline_always void qk_run(struct tile *t, struct run r,
				   const bool bf16)
{
	u32 q = 0;

	for (; q + 4 <= t->nr; q += 4)
		qk_rows(t, r, q, 4, bf16);
	for (; q + 2 <= t->nr; q += 2)
		qk_rows(t, r, q, 2, bf16);
	for (; q < t->nr; q++)
		qk_rows(t, r, q, 1, bf16);
}

static __attribute__((noinline)) void qk_run_f32(struct tile *t, struct run r)
{
	qk_run(t, r, false);
}

static __attribute__((noinline)) void qk_run_bf16(struct tile *t, struct run r)
{
	qk_run(t, r, true);
}

/* Scores of one query through the soft cap; those out of view may be rubbish. */
static void cap_query(struct tile *t, u32 q)
{
	const float cap = t->a->softcap, inv = 1.0f / cap;
	float *s = t->s + q * KERN_CHUNK;
	u32 i;

	for (i = 0; i < KERN_CHUNK; i += VW)
		vf_store(s + i, vf_tanh(vf_load(s + i) * inv) * cap);
}

/* The online softmax of one query over one chunk; leaves p in place of s. */
static void softmax_query(struct tile *t, u32 q)
{
	float *s = t->s + q * KERN_CHUNK, *acc = t->acc + q * t->hd;
	float new_max, c;
	vf v, top = vf_set(NEG_INF), sum = { };
	u32 i;

	if (t->a->softcap)
		cap_query(t, q);
	for (i = 0; i < t->see[q].lo; i++)
		s[i] = NEG_INF;
	for (i = t->see[q].hi; i < KERN_CHUNK; i++)
		s[i] = NEG_INF;
	for (i = 0; i < KERN_CHUNK; i += VW)
		top = vf_max(top, vf_load(s + i));
	new_max = max(t->max[q], vf_max_lane(top));
	for (i = 0; i < KERN_CHUNK; i += VW) {
		v = vf_exp(vf_load(s + i) - new_max);
		sum += v;
		vf_store(s + i, v);
	}
	v = vf_exp(vf_set(t->max[q] - new_max));
	c = v[0];
	t->max[q] = new_max;
	t->sum[q] = t->sum[q] * c + vf_sum(sum);
	if (c == 1.0f)		/* the products would change nothing */
		return;
	for (i = 0; i < t->hd; i += VW)
		vf_store(acc + i, vf_load(acc + i) * c);
}

/* nv registers of acc for mr queries += p * v over the run. */
static __inline_always void pv_part(struct tile *t, struct run r, u32 q, u32 d,
				    const u32 mr, const u32 nv, const bool bf16)
{
	const u32 hd = t->hd;
	const float *p = t->s + q * KERN_CHUNK + r.at;
	float *out = t->acc + q * hd + d;
	vf acc[DOT_QUERIES * DV], v[DV], w;
	u32 i, m, n;

#pragma GCC unroll 4
	for (m = 0; m < mr; m++)
#pragma GCC unroll 4
		for (n = 0; n < nv; n++)
			acc[m * nv + n] = vf_load(out + m * hd + n * VW);
	for (i = 0; i < r.n; i++) {
#pragma GCC unroll 4
		for (n = 0; n < nv; n++)
			v[n] = vf_load_as(r.data, (u64)i * hd + d + n * VW,
					  bf16);
#pragma GCC unroll 4
		for (m = 0; m < mr; m++) {
			w = vf_set(p[m * KERN_CHUNK + i]);
#pragma GCC unroll 4
			for (n = 0; n < nv; n++)
				acc[m * nv + n] = vf_fma(w, v[n],
							 acc[m * nv + n]);
		}
	}
#pragma GCC unroll 4
	for (m = 0; m < mr; m++)
#pragma GCC unroll 4
		for (n = 0; n < nv; n++)
			vf_store(out + m * hd + n * VW, acc[m * nv + n]);
}

/* The same keys of the next chunk, as far as any query sees it. */
static __inline_always void next_prefetch(const struct tile *t, u32 start,
					  u32 at, u32 n)
{
	u32 last = t->pos[t->nr - 1];

	if (start + at > last)
		return;
	run_prefetch(run_at(t, start, at, min(at + n, last - start + 1), 0),
		     t->hd * kern_dtype_size(t->a->kv->dtype));
}

/* All dimensions of mr queries over [from, to) of the chunk at @start. */
static __inline_always void pv_keys(struct tile *t, u32 start, struct keys k,
				    u32 q, const u32 mr, const bool bf16)
{
	struct run r;
	u32 d;

	for (; k.lo < k.hi; k.lo += r.n) {
		r = run_at(t, start, k.lo, k.hi, 1);
		if (q == 0)
			next_prefetch(t, start + KERN_CHUNK, k.lo, r.n);
		for (d = 0; d + DV * VW <= t->hd; d += DV * VW)
			pv_part(t, r, q, d, mr, DV, bf16);
		for (; d < t->hd; d += VW)
			pv_part(t, r, q, d, mr, 1, bf16);
	}
}

/* Four queries: what all of them see together, the rest one by one. */
static __inline_always void pv_four(struct tile *t, u32 start, u32 q,
				    const bool bf16)
{
	struct keys all = { .lo = 0, .hi = KERN_CHUNK }, part;
	u32 i;

	for (i = q; i < q + 4; i++) {
		all.lo = max(all.lo, t->see[i].lo);
		all.hi = min(all.hi, t->see[i].hi);
	}
	if (all.lo >= all.hi) {
		for (i = q; i < q + 4; i++)
			pv_keys(t, start, t->see[i], i, 1, bf16);
		return;
	}
	for (i = q; i < q + 4; i++) {
		part = (struct keys){ .lo = t->see[i].lo, .hi = all.lo };
		pv_keys(t, start, part, i, 1, bf16);
	}
	pv_keys(t, start, all, q, 4, bf16);
	for (i = q; i < q + 4; i++) {
		part = (struct keys){ .lo = all.hi, .hi = t->see[i].hi };
		pv_keys(t, start, part, i, 1, bf16);
	}
}

static __inline_always void pv(struct tile *t, u32 start, const bool bf16)
{
	u32 q = 0;

	for (; q + 4 <= t->nr; q += 4)
		pv_four(t, start, q, bf16);
	for (; q < t->nr; q++)
		pv_keys(t, start, t->see[q], q, 1, bf16);
}

static __attribute__((noinline)) void pv_f32(struct tile *t, u32 start)
{
	pv(t, start, false);
}

static __attribute__((noinline)) void pv_bf16(struct tile *t, u32 start)
{
	pv(t, start, true);
}

/* The first position that a query at @pos sees. */
static u32 first_seen(const struct kern_attn *a, u32 pos)
{
	return a->window && pos >= a->window ? pos - a->window + 1 : 0;
}

/* What each query sees of the chunk at @start; returns the union. */
static struct keys chunk_see(struct tile *t, u32 start)
{
	struct keys all = { .lo = KERN_CHUNK, .hi = 0 }, *k;
	u32 q, first;

	for (q = 0; q < t->nr; q++) {
		k = &t->see[q];
		first = first_seen(t->a, t->pos[q]);
		k->lo = first > start ? first - start : 0;
		k->hi = t->pos[q] < start ? 0 :
			min(t->pos[q] - start + 1, (u32)KERN_CHUNK);
		if (k->lo >= k->hi) {
			*k = (struct keys){ 0 };
			continue;
		}
		all.lo = min(all.lo, k->lo);
		all.hi = max(all.hi, k->hi);
	}
	return all;
}

static void tile_chunk(struct tile *t, u32 start)
{
	bool bf16 = t->a->kv->dtype == KERN_BF16;
	u32 row_bytes = t->hd * kern_dtype_size(t->a->kv->dtype);
	struct keys all = chunk_see(t, start);
	struct run r;
	u32 q;

	for (; all.lo < all.hi; all.lo += r.n) {
		r = run_at(t, start, all.lo, all.hi, 0);
		run_prefetch(run_at(t, start, all.lo, all.hi, 1), row_bytes);
		(bf16 ? qk_run_bf16 : qk_run_f32)(t, r);
	}
	for (q = 0; q < t->nr; q++)
		if (t->see[q].hi)
			softmax_query(t, q);
	(bf16 ? pv_bf16 : pv_f32)(t, start);
}

static u64 dense_ld(const struct kern_attn *a, u64 ld)
{
	return ld ? ld : (u64)a->heads * a->kv->head_dim;
}

/* Offset of query @q in a [M][H][hd] array whose rows are @ld apart. */
static u64 query_offset(const struct tile *t, u32 q, u64 ld)
{
	u32 flat = t->first_head + q;

	return (t->first_row + flat / t->group) * ld +
	       ((u64)t->kv_head * t->group + flat % t->group) * t->hd;
}

static void tile_load(struct tile *t, u32 first_pos)
{
	u64 ld = dense_ld(t->a, t->a->q_ld);
	const float *src;
	u32 q, i;

	for (q = 0; q < t->nr; q++) {
		src = t->a->q + query_offset(t, q, ld);
		for (i = 0; i < t->hd; i += VW) {
			vf_store(t->q + q * t->hd + i,
				 vf_load(src + i) * t->a->scale);
			vf_store(t->acc + q * t->hd + i, (vf){ });
		}
		t->pos[q] = first_pos + (t->first_head + q) / t->group;
		t->max[q] = NEG_INF;
		t->sum[q] = 0;
	}
}

static void tile_store(struct tile *t)
{
	u64 ld = dense_ld(t->a, t->a->out_ld);
	float *dst, inv;
	u32 q, i;

	for (q = 0; q < t->nr; q++) {
		dst = t->a->out + query_offset(t, q, ld);
		inv = 1.0f / t->sum[q];
		for (i = 0; i < t->hd; i += VW)
			vf_store(dst + i,
				 vf_load(t->acc + q * t->hd + i) * inv);
	}
}

static u32 seq_tiles(const struct kern_attn_seq *seq, u32 group)
{
	return DIV_ROUND_UP((u64)seq->nr_rows * group, TILE_Q);
}

/* One sequence, one KV head, queries from @from on (row-major, then head). */
static void tile_run(const struct kern_attn *a, const struct kern_attn_seq *seq,
		     u32 kv_head, u64 from)
{
	u32 group = a->heads / a->kv->kv_heads;
	struct tile t;
	u32 start, row = from / group;

	t.a = a;
	t.table = seq->table;
	t.kv_head = kv_head;
	t.hd = a->kv->head_dim;
	t.group = group;
	t.nr = min((u64)TILE_Q, (u64)seq->nr_rows * group - from);
	t.first_row = seq->first_row + row;
	t.first_head = from % group;
	tile_load(&t, seq->start_pos + row);

	start = first_seen(a, t.pos[0]) & ~(KERN_CHUNK - 1);
	for (; start <= t.pos[t.nr - 1]; start += KERN_CHUNK)
		tile_chunk(&t, start);
	tile_store(&t);
}

/* Item @i of the call: sequences, then KV heads, then tiles. */
static void attention_item(void *arg, u32 i)
{
	const struct kern_attn *a = arg;
	const struct kern_attn_seq *seq = a->seqs;
	u32 group = a->heads / a->kv->kv_heads;
	u32 tiles = seq_tiles(seq, group);

	while (i >= tiles * a->kv->kv_heads) {
		i -= tiles * a->kv->kv_heads;
		tiles = seq_tiles(++seq, group);
	}
	tile_run(a, seq, i / tiles, (u64)(i % tiles) * TILE_Q);
}

void KERN_FN(attention)(struct kern_ctx *ctx, const struct kern_attn *a)
{
	u32 group = a->heads / a->kv->kv_heads, items = 0, s;
	const struct kern_attn_seq *seq;
	u64 work = 0;

	for (s = 0; s < a->nr_seqs; s++) {
		seq = &a->seqs[s];
		items += seq_tiles(seq, group) * a->kv->kv_heads;
		work += (u64)seq->nr_rows * (seq->start_pos + seq->nr_rows);
	}
	work *= 2ull * a->heads * a->kv->head_dim;
	if (work < KERN_PARALLEL_MIN)
		ctx = NULL;
	kern_parallel(ctx, items, attention_item, (void *)a);
}
