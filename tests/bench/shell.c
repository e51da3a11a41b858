// SPDX-License-Identifier: Apache-2.0
/*
 * shell.c - the smallest shell around a core, for benchmarks of its requests
 */
#include <stdlib.h>
#include <string.h>

#include "tests/bench/bench.h"
#include "tests/bench/shell.h"

#define ARGS		(1u << 19)	/* words of 8 bytes */
#define RESULTS		(1u << 16)
#define TABLES		8192u

static void op_create(void *arg, u32 extent, u32 generation)
{
	struct shell *sh = arg;

	sh->made[sh->nr_made++] = extent;
}

static void op_release(void *arg, u32 extent)
{
}

static void op_send(void *arg, u32 client, u32 extent, u32 generation)
{
	struct shell *sh = arg;

	sh->sent[sh->nr_sent++] = extent;
}

static void op_wake(void *arg, u32 client)
{
}

static void op_kill(void *arg, u32 client, int reason)
{
	bench_die("the core killed the client");
}

static const struct core_ops ops = {
	.extent_create = op_create, .extent_release = op_release,
	.extent_send = op_send, .wake = op_wake, .kill = op_kill,
};

int shell_request(struct shell *sh, u16 op, u32 nr, u32 len)
{
	struct kvmm_sqe sqe = { .op = op, .nr = nr, .number = ++sh->number,
				.arg_len = len };
	struct core_req req;
	int err;

	if (op == KVMM_OP_STEP_BEGIN || op == KVMM_OP_STEP_END)
		sqe.step = sh->step;
	sh->now += 1000;
	err = core_req_check(sh->core, 0, &sqe, sh->args, len, &req);
	if (err)
		return err;
	return core_req_execute(sh->core, sh->now, 0, &req, sh->results);
}

void shell_must(struct shell *sh, u16 op, u32 nr, u32 len, const char *what)
{
	int err = shell_request(sh, op, nr, len);

	if (err)
		bench_die("%s: %s", what, strerror(-err));
}

void shell_settle(struct shell *sh)
{
	struct kvmm_ack_arg *a = (void *)sh->args;

	while (sh->nr_made || sh->nr_sent) {
		while (sh->nr_made)
			core_extent_created(sh->core, sh->now,
					    sh->made[--sh->nr_made], 0);
		while (sh->nr_sent) {
			u32 e = sh->sent[--sh->nr_sent];

			*a = (struct kvmm_ack_arg){
				.extent = e, .what = KVMM_ACK_MAP,
				.generation = sh->core->extents[e].generation };
			shell_must(sh, KVMM_OP_EXTENT_ACK, 1, sizeof(*a),
				   "EXTENT_ACK");
		}
	}
}

/* ---- start and end ---- */

static void *zeros(u64 nr, u64 size)
{
	void *p = calloc(nr, size);

	if (!p)
		bench_die("no memory for a shell");
	return p;
}

/* The least bytes of a token that the core is started for: a power of two. */
static u32 least_token(u32 nr_groups, const struct kvmm_group *group)
{
	u32 g, token = 1u << 31;

	for (g = 0; g < nr_groups; g++)
		while (token > group[g].layers * group[g].kv_heads *
			       (group[g].k_bytes + group[g].v_bytes))
			token /= 2;
	return token;
}

static void core_start(struct shell *sh, u64 pool, u64 extent, u32 token)
{
	struct core_config cfg = {
		.pool_bytes = pool, .extent_size = extent,
		.min_token_bytes = token, .max_tenants = 1, .max_domains = 1,
		.max_clients = 1, .max_seqs = SHELL_SEQS, .nr_tables = TABLES,
		.nr_idpages = 16384, .max_steps = 4,
		.step_deadline_ns = 1ull << 62, .quiet_deadline_ns = 1ull << 62,
		.starve_ns = 1ull << 62,
	};
	u64 bytes = core_arena_size(&cfg);

	sh->core = zeros(1, core_struct_size());
	sh->arena = aligned_alloc(64, ALIGN_UP(bytes, 64ull));
	if (!bytes || !sh->arena)
		bench_die("no arena of %llu bytes", (unsigned long long)bytes);
	memset(sh->arena, 0, bytes);
	if (core_init(sh->core, sh->arena, bytes, &cfg, &ops, sh))
		bench_die("the core does not start");
}

static void attach(struct shell *sh, u32 nr_groups, const struct kvmm_group *group,
		   u32 step_tokens)
{
	struct kvmm_attach_req req = {
		.magic = KVMM_ATTACH_MAGIC, .abi_version = KVMM_ABI_VERSION,
		.layout_hash = KVMM_LAYOUT_HASH, .domain = "bench",
		.block_tokens = SHELL_BT, .nr_shards = 1, .nr_groups = nr_groups,
		.max_steps = 4, .weight = 100, .step_tokens = step_tokens,
		.limits[0] = { .max = KVMM_LIMIT_MAX },
	};
	struct core_bind bind = {
		.ctl = &sh->ctl, .seqs = sh->statuses, .extents = sh->extents,
		.tables = sh->tables, .events = sh->events,
		.nr_events = SHELL_EVENTS,
	};
	u8 secret[CORE_SECRET_LEN] = { 1 };
	struct core_attach_info info;

	memcpy(req.group, group, nr_groups * sizeof(*group));
	if (core_client_attach(sh->core, sh->now, 0, secret, &req, &info))
		bench_die("attach: %s", info.text);
	core_client_bind(sh->core, info.client, &bind);
	sh->dom = info.domain;
}

