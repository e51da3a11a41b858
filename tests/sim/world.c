// SPDX-License-Identifier: Apache-2.0
/*
 * world.c - the life of a seed: one event after the other
 *
 * Each event is drawn: a client acts, memory that the core asked for is there, a
 * process dies or hangs, a device falls silent, time passes.  There are no
 * timers; an event is late because it is drawn late.  After each event all laws
 * are checked.  When the drawn number of events is over the world is brought to
 * its end (drain.c); in a few seeds the daemon just ends.
 */
#include <stdlib.h>

#include "tests/sim/sim.h"

/**
 * world_event_done() - account for an event and judge the core
 *
 * Ends the seed at the event where a replay should stop.
 */
void world_event_done(struct sim *w)
{
	names_event(w);
	laws_after_event(w);
	/* The shell polls for work left over, or another event comes first. */
	if (w->event % 4 && core_poll(w->core, w->now)) {
		cover_note("admissions that an event left to the next");
		laws_after_event(w);
	}
	/* Not in every seed: it could hide the fault that it looks for. */
	if (w->seed % 2 && w->event % 16 == 15) {
		laws_no_forgotten_wait(w);
		laws_after_event(w);
	}
	w->event++;
	if (w->event == w->stop_at)
		longjmp(w->out, 1);
}

/* ---- acts of a client ---- */

/* Map up to @most of the extents that were sent, and acknowledge them. */
void client_act_ack(struct sim *w, struct sim_client *cl, u32 most)
{
	struct kvmm_ack_arg *a = (struct kvmm_ack_arg *)w->args;
	const struct kvmm_seq_res *res = (const void *)w->results;
	u32 nr = min(min(most, cl->nr_acks), (u32)SIM_BATCH), i;
	int want[SIM_BATCH], err;

	for (i = 0; i < nr; i++) {
		u32 n = rng_below(&w->rng, cl->nr_acks);
		struct sim_ack ack = cl->acks[n];

		cl->acks[n] = cl->acks[--cl->nr_acks];
		/* The client learns in time that there is no extent to map any more. */
		want[i] = -ESTALE;
		a[i] = (struct kvmm_ack_arg){
			.extent = ack.extent, .generation = ack.generation,
			.what = KVMM_ACK_MAP,
		};
		if (cl->extents[ack.extent].state != KVMM_EXTENT_MAP)
			continue;
		cl->mapped[ack.extent] = ack.generation;
		want[i] = 0;
	}
	LOG(w, "client %u: ACK %u, first extent %u", cl->id, nr, a[0].extent);
	err = shell_submit(w, cl, KVMM_OP_EXTENT_ACK, nr, 0, nr * sizeof(*a));
	LAW(w, !err, "client %u: EXTENT_ACK: %d", cl->id, err);
	for (i = 0; i < nr; i++) {
		cover_entry(KVMM_OP_EXTENT_ACK, res[i].status);
		LAW(w, res[i].status == want[i],
		    "client %u: EXTENT_ACK: entry %u: %d", cl->id, i,
		    res[i].status);
	}
}

void client_act_detach(struct sim *w, struct sim_client *cl)
{
	u32 i;
	int err;

	LOG(w, "client %u: DETACH", cl->id);
	err = shell_submit(w, cl, KVMM_OP_DETACH, 0, 0, 0);
	LAW(w, !err, "client %u: DETACH: %d", cl->id, err);
	LAW(w, cl->ctl.state == KVMM_CLIENT_DETACHED,
	    "client %u: DETACH, and its state is %u", cl->id, cl->ctl.state);
	cl->state = SIM_DETACHED;
	cl->nr_seqs = 0;
	lease_forget(w, cl);
	for (i = 0; i < SIM_SEQS; i++)
		cl->seqs[i].used = false;
}

static bool client_try(struct sim *w, struct sim_client *cl)
{
	u32 r = rng_below(&w->rng, 1000);

	if (rng_chance(&w->rng, w->plan.advise))
		return seq_act_advise(w, cl, rng_chance(&w->rng, 600));
	if (rng_chance(&w->rng, 15))
		return lookup_act(w, cl);
	if (w->plan.lease && rng_chance(&w->rng, w->plan.lease))
		return lease_act(w, cl);
	if (r < 120) {
		if (cl->nr_seqs * 3 > cl->info.max_seqs &&
		    rng_chance(&w->rng, 900))
			return false;
		seq_act_open(w, cl);
		return true;
	}
	if (r < 270)
		return seq_act_match(w, cl, false);
	if (r < 470)
		return step_act_begin(w, cl, rng_chance(&w->rng, 500));
	if (r < 670)
		return step_act_run(w, cl);
	if (r < 830)
		return step_act_end(w, cl);
	if (r < 870)
		return seq_act_close(w, cl, rng_chance(&w->rng, 700));
	if (r < 900 && w->plan.fork)
		return share_act(w, cl);
	if (r < 985 && rng_chance(&w->rng, w->plan.fork))
		return seq_act_fork(w, cl);
	if (r < 985)
		return seq_act_close(w, cl, true);
	if (r < 993)
		return seq_act_setprio(w, cl);
	if (r >= 997 && !cl->nr_steps && rng_chance(&w->rng, 300)) {
		client_act_detach(w, cl);
		return true;
	}
	return shell_submit(w, cl, KVMM_OP_NOP, 0, 0, 0) == 0;
}

