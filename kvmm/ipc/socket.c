// SPDX-License-Identifier: Apache-2.0
/*
 * socket.c - the instance lock and the listening sockets
 *
 * Beside the attach socket lies a lock file.  Who holds its flock owns all
 * sockets: a socket that is there when the lock was free belongs to a daemon
 * that died, and is replaced.  The lock file is unlinked by its holder, so
 * whoever locks one looks whether it is still the one in the directory.
 *
 * Under kvmm-hold the lock and the sockets outlive this process: hold keeps
 * duplicates, and clients that connect while there is no daemon wait in the
 * queue of the socket for the next one.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <kvmm/fault.h>
#include <kvmm/log.h>
#include <kvmm/rundir.h>

#include "kvmm/ipc/daemon.h"

#define BACKLOG		128
#define LOCK_TRIES	20

/* socket_mode_parse() - octal digits; @what: the option, for who wrote others */
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

/**
 * socket_mode() - judge --socket-mode
 * Return: 0; -EINVAL when it is no mode, which has been told.
 */
int socket_mode(struct daemon *d)
{
	return socket_mode_parse("--socket-mode", d->setup.opt.socket_mode,
				 &d->attach_mode);
}

static int path_join(char *out, size_t len, const char *dir, size_t dir_len,
		     const char *name)
{
	int n = snprintf(out, len, "%.*s%s", (int)dir_len, dir, name);

	return n < 0 || (size_t)n >= len ? -ENAMETOOLONG : 0;
}

static int paths_too_long(const char *path)
{
	pr_err("the path of the socket, %s, is longer than a socket's name may be: give a shorter --socket",
	       path);
	return -ENAMETOOLONG;
}

static int rundir_failed(const char *dir, int err)
{
	if (err == -EPERM)
		pr_err("%s belongs to another user or is open to others: remove it, or set KVMM_RUNDIR",
		       dir);
	else
		pr_err("directory %s cannot be made: %s: set KVMM_RUNDIR to one that can",
		       dir, strerror(-err));
	return err;
}

/**
 * socket_paths() - the names of both sockets and of the lock
 *
 * The directory of the default socket is made, one that was named is not.
 */
int socket_paths(struct daemon *d)
{
	char dir[sizeof(d->attach_addr.sun_path)], path[4096];
	const char *given = d->setup.opt.socket, *slash;
	size_t dir_len;
	int err;

	d->attach_addr.sun_family = AF_UNIX;
	d->view_addr.sun_family = AF_UNIX;
	d->admin_addr.sun_family = AF_UNIX;
	if (!given) {
		if (kv_rundir(dir, sizeof(dir)))
			return paths_too_long("in the run directory");
		err = kv_rundir_make(dir);
		if (err)
			return rundir_failed(dir, err);
		snprintf(path, sizeof(path), "%s/%s", dir, KV_ATTACH_SOCKET);
		given = path;
	}
	slash = strrchr(given, '/');
	dir_len = slash ? (size_t)(slash - given) + 1 : 0;
	if (path_join(d->attach_addr.sun_path, sizeof(d->attach_addr.sun_path),
		      given, strlen(given), "") ||
	    path_join(d->view_addr.sun_path, sizeof(d->view_addr.sun_path),
		      given, dir_len, KV_VIEW_SOCKET) ||
	    path_join(d->admin_addr.sun_path, sizeof(d->admin_addr.sun_path),
		      given, dir_len, KV_ADMIN_SOCKET) ||
	    path_join(d->lock_path, sizeof(d->lock_path), given, strlen(given),
		      ".lock"))
		return paths_too_long(given);
	return 0;
}

