// SPDX-License-Identifier: Apache-2.0
/*
 * limit.c - what a domain may have, and what others must leave it
 *
 * Four marks on a domain's use of the device pool, as a control group has:
 *
 *	max	its use never exceeds this; its own cache and sequences give
 *		way first
 *	high	above it new admissions wait, unless nothing of the domain
 *		runs, and its cache gives way to its own needs; what runs may
 *		grow
 *	low	what is below it is taken by others when nothing else is left
 *	min	what is below it is never taken by others; a domain that asks
 *		for its min gets it, by preemption if need be
 *
 * Use is every block of the domain that is not free, its cache included: a
 * cache within min is as safe as a sequence.  min and low of the domains that
 * have clients may add up to more than the pool; then each has its part in
 * proportion, as in the kernel (emin, elow).  But what an operator set comes
 * first: what clients asked for shares what that leaves.  And what the clients of
 * one tenant ask for, over all of its domains, is cut down to its quota before
 * it counts: nobody can take from others what they were promised by asking.
 *
 * What all have beyond their protection is the surplus.  It is fair when it
 * goes by weight, so a domain's share is its surplus over its weight: who has
 * the smallest share is admitted first, who has the largest loses first.
 *
 * At any instant a share is off by what came in last and by what that has grown
 * since, which is much for whose part is small, and always too much, since nobody
 * is asked to leave.  So what a domain had too much of on average counts
 * with its share when it is asked whose turn it is (limit_turn()): kv_domain.lag
 * is the sum of what its share was above that of all who contend, over the time
 * in which that is made up for.  It is bounded, and a domain that does not contend
 * is owed nothing.
 *
 * Of a domain's cache others leave it a floor, cache_floor per cent of its part
 * of the pool by weight, so that who asks for more than there is does not find
 * everybody else's system prompts among the first things to go.  It is the
 * weakest protection: the domain's own needs do not respect it, and a domain in
 * which nothing else runs that could give way takes it as well (steal.c).
 *
 * Above the floor cache is nobody's surplus, but it is not worth the same to
 * all.  Who needs room gives up cache of its own only after that which others
 * keep (limit_keeps()): of a domain that is cold, in which nothing runs and
 * waits and whose last use is longer ago than everything that others have could
 * be used once; and of one that has clearly more, cache included, than who
 * asks, by weight.  The first is what one LRU list over all domains would
 * do, without a clock that all of them share.  The second brings cache to where
 * the weights want it when all are busy: else who came first would keep it.
 *
 * The lower tiers know only max, which is swap.max.
 */
#include "kvmm/core/share/share.h"

#define LAG_PERIODS	2	/* times starve_ns, in which a lag is made up for */
#define LAG_PART	4	/* of its part, that a domain may owe or be owed */
#define LAG_SCALE	(1 << 20)	/* kv_domain.lag is in such parts of a share's unit */

/* Whole blocks in @bytes of a part. */
static u32 to_blocks(const struct kv_part *p, u64 bytes)
{
	return (u32)min(bytes / p->block_bytes, 0xfffffffeull);
}

/* @bytes of it, when all want @sum and there is @room. */
static u64 in_proportion(u64 bytes, u64 sum, u64 room)
{
	if (sum <= room)
		return bytes;
	return (u64)((unsigned __int128)bytes * room / sum);
}

/* memory.min or memory.low of all: what an operator set, what was asked for. */
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

/* No more than the pool; else the sums could overflow. */
static u64 mark_bytes(const struct core *c, const struct kv_domain *d,
		      u32 which)
{
	return min(which == PROMISE_MIN ? d->min_bytes : d->low_bytes,
		   pool_online(c));
}

/* What a client asked for, within what its tenant's may ask for together. */
static u64 asked_bytes(const struct core *c, const struct kv_domain *d,
		       u32 which)
{
	const struct kv_tenant *t = &c->tenants[d->tenant];

	return in_proportion(mark_bytes(c, d, which), t->asked[which],
			     t->quota.max_min);
}

