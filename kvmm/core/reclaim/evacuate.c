// SPDX-License-Identifier: Apache-2.0
/*
 * evacuate.c - spans that are emptied by moving their blocks
 *
 * Memory goes from domain to domain in whole spans, and one block in use keeps
 * a span.  A domain whose use went up and down has many spans that are partly
 * used, of no use to others.  Such a span is isolated (isolate.c) and its
 * blocks move to other spans of the domain (migrate.c); with the last of them
 * it is released, and who waits for memory looks again.
 *
 * Who starts it: a domain that looks for room, finds no span, and would have
 * what it lacks if others of its tenant were packed (evacuate_for()); and
 * whoever needs one certain span (evacuate_span()).  The first is a matter of
 * cost: the run of extents goes in which least is to be copied, and none where
 * that is more than half of it, unless what is asked for was promised by
 * memory.min: for that only spans without tails go, since it is to be there
 * when the steps that are open have ended, and who runs is preempted if these
 * are not enough.  Nothing is begun that does not lead to what is lacking, and
 * nothing that leaves the owner less than its promises.
 *
 * What is in the span: blocks of sequences move.  Cache that ends a prefix, or
 * that a lower tier has, is evicted, since whoever lacks memory would evict as
 * much; cache that others follow moves, because they would go with it; and so
 * does cache that memory.min or the floor protects.  What an open step may write stays for
 * now: a tail that is in no step is copied by its own next grant instead of
 * being written in place, and every tail is full some day.  So a span is looked
 * at again whenever its copies are over and at each tick, until it is empty,
 * its owner has taken the room itself, or starve_ns have passed, an eighth of
 * that if it is for anybody; then it is put back, and for a while none is
 * emptied for others.
 */
#include "kvmm/core/reclaim/reclaim.h"

#define EVAC_WANT	8	/* runs that anybody may lack */
#define TAIL_COST	8	/* blocks to copy that a tail counts as: it is waited for */

/* ---- one span ---- */

/* May the block be evicted where it is?  It is the cheaper way. */
static bool cache_goes(const struct core *c, u32 blk)
{
	const struct kv_domain *d = &c->domains[c->blocks[blk].domain];

	return index_evict_cost(c, blk) == 1 && limit_may_lose(d, 1, true) &&
	       !limit_cache_floor(d, 1);
}

/* One block of the span: whatever can be done about it now. */
static void scan_block(struct core *c, u32 evac, u32 blk)
{
	const struct kv_block *b = &c->blocks[blk];

	if (b->state == BLK_CACHED && !b->nr_copy && cache_goes(c, blk)) {
		index_evict(c, blk);
		return;
	}
	if (b->state != BLK_CACHED && b->state != BLK_SEALED &&
	    b->state != BLK_OPEN)
		return;
	if (b->nr_copy || (b->flags & (BLKF_MOVING | BLKF_VISITED)))
		return;
	(void)!move_start(c, evac, blk);
}

/* Do what can be done to empty the span now. */
void evacuate_scan(struct core *c, u32 evac)
{
	const struct kv_evac *ev = &c->head->evacs[evac];
	u32 blk, end;

	if (ev->span == CORE_NONE || ev->nr)
		return;
	blk = ev->span * core_sizes(c)->blocks_per_extent;
	end = blk + c->spans[ev->span].nr_blocks;
	pins_mark(c, ev->dom, true);
	/* The last one may take the span along. */
	for (; blk < end && ev->span != CORE_NONE; blk++)
		scan_block(c, evac, blk);
	pins_mark(c, ev->dom, false);
}

static u32 evac_slot(const struct core *c)
{
	u32 i;

	for (i = 0; i < CORE_MAX_EVACS; i++)
		if (c->head->evacs[i].span == CORE_NONE &&
		    !c->head->evacs[i].nr)
			return i;
	return CORE_NONE;
}

