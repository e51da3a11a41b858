// SPDX-License-Identifier: Apache-2.0
/*
 * hostpool_fill.c - make every page of the host pool exist
 *
 * Clearing memory takes a tenth of a second a GiB and CPU, so several threads do
 * it; each takes the next free piece.  The calling thread waits for the last of
 * them, watches the stop descriptor, and logs the progress now and then.
 *
 * Other processes may have taken memory since the check at start, and the kernel
 * would fill on and then kill a process.  So free memory is checked again for each
 * piece, but not for each page.  No page is touched before the kernel said that it
 * exists.  So a failure is an error here, not a signal.
 *
 * The kernel is asked to make huge pages of ordinary ones (MADV_COLLAPSE).  It
 * does so with any value of shmem_enabled but `deny`, and one small page in each
 * huge page is enough.  Pages that it refuses to collapse stay ordinary.
 *
 * Context: start-up; the threads are gone when hostpool_fill() returns.
 */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <kvmm/clock.h>
#include <kvmm/fault.h>
#include <kvmm/log.h>

#include "kvmm/dev/hostpool.h"
#include "kvmm/dev/memory.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE	23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE		25
#endif

#define PIECE		(64ull << 20)
#define THREADS_MAX	8u
#define WATCH_MS	200
#define TELL_NS		3000000000ull
#define SLOW_NS		100000000ull
#define GIB		(1ull << 30)

/**
 * struct fill - state that the threads share
 * @next:    begin of the next piece; all threads add to it
 * @done:    bytes that have pages
 * @running: threads that are not done
 * @err:     the first error; makes all threads end
 * @bell:    eventfd: the last thread is done
 */
struct fill {
	struct hostpool	*hp;
	bool		huge;
	u64		next;
	u64		done;
	u32		running;
	int		err;
	int		bell;
};

/* Kernels before 5.14: the file gets its pages, then they are mapped. */
static int populate_old(struct hostpool *hp, u64 at, u64 len)
{
	const u64 page = (u64)sysconf(_SC_PAGESIZE), end = at + len;

	if (fallocate(hp->fd, 0, (off_t)at, (off_t)len))
		return errno == ENOSPC ? -ENOMEM : -errno;
	for (; at < end; at += page)
		WRITE_ONCE(hp->base[at], 0);
	return 0;
}

static int populate(struct hostpool *hp, u64 at, u64 len)
{
	if (!madvise(hp->base + at, len, MADV_POPULATE_WRITE))
		return 0;
	if (errno == EINVAL)
		return populate_old(hp, at, len);
	/* EFAULT: the touch would have been a SIGBUS. */
	return errno == EFAULT ? -ENOMEM : -errno;
}

/* Make one small page in each future huge page, then the huge pages. */
static void collapse(struct hostpool *hp, u64 at, u64 len)
{
	u64 i;

	len &= ~(HOSTPOOL_HUGE - 1);
	if (!len)
		return;
	for (i = 0; i < len; i += HOSTPOOL_HUGE)
		if (madvise(hp->base + at + i, 4096, MADV_POPULATE_WRITE))
			return;
	(void)madvise(hp->base + at, len, MADV_COLLAPSE);
}

/*
 * Half of the spare is for memory that other processes take meanwhile.  Threads
 * that ask at once may all get yes; a pool that fits has enough for all of them.
 */
static bool room_for(const struct hostpool *hp, u64 len)
{
	return hp->huge || dev_memory_available() >= len + DEV_SPARE_BYTES / 2;
}

static int fill_piece(struct fill *f, u64 at)
{
	struct timespec slow = { .tv_nsec = SLOW_NS };
	u64 len = min(PIECE, f->hp->mapped - at);
	int err;

	if (kv_fault(KV_FAULT_host_slow))
		nanosleep(&slow, NULL);
	if (kv_fault(KV_FAULT_host_fill) || !room_for(f->hp, len))
		return -ENOMEM;
	if (f->huge)
		collapse(f->hp, at, len);
	err = populate(f->hp, at, len);
	if (!err)
		__atomic_add_fetch(&f->done, len, __ATOMIC_RELAXED);
	return err;
}

/* End all threads; the first error counts. */
static void fill_end(struct fill *f, int err)
{
	int none = 0;

	__atomic_compare_exchange_n(&f->err, &none, err, false,
				    __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

static void *fill_main(void *arg)
{
	struct fill *f = arg;
	const u64 one = 1;
	int err = 0;
	u64 at;

	while (!err && !__atomic_load_n(&f->err, __ATOMIC_RELAXED)) {
		at = __atomic_fetch_add(&f->next, PIECE, __ATOMIC_RELAXED);
		if (at >= f->hp->mapped)
			break;
		err = fill_piece(f, at);
		if (err)
			fill_end(f, err);
	}
	if (!__atomic_sub_fetch(&f->running, 1, __ATOMIC_ACQ_REL) &&
	    write(f->bell, &one, sizeof(one)) < 0)
		pr_debug("host pool: the end of filling is noticed late");
	return NULL;
}

static void fill_tell(const struct fill *f, u64 ns)
{
	u64 done = __atomic_load_n(&f->done, __ATOMIC_RELAXED);

	pr_info("host pool: %.1f of %.1f GiB filled, %.1f GiB/s",
		(double)done / GIB, (double)f->hp->mapped / GIB,
		(double)done / GIB / ((double)ns / 1e9));
}

/* Wait until all threads are done. */
static void fill_watch(struct fill *f, int stop)
{
	struct pollfd p[2] = {
		{ .fd = f->bell, .events = POLLIN },
		{ .fd = stop, .events = POLLIN },
	};
	u64 start = kv_now_ns(), told = start, now;

	while (__atomic_load_n(&f->running, __ATOMIC_ACQUIRE)) {
		(void)poll(p, 2, WATCH_MS);
		if (p[1].revents) {
			fill_end(f, -ECANCELED);
			/* The descriptor stays readable. */
			p[1].fd = -1;
			p[1].revents = 0;
		}
		now = kv_now_ns();
		if (now - told < TELL_NS)
			continue;
		told = now;
		fill_tell(f, now - start);
	}
}

static u32 threads_wanted(u64 bytes)
{
	u32 nr = 1;
	cpu_set_t set;

	if (!sched_getaffinity(0, sizeof(set), &set))
		nr = (u32)CPU_COUNT(&set);
	nr = min(nr, THREADS_MAX);
	return (u32)min((u64)nr, DIV_ROUND_UP(bytes, PIECE));
}

int hostpool_fill(struct hostpool *hp, bool huge, u32 threads, int stop)
{
	struct fill f = { .hp = hp, .huge = huge };
	pthread_t thread[THREADS_MAX];
	u64 start = kv_now_ns();
	u32 i, nr = 0;

	if (!threads)
		threads = threads_wanted(hp->mapped);
	threads = min(threads, THREADS_MAX);
	f.bell = eventfd(0, EFD_CLOEXEC);
	if (f.bell < 0)
		return -errno;
	f.running = threads;
	while (nr < threads &&
	       !pthread_create(&thread[nr], NULL, fill_main, &f))
		nr++;
	/* Some threads could not be started; without any this thread fills. */
	if (nr && nr < threads)
		__atomic_sub_fetch(&f.running, threads - nr, __ATOMIC_ACQ_REL);
	if (!nr) {
		f.running = 1;
		fill_main(&f);
	}
	fill_watch(&f, stop);
	for (i = 0; i < nr; i++)
		pthread_join(thread[i], NULL);
	close(f.bell);
	hp->filled.ns = kv_now_ns() - start;
	hp->filled.threads = nr ? nr : 1;
	return f.err;
}
