// SPDX-License-Identifier: Apache-2.0
/*
 * area.c - addition and removal of swap areas
 *
 * An area that is added takes one of a few fixed ranges of extents, and gives it
 * back when it is removed.  Before that it must be empty.  No new slot is taken
 * in it, content that the host pool has, too, is dropped, and content that only
 * the area has is read or lost (area_move.c).
 */
#include "kvmm/core/node/node.h"

/**
 * core_area_add() - add a swap area
 * @bytes: bytes for slots; more than core_config.area_bytes is not used
 * @prio:  areas of higher priority are filled first, equal ones by their speed
 * @area:  gets its index
 *
 * Return: 0, -ENOSPC: no more areas, -EINVAL: smaller than an extent.
 */
int core_area_add(struct core *c, u64 now, u64 bytes, int prio, u32 *area)
{
	const struct core_config *cfg = core_cfg(c);
	u64 nr = min(bytes, cfg->area_bytes) / cfg->extent_size;
	struct kv_pool *p;
	u32 i, e;
	core_event(c);

	c->now = now;
	if (!nr)
		return -EINVAL;
	for (i = CORE_POOL_AREA; i < CORE_NR_POOLS; i++)
		if (!core_pool(c, i)->online)
			break;
	if (i == CORE_NR_POOLS)
		return -ENOSPC;

	p = core_pool(c, i);
	KV_BUG_ON(p->nr_ios || p->nr_overdue || p->io_head != CORE_NONE);
	KV_BUG_ON(p->loose || p->nr_moving);
	KV_BUG_ON(p->first + nr > core_sizes(c)->all_extents);
	p->nr_extents = (u32)nr;
	p->prio = prio;
	p->errors = 0;
	memset(p->bad, 0, sizeof(p->bad));
	memset(p->rate, 0, sizeof(p->rate));
	p->away = 0;
	p->passed = 0;
	p->leaving = 0;
	p->move_at = 0;
	p->readonly = 0;
	for (e = p->first; e < p->first + p->nr_extents; e++) {
		KV_BUG_ON(c->extents[e].state != EXT_ABSENT);
		KV_BUG_ON(c->spans[e].nr_extents || c->extents[e].backed);
		extent_set_state(c, e, EXT_BACKED);
		c->extents[e].backed = 1;
		c->extents[e].domain = CORE_NONE;
	}
	for (e = 0; e < cfg->max_domains; e++)
		if (c->domains[e].used)
			domain_part_init(c, e, i);
	KV_BUG_ON(p->loose != p->nr_extents);
	core_crash(c, CORE_CRASH_area_add);
	p->online = 1;
	*area = i - CORE_POOL_AREA;
	tier_background(c);
	return 0;
}

/**
 * core_area_del() - remove a swap area
 *
 * Return: 0; -EBUSY: it still has content or requests in flight.  It gets no new
 * slots then, and its content moves elsewhere: try again; -ENOENT.
 */
int core_area_del(struct core *c, u64 now, u32 area)
{
	u32 pool = CORE_POOL_AREA + area, i, left = 0;
	struct kv_pool *p;
	core_event(c);

	c->now = now;
	if (area >= CORE_MAX_AREAS || !core_pool(c, pool)->online)
		return -ENOENT;
	p = core_pool(c, pool);
	area_leave(c, pool);
	for (i = 0; i < core_cfg(c)->max_domains; i++) {
		const struct kv_part *part = part_at(c, part_index(c, i, pool));

		if (c->domains[i].used && part->used)
			left += part_used(part) - part->nr[BLK_POISON];
	}
	if (left || p->nr_ios)
		return -EBUSY;

	KV_BUG_ON(p->io_head != CORE_NONE || p->nr_overdue || p->nr_moving);
	p->online = 0;
	core_crash(c, CORE_CRASH_area_del);
	p->leaving = 0;
	for (i = 0; i < core_cfg(c)->max_domains; i++)
		memset(part_at(c, part_index(c, i, pool)), 0,
		       sizeof(struct kv_part));
	for (i = p->first; i < p->first + p->nr_extents; i++) {
		memset(&c->spans[i], 0, sizeof(c->spans[i]));
		KV_BUG_ON(c->extents[i].sent || c->extents[i].want);
		extent_set_state(c, i, EXT_ABSENT);
		c->extents[i].backed = 0;
	}
	KV_BUG_ON(p->loose);
	p->nr_extents = 0;
	return 0;
}

/**
 * core_area_lose() - stop waiting for content that only an area has
 *
 * Sequences that need it compute it again.  Requests in flight end as usual;
 * then the area can be removed.
 */
void core_area_lose(struct core *c, u64 now, u32 area)
{
	u32 pool = CORE_POOL_AREA + area, i;
	core_event(c);

	c->now = now;
	if (area >= CORE_MAX_AREAS || !core_pool(c, pool)->online)
		return;
	core_pool(c, pool)->readonly = 1;
	area_drain(c, pool);
	for (i = 0; i < core_sizes(c)->nr_entries; i++) {
		const struct kv_entry *e = &c->entries_low[i];

		if (lies_in(c, e, pool) && e->io == ENT_IDLE)
			entry_lose(c, i);
	}
	core_kick(c);
	admit_all(c);
	tier_background(c);
}
