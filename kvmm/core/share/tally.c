// SPDX-License-Identifier: Apache-2.0
/*
 * tally.c - sums over running sequences
 *
 * Admissions and grants need to know how much the running sequences of a domain
 * or client have reserved and may soon take, and which of them comes first.
 * The cost of that must not grow with the number of sequences.  So the part of
 * each sequence is added when it begins to run, and corrected when one of the
 * facts behind it has changed:
 *
 *	kv_client.promised	table pages that are reserved with blocks
 *	kv_client.nr_marked	marked sequences: victims with open steps
 *	kv_domain.soon		blocks that sequences may take, see wmark.c
 *	kv_domain.growth	blocks that tables can still grow by, see commit.c
 *	the trees of order.c	READY sequences, and those refused growth
 *
 * A sequence stores its own part (kv_seq.in_*).  seq_tally() computes it again
 * and applies the difference.  Call it after each change of state, table
 * length, reservation, cover or refusal, before the next use of a sum.  check.c
 * adds the parts up anew.
 *
 * A refusal that is over stays in its tree.  It is removed when it comes first
 * there (growth_waits()).
 */
#include "kvmm/core/share/share.h"

static void tally_node(struct core *c, struct kv_seq *s, u32 *root, u32 node,
		       u32 flag, bool in)
{
	if (!(s->flags & flag) == !in)
		return;
	KV_BUG_ON(node == NODE_ORDER && (s->flags & SEQF_QUEUED));
	s->flags ^= flag;
	if (in)
		order_add(c, root, seq_index(c, s), node);
	else
		order_del(c, root, seq_index(c, s), node);
}

/* Was the sequence refused growth less than starve_ns ago? */
bool seq_is_refused(const struct core *c, const struct kv_seq *s)
{
	return s->refused && c->now - s->refused < core_cfg(c)->starve_ns;
}

/**
 * seq_tally() - a fact changed that the part of a sequence depends on
 */
void seq_tally(struct core *c, struct kv_seq *s)
{
	struct kv_client *cl = &c->clients[s->client];
	struct kv_domain *d = seq_domain(c, s);
	bool resident = s->flags & SEQF_RUNNING;
	bool ready = resident && s->state == KVMM_SEQ_READY;
	u32 pages = resident ? table_promised(c, s) : 0;
	u32 growth = resident ? commit_growth(c, s) : 0;
	u32 soon = resident ? wmark_seq(c, s) : 0;
	bool marked = resident && s->state == KVMM_SEQ_MARKED;

	KV_BUG_ON(cl->promised < s->in_pages || d->soon < s->in_soon);
	KV_BUG_ON(cl->nr_marked < s->in_marked);
	KV_BUG_ON(s->domain != cl->domain || soon > 2 * d->widths);
	KV_BUG_ON(d->growth < s->in_growth);
	/* A reserved block waits for the copy of its tail. */
	KV_BUG_ON((s->flags & SEQF_COPY) && !s->tab.reserved);
	d->growth += growth - s->in_growth;
	s->in_growth = growth;
	cl->promised += pages - s->in_pages;
	s->in_pages = pages;
	d->soon += soon - s->in_soon;
	s->in_soon = soon;
	cl->nr_marked += (u32)marked - s->in_marked;
	s->in_marked = marked;
	KV_BUG_ON(d->soon > 2 * (u64)d->nr_running * d->widths);
	KV_BUG_ON(d->nr_marked < s->in_marked);
	tally_node(c, s, &d->ready_root, NODE_ORDER, SEQF_IN_READY, ready);
	/* An old refusal is not removed here: see growth_waits(). */
	tally_node(c, s, &d->refused_root, NODE_REFUSED, SEQF_IN_REFUSED,
		   ready && s->refused && ((s->flags & SEQF_IN_REFUSED) ||
					   seq_is_refused(c, s)));
}

/* seq_untally() - remove from all trees, before the priority changes */
void seq_untally(struct core *c, struct kv_seq *s)
{
	struct kv_domain *d = seq_domain(c, s);

	tally_node(c, s, &d->ready_root, NODE_ORDER, SEQF_IN_READY, false);
	tally_node(c, s, &d->refused_root, NODE_REFUSED, SEQF_IN_REFUSED,
		   false);
}
