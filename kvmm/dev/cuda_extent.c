// SPDX-License-Identifier: Apache-2.0
/*
 * cuda_extent.c - extents of a GPU
 *
 * An extent is made in four steps: allocate the memory, map it at the extent's
 * place in the daemon's range, clear it, export it as a descriptor.  It is not
 * known whether the driver clears memory that it hands out, so this file does,
 * before another process has it.  Clearing has a stream of its own, for which the
 * thread waits.  A step that fails undoes the steps before it.
 *
 * To give an extent back, the daemon unmaps it and releases the allocation and its
 * descriptor.  The memory is free when the last process that imported it has
 * released it, too.  No process can be forced to do that but by its end, and the
 * driver does not tell which processes have the memory.  So the core waits for
 * every client and every process that had it (takes_back is false).  If one keeps
 * memory against its word, the next extent fails with -ENOMEM until it ends.
 *
 * A daemon that died left its descriptors with kvmm-hold.  Importing one gives the
 * memory with its contents.
 */
#include <fcntl.h>
#include <unistd.h>

#include <kvmm/fault.h>
#include <kvmm/log.h>

#include "kvmm/dev/cuda.h"

static CUdeviceptr place(const struct kvmm_dev *dev, const struct cuda_dev *g,
			 u32 extent)
{
	return g->base + extent * dev->extent_size;
}

/* Does another extent have this memory?  A driver must not hand it out twice. */
static bool is_taken(const struct cuda_dev *g,
		     CUmemGenericAllocationHandle handle)
{
	u32 i;

	for (i = 0; i < g->nr_extents; i++)
		if (g->extent[i].mapped && g->extent[i].handle == handle)
			return true;
	return false;
}

/* Map a handle at its place, for this process alone. */
static int extent_map(struct kvmm_dev *dev, u32 extent,
		      CUmemGenericAllocationHandle handle)
{
	struct cuda_dev *g = cuda_of(dev);
	const struct cu_mem_access access = {
		.location = {
			.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = g->dev,
		},
		.flags = CU_MEM_ACCESS_READWRITE,
	};
	const CUdeviceptr at = place(dev, g, extent);
	CUresult r;

	r = g->cu->MemMap(at, dev->extent_size, 0, handle, 0);
	if (r)
		return cuda_failed(g, "mapping an extent", r);
	r = g->cu->MemSetAccess(at, dev->extent_size, &access, 1);
	if (r) {
		(void)g->cu->MemUnmap(at, dev->extent_size);
		return cuda_failed(g, "access to an extent", r);
	}
	g->extent[extent].handle = handle;
	g->extent[extent].mapped = true;
	return 0;
}

/* Unmap an extent and release its handle, which may be the last one. */
static void extent_unmap(struct cuda_dev *g, u64 extent_size, u32 extent)
{
	struct cuda_extent *x = &g->extent[extent];

	if (!x->mapped)
		return;
	x->mapped = false;
	(void)g->cu->MemUnmap(g->base + extent * extent_size, extent_size);
	(void)g->cu->MemRelease(x->handle);
}

/* Clear a new extent, before another process has it. */
static int extent_scrub(struct kvmm_dev *dev, u32 extent)
{
	struct cuda_dev *g = cuda_of(dev);
	CUresult r = g->cu->MemsetD8Async(place(dev, g, extent), 0,
					  dev->extent_size, g->scrub);

	if (!r)
		r = g->cu->StreamSynchronize(g->scrub);
	/* If possible, the caller unmaps it only when it is no longer written. */
	if (r)
		(void)g->cu->StreamSynchronize(g->scrub);
	return r ? cuda_failed(g, "clearing an extent", r) : 0;
}

