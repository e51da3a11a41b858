// SPDX-License-Identifier: Apache-2.0
/*
 * verbs.c - MATCH, FORK, CLOSE, SETPRIO and ADVISE as honest clients send them
 *
 * Each function looks for a sequence to which the verb applies, sends the request
 * and judges the answer.  It returns false when there was none.
 */
#include "tests/sim/sim.h"

/* ---- MATCH ---- */

static bool wants_ids(struct sim *w, struct sim_client *cl, struct sim_seq *q)
{
	const struct kvmm_seq_status *st;

	if (!q->used || q->closing || q->ids_done)
		return false;
	st = seq_look(w, cl, q);
	return st->state == KVMM_SEQ_WAITING ||
	       st->state == KVMM_SEQ_RECOMPUTE;
}

static void match_draw(struct sim *w, struct sim_seq *q, bool all,
		       struct kvmm_match_arg *a)
{
	struct rng *r = &w->rng;
	u32 left;

	/* Now and then start over. */
	if (q->ids_sent && rng_chance(r, 50))
		q->ids_sent = 0;
	left = q->ids_total - q->ids_sent;
	*a = (struct kvmm_match_arg){ .seq = q->handle, .start = q->ids_sent };
	a->nr_ids = all || rng_chance(r, 700) ? left : rng_below(r, left + 1);
	if (a->nr_ids == left && (all || rng_chance(r, 950)))
		a->flags = KVMM_MATCH_LAST;
}

static void match_done(struct sim *w, struct sim_client *cl,
		       const struct kvmm_match_arg *a, int status)
{
	struct sim_seq *q = &cl->seqs[KVMM_SEQ_INDEX(a->seq)];

	cover_entry(KVMM_OP_SEQ_MATCH, status);
	LAW(w, !status || status == -EAGAIN,
	    "client %u: MATCH of sequence %llx, %u ids from %u of %u: %d",
	    cl->id, (unsigned long long)q->handle, a->nr_ids, a->start,
	    q->ids_total, status);
	if (status) {
		/* Hold no page of ids while another sequence waits for one. */
		q->ids_sent = 0;
		return;
	}
	q->ids_sent = a->start + a->nr_ids;
	if (a->flags & KVMM_MATCH_LAST) {
		q->ids_done = true;
		q->arrived = q->epoch;
	}
}

/* Give up the ids of a sequence, of which the core took only a part. */
static void match_reset(struct sim *w, struct sim_client *cl,
			struct sim_seq *q)
{
	struct kvmm_match_arg *a = (struct kvmm_match_arg *)w->args;
	int err;

	*a = (struct kvmm_match_arg){ .seq = q->handle };
	err = shell_submit(w, cl, KVMM_OP_SEQ_MATCH, 1, 0, sizeof(*a));
	LAW(w, !err && !((struct kvmm_seq_res *)w->results)->status,
	    "client %u: MATCH of no ids", cl->id);
}

/* Send all ids of a sequence at once.  Return: whether the core took them. */
bool seq_act_match_whole(struct sim *w, struct sim_client *cl, struct sim_seq *q)
{
	struct kvmm_match_arg *a = (struct kvmm_match_arg *)w->args, arg;
	int err;

	arg = (struct kvmm_match_arg){ .seq = q->handle, .nr_ids = q->ids_total,
				       .flags = KVMM_MATCH_LAST };
	*a = arg;
	memcpy(a + 1, q->tok, 4 * q->ids_total);
	LOG(w, "client %u: MATCH %llx, all %u ids", cl->id,
	    (unsigned long long)q->handle, q->ids_total);
	err = shell_submit(w, cl, KVMM_OP_SEQ_MATCH, 1, 0,
			   (u32)sizeof(*a) + 4 * q->ids_total);
	LAW(w, !err, "client %u: MATCH: %d", cl->id, err);
	err = ((const struct kvmm_seq_res *)w->results)->status;
	match_done(w, cl, &arg, err);
	if (err == -EAGAIN)
		match_reset(w, cl, q);
	return !err;
}

