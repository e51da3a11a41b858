// SPDX-License-Identifier: Apache-2.0
/*
 * step.c - steps of simulated clients, and the devices that run them
 *
 * A device runs the steps of its client in order, some time between the answer
 * to BEGIN and END: first all copies of a step, later its reads and appends.
 * The range of a step is read again just before END, to catch memory that is
 * reused too early.
 *
 * Speculation: BEGIN of a later step names a start that the client guessed.
 * When the step runs, the length that the device has reached may lie before this
 * start.  Then the step is void: it writes garbage and declares nothing.  The
 * length may also lie after it.  An END may declare less than was computed; then
 * the steps that are still open are void too.
 *
 * The device of a dead client goes on.  It may also write anything into the
 * range of the open steps, until the client is quiet.
 */
#include "tests/sim/sim.h"

static struct sim_step *step_nth(struct sim_client *cl, u32 i)
{
	return &cl->steps[(cl->step_head + i) % KVMM_MAX_STEPS];
}

/* ---- BEGIN ---- */

/* An entry of a BEGIN, and the right answer to it. */
struct want {
	u32	slot;
	int	error;		/* the answer if the request is wrong, or 0 */
	u32	tail[SIM_GROUPS];	/* table entries at its start, before */
};

static u32 draw_start(struct sim *w, struct sim_client *cl, struct sim_seq *q)
{
	u32 cover = seq_cover(cl, q);

	/* The record has the state behind all tokens that steps write. */
	if (groups_have_state(w, cl))
		return cover;
	if (!q->nr_steps || rng_chance(&w->rng, 100))
		return q->valid;
	if (rng_chance(&w->rng, 700))
		return max(q->valid, min(q->dev_len, cover));
	return rng_range(&w->rng, q->valid, cover);
}

/* How many positions to ask for from @start on. */
static u32 draw_tokens(struct sim *w, const struct sim_client *cl,
		       const struct sim_seq *q, u32 start)
{
	u32 left = min(q->prompt_len + q->max_tokens - start, groups_step(w, cl));
	struct rng *r = &w->rng;

	if (start < q->ids_total && rng_chance(r, 800))
		return min(left, rng_chance(r, 500) ? q->ids_total - start :
			   rng_range(r, 1, 48));
	return min(left, rng_chance(r, 700) ? 1 : rng_range(r, 1, 20));
}

static bool begin_draw(struct sim *w, struct sim_client *cl, struct sim_seq *q,
		       struct kvmm_begin_arg *a)
{
	const struct kvmm_seq_status *st;
	bool reads;
	u32 start;

	if (!q->used || q->closing)
		return false;
	st = seq_look(w, cl, q);
	if (st->state != KVMM_SEQ_READY || q->rewind)
		return false;
	if (w->draining && (q->nr_steps || q->valid >= q->target))
		return false;
	start = draw_start(w, cl, q);
	reads = start && w->plan.flags && rng_chance(&w->rng, 50);
	if (start >= q->prompt_len + q->max_tokens && !reads)
		return false;
	*a = (struct kvmm_begin_arg){ .seq = q->handle, .seq_epoch = q->epoch,
				      .start = start };
	if (reads)
		cover_note("steps that only read a sequence");
	else
		a->max_tokens = draw_tokens(w, cl, q, start);
	return true;
}

/* Make an honest entry wrong in one way.  Return: the error that it must get. */
static int begin_spoil(struct sim *w, struct sim_client *cl, struct sim_seq *q,
		       struct kvmm_begin_arg *a)
{
	u32 cover = seq_cover(cl, q);

	switch (rng_below(&w->rng, 8)) {
	case 0:
		a->seq += 1ull << 32;
		return -ENOENT;
	case 1:
		a->seq = KVMM_SEQ(cl->info.max_seqs, 1);
		return -ENOENT;
	case 2:
		a->seq_epoch++;
		return -ESTALE;
	case 3:
		a->max_tokens = 0;
		a->start = 0;
		return -EINVAL;
	case 4:
		a->resv = 1;
		return -EINVAL;
	case 5:
		a->start = cover + 1;
		return -EINVAL;
	case 6:
		a->max_tokens = q->prompt_len + q->max_tokens - a->start + 1;
		return -EINVAL;
	default:
		if (!q->valid)
			return 0;
		a->start = q->valid - 1;
		return -EINVAL;
	}
}

