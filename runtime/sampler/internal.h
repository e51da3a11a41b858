/* SPDX-License-Identifier: Apache-2.0 */
/*
 * internal.h - declarations shared by the files of the sampler
 */
#ifndef KVRT_SAMPLER_INTERNAL_H
#define KVRT_SAMPLER_INTERNAL_H

#include "runtime/sampler/sampler.h"

#define SAMPLER_VOCAB_MAX	(1u << 30)
#define SAMPLER_BIN_BITS	11
#define SAMPLER_NR_BINS		(1u << SAMPLER_BIN_BITS)

/* A token that may be drawn, and its weight (see kernels/weight.h). */
struct cand {
	u64 key;
	u64 weight;
};

/**
 * struct sampler_ws - scratch memory of one thread
 * @vocab:   longest row of logits
 * @cand:    [@vocab], in the order of ids
 * @scratch: [@vocab], shuffled by the selection
 * @bins:    sums of weights
 */
struct sampler_ws {
	u32 vocab;
	struct cand *cand;
	struct cand *scratch;
	u64 bins[SAMPLER_NR_BINS];
};

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
 * logits_max() - the largest logit of a usable row
 *
 * Return: 0, or an error as sampler_sample().
 */
int __must_check logits_max(const float *logits, u32 vocab, float *out);

#endif /* KVRT_SAMPLER_INTERNAL_H */
