// SPDX-License-Identifier: Apache-2.0
/*
 * tier_io.c - what is in flight for an entry: copies and I/O
 *
 *	OUT	device -> host		READ	area -> host, then IN
 *	IN	host -> device		WRITE	host -> area
 *
 * An entry has one request in flight, but an IN may go on beside a WRITE: both
 * only read the host slot, and who waits for the one need not wait for the
 * other.  A block that a copy reads or fills has one reference more and is
 * LIMBO when nothing else holds it; a slot named by a request is LIMBO or
 * belongs to an entry whose io is not idle.  Neither is reused before the
 * answer came: I/O outlives whoever asked for it.
 *
 * A read that fails is tried once more.  If that fails too, or is not answered
 * in time, the content is lost: the entry is LOST, sequences that need it
 * compute again.  A slot that failed is not used again.
 */
#include "kvmm/core/internal.h"

#define CLEAN_BACKOFF_NS 1000000000ull	/* after a copy that failed */
#define READ_TRIES	2	/* of a slot whose read fails */

#define ID_BESIDE	0x80000000u	/* in an id: of the IN beside a WRITE */

static u64 request_id(const struct core *c, u32 entry)
{
	return ((u64)c->entries_low[entry].generation << 32) | entry;
}

/* ---- copies between device and host ---- */

static void copy_issue(struct core *c, u32 entry, u32 io, u32 id_flag)
{
	const struct kv_entry *e = &c->entries_low[entry];
	struct core_copy cp;

	cp = (struct core_copy){
		.id		= request_id(c, entry) | id_flag,
		.to_host	= io == ENT_OUT,
		.dev_off	= block_offset(c, e->dev),
		.host_off	= block_offset(c, e->host) + CORE_SLOT_HEADER,
		.bytes		= c->domains[e->domain].block_bytes,
	};
	c->ops->copy(c->ops_arg, &cp);
}

static void copy_start(struct core *c, u32 entry, u32 io)
{
	struct kv_entry *e = &c->entries_low[entry];

	e->io = (u8)io;
	e->generation++;
	e->started = c->now;
	c->head->nr_copies++;
	copy_issue(c, entry, io, 0);
}

/**
 * entry_out() - have a block's content on the host
 * @blk: sealed, or a tail that nobody will write any more
 * @nr:  blocks of its sequence that go next, and itself, from the end on; 0:
 *       nobody knows
 *
 * Return: the entry, whose copy may be under way; CORE_NONE: no slot is free,
 * or no record, or the device failed.
 */
u32 entry_out(struct core *c, u32 blk, u32 nr)
{
	struct kv_block *b = &c->blocks[blk];
	u32 entry = b->entry, slot;
	struct kv_entry *e;

	if (entry != CORE_NONE)
		return entry;
	if (!c->head->nr_free_entries || c->head->device)
		return CORE_NONE;
	slot = slot_alloc_out(c, part_index(c, b->domain, CORE_POOL_HOST), nr);
	if (slot == CORE_NONE)
		return CORE_NONE;
	entry = entry_alloc(c, b->domain);
	e = &c->entries_low[entry];
	e->dev = blk;
	e->host = slot;
	e->nr_ids = b->nr_ids;
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

static void out_done(struct core *c, u32 entry, int status)
{
	struct kv_entry *e = &c->entries_low[entry];
	u32 blk = e->dev;

	core_count(c, CORE_EV_pgdemote, !status);
	if (status) {
		if (!c->head->device)
			c->head->clean_after = c->now + CLEAN_BACKOFF_NS;
		e->flags |= ENTF_LOST;
		entry_unindex(c, entry);
		host_slot_put(c, entry);
	} else {
		e->flags |= ENTF_HOST;
		core_crash(c, CORE_CRASH_entry_done);
		c->blocks[e->host].flags &= (u8)~BLKF_BAD;
		block_set_state(c, e->host, BLK_SEALED);
		host_list_add(c, entry);
	}
	/* A lost entry is no copy, and a tail that somebody has will change. */
	if ((status || (e->flags & ENTF_PARTIAL)) &&
	    c->blocks[blk].state != BLK_LIMBO)
		entry_forget_dev(c, blk);
	block_copy_put(c, blk);
	entry_settle(c, entry);
}

/**
 * entry_fill() - bring an entry's content into a fresh block
 * @blk: just allocated; LIMBO until it is filled
 *
 * For content that only an area has a host slot must be free.
 */
void entry_fill(struct core *c, u32 entry, u32 blk)
{
	struct kv_entry *e = &c->entries_low[entry];
	struct kv_block *b = &c->blocks[blk];

	KV_BUG_ON(e->dev != CORE_NONE || b->entry != CORE_NONE);
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
		e->flags |= ENTF_BESIDE;
		c->head->nr_copies++;
		copy_issue(c, entry, ENT_IN, ID_BESIDE);
	}
}

