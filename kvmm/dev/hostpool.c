// SPDX-License-Identifier: Apache-2.0
/*
 * hostpool.c - the pinned host pool
 *
 * One memfd holds all slots of the host tier.  It is mapped here and in swapd,
 * nowhere else: a client that could reach it could read every tenant.  So
 * what lies in it is only ever moved by the daemon's copier and by swapd.
 *
 * Where its pages come from decides how fast a disk fills it: a page of 2 MiB
 * is one piece of a transfer, 512 ordinary ones are up to 512.  Pages of that
 * size are taken from those the operator set aside (vm.nr_hugepages); where
 * there are too few, ordinary pages serve, with a warning, and the kernel is
 * asked to make them huge if it can.
 *
 * Order matters: bound to a node before the first page exists, filled before
 * anybody relies on it, sealed before the descriptor leaves.  Locked memory
 * is never written to the system's own swap; without the right to lock that
 * much the pool is used unlocked, with a warning.
 *
 * Context: start-up only; afterwards the fields are constant.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <numa.h>
#include <numaif.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include <kvmm/fault.h>
#include <kvmm/log.h>
#include <kvmm/opts.h>

#include "kvmm/dev/hostpool.h"

#define HUGE_BYTES	(2ull << 20)
#define HUGE_DIR	"/sys/kernel/mm/hugepages/hugepages-2048kB/"

#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB	(21u << 26)
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE	23
#endif

static u64 huge_number(const char *name)
{
	char path[128];
	u64 nr = 0;
	FILE *f;

	snprintf(path, sizeof(path), HUGE_DIR "%s", name);
	f = fopen(path, "re");
	if (!f)
		return 0;
	if (fscanf(f, "%" SCNu64, &nr) != 1)
		nr = 0;
	fclose(f);
	return nr;
}

/* Huge pages that nobody has and nobody was promised. */
static u64 huge_free(void)
{
	u64 nr = huge_number("free_hugepages");
	u64 promised = huge_number("resv_hugepages");

	return nr > promised ? nr - promised : 0;
}

u64 hostpool_needs(u64 bytes)
{
	return DIV_ROUND_UP(bytes, HUGE_BYTES) <= huge_free() ? 0 : bytes;
}

/* The first node that this process may take memory from, or -1. */
static int node_first(void)
{
	int i, last = numa_max_node();

	for (i = 0; i <= last; i++)
		if (numa_bitmask_isbitset(numa_all_nodes_ptr, (u32)i))
			return i;
	return -1;
}

/*
 * Pages that come into being in this mapping shall come from one node.  One
 * that has no room for all of them is only preferred: bound to it, filling
 * the rest would end in a kill instead of a slower copy.
 */
static void pool_bind(struct hostpool *hp, int near)
{
	unsigned long mask[16] = { 0 };
	const u32 bits = 8 * sizeof(mask[0]);
	long long room = 0;
	int mode = MPOL_BIND;

	hp->node = -1;
	if (numa_available() < 0 || numa_max_node() < 1) {
		pr_debug("host pool: one memory node, nothing to choose");
		return;
	}
	if (near < 0)
		near = node_first();
	if (near < 0 || (u32)near >= ARRAY_SIZE(mask) * bits)
		return;
	if (numa_node_size64(near, &room) < 0 || (u64)room < hp->mapped) {
		mode = MPOL_PREFERRED;
		pr_warn("host pool: node %d has not room for all of it: part of it lies farther from the device: free memory there, or give a smaller --host-size",
			near);
	}
	mask[(u32)near / bits] = 1ul << ((u32)near % bits);
	if (mbind(hp->base, hp->mapped, mode, mask, sizeof(mask) * 8, 0)) {
		pr_warn("host pool: cannot be bound to node %d: %s: copies may be slower",
			near, strerror(errno));
		return;
	}
	hp->node = near;
}

/* Map a new memfd of @flags and bind it; nothing is filled yet. */
static int pool_map(struct hostpool *hp, u64 epoch, u32 flags, int near)
{
	char name[64];
	int err;

	snprintf(name, sizeof(name), "kvmm-host-%" PRIx64, epoch);
	hp->fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING | flags);
	if (hp->fd < 0)
		return -errno;
	if (ftruncate(hp->fd, (off_t)hp->mapped)) {
		err = -errno;
		goto out_close;
	}
	hp->base = mmap(NULL, hp->mapped, PROT_READ | PROT_WRITE, MAP_SHARED,
			hp->fd, 0);
	if (hp->base == MAP_FAILED) {
		err = -errno;
		goto out_close;
	}
	pool_bind(hp, near);
	return 0;

out_close:
	close(hp->fd);
	hp->fd = -1;
	hp->base = NULL;
	return err;
}

