// SPDX-License-Identifier: Apache-2.0
/*
 * check_moves.c - walkers of moves, of evacuations and of held blocks
 *
 * Each move has its flags on two blocks, and no other block has such flags.  Each
 * evacuation has an isolated span, or no span and copies in flight.
 */
#include "kvmm/core/check/check.h"

static void walk_move(struct walk *w, u32 i, u32 *copying)
{
	const struct core *c = w->c;
	const struct kv_move *m = &c->head->moves[i];
	const struct kv_block *from = &c->blocks[m->from];
	const struct kv_block *to = &c->blocks[m->to];

	expect(w, "move", "mark on the source of", i,
	       from->flags & BLKF_MOVING, BLKF_MOVING);
	expect(w, "move", "mark on the target of", i, to->flags & BLKF_TARGET,
	       BLKF_TARGET);
	expect(w, "move", "state of the target of", i, to->state, BLK_LIMBO);
	expect(w, "move", "who needs the target of", i, block_refcount(to), 1);
	expect(w, "move", "copies of the target of", i, to->nr_copy, 1);
	expect(w, "move", "source that is free:", i, from->state == BLK_FREE,
	       0);
	expect(w, "law 2", "domain of the target of", i, to->domain,
	       from->domain);
	copying[m->evac] += m->state == MOVE_COPYING;
}

static void walk_holds(struct walk *w)
{
	const struct core *c = w->c;
	u32 i, n, k, held = 0, most = core_sizes(c)->nr_holds;

	for (i = c->head->free_hold, n = 0; i != CORE_NONE && n <= most; n++)
		i = c->holds[i].next;
	for (i = 0; i < core_sizes(c)->nr_steps; i++) {
		u32 client = i / KVMM_MAX_STEPS;
		struct kv_step_entry *e;
		const struct kv_step *st;

		if (c->clients[client].state == CLI_FREE ||
		    i % KVMM_MAX_STEPS >= c->clients[client].nr_steps)
			continue;
		st = step_at(c, client, i % KVMM_MAX_STEPS, &e);
		for (k = st->held; k != CORE_NONE && held <= most; held++)
			k = c->holds[k].next;
	}
	expect(w, "steps", "records of what is held", 0, n + held, most);
}

/* Moves, evacuations, holds. */
void check_moves(struct walk *w)
{
	const struct core *c = w->c;
	u32 copying[CORE_MAX_EVACS] = { 0 }, marks = 0, moves = 0, nr = 0, i;

	for (i = 0; i < core_sizes(c)->nr_blocks; i++)
		marks += !!(c->blocks[i].flags & BLKF_MOVING) +
			 !!(c->blocks[i].flags & BLKF_TARGET);
	for (i = 0; i < CORE_MAX_MOVES; i++) {
		if (c->head->moves[i].state == MOVE_UNUSED)
			continue;
		walk_move(w, i, copying);
		moves++;
	}
	expect(w, "move", "marks of", 0, marks, 2 * moves);
	for (i = 0; i < CORE_MAX_EVACS; i++) {
		const struct kv_evac *ev = &c->head->evacs[i];

		nr += copying[i];
		expect(w, "move", "copies of evacuation", i, ev->nr,
		       copying[i]);
		if (ev->span == CORE_NONE)
			continue;
		expect(w, "move", "span of evacuation", i,
		       c->spans[ev->span].nr_extents &&
		       span_is_isolated(&c->spans[ev->span]), 1);
		expect(w, "move", "domain of evacuation", i,
		       c->spans[ev->span].domain, ev->dom);
	}
	expect(w, "move", "copies in flight of", 0, c->head->nr_moves, nr);
	walk_holds(w);
}
