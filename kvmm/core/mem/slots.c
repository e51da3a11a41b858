// SPDX-License-Identifier: Apache-2.0
/*
 * slots.c - which slot of a lower pool
 *
 * A disk does few large transfers better than many small ones, and swapd makes
 * one of those whose slots are neighbours in the area and on the host.  So the
 * blocks of a sequence lie side by side, in the order of the sequence:
 *
 *	OUT	blocks go from a sequence's end: each takes the slot before
 *		the one that was taken last
 *	WRITE	host slots that are neighbours, one after the other, get
 *		neighbours in the area, the same way round
 *	READ	likewise on the host
 *
 * Where there is no such neighbour, or somebody has it, a new run begins: in
 * one of the fullest spans that have as many free slots in a row as are wanted,
 * so that emptier ones can fall free; else, for a sequence's first, in another span if
 * the pool has one; else where there are most in a row.  SCAN blocks are looked
 * at.  Only speed depends on it: any free slot will do.
 *
 * Free slots hang on their span's list by both ends, so one can be taken from
 * the middle.
 */
#include "kvmm/core/mem/mem.h"

#define RUN	16	/* slots in a row that are worth looking for */
#define RUN_UNKNOWN 4	/* where nobody knows how many come */
#define SCAN	1024	/* blocks looked at for them */

/* A run of free slots. */
struct run {
	u32	first;
	u32	nr;
};

/* Take a free slot from wherever on its span's list it is, into LIMBO. */
static u32 slot_take(struct core *c, u32 slot)
{
	struct kv_block *b = &c->blocks[slot];
	struct kv_span *sp = &c->spans[block_span(c, slot)];

	KV_BUG_ON(b->state != BLK_FREE || block_refcount(b));
	if (b->prev == CORE_NONE)
		sp->free_head = b->next;
	else
		c->blocks[b->prev].next = b->next;
	if (b->next != CORE_NONE)
		c->blocks[b->next].prev = b->prev;
	b->next = CORE_NONE;
	b->prev = CORE_NONE;
	block_set_state(c, slot, BLK_LIMBO);
	return slot;
}

/* Is @slot, beside @last, a free slot of the same span? */
static bool is_free_beside(const struct core *c, u32 part, u32 last, u32 slot)
{
	u32 span = block_span(c, last);
	u32 base = span * core_sizes(c)->blocks_per_extent;
	const struct kv_span *sp = &c->spans[span];

	return sp->nr_extents && sp->domain == part && slot >= base &&
	       slot < base + sp->nr_blocks &&
	       c->blocks[slot].state == BLK_FREE;
}

/* Is @r better where @nr are wanted: the shortest that has them, or longest? */
static bool run_is_better(const struct run *r, const struct run *than, u32 nr)
{
	if (than->nr < nr)
		return r->nr > than->nr;
	return r->nr >= nr && r->nr < than->nr;
}

/* The best run of a span. */
static struct run span_run(const struct core *c, u32 first, u32 nr)
{
	u32 i = first * core_sizes(c)->blocks_per_extent;
	u32 end = i + c->spans[first].nr_blocks;
	struct run best = { CORE_NONE, 0 }, r;

	while (i < end) {
		for (; i < end && c->blocks[i].state != BLK_FREE; i++)
			;
		for (r.first = i; i < end && c->blocks[i].state == BLK_FREE;
		     i++)
			;
		r.nr = i - r.first;
		if (run_is_better(&r, &best, nr))
			best = r;
	}
	return best;
}

/* See the head of the file.  There is a free slot. */
static struct run run_find(const struct core *c, const struct kv_part *part,
			   u32 nr)
{
	struct run best = { CORE_NONE, 0 }, r;
	u32 class, i, seen = 0;

	for (class = 1; class <= CORE_CLASS_EMPTY && best.nr < nr; class++)
		for (i = part->class[class]; i != CORE_NONE && seen < SCAN;
		     i = c->spans[i].next) {
			r = span_run(c, i, nr);
			if (run_is_better(&r, &best, nr))
				best = r;
			seen += c->spans[i].nr_blocks;
		}
	return best;
}

/*
 * @want beside @last if it is free; else the first of @nr that go on upwards,
 * or downwards.
 */
static u32 slot_alloc(struct core *c, u32 part, u32 last, u32 want, u32 nr,
		      bool up)
{
	struct kv_part *p = part_at(c, part);
	struct run r;

	if (last != CORE_NONE && is_free_beside(c, part, last, want))
		return slot_take(c, want);
	if (span_first_free(c, p) == CORE_NONE && extent_run_take(c, part) <= 0)
		return CORE_NONE;
	nr = min(nr, (u32)RUN);
	r = run_find(c, p, nr);
	if (r.first == CORE_NONE)
		return CORE_NONE;
	return slot_take(c, up ? r.first : r.first + min(r.nr, nr) - 1);
}

/* A sequence begins: is there a run for it, or can there be one? */
static void run_room(struct core *c, u32 part, u32 nr)
{
	nr = min(nr, (u32)RUN);
	if (run_find(c, part_at(c, part), nr).nr < nr)
		(void)extent_run_take(c, part);
}

/**
 * slot_alloc_out() - take a host slot for a block that is copied out
 * @part: part_index() of the domain there
 * @nr:   blocks before it in its sequence that follow, and itself; 0: nobody
 *        knows
 *
 * Return: the slot, in LIMBO, or CORE_NONE.
 */
u32 slot_alloc_out(struct core *c, u32 part, u32 nr)
{
	struct kv_part *p = part_at(c, part);
	u32 last = !nr || nr + 1 == p->slot_nr ? p->slot_out : CORE_NONE;
	u32 slot;

	if (nr && last == CORE_NONE)
		run_room(c, part, nr);
	slot = slot_alloc(c, part, last, last - 1, nr ? nr : RUN_UNKNOWN,
			  false);
	if (slot == CORE_NONE)
		return slot;
	p->slot_out = slot;
	p->slot_nr = nr;
	return slot;
}

/**
 * slot_alloc_beside() - take a slot for what lies in another one
 * @peer: that one, on the other tier
 * @up:   those that follow most likely lie behind @peer, not before it
 *
 * Return: the slot, in LIMBO, or CORE_NONE.
 */
u32 slot_alloc_beside(struct core *c, u32 part, u32 peer, bool up)
{
	struct kv_part *p = part_at(c, part);
	u32 last = CORE_NONE, want = CORE_NONE, slot;

	if (p->slot_peer != CORE_NONE && peer == p->slot_peer + 1) {
		last = p->slot_last;
		want = last + 1;
	} else if (p->slot_peer != CORE_NONE && peer == p->slot_peer - 1) {
		last = p->slot_last;
		want = last - 1;
	}
	slot = slot_alloc(c, part, last, want, RUN, up);
	if (slot != CORE_NONE) {
		p->slot_row = slot == want ? p->slot_row + 1 : 1;
		p->slot_last = slot;
		p->slot_peer = peer;
	}
	return slot;
}
