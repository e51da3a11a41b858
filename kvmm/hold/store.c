// SPDX-License-Identifier: Apache-2.0
/*
 * store.c - the records that kvmm-hold keeps from one kvmm to the next
 *
 * A flat table, searched from the front: it is small and used at start, at
 * attach and at death.  Extents may be many, and have a table by number.  Kind and
 * index name a record; its other fields are for kvmm.  Messages that are malformed
 * or find no room are logged and dropped, with their descriptor.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <kvmm/fds.h>
#include <kvmm/log.h>
#include <kvmm/rundir.h>

#include "kvmm/hold/store.h"

#define LOG_BURST	20u	/* lines about records in KV_LOG_PERIOD_S */

union fd_control {
	char		buf[CMSG_SPACE(sizeof(int))];
	struct cmsghdr	align;
};

struct kept *store_find(struct store *st, u32 kind, u32 index)
{
	u32 i;

	for (i = 0; i < st->nr; i++) {
		struct kept *k = &st->kept[i];

		if (k->rec.kind == kind && k->rec.index == index)
			return k;
	}
	return NULL;
}

static void store_drop(struct store *st, struct kept *k)
{
	if (k->fd >= 0)
		close(k->fd);
	*k = st->kept[--st->nr];
}

void store_forget(struct store *st, u32 kind)
{
	u32 i = st->nr;

	while (i--)
		if (st->kept[i].rec.kind == kind)
			store_drop(st, &st->kept[i]);
}

/* ---- names ---- */

/*
 * Find the path of the lock file by its descriptor.  Return: false when the file is
 * not in its place any more, where another kvmm's may be.
 */
