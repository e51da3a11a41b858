// SPDX-License-Identifier: Apache-2.0
/*
 * view.c - the sockets on which operators and tenants read
 *
 * The daemon's own view socket shows everything, to users with the right to read
 * (conn/rights.c); that of a --tenant shows that tenant alone (kvmm/proc).
 *
 * A stream connection carries one request line and one answer, then it is
 * closed.  kvmm/proc makes the text on this thread; here it is only carried, in
 * as many pieces as the reader takes, under a deadline.  A connection that
 * waits for a trigger (wait.c) stays, and counts apart.
 *
 * Context: control thread.
 */
#include <sys/epoll.h>
#include <sys/socket.h>

#include <kvmm/log.h>

#include "kvmm/ipc/view/view.h"

#define MAX_VIEWS	32	/* of operators */
#define MAX_VIEWS_GROUP	16	/* of these, while members of groups ask */
#define MAX_STRANGERS	16	/* users without rights, which get an answer that says so */
#define KEY_STRANGER	(PROC_ALL - 1)	/* of all of them */
#define MAX_VIEWS_TENANT 8	/* of one tenant; as many again get an answer that says so */
#define VIEW_ASK_MS	5000	/* to send the request */
#define VIEW_READ_MS	10000	/* without reading anything of the answer */
#define VIEW_LINES	1	/* bytes that wait for a reader: the least buffer */

static void view_free(struct views *vs, struct view *v)
{
	wait_end(vs, &v->wait);
	watch_conn_close(vs->sockets, &v->sock);
	list_del(&v->reader.node);
	seq_free(&v->out);
	free(v);
}

/* Send on.  Return: 0: more to come, 1: all is out, negative: give up. */
static int view_send(struct views *vs, struct view *v)
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
		v->deadline = kv_now_ns() + VIEW_READ_MS * NSEC_PER_MSEC;
	}
	return 1;
}

static bool view_waits(const struct view *v)
{
	return v->reader.waits;
}

/* The connection stays.  A small buffer shows soon if it does not read. */
static void view_stay(struct views *vs, struct view *v)
{
	const int bytes = VIEW_LINES;

	if (view_send(vs, v) != 1 ||
	    setsockopt(v->sock.fd, SOL_SOCKET, SO_SNDBUF, &bytes,
		       sizeof(bytes))) {
		view_free(vs, v);
		return;
	}
	seq_free(&v->out);
	v->deadline = UINT64_MAX;
}

static void view_answer(struct views *vs, struct view *v, u64 user, size_t len)
{
	const u64 before = vs->mm->call_ns;
	int err = view_request(vs, &v->asker, v->req, len, &v->wait, &v->out);

	spend_charge(&vs->spend, user, kv_now_ns(), vs->mm->call_ns - before);
	if (v->due)
		watch_events(vs->loop, &v->sock, EPOLLIN);
	v->due = 0;
	v->head_len = proc_answer_head(err, &v->out, v->head);
	v->body_len = err ? 0 : v->out.count;
	v->deadline = kv_now_ns() + VIEW_READ_MS * NSEC_PER_MSEC;
	v->reader.waits = v->wait.trigger != CORE_NONE;
	if (view_waits(v))
		view_stay(vs, v);
	else if (view_send(vs, v))
		view_free(vs, v);
	else
		watch_events(vs->loop, &v->sock, EPOLLOUT);
}

static void view_refuse(struct views *vs, struct view *v, int err,
			const char *why)
{
	int n = snprintf(v->head, sizeof(v->head), "error %d %s\n", err, why);

	v->head_len = (size_t)n;
	view_send(vs, v);
	view_free(vs, v);
}

/* The request is complete: answer it, now or when its user has a budget again. */
static void view_asked(struct views *vs, struct view *v)
{
	const char *end = memchr(v->req, '\n', v->len);
	const size_t len = (size_t)(end - v->req);
	const u64 user = view_user(vs, &v->asker, v->req, len);
	const u64 now = kv_now_ns(), due = spend_due(&vs->spend, user, now);

	if (!v->asked)
		v->asked = now;
	if (due == now) {
		view_answer(vs, v, user, len);
	} else if (due - v->asked <= SPEND_WAIT_NS) {
		/* Only the end of the connection is an event: it may be closed for writing. */
		if (!v->due)
			watch_events(vs->loop, &v->sock, 0);
		v->due = due;
		v->deadline = UINT64_MAX;
	} else {
		view_refuse(vs, v, EBUSY, "this user has read more than its share: read less often");
	}
}

/* Answer the request with the reason why it is refused. */
static void view_turn_away(struct views *vs, struct view *v)
{
	char why[160], name[TENANT_TEXT];
	struct tenant *t = tenant_find(vs->clients, v->reader.key);

	if (t)
		t->refused++;
	snprintf(why, sizeof(why), "tenant %s has as many connections as it may: close one",
		 tenant_name(vs->sockets, v->reader.key, name));
	if (log_allowed())
		pr_warn("a reader is turned away: %s", why);
	view_refuse(vs, v, EUSERS, why);
}

