// SPDX-License-Identifier: Apache-2.0
/*
 * share.c - REMAP, TRUNCATE and TRIM as honest clients send them
 *
 * The expected tokens of a sequence are copied, cut and forgotten here as the
 * core does it with blocks.  The laws compare the two at each read.  After half
 * of the REMAPs the client reads its tables again.  Else it trusts that the next
 * grant tells where the table changed (sim_seq.stale until then).
 */
#include "tests/sim/sim.h"

/* Sequences as they were before a REMAP. */
static struct sim_seq was[SIM_SEQS];
static u32 was_tok[SIM_SEQS][SIM_TOKENS];
static u64 was_hash[SIM_SEQS][SIM_TOKENS];
static u32 was_lost[SIM_SEQS];

static bool is_idle(struct sim *w, struct sim_client *cl, struct sim_seq *q)
{
	return q->used && !q->closing && !q->nr_steps &&
	       seq_look(w, cl, q)->state == KVMM_SEQ_READY;
}

/* Pick a sequence that the verbs apply to, now and then any other. */
static struct sim_seq *share_pick(struct sim *w, struct sim_client *cl)
{
	u32 at = rng_below(&w->rng, SIM_SEQS), i;

	if (rng_chance(&w->rng, 150))
		return seq_random(w, cl);
	for (i = 0; i < SIM_SEQS; i++) {
		struct sim_seq *q = &cl->seqs[(at + i) % SIM_SEQS];

		if (is_idle(w, cl, q))
			return q;
	}
	return NULL;
}

static void remember(struct sim_client *cl)
{
	u32 all, i;

	memcpy(was, cl->seqs, sizeof(was));
	for (i = 0; i < SIM_SEQS; i++) {
		if (!cl->seqs[i].used)
			continue;
		was_lost[i] = cl->seen[i].lost;
		all = cl->seqs[i].prompt_len + cl->seqs[i].max_tokens;
		memcpy(was_tok[i], cl->seqs[i].tok, all * sizeof(was_tok[i][0]));
		memcpy(was_hash[i], cl->seqs[i].hash, all * sizeof(was_hash[i][0]));
	}
}

/* The right answer to one entry, as if it were alone. */
static int remap_want(struct sim *w, struct sim_client *cl,
		      struct sim_seq *child, struct sim_seq *other)
{
	u32 a = seq_look(w, cl, child)->state;
	u32 b = seq_look(w, cl, other)->state;

	if (child->nr_steps || other->nr_steps)
		return -EBUSY;
	return a == KVMM_SEQ_READY && b == KVMM_SEQ_READY ? 0 : -ESTALE;
}

/* The client cut the sequence to @len; @lost of it were valid before a loss. */
static void share_cut(struct sim_client *cl, const struct sim_seq *q, u32 len,
		      u32 lost)
{
	cl->seen[q->slot].valid = len;
	cl->seen[q->slot].lost = lost;
}

/* @q becomes a copy of @slot; it keeps its handle and its planned length. */
static void remap_take(struct sim *w, struct sim_client *cl, struct sim_seq *q,
		       u32 slot)
{
	const struct sim_seq *from = &was[slot];
	u32 all = from->prompt_len + from->max_tokens;

	memcpy(q->tok, was_tok[slot], all * sizeof(*q->tok));
	memcpy(q->hash, was_hash[slot], all * sizeof(*q->hash));
	q->variant = from->variant;
	q->valid = from->valid;
	q->dev_len = from->valid;
	q->trim = from->trim;
	q->trim_want = from->trim_want;
	q->resv = 0;
	q->stale = true;
	q->kept_at = from->kept_at;
	share_cut(cl, q, q->valid, was_lost[slot]);
	/* Another domain's need may have preempted it in the same event. */
	if (rng_chance(&w->rng, 500) &&
	    cl->status[q->slot].state == KVMM_SEQ_READY) {
		seq_refresh(w, cl, q, q->valid);
		seq_verify(w, cl, q, q->valid, "a remap");
	}
}

static u32 remap_draw(struct sim *w, struct sim_client *cl, u64 family,
		      struct kvmm_remap_arg *a, u32 *from)
{
	bool any = rng_chance(&w->rng, 100);
	u32 kin[SIM_SEQS], nr = 0, i, n = 0;

	for (i = 0; i < SIM_SEQS; i++) {
		struct sim_seq *q = &cl->seqs[i];

		if (q->used && !q->closing && q->family == family &&
		    (any || is_idle(w, cl, q)))
			kin[nr++] = i;
	}
	for (i = 0; i < nr; i++) {
		if (rng_chance(&w->rng, 150))
			continue;
		from[n] = kin[rng_below(&w->rng, nr)];
		a[n].child = cl->seqs[kin[i]].handle;
		a[n].other = cl->seqs[from[n]].handle;
		n++;
	}
	return n;
}

