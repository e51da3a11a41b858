// SPDX-License-Identifier: Apache-2.0
/*
 * check_swapd_depth.c - the depths of writes and reads on made-up disks
 *
 * A disk has lanes that do one transfer each at a time, in the order of
 * arrival, and share one bandwidth.  There is always another write; a read
 * comes now and then, or several are always there.  The clock is made up, so
 * the figures are the same everywhere.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "swapd/depth.h"

#define MS		1000000ull
#define SEC		(1000 * MS)
#define MOST		64u
#define START		(1000 * SEC)
#define BYTES		(1u << 20)
#define NR		(4 * MOST)

struct disk {
	u32	lanes;
	u64	base_ns;	/* each transfer */
	u64	rate;		/* bytes a second of all lanes */
};

struct result {
	double	mib_s;
	double	writes_mib_s;
	double	p99_ms;		/* of reads */
	u32	limit;
};

struct xfer {
	bool	write;
	u64	issued;
	u64	end;		/* 0: it waits */
};

static struct xfer q[NR];	/* transfers in the kernel, oldest first */
static u32 nr_q, reads_in_q;
static u64 bus_free;

static int by_value(const void *a, const void *b)
{
	const u64 x = *(const u64 *)a, y = *(const u64 *)b;

	return x < y ? -1 : x > y;
}

static void disk_start(const struct disk *disk, u64 now)
{
	u32 i, busy = 0;

	for (i = 0; i < nr_q; i++)
		busy += q[i].end > 0;
	for (i = 0; i < nr_q && busy < disk->lanes; i++) {
		if (q[i].end)
			continue;
		bus_free = max(bus_free, now) + BYTES * SEC / disk->rate;
		q[i].end = max(bus_free, now + disk->base_ns);
		busy++;
	}
}

static void issue(struct sd_depth *d, bool write, u64 now)
{
	ck_assert_uint_lt(nr_q, NR);
	q[nr_q++] = (struct xfer){ .write = write, .issued = now };
	reads_in_q += !write;
	depth_issued(d, write, BYTES, now);
}

/* Time of the next event: the end of a transfer, or a read at @next. */
static u64 next_event(u64 next)
{
	u32 i;

	for (i = 0; i < nr_q; i++)
		if (q[i].end)
			next = min(next, q[i].end);
	return next;
}

/*
 * @every: nanoseconds between reads, 0: none
 * @reads: number of reads that are always there
 */
static struct result run(const struct disk *disk, struct sd_depth *d, u64 every,
			 u32 reads, u64 span)
{
	static u64 lat[200000];
	u64 now = START, bytes = 0, wr = 0;
	u64 next = every ? START : -1ull;
	struct result r = { 0 };
	u32 nr = 0, i;

	nr_q = 0;
	reads_in_q = 0;
	bus_free = 0;
	while (now < START + span) {
		for (; every && next <= now; next += every)
			issue(d, false, now);
		while (reads_in_q < reads)
			issue(d, false, now);
		while (nr_q < NR / 2 && d->moving[1] < MOST &&
		       depth_allows_write(d))
			issue(d, true, now);
		disk_start(disk, now);
		now = next_event(next);
		for (i = 0; i < nr_q; i++) {
			const struct xfer x = q[i];

			if (!x.end || x.end > now)
				continue;
			memmove(&q[i], &q[i + 1], (nr_q-- - i - 1) * sizeof(x));
			i--;
			reads_in_q -= !x.write;
			depth_landed(d, x.write, BYTES, now - x.issued, now);
			/* The first third is for learning, and not counted. */
			if (now < START + span / 3)
				continue;
			bytes += BYTES;
			wr += x.write ? BYTES : 0;
			if (!x.write && nr < ARRAY_SIZE(lat))
				lat[nr++] = now - x.issued;
		}
	}
	qsort(lat, nr, sizeof(*lat), by_value);
	r.mib_s = (double)bytes / BYTES / ((double)(span - span / 3) / SEC);
	r.writes_mib_s = (double)wr / BYTES /
			 ((double)(span - span / 3) / SEC);
	r.p99_ms = nr ? (double)lat[nr * 99 / 100] / MS : 0;
	r.limit = d->limit;
	return r;
}

/* Many transfers or much time are enough to learn. */
static u64 span_of(const struct disk *disk)
{
	return disk->rate > 1ull << 30 ? 12 * SEC : 60 * SEC;
}

static const struct {
	const char	*what;
	struct disk	disk;
	u64		every;
	double		better;		/* factor for the p99 of reads */
} disks[] = {
	{ "slow, one at a time",  { 1, 1 * MS, 60ull << 20 },   50 * MS, 8 },
	{ "slow, deep",		  { 32, 1 * MS, 60ull << 20 },  50 * MS, 4 },
	{ "very slow",		  { 1, 5 * MS, 10ull << 20 },   500 * MS, 4 },
	{ "fast, one at a time",  { 1, MS / 10, 4000ull << 20 }, 5 * MS, 4 },
	{ "needs sixteen",	  { 16, 4 * MS, 4000ull << 20 }, 5 * MS, 1 },
};

/* Reads wait less than with the fixed depth, at the same throughput. */
START_TEST(test_reads_among_writes)
{
	struct sd_depth fixed, adapts;
	struct result f, a;

	depth_init(&fixed, MOST, MOST, 20 * MS, 0);
	depth_init(&adapts, 1, MOST, 20 * MS, 0);
	f = run(&disks[_i].disk, &fixed, disks[_i].every, 0,
		span_of(&disks[_i].disk));
	a = run(&disks[_i].disk, &adapts, disks[_i].every, 0,
		span_of(&disks[_i].disk));
	printf("%-20s p99 %8.2f -> %8.2f ms, %7.1f -> %7.1f MiB/s, limit %u\n",
	       disks[_i].what, f.p99_ms, a.p99_ms, f.mib_s, a.mib_s, a.limit);
	ck_assert_uint_eq(f.limit, MOST);
	ck_assert_msg(a.p99_ms * disks[_i].better <= f.p99_ms,
		      "p99 of reads %.2f ms, %.2f before", a.p99_ms, f.p99_ms);
	ck_assert_msg(a.mib_s >= 0.95 * f.mib_s, "%.1f MiB/s, %.1f before",
		      a.mib_s, f.mib_s);
}
END_TEST

