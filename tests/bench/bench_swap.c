// SPDX-License-Identifier: Apache-2.0
/*
 * bench_swap.c - slots out and in, beside fio
 *
 * This program is a fake kvmm under a real kvmm-hold (tests/swapd_client.h).
 * It keeps a real swapd busy with a fixed number of requests at random places
 * of an area, and then lets fio do transfers of the same size, as many at
 * once, on a file of the same size, with the same kind of memory, registered
 * buffers and files; for reads on the very file.  They take turns.  swapd does
 * more: it sums every byte and checks every header.
 *
 * The figures are time and CPU a MiB, so that less is better; bandwidth is the
 * inverse.  CPU is that of swapd's threads and of fio's.  Memory is on huge
 * pages where enough of them are free, in both or in neither; with 4 KiB pages
 * everything is slower.
 *
 * A file on a virtual machine may live in the host's cache, and then these are
 * figures of that cache: the ratio is what counts.
 */
#include <jansson.h>
#include <sys/statvfs.h>

#include "swapd/crc32c.h"
#include "tests/bench/bench.h"
#include "tests/swapd_client.h"

#define ROUNDS		7
#define ROUND_NS	400000000ull
#define RAMP_NS		100000000ull
#define DEPTH		16
#define AREA_BYTES	(1ull << 30)
#define SLOT_MAX	(8u << 20)
#define POOL_BYTES	(4ull * DEPTH * SLOT_MAX)
#define HUGE_PAGES	((POOL_BYTES + DEPTH * SLOT_MAX) / (2 << 20) + 8)
#define FAKE_OPTION	"--fake-kvmm"

struct bench {
	struct swapc		c;
	const char		*dir;
	int			area_fd;
	struct swapd_answer	area;
	u32			bs;
	u32			op;
	u32			next;
	u32			host_next;
	u64			started[SC_TAGS];
	u64			done;
	bool			record;
	bool			huge;
	struct bench_samples	latency;
};

static struct bench b;

/* ---- load ---- */

static u32 nr_slots(void)
{
	return (u32)((b.area.usable_bytes) / b.bs);
}

static void load_one(void)
{
	/* A walk that meets every slot, in no order a disk could guess. */
	const u32 n = nr_slots(), slot = (u32)((u64)b.next++ * 7919 % n);
	const u32 place = b.host_next++ % (4 * DEPTH);
	struct swapd_req r = {
		.op = b.op,
		.host_off = (u64)place * SLOT_MAX,
		.area_off = b.area.usable_off + (u64)slot * b.bs,
		.len = b.bs,
		.payload_len = b.bs - SWAPD_HEADER_BYTES,
		.hash = { slot, b.bs },
		.generation = 1,
	};
	u32 tag = b.c.free_tag[b.c.nr_free - 1];

	b.started[tag] = bench_ticks();
	sc_submit(&b.c, &r, &b.started[tag]);
}

static void load_done(struct swapc *c, const struct swapd_req *req, void *arg,
		      enum sc_how how, int status)
{
	if (how != SC_COMPLETED || status)
		bench_die("a request failed: %s", strerror(-status));
	if (b.record)
		bench_add(&b.latency, bench_ticks() - *(u64 *)arg);
	b.done++;
}

