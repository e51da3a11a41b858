// SPDX-License-Identifier: Apache-2.0
/*
 * drain.c - bringing a seed to its end: laws 6 and 7
 *
 * No sequence is opened any more.  Every client that can act does all it can in
 * turn, memory comes when the core asks for it, time goes on.  So every sequence
 * must become READY and reach its length; the number of rounds from one to the
 * next is bounded.  Clients that hang or never acknowledge stay so until all
 * others are through: they may not hold up other clients for ever.  Then they
 * wake, and finish too.
 *
 * Tenants wait for each other as domains do: memory changes over between them.
 *
 * In the end all clients go.  All memory must be free or cached, and a newcomer
 * that wants the whole pool gets it.
 */
#include "tests/sim/sim.h"

#define ROUND_NS	(5 * SIM_MS)
#define PATIENCE	1500	/* rounds without a sequence that ends */

static bool acts(const struct sim_client *cl)
{
	return cl->state == SIM_ALIVE && !cl->hung && !cl->broken && !cl->unsure;
}

/*
 * Has the client no rank, and gets none?  Its new rank died, or the daemon died when the
 * rank attached.
 */
static bool is_left(struct sim *w, const struct sim_client *cl)
{
	return cl->unsure || (cl->group && !cl->shard && !shell_member(w, cl, 1));
}

/* One client does all that it can. */
static void drain_client(struct sim *w, struct sim_client *cl)
{
	while (cl->nr_acks && !cl->mute) {
		client_act_ack(w, cl, SIM_BATCH);
		world_event_done(w);
	}
	while (!cl->mute && client_act_unmap(w, cl))
		world_event_done(w);
	if (cl->shard) {
		if (!shell_member(w, cl, 0)) {
			client_act_detach(w, cl);
			world_event_done(w);
		}
		return;
	}
	while (step_act_run(w, cl))
		;
	while (step_act_end(w, cl))
		world_event_done(w);
	if (seq_act_close(w, cl, true))
		world_event_done(w);
	while (seq_act_advise(w, cl, true))
		world_event_done(w);
	if (seq_act_match(w, cl, true))
		world_event_done(w);
	if (step_act_begin(w, cl, true))
		world_event_done(w);
	if (cl->nr_seqs || cl->nr_steps)
		return;
	if (cl->nr_leases && lease_idle(w, cl)) {
		world_event_done(w);
		return;
	}
	client_act_detach(w, cl);
	world_event_done(w);
}

static void drain_round(struct sim *w)
{
	u32 i;

	for (i = 0; i < SIM_CLIENTS; i++) {
		struct sim_client *cl = &w->cl[i];

		if (cl->state == SIM_ALIVE && (cl->killed || is_left(w, cl))) {
			shell_dead(w, cl);
			world_event_done(w);
		} else if (acts(cl)) {
			drain_client(w, cl);
		} else if (cl->state == SIM_DETACHED) {
			shell_dead(w, cl);
			world_event_done(w);
		} else if (cl->state == SIM_DEAD) {
			step_dead_writes(w, cl);
			if (cl->killed || rng_chance(&w->rng, 100)) {
				shell_quiet(w, cl);
				world_event_done(w);
			}
		}
	}
	while (ghost_dies(w))
		world_event_done(w);
	while (w->nr_creating) {
		shell_extent_done(w, false);
		world_event_done(w);
	}
	for (i = w->nr_moves; i && w->nr_moves; i--)
		if (tier_act_answer(w))
			world_event_done(w);
	shell_tick(w, ROUND_NS);
	world_event_done(w);
}

/* Sequences that clients which can act have not finished. */
static u32 unfinished(const struct sim *w, bool all)
{
	u32 i, nr = 0;

	for (i = 0; i < SIM_CLIENTS; i++)
		if (w->cl[i].state == SIM_ALIVE &&
		    (all || (acts(&w->cl[i]) && !w->cl[i].mute)))
			nr += w->cl[i].nr_seqs;
	return nr;
}

static bool busy(const struct sim *w, bool all)
{
	u32 i;

	if (unfinished(w, all))
		return true;
	for (i = 0; i < SIM_CLIENTS && all; i++)
		if (w->cl[i].state != SIM_NONE)
			return true;
	return false;
}

/* Clients that hang or are mute act again. */
static void wake_up(struct sim *w)
{
	u32 i;

	for (i = 0; i < SIM_CLIENTS; i++) {
		w->cl[i].hung = false;
		w->cl[i].mute = false;
	}
}

static void stuck_seq(struct sim *w, const struct sim_client *cl,
		      const struct sim_seq *q)
{
	const struct kvmm_seq_status *st = &cl->status[q->slot];

	sim_log(w, "client %u%s%s: sequence %llx (%u+%u tokens, %u valid) is %s",
		cl->id, cl->hung ? " (hangs)" : "", cl->mute ? " (mute)" : "",
		(unsigned long long)q->handle, q->prompt_len, q->max_tokens,
		q->valid, core_seq_state_name(st->state));
}

