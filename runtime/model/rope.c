// SPDX-License-Identifier: Apache-2.0
/*
 * rope.c - inverse frequencies of the rotary position encoding
 *
 * Pair j of a head turns by inv_freq[j] radians a token.  Variants that stretch
 * the context change only these numbers (yarn also the length of the turned
 * pair), so kernels see the numbers and never the variant.
 *
 * A model was trained with frequencies computed in float, so they are computed
 * in float here: more precise ones would be different ones.
 *
 * In the dynamic variant they depend on the length of the sequence.  A token is
 * turned by the frequencies of the length that it gives the sequence.  So K
 * depends on the position alone, as with all other variants, and not on the cut
 * of a prompt or on later tokens.
 *
 * In the variant with factors (longrope) there are two sets, for sequences up to the
 * original context and for longer ones.  They rotate by different frequencies, so K of one
 * set means nothing to a query of the other.  One set is chosen when the model is loaded,
 * by the longest sequence that is permitted.
 */
#include <math.h>

#include "runtime/model/config.h"

static const char * const rope_type_text[NR_ROPE_TYPES] = {
#define x(name, text)	[ROPE_##name] = text,
	ROPE_TYPES(x)
#undef x
};

const char *rope_type_name(enum rope_type type)
{
	return rope_type_text[type];
}

/*
 * Long waves are stretched by the factor, short ones are kept, and those in
 * between are mixed in proportion to how many waves fit the original context.
 */
static float rope_llama3(const struct rope_config *r, float freq)
{
	const float wave = 2.0f * (float)M_PI / freq;
	float mix;

	if (wave > r->original / r->low_freq)
		return freq / (float)r->factor;
	if (wave < r->original / r->high_freq)
		return freq;
	mix = (r->original / wave - r->low_freq) / (r->high_freq - r->low_freq);
	return (1.0f - mix) * freq / (float)r->factor + mix * freq;
}

/* The pair, a real number, that turns @turns times in the original context. */
static double yarn_pair(const struct rope_config *r, u32 dim, double turns)
{
	return dim * log(r->original / (turns * 2 * M_PI)) /
	       (2 * log(r->theta));
}

/* Pairs up to @low are kept, from @high on stretched, mixed in between. */
static void yarn_range(const struct rope_config *r, u32 dim, double *low,
		       double *high)
{
	*low = yarn_pair(r, dim, r->beta_fast);
	*high = yarn_pair(r, dim, r->beta_slow);
	if (r->truncate) {
		*low = floor(*low);
		*high = ceil(*high);
	}
	*low = fmax(*low, 0);
	*high = fmin(*high, dim - 1.0);
	if (*low == *high)
		*high += 0.001;
}

static float rope_yarn(const struct rope_config *r, float freq, u32 pair,
		       double low, double high)
{
	float mix = ((float)pair - (float)low) / (float)(high - low);

	mix = fminf(fmaxf(mix, 0.0f), 1.0f);
	return freq / (float)r->factor * mix + freq * (1.0f - mix);
}

/* The base grows with the length, such that the longest wave always fits. */
static float dynamic_theta(const struct rope_config *r, u32 dim, u32 len)
{
	const float stretch = (float)r->factor * len / (float)r->original -
			      (float)(r->factor - 1);

	if (len <= r->original)
		return r->theta;
	return (float)r->theta * powf(stretch, (float)dim / (dim - 2));
}

void rope_fit(struct rope_config *rope, u32 len)
{
	if (rope->type == ROPE_LONGROPE && len > rope->original)
		memcpy(rope->factors, rope->long_factors,
		       sizeof(rope->factors));
}

void rope_inv_freq_at(const struct rope_config *rope, u32 dim, u32 len,
		      float *inv_freq)
{
	float theta = rope->theta, freq;
	double low = 0, high = 0;
	u32 j;

	if (rope->type == ROPE_DYNAMIC)
		theta = dynamic_theta(rope, dim, len);
	else if (rope->type == ROPE_YARN)
		yarn_range(rope, dim, &low, &high);
	for (j = 0; j < dim / 2; j++) {
		freq = 1.0f / powf(theta, 2.0f * j / dim);
		if (rope->type == ROPE_LINEAR)
			freq /= (float)rope->factor;
		else if (rope->type == ROPE_LLAMA3)
			freq = rope_llama3(rope, freq);
		else if (rope->type == ROPE_YARN)
			freq = rope_yarn(rope, freq, j, low, high);
		if (j < rope->nr_factors && rope->type == ROPE_LONGROPE)
			freq = 1.0f / (rope->factors[j] *
				       powf(theta, 2.0f * j / dim));
		else if (j < rope->nr_factors)
			freq /= rope->factors[j];
		inv_freq[j] = freq;
	}
}

void rope_inv_freq(const struct rope_config *rope, u32 dim, float *inv_freq)
{
	rope_inv_freq_at(rope, dim, 0, inv_freq);
}
