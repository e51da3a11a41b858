/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sampler.h - from a row of logits to the next token
 *
 * The law of the seed: the drawn token depends only on the logits, the
 * parameters and (seed, sample, position), on any processor.  There is no
 * generator with a state that preemption, restart or other sequences in a batch
 * could change.
 */
#ifndef KVRT_SAMPLER_H
#define KVRT_SAMPLER_H

#include <kvmm/types.h>

/* Higher values are refused: the distribution is flat long before. */
#define SAMPLING_TEMPERATURE_MAX	100.0f

#define SAMPLING_REPETITION_MIN		0.01f
#define SAMPLING_REPETITION_MAX		100.0f
#define SAMPLING_PENALTY_MAX		2.0f	/* presence and frequency */
#define SAMPLING_BIAS_MAX		100.0f
#define SAMPLING_NR_BIAS_MAX		1024u

/* A number that is added to the logit of a token. */
struct sampling_bias {
	u32 id;
	float bias;
};

/**
 * struct sampling_params - parameters of a draw
 * @temperature: 0 is greedy; else logits are divided by it
 * @top_p: keep the fewest most likely tokens whose probabilities sum to at
 *	least this, after @top_k; above 0, 1 keeps all
 * @top_k: keep this many of the most likely tokens; 0 keeps all
 * @seed:  the request's; the engine's caller draws one for requests without a
 *         seed
 * @min_p: keep tokens of at least this share of the likeliest one's
 *	probability, before @top_k; 0 keeps all
 * @repetition_penalty: logits of tokens of prompt and text are divided by it if
 *         above 0, else multiplied; 1 or 0: none
 * @presence_penalty: subtracted from logits of tokens in the text
 * @frequency_penalty: subtracted once for each occurrence of the token in the
 *         text
 * @min_tokens: no stop id is drawn before the text has so many tokens
 * @nr_bias: entries of @bias
 * @nr_allowed: entries of @allowed
 * @nr_bad: entries of @bad
 * @bias:  biases of tokens, each token at most once; may be NULL
 * @allowed: only these ids are drawn; NULL: all may be
 * @bad:   sequences that must not occur in the text, each as its length and its
 *         ids: the last id is not drawn after the others; may be NULL
 *
 * "Text" means the generated tokens, without the prompt.
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

/* Defaults of a request (those of OpenAI). */
#define SAMPLING_PARAMS_DEFAULT	\
	((struct sampling_params){ .temperature = 1.0f, .top_p = 1.0f })

/**
 * struct sampler_key - key of random numbers
 * @seed: the request's seed
 * @sample: index of the sample in the request, from 0
 */
struct sampler_key {
	u64 seed;
	u32 sample;
};

/* Scratch memory of one thread for one vocabulary size. */
struct sampler_ws;

/**
 * sampler_ws_create() - allocate scratch memory; a draw allocates none
 * @vocab: longest row of logits it will see; 1 to 2^30
 * @out: the workspace, for one thread at a time; free it with sampler_ws_free()
 *
 * Return: 0, -EINVAL or -ENOMEM.
 */
int __must_check sampler_ws_create(u32 vocab, struct sampler_ws **out);

/** sampler_ws_free() - free @ws, which may be NULL */
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
 * sampling_ids_check() - are all ids in the arrays tokens, and sequences whole?
 * @p: the parameters
 * @vocab: number of tokens
 * @why: as above
 *
 * Return: 0 or -EINVAL.
 */
int __must_check sampling_ids_check(const struct sampling_params *p, u32 vocab,
				    const char **why);

/**
 * sampling_params_copy() - copy parameters together with their arrays
 * @to: gets the copy; call sampling_params_free() on success
 * @from: parameters that passed both checks
 *
 * Return: 0 or -ENOMEM.
 */
int __must_check sampling_params_copy(struct sampling_params *to,
				      const struct sampling_params *from);

/** sampling_params_free() - free the arrays of a copy */
void sampling_params_free(struct sampling_params *p);

/**
 * sampler_sample() - draw the next token
 * @ws: scratch memory for at least @vocab
 * @logits: [@vocab], -inf for tokens that must not be chosen
 * @vocab: number of logits
 * @p: parameters; @p->seed is not read, @key is
 * @key: seed and sample index; not read when greedy
 * @position: position of the token to be drawn, from the beginning of the
 *     sequence
 *
 * Temperature, then min-p, then top-k, then top-p over the remaining tokens;
 * all other parameters were applied to the logits before, see adjust.h.  Equal
 * logits are ordered by id, the lowest first, everywhere: in a greedy draw, at
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
 * @key: seed and sample
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
