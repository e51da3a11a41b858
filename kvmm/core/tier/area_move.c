// SPDX-License-Identifier: Apache-2.0
/*
 * area_move.c - emptying of areas
 *
 * In an area that is to be removed, copies that another tier has, too, and cache
 * that no table names are dropped.  Content that swapped sequences need is read
 * into the host pool, a few slots at a time.  From there it is written to
 * another area, like all content that the host pool has no room for.  Each
 * answer starts the next read, so the move is as fast as the disks.
 *
 * Such a read (kv_entry.moving) has a host slot, but no block of the device to
 * fill.  If the sequence is restored meanwhile, the restore takes the read over.
 *
 * When there is no host slot, and nothing in flight would free one, no tier has
 * room for the content.  It is lost, as if its read had failed, and its
 * sequences compute it again.  The operator's shell does the same with all that
 * is left when it has waited long enough, see core_area_lose().
 */
#include "kvmm/core/tier/tier.h"

#define MOVE_AHEAD	8	/* reads in flight, at most */
#define MOVE_SCAN	2048	/* entries that a scan looks at after an event */
#define RECLAIM_SCAN	256	/* entries among which one to drop is looked for */

bool lies_in(const struct core *c, const struct kv_entry *e, u32 pool)
{
	return e->domain != ENTRY_UNUSED && e->area != CORE_NONE &&
	       part_pool(c, c->blocks[e->area].domain) == pool;
}

/**
 * entry_lose() - the last copy of an entry on the lower tiers is lost
 *
 * The entry has no host slot and no request in flight.  It may be freed.
 */
void entry_lose(struct core *c, u32 entry)
{
	struct kv_entry *e = &c->entries_low[entry];
	u32 blk = e->dev;

	KV_BUG_ON(e->host != CORE_NONE || e->io != ENT_IDLE);
	domain_kick(&c->domains[e->domain]);
	e->flags |= ENTF_LOST;
	entry_unindex(c, entry);
	area_slot_put(c, entry);
	if (blk == CORE_NONE)
		entry_settle(c, entry);
	else
		entry_forget_dev(c, blk);
}

/*
 * Drop a copy in an area that is not needed there: the host pool has it, too, or
 * no table names it.  The entry may be freed.
 */
static void area_copy_drop(struct core *c, u32 entry)
{
	const struct kv_entry *e = &c->entries_low[entry];

	KV_BUG_ON(e->area == CORE_NONE || e->io == ENT_WRITE);
	if (e->flags & ENTF_HOST)
		area_slot_put(c, entry);
	else if (e->dev != CORE_NONE)
		entry_forget_dev(c, e->dev);
	else
		entry_drop(c, entry);
}

/* Drop all such copies in an area. */
void area_drain(struct core *c, u32 pool)
{
	u32 i;

	for (i = 0; i < core_sizes(c)->nr_entries; i++) {
		struct kv_entry *e = &c->entries_low[i];

		if (!lies_in(c, e, pool) || e->io == ENT_READ ||
		    e->io == ENT_WRITE)
			continue;
		/* A copy to the device does not read the area. */
		if ((e->flags & ENTF_HOST) || !e->refs)
			area_copy_drop(c, i);
	}
}

/* Is the content found by way of the entry that follows it in a prompt? */
static bool has_kids(const struct core *c, const struct kv_entry *e)
{
	return (e->flags & ENTF_INDEXED) && c->nodes[e->node].kid != CORE_NONE;
}

/* Is the slot cache that can be dropped without dropping other names? */
static bool is_spare(const struct core *c, const struct kv_entry *e)
{
	return !e->refs && e->io == ENT_IDLE && !has_kids(c, e);
}

/**
 * area_reclaim() - free a slot of a domain that holds cache, the oldest
 *
 * The beginning of a prompt can be older than the rest: it came to the area earlier,
 * and the rest was added since.  Such entries become as new as those that follow them,
 * so that the next scans do not meet them again.
 *
 * Return: true when one of the RECLAIM_SCAN oldest entries could be dropped.
 */
