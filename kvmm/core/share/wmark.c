// SPDX-License-Identifier: Apache-2.0
/*
 * wmark.c - watermarks of a domain's free blocks, and who works between them
 *
 * Blocks are a domain's, so the marks are too; those of the pool are their
 * sums.  What they are compared with is the domain's room: free blocks that no
 * admission was promised, as far as memory.max lets them be used.
 *
 *	min	what the sequences that run may take before anything else can
 *		be done for them.  An admission leaves it to them: room below min
 *		is for running sequences alone
 *	low	min and a gap; below it the reclaimer is awake
 *	high	low and the gap again; there it sleeps
 *
 * min is added up from the sequences (tally.c), not guessed.  Until something can be done
 * for it a sequence takes one block, whatever its client has open: a step
 * appends a token, and a block has more tokens than steps can be open.  It takes
 * none if its table and its promise hold its prompt and all of max_tokens, and
 * one more if its tail is not its own to write: full because it was cut, or shared
 * by a fork, which is counted with the block (kv_domain.tails).  A look of as
 * many tokens as steps can be open would be a bound as well, at a sixteenth of
 * the blocks; what is admitted with it is preempted soon after, which costs more
 * (Documentation/core.md has the figures).
 *
 * The gap is watermark_scale_factor of what the domain could have, in 10000ths:
 * small, for a block that is evicted early can no longer be found.  0 turns the
 * reclaimer off.
 *
 * The reclaimer runs when the core ticks.  It takes free extents first, then
 * cache, and of that only what a lower tier has: it copies what goes next down,
 * and lets such a block go when that is over.  What would be lost is never
 * evicted ahead of need: that saves who needs it a microsecond, and costs the
 * prefill of who would have found it.  It looks at RECLAIM_BATCH blocks a domain
 * and tick at most, takes nothing of other domains, and nothing that memory.min
 * protects.  Growth and admissions that come between find their blocks free;
 * what they still evict themselves is counted as reclaim_direct, the reclaimer's
 * as reclaim_background.
 *
 * State is kv_domain.reclaiming alone: the reclaimer is awake.  It is written
 * here.  Everything else is worked out when asked.
 */
#include "kvmm/core/share/share.h"

#define RECLAIM_BATCH	32u	/* blocks of a domain in one tick */
#define SCALE_ONE	10000u	/* watermark_scale_factor is of this */

/* Is the block that the next token goes to full, because it was cut? */
static bool tail_was_cut(const struct core *c, const struct kv_seq *s)
{
	u32 bt = seq_domain(c, s)->block_tokens;

	/* What admission promised a copy for is counted there. */
	if (s->cover % bt == 0 || s->cover / bt >= s->nr_blocks ||
	    (s->flags & SEQF_COPY) || s->state != KVMM_SEQ_READY)
		return false;
	return c->blocks[table_get(c, s, s->cover / bt)].state != BLK_OPEN;
}

/**
 * wmark_seq() - blocks that a resident sequence may take soon
 *
 * Beside what it was promised, and what it copies because others have it too.
 * Of a victim: none, it gives back.
 */
u32 wmark_seq(const struct core *c, const struct kv_seq *s)
{
	u32 have = s->nr_blocks + s->reserved;

	if (s->state == KVMM_SEQ_MARKED || (s->flags & SEQF_CLOSING))
		return 0;
	/* One that was promised for a copy makes the table no longer. */
	have -= (s->flags & SEQF_COPY) != 0;
	return (have < seq_most(c, s)) + tail_was_cut(c, s);
}

/* wmark_min() - the same of all that run in a domain, and shared tails */
u32 wmark_min(const struct kv_domain *d)
{
	return d->soon + d->tails;
}

static u32 wmark_gap(const struct core *c, const struct kv_domain *d)
{
	u64 nr = (u64)domain_capacity(c, d) *
		 core_cfg(c)->watermark_scale_factor;

	return (u32)DIV_ROUND_UP(nr, (u64)SCALE_ONE);
}

/* wmark_get() - a domain's marks, in blocks; none where nothing runs */
void wmark_get(const struct core *c, const struct kv_domain *d,
	       struct wmark *w)
{
	u32 gap = wmark_gap(c, d);

	memset(w, 0, sizeof(*w));
	if (!d->nr_running)
		return;
	w->min = wmark_min(d);
	w->low = w->min + gap;
	w->high = w->low + gap;
}

/* wmark_room() - free blocks that growth could take, those in the making too */
u32 wmark_room(const struct kv_domain *d)
{
	u64 used = (u64)domain_used(d) + d->dev.reserved;
	u64 room = domain_slack(d) +
		   (u64)d->dev.pending_spans * d->dev.span_blocks;

	if (used >= d->dev.max_blocks)
		return 0;
	return (u32)min(room, d->dev.max_blocks - used);
}

/* ---- the reclaimer ---- */

/*
 * One block nearer to high.  @next: goes next, of those not looked at yet.
 * Return: false: that is all for now.
 */
static bool reclaim_one(struct core *c, u32 dom, u32 *next)
{
	struct kv_domain *d = &c->domains[dom];
	u32 blk = *next;

	if ((u64)domain_used(d) + d->dev.reserved < d->dev.max_blocks &&
	    extent_run_take(c, dom) >= 0)
		return true;
	if (blk == CORE_NONE)
		return false;
	*next = lru_after(c, blk);
	/* In a span that is to go it would be no room. */
	if (!demote_ahead(c, dom, blk) || !limit_may_lose(d, 1, true) ||
	    span_is_isolated(&c->spans[block_span(c, blk)]))
		return true;
	index_evict(c, blk);
	core_count(c, CORE_EV_reclaim_background, 1);
	/* Its kids may have gone with it, and who was behind it is elsewhere. */
	*next = lru_next(c, dom);
	return true;
}

static void reclaim_domain(struct core *c, u32 dom)
{
	struct kv_domain *d = &c->domains[dom];
	struct wmark w;
	u32 n, next;

	/* No sequence takes more than two blocks within what is looked ahead. */
	if (!d->reclaiming && wmark_room(d) >=
	    2 * d->nr_running + wmark_gap(c, d))
		return;
	wmark_get(c, d, &w);
	if (!d->reclaiming && wmark_room(d) < w.low && d->dev.nr[BLK_CACHED]) {
		d->reclaiming = 1;
		core_count(c, CORE_EV_wmark_low_hit, 1);
	}
	if (!d->reclaiming)
		return;
	c->taker = dom;
	/* A span that falls empty now is wanted, not to be given away. */
	d->dev.keep_spans = 1;
	next = lru_next(c, dom);
	for (n = 0; n < RECLAIM_BATCH && wmark_room(d) < w.high; n++)
		if (!reclaim_one(c, dom, &next))
			break;
	d->dev.keep_spans = 0;
	if (wmark_room(d) >= w.high || !d->dev.nr[BLK_CACHED])
		d->reclaiming = 0;
}

/* wmark_background() - time passed: where room is short, make some */
void wmark_background(struct core *c)
{
	u32 i;

	for_each_domain(c, i) {
		if (core_cfg(c)->watermark_scale_factor)
			reclaim_domain(c, i);
		else
			c->domains[i].reclaiming = 0;
	}
	c->taker = CORE_NONE;
}