static bool evacuate(struct core *c, u32 first, bool any, bool shared)
{
	struct kv_span *sp = &c->spans[first];
	u32 evac = evac_slot(c), dom = sp->domain;
	int err;

	if (evac == CORE_NONE || !c->ops->copy)
		return false;
	err = span_isolate(c, first);
	if (err == 1)
		return true;
	if (err && err != -EALREADY)
		return false;
	c->head->evacs[evac] = (struct kv_evac){
		.span = first, .dom = dom, .any = any, .shared = shared,
		.since = c->now,
	};
	core_count(c, CORE_EV_migrate_begin, 1);
	evacuate_scan(c, evac);
	return true;
}

/**
 * evacuate_span() - empty a certain span of the device pool
 * @first: its first extent; it may be isolated already
 * @any:   its blocks may fill spans of the domain that are empty
 *
 * Return: whether it is on its way, or was released; false: its free blocks
 * cover promises, or as many are being emptied as can be.
 */
bool evacuate_span(struct core *c, u32 first, bool any)
{
	return evacuate(c, first, any, false);
}

/*
 * Its owner has taken the room meanwhile that the rest was to go to.  A span
 * whose blocks only wait for steps to end needs none.
 */
static bool evac_is_stuck(const struct core *c, const struct kv_evac *ev)
{
	u32 blk, end;

	if (ev->span == CORE_NONE || !ev->shared || ev->nr ||
	    domain_slack(&c->domains[ev->dom]))
		return false;
	blk = ev->span * core_sizes(c)->blocks_per_extent;
	end = blk + c->spans[ev->span].nr_blocks;
	for (; blk < end; blk++)
		if (c->blocks[blk].state == BLK_OPEN ||
		    c->blocks[blk].state == BLK_SEALED)
			return true;
	return false;
}

/*
 * Whether a span can be emptied for somebody depends on more than is told to
 * those who wait, so they look now and then.
 */
static void waiters_look(struct core *c)
{
	u32 i;

	if (c->now < c->head->evac_look)
		return;
	c->head->evac_look = c->now + core_cfg(c)->starve_ns / 8;
	for_each_domain(c, i)
		if (c->domains[i].stalled)
			domain_kick(&c->domains[i]);
}

/* Is the span being emptied by moving its blocks? */
bool evacuate_is_on(const struct core *c, u32 first)
{
	u32 i;

	for (i = 0; i < CORE_MAX_EVACS; i++)
		if (c->head->evacs[i].span == first)
			return true;
	return false;
}

/* Time passed: what could not be moved may be now, or takes too long. */
void evacuate_tick(struct core *c)
{
	u64 patience = core_cfg(c)->starve_ns / 8;
	u32 i;

	waiters_look(c);
	for (i = 0; i < CORE_MAX_EVACS; i++) {
		struct kv_evac *ev = &c->head->evacs[i];

		if (ev->span == CORE_NONE)
			continue;
		if (c->now - ev->since >= (ev->shared ? patience : 8 * patience)) {
			c->head->evac_after = c->now + patience;
			span_putback(c, ev->span);
			continue;
		}
		evacuate_scan(c, i);
		if (evac_is_stuck(c, ev))
			span_putback(c, ev->span);
	}
}

/* ---- for another domain ---- */

/*
 * Blocks of a span that would have to move for @dom; CORE_NONE: it cannot be
 * had that way.  What its owner can spare without it is left in
 * domain_scan.spare, see span_runs_possible().
 */
static u32 span_moves(const struct core *c, u32 first, u32 dom, bool promised)
{
	const struct kv_span *sp = &c->spans[first];
	const struct kv_domain *owner = &c->domains[sp->domain];
	u32 used = sp->nr_blocks - sp->nr_free - sp->nr_cached, cache;

	if (!sp->nr_extents || sp->domain == dom || span_scan(c, sp)->counted ||
	    span_is_isolated(sp) ||
	    owner->tenant != c->domains[dom].tenant)
		return CORE_NONE;
	/* What was promised waits for one step, and tails may take longer. */
	if (promised ? sp->nr_open : used * 2 > sp->nr_blocks)
		return CORE_NONE;
	if (!limit_may_lose(owner, domain_scan(c, owner)->lost + sp->nr_cached, true) ||
	    limit_cache_floor(owner, domain_scan(c, owner)->lost + sp->nr_cached))
		used += sp->nr_cached;
	/*
	 * What moves fits beside what its owner has promised and will need, if
	 * need be in the place of cache elsewhere.
	 */
	cache = limit_cache_spare(owner, domain_scan(c, owner)->lost + sp->nr_cached);
	if ((u64)domain_scan(c, owner)->spare + cache < sp->nr_free + used + owner->nr_running)
		return CORE_NONE;
	return used;
}

