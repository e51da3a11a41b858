/* SPDX-License-Identifier: Apache-2.0 */
/*
 * records.h - what the core remembers
 *
 * The records live in the arena and refer to each other by 32-bit index,
 * CORE_NONE for "none".  A field's comment names its law where it has one;
 * check.c walks them all.  Those of the cache's order are in lru.h, those of
 * pressure in psi.h.
 */
#ifndef KVMM_CORE_BASE_RECORDS_H
#define KVMM_CORE_BASE_RECORDS_H

#include "kvmm/core/core.h"
#include "kvmm/core/life.h"
#include "kvmm/core/trace.h"
#include "kvmm/core/base/psi.h"
#include "kvmm/core/base/lru.h"
#include "kvmm/core/why.h"

#define CORE_UNIT		64u	/* bytes of one step of a table entry */
#define CORE_LAYER_ALIGN	128u
#define CORE_NR_CLASSES		19	/* fullness of spans, see span_class() */
#define CORE_CLASS_EMPTY	17u	/* no block is in use */
#define CORE_CLASS_ISOLATED	18u	/* to be emptied, see isolate.c */
#define CORE_ID_PAGE		126	/* ids in a page of ids */

/* ---- blocks ---- */

enum kv_block_state {
	BLK_FREE,
	BLK_OPEN,
	BLK_SEALED,
	BLK_CACHED,
	BLK_QUIESCING,
	BLK_QUARANTINE,
	BLK_LIMBO,
	BLK_REVOKING,
	BLK_POISON,
	NR_BLK_STATES
};

#define BLKF_INDEXED	BIT(0)	/* in the prefix index, which holds a reference */
#define BLKF_SHARED	BIT(1)	/* an open tail that a fork shared */
#define BLKF_VISITED	BIT(2)	/* scratch of swap.c and migrate.c, clear between events */
#define BLKF_MOVING	BIT(3)	/* a copy of migrate.c reads it */
#define BLKF_TARGET	BIT(4)	/* a copy of migrate.c fills it */
#define BLKF_SALVAGED	BIT(5)	/* steps from before an adoption may write it */
#define BLKF_BAD	BIT(6)	/* a copy was filling it when the device failed */

#define BLOCK_SRC_BITS	20	/* of kv_block.nr_src */
#define BLOCK_COPY_MAX	15u	/* of kv_block.nr_copy */

/**
 * struct kv_block - one block; its index gives its address
 * @state:     BLK_*
 * @domain:    owner, while not BLK_FREE or in one of its spans
 * @nr_map:    sequences that map it
 * @nr_src:    open steps that copy from it or hold it, whoever maps it now
 * @nr_copy:   copies of the daemon that read or fill it
 * @nr_ids:    ids known, from the start of the block
 * @next:      neighbour on a list of lru.c, BLK_CACHED; next free, BLK_FREE
 * @prev:      neighbour on a list of lru.c, BLK_CACHED; previous free one,
 *             BLK_FREE in a lower pool
 * @hash_next: next in its bucket of the index, BLKF_INDEXED only
 * @entry:     of the lower tiers, that has or gets the same content
 * @node:      its name in the index, BLKF_INDEXED only
 * @hash:      chained hash, once sealed; on the device only
 * @written:   slots of lower pools only, whose names are their entries': raised
 *             each time one is freed
 *
 * What holds the content follows, see block_refcount(); so does the span, see
 * block_span().  What every grant and release uses comes first: a record that
 * lies across two cache lines has that in the first of them.
 */
struct kv_block {
	u8	state;
	u8	flags;
	u16	domain;
	u32	nr_map;
	u32	nr_src	: BLOCK_SRC_BITS;
	u32	nr_copy	: 4;
	u32	nr_ids	: 8;
	u32	next;
	u32	prev;
	u32	entry;
	u32	hash_next;
	u32	node;
	union {
		u64	hash[2];
		u64	written;
	};
};
static_assert(sizeof(struct kv_block) == 48, "three quarters of a line");
/* A step's entries copy from a block once each, and hold it once each. */
static_assert(64 * KVMM_MAX_STEPS * 2 * CORE_MAX_STEP_ENTRIES <
	      1 << BLOCK_SRC_BITS, "every open step of every client");

/**
 * struct kv_hold - a step needs a block that its sequence no longer maps
 * @next: of the same step; free list
 */
struct kv_hold {
	u32	blk;
	u32	next;
};

/* ---- moves ---- */

enum kv_move_state {
	MOVE_UNUSED,
	MOVE_COPYING,
	MOVE_COPIED,
	MOVE_FAILED,
};

/**
 * struct kv_move - a block on its way to another span
 * @stale:  what it copies was written, or may be, since it began
 * @nr_ids: of the source when it began
 * @evac:   on whose behalf
 * @again:  it is to be ordered again, see adopt.c
 */
