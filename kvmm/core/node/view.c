// SPDX-License-Identifier: Apache-2.0
/*
 * view.c - copies of the core's facts for the operator's files
 *
 * The copies are numbers, which other files print later.  All of a copy is of
 * one moment, since nothing else runs meanwhile.
 */
#include "kvmm/core/node/node.h"

_Static_assert(CORE_BLK_FREE == BLK_FREE && CORE_BLK_CACHED == BLK_CACHED,
	       "as in core.h");

const struct core_config *core_get_config(const struct core *c)
{
	return core_cfg(c);
}

/**
 * core_get_secrets() - memory of the arena that holds the secrets of tenants
 * @bytes: length of that memory, which also has other fields of tenants
 */
const void *core_get_secrets(const struct core *c, u64 *bytes)
{
	*bytes = core_cfg(c)->max_tenants * sizeof(*c->tenants);
	return c->tenants;
}

/* Copy NR_CORE_EVENTS counters. */
void core_get_events(const struct core *c, u64 *counts)
{
	memcpy(counts, c->head->events, sizeof(c->head->events));
}

static void pool_add_domain(const struct kv_domain *d,
			    struct core_pool_view *v)
{
	u64 bytes = d->dev.block_bytes;

	v->free += d->dev.nr[BLK_FREE] * bytes;
	v->open += d->dev.nr[BLK_OPEN] * bytes;
	v->sealed += d->dev.nr[BLK_SEALED] * bytes;
	v->cached += d->dev.nr[BLK_CACHED] * bytes;
	v->quiescing += d->dev.nr[BLK_QUIESCING] * bytes;
	v->quarantine += d->dev.nr[BLK_QUARANTINE] * bytes;
	v->limbo += d->dev.nr[BLK_LIMBO] * bytes;
	v->revoking += d->dev.nr[BLK_REVOKING] * bytes;
	v->poison += d->dev.nr[BLK_POISON] * bytes;
	v->tails += d->dev.nr_spans * d->dev.span_tail;
	v->committed += d->dev.reserved * bytes;
	v->shared += d->nr_shared * bytes;
	v->indexed += d->nr_indexed * bytes;
}

static void pool_add_marks(const struct core *c, const struct kv_domain *d,
			   struct core_pool_view *v)
{
	struct wmark w;

	wmark_get(c, d, &w);
	v->wmark[0] += w.min * d->dev.block_bytes;
	v->wmark[1] += w.low * d->dev.block_bytes;
	v->wmark[2] += w.high * d->dev.block_bytes;
}

/* Add the partition of one device pool. */
static void pool_add_zone(const struct core *c, u32 pool, struct core_pool_view *v)
{
	const struct kv_zone *z = &c->head->zones[pool];
	const u64 size = core_cfg(c)->extent_size;
	u64 limit;
	u32 i;

	v->total += z->nr_extents * size;
	v->extent_size = size;
	v->nr_extents += z->nr_extents;
	v->nr_online += z->nr_online;
	v->resizing |= z->resizing;
	v->device = max(v->device, z->device);
	for_each_extent(i, z->first, z->nr_extents) {
		if (c->extents[i].state == EXT_REVOKING)
			v->revoking += size;
		else if (c->extents[i].state == EXT_OFFLINE)
			v->offline += size;
		else if (c->extents[i].state != EXT_SPAN)
			v->nr_free_extents++;
	}
	v->free_extents = v->nr_free_extents * size;
	for_each_domain(c, i) {
		if (!domain_is_in(&c->domains[i], pool))
			continue;
		pool_add_domain(&c->domains[i], v);
		pool_add_marks(c, &c->domains[i], v);
	}
	v->committed_as += commit_zone(c, pool, &limit);
	v->commit_limit += limit;
}

/* The partition of all device pools, in bytes; @v->device is of the worst one. */
void core_get_pool(const struct core *c, struct core_pool_view *v)
{
	u32 i;

	memset(v, 0, sizeof(*v));
	for (i = 0; i < c->head->nr_zones; i++)
		pool_add_zone(c, i, v);
}

/*
 * core_get_zone() - the partition of one device pool, in bytes
 *
 * Return: 0; -ERANGE: there is none of this number.
 */
int core_get_zone(const struct core *c, u32 pool, struct core_pool_view *v)
{
	if (pool >= c->head->nr_zones)
		return -ERANGE;
	memset(v, 0, sizeof(*v));
	pool_add_zone(c, pool, v);
	return 0;
}

