// SPDX-License-Identifier: Apache-2.0
/*
 * probe.c - measure the speed of a disk with each kind of io_uring
 *
 * swapd --probe PATH transfers 1 MiB at random places of a file, in one way after
 * the other, and prints a line for each.  If PATH is a directory, it makes a file
 * without a name there, reads and writes it.  If PATH is a file or device, it
 * only reads it.  It does not touch a running swapd.
 *
 * The ways differ in flags of the ring.  swapd uses the plain ring with
 * registered memory; the others show the cost of that choice:
 *
 *	IOPOLL	  completions are found by polling the device.  Those of a dead
 *		  swapd would never be posted, since no process polls for them.
 *	SQPOLL	  a kernel thread submits.  It belongs to kvmm-hold, which made
 *		  the ring: it would go on to submit for a dead swapd.
 *
 * See Death in Documentation/swapd.md.
 */
#include <fcntl.h>
#include <liburing.h>
#include <linux/fs.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kvmm/clock.h>
#include <kvmm/log.h>

#include "swapd/daemon.h"
#include "swapd/probe.h"

#define BLOCK		(1u << 20)
#define SCRATCH_BYTES	(256ull << 20)
#define SPAN_NS		400000000ull
#define MAX_DEPTH	64u
#define MAX_LAT		65536u

static const struct {
	const char	*name;
	const char	*used;
	u32		flags;
	bool		registered;
} ways[] = {
	{ "plain",	"where memory cannot be registered", 0, false },
	{ "registered",	"yes", 0, true },
	{ "IOPOLL",	"no: a death would leave completions that nobody finds",
	  IORING_SETUP_IOPOLL, true },
	{ "SQPOLL",	"no: its thread goes on to submit after a death",
	  IORING_SETUP_SQPOLL, true },
};

struct probe {
	struct io_uring	ring;
	int		fd;
	u64		bytes;		/* of the file */
	u32		depth;
	u8		*mem;
	bool		registered;
	u64		started[MAX_DEPTH];
	u64		*lat;
	u32		nr_lat;
	u64		rng;
};

struct figures {
	double	mib_s;
	double	cpu_us;		/* of a MiB */
	double	p50_us;
	double	p99_us;
};

/* ---- the file ---- */

static int fill_scratch(struct probe *p)
{
	u64 at;

	if (fallocate(p->fd, 0, 0, (off_t)SCRATCH_BYTES))
		return -errno;
	for (at = 0; at < SCRATCH_BYTES; at += BLOCK)
		if (pwrite(p->fd, p->mem, BLOCK, (off_t)at) != (ssize_t)BLOCK)
			return -errno;
	p->bytes = SCRATCH_BYTES;
	return 0;
}

static int open_file(struct probe *p, const char *path, bool *writable)
{
	struct stat st;

	if (stat(path, &st))
		return -errno;
	*writable = S_ISDIR(st.st_mode);
	if (*writable) {
		p->fd = open(path, O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC,
			     0600);
		return p->fd < 0 ? -errno : fill_scratch(p);
	}
	p->fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);
	if (p->fd < 0)
		return -errno;
	p->bytes = (u64)st.st_size;
	if (S_ISBLK(st.st_mode) && ioctl(p->fd, BLKGETSIZE64, &p->bytes))
		return -errno;
	return p->bytes >= 2 * BLOCK ? 0 : -ENODATA;
}

/* ---- one way ---- */

static int ring_make(struct probe *p, u32 way)
{
	struct io_uring_params params = {
		.flags = ways[way].flags, .sq_thread_idle = 100,
	};
	struct iovec iov = {
		.iov_base = p->mem, .iov_len = (size_t)p->depth * BLOCK,
	};
	int err = io_uring_queue_init_params(p->depth, &p->ring, &params);

	if (err)
		return err;
	p->registered = ways[way].registered &&
			!io_uring_register_buffers(&p->ring, &iov, 1) &&
			!io_uring_register_files(&p->ring, &p->fd, 1);
	return 0;
}

static void queue_one(struct probe *p, u32 slot, bool write)
{
	struct io_uring_sqe *sqe;
	u8 *mem = p->mem + (size_t)slot * BLOCK;
	int fd = p->registered ? 0 : p->fd;
	u64 at;

	/* With SQPOLL a thread of the kernel takes the entries, at any time. */
	while (!(sqe = io_uring_get_sqe(&p->ring)))
		(void)io_uring_sqring_wait(&p->ring);
	p->rng = p->rng * 6364136223846793005ull + 1442695040888963407ull;
	at = (p->rng >> 33) % (p->bytes / BLOCK) * BLOCK;
	if (p->registered && write)
		io_uring_prep_write_fixed(sqe, fd, mem, BLOCK, at, 0);
	else if (p->registered)
		io_uring_prep_read_fixed(sqe, fd, mem, BLOCK, at, 0);
	else if (write)
		io_uring_prep_write(sqe, fd, mem, BLOCK, at);
	else
		io_uring_prep_read(sqe, fd, mem, BLOCK, at);
	if (p->registered)
		sqe->flags |= IOSQE_FIXED_FILE;
	sqe->user_data = slot;
	p->started[slot] = kv_now_ns();
}

