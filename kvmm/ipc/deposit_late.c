// SPDX-License-Identifier: Apache-2.0
/*
 * deposit_late.c - records that kvmm-hold could not take at once
 *
 * hold reads whatever comes; but it may be stopped, or the machine may be busy
 * with others, and its queue is short.  A record that is lost is a client that
 * the next daemon does not know, so what is not taken waits here, with a
 * duplicate of its descriptor, and goes out in its order as soon as there is
 * room.  Of one record only what was said last waits, so there are never more
 * than there are records.
 *
 * Context: start-up, then the control thread alone; the mapper waits itself.
 */
#include <fcntl.h>
#include <stdlib.h>

#include <kvmm/log.h>

#include "kvmm/ipc/daemon.h"

#define LATE_LOOK_NS	(10 * NSEC_PER_MSEC)
#define LATE_NAP_NS	NSEC_PER_MSEC
#define LATE_FLUSH_NS	(5 * NSEC_PER_SEC)	/* for hold to take it */

struct late {
	struct late		*next;
	struct hold_record	rec;
	int			fd;
};

static void late_free(struct late *l)
{
	if (l->fd >= 0)
		close(l->fd);
	free(l);
}

/* What was said of it before is of no use any more. */
static struct late **late_replace(struct daemon *d, const struct hold_record *r)
{
	struct late **at = &d->deposit.late, *l;

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

/* Return: 0 when it waits. */
static int late_add(struct daemon *d, const struct hold_record *r, int fd)
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
	at = late_replace(d, r);
	*at = l;
	return 0;
}

/* deposit_record() - what cannot be sent now is sent later, in its order */
void deposit_record(struct daemon *d, const struct hold_record *r, int fd)
{
	int err = d->deposit.late ? -EAGAIN : deposit_try(d, r, fd);

	if (err == -EAGAIN)
		err = late_add(d, r, fd);
	if (err)
		pr_warn("kvmm-hold does not take record %u.%u: %s", r->kind,
			r->index, strerror(-err));
}

/**
 * deposit_late_timers() - send what waits, as far as there is room
 * Return: when to be called next, or UINT64_MAX.
 */
u64 deposit_late_timers(struct daemon *d, u64 now)
{
	struct late *l;

	while ((l = d->deposit.late)) {
		if (sock_send(d->deposit.fd, &l->rec, sizeof(l->rec), &l->fd,
			      l->fd >= 0) == -EAGAIN)
			return now + LATE_LOOK_NS;
		/* Another failure: hold has ended, and nobody comes after. */
		d->deposit.late = l->next;
		late_free(l);
	}
	return UINT64_MAX;
}

/* deposit_late_flush() - before an end, or what is to come after all of it */
void deposit_late_flush(struct daemon *d)
{
	const struct timespec nap = { .tv_nsec = LATE_NAP_NS };
	const u64 end = clock_ns() + LATE_FLUSH_NS;

	while (deposit_late_timers(d, clock_ns()) != UINT64_MAX &&
	       clock_ns() < end)
		nanosleep(&nap, NULL);
}

void deposit_late_exit(struct daemon *d)
{
	struct late *l;

	while ((l = d->deposit.late)) {
		d->deposit.late = l->next;
		late_free(l);
	}
}
