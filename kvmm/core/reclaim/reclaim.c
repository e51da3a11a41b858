// SPDX-License-Identifier: Apache-2.0
/*
 * reclaim.c - making room
 *
 * A domain gets room for @nr blocks from these sources, the cheapest first:
 *
 *	1. free blocks of its spans that no reservation holds
 *	2. free extents of the pool (memory may have to be made: wait for it)
 *	3. spans of cache of domains of its tenant, if that cache is cold or these
 *	   domains have clearly more than it by weight and price (limit_keeps())
 *	4. its own cache, blocks of least value first (lru.c)
 *	5. spans of other domains that hold nothing but cache; last those of other
 *	   tenants; their clients have to give them back first
 *	6. spans of other domains whose blocks fit into their other spans
 *	   (evacuate.c): wait for it
 *	7. for a running sequence: memory of another sequence
 *
 * Planning (room_plan) comes before evicting (room_evict), so that a request
 * that cannot be met costs no domain its cache.
 *
 * victim.c chooses the sequence of step 7; starve.c gives a sequence that waited
 * long a turn.
 */
#include "kvmm/core/reclaim/reclaim.h"

#define AHEAD_MAX	32u	/* runs taken ahead of need in one event */

/*
 * Could the domain have @nr blocks?  Takes nothing.  Scans all extents only if the
 * domain's own blocks are not enough.
 *
 * @back: takes the number of spans that other tenants have to give back for it
 */
static bool room_possible(struct core *c, u32 dom, u64 nr, u32 *back)
{
	const struct kv_domain *d = &c->domains[dom];
	u64 own = (u64)domain_slack(d) + room_coming(c, d) + domain_cached(d);
	u64 lacks;
	u32 runs;

	*back = 0;
	if (own >= nr)
		return true;
	lacks = DIV_ROUND_UP(nr - own, d->dev.span_blocks);
	runs = span_runs_possible(c, dom, back);
	if (lacks > runs)
		return false;
	*back -= min(runs - (u32)lacks, *back);
	return true;
}

/**
 * room_plan() - could the domain have @nr more unreserved free blocks?
 * @spare: cached blocks that are about to be mapped, so they cannot be evicted
 *
 * Takes free extents and spans of other domains as needed, and evicts none of
 * the domain's own cache.  While it waits for other tenants it takes spans of its
 * own tenant only if then nothing is lacking: else two such domains would take
 * each other's free spans at every event.
 * Return: ROOM_NOW: after room_evict(); ROOM_MADE, ROOM_MOVED, ROOM_NONE.
 */
enum verdict room_plan(struct core *c, u32 dom, u32 nr, u32 spare)
{
	struct kv_domain *d = &c->domains[dom];
	struct run_look look, kept;
	u32 back;

	c->taker = dom;
	if ((u64)domain_held(d) + spare + nr > d->dev.max_blocks) {
		d->nr_max_events++;
		core_tell(c, limit, .domain = dom, .mark = 0, .held = domain_held(d),
			  .blocks = nr + spare);
		return ROOM_NONE;
	}
	if (!room_possible(c, dom, (u64)nr + spare, &back))
		return evacuate_for(c, dom, nr + spare);
	look.nr = 0;
	kept.nr = 0;
	kept.next = 0;
	for (;;) {
		u64 slack = domain_slack(d);
		u64 coming = room_coming(c, d);

		if (slack >= nr)
			return ROOM_NOW;
		if (slack + coming < nr && extent_run_take(c, dom) >= 0)
			continue;
		/* Ask other tenants for all runs at once. */
		if (d->nr_revokes && slack + coming + domain_cached(d) <
		    (u64)nr + spare) {
			if (extent_run_take(c, dom) >= 0)
				continue;
			if (back && span_steal(c, dom, true, &look)) {
				back--;
				continue;
			}
		}
		/*
		 * If copies in flight free too few blocks, those of its other cache
		 * begin now, too.  Other domains give memory when the copies have ended:
		 * two that wait so would take the same spans from each other.
		 */
		if (coming && !d->dev.pending_spans && slack + coming < nr &&
		    slack + coming + domain_cached(d) >= (u64)nr + spare)
			return ROOM_NOW;
		if (coming)
			return ROOM_MADE;
		/* At a limit only the domain's own cache makes room. */
		if ((u64)domain_used(d) + d->dev.reserved + nr <=
		    min(d->dev.max_blocks, d->high_blocks) &&
		    span_steal_kept(c, dom, (u32)DIV_ROUND_UP(nr - slack,
					    d->dev.span_blocks), &kept))
			continue;
		if (slack + domain_cached(d) >= (u64)nr + spare)
			return ROOM_NOW;
		c->demoted = false;
		if (!span_steal(c, dom, back, &look))
			return c->demoted ? ROOM_MADE :
					    evacuate_for(c, dom, nr + spare);
		back -= min(back, 1u);
	}
}

