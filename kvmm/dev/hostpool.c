// SPDX-License-Identifier: Apache-2.0
/*
 * hostpool.c - the pinned host pool
 *
 * One memfd holds all slots of the host tier.  Only the daemon and swapd map it:
 * a client that could reach it could read every tenant.  So only the daemon's
 * copier and swapd move its contents.
 *
 * The kind of its pages decides how fast a disk fills it: a page of 2 MiB is one
 * piece of a transfer, 512 ordinary ones are up to 512.  The pool takes huge pages
 * that the operator set aside (vm.nr_hugepages).  If there are too few, it asks
 * the kernel to make huge pages of ordinary memory; others stay ordinary, with a
 * warning.
 *
 * Order matters: the pool is bound to a node before its first page exists, filled
 * before it is used, locked when all pages exist, looked at after that, sealed
 * before its descriptor leaves.  Locked memory is never written to the system's
 * own swap; without the right to lock that much the pool is used unlocked, with a
 * warning.  The log and the files have the pages and the lock that the kernel
 * reports, not the requested ones.
 *
 * Context: start-up only; afterwards the fields are constant.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kvmm/fault.h>
#include <kvmm/log.h>
#include <kvmm/opts.h>

#include "kvmm/dev/hostpool.h"
#include "kvmm/dev/memory.h"

#define LOCK_PIECE	(1ull << 30)
#define SHMEM_ENABLED	"/sys/kernel/mm/transparent_hugepage/shmem_enabled"

#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB	(21u << 26)
#endif

u64 hostpool_needs(u64 bytes)
{
	struct memory_room m;

	memory_look(&m, "");
	return ALIGN_UP(bytes, HOSTPOOL_HUGE) <= m.huge_free ? 0 : bytes;
}

/*
 * Map the file on a boundary of 2 MiB: a page of that size is mapped as one
 * only there.
 */
static char *map_aligned(int fd, u64 bytes)
{
	const u64 room = bytes + HOSTPOOL_HUGE;
	char *at, *base, *end;

	at = mmap(NULL, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS |
		  MAP_NORESERVE, -1, 0);
	if (at == MAP_FAILED)
		return NULL;
	base = (char *)ALIGN_UP((uintptr_t)at, HOSTPOOL_HUGE);
	end = (char *)ALIGN_UP((uintptr_t)base + bytes,
			       (u64)sysconf(_SC_PAGESIZE));
	if (mmap(base, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED,
		 fd, 0) == MAP_FAILED) {
		int err = errno;

		munmap(at, room);
		errno = err;
		return NULL;
	}
	if (base > at)
		munmap(at, (size_t)(base - at));
	if (at + room > end)
		munmap(end, (size_t)(at + room - end));
	return base;
}

/* Map a new memfd of @flags and bind it; it has no pages yet. */
static int pool_map(struct hostpool *hp, const struct hostpool_ask *ask,
		    u32 flags)
{
	char name[64];
	int err;

	snprintf(name, sizeof(name), "kvmm-host-%" PRIx64, ask->epoch);
	hp->fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
	if (hp->fd < 0)
		return -errno;
	if (ftruncate(hp->fd, (off_t)hp->mapped)) {
		err = -errno;
		goto out_close;
	}
	hp->base = map_aligned(hp->fd, hp->mapped);
	if (!hp->base) {
		err = -errno;
		goto out_close;
	}
	hostpool_numa_bind(hp, ask);
	return 0;

out_close:
	close(hp->fd);
	hp->fd = -1;
	return err;
}

static void pool_unmap(struct hostpool *hp)
{
	munmap(hp->base, hp->mapped);
	close(hp->fd);
	hp->base = NULL;
	hp->fd = -1;
}

/* Make the pool of huge pages that were set aside. */
static int pool_make_huge(struct hostpool *hp, const struct hostpool_ask *ask)
{
	int err;

	hp->mapped = ALIGN_UP(hp->bytes, HOSTPOOL_HUGE);
	if (kv_fault(KV_FAULT_host_huge))
		return -ENOMEM;
	hp->huge = true;
	err = pool_map(hp, ask, MFD_HUGETLB | MFD_HUGE_2MB);
	if (!err) {
		err = hostpool_fill(hp, false, 0, ask->stop);
		if (err)
			pool_unmap(hp);
	}
	hp->huge = !err;
	return err;
}

