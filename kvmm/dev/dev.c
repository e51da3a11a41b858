// SPDX-License-Identifier: Apache-2.0
/*
 * dev.c - which backend
 *
 * Which one was taken, and why, is one line in the log.  There is one so far,
 * so there is nothing to look for.
 */
#include <stdio.h>

#include <kvmm/kvmm_options.h>

#include "kvmm/dev/dev.h"

const struct kvmm_dev_ops *dev_select(u32 backend, char *why, size_t len)
{
	snprintf(why, len, "host backend: blocks in host memory%s",
		 backend == KVMM_BACKEND_HOST ? "" :
		 " (this version has no CUDA backend)");
	return &host_dev_ops;
}
