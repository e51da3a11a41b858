// SPDX-License-Identifier: Apache-2.0
/*
 * time.c - what happens to swap areas after a while
 *
 * An area that drains is looked at again and again, less and less often; that
 * goes on when its operator has hung up.  Content that was not moved elsewhere
 * in time is given up: a request that needs it computes it again.  An operator
 * that waits is told how far it is, and when it takes too long.  The log says
 * when swapd does not answer, and when the file of an area was deleted.
 *
 * Context: control thread.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <kvmm/fault.h>
#include <kvmm/log.h>

#include "kvmm/ipc/swap/swap.h"

#define ANSWER_NS	(60 * NSEC_PER_SEC)	/* more, to judge a file */
#define DRAIN_MAX_NS	(500 * NSEC_PER_MSEC)
#define LOOK_NS		NSEC_PER_SEC	/* between two looks at the names of files */
#define GIVEN_UP_NS	(2 * NSEC_PER_SEC)	/* then, for transfers under way */

/* area_tell_stalls() - log when requests to an area are overdue, and when none is */
void area_tell_stalls(struct swap_link *l)
{
	u32 stalled = READ_ONCE(l->swap->stalled), i;

	for (i = 0; i < CORE_MAX_AREAS; i++) {
		struct swap_area *a = &l->area[i];
		bool now = (a->state == AREA_LIVE ||
			    a->state == AREA_DRAINING) &&
			   (stalled & BIT(a->core));

		if (now == a->stalled)
			continue;
		a->stalled = now;
		if (now)
			pr_warn("swap area %s has not answered for %u ms (--swap-deadline-ms): who waits for it is computed again, it gets nothing new: look at its disk and at swapd %d",
				a->path, l->setup->opt.swap_deadline_ms,
				(int)l->pid);
		else
			pr_info("swap area %s answers again", a->path);
	}
}

