// SPDX-License-Identifier: Apache-2.0
/*
 * node.c - the shell and the clock around the core of a simulated node
 *
 * Time moves from event to event: a step ends, a request comes, a tick is due.
 * Each event is one call into the core.  Memory that the core asks for is there
 * at once, and acknowledged.  After an event the engines that the core woke, and
 * that have no step open, go on.
 *
 * Each engine has its own device: their steps overlap and do not slow each other
 * down.  The benchmarks measure how the core shares memory, not how a device
 * shares its time.
 *
 * Memory that others take from a domain is looked for at every event but those
 * of its own client.  nd_stats.min_taken counts the events in which its use falls
 * below its memory.min, or in which a sequence is marked that memory.min covers.
 */
#include "kvmm/core/node/node.h"
#include "tests/bench/bench.h"
#include "tests/bench/engine.h"

#include <stdlib.h>

#define STARVE_NS	(2 * ND_SECOND)	/* kvmm's default */

static void op_create(void *arg, u32 extent, u32 generation)
{
	((struct nd_node *)arg)->create[extent] = generation;
	((struct nd_node *)arg)->unsettled = true;
}

static void op_release(void *arg, u32 extent)
{
}

static void op_send(void *arg, u32 client, u32 extent, u32 generation)
{
	((struct nd_node *)arg)->send[extent][client] = generation;
	((struct nd_node *)arg)->unsettled = true;
}

static void op_wake(void *arg, u32 client)
{
	struct nd_node *n = arg;

	if (client < n->nr)
		n->e[client]->woken = true;
}

static void op_kill(void *arg, u32 client, int reason)
{
	bench_die("the core kills client %u: %s", client, strerror(-reason));
}

static void op_copy(void *arg, const struct core_copy *cp)
{
	struct nd_node *n = arg;
	u32 last = (n->copy_head + n->nr_copies - 1) % CORE_MAX_MOVES;
	u32 next = (n->copy_head + n->nr_copies) % CORE_MAX_MOVES;
	u64 from = n->nr_copies ? n->copy[last].over : n->now;

	n->copy[next].id = cp->id;
	n->copy[next].over = from + cp->bytes / 1024 * ND_COPY_NS_KB;
	n->nr_copies++;
}

static const struct core_ops node_ops = {
	.extent_create	= op_create,
	.extent_release	= op_release,
	.extent_send	= op_send,
	.wake		= op_wake,
	.kill		= op_kill,
	.copy		= op_copy,
};

/* ---- memory that others take ---- */

static u32 marked_blocks(const struct nd_node *n, u32 dom)
{
	const struct core *c = n->core;
	u32 i, nr = 0;

	for (i = c->domains[dom].run_head; i != CORE_NONE; i = c->seqs[i].next)
		if (c->seqs[i].state == KVMM_SEQ_MARKED)
			nr += seq_live(c, &c->seqs[i]);
	return nr;
}

/*
 * @actor: engine whose event it was; @own: it may have asked for memory.  A
 * domain's own event may change its blocks.  But if it did not ask for memory,
 * its marked sequences are victims of others.
 */
static void watch(struct nd_node *n, bool before, u32 actor, bool own)
{
	u32 i, used, marked;

	for (i = 0; i < n->nr; i++) {
		struct nd_engine *e = n->e[i];
		const struct kv_domain *d = &n->core->domains[e->info.domain];

		if (!d->emin || (i == actor && own))
			continue;
		used = domain_used(d) + d->dev.reserved;
		marked = marked_blocks(n, e->info.domain);
		if (!before && i != actor && used < e->used_before &&
		    used < d->emin)
			e->st.min_taken++;
		/* At a tick the victim may be for a waiting sequence of the domain. */
		else if (!before && marked > e->marked_before &&
			 used < d->emin + marked - e->marked_before &&
			 !(actor == ND_NOBODY && d->nr_waiting))
			e->st.min_taken++;
		e->used_before = used;
		e->marked_before = marked;
	}
}

/* ---- requests ---- */

void nd_submit(struct nd_node *n, u32 engine, u16 op, u32 nr, u32 len)
{
	struct nd_engine *e = n->e[engine];
	struct kvmm_sqe sqe = { .op = op, .nr = nr, .number = ++e->number,
				.arg_len = len };
	struct core_req req;
	int err;

	if (op == KVMM_OP_STEP_BEGIN || op == KVMM_OP_STEP_END)
		sqe.step = e->step;
	watch(n, true, engine, op == KVMM_OP_STEP_BEGIN);
	err = core_req_check(n->core, e->info.client, &sqe, n->args, len, &req);
	if (!err)
		err = core_req_execute(n->core, n->now, e->info.client, &req,
				       n->results);
	if (err)
		bench_die("the core refuses request %u: %s", op,
			  strerror(-err));
	watch(n, false, engine, op == KVMM_OP_STEP_BEGIN);
}

