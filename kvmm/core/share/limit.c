// SPDX-License-Identifier: Apache-2.0
/*
 * limit.c - limits of domains, protection from other domains
 *
 * A domain has four limits on its use of the device pool, as a control group:
 *
 *	max	its use never exceeds this; its own cache and sequences give
 *		way first
 *	high	above it new admissions wait, unless no sequence of the domain
 *		runs, and its own needs evict its cache; running sequences may
 *		grow
 *	low	other domains take memory below it only when nothing else is left
 *	min	other domains never take memory below it; a domain gets its min
 *		when it needs it, by preemption if necessary
 *
 * Use is every block of the domain that is not free, cache included: cache
 * within min is as safe as a sequence.  min and low of the domains that have
 * clients may add up to more than the pool.  Then each has its part in
 * proportion, as in the kernel (emin, elow).  Limits that an operator set come
 * first; those that clients asked for share the rest.  The requests of the
 * clients of one tenant, over all of its domains, are cut down to its quota
 * before they count.  So no client can take protection from others by asking.
 *
 * The memory of all domains above their protection is the surplus.  It is fair
 * when it is divided by weight.  So the share of a domain is its surplus over its
 * weight: the domain with the smallest share is admitted first, and the one with
 * the largest loses memory first.
 *
 * At any instant a share is off by the last admission and by growth since.  That
 * is much for a domain with a small part, and always too much, since no sequence
 * is asked to leave.  So the excess of a domain on average is added to its share
 * when the next admission is chosen (limit_turn()).  kv_domain.lag is the
 * difference between its share and the share of all contending domains, summed
 * over the time in which it is to be made up for.  It is bounded, and a domain
 * that does not contend is owed nothing.
 *
 * Other domains leave each domain a floor of cache: cache_floor per cent of its
 * part of the pool by weight.  So a domain that asks for more than the pool has
 * does not evict the system prompts of all others first.  The floor is the
 * weakest protection.  The domain's own needs do not respect it.  Neither does
 * another domain that needs memory and has no sequence of its own to give way
 * (steal.c).
 *
 * Cache above the floor is no surplus, but it has not the same value for all
 * domains.  A domain that needs memory first takes spare cache of other domains
 * (limit_keeps()), and evicts its own after that.  Spare is the cache of a cold
 * domain: it has no running or waiting sequence, and since its last use the
 * others could have used all of their memory once.  Spare is also the cache of a
 * domain that has clearly more memory, cache included, by weight and price.  The
 * first rule does what one LRU list over all domains would do, without a common
 * clock.  The second moves cache to that division when all domains are busy: else
 * the domain that came first would keep it.
 *
 * The price is the time to compute a byte of content again, as clients measured
 * it.  Assume that the hits of a domain grow with the logarithm of its memory.
 * Then the domains save most time if memory is divided in proportion to the price.
 * The factor between two domains is a power of two and at most PRICE_MOST: prices
 * are measured, and cache must not move to and fro with their noise.
 *
 * The lower tiers have only max, which is swap.max.
 */
#include "kvmm/core/share/share.h"

#define LAG_PERIODS	2	/* in units of starve_ns: time in which a lag is made up for */
#define LAG_PART	4	/* part of its memory that a domain may owe or be owed */
#define LAG_SCALE	(1 << 20)	/* kv_domain.lag has this scale, of a unit of the share */
#define PRICE_MOST	16u	/* a byte of cache counts as so many of a cheaper domain, at most */

/* Whole blocks of a part in @bytes. */
static u32 to_blocks(const struct kv_part *p, u64 bytes)
{
	return (u32)min(bytes / p->block_bytes, 0xfffffffeull);
}

/* The part of @bytes in @room, when all domains together want @sum. */
static u64 in_proportion(u64 bytes, u64 sum, u64 room)
{
	KV_BUG_ON(bytes > sum);
	if (sum <= room)
		return bytes;
	return (u64)((unsigned __int128)bytes * room / sum);
}

/* Sums of memory.min or memory.low: set by operators, asked for by clients. */
struct promises {
	u64	set;
	u64	asked;
};

enum { PROMISE_MIN, PROMISE_LOW, NR_PROMISES };

static bool is_set(const struct kv_domain *d, u32 which)
{
	return d->by_operator & BIT(which == PROMISE_MIN ? CORE_LIMIT_MIN :
				    CORE_LIMIT_LOW);
}

/* A limit in bytes, at most the pool, so that sums cannot overflow. */
static u64 mark_bytes(const struct core *c, const struct kv_domain *d,
		      u32 which)
{
	return min(which == PROMISE_MIN ? d->min_bytes : d->low_bytes,
		   pool_online(c, d));
}

