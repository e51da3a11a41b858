// SPDX-License-Identifier: Apache-2.0
/*
 * tier.c - the use of the host pool: room in it, writes out, cleaning ahead
 *
 * A sealed block never changes, so a copy of it on a lower tier stays clean for
 * ever.  entry.c describes the records of such copies.
 *
 * When the host pool has no free slot, the oldest slots are dropped first, as
 * far as an area has their content, too, or no table names it.  While links are
 * idle, the oldest cached blocks are copied down ahead of need, and slots are
 * written to areas.  A scan for slots to write goes on around the list where the
 * last scan ended: written slots stay on the list, and a scan from the oldest on
 * would soon meet only these.
 */
#include "kvmm/core/tier/tier.h"

#define CLEAN_AHEAD	4	/* copies in flight for cleaning ahead, at most */
#define WRITE_AHEAD	8	/* least limit of writes in flight to areas */
#define WRITE_BYTES	(16u << 20)	/* with small blocks the limit is so many bytes */
#define WRITE_MOST	64
#define SCAN_MAX	256	/* entries that a scan for a host slot looks at */

/* ---- host slots ---- */

/* Can the entry lose its host slot now without loss to any table? */
static bool host_droppable(const struct kv_entry *e)
{
	return e->io == ENT_IDLE && (e->flags & ENTF_HOST) &&
	       ((e->flags & ENTF_AREA) || !e->refs);
}

static void host_slot_drop(struct core *c, u32 entry)
{
	struct kv_entry *e = &c->entries_low[entry];
	u32 dev = e->dev;

	KV_BUG_ON(e->host == CORE_NONE);
	if (e->flags & ENTF_AREA) {
		host_slot_put(c, entry);
		return;
	}
	if (dev != CORE_NONE)
		entry_forget_dev(c, dev);
	else
		entry_drop(c, entry);
}

/*
 * Would dropping the slot also drop its descendants in the index, in another
 * domain that memory.min protects?  @dom: the domain that needs a slot.
 */
static bool host_protected(const struct core *c, const struct kv_entry *e,
			   u32 dom)
{
	return e->domain != dom && c->domains[e->domain].emin &&
	       (e->flags & ENTF_INDEXED) && !(e->flags & ENTF_AREA) &&
	       c->nodes[e->node].kid != CORE_NONE;
}

/* Drop the oldest droppable host slot of @dom, for the domain @want. */
static bool host_reclaim(struct core *c, u32 dom, u32 want)
{
	u32 i = host_part(c, dom)->lru_head, n;

	for (n = 0; i != CORE_NONE && n < SCAN_MAX; n++) {
		u32 next = c->entries_low[i].next;

		KV_BUG_ON(c->entries_low[i].domain != dom);
		if (host_droppable(&c->entries_low[i]) &&
		    !host_protected(c, &c->entries_low[i], want)) {
			host_slot_drop(c, i);
			return true;
		}
		i = next;
	}
	return false;
}

/* Free slots of a domain in the host pool. */
u32 host_free(const struct core *c, u32 dom)
{
	const struct kv_part *part = host_part(c, dom);

	return part_free(part);
}

/* Slots that the domain would have if it had the whole host pool. */
u32 host_slots_max(const struct core *c, u32 dom)
{
	const struct kv_part *part = host_part(c, dom);

	if (!part->used)
		return 0;
	return core_pool(c, CORE_POOL_HOST)->nr_extents / part->span_extents *
	       part->span_blocks;
}

/**
 * host_room() - make sure that a domain has free slots in the host pool
 * @nr: number of slots
 *
 * Takes extents first, then the domain's oldest droppable slots, then those of
 * other domains until their spans are released.
 * Return: true when @nr slots are free now.
 */
bool host_room(struct core *c, u32 dom, u32 nr)
{
	u32 part = part_index(c, dom, CORE_POOL_HOST), other, n = 0;

	if (!part_at(c, part)->used || c->head->device)
		return false;
	while (host_free(c, dom) < nr) {
		if (extent_run_take(c, part) > 0 || host_reclaim(c, dom, dom))
			continue;
		for (other = 0; other < core_cfg(c)->max_domains; other++)
			if (other != dom && c->domains[other].used &&
			    host_part(c, other)->used &&
			    host_reclaim(c, other, dom))
				break;
		if (other == core_cfg(c)->max_domains || n++ > SCAN_MAX)
			return false;
	}
	return true;
}

/* ---- background ---- */

/*
 * Can another write of the domain begin?  The limit is the number that swapd
 * can join into a few large transfers, and never most of the host slots, since
 * a slot cannot be dropped while it is written.  @nr: writes that this round
 * began.  A round begins when four or more can begin, so that neighbours go
 * together.
 */
static bool write_fits(const struct core *c, u32 dom, u32 nr)
{
	u32 most = (u32)(WRITE_BYTES / host_part(c, dom)->block_bytes);

	most = min(most, min(host_slots_max(c, dom) / 4, (u32)WRITE_MOST));
	most = max(most, (u32)WRITE_AHEAD);
	return io_moving(c) < (nr ? most : most - max(most / 4, 3u));
}

/* Does only the host pool have the content, with no copy of it in flight? */
static bool wants_write(const struct kv_entry *e)
{
	return e->io == ENT_IDLE && !(e->flags & ENTF_AREA) &&
	       e->dev == CORE_NONE;
}

