// SPDX-License-Identifier: Apache-2.0
/*
 * lease.c - leases: content that was looked up stays until a deadline
 *
 * A client looks up the tokens of one of its sequences and leases what is found.
 * Later it renews the lease, moves its content, ends it, or lets it end.  It may
 * die, and then its leases end with it.  Any client of the domain opens sequences
 * with the number of a lease: seq.c verifies that they have the right content.
 *
 * The laws: a lease ends at its deadline and not before.  Leased content is not
 * lost, unless a copy, a transfer or the device failed.  A lookup finds it.  That
 * leases hold up no sequence follows from law 6, since leases outlast the drain.
 */
#include "tests/sim/sim.h"

#define LATE_TICKS	20u	/* ticks after its deadline until a lease has ended */

static struct sim_client *owner(struct sim *w, const struct sim_lease *l)
{
	return &w->cl[l->client];
}

static void lease_gone(struct sim *w, struct sim_lease *l)
{
	l->used = false;
	owner(w, l)->nr_leases--;
}

/* lease_forget() - the leases of a client have ended with it */
void lease_forget(struct sim *w, struct sim_client *cl)
{
	u32 i;

	for (i = 0; i < SIM_LEASES; i++)
		if (w->lease[i].used && w->lease[i].client == cl->id)
			lease_gone(w, &w->lease[i]);
}

/* lease_begins() - may the record of a slot have begun SWAPPED? */
bool lease_begins(const struct sim *w, const struct sim_client *cl, u32 slot)
{
	u32 i;

	for (i = 0; i < SIM_LEASES; i++)
		if (w->lease[i].used && w->lease[i].client == cl->id &&
		    w->lease[i].slot == slot)
			return true;
	return cl->seqs[slot].used && cl->seqs[slot].swapped;
}

static struct sim_lease *lease_random(struct sim *w, const struct sim_client *cl,
				      bool own)
{
	u32 i, at = rng_below(&w->rng, SIM_LEASES);

	for (i = 0; i < SIM_LEASES; i++) {
		struct sim_lease *l = &w->lease[(at + i) % SIM_LEASES];

		if (l->used && (own ? l->client == cl->id : owner(w, l)->dom == cl->dom))
			return l;
	}
	return NULL;
}

/* lease_wrong() - a number that names no lease of the client's domain */
u64 lease_wrong(struct sim *w, const struct sim_client *cl)
{
	u32 i;

	for (i = 0; i < SIM_LEASES; i++)
		if (w->lease[i].used && owner(w, &w->lease[i])->dom != cl->dom)
			return w->lease[i].number;
	return rng_chance(&w->rng, 500) ? 1 : KVMM_SEQ(0, 0xfffffff0);
}

/* ---- making ---- */

/* Look up the first @nr tokens of @l.  Return: the answer, in w->results. */
static const struct kvmm_lookup_res *lease_look(struct sim *w, struct sim_client *cl,
						const struct sim_lease *l, u32 nr)
{
	struct kvmm_lookup_arg *a = (struct kvmm_lookup_arg *)w->args;
	const struct kvmm_lookup_res *res = (const void *)w->results;
	int err;

	*a = (struct kvmm_lookup_arg){ .salt = l->salt, .nr_ids = nr,
				       .flags = KVMM_LOOKUP_LAST };
	memcpy(a + 1, l->tok, nr * sizeof(*l->tok));
	err = shell_submit(w, cl, KVMM_OP_SEQ_LOOKUP, 1, 0, (u32)sizeof(*a) + 4 * nr);
	LAW(w, !err && !res->status, "client %u: LOOKUP for a lease: %d, %d", cl->id, err,
	    res->status);
	return res;
}

