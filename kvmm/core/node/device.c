// SPDX-License-Identifier: Apache-2.0
/*
 * device.c - failure of the device of a pool
 *
 * The shell reports it once, in one of two ways:
 *
 *	CORE_DEVICE_CUT   the shell lost its access to the device: nothing can
 *			  be copied and no memory made.  Memory and clients
 *			  live on
 *	CORE_DEVICE_LOST  likewise, and the content of its memory is unknown
 *
 * A block, or a slot of the host pool, that a copy in flight was filling is
 * marked BLKF_BAD.  The copy failed, but may not have stopped, so the block
 * becomes POISON instead of FREE.  The mark is cleared when a copy is answered
 * without an error, unless the memory is lost.  The next core in this arena has
 * no copy in flight, and frees those blocks.
 *
 * Cut: the capacity of a domain is the memory that its tenant has
 * (kv_domain.kept).  Waiting sequences that need more get -EDQUOT.  No memory
 * changes its tenant, since that needs new memory.  Content on lower tiers
 * cannot come back: the copy fails and the content is computed again.
 *
 * Lost: every sequence becomes FAILED with -ENODEV, at once or when its open
 * steps end, and its client is told by KVMM_EV_POISONED.  The index has no block
 * of the device.  Free blocks become POISON, also those that are freed later, so
 * no block is allocated.  Such an arena is not adopted.
 *
 * A domain with several shards fails with any of its devices.  Lost, its memory goes
 * back to the pools when its last client has gone, and no copy uses it any more: the
 * devices that work serve other domains.
 */
#include "kvmm/core/node/node.h"

const char *core_device_name(u32 device)
{
	static const char * const names[] = {
		[CORE_DEVICE_WORKS]	= "works",
		[CORE_DEVICE_CUT]	= "cut",
		[CORE_DEVICE_LOST]	= "lost",
	};

	return device < ARRAY_SIZE(names) ? names[device] : "unknown";
}

/* Mark the blocks and slots that copies of the pool in flight are filling. */
static void mark_targets(struct core *c, u32 pool)
{
	u32 i;

	for (i = 0; i < core_sizes(c)->nr_entries; i++) {
		const struct kv_entry *e = &c->entries_low[i];

		if (e->domain == ENTRY_UNUSED || !domain_is_in(&c->domains[e->domain], pool))
			continue;
		KV_BUG_ON(e->io == ENT_OUT && e->host == CORE_NONE);
		KV_BUG_ON((e->io == ENT_IN || (e->flags & ENTF_BESIDE)) &&
			  e->dev == CORE_NONE);
		if (e->io == ENT_OUT)
			c->blocks[e->host].flags |= BLKF_BAD;
		if (e->io == ENT_IN || (e->flags & ENTF_BESIDE))
			c->blocks[e->dev].flags |= BLKF_BAD;
	}
	for (i = 0; i < CORE_MAX_MOVES; i++)
		if (c->head->moves[i].state == MOVE_COPYING &&
		    domain_is_in(&c->domains[c->blocks[c->head->moves[i].to].domain], pool))
			c->blocks[c->head->moves[i].to].flags |= BLKF_BAD;
}

/* Can the run be a span of the domain, when no memory can be made? */
static bool run_is_kept(const struct core *c, const struct kv_domain *d,
			u32 first)
{
	u32 e, n;

	for_each_extent_of(c, d, e, n, first)
		if (!c->extents[e].backed || c->extents[e].tenant != d->tenant ||
		    c->extents[e].state == EXT_REVOKING)
			return false;
	return true;
}

static u32 bad_blocks(const struct core *c, u32 dom)
{
	const u32 end = core_sizes(c)->nr_extents *
			core_sizes(c)->blocks_per_extent;
	u32 i, nr = 0;

	for (i = 0; i < end; i++)
		nr += (c->blocks[i].flags & BLKF_BAD) &&
		      c->blocks[i].domain == dom;
	return nr;
}

static void keep_what_there_is(struct core *c, u32 pool)
{
	u32 i, first;

	for_each_domain(c, i) {
		struct kv_domain *d = &c->domains[i];
		u32 runs = 0, bad;

		if (!domain_is_in(d, pool))
			continue;
		for_each_run(c, d, first)
			runs += run_is_kept(c, d, first);
		bad = bad_blocks(c, i);
		d->kept = runs * d->dev.span_blocks;
		KV_BUG_ON(d->kept > domain_online(c, d) / d->dev.span_extents *
			  d->dev.span_blocks);
		d->kept -= min(d->kept, bad);
	}
}

static void seq_lost(struct core *c, struct kv_seq *s)
{
	switch (s->state) {
	case KVMM_SEQ_CLOSED:
	case KVMM_SEQ_FAILED:
		return;
	case KVMM_SEQ_READY:
		KV_BUG_ON(!(s->flags & SEQF_RUNNING));
		family_mark(c, s, CORE_CAUSE_device, NULL);
		break;
	case KVMM_SEQ_MARKED:
		break;
	default:
		seq_poisoned(c, s);
		return;
	}
	/*
	 * In an open step it keeps its memory for a while, but does not grow.
	 */
	if (s->state == KVMM_SEQ_MARKED) {
		KV_BUG_ON(!s->nr_steps && s->fam_next == seq_index(c, s));
		KV_BUG_ON(!(s->flags & SEQF_RUNNING));
		KV_BUG_ON(!seq_domain(c, s)->nr_marked);
		seq_drop_reservation(c, s);
		seq_tally(c, s);
	}
}

