/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuda.h - data and functions that the files of the CUDA backend share
 *
 *   cuda.c		choice of the device, its context and address range
 *   cuda_extent.c	memory: made, exported, imported, given back
 *   cuda_copy.c	copies between it and the host pool
 *
 * The daemon uses the device's primary context.  Each thread has its own current
 * context, so a function that may be the first one of a thread begins with
 * cuda_dev_enter().  Three threads use the backend: the one that starts the
 * daemon, the mapper (extents) and the copier (copies).  They share only
 * kvmm_dev.failed.
 */
#ifndef KVMM_DEV_CUDA_H
#define KVMM_DEV_CUDA_H

#include <kvmm/cudrv.h>

#include "kvmm/dev/dev.h"

/* Numbers that a measurement may change: x(name, value, meaning). */
#define CUDA_TUNABLES(x)						\
	x(LANE_DEPTH, 16, "copies under way in one direction")		\
	x(SEGMENT, 1ull << 30,						\
	  "bytes of the host pool that are registered at once")		\
	x(QUIET_MS, 100,						\
	  "from the end of a process to the end of its kernels")	\
	x(RESERVE, 64ull << 20,						\
	  "bytes of the device that the pool leaves for contexts")

enum cuda_tunable_values {
#define x(name, value, text) CUDA_##name = value,
	CUDA_TUNABLES(x)
#undef x
};

/**
 * struct cuda_lane - the copies of one direction, which end in their order
 * @done: one event for each that can be under way
 * @id:   of the caller
 * @head: index of the oldest copy, free-running
 * @tail: index behind the youngest copy
 */
struct cuda_lane {
	CUstream	stream;
	CUevent		done[CUDA_LANE_DEPTH];
	u64		id[CUDA_LANE_DEPTH];
	u32		head;
	u32		tail;
};

/* One extent, as this process has it. */
struct cuda_extent {
	CUmemGenericAllocationHandle	handle;
	bool				mapped;
};

/**
 * struct cuda_dev - one device
 * @owner:    its @failed says that the device has failed
 * @base:     of the address range: extent i lies at i * extent_size
 * @bytes:    of the address range
 * @extent:   by number
 * @scrub:    stream that clears new memory, the mapper's
 * @lane:     by DEV_COPY_*
 * @host:     base of the host pool, NULL: it is not registered
 * @nr_segments: registered segments of the host pool
 */
struct cuda_dev {
	struct kvmm_dev		*owner;
	const struct cu_api	*cu;
	CUdevice		dev;
	CUcontext		ctx;
	CUdeviceptr		base;
	u64			bytes;
	struct cuda_extent	*extent;
	u32			nr_extents;
	CUstream		scrub;
	struct cuda_lane	lane[DEV_COPY_DIRS];
	char			*host;
	u64			host_bytes;
	u32			nr_segments;
};

static inline struct cuda_dev *cuda_of(struct kvmm_dev *dev)
{
	return dev->priv;
}

/* cuda.c */
int __must_check cuda_dev_enter(struct cuda_dev *g);
int cuda_failed(struct cuda_dev *g, const char *what, CUresult r);
int cuda_lied(const char *what);
void cuda_prop(const struct cuda_dev *g, struct cu_mem_prop *prop);

/* cuda_extent.c */
int __must_check cuda_extent_create(struct kvmm_dev *dev, u32 extent,
				    u32 generation, int *fd);
bool cuda_extent_is_ours(struct kvmm_dev *dev, int fd);
int __must_check cuda_extent_adopt(struct kvmm_dev *dev, u32 extent, int fd);
int cuda_extent_revoke(struct kvmm_dev *dev, u32 extent, int fd);
void cuda_extent_release(struct kvmm_dev *dev, u32 extent, int fd);
void cuda_extents_drop(struct cuda_dev *g, u64 extent_size);

/* cuda_copy.c */
int __must_check cuda_lanes_init(struct cuda_dev *g);
void cuda_lanes_exit(struct cuda_dev *g);
int __must_check cuda_host_open(struct kvmm_dev *dev, void *base, u64 bytes);
void cuda_host_close(struct kvmm_dev *dev);
int __must_check cuda_copy_begin(struct kvmm_dev *dev,
				 const struct dev_copy *cp);
bool cuda_copy_end(struct kvmm_dev *dev, u64 *id, int *status);

#endif /* KVMM_DEV_CUDA_H */
