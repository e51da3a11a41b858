// SPDX-License-Identifier: Apache-2.0
/*
 * socket.c - the instance lock and the daemon's own listening sockets
 *
 * Beside the attach socket lies a lock file.  The daemon that holds its flock
 * owns all sockets: a socket that is there when the lock was free belongs to a
 * daemon that died, and is replaced.  The daemon unlinks the lock file at its
 * end, so after locking the file it checks that the file is still the one in
 * the directory.
 *
 * Under kvmm-hold the lock and the sockets outlive this process (listen.c).
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <kvmm/log.h>
#include <kvmm/rundir.h>

#include "kvmm/ipc/conn/conn.h"

#define LOCK_TRIES	20

/**
 * socket_mode() - judge --socket-mode
 * Return: 0, or -EINVAL, which has been logged.
 */
int socket_mode(struct sockets *s)
{
	return socket_mode_parse("--socket-mode", s->setup->opt.socket_mode,
				 &s->attach_mode);
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
 * socket_paths() - the names of the sockets and of the lock
 *
 * The directory of the default socket is made, one that --socket names is not.
 * --socket names the attach socket, or the directory of all of them.
 */
int socket_paths(struct sockets *s)
{
	char dir[sizeof(s->attach_addr.sun_path)], path[4096];
	const char *given = s->setup->opt.socket, *slash;
	size_t dir_len;
	int err;

	s->attach_addr.sun_family = AF_UNIX;
	s->view_addr.sun_family = AF_UNIX;
	s->admin_addr.sun_family = AF_UNIX;
	if (!given) {
		if (kv_rundir(dir, sizeof(dir)))
			return paths_too_long("in the run directory");
		err = kv_rundir_make(dir);
		if (err)
			return rundir_failed(dir, err);
		snprintf(path, sizeof(path), "%s/%s", dir, KV_ATTACH_SOCKET);
	} else if (kv_rundir_socket(given, KV_ATTACH_SOCKET, path, sizeof(path))) {
		return paths_too_long(given);
	}
	given = path;
	slash = strrchr(given, '/');
	dir_len = slash ? (size_t)(slash - given) + 1 : 0;
	if (path_join(s->attach_addr.sun_path, sizeof(s->attach_addr.sun_path),
		      given, strlen(given), "") ||
	    path_join(s->view_addr.sun_path, sizeof(s->view_addr.sun_path),
		      given, dir_len, KV_VIEW_SOCKET) ||
	    path_join(s->admin_addr.sun_path, sizeof(s->admin_addr.sun_path),
		      given, dir_len, KV_ADMIN_SOCKET) ||
	    path_join(s->lock_path, sizeof(s->lock_path), given, strlen(given),
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
		/* The last daemon unlinked it between open and flock. */
		close(fd);
	}
	return -EAGAIN;
}

/**
 * socket_lock() - become the one daemon of this socket
 * Return: 0; -EWOULDBLOCK: another daemon serves it; another negative errno.
 * Errors have been logged.
 */
int socket_lock(struct sockets *s)
{
	if (s->deposit->lock >= 0) {
		if (lock_is_current(s->deposit->lock, s->lock_path)) {
			s->lock_fd = s->deposit->lock;
			s->deposit->lock = -1;
			return 0;
		}
		close(s->deposit->lock);
		s->deposit->lock = -1;
	}
	s->lock_fd = lock_take(s->lock_path);
	if (s->lock_fd >= 0) {
		deposit_put(s->deposit, HOLD_LOCK, 0, s->lock_fd, 0);
		return 0;
	}
	if (s->lock_fd == -EWOULDBLOCK)
		pr_err("another daemon serves %s: stop it, or give this one another --socket",
		       s->attach_addr.sun_path);
	else
		pr_err("lock %s cannot be taken: %s: choose a --socket in a directory that you may write",
		       s->lock_path, strerror(-s->lock_fd));
	return s->lock_fd;
}

/**
 * socket_make() - make the sockets, while rights to make names are left
 *
 * No process can connect to them before socket_listen().  The view and admin
 * sockets are for the daemon's own user: one shows every tenant, the other
 * changes limits of all tenants.  Groups with rights (rights.c) can connect, too:
 * all users to the view socket, which may belong to the group of kvmm-proc, and is
 * guarded by the check of each peer; the group alone to the admin socket.
 */
int socket_make(struct sockets *s)
{
	struct socket_perm perm = {
		.mode = 0600, .uid = (uid_t)-1, .gid = (gid_t)-1,
		.dir = AT_FDCWD,
	};
	int err;

	if (s->rights.read.valid || s->rights.admin.valid)
		perm.mode = 0666;
	err = socket_make_one(s, &s->view, 1, &s->view_addr, SOCK_STREAM,
			      &perm);
	perm.mode = s->rights.admin.valid ? 0660 : 0600;
	if (s->rights.admin.valid)
		perm.gid = s->rights.admin.gid;
	if (!err)
		err = socket_make_one(s, &s->admin, 2, &s->admin_addr,
				      SOCK_SEQPACKET, &perm);
	if (!err)
		err = door_make(s);
	if (err)
		return err;
	perm.gid = (gid_t)-1;
	perm.mode = s->attach_mode;
	return socket_make_one(s, &s->attach, 0, &s->attach_addr,
			       SOCK_SEQPACKET, &perm);
}

/* socket_listen() - from here on there are clients */
int socket_listen(struct sockets *s, const struct acceptors *a)
{
	int err;

	err = socket_listen_one(s, &s->view, &s->view_addr, &a->view);
	if (!err)
		err = socket_listen_one(s, &s->admin, &s->admin_addr,
					&a->admin);
	if (!err)
		err = door_listen(s, a);
	return err ? err : socket_listen_one(s, &s->attach, &s->attach_addr,
					     &a->attach);
}

/* A socket that hold kept and a failed start did not take is removed too. */
static void unlink_names(const struct sockets *s)
{
	const struct deposit *p = s->deposit;

	if (s->attach.fd >= 0 || (s->lock_fd >= 0 && p->listen[0] >= 0))
		unlink(s->attach_addr.sun_path);
	if (s->view.fd >= 0 || (s->lock_fd >= 0 && p->listen[1] >= 0))
		unlink(s->view_addr.sun_path);
	if (s->admin.fd >= 0 || (s->lock_fd >= 0 && p->listen[2] >= 0))
		unlink(s->admin_addr.sun_path);
	/* The lock file stays when hold must remove names that this user may not. */
	if ((door_unlink(s) || s->deposit->fd < 0) && s->lock_fd >= 0)
		unlink(s->lock_path);
}

/**
 * socket_close() - remove all names, as far as this user may; hold does the rest
 *
 * The listening sockets stay open until exit: connections that were not
 * accepted may carry descriptors that take long to close (closer.c), and a
 * process that ends does not wait for them.
 */
void socket_close(struct sockets *s)
{
	unlink_names(s);
	watch_remove(s->loop, &s->attach);
	watch_remove(s->loop, &s->view);
	watch_remove(s->loop, &s->admin);
	door_close(s);
	if (s->lock_fd >= 0) {
		close(s->lock_fd);
		s->lock_fd = -1;
	}
}
