// SPDX-License-Identifier: Apache-2.0
/*
 * victim.c - the family that loses its memory for a sequence
 *
 * A victim is a whole family: a kernel cannot fault, so part of a sequence is
 * of no use.  The family of the lowest priority goes first, of equal priority
 * the latest arrival.  Victims of the wanting domain go first, because it can use
 * their blocks at once, unless another domain is above its memory.high or has
 * clearly the larger share of the surplus (limit.c).  Of other domains those above
 * memory.low go first, and no family that memory.min protects.  No family that
 * comes before the wanting one is preempted for it: then the wanting family itself
 * is the victim.  Only for memory that its own memory.min promises may a domain
 * take any family.  A victim in an open step is marked, and its memory comes when
 * the step ends.  Until then no other family is marked for the same tenant: every
 * step would otherwise mark one more.  For memory.min as many families as needed
 * are marked at once (reclaim.c).
 *
 * A victim is swapped out if a tier has room and that pays, see swap.c.  Else it
 * is recomputed: its sealed blocks stay in the index as cache, and the client
 * computes those again that are evicted meanwhile.
 */
#include "kvmm/core/reclaim/reclaim.h"

/* A step that is open longer than this is not expected to end soon. */
#define SLOW_STEP_NS	1000000000ull

/* A restored sequence may run so many times as long, to get on from where it was. */
#define RESTORE_PATIENCE	8

/* Is @a the better victim? */
bool victim_before(const struct kv_seq *a, const struct kv_seq *b)
{
	if (a->priority != b->priority)
		return a->priority < b->priority;
	return a->arrival > b->arrival;
}

/* Best victim among the domain's resident sequences. */
static struct kv_seq *victim_of(const struct core *c, const struct kv_domain *d)
{
	u32 i = order_end(c, d->ready_root, NODE_ORDER, true);

	KV_BUG_ON(i != CORE_NONE && c->seqs[i].state != KVMM_SEQ_READY);
	KV_BUG_ON(i != CORE_NONE && &c->domains[c->seqs[i].domain] != d);
	return i == CORE_NONE ? NULL : &c->seqs[i];
}

/*
 * Blocks that the domain of @s loses without its family, or more than that: a block
 * that members share counts once, even if other families share it too.
 */
u32 family_size(const struct core *c, const struct kv_seq *s)
{
	u32 first = seq_index(c, s), nr = seq_live(c, s), i, n;
	const struct kv_tab *t;

	for (i = s->fam_next; i != first; i = c->seqs[i].fam_next) {
		const struct kv_seq *m = &c->seqs[i];

		KV_BUG_ON(m->family != s->family);
		KV_BUG_ON(c->seqs[m->fam_prev].fam_next != i);
		if (m->state != KVMM_SEQ_READY && m->state != KVMM_SEQ_MARKED)
			continue;
		for_each_pte(c, m, t, n)
			if (c->blocks[table_get(c, t, n)].nr_map == 1)
				nr++;
	}
	return nr;
}

/* Victims of other domains are taken in this order. */
enum victim_rank {
	RANK_HIGH,		/* its domain is above memory.high */
	RANK_SURPLUS,		/* above its memory.low */
	RANK_LOW,		/* above its memory.min */
	RANK_NEVER,
};

/* Blocks that the domain loses with its marked sequences. */
u32 victim_blocks_marked(const struct core *c, const struct kv_domain *d)
{
	u32 i, nr = 0;

	for (i = d->nr_marked ? d->run_head : CORE_NONE; i != CORE_NONE;
	     i = c->seqs[i].next)
		if (c->seqs[i].state == KVMM_SEQ_MARKED)
			nr += seq_live(c, &c->seqs[i]);
	return nr;
}

/* Rank of the family of @s.  @more: blocks that its domain loses besides. */
static u32 victim_rank(const struct core *c, const struct kv_seq *s, u32 more)
{
	const struct kv_domain *d = seq_domain(c, s);
	u32 nr = d->emin || d->elow ? family_size(c, s) + more : 0;

	if (!limit_may_lose(d, nr, true))
		return RANK_NEVER;
	if (!limit_may_lose(d, nr, false))
		return RANK_LOW;
	return limit_above_high(d) ? RANK_HIGH : RANK_SURPLUS;
}

/* May other domains take the family's memory at all? */
bool victim_may_lose(const struct core *c, const struct kv_seq *s)
{
	return victim_rank(c, s, 0) != RANK_NEVER;
}