static int pool_make_small(struct hostpool *hp, const struct hostpool_ask *ask)
{
	const bool thp = !kv_fault(KV_FAULT_host_thp);
	int err;

	hp->mapped = ALIGN_UP(hp->bytes, (u64)sysconf(_SC_PAGESIZE));
	err = pool_map(hp, ask, 0);
	if (err)
		return err;
	/* The kernel obeys if shmem_enabled says advise. */
	if (thp)
		(void)madvise(hp->base, hp->mapped, MADV_HUGEPAGE);
	err = hostpool_fill(hp, thp, 0, ask->stop);
	if (err)
		pool_unmap(hp);
	return err;
}

/* ---- lock ---- */

/* Raise the limit on locked memory: root to @bytes, others to the hard limit. */
static void lock_limit_raise(u64 bytes)
{
	struct rlimit r, want;

	if (getrlimit(RLIMIT_MEMLOCK, &r) || r.rlim_cur >= bytes)
		return;
	want.rlim_cur = max((u64)r.rlim_max, bytes);
	want.rlim_max = want.rlim_cur;
	if (!setrlimit(RLIMIT_MEMLOCK, &want))
		return;
	r.rlim_cur = r.rlim_max;
	(void)setrlimit(RLIMIT_MEMLOCK, &r);
}

static bool wants_stop(int stop)
{
	struct pollfd p = { .fd = stop, .events = POLLIN };

	return stop >= 0 && poll(&p, 1, 0) == 1;
}

/* Lock all of it or nothing, a piece at a time: small pages take a while. */
static int pool_lock(struct hostpool *hp, int stop)
{
	u64 at;
	int err;

	/* Pages set aside as huge ones are never swapped. */
	if (hp->huge)
		return 0;
	if (kv_fault(KV_FAULT_host_lock))
		return -EPERM;
	lock_limit_raise(hp->mapped);
	for (at = 0; at < hp->mapped; at += LOCK_PIECE) {
		if (wants_stop(stop))
			return -ECANCELED;
		if (!mlock(hp->base + at, min(LOCK_PIECE, hp->mapped - at)))
			continue;
		err = -errno;
		munlock(hp->base, hp->mapped);
		return err;
	}
	return 0;
}

/* ---- report ---- */

static void pool_look(struct hostpool *hp)
{
	FILE *f = fopen("/proc/self/smaps", "re");

	memset(&hp->found, 0, sizeof(hp->found));
	if (!f) {
		pr_warn("host pool: /proc/self/smaps cannot be read (%s): what pages it has is not known",
			strerror(errno));
		return;
	}
	hostpool_look(f, hp->base, hp->mapped, &hp->found);
	fclose(f);
	hp->locked = hp->found.locked >= hp->mapped;
}

/* Bytes of the mapping behind its last whole huge page. */
static u64 pool_tail(const struct hostpool *hp)
{
	return hp->mapped % HOSTPOOL_HUGE;
}

static void warn_small(const struct hostpool *hp, enum kv_log_level level,
		       int why)
{
	const u64 huge = hp->found.hugetlb + hp->found.thp;
	const u64 pages = DIV_ROUND_UP(hp->bytes, HOSTPOOL_HUGE);
	u64 small = hp->mapped > huge ? hp->mapped - huge : 0, nr;
	struct memory_room m;

	if (hp->huge || small <= pool_tail(hp))
		return;
	memory_look(&m, "");
	nr = pages + (m.huge_total - m.huge_free) / HOSTPOOL_HUGE;
	nr = max(nr, m.huge_total / HOSTPOOL_HUGE);
	kv_log(level, "host pool: %llu huge pages of 2M cannot be had (%s), %llu MiB of it lie on ordinary ones, which make disks up to three times slower: sysctl vm.nr_hugepages=%llu, or echo advise >" SHMEM_ENABLED,
	       (unsigned long long)pages, strerror(-why),
	       (unsigned long long)(small >> 20), (unsigned long long)nr);
}

/* Huge pages that were set aside in vain: ordinary memory lacks them. */
static void warn_unused(const struct hostpool *hp, enum kv_log_level level)
{
	const u64 pages = DIV_ROUND_UP(hp->bytes, HOSTPOOL_HUGE);
	struct memory_room m;

	memory_look(&m, "");
	if (hp->huge || !m.huge_free)
		return;
	kv_log(level, "host pool: %llu MiB were set aside as huge pages, too few for it, and stay unused: sysctl vm.nr_hugepages=%llu, or 0",
	       (unsigned long long)(m.huge_free >> 20), (unsigned long long)
	       (pages + (m.huge_total - m.huge_free) / HOSTPOOL_HUGE));
}

