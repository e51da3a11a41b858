// SPDX-License-Identifier: Apache-2.0
/*
 * bad.c - requests that must be refused, and change nothing
 *
 * Each request has one fault.  Views, status records and tables must be the
 * same before and after it (law 4).  A NOP goes before it, so that the core has
 * no work left over.
 */
#include "tests/sim/sim.h"

/* A request in the making, and the answer that it must get. */
struct bad {
	struct kvmm_sqe	sqe;
	u32		len;
	int		status;		/* of the request */
	int		entry;		/* of its only entry */
	const char	*what;
};

static void bad_nop(struct sim *w, struct sim_client *cl, struct bad *b)
{
	b->what = "a field of NOP";
	b->status = -EINVAL;
	switch (rng_below(&w->rng, 7)) {
	case 0:
		b->sqe.flags = 1;
		break;
	case 1:
		b->sqe.resv = 1;
		break;
	case 2:
		b->sqe.step = 1;
		break;
	case 3:
		b->sqe.param[0] = 1;
		break;
	case 4:
		b->sqe.nr = 1;
		break;
	case 5:
		b->len = 8;
		break;
	default:
		b->sqe.op = (u16)rng_range(&w->rng, KVMM_NR_OPS, 0xffff);
		break;
	}
}

/* REMAP, TRUNCATE, TRIM with a handle that the core never gave out. */
static void bad_share(struct sim *w, struct sim_client *cl, struct bad *b)
{
	static const u16 ops[] = { KVMM_OP_SEQ_REMAP, KVMM_OP_SEQ_TRUNCATE,
				   KVMM_OP_SEQ_TRIM };

	b->what = "REMAP, TRUNCATE or TRIM";
	b->sqe.op = ops[rng_below(&w->rng, ARRAY_SIZE(ops))];
	b->sqe.nr = 1;
	b->len = 16;
	w->args[0] = KVMM_SEQ(cl->info.max_seqs, 1);
	w->args[1] = 0;
	b->entry = -ENOENT;
}

static void bad_open(struct sim *w, struct sim_client *cl, struct bad *b)
{
	struct kvmm_open_arg *a = (struct kvmm_open_arg *)w->args;

	*a = (struct kvmm_open_arg){ .prompt_len = 1 };
	b->what = "OPEN";
	b->sqe.op = KVMM_OP_SEQ_OPEN;
	b->sqe.nr = 1;
	b->len = sizeof(*a);
	b->entry = -EINVAL;
	switch (rng_below(&w->rng, 6)) {
	case 0:
		a->prompt_len = 0;
		break;
	case 1:
		a->flags = KVMM_OPEN_WHOLE_PROMPT << 1;
		break;
	case 2:
		a->lease = lease_wrong(w, cl);
		b->entry = seq_tokens_most(w, cl) ? -ENOENT : -E2BIG;
		break;
	case 3:
		a->max_tokens = 0xffffffff;
		b->entry = -E2BIG;
		break;
	case 4:
		b->len += 8;
		b->status = -EINVAL;
		break;
	default:
		b->sqe.nr = CORE_MAX_BATCH + 1;
		b->status = -E2BIG;
		break;
	}
}

static void bad_match(struct sim *w, struct sim_client *cl, struct bad *b)
{
	struct kvmm_match_arg *a = (struct kvmm_match_arg *)w->args;
	struct sim_seq *q = seq_random(w, cl);

	seq_look(w, cl, q);
	b->what = "MATCH";
	b->sqe.op = KVMM_OP_SEQ_MATCH;
	b->sqe.nr = 1;
	b->len = sizeof(*a);
	b->entry = -EINVAL;
	*a = (struct kvmm_match_arg){ .seq = q->handle,
				      .start = q->ids_sent };
	switch (rng_below(&w->rng, 6)) {
	case 0:
		a->resv = 1;
		break;
	case 1:
		a->flags = 2;
		break;
	case 2:
		a->seq += 1ull << 32;
		b->entry = -ENOENT;
		break;
	case 3:
		a->nr_ids = 1;
		b->status = -EINVAL;	/* the id is missing */
		break;
	case 4:
		if (!q->ids_done)
			a->start++;
		else
			b->entry = -ESTALE;
		break;
	default:
		if (!q->ids_done && q->ids_sent < q->prompt_len)
			a->flags = KVMM_MATCH_LAST;
		else
			a->resv = 1;
		break;
	}
}