/*
 * Has @s been resident for long enough to give way to @w?  A sequence of higher
 * priority gives way only if it is idle.  A sequence that came back gets longer
 * until it has more tokens than it ever lost: else two that take turns could compute
 * the same tokens for ever.  From then on it has at least as long as its return took:
 * else most of the time could go by with blocks that are copied in and out.
 */
static bool past_residency_at(const struct core *c, const struct kv_seq *s,
			      const struct kv_seq *w, u64 now)
{
	u64 time = core_cfg(c)->starve_ns, from = s->since;

	if (s->state != KVMM_SEQ_READY)
		return false;
	/* Priorities count within a tenant only: any client may give any number. */
	if (seq_domain(c, s)->tenant == seq_domain(c, w)->tenant &&
	    s->priority > w->priority && now < s->active + time)
		return false;
	if (s->flags & SEQF_PREEMPTED) {
		if (!s->back)
			return now >= from + RESTORE_PATIENCE * time;
		from = s->back;
	}
	return now >= from + max(time, from - s->admitted);
}

bool past_residency(const struct core *c, const struct kv_seq *s,
		    const struct kv_seq *w)
{
	return past_residency_at(c, s, w, c->now);
}

/*
 * The same as of the last tick.  An admission asks this: its answer then changes
 * only with an event or a tick, and both have the waiting sequence tried again.
 */
bool past_residency_ticked(const struct core *c, const struct kv_seq *s,
			   const struct kv_seq *w)
{
	return past_residency_at(c, s, w, c->head->ticked);
}

/*
 * Would preempting @v for memory.min lead to nothing?  It came back a short while
 * ago, and either enough memory is @coming without it, or the memory.min of its own
 * domain lets it come back in the same event: then it would be preempted and
 * restored at every event.
 */
bool victim_returns(const struct core *c, const struct kv_seq *v,
		    const struct kv_seq *want, bool coming)
{
	const struct kv_domain *d = seq_domain(c, v);
	u32 held = domain_held(d);

	/* Its blocks stay as cache, which no longer counts as held. */
	held -= min(held, family_size(c, v));
	return (v->flags & SEQF_PREEMPTED) && !past_residency_ticked(c, v, want) &&
	       (coming || limit_within_min(d, held, 1));
}

/*
 * Best victim of the tenant's other domains: one that comes after @want, or any if
 * @promised.  Memory of other tenants comes in runs: see displace.c.
 */
struct kv_seq *victim_elsewhere(const struct core *c,
				       const struct kv_seq *want, bool promised,
				       u32 *rank)
{
	struct kv_seq *best = NULL, *s;
	u32 i, r;

	*rank = RANK_NEVER;
	for (i = 0; i < core_cfg(c)->max_domains; i++) {
		if (i == want->domain || !c->domains[i].used ||
		    !domains_trade(&c->domains[i], seq_domain(c, want)))
			continue;
		s = victim_of(c, &c->domains[i]);
		if (!s || (!promised && !victim_before(s, want)))
			continue;
		r = victim_rank(c, s, promised ?
				victim_blocks_marked(c, &c->domains[i]) : 0);
		if (r < *rank || (best && r == *rank && victim_before(s, best))) {
			best = s;
			*rank = r;
		}
	}
	return best;
}

/*
 * Is memory of a marked family about to come?  Not if its client has been in a step
 * for long: it may have stopped, and no sequence is to wait for it alone.
 */
static bool marked_soon(const struct core *c, u32 dom)
{
	struct kv_step_entry *e;
	u32 i;

	for (i = 0; i < core_cfg(c)->max_clients; i++)
		if (c->clients[i].nr_marked && c->clients[i].domain == dom &&
		    c->now - step_at(c, i, 0, &e)->begun < SLOW_STEP_NS)
			return true;
	return false;
}

/* Is a family marked, of a domain of @d's tenant and device pool? */
bool victim_is_marked(const struct core *c, const struct kv_domain *d)
{
	u32 i;

	for (i = 0; i < core_cfg(c)->max_domains; i++)
		if (c->domains[i].nr_marked && domains_trade(&c->domains[i], d) &&
		    marked_soon(c, i))
			return true;
	return false;
}

