// SPDX-License-Identifier: Apache-2.0
/*
 * demote.c - cached blocks are copied to the host pool before the device loses them
 *
 * A cached block that is to be evicted gets a copy first, if that costs less than
 * computing its tokens again, as measured: a copy out and one in, at the rate of
 * the last copies, against the prefill of its tokens at the rate that its clients
 * reported.  The request that needs the memory waits for the copies: the evicted
 * blocks are free when these end.  The same rule holds between the host pool and
 * areas: where no host slot is free, the oldest slots are written to areas, and
 * the request waits for that.  Content is lost only where every tier is full, and
 * then the oldest.
 *
 * So that a request seldom waits, blocks are copied ahead of need: those that are
 * evicted next, as many as were allocated in the last tenth of a second or two.
 * These copies take free host slots only: to drop one copy for another gains
 * nothing and never ends.
 *
 * swappiness has no part in this: it says how a preempted sequence loses its
 * memory.
 */
#include "kvmm/core/tier/tier.h"

#define CLEAN_LEAST	8u	/* blocks that are kept ready for eviction, at least */
#define CLEAN_WINDOW_NS	100000000ull	/* time over which allocations are counted */
#define CLEAN_BATCH	64u	/* copies in flight for cleaning ahead, at most */
#define THROUGH_MOST	1024u	/* the same for a domain that writes through */
#define CLEAN_BYTES	(64u << 20)	/* with large blocks so many bytes */
#define CLEAN_PART	8u	/* part of a domain's blocks that is kept ready, at most */
#define PROBE_NS	50000000ull	/* pause after which a copy is made that may not pay */
#define CLEAN_SCAN	256u	/* cached blocks that one round looks at */

/*
 * ---- does it pay ----
 *
 * kv_domain.pays holds the answers.  They change with the measured rates, and then the
 * domain's waiting sequences are tried again.
 */

#define PAYS_COPY	BIT(0)			/* to copy a block out and in */
#define PAYS_READ(i)	BIT(1 + (i))		/* to read a block from area i */
#define PAYS_WRITE(i)	BIT(1 + CORE_MAX_AREAS + (i))	/* to write and read it */
static_assert(2 * CORE_MAX_AREAS < 31, "a bit for each answer");

/* Nanoseconds for a block in one direction; 0: the rate is not known. */
static u64 area_ns(const struct core *c, u32 dom, const struct kv_pool *p, u32 dir)
{
	u64 rate = area_rate(p, dir);

	return rate ? domain_payload(&c->domains[dom]) * 1000000000ull / rate : 0;
}

static u32 judge(const struct core *c, u32 dom)
{
	const struct kv_domain *d = &c->domains[dom];
	u64 kb = max(domain_payload(d) / 1024, 1ull);
	u64 compute = domain_refill_ns(d);
	u64 in, out;
	u32 i, pays = 0;

	/* No client has reported a rate. */
	if (!compute)
		return ~0u;
	if (2 * kb * c->head->copy_ns_kb <= compute)
		pays = PAYS_COPY;
	for (i = 0; i < CORE_MAX_AREAS; i++) {
		in = area_ns(c, dom, core_pool(c, CORE_POOL_AREA + i), 0);
		out = area_ns(c, dom, core_pool(c, CORE_POOL_AREA + i), 1);
		pays |= in <= compute ? PAYS_READ(i) : 0;
		pays |= in + out <= compute ? PAYS_WRITE(i) : 0;
	}
	return pays;
}

/**
 * demote_judge() - a rate of the domain was measured, or it is new
 */
void demote_judge(struct core *c, u32 dom)
{
	struct kv_domain *d = &c->domains[dom];
	u32 pays = judge(c, dom);

	if (pays == d->pays)
		return;
	d->pays = pays;
	domain_kick(d);
}

/**
 * demote_judge_all() - the rate of copies or of an area was measured
 */
void demote_judge_all(struct core *c)
{
	u32 i;

	for_each_domain(c, i)
		demote_judge(c, i);
}

/**
 * copy_pays() - does it cost less to copy a block out and in than to compute it again?
 */
bool copy_pays(const struct core *c, u32 dom)
{
	return c->domains[dom].pays & PAYS_COPY;
}

/**
 * area_read_pays() - does it cost less to read a block than to compute it again?
 * @slot: its slot in an area
 */