struct kv_move {
	u32	state;
	u32	generation;
	u32	from;
	u32	to;
	u32	stale;
	u32	nr_ids;
	u32	evac;
	u32	again;
};

#define CORE_MAX_EVACS	16

/**
 * struct kv_evac - a span that is being emptied
 * @span:    CORE_NONE: the record is unused, but for moves that still run
 * @dom:     whose it is
 * @nr:      copies in flight
 * @any:     empty spans of the domain may be filled with what it has
 * @shared:  for whoever of the tenant lacks memory
 * @since:   it began
 */
struct kv_evac {
	u32	span;
	u32	dom;
	u32	nr;
	u32	any;
	u32	shared;
	u32	resv;
	u64	since;
};

/* ---- extents and spans ---- */

enum kv_extent_state {
	EXT_ABSENT,		/* no memory behind it */
	EXT_CREATING,		/* the shell makes it */
	EXT_BACKED,		/* memory of @tenant, in no span */
	EXT_SPAN,		/* part of a span */
	EXT_REVOKING,		/* asked back from those who have it mapped */
	EXT_OFFLINE,		/* out of use, see resize.c */
};

/**
 * struct kv_extent - one fixed piece of the pool
 * @domain:     that it is made for or belongs to, EXT_CREATING and EXT_SPAN
 * @span:       first extent of that span
 * @generation: raised each time memory is made for it
 * @backed:     memory is behind it, in whatever state
 * @sent:       clients told to map it, a bit each
 * @mapped:     of those, the ones that acknowledged
 * @owed:       of @sent, clients that are away: each is sent it when it is back
 * @want:       the struct kv_revoke that claims it plus one, EXT_WANT_SIZE,
 *              else 0
 * @haunted:    a client detached and may live on with it mapped
 * @again:      its memory is to be asked for again, see adopt.c
 * @since:      when its memory was made
 * @deadline:   for those who are to give it back, EXT_REVOKING
 */
struct kv_extent {
	u32	state;
	u32	tenant;
	u32	domain;
	u32	span;
	u32	generation;
	u32	backed;
	u64	sent;
	u64	mapped;
	u64	owed;
	u32	want;
	u16	haunted;
	u16	again;
	u64	since;
	u64	deadline;
};

#define EXT_WANT_SIZE	CORE_NONE	/* asked back for a smaller pool */

#define CORE_MAX_REVOKES	64u	/* runs claimed at once */

/**
 * struct kv_revoke - a run of extents on its way to a domain, see revoke.c
 * @dom:   for which domain
 * @first: extent
 * @nr:    extents, 0: unused
 */
struct kv_revoke {
	u32	dom;
	u32	first;
	u32	nr;
	u32	resv;
};

/**
 * struct kv_span - neighbouring extents cut into one domain's blocks
 * @nr_extents: 0 when this extent starts no span
 * @free_head:  list of the free blocks
 * @class:      list of the domain that it is on
 */
struct kv_span {
	u32	domain;
	u32	nr_extents;
	u32	nr_blocks;
	u32	nr_free;
	u32	nr_cached;
	u32	nr_open;
	u32	free_head;
	u32	class;
	u32	prev;
	u32	next;
};

/* ---- lower tiers ---- */

#define ENTF_INDEXED	BIT(0)	/* in the prefix index: the content is not on the device */
#define ENTF_HOST	BIT(1)	/* the host slot's content is valid */
#define ENTF_AREA	BIT(2)	/* the area slot's content is valid */
#define ENTF_LOST	BIT(3)	/* no valid copy is left anywhere */
#define ENTF_LRU	BIT(4)	/* on its domain's list of host slots */
#define ENTF_PARTIAL	BIT(5)	/* a tail: fewer ids than a block has tokens */
#define ENTF_BESIDE	BIT(6)	/* an ENT_IN goes on beside the ENT_WRITE */
#define ENTF_OVERDUE	BIT(7)	/* the request was not answered in time */

#define ENTRY_UNUSED	0xffffu	/* kv_entry.domain of a free record */

enum kv_entry_io {
	ENT_IDLE,
	ENT_OUT,		/* device to host */
	ENT_IN,			/* host to device */
	ENT_WRITE,		/* host to area */
	ENT_READ,		/* area to host, then ENT_IN */
};

/**
 * struct kv_entry - content of one block on the lower tiers
 * @domain: index of the domain
 * @io:     the request in flight for it, ENT_*
 * @refs:   table entries of swapped sequences
 * @dev:    block that has the same content, or is being read or filled
 * @host:   its slot in the host pool
 * @area:   its slot in a swap area
 * @nr_ids: tokens
 * @prev, @next: the domain's list of host slots; free list
 * @generation: raised with each request; part of its id
 * @io_prev, @io_next: its area's list of requests that move
 * @node:       its name in the index, ENTF_INDEXED only
 * @waiters:    sequences that wait for @dev to be filled, by kv_seq.fill_next
 * @tries:      times that the read under way failed
 * @again:      what is in flight is to be ordered again, AGAIN_; see adopt.c
 * @moving:     it is read because its area is to go
 * @started:    when the request in flight was
 */
