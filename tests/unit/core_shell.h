/* SPDX-License-Identifier: Apache-2.0 */
/*
 * core_shell.h - the smallest shell around the core, for directed tests
 *
 * One core, clients with segments in ordinary memory, and helpers that send one
 * request each and return its status.  Extents that the core asks for are made
 * and acknowledged as soon as an event is over, unless a test forbids it
 * (sh_manual_make, struct sh_client.mute).  The walkers run after each event,
 * so a test fails at the event that damaged the core's records.
 *
 * Blocks have 16 tokens and 1 KiB, extents 4 KiB, so a span is 4 blocks.
 */
#ifndef CORE_SHELL_H
#define CORE_SHELL_H

#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "kvmm/core/core.h"

#define SH_BT		16u		/* tokens of a block */
#define SH_BLOCK	1024ull		/* bytes of a block */
#define SH_EXTENT	4096ull
#define SH_PER		4u		/* blocks of a span */
#define SH_CLIENTS	6
#define SH_SEQS		32
#define SH_EXTENTS	64
#define SH_TABLES	128
#define SH_EVENTS	64
#define MS		1000000ull

struct sh_client {
	bool	mute;		/* does not acknowledge by itself */
	bool	stubborn;	/* does not give extents back by itself */
	u32	killed;		/* times that ops->kill named it */
	int	kill_reason;
	u32	wakes;
	u32	sent;		/* extents that the core sent */
	u64	number;
	u64	step;
	u32	pending[SH_EXTENTS];	/* generations to acknowledge */
	struct core_attach_info info;
	struct kvmm_daemon_ctl ctl;
	struct kvmm_seq_status seqs[SH_SEQS];
	struct kvmm_extent_status extents[SH_EXTENTS];
	struct kvmm_table_page tables[SH_TABLES];
	struct kvmm_event events[SH_EVENTS];
};

struct sh {
	struct core_config cfg;
	struct core	*core;
	void		*arena;
	u64		now;
	u32		creating[SH_EXTENTS];
	u32		nr_creates;
	u32		nr_releases;
	u32		nr_kill_ghosts;
	u8		nr_attached;
	struct sh_client cl[SH_CLIENTS];
	u64		args[40000];
	u64		results[8192];
};

static struct sh sh;
static bool sh_manual_make;	/* the test makes memory itself */
static bool sh_unchecked;	/* no walkers, for tests of time */
static volatile bool sh_in_core;	/* the core is running */

/* Copies and I/O, if a test has lower tiers. */
static void (*sh_on_copy)(const struct core_copy *cp);
static void (*sh_on_io)(const struct core_io *io);

/* Every call of the core goes through this macro, which a test may redefine. */
#ifndef SH_CORE
#define SH_CORE(call)							\
do {									\
	sh_in_core = true;						\
	call;								\
	sh_in_core = false;						\
} while (0)
#endif

/* ---- commands of the core ---- */

static void sh_op_create(void *arg, u32 extent, u32 generation)
{
	if (sh.creating[extent])
		abort();
	sh.creating[extent] = generation;
	sh.nr_creates++;
}

static void sh_op_release(void *arg, u32 extent)
{
	sh.nr_releases++;
}

static void sh_op_send(void *arg, u32 client, u32 extent, u32 generation)
{
	sh.cl[client].pending[extent] = generation;
	sh.cl[client].sent++;
}

static void sh_op_wake(void *arg, u32 client)
{
	sh.cl[client].wakes++;
}

static void sh_op_kill(void *arg, u32 client, int reason)
{
	sh.cl[client].killed++;
	sh.cl[client].kill_reason = reason;
}

static void sh_op_kill_ghosts(void *arg, u32 tenant)
{
	sh.nr_kill_ghosts++;
}

static void sh_op_copy(void *arg, const struct core_copy *cp)
{
	sh_on_copy(cp);
}

static void sh_op_io(void *arg, const struct core_io *io)
{
	sh_on_io(io);
}

static const struct core_ops sh_ops = {
	.extent_create	= sh_op_create,
	.extent_release	= sh_op_release,
	.extent_send	= sh_op_send,
	.wake		= sh_op_wake,
	.kill		= sh_op_kill,
	.kill_ghosts	= sh_op_kill_ghosts,
	.copy		= sh_op_copy,
	.io		= sh_op_io,
};

