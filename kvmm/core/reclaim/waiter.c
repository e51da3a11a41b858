// SPDX-License-Identifier: Apache-2.0
/*
 * waiter.c - memory that waiting sequences need, and whether they can have it
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

/* Blocks of a waiting sequence, once it is resident. */
u32 waiter_blocks(const struct core *c, const struct kv_seq *w)
{
	KV_BUG_ON(w->nr_blocks < w->trimmed);
	return max(tokens_to_blocks(seq_domain(c, w), w->nr_ids), w->nr_blocks);
}

/* Could @w be admitted if the other domains lost all that they may lose? */
bool waiter_fits(struct core *c, const struct kv_seq *w)
{
	const struct kv_domain *d = seq_domain(c, w);
	u32 total = tokens_to_blocks(d, w->nr_ids);

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
	       ((w->flags & SEQF_SWAPPED) || table_has_room(c, w, total));
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
