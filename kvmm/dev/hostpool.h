/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hostpool.h - the pinned host pool
 *
 *   hostpool.c	the memory: which pages, locked, sealed
 *   hostpool_fill.c	every page of it exists before anybody relies on it
 *   hostpool_numa.c	which memory node they come from
 *   hostpool_look.c	what the kernel says was got
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
	HOSTPOOL_NODE,		/* one that was named */
};

/* --host-numa; @node is that of HOSTPOOL_NODE, else -1. */
struct hostpool_numa {
	enum hostpool_place	place;
	int			node;
};

/**
 * struct hostpool_found - what /proc/self/smaps says of the mapping, in bytes
 * @resident: there is a page
 * @hugetlb:  of it, in pages of 2 MiB that were set aside
 * @thp:      of it, in pages of 2 MiB that the kernel put together
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
 * @ns:      it took
 * @threads: that did it
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
 * @huge:   the file is one of pages that were set aside
 * @locked: the kernel does not swap any of it
 * @node:   that it is bound to, or -1
 * @found:  in the end
 * @filled: how long that took
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
 * struct hostpool_ask - what is wanted
 * @bytes: of the pool
 * @epoch: of the daemon; names the memory of this life
 * @near:  NUMA node of the device, -1: there is none
 * @numa:  of --host-numa
 * @stop:  descriptor that becomes readable when nobody wants it any more, or
 *         -1; nothing is read from it
 * @again: a life before this one made it, too
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
 * @ask: what is wanted
 *
 * What could not be had (huge pages, the lock, the node) is told in one
 * warning each, of pages and lock in the first life only; the pool works
 * without.  What was had is asked of the kernel and told in one line.
 *
 * Context: before other threads exist; takes as long as filling the memory
 * takes, and tells how far it is.
 * Return: 0; -ECANCELED when @ask->stop became readable; or a negative errno,
 * which was told.  Then nothing is left.
 */
int __must_check hostpool_create(struct hostpool *hp,
				 const struct hostpool_ask *ask);

/**
 * hostpool_adopt() - the pool of the last daemon, with what it holds
 * @bytes: of the pool
 * @huge:  its file is one of pages that were set aside
 * @fd:    of it, taken over when this succeeds
 *
 * Return: 0; -ESTALE: it is another one; or a negative errno.
 */
int __must_check hostpool_adopt(struct hostpool *hp, u64 bytes, bool huge,
				int fd);


/* hostpool_destroy() - give it back; a pool that was never made is allowed */
void hostpool_destroy(struct hostpool *hp);

/**
 * hostpool_needs() - how much of a pool of @bytes ordinary memory must hold
 * Return: 0 when huge pages that are free now will take it.
 */
u64 hostpool_needs(u64 bytes);

/* ---- hostpool_fill.c ---- */

/**
 * hostpool_fill() - every page there is, now: later nobody could be told
 * @hp:   mapped, nothing in it
 * @huge: where the pages are ordinary ones: try to make them huge
 * @threads: that fill, 0: as many as there are CPUs, up to 8
 * @stop: as in struct hostpool_ask
 *
 * Return: 0, -ECANCELED, or a negative errno; then part of it exists.
 */
int __must_check hostpool_fill(struct hostpool *hp, bool huge, u32 threads,
			       int stop);

/* ---- hostpool_numa.c ---- */

/* hostpool_numa_parse() - auto, local, interleave or a number: 0, -EINVAL */
int __must_check hostpool_numa_parse(const char *text, struct hostpool_numa *n);

/**
 * hostpool_numa_check() - is the node there, and has it memory?
 * Return: 0, or -ENODEV, which was told.
 */
int __must_check hostpool_numa_check(const struct hostpool_numa *n);

/* hostpool_numa_bind() - let the pages of the mapping come from there */
void hostpool_numa_bind(struct hostpool *hp, const struct hostpool_ask *ask);

/* ---- hostpool_look.c ---- */

/**
 * hostpool_look() - what the kernel says of [@base, @base + @bytes)
 * @smaps: text in the form of /proc/PID/smaps, to be read to its end
 * @found: the sums
 */
void hostpool_look(FILE *smaps, const void *base, u64 bytes,
		   struct hostpool_found *found);

#endif /* KVMM_DEV_HOSTPOOL_H */
