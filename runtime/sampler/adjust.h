/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adjust.h - what is done to logits before a token is chosen from them
 *
 * In the order of vLLM's sampler: tokens that are not allowed, bad words,
 * stop ids that come too early, biases, penalties.  Temperature and cuts
 * follow in sampler_sample(), and greedy takes the best of what is left.
 *
 * All of it is a function of the logits, the parameters, and the ids of prompt
 * and text: counts are kept as tokens come, and are always those that
 * counting the ids again gives.
 */
#ifndef KVRT_ADJUST_H
#define KVRT_ADJUST_H

#include "runtime/sampler/sampler.h"

/* Which ids a text has, and how often; its size is fixed when it is made. */
struct id_counts;

/* One of them. */
struct id_count {
	u32 id;
	u32 count;
};

/**
 * id_counts_create() - an empty one
 * @most: different ids that it can hold
 *
 * Return: it, for id_counts_free(), or NULL without memory.
 */
struct id_counts *id_counts_create(u32 most);

/** id_counts_free() - give back @c, which may be NULL */
void id_counts_free(struct id_counts *c);

/** id_counts_add() - one more of @id; not more different ones than it holds */
void id_counts_add(struct id_counts *c, u32 id);

/** id_counts_get() - how many of @id; @c may be NULL */
u32 id_counts_get(const struct id_counts *c, u32 id);

/** id_counts_nr() - different ids; @c may be NULL */
u32 id_counts_nr(const struct id_counts *c);

/**
 * struct sampler_text - what a sample has when its next token is chosen
 * @prompt: counts of the prompt; only read for a repetition penalty
 * @text:   counts of @ids; only read for penalties
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

/** sampling_adjusts() - would sampler_adjust() do anything for @p, ever? */
bool sampling_adjusts(const struct sampling_params *p);

/** sampling_counts() - does @p need counts of the text? */
bool sampling_counts(const struct sampling_params *p);

/** sampling_counts_prompt() - does @p need counts of the prompt? */
bool sampling_counts_prompt(const struct sampling_params *p);

/**
 * sampler_adjust() - do to the logits what @p asks for
 * @ws: scratch memory for at least @vocab
 * @p: parameters that passed both checks
 * @so_far: prompt and text
 * @logits: [@vocab], changed
 * @vocab: number of logits
 *
 * Time: what is asked for, that is different tokens of the text (and of the
 * prompt with a repetition penalty), biases, ids of bad words; a pass over the
 * row only with @p->allowed.
 */
void sampler_adjust(struct sampler_ws *ws, const struct sampling_params *p,
		    const struct sampler_text *so_far, float *logits,
		    u32 vocab);

/**
 * sampler_masked() - ids that may not be drawn, beside those not allowed
 * @p: parameters that passed both checks
 * @so_far: prompt and text
 * @vocab: number of logits
 * @out: gets them, some perhaps twice; room for sampler_masked_max()
 *
 * This and sampler_counted() are what sampler_adjust() does, for one who does
 * it elsewhere: these are masked, then come @p->bias, then penalties.
 *
 * Return: how many.
 */
u32 sampler_masked(const struct sampling_params *p,
		   const struct sampler_text *so_far, u32 vocab, u32 *out);

/** sampler_masked_max() - the most that sampler_masked() gives */
u32 sampler_masked_max(const struct sampling_params *p,
		       const struct sampler_text *so_far);

/**
 * sampler_counted() - what penalties are of
 * @p: parameters that passed both checks
 * @so_far: prompt and text
 * @out: gets each id once, with how often the text has it; room for those of
 *	the prompt and of the text together
 *
 * Return: how many.
 */
u32 sampler_counted(const struct sampling_params *p,
		    const struct sampler_text *so_far, struct id_count *out);

#endif /* KVRT_ADJUST_H */
