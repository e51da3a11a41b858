// SPDX-License-Identifier: Apache-2.0
/*
 * probes.c - semaphores of the runtime's probes
 */
#include <kvmm/probes.h>

#define x(name, nr, args, text)	KV_PROBE_SEMAPHORE(kvrt, name);
KVRT_PROBES(x)
#undef x
