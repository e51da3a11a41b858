// SPDX-License-Identifier: Apache-2.0
/*
 * block.c - states of blocks, and the counts that decide them
 *
 *	FREE -> OPEN -> SEALED <-> CACHED
 *	          |        |          |
 *	          v        v          v
 *	      QUARANTINE / QUIESCING / FREE
 *
 * Where the device failed POISON takes the place of FREE, see device.c.
 *
 * block_refcount() counts all reasons to keep a block's content: the sequences
 * that map it, the prefix index, copies in flight.  A block without a reason is
 * FREE.  There are two exceptions.  While an open step copies from it, it is
 * QUIESCING.  While a dead client may still write it, it is QUARANTINE, until
 * the device is quiet.  To decide whether a block may be written in place, use
 * block_refcount(), never nr_map: nr_map does not count the index and copies.
 *
 * Every change of state goes through block_set_state(), which keeps the
 * counts of the domain and the span.
 */
#include "kvmm/core/mem/mem.h"

#define TO(state)	BIT(BLK_##state)

static const u16 block_may_become[NR_BLK_STATES] = {
	[BLK_FREE]	= TO(OPEN) | TO(LIMBO) | TO(POISON),
	[BLK_OPEN]	= TO(SEALED) | TO(FREE) | TO(QUIESCING) |
			  TO(QUARANTINE) | TO(LIMBO) | TO(POISON),
	[BLK_SEALED]	= TO(CACHED) | TO(FREE) | TO(QUIESCING) | TO(LIMBO) |
			  TO(POISON),
	[BLK_CACHED]	= TO(SEALED) | TO(FREE) | TO(QUIESCING) | TO(LIMBO) |
			  TO(POISON),
	[BLK_QUIESCING]	= TO(FREE) | TO(POISON),
	[BLK_QUARANTINE] = TO(FREE) | TO(QUIESCING) | TO(LIMBO) |
			  TO(POISON),
	[BLK_LIMBO]	= TO(FREE) | TO(OPEN) | TO(SEALED) | TO(CACHED) |
			  TO(QUIESCING) | TO(POISON),
	[BLK_REVOKING]	= TO(FREE),
	[BLK_POISON]	= TO(FREE),
};

static const char * const block_names[NR_BLK_STATES] = {
	[BLK_FREE]	= "free",
	[BLK_OPEN]	= "open",
	[BLK_SEALED]	= "sealed",
	[BLK_CACHED]	= "cached",
	[BLK_QUIESCING]	= "quiescing",
	[BLK_QUARANTINE] = "quarantine",
	[BLK_LIMBO]	= "limbo",
	[BLK_REVOKING]	= "revoking",
	[BLK_POISON]	= "poison",
};

const char *core_block_state_name(u32 state)
{
	return state < NR_BLK_STATES ? block_names[state] : "unknown";
}

/* The offset that kernels see: units from the base of the pool. */
u32 block_entry(const struct core *c, u32 blk)
{
	return (u32)(block_offset(c, blk) >> core_sizes(c)->unit_shift);
}

/* The ids of the block's tokens: an array of block_tokens ids. */
u32 *block_ids(const struct core *c, u32 blk)
{
	const struct kv_block *b = &c->blocks[blk];
	const struct core_sizes *s = core_sizes(c);
	u32 span = block_span(c, blk), base = span * s->blocks_per_extent;

	return c->ids + (u64)span * s->ids_per_extent +
	       (u64)(blk - base) * c->domains[part_domain(c, b->domain)].ids_tokens;
}

/*
 * A sequence that found no room may find some now.  That is a sequence of the
 * domain itself.  It is one of another domain if the span can be released, or
 * another span that covered reservations, or if the domain's cache is above its
 * floor.
 */
static void block_room_appeared(struct core *c, struct kv_domain *d,
				const struct kv_span *sp)
{
	domain_kick(d);
	if (sp->nr_free + sp->nr_cached == sp->nr_blocks || d->dev.reserved ||
	    (d->floor && d->dev.nr[BLK_CACHED] > d->floor) ||
	    core_cfg(c)->overcommit == CORE_OVERCOMMIT_NEVER)
		core_kick(c);
}

/*
 * A domain above its memory.min may lose more with each block that it takes:
 * cache, if it has so much, to any domain; any block, to a sequence within the
 * memory.min of its own domain.  Such domains are tried again only from time to
 * time, so kick them now.  This runs for every block, so it returns at once
 * where no domain is stalled.
 */