/* Make and map the memory that the core asked for. */
void nd_settle(struct nd_node *n)
{
	struct kvmm_ack_arg *a = (struct kvmm_ack_arg *)n->args;
	u32 i, k;

	while (n->unsettled) {
		n->unsettled = false;
		for (i = 0; i < n->nr_extents; i++) {
			if (n->create[i]) {
				n->create[i] = 0;
				core_extent_created(n->core, n->now, i, 0);
			}
			for (k = 0; k < n->nr; k++) {
				if (!n->send[i][k])
					continue;
				*a = (struct kvmm_ack_arg){
					.extent = i, .what = KVMM_ACK_MAP,
					.generation = n->send[i][k] };
				n->send[i][k] = 0;
				nd_submit(n, k, KVMM_OP_EXTENT_ACK, 1,
					  sizeof(*a));
			}
		}
	}
}

/* ---- start and end ---- */

static void attach(struct nd_node *n, u32 i)
{
	struct nd_engine *e = n->e[i];
	const struct nd_engine_cfg *g = &e->cfg;
	struct kvmm_attach_req req = {
		.magic		= KVMM_ATTACH_MAGIC,
		.abi_version	= KVMM_ABI_VERSION,
		.layout_hash	= KVMM_LAYOUT_HASH,
		.block_tokens	= g->block_tokens,
		.nr_shards	= 1,
		.nr_groups	= max(g->nr_groups, 1u),
		.max_steps	= 1,
		.step_tokens	= ND_CHUNK,
		.limits[0]	= g->limits,
		.weight		= g->weight ? g->weight : CORE_WEIGHT_DEFAULT,
	};
	u8 secret[CORE_SECRET_LEN] = { 1 };
	struct core_bind bind;
	u32 k;

	for (k = 0; k < req.nr_groups; k++)
		req.group[k] = (struct kvmm_group){
			.layers = g->layers, .kv_heads = g->heads,
			.k_bytes = g->head_bytes, .v_bytes = g->head_bytes,
			.window = g->window[k] };
	if (!req.limits[0].max)
		req.limits[0].max = KVMM_LIMIT_MAX;
	snprintf(req.domain, sizeof(req.domain), "%s", g->name);
	if (core_client_attach(n->core, n->now, 1, secret, &req, &e->info))
		bench_die("the core refuses %s: %s", g->name, e->info.text);
	e->seqs = calloc(ND_SEQS, sizeof(*e->seqs));
	e->queued = calloc(g->nr_reqs, sizeof(*e->queued));
	e->status = calloc(e->info.max_seqs, sizeof(*e->status));
	e->tables = calloc(e->info.nr_tables, sizeof(*e->tables));
	e->extents = calloc(n->nr_extents, sizeof(*e->extents));
	bind = (struct core_bind){
		.ctl = &e->ctl, .seqs = e->status, .extents = e->extents,
		.tables = e->tables, .events = e->events,
		.nr_events = ARRAY_SIZE(e->events),
	};
	core_client_bind(n->core, e->info.client, &bind);
}

static void start_core(struct nd_node *n, u64 pool, u64 extent, u32 token)
{
	struct core_config cfg = {
		.pool_bytes	= pool,
		.extent_size	= extent,
		.min_token_bytes = token,
		.max_tenants	= 1,
		.max_domains	= ND_CLIENTS,
		.max_clients	= ND_CLIENTS,
		.max_seqs	= ND_SEQS,
		.nr_tables	= 8192,
		.nr_idpages	= ND_CLIENTS * ND_SEQS * 17,
		.max_steps	= 1,
		.step_deadline_ns = ~0ull,
		.quiet_deadline_ns = ~0ull,
		.starve_ns	= STARVE_NS,
		.watermark_scale_factor = 10,	/* the daemon's defaults */
		.cache_floor	= 5,
	};
	u64 bytes = core_arena_size(&cfg);

	n->core = calloc(1, core_struct_size());
	n->arena = bytes ? aligned_alloc(64, ALIGN_UP(bytes, 64ull)) : NULL;
	if (!n->core || !n->arena)
		bench_die("no core of %llu bytes", (unsigned long long)pool);
	memset(n->arena, 0, bytes);
	if (core_init(n->core, n->arena, bytes, &cfg, &node_ops, n))
		bench_die("the core does not start");
}

