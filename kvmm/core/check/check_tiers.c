// SPDX-License-Identifier: Apache-2.0
/*
 * check_tiers.c - walkers of the lower tiers
 *
 * They compute from the entries: the slots that are used, the lists that the
 * entries are on, and the requests in flight; and they check the spans of the
 * lower pools and their free slots.  References from tables were counted before,
 * into core.walked.  Slots are counted into the core's scratch.
 */
#include "kvmm/core/check/check.h"

/* Is the block being filled, or waiting for its read? */
bool block_is_filled(const struct core *c, u32 blk)
{
	const struct kv_block *b = &c->blocks[blk];

	if (b->state != BLK_LIMBO)
		return false;
	return (b->flags & BLKF_TARGET) || (b->entry != CORE_NONE &&
	       c->entries_low[b->entry].io != ENT_OUT);
}

/* ---- entries and slots ---- */

#define NEEDED	0x10000u	/* in the scratch of a slot: a table names its entry */

/* A slot that an entry names is in the right part and the right state. */
static void walk_slot(struct walk *w, u32 entry, u32 slot, u32 pool, bool valid)
{
	const struct core *c = w->c;
	const struct kv_entry *e = &c->entries_low[entry];
	const struct kv_block *b = &c->blocks[slot];

	expect(w, "swap", "part of the slot of entry", entry,
	       part_domain(c, b->domain), e->domain);
	expect(w, "swap", "pool of the slot of entry", entry,
	       part_pool(c, b->domain) >= pool, 1);
	expect(w, "swap", "state of the slot of entry", entry, b->state,
	       valid ? BLK_SEALED : BLK_LIMBO);
	c->scratch[slot] += e->refs ? 1 + NEEDED : 1;
}

static void walk_entry(struct walk *w, u32 i)
{
	const struct core *c = w->c;
	const struct kv_entry *e = &c->entries_low[i];

	expect(w, "swap", "references of entry", i, e->refs, c->walked[i]);
	expect(w, "swap", "needed by nobody: entry", i, e->refs ||
	       (e->flags & ENTF_INDEXED) || e->dev != CORE_NONE ||
	       e->io != ENT_IDLE, 1);
	if (e->dev != CORE_NONE)
		expect(w, "swap", "upper copy of entry", i,
		       c->blocks[e->dev].entry, i);
	if (e->host != CORE_NONE)
		walk_slot(w, i, e->host, CORE_POOL_HOST,
			  e->flags & ENTF_HOST);
	if (e->area != CORE_NONE)
		walk_slot(w, i, e->area, CORE_POOL_AREA,
			  e->flags & ENTF_AREA);
	expect(w, "swap", "slot list of entry", i, !!(e->flags & ENTF_LRU),
	       !!(e->flags & (ENTF_HOST | ENTF_AREA)));
	expect(w, "stall", "request beside a write of entry", i,
	       (e->flags & ENTF_BESIDE) && e->io != ENT_WRITE &&
	       e->io != ENT_IN, 0);
	expect(w, "stall", "moves without a read: entry", i,
	       e->moving && e->io != ENT_READ, 0);
	if (e->flags & ENTF_OVERDUE)
		expect(w, "stall", "overdue request of entry", i,
		       e->io == ENT_WRITE || (e->io == ENT_READ &&
		       (e->flags & ENTF_LOST) && e->dev == CORE_NONE), 1);
	if (e->flags & ENTF_INDEXED) {
		const u32 *ids = block_ids(c, e->host != CORE_NONE ? e->host :
							e->area);

		expect(w, "index", "lookup of entry", i,
		       index_lookup(c, e->domain, e->group, e->hash, ids),
		       REF_ENTRY | i);
		check_chain(w, REF_ENTRY | i, ids);
	}
}

/* The slots in use are those that entries name. */
static void walk_slots(struct walk *w, u32 first, u32 *nr, u32 *needed)
{
	const struct core *c = w->c;
	const struct kv_span *sp = &c->spans[first];
	u32 base = first * core_sizes(c)->blocks_per_extent;
	u32 n, free = 0;

	for (n = base; n < base + sp->nr_blocks; n++) {
		const struct kv_block *b = &c->blocks[n];

		nr[b->state]++;
		free += b->state == BLK_FREE;
		*needed += c->scratch[n] >= NEEDED;
		expect(w, "swap", "owners of slot", n, c->scratch[n] % NEEDED,
		       b->state == BLK_SEALED || b->state == BLK_LIMBO);
		expect(w, "span", "owner of block", n, b->domain, sp->domain);
		expect(w, "span", "span of block", n, block_span(c, n), first);
	}
	walk_span_free(w, first, free);
	for (n = first; n < first + sp->nr_extents; n++) {
		expect(w, "extent", "state of", n, c->extents[n].state,
		       EXT_SPAN);
		expect(w, "extent", "domain of", n, c->extents[n].domain,
		       sp->domain);
	}
}

