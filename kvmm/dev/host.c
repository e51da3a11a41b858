// SPDX-License-Identifier: Apache-2.0
/*
 * host.c - the backend with its pool in ordinary memory
 *
 * An extent is a memfd of its own, on shmem, sized and filled before it is
 * sealed against shrinking, growing and further seals.  A client maps it for
 * reading and writing, and may punch holes in it: it then loses data of its own
 * tenant.  No process can make it shorter.  The daemon copies by system calls at
 * first, and by a mapping of its own when that is faster: host_map.c.
 *
 * Memory that changes tenant is a new memfd: a descriptor that an old tenant kept
 * refers to the old file, never to the new pages.  The old pages are free as well:
 * before the daemon gives up the file, it punches out all of it, which frees every
 * page even where a process maps it, and checks that none is left.  So this backend
 * gets memory back without the help of clients.  A process that touches the old
 * file later gets new pages, as with any memory.
 */
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <kvmm/fault.h>

#include "kvmm/dev/host.h"

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL	0x0008u
#endif

static int host_memfd(const char *name)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING |
			      MFD_NOEXEC_SEAL);

	/* Kernels before 6.3 do not know the last flag. */
	if (fd < 0 && errno == EINVAL)
		fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	return fd < 0 ? -errno : fd;
}

static int host_extent_create(struct kvmm_dev *dev, u32 extent, u32 generation,
			      int *fd)
{
	char name[64];
	int err;

	if (kv_fault(KV_FAULT_extent_stall))
		sleep(3);
	if (kv_fault(KV_FAULT_extent_create))
		return -ENOMEM;
	err = dev_memory_admit(dev->extent_size);
	if (err)
		return err;

	snprintf(name, sizeof(name), DEV_EXTENT_PREFIX "%" PRIx64 "-%u.%u",
		 dev->epoch, extent, generation);
	*fd = host_memfd(name);
	if (*fd < 0)
		return *fd;
	if (ftruncate(*fd, (off_t)dev->extent_size)) {
		err = -errno;
		goto out_close;
	}
	/* Take the pages now: a later failure could not be reported. */
	if (fallocate(*fd, 0, 0, (off_t)dev->extent_size)) {
		err = errno == ENOSPC ? -ENOMEM : -errno;
		goto out_close;
	}
	if (fcntl(*fd, F_ADD_SEALS, DEV_SEALS)) {
		err = -errno;
		goto out_close;
	}
	return 0;

out_close:
	close(*fd);
	*fd = -1;
	return err;
}

static bool host_extent_is_ours(struct kvmm_dev *dev, int fd)
{
	return dev_memory_is_ours(fd, dev->extent_size);
}

static int host_extent_revoke(struct kvmm_dev *dev, u32 extent, int fd)
{
	struct stat st;

	if (kv_fault(KV_FAULT_extent_revoke))
		return -EBUSY;
	host_map_forget(dev, extent);
	if (fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
		      (off_t)dev->extent_size) || fstat(fd, &st))
		return -errno;
	return st.st_blocks ? -EBUSY : 0;
}

static void host_extent_release(struct kvmm_dev *dev, u32 extent, int fd)
{
	host_map_forget(dev, extent);
	close(fd);
}

static int host_read(struct kvmm_dev *dev, u32 extent, int fd, u64 off,
		     void *buf, u64 len)
{
	const int err = host_map_copy(dev, extent, fd, off, buf, len, false);
	char *p = buf;
	ssize_t n;

	if (err != -EAGAIN)
		return err;
	while (len) {
		n = pread(fd, p, len, (off_t)off);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -EIO;
		p += n;
		off += (u64)n;
		len -= (u64)n;
	}
	return 0;
}

static int host_write(struct kvmm_dev *dev, u32 extent, int fd, u64 off,
		      void *buf, u64 len)
{
	const int err = host_map_copy(dev, extent, fd, off, buf, len, true);
	const char *p = buf;
	ssize_t n;

	if (err != -EAGAIN)
		return err;
	while (len) {
		n = pwrite(fd, p, len, (off_t)off);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n ? -errno : -EIO;
		p += n;
		off += (u64)n;
		len -= (u64)n;
	}
	return 0;
}

static int host_node(struct kvmm_dev *dev)
{
	return -1;
}

static u64 host_available(struct kvmm_dev *dev)
{
	return dev_memory_available();
}

const struct kvmm_dev_ops host_dev_ops = {
	.name		= "host",
	.takes_back	= true,		/* each extent is another file */
	.extent_size	= 8ull << 20,
	.pool_size	= { .unit = KV_AMOUNT_BYTES, .value = 256ull << 20 },
	.reserve	= host_reserve,
	.close		= host_close,
	.extent_create	= host_extent_create,
	.extent_is_ours	= host_extent_is_ours,
	.extent_revoke	= host_extent_revoke,
	.extent_release	= host_extent_release,
	.available	= host_available,
	.node		= host_node,
	.read		= host_read,
	.write		= host_write,
};