bool seq_act_match(struct sim *w, struct sim_client *cl, bool all)
{
	struct kvmm_match_arg *a = (struct kvmm_match_arg *)w->args;
	const struct kvmm_seq_res *res = (const void *)w->results;
	struct kvmm_match_arg args[4];
	int status[4];
	u32 most = all ? 4 : rng_range(&w->rng, 1, 3);
	u32 at = rng_below(&w->rng, SIM_SEQS), nr = 0, i, *ids;
	int err;

	for (i = 0; i < SIM_SEQS && nr < most; i++) {
		struct sim_seq *q = &cl->seqs[(at + i) % SIM_SEQS];

		if (wants_ids(w, cl, q))
			match_draw(w, q, all, &a[nr++]);
	}
	if (!nr)
		return false;
	memcpy(args, a, nr * sizeof(*a));
	ids = (u32 *)(a + nr);
	for (i = 0; i < nr; i++) {
		const struct sim_seq *q = &cl->seqs[KVMM_SEQ_INDEX(a[i].seq)];

		memcpy(ids, q->tok + a[i].start, 4 * a[i].nr_ids);
		ids += a[i].nr_ids;
		LOG(w, "client %u: MATCH %llx, %u ids from %u of %u%s", cl->id,
		    (unsigned long long)q->handle, a[i].nr_ids, a[i].start,
		    q->ids_total, a[i].flags ? ", last" : "");
	}
	err = shell_submit(w, cl, KVMM_OP_SEQ_MATCH, nr, 0,
			   (u32)((u8 *)ids - (u8 *)w->args));
	LAW(w, !err, "client %u: MATCH: %d", cl->id, err);
	for (i = 0; i < nr; i++)
		status[i] = res[i].status;
	for (i = 0; i < nr; i++)
		match_done(w, cl, &args[i], status[i]);
	for (i = 0; i < nr; i++)
		if (status[i] == -EAGAIN)
			match_reset(w, cl,
				    &cl->seqs[KVMM_SEQ_INDEX(args[i].seq)]);
	return true;
}

/* ---- FORK ---- */

static void fork_child(struct sim *w, struct sim_client *cl,
		       const struct sim_seq *from, u64 handle)
{
	u32 slot = KVMM_SEQ_INDEX(handle), g;
	struct sim_seq *q = &cl->seqs[slot];

	LAW(w, slot < cl->info.max_seqs && !q->used && q->handle != handle,
	    "client %u: child %llx is in use", cl->id,
	    (unsigned long long)handle);
	*q = *from;
	q->slot = slot;
	q->handle = handle;
	q->tok = w->tok[cl->id][slot];
	q->hash = w->hash[cl->id][slot];
	q->variant = rng_below(&w->rng, 5);
	q->target = min(max(q->valid, q->prompt_len) +
			rng_below(&w->rng, q->max_tokens + 1),
			q->prompt_len + q->max_tokens);
	q->resv = 0;
	q->leased = 0;
	q->refused = false;	/* the child has not asked yet */
	q->dev_len = q->valid;
	q->epoch = cl->status[slot].seq_epoch;
	cl->nr_seqs++;
	seq_fork_tokens(from, q);
	cl->seen[slot].valid = q->valid;	/* if it is preempted at once */
	if (seq_look(w, cl, q)->state != KVMM_SEQ_READY && laws_promise_kept(w))
		return;
	LAW(w, cl->status[slot].state == KVMM_SEQ_READY,
	    "client %u: child %llx is not READY", cl->id,
	    (unsigned long long)handle);
	seq_refresh(w, cl, q, q->valid);
	for (g = 0; g < groups_of(w, cl); g++)
		LAW(w, !memcmp(q->table[g], from->table[g], q->nr_table[g] * 4),
		    "client %u: child %llx has another table than its parent in group %u",
		    cl->id, (unsigned long long)handle, g);
}

static struct sim_seq *fork_parent(struct sim *w, struct sim_client *cl)
{
	u32 i, at = rng_below(&w->rng, SIM_SEQS);

	for (i = 0; i < SIM_SEQS; i++) {
		struct sim_seq *q = &cl->seqs[(at + i) % SIM_SEQS];

		if (q->used && !q->closing && !q->nr_steps &&
		    seq_look(w, cl, q)->state == KVMM_SEQ_READY)
			return q;
	}
	return NULL;
}

