// SPDX-License-Identifier: Apache-2.0
/*
 * span.c - spans: neighbouring extents cut into one domain's blocks
 *
 * A domain takes whole spans from the pool and gives whole spans back.  Its
 * spans hang on lists by fullness, so that blocks come from the fullest span
 * that has any: empty spans appear by themselves and can go to whoever needs
 * them.  A few empty spans stay with the domain (SPAN_KEEP, at most a
 * sixteenth of the pool), so that sequences that come and go do not cut them
 * again each time; further ones are released.  Who needs one takes it without
 * asking: see span_steal().
 *
 * Laws: nr_free and nr_cached of a span count its blocks in those states; a
 * span is on the list of its class; a domain's reserved blocks are covered by
 * its free ones, so a span leaves only when enough are left.
 */
#include "kvmm/core/internal.h"

#define SPAN_FULL	0
#define SPAN_EMPTY	CORE_CLASS_EMPTY
#define SPAN_KEEP	8u	/* empty spans that a domain keeps */

/* 0: no block is free; then fuller before emptier; last: all are free. */
u32 span_class(const struct kv_span *sp)
{
	if (sp->nr_free == sp->nr_blocks)
		return SPAN_EMPTY;
	if (!sp->nr_free)
		return SPAN_FULL;
	return 1 + (u32)((u64)sp->nr_free * (SPAN_EMPTY - 2) / sp->nr_blocks);
}

static void span_list_add(struct core *c, u32 first)
{
	struct kv_span *sp = &c->spans[first];
	u32 *head = &c->domains[sp->domain].class[sp->class];

	if (sp->class == SPAN_EMPTY)
		c->domains[sp->domain].nr_empty++;
	sp->prev = CORE_NONE;
	sp->next = *head;
	if (*head != CORE_NONE)
		c->spans[*head].prev = first;
	*head = first;
}

static void span_list_del(struct core *c, u32 first)
{
	struct kv_span *sp = &c->spans[first];

	if (sp->class == SPAN_EMPTY)
		c->domains[sp->domain].nr_empty--;
	if (sp->prev != CORE_NONE)
		c->spans[sp->prev].next = sp->next;
	else
		c->domains[sp->domain].class[sp->class] = sp->next;
	if (sp->next != CORE_NONE)
		c->spans[sp->next].prev = sp->prev;
}

void span_set_class(struct core *c, u32 first, u32 class)
{
	struct kv_span *sp = &c->spans[first];

	if (class == sp->class)
		return;
	span_list_del(c, first);
	sp->class = class;
	span_list_add(c, first);
}

/* nr_free changed: move the span to the list where it belongs now. */
void span_reclass(struct core *c, u32 first)
{
	struct kv_span *sp = &c->spans[first];

	if (!span_is_isolated(sp))
		span_set_class(c, first, span_class(sp));
}

/* May @d lose @nr free blocks and still cover what it promised? */
static bool span_can_spare(const struct kv_domain *d, u32 nr)
{
	return domain_free(d) >= d->reserved + nr;
}

/*
 * How many empty spans a domain keeps for what comes next.  On the lower tiers
 * nobody takes them from it, so there it is one.
 */
static u32 span_keep(const struct core *c, const struct kv_span *sp)
{
	u32 nr = core_sizes(c)->nr_extents;

	if (part_pool(c, sp->domain))
		return 1;
	return max(min(nr / (16 * sp->nr_extents), SPAN_KEEP), 1u);
}

/* A block of the span was freed: does the span leave the domain? */
void span_settle(struct core *c, u32 first)
{
	struct kv_span *sp = &c->spans[first];
	const struct kv_domain *d = &c->domains[sp->domain];

	if (span_is_isolated(sp)) {
		if (sp->nr_free != sp->nr_blocks)
			return;
		if (domain_free(d) < d->reserved)
			span_putback(c, first);	/* a promise came back */
		else
			span_release(c, first);
		return;
	}
	if (sp->class == SPAN_EMPTY && d->nr_empty > span_keep(c, sp) &&
	    span_can_spare(d, sp->nr_blocks) && !d->pending_spans &&
	    !d->keep_spans)
		span_release(c, first);
}

