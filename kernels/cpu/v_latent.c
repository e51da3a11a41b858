// SPDX-License-Identifier: Apache-2.0
/*
 * v_latent.c - attention over paged latent vectors
 *
 * All query heads read the same vector of a token, so an item is a tile of up to
 * TILE_L queries of one sequence: the heads of one row, then those of the next.
 * It goes over KV in chunks of KERN_CHUNK absolute positions.  A chunk is widened
 * to f32, times its scales, once for all queries of the tile, and stays in the
 * cache.  Then each query takes the steps of v_attn.c:
 *
 *   s[t]  = q . k[t] for the positions it sees, in the order of vec.h, -inf for
 *	   the others
 *   m'    = max(m, max s)
 *   c     = exp(m - m'), p[t] = exp(s[t] - m')
 *   l     = l * c + sum p
 *   acc   = acc * c, then + p[t] * k[t], its first rank numbers, for t in rising
 *	   order
 *
 * and at the end acc / l.  A position that a query may not see never reaches its
 * sums: the score is replaced, and the vector is not multiplied.  Units of KV that
 * no query of the tile sees, and their table entries, are not read.  So a query's
 * bits depend only on its own position, q, and what it sees: not on the tile, which
 * is smaller where threads need more of them, nor on blocks and batches.  In fast
 * mode, over bf16 KV, nothing is widened, and q and p are rounded to bf16
 * (v_latent_bf16.c).
 */
#include "kernels/cpu/dot.h"
#include "kernels/cpu/latent.h"

/* Fewest queries of a tile, if threads need more tiles. */
#define TILE_L_MIN	4u
/* Items for each thread, if the shape allows. */
#define ITEMS_PER_THREAD	2
#define NEG_INF		(-__builtin_inff())
/* Registers of a vector that are mixed at a time. */
#define MIX_REGS	(VW / 4)

/* Widen @n vectors from @p on, with the scales from @by on. */
static __inline_always void vectors_widen(float *to, const u8 *p,
					  const float *by, u32 n, u32 hd,
					  const enum kern_dtype type)
{
	u32 t, i;

	for (t = 0; t < n; t++)
		for (i = 0; i < hd; i += VW, p += VW * kern_dtype_size(type))
			vf_store(to + (u64)t * hd + i, kv_load(p, by + t, type));
}

#define WIDEN(name, type)						\
static __attribute__((noinline)) void					\
widen_##name(float *to, const u8 *p, const float *by, u32 n, u32 hd)	\
{									\
	vectors_widen(to, p, by, n, hd, type);				\
}
KV_TYPES(WIDEN)

/* Find and widen the units of the chunk at @start that some query sees. */
static void chunk_load(struct latent *l, u32 start)
{
	static void (* const widen[])(float *to, const u8 *p, const float *by,
				      u32 n, u32 hd) = {
#define x(name, type)	[type] = widen_##name,
		KV_TYPES(x)
#undef x
	};
	const struct kern_kv *kv = l->a->kv;
	const u32 last = l->pos[l->nr - 1];
	u32 at, token, entry;
	const u8 *k;

	for (at = 0; at < KERN_CHUNK && start + at <= last; at += UNIT_KEYS) {
		entry = l->table[(start + at) / kv->block_tokens];
		token = (start + at) % kv->block_tokens;
		k = kern_kv_addr(kv, entry, l->a->layer, 0, 0, token);
		l->unit[at / UNIT_KEYS] = k;
		if (latent_rounds(l))
			continue;
		widen[kv->dtype](l->wide + (u64)at * l->hd, k,
				 kern_kv_scale_addr(kv, entry, l->a->layer, 0,
						    0, token),
				 UNIT_KEYS, l->hd);
	}
}

/* Scores of mr queries from @q on with the first @keys keys, in whole units. */
static __inline_always void score_step(struct latent *l, u32 q, u32 keys,
				       const u32 mr)
{
	const u32 nr = VW / mr;
	float f[VW];
	u32 i, m;

	for (i = 0; i < keys; i += nr) {
		vf_store(f, dot_tile(mr, nr, l->q + (u64)q * l->hd, l->hd,
				     l->wide + (u64)i * l->hd, l->hd, KERN_F32,
				     l->hd, NULL));
#pragma GCC unroll 4
		for (m = 0; m < mr; m++)
			memcpy(l->s + (q + m) * KERN_CHUNK + i, f + m * nr,
			       nr * sizeof(*f));
	}
}

static void chunk_scores(struct latent *l, u32 keys)
{
	u32 q = 0;

#ifdef KERN_FAST
	if (latent_rounds(l)) {
		KERN_FN(latent_scores)(l, keys);
		return;
	}
#endif
	for (; q + STEP_Q <= l->nr; q += STEP_Q)
		score_step(l, q, keys, STEP_Q);
	for (; q < l->nr; q++)
		score_step(l, q, keys, 1);
}

