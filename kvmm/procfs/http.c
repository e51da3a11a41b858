// SPDX-License-Identifier: Apache-2.0
/*
 * http.c - HTTP server of the metrics
 *
 * A connection carries one request and one answer, then it is closed.  Heads are
 * parsed by the strict parser of kvrt's server, which is fuzzed.  libevent's
 * evhttp bounds neither the time of a whole request nor the number of
 * connections, and needs more system calls than the filter allows.
 *
 * Any peer that can connect may be hostile, so all is bounded: the connections,
 * the bytes of a head and of pages under way, the time until a head is complete
 * and until an answer is read, however many bytes arrive meanwhile.  Without room
 * for a new connection the oldest one is closed, in whatever state.  An honest
 * reader needs milliseconds, so slow peers keep no reader out.
 *
 * The thread never waits for a reader.  It waits for the daemon, as long as
 * pf_ask() does, and all connections with it: they want the same page.
 *
 * Context: one thread, the only one that uses connections.
 */
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include <kvmm/clock.h>
#include <kvmm/http.h>
#include <kvmm/log.h>

#include "kvmm/procfs/procfs.h"

#define CONNS		32
#define CONNS_NEW	(CONNS / 2)	/* accepted in a row, before other work */
#define BACKLOG		128
#define HEAD_BYTES	8192u
#define HEAD_MS		5000	/* for the whole head */
#define ANSWER_MS	10000	/* for the whole answer to be read */
#define LINGER_MS	1000	/* for the peer to hang up, after the answer */
#define NO_FDS_MS	100
#define PAGES_BYTES	((size_t)64 << 20)

#define CONTENT_TYPE	"text/plain; version=0.0.4; charset=utf-8"
#define PLAIN_TYPE	"text/plain; charset=utf-8"

enum conn_state {
	CONN_FREE,
	CONN_HEAD,	/* the request arrives */
	CONN_SEND,	/* the answer is sent */
	CONN_LINGER,	/* closed later: a reset might discard unread bytes */
};

/**
 * struct conn - one connection
 * @number: serial number: the smallest is the oldest
 * @until:  deadline of its state, in ms
 * @len:    bytes of @head
 * @out:    head of the answer, and its body unless that is @page
 * @sent:   bytes of @out and @page that were sent
 */
struct conn {
	enum conn_state	state;
	int		fd;
	u64		number;
	u64		until;
	size_t		len;
	char		head[HEAD_BYTES];
	struct text	out;
	struct page	*page;
	size_t		sent;
};

/**
 * struct http - state of the thread
 * @now:   time in ms, read once a turn and after each wait for the daemon
 * @pause: time before which no connection is accepted: descriptors ran out
 */
struct http {
	int		fd;
	u64		now;
	u64		pause;
	u64		numbers;
	struct pages	pages;
	struct conn	conn[CONNS];
};

/* ---- connections come and go ---- */

static void conn_end(struct http *h, struct conn *c)
{
	close(c->fd);
	text_free(&c->out);
	pages_put(&h->pages, c->page);
	c->page = NULL;
	c->state = CONN_FREE;
}

/* The oldest connection; @paged: of those that are sent a page; NULL: none. */
static struct conn *conn_oldest(struct http *h, bool paged)
{
	struct conn *c, *oldest = NULL;

	for (c = h->conn; c < h->conn + CONNS; c++)
		if (c->state != CONN_FREE && (!paged || c->page) &&
		    (!oldest || c->number < oldest->number))
			oldest = c;
	return oldest;
}

static struct conn *conn_place(struct http *h)
{
	struct conn *c;

	for (c = h->conn; c < h->conn + CONNS; c++)
		if (c->state == CONN_FREE)
			return c;
	c = conn_oldest(h, false);
	conn_end(h, c);
	return c;
}

