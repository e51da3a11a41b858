// SPDX-License-Identifier: Apache-2.0
/*
 * bench_hostpool.c - gains of huge pages for a disk, and of threads for filling
 *
 * Reads: host pools as the daemon makes them, one on ordinary pages, one on
 * transparent huge ones, and one on reserved huge pages if enough are free.
 * Each is registered with its own io_uring.  Direct reads of the same file into
 * each pool take turns, as many at once, at the same places.  The disk is the
 * same, so the difference is the cost of the pages.  The kernel says which pages
 * a pool really has; a pool with other pages than it should have ends the
 * benchmark.
 *
 * Filling: the same memory with one thread and with as many as the daemon
 * takes, on ordinary and on huge pages, in turn; freeing it is not counted.
 * Each is filled twice and the second one counts: on a virtual machine the
 * first may have to wait for its host, which took unused memory back.
 *
 * Figures are time and CPU a MiB: less is better.  CPU is that of this process,
 * which submits; the kernel's own threads are not counted.  On a virtual machine
 * a file may live in the host's cache: then the disk is fast, and the ratio
 * larger.
 */
#include <fcntl.h>
#include <liburing.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <kvmm/fault.h>
#include <kvmm/log.h>

#include "kvmm/dev/hostpool.h"
#include "kvmm/dev/memory.h"
#include "tests/bench/bench.h"

#define ROUNDS		7
#define ROUND_NS	300000000ull
#define DEPTH		16
#define FILE_BYTES	(512ull << 20)
#define POOL_BYTES	(128ull << 20)
#define FILL_BYTES	(512ull << 20)
#define MIB		(1 << 20)

enum kind { ORDINARY, THP, HUGETLB, NR_KINDS };

static const char * const kind_name[NR_KINDS] = {
	"4k", "thp", "hugetlb",
};

static const char * const kind_fault[NR_KINDS] = {
	"host_huge,host_thp", "host_huge", NULL,
};

struct side {
	struct hostpool		hp;
	struct io_uring		ring;
	bool			there;
	u32			out;
	struct bench_series	time;
	struct bench_series	cpu;
};

static struct side side[NR_KINDS];
static u32 bs;
static u32 next;

static void series_add(struct bench_series *s, double v)
{
	s->p50[s->rounds] = v;
	s->p99[s->rounds++] = v;
}

static double cpu_us(void)
{
	struct rusage r;

	getrusage(RUSAGE_SELF, &r);
	return (double)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1e6 +
	       (double)(r.ru_utime.tv_usec + r.ru_stime.tv_usec);
}

/* ---- reads ---- */

static void side_open(enum kind kind, int fd)
{
	const struct hostpool_ask ask = {
		.bytes = POOL_BYTES, .near = -1, .stop = -1, .again = true,
		.numa = { .node = -1 },
	};
	struct side *s = &side[kind];
	struct iovec iov = { .iov_len = POOL_BYTES };
	char text[128];
	u64 huge;
	int err;

	if (kv_fault_init(kind_fault[kind], text, sizeof(text)) ||
	    hostpool_create(&s->hp, &ask))
		bench_die("no host pool of %llu MiB", POOL_BYTES >> 20);
	huge = kind == HUGETLB ? s->hp.found.hugetlb : s->hp.found.thp;
	if (kind == ORDINARY ? huge : huge != POOL_BYTES)
		bench_die("pool %s: %llu MiB of it lie on huge pages",
			  kind_name[kind], (unsigned long long)huge >> 20);
	iov.iov_base = s->hp.base;
	err = io_uring_queue_init(2 * DEPTH, &s->ring, 0);
	if (!err)
		err = io_uring_register_buffers(&s->ring, &iov, 1);
	if (!err)
		err = io_uring_register_files(&s->ring, &fd, 1);
	if (err)
		bench_die("no io_uring with registered memory: %s: raise the limit (ulimit -l)",
			  strerror(-err));
	s->there = true;
}

static void side_close(struct side *s)
{
	if (!s->there)
		return;
	io_uring_queue_exit(&s->ring);
	hostpool_destroy(&s->hp);
}

