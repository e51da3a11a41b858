// SPDX-License-Identifier: Apache-2.0
/*
 * wmark.c - watermarks of a domain's free blocks, the background reclaimer
 *
 * Blocks belong to domains, so the marks do, too; those of the pool are their
 * sums.  They are compared with the room of the domain: its free blocks that are
 * not reserved, as far as memory.max allows to use them.
 *
 *	min	blocks that running sequences may take before anything else can
 *		be done for them.  An admission leaves them: room below min is
 *		for running sequences alone
 *	low	min and a gap; below it the reclaimer is awake
 *	high	low and the gap again; there it sleeps
 *
 * min is a sum over the sequences (tally.c), not an estimate.  Before the core
 * can react, a sequence takes at most one block, however many steps its client
 * has open: a step appends a token, and a block has more tokens than steps can
 * be open.  It takes no block if its table and its reservation hold its prompt
 * and all of max_tokens.  It takes one block more if it may not write its tail:
 * because the tail is full after a truncation, or because a fork shares it; a
 * shared tail is counted with the block (kv_domain.tails).  Instead of a block,
 * as many tokens as steps can be open would be a bound, too, at a sixteenth of
 * the blocks.  But sequences admitted into that room are preempted soon after,
 * which costs more (Documentation/core.md has the figures).
 *
 * The gap is watermark_scale_factor of the capacity, in 10000ths.  It is small,
 * since a block that is evicted early can no longer be found.  0 turns the
 * reclaimer off.
 *
 * The reclaimer runs in core_tick().  It takes free extents first, then cache
 * that a lower tier has.  It copies the blocks that are evicted next down, and
 * evicts a block when its copy is complete.  It never evicts content that would
 * be lost: that would save the next request a microsecond, and cost the prefill
 * of a sequence that would have found the block.  It looks at no more than
 * RECLAIM_BATCH blocks a domain and tick, takes nothing of other domains, and
 * nothing that memory.min protects.  Growth and admissions after it find their
 * blocks free.  Blocks that they still evict themselves count as reclaim_direct,
 * those of the reclaimer as reclaim_background.
 *
 * The only state is kv_domain.reclaiming: the reclaimer is awake.  Only this
 * file writes it.  Everything else is computed when it is needed.
 */
#include "kvmm/core/share/share.h"

#define RECLAIM_BATCH	32u	/* blocks of a domain that a tick looks at */
#define SCALE_ONE	10000u	/* watermark_scale_factor that means all of the capacity */

/* Is the block of the next token full because the sequence was truncated? */
static bool tail_was_cut(const struct core *c, const struct kv_seq *s,
			 const struct kv_tab *t, u32 bt)
{
	/* A copy that the admission reserved a block for is counted there. */
	if (s->cover % bt == 0 || s->cover / bt >= t->nr_blocks ||
	    (s->flags & SEQF_COPY) || s->state != KVMM_SEQ_READY)
		return false;
	return c->blocks[table_get(c, t, s->cover / bt)].state != BLK_OPEN;
}

/**
 * wmark_seq() - blocks that a running sequence may take before a reaction
 *
 * Reserved blocks and copies of shared tails are not included.  A marked
 * sequence takes none, since it gives its blocks back.
 */
u32 wmark_seq(const struct core *c, const struct kv_seq *s)
{
	const struct kv_domain *d = seq_domain(c, s);
	const struct kv_tab *t;
	u32 nr = 0, have;

	if (s->state == KVMM_SEQ_MARKED || (s->flags & SEQF_CLOSING))
		return 0;
	for_each_tab(c, s, t) {
		have = t->nr_blocks + t->reserved;
		/* A block that is reserved for a copy does not make the table longer. */
		have -= (s->flags & SEQF_COPY) != 0;
		if (have < group_blocks(d, t->group, s->prompt_len + s->max_tokens) + t->shift)
			nr += d->width[t->group];
		/* A record is never cut. */
		if (d->group[t->group].kind != KVMM_GROUP_STATE)
			nr += tail_was_cut(c, s, t, d->group[t->group].block_tokens);
	}
	return nr;
}

/* wmark_min() - the min mark: the sum of wmark_seq(), and shared tails */
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

/* wmark_get() - a domain's marks, in blocks; all 0 while no sequence runs */
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

/* wmark_room() - free blocks for growth, with those of spans being made */
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
 * Get one block nearer to high.  @next: block that is evicted next, of those not
 * looked at yet.
 * Return: false: stop for now.
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
	KV_BUG_ON(c->blocks[blk].state != BLK_CACHED ||
		  c->blocks[blk].domain != dom);
	*next = lru_after(c, blk);
	/* An evicted block of an isolated span would be no room. */
	if (!demote_ahead(c, dom, blk) || !limit_may_lose(d, 1, true) ||
	    span_is_isolated(&c->spans[block_span(c, blk)]))
		return true;
	index_evict(c, blk);
	core_count(c, CORE_EV_reclaim_background, 1);
	/* Descendants may be evicted with it, so the order has changed. */
	*next = lru_next(c, dom);
	return true;
}

static void reclaim_domain(struct core *c, u32 dom)
{
	struct kv_domain *d = &c->domains[dom];
	struct wmark w;
	u32 n, next;

	/* No sequence takes more than two blocks of a group before a reaction. */
	if (!d->reclaiming && wmark_room(d) >=
	    2 * d->nr_running * d->nr_groups + wmark_gap(c, d))
		return;
	wmark_get(c, d, &w);
	if (!d->reclaiming && wmark_room(d) < w.low && d->dev.nr[BLK_CACHED]) {
		d->reclaiming = 1;
		core_count(c, CORE_EV_wmark_low_hit, 1);
	}
	if (!d->reclaiming)
		return;
	c->taker = dom;
	/* Spans that become empty are needed here, so they stay. */
	KV_BUG_ON(d->dev.keep_spans);
	d->dev.keep_spans = 1;
	next = lru_next(c, dom);
	for (n = 0; n < RECLAIM_BATCH && wmark_room(d) < w.high; n++)
		if (!reclaim_one(c, dom, &next))
			break;
	d->dev.keep_spans = 0;
	if (wmark_room(d) >= w.high || !d->dev.nr[BLK_CACHED])
		d->reclaiming = 0;
}

/* wmark_background() - on a tick: reclaim in domains that are short of room */
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