bool area_read_pays(const struct core *c, u32 dom, u32 slot)
{
	u32 pool = part_pool(c, c->blocks[slot].domain);

	return c->domains[dom].pays & PAYS_READ(pool - CORE_POOL_AREA);
}

/**
 * areas_pay() - is there an area that a block is written to and read from in less time
 * than its tokens are computed in?
 */
bool areas_pay(const struct core *c, u32 dom)
{
	u32 i;

	for (i = 0; i < CORE_MAX_AREAS; i++) {
		const struct kv_pool *p = core_pool(c, CORE_POOL_AREA + i);

		if (p->online && !p->readonly && !p->nr_overdue &&
		    (c->domains[dom].pays & PAYS_WRITE(i)))
			return true;
	}
	return false;
}

/* ---- a host slot for a block of the cache ---- */

/**
 * demote_slot() - one more free host slot for cache
 * @node: its name; older content may be lost for it.  CORE_NONE: it is the newest
 *
 * Return: DEMOTE_DONE; DEMOTE_WAITS: a write will free one; DEMOTE_FULL.
 */
enum demote demote_slot(struct core *c, u32 dom, u32 node)
{
	if (extent_run_take(c, part_index(c, dom, CORE_POOL_HOST)) > 0 ||
	    host_drop_copy(c, dom, node))
		return DEMOTE_DONE;
	if (areas_pay(c, dom) && host_write_oldest(c, dom))
		return DEMOTE_WAITS;
	return host_drop_oldest(c, dom, node) ? DEMOTE_DONE : DEMOTE_FULL;
}

/**
 * demote_block() - give a cached block that is about to be evicted a lower copy
 *
 * Return: DEMOTE_DONE: it has one, which may be in flight; DEMOTE_WAITS: a host
 * slot will be free when a write has ended: evict nothing; DEMOTE_FULL: every tier
 * is full of newer content; DEMOTE_DEAR: computing it again costs less;
 * DEMOTE_NOT: no copy can begin now; DEMOTE_GONE: it was evicted meanwhile.
 */
enum demote demote_block(struct core *c, u32 dom, u32 blk)
{
	const struct kv_block *b = &c->blocks[blk];
	enum demote slot;

	KV_BUG_ON(b->state != BLK_CACHED || b->domain != dom);
	if (b->entry != CORE_NONE)
		return entry_is_there(c, b->entry) ? DEMOTE_DONE : DEMOTE_NOT;
	if (!host_part(c, dom)->used)
		return DEMOTE_FULL;
	if (device_is_down(c, &c->domains[dom]) || b->nr_copy || c->now < c->head->clean_after)
		return DEMOTE_NOT;
	if (!copy_pays(c, dom))
		return DEMOTE_DEAR;
	slot = host_free(c, dom) ? DEMOTE_DONE :
				   demote_slot(c, dom, c->blocks[blk].node);
	if (slot != DEMOTE_DONE)
		return slot;
	/* A dropped slot takes the content along that was found by way of it. */
	if (b->state != BLK_CACHED || b->domain != dom)
		return DEMOTE_GONE;
	return entry_out(c, blk, 0) == CORE_NONE ? DEMOTE_NOT : DEMOTE_DONE;
}

/**
 * demote_may_write() - is a host slot being filled that can be written, then dropped?
 */
bool demote_may_write(const struct core *c, u32 dom)
{
	return areas_pay(c, dom) && host_part(c, dom)->nr[BLK_LIMBO] &&
	       !c->head->nr_overdue;
}

/**
 * demote_room() - free host slots for content that is read from areas
 * @nr:    number of slots
 * @waits: takes whether slots will be free when writes have ended
 *
 * Return: whether they are free now.
 */
bool demote_room(struct core *c, u32 dom, u32 nr, bool *waits)
{
	enum demote got = DEMOTE_DONE;

	while (host_free(c, dom) < nr && got == DEMOTE_DONE)
		got = host_part(c, dom)->used ? demote_slot(c, dom, CORE_NONE) :
						DEMOTE_FULL;
	*waits = got == DEMOTE_WAITS || (got != DEMOTE_DONE &&
					 demote_may_write(c, dom));
	return got == DEMOTE_DONE;
}

/**
 * demote_waits() - a request of the domain waits for copies, or waits no longer
 */
