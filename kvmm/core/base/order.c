// SPDX-License-Identifier: Apache-2.0
/*
 * order.c - sequences in order: by priority, then arrival
 *
 * Ten thousands of sequences may wait or run in a domain, and every event asks
 * for the first or last of them.  So they are kept in search trees, each with a
 * root in the domain and two links in the sequence:
 *
 *	wait_root	waiting sequences, to find the place of a new one
 *	ready_root	running READY sequences: the last is the best victim
 *	refused_root	READY sequences that were refused growth: others wait for
 *			the first of them
 *
 * A sequence is in at most one of the first two trees, which share links
 * (NODE_ORDER).
 *
 * The trees are treaps: each node has a rank beside its place in the order, and
 * no node has a higher rank than its parent.  If ranks are as good as random, a
 * tree is as deep as the logarithm of its size, times a small constant.  Ranks
 * are made of the tenant's secret, so that no client can choose them.  There
 * are no links to parents: every path begins at the root.
 *
 * Each node of the first two trees also knows the least kv_seq.since in its
 * subtree.  So one sequence that has run or waited for long is found among many
 * that have not.  way_settle() updates the nodes on the path of a
 * change, the lowest first.
 *
 * A sequence must be out of its trees while its priority or @since changes.
 */
#include "kvmm/core/base/base.h"

/* seq_before() - is @a admitted before @b, and preempted after it? */
bool seq_before(const struct kv_seq *a, const struct kv_seq *b)
{
	if (a->priority != b->priority)
		return a->priority > b->priority;
	if (a->arrival != b->arrival)
		return a->arrival < b->arrival;
	return a < b;
}

/* order_rank() - the rank of a new sequence, for all trees */
u32 order_rank(const struct core *c, const struct kv_seq *s)
{
	u64 x;

	memcpy(&x, c->tenants[seq_domain(c, s)->tenant].secret, sizeof(x));
	x ^= ((u64)s->generation << 32 | seq_index(c, s)) *
	     0x9e3779b97f4a7c15ull;
	x ^= x >> 32;
	x *= 0xd6e8feb86659fd93ull;
	return (u32)(x >> 32);
}

static u32 rank_of(const struct core *c, u32 i)
{
	return c->seqs[i].rank;
}

/* The longest path on which kv_seq.oldest is kept exact. */
#define ORDER_DEEP	96u

/* The nodes on the path of a change through a tree, from the root. */
struct way {
	u32	nr;
	u32	node[ORDER_DEEP];
};

static void way_note(struct way *w, u32 i)
{
	if (w->nr < ORDER_DEEP)
		w->node[w->nr++] = i;
}

static u64 oldest_of(const struct core *c, u32 i)
{
	return i == CORE_NONE ? ~0ull : c->seqs[i].oldest;
}

/* Nodes below the path changed: update @oldest on it, the lowest first. */
static void way_settle(struct core *c, const struct way *w, u32 node)
{
	u32 n = w->nr;

	while (n-- && node == NODE_ORDER) {
		struct kv_seq *s = &c->seqs[w->node[n]];

		s->oldest = min(s->since,
				min(oldest_of(c, s->kid[NODE_ORDER][0]),
				    oldest_of(c, s->kid[NODE_ORDER][1])));
	}
}

/* The link to the sequence, or with @rank to the first node of lower rank. */
static u32 *order_way(struct core *c, u32 *root, u32 i, u32 node, bool rank,
		      struct way *w)
{
	u32 mine = rank ? rank_of(c, i) : 0;
	u32 *at = root;

	w->nr = 0;
	while (*at != i && *at != CORE_NONE &&
	       (!rank || rank_of(c, *at) >= mine)) {
		way_note(w, *at);
		at = &c->seqs[*at].kid[node][!seq_before(&c->seqs[i],
							 &c->seqs[*at])];
	}
	return at;
}

/* Both children of @i stay on their side of it, and below its rank. */
static void order_node_check(const struct core *c, u32 i, u32 node)
{
	const struct kv_seq *s = &c->seqs[i];
	u32 low = s->kid[node][0], high = s->kid[node][1];

	KV_BUG_ON(low != CORE_NONE && !seq_before(&c->seqs[low], s));
	KV_BUG_ON(high != CORE_NONE && !seq_before(s, &c->seqs[high]));
	KV_BUG_ON(low != CORE_NONE && rank_of(c, low) > s->rank);
	KV_BUG_ON(high != CORE_NONE && rank_of(c, high) > s->rank);
}

