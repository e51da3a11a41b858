// SPDX-License-Identifier: Apache-2.0
/*
 * door.c - tenants with sockets of their own
 *
 * Each --tenant has a directory with an attach socket and a view socket, named
 * as the daemon's own are.  A container that gets nothing but this directory
 * finds them by KVMM_RUNDIR.  A process of any user that connects there is that
 * tenant: owner and mode of the sockets guard it.
 *
 * The directory is the daemon's, and no other user may write in it: a user that
 * may could put a socket there, or a file that then gets the owner and mode of
 * the socket.  The directory above may be a user's, who can rename this one: it
 * is opened once, and is used by that descriptor alone.  It stays when the
 * daemon ends, so that a container that has it mounted finds the next daemon;
 * the sockets are removed.  kvmm-hold keeps them while kvmm is away, as the
 * other sockets.
 *
 * Context: control thread; before the rights are given up, but for the end.
 */
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <kvmm/log.h>
#include <kvmm/rundir.h>

#include "kvmm/ipc/conn/conn.h"

#define DIR_MODE	0755	/* the sockets guard themselves */

/* ---- options ---- */

static int owner_user(const char *name, struct door *door)
{
	const struct passwd *pw;
	u64 number;

	if (!kv_parse_uint(name, &number) && number < (uid_t)-1) {
		door->uid = (uid_t)number;
		return 0;
	}
	pw = getpwnam(name);
	if (!pw)
		return -ENOENT;
	door->uid = pw->pw_uid;
	door->gid = pw->pw_gid;
	return 0;
}

static int owner_group(const char *name, struct door *door)
{
	const struct group *gr;
	u64 number;

	if (!kv_parse_uint(name, &number) && number < (gid_t)-1) {
		door->gid = (gid_t)number;
		return 0;
	}
	gr = getgrnam(name);
	if (!gr)
		return -ENOENT;
	door->gid = gr->gr_gid;
	return 0;
}

static int door_owner(struct door *door)
{
	char owner[128], *group;
	int err;

	door->uid = (uid_t)-1;
	door->gid = (gid_t)-1;
	if (!door->opt.keys.owner)
		return 0;
	snprintf(owner, sizeof(owner), "%s", door->opt.keys.owner);
	group = strchr(owner, ':');
	if (group)
		*group++ = '\0';
	err = owner_user(owner, door);
	if (!err && group)
		err = owner_group(group, door);
	if (err)
		pr_err("--tenant %s: owner: %.60s: there is no such user or group: make it (systemd-sysusers makes kvrt), name another, or give numbers",
		       door->opt.name, door->opt.keys.owner);
	return err;
}

static int door_option(struct sockets *s, struct door *door, const char *spec)
{
	char why[256], what[TENANT_NAME_LEN + 32];
	u32 i;

	if (tenant_opt_parse(&door->opt, spec, why, sizeof(why))) {
		pr_err("%s", why);
		return -EINVAL;
	}
	for (i = 0; i < s->nr_doors; i++)
		if (!strcmp(s->doors[i].opt.name, door->opt.name)) {
			pr_err("--tenant %s is given twice: give each a name of its own",
			       door->opt.name);
			return -EINVAL;
		}
	snprintf(what, sizeof(what), "--tenant %s: mode", door->opt.name);
	if (socket_mode_parse(what, door->opt.keys.mode, &door->mode))
		return -EINVAL;
	if (!door->opt.keys.quota.clients)
		door->opt.keys.quota.clients = s->setup->opt.tenant_clients;
	door->index = s->nr_doors;
	door->dir_fd = -1;
	door->attach.fd = -1;
	door->view.fd = -1;
	return door_owner(door);
}

/**
 * door_options() - read every --tenant, and --user-quota
 * Return: 0 or a negative errno, which has been logged.
 */
