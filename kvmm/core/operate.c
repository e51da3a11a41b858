// SPDX-License-Identifier: Apache-2.0
/*
 * operate.c - what an operator has done, beside marks and tunables
 *
 * Evicting takes device memory from a domain's cache and from nothing else:
 * no sequence loses any, nobody is preempted or killed.  What goes first is
 * what would go first for somebody in need, and it goes the same way: where a
 * lower tier has a copy the name stays, and that.
 *
 * Draining lets nobody begin: who drains may not attach, and opens no
 * sequence.  What there is goes on until it is done, preempted ones come back
 * and forks are made; a client of an adopted core may resume.  It is kept in
 * the arena, so a drained node that dies and is adopted is drained.
 */
#include "kvmm/core/internal.h"

/**
 * core_evict() - free device memory of a domain's cache
 * @most: stop when so many blocks are free that were not
 *
 * To be called again while it returns @most or more: an event is to stay
 * short.  Spans that fall empty are anybody's.
 * Return: blocks freed, which may be more than @most, for what follows a prefix
 * goes with it; -ENOENT.
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
		before = d->nr[BLK_CACHED];
		index_evict(c, blk);
		nr += before - d->nr[BLK_CACHED];
	}
	core_count(c, CORE_EV_evict_asked, nr);
	admit_all(c);
	return (int)min(nr, (u32)INT32_MAX);
}

/**
 * core_drain() - from now on, or no more, nobody begins anything there
 * @what: CORE_DRAIN_NODE, CORE_DRAIN_TENANT, CORE_DRAIN_CLIENT
 * @id:   of the tenant or client
 *
 * Return: 0; -ENOENT: no such tenant or client.
 */
int core_drain(struct core *c, u64 now, u32 what, u32 id, bool on)
{
	core_event(c);

	c->now = now;
	switch (what) {
	case CORE_DRAIN_NODE:
		c->head->draining = on;
		return 0;
	case CORE_DRAIN_TENANT:
		if (id >= core_cfg(c)->max_tenants || !c->tenants[id].used)
			return -ENOENT;
		c->tenants[id].draining = on;
		return 0;
	case CORE_DRAIN_CLIENT:
		if (id >= core_cfg(c)->max_clients ||
		    c->clients[id].state == CLI_FREE)
			return -ENOENT;
		c->clients[id].draining = on;
		return 0;
	}
	return -ENOENT;
}

/* core_get_drain() - does the node drain? */
bool core_get_drain(const struct core *c)
{
	return c->head->draining;
}
