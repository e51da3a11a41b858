// SPDX-License-Identifier: Apache-2.0
/*
 * shell.c - the core's other side: its commands, and the events it is given
 *
 * The daemon's work on memory, sockets and signals is noted down here, and takes
 * effect when a later event says so.  The commands themselves are judged: memory
 * is not made twice, is not released while a client may have it mapped, is not
 * shown to two tenants, and no client is killed without reason.
 */
#include "tests/sim/sim.h"

static void op_extent_create(void *arg, u32 extent, u32 generation)
{
	struct sim *w = arg;
	struct sim_extent *x = &w->ext[extent];

	LOG(w, "  create extent %u generation %u", extent, generation);
	LAW(w, extent < w->nr_extents, "extent %u does not exist", extent);
	LAW(w, extent < w->zone_extents[0] ? extent < w->zone_online[0] :
	    extent - w->zone_extents[0] < w->zone_online[1], "extent %u is to leave, and is made",
	    extent);
	LAW(w, !x->exists && !x->creating, "extent %u is made twice", extent);
	LAW(w, generation > x->generation,
	    "extent %u: generation %u does not rise", extent, generation);
	x->creating = true;
	x->generation = generation;
	w->nr_creating++;
	sim_trace(w, mix2(1, extent));
}

static void op_extent_release(void *arg, u32 extent)
{
	struct sim *w = arg;
	struct sim_extent *x = &w->ext[extent];

	LOG(w, "  release extent %u", extent);
	LAW(w, x->exists, "extent %u has no memory to release", extent);
	LAW(w, !x->holders, "law 2: extent %u is released while clients %llx hold it",
	    extent, (unsigned long long)x->holders);
	LAW(w, !x->ghosts, "law 2: extent %u is released while a detached client may have it mapped",
	    extent);
	LAW(w, !tier_names_extent(w, extent), "extent %u is released under a copy",
	    extent);
	x->exists = false;
	mem_garbage(w, extent);
	sim_trace(w, mix2(2, extent));
}

static void op_extent_send(void *arg, u32 client, u32 extent, u32 generation)
{
	struct sim *w = arg;
	struct sim_extent *x = &w->ext[extent];
	struct sim_client *cl = &w->cl[client];
	u32 tenant = w->dom[cl->dom].tenant;

	LOG(w, "  send extent %u to client %u", extent, client);
	LAW(w, x->exists && generation == x->generation,
	    "extent %u generation %u is sent and does not exist", extent,
	    generation);
	LAW(w, !w->zone_extents[1] || cl->info.shards > 1 ||
	    (extent >= w->zone_extents[0]) == cl->info.pool, "extent %u of another device pool is sent to client %u",
	    extent, client);
	LAW(w, cl->state == SIM_ALIVE, "extent %u is sent to client %u, which is gone",
	    extent, client);
	LAW(w, !(x->holders & BIT_ULL(client)) || cl->away, "extent %u is sent to client %u twice",
	    extent, client);
	LAW(w, x->tenant == CORE_NONE || x->tenant == tenant,
	    "law 2: extent %u of tenant %u is sent to client %u of tenant %u",
	    extent, x->tenant, client, tenant);
	LAW(w, !cl->group || (extent >= w->zone_extents[0]) == cl->shard,
	    "extent %u of another shard is sent to client %u", extent, client);
	revoke_check_send(w, cl, extent, generation);
	x->tenant = tenant;
	x->holders |= BIT_ULL(client);
	cl->acks[cl->nr_acks++] = (struct sim_ack){ extent, generation };
	sim_trace(w, mix2(3, ((u64)client << 32) | extent));
}

static void op_wake(void *arg, u32 client)
{
	struct sim *w = arg;

	laws_event_posted(w, &w->cl[client]);
	sim_trace(w, mix2(4, client));
}

