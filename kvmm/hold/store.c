// SPDX-License-Identifier: Apache-2.0
/*
 * store.c - the records that kvmm-hold keeps from one kvmm to the next
 *
 * A flat table, searched from the front: it is small and used at start, at
 * attach and at death.  Extents may be many, and have a table by number.  A
 * record is known by kind and index; what else it says is kvmm's business.
 * Messages that are malformed or find no room are told and dropped, with their
 * descriptor.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <kvmm/fds.h>
#include <kvmm/log.h>

#include "kvmm/hold/store.h"

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
 * The path of the lock file, from the descriptor itself.  Return: false when
 * it is not in its place any more, and somebody else's may be there.
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
 * The names that kvmm made, from its first records alone: the attach socket is
 * the last of them.
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
	    addr.sun_family != AF_UNIX)
		return;
	memcpy(st->sock[rec->index], addr.sun_path, sizeof(addr.sun_path));
}

/* ---- memory of extents ---- */

/* Room for extent @index: false when there is none. */
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

/* The old one goes also when the new one cannot be kept. */
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
	if (rec->op == HOLD_PUT)
		pr_warn("extent %u cannot be kept: should kvmm die, the next start is a cold one",
			rec->index);
	if (fd >= 0)
		close(fd);
}

/* ---- records ---- */

void store_apply(struct store *st, const struct hold_record *rec, int fd)
{
	struct kept *k = store_find(st, rec->kind, rec->index);

	if (rec->magic == HOLD_MAGIC && rec->op == HOLD_ASK && st->ask) {
		st->ask(st, rec, fd);
		return;
	}
	if (rec->magic != HOLD_MAGIC ||
	    (rec->op != HOLD_PUT && rec->op != HOLD_DROP)) {
		pr_warn("kvmm sent a record that is none");
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

int store_receive(struct store *st, int sock)
{
	union fd_control control;
	struct hold_record rec;
	ssize_t n;

	for (;;) {
		struct iovec iov = { .iov_base = &rec, .iov_len = sizeof(rec) };
		struct msghdr msg = {
			.msg_iov = &iov, .msg_iovlen = 1,
			.msg_control = control.buf,
			.msg_controllen = sizeof(control.buf),
		};
		int fd;

		n = recvmsg(sock, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		if (n < 0 && errno == EINTR)
			continue;
		/* A failure that passes is no end: it is read later. */
		if (n < 0)
			return errno != ECONNRESET ? 0 : -EPIPE;
		fd = kv_fds_first(&msg);
		/* The end, or an empty message, which may have brought one. */
		if (!n) {
			if (fd >= 0)
				close(fd);
			return -EPIPE;
		}
		if (n != sizeof(rec))
			rec.magic = 0;
		store_apply(st, &rec, fd);
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

/* Extents, lowest first. */
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

void store_unlink(struct store *st)
{
	struct kept *lock = store_find(st, HOLD_LOCK, 0);
	char path[sizeof(st->lock)];
	u32 i;

	/* Whose lock it is, his are the sockets. */
	if (!lock || !lock_find(lock->fd, path, sizeof(path)) ||
	    strcmp(path, st->lock) != 0)
		return;
	/* The lock last: until then nobody else may make the sockets. */
	for (i = 0; i < HOLD_LISTENERS; i++)
		unlink_name(st->sock[i]);
	unlink_name(st->lock);
}

void store_clear(struct store *st)
{
	u32 i;

	while (st->nr)
		store_drop(st, &st->kept[st->nr - 1]);
	for (i = 0; i < st->room; i++)
		extent_drop(st, i);
	free(st->extent);
	st->extent = NULL;
	st->room = 0;
}