/* A domain's part in a lower pool. */
static void walk_part(struct walk *w, u32 part)
{
	const struct core *c = w->c;
	const struct kv_part *rec = part_at(c, part);
	const struct kv_pool *p = core_pool(c, part_pool(c, part));
	u32 nr[NR_BLK_STATES] = { 0 };
	u32 i, spans = 0, needed = 0;

	for (i = p->first; i < p->first + p->nr_extents; i++) {
		if (!c->spans[i].nr_extents || c->spans[i].domain != part)
			continue;
		spans++;
		walk_slots(w, i, nr, &needed);
	}
	expect(w, "swap", "spans of part", part, rec->nr_spans, spans);
	expect(w, "swap", "needed slots of part", part, rec->nr_needed, needed);
	for (i = 0; i < NR_BLK_STATES; i++)
		expect(w, "law 1", core_block_state_name(i), part, rec->nr[i],
		       nr[i]);
	walk_classes(w, part);
}

/* ---- lists ---- */

/* The pool of the highest valid slot; CORE_NONE: it has none. */
static u32 entry_top_pool(const struct core *c, const struct kv_entry *e)
{
	if (e->flags & ENTF_HOST)
		return CORE_POOL_HOST;
	return e->area != CORE_NONE && (e->flags & ENTF_AREA) ?
	       part_pool(c, c->blocks[e->area].domain) : CORE_NONE;
}

/* The list of a domain's slots in a lower pool.  Return: its length. */
static u32 walk_slot_list(struct walk *w, u32 dom, u32 pool)
{
	const struct core *c = w->c;
	const struct kv_part *part;
	u32 i, n, prev = CORE_NONE;
	bool next = false;

	part = part_at(c, part_index(c, dom, pool));
	if (!part->used)
		return 0;
	for (i = part->lru_head, n = 0; i != CORE_NONE &&
	     n <= core_sizes(c)->nr_entries; i = c->entries_low[i].next, n++) {
		const struct kv_entry *e = &c->entries_low[i];

		expect(w, "host list", "domain of entry", i, e->domain, dom);
		expect(w, "host list", "flag of entry", i,
		       !!(e->flags & ENTF_LRU), 1);
		expect(w, "host list", "highest slot of entry", i,
		       entry_top_pool(c, e), pool);
		expect(w, "host list", "back link of entry", i, e->prev, prev);
		next |= i == part->write_next;
		prev = i;
	}
	expect(w, "host list", "tail in domain", dom, part->lru_tail, prev);
	expect(w, "host list", "next to be written is on it", dom,
	       part->write_next == CORE_NONE || next, 1);
	return n;
}

/* Each entry with a flag is on its list, and each record is used or free. */
static void walk_records(struct walk *w)
{
	const struct core *c = w->c;
	u32 i, n, pool, used = 0, listed = 0;

	for (i = 0; i < core_sizes(c)->nr_entries; i++) {
		if (c->entries_low[i].domain == ENTRY_UNUSED)
			continue;
		used++;
		listed += !!(c->entries_low[i].flags & ENTF_LRU);
	}
	for (i = c->head->free_entry, n = 0; i != CORE_NONE &&
	     n <= core_sizes(c)->nr_entries; i = c->entries_low[i].next, n++)
		expect(w, "swap", "domain of free record", i,
		       c->entries_low[i].domain, ENTRY_UNUSED);
	expect(w, "swap", "free records of list", 0, n,
	       core_sizes(c)->nr_entries - used);
	expect(w, "swap", "free records", 0, c->head->nr_free_entries, n);
	for (i = 0, n = 0; i < core_cfg(c)->max_domains; i++)
		for (pool = CORE_POOL_HOST; c->domains[i].used &&
		     pool < CORE_NR_POOLS; pool++)
			n += walk_slot_list(w, i, pool);
	expect(w, "host list", "lengths of all", 0, n, listed);
}

