// SPDX-License-Identifier: Apache-2.0
/*
 * lru.c - which cached block goes next
 *
 * The cache of a domain is a tree of prefixes (index.c).  A block is found
 * only by way of all that comes before it, so only leaves are candidates:
 * blocks that no sequence maps and that have no kids on the device.  When the
 * last kid went, its parent is one.  Of the leaves the one that is worth least
 * goes, and worth is measured, not assumed.
 *
 * Time.  A domain's clock counts the blocks that are entered into its index,
 * for that is how fast room is asked for: while everything is found it stands
 * still.  A unit of it is 1/1024 of what the domain could hold.  An age is the
 * units since a name was last used; at an age of 1024 as many blocks came in
 * as there is room for.  Ages fall into buckets, two for each power of two.
 *
 * Tiers.  What was seen of a name puts it into one of 16 tiers: never found
 * again, by how many tokens came in with it, so that a long prompt is told
 * from the next turn of a chat; found once, two or three times, or oftener,
 * each by the smoothed interval between its uses.
 *
 * Refault distance.  A name that pressure drops leaves a ghost behind
 * (ghost.c).  If it is entered again at clock R, having been used last at U,
 * then R - U is the age at which it would have been found in a larger cache:
 * an observation like any hit, of an age that the cache itself never sees.
 *
 *	        used          dropped               entered again
 *	---------U---------------E----------------------R-------> clock
 *	          <-- resident --><------- ghost ------->
 *	          at risk from 0     at risk from E - U
 *	          to E - U: no hit   to R - U: hit
 *
 * Worth.  For each tier and bucket it is known how long names were at risk
 * there, resident or ghost, and how many were used: the quotient is the rate
 * h(age) of hits a block and unit.  A block at age a is worth the best mean
 * rate that keeping it for some while would have:
 *
 *	V(a) = max over b >= a of  sum R(x), x = a..b  /  sum T(x), x = a..b
 *
 * where R(x) is the probability that its hit comes in bucket x and T(x) the
 * time that it would be held there.  (This is Gittins' index of a job that
 * pays at its end.)  If h falls with age V is h; if it rises first, as the
 * pause between the turns of a chat makes it, V looks ahead.  Counts decay, so
 * that what was hot and is not ages out with what was learned of it.  Before
 * anything is known h is taken for k / (a + i), with k larger for what was
 * found oftener and i its interval; this counts as much as a few
 * observations.
 *
 * Classes.  A hit need not count the same for all: a name has one of three
 * classes of retention, and a hit in one counts as four in the class below.
 * The index is linear in what a job pays, so the worth of a block is V(a) times
 * that, exactly, and rates are learned over all classes together.  V falls with
 * age, so what is of a high class and stale still goes.  The class is that of
 * who used the name (advise.c): a use by an equal or a higher one sets it, each
 * RETAIN_LOWER'th of lower ones in a row takes it one down.  Classes are never
 * compared between domains.
 *
 * Generations.  Candidates of one class and tier, a kind, hang on lists by
 * generation, which is 64 units of time of their last use, 64 generations a
 * kind; what is older than all shares the oldest.  The oldest candidate of each
 * kind is compared, so a choice looks at 16 blocks for each class that is there,
 * however large the cache is.
 *
 * Advice (advise.c).  A name can have a lease: it hangs on a list of that
 * instead, and is no candidate before the lease is over, unless nothing else
 * is left.  Leases together hold a fixed share of a domain at most.  A name
 * can be cold: it is as old as can be from the start.
 *
 * Invariants (check.c walks them):
 *  - a block is on exactly one list if it is CACHED, else on none;
 *  - on a list of its lease, else of its kind and generation, if it has no
 *    kids on the device, else on the list of inner ones;
 *  - if a domain has a cached block, lru_next() names one: inner ones go when
 *    no leaf is left, which takes sequences that hold copies of their own.
 *
 * All state is kv_lru and the last words of kv_node.  What is seen and what
 * follows from it is worked out in worth.c; this file alone writes the rest.
 */
#include "kvmm/core/mem/mem.h"

#define UNIT_SHIFT	10	/* of the clock */
#define GEN_SHIFT	6	/* of units */
#define LEARN_MIN	256u	/* blocks entered between two times */
#define REFAULT_MAX	4096u	/* units: older is not known any more */
#define COLD_AGE	4096u	/* what is cold by advice begins with */
#define WEIGHT_SHIFT	2	/* a hit counts as four of the class below */

/* ---- time ---- */

/* The domain's time, in units. */
u32 lru_units(const struct kv_lru *l)
{
	return (u32)(l->clock >> UNIT_SHIFT);
}

