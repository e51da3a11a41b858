// SPDX-License-Identifier: Apache-2.0
/*
 * dev.c - choice of the backend
 *
 * The log has one line with the backend and the reason.  A backend that was
 * requested by name is used or refused; auto takes a GPU if one can hold a pool.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include <kvmm/cudrv.h>
#include <kvmm/kvmm_options.h>

#include "kvmm/dev/dev.h"

const struct kvmm_dev_ops *dev_select(u32 backend, char *why, size_t len)
{
	char found[256];
	bool cuda;

	if (backend == KVMM_BACKEND_HOST) {
		snprintf(why, len, "host backend: blocks in host memory");
		return &host_dev_ops;
	}
	cuda = cuda_probe(found, sizeof(found));
	if (cuda)
		snprintf(why, len, "cuda backend: blocks on %s", found);
	else if (backend == KVMM_BACKEND_CUDA)
		snprintf(why, len, "--backend cuda cannot be had: %s: give --backend host, or install the driver of the GPU",
			 found);
	else
		snprintf(why, len, "host backend: blocks in host memory (%s)",
			 found);
	if (cuda)
		return &cuda_dev_ops;
	return backend == KVMM_BACKEND_CUDA ? NULL : &host_dev_ops;
}

bool dev_has_driver(u32 backend)
{
	const char *name = secure_getenv("KVMM_LIBCUDA");

	return backend != KVMM_BACKEND_HOST &&
	       dlopen(name && *name ? name : CUDRV_SONAME,
		      RTLD_NOW | RTLD_LOCAL);
}
