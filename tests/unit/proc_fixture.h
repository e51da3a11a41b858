/* SPDX-License-Identifier: Apache-2.0 */
/*
 * proc_fixture.h - a real core under a shell of a few lines, and its files
 *
 * The shell makes extents at once, acknowledges them for the client, and keeps
 * a clock that the test moves.  A test has one struct fx.
 */
#ifndef TESTS_UNIT_PROC_FIXTURE_H
#define TESTS_UNIT_PROC_FIXTURE_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "kvmm/core/core.h"
#include "kvmm/proc/proc.h"

#define FX_EXTENTS	16	/* of the usual pool */
#define FX_EXTENTS_MAX	1024
#define FX_EXTENT_SIZE	(64u << 10)
#define FX_QUEUE	256
#define FX_CLIENTS	4
#define FX_SEQS		600
#define FX_EVENTS	64

struct fx_client {
	struct kvmm_daemon_ctl		ctl;
	struct kvmm_seq_status		*seqs;
	struct kvmm_extent_status	extents[FX_EXTENTS_MAX];
	struct kvmm_table_page		*tables;
	struct kvmm_event		events[FX_EVENTS];
	u64				number;
	u64				step;
};

struct fx_note {
	u32	client;		/* CORE_NONE: make the extent */
	u32	extent;
	u32	generation;
};

struct fx {
	struct core		*core;
	void			*arena;
	struct core_config	cfg;
	struct proc		*proc;
	struct seq_file		out;
	u64			now;
	int			call_error;	/* result of the source's calls */
	u32			nr_calls;
	void			(*between)(struct fx *f);
	int			(*swap_area)(void *arg, u32 i,
					     struct proc_swap_area *info);
	int			(*swap_info)(void *arg,
					     struct proc_swap_info *info);
	struct fx_note		queue[FX_QUEUE];
	u32			nr_queue;
	struct fx_client	client[FX_CLIENTS];
};

static struct fx fx;

/* ---- the shell ---- */

static void fx_push(struct fx *f, u32 client, u32 extent, u32 generation)
{
	ck_assert_uint_lt(f->nr_queue, FX_QUEUE);
	f->queue[f->nr_queue++] = (struct fx_note){
		.client = client, .extent = extent, .generation = generation,
	};
}

static void fx_extent_create(void *arg, u32 extent, u32 generation)
{
	fx_push(arg, CORE_NONE, extent, generation);
}

static void fx_extent_release(void *arg, u32 extent)
{
}

static void fx_extent_send(void *arg, u32 client, u32 extent, u32 generation)
{
	fx_push(arg, client, extent, generation);
}

static void fx_wake(void *arg, u32 client)
{
}

static void fx_kill(void *arg, u32 client, int reason)
{
}

/* Copies and I/O of lower tiers never end here. */
static void fx_copy(void *arg, const struct core_copy *cp)
{
}

static void fx_io(void *arg, const struct core_io *io)
{
}

static const struct core_ops fx_ops = {
	.extent_create	= fx_extent_create,
	.extent_release	= fx_extent_release,
	.extent_send	= fx_extent_send,
	.wake		= fx_wake,
	.kill		= fx_kill,
	.copy		= fx_copy,
	.io		= fx_io,
};

/* Check and execute one request; @res takes its results. */
static int fx_execute(struct fx *f, u32 client, struct kvmm_sqe sqe,
		      const void *args, u32 len, void *res)
{
	struct core_req req;
	int err;

	sqe.number = ++f->client[client].number;
	sqe.arg_len = len;
	err = core_req_check(f->core, client, &sqe, args, len, &req);
	ck_assert_int_eq(err, 0);
	return core_req_execute(f->core, f->now, client, &req, res);
}

static void fx_settle(struct fx *f)
{
	struct fx_note n;
	u32 i;

	for (i = 0; i < f->nr_queue; i++) {
		n = f->queue[i];
		if (n.client == CORE_NONE) {
			core_extent_created(f->core, f->now, n.extent, 0);
		} else {
			struct kvmm_ack_arg arg = {
				.extent = n.extent,
				.generation = n.generation,
				.what = KVMM_ACK_MAP,
			};
			struct kvmm_sqe sqe = {
				.op = KVMM_OP_EXTENT_ACK, .nr = 1,
			};
			struct kvmm_seq_res res;

			fx_execute(f, n.client, sqe, &arg, sizeof(arg), &res);
		}
	}
	f->nr_queue = 0;
	core_tick(f->core, f->now);
}

static __maybe_unused int fx_request(struct fx *f, u32 client, u16 op, u64 step,
				     const void *args, u32 len, void *res)
{
	struct kvmm_sqe sqe = { .op = op, .nr = 1, .step = step };
	int err;

	err = fx_execute(f, client, sqe, args, len, res);
	fx_settle(f);
	return err;
}

