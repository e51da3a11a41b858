// SPDX-License-Identifier: Apache-2.0
/*
 * bench_merge.c - runs of small slots, as shared transfers and one by one
 *
 * A fake kvmm under a real kvmm-hold (tests/swapd_client.h) moves sequences:
 * runs of RUN slots that are neighbours in the area and on the host, at random
 * places of an area.  The peer is the same swapd with --merge-kib 0.  The two
 * take turns; each turn is a new life of swapd.
 *
 * The figures are time and CPU a MiB, so that less is better; CPU is that of
 * swapd's main thread, which does all work with io_uring.
 *
 * KVMM_MERGE_KIB=N replaces swapd's own bound, to find the best one, and
 * KVMM_MERGE_PEER=N that of the peer.
 */
#include <sys/statvfs.h>

#include "tests/bench/bench.h"
#include "tests/swapd_client.h"

#define ROUNDS		5
#define ROUND_NS	300000000ull
#define RAMP_NS		60000000ull
#define DEPTH		16
#define RUN		16
#define RUNS		16		/* that the host has room for */
#define AREA_BYTES	((1ull << 30) + SWAPD_RESERVED_BYTES)
#define SLOT_MAX	(512u << 10)
#define POOL_BYTES	((u64)RUNS * RUN * SLOT_MAX)
#define NR_TAGS		1024
#define FAKE_OPTION	"--fake-kvmm"

static const struct {
	u32		bs;
	const char	*name;
} size_list[] = {
	{ 64 << 10, "64k" }, { 128 << 10, "128k" }, { 256 << 10, "256k" },
	{ 512 << 10, "512k" },
};

/* Figures of a life of swapd, for the driver. */
struct life {
	double	us_mib[ARRAY_SIZE(size_list)][2];
	double	cpu_us_mib[ARRAY_SIZE(size_list)][2];
	double	slots[ARRAY_SIZE(size_list)][2];	/* of a transfer */
};

static struct {
	struct swapc		c;
	struct swapd_answer	area;
	u32			op;
	u32			bs;
	u32			next;
	u32			left[RUNS];	/* requests of a run not over */
	u64			done;
} b;

/* ---- load ---- */

static void load_done(struct swapc *c, const struct swapd_req *req, void *arg,
		      enum sc_how how, int status)
{
	if (how != SC_COMPLETED || status)
		bench_die("a request failed: %s", strerror(-status));
	--*(u32 *)arg;
	b.done++;
}

static void load_run(u32 host)
{
	const u32 nr = (u32)(b.area.usable_bytes / b.bs / RUN);
	const u32 run = (u32)((u64)b.next++ * 7919 % nr);
	u32 i;

	for (i = 0; i < RUN; i++) {
		const u32 slot = run * RUN + i;
		struct swapd_req r = {
			.op = b.op,
			.host_off = ((u64)host * RUN + i) * b.bs,
			.area_off = b.area.usable_off + (u64)slot * b.bs,
			.len = b.bs,
			.payload_len = b.bs - SWAPD_HEADER_BYTES,
			.hash = { slot, b.bs },
			.generation = 1,
		};

		sc_submit(&b.c, &r, &b.left[host]);
	}
	b.left[host] = RUN;
}

static void load_until(u64 end, u64 count)
{
	const u64 from = b.done;
	u32 i;

	while ((end && bench_now() < end) || (count && b.done - from < count)) {
		for (i = 0; i < RUNS; i++)
			if (!b.left[i])
				load_run(i);
		sc_kick(&b.c);
		sc_poll(&b.c, 100);
	}
}

static void load_drain(void)
{
	if (!sc_quiet(&b.c, 20000))
		bench_die("requests without an answer");
}

/* CPU nanoseconds of swapd so far. */
static u64 swapd_cpu_ns(void)
{
	char path[64], line[128];
	unsigned long long ns = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/schedstat", b.c.pid);
	f = fopen(path, "re");
	if (!f || !fgets(line, sizeof(line), f) ||
	    sscanf(line, "%llu", &ns) != 1)
		bench_die("%s: %s", path, strerror(errno));
	fclose(f);
	return ns;
}

static void run_size(struct life *l, u32 i)
{
	u64 start, cpu, from, ns, moved, transfers;
	u32 dir;

	b.bs = size_list[i].bs;
	for (dir = 0; dir < 2; dir++) {
		b.op = dir ? SWAPD_READ : SWAPD_WRITE;
		if (!dir)
			load_until(0, b.area.usable_bytes / b.bs);
		load_until(bench_now() + RAMP_NS, 0);
		transfers = sc_counter(&b.c, SWAPD_CNT_transfers);
		from = b.done;
		cpu = swapd_cpu_ns();
		start = bench_now();
		load_until(start + ROUND_NS, 0);
		ns = bench_now() - start;
		cpu = swapd_cpu_ns() - cpu;
		moved = b.done - from;
		transfers = sc_counter(&b.c, SWAPD_CNT_transfers) - transfers;
		load_drain();
		l->us_mib[i][dir] = (double)ns / 1000 /
				    ((double)moved * b.bs / (1 << 20));
		l->cpu_us_mib[i][dir] = (double)cpu / 1000 /
					((double)moved * b.bs / (1 << 20));
		l->slots[i][dir] = (double)moved / (double)max(transfers, 1ull);
	}
}

