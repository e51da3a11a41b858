/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dev.h - the operations of a device that holds a pool
 *
 * The operations may be slow: the mapper thread, the copier thread and start-up
 * call them, never the control or the mm thread.
 */
#ifndef KVMM_DEV_DEV_H
#define KVMM_DEV_DEV_H

#include <kvmm/opts.h>
#include <kvmm/types.h>

#include "kvmm/dev/memory.h"

struct kvmm_dev;

/* Directions of a copy; copies of two directions run at once. */
enum {
	DEV_COPY_OUT,		/* to the host pool */
	DEV_COPY_IN,		/* from it */
	DEV_COPY_WITHIN,
	DEV_COPY_DIRS
};

/**
 * struct dev_copy - one copy of neighbouring bytes
 * @id:      for copy_end()
 * @dir:     DEV_COPY_*
 * @dev_off: bytes from the pool's base
 * @dev_to:  likewise, of DEV_COPY_WITHIN; the two do not overlap
 * @host:    place in the host pool
 * @bytes:   length
 */
struct dev_copy {
	u64	id;
	u32	dir;
	u64	dev_off;
	u64	dev_to;
	char	*host;
	u64	bytes;
};

/**
 * struct kvmm_dev_ops - one kind of device
 * @name:           as --backend spells it
 * @takes_back:     after extent_revoke() no process reaches memory made later
 * @own_memory:     the pool takes nothing of the machine's memory
 * @hides:          mapped extents do not show in /proc/PID/maps
 * @extent_size:    default of --extent-size
 * @pool_size:      default of --pool-size
 * @open:           called first: 0, or -errno after a line in the log; NULL:
 *                  nothing to do
 * @reserve:        the pool will have @pool_bytes, in extents of
 *                  @dev->extent_size: 0, or -errno after a line in the log;
 *                  NULL: nothing to do
 * @close:          called at the end, also if the start failed half-way
 * @granule:        the extent size is a multiple of it; NULL: any size will do
 * @extent_create:  make zeroed memory of @dev->extent_size that no client
 *                  maps, and a descriptor *@fd that exports it; 0 or -errno
 * @extent_is_ours: could @fd, of any origin, come from extent_create()?
 * @extent_adopt:   use @fd, which extent_create() of a dead daemon made; 0 or
 *                  -errno; NULL: extent_is_ours() is enough
 * @extent_revoke:  take the memory from all processes that have it, as far as
 *                  the device can: 0, or -errno: it is free when they end
 * @extent_release: free the extent and close @fd
 * @available:      bytes that a pool could take now
 * @total:          all bytes of the device; NULL: those of the machine
 * @node:           NUMA node of the device, -1: any
 * @quiet:          has the work on the device of a process that ended at @since
 *                  ended, too?  Makes no call of the device.  NULL: no work
 *                  outlives its process
 * @read:           copy out of an extent: 0, or -errno if only a part was copied;
 *                  the copier thread alone calls it
 * @write:          copy into an extent, likewise
 * @host_open:      prepare copies to and from the host pool at @base
 * @host_close:     undo host_open(), while no copy is under way
 * @copy_begin:     begin a copy: 0; -EAGAIN: its direction has no room for
 *                  another one; or -errno: it failed, and no part of it is under
 *                  way.  NULL: the device has only @read and @write
 * @copy_end:       return the id and the result of a copy that is over; false:
 *                  there is none now
 *
 * A device has either @read and @write or the four operations for copies.
 */
struct kvmm_dev_ops {
	const char *name;
	bool	takes_back;
	bool	own_memory;
	bool	hides;
	u64	extent_size;
	struct kv_amount pool_size;
	int	(*open)(struct kvmm_dev *dev);
	int	(*reserve)(struct kvmm_dev *dev, u64 pool_bytes);
	void	(*close)(struct kvmm_dev *dev);
	u64	(*granule)(struct kvmm_dev *dev);
	int	(*extent_create)(struct kvmm_dev *dev, u32 extent,
				 u32 generation, int *fd);
	bool	(*extent_is_ours)(struct kvmm_dev *dev, int fd);
	int	(*extent_adopt)(struct kvmm_dev *dev, u32 extent, int fd);
	int	(*extent_revoke)(struct kvmm_dev *dev, u32 extent, int fd);
	void	(*extent_release)(struct kvmm_dev *dev, u32 extent, int fd);
	u64	(*available)(struct kvmm_dev *dev);
	u64	(*total)(struct kvmm_dev *dev);
	int	(*node)(struct kvmm_dev *dev);
	bool	(*quiet)(struct kvmm_dev *dev, u64 since, u64 now);
	int	(*read)(struct kvmm_dev *dev, u32 extent, int fd, u64 off,
			void *buf, u64 len);
	int	(*write)(struct kvmm_dev *dev, u32 extent, int fd, u64 off,
			 void *buf, u64 len);
	int	(*host_open)(struct kvmm_dev *dev, void *base, u64 bytes);
	void	(*host_close)(struct kvmm_dev *dev);
	int	(*copy_begin)(struct kvmm_dev *dev, const struct dev_copy *cp);
	bool	(*copy_end)(struct kvmm_dev *dev, u64 *id, int *status);
};

/* The state of a device; it changes at most once. */
enum {
	DEV_WORKS,
	DEV_CUT,	/* the daemon cannot use it, but memory and clients live */
	DEV_LOST,	/* and the contents of its memory are unknown */
};

/**
 * struct kvmm_dev - one device
 * @ops:         of its backend
 * @extent_size: bytes
 * @epoch:       of the daemon; names the memory of this life
 * @failed:      DEV_*; the thread that notices the failure writes it, with
 *               release, before it answers the failed call
 * @tag:         names the device to clients (cudrv_tag()), 0: host memory
 * @priv:        data of the backend, from open() to close()
 */
struct kvmm_dev {
	const struct kvmm_dev_ops	*ops;
	u64				extent_size;
	u64				epoch;
	u32				tag;
	u32				failed;
	void				*priv;
};

/* Names of extents in /proc/PID/maps, where "/memfd:" precedes them. */
#define DEV_EXTENT_PREFIX	"kvmm-extent-"

extern const struct kvmm_dev_ops host_dev_ops;
extern const struct kvmm_dev_ops cuda_dev_ops;

/**
 * dev_select() - choose the backend
 * @backend: enum kvmm_backend
 * @why:     @len bytes for a line: the backend and the reason
 *
 * Return: its operations, or NULL: the requested backend cannot be used.
 *
 * Context: slow, and a driver starts threads.
 */
const struct kvmm_dev_ops *dev_select(u32 backend, char *why, size_t len);

/**
 * dev_copy_fault() - the handler of SIGBUS tells of a fault at @addr
 *
 * Does not return if this thread copies an extent there by memory accesses: the
 * copy ends with -EIO.
 */
void dev_copy_fault(const void *addr);

/* dev_has_driver() - is there a CUDA driver to try?  Starts no thread. */
bool dev_has_driver(u32 backend);

/**
 * cuda_probe() - is there a GPU that can hold a pool?
 * @why: @len bytes for its name, or the reason against it
 */
bool cuda_probe(char *why, size_t len);

#endif /* KVMM_DEV_DEV_H */
