// SPDX-License-Identifier: Apache-2.0
/*
 * limits.c - does what was asked for fit this machine?
 *
 * Asked at start, where a refusal is one line for the operator, instead of
 * later, where it would be a failed attach in the middle of the night.
 */
#include <sys/resource.h>

#include <kvmm/log.h>

#include "kvmm/ipc/daemon.h"

#define FDS_CLIENT	6	/* socket, pidfd, eventfd, C and D, a spare */
#define FDS_OTHER	(128 + CORE_NR_TRIGGERS) /* views, epolls, sockets, libraries */
#define FDS_DOOR	18	/* two sockets, readers */
#define LOG_BURST	20	/* lines that clients may cause */
#define LOG_LIFE_BURST	80	/* and about their coming and going */

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
	u64 need = (u64)d->nr_extents + FDS_OTHER + MAX_GREETING * 2 +
		   CLOSER_MAX + (u64)d->cfg.max_clients * FDS_CLIENT +
		   MAX_GHOSTS +
		   (u64)d->nr_doors * FDS_DOOR;
	struct rlimit r;

	if (getrlimit(RLIMIT_NOFILE, &r))
		return -errno;
	if (r.rlim_cur < need || r.rlim_cur < r.rlim_max) {
		struct rlimit want = {
			.rlim_cur = max((u64)r.rlim_max, need),
			.rlim_max = max((u64)r.rlim_max, need),
		};

		if (!setrlimit(RLIMIT_NOFILE, &want))
			r = want;
		else if (r.rlim_cur < r.rlim_max) {
			r.rlim_cur = r.rlim_max;
			if (setrlimit(RLIMIT_NOFILE, &r))
				return -errno;
		}
	}
	if (r.rlim_cur < need) {
		pr_err("%u extents and %u clients need %llu open files, the limit is %llu: raise it (ulimit -n), or give a larger --extent-size",
		       d->nr_extents, d->cfg.max_clients,
		       (unsigned long long)need,
		       (unsigned long long)r.rlim_cur);
		return -EMFILE;
	}
	d->send_batch = (u32)min(max((u64)r.rlim_cur /
				     (4 * d->cfg.max_clients), (u64)8),
				 (u64)KVMM_MAP_AT_ONCE);
	return 0;
}

/* limits_files_kept() - room for @nr descriptors that hold hands over */
void limits_files_kept(u64 nr)
{
	u64 need = nr + FDS_OTHER;
	struct rlimit r, want;

	if (getrlimit(RLIMIT_NOFILE, &r) || r.rlim_cur >= need)
		return;
	want.rlim_cur = max((u64)r.rlim_max, need);
	want.rlim_max = want.rlim_cur;
	if (!setrlimit(RLIMIT_NOFILE, &want))
		return;
	r.rlim_cur = r.rlim_max;
	/* What has no room is missing, and the start is a cold one. */
	(void)!setrlimit(RLIMIT_NOFILE, &r);
}

/**
 * limits_records() - bytes of the records that the pools need
 *
 * Of blocks, entries and transfers; they are the daemon's own, beside the
 * pools.
 */
u64 limits_records(const struct daemon *d)
{
	if (!d->cfg.host_bytes)
		return d->arena_bytes;
	return d->arena_bytes + copier_bytes(d) + swap_bytes(d);
}

/* A pool with memory of its own, against what is left there. */
static int limits_device(struct daemon *d)
{
	const struct kvmm_dev_ops *ops = d->dev.ops;
	char pool[32], room[32];
	u64 avail = ops->available(&d->dev);

	if (avail < d->cfg.pool_bytes && deposit_wait_old(d))
		avail = ops->available(&d->dev);
	if (avail >= d->cfg.pool_bytes)
		return 0;
	pr_err("a pool of %s does not fit the %s that are available on the device: give a smaller --pool-size",
	       kv_format_size(d->cfg.pool_bytes, pool, sizeof(pool)),
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
	const bool host = d->cfg.host_bytes != 0;
	u64 records = limits_records(d), need, avail;
	const bool own = d->dev.ops->own_memory;
	u64 pools = own ? 0 : d->cfg.pool_bytes;
	struct memory_room m;

	if (own && limits_device(d))
		return -ENOMEM;
	if (host)
		pools += hostpool_needs(d->cfg.host_bytes);
	need = pools + records + DEV_SPARE_BYTES;

	avail = dev_memory_available();
	if (avail < need && deposit_wait_old(d))
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
	       d->cfg.min_token_bytes);
	return -ENOMEM;
}

/* log_allowed() - may a line that a client causes be written now? */
bool log_allowed(void)
{
	static struct kv_log_budget faults;

	return kv_log_spend(&faults, LOG_BURST, "clients");
}

/* log_life_allowed() - the same for a client that comes or goes */
bool log_life_allowed(void)
{
	static struct kv_log_budget life;

	return kv_log_spend(&life, LOG_LIFE_BURST, "clients");
}
