/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mem.h - blocks, extents, spans, tables, the prefix index and its order
 */
#ifndef KVMM_CORE_MEM_H
#define KVMM_CORE_MEM_H

#include "kvmm/core/base/base.h"

/* Must the block, when it is freed, never be allocated again? */
static inline bool device_is_bad(const struct core *c, u32 blk)
{
	const struct kv_block *b = &c->blocks[blk];

	return (b->flags & BLKF_BAD) ||
	       (!part_pool(c, b->domain) &&
		device_is_lost(c, &c->domains[b->domain]));
}

/* block.c: states of blocks, and the counts that decide them */
u32 block_alloc(struct core *c, u32 dom, u32 client, u32 group);
u32 block_take(struct core *c, u32 first, u32 state);
void block_set_state(struct core *c, u32 blk, u32 state);
void block_map(struct core *c, u32 blk);
void block_map_many(struct core *c, struct kv_domain *d, const kv_pte_t *pte,
		    u32 n, u32 nr);
void block_unmap(struct core *c, u32 blk);
void block_shards(const struct core *c, const struct kv_domain *d, struct core_copy *cp);
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

/* extent.c: memory behind extents, and the clients that mapped it */
void extent_set_state(struct core *c, u32 e, u32 state);
bool extent_fits(const struct core *c, u32 e, u32 tenant, bool move);
int extent_run_take(struct core *c, u32 dom);
void extent_unacked(struct core *c, u32 client, s32 nr);
void rank_mapped(struct core *c, u32 client);
bool ranks_are_there(const struct core *c, u32 leader);

/*
 * ranks_have_mapped() - can each shard's client use the blocks of the leader's tables?
 *
 * A missing or new rank counts in nr_unacked.  Each entry of a step asks, so most do no call.
 */
static inline bool ranks_have_mapped(const struct core *c, u32 leader)
{
	return !c->clients[leader].nr_unacked || ranks_are_there(c, leader);
}

bool client_maps(const struct core *c, u32 client, u32 e);
void extent_run_hint(struct core *c, u32 dom, u32 first);
int extent_run_make(struct core *c, u32 dom, u32 first);
void extent_run_abandon(struct core *c, u32 first);
void extent_release(struct core *c, u32 e);
void extent_announce(struct core *c, u32 extent);
void extent_publish(struct core *c, u32 client);
void extent_forget_client(struct core *c, u32 client);
int extent_ack(struct core *c, u32 client, const struct kvmm_ack_arg *a);
void extent_created(struct core *c, u32 e, int status);

/* span.c: spans: neighbouring extents cut into one domain's blocks */
void span_cut(struct core *c, u32 dom, u32 first);
void span_release(struct core *c, u32 first);
u64 span_class_scale(u32 nr_blocks);
void span_recut(struct core *c, u32 first);
void span_reclass(struct core *c, struct kv_part *p, u32 first);
void span_settle(struct core *c, u32 first);
u32 span_pick(const struct core *c, const struct kv_domain *d, u32 client);
u32 span_pick_dense(const struct core *c, const struct kv_domain *d, bool any);
bool span_acked(const struct core *c, u32 first, u32 client);
u32 span_nr_full(const struct core *c, const struct kv_domain *d);
u32 span_first_free(const struct core *c, const struct kv_part *p);
u32 span_acked_free(const struct core *c, const struct kv_domain *d,
		    u32 client);
void span_set_class(struct core *c, u32 first, u32 class);
u32 span_class(const struct core *c, const struct kv_span *sp);

/* slots.c: choice of a slot in a lower pool */
u32 slot_alloc_out(struct core *c, u32 part, u32 nr);
u32 slot_alloc_beside(struct core *c, u32 part, u32 peer, bool up);

/* table.c: block tables and their shadows */
u32 table_differs(const struct core *c, const struct kv_tab *a,
		  const struct kv_tab *b, u32 idx);
u32 table_find_visited(const struct core *c, const struct kv_tab *t, u32 idx);
u32 table_get(const struct core *c, const struct kv_tab *t, u32 idx);
void table_set(struct core *c, struct kv_tab *t, u32 idx, u32 blk);
int __must_check table_push(struct core *c, struct kv_tab *t, u32 blk);
bool table_has_room(const struct core *c, const struct kv_seq *s, const u32 *nr);
bool table_has_fork_room(const struct core *c, const struct kv_seq *s, u32 nr);
void table_set_none(struct core *c, struct kv_tab *t, u32 idx);
void table_swap(struct core *c, struct kv_tab *a, struct kv_tab *b);
bool table_has_pages(const struct core *c, const struct kv_seq *s, u32 nr);
u32 table_pages(u32 blocks);
u32 table_promised(const struct core *c, const struct kv_seq *s);
void table_share(struct core *c, const struct kv_tab *t, u32 nr);
void table_copy(struct core *c, const struct kv_tab *from, struct kv_tab *to);
void table_publish(struct core *c, const struct kv_tab *t);
kv_pte_t table_pte(const struct core *c, const struct kv_tab *t, u32 idx);
void table_set_entry(struct core *c, struct kv_tab *t, u32 idx, u32 entry);
kv_pte_t table_pop_pte(struct core *c, struct kv_tab *t);

