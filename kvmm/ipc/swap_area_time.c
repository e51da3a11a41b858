// SPDX-License-Identifier: Apache-2.0
/*
 * swap_area_time.c - swap areas: what happens after a while
 *
 * Areas that drain are looked at again and again, less and less often; that
 * goes on when nobody waits for it any more.  What has not been moved elsewhere
 * in time is given up: who needs it computes it again.  Who waits for anything
 * is told how far it is, and when it takes too long.  Who does not hear from swapd is
 * told by the log.  Then the end of the daemon, and what operators read.
 *
 * Context: control thread.
 */
#include <sys/file.h>

#include <kvmm/fault.h>
#include <kvmm/log.h>

#include "kvmm/ipc/admin.h"
#include "kvmm/ipc/daemon.h"

#define ANSWER_NS	(60 * NSEC_PER_SEC)	/* more, to judge a file */
#define DRAIN_MAX_NS	(500 * NSEC_PER_MSEC)
#define GIVEN_UP_NS	(2 * NSEC_PER_SEC)	/* then, for what is under way */

/* One line when requests to an area are overdue, one when none is any more. */
void area_tell_stalls(struct daemon *d)
{
	u32 stalled = READ_ONCE(d->swap.stalled), i;

	for (i = 0; i < CORE_MAX_AREAS; i++) {
		struct swap_area *a = &d->link.area[i];
		bool now = (a->state == AREA_LIVE ||
			    a->state == AREA_DRAINING) &&
			   (stalled & BIT(a->core));

		if (now == a->stalled)
			continue;
		a->stalled = now;
		if (now)
			pr_warn("swap area %s has not answered for %u ms (--swap-deadline-ms): who waits for it is computed again, it gets nothing new: look at its disk and at swapd %d",
				a->path, d->setup.opt.swap_deadline_ms,
				(int)d->link.pid);
		else
			pr_info("swap area %s answers again", a->path);
	}
}

/* How far it is, for who waits. */
static void area_tell_left(struct swap_area *a, u64 left, u64 now)
{
	const u64 gone = a->left > left ? a->left - left : 0;
	char text[ADMIN_TEXT], size[32], rate[32];

	kv_format_size(left >> 10 << 10, size, sizeof(size));
	/* Of a terabyte that is given up at once too. */
	kv_format_size((gone >> 10) * NSEC_PER_SEC / (now - a->told) << 10,
		       rate, sizeof(rate));
	snprintf(text, sizeof(text), a->stalled ?
		 "%s: %s are left: its disk does not answer (%s/s)" :
		 "%s: %s are left to be moved, %s/s", a->path, size, rate);
	a->left = left;
	a->told = now;
	a->tell = now + AREA_TELL_NS;
	admin_progress(a->waiter, text);
}

/* It takes too long: what is not moved by now is computed again. */
static void area_give_up_rest(struct daemon *d, struct swap_area *a, u64 left)
{
	char size[32];

	a->given_up = true;
	a->until += GIVEN_UP_NS;
	area_forget(d, a);
	kv_format_size(left >> 10 << 10, size, sizeof(size));
	pr_warn("swap area %s is to go: %s were not moved elsewhere in time: who needs them computes them again",
		a->path, size);
}

/* Is there anything left in it? */
static void area_drain(struct daemon *d, struct swap_area *a, u64 now)
{
	char size[32];
	u64 left = 0;

	if (!area_empty(d, a, &left)) {
		area_remove(d, a);
		return;
	}
	if (now >= a->until && !a->given_up)
		area_give_up_rest(d, a, left);
	else if (a->waiter && now >= a->until)
		area_tell(d, a, -EBUSY,
			  "%s: %s of it are still in use by requests that its disk does not answer: takes nothing new, and goes when it does",
			  a->path,
			  kv_format_size(left, size, sizeof(size)));
	else if (a->waiter && now >= a->tell)
		area_tell_left(a, left, now);
}

/* swapd was told to let go of it and says nothing: it may wait for its disk. */
static void area_going(struct daemon *d, struct swap_area *a, u64 now)
{
	char text[ADMIN_TEXT];

	if (!a->waiter)
		return;
	if (now >= a->until) {
		area_tell(d, a, -EBUSY,
			  "%s: swapd does not answer: the area goes when it does",
			  a->path);
	} else if (now >= a->tell) {
		a->tell = now + AREA_TELL_NS;
		snprintf(text, sizeof(text), "%s: swapd lets go of it", a->path);
		admin_progress(a->waiter, text);
	}
}

