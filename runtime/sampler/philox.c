// SPDX-License-Identifier: Apache-2.0
/*
 * philox.c - random numbers without a state
 *
 * Philox4x32-10 is a keyed mixing of a 128-bit counter: ten rounds of two
 * 32 x 32 multiplications each, with a key that is advanced by a constant every
 * round.  The counter here is the place of the number,
 *
 *	word 0, 1	position of the token in its sequence
 *	word 2		index of the request's sample
 *	word 3		use of the number (0: drawing a token)
 *
 * and the key is the request's seed.  So a number depends only on its place: a
 * sequence that was preempted, restored elsewhere or recomputed in another
 * batch draws the same numbers.
 */
#include "runtime/sampler/sampler.h"

#define PHILOX_ROUNDS	10
#define PHILOX_M0	0xd2511f53u
#define PHILOX_M1	0xcd9e8d57u
#define PHILOX_W0	0x9e3779b9u
#define PHILOX_W1	0xbb67ae85u

enum random_use {
	RANDOM_TOKEN,
};

void sampler_philox(const u32 ctr[4], const u32 key[2], u32 out[4])
{
	u32 c0 = ctr[0], c1 = ctr[1], c2 = ctr[2], c3 = ctr[3];
	u32 k0 = key[0], k1 = key[1];
	u64 p0, p1;
	int i;

	for (i = 0; i < PHILOX_ROUNDS; i++) {
		p0 = (u64)PHILOX_M0 * c0;
		p1 = (u64)PHILOX_M1 * c2;
		c0 = (u32)(p1 >> 32) ^ c1 ^ k0;
		c2 = (u32)(p0 >> 32) ^ c3 ^ k1;
		c1 = (u32)p1;
		c3 = (u32)p0;
		k0 += PHILOX_W0;
		k1 += PHILOX_W1;
	}
	out[0] = c0;
	out[1] = c1;
	out[2] = c2;
	out[3] = c3;
}

double sampler_random(struct sampler_key key, u64 position)
{
	u32 ctr[4] = {
		(u32)position, (u32)(position >> 32), key.sample, RANDOM_TOKEN,
	};
	u32 k[2] = { (u32)key.seed, (u32)(key.seed >> 32) };
	u32 out[4];

	sampler_philox(ctr, k, out);
	return (double)(((u64)out[1] << 32 | out[0]) >> 11) * 0x1p-53;
}
