// SPDX-License-Identifier: Apache-2.0
/*
 * displace.c - extent runs in use, taken for a sequence of another tenant
 *
 * Memory goes from tenant to tenant in whole runs of extents (revoke.c).  The
 * blocks of one victim lie in many runs, so its preemption frees no run.  This
 * file chooses a run instead, and preempts every family that has a block in it.
 *
 * Two sequences may displace families.  An admission within the memory.min of
 * its domain displaces any family that is not protected itself.  The sequence
 * that waits longest of all (starve_check()) displaces families that had their
 * time.  Either sequence gets as many runs as it lacks, or none: a request that
 * cannot be met takes no memory.  Runs of domains above memory.high go first,
 * runs of domains below memory.low last.  Otherwise the run of the largest share
 * goes first, and of equal shares the run with the fewest used blocks.
 *
 * The spans of a chosen run are isolated, so that they only become emptier.  Open
 * steps and copies that use their blocks end.  At each tick, families that still
 * map one of the blocks are preempted too, and cached blocks are evicted.  The
 * run is given up if its owner needs the remaining blocks for its memory.min, or
 * for its reservations.
 *
 * The scan notes its counts in span_scan.counted and in domain_scan.lost and
 * spare, as in steal.c.
 */
#include "kvmm/core/reclaim/reclaim.h"

#define SPAN_BARRED	CORE_NONE	/* span_scan.counted */

/* The sequence that runs are looked for, and its reason. */
struct displacer {
	struct kv_seq	*want;
	bool		promised;
};

/*
 * May @s lose its memory for the displacer?  The rest of its family is not looked
 * at.
 */
static bool seq_may_go(struct core *c, const struct kv_seq *s,
		       const struct displacer *who)
{
	if (s->state == KVMM_SEQ_MARKED)
		return true;
	if (s->state != KVMM_SEQ_READY ||
	    !(who->promised || past_residency(c, s, who->want)))
		return false;
	return victim_may_lose(c, s);
}

/* Bar every span in which a member of the family maps a block. */
static void family_bar(struct core *c, const struct kv_seq *s)
{
	const struct kv_seq *m;
	const struct kv_tab *t;
	u32 n;

	for_each_relative(c, s, m) {
		seq_scan(c, m)->barred = c->head->bar_pass;
		if (!(m->flags & SEQF_RUNNING))
			continue;
		for_each_pte(c, m, t, n) {
			kv_pte_t pte = table_pte(c, t, n);

			if (pte_is_present(pte))
				c->span_scans[block_span(c, pte_block(pte))]
					.counted = SPAN_BARRED;
		}
	}
}

static void bar_all(struct core *c, const struct displacer *who)
{
	const struct kv_domain *mine = seq_domain(c, who->want);
	u32 dom, i;

	KV_BUG_ON(who->want->flags & SEQF_RUNNING);
	revoke_prepare(c, who->want->domain);
	spares_reset(c);
	c->head->bar_pass++;
	core_work(c, domain_online(c, mine) * mine->shards);
	for_each_neighbour(c, mine, dom) {
		const struct kv_domain *d = &c->domains[dom];

		if (d == mine)
			continue;
		core_work(c, 4 * d->nr_running);
		for (i = d->run_head; i != CORE_NONE; i = c->seqs[i].next)
			if (c->seq_scans[i].barred == c->head->bar_pass)
				continue;	/* barred with its family */
			else if (!seq_may_go(c, &c->seqs[i], who))
				family_bar(c, &c->seqs[i]);
			else	/* its reservation goes with it */
				c->domain_scans[dom].spare +=
					seq_reserved(c, &c->seqs[i]);
	}
}

