// SPDX-License-Identifier: Apache-2.0
/*
 * probes.c - semaphores of swapd's probes
 */
#include <kvmm/probes.h>

#define x(name, nr, args, text)	KV_PROBE_SEMAPHORE(swapd, name);
SWAPD_PROBES(x)
#undef x
