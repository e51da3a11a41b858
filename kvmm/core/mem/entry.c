// SPDX-License-Identifier: Apache-2.0
/*
 * entry.c - lower-tier entries: content that has slots below the device
 *
 * An entry says where the content of one block lies below the device: in a slot
 * of the host pool, a slot of a swap area, or both.  It also names the block that
 * has the same content, counts the tables of swapped sequences that need it, and
 * records the request in flight for it (tier_io.c).
 *
 * An indexed entry is content that the device does not have.  When a block gets
 * the content again it replaces the entry in the index, and the entry stays as
 * the block's clean copy: the second eviction is free.  Open tails are the
 * exception: a restored tail will be written, so its entry is dropped.
 *
 * An entry is freed when no table needs it, it is not in the index, no block has
 * its content and no request is in flight for it.
 */
#include "kvmm/core/mem/mem.h"

/* The part whose list has the entry: that of its host slot, else of its area slot. */
static struct kv_part *list_part(const struct core *c, const struct kv_entry *e)
{
	KV_BUG_ON(!(e->flags & (ENTF_HOST | ENTF_AREA)));
	return e->flags & ENTF_HOST ? host_part(c, e->domain) :
				      part_at(c, c->blocks[e->area].domain);
}

/**
 * entry_list_add() - make an entry the newest of the list of its slots
 *
 * An entry with a valid slot is on one list, that of its highest slot.
 */
void entry_list_add(struct core *c, u32 entry)
{
	struct kv_entry *e = &c->entries_low[entry];
	struct kv_part *part = list_part(c, e);

	KV_BUG_ON(e->flags & ENTF_LRU);
	list_add_tail_idx(c->entries_low, part->lru_head, part->lru_tail, entry);
	e->flags |= ENTF_LRU;
	if (e->flags & ENTF_INDEXED)
		names_settle(c, e->node);
}

/* entry_list_del() - before its highest valid slot changes */
void entry_list_del(struct core *c, u32 entry)
{
	struct kv_entry *e = &c->entries_low[entry];
	struct kv_part *part;

	if (!(e->flags & ENTF_LRU))
		return;
	part = list_part(c, e);
	if (part->write_next == entry)
		part->write_next = e->next;
	list_del_idx(c->entries_low, part->lru_head, part->lru_tail, entry);
	e->flags &= (u8)~ENTF_LRU;
	KV_BUG_ON((part->lru_head == CORE_NONE) != (part->lru_tail == CORE_NONE));
}

/* The entry was used: make it the newest of its list. */
void entry_touch(struct core *c, u32 entry)
{
	if (!(c->entries_low[entry].flags & ENTF_LRU))
		return;
	entry_list_del(c, entry);
	entry_list_add(c, entry);
}

/**
 * entry_list_after() - make an entry newer than other content
 * @ref: holder of that content; unless it is on the same list, the entry becomes the
 *       newest of its own
 */
void entry_list_after(struct core *c, u32 entry, u32 ref)
{
	const struct kv_entry *than = ref & REF_ENTRY ?
				      &c->entries_low[ref & ~REF_ENTRY] : NULL;

	KV_BUG_ON(ref == (REF_ENTRY | entry));
	if (!than || !(than->flags & ENTF_LRU) ||
	    list_part(c, than) != list_part(c, &c->entries_low[entry])) {
		entry_touch(c, entry);
		return;
	}
	entry_list_del(c, entry);
	if (than->next == CORE_NONE) {
		entry_list_add(c, entry);
		return;
	}
	list_add_after_idx(c->entries_low, ref & ~REF_ENTRY, entry);
	c->entries_low[entry].flags |= ENTF_LRU;
}

/*
 * Allocate a record; CORE_NONE: there is none.  There are as many records as
 * slots.  They can still run out: a lost entry has no slot, but keeps its
 * record while tables name it.
 */
u32 entry_alloc(struct core *c, u32 dom)
{
	u32 i = c->head->free_entry;
	struct kv_entry *e;
	u32 generation;

	if (i == CORE_NONE)
		return CORE_NONE;
	e = &c->entries_low[i];
	KV_BUG_ON(!c->head->nr_free_entries || e->domain != ENTRY_UNUSED);
	c->head->free_entry = e->next;
	c->head->nr_free_entries--;
	generation = e->generation;
	memset(e, 0, sizeof(*e));
	e->generation = generation + 1;
	e->domain = (u16)dom;
	e->dev = CORE_NONE;
	e->host = CORE_NONE;
	e->area = CORE_NONE;
	e->prev = CORE_NONE;
	e->next = CORE_NONE;
	e->hash_next = CORE_NONE;
	e->waiters = CORE_NONE;
	core_crash(c, CORE_CRASH_entry_alloc);
	return i;
}

/* A table begins (@by is 1) or ceases (-1) to need the content of a slot. */
static void slot_need(struct core *c, u32 slot, int by)
{
	struct kv_part *part;

	if (slot == CORE_NONE)
		return;
	part = part_at(c, c->blocks[slot].domain);
	KV_BUG_ON(by < 0 && !part->nr_needed);
	part->nr_needed += (u32)by;
}

/**
 * entry_set_slot() - give an entry a slot, or CORE_NONE instead of the one that it has
 * @field: entry->host or entry->area
 */
void entry_set_slot(struct core *c, const struct kv_entry *e, u32 *field, u32 slot)
{
	KV_BUG_ON(*field != CORE_NONE && slot != CORE_NONE);
	if (e->refs) {
		slot_need(c, *field, -1);
		slot_need(c, slot, 1);
	}
	*field = slot;
}

