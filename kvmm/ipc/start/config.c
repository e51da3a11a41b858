// SPDX-License-Identifier: Apache-2.0
/*
 * config.c - options that contradict each other; the core's configuration
 */
#include <kvmm/addr.h>
#include <kvmm/area_opt.h>
#include <kvmm/log.h>

#include "kvmm/ipc/start/start.h"

static int host_numa(struct setup *s)
{
	if (!hostpool_numa_parse(s->opt.host_numa, &s->host_numa))
		return 0;
	pr_err("--host-numa: '%.40s' is not one of auto, local, interleave: give one of these, or the number of a memory node",
	       s->opt.host_numa);
	return -EINVAL;
}

/* kvmm-proc listens there; a wrong address is refused before anything starts. */
static int metrics_addr(const struct setup *s)
{
	struct kv_addr addr;

	if (!kv_addr_parse(s->opt.metrics, &addr))
		return 0;
	pr_err("--metrics: '%.80s' is no address: give off, a port, 127.0.0.1:PORT or [::1]:PORT, in numbers",
	       s->opt.metrics);
	return -EINVAL;
}

/* kvmm-hold opens areas once kvmm serves; a wrong one is refused before. */
static int areas(const struct setup *s)
{
	static struct area_opt a;
	char why[256];
	u32 i;

	for (i = 0; i < s->opt.areas.nr; i++)
		if (area_opt_parse(&a, s->opt.areas.s[i], why, sizeof(why))) {
			pr_err("%s", why);
			return -EINVAL;
		}
	return 0;
}

/* config_options() - judge options that are text.  Return: 0 or -EINVAL, logged */
int config_options(struct setup *s)
{
	return host_numa(s) || metrics_addr(s) || areas(s) || pools_options(s) ?
	       -EINVAL : 0;
}

/*
 * Is @bytes of --@name no multiple of an extent?  Then that has been logged, with the
 * text that was typed; @typed is NULL: the number.
 */
static bool is_uneven(const struct setup *s, const char *name, const char *typed,
		      u64 bytes)
{
	const u64 unit = s->opt.extent_size;
	char size[32], ext[32], near[72];

	if (!(bytes % unit))
		return false;
	kv_format_size(bytes, size, sizeof(size));
	pr_err("--%s %.80s is no multiple of --extent-size %s: give %s, or another --extent-size",
	       name, typed ? typed : size, kv_format_size(unit, ext, sizeof(ext)),
	       kv_format_near(bytes, unit, near, sizeof(near)));
	return true;
}

static bool pools_uneven(const struct setup *s)
{
	u32 i;

	if (!s->opt.pools.nr)
		return is_uneven(s, "pool-size", NULL, s->pool_size);
	for (i = 0; i < s->nr_pools; i++)
		if (is_uneven(s, "pool", s->opt.pools.s[i], setup_pool_bytes(s, i)))
			return true;
	return false;
}

/* config_check() - judge sizes together.  Return: 0 or a negative errno, logged */
int config_check(struct setup *s)
{
	const struct kvmm_options *o = &s->opt;
	char pool[32], ext[32];

	kv_format_size(s->pool_size, pool, sizeof(pool));
	kv_format_size(o->extent_size, ext, sizeof(ext));
	if (!is_power_of_2(o->extent_size)) {
		pr_err("--extent-size %s is no power of two: give one, as 2M or 64M",
		       ext);
		return -EINVAL;
	}
	if (!is_power_of_2(o->min_token_bytes) ||
	    o->min_token_bytes * 16ull > o->extent_size) {
		pr_err("--min-token-bytes %u is no power of two, or 16 tokens of it exceed --extent-size %s: change either",
		       o->min_token_bytes, ext);
		return -EINVAL;
	}
	if (s->dev.ops->granule) {
		const u64 granule = s->dev.ops->granule(&s->dev);

		if (!granule)
			return -EIO;
		if (o->extent_size % granule) {
			pr_err("--extent-size %s is no multiple of %s, in which this GPU hands memory out: give a larger one",
			       ext, kv_format_size(granule, pool, sizeof(pool)));
			return -EINVAL;
		}
	}
	if (pools_uneven(s) || is_uneven(s, "host-size", NULL, s->host_size) ||
	    is_uneven(s, "area-max", NULL, o->area_max))
		return -EINVAL;
	if (o->overcommit == 1) {
		pr_err("--overcommit 1 is not supported: give 0, by the prompt, or 2, by all of max_tokens");
		return -EINVAL;
	}
	if (o->area_max && !s->host_size)
		pr_warn("--area-max is of no use without a host pool, which all swap goes through: give it --host-size");
	if (s->pool_size >= CORE_POOL_LIMIT) {
		pr_err("--%s %s is too large: all pools together have less than %s: give less",
		       setup_pool_option(s), pool,
		       kv_format_size(CORE_POOL_LIMIT, ext, sizeof(ext)));
		return -EINVAL;
	}
	if (s->pool_size / o->extent_size > UINT32_MAX / 4) {
		pr_err("--%s %s has too many extents of %s: give a larger --extent-size",
		       setup_pool_option(s), pool, ext);
		return -EINVAL;
	}
	return 0;
}

/* config_fill() - the configuration of the core, from options and sizes */
void config_fill(struct setup *s, u32 nr_doors)
{
	const struct kvmm_options *o = &s->opt;

	s->cfg = (struct core_config){
		.pool_bytes		= s->pool_size,
		.extent_size		= o->extent_size,
		.min_token_bytes	= o->min_token_bytes,
		.max_tenants		= o->max_tenants + nr_doors,
		.named_tenants		= nr_doors,
		.max_domains		= o->max_domains,
		.max_clients		= o->max_clients,
		.max_seqs		= o->max_seqs,
		.max_steps		= KVMM_MAX_STEPS,
		.step_deadline_ns	= o->step_deadline_ms * NSEC_PER_MSEC,
		.quiet_deadline_ns	= o->quiet_deadline_ms * NSEC_PER_MSEC,
		.revoke_deadline_ns	= o->revoke_deadline_ms * NSEC_PER_MSEC,
		.starve_ns		= o->starve_ms * NSEC_PER_MSEC,
		.io_deadline_ns		= o->swap_deadline_ms * NSEC_PER_MSEC,
		.host_bytes		= s->host_size,
		.area_bytes		= !s->host_size ? 0 : o->area_max ?
					  o->area_max : AREA_HOSTS * s->host_size,
#define x(type, name, ...) .name = o->name,
		KVMM_TUNABLES(x)
#undef x
	};
	keep_boot(s->cfg.boot);
	s->nr_extents = (u32)(s->pool_size / o->extent_size);
	memcpy(s->cfg.more_bytes, s->more_size, sizeof(s->cfg.more_bytes));
	s->arena_bytes = core_arena_size(&s->cfg);
	s->dev.extent_size = o->extent_size;
}
