// SPDX-License-Identifier: Apache-2.0
/*
 * steal.c - memory that other domains can do without
 *
 * A domain that finds no free extents scans the extent runs of other domains.
 * Free blocks cost their owner nothing; cache above the protected amount costs it
 * little.  The scan comes before the first eviction (span_runs_possible()), so a
 * request that cannot be met costs no domain anything.  It makes one pass for each
 * cost, the cheapest first, and counts each span once.  This file takes no memory
 * of sequences: see evacuate.c, displace.c and victim.c.
 *
 * The scan notes its counts in span_scan.counted, cost and pass, and in
 * domain_scan.spare and lost.
 */
#include "kvmm/core/reclaim/reclaim.h"

#define WORK_EXTENT	2u	/* see core_work() */
#define LOOK_PARTS	32u	/* of the pool is used between two scans that find nothing */

/*
 * Cost of an extent run for its owners; passes go in this order.  A run that
 * clients of another tenant have mapped comes last, with any content: these
 * clients have to give it back first (revoke.c).
 */
enum run_cost {
	RUN_FREE,		/* nothing */
	RUN_CACHE,		/* cache above what is protected */
	RUN_FLOOR,		/* cache below an owner's floor */
	RUN_LOW,		/* cache below an owner's memory.low */
	RUN_REVOKE,		/* the same by a revocation */
	RUN_REVOKE_CACHE,
	RUN_REVOKE_FLOOR,
	RUN_REVOKE_LOW,
	NR_RUN_COSTS,
	RUN_NONE = NR_RUN_COSTS	/* cannot be had */
};

/* Has the domain a running sequence beside the one that asks? */
static bool has_others(const struct kv_domain *d)
{
	return d->nr_running > 1;
}

/* Cost of a span for its cache; RUN_NONE: its owner must not lose it. */
static u32 cache_cost(const struct core *c, const struct kv_span *sp, u32 dom)
{
	const struct kv_domain *owner = &c->domains[sp->domain];
	u32 nr = domain_scan(c, owner)->lost + sp->nr_cached;
	bool floor = limit_cache_floor(owner, nr);

	if ((floor && has_others(&c->domains[dom])) ||
	    !limit_may_lose(owner, nr, true))
		return RUN_NONE;
	if (!limit_may_lose(owner, nr, false))
		return RUN_LOW;
	return floor ? RUN_FLOOR : RUN_CACHE;
}

/* Cost of two parts of a run together. */
static u32 run_cost_both(u32 a, u32 b)
{
	u32 revoke = a >= RUN_REVOKE || b >= RUN_REVOKE ? RUN_REVOKE : RUN_FREE;

	if (a == RUN_NONE || b == RUN_NONE)
		return RUN_NONE;
	return max(a % RUN_REVOKE, b % RUN_REVOKE) + revoke;
}

/* Cost of an extent for its memory alone, not for its content. */
static u32 extent_cost(const struct core *c, u32 e, u32 dom)
{
	const struct kv_extent *x = &c->extents[e];

	if (x->want)
		return RUN_NONE;
	if (x->tenant == c->domains[dom].tenant)
		return RUN_FREE;
	/* Its memory has to be made anew, which failed a short while ago. */
	if (!extents_can_be_made(extent_zone(c, e)))
		return RUN_NONE;
	if (!revoke_needed(c, e))
		return RUN_FREE;
	return revoke_may(c, e) ? RUN_REVOKE : RUN_NONE;
}

/* Cost of a span for @dom; RUN_NONE: it cannot have it. */
static u32 span_cost(const struct core *c, u32 first, u32 dom)
{
	const struct kv_span *sp = &c->spans[first];
	u32 cost = RUN_FREE, e, n;

	if (!sp->nr_extents || sp->domain == dom || span_is_isolated(sp) ||
	    sp->nr_free + sp->nr_cached != sp->nr_blocks)
		return RUN_NONE;
	for_each_span_extent(c, e, n, first)
		if (domain_is_in(&c->domains[dom], zone_of(c, e)))
			cost = run_cost_both(cost, extent_cost(c, e, dom));
	if (!sp->nr_cached || cost == RUN_NONE)
		return cost;
	return run_cost_both(cost, cache_cost(c, sp, dom));
}

/* Forget which domains would lose blocks. */
static void spares_reset_domains(struct core *c)
{
	u32 i;

	for (i = 0; i < core_cfg(c)->max_domains; i++) {
		struct kv_domain *d = &c->domains[i];

		KV_BUG_ON(domain_free(d) < d->dev.reserved);
		domain_scan(c, d)->spare = domain_free(d) - d->dev.reserved;
		domain_scan(c, d)->lost = 0;
	}
}