/* Scale the sums of earlier chunks down to a larger maximum. */
static void query_rescale(struct latent *l, u32 q, float new_max)
{
	float *acc = l->acc + (u64)q * l->rank, c;
	u32 i;

	c = vf_exp(vf_set(l->max[q] - new_max))[0];
	l->max[q] = new_max;
	l->sum[q] *= c;
	for (i = 0; i < l->rank; i += VW)
		vf_store(acc + i, vf_load(acc + i) * c);
}

/* Store VW weights of the query @q from @i on. */
static __inline_always void p_store(struct latent *l, u32 q, u32 i, vf v)
{
#ifdef KERN_FAST
	if (latent_rounds(l)) {
		bf16_store(l->p_bf16 + q * KERN_CHUNK + i, v);
		return;
	}
#endif
	vf_store(l->s + q * KERN_CHUNK + i, v);
}

/* Store VW elements of the query @q from @i on. */
static __inline_always void q_store(struct latent *l, u32 q, u32 i, vf v)
{
#ifdef KERN_FAST
	if (latent_rounds(l)) {
		bf16_store(l->q_bf16 + (u64)q * l->hd + i, v);
		return;
	}
#endif
	vf_store(l->q + (u64)q * l->hd + i, v);
}

/* The online softmax of one query over one chunk; leaves p, in place of s or beside. */
static void query_softmax(struct latent *l, u32 q)
{
	float *s = l->s + q * KERN_CHUNK, new_max;
	vf v, top = vf_set(NEG_INF), sum = { };
	u32 i;

	for (i = l->see[q]; i < KERN_CHUNK; i++)
		s[i] = NEG_INF;
	for (i = 0; i < KERN_CHUNK; i += VW)
		top = vf_max(top, vf_load(s + i));
	new_max = max(l->max[q], vf_max_lane(top));
	for (i = 0; i < KERN_CHUNK; i += VW) {
		v = vf_exp_down(vf_load(s + i) - new_max);
		sum += v;
		p_store(l, q, i, v);
	}
	if (new_max != l->max[q])
		query_rescale(l, q, new_max);
	l->sum[q] += vf_sum(sum);
}

/* acc += p * k over the keys @from up to @to, for nv registers and mr queries. */
static __inline_always void mix_part(struct latent *l, u32 q, u32 d, u32 from,
				     u32 to, const u32 mr, const u32 nv)
{
	const float *p = l->s + q * KERN_CHUNK;
	float *out = l->acc + (u64)q * l->rank + d;
	vf acc[STEP_Q * MIX_REGS], k[MIX_REGS], w;
	u32 m, j, t;

#pragma GCC unroll 4
	for (m = 0; m < mr; m++)
#pragma GCC unroll 4
		for (j = 0; j < nv; j++)
			acc[m * nv + j] = vf_load(out + (u64)m * l->rank +
						  j * VW);
	for (t = from; t < to; t++) {
#pragma GCC unroll 4
		for (j = 0; j < nv; j++)
			k[j] = vf_load(l->wide + (u64)t * l->hd + d + j * VW);
#pragma GCC unroll 4
		for (m = 0; m < mr; m++) {
			w = vf_set(p[m * KERN_CHUNK + t]);
#pragma GCC unroll 4
			for (j = 0; j < nv; j++)
				acc[m * nv + j] = vf_fma(w, k[j],
							 acc[m * nv + j]);
		}
	}
#pragma GCC unroll 4
	for (m = 0; m < mr; m++)
#pragma GCC unroll 4
		for (j = 0; j < nv; j++)
			vf_store(out + (u64)m * l->rank + j * VW,
				 acc[m * nv + j]);
}

static __inline_always void mix_keys(struct latent *l, u32 q, u32 from, u32 to,
				     const u32 mr)
{
	u32 d = 0;

	for (; d + MIX_REGS * VW <= l->rank; d += MIX_REGS * VW)
		mix_part(l, q, d, from, to, mr, MIX_REGS);
	for (; d < l->rank; d += VW)
		mix_part(l, q, d, from, to, mr, 1);
}

/* Queries see more keys from row to row: first the keys that all of a step see. */
static void chunk_mix(struct latent *l)
{
	u32 q = 0, m, all;

#ifdef KERN_FAST
	if (latent_rounds(l)) {
		KERN_FN(latent_mix)(l);
		return;
	}
#endif
	for (; q + STEP_Q <= l->nr; q += STEP_Q) {
		all = l->see[q];
		mix_keys(l, q, 0, all, STEP_Q);
		for (m = 1; m < STEP_Q; m++)
			if (l->see[q + m] > all)
				mix_keys(l, q + m, all, l->see[q + m], 1);
	}
	for (; q < l->nr; q++)
		mix_keys(l, q, 0, l->see[q], 1);
}

