// SPDX-License-Identifier: Apache-2.0
/*
 * check_tally.c - walkers of sums over running sequences, and of their trees
 *
 * tally.c and order.c keep sums and trees so that no event needs to visit every
 * sequence.  Here every sequence is visited.
 */
#include "kvmm/core/check/check.h"

#define TREE_DEEP	90u	/* depth that no tree with good ranks reaches */

/*
 * Walk a tree from its last sequence; @list: compare with the list that ends
 * there.
 */
static void walk_tree(struct walk *w, const char *what, u32 root, u32 node,
		      u32 flag, u32 nr, const u32 *list)
{
	const struct core *c = w->c;
	u32 i = order_end(c, root, node, true), n, at = list ? *list : i;

	for (n = 0; i != CORE_NONE && n <= nr; n++) {
		expect(w, "order", what, i, !!(c->seqs[i].flags & flag), 1);
		if (list) {
			expect(w, "order", "place on the wait list", n, at, i);
			at = at == CORE_NONE ? at : c->seqs[at].prev;
		}
		i = order_prev(c, root, &c->seqs[i], node);
	}
	expect(w, "order", what, root, n, nr);
}

/* Each node must know the least @since in its subtree. */
static u64 walk_oldest(struct walk *w, u32 root, u32 deep)
{
	const struct kv_seq *s;
	u64 oldest;
	u32 i;

	if (root == CORE_NONE || !deep)
		return ~0ull;
	s = &w->c->seqs[root];
	oldest = s->since;
	for (i = 0; i < 2; i++)
		oldest = min(oldest, walk_oldest(w, s->kid[NODE_ORDER][i],
						 deep - 1));
	expect(w, "order", "oldest in the tree below seq", root, s->oldest,
	       oldest);
	return oldest;
}

/* Sums over the running sequences of a domain or client. */
struct tally {
	u32	ready;
	u32	refused;
	u32	soon;
	u32	promised;
	u32	marked;
	u32	swapped;
};

static void tally_seq(struct walk *w, const struct kv_seq *s, struct tally *t)
{
	const struct core *c = w->c;
	bool ready = s->state == KVMM_SEQ_READY;
	u32 i = seq_index(c, s);

	t->swapped += (s->flags & SEQF_QUEUED) && (s->flags & SEQF_SWAPPED);
	if (!(s->flags & SEQF_RUNNING)) {
		expect(w, "tally", "counted though not resident: seq", i,
		       s->in_soon || s->in_pages || s->in_marked || s->in_growth ||
		       (s->flags & (SEQF_IN_READY | SEQF_IN_REFUSED)), 0);
		return;
	}
	expect(w, "tally", "ready, in the tree: seq", i,
	       !!(s->flags & SEQF_IN_READY), ready);
	if (ready && seq_is_refused(c, s))
		expect(w, "tally", "refused, in the tree: seq", i,
		       !!(s->flags & SEQF_IN_REFUSED), 1);
	if (s->flags & SEQF_IN_REFUSED)
		expect(w, "tally", "in the tree, refused: seq", i,
		       ready && s->refused, 1);
	t->ready += ready;
	t->refused += !!(s->flags & SEQF_IN_REFUSED);
	t->soon += wmark_seq(c, s);
	t->promised += table_promised(c, s);
	t->marked += s->state == KVMM_SEQ_MARKED;
}

static void walk_client_tally(struct walk *w, u32 client)
{
	const struct core *c = w->c;
	const struct kv_client *cl = &c->clients[client];
	struct tally t = { 0 };
	u32 i;

	for (i = 0; i < cl->max_seqs; i++) {
		const struct kv_seq *s;

		s = &c->seqs[client * core_cfg(c)->max_seqs + i];
		if (s->state != KVMM_SEQ_CLOSED)
			tally_seq(w, s, &t);
	}
	expect(w, "tally", "promised pages of client", client, cl->promised,
	       t.promised);
	expect(w, "tally", "marked of client", client, cl->nr_marked,
	       t.marked);
}

/* Mappings of open blocks that more than one sequence maps. */
static u32 count_tails(const struct core *c, u32 dom)
{
	u32 e, i, nr = 0;

	for (e = 0; e < core_sizes(c)->nr_extents; e++) {
		const struct kv_span *sp = &c->spans[e];

		if (!sp->nr_extents || sp->domain != dom)
			continue;
		i = e * core_sizes(c)->blocks_per_extent;
		for (; i < e * core_sizes(c)->blocks_per_extent +
		     sp->nr_blocks; i++)
			if (c->blocks[i].state == BLK_OPEN &&
			    c->blocks[i].nr_map > 1)
				nr += c->blocks[i].nr_map;
	}
	return nr;
}

/* The list of waiting sequences by age, the longest-waiting first. */
static void walk_ages(struct walk *w, u32 dom)
{
	const struct core *c = w->c;
	const struct kv_domain *d = &c->domains[dom];
	u32 i, n, prev = CORE_NONE;
	u64 since = 0;

	for (i = d->age_head, n = 0; i != CORE_NONE && n <= d->nr_waiting;
	     i = c->seqs[i].age_next, n++) {
		const struct kv_seq *s = &c->seqs[i];

		expect(w, "order", "back link by age of seq", i, s->age_prev,
		       prev);
		expect(w, "order", "by age, waits: seq", i,
		       s->domain == dom && (s->flags & SEQF_QUEUED), 1);
		expect(w, "order", "waited longer than the one before it: seq",
		       i, s->since < since, 0);
		prev = i;
		since = s->since;
	}
	expect(w, "order", "those who wait, by age, in domain", dom, n,
	       d->nr_waiting);
	expect(w, "order", "tail by age of domain", dom, d->age_tail, prev);
}