bool seq_act_fork(struct sim *w, struct sim_client *cl)
{
	struct kvmm_fork_arg *a = (struct kvmm_fork_arg *)w->args;
	const struct kvmm_open_res *res = (const void *)w->results;
	struct sim_seq *q = fork_parent(w, cl);
	u32 n, i, free;
	int err;

	if (!q)
		return false;
	n = rng_chance(&w->rng, 100) ? rng_range(&w->rng, 5, SIM_SEQS)
				     : rng_range(&w->rng, 1, 4);
	free = cl->info.max_seqs - cl->nr_seqs - cl->nr_leases;
	if (free && rng_chance(&w->rng, 900))
		n = min(n, free);
	*a = (struct kvmm_fork_arg){ .seq = q->handle, .nr_children = n };
	seq_refresh(w, cl, q, q->valid);
	q->stale = false;
	LOG(w, "client %u: FORK %llx into %u more", cl->id,
	    (unsigned long long)q->handle, n);
	err = shell_submit(w, cl, KVMM_OP_SEQ_FORK, 1, 0, sizeof(*a));
	LAW(w, !err, "client %u: FORK: %d", cl->id, err);
	for (i = 0; i < n; i++) {
		err = res[i].status;
		LAW(w, err == res[0].status, "client %u: FORK of %u: child %u %d, child 0 %d",
		    cl->id, n, i, err, res[0].status);
		cover_entry(KVMM_OP_SEQ_FORK, err);
		/* There may be too few table pages. */
		LAW(w, n > free ? err == -ENOSPC :
		    !err || (err == -ENOSPC && q->nr_table[0]), "client %u: FORK of %u with %u free: %d",
		    cl->id, n, free, err);
		if (!err)
			fork_child(w, cl, q, res[i].seq);
	}
	return true;
}

/* ---- CLOSE, SETPRIO ---- */

static bool may_close(struct sim *w, struct sim_client *cl, struct sim_seq *q,
		      bool only_done)
{
	if (!q->used || q->closing)
		return false;
	seq_look(w, cl, q);
	if ((q->resident || q->swapped) && q->valid >= q->target &&
	    !q->nr_steps)
		return true;
	return !only_done;
}

/* Close some sequences: those that reached their length, or any one. */
bool seq_act_close(struct sim *w, struct sim_client *cl, bool only_done)
{
	struct kvmm_seq_arg *a = (struct kvmm_seq_arg *)w->args;
	const struct kvmm_seq_res *res = (const void *)w->results;
	u32 at = rng_below(&w->rng, SIM_SEQS), nr = 0, i;
	u32 most = only_done ? SIM_SEQS : 1;
	int err;

	for (i = 0; i < SIM_SEQS && nr < most; i++) {
		struct sim_seq *q = &cl->seqs[(at + i) % SIM_SEQS];

		if (may_close(w, cl, q, only_done))
			a[nr++].seq = q->handle;
	}
	if (!nr)
		return false;
	LOG(w, "client %u: CLOSE %u, first %llx", cl->id, nr,
	    (unsigned long long)a[0].seq);
	err = shell_submit(w, cl, KVMM_OP_SEQ_CLOSE, nr, 0, nr * sizeof(*a));
	LAW(w, !err, "client %u: CLOSE: %d", cl->id, err);
	for (i = 0; i < nr; i++) {
		struct sim_seq *q = &cl->seqs[KVMM_SEQ_INDEX(a[i].seq)];

		cover_entry(KVMM_OP_SEQ_CLOSE, res[i].status);
		LAW(w, !res[i].status, "client %u: CLOSE of %llx: %d", cl->id,
		    (unsigned long long)q->handle, res[i].status);
		if (q->nr_steps)
			q->closing = true;
		else
			seq_gone(w, cl, q);
	}
	return true;
}

bool seq_act_setprio(struct sim *w, struct sim_client *cl)
{
	struct kvmm_prio_arg *a = (struct kvmm_prio_arg *)w->args;
	const struct kvmm_seq_res *res = (const void *)w->results;
	struct sim_seq *q = seq_random(w, cl);
	int err;

	if (!q || !w->plan.prios)
		return false;
	*a = (struct kvmm_prio_arg){ .seq = q->handle,
				     .priority = 80 * rng_below(&w->rng, 3) };
	LOG(w, "client %u: SETPRIO %llx to %u", cl->id,
	    (unsigned long long)q->handle, a->priority);
	err = shell_submit(w, cl, KVMM_OP_SEQ_SETPRIO, 1, 0, sizeof(*a));
	LAW(w, !err && !res->status, "client %u: SETPRIO: %d, %d", cl->id,
	    err, res->status);
	q->priority = a->priority;
	cover_entry(KVMM_OP_SEQ_SETPRIO, 0);
	return true;
}

/* ---- ADVISE ---- */

static struct sim_seq *advise_whom(struct sim *w, struct sim_client *cl,
				   bool back)
{
	u32 i, at = rng_below(&w->rng, SIM_SEQS);

	for (i = 0; i < SIM_SEQS; i++) {
		struct sim_seq *q = &cl->seqs[(at + i) % SIM_SEQS];

		if (!q->used || q->closing)
			continue;
		seq_look(w, cl, q);
		if (back ? q->paged_out : !q->paged_out)
			return q;
	}
	return NULL;
}

/* PAGEOUT takes all blocks or none, and its error says why. */
static void pageout_judge(struct sim *w, struct sim_client *cl,
			  struct sim_seq *q, u32 state, int status)
{
	const struct kvmm_seq_status *st = &cl->status[q->slot];

