// SPDX-License-Identifier: Apache-2.0
/*
 * limits.c - do the sizes fit this machine?
 *
 * They are judged at start, where a refusal is one line for the operator;
 * later it would be a failed attach in the middle of the night.
 */
#include <kvmm/log.h>

#include "kvmm/ipc/start/start.h"

#define FDS_CLIENT	6	/* socket, pidfd, eventfd, C and D, a spare */
#define FDS_DOOR	18	/* two sockets, readers */

/**
 * limits_files() - room for all descriptors that this daemon may need
 * @send_batch: descriptors in one message
 *
 * Every extent is one.  The limit is raised where that is allowed.  @send_batch
 * follows from it: all clients together must not exhaust the number of
 * descriptors that the kernel lets one user have under way.
 *
 * Return: 0 or a negative errno, which has been logged.
 */
int limits_files(const struct setup *s, u32 nr_doors, u32 *send_batch)
{
	u64 need = (u64)s->nr_extents + FDS_OTHER + MAX_GREETING * 2 +
		   CLOSER_MAX + (u64)s->cfg.max_clients * FDS_CLIENT +
		   MAX_GHOSTS +
		   (u64)nr_doors * FDS_DOOR;
	const u64 may = files_raise(need);

	if (!may)
		return -errno;
	if (may < need) {
		pr_err("%u extents and %u clients need %llu open files, the limit is %llu: raise it (ulimit -n), or give a larger --extent-size",
		       s->nr_extents, s->cfg.max_clients,
		       (unsigned long long)need,
		       (unsigned long long)may);
		return -EMFILE;
	}
	*send_batch = (u32)min(max(may /
				   (4 * s->cfg.max_clients), (u64)8),
			       (u64)KVMM_MAP_AT_ONCE);
	return 0;
}

/**
 * limits_records() - bytes of the records that the pools need
 *
 * Of blocks, entries and transfers; they are the daemon's own, beside the
 * pools.
 */
u64 limits_records(const struct setup *s)
{
	if (!s->cfg.host_bytes)
		return s->arena_bytes;
	return s->arena_bytes + copier_bytes(s) + swap_bytes(s);
}

/* A pool with memory of its own, against the memory that is free there. */
static int limits_device(struct setup *s, struct deposit *p)
{
	const struct kvmm_dev_ops *ops = s->dev.ops;
	char pool[32], room[32];
	u64 avail = ops->available(&s->dev);

	if (avail < s->cfg.pool_bytes && deposit_wait_old(p))
		avail = ops->available(&s->dev);
	if (avail >= s->cfg.pool_bytes)
		return 0;
	pr_err("a pool of %s does not fit the %s that are available on the device: give a smaller --%s",
	       kv_format_size(s->cfg.pool_bytes, pool, sizeof(pool)),
	       kv_format_size(avail & ~((1ull << 20) - 1), room,
			      sizeof(room)), setup_pool_option(s));
	return -ENOMEM;
}

/**
 * limits_memory() - the pools and their records, against available memory
 *
 * After a cold start the clients of the last daemon may still hold its
 * memory: they get a while to let go, then they are killed.
 *
 * Return: 0 or a negative errno, which has been logged.
 */
int limits_memory(struct setup *s, struct deposit *p)
{
	char pool[32], arena[32], room[32];
	const bool host = s->cfg.host_bytes != 0;
	u64 records = limits_records(s), need, avail;
	const bool own = s->dev.ops->own_memory;
	u64 pools = own ? 0 : s->cfg.pool_bytes;
	struct memory_room m;

	if (own && limits_device(s, p))
		return -ENOMEM;
	if (host)
		pools += hostpool_needs(s->cfg.host_bytes);
	need = pools + records + DEV_SPARE_BYTES;

	avail = dev_memory_available();
	if (avail < need && deposit_wait_old(p))
		avail = dev_memory_available();
	if (avail >= need)
		return 0;
	kv_format_size(pools, pool, sizeof(pool));
	kv_format_size(ALIGN_UP(records, 1ull << 20), arena,
		       sizeof(arena));
	kv_format_size(avail & ~((1ull << 20) - 1), room, sizeof(room));
	memory_look(&m, "");
	pr_err("%s of %s and %s of records for %s do not fit the %s of memory that are available%s%s: give a smaller --%s%s, or a larger --min-token-bytes (now %u)",
	       host ? "pools" : "a pool", pool, arena, host ? "them" : "it",
	       room, *m.group ? " in the control group " : "", m.group, setup_pool_option(s),
	       host ? ", --host-size or --area-max" : "",
	       s->cfg.min_token_bytes);
	return -ENOMEM;
}