static void op_kill(void *arg, u32 client, int reason)
{
	struct sim *w = arg;
	struct sim_client *cl = &w->cl[client];

	LOG(w, "  kill client %u: %d", client, reason);
	LAW(w, !cl->killed, "client %u is killed twice", client);
	laws_check_kill(w, cl, reason);
	cl->killed = true;
	sim_trace(w, mix2(5, client));
}

static void op_trigger(void *arg, u32 trigger)
{
	struct sim *w = arg;

	LOG(w, "  trigger %u", trigger);
	cover_note("triggers that fired");
	sim_trace(w, mix2(8, trigger));
}

const struct core_ops sim_ops = {
	.extent_create	= op_extent_create,
	.extent_release	= op_extent_release,
	.extent_send	= op_extent_send,
	.wake		= op_wake,
	.kill		= op_kill,
	.kill_ghosts	= op_kill_ghosts,
	.trigger	= op_trigger,
	.copy		= op_copy,
	.io		= op_io,
	.crash		= op_crash,
};

/* Memory for one of the extents under way is there, or could not be made. */
void shell_extent_done(struct sim *w, bool may_fail)
{
	u32 n = rng_below(&w->rng, w->nr_creating), e;
	struct sim_extent *x;
	int status = 0;

	for (e = 0; ; e++)
		if (w->ext[e].creating && !n--)
			break;
	x = &w->ext[e];
	if (may_fail && rng_chance(&w->rng, w->plan.create_fail))
		status = -ENOMEM;
	LOG(w, "extent %u made: %d", e, status);
	x->creating = false;
	w->nr_creating--;
	if (!status) {
		x->exists = true;
		x->tenant = CORE_NONE;
		mem_garbage(w, e);
	}
	core_extent_created(w->core, w->now, e, status);
}

/* A device that failed gives no memory: refuse one extent under way. */
void shell_extent_cut(struct sim *w)
{
	u32 e;

	for (e = 0; !w->ext[e].creating; e++)
		;
	w->ext[e].creating = false;
	w->nr_creating--;
	core_extent_created(w->core, w->now, e, -EIO);
}

/* ---- clients come and go ---- */

/* client_segments() - bind the client to its segments, which are zeroed */
void client_segments(struct sim *w, struct sim_client *cl)
{
	struct core_bind bind = {
		.ctl		= &cl->ctl,
		.seqs		= cl->status,
		.extents	= cl->extents,
		.tables		= cl->tables,
		.events		= cl->events,
		.nr_events	= SIM_EVENTS,
	};

	core_client_bind(w->core, cl->id, &bind);
}

/* shell_member() - the client of a group that maps a shard, dead or alive; or NULL */
struct sim_client *shell_member(struct sim *w, const struct sim_client *cl, u32 shard)
{
	u32 i;

	for (i = 0; i < SIM_CLIENTS; i++)
		if (w->cl[i].state != SIM_NONE && cl->group &&
		    w->cl[i].group == cl->group && w->cl[i].shard == shard)
			return &w->cl[i];
	return NULL;
}

static bool has_mapped(const struct sim *w, const struct sim_client *cl)
{
	u32 e;

	for (e = 0; e < w->nr_extents; e++)
		if (cl->mapped[e])
			return true;
	return false;
}

/* A client died: the rest of its group cannot go on, unless it was a new rank. */
static void group_breaks(struct sim *w, const struct sim_client *cl)
{
	const bool sure = !cl->shard || has_mapped(w, cl);
	u32 i;

	for (i = 0; i < SIM_CLIENTS && cl->group; i++)
		if (&w->cl[i] != cl && w->cl[i].state == SIM_ALIVE &&
		    w->cl[i].group == cl->group) {
			w->cl[i].broken |= sure;
			w->cl[i].unsure |= !sure;
			cover_note(sure ? "groups that lost a client" :
				   "groups that lost a client without memory");
		}
}