/* The content cannot be had: whoever needs it computes it again. */
static void fill_failed(struct core *c, u32 entry)
{
	struct kv_entry *e = &c->entries_low[entry];
	u32 blk = e->dev, dom = e->domain;

	e->flags |= ENTF_LOST;
	e->refs++;			/* it must outlive what follows */
	entry_unindex(c, entry);
	c->blocks[blk].entry = CORE_NONE;
	e->dev = CORE_NONE;
	c->domains[dom].nr_filling--;
	swap_lost(c, blk);
	block_copy_put(c, blk);
	entry_put_ref(c, entry);
}

static void fill_done(struct core *c, u32 entry)
{
	struct kv_entry *e = &c->entries_low[entry];
	u32 blk = e->dev, dom = e->domain;
	struct kv_block *b = &c->blocks[blk];

	core_count(c, CORE_EV_pgpromote, 1);
	c->domains[dom].nr_filling--;
	b->flags &= (u8)~BLKF_BAD;
	b->nr_ids = (u8)e->nr_ids;
	b->hash[0] = e->hash[0];
	b->hash[1] = e->hash[1];
	memcpy(block_ids(c, blk), block_ids(c, e->host), 4 * e->nr_ids);
	if (e->flags & ENTF_INDEXED) {
		index_move(c, REF_ENTRY | entry, blk);
		e->flags &= (u8)~ENTF_INDEXED;
	}
	block_filled(c, blk);
	swap_advance(c, entry);
	if (e->flags & ENTF_PARTIAL) {
		b->entry = CORE_NONE;
		e->dev = CORE_NONE;
		entry_settle(c, entry);
	}
	block_copy_put(c, blk);
}

static void copy_measure(struct core *c, const struct kv_entry *e)
{
	u64 kb = max(c->domains[e->domain].block_bytes / 1024, 1ull);
	u64 one = (c->now - e->started) / kb;
	u64 *rate = &c->head->copy_ns_kb;

	*rate = *rate ? (*rate * 7 + one) / 8 : one;
}

static struct kv_entry *entry_named(struct core *c, u64 id)
{
	u32 i = (u32)id & ~ID_BESIDE;
	struct kv_entry *e = &c->entries_low[i];

	return i < core_sizes(c)->nr_entries &&
	       e->generation == (u32)(id >> 32) ? e : NULL;
}

/*
 * The entry whose copy was answered; NULL when none is in flight.  A copy that
 * began beside a write may have outlived it.
 */
static struct kv_entry *copy_answered(struct core *c, u64 id)
{
	struct kv_entry *e = entry_named(c, id);

	if (!e || !(e->flags & ENTF_BESIDE) != !(id & ID_BESIDE))
		return NULL;
	if (!(id & ID_BESIDE))
		return e->io == ENT_OUT || e->io == ENT_IN ? e : NULL;
	return e;
}

/**
 * core_copy_done() - a copy is over
 * @id:     of struct core_copy; one that is not in flight is ignored
 * @status: 0 or a negative errno
 */
