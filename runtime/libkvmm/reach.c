// SPDX-License-Identifier: Apache-2.0
/*
 * reach.c - find the daemon's socket and connect to it
 *
 * Where no connection can be had, the line for people says which of three cases
 * it is, since each has another remedy: no daemon runs; a daemon runs, but has
 * no sockets for this user or tenant; the sockets are there, but closed to this
 * user.
 */
#include <fcntl.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <kvmm/rundir.h>

#include "runtime/libkvmm/internal.h"

#define NAME_LEN	48

int lk_fail(char *text, int err, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, LK_TEXT_LEN, fmt, ap);
	va_end(ap);
	return err;
}

/* ------------------------------------------------------------------ */
/* The path                                                            */

/* lk_socket_path() - the daemon's socket: @name, a file or the run directory, else the default */
int lk_socket_path(const char *name, char *path, size_t size, char *text)
{
	const char *env = getenv("KVMM_SOCKET");
	int ret;

	if (!name && env && *env)
		name = env;
	ret = kv_rundir_socket(name, KV_ATTACH_SOCKET, path, size);
	if (ret == -EPERM)
		return lk_fail(text, ret,
			       "/tmp/kvmm-%u belongs to another user or is open to others: remove it, or set KVMM_RUNDIR",
			       (u32)geteuid());
	return ret ? lk_fail(text, ret, "the path of the socket is too long") : 0;
}

/* ------------------------------------------------------------------ */
/* Why there is no connection                                          */

/* The name of user @uid, or its number.  Return: @name */
static const char *user_name(uid_t uid, char *name)
{
	struct passwd pw, *found = NULL;
	char room[1024];

	if (getpwuid_r(uid, &pw, room, sizeof(room), &found) || !found)
		snprintf(name, NAME_LEN, "%u", (u32)uid);
	else
		snprintf(name, NAME_LEN, "%s", pw.pw_name);
	return name;
}

static int connect_addr(int fd, const char *path)
{
	struct sockaddr_un addr = { .sun_family = AF_UNIX };

	memcpy(addr.sun_path, path, strlen(path));
	return connect(fd, (struct sockaddr *)&addr, sizeof(addr)) ? errno : 0;
}

/*
 * Does a daemon serve @dir?  Return: EACCES: it does, but does not admit this
 * user; 0: it does; else another errno.
 */
static int daemon_at(const char *dir)
{
	char path[sizeof(((struct sockaddr_un *)NULL)->sun_path)];
	int fd, err;

	if (snprintf(path, sizeof(path), "%s/" KV_ATTACH_SOCKET, dir) >=
	    (int)sizeof(path))
		return ENAMETOOLONG;
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return errno;
	err = connect_addr(fd, path);
	close(fd);
	return err == EAGAIN ? 0 : err;
}

/* Nothing listens at @path. */
static int none_there(const char *path, int err, char *text)
{
	char dir[sizeof(((struct sockaddr_un *)NULL)->sun_path)] = "";
	char user[NAME_LEN], *slash, *name = NULL;
	int node = ENOENT;

	/* DIR/NAME/attach.sock: does a daemon serve DIR, without this tenant? */
	snprintf(dir, sizeof(dir), "%s", path);
	slash = strrchr(dir, '/');
	if (slash && slash != dir) {
		*slash = '\0';
		name = strrchr(dir, '/');
	}
	if (name && name != dir) {
		*name++ = '\0';
		node = daemon_at(dir);
	}
	if (!node || node == EACCES)
		return lk_fail(text, -err,
			       "the daemon at %s has no tenant %s: write the line `tenant = %s,owner=%s` into its kvmm.conf and restart it (nothing listens at %s)",
			       dir, name, name, user_name(geteuid(), user), path);
	return lk_fail(text, -err,
		       "no daemon at %s: start it with kvmm-hold or systemctl start kvmm, or name its directory with --socket DIR or in KVMM_RUNDIR",
		       path);
}

