/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sched.h - which sequences run: match, admission, steps, restore
 */
#ifndef KVMM_CORE_SCHED_H
#define KVMM_CORE_SCHED_H

#include "kvmm/core/reclaim/reclaim.h"

/* match.c: ids of waiting sequences, and their cached prefix */
/**
 * struct hits - the cached prefix of a prompt; its references are in c->scratch
 * @len:    tokens of the prefix, whole blocks of each group
 * @whole:  table entries of each group; with a window the first of them may be none
 * @first:  of @whole, entries that are not needed, since they are behind the window
 * @at:     places of the groups' references in c->scratch: that of index i at @at + i
 * @part:   tokens at the beginning of one more block, whose other tokens differ; 0
 *          with more than one group
 * @cached: blocks without a mapping: evicting them would lose the hit
 * @going:  blocks of @cached in isolated spans: they were no room anyway
 * @low:    entries of lower tiers that need a block to be filled
 * @reads:  entries of @low that must be read from an area
 * @leaves: the next block is being copied to the host pool: found when that ends
 */
struct hits {
	u32	len;
	u32	whole[KVMM_MAX_GROUPS];
	u32	first[KVMM_MAX_GROUPS];
	u32	at[KVMM_MAX_GROUPS];
	u32	part;
	u32	cached;
	u32	going;
	u32	low;
	u32	reads;
	bool	leaves;
};

/* Work of naming a block and looking it up: 1 unit for hashing 16 ids, see core_work(). */
static inline u32 work_name(u32 block_tokens)
{
	return 19 + block_tokens / 16;
}

int seq_match(struct core *c, u32 client, const struct kvmm_match_arg *a,
	      const u32 *ids);
bool prefix_find(struct core *c, struct kv_seq *s, struct hits *h);
u32 hits_blocks(const struct kv_domain *d, const struct hits *h);
void hits_name(const struct core *c, const struct kv_seq *s, const struct hits *h,
	       u32 len, u64 *hash);
void hits_drop_part(const struct core *c, struct hits *h);
void hits_drop_reads(const struct core *c, const struct kv_seq *s, struct hits *h);
bool hits_room(struct core *c, u32 dom, struct hits *h, bool *waits);

/* prefix.c: the blocks of a prefix in all layer groups of a domain */
/**
 * struct prefix - a prompt, its blocks looked up in all groups
 * @dom:    domain
 * @salt:   of the prompt
 * @at:     places of the groups' references in c->scratch: that of index i at @at + i,
 *          modulo 2^32, since the first blocks may have no place
 * @usable: whether a block that the index has counts as there
 */
struct prefix {
	u32	dom;
	u64	salt;
	u32	at[KVMM_MAX_GROUPS];
	bool	(*usable)(const struct core *c, u32 ref);
};

u32 prefix_places(const struct core *c, struct prefix *p, u32 from, u32 to);
bool prefix_climb(struct core *c, const struct prefix *p, u32 g, const u64 *name,
		  u32 len, u32 low, u32 most);
void prefix_name(const struct core *c, const struct prefix *p, u32 len, u64 *hash);
void prefix_windows(struct core *c, const struct prefix *p, u32 len);
bool prefix_resume(struct core *c, const struct prefix *p, const u64 *name, u32 len);
bool prefix_step(struct core *c, const struct prefix *p, u32 len, const u64 *name,
		 const u32 *end);
u32 prefix_reach(const struct core *c, const struct prefix *p, u32 len);
u32 prefix_hit(struct core *c, const struct prefix *p, u32 from, u32 to);

/* lookup.c: the tiers that have the prefix of a prompt */
int seq_lookup(struct core *c, u32 client, const struct kvmm_lookup_arg *a,
	       const u32 *ids, struct kvmm_lookup_res *res);

/* lease.c: leases: content that was looked up stays for a while */
int seq_lease(struct core *c, u32 client, const struct kvmm_lease_arg *a,
	      struct kvmm_lease_res *res);

u32 lease_room(const struct core *c, u32 dom);
bool lease_can_hold(const struct core *c, u32 ref);
void lease_push(struct core *c, struct kv_tab *t, const u32 *refs, u32 nr);
u32 lease_hold(struct core *c, struct kv_seq *s, s32 *reason);
bool lease_keep_block(struct core *c, u32 blk, u64 until);
void lease_unmap(struct core *c, const struct kv_seq *s);
void lease_begin(struct core *c, struct kv_seq *s, struct kvmm_lease_res *res);
struct kv_seq *lease_new(struct core *c, u32 client, const struct kvmm_lease_arg *a);

/* lease_groups.c: leases in a domain with several layer groups */
int lease_make_groups(struct core *c, u32 client, const struct kvmm_lease_arg *a,
		      const u64 *name, struct kvmm_lease_res *res);

/* lease_move.c: advice about leases, their end, and their way to the device */
int lease_advise(struct core *c, struct kv_seq *s, const struct kvmm_advise_arg *a,
		 u32 *tokens);
void leases_expire(struct core *c);
void leases_background(struct core *c);

/* admit.c: admission: a waiting sequence gets memory and runs */
void admit_all(struct core *c);
void admit_rest(struct core *c);

/* restore.c: restore of swapped sequences */
bool swap_fits(const struct core *c, const struct kv_seq *s);
enum verdict swap_restore(struct core *c, struct kv_seq *s);
void swap_advance(struct core *c, u32 entry);
void swap_lost(struct core *c, u32 blk);
u32 swap_lacking(const struct core *c, const struct kv_seq *s, u32 *cached);
void swap_fill(struct core *c, struct kv_seq *s);

/* answer.c: answers of copies and I/O, and requests past their deadline */
bool tier_copy_done(struct core *c, u64 id, int status);
bool tier_io_done(struct core *c, u64 id, int status);
void io_deadlines(struct core *c);

/* step.c: steps: blocks before the kernels run, results after */
int step_begin(struct core *c, u32 client, const struct core_req *req,
	       struct kvmm_begin_res *res);
int step_end(struct core *c, u32 client, const struct core_req *req,
	     struct kvmm_end_res *res);
void step_drop_all(struct core *c, u32 client);
void tab_name_before(const struct core *c, const struct kv_tab *t, u32 idx, u64 *hash);

/* remap.c: SEQ_REMAP: sequences of a family exchange tables, for beam search */
void seq_remap(struct core *c, u32 client, const struct kvmm_remap_arg *a,
	       u32 nr, struct kvmm_seq_res *res);

/* trim.c: TRUNCATE and TRIM: sequences lose their end or their beginning */
int seq_truncate(struct core *c, struct kv_seq *s,
		 const struct kvmm_len_arg *a);
int seq_trim(struct core *c, struct kv_seq *s, const struct kvmm_len_arg *a);
void seq_trim_settle(struct core *c, struct kv_seq *s, u64 ended);
void seq_trim_windows(struct core *c, struct kv_seq *s);

#endif /* KVMM_CORE_SCHED_H */
