// SPDX-License-Identifier: Apache-2.0
/*
 * reclaim.c - making room, choosing victims
 *
 * Room for @nr blocks of a domain is looked for in this order, which is also
 * the order of what it costs:
 *
 *	1. free blocks of its spans that no reservation holds
 *	2. free extents of the pool (memory may have to be made: wait for it)
 *	3. its own cache, what is worth least first (lru.c)
 *	4. spans of other domains that hold nothing but cache; of other tenants,
 *	   whose clients have to give them back first, last
 *	5. spans of other domains whose blocks fit into their other spans
 *	   (evacuate.c): wait for it
 *	6. for a sequence that runs: another sequence's memory
 *
 * Planning (room_plan) comes before evicting (room_evict), so that a request
 * which cannot be met costs nobody its cache.
 *
 * A victim is a whole family: a kernel cannot fault, so part of a sequence is
 * worth nothing.  Victims go by lowest priority, then latest arrival, of the
 * wanting domain first, because their blocks can be used at once, unless
 * another domain is above its memory.high or has clearly the larger share of
 * the surplus (limit.c); then of others, those above memory.low first, and
 * none that memory.min protects.  Nothing that comes before the wanting family
 * is taken for it: then that family itself is the victim.  Only what a domain
 * was promised by its own memory.min it gets from anybody.  A victim in an open
 * step is marked, its memory comes when the step ends, and until then nobody
 * else is marked for the same domain: every step would otherwise mark one more.
 *
 * A victim is swapped if a tier has room and that pays, see swap.c.  Else it is
 * recomputed: sealed blocks stay in the index as cache, and the client computes
 * again what is evicted meanwhile.
 */
#include "kvmm/core/internal.h"

/* Residencies that a restored sequence has to get on from where it was. */
#define RESTORE_PATIENCE	8

/* Times starve_ns: a wait that not even overload explains. */
#define STARVE_UNUSUAL		16

/* A step open longer than this is not counted on to end soon. */
#define SLOW_STEP_NS	1000000000ull

u32 domain_slack(const struct kv_domain *d)
{
	KV_BUG_ON(domain_free(d) < d->reserved);
	return domain_free(d) - d->reserved;
}

/* Blocks in use that no eviction would give back, and promised ones. */
u32 domain_held(const struct kv_domain *d)
{
	return domain_used(d) - d->nr[BLK_CACHED] + d->reserved;
}

/* Blocks that will be free soon, by themselves. */
u32 room_coming(const struct core *c, const struct kv_domain *d)
{
	u64 made = (u64)d->pending_spans * d->span_blocks;
	u32 leaving = d->nr[BLK_LIMBO] > d->nr_filling ?
		      d->nr[BLK_LIMBO] - d->nr_filling : 0;

	return (u32)min(made + leaving, 0x7fffffffull);
}

/*
 * What cannot be met takes nothing from anybody.  Looking at all extents is
 * for when the domain's own does not suffice.
 */
static bool room_possible(struct core *c, u32 dom, u64 nr)
{
	const struct kv_domain *d = &c->domains[dom];
	u64 own = (u64)domain_slack(d) + room_coming(c, d) + domain_cached(d);

	return own >= nr || own + (u64)span_runs_possible(c, dom) *
				  d->span_blocks >= nr;
}

/**
 * room_plan() - could the domain have @nr more unreserved free blocks?
 * @spare: cached blocks that are about to be mapped: not to be counted on
 *
 * Takes free extents and other domains' spans as needed, evicts nothing of
 * the domain's own.
 * Return: 0: yes, after room_evict(); -EINPROGRESS: memory is being made;
 * -EALREADY: a span of another domain is being emptied for this one; -EAGAIN:
 * no.
 */
int room_plan(struct core *c, u32 dom, u32 nr, u32 spare)
{
	struct kv_domain *d = &c->domains[dom];

	if ((u64)domain_held(d) + spare + nr > d->max_blocks) {
		d->nr_max_events++;
		return -EAGAIN;
	}
	if (!room_possible(c, dom, (u64)nr + spare))
		return evacuate_for(c, dom, nr + spare);
	for (;;) {
		u64 slack = domain_slack(d);
		u64 coming = room_coming(c, d);

		if (slack >= nr)
			return 0;
		if (slack + coming < nr && extent_run_take(c, dom) >= 0)
			continue;
		/* What is asked back from others is asked back at once. */
		if (d->nr_revokes && slack + coming + domain_cached(d) <
		    (u64)nr + spare && span_steal(c, dom))
			continue;
		if (coming)
			return -EINPROGRESS;
		if (slack + domain_cached(d) >= (u64)nr + spare)
			return 0;
		if (!span_steal(c, dom))
			return evacuate_for(c, dom, nr + spare);
	}
}

