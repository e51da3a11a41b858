// SPDX-License-Identifier: Apache-2.0
/*
 * lookup.c - tell kvctl which sequences a request has
 *
 * include/kvmm/lookup.h has the protocol.  A question goes from loop to loop, as mail,
 * since only its own thread may look at the calls of a loop.  The last loop sends
 * the answer.  Ids of requests are secrets of clients, so root and the user of this
 * process alone may ask.
 */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include <event2/event.h>
#include <event2/listener.h>

#include <kvmm/log.h>
#include <kvmm/lookup.h>

#include "runtime/server/call.h"
#include "runtime/server/lookup.h"

#define LOOKUP_WAIT_S	2	/* for the question */

/**
 * struct question - one connection
 * @ev: waits for the question
 * @m:  on its way through the loops
 * @at: the loop that is asked
 */
struct question {
	struct site	*site;
	struct event	*ev;
	struct mail	m;
	u32		at;
	int		fd;
	char		id[LOOKUP_ID_MAX + 1];
	struct text	t;
};

static void question_end(struct question *q, const char *text, size_t len)
{
	/* A small packet always has room in a new connection. */
	if (len && send(q->fd, text, len, MSG_DONTWAIT | MSG_NOSIGNAL) < 0)
		pr_debug("a question about requests: %s", strerror(errno));
	close(q->fd);
	text_free(&q->t);
	free(q);
}

static void tell_samples(const struct work_prompt *p, u32 n, u32 client,
			 struct text *t)
{
	u64 seq;
	u32 k;

	for (k = 0; k < n && t->len < LOOKUP_MAX - 64; k++) {
		seq = load_acquire(&p->samples[k].seq);
		if (load_acquire(&p->samples[k].over))
			continue;
		if (seq)
			text_printf(t, "%u %u\n", client, (u32)(seq - 1));
		else if (!k)
			text_puts(t, LOOKUP_WAITS);
	}
}

static void tell_call(const struct call *call, struct text *t)
{
	struct backend_view v;
	u32 i;

	backend_look(call->work.b, &v);
	for (i = 0; i < call->work.nr_prompts; i++)
		tell_samples(&call->work.prompts[i], call->work.req.n,
			     v.load.client, t);
}

/* On the thread of a loop: look at its calls, and ask the next loop. */
static void on_question(struct mail *m)
{
	struct question *q = container_of(m, struct question, m);
	struct service *svc = &q->site->services[q->at];
	const struct call *call;

	for (call = svc->list; call; call = call->next)
		/* A reader may still be writing the id of another. */
		if (call->posted && (!strcmp(call->id, q->id) ||
				     !strcmp(call->request_id, q->id)))
			tell_call(call, &q->t);
	if (++q->at < q->site->nr_services)
		mailbox_post(&q->site->services[q->at].loop.mail, &q->m);
	else if (q->t.len && !q->t.failed)
		question_end(q, q->t.p, q->t.len);
	else
		question_end(q, LOOKUP_NONE, strlen(LOOKUP_NONE));
}

static bool may_ask(int fd)
{
	struct ucred peer;
	socklen_t len = sizeof(peer);

	return !getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &len) &&
	       (!peer.uid || peer.uid == geteuid());
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	struct question *q = arg;
	ssize_t n = what & EV_READ ? recv(fd, q->id, LOOKUP_ID_MAX, MSG_DONTWAIT) : -1;

	/* The thread that ends the question may be another. */
	event_free(q->ev);
	if (n <= 0) {
		question_end(q, NULL, 0);
		return;
	}
	q->id[n] = '\0';
	mailbox_post(&q->site->services[0].loop.mail, &q->m);
}

static void on_accept(struct evconnlistener *ev, evutil_socket_t fd,
		      struct sockaddr *addr, int len, void *arg)
{
	const struct timeval wait = { LOOKUP_WAIT_S, 0 };
	struct lookup *l = arg;
	struct question *q;

	/* Another user holds no descriptor of this server, not even for a while. */
	if (!may_ask(fd)) {
		close(fd);
		return;
	}
	q = calloc(1, sizeof(*q));
	if (!q) {
		close(fd);
		return;
	}
	*q = (struct question){ .site = l->site, .fd = fd, .m.fn = on_question };
	q->ev = event_new(l->site->services[0].loop.base, fd, EV_READ,
			  on_readable, q);
	if (!q->ev || event_add(q->ev, &wait)) {
		if (q->ev)
			event_free(q->ev);
		question_end(q, NULL, 0);
	}
}

void lookup_open(struct lookup *l, struct site *site)
{
	const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	struct sockaddr_un sa;
	const socklen_t len = lookup_address(&sa, getpid());

	l->site = site;
	if (fd >= 0 && !bind(fd, (const struct sockaddr *)&sa, len))
		l->listener = evconnlistener_new(site->services[0].loop.base,
						 on_accept, l,
						 LEV_OPT_CLOSE_ON_FREE |
						 LEV_OPT_CLOSE_ON_EXEC, 8, fd);
	if (l->listener)
		return;
	pr_warn("kvctl explain will not find requests of this server: %s",
		strerror(errno));
	if (fd >= 0)
		close(fd);
}

void lookup_close(struct lookup *l)
{
	if (l->listener)
		evconnlistener_free(l->listener);
	l->listener = NULL;
}
