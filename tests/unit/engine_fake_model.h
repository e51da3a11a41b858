/* SPDX-License-Identifier: Apache-2.0 */
/*
 * engine_fake_model.h - a model with logits that are a hash of all its input
 *
 * Defines the functions of model.h that the engine uses.  The "KV" of a token
 * is a hash of the token and its position, written through the block table into
 * every layer's K and V; the logits are a hash over the KV of all positions,
 * read back through the table.  So with one wrong table entry, one copy that is
 * missing or late, or one block that is reused too early, the tokens differ
 * from fm_oracle(), which computes them from a plain array.
 *
 * With info.draws the model draws, too, like draw_oracle.h; rows that do not
 * travel are NaN.
 */
#ifndef ENGINE_FAKE_MODEL_H
#define ENGINE_FAKE_MODEL_H

#include "runtime/model/model.h"

#include "tests/unit/draw_oracle.h"
#include "tests/unit/engine_fake_ring.h"

#define FM_VOCAB	61u
#define FM_CONTEXT	96u

/* Layer groups; either group may be the one with more layers, and fewer tokens in a block. */
enum fm_groups {
	FM_ONE,
	FM_MORE_LOCAL,
	FM_MORE_FULL,
	FM_NR_GROUPS,
};

static const struct model_group fm_groups[FM_NR_GROUPS][FK_GROUPS] = {
	[FM_ONE]	= { { FK_LAYERS, 0 } },
	[FM_MORE_LOCAL]	= { { 1, 0 }, { 2, 11 } },
	[FM_MORE_FULL]	= { { 2, 0 }, { 1, 11 } },
};

static const struct model_group *fm_group;
static u32 fm_nr_groups;

struct model {
	struct model_info	info;
	u32			forwards;
	u32			rows;
	u32			max_rows_seen;
	u32			max_logits_seen;
	int			fail;		/* result of the next forward */
	const char		*failure;	/* permanent failure of the device */
	u32			last_batch;
	u32			drawn;
};

