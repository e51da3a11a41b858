// SPDX-License-Identifier: Apache-2.0
/*
 * keep_lru.c - the cache that kvmm is measured against, and draws by Zipf's law
 *
 * A block is found only if all blocks before it are, so the blocks of a prompt are
 * touched from the last to the first, and the oldest block of all is the last one
 * that the oldest prompt still has.  A prompt that runs has all its blocks, in this
 * cache as in kvmm.
 */
#include <math.h>
#include <stdlib.h>

#include "tests/bench/keep.h"

#define THETA		0.9		/* of Zipf's law */
#define SPREAD		7919u		/* a prime, more than there are prompts */

struct keep_lru *keep_lru_new(u32 cap, u32 nr)
{
	struct keep_lru *l = calloc(1, sizeof(*l) + nr * sizeof(l->prompt[0]));

	if (!l)
		bench_die("no memory for an LRU of %u prompts", nr);
	l->cap = cap;
	l->nr = nr;
	return l;
}

static u32 oldest(const struct keep_lru *l)
{
	u32 i, old = ~0u;

	for (i = 0; i < l->nr; i++)
		if (l->prompt[i].blocks &&
		    (old == ~0u ||
		     l->prompt[i].used_at < l->prompt[old].used_at))
			old = i;
	return old;
}

u32 keep_lru_serve(struct keep_lru *l, u32 prompt, u32 blocks, u32 more)
{
	const u32 found = l->prompt[prompt].blocks;

	if (l->cap < blocks + more)
		bench_die("a prompt of %u blocks, an LRU of %u", blocks, l->cap);
	l->prompt[prompt].blocks = blocks;
	l->prompt[prompt].used_at = ++l->clock;
	for (l->used += blocks - found; l->used + more > l->cap; l->used--)
		l->prompt[oldest(l)].blocks--;
	return found;
}

double keep_uniform(u64 *rng)
{
	return (double)(keep_mix(++*rng) >> 11) / (double)(1ull << 53);
}

void keep_draw_zipf(u32 *order, u32 nr, u32 prompts, u64 seed)
{
	double all = 0, left;
	u64 rng = seed;
	u32 i, k;

	for (i = 0; i < prompts; i++)
		all += pow(i + 1, -THETA);
	for (i = 0; i < nr; i++) {
		left = keep_uniform(&rng) * all;
		for (k = 0; k < prompts - 1; k++) {
			left -= pow(k + 1, -THETA);
			if (left < 0)
				break;
		}
		order[i] = k * SPREAD % prompts;
	}
}