static void promises_sum(struct core *c, u32 which, struct promises *p)
{
	struct kv_domain *d;
	u32 i;

	*p = (struct promises){ 0 };
	for (i = 0; i < core_cfg(c)->max_tenants; i++)
		c->tenants[i].asked[which] = 0;
	for (i = 0; i < core_cfg(c)->max_domains; i++) {
		d = &c->domains[i];
		if (!d->used || !d->nr_clients)
			continue;
		if (is_set(d, which))
			p->set += mark_bytes(c, d, which);
		else
			c->tenants[d->tenant].asked[which] +=
				mark_bytes(c, d, which);
	}
	for (i = 0; i < core_cfg(c)->max_domains; i++) {
		d = &c->domains[i];
		if (d->used && d->nr_clients && !is_set(d, which))
			p->asked += asked_bytes(c, d, which);
	}
}

/* Blocks of it, what an operator set before what was asked for. */
static u32 promise_blocks(const struct core *c, const struct kv_domain *d,
			  u32 which, const struct promises *p)
{
	u64 pool = pool_online(c);

	if (is_set(d, which))
		return to_blocks(&d->dev, in_proportion(mark_bytes(c, d, which),
						  p->set, pool));
	return to_blocks(&d->dev, in_proportion(asked_bytes(c, d, which), p->asked,
					  pool - min(p->set, pool)));
}

/* Blocks of cache that others leave each domain that has clients. */
static void floor_settle(struct core *c)
{
	u64 weights = 0, bytes;
	struct kv_domain *d;
	u32 i;

	for_each_domain(c, i)
		if (c->domains[i].nr_clients)
			weights += c->domains[i].weight;
	for (i = 0; i < core_cfg(c)->max_domains; i++) {
		d = &c->domains[i];
		d->floor = 0;
		if (!d->used || !d->nr_clients)
			continue;
		bytes = pool_online(c) * core_cfg(c)->cache_floor *
			d->weight / (100 * weights);
		d->floor = min(to_blocks(&d->dev, bytes), d->dev.max_blocks);
	}
}

/* Somebody's marks or clients changed: what is protected now? */
void limit_settle(struct core *c)
{
	struct promises sum[NR_PROMISES];
	struct kv_domain *d;
	u32 i;

	promises_sum(c, PROMISE_MIN, &sum[PROMISE_MIN]);
	promises_sum(c, PROMISE_LOW, &sum[PROMISE_LOW]);
	for (i = 0; i < core_cfg(c)->max_domains; i++) {
		d = &c->domains[i];
		if (!d->used)
			continue;
		d->emin = 0;
		d->elow = 0;
		if (!d->nr_clients)
			continue;
		d->emin = promise_blocks(c, d, PROMISE_MIN, &sum[PROMISE_MIN]);
		d->elow = promise_blocks(c, d, PROMISE_LOW, &sum[PROMISE_LOW]);
		/* What it may not have nobody need leave it. */
		d->emin = min(d->emin, d->dev.max_blocks);
		d->elow = min(max(d->elow, d->emin), d->dev.max_blocks);
	}
	floor_settle(c);
	core_kick(c);
}

/*
 * What is asked for, unless an operator said something of this domain: that
 * holds.  Of high and max less may be asked for, which harms nobody else.
 */
static u64 bounded(const struct kv_domain *d, u32 which)
{
	u64 asked = d->asked_limit[which];

	if (!(d->by_operator & BIT(which)))
		return asked;
	if (which == CORE_LIMIT_HIGH || which == CORE_LIMIT_MAX)
		return min(asked, d->operator_limit[which]);
	return d->operator_limit[which];
}

