/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adjust.h - edits of logits before a token is drawn
 *
 * In the order of vLLM's sampler: tokens that are not allowed, bad words, stop
 * ids that come too early, biases, penalties.  Temperature and cuts follow in
 * sampler_sample(); a greedy draw takes the best remaining logit.
 *
 * The edits depend only on the logits, the parameters, and the ids of prompt
 * and text: counts are updated as tokens come, and always equal a new count of
 * the ids.
 */
#ifndef KVRT_ADJUST_H
#define KVRT_ADJUST_H

#include "runtime/sampler/sampler.h"

/* Counts of the different ids of a text; its size is fixed at creation. */
struct id_counts;

/* The count of one id. */
struct id_count {
	u32 id;
	u32 count;
};

/**
 * id_counts_create() - create empty counts
 * @most: most different ids
 *
 * Return: the counts, to be freed with id_counts_free(); NULL: no memory.
 */
struct id_counts *id_counts_create(u32 most);

/** id_counts_free() - free @c, which may be NULL */
void id_counts_free(struct id_counts *c);

/** id_counts_add() - count one more @id; the caller keeps within @most */
void id_counts_add(struct id_counts *c, u32 id);

/** id_counts_get() - the count of @id; @c may be NULL */
u32 id_counts_get(const struct id_counts *c, u32 id);

/** id_counts_nr() - number of different ids; @c may be NULL */
u32 id_counts_nr(const struct id_counts *c);

/**
 * struct sampler_text - prompt and text of a sample before a draw
 * @prompt: counts of the prompt; only used for a repetition penalty
 * @text:   counts of @ids; only used for penalties
 * @ids:    the text so far, @nr of them
 * @nr:     tokens of the text
 * @stops:  ids that end it, @nr_stops of them
 * @nr_stops: how many
 */
struct sampler_text {
	const struct id_counts *prompt;
	const struct id_counts *text;
	const u32 *ids;
	u32 nr;
	const u32 *stops;
	u32 nr_stops;
};

/** sampling_adjusts() - can sampler_adjust() ever change a logit for @p? */
bool sampling_adjusts(const struct sampling_params *p);

/** sampling_counts() - does @p need counts of the text? */
bool sampling_counts(const struct sampling_params *p);

/** sampling_counts_prompt() - does @p need counts of the prompt? */
bool sampling_counts_prompt(const struct sampling_params *p);

/**
 * sampler_adjust() - edit the logits as @p asks
 * @ws: scratch memory for at least @vocab
 * @p: parameters that passed both checks
 * @so_far: prompt and text
 * @logits: [@vocab], edited
 * @vocab: number of logits
 *
 * Time: proportional to the different tokens of the text (and of the prompt
 * with a repetition penalty), biases and ids of bad words; a pass over the row
 * only with @p->allowed.
 */
void sampler_adjust(struct sampler_ws *ws, const struct sampling_params *p,
		    const struct sampler_text *so_far, float *logits,
		    u32 vocab);

/**
 * sampler_masked() - list the masked ids, except those that are not allowed
 * @p:   parameters that passed both checks
 * @so_far: prompt and text
 * @vocab: number of logits
 * @out: gets the ids, some perhaps twice; room for sampler_masked_max()
 *
 * With this and sampler_counted() a device can do the work of sampler_adjust():
 * these ids are masked, then @p->bias is added, then come the penalties.
 *
 * Return: how many.
 */
u32 sampler_masked(const struct sampling_params *p,
		   const struct sampler_text *so_far, u32 vocab, u32 *out);

/** sampler_masked_max() - upper bound of sampler_masked() */
u32 sampler_masked_max(const struct sampling_params *p,
		       const struct sampler_text *so_far);

/**
 * sampler_counted() - list the ids with penalties
 * @p:   parameters that passed both checks
 * @so_far: prompt and text
 * @out: gets each id once, with its count in the text; room for the ids of the
 *       prompt and of the text together
 *
 * Return: how many.
 */
u32 sampler_counted(const struct sampling_params *p,
		    const struct sampler_text *so_far, struct id_count *out);

#endif /* KVRT_ADJUST_H */
