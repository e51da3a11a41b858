// SPDX-License-Identifier: Apache-2.0
/*
 * salvage_pool.c - extents, spans and blocks of an arena that is salvaged
 *
 * A span is one if its record and all of its extents say so: it was cut and
 * not yet released.  Whatever it holds is what salvage_index.c has proven;
 * else a block is free if it says so, and quarantined if it says anything
 * else.  A slot of a lower pool that is nobody's is free: nothing is in
 * flight any more.
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

/**
 * salvage_span() - does a span begin at an extent of a pool?
 * Return: its extents, 0: none does.
 */
u32 salvage_span(const struct core *c, u32 pool, u32 first)
{
	const struct kv_span *sp = &c->spans[first];
	const struct kv_pool *p = core_pool(c, pool);
	const struct kv_part *part;
	u32 e;

	if (!sp->nr_extents || sp->domain >= core_sizes(c)->nr_parts ||
	    part_pool(c, sp->domain) != pool)
		return 0;
	part = part_at(c, sp->domain);
	if (!part->used || !c->domains[part_domain(c, sp->domain)].used ||
	    sp->nr_extents != part->span_extents ||
	    first + sp->nr_extents > p->first + p->nr_extents)
		return 0;
	for (e = first; e < first + sp->nr_extents; e++)
		if (!extent_is_in(c, e, first, sp->domain))
			return 0;
	return sp->nr_extents;
}

/* An extent in no span. */
static void extent_reset(struct core *c, struct walk *w, u32 pool, u32 e)
{
	struct kv_extent *x = &c->extents[e];
	bool back = x->state == EXT_REVOKING;

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
		x->state = e < c->head->nr_online ? EXT_ABSENT : EXT_OFFLINE;
		return;
	}
	if (x->tenant >= core_cfg(c)->max_tenants ||
	    !c->tenants[x->tenant].used)
		walk_fault(w, "adopt", "tenant of extent", e, x->tenant, 0);
	/* Who was asked may have let go of it: it goes all the way. */
	x->state = back ? EXT_REVOKING : EXT_BACKED;
	x->want = back ? EXT_WANT_SIZE : 0;
	if (back || e >= c->head->nr_online)
		c->head->resizing = 1;
}

/* Who may have it mapped, of those who are there. */
static void extent_holders(struct core *c, u32 e)
{
	struct kv_extent *x = &c->extents[e];
	u64 clients = 0;
	u32 i;

	for (i = 0; i < core_cfg(c)->max_clients && x->backed; i++)
		if (c->clients[i].state != CLI_FREE &&
		    c->clients[i].tenant == x->tenant)
			clients |= BIT_ULL(i);
	x->sent &= clients;
	/* It was asked back, and a client that was never sent it has nothing. */
	if (x->state == EXT_REVOKING)
		x->sent &= ~x->owed | x->mapped;
	x->mapped &= x->sent;
	x->owed &= x->sent & ~x->mapped;
	x->haunted = x->backed && x->haunted;
	for (i = 0; i < core_cfg(c)->max_clients; i++)
		if ((x->sent & ~x->mapped & BIT_ULL(i)) &&
		    x->state != EXT_REVOKING)
			c->clients[i].nr_unacked++;
}

static void pool_extents(struct core *c, struct walk *w, u32 pool)
{
	struct kv_pool *p = core_pool(c, pool);
	u32 e, nr = 0, end = p->first + p->nr_extents, i;

	p->loose = 0;
	for (e = p->first; e < end; e += nr) {
		nr = salvage_span(c, pool, e);
		for (i = e; i < e + nr; i++)
			c->extents[i].want = 0;
		if (nr && e + nr > c->head->nr_online && !pool)
			c->head->resizing = 1;
		for (i = e + 1; i < e + nr; i++)
			memset(&c->spans[i], 0, sizeof(c->spans[i]));
		if (nr)
			continue;
		nr = 1;
		c->extents[e].want = 0;
		extent_reset(c, w, pool, e);
		p->loose += c->extents[e].state == EXT_BACKED ||
			    (!pool && c->extents[e].state == EXT_ABSENT);
	}
}

/* Extents of areas that are not there. */
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
 * salvage_extents() - which extents have memory, and are whose spans
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
 * salvage_in_span() - does the block lie in a span of a domain's part?
 * Return: the part, or CORE_NONE.
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

/* A block of the device: cache if it is proven, which is in its flags now. */
static void block_reset(struct core *c, u32 dom, u32 blk)
{
	struct kv_block *b = &c->blocks[blk];
	bool cached = b->flags & BLKF_INDEXED;
	u32 node = b->node, entry = b->entry;
	u8 nr_ids = b->nr_ids;
	bool free = b->state == BLK_FREE;

	memset(b, 0, offsetof(struct kv_block, hash));
	b->domain = (u16)dom;
	b->next = CORE_NONE;
	b->prev = CORE_NONE;
	b->hash_next = CORE_NONE;
	b->entry = cached ? entry : CORE_NONE;
	if (cached) {
		b->state = BLK_CACHED;
		b->node = node;
		b->nr_ids = nr_ids;
	} else if (!free) {
		b->state = BLK_QUARANTINE;
		b->flags = BLKF_SALVAGED;
		c->domains[dom].salvaged++;
	}
}

/* A slot: its entry's, or free.  One that failed stays out of use. */
static void slot_reset(struct core *c, u32 part, u32 blk)
{
	struct kv_block *b = &c->blocks[blk];
	bool failed = b->state == BLK_POISON && !(b->flags & BLKF_BAD), used = c->scratch[blk];

	memset(b, 0, offsetof(struct kv_block, written));
	b->domain = (u16)part;
	b->next = CORE_NONE;
	b->prev = CORE_NONE;
	b->hash_next = CORE_NONE;
	b->entry = CORE_NONE;
	b->state = used ? BLK_SEALED : failed ? BLK_POISON : BLK_FREE;
	/* It may have been half written for somebody. */
	b->written += !used;
}

static void span_blocks(struct core *c, u32 first)
{
	u32 dom = c->spans[first].domain, blk, end;

	blk = first * core_sizes(c)->blocks_per_extent;
	end = blk + part_at(c, dom)->span_blocks;
	for (; blk < end; blk++)
		if (part_pool(c, dom))
			slot_reset(c, dom, blk);
		else
			block_reset(c, dom, blk);
	span_recut(c, first);
}

/**
 * salvage_blocks() - what is in the spans, from what was proven
 *
 * Context: after salvage_index(); scratch tells which slots are entries'.
 */
void salvage_blocks(struct core *c)
{
	u32 e;

	for (e = 0; e < core_sizes(c)->all_extents; e++)
		if (c->spans[e].nr_extents)
			span_blocks(c, e);
}
