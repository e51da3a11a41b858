/* SPDX-License-Identifier: Apache-2.0 */
/*
 * check.h - declarations that the walkers share
 */
#ifndef KVMM_CORE_CHECK_CHECK_H
#define KVMM_CORE_CHECK_CHECK_H

#include "kvmm/core/node/node.h"

struct walk {
	const struct core *c;
	struct core_report *r;
};

/* check.c */
void walk_fault(struct walk *w, const char *law, const char *what, u64 i,
		u64 have, u64 want);
void walk_span_free(struct walk *w, u32 first, u32 nr_free);
void walk_classes(struct walk *w, u32 dom);

/* check_index.c */
void check_chain(struct walk *w, u32 ref, const u32 *ids);
void check_nodes(struct walk *w);
void check_lru(struct walk *w, u32 dom);

/* check_moves.c */
void check_moves(struct walk *w);

/* check_lease.c */
void check_leases(struct walk *w);

/* check_tally.c */
void check_tally(struct walk *w);

/* check_tiers.c */
bool block_is_filled(const struct core *c, u32 blk);
void walk_tiers(struct walk *w);

static inline void expect(struct walk *w, const char *law, const char *what,
			  u64 i, u64 have, u64 want)
{
	if (have != want)
		walk_fault(w, law, what, i, have, want);
}

#endif /* KVMM_CORE_CHECK_CHECK_H */