void core_copy_done(struct core *c, u64 now, u64 id, int status)
{
	struct kv_entry *e = copy_answered(c, id);
	u32 io, entry = (u32)id & ~ID_BESIDE;
	core_event(c);

	c->now = now;
	/* Nobody knows what a lost device holds, whatever an answer says. */
	if (device_is_lost(c) && !status)
		status = -ENODEV;
	if (move_answered(c, id, status)) {
		admit_all(c);
		return;
	}
	if (!e)
		return;
	/* A restore may have waited for just this. */
	domain_kick(&c->domains[e->domain]);
	io = id & ID_BESIDE ? ENT_IN : e->io;
	c->head->nr_copies--;
	if (!status && !(id & ID_BESIDE))
		copy_measure(c, e);
	if (id & ID_BESIDE)
		e->flags &= (u8)~ENTF_BESIDE;
	if (e->io != ENT_WRITE)
		e->io = ENT_IDLE;
	if (io == ENT_OUT)
		out_done(c, entry, status);
	else if (status)
		fill_failed(c, entry);
	else
		fill_done(c, entry);
	admit_all(c);
	tier_background(c);
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
				  (u32)ALIGN_UP(d->block_bytes, 4096ull),
		.payload	= (u32)d->block_bytes,
		.domain		= e->domain,
		.hash		= { e->hash[0], e->hash[1] },
		.generation	= c->blocks[e->area].written,
	};
	c->ops->io(c->ops_arg, &io);
}

static void io_start(struct core *c, u32 entry, u32 kind)
{
	struct kv_entry *e = &c->entries_low[entry];

	e->io = (u8)kind;
	e->generation++;
	io_begin(c, entry);
	io_issue(c, entry);
}

/**
 * request_again() - order what was in flight for an entry once more
 *
 * The source is as it was, whatever became of the target.
 */
void request_again(struct core *c, u32 entry)
{
	struct kv_entry *e = &c->entries_low[entry];
	u32 again = e->again;

	e->again = 0;
	if (again & AGAIN_BESIDE)
		copy_issue(c, entry, ENT_IN, ID_BESIDE);
	if (!(again & AGAIN_IO))
		return;
	if (e->io == ENT_READ || e->io == ENT_WRITE)
		io_issue(c, entry);
	else
		copy_issue(c, entry, e->io, 0);
}

/* Read what only an area has into a host slot; there is one. */
void read_start(struct core *c, u32 entry)
{
	struct kv_entry *e = &c->entries_low[entry];
	u32 part = part_index(c, e->domain, CORE_POOL_HOST);

	KV_BUG_ON(!(e->flags & ENTF_AREA) || e->host != CORE_NONE);
	e->host = slot_alloc_beside(c, part, e->area, true);
	KV_BUG_ON(e->host == CORE_NONE);
	memcpy(block_ids(c, e->host), block_ids(c, e->area), 4 * e->nr_ids);
	e->tries = 0;
	io_start(c, entry, ENT_READ);
}

/**
 * entry_write() - have a host slot's content in an area too
 *
 * Return: whether its write is in flight; false: no area has a slot.
 */
bool entry_write(struct core *c, u32 entry)
{
	struct kv_entry *e = &c->entries_low[entry];

	e->area = area_slot_get(c, e->domain, e->host, e->refs);
	if (e->area == CORE_NONE)
		return false;
	memcpy(block_ids(c, e->area), block_ids(c, e->host), 4 * e->nr_ids);
	io_start(c, entry, ENT_WRITE);
	return true;
}

/* The area slot of a request that failed: not to be used again, if it was. */
static void area_slot_failed(struct core *c, u32 entry, u32 dir, int status)
{
	struct kv_entry *e = &c->entries_low[entry];
	bool bad = area_failed(c, e->area, dir, status);

	block_set_state(c, e->area, bad ? BLK_POISON : BLK_FREE);
	e->area = CORE_NONE;
	e->flags &= (u8)~ENTF_AREA;
}

static void write_done(struct core *c, u32 entry, int status)
{
	struct kv_entry *e = &c->entries_low[entry];

	if (status) {
		core_count(c, CORE_EV_swap_write_error, 1);
		area_slot_failed(c, entry, 1, status);
	} else {
		core_count(c, CORE_EV_pswpout, 1);
		block_set_state(c, e->area, BLK_SEALED);
		core_crash(c, CORE_CRASH_entry_done);
		e->flags |= ENTF_AREA;
	}
	/* Else the copy beside it is the one request now. */
	if (e->flags & ENTF_BESIDE)
		e->io = ENT_IN;
	else
		entry_settle(c, entry);
}

