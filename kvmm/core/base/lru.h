/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lru.h - names of the prefix index, their order, and their ghosts
 *
 * Records of the arena (records.h); the theory is in lru.c.
 */
#ifndef KVMM_CORE_LRU_H
#define KVMM_CORE_LRU_H

#include <kvmm/types.h>

struct core;

/* ---- the prefix index: a tree of names, and their order ---- */

#define LRU_NR_AGES	32u

#define NODEF_LEAF	BIT(0)	/* cached, on a list of its generation */
#define NODEF_INNER	BIT(1)	/* cached, and has children on the device */

/**
 * struct kv_node - a name in the index: a prefix that some tier has
 * @parent:   node of the prefix that is one block shorter; CORE_NONE: none
 * @kid:      first of its children; those on the device come first
 * @prev, @next: circle of its parent's children, or of the domain's roots
 * @ref:      holder of the content: a block, or REF_ENTRY and an entry
 * @stamp:    time of its last use or lookup, in units of its domain's lru_units()
 * @asked:    age bucket that it had at the last lookup since its last use
 * @hits:     times it was found, at most LRU_HITS_MAX
 * @interval: smoothed time between its uses, see lru.c; while @hits is 0: class
 *            of the number of tokens that came in with it
 * @retain:   its retention class, RETAIN_*
 * @lower:    uses by lower classes since the last use by this class or a higher
 * @term:     number of its term, from 1; TERM_NONE; TERM_COLD
 */
struct kv_node {
	u32	parent;
	u32	kid;
	u32	prev;
	u32	next;
	u32	ref;
	u32	stamp;
	u8	hits   : 4;
	u8	retain : 2;
	u8	lower  : 2;
	u8	interval;
	u8	flags : 3;
	u8	asked : 5;
	u8	term;
};
static_assert(LRU_NR_AGES <= 32, "kv_node.asked has five bits");
static_assert(sizeof(struct kv_node) == 28, "with a block's 76 bytes");

/**
 * struct kv_ghost - a name that was in the index, see ghost.c
 * @tag:    part of the name's hash
 * @stamp:  kv_node.stamp, in steps of GHOST_STEP
 * @domain: GHOST_UNUSED: the record is unused
 * @left:   age bucket in which the name left the index
 * @hits, @interval: as in its node
 */
struct kv_ghost {
	u16	tag;
	u16	stamp;
	u16	domain;
	u8	left : 5;
	u8	hits : 3;
	u8	interval;
};
static_assert(sizeof(struct kv_ghost) == 8, "a set is a cache line");

#define GHOST_UNUSED	0xffffu

#define RETAIN_LOW	0u
#define RETAIN_NORMAL	1u
#define RETAIN_HIGH	2u
#define RETAIN_NR	3u
#define RETAIN_LOWER	4u	/* uses by lower classes that lower a name's class by one */

#define SEQ_RETAINS	4u	/* ranges of a sequence that can have a class */

/**
 * struct kv_retain - the tokens from @from up to @to - 1 have a class by advice
 * @retain: KVMM_RETAIN_*
 */
struct kv_retain {
	u32	from;
	u32	to;
	u32	retain;
};

#define LRU_NR_TIERS	16u
#define LRU_NR_KINDS	(RETAIN_NR * LRU_NR_TIERS)
#define LRU_NR_GENS	64u
#define LRU_HITS_MAX	7u
#define LRU_KEEP_SHARE	4u
#define LRU_TIER_FOUND	4u	/* first tier of names that were found */
#define LRU_WORTH_SHIFT	24	/* scale of a value: one hit of a block in a unit of time */
#define GHOST_WAYS	8u
#define GHOST_STEP	4u	/* in units */
#define GHOST_SAMPLE	4u	/* one of so many names is remembered */

struct kv_lru_list {
	u32	head;
	u32	tail;
};

#define LRU_NR_TERMS	16u	/* different ends of terms in a domain */
#define TERM_NONE	0u
#define TERM_COLD	0xffu	/* by advice the name has no value */

/**
 * struct kv_term - names that are kept until a certain time
 * @until: ns
 * @nr:    names with this term, cached or not; 0: the term is unused
 * @list:  cached blocks among them that could be evicted
 */
