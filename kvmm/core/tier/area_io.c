// SPDX-License-Identifier: Apache-2.0
/*
 * area_io.c - choice of an area for a slot, rates of areas, failures
 *
 * A slot goes to an area of the highest priority that has room.  Among areas of
 * equal priority it goes where it will be written first: the requests in flight
 * of the area and this slot, divided by its measured rate.  So areas are striped
 * by their speed, on any kind of device.
 *
 * The rate of an area and direction is the bytes of its last requests over their
 * time.  The time of a request begins with the answer to the request before it,
 * or when the area stopped being idle.  So answers that come together, deep
 * queues and idle times do not change the rate.  A failed request takes time and
 * brings no bytes.
 *
 * Neighbours in the host pool stay neighbours in an area, up to a chunk: the
 * area that has the neighbour gets the slot, too, unless another area could
 * write a whole chunk earlier.  So neighbours travel together, both ways.
 *
 * An area without a known rate gets one slot at a time.  An area that was
 * slow may have become faster.  So an idle area gets a slot out of turn now and
 * then, the less often the slower it was.  That costs the other areas a
 * sixteenth of their time at most.
 *
 * Failures are counted by direction, and forgiven one by one with time: a disk
 * that fails once a day is still useful.  With AREA_BAD failures not yet
 * forgiven the area gets no new slots.  Requests that failed because swapd did
 * not have the area do not count.
 */
#include "kvmm/core/tier/tier.h"

#define AREA_BAD	8	/* failures that make an area read-only */
#define FORGIVE_NS	(600ull * 1000000000)	/* time after which one failure is forgiven */
#define FAIL_NS		10000000ull	/* least time that a failure counts for */
#define AWAY_NS		1000000000ull	/* pause of writes after swapd did not have the area */
#define RATE_WINDOW	64	/* requests that the rate is made of */
#define RATE_KNOWN	4	/* requests before the rate is known */
#define CHUNK_BYTES	(1u << 20)	/* bytes that stay together, if possible */
#define CHUNK_SLOTS	16u	/* the same in slots */
#define PROBE_LEAST	64	/* least number of slots for other areas between two probes */
#define PROBE_PART	16	/* part of the other areas' time that probes may take */

static struct kv_pool *slot_pool(const struct core *c, u32 slot)
{
	u32 pool = part_pool(c, c->blocks[slot].domain);

	KV_BUG_ON(pool < CORE_POOL_AREA);
	return core_pool(c, pool);
}

/* Bytes of a request for the entry. */
static u64 entry_bytes(const struct core *c, const struct kv_entry *e)
{
	return CORE_SLOT_HEADER + domain_payload(&c->domains[e->domain]);
}

/* ---- rates ---- */

/* Nanoseconds for a KiB, at least 1; 0: not known yet. */
static u64 rate_ns_kb(const struct kv_rate *r)
{
	if (r->nr < RATE_KNOWN)
		return 0;
	return max(r->ns * 1024 / max(r->bytes, 1024ull), 1ull);
}

/**
 * area_rate() - measured rate in bytes a second
 * Return: 0: not known yet.
 */
u64 area_rate(const struct kv_pool *p, u32 dir)
{
	u64 ns_kb = rate_ns_kb(&p->rate[dir]);

	return ns_kb ? 1024ull * 1000000000 / ns_kb : 0;
}

/* A request to the area is issued. */
void area_io_begin(struct core *c, struct kv_pool *p, const struct kv_entry *e)
{
	KV_BUG_ON(e->io != ENT_READ && e->io != ENT_WRITE);
	/* The area was idle until now. */
	if (!p->nr_ios)
		p->moved = c->now;
	p->out[e->io == ENT_WRITE] += entry_bytes(c, e);
}

/* A request was answered; @p->moved is still the time of the answer before. */
void area_io_end(struct core *c, struct kv_pool *p, const struct kv_entry *e,
		 u32 dir, int status)
{
	struct kv_rate *r = &p->rate[dir];
	u64 bytes = entry_bytes(c, e), took = c->now - p->moved;

	KV_BUG_ON(p->out[dir] < bytes);
	p->out[dir] -= bytes;
	if (io_is_away(status))
		return;
	r->ns += status ? max(took, FAIL_NS) : took;
	r->bytes += status ? 0 : bytes;
	if (++r->nr < RATE_WINDOW)
		return;
	r->ns /= 2;
	r->bytes /= 2;
	r->nr /= 2;
}

/* ---- choice ---- */

/* Nanoseconds until a slot given to the area now would be written. */
static u64 area_finish(const struct kv_pool *p, u64 bytes)
{
	u64 w = rate_ns_kb(&p->rate[1]), r = rate_ns_kb(&p->rate[0]);

	if (!w)		/* first idle areas, then those with the fewest bytes to write */
		return p->nr_ios ? (1ull << 62) + p->out[1] : 0;
	return (p->out[1] + bytes) / 1024 * w + p->out[0] / 1024 * (r ? r : w);
}

static bool area_takes(const struct core *c, const struct kv_pool *p)
{
	return p->online && !p->readonly && !p->nr_overdue && c->now >= p->away;
}

/* Is it time to measure again whether the area is slow? */
static bool wants_probe(const struct kv_pool *p, const struct kv_pool *best)
{
	u64 slow = rate_ns_kb(&p->rate[1]), fast = rate_ns_kb(&best->rate[1]);

	return slow && fast && !p->nr_ios &&
	       p->passed >= max(slow / fast * PROBE_PART, PROBE_LEAST + 0ull);
}

