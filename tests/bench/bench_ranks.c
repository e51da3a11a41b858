// SPDX-License-Identifier: Apache-2.0
/*
 * bench_ranks.c - the exchange of two ranks: its latency, and the speed of a sum
 *
 * Two threads are the ranks; they use the same code and the same shared memory as
 * processes do.
 *
 * Latency: an empty ranks_share(), beside the round trip of a word of shared memory between
 * the same threads, both of which spin.  A share needs one word each way at the same time.
 *
 * Sum: both ranks write their rooms of B bytes; that is not timed.  Then, timed, in one of
 * two ways:
 *
 * - halves: a share; each rank adds its half of the numbers of both rooms, in rank order,
 *   into its next room; a share; each rank copies the other half beside its own.  A rank
 *   reads B and writes B / 2 for the sum, and reads B / 2 and writes B / 2 for the copy:
 *   2.5 B are moved.
 * - whole: a share; each rank adds all numbers of both rooms, in rank order, into memory of
 *   its own.  It reads 2 B and writes B: 3 B are moved.
 *
 * The peer is memcpy of the other rank's room, which that rank has just written, by both
 * ranks at once: 2 B are moved.  Another memcpy, between two buffers that only the rank
 * itself has touched, is shown beside it.  They take turns in each round.
 */
#include <pthread.h>
#include <stdlib.h>

#include <kvmm/ring.h>

#include "runtime/ranks/ranks.h"
#include "tests/bench/bench.h"

#define ROUNDS		9
#define SHARES		20000u
#define TIMEOUT_MS	60000u
#define AIM		0.7

static const u32 sizes[] = { 16u << 10, 256u << 10, 4u << 20 };

#define NR_SIZES	ARRAY_SIZE(sizes)
#define BIGGEST		(4u << 20)

/* Eight floats: one register of AVX2, or two of an older CPU. */
typedef float eight __attribute__((vector_size(32), may_alias));

#if defined(__x86_64__)
#define FOR_CPU	__attribute__((target_clones("avx2", "default")))
#else
#define FOR_CPU
#endif

static struct {
	u32	at __attribute__((aligned(64)));
} word[2];

static struct bench_series share_us = { .name = "ranks_share" };
static struct bench_series trip_us = { .name = "round trip of a word, spinning" };
/* GB/s of rank 0. */
static double sum[2][NR_SIZES][ROUNDS], copy[NR_SIZES][ROUNDS], own[NR_SIZES][ROUNDS];

static void share(struct ranks *r)
{
	if (ranks_share(r))
		bench_die("%s", ranks_failure(r));
}

/* Both ranks begin together; it leaves the rooms as they are. */
static void line_up(struct ranks *r)
{
	if (ranks_gather(r, NULL, 0, NULL))
		bench_die("%s", ranks_failure(r));
}

/* ---- latency ---- */

static void run_shares(struct ranks *r, struct bench_samples *s)
{
	u64 start;
	u32 i;

	for (i = 0; i < SHARES + SHARES / 10; i++) {
		start = bench_ticks();
		share(r);
		if (i >= SHARES / 10)
			bench_add(s, bench_ticks() - start);
	}
}

static void run_trips(u32 self, struct bench_samples *s)
{
	static u32 base;
	const u32 from = load_acquire(&base);
	u64 start;
	u32 i;

	for (i = 1; i <= SHARES; i++) {
		start = bench_ticks();
		if (!self)
			store_release(&word[0].at, from + i);
		while (load_acquire(&word[!self].at) != from + i)
			cpu_relax();
		if (self)
			store_release(&word[1].at, from + i);
		bench_add(s, bench_ticks() - start);
	}
	if (!self)
		store_release(&base, from + SHARES);
}

/* ---- sums ---- */

static void fill(struct ranks *r, u32 bytes, float value)
{
	float *room = ranks_room(r);
	u32 i;

	for (i = 0; i < bytes / sizeof(float); i++)
		room[i] = value + (float)(i & 255);
}

FOR_CPU static void add(eight *to, const eight *a, const eight *b, u32 nr)
{
	u32 i;

	for (i = 0; i < nr; i += 4) {
		to[i] = a[i] + b[i];
		to[i + 1] = a[i + 1] + b[i + 1];
		to[i + 2] = a[i + 2] + b[i + 2];
		to[i + 3] = a[i + 3] + b[i + 3];
	}
}

/* Return: the whole sum, in the own room. */
static const float *sum_halves(struct ranks *r, u32 bytes)
{
	const u32 self = ranks_number(r), half = bytes / 2;
	u8 *to;

	share(r);
	to = ranks_room(r);
	add((eight *)(to + self * half), (const eight *)((const u8 *)ranks_of(r, 0) + self * half),
	    (const eight *)((const u8 *)ranks_of(r, 1) + self * half), half / sizeof(eight));
	share(r);
	memcpy(to + !self * half, (const u8 *)ranks_of(r, !self) + !self * half, half);
	return (const float *)to;
}

static const float *sum_whole(struct ranks *r, u32 bytes, u8 *to)
{
	share(r);
	add((eight *)to, ranks_of(r, 0), ranks_of(r, 1), bytes / sizeof(eight));
	return (const float *)to;
}

static u32 repeats(u32 bytes)
{
	return max((32u << 20) / bytes, 8u);
}

static double rate(u32 bytes, double moved, u64 ticks, u32 n)
{
	return moved * bytes * n / ((double)ticks * bench_tick_ns());
}