/* ---- requests ---- */

static void __maybe_unused sh_check(void)
{
	struct core_report r;
	int err;

	if (sh_unchecked)
		return;
	SH_CORE(err = core_check(sh.core, &r));
	ck_assert_msg(!err, "walkers: %s", r.text);
}

/* Send an entry unchanged; args in sh.args, results to sh.results. */
static int __maybe_unused sh_send(u32 cl, struct kvmm_sqe *sqe, u32 len)
{
	struct core_req req;
	int err;

	sqe->arg_len = len;
	SH_CORE(err = core_req_check(sh.core, cl, sqe, sh.args, len, &req));
	if (err)
		return err;
	ck_assert_uint_le((u64)req.nr_results * req.result_size,
			  sizeof(sh.results));
	SH_CORE(err = core_req_execute(sh.core, sh.now, cl, &req, sh.results));
	return err;
}

static int __maybe_unused sh_submit(u32 cl, u16 op, u32 nr, u64 step, u32 len)
{
	struct kvmm_sqe sqe = { .op = op, .nr = nr, .step = step,
				.number = ++sh.cl[cl].number };

	return sh_send(cl, &sqe, len);
}

/* Status of entry @i in the answer to the last request. */
static int __maybe_unused sh_seq_res(u32 i)
{
	return ((const struct kvmm_seq_res *)sh.results)[i].status;
}

static int __maybe_unused sh_ack(u32 cl, u32 extent)
{
	struct kvmm_ack_arg *a = (struct kvmm_ack_arg *)sh.args;
	int err;

	*a = (struct kvmm_ack_arg){ .extent = extent, .what = KVMM_ACK_MAP,
				    .generation = sh.cl[cl].pending[extent] };
	sh.cl[cl].pending[extent] = 0;
	err = sh_submit(cl, KVMM_OP_EXTENT_ACK, 1, 0, sizeof(*a));
	return err ? err : sh_seq_res(0);
}

/* Acknowledge that an extent is unmapped, in the generation of the record. */
static int __maybe_unused sh_unmapped(u32 cl, u32 extent)
{
	struct kvmm_ack_arg *a = (struct kvmm_ack_arg *)sh.args;
	int err;

	*a = (struct kvmm_ack_arg){
		.extent = extent, .what = KVMM_ACK_REVOKE,
		.generation = sh.cl[cl].extents[extent].generation,
	};
	sh.cl[cl].pending[extent] = 0;
	err = sh_submit(cl, KVMM_OP_EXTENT_ACK, 1, 0, sizeof(*a));
	return err ? err : sh_seq_res(0);
}

/* Is the extent revoked, and does the client give it back? */
static bool __maybe_unused sh_gives_back(u32 cl, u32 extent)
{
	return sh.cl[cl].extents[extent].state == KVMM_EXTENT_REVOKE &&
	       !sh.cl[cl].stubborn && !sh.cl[cl].mute;
}

static void __maybe_unused sh_made(u32 extent, int status)
{
	sh.creating[extent] = 0;
	SH_CORE(core_extent_created(sh.core, sh.now, extent, status));
}

/* Finish an event: make the requested extents, acknowledge the sent ones. */
static void __maybe_unused sh_settle(void)
{
	bool again = true;
	u32 i, e;

	while (again) {
		again = false;
		for (e = 0; e < SH_EXTENTS && !sh_manual_make; e++)
			if (sh.creating[e]) {
				sh_made(e, 0);
				again = true;
			}
		for (i = 0; i < SH_CLIENTS; i++)
			for (e = 0; e < SH_EXTENTS && !sh.cl[i].mute; e++) {
				if (sh_gives_back(i, e)) {
					ck_assert_int_eq(sh_unmapped(i, e), 0);
					again = true;
				}
				if (sh.cl[i].pending[e] &&
				    !sh.cl[i].stubborn) {
					ck_assert_int_eq(sh_ack(i, e), 0);
					again = true;
				}
			}
	}
	sh_check();
}

static void __maybe_unused sh_tick(u64 ms)
{
	sh.now += ms * MS;
	SH_CORE(core_tick(sh.core, sh.now));
	sh_settle();
}

/* ---- set-up ---- */

