/* SPDX-License-Identifier: Apache-2.0 */
/*
 * adopt.h - a core goes on in the arena of another
 */
#ifndef KVMM_CORE_ADOPT_H
#define KVMM_CORE_ADOPT_H

#include "kvmm/core/check/check.h"

/* salvage.c: an arena whose core ended inside an event */
int salvage(struct core *c, struct walk *w);

/* salvage_index.c: which content of a salvaged arena is proven */
void salvage_index(struct core *c);
void salvage_cache(struct core *c);

/* salvage_pool.c: extents, spans and blocks of an arena that is salvaged */
void salvage_extents(struct core *c, struct walk *w);
u32 salvage_span(const struct core *c, u32 pool, u32 first);
u32 salvage_in_span(const struct core *c, u32 blk);
void salvage_blocks(struct core *c);

/* ranges.c: an arena that is adopted whole: does every index name something? */
int adopt_ranges(struct core *c, struct walk *w);

/* ranges_seq.c: clients and sequences of an arena that is adopted whole */
int adopt_seqs(struct core *c, struct walk *w);
void adopt_index(struct core *c);
void seqs_ranges(struct walk *w, struct core *c);

#endif /* KVMM_CORE_ADOPT_H */