static void accept_new(struct http *h)
{
	struct conn *c;
	int i, fd;

	for (i = 0; i < CONNS_NEW; i++) {
		fd = accept4(h->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		/* The peer of this one has hung up; more may wait behind it. */
		if (fd < 0 && (errno == ECONNABORTED || errno == EINTR))
			continue;
		if (fd < 0) {
			if (errno != EAGAIN)
				h->pause = h->now + NO_FDS_MS;
			return;
		}
		c = conn_place(h);
		c->state = CONN_HEAD;
		c->fd = fd;
		c->number = h->numbers++;
		c->until = h->now + HEAD_MS;
		c->len = 0;
		c->sent = 0;
	}
}

/* ---- the answer ---- */

static void conn_send(struct http *h, struct conn *c)
{
	const size_t body = c->page ? c->page->text.count : 0;

	while (c->sent < c->out.len + body) {
		const bool head = c->sent < c->out.len;
		const size_t at = head ? c->sent : c->sent - c->out.len;
		const char *p = head ? c->out.p : seq_text(&c->page->text);
		ssize_t n = send(c->fd, p + at, (head ? c->out.len : body) - at,
				 MSG_NOSIGNAL | (head && body ? MSG_MORE : 0));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0) {
			conn_end(h, c);
			return;
		}
		c->sent += (size_t)n;
	}
	pages_put(&h->pages, c->page);
	c->page = NULL;
	c->state = CONN_LINGER;
	c->until = h->now + LINGER_MS;
	if (shutdown(c->fd, SHUT_WR))
		conn_end(h, c);
}

/**
 * conn_answer() - send an answer, then hang up
 * @status:  HTTP status
 * @headers: more headers, or NULL
 * @line:    the body, unless the connection has a page
 * @bare:    leave the body out: HEAD
 */
static void conn_answer(struct http *h, struct conn *c, int status,
			const char *headers, const char *line, bool bare)
{
	const size_t len = c->page ? c->page->text.count : strlen(line);
	const struct http_answer a = {
		.status = status, .type = c->page ? CONTENT_TYPE : PLAIN_TYPE,
		.length = (s64)len, .close = true, .headers = headers,
	};

	http_write_head(&c->out, &a);
	if (!bare && !c->page)
		text_puts(&c->out, line);
	if (bare) {
		pages_put(&h->pages, c->page);
		c->page = NULL;
	}
	if (c->out.failed) {
		conn_end(h, c);
		return;
	}
	c->state = CONN_SEND;
	c->until = h->now + ANSWER_MS;
	conn_send(h, c);
}

static void answer_metrics(struct http *h, struct conn *c, bool bare)
{
	int err;

	while (h->pages.bytes > PAGES_BYTES && conn_oldest(h, true))
		conn_end(h, conn_oldest(h, true));
	err = pages_get(&h->pages, h->now, &c->page);
	/* Deadlines do not count the time that the daemon took. */
	h->now = kv_now_ms();
	if (!err)
		conn_answer(h, c, 200, NULL, NULL, bare);
	else if (err == -EAGAIN)
		conn_answer(h, c, 503, "Retry-After: 1\r\n",
			    "kvmm does not answer: it is being started again, or is stopped\n",
			    bare);
	else
		conn_answer(h, c, 500, NULL, "the metrics cannot be read\n",
			    bare);
}

static bool path_is(const struct http_head *r, const char *path)
{
	return r->path_len == strlen(path) &&
	       !memcmp(r->path, path, r->path_len);
}

/* The head is complete: it has @len bytes. */
static void conn_request(struct http *h, struct conn *c, size_t len)
{
	struct http_head r;
	char line[160];
	const char *why = "";
	int status = http_parse_head(c->head, len, &r, &why);
	const bool bare = !status && r.method == HTTP_HEAD;

	if (status) {
		snprintf(line, sizeof(line), "%s\n", why);
		conn_answer(h, c, status, NULL, line, false);
	} else if (r.method != HTTP_GET && r.method != HTTP_HEAD) {
		conn_answer(h, c, 405, "Allow: GET, HEAD\r\n",
			    "GET and HEAD alone\n", false);
	} else if (path_is(&r, "/metrics")) {
		answer_metrics(h, c, bare);
	} else if (path_is(&r, "/")) {
		conn_answer(h, c, 200, NULL,
			    "kvmm-proc: metrics for Prometheus are at /metrics\n",
			    bare);
	} else {
		conn_answer(h, c, 404, NULL, "there is /metrics alone\n", bare);
	}
}

