// SPDX-License-Identifier: Apache-2.0
/*
 * batch.c - the rows of a batch
 *
 * Sequences come one after the other, each with its tokens in order; a row is
 * one token.  A batch is checked as a whole before any of it runs.
 */
#include "runtime/model/internal.h"

static int seq_check(const struct model *model, const struct model_seq_in *s)
{
	u32 i;

	for (i = 0; i < model->info.nr_groups; i++)
		if (!s->table[i])
			return -EINVAL;
	if (s->adapter && !model->work.t_len)
		return -EINVAL;
	if (!s->nr_tokens || !s->tokens ||
	    s->want_logits > s->nr_tokens ||
	    (u64)s->start + s->nr_tokens > model->info.max_len)
		return -EINVAL;
	for (i = 0; i < s->nr_tokens; i++)
		if (s->tokens[i] >= model->info.nr_vocab)
			return -EINVAL;
	return 0;
}

int batch_check(const struct model *model, const struct model_seq_in *seqs,
		u32 nr_seqs, u32 *rows, u32 *wanted)
{
	u64 total = 0;
	u32 i;
	int ret;

	if (nr_seqs > model->info.max_seqs)
		return -E2BIG;
	for (i = 0; i < nr_seqs; i++)
		total += seqs[i].nr_tokens;
	if (total > model->info.max_rows)
		return -E2BIG;
	*rows = total;
	*wanted = 0;
	for (i = 0; i < nr_seqs; i++) {
		ret = seq_check(model, &seqs[i]);
		if (ret)
			return ret;
		*wanted += seqs[i].want_logits;
	}
	return 0;
}

/* The last want_logits rows of a sequence, into @to; returns how many. */
static u32 pack_wanted(const struct model_seq_in *s, u32 first_row, u32 *to)
{
	const u32 from = first_row + s->nr_tokens - s->want_logits;
	u32 i;

	for (i = 0; i < s->want_logits; i++)
		to[i] = from + i;
	return s->want_logits;
}

/* The sequences with the tables of group @g; all groups have the same rows. */
static void pack_seqs(const struct model_seq_in *seqs, u32 nr_seqs, u32 g,
		      struct kern_attn_seq *to)
{
	u32 i, row = 0;

	for (i = 0; i < nr_seqs; i++) {
		to[i] = (struct kern_attn_seq){
			.table = seqs[i].table[g],
			.nr_rows = seqs[i].nr_tokens,
			.first_row = row,
			.start_pos = seqs[i].start,
		};
		row += seqs[i].nr_tokens;
	}
}

void batch_pack(struct model *model, const struct model_seq_in *seqs,
		u32 nr_seqs)
{
	const u32 shift = model->cfg.learned ? model->cfg.learned_from : 0;
	struct model_work *w = &model->work;
	u32 i, j, row = 0, wanted = 0;

	adapts_pack(model, seqs, nr_seqs);
	for (i = 0; i < model->info.nr_groups; i++)
		pack_seqs(seqs, nr_seqs, i, w->seqs + (u64)i * nr_seqs);
	for (i = 0; i < nr_seqs; i++) {
		wanted += pack_wanted(&seqs[i], row, w->wanted + wanted);
		for (j = 0; j < seqs[i].nr_tokens; j++, row++) {
			w->ids[row] = seqs[i].tokens[j];
			w->positions[row] = seqs[i].start + j + shift;
		}
	}
}
