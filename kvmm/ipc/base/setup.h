/* SPDX-License-Identifier: Apache-2.0 */
/*
 * setup.h - the state that start-up makes and all threads read
 *
 * It does not change while threads run, but for three things: the core, which
 * is the mm thread's alone; the device, which the mapper and the copier call;
 * and @dev_failed, which is the mm thread's.
 */
#ifndef KVMM_IPC_SETUP_H
#define KVMM_IPC_SETUP_H

#include <kvmm/kvmm_options.h>
#include <kvmm/types.h>

#include "kvmm/core/core.h"
#include "kvmm/dev/dev.h"
#include "kvmm/dev/hostpool.h"

/**
 * struct setup - options, sizes, the device, the host pool and the core
 * @pool_size:  bytes that --pool-size, or all of --pool, come to
 * @more_size:  of these, bytes of each pool of --pool after the first
 * @host_size:  bytes that --host-size comes to
 * @nr_extents: of all device pools
 * @nr_pools:   device pools
 * @epoch:      names this pool to clients; an adopting daemon has the epoch of
 *		the last one
 * @start_ns:   when this process began
 * @pool_failed: DEV_* of each pool, beside @dev.failed; written by the mapper, with
 *		release
 * @dev_failed: DEV_* of each pool, as the core knows it
 * @arena:      memory of the core
 * @arena_fd:   its descriptor, -1: the next daemon does not get it
 * @adopted:    CORE_ADOPT_*, -1: this start was a cold one
 * @own_uid:    user that started the daemon; it may do everything, as root may
 */
struct setup {
	struct kvmm_options	opt;
	struct core_config	cfg;
	u64			pool_size;
	u64			more_size[CORE_MAX_ZONES - 1];
	u64			host_size;
	struct hostpool_numa	host_numa;
	u32			nr_extents;
	u32			nr_pools;
	u64			epoch;
	u64			start_ns;
	struct kvmm_dev		dev;
	u32			pool_failed[CORE_MAX_ZONES];
	u32			dev_failed[CORE_MAX_ZONES];
	struct hostpool		host;
	struct core		*core;
	void			*arena;
	u64			arena_bytes;
	int			arena_fd;
	int			adopted;
	uid_t			own_uid;
};

/* setup_pool_option() - the option that gives the size of the device pools */
static inline const char *setup_pool_option(const struct setup *s)
{
	return s->opt.pools.nr ? "pool" : "pool-size";
}

/* setup_pool_bytes() - bytes of one device pool */
static inline u64 setup_pool_bytes(const struct setup *s, u32 pool)
{
	u64 bytes = s->pool_size;
	u32 i;

	if (pool)
		return s->more_size[pool - 1];
	for (i = 0; i < s->nr_pools - 1; i++)
		bytes -= s->more_size[i];
	return bytes;
}

/* setup_pool_of() - the device pool that an extent is in */
static inline u32 setup_pool_of(const struct setup *s, u32 extent)
{
	u64 end = s->cfg.pool_bytes, at = extent * s->cfg.extent_size;
	u32 i = s->nr_pools - 1;

	for (; i && at < end - s->cfg.more_bytes[i - 1]; i--)
		end -= s->cfg.more_bytes[i - 1];
	return i;
}

/* device_quiet() - does nothing run on the device of a process that ended at @since? */
static inline bool device_quiet(struct setup *s, u64 since, u64 now)
{
	return !s->dev.ops->quiet || s->dev.ops->quiet(&s->dev, since, now);
}

#endif /* KVMM_IPC_SETUP_H */
