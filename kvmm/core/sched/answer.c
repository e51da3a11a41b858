// SPDX-License-Identifier: Apache-2.0
/*
 * answer.c - answers of copies and I/O, and requests past their deadline
 *
 * A read that fails is tried once more.  If that fails, too, or is not answered
 * in time, the content is lost: the entry is LOST, and sequences that need it
 * compute it again.  A slot that failed is not used again.
 */
#include "kvmm/core/sched/sched.h"

#define CLEAN_BACKOFF_NS 1000000000ull	/* pause of cleaning ahead after a failed copy */
#define COPY_KNOWN	8	/* copies before the rate is known */
#define COPY_WINDOW	64	/* copies among which the fastest counts */
#define READ_TRIES	2	/* attempts to read a slot */
#define STALL_PATIENCE	4	/* deadlines after which a request is overdue in any case */

/* ---- copies between device and host ---- */

static void out_done(struct core *c, u32 entry, int status)
{
	struct kv_entry *e = &c->entries_low[entry];
	u32 blk = e->dev;

	KV_BUG_ON(blk == CORE_NONE || e->host == CORE_NONE);
	KV_BUG_ON(!c->blocks[blk].nr_copy);
	core_count(c, CORE_EV_pgdemote, !status);
	if (status) {
		if (!device_is_down(c, &c->domains[e->domain]))
			c->head->clean_after = c->now + CLEAN_BACKOFF_NS;
		e->flags |= ENTF_LOST;
		entry_unindex(c, entry);
		host_slot_put(c, entry);
	} else {
		KV_BUG_ON(c->blocks[e->host].state != BLK_LIMBO);
		KV_BUG_ON(e->flags & (ENTF_HOST | ENTF_LRU));
		e->flags |= ENTF_HOST;
		core_crash(c, CORE_CRASH_entry_done);
		c->blocks[e->host].flags &= (u8)~BLKF_BAD;
		block_set_state(c, e->host, BLK_SEALED);
		entry_list_add(c, entry);
	}
	/*
	 * A lost entry is no copy, and a tail that a sequence maps will change.
	 */
	if ((status || (e->flags & ENTF_PARTIAL)) &&
	    c->blocks[blk].state != BLK_LIMBO)
		entry_forget_dev(c, blk);
	block_copy_put(c, blk);
	entry_settle(c, entry);
}

/* The content is lost: sequences that need it compute it again. */
static void fill_failed(struct core *c, u32 entry)
{
	struct kv_entry *e = &c->entries_low[entry];
	u32 blk = e->dev, dom = e->domain;

	KV_BUG_ON(blk == CORE_NONE || c->blocks[blk].entry != entry);
	KV_BUG_ON(c->blocks[blk].state != BLK_LIMBO || !c->blocks[blk].nr_copy);
	KV_BUG_ON(!c->domains[dom].nr_filling);
	e->flags |= ENTF_LOST;
	entry_get_ref(c, entry);	/* keeps the entry until the end of this function */
	entry_unindex(c, entry);
	c->blocks[blk].entry = CORE_NONE;
	e->dev = CORE_NONE;
	c->domains[dom].nr_filling--;
	swap_lost(c, blk);
	KV_BUG_ON(e->waiters != CORE_NONE);
	block_copy_put(c, blk);
	entry_put_ref(c, entry);
}

static void fill_done(struct core *c, u32 entry)
{
	struct kv_entry *e = &c->entries_low[entry];
	u32 blk = e->dev, dom = e->domain;
	struct kv_block *b = &c->blocks[blk];

	KV_BUG_ON(blk == CORE_NONE || b->entry != entry || b->domain != dom);
	KV_BUG_ON(b->state != BLK_LIMBO || !b->nr_copy);
	KV_BUG_ON(!c->domains[dom].nr_filling || e->host == CORE_NONE);
	core_count(c, CORE_EV_pgpromote, 1);
	c->domains[dom].nr_filling--;
	b->flags &= (u8)~BLKF_BAD;
	block_set_ids(b, e->nr_ids);
	b->hash[0] = e->hash[0];
	b->hash[1] = e->hash[1];
	memcpy(block_ids(c, blk), block_ids(c, e->host), 4 * e->nr_ids);
	if (e->flags & ENTF_INDEXED) {
		index_move(c, REF_ENTRY | entry, blk);
		e->flags &= (u8)~ENTF_INDEXED;
	}
	block_filled(c, blk);
	swap_advance(c, entry);
	KV_BUG_ON(e->waiters != CORE_NONE);
	if (e->flags & ENTF_PARTIAL) {
		b->entry = CORE_NONE;
		e->dev = CORE_NONE;
		entry_settle(c, entry);
	}
	block_copy_put(c, blk);
}

/*
 * The rate of copies is that of the fastest one of the last COPY_WINDOW to twice as many.
 * A slower one says that the machine did something else meanwhile, and then computing
 * takes longer, too.  A copy takes the time since the answer before it, or since it
 * began: so copies that wait for each other do not look slow.
 */