static u32 begin_collect(struct sim *w, struct sim_client *cl, bool all,
			 struct kvmm_begin_arg *a, struct want *want)
{
	u32 at = rng_below(&w->rng, SIM_SEQS), nr = 0, i, g;
	u32 take = all || rng_chance(&w->rng, 400) ? 1000 : 500;

	for (i = 0; i < SIM_SEQS && nr < SIM_BATCH; i++) {
		struct sim_seq *q = &cl->seqs[(at + i) % SIM_SEQS];

		if (!rng_chance(&w->rng, take) ||
		    !begin_draw(w, cl, q, &a[nr]))
			continue;
		want[nr] = (struct want){ .slot = q->slot };
		for (g = 0; g < groups_of(w, cl); g++)
			want[nr].tail[g] = seq_entry_now(w, cl, q, g, a[nr].start);
		if (rng_chance(&w->rng, w->plan.bad / 2) && !w->draining)
			want[nr].error = begin_spoil(w, cl, q, &a[nr]);
		nr++;
	}
	return nr;
}

/* A grant may order only the copy of the sequence's own tail. */
static void grant_copy(struct sim *w, struct sim_client *cl, struct sim_seq *q,
		       u32 g, const struct kvmm_begin_arg *a,
		       const struct kvmm_begin_res *res, u32 old)
{
	u32 bt = group_tokens(w, cl, g);
	u32 idx = a->start / bt;
	bool replaced = old != q->table[g][idx] && a->start % bt &&
			old != KVMM_NO_INDEX;

	if (q->stale) {
		replaced = res->copy_tokens;
		old = res->copy_from;
	}
	LAW(w, res->copy_tokens == (replaced ? a->start % bt : 0),
	    "client %u: sequence %llx: group %u: %u tokens to copy for a start at %u, table from %u on is new",
	    cl->id, (unsigned long long)q->handle, g, res->copy_tokens, a->start,
	    res->table_lo);
	if (!res->copy_tokens)
		return;
	LAW(w, res->copy_from == old && res->copy_to == q->table[g][idx] &&
	    res->copy_from != res->copy_to,
	    "client %u: sequence %llx: group %u: copy from %u to %u, its tail was %u and is %u",
	    cl->id, (unsigned long long)q->handle, g, res->copy_from,
	    res->copy_to, old, q->table[g][idx]);
}

/* Read the table of a group as the grant says. */
static void grant_group(struct sim *w, struct sim_client *cl, struct sim_seq *q,
			u32 g, const struct kvmm_begin_arg *a,
			const struct kvmm_begin_res *res, struct sim_entry *e)
{
	u32 nr;

	if (group_is_state(w, cl, g))
		groups_grant_state(w, cl, q, g, a, res);
	nr = seq_blocks(w, cl, q, g, seq_cover(cl, q));
	/* A table that became shorter is told by the next grant that writes. */
	if (!a->max_tokens)
		q->nr_table[g] = min(q->nr_table[g], nr);
	LAW(w, res->table_lo == KVMM_NO_INDEX ? nr == q->nr_table[g] :
	    res->table_lo <= q->nr_table[g] && res->table_lo < nr,
	    "client %u: sequence %llx: group %u: table new from %u on, had %u, has %u",
	    cl->id, (unsigned long long)q->handle, g, res->table_lo, q->nr_table[g],
	    nr);
	LAW(w, !res->status && res->valid_len == q->valid && res->seq_epoch == a->seq_epoch,
	    "client %u: sequence %llx: group %u: status %d, valid %u, epoch %u", cl->id,
	    (unsigned long long)q->handle, g, res->status, res->valid_len, res->seq_epoch);
	if (res->table_lo != KVMM_NO_INDEX)
		seq_refresh_group(w, cl, q, g, res->table_lo, nr);
	e->copy_from[g] = res->copy_from;
	e->copy_to[g] = res->copy_to;
	e->copy_tokens[g] = res->copy_tokens;
}

