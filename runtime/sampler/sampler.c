// SPDX-License-Identifier: Apache-2.0
/*
 * sampler.c - from a row of logits to the next token
 *
 * Logits become weights exp((logit - max) / temperature).  Min-p keeps the
 * weights of at least a share of the best one's, top-k keeps the k best tokens,
 * and top-p then keeps the fewest best tokens with a sum of weights of at least
 * that share.  One random number draws among the remaining tokens, in
 * proportion to weight.  Min-p and top-k both cut the order from best to worst,
 * so their own order does not matter.
 *
 * Top-k and top-p ask the same question: in the order from best to worst, where
 * does the running sum reach a target?  (For top-k every token weighs 1.)
 * "Best" is a strict order on 64-bit keys with the logit in the upper half and
 * the complement of the id in the lower, so equal logits are ordered by id and
 * there are no ties.  The answer is a key, and it is found without sorting:
 * weights are summed into bins by the top bits of the key, and only the bin
 * where the sum passes the target is looked at again, by the next bits.  That
 * is at most six passes over the remaining tokens for any logits; with real
 * ones nearly all tokens are gone after the first.
 *
 * Candidates stay in the order of their ids, and the selection shuffles only
 * copies; the draw walks up the ids.  So the result depends on the set and its
 * weights, not on how the set was found: top_k = 0 and top_k = vocab draw the
 * same token.
 *
 * Weights are whole numbers and their sums exact (kernels/weight.h), so a GPU
 * that finds the same cuts in another way draws the same token.  Tokens that
 * weigh less than one unit, 2^-44 of the best one with 2^18 tokens, are left
 * out.
 *
 * No memory is allocated per token; a workspace belongs to one thread.
 */
#include <math.h>
#include <stdlib.h>

#include "kernels/weight.h"
#include "runtime/sampler/internal.h"
#include "runtime/sampler/row.h"

int sampler_ws_create(u32 vocab, struct sampler_ws **out)
{
	struct sampler_ws *ws;

	if (!vocab || vocab > SAMPLER_VOCAB_MAX)
		return -EINVAL;
	ws = calloc(1, sizeof(*ws));
	if (!ws)
		return -ENOMEM;
	ws->vocab = vocab;
	ws->cand = malloc(vocab * sizeof(*ws->cand));
	if (!ws->cand)
		goto out_free_ws;
	ws->scratch = malloc(vocab * sizeof(*ws->scratch));
	if (!ws->scratch)
		goto out_free_cand;
	*out = ws;
	return 0;

out_free_cand:
	free(ws->cand);
out_free_ws:
	free(ws);
	return -ENOMEM;
}

void sampler_ws_free(struct sampler_ws *ws)
{
	if (!ws)
		return;
	free(ws->scratch);
	free(ws->cand);
	free(ws);
}

const char *sampler_strerror(int err)
{
	switch (err < 0 ? -err : err) {
	case 0:
		return "no error";
	case EDOM:
		return "a logit is NaN";
	case ERANGE:
		return "a logit is +infinity";
	case ENODATA:
		return "every logit is -infinity: no token is allowed";
	case EINVAL:
		return "a sampling parameter is out of range";
	case ENOMEM:
		return "out of memory";
	}
	return "unknown error";
}

int logits_max(const float *logits, u32 vocab, float *out)
{
	const struct row_best best = row_best(logits, vocab);

	*out = best.value;
	return row_error(&best);
}

s32 sampler_greedy(const float *logits, u32 vocab)
{
	struct row_best best;
	int err;

	if (!vocab || vocab > SAMPLER_VOCAB_MAX)
		return -EINVAL;
	best = row_best(logits, vocab);
	err = row_error(&best);
	return err ? err : (s32)best.at;
}

/*
 * The bin, from the best down, where the sum of weights reaches *@target, which
 * is at least 1 and at most the sum of all; the bins above are subtracted from
 * *@target.
 */
static u32 bin_find(const u64 *bins, u64 *target)
{
	u32 bin = SAMPLER_NR_BINS - 1;

	for (; bin && bins[bin] < *target; bin--)
		*target -= bins[bin];
	return bin;
}

/*
 * The lowest key among the fewest best candidates with a sum of weights of at
 * least @target.  @c is shuffled; @n is at least 1, weights are above 0.
 */