/* Log which domains hold the pool. */
static void stuck_pool(struct sim *w)
{
	struct core_extent_view x;
	struct core_domain_view d;
	u32 i;

	for (i = 0; !core_get_extent(w->core, i, &x); i++)
		sim_log(w, "extent %u: state %u, tenant %d, domain %d, %u of %u blocks free, mapped by %llx",
			i, x.state, (int)x.tenant, (int)x.domain, x.span_free,
			x.span_blocks, (unsigned long long)x.mapped);
	for (i = 0; i < w->cfg.max_domains; i++)
		if (!core_get_domain(w->core, i, &d))
			sim_log(w, "domain %u of tenant %u: %llu used, %llu cached, %llu promised, %llu quarantined blocks, %u run, %u wait, %u clients",
				i, d.tenant, (unsigned long long)
				(d.current_bytes / d.block_bytes),
				(unsigned long long)d.blocks[3],
				(unsigned long long)d.reserved,
				(unsigned long long)d.blocks[5],
				d.nr_running, d.nr_waiting, d.nr_clients);
}

/* A sequence waits for ever: log all sequences and the pool. */
static void stuck(struct sim *w)
{
	const struct sim_client *who = NULL;
	u32 i, n;

	for (i = 0; i < SIM_CLIENTS; i++) {
		const struct sim_client *cl = &w->cl[i];

		if (cl->state != SIM_ALIVE)
			continue;
		if (cl->nr_seqs && acts(cl) && (!cl->mute || !who))
			who = cl;
		for (n = 0; n < SIM_SEQS; n++)
			if (cl->seqs[n].used)
				stuck_seq(w, cl, &cl->seqs[n]);
	}
	stuck_pool(w);
	if (who)
		sim_fail(w, "law 6: client %u does not get on with %u sequences",
			 who->id, who->nr_seqs);
	sim_fail(w, "law 6: a client does not come to its end");
}

/*
 * Rounds in which no sequence has to finish.  A sequence of a client that hangs
 * may have memory for eight times starve_ns before the next one gets it.
 */
static u32 patience_of(const struct sim *w)
{
	u32 i, nr = 0;

	for (i = 0; i < SIM_CLIENTS; i++)
		if (w->cl[i].state == SIM_ALIVE && w->cl[i].hung)
			nr += w->cl[i].nr_seqs;
	return PATIENCE + (u32)(nr * 8 * w->cfg.starve_ns / ROUND_NS);
}

static void drain_until(struct sim *w, bool all)
{
	u32 finished = w->nr_finished, patience = patience_of(w);

	while (busy(w, all)) {
		drain_round(w);
		if (w->nr_finished != finished) {
			finished = w->nr_finished;
			patience = patience_of(w);
		}
		if (!patience--)
			stuck(w);
	}
}

/* Attach to a domain with the smallest block: it can use all of @pool, or of both. */
static struct sim_client *newcomer(struct sim *w, u32 pool, u32 shards)
{
	struct sim_domain *d = &w->dom[0];
	struct kvmm_attach_req was = d->req;
	int id;

	d->req.domain[0] = (char)('Z' - pool - 2 * (shards - 1));
	d->req.pool = pool + 1;
	d->req.nr_shards = shards;
	d->req.limits[0].max = KVMM_LIMIT_MAX;
	d->req.block_tokens = 16;
	d->req.nr_groups = 1;
	d->req.group[0] = (struct kvmm_group){ .layers = 1, .kv_heads = 1,
					       .k_bytes = 32, .v_bytes = 32 };
	id = shell_attach_alone(w, 0);
	/* A tenant keeps its record while it has a lingering client. */
	if (id == -ENOSPC && ghosts_end(w))
		id = shell_attach_alone(w, 0);
	LAW(w, id >= 0, "law 7: a newcomer cannot attach: %d", id);
	d->req = was;
	world_event_done(w);
	w->cl[id].mute = false;
	return &w->cl[id];
}

/* The newcomer detaches and gives its memory back. */
static void newcomer_goes(struct sim *w, struct sim_client *cl)
{
	client_act_detach(w, cl);
	shell_dead(w, cl);
	shell_quiet(w, cl);
	laws_after_event(w);
}

