// SPDX-License-Identifier: Apache-2.0
/*
 * clock.c - what time it is, for the engine
 *
 * Alone in a file, so that a test can give the engine a clock of its own.
 */
#include <time.h>

#include "runtime/engine/internal.h"

s64 engine_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (s64)ts.tv_sec * 1000000000 + ts.tv_nsec;
}