/* ---- clients and sequences ---- */

/* Two layers, two heads, 36 bytes of K and V: a block has 4608 bytes. */
static void fx_attach_req(struct kvmm_attach_req *req, const char *domain)
{
	memset(req, 0, sizeof(*req));
	req->magic = KVMM_ATTACH_MAGIC;
	req->abi_version = KVMM_ABI_VERSION;
	req->layout_hash = KVMM_LAYOUT_HASH;
	strcpy(req->domain, domain);
	req->block_tokens = 16;
	req->nr_shards = 1;
	req->nr_groups = 1;
	req->max_steps = 2;
	req->sq_entries = 64;
	req->max_seqs = FX_SEQS;
	req->group[0].layers = 2;
	req->group[0].kv_heads = 2;
	req->group[0].k_bytes = 36;
	req->group[0].v_bytes = 36;
	req->limits[0].max = KVMM_LIMIT_MAX;
	req->weight = 100;
}

static int fx_attach_as(struct fx *f, u64 tenant, const struct kvmm_attach_req *req,
			u32 *client)
{
	static const u8 secret[CORE_SECRET_LEN] = { 1, 2, 3 };
	struct core_attach_info info;
	struct core_bind bind;
	struct fx_client *c;
	int err;

	err = core_client_attach(f->core, f->now, tenant, secret, req, &info);
	if (err)
		return err;
	ck_assert_uint_lt(info.client, FX_CLIENTS);
	c = &f->client[info.client];
	c->seqs = calloc(info.max_seqs, sizeof(*c->seqs));
	c->tables = calloc(info.nr_tables, sizeof(*c->tables));
	bind = (struct core_bind){
		.ctl = &c->ctl, .seqs = c->seqs, .extents = c->extents,
		.tables = c->tables, .events = c->events,
		.nr_events = FX_EVENTS,
	};
	core_client_bind(f->core, info.client, &bind);
	fx_settle(f);
	*client = info.client;
	return 0;
}

static int fx_try_attach(struct fx *f, u64 tenant, const char *domain,
			 u64 max_bytes, u32 *client)
{
	struct kvmm_attach_req req;

	fx_attach_req(&req, domain);
	req.limits[0].max = max_bytes;
	return fx_attach_as(f, tenant, &req, client);
}

static __maybe_unused u32 fx_attach(struct fx *f, u64 tenant,
				    const char *domain)
{
	u32 client;

	ck_assert_int_eq(fx_try_attach(f, tenant, domain, KVMM_LIMIT_MAX,
				       &client), 0);
	return client;
}

/*
 * A domain of two layer groups.  Blocks of the second have 32 tokens, a window of 32,
 * and one layer with one head: 2304 of the 4608 bytes.
 */
static __maybe_unused u32 fx_attach_groups(struct fx *f, u64 tenant,
					   const char *domain)
{
	struct kvmm_attach_req req;
	u32 client;

	fx_attach_req(&req, domain);
	req.nr_groups = 2;
	req.group[1] = req.group[0];
	req.group[1].layers = 1;
	req.group[1].kv_heads = 1;
	req.group[1].window = 32;
	req.group[1].block_tokens = 32;
	ck_assert_int_eq(fx_attach_as(f, tenant, &req, &client), 0);
	return client;
}

static __maybe_unused u64 fx_open(struct fx *f, u32 client, u32 prompt,
				  u32 max_tokens)
{
	struct kvmm_open_arg arg = {
		.prompt_len = prompt, .max_tokens = max_tokens,
	};
	struct kvmm_open_res res;

	ck_assert_int_eq(fx_request(f, client, KVMM_OP_SEQ_OPEN, 0, &arg,
				    sizeof(arg), &res), 0);
	ck_assert_int_eq(res.status, 0);
	return res.seq;
}

/* Match the ids @base, @base + 1, ...; the sequence may be admitted then. */
static __maybe_unused void fx_match(struct fx *f, u32 client, u64 seq,
				    u32 prompt, u32 base)
{
	size_t len = sizeof(struct kvmm_match_arg) +
		     ALIGN_UP(prompt * 4, 8u);
	struct kvmm_match_arg *arg = calloc(1, len);
	u32 *ids = (u32 *)(arg + 1);
	struct kvmm_seq_res res;
	u32 i;

	arg->seq = seq;
	arg->nr_ids = prompt;
	arg->flags = KVMM_MATCH_LAST;
	for (i = 0; i < prompt; i++)
		ids[i] = base + i;
	ck_assert_int_eq(fx_request(f, client, KVMM_OP_SEQ_MATCH, 0, arg,
				    sizeof(*arg) + prompt * 4, &res), 0);
	ck_assert_int_eq(res.status, 0);
	free(arg);
}