/*
 * A configuration of @extents extents of 4 blocks; a test may change it before
 * sh_start().
 */
static void __maybe_unused sh_config(u32 extents)
{
	memset(&sh, 0, sizeof(sh));
	sh_manual_make = false;
	sh_unchecked = false;
	sh.now = 1000 * MS;
	sh.cfg = (struct core_config){
		.pool_bytes	= extents * SH_EXTENT,
		.extent_size	= SH_EXTENT,
		.min_token_bytes = 64,
		.max_tenants	= 4,
		.max_domains	= 6,
		.max_clients	= SH_CLIENTS,
		.max_seqs	= SH_SEQS,
		.nr_tables	= 0,
		.nr_idpages	= 256,
		.max_steps	= 4,
		.step_deadline_ns = 100 * MS,
		.quiet_deadline_ns = 200 * MS,
		.starve_ns	= 50 * MS,
	};
}

/* Start in @arena, which has core_arena_size() bytes. */
static void __maybe_unused sh_start_in(void *arena)
{
	u64 bytes = core_arena_size(&sh.cfg);

	ck_assert_uint_ne(bytes, 0);
	sh.core = calloc(1, core_struct_size());
	sh.arena = arena;
	ck_assert_ptr_nonnull(sh.core);
	ck_assert_ptr_nonnull(sh.arena);
	memset(sh.arena, 0, bytes);
	ck_assert_int_eq(core_init(sh.core, sh.arena, bytes, &sh.cfg, &sh_ops,
				   NULL), 0);
}

static void __maybe_unused sh_start(void)
{
	sh_start_in(aligned_alloc(64, ALIGN_UP(core_arena_size(&sh.cfg),
					       64ull)));
}

static void __maybe_unused sh_stop(void)
{
	free(sh.core);
	free(sh.arena);
	sh.core = NULL;
	sh.arena = NULL;
}

/* A valid attach message. */
static struct kvmm_attach_req __maybe_unused sh_attach_req(const char *name)
{
	struct kvmm_attach_req req = {
		.magic		= KVMM_ATTACH_MAGIC,
		.abi_version	= KVMM_ABI_VERSION,
		.layout_hash	= KVMM_LAYOUT_HASH,
		.block_tokens	= SH_BT,
		.nr_shards	= 1,
		.nr_groups	= 1,
		.max_steps	= 4,
		.group[0]	= { .layers = 1, .kv_heads = 1,
				    .k_bytes = 32, .v_bytes = 32 },
		.limits[0]	= { .max = KVMM_LIMIT_MAX },
		.weight		= 100,
	};

	snprintf(req.domain, sizeof(req.domain), "%s", name);
	return req;
}

static int __maybe_unused sh_attach_as(u64 tenant,
				       const struct kvmm_attach_req *req)
{
	struct core_attach_info info;
	u8 secret[CORE_SECRET_LEN];
	struct sh_client *cl;
	struct core_bind bind;
	int err;

	/* Each attach has another secret: the first one of a tenant counts. */
	memset(secret, (int)tenant + 1, sizeof(secret));
	secret[7] = sh.nr_attached++;
	SH_CORE(err = core_client_attach(sh.core, sh.now, tenant, secret, req,
					 &info));
	if (err)
		return err;
	cl = &sh.cl[info.client];
	memset(cl, 0, sizeof(*cl));
	cl->info = info;
	bind = (struct core_bind){
		.ctl = &cl->ctl, .seqs = cl->seqs, .extents = cl->extents,
		.tables = cl->tables, .events = cl->events,
		.nr_events = SH_EVENTS,
	};
	SH_CORE(core_client_bind(sh.core, info.client, &bind));
	return (int)info.client;
}

/* Attach to the domain @name of @tenant; it must succeed. */
static u32 __maybe_unused sh_attach(u64 tenant, const char *name)
{
	struct kvmm_attach_req req = sh_attach_req(name);
	int id = sh_attach_as(tenant, &req);

	ck_assert_int_ge(id, 0);
	sh_settle();
	return (u32)id;
}

static void __maybe_unused sh_die(u32 cl)
{
	memset(sh.cl[cl].pending, 0, sizeof(sh.cl[cl].pending));
	SH_CORE(core_client_dead(sh.core, sh.now, cl));
	sh_settle();
}