static void block_outgrew_min(struct core *c, const struct kv_domain *d)
{
	u32 beyond = domain_used(d) - d->emin, i;
	bool cache = beyond <= d->dev.nr[BLK_CACHED], none = true;

	if (c->none_stalled)
		return;
	for_each_domain(c, i) {
		struct kv_domain *o = &c->domains[i];

		if (!o->stalled)
			continue;
		none = false;
		if (domains_meet(o, d) && (cache || o->promised))
			domain_kick(o);
	}
	c->none_stalled = none;
}

/* @p: the part of the span @sp; @d: its domain, NULL if it is on a lower tier */
static void block_count(struct core *c, struct kv_span *sp, struct kv_part *p,
			const struct kv_domain *d, u32 from, u32 to)
{
	bool isolated = span_is_isolated(sp);
	u32 used;

	KV_BUG_ON(!sp->nr_extents || !p->nr[from]);
	p->nr[from]--;
	p->nr[to]++;
	if (from == BLK_CACHED) {
		sp->nr_cached--;
		p->isolated_cached -= isolated;
	}
	if (to == BLK_CACHED) {
		sp->nr_cached++;
		p->isolated_cached += isolated;
	}
	sp->nr_open -= from == BLK_OPEN;
	sp->nr_open += to == BLK_OPEN;
	if (from == BLK_FREE) {
		sp->nr_free--;
		/*
		 * An isolated span allocates no block, but its device may be
		 * lost.
		 */
		p->isolated_free -= isolated;
		used = part_used(p);
		if (used > p->peak)
			p->peak = used;
		if (d && d->emin && used > d->emin)
			block_outgrew_min(c, d);
	}
	if (to == BLK_FREE) {
		sp->nr_free++;
		p->isolated_free += isolated;
	}
}

/* The slot's next content is new.  The free list is doubly linked. */
static void slot_given_back(struct core *c, u32 blk)
{
	struct kv_block *b = &c->blocks[blk];

	b->written++;
	b->prev = CORE_NONE;
	if (b->next == CORE_NONE)
		return;
	c->blocks[b->next].prev = blk;
}

/* The block is FREE now: put it on the list of its span. */
static void block_give_back(struct core *c, struct kv_span *sp, u32 blk,
			    u32 from)
{
	struct kv_block *b = &c->blocks[blk];

	/* nr_free counts the block already. */
	if (b->entry != CORE_NONE)
		entry_forget_dev(c, blk);
	b->flags = 0;
	b->nr_ids = 0;
	b->next = sp->free_head;
	sp->free_head = blk;
	if (part_pool(c, sp->domain))
		slot_given_back(c, blk);
	else
		core_count(c, CORE_EV_pgfree, from != BLK_POISON);
}

/* The block is POISON now: it is not found and not allocated again. */
static void block_condemn(struct core *c, u32 blk, u32 from)
{
	struct kv_block *b = &c->blocks[blk];

	KV_BUG_ON(block_refcount(b) || b->nr_src);
	KV_BUG_ON(b->flags & (BLKF_MOVING | BLKF_TARGET));
	if (b->entry != CORE_NONE)
		entry_forget_dev(c, blk);
	b->flags &= BLKF_BAD;
	b->nr_ids = 0;
	if (!part_pool(c, b->domain))
		core_count(c, CORE_EV_pgfree, from != BLK_FREE);
}

/**
 * block_set_state() - the only way to change the state of a block
 *
 * A block of a failed device becomes POISON instead of FREE.
 * A block that becomes FREE is back on its span's list, and the span may leave
 * the domain: the caller must not touch either afterwards.
 */
void block_set_state(struct core *c, u32 blk, u32 state)
{
	struct kv_block *b = &c->blocks[blk];
	u32 from = b->state, span = block_span(c, blk);
	struct kv_span *sp = &c->spans[span];
	struct kv_domain *d = part_dev_domain(c, sp->domain);
	struct kv_part *p = d ? &d->dev : part_at(c, sp->domain);

	if (state == BLK_FREE && from != BLK_POISON && device_is_bad(c, blk))
		state = BLK_POISON;
	KV_BUG_ON(sp->domain != b->domain);
	KV_BUG_ON(!(block_may_become[from] & BIT(state)));
	block_count(c, sp, p, d, from, state);
	if (life_is_sampled(c, blk))
		life_block(c, blk, from, state);
	core_order();		/* the facts that the state stands for are stored */
	b->state = (u8)state;
	core_crash(c, CORE_CRASH_block_state);
	/* Only open steps read it now: no lookup may find it. */
	if (state == BLK_QUIESCING && b->entry != CORE_NONE)
		entry_forget_dev(c, blk);
	if (state == BLK_FREE)
		block_give_back(c, sp, blk, from);
	else if (state == BLK_POISON && device_is_bad(c, blk))
		block_condemn(c, blk, from);
	if (state == BLK_FREE || from == BLK_FREE)
		span_reclass(c, p, span);
	if (state == BLK_FREE || state == BLK_CACHED)
		block_room_appeared(c, d ?: &c->domains[part_domain(c, sp->domain)], sp);
	if (state == BLK_FREE &&
	    (sp->class == CORE_CLASS_EMPTY || span_is_isolated(sp)))
		span_settle(c, span);
}