/* A rank sends no other requests; when its leader has gone it goes, too. */
static void rank_act(struct sim *w, struct sim_client *cl)
{
	const struct sim_client *leader = shell_member(w, cl, 0);
	int err;

	if (!leader || leader->state == SIM_DETACHED) {
		client_act_detach(w, cl);
		return;
	}
	memset(w->args, 0, sizeof(struct kvmm_open_arg));
	err = rng_chance(&w->rng, 500) ? shell_submit(w, cl, KVMM_OP_NOP, 0, 0, 0) :
	      shell_submit(w, cl, KVMM_OP_SEQ_OPEN, 1, 0, sizeof(struct kvmm_open_arg));
	LAW(w, !err || err == -EPERM, "client %u, a rank, asks: %d", cl->id, err);
	LAW(w, !cl->nr_seqs, "client %u, a rank, has sequences", cl->id);
}

static void client_act(struct sim *w, struct sim_client *cl)
{
	u32 i;

	if (cl->nr_acks && !cl->mute &&
	    rng_chance(&w->rng, cl->lazy ? 30 : 500)) {
		client_act_ack(w, cl, rng_range(&w->rng, 1, SIM_BATCH));
		return;
	}
	if (rng_chance(&w->rng, cl->lazy || cl->mute ? 30 : 500) &&
	    client_act_unmap(w, cl))
		return;
	if (cl->shard) {
		rank_act(w, cl);
		return;
	}
	if (rng_chance(&w->rng, w->plan.bad)) {
		bad_act(w, cl);
		return;
	}
	for (i = 0; i < 6; i++)
		if (client_try(w, cl))
			break;
	lookup_area(w, cl);
}

/* ---- faults and deaths of clients ---- */

static struct sim_client *client_random(struct sim *w, u32 states, bool awake)
{
	u32 i, at = rng_below(&w->rng, SIM_CLIENTS);

	for (i = 0; i < SIM_CLIENTS; i++) {
		struct sim_client *cl = &w->cl[(at + i) % SIM_CLIENTS];

		if ((states & BIT(cl->state)) &&
		    !(awake && (cl->hung || cl->away || cl->broken || cl->unsure)))
			return cl;
	}
	return NULL;
}

static u32 clients_in(const struct sim *w, u32 states)
{
	u32 i, nr = 0;

	for (i = 0; i < SIM_CLIENTS; i++)
		nr += !!(states & BIT(w->cl[i].state));
	return nr;
}

static void world_birth(struct sim *w)
{
	u32 dom = rng_below(&w->rng, w->plan.nr_domains);

	if (clients_in(w, BIT(SIM_ALIVE)) >= w->plan.max_live)
		return;
	(void)!shell_attach(w, dom);
}

/* The device of a dead rank: late work of steps of a leader that has ended. */
static void rank_writes(struct sim *w, struct sim_client *cl)
{
	u32 i;

	for (i = 0; i < SIM_CLIENTS && cl->shard; i++)
		if (w->cl[i].state == SIM_NONE && w->cl[i].group == cl->group &&
		    w->cl[i].nr_steps)
			step_rank_writes(w, &w->cl[i], cl->stopped_at);
}

/* The next stage of the end of a client. */
static void world_gone(struct sim *w, struct sim_client *cl)
{
	struct rng *r = &w->rng;

	if (cl->state == SIM_ALIVE) {
		if (rng_chance(r, 800))
			shell_dead(w, cl);
		else
			shell_quiet(w, cl);
		return;
	}
	if (cl->state == SIM_DETACHED) {
		if (rng_chance(r, w->plan.ghost)) {
			cover_note("detached clients that live on");
			shell_quiet(w, cl);
		} else {
			shell_dead(w, cl);
		}
		return;
	}
	/* A leader ends early, so that its rank is behind. */
	if (cl->nr_steps && rng_chance(r, cl->group ? 200 : 700)) {
		step_dead_writes(w, cl);
		return;
	}
	rank_writes(w, cl);
	shell_quiet(w, cl);
}

/* Has the leader of the client's group a step open? */
static bool group_steps(struct sim *w, const struct sim_client *cl)
{
	const struct sim_client *leader = shell_member(w, cl, 0);

	return leader && leader->nr_steps;
}