static void bad_lookup(struct sim *w, struct sim_client *cl, struct bad *b)
{
	struct kvmm_lookup_arg *a = (struct kvmm_lookup_arg *)w->args;
	const u32 bt = groups_unit(w, cl);

	b->what = "LOOKUP";
	b->sqe.op = KVMM_OP_SEQ_LOOKUP;
	b->sqe.nr = 1;
	b->len = sizeof(*a) + 4 * bt;
	b->entry = -EINVAL;
	*a = (struct kvmm_lookup_arg){ .nr_ids = bt };
	memset(a + 1, 0, 4 * bt);
	switch (rng_below(&w->rng, 7)) {
	case 0:
		a->flags = 2;
		break;
	case 1:
		a->resv[rng_below(&w->rng, 2)] = 1;
		break;
	case 2:
		a->start = bt;		/* without a cookie */
		break;
	case 3:
		a->start = bt / 2;
		a->cookie[0] = 1;
		break;
	case 4:
		a->start = 0u - bt;
		a->cookie[1] = 1;
		break;
	case 5:
		a->nr_ids--;
		b->len -= 4;
		break;
	default:
		a->nr_ids++;
		b->status = -EINVAL;	/* the id is missing */
		break;
	}
	if (groups_have_state(w, cl) && !b->status)
		b->entry = -EOPNOTSUPP;
}

static void bad_step(struct sim *w, struct sim_client *cl, struct bad *b)
{
	struct kvmm_begin_arg *a = (struct kvmm_begin_arg *)w->args;

	b->sqe.nr = 1;
	b->len = sizeof(*a);
	b->status = -EINVAL;
	*a = (struct kvmm_begin_arg){ .max_tokens = 1 };
	b->sqe.op = KVMM_OP_STEP_BEGIN;
	b->what = "BEGIN";
	if (cl->nr_steps == cl->depth && rng_chance(&w->rng, 500)) {
		b->what = "BEGIN of one step too many";
		b->sqe.step = cl->step_number + 1;
		b->status = -EBUSY;
		return;
	}
	switch (rng_below(&w->rng, 4)) {
	case 0:
		b->sqe.step = cl->step_number;	/* zero, or does not rise */
		break;
	case 1:
		b->sqe.step = cl->step_number + 1;
		b->sqe.nr = 0;
		break;
	case 2:
		b->sqe.step = cl->step_number + 1;
		b->len--;
		break;
	default:
		b->what = "END of a step that is not the oldest";
		b->sqe.op = KVMM_OP_STEP_END;
		b->sqe.nr = 0;
		b->len = 0;
		b->sqe.step = cl->nr_steps ?
			cl->steps[cl->step_head].number + 1 : 1;
		break;
	}
}

static void bad_lease(struct sim *w, struct sim_client *cl, struct bad *b)
{
	struct kvmm_lease_arg *a = (struct kvmm_lease_arg *)w->args;
	const u32 bt = groups_unit(w, cl);

	b->what = "LEASE";
	b->sqe.op = KVMM_OP_SEQ_LEASE;
	b->sqe.nr = 1;
	b->len = sizeof(*a);
	b->entry = -EINVAL;
	*a = (struct kvmm_lease_arg){ .len = bt, .ms = 1, .cookie = { 1, w->event } };
	switch (rng_below(&w->rng, 6)) {
	case 0:
		a->flags = 1;
		break;
	case 1:
		a->len = bt / 2;
		break;
	case 2:
		a->ms = 0;
		break;
	case 3:
		a->ms = 0u - rng_range(&w->rng, 1, 1000);
		b->entry = -ERANGE;
		break;
	case 4:
		a->len = rng_chance(&w->rng, 500) ? bt : 0xffffffff / bt * bt;
		b->entry = -ENOENT;
		break;
	default:
		b->len -= 8;
		b->status = -EINVAL;
		break;
	}
	if (groups_have_state(w, cl) && !b->status)
		b->entry = -EOPNOTSUPP;
}