/* core_zone_of() - the device pool that an extent is in */
u32 core_zone_of(const struct core *c, u32 extent)
{
	return zone_of(c, extent);
}

/* A lower pool: -ERANGE past the last, -ENOENT when it is not there. */
int core_get_tier(const struct core *c, u32 pool, struct core_tier_view *v)
{
	const struct kv_pool *p;
	u32 i;

	if (!pool || pool >= CORE_NR_POOLS)
		return -ERANGE;
	p = core_pool(c, pool);
	if (!p->online)
		return -ENOENT;
	memset(v, 0, sizeof(*v));
	v->online = p->online;
	v->prio = p->prio;
	v->total = p->nr_extents * core_cfg(c)->extent_size;
	v->errors = p->errors;
	v->nr_ios = p->nr_ios;
	KV_BUG_ON(p->nr_overdue > p->nr_ios);
	v->nr_overdue = p->nr_overdue;
	v->readonly = p->readonly;
	for (i = 0; i < 2; i++) {
		v->bad[i] = p->bad[i].level;
		v->rate[i] = area_rate(p, i);
	}
	for_each_domain(c, i) {
		const struct kv_part *part = part_at(c, part_index(c, i, pool));

		if (!part->used)
			continue;
		v->used += part->nr[BLK_SEALED] * part->block_bytes;
		v->needed += part->nr_needed * part->block_bytes;
		v->limbo += part->nr[BLK_LIMBO] * part->block_bytes;
		v->poison += part->nr[BLK_POISON] * part->block_bytes;
	}
	return 0;
}

/* Bytes of the tables' last blocks for tokens that are not valid. */
static u64 seq_tails(const struct core *c, const struct kv_seq *s)
{
	const u64 bytes = seq_domain(c, s)->dev.block_bytes;
	const struct kv_tab *t;
	u64 nr = 0, have;

	for_each_tab(c, s, t) {
		if (tab_is_state(c, t))
			continue;	/* a record is as large for each token */
		have = (u64)t->nr_blocks * tab_tokens(c, t);
		KV_BUG_ON(have < s->valid_len);
		nr += (have - s->valid_len) * (bytes / tab_tokens(c, t));
	}
	return nr;
}

/* Add one client's open sequences: with memory, without, and leases. */
static void client_add_seqs(const struct core *c, u32 client,
			    struct core_client_view *v)
{
	const struct kv_seq *s = &c->seqs[client * core_cfg(c)->max_seqs];
	u32 left = c->clients[client].nr_seqs, i;
	const struct kv_tab *t;

	for (i = 0; left && i < c->clients[client].max_seqs; i++) {
		if (s[i].state == KVMM_SEQ_CLOSED)
			continue;
		KV_BUG_ON(s[i].client != client);
		left--;
		if (s[i].flags & SEQF_RUNNING)
			v->nr_running++;
		else if (s[i].flags & SEQF_LEASE)
			v->nr_leases++;
		else if (s[i].state != KVMM_SEQ_FAILED)
			v->nr_waiting++;
		for_each_tab(c, &s[i], t) {
			v->mapped[t->group] += tab_shown(c, t);
			v->blocks += tab_shown(c, t);
		}
		if (s[i].flags & SEQF_RUNNING)
			v->tail_bytes += seq_tails(c, &s[i]);
	}
	KV_BUG_ON(left);
}

/* Add up all clients; the wait list would lack sequences without ids. */
static void domain_view_seqs(const struct core *c, u32 domain,
			     struct core_domain_view *d)
{
	struct core_client_view v = { 0 };
	u32 i;

	for (i = 0; i < core_cfg(c)->max_clients; i++)
		if (c->clients[i].state != CLI_FREE &&
		    c->clients[i].domain == domain)
			client_add_seqs(c, i, &v);
	d->nr_waiting = v.nr_waiting;
	d->nr_leases = v.nr_leases;
	d->tail_bytes = v.tail_bytes;
	for (i = 0; i < d->nr_groups; i++)
		d->group[i].mapped = v.mapped[i];
}

/*
 * Bytes of a block that hold no content; in a group of records, the mean over the blocks
 * of a record.
 */
static u64 group_padding(const struct kv_domain *d, u32 g)
{
	const struct kvmm_group *gr = &d->group[g];

	if (gr->kind == KVMM_GROUP_STATE)
		return d->dev.block_bytes - (u64)gr->layers * gr->kv_heads *
					    gr->k_bytes / d->width[g];
	return d->dev.block_bytes - gr->block_tokens * group_token_bytes(gr);
}