/* Is the open file @fd the one that lies at @path? */
static bool lock_is_current(int fd, const char *path)
{
	struct stat here, there;

	return !fstat(fd, &here) && !stat(path, &there) &&
	       here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

/* A descriptor that holds the lock, or -EWOULDBLOCK, or another errno. */
static int lock_take(const char *path)
{
	int fd, i, err;

	for (i = 0; i < LOCK_TRIES; i++) {
		fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW,
			  0600);
		if (fd < 0)
			return -errno;
		if (flock(fd, LOCK_EX | LOCK_NB)) {
			err = -errno;
			close(fd);
			return err;
		}
		if (lock_is_current(fd, path))
			return fd;
		/* Its last holder unlinked it between open and flock. */
		close(fd);
	}
	return -EAGAIN;
}

/**
 * socket_lock() - become the one daemon of this socket
 * Return: 0; -EWOULDBLOCK: another serves it; another negative errno.  What
 * went wrong has been told.
 */
int socket_lock(struct daemon *d)
{
	if (d->deposit.lock >= 0) {
		if (lock_is_current(d->deposit.lock, d->lock_path)) {
			d->lock_fd = d->deposit.lock;
			d->deposit.lock = -1;
			return 0;
		}
		close(d->deposit.lock);
		d->deposit.lock = -1;
	}
	d->lock_fd = lock_take(d->lock_path);
	if (d->lock_fd >= 0) {
		deposit_put(&d->deposit, HOLD_LOCK, 0, d->lock_fd, 0);
		return 0;
	}
	if (d->lock_fd == -EWOULDBLOCK)
		pr_err("another daemon serves %s: stop it, or give this one another --socket",
		       d->attach_addr.sun_path);
	else
		pr_err("lock %s cannot be taken: %s: choose a --socket in a directory that you may write",
		       d->lock_path, strerror(-d->lock_fd));
	return d->lock_fd;
}

/* Of the socket in @perm's directory, or from anywhere. */
static const char *name_in(const struct sockaddr_un *addr,
			   const struct socket_perm *perm)
{
	return perm->dir == AT_FDCWD ? addr->sun_path :
	       strrchr(addr->sun_path, '/') + 1;
}

/* Does it have that name?  In a directory of ours the last part says it. */
static bool kept_is_named(const char *kept, const char *name,
			  const struct socket_perm *perm)
{
	const char *slash = strrchr(kept, '/');

	if (perm->dir != AT_FDCWD && slash)
		kept = slash + 1;
	return !strcmp(kept, name);
}

/* The socket that hold kept, if it is still the one at @addr. */
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

/* Remove the socket of a daemon that died; leave anything else alone. */
static int listen_clear(const char *name, const struct socket_perm *perm)
{
	struct stat st;

	if (fstatat(perm->dir, name, &st, AT_SYMLINK_NOFOLLOW))
		return errno == ENOENT ? 0 : -errno;
	if (!S_ISSOCK(st.st_mode))
		return -ENOTSOCK;
	return unlinkat(perm->dir, name, 0) ? -errno : 0;
}

/* bind(2) knows no directory but by name: by that of its descriptor, then. */
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

/*
 * Nobody but the daemon's user may write in the directory, and nobody can
 * connect before listen(): owner and mode are there before it matters.  Who may
 * rename the directory could put another one in its place at any time: so that
 * of a tenant goes by its descriptor, and the mode comes with the name.
 */
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

/* socket_make_one() - as hold kept it, or anew; what went wrong was told */
int socket_make_one(struct daemon *d, struct watch *w, u32 index,
		    const struct sockaddr_un *addr, int type,
		    const struct socket_perm *perm)
{
	w->fd = listen_kept(d->deposit.listen[index], addr, perm);
	d->deposit.listen[index] = -1;
	if (w->fd >= 0)
		return 0;
	w->fd = listen_make(addr, type, perm);
	if (w->fd == -ENOTSOCK)
		pr_err("%s is in the way and is no socket: move it, or give another --socket",
		       addr->sun_path);
	else if (w->fd == -EPERM && perm->uid != (uid_t)-1)
		pr_err("socket %s cannot be given to user %u: only root may: leave owner= out, or give a mode=",
		       addr->sun_path, (u32)perm->uid);
	else if (w->fd < 0)
		pr_err("socket %s cannot be made: %s: choose a --socket in a directory that you may write",
		       addr->sun_path, strerror(-w->fd));
	if (w->fd < 0)
		return w->fd;
	deposit_put(&d->deposit, HOLD_LISTEN, index, w->fd, 0);
	return 0;
}

