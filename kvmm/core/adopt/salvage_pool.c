// SPDX-License-Identifier: Apache-2.0
/*
 * salvage_pool.c - extents, spans and blocks of a salvaged arena
 *
 * A span is valid if its record and all of its extents agree: it was cut and not
 * yet released.  Its blocks have the content that salvage_index.c has proven.
 * Of the other blocks of the device, a FREE one is free, and any other is
 * quarantined.  A slot of a lower pool without an entry is free, since no
 * request is in flight any more.
 */
#include "kvmm/core/adopt/adopt.h"

/* ---- extents and spans ---- */

static bool extent_is_in(const struct core *c, u32 e, u32 first, u32 dom)
{
	const struct kv_extent *x = &c->extents[e];

	return x->state == EXT_SPAN && x->span == first && x->domain == dom &&
	       x->backed && x->tenant ==
	       c->domains[part_domain(c, dom)].tenant;
}

/* Is the span in the device pools of its domain, at a place where a search finds it? */
static bool span_is_home(const struct core *c, u32 first)
{
	const struct kv_span *sp = &c->spans[first];
	const struct kv_domain *d = &c->domains[sp->domain];

	return zone_of(c, first) == d->zone &&
	       (first - domain_zone(c, d)->first) % sp->nr_extents == 0 &&
	       run_is_inside(c, first, sp->nr_extents, d->shards);
}

/**
 * salvage_span() - number of extents of the span that begins at an extent
 * Return: 0: no valid span begins there.
 */
u32 salvage_span(const struct core *c, u32 pool, u32 first)
{
	const struct kv_span *sp = &c->spans[first];
	const struct kv_pool *p = core_pool(c, pool);
	const struct kv_part *part;
	u32 e, n;

	if (!sp->nr_extents || sp->domain >= core_sizes(c)->nr_parts ||
	    part_pool(c, sp->domain) != pool)
		return 0;
	part = part_at(c, sp->domain);
	if (!part->used || !c->domains[part_domain(c, sp->domain)].used ||
	    sp->nr_extents != part->span_extents ||
	    first + sp->nr_extents > p->first + p->nr_extents ||
	    (!pool && !span_is_home(c, first)))
		return 0;
	for_each_span_extent(c, e, n, first)
		if (!extent_is_in(c, e, first, sp->domain))
			return 0;
	return sp->nr_extents;
}

/* Reset an extent that is in no span. */
static void extent_reset(struct core *c, struct walk *w, u32 pool, u32 e)
{
	struct kv_extent *x = &c->extents[e];
	bool back = x->state == EXT_REVOKING;
	struct kv_zone *z = extent_zone(c, e);

	memset(&c->spans[e], 0, sizeof(c->spans[e]));
	x->domain = CORE_NONE;
	x->span = e;
	if (pool) {
		x->state = EXT_BACKED;
		x->backed = 1;
		return;
	}
	expect(w, "adopt", "memory of extent", e, x->backed > 1, 0);
	if (!x->backed) {
		x->state = e < zone_end(z) ? EXT_ABSENT : EXT_OFFLINE;
		return;
	}
	if (x->tenant >= core_cfg(c)->max_tenants ||
	    !c->tenants[x->tenant].used)
		walk_fault(w, "adopt", "tenant of extent", e, x->tenant, 0);
	/* Clients may have unmapped it already: finish the revocation. */
	KV_BUG_ON(x->state == EXT_SPAN && c->spans[e].nr_extents);
	x->state = back ? EXT_REVOKING : EXT_BACKED;
	x->want = back ? EXT_WANT_SIZE : 0;
	if (back || e >= zone_end(z))
		z->resizing = 1;
}

/* Of the clients that exist, keep those that may have the extent mapped. */
static void extent_holders(struct core *c, u32 e)
{
	struct kv_extent *x = &c->extents[e];
	u64 clients = 0;
	u32 i;

	for (i = 0; i < core_cfg(c)->max_clients && x->backed; i++)
		if (c->clients[i].state != CLI_FREE && client_maps(c, i, e))
			clients |= BIT_ULL(i);
	x->sent &= clients;
	/*
	 * A client that was never sent a revoked extent does not have it
	 * mapped.
	 */
	if (x->state == EXT_REVOKING)
		x->sent &= ~x->owed | x->mapped;
	x->mapped &= x->sent;
	x->owed &= x->sent & ~x->mapped;
	x->haunted = x->backed && x->haunted;
	for (i = 0; i < core_cfg(c)->max_clients; i++)
		if ((x->sent & ~x->mapped & BIT_ULL(i)) &&
		    x->state != EXT_REVOKING)
			extent_unacked(c, i, 1);
}

/* A valid span begins at @first: none begins in another of its extents. */
static void span_keeps(struct core *c, u32 pool, u32 first)
{
	u32 e, n;

	for_each_span_extent(c, e, n, first) {
		struct kv_zone *z = extent_zone(c, e);

		c->extents[e].want = 0;
		if (!pool && e >= zone_end(z))
			z->resizing = 1;
		if (e != first)
			memset(&c->spans[e], 0, sizeof(c->spans[e]));
	}
}

/* Is the extent in a valid span that begins in a device pool before its own? */
static bool is_shard(const struct core *c, u32 e)
{
	const struct kv_extent *x = &c->extents[e];

	return x->state == EXT_SPAN && x->span < e && c->spans[x->span].nr_extents &&
	       run_has(c, x->span, c->spans[x->span].nr_extents,
		       part_shards(c, c->spans[x->span].domain), e);
}