/* The marks that an attach message asks for; its fields were judged. */
void limit_init(struct kv_domain *d, const struct kvmm_attach_req *req)
{
	const struct kvmm_limits *l = &req->limits[0];
	u64 *asked = d->asked_limit;

	asked[CORE_LIMIT_MIN] = l->min;
	asked[CORE_LIMIT_LOW] = l->low;
	asked[CORE_LIMIT_HIGH] = l->high ? l->high : KVMM_LIMIT_MAX;
	asked[CORE_LIMIT_MAX] = l->max;
	asked[CORE_LIMIT_WEIGHT] = req->weight ? req->weight :
						 CORE_WEIGHT_DEFAULT;
	d->min_bytes = bounded(d, CORE_LIMIT_MIN);
	d->low_bytes = bounded(d, CORE_LIMIT_LOW);
	d->high_bytes = bounded(d, CORE_LIMIT_HIGH);
	d->dev.max_bytes = bounded(d, CORE_LIMIT_MAX);
	d->dev.max_blocks = to_blocks(&d->dev, d->dev.max_bytes);
	d->high_blocks = to_blocks(&d->dev, d->high_bytes);
	d->weight = (u32)bounded(d, CORE_LIMIT_WEIGHT);
}

/* No more than @most, unless an operator said something. */
static bool mark_bound(const struct kv_domain *d, u32 which, u64 *value,
		       u64 most)
{
	if ((d->by_operator & BIT(which)) || *value <= most)
		return false;
	*value = most;
	return true;
}

/**
 * limit_bound() - the marks that were asked for, within its tenant's quota
 * Return: whether one was more.
 */
bool limit_bound(const struct core *c, struct kv_domain *d)
{
	const struct core_quota *q = &c->tenants[d->tenant].quota;
	u64 weight = d->weight;
	bool cut;

	cut = mark_bound(d, CORE_LIMIT_MIN, &d->min_bytes, q->max_min);
	cut |= mark_bound(d, CORE_LIMIT_LOW, &d->low_bytes, q->max_min);
	cut |= mark_bound(d, CORE_LIMIT_WEIGHT, &weight, q->max_weight);
	d->weight = (u32)weight;
	return cut;
}

/* Another model takes over the name of @old: what the operator said stays. */
void limit_inherit(struct kv_domain *d, const struct kv_domain *old,
		   const struct kvmm_attach_req *req)
{
	d->by_operator = old->by_operator;
	memcpy(d->operator_limit, old->operator_limit,
	       sizeof(d->operator_limit));
	limit_init(d, req);
}

/* Of an arena that is salvaged: what follows from its marks. */
void limit_restore(struct kv_domain *d)
{
	d->by_operator &= BIT(CORE_NR_LIMITS) - 1;
	d->dev.max_blocks = to_blocks(&d->dev, d->dev.max_bytes);
	d->high_blocks = to_blocks(&d->dev, d->high_bytes);
}

/* Most slots in @part, of the host pool or an area. */
void limit_set_part(struct core *c, u32 dom, u32 pool, u64 bytes)
{
	struct kv_part *part = part_at(c, part_index(c, dom, pool));

	part->max_bytes = bytes ? bytes : KVMM_LIMIT_MAX;
	part->max_blocks = CORE_NONE;
	if (part->used && part->max_bytes != KVMM_LIMIT_MAX)
		part->max_blocks = to_blocks(part, part->max_bytes);
}

/* The same for the lower tiers; @dom has its parts there. */
void limit_init_tiers(struct core *c, u32 dom,
		      const struct kvmm_attach_req *req)
{
	u32 i;

	limit_set_part(c, dom, CORE_POOL_HOST, req->limits[1].max);
	for (i = CORE_POOL_AREA; i < CORE_NR_POOLS; i++)
		limit_set_part(c, dom, i, req->limits[2].max);
}

/* May others take @nr blocks of the domain?  @last: nothing else is left. */
bool limit_may_lose(const struct kv_domain *d, u32 nr, bool last)
{
	u32 keep = last ? d->emin : d->elow;

	return (u64)keep + nr <= domain_used(d);
}

/* Is a domain that holds @held and wants @nr within what it was promised? */
bool limit_within_min(const struct kv_domain *d, u32 held, u32 nr)
{
	return d->emin && (u64)held + nr <= d->emin;
}

/**
 * limit_share() - the domain's surplus, over its weight
 *
 * Of what it holds and was promised at admission; cache is nobody's surplus, it
 * goes to whoever asks.
 *
 * Return: KiB for a weight of 100; the larger, the sooner it loses.
 */
