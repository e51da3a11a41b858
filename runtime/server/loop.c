// SPDX-License-Identifier: Apache-2.0
/*
 * loop.c - an HTTP thread: its event base, its mailbox, its connections
 *
 * The loop waits only for events: work is done elsewhere and comes back by
 * mail.  Several loops run beside each other.  An acceptor (accept.c) gives
 * them connections, which stay with their loop.  Of another loop a thread
 * touches only a few counters.
 *
 * A connection that ends in the middle of its own handlers is only marked and
 * put on a list; it is freed when the handlers have returned.
 */
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "runtime/server/internal.h"

/* ---- lists ---- */

void loop_link(struct loop *l, struct conn *c)
{
	c->prev = l->all.last;
	c->next = NULL;
	if (c->prev)
		c->prev->next = c;
	else
		l->all.first = c;
	l->all.last = c;
}

void loop_unlink(struct loop *l, struct conn *c)
{
	loop_idle(l, c, false);
	if (c->prev)
		c->prev->next = c->next;
	else
		l->all.first = c->next;
	if (c->next)
		c->next->prev = c->prev;
	else
		l->all.last = c->prev;
	__atomic_sub_fetch(&l->nr_conns, 1, __ATOMIC_RELAXED);
	c->next = l->dead.first;
	l->dead.first = c;
	event_active(l->ev_reap, 0, 0);
}

void loop_idle(struct loop *l, struct conn *c, bool idle)
{
	if (c->idle == idle)
		return;
	c->idle = idle;
	WRITE_ONCE(l->nr_idle, l->nr_idle + (idle ? 1 : UINT32_MAX));
	if (idle) {
		c->idle_prev = l->idle.last;
		c->idle_next = NULL;
		if (c->idle_prev)
			c->idle_prev->idle_next = c;
		else
			l->idle.first = c;
		l->idle.last = c;
		return;
	}
	if (c->idle_prev)
		c->idle_prev->idle_next = c->idle_next;
	else
		l->idle.first = c->idle_next;
	if (c->idle_next)
		c->idle_next->idle_prev = c->idle_prev;
	else
		l->idle.last = c->idle_prev;
}

static void on_reap(evutil_socket_t fd, short what, void *arg)
{
	struct loop *l = arg;
	struct conn *c;

	while ((c = l->dead.first)) {
		l->dead.first = c->next;
		conn_free(c);
	}
}

/* ---- from other threads ---- */

void loop_give(struct loop *l, int fd, const struct sockaddr *addr)
{
	struct conn *c = conn_new(l, fd, addr);

	if (!c) {
		close(fd);
		return;
	}
	__atomic_add_fetch(&l->nr_conns, 1, __ATOMIC_RELAXED);
	mailbox_post(&l->mail, &c->arrive);
}

static void on_evict(struct mail *m)
{
	struct loop *l = container_of(m, struct loop, to_evict);
	u32 n = __atomic_exchange_n(&l->evict, 0, __ATOMIC_RELAXED);

	for (; n && l->idle.first; n--) {
		tally(&l->stats.evicted, 1);
		conn_close(l->idle.first);
	}
}

void loop_evict(struct loop *l)
{
	__atomic_add_fetch(&l->evict, 1, __ATOMIC_RELAXED);
	mailbox_post(&l->mail, &l->to_evict);
}

static void close_idle(struct loop *l)
{
	l->draining = true;
	while (l->idle.first)
		conn_close(l->idle.first);
}

static void on_drain(struct mail *m)
{
	close_idle(container_of(m, struct loop, to_drain));
}

void loop_drain(struct loop *l)
{
	mailbox_post(&l->mail, &l->to_drain);
}

static void on_stop(struct mail *m)
{
	event_base_loopbreak(container_of(m, struct loop, to_stop)->base);
}

void loop_stop(struct loop *l)
{
	mailbox_post(&l->mail, &l->to_stop);
}

/* ---- the loop ---- */

static void on_mail(evutil_socket_t fd, short what, void *arg)
{
	struct loop *l = arg;

	mailbox_hush(&l->mail);
	mailbox_deliver(&l->mail);
}

int loop_create(struct loop *l, const struct loop_ops *ops,
		const struct conn_limits *limits, struct loop_crowd *crowd,
		void *arg)
{
	int err;

	memset(l, 0, sizeof(*l));
	l->ops = ops;
	l->limits = limits;
	l->crowd = crowd;
	l->arg = arg;
	l->to_evict.fn = on_evict;
	l->to_drain.fn = on_drain;
	l->to_stop.fn = on_stop;
	if (getrandom(&l->ids, sizeof(l->ids), 0) != sizeof(l->ids))
		l->ids = (u64)(uintptr_t)l ^ (u64)time(NULL) << 32;
	err = mailbox_init(&l->mail);
	if (err)
		return err;
	l->base = event_base_new();
	if (!l->base)
		return -ENOMEM;
	l->ev_mail = event_new(l->base, l->mail.efd, EV_READ | EV_PERSIST,
			       on_mail, l);
	l->ev_reap = event_new(l->base, -1, 0, on_reap, l);
	if (!l->ev_mail || !l->ev_reap || event_add(l->ev_mail, NULL))
		return -ENOMEM;
	return 0;
}

static void event_drop(struct event *ev)
{
	if (ev)
		event_free(ev);
}

void loop_destroy(struct loop *l)
{
	if (l->base) {
		close_idle(l);
		mailbox_deliver(&l->mail);
		while (l->all.first)
			conn_kill(l->all.first);
		on_reap(-1, 0, l);
	}
	event_drop(l->ev_mail);
	event_drop(l->ev_reap);
	if (l->base)
		event_base_free(l->base);
	mailbox_destroy(&l->mail);
	text_free(&l->scratch);
}

void loop_run(struct loop *l)
{
	event_base_dispatch(l->base);
}
