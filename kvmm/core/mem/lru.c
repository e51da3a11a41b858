// SPDX-License-Identifier: Apache-2.0
/*
 * lru.c - the order in which cached blocks are evicted
 *
 * The cache of a domain is a tree of prefixes (index.c).  A block is found only
 * by way of all blocks before it.  So only leaves are candidates for eviction:
 * blocks that no sequence maps and that have no children on the device.  When
 * its last child is evicted, the parent becomes a candidate.  The leaf of the
 * least value is evicted first, and the value is measured, not assumed.
 *
 * Time.  A domain's clock counts the blocks that are entered into its index,
 * because that is how fast memory is needed: while every lookup hits, the clock
 * stands still.  A unit of it is 1/1024 of the blocks that the domain could
 * hold.  An age is the number of units since a name was last used.  At an age of
 * 1024 as many blocks were entered as the domain could hold.  Ages fall into
 * buckets, two for each power of two.
 *
 * Tiers.  The history of a name puts it into one of 16 tiers.  Names that were
 * never found again have a tier by the number of tokens that came in with them,
 * so that a long prompt is told from the next turn of a chat.  Names that were
 * found once, two or three times, or more often have a tier by this and by the
 * smoothed interval between their uses.
 *
 * Refault distance.  A name that is evicted leaves a ghost behind (ghost.c).
 * If it is entered again at clock R, and its last use was at U, then R - U is
 * the age at which a larger cache would have found it.  That is an observation
 * like any hit, at an age that the cache itself never sees.
 *
 *	        used          evicted               entered again
 *	---------U---------------E----------------------R-------> clock
 *	          <-- resident --><------- ghost ------->
 *	          at risk from 0     at risk from E - U
 *	          to E - U: no hit   to R - U: hit
 *
 * Value.  For each tier and bucket the domain counts how long names were at
 * risk there, resident or as ghosts, and how many of them were used.  The
 * quotient is the rate h(age) of hits a block and unit.  The value of a block at
 * age a is the best mean rate that keeping it for some time would have:
 *
 *	V(a) = max over b >= a of  sum R(x), x = a..b  /  sum T(x), x = a..b
 *
 * where R(x) is the probability that its hit comes in bucket x and T(x) the
 * time that it would be kept there.  (This is Gittins' index of a job that
 * pays at its end.)  If h falls with age, V is h.  If h rises first, as it does
 * with the pause between the turns of a chat, V looks ahead.  Counts decay, so
 * that old observations lose their weight.  Before anything is known, h is taken
 * for k / (a + i), where i is the interval and k is larger for names that were
 * found more often.  This prior counts as much as a few observations.
 *
 * Classes.  Hits need not have the same weight: a name has one of three
 * retention classes, and a hit in one class counts as four in the class below.
 * Gittins' index is linear in the pay of a job, so the value of a block is V(a)
 * times this weight, exactly, and rates are learned over all classes together.
 * V falls with age, so stale names of a high class are evicted, too.  The class
 * of a name follows its users (advise.c): a use by an equal or higher class sets
 * it, and every RETAIN_LOWER'th use in a row by lower classes lowers it by one.
 * Classes are never compared between domains.
 *
 * Generations.  The candidates of one class and tier, a kind, are on lists by
 * generation.  A generation is 64 units of time of the last use, and a kind has
 * 64 generations; the oldest one takes all older names.  Eviction compares the
 * oldest candidate of each kind.  So it looks at 16 blocks for each class in
 * use, however large the cache is.
 *
 * Advice (advise.c).  A name can have a term, which ends at a certain time.  Then it is
 * on the list of the term, and is no candidate until the term ends, unless nothing
 * else is left.  Terms together cover at most a fixed part of a domain.  A name can be
 * cold: then it has the highest age from the start.
 *
 * Invariants (check.c verifies them):
 *  - a block is on exactly one list if it is CACHED, else on none;
 *  - a block with children on the device is on the list of inner blocks; any
 *    other is on the list of its term, else of its kind and generation;
 *  - if a domain has a cached block, lru_next() names one.  Inner blocks are
 *    evicted when no leaf is left.  That can only be where sequences hold other
 *    copies of the same content.
 *
 * All state is in kv_lru and the last words of kv_node.  worth.c computes the
 * observations and the values; only this file writes the rest.
 */
