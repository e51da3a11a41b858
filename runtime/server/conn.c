// SPDX-License-Identifier: Apache-2.0
/*
 * conn.c - one connection: requests in, answers out
 *
 * A connection reads a head and a body, waits for the answer, and begins again.
 * In each state the client's use of memory and of time is bounded:
 *
 *	state	input held	ends by itself after
 *	HEAD	HTTP_HEAD_MAX	idle_s before the first byte (head_s on a new
 *				connection), head_s after it
 *	BODY	limits.body	body_s for all of it, however it drips
 *	BUSY	CONN_AHEAD	the answer; the client's end is seen at once
 *	FLUSH	CONN_AHEAD	write_s in which the client reads nothing
 *	LINGER	none		CONN_LINGER_S
 *
 * The connection keeps reading while a request is being answered.  So the
 * client's end is seen, and its next requests may wait here.  An end of file
 * counts as the end of the client; whole answers may be lost by it.
 *
 * If a connection is closed while the client is still sending, the kernel
 * resets it, and the client may never see the answer with the reason.  So the
 * last answer is followed by an end of file, and further input is dropped for a
 * moment.
 *
 * (libevent's own evhttp is not used.  It does not read while a request is
 * being answered, so it cannot see that a client left before the first token,
 * and it ends the process if it is made to read.  Its deadlines start again
 * with every byte.  Its errors are HTML.)
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <kvmm/clock.h>

#include "runtime/server/internal.h"

#define CONN_AHEAD		65536u	/* bytes of further requests kept */
#define CONN_LOW		32768u	/* more output is asked for below it */
#define CONN_PIPE_OUT		262144u	/* unread answers above which requests wait */
#define CONN_LINGER_S		2u
#define CONN_LINGER_MAX		(16u << 20)
#define CONN_KEEP_BODY		65536u	/* memory kept between requests */

static void conn_advance(struct conn *c);

static struct evbuffer *conn_input(const struct conn *c)
{
	return bufferevent_get_input(c->bev);
}

static struct evbuffer *conn_output(const struct conn *c)
{
	return bufferevent_get_output(c->bev);
}

size_t conn_backlog(const struct conn *c)
{
	return c->state == CONN_DEAD ? 0 : evbuffer_get_length(conn_output(c));
}

struct loop *conn_loop(struct conn *c)
{
	return c->loop;
}

static bool state_is_busy(enum conn_state state)
{
	return state == CONN_BUSY || state == CONN_FLUSH;
}

void conn_set_state(struct conn *c, enum conn_state state)
{
	struct loop *l = c->loop;
	const int more = (int)state_is_busy(state) - state_is_busy(c->state);

	if (more)
		WRITE_ONCE(l->nr_busy, l->nr_busy + (u32)more);
	c->state = state;
}

/* The body has @bytes now. */
static void conn_count_body(struct conn *c, u64 bytes)
{
	if (bytes != c->counted)
		__atomic_add_fetch(&c->loop->crowd->bodies, bytes - c->counted,
				   __ATOMIC_RELAXED);
	c->counted = bytes;
}

void conn_own(struct conn *c, struct conn_owner *o)
{
	c->owner = o;
}

void conn_steal_body(struct conn *c, struct text *out)
{
	*out = c->body;
	memset(&c->body, 0, sizeof(c->body));
	c->req.body = "";
	c->req.len = 0;
}

static void conn_deadline(struct conn *c, u32 seconds)
{
	const struct timeval tv = { seconds, 0 };

	if (seconds)
		event_add(&c->timer, &tv);
	else
		event_del(&c->timer);
}

/* ---- the log ---- */

void conn_tell(struct conn *c, const char *id, u64 tokens, int status)
{
	snprintf(c->id, sizeof(c->id), "%s", id);
	c->tokens = tokens;
	c->told = status;
}

void conn_tell_error(struct conn *c, const char *code, const char *param)
{
	snprintf(c->code, sizeof(c->code), "%s", code);
	snprintf(c->param, sizeof(c->param), "%s", param);
}