/* order_add() - add a sequence to a tree that it is not in */
void order_add(struct core *c, u32 *root, u32 i, u32 node)
{
	struct way w;	/* its nodes are recorded as they are passed */
	u32 *at = order_way(c, root, i, node, true, &w);
	u32 *low = &c->seqs[i].kid[node][0], *high = &c->seqs[i].kid[node][1];
	u32 n = *at;

	KV_BUG_ON(*root != CORE_NONE && c->seqs[*root].domain != c->seqs[i].domain);
	KV_BUG_ON(n == i);
	*at = i;
	way_note(&w, i);
	/* Split the subtree that was there: nodes before @i, and after it. */
	while (n != CORE_NONE) {
		way_note(&w, n);
		if (seq_before(&c->seqs[n], &c->seqs[i])) {
			*low = n;
			low = &c->seqs[n].kid[node][1];
			n = *low;
		} else {
			*high = n;
			high = &c->seqs[n].kid[node][0];
			n = *high;
		}
	}
	*low = CORE_NONE;
	*high = CORE_NONE;
	order_node_check(c, i, node);
	way_settle(c, &w, node);
}

/* order_del() - remove a sequence from its tree */
void order_del(struct core *c, u32 *root, u32 i, u32 node)
{
	struct way w;	/* its nodes are recorded as they are passed */
	u32 *at = order_way(c, root, i, node, false, &w);
	u32 low = c->seqs[i].kid[node][0], high = c->seqs[i].kid[node][1];

	KV_BUG_ON(*at != i);
	KV_BUG_ON(c->seqs[*root].domain != c->seqs[i].domain);
	order_node_check(c, i, node);
	while (low != CORE_NONE && high != CORE_NONE) {
		if (rank_of(c, low) >= rank_of(c, high)) {
			*at = low;
			way_note(&w, low);
			at = &c->seqs[low].kid[node][1];
			low = *at;
		} else {
			*at = high;
			way_note(&w, high);
			at = &c->seqs[high].kid[node][0];
			high = *at;
		}
	}
	*at = low != CORE_NONE ? low : high;
	way_settle(c, &w, node);
}

/* order_end() - the first or last of a tree; CORE_NONE: it is empty */
u32 order_end(const struct core *c, u32 root, u32 node, bool last)
{
	u32 i = root;

	while (i != CORE_NONE && c->seqs[i].kid[node][last] != CORE_NONE)
		i = c->seqs[i].kid[node][last];
	return i;
}

/* order_prev() - the sequence right before @s, which may be in the tree */
u32 order_prev(const struct core *c, u32 root, const struct kv_seq *s,
	       u32 node)
{
	u32 i = root, prev = CORE_NONE;

	while (i != CORE_NONE) {
		bool before = seq_before(&c->seqs[i], s);

		if (before)
			prev = i;
		i = c->seqs[i].kid[node][before];
	}
	return prev;
}

/* The last sequence in the subtree at @i that is old enough; there is one. */
static u32 last_aged(const struct core *c, u32 i, u64 since)
{
	for (;;) {
		const struct kv_seq *s = &c->seqs[i];
		u32 later = s->kid[NODE_ORDER][1];

		KV_BUG_ON(oldest_of(c, i) > since);
		if (oldest_of(c, later) <= since)
			i = later;
		else if (s->since <= since)
			return i;
		else
			i = s->kid[NODE_ORDER][0];
	}
}

/**
 * order_prev_aged() - the last old enough sequence before @s
 * @s:     may be in the tree; NULL: search the whole tree
 * @since: old enough: admitted, or waiting, since this time or before
 *
 * Only for trees with NODE_ORDER links.
 * Return: CORE_NONE: there is none.
 */
u32 order_prev_aged(const struct core *c, u32 root, const struct kv_seq *s,
		    u64 since)
{
	u32 i = root, prev = CORE_NONE;

	while (i != CORE_NONE && oldest_of(c, i) <= since) {
		const struct kv_seq *n = &c->seqs[i];
		bool before = !s || seq_before(n, s);

		if (before && (n->since <= since ||
			       oldest_of(c, n->kid[NODE_ORDER][0]) <= since))
			prev = i;
		i = n->kid[NODE_ORDER][before];
	}
	if (prev == CORE_NONE || c->seqs[prev].since <= since)
		return prev;
	return last_aged(c, c->seqs[prev].kid[NODE_ORDER][0], since);
}
