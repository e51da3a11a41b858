/* SPDX-License-Identifier: Apache-2.0 */
/*
 * internal.h - what crosses files inside the core: its functions
 *
 * They work on the records of records.h.
 */
#ifndef KVMM_CORE_INTERNAL_H
#define KVMM_CORE_INTERNAL_H

#include <kvmm/bug.h>
#include <kvmm/probes.h>

#include "kvmm/core/records.h"

static inline const struct core_config *core_cfg(const struct core *c)
{
	return &c->head->cfg;
}

static inline const struct core_sizes *core_sizes(const struct core *c)
{
	return &c->head->sizes;
}

/* Bytes of the device pool that are in use: what there is to be had. */
static inline u64 pool_online(const struct core *c)
{
	return c->head->nr_online * core_cfg(c)->extent_size;
}

static inline struct kv_pool *core_pool(const struct core *c, u32 pool)
{
	return &c->head->pools[pool];
}

/* Where the record of domain @dom's part in @pool is. */
static inline u32 part_index(const struct core *c, u32 dom, u32 pool)
{
	return dom + pool * core_cfg(c)->max_domains;
}

static inline u32 part_pool(const struct core *c, u32 part)
{
	u32 nr = core_cfg(c)->max_domains;

	/* Nearly always: no need to divide. */
	return part < nr ? CORE_POOL_DEV : part / nr;
}

/* Is it the one of its group that life.c looks at?  This comes with every block. */
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

/*
 * Work that grows with what there is was done: @n units of about 10 ns.  An
 * event that has done a lot leaves the rest to the next, see admit_all().
 */
static inline void core_work(struct core *c, u32 n)
{
	c->work += n;
}

/*
 * An event is under way from here to the end of the block: the arena is as
 * another core could go on with it only outside.  One thread writes it, and a
 * thread that is killed has done what comes before the place where it was
 * killed and nothing that comes after, on any machine; so it is the compiler
 * alone that could change the order of stores, and core_order() is all that
 * is needed between two of which the first must be true whenever the second is.
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

/* trace.c: what was decided, for whoever wants to know */
void trace_record(struct core *c, u32 event, const u64 *arg, u32 nr);

