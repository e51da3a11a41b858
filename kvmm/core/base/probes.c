// SPDX-License-Identifier: Apache-2.0
/*
 * probes.c - semaphores that say whether a probe is being traced
 */
#include <kvmm/probes.h>

#define x(name, nr, args, text)	KV_PROBE_SEMAPHORE(kvmm, name);
KVMM_PROBES(x)
#undef x
