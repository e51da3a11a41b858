// SPDX-License-Identifier: Apache-2.0
/*
 * loop.c - an HTTP thread: its event base, its mailbox, its connections
 *
 * The loop never waits for anything but events: work is done elsewhere and
 * comes back by mail.  Several loops can run beside each other, each with a
 * listening socket of its own on one port; they share nothing.
 *
 * Room is limited.  A connection too many takes the place of the one that has
 * been idle longest, since an idle client loses nothing but a handshake; when
 * none is idle the newcomer is told to come back.  When descriptors run out,
 * accepting pauses.
 *
 * A connection that ends in the middle of its own handlers is only marked and
 * put aside; it is freed when they have returned.
 */
#include <event2/listener.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/server/internal.h"

#define ACCEPT_PAUSE_US	100000

#define TOO_MANY_BODY							\
	"{\"error\":{\"message\":\"too many connections: try again in a moment\"," \
	"\"type\":\"service_unavailable\",\"param\":null,\"code\":\"overloaded\"}}\n"

static const char too_many[] =
	"HTTP/1.1 503 Service Unavailable\r\n"
	"Content-Type: application/json\r\n"
	"Retry-After: 1\r\n"
	"Connection: close\r\n"
	"Content-Length: 130\r\n\r\n"
	TOO_MANY_BODY;

static_assert(sizeof(TOO_MANY_BODY) - 1 == 130, "Content-Length");

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
	l->nr_conns++;
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
	l->nr_conns--;
	c->next = l->dead.first;
	l->dead.first = c;
	event_active(l->ev_reap, 0, 0);
}

void loop_idle(struct loop *l, struct conn *c, bool idle)
{
	if (c->idle == idle)
		return;
	c->idle = idle;
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

/* ---- accepting ---- */

static bool evict(struct loop *l)
{
	if (!l->idle.first)
		return false;
	l->stats.evicted++;
	conn_close(l->idle.first);
	return true;
}

static void turn_away(int fd)
{
	/* A client that does not read it is in no hurry. */
	if (send(fd, too_many, sizeof(too_many) - 1,
		 MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
		shutdown(fd, SHUT_WR);
	close(fd);
}

static void on_accept(struct evconnlistener *ev, evutil_socket_t fd,
		      struct sockaddr *addr, int len, void *arg)
{
	struct loop *l = arg;
	const int on = 1;

	l->stats.accepted++;
	if (l->nr_conns >= l->limits->connections && !evict(l)) {
		l->status[5]++;
		turn_away(fd);
		return;
	}
	/* A token is sent when it is there; a peer that lost power is missed. */
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	conn_open(l, fd);
}

static void on_accept_error(struct evconnlistener *ev, void *arg)
{
	const struct timeval pause = { 0, ACCEPT_PAUSE_US };
	struct loop *l = arg;

	evict(l);
	evconnlistener_disable(ev);
	event_add(l->ev_accept, &pause);
}

static void on_accept_again(evutil_socket_t fd, short what, void *arg)
{
	struct loop *l = arg;

	if (l->listener)
		evconnlistener_enable(l->listener);
}

int loop_listen(struct loop *l, int fd)
{
	l->listener = evconnlistener_new(l->base, on_accept, l,
					 LEV_OPT_CLOSE_ON_FREE |
					 LEV_OPT_CLOSE_ON_EXEC, 0, fd);
	if (!l->listener)
		return -ENOMEM;
	evconnlistener_set_error_cb(l->listener, on_accept_error);
	return 0;
}

void loop_drain(struct loop *l)
{
	l->draining = true;
	if (l->listener)
		evconnlistener_free(l->listener);
	l->listener = NULL;
	while (l->idle.first)
		conn_close(l->idle.first);
}

u32 loop_busy(const struct loop *l)
{
	const struct conn *c;
	u32 nr = 0;

	for (c = l->all.first; c; c = c->next)
		nr += c->state == CONN_BUSY || c->state == CONN_FLUSH;
	return nr;
}

/* ---- the loop ---- */

static void on_mail(evutil_socket_t fd, short what, void *arg)
{
	struct loop *l = arg;

	mailbox_hush(&l->mail);
	mailbox_deliver(&l->mail);
}

int loop_create(struct loop *l, const struct loop_ops *ops,
		const struct conn_limits *limits, void *arg)
{
	int err;

	memset(l, 0, sizeof(*l));
	l->ops = ops;
	l->limits = limits;
	l->arg = arg;
	err = mailbox_init(&l->mail);
	if (err)
		return err;
	l->base = event_base_new();
	if (!l->base)
		return -ENOMEM;
	l->ev_mail = event_new(l->base, l->mail.efd, EV_READ | EV_PERSIST,
			       on_mail, l);
	l->ev_reap = event_new(l->base, -1, 0, on_reap, l);
	l->ev_accept = event_new(l->base, -1, 0, on_accept_again, l);
	if (!l->ev_mail || !l->ev_reap || !l->ev_accept ||
	    event_add(l->ev_mail, NULL))
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
		loop_drain(l);
		while (l->all.first)
			conn_kill(l->all.first);
		on_reap(-1, 0, l);
	}
	event_drop(l->ev_mail);
	event_drop(l->ev_reap);
	event_drop(l->ev_accept);
	if (l->base)
		event_base_free(l->base);
	mailbox_destroy(&l->mail);
	text_free(&l->scratch);
}

void loop_run(struct loop *l)
{
	event_base_dispatch(l->base);
}

void loop_stop(struct loop *l)
{
	event_base_loopbreak(l->base);
}
