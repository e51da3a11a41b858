// SPDX-License-Identifier: Apache-2.0
/*
 * send.c - records to kvmm-hold, and those that it could not take at once
 *
 * hold reads every record, but hold may be stopped, or the machine may be busy,
 * and its queue is short.  The next daemon would not know a client whose record
 * is lost.  So a record that is not taken waits here, with a duplicate of its
 * descriptor; the records go out in their order as soon as there is room.
 * A newer record of the same kind and index replaces one that waits, so no
 * more wait than there are records.
 *
 * Context: start-up, then the control thread alone; deposit_try() any thread.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>

#include <kvmm/log.h>

#include "kvmm/ipc/deposit/deposit.h"

#define HOLD_TRIES	3
#define HOLD_TRY_MS	100
#define KEPT_NS		(5 * NSEC_PER_SEC)	/* for hold to take a copy */
#define LATE_LOOK_NS	(10 * NSEC_PER_MSEC)
#define LATE_NAP_NS	NSEC_PER_MSEC
#define LATE_FLUSH_NS	(5 * NSEC_PER_SEC)	/* for hold to take all records */

struct late {
	struct late		*next;
	struct hold_record	rec;
	int			fd;
};

/* deposit_try() - send a record now.  Return: 0, also without hold, or -errno. */
int deposit_try(struct deposit *p, const struct hold_record *r, int fd)
{
	struct pollfd poll_fd = { .fd = p->fd, .events = POLLOUT };
	int err, i;

	if (p->fd < 0)
		return 0;
	err = sock_send(p->fd, r, sizeof(*r), &fd, fd >= 0);
	/* hold reads unless it is starting a child. */
	for (i = 0; i < HOLD_TRIES && err && err != -EPIPE; i++) {
		(void)!poll(&poll_fd, 1, HOLD_TRY_MS);
		err = sock_send(p->fd, r, sizeof(*r), &fd, fd >= 0);
	}
	return err;
}

/**
 * deposit_kept() - put a copy in place of the memory that hold keeps
 * @kind: HOLD_ARENA or HOLD_KEEP
 *
 * A record that the socket took counts as kept: a daemon that dies after this
 * leaves the copy, one that dies before leaves the old memory.
 *
 * Context: start-up, which may wait.
 * Return: NULL, or why hold has the old memory still.
 */
const char *deposit_kept(struct deposit *p, u32 kind, int fd)
{
	const struct hold_record r = {
		.magic = HOLD_MAGIC, .op = HOLD_PUT, .kind = kind,
	};
	const u64 end = kv_now_ns() + KEPT_NS;
	int err;

	do {
		err = deposit_try(p, &r, fd);
	} while (err == -EAGAIN && kv_now_ns() < end);
	return err ? "kvmm-hold does not take a copy of its memory" : NULL;
}

/* ---- records that wait ---- */

static void late_free(struct late *l)
{
	if (l->fd >= 0)
		close(l->fd);
	free(l);
}

/* Remove the older records of @r's kind and index.  Return: the end of the list. */
static struct late **late_replace(struct deposit *p,
				  const struct hold_record *r)
{
	struct late **at = &p->late, *l;

	while ((l = *at)) {
		if (l->rec.kind == r->kind && l->rec.index == r->index &&
		    l->rec.op != HOLD_ASK) {
			*at = l->next;
			late_free(l);
		} else {
			at = &l->next;
		}
	}
	return at;
}

static int late_add(struct deposit *p, const struct hold_record *r, int fd)
{
	struct late *l = calloc(1, sizeof(*l)), **at;
	int err;

	if (!l)
		return -ENOMEM;
	l->rec = *r;
	l->fd = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (fd >= 0 && l->fd < 0) {
		err = -errno;
		free(l);
		return err;
	}
	at = late_replace(p, r);
	*at = l;
	return 0;
}

/* deposit_record() - send a record now, or later, in its order */
void deposit_record(struct deposit *p, const struct hold_record *r, int fd)
{
	int err = p->late ? -EAGAIN : deposit_try(p, r, fd);

	if (err == -EAGAIN)
		err = late_add(p, r, fd);
	if (err)
		pr_warn("kvmm-hold does not take record %u.%u: %s", r->kind,
			r->index, strerror(-err));
}

void deposit_put(struct deposit *p, u32 kind, u32 index, int fd, u64 value)
{
	const struct hold_record r = {
		.magic = HOLD_MAGIC, .op = HOLD_PUT, .kind = kind,
		.index = index, .value = value,
	};

	deposit_record(p, &r, fd);
}

void deposit_drop(struct deposit *p, u32 kind, u32 index)
{
	const struct hold_record r = {
		.magic = HOLD_MAGIC, .op = HOLD_DROP, .kind = kind,
		.index = index,
	};

	deposit_record(p, &r, -1);
}

/**
 * deposit_late_timers() - send waiting records, as far as there is room
 * Return: when to be called next, or UINT64_MAX.
 */
u64 deposit_late_timers(struct deposit *p, u64 now)
{
	struct late *l;

	while ((l = p->late)) {
		if (sock_send(p->fd, &l->rec, sizeof(l->rec), &l->fd,
			      l->fd >= 0) == -EAGAIN)
			return now + LATE_LOOK_NS;
		/* Another failure: hold has ended, and no daemon comes next. */
		p->late = l->next;
		late_free(l);
	}
	return UINT64_MAX;
}

/* deposit_late_flush() - wait until hold has taken all records, or 5 s */
void deposit_late_flush(struct deposit *p)
{
	const struct timespec nap = { .tv_nsec = LATE_NAP_NS };
	const u64 end = kv_now_ns() + LATE_FLUSH_NS;

	while (deposit_late_timers(p, kv_now_ns()) != UINT64_MAX &&
	       kv_now_ns() < end)
		nanosleep(&nap, NULL);
}

void deposit_late_exit(struct deposit *p)
{
	struct late *l;

	while ((l = p->late)) {
		p->late = l->next;
		late_free(l);
	}
}
