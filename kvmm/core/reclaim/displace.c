// SPDX-License-Identifier: Apache-2.0
/*
 * displace.c - runs that hold sequences, for a sequence of another tenant
 *
 * Memory changes over between tenants in whole runs of extents (revoke.c), so
 * one victim's blocks, which lie here and there, are of no use.  What is chosen
 * is a run, and every family that has a block in it is preempted.
 *
 * This is done for two: an admission within its domain's memory.min, which may
 * displace anybody that is not protected itself; and the sequence that waits
 * longest of all (starve_check()), which may displace who had its time.  Either
 * gets as many runs as it lacks or none: what cannot be met takes nothing from
 * anybody.  Runs of domains above memory.high go first, below memory.low last,
 * else of the largest share, of these the one with the fewest used blocks.
 *
 * A chosen run's spans are isolated, so that they only become emptier.  Steps
 * that saw them end, copies come to their end; with each tick what maps a block
 * there by then is preempted too, and cache evicted.  If their owner has come
 * to need what is left for its memory.min, or for what it has promised, the run
 * is given up.
 *
 * Scratch: span_scan.counted and domain_scan.lost, spare, as in steal.c.
 */
#include "kvmm/core/reclaim/reclaim.h"

#define SPAN_BARRED	CORE_NONE	/* span_scan.counted */

/* For whom a run is looked for. */
struct displacer {
	struct kv_seq	*want;
	bool		promised;
};

/* May the sequence lose its memory for @who, as far as it itself goes? */
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

/* Nothing may be taken that a member of the family maps. */
static void family_bar(struct core *c, const struct kv_seq *s)
{
	u32 first = seq_index(c, s), i = first, n;

	do {
		struct kv_seq *m = &c->seqs[i];

		seq_scan(c, m)->barred = c->head->bar_pass;
		for (n = m->trimmed; (m->flags & SEQF_RUNNING) &&
		     n < m->nr_blocks; n++) {
			kv_pte_t pte = table_pte(c, m, n);

			if (pte_is_present(pte))
				c->span_scans[block_span(c, pte_block(pte))]
					.counted = SPAN_BARRED;
		}
		i = m->fam_next;
	} while (i != first);
}

static void bar_all(struct core *c, const struct displacer *who)
{
	u32 dom, i;

	revoke_prepare(c, who->want->domain);
	spares_reset(c);
	c->head->bar_pass++;
	core_work(c, c->head->nr_online);
	for_each_domain(c, dom) {
		const struct kv_domain *d = &c->domains[dom];

		if (dom == who->want->domain)
			continue;
		core_work(c, 4 * d->nr_running);
		for (i = d->run_head; i != CORE_NONE; i = c->seqs[i].next)
			if (c->seq_scans[i].barred == c->head->bar_pass)
				continue;	/* with one of its family */
			else if (!seq_may_go(c, &c->seqs[i], who))
				family_bar(c, &c->seqs[i]);
			else	/* what it is promised need not be covered */
				c->domain_scans[dom].spare += c->seqs[i].reserved;
	}
}

