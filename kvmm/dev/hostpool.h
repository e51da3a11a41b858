/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hostpool.h - the pinned host pool
 *
 *   hostpool.c	the memory: kind of its pages, lock, seals
 *   hostpool_fill.c	makes every page exist before the pool is used
 *   hostpool_numa.c	the memory node of the pages
 *   hostpool_look.c	the pages and the lock that the kernel reports
 */
#ifndef KVMM_DEV_HOSTPOOL_H
#define KVMM_DEV_HOSTPOOL_H

#include <stdio.h>

#include <kvmm/types.h>

#define HOSTPOOL_HUGE	(2ull << 20)	/* bytes of a huge page */

enum hostpool_place {
	HOSTPOOL_AUTO,		/* nearest to the device; without one: local */
	HOSTPOOL_LOCAL,		/* where the daemon runs at start */
	HOSTPOOL_INTERLEAVE,	/* page by page over all nodes */
	HOSTPOOL_NODE,		/* a named node */
};

/* --host-numa; @node is that of HOSTPOOL_NODE, else -1. */
struct hostpool_numa {
	enum hostpool_place	place;
	int			node;
};

/**
 * struct hostpool_found - the mapping in /proc/self/smaps, in bytes
 * @resident: with a page
 * @hugetlb:  of these, in pages of 2 MiB that were set aside
 * @thp:      of these, in pages of 2 MiB that the kernel put together
 * @locked:   resident and never written to the system's swap
 */
struct hostpool_found {
	u64	resident;
	u64	hugetlb;
	u64	thp;
	u64	locked;
};

/**
 * struct hostpool_filled - how filling went
 * @ns:      time that it took
 * @threads: that filled
 */
struct hostpool_filled {
	u64	ns;
	u32	threads;
};

/**
 * struct hostpool - memory below the device, in one piece
 * @base:   where this process maps it, on a boundary of 2 MiB
 * @bytes:  of the pool; the mapping may be longer
 * @mapped: bytes of the mapping and of the file
 * @fd:     of the memfd, for swapd; clients never get it
 * @huge:   the file has huge pages that were set aside
 * @locked: the kernel swaps none of its pages
 * @node:   that it is bound to, or -1
 * @found:  pages after filling and locking
 * @filled: how filling went
 */
struct hostpool {
	char			*base;
	u64			bytes;
	u64			mapped;
	int			fd;
	bool			huge;
	bool			locked;
	int			node;
	struct hostpool_found	found;
	struct hostpool_filled	filled;
};

/**
 * struct hostpool_ask - the requested pool
 * @bytes: of the pool
 * @epoch: of the daemon; names the memory of this life
 * @near:  NUMA node of the device, -1: there is none
 * @numa:  of --host-numa
 * @stop:  descriptor that becomes readable when the pool is no longer wanted, or
 *         -1; it is not read
 * @again: an earlier daemon made the pool, too
 */
struct hostpool_ask {
	u64			bytes;
	u64			epoch;
	int			near;
	struct hostpool_numa	numa;
	int			stop;
	bool			again;
};

/**
 * hostpool_create() - make the pool: bound, filled, locked, mapped
 * @hp:  to be filled in
 * @ask: the request
 *
 * The pool works without huge pages, the lock, or the node.  There is a warning
 * for each that cannot be had, for pages and lock in the first life only.  One
 * line of the log has the pages and the lock that the kernel reports.
 *
 * Context: before other threads exist; takes as long as filling the memory, and
 * logs its progress.
 * Return: 0; -ECANCELED when @ask->stop became readable; or a negative errno,
 * which was logged.  Then no memory is left.
 */
int __must_check hostpool_create(struct hostpool *hp,
				 const struct hostpool_ask *ask);

/**
 * hostpool_adopt() - take over the pool of the last daemon, with its contents
 * @bytes: of the pool
 * @huge:  its file has huge pages that were set aside
 * @fd:    of its file, taken over on success
 *
 * Return: 0; -ESTALE: @fd is another file; or a negative errno.
 */
int __must_check hostpool_adopt(struct hostpool *hp, u64 bytes, bool huge,
				int fd);


/* hostpool_destroy() - free the pool; a pool that was never made is allowed */
void hostpool_destroy(struct hostpool *hp);

/**
 * hostpool_needs() - ordinary memory that a pool of @bytes needs
 * Return: 0 when huge pages that are free now will take it.
 */
u64 hostpool_needs(u64 bytes);

/* ---- hostpool_fill.c ---- */

/**
 * hostpool_fill() - make every page now: a later failure could not be reported
 * @hp:   mapped, without pages
 * @huge: try to make huge pages of ordinary ones
 * @threads: that fill, 0: as many as there are CPUs, up to 8
 * @stop: as in struct hostpool_ask
 *
 * Return: 0, -ECANCELED, or a negative errno; then some pages exist.
 */
int __must_check hostpool_fill(struct hostpool *hp, bool huge, u32 threads,
			       int stop);

/* ---- hostpool_numa.c ---- */

/* hostpool_numa_parse() - auto, local, interleave or a number: 0, -EINVAL */
int __must_check hostpool_numa_parse(const char *text, struct hostpool_numa *n);

/**
 * hostpool_numa_check() - is there such a node, with memory?
 * Return: 0, or -ENODEV, which was logged.
 */
int __must_check hostpool_numa_check(const struct hostpool_numa *n);

/* hostpool_numa_bind() - take the pages of the mapping from the requested node */
void hostpool_numa_bind(struct hostpool *hp, const struct hostpool_ask *ask);

/* ---- hostpool_look.c ---- */

/**
 * hostpool_look() - sum up the pages that smaps has in [@base, @base + @bytes)
 * @smaps: text in the form of /proc/PID/smaps, to be read to its end
 * @found: the sums
 */
void hostpool_look(FILE *smaps, const void *base, u64 bytes,
		   struct hostpool_found *found);

#endif /* KVMM_DEV_HOSTPOOL_H */
