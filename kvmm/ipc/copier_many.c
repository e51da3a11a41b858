// SPDX-License-Identifier: Apache-2.0
/*
 * copier_many.c - copies by a device that makes many at once
 *
 * The copier's thread gives them to the device and asks which are over.  Each
 * direction has a lane of its own: what waits to go out keeps nothing from
 * coming in.  A lane ends its copies in their order and has a bounded number
 * with the device; behind it a bounded number waits here, and the rest in the
 * queue of the mm thread, so that one direction holds the other up only when
 * LANE_WAITS of it wait.
 *
 * How long a direction was busy is counted from a copy's beginning, or the end
 * of the one before it, to its end as it was seen here.
 *
 * While a copy is under way the thread looks every POLL_NS, else it sleeps
 * until there is something to do.  At the end it waits for the device: memory
 * goes away after it.
 *
 * Context: the copier thread.
 */
#include <time.h>

#include <kvmm/log.h>

#include "kvmm/ipc/daemon.h"

#define LANE_WAITS	256u		/* copies that wait here */
#define LANE_ROOM	512u		/* with those that the device has */
#define POLL_NS		20000

/**
 * struct lane - copies of one direction, in order
 * @cp:     those that began, then those that wait; a ring
 * @began:  of those that began: when, or when the one before it had ended
 * @err:    of those that began: why it is over already, or 0
 * @head:   the oldest that began, running
 * @next:   the first that waits
 * @tested: the first that no test was asked about
 * @tail:   behind the last
 */
struct lane {
	struct core_copy	cp[LANE_ROOM];
	u64			began[LANE_ROOM];
	int			err[LANE_ROOM];
	u32			head;
	u32			next;
	u32			tested;
	u32			tail;
};

struct lanes {
	struct lane	lane[DEV_COPY_DIRS];
};

static struct lane *lane_of(struct lanes *s, const struct core_copy *cp)
{
	return &s->lane[cp->within ? DEV_COPY_WITHIN :
			cp->to_host ? DEV_COPY_OUT : DEV_COPY_IN];
}

static bool lane_full(const struct lane *l)
{
	return l->tail - l->next == LANE_WAITS ||
	       l->tail - l->head == LANE_ROOM;
}

/* Take what the mm thread queued.  Return: whether there was anything. */
static bool lanes_fill(struct daemon *d, struct lanes *s)
{
	struct core_copy cp;
	bool any = false;
	struct lane *l;
	u32 i;

	for (;;) {
		for (i = 0; i < DEV_COPY_DIRS; i++)
			if (lane_full(&s->lane[i]))
				return any;
		if (!queue_pop(&d->copier.todo, &cp))
			return any;
		l = lane_of(s, &cp);
		l->cp[l->tail++ % LANE_ROOM] = cp;
		any = true;
	}
}

static int copy_begin(struct daemon *d, const struct core_copy *cp, u32 dir)
{
	const struct dev_copy dc = {
		.id = cp->id, .dir = dir, .dev_off = cp->dev_off,
		.dev_to = cp->dev_to, .bytes = cp->bytes,
		.host = cp->within ? NULL : d->setup.host.base + cp->host_off,
	};
	int err = copier_judge(d, cp);

	if (err)
		return err;
	if (dir == DEV_COPY_OUT)
		copier_clear_tail(d, cp);
	return d->setup.dev.ops->copy_begin(&d->setup.dev, &dc);
}

/* Those that are the device's no more, or never were, in their order. */
static void lane_settle(struct daemon *d, struct lane *l)
{
	for (; l->head != l->next; l->head++) {
		const u32 at = l->head % LANE_ROOM;

		if (!l->err[at])
			return;
		copier_finish(d, &l->cp[at], 0, l->err[at]);
	}
}

/* One that cannot begin is over, behind those that began before it. */
static bool lane_begin(struct daemon *d, struct lane *l, u32 dir)
{
	bool any = false;

	while (l->next != l->tail) {
		const u32 at = l->next % LANE_ROOM;

		if (l->tested == l->next) {
			l->tested++;
			l->err[at] = copier_fault(&l->cp[at]);
		}
		if (!l->err[at])
			l->err[at] = copy_begin(d, &l->cp[at], dir);
		if (l->err[at] == -EAGAIN) {
			l->err[at] = 0;
			break;
		}
		l->began[at] = clock_ns();
		l->next++;
		any = true;
	}
	lane_settle(d, l);
	return any;
}

static bool lanes_end(struct daemon *d, struct lanes *s)
{
	bool any = false;
	int status;
	u64 id, now;
	u32 i;

	while (d->setup.dev.ops->copy_end(&d->setup.dev, &id, &status)) {
		now = clock_ns();
		for (i = 0; i < DEV_COPY_DIRS; i++) {
			struct lane *l = &s->lane[i];
			const u32 at = l->head % LANE_ROOM;

			if (l->head == l->next || l->cp[at].id != id)
				continue;
			copier_finish(d, &l->cp[at], now - l->began[at],
				      status);
			l->head++;
			if (l->head != l->next)
				l->began[l->head % LANE_ROOM] = now;
			lane_settle(d, l);
			break;
		}
		if (i == DEV_COPY_DIRS)
			pr_err("the device ended copy %llx, which is none",
			       (unsigned long long)id);
		any = true;
	}
	return any;
}

/* When the oldest of all that are under way began, or 0. */
static u64 lanes_since(const struct lanes *s)
{
	u64 since = 0;
	u32 i;

	for (i = 0; i < DEV_COPY_DIRS; i++) {
		const struct lane *l = &s->lane[i];
		const u64 began = l->began[l->head % LANE_ROOM];

		if (l->head != l->next && (!since || began < since))
			since = began;
	}
	return since;
}

/* Until something is queued, or a copy may be over. */
static void lanes_sleep(struct copier *c, u64 since)
{
	struct timespec ts;

	store_release(&c->since, since);
	if (!since) {
		while (sem_wait(&c->bell) && errno == EINTR)
			;
		return;
	}
	clock_gettime(CLOCK_MONOTONIC, &ts);
	ts.tv_nsec += POLL_NS;
	if (ts.tv_nsec >= (long)NSEC_PER_SEC) {
		ts.tv_nsec -= (long)NSEC_PER_SEC;
		ts.tv_sec++;
	}
	(void)!sem_clockwait(&c->bell, CLOCK_MONOTONIC, &ts);
}

/* copier_many() - until the thread is to end */
void copier_many(struct daemon *d)
{
	static struct lanes s;
	struct copier *c = &d->copier;
	bool any;
	u32 i;

	memset(&s, 0, sizeof(s));
	while (!READ_ONCE(c->stop) || lanes_since(&s)) {
		any = !READ_ONCE(c->stop) && lanes_fill(d, &s);
		for (i = 0; i < DEV_COPY_DIRS && !READ_ONCE(c->stop); i++)
			any |= lane_begin(d, &s.lane[i], i);
		any |= lanes_end(d, &s);
		if (!any)
			lanes_sleep(c, lanes_since(&s));
	}
}