void conn_set_key(struct conn *c, u32 key, const char *name)
{
	c->key = key;
	c->who = name;
}

u32 conn_key(const struct conn *c)
{
	return c->key;
}

/* Forget the log's values of the request before. */
static void conn_log_begin(struct conn *c)
{
	c->since = (s64)kv_now_ns();
	c->status = 0;
	conn_tell(c, "", 0, 0);
	conn_tell_error(c, "", "");
	conn_set_key(c, 0, NULL);
}

/*
 * @whole: the client has got the whole answer
 */
static void conn_log_end(struct conn *c, bool whole)
{
	const struct access a = {
		.peer = &c->peer, .head = &c->req.head, .id = c->id,
		.status = !whole ? 0 : c->told ? c->told : c->status,
		.tokens = c->tokens, .ns = (s64)kv_now_ns() - c->since, .key = c->who,
		.code = *c->code ? c->code : NULL, .param = c->param,
	};

	c->loop->ops->ended(&a);
}

/* ---- the end ---- */

void conn_kill(struct conn *c)
{
	const bool asked = c->state == CONN_BUSY;
	struct conn_owner *o = c->owner;

	if (c->state == CONN_DEAD)
		return;
	conn_set_state(c, CONN_DEAD);
	c->owner = NULL;
	event_del(&c->timer);
	bufferevent_free(c->bev);
	c->bev = NULL;
	conn_count_body(c, 0);
	loop_unlink(c->loop, c);
	if (o) {
		tally(&c->loop->stats.vanished, 1);
		o->gone(o);
	}
	if (asked)
		conn_log_end(c, false);
}

void conn_free(struct conn *c)
{
	text_free(&c->head);
	text_free(&c->body);
	free(c);
}

void conn_abort(struct conn *c)
{
	c->owner = NULL;
	conn_kill(c);
}

void conn_close(struct conn *c)
{
	loop_idle(c->loop, c, false);
	if (!evbuffer_get_length(conn_output(c))) {
		conn_kill(c);
		return;
	}
	conn_set_state(c, CONN_FLUSH);
	conn_deadline(c, 0);
}

/*
 * All output is sent: close, with a linger if the client may still be sending.
 */
static void conn_flushed(struct conn *c)
{
	if (!c->unread && !evbuffer_get_length(conn_input(c))) {
		conn_kill(c);
		return;
	}
	conn_set_state(c, CONN_LINGER);
	shutdown(bufferevent_getfd(c->bev), SHUT_WR);
	evbuffer_drain(conn_input(c), evbuffer_get_length(conn_input(c)));
	conn_deadline(c, CONN_LINGER_S);
}

static void conn_linger(struct conn *c)
{
	c->lingered += evbuffer_get_length(conn_input(c));
	evbuffer_drain(conn_input(c), evbuffer_get_length(conn_input(c)));
	if (c->lingered > CONN_LINGER_MAX)
		conn_kill(c);
}

/* ---- answers ---- */

/* The answer is complete: go on to the next request, or close. */
static void conn_finish(struct conn *c)
{
	struct loop *l = c->loop;

	conn_log_end(c, true);
	c->owner = NULL;
	c->streaming = false;
	conn_count_body(c, 0);
	if (c->body.cap > CONN_KEEP_BODY)
		text_free(&c->body);
	if (!c->req.head.keep_alive || l->draining) {
		conn_set_state(c, CONN_FLUSH);
		if (!evbuffer_get_length(conn_output(c)))
			conn_flushed(c);
		return;
	}
	conn_set_state(c, CONN_HEAD);
	c->began = false;
	loop_idle(l, c, true);
	conn_deadline(c, l->limits->idle_s);
	if (!c->advancing)
		conn_advance(c);
}

static void conn_write(struct conn *c, const void *p, size_t len)
{
	if (len && evbuffer_add(conn_output(c), p, len))
		conn_kill(c);
}