/* ---- tiers ---- */

/* How much came in, for what was never found. */
static u8 fresh_class(u32 tokens)
{
	return tokens <= 512 ? 0 : tokens <= 2048 ? 1 : tokens <= 8192 ? 2 : 3;
}

static u32 node_tier(const struct kv_node *n)
{
	return lru_tier(n->hits, n->interval);
}

/* A list of generations is of one class and one tier. */
static u32 node_kind(const struct kv_node *n)
{
	return n->retain * LRU_NR_TIERS + node_tier(n);
}

static u32 node_age(const struct kv_lru *l, const struct kv_node *n)
{
	return lru_units(l) - n->stamp;
}

/* It was used after @age units. */
static void node_used(struct kv_node *n, u32 age)
{
	u32 now = lru_age_bucket(age) * 8;

	n->interval = (u8)(n->hits ? (n->interval + now) / 2 : now);
	if (n->hits < LRU_HITS_MAX)
		n->hits++;
}

/* By one of class @retain: it has the highest of its last few. */
static void node_used_by(struct kv_node *n, u32 retain)
{
	if (retain >= n->retain) {
		n->retain = retain & 3;
		n->lower = 0;
	} else if (n->lower < RETAIN_LOWER - 1) {
		n->lower++;
	} else {
		n->retain--;
		n->lower = 0;
	}
}

/* ---- lists ---- */

static struct kv_lru_list *gen_list(struct kv_lru *l, u32 kind, u32 gen)
{
	return &l->list[kind][gen % LRU_NR_GENS];
}

static void gen_is_used(struct kv_lru *l, u32 kind, u32 gen)
{
	l->used[kind] |= BIT_ULL(gen % LRU_NR_GENS);
	l->busy |= BIT_ULL(kind);
}

static void gen_is_empty(struct kv_lru *l, u32 kind, u32 gen)
{
	l->used[kind] &= ~BIT_ULL(gen % LRU_NR_GENS);
	if (!l->used[kind])
		l->busy &= ~BIT_ULL(kind);
}

/* Stamps wrap after 4 million times the cache, generations later still. */
static u32 node_gen(const struct kv_lru *l, const struct kv_node *n)
{
	u64 used = (l->clock >> UNIT_SHIFT) - node_age(l, n);
	u32 gen = (u32)(used >> GEN_SHIFT);

	return (s32)(gen - l->min_gen) < 0 ? l->min_gen : gen;
}

/* The oldest generation is one with the next from now on. */
static void gen_merge(struct core *c, struct kv_lru *l, u32 kind)
{
	struct kv_lru_list *from = gen_list(l, kind, l->min_gen);
	struct kv_lru_list *to = gen_list(l, kind, l->min_gen + 1);

	if (from->head == CORE_NONE)
		return;
	c->blocks[from->tail].next = to->head;
	if (to->head != CORE_NONE)
		c->blocks[to->head].prev = from->tail;
	else
		to->tail = from->tail;
	to->head = from->head;
	gen_is_used(l, kind, l->min_gen + 1);
	gen_is_empty(l, kind, l->min_gen);
	from->head = CORE_NONE;
	from->tail = CORE_NONE;
}

/* A block was entered: time goes on. */
static void lru_tick(struct core *c, struct kv_lru *l)
{
	u32 k;

	l->clock += l->step;
	while ((u32)(l->clock >> (UNIT_SHIFT + GEN_SHIFT)) - l->min_gen >=
	       LRU_NR_GENS) {
		for (k = 0; k < LRU_NR_KINDS; k++)
			gen_merge(c, l, k);
		l->min_gen++;
	}
	if (++l->nr_in < max(LEARN_MIN, (1u << 20) / l->step / 16))
		return;
	l->nr_in = 0;
	lru_learn(l, true);
}

static bool node_lease(const struct kv_node *n)
{
	return n->lease != LEASE_NONE && n->lease != LEASE_COLD;
}

/* On, or to go on, the list of a generation? */
static bool node_in_gen(const struct kv_node *n)
{
	return (n->flags & NODEF_LEAF) && !node_lease(n);
}

/* The list that a cached block is on, or is to go on. */
struct kv_lru_list *lru_list(const struct core *c, u32 blk)
{
	struct kv_lru *l = &c->lrus[c->blocks[blk].domain];
	const struct kv_node *n = &c->nodes[c->blocks[blk].node];

	if (n->flags & NODEF_INNER)
		return &l->inner;
	if (node_lease(n))
		return &l->lease[n->lease - 1].list;
	return gen_list(l, node_kind(n), node_gen(l, n));
}