/* Answer the request of a user without rights. */
static void view_stranger(struct views *vs, struct view *v)
{
	char why[256];

	view_refuse(vs, v, EACCES, rights_refused(vs->sockets, KV_RIGHT_read, why,
						  sizeof(why)));
}

static void view_on_sock(void *arg, struct watch *w, u32 events)
{
	struct views *vs = arg;
	struct view *v = container_of(w, struct view, sock);
	ssize_t n;

	if (v->head_len) {
		/* A connection that waits sends nothing: it hung up. */
		if (view_waits(v) || view_send(vs, v))
			view_free(vs, v);
		return;
	}
	n = sock_recv(v->sock.fd, v->req + v->len, sizeof(v->req) - v->len);
	if (n == -EAGAIN)
		return;
	/* A connection that waits for its user's budget is only heard when it ends. */
	if (n <= 0 || v->due) {
		view_free(vs, v);
		return;
	}
	v->len += (size_t)n;
	if (!v->asker.rights && memchr(v->req, '\n', v->len))
		view_stranger(vs, v);
	else if (v->over && memchr(v->req, '\n', v->len))
		view_turn_away(vs, v);
	else if (memchr(v->req, '\n', v->len))
		view_asked(vs, v);
	else if (v->len == sizeof(v->req))
		view_refuse(vs, v, EINVAL, "the request has no end: write one line");
}

/* Has the tenant one too many, this one counted? */
static bool view_too_many(const struct views *vs, u64 key)
{
	return tenant_readers(vs->clients, key) > MAX_VIEWS_TENANT ||
	       tenant_conns(vs->clients, key) > tenant_quota(vs->sockets, key)->conns;
}

/* The user that connected to @w, and the key that its connection counts for. */
static u64 view_judge(struct views *vs, const struct watch *w, int sock,
		      struct asker *a)
{
	u32 rights;
	uid_t uid;

	if (w != &vs->sockets->view) {
		a->key = tenant_key(vs->sockets, w, 0);
		a->payer = a->key;
		a->rights = KV_RIGHT_read;
		return a->key;
	}
	rights = rights_of_peer(vs->sockets, sock, &uid);
	view_asker(vs, uid, rights, a);
	if (rights)
		return PROC_ALL;
	if (log_allowed())
		pr_warn("user %u is refused on the view socket", (u32)uid);
	return KEY_STRANGER;
}

static u32 view_most(const struct asker *a, u64 key)
{
	if (key == KEY_STRANGER)
		return MAX_STRANGERS;
	if (key != PROC_ALL)
		return 2 * MAX_VIEWS_TENANT;
	return a->payer == PROC_ALL ? MAX_VIEWS : MAX_VIEWS_GROUP;
}

static void view_new(struct views *vs, int sock, const struct asker *a, u64 key)
{
	struct view *v = calloc(1, sizeof(*v));

	if (!v) {
		conn_close(vs->sockets, sock);
		return;
	}
	v->sock.fd = sock;
	v->sock.fn = view_on_sock;
	v->sock.arg = vs;
	v->asker = *a;
	v->reader.key = key;
	v->wait.trigger = CORE_NONE;
	v->deadline = kv_now_ns() + VIEW_ASK_MS * NSEC_PER_MSEC;
	seq_init(&v->out, PROC_TEXT_MAX);
	list_add_tail(&vs->clients->readers, &v->reader.node);
	v->over = key < KEY_STRANGER && view_too_many(vs, key);
	if (watch_add(vs->loop, &v->sock, EPOLLIN))
		view_free(vs, v);
}

void view_accept(void *arg, struct watch *w, u32 events)
{
	struct views *vs = arg;
	int sock = conn_accept(vs->sockets, w);
	struct asker a;
	u64 key;

	if (sock < 0)
		return;
	key = view_judge(vs, w, sock, &a);
	if (tenant_readers(vs->clients, key) < view_most(&a, key)) {
		view_new(vs, sock, &a, key);
		return;
	}
	conn_close(vs->sockets, sock);
	if (log_allowed())
		pr_warn("a reader is turned away: %u are there",
			tenant_readers(vs->clients, key));
}

/*
 * view_timers() - answer requests that waited for a budget, close slow connections
 *
 * A request may wait again: others of its user were answered before it.
 * Return: time of the next call.
 */
u64 view_timers(struct views *vs, u64 now)
{
	struct list *l, *tmp;
	u64 next = UINT64_MAX;

	list_for_each(&vs->clients->readers, l, tmp) {
		struct view *v = list_entry(l, struct view, reader.node);

		if (v->due && now >= v->due)
			view_asked(vs, v);
		else if (now >= v->deadline)
			view_free(vs, v);
	}
	/* An answer may have freed its connection, and changed when others are due. */
	list_for_each(&vs->clients->readers, l, tmp) {
		const struct view *v = list_entry(l, struct view, reader.node);

		next = min(next, v->due ? v->due : v->deadline);
	}
	return next;
}

void view_exit_all(struct views *vs)
{
	struct list *l, *tmp;

	list_for_each(&vs->clients->readers, l, tmp)
		view_free(vs, list_entry(l, struct view, reader.node));
}
