// SPDX-License-Identifier: Apache-2.0
/*
 * move.c - which blocks moved inside the simulated device
 *
 * Migrations are rare, and each kind is another path through the core.  So each
 * kind is counted: a simulator that never moved a shared block proves nothing
 * about it.  The kind is read from the core's own records when a copy is over,
 * before the core hears of it.
 */
#include "kvmm/core/node/node.h"
#include "tests/sim/sim.h"

/* Empty a certain span, as the core does when memory is taken back. */
void move_act(struct sim *w)
{
	u32 i, nr = core_sizes(w->core)->nr_extents;
	u32 at = rng_below(&w->rng, nr);
	bool any = rng_chance(&w->rng, 500);

	w->crash_in = 0;	/* this is no event of the core's */
	w->core->now = w->now;
	for (i = 0; i < nr; i++, at = (at + 1) % nr)
		if (w->core->spans[at].nr_extents)
			break;
	if (i == nr)
		return;
	LOG(w, "span %u of domain %u is to go", at,
	    w->core->spans[at].domain);
	if (evacuate_span(w->core, at, any))
		cover_note("certain spans emptied");
	admit_all(w->core);
}

/* Count a copy inside the device; its answer is about to be given. */
void cover_move(const struct sim *w, u64 id, int status)
{
	const struct core *c = w->core;
	const struct kv_block *b;
	u32 i;

	for (i = 0; i < CORE_MAX_MOVES; i++)
		if (c->head->moves[i].state == MOVE_COPYING &&
		    c->head->moves[i].generation == (u32)(id >> 32))
			break;
	if (i == CORE_MAX_MOVES)
		return;
	b = &c->blocks[c->head->moves[i].from];
	if (status)
		cover_note("moves that failed");
	else if (c->head->moves[i].stale)
		cover_note("moves of blocks that were written meanwhile");
	else if (b->state == BLK_LIMBO)
		cover_note("moves of blocks that were freed meanwhile");
	else if (b->state == BLK_CACHED)
		cover_note("moves of cached blocks");
	else if (b->nr_map > 1)
		cover_note("moves of blocks that several map");
	else if (b->state == BLK_OPEN)
		cover_note("moves of tails");
	else
		cover_note("moves of sealed blocks");
}