static void conn_write_head(struct conn *c, int status, const char *type,
			    const char *headers, s64 length)
{
	struct http_answer a = {
		.status = status, .type = type, .length = length,
		.http10 = c->req.head.http10, .id = c->req.head.id,
	};
	struct text t = { 0 }, more = { 0 };

	/* Without a length the end of the connection is the end of the body. */
	if (a.http10 && length < 0)
		c->req.head.keep_alive = false;
	a.close = !c->req.head.keep_alive || c->loop->draining;
	if (c->loop->ops->headers)
		c->loop->ops->headers(c->loop, &c->req.head, &more);
	text_puts(&more, headers ? headers : "");
	text_add(&more, "", 1);
	a.headers = more.p;
	http_write_head(&t, &a);
	if (t.failed || more.failed)
		conn_kill(c);
	else
		conn_write(c, t.p, t.len);
	text_free(&t);
	text_free(&more);
	c->status = status;
	tally(&c->loop->status[status / 100], 1);
}

void conn_reply(struct conn *c, int status, const char *type,
		const char *headers, const char *body, size_t len)
{
	if (c->state == CONN_DEAD)
		return;
	conn_write_head(c, status, type, headers, (s64)len);
	if (c->state != CONN_DEAD && c->req.head.method != HTTP_HEAD)
		conn_write(c, body, len);
	if (c->state != CONN_DEAD)
		conn_finish(c);
}

void conn_stream_begin(struct conn *c, const char *type, const char *headers)
{
	if (c->state == CONN_DEAD)
		return;
	c->streaming = true;
	conn_write_head(c, 200, type, headers, -1);
}

/*
 * Write @iov.  As much as the socket takes goes at once, with one system call
 * and without an event; the rest waits like all other output.  The next write
 * finds an error again.
 */
static void conn_write_now(struct conn *c, struct iovec *iov, u32 nr)
{
	const struct msghdr msg = { .msg_iov = iov, .msg_iovlen = nr };
	size_t sent = 0, skip;
	ssize_t n;
	u32 i;

	if (!evbuffer_get_length(conn_output(c))) {
		n = sendmsg(bufferevent_getfd(c->bev), &msg,
			    MSG_DONTWAIT | MSG_NOSIGNAL);
		sent = n > 0 ? (size_t)n : 0;
	}
	for (i = 0; i < nr && c->state != CONN_DEAD; i++) {
		skip = min(sent, iov[i].iov_len);
		sent -= skip;
		conn_write(c, (const char *)iov[i].iov_base + skip,
			   iov[i].iov_len - skip);
	}
}

void conn_stream_add(struct conn *c, const char *p, size_t len)
{
	char size[24];
	struct iovec iov[] = {
		{ .iov_base = size },
		{ .iov_base = (char *)(uintptr_t)p, .iov_len = len },
		{ .iov_base = (char[]){ "\r\n" }, .iov_len = 2 },
	};

	if (c->state == CONN_DEAD || !len)
		return;
	if (c->req.head.http10) {
		conn_write_now(c, &iov[1], 1);
		return;
	}
	iov[0].iov_len = (size_t)snprintf(size, sizeof(size), "%zx\r\n", len);
	conn_write_now(c, iov, ARRAY_SIZE(iov));
}

void conn_stream_end(struct conn *c)
{
	if (c->state == CONN_DEAD)
		return;
	if (!c->req.head.http10)
		conn_write(c, "0\r\n\r\n", 5);
	if (c->state != CONN_DEAD)
		conn_finish(c);
}

/* Answer input that is no request; the connection ends with that answer. */
static void conn_refuse(struct conn *c, int status, const char *code,
			const char *why)
{
	struct text t = { 0 };

	tally(&c->loop->stats.refused, 1);
	if (c->state == CONN_HEAD)
		memset(&c->req, 0, sizeof(c->req));
	c->req.head.keep_alive = false;
	c->unread = true;
	conn_log_begin(c);
	conn_set_state(c, CONN_BUSY);
	conn_deadline(c, 0);
	conn_tell_error(c, code, "");
	c->loop->ops->refuse(&t, status, code, why);
	conn_reply(c, status, "application/json",
		   status == 503 ? "Retry-After: 1\r\n" : NULL, t.p, t.len);
	text_free(&t);
}

/* ---- requests ---- */