/* Attach a client for all shards, or for @shard of @leader, both from 1 on. */
static int attach_one(struct sim *w, u32 dom, u32 shard, u32 leader)
{
	struct sim_domain *d = &w->dom[dom];
	struct kvmm_attach_req req = d->req;
	struct core_attach_info info;
	struct core_quota quota;
	struct sim_client *cl;
	u8 secret[CORE_SECRET_LEN];
	u32 i;
	int err;

	for (i = 0; i < sizeof(secret); i++)
		secret[i] = (u8)mix2(w->seed, (d->tenant << 8) + i);
	req.max_steps = rng_range(&w->rng, 1, KVMM_MAX_STEPS);
	req.max_seqs = rng_chance(&w->rng, 300) ?
		       rng_range(&w->rng, 1, SIM_SEQS) : 0;
	req.shard = shard;
	req.leader = leader;
	plan_quota(w, d->tenant, &quota);
	err = core_client_attach_within(w->core, w->now, 100 + d->tenant,
					secret, &quota, &req, &info);
	LOG(w, "attach to domain %u (tenant %u): %d", dom, d->tenant, err);
	sim_trace(w, mix2(6, (u64)(s64)err));
	cover_entry(KVMM_NR_OPS, err);
	if (err) {
		LAW(w, info.text, "attach refused without a word");
		return err;
	}
	LAW(w, info.client < w->cfg.max_clients &&
	    w->cl[info.client].state == SIM_NONE,
	    "client %u is given out twice", info.client);
	cl = &w->cl[info.client];
	memset(cl, 0, sizeof(*cl));
	cl->state = SIM_ALIVE;
	cl->id = info.client;
	cl->dom = dom;
	cl->info = info;
	cl->depth = info.max_steps;
	cl->mute = rng_chance(&w->rng, 60);
	cl->lazy = rng_chance(&w->rng, 200);
	cl->stubborn = rng_chance(&w->rng, 100);
	cl->liar = rng_chance(&w->rng, 100);
	if (shard) {
		cl->group = leader ? w->cl[leader - 1].group : ++w->nr_groups;
		cl->shard = shard - 1;
	}
	/* A leader waits for its rank. */
	if (leader) {
		cl->mute = false;
		cl->lazy = false;
	}
	client_segments(w, cl);
	return (int)cl->id;
}

/* Return: the client's id, or the core's error. */
int shell_attach_alone(struct sim *w, u32 dom)
{
	return attach_one(w, dom, 0, 0);
}

/* A leader and its rank, or neither. */
static int attach_group(struct sim *w, u32 dom)
{
	int id = attach_one(w, dom, 1, 0), rank;

	if (id < 0)
		return id;
	world_event_done(w);
	rank = attach_one(w, dom, 2, (u32)id + 1);
	if (rank >= 0) {
		cover_note("groups of a leader and a rank");
		return id;
	}
	LAW(w, rank == -EUSERS || rank == -ESRCH, "a rank cannot attach: %d", rank);
	shell_dead(w, &w->cl[id]);
	return rank;
}

/* The same; the client of a domain with two shards may be a group of two. */
int shell_attach(struct sim *w, u32 dom)
{
	if (w->dom[dom].req.nr_shards > 1 && rng_chance(&w->rng, 500))
		return attach_group(w, dom);
	return shell_attach_alone(w, dom);
}

/* The client is dead for the core; its device may go on. */
void shell_dead(struct sim *w, struct sim_client *cl)
{
	u32 i;

	LOG(w, "client %u is dead, %u steps open", cl->id, cl->nr_steps);
	if (cl->state == SIM_ALIVE)
		group_breaks(w, cl);
	cl->dead_at = w->now;
	for (i = 0; i < SIM_SEQS; i++)
		if (cl->seqs[i].used && !cl->seqs[i].nr_steps)
			cl->seqs[i].used = false;
	cl->state = SIM_DEAD;
	lease_forget(w, cl);
	core_client_dead(w->core, w->now, cl->id);
}

