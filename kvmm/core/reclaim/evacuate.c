// SPDX-License-Identifier: Apache-2.0
/*
 * evacuate.c - spans that are emptied by moving their blocks
 *
 * Memory goes from domain to domain in whole spans, and one block in use keeps
 * a span.  A domain with changing use has many partly used spans, which are of no
 * use to others.  Evacuation isolates such a span (isolate.c) and moves its blocks
 * to other spans of the domain (migrate.c).  When the last block has moved, the
 * span is released and waiting sequences look for memory again.
 *
 * evacuate_span() empties a certain span.  evacuate_for() empties spans for a
 * domain that finds no free span, but would find enough if other domains of its
 * tenant were packed.  It goes by cost: it takes the run of extents with the
 * fewest bytes to copy, and no span of which more than half would be copied.  If
 * memory.min promised the memory, it takes only spans without tails instead,
 * since the memory must be there when the open steps have ended; if these spans
 * are not enough, running sequences are preempted.  It begins nothing that does
 * not lead to the memory that is lacking, or that leaves the owner less than its
 * reservations.
 *
 * Blocks of sequences move.  A cached block that ends a prefix, or that a lower
 * tier has, is evicted, with a copy first if that pays, since the waiting domain
 * would evict as much.  A cached block that others follow moves, because its eviction
 * would evict them too; so does one that memory.min or the cache floor protects.  A
 * block that an open step may write stays for now: the next grant copies a tail that is
 * in no step instead of writing it in place, and every tail is full some day.  So a span
 * is scanned again when its copies are over and at each tick, until it is empty, its
 * owner has used the room itself, or starve_ns have passed (an eighth of that if the
 * span is for another domain).  Then it is put back, and for a while no span is emptied
 * for others.
 */
#include "kvmm/core/reclaim/reclaim.h"

#define EVAC_WANT	8	/* runs that are emptied for one request, at most */
#define TAIL_COST	8	/* a tail counts as so many blocks to copy: the span waits for it */

/* ---- one span ---- */

/* May the block be evicted instead of moved? That is cheaper. */
static bool cache_goes(const struct core *c, u32 blk)
{
	const struct kv_domain *d = &c->domains[c->blocks[blk].domain];

	return index_evict_cost(c, blk) == 1 && limit_may_lose(d, 1, true) &&
	       !limit_cache_floor(d, 1);
}

/* Evict or move one block of the span, if that is possible now. */
static void scan_block(struct core *c, u32 evac, u32 blk)
{
	const struct kv_block *b = &c->blocks[blk];

	KV_BUG_ON(block_span(c, blk) != c->head->evacs[evac].span);
	KV_BUG_ON(b->domain != c->head->evacs[evac].dom);
	/* Cache that leaves the pool is evicted by resize.c. */
	if (b->state == BLK_CACHED && block_leaves(c, blk))
		return;
	if (b->state == BLK_CACHED && !b->nr_copy && cache_goes(c, blk)) {
		evict_from_span(c, b->domain, blk);
		return;
	}
	if (b->state != BLK_CACHED && b->state != BLK_SEALED &&
	    b->state != BLK_OPEN)
		return;
	if (b->nr_copy || (b->flags & (BLKF_MOVING | BLKF_VISITED)))
		return;
	(void)!move_start(c, evac, blk);
}

