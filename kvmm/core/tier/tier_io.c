// SPDX-License-Identifier: Apache-2.0
/*
 * tier_io.c - requests in flight for an entry: copies and I/O
 *
 *	OUT	device -> host		READ	area -> host, then IN
 *	IN	host -> device		WRITE	host -> area
 *
 * An entry has one request in flight, but an IN may go on beside a WRITE: both
 * only read the host slot, and a sequence that waits for the IN need not wait
 * for the WRITE.  A copy that reads or fills a block has a reference to it.  A
 * block that has no other reference is LIMBO.  The slot of a request is LIMBO or
 * belongs to an entry with a request in flight.  Neither is reused before the
 * answer, since a request may outlive the sequence that it is for.
 * The answers: answer.c.
 */
#include "kvmm/core/tier/tier.h"

static u64 request_id(const struct core *c, u32 entry)
{
	return ((u64)c->entries_low[entry].generation << 32) | entry;
}

/* ---- copies between device and host ---- */

static void copy_issue(struct core *c, u32 entry, u32 io, u32 id_flag)
{
	const struct kv_entry *e = &c->entries_low[entry];
	struct core_copy cp;

	KV_BUG_ON(e->dev == CORE_NONE || e->host == CORE_NONE);
	cp = (struct core_copy){
		.id		= request_id(c, entry) | id_flag,
		.to_host	= io == ENT_OUT,
		.dev_off	= block_offset(c, e->dev),
		.host_off	= block_offset(c, e->host) + CORE_SLOT_HEADER,
	};
	block_shards(c, &c->domains[e->domain], &cp);
	c->ops->copy(c->ops_arg, &cp);
}

void copy_start(struct core *c, u32 entry, u32 io)
{
	struct kv_entry *e = &c->entries_low[entry];

	KV_BUG_ON(e->io != ENT_IDLE);
	e->io = (u8)io;
	e->generation++;
	e->started = c->now;
	c->head->nr_copies++;
	copy_issue(c, entry, io, 0);
}

/**
 * entry_out() - copy a block to the host pool
 * @blk: sealed, or a tail that is no longer written
 * @nr:  blocks of its sequence still to be copied out, from its end, this one
 *       included; 0: not known
 *
 * Return: the entry; its copy may be in flight.  CORE_NONE: there is no free slot
 * or record, or the device failed.
 */
u32 entry_out(struct core *c, u32 blk, u32 nr)
{
	struct kv_block *b = &c->blocks[blk];
	u32 entry = b->entry, slot;
	struct kv_entry *e;

	if (entry != CORE_NONE)
		return entry;
	if (!c->head->nr_free_entries || device_is_down(c, &c->domains[b->domain]))
		return CORE_NONE;
	slot = slot_alloc_out(c, part_index(c, b->domain, CORE_POOL_HOST), nr);
	if (slot == CORE_NONE)
		return CORE_NONE;
	entry = entry_alloc(c, b->domain);
	KV_BUG_ON(entry == CORE_NONE || b->state == BLK_FREE);
	e = &c->entries_low[entry];
	e->dev = blk;
	entry_set_slot(c, e, &e->host, slot);
	e->nr_ids = b->nr_ids;
	e->group = b->group;
	e->hash[0] = b->hash[0];
	e->hash[1] = b->hash[1];
	if (b->state == BLK_OPEN)
		e->flags |= ENTF_PARTIAL;
	memcpy(block_ids(c, slot), block_ids(c, blk), 4 * b->nr_ids);
	b->entry = entry;
	block_copy_get(c, blk);
	core_crash(c, CORE_CRASH_entry_out);
	copy_start(c, entry, ENT_OUT);
	return entry;
}

/**
 * entry_fill() - copy the content of an entry into a new block
 * @blk: just allocated; LIMBO until it is filled
 *
 * If only an area has the content, a host slot must be free.
 */
