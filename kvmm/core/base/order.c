// SPDX-License-Identifier: Apache-2.0
/*
 * order.c - sequences in order: by priority, then arrival
 *
 * Ten thousands of sequences may wait or run in a domain, and who is first or
 * last of them is asked in every event.  So they are kept in search trees, each
 * a root in the domain and two links in the sequence:
 *
 *	wait_root	the wait list, to find the place of a new one
 *	ready_root	who is resident and READY: the last is the best victim
 *	refused_root	of those, who was refused growth: others step aside for
 *			the first
 *
 * A sequence is in one of the first two at most, which share links; NODE_ says
 * which links.
 *
 * The trees are treaps: each node has a rank beside its place in the order, and
 * none has a higher rank than its parent.  A tree is as deep as the logarithm
 * of its size, times a small constant, if ranks are as good as random; they are
 * made of the tenant's secret, so that no client can choose them.  There are no
 * links to parents: every way begins at the root.
 *
 * Each node of the first two also knows the least kv_seq.since in its subtree,
 * so that who is resident for long is found among many who are not: by
 * way_settle(), whatever was on the way of a change, the lowest first.
 *
 * Whoever changes a priority, or since when, takes the sequence out of its trees
 * first.
 */
#include "kvmm/core/base/base.h"

/* seq_before() - does @a come first, to be admitted, and last as a victim? */
bool seq_before(const struct kv_seq *a, const struct kv_seq *b)
{
	if (a->priority != b->priority)
		return a->priority > b->priority;
	if (a->arrival != b->arrival)
		return a->arrival < b->arrival;
	return a < b;
}

/* order_rank() - the rank of a new sequence, in whatever tree it will be */
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

/* The longest way whose nodes know exactly who below them is the oldest. */
#define ORDER_DEEP	96u

/* The way that a change took through a tree, from the root. */
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

/* Something below the nodes of a way changed: the lowest first. */
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

/* Where the sequence is, or the first node of a lower rank on its way. */
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

/* order_add() - put a sequence that is not there into a tree */
void order_add(struct core *c, u32 *root, u32 i, u32 node)
{
	struct way w;	/* its nodes as they are noted */
	u32 *at = order_way(c, root, i, node, true, &w);
	u32 *low = &c->seqs[i].kid[node][0], *high = &c->seqs[i].kid[node][1];
	u32 n = *at;

	KV_BUG_ON(n == i);
	*at = i;
	way_note(&w, i);
	/* What was there comes below: what is before it, and what is after. */
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
	way_settle(c, &w, node);
}

/* order_del() - take a sequence out of the tree that it is in */
void order_del(struct core *c, u32 *root, u32 i, u32 node)
{
	struct way w;	/* its nodes as they are noted */
	u32 *at = order_way(c, root, i, node, false, &w);
	u32 low = c->seqs[i].kid[node][0], high = c->seqs[i].kid[node][1];

	KV_BUG_ON(*at != i);
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

/* order_end() - the first of a tree, or the last; CORE_NONE: it is empty */
u32 order_end(const struct core *c, u32 root, u32 node, bool last)
{
	u32 i = root;

	while (i != CORE_NONE && c->seqs[i].kid[node][last] != CORE_NONE)
		i = c->seqs[i].kid[node][last];
	return i;
}

/* order_prev() - who of the tree comes right before @s, which may be in it */
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

/* The last of the subtree at @i that is no younger; there is one. */
static u32 last_aged(const struct core *c, u32 i, u64 since)
{
	for (;;) {
		const struct kv_seq *s = &c->seqs[i];
		u32 later = s->kid[NODE_ORDER][1];

		if (oldest_of(c, later) <= since)
			i = later;
		else if (s->since <= since)
			return i;
		else
			i = s->kid[NODE_ORDER][0];
	}
}

/**
 * order_prev_aged() - who comes right before @s, of those no younger
 * @s:     may be in the tree; NULL: the last of all
 * @since: admitted, or waiting, since then or before
 *
 * Of a tree with NODE_ORDER's links.
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
