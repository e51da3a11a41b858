// SPDX-License-Identifier: Apache-2.0
/*
 * block.c - the states of blocks, and the counts that decide them
 *
 *	FREE -> OPEN -> SEALED <-> CACHED
 *	          |        |          |
 *	          v        v          v
 *	      QUARANTINE / QUIESCING / FREE
 *
 * Where the device failed POISON takes the place of FREE, see device.c.
 *
 * block_refcount() is every reason to keep a block's content: the sequences
 * that map it, the prefix index, copies in flight.  A block that loses its last
 * reason is FREE, unless an open step copies from it (QUIESCING until that
 * ends) or a dead client may still write it (QUARANTINE until the device is
 * quiet).  Whether a block may be written in place is asked of it, never
 * of nr_map: the index and a copy are invisible to the latter.
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

/* The offset that kernels see: units from the pool's base. */
u32 block_entry(const struct core *c, u32 blk)
{
	return (u32)(block_offset(c, blk) / CORE_UNIT);
}

/* Where the ids of the block's tokens are kept: block_tokens of them. */
u32 *block_ids(const struct core *c, u32 blk)
{
	const struct kv_block *b = &c->blocks[blk];
	const struct core_sizes *s = core_sizes(c);
	u32 span = block_span(c, blk), base = span * s->blocks_per_extent;

	return c->ids + (u64)span * s->ids_per_extent +
	       (u64)(blk - base) *
	       c->domains[part_domain(c, b->domain)].block_tokens;
}

/*
 * Somebody may find room now who did not before: the domain itself; others
 * when the span could go, or another one that was kept to cover promises, or
 * whose cache was all of the floor.
 */
static void block_room_appeared(struct core *c, const struct kv_span *sp)
{
	struct kv_domain *d = &c->domains[part_domain(c, sp->domain)];

	domain_kick(d);
	if (sp->nr_free + sp->nr_cached == sp->nr_blocks || d->dev.reserved ||
	    (d->floor && d->dev.nr[BLK_CACHED] > d->floor) ||
	    core_cfg(c)->overcommit == CORE_OVERCOMMIT_NEVER)
		core_kick(c);
}

/*
 * A domain that uses more than its memory.min may lose more with each block that
 * it takes: cache, if that bounds it, for anybody; whatever it has for who waits
 * within the promise.  Those who are asked only now and then are asked now.  This
 * comes with every block, so where nobody waits nobody is looked for.
 */
static void block_outgrew_min(struct core *c, const struct kv_domain *d)
{
	u32 used = domain_used(d), i;
	bool cache = used - d->emin <= d->dev.nr[BLK_CACHED], none = true;

	if (c->none_stalled || !d->emin || used <= d->emin)
		return;
	for_each_domain(c, i) {
		struct kv_domain *o = &c->domains[i];

		if (!o->stalled)
			continue;
		none = false;
		if (cache || o->promised)
			domain_kick(o);
	}
	c->none_stalled = none;
}

static void block_count(struct core *c, struct kv_span *sp, u32 from, u32 to)
{
	struct kv_part *p = part_at(c, sp->domain);
	bool isolated = span_is_isolated(sp);
	u32 used;

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
		/* No block of an isolated span is taken, but its device may be lost. */
		p->isolated_free -= isolated;
		used = part_used(p);
		if (used > p->peak)
			p->peak = used;
		if (!part_pool(c, sp->domain))
			block_outgrew_min(c, &c->domains[sp->domain]);
	}
	if (to == BLK_FREE) {
		sp->nr_free++;
		p->isolated_free += isolated;
	}
}

/* The next content is another one; the list of free slots goes both ways. */
static void slot_given_back(struct core *c, u32 blk)
{
	struct kv_block *b = &c->blocks[blk];

	b->written++;
	b->prev = CORE_NONE;
	if (b->next != CORE_NONE)
		c->blocks[b->next].prev = blk;
}