/* Submit reads at places of file and pool that no disk could guess. */
static void side_submit(struct side *s)
{
	struct io_uring_sqe *sqe;
	u32 i;

	while (s->out < DEPTH) {
		i = next++;
		sqe = io_uring_get_sqe(&s->ring);
		if (!sqe)
			bench_die("the ring is full");
		io_uring_prep_read_fixed(sqe, 0, s->hp.base +
					 (u64)i * bs % POOL_BYTES, bs,
					 (u64)i * 7919 % (FILE_BYTES / bs) * bs,
					 0);
		sqe->flags |= IOSQE_FIXED_FILE;
		s->out++;
	}
}

/* Read until @end, then until no read is in flight.  Return: bytes read. */
static u64 side_read(struct side *s, u64 end)
{
	struct io_uring_cqe *cqe;
	u64 bytes = 0;

	do {
		if (bench_now() < end)
			side_submit(s);
		if (io_uring_submit_and_wait(&s->ring, 1) < 0)
			bench_die("io_uring_enter: %s", strerror(errno));
		while (!io_uring_peek_cqe(&s->ring, &cqe)) {
			if (cqe->res != (s32)bs)
				bench_die("a read gave %d of %u bytes",
					  cqe->res, bs);
			io_uring_cqe_seen(&s->ring, cqe);
			bytes += bs;
			s->out--;
		}
	} while (s->out);
	return bytes;
}

static void side_round(struct side *s)
{
	u64 start = bench_now(), bytes;
	double cpu = cpu_us(), mib;

	bytes = side_read(s, start + ROUND_NS);
	mib = (double)bytes / MIB;
	series_add(&s->time, (double)(bench_now() - start) / 1000 / mib);
	series_add(&s->cpu, (cpu_us() - cpu) / mib);
}

static void report(const char *name, const struct bench_series *ours,
		   const char *peer, const struct bench_series *theirs)
{
	double lo, hi, plo, phi;
	struct bench_figure f = {
		.name = name, .unit = "us/MiB", .peer = peer, .series = ours,
		.value = bench_median(ours->p50, ours->rounds),
	};

	bench_range(ours->p50, ours->rounds, &lo, &hi);
	fprintf(stderr, "%-28s %8.1f us/MiB (%.1f to %.1f)", name, f.value, lo,
		hi);
	if (peer) {
		f.peer_value = bench_median(theirs->p50, theirs->rounds);
		bench_range(theirs->p50, theirs->rounds, &plo, &phi);
		fprintf(stderr, "   %s %8.1f (%.1f to %.1f)   %.2f times as fast",
			peer, f.peer_value, plo, phi, f.peer_value / f.value);
	}
	fprintf(stderr, "\n");
	bench_report(&f);
}

static void run_reads(const char *size)
{
	char name[64];
	u32 i, k;

	for (k = 0; k < NR_KINDS; k++) {
		memset(&side[k].time, 0, sizeof(side[k].time));
		memset(&side[k].cpu, 0, sizeof(side[k].cpu));
		side[k].time.name = kind_name[k];
		side[k].cpu.name = kind_name[k];
	}
	for (i = 0; i < ROUNDS; i++)
		for (k = 0; k < NR_KINDS; k++)
			if (side[(i + k) % NR_KINDS].there)
				side_round(&side[(i + k) % NR_KINDS]);
	for (k = THP; k < NR_KINDS; k++) {
		if (!side[k].there)
			continue;
		snprintf(name, sizeof(name), "hostpool_read_%s_%s", size,
			 kind_name[k]);
		report(name, &side[k].time, "4k", &side[ORDINARY].time);
		snprintf(name, sizeof(name), "hostpool_read_cpu_%s_%s", size,
			 kind_name[k]);
		report(name, &side[k].cpu, "4k", &side[ORDINARY].cpu);
	}
}

