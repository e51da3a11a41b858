// SPDX-License-Identifier: Apache-2.0
/*
 * starve.c - the longest-waiting exception
 *
 * Admission preempts no sequence, so that running ones can finish.  But sequences
 * that run for ever could then keep others out for ever.  So the sequence that
 * waits longest over all domains takes a turn after starve_ns: a family that has
 * been resident for as long is preempted, one at a time in each tenant.  If its
 * own tenant has no such family, memory of another tenant is taken (displace.c).
 * Memory that is freed meanwhile is kept for this sequence.
 *
 * This file decides only: family_mark() takes the memory.
 */
#include "kvmm/core/reclaim/reclaim.h"

/* Multiple of starve_ns: not even overload explains so long a wait. */
#define STARVE_UNUSUAL		16

/* At most so many times that, for a domain whose weight is smaller. */
#define STARVE_WEIGHT		16u

#define WORK_AGED	16u	/* see core_work() */

/* Has @w waited past its time for memory of other domains? */
static bool starves(struct core *c, const struct kv_seq *w)
{
	return c->now - w->since >= core_cfg(c)->starve_ns && waiter_fits(c, w);
}

/*
 * The first waiting sequence of the domain that memory would help.  One that lacks
 * table pages waits for its own client: if others held back for it, those that hold
 * the pages could do so too, for ever.
 */
static struct kv_seq *waiter_to_help(const struct core *c, const struct kv_domain *d)
{
	u32 i;

	for (i = d->wait_head; i != CORE_NONE; i = c->seqs[i].next) {
		struct kv_seq *w = &c->seqs[i];

		if (!c->clients[w->client].nr_unacked && waiter_has_pages(c, w))
			return w;
	}
	return NULL;
}

/*
 * Has a sequence of @d waited so long that it goes before one of @than, which has
 * less of the surplus?  Under overload sequences are admitted by weight, so the
 * usual wait depends on the weight too.
 */
static bool wait_is_unusual(const struct core *c, const struct kv_domain *d,
			    const struct kv_domain *than, u64 waited)
{
	u32 times = DIV_ROUND_UP(than->weight, d->weight);

	return waited / STARVE_UNUSUAL / min(times, STARVE_WEIGHT) >=
	       core_cfg(c)->starve_ns;
}

/**
 * starved_waits() - does a starved sequence of another domain come before @s?
 *
 * Memory that is taken for the longest-waiting sequence, or given back meanwhile,
 * is for it: else sequences that need less would always come first.  But under
 * overload all sequences wait long, and the surplus goes by weight.  There a
 * domain with more of it than that of @s has this turn only after a wait that is
 * unusual even then.
 */
bool starved_waits(struct core *c, const struct kv_seq *s)
{
	u64 turn = limit_turn(seq_domain(c, s));
	/* A swapped-out sequence is always idle.  Was it before? */
	bool idle = (s->flags & SEQF_SWAPPED) &&
		    s->since >= s->active + core_cfg(c)->starve_ns;
	u32 i;

	for (i = 0; i < core_cfg(c)->max_domains; i++) {
		const struct kv_domain *d = &c->domains[i];
		const struct kv_seq *w;

		if (!d->used || i == s->domain || !domains_meet(d, seq_domain(c, s)))
			continue;
		w = waiter_to_help(c, d);
		if (!w || w->since >= s->since ||
		    (d->tenant == seq_domain(c, s)->tenant &&
		     w->priority < s->priority && !idle) ||
		    (limit_turn(d) > turn &&
		     !wait_is_unusual(c, d, seq_domain(c, s), c->now - w->since)))
			continue;
		if (starves(c, w)) {
			why_note(c, CORE_WAIT_longest, i);
			return true;
		}
	}
	return false;
}

/*
 * Should others hold back for the domain's first waiting sequence?  Not if it lets
 * another one go first itself: they would wait for each other.
 */
bool waiter_reachable(struct core *c, u32 dom)
{
	const struct kv_seq *w = waiter_to_help(c, &c->domains[dom]);

	return w && waiter_fits(c, w) && !starved_waits(c, w);
}

/* The best victim of a domain for @w that is past its residency. */
static struct kv_seq *aged_victim(struct core *c, const struct kv_domain *d,
				  const struct kv_seq *w)
{
	u64 time = core_cfg(c)->starve_ns;
	struct kv_seq *s = NULL;
	u32 i;

	if (c->now < time)
		return NULL;
	for (;;) {
		core_work(c, WORK_AGED);
		i = order_prev_aged(c, d->ready_root, s, c->now - time);
		if (i == CORE_NONE)
			return NULL;
		s = &c->seqs[i];
		KV_BUG_ON(!(s->flags & SEQF_IN_READY));
		KV_BUG_ON(seq_domain(c, s) != d);
		if (past_residency(c, s, w) &&
		    (d == seq_domain(c, w) || victim_may_lose(c, s)))
			return s;
	}
}

static struct kv_seq *victim_past_residency(struct core *c,
					    const struct kv_seq *w)
{
	struct kv_seq *best = NULL, *s;
	bool own_only = domain_limited(seq_domain(c, w), 1);
	u32 dom;

	for (dom = 0; dom < core_cfg(c)->max_domains; dom++) {
		const struct kv_domain *d = &c->domains[dom];

		/* With 0 blocks: a sequence with only a reservation may go. */
		if (!d->used || !domains_trade(d, seq_domain(c, w)) ||
		    (dom != w->domain &&
		     (own_only || !limit_may_lose(d, 0, true))))
			continue;
		s = aged_victim(c, d, w);
		if (s && (!best || victim_before(s, best)))
			best = s;
	}
	return best;
}