/* Without reads the throughput is the same, and a later read does not wait for ever. */
START_TEST(test_writes_alone)
{
	const struct disk *disk = &disks[_i].disk;
	struct sd_depth fixed, adapts;
	struct result f, a;

	depth_init(&fixed, MOST, MOST, 20 * MS, 0);
	depth_init(&adapts, 1, MOST, 20 * MS, 0);
	f = run(disk, &fixed, 0, 0, span_of(disk) / 2);
	a = run(disk, &adapts, 0, 0, span_of(disk) / 2);
	ck_assert_msg(a.mib_s >= 0.95 * f.mib_s, "%.1f MiB/s, %.1f before",
		      a.mib_s, f.mib_s);
	if (disk->rate <= 60ull << 20)
		ck_assert_uint_le(a.limit, 12);
}
END_TEST

/* With endless reads, writes get about a quarter of the throughput. */
START_TEST(test_reads_without_end)
{
	const struct disk *disk = &disks[_i].disk;
	struct sd_depth d;
	struct result r;

	depth_init(&d, 1, MOST, 20 * MS, 0);
	r = run(disk, &d, 0, 30, span_of(disk));
	ck_assert_msg(r.writes_mib_s >= 0.2 * r.mib_s, "%.1f of %.1f MiB/s",
		      r.writes_mib_s, r.mib_s);
}
END_TEST

START_TEST(test_bounds)
{
	const struct disk slow = { 1, MS, 60ull << 20 };
	const struct disk fast = { 64, MS / 10, 8000ull << 20 };
	struct sd_depth d;

	u32 limit;

	/* The quickest read waits for five writes. */
	depth_init(&d, 5, 64, MS, 0);
	limit = run(&slow, &d, 100 * MS, 0, 60 * SEC).limit;
	ck_assert_uint_ge(limit, 5);
	ck_assert_uint_le(limit, 16);
	depth_init(&d, 1, 12, 1000 * MS, 0);
	ck_assert_uint_eq(run(&fast, &d, 0, 0, 2 * SEC).limit, 12);
	depth_init(&d, 7, 3, MS, 0);
	ck_assert_uint_eq(d.limit, 3);
	ck_assert_uint_eq(run(&slow, &d, 100 * MS, 0, 10 * SEC).limit, 3);
	/* A depth that is not used up does not grow. */
	depth_init(&d, 1, 64, MS, 0);
	depth_issued(&d, true, BYTES, 1);
	ck_assert(!depth_landed(&d, true, BYTES, SEC, SEC));
	ck_assert_uint_eq(d.limit, 8);
}
END_TEST

/* Number of reads of @bytes each that may be under way. */
static u32 reads_allowed(struct sd_depth *d, u64 bytes)
{
	u32 nr;

	for (nr = 0; nr < NR && depth_allows_read(d); nr++)
		depth_issued(d, false, bytes, START);
	return nr;
}

/* Reads at once: up to the bound in bytes, but at least eight. */
START_TEST(test_reads)
{
	static const struct {
		u64	bound;
		u64	bytes;
		u32	nr;
	} of[] = {
		{ 24ull << 20, 64ull << 10, NR },
		{ 24ull << 20, 512ull << 10, 48 },
		{ 24ull << 20, 2ull << 20, 12 },
		{ 24ull << 20, 8ull << 20, 8 },
		{ 24ull << 20, 5ull << 20, 8 },
		{ 1, 1, 8 },
		{ 0, 256ull << 20, NR },
	};
	struct sd_depth d, next;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(of); i++) {
		depth_init(&d, 1, MOST, 20 * MS, of[i].bound);
		ck_assert_uint_eq(reads_allowed(&d, of[i].bytes), of[i].nr);
		if (of[i].nr == NR)
			continue;
		/* Writes take no room of reads; a finished read makes room. */
		depth_issued(&d, true, of[i].bytes, START);
		depth_landed(&d, true, of[i].bytes, MS, START);
		ck_assert(!depth_allows_read(&d));
		depth_landed(&d, false, of[i].bytes, MS, START);
		ck_assert_uint_eq(reads_allowed(&d, of[i].bytes), 1);
		/* Reads of the last life of the area count until they are over. */
		depth_init(&next, 1, MOST, 20 * MS, of[i].bound);
		depth_inherit(&next, &d);
		ck_assert(!depth_allows_read(&next));
		while (next.moving[0])
			depth_landed(&next, false, of[i].bytes, MS, START);
		ck_assert_uint_eq(next.reading, 0);
		ck_assert_uint_eq(reads_allowed(&next, of[i].bytes), of[i].nr);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("swapd-depth");
	TCase *tc = tcase_create("disks");
	SRunner *sr;
	int failed;

	tcase_add_loop_test(tc, test_reads_among_writes, 0, ARRAY_SIZE(disks));
	tcase_add_loop_test(tc, test_writes_alone, 0, ARRAY_SIZE(disks));
	tcase_add_loop_test(tc, test_reads_without_end, 0, ARRAY_SIZE(disks));
	tcase_add_test(tc, test_bounds);
	tcase_add_test(tc, test_reads);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