/* Is @path a daemon's own socket, and not that of a tenant? */
static bool is_own(const char *path)
{
	char admin[sizeof(((struct sockaddr_un *)NULL)->sun_path) + 16];
	const char *slash = strrchr(path, '/');

	snprintf(admin, sizeof(admin), "%.*s/" KV_ADMIN_SOCKET,
		 slash ? (int)(slash - path) : 1, slash ? path : ".");
	return !access(admin, F_OK);
}

/* A directory above @path, or the socket itself, is closed to this user. */
static int closed(const char *path, int err, char *text)
{
	char at[sizeof(((struct sockaddr_un *)NULL)->sun_path)];
	char owner[NAME_LEN], user[NAME_LEN], *slash = at;
	struct stat st;

	snprintf(at, sizeof(at), "%s", path);
	user_name(geteuid(), user);
	while ((slash = strchr(slash + 1, '/'))) {
		*slash = '\0';
		if (!stat(at, &st) && faccessat(AT_FDCWD, at, X_OK, AT_EACCESS))
			return lk_fail(text, -err,
				       "user %s may not look into %s, of user %s with mode %04o: become %s, or let it give `chmod o+x %s`",
				       user, at, user_name(st.st_uid, owner),
				       st.st_mode & 07777, owner, at);
		*slash = '/';
	}
	if (stat(path, &st))
		return lk_fail(text, -err,
			       "user %s has no permission for %s: ask its owner for access",
			       user, path);
	user_name(st.st_uid, owner);
	if (is_own(path))
		return lk_fail(text, -err,
			       "%s, of user %s with mode %04o, is not for user %s: a line `tenant = NAME,owner=%s` in kvmm.conf makes NAME/ beside it; name that directory in KVMM_RUNDIR",
			       path, owner, st.st_mode & 07777, user, user);
	return lk_fail(text, -err,
		       "user %s has no permission for %s, of user %s with mode %04o: become %s, or change owner= and mode= of its `tenant =` line in kvmm.conf",
		       user, path, owner, st.st_mode & 07777, owner);
}

static int connect_failed(const char *path, int err, char *text)
{
	switch (err) {
	case ENOENT:
	case ECONNREFUSED:
		return none_there(path, err, text);
	case EACCES:
	case EPERM:
		return closed(path, err, text);
	case EPROTOTYPE:
	case ENOTSOCK:
		return lk_fail(text, -err,
			       "%s is no socket of kvmm: name the right one with --socket or in KVMM_SOCKET",
			       path);
	case EAGAIN:
		return lk_fail(text, -ETIMEDOUT,
			       "the daemon at %s accepts no client: see whether it is stopped, or restart it",
			       path);
	default:
		return lk_fail(text, -err, "cannot connect to %s: %s", path,
			       strerror(err));
	}
}

/* ------------------------------------------------------------------ */
/* The connection                                                      */

/**
 * lk_connect() - connect to the socket of a daemon
 * @text: LK_TEXT_LEN bytes for the reason of a failure
 *
 * Return: a descriptor or a negative errno.
 */
int lk_connect(const char *path, u32 timeout_ms, char *text)
{
	struct timeval tv = {
		.tv_sec = timeout_ms / 1000,
		.tv_usec = timeout_ms % 1000 * 1000,
	};
	const size_t most = sizeof(((struct sockaddr_un *)NULL)->sun_path) - 1;
	int fd, err;

	if (strlen(path) > most)
		return lk_fail(text, -ENAMETOOLONG,
			       "the path of the socket is longer than %zu bytes: choose a shorter KVMM_RUNDIR",
			       most);
	fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return lk_fail(text, -errno, "cannot make a socket: %s",
			       strerror(errno));
	/* Also bounds the wait for a place in the daemon's queue. */
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv));
	err = connect_addr(fd, path);
	if (!err)
		return fd;
	close(fd);
	return connect_failed(path, err, text);
}
