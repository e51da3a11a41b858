/* SPDX-License-Identifier: Apache-2.0 */
/*
 * retry.h - Retry-After for refused requests
 */
#ifndef RUNTIME_SERVER_RETRY_H
#define RUNTIME_SERVER_RETRY_H

#include <kvmm/types.h>

/**
 * struct retry - how fast requests end
 * @gap_ns:  smoothed time between two ends, while requests are in progress
 * @last_ns: time of the last end
 */
struct retry {
	s64	gap_ns;
	s64	last_ns;
};

/**
 * retry_ended() - count the end of a request
 * @began_ns: when the request began
 */
void retry_ended(struct retry *r, s64 began_ns, s64 now_ns);

/**
 * retry_after_s() - seconds until half of @nr requests will have ended
 *
 * A client that came back at once would only be refused again, with all the
 * others; if all came back much later, the server would run idle.
 * Return: 1 to 60.
 */
u32 retry_after_s(const struct retry *r, u32 nr);

#endif /* RUNTIME_SERVER_RETRY_H */
