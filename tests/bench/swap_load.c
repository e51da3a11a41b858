// SPDX-License-Identifier: Apache-2.0
/*
 * swap_load.c - a real swapd kept busy by a fake kvmm
 *
 * This program is a fake kvmm under a real kvmm-hold (tests/swapd_client.h).
 * It keeps so many reads and so many writes unfinished, at random places of an
 * area.  Reads are of the lower half of the area, writes of the upper one when
 * both go on, so that no slot is read while it is written.
 */
#include "swapd/crc32c.h"
#include "tests/bench/huge.h"
#include "tests/bench/swap_load.h"
#include "tests/swapd_client.h"

#define PLACES		(4u * LOAD_DEPTH)	/* slots of the host pool */
#define POOL_BYTES	((u64)PLACES * LOAD_SLOT_MAX)
#define HUGE_PAGES	((POOL_BYTES + LOAD_DEPTH * LOAD_SLOT_MAX) / \
			 (2 << 20) + 8)

/* One kind of request. */
struct stream {
	u32	next;
	u32	next_place;
	u32	out;
	u64	done;
	u32	first;		/* slot, and how many */
	u32	nr;
	u32	first_place;
	u32	nr_places;
	bool	record;
};

static struct {
	struct swapc		c;
	int			area_fd;
	struct swapd_answer	area;
	u32			bs;
	bool			huge;
	u64			started[SC_TAGS];
	struct stream		s[2];	/* reads, writes */
	struct bench_samples	*lat;
	u64			summed;
	u32			sum;
} b;

static u32 nr_slots(u32 bs)
{
	return (u32)(b.area.usable_bytes / bs);
}

static void load_one(bool write)
{
	struct stream *s = &b.s[write];
	/* A walk that meets every slot, in no order a disk could guess. */
	const u32 slot = s->first + (u32)((u64)s->next++ * 7919 % s->nr);
	const u32 place = s->first_place + s->next_place++ % s->nr_places;
	struct swapd_req r = {
		.op = write ? SWAPD_WRITE : SWAPD_READ,
		.host_off = (u64)place * LOAD_SLOT_MAX,
		.area_off = b.area.usable_off + (u64)slot * b.bs,
		.len = b.bs,
		.payload_len = b.bs - SWAPD_HEADER_BYTES,
		.hash = { slot, b.bs },
		.generation = 1,
	};
	u32 tag = b.c.free_tag[b.c.nr_free - 1];

	b.started[tag] = bench_ticks();
	s->out++;
	sc_submit(&b.c, &r, &b.started[tag]);
}

static void load_done(struct swapc *c, const struct swapd_req *req, void *arg,
		      enum sc_how how, int status)
{
	struct stream *s = &b.s[req->op == SWAPD_WRITE];

	if (how != SC_COMPLETED || status)
		bench_die("a request failed: %s", strerror(-status));
	if (s->record)
		bench_add(b.lat, bench_ticks() - *(u64 *)arg);
	s->out--;
	s->done++;
}

static void load_step(u32 reads, u32 writes)
{
	while (b.s[0].out < reads)
		load_one(false);
	while (b.s[1].out < writes)
		load_one(true);
	sc_kick(&b.c);
	sc_poll(&b.c, 100);
}

static void load_drain(void)
{
	if (!sc_quiet(&b.c, 20000))
		bench_die("requests without an answer");
}

void load_prepare(u32 bs)
{
	b.bs = bs;
	b.s[1] = (struct stream){ .nr = nr_slots(bs), .nr_places = PLACES };
	while (b.s[1].done < b.s[1].nr)
		load_step(0, min(2 * LOAD_DEPTH,
				 b.s[1].nr - (u32)b.s[1].done));
	load_drain();
}

static void streams_reset(const struct load_mix *mix)
{
	const u32 n = nr_slots(mix->bs);
	const u32 parts = mix->reads && mix->writes ? 2 : 1;
	u32 i;

	b.bs = mix->bs;
	for (i = 0; i < 2; i++) {
		b.s[i].nr = n / parts;
		b.s[i].first = i * (n - n / parts);
		b.s[i].nr_places = PLACES / parts;
		b.s[i].first_place = i * (PLACES - PLACES / parts);
	}
}