static void bad_fork(struct sim *w, struct sim_client *cl, struct bad *b)
{
	struct kvmm_fork_arg *a = (struct kvmm_fork_arg *)w->args;
	struct sim_seq *q = seq_random(w, cl);
	u32 state = cl->status[q->slot].state;

	b->what = "FORK";
	b->sqe.op = KVMM_OP_SEQ_FORK;
	b->sqe.nr = 1;
	b->len = sizeof(*a);
	*a = (struct kvmm_fork_arg){ .seq = q->handle, .nr_children = 1 };
	if (q->nr_steps) {
		b->entry = -EBUSY;
		return;
	}
	if (state != KVMM_SEQ_READY) {
		b->entry = -ESTALE;
		return;
	}
	switch (rng_below(&w->rng, 5)) {
	case 0:
		a->nr_children = 0;
		b->status = -EINVAL;
		break;
	case 1:
		a->nr_children = CORE_MAX_BATCH + 1;
		b->status = -E2BIG;
		break;
	case 2:
		a->resv = 1;
		b->entry = -EINVAL;
		break;
	case 3:
		a->seq += 1ull << 32;
		b->entry = -ENOENT;
		break;
	default:
		a->nr_children = cl->info.max_seqs - cl->nr_seqs -
				 cl->nr_leases + 1;
		b->entry = -ENOSPC;
		break;
	}
}

static void bad_close(struct sim *w, struct sim_client *cl, struct bad *b)
{
	struct kvmm_seq_arg *a = (struct kvmm_seq_arg *)w->args;
	u32 slot;

	b->what = "CLOSE of nothing";
	b->sqe.op = KVMM_OP_SEQ_CLOSE;
	b->sqe.nr = 1;
	b->len = sizeof(*a);
	b->entry = -ENOENT;
	slot = rng_below(&w->rng, cl->info.max_seqs);
	a->seq = cl->seqs[slot].handle;
	if (!a->seq || lease_begins(w, cl, slot) || rng_chance(&w->rng, 500))
		a->seq = KVMM_SEQ(0xffffffff, 1);
	else
		a->seq += 1ull << 32;
}

static void bad_advise(struct sim *w, struct sim_client *cl, struct bad *b)
{
	struct kvmm_advise_arg *a = (struct kvmm_advise_arg *)w->args;
	struct sim_seq *q = seq_random(w, cl);

	b->what = "ADVISE";
	b->sqe.op = KVMM_OP_SEQ_ADVISE;
	b->sqe.nr = 1;
	b->len = sizeof(*a);
	b->entry = -EINVAL;
	*a = (struct kvmm_advise_arg){ .seq = q->handle,
				       .advice = KVMM_ADV_PAGEOUT };
	switch (rng_below(&w->rng, 8)) {
	case 0:
		a->advice = 0;
		break;
	case 1:
		a->advice = KVMM_ADV_RETAIN + 1;
		break;
	case 2:
		a->retain = KVMM_RETAIN_LOW;
		break;
	case 4:
		a->advice = KVMM_ADV_RETAIN;
		a->retain = KVMM_RETAIN_HIGH + 1;
		a->value = KVMM_RANGE(0, 16);
		break;
	case 5:
		a->advice = KVMM_ADV_RETAIN;
		a->value = KVMM_RANGE(16, 16);
		break;
	case 6:
		a->advice = KVMM_ADV_RETAIN;
		a->value = KVMM_RANGE(32, 16);
		break;
	case 3:
		a->value = 1;
		break;
	default:
		a->seq += 1ull << 32;
		b->entry = -ENOENT;
		break;
	}
}

static void bad_ack(struct sim *w, struct sim_client *cl, struct bad *b)
{
	struct kvmm_ack_arg *a = (struct kvmm_ack_arg *)w->args;
	u32 e = rng_below(&w->rng, w->nr_extents);

	b->what = "EXTENT_ACK";
	b->sqe.op = KVMM_OP_EXTENT_ACK;
	b->sqe.nr = 1;
	b->len = sizeof(*a);
	b->entry = -EINVAL;
	*a = (struct kvmm_ack_arg){ .extent = e, .what = KVMM_ACK_MAP,
				    .generation = w->ext[e].generation };
	switch (rng_below(&w->rng, 6)) {
	case 0:
		a->extent = w->nr_extents;
		break;
	case 1:
		a->what = 3;
		break;
	case 4:			/* a revocation that the core did not ask for */
		a->what = KVMM_ACK_REVOKE;
		a->generation += cl->extents[e].state == KVMM_EXTENT_REVOKE;
		b->entry = -ESTALE;
		break;
	case 2:
		a->resv = 1;
		break;
	case 3:
		a->generation++;
		b->entry = -ESTALE;
		break;
	default:
		b->entry = -ESTALE;
		if (cl->extents[e].state == KVMM_EXTENT_REVOKE)
			break;
		if (w->ext[e].exists && cl->mapped[e] == a->generation &&
		    (w->ext[e].holders & BIT_ULL(cl->id)))
			b->entry = -EALREADY;
		else if (w->ext[e].holders & BIT_ULL(cl->id))
			a->generation++;
		break;
	}
}