/* Tell the operator how far it is. */
static void area_tell_left(struct swap_area *a, u64 left, u64 now)
{
	const u64 gone = a->left > left ? a->left - left : 0;
	char text[ADMIN_TEXT], size[32], rate[32];

	kv_format_size(left >> 10 << 10, size, sizeof(size));
	/* No overflow, also when a terabyte is given up at once. */
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

/* It takes too long: the rest of the content is computed again when needed. */
static void area_give_up_rest(struct swap_link *l, struct swap_area *a, u64 left)
{
	char size[32];

	a->given_up = true;
	a->until += GIVEN_UP_NS;
	area_forget(l, a);
	kv_format_size(left >> 10 << 10, size, sizeof(size));
	pr_warn("swap area %s is to go: %s were not moved elsewhere in time: who needs them computes them again",
		a->path, size);
}

/* Is there anything left in it? */
static void area_drain(struct swap_link *l, struct swap_area *a, u64 now)
{
	char size[32];
	u64 left = 0;

	if (!area_empty(l, a, &left)) {
		area_remove(l, a);
		return;
	}
	if (now >= a->until && !a->given_up)
		area_give_up_rest(l, a, left);
	else if (a->waiter && now >= a->until)
		area_tell(l, a, -EBUSY,
			  "%s: %s of it are still in use by requests that its disk does not answer: takes nothing new, and goes when it does",
			  a->path,
			  kv_format_size(left, size, sizeof(size)));
	else if (a->waiter && now >= a->tell)
		area_tell_left(a, left, now);
}

/* swapd was told to close it and has not answered: it may wait for its disk. */
static void area_going(struct swap_link *l, struct swap_area *a, u64 now)
{
	char text[ADMIN_TEXT];

	if (!a->waiter)
		return;
	if (now >= a->until) {
		area_tell(l, a, -EBUSY,
			  "%s: swapd does not answer: the area goes when it does",
			  a->path);
	} else if (now >= a->tell) {
		a->tell = now + AREA_TELL_NS;
		snprintf(text, sizeof(text), "%s: swapd lets go of it", a->path);
		admin_progress(a->waiter, text);
	}
}

/*
 * swapd has the area and does not judge it.  The operator waits no more, so
 * swapd is to close it even if it accepts the area later.
 */
static void area_give_up(struct swap_link *l, struct swap_area *a)
{
	area_tell(l, a, -ETIMEDOUT,
		  "%s: swapd has not answered for %llu s: look at its disk and at swapd %d, and try again",
		  a->path, (unsigned long long)((AREA_JOIN_NS + ANSWER_NS) /
						NSEC_PER_SEC),
		  (int)l->pid);
	area_remove(l, a);
}

/*
 * There is no swapd yet.  Only an operator is told that it takes too long.  An
 * area of the last daemon waits: its swapd may wait for a disk, and the next
 * one comes when that is over.
 */
static void area_await_swapd(struct swap_link *l, struct swap_area *a, u64 now)
{
	if (now < a->until && !kv_fault(KV_FAULT_swapd_late))
		return;
	if (a->waiter) {
		area_tell(l, a, -ETIMEDOUT,
			  "%s: swapd does not come: see the log", a->path);
		area_free(l, a);
	} else if (!a->late) {
		a->late = true;
		pr_warn("swap area %s waits for a swapd: the last one may wait for its disk",
			a->path);
	}
}

static void area_wait(struct swap_link *l, struct swap_area *a, u64 now)
{
	char text[ADMIN_TEXT];

	if (!a->known) {
		area_await_swapd(l, a, now);
	} else if (a->waiter && now >= a->until + ANSWER_NS) {
		area_give_up(l, a);
	} else if (a->waiter && now >= a->tell) {
		a->tell = now + AREA_TELL_NS;
		snprintf(text, sizeof(text), "%s: swapd looks at it", a->path);
		admin_progress(a->waiter, text);
	}
}

/*
 * A deleted file is used on until swapoff, but the next start does not find it.  The
 * call does not ask the server of a file, which may hang.
 */
static void area_look(struct swap_area *a)
{
	struct statx st;

	if (a->device || a->deleted ||
	    statx(a->fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_NLINK, &st) ||
	    !(st.stx_mask & STATX_NLINK) || st.stx_nlink)
		return;
	a->deleted = true;
	pr_warn("the file of swap area %s was deleted: it is used until swapoff, and a restart does not find it: kvctl swapoff it, then swapon another one",
		a->path);
}

static void area_look_all(struct swap_link *l)
{
	u32 i;

	for (i = 0; i < CORE_MAX_AREAS; i++)
		if (l->area[i].state == AREA_LIVE ||
		    l->area[i].state == AREA_DRAINING)
			area_look(&l->area[i]);
}

/* area_timers() - return: when to be called next, or UINT64_MAX */
u64 area_timers(struct swap_link *l, u64 now)
{
	u64 next = UINT64_MAX;
	bool drain = false;
	u32 i;

	/* The watchdog of the control thread calls once a second at least. */
	if (now >= l->look_next) {
		l->look_next = now + LOOK_NS;
		area_look_all(l);
	}
	for (i = 0; i < CORE_MAX_AREAS; i++) {
		struct swap_area *a = &l->area[i];

		if (a->state == AREA_ADDING) {
			area_wait(l, a, now);
			next = min(next, now + AREA_TELL_NS);
		} else if (a->state == AREA_REMOVING) {
			area_going(l, a, now);
			next = min(next, now + AREA_TELL_NS);
		} else if (a->state == AREA_DRAINING) {
			if (now >= l->drain_next)
				area_drain(l, a, now);
			drain |= a->state == AREA_DRAINING;
		}
	}
	if (!drain)
		return next;
	if (now >= l->drain_next) {
		/* Each look visits every entry: look less and less often. */
		l->drain_next = now + l->drain_pause;
		l->drain_pause = min(2 * l->drain_pause, DRAIN_MAX_NS);
	}
	return min(next, l->drain_next);
}

/* area_exit_all() - the end of the daemon; the mm thread has ended */
void area_exit_all(struct swap_link *l)
{
	u32 i;

	for (i = 0; i < CORE_MAX_AREAS; i++) {
		struct swap_area *a = &l->area[i];

		if (a->state == AREA_FREE)
			continue;
		/* Without a transfer under way another daemon may lock it at once. */
		if (!l->swap->nr_open)
			flock(a->fd, LOCK_UN);
		close(a->fd);
		memset(a, 0, sizeof(*a));
	}
}
