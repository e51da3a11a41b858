// SPDX-License-Identifier: Apache-2.0
/*
 * sampling.c - fields for the draw of tokens and for logprobs
 *
 * The readers are like those in params.c.  The api_params own the arrays that
 * its sampling points to; all other values are copied.  Ids are checked against
 * the model's vocabulary, so the engine has nothing to refuse.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/server/fields.h"

static int bad(struct field_ctx *c, const char *key, const char *want)
{
	return api_fail(c->err, 400, key, "invalid_value", "%s must be %s", key,
			want);
}

static int no_memory(struct field_ctx *c)
{
	return api_fail(c->err, 503, "", "out_of_memory", "no memory");
}

/* ---- numbers ---- */

static int get_real(struct field_ctx *c, const char *key, const json_t *v,
		    double lo, double hi, float *out)
{
	const double d = json_number_value(v);
	char want[64];

	if (json_is_number(v) && d >= lo && d <= hi) {
		*out = (float)d;
		return 0;
	}
	snprintf(want, sizeof(want), "a number from %g to %g", lo, hi);
	return bad(c, key, want);
}

/* Read a number; it counts as given unless it is @neutral. */
static int get_change(struct field_ctx *c, const char *key, const json_t *v,
		      double lo, double hi, double neutral, float *out)
{
	if (get_real(c, key, v, lo, hi, out))
		return -1;
	if (json_number_value(v) < neutral || json_number_value(v) > neutral)
		c->sampled = key;
	return 0;
}

int field_min_p(struct field_ctx *c, const char *key, const json_t *v)
{
	return get_change(c, key, v, 0, 1, 0, &c->p->sampling.min_p);
}

int field_frequency_penalty(struct field_ctx *c, const char *key,
			    const json_t *v)
{
	return get_change(c, key, v, -(double)SAMPLING_PENALTY_MAX,
			  (double)SAMPLING_PENALTY_MAX, 0,
			  &c->p->sampling.frequency_penalty);
}

int field_presence_penalty(struct field_ctx *c, const char *key,
			   const json_t *v)
{
	return get_change(c, key, v, -(double)SAMPLING_PENALTY_MAX,
			  (double)SAMPLING_PENALTY_MAX, 0,
			  &c->p->sampling.presence_penalty);
}

int field_repetition_penalty(struct field_ctx *c, const char *key,
			     const json_t *v)
{
	return get_change(c, key, v, 0.01, (double)SAMPLING_REPETITION_MAX, 1,
			  &c->p->sampling.repetition_penalty);
}

int field_min_tokens(struct field_ctx *c, const char *key, const json_t *v)
{
	struct sampling_params *s = &c->p->sampling;

	if (get_u32(c, key, v, 0, UINT32_MAX, &s->min_tokens))
		return -1;
	if (s->min_tokens)
		c->sampled = key;
	return 0;
}

/* ---- tokens ---- */

/* The token id that a JSON field's name spells; -1: it spells none. */
static s64 id_of_name(const struct field_ctx *c, const char *name)
{
	u64 id = 0;
	u32 i;

	if (name[0] == '0' && name[1])	/* a second spelling of the same id */
		return -1;
	for (i = 0; name[i] >= '0' && name[i] <= '9' && i < 10; i++)
		id = 10 * id + (u64)(name[i] - '0');
	if (!i || name[i] || id >= c->m->info->nr_vocab)
		return -1;
	return (s64)id;
}

int field_logit_bias(struct field_ctx *c, const char *key, const json_t *v)
{
	struct sampling_params *s = &c->p->sampling;
	const size_t nr = json_object_size(v);
	const char *name;
	json_t *o;

	if (!json_is_object(v) || nr > SAMPLING_NR_BIAS_MAX)
		return bad(c, key, "an object of at most 1024 token ids");
	if (!nr)
		return 0;
	c->p->bias = malloc(nr * sizeof(*c->p->bias));
	if (!c->p->bias)
		return no_memory(c);
	s->bias = c->p->bias;
	c->sampled = key;
	json_object_foreach((json_t *)(uintptr_t)v, name, o) {
		const s64 id = id_of_name(c, name);
		struct sampling_bias *b = &c->p->bias[s->nr_bias];

		if (id < 0)
			return api_fail(c->err, 400, key, "invalid_value",
					"%s: '%.40s' is no token id below %u",
					key, name, c->m->info->nr_vocab);
		b->id = (u32)id;
		if (get_real(c, key, o, -(double)SAMPLING_BIAS_MAX,
			     (double)SAMPLING_BIAS_MAX, &b->bias))
			return -1;
		s->nr_bias++;
	}
	return 0;
}

