// SPDX-License-Identifier: Apache-2.0
/*
 * bench_core.c - costs of the core, alone on one core
 *
 * The core has the smallest shell (shell.h).  The pool is 65,536 blocks of 2 MiB;
 * only their records exist.
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

#include "tests/bench/bench.h"
#include "tests/bench/shell.h"
#include "tests/bench/vllm.h"

#define ROUNDS		9
#define EXTENT		(64ull << 20)
#define POOL		(128ull << 30)
#define BLOCKS		65536u
#define BT		SHELL_BT
#define BATCH		256u
#define CACHED		256u
#define HIT_ROUNDS	4096u
#define VLLM_PAIRS	(1u << 15)	/* fewer: Python */
#define VLLM_HIT_ROUNDS	128u

static struct shell *sh;
static struct core *core;

static void start(void)
{
	const struct kvmm_group group = {
		.layers = 32, .kv_heads = 8, .k_bytes = 256, .v_bytes = 256 };

	sh = shell_start(POOL, EXTENT, 1, &group, 0);
	core = sh->core;
}

static u64 seq_computed(u32 tokens)
{
	u64 seq = shell_ready(sh, tokens, BT, 77);

	shell_compute(sh, seq, 0, tokens, SHELL_CHUNK);
	return seq;
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
	if (room_plan(core, sh->dom, nr, 0))
		bench_die("no room for %u blocks", nr);
}

static u32 core_get(void)
{
	u32 blk = block_alloc(core, sh->dom, 0, 0);

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
			blk = index_lookup(core, sh->dom, 0, all->hash[i],
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

	shell_close(sh, (u64[]){ seq_computed(CACHED * BT) }, 1);
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
	static u64 seqs[SHELL_SEQS];
	struct duel d;
	u32 r, i, at;

	for (r = 0; r < ROUNDS; r++) {
		double us = 0;

		for (i = 0; i < nr; i++)
			seqs[i] = shell_ready(sh, 64, steps, 1000000 * r + 1000 * i);
		shell_begin(sh, seqs, nr, 0, 64);
		shell_settle(sh);
		shell_end(sh, seqs, nr, 0, 64);
		for (at = 64; at < 64 + steps; at++) {
			u64 from = bench_ticks();

			shell_begin(sh, seqs, nr, at, 1);
			shell_end(sh, seqs, nr, at, 1);
			us += since_us(from);
		}
		d.ours[r] = us / steps;
		d.peer[r] = copy_us(moved);
		shell_close(sh, seqs, nr);
	}
	duel_report(&d, name, "us", "copying its bytes", aim);
}

/* Forks of a sequence of @blocks blocks, @nr children at once. */
static void bench_fork(u32 blocks, u32 nr, const char *name)
{
	const u64 table = blocks * (sizeof(kv_pte_t) + sizeof(u32));
	struct kvmm_fork_arg *a = (void *)sh->args;
	u64 seq = seq_computed(blocks * BT - 8);
	struct kvmm_open_res *res = (void *)sh->results;
	static u64 kids[64];
	struct duel d;
	u32 r, i;

	for (r = 0; r < ROUNDS; r++) {
		u64 from;

		*a = (struct kvmm_fork_arg){ .seq = seq, .nr_children = nr };
		from = bench_ticks();
		shell_must(sh, KVMM_OP_SEQ_FORK, 1, sizeof(*a), "SEQ_FORK");
		d.ours[r] = since_us(from) / nr;
		if (res->status)
			bench_die("SEQ_FORK: %s", strerror(-res->status));
		for (i = 0; i < nr; i++)
			kids[i] = res[i].seq;
		d.peer[r] = copy_us(table * nr) / nr;
		shell_close(sh, kids, nr);
	}
	shell_close(sh, &seq, 1);
	duel_report(&d, name, "us", "copying its table", 0);
}

/* ---- memory ---- */

/* The bytes that a pool twice as large adds to the arena, without token ids, by block. */
static void report_metadata(void)
{
	const struct core_sizes *s = core_sizes(core);
	struct core_config twice = *core_cfg(core);
	struct bench_figure f = {
		.name = "core_metadata_per_block", .unit = "bytes", .max_value = 96,
	};

	twice.pool_bytes *= 2;
	f.value = (double)(core_arena_size(&twice) - core->head->bytes - 4 * s->nr_ids) /
		  s->nr_blocks;
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
	shell_close(sh, (u64[]){ shell_ready(sh, BLOCKS / 2 * BT, 0, 5) }, 1);
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
