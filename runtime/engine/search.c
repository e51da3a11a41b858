// SPDX-License-Identifier: Apache-2.0
/*
 * search.c - beam search, without model, memory and daemon
 *
 * The search is that of Hugging Face transformers, in one thread and for one
 * prompt.  A step looks at every continuation of every beam, in the order of
 * the sum of logprobs; equal sums are ordered by beam, then by token.  Of the
 * first @width continuations, those that end with a stop id are texts.  The
 * beams go on with the first @width continuations without a stop id.  At the
 * last position all continuations are texts.  The pool keeps the @width best
 * texts; of equal ones it keeps the older.
 *
 * So a beam contributes at most its @width likeliest tokens that are no stop
 * ids.  A row of @width + @nr_stops tokens is sure to hold them, and the whole
 * vocabulary is never sorted.
 *
 * The tokens form a trellis: a node for each (step, beam), with the beam that
 * it continues.  So no tokens are copied when a beam becomes another.  A text
 * is the node where it ended, and is read back from there at the end.
 *
 * Where a model allows fewer continuations than there are beams, the remaining
 * beams are copies of the best at -inf, which is below every score.
 */
#include <math.h>
#include <stdlib.h>

#include "runtime/engine/search.h"

/* A continuation of @beam by @id. */
struct cand {
	u32	beam;
	u32	id;
	u32	rank;
	float	logprob;
	double	sum;
};

/* A token of a beam, and the beam of the previous step that it continues. */
struct node {
	u32	parent;
	u32	id;
	u32	rank;
	float	logprob;
};

/* A text that ended with token @last, after @at tokens of beam @last.beam. */
struct found {
	u32		at;
	bool		stopped;
	struct cand	last;
	double		score;
};

/*
 * @p:         parameters
 * @row_size:  see search_row_size()
 * @len:       tokens drawn
 * @nr_beams:  beams that need a row
 * @sum:       [width] sum of the logprobs of each beam
 * @rows:      [width][row_size] likeliest tokens, @nr_row of each beam
 * @best:      [width] best continuations of the step, @nr_best
 * @on:        [width] best continuations without a stop id, @nr_on
 * @next:      [width] how each beam goes on
 * @nodes:     [max_new][width] trellis
 * @pool:      [width] texts, best first, @nr_pool
 */
struct search {
	struct search_params	p;
	u32			row_size;
	u32			len;
	u32			nr_beams;
	double			*sum;
	struct token_logprob	*rows;
	u32			*nr_row;
	struct cand		*best;
	u32			nr_best;
	struct cand		*on;
	u32			nr_on;
	struct search_next	*next;
	struct node		*nodes;
	struct found		*pool;
	u32			nr_pool;
};

int search_create(const struct search_params *p, struct search **out)
{
	const u32 w = p->width;
	struct search *s;

	/* Written so that NaN fails the check. */
	if (!w || !p->max_new || p->early >= SEARCH_NR_EARLY ||
	    !(fabsf(p->penalty) <= SEARCH_PENALTY_MAX))
		return -EINVAL;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	s->p = *p;
	s->row_size = w + p->nr_stops;
	s->nr_beams = 1;
	s->sum = calloc(w, sizeof(*s->sum));
	s->rows = calloc((size_t)w * s->row_size, sizeof(*s->rows));
	s->nr_row = calloc(w, sizeof(*s->nr_row));
	s->best = calloc(w, sizeof(*s->best));
	s->on = calloc(w, sizeof(*s->on));
	s->next = calloc(w, sizeof(*s->next));
	/* Memory is touched only as far as the search comes. */
	s->nodes = calloc((size_t)w * p->max_new, sizeof(*s->nodes));
	s->pool = calloc(w, sizeof(*s->pool));
	if (s->sum && s->rows && s->nr_row && s->best && s->on && s->next &&
	    s->nodes && s->pool) {
		*out = s;
		return 0;
	}
	search_free(s);
	return -ENOMEM;
}

void search_free(struct search *s)
{
	if (!s)
		return;
	free(s->pool);
	free(s->nodes);
	free(s->next);
	free(s->on);
	free(s->best);
	free(s->nr_row);
	free(s->rows);
	free(s->sum);
	free(s);
}

u32 search_row_size(const struct search *s)
{
	return s->row_size;
}

struct token_logprob *search_row(struct search *s, u32 beam)
{
	return s->rows + (size_t)beam * s->row_size;
}

void search_row_set(struct search *s, u32 beam, u32 nr)
{
	s->nr_row[beam] = nr;
}

u32 search_beams(const struct search *s)
{
	return s->nr_beams;
}

const struct search_next *search_next(const struct search *s)
{
	return s->next;
}

/* ---- a step ---- */

static bool is_stop(const struct search *s, u32 id)
{
	u32 i;

	for (i = 0; i < s->p.nr_stops; i++)
		if (s->p.stops[i] == id)
			return true;
	return false;
}

static bool is_last(const struct search *s)
{
	return s->len + 1 == s->p.max_new;
}