/**
 * run_span_begins() - is the span of the run's @n-th extent that of no earlier one?
 * @d:     taker of the run
 * @first: first extent of the run; the @n-th extent is in a span
 */
bool run_span_begins(const struct core *c, const struct kv_domain *d, u32 first, u32 n)
{
	const u32 nr = d->dev.span_extents;
	const struct kv_extent *x = &c->extents[run_extent(c, first, nr, n)], *o;
	u32 i;

	for (i = 0; i < n; i++) {
		o = &c->extents[run_extent(c, first, nr, i)];
		if (o->state == EXT_SPAN && o->span == x->span)
			return false;
	}
	return true;
}

/* Begin a scan: no span is counted. */
void spares_reset(struct core *c)
{
	u32 i;

	spares_reset_domains(c);
	for (i = 0; i < core_sizes(c)->nr_extents; i++)
		c->span_scans[i].counted = 0;
}

/* Count the span of extent @e as lost to its owner, for the run at @first. */
static void run_take(struct core *c, u32 first, u32 e, u32 cost)
{
	struct kv_span *sp = &c->spans[c->extents[e].span];
	struct kv_domain *owner = &c->domains[sp->domain];

	KV_BUG_ON(span_scan(c, sp)->counted || sp->nr_extents == 0);
	KV_BUG_ON(domain_scan(c, owner)->spare < sp->nr_free);
	KV_BUG_ON(sp->nr_free + sp->nr_cached != sp->nr_blocks);
	span_scan(c, sp)->counted = first + 1;
	span_scan(c, sp)->cost = cost;
	domain_scan(c, owner)->spare -= sp->nr_free;
	domain_scan(c, owner)->lost += sp->nr_cached;
}

/* Extents of a run in all device pools of its taker. */
static u32 run_size(const struct kv_domain *d)
{
	return d->dev.span_extents * d->shards;
}

/* Undo run_take() for the spans of the run, but not for its extents from @nr on. */
static void run_untake(struct core *c, u32 dom, u32 first, u32 nr)
{
	const struct kv_domain *d = &c->domains[dom];
	u32 e, n;

	for_each_extent_of(c, d, e, n, first) {
		struct kv_domain *owner;
		struct kv_span *sp;

		if (n == nr)
			break;
		if (c->extents[e].state != EXT_SPAN)
			continue;
		sp = &c->spans[c->extents[e].span];
		if (span_scan(c, sp)->counted != first + 1)
			continue;
		owner = &c->domains[sp->domain];
		KV_BUG_ON(domain_scan(c, owner)->lost < sp->nr_cached);
		domain_scan(c, owner)->spare += sp->nr_free;
		domain_scan(c, owner)->lost -= sp->nr_cached;
		span_scan(c, sp)->counted = 0;
	}
}

/*
 * Can @dom have the run at @first at exactly that cost?  If so, each span of it is
 * counted once: its free blocks are taken off its owner's domain_scan.spare, its
 * cached blocks are added to domain_scan.lost.  If @dom can have the run at another
 * cost, that is noted in @seen.
 */
static bool run_possible(struct core *c, u32 dom, u32 first, u32 cost,
			 u32 *seen)
{
	const struct kv_domain *d = &c->domains[dom];
	u32 end = run_size(d), worst = RUN_FREE, e, n;

	KV_BUG_ON(first + d->dev.span_extents > domain_end(c, d));
	for_each_extent_of(c, d, e, n, first) {
		struct kv_span *sp;
		u32 one;

		if (extent_fits(c, e, d->tenant, true))
			continue;
		if (c->extents[e].state == EXT_BACKED) {
			one = extent_cost(c, e, dom);
			if (one == RUN_NONE)
				break;
			worst = run_cost_both(worst, one);
			continue;
		}
		if (c->extents[e].state != EXT_SPAN)
			break;
		sp = &c->spans[c->extents[e].span];
		if (span_scan(c, sp)->counted == first + 1 && span_scan(c, sp)->pass != cost)
			return false;	/* counted in an earlier pass */
		if (!span_scan(c, sp)->counted) {
			one = span_cost(c, c->extents[e].span, dom);
			if (one == RUN_NONE ||
			    c->domain_scans[sp->domain].spare < sp->nr_free)
				break;
			run_take(c, first, e, one);
			span_scan(c, sp)->pass = cost;
		}
		worst = run_cost_both(worst, span_scan(c, sp)->cost);
	}
	if (n == end && worst == cost)
		return true;
	if (n == end)
		*seen |= BIT(worst);
	run_untake(c, dom, first, n);
	return false;
}

