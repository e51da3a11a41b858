// SPDX-License-Identifier: Apache-2.0
/*
 * tally.c - what is known of all residents without asking each
 *
 * Admissions and grants ask what the residents of a domain or of a client were
 * promised, may soon take, and who of them goes first.  None of that may cost
 * more where there are more of them.  So each resident's part is added when it
 * becomes one, and corrected when what it follows from has changed:
 *
 *	kv_client.promised	table pages that were promised with blocks
 *	kv_client.nr_marked	victims whose steps are open
 *	kv_domain.soon		blocks that residents may take, see wmark.c
 *	the trees of order.c	who is READY, and who of them was refused growth
 *
 * A sequence's own part is kept in it (kv_seq.in_*), so that nobody needs to
 * know what it was before: seq_tally() works it out again and applies the
 * difference.  It is to be called after a change of state, table length,
 * promise, cover or refusal, before anybody asks; check.c adds up anew.
 *
 * Nobody takes a refusal out of the tree when its time is over: that is done
 * when it comes first there (growth_waits()).
 */
#include "kvmm/core/share/share.h"

static void tally_node(struct core *c, struct kv_seq *s, u32 *root, u32 node,
		       u32 flag, bool in)
{
	if (!(s->flags & flag) == !in)
		return;
	s->flags ^= flag;
	if (in)
		order_add(c, root, seq_index(c, s), node);
	else
		order_del(c, root, seq_index(c, s), node);
}

/* Was it refused growth, not long ago? */
bool seq_is_refused(const struct core *c, const struct kv_seq *s)
{
	return s->refused && c->now - s->refused < core_cfg(c)->starve_ns;
}

/**
 * seq_tally() - something changed that a resident's part follows from
 */
void seq_tally(struct core *c, struct kv_seq *s)
{
	struct kv_client *cl = &c->clients[s->client];
	struct kv_domain *d = seq_domain(c, s);
	bool resident = s->flags & SEQF_RUNNING;
	bool ready = resident && s->state == KVMM_SEQ_READY;
	u32 pages = resident ? table_promised(s) : 0;
	u32 soon = resident ? wmark_seq(c, s) : 0;
	bool marked = resident && s->state == KVMM_SEQ_MARKED;

	cl->promised += pages - s->in_pages;
	s->in_pages = pages;
	d->soon += soon - s->in_soon;
	s->in_soon = (u8)soon;
	cl->nr_marked += (u32)marked - s->in_marked;
	s->in_marked = marked;
	tally_node(c, s, &d->ready_root, NODE_ORDER, SEQF_IN_READY, ready);
	/* Out of it nobody is taken for being late: see growth_waits(). */
	tally_node(c, s, &d->refused_root, NODE_REFUSED, SEQF_IN_REFUSED,
		   ready && s->refused && ((s->flags & SEQF_IN_REFUSED) ||
					   seq_is_refused(c, s)));
}

/* seq_untally() - its priority is about to change: out of all trees */
void seq_untally(struct core *c, struct kv_seq *s)
{
	struct kv_domain *d = seq_domain(c, s);

	tally_node(c, s, &d->ready_root, NODE_ORDER, SEQF_IN_READY, false);
	tally_node(c, s, &d->refused_root, NODE_REFUSED, SEQF_IN_REFUSED,
		   false);
}
