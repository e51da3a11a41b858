// SPDX-License-Identifier: Apache-2.0
/*
 * bench_tiers.c - a sequence of 512 blocks out through all tiers, and back
 *
 *	huge	a real daemon, its host pool on huge pages
 *	4k	the same on ordinary pages
 *	naive	no daemon: blocking calls, 64 KiB at a time, a buffered file
 *	disk	fio alone, with transfers as large as a slot: the most that the
 *		disk gives
 *
 * They take turns, with the same number of bytes.  In a turn of a daemon two
 * sequences go out: PAGEOUT until the area has all blocks.  Then both come in:
 * WILLNEED until READY.  All blocks are read from the area, and every word must
 * be the same as before.  Out and in have two stages, which work beside each
 * other: the copier, between device and host pool, and the area.  For each stage
 * the figures are the time that it was busy, by block and as a part of the
 * whole.  The slower stage should never have to wait for the other.
 *
 * A busy stage always had work; the disk alone shows how much of the possible
 * work it did.
 *
 * The device pool of this backend is ordinary memory, so the copier is a core
 * that copies.  On a virtual machine a file may live in the host's cache
 * (disk.h).
 */
#include <stdlib.h>
#include <string.h>

#include "tests/bench/disk.h"
#include "tests/bench/fio.h"
#include "tests/bench/huge.h"
#include "tests/bench/tiers.h"

#define ROUNDS		7
#define LIMIT_NS	150000000000ull
#define AIM_BUSY	90.0
#define AIM_DISK	0.9	/* of fio's rate */
#define DISK_DEPTH	16u
#define DISK_BS		((u32)TIERS_BLOCK + 4096)
#define DISK_PAGES	(2 * DISK_DEPTH + 8ull)

/* Figures of one direction in each round; naive has no stages. */
struct way {
	struct bench_series	us;	/* a block */
	struct bench_series	copier;	/* us a block, busy */
	struct bench_series	area;
	struct bench_series	copier_busy;	/* percent */
	struct bench_series	area_busy;
	struct bench_series	slowest;
	struct bench_series	deep;	/* transfers in flight at once */
	struct bench_series	cpu;	/* s/GiB */
};

enum { HUGE, ORDINARY, NAIVE, DISK, NR_SIDES };
enum { OUT, IN, NR_WAYS };

static const char * const side_name[] = { "huge", "4k", "naive", "disk" };
static const char * const way_name[] = { "out", "in" };

static struct way way[NR_SIDES][NR_WAYS];
static struct bench_series called = { .name = "called" };
static struct tiers_node node[NAIVE];
static struct tiers_naive naive;
static struct fio_run fio;
static char fio_file[300];
static bool has_fio;

static void add(struct bench_series *s, double v)
{
	s->p50[s->rounds] = v;
	s->p99[s->rounds++] = v;
}

static double us_block(u64 ns)
{
	return (double)ns / 1000 / TIERS_BLOCKS;
}

static double gib_s(double us)
{
	return 1e6 / us * (double)TIERS_BLOCK / (1 << 30);
}

static double cpu_gib(u64 ns)
{
	return (double)ns / 1e9 * (1 << 30) / (double)TIERS_BYTES;
}

/* ---- rounds ---- */

static void way_add(struct way *w, const struct tiers_phase *p)
{
	double copier = 100.0 * (double)p->copy_ns / (double)p->ns;
	double area = 100.0 * (double)p->busy_ns / (double)p->ns;

	add(&w->us, us_block(p->ns));
	add(&w->copier, us_block(p->copy_ns));
	add(&w->area, us_block(p->busy_ns));
	add(&w->copier_busy, copier);
	add(&w->area_busy, area);
	add(&w->slowest, max(copier, area));
	add(&w->deep, (double)p->io_ns / (double)p->busy_ns);
	add(&w->cpu, cpu_gib(p->cpu_ns));
}

static void phase_mean(struct tiers_phase *p, const struct tiers_phase *q)
{
	p->ns = (p->ns + q->ns) / 2;
	p->copied = (p->copied + q->copied) / 2;
	p->copy_ns = (p->copy_ns + q->copy_ns) / 2;
	p->busy_ns = (p->busy_ns + q->busy_ns) / 2;
	p->io_ns = (p->io_ns + q->io_ns) / 2;
	p->cpu_ns = (p->cpu_ns + q->cpu_ns) / 2;
}

