// SPDX-License-Identifier: Apache-2.0
/*
 * laws.c - laws that must hold after every event
 *
 * The core's walkers judge the core by its own records.  This file judges it
 * from outside.  Status records change only as they may, and the core posts
 * events for it.  Epochs rise when memory is lost.  No sequence loses memory for
 * another tenant or inside an open step.  Counters agree with each other and
 * with the views.
 */
#include "kvmm/core/why.h"
#include "tests/sim/sim.h"

#define POISON	8	/* of core_domain_view.blocks */
#define S(state)	BIT(KVMM_SEQ_##state)

/* Changes of state from one look to the next, at most one event later. */
static const u32 may_become[KVMM_NR_SEQ_STATES] = {
	/* A child, or admitted, and preempted in the same event for a promise. */
	[KVMM_SEQ_CLOSED]	= S(WAITING) | S(READY) | S(MARKED) |
				  S(RECOMPUTE) | S(SWAPPED) | S(RESTORING),
	/* MARKED, here too, if another sequence of the family is in a step. */
	[KVMM_SEQ_WAITING]	= S(READY) | S(RESTORING) | S(FAILED) |
				  S(MARKED) | S(RECOMPUTE) | S(SWAPPED) |
				  S(CLOSED),
	[KVMM_SEQ_READY]	= S(MARKED) | S(RECOMPUTE) | S(SWAPPED) |
				  S(RESTORING) | S(CLOSED),
	[KVMM_SEQ_MARKED]	= S(RECOMPUTE) | S(SWAPPED) | S(RESTORING) |
				  S(READY) | S(CLOSED),
	/* FAILED: a smaller pool or memory.max has no room for it any more. */
	[KVMM_SEQ_SWAPPED]	= S(RESTORING) | S(READY) | S(RECOMPUTE) |
				  S(FAILED) | S(CLOSED),
	/* MARKED: it was restored, and its family preempted in the same event. */
	[KVMM_SEQ_RESTORING]	= S(READY) | S(MARKED) | S(RECOMPUTE) |
				  S(SWAPPED) | S(CLOSED),
	/* Admitted and preempted in the same event, as above. */
	[KVMM_SEQ_RECOMPUTE]	= S(WAITING) | S(READY) | S(RESTORING) |
				  S(FAILED) | S(MARKED) | S(SWAPPED) |
				  S(CLOSED),
	[KVMM_SEQ_FAILED]	= S(CLOSED),
};

/* ---- status records ---- */

/* Did the epoch rise as often as the change of state demands? */
static bool epoch_right(const struct sim_seen *was,
			const struct kvmm_seq_status *st)
{
	u32 rise = st->seq_epoch - was->epoch, want = 0;
	bool lost = st->state == KVMM_SEQ_RECOMPUTE;

	if (was->state == KVMM_SEQ_READY)
		want = 1;
	else if (lost && was->state != KVMM_SEQ_MARKED)
		want = 1;
	else if ((st->state == KVMM_SEQ_SWAPPED ||
		  st->state == KVMM_SEQ_MARKED) &&
		 was->state == KVMM_SEQ_RESTORING)
		want = 1;	/* it was restored, and taken again */
	else if (was->state == KVMM_SEQ_RESTORING && was->preempt_events)
		want = 1;	/* the same, and restored once more */
	/* Swapped, and the copy below is lost or too much to come back. */
	return rise == want || (lost && rise == want + 1 &&
				was->state != KVMM_SEQ_SWAPPED);
}

/* Did this event preempt a sequence for the memory.min of another domain? */
bool laws_promise_kept(struct sim *w)
{
	u64 ev[NR_CORE_EVENTS];

	core_get_events(w->core, ev);
	return ev[CORE_EV_preempt_min] != w->counts[CORE_EV_preempt_min];
}