struct kv_entry {
	u16	domain;
	u8	flags;
	u8	io;
	u32	refs;
	u32	dev;
	u32	host;
	u32	area;
	u32	nr_ids;
	u32	resv;
	u32	prev;
	u32	next;
	u32	hash_next;
	u32	generation;
	u32	io_prev;
	u32	io_next;
	u32	node;
	u32	waiters;
	u8	tries;
	u8	again;
	u16	moving;
	u64	hash[2];
	u64	started;
};
static_assert(sizeof(struct kv_entry) == 88, "no hole in an entry");

/* kv_entry.again: which of its requests */
#define AGAIN_IO	BIT(0)	/* that of kv_entry.io */
#define AGAIN_BESIDE	BIT(1)	/* the ENT_IN beside it */

/* What the index refers to: a block, or an entry of the lower tiers. */
#define REF_ENTRY	0x80000000u

/* Failures lately: see area_io.c. */
struct kv_bad {
	u32	level;
	u32	resv;
	u64	since;		/* when one was last forgiven */
};

/* Requests of the last time: what they took, and brought. */
struct kv_rate {
	u64	ns;
	u64	bytes;
	u32	nr;
	u32	resv;
};

/**
 * struct kv_pool - a pool's part of the extents, and how it does
 * @nr_ios:     requests in flight
 * @readonly:   nothing new goes there
 * @loose:      extents that are BACKED, or ABSENT where they can be made
 * @cursor:     where the next search for a run begins
 * @nr_overdue: of @nr_ios, those not answered in time: the area is stalled
 * @io_head:    the others, oldest first
 * @moved:      when a request was last answered, or the first of them issued
 * @errors:     requests that failed; @bad: lately; [0]: reads, [1]: writes
 * @rate:       measured, likewise; @out: bytes of requests in flight
 * @away:       no slot is taken before: swapd did not have it
 * @passed:     slots that went to others of its priority since its last
 * @leaving:    what it holds is moved elsewhere, see area_move.c
 * @move_at:    where the search for such, or for cache there, goes on
 * @nr_moving:  reads in flight for that
 */
struct kv_pool {
	u32	first;
	u32	nr_extents;
	u32	online;
	s32	prio;
	u64	errors;
	u32	nr_ios;
	u32	readonly;
	u32	cursor;
	u32	nr_overdue;
	u32	io_head;
	u32	io_tail;
	u32	loose;
	u32	resv;
	u64	moved;
	u64	away;
	struct kv_bad bad[2];
	struct kv_rate rate[2];
	u64	out[2];
	u32	passed;
	u32	leaving;
	u32	move_at;
	u32	nr_moving;
};

/* ---- tenants and domains ---- */

/**
 * struct kv_tenant - who must not see whom
 * @ghosts: clients that detached and may live on with mappings of what they
 *          were sent (kv_extent.haunted)
 * @quota:  as the shell said last
 * @asked:  memory.min and memory.low that its clients ask for; of limit_settle()
 * @left:   when its last client did
 * @draining: its clients begin nothing, see operate.c
 */
struct kv_tenant {
	u32	used;
	u32	nr_clients;
	u32	nr_domains;
	u32	ghosts;
	u32	draining;
	u32	resv;
	u64	key;
	struct core_quota quota;
	u64	asked[2];
	u64	left;
	u8	secret[CORE_SECRET_LEN];
};

/**
 * struct kv_part - what a domain has in one pool
 * @used:         the domain can have blocks there
 * @span_extents, @span_blocks, @span_tail: shape of its spans, in extents, blocks
 *                and bytes that no block uses
 * @block_bytes:  of a block; below the device of a slot, header and padding too
 * @max_bytes, @max_blocks: memory.max, or swap.max of a pool below the device
 * @nr:           blocks in each state, over its spans
 * @reserved:     of the free ones, promised to admitted prefills; never
 *                above part_free()
 * @isolated_free, @isolated_cached: of @nr, those in isolated spans
 * @peak:         most blocks that were in use at once
 * @nr_empty:     of @nr_spans, those without any block in use
 * @pending_spans: being made, or claimed from other tenants
 * @keep_spans:   an empty one is about to be used; set inside one event only
 * @class:        spans by fullness; @classes: a bit for each that has some
 * @class_scale:  see span_class()
 * @lru_head, @lru_tail: of the host pool, its slots, the oldest first
 * @write_next:   of the host pool, the slot that is looked at next
 * @slot_out, @slot_nr: for slots.c: slot that was last taken to copy to, and how
 *                many more were to come
 * @slot_last, @slot_peer, @slot_row: likewise: slot last taken for a neighbour of
 *                @slot_peer in the other tier, and how many lie side by side there
 */
