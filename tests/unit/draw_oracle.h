/* SPDX-License-Identifier: Apache-2.0 */
/*
 * draw_oracle.h - the meaning of a struct kern_draw, by the host's sampler
 *
 * The edits follow the lists, in their order, without the code that edits rows
 * for the host.  Tokens and logprobs come from the sampler.
 */
#ifndef TESTS_DRAW_ORACLE_H
#define TESTS_DRAW_ORACLE_H

#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "kernels/draw.h"
#include "runtime/sampler/logprob.h"

static inline float draw_penalised(const struct kern_draw *d, float l,
				   u32 count)
{
	if (d->repetition != 0 && d->repetition != 1)
		l = l > 0 ? l / d->repetition : l * d->repetition;
	if (count) {
		l -= d->frequency * (float)count;
		l -= d->presence;
	}
	return l;
}

/* Edit @row of @vocab as the draw wants it. */
static inline void draw_edit(const struct kern_draw *d, float *row, u32 vocab)
{
	bool *may = calloc(vocab, sizeof(*may));
	u32 i;

	ck_assert_ptr_nonnull(may);
	for (i = 0; d->allowed && i < d->nr_allowed; i++)
		may[d->allowed[i]] = true;
	for (i = 0; i < d->nr_masked; i++)
		row[d->masked[i]] = -INFINITY;
	for (i = 0; i < d->nr_biases; i++)
		row[d->biases[i].id] += d->biases[i].bias;
	for (i = 0; i < d->nr_counts; i++)
		row[d->counts[i].id] = draw_penalised(d, row[d->counts[i].id],
						      d->counts[i].count);
	for (i = 0; d->allowed && i < vocab; i++)
		row[i] = may[i] ? row[i] : -INFINITY;
	free(may);
}

/* One draw from @row of @vocab, unedited logits of the model. */
static inline void draw_oracle(const struct kern_draw *d, const float *row,
			       u32 vocab, struct kern_drawn *drawn,
			       struct kern_top *top)
{
	const struct sampling_params p = {
		.temperature = d->temperature, .top_p = d->top_p,
		.min_p = d->min_p, .top_k = d->top_k,
	};
	const struct sampler_key key = { d->seed, d->sample };
	struct token_logprob best[KERN_TOP_MAX], one;
	float *edited = malloc(vocab * sizeof(*edited));
	struct sampler_ws *ws;
	int nr;
	u32 i;

	ck_assert_ptr_nonnull(edited);
	ck_assert_int_eq(sampler_ws_create(vocab, &ws), 0);
	memcpy(edited, row, vocab * sizeof(*edited));
	draw_edit(d, edited, vocab);
	*drawn = (struct kern_drawn){
		.id = sampler_sample(ws, edited, vocab, &p, key, d->position),
	};
	if (d->logprobs && drawn->id >= 0) {
		ck_assert_int_eq(logprob_of(ws, row, vocab, (u32)drawn->id,
					    &one, &drawn->rank), 0);
		drawn->logprob = one.logprob;
		nr = logprob_top(ws, row, vocab, d->nr_top, best);
		ck_assert_int_ge(nr, 0);
		drawn->nr_top = (u32)nr;
		for (i = 0; i < drawn->nr_top; i++)
			top[i] = (struct kern_top){ best[i].id,
						    best[i].logprob };
	}
	sampler_ws_free(ws);
	free(edited);
}

#endif /* TESTS_DRAW_ORACLE_H */
