/* SPDX-License-Identifier: Apache-2.0 */
/* seq.h - sequences, the lists they are on, preemption */
#ifndef KVMM_CORE_SEQ_H
#define KVMM_CORE_SEQ_H

#include "kvmm/core/share/share.h"

/* seq.c: the life of a sequence */
struct kv_seq *seq_find(const struct core *c, u32 client, u64 handle);
struct kv_seq *seq_make(struct core *c, u32 client, const struct kvmm_open_arg *a);
void seq_unmake(struct core *c, struct kv_seq *s);
u32 seq_pages_most(const struct kv_domain *d, u32 tokens);
void seq_tabs_init(struct core *c, struct kv_seq *s);
int __must_check seq_open(struct core *c, u32 client,
			  const struct kvmm_open_arg *a,
			  struct kvmm_open_res *res);
void seq_fork(struct core *c, u32 client, const struct kvmm_fork_arg *a,
	      struct kvmm_open_res *res);
int seq_close(struct core *c, struct kv_seq *s);
void seq_strip(struct core *c, struct kv_seq *s);
void seq_close_now(struct core *c, struct kv_seq *s);
void tab_unmap_from(struct core *c, struct kv_tab *t, u32 idx);
void seq_unmap(struct core *c, struct kv_seq *s);
void seq_share_tails(struct core *c, const struct kv_seq *s);
void seq_trim_to_cover(struct core *c, struct kv_seq *s);
void seq_drop_reservation(struct core *c, struct kv_seq *s);
u32 tab_promise_take(struct core *c, struct kv_tab *t, u32 nr);
void tab_promise_put(struct kv_tab *t, u32 keep);
void seq_show(struct core *c, const struct kv_seq *s);
void seq_show_again(struct core *c, const struct kv_seq *s);
void seq_publish(struct core *c, struct kv_seq *s);
void seq_event(struct core *c, const struct kv_seq *s, u32 type);

/* leases.c: leases: their deadlines, and sequences that begin with one */
void lease_enter(struct core *c, struct kv_seq *s);
void lease_leave(struct core *c, struct kv_seq *s);
void lease_set_until(struct core *c, struct kv_seq *s, u64 until);
void lease_promote(struct core *c, struct kv_seq *s);
void lease_stop_promote(struct core *c, struct kv_seq *s);
void leases_adopt(struct core *c);
u64 lease_number(const struct core *c, const struct kv_seq *s);
const struct kv_seq *lease_find(const struct core *c, u32 dom, u64 number);
bool __must_check lease_copy(struct core *c, const struct kv_seq *from,
			     struct kv_seq *s);

/* queue.c: the lists that a sequence is on */
void fill_wait(struct core *c, struct kv_seq *s, u32 entry);
void fill_wait_end(struct core *c, struct kv_seq *s);
void wait_add(struct core *c, struct kv_seq *s);
void wait_del(struct core *c, struct kv_seq *s);
void seq_set_priority(struct core *c, struct kv_seq *s, u32 priority);
void run_add(struct core *c, struct kv_seq *s);
void run_del(struct core *c, struct kv_seq *s);

/* ids.c: token ids of waiting sequences */
/* Place in the ids of a sequence, which are read in order. */
struct id_cursor {
	u32	page;
	u32	pos;
};

u32 ids_left(const struct core *c, u32 client);
int ids_append(struct core *c, struct kv_seq *s, const u32 *ids, u32 nr);
void ids_next(const struct core *c, struct id_cursor *cur, u32 *out, u32 nr);
void ids_skip(const struct core *c, struct id_cursor *cur, u32 nr);
void seq_drop_ids(struct core *c, struct kv_seq *s);
u32 ids_share(const struct core *c);

/* advise.c: advice of clients about the cache that a sequence leaves */
void advise_retention(struct kv_seq *s, u32 advice, u64 value);
bool advise_value_is_sane(const struct kvmm_advise_arg *a);
int retain_advise(struct kv_seq *s, const struct kvmm_advise_arg *a);
u32 retain_class(const struct core *c, const struct kv_tab *t, u32 idx);
void advise_close(struct core *c, struct kv_seq *s);

/* preempt.c: take the memory of a sequence, and of its whole family */
void seq_poisoned(struct core *c, struct kv_seq *s);
void seq_fail(struct core *c, struct kv_seq *s, int reason);
void seq_recompute(struct core *c, struct kv_seq *s);
void family_mark(struct core *c, struct kv_seq *s, enum core_cause cause,
		 const struct kv_seq *want);
void family_settle(struct core *c, struct kv_seq *s);

/* swap.c: whole sequences out to the lower tiers */
bool swap_family(struct core *c, struct kv_seq *s);
bool swap_pays(const struct core *c, const struct kv_domain *d, u32 nr_blocks, u32 uncopied,
	       u64 tokens);
int swap_advise(struct core *c, struct kv_seq *s, u32 advice);

/* merge.c: blocks of the same content become one */
void seq_merge(struct core *c, struct kv_tab *t, u32 idx, u32 twin);

#endif /* KVMM_CORE_SEQ_H */