/* A limit that a client asked for, cut down to the quota of its tenant. */
static u64 asked_bytes(const struct core *c, const struct kv_domain *d,
		       u32 which)
{
	const struct kv_tenant *t = &c->tenants[d->tenant];

	KV_BUG_ON(!t->used || !d->nr_clients);
	return in_proportion(mark_bytes(c, d, which), t->asked[which],
			     t->quota.max_min);
}

/* Count @bytes of the domain in each of its pools, as set by an operator or asked for. */
static void promise_add(const struct kv_domain *d, struct promises *p, u64 bytes, bool set)
{
	u32 i;

	for (i = d->zone; i < d->zone + d->shards; i++)
		*(set ? &p[i].set : &p[i].asked) += bytes;
}

/* @p: an entry for each device pool */
static void promises_sum(struct core *c, u32 which, struct promises *p)
{
	struct kv_domain *d;
	u32 i;

	memset(p, 0, CORE_MAX_ZONES * sizeof(*p));
	for (i = 0; i < core_cfg(c)->max_tenants; i++)
		c->tenants[i].asked[which] = 0;
	for (i = 0; i < core_cfg(c)->max_domains; i++) {
		d = &c->domains[i];
		if (!d->used || !d->nr_clients)
			continue;
		if (is_set(d, which))
			promise_add(d, p, mark_bytes(c, d, which), true);
		else
			c->tenants[d->tenant].asked[which] +=
				mark_bytes(c, d, which);
	}
	for (i = 0; i < core_cfg(c)->max_domains; i++) {
		d = &c->domains[i];
		if (d->used && d->nr_clients && !is_set(d, which))
			promise_add(d, p, asked_bytes(c, d, which), false);
	}
}

/* Bytes of a domain that are protected in a device pool; limits of operators come first. */
static u64 promise_bytes(const struct core *c, const struct kv_domain *d, u32 which,
			 const struct kv_zone *z, const struct promises *p)
{
	u64 pool = z->nr_online * core_cfg(c)->extent_size;

	if (is_set(d, which))
		return in_proportion(mark_bytes(c, d, which), p->set, pool);
	return in_proportion(asked_bytes(c, d, which), p->asked,
			     pool - min(p->set, pool));
}

/* Protected blocks of a domain: as many as each of its pools can promise. */
static u32 promise_blocks(const struct core *c, const struct kv_domain *d,
			  u32 which, const struct promises *p)
{
	const struct kv_zone *z;
	u64 bytes = ~0ull;

	for_each_zone(c, d, z)
		bytes = min(bytes, promise_bytes(c, d, which, z, p + (z - c->head->zones)));
	return to_blocks(&d->dev, bytes);
}

/* The domain's cache floor in bytes: the least that it has by weight in any of its pools. */
static u64 floor_bytes(const struct core *c, const struct kv_domain *d, const u64 *weights)
{
	const struct kv_zone *z;
	u64 bytes = ~0ull;

	for_each_zone(c, d, z)
		bytes = min(bytes, z->nr_online * core_cfg(c)->extent_size *
			    core_cfg(c)->cache_floor * d->weight /
			    (100 * weights[z - c->head->zones]));
	return bytes;
}

/* Compute the cache floor of each domain that has clients. */
static void floor_settle(struct core *c)
{
	u64 weights[CORE_MAX_ZONES] = { 0 };
	struct kv_domain *d;
	u32 i, n;

	for_each_domain(c, i) {
		d = &c->domains[i];
		for (n = d->zone; n < d->zone + d->shards && d->nr_clients; n++)
			weights[n] += d->weight;
	}
	for (i = 0; i < core_cfg(c)->max_domains; i++) {
		d = &c->domains[i];
		d->floor = 0;
		if (!d->used || !d->nr_clients)
			continue;
		KV_BUG_ON(!d->weight || d->weight > weights[d->zone]);
		d->floor = min(to_blocks(&d->dev, floor_bytes(c, d, weights)),
			       d->dev.max_blocks);
	}
}