static void lease_made(struct sim *w, struct sim_client *cl, struct sim_lease *l,
		       const struct kvmm_lease_res *res, u32 asked)
{
	const u32 bt = groups_unit(w, cl);

	LAW(w, res->held && res->held <= asked && res->held % bt == 0 &&
	    res->held + res->kept <= asked && (res->held == asked) == !res->reason,
	    "client %u: LEASE of %u tokens holds %u and keeps %u, reason %d", cl->id, asked,
	    res->held, res->kept, res->reason);
	LAW(w, KVMM_SEQ_INDEX(res->seq) < cl->info.max_seqs &&
	    !cl->seqs[KVMM_SEQ_INDEX(res->seq)].used,
	    "client %u: LEASE %llx has the record of a sequence", cl->id,
	    (unsigned long long)res->seq);
	l->used = true;
	l->client = cl->id;
	l->slot = KVMM_SEQ_INDEX(res->seq);
	l->handle = res->seq;
	l->number = res->number;
	l->held = res->held;
	l->late = 0;
	cl->nr_leases++;
	if (groups_of(w, cl) > 1)
		cover_note(res->reason ? "leases of a shorter hit of several groups" :
					 "leases of a hit of several groups");
	cover_note(res->reason ? "leases of a part of the prefix that was found" :
				 "leases of all of the prefix that was found");
}

static bool lease_make(struct sim *w, struct sim_client *cl, struct sim_lease *l)
{
	struct kvmm_lease_arg *a = (struct kvmm_lease_arg *)w->args;
	const struct kvmm_lease_res *res = (const void *)w->results;
	const struct sim_seq *q = seq_random(w, cl);
	const struct kvmm_lookup_res *look;
	u32 nr, ms;
	int err;

	if (!q || groups_have_state(w, cl))
		return false;
	nr = q->prompt_len + q->max_tokens;
	memcpy(l->tok, q->tok, nr * sizeof(*l->tok));
	l->salt = q->salt;
	look = lease_look(w, cl, l, nr);
	if (!look->hit)
		return true;
	ms = rng_chance(&w->rng, 300) ? rng_range(&w->rng, 1, 50) :
					rng_range(&w->rng, 50, w->cfg.lease_ms);
	ms = min(ms, w->cfg.lease_ms);
	nr = look->hit;
	*a = (struct kvmm_lease_arg){ .salt = l->salt, .len = nr, .ms = ms,
		.cookie = { look->hit_cookie[0], look->hit_cookie[1] } };
	err = shell_submit(w, cl, KVMM_OP_SEQ_LEASE, 1, 0, sizeof(*a));
	LAW(w, !err, "client %u: LEASE: %d", cl->id, err);
	cover_entry(KVMM_OP_SEQ_LEASE, res->status);
	LOG(w, "client %u: LEASE %llx of %u tokens for %u ms: %d, %u held, %u kept, %d",
	    cl->id, (unsigned long long)res->seq, nr, ms, res->status, res->held,
	    res->kept, res->reason);
	LAW(w, !res->status || res->status == -ENOSPC || res->status == -EDQUOT ||
	    res->status == -EAGAIN || res->status == -ENOENT ||
	    (res->status == -E2BIG && groups_of(w, cl) > 1) ||
	    (res->status == -ESHUTDOWN && cl->ctl.draining) || (w->lost && res->status == -ENODEV),
	    "client %u: LEASE: %d", cl->id, res->status);
	l->until = w->now + ms * SIM_MS;
	LAW(w, res->status || res->until == l->until, "client %u: LEASE until %llu", cl->id,
	    (unsigned long long)res->until);
	if (!res->status)
		lease_made(w, cl, l, res, nr);
	return true;
}

/* ---- use ---- */

