// SPDX-License-Identifier: Apache-2.0
/*
 * clock.c - the engine's clock
 *
 * It has its own file so that a test can replace the clock.
 */
#include <time.h>

#include "runtime/engine/internal.h"

s64 engine_now(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (s64)ts.tv_sec * 1000000000 + ts.tv_nsec;
}