/* What goes next; in spans that are to go only if its end is all that counts. */
static u32 evict_next(const struct core *c, u32 dom, bool any)
{
	u32 i = lru_next(c, dom);

	while (!any && i != CORE_NONE &&
	       span_is_isolated(&c->spans[block_span(c, i)]))
		i = lru_after(c, i);
	return i;
}

/**
 * room_evict() - drop cache of the domain until @nr blocks are free
 *
 * Also keeps what is used, promised and wanted together within memory.max, and
 * within memory.high as far as cache goes.
 * Return: 0, or -EAGAIN when the cache was not enough.
 */
int room_evict(struct core *c, u32 dom, u32 nr)
{
	struct kv_domain *d = &c->domains[dom];
	u32 mark = min(d->max_blocks, d->high_blocks), blk;

	/* A span that falls empty now is wanted, not to be given away. */
	d->keep_spans = 1;
	for (;;) {
		bool over = (u64)domain_used(d) + d->reserved + nr > mark;

		if (!over && domain_slack(d) >= nr)
			break;
		blk = evict_next(c, dom, over);
		if (blk == CORE_NONE)
			break;
		index_evict(c, blk);
		core_count(c, CORE_EV_reclaim_direct, 1);
	}
	d->keep_spans = 0;
	return domain_slack(d) < nr || (u64)domain_used(d) + d->reserved + nr >
	       d->max_blocks ? -EAGAIN : 0;
}

/*
 * Have memory made before running sequences ask for it, so that growth seldom
 * meets memory in the making.
 */
void room_ahead(struct core *c, u32 dom)
{
	struct kv_domain *d = &c->domains[dom];
	u64 want = 2ull * d->nr_running;

	while (domain_slack(d) + (u64)d->pending_spans * d->span_blocks <
	       want) {
		if (domain_used(d) + d->reserved + want > d->max_blocks ||
		    extent_run_take(c, dom) < 0)
			break;
	}
}

/* Is @a the better victim? */
static bool worse(const struct kv_seq *a, const struct kv_seq *b)
{
	if (a->priority != b->priority)
		return a->priority < b->priority;
	return a->arrival > b->arrival;
}

/* Best victim among the domain's resident sequences. */
static struct kv_seq *victim_of(const struct core *c, const struct kv_domain *d)
{
	struct kv_seq *best = NULL;
	u32 i;

	for (i = d->run_head; i != CORE_NONE; i = c->seqs[i].next) {
		struct kv_seq *s = &c->seqs[i];

		if (s->state == KVMM_SEQ_READY && (!best || worse(s, best)))
			best = s;
	}
	return best;
}

/*
 * Blocks that the domain of @s would hold less without its family, or more
 * than that: what members share among themselves is counted for the first, what
 * they share with others too.
 */
static u32 family_size(const struct core *c, const struct kv_seq *s)
{
	u32 first = seq_index(c, s), nr = s->nr_blocks - s->trimmed, i, n;

	for (i = s->fam_next; i != first; i = c->seqs[i].fam_next) {
		const struct kv_seq *m = &c->seqs[i];

		if (m->state != KVMM_SEQ_READY && m->state != KVMM_SEQ_MARKED)
			continue;
		for (n = m->nr_blocks; n-- > m->trimmed;)
			if (c->blocks[table_get(c, m, n)].nr_map == 1)
				nr++;
	}
	return nr;
}

/* Victims of other domains are looked for in this order. */
enum victim_rank {
	RANK_HIGH,		/* its domain is above memory.high */
	RANK_SURPLUS,		/* above what memory.low protects */
	RANK_LOW,		/* above what memory.min protects */
	RANK_NEVER,
};

static u32 victim_rank(const struct core *c, const struct kv_seq *s)
{
	const struct kv_domain *d = seq_domain(c, s);
	u32 nr = d->emin || d->elow ? family_size(c, s) : 0;

	if (!limit_may_lose(d, nr, true))
		return RANK_NEVER;
	if (!limit_may_lose(d, nr, false))
		return RANK_LOW;
	return limit_above_high(d) ? RANK_HIGH : RANK_SURPLUS;
}

/* May others take the family's memory at all? */
bool victim_may_lose(const struct core *c, const struct kv_seq *s)
{
	return victim_rank(c, s) != RANK_NEVER;
}

/*
 * Best victim of any other domain of the tenant: one that comes after @want,
 * or any if @promised.  Other tenants' memory comes in runs: see displace.c.
 */
