// SPDX-License-Identifier: Apache-2.0
/*
 * run.c - a granted step: tables, copies, forward, tokens, end
 *
 * The order is the contract with the daemon.  Tables are read after the grant
 * and before the next BEGIN is sent, because only then are they sure to be the
 * tables of this step.  All copies that the grant ordered run before any
 * position is appended, also those of entries that will not run: another sharer
 * may have been told to write the old block in place.  END is sent when the
 * forward has finished.
 *
 * A granted entry runs if its sequence still stands where the entry begins.  A
 * sequence that was marked for preemption meanwhile runs too: its computed
 * positions count, and its last token may be among them.
 *
 * The result of a forward counts only if the daemon lived until it was over:
 * the next daemon may have salvaged, and given away blocks that the step read
 * (step_confirm()).
 */
#include <stdio.h>

#include "runtime/engine/internal.h"

static void entry_refused(struct engine *e, struct entry *en)
{
	struct seq *s = en->seq;

	s->nr_open--;
	s->nr_draws -= en->draws;
	s->planned = min(s->planned, en->start);
	if (en->status == -EAGAIN)
		e->stats.retries++;
	else if (en->status == -ESTALE)
		seq_lose(e, s);
	else
		seq_refused(e, s, en->status);
}

/* entry_void() - the grant of @en is void */
void entry_void(struct engine *e, struct entry *en)
{
	en->status = -ESTALE;
	entry_refused(e, en);
}

/* step_granted() - handle the answer to STEP_BEGIN */
void step_granted(struct engine *e, struct step *st,
		  const struct kvmm_done *done)
{
	const u32 groups = e->info->nr_groups;
	const struct kvmm_begin_res *res = done->results;
	u32 i;

	st->state = STEP_GRANTED;
	st->refused = done->status != 0;
	e->stats.steps++;
	for (i = 0; i < st->nr; i++) {
		struct entry *en = &st->entries[i];

		en->status = done->status;
		if (!en->status) {
			memcpy(en->res, res, groups * sizeof(*res));
			en->status = res->status;
			res += groups;
		}
		if (step_is_void(e, st))
			en->status = -ESTALE;
		if (en->status)
			entry_refused(e, en);
	}
}

static bool group_is_state(const struct engine *e, u32 g)
{
	return e->group[g].kind == KVMM_GROUP_STATE;
}

/*
 * How far the entry's records stand behind their usual places in the table: while a record
 * that others share stands before its successor, by one record.
 */
static u32 entry_shift(const struct engine *e, const struct entry *en, u32 g)
{
	if (!group_is_state(e, g))
		return 0;
	return en->res[g].copy_to -
	       en->start / e->kv.block_tokens[g] * e->entries[g];
}

/* The first index that the entry's tokens read: in a window, or a record. */
static u32 entry_reads_from(const struct engine *e, const struct entry *en, u32 g)
{
	const u32 window = e->group[g].window;
	const struct kvmm_begin_res *res = &en->res[g];

	if (group_is_state(e, g))
		return min(res->copy_from, res->copy_to);
	return window && en->start >= window ?
	       (en->start + 1 - window) / e->kv.block_tokens[g] : 0;
}

/*
 * Must the state be copied to another record first?  At a multiple of block_tokens the
 * model reads the record before by itself.
 */
static bool entry_copies_record(const struct engine *e, const struct entry *en, u32 g)
{
	const struct kvmm_begin_res *res = &en->res[g];

	return en->start % e->kv.block_tokens[g] && res->copy_from != res->copy_to;
}

/*
 * Make the private table of a group cover all positions of the entry, and those before it
 * that its tokens see.  The daemon drops blocks behind the window, and old records, and
 * their entries may have no page any more.
 */
static bool entry_read_group(struct engine *e, struct entry *en, u32 g)
{
	const u32 bt = e->kv.block_tokens[g], each = e->entries[g];
	struct seq *s = en->seq;
	const u32 need = DIV_ROUND_UP(en->start + en->nr, bt) * each +
			 entry_shift(e, en, g);
	const u32 changed = min(s->table_ok[g], en->res[g].table_lo);
	const u32 from = max(changed, entry_reads_from(e, en, g));

	if (from >= need)
		return true;
	if (kvmm_seq_table(e->k, s->handle, g, from, need - from,
			   s->table[g] + from))
		return false;
	s->table_ok[g] = need;
	return true;
}

static bool entry_read_tables(struct engine *e, struct entry *en)
{
	u32 g;

	for (g = 0; g < e->info->nr_groups; g++)
		if (!entry_read_group(e, en, g))
			return false;
	return true;
}

/* Decide which entries run.  Return: how many do. */
static u32 step_prepare(struct engine *e, struct step *st)
{
	u32 i, nr = 0;

	for (i = 0; i < st->nr; i++) {
		struct entry *en = &st->entries[i];

		if (en->status || seq_is_done(en->seq) ||
		    en->start != en->seq->computed)
			continue;
		en->runs = entry_read_tables(e, en);
		nr += en->runs;
	}
	return nr;
}

