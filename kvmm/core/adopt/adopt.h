/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adopt.h - adoption and salvage of the arena of another core
 */
#ifndef KVMM_CORE_ADOPT_H
#define KVMM_CORE_ADOPT_H

#include "kvmm/core/check/check.h"

/* salvage.c: salvage of an arena after an end inside an event */
int salvage(struct core *c, struct walk *w);

/* salvage_index.c: content of a salvaged arena that is proven by its name */
void salvage_index(struct core *c);
void salvage_cache(struct core *c);

/* salvage_pool.c: extents, spans and blocks of a salvaged arena */
void salvage_extents(struct core *c, struct walk *w);
u32 salvage_span(const struct core *c, u32 pool, u32 first);
u32 salvage_in_span(const struct core *c, u32 blk);
void salvage_blocks(struct core *c);

/* ranges.c: check of all indices in an arena that is adopted whole */
void zones_check(struct walk *w);
bool run_is_inside(const struct core *c, u32 first, u32 nr, u32 shards);
int adopt_ranges(struct core *c, struct walk *w);

/* ranges_seq.c: the same for clients and sequences; lists that are made anew */
int adopt_seqs(struct core *c, struct walk *w);
void adopt_index(struct core *c);
void seqs_ranges(struct walk *w, struct core *c);

#endif /* KVMM_CORE_ADOPT_H */