static void conn_read(struct http *h, struct conn *c)
{
	ssize_t n = recv(c->fd, c->head + c->len, HEAD_BYTES - c->len, 0);
	size_t len;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		conn_end(h, c);
		return;
	}
	c->len += (size_t)n;
	len = http_find_head(c->head, c->len);
	if (len)
		conn_request(h, c, len);
	else if (c->len == HEAD_BYTES)
		conn_answer(h, c, 431, NULL, "a head of more than 8 KiB\n",
			    false);
}

/* Drop the bytes that follow the request. */
static void conn_drain(struct http *h, struct conn *c)
{
	ssize_t n = recv(c->fd, c->head, HEAD_BYTES, 0);

	if (!n || (n < 0 && errno != EAGAIN && errno != EINTR))
		conn_end(h, c);
}

/* ---- turns ---- */

static void conn_late(struct http *h, struct conn *c)
{
	if (c->state == CONN_HEAD && c->len)
		conn_answer(h, c, 408, NULL, "the head took too long\n",
			    false);
	else
		conn_end(h, c);
}

static void conn_work(struct http *h, struct conn *c)
{
	switch (c->state) {
	case CONN_HEAD:
		conn_read(h, c);
		break;
	case CONN_SEND:
		conn_send(h, c);
		break;
	case CONN_LINGER:
		conn_drain(h, c);
		break;
	case CONN_FREE:
		break;
	}
}

/* Fill @p.  Return: the longest time to wait, in ms, or -1. */
static int http_wait(struct http *h, struct pollfd *p)
{
	u64 until = h->pause > h->now ? h->pause : UINT64_MAX;
	u32 i;

	p[CONNS] = (struct pollfd){
		.fd = h->pause > h->now ? -1 : h->fd, .events = POLLIN,
	};
	for (i = 0; i < CONNS; i++) {
		const struct conn *c = &h->conn[i];

		p[i] = (struct pollfd){
			.fd = c->state == CONN_FREE ? -1 : c->fd,
			.events = c->state == CONN_SEND ? POLLOUT : POLLIN,
		};
		if (c->state != CONN_FREE)
			until = min(until, c->until);
	}
	if (until == UINT64_MAX)
		return -1;
	return until > h->now ? (int)(until - h->now) : 0;
}

/* @p: result of poll() */
static void http_turn(struct http *h, const struct pollfd *p)
{
	/* An answer of this turn may wait for the daemon: deadlines do not count that. */
	const u64 now = h->now;
	u32 i;

	for (i = 0; i < CONNS; i++) {
		struct conn *c = &h->conn[i];

		if (p[i].revents)
			conn_work(h, c);
			/* A connection that made progress has a new deadline. */
		if (c->state != CONN_FREE && now >= c->until)
			conn_late(h, c);
	}
	if (p[CONNS].revents)
		accept_new(h);
}

void pf_http_work(struct procfs *pf)
{
	static struct http h;
	struct pollfd p[CONNS + 1];

	h.fd = pf->http;
	h.pages.pf = pf;
	for (;;) {
		h.now = kv_now_ms();
		if (poll(p, CONNS + 1, http_wait(&h, p)) < 0)
			continue;
		h.now = kv_now_ms();
		http_turn(&h, p);
	}
}

/* ---- start ---- */

int pf_http_listen(struct procfs *pf)
{
	char addr[KV_ADDR_TEXT];
	const int on = 1;
	int fd, err;

	fd = socket(pf->addr.sa.sa_family, SOCK_STREAM | SOCK_CLOEXEC |
		    SOCK_NONBLOCK, 0);
	if (fd >= 0 &&
	    !setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) &&
	    !bind(fd, &pf->addr.sa, pf->addr.len) && !listen(fd, BACKLOG) &&
	    !getsockname(fd, &pf->addr.sa, &pf->addr.len)) {
		if (!kv_addr_is_local(&pf->addr))
			pr_warn("--metrics: whoever reaches %s reads names and figures of all tenants",
				kv_addr_format(&pf->addr, addr));
		pf->http = fd;
		return 0;
	}
	err = -errno;
	if (fd >= 0)
		close(fd);
	pr_err("--metrics: cannot listen at %s: %s: no metrics there; give another address, and restart",
	       kv_addr_format(&pf->addr, addr), strerror(-err));
	return err;
}