/* Where there is one tenant, nothing is ever revoked. */
static u32 run_costs(const struct core *c)
{
	return c->head->nr_tenants > 1 ? NR_RUN_COSTS : RUN_REVOKE;
}

/* Work of a pass over all runs of the domain. */
static u32 scan_work(const struct core *c, const struct kv_domain *d)
{
	return domain_online(c, d) * d->shards * WORK_EXTENT;
}

/* Begin a scan for @dom. */
static void take_prepare(struct core *c, u32 dom)
{
	core_work(c, scan_work(c, &c->domains[dom]));
	if (c->head->nr_tenants > 1)
		revoke_prepare(c, dom);
	spares_reset(c);
}

/* Extents of a device pool that @dom could get if others gave all that they can spare. */
static bool zone_has_run(const struct core *c, u32 dom, u32 zone)
{
	u64 most = c->head->zones[zone].loose;
	u32 want = c->domains[dom].dev.span_extents, i;

	for (i = 0; i < core_cfg(c)->max_domains && most < want; i++) {
		const struct kv_domain *o = &c->domains[i];

		if (o->used && i != dom && domain_is_in(o, zone))
			most += (u64)(domain_slack(o) + o->dev.nr[BLK_CACHED]) /
				o->dev.span_blocks * o->dev.span_extents;
	}
	return most >= want;
}

/*
 * Can other domains spare so little that a scan of all extents finds no run?  A
 * span takes all of its blocks off the spare and cached blocks of its owner.
 */
static bool runs_none(const struct core *c, u32 dom)
{
	const struct kv_domain *d = &c->domains[dom];
	u32 i;

	for (i = d->zone; i < d->zone + d->shards; i++)
		if (!zone_has_run(c, dom, i))
			return true;
	return false;
}

/**
 * span_runs_possible() - how many spans could a domain still get?
 *
 * @back: how many of them clients of another tenant have to give back
 *
 * Counts free extents and spans of other domains that hold only cache, in the
 * order in which span_steal() takes them.  Takes nothing.
 */
u32 span_runs_possible(struct core *c, u32 dom, u32 *back)
{
	const struct kv_domain *d = &c->domains[dom];
	u32 runs = 0, cost, i, seen = 0, at_once = 0;

	*back = 0;
	if (runs_none(c, dom))
		return 0;
	take_prepare(c, dom);
	for (cost = 0; cost < run_costs(c); cost++) {
		/* A run that is counted makes others dearer, never cheaper. */
		if (cost && !(seen & (BIT(cost + 1) - 1)))
			continue;
		core_work(c, scan_work(c, d));
		for_each_run(c, d, i)
			runs += run_possible(c, dom, i, cost, &seen);
		if (cost < RUN_REVOKE)
			at_once = runs;
	}
	*back = runs - at_once;
	return runs;
}

/* Could @dom have the extent if its owner lost all that it may lose? */
static bool extent_reachable(struct core *c, u32 e, u32 dom, u32 first)
{
	u32 tenant = c->domains[dom].tenant, used;
	struct kv_domain *owner;
	struct kv_span *sp;

	if (extent_fits(c, e, tenant, true) || c->extents[e].want)
		return true;
	if (c->extents[e].state == EXT_ABSENT)
		return false;
	if (c->extents[e].state != EXT_SPAN)
		return true;
	sp = &c->spans[c->extents[e].span];
	if (sp->domain == dom || span_scan(c, sp)->counted)
		return true;
	KV_BUG_ON(!sp->nr_extents || sp->nr_free > sp->nr_blocks);
	owner = &c->domains[sp->domain];
	used = sp->nr_blocks - sp->nr_free;
	if (used && !limit_may_lose(owner, domain_scan(c, owner)->lost + used, true))
		return false;
	span_scan(c, sp)->counted = first + 1;
	domain_scan(c, owner)->lost += used;
	return true;
}

/* Is no other domain protected, so that @dom could have its whole pool? */
static bool nobody_is_protected(const struct core *c, u32 dom)
{
	const struct kv_domain *d = &c->domains[dom];
	u32 i;

	if (!domain_can_make(c, d))
		return false;
	for_each_neighbour(c, d, i)
		if (i != dom && c->domains[i].emin)
			return false;
	return true;
}

