/* SPDX-License-Identifier: Apache-2.0 */
/*
 * share.h - domains, tenants, limits, pressure
 */
#ifndef KVMM_CORE_SHARE_H
#define KVMM_CORE_SHARE_H

#include "kvmm/core/tier/tier.h"

/* limit.c: limits of domains, protection from other domains */
int limit_set(struct kv_domain *d, u32 which, u64 value);
u64 limit_bounded(const struct kv_domain *d, u32 which);
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

/* wmark.c: watermarks of a domain's free blocks, the background reclaimer */
/* In blocks; all 0 while no sequence of the domain runs. */
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

/* commit.c: Committed_AS: the blocks that sequences may come to hold */
u32 seq_most(const struct core *c, const struct kv_seq *s);
u32 commit_growth(const struct core *c, const struct kv_seq *s);
u64 commit_blocks(const struct kv_domain *d);
u64 commit_limit(const struct core *c, const struct kv_domain *d);
u64 commit_zone(const struct core *c, u32 zone, u64 *limit);
bool commit_node_waits(const struct core *c, const struct kv_domain *d, u64 nr);
bool commit_never(const struct core *c, const struct kv_domain *d, u64 tokens);
bool commit_admits(const struct core *c, const struct kv_seq *s, u32 have,
		   u32 take);

/* tally.c: sums over running sequences */
bool seq_is_refused(const struct core *c, const struct kv_seq *s);
void seq_tally(struct core *c, struct kv_seq *s);
void seq_untally(struct core *c, struct kv_seq *s);

/* why.c: why a sequence waits, and the memory that it lost */
void why_note(struct core *c, u32 wait, u32 dom);
int verdict_errno(enum verdict verdict);
void why_refused(struct core *c, struct kv_seq *s, enum verdict verdict);
void why_held(struct core *c, u32 dom, u32 for_dom);
void why_marked(struct core *c, struct kv_seq *s, const struct kv_seq *want);
void why_taken(struct core *c, struct kv_seq *s, bool kept);
void why_back(struct core *c, struct kv_seq *s);

/* tenant.c: tenants, which never see each other */
struct tenant_who {
	u64			key;
	const u8		*secret;
	const struct core_quota	*quota;
};

int tenant_may_have(const struct core *c, const struct tenant_who *who,
		    const char **text);
u32 tenant_make(struct core *c, const struct tenant_who *who);
u32 tenant_domain_slot(const struct core *c, u32 t, u32 max);

/* domain.c: domains */
int domain_attach(struct core *c, const struct tenant_who *who,
		  const struct kvmm_attach_req *req, u32 *dom,
		  struct core_attach_info *info);
bool domain_idle(const struct core *c, const struct kv_domain *d);
void domain_drop(struct core *c, u32 dom);
void domain_detach(struct core *c, u32 dom);
int domain_restore(const struct core *c, struct kv_domain *d);
void domain_part_init(struct core *c, u32 dom, u32 pool);

#endif /* KVMM_CORE_SHARE_H */