static u64 cut_find(struct sampler_ws *ws, struct cand *c, u32 n,
		    u64 target)
{
	int shift = 64;
	u32 i, bin, left;

	while (n > 1 && shift > 0) {
		shift = max(shift - SAMPLER_BIN_BITS, 0);
		memset(ws->bins, 0, sizeof(ws->bins));
		for (i = 0; i < n; i++)
			ws->bins[(c[i].key >> shift) & (SAMPLER_NR_BINS - 1)] +=
				c[i].weight;
		bin = bin_find(ws->bins, &target);
		for (i = 0, left = 0; i < n; i++)
			if (((c[i].key >> shift) & (SAMPLER_NR_BINS - 1)) == bin)
				c[left++] = c[i];
		n = left;
	}
	return c[0].key;
}

/* Key of the k-th best of the row; 0, below all keys, keeps all. */
static u64 top_k_cut(struct sampler_ws *ws, const float *logits, u32 vocab,
		     u32 k)
{
	u32 i;

	if (!k || k >= vocab)
		return 0;
	for (i = 0; i < vocab; i++)
		ws->scratch[i] = (struct cand){
			.key = cand_key(logits[i], i), .weight = 1,
		};
	return cut_find(ws, ws->scratch, vocab, k);
}

/*
 * Gather the tokens that are not below @cut and have a weight of at least one
 * unit and at least @p's min_p of the best one's weight, which is 1; returns
 * how many.
 */
static u32 cand_gather(struct sampler_ws *ws, const float *logits, u32 vocab,
		       u64 cut, float best, const struct sampling_params *p,
		       u64 *sum)
{
	const u32 shift = weight_shift(vocab);
	u64 key, weight, all = 0;
	u32 i, n = 0;
	float x;

	for (i = 0; i < vocab; i++) {
		x = (logits[i] - best) / p->temperature;
		key = cand_key(logits[i], i);
		if (key < cut || x < WEIGHT_X_MIN)
			continue;
		weight = weight_units(weight_exp(x), p->min_p, shift);
		if (!weight)
			continue;
		ws->cand[n].key = key;
		ws->cand[n++].weight = weight;
		all += weight;
	}
	*sum = all;
	return n;
}

/*
 * Cut the candidates to the nucleus; returns how many are left.  All tokens of
 * less than 1/n-th of the share to be cut could be cut together, so none of
 * them is in the nucleus and the selection need not see them.  The bound is
 * half of that, since a better token may weigh less in the last place of exp().
 */
static u32 top_p_cut(struct sampler_ws *ws, u32 n, float top_p, u64 *sum)
{
	const u64 target = weight_share(top_p, *sum);
	const u64 least = (*sum - target) / n / 2;
	u32 i, m = 0;
	u64 cut;

	if (top_p >= 1)
		return n;
	for (i = 0; i < n; i++)
		if (ws->cand[i].weight >= least)
			ws->scratch[m++] = ws->cand[i];
	cut = cut_find(ws, ws->scratch, m, target);

	*sum = 0;
	for (i = 0, m = 0; i < n; i++) {
		if (ws->cand[i].key < cut)
			continue;
		ws->cand[m++] = ws->cand[i];
		*sum += ws->cand[i].weight;
	}
	return m;
}

/* The candidate whose part of [0, @sum) has the random number. */
static u32 cand_draw(const struct sampler_ws *ws, u32 n, u64 sum,
		     double random)
{
	/* The random number is a multiple of 2^-53; here it has 64 bits. */
	const u64 target = weight_point((u64)(random * 0x1p53) << 11, sum);
	u64 at = 0;
	u32 i;

	for (i = 0; i + 1 < n; i++) {
		at += ws->cand[i].weight;
		if (at > target)
			break;
	}
	return cand_id(ws->cand[i].key);
}

s32 sampler_sample(struct sampler_ws *ws, const float *logits, u32 vocab,
		   const struct sampling_params *p, struct sampler_key key,
		   u64 position)
{
	float best;
	u64 sum;
	u64 cut;
	u32 n;
	int err;

	if (!vocab || vocab > ws->vocab || sampling_params_check(p, NULL))
		return -EINVAL;
	if (p->temperature == 0 || p->top_k == 1)
		return sampler_greedy(logits, vocab);
	err = logits_max(logits, vocab, &best);
	if (err)
		return err;

	cut = top_k_cut(ws, logits, vocab, p->top_k);
	n = cand_gather(ws, logits, vocab, cut, best, p, &sum);
	n = top_p_cut(ws, n, p->top_p, &sum);
	return (s32)cand_draw(ws, n, sum, sampler_random(key, position));
}