struct kv_term {
	u64			until;
	u32			nr;
	struct kv_lru_list	list;
};

/**
 * struct kv_told - knowledge from ghosts about names entered one after another
 * @node:  the last name of the run; CORE_NONE: it left the index
 * @told:  one name of the run was sampled
 * @open:  names of the run before the first sampled one
 * @known: the last sampled name was a ghost; then:
 * @age:   units since the ghost's last use
 * @hits, @interval: of the ghost
 */
struct kv_told {
	u32	node;
	u32	open;
	u32	age;
	u8	known;
	u8	hits;
	u8	interval;
	u8	told;
};

/**
 * struct kv_lru - the order in which a domain's cache is evicted, see lru.c
 * @clock:   raised by @step for each block that is entered into the index
 * @step:    2^20 / blocks that the domain could have
 * @min_gen: oldest generation
 * @nr_in:   blocks entered since @value was last computed
 * @nr_kept: names with a term, at most 1/LRU_KEEP_SHARE of the domain
 * @inner:   cached blocks with children on the device
 * @busy:    bit set of the kinds (class and tier) that have blocks
 * @used:    for each kind, generations that have blocks: bit (generation % 64)
 * @nr:      for each kind, blocks on its lists
 * @enter, @leave, @hit: decaying counts of observations, by tier and age
 * @value:   value of a block of that tier and age
 */
struct kv_lru {
	u64	clock;
	u32	step;
	u32	min_gen;
	u32	nr_in;
	u32	nr_kept;
	struct kv_told told;
	struct kv_lru_list inner;
	struct kv_term term[LRU_NR_TERMS];
	u64	busy;
	u64	used[LRU_NR_KINDS];
	u32	nr[LRU_NR_KINDS];
	struct kv_lru_list list[LRU_NR_KINDS][LRU_NR_GENS];
	u32	enter[LRU_NR_TIERS][LRU_NR_AGES];
	u32	leave[LRU_NR_TIERS][LRU_NR_AGES];
	u32	hit[LRU_NR_TIERS][LRU_NR_AGES];
	u32	value[LRU_NR_TIERS][LRU_NR_AGES];
};

/* lru.c: the order of eviction */
void lru_init(struct core *c, u32 dom);
bool lru_enter(struct core *c, u32 node, u32 fresh, u32 retain);
void lru_leave(struct core *c, u32 node);
void lru_hit(struct core *c, u32 node, u32 retain);
void lru_add(struct core *c, u32 blk);
void lru_del(struct core *c, u32 blk);
void lru_touch(struct core *c, u32 node);
void lru_settle(struct core *c, u32 node);
void lru_pass(struct core *c, u32 node);
bool lru_keep(struct core *c, u32 node, u64 until);
void lru_chill(struct core *c, u32 node);
void lru_retain(struct core *c, u32 node, u32 retain, bool own);
bool lru_is_older(const struct core *c, u32 node, u32 than);
u32 lru_next(const struct core *c, u32 dom);
u32 lru_after(const struct core *c, u32 blk);
u32 lru_search(const struct core *c, u32 dom,
	       bool (*fits)(const struct core *c, u32 blk));
u32 lru_units(const struct kv_lru *l);
struct kv_lru_list *lru_list(const struct core *c, u32 blk);

/* worth.c: the value of a cached block, from observations */
u32 lru_age_bucket(u32 age);
u32 lru_age_start(u32 x);
u32 lru_tier(u32 hits, u32 interval);
void lru_observe(struct kv_lru *l, u32 tier, u32 from, u32 to, bool hit,
		 u32 times);
void lru_learn(struct kv_lru *l, bool fade);
u32 lru_value(const struct kv_lru *l, u32 tier, u32 age);

/* ghost.c: names of evicted blocks */
bool lru_ghost_sampled(const u64 *hash);
void lru_ghost_add(struct core *c, u32 node, u32 left);
const struct kv_told *lru_ghost_take(struct core *c, u32 dom, u32 node,
				     u32 *nr);
void lru_ghost_forget(struct core *c, u32 dom);

#endif /* KVMM_CORE_LRU_H */
