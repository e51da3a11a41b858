// SPDX-License-Identifier: Apache-2.0
/*
 * v_attn.c - paged, causal, grouped-query attention
 *
 * An item is a tile: up to TILE_Q queries of one sequence.  If all rows of a
 * sequence fit, as in decode, a tile has several KV heads, each with the query
 * heads of its group, since the K of all heads of a block is one piece of
 * memory.  Otherwise it has one KV head, and the query heads of its group for one
 * row, then for the next.  So K and V are read once for all queries of a tile.
 * The tile goes over KV in chunks of KERN_CHUNK absolute positions.  For every
 * query that sees some positions of a chunk:
 *
 *   s[t]  = q . k[t] for the positions it sees, -inf for the others
 *	   (with a soft cap, cap * tanh(q . k[t] / cap))
 *   m'    = max(m, max s)
 *   c     = exp(m - m'), p[t] = exp(s[t] - m')
 *   l     = l * c + sum p, in the order of vec.h over the whole chunk
 *   acc   = acc * c, then + p[t] * v[t] for t in rising order
 *
 * and at the end acc / l.  A sink is the last step, with p = exp(sink - m') and no v.
 * A query that sees no position of a chunk takes no step
 * for it.  So each query's result is a function only of its own position, q, and
 * the K and V it sees.  It does not depend on the other queries of the tile, on
 * the split of rows among calls, nor on the addresses of the blocks.  In fast
 * mode, over bf16 KV, q and p are rounded to bf16 (attn_bf16.h), and the same
 * holds.
 *
 * KV in f16, e4m3 or int8 is widened to f32, times its scales, and then treated
 * like KV in f32.  With few queries it is widened when it is loaded.  With many
 * it is widened chunk by chunk, in a tile of one KV head, so that the widened
 * chunk stays in the cache.  Both ways compute the same numbers.
 *
 * A position that a query may not see never reaches the query's sums: its score
 * is replaced (not scaled), and its V is not multiplied.  Units of KV that no
 * query of the tile sees, and their table entries, are not read.
 */
#include "kernels/cpu/attn_bf16.h"

/* Items for each thread, if the shape allows. */
#define ITEMS_PER_THREAD	2
#define NEG_INF			(-__builtin_inff())

/* Apply the soft cap to one query's scores; those out of view may be garbage. */
static void cap_query(struct tile *t, u32 q)
{
	const float cap = t->a->softcap, inv = 1.0f / cap;
	float *s = t->s + q * KERN_CHUNK;
	u32 i;

	for (i = 0; i < KERN_CHUNK; i += VW)
		vf_store(s + i, vf_tanh(vf_load(s + i) * inv) * cap);
}

/* Store VW weights of the query @q from @i on; bf16 weights reuse its row of s. */
static __inline_always void p_store(struct tile *t, u32 q, u32 i, vf v)
{
#ifdef KERN_FAST
	if (t->bf16) {
		bf16_store(t->p_bf16 + q * 2 * KERN_CHUNK + i, v);
		return;
	}
#endif
	vf_store(t->s + q * KERN_CHUNK + i, v);
}

/* Store VW elements of the query @q from @i on. */
static __inline_always void q_store(struct tile *t, u32 q, u32 i, vf v)
{
#ifdef KERN_FAST
	if (t->bf16) {
		bf16_store(t->q_bf16 + q * t->hd + i, v);
		return;
	}
#endif
	vf_store(t->q + q * t->hd + i, v);
}

/* Give weight 0 to keys that the query may not see, for any score. */
static __inline_always void hide_keys(float *s, struct keys see)
{
	u32 i;

	if (see.lo == 0 && see.hi == KERN_CHUNK)
		return;
	for (i = 0; i < see.lo; i++)
		s[i] = NEG_INF;
	for (i = see.hi; i < KERN_CHUNK; i++)
		s[i] = NEG_INF;
}