static void bad_detach(struct sim *w, struct sim_client *cl, struct bad *b)
{
	b->what = "DETACH in an open step";
	b->sqe.op = KVMM_OP_DETACH;
	b->status = -EBUSY;
}

/* Draw a request.  Return: false when it needs something that is not there. */
static bool bad_draw(struct sim *w, struct sim_client *cl, struct bad *b)
{
	u32 kind = rng_below(&w->rng, 12);

	if ((kind == 3 || kind == 5 || kind == 8) && !seq_random(w, cl))
		return false;
	switch (kind) {
	case 0:
		bad_nop(w, cl, b);
		break;
	case 1:
		bad_share(w, cl, b);
		break;
	case 2:
		bad_open(w, cl, b);
		break;
	case 3:
		bad_match(w, cl, b);
		break;
	case 4:
		bad_step(w, cl, b);
		break;
	case 5:
		bad_fork(w, cl, b);
		break;
	case 6:
		bad_close(w, cl, b);
		break;
	case 7:
		bad_ack(w, cl, b);
		break;
	case 8:
		bad_advise(w, cl, b);
		break;
	case 9:
		bad_lookup(w, cl, b);
		break;
	case 10:
		bad_lease(w, cl, b);
		break;
	default:
		if (!cl->nr_steps)
			return false;
		bad_detach(w, cl, b);
		break;
	}
	return true;
}

/* Request numbers must rise: a client that forges one is expelled. */
static void bad_number(struct sim *w, struct sim_client *cl)
{
	struct kvmm_sqe sqe = { .op = KVMM_OP_NOP, .number = cl->number };
	int err;

	LOG(w, "client %u: sends a number again", cl->id);
	err = shell_send(w, cl, &sqe, 0);
	LAW(w, err == -EPROTO, "client %u: number %llu again: %d", cl->id,
	    (unsigned long long)cl->number, err);
}

/* laws_settled_digest() - laws_digest(), when the core has no work left over */
u64 laws_settled_digest(struct sim *w, struct sim_client *cl)
{
	u64 before, after = laws_digest(w);
	u32 i, n;

	/* A restore that evicts blocks it needs tries again, a block each time. */
	for (i = 0; i < 64; i++) {
		before = after;
		(void)shell_submit(w, cl, KVMM_OP_NOP, 0, 0, 0);
		/* Work that an event leaves over belongs to that event. */
		for (n = 0; n < 4096 && core_poll(w->core, w->now); n++)
			;
		after = laws_digest(w);
		if (before == after)
			break;
	}
	LAW(w, i < 64, "NOPs do not settle");
	return after;
}

/* Send one request that must be refused. */
void bad_act(struct sim *w, struct sim_client *cl)
{
	struct bad b = { .sqe = { .op = KVMM_OP_NOP } };
	u64 before;
	int err;

	if (rng_chance(&w->rng, 15)) {
		bad_number(w, cl);
		return;
	}
	before = laws_settled_digest(w, cl);
	if (!bad_draw(w, cl, &b))
		return;
	b.sqe.number = ++cl->number;
	LOG(w, "client %u: wrong request: %s", cl->id, b.what);
	err = shell_send(w, cl, &b.sqe, b.len);
	LAW(w, err == b.status, "client %u: wrong request (%s): %d, should be %d",
	    cl->id, b.what, err, b.status);
	if (!err && b.entry) {
		int entry = *(int *)w->results;

		LAW(w, entry == b.entry, "client %u: wrong entry (%s): %d, should be %d",
		    cl->id, b.what, entry, b.entry);
		cover_entry(b.sqe.op, entry);
	}
	LAW(w, laws_digest(w) == before, "law 4: client %u: a refused request (%s) changed something",
	    cl->id, b.what);
}
