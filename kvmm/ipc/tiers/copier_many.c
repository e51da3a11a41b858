// SPDX-License-Identifier: Apache-2.0
/*
 * copier_many.c - copies by a device that makes many at once
 *
 * The copier's thread gives copies to the device and asks which are over.  Each
 * direction has a lane of its own, so that copies out do not delay copies in.
 * A lane ends its copies in their order and has a bounded number with the
 * device; behind it a bounded number waits here, and the rest in the queue of
 * the mm thread, so that one direction delays the other only when LANE_WAITS of
 * its copies wait.
 *
 * How long a direction was busy is counted from a copy's beginning, or the end
 * of the one before it, to its end as it was seen here.
 *
 * While a copy is under way the thread looks every POLL_NS, else it sleeps
 * until there is work.  At the end it waits for the device, because the memory
 * is freed after it.
 *
 * Context: the copier thread.
 */
#include <time.h>

#include <kvmm/log.h>

#include "kvmm/ipc/tiers/tiers.h"

#define LANE_WAITS	256u		/* copies that wait here */
#define LANE_ROOM	512u		/* these, and copies that the device has */
#define POLL_NS		20000

/**
 * struct lane - copies of one direction, in order
 * @cp:     copies that began, then copies that wait; a ring
 * @began:  of each that began: when, or when the one before it had ended
 * @err:    of each that began: why it is over already, or 0
 * @head:   the oldest that began, running
 * @next:   the first that waits
 * @tested: the first for which no test was asked for a fault
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

/* Take orders from the queue of the mm thread.  Return: were there any? */
static bool lanes_fill(struct copier *c, struct lanes *s)
{
	struct core_copy cp;
	bool any = false;
	struct lane *l;
	u32 i;

	for (;;) {
		for (i = 0; i < DEV_COPY_DIRS; i++)
			if (lane_full(&s->lane[i]))
				return any;
		if (!queue_pop(&c->todo, &cp))
			return any;
		l = lane_of(s, &cp);
		l->cp[l->tail++ % LANE_ROOM] = cp;
		any = true;
	}
}

static int copy_begin(struct copier *c, const struct core_copy *cp, u32 dir)
{
	const struct dev_copy dc = {
		.id = cp->id, .dir = dir, .dev_off = cp->dev_off,
		.dev_to = cp->dev_to, .bytes = cp->bytes,
		.host = cp->within ? NULL : c->setup->host.base + cp->host_off,
	};
	int err = copier_judge(c, cp);

	if (err)
		return err;
	if (cp->nr_shards != 1)
		return -EOPNOTSUPP;	/* a daemon has one pool of this kind */
	if (dir == DEV_COPY_OUT)
		copier_clear_tail(c, cp);
	return c->setup->dev.ops->copy_begin(&c->setup->dev, &dc);
}

/* Finish copies that could not begin, as far as they are the oldest. */
static void lane_settle(struct copier *c, struct lane *l)
{
	for (; l->head != l->next; l->head++) {
		const u32 at = l->head % LANE_ROOM;

		if (!l->err[at])
			return;
		copier_finish(c, &l->cp[at], 0, l->err[at]);
	}
}

/* A copy that cannot begin is over, behind the copies that began before it. */
static bool lane_begin(struct copier *c, struct lane *l, u32 dir)
{
	bool any = false;

	while (l->next != l->tail) {
		const u32 at = l->next % LANE_ROOM;

		if (l->tested == l->next) {
			l->tested++;
			l->err[at] = copier_fault(&l->cp[at]);
		}
		if (!l->err[at])
			l->err[at] = copy_begin(c, &l->cp[at], dir);
		if (l->err[at] == -EAGAIN) {
			l->err[at] = 0;
			break;
		}
		l->began[at] = kv_now_ns();
		l->next++;
		any = true;
	}
	lane_settle(c, l);
	return any;
}

static bool lanes_end(struct copier *c, struct lanes *s)
{
	bool any = false;
	int status;
	u64 id, now;
	u32 i;

	while (c->setup->dev.ops->copy_end(&c->setup->dev, &id, &status)) {
		now = kv_now_ns();
		for (i = 0; i < DEV_COPY_DIRS; i++) {
			struct lane *l = &s->lane[i];
			const u32 at = l->head % LANE_ROOM;

			if (l->head == l->next || l->cp[at].id != id)
				continue;
			copier_finish(c, &l->cp[at], now - l->began[at],
				      status);
			l->head++;
			if (l->head != l->next)
				l->began[l->head % LANE_ROOM] = now;
			lane_settle(c, l);
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
void copier_many(struct copier *c)
{
	static struct lanes s;
	bool any;
	u32 i;

	memset(&s, 0, sizeof(s));
	while (!READ_ONCE(c->stop) || lanes_since(&s)) {
		any = !READ_ONCE(c->stop) && lanes_fill(c, &s);
		for (i = 0; i < DEV_COPY_DIRS && !READ_ONCE(c->stop); i++)
			any |= lane_begin(c, &s.lane[i], i);
		any |= lanes_end(c, &s);
		if (!any)
			lanes_sleep(c, lanes_since(&s));
	}
}
