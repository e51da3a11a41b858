// SPDX-License-Identifier: Apache-2.0
/*
 * snap.c - copies of the core's views, taken between two requests
 *
 * The functions named snap_*() run on the mm thread.  They only copy into buffers
 * that exist already: no allocation, no text.  No request runs meanwhile, so the
 * records that one call copied are of one instant.  Tables with an upper bound of
 * a few dozen records are copied in one call.  The tables of sequences and
 * extents are long; they are copied in slices of PROC_SLICE records, and a
 * generation tells the reader whether an event happened between the first slice
 * and the last.
 *
 * The generation is the sum of all event counters.  Counters only rise, so two
 * equal sums mean that no counted event happened in between.
 */
#include "kvmm/proc/internal.h"

static void snap_config(struct core *core, void *arg)
{
	struct proc *proc = arg;

	proc->cfg = *core_get_config(core);
}

int proc_fetch_config(struct proc *proc)
{
	return proc->src.call(proc->src.arg, snap_config, proc);
}

/* Does the record belong to the tenant that asks? */
static bool in_scope(const struct core *core, const struct proc *proc,
		     u32 tenant)
{
	return proc->key == PROC_ALL || (tenant != CORE_NONE &&
	       tenant == core_find_tenant(core, proc->key));
}

static void snap_domains(struct core *core, struct proc *proc)
{
	u32 i;

	for (i = 0; i < proc->cfg.max_domains; i++) {
		struct core_domain_view *v =
			&proc->domains[proc->node.nr_domains];

		if (core_get_domain(core, i, v) ||
		    !in_scope(core, proc, v->tenant))
			continue;
		if (proc->node.need & NEED_LIVES)
			(void)!core_get_life(core, i,
					     &proc->lives[proc->node.nr_domains]);
		proc->node.nr_domains++;
	}
	proc->life_interval = core_life_interval(core);
}

static void snap_tenants(struct core *core, struct proc *proc)
{
	u32 i;

	for (i = 0; i < proc->cfg.max_tenants; i++) {
		struct core_tenant_view *v =
			&proc->tenants[proc->node.nr_tenants];

		if (!core_get_tenant(core, i, v) &&
		    in_scope(core, proc, v->id))
			proc->node.nr_tenants++;
	}
}

static void snap_clients(struct core *core, struct proc *proc)
{
	u32 i;

	for (i = 0; i < proc->cfg.max_clients; i++) {
		struct core_client_view *v =
			&proc->clients[proc->node.nr_clients];

		if (!core_get_client(core, i, v) &&
		    in_scope(core, proc, v->tenant))
			proc->node.nr_clients++;
	}
}

/* A pool that does not exist stays zero. */
static void snap_tiers(struct core *core, struct proc_node *node)
{
	u32 i;

	for (i = CORE_POOL_HOST; i < CORE_NR_POOLS; i++)
		if (core_get_tier(core, i, &node->tier[i]))
			memset(&node->tier[i], 0, sizeof(node->tier[i]));
}

static void snap_node(struct core *core, void *arg)
{
	struct proc *proc = arg;
	struct proc_node *node = &proc->node;

	node->draining = core_get_drain(core);
	if (node->need & (NEED_POOL | NEED_SIZES | NEED_POOLS)) {
		core_get_events(core, node->events);
		core_get_pool(core, &node->pool);
		while (!core_get_zone(core, node->nr_zones, &node->zone[node->nr_zones]))
			node->nr_zones++;
		(void)core_get_pressure(core, CORE_NONE, &node->pressure);
	}
	if (node->need & NEED_TIERS)
		snap_tiers(core, node);
	if (node->need & NEED_DOMAINS)
		snap_domains(core, proc);
	if (node->need & NEED_CLIENTS)
		snap_clients(core, proc);
	if (node->need & NEED_TENANTS)
		snap_tenants(core, proc);
}

/**
 * proc_fetch_node() - copy the node's records at one instant
 * @proc: takes the copy in @node, @domains, @clients and @tenants; if a tenant
 *        asks, its own records alone
 * @need: NEED_*; records that are not asked for are empty afterwards
 *
 * Return: 0, or -errno of the source.
 */
int proc_fetch_node(struct proc *proc, u32 need)
{
	memset(&proc->node, 0, sizeof(proc->node));
	proc->node.need = need;
	return proc->src.call(proc->src.arg, snap_node, proc);
}

/* Argument of snap_lru(). */
struct snap_lru {
	struct proc	*proc;
	u32		domain;
};

static void snap_lru(struct core *core, void *arg)
{
	struct snap_lru *s = arg;

		/* A domain that was just removed has an empty order. */
	(void)!core_get_lru(core, s->domain, &s->proc->lru);
}

/* proc_fetch_lru() - copy the order of a domain's cache into @proc->lru */
int proc_fetch_lru(struct proc *proc, u32 domain)
{
	struct snap_lru s = { .proc = proc, .domain = domain };

	return proc->src.call(proc->src.arg, snap_lru, &s);
}