/* Compute what is protected, after limits or clients of a domain changed. */
void limit_settle(struct core *c)
{
	struct promises sum[NR_PROMISES][CORE_MAX_ZONES];
	struct kv_domain *d;
	u32 i;

	promises_sum(c, PROMISE_MIN, sum[PROMISE_MIN]);
	promises_sum(c, PROMISE_LOW, sum[PROMISE_LOW]);
	for (i = 0; i < core_cfg(c)->max_domains; i++) {
		d = &c->domains[i];
		if (!d->used)
			continue;
		d->emin = 0;
		d->elow = 0;
		if (!d->nr_clients)
			continue;
		d->emin = promise_blocks(c, d, PROMISE_MIN, sum[PROMISE_MIN]);
		d->elow = promise_blocks(c, d, PROMISE_LOW, sum[PROMISE_LOW]);
		/* Memory above max needs no protection. */
		d->emin = min(d->emin, d->dev.max_blocks);
		d->elow = min(max(d->elow, d->emin), d->dev.max_blocks);
	}
	floor_settle(c);
	core_kick(c);
}

/*
 * limit_bounded() - the limit in effect: the operator's, if it set one, else the
 * client's.  Of two limits for high or max the smaller one is in effect: a client may
 * lower these, which harms no other domain.
 */
u64 limit_bounded(const struct kv_domain *d, u32 which)
{
	u64 asked = d->asked_limit[which];

	if (!(d->by_operator & BIT(which)))
		return asked;
	if (which == CORE_LIMIT_HIGH || which == CORE_LIMIT_MAX)
		return min(asked, d->operator_limit[which]);
	return d->operator_limit[which];
}

/* Set the limits that an attach message asks for; its fields are valid. */
void limit_init(struct kv_domain *d, const struct kvmm_attach_req *req)
{
	const struct kvmm_limits *l = &req->limits[0];
	u64 *asked = d->asked_limit;

	KV_BUG_ON(d->nr_clients || d->emin || d->elow);
	asked[CORE_LIMIT_MIN] = l->min;
	asked[CORE_LIMIT_LOW] = l->low;
	asked[CORE_LIMIT_HIGH] = l->high ? l->high : KVMM_LIMIT_MAX;
	asked[CORE_LIMIT_MAX] = l->max;
	asked[CORE_LIMIT_WEIGHT] = req->weight ? req->weight :
						 CORE_WEIGHT_DEFAULT;
	asked[CORE_LIMIT_WRITETHROUGH] = 0;
	d->min_bytes = limit_bounded(d, CORE_LIMIT_MIN);
	d->low_bytes = limit_bounded(d, CORE_LIMIT_LOW);
	d->high_bytes = limit_bounded(d, CORE_LIMIT_HIGH);
	d->dev.max_bytes = limit_bounded(d, CORE_LIMIT_MAX);
	d->dev.max_blocks = to_blocks(&d->dev, d->dev.max_bytes);
	d->high_blocks = to_blocks(&d->dev, d->high_bytes);
	d->weight = (u32)limit_bounded(d, CORE_LIMIT_WEIGHT);
	d->writethrough = (u32)limit_bounded(d, CORE_LIMIT_WRITETHROUGH);
	KV_BUG_ON(!d->weight || d->weight > CORE_WEIGHT_MAX);
}

/* Bound a limit to @most, unless an operator set it. */
static bool mark_bound(const struct kv_domain *d, u32 which, u64 *value,
		       u64 most)
{
	if ((d->by_operator & BIT(which)) || *value <= most)
		return false;
	*value = most;
	return true;
}

/**
 * limit_bound() - bound the limits that clients asked for to the tenant's quota
 * Return: true when a limit was larger.
 */
bool limit_bound(const struct core *c, struct kv_domain *d)
{
	const struct core_quota *q = &c->tenants[d->tenant].quota;
	u64 weight = d->weight;
	bool cut;

	KV_BUG_ON(!c->tenants[d->tenant].used);
	cut = mark_bound(d, CORE_LIMIT_MIN, &d->min_bytes, q->max_min);
	cut |= mark_bound(d, CORE_LIMIT_LOW, &d->low_bytes, q->max_min);
	cut |= mark_bound(d, CORE_LIMIT_WEIGHT, &weight, q->max_weight);
	d->weight = (u32)weight;
	return cut;
}

/* Another model takes over the name of @old: limits of the operator stay. */
void limit_inherit(struct kv_domain *d, const struct kv_domain *old,
		   const struct kvmm_attach_req *req)
{
	KV_BUG_ON(!old->used || old->nr_clients);
	d->by_operator = old->by_operator;
	memcpy(d->operator_limit, old->operator_limit,
	       sizeof(d->operator_limit));
	limit_init(d, req);
}

/* Salvage: compute the fields that follow from the limits. */
void limit_restore(struct kv_domain *d)
{
	d->by_operator &= BIT(CORE_NR_LIMITS) - 1;
	d->dev.max_blocks = to_blocks(&d->dev, d->dev.max_bytes);
	d->high_blocks = to_blocks(&d->dev, d->high_bytes);
}

