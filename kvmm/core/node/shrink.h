/* SPDX-License-Identifier: Apache-2.0 */
/*
 * shrink.h - records of a reader that computes the cost of a smaller pool
 *
 * The memory is the reader's own; the core only writes it.  Its content is of
 * several events, so every index in it is checked before it is used.
 */
#ifndef KVMM_CORE_NODE_SHRINK_H
#define KVMM_CORE_NODE_SHRINK_H

#include "kvmm/core/node/node.h"

enum shrink_phase {
	SHRINK_BLOCKS,		/* the blocks of all spans of the device pool */
	SHRINK_ENTRIES,		/* the content of lower tiers */
	SHRINK_DOMAINS,		/* room for blocks and copies */
	SHRINK_TABLES,		/* sequences with a block in a span that finds no room */
	SHRINK_SEQS,		/* sequences that are preempted, or become too large */
	SHRINK_DONE,
};

/* core_shrink.names: is a name forgotten? */
enum shrink_name {
	NAME_UNKNOWN,
	NAME_STAYS,
	NAME_LOST,
};

#define SPAN_NO_ROOM	BIT(31)	/* in core_shrink.spans: its blocks find no room */

/**
 * struct shrink_domain - counts of one domain, in blocks
 * @dear:     an evicted block gets no copy
 * @bare:     cached blocks of leaving spans without a copy, which are to get one
 * @used:     blocks of sequences in leaving spans
 * @free_end: free blocks of leaving spans that are not isolated
 * @freed:    blocks outside of these that become free, because a name before theirs
 *            is forgotten
 * @cached:   cached blocks that stay
 * @clean:    of these, blocks with a copy
 * @slots:    host slots with content that another tier has, too
 * @room:     host slots for sequences that are swapped out
 * @no_room:  spans with SPAN_NO_ROOM
 */
struct shrink_domain {
	u32	dear;
	u32	no_room;
	u64	bare;
	u64	used;
	u64	free_end;
	u64	freed;
	u64	cached;
	u64	clean;
	u64	slots;
	u64	room;
	struct core_shrink_view v;
};

/**
 * struct core_shrink - a computation under way
 * @pool:   number of the device pool
 * @first:  its first extent
 * @nr:     end of the extents that stay
 * @end:    end of the pool
 * @phase:  SHRINK_*
 * @at:     record at which the phase goes on
 * @blk:    block of the span at @at, SHRINK_BLOCKS only
 * @looked: records that this slice looked at
 * @seen:   entries in use that were met
 * @loose:  extents of each pool that a span can still be made of
 * @spans:  by first extent: blocks of sequences in a leaving span, SPAN_NO_ROOM; of an
 *          extent that stays: 1, it is taken
 * @names:  by node: enum shrink_name
 * @seqs:   by sequence: it has a block in a span with SPAN_NO_ROOM
 */
struct core_shrink {
	u32	first;
	u32	nr;
	u32	end;
	u32	pool;
	u32	phase;
	u32	at;
	u32	blk;
	u32	looked;
	u32	seen;
	u32	loose[CORE_NR_POOLS];
	struct shrink_domain *doms;
	u32	*spans;
	u8	*names;
	u8	*seqs;
};

/* Has the span extents that leave the smaller pool? */
static inline bool shrink_leaves(const struct core *c, const struct core_shrink *s,
				 u32 first)
{
	const struct kv_span *sp = &c->spans[first];

	return domain_is_in(&c->domains[sp->domain], s->pool) &&
	       first - extent_zone(c, first)->first + sp->nr_extents > s->nr - s->first;
}

/* Extents that stay in each device pool of the domain: those of the smallest. */
static inline u32 shrink_online(const struct core *c, const struct core_shrink *s,
				const struct kv_domain *d)
{
	u32 nr = domain_online(c, d);

	return domain_is_in(d, s->pool) ? min(nr, s->nr - s->first) : nr;
}

/* shrink_room.c: room for the content that leaves a smaller device pool */
void shrink_prepare(const struct core *c, struct core_shrink *s);
void shrink_settle(const struct core *c, struct core_shrink *s, u32 dom);
void shrink_table(const struct core *c, struct core_shrink *s, u32 seq);
void shrink_seq(const struct core *c, struct core_shrink *s, u32 seq);

#endif /* KVMM_CORE_NODE_SHRINK_H */
