// SPDX-License-Identifier: Apache-2.0
/*
 * shell.c - a small shell around the core, for fuzz targets
 *
 * Like the daemon's, without threads, segments or descriptors: orders of the
 * core lie in lists and are answered by the functions below.  The memory of the
 * core and the shell is copied once it is set up, and put back for the next
 * input, at the same addresses.  A client's records are cleared when it attaches,
 * as a new segment is.
 */
#include "tests/fuzz/shell.h"

struct shell shell;

static void *arena, *arena_fresh, *core_fresh;
static struct shell shell_fresh;
static u64 arena_bytes;

/* ---- commands of the core ---- */

static void op_create(void *arg, u32 extent, u32 generation)
{
	FUZZ_LAW(extent < SHELL_EXTENTS && generation, "extent %u", extent);
	FUZZ_LAW(!shell.creating[extent], "extent %u is made twice", extent);
	shell.creating[extent] = generation;
}

static void op_release(void *arg, u32 extent)
{
	FUZZ_LAW(extent < SHELL_EXTENTS, "extent %u", extent);
	FUZZ_LAW(!shell.creating[extent], "extent %u is released, not made",
		 extent);
}

static void op_send(void *arg, u32 client, u32 extent, u32 generation)
{
	FUZZ_LAW(client < SHELL_CLIENTS && extent < SHELL_EXTENTS,
		 "client %u, extent %u", client, extent);
	FUZZ_LAW(shell.cl[client].state == SHELL_ALIVE ||
		 shell.cl[client].state == SHELL_NONE,
		 "client %u is gone and gets extent %u", client, extent);
	shell.cl[client].pending[extent] = generation;
}

static void op_wake(void *arg, u32 client)
{
	FUZZ_LAW(client < SHELL_CLIENTS, "client %u", client);
}

static void op_kill(void *arg, u32 client, int reason)
{
	FUZZ_LAW(client < SHELL_CLIENTS && !shell.cl[client].killed,
		 "client %u is killed again", client);
	shell.cl[client].killed = true;
}

static void op_kill_ghosts(void *arg, u32 tenant)
{
	FUZZ_LAW(tenant < shell.cfg.max_tenants, "tenant %u", tenant);
}

static void todo_add(struct shell_todo *t, u64 id)
{
	FUZZ_LAW(t->nr < SHELL_TODO, "%u orders wait", t->nr);
	t->id[t->nr++] = id;
}

static void op_copy(void *arg, const struct core_copy *cp)
{
	FUZZ_LAW(cp->dev_off + cp->bytes <= shell.cfg.pool_bytes &&
		 (!cp->within || cp->dev_to + cp->bytes <=
		  shell.cfg.pool_bytes) &&
		 (cp->within || cp->host_off + cp->bytes <=
		  shell.cfg.host_bytes), "copy outside the pools");
	todo_add(&shell.copies, cp->id);
}

static void op_io(void *arg, const struct core_io *io)
{
	FUZZ_LAW(io->area < CORE_MAX_AREAS &&
		 io->host_off + io->len <= shell.cfg.host_bytes &&
		 io->area_off + io->len <= shell.cfg.area_bytes,
		 "request outside pool or area");
	todo_add(&shell.ios, io->id);
}

static const struct core_ops ops = {
	.extent_create	= op_create,
	.extent_release	= op_release,
	.extent_send	= op_send,
	.wake		= op_wake,
	.kill		= op_kill,
	.kill_ghosts	= op_kill_ghosts,
	.copy		= op_copy,
	.io		= op_io,
};

/* ---- begin ---- */

void shell_config(struct core_config *cfg)
{
	*cfg = (struct core_config){
		.pool_bytes	= SHELL_EXTENTS * SHELL_EXTENT,
		.extent_size	= SHELL_EXTENT,
		.min_token_bytes = 64,
		.max_tenants	= 3,
		.max_domains	= 3,
		.max_clients	= SHELL_CLIENTS,
		.max_seqs	= SHELL_SEQS,
		.nr_tables	= SHELL_TABLES,
		.nr_idpages	= 24,
		.max_steps	= KVMM_MAX_STEPS,
		.step_deadline_ns = 100 * SHELL_MS,
		.quiet_deadline_ns = 200 * SHELL_MS,
		.revoke_deadline_ns = 200 * SHELL_MS,
		.starve_ns	= 50 * SHELL_MS,
		.io_deadline_ns	= 500 * SHELL_MS,
		.host_bytes	= 20 * SHELL_EXTENT,
		.area_bytes	= 20 * SHELL_EXTENT,
		.swappiness	= 100,
		.watermark_scale_factor = 200,
		.cache_floor	= 50,
	};
}

static void shell_make(void)
{
	shell_config(&shell.cfg);
	arena_bytes = core_arena_size(&shell.cfg);
	FUZZ_LAW(arena_bytes, "the core refuses the sizes");
	shell.core = calloc(1, core_struct_size());
	core_fresh = calloc(1, core_struct_size());
	arena = aligned_alloc(64, ALIGN_UP(arena_bytes, 64ull));
	arena_fresh = malloc(arena_bytes);
	FUZZ_LAW(shell.core && core_fresh && arena && arena_fresh,
		 "no memory");
	memset(arena, 0, arena_bytes);
	FUZZ_LAW(!core_init(shell.core, arena, arena_bytes, &shell.cfg, &ops,
			    NULL), "the core does not begin");
	shell.now = 1000 * SHELL_MS;
}