void entry_fill(struct core *c, u32 entry, u32 blk)
{
	struct kv_entry *e = &c->entries_low[entry];
	struct kv_block *b = &c->blocks[blk];

	KV_BUG_ON(e->dev != CORE_NONE || b->entry != CORE_NONE);
	KV_BUG_ON(e->domain != b->domain || e->group != b->group);
	block_set_state(c, blk, BLK_LIMBO);
	c->domains[b->domain].nr_filling++;
	e->dev = blk;
	b->entry = entry;
	core_crash(c, CORE_CRASH_entry_fill);
	block_copy_get(c, blk);
	entry_touch(c, entry);
	if (e->io == ENT_READ) {
		move_ended(c, entry);
	} else if (!(e->flags & ENTF_HOST)) {
		read_start(c, entry);
	} else if (e->io == ENT_IDLE) {
		copy_start(c, entry, ENT_IN);
	} else {
		KV_BUG_ON(e->io != ENT_WRITE || (e->flags & ENTF_BESIDE));
		e->flags |= ENTF_BESIDE;
		c->head->nr_copies++;
		copy_issue(c, entry, ENT_IN, ID_BESIDE);
	}
}

/* ---- I/O between host and areas ---- */

static void io_issue(struct core *c, u32 entry)
{
	const struct kv_entry *e = &c->entries_low[entry];
	u32 pool = part_pool(c, c->blocks[e->area].domain);
	const struct kv_domain *d = &c->domains[e->domain];
	struct core_io io;

	io = (struct core_io){
		.id		= request_id(c, entry),
		.write		= e->io == ENT_WRITE,
		.area		= pool - CORE_POOL_AREA,
		.host_off	= block_offset(c, e->host),
		.area_off	= block_offset(c, e->area),
		.len		= CORE_SLOT_HEADER +
				  (u32)ALIGN_UP(domain_payload(d), 4096ull),
		.payload	= (u32)domain_payload(d),
		.domain		= e->domain,
		.hash		= { e->hash[0], e->hash[1] },
		.generation	= c->blocks[e->area].written,
	};
	c->ops->io(c->ops_arg, &io);
}

void io_start(struct core *c, u32 entry, u32 kind)
{
	struct kv_entry *e = &c->entries_low[entry];

	KV_BUG_ON(e->io != ENT_IDLE || (e->flags & ENTF_OVERDUE));
	e->io = (u8)kind;
	e->generation++;
	io_begin(c, entry);
	io_issue(c, entry);
}

/**
 * request_again() - order the requests in flight for an entry once more
 *
 * Their source is unchanged, whatever happened to the target.
 */
void request_again(struct core *c, u32 entry)
{
	struct kv_entry *e = &c->entries_low[entry];
	u32 again = e->again;

	e->again = 0;
	KV_BUG_ON((again & AGAIN_BESIDE) && !(e->flags & ENTF_BESIDE));
	if (again & AGAIN_BESIDE)
		copy_issue(c, entry, ENT_IN, ID_BESIDE);
	if (!(again & AGAIN_IO))
		return;
	KV_BUG_ON(e->io == ENT_IDLE);
	if (e->io == ENT_READ || e->io == ENT_WRITE)
		io_issue(c, entry);
	else
		copy_issue(c, entry, e->io, 0);
}

/* Read content that only an area has into a host slot; one is free. */
void read_start(struct core *c, u32 entry)
{
	struct kv_entry *e = &c->entries_low[entry];
	u32 part = part_index(c, e->domain, CORE_POOL_HOST);

	KV_BUG_ON(!(e->flags & ENTF_AREA) || e->host != CORE_NONE);
	entry_set_slot(c, e, &e->host, slot_alloc_beside(c, part, e->area, true));
	KV_BUG_ON(e->host == CORE_NONE);
	memcpy(block_ids(c, e->host), block_ids(c, e->area), 4 * e->nr_ids);
	e->tries = 0;
	io_start(c, entry, ENT_READ);
}

/**
 * entry_write() - write the content of a host slot to an area
 *
 * Return: true: the write is in flight; false: no area has a slot.
 */
bool entry_write(struct core *c, u32 entry)
{
	struct kv_entry *e = &c->entries_low[entry];

	KV_BUG_ON(e->area != CORE_NONE || !(e->flags & ENTF_HOST));
	entry_set_slot(c, e, &e->area, area_slot_get(c, e->domain, e->host, e->refs));
	if (e->area == CORE_NONE)
		return false;
	memcpy(block_ids(c, e->area), block_ids(c, e->host), 4 * e->nr_ids);
	io_start(c, entry, ENT_WRITE);
	return true;
}
