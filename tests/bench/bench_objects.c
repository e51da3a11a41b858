// SPDX-License-Identifier: Apache-2.0
/*
 * bench_objects.c - objects of 2 MiB: find, load and save, beside a copy of their bytes
 *
 * An engine that keeps its own pool copies blocks to objects and back.  Each round saves
 * and loads all objects, eight in a call, and copies the same bytes between two buffers of
 * the process in turns.  A save is create, copy, commit; a load is get, copy, put.  A find
 * of one key, and of 32 keys, is timed with a daemon that is awake.
 *
 * Aims: load and save have 80 % of the bytes a second of the copy alone; a find of one key
 * takes less than 20 us.
 */
#include <string.h>

#include <libkvmm_objects.h>

#include "tests/bench/bench.h"
#include "tests/cache_probe.h"

#define BYTES		(2u << 20)
#define OBJECTS		64u
#define BATCH		8u
#define ROUNDS		9u
#define FINDS		2000u
#define WAIT_NS		5000000000ll

static char *from, *to;		/* of all objects, as an engine's own pool */
static u32 round_nr;

static struct kvmm *attach(const char *socket)
{
	static const u8 identity[KVMM_IDENTITY_LEN] = "bench_objects";
	struct kvmm_params p = { .socket = socket, .domain = "objects", .identity = identity,
				 .max_bytes = KVMM_LIMIT_MAX, .spin = 2000 };
	struct kvmm *k = NULL;
	char text[256];

	CP_MUST(!kvmm_objects_layout(&p, BYTES));
	if (kvmm_attach(&p, &k, text))
		bench_die("%s", text);
	return k;
}

static struct kvmm_key key_of(u32 round, u32 n)
{
	struct kvmm_key key = { { 0 } };

	memcpy(key.byte, &round, sizeof(round));
	memcpy(key.byte + 4, &n, sizeof(n));
	return key;
}

static void name_all(struct kvmm_object *obj, u32 at)
{
	u32 i;

	for (i = 0; i < BATCH; i++)
		obj[i].key = key_of(round_nr, at + i);
}

static void save(struct kvmm *k, u32 at)
{
	struct kvmm_object obj[BATCH];
	u32 i;

	name_all(obj, at);
	CP_MUST(kvmm_objects_create(k, obj, BATCH, WAIT_NS) == (int)BATCH);
	for (i = 0; i < BATCH; i++)
		memcpy(obj[i].addr, from + (u64)(at + i) * BYTES, BYTES);
	CP_MUST(!kvmm_objects_commit(k, obj, BATCH));
}

static void load(struct kvmm *k, u32 at)
{
	struct kvmm_object obj[BATCH];
	u32 i;

	name_all(obj, at);
	CP_MUST(kvmm_objects_get(k, obj, BATCH, WAIT_NS) == (int)BATCH);
	for (i = 0; i < BATCH; i++)
		memcpy(to + (u64)(at + i) * BYTES, obj[i].addr, BYTES);
	CP_MUST(!kvmm_objects_put(k, obj, BATCH));
}

static void copy(u32 at)
{
	memcpy(to + (u64)at * BYTES, from + (u64)at * BYTES, (u64)BATCH * BYTES);
	__asm__ volatile("" : : : "memory");
}

struct turns {
	double	save[ROUNDS];
	double	load[ROUNDS];
	double	copy[ROUNDS];
};

static double gib_a_second(u64 ticks)
{
	return (double)OBJECTS * BYTES / ((double)ticks * bench_tick_ns()) * 1e9 / (1u << 30);
}

static void round_run(struct kvmm *k, struct turns *t, u32 r)
{
	u64 ticks[3] = { 0 }, began;
	u32 at;

	round_nr = r;
	for (at = 0; at < OBJECTS; at += BATCH) {
		began = bench_ticks();
		save(k, at);
		ticks[0] += bench_ticks() - began;
		began = bench_ticks();
		copy(at);
		ticks[2] += bench_ticks() - began;
		began = bench_ticks();
		load(k, at);
		ticks[1] += bench_ticks() - began;
	}
	CP_MUST(!memcmp(from, to, (u64)OBJECTS * BYTES));
	t->save[r] = gib_a_second(ticks[0]);
	t->load[r] = gib_a_second(ticks[1]);
	t->copy[r] = gib_a_second(ticks[2]);
}

static void report(const char *name, const double *ours, const double *theirs)
{
	double ratio[ROUNDS];
	struct bench_figure f = { .name = name, .unit = "GiB/s", .peer = "memcpy in turns",
				  .min_ratio = 0.8 };
	u32 r;

	for (r = 0; r < ROUNDS; r++)
		ratio[r] = ours[r] / theirs[r];
	f.value = bench_median(ours, ROUNDS);
	f.peer_value = bench_median(theirs, ROUNDS);
	f.ratio = bench_median(ratio, ROUNDS);
	bench_range(ratio, ROUNDS, &f.ratio_low, &f.ratio_high);
	bench_report(&f);
}

/* Finds of @nr keys, of which half are there. */
static void bench_find(struct kvmm *k, u32 nr, const char *name, double aim)
{
	struct bench_series series = { .name = name };
	struct bench_samples s;
	struct kvmm_key keys[32];
	u8 tier[32];
	u32 r, i, n;

	bench_samples_init(&s, FINDS);
	for (r = 0; r < ROUNDS; r++) {
		for (i = 0; i < FINDS; i++) {
			u64 began;

			for (n = 0; n < nr; n++)
				keys[n] = key_of(ROUNDS - 1 + (i + n) % 2, (i + n) % OBJECTS);
			began = bench_ticks();
			CP_MUST(!kvmm_objects_find(k, keys, nr, tier));
			bench_add(&s, bench_ticks() - began);
			for (n = 0; n < nr; n++)
				CP_MUST((tier[n] == KVMM_TIER_NONE) == (i + n) % 2);
		}
		bench_round(&series, &s);
	}
	bench_samples_free(&s);
	bench_report(&(struct bench_figure){ .name = name, .unit = "us", .max_value = aim,
		.value = bench_median(series.p50, series.rounds), .series = &series });
}

int main(void)
{
	static const char * const args[] = { "--pool-size", "256M", "--extent-size", "16M",
					     "--host-size", "0", "--backend", "host", NULL };
	struct bench_daemon d;
	struct turns t;
	struct kvmm *k;
	u32 r;

	from = malloc((u64)OBJECTS * BYTES);
	to = malloc((u64)OBJECTS * BYTES);
	CP_MUST(from && to);
	memset(to, 1, (u64)OBJECTS * BYTES);
	for (r = 0; r < OBJECTS * BYTES / 4; r++)
		((u32 *)(void *)from)[r] = r * 2654435761u;
	bench_daemon_start(&d, args);
	k = attach(d.socket);
	/* The first rounds touch the memory of the pool. */
	for (r = 0; r < 3; r++)
		round_run(k, &t, r);
	for (r = 0; r < ROUNDS; r++) {
		round_nr = r;
		round_run(k, &t, r);
	}
	bench_find(k, 1, "objects_find", 20);
	bench_find(k, 32, "objects_find_32", 0);
	report("objects_save", t.save, t.copy);
	report("objects_load", t.load, t.copy);
	kvmm_detach(k);
	bench_daemon_stop(&d);
	return 0;
}