void shell_begin(void (*setup)(void))
{
	if (!arena_fresh) {
		shell_make();
		setup();
		memcpy(core_fresh, shell.core, core_struct_size());
		memcpy(arena_fresh, arena, arena_bytes);
		shell_fresh = shell;
	}
	memcpy(shell.core, core_fresh, core_struct_size());
	memcpy(arena, arena_fresh, arena_bytes);
	/* Members from args on are written before they are read. */
	memcpy(&shell, &shell_fresh, offsetof(struct shell, args));
}

void shell_check(void)
{
	struct core_report r;

	FUZZ_LAW(!core_check(shell.core, &r), "%s", r.text);
}

/* ---- clients ---- */

void shell_attach_req(struct kvmm_attach_req *req, u32 domain)
{
	*req = (struct kvmm_attach_req){
		.magic		= KVMM_ATTACH_MAGIC,
		.abi_version	= KVMM_ABI_VERSION,
		.layout_hash	= KVMM_LAYOUT_HASH,
		.block_tokens	= SHELL_TOKENS,
		.nr_shards	= 1,
		.nr_groups	= 1,
		.max_steps	= KVMM_MAX_STEPS,
		.group[0]	= { .layers = 1, .kv_heads = 1,
				    .k_bytes = 32, .v_bytes = 32 },
		.limits[0]	= { .high = KVMM_LIMIT_MAX,
				    .max = KVMM_LIMIT_MAX },
		.limits[1]	= { .high = KVMM_LIMIT_MAX,
				    .max = KVMM_LIMIT_MAX },
		.limits[2]	= { .high = KVMM_LIMIT_MAX,
				    .max = KVMM_LIMIT_MAX },
		.weight		= 100,
	};
	req->domain[0] = (char)('a' + domain);
}

struct shell_client *shell_attach(u32 tenant,
				  const struct kvmm_attach_req *req)
{
	struct core_attach_info info;
	u8 secret[CORE_SECRET_LEN];
	struct shell_client *cl;
	struct core_bind bind;

	memset(secret, (int)tenant + 1, sizeof(secret));
	if (core_client_attach(shell.core, shell.now, tenant, secret, req,
			       &info)) {
		FUZZ_LAW(info.text, "refused without a word");
		return NULL;
	}
	FUZZ_LAW(info.client < SHELL_CLIENTS && info.max_seqs <= SHELL_SEQS &&
		 info.nr_tables <= SHELL_TABLES &&
		 info.nr_extents <= SHELL_EXTENTS, "more than there is");
	cl = &shell.cl[info.client];
	FUZZ_LAW(cl->state == SHELL_NONE, "client %u is there twice",
		 info.client);
	memset(cl, 0, sizeof(*cl));
	cl->state = SHELL_ALIVE;
	cl->id = info.client;
	cl->tenant = info.tenant;
	bind = (struct core_bind){
		.ctl = &cl->ctl, .seqs = cl->seqs, .extents = cl->extents,
		.tables = cl->tables, .events = cl->events,
		.nr_events = SHELL_EVENTS,
	};
	core_client_bind(shell.core, cl->id, &bind);
	return cl;
}

void shell_dead(struct shell_client *cl)
{
	if (cl->state == SHELL_NONE || cl->state == SHELL_DEAD)
		return;
	core_client_dead(shell.core, shell.now, cl->id);
	cl->state = SHELL_DEAD;
	memset(cl->pending, 0, sizeof(cl->pending));
}

void shell_quiet(struct shell_client *cl)
{
	if (cl->state == SHELL_NONE)
		return;
	/* It lives on, and may keep its mappings. */
	if (cl->state == SHELL_DETACHED)
		shell.ghosts[cl->tenant]++;
	core_client_quiet(shell.core, shell.now, cl->id);
	cl->state = SHELL_NONE;
	cl->killed = false;
	memset(cl->pending, 0, sizeof(cl->pending));
}

static void handle_note(struct shell_client *cl, u64 seq)
{
	cl->handles[cl->nr_handles++ % SHELL_HANDLES] = seq;
}

/* Heap blocks without spare bytes: the sanitizers see accesses past their end. */
static int execute(struct shell_client *cl, struct core_req *req)
{
	const size_t bytes = (size_t)req->nr_results * req->result_size;
	void *results = malloc(max(bytes, (size_t)1));
	int err;

	FUZZ_LAW(results, "no memory");
	err = core_req_execute(shell.core, shell.now, cl->id, req, results);
	memcpy(shell.results, results, bytes);
	free(results);
	return err;
}

static int judge_and_execute(struct shell_client *cl,
			     const struct kvmm_sqe *sqe, const void *args,
			     struct core_req *req)
{
	void *copy = malloc(max(sqe->arg_len, 1u));
	int err;

