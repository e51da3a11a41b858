/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base.h - accessors of records, counters, trace, wake-ups: used by every room
 */
#ifndef KVMM_CORE_BASE_H
#define KVMM_CORE_BASE_H

#include <kvmm/bug.h>

#include "kvmm/core/base/records.h"
#include "kvmm/core/base/tell.h"

static inline const struct core_config *core_cfg(const struct core *c)
{
	return &c->head->cfg;
}

static inline const struct core_sizes *core_sizes(const struct core *c)
{
	return &c->head->sizes;
}

/* Bytes that one unit of a table entry stands for; blocks have whole units. */
static inline u64 entry_unit(const struct core *c)
{
	return 1ull << core_sizes(c)->unit_shift;
}

/* The device pool that an extent is in. */
static inline struct kv_zone *extent_zone(const struct core *c, u32 e)
{
	u32 i = c->head->nr_zones - 1;

	while (e < c->head->zones[i].first)
		i--;
	return &c->head->zones[i];
}

/* The first device pool of a domain. */
static inline struct kv_zone *domain_zone(const struct core *c,
					  const struct kv_domain *d)
{
	return &c->head->zones[d->zone];
}

/* The number of the device pool that an extent is in. */
static inline u32 zone_of(const struct core *c, u32 e)
{
	return (u32)(extent_zone(c, e) - c->head->zones);
}

/* Each device pool of a domain. */
#define for_each_zone(c, d, z)						\
	for ((z) = domain_zone(c, d);					\
	     (z) < domain_zone(c, d) + (d)->shards; (z)++)

/* Is the domain in the device pool? */
static inline bool domain_is_in(const struct kv_domain *d, u32 zone)
{
	return zone - d->zone < d->shards;
}

/* Are the domains in the same device pool, or have one in common? */
static inline bool domains_meet(const struct kv_domain *a, const struct kv_domain *b)
{
	return a->zone < b->zone + b->shards && b->zone < a->zone + a->shards;
}

/*
 * The @n-th extent of a run: it has @nr extents from @first on, and as many at the same
 * place of each further device pool.  A taker gets all of them, or none.
 */
static inline u32 run_extent(const struct core *c, u32 first, u32 nr, u32 n)
{
	const struct kv_zone *z;

	if (n < nr)
		return first + n;
	z = extent_zone(c, first);
	return first - z->first + n % nr + z[n / nr].first;
}

/* Is the extent @e in the run?  The time does not depend on the size of the run. */
static inline bool run_has(const struct core *c, u32 first, u32 nr, u32 shards, u32 e)
{
	const struct kv_zone *a = extent_zone(c, first), *b = extent_zone(c, e);

	return b >= a && b < a + shards && (e - b->first) - (first - a->first) < nr;
}

/* Each extent @e of the run of @nr from @first on, in @shards device pools. */
#define for_each_run_extent(c, e, n, first, nr, shards)			\
	for ((n) = 0; (n) < (nr) * (shards) &&				\
	     ((e) = run_extent(c, first, nr, n), true); (n)++)

/* Each extent of the run at @first that a span of the domain would have. */
#define for_each_extent_of(c, d, e, n, first)				\
	for_each_run_extent(c, e, n, first, (d)->dev.span_extents, (d)->shards)

/* The end of the extents in use of a device pool. */
static inline u32 zone_end(const struct kv_zone *z)
{
	return z->first + z->nr_online;
}

/* Extents of each of the domain's device pools, also those not in use: of the smallest. */
static inline u32 domain_extents(const struct core *c, const struct kv_domain *d)
{
	const struct kv_zone *z;
	u32 nr = CORE_NONE;

	for_each_zone(c, d, z)
		nr = min(nr, z->nr_extents);
	return nr;
}

/* Extents in use of each of the domain's device pools: those of the smallest. */
static inline u32 domain_online(const struct core *c, const struct kv_domain *d)
{
	const struct kv_zone *z;
	u32 nr = domain_zone(c, d)->nr_online;

	for_each_zone(c, d, z)
		nr = min(nr, z->nr_online);
	return nr;
}

/* The end of these extents in the first device pool. */
static inline u32 domain_end(const struct core *c, const struct kv_domain *d)
{
	return domain_zone(c, d)->first + domain_online(c, d);
}