static void round_node(u32 side, u64 seed, bool count)
{
	struct tiers_node *n = &node[side];
	struct tiers_phase out[2], in[2];
	u64 seq[2];
	u32 i;

	for (i = 0; i < 2; i++) {
		seq[i] = tiers_open(n, seed + i);
		tiers_out(n, seq[i], &out[i]);
	}
	for (i = 0; i < 2; i++) {
		tiers_in(n, seq[i], &in[i]);
		tiers_close(n, seq[i], seed + i);
	}
	if (!count)
		return;
	phase_mean(&out[0], &out[1]);
	phase_mean(&in[0], &in[1]);
	way_add(&way[side][OUT], &out[0]);
	way_add(&way[side][IN], &in[0]);
}

static void round_naive(u64 seed, bool count)
{
	struct tiers_naive_phase out, in;

	tiers_naive_round(&naive, seed, &out, &in);
	if (!count)
		return;
	add(&way[NAIVE][OUT].us, us_block(out.ns));
	add(&way[NAIVE][OUT].cpu, cpu_gib(out.cpu_ns));
	add(&called, us_block(out.called));
	add(&way[NAIVE][IN].us, us_block(in.ns));
	add(&way[NAIVE][IN].cpu, cpu_gib(in.cpu_ns));
}

static void round_disk(bool count)
{
	char area[300];
	const struct fio_job out = {
		.file = fio_file, .write = true, .bs = DISK_BS,
		.depth = DISK_DEPTH,
	}, in = { .file = area, .bs = DISK_BS, .depth = DISK_DEPTH };
	const double mib = (double)TIERS_BLOCK / (1 << 20);
	struct fio_result r;

	if (!has_fio || !count)
		return;
	snprintf(area, sizeof(area), "%s/area", node[HUGE].d.dir);
	fio_run(&fio, &out, 1, &r);
	add(&way[DISK][OUT].us, r.us_mib * mib);
	add(&way[DISK][OUT].cpu, r.cpu_us_mib * 1024 / 1e6);
	fio_run(&fio, &in, 1, &r);
	add(&way[DISK][IN].us, r.us_mib * mib);
	add(&way[DISK][IN].cpu, r.cpu_us_mib * 1024 / 1e6);
}

static void round_all(u32 round, bool count)
{
	u32 k;

	for (k = 0; k < NR_SIDES; k++) {
		const u32 side = (round + k) % NR_SIDES;
		const u64 seed = 2 * (round * NR_SIDES + side) + 1;

		if (side == DISK)
			round_disk(count);
		else if (side == NAIVE)
			round_naive(seed, count);
		else
			round_node(side, seed, count);
	}
}

/* ---- figures ---- */

static double median(const struct bench_series *s)
{
	return bench_median(s->p50, s->rounds);
}

static void print_way(u32 side, u32 dir)
{
	const struct way *w = &way[side][dir];
	double lo, hi;

	bench_range(w->us.p50, w->us.rounds, &lo, &hi);
	fprintf(stderr, "| %-5s | %-3s | %.2f | %.0f (%.0f to %.0f) | %.2f |",
		side_name[side], way_name[dir], gib_s(median(&w->us)),
		median(&w->us), lo, hi, median(&w->cpu));
	if (side >= NAIVE)
		fprintf(stderr, " | | | | |\n");
	else
		fprintf(stderr, " %.0f | %.0f %% | %.0f | %.0f %% | %.1f |\n",
			median(&w->copier), median(&w->copier_busy),
			median(&w->area), median(&w->area_busy),
			median(&w->deep));
}

static void print_all(void)
{
	u32 side, dir;

	fprintf(stderr, "| | | GiB/s | us a block | CPU s/GiB | copier us | busy | area us | busy | at once |\n|---|---|---|---|---|---|---|---|---|---|\n");
	for (side = 0; side < (has_fio ? NR_SIDES : DISK); side++)
		for (dir = 0; dir < NR_WAYS; dir++)
			print_way(side, dir);
	fprintf(stderr, "naive, out: %.0f us a block when the last call returned; the rest is fdatasync()\n",
		median(&called));
}

