/* SPDX-License-Identifier: Apache-2.0 */
/*
 * times.h - time intervals of a request
 */
#ifndef RUNTIME_SERVER_TIMES_H
#define RUNTIME_SERVER_TIMES_H

#include "runtime/server/metrics.h"

/**
 * times_add() - merge the times of one prompt into those of its request
 * @sum: all zero before the first prompt
 *
 * A request leaves the queue when the first of its prompts does, and has its
 * first token with the first token of any prompt and its last with the last of
 * any.  Its preempted time is the longest of any prompt.
 */
void times_add(struct engine_times *sum, const struct engine_times *t);

/* times_observe() - observe the intervals of a request that ended well */
void times_observe(struct metrics *m, const struct engine_times *t);

#endif /* RUNTIME_SERVER_TIMES_H */