static void begin_granted(struct sim *w, struct sim_client *cl,
			  struct sim_step *st, struct sim_seq *q,
			  const struct kvmm_begin_arg *a,
			  const struct kvmm_begin_res *res, const u32 *old)
{
	struct sim_entry *e = &st->e[st->nr++];
	u32 g;

	*e = (struct sim_entry){ .slot = q->slot, .start = a->start,
				 .end = a->start + a->max_tokens,
				 .trim = q->trim_want };
	q->nr_steps++;
	q->refused = false;
	for (g = 0; g < groups_of(w, cl); g++)
		grant_group(w, cl, q, g, a, &res[g], e);
	seq_compare(w, cl, q, 0, seq_cover(cl, q));
	for (g = 0; g < groups_of(w, cl); g++)
		if (!group_is_state(w, cl, g))
			grant_copy(w, cl, q, g, a, &res[g], old[g]);
	q->stale = false;
	LOG(w, "  granted %llx [%u, %u)%s", (unsigned long long)q->handle,
	    e->start, e->end, e->copy_tokens[0] ? ", copies its tail" : "");
}

/* A refusal must have a reason that the client can see. */
static void begin_refused(struct sim *w, struct sim_client *cl,
			  struct sim_seq *q, const struct kvmm_begin_arg *a,
			  const struct kvmm_begin_res *res)
{
	const struct kvmm_seq_status *st = &cl->status[q->slot];
	const struct sim_client *rank = shell_member(w, cl, 1);
	bool lost = st->state != KVMM_SEQ_READY || st->seq_epoch != q->epoch;

	LOG(w, "  refused %llx [%u, %u): %d", (unsigned long long)q->handle,
	    a->start, a->start + a->max_tokens, res->status);
	if (res->status == -ESTALE) {
		LAW(w, lost, "client %u: sequence %llx: -ESTALE, but it is READY at epoch %u",
		    cl->id, (unsigned long long)q->handle, q->epoch);
		return;
	}
	LAW(w, res->status == -EAGAIN, "client %u: sequence %llx: BEGIN [%u, %u) from %u: %d",
	    cl->id, (unsigned long long)q->handle, a->start,
	    a->start + a->max_tokens, q->valid, res->status);
	LAW(w, res->limiting_pool == 0, "client %u: -EAGAIN without a pool",
	    cl->id);
	cl->again_at = w->now;
	q->refused = true;
	/* Room for an admitted prompt was reserved, but not for copies of tails. */
	LAW(w, lost || cl->nr_acks || (rank && rank->nr_acks) || w->cfg.nr_tables ||
	    a->start + a->max_tokens > q->resv ||
	    a->start % w->dom[cl->dom].req.block_tokens || groups_of(w, cl) > 1,
	    "client %u: sequence %llx: [%u, %u) was promised (up to %u) and is refused",
	    cl->id, (unsigned long long)q->handle, a->start,
	    a->start + a->max_tokens, q->resv);
}

static void begin_judge(struct sim *w, struct sim_client *cl,
			struct sim_step *st, const struct want *want,
			const struct kvmm_begin_arg *a,
			const struct kvmm_begin_res *res)
{
	struct sim_seq *q = &cl->seqs[want->slot];

	cover_entry(KVMM_OP_STEP_BEGIN, res->status);
	if (want->error) {
		/*
		 * An entry before this one may have preempted the sequence.  If it
		 * was swapped, the wrong epoch is the right one by then, and it may
		 * be back when the request is answered.
		 */
		LAW(w, res->status == want->error || res->status == -ESTALE ||
		    (want->error == -ESTALE && res->status == -EAGAIN &&
		     cl->status[want->slot].seq_epoch == a->seq_epoch),
		    "client %u: BEGIN [%u, +%u) of %llx (valid %u, cover %u): %d, should be %d",
		    cl->id, a->start, a->max_tokens,
		    (unsigned long long)a->seq, q->valid, seq_cover(cl, q),
		    res->status, want->error);
		return;
	}
	if (res->status != -ENOENT)
		LAW(w, res->valid_len == (cl->status[q->slot].state ==
		    KVMM_SEQ_READY ? q->valid : res->valid_len),
		    "client %u: sequence %llx has %u valid, BEGIN says %u",
		    cl->id, (unsigned long long)q->handle, q->valid,
		    res->valid_len);
	if (res->status)
		begin_refused(w, cl, q, a, res);
	else
		begin_granted(w, cl, st, q, a, res, want->tail);
}

