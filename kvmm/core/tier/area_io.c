// SPDX-License-Identifier: Apache-2.0
/*
 * area_io.c - which area a slot goes to, how fast areas are, how bad
 *
 * A slot goes to an area of the highest priority that has room.  Among equal
 * ones it goes where it will be written first: what the area has to do, and
 * this slot, at the rate that was measured there.  So areas are striped by
 * their speed, whatever is under them.
 *
 * The rate of an area and direction is time over bytes of the last requests,
 * where the time of a request is what passed since the one before it was over,
 * or since the area had nothing to do: answers that come together, deep queues
 * and idle times change nothing.  A failure takes time and brings no bytes.
 *
 * What lies side by side in the host pool stays so in an area, up to a chunk: the
 * area that has the neighbour gets the slot too, unless another could write a
 * whole chunk before that.  Neighbours travel together, both ways.
 *
 * An area of which little is known gets one slot at a time until it was
 * measured.  One that was slow may have become faster: now and then, the more
 * seldom the slower it seems, it gets a slot out of turn when it has nothing to
 * do, which costs the others a sixteenth of their time at most.
 *
 * Failures are counted by direction, and forgiven one by one with time: a disk
 * that fails once a day is worth keeping.  AREA_BAD at once and nothing new
 * goes there.  That swapd does not have the area now is no failure of it.
 */
#include "kvmm/core/tier/tier.h"

#define AREA_BAD	8	/* failures that make it read-only */
#define FORGIVE_NS	(600ull * 1000000000)	/* one failure, each */
#define FAIL_NS		10000000ull	/* time that a failure takes at least */
#define AWAY_NS		1000000000ull	/* no writes after swapd had it not */
#define RATE_WINDOW	64	/* requests that the rate remembers */
#define RATE_KNOWN	4	/* requests until there is one */
#define CHUNK_BYTES	(1u << 20)	/* that stay together, if they can */
#define CHUNK_SLOTS	16u	/* and no more than that */
#define PROBE_LEAST	64	/* slots that go elsewhere between two probes */
#define PROBE_PART	16	/* of the time of others, for probes */

static struct kv_pool *slot_pool(const struct core *c, u32 slot)
{
	return core_pool(c, part_pool(c, c->blocks[slot].domain));
}

/* Bytes that a request for the entry transfers. */
static u64 entry_bytes(const struct core *c, const struct kv_entry *e)
{
	return CORE_SLOT_HEADER + c->domains[e->domain].dev.block_bytes;
}

/* ---- rates ---- */

/* Nanoseconds for a KiB, at least 1; 0: not known. */
static u64 rate_ns_kb(const struct kv_rate *r)
{
	if (r->nr < RATE_KNOWN)
		return 0;
	return max(r->ns * 1024 / max(r->bytes, 1024ull), 1ull);
}

/**
 * area_rate() - bytes a second that were measured
 * Return: 0: not known yet.
 */
u64 area_rate(const struct kv_pool *p, u32 dir)
{
	u64 ns_kb = rate_ns_kb(&p->rate[dir]);

	return ns_kb ? 1024ull * 1000000000 / ns_kb : 0;
}

/* A request to the area goes out. */
void area_io_begin(struct core *c, struct kv_pool *p, const struct kv_entry *e)
{
	/* It was idle until now. */
	if (!p->nr_ios)
		p->moved = c->now;
	p->out[e->io == ENT_WRITE] += entry_bytes(c, e);
}

/* It was answered; @p->moved is still when another was before. */
void area_io_end(struct core *c, struct kv_pool *p, const struct kv_entry *e,
		 u32 dir, int status)
{
	struct kv_rate *r = &p->rate[dir];
	u64 bytes = entry_bytes(c, e), took = c->now - p->moved;

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

/* When would a slot be written?  Nanoseconds from now. */
static u64 area_finish(const struct kv_pool *p, u64 bytes)
{
	u64 w = rate_ns_kb(&p->rate[1]), r = rate_ns_kb(&p->rate[0]);

	if (!w)		/* first those that do nothing, then the idlest */
		return p->nr_ios ? (1ull << 62) + p->out[1] : 0;
	return (p->out[1] + bytes) / 1024 * w + p->out[0] / 1024 * (r ? r : w);
}

static bool area_takes(const struct core *c, const struct kv_pool *p)
{
	return p->online && !p->readonly && !p->nr_overdue && c->now >= p->away;
}

/* Is it time to look whether the area is as slow as it was? */
static bool wants_probe(const struct kv_pool *p, const struct kv_pool *best)
{
	u64 slow = rate_ns_kb(&p->rate[1]), fast = rate_ns_kb(&best->rate[1]);

	return slow && fast && !p->nr_ios &&
	       p->passed >= max(slow / fast * PROBE_PART, PROBE_LEAST + 0ull);
}

/* The area that is to have a slot next; @tried: bits of those without room. */
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
 * The area that took the neighbour of @host last, or CORE_NONE.  @best: the one
 * that would be taken without regard to that.
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

	for (i = CORE_POOL_AREA; i < CORE_NR_POOLS; i++) {
		struct kv_pool *p = core_pool(c, i);

		if (p->prio == core_pool(c, pool)->prio)
			p->passed = i == pool ? 0 : p->passed + 1;
	}
}

static u32 slot_in(struct core *c, u32 pool, u32 dom, u32 host, bool needed)
{
	u32 part = part_index(c, dom, pool), slot;

	if (!part_at(c, part)->used)
		return CORE_NONE;
	slot = slot_alloc_beside(c, part, host, false);
	if (slot == CORE_NONE && needed && area_reclaim(c, pool, dom))
		slot = slot_alloc_beside(c, part, host, false);
	return slot;
}

/**
 * area_slot_get() - a slot for a block of a domain
 * @host:   host slot that it lies in: beside the slot of that one's neighbour,
 *          where it can be
 * @needed: by a sequence: cache of the domain may give way
 *
 * Return: CORE_NONE: no area has one.
 */
u32 area_slot_get(struct core *c, u32 dom, u32 host, bool needed)
{
	u64 bytes = CORE_SLOT_HEADER + c->domains[dom].dev.block_bytes;
	u32 tried = 0, n, best, same, slot;

	for (n = 0; n < CORE_MAX_AREAS; n++) {
		best = area_best(c, tried, bytes);
		if (best == CORE_NONE)
			return CORE_NONE;
		same = tried ? CORE_NONE :
		       area_of_neighbour(c, dom, host, best, bytes);
		best = same == CORE_NONE ? best : same;
		slot = slot_in(c, best, dom, host, needed);
		if (slot != CORE_NONE) {
			area_chosen(c, best);
			return slot;
		}
		tried |= BIT(best);
	}
	return CORE_NONE;
}

/* ---- failures ---- */

/* swapd did not have the area, or there was none: nothing was tried. */
bool io_is_away(int status)
{
	return status == -ENODEV || status == -ENXIO;
}

/* What was long ago counts no more. */
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
 * area_failed() - a request of the area failed
 * @slot: of it
 * @dir:  0: a read, 1: a write
 *
 * Return: whether it was tried at all: else the slot is as good as before.
 */
bool area_failed(struct core *c, u32 slot, u32 dir, int status)
{
	struct kv_pool *p = slot_pool(c, slot);
	struct kv_bad *b = &p->bad[dir];

	if (io_is_away(status)) {
		p->away = c->now + AWAY_NS;
		return false;
	}
	p->errors++;
	bad_forgive(b, c->now);
	if (++b->level >= AREA_BAD)
		p->readonly = 1;
	return true;
}