void host_slot_put(struct core *c, u32 entry)
{
	struct kv_entry *e = &c->entries_low[entry];
	u32 slot = e->host;

	if (e->host == CORE_NONE)
		return;
	KV_BUG_ON(c->blocks[e->host].domain !=
		  part_index(c, e->domain, CORE_POOL_HOST));
	entry_list_del(c, entry);
	entry_set_slot(c, e, &e->host, CORE_NONE);
	block_set_state(c, slot, BLK_FREE);
	e->flags &= (u8)~ENTF_HOST;
	/* The newest of its area: it left the host pool just now. */
	if (e->flags & ENTF_AREA)
		entry_list_add(c, entry);
}

void area_slot_put(struct core *c, u32 entry)
{
	struct kv_entry *e = &c->entries_low[entry];
	u32 slot = e->area;

	if (e->area == CORE_NONE)
		return;
	KV_BUG_ON(part_domain(c, c->blocks[e->area].domain) != e->domain);
	KV_BUG_ON(e->io == ENT_READ || e->io == ENT_WRITE);
	if (!(e->flags & ENTF_HOST))
		entry_list_del(c, entry);
	entry_set_slot(c, e, &e->area, CORE_NONE);
	block_set_state(c, slot, BLK_FREE);
	e->flags &= (u8)~ENTF_AREA;
}

/* Does a lower tier have the content, or get it from a copy in flight? */
bool entry_is_there(const struct core *c, u32 entry)
{
	const struct kv_entry *e = &c->entries_low[entry];

	return !(e->flags & ENTF_LOST) &&
	       ((e->flags & (ENTF_HOST | ENTF_AREA)) || e->io == ENT_OUT);
}

/* Free the entry with its slots if nothing needs it. */
void entry_settle(struct core *c, u32 entry)
{
	struct kv_entry *e = &c->entries_low[entry];

	/* A call below may have freed it already. */
	if (e->domain == ENTRY_UNUSED)
		return;
	if (e->refs || (e->flags & ENTF_INDEXED) || e->dev != CORE_NONE ||
	    e->io != ENT_IDLE)
		return;
	host_slot_put(c, entry);
	area_slot_put(c, entry);
	KV_BUG_ON(e->flags & ~(ENTF_LOST | ENTF_PARTIAL));
	KV_BUG_ON(e->waiters != CORE_NONE || e->moving);
	core_crash(c, CORE_CRASH_entry_settle);
	e->next = c->head->free_entry;
	c->head->free_entry = entry;
	KV_BUG_ON(c->head->nr_free_entries == core_sizes(c)->nr_entries);
	c->head->nr_free_entries++;
	e->domain = ENTRY_UNUSED;
}

/* Another table names the entry. */
void entry_get_ref(struct core *c, u32 entry)
{
	struct kv_entry *e = &c->entries_low[entry];

	if (e->refs++)
		return;
	slot_need(c, e->host, 1);
	slot_need(c, e->area, 1);
}

/* A table no longer names the entry, which stays. */
void entry_drop_ref(struct core *c, u32 entry)
{
	struct kv_entry *e = &c->entries_low[entry];

	KV_BUG_ON(!e->refs);
	if (--e->refs)
		return;
	slot_need(c, e->host, -1);
	slot_need(c, e->area, -1);
}

/* The same, and the entry may be freed. */
void entry_put_ref(struct core *c, u32 entry)
{
	entry_drop_ref(c, entry);
	entry_settle(c, entry);
}

/* The device is about to lose the content: index the entry instead. */
void entry_index(struct core *c, u32 entry)
{
	struct kv_entry *e = &c->entries_low[entry];

	KV_BUG_ON(e->flags & (ENTF_INDEXED | ENTF_PARTIAL));
	KV_BUG_ON(e->dev == CORE_NONE || c->blocks[e->dev].entry != entry);
	e->flags |= ENTF_INDEXED;
	index_move(c, e->dev, REF_ENTRY | entry);
}

void entry_unindex(struct core *c, u32 entry)
{
	struct kv_entry *e = &c->entries_low[entry];

	if (!(e->flags & ENTF_INDEXED))
		return;
	index_drop(c, REF_ENTRY | entry);
	e->flags &= (u8)~ENTF_INDEXED;
}

/* Drop an indexed entry that no table names. */
void entry_drop(struct core *c, u32 entry)
{
	entry_unindex(c, entry);
	core_count(c, CORE_EV_host_drop, 1);
	entry_settle(c, entry);
}

/* The device computed the content again: index the block, keep the entry. */
void entry_adopt(struct core *c, u32 entry, u32 blk)
{
	struct kv_entry *e = &c->entries_low[entry];

	KV_BUG_ON(!(e->flags & ENTF_INDEXED) || e->dev != CORE_NONE);
	KV_BUG_ON(c->blocks[blk].entry != CORE_NONE);
	index_move(c, REF_ENTRY | entry, blk);
	e->flags &= (u8)~ENTF_INDEXED;
	e->dev = blk;
	c->blocks[blk].entry = entry;
}

/* The entry's block on the device is free. */
void entry_forget_dev(struct core *c, u32 blk)
{
	u32 entry = c->blocks[blk].entry;

	KV_BUG_ON(entry == CORE_NONE || c->entries_low[entry].dev != blk);
	c->blocks[blk].entry = CORE_NONE;
	c->entries_low[entry].dev = CORE_NONE;
	entry_settle(c, entry);
}
