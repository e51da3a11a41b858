// SPDX-License-Identifier: Apache-2.0
/*
 * queue.c - the lists that a sequence is on
 *
 * A waiting sequence is on the wait list of its domain, by priority and then
 * by the daemon's own arrival stamp, and on a second list by the time since
 * which it waits.  A running sequence is on the run list.  A restoring sequence
 * is on the list of the lower-tier entry that it waits for.
 */
#include "kvmm/core/seq/seq.h"

/* ---- waiting and running ---- */

/* Enter the wait list at the place of its priority and arrival. */
static void wait_link(struct core *c, struct kv_seq *s)
{
	struct kv_domain *d = seq_domain(c, s);
	u32 i = seq_index(c, s);
	u32 after = order_prev(c, d->wait_root, s, NODE_ORDER);

	order_add(c, &d->wait_root, i, NODE_ORDER);
	s->prev = after;
	s->next = after == CORE_NONE ? d->wait_head : c->seqs[after].next;
	KV_BUG_ON(s->next == CORE_NONE ? d->wait_tail != after :
					       c->seqs[s->next].prev != after);
	KV_BUG_ON(s->next != CORE_NONE && !seq_before(s, &c->seqs[s->next]));
	if (s->prev == CORE_NONE)
		d->wait_head = i;
	else
		c->seqs[s->prev].next = i;
	if (s->next == CORE_NONE)
		d->wait_tail = i;
	else
		c->seqs[s->next].prev = i;
}

static void wait_unlink(struct core *c, struct kv_seq *s)
{
	struct kv_domain *d = seq_domain(c, s);

	order_del(c, &d->wait_root, seq_index(c, s), NODE_ORDER);
	list_del_idx(c->seqs, d->wait_head, d->wait_tail, seq_index(c, s));
}

/* Make a sequence wait from now on. */
void wait_add(struct core *c, struct kv_seq *s)
{
	struct kv_domain *d = seq_domain(c, s);
	u32 i = seq_index(c, s);

	KV_BUG_ON(s->flags & (SEQF_QUEUED | SEQF_RUNNING));
	KV_BUG_ON(d->age_tail != CORE_NONE &&
		  c->seqs[d->age_tail].age_next != CORE_NONE);
	wait_link(c, s);
	s->age_next = CORE_NONE;
	s->age_prev = d->age_tail;
	if (d->age_tail == CORE_NONE)
		d->age_head = i;
	else
		c->seqs[d->age_tail].age_next = i;
	d->age_tail = i;
	s->flags |= SEQF_QUEUED;
	d->nr_swapped += !!(s->flags & SEQF_SWAPPED);
	d->nr_waiting++;
	domain_kick(d);
	psi_task(c, s);
}

void wait_del(struct core *c, struct kv_seq *s)
{
	struct kv_domain *d = seq_domain(c, s);

	KV_BUG_ON(!(s->flags & SEQF_QUEUED) || !d->nr_waiting);
	KV_BUG_ON((s->flags & SEQF_SWAPPED) && !d->nr_swapped);
	KV_BUG_ON(s->age_prev == CORE_NONE ? d->age_head != seq_index(c, s) :
		  c->seqs[s->age_prev].age_next != seq_index(c, s));
	wait_unlink(c, s);
	if (s->age_prev == CORE_NONE)
		d->age_head = s->age_next;
	else
		c->seqs[s->age_prev].age_next = s->age_next;
	if (s->age_next == CORE_NONE)
		d->age_tail = s->age_prev;
	else
		c->seqs[s->age_next].age_prev = s->age_prev;
	s->flags &= ~SEQF_QUEUED;
	d->nr_swapped -= !!(s->flags & SEQF_SWAPPED);
	d->nr_waiting--;
	KV_BUG_ON((d->wait_head == CORE_NONE) != !d->nr_waiting);
	KV_BUG_ON((d->age_head == CORE_NONE) != !d->nr_waiting);
	domain_kick(d);
}

/* seq_set_priority() - change it, and the sequence's place in lists and trees */
void seq_set_priority(struct core *c, struct kv_seq *s, u32 priority)
{
	if (s->priority == priority)
		return;
	if (s->flags & SEQF_QUEUED) {
		wait_unlink(c, s);
		s->priority = priority;
		wait_link(c, s);
		domain_kick(seq_domain(c, s));
	} else {
		seq_untally(c, s);
		s->priority = priority;
		seq_tally(c, s);
	}
}

void run_add(struct core *c, struct kv_seq *s)
{
	struct kv_domain *d = seq_domain(c, s);
	u32 i = seq_index(c, s);

	KV_BUG_ON(s->flags & (SEQF_QUEUED | SEQF_RUNNING));
	list_add_tail_idx(c->seqs, d->run_head, d->run_tail, i);
	s->flags |= SEQF_RUNNING;
	d->nr_running++;
	seq_tally(c, s);
	/* Free blocks for its growth are no longer on their way to a promise. */
	core_kick_promised(c, s->domain);
}

void run_del(struct core *c, struct kv_seq *s)
{
	struct kv_domain *d = seq_domain(c, s);

	KV_BUG_ON(!(s->flags & SEQF_RUNNING) || !d->nr_running);
	list_del_idx(c->seqs, d->run_head, d->run_tail, seq_index(c, s));
	s->flags &= ~SEQF_RUNNING;
	d->nr_running--;
	d->touched = domain_zone(c, d)->touched;
	domain_kick(d);
	seq_tally(c, s);
	if (core_cfg(c)->overcommit == CORE_OVERCOMMIT_NEVER)
		core_kick(c);	/* other domains wait for its growth too */
	/* A restored sequence is spared for a while, and the victims behind it (reclaim.c). */
	if (s->flags & SEQF_PREEMPTED)
		core_kick_promised(c, s->domain);
	KV_BUG_ON((d->run_head == CORE_NONE) != !d->nr_running);
}

/* ---- restoring ---- */

/* Make a sequence wait for the block that gets the content of @entry. */
void fill_wait(struct core *c, struct kv_seq *s, u32 entry)
{
	u32 i = seq_index(c, s), *head = &c->entries_low[entry].waiters;

	KV_BUG_ON(s->fill_on != CORE_NONE);
	KV_BUG_ON(c->entries_low[entry].domain != s->domain);
	s->fill_on = entry;
	s->fill_prev = CORE_NONE;
	s->fill_next = *head;
	if (*head != CORE_NONE)
		c->seqs[*head].fill_prev = i;
	*head = i;
}

/* fill_wait_end() - the sequence no longer waits for a lower-tier entry */
void fill_wait_end(struct core *c, struct kv_seq *s)
{
	if (s->fill_on == CORE_NONE)
		return;
	KV_BUG_ON(s->fill_prev == CORE_NONE &&
		  c->entries_low[s->fill_on].waiters != seq_index(c, s));
	if (s->fill_prev != CORE_NONE)
		c->seqs[s->fill_prev].fill_next = s->fill_next;
	else
		c->entries_low[s->fill_on].waiters = s->fill_next;
	if (s->fill_next != CORE_NONE)
		c->seqs[s->fill_next].fill_prev = s->fill_prev;
	s->fill_on = CORE_NONE;
}
