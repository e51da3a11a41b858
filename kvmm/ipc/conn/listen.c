// SPDX-License-Identifier: Apache-2.0
/*
 * listen.c - one listening socket: kept by hold, or made
 *
 * Under kvmm-hold a socket outlives the daemon: hold keeps a duplicate, and a
 * client that connects while there is no daemon waits in the queue of the
 * socket for the next one.
 *
 * Owner and mode of a socket are set before listen(2), until which no process
 * can connect.  A user that may rename the directory of a --tenant could put
 * another directory in its place at any time.  So such a socket is named by the
 * descriptor of its directory, and gets its mode when it gets its name.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <kvmm/fault.h>
#include <kvmm/log.h>

#include "kvmm/ipc/conn/conn.h"

#define BACKLOG		128

/**
 * socket_mode_parse() - read a mode in octal digits
 * @what: the option, for the message
 * Return: 0, or -EINVAL, which has been logged.
 */
int socket_mode_parse(const char *what, const char *s, mode_t *mode)
{
	char *end;
	long v;

	errno = 0;
	v = strtol(s, &end, 8);
	if (errno || *end || end == s || v < 0 || v > 0777) {
		pr_err("%s: '%.40s' is no mode: write octal digits, as 0600",
		       what, s);
		return -EINVAL;
	}
	*mode = (mode_t)v;
	return 0;
}

/* The name of the socket: in @perm's directory, or as a path. */
static const char *name_in(const struct sockaddr_un *addr,
			   const struct socket_perm *perm)
{
	return perm->dir == AT_FDCWD ? addr->sun_path :
	       strrchr(addr->sun_path, '/') + 1;
}

/* Was the socket bound to @name?  In a directory of a tenant the last part counts. */
static bool kept_is_named(const char *kept, const char *name,
			  const struct socket_perm *perm)
{
	const char *slash = strrchr(kept, '/');

	if (perm->dir != AT_FDCWD && slash)
		kept = slash + 1;
	return !strcmp(kept, name);
}

/* The socket that hold kept, if it is still at @addr; else -1. */
static int listen_kept(int kept, const struct sockaddr_un *addr,
		       const struct socket_perm *perm)
{
	const char *name = name_in(addr, perm);
	struct {
		struct sockaddr_un	sun;
		char			end;
	} at = { .end = 0 };
	socklen_t len = sizeof(at.sun);
	struct stat st;

	if (kept < 0)
		return -1;
	if (!getsockname(kept, (struct sockaddr *)&at.sun, &len) &&
	    kept_is_named(at.sun.sun_path, name, perm) &&
	    !fstatat(perm->dir, name, &st, 0) && S_ISSOCK(st.st_mode))
		return kept;
	close(kept);
	return -1;
}

/* Remove the socket of a daemon that died.  Another kind of file is an error. */
static int listen_clear(const char *name, const struct socket_perm *perm)
{
	struct stat st;

	if (fstatat(perm->dir, name, &st, AT_SYMLINK_NOFOLLOW))
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(st.st_mode))
		return -ENOTSOCK;
	return unlinkat(perm->dir, name, 0) ? -errno : 0;
}

/* bind(2) takes a path alone: for a directory, that of its descriptor. */
static int listen_bind(int fd, const struct sockaddr_un *addr, const char *name,
		       const struct socket_perm *perm)
{
	struct sockaddr_un at = *addr;
	mode_t mask;
	int err;

	if (perm->dir != AT_FDCWD)
		snprintf(at.sun_path, sizeof(at.sun_path),
			 "/proc/self/fd/%d/%.32s", perm->dir, name);
	mask = umask(0777 & ~perm->mode);
	err = bind(fd, (const struct sockaddr *)&at, sizeof(at)) ? -errno : 0;
	umask(mask);
	return err;
}

static int listen_make(const struct sockaddr_un *addr, int type,
		       const struct socket_perm *perm)
{
	const bool give = perm->uid != (uid_t)-1 || perm->gid != (gid_t)-1;
	const char *name = name_in(addr, perm);
	int err = listen_clear(name, perm);
	int fd;

	if (kv_fault(KV_FAULT_socket_listen))
		err = -EACCES;
	if (err)
		return err;
	fd = socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	err = listen_bind(fd, addr, name, perm);
	if (err) {
		close(fd);
		return err;
	}
	if (give && fchownat(perm->dir, name, perm->uid, perm->gid,
			     AT_SYMLINK_NOFOLLOW)) {
		err = -errno;
		unlinkat(perm->dir, name, 0);
		close(fd);
		return err;
	}
	return fd;
}

/**
 * socket_make_one() - take a socket that hold kept, or make one
 * @index: of hold's record
 * Return: 0, or a negative errno, which has been logged.
 */
int socket_make_one(struct sockets *s, struct watch *w, u32 index,
		    const struct sockaddr_un *addr, int type,
		    const struct socket_perm *perm)
{
	w->fd = listen_kept(s->deposit->listen[index], addr, perm);
	s->deposit->listen[index] = -1;
	if (w->fd >= 0)
		return 0;
	w->fd = listen_make(addr, type, perm);
	if (w->fd == -ENOTSOCK)
		pr_err("%s is in the way and is no socket: move it, or give another --socket",
		       addr->sun_path);
	else if (w->fd == -EPERM && perm->uid != (uid_t)-1)
		pr_err("socket %s cannot be given to user %u: only root may: leave owner= out, or give a mode=",
		       addr->sun_path, (u32)perm->uid);
	else if (w->fd == -EPERM && perm->gid != (gid_t)-1)
		pr_err("socket %s cannot be given to group %u: only root and its members may: name another --admin-group",
		       addr->sun_path, (u32)perm->gid);
	else if (w->fd < 0)
		pr_err("socket %s cannot be made: %s: choose a --socket in a directory that you may write",
		       addr->sun_path, strerror(-w->fd));
	if (w->fd < 0)
		return w->fd;
	deposit_put(s->deposit, HOLD_LISTEN, index, w->fd, 0);
	return 0;
}

/* socket_listen_one() - have @a accept its connections; 0 or -errno, logged */
int socket_listen_one(struct sockets *s, struct watch *w,
		      const struct sockaddr_un *addr, const struct acceptor *a)
{
	int err;

	w->fn = a->fn;
	w->arg = a->arg;
	err = listen(w->fd, BACKLOG) ? -errno : 0;
	if (!err)
		err = watch_add(s->loop, w, EPOLLIN);
	if (err)
		pr_err("socket %s cannot be listened on: %s", addr->sun_path,
		       strerror(-err));
	return err;
}