/**
 * block_alloc() - take a free block for a client to write
 * @dom:    domain
 * @group:  layer group that it is for
 * @client: it must have mapped the block's extent
 *
 * Return: the block, OPEN and not mapped yet, or CORE_NONE.
 */
u32 block_alloc(struct core *c, u32 dom, u32 client, u32 group)
{
	u32 first = span_pick(c, &c->domains[dom], client);
	u32 blk;

	if (first == CORE_NONE)
		return CORE_NONE;
	blk = block_take(c, first, BLK_OPEN);
	c->blocks[blk].group = group & 7;
	c->domains[dom].alloc_nr++;
	core_count(c, CORE_EV_pgalloc, 1);
	return blk;
}

/* Take a free block of a span that has one; it gets state @state. */
u32 block_take(struct core *c, u32 first, u32 state)
{
	u32 blk = c->spans[first].free_head;
	struct kv_block *b = &c->blocks[blk];

	/* slot_take() takes the blocks of lower pools. */
	KV_BUG_ON(b->state != BLK_FREE || block_refcount(b));
	c->spans[first].free_head = b->next;
	b->next = CORE_NONE;
	block_set_state(c, blk, state);
	return blk;
}

/* The mappings of a block, if it has more than one. */
static u32 as_shared(u32 nr_map)
{
	return nr_map > 1 ? nr_map : 0;
}

/* Count a block mapped @before times; a sequence copies a shared open tail. */
static inline void block_count_shared(struct core *c, const struct kv_block *b,
				      u32 before)
{
	struct kv_domain *d = &c->domains[b->domain];

	if (b->state != BLK_OPEN && before > 1 && b->nr_map > 1)
		return;
	d->nr_shared += (u32)(b->nr_map > 1) - (before > 1);
	if (b->state == BLK_OPEN)
		d->tails += as_shared(b->nr_map) - as_shared(before);
}

/* One more sequence maps the block; a cached block becomes SEALED. */
void block_map(struct core *c, u32 blk)
{
	struct kv_block *b = &c->blocks[blk];

	if (++b->nr_map >= 2)
		block_count_shared(c, b, b->nr_map - 1);
	if (b->state == BLK_CACHED) {
		lru_del(c, blk);
		block_set_state(c, blk, BLK_SEALED);
	}
	KV_BUG_ON(b->state == BLK_FREE || b->state == BLK_POISON);
}

/**
 * block_map_many() - @nr more sequences map the blocks of a table
 * @pte: @n table entries, of blocks of the domain @d, all mapped already
 */
void block_map_many(struct core *c, struct kv_domain *d, const kv_pte_t *pte,
		    u32 n, u32 nr)
{
	u32 dom = (u32)(d - c->domains), shared = 0, i;

	for (i = 0; i < n; i++) {
		struct kv_block *b = &c->blocks[pte_block(pte[i])];

		if (!pte_is_present(pte[i]))
			continue;
		KV_BUG_ON(!b->nr_map);
		KV_BUG_ON(b->domain != dom);
		b->nr_map += nr;
		if (b->state == BLK_OPEN)
			block_count_shared(c, b, b->nr_map - nr);
		else
			shared += b->nr_map == nr + 1;
	}
	d->nr_shared += nr ? shared : 0;
}

/* The last reference is gone: which state does the block get? */
static void block_release(struct core *c, u32 blk)
{
	struct kv_block *b = &c->blocks[blk];

	KV_BUG_ON(b->nr_map || (b->flags & BLKF_INDEXED));
	if (b->nr_copy || (b->flags & BLKF_MOVING)) {
		block_set_state(c, blk, BLK_LIMBO);
		block_limbo_end(c, blk);
		return;
	}
	if (b->nr_src)
		block_set_state(c, blk, BLK_QUIESCING);
	else
		block_set_state(c, blk, BLK_FREE);
}

/* One sequence less maps the block. */
void block_unmap(struct core *c, u32 blk)
{
	struct kv_block *b = &c->blocks[blk];

	KV_BUG_ON(!b->nr_map);
	if (--b->nr_map) {
		block_count_shared(c, b, b->nr_map + 1);
		return;
	}
	if (b->state == BLK_LIMBO)
		return;		/* being filled: freed when its copy ends */
	if (b->flags & BLKF_INDEXED) {
		block_set_state(c, blk, BLK_CACHED);
		lru_add(c, blk);
		/* No sequence will want it. */
		if (device_is_lost(c, &c->domains[b->domain]))
			index_evict(c, blk);
	} else {
		block_release(c, blk);
	}
}