bool area_reclaim(struct core *c, u32 pool, u32 dom)
{
	u32 i = part_at(c, part_index(c, dom, pool))->lru_head, next, n;

	for (n = 0; i != CORE_NONE && n < RECLAIM_SCAN; n++, i = next) {
		const struct kv_entry *e = &c->entries_low[i];

		KV_BUG_ON(!lies_in(c, e, pool));
		next = e->next;
		if (is_spare(c, e)) {
			area_copy_drop(c, i);
			core_count(c, CORE_EV_area_drop, 1);
			return true;
		}
		if (has_kids(c, e))
			entry_list_after(c, i, c->nodes[c->nodes[e->node].kid].ref);
	}
	return false;
}

/* Has an area room for less than half of the slots of @part that it could have? */
static bool part_is_scarce(const struct core *c, u32 part)
{
	const struct kv_part *rec = part_at(c, part);
	const struct kv_pool *p = core_pool(c, part_pool(c, part));
	u64 all = (u64)(p->nr_extents / rec->span_extents) * rec->span_blocks;
	u64 loose = (u64)(p->loose / rec->span_extents) * rec->span_blocks;

	return (part_free(rec) + loose) * 2 < all;
}

/* area_is_scarce() - the same for the area of a slot */
bool area_is_scarce(const struct core *c, u32 slot)
{
	return part_is_scarce(c, c->blocks[slot].domain);
}

/* areas_are_scarce() - is there no area with more room for a domain? */
bool areas_are_scarce(const struct core *c, u32 dom)
{
	u32 i;

	for (i = CORE_POOL_AREA; i < CORE_NR_POOLS; i++)
		if (core_pool(c, i)->online && part_at(c, part_index(c, dom, i))->used &&
		    !part_is_scarce(c, part_index(c, dom, i)))
			return false;
	return true;
}

/*
 * Start to read one entry into the host pool, or lose it if there is no room.  The
 * content of a lost entry is not read: each sequence that maps it computes it again.
 * Return: false: there is no host slot now: later entries must wait, too.
 */
static bool move_one(struct core *c, struct kv_pool *p, u32 entry)
{
	struct kv_entry *e = &c->entries_low[entry];

	if (e->flags & ENTF_LOST) {
		entry_lose(c, entry);
		return true;
	}
	if (host_room(c, e->domain, 1)) {
		KV_BUG_ON(e->moving || !(e->flags & ENTF_AREA));
		e->moving = 1;
		p->nr_moving++;
		core_count(c, CORE_EV_swap_move, 1);
		read_start(c, entry);
		return true;
	}
	if (host_write_out(c))
		return false;
	entry_lose(c, entry);
	return true;
}

/* Limit of reads in flight; restores that wait go first. */
static u32 move_most(const struct core *c)
{
	return host_is_wanted(c) ? 1 : MOVE_AHEAD;
}

/* @scan: most entries to look at. */
static void pool_move(struct core *c, u32 pool, u32 scan)
{
	struct kv_pool *p = core_pool(c, pool);
	u32 most = move_most(c), n;

	for (n = 0; n < scan && p->nr_moving < most && !p->nr_overdue; n++) {
		const struct kv_entry *e = &c->entries_low[p->move_at];

		if (e->refs && e->io == ENT_IDLE && !(e->flags & ENTF_HOST) &&
		    lies_in(c, e, pool) && !move_one(c, p, p->move_at))
			return;
		p->move_at = (p->move_at + 1) % core_sizes(c)->nr_entries;
	}
}

/* Go on emptying the areas that are to be removed. */
void areas_move(struct core *c)
{
	u32 i;

	for (i = CORE_POOL_AREA; i < CORE_NR_POOLS; i++)
		if (core_pool(c, i)->leaving)
			pool_move(c, i, MOVE_SCAN);
}

/* A restore took the read over, or the read ended. */
void move_ended(struct core *c, u32 entry)
{
	struct kv_entry *e = &c->entries_low[entry];

	if (!e->moving)
		return;
	KV_BUG_ON(!io_pool(c, e)->nr_moving);
	e->moving = 0;
	io_pool(c, e)->nr_moving--;
}

/**
 * area_leave() - begin to empty an area, or go on with it
 */
void area_leave(struct core *c, u32 pool)
{
	struct kv_pool *p = core_pool(c, pool);

	KV_BUG_ON(pool < CORE_POOL_AREA || !p->online);
	/* A sequence may wait for a write to it. */
	if (!p->readonly)
		core_kick(c);
	p->readonly = 1;
	p->leaving = 1;
	area_drain(c, pool);
	pool_move(c, pool, core_sizes(c)->nr_entries);
}