/* Bytes of each device pool of the domain that are in use (resize.c). */
static inline u64 pool_online(const struct core *c, const struct kv_domain *d)
{
	return domain_online(c, d) * core_cfg(c)->extent_size;
}

/* The worst state of the domain's devices: CORE_DEVICE_*. */
static inline u32 domain_device(const struct core *c, const struct kv_domain *d)
{
	const struct kv_zone *z;
	u32 device = 0;

	for_each_zone(c, d, z)
		device = max(device, z->device);
	return device;
}

/* Has a device of the domain lost its content, so that no block of it may be used? */
static inline bool device_is_lost(const struct core *c, const struct kv_domain *d)
{
	return domain_device(c, d) == CORE_DEVICE_LOST;
}

/* Has a device of the domain failed, in one way or the other? */
static inline bool device_is_down(const struct core *c, const struct kv_domain *d)
{
	return domain_device(c, d);
}

/*
 * Can extents of the device pool be made?  After a failure they cannot for a while.  Only
 * a tick ends that, and tries all waiting sequences.
 */
static inline bool extents_can_be_made(const struct kv_zone *z)
{
	return !z->create_after;
}

/* Is a device pool of the domain being made smaller? */
static inline bool domain_resizes(const struct core *c, const struct kv_domain *d)
{
	const struct kv_zone *z;

	for_each_zone(c, d, z)
		if (z->resizing)
			return true;
	return false;
}

/* Can extents be made in all device pools of the domain? */
static inline bool domain_can_make(const struct core *c, const struct kv_domain *d)
{
	const struct kv_zone *z;

	for_each_zone(c, d, z)
		if (!extents_can_be_made(z))
			return false;
	return true;
}

static inline struct kv_pool *core_pool(const struct core *c, u32 pool)
{
	return &c->head->pools[pool];
}

/* The number of domain @dom's part in @pool; in the device pool it is @dom. */
static inline u32 part_index(const struct core *c, u32 dom, u32 pool)
{
	return dom + pool * core_cfg(c)->max_domains;
}

static inline u32 part_pool(const struct core *c, u32 part)
{
	u32 nr = core_cfg(c)->max_domains;

	/* Nearly always the device pool: no need to divide. */
	return part < nr ? CORE_POOL_DEV : part / nr;
}

/* Does life.c sample the block?  Called for every change of a block's state. */
static inline bool life_is_sampled(const struct core *c, u32 blk)
{
	u32 shift = c->head->life_shift, group = blk >> shift;

	return !shift || (group * LIFE_HASH) >> (32 - shift) ==
			 (blk & ((1u << shift) - 1));
}

static inline u32 part_domain(const struct core *c, u32 part)
{
	u32 nr = core_cfg(c)->max_domains;

	return part < nr ? part : part % nr;
}

/* The first used domain of index @i or more; max_domains: there is none. */
static inline u32 domain_from(const struct core *c, u32 i)
{
	while (i < core_cfg(c)->max_domains && !c->domains[i].used)
		i++;
	return i;
}

#define for_each_domain(c, i)						\
	for ((i) = domain_from(c, 0); (i) < core_cfg(c)->max_domains;	\
	     (i) = domain_from(c, (i) + 1))

/* The first used domain of index @i or more that meets @d; or max_domains. */
static inline u32 neighbour_from(const struct core *c, const struct kv_domain *d, u32 i)
{
	while (i < core_cfg(c)->max_domains &&
	       (!c->domains[i].used || !domains_meet(&c->domains[i], d)))
		i++;
	return i;
}

/* Each domain of the device pools of @d, @d included. */
#define for_each_neighbour(c, d, i)					\
	for ((i) = neighbour_from(c, d, 0); (i) < core_cfg(c)->max_domains; \
	     (i) = neighbour_from(c, d, (i) + 1))

/* The relative of @s after @m, in the circle from @s on; NULL: @m was the last. */
static inline struct kv_seq *family_after(const struct core *c,
					  const struct kv_seq *s,
					  const struct kv_seq *m)
{
	struct kv_seq *next = &c->seqs[m->fam_next];

	KV_BUG_ON(next->family != s->family);
	return next == s ? NULL : next;
}