#include "kvmm/core/mem/mem.h"

#define UNIT_SHIFT	10	/* clock ticks of a unit, as a power of two */
#define GEN_SHIFT	6	/* units of a generation, as a power of two */
#define LEARN_MIN	256u	/* least number of blocks entered between two computations */
#define REFAULT_MAX	4096u	/* in units: an older history is not used */
#define COLD_AGE	4096u	/* age of a name that is cold by advice */
#define WEIGHT_SHIFT	2	/* a hit counts as four of the class below */

/* ---- time ---- */

/* The domain's time, in units. */
u32 lru_units(const struct kv_lru *l)
{
	return (u32)(l->clock >> UNIT_SHIFT);
}

/* ---- tiers ---- */

#define FRESH_LAST	3u	/* the last tier of names that were never found */

/* The tier of a name that was never found, by the tokens that came with it. */
static u8 fresh_class(u32 tokens)
{
	return tokens <= 512 ? 0 : tokens <= 2048 ? 1 : tokens <= 8192 ? 2 : FRESH_LAST;
}

static u32 node_tier(const struct kv_node *n)
{
	return lru_tier(n->hits, n->interval);
}

/* Each kind, a class and a tier, has its own lists of generations. */
static u32 node_kind(const struct kv_node *n)
{
	return n->retain * LRU_NR_TIERS + node_tier(n);
}

static u32 node_age(const struct kv_lru *l, const struct kv_node *n)
{
	return lru_units(l) - n->stamp;
}

/* The time since its last use: a lookup is none, though the order counts it. */
static u32 use_age(const struct kv_lru *l, const struct kv_node *n)
{
	return node_age(l, n) + lru_age_start(n->asked);
}

/* A name is used at an age of @age units: update its history. */
static void node_used(struct kv_node *n, u32 age)
{
	u32 now = lru_age_bucket(age) * 8;

	n->interval = (u8)(n->hits ? (n->interval + now) / 2 : now);
	if (n->hits < LRU_HITS_MAX)
		n->hits++;
}

/* It is used by a sequence of class @retain: update its class. */
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

/* Stamps wrap after 4 million times the cache, generations still later. */
static u32 node_gen(const struct kv_lru *l, const struct kv_node *n)
{
	u64 used = (l->clock >> UNIT_SHIFT) - node_age(l, n);
	u32 gen = (u32)(used >> GEN_SHIFT);

	return (s32)(gen - l->min_gen) < 0 ? l->min_gen : gen;
}

