// SPDX-License-Identifier: Apache-2.0
/*
 * cuda.c - the backend with its pool in the memory of a GPU
 *
 * An extent is an allocation of the driver's virtual memory interface, exported
 * as a descriptor.  The daemon maps all extents in one address range, for its
 * copies; clients import the descriptors and map them in ranges of their own.  A
 * process that imported an extent has the memory until it unmaps it or ends;
 * nothing takes it away before.  So memory that changes tenant is a new
 * allocation, cleared before a client has it, and memory that a lying client
 * keeps is missing from the device until that client ends.
 *
 * The daemon runs no kernel but the driver's own for clearing, and its streams
 * never wait for a client.
 *
 * A failure that the driver calls sticky ends the context of this process, which
 * can copy or make nothing any more.  Memory and clients live on, unless the
 * failure may have damaged memory (spares_memory()).  The log has one line; the
 * next daemon begins with a new context.
 *
 * Two assumptions were not measured on a GPU: a process has no kernel that writes
 * CUDA_QUIET_MS after its pidfd became readable; and an exported descriptor that
 * no process has imported keeps its memory (adoption needs that).
 */
#include <stdio.h>
#include <stdlib.h>

#include <kvmm/log.h>

#include "kvmm/dev/cuda.h"

#define MIN_MAJOR	8	/* compute capability that kernels are made for */
#define PAGE		4096u	/* least alignment of the pool's range */

/* ---- the device ---- */

static int attribute(const struct cu_api *cu, int which)
{
	int v = 0;
	CUdevice dev;

	if (cu->DeviceGet(&dev, 0) || cu->DeviceGetAttribute(&v, which, dev))
		return 0;
	return v;
}

/* Return: NULL, or the reason why the device cannot hold a pool. */
static const char *lacks(const struct cu_api *cu, char *text, size_t len)
{
	const int major = attribute(cu, CU_DEV_COMPUTE_CAPABILITY_MAJOR);

	if (major < MIN_MAJOR) {
		snprintf(text, len, "has compute capability %d.%d, less than %d.0",
			 major, attribute(cu, CU_DEV_COMPUTE_CAPABILITY_MINOR),
			 MIN_MAJOR);
		return text;
	}
	if (!attribute(cu, CU_DEV_VMM_SUPPORTED))
		return "has no virtual memory management";
	if (!attribute(cu, CU_DEV_HANDLE_TYPE_FD_SUPPORTED))
		return "cannot export memory as descriptors";
	return NULL;
}

bool cuda_probe(char *why, size_t len)
{
	const struct cu_api *cu = cudrv_open(why, len);
	char name[96] = "?", text[96];
	const char *not;
	CUdevice dev;
	CUresult r;
	int nr = 0;

	if (!cu)
		return false;
	r = cu->DeviceGetCount(&nr);
	if (!r && nr > 0)
		r = cu->DeviceGet(&dev, 0);
	if (r || nr <= 0) {
		snprintf(why, len, "the CUDA driver has no device%s%s",
			 r ? ": " : "", r ? cudrv_name(r) : "");
		return false;
	}
	(void)cu->DeviceGetName(name, sizeof(name) - 1, dev);
	not = lacks(cu, text, sizeof(text));
	if (not)
		snprintf(why, len, "%s %s", name, not);
	else
		snprintf(why, len, "%s%s", name, nr > 1 ?
			 ", the first of several: CUDA_VISIBLE_DEVICES names another" :
			 "");
	return !not;
}

void cuda_prop(const struct cuda_dev *g, struct cu_mem_prop *prop)
{
	*prop = (struct cu_mem_prop){
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.handle_types = CU_MEM_HANDLE_TYPE_FD,
		.location = {
			.type = CU_MEM_LOCATION_TYPE_DEVICE,
			.id = g->dev,
		},
	};
}

/* ---- contexts ---- */

static __thread CUcontext current;

/**
 * cuda_dev_enter() - make the context the current one of this thread
 * Return: 0, or a negative errno; -EIO: the device has failed.
 */
int cuda_dev_enter(struct cuda_dev *g)
{
	CUresult r;

	if (READ_ONCE(g->owner->failed))
		return -EIO;
	if (current == g->ctx)
		return 0;
	r = g->cu->CtxSetCurrent(g->ctx);
	if (r)
		return cuda_failed(g, "its context", r);
	current = g->ctx;
	return 0;
}

