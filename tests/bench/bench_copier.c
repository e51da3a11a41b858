// SPDX-License-Identifier: Apache-2.0
/*
 * bench_copier.c - the copier's rate between extents of the host backend and the host pool
 *
 * The real thread over real extents; the benchmark plays the mm thread.  It orders all
 * copies of a round at once and sleeps until answers come, so a figure has the time of
 * the queues and of waking, too.  Each round copies 96 MiB that no cache of the CPU
 * has, in blocks of one size, into extents and out of them.  After each, one memcpy()
 * copies as many bytes of ordinary memory, and pread() or pwrite() copy them in blocks,
 * as the copier did before it mapped extents.
 *
 * Then the extents are made anew, and copied into three times: their pages are
 * new, then known, then mapped (host_map.c).  The peer is pwrite() into a new memfd.
 *
 * Aim: 90 % of memcpy(), for blocks of 256 KiB and more.
 */
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kvmm/dev/host.h"
#include "kvmm/ipc/tiers/tiers.h"
#include "tests/bench/bench.h"

#define ROUNDS		9u
#define EXTENT		(8ull << 20)
#define CHUNK		(96ull << 20)		/* a round */
#define CHUNKS		4u			/* more than the caches hold */
#define POOL		(CHUNKS * CHUNK)
#define AIM		0.9
#define AIM_BLOCK	(256u << 10)

static const u32 blocks[] = { 32u << 10, 256u << 10, 768u << 10, 2u << 20 };

enum { OUT, IN, NR_WAYS };
enum { NEW, KNOWN, MAPPED, NR_VISITS };

static const char * const way_name[] = { "out", "in" };
static const char * const visit_name[] = { "new", "known", "mapped" };

static struct setup setup;
static struct extents extents;
static struct sleeper mm;
static struct copier copier;
static char *plain[2];		/* ordinary memory, POOL bytes */

/* Bytes a second, by round. */
static double copied[ARRAY_SIZE(blocks)][NR_WAYS][ROUNDS];
static double called[ARRAY_SIZE(blocks)][NR_WAYS][ROUNDS];
static double peer[ARRAY_SIZE(blocks)][NR_WAYS][ROUNDS];
static double visit[NR_VISITS][ROUNDS], visit_called[ROUNDS];

static double rate(u64 began)
{
	return (double)CHUNK * 1e9 / (double)(bench_now() - began);
}

/* ---- the copier ---- */

static void extent_make(u32 e)
{
	int fd = -1;

	if (host_dev_ops.extent_create(&setup.dev, e, 1, &fd))
		bench_die("extent %u cannot be made: %llu MiB of memory are needed", e,
			  3 * POOL >> 20);
	extents_publish(&extents, e, fd, 1);
}

static void start(void)
{
	const struct hostpool_ask ask = { .bytes = POOL, .epoch = 1, .near = -1, .stop = -1,
					  .again = true, .numa = { .node = -1 } };
	u32 i;

	setup.cfg = (struct core_config){
		.pool_bytes = POOL, .extent_size = EXTENT, .host_bytes = POOL,
		.min_token_bytes = blocks[0] / 16,
	};
	setup.nr_extents = POOL / EXTENT;
	setup.dev.ops = &host_dev_ops;
	setup.dev.extent_size = EXTENT;
	mm.bell = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	copier = (struct copier){ .setup = &setup, .extents = &extents, .mm = &mm };
	if (extents_init(&extents, setup.nr_extents) || host_reserve(&setup.dev, POOL) ||
	    hostpool_create(&setup.host, &ask) || copier_init(&copier) ||
	    copier_start(&copier))
		bench_die("the copier cannot be started");
	for (i = 0; i < setup.nr_extents; i++)
		extent_make(i);
	for (i = 0; i < 2; i++) {
		plain[i] = malloc(POOL);
		if (!plain[i])
			bench_die("no memory");
		memset(plain[i], 1, POOL);
	}
}

/* Sleep, as the mm thread does, until there is an answer. */
static void answers_wait(void)
{
	struct pollfd p = { .fd = mm.bell, .events = POLLIN };
	u64 n;

	ring_sleep_prepare(&mm.asleep);
	if (queue_empty(&copier.done))
		(void)!poll(&p, 1, 10);
	ring_sleep_finish(&mm.asleep);
	(void)!read(mm.bell, &n, sizeof(n));
}

/* Copy the chunk.  Return: bytes a second. */
static double copy_chunk(u32 chunk, u32 block, u32 way)
{
	const u64 base = chunk % CHUNKS * CHUNK, began = bench_now();
	struct core_copy cp = { .nr_shards = 1, .to_host = way == OUT, .bytes = block };
	struct copy_done done;
	u64 at, left = CHUNK / block;

	for (at = 0; at < CHUNK; at += block) {
		cp.dev_off = base + at;
		cp.host_off = base + at;
		cp.id++;
		copier_push(&copier, &cp);
	}
	while (left) {
		if (!queue_pop(&copier.done, &done)) {
			answers_wait();
			continue;
		}
		if (done.status)
			bench_die("a copy failed: %s", strerror(-done.status));
		left--;
	}
	return rate(began);
}

/* ---- peers ---- */

static double memcpy_chunk(u32 chunk)
{
	const u64 base = chunk % CHUNKS * CHUNK, began = bench_now();

	memcpy(plain[0] + base, plain[1] + base, CHUNK);
	return rate(began);
}

