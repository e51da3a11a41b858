// SPDX-License-Identifier: Apache-2.0
/*
 * swap_depth.c - occasional reads among endless writes
 *
 * There are always more writes than swapd may give to the kernel.  At the end
 * the scene prints the time of each read, from the request to its completion,
 * and the bytes moved in all.  The test compares that with another choice of
 * the depth.  Places are not neighbours, so no transfer is shared.
 */
#include "tests/integration/swap_scenes.h"

#define SLOT		(256u << 10)
#define HOSTS		64
#define AREAS		240
#define WRITES		40	/* waiting, or with the kernel */
#define READS		8	/* places that are read */
#define EVERY_NS	25000000ull
#define LEARN_NS	2000000000ull
#define MAX_LAT		4096

static bool host_busy[HOSTS], area_busy[AREAS];
static u64 sent_ns[HOSTS];
static u64 lat[MAX_LAT], bytes;
static u32 nr_lat, nr_writes, reads_out;
static bool learnt;

static void depth_done(struct swapc *c, const struct swapd_req *req, void *arg,
		       enum sc_how how, int status)
{
	const u32 h = (u32)(req->host_off / SLOT);

	scene_check(how == SC_COMPLETED && !status, "%u: %s", how,
		    strerror(-status));
	host_busy[h] = false;
	area_busy[(req->area_off - SWAPD_RESERVED_BYTES) / SLOT] = false;
	if (req->op == SWAPD_WRITE)
		nr_writes--;
	else
		reads_out--;
	if (!learnt)
		return;
	bytes += req->len;
	if (req->op == SWAPD_READ && nr_lat < MAX_LAT)
		lat[nr_lat++] = sc_now_ns() - sent_ns[h];
}

static void submit(struct scene *s, u32 op, u32 a)
{
	struct swapd_req r;
	u32 h;

	for (h = 0; h < HOSTS && host_busy[h]; h++)
		;
	scene_check(h < HOSTS, "no host slot");
	host_busy[h] = true;
	area_busy[a] = true;
	sent_ns[h] = sc_now_ns();
	r = scene_req(s, op, (u64)h * SLOT, (u64)a * SLOT, SLOT, a, 1);
	sc_submit(&s->c, &r, NULL);
	if (op == SWAPD_WRITE)
		nr_writes++;
	else
		reads_out++;
}

/* No two places are neighbours: every other place behind the read ones. */
static void submit_write(struct scene *s)
{
	u32 a;

	do {
		a = 2 * (READS + scene_random(s, AREAS / 2 - READS));
	} while (area_busy[a]);
	submit(s, SWAPD_WRITE, a);
}

static int by_value(const void *a, const void *b)
{
	const u64 x = *(const u64 *)a, y = *(const u64 *)b;

	return x < y ? -1 : x > y;
}

/* @n: milliseconds, after those for learning. */
void scene_depth(struct scene *s)
{
	u64 begin, now, next, end;
	u32 a;

	scene_open(s, 64, 32, (u64)HOSTS * SLOT,
		   SWAPD_RESERVED_BYTES + (u64)AREAS * SLOT);
	s->c.done = depth_done;
	s->c.apart = true;
	for (a = 0; a < READS; a++)
		submit(s, SWAPD_WRITE, 2 * a);
	sc_kick(&s->c);
	scene_check(sc_quiet(&s->c, 20000), "writes hang");
	begin = sc_now_ns();
	end = begin + LEARN_NS + s->n * 1000000ull;
	for (now = begin, next = begin; now < end; now = sc_now_ns()) {
		learnt = now > begin + LEARN_NS;
		while (nr_writes < WRITES)
			submit_write(s);
		if (now >= next && reads_out < READS) {
			for (a = 0; area_busy[2 * a]; a++)
				;
			submit(s, SWAPD_READ, 2 * a);
			next = now + EVERY_NS;
		}
		sc_kick(&s->c);
		sc_poll(&s->c, 2);
	}
	learnt = false;
	scene_check(sc_quiet(&s->c, 60000), "requests without an answer");
	scene_check(nr_lat, "no read ended");
	qsort(lat, nr_lat, sizeof(*lat), by_value);
	fprintf(stderr, DEPTH_TALLY "\n", nr_lat,
		(u32)(lat[nr_lat / 2] / 1000),
		(u32)(lat[nr_lat * 99 / 100] / 1000),
		(u32)(bytes / 1024 * 1000 / s->n),
		(u32)READ_ONCE(s->c.ctl->area[0][SWAPD_AREA_CNT_wr_depth]),
		(u32)READ_ONCE(s->c.ctl->area[0][SWAPD_AREA_CNT_wr_lowered]));
}