/*
 * Errors that end the context of the calling process, but damage no memory that
 * others have on the device.  Any other sticky error (ECC, NVLink, a device that
 * is gone, an unknown error) is assumed to damage it.
 */
static bool spares_memory(CUresult r)
{
	switch (r) {
	case CUDA_ERROR_DEINITIALIZED:
	case CUDA_ERROR_INVALID_CONTEXT:
	case CUDA_ERROR_ILLEGAL_ADDRESS:
	case CUDA_ERROR_LAUNCH_TIMEOUT:
	case CUDA_ERROR_CONTEXT_IS_DESTROYED:
	case CUDA_ERROR_ILLEGAL_INSTRUCTION:
	case CUDA_ERROR_MISALIGNED_ADDRESS:
	case CUDA_ERROR_INVALID_ADDRESS_SPACE:
	case CUDA_ERROR_INVALID_PC:
	case CUDA_ERROR_LAUNCH_FAILED:
		return true;
	default:
		return false;
	}
}

/**
 * cuda_failed() - a call failed: has the device failed?
 * @what: the call, for the log
 *
 * Return: a negative errno.
 */
int cuda_failed(struct cuda_dev *g, const char *what, CUresult r)
{
	const int err = cudrv_errno(r);

	const u32 how = spares_memory(r) ? DEV_CUT : DEV_LOST;
	u32 was = DEV_WORKS;

	/* Pairs with the acquire in mm_look_at_device(). */
	if (err != -EIO ||
	    !__atomic_compare_exchange_n(&g->owner->failed, &was, how, false,
					 __ATOMIC_RELEASE, __ATOMIC_RELAXED))
		return err;
	pr_err("the GPU failed at %s (%s): %s", what, cudrv_name(r),
	       how == DEV_CUT ?
	       "nothing is copied and no memory is made any more, nobody new may attach; clients go on with what they have: kvctl upgrade gives kvmm a context of its own again" :
	       "the content of its memory is unknown: sequences have failed, no client may attach: see to the GPU and start kvmm again");
	return err;
}

/* ---- start and end ---- */

static int open_failed(const char *what, CUresult r)
{
	pr_err("the GPU cannot be used: %s: %s", what, cudrv_name(r));
	return cudrv_errno(r);
}

/*
 * The driver gave an answer that no working driver gives.  It gets no memory of
 * tenants then: the pool's range, for one, could be anywhere.
 */
int cuda_lied(const char *what)
{
	pr_err("the GPU cannot be used: its driver %s", what);
	return -EIO;
}

static int cuda_open(struct kvmm_dev *dev)
{
	const struct cu_api *cu = cudrv_open(NULL, 0);
	struct cuda_dev *g = calloc(1, sizeof(*g));
	struct cu_uuid id;
	CUresult r;

	if (!g || !cu) {
		free(g);
		return g ? -ENODEV : -ENOMEM;
	}
	g->cu = cu;
	g->owner = dev;
	dev->priv = g;
	r = cu->DeviceGet(&g->dev, 0);
	if (!r)
		r = cu->DevicePrimaryCtxRetain(&g->ctx, g->dev);
	if (r)
		return open_failed("its context", r);
	r = cu->CtxSetCurrent(g->ctx);
	if (r)
		return open_failed("its context", r);
	current = g->ctx;
	r = cu->DeviceGetUuid(&id, g->dev);
	if (r)
		return open_failed("its UUID", r);
	dev->tag = cudrv_tag(&id);
	return 0;
}

static int cuda_reserve(struct kvmm_dev *dev, u64 pool_bytes)
{
	struct cuda_dev *g = cuda_of(dev);
	CUresult r;

	g->nr_extents = (u32)(pool_bytes / dev->extent_size);
	g->extent = calloc(g->nr_extents, sizeof(*g->extent));
	if (!g->extent) {
		pr_err("no memory for %u extents", g->nr_extents);
		return -ENOMEM;
	}
	r = g->cu->MemAddressReserve(&g->base, pool_bytes, 0, 0, 0);
	if (r)
		return open_failed("the pool's address range", r);
	if (!g->base || g->base % PAGE || g->base + pool_bytes < g->base)
		return cuda_lied("has no range of addresses for the pool");
	g->bytes = pool_bytes;
	r = g->cu->StreamCreateWithPriority(&g->scrub, CU_STREAM_NON_BLOCKING,
					    0);
	if (r)
		return open_failed("a stream", r);
	if (!g->scrub)
		return cuda_lied("makes no stream");
	return cuda_lanes_init(g);
}

