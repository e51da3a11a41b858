// SPDX-License-Identifier: Apache-2.0
/*
 * crash.c - the daemon ends, and another one adopts the arena
 *
 * The daemon ends between two events, or inside one at a point that the core
 * passes (core_ops.crash): then the function that called the core is left at
 * once.  The arena is all that is kept of the core.  Of requests in flight, the
 * part that was done stays done.  The next daemon adopts the arena.  It is told
 * which clients died meanwhile and which areas there are, and its first tick
 * repeats the orders that were lost.
 *
 * Clients live on with their mappings, and their devices run.  They come back
 * one by one, or die.  A client has all answers that it got before, and knows
 * which of its requests had none.  If the arena was salvaged, the client has to
 * match its sequences again.  Until it is back its device may write anything
 * into the range of its open steps.
 *
 * The same laws hold as always: those of laws.c, the content of every block that
 * is read, and that every sequence comes to its end.
 */
#include "tests/sim/sim.h"

/* Drawn from a generator of its own, so that other seeds do not change. */
void crash_draw(struct sim *w)
{
	rng_seed(&w->crash_rng, mix2(w->seed, 21));
	if (w->crash_more)
		w->plan.crash = w->crash_more;
	else if (w->seed % 3 == 2)
		w->plan.crash = PICK(&w->crash_rng, 2, 5, 20, 60);
}

/* The core passes @point: end the daemon here if that was drawn. */
void op_crash(void *arg, u32 point)
{
	struct sim *w = arg;

	if (!w->crash_in)
		return;
	if (w->crash_armed ? point != w->crash_point : --w->crash_in)
		return;
	w->crash_armed = false;
	LOG(w, "  the daemon ends at point %u", point);
	cover_crash(point);
	longjmp(w->crashed, 1);
}

/* ---- facts that the world knows, and the arena may not ---- */

static void extents_sync(struct sim *w)
{
	struct core_extent_view v;
	u32 e;

	w->nr_creating = 0;
	for (e = 0; e < w->nr_extents; e++) {
		struct sim_extent *x = &w->ext[e];

		x->creating = false;
		core_get_extent(w->core, e, &v);
		LAW(w, !v.backed || (x->exists && x->generation ==
				     v.generation), "adopted: extent %u has no memory",
		    e);
		if (v.backed || !x->exists)
			continue;
		LAW(w, !x->ghosts, "law 2: adopted: extent %u is lost, a detached client may have it",
		    e);
		x->exists = false;
		x->holders = 0;
		mem_garbage(w, e);
	}
}

static void areas_sync(struct sim *w)
{
	struct core_tier_view v;
	bool there[CORE_MAX_AREAS] = { false };
	u32 i;

	for (i = 0; i < w->plan.nr_files; i++) {
		struct sim_file *f = &w->file[i];

		if (f->index == CORE_NONE)
			continue;
		if (core_get_tier(w->core, CORE_POOL_AREA + f->index, &v))
			f->index = CORE_NONE;
		else
			there[f->index] = true;
	}
	/* An area that the core added without telling the shell. */
	for (i = 0; i < CORE_MAX_AREAS; i++) {
		if (there[i] || core_get_tier(w->core, CORE_POOL_AREA + i, &v))
			continue;
		core_adopt_lost(w->core, w->now, i);
		LAW(w, !core_area_del(w->core, w->now, i),
		    "adopted: area %u does not go", i);
	}
}

/* Count the lingering clients of each of the core's tenants. */
static void ghosts_sync(struct sim *w)
{
	u32 t, i, nr;

	for (i = 0; i < w->cfg.max_tenants; i++) {
		for (t = 0, nr = 0; t < SIM_TENANTS; t++)
			if (w->haunts[t] == i)
				nr += w->haunted[t];
		for (t = 0; t < w->cfg.max_clients; t++) {
			struct core_client_view v;

			if (!core_get_client(w->core, t, &v) &&
			    v.tenant == i && v.state == 2 &&
			    w->cl[t].state != SIM_NONE)
				nr++;
		}
		core_adopt_ghosts(w->core, i, nr);
	}
}

/* Tell the core which clients have died or gone: it may have missed some. */
static void clients_sync(struct sim *w, bool salvaged)
{
	struct core_client_view v;
	u32 i;

	for (i = 0; i < w->cfg.max_clients; i++) {
		struct sim_client *cl = &w->cl[i];
		bool there = !core_get_client(w->core, i, &v);

		cl->killed = false;
		cl->unbound = true;
		if (cl->state == SIM_NONE) {
			if (there)
				core_client_quiet(w->core, w->now, i);
			continue;
		}
		LAW(w, there, "adopted: client %u is not there", i);
		if (cl->op == KVMM_OP_DETACH && cl->asking && cl->state == SIM_ALIVE &&
		    v.state == 2) {
			/* The DETACH took effect; the client ends without its answer. */
			cl->state = SIM_DETACHED;
			cl->nr_seqs = 0;
			lease_forget(w, cl);
			memset(cl->seqs, 0, sizeof(cl->seqs));
		}
		cl->is_void |= salvaged && cl->nr_steps;
		cl->was_salvaged |= salvaged;
		cl->away = cl->state == SIM_ALIVE;
		/* Leases are not salvaged. */
		if (salvaged)
			lease_forget(w, cl);
		if (cl->state == SIM_DEAD)
			core_client_dead(w->core, w->now, i);
	}
}