/* May the run have the span?  If so, its blocks are counted as lost to its owner. */
static bool span_may_go(struct core *c, u32 span, u32 run,
			const struct displacer *who)
{
	struct kv_span *sp = &c->spans[span];
	struct kv_domain *owner = &c->domains[sp->domain];
	u32 used = sp->nr_blocks - sp->nr_free;

	KV_BUG_ON(!sp->nr_extents || used > sp->nr_blocks);
	KV_BUG_ON(sp->nr_cached > used);
	/* Counted for this run, or for a chosen run with another part of the span. */
	if (span_scan(c, sp)->counted && span_scan(c, sp)->counted != SPAN_BARRED)
		return true;
	if (span_scan(c, sp)->counted || sp->domain == who->want->domain ||
	    span_is_isolated(sp) || domain_scan(c, owner)->spare < sp->nr_free ||
	    (used && !limit_may_lose(owner, domain_scan(c, owner)->lost + used, true)))
		return false;
	span_scan(c, sp)->counted = run + 1;
	domain_scan(c, owner)->spare -= sp->nr_free;
	domain_scan(c, owner)->lost += used;
	return true;
}

/* Undo span_may_go() for the run, but not for its extents from @nr on. */
static void run_put_off(struct core *c, const struct kv_domain *d, u32 first, u32 nr)
{
	u32 e, n;

	for_each_extent_of(c, d, e, n, first) {
		struct kv_span *sp = &c->spans[c->extents[e].span];
		struct kv_domain *owner;

		if (n == nr)
			break;
		if (c->extents[e].state != EXT_SPAN || span_scan(c, sp)->counted != first + 1)
			continue;
		owner = &c->domains[sp->domain];
		KV_BUG_ON(domain_scan(c, owner)->lost <
			  sp->nr_blocks - sp->nr_free);
		span_scan(c, sp)->counted = 0;
		domain_scan(c, owner)->spare += sp->nr_free;
		domain_scan(c, owner)->lost -= sp->nr_blocks - sp->nr_free;
	}
}

/* Can the displacer have the run?  If so, its spans stay counted. */
static bool run_may_go(struct core *c, u32 first, const struct displacer *who)
{
	const struct kv_domain *d = seq_domain(c, who->want);
	u32 tenant = d->tenant, e, n;

	KV_BUG_ON(first + d->dev.span_extents > domain_end(c, d));
	for_each_extent_of(c, d, e, n, first) {
		const struct kv_extent *x = &c->extents[e];

		if (extent_fits(c, e, tenant, true))
			continue;
		if (x->want || (x->state != EXT_BACKED && x->state != EXT_SPAN))
			break;
		if (x->tenant != tenant && revoke_needed(c, e) &&
		    !revoke_may(c, e))
			break;
		if (x->state == EXT_SPAN && !span_may_go(c, x->span, first, who))
			break;
	}
	if (n == d->dev.span_extents * d->shards)
		return true;
	run_put_off(c, d, first, n);
	return false;
}

/* Order of runs: the one with the smallest key goes first. */
static u64 run_key(const struct core *c, const struct kv_domain *taker, u32 first)
{
	u64 share = 0, used = 0, rank = 0;
	u32 e, n;

	for_each_extent_of(c, taker, e, n, first) {
		const struct kv_span *sp = &c->spans[c->extents[e].span];
		const struct kv_domain *d = &c->domains[sp->domain];

		if (c->extents[e].state != EXT_SPAN)
			continue;
		share = max(share, limit_share(d));
		KV_BUG_ON(sp->nr_free + sp->nr_cached > sp->nr_blocks);
		used += sp->nr_blocks - sp->nr_free - sp->nr_cached;
		if (!limit_may_lose(d, domain_scan(c, d)->lost, false))
			rank = 2;
		else if (!limit_above_high(d))
			rank = max(rank, 1ull);
	}
	/* Rank in 2 bits, share in 32, used blocks in 30. */
	return rank << 62 | (~min(share, 0xffffffffull) & 0xffffffff) << 30 |
	       min(used, 0x3fffffffull);
}

static bool is_chosen(const u32 *runs, u32 nr, u32 first)
{
	u32 i;

	for (i = 0; i < nr; i++)
		if (runs[i] == first)
			return true;
	return false;
}

