// SPDX-License-Identifier: Apache-2.0
/*
 * evict.c - evict cached blocks of a domain, those of least worth first
 *
 * Three callers, three bounds: the domain itself that needs room, another
 * domain that may have what this one can spare, and a span that is about to
 * leave its domain.  lru.c says which block is next.
 */
#include "kvmm/core/reclaim/reclaim.h"

#define WORK_EVICT	32u	/* see core_work() */

/* Does the block's eviction give its domain a free block? */
static bool frees_block(const struct core *c, u32 blk)
{
	return !span_is_isolated(&c->spans[block_span(c, blk)]);
}

/*
 * The block to evict next.  Blocks of isolated spans count only with @any: their
 * eviction gives the domain no free block.
 */
static u32 evict_next(const struct core *c, u32 dom, bool any)
{
	u32 i = lru_next(c, dom);

	while (!any && i != CORE_NONE && !frees_block(c, i))
		i = lru_after(c, i);
	if (i == CORE_NONE && domain_cached(&c->domains[dom]))
		i = lru_search(c, dom, frees_block);
	KV_BUG_ON(i != CORE_NONE && c->blocks[i].domain != dom);
	return i;
}

/**
 * room_evict() - drop cache of the domain until @nr blocks are free
 *
 * Also keeps used, reserved and wanted blocks together within memory.max, and
 * within memory.high as far as its cache reaches.
 * Return: ROOM_NOW, or ROOM_NONE when the cache was not enough.
 */
enum verdict room_evict(struct core *c, u32 dom, u32 nr)
{
	struct kv_domain *d = &c->domains[dom];
	u32 mark = min(d->dev.max_blocks, d->high_blocks), blk, limited = 0;

	c->taker = dom;
	KV_BUG_ON(!d->used || d->dev.keep_spans);
	/* The domain is about to use a span that falls empty now. */
	d->dev.keep_spans = 1;
	for (;;) {
		bool over = (u64)domain_used(d) + d->dev.reserved + nr > mark;

		if (!over && domain_slack(d) >= nr)
			break;
		blk = evict_next(c, dom, over);
		if (blk == CORE_NONE)
			break;
		core_work(c, WORK_EVICT);
		limited += over;
		KV_BUG_ON(c->blocks[blk].state != BLK_CACHED);
		index_evict(c, blk);
		core_count(c, CORE_EV_reclaim_direct, 1);
	}
	d->dev.keep_spans = 0;
	if (limited) {
		core_tell(c, limit_reclaim, .domain = dom, .blocks = limited,
			  .used = domain_used(d), .allowed = mark);
	}
	return domain_slack(d) < nr || (u64)domain_used(d) + d->dev.reserved + nr >
	       d->dev.max_blocks ? ROOM_NONE : ROOM_NOW;
}

/**
 * room_evict_spare() - drop cache of a domain for others, until @nr blocks are free
 *
 * As far as its limits allow.  A span that falls empty stays with the domain.
 */
void room_evict_spare(struct core *c, u32 dom, u32 nr)
{
	struct kv_domain *d = &c->domains[dom];
	u32 blk, cost;

	KV_BUG_ON(!d->used || d->dev.keep_spans);
	d->dev.keep_spans = 1;
	while (domain_slack(d) < nr) {
		blk = evict_next(c, dom, false);
		if (blk == CORE_NONE)
			break;
		cost = index_evict_cost(c, blk);
		if (limit_cache_floor(d, cost) || !limit_may_lose(d, cost, true))
			break;
		KV_BUG_ON(c->blocks[blk].state != BLK_CACHED);
		index_evict(c, blk);
		core_count(c, CORE_EV_reclaim_direct, 1);
	}
	d->dev.keep_spans = 0;
}

/*
 * span_evict_cached() - evict the cached blocks of a span
 *
 * Evicting a block also evicts the blocks that follow it in a prompt.  They may be
 * the last ones of other spans.  Those spans stay with their domain, since its
 * spare blocks were counted with them.
 *
 * Return: evicted blocks of the span, without those that followed them.
 */
u32 span_evict_cached(struct core *c, u32 first)
{
	struct kv_domain *owner = &c->domains[c->spans[first].domain];
	u32 base = first * core_sizes(c)->blocks_per_extent;
	u32 i, nr = 0;

	KV_BUG_ON(!c->spans[first].nr_extents || owner->dev.keep_spans);
	owner->dev.keep_spans = 1;
	for (i = base; i < base + c->spans[first].nr_blocks; i++)
		if (c->blocks[i].state == BLK_CACHED &&
		    (!owner->emin ||
		     limit_may_lose(owner, index_evict_cost(c, i), true))) {
			index_evict(c, i);
			nr++;
		}
	owner->dev.keep_spans = 0;
	core_count(c, CORE_EV_reclaim_direct, nr);
	return nr;
}
