// SPDX-License-Identifier: Apache-2.0
/*
 * swap_busy.c - how long areas were busy
 *
 * An area is busy while swapd has a request of it that is not over, as the mm
 * thread sees it: from the request's place in the ring to its completion.  So
 * what waits in swapd counts, and what waits in the backlog, since there is no
 * swapd, does not.  Against the time of the clock it tells whether the disk is
 * what a burst waits for; against swapd's sum over the requests, how many were
 * under way at once.
 *
 * Context: mm thread.
 */
#include "kvmm/ipc/daemon.h"

/* A request to the area was issued. */
void busy_begin(struct swap_mm *sw, u32 area, u64 now)
{
	if (!sw->area[area].nr++)
		sw->area[area].since = now;
}

/* One is over, or its swapd is dead. */
void busy_end(struct swap_mm *sw, u32 area, u64 now)
{
	if (--sw->area[area].nr)
		return;
	sw->area[area].busy_ns += now - sw->area[area].since;
}

u64 busy_ns(const struct swap_mm *sw, u32 area, u64 now)
{
	return sw->area[area].busy_ns +
	       (sw->area[area].nr ? now - sw->area[area].since : 0);
}
