// SPDX-License-Identifier: Apache-2.0
/*
 * salvage.c - the daemon died inside an event, and the next one salvaged
 *
 * libkvmm resumes by itself, and mostly nothing is lost.  After a salvage the
 * records say which sequences are to be matched again, as after a preemption;
 * what they do not say is done here: steps that were begun are void, and what
 * they were granted must not be touched, since it may be somebody else's by
 * now; pieces of ids that were sent are forgotten, so the next one is refused,
 * and all are sent again (link_matched()).
 *
 * A step remembers after how many salvages it was begun.  One that is older
 * than the last is void: its grants are taken for -ESTALE whenever their answer
 * comes, and nobody minds that the daemon does not know it at its end.  The one
 * whose forward was under way is asked after when it is over (run.c).
 */
#include "runtime/engine/internal.h"

/* step_is_void() - was it begun before the last salvage? */
bool step_is_void(const struct engine *e, const struct step *st)
{
	return st->salvaged != e->salvaged;
}

/* What it was granted is gone. */
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
 * engine_look_salvage() - did the daemon lose what is under way?
 *
 * To be called before answers are taken: they may be of before.
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
