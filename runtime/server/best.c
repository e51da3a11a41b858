// SPDX-License-Identifier: Apache-2.0
/*
 * best.c - the best n of best_of samples
 *
 * The best are those with the highest mean logprob of a token, as OpenAI
 * defines it, over the tokens of the sample's text.  A sample without tokens is
 * the worst; of equal samples the one drawn first is better.  The usage counts
 * all that were drawn.
 */
#include <math.h>
#include <stdlib.h>

#include "runtime/server/call.h"

/* A sample with its mean logprob. */
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

/* Compare samples of one prompt; the array is ordered by prompt. */
static int ranked_cmp(const void *a, const void *b)
{
	const struct ranked *x = a, *y = b;

	if (x->mean > y->mean || x->mean < y->mean)
		return x->mean > y->mean ? -1 : 1;
	return x->at < y->at ? -1 : 1;
}

/**
 * best_pick() - move the choices in front that are the answer, best first
 *
 * The others stay behind them and only count in the usage.
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