static void copy_measure(struct core *c, const struct kv_entry *e)
{
	u64 kb = max(domain_payload(&c->domains[e->domain]) / 1024, 1ull);
	u64 ns = c->now - max(e->started, c->head->copy_last);
	struct kv_copies *r = &c->head->copies;

	r->now = min(r->nr ? r->now : ~0ull, max(ns / kb, 1ull));
	r->nr++;
	if (r->before)
		c->head->copy_ns_kb = min(r->now, r->before);
	else if (r->nr >= COPY_KNOWN)
		c->head->copy_ns_kb = r->now;
	if (r->nr < COPY_WINDOW)
		return;
	r->before = r->now;
	r->nr = 0;
}

static struct kv_entry *entry_named(struct core *c, u64 id)
{
	u32 i = (u32)id & ~ID_BESIDE;
	struct kv_entry *e = &c->entries_low[i];

	return i < core_sizes(c)->nr_entries &&
	       e->generation == (u32)(id >> 32) ? e : NULL;
}

/*
 * The entry of a copy that was answered; NULL when none is in flight.  A copy
 * that began beside a write may end after it.
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
 * tier_copy_done() - a copy between the device and the host pool ended
 * @id:     of struct core_copy
 * @status: 0 or a negative errno
 *
 * Return: false: no such copy is in flight.
 */
bool tier_copy_done(struct core *c, u64 id, int status)
{
	struct kv_entry *e = copy_answered(c, id);
	u32 io, entry = (u32)id & ~ID_BESIDE;

	if (!e)
		return false;
	/* A restore may have waited for this copy. */
	domain_kick(&c->domains[e->domain]);
	KV_BUG_ON(e->domain == ENTRY_UNUSED || !c->head->nr_copies);
	/* The content of a lost device is unknown, in spite of a good answer. */
	if (device_is_lost(c, &c->domains[e->domain]) && !status)
		status = -ENODEV;
	io = id & ID_BESIDE ? ENT_IN : e->io;
	c->head->nr_copies--;
	if (!status && !(id & ID_BESIDE))
		copy_measure(c, e);
	c->head->copy_last = c->now;
	demote_judge_all(c);
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
	return true;
}

/* ---- I/O between host and areas ---- */

/* Free the area slot of a failed request, or poison it if it was tried. */
static void area_slot_failed(struct core *c, u32 entry, u32 dir, int status)
{
	struct kv_entry *e = &c->entries_low[entry];
	bool bad = area_failed(c, e->area, dir, status);
	u32 slot = e->area;

	KV_BUG_ON(part_pool(c, c->blocks[e->area].domain) < CORE_POOL_AREA);
	KV_BUG_ON(c->blocks[e->area].state == BLK_FREE);
	if (!(e->flags & ENTF_HOST))
		entry_list_del(c, entry);
	entry_set_slot(c, e, &e->area, CORE_NONE);
	block_set_state(c, slot, bad ? BLK_POISON : BLK_FREE);
	e->flags &= (u8)~ENTF_AREA;
}

static void write_done(struct core *c, u32 entry, int status)
{
	struct kv_entry *e = &c->entries_low[entry];

	KV_BUG_ON(e->area == CORE_NONE || e->host == CORE_NONE);
	KV_BUG_ON(c->blocks[e->area].state != BLK_LIMBO);
	if (status) {
		core_count(c, CORE_EV_swap_write_error, 1);
		area_slot_failed(c, entry, 1, status);
	} else {
		core_count(c, CORE_EV_pswpout, 1);
		block_set_state(c, e->area, BLK_SEALED);
		core_crash(c, CORE_CRASH_entry_done);
		e->flags |= ENTF_AREA;
	}
	/*
	 * Else the copy that began beside the write is the request in flight.
	 */
	if (e->flags & ENTF_BESIDE)
		e->io = ENT_IN;
	else
		entry_settle(c, entry);
}

