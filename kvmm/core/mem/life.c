// SPDX-License-Identifier: Apache-2.0
/*
 * life.c - lifetime histograms of blocks, and counts of preemptions
 *
 *	 FREE ->  OPEN/SEALED  ->  CACHED  ->  SEALED  ->  CACHED  ->  FREE
 *	 |                         |<-reuse gap->|         |<-- idle -->|
 *	 |<----------------------------- lifetime ------------------------>|
 *
 * Each domain has three histograms with fixed bounds.  They show whether the
 * cache keeps blocks that are used again (reuse gaps much shorter than the idle
 * time before eviction), or is turned over.  A block has no space for time
 * stamps, so LIFE_SAMPLES blocks have them in a table of their own, always the
 * same blocks: one of each group of 2^shift neighbours.  Its place in the group
 * is a hash of the group's number, so that it is not always the first of a span.
 * A pool of fewer blocks is sampled whole.  For all other blocks a change of
 * state costs one multiplication.
 *
 * A block that moves (migrate.c) ends at the old place and is born at the new
 * one.
 *
 * Preemptions are counted by cause, with the tokens that must be found or
 * computed again.  They are not sampled.
 */
#include "kvmm/core/mem/mem.h"

static const u64 bounds[CORE_LIFE_BOUNDS] = {
#define x(ns, le) ns,
	CORE_LIFE_LES(x)
#undef x
};

void life_init(struct core *c)
{
	u32 nr = core_sizes(c)->nr_extents * core_sizes(c)->blocks_per_extent;

	c->head->life_shift = 0;
	while (DIV_ROUND_UP(nr, 1u << c->head->life_shift) > LIFE_SAMPLES)
		c->head->life_shift++;
}

/* States were set without life_block(): ages are unknown. */
void life_reset(struct core *c)
{
	memset(c->samples, 0, sizeof(*c->samples) * LIFE_SAMPLES);
}

/* A new domain. */
void life_domain(struct core *c, u32 dom)
{
	memset(&c->lives[dom], 0, sizeof(c->lives[dom]));
}

static void life_observe(struct core *c, u32 dom, u32 what, u64 since)
{
	struct core_hist *h = &c->lives[dom].v.hist[what];
	u64 ns = c->now - since;
	u32 i = 0;

	if (!since)
		return;
	while (i < CORE_LIFE_BOUNDS && ns > bounds[i])
		i++;
	h->count[i]++;
	h->sum_ns += ns;
}

/* A sampled block, by life_is_sampled(), changes its state. */
void life_block(struct core *c, u32 blk, u32 from, u32 to)
{
	u32 dom = c->blocks[blk].domain;
	struct kv_sample *s;

	if (part_pool(c, dom))
		return;
	KV_BUG_ON(blk >> c->head->life_shift >= LIFE_SAMPLES);
	s = &c->samples[blk >> c->head->life_shift];
	if (from == BLK_FREE)
		*s = (struct kv_sample){ .born = c->now };
	if (from == BLK_CACHED)
		life_observe(c, dom, to == BLK_SEALED ? CORE_LIFE_reuse_gap :
							CORE_LIFE_idle,
			     s->cached);
	s->cached = to == BLK_CACHED ? c->now : 0;
	if (to == BLK_FREE)
		life_observe(c, dom, CORE_LIFE_lifetime, s->born);
}

/**
 * life_preempted() - a sequence lost its memory
 * @cause:  CORE_CAUSE_*
 * @kept:   it was swapped out
 * @tokens: else tokens that must be found again or computed
 */
void life_preempted(struct core *c, u32 dom, u32 cause, bool kept, u32 tokens)
{
	struct core_life_view *v = &c->lives[dom].v;

	KV_BUG_ON(cause >= NR_CORE_CAUSES);
	v->preempted[cause][kept]++;
	if (!kept)
		v->lost_tokens[cause] += tokens;
}

/* The histograms of domain @dom, a used one; -ERANGE past the last. */
int core_get_life(const struct core *c, u32 dom, struct core_life_view *v)
{
	if (dom >= core_cfg(c)->max_domains)
		return -ERANGE;
	*v = c->lives[dom].v;
	return 0;
}

/* One block of so many is sampled. */
u32 core_life_interval(const struct core *c)
{
	return 1u << c->head->life_shift;
}