/* Is there such a sequence, and is its domain in the device pool? */
static bool seq_is_in(const struct core *c, u32 i, u32 pool)
{
	const struct kv_client *cl = &c->clients[i / core_cfg(c)->max_seqs];

	return cl->state != CLI_FREE && domain_is_in(&c->domains[cl->domain], pool);
}

static void lose_all(struct core *c, u32 pool)
{
	const u32 nr = core_cfg(c)->max_clients * core_cfg(c)->max_seqs;
	u32 i, blk;

	for (i = 0; i < nr; i++)
		if (seq_is_in(c, i, pool))
			seq_lost(c, &c->seqs[i]);
	for_each_domain(c, i)
		while (domain_is_in(&c->domains[i], pool) &&
		       (blk = lru_next(c, i)) != CORE_NONE)
			index_evict(c, blk);
	for (i = 0; i < core_sizes(c)->nr_extents; i++)
		while (c->spans[i].nr_extents &&
		       domain_is_in(&c->domains[c->spans[i].domain], pool) &&
		       c->spans[i].free_head != CORE_NONE)
			(void)block_take(c, i, BLK_POISON);
}

/**
 * core_device_failed() - the device of a pool failed
 * @pool: number of the device pool
 * @how:  CORE_DEVICE_CUT or CORE_DEVICE_LOST
 *
 * Call this before the answers of the copies that failed with the device.  Only
 * the first call for a pool counts.
 */
void core_device_failed(struct core *c, u64 now, u32 pool, u32 how)
{
	struct kv_zone *z = &c->head->zones[pool];
	core_event(c);

	KV_BUG_ON(pool >= c->head->nr_zones);
	c->now = now;
	if (z->device)
		return;
	KV_BUG_ON(how != CORE_DEVICE_CUT && how != CORE_DEVICE_LOST);
	mark_targets(c, pool);
	z->device = how;
	z->create_after = ~0ull;
	core_tell(c, device_fail,
		  .error = how == CORE_DEVICE_LOST ? (u64)-ENODEV : (u64)-EIO);
	keep_what_there_is(c, pool);
	if (how == CORE_DEVICE_LOST)
		lose_all(c, pool);
	core_kick(c);
	admit_all(c);
}

/* Does a client or a copy use a block of the span, also a copy that was cut off? */
static bool span_in_use(const struct core *c, u32 first)
{
	u32 base = first * core_sizes(c)->blocks_per_extent, i;

	for (i = base; i < base + c->spans[first].nr_blocks; i++)
		if (c->blocks[i].state != BLK_POISON ||
		    (c->blocks[i].flags & BLKF_BAD) || block_refcount(&c->blocks[i]))
			return true;
	return false;
}

static void span_give_back(struct core *c, u32 first)
{
	u32 base = first * core_sizes(c)->blocks_per_extent, i;
	u32 end = base + c->spans[first].nr_blocks;

	c->domains[c->spans[first].domain].dev.keep_spans = 1;
	for (i = base; i < end; i++)
		block_set_state(c, i, BLK_FREE);
	c->domains[c->spans[first].domain].dev.keep_spans = 0;
	/* An isolated span was released with its last block. */
	if (c->spans[first].nr_extents)
		span_release(c, first);
}

/**
 * device_tick() - give back the memory of domains that lost a device and are empty
 */
void device_tick(struct core *c)
{
	u32 lost = 0, i;

	for (i = 0; i < c->head->nr_zones; i++)
		lost += c->head->zones[i].device == CORE_DEVICE_LOST;
	for (i = 0; lost && i < core_sizes(c)->nr_extents; i++) {
		const struct kv_domain *d = &c->domains[c->spans[i].domain];

		if (c->spans[i].nr_extents && d->shards > 1 && !d->nr_clients &&
		    device_is_lost(c, d) && !span_in_use(c, i))
			span_give_back(c, i);
	}
}

/* device_adopted() - first tick of an adopted core: all devices work */
void device_adopted(struct core *c)
{
	bool any = false;
	u32 i;

	for (i = 0; i < c->head->nr_zones; i++) {
		if (!c->head->zones[i].device)
			continue;
		any = true;
		c->head->zones[i].device = CORE_DEVICE_WORKS;
		c->head->zones[i].create_after = 0;
	}
	if (!any)
		return;
	c->head->clean_after = 0;
	for (i = 0; i < core_sizes(c)->nr_blocks; i++) {
		if (!(c->blocks[i].flags & BLKF_BAD))
			continue;
		KV_BUG_ON(c->blocks[i].state == BLK_POISON &&
			  block_refcount(&c->blocks[i]));
		c->blocks[i].flags &= (u8)~BLKF_BAD;
		if (c->blocks[i].state == BLK_POISON)
			block_set_state(c, i, BLK_FREE);
	}
	core_kick(c);
}