static void cuda_close(struct kvmm_dev *dev)
{
	struct cuda_dev *g = cuda_of(dev);
	const struct cu_api *cu;

	if (!g)
		return;
	cu = g->cu;
	cuda_host_close(dev);
	cuda_lanes_exit(g);
	if (g->scrub)
		(void)cu->StreamDestroy(g->scrub);
	cuda_extents_drop(g, dev->extent_size);
	if (g->bytes)
		(void)cu->MemAddressFree(g->base, g->bytes);
	if (g->ctx) {
		(void)cu->CtxSetCurrent(NULL);
		(void)cu->DevicePrimaryCtxRelease(g->dev);
		current = NULL;
	}
	free(g->extent);
	free(g);
	dev->priv = NULL;
}

/* ---- properties ---- */

static u64 cuda_granule(struct kvmm_dev *dev)
{
	struct cuda_dev *g = cuda_of(dev);
	struct cu_mem_prop prop;
	size_t bytes = 0;
	CUresult r;

	cuda_prop(g, &prop);
	r = g->cu->MemGetAllocationGranularity(&bytes, &prop,
					       CU_MEM_GRANULARITY_MINIMUM);
	if (r)
		open_failed("the granularity of its memory", r);
	else if (!is_power_of_2(bytes))
		(void)cuda_lied("hands memory out in no power of two bytes");
	else
		return bytes;
	return 0;
}

static u64 cuda_total(struct kvmm_dev *dev)
{
	struct cuda_dev *g = cuda_of(dev);
	size_t bytes = 0;

	return g->cu->DeviceTotalMem(&bytes, g->dev) ? 0 : bytes;
}

static u64 cuda_available(struct kvmm_dev *dev)
{
	struct cuda_dev *g = cuda_of(dev);
	size_t free = 0, total = 0;

	if (cuda_dev_enter(g) || g->cu->MemGetInfo(&free, &total))
		return 0;
	/* Free memory cannot exceed all memory. */
	free = min((u64)free, min((u64)total, cuda_total(dev)));
	return free > CUDA_RESERVE ? free - CUDA_RESERVE : 0;
}

/* The node of the PCI slot of the device. */
static int cuda_node(struct kvmm_dev *dev)
{
	const struct cu_api *cu = cuda_of(dev)->cu;
	char path[96];
	int node = -1;
	FILE *f;

	snprintf(path, sizeof(path),
		 "/sys/bus/pci/devices/%04x:%02x:%02x.0/numa_node",
		 (unsigned int)attribute(cu, CU_DEV_PCI_DOMAIN_ID),
		 (unsigned int)attribute(cu, CU_DEV_PCI_BUS_ID),
		 (unsigned int)attribute(cu, CU_DEV_PCI_DEVICE_ID));
	f = fopen(path, "re");
	if (!f)
		return -1;
	if (fscanf(f, "%d", &node) != 1)
		node = -1;
	fclose(f);
	return node;
}

/*
 * The end of a process destroys its context: the kernel driver stops its work on
 * the device while the files of the process are closed, which is before its pidfd
 * becomes readable.  So no work should run at @since; the extra time is there
 * because that was not measured yet.
 */
static bool cuda_quiet(struct kvmm_dev *dev, u64 since, u64 now)
{
	return now >= since + CUDA_QUIET_MS * 1000000ull;
}

const struct kvmm_dev_ops cuda_dev_ops = {
	.name		= "cuda",
	.own_memory	= true,
	.hides		= true,
	.extent_size	= 64ull << 20,
	.pool_size	= { .unit = KV_AMOUNT_AUTO },
	.open		= cuda_open,
	.reserve	= cuda_reserve,
	.close		= cuda_close,
	.granule	= cuda_granule,
	.extent_create	= cuda_extent_create,
	.extent_is_ours	= cuda_extent_is_ours,
	.extent_adopt	= cuda_extent_adopt,
	.extent_revoke	= cuda_extent_revoke,
	.extent_release	= cuda_extent_release,
	.available	= cuda_available,
	.total		= cuda_total,
	.node		= cuda_node,
	.quiet		= cuda_quiet,
	.host_open	= cuda_host_open,
	.host_close	= cuda_host_close,
	.copy_begin	= cuda_copy_begin,
	.copy_end	= cuda_copy_end,
};
