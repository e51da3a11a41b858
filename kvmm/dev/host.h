/* SPDX-License-Identifier: Apache-2.0 */
/*
 * host.h - the backend with its pool in ordinary memory
 *
 *   host.c	extents: memfds on shmem
 *   host_map.c	the daemon's mappings of extents, for the copier
 */
#ifndef KVMM_DEV_HOST_H
#define KVMM_DEV_HOST_H

#include "kvmm/dev/dev.h"

/* host_reserve() - make the table of mappings: 0 or -ENOMEM; see dev.h */
int host_reserve(struct kvmm_dev *dev, u64 pool_bytes);

/* host_close() - unmap all extents and free the table */
void host_close(struct kvmm_dev *dev);

/**
 * host_map_copy() - copy by memory accesses, if the extent is mapped by now
 * @fd:  of @extent
 * @off: in it
 * @buf: memory of the daemon alone
 * @in:  into the extent, else out of it
 *
 * Context: the copier thread.
 * Return: 0; -EIO: the kernel had no page, or a broken one, and a part was copied;
 * -EAGAIN: nothing was copied, a system call is the way.
 */
int host_map_copy(struct kvmm_dev *dev, u32 extent, int fd, u64 off, void *buf,
		  u64 len, bool in);

/*
 * host_map_forget() - unmap the extent, which no copy uses and none will
 *
 * Context: the mapper thread, or start-up.
 */
void host_map_forget(struct kvmm_dev *dev, u32 extent);

#endif /* KVMM_DEV_HOST_H */
