/* SPDX-License-Identifier: Apache-2.0 */
/*
 * why.h - why a sequence waits, and the memory that it lost
 *
 * The words for the reasons, and the view of a sequence that readers get.
 * why.c writes the records behind it; no decision reads them.
 */
#ifndef KVMM_CORE_WHY_H
#define KVMM_CORE_WHY_H

#include <kvmm/types.h>

/* Reasons for which a sequence waits: word, and a sentence for people. */
#define CORE_WAITS(x)							\
	x(nothing,  "nothing: it has its memory")			\
	x(client,   "its client must send all token ids (again)") \
	x(advice,   "its client: it was paged out on advice, and is to be asked back") \
	x(event,    "its turn: it has not been looked at yet")		\
	x(line,     "the sequences of its domain that come before it")		\
	x(maps,     "its client or a rank of it: extents are not mapped yet, or a shard has no client") \
	x(tables,   "its client: all pages for its block tables are in use") \
	x(growth,   "memory for a running sequence that asked for more, and comes first") \
	x(longest,  "memory for a sequence of another domain that has waited too long") \
	x(share,    "another domain: it has less than its part, and its first in line lacks memory") \
	x(high,     "memory.high: its domain is above it, and others of it run") \
	x(max,      "memory.max: its domain would be above it")	\
	x(commit,   "overcommit: the commitments of others leave no room") \
	x(memory,   "memory: all of it is in use, and no domain has to give it up") \
	x(making,   "memory that is being made, or that others are giving back") \
	x(moving,   "blocks that are being moved to make room")	\
	x(copies,   "the copy of its own blocks to the host pool")	\
	x(demote,   "copies of cached blocks to the host pool, whose memory it gets") \
	x(slots,    "room in the host pool, to read its blocks from swap areas") \
	x(fill,     "its blocks, which are being filled from the host pool or an area") \
	x(step,     "the end of its open steps: then its memory is taken") \
	x(more,     "more memory: it runs, and its last step was refused") \
	x(closed,   "nothing any more: it can never be admitted, and is to be closed")	\
	x(lease,    "nothing: it is a lease, which holds content and never runs")

enum core_wait {
#define x(name, text) CORE_WAIT_##name,
	CORE_WAITS(x)
#undef x
	NR_CORE_WAITS
};

#define CORE_WHY_AHEAD	4096u	/* sequences before it are counted up to this number */

/**
 * struct core_why_view - all that is known of the waiting of one sequence
 * @wait:       CORE_WAIT_*
 * @first:      for CORE_WAIT_line: the reason of the first sequence of the line
 * @wait_domain: domain that it waits for; CORE_NONE: no domain
 * @state:      KVMM_SEQ_*, CORE_SEQ_LEASED
 * @waits_ns:   time without memory so far
 * @reason_ns:  time for which @wait has been the reason; 0: not recorded
 * @ahead:      sequences before it in its domain's line; at most CORE_WHY_AHEAD
 * @shards:     shards of its domain
 * @shards_mapped: of these, shards that its client maps, or a rank of that client
 * @needs:      blocks that it gets when it is admitted
 * @room:       blocks of its domain that are free and not reserved
 * @cached:     blocks of its domain that are only cache
 * @held:       blocks of its domain in use or reserved, without its cache
 * @taken:      times that its memory was taken
 * @out_ns:     time without memory because of that, this time included
 * @tokens:     tokens that were lost by that, to be found in the cache or
 *              computed again
 * @last_ns:    time since its memory was last taken; 0: not known.  The fields
 *              below are about that last time.
 * @cause:      CORE_CAUSE_*
 * @kept:       it was swapped out
 * @back:       it has memory again
 * @blocks:     blocks taken
 * @len:        tokens that were valid
 * @found:      tokens of these that were found when it came back
 * @by_domain:  domain that the memory was taken for; CORE_NONE: no domain, or it
 *              was dropped since
 * @by_client:  client of the sequence that it was taken for; CORE_NONE: it was
 *              for no single sequence
 * @by_seq:     number of that sequence in its client
 */
struct core_why_view {
	u64	seq;
	u32	client;
	u32	domain;
	u32	state;
	u32	wait;
	u32	first;
	u32	wait_domain;
	u64	waits_ns;
	u64	reason_ns;
	u32	ahead;
	u32	shards;
	u32	shards_mapped;
	u32	needs;
	u32	room;
	u32	cached;
	u32	held;
	u32	taken;
	u64	out_ns;
	u64	tokens;
	u64	last_ns;
	u32	cause;
	u32	kept;
	u32	back;
	u32	blocks;
	u32	len;
	u32	found;
	u32	by_domain;
	u32	by_client;
	u32	by_seq;
};

struct core;

int core_get_why(const struct core *core, u32 seq, u64 now,
		 struct core_why_view *v);
const char *core_wait_name(u32 wait);
const char *core_wait_text(u32 wait);
const char *core_cause_name(u32 cause);
const char *core_cause_text(u32 cause);

#endif /* KVMM_CORE_WHY_H */
