// SPDX-License-Identifier: Apache-2.0
/*
 * best.c - the best n of best_of samples
 *
 * As OpenAI defines it: those with the highest logprob a token, on the mean of
 * the tokens whose text the sample has.  One without any is the worst; of
 * equal ones the first drawn is the better.  All that were drawn count in the
 * usage.
 */
#include <math.h>
#include <stdlib.h>

#include "runtime/server/call.h"

/* A sample, and what it is worth. */
struct ranked {
	struct choice	choice;
	double		mean;
	u32		at;
};

static double choice_mean(const struct choice *ch)
{
	double sum = 0;
	u32 i;

	for (i = 0; i < ch->taken; i++)
		sum += (double)ch->s->tops.told[i].logprob;
	return ch->taken ? sum / ch->taken : -INFINITY;
}

/* By prompt is how they stand: only within one. */
static int ranked_cmp(const void *a, const void *b)
{
	const struct ranked *x = a, *y = b;

	if (x->mean > y->mean || x->mean < y->mean)
		return x->mean > y->mean ? -1 : 1;
	return x->at < y->at ? -1 : 1;
}

/**
 * best_pick() - put the choices that are the answer in front, best first
 *
 * Behind them stand those that are only counted.
 * Return: 0 or -ENOMEM.
 */
int best_pick(struct call *call)
{
	const u32 per = call->params.drawn, n = call->params.n;
	const u32 nr = call->params.nr_prompts;
	struct ranked *all;
	u32 i, k;

	if (per == n)
		return 0;
	all = calloc((size_t)nr * per, sizeof(*all));
	if (!all)
		return -ENOMEM;
	for (i = 0; i < nr * per; i++)
		all[i] = (struct ranked){
			.choice = call->choices[i], .at = i,
			.mean = choice_mean(&call->choices[i]),
		};
	for (i = 0; i < nr; i++) {
		qsort(all + i * per, per, sizeof(*all), ranked_cmp);
		for (k = 0; k < per; k++)
			call->choices[k < n ? i * n + k :
				      nr * n + i * (per - n) + k - n] =
				all[i * per + k].choice;
	}
	free(all);
	return 0;
}
