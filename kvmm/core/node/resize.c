// SPDX-License-Identifier: Apache-2.0
/*
 * resize.c - the device pool grows and shrinks while it is in use
 *
 * Address space and records are for the largest pool there will be
 * (core_config.pool_bytes).  Extents from core_head.nr_online on leave: nothing
 * new is put there, and when nothing is left of one it is OFFLINE, which counts
 * in the partition of law 1 until it comes back.  Each leaving extent goes
 * through
 *
 *	SPAN -> BACKED -> REVOKING -> ABSENT -> OFFLINE
 *
 * A span is isolated and loses its cache.  What sequences have there moves to
 * other spans of the domain (evacuate.c), where there is room or extents to be
 * had; whom that does not help within starve_ns is preempted, whatever its
 * domain was promised: the operator's word is the last, and the promises were
 * scaled to the new size before.  Then every client that may have the extent
 * mapped is asked to give it back, as between tenants (revoke.c), also those
 * of its own tenant; who does not by the deadline is killed.
 *
 * Growing makes OFFLINE extents ABSENT, and calls off what has not been asked
 * back yet: such spans are their domain's again.  What was asked back comes
 * back and is ABSENT then.
 *
 * Runs that are claimed or being made are never taken from the leaving part,
 * since whoever looks for runs looks at the first nr_online extents only; those
 * that reach into it when it begins to leave are given up.
 *
 * Invariants: an extent is OFFLINE only from nr_online on, and from there each
 * is, or core_head.resizing is set; kv_extent.want is EXT_WANT_SIZE for what
 * is asked back here.
 */
#include "kvmm/core/node/node.h"

static bool extent_leaves(const struct core *c, u32 e)
{
	return e >= c->head->nr_online && e < core_sizes(c)->nr_extents;
}

/* Did what can be had without preempting anybody take too long? */
static bool resize_is_late(const struct core *c)
{
	return c->now - c->head->resized >= core_cfg(c)->starve_ns;
}

/* Others of the domain's spans are to have room for what is in this one. */
static bool span_finds_room(struct core *c, u32 first)
{
	const struct kv_domain *d = &c->domains[c->spans[first].domain];

	return !resize_is_late(c) && (d->dev.pending_spans ||
	       extent_run_take(c, c->spans[first].domain) >= 0);
}

/*
 * Nobody is to be given a block of the span any more.  Where its free blocks
 * cover promises and no others can, those who were promised them give way.
 *
 * Return: whether it is isolated now; else it was released, or is looked at
 * again with the next tick.
 */
static bool span_close_off(struct core *c, u32 first)
{
	u32 dom = c->spans[first].domain, i, next;
	const struct kv_domain *d = &c->domains[dom];
	int err;

	if (span_is_isolated(&c->spans[first]))
		return true;
	err = span_isolate(c, first);
	if (err != -EBUSY || span_finds_room(c, first))
		return !err;
	for (i = d->run_head; i != CORE_NONE && err == -EBUSY; i = next) {
		struct kv_seq *s = &c->seqs[i];

		next = s->next;
		if (!s->reserved || s->state != KVMM_SEQ_READY)
			continue;
		core_count(c, CORE_EV_resize_preempt, 1);
		family_mark(c, s, CORE_CAUSE_resize, NULL);
		next = d->run_head;	/* the list is another now */
		err = c->spans[first].nr_extents ? span_isolate(c, first) : 1;
	}
	return !err;
}

/* Is there still an isolated span of the domain, here? */
static bool span_is_there(const struct core *c, u32 first, u32 dom)
{
	const struct kv_span *sp = &c->spans[first];

	return sp->nr_extents && sp->domain == dom && span_is_isolated(sp);
}

/* All of its cache, also what others could not take. */
static void span_drop_cache(struct core *c, u32 first)
{
	u32 dom = c->spans[first].domain, nr = c->spans[first].nr_blocks, i;
	u32 base = first * core_sizes(c)->blocks_per_extent;

	for (i = base; i < base + nr && span_is_there(c, first, dom); i++)
		if (c->blocks[i].state == BLK_CACHED) {
			index_evict(c, i);
			core_count(c, CORE_EV_resize_evict, 1);
		}
}

/* Does what is left of the span move away? */
static bool span_moves(struct core *c, u32 first)
{
	const struct kv_span *sp = &c->spans[first];

	if (resize_is_late(c) || !c->ops->copy)
		return false;
	if (evacuate_is_on(c, first))
		return true;
	if (domain_slack(&c->domains[sp->domain]) < sp->nr_blocks - sp->nr_free)
		return span_finds_room(c, first);
	/* False: as many are being emptied as can be. */
	(void)!evacuate_span(c, first, true);
	return true;
}

