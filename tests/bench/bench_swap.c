// SPDX-License-Identifier: Apache-2.0
/*
 * bench_swap.c - slots out and in, beside fio
 *
 * A real swapd under a fake kvmm (swap_load.c) and fio take turns with
 * transfers of the same size, as many at once, at random places of a file of
 * the same size, with the same kind of memory, registered buffers and files;
 * for reads on the very file.  swapd does more: it sums every byte and checks
 * every header.  The cost of a sum is measured in the same rounds, on memory
 * that is in no cache.
 *
 *	in, out		one kind alone, of 0.5 to 8 MiB: time and CPU
 *	mixed		a few reads beside a stream of writes: time of a read
 *
 * The figures are time and CPU a MiB, so that less is better; bandwidth is the
 * inverse.  CPU is that of swapd's threads and of fio's.  Aims are 95 % of fio's
 * bandwidth, and no more CPU than fio and the sums.  The ratio is the median of
 * the rounds' ratios.  Memory is on huge pages if enough of them are free, in
 * both or in neither.
 *
 * A file on a virtual machine may live in the host's cache.  Then the figures
 * are those of that cache: the ratio counts (disk.h).
 */
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "tests/bench/disk.h"
#include "tests/bench/fio.h"
#include "tests/bench/swap_load.h"

#define ROUNDS		7
#define ROUND_NS	400000000ull
#define RAMP_NS		100000000ull
#define LIMIT_NS	170000000000ull
#define SUM_BYTES	(64ull << 20)
#define FAKE_OPTION	"--fake-kvmm"

#define MIX_BS		(1u << 20)
#define MIX_READS	4u
#define MIX_WRITES	12u

/* The same figure of swapd, and of fio. */
struct pair {
	struct bench_series ours;
	struct bench_series theirs;
};

/* Measurements of one size and direction. */
struct sizes {
	struct pair time;
	struct pair cpu;
	struct bench_series sums;
	struct bench_series latency;
};

static const char *dir;
static const char *peer = "fio";
static struct fio_run fio;
static struct bench_samples samples;
static u64 end_ns;

static void add(struct bench_series *s, double p50, double p99)
{
	s->p50[s->rounds] = p50;
	s->p99[s->rounds++] = p99;
}

static double median(const struct bench_series *s)
{
	return bench_median(s->p50, s->rounds);
}

/* Run all rounds; on a slow machine fewer, but at least three. */
static bool go_on(u32 round)
{
	return round < ROUNDS && (round < 3 || bench_now() < end_ns);
}

/* Median and range of theirs / ours, round by round: more is better. */
static double ratio(const struct bench_series *ours,
		    const struct bench_series *theirs, double *lo, double *hi)
{
	double r[BENCH_ROUNDS_MAX];
	u32 i;

	for (i = 0; i < ours->rounds; i++)
		r[i] = theirs->p50[i] / ours->p50[i];
	bench_range(r, ours->rounds, lo, hi);
	return bench_median(r, ours->rounds);
}

static void report(const char *name, const char *unit, const char *than,
		   const struct bench_series *ours, double theirs,
		   double max_ratio)
{
	const struct bench_figure f = {
		.name = name, .value = median(ours), .unit = unit,
		.peer = than, .peer_value = theirs,
		.max_ratio = than ? max_ratio : 0, .series = ours,
	};

	bench_report(&f);
}

/* ---- one kind alone ---- */

static void report_time(const char *name, const struct sizes *z)
{
	const double ours = median(&z->time.ours);
	double r, lo, hi, theirs = 0;
	char full[64];

	snprintf(full, sizeof(full), "swap_%s", name);
	if (peer)
		theirs = median(&z->time.theirs);
	report(full, "us/MiB", peer, &z->time.ours, theirs, 1 / 0.95);
	if (!peer) {
		fprintf(stderr, "%s %.0f MiB/s\n", full, 1e6 / ours);
		return;
	}
	r = ratio(&z->time.ours, &z->time.theirs, &lo, &hi);
	bench_verdict(r >= 0.95, "%s: %.0f MiB/s, fio %.0f MiB/s: %.3f of it (%.2f to %.2f)",
		      full, 1e6 / ours, 1e6 / theirs, r, lo, hi);
}