struct load_result load_round(const struct load_mix *mix, u64 ramp_ns, u64 ns,
			      struct bench_samples *lat)
{
	const double mib = 1.0 / (1 << 20) * mix->bs;
	u64 start, end, from[2], cpu, took;
	struct load_result r = { 0 };
	double moved[2];
	u32 i;

	streams_reset(mix);
	b.lat = lat;
	for (end = bench_now() + ramp_ns; bench_now() < end;)
		load_step(mix->reads, mix->writes);
	b.s[mix->reads ? 0 : 1].record = true;
	for (i = 0; i < 2; i++)
		from[i] = b.s[i].done;
	cpu = bench_cpu_ns(b.c.pid);
	start = bench_now();
	for (end = start + ns; bench_now() < end;)
		load_step(mix->reads, mix->writes);
	took = bench_now() - start;
	cpu = bench_cpu_ns(b.c.pid) - cpu;
	for (i = 0; i < 2; i++) {
		b.s[i].record = false;
		moved[i] = (double)(b.s[i].done - from[i]) * mib;
	}
	load_drain();
	r.us_mib = (double)took / 1000 / (moved[0] + moved[1]);
	r.cpu_us_mib = (double)cpu / 1000 / (moved[0] + moved[1]);
	if (mix->writes)
		r.write_us_mib = (double)took / 1000 / moved[1];
	return r;
}

bool load_is_huge(void)
{
	return b.huge;
}

/* ---- sums ---- */

static double thread_cpu_us(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return (double)ts.tv_sec * 1e6 + (double)ts.tv_nsec / 1e3;
}

double load_sums(u32 bs, u64 bytes)
{
	const double start = thread_cpu_us();
	u64 n;

	/* On from where the last one ended: far more than a cache holds. */
	for (n = 0; n < bytes; n += bs, b.summed += bs)
		b.sum ^= crc32c(b.sum, b.c.pool + b.summed % POOL_BYTES, bs);
	return (thread_cpu_us() - start) / ((double)n / (1 << 20));
}

/* ---- the fake kvmm ---- */

void load_open(const char *dir)
{
	char path[300];
	struct stat st;

	crc32c_init(false);
	/* The pool, and as much as fio takes. */
	huge_pages_again(HUGE_PAGES);
	sc_open(&b.c, 64, POOL_BYTES,
		HOLD_SWAP_VALUE(LOAD_DEPTH, SWAPD_ENGINE_AUTO, 4, 0),
		load_done);
	/* What fio then has too, or it fails. */
	b.huge = !fstat(b.c.pool_fd, &st) && st.st_blksize == 2 << 20;
	if (!b.huge)
		fprintf(stderr, "note: 4 KiB pages: for figures that count, as root or after sysctl vm.nr_hugepages=%llu\n",
			(unsigned long long)HUGE_PAGES);
	fprintf(stderr, "engine: %s; sums: %s\n",
		b.c.engine == SWAPD_ENGINE_URING ? "io_uring" : "threads",
		crc32c_name());
	/* Every page of it once, and no zeros. */
	memset(b.c.pool, 0x5a, POOL_BYTES);
	snprintf(path, sizeof(path), "%s/area", dir);
	b.area_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	if (b.area_fd < 0 ||
	    sc_area_add(&b.c, 0, b.area_fd, LOAD_AREA, 0, NULL, &b.area))
		bench_die("no area: %s", b.area.text);
	if (b.area.text[0])
		fprintf(stderr, "note: %s\n", b.area.text);
}

/* ---- the driver's side ---- */

int load_drive(const char *dir, const char *option)
{
	const char *build = getenv("KVMM_BUILD");
	char *args[] = { NULL, (char *)option, (char *)dir, NULL };
	int status = -1;
	pid_t pid;

	huge_pages_take(HUGE_PAGES);
	sc_prepare(dir, build ? build : "build");
	pid = sc_spawn(dir, args, NULL);
	if (waitpid(pid, &status, 0) != pid)
		status = -1;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