static void span_link_blocks(struct core *c, u32 dom, u32 first)
{
	struct kv_span *sp = &c->spans[first];
	u32 base = first * core_sizes(c)->blocks_per_extent;
	u32 i;

	for (i = 0; i < sp->nr_blocks; i++) {
		struct kv_block *b = &c->blocks[base + i];
		u64 written = b->written;

		memset(b, 0, sizeof(*b));
		if (part_pool(c, dom))
			b->written = written + 1;
		b->domain = (u16)dom;
		b->prev = CORE_NONE;
		b->hash_next = CORE_NONE;
		b->entry = CORE_NONE;
		b->next = i + 1 < sp->nr_blocks ? base + i + 1 : CORE_NONE;
	}
	sp->free_head = base;
}

/**
 * span_cut() - make a span of backed extents and give it to a domain
 * @dom:   index of the domain, whose shape decides the cut
 * @first: first of its span_extents extents, all with memory of its tenant
 */
void span_cut(struct core *c, u32 dom, u32 first)
{
	struct kv_domain *d = &c->domains[dom];
	struct kv_span *sp = &c->spans[first];
	u32 e;

	KV_BUG_ON(sp->nr_extents);
	for (e = first; e < first + d->span_extents; e++) {
		KV_BUG_ON(c->extents[e].tenant != d->tenant);
		c->extents[e].state = EXT_SPAN;
		c->extents[e].domain = dom;
		c->extents[e].span = first;
	}
	sp->domain = dom;
	sp->nr_extents = d->span_extents;
	sp->nr_blocks = d->span_blocks;
	sp->nr_free = d->span_blocks;
	sp->nr_cached = 0;
	sp->nr_open = 0;
	sp->class = SPAN_EMPTY;
	span_link_blocks(c, dom, first);
	span_list_add(c, first);

	d->nr_spans++;
	d->nr[BLK_FREE] += sp->nr_blocks;
	core_count(c, CORE_EV_span_cut, 1);
	/* For others too: spans that covered its promises may go now. */
	admit_retry_all(c);
}

/**
 * span_release() - give a span with no used block back to the pool
 *
 * Its extents keep their memory, for the same tenant.
 */
void span_release(struct core *c, u32 first)
{
	struct kv_span *sp = &c->spans[first];
	struct kv_domain *d = &c->domains[sp->domain];
	struct kv_pool *pool = core_pool(c, part_pool(c, sp->domain));
	u32 e;

	KV_BUG_ON(sp->nr_free != sp->nr_blocks);
	/* What an isolated one has free was counted off when it became that. */
	if (span_is_isolated(sp))
		d->isolated_free -= sp->nr_blocks;
	else
		KV_BUG_ON(!span_can_spare(d, sp->nr_blocks));
	if (span_is_isolated(sp))
		evacuate_forget(c, first);
	span_list_del(c, first);
	for (e = first; e < first + sp->nr_extents; e++) {
		c->extents[e].state = EXT_BACKED;
		c->extents[e].domain = CORE_NONE;
	}
	/* It has memory: let it be found first. */
	pool->cursor = min(pool->cursor, first - pool->first);
	d->nr_spans--;
	d->nr[BLK_FREE] -= sp->nr_blocks;
	sp->nr_extents = 0;
	core_count(c, CORE_EV_span_release, 1);
	admit_retry_all(c);
}

/* Has the client mapped all of the span? */
bool span_acked(const struct core *c, u32 first, u32 client)
{
	u32 e;

	for (e = first; e < first + c->spans[first].nr_extents; e++)
		if (!(c->extents[e].mapped & BIT_ULL(client)))
			return false;
	return true;
}

/**
 * span_pick() - the fullest span with a free block that a client has mapped
 * Return: its first extent, or CORE_NONE.
 */
u32 span_pick(const struct core *c, const struct kv_domain *d, u32 client)
{
	bool all = !c->clients[client].nr_unacked;
	u32 class, i;

	for (class = SPAN_FULL + 1; class <= SPAN_EMPTY; class++)
		for (i = d->class[class]; i != CORE_NONE; i = c->spans[i].next)
			if (all || span_acked(c, i, client))
				return i;
	return CORE_NONE;
}

/*
 * The fullest span with a free block that every client of the domain has
 * mapped; with @any also one that is empty.
 */
