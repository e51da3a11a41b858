/* SPDX-License-Identifier: Apache-2.0 */
/* reclaim.h - how a domain gets room, and which memory is taken for it */
#ifndef KVMM_CORE_RECLAIM_H
#define KVMM_CORE_RECLAIM_H

#include "kvmm/core/seq/seq.h"

/* evict.c: evict cached blocks of a domain, those of least worth first */
enum verdict room_evict(struct core *c, u32 dom, u32 nr);
void room_evict_spare(struct core *c, u32 dom, u32 nr);
void evict_from_span(struct core *c, u32 dom, u32 blk);
u32 span_evict_cached(struct core *c, u32 first);
void span_evict_leaving(struct core *c, u32 first, bool waits);

/* waiter.c: memory that waiting sequences need, and whether they can have it */
struct kv_seq *first_waiter(const struct core *c, const struct kv_domain *d);
struct kv_seq *waiter_turn(struct core *c, struct kv_seq *s);
struct kv_seq *next_waiter(struct core *c, const struct kv_domain *d);
bool waiter_has_pages(const struct core *c, const struct kv_seq *w);
u32 waiter_blocks(const struct core *c, const struct kv_seq *w);
bool waiter_fits(struct core *c, const struct kv_seq *w);
bool waiter_could_use(struct core *c, const struct kv_seq *w);
u32 promise_need(const struct core *c, u32 dom, u32 nr);

/* reclaim.c: making room */
enum verdict room_plan(struct core *c, u32 dom, u32 nr, u32 spare);
bool room_is_wanted(const struct core *c, u32 dom);
void room_ahead(struct core *c, u32 dom);
enum verdict room_for_min(struct core *c, struct kv_seq *want, u32 nr, u32 spare);
bool room_preempt(struct core *c, struct kv_seq *want, u32 nr);
bool pages_preempt(struct core *c, struct kv_seq *want, const u32 *nr);

/* steal.c: memory that other domains can do without */
#define LOOK_RUNS	32u

/* Runs that a scan of all extents found, the best first. */
struct run_look {
	u32	nr;
	u32	next;		/* index of the first run not taken yet */
	u32	cost;		/* of each run, RUN_* */
	u32	run[LOOK_RUNS];
	u64	key[LOOK_RUNS];
};

u32 span_runs_possible(struct core *c, u32 dom, u32 *back);
u32 span_runs_reachable(struct core *c, u32 dom);
bool span_steal(struct core *c, u32 dom, bool back, struct run_look *l);
bool span_steal_kept(struct core *c, u32 dom, u32 want, struct run_look *l);
void spares_reset(struct core *c);
bool run_span_begins(const struct core *c, const struct kv_domain *d, u32 first, u32 n);

/* victim.c: the family that loses its memory for a sequence */
bool past_residency(const struct core *c, const struct kv_seq *s,
		    const struct kv_seq *w);
bool past_residency_ticked(const struct core *c, const struct kv_seq *s,
			   const struct kv_seq *w);
bool victim_returns(const struct core *c, const struct kv_seq *v,
		    const struct kv_seq *want, bool coming);
bool victim_before(const struct kv_seq *a, const struct kv_seq *b);
u32 family_size(const struct core *c, const struct kv_seq *s);
u32 victim_blocks_marked(const struct core *c, const struct kv_domain *d);
bool victim_may_lose(const struct core *c, const struct kv_seq *s);
bool victim_is_marked(const struct core *c, const struct kv_domain *d);
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

/* starve.c: the longest-waiting exception */
bool waiter_reachable(struct core *c, u32 dom);
bool starved_waits(struct core *c, const struct kv_seq *s);
void starve_check(struct core *c);

/* displace.c: extent runs in use, taken for a sequence of another tenant */
enum verdict displace(struct core *c, struct kv_seq *want, u32 nr, bool promised);
bool displace_span(struct core *c, u32 first);
void displace_all(struct core *c, u32 first);

/* revoke.c: extents that change their tenant while clients have them mapped */
bool revoke_haunted(const struct core *c, u32 dom, u32 first);
void revoke_prepare(struct core *c, u32 dom);
bool revoke_may(const struct core *c, u32 e);
void revoke_begin(struct core *c, u32 dom, u32 first);
int revoke_ack(struct core *c, u32 client, const struct kvmm_ack_arg *a);
void revoke_advance(struct core *c);
void revoke_tick(struct core *c);
void revoke_haunt(struct core *c, u32 client);
void revoke_exorcise(struct core *c, u32 tenant);
void revoke_abandon_from(struct core *c);
void extent_ask_back(struct core *c, u32 e);
void extent_overdue(struct core *c, u32 e, bool wanted);

/* evacuate.c: spans that are emptied by moving their blocks */
bool evacuate_span(struct core *c, u32 first, bool any);
bool evacuate_is_on(const struct core *c, u32 first);
u32 evacuations_on(const struct core *c, u32 dom, bool promised);
enum verdict evacuate_for(struct core *c, u32 dom, u32 nr);
void evacuate_scan(struct core *c, u32 evac);
void evacuate_tick(struct core *c);

/* migrate.c: blocks that move to other spans */
bool move_start(struct core *c, u32 evac, u32 blk);
void move_written(struct core *c, u32 blk);
void move_again(struct core *c, u32 i);
bool move_answered(struct core *c, u64 id, int status);
void pins_mark(struct core *c, u32 dom, bool set);

#endif /* KVMM_CORE_RECLAIM_H */
