/* SPDX-License-Identifier: Apache-2.0 */
/*
 * search.h - beam search, without model, memory and daemon
 *
 * Rows of likeliest tokens go in, one for each beam; out comes which beam goes
 * on with which token, until the search is over.  Belongs to one thread.
 */
#ifndef RUNTIME_ENGINE_SEARCH_H
#define RUNTIME_ENGINE_SEARCH_H

#include <kvmm/types.h>

#include "runtime/sampler/logprob.h"

#define SEARCH_PENALTY_MAX	10.0f	/* largest length penalty, of either sign */

/* When a search ends that has found as many texts as it has beams. */
enum search_early {
	SEARCH_EARLY_FALSE,	/* no beam, ended now, would be better */
	SEARCH_EARLY_TRUE,	/* at once */
	SEARCH_EARLY_NEVER,	/* no beam can become better */
	SEARCH_NR_EARLY,
};

/**
 * struct search_params - what is searched
 * @width:    beams, at least 1
 * @max_new:  tokens after which a text ends, at least 1
 * @stops:    ids that end a text, @nr_stops of them; not copied
 * @penalty:  a text of n tokens, the one that ended it counted, is worth the
 *            sum of its logprobs / n ^ @penalty
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
 * struct search_next - what a beam becomes
 * @parent: beam of the last step that it continues
 * @id:     with this token
 * @sum:    of its logprobs, @id's included; -inf: there was no continuation
 *          left for it, it only keeps the place
 */
struct search_next {
	u32	parent;
	u32	id;
	double	sum;
};

/* A token of a text: how likely the model held it, its rank from 1. */
struct search_token {
	u32	id;
	u32	rank;
	float	logprob;
};

/**
 * struct search_text - a text that was found
 * @nr:      tokens, without the one that stopped it
 * @stopped: by @stop_id; else it is as long as was allowed
 * @sum:     of the logprobs, @stop_id's included
 * @score:   what it is worth
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
 * search_create() - begin with one beam, which has no token yet
 *
 * Return: 0; -EINVAL: a parameter; -ENOMEM.
 */
int __must_check search_create(const struct search_params *p,
			       struct search **out);

/* search_free() - @s may be NULL */
void search_free(struct search *s);

/* search_row_size() - how many of the likeliest tokens a row has to have */
u32 search_row_size(const struct search *s);

/* search_row() - where those of beam @beam go, best first */
struct token_logprob *search_row(struct search *s, u32 beam);

/* search_row_set() - there are @nr of them */
void search_row_set(struct search *s, u32 beam, u32 nr);

/* search_beams() - beams that want a row: 1 before the first step */
u32 search_beams(const struct search *s);

/**
 * search_step() - choose, all rows are there
 *
 * Return: whether the search is over; else every beam has its search_next().
 */
bool search_step(struct search *s);

/* search_next() - [width], what beams became in the last step, best first */
const struct search_next *search_next(const struct search *s);

/* search_found() - number of texts, best first; at most the width */
u32 search_found(const struct search *s);

/**
 * search_text() - one of them
 * @k:   which, below search_found()
 * @out: gets its tokens; room for max_new
 */
struct search_text search_text(const struct search *s, u32 k,
			       struct search_token *out);

#endif /* RUNTIME_ENGINE_SEARCH_H */