/* Does a table need the content, and no area has it? */
static bool must_write(const struct kv_entry *e)
{
	return e->io == ENT_IDLE && !(e->flags & ENTF_AREA) && e->refs;
}

/*
 * Write the host slots that @is_it selects, from the end of the last scan on.
 */
static void write_some(struct core *c, u32 dom,
		       bool (*is_it)(const struct kv_entry *e))
{
	struct kv_part *part = host_part(c, dom);
	u32 i = part->write_next, first, n, nr = 0;

	if (i == CORE_NONE)
		i = part->lru_head;
	first = i;
	for (n = 0; i != CORE_NONE && n < SCAN_MAX && write_fits(c, dom, nr);
	     n++) {
		KV_BUG_ON(!(c->entries_low[i].flags & ENTF_LRU));
		if (is_it(&c->entries_low[i])) {
			if (!entry_write(c, i))
				break;
			nr++;
		}
		i = c->entries_low[i].next;
		if (i == CORE_NONE)
			i = part->lru_head;
		if (i == first)
			break;
	}
	part->write_next = i;
}

/* While the host pool is short of slots, write the oldest to areas. */
static void write_ahead(struct core *c, u32 dom)
{
	const struct kv_part *part = host_part(c, dom);

	if (part->used &&
	    part_used(part) * 4 >= host_slots_max(c, dom) * 3)
		write_some(c, dom, wants_write);
}

/**
 * host_write_out() - write out content that tables need
 *
 * The host pool alone has it.  Once an area has it, too, its host slot can be
 * dropped.
 *
 * Return: whether a copy or write is in flight whose end may free a slot.
 */
bool host_write_out(struct core *c)
{
	u32 dom;

	for_each_domain(c, dom)
		if (host_part(c, dom)->used)
			write_some(c, dom, must_write);
	return io_moving(c) || c->head->nr_copies;
}

/* Does a restore wait for host slots?  Cleaning ahead would take them first. */
bool host_is_wanted(const struct core *c)
{
	u32 i;

	for_each_domain(c, i)
		if (c->domains[i].host_wanted)
			return true;
	return false;
}

/* The block before @blk in its prefix, if it is cached, too. */
static u32 cached_before(const struct core *c, u32 blk)
{
	u32 node = index_node(c, blk), ref;

	node = c->nodes[node].parent;
	if (node == CORE_NONE)
		return CORE_NONE;
	ref = c->nodes[node].ref;
	return !(ref & REF_ENTRY) && c->blocks[ref].state == BLK_CACHED ?
	       ref : CORE_NONE;
}

/* Copy one block down; false: no more blocks can be copied now. */
static bool clean_one(struct core *c, u32 dom, u32 blk)
{
	KV_BUG_ON(c->blocks[blk].state != BLK_CACHED);
	if (c->blocks[blk].entry != CORE_NONE || c->blocks[blk].nr_copy)
		return true;
	if (!host_free(c, dom) &&
	    extent_run_take(c, part_index(c, dom, CORE_POOL_HOST)) <= 0)
		return false;
	if (entry_out(c, blk, 0) == CORE_NONE)
		return false;
	core_count(c, CORE_EV_pgclean, 1);
	return true;
}

/**
 * demote_ahead() - begin the copy of a cached block to a lower tier, if there is none
 *
 * Return: true: a complete copy is there; false: the block is being copied, or no
 * copy can begin now.
 */
bool demote_ahead(struct core *c, u32 dom, u32 blk)
{
	const struct kv_block *b = &c->blocks[blk];

	if (b->entry != CORE_NONE)
		return !b->nr_copy && entry_is_there(c, b->entry);
	if (host_part(c, dom)->used && !b->nr_copy && !host_is_wanted(c) &&
	    c->now >= c->head->clean_after && c->head->nr_copies < CLEAN_AHEAD)
		(void)clean_one(c, dom, blk);
	return false;
}

/*
 * While the device pool is short of free blocks, copy the cached blocks down
 * that are evicted next: a leaf, then the blocks before it, which are evicted
 * after it.  Only free slots are used: to drop one clean copy for another gains
 * nothing and never ends.
 */
static void clean_ahead(struct core *c, u32 dom)
{
	struct kv_domain *d = &c->domains[dom];
	u32 i, blk, n = 0;

	if (!host_part(c, dom)->used || c->now < c->head->clean_after ||
	    domain_free(d) - d->dev.reserved > domain_used(d) / 4)
		return;
	for (i = lru_next(c, dom); i != CORE_NONE; i = lru_after(c, i))
		for (blk = i; blk != CORE_NONE; blk = cached_before(c, blk))
			if (n++ == 2 * CLEAN_AHEAD ||
			    c->head->nr_copies >= CLEAN_AHEAD ||
			    !clean_one(c, dom, blk))
				return;
}

/**
 * tier_background() - use idle links: clean ahead, write ahead
 *
 * Preemption and eviction then find most of their copies done.
 */
void tier_background(struct core *c)
{
	u32 i;

	if (!core_pool(c, CORE_POOL_HOST)->online)
		return;
	for_each_domain(c, i) {
		write_ahead(c, i);
		if (!host_is_wanted(c))
			clean_ahead(c, i);
	}
	areas_move(c);
}
