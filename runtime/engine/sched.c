// SPDX-License-Identifier: Apache-2.0
/*
 * sched.c - what the next step holds
 *
 * A step has a budget of tokens, the rows of one forward.  Sequences that
 * decode take one each and go first; what is left goes to prompts, in chunks,
 * in the order of priority and arrival, so that a long prompt slows the
 * others down but never stops them.  If not all decodes fit, the choice
 * begins where it ended the last time.
 *
 * The plan is made while the step before it has yet to run, and counts that
 * one as done: a sequence whose next token is still to be drawn gets an entry
 * at the position after it, because STEP_BEGIN asks for capacity and wants no
 * ids.  Nothing is planned on top of what nobody knows: a sequence whose last
 * token is being drawn, or whose family is about to fork, has no entry, nor has
 * a beam, which may become another one as long as it is in no open step.  One
 * that a stop id ends has had one entry too many, which is ended without
 * progress.
 *
 * Prompts whose tokens are to be scored share the rows of logits that there
 * are for that.
 *
 * A step may not stay open past the daemon's deadline while others wait for
 * memory, and with one step ahead each is open for two forwards: the budget
 * shrinks on machines where rows take long.
 */
#include "runtime/engine/internal.h"

#define SCHED_DEADLINE_SHARE	8u	/* of the deadline for one forward */
#define SCHED_MIN_ROWS		16u

/* Positions that @s could take now, 0 for none. */
static u32 seq_wants(const struct seq *s, bool *draws)
{
	const struct request *r = s->req;
	u32 n;

	if (beam_is_leaving(s))
		return 0;
	if (s->planned < s->len) {
		n = s->len - s->planned;
		*draws = !s->to_fork && !s->held;
		return n;
	}
	/* All ids known are read or in an open step: is one being drawn? */
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

/* Mark sequences that read one position: return how many rows are left. */
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
	/* All of them in: the next round begins with the first again. */
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
 * sched_begin() - plan a step and ask for it
 *
 * Return: 1, 0 when there is nothing to do or no step to do it in, or as
 * link_collect().
 */
int sched_begin(struct engine *e)
{
	struct step *st = engine_step_at(e, e->last_step + 1);
	u32 i, rows, nr = 0;
	int err;

	/* By ring order, the END of this slot's last step was answered. */
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