/* Open a sequence of @cl with the lease. */
static void lease_open(struct sim *w, struct sim_client *cl, const struct sim_lease *l)
{
	struct kvmm_open_arg *a = (struct kvmm_open_arg *)w->args;
	const struct kvmm_open_res *res = (const void *)w->results;
	u64 most = min(seq_tokens_most(w, cl),
		       (u64)SIM_BLOCKS * groups_least(w, cl) - 100);
	bool full = cl->nr_seqs + cl->nr_leases == cl->info.max_seqs;
	int err;

	if (most < l->held || w->draining)
		return;
	*a = (struct kvmm_open_arg){ .prompt_len = l->held, .lease = l->number };
	a->prompt_len += rng_below(&w->rng, (u32)min(most - l->held + 1, 200ull));
	/* As in seq.c: small steps would take too long for a long prompt. */
	if (groups_of(w, cl) > 1)
		a->prompt_len = max(l->held, min(a->prompt_len, 6 * groups_step(w, cl)));
	a->max_tokens = rng_below(&w->rng, (u32)min(most - a->prompt_len + 1, 100ull));
	err = shell_submit(w, cl, KVMM_OP_SEQ_OPEN, 1, 0, sizeof(*a));
	LAW(w, !err, "client %u: OPEN with a lease: %d", cl->id, err);
	cover_entry(KVMM_OP_SEQ_OPEN, res->status);
	LOG(w, "client %u: OPEN %llx with lease %llx of client %u, %u+%u tokens: %d",
	    cl->id, (unsigned long long)res->seq, (unsigned long long)l->number, l->client,
	    a->prompt_len, a->max_tokens, res->status);
	/* There may be too few table pages; a client that is away sees no end. */
	LAW(w, full ? res->status == -ENOSPC : !res->status || res->status == -ENOSPC ||
	    (res->status == -ENOENT && w->now >= l->until),
	    "client %u: OPEN with lease %llx of client %u: %d", cl->id,
	    (unsigned long long)l->number, l->client, res->status);
	if (res->status)
		return;
	(void)seq_begin_leased(w, cl, res->seq, a, l);
	cover_note(l->client == cl->id ? "sequences opened with a lease" :
		   "sequences opened with the lease of another client");
}

static void lease_close(struct sim *w, struct sim_client *cl, struct sim_lease *l)
{
	struct kvmm_seq_arg *a = (struct kvmm_seq_arg *)w->args;
	const struct kvmm_seq_res *res = (const void *)w->results;
	int err;

	a->seq = l->handle;
	err = shell_submit(w, cl, KVMM_OP_SEQ_CLOSE, 1, 0, sizeof(*a));
	LAW(w, !err && !res->status, "client %u: CLOSE of lease %llx: %d, %d", cl->id,
	    (unsigned long long)l->handle, err, res->status);
	lease_gone(w, l);
}

static void lease_advise(struct sim *w, struct sim_client *cl, struct sim_lease *l)
{
	struct kvmm_advise_arg *a = (struct kvmm_advise_arg *)w->args;
	const struct kvmm_seq_res *res = (const void *)w->results;
	u32 advice = PICK(&w->rng, KVMM_ADV_WILLNEED, KVMM_ADV_WILLNEED,
			  KVMM_ADV_WILLNEED, KVMM_ADV_PAGEOUT, KVMM_ADV_PAGEOUT,
			  KVMM_ADV_KEEP_UNTIL, KVMM_ADV_COLD, KVMM_ADV_DONTNEED);
	u64 until = w->now + rng_range(&w->rng, 1, w->cfg.lease_ms) * SIM_MS;
	int err;

	*a = (struct kvmm_advise_arg){ .seq = l->handle, .advice = advice,
		.value = advice == KVMM_ADV_KEEP_UNTIL ? until :
			 advice == KVMM_ADV_DONTNEED ? l->number % 2 : 0 };
	LOG(w, "client %u: advice %u for lease %llx", cl->id, advice,
	    (unsigned long long)l->handle);
	err = shell_submit(w, cl, KVMM_OP_SEQ_ADVISE, 1, 0, sizeof(*a));
	LAW(w, !err && !res->status && res->valid_len <= l->held,
	    "client %u: advice %u for lease %llx: %d, %d", cl->id, advice,
	    (unsigned long long)l->handle, err, res->status);
	if (advice == KVMM_ADV_KEEP_UNTIL)
		l->until = until;
}

/* ---- laws ---- */

static bool nothing_fails(const struct sim *w)
{
	const struct sim_plan *p = &w->plan;

	return !p->copy_fail && !p->io_fail && !p->damage && !p->swapd_death && !p->stall &&
	       !p->crash && !w->cut && !w->cut_off && !w->lost && !p->areas;
}