/* The area for the next slot; @tried: bit set of areas without room. */
static u32 area_best(const struct core *c, u32 tried, u64 bytes)
{
	u32 best = CORE_NONE, i;

	for (i = CORE_POOL_AREA; i < CORE_NR_POOLS; i++) {
		const struct kv_pool *p = core_pool(c, i), *b;

		if (!area_takes(c, p) || (tried & BIT(i)))
			continue;
		b = best == CORE_NONE ? NULL : core_pool(c, best);
		if (!b || p->prio > b->prio ||
		    (p->prio == b->prio &&
		     area_finish(p, bytes) < area_finish(b, bytes)))
			best = i;
	}
	for (i = CORE_POOL_AREA; best != CORE_NONE && i < CORE_NR_POOLS; i++) {
		const struct kv_pool *p = core_pool(c, i);

		if (i != best && area_takes(c, p) && !(tried & BIT(i)) &&
		    p->prio == core_pool(c, best)->prio &&
		    wants_probe(p, core_pool(c, best)))
			return i;
	}
	return best;
}

/*
 * The area that took the last slot next to @host, or CORE_NONE.  @best: the
 * area that would be chosen without the neighbour.
 */
static u32 area_of_neighbour(const struct core *c, u32 dom, u32 host, u32 best,
			     u64 bytes)
{
	u64 chunk = min((u64)CHUNK_BYTES, bytes * CHUNK_SLOTS);
	u32 i;

	for (i = CORE_POOL_AREA; i < CORE_NR_POOLS; i++) {
		const struct kv_part *part = part_at(c, part_index(c, dom, i));
		const struct kv_pool *p = core_pool(c, i);

		if (i == best || !part->used || !part->slot_row ||
		    (part->slot_peer != host + 1 &&
		     part->slot_peer != host - 1))
			continue;
		if (part->slot_row * bytes < chunk && area_takes(c, p) &&
		    p->prio == core_pool(c, best)->prio &&
		    rate_ns_kb(&p->rate[1]) && area_finish(p, bytes) <=
		    area_finish(core_pool(c, best), chunk))
			return i;
	}
	return CORE_NONE;
}

static void area_chosen(struct core *c, u32 pool)
{
	u32 i;

	KV_BUG_ON(!core_pool(c, pool)->online);
	for (i = CORE_POOL_AREA; i < CORE_NR_POOLS; i++) {
		struct kv_pool *p = core_pool(c, i);

		if (p->prio == core_pool(c, pool)->prio)
			p->passed = i == pool ? 0 : p->passed + 1;
	}
}

/* @drop: cache of the domain may be dropped for the slot */
static u32 slot_in(struct core *c, u32 pool, u32 dom, u32 host, bool drop)
{
	u32 part = part_index(c, dom, pool), slot;

	if (!part_at(c, part)->used)
		return CORE_NONE;
	slot = slot_alloc_beside(c, part, host, false);
	if (slot == CORE_NONE && drop && area_reclaim(c, pool, dom))
		slot = slot_alloc_beside(c, part, host, false);
	return slot;
}

/* A slot in any area; @drop: as slot_in(). */
static u32 slot_in_any(struct core *c, u32 dom, u32 host, bool drop)
{
	u64 bytes = CORE_SLOT_HEADER + domain_payload(&c->domains[dom]);
	u32 tried = 0, n, best, same, slot;

	KV_BUG_ON(host == CORE_NONE);
	for (n = 0; n < CORE_MAX_AREAS; n++) {
		best = area_best(c, tried, bytes);
		if (best == CORE_NONE)
			return CORE_NONE;
		same = tried ? CORE_NONE :
		       area_of_neighbour(c, dom, host, best, bytes);
		best = same == CORE_NONE ? best : same;
		slot = slot_in(c, best, dom, host, drop);
		if (slot != CORE_NONE) {
			area_chosen(c, best);
			return slot;
		}
		KV_BUG_ON(tried & BIT(best));
		tried |= BIT(best);
	}
	return CORE_NONE;
}

/**
 * area_slot_get() - allocate a slot in an area for a block of a domain
 * @host:   host slot of the block; a slot next to that of its neighbour is
 *          preferred
 * @needed: a sequence needs the block, so the best area drops cache of the domain for
 *          it; cache drops older cache only if no area has a free slot
 *
 * Return: CORE_NONE: no area has a free slot.
 */
u32 area_slot_get(struct core *c, u32 dom, u32 host, bool needed)
{
	u32 slot = slot_in_any(c, dom, host, needed);

	return slot == CORE_NONE && !needed ? slot_in_any(c, dom, host, true) : slot;
}

/* ---- failures ---- */

/* Did swapd not have the area?  Then the request was not tried. */
bool io_is_away(int status)
{
	return status == -ENODEV || status == -ENXIO;
}

/* Forgive the failures whose time is over. */
static void bad_forgive(struct kv_bad *b, u64 now)
{
	u64 n = (now - b->since) / FORGIVE_NS;

	if (n >= b->level) {
		b->level = 0;
		b->since = now;
	} else {
		b->level -= (u32)n;
		b->since += n * FORGIVE_NS;
	}
}

/**
 * area_failed() - a request to the area failed
 * @slot: slot of the request, in the area
 * @dir:  0: a read, 1: a write
 *
 * Return: false: the request was not tried, and the slot is good as before.
 */
bool area_failed(struct core *c, u32 slot, u32 dir, int status)
{
	struct kv_pool *p = slot_pool(c, slot);
	struct kv_bad *b = &p->bad[dir];

	KV_BUG_ON(!status);
	if (io_is_away(status)) {
		p->away = c->now + AWAY_NS;
		return false;
	}
	p->errors++;
	bad_forgive(b, c->now);
	if (++b->level >= AREA_BAD) {
		p->readonly = 1;
		core_kick(c);	/* a sequence may wait for a write to it */
	}
	return true;
}