bool step_act_begin(struct sim *w, struct sim_client *cl, bool all)
{
	struct kvmm_begin_arg *a = (struct kvmm_begin_arg *)w->args;
	struct kvmm_begin_res res[SIM_BATCH * SIM_GROUPS];
	struct want want[SIM_BATCH];
	struct sim_step *st;
	u32 nr, i;
	int err;

	if (cl->nr_steps >= cl->depth)
		return false;
	nr = begin_collect(w, cl, all, a, want);
	if (!nr)
		return false;
	cl->step_number += rng_range(&w->rng, 1, 3);
	LOG(w, "client %u: BEGIN %llu, %u entries", cl->id,
	    (unsigned long long)cl->step_number, nr);
	err = shell_submit(w, cl, KVMM_OP_STEP_BEGIN, nr, cl->step_number,
			   nr * sizeof(*a));
	LAW(w, !err, "client %u: BEGIN: %d", cl->id, err);
	memcpy(res, w->results, nr * groups_of(w, cl) * sizeof(*res));
	st = step_nth(cl, cl->nr_steps++);
	*st = (struct sim_step){ .number = cl->step_number, .begun = w->now };
	for (i = 0; i < nr; i++)
		begin_judge(w, cl, st, &want[i], &a[i],
			    &res[i * groups_of(w, cl)]);
	return true;
}

/* ---- the device ---- */

static void run_copy(struct sim *w, struct sim_client *cl, const struct sim_entry *e)
{
	const u64 *from;
	u64 *to;
	u32 g;

	for (g = 0; g < groups_of(w, cl); g++) {
		if (!e->copy_tokens[g])
			continue;
		from = mem_block(w, cl, e->copy_from[g], "copy from");
		to = mem_block(w, cl, e->copy_to[g], "copy to");
		mem_copy(w, cl, to, from, e->copy_tokens[g]);
	}
}

static void run_copies(struct sim *w, struct sim_client *cl,
		       struct sim_step *st)
{
	u32 i;

	for (i = 0; i < st->nr; i++)
		run_copy(w, cl, &st->e[i]);
	st->phase = STEP_COPIED;
}

/* The cell of a position in a group; @part: in a group of records, that block's. */
static u64 *cell_of(struct sim *w, struct sim_client *cl, struct sim_seq *q,
		    u32 g, u32 pos, u32 part)
{
	u32 at = group_is_state(w, cl, g) ? 0 : pos % group_tokens(w, cl, g);

	return mem_block(w, cl, q->table[g][group_at(w, cl, q, g, pos) + part],
			 "append") + at;
}

static void write_garbage(struct sim *w, struct sim_client *cl,
			  struct sim_seq *q, u32 from, u32 to)
{
	u32 g, i;

	for (; from < to; from++)
		for (g = 0; g < groups_of(w, cl); g++)
			for (i = 0; i < group_width(w, cl, g); i++)
				mem_put(w, cl, cell_of(w, cl, q, g, from, i),
					rng_next(&w->rng));
}

/* The values of positions @from to before @to, in all groups. */
static void write_values(struct sim *w, struct sim_client *cl,
			 struct sim_seq *q, u32 from, u32 to)
{
	u32 g, i;

	for (; from < to; from++)
		for (g = 0; g < groups_of(w, cl); g++)
			for (i = 0; i < group_width(w, cl, g); i++)
				mem_put(w, cl, cell_of(w, cl, q, g, from, i),
					group_value(q->hash[from], group_part(g, i)));
}