static void __maybe_unused sh_quiet(u32 cl)
{
	SH_CORE(core_client_quiet(sh.core, sh.now, cl));
	sh_settle();
}

/* ---- sequences ---- */

static const struct kvmm_seq_status *__maybe_unused sh_status(u32 cl, u64 seq)
{
	return &sh.cl[cl].seqs[KVMM_SEQ_INDEX(seq)];
}

static u32 __maybe_unused sh_state(u32 cl, u64 seq)
{
	return sh_status(cl, seq)->state;
}

static int __maybe_unused sh_open_as(u32 cl, const struct kvmm_open_arg *a,
				     u64 *seq)
{
	const struct kvmm_open_res *res = (const void *)sh.results;

	memcpy(sh.args, a, sizeof(*a));
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_OPEN, 1, 0, sizeof(*a)), 0);
	*seq = res->seq;
	sh_check();
	return res->status;
}

/* Open a sequence of @prompt + @more tokens; it must succeed. */
static u64 __maybe_unused sh_open(u32 cl, u32 prompt, u32 more)
{
	struct kvmm_open_arg a = { .prompt_len = prompt, .max_tokens = more };
	u64 seq;

	ck_assert_int_eq(sh_open_as(cl, &a, &seq), 0);
	return seq;
}

/* Match ids: each is position + @seed, so equal seeds share. */
static int __maybe_unused sh_match_piece(u32 cl, u64 seq, u32 start, u32 nr,
					 u32 flags, u32 seed)
{
	struct kvmm_match_arg *a = (struct kvmm_match_arg *)sh.args;
	u32 *ids = (u32 *)(a + 1), i;
	int err;

	*a = (struct kvmm_match_arg){ .seq = seq, .start = start, .nr_ids = nr,
				      .flags = flags };
	for (i = 0; i < nr; i++)
		ids[i] = start + i + seed;
	err = sh_submit(cl, KVMM_OP_SEQ_MATCH, 1, 0,
			(u32)sizeof(*a) + 4 * nr);
	if (!err)
		err = sh_seq_res(0);
	sh_settle();
	return err;
}

static int __maybe_unused sh_match(u32 cl, u64 seq, u32 nr, u32 seed)
{
	return sh_match_piece(cl, seq, 0, nr, KVMM_MATCH_LAST, seed);
}

/* Open and match a sequence, which must be READY then. */
static u64 __maybe_unused sh_ready(u32 cl, u32 prompt, u32 more, u32 seed)
{
	u64 seq = sh_open(cl, prompt, more);

	ck_assert_int_eq(sh_match(cl, seq, prompt, seed), 0);
	ck_assert_uint_eq(sh_state(cl, seq), KVMM_SEQ_READY);
	return seq;
}

static int __maybe_unused sh_close(u32 cl, u64 seq)
{
	struct kvmm_seq_arg *a = (struct kvmm_seq_arg *)sh.args;
	int err;

	a->seq = seq;
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_CLOSE, 1, 0, sizeof(*a)), 0);
	err = sh_seq_res(0);
	sh_settle();
	return err;
}

/* Make memory for the whole pool, and keep it in the client's tenant. */
static void __maybe_unused sh_warm(u32 cl)
{
	u32 all = (u32)(sh.cfg.pool_bytes / SH_EXTENT) * SH_PER * SH_BT;

	ck_assert_int_eq(sh_close(cl, sh_ready(cl, all, 0, 1 << 20)), 0);
}

/* Fork; @children gets @nr handles. */
static int __maybe_unused sh_fork(u32 cl, u64 seq, u32 nr, u64 *children)
{
	struct kvmm_fork_arg *a = (struct kvmm_fork_arg *)sh.args;
	const struct kvmm_open_res *res = (const void *)sh.results;
	u32 i;

	*a = (struct kvmm_fork_arg){ .seq = seq, .nr_children = nr };
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_SEQ_FORK, 1, 0, sizeof(*a)), 0);
	for (i = 0; i < nr; i++)
		children[i] = res[i].seq;
	sh_check();
	return res[0].status;
}

/* ---- steps ---- */

