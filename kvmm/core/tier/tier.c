// SPDX-License-Identifier: Apache-2.0
/*
 * tier.c - the use of the host pool: room in it, writes out
 *
 * A sealed block never changes, so a copy of it on a lower tier stays clean for
 * ever.  entry.c describes the records of such copies.
 *
 * A domain's list of host slots begins with the oldest ones: a slot goes to its
 * end when its content is copied in, read or leaves the device.  When the host
 * pool has no free slot, a slot with content of another tier is dropped first: one
 * that an area has, from the oldest on, then one that the device has, from the
 * newest on, since that content leaves the device last.  Only then is content lost,
 * the oldest first, as far as no table names it.
 *
 * The oldest slots are written to areas ahead of need, so that a slot can be had
 * at once.  demote.c copies blocks down.
 */
#include "kvmm/core/tier/tier.h"

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

/* Is the content on the device, and likely to stay there longer than that of @node? */
static bool dev_is_newer(const struct core *c, const struct kv_entry *e, u32 node)
{
	const struct kv_block *b;

	if (e->dev == CORE_NONE)
		return false;
	b = &c->blocks[e->dev];
	return b->state != BLK_CACHED ||
	       (node != CORE_NONE && lru_is_older(c, node, b->node));
}

/* The oldest slot with content that an area has, too. */
static u32 copy_in_area(const struct core *c, u32 dom)
{
	u32 i = host_part(c, dom)->lru_head, n;

	for (n = 0; i != CORE_NONE && n < SCAN_MAX; i = c->entries_low[i].next, n++)
		if ((c->entries_low[i].flags & ENTF_AREA) &&
		    host_droppable(&c->entries_low[i]))
			return i;
	return CORE_NONE;
}

/* The newest slot with content that the device keeps longer than that of @node. */
static u32 copy_on_device(const struct core *c, u32 dom, u32 node)
{
	u32 i = host_part(c, dom)->lru_tail, n;

	for (n = 0; i != CORE_NONE && n < SCAN_MAX; i = c->entries_low[i].prev, n++)
		if (host_droppable(&c->entries_low[i]) &&
		    dev_is_newer(c, &c->entries_low[i], node))
			return i;
	return CORE_NONE;
}

/**
 * host_drop_copy() - free a host slot with content that another tier has, too
 * @node: name of the content that needs a slot; a slot is kept if the device is
 *        about to lose its content, too.  CORE_NONE: none
 *
 * A copy of the device's content is the first to be dropped where areas are scarce:
 * then each slot counts.  Else it is the last one, since with it a later eviction is
 * free.
 * Return: false: a scan found no such slot.
 */
bool host_drop_copy(struct core *c, u32 dom, u32 node)
{
	u32 i = CORE_NONE;

	if (areas_are_scarce(c, dom))
		i = copy_on_device(c, dom, node);
	if (i == CORE_NONE)
		i = copy_in_area(c, dom);
	if (i == CORE_NONE)
		i = copy_on_device(c, dom, node);
	if (i == CORE_NONE)
		return false;
	host_slot_drop(c, i);
	return true;
}

/*
 * Drop the oldest droppable host slot of @dom, for the domain @want, with its
 * content if no other tier has it.
 */
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

/* Does the domain use more of the host pool than @dom? */
static bool host_larger(const struct core *c, u32 other, u32 dom)
{
	const struct kv_part *a = host_part(c, other), *b = host_part(c, dom);

	return a->used && c->domains[other].used &&
	       part_used(a) * a->block_bytes >
	       (part_used(b) + 1) * b->block_bytes;
}

/*
 * Drop slots of the domain that uses most of the host pool until @dom can take an
 * extent.
 */
static bool host_take_from_largest(struct core *c, u32 dom)
{
	u32 part = part_index(c, dom, CORE_POOL_HOST), i, most = dom, n;

	/* The taker may have found a prefix there, and not mapped it yet. */
	for_each_domain(c, i)
		if (i != dom && i != c->taker && host_larger(c, i, most))
			most = i;
	for (n = 0; most != dom && n < SCAN_MAX && host_larger(c, most, dom); n++) {
		if (!host_drop_copy(c, most, CORE_NONE) &&
		    !host_reclaim(c, most, dom))
			return false;
		if (extent_run_take(c, part) > 0)
			return true;
	}
	return false;
}

/**
 * host_drop_oldest() - free a host slot for cache, with content that is lost
 * @node: name of the content that needs a slot; only older content is lost
 *
 * The domain that uses more of the host pool than any other loses it.
 */
bool host_drop_oldest(struct core *c, u32 dom, u32 node)
{
	u32 i = host_part(c, dom)->lru_head;

	if (host_take_from_largest(c, dom))
		return true;
	if (i != CORE_NONE && node != CORE_NONE &&
	    (c->entries_low[i].flags & ENTF_INDEXED) &&
	    !lru_is_older(c, c->entries_low[i].node, node))
		return false;
	return host_reclaim(c, dom, dom);
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
 * Takes extents first, then the domain's slots with content of another tier,
 * then its oldest droppable slots, then those of other domains until their spans are
 * released.
 * Return: true when @nr slots are free now.
 */
bool host_room(struct core *c, u32 dom, u32 nr)
{
	u32 part = part_index(c, dom, CORE_POOL_HOST), other, n = 0;

	if (!part_at(c, part)->used || device_is_down(c, &c->domains[dom]))
		return false;
	while (host_free(c, dom) < nr) {
		if (extent_run_take(c, part) > 0 ||
		    host_drop_copy(c, dom, CORE_NONE) ||
		    host_reclaim(c, dom, dom))
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

/* ---- writes to areas ---- */

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

/* Does a table need the content, which only the host pool has? */
static bool needs_write(const struct kv_entry *e)
{
	return wants_write(e) && e->refs;
}

/* Write the host slots that @is_it selects, from the end of the last scan on. */
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

/**
 * host_write_window() - slots at the old end of the list that areas should have, too
 */
u32 host_write_window(const struct core *c, u32 dom)
{
	return min(max(host_slots_max(c, dom) / 16, 4u), (u32)SCAN_MAX);
}

/**
 * host_write_oldest() - write the oldest host slots of a domain to areas
 *
 * Return: whether a write of one of them is in flight.
 */
bool host_write_oldest(struct core *c, u32 dom)
{
	u32 i = host_part(c, dom)->lru_head, left = host_write_window(c, dom), nr = 0;
	bool moving = false;

	for (; i != CORE_NONE && left; i = c->entries_low[i].next, left--) {
		KV_BUG_ON(!(c->entries_low[i].flags & ENTF_LRU));
		if (wants_write(&c->entries_low[i]) && write_fits(c, dom, nr))
			nr += entry_write(c, i);
		moving |= c->entries_low[i].io == ENT_WRITE;
	}
	return moving;
}

/*
 * While the host pool is short of slots, write to areas: all slots that tables need,
 * since a preempted sequence waits for no write, and the oldest of the others.
 */
static void write_ahead(struct core *c, u32 dom)
{
	const struct kv_part *part = host_part(c, dom);

	if (!part->used ||
	    part_used(part) * 4 < host_slots_max(c, dom) * 3)
		return;
	write_some(c, dom, needs_write);
	if (areas_pay(c, dom))
		(void)host_write_oldest(c, dom);
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
	for_each_domain(c, i)
		write_ahead(c, i);
	demote_background(c);
	areas_move(c);
}