/* The copies in one layer group. */
static void step_copy_group(struct engine *e, const struct step *st, u32 g)
{
	u32 *from = e->copy, *to = from + e->max_batch;
	u32 *tokens = to + e->max_batch;
	u32 i, nr = 0;

	for (i = 0; i < st->nr; i++) {
		const struct entry *en = &st->entries[i];

		if (en->status || !en->res[g].copy_tokens)
			continue;
		from[nr] = en->res[g].copy_from;
		to[nr] = en->res[g].copy_to;
		tokens[nr++] = en->res[g].copy_tokens;
	}
	e->stats.copies += nr;
	if (!nr)
		return;
	lead_copy(e, g, from, to, tokens, nr);
	model_copy_blocks(e->model, &e->kv, g, from, to, tokens, nr);
}

/* Copy records that others share to those that the entries write. */
static void step_copy_records(struct engine *e, const struct step *st, u32 g)
{
	const u32 nr = e->entries[g], *table;
	u32 i;

	for (i = 0; i < st->nr; i++) {
		const struct entry *en = &st->entries[i];

		if (!en->runs || !entry_copies_record(e, en, g))
			continue;
		table = en->seq->table[g];
		lead_copy(e, g, table + en->res[g].copy_from,
			  table + en->res[g].copy_to, NULL, nr);
		model_copy_blocks(e->model, &e->kv, g,
				  table + en->res[g].copy_from,
				  table + en->res[g].copy_to, NULL, nr);
		e->stats.copies += nr;
	}
}

static void step_copy(struct engine *e, const struct step *st)
{
	u32 g;

	for (g = 0; g < e->info->nr_groups; g++) {
		if (group_is_state(e, g))
			step_copy_records(e, st, g);
		else
			step_copy_group(e, st, g);
	}
}

/*
 * A failed device computes nothing more in this process, and the result of the
 * step is unknown: the whole engine ends.
 */
static int device_failed(struct engine *e)
{
	const char *why = model_failure(e->model);

	if (!why)
		return 0;
	snprintf(e->why, sizeof(e->why), "%s%s", e->lead.ranks ? "" : "the GPU failed: ",
		 why);
	return -ENOTRECOVERABLE;
}

static void step_forward_failed(struct engine *e, struct step *st, int err)
{
	u32 i;

	for (i = 0; i < st->nr; i++) {
		if (!st->entries[i].runs)
			continue;
		st->entries[i].runs = false;
		seq_fail(e, st->entries[i].seq, err,
			 "the model refused a batch: %s", strerror(-err));
	}
}

/*
 * Did all blocks that the forward read keep their content?  A daemon that
 * salvages counts no step as open, so it gives cached blocks away as soon as it
 * serves.  No token may be drawn from such a forward: the token would be
 * delivered before END is refused.
 */
static int step_confirm(struct engine *e)
{
	const int err = kvmm_confirm(e->k);

	engine_look_salvage(e);
	return err;
}

/* @ns: nanoseconds in the model.  Return: 0 or -ECONNRESET. */
static int step_forward(struct engine *e, struct step *st, u64 *ns)
{
	const struct model_draws *draws;
	float *row = e->logits;
	u32 i, g, nr = 0;
	int err;

	e->nr_scores = 0;
	err = adapters_begin(e, st);
	if (err)
		return err;
	for (i = 0; i < st->nr; i++) {
		struct entry *en = &st->entries[i];

		if (!en->runs)
			continue;
		times_scheduled(e, en->seq->req);
		entry_want_rows(en);
		e->ins[nr] = (struct model_seq_in){
			.tokens = en->seq->ids + en->start,
			.nr_tokens = en->nr,
			.start = en->start,
			.want_logits = en->rows,
			.adapter = en->seq->req->slot ?
				   &en->seq->req->slot->place : NULL,
		};
		for (g = 0; g < e->info->nr_groups; g++)
			e->ins[nr].table[g] = en->seq->table[g] +
					      entry_shift(e, en, g);
		nr++;
	}
	*ns = 0;
	/* All entries may have become void meanwhile. */
	if (!nr)
		return adapters_end(e, st);
	draws = draws_plan(e, st);
	engine_lap(e, &e->stats.draw_ns);
	lead_step(e, nr);
	err = model_forward_draw(e->model, &e->kv, e->ins, nr, draws,
				 e->logits);
	*ns = engine_lap(e, &e->stats.forward_ns);
	if (err && !model_failure(e->model))
		step_forward_failed(e, st, err);
	if (err)
		return adapters_end(e, st);
	err = step_confirm(e);
	if (!err)
		err = adapters_end(e, st);
	if (err)
		return err;
	for (i = 0; i < st->nr; i++) {
		struct entry *en = &st->entries[i];

		if (!en->runs || !en->rows)
			continue;
		seq_score(e, en, row);
		row += (size_t)en->rows * e->info->nr_vocab;
		if (en->draw != ENGINE_NO_DRAW)
			draws_take(e, en, e->top + i * ENGINE_TOP_MAX);
		else if (en->draws)
			seq_draw(e, en, row - e->info->nr_vocab,
				 e->top + i * ENGINE_TOP_MAX);
	}
	engine_lap(e, &e->stats.draw_ns);
	return 0;
}

