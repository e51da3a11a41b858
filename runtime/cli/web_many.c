// SPDX-License-Identifier: Apache-2.0
/*
 * web_many.c - many calls in one thread, without blocking
 *
 * Beside web.c, for a program that has thousands of requests open: the name of
 * the server is looked up once, connecting and sending go on when the caller's
 * event loop reports that they can, and a connection serves one request after
 * the other if the server keeps it open.  web_call_read() reads the answer.
 */
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include "runtime/cli/web.h"

int web_resolve(const struct web_server *s, struct web_address *a)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
	struct addrinfo *list, *i;
	int fd = -1;

	memset(a, 0, sizeof(*a));
	if (s->path[0]) {
		a->len = web_unix_address(s, &a->addr);
		a->type = AF_UNIX;
		return 0;
	}
	if (getaddrinfo(s->host, s->port, &hints, &list))
		return -ENXIO;
	/*
	 * Take the first address with a listening program, else the first one.
	 */
	for (i = list; i && fd < 0; i = i->ai_next) {
		fd = socket(i->ai_family, i->ai_socktype | SOCK_CLOEXEC, 0);
		if (fd >= 0 && connect(fd, i->ai_addr, i->ai_addrlen)) {
			close(fd);
			fd = -1;
		}
		if (fd < 0 && i != list)
			continue;
		memcpy(&a->addr, i->ai_addr, i->ai_addrlen);
		a->len = i->ai_addrlen;
		a->type = i->ai_family;
	}
	if (fd >= 0)
		close(fd);
	freeaddrinfo(list);
	return 0;
}

static int connect_start(const struct web_address *a)
{
	const int one = 1;
	int fd, err;

	fd = socket(a->type, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	/* A request is written at once; no byte should wait for more. */
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (!connect(fd, (const struct sockaddr *)&a->addr, a->len) ||
	    errno == EINPROGRESS)
		return fd;
	err = -errno;
	close(fd);
	return err;
}

int web_call_start(struct web_call *c, const struct web_server *s,
		   const struct web_address *a, int fd, const char *path,
		   const char *key, const struct text *body)
{
	memset(c, 0, sizeof(*c));
	c->keep = true;
	c->left = -1;
	c->fd = fd >= 0 ? fd : connect_start(a);
	if (c->fd < 0) {
		const int err = c->fd;

		c->fd = -1;
		return err;
	}
	web_write_head(&c->out, s, path, key, body->len, true);
	text_add(&c->out, body->p, body->len);
	if (!c->out.failed && !body->failed)
		return 0;
	web_call_end(c);
	return -ENOMEM;
}

int web_call_write(struct web_call *c)
{
	ssize_t n;

	while (c->sent < c->out.len) {
		n = send(c->fd, c->out.p + c->sent, c->out.len - c->sent,
			 MSG_NOSIGNAL | MSG_DONTWAIT);
		if (n >= 0)
			c->sent += (size_t)n;
		else if (errno == EAGAIN || errno == ENOTCONN)
			return 1;
		else if (errno != EINTR)
			return -errno;
	}
	text_free(&c->out);
	return 0;
}

int web_call_take(struct web_call *c)
{
	int fd = -1;

	if (c->over && !c->closes && !c->out.len) {
		fd = c->fd;
		c->fd = -1;
	}
	return fd;
}

bool web_is_idle(int fd)
{
	char c;

	/* The connection is neither closed, nor has it unexpected input. */
	return recv(fd, &c, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}