/*
 * Preempt a family for the sequence of the tenant that waits longest in a device
 * pool.  Sequences
 * for which there is no victim do not count.
 */
static void starve_tenant(struct core *c, u32 tenant, u32 zone)
{
	struct kv_seq *longest = NULL, *victim = NULL, *w, *v;
	u32 i;

	for_each_domain(c, i) {
		if (c->domains[i].tenant != tenant || !domain_is_in(&c->domains[i], zone))
			continue;
		w = next_waiter(c, &c->domains[i]);
		if (!w || c->now - w->since < core_cfg(c)->starve_ns ||
		    (longest && w->since >= longest->since) ||
		    victim_is_marked(c, &c->domains[i]))
			continue;
		v = victim_past_residency(c, w);
		if (v) {
			longest = w;
			victim = v;
		}
	}
	if (!victim)
		return;
	KV_BUG_ON(victim->state != KVMM_SEQ_READY);
	KV_BUG_ON(longest->flags & SEQF_RUNNING);
	oom_note(c, longest, waiter_blocks(c, longest), CORE_OOM_victim,
		 CORE_CAUSE_wait, victim);
	family_mark(c, victim, CORE_CAUSE_wait, longest);
	domain_kick(seq_domain(c, longest));
}

/*
 * Does @w wait only for memory that other tenants may lose?  A sequence that cannot
 * be helped must not delay those that wait after it.
 */
static bool starves_for_others(struct core *c, const struct kv_seq *w)
{
	return c->now - w->since >= core_cfg(c)->starve_ns &&
	       !seq_domain(c, w)->nr_revokes && waiter_could_use(c, w) &&
	       !victim_past_residency(c, w);
}

/*
 * With overcommit 2 a sequence may find room and still wait, because the running
 * sequences of other tenants commit to all that the limit of the node allows.  Then
 * memory does not help it: a family has to end its commitment.  Of the tenants that
 * have such a family, the domain with the largest share loses one.
 */
static void starve_commitment(struct core *c, struct kv_seq *w)
{
	struct kv_seq *victim = NULL, *v;
	u32 i;

	if (!commit_node_waits(c, seq_domain(c, w), seq_most(c, w)))
		return;
	for_each_neighbour(c, seq_domain(c, w), i) {
		const struct kv_domain *d = &c->domains[i];

		if (d->tenant == seq_domain(c, w)->tenant ||
		    victim_is_marked(c, d) || !limit_may_lose(d, 0, true))
			continue;
		v = aged_victim(c, d, w);
		if (v && (!victim || limit_share(d) >
				     limit_share(seq_domain(c, victim))))
			victim = v;
	}
	if (!victim)
		return;
	KV_BUG_ON(victim->state != KVMM_SEQ_READY);
	oom_note(c, w, waiter_blocks(c, w), CORE_OOM_victim, CORE_CAUSE_tenant,
		 victim);
	core_count(c, CORE_EV_revoke_preempt, 1);
	family_mark(c, victim, CORE_CAUSE_tenant, w);
}

/*
 * Blocks that an admission asks for: those of the sequence, about the min mark, and
 * for a restore one more (restore_wants()), as far as the domain can have so many.
 */
static u32 waiter_room(const struct core *c, const struct kv_seq *w)
{
	const struct kv_domain *d = seq_domain(c, w);
	u32 nr = waiter_blocks(c, w) + d->nr_running + !!(w->flags & SEQF_SWAPPED);

	return min(nr, domain_capacity(c, d));
}

/*
 * Of the sequences without a victim in their own tenant, the one that waits longest
 * takes runs of other tenants.
 */
static void starve_others(struct core *c, u32 zone)
{
	struct kv_seq *longest = NULL, *w;
	u32 i, lacks;

	for (i = 0; i < core_cfg(c)->max_domains; i++) {
		w = c->domains[i].used && domain_is_in(&c->domains[i], zone) ?
		    next_waiter(c, &c->domains[i]) : NULL;
		if (w && (!longest || w->since < longest->since) &&
		    starves_for_others(c, w))
			longest = w;
	}
	if (!longest)
		return;
	KV_BUG_ON(longest->flags & SEQF_RUNNING);
	lacks = room_lacks(c, seq_domain(c, longest), waiter_room(c, longest), 0);
	if (lacks && !victim_is_marked(c, seq_domain(c, longest)))
		(void)displace(c, longest, lacks, false);
	if (!lacks)
		starve_commitment(c, longest);
	domain_kick(seq_domain(c, longest));
}

/**
 * starve_check() - give the longest-waiting sequences a turn, after a bounded time
 *
 * In each tenant, preempts one family at a time, of any of its domains, that has
 * been resident for starve_ns.  Then one sequence of all tenants takes the runs
 * that it lacks from other tenants.
 */
void starve_check(struct core *c)
{
	u32 i, z;

	for (z = 0; z < c->head->nr_zones; z++) {
		for (i = 0; i < core_cfg(c)->max_tenants; i++)
			if (c->tenants[i].used)
				starve_tenant(c, i, z);
		if (c->head->nr_tenants > 1)
			starve_others(c, z);
	}
	/* Another sequence may have to go before a swapped-out one now. */
	for_each_domain(c, i)
		if (restore_waits(&c->domains[i]))
			domain_kick(&c->domains[i]);
}