static void pool_extents(struct core *c, struct walk *w, u32 pool)
{
	struct kv_pool *p = core_pool(c, pool);
	u32 e, nr = 0, end = p->first + p->nr_extents;
	struct kv_zone *z;

	p->loose = 0;
	for (e = p->first; e < end; e += max(nr, 1u)) {
		nr = salvage_span(c, pool, e);
		KV_BUG_ON(e + nr > end);
		if (nr)
			span_keeps(c, pool, e);
		if (nr || is_shard(c, e))
			continue;
		z = extent_zone(c, e);
		c->extents[e].want = 0;
		extent_reset(c, w, pool, e);
		if (pool)
			p->loose += c->extents[e].state == EXT_BACKED;
		else
			z->loose += c->extents[e].state == EXT_BACKED ||
				    c->extents[e].state == EXT_ABSENT;
	}
	KV_BUG_ON(p->loose > p->nr_extents);
}

/* Clear the extents of areas that do not exist. */
static void areas_clear(struct core *c)
{
	u32 e, i, all = core_sizes(c)->all_extents;

	for (i = CORE_POOL_AREA; i < CORE_NR_POOLS; i++) {
		u32 end = i + 1 < CORE_NR_POOLS ? core_pool(c, i + 1)->first :
						  all;

		for (e = core_pool(c, i)->first + core_pool(c, i)->nr_extents;
		     e < end; e++) {
			memset(&c->extents[e], 0, sizeof(c->extents[e]));
			memset(&c->spans[e], 0, sizeof(c->spans[e]));
			c->extents[e].domain = CORE_NONE;
			c->extents[e].span = e;
		}
	}
}

/**
 * salvage_extents() - restore the extents that have memory, and the spans
 */
void salvage_extents(struct core *c, struct walk *w)
{
	u32 i;

	for (i = 0; i < CORE_NR_POOLS; i++)
		pool_extents(c, w, i);
	areas_clear(c);
	for (i = 0; i < core_sizes(c)->nr_extents; i++)
		extent_holders(c, i);
}

/* ---- blocks ---- */

/**
 * salvage_in_span() - the part in which a span has this block
 * Return: CORE_NONE: the block is in no span.
 */
u32 salvage_in_span(const struct core *c, u32 blk)
{
	const struct kv_extent *x;
	const struct kv_span *sp;
	u32 base;

	if (blk >= core_sizes(c)->nr_blocks)
		return CORE_NONE;
	x = &c->extents[blk >> core_sizes(c)->block_shift];
	if (x->state != EXT_SPAN)
		return CORE_NONE;
	sp = &c->spans[x->span];
	base = x->span * core_sizes(c)->blocks_per_extent;
	return blk < base + part_at(c, sp->domain)->span_blocks ? sp->domain :
								 CORE_NONE;
}

/* Reset a block of the device; BLKF_INDEXED says that its name is proven. */
static void block_reset(struct core *c, u32 dom, u32 blk)
{
	struct kv_block *b = &c->blocks[blk];
	bool cached = b->flags & BLKF_INDEXED;
	u32 node = b->node, entry = b->entry, nr_ids = b->nr_ids, group = b->group;
	bool free = b->state == BLK_FREE;

	KV_BUG_ON(dom >= core_cfg(c)->max_domains);
	KV_BUG_ON(cached && c->nodes[node].ref != blk);
	memset(b, 0, offsetof(struct kv_block, hash));
	b->domain = (u16)dom;
	b->next = CORE_NONE;
	b->prev = CORE_NONE;
	b->hash_next = CORE_NONE;
	b->entry = cached ? entry : CORE_NONE;
	if (cached) {
		b->state = BLK_CACHED;
		b->node = node;
		b->group = group & 7;
		block_set_ids(b, nr_ids);
	} else if (!free) {
		b->state = BLK_QUARANTINE;
		b->flags = BLKF_SALVAGED;
		KV_BUG_ON(c->domains[dom].salvaged >= core_sizes(c)->nr_blocks);
		c->domains[dom].salvaged++;
	}
}

/* Reset a slot: used by an entry, or free.  A failed one stays out of use. */
static void slot_reset(struct core *c, u32 part, u32 blk)
{
	struct kv_block *b = &c->blocks[blk];
	bool failed = b->state == BLK_POISON && !(b->flags & BLKF_BAD), used = c->scratch[blk];

	KV_BUG_ON(part_pool(c, part) == CORE_POOL_DEV || c->scratch[blk] > 1);
	memset(b, 0, offsetof(struct kv_block, written));
	b->domain = (u16)part;
	b->next = CORE_NONE;
	b->prev = CORE_NONE;
	b->hash_next = CORE_NONE;
	b->entry = CORE_NONE;
	b->state = used ? BLK_SEALED : failed ? BLK_POISON : BLK_FREE;
	/* It may have been partly written. */
	b->written += !used;
}

static void span_blocks(struct core *c, u32 first)
{
	u32 dom = c->spans[first].domain, blk, end;

	blk = first * core_sizes(c)->blocks_per_extent;
	end = blk + part_at(c, dom)->span_blocks;
	KV_BUG_ON(c->spans[first].nr_extents != part_at(c, dom)->span_extents);
	KV_BUG_ON(end > core_sizes(c)->nr_blocks);
	for (; blk < end; blk++)
		if (part_pool(c, dom))
			slot_reset(c, dom, blk);
		else
			block_reset(c, dom, blk);
	span_recut(c, first);
	KV_BUG_ON(c->spans[first].nr_free + c->spans[first].nr_cached >
		  c->spans[first].nr_blocks);
}

/**
 * salvage_blocks() - restore the blocks of all spans from the proven content
 *
 * Context: after salvage_index(); scratch says which slots entries use.
 */
void salvage_blocks(struct core *c)
{
	u32 e;

	for (e = 0; e < core_sizes(c)->all_extents; e++)
		if (c->spans[e].nr_extents)
			span_blocks(c, e);
}