static void tile_chunk(struct latent *l, u32 start)
{
	u32 q;

	for (q = 0; q < l->nr; q++)
		l->see[q] = l->pos[q] < start ? 0 :
			    min(l->pos[q] - start + 1, (u32)KERN_CHUNK);
	chunk_load(l, start);
	chunk_scores(l, ALIGN_UP(l->see[l->nr - 1], UNIT_KEYS));
	for (q = 0; q < l->nr; q++)
		if (l->see[q])
			query_softmax(l, q);
	chunk_mix(l);
}

/* Offset of query @q in [M][H][@dims], rows @ld apart. */
static u64 query_offset(const struct latent *l, u32 q, u64 ld, u32 dims)
{
	const u32 flat = l->first_head + q, heads = l->a->heads;

	ld = ld ? ld : (u64)heads * dims;
	return (l->first_row + flat / heads) * ld + (u64)(flat % heads) * dims;
}

static void tile_load(struct latent *l, u32 first_pos)
{
	const float *src;
	u32 q, i;

	for (q = 0; q < l->nr; q++) {
		l->pos[q] = first_pos + (l->first_head + q) / l->a->heads;
		src = l->a->q + query_offset(l, q, l->a->q_ld, l->hd);
		for (i = 0; i < l->hd; i += VW)
			q_store(l, q, i, vf_load(src + i) * l->a->scale);
		for (i = 0; i < l->rank; i += VW)
			vf_store(l->acc + (u64)q * l->rank + i, (vf){ });
		l->max[q] = NEG_INF;
		l->sum[q] = 0;
	}
}

static void tile_store(const struct latent *l)
{
	float *dst, inv;
	u32 q, i;

	for (q = 0; q < l->nr; q++) {
		dst = l->a->out + query_offset(l, q, l->a->out_ld, l->rank);
		inv = 1.0f / l->sum[q];
		for (i = 0; i < l->rank; i += VW)
			vf_store(dst + i, vf_load(l->acc + (u64)q * l->rank + i) *
					  inv);
	}
}

/* A call, and its split into tiles of up to @tile queries. */
struct job {
	const struct kern_attn	*a;
	u32			tile;
};

static u32 seq_items(const struct job *j, const struct kern_attn_seq *seq)
{
	return DIV_ROUND_UP((u64)seq->nr_rows * j->a->heads, j->tile);
}

static void latent_item(void *arg, u32 i)
{
	const struct job *j = arg;
	const struct kern_attn_seq *seq = j->a->seqs;
	struct latent l;
	u32 start, row;
	u64 from;

	while (i >= seq_items(j, seq))
		i -= seq_items(j, seq++);
	from = (u64)i * j->tile;
	row = from / j->a->heads;
	l.a = j->a;
	l.table = seq->table;
	l.hd = j->a->kv->head_dim;
	l.rank = j->a->kv->rank;
	l.bf16 = j->a->kv->dtype == KERN_BF16;
	l.nr = min((u64)j->tile, (u64)seq->nr_rows * j->a->heads - from);
	l.first_row = seq->first_row + row;
	l.first_head = from % j->a->heads;
	tile_load(&l, seq->start_pos + row);
	for (start = 0; start <= l.pos[l.nr - 1]; start += KERN_CHUNK)
		tile_chunk(&l, start);
	tile_store(&l);
}

static u32 job_items(const struct job *j)
{
	u32 items = 0, s;

	for (s = 0; s < j->a->nr_seqs; s++)
		items += seq_items(j, &j->a->seqs[s]);
	return items;
}

void KERN_FN(attn_latent)(struct kern_ctx *ctx, const struct kern_attn *a)
{
	struct job j = { .a = a, .tile = TILE_L };
	const struct kern_attn_seq *seq;
	u64 work = 0, want = 0;
	u32 s;

	for (s = 0; s < a->nr_seqs; s++) {
		seq = &a->seqs[s];
		work += (u64)seq->nr_rows * (seq->start_pos + seq->nr_rows);
	}
	work *= (u64)a->heads * (a->kv->head_dim + a->kv->rank);
	if (work < KERN_PARALLEL_MIN)
		ctx = NULL;
	if (ctx && kern_ctx_nr_threads(ctx) > 1)
		want = ITEMS_PER_THREAD * kern_ctx_nr_threads(ctx);
	while (j.tile > TILE_L_MIN && job_items(&j) < want)
		j.tile /= 2;
	kern_parallel(ctx, job_items(&j), latent_item, &j);
}