static void report_beside(u32 dir, u32 peer)
{
	char name[64];
	const struct bench_series *ours = &way[HUGE][dir].us;
	struct bench_figure f = {
		.name = name, .unit = "us/block", .series = ours,
		.value = median(ours), .peer = side_name[peer],
		.peer_value = median(&way[peer][dir].us), .max_ratio = 1,
	};

	snprintf(name, sizeof(name), "tiers_%s_beside_%s", way_name[dir],
		 side_name[peer]);
	bench_report(&f);
	bench_verdict(f.value <= f.peer_value,
		      "%s: %.2f GiB/s on huge pages, %.2f GiB/s %s: %.2f times",
		      way_name[dir], gib_s(f.value), gib_s(f.peer_value),
		      side_name[peer], f.peer_value / f.value);
}

/* Report the part of the disk's rate, as fio has it alone, that a daemon reaches. */
static void report_disk(u32 dir)
{
	const struct bench_series *ours = &way[HUGE][dir].us;
	const struct bench_series *alone = &way[DISK][dir].us;
	double part[BENCH_ROUNDS_MAX], lo, hi, r;
	char name[64];
	struct bench_figure f = {
		.name = name, .unit = "us/block", .value = median(ours),
		.peer = "fio alone", .max_ratio = 1 / AIM_DISK,
		.series = ours,
	};
	u32 i;

	if (!has_fio)
		return;
	f.peer_value = median(alone);
	snprintf(name, sizeof(name), "tiers_%s_beside_disk", way_name[dir]);
	bench_report(&f);
	for (i = 0; i < ours->rounds; i++)
		part[i] = alone->p50[i] / ours->p50[i];
	bench_range(part, ours->rounds, &lo, &hi);
	r = bench_median(part, ours->rounds);
	bench_verdict(r >= AIM_DISK,
		      "%s: %.2f GiB/s through all tiers, the disk alone %.2f GiB/s: %.2f of it (%.2f to %.2f)",
		      way_name[dir], gib_s(f.value), gib_s(f.peer_value), r,
		      lo, hi);
}

static void report_busy(u32 dir)
{
	const struct way *w = &way[HUGE][dir];
	char name[64];
	struct bench_figure f = {
		.name = name, .unit = "% busy", .series = &w->slowest,
		.value = median(&w->slowest), .min_value = AIM_BUSY,
	};

	snprintf(name, sizeof(name), "tiers_%s_slowest_stage",
		 way_name[dir]);
	bench_report(&f);
	bench_verdict(f.value >= AIM_BUSY,
		      "%s: the slowest stage, the %s, is busy for %.1f %% of the time",
		      way_name[dir], median(&w->copier_busy) >
		      median(&w->area_busy) ? "copier" : "area", f.value);
}

static void start(void)
{
	const char *tmp = getenv("TMPDIR");

	tmp = tmp ? tmp : "/tmp";
	disk_tell(tmp);
	tiers_start(&node[HUGE], "huge", NULL);
	tiers_start(&node[ORDINARY], "4k", "host_huge,host_thp");
	tiers_naive_start(&naive, tmp);
	fprintf(stderr, "host pools: %s; %s\n", node[HUGE].pages,
		node[ORDINARY].pages);
	has_fio = fio_is_there();
	if (!has_fio)
		return;
	/* Only now: the pools of the daemons are on transparent huge pages. */
	huge_pages_take(DISK_PAGES);
	fio = (struct fio_run){
		.dir = node[HUGE].d.dir, .size = TIERS_BYTES,
		.huge = huge_pages_are_free(DISK_PAGES), .ramp_ms = 100,
		.ms = 400,
	};
	if (!fio.huge)
		fprintf(stderr, "note: fio has 4 KiB pages: for figures that count, as root or after sysctl vm.nr_hugepages=%llu\n",
			(unsigned long long)DISK_PAGES);
	snprintf(fio_file, sizeof(fio_file), "%s/fio.dat", node[HUGE].d.dir);
	fio_fill(fio_file, TIERS_BYTES);
}

int main(void)
{
	const u64 end = bench_now() + LIMIT_NS;
	u32 i;

	start();
	/* Touch every page once before the first round counts. */
	round_all(0, false);
	for (i = 0; i < ROUNDS && (i < 3 || bench_now() < end); i++)
		round_all(i + 1, true);
	if (i < ROUNDS)
		fprintf(stderr, "note: %u rounds instead of %u: this machine is slow now\n",
			i, ROUNDS);
	print_all();
	for (i = 0; i < NR_WAYS; i++) {
		report_busy(i);
		report_disk(i);
		report_beside(i, ORDINARY);
		report_beside(i, NAIVE);
	}
	tiers_naive_stop(&naive);
	tiers_stop(&node[ORDINARY]);
	tiers_stop(&node[HUGE]);
	return 0;
}
