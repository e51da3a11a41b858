// SPDX-License-Identifier: Apache-2.0
/*
 * device.c - the device fails, while all work of a seed is under way
 *
 * Cut (one seed in 32): every copy in flight is answered with an error, unless it
 * is over.  Such a copy goes on writing its target as long as the daemon lives.  A
 * copy that begins after the failure is refused before it touches any memory.
 * Memory that was being made does not come.  Time goes on, then the daemon ends
 * and the next one adopts.  The seed is drained after that as any other.
 *
 * Lost (another seed in 32): all clients are told, and no block is granted or
 * cached any more.  When all clients have died, all of the device is in POISON.
 */
#include "tests/sim/sim.h"

static void fails(struct sim *w, u32 how)
{
	LOG(w, "the device fails: %s", core_device_name(how));
	core_device_failed(w->core, w->now, 0, how);
	world_event_done(w);
	if (!w->zone_extents[1])
		return;
	core_device_failed(w->core, w->now, 1, how);
	world_event_done(w);
}

/* Refuse all memory under way; the core must not ask for more. */
static void no_more_memory(struct sim *w)
{
	while (w->nr_creating) {
		shell_extent_cut(w);
		world_event_done(w);
	}
}

static void some_ticks(struct sim *w)
{
	u32 n;

	for (n = 0; n < 8; n++) {
		shell_tick(w, rng_range(&w->rng, 1, 300) * SIM_MS);
		world_event_done(w);
		LAW(w, !w->nr_creating, "memory is asked of a device that failed");
	}
}

/* Let clients die that were told that a sequence does not fit any more. */
static void bury_failed(struct sim *w)
{
	u32 i, n;

	for (i = 0; i < SIM_CLIENTS; i++) {
		struct sim_client *cl = &w->cl[i];
		bool failed = false;

		for (n = 0; n < SIM_SEQS; n++) {
			if (!cl->seqs[n].used || cl->state != SIM_ALIVE ||
			    cl->status[n].state != KVMM_SEQ_FAILED)
				continue;
			LAW(w, cl->status[n].reason == -EDQUOT, "client %u: sequence %u failed with %d",
			    cl->id, n, cl->status[n].reason);
			failed = true;
		}
		if (!failed)
			continue;
		cover_note("clients told that a failed device is too small");
		shell_dead(w, cl);
		world_event_done(w);
	}
}

/* device_cut() - no copies, no more memory; then the next daemon */
void device_cut(struct sim *w)
{
	w->cut = true;
	w->cut_off = true;
	fails(w, CORE_DEVICE_CUT);
	no_more_memory(w);
	tier_cut(w);
	some_ticks(w);
	tier_cut_writes(w);
	cover_note("devices that were cut");
	w->cut_off = false;
	crash_between(w);
	world_event_done(w);
	bury_failed(w);
}

static void all_told(struct sim *w)
{
	u32 i, n;

	for (i = 0; i < SIM_CLIENTS; i++) {
		const struct sim_client *cl = &w->cl[i];

		for (n = 0; n < SIM_SEQS && cl->state == SIM_ALIVE; n++) {
			const struct kvmm_seq_status *st = &cl->status[n];

			if (!cl->seqs[n].used ||
			    st->state == KVMM_SEQ_CLOSED ||
			    st->state == KVMM_SEQ_MARKED)
				continue;
			LAW(w, st->state == KVMM_SEQ_FAILED &&
			    st->reason == -ENODEV,
			    "client %u: sequence %u is %s (%d) on a lost device",
			    cl->id, n, core_seq_state_name(st->state),
			    st->reason);
		}
	}
}

/* device_lost() - no block of it may be used again: the end of the seed */
void device_lost(struct sim *w)
{
	struct core_pool_view p;
	u32 i;

	w->lost = true;
	fails(w, CORE_DEVICE_LOST);
	all_told(w);
	no_more_memory(w);
	tier_cut(w);
	some_ticks(w);
	for (i = 0; i < SIM_CLIENTS; i++) {
		struct sim_client *cl = &w->cl[i];

		if (cl->state == SIM_ALIVE || cl->state == SIM_DETACHED) {
			shell_dead(w, cl);
			world_event_done(w);
		}
		if (cl->state == SIM_DEAD) {
			shell_quiet(w, cl);
			world_event_done(w);
		}
	}
	some_ticks(w);
	/*
	 * A block that a read fills is in limbo until the read is answered.  It may be
	 * tried again, and a slow disk answers later.
	 */
	for (i = 0; w->nr_moves && i < 1000; i++) {
		tier_answer_all(w);
		shell_tick(w, 10 * SIM_MS);
		world_event_done(w);
	}
	core_get_pool(w->core, &p);
	LAW(w, p.free + p.open + p.sealed + p.cached + p.quiescing +
	    p.quarantine + p.limbo + p.committed == 0,
	    "%llu bytes of a lost device are free, %llu cached, %llu in limbo",
	    (unsigned long long)p.free, (unsigned long long)p.cached,
	    (unsigned long long)p.limbo);
	cover_note("devices that were lost");
}