/* Nobody waits for the read; whoever comes to need it computes it again. */
static void read_orphaned(struct core *c, u32 entry)
{
	struct kv_entry *e = &c->entries_low[entry];

	e->flags |= ENTF_LOST;
	entry_unindex(c, entry);
	if (e->dev != CORE_NONE)
		entry_forget_dev(c, e->dev);
}

/**
 * read_abandon() - the content of a read that is overdue is lost
 *
 * Who waited for it goes on; both slots wait for the answer.
 */
void read_abandon(struct core *c, u32 entry)
{
	struct kv_entry *e = &c->entries_low[entry];

	bool moved = e->moving;

	move_ended(c, entry);
	e->flags &= (u8)~ENTF_AREA;
	block_set_state(c, e->area, BLK_LIMBO);
	if (moved)
		read_orphaned(c, entry);
	else
		fill_failed(c, entry);
}

/* What came late is not believed, what failed late is not used again. */
static void read_late(struct core *c, u32 entry, int status)
{
	host_slot_put(c, entry);
	if (status) {
		core_count(c, CORE_EV_swap_read_error, 1);
		area_slot_failed(c, entry, 0, status);
	} else {
		core_count(c, CORE_EV_pswpin, 1);
		area_slot_put(c, entry);
	}
	entry_settle(c, entry);
}

/* Nobody waits for it: the host has it now, and the area is to go. */
static void read_moved(struct core *c, u32 entry)
{
	move_ended(c, entry);
	area_slot_put(c, entry);
	entry_settle(c, entry);
}

/*
 * A disk that failed once may do it the second time: sums say whether what
 * comes is right.  swapd without the area will not.
 */
static bool read_again(struct core *c, u32 entry, int status)
{
	struct kv_entry *e = &c->entries_low[entry];

	if (io_is_away(status) || ++e->tries >= READ_TRIES)
		return false;
	core_count(c, CORE_EV_swap_read_retry, 1);
	(void)!area_failed(c, e->area, 0, status);
	io_start(c, entry, ENT_READ);
	return true;
}

static void read_done(struct core *c, u32 entry, int status)
{
	struct kv_entry *e = &c->entries_low[entry];
	bool moved = e->moving;

	if (!status) {
		core_count(c, CORE_EV_pswpin, 1);
		e->flags |= ENTF_HOST;
		block_set_state(c, e->host, BLK_SEALED);
		host_list_add(c, entry);
		if (moved)
			read_moved(c, entry);
		else
			copy_start(c, entry, ENT_IN);
		return;
	}
	if (read_again(c, entry, status))
		return;
	core_count(c, CORE_EV_swap_read_error, 1);
	move_ended(c, entry);
	host_slot_put(c, entry);
	area_slot_failed(c, entry, 0, status);
	if (moved)
		entry_lose(c, entry);
	else
		fill_failed(c, entry);
}

/**
 * core_io_done() - a transfer between host and area is over
 * @id:     of struct core_io; one that is not in flight is ignored
 * @status: 0: all of it, and for a read header and checksum are right; else a
 *          negative errno
 */
void core_io_done(struct core *c, u64 now, u64 id, int status)
{
	struct kv_entry *e = entry_named(c, id);
	u32 io;
	core_event(c);

	c->now = now;
	if (!e || (e->io != ENT_READ && e->io != ENT_WRITE) ||
	    (id & ID_BESIDE))
		return;
	domain_kick(&c->domains[e->domain]);
	io = e->io;
	e->io = ENT_IDLE;
	io_end(c, (u32)id, io == ENT_WRITE, status);
	if (io == ENT_WRITE)
		write_done(c, (u32)id, status);
	else if (e->flags & ENTF_LOST)
		read_late(c, (u32)id, status);
	else
		read_done(c, (u32)id, status);
	admit_all(c);
	tier_background(c);
}