/* Scale the sums of earlier chunks down to a larger maximum. */
static __attribute__((noinline)) void rescale_query(struct tile *t, u32 q,
						    float new_max)
{
	float *acc = t->acc + q * t->hd, c;
	u32 i;

	c = vf_exp(vf_set(t->max[q] - new_max))[0];
	t->max[q] = new_max;
	t->sum[q] *= c;
	for (i = 0; row_whole(i, t->hd, HALF_ENDS); i += VW)
		vf_store(acc + i, vf_load(acc + i) * c);
	if (HALF_ENDS && i < t->hd)
		vf_store_part(acc + i, vf_load(acc + i) * c, VW / 2);
}

/* The online softmax of one query over one chunk; leaves p in place of s. */
static void softmax_query(struct tile *t, u32 q, struct keys see)
{
	float *s = t->s + q * KERN_CHUNK, new_max;
	vf v, top = vf_set(NEG_INF), sum = { };
	u32 i;

	if (t->a->softcap)
		cap_query(t, q);
	hide_keys(s, see);
	for (i = 0; i < KERN_CHUNK; i += VW)
		top = vf_max(top, vf_load(s + i));
	new_max = max(t->max[q], vf_max_lane(top));
	for (i = 0; i < KERN_CHUNK; i += VW) {
		v = vf_exp_down(vf_load(s + i) - new_max);
		sum += v;
		p_store(t, q, i, v);
	}
	if (new_max != t->max[q])
		rescale_query(t, q, new_max);
	t->sum[q] += vf_sum(sum);
}

/* The first position that a query at @pos sees. */
static u32 first_seen(const struct kern_attn *a, u32 pos)
{
	return a->window && pos >= a->window ? pos - a->window + 1 : 0;
}

/* Find the keys of the chunk at @start that each query sees. */
static void chunk_see(struct tile *t, u32 start)
{
	u32 i, first;
	struct keys *k;

	t->same = true;
	for (i = 0; i < t->nr; i++) {
		k = &t->see[i];
		first = first_seen(t->a, t->pos[i]);
		k->lo = first > start ? first - start : 0;
		k->hi = t->pos[i] < start ? 0 :
			min(t->pos[i] - start + 1, (u32)KERN_CHUNK);
		if (k->lo >= k->hi)
			*k = (struct keys){ 0 };
		if (k->lo != t->see[0].lo || k->hi != t->see[0].hi)
			t->same = false;
	}
}

/* Look up the units of the chunk at @start that some query sees. */
static void chunk_find(const struct tile *t, struct chunk *c, u32 start)
{
	const u32 first = first_seen(t->a, t->pos[0]), last = t->pos[t->nr - 1];
	const struct kern_kv *kv = t->a->kv;
	u32 u, at, head, pos, block, token;

	for (u = 0; u < tile_units(t); u++) {
		head = unit_place(t, u, &at);
		pos = start + at;
		c->k[u] = NULL;
		if (pos > last || pos + UNIT_KEYS <= first)
			continue;
		block = pos / kv->block_tokens;
		token = pos - block * kv->block_tokens;
		c->k[u] = kern_kv_addr(kv, t->table[block], t->a->layer, 0,
				       t->kv_head + head, token);
		c->by[u] = kern_kv_scale_addr(kv, t->table[block], t->a->layer,
					      0, t->kv_head + head, token);
		if (!kern_dtype_scaled(kv->dtype))
			continue;
		__builtin_prefetch(c->by[u]);
		__builtin_prefetch(c->by[u] + t->to_by);
	}
}

static void tile_chunk(struct tile *t, u32 start)
{
	struct chunk *done = t->now;
	u32 i, h;

	chunk_see(t, start);
	chunk_find(t, t->next, start + KERN_CHUNK);
	if (t->wide)
		KERN_FN(attn_widen)(t);
	KERN_FN(attn_scores)(t);
	for (h = 0; h < t->heads; h++)
		for (i = 0; i < t->nr; i++)
			if (t->see[i].hi)
				softmax_query(t, h * t->nr + i, t->see[i]);
	KERN_FN(attn_mix)(t);
	t->now = t->next;
	t->next = done;
}

static u64 dense_ld(const struct kern_attn *a, u64 ld)
{
	return ld ? ld : (u64)a->heads * a->kv->head_dim;
}

