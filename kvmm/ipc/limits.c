// SPDX-License-Identifier: Apache-2.0
/*
 * limits.c - does what was asked for fit this machine?
 *
 * Asked at start, where a refusal is one line for the operator, instead of
 * later, where it would be a failed attach in the middle of the night.
 */
#include <kvmm/log.h>

#include "kvmm/ipc/daemon.h"

#define FDS_CLIENT	6	/* socket, pidfd, eventfd, C and D, a spare */
#define FDS_DOOR	18	/* two sockets, readers */

/**
 * limits_files() - room for all descriptors that this daemon may need
 *
 * Every extent is one.  The soft limit is raised; also the hard one, where
 * that is allowed.  From the result follows how many descriptors may travel
 * in one message, so that all clients together cannot exhaust what the
 * kernel lets one user have under way.
 */
int limits_files(struct daemon *d)
{
	u64 need = (u64)d->setup.nr_extents + FDS_OTHER + MAX_GREETING * 2 +
		   CLOSER_MAX + (u64)d->setup.cfg.max_clients * FDS_CLIENT +
		   MAX_GHOSTS +
		   (u64)d->sockets.nr_doors * FDS_DOOR;
	const u64 may = files_raise(need);

	if (!may)
		return -errno;
	if (may < need) {
		pr_err("%u extents and %u clients need %llu open files, the limit is %llu: raise it (ulimit -n), or give a larger --extent-size",
		       d->setup.nr_extents, d->setup.cfg.max_clients,
		       (unsigned long long)need,
		       (unsigned long long)may);
		return -EMFILE;
	}
	d->clients.send_batch = (u32)min(max(may /
					     (4 * d->setup.cfg.max_clients), (u64)8),
					 (u64)KVMM_MAP_AT_ONCE);
	return 0;
}

/**
 * limits_records() - bytes of the records that the pools need
 *
 * Of blocks, entries and transfers; they are the daemon's own, beside the
 * pools.
 */
u64 limits_records(const struct daemon *d)
{
	if (!d->setup.cfg.host_bytes)
		return d->setup.arena_bytes;
	return d->setup.arena_bytes + copier_bytes(&d->setup) + swap_bytes(&d->setup);
}

/* A pool with memory of its own, against what is left there. */
static int limits_device(struct daemon *d)
{
	const struct kvmm_dev_ops *ops = d->setup.dev.ops;
	char pool[32], room[32];
	u64 avail = ops->available(&d->setup.dev);

	if (avail < d->setup.cfg.pool_bytes && deposit_wait_old(&d->deposit))
		avail = ops->available(&d->setup.dev);
	if (avail >= d->setup.cfg.pool_bytes)
		return 0;
	pr_err("a pool of %s does not fit the %s that are available on the device: give a smaller --pool-size",
	       kv_format_size(d->setup.cfg.pool_bytes, pool, sizeof(pool)),
	       kv_format_size(avail & ~((1ull << 20) - 1), room,
			      sizeof(room)));
	return -ENOMEM;
}

/**
 * limits_memory() - the pools and their records against what can be had
 *
 * After a cold start the clients of the last daemon may still hold its
 * memory: they get a while to let go, then they are killed.
 */
int limits_memory(struct daemon *d)
{
	char pool[32], arena[32], room[32];
	const bool host = d->setup.cfg.host_bytes != 0;
	u64 records = limits_records(d), need, avail;
	const bool own = d->setup.dev.ops->own_memory;
	u64 pools = own ? 0 : d->setup.cfg.pool_bytes;
	struct memory_room m;

	if (own && limits_device(d))
		return -ENOMEM;
	if (host)
		pools += hostpool_needs(d->setup.cfg.host_bytes);
	need = pools + records + DEV_SPARE_BYTES;

	avail = dev_memory_available();
	if (avail < need && deposit_wait_old(&d->deposit))
		avail = dev_memory_available();
	if (avail >= need)
		return 0;
	kv_format_size(pools, pool, sizeof(pool));
	kv_format_size(ALIGN_UP(records, 1ull << 20), arena,
		       sizeof(arena));
	kv_format_size(avail & ~((1ull << 20) - 1), room, sizeof(room));
	memory_look(&m, "");
	pr_err("%s of %s and %s of records for %s do not fit the %s of memory that are available%s%s: give a smaller --pool-size%s, or a larger --min-token-bytes (now %u)",
	       host ? "pools" : "a pool", pool, arena, host ? "them" : "it",
	       room, *m.group ? " in the control group " : "", m.group, host ? ", --host-size or --area-max" : "",
	       d->setup.cfg.min_token_bytes);
	return -ENOMEM;
}