/* Count positions that were computed before, are of the prompt, or are new. */
static void count_computed(struct engine *e, const struct seq *s,
			   const struct entry *en)
{
	const u32 end = en->start + en->nr;
	const u32 fresh = within(s->high, en->start, end);
	const u32 prompt = within(s->req->c.nr, fresh, end);

	e->stats.recomputed_tokens += fresh - en->start;
	e->stats.prefilled_tokens += prompt - fresh;
	e->stats.decoded_tokens += end - prompt;
	flow_charge(s->req, end - prompt);
}

/* Account the step to its sequences and to the counters. */
static void step_account(struct engine *e, struct step *st, u64 ns,
			 u64 *prefill)
{
	u64 rows = 0;
	u32 i;

	*prefill = 0;
	for (i = 0; i < st->nr; i++) {
		struct entry *en = &st->entries[i];
		struct seq *s = en->seq;

		if (en->status)
			continue;
		s->nr_open--;
		s->nr_draws -= en->draws;
		if (!en->runs) {
			e->stats.rolled_back++;
			if (s->state == SEQ_RUNNING)
				seq_lose(e, s);
			continue;
		}
		rows += en->nr;
		*prefill += en->nr > 1 ? en->nr : 0;
		count_computed(e, s, en);
		if (s == s->req->root && en->start + en->nr == s->req->c.nr)
			prefix_add(e, s->ids, s->req->c.nr, s->req->c.salt);
		s->computed = en->start + en->nr;
		s->high = max(s->high, s->computed);
		/* A victim meanwhile has still to come back. */
		if (!s->lost && s->computed == s->high)
			times_caught_up(s, e->lap_ns);
	}
	if (rows)
		e->row_ns = e->row_ns ? (3 * e->row_ns + ns / rows) / 4 :
					ns / rows;
}

static void step_deliver(struct engine *e, struct step *st)
{
	u32 i;

	for (i = 0; i < st->nr; i++) {
		struct entry *en = &st->entries[i];

		if (!en->runs)
			continue;
		seq_deliver_scores(e, en);
		if (en->draws)
			seq_deliver(e, en, e->top + i * ENGINE_TOP_MAX);
	}
}

/* For probes: entries that run. */
static u64 step_entries(const struct step *st)
{
	u64 nr = 0;
	u32 i;

	for (i = 0; i < st->nr; i++)
		nr += st->entries[i].runs;
	return nr;
}

static u64 step_tokens(const struct step *st)
{
	u64 nr = 0;
	u32 i;

	for (i = 0; i < st->nr; i++)
		nr += st->entries[i].runs ? st->entries[i].nr : 0;
	return nr;
}

/**
 * step_run() - run the oldest open step, which is granted, and end it
 *
 * The next step is begun before the forward, so that the daemon works while the
 * model does.
 *
 * Return: 0; -ENOTRECOVERABLE: the device failed and the step stays open; else
 * as link_collect().
 */
int step_run(struct engine *e, struct step *st)
{
	const s64 begun = e->lap_ns;
	u64 ns = 0, prefill;
	int err = 0;

	if (step_prepare(e, st)) {
		KV_PROBE(kvrt, step_begin, st->number, step_entries(st),
			 step_tokens(st));
		err = sched_begin(e);
		if (err < 0)
			return err;
		err = kvmm_submit(e->k);
		if (err)
			return err;
		e->barren = 0;
	} else {
		e->barren++;
		e->stats.barren_steps++;
	}
	engine_lap(e, &e->stats.plan_ns);
	step_copy(e, st);
	engine_lap(e, &e->stats.copy_ns);
	if (!e->barren)
		err = step_forward(e, st, &ns);
	if (!err)
		err = device_failed(e);
	if (!err)
		err = lead_settle(e);
	if (err)
		return err;
	step_account(e, st, ns, &prefill);
	e->nr_steps--;
	if (st->refused) {
		st->state = STEP_FREE;
		return 0;
	}
	st->state = STEP_ENDING;
	err = link_end(e, st, ns, prefill);
	if (err)
		return err;
	err = kvmm_submit(e->k);
	if (err)
		return err;
	engine_lap(e, &e->stats.end_ns);
	if (!e->barren)
		KV_PROBE(kvrt, step_end, st->number, step_entries(st),
			 step_tokens(st), (e->lap_ns - begun) / 1000, ns / 1000);
	step_deliver(e, st);
	return 0;
}
