// SPDX-License-Identifier: Apache-2.0
/*
 * retry.c - Retry-After for refused requests
 *
 * The time between two ends of requests is measured and smoothed over about
 * eight of them.  Time without any request in progress does not count: a gap
 * begins with the last end or with the beginning of the request that ended,
 * whichever is later.
 */
#include "runtime/server/retry.h"

#define RETRY_MAX_S	60
#define SECOND_NS	1000000000ll

void retry_ended(struct retry *r, s64 began_ns, s64 now_ns)
{
	const s64 gap = now_ns - max(began_ns, r->last_ns);

	r->gap_ns = r->last_ns ? (7 * r->gap_ns + gap) / 8 : gap;
	r->last_ns = now_ns;
}

u32 retry_after_s(const struct retry *r, u32 nr)
{
	const s64 s = r->gap_ns * nr / 2 / SECOND_NS + 1;

	return (u32)min(s, (s64)RETRY_MAX_S);
}
