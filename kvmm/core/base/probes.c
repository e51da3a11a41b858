// SPDX-License-Identifier: Apache-2.0
/*
 * probes.c - whether somebody traces the probes of the memory manager
 */
#include <kvmm/probes.h>

#define x(name, nr, args, text)	KV_PROBE_SEMAPHORE(kvmm, name);
KVMM_PROBES(x)
#undef x