static void domain_view_groups(const struct kv_domain *d, struct core_domain_view *v)
{
	u32 g;

	v->block_tokens = d->group[0].block_tokens;
	v->block_bytes = d->dev.block_bytes;
	v->nr_groups = d->nr_groups;
	v->hit_tokens = d->hit_tokens;
	for (g = 0; g < d->nr_groups; g++) {
		v->group[g].shape = d->group[g];
		v->group[g].width = d->width[g];
		v->group[g].padding = group_padding(d, g);
	}
}

/* Room, watermarks and commitments. */
static void domain_view_room(const struct core *c, const struct kv_domain *d,
			     struct core_domain_view *v)
{
	struct wmark w;

	wmark_get(c, d, &w);
	v->room = wmark_room(d);
	v->wmark[0] = w.min;
	v->wmark[1] = w.low;
	v->wmark[2] = w.high;
	v->cache_floor = d->floor;
	v->committed_as = commit_blocks(d);
	v->commit_limit = commit_limit(c, d);
	v->nr_spans_full = span_nr_full(c, d);
	v->nr_spans_empty = d->dev.nr_empty;
}

/* Domain @i: -ERANGE past the last, -ENOENT for an unused record. */
int core_get_domain(const struct core *c, u32 i, struct core_domain_view *v)
{
	const struct kv_domain *d;
	u32 n;

	if (i >= core_cfg(c)->max_domains)
		return -ERANGE;
	d = &c->domains[i];
	if (!d->used)
		return -ENOENT;
	memset(v, 0, sizeof(*v));
	KV_BUG_ON(d->tenant >= core_cfg(c)->max_tenants);
	KV_BUG_ON(!c->tenants[d->tenant].used);
	v->id = i;
	v->tenant = d->tenant;
	v->pool = d->zone;
	v->shards = d->shards;
	memcpy(v->name, d->name, sizeof(v->name));
	domain_view_groups(d, v);
	v->nr_clients = d->nr_clients;
	v->nr_spans = d->dev.nr_spans;
	for (n = 0; n < NR_BLK_STATES; n++)
		v->blocks[n] = d->dev.nr[n];
	v->reserved = d->dev.reserved;
	domain_view_room(c, d, v);
	v->limit[CORE_LIMIT_MIN] = d->min_bytes;
	v->limit[CORE_LIMIT_LOW] = d->low_bytes;
	v->limit[CORE_LIMIT_HIGH] = d->high_bytes;
	v->limit[CORE_LIMIT_MAX] = d->dev.max_bytes;
	v->limit[CORE_LIMIT_WEIGHT] = d->weight;
	v->limit[CORE_LIMIT_WRITETHROUGH] = d->writethrough;
	v->by_operator = d->by_operator;
	memcpy(v->operator_limit, d->operator_limit, sizeof(v->operator_limit));
	v->emin_bytes = d->emin * d->dev.block_bytes;
	v->elow_bytes = d->elow * d->dev.block_bytes;
	v->max_bytes = d->dev.max_bytes;
	v->current_bytes = domain_used(d) * d->dev.block_bytes;
	v->peak_bytes = d->dev.peak * d->dev.block_bytes;
	domain_view_seqs(c, i, v);
	v->nr_running = d->nr_running;
	v->leased = d->leased;
	v->nr_max_events = d->nr_max_events;
	v->nr_high_events = d->nr_high_events;
	v->demoting = d->demote_since != 0;
	v->nr_low_events = d->nr_low_events;
	v->nr_preempted = d->nr_preempted;
	v->work = d->work;
	return core_get_pressure(c, i, &v->pressure);
}

/* Client @i: -ERANGE past the last, -ENOENT for an unused record. */
int core_get_client(const struct core *c, u32 i, struct core_client_view *v)
{
	const struct kv_client *cl;
	struct kv_step_entry *e;

	if (i >= core_cfg(c)->max_clients)
		return -ERANGE;
	cl = &c->clients[i];
	if (cl->state == CLI_FREE)
		return -ENOENT;
	memset(v, 0, sizeof(*v));
	KV_BUG_ON(!c->domains[cl->domain].used);
	KV_BUG_ON(cl->tenant != c->domains[cl->domain].tenant);
	v->id = i;
	v->domain = cl->domain;
	v->tenant = cl->tenant;
	v->state = cl->state;
	v->nr_seqs = cl->nr_seqs;
	v->open_steps = cl->nr_steps;
	v->away = cl->away;
	v->begun = cl->begun;
	v->drain = drain_of_client(c, i);
	v->leader = cl->leader;
	v->shards = cl->shards;
	if (cl->nr_steps)
		v->pinned_since = step_at(c, i, 0, &e)->begun;
	client_add_seqs(c, i, v);
	return 0;
}

