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

static u64 *fm_at(const struct model_kv *kv, const u32 *table, u32 pos,
		  u32 layer, u32 v)
{
	u8 *block = (u8 *)kv->base + table[pos / kv->block_tokens[0]] * kv->unit +
		layer * kv->layer_stride[0];

	return (u64 *)block + v * kv->block_tokens[0] + pos % kv->block_tokens[0];
}

static void fm_logits(u64 h, float *logits)
{
	u32 i;

	for (i = 0; i < FM_VOCAB; i++)
		logits[i] = (float)(fm_mix(h + i) >> 40) / (1 << 22) - 2;
}

static void fm_run_seq(struct model *m, const struct model_kv *kv,
		       const struct model_seq_in *in, float *logits)
{
	const u32 end = in->start + in->nr_tokens;
	u32 pos, layer, v;
	u64 h = 0;

	for (pos = in->start; pos < end; pos++)
		for (layer = 0; layer < FK_LAYERS; layer++)
			for (v = 0; v < 2; v++)
				*fm_at(kv, in->table[0], pos, layer, v) =
					fm_value(in->tokens[pos - in->start],
						 pos, layer, v);
	ck_assert_uint_le(in->want_logits, in->nr_tokens);
	for (pos = 0; in->want_logits && pos < end; pos++) {
		for (layer = 0; layer < FK_LAYERS; layer++)
			for (v = 0; v < 2; v++)
				h = fm_mix(h ^ *fm_at(kv, in->table[0], pos,
						      layer, v));
		if (pos < end - in->want_logits)
			continue;
		fm_logits(h, logits);
		logits += FM_VOCAB;
	}
}

/* Logits of the model after @nr tokens, without blocks. */
static void fm_oracle(const u32 *ids, u32 nr, float *logits)
{
	u32 pos, layer, v;
	u64 h = 0;

	for (pos = 0; pos < nr; pos++)
		for (layer = 0; layer < FK_LAYERS; layer++)
			for (v = 0; v < 2; v++)
				h = fm_mix(h ^ fm_value(ids[pos], pos, layer,
							v));
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

static void fm_copied(u32 from, u32 to, u32 tokens)
{
	u32 i, n;

	for (i = 0; i < fk.nr_steps; i++) {
		for (n = 0; n < fk.st[i].nr; n++) {
			struct fk_step_entry *e = &fk.st[i].e[n];

			if (e->src == from && e->dst == to && !e->copied) {
				ck_assert_uint_eq(e->tokens, tokens);
				e->copied = true;
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
		for (layer = 0; layer < FK_LAYERS; layer++)
			for (v = 0; v < 2; v++)
				for (t = 0; t < tokens[i]; t++)
					*fm_at(kv, &to[i], t, layer, v) =
						*fm_at(kv, &from[i], t, layer,
						       v);
		fm_copied(from[i] / FK_PER_BLOCK, to[i] / FK_PER_BLOCK,
			  tokens[i]);
	}
}

static void fm_init(struct model *m, u32 rows)
{
	memset(m, 0, sizeof(*m));
	m->info.dir = "/tmp";
	m->info.nr_vocab = FM_VOCAB;
	m->info.nr_layers = FK_LAYERS;
	m->info.nr_kv_heads = 1;
	m->info.k_bytes = 8;
	m->info.v_bytes = 8;
	m->info.max_position = FM_CONTEXT;
	m->info.max_len = FM_CONTEXT;
	m->info.max_rows = rows;
	m->info.max_seqs = FK_BATCH;
}

#endif /* ENGINE_FAKE_MODEL_H */