static struct kvmm_begin_arg __maybe_unused sh_entry(u32 cl, u64 seq, u32 start,
						     u32 tokens)
{
	return (struct kvmm_begin_arg){
		.seq = seq, .seq_epoch = sh_status(cl, seq)->seq_epoch,
		.start = start, .max_tokens = tokens,
	};
}

/* Begin the client's next step; results are copied to @res. */
static int __maybe_unused sh_begin_all(u32 cl, const struct kvmm_begin_arg *a,
				       u32 nr, struct kvmm_begin_res *res)
{
	int err;

	memcpy(sh.args, a, nr * sizeof(*a));
	err = sh_submit(cl, KVMM_OP_STEP_BEGIN, nr, ++sh.cl[cl].step,
			nr * sizeof(*a));
	memcpy(res, sh.results, nr * sizeof(*res));
	sh_settle();
	return err;
}

/* A step of one entry; returns the entry's status, the step stays open. */
static int __maybe_unused sh_begin(u32 cl, u64 seq, u32 start, u32 tokens)
{
	struct kvmm_begin_arg a = sh_entry(cl, seq, start, tokens);
	struct kvmm_begin_res res;

	ck_assert_int_eq(sh_begin_all(cl, &a, 1, &res), 0);
	return res.status;
}

/* End step @step, declaring @seq valid up to @len from @from on. */
static int __maybe_unused sh_end_step(u32 cl, u64 step, u64 seq, u32 from,
				      u32 len, u32 seed)
{
	struct kvmm_end_arg *a = (struct kvmm_end_arg *)sh.args;
	const struct kvmm_end_res *res = (const void *)sh.results;
	u32 *ids = (u32 *)(a + 1), i;

	*a = (struct kvmm_end_arg){ .seq = seq, .valid_len = len,
				    .nr_ids = len - from };
	for (i = from; i < len; i++)
		ids[i - from] = i + seed;
	ck_assert_int_eq(sh_submit(cl, KVMM_OP_STEP_END, 1, step,
				   (u32)sizeof(*a) + 4 * (len - from)), 0);
	i = (u32)res->status;
	sh_settle();
	return (int)i;
}

/* End the client's newest step, the only open one. */
static int __maybe_unused sh_end(u32 cl, u64 seq, u32 from, u32 len, u32 seed)
{
	return sh_end_step(cl, sh.cl[cl].step, seq, from, len, seed);
}

/* End a step that declares nothing. */
static int __maybe_unused sh_end_empty(u32 cl, u64 step)
{
	int err = sh_submit(cl, KVMM_OP_STEP_END, 0, step, 0);

	sh_settle();
	return err;
}

/* Compute positions @from to @to - 1 in one step; they must be granted. */
static void __maybe_unused sh_compute(u32 cl, u64 seq, u32 from, u32 to,
				      u32 seed)
{
	ck_assert_int_eq(sh_begin(cl, seq, from, to - from), 0);
	ck_assert_int_eq(sh_end(cl, seq, from, to, seed), 0);
}

/* Are both of the same attachment?  Facts that only an attach tells are left out. */
static bool __maybe_unused sh_same_attachment(const struct core_attach_info *a,
					      const struct core_attach_info *b)
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

/* ---- state ---- */

static u64 __maybe_unused sh_count(enum core_event ev)
{
	u64 counts[NR_CORE_EVENTS];

	core_get_events(sh.core, counts);
	return counts[ev];
}

static struct core_pool_view __maybe_unused sh_pool(void)
{
	struct core_pool_view v;

	core_get_pool(sh.core, &v);
	return v;
}

static struct core_domain_view __maybe_unused sh_domain(u32 cl)
{
	struct core_domain_view v;

	ck_assert_int_eq(core_get_domain(sh.core, sh.cl[cl].info.domain, &v),
			 0);
	return v;
}

/* Entry @idx of a sequence's shadow table. */
static u32 __maybe_unused sh_table(u32 cl, u64 seq, u32 idx)
{
	u32 page = sh_status(cl, seq)->table[0];

	for (; idx >= KVMM_TABLE_ENTRIES; idx -= KVMM_TABLE_ENTRIES)
		page = sh.cl[cl].tables[page].next;
	return sh.cl[cl].tables[page].entry[idx];
}

static int __maybe_unused sh_run(Suite *s)
{
	SRunner *sr = srunner_create(s);
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif /* CORE_SHELL_H */