	FUZZ_LAW(copy, "no memory");
	memcpy(copy, args, sqe->arg_len);
	err = core_req_check(shell.core, cl->id, sqe, copy, sqe->arg_len, req);
	if (!err) {
		FUZZ_LAW((u64)req->nr_results * req->result_size <=
			 SHELL_RESULTS, "%u results of %u bytes",
			 req->nr_results, req->result_size);
		err = execute(cl, req);
		FUZZ_LAW(err != -EPROTO, "a request that passed is a forgery");
	}
	free(copy);
	return err;
}

int shell_request(struct shell_client *cl, const struct kvmm_sqe *sqe,
		  const void *args)
{
	const struct kvmm_open_res *open = (const void *)shell.results;
	struct core_req req;
	int err;
	u32 i;

	err = judge_and_execute(cl, sqe, args, &req);
	if (err == -EPROTO) {
		core_client_eproto(shell.core, shell.now, cl->id);
		cl->state = SHELL_DEAD;
		memset(cl->pending, 0, sizeof(cl->pending));
	}
	if (sqe->op == KVMM_OP_DETACH && !err) {
		cl->state = SHELL_DETACHED;
		memset(cl->pending, 0, sizeof(cl->pending));
	}
	if (sqe->op == KVMM_OP_SEQ_OPEN || sqe->op == KVMM_OP_SEQ_FORK)
		for (i = 0; i < req.nr_results && !err; i++)
			if (!open[i].status)
				handle_note(cl, open[i].seq);
	return err;
}

/* ---- answers ---- */

bool shell_created(u32 n, int status)
{
	u32 i;

	for (i = 0; i < SHELL_EXTENTS; i++) {
		u32 e = (i + n) % SHELL_EXTENTS;

		if (!shell.creating[e])
			continue;
		shell.creating[e] = 0;
		core_extent_created(shell.core, shell.now, e, status);
		return true;
	}
	return false;
}

static u64 todo_take(struct shell_todo *t, u32 n)
{
	u64 id;

	n %= t->nr;
	id = t->id[n];
	t->nr--;
	memmove(&t->id[n], &t->id[n + 1], (t->nr - n) * sizeof(t->id[0]));
	return id;
}

bool shell_copied(u32 n, int status)
{
	if (!shell.copies.nr)
		return false;
	core_copy_done(shell.core, shell.now, todo_take(&shell.copies, n),
		       status);
	return true;
}

bool shell_io_done(u32 n, int status)
{
	if (!shell.ios.nr)
		return false;
	core_io_done(shell.core, shell.now, todo_take(&shell.ios, n), status);
	return true;
}

bool shell_ack(struct shell_client *cl)
{
	struct kvmm_ack_arg a[SHELL_EXTENTS];
	struct kvmm_sqe sqe = { .op = KVMM_OP_EXTENT_ACK };
	u32 e;

	if (cl->state != SHELL_ALIVE)
		return false;
	memset(a, 0, sizeof(a));
	for (e = 0; e < SHELL_EXTENTS; e++) {
		bool back = cl->extents[e].state == KVMM_EXTENT_REVOKE;

		if (!back && !cl->pending[e])
			continue;
		a[sqe.nr].extent = e;
		a[sqe.nr].what = back ? KVMM_ACK_REVOKE : KVMM_ACK_MAP;
		a[sqe.nr++].generation = back ? cl->extents[e].generation :
						cl->pending[e];
		cl->pending[e] = 0;
	}
	if (!sqe.nr)
		return false;
	sqe.number = ++cl->number;
	sqe.arg_len = sqe.nr * (u32)sizeof(a[0]);
	memcpy(shell.args, a, sqe.arg_len);
	return !shell_request(cl, &sqe, shell.args);
}

void shell_settle(void)
{
	u32 i, rounds = 0;
	bool any = true;

	/* More rounds than there can be orders of a kind. */
	while (any && rounds++ < 64) {
		any = core_poll(shell.core, shell.now);
		while (shell_created(0, 0) || shell_copied(0, 0) ||
		       shell_io_done(0, 0))
			any = true;
		for (i = 0; i < SHELL_CLIENTS; i++)
			any |= shell_ack(&shell.cl[i]);
	}
}

void shell_end(void)
{
	struct core_pool_view v;
	u32 i;

	for (i = 0; i < SHELL_CLIENTS; i++) {
		shell_dead(&shell.cl[i]);
		shell_quiet(&shell.cl[i]);
	}
	for (i = 0; i < ARRAY_SIZE(shell.ghosts); i++)
		while (shell.ghosts[i]) {
			shell.ghosts[i]--;
			core_ghost_gone(shell.core, shell.now, i);
		}
	shell_settle();
	core_get_pool(shell.core, &v);
	FUZZ_LAW(!v.open && !v.sealed && !v.quiescing && !v.quarantine &&
		 !v.limbo && !v.committed, "open %llu sealed %llu quiescing %llu quarantine %llu limbo %llu committed %llu",
		 (unsigned long long)v.open, (unsigned long long)v.sealed,
		 (unsigned long long)v.quiescing,
		 (unsigned long long)v.quarantine,
		 (unsigned long long)v.limbo, (unsigned long long)v.committed);
}
