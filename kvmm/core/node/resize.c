// SPDX-License-Identifier: Apache-2.0
/*
 * resize.c - resizing of a device pool while it is in use
 *
 * Address space and records are for the largest size (core_config).  Extents of a
 * device pool from kv_zone.nr_online on leave it: they get no new content,
 * and an empty one becomes OFFLINE, which is a part of its own in law 1.  Each
 * leaving extent goes through
 *
 *	SPAN -> BACKED -> REVOKING -> ABSENT -> OFFLINE
 *
 * All leaving spans are isolated first, and their cache is evicted; it gets copies
 * on the lower tiers as any evicted block does (evict.c).  Then their blocks in use
 * move to other spans of the domain (evacuate.c): to free blocks, to free extents,
 * or in place of cache there.  Sequences that find no room, or still have blocks in
 * a leaving span after starve_ns, are preempted, also below memory.min: the operator
 * decides, and the protection was scaled to the new size before.  Then every client
 * that may have the extent mapped is asked to give it back, as between tenants
 * (revoke.c), here also the clients of its own tenant.  A client that keeps it past
 * the deadline is killed.
 *
 * Growing makes OFFLINE extents ABSENT.  It also calls off the shrinking of
 * extents that were not asked back yet: their spans go back to their domains.
 * Extents that were asked back become ABSENT when they are returned.
 *
 * Runs are never claimed or made in the leaving part, since searches for runs
 * end at nr_online.  Runs that reach into it when a shrink begins are given up.
 *
 * Invariants: an extent is OFFLINE only from nr_online on, and all from there on
 * are, unless kv_zone.resizing is set; kv_extent.want is EXT_WANT_SIZE for
 * extents that are asked back here.
 */
#include "kvmm/core/node/node.h"

#define COPY_PATIENCE	16u	/* in starve_ns: wait for copies of leaving cache */

/* The end of all extents of a device pool. */
static u32 zone_limit(const struct kv_zone *z)
{
	return z->first + z->nr_extents;
}

/* Time since a pool that the span leaves was made smaller; of several the latest. */
static u64 resized_for(const struct core *c, u32 first)
{
	const struct kv_zone *z = extent_zone(c, first);
	u64 when = 0;
	u32 i;

	for (i = 0; i < part_shards(c, c->spans[first].domain); i++)
		if (z[i].resizing)
			when = max(when, z[i].resized);
	return c->now - when;
}

/* Did the steps that preempt no sequence take too long? */
static bool resize_is_late(const struct core *c, u32 first)
{
	return resized_for(c, first) >= core_cfg(c)->starve_ns;
}

/* Is a slot for the copy of a leaving block still worth the wait?  Writes take long. */
static bool resize_waits(const struct core *c, u32 first)
{
	return resized_for(c, first) < COPY_PATIENCE * core_cfg(c)->starve_ns;
}

/*
 * Get room for @nr blocks of the span: of free extents, else in place of cache of the
 * domain.  Return: true: there is room, or it is on its way.
 */
static bool span_finds_room(struct core *c, u32 first, u32 nr)
{
	u32 dom = c->spans[first].domain;
	const struct kv_domain *d = &c->domains[dom];

	if (resize_is_late(c, first))
		return false;
	if (d->dev.pending_spans || extent_run_take(c, dom) >= 0)
		return true;
	return (u64)domain_slack(d) + domain_leaving(d) + domain_cached(d) >= nr &&
	       room_evict(c, dom, nr) != ROOM_NONE;
}

/*
 * Isolate the span.  If its free blocks are needed to cover reservations, the
 * sequences with reservations are preempted.  Those in an open step lose them later:
 * until the span is isolated, the domain admits no sequence, which would reserve these
 * blocks again before the next tick.
 *
 * Return: true when it is isolated now.  Else it was released, or the next tick
 * tries again.
 */
static bool span_close_off(struct core *c, u32 first)
{
	u32 dom = c->spans[first].domain, i, next;
	struct kv_domain *d = &c->domains[dom];
	int err;

	KV_BUG_ON(!c->spans[first].nr_extents);
	if (span_is_isolated(&c->spans[first]))
		return true;
	err = span_isolate(c, first);
	if (err != -EBUSY || span_finds_room(c, first, c->spans[first].nr_free))
		return !err;
	for (i = d->run_head; i != CORE_NONE && err == -EBUSY; i = next) {
		struct kv_seq *s = &c->seqs[i];

		KV_BUG_ON(s->domain != dom || !(s->flags & SEQF_RUNNING));
		next = s->next;
		if (!seq_reserved(c, s) || s->state != KVMM_SEQ_READY)
			continue;
		core_count(c, CORE_EV_resize_preempt, 1);
		family_mark(c, s, CORE_CAUSE_resize, NULL);
		next = d->run_head;	/* the list has changed */
		err = c->spans[first].nr_extents ? span_isolate(c, first) : 1;
	}
	d->close_waits |= err == -EBUSY;
	return !err;
}