/* Late content is not used, and a slot that failed late is poisoned. */
static void read_late(struct core *c, u32 entry, int status)
{
	KV_BUG_ON(c->entries_low[entry].dev != CORE_NONE);
	KV_BUG_ON(c->entries_low[entry].io != ENT_IDLE);
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

/* The area is being emptied: the host pool has the content now. */
static void read_moved(struct core *c, u32 entry)
{
	KV_BUG_ON(!(c->entries_low[entry].flags & ENTF_HOST));
	move_ended(c, entry);
	area_slot_put(c, entry);
	entry_settle(c, entry);
}

/*
 * A second read may succeed where the first failed; checksums tell whether the
 * content is right.  It cannot if swapd does not have the area.
 */
static bool read_again(struct core *c, u32 entry, int status)
{
	struct kv_entry *e = &c->entries_low[entry];

	if (io_is_away(status) || ++e->tries >= READ_TRIES)
		return false;
	KV_BUG_ON(e->io != ENT_IDLE || e->host == CORE_NONE);
	core_count(c, CORE_EV_swap_read_retry, 1);
	(void)!area_failed(c, e->area, 0, status);
	io_start(c, entry, ENT_READ);
	return true;
}

static void read_done(struct core *c, u32 entry, int status)
{
	struct kv_entry *e = &c->entries_low[entry];
	bool moved = e->moving;

	KV_BUG_ON(e->host == CORE_NONE || e->area == CORE_NONE);
	KV_BUG_ON(e->flags & ENTF_HOST);
	KV_BUG_ON(!moved && e->dev == CORE_NONE);
	if (!status) {
		core_count(c, CORE_EV_pswpin, 1);
		entry_list_del(c, entry);
		e->flags |= ENTF_HOST;
		block_set_state(c, e->host, BLK_SEALED);
		entry_list_add(c, entry);
		if (moved) {
			read_moved(c, entry);
			return;
		}
		/* Where slots are scarce, one tier less has cache. */
		if ((e->flags & ENTF_INDEXED) && area_is_scarce(c, e->area))
			area_slot_put(c, entry);
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
 * tier_io_done() - a transfer between the host pool and an area ended
 * @id:     of struct core_io
 * @status: as in core_io_done()
 *
 * Return: false: no such transfer is in flight.
 */
bool tier_io_done(struct core *c, u64 id, int status)
{
	struct kv_entry *e = entry_named(c, id);
	u32 io;

	if (!e || (e->io != ENT_READ && e->io != ENT_WRITE) ||
	    (id & ID_BESIDE))
		return false;
	domain_kick(&c->domains[e->domain]);
	KV_BUG_ON(e->domain == ENTRY_UNUSED || e->area == CORE_NONE);
	io = e->io;
	e->io = ENT_IDLE;
	io_end(c, (u32)id, io == ENT_WRITE, status);
	demote_judge_all(c);
	if (io == ENT_WRITE)
		write_done(c, (u32)id, status);
	else if (e->flags & ENTF_LOST)
		read_late(c, (u32)id, status);
	else
		read_done(c, (u32)id, status);
	return true;
}

/* ---- requests that are overdue ---- */

/* No sequence waits for the read; later ones compute the content again. */
static void read_orphaned(struct core *c, u32 entry)
{
	struct kv_entry *e = &c->entries_low[entry];

	e->flags |= ENTF_LOST;
	entry_unindex(c, entry);
	if (e->dev != CORE_NONE)
		entry_forget_dev(c, e->dev);
}

/**
 * read_abandon() - the content of an overdue read is lost
 *
 * The sequences that waited for it go on; both slots stay until the answer.
 */
static void read_abandon(struct core *c, u32 entry)
{
	struct kv_entry *e = &c->entries_low[entry];

	bool moved = e->moving;

	KV_BUG_ON(e->io != ENT_READ || e->area == CORE_NONE);
	KV_BUG_ON(e->flags & ENTF_LOST);
	move_ended(c, entry);
	entry_list_del(c, entry);
	e->flags &= (u8)~ENTF_AREA;
	block_set_state(c, e->area, BLK_LIMBO);
	if (moved)
		read_orphaned(c, entry);
	else
		fill_failed(c, entry);
}

static bool is_overdue(const struct core *c, const struct kv_pool *p,
		       const struct kv_entry *e)
{
	u64 deadline = core_cfg(c)->io_deadline_ns;

	return c->now - max(e->started, p->moved) > deadline ||
	       c->now - e->started > STALL_PATIENCE * deadline;
}

/* The oldest request of the area becomes overdue. */
static void stall_begin(struct core *c, struct kv_pool *p)
{
	u32 entry = p->io_head;
	struct kv_entry *e = &c->entries_low[entry];

	KV_BUG_ON(e->flags & ENTF_OVERDUE);
	KV_BUG_ON(e->io != ENT_READ && e->io != ENT_WRITE);
	KV_BUG_ON(p->nr_overdue >= p->nr_ios);
	moving_del(c, p, entry);
	e->flags |= ENTF_OVERDUE;
	p->nr_overdue++;
	c->head->nr_overdue++;
	c->head->stalled |= BIT(p - c->head->pools - CORE_POOL_AREA);
	core_count(c, CORE_EV_swap_stall, 1);
	if (e->io == ENT_READ)
		read_abandon(c, entry);
}

/**
 * io_deadlines() - find requests that have become overdue
 *
 * This happens on ticks, so waiting sequences are kicked here.
 */
void io_deadlines(struct core *c)
{
	bool any = false;
	u32 i;

	if (!core_cfg(c)->io_deadline_ns)
		return;
	for (i = CORE_POOL_AREA; i < CORE_NR_POOLS; i++) {
		struct kv_pool *p = core_pool(c, i);

		while (p->io_head != CORE_NONE &&
		       is_overdue(c, p, &c->entries_low[p->io_head])) {
			stall_begin(c, p);
			any = true;
		}
	}
	if (any)
		core_kick(c);
}