/* The @nr requests of an area that are not overdue, oldest first. */
static void walk_moving(struct walk *w, u32 pool, u32 nr)
{
	const struct core *c = w->c;
	const struct kv_pool *p = core_pool(c, pool);
	u32 i, n, prev = CORE_NONE;
	u64 started = 0;

	for (i = p->io_head, n = 0; i != CORE_NONE && n <= p->nr_ios;
	     i = c->entries_low[i].io_next, n++) {
		const struct kv_entry *e = &c->entries_low[i];

		expect(w, "stall", "back link of entry", i, e->io_prev, prev);
		expect(w, "stall", "older than the one before it: entry", i,
		       e->started < started, 0);
		if (e->domain == ENTRY_UNUSED || e->area == CORE_NONE ||
		    (e->io != ENT_READ && e->io != ENT_WRITE) ||
		    (e->flags & ENTF_OVERDUE))
			walk_fault(w, "stall", "does not move: entry", i, 1, 0);
		else
			expect(w, "stall", "pool of entry", i,
			       part_pool(c, c->blocks[e->area].domain), pool);
		prev = i;
		started = e->started;
	}
	expect(w, "stall", "moving in pool", pool, n, nr);
	expect(w, "stall", "tail in pool", pool, p->io_tail, prev);
}

/* Requests in flight, counted from the entries and from the lists. */
static void walk_ios(struct walk *w)
{
	const struct core *c = w->c;
	u32 nr[CORE_NR_POOLS] = { 0 }, late[CORE_NR_POOLS] = { 0 };
	u32 moving[CORE_NR_POOLS] = { 0 }, i, pool, copies = 0;
	u64 out[CORE_NR_POOLS][2] = { { 0 } };

	for (i = 0; i < core_sizes(c)->nr_entries; i++) {
		const struct kv_entry *e = &c->entries_low[i];

		if (e->domain == ENTRY_UNUSED)
			continue;
		copies += e->io == ENT_OUT || e->io == ENT_IN ||
			  (e->flags & ENTF_BESIDE);
		if (e->io != ENT_READ && e->io != ENT_WRITE)
			continue;
		pool = part_pool(c, c->blocks[e->area].domain);
		nr[pool]++;
		late[pool] += !!(e->flags & ENTF_OVERDUE);
		moving[pool] += e->moving;
		out[pool][e->io == ENT_WRITE] += CORE_SLOT_HEADER +
			domain_payload(&c->domains[e->domain]);
	}
	expect(w, "stall", "copies in flight", 0, c->head->nr_copies, copies);
	for (i = CORE_POOL_AREA; i < CORE_NR_POOLS; i++) {
		const struct kv_pool *p = core_pool(c, i);

		expect(w, "stall", "requests of pool", i, p->nr_ios, nr[i]);
		expect(w, "stall", "overdue in pool", i, p->nr_overdue,
		       late[i]);
		expect(w, "swap", "reads to empty pool", i, p->nr_moving,
		       moving[i]);
		expect(w, "swap", "bytes to be read from pool", i, p->out[0],
		       out[i][0]);
		expect(w, "swap", "bytes to be written to pool", i, p->out[1],
		       out[i][1]);
		expect(w, "stall", "stalled area", i - CORE_POOL_AREA,
		       !!(c->head->stalled & BIT(i - CORE_POOL_AREA)),
		       p->nr_overdue != 0);
		walk_moving(w, i, nr[i] - late[i]);
		nr[0] += nr[i];
		late[0] += late[i];
	}
	expect(w, "stall", "requests", 0, c->head->nr_ios, nr[0]);
	expect(w, "stall", "overdue", 0, c->head->nr_overdue, late[0]);
}

/* All of the lower tiers; no slot is counted in scratch yet. */
void walk_tiers(struct walk *w)
{
	const struct core *c = w->c;
	u32 i, n;

	walk_ios(w);
	walk_records(w);
	for (i = 0; i < core_sizes(c)->nr_entries; i++)
		if (c->entries_low[i].domain != ENTRY_UNUSED)
			walk_entry(w, i);
	for (i = 0; i < core_cfg(c)->max_domains; i++)
		for (n = CORE_POOL_HOST; n < CORE_NR_POOLS; n++)
			if (c->domains[i].used &&
			    part_at(c, part_index(c, i, n))->used)
				walk_part(w, part_index(c, i, n));
}
