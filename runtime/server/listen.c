// SPDX-License-Identifier: Apache-2.0
/*
 * listen.c - the addresses that a server listens on
 *
 * A port in use is refused, never shared.  A socket in the file system outlives
 * a killed program: a socket on which no program listens is replaced.  The new
 * socket is made under another name, with its permissions, and then renamed.
 * So at no time can a client connect without permission, and at no time does
 * the name lead to a socket without a server.
 */
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <kvmm/log.h>

#include "runtime/server/listen.h"

#define LISTEN_BACKLOG	4096

/* ---- a port ---- */

static int listen_at(const struct addrinfo *ai)
{
	const int on = 1;
	int fd, err;

	fd = socket(ai->ai_family, ai->ai_socktype | SOCK_CLOEXEC |
		    SOCK_NONBLOCK, ai->ai_protocol);
	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (!bind(fd, ai->ai_addr, ai->ai_addrlen) &&
	    !listen(fd, LISTEN_BACKLOG))
		return fd;
	err = -errno;
	close(fd);
	return err;
}

static const char *tcp_remedy(int err)
{
	switch (-err) {
	case EADDRINUSE:
		return "another program has the port, choose one with --port";
	case EACCES:
		return "ports below 1024 are for root, choose one with --port";
	case EADDRNOTAVAIL:
		return "this machine has no such address, choose one with --host";
	default:
		return "choose another with --host and --port";
	}
}

/* The real address, with the port that the system chose. */
static void name_address(int fd, char *url)
{
	struct sockaddr_storage sa;
	socklen_t len = sizeof(sa);
	char host[NI_MAXHOST] = "?", port[16] = "?";

	if (!getsockname(fd, (struct sockaddr *)&sa, &len))
		getnameinfo((struct sockaddr *)&sa, len, host, sizeof(host),
			    port, sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV);
	snprintf(url, LISTEN_URL, strchr(host, ':') ?
		 "http://[%s]:%s" : "http://%s:%s", host, port);
}

int listen_tcp(const char *host, u32 port, char *url)
{
	const struct addrinfo hints = {
		.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM,
		.ai_flags = AI_PASSIVE | AI_NUMERICSERV,
	};
	struct addrinfo *list, *ai;
	int err, fd = -EADDRNOTAVAIL;
	char text[16];

	snprintf(text, sizeof(text), "%u", port);
	err = getaddrinfo(host, text, &hints, &list);
	if (err) {
		pr_err("--host %.100s: %s: give an address of this machine, 127.0.0.1 for example",
		       host, gai_strerror(err));
		return -EINVAL;
	}
	for (ai = list; ai; ai = ai->ai_next) {
		fd = listen_at(ai);
		if (fd >= 0)
			break;
	}
	freeaddrinfo(list);
	if (fd < 0) {
		pr_err("cannot listen on %.100s port %u: %s: %s", host, port,
		       strerror(-fd), tcp_remedy(fd));
		return fd == -EINVAL ? -EADDRNOTAVAIL : fd;
	}
	name_address(fd, url);
	return fd;
}

/* ---- a socket in the file system ---- */

static int unix_address(struct sockaddr_un *sa, const char *path)
{
	*sa = (struct sockaddr_un){ .sun_family = AF_UNIX };
	if (!*path || strlen(path) >= sizeof(sa->sun_path))
		return -EINVAL;
	strcpy(sa->sun_path, path);
	return 0;
}

/* Return: 0: no program listens at @sa; or a negative errno. */
static int unix_is_free(const struct sockaddr_un *sa)
{
	struct stat st;
	int fd, err;

	if (lstat(sa->sun_path, &st))
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(st.st_mode))
		return -EEXIST;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	err = connect(fd, (const struct sockaddr *)sa, sizeof(*sa)) ? errno : 0;
	close(fd);
	if (err == ECONNREFUSED || err == ENOENT)
		return 0;
	/* EAGAIN: the backlog of a listening program is full. */
	return !err || err == EAGAIN ? -EADDRINUSE : -err;
}

static const char *unix_remedy(int err)
{
	switch (-err) {
	case EINVAL:
		return "give --unix a path of 1 to 100 bytes";
	case EADDRINUSE:
		return "another server listens there, choose another path with --unix";
	case EEXIST:
		return "it is no socket: remove it, or choose another path with --unix";
	default:
		return "choose another path with --unix";
	}
}

/* Bind and listen at @tmp, then rename it to @sa. */
static int unix_make(const struct sockaddr_un *sa, const struct sockaddr_un *tmp,
		     u32 mode, struct stat *st)
{
	int fd, err;

	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return -errno;
	unlink(tmp->sun_path);
	/* bind() makes the socket with the mode of the descriptor. */
	if (!fchmod(fd, mode) &&
	    !bind(fd, (const struct sockaddr *)tmp, sizeof(*tmp))) {
		if (!chmod(tmp->sun_path, mode) && !listen(fd, LISTEN_BACKLOG) &&
		    !lstat(tmp->sun_path, st) &&
		    !rename(tmp->sun_path, sa->sun_path))
			return fd;
		err = -errno;
		unlink(tmp->sun_path);
	} else {
		err = -errno;
	}
	close(fd);
	return err;
}

int listen_unix(struct listen_path *l, const char *path, u32 mode)
{
	struct sockaddr_un sa, tmp;
	char name[sizeof(sa.sun_path) + 16];
	int fd;

	fd = unix_address(&sa, path);
	snprintf(name, sizeof(name), "%.*s.%d", (int)sizeof(sa.sun_path), path,
		 getpid());
	if (!fd)
		fd = unix_address(&tmp, name);
	if (!fd)
		fd = unix_is_free(&sa);
	if (!fd)
		fd = unix_make(&sa, &tmp, mode, &l->st);
	if (fd < 0)
		pr_err("cannot listen on unix:%.110s: %s: %s", path,
		       strerror(-fd), unix_remedy(fd));
	else
		l->path = path;
	return fd;
}

void listen_unix_end(struct listen_path *l)
{
	struct stat st;

	if (l->path && !lstat(l->path, &st) && st.st_ino == l->st.st_ino &&
	    st.st_dev == l->st.st_dev)
		unlink(l->path);
	l->path = NULL;
}
