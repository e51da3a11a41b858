// SPDX-License-Identifier: Apache-2.0
/*
 * busy.c - how long swap areas were busy
 *
 * An area is busy while swapd has a request of it that is not over, as the mm
 * thread sees it: from the request's place in the ring to its completion.  A
 * request that waits in swapd counts; one that waits in the backlog, since
 * there is no swapd, does not.  Compared with the time of the clock this tells
 * whether the disk limits a burst; compared with swapd's sum over the requests,
 * how many were under way at once.
 *
 * Context: mm thread.
 */
#include "kvmm/ipc/tiers/tiers.h"

/* busy_begin() - a request to the area was issued */
void busy_begin(struct swap_mm *sw, u32 area, u64 now)
{
	if (!sw->area[area].nr++)
		sw->area[area].since = now;
}

/* busy_end() - a request is over, or its swapd is dead */
void busy_end(struct swap_mm *sw, u32 area, u64 now)
{
	if (--sw->area[area].nr)
		return;
	sw->area[area].busy_ns += now - sw->area[area].since;
}

/* busy_ns() - until @now, over all its life */
u64 busy_ns(const struct swap_mm *sw, u32 area, u64 now)
{
	return sw->area[area].busy_ns +
	       (sw->area[area].nr ? now - sw->area[area].since : 0);
}