/* Prepend the oldest generation to the next one. */
static void gen_merge(struct core *c, struct kv_lru *l, u32 kind)
{
	struct kv_lru_list *from = gen_list(l, kind, l->min_gen);
	struct kv_lru_list *to = gen_list(l, kind, l->min_gen + 1);

	if (from->head == CORE_NONE)
		return;
	KV_BUG_ON(c->blocks[from->tail].next != CORE_NONE);
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

/* A block was entered: advance the clock. */
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

static bool node_term(const struct kv_node *n)
{
	return n->term != TERM_NONE && n->term != TERM_COLD;
}

/* Is the block on, or to be put on, the list of a generation? */
static bool node_in_gen(const struct kv_node *n)
{
	return (n->flags & NODEF_LEAF) && !node_term(n);
}

static inline struct kv_lru_list *list_of(struct kv_lru *l,
					  const struct kv_node *n)
{
	if (n->flags & NODEF_INNER)
		return &l->inner;
	if (node_term(n))
		return &l->term[n->term - 1].list;
	return gen_list(l, node_kind(n), node_gen(l, n));
}

/* The list that a cached block is on, or is to be put on. */
struct kv_lru_list *lru_list(const struct core *c, u32 blk)
{
	return list_of(&c->lrus[c->blocks[blk].domain],
		       &c->nodes[c->blocks[blk].node]);
}

/*
 * Put a block on the right list; with @first it is evicted first of that list.
 */
static void list_put(struct core *c, u32 blk, bool first)
{
	struct kv_lru *l = &c->lrus[c->blocks[blk].domain];
	struct kv_node *n = &c->nodes[c->blocks[blk].node];
	struct kv_lru_list *list;
	bool empty;

	n->flags = index_kid_on_device(c, c->blocks[blk].node) ? NODEF_INNER :
								 NODEF_LEAF;
	list = list_of(l, n);
	empty = list->head == CORE_NONE;
	if (!first || empty) {
		list_add_tail_idx(c->blocks, list->head, list->tail, blk);
	} else {
		c->blocks[blk].prev = CORE_NONE;
		c->blocks[blk].next = list->head;
		c->blocks[list->head].prev = blk;
		list->head = blk;
	}
	if (!node_in_gen(n))
		return;
	if (empty)
		gen_is_used(l, node_kind(n), node_gen(l, n));
	l->nr[node_kind(n)]++;
}

/* A block is no longer cached, or is about to be evicted. */
void lru_del(struct core *c, u32 blk)
{
	struct kv_lru *l = &c->lrus[c->blocks[blk].domain];
	struct kv_node *n = &c->nodes[c->blocks[blk].node];
	struct kv_lru_list *list = list_of(l, n);

	list_del_idx(c->blocks, list->head, list->tail, blk);
	if (node_in_gen(n))
		l->nr[node_kind(n)]--;
	if (node_in_gen(n) && list->head == CORE_NONE)
		gen_is_empty(l, node_kind(n), node_gen(l, n));
	n->flags = 0;
}

/* A block becomes cached: its last mapping is gone. */
void lru_add(struct core *c, u32 blk)
{
	struct kv_node *n = &c->nodes[c->blocks[blk].node];

	KV_BUG_ON(n->flags || n->ref != blk);
	n->stamp = lru_units(&c->lrus[c->blocks[blk].domain]);
	n->asked = 0;
	if (n->term == TERM_COLD)
		n->stamp -= min(n->stamp, COLD_AGE);
	list_put(c, blk, false);
}

/**
 * lru_touch() - a name was asked for, but not used
 *
 * A cached block becomes the youngest of its list, as if its last mapping were gone
 * now: it stays on the list of its term, and a cold one stays cold.  It is no hit, so
 * nothing is learned, and the age that the next hit learns goes on (kv_node.asked).  A
 * block that is mapped needs nothing: it gets its stamp when its last mapping is gone,
 * and until then lru_hit() needs the time of its last use.
 */
void lru_touch(struct core *c, u32 node)
{
	u32 blk = c->nodes[node].ref, age;

	if (!c->nodes[node].flags)
		return;
	KV_BUG_ON(blk & REF_ENTRY);
	age = lru_age_bucket(use_age(&c->lrus[c->blocks[blk].domain],
				     &c->nodes[node]));
	lru_del(c, blk);
	lru_add(c, blk);
	if (c->nodes[node].term != TERM_COLD)
		c->nodes[node].asked = age & 31;
}

/*
 * lru_pass() - a sequence has a later full record than the one with this name
 *
 * Most hits end at the last record of a sequence.  So an earlier one that was never found
 * has the tier of names that came with very long prompts.  What it learns is its own: where
 * records are passed, few names have that tier for another reason.
 */
void lru_pass(struct core *c, u32 node)
{
	struct kv_node *n = &c->nodes[node];
	bool listed = n->flags;
	u32 blk = n->ref;

	if (n->hits || n->interval == FRESH_LAST)
		return;
	if (listed)
		lru_del(c, blk);
	n->interval = FRESH_LAST;
	if (listed)
		list_put(c, blk, false);
}

/* The children of a name changed: is its block a candidate now? */
void lru_settle(struct core *c, u32 node)
{
	u32 flags = c->nodes[node].flags, blk = c->nodes[node].ref;

	if (!flags || !(flags & NODEF_INNER) == !index_kid_on_device(c, node))
		return;
	KV_BUG_ON(blk & REF_ENTRY);
	lru_del(c, blk);
	list_put(c, blk, true);
}

/* ---- advice ---- */

static void term_put(struct kv_lru *l, struct kv_node *n)
{
	if (node_term(n)) {
		KV_BUG_ON(n->term > LRU_NR_TERMS || !l->nr_kept);
		KV_BUG_ON(!l->term[n->term - 1].nr);
		l->term[n->term - 1].nr--;
		l->nr_kept--;
	}
	n->term = TERM_NONE;
}

/* A term until @until, or an unused one; LRU_NR_TERMS: there is none. */
static u32 term_find(const struct kv_lru *l, u64 until)
{
	u32 i, unused = LRU_NR_TERMS;

	for (i = 0; i < LRU_NR_TERMS; i++) {
		if (l->term[i].nr && l->term[i].until == until)
			return i;
		if (!l->term[i].nr)
			unused = i;
	}
	return unused;
}

/**
 * lru_keep() - give a name that is in use a term
 * @until: end of the term, in ns
 *
 * The prefixes of a name cannot be evicted before it, so the caller gives them
 * terms, too.  Then the number of terms counts all kept blocks, and is at most
 * a fixed part of the domain.
 * Return: whether the name has a term until then or longer.
 */
bool lru_keep(struct core *c, u32 node, u64 until)
{
	struct kv_node *n = &c->nodes[node];
	u32 dom = index_domain(c, n->ref), i;
	struct kv_lru *l = &c->lrus[dom];

	KV_BUG_ON(n->flags);
	if (node_term(n) && l->term[n->term - 1].until >= until)
		return true;
	term_put(l, n);
	i = term_find(l, until);
	if (i == LRU_NR_TERMS || l->nr_kept >=
	    domain_capacity(c, &c->domains[dom]) / LRU_KEEP_SHARE)
		return false;
	KV_BUG_ON(!l->term[i].nr && l->term[i].list.head != CORE_NONE);
	l->term[i].until = until;
	l->term[i].nr++;
	l->nr_kept++;
	n->term = (u8)(i + 1);
	return true;
}

/* Make a name that is in use cold; nothing is learned from it. */
void lru_chill(struct core *c, u32 node)
{
	struct kv_node *n = &c->nodes[node];

	KV_BUG_ON(n->flags);
	term_put(&c->lrus[index_domain(c, n->ref)], n);
	n->term = TERM_COLD;
	n->retain = RETAIN_LOW;
	n->lower = 0;
}

/**
 * lru_retain() - correct the retention class of a name that is in use
 * @own: no other sequence has used the name: the class may be lowered, too
 */
void lru_retain(struct core *c, u32 node, u32 retain, bool own)
{
	struct kv_node *n = &c->nodes[node];

	KV_BUG_ON(n->flags);		/* not on a list: mapped */
	if (n->term != TERM_COLD && (own || retain > n->retain)) {
		n->retain = retain & 3;
		n->lower = 0;
	}
}

/* ---- names are entered, used and dropped ---- */

/* A name that is in use was in the index before. */
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
 * @retain: retention class of the sequence that computed it
 *
 * Return: true when a ghost says that the name had been in the index before.
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
		KV_BUG_ON(n->parent == CORE_NONE);
	}
}

