// SPDX-License-Identifier: Apache-2.0
/*
 * null.c - a forward that computes nothing
 *
 * With the kernels "null" a batch is judged as always, and then every row of
 * logits that is wanted names one token, by its position alone: all others
 * have 0, this one so much more that it is drawn also where temperature is 1.
 * It walks over the third quarter of the vocabulary, where vocabularies made
 * by merging have whole pieces of words, and is never one that ends a text.
 *
 * A row costs two stores, whatever the vocabulary: the token that it named the
 * last time is cleared, the new one set.  That needs a caller who leaves rows
 * alone between two batches; one that no longer names what it did is written
 * whole, as one is the first time.
 */
#include "runtime/model/internal.h"

#define NULL_LOGIT	100.0f
#define NULL_STRIDE	7919u	/* a prime: neighbours are unlike */

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