static void check_loss(struct sim *w, struct sim_client *cl, u32 slot,
		       const struct sim_seen *was,
		       const struct kvmm_seq_status *st)
{
	const struct sim_seq *q = &cl->seqs[slot];
	bool was_ready = was->state == KVMM_SEQ_READY;

	if (st->state == KVMM_SEQ_CLOSED || st->state == KVMM_SEQ_WAITING ||
	    was->state == KVMM_SEQ_CLOSED || was->state == KVMM_SEQ_WAITING ||
	    was->state == KVMM_SEQ_RECOMPUTE || st->state == KVMM_SEQ_FAILED)
		return;
	LAW(w, epoch_right(was, st),
	    "client %u: sequence %u went from %s to %s, epoch from %u to %u",
	    cl->id, slot, core_seq_state_name(was->state),
	    core_seq_state_name(st->state), was->epoch, st->seq_epoch);
	LAW(w, w->actor_tenant == CORE_NONE || laws_promise_kept(w) ||
	    w->actor_tenant == w->dom[cl->dom].tenant || !was_ready,
	    "law 2: client %u of tenant %u lost memory to a request of tenant %u",
	    cl->id, w->dom[cl->dom].tenant, w->actor_tenant);
	if (st->state != KVMM_SEQ_RECOMPUTE && st->state != KVMM_SEQ_SWAPPED)
		return;
	LAW(w, !q->used || !q->nr_steps,
	    "law 3: client %u: sequence %u was preempted inside an open step",
	    cl->id, slot);
	LAW(w, was->preempt_events, "client %u: sequence %u was preempted without an event",
	    cl->id, slot);
	LAW(w, st->state == KVMM_SEQ_SWAPPED ||
	    (st->table[0] == KVMM_NO_INDEX && !st->valid_len),
	    "client %u: sequence %u was preempted and keeps %u valid tokens",
	    cl->id, slot, st->valid_len);
}

/*
 * Tokens that a preempted sequence had.  One that was admitted and preempted in one
 * event began with cached tokens, of which only the core knows the number.
 */
static u32 lost_now(const struct sim *w, const struct sim_client *cl, u32 slot,
		    const struct sim_seen *was)
{
	struct core_why_view v;

	if (!was->ready_events || was->valid ||
	    core_get_why(w->core, cl->id * w->cfg.max_seqs + slot, w->now, &v))
		return was->valid;
	return v.len;
}

static void check_record(struct sim *w, struct sim_client *cl, u32 slot)
{
	const struct kvmm_seq_status *st = &cl->status[slot];
	struct sim_seen *was = &cl->seen[slot];
	bool fork = was->state == KVMM_SEQ_CLOSED;
	u32 lost = was->lost;

	if (st->seqcount == was->seqcount)
		return;
	LAW(w, !(st->seqcount & 1), "client %u: record %u is left odd", cl->id,
	    slot);
	LAW(w, st->state < KVMM_NR_SEQ_STATES, "client %u: record %u: state %u",
	    cl->id, slot, st->state);
	LAW(w, st->generation == was->generation || fork,
	    "client %u: record %u: generation %u, was %u in state %s", cl->id,
	    slot, st->generation, was->generation,
	    core_seq_state_name(was->state));
	if (st->state != was->state) {
		LAW(w, (may_become[was->state] & BIT(st->state)) ||
		    (w->lost && st->state == KVMM_SEQ_FAILED),
		    "client %u: sequence %u went from %s to %s", cl->id, slot,
		    core_seq_state_name(was->state),
		    core_seq_state_name(st->state));
		LAW(w, !fork || st->state == KVMM_SEQ_WAITING ||
		    st->state == KVMM_SEQ_READY || laws_promise_kept(w) ||
		    cl->unbound || lease_begins(w, cl, slot),
		    "client %u: sequence %u was preempted when it was made",
		    cl->id, slot);
		check_loss(w, cl, slot, was, st);
		if (st->state == KVMM_SEQ_READY && !fork)
			LAW(w, was->ready_events, "client %u: sequence %u is READY without an event",
			    cl->id, slot);
	} else {
		/*
		 * Swapped and restored in one event, or admitted and
		 * preempted again: the events must say so.
		 */
		bool back = was->preempt_events && was->ready_events;

		LAW(w, st->seq_epoch == was->epoch + back, "client %u: sequence %u: epoch from %u to %u while %s",
		    cl->id, slot, was->epoch, st->seq_epoch,
		    core_seq_state_name(st->state));
	}
	/*
	 * A fork that is preempted when it is made has lost what its parent had, and a
	 * sequence that was opened with a lease the tokens of the lease.
	 */
	if (fork)
		lost = cl->seqs[slot].used ? cl->seqs[slot].leased : 0;
	if (was->preempt_events)
		lost = max(lost, lost_now(w, cl, slot, was));
	*was = (struct sim_seen){ .seqcount = st->seqcount,
				  .generation = st->generation,
				  .state = st->state,
				  .epoch = st->seq_epoch,
				  .valid = st->valid_len,
				  .lost = lost };
}