struct kv_part {
	u32	used;
	u32	span_extents;
	u32	span_blocks;
	u32	max_blocks;
	u64	block_bytes;
	u64	span_tail;
	u64	max_bytes;
	u32	nr[NR_BLK_STATES];
	u32	reserved;
	u32	isolated_free;
	u32	isolated_cached;
	u32	peak;
	u32	nr_spans;
	u32	nr_empty;
	u32	pending_spans;
	u32	keep_spans;
	u32	class[CORE_NR_CLASSES];
	u32	classes;
	u32	lru_head;
	u64	class_scale;
	u32	lru_tail;
	u32	write_next;
	u32	slot_out;
	u32	slot_nr;
	u32	slot_last;
	u32	slot_peer;
	u32	slot_row;
	u32	resv;
};

/**
 * struct kv_domain - the blocks of one (tenant, model identity, layout)
 * @dev:          its part in the device pool; the others are core.parts
 * @high_blocks:  memory.high in blocks
 * @emin, @elow:  blocks protected from others, see limit.c; 0 without clients
 * @weight:       of its part of the surplus
 * @by_operator:  marks that an operator set, to @operator_limit
 * @asked_limit:  what whoever attached first asked for
 * @nr_shared:    blocks that more than one sequence maps
 * @nr_revokes:   of @dev.pending_spans, claimed
 * @wait_head:    first to be admitted: by priority, then arrival
 * @run_head:     resident sequences
 * @wait_root, @ready_root, @refused_root: trees of sequences, see order.c
 * @soon:         blocks that residents may take, but for @tails; see tally.c
 * @tails:        mappings of open blocks that more than one sequence maps
 * @nr_swapped:   of @nr_waiting, those that are swapped
 * @age_head:     who waits, the longest first
 * @retry:        something changed since the first waiter was refused
 */
struct kv_domain {
	struct kv_part dev;
	u32	used;
	u32	tenant;
	char	name[KVMM_NAME_LEN];
	u8	identity[KVMM_IDENTITY_LEN];
	struct kvmm_group group;
	u32	block_tokens;
	u32	nr_clients;
	u64	layer_stride;
	u64	min_bytes;
	u64	low_bytes;
	u64	high_bytes;
	u32	high_blocks;
	u32	emin;
	u32	elow;
	u32	weight;
	u32	by_operator;
	u64	operator_limit[CORE_NR_LIMITS];
	u64	asked_limit[CORE_NR_LIMITS];
	u32	nr_shared;
	u32	nr_indexed;
	u32	roots;		/* names that nothing comes before: see kv_node */
	u32	nr_revokes;
	u64	displace_after;	/* no run is displaced for it before */
	u32	wait_head;
	u32	wait_tail;
	u32	run_head;
	u32	run_tail;
	u32	wait_root;
	u32	ready_root;
	u32	refused_root;
	u32	soon;
	u32	tails;
	u32	nr_swapped;
	u32	age_head;
	u32	age_tail;
	u32	nr_waiting;
	u32	nr_running;
	u32	retry;
	u32	nr_marked;	/* families waiting to be taken */
	u32	nr_max_events;
	u32	nr_preempted;
	u64	last_marked;	/* when, for the longest-waiting exception */
	u32	blocked;	/* asked in vain in this round of admit_all() */
	u32	stalled;	/* what the first waiter had no room for; 0 */
	u32	promised;	/* who is within memory.min */
	u32	nr_high_events;
	u32	nr_low_events;
	u32	nr_filling;	/* in LIMBO on the way in, not out */
	u32	host_wanted;	/* a restore waits for host slots */
	u32	growth;		/* what resident tables could grow by, see commit.c */
	u32	floor;		/* of cache, see limit.c; 0 without clients */
	u32	reclaiming;	/* the reclaimer is awake, see wmark.c */
	u32	salvaged;	/* blocks with BLKF_SALVAGED */
	u32	kept;		/* blocks it may have since the device failed */
	u32	serial;		/* of the domains that there were, see why.c */
	s64	lag;		/* what its share was too large, see limit.c */
	u64	prefill_ns_token;	/* as its clients say, see step.c */
	u64	left;		/* when its last client did */
	u64	touched;	/* core_head.touched when it was last asked, see limit.c */
	u64	look_after;	/* no run of what others keep is looked for before this */
	struct kv_psi psi;
};

/* ---- sequences ---- */

