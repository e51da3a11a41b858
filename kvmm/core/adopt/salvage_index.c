// SPDX-License-Identifier: Apache-2.0
/*
 * salvage_index.c - content of a salvaged arena that is proven by its name
 *
 * A name is valid if its node and the holder of its content name each other, and
 * if it follows from the ids of the content and the name of its parent.  The
 * parent must be valid, too, up to the first block of a prompt.  So the valid
 * names are a closed tree, as the index is.  The name of a first block cannot be
 * computed, since salts are not kept.  It was written before the block was
 * sealed, and a lookup never finds a wrong one.
 *
 * A lower-tier entry is kept if it is in the index, or if it is the clean copy of
 * a block that is.
 *
 * Scratch: core.walked (the entry has its slots), kv_node.flags and .kid (JUDGE_,
 * the way back), core.scratch (slots that an entry uses).
 */
#include "kvmm/core/adopt/adopt.h"

enum {
	JUDGE_NOT,		/* not checked yet */
	JUDGE_BUSY,		/* being checked, its ancestors first */
	JUDGE_GOOD,
	JUDGE_BAD,
};

/* ---- entries ---- */

/* Does the slot hold content of the domain, in the host pool or an area? */
static bool slot_is_good(const struct core *c, u32 slot, u32 dom, bool host)
{
	u32 part = salvage_in_span(c, slot);

	return part != CORE_NONE && part_domain(c, part) == dom &&
	       c->blocks[slot].domain == part &&
	       (host ? part_pool(c, part) == CORE_POOL_HOST :
		       part_pool(c, part) >= CORE_POOL_AREA) &&
	       c->blocks[slot].state == BLK_SEALED && !c->scratch[slot];
}

/* Mark the slots that hold the entry's content; drop the others. */
static void entry_judge(struct core *c, u32 i)
{
	struct kv_entry *e = &c->entries_low[i];
	bool known = e->domain < core_cfg(c)->max_domains &&
		     c->domains[e->domain].used &&
		     !(e->flags & (ENTF_LOST | ENTF_PARTIAL)) &&
		     e->group < c->domains[e->domain].nr_groups &&
		     e->nr_ids == c->domains[e->domain].group[e->group].block_tokens;

	if (!known || !(e->flags & ENTF_HOST) ||
	    !slot_is_good(c, e->host, e->domain, true))
		e->host = CORE_NONE;
	if (!known || !(e->flags & ENTF_AREA) ||
	    !slot_is_good(c, e->area, e->domain, false))
		e->area = CORE_NONE;
	KV_BUG_ON(e->host != CORE_NONE && e->host == e->area);
	if (e->host != CORE_NONE)
		c->scratch[e->host] = 1;
	if (e->area != CORE_NONE)
		c->scratch[e->area] = 1;
	c->walked[e - c->entries_low] = e->host != CORE_NONE || e->area != CORE_NONE;
}

/* ---- names ---- */

static bool block_stands(const struct core *c, u32 blk, u32 node)
{
	const struct kv_block *b;
	u32 dom = salvage_in_span(c, blk);

	if (dom == CORE_NONE || part_pool(c, dom))
		return false;
	b = &c->blocks[blk];
	return (b->state == BLK_SEALED || b->state == BLK_CACHED) &&
	       (b->flags & BLKF_INDEXED) && b->node == node &&
	       b->domain == dom && b->group < c->domains[dom].nr_groups &&
	       b->nr_ids == block_tokens(c, blk);
}

/* Do the node and the holder of its content name each other? */
static bool node_stands(const struct core *c, u32 node)
{
	u32 ref = c->nodes[node].ref;
	const struct kv_entry *e;

	if (ref == CORE_NONE)
		return false;
	if (!(ref & REF_ENTRY))
		return block_stands(c, ref, node);
	ref &= ~REF_ENTRY;
	if (ref >= core_sizes(c)->nr_entries)
		return false;
	e = &c->entries_low[ref];
	return c->walked[e - c->entries_low] && (e->flags & ENTF_INDEXED) && e->node == node;
}