/* The client's process and device can do nothing more. */
void shell_quiet(struct sim *w, struct sim_client *cl)
{
	bool ghost = cl->state == SIM_DETACHED;
	u32 e;

	LOG(w, "client %u is quiet", cl->id);
	if (cl->state == SIM_ALIVE)
		group_breaks(w, cl);
	for (e = 0; e < w->nr_extents; e++) {
		if (!(w->ext[e].holders & BIT_ULL(cl->id)))
			continue;
		w->ext[e].holders &= ~BIT_ULL(cl->id);
		if (ghost)
			w->ext[e].ghosts = true;
	}
	if (ghost) {
		w->haunted[w->dom[cl->dom].tenant]++;
		w->haunts[w->dom[cl->dom].tenant] = cl->info.tenant;
	}
	cl->state = SIM_NONE;
	lease_forget(w, cl);
	core_client_quiet(w->core, w->now, cl->id);
}

void shell_tick(struct sim *w, u64 ns)
{
	w->now += ns;
	LOG(w, "tick, now %llu us", (unsigned long long)w->now / 1000);
	core_tick(w->core, w->now);
	lease_tick(w);
}

/* ---- requests ---- */

static void expel(struct sim *w, struct sim_client *cl)
{
	u32 i;

	group_breaks(w, cl);
	cl->expelled = true;
	cl->dead_at = w->now;
	for (i = 0; i < SIM_SEQS; i++)
		if (cl->seqs[i].used && !cl->seqs[i].nr_steps)
			cl->seqs[i].used = false;
	cl->state = SIM_DEAD;
	lease_forget(w, cl);
	core_client_eproto(w->core, w->now, cl->id);
	LAW(w, cl->ctl.state == KVMM_CLIENT_EXPELLED &&
	    cl->ctl.reason == -EPROTO, "client %u was expelled and not told",
	    cl->id);
}

/**
 * shell_send() - give the core a request as the client's ring would
 * @len: argument bytes, in w->args
 *
 * Results are left in w->results.
 * Return: status of the whole request.
 */
int shell_send(struct sim *w, struct sim_client *cl, struct kvmm_sqe *sqe,
	       u32 len)
{
	struct core_req req;
	u64 n;
	int status;

	sqe->arg_len = len;
	cl->op = sqe->op;
	cl->asking = true;
	w->asked = sqe->nr;
	w->asked_step = sqe->step;
	w->actor_tenant = w->dom[cl->dom].tenant;
	w->actor_domain = cl->info.domain;
	core_commit_begin(w->core);
	status = core_req_check(w->core, cl->id, sqe, w->args, len, &req);
	if (status == -EPROTO) {
		expel(w, cl);
	} else if (!status) {
		LAW(w, (u64)req.nr_results * req.result_size <=
		    sizeof(w->results), "%u results for a request of %u",
		    req.nr_results, sqe->nr);
		status = core_req_execute(w->core, w->now, cl->id, &req,
					  w->results);
		LAW(w, cl->ctl.committed == sqe->number,
		    "request %llu was not committed",
		    (unsigned long long)sqe->number);
		for (n = 0; n < (u64)req.nr_results * req.result_size / 8; n++)
			sim_trace(w, w->results[n]);
	}
	core_commit_end(w->core, cl->id);
	cl->answered = sqe->number;
	cl->asking = false;
	sim_trace(w, mix2(sqe->op, (u64)(s64)status));
	cover_request(sqe->op, status);
	return status;
}

/* Send a request that has no unusual field. */
int shell_submit(struct sim *w, struct sim_client *cl, u16 op, u32 nr,
		 u64 step, u32 len)
{
	struct kvmm_sqe sqe = { .op = op, .nr = nr, .step = step };

	cl->number += 1 + rng_below(&w->rng, 3);
	sqe.number = cl->number;
	return shell_send(w, cl, &sqe, len);
}
