/* SPDX-License-Identifier: Apache-2.0 */
/*
 * times.h - where the time of a request went
 */
#ifndef RUNTIME_SERVER_TIMES_H
#define RUNTIME_SERVER_TIMES_H

#include "runtime/server/metrics.h"

/**
 * times_add() - take one more prompt's times into those of its request
 * @sum: all zero before the first
 *
 * A request is in the queue until one of its prompts is worked at, has its first
 * token with the first of any, its last with the last of any, and was held up by
 * preemption as long as the prompt that was so the longest.
 */
void times_add(struct engine_times *sum, const struct engine_times *t);

/* times_observe() - a request has ended well: count where its time went */
void times_observe(struct metrics *m, const struct engine_times *t);

#endif /* RUNTIME_SERVER_TIMES_H */