int door_options(struct sockets *s)
{
	const struct kv_list *list = &s->setup->opt.tenants;
	char why[256];

	if (tenant_quota_parse(&s->user_quota, s->setup->opt.user_quota, why,
			       sizeof(why))) {
		pr_err("%s", why);
		return -EINVAL;
	}
	if (!s->user_quota.clients)
		s->user_quota.clients = s->setup->opt.tenant_clients;
	s->own_quota = s->user_quota;
	s->own_quota.min = KVMM_LIMIT_MAX;
	s->own_quota.weight = CORE_WEIGHT_MAX;
	s->doors = calloc(list->nr + 1, sizeof(*s->doors));
	if (!s->doors) {
		pr_err("no memory for %u tenants", list->nr);
		return -ENOMEM;
	}
	for (; s->nr_doors < list->nr; s->nr_doors++)
		if (door_option(s, &s->doors[s->nr_doors],
				list->s[s->nr_doors]))
			return -EINVAL;
	return 0;
}

/* ---- names ---- */

static int door_path(struct sockaddr_un *addr, const char *dir,
		     const char *name)
{
	int n;

	addr->sun_family = AF_UNIX;
	n = snprintf(addr->sun_path, sizeof(addr->sun_path), "%s/%s", dir,
		     name);
	if (n > 0 && (size_t)n < sizeof(addr->sun_path))
		return 0;
	pr_err("the path of the socket, %s/%s, is longer than a socket's name may be: give a shorter dir=, or --socket",
	       dir, name);
	return -ENAMETOOLONG;
}

/* door_paths() - the names of all sockets; nothing is made */
int door_paths(struct sockets *s)
{
	const char *own = s->attach_addr.sun_path;
	const char *slash = strrchr(own, '/');
	struct door *door;
	char dir[256];
	size_t n;
	int err;

	for (door = s->doors; door < s->doors + s->nr_doors; door++) {
		if (door->opt.keys.dir)
			snprintf(dir, sizeof(dir), "%s", door->opt.keys.dir);
		else
			snprintf(dir, sizeof(dir), "%.*s%s",
				 slash ? (int)(slash + 1 - own) : 0, own,
				 door->opt.name);
		/* With a slash behind it a link would be followed. */
		for (n = strlen(dir); n > 1 && dir[n - 1] == '/'; n--)
			dir[n - 1] = '\0';
		err = door_path(&door->attach_addr, dir, KV_ATTACH_SOCKET);
		if (!err)
			err = door_path(&door->view_addr, dir, KV_VIEW_SOCKET);
		if (err)
			return err;
		/* It fits: the sockets did. */
		memccpy(door->dir, dir, 0, sizeof(door->dir));
	}
	return 0;
}

/* May the daemon and root alone write in the directory? */
static int door_dir_judge(const struct door *door, struct stat *st)
{
	if (fstat(door->dir_fd, st))
		return -errno;
	return (st->st_uid && st->st_uid != geteuid()) ||
	       (st->st_mode & 022) ? -EPERM : 0;
}

static int door_dir_failed(const struct door *door, int err)
{
	if (err == -EPERM)
		pr_err("--tenant %s: others may write in %s, or own it: take that from them (chmod go-w), or give another dir=",
		       door->opt.name, door->dir);
	else if (err == -EADDRINUSE)
		pr_err("--tenant %s: %s is the directory of other sockets: give another dir=",
		       door->opt.name, door->dir);
	else
		pr_err("--tenant %s: directory %s cannot be made: %s: give another dir=",
		       door->opt.name, door->dir, strerror(-err));
	return err;
}

static bool same_dir(const char *socket, const struct stat *st)
{
	char dir[sizeof(((struct sockaddr_un *)0)->sun_path)];
	const char *slash = strrchr(socket, '/');
	struct stat other;

	snprintf(dir, sizeof(dir), "%.*s", slash ? (int)(slash - socket) : 1,
		 slash ? socket : ".");
	return !stat(*dir ? dir : "/", &other) &&
	       other.st_dev == st->st_dev && other.st_ino == st->st_ino;
}

/*
 * A user that may write in the directory above may exchange this one for
 * another, or for a link, at any time.  So it has its mode from the start, and
 * the directory that is opened here is judged and used.
 */