/**
 * laws_event_posted() - an event must not come before the record it tells of
 *
 * Context: inside the core's call of ops->wake.
 */
void laws_event_posted(struct sim *w, struct sim_client *cl)
{
	for (; cl->event_head != cl->ctl.event_tail; cl->event_head++) {
		const struct kvmm_event *ev =
			&cl->events[cl->event_head % SIM_EVENTS];
		const struct kvmm_seq_status *st;

		if (ev->type == KVMM_EV_MAP) {
			LAW(w, cl->extents[ev->index].state ==
			    KVMM_EXTENT_MAP, "client %u: event MAP of extent %u before its record",
			    cl->id, ev->index);
			continue;
		}
		if (ev->type == KVMM_EV_REVOKE) {
			LAW(w, cl->extents[ev->index].state ==
			    KVMM_EXTENT_REVOKE, "client %u: event REVOKE of extent %u before its record",
			    cl->id, ev->index);
			cl->revoked_at[ev->index] = w->now;
			continue;
		}
		if (ev->type == KVMM_EV_SHUTDOWN ||
		    ev->type == KVMM_EV_PRESSURE)
			continue;
		LAW(w, ev->index < cl->info.max_seqs, "client %u: event %u of sequence %u",
		    cl->id, ev->type, ev->index);
		st = &cl->status[ev->index];
		LAW(w, ev->seq == KVMM_SEQ(ev->index, st->generation),
		    "client %u: event %u of %llx, record has generation %u",
		    cl->id, ev->type, (unsigned long long)ev->seq,
		    st->generation);
		if (ev->type == KVMM_EV_READY)
			cl->seen[ev->index].ready_events++;
		else if (ev->type == KVMM_EV_PREEMPTED)
			cl->seen[ev->index].preempt_events++;
		LAW(w, (ev->type == KVMM_EV_READY &&
			st->state == KVMM_SEQ_READY) ||
		    (ev->type == KVMM_EV_PREEMPTED &&
		     (st->state == KVMM_SEQ_RECOMPUTE ||
		      st->state == KVMM_SEQ_SWAPPED)) ||
		    (ev->type == (w->lost ? KVMM_EV_POISONED :
				  KVMM_EV_FAILED) &&
		     st->state == KVMM_SEQ_FAILED),
		    "client %u: event %u of sequence %u before its record, which says %s",
		    cl->id, ev->type, ev->index,
		    core_seq_state_name(st->state));
	}
}