/* Does the name follow from its parent's and the ids? */
static bool name_follows(const struct core *c, u32 node)
{
	u32 ref = c->nodes[node].ref, up = c->nodes[node].parent;
	const u64 *name = index_name(c, ref);
	u32 dom = index_domain(c, ref);
	u64 hash[2];

	KV_BUG_ON(c->nodes[node].flags != JUDGE_BUSY);
	if (up == CORE_NONE)
		return true;
	KV_BUG_ON(up >= core_sizes(c)->nr_nodes);
	KV_BUG_ON(c->nodes[up].flags != JUDGE_GOOD);
	up = c->nodes[up].ref;
	if (index_domain(c, up) != dom || index_group(c, up) != index_group(c, ref))
		return false;
	index_chain(c, &c->domains[dom], index_group(c, ref), index_name(c, up),
		    index_ids(c, ref), hash);
	return hash[0] == name[0] && hash[1] == name[1];
}

/* Check a node and all its ancestors, the first ancestor first. */
static void node_judge(struct core *c, u32 node)
{
	u32 i = node, back = CORE_NONE, nr = core_sizes(c)->nr_nodes;
	bool good;

	while (i < nr && c->nodes[i].flags == JUDGE_NOT) {
		if (!node_stands(c, i)) {
			c->nodes[i].flags = JUDGE_BAD;
			break;
		}
		c->nodes[i].flags = JUDGE_BUSY;
		c->nodes[i].kid = back;
		back = i;
		i = c->nodes[i].parent;
	}
	good = i == CORE_NONE || (i < nr && c->nodes[i].flags == JUDGE_GOOD);
	for (i = back; i != CORE_NONE; i = back) {
		back = c->nodes[i].kid;
		good = good && name_follows(c, i);
		c->nodes[i].flags = good ? JUDGE_GOOD : JUDGE_BAD;
	}
	KV_BUG_ON(c->nodes[node].flags != JUDGE_GOOD &&
		  c->nodes[node].flags != JUDGE_BAD);
}

/* ---- records that stay ---- */

/* Take blocks without a valid name out of the index. */
static void blocks_note(struct core *c)
{
	u32 i, nr = core_sizes(c)->nr_extents *
		    core_sizes(c)->blocks_per_extent;

	for (i = 0; i < nr; i++) {
		struct kv_block *b = &c->blocks[i];

		if ((b->flags & BLKF_INDEXED) &&
		    b->node < core_sizes(c)->nr_nodes &&
		    c->nodes[b->node].ref == i &&
		    c->nodes[b->node].flags == JUDGE_GOOD)
			b->flags = BLKF_INDEXED;
		else
			b->flags = 0;
	}
}

/* Is the entry the clean copy of an indexed block? */
static bool entry_is_copy(const struct core *c, u32 i)
{
	const struct kv_entry *e = &c->entries_low[i];
	const struct kv_block *b;
	u32 dom = salvage_in_span(c, e->dev);

	if (dom == CORE_NONE || dom != e->domain)
		return false;
	b = &c->blocks[e->dev];
	return b->flags == BLKF_INDEXED && b->entry == i &&
	       b->hash[0] == e->hash[0] && b->hash[1] == e->hash[1];
}

static void entry_clear(struct core *c, u32 i)
{
	struct kv_entry *e = &c->entries_low[i];

	KV_BUG_ON(e->host != CORE_NONE && !c->scratch[e->host]);
	KV_BUG_ON(e->area != CORE_NONE && !c->scratch[e->area]);
	if (e->host != CORE_NONE)
		c->scratch[e->host] = 0;
	if (e->area != CORE_NONE)
		c->scratch[e->area] = 0;
	*e = (struct kv_entry){ .generation = e->generation + 1,
				.domain = ENTRY_UNUSED,
				.next = c->head->free_entry };
	c->head->free_entry = i;
	KV_BUG_ON(c->head->nr_free_entries >= core_sizes(c)->nr_entries);
	c->head->nr_free_entries++;
}