/* May the span of extent @e go?  It is taken off what its owner has. */
static bool span_may_go(struct core *c, u32 span, u32 run,
			const struct displacer *who)
{
	struct kv_span *sp = &c->spans[span];
	struct kv_domain *owner = &c->domains[sp->domain];
	u32 used = sp->nr_blocks - sp->nr_free;

	/* For this run, or one chosen before that has another part of it. */
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

static void run_put_off(struct core *c, u32 first, u32 end)
{
	u32 e;

	for (e = first; e < end; e++) {
		struct kv_span *sp = &c->spans[c->extents[e].span];
		struct kv_domain *owner;

		if (c->extents[e].state != EXT_SPAN || span_scan(c, sp)->counted != first + 1)
			continue;
		owner = &c->domains[sp->domain];
		span_scan(c, sp)->counted = 0;
		domain_scan(c, owner)->spare += sp->nr_free;
		domain_scan(c, owner)->lost -= sp->nr_blocks - sp->nr_free;
	}
}

/* Can the run be had?  What it takes is counted off if so. */
static bool run_may_go(struct core *c, u32 first, const struct displacer *who)
{
	u32 dom = who->want->domain, tenant = c->domains[dom].tenant, e;
	u32 nr = c->domains[dom].dev.span_extents;

	for (e = first; e < first + nr; e++) {
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
	if (e == first + nr)
		return true;
	run_put_off(c, first, e);
	return false;
}

/* The smaller, the sooner the run goes. */
static u64 run_key(const struct core *c, u32 first, u32 nr)
{
	u64 share = 0, used = 0, rank = 0;
	u32 e;

	for (e = first; e < first + nr; e++) {
		const struct kv_span *sp = &c->spans[c->extents[e].span];
		const struct kv_domain *d = &c->domains[sp->domain];

		if (c->extents[e].state != EXT_SPAN)
			continue;
		share = max(share, limit_share(d));
		used += sp->nr_blocks - sp->nr_free - sp->nr_cached;
		if (!limit_may_lose(d, domain_scan(c, d)->lost, false))
			rank = 2;
		else if (!limit_above_high(d))
			rank = max(rank, 1ull);
	}
	/* 2 bits, 32, 30. */
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

/*
 * Best run to be had beside those @chosen; what it takes stays counted off.
 */
static u32 run_best(struct core *c, const struct displacer *who,
		    const u32 *chosen, u32 nr_chosen)
{
	u32 nr = seq_domain(c, who->want)->dev.span_extents, best = CORE_NONE, i;
	u64 least = ~0ull, key;

	for (i = 0; i + nr <= c->head->nr_online; i += nr) {
		if (is_chosen(chosen, nr_chosen, i) || !run_may_go(c, i, who))
			continue;
		key = run_key(c, i, nr);
		run_put_off(c, i, i + nr);
		if (key < least) {
			least = key;
			best = i;
		}
	}
	if (best != CORE_NONE && !run_may_go(c, best, who))
		KV_BUG_ON(true);
	return best;
}

/* Who comes after @s on the run list and stays there if its family goes. */
static u32 after_family(const struct core *c, const struct kv_seq *s)
{
	u32 i = s->next;

	while (i != CORE_NONE && c->seqs[i].family == s->family)
		i = c->seqs[i].next;
	return i;
}

/* The domain that a run was claimed for which the span is in. */
static u32 span_taker(const struct core *c, u32 span)
{
	const u32 want = c->extents[span].want;

	if (!want || want > CORE_MAX_REVOKES)
		return CORE_NONE;
	return c->head->revokes[want - 1].dom;
}

/* The families that have a block in the span; false: but for @any one must not lose it. */
static bool span_displace(struct core *c, u32 span, bool any)
{
	struct kv_domain *d = &c->domains[c->spans[span].domain];
	u32 i, next, n;

	c->taker = any ? CORE_NONE : span_taker(c, span);
	for (i = d->run_head; i != CORE_NONE; i = next) {
		struct kv_seq *s = &c->seqs[i];
		bool there = false;

		next = s->next;
		if (s->state != KVMM_SEQ_READY)
			continue;
		for (n = s->trimmed; n < s->nr_blocks && !there; n++)
			there = block_span(c, table_get(c, s, n)) == span;
		if (!there)
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
 * displace_span() - go on with emptying an isolated span
 * @first: its first extent
 *
 * Return: false: what it holds its owner must keep, by memory.min.
 */
bool displace_span(struct core *c, u32 first)
{
	struct kv_span *sp = &c->spans[first];
	u32 dom = sp->domain;

	if (!span_displace(c, first, false))
		return false;
	if (!sp->nr_extents || sp->domain != dom)
		return true;
	span_evict_cached(c, first);
	return !sp->nr_extents || sp->domain != dom || !sp->nr_cached;
}

/* What victims in open steps were promised comes back when these end. */
static u32 marked_promises(const struct core *c, const struct kv_domain *d)
{
	u32 i, nr = 0;

	for (i = d->run_head; i != CORE_NONE; i = c->seqs[i].next)
		if (c->seqs[i].state == KVMM_SEQ_MARKED)
			nr += c->seqs[i].reserved;
	return nr;
}

/* The same of a family. */
static u32 family_promises(const struct core *c, const struct kv_seq *s)
{
	u32 first = seq_index(c, s), i = first, nr = 0;

	do {
		if (c->seqs[i].state == KVMM_SEQ_MARKED)
			nr += c->seqs[i].reserved;
		i = c->seqs[i].fam_next;
	} while (i != first);
	return nr;
}

/* Whoever has a block in the span loses it, also what memory.min protects. */
void displace_all(struct core *c, u32 first)
{
	(void)span_displace(c, first, true);
}

/* Free blocks of a domain in the run, from extent @first to @last. */
static u32 run_free(const struct core *c, u32 first, u32 last, u32 dom)
{
	u32 nr = 0, e;

	for (e = first; e <= last; e++) {
		const struct kv_extent *x = &c->extents[e];

		if (x->state == EXT_SPAN && (x->span == e || e == first) &&
		    c->spans[x->span].domain == dom)
			nr += c->spans[x->span].nr_free;
	}
	return nr;
}

/*
 * Free blocks of the run's spans may cover promises to those who may go.  All
 * of them leave their domain together.
 */
static void run_uncover(struct core *c, u32 first, const struct displacer *who)
{
	u32 nr = seq_domain(c, who->want)->dev.span_extents, e, i, next, due;

	for (e = first; e < first + nr; e++) {
		const struct kv_span *sp = &c->spans[c->extents[e].span];
		const struct kv_domain *d = &c->domains[sp->domain];

		if (c->extents[e].state != EXT_SPAN)
			continue;
		due = marked_promises(c, d);
		for (i = d->run_head; i != CORE_NONE && domain_free(d) + due <
		     d->dev.reserved + run_free(c, first, e, sp->domain);
		     i = next) {
			struct kv_seq *s = &c->seqs[i];

			next = s->next;
			if (!s->reserved || s->state != KVMM_SEQ_READY ||
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
 * displace() - claim runs for a sequence, whoever is in them
 * @want:     waits; what is free or cached is not enough
 * @nr:       blocks that it lacks
 * @promised: by memory.min; else it waits longest
 *
 * Return: ROOM_MADE: the memory will come; ROOM_NONE: not so much can be had.
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
		revoke_begin(c, want->domain, runs[i]);
	}
	return ROOM_MADE;
}