/* Count the span as gone, or back again. */
static void span_count_moved(struct core *c, u32 first, u32 used, bool gone)
{
	const struct kv_span *sp = &c->spans[first];
	struct span_scan *scan = &c->span_scans[first];
	struct domain_scan *owner = &c->domain_scans[sp->domain];
	u32 evicted = sp->nr_blocks - sp->nr_free - used;

	scan->counted = gone ? first + 1 : 0;
	scan->cost = used;
	if (gone) {
		/* The rest takes the place of cache. */
		scan->pass = min(owner->spare, sp->nr_free + used);
		owner->spare -= scan->pass;
		owner->lost += evicted + sp->nr_free + used - scan->pass;
	} else {
		owner->spare += scan->pass;
		owner->lost -= evicted + sp->nr_free + used - scan->pass;
	}
}

/* Spans of a run that were counted by run_moves(), up to extent @end. */
static void run_uncount(struct core *c, u32 first, u32 end)
{
	u32 e;

	for (e = first; e < end; e++)
		if (c->extents[e].state == EXT_SPAN &&
		    (c->extents[e].span == e || e == first))
			span_count_moved(c, c->extents[e].span,
					 c->span_scans[c->extents[e].span].cost,
					 false);
}

/*
 * Bytes to be copied for the run at @first; all of its spans are counted.  Not
 * one without spans: that is there to be taken, and counted with what is.
 */
static u64 run_moves(struct core *c, u32 dom, u32 first, bool promised)
{
	const struct kv_domain *d = &c->domains[dom];
	u32 e, used, fit = 0;
	u64 bytes = 0;

	for (e = first; e < first + d->dev.span_extents; e++) {
		u32 span = c->extents[e].span;

		if (extent_fits(c, e, d->tenant, true)) {
			fit++;
			continue;
		}
		if (c->extents[e].state != EXT_SPAN)
			break;
		if (span != e && e != first)
			continue;	/* counted with the extent before */
		used = span_moves(c, span, dom, promised);
		if (used == CORE_NONE)
			break;
		span_count_moved(c, span, used, true);
		bytes += (used + c->spans[span].nr_open * TAIL_COST) *
			 c->domains[c->spans[span].domain].dev.block_bytes;
	}
	if (e == first + d->dev.span_extents && fit < d->dev.span_extents)
		return bytes;
	run_uncount(c, first, e);
	return ~0ull;
}

/* The run that costs least to be had, with its spans counted as gone. */
static u32 run_cheapest(struct core *c, u32 dom, bool promised)
{
	u32 nr = c->domains[dom].dev.span_extents, best = CORE_NONE, i;
	u64 least = ~0ull, bytes;

	core_work(c, c->head->nr_online);
	for (i = 0; i + nr <= c->head->nr_online; i += nr) {
		bytes = run_moves(c, dom, i, promised);
		if (bytes == ~0ull)
			continue;
		run_uncount(c, i, i + nr);
		if (bytes < least) {
			least = bytes;
			best = i;
		}
	}
	if (best != CORE_NONE)
		(void)!run_moves(c, dom, best, promised);
	return best;
}

