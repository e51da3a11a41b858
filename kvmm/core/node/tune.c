// SPDX-License-Identifier: Apache-2.0
/*
 * tune.c - tunables: parts of the configuration that may change at any time
 *
 * They are members of struct core_config that no table size depends on, in a
 * list with their bounds (kvmm/tunables.h).  They change between two events, and
 * everything that follows from them is computed again at once.
 */
#include "kvmm/core/node/node.h"

/* tune_is_valid() - is every tunable of a configuration within its bounds? */
bool tune_is_valid(const struct core_config *cfg)
{
#define x(type, name, opt, def, least, most, ...)			\
	if (cfg->name > (most))						\
		return false;
	KVMM_TUNABLES(x)
#undef x
	return cfg->overcommit != 1;
}

/**
 * core_tune() - an operator changes a tunable
 * @which: CORE_TUNE_*
 *
 * Return: 0; -EINVAL: no such tunable, or out of its bounds.
 */
int core_tune(struct core *c, u64 now, u32 which, u64 value)
{
	static const u32 at_least[CORE_NR_TUNABLES] = {
#define x(type, name, opt, def, least, ...) [CORE_TUNE_##name] = least,
		KVMM_TUNABLES(x)
#undef x
	};
	struct core_config cfg = *core_cfg(c);
	core_event(c);

	if (which >= CORE_NR_TUNABLES || value > 0xffffffff || value < at_least[which])
		return -EINVAL;
	switch (which) {
#define x(type, name, ...)						\
	case CORE_TUNE_##name:						\
		cfg.name = (u32)value;					\
		break;
	KVMM_TUNABLES(x)
#undef x
	}
	if (!tune_is_valid(&cfg))
		return -EINVAL;
	c->now = now;
	c->head->cfg = cfg;
	limit_settle(c);
	admit_all(c);
	return 0;
}