static void tunables_sync(struct sim *w)
{
	const struct core_config *cfg = core_get_config(w->core);
	struct core_pool_view p;
	u32 i;

#define x(type, name, ...) w->cfg.name = cfg->name;
	KVMM_TUNABLES(x)
#undef x
	for (i = 0; !core_get_zone(w->core, i, &p); i++)
		w->zone_online[i] = p.nr_online;
}

/* ---- the next daemon ---- */

static void limits_forget(struct sim *w)
{
	u32 i;

	for (i = 0; i < SIM_DOMAINS; i++)
		memset(&w->limit[i], 0, sizeof(w->limit[i]));
	w->actor_tenant = CORE_NONE;
	w->actor_domain = CORE_NONE;
}

static void adopt(struct sim *w, bool inside)
{
	struct core_config cfg = w->cfg;
	struct core_report r;
	u32 i;
	int how;

	w->crash_in = 0;
	for (i = 0; i < SIM_CLIENTS; i++) {
		struct sim_client *cl = &w->cl[i];

		if (cl->state == SIM_ALIVE && cl->op == KVMM_OP_STEP_END &&
		    cl->asking && !cl->away && step_is_oldest(cl, w->asked_step))
			step_end_done(w, cl, w->asked);
	}
	tier_forget_all(w);
	memset(w->core, 0x5a, core_struct_size());
	how = core_adopt(w->core, w->arena, w->arena_bytes, &cfg, &sim_ops, w,
			 w->now, &r);
	LOG(w, "adopted: %d", how);
	LAW(w, how == (inside ? CORE_ADOPT_SALVAGED : CORE_ADOPT_WHOLE),
	    "adopted: %d: %s", how, r.text);
	record_start(w);
	names_start(w);
	cover_note(inside ? "arenas salvaged" : "arenas adopted whole");
	tunables_sync(w);
	extents_sync(w);
	limits_forget(w);
	ghosts_sync(w);
	areas_sync(w);
	clients_sync(w, inside);
	w->adopting = true;
	core_tick(w->core, w->now);
	w->adopting = false;
}

/* Points to pass until the daemon ends in this event, 0: none; see crash_armed too. */
static u32 crash_where(struct sim *w)
{
	struct rng *r = &w->crash_rng;

	if (w->event >= w->crash_until)
		w->crash_armed = false;
	if (w->crash_armed)
		return 1;
	if (!rng_chance(r, w->plan.crash))
		return 0;
	if (rng_chance(r, 500))
		return 1 + rng_below(r, PICK(r, 1, 3, 10, 40, 200));
	/* At a certain point, when the core passes it next. */
	w->crash_armed = true;
	w->crash_point = rng_below(r, NR_CORE_CRASH_POINTS);
	w->crash_until = w->event + 200;
	return 1;
}

/**
 * crash_event() - let an event happen; the daemon may end in it, or after it
 */
void crash_event(struct sim *w, void (*event)(struct sim *w))
{
	u32 where = w->plan.crash ? crash_where(w) : 0;

	if (!where) {
		event(w);
		if (w->plan.crash && rng_chance(&w->crash_rng,
						w->plan.crash / 3))
			adopt(w, false);
		return;
	}
	w->crash_in = where;
	if (!setjmp(w->crashed)) {
		event(w);
		w->crash_in = 0;
		return;
	}
	adopt(w, true);
}

/* ---- clients come back ---- */

/* Compare the record of a sequence with the state that its client has. */
static void seq_back(struct sim *w, struct sim_client *cl, struct sim_seq *q,
		     bool salvaged)
{
	const struct kvmm_seq_status *st = &cl->status[q->slot];
	bool gone = st->state == KVMM_SEQ_CLOSED ||
		    st->generation != KVMM_SEQ_GEN(q->handle);

	if (gone) {
		LAW(w, q->closing || (salvaged && cl->asking &&
		    (cl->op == KVMM_OP_SEQ_CLOSE || cl->op == KVMM_OP_DETACH)),
		    "client %u: sequence %llx is gone", cl->id,
		    (unsigned long long)q->handle);
		seq_gone(w, cl, q);
		return;
	}
	if (!salvaged)
		return;
	LAW(w, st->state == KVMM_SEQ_RECOMPUTE, "client %u: sequence %llx is salvaged and %s",
	    cl->id, (unsigned long long)q->handle,
	    core_seq_state_name(st->state));
	q->closing = false;
	seq_lost(q);
	q->epoch = st->seq_epoch;
}

