// SPDX-License-Identifier: Apache-2.0
/*
 * device.c - a pool on a GPU, in this process
 *
 * The daemon names the device by a tag made of its UUID.  The library looks for
 * that tag among the devices that this process sees, in any order.  The pool's
 * range is reserved once; extent i is imported and mapped at i * extent_size.
 * The handle is released at once: the mapping keeps the memory.
 *
 * An extent is unmapped when nothing runs in the context any more, since a
 * running kernel may read a revoked extent.  The caller has no step open that
 * uses the extent, so the wait is only for the end of a step's kernels.
 *
 * Everything goes through the primary context, which the caller's kernels use
 * too.  The driver counts the users of that context.  A fork() keeps none of
 * this, because the driver does not survive it.
 */
#include <stdio.h>

#include "runtime/libkvmm/internal.h"

static bool device_find(const struct cu_api *cu, u32 tag, CUdevice *dev)
{
	struct cu_uuid id;
	int nr = 0, i;

	if (cu->DeviceGetCount(&nr))
		return false;
	for (i = 0; i < nr; i++)
		if (!cu->DeviceGet(dev, i) && !cu->DeviceGetUuid(&id, *dev) &&
		    cudrv_tag(&id) == tag)
			return true;
	return false;
}

/* Reserve the range; on failure the caller calls lk_device_release(). */
static int range_reserve(struct kvmm *k, char *text)
{
	CUdeviceptr at;
	CUresult r;

	r = k->cu->DevicePrimaryCtxRetain(&k->ctx, k->device);
	if (r) {
		k->ctx = NULL;
		return lk_fail(text, cudrv_errno(r),
			       "the GPU of the pool cannot be used: %s",
			       cudrv_name(r));
	}
	r = k->cu->CtxSetCurrent(k->ctx);
	if (!r)
		r = k->cu->MemAddressReserve(&at, k->info.pool_bytes, 0, 0, 0);
	if (r)
		return lk_fail(text, cudrv_errno(r),
			       "cannot reserve %llu MiB of device addresses for the pool: %s",
			       (unsigned long long)k->info.pool_bytes >> 20,
			       cudrv_name(r));
	k->pool = (char *)(uintptr_t)at;
	return 0;
}

/**
 * lk_device_reserve() - find the pool's device and reserve the range there
 * @text: LK_TEXT_LEN bytes for the reason of a failure
 */
int lk_device_reserve(struct kvmm *k, char *text)
{
	const struct cu_api *cu;
	char why[160];
	int ret;

	if (k->info.memory != KVMM_MEMORY_CUDA)
		return lk_fail(text, -EPROTONOSUPPORT,
			       "the pool lies in memory of a kind that this program does not know: install both from one release");
	cu = cudrv_open(why, sizeof(why));
	if (!cu)
		return lk_fail(text, -ENODEV,
			       "the pool lies on a GPU, which this process cannot use: %s",
			       why);
	if (!device_find(cu, k->info.device, &k->device))
		return lk_fail(text, -ENODEV,
			       "the pool lies on a GPU that this process does not see: look at CUDA_VISIBLE_DEVICES of both");
	k->cu = cu;
	ret = range_reserve(k, text);
	if (ret)
		lk_device_release(k);
	return ret;
}

static CUdeviceptr place(const struct kvmm *k, u32 extent)
{
	return (CUdeviceptr)(uintptr_t)k->pool + extent * k->info.extent_size;
}

/* Note an error that stays: the context can no longer be waited for. */
static void note_failure(struct kvmm *k, CUresult r)
{
	if (cudrv_errno(r) == -EIO)
		k->device_failed = true;
}

/*
 * lk_device_release() - unmap all extents and release the context
 *
 * Waits until nothing runs in the context; sets ->device_failed if it cannot
 * wait.
 */
void lk_device_release(struct kvmm *k)
{
	CUresult r;
	u32 i;

	if (!k->ctx)
		return;
	r = k->cu->CtxSetCurrent(k->ctx);
	if (!r && k->pool)
		r = k->cu->CtxSynchronize();
	note_failure(k, r);
	for (i = 0; k->pool && i < k->info.nr_extents; i++)
		if (k->extent[i].mapped)
			(void)k->cu->MemUnmap(place(k, i),
					      k->info.extent_size);
	if (k->pool)
		(void)k->cu->MemAddressFree(place(k, 0), k->info.pool_bytes);
	k->pool = NULL;
	(void)k->cu->DevicePrimaryCtxRelease(k->device);
	k->ctx = NULL;
}

static CUresult import_at(struct kvmm *k, CUdeviceptr at, int fd)
{
	const u64 size = k->info.extent_size;
	const struct cu_mem_access access = {
		.location = {
			.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = k->device,
		},
		.flags = CU_MEM_ACCESS_READWRITE,
	};
	CUmemGenericAllocationHandle handle;
	CUresult r;

	r = k->cu->MemImportFromShareableHandle(&handle, (void *)(intptr_t)fd,
						CU_MEM_HANDLE_TYPE_FD);
	if (r)
		return r;
	r = k->cu->MemMap(at, size, 0, handle, 0);
	(void)k->cu->MemRelease(handle);
	if (r)
		return r;
	r = k->cu->MemSetAccess(at, size, &access, 1);
	if (r)
		(void)k->cu->MemUnmap(at, size);
	return r;
}

/**
 * lk_device_map() - map an extent at its place
 * @fd: the caller closes it
 * Return: 0 or -ECONNRESET.
 */
int lk_device_map(struct kvmm *k, u32 extent, int fd)
{
	CUresult r = k->cu->CtxSetCurrent(k->ctx);

	if (!r)
		r = import_at(k, place(k, extent), fd);
	note_failure(k, r);
	return r ? lk_end(k, "cannot map extent %u on the GPU: %s", extent,
			  cudrv_name(r)) : 0;
}

/**
 * lk_device_unmap() - unmap an extent, if it is mapped
 *
 * The extent is unmapped even when the context has failed, because the daemon
 * has revoked it.
 * Return: 0 or -ECONNRESET.
 */
int lk_device_unmap(struct kvmm *k, u32 extent)
{
	CUresult r, sync;

	if (!k->extent[extent].mapped)
		return 0;
	sync = k->cu->CtxSetCurrent(k->ctx);
	if (!sync)
		sync = k->cu->CtxSynchronize();
	note_failure(k, sync);
	r = k->cu->MemUnmap(place(k, extent), k->info.extent_size);
	if (!r)
		k->extent[extent].mapped = false;
	if (r)
		return lk_end(k, "cannot unmap extent %u on the GPU: %s",
			      extent, cudrv_name(r));
	return sync ? lk_end(k, "the GPU failed before extent %u was unmapped: %s",
			     extent, cudrv_name(sync)) : 0;
}

/**
 * lk_device_quiet() - wait until nothing of this process runs on the device
 *
 * Return: 0, also for a host pool; or -ECONNRESET.
 */
int lk_device_quiet(struct kvmm *k)
{
	CUresult r;

	if (!k->cu)
		return 0;
	r = k->cu->CtxSetCurrent(k->ctx);
	if (!r)
		r = k->cu->CtxSynchronize();
	note_failure(k, r);
	return r ? lk_end(k, "the GPU failed before the attachment was resumed: %s",
			  cudrv_name(r)) : 0;
}