static void run_entry(struct sim *w, struct sim_client *cl, struct sim_entry *e)
{
	struct sim_seq *q = &cl->seqs[e->slot];
	u32 from = q->dev_len, to, n;

	if (q->rewind || from < e->start) {
		write_garbage(w, cl, q, max(e->start, q->valid), e->end);
		return;
	}
	seq_compare(w, cl, q, q->valid, max(e->end, from));
	q->trim = e->trim;
	seq_verify(w, cl, q, from, "a step");
	if (from >= e->end)
		return;
	n = e->end - from;
	if (!w->draining && !groups_have_state(w, cl) && rng_chance(&w->rng, 200))
		n = rng_below(&w->rng, n + 1);
	to = from + n;
	write_values(w, cl, q, from, to);
	if (rng_chance(&w->rng, 500))
		write_garbage(w, cl, q, to, e->end);
	q->dev_len = to;
	e->accepted = n ? to : 0;
}

static void run_phase(struct sim *w, struct sim_client *cl, struct sim_step *st)
{
	u32 i;

	if (st->phase == STEP_QUEUED) {
		run_copies(w, cl, st);
		return;
	}
	for (i = 0; i < st->nr; i++)
		run_entry(w, cl, &st->e[i]);
	st->phase = STEP_RAN;
}

/* The device takes the oldest step that is not done one phase further. */
bool step_act_run(struct sim *w, struct sim_client *cl)
{
	u32 i;

	for (i = 0; i < cl->nr_steps; i++) {
		struct sim_step *st = step_nth(cl, i);

		if (st->phase == STEP_RAN)
			continue;
		LOG(w, "client %u: device %s step %llu", cl->id,
		    st->phase ? "runs" : "copies for",
		    (unsigned long long)st->number);
		run_phase(w, cl, st);
		return true;
	}
	return false;
}

/* Write anything where an entry of a dead client may. */
static void entry_dead_writes(struct sim *w, struct sim_client *cl,
			      const struct sim_entry *e)
{
	struct sim_seq *q = &cl->seqs[e->slot];
	u64 *to;
	u32 g, k;

	q->rewind = true;
	write_garbage(w, cl, q, max(e->start, q->valid), e->end);
	for (g = 0; g < groups_of(w, cl); g++) {
		if (!e->copy_tokens[g])
			continue;
		to = mem_block(w, cl, e->copy_to[g], "late copy");
		for (k = 0; k < group_tokens(w, cl, g); k++)
			mem_put(w, cl, &to[k], rng_next(&w->rng));
	}
}

/* The device of a dead client: late work, and garbage where it may write. */
void step_dead_writes(struct sim *w, struct sim_client *cl)
{
	u32 i, n;

	/* A void step may read blocks that belong to another sequence by now. */
	if (!cl->is_void && rng_chance(&w->rng, 400) && step_act_run(w, cl))
		return;
	for (i = 0; i < cl->nr_steps; i++) {
		struct sim_step *st = step_nth(cl, i);

		for (n = 0; n < st->nr; n++)
			entry_dead_writes(w, cl, &st->e[n]);
	}
}

/*
 * A rank of a leader that has ended may still write blocks of the leader's steps, which
 * began after @since.
 */
void step_rank_writes(struct sim *w, struct sim_client *leader, u64 since)
{
	u32 i, n;

	for (i = 0; i < leader->nr_steps; i++) {
		struct sim_step *st = step_nth(leader, i);

		for (n = 0; n < st->nr && st->begun > since; n++)
			entry_dead_writes(w, leader, &st->e[n]);
	}
	cover_note("writes of a rank behind its leader's end");
}

/* Is step @number the oldest open one?  The core refuses the END of any other. */
bool step_is_oldest(struct sim_client *cl, u64 number)
{
	return cl->nr_steps && step_nth(cl, 0)->number == number;
}

/*
 * The daemon ended at an END of @nr entries.  The device had finished the step
 * before, and does not go back behind the declared lengths.
 */
