// SPDX-License-Identifier: Apache-2.0
/*
 * view.c - the sockets on which operators and tenants read
 *
 * The daemon's own shows everything; that of a --tenant shows what is that
 * tenant's, and nothing else (kvmm/proc).
 *
 * A stream connection carries one request line and one answer, then it is
 * closed.  The text is made by kvmm/proc on this thread; here it is only
 * carried, in as many pieces as the reader takes, under a deadline.  One that
 * waits for a trigger (wait.c) stays, and counts apart.
 *
 * Context: control thread.
 */
#include <sys/epoll.h>
#include <sys/socket.h>

#include <kvmm/log.h>

#include "kvmm/ipc/daemon.h"

#define MAX_VIEWS	32	/* of operators */
#define MAX_VIEWS_TENANT 8	/* of one tenant; as many again are told so */
#define VIEW_ASK_MS	5000	/* to send the request */
#define VIEW_READ_MS	10000	/* without reading anything of the answer */
#define VIEW_LINES	1	/* bytes of socket that wait for a reader: the least */

/**
 * struct view - one connection
 * @over: one too many of its tenant: it is told so when it asks
 * @len:  bytes of the request so far
 * @head: first line of the answer, @head_len bytes; 0: not answered yet
 * @sent: bytes of head and text that are out
 * @wait: its trigger, if it is one that waits
 */
struct view {
	struct reader	reader;
	struct watch	sock;
	bool		over;
	u64		deadline;
	size_t		len;
	size_t		head_len;
	size_t		body_len;
	size_t		sent;
	struct view_wait wait;
	struct seq_file	out;
	char		head[PROC_HEAD_MAX];
	char		req[PROC_REQ_MAX];
};

static void view_free(struct daemon *d, struct view *v)
{
	wait_end(d, &v->wait);
	watch_conn_close(&d->sockets, &v->sock);
	list_del(&v->reader.node);
	seq_free(&v->out);
	free(v);
}