struct shell *shell_start(u64 pool, u64 extent, u32 nr_groups,
			  const struct kvmm_group *group, u32 step_tokens)
{
	struct shell *sh = zeros(1, sizeof(*sh));
	u64 nr = pool / extent;

	sh->now = 1000000000;
	sh->extents = zeros(nr, sizeof(*sh->extents));
	sh->tables = zeros(TABLES, sizeof(*sh->tables));
	sh->args = zeros(ARGS, 8);
	sh->results = zeros(RESULTS, 8);
	sh->made = zeros(nr, sizeof(*sh->made));
	sh->sent = zeros(nr, sizeof(*sh->sent));
	core_start(sh, pool, extent, least_token(nr_groups, group));
	attach(sh, nr_groups, group, step_tokens);
	shell_settle(sh);
	return sh;
}

void shell_stop(struct shell *sh)
{
	struct core_report report;

	if (core_check(sh->core, &report))
		bench_die("walkers: %s", report.text);
	free(sh->core);
	free(sh->arena);
	free(sh->extents);
	free(sh->tables);
	free(sh->args);
	free(sh->results);
	free(sh->made);
	free(sh->sent);
	free(sh);
}

/* ---- sequences ---- */

u64 shell_open(struct shell *sh, u32 prompt, u32 more, u32 seed)
{
	const struct kvmm_open_res *res = (void *)sh->results;
	struct kvmm_open_arg *o = (void *)sh->args;
	struct kvmm_match_arg *m = (void *)sh->args;
	u32 *ids = (u32 *)(m + 1), i;
	u64 seq;

	*o = (struct kvmm_open_arg){ .prompt_len = prompt, .max_tokens = more };
	shell_must(sh, KVMM_OP_SEQ_OPEN, 1, sizeof(*o), "SEQ_OPEN");
	if (res->status)
		bench_die("SEQ_OPEN: %s", strerror(-res->status));
	seq = res->seq;
	*m = (struct kvmm_match_arg){ .seq = seq, .nr_ids = prompt,
				      .flags = KVMM_MATCH_LAST };
	for (i = 0; i < prompt; i++)
		ids[i] = seed + i;
	shell_must(sh, KVMM_OP_SEQ_MATCH, 1, (u32)sizeof(*m) + 4 * prompt,
		   "SEQ_MATCH");
	shell_settle(sh);
	return seq;
}

u64 shell_ready(struct shell *sh, u32 prompt, u32 more, u32 seed)
{
	u64 seq = shell_open(sh, prompt, more, seed);

	if (sh->statuses[KVMM_SEQ_INDEX(seq)].state != KVMM_SEQ_READY)
		bench_die("a sequence did not become ready");
	return seq;
}

void shell_begin(struct shell *sh, const u64 *seqs, u32 nr, u32 start, u32 tokens)
{
	struct kvmm_begin_arg *a = (void *)sh->args;
	u32 i;

	for (i = 0; i < nr; i++)
		a[i] = (struct kvmm_begin_arg){ .seq = seqs[i], .start = start,
						.max_tokens = tokens };
	sh->step++;
	shell_must(sh, KVMM_OP_STEP_BEGIN, nr, nr * (u32)sizeof(*a), "STEP_BEGIN");
}

static bool all_granted(const struct shell *sh, u32 nr)
{
	const struct kvmm_begin_res *res = (void *)sh->results;
	u32 i;

	for (i = 0; i < nr; i++)
		if (res[i].status)
			return false;
	return true;
}

bool shell_begin_mapped(struct shell *sh, const u64 *seqs, u32 nr, u32 start,
			u32 tokens)
{
	const u32 nr_groups = sh->core->domains[sh->dom].nr_groups;
	bool granted, asked = true;

	while (asked) {
		shell_begin(sh, seqs, nr, start, tokens);
		granted = all_granted(sh, nr * nr_groups);
		asked = sh->nr_made || sh->nr_sent;
		shell_settle(sh);
		if (granted)
			return true;
		shell_end(sh, seqs, 0, start, tokens);
	}
	return false;
}

void shell_end(struct shell *sh, const u64 *seqs, u32 nr, u32 start, u32 tokens)
{
	struct kvmm_end_arg *a = (void *)sh->args;
	u32 *ids = (u32 *)(a + nr), i, n;

	for (i = 0; i < nr; i++) {
		a[i] = (struct kvmm_end_arg){ .seq = seqs[i],
					      .valid_len = start + tokens,
					      .nr_ids = tokens };
		for (n = 0; n < tokens; n++)
			*ids++ = sh->salt + start + n + 100000 * i;
	}
	shell_must(sh, KVMM_OP_STEP_END, nr,
		   nr * ((u32)sizeof(*a) + 4 * tokens), "STEP_END");
}

void shell_compute(struct shell *sh, u64 seq, u32 from, u32 to, u32 chunk)
{
	u32 nr;

	for (; from < to; from += nr) {
		nr = min(to - from, chunk);
		if (!shell_begin_mapped(sh, &seq, 1, from, nr))
			bench_die("a step was not granted");
		shell_end(sh, &seq, 1, from, nr);
	}
}

void shell_close(struct shell *sh, const u64 *seqs, u32 nr)
{
	memcpy(sh->args, seqs, 8 * nr);
	shell_must(sh, KVMM_OP_SEQ_CLOSE, nr, 8 * nr, "SEQ_CLOSE");
}
