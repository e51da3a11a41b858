/* SPDX-License-Identifier: Apache-2.0 */
/*
 * search.h - beam search, without model, memory and daemon
 *
 * The caller gives rows of likeliest tokens, one for each beam.  The search
 * says which beam goes on with which token, until it is over.  A search belongs
 * to one thread.
 */
#ifndef RUNTIME_ENGINE_SEARCH_H
#define RUNTIME_ENGINE_SEARCH_H

#include <kvmm/types.h>

#include "runtime/sampler/logprob.h"

#define SEARCH_PENALTY_MAX	10.0f	/* largest absolute length penalty */

/* When a search ends that has found as many texts as it has beams. */
enum search_early {
	SEARCH_EARLY_FALSE,	/* when no beam, ended now, would score better */
	SEARCH_EARLY_TRUE,	/* at once */
	SEARCH_EARLY_NEVER,	/* when no beam can reach a better score */
	SEARCH_NR_EARLY,
};

/**
 * struct search_params - parameters of a search
 * @width:    beams, at least 1
 * @max_new:  most tokens of a text, at least 1
 * @stops:    ids that end a text, @nr_stops of them; not copied
 * @penalty:  the score of a text of n tokens, the stop id counted, is the sum
 *            of its logprobs / n ^ @penalty
 * @early:    enum search_early
 */
struct search_params {
	u32		width;
	u32		max_new;
	const u32	*stops;
	u32		nr_stops;
	float		penalty;
	u32		early;
};

/**
 * struct search_next - how a beam goes on
 * @parent: the beam of the last step that it continues
 * @id:     the token that continues it
 * @sum:    sum of its logprobs, @id's included; -inf: no continuation was left,
 *          and the beam only fills its place
 */
struct search_next {
	u32	parent;
	u32	id;
	double	sum;
};

/* A token of a text: its logprob in the model, its rank from 1. */
struct search_token {
	u32	id;
	u32	rank;
	float	logprob;
};

/**
 * struct search_text - a text that was found
 * @nr:      tokens, without the one that stopped it
 * @stopped: @stop_id ended it; else max_new did
 * @sum:     sum of the logprobs, @stop_id's included
 * @score:   its score, see struct search_params
 */
struct search_text {
	u32	nr;
	bool	stopped;
	u32	stop_id;
	double	sum;
	double	score;
};

struct search;

/**
 * search_create() - start a search with one beam that has no token yet
 *
 * Return: 0; -EINVAL: a bad parameter; -ENOMEM.
 */
int __must_check search_create(const struct search_params *p,
			       struct search **out);

/* search_free() - @s may be NULL */
void search_free(struct search *s);

/* search_row_size() - how many of the likeliest tokens a row needs */
u32 search_row_size(const struct search *s);

/* search_row() - memory for the row of beam @beam, best token first */
struct token_logprob *search_row(struct search *s, u32 beam);

/* search_row_set() - the row of @beam has @nr tokens */
void search_row_set(struct search *s, u32 beam, u32 nr);

/* search_beams() - how many beams need a row: 1 before the first step */
u32 search_beams(const struct search *s);

/**
 * search_step() - choose the next beams; all rows are set
 *
 * Return: whether the search is over; if not, every beam has its search_next().
 */
bool search_step(struct search *s);

/*
 * search_next() - [width], how each beam goes on after the last step, best
 * first
 */
const struct search_next *search_next(const struct search *s);

/* search_found() - number of texts found; at most the width */
u32 search_found(const struct search *s);

/**
 * search_text() - text @k, best first
 * @k:   index below search_found()
 * @out: gets its tokens; has room for max_new
 */
struct search_text search_text(const struct search *s, u32 k,
			       struct search_token *out);

#endif /* RUNTIME_ENGINE_SEARCH_H */