/* A client is killed only for a step, a silence or a mapping that lasts too long. */
void laws_check_kill(struct sim *w, struct sim_client *cl, int reason)
{
	const struct sim_step *st = &cl->steps[cl->step_head];
	u32 i, n;

	if (reason == -EBUSY) {
		revoke_check_kill(w, cl);
		return;
	}
	if (reason == -EPIPE) {
		LAW(w, cl->broken || cl->unsure,
		    "client %u is killed, and its group is whole", cl->id);
		return;
	}
	if (reason != -ETIME) {
		LAW(w, cl->state == SIM_DEAD && w->now - cl->dead_at >
		    w->cfg.quiet_deadline_ns, "client %u is killed after %llu ns of silence",
		    cl->id, (unsigned long long)(w->now - cl->dead_at));
		return;
	}
	LAW(w, cl->nr_steps && w->now - st->begun > w->cfg.step_deadline_ns,
	    "client %u is killed, its oldest step of %u is %llu ns old",
	    cl->id, cl->nr_steps, (unsigned long long)(w->now - st->begun));
	for (i = 0; i < SIM_CLIENTS; i++) {
		const struct sim_client *o = &w->cl[i];

		if (o == cl || o->state != SIM_ALIVE)
			continue;
		if (o->again_at && w->now - o->again_at < 1000 * SIM_MS)
			return;
		for (n = 0; n < SIM_SEQS; n++)
			if (o->status[n].state == KVMM_SEQ_WAITING ||
			    o->status[n].state == KVMM_SEQ_SWAPPED)
				return;
	}
	sim_fail(w, "client %u is killed and nobody waits", cl->id);
}

/* ---- counters and views ---- */

static void check_counters(struct sim *w)
{
	u64 ev[NR_CORE_EVENTS], used = 0, seqs = 0, steps = 0;
	struct core_domain_view d;
	struct core_client_view c;
	u32 i, n;

	core_get_events(w->core, ev);
	for (i = 0; i < NR_CORE_EVENTS; i++)
		LAW(w, ev[i] >= w->counts[i], "counter %u fell from %llu to %llu",
		    i, (unsigned long long)w->counts[i],
		    (unsigned long long)ev[i]);
	memcpy(w->counts, ev, sizeof(ev));

	for (i = 0; i < w->cfg.max_domains; i++) {
		if (core_get_domain(w->core, i, &d))
			continue;
		for (n = 1; n < ARRAY_SIZE(d.blocks); n++)
			used += n == POISON ? 0 : d.blocks[n];
		d.current_bytes -= d.blocks[POISON] * d.block_bytes;
		LAW(w, d.current_bytes <= max(d.max_bytes, w->limit[i].use),
		    "domain %u has %llu bytes, its max is %llu",
		    i, (unsigned long long)d.current_bytes,
		    (unsigned long long)d.max_bytes);
	}
	for (i = 0; i < w->cfg.max_clients; i++) {
		if (core_get_client(w->core, i, &c))
			continue;
		seqs += c.nr_seqs;
		steps += c.open_steps;
		LAW(w, c.open_steps == (w->cl[i].is_void ? 0 :
					w->cl[i].nr_steps), "client %u has %u open steps, the core says %u",
		    i, w->cl[i].nr_steps, c.open_steps);
	}
	LAW(w, ev[CORE_EV_pgalloc] - ev[CORE_EV_pgfree] == used,
	    "%llu blocks granted, %llu given back, %llu in use",
	    (unsigned long long)ev[CORE_EV_pgalloc],
	    (unsigned long long)ev[CORE_EV_pgfree], (unsigned long long)used);
	LAW(w, ev[CORE_EV_seq_open] + ev[CORE_EV_seq_fork] -
	    ev[CORE_EV_seq_close] == seqs,
	    "%llu opened, %llu forked, %llu closed, %llu there",
	    (unsigned long long)ev[CORE_EV_seq_open],
	    (unsigned long long)ev[CORE_EV_seq_fork],
	    (unsigned long long)ev[CORE_EV_seq_close],
	    (unsigned long long)seqs);
	LAW(w, ev[CORE_EV_step_begin] - ev[CORE_EV_step_end] == steps,
	    "%llu steps begun, %llu ended, %llu open",
	    (unsigned long long)ev[CORE_EV_step_begin],
	    (unsigned long long)ev[CORE_EV_step_end],
	    (unsigned long long)steps);
}

static void check_walkers(struct sim *w)
{
	struct core_report report;
	int err = core_check(w->core, &report);

	LAW(w, !err, "walkers: %s (%u faults)", report.text, report.nr_faults);
}