/**
 * socket_make() - the sockets' names, while rights to make them are left
 *
 * Nobody can connect to them before socket_listen().  The view and admin
 * sockets are for the daemon's own user: one shows every tenant, the other
 * changes what all of them have.
 */
int socket_make(struct daemon *d)
{
	struct socket_perm perm = {
		.mode = 0600, .uid = (uid_t)-1, .gid = (gid_t)-1,
		.dir = AT_FDCWD,
	};
	int err;

	err = socket_make_one(d, &d->view_sock, 1, &d->view_addr, SOCK_STREAM,
			      &perm);
	if (!err)
		err = socket_make_one(d, &d->admin_sock, 2, &d->admin_addr,
				      SOCK_SEQPACKET, &perm);
	if (!err)
		err = door_make(d);
	if (err)
		return err;
	perm.mode = d->attach_mode;
	return socket_make_one(d, &d->attach_sock, 0, &d->attach_addr,
			       SOCK_SEQPACKET, &perm);
}

int socket_listen_one(struct daemon *d, struct watch *w,
		      const struct sockaddr_un *addr)
{
	int err = listen(w->fd, BACKLOG) ? -errno : watch_add(&d->loop, w, EPOLLIN);

	if (err)
		pr_err("socket %s cannot be listened on: %s", addr->sun_path,
		       strerror(-err));
	return err;
}

/* socket_listen() - from here on there are clients */
int socket_listen(struct daemon *d)
{
	int err;

	d->attach_sock.fn = client_accept;
	d->attach_sock.arg = d;
	d->view_sock.fn = view_accept;
	d->view_sock.arg = d;
	d->admin_sock.fn = admin_accept;
	d->admin_sock.arg = d;
	err = socket_listen_one(d, &d->view_sock, &d->view_addr);
	if (!err)
		err = socket_listen_one(d, &d->admin_sock, &d->admin_addr);
	if (!err)
		err = door_listen(d);
	return err ? err : socket_listen_one(d, &d->attach_sock,
					     &d->attach_addr);
}

/* Kept by hold for a start that failed before it took them: ours too. */
static void unlink_names(const struct daemon *d)
{
	const struct deposit *p = &d->deposit;

	if (d->attach_sock.fd >= 0 || (d->lock_fd >= 0 && p->listen[0] >= 0))
		unlink(d->attach_addr.sun_path);
	if (d->view_sock.fd >= 0 || (d->lock_fd >= 0 && p->listen[1] >= 0))
		unlink(d->view_addr.sun_path);
	if (d->admin_sock.fd >= 0 || (d->lock_fd >= 0 && p->listen[2] >= 0))
		unlink(d->admin_addr.sun_path);
	/* With the lock it is left to hold to remove what this user may not. */
	if ((door_unlink(d) || d->deposit.fd < 0) && d->lock_fd >= 0)
		unlink(d->lock_path);
}

/*
 * Nothing of the names is left: hold removes what this user may not.  The
 * listening sockets stay open until exit: connections that nobody accepted may
 * carry descriptors that take long to close (closer.c), and a process that
 * ends does not wait for them.
 */
void socket_close(struct daemon *d)
{
	unlink_names(d);
	watch_remove(&d->loop, &d->attach_sock);
	watch_remove(&d->loop, &d->view_sock);
	watch_remove(&d->loop, &d->admin_sock);
	door_close(d);
	if (d->lock_fd >= 0) {
		close(d->lock_fd);
		d->lock_fd = -1;
	}
}
