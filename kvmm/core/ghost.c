// SPDX-License-Identifier: Apache-2.0
/*
 * ghost.c - names that were in the index
 *
 * When a name leaves the index nothing of its content is left, but for a
 * while the table here remembers that it was there: 32 bits of the name, when
 * it was last used, how often and how regularly.  If the same name is entered
 * again soon it was dropped too early, and comes back as what it was; lru.c
 * learns from that, and from those that never come back.
 *
 * The table is fixed, for all domains together, in sets of GHOST_WAYS.  A name
 * has one set.  A full set forgets its oldest, which by then is known not to
 * have come back.  Two names with equal 32 bits in one set are taken for each
 * other: a block is kept a little too long or too short, nothing else.
 *
 * All of it is kv_ghost; only this file touches the table.
 */
#include "kvmm/core/internal.h"

#define GHOST_WAYS	8

static struct kv_ghost *ghost_set(const struct core *c, const u64 *hash)
{
	u32 nr = core_sizes(c)->nr_ghosts / GHOST_WAYS;

	return &c->ghosts[((hash[1] >> 32) & (nr - 1)) * GHOST_WAYS];
}

static u32 lru_ghost_age(const struct core *c, const struct kv_ghost *g)
{
	return lru_units(&c->lrus[g->domain]) - g->stamp;
}

/* What is known of a ghost that ends now: it came back, or it did not. */
static void ghost_end(struct core *c, struct kv_ghost *g, bool hit)
{
	u32 hits = g->left_hits & LRU_HITS_MAX;

	lru_observe(&c->lrus[g->domain], lru_tier(hits, g->interval),
		    g->left_hits >> 3, lru_age_bucket(lru_ghost_age(c, g)), hit);
	g->domain = GHOST_UNUSED;
}

/* The way for a new ghost: an unused one, else the oldest's. */
static struct kv_ghost *ghost_victim(const struct core *c, struct kv_ghost *set)
{
	struct kv_ghost *best = set;
	u32 i;

	for (i = 0; i < GHOST_WAYS; i++) {
		if (set[i].domain == GHOST_UNUSED)
			return &set[i];
		if (lru_ghost_age(c, &set[i]) > lru_ghost_age(c, best))
			best = &set[i];
	}
	return best;
}

/**
 * lru_ghost_add() - a name leaves the index
 * @left: lru_age_bucket() of its age
 */
void lru_ghost_add(struct core *c, u32 node, u32 left)
{
	const struct kv_node *n = &c->nodes[node];
	const u64 *hash = index_name(c, n->ref);
	struct kv_ghost *g = ghost_victim(c, ghost_set(c, hash));

	if (g->domain != GHOST_UNUSED)
		ghost_end(c, g, false);
	*g = (struct kv_ghost){
		.name		= (u32)hash[1],
		.stamp		= n->stamp,
		.domain		= (u16)index_domain(c, n->ref),
		.left_hits	= (u8)(left << 3 | n->hits),
		.interval	= n->interval,
	};
}

/**
 * lru_ghost_take() - is a name that is entered a ghost?
 * @g: what it was; it is one no more
 */
bool lru_ghost_take(struct core *c, u32 dom, const u64 *hash, struct kv_ghost *g)
{
	struct kv_ghost *set = ghost_set(c, hash);
	u32 i;

	for (i = 0; i < GHOST_WAYS; i++) {
		if (set[i].domain != dom || set[i].name != (u32)hash[1])
			continue;
		*g = set[i];
		ghost_end(c, &set[i], true);
		return true;
	}
	return false;
}

/* The domain is another one now, or what it was does not count. */
void lru_ghost_forget(struct core *c, u32 dom)
{
	u32 i;

	for (i = 0; i < core_sizes(c)->nr_ghosts; i++)
		if (c->ghosts[i].domain == dom)
			c->ghosts[i].domain = GHOST_UNUSED;
}