/* The best run beside the @chosen ones, or CORE_NONE; its spans stay counted. */
static u32 run_best(struct core *c, const struct displacer *who,
		    const u32 *chosen, u32 nr_chosen)
{
	const struct kv_domain *d = seq_domain(c, who->want);
	u32 nr = d->dev.span_extents * d->shards, best = CORE_NONE, i;
	u64 least = ~0ull, key;

	for_each_run(c, d, i) {
		if (is_chosen(chosen, nr_chosen, i) || !run_may_go(c, i, who))
			continue;
		key = run_key(c, d, i);
		run_put_off(c, d, i, nr);
		if (key < least) {
			least = key;
			best = i;
		}
	}
	if (best != CORE_NONE && !run_may_go(c, best, who))
		KV_BUG_ON(true);
	return best;
}

/* The next sequence on the run list that is not of the family of @s. */
static u32 after_family(const struct core *c, const struct kv_seq *s)
{
	u32 i = s->next;

	KV_BUG_ON(!(s->flags & SEQF_RUNNING));
	while (i != CORE_NONE && c->seqs[i].family == s->family)
		i = c->seqs[i].next;
	return i;
}

/* The domain that claimed the run of the span, or CORE_NONE. */
static u32 span_taker(const struct core *c, u32 span)
{
	const u32 want = span_claim(c, span);

	if (!want || want > CORE_MAX_REVOKES)
		return CORE_NONE;
	KV_BUG_ON(!c->head->revokes[want - 1].nr);
	return c->head->revokes[want - 1].dom;
}

/* Does a running sequence map a block of the span? */
static bool seq_is_in_span(const struct core *c, const struct kv_seq *s, u32 span)
{
	const struct kv_tab *t;
	u32 i;

	for_each_pte(c, s, t, i)
		if (block_span(c, table_get(c, t, i)) == span)
			return true;
	return false;
}

/*
 * Preempt the families that have a block in the span; @any: even protected
 * ones.  Return: false: one of them must not lose its memory.
 */
static bool span_displace(struct core *c, u32 span, bool any)
{
	struct kv_domain *d = &c->domains[c->spans[span].domain];
	u32 i, next;

	c->taker = any ? CORE_NONE : span_taker(c, span);
	for (i = d->run_head; i != CORE_NONE; i = next) {
		struct kv_seq *s = &c->seqs[i];

		KV_BUG_ON(!(s->flags & SEQF_RUNNING));
		KV_BUG_ON(seq_domain(c, s) != d);
		next = s->next;
		if (s->state != KVMM_SEQ_READY)
			continue;
		if (!seq_is_in_span(c, s, span))
			continue;
		if (!any && !victim_may_lose(c, s))
			return false;
		core_count(c, any ? CORE_EV_resize_preempt :
				    CORE_EV_revoke_preempt, 1);
		next = after_family(c, s);
		family_mark(c, s, any ? CORE_CAUSE_resize : CORE_CAUSE_tenant,
			    NULL);
		if (!c->spans[span].nr_extents)
			return true;
	}
	return true;
}

/**
 * displace_span() - empty an isolated span as far as possible now
 * @first: its first extent
 *
 * Return: false: memory.min of its owner protects blocks in it.
 */
bool displace_span(struct core *c, u32 first)
{
	struct kv_span *sp = &c->spans[first];
	u32 dom = sp->domain;

	KV_BUG_ON(!sp->nr_extents || !span_is_isolated(sp));
	if (!span_displace(c, first, false))
		return false;
	if (!sp->nr_extents || sp->domain != dom)
		return true;
	span_evict_cached(c, first);
	return !sp->nr_extents || sp->domain != dom || !sp->nr_cached;
}

/* Reservations of marked sequences; they end with the open steps. */
static u32 marked_promises(const struct core *c, const struct kv_domain *d)
{
	u32 i, nr = 0;

	for (i = d->run_head; i != CORE_NONE; i = c->seqs[i].next)
		if (c->seqs[i].state == KVMM_SEQ_MARKED)
			nr += seq_reserved(c, &c->seqs[i]);
	return nr;
}

