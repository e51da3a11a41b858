/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dev.h - what a device must offer to hold a pool
 *
 * Calls here may be slow: they belong to the mapper and the copier thread, and
 * to start-up.  Never to the control or the mm thread.
 */
#ifndef KVMM_DEV_DEV_H
#define KVMM_DEV_DEV_H

#include <kvmm/types.h>

#include "kvmm/dev/memory.h"

struct kvmm_dev;

/**
 * struct kvmm_dev_ops - one kind of device
 * @name:           as --backend spells it
 * @extent_create:  make zeroed memory of @dev->extent_size that no process
 *                  maps, and a descriptor *@fd that exports it; 0 or -errno
 * @extent_revoke:  take the memory from whoever still has it, as far as the
 *                  device can: 0, or -errno: it is back when they end
 * @takes_back:     extent_revoke() leaves nobody a way to what comes after
 * @extent_release: give it back; @fd is closed
 * @available:      bytes that a pool could take now
 * @node:           NUMA node of the memory's device, -1: any
 * @read:           copy out of an extent: 0, or -errno when not all of it came
 * @write:          copy into it, likewise
 */
struct kvmm_dev_ops {
	const char *name;
	bool	takes_back;
	int	(*extent_create)(struct kvmm_dev *dev, u32 extent,
				 u32 generation, int *fd);
	int	(*extent_revoke)(struct kvmm_dev *dev, u32 extent, int fd);
	void	(*extent_release)(struct kvmm_dev *dev, u32 extent, int fd);
	u64	(*available)(struct kvmm_dev *dev);
	int	(*node)(struct kvmm_dev *dev);
	int	(*read)(struct kvmm_dev *dev, int fd, u64 off, void *buf,
			u64 len);
	int	(*write)(struct kvmm_dev *dev, int fd, u64 off,
			 const void *buf, u64 len);
};

/**
 * struct kvmm_dev - one device
 * @ops:         how
 * @extent_size: bytes
 * @epoch:       of the daemon; names the memory of this life
 */
struct kvmm_dev {
	const struct kvmm_dev_ops	*ops;
	u64				extent_size;
	u64				epoch;
};

/* Names of extents as they stand in /proc/PID/maps, "/memfd:" before them. */
#define DEV_EXTENT_PREFIX	"kvmm-extent-"

extern const struct kvmm_dev_ops host_dev_ops;

/**
 * dev_select() - choose the backend
 * @backend: enum kvmm_backend
 * @why:     @len bytes: what was taken and why, one line
 *
 * Return: its operations.
 */
const struct kvmm_dev_ops *dev_select(u32 backend, char *why, size_t len);

#endif /* KVMM_DEV_DEV_H */