/* It is FREE now: on the list of its span. */
static void block_give_back(struct core *c, struct kv_span *sp, u32 blk,
			    u32 from)
{
	struct kv_block *b = &c->blocks[blk];

	KV_BUG_ON(block_refcount(b) || b->nr_src);
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

/* Nobody is to find it, nor to have it, whatever it holds. */
static void block_condemn(struct core *c, u32 blk, u32 from)
{
	struct kv_block *b = &c->blocks[blk];

	KV_BUG_ON(block_refcount(b) || b->nr_src);
	if (b->entry != CORE_NONE)
		entry_forget_dev(c, blk);
	b->flags &= BLKF_BAD;
	b->nr_ids = 0;
	if (!part_pool(c, b->domain))
		core_count(c, CORE_EV_pgfree, from != BLK_FREE);
}

/**
 * block_set_state() - the only way a block changes its state
 *
 * One that is to be FREE is POISON instead where the device failed it.
 * A block that becomes FREE is back on its span's list, and the span may
 * leave the domain: the caller must not touch either afterwards.
 */
void block_set_state(struct core *c, u32 blk, u32 state)
{
	struct kv_block *b = &c->blocks[blk];
	u32 from = b->state, span = block_span(c, blk);
	struct kv_span *sp = &c->spans[span];

	if (state == BLK_FREE && from != BLK_POISON && device_is_bad(c, blk))
		state = BLK_POISON;
	KV_BUG_ON(!(block_may_become[from] & BIT(state)));
	block_count(c, sp, from, state);
	if (life_is_sampled(c, blk))
		life_block(c, blk, from, state);
	core_order();		/* what the state says is true by now */
	b->state = (u8)state;
	core_crash(c, CORE_CRASH_block_state);
	/* Only steps read it still: nobody is to find it by its content. */
	if (state == BLK_QUIESCING && b->entry != CORE_NONE)
		entry_forget_dev(c, blk);
	if (state == BLK_FREE)
		block_give_back(c, sp, blk, from);
	else if (state == BLK_POISON && device_is_bad(c, blk))
		block_condemn(c, blk, from);
	if (state == BLK_FREE || from == BLK_FREE)
		span_reclass(c, span);
	if (state == BLK_FREE || state == BLK_CACHED)
		block_room_appeared(c, sp);
	if (state == BLK_FREE)
		span_settle(c, span);
}

/**
 * block_alloc() - take a free block for a client to write
 * @dom:    domain
 * @client: must have mapped the block's extent
 *
 * Return: the block, OPEN and mapped by nobody, or CORE_NONE.
 */
u32 block_alloc(struct core *c, u32 dom, u32 client)
{
	u32 first = span_pick(c, &c->domains[dom], client);
	u32 blk;

	if (first == CORE_NONE)
		return CORE_NONE;
	blk = block_take(c, first, BLK_OPEN);
	core_count(c, CORE_EV_pgalloc, 1);
	return blk;
}

/* Take a free block of a span that has one, into @state. */
u32 block_take(struct core *c, u32 first, u32 state)
{
	u32 blk = c->spans[first].free_head;
	struct kv_block *b = &c->blocks[blk];

	KV_BUG_ON(b->state != BLK_FREE || block_refcount(b));
	c->spans[first].free_head = b->next;
	b->next = CORE_NONE;
	block_set_state(c, blk, state);
	return blk;
}

/* Mappings that make a block one that several have. */
static u32 as_shared(u32 nr_map)
{
	return nr_map > 1 ? nr_map : 0;
}

/* The block was mapped @before times.  An open one is copied by who appends. */
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

/* One more sequence maps the block; out of the cache if it was there. */
void block_map(struct core *c, u32 blk)
{
	struct kv_block *b = &c->blocks[blk];

	if (++b->nr_map >= 2)
		block_count_shared(c, b, b->nr_map - 1);
	if (b->state == BLK_CACHED) {
		lru_del(c, blk);
		block_set_state(c, blk, BLK_SEALED);
	}
}

/**
 * block_map_many() - @nr more sequences map what one maps already
 * @pte: entries of its table, @n of them, of blocks of the domain @d
 */
void block_map_many(struct core *c, struct kv_domain *d, const kv_pte_t *pte,
		    u32 n, u32 nr)
{
	u32 shared = 0, i;

	for (i = 0; i < n; i++) {
		struct kv_block *b = &c->blocks[pte_block(pte[i])];

		if (!pte_is_present(pte[i]))
			continue;
		KV_BUG_ON(!b->nr_map);
		b->nr_map += nr;
		if (b->state == BLK_OPEN)
			block_count_shared(c, b, b->nr_map - nr);
		else
			shared += b->nr_map == nr + 1;
	}
	d->nr_shared += nr ? shared : 0;
}

/* The last reason to hold the content went; is it in use all the same? */
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
		return;		/* being filled: goes with its copy */
	if (b->flags & BLKF_INDEXED) {
		block_set_state(c, blk, BLK_CACHED);
		lru_add(c, blk);
		/* Nobody will want it. */
		if (device_is_lost(c))
			index_evict(c, blk);
	} else {
		block_release(c, blk);
	}
}

/* The index dropped the block; index.c has unlinked it. */
void block_put_index(struct core *c, u32 blk)
{
	struct kv_block *b = &c->blocks[blk];

	b->flags &= (u8)~BLKF_INDEXED;
	if (!b->nr_map)
		block_release(c, blk);
}

/* A copy of the daemon's reads or fills the block. */
void block_copy_get(struct core *c, u32 blk)
{
	KV_BUG_ON(c->blocks[blk].nr_copy == BLOCK_COPY_MAX);
	c->blocks[blk].nr_copy++;
}

/* That copy is over; the block may be what nobody needs any more. */
void block_copy_put(struct core *c, u32 blk)
{
	struct kv_block *b = &c->blocks[blk];

	KV_BUG_ON(!b->nr_copy);
	b->nr_copy--;
	block_limbo_end(c, blk);
}

/* If no copy names it any more, a block in LIMBO is free, or a step's. */
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
 * It becomes what its users make of it: OPEN or SEALED under a sequence,
 * CACHED under the index alone.  With neither it goes with its copy.
 */
void block_filled(struct core *c, u32 blk)
{
	struct kv_block *b = &c->blocks[blk];
	const struct kv_domain *d = &c->domains[b->domain];

	if (b->nr_map && b->nr_ids < d->block_tokens) {
		block_set_state(c, blk, BLK_OPEN);
		/* Only here: who writes an open one has it alone. */
		c->domains[b->domain].tails += as_shared(b->nr_map);
	} else if (b->nr_map) {
		block_set_state(c, blk, BLK_SEALED);
	} else if (b->flags & BLKF_INDEXED) {
		block_set_state(c, blk, BLK_CACHED);
		lru_add(c, blk);
	}
}

/* Bytes from the start of the block's own pool. */
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

/* An open step copies from the block. */
void block_src_get(struct core *c, u32 blk)
{
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
