/* SPDX-License-Identifier: Apache-2.0 */
/*
 * retry.h - when somebody who was refused had better come again
 */
#ifndef RUNTIME_SERVER_RETRY_H
#define RUNTIME_SERVER_RETRY_H

#include <kvmm/types.h>

/**
 * struct retry - how fast requests end
 * @gap_ns:  between two ends, of late, while there was something to end
 * @last_ns: the last end
 */
struct retry {
	s64	gap_ns;
	s64	last_ns;
};

/**
 * retry_ended() - one more has ended
 * @began_ns: when it began
 */
void retry_ended(struct retry *r, s64 began_ns, s64 now_ns);

/**
 * retry_after_s() - when half of @nr requests will have ended, in seconds
 *
 * At once they would only be refused again, with all the others; much later
 * the server would have nothing to do.  Return: 1 to 60.
 */
u32 retry_after_s(const struct retry *r, u32 nr);

#endif /* RUNTIME_SERVER_RETRY_H */