/**
 * laws_after_event() - check all laws that hold between events
 *
 * The walkers run after every event if the pools are small, else every 256
 * events.
 */
void laws_after_event(struct sim *w)
{
	u32 i, n;

	for (i = 0; i < w->cfg.max_clients; i++) {
		if (w->cl[i].state == SIM_NONE)
			continue;
		for (n = 0; n < w->cl[i].info.max_seqs; n++)
			check_record(w, &w->cl[i], n);
	}
	w->actor_tenant = CORE_NONE;
	check_counters(w);
	pressure_account(w);
	laws_limits(w);
	laws_tiers(w);
	lease_laws(w);
	if (w->nr_blocks_max <= 512 || w->event % 256 == 0)
		check_walkers(w);
}

/* ---- a refused request changes nothing ---- */

static u64 digest_add(u64 d, const void *p, size_t len)
{
	const u8 *b = p;
	u64 word;

	for (; len >= 8; len -= 8, b += 8) {
		memcpy(&word, b, 8);
		d = mix2(d, word);
	}
	for (; len; len--)
		d = mix2(d, *b++);
	return d;
}

/* Digest of all that the views show, without counts of refusals and lookups. */
u64 laws_digest(struct sim *w)
{
	u64 ev[NR_CORE_EVENTS], d = 0;
	struct core_pool_view p;
	struct core_domain_view dom;
	struct core_client_view c;
	struct core_seq_view s;
	struct core_extent_view x;
	struct core_tier_view t;
	u32 i;

	core_get_events(w->core, ev);
	ev[CORE_EV_req_refused] = 0;
	for (i = CORE_EV_lookup; i <= CORE_EV_lookup_moving_tokens; i++)
		ev[i] = 0;
	d = digest_add(d, ev, sizeof(ev));
	core_get_pool(w->core, &p);
	d = digest_add(d, &p, sizeof(p));
	for (i = 0; i < w->cfg.max_domains; i++)
		if (!core_get_domain(w->core, i, &dom))
			d = digest_add(d, &dom, sizeof(dom));
	for (i = 0; i < w->cfg.max_clients; i++)
		if (!core_get_client(w->core, i, &c))
			d = digest_add(d, &c, sizeof(c));
	for (i = 0; i < w->cfg.max_clients * w->cfg.max_seqs; i++)
		if (!core_get_seq(w->core, i, &s))
			d = digest_add(d, &s, sizeof(s));
	for (i = 0; i < w->nr_extents; i++)
		if (!core_get_extent(w->core, i, &x))
			d = digest_add(d, &x, sizeof(x));
	for (i = CORE_POOL_HOST; i < CORE_NR_POOLS; i++)
		if (!core_get_tier(w->core, i, &t))
			d = digest_add(d, &t, sizeof(t));
	for (i = 0; i < SIM_CLIENTS; i++)
		if (w->cl[i].state != SIM_NONE) {
			d = digest_add(d, w->cl[i].status,
				       sizeof(w->cl[i].status));
			d = digest_add(d, w->cl[i].tables,
				       sizeof(w->cl[i].tables));
		}
	return d;
}

/**
 * laws_final() - law 7: all clients have gone, no memory is held
 *
 * All memory is free, or cached and so available.
 */
void laws_final(struct sim *w)
{
	struct core_pool_view p;
	u64 all;

	core_get_pool(w->core, &p);
	all = p.free_extents + p.free + p.cached + p.tails + p.offline;
	LAW(w, all == p.total && !p.committed && !p.shared,
	    "law 7: of %llu bytes %llu are free or cached, %llu open, %llu sealed, %llu quiescing, %llu quarantined, %llu promised",
	    (unsigned long long)p.total, (unsigned long long)all,
	    (unsigned long long)p.open, (unsigned long long)p.sealed,
	    (unsigned long long)p.quiescing,
	    (unsigned long long)p.quarantine,
	    (unsigned long long)p.committed);
	check_walkers(w);
}