/* Each sequence of the family of @s, which is the first.  The body must not close @m. */
#define for_each_relative(c, s, m)					\
	for ((m) = (s); (m); (m) = family_after(c, s, m))

/* Each of @nr neighbouring extents from @first on. */
#define for_each_extent(e, first, nr)					\
	for ((e) = (first); (e) < (first) + (nr); (e)++)

/* Each run of extents in use of the domain's device pools, of the length of a span. */
#define for_each_run(c, d, i)						\
	for ((i) = domain_zone(c, d)->first;				\
	     (i) + (d)->dev.span_extents <= domain_end(c, d);		\
	     (i) += (d)->dev.span_extents)

/* The record of part_index() @part. */
static inline struct kv_part *part_at(const struct core *c, u32 part)
{
	u32 nr = core_cfg(c)->max_domains;

	return part < nr ? &c->domains[part].dev : &c->parts[part - nr];
}

/* Device pools that a span of the part is in. */
static inline u32 part_shards(const struct core *c, u32 part)
{
	return part < core_cfg(c)->max_domains ? c->domains[part].shards : 1;
}

/* Each extent @e of the span that begins at @first. */
#define for_each_span_extent(c, e, n, first)				\
	for_each_run_extent(c, e, n, first, (c)->spans[first].nr_extents, \
			    part_shards(c, (c)->spans[first].domain))

/* Bytes of a block of the domain in all of its device pools. */
static inline u64 domain_payload(const struct kv_domain *d)
{
	return d->dev.block_bytes * d->shards;
}

/*
 * Nanoseconds to compute the content of a block again, as its clients measured; 0: they
 * have not.  A token that is computed again fills its part of a block in each group.
 */
static inline u64 domain_refill_ns(const struct kv_domain *d)
{
	return d->group[0].block_tokens * d->prefill_ns_token / d->nr_groups;
}

/* The domain of a part in the device pool; NULL: the part is of another pool. */
static inline struct kv_domain *part_dev_domain(const struct core *c, u32 part)
{
	return part < core_cfg(c)->max_domains ? &c->domains[part] : NULL;
}

/*
 * Count work that grows with the number of records: @n units of about 10 ns.
 * An event that has done a lot leaves the rest to the next, see admit_all().
 */
static inline void core_work(struct core *c, u32 n)
{
	c->work += n;
}

/* Has the event done a lot? */
static inline bool core_worked(const struct core *c)
{
	return c->work >= core_cfg(c)->event_work;
}

/*
 * An event is under way from here to the end of the C block.  Another core can
 * go on in the arena only between events.  One thread writes the arena.  A
 * thread that is killed has done every store before the place where it was
 * killed and none after it, on any machine.  So only the compiler could change
 * the order of stores.  core_order() stands between two stores of which the
 * first must be done whenever the second is.
 */
#define core_order()	__asm__ __volatile__("" ::: "memory")

static inline struct core *core_event_begin(struct core *c)
{
	c->head->event++;
	core_order();
	c->taker = CORE_NONE;
	return c;
}

static inline void core_event_end(struct core **c)
{
	core_order();
	KV_BUG_ON(!(*c)->head->event);
	(*c)->head->event--;
}

#define core_event(c)							\
	struct core *core_in_event					\
	__attribute__((cleanup(core_event_end), unused)) =		\
	core_event_begin(c)

/* A place where a test may end the core, see crash.h. */
static inline void core_crash(struct core *c, enum core_crash_point point)
{
	core_order();
	if (__builtin_expect(c->ops->crash != NULL, 0))
		c->ops->crash(c->ops_arg, point);
}

static inline void core_count(struct core *c, enum core_event ev, u64 n)
{
	c->head->events[ev] += n;
}

/* Does the client map memory for the sequences of another one?  See ranks.c. */
static inline bool client_is_rank(const struct core *c, u32 client)
{
	return c->clients[client].leader != client;
}

/* All shards of a domain with @nr device pools, a bit for each. */
static inline u32 shards_all(u32 nr)
{
	return BIT(nr) - 1;
}

static inline u32 seq_index(const struct core *c, const struct kv_seq *s)
{
	return (u32)(s - c->seqs);
}

