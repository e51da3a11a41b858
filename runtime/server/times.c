// SPDX-License-Identifier: Apache-2.0
/*
 * times.c - time intervals of a request
 *
 * The engine sets the stamps (runtime/engine/times.c).  A request has one set
 * of stamps for each prompt, and is observed once.  Intervals and their names
 * are vLLM's.  Preempted time is part of the interval that it falls into.  It
 * is never queue time, because a request leaves the queue only once.
 */
#include "runtime/server/times.h"

/* The earlier of two stamps; 0: not set. */
static s64 earlier(s64 a, s64 b)
{
	return !a || (b && b < a) ? b : a;
}

void times_add(struct engine_times *sum, const struct engine_times *t)
{
	sum->queued = earlier(sum->queued, t->queued);
	sum->scheduled = earlier(sum->scheduled, t->scheduled);
	sum->first = earlier(sum->first, t->first);
	sum->last = max(sum->last, t->last);
	sum->preempted = max(sum->preempted, t->preempted);
	sum->preemptions += t->preemptions;
}

static void observe(struct metrics *m, enum metric_histogram h, s64 ns)
{
	metrics_observe(m, h, (double)ns / 1e9, 1);
}

void times_observe(struct metrics *m, const struct engine_times *t)
{
	/* A request that ended well has all stamps. */
	if (!t->queued || !t->scheduled || !t->first)
		return;
	observe(m, METRIC_request_queue_time_seconds, t->scheduled - t->queued);
	observe(m, METRIC_request_prefill_time_seconds, t->first - t->scheduled);
	observe(m, METRIC_request_decode_time_seconds, t->last - t->first);
	observe(m, METRIC_request_inference_time_seconds, t->last - t->scheduled);
	if (t->preemptions)
		observe(m, METRIC_request_preempted_time_seconds, t->preempted);
}