/* Onto the list that is right for it; the next to go of that, if @first. */
static void list_put(struct core *c, u32 blk, bool first)
{
	struct kv_lru *l = &c->lrus[c->blocks[blk].domain];
	struct kv_node *n = &c->nodes[c->blocks[blk].node];
	struct kv_lru_list *list;

	n->flags = index_kid_on_device(c, c->blocks[blk].node) ? NODEF_INNER :
								 NODEF_LEAF;
	list = lru_list(c, blk);
	if (!first || list->head == CORE_NONE) {
		list_add_tail_idx(c->blocks, list->head, list->tail, blk);
	} else {
		c->blocks[blk].prev = CORE_NONE;
		c->blocks[blk].next = list->head;
		c->blocks[list->head].prev = blk;
		list->head = blk;
	}
	if (!node_in_gen(n))
		return;
	gen_is_used(l, node_kind(n), node_gen(l, n));
	l->nr[node_kind(n)]++;
}

/* A block is no more cached, or goes. */
void lru_del(struct core *c, u32 blk)
{
	struct kv_lru *l = &c->lrus[c->blocks[blk].domain];
	struct kv_node *n = &c->nodes[c->blocks[blk].node];
	struct kv_lru_list *list = lru_list(c, blk);

	list_del_idx(c->blocks, list->head, list->tail, blk);
	if (node_in_gen(n))
		l->nr[node_kind(n)]--;
	if (node_in_gen(n) && list->head == CORE_NONE)
		gen_is_empty(l, node_kind(n), node_gen(l, n));
	n->flags = 0;
}

/* A block is cached from now on: nobody maps it any more. */
void lru_add(struct core *c, u32 blk)
{
	struct kv_node *n = &c->nodes[c->blocks[blk].node];

	n->stamp = lru_units(&c->lrus[c->blocks[blk].domain]);
	if (n->lease == LEASE_COLD)
		n->stamp -= min(n->stamp, COLD_AGE);
	list_put(c, blk, false);
}

/* The kids of a name came or went: is its block a candidate? */
void lru_settle(struct core *c, u32 node)
{
	u32 flags = c->nodes[node].flags, blk = c->nodes[node].ref;

	if (!flags || !(flags & NODEF_INNER) == !index_kid_on_device(c, node))
		return;
	lru_del(c, blk);
	list_put(c, blk, true);
}

/* ---- advice ---- */

static void lease_put(struct kv_lru *l, struct kv_node *n)
{
	if (node_lease(n)) {
		l->lease[n->lease - 1].nr--;
		l->nr_kept--;
	}
	n->lease = LEASE_NONE;
}

/* A lease that ends then, or an unused one; LRU_NR_LEASES: there is none. */
static u32 lease_find(const struct kv_lru *l, u64 until)
{
	u32 i, unused = LRU_NR_LEASES;

	for (i = 0; i < LRU_NR_LEASES; i++) {
		if (l->lease[i].nr && l->lease[i].until == until)
			return i;
		if (!l->lease[i].nr)
			unused = i;
	}
	return unused;
}

/**
 * lru_keep() - a name that is in use is to go after all without a lease
 * @until: ns; until then
 *
 * What comes before a name cannot go before it, so that must be kept too; then
 * leases count all that is kept, and that is a share of the domain at most.
 * Return: whether it is kept, until then or longer.
 */
bool lru_keep(struct core *c, u32 node, u64 until)
{
	struct kv_node *n = &c->nodes[node];
	u32 dom = index_domain(c, n->ref), i;
	struct kv_lru *l = &c->lrus[dom];

	KV_BUG_ON(n->flags);
	if (node_lease(n) && l->lease[n->lease - 1].until >= until)
		return true;
	lease_put(l, n);
	i = lease_find(l, until);
	if (i == LRU_NR_LEASES || l->nr_kept >=
	    domain_capacity(c, &c->domains[dom]) / LRU_KEEP_SHARE)
		return false;
	l->lease[i].until = until;
	l->lease[i].nr++;
	l->nr_kept++;
	n->lease = (u8)(i + 1);
	return true;
}

/* A name that is in use is worth nothing, and nothing is learned from it. */
void lru_chill(struct core *c, u32 node)
{
	struct kv_node *n = &c->nodes[node];

	KV_BUG_ON(n->flags);
	lease_put(&c->lrus[index_domain(c, n->ref)], n);
	n->lease = LEASE_COLD;
	n->retain = RETAIN_LOW;
	n->lower = 0;
}