/* Is there still an isolated span of the domain at this extent? */
static bool span_is_there(const struct core *c, u32 first, u32 dom)
{
	const struct kv_span *sp = &c->spans[first];

	return sp->nr_extents && sp->domain == dom && span_is_isolated(sp);
}

/* Blocks of sequences in the span. */
static u32 span_in_use(const struct core *c, u32 first)
{
	u32 base = first * core_sizes(c)->blocks_per_extent, i, nr = 0;

	for (i = base; i < base + c->spans[first].nr_blocks; i++)
		nr += c->blocks[i].state == BLK_OPEN ||
		      c->blocks[i].state == BLK_SEALED;
	return nr;
}

/* Do the blocks left in the span move to other spans, or leave it by themselves? */
static bool span_moves(struct core *c, u32 first)
{
	const struct kv_span *sp = &c->spans[first];
	struct kv_domain *d = &c->domains[sp->domain];
	u32 nr = span_in_use(c, first);

	KV_BUG_ON(!sp->nr_extents || !span_is_isolated(sp));
	if (!nr || evacuate_is_on(c, first))
		return !nr || !resize_is_late(c, first);
	if (resize_is_late(c, first) || !c->ops->copy)
		return false;
	/* Spans are served in their order. */
	if (d->move_waits)
		return true;
	if (domain_slack(d) < nr && !span_finds_room(c, first, nr))
		return false;
	d->move_waits = domain_slack(d) < nr;
	if (d->move_waits)
		return true;
	/* On false as many spans as possible are being emptied already. */
	(void)!evacuate_span(c, first, true);
	return true;
}

/* Close a span that leaves, and evict its cache, also below memory.min. */
static void span_close(struct core *c, u32 first)
{
	u32 dom = c->spans[first].domain;

	if (!span_close_off(c, first))
		return;
	KV_BUG_ON(!span_is_there(c, first, dom));
	span_evict_leaving(c, first, resize_waits(c, first));
}

static void span_leave(struct core *c, u32 first)
{
	u32 dom = c->spans[first].domain;

	if (!span_is_isolated(&c->spans[first]) || span_moves(c, first))
		return;
	if (span_is_there(c, first, dom))
		displace_all(c, first);
	if (span_is_there(c, first, dom))
		span_evict_leaving(c, first, resize_waits(c, first));
}

/* Is the extent the first of its span in its device pool? */
static bool span_begins(const struct core *c, u32 e)
{
	const u32 first = c->extents[e].span;

	return e - extent_zone(c, e)->first == first - extent_zone(c, first)->first;
}

/* The span that is handled at extent @e; CORE_NONE: none is. */
static u32 span_at(const struct core *c, u32 e)
{
	const struct kv_extent *x = &c->extents[e];

	/*
	 * A span that begins below nr_online is handled at its first leaving
	 * extent.
	 */
	return x->state == EXT_SPAN &&
	       (e == zone_end(extent_zone(c, e)) || span_begins(c, e)) ?
	       x->span : CORE_NONE;
}

/* Empty one extent as far as possible now.  Return: true when it is OFFLINE. */
static bool extent_leave(struct core *c, u32 e)
{
	struct kv_extent *x = &c->extents[e];

	if (span_at(c, e) != CORE_NONE)
		span_leave(c, x->span);
	KV_BUG_ON(x->state == EXT_SPAN && !c->spans[x->span].nr_extents);
	if (x->want)
		return false;
	if (x->state == EXT_BACKED && !revoke_needed(c, e))
		extent_release(c, e);
	if (x->state == EXT_BACKED) {
		x->want = EXT_WANT_SIZE;
		extent_ask_back(c, e);
	}
	KV_BUG_ON(x->state == EXT_ABSENT && (x->backed || x->sent));
	if (x->state == EXT_ABSENT)
		extent_set_state(c, e, EXT_OFFLINE);
	return x->state == EXT_OFFLINE;
}

/* Has every client unmapped an extent that was asked back?  Then release it. */
static bool extent_returns(struct core *c, u32 e)
{
	struct kv_extent *x = &c->extents[e];

	if (x->want != EXT_WANT_SIZE)
		return true;
	KV_BUG_ON(x->state != EXT_REVOKING || !x->backed);
	if (revoke_needed(c, e)) {
		if (c->now >= x->deadline)
			extent_overdue(c, e, true);
		return false;
	}
	KV_BUG_ON(x->mapped || x->owed);
	x->want = 0;
	extent_release(c, e);
	core_kick(c);
	return true;
}

/* No domain of the pool waits for a leaving span, as far as is known. */
static void domains_reset(struct core *c, const struct kv_zone *z)
{
	u32 i;

	for_each_domain(c, i) {
		struct kv_domain *d = &c->domains[i];

		if (!domain_is_in(d, (u32)(z - c->head->zones)))
			continue;
		d->move_waits = 0;
		if (d->close_waits)
			domain_kick(d);
		d->close_waits = 0;
	}
}

