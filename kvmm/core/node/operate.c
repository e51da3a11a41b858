// SPDX-License-Identifier: Apache-2.0
/*
 * operate.c - an operator's commands beside limits and tunables
 *
 * Evicting frees device memory of a domain's cache and nothing else: no sequence
 * loses memory, no sequence is preempted, no client killed.  Blocks are evicted
 * in the usual order and way: where a lower tier has a copy, the name and the
 * copy stay.
 *
 * Draining refuses new work: no client may attach, and no sequence may be
 * opened.  Existing work goes on until it is done: preempted sequences come
 * back, forks are made, and a client of an adopted arena may resume.  The flag
 * is in the arena, so a drained node stays drained through an adoption.
 */
#include "kvmm/core/node/node.h"

/**
 * core_evict() - free device memory of a domain's cache
 * @most: number of blocks after which it stops
 *
 * Call it again while it returns @most or more: an event must be short.  Other
 * domains may take the spans that become empty.
 * Return: blocks freed, which may be more than @most, since the descendants of a
 * block are evicted with it; -ENOENT.
 */
int core_evict(struct core *c, u64 now, u32 dom, u32 most)
{
	struct kv_domain *d;
	u32 before, nr = 0, blk;
	core_event(c);

	if (dom >= core_cfg(c)->max_domains || !c->domains[dom].used)
		return -ENOENT;
	c->now = now;
	d = &c->domains[dom];
	while (nr < most) {
		blk = lru_next(c, dom);
		if (blk == CORE_NONE)
			break;
		before = d->dev.nr[BLK_CACHED];
		KV_BUG_ON(c->blocks[blk].domain != dom || !before);
		index_evict(c, blk);
		KV_BUG_ON(d->dev.nr[BLK_CACHED] >= before);
		nr += before - d->dev.nr[BLK_CACHED];
	}
	core_count(c, CORE_EV_evict_asked, nr);
	admit_all(c);
	return (int)min(nr, (u32)INT32_MAX);
}

/* drain_publish() - tell a client whether it may open sequences */
void drain_publish(struct core *c, u32 client)
{
	if (c->clients[client].state == CLI_ALIVE && c->bind[client].ctl)
		WRITE_ONCE(c->bind[client].ctl->draining,
			   drain_of_client(c, client));
}

/**
 * core_drain() - begin or end to refuse new work
 * @what: CORE_DRAIN_NODE, CORE_DRAIN_TENANT, CORE_DRAIN_CLIENT
 * @id:   index of the tenant or client
 *
 * Return: 0; -ENOENT: no such tenant or client.
 */
int core_drain(struct core *c, u64 now, u32 what, u32 id, bool on)
{
	u32 i;
	core_event(c);

	c->now = now;
	switch (what) {
	case CORE_DRAIN_NODE:
		c->head->draining = on;
		break;
	case CORE_DRAIN_TENANT:
		if (id >= core_cfg(c)->max_tenants || !c->tenants[id].used)
			return -ENOENT;
		c->tenants[id].draining = on;
		break;
	case CORE_DRAIN_CLIENT:
		if (id >= core_cfg(c)->max_clients ||
		    c->clients[id].state == CLI_FREE)
			return -ENOENT;
		c->clients[id].draining = on;
		break;
	default:
		return -ENOENT;
	}
	for (i = 0; i < core_cfg(c)->max_clients; i++)
		drain_publish(c, i);
	return 0;
}

/* core_get_drain() - does the node refuse new work? */
bool core_get_drain(const struct core *c)
{
	return c->head->draining;
}

/* Drop cached content of the lower tiers that no table names. */
static u32 drop_entries(struct core *c, u32 dom, u32 most)
{
	u32 i, nr = 0;

	for (i = 0; i < core_sizes(c)->nr_entries && nr < most; i++) {
		const struct kv_entry *e = &c->entries_low[i];

		if (e->domain != dom || !(e->flags & ENTF_INDEXED) || e->refs)
			continue;
		entry_drop(c, i);
		nr++;
	}
	return nr;
}