static void load_until(u64 end, u64 count)
{
	const u64 from = b.done;

	while ((end && bench_now() < end) || (count && b.done - from < count)) {
		/* So many more than the kernel has that it has all it may. */
		while (b.c.nr_out < 2 * DEPTH)
			load_one();
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
	char path[64], line[1024], *p;
	unsigned long user, sys;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", b.c.pid);
	f = fopen(path, "re");
	if (!f || !fgets(line, sizeof(line), f))
		bench_die("%s: %s", path, strerror(errno));
	fclose(f);
	p = strrchr(line, ')');
	if (!p || sscanf(p + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu",
			 &user, &sys) != 2)
		bench_die("%s cannot be read", path);
	return (user + sys) * (1000000000ull / (u64)sysconf(_SC_CLK_TCK));
}

struct result {
	double us_mib;
	double cpu_us_mib;
};

static struct result run_swapd(u32 op)
{
	u64 start, cpu, from, ns;
	struct result r;
	double mib;

	b.op = op;
	load_until(bench_now() + RAMP_NS, 0);
	b.record = true;
	from = b.done;
	cpu = swapd_cpu_ns();
	start = bench_now();
	load_until(start + ROUND_NS, 0);
	ns = bench_now() - start;
	mib = (double)(b.done - from) * b.bs / (1 << 20);
	cpu = swapd_cpu_ns() - cpu;
	b.record = false;
	load_drain();
	r.us_mib = (double)ns / 1000 / mib;
	r.cpu_us_mib = (double)cpu / 1000 / mib;
	return r;
}

/* ---- fio ---- */

static struct result fio_read_result(const char *path, u32 op)
{
	json_error_t err;
	json_t *root = json_load_file(path, 0, &err), *job, *io;
	struct result r;
	double bytes, ms, cpu;

	job = json_array_get(json_object_get(root, "jobs"), 0);
	io = json_object_get(job, op == SWAPD_READ ? "read" : "write");
	bytes = json_number_value(json_object_get(io, "io_bytes"));
	ms = json_number_value(json_object_get(io, "runtime"));
	cpu = json_number_value(json_object_get(job, "usr_cpu")) +
	      json_number_value(json_object_get(job, "sys_cpu"));
	if (!root || bytes <= 0 || ms <= 0)
		bench_die("what fio printed cannot be read: %s", path);
	json_decref(root);
	r.us_mib = ms * 1000 / (bytes / (1 << 20));
	r.cpu_us_mib = r.us_mib * cpu / 100;
	return r;
}

static struct result run_fio(u32 op)
{
	char cmd[1024], out[300];
	const char *rw = op == SWAPD_READ ? "randread --readonly" : "randwrite";

	snprintf(out, sizeof(out), "%s/fio.json", b.dir);
	snprintf(cmd, sizeof(cmd),
		 "fio --name=peer --filename='%s/%s' --rw=%s --bs=%u --size=%llu --iodepth=%u --ioengine=io_uring --direct=1 --fixedbufs --registerfiles --iomem=%s --norandommap --randrepeat=0 --time_based --ramp_time=%llums --runtime=%llums --output-format=json --output='%s' >/dev/null 2>&1",
		 b.dir, op == SWAPD_READ ? "area" : "fio.dat", rw, b.bs,
		 AREA_BYTES, DEPTH, b.huge ? "shmhuge" : "shm",
		 RAMP_NS / 1000000, ROUND_NS / 1000000, out);
	if (system(cmd))
		bench_die("fio failed: %s", cmd);
	return fio_read_result(out, op);
}

/* Its file has all its blocks written, as the area has. */
static void fio_prepare(void)
{
	char cmd[512];

	snprintf(cmd, sizeof(cmd),
		 "fio --name=fill --filename='%s/fio.dat' --rw=write --bs=1m --size=%llu --direct=1 --ioengine=io_uring --iodepth=8 >/dev/null 2>&1",
		 b.dir, AREA_BYTES);
	if (system(cmd))
		bench_die("fio cannot write its file: room in %s?", b.dir);
}

/* ---- rounds ---- */

static void series_add(struct bench_series *s, double v)
{
	s->p50[s->rounds] = v;
	s->p99[s->rounds++] = v;
}

static void report(const char *what, const char *name, const char *peer,
		   double max_ratio, const struct bench_series *ours,
		   const struct bench_series *theirs)
{
	char full[64];
	struct bench_figure f = {
		.name = full,
		.value = bench_median(ours->p50, ours->rounds),
		.unit = "us/MiB",
		.peer = peer,
		.max_ratio = peer ? max_ratio : 0,
		.series = ours,
	};

	if (peer)
		f.peer_value = bench_median(theirs->p50, theirs->rounds);
	snprintf(full, sizeof(full), "swap_%s_%s", what, name);
	bench_report(&f);
	fprintf(stderr, "%-24s %8.1f MiB/s", full, 1e6 / f.value);
	if (peer)
		fprintf(stderr, "   fio %8.1f MiB/s   ratio of rates %.3f",
			1e6 / f.peer_value, f.peer_value / f.value);
	fprintf(stderr, "\n");
}

static void report_cpu(const char *name, const char *peer,
		       const struct bench_series *ours,
		       const struct bench_series *theirs)
{
	char full[96];
	struct bench_figure f = {
		.name = full, .unit = "us/MiB", .peer = peer, .series = ours,
		.value = bench_median(ours->p50, ours->rounds),
		.peer_value = peer ? bench_median(theirs->p50,
						  theirs->rounds) : 0,
	};

	if (peer && f.peer_value <= 0)
		f.peer = NULL;
	snprintf(full, sizeof(full), "swap_cpu_%s", name);
	bench_report(&f);
	fprintf(stderr, "%-24s %8.1f us of CPU a MiB", full, f.value);
	if (f.peer)
		fprintf(stderr, "   fio %8.1f", f.peer_value);
	fprintf(stderr, "\n");
}

static void run_size(u32 op, u32 bs, const char *name, const char *peer)
{
	struct bench_series t = { .name = name }, ft = t, c = t, fc = t, l = t;
	const struct bench_figure lat = {
		.name = name, .unit = "us", .series = &l,
	};
	struct bench_figure named = lat;
	char text[64];
	u32 i;

	b.bs = bs;
	/* Every slot of this size holds what it says. */
	b.op = SWAPD_WRITE;
	load_until(0, nr_slots());
	load_drain();
	for (i = 0; i < ROUNDS; i++) {
		struct result ours, theirs = { 0, 0 };

		if (i % 2 && peer)
			theirs = run_fio(op);
		ours = run_swapd(op);
		if (!(i % 2) && peer)
			theirs = run_fio(op);
		bench_round(&l, &b.latency);
		series_add(&t, ours.us_mib);
		series_add(&c, ours.cpu_us_mib);
		series_add(&ft, theirs.us_mib);
		series_add(&fc, theirs.cpu_us_mib);
	}
	report(op == SWAPD_READ ? "in" : "out", name, peer, 1 / 0.95, &t, &ft);
	snprintf(text, sizeof(text), "%s_%s", op == SWAPD_READ ? "in" : "out",
		 name);
	report_cpu(text, peer, &c, &fc);
	snprintf(text, sizeof(text), "swap_latency_%s_%s",
		 op == SWAPD_READ ? "in" : "out", name);
	named.name = text;
	named.value = bench_median(l.p50, l.rounds);
	bench_report(&named);
}

/* ---- sums ---- */

static void bench_crc(void)
{
	const size_t len = 1 << 20;
	struct bench_series s = { .name = "crc" }, m = { .name = "copy" };
	u8 *from = aligned_alloc(4096, len), *to = aligned_alloc(4096, len);
	struct bench_figure f = {
		.name = "swap_crc32c", .unit = "us/MiB", .peer = "memcpy",
		.series = &s,
	};
	u32 round, i, sum = 0;
	u64 start;

	if (!from || !to)
		bench_die("no memory");
	memset(from, 0x5a, len);
	memset(to, 0, len);
	crc32c_init(false);
	for (round = 0; round < ROUNDS; round++) {
		start = bench_now();
		for (i = 0; i < 200; i++)
			sum ^= crc32c(sum, from, len);
		series_add(&s, (double)(bench_now() - start) / 200e3);
		start = bench_now();
		for (i = 0; i < 200; i++) {
			memcpy(to, from, len);
			/* So that every copy is made. */
			__asm__ __volatile__("" : : "r"(to) : "memory");
		}
		series_add(&m, (double)(bench_now() - start) / 200e3);
	}
	f.value = bench_median(s.p50, s.rounds);
	f.peer_value = bench_median(m.p50, m.rounds);
	bench_report(&f);
	fprintf(stderr, "crc32c (%s): %.1f GB/s, memcpy %.1f GB/s (%08x)\n",
		crc32c_name(), 1048.576 / f.value, 1048.576 / f.peer_value,
		sum);
	free(from);
	free(to);
}

/* ---- the fake kvmm ---- */

static bool huge_pages_free(void)
{
	unsigned long pages = 0;
	char line[128];
	FILE *f = fopen("/proc/meminfo", "re");

	while (f && fgets(line, sizeof(line), f))
		if (sscanf(line, "HugePages_Free: %lu", &pages) == 1)
			break;
	if (f)
		fclose(f);
	/* The pool, and as much as fio takes. */
	return pages >= HUGE_PAGES;
}

static void open_all(void)
{
	char path[300];

	b.huge = huge_pages_free();
	if (!b.huge)
		fprintf(stderr, "note: 4 KiB pages: for figures that count, sysctl vm.nr_hugepages=%llu first\n",
			HUGE_PAGES);
	sc_open(&b.c, 64, POOL_BYTES,
		HOLD_SWAP_VALUE(DEPTH, SWAPD_ENGINE_AUTO, 4, 0), load_done);
	fprintf(stderr, "engine: %s\n", b.c.engine == SWAPD_ENGINE_URING ?
		"io_uring" : "threads");
	snprintf(path, sizeof(path), "%s/area", b.dir);
	b.area_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (b.area_fd < 0 ||
	    sc_area_add(&b.c, 0, b.area_fd, AREA_BYTES, 0, NULL, &b.area))
		bench_die("no area: %s", b.area.text);
	if (b.area.text[0])
		fprintf(stderr, "note: %s\n", b.area.text);
}

static int fake_main(const char *dir)
{
	static const struct {
		u32 bs;
		const char *name;
	} size[] = {
		{ 512 << 10, "512k" }, { 1 << 20, "1m" }, { 2 << 20, "2m" },
		{ 8 << 20, "8m" },
	};
	const char *peer = "fio";
	u32 i;

	b.dir = dir;
	bench_samples_init(&b.latency, 100000);
	open_all();
	bench_crc();
	if (system("fio --version >/dev/null 2>&1")) {
		fprintf(stderr, "note: fio is not installed (apt-get install fio): no peer\n");
		peer = NULL;
	}
	if (peer)
		fio_prepare();
	for (i = 0; i < ARRAY_SIZE(size); i++) {
		run_size(SWAPD_READ, size[i].bs, size[i].name, peer);
		run_size(SWAPD_WRITE, size[i].bs, size[i].name, peer);
	}
	bench_samples_free(&b.latency);
	return 0;
}

int main(int argc, char **argv)
{
	const char *tmp = getenv("TMPDIR"), *build = getenv("KVMM_BUILD");
	char *args[] = { NULL, (char *)FAKE_OPTION, NULL, NULL };
	static char dir[256];
	char cmd[300];
	struct statvfs fs;
	int status;
	pid_t pid;

	if (argc == 3 && !strcmp(argv[1], FAKE_OPTION))
		return fake_main(argv[2]);
	snprintf(dir, sizeof(dir), "%s/bench_swap.XXXXXX", tmp ? tmp : "/tmp");
	if (!mkdtemp(dir))
		bench_die("%s: %s", dir, strerror(errno));
	if (!statvfs(dir, &fs) && fs.f_bavail * fs.f_frsize < 3 * AREA_BYTES)
		bench_die("%s has less than 3 GiB free: set TMPDIR", dir);
	sc_prepare(dir, build ? build : "build");
	args[2] = dir;
	pid = sc_spawn(dir, args, NULL);
	if (waitpid(pid, &status, 0) != pid)
		status = -1;
	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", dir);
	if (system(cmd))
		fprintf(stderr, "bench: %s cannot be removed\n", dir);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