/* The fields of an event of trace.h, in the order of that list. */
#define core_trace(c, event, ...)					\
do {									\
	_Static_assert(sizeof((u64[]){ __VA_ARGS__ }) / sizeof(u64) ==	\
		       CORE_TRACE_NR_##event, #event);			\
	if (__builtin_expect((c)->trace_on & (1u << CORE_TRACE_##event), 0)) \
		trace_record(c, CORE_TRACE_##event,			\
			     (const u64[]){ __VA_ARGS__ },		\
			     CORE_TRACE_NR_##event);			\
} while (0)

/* An index as a field. */
#define trace_id(index)	((index) == CORE_NONE ? ~0ull : (u64)(index))

/* The first three fields of what is told of a sequence. */
#define trace_seq(c, s)	(s)->client, (s)->domain, seq_number(c, s)

static inline u32 seq_index(const struct core *c, const struct kv_seq *s)
{
	return (u32)(s - c->seqs);
}

/* Its number among its client's, as the files have it. */
static inline u32 seq_number(const struct core *c, const struct kv_seq *s)
{
	return seq_index(c, s) - s->client * core_cfg(c)->max_seqs;
}

static inline struct kv_domain *seq_domain(const struct core *c,
					   const struct kv_seq *s)
{
	return &c->domains[s->domain];
}

/* Blocks of a domain, or of its part in a lower pool, that are not free. */
static inline u32 domain_used(const struct kv_domain *d)
{
	return d->nr_spans * d->span_blocks - d->nr[BLK_FREE];
}

/* Free blocks that somebody may take: those of isolated spans nobody may. */
static inline u32 domain_free(const struct kv_domain *d)
{
	return d->nr[BLK_FREE] - d->isolated_free;
}

/* Cached blocks whose eviction gives the domain a free one. */
static inline u32 domain_cached(const struct kv_domain *d)
{
	return d->nr[BLK_CACHED] - d->isolated_cached;
}

static inline bool span_is_isolated(const struct kv_span *sp)
{
	return sp->class == CORE_CLASS_ISOLATED;
}

static inline u32 tokens_to_blocks(const struct kv_domain *d, u32 tokens)
{
	return DIV_ROUND_UP(tokens, d->block_tokens);
}

/*
 * Every reason to keep a block's content: the sequences that map it, the
 * index, copies of the daemon.  It follows from these and is not kept.
 */
static inline u32 block_refcount(const struct kv_block *b)
{
	return b->nr_map + !!(b->flags & BLKF_INDEXED) + b->nr_copy;
}

/* May a sequence that maps the block write it in place? */
static inline bool block_writable(const struct core *c, u32 blk)
{
	return c->blocks[blk].state == BLK_OPEN &&
	       block_refcount(&c->blocks[blk]) == 1;
}

/* First extent of the span that a block is in. */
static inline u32 block_span(const struct core *c, u32 blk)
{
	return c->extents[blk >> core_sizes(c)->block_shift].span;
}

/* Is the block in a span that is emptied for another tenant? */
static inline bool block_is_claimed(const struct core *c, u32 blk)
{
	u32 span = block_span(c, blk);

	return span_is_isolated(&c->spans[span]) && c->extents[span].want;
}

/* Is the block in a span that is on its way out of use?  See resize.c. */
static inline bool block_leaves(const struct core *c, u32 blk)
{
	u32 first = block_span(c, blk);

	return c->head->resizing &&
	       first + c->spans[first].nr_extents > c->head->nr_online;
}

static inline u32 domain_slack(const struct kv_domain *d)
{
	KV_BUG_ON(domain_free(d) < d->reserved);
	return domain_free(d) - d->reserved;
}

/* Blocks in use that no eviction would give back, and promised ones. */
static inline u32 domain_held(const struct kv_domain *d)
{
	return domain_used(d) - d->nr[BLK_CACHED] + d->reserved;
}

/* Blocks that will be free soon, by themselves. */
static inline u32 room_coming(const struct core *c, const struct kv_domain *d)
{
	u64 made = (u64)d->pending_spans * d->span_blocks;
	u32 leaving = d->nr[BLK_LIMBO] > d->nr_filling ?
		      d->nr[BLK_LIMBO] - d->nr_filling : 0;

	return (u32)min(made + leaving, 0x7fffffffull);
}

/* Blocks of @nr that are neither free, nor coming, nor cached. */
static inline u32 room_lacks(const struct core *c, const struct kv_domain *d, u32 nr,
	       u32 spare)
{
	u64 have = (u64)domain_slack(d) + room_coming(c, d) + domain_cached(d);

	return (u64)nr + spare > have ? (u32)((u64)nr + spare - have) : 0;
}

/* memory.max stands in the way: only the domain's own can help. */
static inline bool domain_limited(const struct kv_domain *d, u32 nr)
{
	return (u64)domain_held(d) + nr > d->max_blocks;
}

/* Does a swapped sequence of the domain wait beside others? */
static inline bool restore_waits(const struct kv_domain *d)
{
	return d->nr_swapped && d->nr_waiting > 1;
}

/**
 * revoke_needed() - may somebody of its tenant have the extent mapped?
 *
 * Then it changes over to another tenant only by a revocation.
 */
static inline bool revoke_needed(const struct core *c, u32 e)
{
	return c->extents[e].sent || c->extents[e].haunted;
}

/* Blocks that the domain could have at best. */
static inline u32 domain_capacity(const struct core *c, const struct kv_domain *d)
{
	u64 spans = c->head->nr_online / d->span_extents;
	u64 blocks = min(spans * d->span_blocks, (u64)d->max_blocks);

	return (u32)(c->head->device ? min(blocks, (u64)d->kept) : blocks);
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

	*entries = step_entries(c, client, slot);
	return &c->steps[client * KVMM_MAX_STEPS + slot];
}

/* drain_of_tenant() - the same of a tenant; CORE_NONE: one that is not known */
static inline u32 drain_of_tenant(const struct core *c, u32 tenant)
{
	bool its = tenant != CORE_NONE && c->tenants[tenant].draining;

	return (c->head->draining ? BIT(CORE_DRAIN_NODE) : 0) |
	       (its ? BIT(CORE_DRAIN_TENANT) : 0);
}

/* drain_of_client() - what drains it: a bit for each CORE_DRAIN_* */
static inline u32 drain_of_client(const struct core *c, u32 client)
{
	const struct kv_client *cl = &c->clients[client];

	return drain_of_tenant(c, cl->tenant) |
	       (cl->draining ? BIT(CORE_DRAIN_CLIENT) : 0);
}

/* Ask the first waiting sequence of the domain again, after this event. */
static inline void domain_kick(struct kv_domain *d)
{
	d->retry = 1;
}

/* notify.c: tell waiting sequences, clients and the shell */
bool client_kill(struct core *c, u32 client, int reason);
void core_kick(struct core *c);
void core_kick_promised(struct core *c, u32 dom);
void event_post(struct core *c, u32 client, u32 type, u32 index, u64 seq);

/* core.c */
int config_settle(const struct core_config *in, struct core_config *cfg,
		  struct core_sizes *s);
u64 arena_layout(const struct core_config *cfg, const struct core_sizes *s,
		 struct core *c);

/* adopt.c, resume.c: a core goes on in the arena of another */
struct walk;
void adopt_again(struct core *c);
void client_publish(struct core *c, u32 client);

/* ranges.c, ranges_seq.c: one that is whole */
int adopt_ranges(struct core *c, struct walk *w);
int adopt_seqs(struct core *c, struct walk *w);
void adopt_index(struct core *c);
void seqs_ranges(struct walk *w, struct core *c);

/* salvage.c, salvage_pool.c, salvage_index.c: one that ended inside an event */
int salvage(struct core *c, struct walk *w);
void salvage_release(struct core *c, u32 dom);
void salvage_extents(struct core *c, struct walk *w);
u32 salvage_span(const struct core *c, u32 pool, u32 first);
u32 salvage_in_span(const struct core *c, u32 blk);
void salvage_blocks(struct core *c);
void salvage_index(struct core *c);
void salvage_cache(struct core *c);

/* extent.c: memory behind extents, and who has mapped it */
void extent_set_state(struct core *c, u32 e, u32 state);
bool extent_fits(const struct core *c, u32 e, u32 tenant, bool move);
int extent_run_take(struct core *c, u32 dom);
int extent_run_make(struct core *c, u32 dom, u32 first);
void extent_run_abandon(struct core *c, u32 first);
void extent_release(struct core *c, u32 e);
void extent_announce(struct core *c, u32 extent);
void extent_publish(struct core *c, u32 client);
void extent_forget_client(struct core *c, u32 client);
int extent_ack(struct core *c, u32 client, const struct kvmm_ack_arg *a);
void extent_created(struct core *c, u32 e, int status);

/* revoke.c: memory changes over between tenants whose clients live */
bool revoke_haunted(const struct core *c, u32 first, u32 nr);
void revoke_prepare(struct core *c, u32 dom);
bool revoke_may(const struct core *c, u32 e);
void revoke_begin(struct core *c, u32 dom, u32 first);
int revoke_ack(struct core *c, u32 client, const struct kvmm_ack_arg *a);
void revoke_advance(struct core *c);
void revoke_tick(struct core *c);
void revoke_haunt(struct core *c, u32 client);
void revoke_exorcise(struct core *c, u32 tenant);
void revoke_abandon_from(struct core *c, u32 e);
void extent_ask_back(struct core *c, u32 e);
void extent_overdue(struct core *c, u32 e, bool wanted);

/* resize.c: the device pool grows and shrinks */
void resize_tick(struct core *c);

/* device.c: the device of the pool failed */
void device_adopted(struct core *c);

/* May nothing of the device pool be used any more? */
static inline bool device_is_lost(const struct core *c)
{
	return c->head->device == CORE_DEVICE_LOST;
}

/* Is a block that falls free nobody's to have? */
static inline bool device_is_bad(const struct core *c, u32 blk)
{
	const struct kv_block *b = &c->blocks[blk];

	return (b->flags & BLKF_BAD) ||
	       (device_is_lost(c) && !part_pool(c, b->domain));
}

/* displace.c: runs that hold sequences, for another tenant */
int displace(struct core *c, struct kv_seq *want, u32 nr, bool promised);
bool displace_span(struct core *c, u32 first);
void displace_all(struct core *c, u32 first);

/* span.c: spans of a domain */
void span_cut(struct core *c, u32 dom, u32 first);
void span_release(struct core *c, u32 first);
u64 span_class_scale(u32 nr_blocks);
void span_recut(struct core *c, u32 first);
void span_reclass(struct core *c, u32 first);
void span_settle(struct core *c, u32 first);
u32 span_pick(const struct core *c, const struct kv_domain *d, u32 client);
u32 span_pick_dense(const struct core *c, const struct kv_domain *d, bool any);
bool span_acked(const struct core *c, u32 first, u32 client);
u32 span_nr_full(const struct core *c, const struct kv_domain *d);
u32 span_first_free(const struct core *c, const struct kv_domain *d);
u32 span_acked_free(const struct core *c, const struct kv_domain *d,
		    u32 client);

void span_set_class(struct core *c, u32 first, u32 class);
u32 span_class(const struct core *c, const struct kv_span *sp);

/* steal.c: spans that others can do without */
u32 span_runs_possible(struct core *c, u32 dom, u32 *back);
u32 span_runs_reachable(struct core *c, u32 dom);
#define LOOK_RUNS	32u

/* Runs that a look at all extents found, the best first. */
struct run_look {
	u32	nr;
	u32	next;		/* of those, not taken yet */
	u32	cost;		/* of each, RUN_* */
	u32	run[LOOK_RUNS];
	u64	key[LOOK_RUNS];
};

bool span_steal(struct core *c, u32 dom, bool back, struct run_look *l);
bool span_steal_kept(struct core *c, u32 dom, u32 want, struct run_look *l);
void spares_reset(struct core *c);

/* isolate.c: spans that are to be emptied */
void evacuate_forget(struct core *c, u32 first);
int __must_check span_isolate(struct core *c, u32 first);
void span_putback(struct core *c, u32 first);
u32 span_cover_promises(struct core *c, u32 dom);

/* migrate.c: blocks that move to other spans */
bool move_start(struct core *c, u32 evac, u32 blk);
void move_written(struct core *c, u32 blk);
void move_again(struct core *c, u32 i);
bool move_answered(struct core *c, u64 id, int status);
void pins_mark(struct core *c, u32 dom, bool set);

/* evacuate.c: spans that are emptied by moving their blocks */
bool evacuate_span(struct core *c, u32 first, bool any);
bool evacuate_is_on(const struct core *c, u32 first);
u32 evacuations_on(const struct core *c, u32 dom, bool promised);
int evacuate_for(struct core *c, u32 dom, u32 nr);
void evacuate_scan(struct core *c, u32 evac);
void evacuate_tick(struct core *c);

/* block.c: states and counts */
u32 block_alloc(struct core *c, u32 dom, u32 client);
u32 block_take(struct core *c, u32 first, u32 state);
void block_set_state(struct core *c, u32 blk, u32 state);
void block_map(struct core *c, u32 blk);
void block_map_many(struct core *c, struct kv_domain *d, const kv_pte_t *pte,
		    u32 n, u32 nr);
void block_unmap(struct core *c, u32 blk);
void block_src_get(struct core *c, u32 blk);
void block_src_put(struct core *c, u32 blk);
void block_put_index(struct core *c, u32 blk);
u64 block_offset(const struct core *c, u32 blk);
void block_copy_get(struct core *c, u32 blk);
void block_copy_put(struct core *c, u32 blk);
void block_limbo_end(struct core *c, u32 blk);
void block_filled(struct core *c, u32 blk);
u32 block_entry(const struct core *c, u32 blk);
u32 *block_ids(const struct core *c, u32 blk);

/* slots.c: which slot of a lower pool */
u32 slot_alloc_out(struct core *c, u32 part, u32 nr);
u32 slot_alloc_beside(struct core *c, u32 part, u32 peer, bool up);

/* index.c: the prefix index */
void index_root(const struct core *c, const struct kv_domain *d, u64 salt,
		u64 *hash);
void index_chain(const struct core *c, const struct kv_domain *d,
		 const u64 *parent, const u32 *ids, u64 *hash);
u32 index_lookup(const struct core *c, u32 dom, const u64 *hash,
		 const u32 *ids);
u32 index_find_node(const struct core *c, u32 dom, const u64 *hash);
u32 index_node(const struct core *c, u32 ref);
const u64 *index_name(const struct core *c, u32 ref);
const u32 *index_ids(const struct core *c, u32 ref);
void index_relink(struct core *c, u32 node);
void index_rehash(struct core *c, u32 node);
u32 index_domain(const struct core *c, u32 ref);
bool index_on_device(const struct core *c, u32 node);
bool index_kid_on_device(const struct core *c, u32 node);
bool index_insert(struct core *c, u32 blk, u32 parent, u32 fresh,
		  u32 retain);
void index_move(struct core *c, u32 from, u32 to);
void index_drop(struct core *c, u32 ref);
u32 index_evict_cost(const struct core *c, u32 blk);
void index_evict(struct core *c, u32 blk);

/* kids.c: which indexed blocks follow a prefix */
u32 kid_find(const struct core *c, u32 dom, u32 parent, const u64 *name,
	     const u32 *ids, u32 nr, u32 *len);

/* table.c: block tables and their shadows */
u32 table_differs(const struct core *c, const struct kv_seq *a,
		  const struct kv_seq *b, u32 idx);
u32 table_find_visited(const struct core *c, const struct kv_seq *s, u32 idx);
u32 table_get(const struct core *c, const struct kv_seq *s, u32 idx);
void table_set(struct core *c, struct kv_seq *s, u32 idx, u32 blk);
int __must_check table_push(struct core *c, struct kv_seq *s, u32 blk);
bool table_has_room(const struct core *c, const struct kv_seq *s, u32 nr);
bool table_has_fork_room(const struct core *c, const struct kv_seq *s, u32 nr);
void table_set_none(struct core *c, struct kv_seq *s, u32 idx);
void table_swap(struct core *c, struct kv_seq *a, struct kv_seq *b);
bool table_has_pages(const struct core *c, const struct kv_seq *s, u32 nr);
u32 table_pages(u32 blocks);
u32 table_promised(const struct kv_seq *s);
void table_share(struct core *c, const struct kv_seq *s, u32 nr);
void table_copy(struct core *c, const struct kv_seq *from, struct kv_seq *to);
void table_publish(struct core *c, const struct kv_seq *s);

kv_pte_t table_pte(const struct core *c, const struct kv_seq *s, u32 idx);
void table_set_entry(struct core *c, struct kv_seq *s, u32 idx, u32 entry);
kv_pte_t table_pop_pte(struct core *c, struct kv_seq *s);

/* The part of a domain in the host pool. */
static inline struct kv_domain *host_part(const struct core *c, u32 dom)
{
	return &c->domains[part_index(c, dom, CORE_POOL_HOST)];
}

/* tier.c: content on the lower tiers */
u32 entry_alloc(struct core *c, u32 dom);
bool entry_is_there(const struct core *c, u32 entry);
void entry_settle(struct core *c, u32 entry);
void entry_drop(struct core *c, u32 entry);
void entry_adopt(struct core *c, u32 entry, u32 blk);
void entry_put_ref(struct core *c, u32 entry);
void entry_forget_dev(struct core *c, u32 blk);
void entry_touch(struct core *c, u32 entry);
void entry_index(struct core *c, u32 entry);
void entry_unindex(struct core *c, u32 entry);
void host_list_add(struct core *c, u32 entry);
void host_slot_put(struct core *c, u32 entry);
void area_slot_put(struct core *c, u32 entry);
bool host_write_out(struct core *c);
bool host_room(struct core *c, u32 dom, u32 nr);
u32 host_free(const struct core *c, u32 dom);
u32 host_slots_max(const struct core *c, u32 dom);
bool host_is_wanted(const struct core *c);
void tier_background(struct core *c);
bool demote_ahead(struct core *c, u32 dom, u32 blk);

/* tier_io.c: copies and I/O in flight */
#define ID_BESIDE	0x80000000u	/* in an id: of the IN beside a WRITE */
void copy_start(struct core *c, u32 entry, u32 io);
void io_start(struct core *c, u32 entry, u32 kind);
void request_again(struct core *c, u32 entry);
u32 entry_out(struct core *c, u32 blk, u32 nr);
void entry_fill(struct core *c, u32 entry, u32 blk);
bool __must_check entry_write(struct core *c, u32 entry);
void read_start(struct core *c, u32 entry);

/* area_io.c: which area, how fast, how bad; directions: 0 read, 1 write */
u32 area_slot_get(struct core *c, u32 dom, u32 host, bool needed);
u64 area_rate(const struct kv_pool *p, u32 dir);
void area_io_begin(struct core *c, struct kv_pool *p, const struct kv_entry *e);
void area_io_end(struct core *c, struct kv_pool *p, const struct kv_entry *e,
		 u32 dir, int status);
bool io_is_away(int status);
bool area_failed(struct core *c, u32 slot, u32 dir, int status);

/* area_move.c: areas that are to go */
bool lies_in(const struct core *c, const struct kv_entry *e, u32 pool);
bool area_reclaim(struct core *c, u32 pool, u32 dom);
void entry_lose(struct core *c, u32 entry);
void areas_move(struct core *c);
void move_ended(struct core *c, u32 entry);
void area_drain(struct core *c, u32 pool);
void area_leave(struct core *c, u32 pool);

/* stall.c: requests that are not answered in time */
struct kv_pool *io_pool(const struct core *c, const struct kv_entry *e);
void moving_del(struct core *c, struct kv_pool *p, u32 entry);
void io_begin(struct core *c, u32 entry);
void io_end(struct core *c, u32 entry, u32 dir, int status);
u32 io_moving(const struct core *c);
bool area_stalled(const struct core *c, u32 slot);

/* swap.c: taking and restoring whole sequences */
bool swap_family(struct core *c, struct kv_seq *s);
bool swap_fits(const struct core *c, const struct kv_seq *s);
int swap_restore(struct core *c, struct kv_seq *s);
void swap_advance(struct core *c, u32 entry);
void swap_lost(struct core *c, u32 blk);
u32 swap_lacking(const struct core *c, const struct kv_seq *s, u32 *cached);
void swap_fill(struct core *c, struct kv_seq *s);
int swap_advise(struct core *c, struct kv_seq *s, u32 advice);

/* advise.c: what a sequence leaves behind */
void advise_retention(struct kv_seq *s, u32 advice, u64 until);
int retain_advise(struct kv_seq *s, const struct kvmm_advise_arg *a);
u32 retain_class(const struct core *c, const struct kv_seq *s, u32 idx);
void advise_close(struct core *c, struct kv_seq *s);

/* seq.c: the life of a sequence */
struct kv_seq *seq_find(const struct core *c, u32 client, u64 handle);
int __must_check seq_open(struct core *c, u32 client,
			  const struct kvmm_open_arg *a,
			  struct kvmm_open_res *res);
void seq_fork(struct core *c, u32 client, const struct kvmm_fork_arg *a,
	      struct kvmm_open_res *res);
int seq_close(struct core *c, struct kv_seq *s);
void seq_strip(struct core *c, struct kv_seq *s);
void seq_close_now(struct core *c, struct kv_seq *s);
void seq_unmap_from(struct core *c, struct kv_seq *s, u32 idx);
void seq_trim_to_cover(struct core *c, struct kv_seq *s);
void seq_drop_reservation(struct core *c, struct kv_seq *s);
u32 seq_promise_take(struct core *c, struct kv_seq *s, u32 nr);
void seq_promise_put(struct kv_seq *s, u32 keep);
void seq_poisoned(struct core *c, struct kv_seq *s);
void seq_fail(struct core *c, struct kv_seq *s, int reason);
void seq_recompute(struct core *c, struct kv_seq *s);
void seq_show(struct core *c, const struct kv_seq *s);
void seq_publish(struct core *c, struct kv_seq *s);
void seq_event(struct core *c, const struct kv_seq *s, u32 type);

/* remap.c, trim.c: sequences that become others, shorter, or lose their start */
void seq_remap(struct core *c, u32 client, const struct kvmm_remap_arg *a,
	       u32 nr, struct kvmm_seq_res *res);
int seq_truncate(struct core *c, struct kv_seq *s,
		 const struct kvmm_len_arg *a);
int seq_trim(struct core *c, struct kv_seq *s, const struct kvmm_len_arg *a);
void seq_trim_settle(struct core *c, struct kv_seq *s, u64 ended);

/* merge.c: blocks of the same content become one */
void seq_merge(struct core *c, struct kv_seq *s, u32 idx, u32 twin);

/* hold.c: what steps read and their sequences no longer map */
bool __must_check seq_hold(struct core *c, const struct kv_seq *s, u32 blk);
void step_let_go(struct core *c, struct kv_step *st);

/**
 * struct hits - what of a prompt is there; references are in c->scratch
 * @whole:  blocks
 * @part:   tokens of one block more, whose other tokens differ
 * @cached: blocks that nobody maps: evicting them would lose the hit
 * @going:  of these, in spans that are to go: they were no room anyway
 * @low:    what is on lower tiers and takes a block to come back
 */
struct hits {
	u32	whole;
	u32	part;
	u32	cached;
	u32	going;
	u32	low;
};

/* answer.c: copies and I/O end */
bool tier_copy_done(struct core *c, u64 id, int status);
bool tier_io_done(struct core *c, u64 id, int status);
void io_deadlines(struct core *c);

/* ids.c: token ids of sequences that wait */

/* Reads ids of a sequence in order. */
struct id_cursor {
	u32	page;
	u32	pos;
};

u32 ids_left(const struct core *c, u32 client);
int ids_append(struct core *c, struct kv_seq *s, const u32 *ids, u32 nr);
void ids_next(const struct core *c, struct id_cursor *cur, u32 *out, u32 nr);
void ids_skip(const struct core *c, struct id_cursor *cur, u32 nr);

/* queue.c: lists */
void fill_wait(struct core *c, struct kv_seq *s, u32 entry);
void fill_wait_end(struct core *c, struct kv_seq *s);

/* match.c: ids of waiting sequences, the wait list, the prefix found */
int seq_match(struct core *c, u32 client, const struct kvmm_match_arg *a,
	      const u32 *ids);
void seq_drop_ids(struct core *c, struct kv_seq *s);
u32 ids_share(const struct core *c);
void wait_add(struct core *c, struct kv_seq *s);
void wait_del(struct core *c, struct kv_seq *s);
void seq_set_priority(struct core *c, struct kv_seq *s, u32 priority);
void run_add(struct core *c, struct kv_seq *s);
void run_del(struct core *c, struct kv_seq *s);
int prefix_find(struct core *c, struct kv_seq *s, struct hits *h);
void hits_drop_part(const struct core *c, struct hits *h);

/* order.c: sequences in order */
bool seq_before(const struct kv_seq *a, const struct kv_seq *b);
u32 order_rank(const struct core *c, const struct kv_seq *s);
void order_add(struct core *c, u32 *root, u32 i, u32 node);
void order_del(struct core *c, u32 *root, u32 i, u32 node);
u32 order_end(const struct core *c, u32 root, u32 node, bool last);
u32 order_prev(const struct core *c, u32 root, const struct kv_seq *s,
	       u32 node);
u32 order_prev_aged(const struct core *c, u32 root, const struct kv_seq *s,
		    u64 since);

/* tally.c: what is known of all residents */
bool seq_is_refused(const struct core *c, const struct kv_seq *s);
void seq_tally(struct core *c, struct kv_seq *s);
void seq_untally(struct core *c, struct kv_seq *s);

/* admit.c: who waits becomes resident */
void admit_all(struct core *c);
void admit_rest(struct core *c);

/* step.c */
int step_begin(struct core *c, u32 client, const struct core_req *req,
	       struct kvmm_begin_res *res);
int step_end(struct core *c, u32 client, const struct core_req *req,
	     struct kvmm_end_res *res);
void step_drop_all(struct core *c, u32 client);

/* reclaim.c: making room */
int room_plan(struct core *c, u32 dom, u32 nr, u32 spare);
void room_ahead(struct core *c, u32 dom);
int room_for_min(struct core *c, struct kv_seq *want, u32 nr, u32 spare);
int room_preempt(struct core *c, struct kv_seq *want, u32 nr);
int pages_preempt(struct core *c, struct kv_seq *want, u32 nr);

/* evict.c: take cached blocks from a domain */
int room_evict(struct core *c, u32 dom, u32 nr);
void room_evict_spare(struct core *c, u32 dom, u32 nr);
u32 span_evict_cached(struct core *c, u32 first);

/* waiter.c: what the sequences of a wait list need */
struct kv_seq *first_waiter(const struct core *c, const struct kv_domain *d);
u32 waiter_blocks(const struct core *c, const struct kv_seq *w);
bool waiter_fits(struct core *c, const struct kv_seq *w);
bool waiter_could_use(struct core *c, const struct kv_seq *w);
u32 promise_need(const struct core *c, u32 dom, u32 nr);

/* victim.c: whose memory is taken for a sequence */
bool past_residency(const struct core *c, const struct kv_seq *s,
		    const struct kv_seq *w);
bool victim_before(const struct kv_seq *a, const struct kv_seq *b);
u32 family_size(const struct core *c, const struct kv_seq *s);
u32 victim_blocks_marked(const struct core *c, const struct kv_domain *d);
bool victim_may_lose(const struct core *c, const struct kv_seq *s);
bool victim_is_marked(const struct core *c, u32 tenant);
struct kv_seq *victim_elsewhere(const struct core *c,
				const struct kv_seq *want, bool promised,
				u32 *rank);
struct kv_seq *victim_choose(const struct core *c, const struct kv_seq *want,
			     u32 nr);
bool growth_waits(struct core *c, const struct kv_seq *s);
u32 victim_why(const struct core *c, const struct core_oom_view *o,
	       const struct kv_seq *want, const struct kv_seq *taken, u32 dom,
	       const struct kv_seq **s);

/* oom.c: the last time that nothing could be reclaimed */
void oom_note(struct core *c, const struct kv_seq *want, u32 nr, u32 outcome,
	      u32 cause, const struct kv_seq *taken);

/* why.c: what is written down for people who ask */
void why_note(struct core *c, u32 wait, u32 dom);
void why_refused(struct core *c, struct kv_seq *s, int err);
void why_held(struct core *c, u32 dom, u32 for_dom);
void why_marked(struct core *c, struct kv_seq *s, const struct kv_seq *want);
void why_taken(struct core *c, struct kv_seq *s, bool kept);
void why_back(struct core *c, struct kv_seq *s);

/* starve.c: the longest-waiting exception */
bool waiter_reachable(struct core *c, u32 dom);
bool starved_waits(struct core *c, const struct kv_seq *s);
void starve_check(struct core *c);

/* seq.c: what becomes of a victim */
void family_mark(struct core *c, struct kv_seq *s, enum core_cause cause,
		 const struct kv_seq *want);
void family_settle(struct core *c, struct kv_seq *s);

/* wmark.c: watermarks, the background reclaimer */

/* In blocks; all 0 where nothing runs. */
struct wmark {
	u32	min;
	u32	low;
	u32	high;
};

u32 wmark_seq(const struct core *c, const struct kv_seq *s);
u32 wmark_min(const struct kv_domain *d);
u32 wmark_room(const struct kv_domain *d);
void wmark_get(const struct core *c, const struct kv_domain *d,
	       struct wmark *w);
void wmark_background(struct core *c);

/* commit.c: what was promised, if everybody takes all of it */
u32 seq_most(const struct core *c, const struct kv_seq *s);
u32 commit_growth(const struct core *c, const struct kv_seq *s);
u64 commit_blocks(const struct kv_domain *d);
u64 commit_limit(const struct core *c, const struct kv_domain *d);
u64 commit_node(const struct core *c, u64 *limit);
bool commit_never(const struct core *c, const struct kv_domain *d, u64 tokens);
bool commit_admits(const struct core *c, const struct kv_seq *s, u32 have,
		   u32 take);

/* tune.c */
bool tune_is_valid(const struct core_config *cfg);

/* limit.c */
int limit_set(struct kv_domain *d, u32 which, u64 value);
void limit_settle(struct core *c);
void limit_restore(struct kv_domain *d);
void limit_set_part(struct core *c, u32 dom, u32 pool, u64 bytes);
void limit_init(struct kv_domain *d, const struct kvmm_attach_req *req);
void limit_inherit(struct kv_domain *d, const struct kv_domain *old,
		   const struct kvmm_attach_req *req);
bool limit_bound(const struct core *c, struct kv_domain *d);
void limit_init_tiers(struct core *c, u32 dom,
		      const struct kvmm_attach_req *req);
bool limit_may_lose(const struct kv_domain *d, u32 nr, bool last);
bool limit_within_min(const struct kv_domain *d, u32 held, u32 nr);
u64 limit_share(const struct kv_domain *d);
u64 limit_turn(const struct kv_domain *d);
void limit_tick(struct core *c, u64 passed);
bool limit_above_high(const struct kv_domain *d);
bool limit_cache_floor(const struct kv_domain *d, u32 nr);
bool limit_keeps(const struct core *c, const struct kv_domain *o,
		 const struct kv_domain *d);
u32 limit_cache_spare(const struct kv_domain *d, u32 lost);

/* tenant.c: who must not see whom */
struct tenant_who {
	u64			key;
	const u8		*secret;
	const struct core_quota	*quota;
};

int tenant_may_have(const struct core *c, const struct tenant_who *who,
		    const char **text);
u32 tenant_make(struct core *c, const struct tenant_who *who);
u32 tenant_domain_slot(const struct core *c, u32 t, u32 max);

/* domain.c */
int domain_attach(struct core *c, const struct tenant_who *who,
		  const struct kvmm_attach_req *req, u32 *dom,
		  struct core_attach_info *info);
bool domain_idle(const struct core *c, const struct kv_domain *d);
void domain_drop(struct core *c, u32 dom);
void domain_detach(struct core *c, u32 dom);
int domain_restore(const struct core *c, struct kv_domain *d);
void domain_part_init(struct core *c, u32 dom, u32 pool);

/* client.c */
void client_deadlines(struct core *c);
void client_detach(struct core *c, u32 client);
void client_describe(const struct core *c, u32 client,
		     struct core_attach_info *info);

/* Two lists of indices with the same shape; @node gives the links. */
#define list_add_tail_idx(arr, head, tail, i)				\
do {									\
	(arr)[i].next = CORE_NONE;					\
	(arr)[i].prev = (tail);						\
	if ((tail) != CORE_NONE)					\
		(arr)[tail].next = (i);					\
	else								\
		(head) = (i);						\
	(tail) = (i);							\
} while (0)

#define list_del_idx(arr, head, tail, i)				\
do {									\
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

#endif /* KVMM_CORE_INTERNAL_H */
