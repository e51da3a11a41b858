// SPDX-License-Identifier: Apache-2.0
/*
 * wake.c - no waiting sequence is forgotten
 *
 * The core looks at a domain's waiting sequences again after a change that could
 * help them, and notes that in a flag.  If the core forgets to set the flag, a
 * sequence waits until another change sets it: soon under load, never in an idle
 * node.  So now and then this file sets all flags from outside, and no sequence
 * may go on because of it.
 *
 * Two kinds of moments are left out.  While memory is promised the core chooses
 * spans of other domains greedily, so that using one block can make room for
 * more.  While copies are under way sequences count on their blocks and look
 * again at their end; a grant that took such a block meanwhile may make an
 * extent worth taking instead.
 *
 * Only this file and move.c of the simulator use the core's internals.
 */
#include "kvmm/core/node/node.h"
#include "tests/sim/sim.h"

/* Admit all that fit at once, with no limit of work. */
static void admit_whole(struct sim *w)
{
	admit_all(w->core);
	while (w->core->head->more)
		admit_rest(w->core);
}

/**
 * laws_no_forgotten_wait() - each sequence that fits has been admitted
 */
void laws_no_forgotten_wait(struct sim *w)
{
	u64 before[NR_CORE_EVENTS], after[NR_CORE_EVENTS];
	struct core_pool_view pool;
	bool changed = true;
	u32 i;

	core_get_pool(w->core, &pool);
	if ((pool.committed && w->plan.nr_domains > 1) || pool.limbo)
		return;
	/*
	 * The next events look at flagged domains: do that now.  A restore that
	 * evicts blocks it needs tries again, a block each time.
	 */
	w->core->now = w->now;
	core_get_events(w->core, before);
	for (i = 0; i < 64 || (changed && i < 2048); i++) {
		admit_whole(w);
		core_get_events(w->core, after);
		changed = memcmp(before, after, sizeof(after));
		memcpy(before, after, sizeof(after));
	}
	core_kick(w->core);
	admit_whole(w);
	core_get_events(w->core, after);
	/* The core looks for a span to empty only now and then. */
	if (before[CORE_EV_migrate_begin] != after[CORE_EV_migrate_begin])
		return;
	/*
	 * A tenant keeps an extent for its own waiter, or because it has it for a short
	 * time.  Only the tick looks whether that time is over (revoke.c).
	 */
	if (before[CORE_EV_extent_revoke] != after[CORE_EV_extent_revoke])
		return;
	LAW(w, before[CORE_EV_admit] == after[CORE_EV_admit] &&
	    before[CORE_EV_swap_restore] == after[CORE_EV_swap_restore],
	    "law 6: %llu sequences waited though they could go on, %llu of them swapped",
	    (unsigned long long)(after[CORE_EV_admit] -
				 before[CORE_EV_admit]),
	    (unsigned long long)(after[CORE_EV_swap_restore] -
				 before[CORE_EV_swap_restore]));
}