	LAW(w, !status || status == -EAGAIN || status == -EBUSY ||
	    status == -ESTALE, "client %u: PAGEOUT of %llx: %d", cl->id,
	    (unsigned long long)q->handle, status);
	LAW(w, (status == -ESTALE) == (state != KVMM_SEQ_READY),
	    "client %u: PAGEOUT of %llx, which was %s: %d", cl->id,
	    (unsigned long long)q->handle, core_seq_state_name(state), status);
	LAW(w, status != -EAGAIN || st->state == KVMM_SEQ_READY ||
	    laws_promise_kept(w),
	    "client %u: PAGEOUT of %llx was refused, and it is %s", cl->id,
	    (unsigned long long)q->handle, core_seq_state_name(st->state));
	LAW(w, !q->nr_steps || status, "client %u: PAGEOUT of %llx in an open step",
	    cl->id, (unsigned long long)q->handle);
	if (status)
		return;
	LAW(w, st->state == KVMM_SEQ_SWAPPED, "client %u: %llx is paged out and is %s",
	    cl->id, (unsigned long long)q->handle,
	    core_seq_state_name(st->state));
	seq_look(w, cl, q);
	q->paged_out = true;
}

/* Advise on the blocks of a sequence after its end: the core always accepts. */
static void advise_retention(struct sim *w, struct sim_client *cl,
			     struct sim_seq *q)
{
	struct kvmm_advise_arg *a = (struct kvmm_advise_arg *)w->args;
	const struct kvmm_seq_res *res = (const void *)w->results;
	u32 advice = PICK(&w->rng, KVMM_ADV_COLD, KVMM_ADV_DONTNEED,
			  KVMM_ADV_KEEP_UNTIL, KVMM_ADV_RETAIN,
			  KVMM_ADV_RETAIN);
	u32 from = rng_below(&w->rng, 64);
	int err;

	*a = (struct kvmm_advise_arg){ .seq = q->handle, .advice = advice };
	if (advice == KVMM_ADV_DONTNEED)
		a->value = q->handle % 2;
	if (advice == KVMM_ADV_KEEP_UNTIL)
		a->value = w->now + rng_below(&w->rng, 2000) * SIM_MS;
	if (advice == KVMM_ADV_RETAIN) {
		a->retain = rng_below(&w->rng, KVMM_RETAIN_HIGH + 1);
		a->value = KVMM_RANGE(from, rng_chance(&w->rng, 300) ? ~0u :
				      from + 1 + rng_below(&w->rng, 64));
		q->nr_retains++;
	}
	err = shell_submit(w, cl, KVMM_OP_SEQ_ADVISE, 1, 0, sizeof(*a));
	LAW(w, !err && (!res->status || (res->status == -ENOSPC &&
					 q->nr_retains > 4)),
	    "client %u: ADVISE %u of %llx: %d, %d", cl->id, advice,
	    (unsigned long long)q->handle, err, res->status);
	cover_entry(KVMM_OP_SEQ_ADVISE, res->status);
}

/**
 * seq_act_advise() - have a sequence paged out, or call it back
 * @back: call back one that is paged out
 */
bool seq_act_advise(struct sim *w, struct sim_client *cl, bool back)
{
	struct kvmm_advise_arg *a = (struct kvmm_advise_arg *)w->args;
	const struct kvmm_seq_res *res = (const void *)w->results;
	struct sim_seq *q = advise_whom(w, cl, back);
	u32 state;
	int err;

	if (!q)
		return false;
	if (!back && rng_chance(&w->rng, 500)) {
		advise_retention(w, cl, q);
		return true;
	}
	state = cl->status[q->slot].state;
	*a = (struct kvmm_advise_arg){
		.seq = q->handle,
		.advice = back ? KVMM_ADV_WILLNEED : KVMM_ADV_PAGEOUT,
	};
	LOG(w, "client %u: ADVISE %llx: %s", cl->id,
	    (unsigned long long)q->handle, back ? "WILLNEED" : "PAGEOUT");
	err = shell_submit(w, cl, KVMM_OP_SEQ_ADVISE, 1, 0, sizeof(*a));
	LAW(w, !err, "client %u: ADVISE: %d", cl->id, err);
	cover_entry(KVMM_OP_SEQ_ADVISE, res->status);
	if (!back) {
		pageout_judge(w, cl, q, state, res->status);
		return true;
	}
	LAW(w, !res->status, "client %u: WILLNEED of %llx: %d", cl->id,
	    (unsigned long long)q->handle, res->status);
	q->paged_out = false;
	return true;
}