int field_allowed_token_ids(struct field_ctx *c, const char *key,
			    const json_t *v)
{
	struct sampling_params *s = &c->p->sampling;
	const size_t nr = json_array_size(v);
	size_t i;

	if (!nr || nr > c->m->info->nr_vocab)
		return bad(c, key, "a list of token ids, at least one");
	c->p->allowed = malloc(nr * sizeof(*c->p->allowed));
	if (!c->p->allowed)
		return no_memory(c);
	for (i = 0; i < nr; i++)
		if (get_u32(c, key, json_array_get(v, i), 0,
			    c->m->info->nr_vocab - 1, &c->p->allowed[i]))
			return -1;
	s->allowed = c->p->allowed;
	c->sampled = key;
	s->nr_allowed = (u32)nr;
	return 0;
}

/*
 * Append the ids of @space and @word as a sequence.
 * Return: how many ids; 0: there is no room; or a negative errno.
 */
static ssize_t word_add(struct field_ctx *c, const char *space,
			const char *word, size_t len)
{
	struct sampling_params *s = &c->p->sampling;
	const u32 room = API_BAD_IDS_MAX - s->nr_bad;
	const size_t skip = strlen(space);
	u32 *at = c->p->bad + s->nr_bad;
	char *text;
	ssize_t n;

	if (room < 2 || len > API_BAD_IDS_MAX)
		return 0;
	text = malloc(skip + len);
	if (!text)
		return -ENOMEM;
	memcpy(text, space, skip);
	memcpy(text + skip, word, len);
	n = tokenizer_encode(c->m->tok, text, skip + len, TOKENIZER_PLAIN,
			     at + 1, room - 1, NULL);
	free(text);
	if (n == -E2BIG)
		return 0;
	if (n > 0) {
		at[0] = (u32)n;
		s->nr_bad += 1 + (u32)n;
	}
	return n;
}

/*
 * As vLLM: the word alone, and the word after a space if that has the same
 * number of tokens with another first token.
 */
static int word_read(struct field_ctx *c, const char *key, const json_t *v)
{
	struct sampling_params *s = &c->p->sampling;
	const char *word = json_string_value(v);
	size_t len = json_string_length(v);
	const u32 *alone = c->p->bad + s->nr_bad, *spaced;
	ssize_t n, m;

	while (len && *word == ' ') {
		word++;
		len--;
	}
	if (!len)
		return bad(c, key, "a list of strings that are not empty");
	n = word_add(c, "", word, len);
	spaced = c->p->bad + s->nr_bad;
	m = n > 0 ? word_add(c, " ", word, len) : n;
	if (n == -ENOMEM || m == -ENOMEM)
		return no_memory(c);
	if (n <= 0 || m <= 0)
		return bad(c, key, "strings of at most 4096 tokens together");
	if (m != n || spaced[1] == alone[1])
		s->nr_bad -= 1 + (u32)m;
	return 0;
}

int field_bad_words(struct field_ctx *c, const char *key, const json_t *v)
{
	size_t i;

	if (!json_is_array(v))
		return bad(c, key, "a list of strings");
	if (!json_array_size(v))
		return 0;
	c->p->bad = malloc(API_BAD_IDS_MAX * sizeof(*c->p->bad));
	if (!c->p->bad)
		return no_memory(c);
	c->p->sampling.bad = c->p->bad;
	c->sampled = key;
	for (i = 0; i < json_array_size(v); i++)
		if (word_read(c, key, json_array_get(v, i)))
			return -1;
	return 0;
}

/* ---- logprobs ---- */

/* Read a number of likeliest tokens; false means no logprobs. */
static int get_top(struct field_ctx *c, const char *key, const json_t *v,
		   u32 *out)
{
	u32 k;

	if (json_is_false(v))
		return 0;
	if (get_u32(c, key, v, 0, API_TOP_MAX, &k))
		return -1;
	*out = ENGINE_LOGPROBS(k);
	return 0;
}

