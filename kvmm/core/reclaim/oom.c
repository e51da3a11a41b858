// SPDX-License-Identifier: Apache-2.0
/*
 * oom.c - the last time that nothing could be reclaimed
 *
 * A sequence wanted room.  No block was free, no cache could be evicted for it
 * and no domain could spare a span, so a family lost its memory, or the request
 * was refused.  The kernel prints the state of its zones and tasks in that case;
 * this file notes it as numbers: the sequence and the blocks that it asked for,
 * its domain and all others with their limits, and for each domain its best
 * victim, and why that was taken or not.  The reader of the record makes the text.
 *
 * The record is made before any family loses memory, and decides nothing.  A
 * thousand entries of one step may all be refused, so only the first refusal of
 * an instant is described and the others are counted.  At most CORE_OOM_ROWS
 * domains are described.
 */
#include "kvmm/core/reclaim/reclaim.h"

static void row_candidate(const struct core *c, struct core_oom_row *r,
			  const struct kv_seq *s)
{
	r->client = CORE_NONE;
	r->seq = CORE_NONE;
	if (!s)
		return;
	r->client = s->client;
	r->seq = seq_number(c, s);
	r->priority = s->priority;
	r->arrival = s->arrival;
	r->tokens = s->valid_len;
	r->seq_blocks = seq_live(c, s);
}

static void row_fill(const struct core *c, struct core_oom_row *r, u32 dom)
{
	const struct kv_domain *d = &c->domains[dom];
	u32 i;

	memset(r, 0, sizeof(*r));
	memcpy(r->name, d->name, sizeof(r->name));
	r->domain = dom;
	r->tenant = d->tenant;
	r->block_bytes = d->dev.block_bytes;
	r->limit[CORE_LIMIT_MIN] = d->min_bytes;
	r->limit[CORE_LIMIT_LOW] = d->low_bytes;
	r->limit[CORE_LIMIT_HIGH] = d->high_bytes;
	r->limit[CORE_LIMIT_MAX] = d->dev.max_bytes;
	r->limit[CORE_LIMIT_WEIGHT] = d->weight;
	r->limit[CORE_LIMIT_WRITETHROUGH] = d->writethrough;
	for (i = 0; i < NR_BLK_STATES; i++)
		r->blocks[i] = d->dev.nr[i];
	r->reserved = d->dev.reserved;
	r->emin = d->emin;
	r->elow = d->elow;
	r->cache_floor = d->floor;
	r->nr_running = d->nr_running;
	r->nr_waiting = d->nr_waiting;
}

/* Describe one domain, if there is a row for it. */
static void oom_domain(struct core *c, struct core_oom_view *o,
		       const struct kv_seq *want, const struct kv_seq *taken,
		       u32 dom)
{
	struct core_oom_row *r = &o->row[o->nr_rows];
	const struct kv_seq *s;

	KV_BUG_ON(!c->domains[dom].used || o->nr_rows > CORE_OOM_ROWS);
	KV_BUG_ON(o->nr_free < c->domains[dom].dev.nr_spans *
		  c->domains[dom].dev.span_extents);
	o->nr_free -= c->domains[dom].dev.nr_spans * c->domains[dom].dev.span_extents;
	/* The domain of the victim has a row in any case. */
	if (o->nr_rows == CORE_OOM_ROWS) {
		if (!taken || taken->domain != dom)
			return;
		r--;
		o->nr_rows--;
	}
	row_fill(c, r, dom);
	r->why = victim_why(c, o, want, taken, dom, &s);
	row_candidate(c, r, s);
	if (taken && taken->domain == dom)
		o->victim = o->nr_rows;
	o->nr_rows++;
}

/*
 * Of the device pools that @d has in common with the domain of the victim, the one
 * with the fewest extents to give.
 */
static u32 fullest_pool(const struct core *c, const struct kv_domain *d,
			const struct kv_domain *victim)
{
	u32 i, pool = max(d->zone, victim->zone);

	KV_BUG_ON(!domains_meet(d, victim));
	for (i = pool; domain_is_in(d, i) && domain_is_in(victim, i); i++)
		if (c->head->zones[i].loose < c->head->zones[pool].loose)
			pool = i;
	return pool;
}

static void oom_describe(struct core *c, struct core_oom_view *o,
			 const struct kv_seq *want, const struct kv_seq *taken)
{
	u32 i;

	o->client = want->client;
	o->seq = seq_number(c, want);
	o->family = want->family;
	o->priority = want->priority;
	o->arrival = want->arrival;
	o->victim = CORE_NONE;
	o->extent_size = core_cfg(c)->extent_size;
	o->pool = fullest_pool(c, seq_domain(c, want), seq_domain(c, taken ? taken : want));
	o->first_pool = seq_domain(c, want)->zone;
	o->nr_pools = seq_domain(c, want)->shards;
	o->nr_extents = c->head->zones[o->pool].nr_extents;
	o->nr_online = c->head->zones[o->pool].nr_online;
	o->nr_free = o->nr_extents;
	o->nr_rows = 0;
	o->nr_domains = 1;
	oom_domain(c, o, want, taken, want->domain);
	for_each_domain(c, i) {
		if (i == want->domain || !domain_is_in(&c->domains[i], o->pool))
			continue;
		o->nr_domains++;
		oom_domain(c, o, want, taken, i);
	}
	/* Extents out of use, except those of spans that have yet to leave them. */
	o->nr_free -= min(o->nr_free, o->nr_extents - o->nr_online);
}

/**
 * oom_note() - nothing could be reclaimed for a sequence
 * @want:    the sequence
 * @nr:      blocks that it asked for
 * @outcome: CORE_OOM_*: how its request ends
 * @cause:   of the preemption, if there is one
 * @taken:   the victim, or NULL
 *
 * There is one report for each event.  It is not counted as work of the event (see
 * core_work()): with a ring the core would leave an admission to the next event that
 * it does at once without one.
 *
 * Context: before any family loses memory.
 */
void oom_note(struct core *c, const struct kv_seq *want, u32 nr, u32 outcome,
	      u32 cause, const struct kv_seq *taken)
{
	struct core_oom_view *o;

	core_tell(c, oom, SAID_SEQ(c, want), .blocks = nr, .outcome = outcome,
		  .cause = cause);
	if (!c->trace)
		return;
	o = &c->trace->oom;
	if (o->nr++ && o->ns == c->now) {
		o->same++;
		return;
	}
	o->same = 0;
	o->ns = c->now;
	o->want = nr;
	o->outcome = outcome;
	o->cause = cause;
	oom_describe(c, o, want, taken);
}

/* core_get_oom() - a copy of the last report; -ENOENT: there was none */
int core_get_oom(const struct core *c, struct core_oom_view *v)
{
	if (!c->trace || !c->trace->oom.nr)
		return -ENOENT;
	*v = c->trace->oom;
	return 0;
}