/*
 * How many spans could the domain have if the others kept no more than their
 * memory.min protects?
 */
u32 span_runs_reachable(struct core *c, u32 dom)
{
	const struct kv_domain *d = &c->domains[dom];
	u32 runs = 0, i, e, n;

	if (nobody_is_protected(c, dom))
		return domain_online(c, d) / d->dev.span_extents;
	core_work(c, scan_work(c, d));
	spares_reset(c);
	for_each_run(c, d, i) {
		for_each_extent_of(c, d, e, n, i)
			if (!extent_reachable(c, e, dom, i))
				break;
		runs += n == run_size(d);
	}
	return runs;
}

/*
 * Evict the cache of the run; @low: memory.low protects some of it.  @evicted:
 * blocks of each extent's span.
 */
static void run_evict(struct core *c, u32 dom, u32 first, bool low,
		      u32 *evicted)
{
	u32 e, n, nr;

	for_each_extent_of(c, &c->domains[dom], e, n, first) {
		u32 span = c->extents[e].span;

		if (c->extents[e].state != EXT_SPAN)
			continue;
		KV_BUG_ON(c->spans[span].domain == dom);
		nr = span_evict_cached(c, span);
		evicted[n] = nr;
		if (nr && low)
			c->domains[c->spans[span].domain].nr_low_events++;
		/* A copy that ends kicks all domains when the span is empty. */
		if (nr && !c->demoted)
			domain_kick(&c->domains[dom]);
	}
}

/* Is every span of the run without a block in use? */
static bool run_is_empty(const struct core *c, u32 dom, u32 first)
{
	u32 e, n;

	for_each_extent_of(c, &c->domains[dom], e, n, first) {
		const struct kv_span *sp = &c->spans[c->extents[e].span];

		if (c->extents[e].state == EXT_SPAN &&
		    sp->nr_free != sp->nr_blocks)
			return false;
	}
	return true;
}

/*
 * Evict the cache of the run at @first and release its spans: all of them, or
 * none.  A span keeps a cached block whose eviction would take other blocks along
 * that memory.min protects; if the others were released all the same their owner
 * would take them back, and @dom would steal them again at every event.
 *
 * Return: false: a span is still in use; @dom tries again if a block was evicted.
 */
static bool run_clear(struct core *c, u32 dom, u32 first, bool low)
{
	u32 evicted[CORE_SPAN_MAX * CORE_MAX_ZONES], e, n;

	KV_BUG_ON(run_size(&c->domains[dom]) > ARRAY_SIZE(evicted));
	run_evict(c, dom, first, low, evicted);
	if (!run_is_empty(c, dom, first))
		return false;
	for_each_extent_of(c, &c->domains[dom], e, n, first) {
		u32 span = c->extents[e].span;

		if (c->extents[e].state != EXT_SPAN)
			continue;
		core_tell(c, steal_span, .domain = c->spans[span].domain,
			  .taker = dom, .extent = span,
			  .cached = evicted[n]);
		KV_BUG_ON(c->spans[span].nr_free != c->spans[span].nr_blocks);
		span_release(c, span);
	}
	return true;
}

/* The largest share of a domain that would lose a span of the run. */
static u64 run_share(const struct core *c, u32 dom, u32 first)
{
	u64 share = 0;
	u32 e, n;

	for_each_extent_of(c, &c->domains[dom], e, n, first)
		if (c->extents[e].state == EXT_SPAN)
			share = max(share, limit_share(&c->domains[
				c->spans[c->extents[e].span].domain]) + 1);
	return share;
}

/* Order of runs at the same cost: the one with the largest key goes first. */
static u64 run_key(const struct core *c, u32 dom, u32 first)
{
	/* A living client can answer; a lingering one has to end. */
	return (u64)!revoke_haunted(c, dom, first) << 63 |
	       min(run_share(c, dom, first), BIT_ULL(63) - 1);
}

/* Add a run to the best ones found; of equal keys the first stays ahead. */
static void look_add(struct run_look *l, u32 run, u64 key)
{
	u32 i = l->nr;

	if (i == LOOK_RUNS && key <= l->key[i - 1])
		return;
	l->nr = min(i + 1, LOOK_RUNS);
	for (i = l->nr - 1; i && key > l->key[i - 1]; i--) {
		l->run[i] = l->run[i - 1];
		l->key[i] = l->key[i - 1];
	}
	KV_BUG_ON(l->nr > LOOK_RUNS || i >= l->nr);
	l->run[i] = run;
	l->key[i] = key;
}

