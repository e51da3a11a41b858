// SPDX-License-Identifier: Apache-2.0
/*
 * floor.c - the bare cost of writing an event to a socket
 *
 * A process with libevent's bufferevents, as a plain server would be written.
 * Each turn of the event loop gives all connections the same bytes, but none to
 * a connection that is more than a little behind.
 */
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/bench.h"
#include "tests/bench/streams.h"

#define FLOOR_MAX	4096u
#define BEHIND		65536u

static struct {
	struct event_base	*base;
	struct event		*again;
	struct bufferevent	*bev[FLOOR_MAX];
	u32			nr;
	u32			want;
	u32			bytes;
	char			chunk[1 << 16];
} fl;

static void on_turn(evutil_socket_t fd, short what, void *arg)
{
	const struct timeval now = { 0, 0 };
	u32 i;

	for (i = 0; i < fl.nr; i++)
		if (evbuffer_get_length(bufferevent_get_output(fl.bev[i])) <
		    BEHIND)
			bufferevent_write(fl.bev[i], fl.chunk, fl.bytes);
	event_add(fl.again, &now);
}

static void on_end(struct bufferevent *bev, short what, void *arg)
{
	_exit(0);
}

static void on_accept(struct evconnlistener *ev, evutil_socket_t fd,
		      struct sockaddr *addr, int len, void *arg)
{
	struct bufferevent *bev;
	const int on = 1;

	bev = bufferevent_socket_new(fl.base, fd, BEV_OPT_CLOSE_ON_FREE);
	if (!bev || fl.nr == FLOOR_MAX)
		_exit(1);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	bufferevent_setcb(bev, NULL, NULL, on_end, NULL);
	bufferevent_enable(bev, EV_READ | EV_WRITE);
	fl.bev[fl.nr++] = bev;
	if (fl.nr == fl.want)
		on_turn(-1, 0, NULL);
}

/* An event in a chunk; the chunk has @bytes. */
static void make_chunk(u32 bytes)
{
	char head[16];
	int n;

	if (bytes < 32 || bytes > sizeof(fl.chunk))
		bench_die("an event of %u bytes", bytes);
	memset(fl.chunk, 'x', bytes);
	n = snprintf(head, sizeof(head), "%x\r\n", bytes - 8);
	memcpy(fl.chunk, head, (size_t)n);
	memcpy(fl.chunk + n, "data: {", 7);
	memcpy(fl.chunk + bytes - 4, "\n\n\r\n", 4);
	fl.bytes = bytes;
}

static void __noreturn floor_main(int fd)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	fl.base = event_base_new();
	fl.again = event_new(fl.base, -1, 0, on_turn, NULL);
	if (!evconnlistener_new(fl.base, on_accept, NULL,
				LEV_OPT_CLOSE_ON_FREE, 0, fd))
		_exit(1);
	event_base_dispatch(fl.base);
	_exit(0);
}

void floor_start(struct floor_server *f, u32 nr, u32 bytes)
{
	struct sockaddr_in sa = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	socklen_t len = sizeof(sa);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&sa, len) ||
	    listen(fd, FLOOR_MAX) ||
	    getsockname(fd, (struct sockaddr *)&sa, &len))
		bench_die("a socket to listen on: %s", strerror(errno));
	make_chunk(bytes);
	fl.want = nr;
	f->port = ntohs(sa.sin_port);
	f->pid = fork();
	if (f->pid < 0)
		bench_die("fork: %s", strerror(errno));
	if (!f->pid)
		floor_main(fd);
	close(fd);
}

void floor_stop(struct floor_server *f)
{
	kill(f->pid, SIGKILL);
	waitpid(f->pid, NULL, 0);
}
