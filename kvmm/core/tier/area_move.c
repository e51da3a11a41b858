// SPDX-License-Identifier: Apache-2.0
/*
 * area_move.c - what an area that is to go still holds
 *
 * Copies of what lies elsewhere and cache that nobody's table names are let
 * go.  What swapped sequences need is read into the host pool, a few slots at
 * a time, without anybody waiting for it; from there it is written to another
 * area like all that the host pool has no room for.  Each answer begins the
 * next, so it goes as fast as the disks.
 *
 * Such a read (kv_entry.moving) has a host slot and no block of the device to
 * fill; whoever restores the sequence meanwhile takes the read over.
 *
 * When no host slot can be had and nothing is on its way that would free one,
 * there is no room for the content anywhere: it is lost, as if its read had
 * failed, and who needs it computes it again.  So does the operator's shell
 * with all that is left when it has waited long enough, see core_area_lose().
 */
#include "kvmm/core/tier/tier.h"

#define MOVE_AHEAD	8	/* reads in flight */
#define MOVE_SCAN	2048	/* entries looked at after an event */

bool lies_in(const struct core *c, const struct kv_entry *e, u32 pool)
{
	return e->domain != ENTRY_UNUSED && e->area != CORE_NONE &&
	       part_pool(c, c->blocks[e->area].domain) == pool;
}

/**
 * entry_lose() - no lower tier will have the content
 *
 * It has no slot of the host, and no request; the entry may be gone after it.
 */
void entry_lose(struct core *c, u32 entry)
{
	struct kv_entry *e = &c->entries_low[entry];
	u32 blk = e->dev;

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
 * Let go of a copy that nobody needs there: of what the host has too, or of
 * cache.  The entry may be gone after it.
 */
static void area_copy_drop(struct core *c, u32 entry)
{
	const struct kv_entry *e = &c->entries_low[entry];

	if (e->flags & ENTF_HOST)
		area_slot_put(c, entry);
	else if (e->dev != CORE_NONE)
		entry_forget_dev(c, e->dev);
	else
		entry_drop(c, entry);
}

/* Let go of every copy that something else has too, and of cache. */
void area_drain(struct core *c, u32 pool)
{
	u32 i;

	for (i = 0; i < core_sizes(c)->nr_entries; i++) {
		struct kv_entry *e = &c->entries_low[i];

		if (!lies_in(c, e, pool) || e->io == ENT_READ ||
		    e->io == ENT_WRITE)
			continue;
		/* A copy to the device has nothing to do with it. */
		if ((e->flags & ENTF_HOST) || !e->refs)
			area_copy_drop(c, i);
	}
}

/* May its slot go to content that a sequence needs?  No other entry goes. */
static bool is_spare(const struct core *c, const struct kv_entry *e)
{
	return !e->refs && e->io == ENT_IDLE &&
	       (!(e->flags & ENTF_INDEXED) ||
		c->nodes[e->node].kid == CORE_NONE);
}

/**
 * area_reclaim() - free a slot of a domain that holds cache
 *
 * An area is full some day; what no sequence needs is of little use there: it
 * cannot be matched before it was computed again.
 * Return: whether there was one among those that were looked at.
 */
bool area_reclaim(struct core *c, u32 pool, u32 dom)
{
	struct kv_pool *p = core_pool(c, pool);
	u32 n, i;

	for (n = 0; n < MOVE_SCAN; n++) {
		const struct kv_entry *e = &c->entries_low[p->move_at];

		i = p->move_at;
		p->move_at = (i + 1) % core_sizes(c)->nr_entries;
		/* What is asked last is not in the entry itself. */
		if (e->domain != dom || !is_spare(c, e) || !lies_in(c, e, pool))
			continue;
		area_copy_drop(c, i);
		core_count(c, CORE_EV_area_drop, 1);
		return true;
	}
	return false;
}

/*
 * Move one to the host, or find that it has no place.
 * Return: false: it must wait for a slot, and so must the next one.
 */
static bool move_one(struct core *c, struct kv_pool *p, u32 entry)
{
	struct kv_entry *e = &c->entries_low[entry];

	if (host_room(c, e->domain, 1)) {
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

/* Restores go first, as long as there are any. */
static u32 move_most(const struct core *c)
{
	return host_is_wanted(c) ? 1 : MOVE_AHEAD;
}

/* @scan: entries to be looked at, at most. */
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

/* Go on with areas that are to go. */
void areas_move(struct core *c)
{
	u32 i;

	for (i = CORE_POOL_AREA; i < CORE_NR_POOLS; i++)
		if (core_pool(c, i)->leaving)
			pool_move(c, i, MOVE_SCAN);
}

/* The read is for whoever restores it now, or is over. */
void move_ended(struct core *c, u32 entry)
{
	struct kv_entry *e = &c->entries_low[entry];

	if (!e->moving)
		return;
	e->moving = 0;
	core_pool(c, part_pool(c, c->blocks[e->area].domain))->nr_moving--;
}

/**
 * area_leave() - begin, or look after, the emptying of an area
 */
void area_leave(struct core *c, u32 pool)
{
	struct kv_pool *p = core_pool(c, pool);

	p->readonly = 1;
	p->leaving = 1;
	area_drain(c, pool);
	pool_move(c, pool, core_sizes(c)->nr_entries);
}