/*
 * swapd has it, and does not say whether it is one.  Whatever it says later,
 * it is to let go of it: who asked does not wait any more.
 */
static void area_give_up(struct daemon *d, struct swap_area *a)
{
	area_tell(d, a, -ETIMEDOUT,
		  "%s: swapd has not answered for %llu s: look at its disk and at swapd %d, and try again",
		  a->path, (unsigned long long)((AREA_JOIN_NS + ANSWER_NS) /
						NSEC_PER_SEC),
		  (int)d->link.pid);
	area_remove(d, a);
}

/*
 * There is no swapd yet.  Only an operator is told that it takes too long: an
 * area of the last daemon waits, since its swapd may wait for a disk, and the
 * next one comes when that is over.
 */
static void area_await_swapd(struct daemon *d, struct swap_area *a, u64 now)
{
	if (now < a->until && !kv_fault(KV_FAULT_swapd_late))
		return;
	if (a->waiter) {
		area_tell(d, a, -ETIMEDOUT,
			  "%s: swapd does not come: see the log", a->path);
		area_free(d, a);
	} else if (!a->late) {
		a->late = true;
		pr_warn("swap area %s waits for a swapd: the last one may wait for its disk",
			a->path);
	}
}

static void area_wait(struct daemon *d, struct swap_area *a, u64 now)
{
	char text[ADMIN_TEXT];

	if (!a->known) {
		area_await_swapd(d, a, now);
	} else if (a->waiter && now >= a->until + ANSWER_NS) {
		area_give_up(d, a);
	} else if (a->waiter && now >= a->tell) {
		a->tell = now + AREA_TELL_NS;
		snprintf(text, sizeof(text), "%s: swapd looks at it", a->path);
		admin_progress(a->waiter, text);
	}
}

/* Return: when to be called next, or UINT64_MAX. */
u64 area_timers(struct daemon *d, u64 now)
{
	u64 next = UINT64_MAX;
	bool drain = false;
	u32 i;

	for (i = 0; i < CORE_MAX_AREAS; i++) {
		struct swap_area *a = &d->link.area[i];

		if (a->state == AREA_ADDING) {
			area_wait(d, a, now);
			next = min(next, now + AREA_TELL_NS);
		} else if (a->state == AREA_REMOVING) {
			area_going(d, a, now);
			next = min(next, now + AREA_TELL_NS);
		} else if (a->state == AREA_DRAINING) {
			if (now >= d->drain_next)
				area_drain(d, a, now);
			drain |= a->state == AREA_DRAINING;
		}
	}
	if (!drain)
		return next;
	if (now >= d->drain_next) {
		/* Each look visits every entry: look less and less often. */
		d->drain_next = now + d->drain_pause;
		d->drain_pause = min(2 * d->drain_pause, DRAIN_MAX_NS);
	}
	return min(next, d->drain_next);
}

/* Its connection is closing. */
void area_forget_waiter(struct daemon *d, const struct admin *adm)
{
	u32 i;

	for (i = 0; i < CORE_MAX_AREAS; i++)
		if (d->link.area[i].waiter == adm)
			d->link.area[i].waiter = NULL;
}

/* The end of the daemon; the mm thread has ended. */
void area_exit_all(struct daemon *d)
{
	u32 i;

	for (i = 0; i < CORE_MAX_AREAS; i++) {
		struct swap_area *a = &d->link.area[i];

		if (a->state == AREA_FREE)
			continue;
		/* Another daemon may have it at once if nothing is under way. */
		if (!d->swap.nr_open)
			flock(a->fd, LOCK_UN);
		close(a->fd);
		memset(a, 0, sizeof(*a));
	}
}

/* ---- for the operator's files ---- */

/* proc_source.swap_area: who is area @i of the core? */
int area_get_info(void *arg, u32 i, struct proc_swap_area *info)
{
	const struct daemon *d = arg;
	u32 n;

	for (n = 0; n < CORE_MAX_AREAS; n++) {
		const struct swap_area *a = &d->link.area[n];

		if ((a->state != AREA_LIVE && a->state != AREA_DRAINING) ||
		    a->core != i)
			continue;
		info->path = a->path;
		info->device = a->device;
		info->lost = a->lost || a->failed;
		info->index = n;
		return 0;
	}
	return -ENOENT;
}