/* The number of a sequence among those of its client. */
static inline u32 seq_number(const struct core *c, const struct kv_seq *s)
{
	return seq_index(c, s) - s->client * core_cfg(c)->max_seqs;
}

static inline struct kv_domain *seq_domain(const struct core *c,
					   const struct kv_seq *s)
{
	return &c->domains[s->domain];
}

/* The scratch of this event for a record. */
static inline struct span_scan *span_scan(const struct core *c,
					  const struct kv_span *sp)
{
	return &c->span_scans[sp - c->spans];
}

static inline struct domain_scan *domain_scan(const struct core *c,
					      const struct kv_domain *d)
{
	return &c->domain_scans[d - c->domains];
}

static inline struct seq_scan *seq_scan(const struct core *c,
					const struct kv_seq *s)
{
	return &c->seq_scans[s - c->seqs];
}

/* Blocks of a part that are not FREE. */
static inline u32 part_used(const struct kv_part *p)
{
	return p->nr_spans * p->span_blocks - p->nr[BLK_FREE];
}

/* Free blocks that can be allocated: those outside of isolated spans. */
static inline u32 part_free(const struct kv_part *p)
{
	return p->nr[BLK_FREE] - p->isolated_free;
}

/* The same for the device pool. */
static inline u32 domain_used(const struct kv_domain *d)
{
	return part_used(&d->dev);
}

static inline u32 domain_free(const struct kv_domain *d)
{
	return part_free(&d->dev);
}

/* Cached blocks whose eviction frees a block that can be allocated. */
static inline u32 domain_cached(const struct kv_domain *d)
{
	return d->dev.nr[BLK_CACHED] - d->dev.isolated_cached;
}

static inline bool span_is_isolated(const struct kv_span *sp)
{
	return sp->class == CORE_CLASS_ISOLATED;
}

/*
 * All reasons to keep the content of a block: mappings of sequences, the
 * index, copies of the daemon.  The count is computed, not stored.
 */
static inline u32 block_refcount(const struct kv_block *b)
{
	return b->nr_map + !!(b->flags & BLKF_INDEXED) + b->nr_copy;
}

/* Tokens of the block when it is full. */
static inline u32 block_tokens(const struct core *c, u32 blk)
{
	const struct kv_block *b = &c->blocks[blk];

	return c->domains[part_domain(c, b->domain)].group[b->group].block_tokens;
}

/* The first @nr ids of the block's tokens are known. */
static inline void block_set_ids(struct kv_block *b, u32 nr)
{
	KV_BUG_ON(nr > KVMM_MAX_BLOCK_TOKENS);
	b->nr_ids = nr & (BIT(BLOCK_IDS_BITS) - 1);
}

/* May a sequence that maps the block write it in place? */
static inline bool block_writable(const struct core *c, u32 blk)
{
	return c->blocks[blk].state == BLK_OPEN &&
	       block_refcount(&c->blocks[blk]) == 1;
}

/* First extent of the span that the block belongs to. */
static inline u32 block_span(const struct core *c, u32 blk)
{
	return c->extents[blk >> core_sizes(c)->block_shift].span;
}

/*
 * The claim that empties the isolated span, as in kv_extent.want, or 0.  A claimed run
 * may reach into the span behind its first extent.
 */
static inline u32 span_claim(const struct core *c, u32 first)
{
	u32 e, n;

	if (span_is_isolated(&c->spans[first]))
		for_each_span_extent(c, e, n, first)
			if (c->extents[e].want)
				return c->extents[e].want;
	return 0;
}

/* Is the block in a span that is being emptied for another tenant? */
static inline bool block_is_claimed(const struct core *c, u32 blk)
{
	return span_claim(c, block_span(c, blk));
}

/* Does a span reach past the end of a device pool, so that it goes out of use? */
static inline bool span_leaves(const struct core *c, u32 first)
{
	const struct kv_span *sp = &c->spans[first];
	const struct kv_zone *z = extent_zone(c, first);
	u32 end = first - z->first + sp->nr_extents, i;

	for (i = 0; i < part_shards(c, sp->domain); i++)
		if (z[i].resizing && end > z[i].nr_online)
			return true;
	return false;
}

/* Is the block in a span that goes out of use?  See resize.c. */
static inline bool block_leaves(const struct core *c, u32 blk)
{
	return span_leaves(c, block_span(c, blk));
}