/* Set the most slots of a domain in the host pool or an area. */
void limit_set_part(struct core *c, u32 dom, u32 pool, u64 bytes)
{
	struct kv_part *part = part_at(c, part_index(c, dom, pool));

	KV_BUG_ON(pool == CORE_POOL_DEV);
	part->max_bytes = bytes ? bytes : KVMM_LIMIT_MAX;
	part->max_blocks = CORE_NONE;
	if (part->used && part->max_bytes != KVMM_LIMIT_MAX)
		part->max_blocks = to_blocks(part, part->max_bytes);
}

/* Set the limits of the lower tiers; @dom has its parts there. */
void limit_init_tiers(struct core *c, u32 dom,
		      const struct kvmm_attach_req *req)
{
	u32 i;

	limit_set_part(c, dom, CORE_POOL_HOST, req->limits[1].max);
	for (i = CORE_POOL_AREA; i < CORE_NR_POOLS; i++)
		limit_set_part(c, dom, i, req->limits[2].max);
}

/* May other domains take @nr blocks?  @last: nothing else is left. */
bool limit_may_lose(const struct kv_domain *d, u32 nr, bool last)
{
	u32 keep = last ? d->emin : d->elow;

	KV_BUG_ON(d->emin > d->elow);
	return (u64)keep + nr <= domain_used(d);
}

/* Would a domain that holds @held and wants @nr be within memory.min? */
bool limit_within_min(const struct kv_domain *d, u32 held, u32 nr)
{
	KV_BUG_ON(d->emin > d->dev.max_blocks);
	KV_BUG_ON(d->emin && !d->nr_clients);
	return d->emin && (u64)held + nr <= d->emin;
}

/**
 * limit_share() - the domain's surplus over its weight
 *
 * Only blocks of sequences and reserved ones count.  Cache is no surplus, since
 * any domain may take it.
 *
 * Return: KiB for a weight of 100; the larger, the sooner it loses memory.
 */
u64 limit_share(const struct kv_domain *d)
{
	u32 held = domain_held(d);

	KV_BUG_ON(!d->weight || d->weight > CORE_WEIGHT_MAX);
	if (held <= d->elow)
		return 0;
	return ((held - d->elow) * d->dev.block_bytes >> 10) *
	       CORE_WEIGHT_DEFAULT / d->weight;
}

/**
 * limit_turn() - key by which the next domain is chosen for admission
 *
 * Return: the domain's share plus its recent excess; the smaller, the sooner.
 */
u64 limit_turn(const struct kv_domain *d)
{
	s64 turn = (s64)limit_share(d) + d->lag / LAG_SCALE;

	return turn < 0 ? 0 : (u64)turn;
}

/* Does a sequence wait that no limit of the domain itself stops? */
static bool contends(const struct core *c, const struct kv_domain *d)
{
	const struct kv_seq *w;
	u32 total;

	if (!d->used || d->wait_head == CORE_NONE)
		return false;
	w = &c->seqs[d->wait_head];
	KV_BUG_ON(!(w->flags & SEQF_QUEUED) || w->prev != CORE_NONE);
	KV_BUG_ON(seq_domain(c, w) != d);
	total = seq_needs(c, w);
	return (u64)domain_held(d) + total <=
	       min(d->dev.max_blocks, d->high_blocks);
}

/* Mean share of the contending domains of a tenant and pool, by weight; scaled. */
static s64 share_of_all(const struct core *c, const struct kv_domain *of)
{
	u64 sum = 0, weights = 0;
	u32 i;

	for (i = 0; i < core_cfg(c)->max_domains; i++) {
		const struct kv_domain *d = &c->domains[i];

		if (!domains_trade(d, of) || !contends(c, d))
			continue;
		sum += limit_share(d) * d->weight;
		weights += d->weight;
	}
	return weights ? (s64)((unsigned __int128)sum * LAG_SCALE / weights) :
			 0;
}

/**
 * limit_tick() - on a tick: add up each domain's excess over its part
 * @passed: ns since the last call
 */
void limit_tick(struct core *c, u64 passed)
{
	u64 period = max(LAG_PERIODS * core_cfg(c)->starve_ns, 1ull);
	u32 i;

	passed = min(passed, period);
	for (i = 0; i < core_cfg(c)->max_domains; i++) {
		struct kv_domain *d = &c->domains[i];
		s64 all, most;

		if (!contends(c, d)) {
			d->lag = 0;
			continue;
		}
		all = share_of_all(c, d);
		most = all / LAG_PART;
		d->lag += (s64)(((__int128)limit_share(d) * LAG_SCALE - all) *
				passed / period);
		d->lag = max(min(d->lag, most), -most);
	}
}