/* 64 bits that differ for every request of this loop (splitmix). */
static u64 draw_id(struct loop *l)
{
	u64 z = l->ids += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

static void conn_dispatch(struct conn *c)
{
	struct loop *l = c->loop;
	char *id = c->req.head.id;

	conn_log_begin(c);
	if (!*id)
		snprintf(id, sizeof(c->req.head.id), "%016llx%08x",
			 (unsigned long long)draw_id(l), (u32)draw_id(l));
	conn_set_state(c, CONN_BUSY);
	conn_deadline(c, 0);
	c->req.body = c->body.len ? c->body.p : "";
	c->req.len = c->body.len;
	tally(&l->stats.requests, 1);
	l->ops->request(l, c, &c->req);
}

/* The head is valid: is a body due, and is it allowed? */
static void conn_expect_body(struct conn *c)
{
	const struct http_head *h = &c->req.head;
	const struct conn_limits *lim = c->loop->limits;

	memset(&c->chunks, 0, sizeof(c->chunks));
	text_clear(&c->body);
	if (h->length > lim->body) {
		/* The head is known: the answer and the log have its values. */
		conn_set_state(c, CONN_BODY);
		conn_refuse(c, 413, "request_too_large",
			    "the body is longer than this server accepts");
		return;
	}
	if (!h->length && !h->chunked) {
		conn_dispatch(c);
		return;
	}
	conn_set_state(c, CONN_BODY);
	conn_deadline(c, lim->body_s);
	if (h->expect && !evbuffer_get_length(conn_input(c)))
		conn_write(c, "HTTP/1.1 100 Continue\r\n\r\n", 25);
}

/* Empty lines before a request line are allowed and skipped. */
static void skip_empty_lines(struct evbuffer *in)
{
	char two[2];

	while (evbuffer_copyout(in, two, 2) == 2 && two[0] == '\r' &&
	       two[1] == '\n')
		evbuffer_drain(in, 2);
}

/* Return: true when there may be more to do. */
static bool conn_read_head(struct conn *c)
{
	struct evbuffer *in = conn_input(c);
	const char *why = "";
	size_t have, n;
	char *p;
	int status;

	skip_empty_lines(in);
	have = min(evbuffer_get_length(in), (size_t)HTTP_HEAD_MAX);
	if (!have)
		return false;
	if (!c->began) {
		c->began = true;
		loop_idle(c->loop, c, false);
		conn_deadline(c, c->loop->limits->head_s);
	}
	p = (char *)evbuffer_pullup(in, (ssize_t)have);
	n = p ? http_find_head(p, have) : 0;
	if (!p) {
		conn_kill(c);
	} else if (!n && have == HTTP_HEAD_MAX) {
		conn_refuse(c, 431, "header_too_large",
			    "the head of the request is longer than 16 KiB");
	} else if (n) {
		text_clear(&c->head);
		text_add(&c->head, p, n);
		evbuffer_drain(in, n);
		if (c->head.failed) {
			conn_kill(c);
			return false;
		}
		status = http_parse_head(c->head.p, n, &c->req.head, &why);
		if (status)
			conn_refuse(c, status, "bad_request", why);
		else
			conn_expect_body(c);
		return true;
	}
	return false;
}

/* Move received input into the body.  Return: as http_chunks_push(). */
static int conn_take_body(struct conn *c)
{
	const struct conn_limits *lim = c->loop->limits;
	const struct http_head *h = &c->req.head;
	struct evbuffer *in = conn_input(c);
	size_t n, used = 0;
	char *p;
	int ret = 0;

	while (!ret && (n = evbuffer_get_contiguous_space(in)) > 0) {
		p = (char *)evbuffer_pullup(in, (ssize_t)n);
		if (h->chunked) {
			ret = http_chunks_push(&c->chunks, p, n, &used,
					       &c->body, lim->body);
		} else {
			used = min(n, (size_t)(h->length - c->body.len));
			text_add(&c->body, p, used);
			ret = c->body.len == h->length;
		}
		evbuffer_drain(in, used);
		if (c->body.failed)
			return -503;
	}
	return ret;
}

static bool conn_read_body(struct conn *c)
{
	struct loop *l = c->loop;
	int ret;

	if (!evbuffer_get_length(conn_input(c)))
		return false;
	ret = conn_take_body(c);
	conn_count_body(c, c->body.len);
	if (ret >= 0 && READ_ONCE(l->crowd->bodies) > l->limits->bodies)
		ret = -503;
	if (ret == -413)
		conn_refuse(c, 413, "request_too_large",
			    "the body is longer than this server accepts");
	else if (ret == -503)
		conn_refuse(c, 503, "overloaded",
			    "no room for one more body: try again in a moment");
	else if (ret < 0)
		conn_refuse(c, 400, "bad_request", "the chunks of the body are malformed");
	else if (ret)
		conn_dispatch(c);
	return ret != 0;
}

/* Handle as much of the input as possible. */
static void conn_advance(struct conn *c)
{
	bool more = true;

	c->advancing = true;
	while (more && c->state != CONN_DEAD) {
		more = false;
		if (c->state == CONN_LINGER)
			conn_linger(c);
		else if (c->state > CONN_BODY ||
			 evbuffer_get_length(conn_output(c)) > CONN_PIPE_OUT)
			break;
		else if (c->state == CONN_HEAD)
			more = conn_read_head(c);
		else
			more = conn_read_body(c);
	}
	c->advancing = false;
}

/* ---- events ---- */

static void on_read(struct bufferevent *bev, void *arg)
{
	conn_advance(arg);
}

static void on_write(struct bufferevent *bev, void *arg)
{
	struct conn *c = arg;

	if (c->state == CONN_FLUSH && !evbuffer_get_length(conn_output(c)))
		conn_flushed(c);
	else if (c->state == CONN_BUSY && c->owner)
		c->owner->writable(c->owner);
	else if (c->state < CONN_BUSY)
		conn_advance(c);
}

static void on_event(struct bufferevent *bev, short what, void *arg)
{
	struct conn *c = arg;

	if (what & BEV_EVENT_TIMEOUT)
		tally(&c->loop->stats.timeouts, 1);
	conn_kill(c);
}

/* A deadline has passed. */
static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct conn *c = arg;

	if (c->state == CONN_LINGER || (c->state == CONN_HEAD && !c->began)) {
		conn_kill(c);
		return;
	}
	tally(&c->loop->stats.timeouts, 1);
	conn_refuse(c, 408, "request_timeout",
		    c->state == CONN_HEAD ?
		    "the head of the request did not come in time" :
		    "the body of the request did not come in time");
}