u32 span_pick_dense(const struct core *c, const struct kv_domain *d, bool any)
{
	u32 last = any ? SPAN_EMPTY : SPAN_EMPTY - 1, class, i, n;

	for (class = SPAN_FULL + 1; class <= last; class++)
		for (i = d->class[class]; i != CORE_NONE; i = c->spans[i].next) {
			for (n = 0; n < core_cfg(c)->max_clients; n++)
				if (c->clients[n].state == CLI_ALIVE &&
				    &c->domains[c->clients[n].domain] == d &&
				    c->clients[n].nr_unacked &&
				    !span_acked(c, i, n))
					break;
			if (n == core_cfg(c)->max_clients)
				return i;
		}
	return CORE_NONE;
}

/* How many of a domain's spans have no free block? */
u32 span_nr_full(const struct core *c, const struct kv_domain *d)
{
	u32 i, nr = 0;

	for (i = d->class[SPAN_FULL]; i != CORE_NONE; i = c->spans[i].next)
		nr++;
	return nr;
}

/* The fullest span with a free slot, of a pool that no client maps. */
u32 span_first_free(const struct core *c, const struct kv_domain *d)
{
	u32 class;

	for (class = SPAN_FULL + 1; class <= SPAN_EMPTY; class++)
		if (d->class[class] != CORE_NONE)
			return d->class[class];
	return CORE_NONE;
}

/* Free blocks that a grant to @client may name. */
u32 span_acked_free(const struct core *c, const struct kv_domain *d,
		    u32 client)
{
	u32 class, i, nr = 0;

	if (!c->clients[client].nr_unacked)
		return domain_free(d);
	for (class = SPAN_FULL + 1; class <= SPAN_EMPTY; class++)
		for (i = d->class[class]; i != CORE_NONE; i = c->spans[i].next)
			if (span_acked(c, i, client))
				nr += c->spans[i].nr_free;
	return nr;
}

/*
 * What goes takes with it what it has below, which may empty other spans: they
 * stay, for what the owner can spare was worked out with them.
 *
 * Return: blocks that went, without those below.
 */
u32 span_evict_cached(struct core *c, u32 first)
{
	struct kv_domain *owner = &c->domains[c->spans[first].domain];
	u32 base = first * core_sizes(c)->blocks_per_extent;
	u32 i, nr = 0;

	owner->keep_spans = 1;
	for (i = base; i < base + c->spans[first].nr_blocks; i++)
		if (c->blocks[i].state == BLK_CACHED &&
		    (!owner->emin ||
		     limit_may_lose(owner, index_evict_cost(c, i), true))) {
			index_evict(c, i);
			nr++;
		}
	owner->keep_spans = 0;
	core_count(c, CORE_EV_reclaim_direct, nr);
	return nr;
}

/*
 * What a run of extents costs those who have it; passes go in this order.  What
 * clients of another tenant have mapped comes last, whatever it holds: they
 * have to give it back first (revoke.c).
 */
enum run_cost {
	RUN_FREE,		/* nothing */
	RUN_CACHE,		/* cache above what is protected */
	RUN_FLOOR,		/* cache below somebody's floor */
	RUN_LOW,		/* cache below somebody's memory.low */
	RUN_REVOKE,		/* the same by a revocation */
	RUN_REVOKE_CACHE,
	RUN_REVOKE_FLOOR,
	RUN_REVOKE_LOW,
	NR_RUN_COSTS,
	RUN_NONE = NR_RUN_COSTS	/* cannot be had */
};

/* Is somebody of the domain beside who asks there to give way, or to end? */
static bool has_others(const struct kv_domain *d)
{
	return d->nr_running > 1;
}

/* What the cache of a span costs: who asks may do without, or may not. */
static u32 cache_cost(const struct core *c, const struct kv_span *sp, u32 dom)
{
	const struct kv_domain *owner = &c->domains[sp->domain];
	u32 nr = owner->lost + sp->nr_cached;
	bool floor = limit_cache_floor(owner, nr);

	if ((floor && has_others(&c->domains[dom])) ||
	    !limit_may_lose(owner, nr, true))
		return RUN_NONE;
	if (!limit_may_lose(owner, nr, false))
		return RUN_LOW;
	return floor ? RUN_FLOOR : RUN_CACHE;
}

/* What two parts of a run cost together. */
static u32 run_cost_both(u32 a, u32 b)
{
	u32 revoke = a >= RUN_REVOKE || b >= RUN_REVOKE ? RUN_REVOKE : RUN_FREE;

	if (a == RUN_NONE || b == RUN_NONE)
		return RUN_NONE;
	return max(a % RUN_REVOKE, b % RUN_REVOKE) + revoke;
}

