// SPDX-License-Identifier: Apache-2.0
/*
 * loop.c - one epoll, and a function for each descriptor in it
 *
 * A watch may be removed while an event for it is in the batch of the current
 * round.  Its fn is NULL then and the event is dropped, so the owner frees the
 * memory of a watch only after the round.
 *
 * Context: control thread.
 */
#include <sys/epoll.h>

#include <kvmm/log.h>

#include "kvmm/ipc/base/base.h"

#define LOOP_EVENTS	64	/* in one round */

int watch_add(struct loop *l, struct watch *w, u32 events)
{
	struct epoll_event ev = { .events = events, .data.ptr = w };

	return epoll_ctl(l->epoll, EPOLL_CTL_ADD, w->fd, &ev) ? -errno : 0;
}

void watch_events(struct loop *l, struct watch *w, u32 events)
{
	struct epoll_event ev = { .events = events, .data.ptr = w };

	if (w->fd >= 0 && epoll_ctl(l->epoll, EPOLL_CTL_MOD, w->fd, &ev))
		pr_warn("a connection cannot be watched: %s", strerror(errno));
}

/* watch_remove() - deliver no event of @w any more; it stays open */
void watch_remove(struct loop *l, struct watch *w)
{
	w->fn = NULL;
	/* hold may have a duplicate, so closing would not remove it. */
	if (w->fd >= 0)
		epoll_ctl(l->epoll, EPOLL_CTL_DEL, w->fd, NULL);
}

void watch_close(struct loop *l, struct watch *w)
{
	watch_remove(l, w);
	if (w->fd >= 0)
		close(w->fd);
	w->fd = -1;
}

int loop_init(struct loop *l)
{
	l->epoll = epoll_create1(EPOLL_CLOEXEC);
	return l->epoll < 0 ? -errno : 0;
}

/**
 * loop_wait() - wait for events and deliver them: one round
 * @ms: at most so long
 * Return: 0 or a negative errno.
 */
int loop_wait(struct loop *l, int ms)
{
	struct epoll_event ev[LOOP_EVENTS];
	int i, n = epoll_wait(l->epoll, ev, LOOP_EVENTS, ms);

	if (n < 0 && errno != EINTR)
		return -errno;
	for (i = 0; i < n; i++) {
		struct watch *w = ev[i].data.ptr;

		if (w->fn)
			w->fn(w->arg, w, ev[i].events);
	}
	return 0;
}

void loop_exit(struct loop *l)
{
	if (l->epoll >= 0)
		close(l->epoll);
	l->epoll = -1;
}
