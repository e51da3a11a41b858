// SPDX-License-Identifier: Apache-2.0
/*
 * swap_load.c - a real swapd kept busy by a fake kvmm
 *
 * This program is a fake kvmm under a real kvmm-hold (tests/swapd_client.h).  It
 * keeps a number of reads and a number of writes unfinished, at random places of
 * an area.  When both go on, reads are of the lower half of the area and writes
 * of the upper one, so that no slot is read while it is written.  As kvmm it names
 * no slot, of the host or of the area, in two requests at once: places.h.
 */
#include "swapd/crc32c.h"
#include "tests/bench/huge.h"
#include "tests/bench/places.h"
#include "tests/bench/swap_load.h"
#include "tests/swapd_client.h"

#define PLACES		(4u * LOAD_DEPTH)	/* slots of the host pool */
#define POOL_BYTES	((u64)PLACES * LOAD_SLOT_MAX)
#define HUGE_PAGES	((POOL_BYTES + LOAD_DEPTH * LOAD_SLOT_MAX) / \
			 (2 << 20) + 8)

/* One kind of request. */
struct stream {
	u32		out;
	u64		done;
	struct places	slots;		/* of the area */
	struct places	hosts;
	bool		record;
};

/* An unfinished request. */
struct load_req {
	u64	started;
	u32	slot;
	u32	host;
};

static struct {
	struct swapc		c;
	int			area_fd;
	struct swapd_answer	area;
	u32			bs;
	bool			huge;
	struct load_req		req[SC_TAGS];
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
	struct load_req *l = &b.req[b.c.free_tag[b.c.nr_free - 1]];
	struct swapd_req r = {
		.op = write ? SWAPD_WRITE : SWAPD_READ,
		.len = b.bs,
		.payload_len = b.bs - SWAPD_HEADER_BYTES,
		.generation = 1,
	};

	l->slot = places_take(&s->slots);
	l->host = places_take(&s->hosts);
	if (l->slot == UINT32_MAX || l->host == UINT32_MAX)
		bench_die("more requests than slots");
	r.host_off = (u64)l->host * LOAD_SLOT_MAX;
	r.area_off = b.area.usable_off + (u64)l->slot * b.bs;
	r.hash[0] = l->slot;
	r.hash[1] = b.bs;
	l->started = bench_ticks();
	s->out++;
	sc_submit(&b.c, &r, l);
}

static void load_done(struct swapc *c, const struct swapd_req *req, void *arg,
		      enum sc_how how, int status)
{
	struct stream *s = &b.s[req->op == SWAPD_WRITE];
	const struct load_req *l = arg;

	if (how != SC_COMPLETED || status)
		bench_die("a request failed: %s", strerror(-status));
	if (s->record)
		bench_add(b.lat, bench_ticks() - l->started);
	places_give(&s->slots, l->slot);
	places_give(&s->hosts, l->host);
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
	struct stream *s = &b.s[1];
	const u32 nr = nr_slots(bs);

	b.bs = bs;
	s->done = 0;
	places_reset(&s->slots, 0, nr, 0);
	places_reset(&s->hosts, 0, PLACES, 0);
	while (s->done < nr)
		load_step(0, min(2 * LOAD_DEPTH, nr - (u32)s->done));
	load_drain();
}

static void streams_reset(const struct load_mix *mix)
{
	const u32 n = nr_slots(mix->bs);
	const u32 parts = mix->reads && mix->writes ? 2 : 1;
	const u32 slots = n / parts, hosts = PLACES / parts;
	u32 i;

	b.bs = mix->bs;
	for (i = 0; i < 2; i++) {
		places_reset(&b.s[i].slots, i * (n - slots), slots,
			     b.s[i].slots.next);
		places_reset(&b.s[i].hosts, i * (PLACES - hosts), hosts,
			     b.s[i].hosts.next);
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

	/* Go on where the last call ended: far more bytes than a cache holds. */
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
	/* For the pool, and as many for fio. */
	huge_pages_again(HUGE_PAGES);
	sc_open(&b.c, 64, POOL_BYTES,
		HOLD_SWAP_VALUE(LOAD_DEPTH, SWAPD_ENGINE_AUTO, 4, 0),
		load_done);
	b.c.apart = true;
	/* fio gets huge pages too in that case, or fails. */
	b.huge = !fstat(b.c.pool_fd, &st) && st.st_blksize == 2 << 20;
	if (!b.huge)
		fprintf(stderr, "note: 4 KiB pages: for figures that count, as root or after sysctl vm.nr_hugepages=%llu\n",
			(unsigned long long)HUGE_PAGES);
	fprintf(stderr, "engine: %s; sums: %s\n",
		b.c.engine == SWAPD_ENGINE_URING ? "io_uring" : "threads",
		crc32c_name());
	/* Touch every page once, with bytes that are not zero. */
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
