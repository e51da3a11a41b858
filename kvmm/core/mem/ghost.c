// SPDX-License-Identifier: Apache-2.0
/*
 * ghost.c - names of evicted blocks
 *
 * When a name leaves the index its content is lost.  For a while the table here
 * remembers the name: when it was last used, how often, and how regularly.  If
 * the same name is soon entered again, it was evicted too early, and gets its
 * history back.  lru.c learns from such names, and from those that never come
 * back.
 *
 * The names of a prompt come and go together.  So only one name in GHOST_SAMPLE,
 * chosen by its hash, is remembered.  It counts for that many in the statistics,
 * and speaks for the names that are entered right after it, and for those before
 * the first sampled one (kv_told).  With one ghost a block the table so reaches
 * GHOST_SAMPLE times as far back as the cache.
 *
 * The table has a fixed size, for all domains together, in sets of GHOST_WAYS.
 * A name belongs to one set.  A full set forgets its oldest ghost, which counts
 * as a name that did not come back.  Ages are exact to GHOST_STEP and wrap after
 * 2^16 of these, 256 times the cache.  Two names with the same 16 bits in one
 * set are taken for each other.  The only effect of either is that a block is
 * kept a little too long or too short.
 *
 * Only this file reads and writes kv_ghost and kv_told.
 */
#include "kvmm/core/mem/mem.h"

static struct kv_ghost *ghost_set(const struct core *c, const u64 *hash)
{
	u32 nr = core_sizes(c)->nr_ghosts / GHOST_WAYS;

	return &c->ghosts[((hash[1] >> 32) * nr >> 32) * GHOST_WAYS];
}

static u32 ghost_age(const struct core *c, const struct kv_ghost *g)
{
	u32 now = lru_units(&c->lrus[g->domain]) / GHOST_STEP;

	return (u16)(now - g->stamp) * GHOST_STEP;
}

/* Is the name in the sample that is remembered? */
bool lru_ghost_sampled(const u64 *hash)
{
	return !(hash[1] >> 16 & (GHOST_SAMPLE - 1));
}

/* A ghost ends: record whether its name came back. */
static void ghost_end(struct core *c, struct kv_ghost *g, bool hit)
{
	KV_BUG_ON(g->domain >= core_cfg(c)->max_domains);
	lru_observe(&c->lrus[g->domain], lru_tier(g->hits, g->interval),
		    g->left, lru_age_bucket(ghost_age(c, g)), hit,
		    GHOST_SAMPLE);
	g->domain = GHOST_UNUSED;
}

/* The place for a new ghost: an unused one, else that of the oldest. */
static struct kv_ghost *ghost_victim(const struct core *c, struct kv_ghost *set)
{
	struct kv_ghost *best = set;
	u32 i;

	for (i = 0; i < GHOST_WAYS; i++) {
		if (set[i].domain == GHOST_UNUSED)
			return &set[i];
		if (ghost_age(c, &set[i]) > ghost_age(c, best))
			best = &set[i];
	}
	return best;
}

/**
 * lru_ghost_add() - a name leaves the index
 * @left: lru_age_bucket() of the name's age
 */
void lru_ghost_add(struct core *c, u32 node, u32 left)
{
	const struct kv_node *n = &c->nodes[node];
	const u64 *hash = index_name(c, n->ref);
	struct kv_ghost *g;

	KV_BUG_ON(left >= LRU_NR_AGES);
	if (!lru_ghost_sampled(hash))
		return;
	g = ghost_victim(c, ghost_set(c, hash));
	if (g->domain != GHOST_UNUSED)
		ghost_end(c, g, false);
	*g = (struct kv_ghost){
		.tag		= (u16)hash[1],
		.stamp		= (u16)((n->stamp - min(n->stamp,
					lru_age_start(n->asked))) / GHOST_STEP),
		.domain		= (u16)index_domain(c, n->ref),
		.left		= left & (LRU_NR_AGES - 1),
		.hits		= n->hits & LRU_HITS_MAX,
		.interval	= n->interval,
	};
}

/* If the name is a ghost, end the ghost and copy it to @t. */
static bool ghost_find(struct core *c, u32 dom, const u64 *hash,
		       struct kv_told *t)
{
	struct kv_ghost *set = ghost_set(c, hash);
	u32 i;

	for (i = 0; i < GHOST_WAYS; i++) {
		if (set[i].domain != dom || set[i].tag != (u16)hash[1])
			continue;
		t->hits = set[i].hits;
		t->interval = set[i].interval;
		t->age = ghost_age(c, &set[i]);
		ghost_end(c, &set[i], true);
		return true;
	}
	return false;
}

/**
 * lru_ghost_take() - is a name that is entered a ghost?
 * @nr: gets the number of names that the answer is for: this one and those
 *      right before it
 *
 * Return: the history of these names, valid until the next call, or NULL.
 */
const struct kv_told *lru_ghost_take(struct core *c, u32 dom, u32 node,
				     u32 *nr)
{
	const struct kv_node *n = &c->nodes[node];
	const u64 *hash = index_name(c, n->ref);
	struct kv_told *t = &c->lrus[dom].told;

	if (n->parent == CORE_NONE || n->parent != t->node) {
		t->known = false;
		t->open = 0;
		t->told = false;
	}
	t->node = node;
	*nr = 1;
	if (lru_ghost_sampled(hash)) {
		t->known = ghost_find(c, dom, hash, t);
		*nr += t->open;
		t->open = 0;
		t->told = true;
	} else if (!t->told) {
		t->open++;
	}
	return t->known ? t : NULL;
}

/* The domain is a new one, or its history must not count. */
void lru_ghost_forget(struct core *c, u32 dom)
{
	u32 i;

	c->lrus[dom].told.node = CORE_NONE;
	for (i = 0; i < core_sizes(c)->nr_ghosts; i++)
		if (c->ghosts[i].domain == dom)
			c->ghosts[i].domain = GHOST_UNUSED;
}