int field_logprobs(struct field_ctx *c, const char *key, const json_t *v)
{
	if (c->p->kind == API_CHAT)
		return get_bool(c, key, v, &c->logprobs);
	return get_top(c, key, v, &c->p->logprobs);
}

int field_top_logprobs(struct field_ctx *c, const char *key, const json_t *v)
{
	return get_u32(c, key, v, 0, API_TOP_MAX, &c->top_logprobs);
}

int field_prompt_logprobs(struct field_ctx *c, const char *key,
			  const json_t *v)
{
	return get_top(c, key, v, &c->p->prompt_logprobs);
}

int field_logprob_token_ids(struct field_ctx *c, const char *key,
			    const json_t *v)
{
	struct api_params *p = c->p;
	size_t i;

	if (!json_is_array(v) || json_array_size(v) > API_LOGPROB_IDS_MAX)
		return bad(c, key, "a list of at most 128 token ids");
	for (i = 0; i < json_array_size(v); i++, p->nr_logprob_ids++)
		if (get_u32(c, key, json_array_get(v, i), 0,
			    c->m->info->nr_vocab - 1,
			    &p->logprob_ids[p->nr_logprob_ids]))
			return -1;
	return 0;
}

int field_return_tokens_as_token_ids(struct field_ctx *c, const char *key,
				     const json_t *v)
{
	return get_bool(c, key, v, &c->p->ids_for_tokens);
}

/* ---- together ---- */

void sampling_defaults(const struct model_info *info,
		       struct sampling_params *p)
{
	const struct model_generation *gen = &info->gen;

	*p = SAMPLING_PARAMS_DEFAULT;
	if (gen->has & MODEL_GEN_TEMPERATURE)
		p->temperature = (float)gen->temperature;
	if ((gen->has & MODEL_GEN_DO_SAMPLE) && !gen->do_sample)
		p->temperature = 0;
	if (gen->has & MODEL_GEN_TOP_P)
		p->top_p = (float)gen->top_p;
	if (gen->has & MODEL_GEN_TOP_K)
		p->top_k = gen->top_k;
	if (gen->has & MODEL_GEN_MIN_P)
		p->min_p = (float)gen->min_p;
	if (gen->has & MODEL_GEN_REPETITION_PENALTY)
		p->repetition_penalty = (float)gen->repetition_penalty;
}

int sampling_judge(struct field_ctx *c)
{
	struct api_params *p = c->p;

	if (c->top_logprobs && !c->logprobs)
		return api_fail(c->err, 400, "top_logprobs", "invalid_value",
				"top_logprobs is only allowed with logprobs");
	if (c->logprobs)
		p->logprobs = ENGINE_LOGPROBS(c->top_logprobs);
	if (p->prompt_logprobs && p->stream)
		return api_fail(c->err, 400, "prompt_logprobs", "invalid_value",
				"prompt_logprobs is not allowed with stream");
	if (c->max_zero && !p->echo)
		return api_fail(c->err, 400, "max_tokens", "invalid_value",
				"max_tokens must be at least 1, or 0 with echo");
	if (c->max_tokens && p->sampling.min_tokens > c->max_tokens)
		return api_fail(c->err, 400, "min_tokens", "invalid_value",
				"min_tokens is %u, more than %s, which is %u",
				p->sampling.min_tokens, c->max_name,
				c->max_tokens);
	if (p->nr_logprob_ids && (!p->logprobs || p->echo || p->beam_width))
		return api_fail(c->err, 400, "logprob_token_ids", "invalid_value",
				"logprob_token_ids is only allowed with logprobs, and not with echo or use_beam_search");
	if (p->nr_logprob_ids)
		p->logprobs = ENGINE_LOGPROBS(p->nr_logprob_ids);
	if (p->beam_width && p->logprobs > ENGINE_LOGPROBS(0))
		return api_fail(c->err, 400,
				p->kind == API_CHAT ? "top_logprobs" : "logprobs",
				"invalid_value",
				"beam search tells logprobs of its own tokens alone: ask for 0 others");
	p->score = p->prompt_logprobs;
	if (p->echo)
		p->score = max(p->score, p->logprobs);
	return 0;
}