#define SEQF_CLOSING	BIT(0)	/* CLOSE came while a step was open */
#define SEQF_MATCHED	BIT(1)	/* its ids are complete: it may be admitted */
#define SEQF_QUEUED	BIT(2)	/* on its domain's wait list */
#define SEQF_RUNNING	BIT(3)	/* on its domain's run list: resident */
#define SEQF_PREEMPTED	BIT(4)	/* lost its memory at least once */
#define SEQF_SWAPPED	BIT(5)	/* its table names entries, not blocks */
#define SEQF_PAGEDOUT	BIT(6)	/* by advice: comes back by advice */
#define SEQF_DECIDED	BIT(7)	/* that it pays to swap it; clear between events */
#define SEQF_COLD	BIT(8)	/* by advice: what it leaves is old */
#define SEQF_DONTNEED	BIT(9)	/* by advice: it leaves nothing */
#define SEQF_REFUSED	BIT(10)	/* its last BEGIN found no memory */
#define SEQF_COPY	BIT(11)	/* one promised block is for the copy of its tail */
#define SEQF_IN_READY	BIT(12)	/* in its domain's tree of residents */
#define SEQF_IN_REFUSED	BIT(13)	/* in that of those who were refused growth */
#define SEQF_RETAIN	BIT(14)	/* what it used may be of another class by now */

/* Links of a sequence in a tree, see order.c. */
#define NODE_ORDER	0	/* the wait list's or the residents' */
#define NODE_REFUSED	1
#define NR_NODES	2

/**
 * struct kv_wait - why a sequence was not admitted when it was looked at
 * @why:    CORE_WAIT_*
 * @dom:    for whose sake, CORE_NONE: nobody's; @serial: which one
 * @since:  it is that
 */
struct kv_wait {
	u32	why;
	u32	dom;
	u32	serial;
	u32	resv;
	u64	since;
};

/**
 * struct kv_taken - what was taken from a sequence; see why.c
 * @when:   the last time, 0: never
 * @back:   when it was admitted again after that, 0: not yet
 * @ns:     that it was without, all times that are over
 * @tokens: that it had and lost, all times
 * @blocks: the last time; so are all that follow
 * @len:    tokens that were valid
 * @found:  of these, that were there when it came back
 * @kept:   it was swapped out
 * @by_domain: for whose sake, CORE_NONE: nobody's; @by_serial: which one
 * @by_client, @by_seq: likewise; CORE_NONE: the domain is all that is known
 */
struct kv_taken {
	u64	when;
	u64	back;
	u64	ns;
	u64	tokens;
	u32	blocks;
	u32	len;
	u32	found;
	u32	kept;
	u32	by_domain;
	u32	by_serial;
	u32	by_client;
	u32	by_seq;
};

/**
 * struct kv_seq - an address space of token positions with its block table
 * @state:      KVMM_SEQ_*
 * @fam_next:   circle of the family, itself when alone
 * @arrival:    the daemon's own stamp, the family's for a fork
 * @valid_len:  tokens whose KV is valid
 * @cover:      end of what open steps may write, at least @valid_len
 * @nr_blocks:  table entries, exactly DIV_ROUND_UP(@cover, block_tokens)
 * @reserved:   blocks promised and not yet taken, one more with SEQF_COPY
 * @resv_blocks: table indices below this drew on the reservation
 * @nr_steps:   open steps that name it
 * @last_step:  number of the last of them
 * @epoch:      raised when it is marked or preempted
 * @first_page: its table, CORE_NONE when empty
 * @nr_ids:     ids sent for the next match
 * @prev, @next: wait list or run list
 * @fill:       table indices below it are filled, RESTORING only
 * @fill_on:    entry whose content the block there gets, else CORE_NONE
 * @fill_prev, @fill_next: who else waits for that
 * @known_len:  tokens that it computed though the index had had them
 * @keep_until: by advice: what it leaves is kept, 0: is not
 * @end:        end of what the step in that place of the client's ring covers
 * @trimmed:    table indices below it were given back: they hold nothing
 * @trim_want:  will be @trimmed when the steps up to @trim_step have ended
 * @trim_more:  more than that, wanted since; 0: nothing.  After the steps up
 *              to @trim_more_step
 * @trim_hash:  of the last block given back: parent of what follows
 * @dirty:      lowest table index that changed and no step's result told
 * @since:      admitted at, or waiting since
 * @active:     when it was last admitted, granted or asked back by advice
 * @lost_len:   what was valid when its memory was last taken; less if it was
 *              cut since, another's after a REMAP
 * @again:      when growth was first refused, 0 after a grant
 * @refused:    when it was last refused, 0 after a grant
 * @stuck:      since when its restore finds no host slots, 0: it does
 * @psi_domain, @psi_node: how it counts there, PSI_*
 * @nr_retains: of @retains, the newest last: that is asked first
 * @born:   number of the request that made it
 * @in_soon, @in_marked, @in_pages: its part of what tally.c adds up
 * @age_prev, @age_next: of who waits
 * @found:      blocks of its prompt that were in the index when last looked
 * @found_hash: name of the last of them
 * @cause:      CORE_CAUSE_*: what its memory is, or was last, taken for
 * @wait, @taken: for people who ask, see why.c
 * @rank:       in its trees, see order.c
 * @oldest:     least @since of it and of who is below it in NODE_ORDER's tree
 * @kid:        in its trees, the links to what comes before and after
 */