/* Sequence record @i: -ERANGE past the last, -ENOENT when it is closed. */
int core_get_seq(const struct core *c, u32 i, struct core_seq_view *v)
{
	const struct kv_tab *t;
	const struct kv_seq *s;
	u32 n;

	if (i >= core_sizes(c)->nr_seqs)
		return -ERANGE;
	s = &c->seqs[i];
	if (s->state == KVMM_SEQ_CLOSED)
		return -ENOENT;
	memset(v, 0, sizeof(*v));
	KV_BUG_ON(s->client != i / core_cfg(c)->max_seqs);
	KV_BUG_ON(s->domain != c->clients[s->client].domain);
	v->client = s->client;
	v->domain = s->domain;
	v->seq = seq_handle(c, s);
	v->state = seq_state_seen(s);
	v->family = s->family;
	v->priority = s->priority;
	v->valid_len = s->valid_len;
	v->prompt_len = s->prompt_len;
	v->max_tokens = s->max_tokens;
	for_each_tab(c, s, t)
		v->nr_blocks += tab_shown(c, t);
	for_each_pte(c, s, t, n) {
		kv_pte_t pte = table_pte(c, t, n);

		v->nr_shared += pte_is_present(pte) &&
				c->blocks[pte_block(pte)].nr_map > 1;
	}
	v->seq_epoch = s->epoch;
	v->nr_preempted = s->nr_preempted;
	v->arrival = s->arrival;
	return 0;
}

/* The highest tier that has the content, KVMM_TIER_*; KVMM_NR_LOOKUP_TIERS: none. */
static u32 entry_place(const struct core *c, const struct kv_entry *e)
{
	if (e->flags & ENTF_LOST)
		return KVMM_NR_LOOKUP_TIERS;
	if (e->dev != CORE_NONE)
		return c->blocks[e->dev].state == BLK_LIMBO ? KVMM_TIER_MOVING :
							      KVMM_TIER_DEVICE;
	if (e->flags & ENTF_HOST)
		return KVMM_TIER_HOST;
	return e->io == ENT_READ ? KVMM_TIER_MOVING : KVMM_TIER_AREA;
}

/* The slowest tier of the blocks of a lease in the hit_tokens tokens from @at on. */
static u32 lease_place(const struct core *c, const struct kv_seq *s, u32 at)
{
	/* Lost content is slower than any. */
	static const u8 slow[KVMM_NR_LOOKUP_TIERS + 1] = {
		[KVMM_TIER_DEVICE] = 0, [KVMM_TIER_HOST] = 1, [KVMM_TIER_MOVING] = 2,
		[KVMM_TIER_AREA] = 3, [KVMM_NR_LOOKUP_TIERS] = 4,
	};
	u32 end = at + seq_domain(c, s)->hit_tokens, i, tier, most = KVMM_TIER_DEVICE;
	const struct kv_tab *t;

	for_each_tab(c, s, t) {
		for (i = max(at / tab_tokens(c, t), t->trimmed); i < end / tab_tokens(c, t);
		     i++) {
			tier = entry_place(c, &c->entries_low[pte_block(table_pte(c, t, i))]);
			if (slow[tier] > slow[most])
				most = tier;
		}
	}
	return most;
}

/* Sequence record @i: -ERANGE past the last, -ENOENT when it is no lease. */
int core_get_lease(const struct core *c, u32 i, struct core_lease_view *v)
{
	const struct kv_seq *s;
	u32 at, unit, tier;

	if (i >= core_sizes(c)->nr_seqs)
		return -ERANGE;
	s = &c->seqs[i];
	if (s->state == KVMM_SEQ_CLOSED || !(s->flags & SEQF_LEASE))
		return -ENOENT;
	*v = (struct core_lease_view){
		.client = s->client, .domain = s->domain, .seq = seq_handle(c, s),
		.number = lease_number(c, s), .until = s->until,
		.nr_blocks = seq_live(c, s), .tokens = s->valid_len,
		.promoted = !!(s->flags & SEQF_PROMOTE),
	};
	memcpy(v->label, s->label, sizeof(s->label));
	unit = seq_domain(c, s)->hit_tokens;
	for (at = 0; at < s->valid_len; at += unit) {
		tier = lease_place(c, s, at);
		if (tier < KVMM_NR_LOOKUP_TIERS)
			v->on[tier] += unit;
		else
			v->lost += unit;
	}
	return 0;
}