/* A lookup finds the leased tokens, unless content is lost or an area is stalled. */
static void lease_verify(struct sim *w, struct sim_client *cl, const struct sim_lease *l)
{
	const u32 i = l->client * w->cfg.max_seqs + l->slot;
	const struct kvmm_lookup_res *res;
	struct core_lease_view v;
	struct core_seq_view s;

	LAW(w, !core_get_seq(w->core, i, &s) && s.state == CORE_SEQ_LEASED,
	    "client %u: lease %llx is %s in the view", l->client,
	    (unsigned long long)l->handle, core_seq_state_name(s.state));
	LAW(w, !core_get_lease(w->core, i, &v) && v.number == l->number &&
	    v.tokens == l->held && v.until == l->until,
	    "client %u: lease %llx of %u tokens is not in the view", l->client,
	    (unsigned long long)l->handle, l->held);
	LAW(w, !v.lost || !nothing_fails(w), "lease %llx of client %u lost %u of %u tokens",
	    (unsigned long long)l->handle, l->client, v.lost, l->held);
	res = lease_look(w, cl, l, l->held);
	if (v.lost || (res->flags & KVMM_LOOKUP_MORE) || !nothing_fails(w))
		return;
	/* A block in a span that is claimed is not found; when it has left, its copy is. */
	if (res->hit < l->held && v.on[KVMM_TIER_DEVICE])
		return;
	LAW(w, res->hit == l->held, "lease %llx of client %u: %u of %u tokens are found",
	    (unsigned long long)l->handle, l->client, res->hit, l->held);
	cover_note("leases whose content was found");
}

/* The deadline of a lease has passed, or not: has the core ended it? */
void lease_laws(struct sim *w)
{
	u32 i;

	for (i = 0; i < SIM_LEASES; i++) {
		struct sim_lease *l = &w->lease[i];
		const struct kvmm_seq_status *st;

		if (!l->used || owner(w, l)->unbound || owner(w, l)->away)
			continue;
		st = &owner(w, l)->status[l->slot];
		if (st->state == KVMM_SEQ_SWAPPED &&
		    st->generation == KVMM_SEQ_GEN(l->handle)) {
			LAW(w, l->late < LATE_TICKS, "client %u: lease %llx lives on",
			    l->client, (unsigned long long)l->handle);
			continue;
		}
		LAW(w, w->now >= l->until || w->lost, "client %u: lease %llx is %s too early",
		    l->client, (unsigned long long)l->handle,
		    core_seq_state_name(st->state));
		cover_note("leases that ended at their deadline");
		lease_gone(w, l);
	}
}

/* Time passed. */
void lease_tick(struct sim *w)
{
	u32 i;

	for (i = 0; i < SIM_LEASES; i++)
		w->lease[i].late += w->lease[i].used && w->now >= w->lease[i].until;
}

/* ---- acts ---- */

/* Make a lease, or do something with one.  Return: false: there is nothing to do. */
bool lease_act(struct sim *w, struct sim_client *cl)
{
	struct sim_lease *l;
	u32 i, r = rng_below(&w->rng, 110);

	for (i = 0; i < SIM_LEASES && w->lease[i].used; i++)
		;
	if (r < 40 && i < SIM_LEASES)
		return lease_make(w, cl, &w->lease[i]);
	l = lease_random(w, cl, r >= 65);
	/* The core may have ended it since the last event. */
	if (!l || w->now >= l->until)
		return false;
	if (r < 65)
		lease_open(w, cl, l);
	else if (r < 75)
		lease_close(w, cl, l);
	else if (r < 98)
		lease_advise(w, cl, l);
	else
		lease_verify(w, cl, l);
	return true;
}

/*
 * A client without sequences moves the content of a lease, in most cases: now memory is
 * free for a promotion.  Return: false: it goes.
 */
bool lease_idle(struct sim *w, struct sim_client *cl)
{
	struct sim_lease *l = lease_random(w, cl, true);

	if (!l || w->now >= l->until || rng_chance(&w->rng, 100))
		return false;
	lease_advise(w, cl, l);
	return true;
}