void step_end_done(struct sim *w, struct sim_client *cl, u32 nr)
{
	const struct kvmm_end_arg *a = (const struct kvmm_end_arg *)w->args;
	const struct sim_step *st = step_nth(cl, 0);
	u32 i;

	for (i = 0; i < nr; i++) {
		struct sim_seq *q = &cl->seqs[KVMM_SEQ_INDEX(a[i].seq)];

		if (!q->spoiled && !q->closing)
			q->valid = a[i].valid_len;
		q->spoiled = false;
	}
	for (i = 0; i < st->nr; i++)
		cl->seqs[st->e[i].slot].nr_steps--;
	cl->step_head = (cl->step_head + 1) % KVMM_MAX_STEPS;
	cl->nr_steps--;
}

/* Drop all open steps: none of them does anything more. */
void step_all_void(struct sim_client *cl)
{
	u32 i;

	cl->nr_steps = 0;
	cl->step_head = 0;
	for (i = 0; i < SIM_SEQS; i++)
		cl->seqs[i].nr_steps = 0;
}

/* ---- END ---- */

/* Draw the valid length to declare for an entry. */
static u32 end_draw(struct sim *w, const struct sim_client *cl, struct sim_seq *q,
		    const struct sim_entry *e)
{
	u32 len = e->accepted;

	if (q->rewind || !len)
		return q->valid;
	if (!w->draining && !groups_have_state(w, cl) &&
	    rng_chance(&w->rng, w->plan.cancel)) {
		len = rng_range(&w->rng, q->valid, len);
		if (q->nr_steps > 1)
			q->rewind = true;
		q->dev_len = len;
	}
	return len;
}

/*
 * Now and then a client declares a wrong length: more than the step covers, or
 * progress though the step's start was not reached.
 */
static bool end_spoil(struct sim *w, struct sim_seq *q,
		      const struct sim_entry *e, struct kvmm_end_arg *a)
{
	u32 len = q->valid < e->start ? q->valid + 1 : e->end + 1;

	if (w->draining || !rng_chance(&w->rng, w->plan.bad / 4) ||
	    len <= q->valid || len > q->prompt_len + q->max_tokens)
		return false;
	*a = (struct kvmm_end_arg){ .seq = q->handle, .valid_len = len,
				    .nr_ids = len - q->valid };
	q->dev_len = q->valid;
	q->spoiled = true;
	if (q->nr_steps > 1)
		q->rewind = true;
	return true;
}

/* Collect entries of an END; entries without progress are often left out. */
static u32 end_collect(struct sim *w, struct sim_client *cl,
		       const struct sim_step *st, struct kvmm_end_arg *a)
{
	u32 i, nr = 0;

	for (i = 0; i < st->nr; i++) {
		struct sim_seq *q = &cl->seqs[st->e[i].slot];
		u32 len;

		/* The client declares no progress: the open steps are void. */
		if (q->closing)
			q->rewind = true;
		if (q->closing && rng_chance(&w->rng, 500))
			continue;
		if (!q->closing && !groups_have_state(w, cl) &&
		    end_spoil(w, q, &st->e[i], &a[nr])) {
			nr++;
			continue;
		}
		len = q->closing ? q->valid : end_draw(w, cl, q, &st->e[i]);
		if (len == q->valid && rng_chance(&w->rng, 700))
			continue;
		a[nr++] = (struct kvmm_end_arg){
			.seq = q->handle, .valid_len = len,
			.nr_ids = len - q->valid,
		};
		q->trim = st->e[i].trim;
		if (!q->closing)
			seq_verify(w, cl, q, len, "the end of a step");
	}
	return nr;
}

