// SPDX-License-Identifier: Apache-2.0
/*
 * stall.c - requests to areas that are not answered in time
 *
 * A disk may neither complete a request nor fail it, and swapd may be stopped.
 * Sequences must not wait for that: a stall releases the waiting sequence, not
 * the slot.
 *
 * Each area has a list of its requests in flight, oldest first.  A request is
 * overdue when neither it nor any other request of its area was answered for
 * io_deadline_ns.  It is also overdue when it is older than STALL_PATIENCE such
 * times.  A disk that is merely slow still answers the requests before it.
 *
 *	READ	An overdue read loses its content for the sequences that wait for
 *		it, and they compute it again.  Its slots are LIMBO until the
 *		answer comes.  The answer frees them, whether good or bad: late
 *		content is never used.
 *	WRITE	An overdue write goes on; the host slot that it reads stays valid
 *		and readable.
 *
 * The area of an overdue request is stalled.  It gets no new request.  Content
 * that only it has counts as lost while a sequence needs it, but is not dropped.
 * When the last overdue request was answered, the area is used as before.
 */
#include "kvmm/core/tier/tier.h"

struct kv_pool *io_pool(const struct core *c, const struct kv_entry *e)
{
	KV_BUG_ON(e->area == CORE_NONE);
	return core_pool(c, part_pool(c, c->blocks[e->area].domain));
}

static void moving_add(struct core *c, struct kv_pool *p, u32 entry)
{
	struct kv_entry *e = &c->entries_low[entry];

	KV_BUG_ON((p->io_head == CORE_NONE) != (p->io_tail == CORE_NONE));
	KV_BUG_ON(e->flags & ENTF_OVERDUE);
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

	KV_BUG_ON(e->flags & ENTF_OVERDUE);
	KV_BUG_ON((e->io_prev == CORE_NONE) != (p->io_head == entry));
	KV_BUG_ON((e->io_next == CORE_NONE) != (p->io_tail == entry));
	if (e->io_prev == CORE_NONE)
		p->io_head = e->io_next;
	else
		c->entries_low[e->io_prev].io_next = e->io_next;
	if (e->io_next == CORE_NONE)
		p->io_tail = e->io_prev;
	else
		c->entries_low[e->io_next].io_prev = e->io_prev;
}

/* A request for the entry is issued. */
void io_begin(struct core *c, u32 entry)
{
	struct kv_pool *p = io_pool(c, &c->entries_low[entry]);

	c->entries_low[entry].started = c->now;
	area_io_begin(c, p, &c->entries_low[entry]);
	p->nr_ios++;
	c->head->nr_ios++;
	moving_add(c, p, entry);
}

/* The request was answered, in time or late. */
void io_end(struct core *c, u32 entry, u32 dir, int status)
{
	struct kv_entry *e = &c->entries_low[entry];
	struct kv_pool *p = io_pool(c, e);

	KV_BUG_ON(!p->nr_ios || !c->head->nr_ios);
	area_io_end(c, p, e, dir, status);
	p->nr_ios--;
	p->moved = c->now;
	c->head->nr_ios--;
	if (!(e->flags & ENTF_OVERDUE)) {
		moving_del(c, p, entry);
		return;
	}
	KV_BUG_ON(!p->nr_overdue || !c->head->nr_overdue);
	e->flags &= (u8)~ENTF_OVERDUE;
	core_count(c, CORE_EV_swap_late, 1);
	c->head->nr_overdue--;
	if (--p->nr_overdue)
		return;
	c->head->stalled &= ~BIT(p - c->head->pools - CORE_POOL_AREA);
	core_kick(c);
}

/* Requests in flight that are not overdue. */
u32 io_moving(const struct core *c)
{
	KV_BUG_ON(c->head->nr_ios < c->head->nr_overdue);
	return c->head->nr_ios - c->head->nr_overdue;
}

/* Is the content of the slot out of reach for now? */
bool area_stalled(const struct core *c, u32 slot)
{
	return core_pool(c, part_pool(c, c->blocks[slot].domain))->nr_overdue;
}

/**
 * core_get_stalled() - areas with overdue requests
 * Return: bit set of areas.
 */
u32 core_get_stalled(const struct core *c)
{
	return c->head->stalled;
}
