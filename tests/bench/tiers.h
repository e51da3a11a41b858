/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tiers.h - whole sequences through the tiers, for bench_tiers
 *
 *	tiers_node.c	a real daemon with a host pool and an area, its one
 *			client, and the counters of the stages in its files
 *	tiers_naive.c	the same bytes by blocking calls, one piece at a time
 *
 * A sequence has TIERS_BLOCKS blocks of TIERS_BLOCK bytes: 16 tokens of Llama 3
 * 8B in bf16, 64 KiB a layer.
 */
#ifndef TESTS_BENCH_TIERS_H
#define TESTS_BENCH_TIERS_H

#include "tests/bench/bench.h"

#define TIERS_BLOCKS	512u
#define TIERS_TOKENS	16u		/* of a block */
#define TIERS_LAYERS	32u
#define TIERS_LAYER	(64u << 10)	/* bytes, of a block */
#define TIERS_BLOCK	((u64)TIERS_LAYERS * TIERS_LAYER)
#define TIERS_BYTES	(TIERS_BLOCKS * TIERS_BLOCK)

/* Content of block @i of the sequence @seed; all its words differ. */
void tiers_fill(u64 *block, u64 seed, u32 i);
/* End the benchmark if the block holds anything else. */
void tiers_verify(const u64 *block, u64 seed, u32 i, const char *who);

/* ---- tiers_node.c ---- */

/* Values in a node's files; they only rise. */
#define TIERS_STATS(x)							\
	x(copy_out_bytes) x(copy_out_ns) x(copy_in_bytes) x(copy_in_ns)	\
	x(swapd_reads) x(swapd_writes) x(swapd_submits) x(pid)

/**
 * struct tiers_stats - counters of all stages at one time
 * @busy_ns: of the area
 * @io_ns:   of all transfers, summed
 * @cpu_ns:  of kvmm and swapd, all threads
 */
struct tiers_stats {
#define x(name) u64 name;
	TIERS_STATS(x)
#undef x
	u64	busy_ns;
	u64	io_ns;
	u64	cpu_ns;
};

/**
 * struct tiers_phase - one direction of one sequence, from the request to the end
 * @ns:      all of it
 * @copied:  until the last block was copied
 * @copy_ns: that the copier was busy
 * @busy_ns: that the area was busy
 * @io_ns:   of all transfers, summed
 * @cpu_ns:  of kvmm and swapd
 */
struct tiers_phase {
	u64	ns;
	u64	copied;
	u64	copy_ns;
	u64	busy_ns;
	u64	io_ns;
	u64	cpu_ns;
};

struct tiers_node {
	const char		*name;
	struct bench_daemon	d;
	struct kvmm		*k;
	char			view[108];
	char			pages[128];	/* as the daemon's file says */
	u64			step;
	pid_t			pid;		/* of kvmm */
};

/* @fault: KVMM_FAULT of the daemon, or NULL. */
void tiers_start(struct tiers_node *n, const char *name, const char *fault);
void tiers_stop(struct tiers_node *n);
/* Open a sequence with content.  Return: its handle, when it is READY. */
u64 tiers_open(struct tiers_node *n, u64 seed);
/* Page it out, until the area has all blocks too. */
void tiers_out(struct tiers_node *n, u64 seq, struct tiers_phase *p);
/* Bring it in, until the sequence may run. */
void tiers_in(struct tiers_node *n, u64 seq, struct tiers_phase *p);
/* Check that the content is the same as before; then close the sequence. */
void tiers_close(struct tiers_node *n, u64 seq, u64 seed);

/* ---- tiers_naive.c ---- */

/**
 * struct tiers_naive - device memory and a file
 * @mem: a memfd on ordinary pages, as the device pool of this backend is
 * @fd:  the file, by way of the page cache
 */
struct tiers_naive {
	int	mem;
	int	fd;
	u64	*map;
	char	*buf;
};

/**
 * struct tiers_naive_phase - as struct tiers_phase
 * @called: ns until the last call returned; its bytes are in memory then
 */
struct tiers_naive_phase {
	u64	ns;
	u64	called;
	u64	cpu_ns;
};

void tiers_naive_start(struct tiers_naive *n, const char *dir);
void tiers_naive_stop(struct tiers_naive *n);
void tiers_naive_round(struct tiers_naive *n, u64 seed,
		       struct tiers_naive_phase *out,
		       struct tiers_naive_phase *in);

#endif /* TESTS_BENCH_TIERS_H */
