// SPDX-License-Identifier: Apache-2.0
/*
 * times.c - when a request came to what
 *
 *	queued --> scheduled --> first token --> last token
 *	           |    prefill       |    decode     |
 *	           +-------------- inference ---------+
 *
 * All stamps but two are e->lap_ns, where the part of an iteration that has just
 * ended was measured anyway: a forward begins, tokens are handed out.  What is
 * taken from a request in between moves none of them: being without memory and
 * computing again what was lost belong to the interval they fall into.  How much
 * that was is counted beside, from the moment a sequence loses its memory until
 * it stands where it stood, as long as it is so for any of the request's.
 */
#include "runtime/engine/internal.h"

/* times_scheduled() - a forward is about to compute positions of @r */
void times_scheduled(const struct engine *e, struct request *r)
{
	if (r->times.scheduled)
		return;
	r->times.scheduled = e->lap_ns;
	KV_PROBE(kvrt, request_scheduled, r->id,
		 (r->times.scheduled - r->times.queued) / 1000);
}

/* times_token() - a token of @r is there, or one that ends it */
void times_token(const struct engine *e, struct request *r)
{
	r->times.last = e->lap_ns;
	if (r->times.first)
		return;
	r->times.first = e->lap_ns;
	KV_PROBE(kvrt, first_token, r->id,
		 (r->times.first - r->times.queued) / 1000);
}

/* times_lost() - @s has lost its memory */
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

/* times_caught_up() - @s stands where it stood, or does not go on: at @now */
void times_caught_up(struct seq *s, s64 now)
{
	struct request *r = s->req;

	if (!s->behind)
		return;
	s->behind = false;
	if (!--r->nr_behind)
		r->times.preempted += now - r->behind_since;
}

/* times_so_far() - of a request, now */
struct engine_times times_so_far(const struct request *r)
{
	struct engine_times t = r->times;

	if (r->nr_behind)
		t.preempted += engine_now() - r->behind_since;
	return t;
}