static struct kv_seq *victim_elsewhere(const struct core *c,
				       const struct kv_seq *want, bool promised,
				       u32 *rank)
{
	struct kv_seq *best = NULL, *s;
	u32 i, r;

	*rank = RANK_NEVER;
	for (i = 0; i < core_cfg(c)->max_domains; i++) {
		if (i == want->domain || !c->domains[i].used ||
		    c->domains[i].tenant != seq_domain(c, want)->tenant)
			continue;
		s = victim_of(c, &c->domains[i]);
		if (!s || (!promised && !worse(s, want)))
			continue;
		r = victim_rank(c, s);
		if (r < *rank || (best && r == *rank && worse(s, best))) {
			best = s;
			*rank = r;
		}
	}
	return best;
}

/*
 * Is memory of a marked family about to come?  Not if its client has sat in
 * a step for long: it may have stopped, and nobody waits for it alone.
 */
static bool marked_soon(const struct core *c, const struct kv_domain *d)
{
	u32 i;

	for (i = d->run_head; i != CORE_NONE; i = c->seqs[i].next) {
		const struct kv_seq *s = &c->seqs[i];
		struct kv_step_entry *e;

		if (s->state == KVMM_SEQ_MARKED && c->now -
		    step_at(c, s->client, 0, &e)->begun < SLOW_STEP_NS)
			return true;
	}
	return false;
}

static bool marked_anywhere(const struct core *c, u32 tenant)
{
	u32 i;

	for (i = 0; i < core_cfg(c)->max_domains; i++)
		if (c->domains[i].nr_marked && c->domains[i].tenant == tenant &&
		    marked_soon(c, &c->domains[i]))
			return true;
	return false;
}

/* memory.max stands in the way: only the domain's own can help. */
bool domain_limited(const struct kv_domain *d, u32 nr)
{
	return (u64)domain_held(d) + nr > d->max_blocks;
}

/**
 * growth_waits() - does a running sequence before @s wait for memory?
 *
 * What a victim gave up is for the one that it was taken for: if waiting
 * sequences, the victim first of all, were admitted into it, neither would
 * ever get on.  A client that does not ask again holds nobody up for longer
 * than starve_ns, one whose own memory.max is in its way no other domain.
 */
bool growth_waits(const struct core *c, const struct kv_seq *s)
{
	const struct kv_domain *d = seq_domain(c, s);
	u32 i, n;

	for (i = 0; i < core_cfg(c)->max_domains; i++) {
		const struct kv_domain *o = &c->domains[i];

		if (!o->used || o->tenant != d->tenant ||
		    (o != d && domain_limited(o, 1)))
			continue;
		for (n = o->run_head; n != CORE_NONE; n = c->seqs[n].next) {
			const struct kv_seq *r = &c->seqs[n];

			if (r->state == KVMM_SEQ_READY && r->refused &&
			    c->now - r->refused < core_cfg(c)->starve_ns &&
			    worse(s, r))
				return true;
		}
	}
	return false;
}

/* Has @other clearly more than its part of the surplus, beside @d? */
static bool has_more(const struct kv_domain *other, const struct kv_domain *d)
{
	u64 span = other->span_blocks * other->block_bytes >> 10;

	return limit_share(other) > limit_share(d) / 8 * 9 + 2 * span;
}

