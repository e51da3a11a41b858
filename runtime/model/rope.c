// SPDX-License-Identifier: Apache-2.0
/*
 * rope.c - inverse frequencies of the rotary position encoding
 *
 * Pair j of a head turns by inv_freq[j] radians a token.  Variants that
 * stretch the context change these numbers and nothing else, so kernels see
 * the numbers and never the variant.
 *
 * A model was trained with frequencies computed in float, and that is how
 * they are computed here: better ones would be other ones.
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
 * Long waves are stretched by the factor, short ones are kept, and those
 * between are mixed in proportion to how many waves fit the old context.
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

void rope_inv_freq(const struct rope_config *rope, u32 head_dim,
		   float *inv_freq)
{
	float freq;
	u32 j;

	for (j = 0; j < head_dim / 2; j++) {
		freq = 1.0f / powf(rope->theta, 2.0f * j / head_dim);
		if (rope->type == ROPE_LINEAR)
			freq /= (float)rope->factor;
		else if (rope->type == ROPE_LLAMA3)
			freq = rope_llama3(rope, freq);
		inv_freq[j] = freq;
	}
}
