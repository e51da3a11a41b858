// SPDX-License-Identifier: Apache-2.0
/*
 * null.c - a forward that computes nothing
 *
 * With the kernels "null" a batch is checked as always.  Then every wanted row
 * of logits names one token, which depends only on the position: all other
 * tokens have 0, and this one has so much more that it is drawn even at
 * temperature 1.  The token walks over the third quarter of the vocabulary,
 * where vocabularies made by merging have whole pieces of words, and is never
 * one that ends a text.
 *
 * A row costs two stores for any vocabulary: the token that it named last is
 * cleared, the new one is set.  That works if the caller does not change rows
 * between two batches.  A row that no longer names its last token is written as
 * a whole, as at the first time.
 */
#include "runtime/model/internal.h"

#define NULL_LOGIT	100.0f
#define NULL_STRIDE	7919u	/* a prime: neighbouring positions differ widely */

static bool is_eos(const struct model_info *info, u32 id)
{
	u32 i;

	for (i = 0; i < info->nr_eos; i++)
		if (info->eos_ids[i] == id)
			return true;
	return false;
}

/* The token at @position. */
static u32 null_token(const struct model_info *info, u32 position)
{
	const u32 from = info->nr_vocab / 2, nr = info->nr_vocab / 4 + 1;
	u32 id = from + (u32)((u64)position * NULL_STRIDE % nr);
	u32 tries = nr;

	while (tries-- && is_eos(info, id))
		id = from + (id - from + 1) % nr;
	return id;
}

static void null_row(struct model *model, u32 nr, u32 position, float *row)
{
	u32 *told = &model->work.told[nr];

	if (*told != MODEL_TOLD_NONE && row[*told] == NULL_LOGIT)
		row[*told] = 0;
	else
		memset(row, 0, model->info.nr_vocab * sizeof(*row));
	*told = null_token(&model->info, position);
	row[*told] = NULL_LOGIT;
}

void null_logits(struct model *model, const struct model_seq_in *seqs,
		 u32 nr_seqs, float *logits)
{
	u32 i, k, nr = 0;

	for (i = 0; i < nr_seqs; i++) {
		const struct model_seq_in *s = &seqs[i];

		for (k = s->want_logits; k; k--, nr++)
			null_row(model, nr, s->start + s->nr_tokens + 1 - k,
				 logits + (u64)nr * model->info.nr_vocab);
	}
}