static bool remap_act(struct sim *w, struct sim_client *cl)
{
	struct kvmm_remap_arg *a = (struct kvmm_remap_arg *)w->args;
	const struct kvmm_seq_res *res = (const void *)w->results;
	struct sim_seq *q = share_pick(w, cl);
	u32 from[SIM_SEQS], nr, i;
	int want = 0, err;

	nr = q ? remap_draw(w, cl, q->family, a, from) : 0;
	/* A family of one has no other sequence to become. */
	if (nr < 2 && rng_chance(&w->rng, 800))
		return seq_act_fork(w, cl);
	if (!nr)
		return false;
	for (i = 0; i < nr && !want; i++)
		want = remap_want(w, cl,
				  &cl->seqs[KVMM_SEQ_INDEX(a[i].child)],
				  &cl->seqs[from[i]]);
	remember(cl);
	LOG(w, "client %u: REMAP of %u, first %llx := %llx", cl->id, nr,
	    (unsigned long long)a[0].child, (unsigned long long)a[0].other);
	err = shell_submit(w, cl, KVMM_OP_SEQ_REMAP, nr, 0, nr * sizeof(*a));
	LAW(w, !err, "client %u: REMAP: %d", cl->id, err);
	for (i = 0; i < nr; i++) {
		struct sim_seq *k = &cl->seqs[KVMM_SEQ_INDEX(a[i].child)];

		cover_entry(KVMM_OP_SEQ_REMAP, res[i].status);
		LAW(w, (!res[i].status) == (!res[0].status) &&
		    (want ? res[i].status < 0 :
		     !res[i].status || res[i].status == -ENOSPC),
		    "client %u: REMAP of %u: entry %u %d, entry 0 %d, should be %d",
		    cl->id, nr, i, res[i].status, res[0].status, want);
		LAW(w, res[i].status || res[i].valid_len == was[from[i]].valid,
		    "client %u: REMAP: child %llx has %u valid, should have %u",
		    cl->id, (unsigned long long)a[i].child, res[i].valid_len,
		    was[from[i]].valid);
		if (!res[i].status && k->slot != from[i])
			remap_take(w, cl, k, from[i]);
	}
	return true;
}

/* Draw new tokens after the valid ones, but not inside the prompt. */
static void tokens_again(struct sim *w, struct sim_seq *q)
{
	u32 p = max(q->valid, q->prompt_len);
	u64 h = q->hash[p - 1];

	q->variant = rng_below(&w->rng, 5);
	for (; p < q->prompt_len + q->max_tokens; p++) {
		q->tok[p] = (u32)mix2(h, q->variant) & 0xffff;
		h = mix2(h, q->tok[p]);
		q->hash[p] = h;
	}
}

static bool truncate_act(struct sim *w, struct sim_client *cl)
{
	struct kvmm_len_arg *a = (struct kvmm_len_arg *)w->args;
	const struct kvmm_seq_res *res = (const void *)w->results;
	u32 state, len;
	struct sim_seq *q = share_pick(w, cl);
	int want, err;

	if (!q)
		return false;
	state = seq_look(w, cl, q)->state;
	if (!q->valid)
		return false;
	len = rng_range(&w->rng, q->trim_want, q->valid);
	want = q->nr_steps ? -EBUSY : state != KVMM_SEQ_READY ? -ESTALE :
	       groups_reach(w, cl, q, len) ? 0 : -EINVAL;
	*a = (struct kvmm_len_arg){ .seq = q->handle, .len = len };
	LOG(w, "client %u: TRUNCATE %llx from %u to %u", cl->id,
	    (unsigned long long)q->handle, q->valid, len);
	err = shell_submit(w, cl, KVMM_OP_SEQ_TRUNCATE, 1, 0, sizeof(*a));
	LAW(w, !err && res->status == want, "client %u: TRUNCATE: %d, %d, should be %d",
	    cl->id, err, res->status, want);
	cover_entry(KVMM_OP_SEQ_TRUNCATE, want);
	if (want)
		return true;
	q->valid = len;
	q->dev_len = len;
	q->resv = 0;
	q->stale = true;
	share_cut(cl, q, len, min(cl->seen[q->slot].lost, len));
	/* Another domain's need may have preempted it in the same event. */
	if (cl->status[q->slot].state == KVMM_SEQ_READY)
		seq_cut(w, cl, q, len);
	tokens_again(w, q);
	return true;
}

/* Blocks that are given back are not read again, not even by later steps. */
static bool trim_act(struct sim *w, struct sim_client *cl)
{
	struct kvmm_len_arg *a = (struct kvmm_len_arg *)w->args;
	const struct kvmm_seq_res *res = (const void *)w->results;
	u32 state, pos;
	struct sim_seq *q = share_pick(w, cl);
	int want, err;

	if (!q || rng_chance(&w->rng, 500))
		return false;
	state = seq_look(w, cl, q)->state;
	pos = rng_below(&w->rng, q->valid + 1);
	want = state == KVMM_SEQ_READY || state == KVMM_SEQ_MARKED ? 0 :
	       -ESTALE;
	*a = (struct kvmm_len_arg){ .seq = q->handle, .len = pos };
	LOG(w, "client %u: TRIM %llx before %u", cl->id,
	    (unsigned long long)q->handle, pos);
	err = shell_submit(w, cl, KVMM_OP_SEQ_TRIM, 1, 0, sizeof(*a));
	LAW(w, !err && res->status == want, "client %u: TRIM: %d, %d, should be %d",
	    cl->id, err, res->status, want);
	cover_entry(KVMM_OP_SEQ_TRIM, want);
	if (!want)
		q->trim_want = max(q->trim_want, pos);
	/* Open steps still read them. */
	if (!q->nr_steps)
		q->trim = q->trim_want;
	return true;
}

bool share_act(struct sim *w, struct sim_client *cl)
{
	switch (rng_below(&w->rng, 4)) {
	case 0:
		return truncate_act(w, cl);
	case 1:
		return trim_act(w, cl);
	default:
		return remap_act(w, cl);
	}
}
