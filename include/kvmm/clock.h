/* SPDX-License-Identifier: Apache-2.0 */
/*
 * clock.h - the monotonic clock, in the units that programs count in
 *
 * CLOCK_MONOTONIC: no change of the date moves it, and it does not count suspend.
 *
 * Context: any thread, signal handlers too.
 */
#ifndef KVMM_CLOCK_H
#define KVMM_CLOCK_H

#include <time.h>

#include <kvmm/types.h>

static inline u64 kv_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (u64)ts.tv_sec * 1000000000u + (u64)ts.tv_nsec;
}

static inline u64 kv_now_us(void)
{
	return kv_now_ns() / 1000;
}

static inline u64 kv_now_ms(void)
{
	return kv_now_ns() / 1000000;
}

/* In seconds, for times that people read. */
static inline double kv_now_s(void)
{
	return (double)kv_now_ns() / 1e9;
}

#endif /* KVMM_CLOCK_H */