static void pool_unmap(struct hostpool *hp)
{
	munmap(hp->base, hp->mapped);
	close(hp->fd);
	hp->base = NULL;
	hp->fd = -1;
}

/* Every page there is, now: later there is nobody to be told. */
static int pool_fill(struct hostpool *hp)
{
	u64 page = (u64)sysconf(_SC_PAGESIZE), at;

	if (fallocate(hp->fd, 0, 0, (off_t)hp->mapped))
		return errno == ENOSPC ? -ENOMEM : -errno;
	if (!madvise(hp->base, hp->mapped, MADV_POPULATE_WRITE))
		return 0;
	if (errno != EINVAL)
		return -errno;
	/* A kernel before 5.14: the pages exist, map them one by one. */
	for (at = 0; at < hp->mapped; at += page)
		WRITE_ONCE(hp->base[at], 0);
	return 0;
}

static int pool_make_huge(struct hostpool *hp, u64 epoch, int near)
{
	int err;

	hp->mapped = ALIGN_UP(hp->bytes, HUGE_BYTES);
	if (kv_fault(KV_FAULT_host_huge))
		return -ENOMEM;
	err = pool_map(hp, epoch, MFD_HUGETLB | MFD_HUGE_2MB, near);
	if (err)
		return err;
	err = pool_fill(hp);
	if (err)
		pool_unmap(hp);
	hp->huge = !err;
	return err;
}

static int pool_make_small(struct hostpool *hp, u64 epoch, int near)
{
	int err;

	hp->mapped = ALIGN_UP(hp->bytes, (u64)sysconf(_SC_PAGESIZE));
	err = pool_map(hp, epoch, 0, near);
	if (err)
		return err;
	/* Heard where shmem_enabled says advise. */
	(void)madvise(hp->base, hp->mapped, MADV_HUGEPAGE);
	err = pool_fill(hp);
	if (err)
		pool_unmap(hp);
	return err;
}

static void pool_lock(struct hostpool *hp, enum kv_log_level level)
{
	char size[32];

	/* Pages set aside as huge ones are never swapped. */
	hp->locked = hp->huge || (!kv_fault(KV_FAULT_host_lock) &&
				  !mlock(hp->base, hp->mapped));
	if (!hp->locked)
		kv_log(level, "host pool: %s cannot be locked (%s): the system may swap it: raise the limit (ulimit -l, LimitMEMLOCK=)",
		       kv_format_size(hp->bytes, size, sizeof(size)),
		       strerror(errno));
}

static int pool_seal(struct hostpool *hp)
{
	/* A core file of it would be somebody's conversations. */
	(void)madvise(hp->base, hp->mapped, MADV_DONTDUMP);
	(void)madvise(hp->base, hp->mapped, MADV_DONTFORK);
	return fcntl(hp->fd, F_ADD_SEALS,
		     F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) ? -errno : 0;
}

/* How many there must be set aside for @need more to be free. */
static u64 huge_wanted(u64 need)
{
	u64 nr = huge_number("nr_hugepages"), left = huge_free();

	return nr + (need > left ? need - left : 0);
}

int hostpool_create(struct hostpool *hp, u64 bytes, u64 epoch, int near,
		    bool again)
{
	const enum kv_log_level level = again ? KV_LOG_DEBUG : KV_LOG_WARN;
	const u64 pages = DIV_ROUND_UP(bytes, HUGE_BYTES);
	char size[32];
	int err;

	memset(hp, 0, sizeof(*hp));
	hp->fd = -1;
	hp->bytes = bytes;
	kv_format_size(bytes, size, sizeof(size));
	err = pool_make_huge(hp, epoch, near);
	if (err) {
		kv_log(level, "host pool: %llu huge pages of 2M cannot be had (%s): ordinary ones make disks up to three times slower: sysctl vm.nr_hugepages=%llu",
		       (unsigned long long)pages, strerror(-err),
		       (unsigned long long)huge_wanted(pages));
		err = pool_make_small(hp, epoch, near);
	}
	if (err) {
		pr_err("host pool: %s cannot be had: %s: %s", size,
		       strerror(-err), err == -EFBIG ?
		       "raise the limit on files (ulimit -f)" :
		       "give a smaller --host-size");
		return err;
	}
	pool_lock(hp, level);
	err = pool_seal(hp);
	if (err) {
		pr_err("host pool: cannot be sealed: %s", strerror(-err));
		pool_unmap(hp);
		return err;
	}
	pr_info("host pool: %s, %s pages, %s%s", size,
		hp->huge ? "huge" : "ordinary",
		hp->locked ? "locked" : "not locked",
		hp->node >= 0 ? ", bound to the node of the device" : "");
	return 0;
}

void hostpool_destroy(struct hostpool *hp)
{
	if (hp->base)
		pool_unmap(hp);
}
