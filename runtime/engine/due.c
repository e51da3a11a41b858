// SPDX-License-Identifier: Apache-2.0
/*
 * due.c - requests that must end by a certain time
 *
 * All of them, in the queue or alive, in a heap with the earliest on top; each
 * knows its place in it, so one that ends before leaves it at once.  A request
 * whose samples are all over may still have sequences to close: it is not in
 * the heap any more.
 *
 * What is due is ended at the beginning of an iteration, so no later than one
 * step after its time; its blocks are free when the steps that were open then
 * have ended.
 */
#include <stdlib.h>

#include "runtime/engine/internal.h"

#define DUE_NOWHERE	0u	/* places count from 1 */

static void due_put(struct engine *e, u32 at, struct request *r)
{
	e->due[at] = r;
	r->due_at = at;
}

static bool due_before(const struct request *a, const struct request *b)
{
	return a->c.deadline_ns < b->c.deadline_ns;
}

/* @r belongs to @at or above it. */
static void due_rise(struct engine *e, u32 at, struct request *r)
{
	while (at > 1 && due_before(r, e->due[at / 2])) {
		due_put(e, at, e->due[at / 2]);
		at /= 2;
	}
	due_put(e, at, r);
}

/* @r belongs to @at or below it. */
static void due_sink(struct engine *e, u32 at, struct request *r)
{
	u32 child;

	while ((child = 2 * at) <= e->nr_due) {
		if (child < e->nr_due &&
		    due_before(e->due[child + 1], e->due[child]))
			child++;
		if (!due_before(e->due[child], r))
			break;
		due_put(e, at, e->due[child]);
		at = child;
	}
	due_put(e, at, r);
}

/**
 * due_add() - remember when @r must end, if it must
 *
 * Return: 0 or -ENOMEM.
 */
int due_add(struct engine *e, struct request *r)
{
	struct request **more;
	u32 cap;

	if (!r->c.deadline_ns)
		return 0;
	if (e->nr_due + 1 >= e->due_cap) {
		cap = max(2 * e->due_cap, 64u);
		more = realloc(e->due, cap * sizeof(struct request *));
		if (!more)
			return -ENOMEM;
		e->due = more;
		e->due_cap = cap;
	}
	due_rise(e, ++e->nr_due, r);
	return 0;
}

/* due_remove() - forget it; also one that was never added */
void due_remove(struct engine *e, struct request *r)
{
	const u32 at = r->due_at;
	struct request *last;

	if (at == DUE_NOWHERE)
		return;
	r->due_at = DUE_NOWHERE;
	last = e->due[e->nr_due--];
	if (last == r)
		return;
	if (at > 1 && due_before(last, e->due[at / 2]))
		due_rise(e, at, last);
	else
		due_sink(e, at, last);
}

/* due_expire() - end every request whose time is over */
void due_expire(struct engine *e)
{
	static const struct engine_done why = {
		.reason = ENGINE_TIMEOUT, .err = -ETIMEDOUT,
		.text = "the request's time was over before it was done",
	};
	s64 now;

	if (!e->nr_due)
		return;
	now = engine_now();
	while (e->nr_due && e->due[1]->c.deadline_ns <= now) {
		struct request *r = e->due[1];

		e->stats.timeouts += r->c.n - r->nr_over;
		request_over(e, r, &why);
	}
}

/* due_limit() - @timeout_ns, or less when a request must end before */
s64 due_limit(const struct engine *e, s64 timeout_ns)
{
	s64 left;

	if (!e->nr_due)
		return timeout_ns;
	left = max(e->due[1]->c.deadline_ns - engine_now(), (s64)0);
	return min(left, timeout_ns);
}