/*
 * Blocks in states that the span has no counts of.  They are counted one by one,
 * so only where the domain has any.
 */
static void extent_add_rare(const struct core *c, u32 span,
			    struct core_extent_view *v)
{
	const struct kv_domain *d = &c->domains[c->spans[span].domain];
	u32 base = span * core_sizes(c)->blocks_per_extent, i;

	if (!d->dev.nr[BLK_QUIESCING] && !d->dev.nr[BLK_LIMBO] &&
	    !d->dev.nr[BLK_QUARANTINE] && !d->dev.nr[BLK_POISON])
		return;
	for (i = base; i < base + v->span_blocks; i++) {
		u32 state = c->blocks[i].state;

		v->span_pinned += state == BLK_QUIESCING || state == BLK_LIMBO;
		v->span_quarantine += state == BLK_QUARANTINE;
		v->span_poison += state == BLK_POISON;
	}
	v->looked = v->span_blocks;
}

/* Extent @i: -ERANGE past the last. */
int core_get_extent(const struct core *c, u32 i, struct core_extent_view *v)
{
	const struct kv_extent *x;

	if (i >= core_sizes(c)->nr_extents)
		return -ERANGE;
	x = &c->extents[i];
	memset(v, 0, sizeof(*v));
	v->extent = i;
	v->pool = core_zone_of(c, i);
	v->state = x->state;
	v->tenant = x->backed ? x->tenant : CORE_NONE;
	v->domain = x->state == EXT_SPAN ? x->domain : CORE_NONE;
	if (x->state == EXT_SPAN) {
		v->span_blocks = c->spans[x->span].nr_blocks;
		v->span_free = c->spans[x->span].nr_free;
		v->span_open = c->spans[x->span].nr_open;
		v->span_cached = c->spans[x->span].nr_cached;
		extent_add_rare(c, x->span, v);
	}
	KV_BUG_ON(x->mapped & ~x->sent);
	v->generation = x->generation;
	v->backed = x->backed;
	v->mapped = x->mapped;
	return 0;
}

#define MAP_LOOK	4096u	/* extents that one line looks at */

/* core_map_room() - the most blocks that a span can have */
u32 core_map_room(const struct core_config *cfg)
{
	return CORE_SPAN_MAX * (u32)(cfg->extent_size / cfg->min_token_bytes / 16);
}

/**
 * core_get_map() - the span or row of extents that begins at extent @i
 * @blocks: gets the state of each block of a span, BLK_*, and with it
 *          CORE_MAP_SHARED; room for core_map_room() blocks
 *
 * A span of several shards is described in each of its device pools.
 *
 * Return: 0; -ERANGE past the last extent.
 */
int core_get_map(const struct core *c, u32 i, struct core_map_view *v,
		 u8 *blocks)
{
	u32 end = min(core_sizes(c)->nr_extents, i + MAP_LOOK), n, first;
	const struct kv_block *b;

	if (i >= core_sizes(c)->nr_extents)
		return -ERANGE;
	*v = (struct core_map_view){ .first = i, .nr = 1, .domain = CORE_NONE,
				     .state = c->extents[i].state };
	if (v->state != EXT_SPAN) {
		while (i + v->nr < end &&
		       c->extents[i + v->nr].state == v->state)
			v->nr++;
		return 0;
	}
	/*
	 * Spans may have changed since the last line, so that @i is inside one.
	 */
	first = c->extents[i].span;
	n = i - extent_zone(c, i)->first - (first - extent_zone(c, first)->first);
	KV_BUG_ON(n >= c->spans[first].nr_extents);
	v->nr = c->spans[first].nr_extents - n;
	if (n)
		return 0;
	v->domain = c->extents[i].domain;
	v->nr_blocks = c->spans[first].nr_blocks;
	b = &c->blocks[first * core_sizes(c)->blocks_per_extent];
	for (n = 0; n < v->nr_blocks; n++, b++)
		blocks[n] = b->state | (b->nr_map > 1 ? CORE_MAP_SHARED : 0);
	return 0;
}