static void end_judge(struct sim *w, struct sim_client *cl,
		      const struct kvmm_end_arg *a,
		      const struct kvmm_end_res *res)
{
	struct sim_seq *q = &cl->seqs[KVMM_SEQ_INDEX(a->seq)];

	int want = q->closing ? -ENOENT : q->spoiled ? -EINVAL : 0;

	q->spoiled = false;
	cover_entry(KVMM_OP_STEP_END, res->status);
	LAW(w, res->status == want, "client %u: END of %llx at %u: %d, should be %d",
	    cl->id, (unsigned long long)a->seq, a->valid_len, res->status,
	    want);
	if (res->status)
		return;
	LAW(w, res->valid_len == a->valid_len, "client %u: END of %llx at %u is answered with %u",
	    cl->id, (unsigned long long)a->seq, a->valid_len, res->valid_len);
	q->valid = a->valid_len;
	/* It may be preempted in this very event: note that it had this length. */
	cl->seen[q->slot].valid = q->valid;
	LOG(w, "  %llx is valid up to %u", (unsigned long long)a->seq,
	    q->valid);
}

static bool copies_within(const struct sim *w)
{
	u32 i;

	for (i = 0; i < w->nr_moves && !w->moves[i].within; i++)
		;
	return i < w->nr_moves;
}

/*
 * The step is over: roll back the range that it alone covered.  A block that goes back to
 * the sequence's reservation while a copy reads it covers nothing (isolate.c).
 */
static void end_release(struct sim *w, struct sim_client *cl,
			const struct sim_step *st)
{
	u32 i;

	for (i = 0; i < st->nr; i++) {
		struct sim_seq *q = &cl->seqs[st->e[i].slot];
		bool resident;

		q->nr_steps--;
		if (q->closing) {
			if (!q->nr_steps)
				seq_gone(w, cl, q);
			continue;
		}
		if (!q->nr_steps) {
			q->rewind = false;
			q->dev_len = q->valid;
			q->trim = q->trim_want;
		}
		resident = cl->status[q->slot].state == KVMM_SEQ_READY ||
			   cl->status[q->slot].state == KVMM_SEQ_MARKED;
		if (copies_within(w) &&
		    seq_blocks(w, cl, q, 0, seq_cover(cl, q)) < q->nr_table[0])
			q->resv = 0;
		groups_trim(cl, q);
		groups_settle(w, cl, q);
		if (resident)
			seq_cut(w, cl, q, seq_cover(cl, q));
	}
}

bool step_act_end(struct sim *w, struct sim_client *cl)
{
	struct kvmm_end_arg *a = (struct kvmm_end_arg *)w->args;
	const struct kvmm_end_res *res = (const void *)w->results;
	struct kvmm_end_arg args[SIM_BATCH];
	struct sim_step *st = step_nth(cl, 0);
	struct kvmm_sqe sqe = { .op = KVMM_OP_STEP_END };
	u32 nr, i, *ids;
	int err;

	if (!cl->nr_steps || st->phase != STEP_RAN)
		return false;
	nr = end_collect(w, cl, st, a);
	memcpy(args, a, nr * sizeof(*a));
	ids = (u32 *)(a + nr);
	for (i = 0; i < nr; i++) {
		const struct sim_seq *q = &cl->seqs[KVMM_SEQ_INDEX(a[i].seq)];

		memcpy(ids, q->tok + q->valid, 4 * a[i].nr_ids);
		ids += a[i].nr_ids;
	}
	LOG(w, "client %u: END %llu, %u of %u entries", cl->id,
	    (unsigned long long)st->number, nr, st->nr);
	cl->number++;
	sqe.number = cl->number;
	sqe.nr = nr;
	sqe.step = st->number;
	sqe.param[1] = rng_below(&w->rng, 100);
	sqe.param[0] = w->plan.prefill_ns * sqe.param[1];
	if (!w->plan.prefill_ns)
		sqe.param[0] = rng_next(&w->rng);
	err = shell_send(w, cl, &sqe, (u32)((u8 *)ids - (u8 *)w->args));
	LAW(w, !err, "client %u: END: %d", cl->id, err);
	for (i = 0; i < nr; i++)
		end_judge(w, cl, &args[i], &res[i]);
	cl->step_head = (cl->step_head + 1) % KVMM_MAX_STEPS;
	cl->nr_steps--;
	end_release(w, cl, st);
	return true;
}
