/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sampler.h - from a row of logits to the next token
 *
 * The seed law: which token is drawn depends on the logits, the parameters and
 * (seed, sample, position) alone, on whatever processor it is drawn.  There is
 * no generator with a state that preemption, restart or the company in a batch
 * could move.
 */
#ifndef KVRT_SAMPLER_H
#define KVRT_SAMPLER_H

#include <kvmm/types.h>

/* Above this a request is refused: the distribution is flat long before. */
#define SAMPLING_TEMPERATURE_MAX	100.0f

#define SAMPLING_REPETITION_MIN		0.01f
#define SAMPLING_REPETITION_MAX		100.0f
#define SAMPLING_PENALTY_MAX		2.0f	/* presence and frequency */
#define SAMPLING_BIAS_MAX		100.0f
#define SAMPLING_NR_BIAS_MAX		1024u

/* What is added to the logit of a token. */
struct sampling_bias {
	u32 id;
	float bias;
};

/**
 * struct sampling_params - how the next token is chosen
 * @temperature: 0 is greedy; else logits are divided by it
 * @top_p: keep the fewest most likely tokens whose probabilities sum to at
 *	least this, after @top_k; above 0, 1 keeps all
 * @top_k: keep this many of the most likely tokens; 0 keeps all
 * @seed: of the request; the engine draws one for requests without
 * @min_p: keep tokens of at least this share of the likeliest one's
 *	probability, before @top_k; 0 keeps all
 * @repetition_penalty: tokens of prompt and text get their logit divided by
 *	it if above 0, else multiplied; 1 or 0: none
 * @presence_penalty: subtracted from tokens that the text has
 * @frequency_penalty: subtracted as often as the text has the token
 * @min_tokens: no stop id before the text has so many tokens
 * @nr_bias: entries of @bias
 * @nr_allowed: entries of @allowed
 * @nr_bad: entries of @bad
 * @bias: of tokens, each at most once; may be NULL
 * @allowed: no others are drawn; NULL: all may be
 * @bad: sequences that the text shall not have, one after the other, each its
 *	length and its ids: the last id is not drawn where the others stand;
 *	may be NULL
 *
 * "Text" is what was generated, without the prompt.
 */
struct sampling_params {
	float temperature;
	float top_p;
	u32 top_k;
	u64 seed;
	float min_p;
	float repetition_penalty;
	float presence_penalty;
	float frequency_penalty;
	u32 min_tokens;
	u32 nr_bias;
	u32 nr_allowed;
	u32 nr_bad;
	const struct sampling_bias *bias;
	const u32 *allowed;
	const u32 *bad;
};

/* What a request that says nothing gets (the OpenAI defaults). */
#define SAMPLING_PARAMS_DEFAULT	\
	((struct sampling_params){ .temperature = 1.0f, .top_p = 1.0f })

/**
 * struct sampler_key - whose random numbers
 * @seed: of the request
 * @sample: which of its n samples, from 0
 */
struct sampler_key {
	u64 seed;
	u32 sample;
};

/* Scratch memory of one thread for one vocabulary size. */
struct sampler_ws;

/**
 * sampler_ws_create() - make the scratch memory; nothing is allocated later
 * @vocab: longest row of logits it will see; 1 to 2^30
 * @out: the workspace, for one thread at a time; sampler_ws_free() it
 *
 * Return: 0, -EINVAL or -ENOMEM.
 */
int __must_check sampler_ws_create(u32 vocab, struct sampler_ws **out);

/** sampler_ws_free() - give back @ws, which may be NULL */
void sampler_ws_free(struct sampler_ws *ws);

/**
 * sampling_params_check() - are these parameters within their ranges?
 * @p: the parameters
 * @why: gets a phrase naming the parameter and its range; may be NULL
 *
 * Return: 0 or -EINVAL.
 */
int __must_check sampling_params_check(const struct sampling_params *p,
				       const char **why);

/**
 * sampling_ids_check() - are the ids in the arrays tokens, the sequences whole?
 * @p: the parameters
 * @vocab: number of tokens
 * @why: as above
 *
 * Return: 0 or -EINVAL.
 */
int __must_check sampling_ids_check(const struct sampling_params *p, u32 vocab,
				    const char **why);

/**
 * sampling_params_copy() - copy with arrays of its own
 * @to: gets them; sampling_params_free() is due if that worked
 * @from: parameters that both checks passed
 *
 * Return: 0 or -ENOMEM.
 */
int __must_check sampling_params_copy(struct sampling_params *to,
				      const struct sampling_params *from);

/** sampling_params_free() - give back the arrays of a copy */
void sampling_params_free(struct sampling_params *p);

/**
 * sampler_sample() - choose the next token
 * @ws: scratch memory for at least @vocab
 * @logits: [@vocab], -inf for tokens that must not be chosen
 * @vocab: number of logits
 * @p: parameters; @p->seed is not read, @key is
 * @key: seed and sample index; not read when greedy
 * @position: of the token to be chosen, from the begin of the sequence
 *
 * Temperature, then min-p, then top-k, then top-p over what these left; all
 * else that @p asks for was done to the logits before, see adjust.h.  Equal logits
 * count in the order of their ids, the lowest first, everywhere: greedy, at
 * the edge of top-k and at the edge of top-p.
 *
 * Return: the token id, or an error that sampler_strerror() puts in words:
 * -EDOM, -ERANGE, -ENODATA (the logits are unusable), -EINVAL (parameters).
 */
s32 __must_check sampler_sample(struct sampler_ws *ws, const float *logits,
				u32 vocab, const struct sampling_params *p,
				struct sampler_key key, u64 position);

/**
 * sampler_greedy() - the most likely token, the lowest id among equals
 * @logits: [@vocab]
 * @vocab: number of logits, 1 to 2^30
 *
 * Return: the token id, or -EDOM, -ERANGE, -ENODATA as sampler_sample();
 * -EINVAL if @vocab is out of range.
 */
s32 __must_check sampler_greedy(const float *logits, u32 vocab);

/** sampler_strerror() - a phrase for an error of this header's functions */
const char *sampler_strerror(int err);

/**
 * sampler_random() - the random number of one token
 * @key: whose
 * @position: of the token in its sequence
 *
 * Return: uniform in [0, 1), a multiple of 2^-53; a pure function.
 */
double sampler_random(struct sampler_key key, u64 position);

/**
 * sampler_philox() - one block of the counter-based generator
 * @ctr: counter, 128 bits, least significant word first
 * @key: key, 64 bits, least significant word first
 * @out: gets 128 random bits
 *
 * Philox4x32 with 10 rounds: Salmon and others, "Parallel random numbers: as
 * easy as 1, 2, 3", 2011.
 */
void sampler_philox(const u32 ctr[4], const u32 key[2], u32 out[4]);

#endif /* KVRT_SAMPLER_H */
