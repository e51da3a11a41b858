// SPDX-License-Identifier: Apache-2.0
/*
 * depth.c - how many transfers of an area the kernel has at once
 *
 * A sequence waits for a read, but not for a write.  The kernel does transfers in
 * any order: a read behind 64 writes of a slow disk waits for all of them.  swapd
 * can order only the requests that it still has.  So the kernel gets no more
 * writes than keep the disk busy.  Their number is adjusted after each window:
 *
 *	the rate is lower than before		more, the disk is idle at times;
 *						if that does not help, the disk
 *						is slower now
 *	as high, and reads are slow		fewer
 *	as high, and reads are quick		more
 *
 * Reads are slow if they take twice the time of the quickest recent read.  That
 * time is measured now and then, in a window with few writes.  Without reads, the
 * writes are slow if they take longer than --write-ms.  A window ends when enough
 * transfers ended for a rate.  It counts only if writes had to wait for the
 * limit; otherwise the rate depends on the requests, not on the disk.
 *
 * Reads are bounded by bytes.  A disk that has 64 large reads ends them nearly
 * together: a sequence that could go on with the oldest gets nothing for long,
 * then all at once.  With the bound, later reads wait in swapd as long, but the
 * oldest ends first.  The bound is far above the bytes that keep a disk busy.
 *
 * Writes may always be a third of the reads in flight, so that reads without end
 * cannot keep memory from being freed.
 *
 * This file has no clock, and no state but the caller's.
 */
#include "swapd/depth.h"

#define FIRST		8u		/* limit at first */
#define WINDOW_NR	32u		/* transfers of a window */
#define WINDOW_NS	50000000ull	/* shortest window */
#define WINDOW_MANY	40		/* times WINDOW_NS: the longest */
#define IDLE_NS		5000000ull	/* without transfers: a new window */
#define FLOOR_NS	10000000000ull
#define SLACK_NS	100000ull	/* above twice the floor: not yet slow */
#define SHARE		3		/* reads for each write */
#define READS		8u		/* at once, whatever their size */
#define REACHED		95		/* percent of the best rate: as high */
#define HELPED		103		/* percent of @tried: higher */
#define FORGET		64		/* part of @best that a window forgets */
#define WHOLE		(256u << 10)	/* bytes that double the time */

void depth_init(struct sd_depth *d, u32 least, u32 most, u64 write_ns,
		u64 read_bytes)
{
	*d = (struct sd_depth){
		.most = most, .least = min(least, most), .write_ns = write_ns,
		.limit = min(max(FIRST, least), most), .read_bytes = read_bytes,
	};
}

void depth_inherit(struct sd_depth *d, const struct sd_depth *before)
{
	d->moving[0] = before->moving[0];
	d->moving[1] = before->moving[1];
	d->reading = before->reading;
}

bool depth_allows_read(const struct sd_depth *d)
{
	return !d->read_bytes || d->moving[0] < READS ||
	       d->reading < d->read_bytes;
}

bool depth_allows_write(struct sd_depth *d)
{
	if (d->moving[1] < max(d->limit, d->moving[0] / SHARE))
		return true;
	d->wanted = true;
	return false;
}

static void window_begin(struct sd_depth *d, u64 now)
{
	u32 i;

	d->since = now;
	d->wanted = false;
	for (i = 0; i < 2; i++) {
		d->nr[i] = 0;
		d->bytes[i] = 0;
		d->ns[i] = 0;
	}
}

void depth_issued(struct sd_depth *d, bool write, u64 bytes, u64 now)
{
	/* The disk was idle: a rate over that time would say nothing. */
	if (!d->moving[0] && !d->moving[1] && now - d->last > IDLE_NS)
		window_begin(d, now);
	d->moving[write]++;
	if (!write)
		d->reading += bytes;
}

static bool is_slow(const struct sd_depth *d)
{
	if (d->nr[0])
		return d->ns[0] / d->nr[0] > 2 * d->floor + SLACK_NS;
	return d->ns[1] / max(d->nr[1], 1u) > d->write_ns;
}

/* Is the disk idle at times, so that more writes would help? */
static bool is_starved(struct sd_depth *d, u64 rate)
{
	/* Another transfer may have ended a moment later. */
	const u64 most = rate + rate / max(d->nr[0] + d->nr[1], 1u);
	const u64 tried = d->tried;

	d->tried = 0;
	d->best = max(rate, d->best - d->best / FORGET);
	if (most * 100 >= d->best * REACHED)
		return false;
	if (tried && rate * 100 < tried * HELPED) {
		d->best = rate;
		return false;
	}
	d->tried = max(rate, 1ull);
	return true;
}

static void judge(struct sd_depth *d, u64 now)
{
	const u64 us = max((now - d->since) / 1000, 1ull);
	const u64 rate = (d->bytes[0] + d->bytes[1]) * 1000 / us;
	const u32 step = d->limit / 4 + 1;

	if (!is_starved(d, rate) && is_slow(d))
		d->limit -= min(step, d->limit - d->least);
	else
		d->limit = min(d->limit + step, d->most);
}

static bool window_is_over(const struct sd_depth *d, u64 now)
{
	const u64 ns = now - d->since;

	return ns >= WINDOW_MANY * WINDOW_NS ||
	       (ns >= WINDOW_NS && d->nr[0] + d->nr[1] >= WINDOW_NR);
}

/* Measure reads among few writes?  Return: whether that window begins now. */
static bool look_for_floor(struct sd_depth *d, u64 now)
{
	if (!d->nr[0] || now - d->floor_at < FLOOR_NS)
		return false;
	d->floor_at = now;
	d->floor = 0;
	d->limit = max(d->limit / 4, max(d->least, 1u));
	return true;
}

bool depth_landed(struct sd_depth *d, bool write, u64 bytes, u64 ns, u64 now)
{
	const u32 was = d->limit;

	if (!write)
		d->reading -= bytes;
	/* Take off the time that the bytes of the transfer need. */
	ns = ns * WHOLE / (WHOLE + bytes);
	d->moving[write]--;
	d->nr[write]++;
	d->bytes[write] += bytes;
	d->ns[write] += ns;
	d->last = now;
	if (!write)
		d->floor = d->floor ? min(d->floor, ns) : ns;
	if (!window_is_over(d, now))
		return false;
	if (d->wanted && !look_for_floor(d, now))
		judge(d, now);
	window_begin(d, now);
	return d->limit != was;
}