static int door_dir_open(struct door *door)
{
	const mode_t mask = umask(0777 & ~DIR_MODE);
	int err = mkdir(door->dir, DIR_MODE) && errno != EEXIST ? -errno : 0;

	umask(mask);
	if (err)
		return err;
	door->dir_fd = open(door->dir, O_PATH | O_DIRECTORY | O_NOFOLLOW |
			    O_CLOEXEC);
	return door->dir_fd < 0 ? -errno : 0;
}

static int door_dir_make(const struct sockets *s, struct door *door)
{
	struct stat st;
	u32 i;
	int err = door_dir_open(door);

	if (!err)
		err = door_dir_judge(door, &st);
	if (!err && same_dir(s->attach_addr.sun_path, &st))
		err = -EADDRINUSE;
	for (i = 0; i < door->index && !err; i++)
		if (same_dir(s->doors[i].attach_addr.sun_path, &st))
			err = -EADDRINUSE;
	return err ? door_dir_failed(door, err) : 0;
}

/* ---- sockets ---- */

/* door_make() - directories and sockets; no process can connect yet */
int door_make(struct sockets *s)
{
	struct door *door;
	int err;

	for (door = s->doors; door < s->doors + s->nr_doors; door++) {
		struct socket_perm perm = {
			.mode = door->mode, .uid = door->uid, .gid = door->gid,
		};

		err = door_dir_make(s, door);
		perm.dir = door->dir_fd;
		/* hold removes the names that this user may not remove. */
		if (!err)
			deposit_put(s->deposit, HOLD_DOOR, door->index, door->dir_fd, 0);
		if (!err)
			err = socket_make_one(s, &door->attach,
					      3 + 2 * door->index,
					      &door->attach_addr,
					      SOCK_SEQPACKET, &perm);
		if (!err)
			err = socket_make_one(s, &door->view,
					      4 + 2 * door->index,
					      &door->view_addr, SOCK_STREAM,
					      &perm);
		if (err)
			return err;
	}
	return 0;
}

int door_listen(struct sockets *s, const struct acceptors *a)
{
	struct door *door;
	int err;

	for (door = s->doors; door < s->doors + s->nr_doors; door++) {
		err = socket_listen_one(s, &door->view, &door->view_addr,
					&a->view);
		if (!err)
			err = socket_listen_one(s, &door->attach,
						&door->attach_addr,
						&a->attach);
		if (err)
			return err;
		pr_info("tenant %s: %s", door->opt.name,
			door->attach_addr.sun_path);
	}
	return 0;
}

/* door_events() - watch for connections, or, with 0, do not */
void door_events(struct sockets *s, u32 events)
{
	u32 i;

	for (i = 0; i < s->nr_doors; i++) {
		watch_events(s->loop, &s->doors[i].attach, events);
		watch_events(s->loop, &s->doors[i].view, events);
	}
}

static bool name_remove(int fd, int kept, int dir, const char *name)
{
	if (fd < 0 && kept < 0)
		return true;
	return dir >= 0 && (!unlinkat(dir, name, 0) || errno == ENOENT);
}

/* door_unlink() - return: whether all names are gone; hold removes the rest */
bool door_unlink(const struct sockets *s)
{
	const int *kept = s->deposit->listen + 3;
	bool all = true;
	u32 i;

	if (s->lock_fd < 0)
		return true;
	for (i = 0; i < s->nr_doors; i++) {
		const struct door *door = &s->doors[i];

		all &= name_remove(door->attach.fd, kept[2 * i],
				   door->dir_fd, KV_ATTACH_SOCKET);
		all &= name_remove(door->view.fd, kept[2 * i + 1],
				   door->dir_fd, KV_VIEW_SOCKET);
	}
	return all;
}

/* door_close() - the sockets stay open until exit, see socket_close() */
void door_close(struct sockets *s)
{
	u32 i;

	for (i = 0; i < s->nr_doors; i++) {
		watch_remove(s->loop, &s->doors[i].attach);
		watch_remove(s->loop, &s->doors[i].view);
	}
}

void door_exit(struct sockets *s)
{
	u32 i;

	for (i = 0; i < s->nr_doors; i++)
		if (s->doors[i].dir_fd >= 0)
			close(s->doors[i].dir_fd);
	free(s->doors);
}