static int extent_export(struct cuda_dev *g,
			 CUmemGenericAllocationHandle handle, int *fd)
{
	CUresult r = g->cu->MemExportToShareableHandle(fd, handle,
						       CU_MEM_HANDLE_TYPE_FD,
						       0);

	if (r) {
		*fd = -1;
		return cuda_failed(g, "exporting an extent", r);
	}
	/* The daemon executes no program, but that is not guaranteed. */
	if (!fcntl(*fd, F_SETFD, FD_CLOEXEC))
		return 0;
	*fd = -1;
	return cuda_failed(g, "a descriptor that it did not open",
			   CUDA_ERROR_UNKNOWN);
}

int cuda_extent_create(struct kvmm_dev *dev, u32 extent, u32 generation,
		       int *fd)
{
	struct cuda_dev *g = cuda_of(dev);
	CUmemGenericAllocationHandle handle;
	struct cu_mem_prop prop;
	CUresult r;
	int err;

	if (kv_fault(KV_FAULT_extent_stall))
		sleep(3);
	if (kv_fault(KV_FAULT_extent_create))
		return -ENOMEM;
	err = cuda_dev_enter(g);
	if (err)
		return err;
	cuda_prop(g, &prop);
	r = g->cu->MemCreate(&handle, dev->extent_size, &prop, 0);
	if (r)
		return cuda_failed(g, "making an extent", r);
	if (is_taken(g, handle))
		return cuda_failed(g, "handing memory out a second time",
				   CUDA_ERROR_UNKNOWN);
	err = extent_map(dev, extent, handle);
	if (err) {
		(void)g->cu->MemRelease(handle);
		return err;
	}
	err = extent_scrub(dev, extent);
	if (!err)
		err = extent_export(g, handle, fd);
	if (err)
		extent_unmap(g, dev->extent_size, extent);
	return err;
}

/* Import a descriptor; only mapping shows whether the memory can be used. */
static int extent_import(struct cuda_dev *g, int fd,
			 CUmemGenericAllocationHandle *handle)
{
	CUresult r;
	int err = cuda_dev_enter(g);

	if (err)
		return err;
	r = g->cu->MemImportFromShareableHandle(handle, (void *)(intptr_t)fd,
						CU_MEM_HANDLE_TYPE_FD);
	return r ? -EINVAL : 0;
}

bool cuda_extent_is_ours(struct kvmm_dev *dev, int fd)
{
	struct cuda_dev *g = cuda_of(dev);
	CUmemGenericAllocationHandle handle;

	if (extent_import(g, fd, &handle))
		return false;
	(void)g->cu->MemRelease(handle);
	return true;
}

/* Mapping refuses memory of another size. */
int cuda_extent_adopt(struct kvmm_dev *dev, u32 extent, int fd)
{
	struct cuda_dev *g = cuda_of(dev);
	CUmemGenericAllocationHandle handle;
	int err = extent_import(g, fd, &handle);

	if (err)
		return err;
	err = extent_map(dev, extent, handle);
	if (err)
		(void)g->cu->MemRelease(handle);
	return err;
}

/* Unmap it in this process; clients reported that they have unmapped it. */
int cuda_extent_revoke(struct kvmm_dev *dev, u32 extent, int fd)
{
	struct cuda_dev *g = cuda_of(dev);

	if (kv_fault(KV_FAULT_extent_revoke))
		return -EBUSY;
	if (extent < g->nr_extents && !cuda_dev_enter(g))
		extent_unmap(g, dev->extent_size, extent);
	return 0;
}

void cuda_extent_release(struct kvmm_dev *dev, u32 extent, int fd)
{
	struct cuda_dev *g = cuda_of(dev);

	if (extent < g->nr_extents && !cuda_dev_enter(g))
		extent_unmap(g, dev->extent_size, extent);
	close(fd);
}

/* Free all extents, at the end. */
void cuda_extents_drop(struct cuda_dev *g, u64 extent_size)
{
	u32 i;

	for (i = 0; i < g->nr_extents && g->extent; i++)
		extent_unmap(g, extent_size, i);
}