/*
 * Find the runs at that cost with the owners of the largest shares.  Other
 * costs at which there are runs are noted in @seen.  Runs before @from are left
 * out.  If a run costs nothing the first one will do.
 */
static void runs_choose(struct core *c, u32 dom, u32 cost, u32 *seen, u32 from,
			struct run_look *l)
{
	const struct kv_domain *d = &c->domains[dom];
	u32 nr = d->dev.span_extents, i;

	l->nr = 0;
	l->next = 0;
	l->cost = cost;
	for (i = from; i + nr <= domain_end(c, d); i += nr) {
		core_work(c, WORK_EXTENT * run_size(d));
		if (!run_possible(c, dom, i, cost, seen))
			continue;
		run_untake(c, dom, i, run_size(d));
		look_add(l, i, run_key(c, dom, i));
		if (cost == RUN_FREE)
			break;
	}
}

/* Take a run.  Return: whether it is free, or asked back, now. */
static bool run_steal(struct core *c, u32 dom, u32 run, u32 cost)
{
	u32 owner = c->extents[run].state == EXT_SPAN ? c->extents[run].domain :
						       CORE_NONE;

	KV_BUG_ON(run + c->domains[dom].dev.span_extents >
		  domain_end(c, &c->domains[dom]));
	KV_BUG_ON(c->extents[run].want || owner == dom);
	if (!run_clear(c, dom, run, cost % RUN_REVOKE == RUN_LOW))
		return false;
	core_tell(c, steal, .domain = dom, .owner = trace_id(owner),
		  .extent = run, .extents = c->domains[dom].dev.span_extents);
	if (cost >= RUN_REVOKE)
		revoke_begin(c, dom, run);
	return true;
}

/*
 * The next run of an earlier scan in the same event.  Its cache may have been
 * evicted since, with the blocks before it: then the run costs nothing.
 */
static u32 look_next(struct core *c, u32 dom, struct run_look *l)
{
	const struct kv_domain *d = &c->domains[dom];
	u32 seen = 0, run;

	spares_reset_domains(c);
	if (l->nr && l->cost == RUN_FREE)	/* go on behind it */
		runs_choose(c, dom, RUN_FREE, &seen, l->run[0] + d->dev.span_extents, l);
	KV_BUG_ON(l->nr > LOOK_RUNS);
	while (l->next < l->nr) {
		run = l->run[l->next++];
		core_work(c, WORK_EXTENT * run_size(d));
		if (run_possible(c, dom, run, l->cost, &seen) ||
		    run_possible(c, dom, run, RUN_FREE, &seen)) {
			run_untake(c, dom, run, run_size(d));
			return run;
		}
	}
	l->nr = 0;
	return CORE_NONE;
}

/**
 * span_steal() - take back spans of other domains that hold only cache
 *
 * @back: only spans that clients of another tenant have to give back
 * @l:    result of an earlier scan for @dom in this event, or empty
 *
 * Takes the spans of one run: the cheapest, and of equally cheap ones the run of
 * the largest share.  An evicted block that an open step copies
 * from is QUIESCING, one that a copy out reads is LIMBO; such a block keeps its
 * span, and another run is tried at the next event.  One scan serves many calls.
 *
 * Return: true when extents became free, or were asked back: then they are on
 * their way, see room_coming().
 */
bool span_steal(struct core *c, u32 dom, bool back, struct run_look *l)
{
	u32 cost = back ? RUN_REVOKE : RUN_FREE, run, seen = BIT(cost);

	if (runs_none(c, dom))
		return false;
	run = l->nr ? look_next(c, dom, l) : CORE_NONE;
	if (run != CORE_NONE)
		return run_steal(c, dom, run, l->cost);
	take_prepare(c, dom);
	for (; cost < run_costs(c); cost++) {
		if (!(seen & BIT(cost)))
			continue;
		runs_choose(c, dom, cost, &seen,
			    domain_zone(c, &c->domains[dom])->first, l);
		if (!l->nr)
			continue;
		/* Few runs are asked back at a time: forget the rest. */
		if (cost >= RUN_REVOKE)
			l->nr = 0;
		KV_BUG_ON(l->next);
		l->next = 1;
		return run_steal(c, dom, l->run[0], cost);
	}
	return false;
}