static void report_cpu(const char *name, const struct sizes *z)
{
	struct bench_series both = z->cpu.theirs;
	const double us_gib = 1024 / 1e6;
	double r, lo, hi, sums = median(&z->sums);
	char full[64];
	u32 i;

	for (i = 0; i < both.rounds; i++)
		both.p50[i] += z->sums.p50[i];
	snprintf(full, sizeof(full), "swap_cpu_%s", name);
	report(full, "us/MiB", peer ? "fio and sums" : NULL, &z->cpu.ours,
	       median(&both), 1);
	if (!peer)
		return;
	r = 1 / ratio(&z->cpu.ours, &both, &hi, &lo);
	bench_verdict(r <= 1, "%s: %.4f s/GiB, fio %.4f, sums %.4f: %.2f of both (%.2f to %.2f)",
		      full, median(&z->cpu.ours) * us_gib,
		      median(&z->cpu.theirs) * us_gib, sums * us_gib, r,
		      1 / lo, 1 / hi);
}

static void round_size(struct sizes *z, const struct load_mix *mix,
		       const struct fio_job *job, bool fio_first)
{
	struct fio_result theirs = { 0 };
	struct load_result ours;

	if (peer && fio_first)
		fio_run(&fio, job, 1, &theirs);
	ours = load_round(mix, RAMP_NS, ROUND_NS, &samples);
	if (peer && !fio_first)
		fio_run(&fio, job, 1, &theirs);
	bench_round(&z->latency, &samples);
	add(&z->time.ours, ours.us_mib, ours.us_mib);
	add(&z->cpu.ours, ours.cpu_us_mib, ours.cpu_us_mib);
	add(&z->time.theirs, theirs.us_mib, theirs.us_mib);
	add(&z->cpu.theirs, theirs.cpu_us_mib, theirs.cpu_us_mib);
	add(&z->sums, load_sums(mix->bs, SUM_BYTES), 0);
}

static void run_size(bool write, u32 bs, const char *size)
{
	/* More requests than swapd can have in flight, so it is always full. */
	const struct load_mix mix = {
		.bs = bs, .reads = write ? 0 : 2 * LOAD_DEPTH,
		.writes = write ? 2 * LOAD_DEPTH : 0,
	};
	char file[300], name[32], full[64];
	const struct fio_job job = {
		.file = file, .write = write, .bs = bs, .depth = LOAD_DEPTH,
	};
	struct sizes z;
	u32 i;

	memset(&z, 0, sizeof(z));
	snprintf(file, sizeof(file), "%s/%s", dir, write ? "fio.dat" : "area");
	load_prepare(bs);
	for (i = 0; go_on(i); i++)
		round_size(&z, &mix, &job, i % 2);
	snprintf(name, sizeof(name), "%s_%s", write ? "out" : "in", size);
	report_time(name, &z);
	report_cpu(name, &z);
	snprintf(full, sizeof(full), "swap_latency_%s", name);
	report(full, "us", NULL, &z.latency, 0, 0);
}

/* ---- reads beside writes ---- */

static void round_mixed(struct pair *read, struct pair *write, bool fio_first)
{
	static const struct load_mix mix = {
		.bs = MIX_BS, .reads = MIX_READS, .writes = MIX_WRITES,
	};
	char file[300];
	const struct fio_job job[] = {
		{ .file = file, .bs = MIX_BS, .depth = MIX_READS },
		{ .file = file, .bs = MIX_BS, .depth = MIX_WRITES,
		  .write = true },
	};
	struct fio_result theirs[2] = { 0 };
	struct load_result ours;

	snprintf(file, sizeof(file), "%s/fio.dat", dir);
	if (peer && fio_first)
		fio_run(&fio, job, 2, theirs);
	ours = load_round(&mix, RAMP_NS, ROUND_NS, &samples);
	if (peer && !fio_first)
		fio_run(&fio, job, 2, theirs);
	bench_round(&read->ours, &samples);
	add(&read->theirs, theirs[0].p50, theirs[0].p99);
	add(&write->ours, ours.write_us_mib, ours.write_us_mib);
	add(&write->theirs, theirs[1].us_mib, theirs[1].us_mib);
}