static void zone_resize_tick(struct core *c, struct kv_zone *z)
{
	bool done = true;
	u32 e;

	KV_BUG_ON(z->nr_online > z->nr_extents);
	for (e = z->first; e < zone_limit(z); e++)
		done &= extent_returns(c, e);
	c->taker = CORE_NONE;
	domains_reset(c, z);
	for (e = zone_end(z); e < zone_limit(z); e++)
		if (span_at(c, e) != CORE_NONE)
			span_close(c, span_at(c, e));
	for (e = zone_end(z); e < zone_limit(z); e++)
		done &= extent_leave(c, e);
	if (!done)
		return;
	z->resizing = 0;
	domains_reset(c, z);
}

/**
 * resize_tick() - go on with extents that leave the pools
 */
void resize_tick(struct core *c)
{
	u32 i;

	for (i = 0; i < c->head->nr_zones; i++)
		if (c->head->zones[i].resizing)
			zone_resize_tick(c, &c->head->zones[i]);
}

/* Give up the runs that reach into the leaving part. */
static void runs_give_up(struct core *c, const struct kv_zone *z)
{
	u32 e;

	revoke_abandon_from(c);
	for (e = zone_end(z); e < zone_limit(z); e++)
		if (c->extents[e].state == EXT_CREATING &&
		    c->extents[e].domain != CORE_NONE)
			extent_run_abandon(c, c->extents[e].span);
}

/* Keep extents after all, or take them back into use. */
static void extents_stay(struct core *c, const struct kv_zone *z, u32 from)
{
	u32 e;

	for (e = z->first; e < zone_end(z); e++) {
		struct kv_extent *x = &c->extents[e];

		KV_BUG_ON(x->state == EXT_OFFLINE && (x->backed || x->want));
		if (x->state == EXT_OFFLINE)
			extent_set_state(c, e, EXT_ABSENT);
		if (x->state != EXT_SPAN || !span_begins(c, e) || span_claim(c, x->span) ||
		    e + c->spans[x->span].nr_extents <= from || span_leaves(c, x->span) ||
		    e + c->spans[x->span].nr_extents > zone_end(z) ||
		    !span_is_isolated(&c->spans[x->span]))
			continue;
		span_putback(c, x->span);
	}
}

/* The longest span of a domain with clients in the device pool, in extents. */
static u32 span_longest(const struct core *c, u32 pool)
{
	u32 i, nr = 1;

	for_each_domain(c, i)
		if (c->domains[i].nr_clients && domain_is_in(&c->domains[i], pool))
			nr = max(nr, c->domains[i].dev.span_extents);
	return nr;
}

/**
 * resize_check() - may a device pool have a size?
 *
 * Return: as core_pool_resize().
 */
int resize_check(const struct core *c, u32 pool, u64 bytes)
{
	u64 nr = bytes / core_cfg(c)->extent_size;

	if (pool >= c->head->nr_zones)
		return -ENOENT;
	if (!nr)
		return -EINVAL;
	if (bytes > c->head->zones[pool].nr_extents * core_cfg(c)->extent_size)
		return -ERANGE;
	return nr < span_longest(c, pool) ? -EBUSY : 0;
}

/**
 * core_pool_resize() - an operator changes the size of a device pool
 * @pool:  its number
 * @bytes: rounded down to whole extents; up to the size in core_config
 *
 * Growing takes effect at once.  Shrinking takes until the end of the pool is
 * empty; core_get_pool() tells the progress.  A sequence that no longer fits
 * alone gets -EDQUOT when its turn comes.
 *
 * Return: 0; -ENOENT: there is no such pool; -EINVAL: less than an extent; -ERANGE:
 * more than the daemon was started with; -EBUSY: less than a span of a domain that has
 * clients.
 */
int core_pool_resize(struct core *c, u64 now, u32 pool, u64 bytes)
{
	u64 nr = bytes / core_cfg(c)->extent_size;
	int err = resize_check(c, pool, bytes);
	struct kv_zone *z;
	u32 was;
	core_event(c);

	if (err)
		return err;
	z = &c->head->zones[pool];
	was = z->nr_online;
	c->now = now;
	if (nr == was)
		return 0;
	if (nr < was)
		core_tell(c, pool_shrink, .bytes = nr * core_cfg(c)->extent_size);
	else
		core_tell(c, pool_grow, .bytes = nr * core_cfg(c)->extent_size);
	KV_BUG_ON(nr > z->nr_extents);
	z->nr_online = (u32)nr;
	core_crash(c, CORE_CRASH_resize);
	z->cursor = 0;
	if (nr < was) {
		z->resized = now;
		z->resizing = 1;
		runs_give_up(c, z);
	} else {
		extents_stay(c, z, z->first + was);
	}
	limit_settle(c);
	resize_tick(c);
	admit_all(c);
	return 0;
}