/* Has a domain of the tenant a span of cache that @dom should have? */
static bool anybody_keeps(const struct core *c, u32 dom)
{
	const struct kv_domain *d = &c->domains[dom];
	u32 i;

	if (domain_zone(c, d)->touched < d->look_after)
		return false;
	for_each_neighbour(c, d, i) {
		const struct kv_domain *o = &c->domains[i];

		if (i != dom && o->dev.nr[BLK_CACHED] >= o->floor + o->dev.span_blocks &&
		    limit_keeps(c, o, d))
			return true;
	}
	return false;
}

/* Do only domains that keep too much (limit_keeps()) have spans in the run? */
static bool run_is_kept(const struct core *c, u32 dom, u32 first)
{
	bool any = false;
	u32 e, n;

	for_each_extent_of(c, &c->domains[dom], e, n, first) {
		if (c->extents[e].state != EXT_SPAN)
			continue;
		any = true;
		if (!limit_keeps(c, &c->domains[c->spans[c->extents[e].span].domain],
				 &c->domains[dom]))
			return false;
	}
	return any;
}

/* Cached blocks in the spans of the run. */
static u32 run_cached(const struct core *c, u32 dom, u32 first)
{
	u32 e, n, nr = 0;

	for_each_extent_of(c, &c->domains[dom], e, n, first)
		if (c->extents[e].state == EXT_SPAN)
			nr += c->spans[c->extents[e].span].nr_cached;
	return nr;
}

/* Cost of a run that other domains keep: RUN_FREE, RUN_CACHE, else RUN_NONE. */
static u32 kept_cost(struct core *c, u32 dom, u32 run)
{
	u32 cost, seen = 0, size = run_size(&c->domains[dom]);

	core_work(c, WORK_EXTENT * size);
	if (!run_is_kept(c, dom, run))
		return RUN_NONE;
	for (cost = RUN_FREE; cost <= RUN_CACHE; cost++) {
		if (run_possible(c, dom, run, cost, &seen)) {
			run_untake(c, dom, run, size);
			return cost;
		}
	}
	return RUN_NONE;
}

/* The run with the largest key goes first: that with the least cache. */
static u64 kept_key(const struct core *c, u32 dom, u32 run, u32 cost)
{
	return cost == RUN_FREE ? UINT64_MAX :
				  UINT32_MAX - run_cached(c, dom, run);
}

/* Find the best runs that other domains keep; @want free ones will do. */
static void kept_choose(struct core *c, u32 dom, u32 want, struct run_look *l)
{
	const struct kv_domain *d = &c->domains[dom];
	u32 i, cost;

	l->nr = 0;
	l->next = 0;
	take_prepare(c, dom);
	for_each_run(c, d, i) {
		if (!want)
			break;
		cost = kept_cost(c, dom, i);
		if (cost == RUN_NONE)
			continue;
		look_add(l, i, kept_key(c, dom, i, cost));
		want -= cost == RUN_FREE;
	}
}

/* The next run of a scan that @dom can still have, and its cost; or CORE_NONE. */
static u32 kept_next(struct core *c, u32 dom, struct run_look *l, u32 *cost)
{
	u32 run;

	spares_reset_domains(c);
	KV_BUG_ON(l->nr > LOOK_RUNS);
	while (l->next < l->nr) {
		run = l->run[l->next++];
		*cost = kept_cost(c, dom, run);
		if (*cost != RUN_NONE)
			return run;
	}
	return CORE_NONE;
}

/**
 * span_steal_kept() - take cache of other domains before evicting one's own
 * @want: spans that @dom lacks
 * @l:    result of an earlier scan for @dom in this event, or empty
 *
 * Takes one run of domains of the same tenant that limit_keeps() names, above
 * their protected amounts.  The run with the least cache goes first: evicting a
 * block evicts the blocks that follow it in a prompt, and these leave free blocks
 * all over the owner's spans, where other domains cannot use them.  A scan that
 * finds no run is not repeated at once, since it reads all extents.
 *
 * Return: true when extents became free.
 */
bool span_steal_kept(struct core *c, u32 dom, u32 want, struct run_look *l)
{
	struct kv_domain *d = &c->domains[dom];
	u32 run, cost;

	if (!anybody_keeps(c, dom))
		return false;
	run = kept_next(c, dom, l, &cost);
	if (run == CORE_NONE) {
		kept_choose(c, dom, want, l);
		run = kept_next(c, dom, l, &cost);
	}
	if (run != CORE_NONE && run_steal(c, dom, run, cost))
		return true;
	l->nr = 0;
	d->look_after = domain_zone(c, d)->touched + pool_online(c, d) / LOOK_PARTS;
	return false;
}