/* A lookup of a sequence of class @retain found the name. */
void lru_hit(struct core *c, u32 node, u32 retain)
{
	struct kv_node *n = &c->nodes[node];
	struct kv_lru *l;
	u32 age;

	if (node == CORE_NONE)
		return;
	KV_BUG_ON(n->flags);		/* not on a list: mapped */
	l = &c->lrus[index_domain(c, n->ref)];
	age = use_age(l, n);
	if (n->term != TERM_COLD)
		lru_observe(l, node_tier(n), 0, lru_age_bucket(age), true, 1);
	node_used(n, age);
	node_used_by(n, retain);
	n->asked = 0;
	n->stamp = lru_units(l);
	if (!node_term(n) || l->term[n->term - 1].until <= c->now)
		term_put(l, n);
}

/* A name leaves the index: it was not used for its whole age. */
void lru_leave(struct core *c, u32 node)
{
	struct kv_node *n = &c->nodes[node];
	struct kv_lru *l = &c->lrus[index_domain(c, n->ref)];
	u32 left = lru_age_bucket(use_age(l, n));

	KV_BUG_ON(n->flags);		/* not on a list any more */
	if (l->told.node == node)
		l->told.node = CORE_NONE;
	if (n->term == TERM_COLD)
		return;
	term_put(l, n);
	lru_observe(l, node_tier(n), 0, left, false, 1);
	lru_ghost_add(c, node, left);
}