static struct kv_seq *victim_choose(const struct core *c,
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

/* Blocks of @nr that are neither free, nor coming, nor cached. */
static u32 room_lacks(const struct core *c, const struct kv_domain *d, u32 nr,
		      u32 spare)
{
	u64 have = (u64)domain_slack(d) + room_coming(c, d) + domain_cached(d);

	return (u64)nr + spare > have ? (u32)((u64)nr + spare - have) : 0;
}

/* Could @w be admitted if others gave back what they may lose? */
static bool reachable(struct core *c, const struct kv_seq *w)
{
	const struct kv_domain *d = seq_domain(c, w);
	u32 total = tokens_to_blocks(d, w->nr_ids);

	return !domain_limited(d, total) &&
	       (u64)span_runs_reachable(c, w->domain) * d->span_blocks >= total;
}

/**
 * room_for_min() - make room for an admission within memory.min
 * @want: waits; room_plan() said -EAGAIN for the @nr blocks that it needs
 *
 * Its domain was promised as much, so families of other domains give way, of
 * whatever priority, as far as their own domains are not protected.
 * Return: 0: room_plan() was happy; -EALREADY: as it says; -EAGAIN: later, or
 * never.
 */
int room_for_min(struct core *c, struct kv_seq *want, u32 nr, u32 spare)
{
	const struct kv_domain *d = seq_domain(c, want);
	struct kv_seq *v;
	u32 rank;
	int err;

	do {
		if (!limit_within_min(d, domain_held(d), nr) ||
		    !reachable(c, want))
			return -EAGAIN;
		if (marked_anywhere(c, d->tenant))
			return -EAGAIN;
		v = victim_elsewhere(c, want, true, &rank);
		if (!v)
			return displace(c, want, room_lacks(c, d, nr, spare),
					true);
		core_count(c, CORE_EV_preempt_min, 1);
		family_mark(c, v);
		err = room_plan(c, want->domain, nr, spare);
	} while (err == -EAGAIN);
	return err;
}

/* Does nobody but the family of @s run in its domain? */
static bool family_is_alone(const struct core *c, const struct kv_seq *s)
{
	u32 i = seq_domain(c, s)->run_head;

	for (; i != CORE_NONE; i = c->seqs[i].next)
		if (c->seqs[i].family != s->family)
			return false;
	return true;
}

/*
 * A family of one that is alone in its domain is not helped by losing what it
 * has, unless that did not change for long: then it takes its place among
 * those who wait, where the longest-waiting exception will find it.
 */
static bool self_preempt_helps(const struct core *c, const struct kv_seq *s)
{
	if (s->fam_next != seq_index(c, s) || !family_is_alone(c, s))
		return true;
	return s->again && c->now - s->again > core_cfg(c)->starve_ns;
}

/**
 * room_preempt() - take memory from another family for a running sequence
 * @want: the sequence, which may itself turn out to be the victim
 * @nr:   blocks wanted; room_plan() said -EAGAIN
 *
 * Return: 0: there is room now; -EAGAIN: later, or @want was marked.
 */
int room_preempt(struct core *c, struct kv_seq *want, u32 nr)
{
	struct kv_seq *v;
	int err;

	for (;;) {
		if (marked_anywhere(c, seq_domain(c, want)->tenant))
			return -EAGAIN;
		v = victim_choose(c, want, nr);
		if (!v) {
			if (self_preempt_helps(c, want))
				family_mark(c, want);
			return -EAGAIN;
		}
		family_mark(c, v);
		err = room_plan(c, want->domain, nr, 0);
		if (!err)
			return room_evict(c, want->domain, nr);
		if (err != -EAGAIN)
			return -EAGAIN;
	}
}

/* Best victim among the client's own; NULL while one is marked already. */
static struct kv_seq *victim_of_client(const struct core *c,
				       const struct kv_seq *want)
{
	struct kv_seq *best = NULL;
	u32 i = seq_domain(c, want)->run_head;

	for (; i != CORE_NONE; i = c->seqs[i].next) {
		struct kv_seq *s = &c->seqs[i];

		if (s->client != want->client)
			continue;
		if (s->state == KVMM_SEQ_MARKED)
			return NULL;
		if (s->state == KVMM_SEQ_READY && (!best || worse(s, best)))
			best = s;
	}
	return best;
}

/**
 * pages_preempt() - see to it that a table may grow by @nr entries
 *
 * Table pages are the client's own, so one of its own families gives way:
 * else several that each need one page more would wait for each other.
 * Return: 0; -EAGAIN: later, or @want was marked.
 */
int pages_preempt(struct core *c, struct kv_seq *want, u32 nr)
{
	while (!table_has_room(c, want, nr)) {
		struct kv_seq *v = victim_of_client(c, want);

		if (!v)
			return -EAGAIN;
		family_mark(c, v);
		if (v->family == want->family)
			return -EAGAIN;
	}
	return 0;
}

/* ---- the longest-waiting exception ---- */

/* First of the list whose client could use what it gets. */
static struct kv_seq *first_waiter(const struct core *c,
				   const struct kv_domain *d)
{
	u32 i;

	for (i = d->wait_head; i != CORE_NONE; i = c->seqs[i].next)
		if (!c->clients[c->seqs[i].client].nr_unacked)
			return &c->seqs[i];
	return NULL;
}

/* Would the waiting sequence be admitted if there were memory? */
bool waiter_could_use(struct core *c, const struct kv_seq *w)
{
	const struct kv_domain *d = seq_domain(c, w);
	u32 total = max(tokens_to_blocks(d, w->nr_ids), w->nr_blocks);
	return reachable(c, w) && !domain_limited(d, total) &&
	       (!d->nr_running || domain_held(d) + total <= d->high_blocks) &&
	       ((w->flags & SEQF_SWAPPED) || table_has_room(c, w, total));
}

/* Does @w wait past its time for what other domains hold? */
static bool starves(struct core *c, const struct kv_seq *w)
{
	return c->now - w->since >= core_cfg(c)->starve_ns && reachable(c, w);
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
	u64 share = limit_share(seq_domain(c, s));
	u32 i;

	for (i = 0; i < core_cfg(c)->max_domains; i++) {
		const struct kv_domain *d = &c->domains[i];
		const struct kv_seq *w;

		if (!d->used || i == s->domain)
			continue;
		w = first_waiter(c, d);
		if (!w || w->since >= s->since || w->priority < s->priority ||
		    (limit_share(d) > share && c->now - w->since <
		     STARVE_UNUSUAL * core_cfg(c)->starve_ns))
			continue;
		if (starves(c, w))
			return true;
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

	return w && reachable(c, w) && !starved_waits(c, w);
}

/*
 * A resident that had its time and is not above the waiter, or does nothing
 * with its memory.  One that came back gets longer until it has more than it
 * lost: else two that take turns could compute the same tokens for ever.
 */
bool past_residency(const struct core *c, const struct kv_seq *s,
		    const struct kv_seq *w)
{
	u64 time = core_cfg(c)->starve_ns;

	if (s->state != KVMM_SEQ_READY)
		return false;
	if (s->priority > w->priority && c->now - s->active < time)
		return false;
	if ((s->flags & SEQF_PREEMPTED) && s->valid_len <= s->lost_len)
		time *= RESTORE_PATIENCE;
	return c->now - s->since >= time;
}

static struct kv_seq *victim_past_residency(const struct core *c,
					    const struct kv_seq *w)
{
	struct kv_seq *best = NULL;
	u32 dom, i;

	for (dom = 0; dom < core_cfg(c)->max_domains; dom++) {
		const struct kv_domain *d = &c->domains[dom];

		if (!d->used || d->tenant != seq_domain(c, w)->tenant ||
		    (dom != w->domain &&
		     domain_limited(seq_domain(c, w), 1)))
			continue;
		for (i = d->run_head; i != CORE_NONE; i = c->seqs[i].next) {
			struct kv_seq *s = &c->seqs[i];

			if (past_residency(c, s, w) &&
			    (dom == w->domain ||
			     victim_rank(c, s) != RANK_NEVER) &&
			    (!best || worse(s, best)))
				best = s;
		}
	}
	return best;
}

/* Who waits longest among those for whom there is a victim. */
static void starve_tenant(struct core *c, u32 tenant)
{
	struct kv_seq *longest = NULL, *victim = NULL, *w, *v;
	u32 i;

	if (marked_anywhere(c, tenant))
		return;
	for (i = 0; i < core_cfg(c)->max_domains; i++) {
		if (!c->domains[i].used || c->domains[i].tenant != tenant)
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
	family_mark(c, victim);
	seq_domain(c, longest)->retry = 1;
}

/* Does the domain wait for nothing but memory of others? */
static bool starves_for_others(const struct core *c, const struct kv_seq *w)
{
	const struct kv_domain *d = seq_domain(c, w);
	u32 total = max(tokens_to_blocks(d, w->nr_ids), w->nr_blocks);

	if (c->now - w->since < core_cfg(c)->starve_ns || d->nr_revokes ||
	    domain_limited(d, total) || victim_past_residency(c, w))
		return false;
	return !d->nr_running || domain_held(d) + total <= d->high_blocks;
}

/*
 * Who waits longest of those who find no victim in their own tenant takes runs
 * of others.
 */
static void starve_others(struct core *c)
{
	struct kv_seq *longest = NULL, *w;
	u32 i, total, lacks;

	for (i = 0; i < core_cfg(c)->max_domains; i++) {
		w = c->domains[i].used ? first_waiter(c, &c->domains[i]) : NULL;
		if (w && (!longest || w->since < longest->since) &&
		    starves_for_others(c, w))
			longest = w;
	}
	if (!longest)
		return;
	total = max(tokens_to_blocks(seq_domain(c, longest), longest->nr_ids),
		    longest->nr_blocks);
	lacks = room_lacks(c, seq_domain(c, longest),
			   total + seq_domain(c, longest)->nr_running, 0);
	if (lacks && !marked_anywhere(c, seq_domain(c, longest)->tenant))
		(void)displace(c, longest, lacks, false);
	seq_domain(c, longest)->retry = 1;
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
	for (i = 0; i < core_cfg(c)->max_domains; i++)
		if (c->domains[i].used && restore_waits(c, &c->domains[i]))
			c->domains[i].retry = 1;
}