/* On the loop's thread: the connection has arrived. */
static void on_arrive(struct mail *m)
{
	struct conn *c = container_of(m, struct conn, arrive);
	struct loop *l = c->loop;
	const struct timeval stall = { l->limits->write_s, 0 };

	if (!l->draining)
		c->bev = bufferevent_socket_new(l->base, c->fd,
						BEV_OPT_CLOSE_ON_FREE);
	if (!c->bev) {
		__atomic_sub_fetch(&l->nr_conns, 1, __ATOMIC_RELAXED);
		close(c->fd);
		free(c);
		return;
	}
	evtimer_assign(&c->timer, l->base, on_timer, c);
	loop_link(l, c);
	loop_idle(l, c, true);
	bufferevent_setcb(c->bev, on_read, on_write, on_event, c);
	bufferevent_setwatermark(c->bev, EV_READ, 0, CONN_AHEAD);
	bufferevent_setwatermark(c->bev, EV_WRITE, CONN_LOW, 0);
	bufferevent_set_timeouts(c->bev, NULL, &stall);
	conn_deadline(c, l->limits->head_s);
	if (bufferevent_enable(c->bev, EV_READ | EV_WRITE))
		conn_kill(c);
}

struct conn *conn_new(struct loop *l, int fd, const struct sockaddr *addr)
{
	struct conn *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->loop = l;
	c->fd = fd;
	c->arrive.fn = on_arrive;
	access_peer_set(&c->peer, addr);
	return c;
}