struct kv_seq {
	u32	generation;
	u32	state;
	u32	flags;
	u32	open_flags;
	u32	client;
	u32	domain;
	u32	priority;
	u32	family;
	u32	fam_prev;
	u32	fam_next;
	u64	arrival;
	u64	salt;
	u64	since;
	u64	again;
	u64	refused;
	u64	active;
	u64	last_step;
	u32	prompt_len;
	u32	max_tokens;
	u32	valid_len;
	u32	cover;
	u32	nr_blocks;
	u32	reserved;
	u32	resv_blocks;
	u32	nr_steps;
	u32	epoch;
	u32	first_page;
	u32	last_page;
	u32	nr_ids;
	u32	id_head;
	u32	id_tail;
	u32	prev;
	u32	next;
	u32	cached_len;
	u32	lost_len;
	u32	nr_preempted;
	s32	reason;
	u32	limiting_pool;
	u32	end[KVMM_MAX_STEPS];
	u32	fill;
	u32	fill_on;
	u32	fill_prev;
	u32	fill_next;
	u8	psi_domain;
	u8	psi_node;
	u8	in_soon;
	u8	in_marked;
	u64	stuck;
	u32	known_len;
	u32	dirty;
	u64	keep_until;
	u32	trimmed;
	u32	trim_want;
	u32	trim_more;
	u32	in_pages;
	u32	age_prev;

	u32	age_next;
	u32	nr_retains;
	struct kv_retain retains[SEQ_RETAINS];
	u32	cause;
	u32	rank;
	u32	found;
	u64	found_hash[2];
	u64	oldest;
	u32	kid[NR_NODES][2];
	u64	trim_step;
	u64	trim_more_step;
	u64	trim_hash[2];
	u64	born;
	struct kv_wait wait;
	struct kv_taken taken;
};

/* One entry of a block table: a type, and what the type says. */
typedef struct {
	u64	val;
} kv_pte_t;

#define PTE_NONE	0ull
#define PTE_PRESENT	1ull
#define PTE_ENTRY	2ull	/* on the host or in an area */
#define PTE_TYPE_SHIFT	56

static inline kv_pte_t pte_none(void)
{
	return (kv_pte_t){ .val = PTE_NONE };
}

static inline kv_pte_t pte_present(u32 blk)
{
	return (kv_pte_t){ .val = (PTE_PRESENT << PTE_TYPE_SHIFT) | blk };
}

static inline bool pte_is_present(kv_pte_t pte)
{
	return pte.val >> PTE_TYPE_SHIFT == PTE_PRESENT;
}

static inline kv_pte_t pte_entry(u32 entry)
{
	return (kv_pte_t){ .val = (PTE_ENTRY << PTE_TYPE_SHIFT) | entry };
}

static inline bool pte_is_entry(kv_pte_t pte)
{
	return pte.val >> PTE_TYPE_SHIFT == PTE_ENTRY;
}

static inline u32 pte_block(kv_pte_t pte)
{
	return (u32)pte.val;
}

#define CORE_TABLE_HOPS		10	/* pages of a table seen from its last */

/**
 * struct kv_tpage - the truth of a table page
 * @back: the pages 1, 2, 4, ... before it in the chain
 *
 * The shadow has the same index in segment D.
 */
struct kv_tpage {
	u32		next;
	u32		first;
	u32		back[CORE_TABLE_HOPS];
	kv_pte_t	pte[KVMM_TABLE_ENTRIES];
};

struct kv_idpage {
	u32	next;
	u32	nr;
	u32	id[CORE_ID_PAGE];
};

/* ---- clients and steps ---- */

enum kv_client_state {
	CLI_FREE,
	CLI_ALIVE,
	CLI_DETACHED,		/* said DETACH; its slot is held until it hung up */
	CLI_DEAD,		/* its device may still write */
};

/* kv_client.away */
enum {
	AWAY_NOT,
	AWAY_WHOLE,		/* adopted with all it had, not back yet */
	AWAY_SALVAGED,		/* what its last requests did is void */
};

/**
 * struct kv_client - one attached process
 * @dead_since:  for the quiet deadline
 * @last_number: of its requests
 * @last_step:   number of the last step begun
 * @step_head:   oldest open step, an index into its ring of steps
 * @free_seq:    list of its free sequence slots, local indices
 * @free_page:   list of its free table pages, local indices
 * @again:       when a grant was last refused for want of memory
 * @promised:    of its table pages, promised to its residents with blocks
 * @nr_marked:   of its sequences, victims whose steps are open
 * @nr_unacked:  extents sent and not acknowledged
 * @unacked_since: there have been such
 * @committed:   of its requests, the last that was answered
 * @back:        since then after it was away: it could not end steps before
 * @away:        AWAY_*; such a client is bound to no segments
 * @begun:       steps that it began, modulo 2^32
 * @draining:    it begins nothing, see operate.c
 */
