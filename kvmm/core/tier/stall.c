// SPDX-License-Identifier: Apache-2.0
/*
 * stall.c - requests to areas that are not answered in time
 *
 * A disk may neither do a request nor fail it, and swapd may be stopped.  What
 * waits must not wait with it: a stall frees the waiter, not the slot.
 *
 * Each area has a list of the requests that move, oldest first.  One is
 * overdue when for io_deadline_ns neither it nor any other of its area was
 * answered, or when it is older than STALL_PATIENCE such times: a disk that is
 * merely slow answers the ones before it.  Overdue,
 *
 *	a READ	loses its content for those who wait for it, they compute
 *		again; both slots are LIMBO until the answer comes, which
 *		frees them, whatever it says: what comes late is never served;
 *	a WRITE	goes on, the host slot that it reads stays valid and readable;
 *	its area is stalled: it gets no request, and what only it has counts
 *		as lost for whoever comes to need it, though not for good.
 *
 * When the last overdue request of an area was answered it is as before.
 */
#include "kvmm/core/tier/tier.h"

struct kv_pool *io_pool(const struct core *c, const struct kv_entry *e)
{
	return core_pool(c, part_pool(c, c->blocks[e->area].domain));
}

static void moving_add(struct core *c, struct kv_pool *p, u32 entry)
{
	struct kv_entry *e = &c->entries_low[entry];

	e->io_next = CORE_NONE;
	e->io_prev = p->io_tail;
	if (p->io_tail == CORE_NONE)
		p->io_head = entry;
	else
		c->entries_low[p->io_tail].io_next = entry;
	p->io_tail = entry;
}

void moving_del(struct core *c, struct kv_pool *p, u32 entry)
{
	const struct kv_entry *e = &c->entries_low[entry];

	if (e->io_prev == CORE_NONE)
		p->io_head = e->io_next;
	else
		c->entries_low[e->io_prev].io_next = e->io_next;
	if (e->io_next == CORE_NONE)
		p->io_tail = e->io_prev;
	else
		c->entries_low[e->io_next].io_prev = e->io_prev;
}

/* A request for the entry goes out. */
void io_begin(struct core *c, u32 entry)
{
	struct kv_pool *p = io_pool(c, &c->entries_low[entry]);

	c->entries_low[entry].started = c->now;
	area_io_begin(c, p, &c->entries_low[entry]);
	p->nr_ios++;
	c->head->nr_ios++;
	moving_add(c, p, entry);
}

/* It was answered, in time or late. */
void io_end(struct core *c, u32 entry, u32 dir, int status)
{
	struct kv_entry *e = &c->entries_low[entry];
	struct kv_pool *p = io_pool(c, e);

	area_io_end(c, p, e, dir, status);
	p->nr_ios--;
	p->moved = c->now;
	c->head->nr_ios--;
	if (!(e->flags & ENTF_OVERDUE)) {
		moving_del(c, p, entry);
		return;
	}
	e->flags &= (u8)~ENTF_OVERDUE;
	core_count(c, CORE_EV_swap_late, 1);
	c->head->nr_overdue--;
	if (--p->nr_overdue)
		return;
	c->head->stalled &= ~BIT(p - c->head->pools - CORE_POOL_AREA);
	core_kick(c);
}

/* Requests whose end may be waited for. */
u32 io_moving(const struct core *c)
{
	return c->head->nr_ios - c->head->nr_overdue;
}

/* Is what lies in the slot out of reach for now? */
bool area_stalled(const struct core *c, u32 slot)
{
	return core_pool(c, part_pool(c, c->blocks[slot].domain))->nr_overdue;
}

/**
 * core_get_stalled() - areas with requests that are overdue
 * Return: a bit for each.
 */
u32 core_get_stalled(const struct core *c)
{
	return c->head->stalled;
}