/* A newcomer that wants the whole pool, or both, gets it, and gives it back. */
static void take_all(struct sim *w, u32 pool, u32 shards)
{
	struct kvmm_open_arg *a = (struct kvmm_open_arg *)w->args;
	const struct kvmm_open_res *res = (const void *)w->results;
	struct sim_client *cl = newcomer(w, pool, shards);
	u32 extents = w->zone_extents[pool];
	struct core_pool_view p;
	u64 tokens;
	int i;

	LAW(w, !core_tune(w->core, w->now, CORE_TUNE_overcommit,
			  CORE_OVERCOMMIT_GUESS), "a tunable is refused");
	if (shards > 1)
		extents = min(extents, w->zone_extents[1]);
	tokens = (u64)(extents / cl->info.span_extents) *
		 cl->info.span_blocks * 16;
	if (tokens > (u64)cl->info.nr_tables * KVMM_TABLE_ENTRIES * 16 ||
	    tokens > w->cfg.nr_idpages / w->cfg.max_clients * 126u) {
		newcomer_goes(w, cl);
		return;
	}
	*a = (struct kvmm_open_arg){ .prompt_len = (u32)tokens };
	LAW(w, !shell_submit(w, cl, KVMM_OP_SEQ_OPEN, 1, 0, sizeof(*a)) &&
	    !res->status, "law 7: a newcomer cannot open: %d", res->status);
	*(struct kvmm_match_arg *)w->args = (struct kvmm_match_arg){
		.seq = res->seq, .nr_ids = (u32)tokens,
		.flags = KVMM_MATCH_LAST,
	};
	LAW(w, (u8 *)w->args + sizeof(struct kvmm_match_arg) + 4 * tokens <=
	    (u8 *)w->args + sizeof(w->args), "a pool of %llu tokens",
	    (unsigned long long)tokens);
	LAW(w, !shell_submit(w, cl, KVMM_OP_SEQ_MATCH, 1, 0,
			     (u32)(sizeof(struct kvmm_match_arg) +
				   4 * tokens)) &&
	    !*(int *)w->results, "law 7: a newcomer cannot match");
	for (i = 0; i < 200 &&
	     cl->status[KVMM_SEQ_INDEX(res->seq)].state != KVMM_SEQ_READY; i++) {
		while (ghost_dies(w))
			;
		while (w->nr_creating)
			shell_extent_done(w, false);
		while (cl->nr_acks)
			client_act_ack(w, cl, SIM_BATCH);
		tier_answer_all(w);
		shell_tick(w, 10 * SIM_MS);
	}
	LAW(w, i < 200, "law 7: a newcomer does not get the whole pool");
	laws_after_event(w);
	newcomer_goes(w, cl);
	LAW(w, cl->info.pool == pool && cl->info.shards == shards,
	    "law 7: a newcomer is not in pool %u", pool);
	/* Of two pools only the smaller one is full. */
	if (shards > 1 && w->zone_extents[1] < w->zone_extents[0])
		pool = 1;
	LAW(w, !core_get_zone(w->core, pool, &p), "law 7: pool %u is gone", pool);
	LAW(w, p.free_extents + p.free + p.tails == p.total,
	    "law 7: %llu of %llu bytes are free in the end",
	    (unsigned long long)(p.free_extents + p.free + p.tails),
	    (unsigned long long)p.total);
	cover_note(shards > 1 ? "newcomers that got the whole of both pools" :
			       "newcomers that got the whole pool");
}

static bool revoking(const struct sim *w)
{
	struct core_pool_view p;

	core_get_pool(w->core, &p);
	return p.revoking;
}

/*
 * Wait until requests to lower tiers are answered, and until revocations that
 * only lingering clients hold up are over.
 */
static void settle(struct sim *w)
{
	u32 i;

	/* Memory that could not be made is asked for again after a second. */
	for (i = 0; (w->nr_moves || revoking(w) || w->nr_creating ||
		     resize_goes_on(w) ||
		     (w->plan.create_fail && i < 250)) && i < PATIENCE; i++) {
		tier_answer_all(w);
		while (ghost_dies(w))
			;
		while (w->nr_creating)
			shell_extent_done(w, false);
		shell_tick(w, ROUND_NS);
		world_event_done(w);
	}
	LAW(w, !w->nr_moves, "law 6: %u requests to lower tiers do not end",
	    w->nr_moves);
	LAW(w, !revoking(w), "law 6: a revocation does not end");
}

/**
 * world_drain() - bring the world to its end
 *
 * Every sequence finishes, every client goes, all memory is free.
 */
void world_drain(struct sim *w)
{
	w->draining = true;
	if (rng_chance(&w->rng, 500))
		resize_restore(w);
	LOG(w, "the end begins");
	limit_lift_all(w);
	laws_after_event(w);
	drain_until(w, false);
	wake_up(w);
	drain_until(w, true);
	settle(w);
	laws_final(w);
	laws_pressure(w);
	resize_to_least(w);
	settle(w);
	resize_check_done(w);
	resize_restore(w);
	take_all(w, 0, 1);
	if (w->zone_extents[1]) {
		take_all(w, 1, 1);
		take_all(w, 0, 2);
	}
	settle(w);
	laws_tiers_final(w);
}