/* What does the memory itself cost, whatever it holds? */
static u32 extent_cost(const struct core *c, u32 e, u32 dom)
{
	const struct kv_extent *x = &c->extents[e];

	if (x->want)
		return RUN_NONE;
	if (x->tenant == c->domains[dom].tenant)
		return RUN_FREE;
	/* To be made anew, which may be of no use just now. */
	if (c->now < c->head->create_after)
		return RUN_NONE;
	if (!revoke_needed(c, e))
		return RUN_FREE;
	return revoke_may(c, e) ? RUN_REVOKE : RUN_NONE;
}

/* Would the span's memory be of use to @dom, and what does it cost? */
static u32 span_cost(const struct core *c, u32 first, u32 dom)
{
	const struct kv_span *sp = &c->spans[first];
	u32 cost = RUN_FREE, e;

	if (!sp->nr_extents || sp->domain == dom || span_is_isolated(sp) ||
	    sp->nr_free + sp->nr_cached != sp->nr_blocks)
		return RUN_NONE;
	for (e = first; e < first + sp->nr_extents; e++)
		cost = run_cost_both(cost, extent_cost(c, e, dom));
	if (!sp->nr_cached || cost == RUN_NONE)
		return cost;
	return run_cost_both(cost, cache_cost(c, sp, dom));
}

/* Nothing is taken off yet. */
void spares_reset(struct core *c)
{
	u32 i;

	for (i = 0; i < core_cfg(c)->max_domains; i++) {
		struct kv_domain *d = &c->domains[i];

		d->spare = domain_free(d) - d->reserved;
		d->lost = 0;
	}
	for (i = 0; i < core_sizes(c)->nr_extents; i++)
		c->spans[i].counted = 0;
}

/* Take the span of @e off what its owner has, in the name of a run. */
static void run_take(struct core *c, u32 first, u32 e, u32 cost)
{
	struct kv_span *sp = &c->spans[c->extents[e].span];
	struct kv_domain *owner = &c->domains[sp->domain];

	sp->counted = first + 1;
	sp->cost = cost;
	owner->spare -= sp->nr_free;
	owner->lost += sp->nr_cached;
}

/* Put back what was taken in the name of the run, up to extent @end. */
static void run_untake(struct core *c, u32 first, u32 end)
{
	u32 e;

	for (e = first; e < end; e++) {
		struct kv_domain *owner;
		struct kv_span *sp;

		if (c->extents[e].state != EXT_SPAN)
			continue;
		sp = &c->spans[c->extents[e].span];
		if (sp->counted != first + 1)
			continue;
		owner = &c->domains[sp->domain];
		owner->spare += sp->nr_free;
		owner->lost -= sp->nr_cached;
		sp->counted = 0;
	}
}

/*
 * Can @dom have the run at @first at exactly that cost?  What the owners of
 * its spans can spare is taken off kv_domain.spare, and what they lose is
 * added to kv_domain.lost, once for each span.
 */
static bool run_possible(struct core *c, u32 dom, u32 first, u32 cost)
{
	const struct kv_domain *d = &c->domains[dom];
	u32 end = first + d->span_extents, worst = RUN_FREE, e;

	for (e = first; e < end; e++) {
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
		if (sp->counted == first + 1 && sp->pass != cost)
			return false;	/* counted in an earlier pass */
		if (!sp->counted) {
			one = span_cost(c, c->extents[e].span, dom);
			if (one == RUN_NONE ||
			    c->domains[sp->domain].spare < sp->nr_free)
				break;
			run_take(c, first, e, one);
			sp->pass = cost;
		}
		worst = run_cost_both(worst, sp->cost);
	}
	if (e == end && worst == cost)
		return true;
	run_untake(c, first, e);
	return false;
}

/* Where there is one tenant, nothing is ever revoked. */
static u32 run_costs(const struct core *c)
{
	return c->head->nr_tenants > 1 ? NR_RUN_COSTS : RUN_REVOKE;
}

/* What is there is looked at in the name of @dom. */
static void take_prepare(struct core *c, u32 dom)
{
	if (c->head->nr_tenants > 1)
		revoke_prepare(c, dom);
	spares_reset(c);
}

/**
 * span_runs_possible() - how many spans could a domain still get?
 *
 * Of free extents and of other domains' spans that hold only cache, in the
 * order in which span_steal() takes them: those that cost no cache first.
 * Nothing is taken: a request that cannot be met must cost nobody anything.
 */