/* Offset of the tile's query @q in [M][H][hd], rows @ld apart. */
static u64 query_offset(const struct tile *t, u32 q, u64 ld)
{
	u32 head = t->kv_head + q / t->nr, flat = t->first_head + q % t->nr;

	return (t->first_row + flat / t->group) * ld +
	       ((u64)head * t->group + flat % t->group) * t->hd;
}

/* Is element @i the first of a half register, a head's last elements? */
static __inline_always bool is_half(const struct tile *t, u32 i)
{
	return HALF_ENDS && i + VW > t->hd;
}

static void tile_load(struct tile *t, u32 first_pos)
{
	u64 ld = dense_ld(t->a, t->a->q_ld);
	const float *src;
	u32 q, i;
	vf v;

	for (i = 0; i < t->nr; i++)
		t->pos[i] = first_pos + (t->first_head + i) / t->group;
	for (q = 0; q < t->heads * t->nr; q++) {
		src = t->a->q + query_offset(t, q, ld);
		for (i = 0; i < t->hd; i += VW) {
			v = is_half(t, i) ?
			    vf_load_part(src, i, VW / 2, KERN_F32) :
			    vf_load(src + i);
			q_store(t, q, i, v * t->a->scale);
			vf_store(t->acc + q * t->hd + i, (vf){ });
		}
		t->max[q] = NEG_INF;
		t->sum[q] = 0;
	}
}

static float exp_down(float x)
{
	return vf_exp_down(vf_set(x))[0];
}

/* The factor on the sums of the query @q. */
static float last_scale(const struct tile *t, u32 q)
{
	const u32 head = (t->kv_head + q / t->nr) * t->group +
			 (t->first_head + q % t->nr) % t->group;
	float sink, c;

	if (!t->a->sinks)
		return 1.0f / t->sum[q];
	sink = t->a->sinks[head];
	if (!(sink > t->max[q]))
		return 1.0f / (t->sum[q] + exp_down(sink - t->max[q]));
	c = exp_down(t->max[q] - sink);
	return c / (t->sum[q] * c + 1.0f);
}

static void tile_store(struct tile *t)
{
	u64 ld = dense_ld(t->a, t->a->out_ld);
	float *dst, inv;
	u32 q, i;
	vf v;

	for (q = 0; q < t->heads * t->nr; q++) {
		dst = t->a->out + query_offset(t, q, ld);
		inv = last_scale(t, q);
		for (i = 0; i < t->hd; i += VW) {
			v = vf_load(t->acc + q * t->hd + i) * inv;
			if (is_half(t, i))
				vf_store_part(dst + i, v, VW / 2);
			else
				vf_store(dst + i, v);
		}
	}
}

/* A call, and its split into tiles. */
struct job {
	const struct kern_attn	*a;
	u32			group;
	u32			heads;		/* KV heads of a tile, at most */
};

/* Is the sequence's KV widened before it is used? */
static bool seq_is_wide(const struct job *j, const struct kern_attn_seq *seq)
{
	return j->a->kv->dtype > KERN_BF16 &&
	       (u64)seq->nr_rows * j->group > WIDE_Q;
}

/* KV heads of a tile of @seq: several only if all of its rows fit. */
static u32 seq_heads(const struct job *j, const struct kern_attn_seq *seq)
{
	u64 nr = (u64)seq->nr_rows * j->group;

	return nr > TILE_Q || seq_is_wide(j, seq) ? 1 : min((u32)(TILE_Q / nr), j->heads);
}

static u32 seq_tiles(const struct job *j, const struct kern_attn_seq *seq)
{
	return DIV_ROUND_UP((u64)seq->nr_rows * j->group, TILE_Q);
}

static u32 seq_items(const struct job *j, const struct kern_attn_seq *seq)
{
	return seq_tiles(j, seq) *
	       DIV_ROUND_UP(j->a->kv->kv_heads, seq_heads(j, seq));
}