void demote_waits(struct core *c, struct kv_domain *d, bool waits)
{
	if (waits && !d->demote_since) {
		d->demote_since = c->now;
		core_count(c, CORE_EV_demote_wait, 1);
	} else if (!waits && d->demote_since) {
		core_count(c, CORE_EV_demote_wait_ns,
			   c->now - d->demote_since);
		d->demote_since = 0;
	}
}

/* ---- ahead of need ---- */

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

/* Copies in flight, at most; a smaller block has more of them. */
static u32 clean_most(const struct core *c, u32 dom)
{
	return max(min(CLEAN_BATCH, (u32)(CLEAN_BYTES /
			domain_payload(&c->domains[dom]))), 4u);
}

/* Nothing was copied for a while: a copy shows whether the rate is still the same. */
static bool rate_is_old(const struct core *c)
{
	return !c->head->nr_copies && c->now - c->head->copy_last > PROBE_NS;
}

/* Can a copy begin ahead of need, with fewer than @most in flight? */
static bool may_copy(const struct core *c, u32 dom, u32 most)
{
	return host_part(c, dom)->used && !device_is_down(c, &c->domains[dom]) &&
	       c->now >= c->head->clean_after && !host_is_wanted(c) &&
	       c->head->nr_copies < most &&
	       (copy_pays(c, dom) || rate_is_old(c));
}

static bool may_clean(const struct core *c, u32 dom)
{
	return may_copy(c, dom, clean_most(c, dom));
}

/* Copy one block down; false: no more blocks can be copied now. */
static bool clean_one(struct core *c, u32 dom, u32 blk)
{
	KV_BUG_ON(c->blocks[blk].state == BLK_FREE);
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
	if (!b->nr_copy && may_clean(c, dom))
		(void)clean_one(c, dom, blk);
	return false;
}

/*
 * Blocks that are allocated until copies that begin now have ended, roughly: as
 * many as in the last window, or in this one.  A copy of a block that stays on the
 * device takes the place of other content, so it is a part of the domain at most.
 */
static u32 clean_want(struct core *c, struct kv_domain *d)
{
	u32 most = max(domain_capacity(c, d) / CLEAN_PART, 1u);

	if (c->now - d->alloc_since >= CLEAN_WINDOW_NS) {
		d->alloc_last = c->now - d->alloc_since < 2 * CLEAN_WINDOW_NS ?
				d->alloc_nr : 0;
		d->alloc_nr = 0;
		d->alloc_since = c->now;
	}
	return min(max(2 * max(d->alloc_nr, d->alloc_last), CLEAN_LEAST), most);
}

/*
 * While the device pool is short of free blocks, copy the cached blocks down
 * that are evicted next: a leaf, then the blocks before it, which are evicted
 * after it.
 */
static void clean_ahead(struct core *c, u32 dom)
{
	struct kv_domain *d = &c->domains[dom];
	u32 want = clean_want(c, d), slack = domain_slack(d), i, blk, n = 0;

	if ((slack > max(domain_used(d) / 4, want) && !d->writethrough) ||
	    !may_clean(c, dom))
		return;
	want = d->writethrough ? CLEAN_SCAN : min(want, CLEAN_SCAN);
	for (i = lru_next(c, dom); i != CORE_NONE; i = lru_after(c, i))
		for (blk = i; blk != CORE_NONE; blk = cached_before(c, blk))
			if (n++ == want || !may_clean(c, dom) ||
			    !clean_one(c, dom, blk))
				return;
}

/**
 * demote_through() - a block is full: copy it down at once if its domain asks for that
 *
 * If no copy can begin now, the block is copied when its last sequence has ended.
 */
void demote_through(struct core *c, u32 dom, u32 blk)
{
	if (c->domains[dom].writethrough && may_copy(c, dom, THROUGH_MOST))
		(void)clean_one(c, dom, blk);
}

/**
 * demote_background() - copy blocks of all domains down ahead of need
 *
 * On a tick, and when a copy or a transfer has ended.
 */
void demote_background(struct core *c)
{
	u32 i;

	for_each_domain(c, i) {
		/* The request that waited may be gone. */
		if (!domain_leaving(&c->domains[i]) && !c->head->nr_ios)
			demote_waits(c, &c->domains[i], false);
		clean_ahead(c, i);
	}
}