/* Make a file with all blocks written.  Return: a descriptor without page cache. */
static int file_make(void)
{
	const char *tmp = getenv("TMPDIR");
	char path[300], *buf = aligned_alloc(4096, MIB);
	u64 at;
	int fd;

	snprintf(path, sizeof(path), "%s/bench-hostpool.XXXXXX",
		 tmp ? tmp : "/tmp");
	fd = mkostemp(path, O_DIRECT | O_CLOEXEC);
	if (fd < 0 || !buf)
		bench_die("%s: %s", path, strerror(errno));
	unlink(path);
	memset(buf, 0x5a, MIB);
	for (at = 0; at < FILE_BYTES; at += MIB)
		if (pwrite(fd, buf, MIB, (off_t)at) != MIB)
			bench_die("%s: cannot be written: %s", path,
				  strerror(errno));
	free(buf);
	return fd;
}

static void bench_reads(void)
{
	static const struct {
		u32 bs;
		const char *name;
	} size[] = {
		{ 512 << 10, "512k" }, { 2 << 20, "2m" },
	};
	struct memory_room m;
	int fd = file_make();
	u32 i;

	side_open(ORDINARY, fd);
	side_open(THP, fd);
	memory_look(&m, "");
	if (m.huge_free >= POOL_BYTES)
		side_open(HUGETLB, fd);
	else
		fprintf(stderr, "note: no pages set aside: for their figures, sysctl vm.nr_hugepages=%llu first\n",
			POOL_BYTES >> 21);
	for (i = 0; i < ARRAY_SIZE(size); i++) {
		bs = size[i].bs;
		run_reads(size[i].name);
	}
	for (i = 0; i < NR_KINDS; i++)
		side_close(&side[i]);
	close(fd);
}

/* ---- filling ---- */

static double fill_once(bool huge, u32 threads, u32 *had)
{
	struct hostpool hp = { .bytes = FILL_BYTES, .mapped = FILL_BYTES };
	char *room;
	int err;

	hp.fd = memfd_create("bench", MFD_CLOEXEC);
	room = mmap(NULL, FILL_BYTES + HOSTPOOL_HUGE, PROT_NONE,
		    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (hp.fd < 0 || room == MAP_FAILED ||
	    ftruncate(hp.fd, (off_t)FILL_BYTES))
		bench_die("no memory: %s", strerror(errno));
	hp.base = mmap((char *)ALIGN_UP((uintptr_t)room, HOSTPOOL_HUGE),
		       FILL_BYTES, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_FIXED, hp.fd, 0);
	err = hostpool_fill(&hp, huge, threads, -1);
	if (err)
		bench_die("filling: %s", strerror(-err));
	*had = hp.filled.threads;
	munmap(room, FILL_BYTES + HOSTPOOL_HUGE);
	close(hp.fd);
	return (double)hp.filled.ns / 1000 / (double)(FILL_BYTES / MIB);
}

/* All four kinds take turns; a kind fills the memory that it had just before. */
static void bench_fill(void)
{
	struct bench_series t[4] = {
		{ .name = "4k" }, { .name = "4k 1" }, { .name = "thp" },
		{ .name = "thp 1" },
	};
	u32 i, k, had, nr = 0;

	for (i = 0; i < ROUNDS; i++) {
		for (k = 0; k < 4; k++) {
			const u32 w = (i + k) % 4;

			(void)fill_once(w >= 2, w % 2, &had);
			series_add(&t[w], fill_once(w >= 2, w % 2, &had));
			nr = max(nr, had);
		}
	}
	fprintf(stderr, "filling: %u threads\n", nr);
	report("hostpool_fill_4k", &t[0], "1 thread", &t[1]);
	report("hostpool_fill_thp", &t[2], "1 thread", &t[3]);
	report("hostpool_fill_thp_1", &t[3], "4k", &t[1]);
}

int main(void)
{
	char text[128];

	kv_log_init("bench", KV_LOG_WARN);
	bench_reads();
	if (kv_fault_init(NULL, text, sizeof(text)))
		return 1;
	if (dev_memory_admit(2 * FILL_BYTES))
		bench_die("too little memory for filling");
	bench_fill();
	return 0;
}