static void span_leave(struct core *c, u32 first)
{
	u32 dom = c->spans[first].domain;

	if (!span_close_off(c, first))
		return;
	span_drop_cache(c, first);
	if (!span_is_there(c, first, dom) || span_moves(c, first))
		return;
	if (span_is_there(c, first, dom))
		displace_all(c, first);
	if (span_is_there(c, first, dom))
		span_drop_cache(c, first);
}

/* One extent, as far as it gets now.  Return: is it through? */
static bool extent_leave(struct core *c, u32 e)
{
	struct kv_extent *x = &c->extents[e];

	/* A span that reaches in from below is met at its first such extent. */
	if (x->state == EXT_SPAN && (e == c->head->nr_online || x->span == e))
		span_leave(c, x->span);
	if (x->want)
		return false;
	if (x->state == EXT_BACKED && !revoke_needed(c, e))
		extent_release(c, e);
	if (x->state == EXT_BACKED) {
		x->want = EXT_WANT_SIZE;
		extent_ask_back(c, e);
	}
	if (x->state == EXT_ABSENT)
		extent_set_state(c, e, EXT_OFFLINE);
	return x->state == EXT_OFFLINE;
}

/* Asked back for no other domain: has everybody given it up?  Return: as above. */
static bool extent_returns(struct core *c, u32 e)
{
	struct kv_extent *x = &c->extents[e];

	if (x->want != EXT_WANT_SIZE)
		return true;
	if (revoke_needed(c, e)) {
		if (c->now >= x->deadline)
			extent_overdue(c, e, true);
		return false;
	}
	x->want = 0;
	extent_release(c, e);
	core_kick(c);
	return true;
}

/**
 * resize_tick() - go on with what leaves
 */
void resize_tick(struct core *c)
{
	bool done = true;
	u32 e;

	if (!c->head->resizing)
		return;
	for (e = 0; e < core_sizes(c)->nr_extents; e++)
		done &= extent_returns(c, e);
	for (e = c->head->nr_online; e < core_sizes(c)->nr_extents; e++)
		done &= extent_leave(c, e);
	if (done)
		c->head->resizing = 0;
}

/* Runs that reach into what leaves are nobody's any more. */
static void runs_give_up(struct core *c)
{
	u32 e;

	revoke_abandon_from(c, c->head->nr_online);
	for (e = c->head->nr_online; extent_leaves(c, e); e++)
		if (c->extents[e].state == EXT_CREATING &&
		    c->extents[e].domain != CORE_NONE)
			extent_run_abandon(c, c->extents[e].span);
}

/* Extents that are to stay after all, or are there again. */
static void extents_stay(struct core *c, u32 from)
{
	u32 e;

	for (e = 0; e < c->head->nr_online; e++) {
		struct kv_extent *x = &c->extents[e];

		if (x->state == EXT_OFFLINE)
			extent_set_state(c, e, EXT_ABSENT);
		if (x->state != EXT_SPAN || x->want || x->span != e ||
		    e + c->spans[e].nr_extents <= from ||
		    e + c->spans[e].nr_extents > c->head->nr_online ||
		    !span_is_isolated(&c->spans[e]))
			continue;
		span_putback(c, e);
	}
}

/* The longest span of a domain that somebody uses, in extents. */
static u32 span_longest(const struct core *c)
{
	u32 i, nr = 1;

	for_each_domain(c, i)
		if (c->domains[i].nr_clients)
			nr = max(nr, c->domains[i].dev.span_extents);
	return nr;
}

/**
 * core_pool_resize() - an operator changes the size of the device pool
 * @bytes: rounded down to whole extents; up to core_config.pool_bytes
 *
 * A larger pool is there at once, a smaller one when whoever uses the end of it
 * has left: core_get_pool() tells how far that is.  What no longer fits alone
 * is told -EDQUOT when its turn comes.
 *
 * Return: 0; -EINVAL: less than an extent; -ERANGE: more than the daemon was
 * started with; -EBUSY: less than a span of a domain that has clients.
 */
int core_pool_resize(struct core *c, u64 now, u64 bytes)
{
	u64 nr = bytes / core_cfg(c)->extent_size;
	u32 was = c->head->nr_online;
	core_event(c);

	if (!nr)
		return -EINVAL;
	if (bytes > core_cfg(c)->pool_bytes)
		return -ERANGE;
	if (nr < span_longest(c))
		return -EBUSY;
	c->now = now;
	if (nr == was)
		return 0;
	core_count(c, nr < was ? CORE_EV_pool_shrink : CORE_EV_pool_grow, 1);
	core_trace(c, pool_resize, nr * core_cfg(c)->extent_size);
	c->head->nr_online = (u32)nr;
	core_crash(c, CORE_CRASH_resize);
	core_pool(c, CORE_POOL_DEV)->cursor = 0;
	if (nr < was) {
		c->head->resized = now;
		c->head->resizing = 1;
		runs_give_up(c);
	} else {
		extents_stay(c, was);
	}
	limit_settle(c);
	resize_tick(c);
	admit_all(c);
	return 0;
}
