// SPDX-License-Identifier: Apache-2.0
/*
 * params.c - the parameters of sampling: ranges, and copies
 *
 * The ranges are those of vLLM and OpenAI.  A copy has its arrays in one piece
 * of memory, in the order of struct sampling_params, so that only one
 * allocation can fail and only one piece is freed.
 */
#include <stdlib.h>

#include "runtime/sampler/sampler.h"

static bool in_range(float v, float lo, float hi)
{
	return v >= lo && v <= hi;	/* NaN is in no range */
}

static const char *params_why(const struct sampling_params *p)
{
	u32 i;

	if (!in_range(p->temperature, 0, SAMPLING_TEMPERATURE_MAX))
		return "temperature must be from 0 to 100";
	if (!(p->top_p > 0 && p->top_p <= 1))
		return "top_p must be above 0 and at most 1";
	if (!in_range(p->min_p, 0, 1))
		return "min_p must be from 0 to 1";
	if (p->repetition_penalty != 0 &&
	    !in_range(p->repetition_penalty, SAMPLING_REPETITION_MIN,
		      SAMPLING_REPETITION_MAX))
		return "repetition_penalty must be from 0.01 to 100";
	if (!in_range(p->presence_penalty, -SAMPLING_PENALTY_MAX,
		      SAMPLING_PENALTY_MAX))
		return "presence_penalty must be from -2 to 2";
	if (!in_range(p->frequency_penalty, -SAMPLING_PENALTY_MAX,
		      SAMPLING_PENALTY_MAX))
		return "frequency_penalty must be from -2 to 2";
	if (p->nr_bias > SAMPLING_NR_BIAS_MAX)
		return "logit_bias must have at most 1024 tokens";
	for (i = 0; i < p->nr_bias; i++)
		if (!in_range(p->bias[i].bias, -SAMPLING_BIAS_MAX,
			      SAMPLING_BIAS_MAX))
			return "logit_bias must be from -100 to 100";
	return NULL;
}

static int judged(const char *phrase, const char **why)
{
	if (why)
		*why = phrase;
	return phrase ? -EINVAL : 0;
}

int sampling_params_check(const struct sampling_params *p, const char **why)
{
	return judged(params_why(p), why);
}

static const char *bad_why(const struct sampling_params *p, u32 vocab)
{
	u32 i, k, len;

	for (i = 0; i < p->nr_bad; i += len) {
		len = p->bad[i++];
		if (!len || len > p->nr_bad - i)
			return "bad_words must be sequences of token ids";
		for (k = 0; k < len; k++)
			if (p->bad[i + k] >= vocab)
				return "bad_words has an id that is no token";
	}
	return NULL;
}

static const char *ids_why(const struct sampling_params *p, u32 vocab)
{
	u32 i;

	for (i = 0; i < p->nr_bias; i++)
		if (p->bias[i].id >= vocab)
			return "logit_bias has an id that is no token";
	if (p->allowed && (!p->nr_allowed || p->nr_allowed > vocab))
		return "allowed_token_ids must have from 1 id to as many as there are tokens";
	for (i = 0; p->allowed && i < p->nr_allowed; i++)
		if (p->allowed[i] >= vocab)
			return "allowed_token_ids has an id that is no token";
	return bad_why(p, vocab);
}

int sampling_ids_check(const struct sampling_params *p, u32 vocab,
		       const char **why)
{
	return judged(ids_why(p, vocab), why);
}

int sampling_params_copy(struct sampling_params *to,
			 const struct sampling_params *from)
{
	const u32 allowed = from->allowed ? from->nr_allowed : 0;
	const size_t bytes = from->nr_bias * sizeof(*from->bias) +
			     ((size_t)allowed + from->nr_bad) * sizeof(u32);
	struct sampling_bias *bias;
	u32 *ids;

	*to = *from;
	to->bias = NULL;
	to->allowed = NULL;
	to->bad = NULL;
	if (!bytes)
		return 0;
	bias = malloc(bytes);
	if (!bias)
		return -ENOMEM;
	ids = (u32 *)(bias + from->nr_bias);
	if (from->nr_bias)
		memcpy(bias, from->bias, from->nr_bias * sizeof(*bias));
	if (allowed)
		memcpy(ids, from->allowed, allowed * sizeof(*ids));
	if (from->nr_bad)
		memcpy(ids + allowed, from->bad, from->nr_bad * sizeof(*ids));
	/* The first pointer is the one to free, even if its array is empty. */
	to->bias = bias;
	to->allowed = allowed ? ids : NULL;
	to->bad = ids + allowed;
	return 0;
}

void sampling_params_free(struct sampling_params *p)
{
	free((void *)(uintptr_t)p->bias);
	p->bias = NULL;
	p->allowed = NULL;
	p->bad = NULL;
}