static void entry_reset(struct core *c, u32 i)
{
	struct kv_entry *e = &c->entries_low[i], was = *e;
	bool named = c->walked[e - c->entries_low] && (e->flags & ENTF_INDEXED) &&
		     e->node < core_sizes(c)->nr_nodes &&
		     c->nodes[e->node].ref == (REF_ENTRY | i) &&
		     c->nodes[e->node].flags == JUDGE_GOOD;

	if (!c->walked[e - c->entries_low] || (!named && !entry_is_copy(c, i))) {
		entry_clear(c, i);
		return;
	}
	KV_BUG_ON(was.domain >= core_cfg(c)->max_domains);
	KV_BUG_ON(was.host == CORE_NONE && was.area == CORE_NONE);
	KV_BUG_ON(was.nr_ids != c->domains[was.domain].group[was.group].block_tokens);
	*e = (struct kv_entry){
		.domain = was.domain, .group = was.group, .nr_ids = was.nr_ids,
		.node = was.node,
		.host = was.host, .area = was.area,
		.hash = { was.hash[0], was.hash[1] },
		.generation = was.generation + 1,
		.dev = named ? CORE_NONE : was.dev,
		.prev = CORE_NONE, .next = CORE_NONE,
		.hash_next = CORE_NONE, .waiters = CORE_NONE,
		.flags = (u8)((named ? ENTF_INDEXED : 0) |
			      (was.host != CORE_NONE ? ENTF_HOST : 0) |
			      (was.area != CORE_NONE ? ENTF_AREA : 0)),
	};
	KV_BUG_ON(e->host != CORE_NONE && !c->scratch[e->host]);
	entry_list_add(c, i);
}

/* Unlink blocks from entries that were dropped. */
static void block_copies(struct core *c)
{
	u32 i, nr = core_sizes(c)->nr_extents *
		    core_sizes(c)->blocks_per_extent;

	for (i = 0; i < nr; i++) {
		struct kv_block *b = &c->blocks[i];

		if (b->entry >= core_sizes(c)->nr_entries ||
		    c->entries_low[b->entry].domain == ENTRY_UNUSED ||
		    c->entries_low[b->entry].dev != i)
			b->entry = CORE_NONE;
	}
}

/* Reset the node of a valid name, without links; free any other node. */
static void node_reset(struct core *c, u32 i)
{
	struct kv_node *n = &c->nodes[i];

	KV_BUG_ON(n->flags == JUDGE_NOT || n->flags == JUDGE_BUSY);
	if (n->flags != JUDGE_GOOD) {
		*n = (struct kv_node){ .ref = CORE_NONE,
				       .next = c->head->free_node };
		c->head->free_node = i;
		KV_BUG_ON(c->head->nr_free_nodes >= core_sizes(c)->nr_nodes);
		c->head->nr_free_nodes++;
		return;
	}
	KV_BUG_ON(n->ref == CORE_NONE);
	n->kid = CORE_NONE;
	n->flags = 0;
	n->stamp = 0;
	n->lower = 0;
	n->term = TERM_NONE;
	if (n->retain >= RETAIN_NR)
		n->retain = RETAIN_NORMAL;
	if (!n->hits)
		n->interval = min(n->interval, (u8)(LRU_TIER_FOUND - 1));
}

/**
 * salvage_index() - check all names, and drop content without a valid name
 *
 * Afterwards BLKF_INDEXED is the only flag of blocks, set on those that stay.
 * Entries and nodes are complete, but in no bucket and no tree.
 */
void salvage_index(struct core *c)
{
	const struct core_sizes *s = core_sizes(c);
	u32 i;

	memset(c->scratch, 0, sizeof(*c->scratch) * (u64)s->nr_blocks);
	for (i = 0; i < s->nr_entries; i++)
		entry_judge(c, i);
	for (i = 0; i < s->nr_nodes; i++)
		c->nodes[i].flags = JUDGE_NOT;
	for (i = 0; i < s->nr_nodes; i++)
		node_judge(c, i);
	blocks_note(c);
	c->head->free_entry = CORE_NONE;
	c->head->nr_free_entries = 0;
	for (i = s->nr_entries; i--;)
		entry_reset(c, i);
	block_copies(c);
	c->head->free_node = CORE_NONE;
	c->head->nr_free_nodes = 0;
	for (i = s->nr_nodes; i--;)
		node_reset(c, i);
}

/**
 * salvage_cache() - make the index and the order of the cache from the nodes
 *
 * Context: after salvage_blocks().
 */
void salvage_cache(struct core *c)
{
	u32 i;

	for (i = 0; i < core_sizes(c)->nr_nodes; i++)
		if (c->nodes[i].ref != CORE_NONE)
			index_relink(c, i);
	for (i = 0; i < core_sizes(c)->nr_nodes; i++) {
		u32 ref = c->nodes[i].ref;

		KV_BUG_ON(ref != CORE_NONE && !(ref & REF_ENTRY) &&
			  c->blocks[ref].state != BLK_CACHED);
		if (ref != CORE_NONE && !(ref & REF_ENTRY))
			lru_add(c, ref);
	}
}