/* Begin a step over @tokens of one sequence; returns its number. */
static __maybe_unused u64 fx_begin(struct fx *f, u32 client, u64 seq,
				   u32 tokens)
{
	struct kvmm_seq_status *st =
		&f->client[client].seqs[KVMM_SEQ_INDEX(seq)];
	struct kvmm_begin_arg arg = {
		.seq = seq, .seq_epoch = st->seq_epoch,
		.start = st->valid_len, .max_tokens = tokens,
	};
	u64 step = ++f->client[client].step;
	struct kvmm_begin_res res[KVMM_MAX_GROUPS];

	ck_assert_uint_eq(st->state, KVMM_SEQ_READY);
	ck_assert_int_eq(fx_request(f, client, KVMM_OP_STEP_BEGIN, step, &arg,
				    sizeof(arg), res), 0);
	ck_assert_int_eq(res[0].status, 0);
	return step;
}

static __maybe_unused void fx_end(struct fx *f, u32 client, u64 step, u64 seq,
				  u32 tokens, u32 base)
{
	struct kvmm_seq_status *st =
		&f->client[client].seqs[KVMM_SEQ_INDEX(seq)];
	struct kvmm_end_arg *arg = calloc(1, sizeof(*arg) +
					  ALIGN_UP(tokens * 4, 8u));
	u32 *ids = (u32 *)(arg + 1);
	struct kvmm_end_res res;
	u32 i;

	arg->seq = seq;
	arg->valid_len = st->valid_len + tokens;
	arg->nr_ids = tokens;
	for (i = 0; i < tokens; i++)
		ids[i] = base + st->valid_len + i;
	ck_assert_int_eq(fx_request(f, client, KVMM_OP_STEP_END, step, arg,
				    sizeof(*arg) + tokens * 4, &res), 0);
	ck_assert_int_eq(res.status, 0);
	free(arg);
}

/* A sequence with a computed prompt: `prompt` tokens from @base on. */
static __maybe_unused u64 fx_prefill(struct fx *f, u32 client, u32 prompt,
				     u32 base)
{
	u64 seq = fx_open(f, client, prompt, 64);
	struct kvmm_seq_status *st =
		&f->client[client].seqs[KVMM_SEQ_INDEX(seq)];
	u32 todo;

	fx_match(f, client, seq, prompt, base);
	todo = prompt - st->valid_len;
	fx_end(f, client, fx_begin(f, client, seq, todo), seq, todo, base);
	return seq;
}

static __maybe_unused void fx_close(struct fx *f, u32 client, u64 seq)
{
	struct kvmm_seq_arg arg = { .seq = seq };
	struct kvmm_seq_res res;

	ck_assert_int_eq(fx_request(f, client, KVMM_OP_SEQ_CLOSE, 0, &arg,
				    sizeof(arg), &res), 0);
}

/* Lease the first @nr tokens of the ids @base, @base + 1, ..; there is a host pool. */
static __maybe_unused struct kvmm_lease_res fx_lease(struct fx *f, u32 client, u32 nr,
						     u32 base, const char *label)
{
	size_t len = sizeof(struct kvmm_lookup_arg) + 4 * nr;
	struct kvmm_lookup_arg *look = calloc(1, ALIGN_UP(len, 8u));
	struct kvmm_lease_arg arg = { .len = nr, .ms = 60000 };
	u32 *ids = (u32 *)(look + 1), i;
	struct kvmm_lookup_res found;
	struct kvmm_lease_res res;

	look->nr_ids = nr;
	look->flags = KVMM_LOOKUP_LAST;
	for (i = 0; i < nr; i++)
		ids[i] = base + i;
	ck_assert_int_eq(fx_request(f, client, KVMM_OP_SEQ_LOOKUP, 0, look, (u32)len,
				    &found), 0);
	ck_assert_uint_eq(found.found, nr);
	memcpy(arg.cookie, found.cookie, sizeof(arg.cookie));
	memcpy(arg.label, label, strlen(label));
	ck_assert_int_eq(fx_request(f, client, KVMM_OP_SEQ_LEASE, 0, &arg, sizeof(arg),
				    &res), 0);
	ck_assert_int_eq(res.status, 0);
	ck_assert_uint_eq(res.held, nr);
	free(look);
	return res;
}

/* ---- the source of the files ---- */

