/* SPDX-License-Identifier: Apache-2.0 */
/*
 * dev.h - what a device must offer to hold a pool
 *
 * Calls here may be slow: they belong to the mapper and the copier thread, and
 * to start-up.  Never to the control or the mm thread.
 */
#ifndef KVMM_DEV_DEV_H
#define KVMM_DEV_DEV_H

#include <kvmm/opts.h>
#include <kvmm/types.h>

#include "kvmm/dev/memory.h"

struct kvmm_dev;

/* Directions of a copy; those of two run at once. */
enum {
	DEV_COPY_OUT,		/* to the host pool */
	DEV_COPY_IN,		/* from it */
	DEV_COPY_WITHIN,
	DEV_COPY_DIRS
};

/**
 * struct dev_copy - copy bytes that lie together
 * @id:      for copy_end()
 * @dir:     DEV_COPY_*
 * @dev_off: bytes from the pool's base
 * @dev_to:  likewise, of DEV_COPY_WITHIN; the two do not overlap
 * @host:    in the host pool
 * @bytes:   how many
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
 * @takes_back:     extent_revoke() leaves nobody a way to what comes after
 * @own_memory:     the pool takes nothing of the machine's memory
 * @hides:          what a process maps of it does not show in /proc/PID/maps
 * @extent_size:    unless --extent-size says
 * @pool_size:      unless --pool-size says
 * @open:           before any other call; NULL: nothing to be done.  0 or
 *                  -errno after a line
 * @reserve:        the pool will have so many bytes, in extents of
 *                  @dev->extent_size: 0 or -errno after a line; NULL: no need
 * @close:          the end, however far the start came
 * @granule:        an extent is a multiple of it; NULL: any is
 * @extent_create:  make zeroed memory of @dev->extent_size that no process
 *                  maps, and a descriptor *@fd that exports it; 0 or -errno
 * @extent_is_ours: could @fd, of whoever, be what extent_create() made?
 * @extent_adopt:   use @fd of a daemon that died as what extent_create() made;
 *                  0 or -errno; NULL: nothing but extent_is_ours() to be asked
 * @extent_revoke:  take the memory from whoever still has it, as far as the
 *                  device can: 0, or -errno: it is back when they end
 * @extent_release: give it back; @fd is closed
 * @available:      bytes that a pool could take now
 * @total:          bytes that there are; NULL: of the machine
 * @node:           NUMA node of the memory's device, -1: any
 * @quiet:          does nothing on the device run any more of a process that
 *                  ended at @since?  Makes no call of the device.  NULL: nothing
 *                  ever outlives its process
 * @read:           copy out of an extent: 0, or -errno when not all of it came
 * @write:          copy into it, likewise
 * @host_open:      the host pool, which copies go to and come from
 * @host_close:     no copy is under way
 * @copy_begin:     begin a copy: 0, -EAGAIN: as many as can be are under way in
 *                  its direction; or -errno: it is over and moved nothing.
 *                  NULL: there are read and write alone
 * @copy_end:       a copy that is over, its id and how it ended; false: there
 *                  is none now
 *
 * Either @read and @write are there or the four of copies.
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
	int	(*read)(struct kvmm_dev *dev, int fd, u64 off, void *buf,
			u64 len);
	int	(*write)(struct kvmm_dev *dev, int fd, u64 off,
			 const void *buf, u64 len);
	int	(*host_open)(struct kvmm_dev *dev, void *base, u64 bytes);
	void	(*host_close)(struct kvmm_dev *dev);
	int	(*copy_begin)(struct kvmm_dev *dev, const struct dev_copy *cp);
	bool	(*copy_end)(struct kvmm_dev *dev, u64 *id, int *status);
};

/* What a device still does; it becomes less at most once. */
enum {
	DEV_WORKS,
	DEV_CUT,	/* what the daemon has there is over, nothing else is */
	DEV_LOST,	/* nor is it known what its memory holds */
};

/**
 * struct kvmm_dev - one device
 * @ops:         how
 * @extent_size: bytes
 * @epoch:       of the daemon; names the memory of this life
 * @failed:      DEV_*; written by whichever thread notices, with release,
 *               before the call that failed is answered
 * @tag:         names the device to clients (cudrv_tag()), 0: host memory
 * @priv:        the backend's, from open() to close()
 */
struct kvmm_dev {
	const struct kvmm_dev_ops	*ops;
	u64				extent_size;
	u64				epoch;
	u32				tag;
	u32				failed;
	void				*priv;
};

/* Names of extents as they stand in /proc/PID/maps, "/memfd:" before them. */
#define DEV_EXTENT_PREFIX	"kvmm-extent-"

extern const struct kvmm_dev_ops host_dev_ops;
extern const struct kvmm_dev_ops cuda_dev_ops;

/**
 * dev_select() - choose the backend
 * @backend: enum kvmm_backend
 * @why:     @len bytes: what was taken and why, one line
 *
 * Return: its operations, or NULL: what was asked for is not there.
 *
 * Context: slow, and a driver starts threads.
 */
const struct kvmm_dev_ops *dev_select(u32 backend, char *why, size_t len);

/* dev_has_driver() - is there any that could be tried?  Starts no thread. */
bool dev_has_driver(u32 backend);

/**
 * cuda_probe() - is there a GPU that can hold a pool?
 * @why: @len bytes: which, or why not
 */
bool cuda_probe(char *why, size_t len);

#endif /* KVMM_DEV_DEV_H */
