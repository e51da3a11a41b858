// SPDX-License-Identifier: Apache-2.0
/*
 * pools.c - the device pools that --pool names
 *
 *	--pool host:64M --pool host:64M		two pools in host memory
 *
 * The first pool is gpu0, the next one gpu1, and so on.  Without --pool there is one,
 * of --pool-size.  The extents of all pools are numbered in one row, so the device, the
 * mapper and the kept descriptors need not know pools.
 */
#include <string.h>

#include <kvmm/log.h>

#include "kvmm/ipc/start/start.h"

/* Read KIND:SIZE.  Return: 0 or -EINVAL, logged. */
static int pool_parse(const char *spec, u32 *backend, u64 *bytes)
{
	static const struct {
		const char	*name;
		u32		backend;
	} kinds[] = {
		{ "host", KVMM_BACKEND_HOST },
		{ "cuda", KVMM_BACKEND_CUDA },
	};
	const char *colon = strchr(spec, ':');
	u32 i;

	for (i = 0; colon && i < ARRAY_SIZE(kinds); i++)
		if (strlen(kinds[i].name) == (size_t)(colon - spec) &&
		    !strncmp(kinds[i].name, spec, (size_t)(colon - spec)))
			break;
	if (!colon || i == ARRAY_SIZE(kinds) || kv_parse_size(colon + 1, bytes) || !*bytes) {
		pr_err("--pool: '%.80s' is no pool: give host:SIZE, such as host:64M, or cuda:SIZE",
		       spec);
		return -EINVAL;
	}
	*backend = kinds[i].backend;
	return 0;
}

/* Take one --pool.  Return: 0 or -EINVAL, logged. */
static int pool_add(struct setup *s, u32 i, const char *spec)
{
	u32 backend;
	u64 bytes;

	if (pool_parse(spec, &backend, &bytes))
		return -EINVAL;
	if (s->opt.backend != KVMM_BACKEND_AUTO && s->opt.backend != backend) {
		pr_err("--pool %.80s: all pools have one backend: give the others the same, and --backend too",
		       spec);
		return -EINVAL;
	}
	if (i && backend != KVMM_BACKEND_HOST) {
		pr_err("--pool %.80s: this version has one pool of a GPU: give one --pool", spec);
		return -EINVAL;
	}
	s->opt.backend = backend;
	s->opt.pool_size.unit = KV_AMOUNT_BYTES;
	s->opt.pool_size.value += bytes;
	if (i)
		s->more_size[i - 1] = bytes;
	return 0;
}

/**
 * pools_options() - take the pools of --pool, if there is one
 * Return: 0 or -EINVAL, which has been logged.
 */
int pools_options(struct setup *s)
{
	u32 i;

	s->nr_pools = max(s->opt.pools.nr, 1u);
	if (!s->opt.pools.nr)
		return 0;
	if (s->opt.pool_size.unit != KV_AMOUNT_UNSET) {
		pr_err("--pool and --pool-size are given: give the sizes with --pool alone");
		return -EINVAL;
	}
	if (s->nr_pools > CORE_MAX_ZONES) {
		pr_err("--pool is given %u times: give at most %u", s->nr_pools,
		       CORE_MAX_ZONES);
		return -EINVAL;
	}
	s->opt.pool_size.value = 0;
	for (i = 0; i < s->nr_pools; i++)
		if (pool_add(s, i, s->opt.pools.s[i]))
			return -EINVAL;
	return 0;
}
