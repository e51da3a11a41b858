// SPDX-License-Identifier: Apache-2.0
/*
 * deposit_old.c - clients of a daemon whose memory is of no use any more
 *
 * After a cold start they are to end, or to let go of the old memory.  They get
 * until their deadline; then who still maps an extent of another epoch is
 * killed, through the pidfd that kvmm-hold kept.  Where nobody can see who maps
 * what (kvmm_dev_ops.hides) they are killed only if the pool does not fit
 * beside them, and else forgotten.
 *
 * Context: control thread, deposit_wait_old() before there are others.
 */
#include <inttypes.h>
#include <stdio.h>

#include <kvmm/log.h>

#include "kvmm/ipc/daemon.h"

#define OLD_POLL_NS	(100 * NSEC_PER_MSEC)
#define OLD_KILL_NS	(2 * NSEC_PER_SEC)	/* for a killed one to go */

/*
 * Does the process map an extent that is not of this life?  What it mapped
 * before it executed another program is gone, and reads as nothing.
 */
static bool maps_old_extent(const struct daemon *d, FILE *f)
{
	char line[1024], ours[64];
	bool found = false;

	snprintf(ours, sizeof(ours), DEV_EXTENT_PREFIX "%" PRIx64 "-",
		 d->setup.epoch);
	/* What cannot be looked at is taken for the worst. */
	if (!f || d->setup.dev.ops->hides)
		return true;
	rewind(f);
	while (!found && fgets(line, sizeof(line), f))
		found = strstr(line, "/memfd:" DEV_EXTENT_PREFIX) &&
			!strstr(line, ours);
	return found;
}

/* The last one takes the place of @i, put before it is dropped as above. */
static void old_forget(struct daemon *d, u32 i)
{
	struct deposit *p = &d->deposit;

	close(p->old[i]);
	if (p->old_maps[i])
		fclose(p->old_maps[i]);
	p->nr_old--;
	if (i != p->nr_old) {
		p->old[i] = p->old[p->nr_old];
		p->old_maps[i] = p->old_maps[p->nr_old];
		deposit_put(d, HOLD_CLIENT, OLD_INDEX + i, p->old[i], 0);
	}
	deposit_drop(d, HOLD_CLIENT, OLD_INDEX + p->nr_old);
}

/*
 * Forget who has ended; with @look also who has let go, with @kill end the
 * others.
 */
static void old_sweep(struct daemon *d, bool look, bool kill)
{
	struct deposit *p = &d->deposit;
	u32 i = p->nr_old;

	while (i--) {
		if (pidfd_ended(p->old[i]) ||
		    (look && !maps_old_extent(d, p->old_maps[i]))) {
			old_forget(d, i);
			continue;
		}
		if (!kill)
			continue;
		pr_warn("pid %d, a client of the last daemon, still holds its memory: killed",
			(int)pidfd_pid(p->old[i]));
		(void)pidfd_kill(p->old[i]);
	}
}

/* Return: when to be called next, or UINT64_MAX. */
u64 deposit_timers(struct daemon *d, u64 now)
{
	struct deposit *p = &d->deposit;

	if (!p->nr_old)
		return UINT64_MAX;
	if (now < p->old_deadline) {
		old_sweep(d, false, false);
	} else if (d->setup.dev.ops->hides) {
		/* Their memory is beside the pool, which has room. */
		while (p->nr_old)
			old_forget(d, p->nr_old - 1);
	} else {
		old_sweep(d, true, true);
		p->old_deadline = now + OLD_KILL_NS;
	}
	return p->nr_old ? now + OLD_POLL_NS : UINT64_MAX;
}

/**
 * deposit_wait_old() - wait for the memory of the last daemon's clients
 *
 * They get until their deadline, then they are killed.
 *
 * Context: before threads exist; the only place that waits for a client.
 * Return: whether there were any.
 */
bool deposit_wait_old(struct daemon *d)
{
	struct deposit *p = &d->deposit;
	u64 end = p->old_deadline + OLD_KILL_NS;
	struct timespec ts = { .tv_nsec = OLD_POLL_NS };
	bool any = p->nr_old, killed = false;
	u64 now;

	if (any)
		pr_info("waiting for %u clients of the last daemon to let go of its memory",
			p->nr_old);
	while (p->nr_old && (now = clock_ns()) < end) {
		bool kill = now >= p->old_deadline && !killed;

		old_sweep(d, true, kill);
		killed |= kill;
		nanosleep(&ts, NULL);
	}
	return any;
}