/* index.c: the prefix index, which finds full blocks by their prefix */
void index_root(const struct core *c, const struct kv_domain *d, u64 salt,
		u32 group, u64 *hash);
void index_chain(const struct core *c, const struct kv_domain *d, u32 group,
		 const u64 *parent, const u32 *ids, u64 *hash);
void index_base(const struct core *c, const struct kv_domain *d, const u64 *parent,
		const u32 *ids, u64 *hash);
void index_mix(u32 code, u64 *hash);
u32 index_lookup(const struct core *c, u32 dom, u32 group, const u64 *hash,
		 const u32 *ids);
u32 index_find_node(const struct core *c, u32 dom, const u64 *hash);
u32 index_node(const struct core *c, u32 ref);
const u64 *index_name(const struct core *c, u32 ref);
const u32 *index_ids(const struct core *c, u32 ref);
void index_relink(struct core *c, u32 node);
void index_rehash(struct core *c, u32 node);
u32 index_domain(const struct core *c, u32 ref);
u32 index_group(const struct core *c, u32 ref);
bool index_on_device(const struct core *c, u32 node);
bool index_kid_on_device(const struct core *c, u32 node);
bool index_insert(struct core *c, u32 blk, u32 parent, u32 fresh,
		  u32 retain);
void index_move(struct core *c, u32 from, u32 to);
void index_drop(struct core *c, u32 ref);
u32 index_evict_cost(const struct core *c, u32 blk);
void index_evict(struct core *c, u32 blk);

/* cookie.c: the name of a prefix, as a client may hold it */
void cookie_encipher(const u64 *key, u64 *x);
void cookie_decipher(const u64 *key, u64 *x);
void cookie_make(const struct core *c, const struct kv_domain *d,
		 const u64 *root, const u64 *name, u32 len, u64 *cookie);
void cookie_read(const struct core *c, const struct kv_domain *d,
		 const u64 *root, const u64 *cookie, u32 len, u64 *name);

/**
 * struct core_names - what the shell was told of names (names.c)
 * @lost:   all names are to be told anew
 * @begun:  the shell was told that it knows no name, at least once
 * @walks:  names that were there at the begin are being told
 * @missed: a name was left to the next round
 * @next:   node that the round comes to next
 * @told:   by node: its CORE_PLACE_* in the last record, and flags; 0: untold
 */
struct core_names {
	const struct core_names_ops *ops;
	void	*arg;
	bool	lost;
	bool	begun;
	bool	walks;
	bool	missed;
	u32	next;
	u8	told[];
};

/* names.c: the shell hears of names of the index and their tiers */
void names_look(struct core *c, u32 node);
void names_gone(struct core *c, u32 node);
bool names_fault(const struct core *c, u32 node);

/* names_settle() - the tier of a name may have changed */
static inline void names_settle(struct core *c, u32 node)
{
	if (__builtin_expect(c->names != NULL, 0))
		names_look(c, node);
}

/* kids.c: indexed blocks that follow a prefix */
u32 kid_find(const struct core *c, u32 dom, u32 parent, const u64 *name,
	     const u32 *ids, u32 nr, u32 *len);

/* entry.c: lower-tier entries: content that has slots below the device */
u32 entry_alloc(struct core *c, u32 dom);
bool entry_is_there(const struct core *c, u32 entry);
void entry_settle(struct core *c, u32 entry);
void entry_drop(struct core *c, u32 entry);
void entry_adopt(struct core *c, u32 entry, u32 blk);
void entry_get_ref(struct core *c, u32 entry);
void entry_drop_ref(struct core *c, u32 entry);
void entry_put_ref(struct core *c, u32 entry);
void entry_set_slot(struct core *c, const struct kv_entry *e, u32 *field, u32 slot);
void entry_forget_dev(struct core *c, u32 blk);
void entry_touch(struct core *c, u32 entry);
void entry_list_after(struct core *c, u32 entry, u32 ref);
void entry_index(struct core *c, u32 entry);
void entry_unindex(struct core *c, u32 entry);
void entry_list_add(struct core *c, u32 entry);
void entry_list_del(struct core *c, u32 entry);
void host_slot_put(struct core *c, u32 entry);
void area_slot_put(struct core *c, u32 entry);

/* hold.c: blocks that open steps may read and their sequences no longer map */
bool __must_check seq_hold(struct core *c, const struct kv_seq *s, u32 blk);
void step_let_go(struct core *c, struct kv_step *st);

/* isolate.c: spans that are being emptied */
void evacuate_forget(struct core *c, u32 first);
int __must_check span_isolate(struct core *c, u32 first);
void span_putback(struct core *c, u32 first);
u32 span_cover_promises(struct core *c, u32 dom);

/* The part of a domain in the host pool. */
static inline struct kv_part *host_part(const struct core *c, u32 dom)
{
	KV_BUG_ON(dom >= core_cfg(c)->max_domains);
	return part_at(c, part_index(c, dom, CORE_POOL_HOST));
}

#endif /* KVMM_CORE_MEM_H */