static inline u32 domain_slack(const struct kv_domain *d)
{
	return domain_free(d) - d->dev.reserved;
}

/* Blocks in use that eviction cannot free, and reserved blocks. */
static inline u32 domain_held(const struct kv_domain *d)
{
	return domain_used(d) - d->dev.nr[BLK_CACHED] + d->dev.reserved;
}

/* Evicted blocks that are free when their copies out have ended. */
static inline u32 domain_leaving(const struct kv_domain *d)
{
	return d->dev.nr[BLK_LIMBO] > d->nr_filling ?
	       d->dev.nr[BLK_LIMBO] - d->nr_filling : 0;
}

/* Blocks that become free soon without further work. */
static inline u32 room_coming(const struct core *c, const struct kv_domain *d)
{
	u64 made = (u64)d->dev.pending_spans * d->dev.span_blocks;

	return (u32)min(made + domain_leaving(d), 0x7fffffffull);
}

/* Blocks of @nr + @spare that are neither free, nor coming, nor cached. */
static inline u32 room_lacks(const struct core *c, const struct kv_domain *d, u32 nr,
	       u32 spare)
{
	u64 have = (u64)domain_slack(d) + room_coming(c, d) + domain_cached(d);

	return (u64)nr + spare > have ? (u32)((u64)nr + spare - have) : 0;
}

/*
 * May blocks go from one of the domains to the other at once?  Other tenants get only
 * whole runs of extents, and other device pools nothing.
 */
static inline bool domains_trade(const struct kv_domain *a, const struct kv_domain *b)
{
	return a->tenant == b->tenant && domains_meet(a, b);
}

/* Does memory.max stop @nr more blocks?  Then only the domain's own help. */
static inline bool domain_limited(const struct kv_domain *d, u32 nr)
{
	return (u64)domain_held(d) + nr > d->dev.max_blocks;
}

/* Does a swapped sequence of the domain wait, and another one, too? */
static inline bool restore_waits(const struct kv_domain *d)
{
	return d->nr_swapped && d->nr_waiting > 1;
}

/**
 * revoke_needed() - may a client of its tenant have the extent mapped?
 *
 * Then another tenant gets the extent only after a revocation.
 */
static inline bool revoke_needed(const struct core *c, u32 e)
{
	return c->extents[e].sent || c->extents[e].haunted;
}

/* The most blocks that the domain could have. */
static inline u32 domain_capacity(const struct core *c, const struct kv_domain *d)
{
	u64 spans = domain_online(c, d) / d->dev.span_extents;
	u64 blocks = min(spans * d->dev.span_blocks, (u64)d->dev.max_blocks);

	return (u32)(device_is_down(c, d) ? min(blocks, (u64)d->kept) : blocks);
}

/* The state that readers see: a lease is SWAPPED, and waits for nothing. */
static inline u32 seq_state_seen(const struct kv_seq *s)
{
	return s->flags & SEQF_LEASE ? CORE_SEQ_LEASED : s->state;
}

static inline u64 seq_handle(const struct core *c, const struct kv_seq *s)
{
	return KVMM_SEQ(seq_number(c, s), s->generation);
}

static inline struct kv_step_entry *step_entries(const struct core *c, u32 client,
					  u32 slot)
{
	u64 step = (u64)client * KVMM_MAX_STEPS + slot;

	return c->entries + step * CORE_MAX_STEP_ENTRIES;
}

/* The @i-th oldest open step of a client. */
static inline struct kv_step *step_at(const struct core *c, u32 client, u32 i,
			struct kv_step_entry **entries)
{
	u32 slot = (c->clients[client].step_head + i) % KVMM_MAX_STEPS;

	KV_BUG_ON(c->clients[client].step_head >= KVMM_MAX_STEPS);
	*entries = step_entries(c, client, slot);
	return &c->steps[client * KVMM_MAX_STEPS + slot];
}

/* drain_of_tenant() - bit set of CORE_DRAIN_*; CORE_NONE: not known yet */
static inline u32 drain_of_tenant(const struct core *c, u32 tenant)
{
	bool its = tenant != CORE_NONE && c->tenants[tenant].draining;

	return (c->head->draining ? BIT(CORE_DRAIN_NODE) : 0) |
	       (its ? BIT(CORE_DRAIN_TENANT) : 0);
}