static int fx_call(void *arg, void (*fn)(struct core *core, void *fn_arg),
		   void *fn_arg)
{
	struct fx *f = arg;

	if (f->call_error)
		return f->call_error;
	if (f->between && f->nr_calls)
		f->between(f);
	f->nr_calls++;
	fn(f->core, fn_arg);
	return 0;
}

static int fx_client_info(void *arg, u32 client, struct proc_client_info *info)
{
	if (client >= 2)
		return -ENOENT;
	info->pid = 1000 + client;
	info->uid = 500 + client;
	strcpy(info->comm, client ? "my engine" : "kvrt");
	return 0;
}

static u64 fx_clock(void *arg)
{
	return ((struct fx *)arg)->now;
}

static u64 fx_idle(void *arg)
{
	return 1230000000u;
}

static int fx_swap_area(void *arg, u32 i, struct proc_swap_area *info)
{
	struct fx *f = arg;

	return f->swap_area ? f->swap_area(arg, i, info) : -ENOENT;
}

static int fx_swap_info(void *arg, struct proc_swap_info *info)
{
	struct fx *f = arg;

	return f->swap_info ? f->swap_info(arg, info) : -ENOENT;
}

/* @more, @host, @area: extents of a second pool, of the host pool, and of an area at most. */
static void fx_setup_pools(u32 nr_extents, u32 more, u32 host, u32 area)
{
	struct fx *f = &fx;
	struct proc_source src = {
		.call = fx_call, .client_info = fx_client_info,
		.now = fx_clock, .idle_ns = fx_idle, .arg = f,
		.swap_area = fx_swap_area, .swap_info = fx_swap_info,
		.backend = "host", .socket = "/run/kvmm/attach.sock",
		.start_ns = 5000000000ull, .daemon_epoch = 0x18e9ab7d8967948b,
	};
	u64 bytes;

	memset(f, 0, sizeof(*f));
	f->now = 15670000000ull;
	f->cfg = (struct core_config){
		.pool_bytes = (u64)(nr_extents + more) * FX_EXTENT_SIZE,
		.more_bytes = { (u64)more * FX_EXTENT_SIZE },
		.extent_size = FX_EXTENT_SIZE,
		.min_token_bytes = 64,
		.max_tenants = 4, .max_domains = 6,
		.max_clients = FX_CLIENTS, .max_seqs = FX_SEQS,
		.nr_tables = 1024, .nr_idpages = 2048, .max_steps = 2,
		.step_deadline_ns = 1000000000u,
		.quiet_deadline_ns = 2000000000u, .starve_ns = 3000000000u,
		.host_bytes = (u64)host * FX_EXTENT_SIZE,
		.area_bytes = (u64)area * FX_EXTENT_SIZE, .swappiness = 100,
		.lease_ms = 600000, .lease_percent = 50,
	};
	bytes = core_arena_size(&f->cfg);
	f->arena = aligned_alloc(4096, ALIGN_UP(bytes, 4096u));
	ck_assert_ptr_nonnull(f->arena);
	memset(f->arena, 0, bytes);
	f->core = calloc(1, core_struct_size());
	ck_assert_int_eq(core_init(f->core, f->arena, bytes, &f->cfg, &fx_ops,
				   f), 0);
	core_tick(f->core, f->now);
	f->proc = proc_create(&src);
	ck_assert_ptr_nonnull(f->proc);
	seq_init(&f->out, PROC_TEXT_MAX);
}

static __maybe_unused void fx_setup_tiers(u32 nr_extents, u32 host, u32 area)
{
	fx_setup_pools(nr_extents, 0, host, area);
}

static __maybe_unused void fx_setup_sized(u32 nr_extents)
{
	fx_setup_tiers(nr_extents, 0, 0);
}

static __maybe_unused void fx_setup(void)
{
	fx_setup_tiers(FX_EXTENTS, 0, 0);
}

static __maybe_unused void fx_teardown(void)
{
	u32 i;

	proc_destroy(fx.proc);
	seq_free(&fx.out);
	for (i = 0; i < FX_CLIENTS; i++) {
		free(fx.client[i].seqs);
		free(fx.client[i].tables);
	}
	free(fx.core);
	free(fx.arena);
}

/* Send one request; fx.out has the text until the next one. */
static __maybe_unused int fx_ask(const char *req)
{
	fx.nr_calls = 0;
	return proc_request(fx.proc, req, strlen(req), &fx.out);
}

/* The text of a file, which must exist. */
static __maybe_unused const char *fx_cat(const char *path)
{
	char req[1024];

	snprintf(req, sizeof(req), "cat %s", path);
	ck_assert_int_eq(fx_ask(req), 0);
	return seq_text(&fx.out);
}

#endif /* TESTS_UNIT_PROC_FIXTURE_H */