struct kv_client {
	u32	state;
	u32	tenant;
	u32	domain;
	u32	max_steps;
	u32	max_seqs;
	u32	nr_seqs;
	u32	nr_steps;
	u32	step_head;
	u32	free_seq;
	u32	free_page;
	u32	nr_free_pages;
	u32	fresh_page;
	u32	nr_idpages;
	u32	nr_unacked;
	u32	event_tail;
	u32	killed;
	u32	promised;
	u32	nr_marked;
	u64	dead_since;
	u64	last_number;
	u64	last_step;
	u64	again;
	u64	unacked_since;
	u64	committed;
	u64	back;
	u32	away;
	u32	begun;
	u32	draining;
	u32	resv;
};

/**
 * struct kv_step - an open step
 * @held: what it may read and a sequence of it no longer maps, kv_hold
 */
struct kv_step {
	u64	number;
	u64	begun;
	u32	nr;
	u32	held;
};

/* A granted entry of an open step; @src: block that it copies from. */
struct kv_step_entry {
	u32	seq;
	u32	start;
	u32	end;
	u32	src;
};

/**
 * struct kv_remap - one entry of the SEQ_REMAP under way; scratch of remap.c
 * @child:   sequence, CORE_NONE: the entry is not carried out
 * @other:   sequence that it becomes
 * @readers: entries left that read the child's old table
 * @order:   the entries that overwrite, in the order of doing so
 */
struct kv_remap {
	u32	child;
	u32	other;
	u32	readers;
	u32	order;
	s32	err;
	u32	resv;
};

/* ---- notes of one event ---- */

/*
 * What a scan notes of a record while it looks for memory.  Notes mean nothing
 * between events, so no record has them, and an adopting core clears them.
 */

/**
 * struct span_scan - of a span, by steal.c, displace.c and evacuate.c
 * @counted: first extent plus one of the run that would take the span; 0: none
 * @cost:    of the span, RUN_*, or blocks that would have to move
 * @pass:    in which the span was counted, or free blocks it was counted with
 */
struct span_scan {
	u32	counted;
	u32	cost;
	u32	pass;
};

/**
 * struct domain_scan - of a domain, by the same
 * @spare: free blocks that it can do without, less those counted
 * @lost:  blocks in use that it would lose with the spans that are counted
 */
struct domain_scan {
	u32	spare;
	u32	lost;
};

/**
 * struct tenant_scan - of a tenant, by revoke_prepare()
 * @keeps: one of its sequences waits longer than the sequence that asks
 * @stays: an extent that it has not had for starve_ns stays with it
 */
struct tenant_scan {
	u32	keeps;
	u32	stays;
};

/**
 * struct seq_scan - of a sequence
 * @barred:   displace.c: core_head.bar_pass of the pass in which its family stays
 * @plan:     remap.c: its entry as a child plus one, else 0
 * @plan_err: remap.c: why its family is left alone, else 0
 * @low:      migrate.c: first table index that open steps may write
 */
struct seq_scan {
	u32	barred;
	u32	plan;
	s32	plan_err;
	u32	low;
};

/* ---- the arena ---- */

#define CORE_ARENA_MAGIC	0x31414d4d564b4843ull
/* To be raised when a record means something else and has the same size. */
#define CORE_ARENA_VERSION	2u

struct core_sizes {
	u32	nr_extents;		/* of the device */
	u32	all_extents;
	u32	nr_parts;
	u32	nr_entries;
	u32	blocks_per_extent;	/* a power of two, of: */
	u32	block_shift;
	u32	ids_per_extent;
	u32	nr_blocks;
	u64	nr_ids;
	u32	nr_buckets;
	u32	nr_nodes;
	u32	nr_holds;
	u32	nr_ghosts;		/* whole sets */
	u32	nr_seqs;
	u32	nr_tpages;
	u32	nr_idpages;
	u32	nr_steps;
	u64	nr_step_entries;
};

/*
 * What a block of the device may cost, of all tables that grow with the pool
 * but for the ids: 4 bytes a token.
 */
#define CORE_BLOCK_BYTES	96u

static_assert(sizeof(struct kv_block) + sizeof(struct kv_node) +
	      sizeof(struct kv_ghost) + 4 /* bucket */ + 4 /* scratch */ <=
	      CORE_BLOCK_BYTES - 4, "leaves 4 for extents and spans");