/* @to: room for a whole sum; NULL: sum halves. */
static double run_sums(struct ranks *r, u32 bytes, u8 *to)
{
	const u32 n = repeats(bytes), last = bytes / sizeof(float) - 1;
	const float *got;
	u64 ticks = 0, start;
	u32 i;

	for (i = 0; i < n; i++) {
		fill(r, bytes, (float)ranks_number(r) + 1);
		line_up(r);
		start = bench_ticks();
		got = to ? sum_whole(r, bytes, to) : sum_halves(r, bytes);
		ticks += bench_ticks() - start;
		if (got[0] != 3 || got[last] != 3 + 2 * (float)(last & 255))
			bench_die("a sum is wrong");
	}
	return rate(bytes, to ? 3 : 2.5, ticks, n);
}

static double run_copies(struct ranks *r, u32 bytes, u8 *to)
{
	const u32 n = repeats(bytes);
	u64 ticks = 0, start;
	u32 i;

	for (i = 0; i < n; i++) {
		fill(r, bytes, 1);
		share(r);
		line_up(r);
		start = bench_ticks();
		memcpy(to, ranks_of(r, !ranks_number(r)), bytes);
		ticks += bench_ticks() - start;
		line_up(r);
	}
	return rate(bytes, 2, ticks, n);
}

static double run_own(struct ranks *r, u32 bytes, u8 *to, const u8 *from)
{
	const u32 n = repeats(bytes);
	u64 ticks = 0, start;
	u32 i;

	for (i = 0; i < n; i++) {
		line_up(r);
		start = bench_ticks();
		memcpy(to, from, bytes);
		ticks += bench_ticks() - start;
	}
	return rate(bytes, 2, ticks, n);
}

/* ---- the run ---- */

static void play_size(struct ranks *r, u32 k, u32 round, u8 *a, u8 *b)
{
	const double halves = run_sums(r, sizes[k], NULL), whole = run_sums(r, sizes[k], a),
		     other = run_copies(r, sizes[k], a), mine = run_own(r, sizes[k], a, b);

	if (ranks_number(r))
		return;
	sum[0][k][round] = halves;
	sum[1][k][round] = whole;
	copy[k][round] = other;
	own[k][round] = mine;
}

static void *play(void *arg)
{
	struct ranks *r = arg;
	const u32 self = ranks_number(r);
	u8 *a = aligned_alloc(4096, BIGGEST), *b = aligned_alloc(4096, BIGGEST);
	struct bench_samples s, t;
	u32 i, k;

	if (!a || !b)
		bench_die("out of memory");
	memset(a, 1, BIGGEST);
	memset(b, 2, BIGGEST);
	bench_samples_init(&s, SHARES);
	bench_samples_init(&t, SHARES);
	for (i = 0; i < ROUNDS; i++) {
		run_shares(r, &s);
		run_trips(self, &t);
		line_up(r);
		if (!self) {
			bench_round(&share_us, &s);
			bench_round(&trip_us, &t);
		}
		s.nr = t.nr = 0;
		for (k = 0; k < NR_SIZES; k++)
			play_size(r, k, i, a, b);
	}
	bench_samples_free(&s);
	bench_samples_free(&t);
	free(a);
	free(b);
	ranks_close(r);
	return NULL;
}

static void report_share(void)
{
	const struct bench_figure f = {
		.name = share_us.name,
		.value = bench_median(share_us.p50, ROUNDS),
		.unit = "us",
		.peer = trip_us.name,
		.peer_value = bench_median(trip_us.p50, ROUNDS),
		.series = &share_us,
	};

	fprintf(stderr, "note: empty share of 2 ranks: %.3f us (p99 %.3f), a round trip %.3f us\n",
		f.value, bench_median(share_us.p99, ROUNDS), f.peer_value);
	bench_report(&f);
}

static void report_sum(u32 k, u32 way)
{
	static const char *const ways[] = { "halves", "whole" };
	double ratios[ROUNDS];
	char name[32];
	struct bench_figure f = {
		.name = name,
		.value = bench_median(sum[way][k], ROUNDS),
		.unit = "GB/s",
		.peer = "memcpy of the other rank's room",
		.peer_value = bench_median(copy[k], ROUNDS),
		.min_ratio = AIM,
	};
	u32 i;

	for (i = 0; i < ROUNDS; i++)
		ratios[i] = sum[way][k][i] / copy[k][i];
	f.ratio = bench_median(ratios, ROUNDS);
	bench_range(ratios, ROUNDS, &f.ratio_low, &f.ratio_high);
	snprintf(name, sizeof(name), "ranks_sum_%s_%uk", ways[way], sizes[k] >> 10);
	bench_verdict(f.ratio >= AIM,
		      "sum of %u KiB, %s: %.2f us, %.2f GB/s, memcpy %.2f GB/s: %.2f (%.2f to %.2f)",
		      sizes[k] >> 10, ways[way], (way ? 3 : 2.5) * sizes[k] / f.value / 1000,
		      f.value, f.peer_value, f.ratio, f.ratio_low, f.ratio_high);
	bench_report(&f);
}

int main(void)
{
	struct ranks *group[2];
	pthread_t thread;
	u32 k;

	bench_tick_ns();
	if (ranks_threads(2, BIGGEST, TIMEOUT_MS, group) ||
	    pthread_create(&thread, NULL, play, group[1]))
		bench_die("no group of two threads");
	play(group[0]);
	pthread_join(thread, NULL);
	report_share();
	for (k = 0; k < NR_SIZES; k++) {
		report_sum(k, 0);
		report_sum(k, 1);
		fprintf(stderr, "note: memcpy of %u KiB of the rank's own: %.2f GB/s\n",
			sizes[k] >> 10, bench_median(own[k], ROUNDS));
	}
	return 0;
}