/* Return: the slot of the next transfer that ended, or a negative errno. */
static int wait_one(struct probe *p)
{
	struct io_uring_cqe *cqe;
	int res, slot, err = io_uring_submit_and_wait(&p->ring, 1);

	if (err < 0)
		return err;
	err = io_uring_wait_cqe(&p->ring, &cqe);
	if (err)
		return err;
	res = cqe->res;
	slot = (int)cqe->user_data;
	io_uring_cqe_seen(&p->ring, cqe);
	if (res < 0)
		return res;
	if (p->nr_lat < MAX_LAT)
		p->lat[p->nr_lat++] = kv_now_ns() - p->started[slot];
	return slot;
}

static u64 cpu_ns(void)
{
	struct rusage r;

	getrusage(RUSAGE_SELF, &r);
	return (u64)(r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1000000000 +
	       (u64)(r.ru_utime.tv_usec + r.ru_stime.tv_usec) * 1000;
}

static int by_value(const void *a, const void *b)
{
	const u64 x = *(const u64 *)a, y = *(const u64 *)b;

	return x < y ? -1 : x > y;
}

static int measure(struct probe *p, bool write, struct figures *f)
{
	const u64 start = kv_now_ns(), cpu = cpu_ns();
	u32 i, out = p->depth;
	int slot = 0, err = 0;
	u64 ns, done = 0;

	p->nr_lat = 0;
	for (i = 0; i < p->depth; i++)
		queue_one(p, i, write);
	while (out) {
		slot = wait_one(p);
		if (slot < 0 && !err)
			err = slot;
		out--;
		done++;
		if (err || kv_now_ns() - start > SPAN_NS)
			continue;
		queue_one(p, (u32)slot, write);
		out++;
	}
	if (err)
		return err;
	ns = kv_now_ns() - start;
	qsort(p->lat, p->nr_lat, sizeof(*p->lat), by_value);
	f->mib_s = (double)done * 1e9 / (double)ns;
	f->cpu_us = (double)(cpu_ns() - cpu) / 1e3 / (double)done;
	f->p50_us = (double)p->lat[p->nr_lat / 2] / 1e3;
	f->p99_us = (double)p->lat[(u64)p->nr_lat * 99 / 100] / 1e3;
	return 0;
}

static void try_way(struct probe *p, u32 way, bool write)
{
	const char *what = write ? "write" : "read";
	struct figures f;
	int err = ring_make(p, way);

	if (!err) {
		err = measure(p, write, &f);
		io_uring_queue_exit(&p->ring);
	}
	if (err)
		printf("%-11s %-6s %s: %s\n", ways[way].name, what,
		       "not to be had", strerror(-err));
	else
		printf("%-11s %-6s %8.0f %10.1f %8.0f %8.0f  %s\n",
		       ways[way].name, what, f.mib_s, f.cpu_us, f.p50_us,
		       f.p99_us, ways[way].used);
	fflush(stdout);
}

int probe_run(const char *path, u32 depth)
{
	static struct probe p;
	bool writable = false;
	u32 i;
	int err;

	p.depth = min(depth, MAX_DEPTH);
	p.fd = -1;
	p.lat = calloc(MAX_LAT, sizeof(*p.lat));
	p.mem = aligned_alloc(2 << 20, (size_t)MAX_DEPTH * BLOCK);
	err = p.lat && p.mem ? 0 : -ENOMEM;
	if (!err) {
		memset(p.mem, 0x5a, (size_t)MAX_DEPTH * BLOCK);
		err = open_file(&p, path, &writable);
	}
	if (err) {
		pr_err("%s cannot be measured: %s: name a directory with 256 MiB of room, or a file or device of 2 MiB or more, on a file system with O_DIRECT",
		       path, strerror(-err));
		goto out_free;
	}
	printf("%-11s %-6s %8s %10s %8s %8s  %s\n", "ring", "1 MiB", "MiB/s",
	       "CPU us/MiB", "p50 us", "p99 us", "used by swapd");
	for (i = 0; i < ARRAY_SIZE(ways); i++) {
		try_way(&p, i, false);
		if (writable)
			try_way(&p, i, true);
	}

out_free:
	if (p.fd >= 0)
		close(p.fd);
	free(p.mem);
	free(p.lat);
	return err;
}