static void warn_unlocked(const struct hostpool *hp, enum kv_log_level level,
			  int why)
{
	char size[32];

	if (hp->locked)
		return;
	kv_log(level, "host pool: %s cannot be locked (%s): the system may swap it, and then copies wait for its disk: raise the limit (ulimit -l, LimitMEMLOCK=)",
	       kv_format_size(hp->bytes, size, sizeof(size)), strerror(-why));
}

static const char *pages_text(const struct hostpool *hp)
{
	if (hp->found.hugetlb >= hp->mapped)
		return "huge pages that were set aside";
	if (hp->found.thp && hp->found.thp + pool_tail(hp) >= hp->mapped)
		return "transparent huge pages";
	return hp->found.thp ? "huge and ordinary pages" : "ordinary pages";
}

static void tell_found(const struct hostpool *hp)
{
	const double s = (double)max(hp->filled.ns, (u64)1000) / 1e9;
	char size[32], node[48] = "";

	if (hp->node >= 0)
		snprintf(node, sizeof(node), ", bound to memory node %d",
			 hp->node);
	pr_info("host pool: %s, %s, %s%s; filled in %.1f s by %u thread%s, %.1f GiB/s",
		kv_format_size(hp->bytes, size, sizeof(size)), pages_text(hp),
		hp->locked ? "locked" : "not locked", node, s,
		hp->filled.threads, hp->filled.threads == 1 ? "" : "s",
		(double)hp->mapped / (1 << 30) / s);
}

/* ---- all of it ---- */

static int pool_seal(struct hostpool *hp)
{
	/* A core file of the pool would contain conversations of users. */
	(void)madvise(hp->base, hp->mapped, MADV_DONTDUMP);
	(void)madvise(hp->base, hp->mapped, MADV_DONTFORK);
	return fcntl(hp->fd, F_ADD_SEALS,
		     DEV_SEALS) ? -errno : 0;
}

/* A cancelled start is no failure. */
static int refuse(const struct hostpool *hp, int err)
{
	char size[32];

	if (err == -ECANCELED)
		return err;
	pr_err("host pool: %s cannot be had: %s: %s",
	       kv_format_size(hp->bytes, size, sizeof(size)), strerror(-err),
	       err == -EFBIG ? "raise the limit on files (ulimit -f)" :
	       "give a smaller --host-size");
	return err;
}

int hostpool_create(struct hostpool *hp, const struct hostpool_ask *ask)
{
	const enum kv_log_level level = ask->again ? KV_LOG_DEBUG : KV_LOG_WARN;
	int err, huge, lock;

	memset(hp, 0, sizeof(*hp));
	hp->fd = -1;
	hp->node = -1;
	hp->bytes = ask->bytes;
	huge = pool_make_huge(hp, ask);
	err = huge;
	if (err && err != -ECANCELED)
		err = pool_make_small(hp, ask);
	if (err)
		return refuse(hp, err);
	lock = pool_lock(hp, ask->stop);
	err = lock == -ECANCELED ? lock : pool_seal(hp);
	if (err) {
		pool_unmap(hp);
		return refuse(hp, err);
	}
	pool_look(hp);
	warn_small(hp, level, huge);
	warn_unused(hp, level);
	warn_unlocked(hp, level, lock ? lock : -ENOMEM);
	tell_found(hp);
	return 0;
}

int hostpool_adopt(struct hostpool *hp, u64 bytes, bool huge, int fd)
{
	int lock;

	memset(hp, 0, sizeof(*hp));
	hp->fd = fd;
	hp->node = -1;
	hp->bytes = bytes;
	hp->huge = huge;
	hp->mapped = ALIGN_UP(bytes, huge ? HOSTPOOL_HUGE :
			      (u64)sysconf(_SC_PAGESIZE));
	/* The file has to be as hostpool_create() makes it. */
	if (!dev_memory_is_ours(fd, hp->mapped))
		return -ESTALE;
	hp->base = map_aligned(fd, hp->mapped);
	if (!hp->base)
		return -errno;
	(void)madvise(hp->base, hp->mapped, MADV_DONTDUMP);
	(void)madvise(hp->base, hp->mapped, MADV_DONTFORK);
	lock = pool_lock(hp, -1);
	pool_look(hp);
	warn_unlocked(hp, KV_LOG_DEBUG, lock ? lock : -ENOMEM);
	return 0;
}

void hostpool_destroy(struct hostpool *hp)
{
	if (hp->base)
		pool_unmap(hp);
}