/* room_is_wanted() - does the first waiting sequence of another domain lack room? */
bool room_is_wanted(const struct core *c, u32 dom)
{
	u32 i;

	for_each_neighbour(c, &c->domains[dom], i)
		if (i != dom && c->domains[i].stalled && c->domains[i].nr_waiting)
			return true;
	return false;
}

/*
 * Have memory made before running sequences ask for it, so that they seldom have to
 * wait until it is made.  Where a sequence of another domain waits for room, it may be
 * this memory that was freed for it.
 */
void room_ahead(struct core *c, u32 dom)
{
	const struct kv_domain *d = &c->domains[dom];
	const struct kv_part *p = &d->dev;
	u64 want = 2ull * d->nr_running;
	u32 n;

	if (room_is_wanted(c, dom))
		return;
	for (n = 0; n < AHEAD_MAX; n++) {
		u64 have = domain_slack(d) +
			   (u64)p->pending_spans * p->span_blocks;

		if (have >= want ||
		    part_used(p) + p->reserved + want > p->max_blocks ||
		    extent_run_take(c, dom) < 0)
			break;
	}
}

/*
 * Blocks of the tenant's other domains that are on their way to @dom, or could be:
 * in spans that are being emptied, free or cached blocks that the owner can spare
 * in any span, and blocks of marked sequences.
 */
static u32 promise_coming(const struct core *c, u32 dom)
{
	u32 i, nr = evacuations_on(c, dom, true) * c->domains[dom].dev.span_blocks;

	for_each_neighbour(c, &c->domains[dom], i) {
		const struct kv_domain *o = &c->domains[i];
		u32 have;

		if (i == dom || o->tenant != c->domains[dom].tenant)
			continue;
		have = domain_slack(o) + limit_cache_spare(o, 0);
		nr += have > o->nr_running ? have - o->nr_running : 0;
		nr += victim_blocks_marked(c, o);
	}
	return nr;
}

/**
 * room_for_min() - make room for an admission within memory.min
 * @want: waiting sequence; room_plan() said ROOM_NONE for the @nr blocks it needs
 *
 * memory.min promises the blocks, so families of other domains are preempted, of
 * any priority, as far as their own domains are not protected.  As many are
 * preempted at once as all waiting sequences within the promise need, for else
 * each would wait for another step to end.  If enough memory is coming and still
 * none of it fits together, one more family is preempted at a time.
 * Return: as room_plan(); ROOM_MADE also when spans of other tenants will come.
 */
enum verdict room_for_min(struct core *c, struct kv_seq *want, u32 nr, u32 spare)
{
	const struct kv_domain *d = seq_domain(c, want);
	bool marked = victim_is_marked(c, d);
	u32 lacks, coming, rank;
	enum verdict verdict;
	struct kv_seq *v;

	if (!limit_within_min(d, domain_held(d), nr) || !waiter_fits(c, want))
		return ROOM_NONE;
	KV_BUG_ON(want->flags & SEQF_RUNNING);
	lacks = room_lacks(c, d, promise_need(c, want->domain, nr), spare);
	coming = promise_coming(c, want->domain);
	for (;;) {
		while (!marked || coming < lacks) {
			v = victim_elsewhere(c, want, true, &rank);
			if (!v || victim_returns(c, v, want, coming >= lacks))
				break;
			KV_BUG_ON(v->domain == want->domain);
			KV_BUG_ON(v->state != KVMM_SEQ_READY);
			coming += family_size(c, v);
			marked = true;
			oom_note(c, want, nr, CORE_OOM_victim, CORE_CAUSE_min,
				 v);
			core_count(c, CORE_EV_preempt_min, 1);
			family_mark(c, v, CORE_CAUSE_min, want);
		}
		verdict = room_plan(c, want->domain, nr, spare);
		if (verdict != ROOM_NONE || victim_is_marked(c, d))
			return verdict;
		if (!marked)
			return displace(c, want, room_lacks(c, d, nr, spare),
					true);
		marked = false;
	}
}

