// SPDX-License-Identifier: Apache-2.0
/*
 * clock.c - the engine's clock
 *
 * It has its own file so that a test can replace the clock.
 */
#include <kvmm/clock.h>

#include "runtime/engine/internal.h"

s64 engine_now(void)
{
	return (s64)kv_now_ns();
}