/* The index dropped the block; index.c has unlinked it. */
void block_put_index(struct core *c, u32 blk)
{
	struct kv_block *b = &c->blocks[blk];

	KV_BUG_ON(!(b->flags & BLKF_INDEXED) || b->state == BLK_FREE);
	b->flags &= (u8)~BLKF_INDEXED;
	if (!b->nr_map)
		block_release(c, blk);
}

/* A copy of the daemon reads or fills the block. */
void block_copy_get(struct core *c, u32 blk)
{
	KV_BUG_ON(c->blocks[blk].nr_copy == BLOCK_COPY_MAX);
	KV_BUG_ON(c->blocks[blk].state == BLK_FREE);
	c->blocks[blk].nr_copy++;
}

/* The copy ended; the block may be free now. */
void block_copy_put(struct core *c, u32 blk)
{
	struct kv_block *b = &c->blocks[blk];

	KV_BUG_ON(!b->nr_copy);
	b->nr_copy--;
	block_limbo_end(c, blk);
}

/*
 * A block in LIMBO to which nothing refers any more becomes free, or QUIESCING while
 * open steps read it.
 */
void block_limbo_end(struct core *c, u32 blk)
{
	const struct kv_block *b = &c->blocks[blk];

	if (b->state != BLK_LIMBO || block_refcount(b))
		return;
	if (!(b->flags & BLKF_MOVING))
		block_set_state(c, blk, b->nr_src ? BLK_QUIESCING : BLK_FREE);
	else if (b->entry != CORE_NONE)
		entry_forget_dev(c, blk);
}

/**
 * block_filled() - a block in LIMBO has its content now
 *
 * Its new state depends on its users: OPEN or SEALED if a sequence maps it,
 * CACHED if only the index has it.  Without users it is freed with its copy.
 */
void block_filled(struct core *c, u32 blk)
{
	struct kv_block *b = &c->blocks[blk];
	u32 full = block_tokens(c, blk);

	KV_BUG_ON(b->state != BLK_LIMBO || b->nr_ids > full);
	if (b->nr_map && b->nr_ids < full) {
		block_set_state(c, blk, BLK_OPEN);
		/*
		 * Only here: a sequence that writes an OPEN block is its only
		 * user.
		 */
		c->domains[b->domain].tails += as_shared(b->nr_map);
	} else if (b->nr_map) {
		block_set_state(c, blk, BLK_SEALED);
	} else if (b->flags & BLKF_INDEXED) {
		block_set_state(c, blk, BLK_CACHED);
		lru_add(c, blk);
	}
}

/* Offset in bytes from the start of the block's pool. */
u64 block_offset(const struct core *c, u32 blk)
{
	const struct kv_block *b = &c->blocks[blk];
	const struct kv_part *p = part_at(c, b->domain);
	u32 span = block_span(c, blk);
	u32 base = span * core_sizes(c)->blocks_per_extent;
	u32 first = core_pool(c, part_pool(c, b->domain))->first;

	return (u64)(span - first) * core_cfg(c)->extent_size +
	       (u64)(blk - base) * p->block_bytes;
}

/**
 * block_shards() - where a copy of a block finds its parts in the device pools
 * @d:  domain of the block
 * @cp: gets nr_shards, shard_off and bytes
 */
void block_shards(const struct core *c, const struct kv_domain *d, struct core_copy *cp)
{
	const struct kv_zone *z = domain_zone(c, d);
	u32 i;

	cp->nr_shards = d->shards;
	cp->bytes = d->dev.block_bytes;
	for (i = 0; i < d->shards; i++)
		cp->shard_off[i] = (u64)(z[i].first - z->first) * core_cfg(c)->extent_size;
}

/* An open step copies from the block. */
void block_src_get(struct core *c, u32 blk)
{
	KV_BUG_ON(c->blocks[blk].state == BLK_FREE);
	KV_BUG_ON(c->blocks[blk].nr_src == BIT(BLOCK_SRC_BITS) - 1);
	c->blocks[blk].nr_src++;
}

/* That step ended. */
void block_src_put(struct core *c, u32 blk)
{
	struct kv_block *b = &c->blocks[blk];

	KV_BUG_ON(!b->nr_src);
	b->nr_src--;
	if (!b->nr_src && b->state == BLK_QUIESCING)
		block_set_state(c, blk, BLK_FREE);
}
