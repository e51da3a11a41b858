// SPDX-License-Identifier: Apache-2.0
/*
 * waiter.c - the waiting sequence that is next, the memory it needs, and whether it can have it
 */
#include "kvmm/core/reclaim/reclaim.h"

#define PROMISE_LOOK	64u	/* waiting sequences that promise_need() looks at */

/* The first waiting sequence whose client has mapped all its extents. */
struct kv_seq *first_waiter(const struct core *c,
				   const struct kv_domain *d)
{
	u32 i;

	for (i = d->wait_head; i != CORE_NONE; i = c->seqs[i].next)
		if (!c->clients[c->seqs[i].client].nr_unacked)
			return &c->seqs[i];
	return NULL;
}

/* Has its client table pages for @w?  A swapped sequence holds its own. */
bool waiter_has_pages(const struct core *c, const struct kv_seq *w)
{
	const struct kv_domain *d = seq_domain(c, w);
	u32 nr[KVMM_MAX_GROUPS], g;

	if (w->flags & SEQF_SWAPPED)
		return true;
	for (g = 0; g < d->nr_groups; g++)
		nr[g] = group_blocks(d, g, w->nr_ids);
	return table_has_room(c, w, nr);
}

/* Had @w waited for starve_ns at the last tick, and can it be admitted? */
static bool turn_is_due(const struct core *c, const struct kv_seq *w)
{
	return c->head->ticked >= w->since + core_cfg(c)->starve_ns &&
	       !c->clients[w->client].nr_unacked && waiter_has_pages(c, w);
}

/**
 * waiter_turn() - the sequence to admit when @s is next on its domain's wait list
 *
 * A swapped sequence waits without its client, and its arrival puts it first.
 * If its memory was taken for the longest-waiting sequence of its own domain, it
 * would take it back at once.  So a sequence that has waited longer than @s, and
 * for starve_ns, goes first.  A sequence of lower priority goes first only if @s
 * was idle when it was swapped out, since it has no chance to be idle now.
 *
 * Return: @s, or the sequence that goes first.
 */
struct kv_seq *waiter_turn(struct core *c, struct kv_seq *s)
{
	bool idle = s->since >= s->active + core_cfg(c)->starve_ns;
	struct kv_seq *w;
	u32 i;

	if (!(s->flags & SEQF_SWAPPED))
		return s;
	/*
	 * The longest-waiting first; the others after it have waited for less
	 * time.
	 */
	for (i = seq_domain(c, s)->age_head; i != CORE_NONE; i = w->age_next) {
		w = &c->seqs[i];
		KV_BUG_ON(!(w->flags & SEQF_QUEUED) || w->domain != s->domain);
		if (w->since >= s->since ||
		    c->head->ticked < w->since + core_cfg(c)->starve_ns)
			break;
		core_work(c, 2);
		if (turn_is_due(c, w) && (w->priority >= s->priority || idle))
			return w;
	}
	return s;
}

/* The sequence that the domain would admit next, if its client has mapped all extents. */
struct kv_seq *next_waiter(struct core *c, const struct kv_domain *d)
{
	struct kv_seq *w = first_waiter(c, d);

	return w ? waiter_turn(c, w) : NULL;
}

/* Blocks of a waiting sequence, once it is resident. */
u32 waiter_blocks(const struct core *c, const struct kv_seq *w)
{
	return seq_needs(c, w);
}

/* Could @w be admitted if the other domains lost all that they may lose? */
bool waiter_fits(struct core *c, const struct kv_seq *w)
{
	const struct kv_domain *d = seq_domain(c, w);
	u32 total = domain_most(d, w->nr_ids);

	KV_BUG_ON(w->flags & SEQF_RUNNING);
	return !domain_limited(d, total) &&
	       (u64)span_runs_reachable(c, w->domain) * d->dev.span_blocks >= total;
}

/* Would the waiting sequence be admitted if there were memory? */
bool waiter_could_use(struct core *c, const struct kv_seq *w)
{
	const struct kv_domain *d = seq_domain(c, w);
	u32 total = waiter_blocks(c, w);

	return waiter_fits(c, w) && !domain_limited(d, total) &&
	       (!d->nr_running || domain_held(d) + total <= d->high_blocks) &&
	       waiter_has_pages(c, w);
}

/**
 * promise_need() - blocks that all waiting sequences within memory.min need
 * @nr: blocks that the first of them needs, or a sequence that grows
 *
 * The sequences behind the first one are assumed to find as long a prefix as it
 * does.  PROMISE_LOOK of them are looked at, so that the event stays short.
 * Return: blocks, at least @nr.
 */
u32 promise_need(const struct core *c, u32 dom, u32 nr)
{
	const struct kv_domain *d = &c->domains[dom];
	u32 i = d->wait_head, need = nr, found, one, n;

	if (i == CORE_NONE)
		return nr;
	KV_BUG_ON(c->seqs[i].prev != CORE_NONE || !d->nr_waiting);
	found = waiter_blocks(c, &c->seqs[i]) + wmark_min(d);
	found -= min(found, nr);
	i = c->seqs[i].next;
	for (n = 0; i != CORE_NONE && n < PROMISE_LOOK; n++) {
		one = waiter_blocks(c, &c->seqs[i]);
		one -= min(found, one);
		/* And the next block of each. */
		if (!limit_within_min(d, domain_held(d), need + one + 1))
			break;
		need += one + 1;
		i = c->seqs[i].next;
	}
	return need;
}
