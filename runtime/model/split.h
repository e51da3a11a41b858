/* SPDX-License-Identifier: Apache-2.0 */
/*
 * split.h - a model that is split among ranks
 */
#ifndef RUNTIME_MODEL_SPLIT_H
#define RUNTIME_MODEL_SPLIT_H

#include "runtime/model/checkpoint.h"
#include "runtime/model/config.h"

/* Exact kernels sum the columns of a matrix in parts of so many. */
#define SPLIT_PART	1024u

/* Some rows or columns. */
struct span {
	u64	first;
	u64	nr;
};

/**
 * split_span() - the share of one rank
 * @all:  rows or columns, at least @nr
 * @unit: shares begin at multiples of it
 * @rank: the rank
 * @nr:   how many ranks
 */
static inline struct span split_span(u64 all, u64 unit, u32 rank, u32 nr)
{
	const u64 units = DIV_ROUND_UP(all, unit);
	const u64 first = units * rank / nr * unit;

	return (struct span){ first, min(all, units * (rank + 1) / nr * unit) - first };
}

/* The ids of the vocabulary that a rank has. */
static inline struct span split_ids(const struct config_part *p, u32 rank)
{
	return split_span(p->vocab, 1, rank, p->nr);
}

/**
 * split_config() - make the configuration of a model that of a rank's part
 * @cfg:   changed
 * @link:  says which rank of how many
 * @exact: shares begin at parts of SPLIT_PART, if there are enough of them
 * @dir:   the model's folder, for messages
 * @err:   set on failure
 *
 * Return: 0; -EINVAL if the ranks cannot share the heads, or are too many.
 */
int __must_check split_config(struct model_config *cfg, const struct model_link *link,
			      bool exact, const char *dir, struct model_error *err);

/* Has a rank's share the bits of the whole model in exact mode? */
bool split_same_bits(const struct model_config *cfg);

struct model_weights;

/**
 * split_sort() - put the columns of a rank in the order of parts
 * @w:   bound; matrices of which a rank has some columns are copied
 * @cfg: of the rank's part
 *
 * A matrix of more than SPLIT_PART columns becomes several, one for each part, one after
 * the other.  For exact kernels.
 *
 * Return: 0 or -ENOMEM.
 */
int __must_check split_sort(struct model_weights *w, const struct model_config *cfg);

struct cut;

/**
 * cut_open() - put a rank's parts in the place of the tensors of a checkpoint
 * @c:     all tensors checked and taken; its list is changed
 * @whole: configuration of the whole model
 * @mine:  of the rank's part
 * @judge: change shapes only
 * @out:   owns the parts; to be closed after @c, also on failure
 * @err:   set on failure
 *
 * Rows of a matrix, and the experts of a tensor of all experts, stay where they are
 * mapped.  Columns are copied, and so are rows of a joined tensor.
 *
 * Return: 0 or -ENOMEM.
 */
int __must_check cut_open(struct ckpt *c, const struct model_config *whole,
			  const struct model_config *mine, bool judge,
			  struct cut **out, struct model_error *err);

/* NULL is allowed. */
void cut_close(struct cut *cut);

/**
 * cut_each() - feed the bytes of a rank's part of a tensor to a digest
 * @cut: where the tensor may have a part
 * @t:   a tensor of the checkpoint
 * @add: receives the pieces
 *
 * Return: is @t a part?  If not, nothing was fed.
 */
bool cut_each(const struct cut *cut, const struct st_tensor *t,
	      void (*add)(void *arg, const void *data, u64 bytes), void *arg);

#endif /* RUNTIME_MODEL_SPLIT_H */