/* Was @node last used before @than, a name of the same domain, or with it? */
bool lru_is_older(const struct core *c, u32 node, u32 than)
{
	return (s32)(c->nodes[than].stamp - c->nodes[node].stamp) >= 0;
}

/* ---- choice of the next block ---- */

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

/* The value of a name now: its rate of hits times the weight of its class. */
static u64 node_worth(const struct kv_lru *l, const struct kv_node *n)
{
	return (u64)lru_value(l, node_tier(n), node_age(l, n)) <<
	       WEIGHT_SHIFT * n->retain;
}

/* Make @blk the @best candidate if its value is below @least. */
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

/* Blocks with a term are evicted last, in the order in which terms end. */
static u32 term_next(const struct kv_lru *l)
{
	u32 i, blk = CORE_NONE;
	u64 first = ~0ull;

	for (i = 0; i < LRU_NR_TERMS; i++)
		if (l->term[i].list.head != CORE_NONE &&
		    l->term[i].until <= first) {
			first = l->term[i].until;
			blk = l->term[i].list.head;
		}
	return blk;
}

/**
 * lru_next() - the cached block of a domain that is to be evicted next
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
	for (i = 0; i < LRU_NR_TERMS && l->nr_kept; i++)
		if (l->term[i].until <= c->now)
			compare(c, l, l->term[i].list.head, &best, &least);
	if (best == CORE_NONE)
		best = term_next(l);
	return best == CORE_NONE ? l->inner.head : best;
}

/* The block evicted after @blk, approximately: to prepare several blocks. */
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

/* The first block from @blk on that @fits, in one list. */
static u32 list_search(const struct core *c, u32 blk,
		       bool (*fits)(const struct core *c, u32 blk))
{
	while (blk != CORE_NONE && !fits(c, blk))
		blk = c->blocks[blk].next;
	return blk;
}

/**
 * lru_search() - a cached block of a domain that @fits, roughly the next one to evict
 *
 * Looks at every cached block where lru_after() stays within one kind.
 * Return: CORE_NONE when none fits.
 */
u32 lru_search(const struct core *c, u32 dom,
	       bool (*fits)(const struct core *c, u32 blk))
{
	const struct kv_lru *l = &c->lrus[dom];
	u32 blk = CORE_NONE, k, gen, i;

	for (k = 0; k < LRU_NR_KINDS && blk == CORE_NONE; k++)
		for (gen = l->min_gen; gen != l->min_gen + LRU_NR_GENS &&
		     l->used[k] && blk == CORE_NONE; gen++)
			if (l->used[k] & BIT_ULL(gen % LRU_NR_GENS))
				blk = list_search(c, l->list[k][gen % LRU_NR_GENS]
						  .head, fits);
	for (i = 0; i < LRU_NR_TERMS && blk == CORE_NONE; i++)
		blk = list_search(c, l->term[i].list.head, fits);
	return blk == CORE_NONE ? list_search(c, l->inner.head, fits) : blk;
}

/* One tier: the candidate of any class that would be evicted first. */
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
 * core_get_lru() - the candidates of each tier of a domain's cache, and the next victim
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
	/* The capacity is 0 if a span is longer than the pool is now. */
	l->step = max((1u << 20) /
		      max(domain_capacity(c, &c->domains[dom]), 1u), 1u);
	l->inner.head = CORE_NONE;
	l->inner.tail = CORE_NONE;
	for (k = 0; k < LRU_NR_TERMS; k++)
		l->term[k].list = l->inner;
	for (k = 0; k < LRU_NR_KINDS; k++)
		for (g = 0; g < LRU_NR_GENS; g++) {
			l->list[k][g].head = CORE_NONE;
			l->list[k][g].tail = CORE_NONE;
		}
	lru_learn(l, false);
	lru_ghost_forget(c, dom);
}
