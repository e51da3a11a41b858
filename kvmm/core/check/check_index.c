// SPDX-License-Identifier: Apache-2.0
/*
 * check_index.c - walkers of the prefix index and of the order of the cache
 *
 * The tree of names is walked from the nodes, from the blocks and from the
 * entries.  Each name is computed again from its parent's and its ids.  The
 * lists of lru.c are followed, and each member must be on the right one.
 */
#include "kvmm/core/check/check.h"

/* ---- the index ---- */

/*
 * A circle of children, or of roots.  They name their parent, those on the device
 * come first, and none occurs twice.
 */
static void walk_kids(struct walk *w, u32 node, u32 first, u32 *nr)
{
	const struct core *c = w->c;
	u32 i = first;
	bool dev = true;

	if (first == CORE_NONE)
		return;
	do {
		const struct kv_node *n = &c->nodes[i];

		expect(w, "index", "parent of node", i, n->parent, node);
		expect(w, "index", "back link of node", n->next,
		       c->nodes[n->next].prev, i);
		if (!dev)
			expect(w, "index", "on the device after others: node",
			       i, index_on_device(c, i), false);
		dev = index_on_device(c, i);
		if ((*nr)++ > core_sizes(c)->nr_nodes)
			return;
		i = n->next;
	} while (i != first);
}

/* A name follows from its parent's, so all its ancestors are in the index. */
void check_chain(struct walk *w, u32 ref, const u32 *ids)
{
	const struct core *c = w->c;
	u32 dom = index_domain(c, ref), up;
	const u64 *name = index_name(c, ref);
	u64 hash[2];

	up = c->nodes[index_node(c, ref)].parent;
	if (up == CORE_NONE)
		return;
	up = c->nodes[up].ref;
	if (up == CORE_NONE) {
		walk_fault(w, "index", "gap before", ref, 0, 1);
		return;
	}
	expect(w, "index", "group before that of", ref, index_group(c, up),
	       index_group(c, ref));
	index_chain(c, &c->domains[dom], index_group(c, ref), index_name(c, up),
		    ids, hash);
	expect(w, "index", "chain of", ref, name[0] ^ name[1],
	       hash[0] ^ hash[1]);
}

/* Each name has its node, each node its name, and all are in the tree. */
void check_nodes(struct walk *w)
{
	const struct core *c = w->c;
	u32 i, nr = 0, kids = 0;

	for (i = 0; i < core_sizes(c)->nr_nodes; i++) {
		const struct kv_node *n = &c->nodes[i];

		expect(w, "index", "place told of node", i, names_fault(c, i), false);
		if (n->ref == CORE_NONE)
			continue;
		nr++;
		expect(w, "index", "class of retention of node", i,
		       n->retain < RETAIN_NR, 1);
		expect(w, "index", "name of node", i, index_node(c, n->ref), i);
		walk_kids(w, i, n->kid, &kids);
	}
	expect(w, "index", "used nodes of", 0, nr,
	       core_sizes(c)->nr_nodes - c->head->nr_free_nodes);
	for_each_domain(c, i)
		walk_kids(w, CORE_NONE, c->domains[i].roots, &kids);
	expect(w, "index", "nodes in the tree of", 0, kids, nr);
}

/* ---- the order of the cache ---- */

/* One list of cached blocks.  Return: its length. */
static u32 walk_cached(struct walk *w, u32 dom, const struct kv_lru_list *list,
		       u32 flag)
{
	const struct core *c = w->c;
	u32 i = list->head, n = 0, prev = CORE_NONE;

	for (; i != CORE_NONE && n <= c->domains[dom].dev.nr[BLK_CACHED]; n++) {
		const struct kv_block *b = &c->blocks[i];

		expect(w, "lru", "state of block", i, b->state, BLK_CACHED);
		expect(w, "lru", "domain of block", i, b->domain, dom);
		expect(w, "lru", "back link of block", i, b->prev, prev);
		expect(w, "lru", "kind of block", i, c->nodes[b->node].flags,
		       flag);
		expect(w, "lru", "kids on the device of block", i,
		       index_kid_on_device(c, b->node), flag == NODEF_INNER);
		expect(w, "lru", "list of block", i, lru_list(c, i) == list, 1);
		prev = i;
		i = b->next;
	}
	expect(w, "lru", "end of a list in domain", dom, list->tail, prev);
	return n;
}

/* The lists of one class and tier, most of which are empty. */
static u32 walk_kind(struct walk *w, u32 dom, u32 k)
{
	const struct kv_lru *l = &w->c->lrus[dom];
	const struct kv_lru_list *list = l->list[k];
	u32 g, n = 0, none = CORE_NONE;

	for (g = 0; g < LRU_NR_GENS; g++)
		none &= list[g].head & list[g].tail;
	for (g = 0; g < LRU_NR_GENS && (none != CORE_NONE || l->used[k]); g++) {
		expect(w, "lru", "map of kind", k, !!(l->used[k] & BIT_ULL(g)),
		       list[g].head != CORE_NONE);
		n += walk_cached(w, dom, &list[g], NODEF_LEAF);
	}
	expect(w, "lru", "candidates of kind", k, l->nr[k], n);
	expect(w, "lru", "map of kinds, bit", k, !!(l->busy & BIT_ULL(k)),
	       !!l->used[k]);
	return n;
}

/* Count the names that have a term. */
static void walk_terms(struct walk *w, u32 dom)
{
	const struct core *c = w->c;
	const struct kv_lru *l = &c->lrus[dom];
	u32 nr[LRU_NR_TERMS] = { 0 };
	u32 i, sum = 0;

	for (i = 0; i < core_sizes(c)->nr_nodes; i++) {
		const struct kv_node *n = &c->nodes[i];

		if (n->ref == CORE_NONE || index_domain(c, n->ref) != dom ||
		    n->term == TERM_NONE || n->term == TERM_COLD)
			continue;
		nr[(n->term - 1) % LRU_NR_TERMS]++;
		sum++;
	}
	for (i = 0; i < LRU_NR_TERMS; i++)
		expect(w, "lru", "names of term", i, l->term[i].nr, nr[i]);
	expect(w, "lru", "names with terms of domain", dom, l->nr_kept, sum);
}

/* Each cached block is on a list, and the bit sets of the lists are right. */
void check_lru(struct walk *w, u32 dom)
{
	const struct core *c = w->c;
	const struct kv_lru *l = &c->lrus[dom];
	u32 n = walk_cached(w, dom, &l->inner, NODEF_INNER), k;

	for (k = 0; k < LRU_NR_TERMS; k++)
		n += walk_cached(w, dom, &l->term[k].list, NODEF_LEAF);
	for (k = 0; k < LRU_NR_KINDS; k++)
		n += walk_kind(w, dom, k);
	expect(w, "lru", "lists of domain", dom, n,
	       c->domains[dom].dev.nr[BLK_CACHED]);
	walk_terms(w, dom);
	if (n)
		expect(w, "lru", "a next one in domain", dom,
		       lru_next(c, dom) != CORE_NONE, 1);
}