/**
 * lru_retain() - of which class the use of a name was, as it turns out
 * @own: nobody else has used it: then it may be a lower one
 */
void lru_retain(struct core *c, u32 node, u32 retain, bool own)
{
	struct kv_node *n = &c->nodes[node];

	KV_BUG_ON(n->flags);		/* it is mapped */
	if (n->lease != LEASE_COLD && (own || retain > n->retain)) {
		n->retain = retain & 3;
		n->lower = 0;
	}
}

/* ---- names come, are used, and go ---- */

/* A name that is in use was there before. */
static void came_back(struct core *c, struct kv_node *n,
		      const struct kv_told *was)
{
	core_count(c, CORE_EV_workingset_refault, 1);
	if (was->age > REFAULT_MAX || n->flags)
		return;
	core_count(c, CORE_EV_workingset_activate, 1);
	n->hits = was->hits;
	n->interval = was->interval;
	node_used(n, was->age);
}

/**
 * lru_enter() - a name is entered into the index
 * @fresh:  tokens that came in with it
 * @retain: class of who computed it
 *
 * Return: whether it was there before, as far as is known.
 */
bool lru_enter(struct core *c, u32 node, u32 fresh, u32 retain)
{
	struct kv_node *n = &c->nodes[node];
	u32 dom = c->blocks[n->ref].domain;
	struct kv_lru *l = &c->lrus[dom];
	const struct kv_told *was;
	u32 nr;

	lru_tick(c, l);
	n->interval = fresh_class(fresh);
	n->retain = retain & 3;
	n->stamp = lru_units(l);
	was = lru_ghost_take(c, dom, node, &nr);
	if (!was)
		return false;
	for (;; n = &c->nodes[n->parent]) {
		came_back(c, n, was);
		if (!--nr)
			return true;
	}
}

/* A name was found, for one of class @retain. */
void lru_hit(struct core *c, u32 node, u32 retain)
{
	struct kv_node *n = &c->nodes[node];
	struct kv_lru *l;
	u32 age;

	if (node == CORE_NONE)
		return;
	KV_BUG_ON(n->flags);		/* it is mapped */
	l = &c->lrus[index_domain(c, n->ref)];
	age = node_age(l, n);
	if (n->lease != LEASE_COLD)
		lru_observe(l, node_tier(n), 0, lru_age_bucket(age), true, 1);
	node_used(n, age);
	node_used_by(n, retain);
	n->stamp = lru_units(l);
	if (!node_lease(n) || l->lease[n->lease - 1].until <= c->now)
		lease_put(l, n);
}

/* A name goes: it was not used for as long as it is old. */
void lru_leave(struct core *c, u32 node)
{
	struct kv_node *n = &c->nodes[node];
	struct kv_lru *l = &c->lrus[index_domain(c, n->ref)];
	u32 left = lru_age_bucket(node_age(l, n));

	if (l->told.node == node)
		l->told.node = CORE_NONE;
	if (n->lease == LEASE_COLD)
		return;
	lease_put(l, n);
	lru_observe(l, node_tier(n), 0, left, false, 1);
	lru_ghost_add(c, node, left);
}

/* ---- choice ---- */

/* The oldest candidate of a kind. */
static u32 kind_oldest(const struct kv_lru *l, u32 kind)
{
	u32 at = l->min_gen % LRU_NR_GENS;
	u64 used = l->used[kind];

	if (!used)
		return CORE_NONE;
	used = used >> at | used << ((LRU_NR_GENS - at) % LRU_NR_GENS);
	at = (at + (u32)__builtin_ctzll(used)) % LRU_NR_GENS;
	return l->list[kind][at].head;
}

/* What a name is worth now: its rate of hits, by what one of them counts. */
static u64 node_worth(const struct kv_lru *l, const struct kv_node *n)
{
	return (u64)lru_value(l, node_tier(n), node_age(l, n)) <<
	       WEIGHT_SHIFT * n->retain;
}

/* A candidate that is worth less than @least takes the place of @best. */
static void compare(const struct core *c, const struct kv_lru *l, u32 blk,
		    u32 *best, u64 *least)
{
	u64 worth;

	if (blk == CORE_NONE)
		return;
	worth = node_worth(l, &c->nodes[c->blocks[blk].node]);
	if (worth < *least) {
		*least = worth;
		*best = blk;
	}
}

/* What is kept goes when nothing else is left, whose time is over first. */
static u32 lease_next(const struct kv_lru *l)
{
	u32 i, blk = CORE_NONE;
	u64 first = ~0ull;

	for (i = 0; i < LRU_NR_LEASES; i++)
		if (l->lease[i].list.head != CORE_NONE &&
		    l->lease[i].until <= first) {
			first = l->lease[i].until;
			blk = l->lease[i].list.head;
		}
	return blk;
}

