// SPDX-License-Identifier: Apache-2.0
/*
 * pressure.c - the time that sequences lost, measured from outside
 *
 * Between two events nothing changes, so the truth is easy to find.  After each
 * event the world reads the status records of the core and knows the acts of its
 * clients.  It decides for each domain whether a sequence is stalled and whether
 * one is productive.  The time from the event before goes to the state that the
 * domain had then.  The core's accounts of the same time must agree.
 *
 * The world cannot see every state: a sequence may be preempted, restored and
 * preempted again in one event.  So the accounts may differ by a little.
 */
#include "tests/sim/sim.h"

#define STALLED		BIT(0)
#define PRODUCTIVE	BIT(1)
#define RESTORING	BIT(2)
#define RUNNING		BIT(3)

/* State of a sequence as its client sees it, now. */
static u32 task_of(const struct sim_client *cl, u32 slot)
{
	const struct kvmm_seq_status *st = &cl->status[slot];
	const struct sim_seen *seen = &cl->seen[slot];
	const struct sim_seq *q = &cl->seqs[slot];

	/* Closed, or the client does not know the present user of the slot. */
	if (!q->used || q->closing || q->handle !=
	    KVMM_SEQ(slot, st->generation))
		return 0;
	switch (st->state) {
	case KVMM_SEQ_WAITING:
		return q->ids_done ? STALLED : 0;
	case KVMM_SEQ_SWAPPED:
		return q->paged_out ? 0 : STALLED;
	case KVMM_SEQ_RESTORING:
		return q->paged_out ? 0 : STALLED | RESTORING;
	case KVMM_SEQ_RECOMPUTE:
		return STALLED;
	case KVMM_SEQ_READY:
	case KVMM_SEQ_MARKED:
		if (q->nr_steps)
			return RUNNING | (st->valid_len < seen->lost ?
					  STALLED : PRODUCTIVE);
		return q->refused ? STALLED : 0;
	}
	return 0;
}

static u32 domain_tasks(const struct sim *w, u32 dom)
{
	u32 i, n, tasks = 0;

	for (i = 0; i < w->cfg.max_clients; i++) {
		const struct sim_client *cl = &w->cl[i];

		if (cl->state != SIM_ALIVE || cl->info.domain != dom)
			continue;
		for (n = 0; n < cl->info.max_seqs; n++)
			tasks |= task_of(cl, n);
	}
	return tasks;
}

static void add_up(struct sim *w, struct sim_pressure *p,
		   const struct core_pressure_view *v)
{
	/* State that stalls for memory and for I/O, and state that rules out "full". */
	static const u32 want[SIM_PSI_RES] = { STALLED, RESTORING };
	static const u32 gets_on[SIM_PSI_RES] = { PRODUCTIVE, RUNNING };
	const u64 ns = w->now - p->since;
	u32 i;

	for (i = 0; i < SIM_PSI_RES; i++) {
		const u64 *now = v->total_ns[i], *was = p->last[i];
		bool some = p->tasks & want[i];
		bool full = some && !(p->tasks & gets_on[i]);

		/* A new domain under an old number starts from 0. */
		if (now[CORE_PSI_SOME] >= was[CORE_PSI_SOME] &&
		    now[CORE_PSI_FULL] >= was[CORE_PSI_FULL]) {
			p->core[i][CORE_PSI_SOME] += now[CORE_PSI_SOME] -
						     was[CORE_PSI_SOME];
			p->core[i][CORE_PSI_FULL] += now[CORE_PSI_FULL] -
						     was[CORE_PSI_FULL];
			p->truth[i][CORE_PSI_SOME] += some ? ns : 0;
			p->truth[i][CORE_PSI_FULL] += full ? ns : 0;
		}
		memcpy(p->last[i], now, sizeof(p->last[i]));
	}
}

/* Account for the time since the last event; w->now is the time of this one. */
void pressure_account(struct sim *w)
{
	struct core_pressure_view v;
	u32 i;

	for (i = 0; i < w->cfg.max_domains; i++) {
		struct sim_pressure *p = &w->pressure[i];

		if (!core_get_pressure(w->core, i, &v))
			add_up(w, p, &v);
		p->since = w->now;
		p->tasks = domain_tasks(w, i);
		LOG(w, "  stalls of domain %u: %llx, core %llu, truth %llu us, full %llu, %llu us, %u stalled, %u productive",
		    i, (unsigned long long)p->tasks,
		    (unsigned long long)p->core[0][0] / 1000,
		    (unsigned long long)p->truth[0][0] / 1000,
		    (unsigned long long)p->core[0][1] / 1000,
		    (unsigned long long)p->truth[0][1] / 1000,
		    v.nr_stalled, v.nr_productive);
	}
}

static u64 differ(u64 a, u64 b)
{
	return a > b ? a - b : b - a;
}

static void law_total(struct sim *w, u32 dom, u32 res, u32 kind)
{
	const u64 core = w->pressure[dom].core[res][kind];
	const u64 truth = w->pressure[dom].truth[res][kind];

	LAW(w, differ(core, truth) <= truth / 20 + 20 * SIM_MS,
	    "pressure: domain %u: %s %s %llu us, in truth %llu us", dom,
	    res == CORE_PSI_IO ? "io" : "memory",
	    kind == CORE_PSI_SOME ? "some" : "full",
	    (unsigned long long)core / 1000, (unsigned long long)truth / 1000);
	cover_pressure(res, kind, core, truth);
}

/**
 * laws_pressure() - the accounts of the whole seed agree with the truth
 *
 * The tolerance is a twentieth, and 20 ms more.
 */
void laws_pressure(struct sim *w)
{
	u32 i, res, what;

	/* A client that is away cannot read its records; an adoption loses the truth. */
	if (w->plan.crash || w->cut)
		return;
	for (i = 0; i < w->cfg.max_domains; i++)
		for (res = 0; res < SIM_PSI_RES; res++)
			for (what = 0; what < CORE_PSI_NR_KINDS; what++)
				law_total(w, i, res, what);
}

/* Add triggers for stalls before the first event. */
void pressure_start(struct sim *w)
{
	u32 i, nr = rng_below(&w->rng, 3);

	for (i = 0; i < nr; i++) {
		u64 window = rng_range(&w->rng, 500, 2000) * SIM_MS;
		int t = core_trigger_add(w->core, w->now, CORE_NONE,
					 rng_below(&w->rng, CORE_PSI_NR_RES),
					 rng_chance(&w->rng, 500),
					 window / rng_range(&w->rng, 2, 20),
					 window);

		LAW(w, t >= 0, "core_trigger_add: %d", t);
	}
}
