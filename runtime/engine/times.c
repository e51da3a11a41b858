// SPDX-License-Identifier: Apache-2.0
/*
 * times.c - stages of a request
 *
 *	queued --> scheduled --> first token --> last token
 *	           |    prefill       |    decode     |
 *	           +-------------- inference ---------+
 *
 * All stamps but two are e->lap_ns, the end of the part of an iteration that
 * was measured last: a forward begins, tokens are delivered.  A preemption
 * moves none of the stamps: the time without memory and the time of recomputing
 * belong to the interval they fall into.  That time is also counted apart, from
 * the moment a sequence loses its memory until @computed is back at @high, as
 * long as any sequence of the request is in that state.
 */
#include "runtime/engine/internal.h"

/* times_scheduled() - a forward of @r is about to begin */
void times_scheduled(const struct engine *e, struct request *r)
{
	if (r->times.scheduled)
		return;
	r->times.scheduled = e->lap_ns;
	KV_PROBE(kvrt, request_scheduled, r->id,
		 (r->times.scheduled - r->times.queued) / 1000);
}

/* times_token() - a token of @r was drawn, perhaps a stop id */
void times_token(const struct engine *e, struct request *r)
{
	r->times.last = e->lap_ns;
	if (r->times.first)
		return;
	r->times.first = e->lap_ns;
	KV_PROBE(kvrt, first_token, r->id,
		 (r->times.first - r->times.queued) / 1000);
}

/* times_lost() - @s was preempted */
void times_lost(struct seq *s)
{
	struct request *r = s->req;

	r->times.preemptions++;
	if (s->behind)
		return;
	s->behind = true;
	if (!r->nr_behind++)
		r->behind_since = engine_now();
}

/* times_caught_up() - at @now @s has recovered from preemption, or has ended */
void times_caught_up(struct seq *s, s64 now)
{
	struct request *r = s->req;

	if (!s->behind)
		return;
	s->behind = false;
	if (!--r->nr_behind)
		r->times.preempted += now - r->behind_since;
}

/* times_so_far() - the times of @r up to now */
struct engine_times times_so_far(const struct request *r)
{
	struct engine_times t = r->times;

	if (r->nr_behind)
		t.preempted += engine_now() - r->behind_since;
	return t;
}
