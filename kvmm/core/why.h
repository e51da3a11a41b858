/* SPDX-License-Identifier: Apache-2.0 */
/*
 * why.h - why a sequence waits, and what was taken from it
 *
 * Two words and one record a sequence, written where it is decided and never
 * read by a decision; why.c tells more.  This part is for readers as well.
 */
#ifndef KVMM_CORE_WHY_H
#define KVMM_CORE_WHY_H

#include <kvmm/types.h>

/* What stands in a sequence's way: word, and a sentence for people. */
#define CORE_WAITS(x)							\
	x(nothing,  "nothing: it has its memory")			\
	x(client,   "its client: all of its token ids are to be sent (again)") \
	x(advice,   "its client: it was paged out on advice, and is to be asked back") \
	x(event,    "its turn: it has not been looked at yet")		\
	x(line,     "the sequences of its domain that come before it")		\
	x(maps,     "its client: extents that it was sent are not mapped yet") \
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
	x(slots,    "room in the host pool, to read its blocks from swap areas") \
	x(fill,     "its blocks, which are being filled from the host pool or an area") \
	x(step,     "the end of its open steps: then its memory is taken") \
	x(more,     "more memory: it runs, and its last step was refused") \
	x(closed,   "nothing any more: it can never be admitted, and is to be closed")

enum core_wait {
#define x(name, text) CORE_WAIT_##name,
	CORE_WAITS(x)
#undef x
	NR_CORE_WAITS
};

#define CORE_WHY_AHEAD	4096u	/* of those before it are counted, no more */

/**
 * struct core_why_view - all that there is to say of one sequence
 * @wait:       CORE_WAIT_*
 * @first:      of a CORE_WAIT_line: what the first of the line waits for
 * @wait_domain: for whose sake it waits, CORE_NONE: nobody's
 * @state:      KVMM_SEQ_*
 * @waits_ns:   since it has been without memory
 * @reason_ns:  since @wait is the reason; 0 where that is not written down
 * @ahead:      sequences before it in its domain's line; at most CORE_WHY_AHEAD
 * @needs:      blocks that it is to have when it is admitted
 * @room:       blocks of its domain that are free and not promised
 * @cached:     blocks of its domain that hold nothing but cache
 * @held:       blocks of its domain in use or promised, without its cache
 * @taken:      times that its memory was taken
 * @out_ns:     time that it was without for that, this time included
 * @tokens:     that were lost by it: to be found again in the cache, or computed
 * @last_ns:    since it was taken last; 0: not known
 * @cause:      of that: CORE_CAUSE_*
 * @kept:       of that: it was swapped out
 * @back:       of that: it has memory again
 * @blocks:     of that: blocks taken
 * @len:        of that: tokens that were valid
 * @found:      of that: tokens of these that were there when it came back
 * @by_domain:  of that: for whose sake, CORE_NONE: nobody's, or it has gone
 * @by_client:  and of these which, CORE_NONE: not one of them alone
 * @by_seq:     as its number in that client
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