/* Reservations of marked sequences of the family of @s. */
static u32 family_promises(const struct core *c, const struct kv_seq *s)
{
	const struct kv_seq *m;
	u32 nr = 0;

	for_each_relative(c, s, m)
		if (m->state == KVMM_SEQ_MARKED)
			nr += seq_reserved(c, m);
	return nr;
}

/* Preempt every family with a block in the span, even if memory.min protects it. */
void displace_all(struct core *c, u32 first)
{
	(void)span_displace(c, first, true);
}

/* Free blocks of a domain in the first extents of the run, up to number @last. */
static u32 run_free(const struct core *c, const struct kv_domain *taker, u32 first,
		    u32 last, u32 dom)
{
	u32 nr = 0, e, n;

	for_each_extent_of(c, taker, e, n, first) {
		const struct kv_extent *x = &c->extents[e];

		if (n > last)
			break;
		if (x->state == EXT_SPAN && run_span_begins(c, taker, first, n) &&
		    c->spans[x->span].domain == dom)
			nr += c->spans[x->span].nr_free;
	}
	return nr;
}

/*
 * Preempt families until no reservation needs the free blocks of the run's
 * spans, for all of these blocks leave their domain together.
 */
static void run_uncover(struct core *c, u32 first, const struct displacer *who)
{
	const struct kv_domain *taker = seq_domain(c, who->want);
	u32 e, n, i, next, due;

	for_each_extent_of(c, taker, e, n, first) {
		const struct kv_span *sp = &c->spans[c->extents[e].span];
		const struct kv_domain *d = &c->domains[sp->domain];

		if (c->extents[e].state != EXT_SPAN)
			continue;
		due = marked_promises(c, d);
		for (i = d->run_head; i != CORE_NONE && domain_free(d) + due <
		     d->dev.reserved + run_free(c, taker, first, n, sp->domain);
		     i = next) {
			struct kv_seq *s = &c->seqs[i];

			next = s->next;
			if (!seq_reserved(c, s) || s->state != KVMM_SEQ_READY ||
			    !seq_may_go(c, s, who))
				continue;
			core_count(c, CORE_EV_revoke_preempt, 1);
			next = after_family(c, s);
			due -= family_promises(c, s);
			family_mark(c, s, CORE_CAUSE_tenant, who->want);
			due += family_promises(c, s);
			if (c->extents[e].state != EXT_SPAN)
				break;
		}
	}
}

/**
 * displace() - claim runs in use for a sequence
 * @want:     waiting sequence; free and cached blocks are not enough for it
 * @nr:       blocks that it lacks
 * @promised: memory.min promises them; else @want waits longest
 *
 * Return: ROOM_MADE: the memory will come; ROOM_NONE: it cannot have so much.
 */
enum verdict displace(struct core *c, struct kv_seq *want, u32 nr,
		      bool promised)
{
	const struct kv_domain *d = seq_domain(c, want);
	struct displacer who = { .want = want, .promised = promised };
	u32 runs[CORE_MAX_REVOKES], k = DIV_ROUND_UP(nr, d->dev.span_blocks), i;

	c->taker = want->domain;
	if (c->head->nr_tenants < 2 || c->now < d->displace_after ||
	    k > CORE_MAX_REVOKES - c->head->nr_revokes)
		return ROOM_NONE;
	bar_all(c, &who);
	for (i = 0; i < k; i++) {
		runs[i] = run_best(c, &who, runs, i);
		if (runs[i] == CORE_NONE)
			return ROOM_NONE;
	}
	if (promised)
		core_count(c, CORE_EV_preempt_min, 1);
	for (i = 0; i < k; i++) {
		run_uncover(c, runs[i], &who);
		KV_BUG_ON(c->extents[runs[i]].want);
		revoke_begin(c, want->domain, runs[i]);
	}
	return ROOM_MADE;
}