/* Set the strides of K and V from the address of a unit. */
static void tile_strides(struct tile *t, const struct kern_kv *kv)
{
	t->hd = kv->head_dim;
	t->type = t->wide ? KERN_F32 : kv->dtype;
	t->bf16 = t->type == KERN_BF16;
	t->run_shift = __builtin_ctz(kv->block_tokens | KERN_CHUNK);
	t->row = t->hd * kern_dtype_size(t->type);
	t->to_by = (u64)kv->kv_heads * kv->block_tokens;
	if (t->wide) {
		t->to_v = (u64)UNIT_KEYS * t->row;
		t->ahead = 0;
		return;
	}
	t->to_v = t->to_by * t->row;
	t->ahead = DIV_ROUND_UP(AHEAD_BYTES, UNIT_KEYS * t->row);
	t->ahead = min(t->ahead, tile_units(t));
}

/* Run a tile of one sequence: t->heads KV heads, queries from @from on. */
static void tile_run(struct tile *t, const struct kern_attn_seq *seq, u64 from)
{
	u32 start, row = from / t->group;

	t->table = seq->table;
	tile_strides(t, t->a->kv);
	t->nr = min((u64)TILE_Q, (u64)seq->nr_rows * t->group - from);
	t->first_row = seq->first_row + row;
	t->first_head = from % t->group;
	tile_load(t, seq->start_pos + row);

	start = first_seen(t->a, t->pos[0]) & ~(KERN_CHUNK - 1);
	t->now = &t->chunks[0];
	t->next = &t->chunks[1];
	chunk_find(t, t->now, start);
	for (; start <= t->pos[t->nr - 1]; start += KERN_CHUNK)
		tile_chunk(t, start);
	tile_store(t);
}

/* Run a tile of one KV head with widened KV. */
static __attribute__((noinline)) void
tile_run_wide(struct tile *t, const struct kern_attn_seq *seq, u64 from)
{
	float wide[WIDE_FLOATS] __attribute__((aligned(64)));

	t->wide = wide;
	tile_run(t, seq, from);
}

/* Item @i of the call: sequences, then KV heads, then tiles. */
static void attention_item(void *arg, u32 i)
{
	const struct job *j = arg;
	const struct kern_attn_seq *seq = j->a->seqs;
	u32 tiles, heads;
	struct tile t;

	while (i >= seq_items(j, seq))
		i -= seq_items(j, seq++);
	tiles = seq_tiles(j, seq);
	heads = seq_heads(j, seq);
	t.a = j->a;
	t.wide = NULL;
	t.group = j->group;
	t.kv_head = i / tiles * heads;
	t.heads = min(heads, j->a->kv->kv_heads - t.kv_head);
	if (seq_is_wide(j, seq))
		tile_run_wide(&t, seq, (u64)(i % tiles) * TILE_Q);
	else
		tile_run(&t, seq, (u64)(i % tiles) * TILE_Q);
}

/*
 * KV heads of a tile: as many as leave each thread some items, so that all
 * threads end at about the same time.
 */
static u32 heads_of_tile(struct kern_ctx *ctx, const struct kern_attn *a)
{
	u64 all = (u64)a->nr_seqs * a->kv->kv_heads;

	if (!ctx || kern_ctx_nr_threads(ctx) == 1)
		return a->kv->kv_heads;
	all /= ITEMS_PER_THREAD * kern_ctx_nr_threads(ctx);
	return max(all, (u64)1);
}

void KERN_FN(attention)(struct kern_ctx *ctx, const struct kern_attn *a)
{
	struct job j = { .a = a, .group = a->heads / a->kv->kv_heads };
	const struct kern_attn_seq *seq;
	u32 items = 0, s;
	u64 work = 0;

	for (s = 0; s < a->nr_seqs; s++) {
		seq = &a->seqs[s];
		work += (u64)seq->nr_rows * (seq->start_pos + seq->nr_rows);
	}
	work *= 2ull * a->heads * a->kv->head_dim;
	if (work < KERN_PARALLEL_MIN)
		ctx = NULL;
	j.heads = heads_of_tile(ctx, a);
	for (s = 0; s < a->nr_seqs; s++)
		items += seq_items(&j, &a->seqs[s]);
	kern_parallel(ctx, items, attention_item, &j);
}
