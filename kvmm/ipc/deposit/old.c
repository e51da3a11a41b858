// SPDX-License-Identifier: Apache-2.0
/*
 * old.c - clients of a last daemon whose memory is not adopted
 *
 * After a cold start these clients are to end, or to let go of the old memory.
 * They have until a deadline; then a client that still maps an extent of
 * another epoch is killed, through the pidfd that kvmm-hold kept.  Where the
 * maps of a process do not show its extents (kvmm_dev_ops.hides), the clients
 * are killed only if the new pool does not fit beside the old one, and else
 * forgotten.
 *
 * The maps of each are opened at start: later the daemon lacks the rights, and
 * /proc/PID/maps is checked at open alone.
 *
 * Context: control thread; deposit_wait_old() before threads exist.
 */
#include <inttypes.h>
#include <stdio.h>

#include <kvmm/log.h>

#include "kvmm/ipc/deposit/deposit.h"

#define OLD_POLL_NS	(100 * NSEC_PER_MSEC)
#define OLD_KILL_NS	(2 * NSEC_PER_SEC)	/* from SIGKILL to the end */

/*
 * Does no other record name the process?  A process that outlived two daemons
 * has a record of each; one that has ended needs none.
 */
static bool old_is_new(const struct deposit *p, int pidfd)
{
	pid_t pid = pidfd_pid(pidfd);
	u32 i;

	for (i = 0; i < p->nr_old && pid > 0; i++)
		if (pidfd_pid(p->old[i]) == pid)
			return false;
	return !pidfd_ended(pidfd);
}

/* The process lives after the open, so its number was not another's. */
static FILE *old_maps_open(int pidfd)
{
	char path[64];
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/maps", (int)pidfd_pid(pidfd));
	f = fopen(path, "re");
	if (f && pidfd_ended(pidfd)) {
		fclose(f);
		f = NULL;
	}
	return f;
}

/* old_add() - watch one more process; @pidfd is taken over */
void old_add(struct deposit *p, int pidfd)
{
	if (p->nr_old == ARRAY_SIZE(p->old) || !old_is_new(p, pidfd)) {
		close(pidfd);
		return;
	}
	p->old_maps[p->nr_old] = old_maps_open(pidfd);
	p->old[p->nr_old++] = pidfd;
}

/**
 * old_move() - move the records of old clients behind those of new ones
 * @first: drop other records of clients from this index on
 *
 * Records are put before others are dropped, since this daemon may die here.
 */
void old_move(struct deposit *p, u32 first)
{
	u32 i;

	for (i = 0; i < p->nr_old; i++)
		deposit_put(p, HOLD_CLIENT, OLD_INDEX + i, p->old[i], 0);
	for (i = first; i < p->nr_kept; i++)
		if (i < OLD_INDEX || i >= OLD_INDEX + p->nr_old)
			deposit_drop(p, HOLD_CLIENT, i);
	p->old_deadline = kv_now_ns() +
			  p->setup->opt.quiet_deadline_ms * NSEC_PER_MSEC;
}

/*
 * Does the process map an extent of another epoch?  After it executed another
 * program its old maps read as nothing.
 */
static bool maps_old_extent(const struct deposit *p, FILE *f)
{
	char line[1024], ours[64];
	bool found = false;

	snprintf(ours, sizeof(ours), DEV_EXTENT_PREFIX "%" PRIx64 "-",
		 p->setup->epoch);
	/* Unreadable maps count as maps of an old extent. */
	if (!f || p->setup->dev.ops->hides)
		return true;
	rewind(f);
	while (!found && fgets(line, sizeof(line), f))
		found = strstr(line, "/memfd:" DEV_EXTENT_PREFIX) &&
			!strstr(line, ours);
	return found;
}

/* The last client takes place @i; it is put there before it is dropped. */
static void old_forget(struct deposit *p, u32 i)
{
	close(p->old[i]);
	if (p->old_maps[i])
		fclose(p->old_maps[i]);
	p->nr_old--;
	if (i != p->nr_old) {
		p->old[i] = p->old[p->nr_old];
		p->old_maps[i] = p->old_maps[p->nr_old];
		deposit_put(p, HOLD_CLIENT, OLD_INDEX + i, p->old[i], 0);
	}
	deposit_drop(p, HOLD_CLIENT, OLD_INDEX + p->nr_old);
}

/*
 * Forget each process that has ended; with @look also each that maps no old
 * extent; with @kill end the others.
 */
static void old_sweep(struct deposit *p, bool look, bool kill)
{
	u32 i = p->nr_old;

	while (i--) {
		if (pidfd_ended(p->old[i]) ||
		    (look && !maps_old_extent(p, p->old_maps[i]))) {
			old_forget(p, i);
			continue;
		}
		if (!kill)
			continue;
		pr_warn("pid %d, a client of the last daemon, still holds its memory: killed",
			(int)pidfd_pid(p->old[i]));
		(void)pidfd_kill(p->old[i]);
	}
}

/* deposit_timers() - return: when to be called next, or UINT64_MAX */
u64 deposit_timers(struct deposit *p, u64 now)
{
	if (!p->nr_old)
		return UINT64_MAX;
	if (now < p->old_deadline) {
		old_sweep(p, false, false);
	} else if (p->setup->dev.ops->hides) {
		/* Their memory lies beside the pool, which had room. */
		while (p->nr_old)
			old_forget(p, p->nr_old - 1);
	} else {
		old_sweep(p, true, true);
		p->old_deadline = now + OLD_KILL_NS;
	}
	return p->nr_old ? now + OLD_POLL_NS : UINT64_MAX;
}

/**
 * deposit_wait_old() - wait until the old clients have let go of their memory
 *
 * After their deadline they are killed.
 *
 * Context: before threads exist; the only place that waits for a client.
 * Return: whether there were any.
 */
bool deposit_wait_old(struct deposit *p)
{
	u64 end = p->old_deadline + OLD_KILL_NS;
	struct timespec ts = { .tv_nsec = OLD_POLL_NS };
	bool any = p->nr_old, killed = false;
	u64 now;

	if (any)
		pr_info("waiting for %u clients of the last daemon to let go of its memory",
			p->nr_old);
	while (p->nr_old && (now = kv_now_ns()) < end) {
		bool kill = now >= p->old_deadline && !killed;

		old_sweep(p, true, kill);
		killed |= kill;
		nanosleep(&ts, NULL);
	}
	return any;
}