/**
 * core_drop_caches() - drop blocks of a domain that only the index holds
 * @dom:  index of the domain
 * @most: most blocks to drop in this event, which takes time in proportion
 *
 * On the device and on lower tiers.  Blocks that sequences map or have swapped
 * out stay in the index.  The domain also forgets its ghosts, since these blocks
 * were not evicted for lack of memory.
 * Return: number of blocks dropped; fewer than @most: none are left.  -ENOENT:
 * no such domain.
 */
int core_drop_caches(struct core *c, u64 now, u32 dom, u32 most)
{
	u32 nr, blk;
	core_event(c);

	if (dom >= core_cfg(c)->max_domains || !c->domains[dom].used)
		return -ENOENT;
	c->now = now;
	for (nr = 0; nr < most; nr++) {
		blk = lru_next(c, dom);
		if (blk == CORE_NONE)
			break;
		KV_BUG_ON(c->blocks[blk].domain != dom);
		KV_BUG_ON(c->blocks[blk].state != BLK_CACHED);
		index_evict(c, blk);
	}
	KV_BUG_ON(nr > most);
	nr += drop_entries(c, dom, most - nr);
	if (nr < most)
		lru_ghost_forget(c, dom);
	admit_all(c);
	return (int)nr;
}

static int domain_set(struct core *c, u64 now, u32 dom, u32 which, u64 value,
		      bool begin)
{
	struct kv_domain *d;
	int err;
	core_event(c);

	if (dom >= core_cfg(c)->max_domains)
		return -ERANGE;
	d = &c->domains[dom];
	if (!d->used)
		return -ENOENT;
	c->now = now;
	err = limit_set(d, which, value);
	if (err)
		return err;
	KV_BUG_ON(which >= CORE_NR_LIMITS);
	d->by_operator |= BIT(which);
	d->operator_limit[which] = value;
	/* Valid: it is @value, or was checked at attach. */
	if (begin)
		(void)limit_set(d, which, limit_bounded(d, which));
	core_tell(c, limit_set, .domain = dom, .mark = which, .value = value);
	limit_settle(c);
	(void)room_evict(c, dom, 0);
	admit_all(c);
	return 0;
}

/**
 * core_domain_set() - an operator changes a limit of a domain
 * @which: CORE_LIMIT_*
 * @value: bytes, KVMM_LIMIT_MAX for none; for the weight 1 to 10000
 *
 * It also holds for clients that attach later, until it is changed or unset;
 * they may ask for less of high and max.  Above a lowered max, cache is evicted
 * at once, and sequences give way when they next ask for memory.  A sequence
 * that can never fit any more fails when its turn comes.
 * Return: 0; -ERANGE past the last domain; -ENOENT; -EINVAL: max below one
 * block, or no such limit.
 */
int core_domain_set(struct core *c, u64 now, u32 dom, u32 which, u64 value)
{
	return domain_set(c, now, dom, which, value, false);
}

/**
 * core_domain_begin() - an operator gave a limit before the domain was made
 *
 * As core_domain_set(), but less of high and max is in effect if the client that made
 * the domain asked for less.
 * Return: as core_domain_set().
 */
int core_domain_begin(struct core *c, u64 now, u32 dom, u32 which, u64 value)
{
	return domain_set(c, now, dom, which, value, true);
}

/**
 * core_domain_unset() - the limit that clients asked for counts again
 * @which: CORE_LIMIT_*
 *
 * Within the quota of their tenant.
 * Return: 0; -ERANGE past the last domain; -ENOENT; -EINVAL: no such limit;
 * -EALREADY: no operator had set it.
 */
int core_domain_unset(struct core *c, u64 now, u32 dom, u32 which)
{
	struct kv_domain *d;
	core_event(c);

	if (dom >= core_cfg(c)->max_domains)
		return -ERANGE;
	d = &c->domains[dom];
	if (!d->used)
		return -ENOENT;
	if (which >= CORE_NR_LIMITS)
		return -EINVAL;
	if (!(d->by_operator & BIT(which)))
		return -EALREADY;
	c->now = now;
	d->by_operator &= ~BIT(which);
	/* It was checked at attach. */
	(void)limit_set(d, which, d->asked_limit[which]);
	(void)limit_bound(c, d);
	limit_settle(c);
	(void)room_evict(c, dom, 0);
	admit_all(c);
	return 0;
}