/* Everything in the arena: name, type, how many. */
#define CORE_ARENA(x)							\
	x(extents,	struct kv_extent,	s->all_extents)		\
	x(spans,	struct kv_span,		s->all_extents)		\
	x(blocks,	struct kv_block,	s->nr_blocks)		\
	x(ids,		u32,			s->nr_ids)		\
	x(buckets,	u32,			s->nr_buckets)		\
	x(tenants,	struct kv_tenant,	cfg->max_tenants)	\
	x(domains,	struct kv_domain,	cfg->max_domains)	\
	x(parts,	struct kv_part,		s->nr_parts - cfg->max_domains) \
	x(entries_low,	struct kv_entry,	s->nr_entries)		\
	x(nodes,	struct kv_node,		s->nr_nodes)		\
	x(lrus,		struct kv_lru,		cfg->max_domains)	\
	x(ghosts,	struct kv_ghost,	s->nr_ghosts)		\
	x(lives,	struct kv_life,		cfg->max_domains)	\
	x(samples,	struct kv_sample,	LIFE_SAMPLES)		\
	x(clients,	struct kv_client,	cfg->max_clients)	\
	x(seqs,		struct kv_seq,		s->nr_seqs)		\
	x(tpages,	struct kv_tpage,	s->nr_tpages)		\
	x(idpages,	struct kv_idpage,	s->nr_idpages)		\
	x(steps,	struct kv_step,		s->nr_steps)		\
	x(entries,	struct kv_step_entry,	s->nr_step_entries)	\
	x(holds,	struct kv_hold,		s->nr_holds)		\
	x(scratch,	u32,			s->nr_blocks)		\
	x(span_scans,	struct span_scan,	s->all_extents)		\
	x(domain_scans,	struct domain_scan,	cfg->max_domains)	\
	x(tenant_scans,	struct tenant_scan,	cfg->max_tenants)	\
	x(seq_scans,	struct seq_scan,	s->nr_seqs)		\
	x(walked,	u32,			s->nr_entries)		\
	x(remaps,	struct kv_remap,	CORE_MAX_BATCH)

struct core_head {
	u64	magic;
	u64	layout;			/* core_arena_layout() */
	u64	bytes;
	u32	event;			/* one is under way, see core_event() */
	u32	resv0;
	struct core_config cfg;
	struct core_sizes sizes;
	u64	arrival;		/* next arrival stamp */
	u32	family;			/* next family id */
	u32	free_idpage;
	u32	nr_free_idpages;
	u32	nr_revokes;
	u32	nr_tenants;		/* records in use */
	u32	nr_online;		/* extents of the device in use, see resize.c */
	u32	bar_pass;		/* of displace.c */
	u32	resizing;		/* some past these are not offline yet */
	u32	more;			/* MORE_: admit_all() had no time for all */
	u32	device;			/* CORE_DEVICE_* */
	u32	life_shift;		/* one block in 2^this is looked at, see life.c */
	u32	trace_on;		/* events that are recorded, a bit each */
	u32	serial;			/* of the last domain */
	u32	draining;		/* nobody begins anything, see operate.c */
	u64	resized;		/* when that began */
	struct kv_revoke revokes[CORE_MAX_REVOKES];
	u64	create_after;		/* no extent is asked for before this */
	u64	ticked;			/* when the last tick was */
	struct kv_pool pools[CORE_NR_POOLS];
	u32	free_entry;
	u32	nr_free_entries;
	u32	free_node;
	u32	nr_free_nodes;
	u32	nr_copies;		/* in flight */
	u32	nr_ios;
	u32	nr_overdue;		/* of these, not answered in time */
	u32	stalled;		/* areas that have such, a bit each */
	u64	copy_ns_kb;		/* measured, see tier_io.c */
	u32	free_hold;
	u32	nr_moves;		/* in flight, not of nr_copies */
	struct kv_move moves[CORE_MAX_MOVES];
	struct kv_evac evacs[CORE_MAX_EVACS];
	u64	evac_after;		/* no span is emptied for others before this */
	u64	evac_look;		/* then those who wait for others' look again */
	u64	clean_after;		/* nothing is cleaned ahead before this */
	u64	touched;		/* bytes that admissions used, found or new */
	struct kv_psi psi;		/* of the node */
	struct kv_trigger triggers[PSI_NR_TRIGGERS];
	u64	events[NR_CORE_EVENTS];
};

struct core {
	struct core_head *head;
	const struct core_ops *ops;
	void	*ops_arg;
	u64	now;
	u32	work;		/* done in this event, see core_work() */
	u32	again;		/* the first tick orders anew, see adopt.c */
	u32	none_stalled;	/* surely; 0: some domain may be */
	u32	trace_on;	/* as in the head; 0: nobody lent a ring */
	struct core_trace *trace;	/* NULL: likewise, see trace.c */
	u32	wait;		/* what is being said no for, see why.c */
	u32	wait_dom;
	u32	taker;		/* domain for which memory is taken now; nothing decides by it */
#define x(name, type, count) type *name;
	CORE_ARENA(x)
#undef x
	struct core_bind bind[64];
};

#endif /* KVMM_CORE_BASE_RECORDS_H */
