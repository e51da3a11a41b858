/* SPDX-License-Identifier: Apache-2.0 */
/*
 * logprob.h - logprobs of tokens
 *
 * Logarithms of the softmax of the model's own logits: before penalties, masks,
 * temperature and cuts, which change how a token is drawn but not the model's
 * probability.
 */
#ifndef KVRT_LOGPROB_H
#define KVRT_LOGPROB_H

#include "runtime/sampler/sampler.h"

/**
 * struct token_logprob - one token
 * @id:      the token
 * @logprob: natural logarithm of its probability; -inf where its logit is
 */
struct token_logprob {
	u32	id;
	float	logprob;
};

/**
 * logprob_top() - the likeliest tokens
 * @ws: scratch memory for at least @vocab
 * @logits: [@vocab]
 * @vocab: number of logits
 * @k: how many are wanted
 * @out: gets the tokens, best first, equal ones in the order of their ids; room
 *     for @k or @vocab, whichever is less
 *
 * Tokens of logit -inf are left out.
 *
 * Return: how many tokens, or a negative errno as sampler_sample().
 */
int __must_check logprob_top(struct sampler_ws *ws, const float *logits,
			     u32 vocab, u32 k, struct token_logprob *out);

/**
 * logprob_of() - logprob of one token
 * @ws: scratch memory for at least @vocab
 * @logits: [@vocab]
 * @vocab: number of logits
 * @id: the token, below @vocab
 * @out: gets @id and its logprob
 * @rank: gets its rank in the order of logprob_top(), from 1; may be NULL
 *
 * Return: 0, or a negative errno as sampler_sample().
 */
int __must_check logprob_of(struct sampler_ws *ws, const float *logits,
			    u32 vocab, u32 id, struct token_logprob *out,
			    u32 *rank);

/**
 * logprob_sum() - the logarithm of the row's sum of exponentials
 * @logits: [@vocab]
 * @vocab: number of logits
 * @out: number to subtract from a logit to get its logprob
 *
 * It is the main cost of the two functions above: call it once for many tokens
 * of one row.
 *
 * Return: 0, or a negative errno as sampler_sample().
 */
int __must_check logprob_sum(const float *logits, u32 vocab, double *out);

/* logprob_best() - logprob_top() of a row with logprob_sum() @sum */
u32 logprob_best(struct sampler_ws *ws, const float *logits, u32 vocab,
		 double sum, u32 k, struct token_logprob *out);

/* logprob_rank() - rank of @id in the order of logprob_top(), from 1 */
u32 logprob_rank(const float *logits, u32 vocab, u32 id);

#endif /* KVRT_LOGPROB_H */
