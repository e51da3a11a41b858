// SPDX-License-Identifier: Apache-2.0
/*
 * closer.c - connections are accepted, and closed by a thread of their own
 *
 * close(2) of a socket also closes the descriptors that wait in its queue
 * unread, and that can take as long as their owner likes: a TCP connection that
 * lingers, for one.  So the control thread receives no descriptor of a client
 * (see sock_recv()) and closes no connection itself: it shuts the socket down,
 * which the peer sees at once, and hands it over.
 *
 * The thread may wait, but later connections wait behind: while it closes, a
 * timer signals it every millisecond, which ends the wait for a connection that
 * lingers.
 *
 * Handing over is a push onto a list that the thread takes as a whole.
 * Connections can come faster than such ones can be closed.  So no connection
 * is accepted while CLOSER_MAX wait to be closed, or one user could take the
 * descriptors that extents and other users need: the listening sockets are not
 * watched until half of them are closed.  The same for a moment when there is
 * no descriptor left: the socket would be ready again at once.
 *
 * Context: control thread, but for closer_main().
 */
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>

#include <kvmm/log.h>

#include "kvmm/ipc/conn/conn.h"

#ifndef sigev_notify_thread_id
#define sigev_notify_thread_id	_sigev_un._tid
#endif

#define NUDGE_NS	NSEC_PER_MSEC
#define PAUSE_NS	(10 * NSEC_PER_MSEC)
#define STOP_S		2

struct closing {
	struct closing	*next;
	int		fd;
};

/* A handler, so that the signal ends a wait. */
static void closer_nudged(int sig)
{
}

static void closer_nudge(timer_t timer, u64 ns)
{
	struct itimerspec its = {
		.it_value.tv_nsec = (long)ns, .it_interval.tv_nsec = (long)ns,
	};

	timer_settime(timer, 0, &its, NULL);
}

static void closer_close_all(struct closer *cl, timer_t *timer)
{
	/* Pairs with the release in conn_close(). */
	struct closing *c = __atomic_exchange_n(&cl->first, NULL,
						__ATOMIC_ACQUIRE);

	if (c && timer)
		closer_nudge(*timer, NUDGE_NS);
	while (c) {
		struct closing *next = c->next;

		close(c->fd);
		__atomic_sub_fetch(&cl->waiting, 1, __ATOMIC_RELAXED);
		free(c);
		c = next;
	}
	if (timer)
		closer_nudge(*timer, 0);
}

static void *closer_main(void *arg)
{
	struct closer *cl = arg;
	struct sigevent ev = {
		.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGALRM,
	};
	timer_t timer;
	bool timed;

	pthread_setname_np(pthread_self(), "kvmm-closer");
	ev.sigev_notify_thread_id = (int)syscall(SYS_gettid);
	timed = !timer_create(CLOCK_MONOTONIC, &ev, &timer);
	while (!READ_ONCE(cl->stop)) {
		if (!sem_wait(&cl->bell))
			closer_close_all(cl, timed ? &timer : NULL);
	}
	closer_close_all(cl, timed ? &timer : NULL);
	if (timed)
		timer_delete(timer);
	return NULL;
}

/**
 * conn_close() - close a connection to a peer that is not trusted
 * @fd: no longer watched; -1 is nothing
 */
void conn_close(struct sockets *s, int fd)
{
	struct closer *cl = &s->closer;
	struct closing *c;

	if (fd < 0)
		return;
	shutdown(fd, SHUT_RDWR);
	c = cl->runs ? malloc(sizeof(*c)) : NULL;
	if (!c) {
		close(fd);
		return;
	}
	__atomic_add_fetch(&cl->waiting, 1, __ATOMIC_RELAXED);
	c->fd = fd;
	c->next = READ_ONCE(cl->first);
	/* Pairs with the acquire in closer_close_all(). */
	while (!__atomic_compare_exchange_n(&cl->first, &c->next, c, true,
					    __ATOMIC_RELEASE, __ATOMIC_RELAXED))
		;
	sem_post(&cl->bell);
}

/* watch_conn_close() - as watch_close(), for a connection */
void watch_conn_close(struct sockets *s, struct watch *w)
{
	watch_remove(s->loop, w);
	conn_close(s, w->fd);
	w->fd = -1;
}

/* ---- accepting ---- */

static void listen_events(struct sockets *s, u32 events)
{
	watch_events(s->loop, &s->attach, events);
	watch_events(s->loop, &s->view, events);
	watch_events(s->loop, &s->admin, events);
	door_events(s, events);
}

static void listen_pause(struct sockets *s)
{
	if (!s->closer.resume)
		listen_events(s, 0);
	s->closer.resume = kv_now_ns() + PAUSE_NS;
}

/**
 * conn_accept() - take a connection off a listening socket
 * Return: the socket, which does not block; -EAGAIN: none for now; another
 * negative errno, which has been logged.
 */
int conn_accept(struct sockets *s, const struct watch *w)
{
	int sock, err;

	if (READ_ONCE(s->closer.waiting) >= CLOSER_MAX) {
		listen_pause(s);
		return -EAGAIN;
	}
	sock = accept4(w->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (sock >= 0)
		return sock;
	err = -errno;
	if (err == -EAGAIN || err == -ECONNABORTED || err == -EINTR)
		return -EAGAIN;
	listen_pause(s);
	if (log_allowed())
		pr_warn("cannot accept a connection: %s", strerror(-err));
	return err;
}

/* closer_timers() - accept again, if there is room.  Return: when to be called next. */
u64 closer_timers(struct sockets *s, u64 now)
{
	struct closer *cl = &s->closer;

	if (!cl->resume)
		return UINT64_MAX;
	if (now >= cl->resume && READ_ONCE(cl->waiting) <= CLOSER_MAX / 2) {
		cl->resume = 0;
		listen_events(s, EPOLLIN);
		return UINT64_MAX;
	}
	if (now >= cl->resume)
		cl->resume = now + PAUSE_NS;
	return cl->resume;
}

/* ---- the thread ---- */

/**
 * closer_start() - start the thread
 * Context: before there are connections.
 * Return: 0 or a negative errno.
 */
int closer_start(struct sockets *s)
{
	struct sigaction sa = { .sa_handler = closer_nudged };
	int err;

	sigemptyset(&sa.sa_mask);
	if (sigaction(SIGALRM, &sa, NULL) || sem_init(&s->closer.bell, 0, 0))
		return -errno;
	err = pthread_create(&s->closer.thread, NULL, closer_main, &s->closer);
	s->closer.runs = !err;
	return -err;
}

/* closer_stop() - after the last connection; a close that hangs ends at exit */
void closer_stop(struct sockets *s)
{
	struct closer *cl = &s->closer;
	struct timespec ts;

	if (!cl->runs)
		return;
	WRITE_ONCE(cl->stop, true);
	sem_post(&cl->bell);
	clock_gettime(CLOCK_REALTIME, &ts);
	ts.tv_sec += STOP_S;
	cl->runs = pthread_timedjoin_np(cl->thread, NULL, &ts) != 0;
}