static u64 fm_mix(u64 x)
{
	x ^= x >> 30;
	x *= 0xbf58476d1ce4e5b9ull;
	x ^= x >> 27;
	x *= 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

static u64 fm_value(u32 token, u32 pos, u32 layer, u32 v)
{
	return fm_mix(((u64)token << 32 | pos) + layer * 977 + v * 31 + 1);
}

static u64 *fm_at(const struct model_kv *kv, u32 g, const u32 *table, u32 pos,
		  u32 layer, u32 v)
{
	const u32 bt = kv->block_tokens[g];
	u8 *block = (u8 *)kv->base + table[pos / bt] * kv->unit +
		layer * kv->layer_stride[g];

	ck_assert_uint_ne(table[pos / bt], KVMM_NO_INDEX);
	return (u64 *)block + v * bt + pos % bt;
}

/* The first position that a token at @pos sees in a group. */
static u32 fm_first(const struct model_group *g, u32 pos)
{
	return g->window && pos >= g->window ? pos + 1 - g->window : 0;
}

static void fm_logits(u64 h, float *logits)
{
	u32 i;

	for (i = 0; i < FM_VOCAB; i++)
		logits[i] = (float)(fm_mix(h + i) >> 40) / (1 << 22) - 2;
}

/* The hash of all that a token at @pos sees. */
static u64 fm_read(const struct model *m, const struct model_kv *kv,
		   const struct model_seq_in *in, u32 pos)
{
	u32 g, at, layer, v;
	u64 h = 0;

	for (g = 0; g < m->info.nr_groups; g++)
		for (at = fm_first(&m->info.group[g], pos); at <= pos; at++)
			for (layer = 0; layer < m->info.group[g].layers; layer++)
				for (v = 0; v < 2; v++)
					h = fm_mix(h ^ *fm_at(kv, g, in->table[g],
							      at, layer, v));
	return h;
}

static void fm_run_seq(struct model *m, const struct model_kv *kv,
		       const struct model_seq_in *in, float *logits)
{
	const u32 end = in->start + in->nr_tokens;
	u32 pos, g, layer, v;

	for (pos = in->start; pos < end; pos++)
		for (g = 0; g < m->info.nr_groups; g++)
			for (layer = 0; layer < m->info.group[g].layers; layer++)
				for (v = 0; v < 2; v++)
					*fm_at(kv, g, in->table[g], pos, layer, v) =
						fm_value(in->tokens[pos - in->start],
							 pos, 16 * g + layer, v);
	ck_assert_uint_le(in->want_logits, in->nr_tokens);
	for (pos = end - in->want_logits; pos < end; pos++) {
		fm_logits(fm_read(m, kv, in, pos), logits);
		logits += FM_VOCAB;
	}
}

/* Logits of the model after @nr tokens, without blocks. */
static void fm_oracle(const u32 *ids, u32 nr, float *logits)
{
	u32 g, pos, layer, v;
	u64 h = 0;

	for (g = 0; g < fm_nr_groups; g++)
		for (pos = fm_first(&fm_group[g], nr - 1); pos < nr; pos++)
			for (layer = 0; layer < fm_group[g].layers; layer++)
				for (v = 0; v < 2; v++)
					h = fm_mix(h ^ fm_value(ids[pos], pos,
								16 * g + layer, v));
	fm_logits(h, logits);
}

const struct model_info *model_info(const struct model *m)
{
	return &m->info;
}

const char *model_failure(struct model *m)
{
	return m->failure;
}

void model_identity(const struct model *m,
		    void (*add)(void *arg, const char *tag, const void *data,
				size_t len),
		    void *arg)
{
	add(arg, "fake", "model", 5);
}

static void fm_draws(struct model *m, const struct model_draws *d,
		     u32 wanted, float *logits)
{
	u32 i, k;

	ck_assert(m->info.draws && d->nr);
	for (i = 0; i < d->nr; i++) {
		const struct kern_draw *one = &d->draws[i];

		ck_assert_uint_lt(one->row, wanted);
		ck_assert(!i || one->row >= one[-1].row);
		ck_assert(!d->travels[one->row]);
		ck_assert_uint_le(one->nr_top, d->top_stride);
		draw_oracle(one, logits + one->row * FM_VOCAB, FM_VOCAB,
			    &d->drawn[i], d->top + (size_t)i * d->top_stride);
	}
	for (i = 0; i < wanted; i++)
		for (k = 0; k < FM_VOCAB && !d->travels[i]; k++)
			logits[i * FM_VOCAB + k] = NAN;
	m->drawn += d->nr;
}

void *model_host_alloc(struct model *m, size_t bytes)
{
	return m->info.draws ? malloc(bytes) : NULL;
}

void model_host_free(struct model *m, void *p)
{
	free(p);
}

int model_forward_draw(struct model *m, const struct model_kv *kv,
		       const struct model_seq_in *seqs, u32 nr_seqs,
		       const struct model_draws *draws, float *logits)
{
	float *const all = logits;
	u32 i, rows = 0, wanted = 0;
	int err = m->fail;

	m->fail = 0;
	if (err)
		return err;
	for (i = 0; i < nr_seqs; i++)
		rows += seqs[i].nr_tokens;
	ck_assert_uint_ge(nr_seqs, 1);
	ck_assert_uint_le(rows, m->info.max_rows);
	ck_assert_uint_le(nr_seqs, m->info.max_seqs);
	if (fk.salvage && (m->forwards == 2 || fk_chance(fk.salvage)))
		fk_salvage();
	for (i = 0; i < nr_seqs; i++) {
		fm_run_seq(m, kv, &seqs[i], logits);
		logits += seqs[i].want_logits * FM_VOCAB;
		wanted += seqs[i].want_logits;
	}
	if (draws)
		fm_draws(m, draws, wanted, all);
	m->forwards++;
	m->rows += rows;
	m->max_rows_seen = max(m->max_rows_seen, rows);
	m->max_logits_seen = max(m->max_logits_seen, wanted);
	m->last_batch = nr_seqs;
	/* Was the next step submitted before this forward? */
	fk.open_at_forward = fk.nr_steps + (fk.submitted - fk.executed);
	return 0;
}

static void fm_copied(u32 g, u32 from, u32 to, u32 tokens)
{
	u32 i, n;

	for (i = 0; i < fk.nr_steps; i++) {
		for (n = 0; n < fk.st[i].nr; n++) {
			struct fk_step_entry *e = &fk.st[i].e[n];

			if (e->src[g] == from && e->dst[g] == to &&
			    !e->copied[g]) {
				ck_assert_uint_eq(e->tokens[g], tokens);
				e->copied[g] = true;
				return;
			}
		}
	}
	ck_abort_msg("a copy that nobody asked for");
}

void model_copy_blocks(struct model *m, const struct model_kv *kv,
		       u32 group,
		       const u32 *from, const u32 *to, const u32 *tokens,
		       u32 nr)
{
	u32 i, layer, v, t;

	for (i = 0; i < nr; i++) {
		for (layer = 0; layer < m->info.group[group].layers; layer++)
			for (v = 0; v < 2; v++)
				for (t = 0; t < tokens[i]; t++)
					*fm_at(kv, group, &to[i], t, layer, v) =
						*fm_at(kv, group, &from[i], t,
						       layer, v);
		fm_copied(group, from[i] / FK_PER_BLOCK, to[i] / FK_PER_BLOCK,
			  tokens[i]);
	}
}

static void fm_use_groups(struct model *m, enum fm_groups groups)
{
	u32 g;

	fm_group = fm_groups[groups];
	fm_nr_groups = groups == FM_ONE ? 1 : FK_GROUPS;
	m->info.nr_layers = 0;
	m->info.nr_groups = fm_nr_groups;
	for (g = 0; g < fm_nr_groups; g++) {
		m->info.group[g] = fm_group[g];
		m->info.nr_layers += fm_group[g].layers;
	}
}

static void fm_init(struct model *m, u32 rows)
{
	memset(m, 0, sizeof(*m));
	m->info.dir = "/tmp";
	m->info.nr_vocab = FM_VOCAB;
	fm_use_groups(m, FM_ONE);
	m->info.nr_kv_heads = 1;
	m->info.k_bytes = 8;
	m->info.v_bytes = 8;
	m->info.max_position = FM_CONTEXT;
	m->info.max_len = FM_CONTEXT;
	m->info.max_rows = rows;
	m->info.max_seqs = FK_BATCH;
}

#endif /* ENGINE_FAKE_MODEL_H */
