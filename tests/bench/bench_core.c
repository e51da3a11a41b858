// SPDX-License-Identifier: Apache-2.0
/*
 * bench_core.c - costs of the core, alone on one core
 *
 * No daemon, no ring, no other thread: a core in an arena, one client with
 * segments in ordinary memory, and the very functions that the mm thread
 * calls.  The pool is 65,536 blocks of 2 MiB; only their records exist.
 *
 * Times of a busy machine say little, so each figure has a peer that is measured
 * in turns with it.  The peer of a grant is the plainest free list that keeps a
 * reference count in a record of the same 64 bytes.  The peer of a request is to
 * read and copy as many bytes as its arguments, results and tables have.  A
 * ratio far above the last one seen is a regression on any machine.  If vLLM is
 * available (KVMM_VLLM names a checkout, or it is installed), its block pool is
 * one more peer of grants and cache hits.
 */
#include <stdlib.h>
#include <string.h>

#include "kvmm/core/node/node.h"
#include "tests/bench/bench.h"
#include "tests/bench/vllm.h"

#define ROUNDS		9
#define EXTENT		(64ull << 20)
#define POOL		(128ull << 30)
#define BLOCKS		65536u
#define BT		16u
#define BATCH		256u
#define SEQS		1024u
#define TABLES		8192u
#define EVENTS		4096u
#define CACHED		256u
#define HIT_ROUNDS	4096u
#define VLLM_PAIRS	(1u << 15)	/* fewer: Python */
#define VLLM_HIT_ROUNDS	128u

/* ---- the smallest shell ---- */

static struct kvmm_daemon_ctl ctl;
static struct kvmm_seq_status statuses[SEQS];
static struct kvmm_extent_status extents[POOL / EXTENT];
static struct kvmm_table_page tables[TABLES];
static struct kvmm_event events[EVENTS];
static u64 args[1 << 19];
static u64 results[1 << 14];
static u32 made[POOL / EXTENT], nr_made;
static u32 sent[POOL / EXTENT], nr_sent;

static void op_create(void *arg, u32 extent, u32 generation)
{
	made[nr_made++] = extent;
}

static void op_release(void *arg, u32 extent)
{
}