/* The first sequence of the domain that was refused growth a short while ago. */
static const struct kv_seq *refused_first(struct core *c, struct kv_domain *d)
{
	u32 i;

	while ((i = order_end(c, d->refused_root, NODE_REFUSED, false)) !=
	       CORE_NONE && !seq_is_refused(c, &c->seqs[i])) {
		KV_BUG_ON(!(c->seqs[i].flags & SEQF_IN_REFUSED));
		order_del(c, &d->refused_root, i, NODE_REFUSED);
		c->seqs[i].flags &= ~SEQF_IN_REFUSED;
	}
	return i == CORE_NONE ? NULL : &c->seqs[i];
}

/**
 * growth_waits() - does a running sequence before @s wait for memory?
 *
 * Memory of a victim is for the sequence that it was taken for.  If waiting
 * sequences, the victim first of all, were admitted into it, neither would
 * ever get on.  A sequence whose client does not ask again delays others for
 * starve_ns at most; one that memory.max of its own domain stops delays no other
 * domain.
 */
bool growth_waits(struct core *c, const struct kv_seq *s)
{
	const struct kv_domain *d = seq_domain(c, s);
	const struct kv_seq *r;
	u32 i;

	for_each_domain(c, i) {
		struct kv_domain *o = &c->domains[i];

		if (!domains_trade(o, d) ||
		    (o != d && domain_limited(o, 1)))
			continue;
		r = refused_first(c, o);
		if (r && victim_before(s, r)) {
			why_note(c, CORE_WAIT_growth, i);
			return true;
		}
	}
	return false;
}

/* Has @other clearly more than its part of the surplus, beside @d? */
static bool has_more(const struct kv_domain *other, const struct kv_domain *d)
{
	u64 span = other->dev.span_blocks * other->dev.block_bytes >> 10;

	return limit_share(other) > limit_share(d) / 8 * 9 + 2 * span;
}

struct kv_seq *victim_choose(const struct core *c,
				    const struct kv_seq *want, u32 nr)
{
	const struct kv_domain *d = seq_domain(c, want);
	bool promised = limit_within_min(d, domain_held(d), nr);
	struct kv_seq *own = victim_of(c, d), *other;
	u32 rank;

	if (own && own->family == want->family)
		own = NULL;
	if (domain_limited(d, nr))
		return own;
	other = victim_elsewhere(c, want, promised, &rank);
	if (!other || !own)
		return other ? other : own;
	if (promised || (rank == RANK_HIGH && !limit_above_high(d)) ||
	    (rank == RANK_SURPLUS && has_more(seq_domain(c, other), d)))
		return other;
	return own;
}

/**
 * victim_why() - why is the best victim of a domain taken, or not?
 * @o:     the request and its outcome
 * @taken: the victim, or NULL
 * @s:     takes the domain's candidate; NULL: there is none
 *
 * Repeats the tests of victim_choose() and the other choosers, and answers in the
 * words of a report.
 * Return: CORE_OOM_WHY_*.
 */
u32 victim_why(const struct core *c, const struct core_oom_view *o,
	       const struct kv_seq *want, const struct kv_seq *taken, u32 dom,
	       const struct kv_seq **s)
{
	const struct kv_domain *d = &c->domains[dom];
	const struct kv_domain *own = seq_domain(c, want);
	bool promised = limit_within_min(own, domain_held(own), o->want);

	*s = taken && taken->domain == dom ? taken : victim_of(c, d);
	if (!*s)
		return CORE_OOM_WHY_none;
	if (*s == taken)
		return CORE_OOM_WHY_taken;
	if ((*s)->family == want->family)
		return CORE_OOM_WHY_asks;
	if (o->outcome == CORE_OOM_failed)
		return CORE_OOM_WHY_size;
	if (d->tenant != own->tenant)
		return CORE_OOM_WHY_foreign;
	if (d != own && domain_limited(own, o->want))
		return CORE_OOM_WHY_max;
	if (o->cause == CORE_CAUSE_min && d == own)
		return CORE_OOM_WHY_own;
	if (o->cause == CORE_CAUSE_wait)
		return past_residency(c, *s, want) ? CORE_OOM_WHY_later :
						     CORE_OOM_WHY_recent;
	if (d != own && !promised && !victim_before(*s, want))
		return CORE_OOM_WHY_before;
	if (d != own && victim_rank(c, *s, promised ?
				    victim_blocks_marked(c, d) : 0) == RANK_NEVER)
		return CORE_OOM_WHY_protected;
	return CORE_OOM_WHY_later;
}