/* ---- the fake kvmm: one life ---- */

static int fake_main(const char *dir)
{
	struct life l;
	char path[300];
	u32 i;
	int fd, err;

	sc_open(&b.c, NR_TAGS, POOL_BYTES,
		HOLD_SWAP_VALUE(DEPTH, SWAPD_ENGINE_AUTO, 4, 0), load_done);
	snprintf(path, sizeof(path), "%s/area", dir);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	err = fd < 0 ? -errno : sc_area_add(&b.c, 0, fd, AREA_BYTES, 0, NULL,
					    &b.area);
	if (err)
		bench_die("no area: %s", b.area.text);
	for (i = 0; i < ARRAY_SIZE(size_list); i++)
		run_size(&l, i);
	snprintf(path, sizeof(path), "%s/life", dir);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0 || write(fd, &l, sizeof(l)) != sizeof(l))
		bench_die("%s: %s", path, strerror(errno));
	close(fd);
	return 0;
}

/* ---- the driver ---- */

static void swapd_with(const char *dir, const char *build, const char *kib)
{
	char path[300], real[4096];
	FILE *f;

	if (!realpath(build, real))
		bench_die("%s: %s", build, strerror(errno));
	snprintf(path, sizeof(path), "%s/swapd", dir);
	unlink(path);
	f = fopen(path, "we");
	if (!f || fprintf(f, "#!/bin/sh\nexec '%s/swapd' %s%s \"$@\"\n", real,
			  kib ? "--merge-kib=" : "", kib ? kib : "") < 0 ||
	    fchmod(fileno(f), 0700) || fclose(f))
		bench_die("%s: %s", path, strerror(errno));
}

static void life_run(const char *dir, struct life *l)
{
	char *args[] = { NULL, (char *)FAKE_OPTION, (char *)dir, NULL };
	char path[300];
	int status, fd;
	pid_t pid = sc_spawn(dir, args, NULL);

	if (waitpid(pid, &status, 0) != pid || status)
		bench_die("a life ended with %d", status);
	snprintf(path, sizeof(path), "%s/life", dir);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || read(fd, l, sizeof(*l)) != sizeof(*l))
		bench_die("%s: %s", path, strerror(errno));
	close(fd);
}

static void report(const char *what, u32 i, u32 dir, const double *ours,
		   const double *theirs, double slots)
{
	struct bench_series s = { .name = what }, p = s;
	char full[64];
	struct bench_figure f = {
		.name = full, .unit = "us/MiB", .peer = "unmerged",
		.series = &s,
	};
	u32 n;

	for (n = 0; n < ROUNDS; n++) {
		s.p50[n] = s.p99[n] = ours[n];
		p.p50[n] = p.p99[n] = theirs[n];
	}
	s.rounds = ROUNDS;
	p.rounds = ROUNDS;
	f.value = bench_median(s.p50, ROUNDS);
	f.peer_value = bench_median(p.p50, ROUNDS);
	snprintf(full, sizeof(full), "merge_%s%s_%s", what, dir ? "in" : "out",
		 size_list[i].name);
	bench_report(&f);
	fprintf(stderr, "%-22s %8.1f us a MiB, the peer %8.1f: %.2f (%.1f slots a transfer)\n",
		full, f.value, f.peer_value, f.value / f.peer_value, slots);
}

int main(int argc, char **argv)
{
	static double t[2][ARRAY_SIZE(size_list)][2][ROUNDS];
	static double cpu[2][ARRAY_SIZE(size_list)][2][ROUNDS];
	const char *tmp = getenv("TMPDIR"), *build = getenv("KVMM_BUILD");
	const char *kib[2] = {
		getenv("KVMM_MERGE_KIB"), getenv("KVMM_MERGE_PEER") ? : "0",
	};
	static char dir[256];
	struct life l[2];
	u32 n, i, dir_i, who;
	char cmd[300];

	if (argc == 3 && !strcmp(argv[1], FAKE_OPTION))
		return fake_main(argv[2]);
	build = build ? build : "build";
	snprintf(dir, sizeof(dir), "%s/bench_merge.XXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(dir))
		bench_die("%s: %s", dir, strerror(errno));
	sc_prepare(dir, build);
	for (n = 0; n < 2 * ROUNDS; n++) {
		who = (n + n / 2) % 2;
		swapd_with(dir, build, kib[who]);
		life_run(dir, &l[who]);
		for (i = 0; i < ARRAY_SIZE(size_list); i++)
			for (dir_i = 0; dir_i < 2; dir_i++) {
				t[who][i][dir_i][n / 2] = l[who].us_mib[i][dir_i];
				cpu[who][i][dir_i][n / 2] =
					l[who].cpu_us_mib[i][dir_i];
			}
	}
	for (i = 0; i < ARRAY_SIZE(size_list); i++)
		for (dir_i = 0; dir_i < 2; dir_i++) {
			report("", i, dir_i, t[0][i][dir_i], t[1][i][dir_i],
			       l[0].slots[i][dir_i]);
			report("cpu_", i, dir_i, cpu[0][i][dir_i],
			       cpu[1][i][dir_i], l[0].slots[i][dir_i]);
		}
	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", dir);
	return system(cmd) ? 1 : 0;
}