static void snap_check(struct core *core, void *arg)
{
	core_check(core, arg);
}

/**
 * proc_fetch_check() - run the walkers
 * @rep: takes the number of faults, and the first
 *
 * This call takes long: it visits every record of the core, and clients wait
 * meanwhile.
 *
 * Return: 0 when the walkers ran, or -errno of the source.
 */
int proc_fetch_check(struct proc *proc, struct core_report *rep)
{
	return proc->src.call(proc->src.arg, snap_check, rep);
}

static u64 snap_generation(const struct core *core, u64 *events)
{
	u64 sum = 0;
	u32 i;

	core_get_events(core, events);
	for (i = 0; i < NR_CORE_EVENTS; i++)
		sum += events[i];
	return sum;
}

/**
 * struct snap_slice - argument of snap_seqs()
 * @copy: copies record @i to place @at of the proc's buffer.  Return: its blocks plus
 *        one; 0: the record is skipped
 */
struct snap_slice {
	struct proc		*proc;
	struct proc_slice	*slice;
	u32			end;
	u32			(*copy)(struct core *core, u32 i, struct proc *proc, u32 at);
};

static void snap_seqs(struct core *core, void *arg)
{
	struct snap_slice *s = arg;
	struct proc *proc = s->proc;
	struct proc_slice *slice = s->slice;
	u32 last = min(slice->next + PROC_SLICE, s->end);
	u32 blocks = 0;

	slice->generation = snap_generation(core, proc->node.events);
	slice->nr = 0;
	for (; slice->next < last && blocks < PROC_SLICE_BLOCKS;
	     slice->next++) {
		u32 nr = s->copy(core, slice->next, proc, slice->nr);

		blocks += nr;
		slice->nr += nr != 0;
	}
}

/* Copy the next records of a client, those that @copy does not skip. */
static int fetch_slice(struct proc *proc, u32 client, struct proc_slice *slice,
		       u32 (*copy)(struct core *core, u32 i, struct proc *proc, u32 at))
{
	u32 first = client * proc->cfg.max_seqs;
	struct snap_slice s = {
		.proc	= proc,
		.slice	= slice,
		.end	= first + proc->cfg.max_seqs,
		.copy	= copy,
	};
	int err;

	slice->next = max(slice->next, first);
	err = proc->src.call(proc->src.arg, snap_seqs, &s);
	return err ? err : slice->next < s.end;
}

static u32 copy_seq(struct core *core, u32 i, struct proc *proc, u32 at)
{
	struct core_seq_view *v = &proc->seqs[at];

	return core_get_seq(core, i, v) ? 0 : v->nr_blocks + 1;
}

static u32 copy_lease(struct core *core, u32 i, struct proc *proc, u32 at)
{
	struct core_lease_view *v = &proc->leases[at];

	return core_get_lease(core, i, v) ? 0 : v->nr_blocks + 1;
}

/**
 * proc_fetch_seqs() - copy the next sequences of one client
 * @client: id
 * @slice:  @next is 0 before the first call.  Behind the last record it stays
 *          the same, and @nr is 0
 *
 * Return: 1 when more may follow, 0 when this was the last slice, or -errno
 * of the source.
 */
int proc_fetch_seqs(struct proc *proc, u32 client, struct proc_slice *slice)
{
	return fetch_slice(proc, client, slice, copy_seq);
}

/* proc_fetch_leases() - copy the next leases of one client; as proc_fetch_seqs() */
int proc_fetch_leases(struct proc *proc, u32 client, struct proc_slice *slice)
{
	return fetch_slice(proc, client, slice, copy_lease);
}

/* proc_seq_record() - the number of a sequence's record in the core */
u32 proc_seq_record(const struct proc *proc, const struct core_seq_view *v)
{
	return v->client * proc->cfg.max_seqs + KVMM_SEQ_INDEX(v->seq);
}

struct snap_runs {
	struct proc	*proc;
	u32		seq;
	u32		*at;
	int		nr;
};

static void snap_runs(struct core *core, void *arg)
{
	struct snap_runs *s = arg;

	s->nr = core_get_runs(core, s->seq, s->at, PROC_SLICE_BLOCKS,
			      s->proc->runs, PROC_RUNS);
}

/**
 * proc_fetch_runs() - copy the next runs of a sequence's table into @proc->runs
 * @seq: record of the sequence
 * @at:  0 before the first call
 *
 * Return: number of runs; 0 behind the last; -ENOENT: the sequence is closed; or
 * -errno of the source.
 */
int proc_fetch_runs(struct proc *proc, u32 seq, u32 *at)
{
	struct snap_runs s = { .proc = proc, .seq = seq, .at = at };
	int err = proc->src.call(proc->src.arg, snap_runs, &s);

	return err ? err : s.nr;
}

