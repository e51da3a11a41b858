// SPDX-License-Identifier: Apache-2.0
/*
 * slots.c - choice of a slot in a lower pool
 *
 * A disk does a few large transfers faster than many small ones.  swapd joins
 * transfers whose slots are neighbours in the area and in the host pool.  So
 * the blocks of a sequence get neighbouring slots, in the sequence's order:
 *
 *	OUT	blocks are copied from the end of a sequence: each takes the
 *		slot before the one that was taken last
 *	WRITE	neighbours in the host pool, written one after another, get
 *		neighbours in the area, in the same order
 *	READ	likewise in the host pool
 *
 * Where the neighbour is in use or does not exist, a new run of slots begins.
 * The first choice is the fullest span that has enough free slots in a row, so
 * that emptier spans can be freed.  Else a sequence's first block begins
 * another span, if the pool has one.  Else the longest row is taken.  A search
 * looks at SCAN blocks.  Only speed depends on it: any free slot is correct.
 *
 * The free list of a span is doubly linked, so that a slot can be taken from
 * its middle.
 */
#include "kvmm/core/mem/mem.h"

#define RUN	16	/* longest run of free slots that a search asks for */
#define RUN_UNKNOWN 4	/* as @nr, where the number of blocks to come is unknown */
#define SCAN	1024	/* blocks that a search visits before it takes the best run */

/* A run of free slots. */
struct run {
	u32	first;
	u32	nr;
};

/* Take a free slot from any place of its span's list; it becomes LIMBO. */
static u32 slot_take(struct core *c, u32 slot)
{
	struct kv_block *b = &c->blocks[slot];
	struct kv_span *sp = &c->spans[block_span(c, slot)];

	KV_BUG_ON(b->state != BLK_FREE || block_refcount(b));
	KV_BUG_ON((b->prev == CORE_NONE) != (sp->free_head == slot));
	KV_BUG_ON(b->prev != CORE_NONE && c->blocks[b->prev].next != slot);
	KV_BUG_ON(b->entry != CORE_NONE || !sp->nr_free);
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

/* Is @slot, next to @last, a free slot of the same span? */
static bool is_free_beside(const struct core *c, u32 part, u32 last, u32 slot)
{
	u32 span = block_span(c, last);
	u32 base = span * core_sizes(c)->blocks_per_extent;
	const struct kv_span *sp = &c->spans[span];

	return sp->nr_extents && sp->domain == part && slot >= base &&
	       slot < base + sp->nr_blocks &&
	       c->blocks[slot].state == BLK_FREE;
}

/*
 * Is @r better for @nr slots? The shortest run that is enough, or the longest.
 */
static bool run_is_better(const struct run *r, const struct run *than, u32 nr)
{
	if (than->nr < nr)
		return r->nr > than->nr;
	return r->nr >= nr && r->nr < than->nr;
}

/* The best run of free slots in a span. */
static struct run span_run(const struct core *c, u32 first, u32 nr)
{
	u32 i = first * core_sizes(c)->blocks_per_extent;
	u32 end = i + c->spans[first].nr_blocks;
	struct run best = { CORE_NONE, 0 }, r;

	KV_BUG_ON(!c->spans[first].nr_extents);
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

/* The best run, as the head of the file says; there is a free slot. */
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
 * Take @want next to @last if it is free; else the first slot of a run of @nr
 * that goes upwards (@up) or downwards.
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

/* Make room for a run if no span has one, and the pool has extents. */
static void run_room(struct core *c, u32 part, u32 nr)
{
	nr = min(nr, (u32)RUN);
	if (run_find(c, part_at(c, part), nr).nr < nr)
		(void)extent_run_take(c, part);
}

/**
 * slot_alloc_out() - take a host slot for a block that is copied out
 * @part: part_index() of the domain in the host pool
 * @nr:   blocks of its sequence still to be copied out, from its end, this one
 *        included; 0: not known
 *
 * Return: the slot, in LIMBO, or CORE_NONE.
 */
u32 slot_alloc_out(struct core *c, u32 part, u32 nr)
{
	struct kv_part *p = part_at(c, part);
	u32 last = !nr || nr + 1 == p->slot_nr ? p->slot_out : CORE_NONE;
	u32 slot;

	KV_BUG_ON(part_pool(c, part) != CORE_POOL_HOST || !p->used);
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
 * slot_alloc_beside() - take a slot for the content of a slot in another tier
 * @peer: the slot in the other tier
 * @up:   the next content is likely to be behind @peer, not before it
 *
 * Return: the slot, in LIMBO, or CORE_NONE.
 */
u32 slot_alloc_beside(struct core *c, u32 part, u32 peer, bool up)
{
	struct kv_part *p = part_at(c, part);
	u32 last = CORE_NONE, want = CORE_NONE, slot;

	KV_BUG_ON(!part_pool(c, part) || !p->used);
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
