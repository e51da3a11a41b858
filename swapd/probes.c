// SPDX-License-Identifier: Apache-2.0
/*
 * probes.c - whether somebody traces the probes of swapd
 */
#include <kvmm/probes.h>

#define x(name, nr, args, text)	KV_PROBE_SEMAPHORE(swapd, name);
SWAPD_PROBES(x)
#undef x