/* See to it that what moves, and what its owner needs, have room in its other spans. */
static void span_make_room(struct core *c, u32 first)
{
	const struct kv_span *sp = &c->spans[first];
	const struct kv_domain *d = &c->domains[sp->domain];
	u32 want = sp->nr_blocks - sp->nr_free - sp->nr_cached, free;

	/* Empty ones are whose it is for. */
	want += d->nr_running + d->dev.nr_empty * d->dev.span_blocks;
	do {
		free = sp->nr_free;
		room_evict_spare(c, sp->domain, free + want);
	} while (sp->nr_free != free);	/* that was no room */
}

static void run_evacuate(struct core *c, u32 first, u32 nr)
{
	u32 e;

	for (e = first; e < first + nr; e++) {
		if (c->extents[e].state == EXT_SPAN)
			span_make_room(c, c->extents[e].span);
		if (c->extents[e].state == EXT_SPAN &&
		    !span_is_isolated(&c->spans[c->extents[e].span]))
			(void)!evacuate(c, c->extents[e].span, false, true);
	}
}

/* Spans that are being emptied for those of the tenant of @dom, as runs of its size. */
u32 evacuations_on(const struct core *c, u32 dom, bool promised)
{
	u32 i, extents = 0;

	for (i = 0; i < CORE_MAX_EVACS; i++) {
		const struct kv_evac *ev = &c->head->evacs[i];

		if (ev->span != CORE_NONE && ev->dom != dom && ev->shared &&
		    !(promised && c->spans[ev->span].nr_open) &&
		    c->domains[ev->dom].tenant == c->domains[dom].tenant)
			extents += c->spans[ev->span].nr_extents;
	}
	return DIV_ROUND_UP(extents, c->domains[dom].dev.span_extents);
}

/*
 * Spans that the domain lacks for @nr blocks, beside what can be had else, which
 * is left counted.
 */
static u32 runs_lacking(struct core *c, u32 dom, u32 nr)
{
	const struct kv_domain *d = &c->domains[dom];
	u64 own = (u64)domain_slack(d) + room_coming(c, d) + domain_cached(d);
	u32 back;

	/* Where nothing can be had that look is not taken. */
	spares_reset(c);
	own += (u64)span_runs_possible(c, dom, &back) * d->dev.span_blocks;
	return own >= nr ? 1 : (u32)min(DIV_ROUND_UP(nr - own, d->dev.span_blocks),
					EVAC_WANT + 1ull);
}

/* The runs that cost least, @nr if there are as many; how many there are. */
static u32 runs_choose(struct core *c, u32 dom, bool promised, u32 *run, u32 nr)
{
	u32 i;

	for (i = 0; i < nr; i++) {
		run[i] = run_cheapest(c, dom, promised);
		if (run[i] == CORE_NONE)
			break;
	}
	return i;
}

/**
 * evacuate_for() - have spans of others emptied for a domain that lacks room
 * @nr: blocks that it wants to have free
 *
 * For one that was promised as much at once, and for those who wait behind it
 * within the promise too.
 * Return: ROOM_MOVED: memory is coming that way; ROOM_NONE: it leads nowhere, or
 * not far enough for what was promised.
 */
enum verdict evacuate_for(struct core *c, u32 dom, u32 nr)
{
	const struct kv_domain *d = &c->domains[dom];
	bool promised = limit_within_min(d, domain_held(d), 1);
	u32 run[EVAC_WANT], on, must, want, i, got;

	if (!c->ops->copy || c->tenants[d->tenant].nr_domains < 2)
		return ROOM_NONE;
	on = evacuations_on(c, dom, promised);
	if (on && !promised)
		return ROOM_MOVED;
	must = runs_lacking(c, dom, nr);
	if (c->now < c->head->evac_after)
		return on >= must ? ROOM_MOVED : ROOM_NONE;
	want = promised ? runs_lacking(c, dom, promise_need(c, dom, nr)) : must;
	if (on >= want)
		return ROOM_MOVED;
	want = min(want - on, (u32)EVAC_WANT);
	got = runs_choose(c, dom, promised, run, want);
	if (on + got < must)
		return ROOM_NONE;
	for (i = 0; i < got; i++)
		run_evacuate(c, run[i], d->dev.span_extents);
	return ROOM_MOVED;
}