struct nd_node *nd_start(u64 pool, u64 extent, const struct nd_engine_cfg *cfg,
			 u32 nr)
{
	struct nd_node *n = calloc(1, sizeof(*n));
	u32 i, token = 1u << 31;

	if (!n)
		bench_die("no memory for a node");
	n->nr = nr;
	n->now = ND_SECOND;
	n->nr_extents = (u32)(pool / extent);
	n->create = calloc(n->nr_extents, sizeof(*n->create));
	n->send = calloc(n->nr_extents, sizeof(*n->send));
	n->args = calloc(ND_ARG_BYTES, 1);
	n->results = calloc(2ull * CORE_MAX_BATCH * KVMM_MAX_GROUPS, 32);
	for (i = 0; i < nr; i++)
		while (token > 2 * cfg[i].layers * cfg[i].heads *
			       cfg[i].head_bytes)
			token /= 2;
	start_core(n, pool, extent, token);
	for (i = 0; i < nr; i++) {
		n->e[i] = calloc(1, sizeof(*n->e[i]));
		n->e[i]->cfg = cfg[i];
		attach(n, i);
	}
	nd_settle(n);
	return n;
}

void nd_stats_reset(struct nd_node *n)
{
	u32 i;

	for (i = 0; i < n->nr; i++)
		memset(&n->e[i]->st, 0, sizeof(n->e[i]->st));
}

void nd_stop(struct nd_node *n)
{
	struct core_report report;
	u32 i;

	if (core_check(n->core, &report))
		bench_die("walkers: %s", report.text);
	for (i = 0; i < n->nr; i++) {
		free(n->e[i]->seqs);
		free(n->e[i]->queued);
		free(n->e[i]->status);
		free(n->e[i]->tables);
		free(n->e[i]->extents);
		free(n->e[i]);
	}
	free(n->create);
	free(n->send);
	free(n->args);
	free(n->results);
	free(n->core);
	free(n->arena);
	free(n);
}

/* ---- time ---- */

static u64 next_event(const struct nd_node *n)
{
	u64 at = n->ticked + ND_TICK;
	u32 i;

	if (n->nr_copies)
		at = min(at, n->copy[n->copy_head].over);

	for (i = 0; i < n->nr; i++) {
		if (n->e[i]->ends)
			at = min(at, n->e[i]->ends);
		at = min(at, max(nd_engine_next_arrival(n->e[i]), n->now));
	}
	return at;
}

static void copy_over(struct nd_node *n)
{
	u64 id = n->copy[n->copy_head].id;
	u32 i;

	n->copy_head = (n->copy_head + 1) % CORE_MAX_MOVES;
	n->nr_copies--;
	core_copy_done(n->core, n->now, id, 0);
	nd_settle(n);
	for (i = 0; i < n->nr; i++)
		n->e[i]->woken = true;
}

static void tick(struct nd_node *n)
{
	u32 i;

	n->ticked = n->now;
	watch(n, true, ND_NOBODY, false);
	core_tick(n->core, n->now);
	watch(n, false, ND_NOBODY, false);
	nd_settle(n);
	/* Engines that were refused ask again. */
	for (i = 0; i < n->nr; i++)
		n->e[i]->woken = true;
	if (n->on_tick)
		n->on_tick(n);
}

/* Engines that were woken look at their sequences and go on. */
static void go_on(struct nd_node *n)
{
	bool again = true;
	u32 i;

	while (again) {
		again = false;
		for (i = 0; i < n->nr; i++) {
			if (!n->e[i]->woken)
				continue;
			n->e[i]->woken = false;
			again = true;
			nd_engine_look(n, i);
			if (!n->e[i]->ends && n->now != n->e[i]->refused)
				nd_engine_begin(n, i);
			nd_settle(n);
		}
	}
}

void nd_run(struct nd_node *n, u64 until)
{
	u32 i;

	until += n->now;
	while (n->now < until) {
		n->now = next_event(n);
		for (i = 0; i < n->nr; i++) {
			if (n->e[i]->ends && n->e[i]->ends <= n->now) {
				nd_engine_end(n, i);
				nd_settle(n);
				n->e[i]->woken = true;
			}
			if (nd_engine_arrive(n, i))
				n->e[i]->woken = true;
		}
		while (n->nr_copies && n->copy[n->copy_head].over <= n->now)
			copy_over(n);
		if (n->now >= n->ticked + ND_TICK)
			tick(n);
		go_on(n);
	}
}