static void op_send(void *arg, u32 client, u32 extent, u32 generation)
{
	sent[nr_sent++] = extent;
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

static struct core *core;
static u64 now = 1000000000, number, step;
static u32 dom;

/* Execute a request on args[], of @len bytes; its results are in results[]. */
static int request(u16 op, u32 nr, u32 len)
{
	struct kvmm_sqe sqe = { .op = op, .nr = nr, .number = ++number,
				.arg_len = len };
	struct core_req req;
	int err;

	if (op == KVMM_OP_STEP_BEGIN || op == KVMM_OP_STEP_END)
		sqe.step = step;
	now += 1000;
	err = core_req_check(core, 0, &sqe, args, len, &req);
	if (err)
		return err;
	return core_req_execute(core, now, 0, &req, results);
}

static void must(int err, const char *what)
{
	if (err)
		bench_die("%s: %s", what, strerror(-err));
}

/* Make extents and acknowledge them, until the core asks for no more. */
static void settle(void)
{
	while (nr_made || nr_sent) {
		while (nr_made)
			core_extent_created(core, now, made[--nr_made], 0);
		while (nr_sent) {
			u32 e = sent[--nr_sent];
			struct kvmm_ack_arg *a = (void *)args;

			*a = (struct kvmm_ack_arg){
				.extent = e, .what = KVMM_ACK_MAP,
				.generation = core->extents[e].generation };
			must(request(KVMM_OP_EXTENT_ACK, 1, sizeof(*a)),
			     "EXTENT_ACK");
		}
	}
}

static void start(void)
{
	struct core_config cfg = {
		.pool_bytes = POOL, .extent_size = EXTENT,
		.min_token_bytes = 131072, .max_tenants = 1, .max_domains = 1,
		.max_clients = 1, .max_seqs = SEQS, .nr_tables = TABLES,
		.nr_idpages = 16384, .max_steps = 4,
		.step_deadline_ns = 1ull << 62, .quiet_deadline_ns = 1ull << 62,
		.starve_ns = 1ull << 62,
	};
	struct kvmm_attach_req req = {
		.magic = KVMM_ATTACH_MAGIC, .abi_version = KVMM_ABI_VERSION,
		.layout_hash = KVMM_LAYOUT_HASH, .domain = "bench",
		.block_tokens = BT, .nr_shards = 1, .nr_groups = 1,
		.max_steps = 4, .weight = 100,
		.group[0] = { .layers = 32, .kv_heads = 8, .k_bytes = 256,
			      .v_bytes = 256 },
		.limits[0] = { .max = KVMM_LIMIT_MAX },
	};
	struct core_bind bind = {
		.ctl = &ctl, .seqs = statuses, .extents = extents,
		.tables = tables, .events = events, .nr_events = EVENTS,
	};
	u64 bytes = core_arena_size(&cfg);
	u8 secret[CORE_SECRET_LEN] = { 1 };
	struct core_attach_info info;
	void *arena;

	core = calloc(1, core_struct_size());
	arena = aligned_alloc(64, ALIGN_UP(bytes, 64ull));
	if (!bytes || !core || !arena)
		bench_die("no arena of %llu bytes", (unsigned long long)bytes);
	memset(arena, 0, bytes);
	must(core_init(core, arena, bytes, &cfg, &ops, NULL), "core_init");
	must(core_client_attach(core, now, 0, secret, &req, &info), "attach");
	core_client_bind(core, info.client, &bind);
	dom = info.domain;
	settle();
}

/* ---- sequences ---- */

/* Open a sequence of @prompt + @more tokens.  Return: READY, no token computed. */
static u64 seq_ready(u32 prompt, u32 more, u32 seed)
{
	struct kvmm_open_arg *o = (void *)args;
	struct kvmm_match_arg *m = (void *)args;
	u32 *ids = (u32 *)(m + 1), i;
	u64 seq;

	*o = (struct kvmm_open_arg){ .prompt_len = prompt, .max_tokens = more };
	must(request(KVMM_OP_SEQ_OPEN, 1, sizeof(*o)), "SEQ_OPEN");
	must(((struct kvmm_open_res *)results)->status, "SEQ_OPEN");
	seq = ((struct kvmm_open_res *)results)->seq;
	*m = (struct kvmm_match_arg){ .seq = seq, .nr_ids = prompt,
				      .flags = KVMM_MATCH_LAST };
	for (i = 0; i < prompt; i++)
		ids[i] = seed + i;
	must(request(KVMM_OP_SEQ_MATCH, 1, (u32)sizeof(*m) + 4 * prompt),
	     "SEQ_MATCH");
	settle();
	if (statuses[KVMM_SEQ_INDEX(seq)].state != KVMM_SEQ_READY)
		bench_die("a sequence did not become ready");
	return seq;
}

static void step_begin_all(const u64 *seqs, u32 nr, u32 start, u32 tokens)
{
	struct kvmm_begin_arg *a = (void *)args;
	u32 i;

	for (i = 0; i < nr; i++)
		a[i] = (struct kvmm_begin_arg){ .seq = seqs[i], .start = start,
						.max_tokens = tokens };
	step++;
	must(request(KVMM_OP_STEP_BEGIN, nr, nr * (u32)sizeof(*a)),
	     "STEP_BEGIN");
}

static void step_end_all(const u64 *seqs, u32 nr, u32 start, u32 tokens)
{
	struct kvmm_end_arg *a = (void *)args;
	u32 *ids = (u32 *)(a + nr), i, n;

	for (i = 0; i < nr; i++) {
		a[i] = (struct kvmm_end_arg){ .seq = seqs[i],
					      .valid_len = start + tokens,
					      .nr_ids = tokens };
		for (n = 0; n < tokens; n++)
			*ids++ = start + n + 100000 * i;
	}
	must(request(KVMM_OP_STEP_END, nr,
		     nr * ((u32)sizeof(*a) + 4 * tokens)), "STEP_END");
}

static void compute(u64 seq, u32 tokens)
{
	u32 at, nr;

	for (at = 0; at < tokens; at += nr) {
		nr = min(tokens - at, 8192u);
		step_begin_all(&seq, 1, at, nr);
		settle();
		step_end_all(&seq, 1, at, nr);
	}
}

static u64 seq_computed(u32 tokens)
{
	u64 seq = seq_ready(tokens, BT, 77);

	compute(seq, tokens);
	return seq;
}

static void close_all(const u64 *seqs, u32 nr)
{
	memcpy(args, seqs, 8 * nr);
	must(request(KVMM_OP_SEQ_CLOSE, nr, 8 * nr), "SEQ_CLOSE");
}

/* ---- grants ---- */

/* A free list and a reference count, and no more. */
struct plain {
	u32	next;
	u32	refcount;
	u8	pad[56];
};

static struct plain plain[BLOCKS];
static u32 plain_head;

static u32 plain_get(void)
{
	u32 i = plain_head;

	plain_head = plain[i].next;
	plain[i].refcount = 1;
	return i;
}

static void plain_put(u32 i)
{
	plain[i].refcount = 0;
	plain[i].next = plain_head;
	plain_head = i;
}

static void plain_room(u32 nr)
{
}

/* Room for all blocks first, as a grant does it. */
static void core_room(u32 nr)
{
	must(room_plan(core, dom, nr, 0), "room_plan");
}

static u32 core_get(void)
{
	u32 blk = block_alloc(core, dom, 0, 0);

	block_map(core, blk);
	return blk;
}

static void core_put(u32 blk)
{
	block_unmap(core, blk);
}

/* Nanoseconds of a get and a put; @batch blocks are taken before one is given back. */
static double pairs(void (*room)(u32), u32 (*get)(void), void (*put)(u32),
		    u32 batch)
{
	static u32 held[BATCH];
	const u32 rounds = (1u << 20) / batch;
	u64 from = bench_ticks();
	u32 r, i;

	for (r = 0; r < rounds; r++) {
		room(batch);
		for (i = 0; i < batch; i++)
			held[i] = get();
		for (i = 0; i < batch; i++)
			put(held[i]);
	}
	return (double)(bench_ticks() - from) * bench_tick_ns() /
	       ((double)rounds * batch);
}

/* Rounds of the core and of its peer, taken in turns, in nanoseconds. */
struct duel {
	double	ours[ROUNDS];
	double	peer[ROUNDS];
};

static void duel_report(const struct duel *d, const char *name,
			const char *unit, const char *peer, double max_value)
{
	double lo, hi;
	struct bench_figure f = {
		.name = name, .value = bench_median(d->ours, ROUNDS),
		.unit = unit, .peer = peer,
		.peer_value = bench_median(d->peer, ROUNDS),
		.max_value = max_value,
	};

	bench_report(&f);
	bench_range(d->ours, ROUNDS, &lo, &hi);
	printf("%-28s %.3f to %.3f %s over %u rounds\n", name, lo, hi, unit,
	       ROUNDS);
}

static const char *vllm;	/* its name, or NULL if it is not available */

/* Report @d again, beside vLLM's rounds. */
static void vllm_report(const struct duel *d, const double *rounds,
			const char *name)
{
	struct bench_figure f = {
		.value = bench_median(d->ours, ROUNDS), .unit = "ns",
		.peer = vllm, .peer_value = bench_median(rounds, ROUNDS),
	};
	char text[64];
	double lo, hi;

	if (!vllm)
		return;
	snprintf(text, sizeof(text), "%s_vllm", name);
	f.name = text;
	bench_report(&f);
	bench_range(rounds, ROUNDS, &lo, &hi);
	printf("%-28s %.0f to %.0f ns over %u rounds of vLLM\n", text, lo, hi,
	       ROUNDS);
}

static void bench_grants(u32 batch, const char *name, double aim)
{
	double theirs[ROUNDS];
	struct duel d;
	u32 r;

	for (r = 0; r < ROUNDS; r++) {
		d.ours[r] = pairs(core_room, core_get, core_put, batch);
		d.peer[r] = pairs(plain_room, plain_get, plain_put, batch);
		if (vllm)
			theirs[r] = vllm_pairs(VLLM_PAIRS / batch, batch);
	}
	duel_report(&d, name, "ns", "free list and count", aim);
	vllm_report(&d, theirs, name);
}

/* ---- hits ---- */

/* The names and ids of blocks that the index has cached. */
struct cached {
	u64	hash[CACHED][2];
	u32	ids[CACHED][BT];
	u32	blk[CACHED];
	u32	nr;
};

static void cached_find(struct cached *all)
{
	u32 i;

	all->nr = 0;
	for (i = 0; i < BLOCKS && all->nr < CACHED; i++) {
		if (core->blocks[i].state != BLK_CACHED)
			continue;
		memcpy(all->hash[all->nr], index_name(core, i), 16);
		memcpy(all->ids[all->nr], block_ids(core, i), 4 * BT);
		all->blk[all->nr++] = i;
	}
	if (all->nr != CACHED)
		bench_die("only %u blocks are cached", all->nr);
}

/* Nanoseconds of finding a cached block, taking it and giving it back. */
static double hits(const struct cached *all)
{
	u64 from = bench_ticks();
	u32 r, i, blk;

	for (r = 0; r < HIT_ROUNDS; r++)
		for (i = 0; i < CACHED; i++) {
			blk = index_lookup(core, dom, 0, all->hash[i],
					   all->ids[i]);
			if (blk != all->blk[i])
				bench_die("a cached block is not found");
			block_map(core, blk);
			block_unmap(core, blk);
		}
	return (double)(bench_ticks() - from) * bench_tick_ns() /
	       ((double)HIT_ROUNDS * CACHED);
}

/* The same without finding anything: an array, its order and a count. */
static double plain_hits(const struct cached *all)
{
	u64 from = bench_ticks();
	u32 r, i;

	for (r = 0; r < HIT_ROUNDS; r++)
		for (i = 0; i < CACHED; i++) {
			u32 blk = all->blk[i];

			plain[blk].refcount++;
			__asm__ volatile("" : : : "memory");
			plain[blk].refcount--;
			__asm__ volatile("" : : : "memory");
		}
	return (double)(bench_ticks() - from) * bench_tick_ns() /
	       ((double)HIT_ROUNDS * CACHED);
}

static void bench_hits(void)
{
	static struct cached all;
	double theirs[ROUNDS];
	struct duel d;
	u32 r;

	close_all((u64[]){ seq_computed(CACHED * BT) }, 1);
	cached_find(&all);
	for (r = 0; r < ROUNDS; r++) {
		d.ours[r] = hits(&all);
		d.peer[r] = plain_hits(&all);
		if (vllm)
			theirs[r] = vllm_hits(VLLM_HIT_ROUNDS);
	}
	duel_report(&d, "core_cache_hit", "ns", "a count in an array", 0);
	vllm_report(&d, theirs, "core_cache_hit");
}

/* ---- requests ---- */

static u8 from_bytes[1 << 20], to_bytes[1 << 20];

/* Microseconds of copying @bytes: the cost of moving the data alone. */
static double copy_us(u64 bytes)
{
	u64 from = bench_ticks(), n;

	for (n = 0; n < bytes; n += sizeof(to_bytes)) {
		memcpy(to_bytes, from_bytes, min(bytes - n, sizeof(to_bytes)));
		__asm__ volatile("" : : : "memory");
	}
	return (double)(bench_ticks() - from) * bench_tick_ns() / 1000;
}

static double since_us(u64 ticks)
{
	return (double)(bench_ticks() - ticks) * bench_tick_ns() / 1000;
}

/* A decode step of @nr sequences: begin and end. */
static void bench_step(u32 nr, const char *name, double aim)
{
	const u64 moved = nr * (sizeof(struct kvmm_begin_arg) +
				sizeof(struct kvmm_begin_res) +
				sizeof(struct kvmm_end_arg) + 4 +
				sizeof(struct kvmm_end_res) +
				sizeof(struct kvmm_seq_status));
	const u32 steps = 16 * BT;
	static u64 seqs[SEQS];
	struct duel d;
	u32 r, i, at;

	for (r = 0; r < ROUNDS; r++) {
		double us = 0;

		for (i = 0; i < nr; i++)
			seqs[i] = seq_ready(64, steps, 1000000 * r + 1000 * i);
		step_begin_all(seqs, nr, 0, 64);
		settle();
		step_end_all(seqs, nr, 0, 64);
		for (at = 64; at < 64 + steps; at++) {
			u64 from = bench_ticks();

			step_begin_all(seqs, nr, at, 1);
			step_end_all(seqs, nr, at, 1);
			us += since_us(from);
		}
		d.ours[r] = us / steps;
		d.peer[r] = copy_us(moved);
		close_all(seqs, nr);
	}
	duel_report(&d, name, "us", "copying its bytes", aim);
}

/* Forks of a sequence of @blocks blocks, @nr children at once. */
static void bench_fork(u32 blocks, u32 nr, const char *name)
{
	const u64 table = blocks * (sizeof(kv_pte_t) + sizeof(u32));
	struct kvmm_fork_arg *a = (void *)args;
	u64 seq = seq_computed(blocks * BT - 8);
	struct kvmm_open_res *res = (void *)results;
	static u64 kids[64];
	struct duel d;
	u32 r, i;

	for (r = 0; r < ROUNDS; r++) {
		u64 from;

		*a = (struct kvmm_fork_arg){ .seq = seq, .nr_children = nr };
		from = bench_ticks();
		must(request(KVMM_OP_SEQ_FORK, 1, sizeof(*a)), "SEQ_FORK");
		d.ours[r] = since_us(from) / nr;
		must(res->status, "SEQ_FORK");
		for (i = 0; i < nr; i++)
			kids[i] = res[i].seq;
		d.peer[r] = copy_us(table * nr) / nr;
		close_all(kids, nr);
	}
	close_all(&seq, 1);
	duel_report(&d, name, "us", "copying its table", 0);
}

/* ---- memory ---- */

static void report_metadata(void)
{
	const struct core_sizes *s = core_sizes(core);
	const u64 tables_bytes = s->nr_tpages * sizeof(struct kv_tpage);
	const u64 clients = s->nr_seqs * sizeof(struct kv_seq) +
			    s->nr_step_entries * sizeof(struct kv_step_entry) +
			    s->nr_idpages * sizeof(struct kv_idpage);
	/* Their size does not depend on the pool. */
	const u64 samples = LIFE_SAMPLES * sizeof(struct kv_sample);
	struct bench_figure f = {
		.name = "core_metadata_per_block", .unit = "bytes",
		.value = (double)(core->head->bytes - tables_bytes - clients - samples -
				  4 * s->nr_ids) / s->nr_blocks,
		.max_value = 96,
	};

	bench_report(&f);
}

int main(void)
{
	u32 i;

	for (i = 0; i < BLOCKS; i++)
		plain[i].next = (i + 1) % BLOCKS;
	vllm = vllm_start(BLOCKS);
	start();
	report_metadata();
	/* Make and map all memory before the first measurement. */
	close_all((u64[]){ seq_ready(BLOCKS / 2 * BT, 0, 5) }, 1);
	bench_grants(1, "core_grant_pair", 50);
	bench_grants(BATCH, "core_grant_pair_256", 20);
	bench_hits();
	bench_step(1, "core_step_1", 0);
	bench_step(64, "core_step_64", 0);
	bench_step(256, "core_step_256", 20);
	bench_fork(4096, 16, "core_fork_child_4096");
	bench_fork(64, 16, "core_fork_child_64");
	return 0;
}
