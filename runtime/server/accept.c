// SPDX-License-Identifier: Apache-2.0
/*
 * accept.c - accept connections and choose their loops
 *
 * One thread accepts for all loops and gives each connection to the loop that
 * has the fewest.  One socket a loop on the same port (SO_REUSEPORT) would save
 * a hand-over for each connection, but has four faults.  The kernel spreads by
 * a hash, so that with some dozen long streams one loop gets twice as many as
 * another.  A second server on the port would not be refused, but silently get
 * every other client.  A Unix socket cannot do it.  Totals of all loops would
 * have to be checked in many places.
 *
 * Room is limited.  When there are too many connections, the new one replaces
 * one that has been idle long, since an idle client loses nothing but a
 * handshake.  When none is idle the new client is told to come back.  When
 * descriptors run out, accepting pauses.
 *
 * Counters of other loops may be slightly out of date.  If a connection was
 * accepted without room, the next one is refused or evicts another.
 */
#include <event2/event.h>
#include <event2/listener.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "runtime/server/accept.h"

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

/* Connections of a loop, without those that it is asked to close. */
static s64 loop_load(const struct loop *l)
{
	return (s64)READ_ONCE(l->nr_conns) - READ_ONCE(l->evict);
}

static bool is_full(const struct acceptor *a)
{
	s64 sum = 0;
	u32 i;

	for (i = 0; i < a->nr; i++)
		sum += loop_load(a->loops[i]);
	return sum >= a->loops[0]->limits->connections;
}

/* Ask the loop with the most idle connections to close one. */
static bool evict(struct acceptor *a)
{
	struct loop *best = NULL;
	s64 most = 0;
	u32 i;

	for (i = 0; i < a->nr; i++) {
		struct loop *l = a->loops[i];
		s64 idle = (s64)READ_ONCE(l->nr_idle) - READ_ONCE(l->evict);

		if (idle > most) {
			most = idle;
			best = l;
		}
	}
	if (best)
		loop_evict(best);
	return best != NULL;
}

static struct loop *emptiest(struct acceptor *a)
{
	u32 i, at, best = a->next;

	for (i = 1; i < a->nr; i++) {
		at = (a->next + i) % a->nr;
		if (loop_load(a->loops[at]) < loop_load(a->loops[best]))
			best = at;
	}
	a->next = (best + 1) % a->nr;
	return a->loops[best];
}

static void turn_away(struct acceptor *a, int fd)
{
	tally(&a->loops[0]->status[5], 1);
	/* A client that does not read the answer at once may lose it. */
	if (send(fd, too_many, sizeof(too_many) - 1,
		 MSG_DONTWAIT | MSG_NOSIGNAL) > 0)
		shutdown(fd, SHUT_WR);
	close(fd);
}

static void on_accept(struct evconnlistener *ev, evutil_socket_t fd,
		      struct sockaddr *addr, int len, void *arg)
{
	struct acceptor *a = arg;
	const int on = 1;

	tally(&a->loops[0]->stats.accepted, 1);
	while (is_full(a)) {
		if (!evict(a)) {
			turn_away(a, fd);
			return;
		}
	}
	/*
	 * A token is sent at once; keep-alive notices a peer that lost power.
	 */
	if (addr->sa_family != AF_UNIX) {
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
	}
	loop_give(emptiest(a), fd, addr);
}

static void on_accept_error(struct evconnlistener *ev, void *arg)
{
	const struct timeval pause = { 0, ACCEPT_PAUSE_US };
	struct acceptor *a = arg;
	u32 i;

	evict(a);
	for (i = 0; i < a->nr_listeners; i++)
		evconnlistener_disable(a->listeners[i]);
	event_add(a->ev_again, &pause);
}

static void on_again(evutil_socket_t fd, short what, void *arg)
{
	struct acceptor *a = arg;
	u32 i;

	for (i = 0; i < a->nr_listeners; i++)
		evconnlistener_enable(a->listeners[i]);
}

int acceptor_init(struct acceptor *a, struct loop *first)
{
	*a = (struct acceptor){ .loops = { first }, .nr = 1 };
	a->ev_again = event_new(first->base, -1, 0, on_again, a);
	return a->ev_again ? 0 : -ENOMEM;
}

void acceptor_add_loop(struct acceptor *a, struct loop *l)
{
	a->loops[a->nr++] = l;
}

int acceptor_add(struct acceptor *a, int fd)
{
	struct evconnlistener *l;

	if (a->nr_listeners == ACCEPT_SOCKETS)
		return -E2BIG;
	l = evconnlistener_new(a->loops[0]->base, on_accept, a,
			       LEV_OPT_CLOSE_ON_FREE | LEV_OPT_CLOSE_ON_EXEC, 0,
			       fd);
	if (!l)
		return -ENOMEM;
	evconnlistener_set_error_cb(l, on_accept_error);
	a->listeners[a->nr_listeners++] = l;
	return 0;
}

void acceptor_close(struct acceptor *a)
{
	while (a->nr_listeners)
		evconnlistener_free(a->listeners[--a->nr_listeners]);
	if (a->ev_again)
		event_free(a->ev_again);
	a->ev_again = NULL;
}