static void report_mixed(const struct pair *read, const struct pair *write)
{
	struct bench_series ours = read->ours, theirs = read->theirs;
	const char *name[] = { "swap_mixed_read_p50", "swap_mixed_read_p99" };
	double r, lo, hi;
	u32 i;

	for (i = 0; i < 2; i++) {
		if (i) {
			memcpy(ours.p50, ours.p99, sizeof(ours.p50));
			memcpy(theirs.p50, theirs.p99, sizeof(theirs.p50));
		}
		report(name[i], "us", peer, &ours, median(&theirs), 1);
		if (!peer)
			continue;
		r = 1 / ratio(&ours, &theirs, &hi, &lo);
		bench_verdict(r <= 1, "%s beside writes: %.0f us, fio %.0f us: %.2f times (%.2f to %.2f)",
			      name[i], median(&ours), median(&theirs), r,
			      1 / lo, 1 / hi);
	}
	report("swap_mixed_write", "us/MiB", peer, &write->ours,
	       median(&write->theirs), 0);
	fprintf(stderr, "note: meanwhile %.0f MiB/s were written, by fio %.0f\n",
		1e6 / median(&write->ours),
		peer ? 1e6 / median(&write->theirs) : 0);
}

static void run_mixed(void)
{
	struct pair read, write;
	u32 i;

	memset(&read, 0, sizeof(read));
	memset(&write, 0, sizeof(write));
	load_prepare(MIX_BS);
	for (i = 0; go_on(i); i++)
		round_mixed(&read, &write, i % 2);
	report_mixed(&read, &write);
}

/* ---- the fake kvmm, and its driver ---- */

static int fake_main(void)
{
	static const struct {
		u32 bs;
		const char *name;
	} size[] = {
		{ 512 << 10, "512k" }, { 1 << 20, "1m" }, { 2 << 20, "2m" },
		{ 8 << 20, "8m" },
	};
	char path[300];
	u32 i;

	end_ns = bench_now() + LIMIT_NS;
	bench_samples_init(&samples, 100000);
	disk_tell(dir);
	load_open(dir);
	fio = (struct fio_run){
		.dir = dir, .size = LOAD_AREA, .huge = load_is_huge(),
		.ramp_ms = RAMP_NS / 1000000, .ms = ROUND_NS / 1000000,
	};
	if (!fio_is_there())
		peer = NULL;
	snprintf(path, sizeof(path), "%s/fio.dat", dir);
	if (peer)
		fio_fill(path, LOAD_AREA);
	run_mixed();
	for (i = 0; i < ARRAY_SIZE(size); i++) {
		run_size(false, size[i].bs, size[i].name);
		run_size(true, size[i].bs, size[i].name);
	}
	bench_samples_free(&samples);
	return 0;
}

int main(int argc, char **argv)
{
	const char *tmp = getenv("TMPDIR");
	static char own[256];
	struct statvfs fs;
	char cmd[300];
	int code;

	if (argc == 3 && !strcmp(argv[1], FAKE_OPTION)) {
		dir = argv[2];
		return fake_main();
	}
	snprintf(own, sizeof(own), "%s/bench_swap.XXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(own))
		bench_die("%s: %s", own, strerror(errno));
	if (!statvfs(own, &fs) && fs.f_bavail * fs.f_frsize < 3 * LOAD_AREA)
		bench_die("%s has less than 3 GiB free: set TMPDIR", own);
	code = load_drive(own, FAKE_OPTION);
	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", own);
	if (system(cmd))
		fprintf(stderr, "bench: %s cannot be removed\n", own);
	return code;
}
