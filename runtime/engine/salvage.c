// SPDX-License-Identifier: Apache-2.0
/*
 * salvage.c - the daemon died inside an event, and the next one salvaged
 *
 * libkvmm resumes by itself, and in most cases nothing is lost.  After a
 * salvage the status records say which sequences are to be matched again, as
 * after a preemption.  This file does the rest.  Begun steps are void, and
 * their granted blocks must not be touched, since they may belong to another
 * sequence by now.  The daemon has forgotten the pieces of ids sent before, so
 * it refuses the next piece, and all ids are sent again (link_matched()).
 *
 * A step remembers how many salvages there were when it was begun.  A step
 * older than the last salvage is void: its grants are treated as -ESTALE
 * whenever their answer comes, and it is no error that the daemon does not know
 * the step at its end.  If its forward was running, the check comes after the
 * forward (run.c).
 */
#include "runtime/engine/internal.h"

/* step_is_void() - was @st begun before the last salvage? */
bool step_is_void(const struct engine *e, const struct step *st)
{
	return st->salvaged != e->salvaged;
}

/* The grants of @st are void. */
static void step_void(struct engine *e, struct step *st)
{
	u32 i;

	for (i = 0; i < st->nr; i++) {
		struct entry *en = &st->entries[i];

		en->runs = false;
		if (!en->status)
			entry_void(e, en);
	}
}

/**
 * engine_look_salvage() - was there a salvage that voids open steps?
 *
 * Call it before answers are taken: they may be from before the salvage.
 */
void engine_look_salvage(struct engine *e)
{
	u32 salvaged = 0, i;

	kvmm_resumed(e->k, &salvaged);
	if (salvaged == e->salvaged)
		return;
	e->salvaged = salvaged;
	for (i = 0; i < e->nr_steps; i++) {
		struct step *st = engine_step_at(e, e->last_step - i);

		if (st->state == STEP_GRANTED)
			step_void(e, st);
	}
}