static void snap_extents(struct core *core, void *arg)
{
	struct snap_slice *s = arg;
	struct proc *proc = s->proc;
	struct proc_slice *slice = s->slice;
	u32 last = min(slice->next + PROC_SLICE, s->end);
	u32 blocks = 0;

	slice->generation = snap_generation(core, proc->node.events);
	slice->nr = 0;
	for (; slice->next < last && blocks < PROC_SLICE_BLOCKS;
	     slice->next++) {
		struct core_extent_view *v = &proc->extents[slice->nr];

		if (core_get_extent(core, slice->next, v))
			continue;
		blocks += v->looked;
		slice->nr += in_scope(core, proc, v->tenant);
	}
}

/* proc_fetch_extents() - copy the next extents; as proc_fetch_seqs() */
int proc_fetch_extents(struct proc *proc, struct proc_slice *slice)
{
	struct snap_slice s = {
		.proc	= proc,
		.slice	= slice,
		.end	= proc->nr_extents,
	};
	int err;

	err = proc->src.call(proc->src.arg, snap_extents, &s);
	return err ? err : slice->next < s.end;
}

struct snap_trace {
	struct proc		*proc;
	struct proc_trace	*t;
};

static void snap_trace(struct core *core, void *arg)
{
	struct snap_trace *s = arg;
	struct proc_trace *t = s->t;
	u64 from = t->at;

	t->nr = core_trace_read(core, &t->at, &t->written, s->proc->trace,
				PROC_SLICE);
	t->lost = t->at - from;
	t->at += t->nr;
}

/**
 * proc_fetch_trace() - copy the next records of the ring into @proc->trace
 * @t: all zero before the first call
 *
 * Return: 0, or -errno of the source.
 */
int proc_fetch_trace(struct proc *proc, struct proc_trace *t)
{
	struct snap_trace s = { .proc = proc, .t = t };

	return proc->src.call(proc->src.arg, snap_trace, &s);
}

static void snap_enabled(struct core *core, void *arg)
{
	u32 *events = arg;

	*events = core_trace_enabled(core);
}

/* proc_fetch_enabled() - which events are switched on, one bit for each */
int proc_fetch_enabled(struct proc *proc, u32 *events)
{
	return proc->src.call(proc->src.arg, snap_enabled, events);
}

static void snap_oom(struct core *core, void *arg)
{
	struct proc *proc = arg;

	if (core_get_oom(core, &proc->oom))
		proc->oom.nr = 0;
}

/* proc_fetch_oom() - copy the last report into @proc->oom; nr 0: there is none */
int proc_fetch_oom(struct proc *proc)
{
	return proc->src.call(proc->src.arg, snap_oom, proc);
}

static void snap_map(struct core *core, void *arg)
{
	struct snap_slice *s = arg;
	struct proc *proc = s->proc;
	struct proc_slice *slice = s->slice;
	u32 looked = 0, blocks = 0;

	slice->generation = snap_generation(core, proc->node.events);
	slice->nr = 0;
	while (slice->nr < PROC_SLICE && looked < PROC_SLICE_BLOCKS) {
		struct core_map_view *v = &proc->maps[slice->nr];

		if (core_get_map(core, slice->next, v, proc->map + blocks))
			break;
		blocks += v->nr_blocks;
		looked += max(v->nr_blocks, v->nr);
		slice->next += v->nr;
		slice->nr++;
	}
}

/* proc_fetch_map() - copy the next lines of the map into @proc->maps and ->map */
int proc_fetch_map(struct proc *proc, struct proc_slice *slice)
{
	struct snap_slice s = { .proc = proc, .slice = slice };
	int err = proc->src.call(proc->src.arg, snap_map, &s);

	return err ? err : slice->next < proc->nr_extents;
}

struct snap_shrink {
	struct proc		*proc;
	struct core_shrink	*s;
	u32			pool;
	u64			bytes;
	u64			generation;
	int			answer;
	bool			begun;
	bool			more;
};

static void snap_shrink(struct core *core, void *arg)
{
	struct snap_shrink *x = arg;

	x->generation = snap_generation(core, x->proc->node.events);
	if (!x->begun)
		x->answer = core_shrink_begin(core, x->s, x->pool, x->bytes);
	x->begun = true;
	x->more = !x->answer && core_shrink_next(core, x->s);
}

/**
 * proc_fetch_shrink() - compute the cost of a device pool of @bytes
 * @pool:   number of the pool
 * @s:      core_shrink_bytes() of zeroed memory
 * @answer: takes 0, or the error of core_pool_resize(): then @s has no cost
 * @first, @last: take the generations of the first slice and the last
 *
 * Return: 0, or -errno of the source.
 */
int proc_fetch_shrink(struct proc *proc, u32 pool, struct core_shrink *s, u64 bytes,
		      int *answer, struct proc_slice *first, struct proc_slice *last)
{
	struct snap_shrink x = { .proc = proc, .s = s, .pool = pool, .bytes = bytes };
	int err;

	*first = (struct proc_slice){ 0 };
	do {
		const bool begins = !x.begun;

		err = proc->src.call(proc->src.arg, snap_shrink, &x);
		if (err)
			return err;
		if (begins)
			first->generation = x.generation;
	} while (x.more);
	*last = (struct proc_slice){ .generation = x.generation };
	*answer = x.answer;
	return 0;
}