/**
 * lru_next() - the cached block of a domain that goes next
 * Return: CORE_NONE when it has none.
 */
u32 lru_next(const struct core *c, u32 dom)
{
	const struct kv_lru *l = &c->lrus[dom];
	u64 least = ~0ull, busy;
	u32 i, best = CORE_NONE;

	for (busy = l->busy; busy; busy &= busy - 1)
		compare(c, l, kind_oldest(l, (u32)__builtin_ctzll(busy)), &best,
			&least);
	for (i = 0; i < LRU_NR_LEASES && l->nr_kept; i++)
		if (l->lease[i].until <= c->now)
			compare(c, l, l->lease[i].list.head, &best, &least);
	if (best == CORE_NONE)
		best = lease_next(l);
	return best == CORE_NONE ? l->inner.head : best;
}

/* About what goes after @blk, for who wants to prepare a few. */
u32 lru_after(const struct core *c, u32 blk)
{
	const struct kv_lru *l = &c->lrus[c->blocks[blk].domain];
	const struct kv_node *n = &c->nodes[c->blocks[blk].node];
	u32 gen, k = node_kind(n);

	if (c->blocks[blk].next != CORE_NONE || !node_in_gen(n))
		return c->blocks[blk].next;
	for (gen = node_gen(l, n) + 1; gen != l->min_gen + LRU_NR_GENS; gen++)
		if (l->used[k] & BIT_ULL(gen % LRU_NR_GENS))
			return l->list[k][gen % LRU_NR_GENS].head;
	return CORE_NONE;
}

/* One tier: the candidate that would go first, of whatever class. */
static void view_tier(const struct core *c, const struct kv_lru *l, u32 t,
		      struct core_lru_view *v)
{
	u32 k, r, age, blk = CORE_NONE;
	u64 least = ~0ull;

	v->tier[t].found = t / LRU_TIER_FOUND == 3 ? 4 : t / LRU_TIER_FOUND;
	v->tier[t].class = t % LRU_TIER_FOUND;
	for (r = 0; r < RETAIN_NR; r++) {
		k = r * LRU_NR_TIERS + t;
		v->tier[t].nr += l->nr[k];
		compare(c, l, kind_oldest(l, k), &blk, &least);
	}
	v->tier[t].low = l->nr[RETAIN_LOW * LRU_NR_TIERS + t];
	v->tier[t].high = l->nr[RETAIN_HIGH * LRU_NR_TIERS + t];
	if (blk == CORE_NONE)
		return;
	age = node_age(l, &c->nodes[c->blocks[blk].node]);
	v->tier[t].oldest = (u32)((u64)age * 100 / 1024);
	v->tier[t].worth = (u32)(least * 1000 >>
		(LRU_WORTH_SHIFT - UNIT_SHIFT + WEIGHT_SHIFT * RETAIN_NORMAL));
}

/**
 * core_get_lru() - the order of a domain's cache, for people
 * Return: 0; -ENOENT: no such domain.
 */
int core_get_lru(const struct core *c, u32 dom, struct core_lru_view *v)
{
	const struct kv_lru *l = &c->lrus[dom];
	u32 t;

	static_assert(CORE_LRU_TIERS == LRU_NR_TIERS, "one line a tier");
	memset(v, 0, sizeof(*v));
	if (dom >= core_cfg(c)->max_domains || !c->domains[dom].used)
		return -ENOENT;
	for (t = 0; t < LRU_NR_TIERS; t++)
		view_tier(c, l, t, v);
	return 0;
}

/* A new domain. */
void lru_init(struct core *c, u32 dom)
{
	struct kv_lru *l = &c->lrus[dom];
	u32 k, g;

	memset(l, 0, sizeof(*l));
	/* None: a domain whose spans are longer than the pool is just now. */
	l->step = max((1u << 20) /
		      max(domain_capacity(c, &c->domains[dom]), 1u), 1u);
	l->inner.head = CORE_NONE;
	l->inner.tail = CORE_NONE;
	for (k = 0; k < LRU_NR_LEASES; k++)
		l->lease[k].list = l->inner;
	for (k = 0; k < LRU_NR_KINDS; k++)
		for (g = 0; g < LRU_NR_GENS; g++) {
			l->list[k][g].head = CORE_NONE;
			l->list[k][g].tail = CORE_NONE;
		}
	lru_learn(l, false);
	lru_ghost_forget(c, dom);
}