static void walk_domain_tally(struct walk *w, u32 dom)
{
	const struct core *c = w->c;
	const struct kv_domain *d = &c->domains[dom];
	struct walk quiet = { .c = c, .r = &(struct core_report){ 0 } };
	struct tally t = { 0 };
	u32 i;

	for (i = 0; i < core_sizes(c)->nr_seqs; i++)
		if (c->seqs[i].state != KVMM_SEQ_CLOSED &&
		    c->seqs[i].domain == dom)
			tally_seq(&quiet, &c->seqs[i], &t);
	expect(w, "tally", "blocks soon taken in domain", dom, d->soon, t.soon);
	expect(w, "tally", "swapped that wait in domain", dom, d->nr_swapped,
	       t.swapped);
	expect(w, "tally", "shared tails of domain", dom, d->tails,
	       count_tails(c, dom));
	walk_ages(w, dom);
	walk_oldest(w, d->ready_root, TREE_DEEP);
	walk_oldest(w, d->wait_root, TREE_DEEP);
	walk_tree(w, "ready tree", d->ready_root, NODE_ORDER, SEQF_IN_READY,
		  t.ready, NULL);
	walk_tree(w, "refused tree", d->refused_root, NODE_REFUSED,
		  SEQF_IN_REFUSED, t.refused, NULL);
	walk_tree(w, "wait tree", d->wait_root, NODE_ORDER, SEQF_QUEUED,
		  d->nr_waiting, &d->wait_tail);
}

/* Each sequence that waits for a block to be filled is on its entry's list. */
/* The block that a restoring sequence waits for; CORE_NONE: its tables have none. */
static u32 filled_next(const struct core *c, const struct kv_seq *s)
{
	const struct kv_tab *t;

	if (s->fill_group >= seq_groups(c, s))
		return CORE_NONE;
	t = seq_tab(c, s, s->fill_group);
	return s->fill < t->nr_blocks ? table_get(c, t, s->fill) : CORE_NONE;
}

static void walk_fills(struct walk *w)
{
	const struct core *c = w->c;
	u32 i, n, prev, listed = 0, waiting = 0;

	for (i = 0; i < core_sizes(c)->nr_seqs; i++) {
		const struct kv_seq *s = &c->seqs[i];

		if (s->state == KVMM_SEQ_CLOSED)
			continue;
		waiting += s->state == KVMM_SEQ_RESTORING;
		expect(w, "fill", "what waits for a block is restoring: seq", i,
		       s->fill_on != CORE_NONE,
		       s->state == KVMM_SEQ_RESTORING);
		if (s->fill_on != CORE_NONE)
			expect(w, "fill", "block that is waited for by seq", i,
			       c->entries_low[s->fill_on].dev,
			       filled_next(c, s));
	}
	for (i = 0; i < core_sizes(c)->nr_entries; i++) {
		if (c->entries_low[i].domain == ENTRY_UNUSED)
			continue;
		prev = CORE_NONE;
		for (n = c->entries_low[i].waiters; n != CORE_NONE &&
		     listed <= waiting; n = c->seqs[n].fill_next, listed++) {
			expect(w, "fill", "list of seq", n, c->seqs[n].fill_on,
			       i);
			expect(w, "fill", "back link of seq", n,
			       c->seqs[n].fill_prev, prev);
			prev = n;
		}
	}
	expect(w, "fill", "on lists", 0, listed, waiting);
}

/* Extents of each pool that a span can be made of. */
static void walk_loose(struct walk *w)
{
	const struct core *c = w->c;
	u32 i, e, nr;

	for (i = 0; i < c->head->nr_zones; i++) {
		const struct kv_zone *z = &c->head->zones[i];

		for (e = z->first, nr = 0; e < z->first + z->nr_extents; e++)
			nr += c->extents[e].state == EXT_BACKED ||
			      c->extents[e].state == EXT_ABSENT;
		expect(w, "tally", "loose extents of device pool", i, z->loose, nr);
	}
	for (i = CORE_POOL_HOST; i < CORE_NR_POOLS; i++) {
		const struct kv_pool *p = core_pool(c, i);

		for (e = p->first, nr = 0; e < p->first + p->nr_extents; e++)
			nr += c->extents[e].state == EXT_BACKED;
		expect(w, "tally", "loose extents of pool", i, p->loose, nr);
	}
}

/* check_tally() - compare the sums and trees with all sequences */
void check_tally(struct walk *w)
{
	const struct core *c = w->c;
	u32 i;

	walk_loose(w);
	walk_fills(w);
	for (i = 0; i < core_cfg(c)->max_clients; i++)
		if (c->clients[i].state != CLI_FREE)
			walk_client_tally(w, i);
	for_each_domain(c, i)
		walk_domain_tally(w, i);
}