/* Send on.  Return: 0: more to come, 1: all is out, negative: give up. */
static int view_send(struct daemon *d, struct view *v)
{
	size_t all = v->head_len + v->body_len;

	while (v->sent < all) {
		bool head = v->sent < v->head_len;
		const char *p = head ? v->head + v->sent :
				seq_text(&v->out) + (v->sent - v->head_len);
		size_t len = (head ? v->head_len : all) - v->sent;
		ssize_t n = send(v->sock.fd, p, len,
				 MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return 0;
		if (n < 0)
			return -errno;
		v->sent += (size_t)n;
		v->deadline = clock_ns() + VIEW_READ_MS * NSEC_PER_MSEC;
	}
	return 1;
}

static bool view_waits(const struct view *v)
{
	return v->reader.waits;
}

/* It stays: one that does not read is found out soon. */
static void view_stay(struct daemon *d, struct view *v)
{
	const int bytes = VIEW_LINES;

	if (view_send(d, v) != 1 ||
	    setsockopt(v->sock.fd, SOL_SOCKET, SO_SNDBUF, &bytes,
		       sizeof(bytes))) {
		view_free(d, v);
		return;
	}
	seq_free(&v->out);
	v->deadline = UINT64_MAX;
}

/* It is closed in the next round: an event of it may wait in this one. */
static void view_drop(struct daemon *d, struct view *v)
{
	watch_remove(&d->loop, &v->sock);
	v->deadline = 0;
}

static void view_tell(struct daemon *d, struct view *v)
{
	char line[40];
	int n = snprintf(line, sizeof(line), "fired %llu\n",
			 (unsigned long long)++v->wait.fired);

	if (send(v->sock.fd, line, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL) == n)
		return;
	if (log_allowed())
		pr_info("one that waits for a trigger does not read: closed");
	view_drop(d, v);
}

/**
 * view_fired() - tell those who wait
 * @fired: triggers, a bit each
 * @gone:  those that the core has no more
 */
void view_fired(struct daemon *d, u64 fired, u64 gone)
{
	struct list *l, *tmp;

	list_for_each(&d->clients.readers, l, tmp) {
		struct view *v = list_entry(l, struct view, reader.node);

		if (!view_waits(v))
			continue;
		if (gone & BIT_ULL(v->wait.trigger)) {
			/* It may be somebody else's number by now. */
			v->wait.trigger = CORE_NONE;
			v->reader.waits = false;
			view_drop(d, v);
		} else if ((fired & BIT_ULL(v->wait.trigger)) && v->sock.fn) {
			view_tell(d, v);
		}
	}
}

/* view_count_waits() - that wait, of @key or, if @others, of all */
u32 view_count_waits(const struct daemon *d, u64 key, bool others)
{
	const struct list *l;
	u32 nr = 0;

	for (l = d->clients.readers.next; l != &d->clients.readers; l = l->next) {
		const struct view *v = list_entry(l, struct view, reader.node);

		nr += view_waits(v) && (others || v->wait.key == key);
	}
	return nr;
}

static void view_answer(struct daemon *d, struct view *v)
{
	const char *end = memchr(v->req, '\n', v->len);
	int err = view_request(d, v->reader.key, v->req, (size_t)(end - v->req),
			       &v->wait, &v->out);

	v->head_len = proc_answer_head(err, &v->out, v->head);
	v->body_len = err ? 0 : v->out.count;
	v->deadline = clock_ns() + VIEW_READ_MS * NSEC_PER_MSEC;
	v->reader.waits = v->wait.trigger != CORE_NONE;
	if (view_waits(v))
		view_stay(d, v);
	else if (view_send(d, v))
		view_free(d, v);
	else
		watch_events(&d->loop, &v->sock, EPOLLOUT);
}

static void view_refuse(struct daemon *d, struct view *v, int err,
			const char *why)
{
	int n = snprintf(v->head, sizeof(v->head), "error %d %s\n", err, why);

	v->head_len = (size_t)n;
	view_send(d, v);
	view_free(d, v);
}

/* Not what was asked, but why not. */
static void view_turn_away(struct daemon *d, struct view *v)
{
	char why[160], name[TENANT_TEXT];
	struct tenant *t = tenant_find(&d->clients, v->reader.key);

	if (t)
		t->refused++;
	snprintf(why, sizeof(why), "tenant %s has as many connections as it may: close one",
		 tenant_name(&d->sockets, v->reader.key, name));
	if (log_allowed())
		pr_warn("a reader is turned away: %s", why);
	view_refuse(d, v, EUSERS, why);
}

static void view_on_sock(void *arg, struct watch *w, u32 events)
{
	struct daemon *d = arg;
	struct view *v = container_of(w, struct view, sock);
	ssize_t n;

	if (v->head_len) {
		/* One that waits says nothing: it hung up. */
		if (view_waits(v) || view_send(d, v))
			view_free(d, v);
		return;
	}
	n = sock_recv(v->sock.fd, v->req + v->len, sizeof(v->req) - v->len);
	if (n == -EAGAIN)
		return;
	if (n <= 0) {
		view_free(d, v);
		return;
	}
	v->len += (size_t)n;
	if (v->over && memchr(v->req, '\n', v->len))
		view_turn_away(d, v);
	else if (memchr(v->req, '\n', v->len))
		view_answer(d, v);
	else if (v->len == sizeof(v->req))
		view_refuse(d, v, EINVAL, "the request has no end: write one line");
}

/* Has the tenant one too many, this one counted? */
static bool view_too_many(const struct daemon *d, u64 key)
{
	return tenant_readers(&d->clients, key) > MAX_VIEWS_TENANT ||
	       tenant_conns(&d->clients, key) > tenant_quota(&d->sockets, key)->conns;
}

void view_accept(void *arg, struct watch *w, u32 events)
{
	struct daemon *d = arg;
	const u64 key = w == &d->sockets.view ? PROC_ALL : tenant_key(&d->sockets, w, 0);
	int sock = conn_accept(&d->sockets, w);
	struct view *v;

	if (sock < 0)
		return;
	v = tenant_readers(&d->clients, key) < (key == PROC_ALL ? MAX_VIEWS :
						2 * MAX_VIEWS_TENANT) ?
	    calloc(1, sizeof(*v)) : NULL;
	if (!v) {
		conn_close(&d->sockets, sock);
		if (log_allowed())
			pr_warn("a reader is turned away: %u are there",
				tenant_readers(&d->clients, key));
		return;
	}
	v->sock.fd = sock;
	v->sock.fn = view_on_sock;
	v->sock.arg = d;
	v->reader.key = key;
	v->wait.trigger = CORE_NONE;
	v->deadline = clock_ns() + VIEW_ASK_MS * NSEC_PER_MSEC;
	seq_init(&v->out, PROC_TEXT_MAX);
	list_add_tail(&d->clients.readers, &v->reader.node);
	v->over = key != PROC_ALL && view_too_many(d, key);
	if (watch_add(&d->loop, &v->sock, EPOLLIN))
		view_free(d, v);
}

/* Close what takes too long.  Return: when to be called next. */
u64 view_timers(struct daemon *d, u64 now)
{
	struct list *l, *tmp;
	u64 next = UINT64_MAX;

	list_for_each(&d->clients.readers, l, tmp) {
		struct view *v = list_entry(l, struct view, reader.node);

		if (now >= v->deadline)
			view_free(d, v);
		else
			next = min(next, v->deadline);
	}
	return next;
}

void view_exit_all(struct daemon *d)
{
	struct list *l, *tmp;

	list_for_each(&d->clients.readers, l, tmp)
		view_free(d, list_entry(l, struct view, reader.node));
}