/* drain_of_client() - bit set of the CORE_DRAIN_* that drain the client */
static inline u32 drain_of_client(const struct core *c, u32 client)
{
	const struct kv_client *cl = &c->clients[client];

	return drain_of_tenant(c, cl->tenant) |
	       (cl->draining ? BIT(CORE_DRAIN_CLIENT) : 0);
}

/* Can a domain have blocks now, or a waiting sequence be admitted? */
enum verdict {
	ROOM_NOW,	/* yes */
	ROOM_MADE,	/* memory is being made, or other tenants return it */
	ROOM_MOVED,	/* blocks of another domain are being moved away */
	ROOM_NONE,	/* no */
	WAITS_CLIENT,	/* its client has extents to map, or has no table page left */
	WAITS_HIGH,	/* its domain would be above memory.high */
	WAITS_HASH,	/* its prompt is not hashed to its end yet */
	WAITS_NOT,	/* it failed, or must be matched again */
};

/* After this event, try the first waiting sequence of the domain again. */
static inline void domain_kick(struct kv_domain *d)
{
	d->retry = 1;
}

/* notify.c: tell waiting sequences, clients and the shell */
bool client_kill(struct core *c, u32 client, int reason);
void core_kick(struct core *c);
void core_kick_promised(struct core *c, u32 dom);
void event_post(struct core *c, u32 client, u32 type, u32 index, u64 seq);

/* order.c: sequences in order: by priority, then arrival */
bool seq_before(const struct kv_seq *a, const struct kv_seq *b);
u32 order_rank(const struct core *c, const struct kv_seq *s);
void order_add(struct core *c, u32 *root, u32 i, u32 node);
void order_del(struct core *c, u32 *root, u32 i, u32 node);
u32 order_end(const struct core *c, u32 root, u32 node, bool last);
u32 order_prev(const struct core *c, u32 root, const struct kv_seq *s,
	       u32 node);
u32 order_prev_aged(const struct core *c, u32 root, const struct kv_seq *s,
		    u64 since);

#include "kvmm/core/base/groups.h"

/* Doubly linked lists of indices, with the links in the records. */
#define list_add_tail_idx(arr, head, tail, i)				\
do {									\
	KV_BUG_ON(((head) == CORE_NONE) != ((tail) == CORE_NONE));	\
	KV_BUG_ON((tail) != CORE_NONE &&				\
		  (arr)[tail].next != CORE_NONE);			\
	(arr)[i].next = CORE_NONE;					\
	(arr)[i].prev = (tail);						\
	if ((tail) != CORE_NONE)					\
		(arr)[tail].next = (i);					\
	else								\
		(head) = (i);						\
	(tail) = (i);							\
} while (0)

/* Insert @i after @at, which is not the last one. */
#define list_add_after_idx(arr, at, i)					\
do {									\
	KV_BUG_ON((arr)[at].next == CORE_NONE);				\
	(arr)[i].next = (arr)[at].next;					\
	(arr)[i].prev = (at);						\
	(arr)[(arr)[at].next].prev = (i);				\
	(arr)[at].next = (i);						\
} while (0)

#define list_del_idx(arr, head, tail, i)				\
do {									\
	KV_BUG_ON((arr)[i].prev != CORE_NONE ?				\
		  (arr)[(arr)[i].prev].next != (i) : (head) != (i));	\
	KV_BUG_ON((arr)[i].next != CORE_NONE ?				\
		  (arr)[(arr)[i].next].prev != (i) : (tail) != (i));	\
	if ((arr)[i].prev != CORE_NONE)					\
		(arr)[(arr)[i].prev].next = (arr)[i].next;		\
	else								\
		(head) = (arr)[i].next;					\
	if ((arr)[i].next != CORE_NONE)					\
		(arr)[(arr)[i].next].prev = (arr)[i].prev;		\
	else								\
		(tail) = (arr)[i].prev;					\
	(arr)[i].prev = CORE_NONE;					\
	(arr)[i].next = CORE_NONE;					\
} while (0)

#endif /* KVMM_CORE_BASE_H */
