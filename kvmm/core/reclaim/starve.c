// SPDX-License-Identifier: Apache-2.0
/*
 * starve.c - the longest-waiting exception
 *
 * Admission preempts nobody, so that what runs can finish; but then sequences
 * that run for ever could keep others out for ever.  So whoever waits longest
 * over all domains takes a turn after a bounded time, starve_ns: one family
 * that has been resident for as long gives way, one at a time in each tenant;
 * if its own tenant has none, memory of another's (displace.c).  What is freed
 * meanwhile is kept for the one that it was taken for.
 *
 * Decides only: family_mark() takes.
 */
#include "kvmm/core/reclaim/reclaim.h"

/* Times starve_ns: a wait that not even overload explains. */
#define STARVE_UNUSUAL		16

/* Times that, at most, where the others' weight is so many times as large. */
#define STARVE_WEIGHT		16u

#define WORK_AGED	16u	/* see core_work() */

/* Does @w wait past its time for what other domains hold? */
static bool starves(struct core *c, const struct kv_seq *w)
{
	return c->now - w->since >= core_cfg(c)->starve_ns && waiter_fits(c, w);
}

/*
 * Did somebody of @d wait so long that it goes before @than, which has less of
 * the surplus?  A queue moves by weight where all want more than there is, so
 * what is usual there goes by weight too.
 */
static bool wait_is_unusual(const struct core *c, const struct kv_domain *d,
			    const struct kv_domain *than, u64 waited)
{
	u32 times = DIV_ROUND_UP(than->weight, d->weight);

	return waited / STARVE_UNUSUAL / min(times, STARVE_WEIGHT) >=
	       core_cfg(c)->starve_ns;
}

/**
 * starved_waits() - does another domain's sequence starve that comes before?
 *
 * What is taken for the longest waiter, and what is given back meanwhile, is
 * for it: else others who need less would always be there first.  But where all
 * want more than there is everybody waits long; there the surplus goes by
 * weight, and who has more of it than @s only has this turn after a time that
 * is not usual even then.
 */
bool starved_waits(struct core *c, const struct kv_seq *s)
{
	u64 turn = limit_turn(seq_domain(c, s));
	/* Out it cannot be anything but idle; was it when it was taken? */
	bool idle = (s->flags & SEQF_SWAPPED) &&
		    s->since >= s->active + core_cfg(c)->starve_ns;
	u32 i;

	for (i = 0; i < core_cfg(c)->max_domains; i++) {
		const struct kv_domain *d = &c->domains[i];
		const struct kv_seq *w;

		if (!d->used || i == s->domain)
			continue;
		w = first_waiter(c, d);
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
 * Is the domain's first waiter one for whom others should hold back?  Not if it
 * steps aside itself: they would wait for each other.
 */
bool waiter_reachable(struct core *c, u32 dom)
{
	const struct kv_seq *w = first_waiter(c, &c->domains[dom]);

	return w && waiter_fits(c, w) && !starved_waits(c, w);
}

/* The best victim of a domain who had its time, for @w. */
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

		/* Who has a promise alone may go where nothing else may. */
		if (!d->used || d->tenant != seq_domain(c, w)->tenant ||
		    (dom != w->domain &&
		     (own_only || !limit_may_lose(d, 0, true))))
			continue;
		s = aged_victim(c, d, w);
		if (s && (!best || victim_before(s, best)))
			best = s;
	}
	return best;
}

/* Who waits longest among those for whom there is a victim. */
static void starve_tenant(struct core *c, u32 tenant)
{
	struct kv_seq *longest = NULL, *victim = NULL, *w, *v;
	u32 i;

	if (victim_is_marked(c, tenant))
		return;
	for_each_domain(c, i) {
		if (c->domains[i].tenant != tenant)
			continue;
		w = first_waiter(c, &c->domains[i]);
		if (!w || c->now - w->since < core_cfg(c)->starve_ns ||
		    (longest && w->since >= longest->since))
			continue;
		v = victim_past_residency(c, w);
		if (v) {
			longest = w;
			victim = v;
		}
	}
	if (!victim)
		return;
	oom_note(c, longest, waiter_blocks(c, longest), CORE_OOM_victim,
		 CORE_CAUSE_wait, victim);
	family_mark(c, victim, CORE_CAUSE_wait, longest);
	domain_kick(seq_domain(c, longest));
}

/*
 * Does it wait for nothing but memory of others, which they may lose?  One that
 * nobody can help must not stand in the way of those who wait after it.
 */
static bool starves_for_others(struct core *c, const struct kv_seq *w)
{
	return c->now - w->since >= core_cfg(c)->starve_ns &&
	       !seq_domain(c, w)->nr_revokes && waiter_could_use(c, w) &&
	       !victim_past_residency(c, w);
}

/*
 * Who waits longest of those who find no victim in their own tenant takes runs
 * of others.
 */
static void starve_others(struct core *c)
{
	struct kv_seq *longest = NULL, *w;
	u32 i, lacks;

	for (i = 0; i < core_cfg(c)->max_domains; i++) {
		w = c->domains[i].used ? first_waiter(c, &c->domains[i]) : NULL;
		if (w && (!longest || w->since < longest->since) &&
		    starves_for_others(c, w))
			longest = w;
	}
	if (!longest)
		return;
	lacks = room_lacks(c, seq_domain(c, longest), waiter_blocks(c, longest) +
			   seq_domain(c, longest)->nr_running, 0);
	if (lacks && !victim_is_marked(c, seq_domain(c, longest)->tenant))
		(void)displace(c, longest, lacks, false);
	domain_kick(seq_domain(c, longest));
}

/**
 * starve_check() - let whoever waits longest take a turn, after a bounded time
 *
 * One family at a time in each tenant, of any of its domains, that has been
 * resident for starve_ns; then one sequence of all tenants takes what it lacks
 * from others.
 */
void starve_check(struct core *c)
{
	u32 i;

	for (i = 0; i < core_cfg(c)->max_tenants; i++)
		if (c->tenants[i].used)
			starve_tenant(c, i);
	if (c->head->nr_tenants > 1)
		starve_others(c);
	/* Somebody's turn before a swapped sequence may have come. */
	for_each_domain(c, i)
		if (restore_waits(&c->domains[i]))
			domain_kick(&c->domains[i]);
}