u64 limit_share(const struct kv_domain *d)
{
	u32 held = domain_held(d);

	if (held <= d->elow)
		return 0;
	return ((held - d->elow) * d->dev.block_bytes >> 10) *
	       CORE_WEIGHT_DEFAULT / d->weight;
}

/**
 * limit_turn() - whose turn is it to be admitted?
 *
 * Return: the domain's share, and what it had too much of lately; the smaller,
 * the sooner.
 */
u64 limit_turn(const struct kv_domain *d)
{
	s64 turn = (s64)limit_share(d) + d->lag / LAG_SCALE;

	return turn < 0 ? 0 : (u64)turn;
}

/* Has it somebody waiting whom no limit of its own holds up? */
static bool contends(const struct core *c, const struct kv_domain *d)
{
	const struct kv_seq *w;
	u32 total;

	if (!d->used || d->wait_head == CORE_NONE)
		return false;
	w = &c->seqs[d->wait_head];
	total = max(tokens_to_blocks(d, w->nr_ids), w->nr_blocks);
	return (u64)domain_held(d) + total <=
	       min(d->dev.max_blocks, d->high_blocks);
}

/* The share of those of a tenant that contend if they had equal ones, scaled. */
static s64 share_of_all(const struct core *c, u32 tenant)
{
	u64 sum = 0, weights = 0;
	u32 i;

	for (i = 0; i < core_cfg(c)->max_domains; i++) {
		const struct kv_domain *d = &c->domains[i];

		if (d->tenant != tenant || !contends(c, d))
			continue;
		sum += limit_share(d) * d->weight;
		weights += d->weight;
	}
	return weights ? (s64)((unsigned __int128)sum * LAG_SCALE / weights) :
			 0;
}

/**
 * limit_tick() - time passed: who has how much more than its part, on average?
 * @passed: ns since it was last called
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
		all = share_of_all(c, d->tenant);
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

/* Would its cache be below the floor without @nr blocks of it? */
bool limit_cache_floor(const struct kv_domain *d, u32 nr)
{
	return d->dev.nr[BLK_CACHED] < (u64)d->floor + nr;
}

/**
 * limit_cache_spare() - cache of a domain that others may take
 * @lost: blocks that it loses already
 */
u32 limit_cache_spare(const struct kv_domain *d, u32 lost)
{
	u64 floor = (u64)d->floor + lost, min = (u64)d->emin + lost;
	u32 cached = domain_cached(d), used = domain_used(d);

	if (cached <= floor || used <= min)
		return 0;
	return (u32)min(cached - floor, used - min);
}

static u64 span_bytes(const struct core *c, const struct kv_domain *d, u64 nr)
{
	return nr * d->dev.span_extents * core_cfg(c)->extent_size;
}

/* Since its last use, could all that others have been used once? */
static bool is_cold(const struct core *c, const struct kv_domain *o)
{
	const u64 pool = pool_online(c), has = span_bytes(c, o, o->dev.nr_spans);

	return !o->nr_running && !o->nr_waiting &&
	       c->head->touched - o->touched >= pool - min(has, pool);
}

/* Two spans of each more than @d, by weight: less would go to and fro. */
static bool has_more(const struct core *c, const struct kv_domain *o,
		     const struct kv_domain *d)
{
	const u64 less = span_bytes(c, d, d->dev.nr_spans + 2ull) +
			 span_bytes(c, o, 2);

	return (unsigned __int128)span_bytes(c, o, o->dev.nr_spans) * d->weight >
	       (unsigned __int128)less * o->weight;
}

/**
 * limit_keeps() - does @o keep cache that @d should have before it drops its own?
 *
 * How much of it others may take is another question: limit_cache_spare().
 */
bool limit_keeps(const struct core *c, const struct kv_domain *o,
		 const struct kv_domain *d)
{
	return o->used && o != d && o->tenant == d->tenant &&
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
	}
	return -EINVAL;
}