/* Evict or move all blocks of the span that can go now. */
void evacuate_scan(struct core *c, u32 evac)
{
	const struct kv_evac *ev = &c->head->evacs[evac];
	u32 blk, end;

	if (ev->span == CORE_NONE || ev->nr)
		return;
	KV_BUG_ON(c->spans[ev->span].domain != ev->dom);
	KV_BUG_ON(!span_is_isolated(&c->spans[ev->span]));
	blk = ev->span * core_sizes(c)->blocks_per_extent;
	end = blk + c->spans[ev->span].nr_blocks;
	pins_mark(c, ev->dom, true);
	/* The span is released with its last block. */
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
	KV_BUG_ON(!span_is_isolated(sp) || sp->domain != dom);
	KV_BUG_ON(c->head->evacs[evac].span != CORE_NONE);
	KV_BUG_ON(c->head->evacs[evac].nr);
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
 * @first: its first extent; the span may be isolated already
 * @any:   its blocks may move to empty spans of the domain too
 *
 * Return: true: the span is being emptied, or was released; false: its free
 * blocks cover reservations, or as many spans are being emptied as can be.
 */
bool evacuate_span(struct core *c, u32 first, bool any)
{
	return evacuate(c, first, any, false);
}

/*
 * Has the owner used the room that the rest of the span needs?  A span in which
 * only released blocks wait for the end of steps needs none.
 */
static bool evac_is_stuck(const struct core *c, const struct kv_evac *ev)
{
	u32 blk, end;

	if (ev->span == CORE_NONE || !ev->shared || ev->nr ||
	    domain_slack(&c->domains[ev->dom]))
		return false;
	KV_BUG_ON(c->spans[ev->span].domain != ev->dom);
	blk = ev->span * core_sizes(c)->blocks_per_extent;
	end = blk + c->spans[ev->span].nr_blocks;
	for (; blk < end; blk++)
		if (c->blocks[blk].state == BLK_OPEN ||
		    c->blocks[blk].state == BLK_SEALED)
			return true;
	return false;
}

/*
 * Waiting sequences are not told of everything that decides whether a span can
 * be emptied for them, so their domains look again now and then.  A domain
 * within its promise looks at each tick: victim_returns() depends on it.
 */
static void waiters_look(struct core *c)
{
	bool all = c->now >= c->head->evac_look;
	u32 i;

	if (all)
		c->head->evac_look = c->now + core_cfg(c)->starve_ns / 8;
	for_each_domain(c, i)
		if (c->domains[i].stalled && (all || c->domains[i].promised))
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

/* Time has passed: scan each span again, or put it back if it takes too long. */
void evacuate_tick(struct core *c)
{
	u64 patience = core_cfg(c)->starve_ns / 8;
	u32 i;

	waiters_look(c);
	for (i = 0; i < CORE_MAX_EVACS; i++) {
		struct kv_evac *ev = &c->head->evacs[i];

		if (ev->span == CORE_NONE)
			continue;
		KV_BUG_ON(!c->spans[ev->span].nr_extents);
		if (c->now - ev->since >= (ev->shared ? patience : 8 * patience)) {
			extent_zone(c, ev->span)->evac_after = c->now + patience;
			span_putback(c, ev->span);
			KV_BUG_ON(ev->span != CORE_NONE);
			continue;
		}
		evacuate_scan(c, i);
		if (evac_is_stuck(c, ev))
			span_putback(c, ev->span);
	}
}

/* ---- for another domain ---- */

/*
 * Blocks of a span that would have to move for @dom; CORE_NONE: @dom cannot
 * have the span that way.  domain_scan.spare has the blocks that its owner can
 * spare besides, see span_runs_possible().
 */
static u32 span_moves(const struct core *c, u32 first, u32 dom, bool promised)
{
	const struct kv_span *sp = &c->spans[first];
	const struct kv_domain *owner = &c->domains[sp->domain];
	u32 used = sp->nr_blocks - sp->nr_free - sp->nr_cached, cache;

	KV_BUG_ON(sp->nr_free + sp->nr_cached > sp->nr_blocks);
	if (!sp->nr_extents || sp->domain == dom || span_scan(c, sp)->counted ||
	    span_is_isolated(sp) || !domains_trade(owner, &c->domains[dom]))
		return CORE_NONE;
	/* A promise waits for one step only, and tails may take longer. */
	if (promised ? sp->nr_open : used * 2 > sp->nr_blocks)
		return CORE_NONE;
	if (!limit_may_lose(owner, domain_scan(c, owner)->lost + sp->nr_cached, true) ||
	    limit_cache_floor(owner, domain_scan(c, owner)->lost + sp->nr_cached))
		used += sp->nr_cached;
	/*
	 * The blocks that move must fit beside the owner's reservations and the
	 * next block of each running sequence, if need be in place of cache in
	 * other spans.
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

	KV_BUG_ON(used > sp->nr_blocks - sp->nr_free);
	KV_BUG_ON(scan->counted != (gone ? 0 : first + 1));
	scan->counted = gone ? first + 1 : 0;
	scan->cost = used;
	if (gone) {
		/* The other blocks that move take the place of cache. */
		scan->pass = min(owner->spare, sp->nr_free + used);
		owner->spare -= scan->pass;
		owner->lost += evicted + sp->nr_free + used - scan->pass;
	} else {
		KV_BUG_ON(owner->lost < evicted + sp->nr_free + used -
			  scan->pass);
		owner->spare += scan->pass;
		owner->lost -= evicted + sp->nr_free + used - scan->pass;
	}
}

/* Undo run_moves() for the spans of a run, but not for its extents from @nr on. */
static void run_uncount(struct core *c, const struct kv_domain *d, u32 first, u32 nr)
{
	u32 e, n;

	for_each_extent_of(c, d, e, n, first)
		if (n < nr && c->extents[e].state == EXT_SPAN &&
		    run_span_begins(c, d, first, n))
			span_count_moved(c, c->extents[e].span,
					 c->span_scans[c->extents[e].span].cost,
					 false);
}

/*
 * Bytes to copy for the run at @first, with all of its spans counted; ~0: the
 * run cannot be emptied, or has no span: then it is free already.
 */
static u64 run_moves(struct core *c, u32 dom, u32 first, bool promised)
{
	const struct kv_domain *d = &c->domains[dom];
	u32 e, n, used, fit = 0, size = d->dev.span_extents * d->shards;
	u64 bytes = 0;

	KV_BUG_ON(first + d->dev.span_extents > domain_end(c, d));
	for_each_extent_of(c, d, e, n, first) {
		u32 span = c->extents[e].span;

		if (extent_fits(c, e, d->tenant, true)) {
			fit++;
			continue;
		}
		if (c->extents[e].state != EXT_SPAN)
			break;
		if (!run_span_begins(c, d, first, n))
			continue;	/* counted with an extent before */
		used = span_moves(c, span, dom, promised);
		if (used == CORE_NONE)
			break;
		span_count_moved(c, span, used, true);
		bytes += (used + c->spans[span].nr_open * TAIL_COST) *
			 domain_payload(&c->domains[c->spans[span].domain]);
	}
	if (n == size && fit < size)
		return bytes;
	run_uncount(c, d, first, n);
	return ~0ull;
}

/* The cheapest run, with its spans counted as gone; or CORE_NONE. */
static u32 run_cheapest(struct core *c, u32 dom, bool promised)
{
	const struct kv_domain *d = &c->domains[dom];
	u32 size = d->dev.span_extents * d->shards, best = CORE_NONE, i;
	u64 least = ~0ull, bytes;

	core_work(c, domain_online(c, d) * d->shards);
	for_each_run(c, d, i) {
		bytes = run_moves(c, dom, i, promised);
		if (bytes == ~0ull)
			continue;
		run_uncount(c, d, i, size);
		if (bytes < least) {
			least = bytes;
			best = i;
		}
	}
	if (best != CORE_NONE)
		(void)!run_moves(c, dom, best, promised);
	return best;
}

/*
 * Make room in the owner's other spans for the blocks that move and for its own
 * need.
 */
static void span_make_room(struct core *c, u32 first)
{
	const struct kv_span *sp = &c->spans[first];
	const struct kv_domain *d = &c->domains[sp->domain];
	u32 want = sp->nr_blocks - sp->nr_free - sp->nr_cached, free;

	KV_BUG_ON(want > sp->nr_blocks);
	KV_BUG_ON(!sp->nr_extents);
	/* Blocks do not move to empty spans: others can have these as they are. */
	want += d->nr_running + d->dev.nr_empty * d->dev.span_blocks;
	do {
		free = sp->nr_free;
		room_evict_spare(c, sp->domain, free + want);
	} while (sp->nr_free != free);	/* a block freed in the span itself is no room */
}

static void run_evacuate(struct core *c, const struct kv_domain *d, u32 first)
{
	u32 e, n;

	for_each_extent_of(c, d, e, n, first) {
		if (c->extents[e].state == EXT_SPAN)
			span_make_room(c, c->extents[e].span);
		if (c->extents[e].state == EXT_SPAN &&
		    !span_is_isolated(&c->spans[c->extents[e].span]))
			(void)!evacuate(c, c->extents[e].span, false, true);
	}
}

/*
 * Spans that are being emptied for the tenant of @dom, in runs of the size of
 * @dom.
 */
u32 evacuations_on(const struct core *c, u32 dom, bool promised)
{
	u32 i, extents = 0;

	for (i = 0; i < CORE_MAX_EVACS; i++) {
		const struct kv_evac *ev = &c->head->evacs[i];

		KV_BUG_ON(ev->span != CORE_NONE &&
			  c->spans[ev->span].domain != ev->dom);
		if (ev->span != CORE_NONE && ev->dom != dom && ev->shared &&
		    !(promised && c->spans[ev->span].nr_open) &&
		    domains_trade(&c->domains[ev->dom], &c->domains[dom]))
			extents += c->spans[ev->span].nr_extents;
	}
	return DIV_ROUND_UP(extents, c->domains[dom].dev.span_extents);
}

/*
 * Runs that the domain lacks for @nr blocks.  Runs that it can have without
 * evacuation are not among them; they stay counted.
 */
static u32 runs_lacking(struct core *c, u32 dom, u32 nr)
{
	const struct kv_domain *d = &c->domains[dom];
	u64 own = (u64)domain_slack(d) + room_coming(c, d) + domain_cached(d);
	u32 back;

	/* span_runs_possible() resets no counts where it finds nothing to scan. */
	spares_reset(c);
	own += (u64)span_runs_possible(c, dom, &back) * d->dev.span_blocks;
	return own >= nr ? 1 : (u32)min(DIV_ROUND_UP(nr - own, d->dev.span_blocks),
					EVAC_WANT + 1ull);
}

/* Choose the cheapest runs, up to @nr. Return: how many there are. */
static u32 runs_choose(struct core *c, u32 dom, bool promised, u32 *run, u32 nr)
{
	u32 i;

	for (i = 0; i < nr; i++) {
		KV_BUG_ON(i >= EVAC_WANT);
		run[i] = run_cheapest(c, dom, promised);
		if (run[i] == CORE_NONE)
			break;
	}
	return i;
}

/**
 * evacuate_for() - empty spans of other domains for a domain that lacks room
 * @nr: free blocks that it wants
 *
 * If memory.min promises the blocks, this does not wait for earlier evacuations,
 * and counts the need of all waiting sequences within the promise.
 * Return: ROOM_MOVED: memory is coming that way; ROOM_NONE: evacuation cannot
 * give so much.
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
	if (c->now < domain_zone(c, d)->evac_after)
		return on >= must ? ROOM_MOVED : ROOM_NONE;
	want = promised ? runs_lacking(c, dom, promise_need(c, dom, nr)) : must;
	if (on >= want)
		return ROOM_MOVED;
	want = min(want - on, (u32)EVAC_WANT);
	got = runs_choose(c, dom, promised, run, want);
	if (on + got < must)
		return ROOM_NONE;
	for (i = 0; i < got; i++)
		run_evacuate(c, d, run[i]);
	return ROOM_MOVED;
}