u32 span_runs_possible(struct core *c, u32 dom)
{
	u32 nr = c->domains[dom].span_extents, runs = 0, cost, i;

	take_prepare(c, dom);
	for (cost = 0; cost < run_costs(c); cost++)
		for (i = 0; i + nr <= core_sizes(c)->nr_extents; i += nr)
			runs += run_possible(c, dom, i, cost);
	return runs;
}

/* Could the extent be the domain's if whoever may lose it lost it? */
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
	if (sp->domain == dom || sp->counted)
		return true;
	owner = &c->domains[sp->domain];
	used = sp->nr_blocks - sp->nr_free;
	if (used && !limit_may_lose(owner, owner->lost + used, true))
		return false;
	sp->counted = first + 1;
	owner->lost += used;
	return true;
}

/*
 * How many spans could the domain have if there were nothing else, but what
 * memory.min protects?
 */
u32 span_runs_reachable(struct core *c, u32 dom)
{
	u32 runs = 0, i, e, nr = c->domains[dom].span_extents;

	spares_reset(c);
	for (i = 0; i + nr <= core_sizes(c)->nr_extents; i += nr) {
		for (e = i; e < i + nr; e++)
			if (!extent_reachable(c, e, dom, i))
				break;
		runs += e == i + nr;
	}
	return runs;
}

/*
 * Evict and release what stands in the run at @first.  @low: some of it is what
 * memory.low protects, whose owner is told.  If it cannot be released all the
 * same but something went, @dom is to try again.
 */
static bool run_clear(struct core *c, u32 dom, u32 first, bool low)
{
	u32 e, nr;

	for (e = first; e < first + c->domains[dom].span_extents; e++) {
		u32 span = c->extents[e].span;

		if (c->extents[e].state != EXT_SPAN)
			continue;
		nr = span_evict_cached(c, span);
		if (nr && low)
			c->domains[c->spans[span].domain].nr_low_events++;
		if (nr)
			c->domains[dom].retry = 1;
		if (c->spans[span].nr_free != c->spans[span].nr_blocks)
			return false;
		span_release(c, span);
	}
	return true;
}

/* The largest share among those who would lose the run. */
static u64 run_share(const struct core *c, u32 dom, u32 first)
{
	u64 share = 0;
	u32 e;

	for (e = first; e < first + c->domains[dom].span_extents; e++)
		if (c->extents[e].state == EXT_SPAN)
			share = max(share, limit_share(&c->domains[
				c->spans[c->extents[e].span].domain]) + 1);
	return share;
}

/* The run at that cost whose owners have most beyond their part. */
static u32 run_choose(struct core *c, u32 dom, u32 cost)
{
	u32 nr = c->domains[dom].span_extents, best = CORE_NONE, i;
	u64 most = 0, share;

	for (i = 0; i + nr <= core_sizes(c)->nr_extents; i += nr) {
		if (!run_possible(c, dom, i, cost))
			continue;
		run_untake(c, i, i + nr);
		/* Who lives can answer; processes that detached have to end. */
		share = run_share(c, dom, i) << 1 | !revoke_haunted(c, i, nr);
		if (best == CORE_NONE || (share & 1) > (most & 1) ||
		    ((share & 1) == (most & 1) && share > most)) {
			best = i;
			most = share;
		}
		if (cost == RUN_FREE)
			break;
	}
	return best;
}

/**
 * span_steal() - take back spans of other domains that hold only cache
 *
 * Those of one run: of what costs nothing if there is any, then from whoever
 * has the largest share.  Blocks that an open step still copies from turn
 * QUIESCING on eviction, those that a copy out reads LIMBO, and keep the span;
 * then another run is tried at the next event.
 *
 * Return: true when extents became free, or were asked back: then they are on
 * their way, see room_coming().
 */
bool span_steal(struct core *c, u32 dom)
{
	u32 cost, run;

	take_prepare(c, dom);
	for (cost = 0; cost < run_costs(c); cost++) {
		run = run_choose(c, dom, cost);
		if (run == CORE_NONE)
			continue;
		if (!run_clear(c, dom, run, cost % RUN_REVOKE == RUN_LOW))
			return false;
		if (cost >= RUN_REVOKE)
			revoke_begin(c, dom, run);
		return true;
	}
	return false;
}