static void records_back(struct sim *w, struct sim_client *cl)
{
	u32 i;

	for (i = 0; i < SIM_SEQS; i++) {
		const struct kvmm_seq_status *st = &cl->status[i];

		cl->seen[i] = (struct sim_seen){
			.seqcount = st->seqcount, .state = st->state,
			.generation = st->generation, .epoch = st->seq_epoch,
			.valid = st->valid_len, .lost = cl->seen[i].lost,
		};
	}
}

/* Without the facts that only an attach tells. */
static bool same_attachment(const struct core_attach_info *a, const struct core_attach_info *b)
{
#define SAME(f) (a->f == b->f)
	return SAME(client) && SAME(domain) && SAME(pool) && SAME(shards) && SAME(tenant) &&
	       SAME(unit) && SAME(max_seqs) && SAME(nr_tables) && SAME(max_steps) &&
	       SAME(nr_extents) && SAME(pool_extents) && SAME(span_extents) &&
	       SAME(span_blocks) && SAME(span_tail) && SAME(block_bytes) &&
	       !memcmp(a->stride, b->stride, sizeof(a->stride)) &&
	       !memcmp(a->shard_off, b->shard_off, sizeof(a->shard_off));
#undef SAME
}

static void client_back(struct sim *w, struct sim_client *cl)
{
	struct core_attach_info info = { 0 };
	struct core_client_view v;
	u64 committed;
	bool salvaged;
	u32 i;
	int err;

	memset(&cl->ctl, 0, sizeof(*cl) - offsetof(struct sim_client, ctl));
	cl->event_head = 0;
	cl->nr_acks = 0;
	memset(cl->seen, 0, sizeof(cl->seen));
	salvaged = cl->was_salvaged;
	/* Resuming says that its device has stopped, even if no answer comes. */
	if (salvaged) {
		step_all_void(cl);
		cl->stopped_at = w->now;
	}
	err = core_client_resume(w->core, w->now, cl->id, cl->answered, &info,
				 &committed);
	LOG(w, "client %u is back%s: %d", cl->id,
	    salvaged ? ", salvaged" : "", err);
	LAW(w, !err && committed == cl->answered, "client %u resumes: %d, %llu of %llu done",
	    cl->id, err, (unsigned long long)committed,
	    (unsigned long long)cl->answered);
	LAW(w, same_attachment(&info, &cl->info), "client %u resumes as another",
	    cl->id);
	/* Requests without an answer never happened; steps are numbered anew. */
	cl->number = cl->answered;
	if (salvaged)
		cl->step_number = 0;
	client_segments(w, cl);
	cl->away = false;
	cl->is_void = false;
	cl->was_salvaged = false;
	cl->unbound = false;
	for (i = 0; i < SIM_SEQS; i++)
		if (cl->seqs[i].used)
			seq_back(w, cl, &cl->seqs[i], salvaged);
	cl->asking = false;
	records_back(w, cl);
	lease_laws(w);
	core_get_client(w->core, cl->id, &v);
	LAW(w, v.nr_seqs == cl->nr_seqs + cl->nr_leases,
	    "client %u is back with %u sequences and %u leases, the core has %u",
	    cl->id, cl->nr_seqs, cl->nr_leases, v.nr_seqs);
	cover_note(salvaged ? "clients back in a salvaged arena" :
			      "clients back with all they had");
}

/**
 * crash_back() - a client that is away comes back, dies, or its device writes
 *
 * Return: whether anything was done.
 */
bool crash_back(struct sim *w)
{
	struct rng *r = &w->crash_rng;
	u32 i, at = rng_below(r, SIM_CLIENTS);

	for (i = 0; i < SIM_CLIENTS; i++) {
		struct sim_client *cl = &w->cl[(at + i) % SIM_CLIENTS];

		if (!cl->away || cl->state != SIM_ALIVE)
			continue;
		if (rng_chance(r, 300) && cl->is_void) {
			step_dead_writes(w, cl);
			return true;
		}
		if (rng_chance(r, 300)) {
			client_back(w, cl);
			return true;
		}
		if (!rng_chance(r, 10))
			continue;
		cover_note("clients that died away");
		shell_dead(w, cl);
		return true;
	}
	return false;
}

/* End the daemon now, between two events; all clients come back at once. */
void crash_between(struct sim *w)
{
	adopt(w, false);
	crash_all_back(w);
}

/* Let all clients that are away come back, before the end. */
void crash_all_back(struct sim *w)
{
	u32 i;

	for (i = 0; i < SIM_CLIENTS; i++)
		if (w->cl[i].away && w->cl[i].state == SIM_ALIVE) {
			client_back(w, &w->cl[i]);
			laws_after_event(w);
		}
}
