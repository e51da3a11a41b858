// SPDX-License-Identifier: Apache-2.0
/*
 * sampler.c - from a row of logits to the next token
 *
 * Logits become weights exp((logit - max) / temperature); top-k keeps the k
 * best tokens, top-p then the fewest best whose weights sum to at least that
 * share; one random number chooses among what is left, in proportion.
 *
 * Both cuts are the same question: in the order from best to worst, where
 * does the running sum reach a target?  (For top-k every token weighs 1.)
 * "Best" is a strict order on 64-bit keys, the logit in the upper half and the
 * complement of the id in the lower, so equal logits are ordered by id and
 * there are no ties.  The answer is a key, and it is found without sorting:
 * weights are summed into bins by the top bits of the key, the bin where the
 * sum passes the target is the only one looked at again, by the next bits.
 * That is at most six passes over what is left, whatever the logits are; on
 * real ones nearly all tokens are gone after the first.
 *
 * Candidates stay in the order of their ids, and only copies are shuffled by
 * the selection; the draw walks up the ids.  So what is drawn depends on the
 * set and its weights, not on how the set was found: top_k = 0 and
 * top_k = vocab draw the same token.
 *
 * Tokens of less than exp(-60) of the best one's weight are left out: all of
 * a vocabulary of 2^30 together weigh less than 2^-53, the step of the random
 * number.
 *
 * Nothing is allocated per token; a workspace belongs to one thread.
 */
#include <math.h>
#include <stdlib.h>

#include "runtime/sampler/sampler.h"

#define VOCAB_MAX	(1u << 30)
#define BIN_BITS	11
#define NR_BINS		(1u << BIN_BITS)
#define LOG_WEIGHT_MIN	(-60.0f)

struct cand {
	u64 key;
	float weight;
};

struct sampler_ws {
	u32 vocab;
	struct cand *cand;		/* in the order of ids */
	struct cand *scratch;		/* what the selection shuffles */
	double bins[NR_BINS];
};

int sampler_ws_create(u32 vocab, struct sampler_ws **out)
{
	struct sampler_ws *ws;

	if (!vocab || vocab > VOCAB_MAX)
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

int sampling_params_check(const struct sampling_params *p, const char **why)
{
	const char *phrase = NULL;

	/* Written so that NaN fails. */
	if (!(p->temperature >= 0 &&
	      p->temperature <= SAMPLING_TEMPERATURE_MAX))
		phrase = "temperature must be from 0 to 100";
	else if (!(p->top_p > 0 && p->top_p <= 1))
		phrase = "top_p must be above 0 and at most 1";
	if (why)
		*why = phrase;
	return phrase ? -EINVAL : 0;
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

/* The largest logit, once it is known that the row can be used. */
static int logits_max(const float *logits, u32 vocab, float *out)
{
	float best = -INFINITY;
	u32 nr_nan = 0, i;

	for (i = 0; i < vocab; i++) {
		nr_nan += isnan(logits[i]);
		best = logits[i] > best ? logits[i] : best;
	}
	if (nr_nan)
		return -EDOM;
	if (best == INFINITY)
		return -ERANGE;
	if (best == -INFINITY)
		return -ENODATA;
	*out = best;
	return 0;
}

s32 sampler_greedy(const float *logits, u32 vocab)
{
	float best;
	u32 i = 0;
	int err;

	if (!vocab || vocab > VOCAB_MAX)
		return -EINVAL;
	err = logits_max(logits, vocab, &best);
	if (err)
		return err;
	while (logits[i] != best)
		i++;
	return (s32)i;
}

/* Larger is better: a higher logit, or the same and a lower id. */
static inline u64 cand_key(float logit, u32 id)
{
	u32 bits;

	logit += 0.0f;			/* -0 is 0 */
	memcpy(&bits, &logit, sizeof(bits));
	bits = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
	return (u64)bits << 32 | (u32)~id;
}

static inline u32 cand_id(u64 key)
{
	return ~(u32)key;
}

/*
 * The bin, from the best down, where the sum of weights reaches *@target;
 * *@target loses what lies above it.  Rounding may leave the sum of all a
 * little short: then the last bin that holds anything.
 */
static u32 bin_find(const double *bins, double *target)
{
	double above = 0, last_above = 0;
	u32 bin = NR_BINS, last = 0;

	while (bin--) {
		if (bins[bin] == 0)
			continue;
		last = bin;
		last_above = above;
		above += bins[bin];
		if (above >= *target)
			break;
	}
	*target -= last_above;
	return last;
}

/*
 * The lowest key among the fewest best candidates whose weights sum to at
 * least @target.  @c is shuffled; @n is at least 1, weights are above 0.
 */
static u64 cut_find(struct sampler_ws *ws, struct cand *c, u32 n,
		    double target)
{
	int shift = 64;
	u32 i, bin, left;

	while (n > 1 && shift > 0) {
		shift = max(shift - BIN_BITS, 0);
		memset(ws->bins, 0, sizeof(ws->bins));
		for (i = 0; i < n; i++)
			ws->bins[(c[i].key >> shift) & (NR_BINS - 1)] +=
				c[i].weight;
		bin = bin_find(ws->bins, &target);
		for (i = 0, left = 0; i < n; i++)
			if (((c[i].key >> shift) & (NR_BINS - 1)) == bin)
				c[left++] = c[i];
		n = left;
	}
	return c[0].key;
}

/* Key of the k-th best of the row; 0, below all keys, to keep all. */
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

/* Gather what is not below @cut and weighs anything; returns how many. */
static u32 cand_gather(struct sampler_ws *ws, const float *logits, u32 vocab,
		       u64 cut, float best, float temperature, double *sum)
{
	u32 i, n = 0;

	*sum = 0;
	for (i = 0; i < vocab; i++) {
		float x = (logits[i] - best) / temperature;
		u64 key = cand_key(logits[i], i);

		if (key < cut || x < LOG_WEIGHT_MIN)
			continue;
		ws->cand[n].key = key;
		ws->cand[n].weight = expf(x);
		*sum += ws->cand[n].weight;
		n++;
	}
	return n;
}

/*
 * Cut the candidates to the nucleus; returns how many are left.  All tokens
 * of less than 1/n-th of the share to be cut could be cut together, so none
 * of them is in the nucleus and the selection need not see them.
 */
static u32 top_p_cut(struct sampler_ws *ws, u32 n, float top_p, double *sum)
{
	double target = top_p * *sum;
	double least = (*sum - target) / n;
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

/* The candidate in whose stretch of [0, @sum) the random number falls. */
static u32 cand_draw(const struct sampler_ws *ws, u32 n, double sum,
		     double random)
{
	double target = random * sum, at = 0;
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
	double sum;
	float best;
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
	n = cand_gather(ws, logits, vocab, cut, best, p->temperature, &sum);
	n = top_p_cut(ws, n, p->top_p, &sum);
	return (s32)cand_draw(ws, n, sum, sampler_random(key, position));
}