static bool lock_find(int fd, char *path, size_t len)
{
	struct stat here, there;
	char link[64];
	ssize_t n;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	n = readlink(link, path, len - 1);
	if (n <= 0)
		return false;
	path[n] = '\0';
	return path[0] == '/' && !fstat(fd, &here) && !stat(path, &there) &&
	       here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

/*
 * Note the names that kvmm made, from its first records alone: the attach socket
 * is the last of them.
 */
static void note_name(struct store *st, const struct hold_record *rec, int fd)
{
	struct sockaddr_un addr = { .sun_family = 0 };
	socklen_t len = sizeof(addr);

	if (rec->kind == HOLD_LOCK && !st->lock[0] &&
	    !lock_find(fd, st->lock, sizeof(st->lock)))
		st->lock[0] = '\0';
	if (rec->kind != HOLD_LISTEN || rec->index >= HOLD_LISTENERS ||
	    st->sock[0][0] || st->sock[rec->index][0] ||
	    getsockname(fd, (struct sockaddr *)&addr, &len) ||
	    addr.sun_family != AF_UNIX ||
	    (rec->index >= 3 && !strncmp(addr.sun_path, "/proc/", 6)))
		return;
	memcpy(st->sock[rec->index], addr.sun_path, sizeof(addr.sun_path));
}

/* Note directories, also from the first records; they stay open until hold ends. */
static void note_door(struct store *st, const struct hold_record *rec, int fd)
{
	if (rec->op != HOLD_PUT || fd < 0 || rec->index >= KV_LIST_MAX ||
	    st->sock[0][0] || st->door[rec->index])
		return;
	st->door[rec->index] = max(fcntl(fd, F_DUPFD_CLOEXEC, 3), 0);
}

/* ---- memory of extents ---- */

/* Make room for extent @index.  Return: false when there is none. */
static bool extent_room(struct store *st, u32 index)
{
	struct kept_extent *bigger;
	u32 room = max(st->room, 64u);

	if (index < st->room)
		return true;
	if (index >= HOLD_EXTENTS)
		return false;
	while (room <= index)
		room *= 2;
	bigger = realloc(st->extent, room * sizeof(*bigger));
	if (!bigger)
		return false;
	st->extent = bigger;
	for (; st->room < room; st->room++)
		bigger[st->room].fd = -1;
	return true;
}

static void extent_drop(struct store *st, u32 index)
{
	if (index >= st->room || st->extent[index].fd < 0)
		return;
	close(st->extent[index].fd);
	st->extent[index].fd = -1;
	st->nr_extents--;
}

/* A compromised kvmm may send malformed records for ever. */
static bool log_allowed(void)
{
	static struct kv_log_budget budget;

	return kv_log_spend(&budget, LOG_BURST, "records");
}

/* The old descriptor is closed even if the new one cannot be kept. */
static void extent_apply(struct store *st, const struct hold_record *rec,
			 int fd)
{
	extent_drop(st, rec->index);
	if (rec->op == HOLD_PUT && fd >= 0 &&
	    (!st->most || st->nr_extents < st->most) &&
	    extent_room(st, rec->index)) {
		st->extent[rec->index].fd = fd;
		st->extent[rec->index].generation = rec->generation;
		st->nr_extents++;
		return;
	}
	if (rec->op == HOLD_PUT && log_allowed())
		pr_warn("extent %u cannot be kept: should kvmm die, the next start is a cold one",
			rec->index);
	if (fd >= 0)
		close(fd);
}

/* ---- records ---- */

/* May records of the kind change while there are clients? */
static bool kind_changes(u32 kind)
{
	switch (kind) {
	case HOLD_CLIENT:
	case HOLD_GHOST:
	case HOLD_EXTENT:
	case HOLD_WORKS:
	case HOLD_SWAP_SHM:
	case HOLD_SWAP_POOL:
	case HOLD_SWAP_REQ:
	case HOLD_SWAP_CPL:
	case HOLD_SWAP_RUN:
	case HOLD_SWAP_WORKS:
	case HOLD_SWAP_AREA:
		return true;
	}
	return false;
}

void store_apply(struct store *st, const struct hold_record *rec, int fd)
{
	struct kept *k = store_find(st, rec->kind, rec->index);

	if (rec->magic == HOLD_MAGIC && rec->op == HOLD_ASK && st->ask) {
		st->ask(st, rec, fd);
		return;
	}
	if (rec->magic != HOLD_MAGIC ||
	    (rec->op != HOLD_PUT && rec->op != HOLD_DROP)) {
		if (log_allowed())
			pr_warn("kvmm sent a record that is none");
		goto out_close;
	}
	if (rec->kind == HOLD_SERVES) {
		st->serves = true;
		goto out_close;
	}
	if (rec->kind == HOLD_READY) {
		st->ready = true;
		goto out_close;
	}
	if (st->serves && !kind_changes(rec->kind)) {
		if (log_allowed())
			pr_warn("record %u.%u is refused: kvmm serves already",
				rec->kind, rec->index);
		goto out_close;
	}
	if (rec->kind == HOLD_DOOR) {
		note_door(st, rec, fd);
		goto out_close;
	}
	if (rec->kind == HOLD_EXTENT) {
		extent_apply(st, rec, fd);
		return;
	}
	if (k)
		store_drop(st, k);
	if (rec->op == HOLD_DROP)
		goto out_close;
	if (st->nr == HOLD_RECORDS) {
		if (log_allowed())
			pr_warn("record %u.%u is lost: there are %u already",
				rec->kind, rec->index, st->nr);
		goto out_close;
	}
	note_name(st, rec, fd);
	st->kept[st->nr].rec = *rec;
	st->kept[st->nr++].fd = fd;
	return;

out_close:
	if (fd >= 0)
		close(fd);
}

/* Return: 0: @rec came, with @fd or -1; -EAGAIN; -EPIPE. */
static int receive_one(int sock, struct hold_record *rec, int *fd)
{
	union fd_control control;
	struct iovec iov = { .iov_base = rec, .iov_len = sizeof(*rec) };
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1,
		.msg_control = control.buf,
		.msg_controllen = sizeof(control.buf),
	};
	ssize_t n;

	do {
		n = recvmsg(sock, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
	} while (n < 0 && errno == EINTR);
	/* Other failures pass: the record is read later. */
	if (n < 0)
		return errno != ECONNRESET ? -EAGAIN : -EPIPE;
	*fd = kv_fds_first(&msg);
	/* The end, or an empty message, which may have a descriptor. */
	if (!n) {
		if (*fd >= 0)
			close(*fd);
		return -EPIPE;
	}
	if (n != sizeof(*rec))
		rec->magic = 0;
	return 0;
}

int store_receive(struct store *st, int sock)
{
	struct hold_record rec;
	int fd, err;
	u32 i;

	for (i = 0; i < STORE_TURN; i++) {
		err = receive_one(sock, &rec, &fd);
		if (err)
			return err == -EAGAIN ? 0 : err;
		store_apply(st, &rec, fd);
		/* A question may have taken long. */
		if (rec.op == HOLD_ASK)
			break;
	}
	return 1;
}

void store_receive_rest(struct store *st, int sock)
{
	struct hold_record rec;
	int fd;

	/* Queued records stay, and no others come. */
	(void)shutdown(sock, SHUT_RD);
	while (!receive_one(sock, &rec, &fd)) {
		if (rec.magic != HOLD_MAGIC || rec.op != HOLD_ASK)
			store_apply(st, &rec, fd);
		else if (fd >= 0)
			close(fd);
	}
}

int store_send_record(int sock, const struct hold_record *rec, int fd,
		      int flags)
{
	union fd_control control;
	struct iovec iov = {
		.iov_base = (void *)rec, .iov_len = sizeof(*rec),
	};
	struct msghdr msg = { .msg_iov = &iov, .msg_iovlen = 1 };
	struct cmsghdr *cm;
	ssize_t n;

	if (fd >= 0) {
		memset(&control, 0, sizeof(control));
		msg.msg_control = control.buf;
		msg.msg_controllen = sizeof(control.buf);
		cm = CMSG_FIRSTHDR(&msg);
		cm->cmsg_level = SOL_SOCKET;
		cm->cmsg_type = SCM_RIGHTS;
		cm->cmsg_len = CMSG_LEN(sizeof(int));
		memcpy(CMSG_DATA(cm), &fd, sizeof(fd));
	}
	do {
		n = sendmsg(sock, &msg, MSG_NOSIGNAL | flags);
	} while (n < 0 && errno == EINTR);
	return n < 0 ? -errno : 0;
}

/* Send the extents, lowest first. */
static int extents_send(const struct store *st, int sock)
{
	struct hold_record rec = {
		.magic = HOLD_MAGIC, .op = HOLD_PUT, .kind = HOLD_EXTENT,
	};
	int err = 0;
	u32 i;

	for (i = 0; i < st->room && !err; i++) {
		if (st->extent[i].fd < 0)
			continue;
		rec.index = i;
		rec.generation = st->extent[i].generation;
		err = store_send_record(sock, &rec, st->extent[i].fd, 0);
	}
	return err;
}

int store_send(const struct store *st, int sock, u32 life)
{
	struct hold_record rec = {
		.magic = HOLD_MAGIC, .op = HOLD_TELL, .kind = HOLD_LIFE,
		.index = life, .value = st->nr + st->nr_extents,
	};
	int err = store_send_record(sock, &rec, -1, 0);
	u32 i;

	for (i = 0; i < st->nr && !err; i++)
		err = store_send_record(sock, &st->kept[i].rec,
					st->kept[i].fd, 0);
	if (!err)
		err = extents_send(st, sock);
	if (err)
		return err;
	memset(&rec, 0, sizeof(rec));
	rec.magic = HOLD_MAGIC;
	rec.op = HOLD_END;
	return store_send_record(sock, &rec, -1, 0);
}

static void unlink_name(const char *path)
{
	if (path[0] && unlink(path) && errno != ENOENT)
		pr_warn("%s is left: %s", path, strerror(errno));
}

/* Works by descriptor, even if another directory has the name by now. */
static void unlink_door(int dir, const char *name)
{
	struct stat st;

	if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) ||
	    !S_ISSOCK(st.st_mode))
		return;
	if (unlinkat(dir, name, 0) && errno != ENOENT)
		pr_warn("%s of a --tenant is left: %s", name, strerror(errno));
}

void store_unlink(struct store *st)
{
	struct kept *lock = store_find(st, HOLD_LOCK, 0);
	char path[sizeof(st->lock)];
	u32 i;

	/* The sockets belong to the owner of the lock. */
	if (!lock || !lock_find(lock->fd, path, sizeof(path)) ||
	    strcmp(path, st->lock) != 0)
		return;
	/* The lock last: until then no other kvmm may make the sockets. */
	for (i = 0; i < HOLD_LISTENERS; i++)
		unlink_name(st->sock[i]);
	for (i = 0; i < KV_LIST_MAX; i++)
		if (st->door[i]) {
			unlink_door(st->door[i], KV_ATTACH_SOCKET);
			unlink_door(st->door[i], KV_VIEW_SOCKET);
		}
	unlink_name(st->lock);
}

void store_clear(struct store *st)
{
	u32 i;

	while (st->nr)
		store_drop(st, &st->kept[st->nr - 1]);
	for (i = 0; i < st->room; i++)
		extent_drop(st, i);
	for (i = 0; i < KV_LIST_MAX; i++)
		if (st->door[i] > 0)
			close(st->door[i]);
	memset(st->door, 0, sizeof(st->door));
	free(st->extent);
	st->extent = NULL;
	st->room = 0;
}