/* By system calls, between the same memory. */
static double call_chunk(u32 chunk, u32 block, u32 way)
{
	const u64 base = chunk % CHUNKS * CHUNK, began = bench_now();
	u64 at, len;

	for (at = base; at < base + CHUNK; at += len) {
		const int fd = extents.table[at / EXTENT].fd;
		const u64 off = at % EXTENT;
		char *host = setup.host.base + at;

		len = min(block - (at - base) % block, EXTENT - off);
		if ((way == OUT ? pread(fd, host, len, (off_t)off) :
		     pwrite(fd, host, len, (off_t)off)) != (ssize_t)len)
			bench_die("a call failed: %s", strerror(errno));
	}
	return rate(began);
}

static double call_new(u32 block)
{
	const int fd = memfd_create("bench", MFD_CLOEXEC);
	u64 at, began;
	double v;

	if (fd < 0 || ftruncate(fd, CHUNK) || fallocate(fd, 0, 0, CHUNK))
		bench_die("memfd: %s", strerror(errno));
	began = bench_now();
	for (at = 0; at < CHUNK; at += block)
		if (pwrite(fd, plain[0] + at, block, (off_t)at) != (ssize_t)block)
			bench_die("pwrite: %s", strerror(errno));
	v = rate(began);
	close(fd);
	return v;
}

/* ---- rounds ---- */

static void steady_round(u32 r)
{
	u32 i, way, chunk = r;

	for (i = 0; i < ARRAY_SIZE(blocks); i++) {
		for (way = 0; way < NR_WAYS; way++) {
			copied[i][way][r] = copy_chunk(chunk++, blocks[i], way);
			peer[i][way][r] = memcpy_chunk(chunk++);
			called[i][way][r] = call_chunk(chunk++, blocks[i], way);
		}
	}
}

static void new_round(u32 r)
{
	const u32 block = 768u << 10;
	u32 e, v;

	for (e = 0; e < CHUNK / EXTENT; e++) {
		host_dev_ops.extent_release(&setup.dev, e, extents.table[e].fd);
		extent_make(e);
	}
	for (v = 0; v < NR_VISITS; v++) {
		visit[v][r] = copy_chunk(0, block, IN);
		memcpy_chunk(1 + v);
	}
	visit_called[r] = call_new(block);
}

/* ---- figures ---- */

static void report_one(u32 i, u32 way)
{
	const double v = bench_median(copied[i][way], ROUNDS);
	const double old = bench_median(called[i][way], ROUNDS);
	const double top = bench_median(peer[i][way], ROUNDS);
	double ratios[ROUNDS], lo, hi, ratio;
	char name[64];
	u32 r;

	for (r = 0; r < ROUNDS; r++)
		ratios[r] = copied[i][way][r] / peer[i][way][r];
	ratio = bench_median(ratios, ROUNDS);
	bench_range(ratios, ROUNDS, &lo, &hi);
	printf("| %u KiB | %s | %.0f | %.0f | %.0f | %.2f (%.2f to %.2f) |\n", blocks[i] >> 10,
	       way_name[way], v / 1e6, old / 1e6, top / 1e6, ratio, lo, hi);
	snprintf(name, sizeof(name), "copier.%s_%uk", way_name[way], blocks[i] >> 10);
	bench_report(&(struct bench_figure){
		.name = name, .value = v / 1e6, .unit = "MB/s", .peer = "memcpy",
		.peer_value = top / 1e6, .ratio = ratio, .ratio_low = lo, .ratio_high = hi,
		.min_ratio = blocks[i] >= AIM_BLOCK ? AIM : 0,
	});
	if (blocks[i] >= AIM_BLOCK)
		bench_verdict(ratio >= AIM, "blocks of %u KiB, %s: %.2f of memcpy (%.2f to %.2f), aim %.2f; by calls %.2f",
			      blocks[i] >> 10, way_name[way], ratio, lo, hi, AIM, old / top);
}

static void report(void)
{
	const double new = bench_median(visit_called, ROUNDS);
	char name[64];
	u32 i, way;

	printf("| block | way | copier, MB/s | by calls | memcpy | copier to memcpy |\n");
	printf("|---|---|---|---|---|---|\n");
	for (i = 0; i < ARRAY_SIZE(blocks); i++)
		for (way = 0; way < NR_WAYS; way++)
			report_one(i, way);
	for (i = 0; i < NR_VISITS; i++) {
		const double v = bench_median(visit[i], ROUNDS);

		fprintf(stderr, "note: into an extent whose pages are %s: %.0f MB/s; pwrite() into new memory %.0f MB/s\n",
			visit_name[i], v / 1e6, new / 1e6);
		snprintf(name, sizeof(name), "copier.pages_%s", visit_name[i]);
		bench_report(&(struct bench_figure){
			.name = name, .value = v / 1e6, .unit = "MB/s", .peer = "pwrite",
			.peer_value = new / 1e6,
		});
	}
}

int main(void)
{
	u32 r, i;

	setvbuf(stdout, NULL, _IOLBF, 0);
	start();
	/* Steady: all pages are mapped before the first round. */
	for (i = 0; i < 2 * CHUNKS; i++)
		copy_chunk(i, blocks[2], IN);
	for (r = 0; r < ROUNDS; r++)
		steady_round(r);
	for (r = 0; r < ROUNDS; r++)
		new_round(r);
	report();
	return copier_stop(&copier) ? 0 : 1;
}