/* Is the family of @s the only running one of its domain? */
static bool family_is_alone(const struct core *c, const struct kv_seq *s)
{
	u32 i = seq_domain(c, s)->run_head;

	for (; i != CORE_NONE; i = c->seqs[i].next)
		if (c->seqs[i].family != s->family)
			return false;
	return true;
}

/*
 * Does it help @s to be preempted itself?  Not if it is a family of one and alone
 * in its domain, unless it has been refused for longer than starve_ns: then it
 * joins the waiting sequences, where the longest-waiting exception will find it.
 */
static bool self_preempt_helps(const struct core *c, const struct kv_seq *s)
{
	if (s->fam_next != seq_index(c, s) || !family_is_alone(c, s))
		return true;
	return s->again && c->now - s->again > core_cfg(c)->starve_ns;
}

/**
 * room_preempt() - take memory from another family for a running sequence
 * @want: the sequence, which may become the victim itself
 * @nr:   blocks that it wants; room_plan() said ROOM_NONE
 *
 * Return: true: there is room now; false: there may be later, or @want was marked.
 */
bool room_preempt(struct core *c, struct kv_seq *want, u32 nr)
{
	enum verdict verdict;
	struct kv_seq *v;

	KV_BUG_ON(!(want->flags & SEQF_RUNNING));
	for (;;) {
		if (victim_is_marked(c, seq_domain(c, want)))
			return false;
		v = victim_choose(c, want, nr);
		if (!v) {
			bool itself = self_preempt_helps(c, want);

			oom_note(c, want, nr, itself ? CORE_OOM_itself :
				 CORE_OOM_refused, CORE_CAUSE_itself, NULL);
			if (itself)
				family_mark(c, want, CORE_CAUSE_itself, want);
			return false;
		}
		KV_BUG_ON(v->state != KVMM_SEQ_READY);
		KV_BUG_ON(v->family == want->family);
		oom_note(c, want, nr, CORE_OOM_victim, CORE_CAUSE_grow, v);
		family_mark(c, v, CORE_CAUSE_grow, want);
		verdict = room_plan(c, want->domain, nr, 0);
		if (verdict == ROOM_NOW)
			return room_evict(c, want->domain, nr) == ROOM_NOW;
		if (verdict != ROOM_NONE)
			return false;
	}
}

/* Best victim among the client's own sequences; NULL while one of them is marked. */
static struct kv_seq *victim_of_client(const struct core *c,
				       const struct kv_seq *want)
{
	const struct kv_client *cl = &c->clients[want->client];
	struct kv_seq *s = &c->seqs[want->client * core_cfg(c)->max_seqs];
	struct kv_seq *best = NULL;
	u32 i;

	for (i = 0; i < cl->max_seqs && !cl->nr_marked; i++, s++)
		if (s->state == KVMM_SEQ_READY && (!best || victim_before(s, best)))
			best = s;
	return best;
}

/**
 * pages_preempt() - make room for more entries of the tables of a sequence
 * @nr: number of entries, for each group
 *
 * Table pages belong to the client, so one of its own families is preempted:
 * else several families that each need one page more would wait for each other.
 * Return: true: the table may grow; false: it may later, or @want was marked.
 */
bool pages_preempt(struct core *c, struct kv_seq *want, const u32 *nr)
{
	while (!table_has_room(c, want, nr)) {
		struct kv_seq *v = victim_of_client(c, want);

		if (!v)
			return false;
		KV_BUG_ON(v->client != want->client);
		family_mark(c, v, CORE_CAUSE_table, want);
		if (v->family == want->family)
			return false;
	}
	return true;
}