static void world_fault(struct sim *w)
{
	struct sim_client *cl = client_random(w, BIT(SIM_ALIVE), false);

	if (!cl)
		return;
	/* Groups with a step open are few: their clients die more often. */
	if (rng_chance(&w->rng, group_steps(w, cl) ? 200 : w->plan.death)) {
		cover_note("deaths");
		world_gone(w, cl);
		return;
	}
	if (rng_chance(&w->rng, w->plan.hang)) {
		if (cl->shard)
			return;
		if (!cl->hung && cl->nr_steps)
			cover_note("clients that hang inside a step");
		cl->hung = true;
	}
	if (cl->hung && rng_chance(&w->rng, 100))
		cl->hung = false;
}

static void world_others(struct sim *w)
{
	struct sim_client *cl;
	u32 i;

	if (rng_chance(&w->rng, 500) && ghost_dies(w))
		return;
	for (i = 0; i < SIM_CLIENTS; i++)
		if (w->cl[i].killed && w->cl[i].state != SIM_NONE &&
		    rng_chance(&w->rng, 200)) {
			world_gone(w, &w->cl[i]);
			return;
		}
	cl = client_random(w, BIT(SIM_DEAD) | BIT(SIM_DETACHED), false);
	if (cl && rng_chance(&w->rng, 400))
		world_gone(w, cl);
}

static void world_time(struct sim *w)
{
	struct rng *r = &w->rng;

	if (rng_chance(r, 60))
		shell_tick(w, rng_range(r, 50, 1500) * SIM_MS);
	else
		shell_tick(w, rng_range(r, 1, 20) * SIM_MS);
}

static void world_event(struct sim *w)
{
	u32 r = rng_below(&w->rng, 100);
	struct sim_client *cl;

	w->now += rng_below(&w->rng, w->plan.quantum);
	if (w->plan.crash && crash_back(w))
		return;
	if (w->nr_moves && rng_chance(&w->rng, w->plan.answer) &&
	    tier_act_answer(w))
		return;
	if (w->plan.nr_files && rng_chance(&w->rng, w->plan.areas)) {
		area_act(w);
		return;
	}
	if (rng_chance(&w->rng, w->plan.operator)) {
		operator_act(w);
		return;
	}
	if (r < 8) {
		world_time(w);
	} else if (r < 20 && w->nr_creating) {
		shell_extent_done(w, true);
	} else if (r < 23) {
		world_birth(w);
	} else if (r < 30) {
		world_fault(w);
	} else if (r < 34) {
		world_others(w);
	} else {
		cl = client_random(w, BIT(SIM_ALIVE), true);
		if (cl)
			client_act(w, cl);
		else
			world_birth(w);
	}
}

/* ---- a seed ---- */

static void world_alloc(struct sim *w)
{
	size_t bytes = core_arena_size(&w->cfg);

	LAW(w, bytes, "the core refuses the configuration");
	if (bytes > w->arena_bytes) {
		free(w->arena);
		w->arena = aligned_alloc(64, ALIGN_UP(bytes, 64ul));
		if (!w->arena)
			abort();
	}
	memset(w->arena, 0, bytes);
	w->arena_bytes = max(bytes, w->arena_bytes);
	if (w->cfg.pool_bytes / w->cfg.min_token_bytes > w->nr_cells) {
		w->nr_cells = w->cfg.pool_bytes / w->cfg.min_token_bytes;
		free(w->cell);
		w->cell = calloc(w->nr_cells, sizeof(*w->cell));
		if (!w->cell)
			abort();
	}
	tier_alloc(w);
}

/**
 * world_run() - live through a seed
 *
 * Context: the world is cleared, seed, stop_at and logging are set.  Leaves by
 * longjmp(w->out) where a law is broken or stop_at is reached.
 */
void world_run(struct sim *w)
{
	int err;

	rng_seed(&w->rng, w->seed);
	w->actor_tenant = CORE_NONE;
	w->actor_domain = CORE_NONE;
	w->now = 1000 * SIM_MS;
	plan_draw(w);
	crash_draw(w);
	world_alloc(w);
	err = core_init(w->core, w->arena, w->arena_bytes, &w->cfg, &sim_ops,
			w);
	LAW(w, !err, "core_init: %d", err);
	record_start(w);
	names_start(w);
	w->nr_blocks_max = (u32)((w->cfg.pool_bytes + w->cfg.host_bytes +
				  CORE_MAX_AREAS * w->cfg.area_bytes) / 1024);
	LOG(w, "pool of %u extents of %llu KiB, %u domains, %u clients at most, steps %u deep",
	    w->nr_extents, (unsigned long long)w->cfg.extent_size / 1024,
	    w->plan.nr_domains, w->plan.max_live, w->cfg.max_steps);
	areas_start(w);
	pressure_start(w);

	while (w->event < w->plan.nr_events) {
		crash_event(w, world_event);
		world_event_done(w);
	}
	record_check(w);
	names_check(w);
	if (w->plan.crash)
		crash_all_back(w);
	if (w->seed % 32 == 21) {
		device_lost(w);
		return;
	}
	if (w->seed % 32 == 13)
		device_cut(w);
	if (w->seed % 32 == 5) {
		operator_shutdown(w);
		return;
	}
	world_drain(w);
}