/* Does the domain use more than its memory.high? */
bool limit_above_high(const struct kv_domain *d)
{
	return domain_used(d) > d->high_blocks;
}

/* Without @nr blocks of its cache, would the domain be below its floor? */
bool limit_cache_floor(const struct kv_domain *d, u32 nr)
{
	KV_BUG_ON(d->floor > d->dev.max_blocks);
	KV_BUG_ON(d->floor && !d->nr_clients);
	return d->dev.nr[BLK_CACHED] < (u64)d->floor + nr;
}

/**
 * limit_cache_spare() - cached blocks of a domain that other domains may take
 * @lost: blocks that it loses already
 */
u32 limit_cache_spare(const struct kv_domain *d, u32 lost)
{
	u64 floor = (u64)d->floor + lost, min = (u64)d->emin + lost;
	u32 cached = domain_cached(d), used = domain_used(d);

	KV_BUG_ON(cached > used);
	if (cached <= floor || used <= min)
		return 0;
	return (u32)min(cached - floor, used - min);
}

static u64 span_bytes(const struct core *c, const struct kv_domain *d, u64 nr)
{
	return nr * d->dev.span_extents * core_cfg(c)->extent_size;
}

/* Since its last use, could the others have used all their memory once? */
static bool is_cold(const struct core *c, const struct kv_domain *o)
{
	const u64 pool = pool_online(c, o), has = span_bytes(c, o, o->dev.nr_spans);

	return !o->nr_running && !o->nr_waiting &&
	       domain_zone(c, o)->touched - o->touched >= pool - min(has, pool);
}

/*
 * The factor by which the price of @dear is higher than that of @cheap: a power of two from
 * 1 to PRICE_MOST.  It is 1 if the price of @dear is lower, or if a price is not known.
 */
static u32 price_ratio(const struct kv_domain *dear, const struct kv_domain *cheap)
{
	/* The time for a block each, times the bytes of the other's block. */
	const unsigned __int128 high = (unsigned __int128)domain_refill_ns(dear) *
				       domain_payload(cheap);
	const unsigned __int128 low = (unsigned __int128)domain_refill_ns(cheap) *
				      domain_payload(dear);
	u32 ratio = 1;

	while (low && ratio < PRICE_MOST && low * ratio * 2 <= high)
		ratio *= 2;
	return ratio;
}

/*
 * Two spans of each more than @d, by weight and price: with less, spans would oscillate.
 */
static bool has_more(const struct core *c, const struct kv_domain *o,
		     const struct kv_domain *d)
{
	const u64 less = span_bytes(c, d, d->dev.nr_spans + 2ull) +
			 span_bytes(c, o, 2);

	return (unsigned __int128)span_bytes(c, o, o->dev.nr_spans) * d->weight *
	       price_ratio(d, o) >
	       (unsigned __int128)less * o->weight * price_ratio(o, d);
}

/**
 * limit_keeps() - does @o have spare cache that @d takes before it evicts its own?
 *
 * limit_cache_spare() says how much of it @d may take.
 */
bool limit_keeps(const struct core *c, const struct kv_domain *o,
		 const struct kv_domain *d)
{
	return o->used && o != d && domains_trade(o, d) &&
	       (is_cold(c, o) || has_more(c, o, d));
}

int limit_set(struct kv_domain *d, u32 which, u64 value)
{
	switch (which) {
	case CORE_LIMIT_MIN:
		d->min_bytes = value;
		return 0;
	case CORE_LIMIT_LOW:
		d->low_bytes = value;
		return 0;
	case CORE_LIMIT_HIGH:
		d->high_bytes = value;
		d->high_blocks = to_blocks(&d->dev, value);
		return 0;
	case CORE_LIMIT_MAX:
		if (!to_blocks(&d->dev, value))
			return -EINVAL;
		d->dev.max_bytes = value;
		d->dev.max_blocks = to_blocks(&d->dev, value);
		return 0;
	case CORE_LIMIT_WEIGHT:
		if (!value || value > CORE_WEIGHT_MAX)
			return -EINVAL;
		d->weight = (u32)value;
		return 0;
	case CORE_LIMIT_WRITETHROUGH:
		if (value > 1)
			return -EINVAL;
		d->writethrough = (u32)value;
		return 0;
	}
	return -EINVAL;
}
