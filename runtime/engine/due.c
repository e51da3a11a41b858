// SPDX-License-Identifier: Apache-2.0
/*
 * due.c - deadlines of requests
 *
 * All requests with a deadline, queued or alive, are in a heap with the
 * earliest deadline on top.  Each request knows its place in the heap, so one
 * that ends before its deadline leaves the heap at once.  A request may still
 * have sequences to close when all its samples are over, but it has left the
 * heap.
 *
 * Requests end at the beginning of an iteration, so at most one step after
 * their deadline.  Their blocks are freed when the steps that were open then
 * have ended.
 */
#include <stdlib.h>

#include "runtime/engine/internal.h"

#define DUE_NOWHERE	0u	/* places are counted from 1 */

static void due_put(struct engine *e, u32 at, struct request *r)
{
	e->due[at] = r;
	r->due_at = at;
}

static bool due_before(const struct request *a, const struct request *b)
{
	return a->c.deadline_ns < b->c.deadline_ns;
}

/* Place @r at @at or above. */
static void due_rise(struct engine *e, u32 at, struct request *r)
{
	while (at > 1 && due_before(r, e->due[at / 2])) {
		due_put(e, at, e->due[at / 2]);
		at /= 2;
	}
	due_put(e, at, r);
}

/* Place @r at @at or below. */
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
 * due_add() - remember the deadline of @r, if it has one
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

/* due_remove() - forget the deadline of @r, if it has one */
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

/* due_expire() - end every request whose deadline has passed */
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

/* due_limit() - @timeout_ns, or less when a deadline comes before */
s64 due_limit(const struct engine *e, s64 timeout_ns)
{
	s64 left;

	if (!e->nr_due)
		return timeout_ns;
	left = max(e->due[1]->c.deadline_ns - engine_now(), (s64)0);
	return min(left, timeout_ns);
}
