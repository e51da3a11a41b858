/* SPDX-License-Identifier: Apache-2.0 */
/*
 * beam_reference.h - a plain beam search to compare with
 *
 * It follows _beam_search() of Hugging Face transformers, the long way: every
 * step asks for the logprobs of the whole vocabulary after every beam, from its
 * first token on, sorts all continuations of all beams, and copies all data.
 * It shares no code with runtime/engine/search.c.
 *
 * By definition, floats are added in doubles, so that two searches agree about
 * equality.  If two sums of different beams are almost equal, the last bits
 * decide, and ->doubt says so.
 */
#ifndef TESTS_BEAM_REFERENCE_H
#define TESTS_BEAM_REFERENCE_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <kvmm/types.h>

#define REF_MAX_LEN	256u
#define REF_DOUBT	1e-9

/* A search; @row gives logprobs, -inf for tokens that are not allowed. */
struct ref_search {
	u32		vocab;
	u32		width;
	u32		max_new;
	const u32	*stops;
	u32		nr_stops;
	double		penalty;
	u32		early;		/* 0 false, 1 true, 2 "never" */
	void		(*row)(void *arg, const u32 *ids, u32 nr, float *lp);
	void		*arg;
	bool		doubt;
	u32		nr_steps;
};

/* One text, with the token that stopped it. */
struct ref_text {
	u32	ids[REF_MAX_LEN];
	u32	nr;
	bool	stopped;
	double	sum;
	double	score;
	u32	beam;			/* of a continuation: its beam, */
	bool	hits;			/* and whether it ends here */
};

static bool ref_is_stop(const struct ref_search *s, u32 id)
{
	u32 i;

	for (i = 0; i < s->nr_stops; i++)
		if (s->stops[i] == id)
			return true;
	return false;
}

static int ref_by_sum(const void *a, const void *b)
{
	const struct ref_text *x = *(const struct ref_text *const *)a;
	const struct ref_text *y = *(const struct ref_text *const *)b;

	if (x->sum > y->sum || x->sum < y->sum)
		return x->sum > y->sum ? -1 : 1;
	if (x->beam != y->beam)
		return x->beam < y->beam ? -1 : 1;
	return x->ids[x->nr - 1] < y->ids[y->nr - 1] ? -1 : 1;
}

static bool ref_close(double a, double b)
{
	return isfinite(a) && isfinite(b) && (a > b || a < b) &&
		fabs(a - b) < REF_DOUBT;
}

/* Sort all continuations of all beams, best first.  Return: their number. */
static u32 ref_expand(struct ref_search *s, const u32 *prompt, u32 nr_prompt,
		      const struct ref_text *beams, u32 nr_beams,
		      struct ref_text *all, struct ref_text **order)
{
	float *lp = malloc(s->vocab * sizeof(*lp));
	u32 *ids = malloc((nr_prompt + REF_MAX_LEN) * sizeof(*ids));
	u32 b, id, nr = 0;

	memcpy(ids, prompt, nr_prompt * sizeof(*ids));
	for (b = 0; b < nr_beams; b++) {
		memcpy(ids + nr_prompt, beams[b].ids,
		       beams[b].nr * sizeof(*ids));
		s->row(s->arg, ids, nr_prompt + beams[b].nr, lp);
		for (id = 0; id < s->vocab; id++) {
			if (!(lp[id] > -INFINITY))
				continue;
			all[nr] = beams[b];
			all[nr].ids[all[nr].nr++] = id;
			all[nr].sum += (double)lp[id];
			all[nr].beam = b;
			all[nr].stopped = ref_is_stop(s, id);
			all[nr].hits = all[nr].stopped ||
				all[nr].nr == s->max_new;
			order[nr] = &all[nr];
			nr++;
		}
	}
	qsort(order, nr, sizeof(*order), ref_by_sum);
	for (b = 1; b < nr && b <= 2 * s->width + s->nr_stops; b++)
		s->doubt |= ref_close(order[b - 1]->sum, order[b]->sum);
	free(ids);
	free(lp);
	return nr;
}

/* Put a text into the pool, behind those of the same score. */
static void ref_keep(struct ref_search *s, struct ref_text *pool, u32 *nr,
		     const struct ref_text *t)
{
	const double score = t->sum / pow(t->nr, s->penalty);
	u32 i, at = *nr;

	for (i = 0; i < *nr; i++) {
		s->doubt |= ref_close(score, pool[i].score);
		if (at == *nr && score > pool[i].score)
			at = i;
	}
	if (at == s->width)
		return;
	if (*nr < s->width)
		++*nr;
	for (i = *nr - 1; i > at; i--)
		pool[i] = pool[i - 1];
	pool[at] = *t;
	pool[at].score = score;
}

/* The rest of transformers' loop condition; the pool has @nr texts. */
static bool ref_is_over(struct ref_search *s, const struct ref_text *pool,
			u32 nr, double best, u32 len)
{
	const u32 far = s->early == 2 && s->penalty > 0 ? s->max_new : len;

	if (nr < s->width)
		return false;
	if (s->early == 1)
		return true;
	best /= pow(far, s->penalty);
	s->doubt |= ref_close(best, pool[nr - 1].score);
	return !(best > pool[nr - 1].score);
}

/**
 * ref_run() - search
 * @pool: [width], gets the texts, best first
 *
 * Return: number of texts.
 */
static u32 ref_run(struct ref_search *s, const u32 *prompt, u32 nr_prompt,
		   struct ref_text *pool)
{
	const u32 most = s->width * s->vocab;
	struct ref_text *beams = calloc(s->width, sizeof(*beams));
	struct ref_text *all = malloc(most * sizeof(*all));
	struct ref_text **order = malloc(most * sizeof(*order));
	u32 nr_beams = 1, nr_pool = 0, nr, i, k;

	s->doubt = false;
	for (s->nr_steps = 1; ; s->nr_steps++) {
		nr = ref_expand(s, prompt, nr_prompt, beams, nr_beams, all,
				order);
		for (i = 0; i < nr && i < s->width; i++)
			if (order[i]->hits && (s->nr_steps == s->max_new ||
					       order[i]->sum > -INFINITY))
				ref_keep(s, pool, &nr_pool, order[i]);
		for (i = 0, k = 0; i < nr && k < s->width; i++)
			if (!order[i]->hits)
				beams[k++] = *order[i];
		if (!k || ref_is_over(s, pool, nr_pool, beams[0].sum,
				      s->nr_steps))
			break;
		for (; k < s->width; k++) {
			beams[k] = beams[0];
			beams[k].sum = -INFINITY;
		}
		nr_beams = s->width;
	}
	free(order);
	free(all);
	free(beams);
	return nr_pool;
}

/* Turn logits into logprobs, in place. */
static inline void ref_log_softmax(float *row, u32 nr)
{
	double sum = 0, best = -INFINITY;
	u32 i;

	for (i = 0; i < nr; i++)
		best = fmax(best, (double)row[i]);
	for (i = 0; i < nr; i++)
		sum += exp((double)row[i] - best);
	sum = best + log(sum);
	for (i = 0; i < nr; i++)
		row[i] = (float)((double)row[i] - sum);
}

#endif /* TESTS_BEAM_REFERENCE_H */
