// SPDX-License-Identifier: Apache-2.0
/*
 * evict.c - evict cached blocks of a domain, those of least worth first
 *
 * Four callers, four bounds: the domain itself that needs room, another
 * domain that may have the blocks that this one can spare, a span that is about
 * to leave its domain, and one that is about to leave the pool.  lru.c says which
 * block is next; of blocks that are worth as much, one with a copy on a lower tier
 * comes first.  demote.c says whether a block gets a copy.  An evicted block with its
 * copy in flight is LIMBO, and free when the copy ends: the request that needs it
 * waits for that (ROOM_MADE).
 */
#include "kvmm/core/reclaim/reclaim.h"

#define WORK_EVICT	32u	/* see core_work() */
#define LEAVE_COPIES	1024u	/* copies in flight while a span leaves the pool */
#define PEERS		16u	/* blocks among which one with a copy is preferred */

/* Does the block's eviction give its domain a free block? */
static bool frees_block(const struct core *c, u32 blk)
{
	return !span_is_isolated(&c->spans[block_span(c, blk)]);
}

/* Does a swapped sequence need the content?  Its restore would copy it in again. */
static bool is_needed(const struct core *c, u32 blk)
{
	u32 e = c->blocks[blk].entry;

	return e != CORE_NONE && c->entries_low[e].refs;
}

/* Has the block a complete copy on a lower tier? */
static bool is_clean(const struct core *c, u32 blk)
{
	const struct kv_block *b = &c->blocks[blk];

	return b->entry != CORE_NONE && !b->nr_copy &&
	       entry_is_there(c, b->entry);
}

/*
 * Of the next blocks on the list of @blk, which are worth as much, one that no swapped
 * sequence needs, with a copy if there is such a one; else @blk.
 */
static u32 best_peer(const struct core *c, u32 blk, bool any)
{
	u32 i = blk, best = CORE_NONE, n;

	for (n = 0; i != CORE_NONE && n < PEERS; n++, i = c->blocks[i].next) {
		if (is_needed(c, i) || (!any && !frees_block(c, i)))
			continue;
		if (is_clean(c, i))
			return i;
		if (best == CORE_NONE)
			best = i;
	}
	return best == CORE_NONE ? blk : best;
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
	return i == CORE_NONE ? i : best_peer(c, i, any);
}

/* A block is evicted, after demote_block() returned @got. */
static void count_copy(struct core *c, enum demote got)
{
	core_count(c, CORE_EV_evict_no_copy, got == DEMOTE_NOT);
	core_count(c, CORE_EV_evict_dear, got == DEMOTE_DEAR);
}

/*
 * Evict a block, which gets a copy on a lower tier first if that pays.
 * Return: false: it stays, since a slot for its copy is on its way.
 */
static bool evict_block(struct core *c, u32 dom, u32 blk)
{
	enum demote got = demote_block(c, dom, blk);

	if (got == DEMOTE_WAITS || got == DEMOTE_GONE)
		return got == DEMOTE_GONE;
	KV_BUG_ON(c->blocks[blk].state != BLK_CACHED);
	count_copy(c, got);
	index_evict(c, blk);
	core_count(c, CORE_EV_reclaim_direct, 1);
	return true;
}

/* Would @nr more blocks be above @mark, when the evicted blocks are free? */
static bool is_above(const struct kv_domain *d, u32 nr, u32 mark)
{
	return (u64)domain_used(d) - domain_leaving(d) + d->dev.reserved + nr >
	       mark;
}

/* The answer of room_evict(); @slot: a slot for the next copy is on its way. */
static enum verdict evict_verdict(struct core *c, struct kv_domain *d, u32 nr,
				  bool slot)
{
	bool now = domain_slack(d) >= nr && (u64)domain_used(d) +
		   d->dev.reserved + nr <= d->dev.max_blocks;
	bool waits = !now && (slot || domain_leaving(d));

	demote_waits(c, d, waits);
	return now ? ROOM_NOW : waits ? ROOM_MADE : ROOM_NONE;
}

/**
 * room_evict() - drop cache of the domain until @nr blocks are free
 *
 * Also keeps used, reserved and wanted blocks together within memory.max, and
 * within memory.high as far as its cache reaches.  Blocks without a copy on a lower
 * tier get one first, if that pays.
 * Return: ROOM_NOW; ROOM_MADE: there will be room when copies have ended; or
 * ROOM_NONE when the cache was not enough.
 */