/* Does @a come before @b? */
static bool cand_less(const struct cand *a, const struct cand *b)
{
	if (a->sum > b->sum || a->sum < b->sum)
		return a->sum > b->sum;
	if (a->beam != b->beam)
		return a->beam < b->beam;
	return a->id < b->id;
}

/* Insert @c into the @nr best, of which at most @most are kept. */
static void cand_insert(struct cand *list, u32 *nr, u32 most,
			const struct cand *c)
{
	u32 i = *nr;

	if (i == most) {
		if (!cand_less(c, &list[i - 1]))
			return;
		i--;
	} else {
		++*nr;
	}
	for (; i && cand_less(c, &list[i - 1]); i--)
		list[i] = list[i - 1];
	list[i] = *c;
}

static void search_look(struct search *s, u32 beam)
{
	const struct token_logprob *row = search_row(s, beam);
	const u32 w = s->p.width;
	u32 i;

	for (i = 0; i < s->nr_row[beam]; i++) {
		const struct cand c = {
			.beam = beam, .id = row[i].id, .rank = i + 1,
			.logprob = row[i].logprob,
			.sum = s->sum[beam] + (double)row[i].logprob,
		};

		/* The remaining tokens of the row are no better. */
		if (s->nr_on == w && c.sum < s->on[w - 1].sum)
			return;
		cand_insert(s->best, &s->nr_best, w, &c);
		if (!is_last(s) && !is_stop(s, c.id))
			cand_insert(s->on, &s->nr_on, w, &c);
	}
}

static double score(const struct search *s, double sum, u32 len)
{
	return sum / pow((double)len, (double)s->p.penalty);
}

/* Enter the text that ends with @c into the pool. */
static void pool_insert(struct search *s, const struct cand *c)
{
	const struct found f = {
		.at = s->len, .stopped = is_stop(s, c->id), .last = *c,
		.score = score(s, c->sum, s->len + 1),
	};
	u32 i = s->nr_pool;

	if (i == s->p.width) {
		if (!(f.score > s->pool[i - 1].score))
			return;
		i--;
	} else {
		s->nr_pool++;
	}
	for (; i && f.score > s->pool[i - 1].score; i--)
		s->pool[i] = s->pool[i - 1];
	s->pool[i] = f;
}

/* Can no beam become better than the texts found? */
static bool search_is_over(const struct search *s)
{
	const bool far = s->p.early == SEARCH_EARLY_NEVER && s->p.penalty > 0;
	double most;

	if (!s->nr_on)
		return true;
	if (s->nr_pool < s->p.width)
		return false;
	if (s->p.early == SEARCH_EARLY_TRUE)
		return true;
	most = score(s, s->on[0].sum, far ? s->p.max_new : s->len);
	return !(most > s->pool[s->nr_pool - 1].score);
}

/* Let the beams go on with @on, in its order. */
static void search_go_on(struct search *s)
{
	struct node *nodes = s->nodes + (size_t)(s->len - 1) * s->p.width;
	u32 k;

	for (k = 0; k < s->p.width; k++) {
		const struct cand *c = &s->on[k < s->nr_on ? k : 0];

		s->next[k] = (struct search_next){
			.parent = c->beam, .id = c->id,
			.sum = k < s->nr_on ? c->sum : -INFINITY,
		};
		nodes[k] = (struct node){
			.parent = c->beam, .id = c->id, .rank = c->rank,
			.logprob = c->logprob,
		};
	}
	for (k = 0; k < s->p.width; k++)
		s->sum[k] = s->next[k].sum;
	s->nr_beams = s->p.width;
}

bool search_step(struct search *s)
{
	u32 k;

	s->nr_best = 0;
	s->nr_on = 0;
	for (k = 0; k < s->nr_beams; k++)
		search_look(s, k);
	for (k = 0; k < s->nr_best; k++) {
		const struct cand *c = &s->best[k];

		/* A beam that only fills its place has found no text. */
		if (is_last(s) ||
		    (is_stop(s, c->id) && !(c->sum == -INFINITY)))
			pool_insert(s, c);
	}
	s->len++;
	if (search_is_over(s))
		return true;
	search_go_on(s);
	return false;
}

/* ---- texts found ---- */

u32 search_found(const struct search *s)
{
	return s->nr_pool;
}

struct search_text search_text(const struct search *s, u32 k,
			       struct search_token *out)
{
	const struct found *f = &s->pool[k];
	const struct search_text text = {
		.nr = f->at + !f->stopped, .stopped = f->stopped,
		.stop_id = f->stopped ? f->last.id : 0,
		.sum = f->last.sum, .score = f->score,
	};
	u32 at = f->at, beam = f->last.beam;

	if (!f->stopped)
		out[at] = (struct search_token){
			.id = f->last.id, .rank = f->last.rank,
			.logprob = f->last.logprob,
		};
	while (at--) {
		const struct node *n = s->nodes + (size_t)at * s->p.width +
			beam;

		out[at] = (struct search_token){
			.id = n->id, .rank = n->rank, .logprob = n->logprob,
		};
		beam = n->parent;
	}
	return text;
}
