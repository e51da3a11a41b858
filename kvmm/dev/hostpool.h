/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hostpool.h - the pinned host pool
 */
#ifndef KVMM_DEV_HOSTPOOL_H
#define KVMM_DEV_HOSTPOOL_H

#include <kvmm/types.h>

/**
 * struct hostpool - memory below the device, in one piece
 * @base:   where this process maps it
 * @bytes:  of the pool; the mapping may be longer
 * @mapped: bytes of the mapping and of the file
 * @fd:     of the memfd, for swapd; clients never get it
 * @huge:   in pages of 2 MiB that were set aside for that
 * @locked: the kernel does not swap it
 * @node:   that it is bound to, or -1
 */
struct hostpool {
	char	*base;
	u64	bytes;
	u64	mapped;
	int	fd;
	bool	huge;
	bool	locked;
	int	node;
};

/**
 * hostpool_create() - make the pool: bound, filled, locked, mapped
 * @bytes: of the pool
 * @epoch: of the daemon; names the memory of this life
 * @near:  NUMA node of the device, -1: the first that has memory
 * @again: a life before this one made it, too
 *
 * What could not be had (huge pages, the lock, the node) is told in one
 * warning each, of pages and lock in the first life only; the pool works
 * without.
 *
 * Context: before threads exist; takes as long as filling the memory takes.
 * Return: 0, or a negative errno; then nothing is left.
 */
int __must_check hostpool_create(struct hostpool *hp, u64 bytes, u64 epoch,
				 int near, bool again);

/* hostpool_destroy() - give it back; a pool that was never made is allowed */
void hostpool_destroy(struct hostpool *hp);

/**
 * hostpool_needs() - how much of a pool of @bytes ordinary memory must hold
 * Return: 0 when huge pages that are free now will take it.
 */
u64 hostpool_needs(u64 bytes);

#endif /* KVMM_DEV_HOSTPOOL_H */