enum verdict room_evict(struct core *c, u32 dom, u32 nr)
{
	struct kv_domain *d = &c->domains[dom];
	u32 mark = min(d->dev.max_blocks, d->high_blocks), blk, limited = 0;
	bool slot = false;

	c->taker = dom;
	KV_BUG_ON(!d->used || d->dev.keep_spans);
	/* The domain is about to use a span that falls empty now. */
	d->dev.keep_spans = 1;
	while (!slot) {
		bool over = is_above(d, nr, mark);

		if (!over && domain_slack(d) + domain_leaving(d) >= nr)
			break;
		blk = evict_next(c, dom, over);
		if (blk == CORE_NONE)
			break;
		core_work(c, WORK_EVICT);
		slot = !evict_block(c, dom, blk);
		limited += over && !slot;
	}
	d->dev.keep_spans = 0;
	if (limited) {
		core_tell(c, limit_reclaim, .domain = dom, .blocks = limited,
			  .used = domain_used(d), .allowed = mark);
	}
	return evict_verdict(c, d, nr, slot);
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
	while (domain_slack(d) + domain_leaving(d) < nr) {
		blk = evict_next(c, dom, false);
		if (blk == CORE_NONE)
			break;
		cost = index_evict_cost(c, blk);
		if (limit_cache_floor(d, cost) || !limit_may_lose(d, cost, true) ||
		    !evict_block(c, dom, blk))
			break;
	}
	d->dev.keep_spans = 0;
}

/**
 * evict_from_span() - evict a block of a span for another domain
 *
 * With a copy first, if that pays and a slot is free.  Then the block is LIMBO until
 * the copy ends, and core.demoted is set.
 */
void evict_from_span(struct core *c, u32 dom, u32 blk)
{
	enum demote got = demote_block(c, dom, blk);

	if (got == DEMOTE_GONE)
		return;
	/* The request does not wait for a write: the content is lost. */
	count_copy(c, got == DEMOTE_WAITS ? DEMOTE_NOT : got);
	c->demoted |= got == DEMOTE_DONE && c->blocks[blk].nr_copy;
	index_evict(c, blk);
}

/*
 * span_evict_cached() - evict the cached blocks of a span
 *
 * Evicting a block also evicts the blocks that follow it in a prompt.  They may be
 * the last ones of other spans.  Those spans stay with their domain, since its
 * spare blocks were counted with them.
 *
 * A block with its copy in flight is LIMBO and keeps the span until the copy ends;
 * core.demoted says so.
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
			evict_from_span(c, c->spans[first].domain, i);
			nr++;
		}
	owner->dev.keep_spans = 0;
	core_count(c, CORE_EV_reclaim_direct, nr);
	return nr;
}

/*
 * Evict a block of a span that leaves the pool, with a copy first, if that pays.
 * Return: false: it stays for now.
 */
static bool evict_leaving(struct core *c, u32 dom, u32 blk, bool waits)
{
	enum demote got;

	if (c->head->nr_copies >= LEAVE_COPIES && c->blocks[blk].entry == CORE_NONE)
		return false;
	got = demote_block(c, dom, blk);
	if (got == DEMOTE_FULL && demote_may_write(c, dom))
		got = DEMOTE_WAITS;
	if (got == DEMOTE_GONE || (got == DEMOTE_WAITS && waits))
		return got == DEMOTE_GONE;
	count_copy(c, got == DEMOTE_WAITS ? DEMOTE_NOT : got);
	index_evict(c, blk);
	core_count(c, CORE_EV_resize_evict, 1);
	return true;
}

/**
 * span_evict_leaving() - evict the cached blocks of a span that leaves the pool
 * @first: its first extent; it is isolated
 * @waits: a block for whose copy a host slot is on its way stays
 *
 * No limit protects them.  A block with its copy in flight is LIMBO and keeps the
 * span until the copy ends.  A block that stays is for a later call.  The span may
 * be released meanwhile.
 */
void span_evict_leaving(struct core *c, u32 first, bool waits)
{
	const struct kv_span *sp = &c->spans[first];
	u32 dom = sp->domain, i = first * core_sizes(c)->blocks_per_extent;
	u32 end = i + sp->nr_blocks;

	KV_BUG_ON(!sp->nr_extents || !span_is_isolated(sp));
	for (; i < end && sp->nr_extents && sp->domain == dom && sp->nr_cached; i++)
		if (c->blocks[i].state == BLK_CACHED &&
		    !evict_leaving(c, dom, i, waits))
			return;
}
