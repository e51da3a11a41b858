// SPDX-License-Identifier: Apache-2.0
/*
 * wake.c - no waiting sequence is forgotten
 *
 * The core looks at a domain's waiting sequences again when something changed
 * that could help them, and notes that in a flag.  A place that forgets to set
 * the flag makes a sequence wait until something else happens to set it, which
 * under load is soon and in an idle node never.  So now and then all flags are
 * set from outside, and nothing may come of it.
 *
 * Which spans of other domains a request may count on is found greedily where
 * promises must stay covered, so that using one block can make room for more;
 * such moments are left out.  So are those in which copies are under way: who
 * counted on their blocks looks again when they end, and a grant that took one
 * meanwhile may have made it worth while to take an extent instead.
 *
 * Only this file and move.c of the simulator reach into the core.
 */
#include "kvmm/core/node/node.h"
#include "tests/sim/sim.h"

/* In one go, whatever an event may cost. */
static void admit_whole(struct sim *w)
{
	admit_all(w->core);
	while (w->core->head->more)
		admit_rest(w->core);
}

/**
 * laws_no_forgotten_wait() - whoever could be admitted has been
 */
void laws_no_forgotten_wait(struct sim *w)
{
	u64 before[NR_CORE_EVENTS], after[NR_CORE_EVENTS];
	struct core_pool_view pool;
	u32 i;

	core_get_pool(w->core, &pool);
	if ((pool.committed && w->plan.nr_domains > 1) || pool.limbo)
		return;
	/*
	 * What is flagged is looked at with the next events: that is now.  A
	 * restore that evicts what it needs tries again, a block each time.
	 */
	w->core->now = w->now;
	for (i = 0; i < 64; i++)
		admit_whole(w);
	core_get_events(w->core, before);
	core_kick(w->core);
	admit_whole(w);
	core_get_events(w->core, after);
	/* A span that can be emptied for somebody is looked for now and then. */
	if (before[CORE_EV_migrate_begin] != after[CORE_EV_migrate_begin])
		return;
	LAW(w, before[CORE_EV_admit] == after[CORE_EV_admit] &&
	    before[CORE_EV_swap_restore] == after[CORE_EV_swap_restore],
	    "law 6: %llu sequences waited though they could go on, %llu of them swapped",
	    (unsigned long long)(after[CORE_EV_admit] -
				 before[CORE_EV_admit]),
	    (unsigned long long)(after[CORE_EV_swap_restore] -
				 before[CORE_EV_swap_restore]));
}
