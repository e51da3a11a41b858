// SPDX-License-Identifier: Apache-2.0
/*
 * sched.c - plan of the next step
 *
 * A step has a budget of tokens, the rows of one forward.  Decoding sequences
 * take one row each and go first.  The remaining rows go to prompts, in chunks,
 * in order of priority and arrival.  So a long prompt slows the others down but
 * never stops them.  If not all decodes fit, the choice begins where it ended
 * the last time.
 *
 * The plan is made while the step before it has yet to run, and counts that
 * step as done: a sequence whose next token is still to be drawn gets an entry
 * at the position after it, because STEP_BEGIN asks for capacity and needs no
 * ids.  A sequence gets no entry while its next position is uncertain: its last
 * token is being drawn, or its family is about to fork.  A beam gets none
 * either, because it may become another beam as long as no open step names it.
 * A sequence that a stop id ends has had one entry too many, which is ended
 * without progress.
 *
 * Prompts with tokens to be scored share the rows of logits that are reserved
 * for scores.
 *
 * A step must not stay open past the daemon's deadline while other clients wait
 * for memory, and with one step ahead each step is open for two forwards.  So
 * the budget shrinks on machines where rows take long.
 */
#include "runtime/engine/internal.h"

#define SCHED_DEADLINE_SHARE	8u	/* share of the deadline for one forward */
#define SCHED_MIN_ROWS		16u

/* Positions that @s could take now, 0: none. */
static u32 seq_wants(const struct seq *s, bool *draws)
{
	const struct request *r = s->req;
	u32 n;

	if (beam_is_leaving(s) || !adapters_hold(r))
		return 0;
	if (s->planned < s->len) {
		n = s->len - s->planned;
		*draws = !s->to_fork && !s->held;
		return n;
	}
	/* All known ids are read or in an open step: is another being drawn? */
	*draws = true;
	if (s->planned > s->len || !s->nr_draws || r->beams)
		return 0;
	if (s->sample == ENGINE_NO_SAMPLE && r->c.n > 1)
		return 0;
	return request_room(r, s->len) > 1;
}

static u32 plan_rows(const struct engine *e)
{
	const u64 deadline = kvmm_info(e->k)->step_deadline_ms * 1000000ull;
	u64 rows = e->rows;

	if (deadline && e->row_ns)
		rows = min(rows, deadline / SCHED_DEADLINE_SHARE / e->row_ns);
	return within((u32)rows, min(SCHED_MIN_ROWS, e->rows), e->rows);
}

/* Mark sequences that read one position.  Return: how many rows are left. */
static u32 pick_decodes(struct engine *e, u32 rows, u32 *nr)
{
	u32 i, at = 0;
	bool draws;

	for (i = 0; i < e->nr_live && rows && *nr < e->max_batch; i++) {
		struct seq *s;

		at = (e->turn + i) % e->nr_live;
		s = e->live[at];
		if (s->state != SEQ_RUNNING || seq_wants(s, &draws) != 1 ||
		    !seq_is_resident(e, s))
			continue;
		s->picked = 1;
		rows--;
		++*nr;
	}
	/* All are in: the next round begins with the first again. */
	e->turn = i < e->nr_live ? at + 1 : 0;
	return rows;
}

static void pick_prefills(struct engine *e, u32 rows, u32 nr)
{
	u32 i, want, scores = e->max_scores;
	bool draws;

	for (i = 0; i < e->nr_live && rows && nr < e->max_batch; i++) {
		struct seq *s = e->live[i];

		if (s->state != SEQ_RUNNING || s->picked)
			continue;
		want = seq_wants(s, &draws);
		if (want < 2 || !seq_is_resident(e, s))
			continue;
		s->picked = least(want, e->chunk, rows);
		if (seq_scores(s)) {
			s->picked = min(s->picked, scores);
			scores -= s->picked;
			if (!s->picked)
				continue;
		}
		rows -= s->picked;
		nr++;
	}
}

static void plan_entry(struct step *st, struct seq *s)
{
	struct entry *en = &st->entries[st->nr++];
	bool draws;
	u32 want;

	want = seq_wants(s, &draws);
	memset(en, 0, sizeof(*en));
	en->seq = s;
	en->start = s->planned;
	en->nr = s->picked;
	en->draws = draws && en->nr == want;
	s->picked = 0;
	s->planned += en->nr;
	s->nr_draws += en->draws;
	s->nr_open++;
}

/**
 * sched_begin() - plan a step and send its BEGIN
 *
 * Return: 1; 0: no work, or no free step; or an error of link_begin().
 */
int sched_begin(struct engine *e)
{
	struct step *st = engine_step_at(e, e->last_step + 1);
	u32 i, rows, nr = 0;
	int err;

	/*
	 * By ring order, the END of the last step in this slot has been
	 * answered.
	 */
	if (e->nr_steps >= e->lookahead || st->state != STEP_FREE)
		return 0;
	rows = pick_decodes(e, plan_rows(e), &nr);
	pick_prefills(e, rows, nr);
	st->nr = 0;
	for (i = 0; i < e->nr_live; i++)
		if (e->live[i]->picked)
			plan_entry(st, e->live[i]);
	if (!st->nr)
		return 0;
	st->number = ++e->last_step;
	st->state = STEP_BEGUN;
	e->nr_steps++;
	err = link_begin(e, st);
	return err ? err : 1;
}
