// SPDX-License-Identifier: Apache-2.0
/*
 * listen.c - endpoints of --kv-events, and their listening sockets
 *
 * An endpoint is tcp://ADDR:PORT, with * for every address of the machine, or
 * ipc://PATH.  The daemon binds it; subscribers connect.  The sockets are made here,
 * before rights are given up, and ZeroMQ gets their descriptors: so a wrong endpoint is
 * found before anything is served, no name is looked up, and ZeroMQ's threads start
 * without rights.
 */
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <kvmm/log.h>

#include "kvmm/ipc/events/events.h"

#define BACKLOG		64
#define TOPIC_MOST	255u

/* ---- options ---- */

static int parse_tcp(const char *s, struct ev_listen *l)
{
	char text[KV_ADDR_TEXT];
	int n;

	if (!strchr(s, ':'))
		return -EINVAL;
	n = snprintf(text, sizeof(text), "%s%s", *s == '*' ? "0.0.0.0" : "",
		     s + (*s == '*'));
	if (n < 0 || (size_t)n >= sizeof(text))
		return -EINVAL;
	return kv_addr_parse(text, &l->addr);
}

static int parse_ipc(const char *s, struct ev_listen *l)
{
	/* A path that begins with @ is a name without a file, in ZeroMQ. */
	if (*s != '/' || strlen(s) >= sizeof(l->path.sun_path))
		return -EINVAL;
	l->ipc = true;
	l->path.sun_family = AF_UNIX;
	strcpy(l->path.sun_path, s);
	return 0;
}

/**
 * ev_listen_parse() - an endpoint: tcp and ADDR:PORT or *:PORT, ipc and a path
 * Return: 0 or -EINVAL.
 */
int ev_listen_parse(const char *text, struct ev_listen *l)
{
	memset(l, 0, sizeof(*l));
	l->fd = -1;
	if (!strncmp(text, "tcp://", 6))
		return parse_tcp(text + 6, l);
	if (!strncmp(text, "ipc://", 6))
		return parse_ipc(text + 6, l);
	return -EINVAL;
}

static int endpoint(const char *option, const char *text, struct ev_listen *l)
{
	if (!text || !ev_listen_parse(text, l))
		return 0;
	pr_err("--%s: '%.120s' is no endpoint: give tcp://*:5557, tcp://127.0.0.1:5557, tcp://[::1]:5557, in numbers, or ipc:///absolute/path",
	       option, text);
	return -EINVAL;
}

/**
 * events_options() - judge the options --kv-events*
 * Return: 0, or -EINVAL, which has been logged.
 */
int events_options(struct events *e)
{
	const struct kvmm_options *o = &e->setup->opt;

	e->listen.fd = -1;
	e->replay.fd = -1;
	if (endpoint("kv-events", o->kv_events, &e->listen) ||
	    endpoint("kv-events-replay", o->kv_events_replay, &e->replay))
		return -EINVAL;
	if (o->kv_events_replay && !o->kv_events) {
		pr_err("--kv-events-replay answers for batches that --kv-events publishes: give that, too");
		return -EINVAL;
	}
	if (o->kv_events_topic && strlen(o->kv_events_topic) > TOPIC_MOST) {
		pr_err("--kv-events-topic is longer than %u bytes: give a shorter one",
		       TOPIC_MOST);
		return -EINVAL;
	}
	if (o->kv_events && !events_built()) {
		pr_err("--kv-events: this kvmm was built without libzmq: build it where libzmq3-dev is installed");
		return -EINVAL;
	}
	return 0;
}

/* ---- sockets ---- */

static const struct sockaddr *where(const struct ev_listen *l, socklen_t *len)
{
	*len = l->ipc ? sizeof(l->path) : l->addr.len;
	return l->ipc ? (const struct sockaddr *)&l->path : &l->addr.sa;
}

/* The endpoint with the port that the system chose, if it was to choose one. */
static int endpoint_name(struct ev_listen *l)
{
	char text[KV_ADDR_TEXT];
	struct kv_addr a = { .len = sizeof(a.in6) };

	if (l->ipc) {
		snprintf(l->url, sizeof(l->url), "ipc://%s", l->path.sun_path);
		return 0;
	}
	if (getsockname(l->fd, &a.sa, &a.len))
		return -errno;
	snprintf(l->url, sizeof(l->url), "tcp://%s", kv_addr_format(&a, text));
	return 0;
}

/* Remove the socket of a daemon that died.  Another kind of file is an error. */
static int path_clear(const char *path)
{
	struct stat st;

	if (lstat(path, &st))
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(st.st_mode))
		return -ENOTSOCK;
	return unlink(path) ? -errno : 0;
}

/* Only this user, and root, may connect to a path. */
static int bind_private(int fd, const struct sockaddr *sa, socklen_t len)
{
	const mode_t mask = umask(0177);
	const int err = bind(fd, sa, len) ? -errno : 0;

	umask(mask);
	return err;
}

static int listen_on(struct ev_listen *l)
{
	const int one = 1;
	socklen_t len;
	const struct sockaddr *sa = where(l, &len);
	int err = l->ipc ? path_clear(l->path.sun_path) : 0;

	if (err)
		return err;
	l->fd = socket(sa->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (l->fd < 0)
		return -errno;
	if (!l->ipc && setsockopt(l->fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)))
		return -errno;
	err = bind_private(l->fd, sa, len);
	if (err)
		return err;
	l->made = true;
	if (listen(l->fd, BACKLOG))
		return -errno;
	return endpoint_name(l);
}

/* ev_listen_close() - also where ZeroMQ has the listening socket */
void ev_listen_close(struct ev_listen *l)
{
	/* In a directory where this user may not, the next daemon does it. */
	if (l->ipc && l->made)
		unlink(l->path.sun_path);
	l->made = false;
	if (l->fd >= 0)
		close(l->fd);
	l->fd = -1;
}

/**
 * ev_listen_open() - make the listening socket
 * Return: 0 or a negative errno.
 */
int ev_listen_open(struct ev_listen *l)
{
	int err = listen_on(l);

	if (err)
		ev_listen_close(l);
	return err;
}

static int open_one(const char *option, const char *text, struct ev_listen *l)
{
	int err = text ? ev_listen_open(l) : 0;

	if (err)
		pr_err("--%s: %s cannot be bound: %s: give another endpoint", option, text,
		       strerror(-err));
	return err;
}

/**
 * events_listen() - make the listening sockets of the options
 * Return: 0 or a negative errno, which has been logged.
 */
int events_listen(struct events *e)
{
	const struct kvmm_options *o = &e->setup->opt;
	int err = open_one("kv-events", o->kv_events, &e->listen);

	return err ? err : open_one("kv-events-replay", o->kv_events_replay, &e->replay);
}
