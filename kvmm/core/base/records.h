/* SPDX-License-Identifier: Apache-2.0 */
/*
 * records.h - the records of the core, which live in the arena
 *
 * Records refer to each other by 32-bit index; CORE_NONE is "none".  Where the
 * value of a field follows from other fields, its comment says how, and the
 * walkers (check.c) verify it.  The records of the cache order are in lru.h,
 * those of pressure in psi.h.
 */
#ifndef KVMM_CORE_BASE_RECORDS_H
#define KVMM_CORE_BASE_RECORDS_H

#include "kvmm/core/core.h"
#include "kvmm/core/life.h"
#include "kvmm/core/trace.h"
#include "kvmm/core/base/psi.h"
#include "kvmm/core/base/lru.h"
#include "kvmm/core/base/tables.h"
#include "kvmm/core/why.h"

#define CORE_UNIT		64u	/* least bytes that one unit of a table entry stands for */
#define CORE_UNIT_MAX		4096u	/* most; an extent has whole units */
#define CORE_LAYER_ALIGN	128u
#define CORE_NR_CLASSES		19	/* lists of spans by fullness, see span_class() */
#define CORE_CLASS_EMPTY	17u	/* no block of the span is in use */
#define CORE_CLASS_ISOLATED	18u	/* the span is to be emptied, see isolate.c */
static_assert(CORE_MAX_ZONES == KVMM_MAX_SHARDS, "a shard in each device pool");
#define CORE_MORE_GROUPS	(KVMM_MAX_GROUPS - 1u)	/* groups after group 0 */
#define CORE_ID_PAGE		126	/* token ids in a page of ids */
#define CORE_OPEN_FLAGS		(KVMM_OPEN_NO_MATCH | KVMM_OPEN_NO_INDEX | \
				 KVMM_OPEN_WHOLE_BLOCKS | KVMM_OPEN_WHOLE_PROMPT)

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
#define BLKF_VISITED	BIT(2)	/* scratch of swap.c, migrate.c, lease.c; clear between events */
#define BLKF_MOVING	BIT(3)	/* a copy of migrate.c reads the block */
#define BLKF_TARGET	BIT(4)	/* a copy of migrate.c fills the block */
#define BLKF_SALVAGED	BIT(5)	/* steps from before an adoption may write the block */
#define BLKF_BAD	BIT(6)	/* a copy was filling the block when the device failed */

#define BLOCK_MAP_BITS	24	/* width of kv_block.nr_map */
#define BLOCK_SRC_BITS	20	/* width of kv_block.nr_src */
#define BLOCK_COPY_MAX	15u	/* most that kv_block.nr_copy can count */
#define BLOCK_IDS_BITS	13	/* width of kv_block.nr_ids */

/**
 * struct kv_block - one block; its index gives its address
 * @nr_map:    sequences that map the block
 * @nr_src:    open steps that copy from the block or hold it (hold.c); the
 *             sequence may have another block in its place by now
 * @nr_copy:   copies of the daemon in flight that read or fill the block
 * @nr_ids:    token ids known, from the start of the block; see block_set_ids()
 * @group:     layer group of the content; of a free block without meaning
 * @state:     BLK_*; written by block_set_state() alone
 * @domain:    part_index() of the owner of the span that the block is in
 * @next:      BLK_CACHED: neighbour on a list of lru.c; BLK_FREE: next on the
 *             free list of the span
 * @prev:      BLK_CACHED: neighbour on a list of lru.c; BLK_FREE in a lower
 *             pool: previous on the free list
 * @hash_next: next in the bucket of the index, BLKF_INDEXED only
 * @entry:     lower-tier entry that has or gets the same content
 * @node:      name of the block in the index, BLKF_INDEXED only
 * @hash:      chained hash of a sealed block of the device
 * @written:   of a slot of a lower pool, which has no hash of its own: raised
 *             each time the slot is freed
 *
 * The number of references follows from other fields, see block_refcount(); so
 * does the span, see block_span().  The fields that every grant and release
 * uses come first: where a record lies across two cache lines, they are in the
 * first line.
 */
struct kv_block {
	u64	nr_map	: BLOCK_MAP_BITS;
	u64	nr_src	: BLOCK_SRC_BITS;
	u64	nr_copy	: 4;
	u64	nr_ids	: BLOCK_IDS_BITS;
	u64	group	: 3;
	u8	state;
	u8	flags;
	u16	domain;
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
/* The entries of a step copy from a block once each, and hold it once each. */
static_assert(64 * KVMM_MAX_STEPS * 2 * CORE_MAX_STEP_ENTRIES <
	      1 << BLOCK_SRC_BITS, "every open step of every client");
static_assert(KVMM_MAX_BLOCK_TOKENS < 1 << BLOCK_IDS_BITS, "every id of a block");

/**
 * struct kv_hold - a step holds a block that its sequence no longer maps
 * @next: next block that the same step holds; or next free record
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
 * struct kv_move - a block that is being copied to another span (migrate.c)
 * @stale:  the source was written, or may have been, since the copy began
 * @nr_ids: kv_block.nr_ids of the source when the copy began
 * @evac:   evacuation that the move is part of, an index of core_head.evacs
 * @again:  the copy is to be ordered again, see adopt.c
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
 * struct kv_evac - a span that is being emptied (evacuate.c)
 * @span:    first extent; CORE_NONE: the record is unused, though some of its
 *           moves may still be in flight
 * @dom:     owner of the span
 * @nr:      copies in flight
 * @any:     the blocks may move to empty spans of the domain, too
 * @shared:  the span is for any domain of the tenant that lacks memory
 * @since:   time at which the evacuation began
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
	EXT_CREATING,		/* the shell makes memory for it */
	EXT_BACKED,		/* has memory for @tenant, in no span */
	EXT_SPAN,		/* part of a span */
	EXT_REVOKING,		/* clients that have mapped it are asked to unmap it */
	EXT_OFFLINE,		/* out of use, see resize.c */
};

/**
 * struct kv_extent - one fixed piece of the pool
 * @domain:     domain that the extent is made for (EXT_CREATING) or belongs to
 *              (EXT_SPAN)
 * @span:       first extent of that domain's span; of a domain with several shards
 *              the one in its first device pool
 * @generation: raised each time memory is made for the extent
 * @backed:     the extent has memory, in any state
 * @sent:       bit set of the clients that were told to map the extent
 * @mapped:     bit set of the clients of @sent that acknowledged
 * @owed:       bit set of the clients of @sent that are away: each is told
 *              when it has resumed
 * @want:       index plus one of the struct kv_revoke that claims the extent;
 *              EXT_WANT_SIZE; or 0
 * @haunted:    a client detached whose process may live on and have it mapped
 * @again:      memory is to be asked for again, see adopt.c
 * @since:      time at which its memory was made
 * @deadline:   time until which clients must have unmapped it, EXT_REVOKING
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

#define EXT_WANT_SIZE	CORE_NONE	/* claimed because the pool is made smaller */

#define CORE_MAX_REVOKES	64u	/* runs that can be claimed at once */

/**
 * struct kv_revoke - a run of extents that is claimed for a domain (revoke.c)
 * @dom:   domain that gets the run
 * @first: first extent
 * @nr:    number of extents in each device pool; 0: the record is unused
 * @shards: device pools of the run, see run_extent()
 */
struct kv_revoke {
	u32	dom;
	u32	first;
	u32	nr;
	u32	shards;
};

/**
 * struct kv_span - neighbouring extents cut into one domain's blocks
 *
 * A domain with several shards has each span in several device pools: the same number
 * of extents at the same place of each, see run_extent().  The record is that of the
 * first pool, and so are the records of its blocks.
 * @nr_extents: number of extents; 0: no span starts at this extent
 * @free_head:  list of the free blocks
 * @class:      list of the domain that the span is on, see span_class()
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

#define ENTF_INDEXED	BIT(0)	/* in the prefix index: the device does not have the content */
#define ENTF_HOST	BIT(1)	/* the host slot's content is valid */
#define ENTF_AREA	BIT(2)	/* the area slot's content is valid */
#define ENTF_LOST	BIT(3)	/* no valid copy is left anywhere */
#define ENTF_LRU	BIT(4)	/* on the list of its host slot, else of its area slot */
#define ENTF_PARTIAL	BIT(5)	/* a tail: fewer ids than a block has tokens */
#define ENTF_BESIDE	BIT(6)	/* an ENT_IN is in flight beside the ENT_WRITE */
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
 * @domain: index of the domain; ENTRY_UNUSED: the record is free
 * @io:     the request in flight for the entry, ENT_*
 * @refs:   table entries of swapped sequences that name the entry
 * @dev:    block of the device that has the same content, or that a copy for
 *          the entry reads or fills
 * @host:   slot in the host pool
 * @area:   slot in a swap area
 * @nr_ids: valid tokens of the content
 * @prev, @next: the list of the part of its highest valid slot; or the free list
 * @generation: raised with each request; part of the request's id
 * @io_prev, @io_next: the area's list of requests in flight that are not
 *          overdue (stall.c)
 * @node:       name of the entry in the index, ENTF_INDEXED only
 * @waiters:    restoring sequences that wait until @dev is filled, linked by
 *              kv_seq.fill_next
 * @tries:      failed attempts of the read under way
 * @again:      AGAIN_*: requests that are to be ordered again, see adopt.c
 * @moving:     the read is part of emptying an area (area_move.c)
 * @group:      layer group of the content
 * @started:    time at which the request in flight began
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
	u8	moving;
	u8	group;
	u64	hash[2];
	u64	started;
};
static_assert(sizeof(struct kv_entry) == 88, "no hole in an entry");

/* kv_entry.again: requests of an entry that are to be ordered again */
#define AGAIN_IO	BIT(0)	/* the request of kv_entry.io */
#define AGAIN_BESIDE	BIT(1)	/* the ENT_IN beside it */

/* The index refers to a block, or to a lower-tier entry with this bit. */
#define REF_ENTRY	0x80000000u

/* Recent failures of an area in one direction, see area_io.c. */
struct kv_bad {
	u32	level;
	u32	resv;
	u64	since;		/* time at which a failure was last forgiven */
};

/* Recent requests to an area in one direction: their time, bytes and number. */
struct kv_rate {
	u64	ns;
	u64	bytes;
	u32	nr;
	u32	resv;
};

/**
 * struct kv_copies - the rate of copies, see answer.c
 * @now:    least nanoseconds for a KiB in the window
 * @before: in the window before it; 0: there is none
 * @nr:     copies of the window
 */
struct kv_copies {
	u64	now;
	u64	before;
	u32	nr;
	u32	resv;
};

/**
 * struct kv_pool - the extents of a pool, and the health of an area
 * @nr_ios:     requests in flight
 * @readonly:   the area takes no new slots
 * @loose:      extents that a span can be made of: EXT_BACKED ones, and in the
 *              device pools EXT_ABSENT ones
 * @cursor:     extent at which the next search for a run begins; struct kv_zone has
 *              that of each device pool
 * @nr_overdue: requests of @nr_ios that were not answered in time: the area is
 *              stalled
 * @io_head:    list of the other requests in flight, oldest first
 * @moved:      time of the last answer, or of the first request after the area
 *              was idle
 * @errors:     failed requests, ever
 * @bad:        recent failures; [0]: reads, [1]: writes
 * @rate:       measured rate of reads [0] and writes [1]
 * @out:        bytes of reads [0] and writes [1] in flight
 * @away:       time before which no slot is taken, because swapd did not have
 *              the area
 * @passed:     slots that other areas of its priority got since its last one
 * @leaving:    the area is being emptied, see area_move.c
 * @move_at:    entry at which the scans of area_move.c go on
 * @nr_moving:  reads in flight that empty the area
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

/**
 * struct kv_zone - one device pool: a range of the extents
 * @first:      its first extent
 * @nr_extents: extents that it has address space and records for
 * @nr_online:  of these, the first ones, which are in use; see resize.c
 * @loose:      as in struct kv_pool
 * @cursor:     likewise
 * @resizing:   extents past @nr_online are not all offline yet
 * @resized:    time at which the resize began
 * @device:     CORE_DEVICE_*
 * @create_after: time before which no extent is made
 * @evac_after: time before which no span is emptied for others
 * @touched:    bytes of all prompts admitted in it, cached or new
 *
 * A domain is in one device pool, or in several neighbouring ones (kv_domain.shards),
 * and never takes memory of another.  The lower tiers are common to all device pools.
 */
struct kv_zone {
	u32	first;
	u32	nr_extents;
	u32	nr_online;
	u32	loose;
	u32	cursor;
	u32	resizing;
	u32	device;
	u32	resv;
	u64	resized;
	u64	create_after;
	u64	evac_after;
	u64	touched;
};

/* ---- tenants and domains ---- */

/**
 * struct kv_tenant - a group of domains that no other tenant may see
 * @ghosts: lingering clients: they detached, and their processes may live on
 *          with extents mapped (kv_extent.haunted)
 * @quota:  the tenant's limits, as the shell last gave them
 * @asked:  bytes of memory.min [0] and memory.low [1] that its clients ask for
 *          together; written by limit_settle()
 * @left:   time at which its last client left
 * @draining: clients of the tenant may begin nothing new, see operate.c
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
 * struct kv_part - the memory of a domain in one pool
 * @used:         the domain can have blocks in this pool
 * @span_extents: extents of a span, in each device pool
 * @span_blocks:  blocks of a span
 * @span_tail:    bytes at the end of a span that no block uses
 * @block_bytes:  bytes of a block in each device pool; in a lower pool those of a slot,
 *                with all shards of a block, header and padding
 * @max_bytes, @max_blocks: memory.max; in a lower pool swap.max
 * @nr:           blocks in each state, in all spans of the part
 * @reserved:     free blocks that are reserved for admitted prompts; never
 *                above part_free()
 * @isolated_free, @isolated_cached: free and cached blocks in isolated spans
 * @peak:         most blocks that were in use at once
 * @nr_empty:     spans of @nr_spans without a block in use
 * @pending_spans: spans that are being made, or claimed from other tenants
 * @keep_spans:   empty spans stay with the part; set inside one event only
 * @class:        lists of spans by fullness
 * @classes:      bit set of the lists of @class that are not empty
 * @class_scale:  see span_class()
 * @lru_head, @lru_tail: in a lower pool: entries with a valid slot, the oldest
 *                first; in an area only those without one in the host pool
 * @write_next:   in the host pool: slot at which the next scan for slots to
 *                write begins
 * @slot_out:     slots.c: slot that the last block was copied out to
 * @slot_nr:      slots.c: blocks of the same sequence that were still to follow
 * @slot_last:    slots.c: slot last taken for the content of a slot in the
 *                other tier
 * @slot_peer:    slots.c: that slot in the other tier
 * @slot_row:     slots.c: neighbouring slots that were taken that way in a row
 * @nr_needed:    slots of entries that tables name, filled or not
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
	u32	nr_needed;
};

/**
 * struct kv_domain - the blocks of one (tenant, model identity, layout)
 * @dev:          its part in its device pool; its other parts are core.parts
 * @zone:         its first device pool, an index of core_head.zones
 * @shards:       device pools that it is in, from @zone on: each has a part of every
 *                block, all of the same size and at the same place
 * @group:        its layer groups, @nr_groups of them, block_tokens filled in
 * @stride:       bytes between layers of a block, for each group; between units of a
 *                record, for a group of records
 * @width:        blocks of a record, for each group; 1 in a group without records
 * @window:       tokens that a token needs of each group, itself included; 0: all
 *                before it.  2 in a group of records, of which it needs the last
 * @widths:       sum of @width over the groups
 * @has_records:  a group has records that each token changes
 * @base_tokens:  greatest common divisor of the groups' block_tokens: names are made
 *                of so many ids at a time
 * @hit_tokens:   least common multiple: a hit of several groups has whole ones
 * @ids_tokens:   the largest: ids that each block has room for
 * @step_tokens:  of the attach message of the first client that it has now
 * @high_blocks:  memory.high in blocks
 * @emin, @elow:  blocks that memory.min and memory.low protect, see limit.c; 0
 *                while the domain has no clients
 * @weight:       weight by which the surplus is divided
 * @by_operator:  bit set of the limits that an operator set
 * @operator_limit: values of these limits
 * @asked_limit:  limits that the first client asked for when it attached
 * @nr_shared:    blocks that more than one sequence maps
 * @nr_revokes:   spans of @dev.pending_spans claimed from other tenants
 * @wait_head:    wait list, by priority, then arrival (queue.c)
 * @run_head:     running sequences
 * @wait_root, @ready_root, @refused_root: trees of sequences, see order.c
 * @soon:         blocks that running sequences may take before anything can be
 *                done about it, @tails not included; see tally.c
 * @tails:        mappings of open blocks that more than one sequence maps
 * @nr_swapped:   sequences of @nr_waiting that are swapped out
 * @age_head:     waiting sequences, the longest-waiting first
 * @retry:        the first waiting sequence is to be tried again
 */
struct kv_domain {
	struct kv_part dev;
	u32	used;
	u32	tenant;
	u32	zone;
	u32	shards;
	char	name[KVMM_NAME_LEN];
	u8	identity[KVMM_IDENTITY_LEN];
	struct kvmm_group group[KVMM_MAX_GROUPS];
	u64	stride[KVMM_MAX_GROUPS];
	u32	width[KVMM_MAX_GROUPS];
	u32	window[KVMM_MAX_GROUPS];
	u32	nr_groups;
	u32	has_records;
	u32	widths;
	u32	base_tokens;
	u32	hit_tokens;
	u32	ids_tokens;
	u32	step_tokens;
	u32	nr_clients;
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
	u32	roots;		/* circle of the names without a parent, see kv_node */
	u32	nr_revokes;
	u64	displace_after;	/* time before which no run is displaced for it (displace.c) */
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
	u32	nr_marked;	/* marked sequences */
	u32	nr_max_events;
	u32	nr_preempted;
	u32	high_ask;	/* what it asks of memory.high beside wmark_min(), or 0 */
	u32	move_waits;	/* scratch of resize.c: a span of it waits for room to move */
	u32	close_waits;	/* reservations keep a leaving span open, see resize.c */
	u32	blocked;	/* refused in this round of admit_all(): not tried again in it */
	u32	stalled;	/* blocks that the first waiting sequence lacks room for, or 0 */
	u32	promised;	/* that sequence is within memory.min */
	u32	nr_high_events;
	u32	nr_low_events;
	u32	nr_filling;	/* LIMBO blocks that a copy fills */
	u32	host_wanted;	/* a restore waits for host slots */
	u32	growth;		/* blocks that running sequences' tables can grow by (commit.c) */
	u32	floor;		/* cache floor in blocks, see limit.c; 0 without clients */
	u32	reclaiming;	/* the background reclaimer is awake, see wmark.c */
	u32	salvaged;	/* blocks with BLKF_SALVAGED */
	u32	kept;		/* its capacity in blocks since the device failed, see device.c */
	u32	serial;		/* number of this domain among all ever made, see why.c */
	u32	own_ask;	/* own blocks that a waiter counts on, beside wmark_min(), or 0 */
	s64	lag;		/* its share above the mean, over time, see limit.c */
	u64	prefill_ns_token;	/* prefill time of a token, from its clients; see step.c */
	u64	left;		/* time at which its last client left */
	u64	touched;	/* kv_zone.touched at its last use, see limit.c */
	u64	look_after;	/* kv_zone.touched at which steal.c looks for spare cache again */
	u64	alloc_since;	/* begin of the window of @alloc_nr, see demote.c */
	u32	alloc_nr;	/* blocks allocated in this window */
	u32	alloc_last;	/* in the window before it */
	u32	pays;		/* bit set of the answers of demote.c */
	u32	writethrough;	/* full blocks are copied to the host pool at once */
	u32	leased;		/* table entries of its leases, see lease.c */
	u32	nr_leases;
	u64	demote_since;	/* since when a request waits for copies; 0: none does */
	struct core_work work;	/* for readers; no decision reads it, see step.c */
	struct kv_psi psi;
};

/* ---- sequences ---- */

#define SEQF_CLOSING	BIT(0)	/* CLOSE came while a step was open */
#define SEQF_MATCHED	BIT(1)	/* its ids are complete: it may be admitted */
#define SEQF_QUEUED	BIT(2)	/* on its domain's wait list */
#define SEQF_RUNNING	BIT(3)	/* on its domain's run list: resident */
#define SEQF_PREEMPTED	BIT(4)	/* lost its memory at least once */
#define SEQF_SWAPPED	BIT(5)	/* its table names lower-tier entries, not blocks */
#define SEQF_PAGEDOUT	BIT(6)	/* paged out by advice; only advice brings it back */
#define SEQF_DECIDED	BIT(7)	/* its swap out is decided, cheap or not; clear between events */
#define SEQF_COLD	BIT(8)	/* by advice: blocks that it leaves to the cache are old */
#define SEQF_DONTNEED	BIT(9)	/* by advice: it leaves no blocks to the cache */
#define SEQF_REFUSED	BIT(10)	/* its last BEGIN found no memory */
#define SEQF_COPY	BIT(11)	/* one reserved block is for the copy of its tail */
#define SEQF_IN_READY	BIT(12)	/* in its domain's ready_root */
#define SEQF_IN_REFUSED	BIT(13)	/* in its domain's refused_root */
#define SEQF_RETAIN	BIT(14)	/* its blocks' retention class may have to change, see advise.c */
#define SEQF_LEASE	BIT(15)	/* a lease, see lease.c: it never runs */
#define SEQF_DROPFOUND	BIT(18)	/* with SEQF_DONTNEED: nor those that lookups found */
#define SEQF_PROMOTE	BIT(16)	/* a lease on the list of those to be promoted */

/* Links of a sequence in a tree, see order.c. */
#define NODE_ORDER	0	/* links in wait_root or ready_root */
#define NODE_REFUSED	1
#define NR_NODES	2

/**
 * struct kv_wait - why a sequence was not admitted when it was last tried
 * @why:    CORE_WAIT_*
 * @dom:    domain that it waits for; CORE_NONE: it waits for no domain
 * @serial: kv_domain.serial of that domain
 * @since:  time since which @why has been the reason
 */
struct kv_wait {
	u32	why;
	u32	dom;
	u32	serial;
	u32	resv;
	u64	since;
};

/**
 * struct kv_taken - memory that a sequence lost by preemption; see why.c
 * @when:   time of the last preemption; 0: never
 * @back:   time of the next admission after it; 0: not admitted yet
 * @ns:     sum of the times without memory that are over
 * @blocks: blocks that the last preemption took; the fields below are of the
 *          last preemption, too
 *          preemption, too
 * @len:    tokens that were valid
 * @found:  tokens of @len that were valid when the sequence was admitted again
 * @kept:   the sequence was swapped out
 * @by_domain: domain that the memory was taken for; CORE_NONE: for no domain
 * @by_serial: kv_domain.serial of that domain
 * @by_client: client of the sequence that the memory was taken for; CORE_NONE:
 *          only the domain is known
 * @by_seq: number of that sequence
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
 * @fam_next:   circle of the family; the sequence itself when it is alone
 * @arrival:    stamp of the daemon; a fork has that of its parent
 * @valid_len:  tokens whose KV is valid
 * @cover:      end of the positions that open steps may write, at least
 *              @valid_len
 * @nr_steps:   open steps that name the sequence
 * @last_step:  number of the last step that named it
 * @epoch:      raised when the sequence is marked or preempted
 * @nr_ids:     ids that its client sent for the next match
 * @prev, @next: wait list or run list of the domain (queue.c)
 * @fill_group: groups before it are filled, RESTORING only
 * @fill:       table indices of @fill_group below it are filled
 * @fill_on:    entry whose content the block at @fill gets, else CORE_NONE
 * @fill_prev, @fill_next: list of the sequences that wait for this entry
 * @known_len:  tokens that it computed although the index had had them before
 * @keep_until: by advice: time until which blocks that it leaves to the cache
 *              are evicted last; 0: no such time
 * @start, @end: the positions that each open step covers, by the place of the step in
 *              the client's ring; @end of a step without the sequence is 0
 * @since:      time at which it was admitted, or began to wait
 * @active:     time at which it was last admitted or granted, or restored by
 *              advice
 * @admitted:   time at which it was last admitted; @since moves on when its blocks
 *              are filled
 * @back:       time at which it had more than @lost_len tokens for the first time
 *              since; 0: not yet
 * @lost_len:   the most tokens that were valid when its memory was taken; less if
 *              it was truncated since; the other sequence's after a REMAP
 * @again:      time of the first refusal to grow since the last grant; 0: none
 * @refused:    time of the last refusal to grow since the last grant; 0: none
 * @stuck:      time since which its restore finds no host slots; 0: it has them
 * @psi_domain, @psi_node: its class in the pressure of the domain and of the
 *              node, PSI_*; written by psi.c
 * @nr_retains: entries of @retains; a newer one overrides an older one
 * @born:       number of the request that made it
 * @in_soon, @in_marked, @in_pages, @in_growth: its part in the sums of tally.c
 * @age_prev, @age_next: list of waiting sequences by age (kv_domain.age_head)
 * @tab:        its table of group 0; core.tabs has those of the other groups
 * @found:      leading blocks of its prompt that were in the index when it was
 *              last looked up
 * @found_hash: name of the last of these blocks
 * @cause:      CORE_CAUSE_*: why its memory is taken, or was last taken
 * @wait, @taken: for kvctl, see why.c; no decision reads them
 * @opened:     time at which it was opened; 0: its prompt was computed once, or it is
 *              a fork.  No decision reads it
 * @until:      of a lease: time at which it ends
 * @label:      of a lease: text of its client for operators
 * @lease_at:   of a lease: its place in core.leases
 * @promote_at: of a lease: table indices below it were promoted
 * @rank:       its rank in the trees, see order.c
 * @oldest:     least @since in its subtree of the NODE_ORDER tree
 * @kid:        its children in each tree: before it [0] and after it [1]
 */
struct kv_seq {
	/* Each step reads or writes these members: four cache lines. */
	u32	generation;
	u32	state;
	u32	flags;
	u32	client;
	u32	domain;
	u32	nr_steps;
	u32	epoch;
	u32	prompt_len;
	u32	max_tokens;
	u32	valid_len;
	u32	cover;
	u32	lost_len;
	u64	last_step;
	u64	again;
	struct kv_tab tab;
	u32	end[KVMM_MAX_STEPS];
	u32	start[KVMM_MAX_STEPS];
	u64	active;
	u64	back;
	u64	opened;
	u32	cached_len;
	s32	reason;
	u32	limiting_pool;
	u8	psi_domain;
	u8	psi_node;
	u16	in_marked;

	u32	open_flags;
	u32	priority;
	u32	family;
	u32	fam_prev;
	u32	fam_next;
	u32	nr_ids;
	u32	id_head;
	u32	id_tail;
	u32	prev;
	u32	next;
	u64	arrival;
	u64	salt;
	u64	since;
	u64	refused;
	u64	admitted;
	u32	nr_preempted;
	u32	fill;
	u32	fill_on;
	u32	fill_prev;
	u32	fill_next;
	u32	in_soon;
	u32	in_growth;
	u32	fill_group;
	u64	stuck;
	u64	keep_until;
	u32	known_len;
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
	u64	born;
	u64	until;
	u32	lease_at;
	u32	promote_at;
	char	label[KVMM_LABEL_LEN];
	struct kv_wait wait;
	struct kv_taken taken;
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
	CLI_DETACHED,		/* the client sent DETACH; its slot is held until it hangs up */
	CLI_DEAD,		/* its device may still write */
};

/* kv_client.away */
enum {
	AWAY_NOT,
	AWAY_WHOLE,		/* adopted with all its state, not resumed yet */
	AWAY_SALVAGED,		/* likewise, but its last requests are void */
};

/**
 * struct kv_client - one attached process
 * @dead_since:  time of its death, from which the quiet deadline runs
 * @last_number: number of its last request
 * @last_step:   number of the last step that it began
 * @step_head:   oldest open step, an index into its ring of steps
 * @free_seq:    list of its free sequence slots, local indices
 * @free_page:   list of its free table pages, local indices
 * @unused_page: first of its table pages that was never used
 * @again:       time at which a grant was last refused for lack of memory
 * @promised:    table pages that are reserved for its running sequences
 * @nr_marked:   its marked sequences, whose steps are open
 * @nr_unacked:  extents that it was sent and has not acknowledged; of a leader also
 *               those of its ranks, and one for each shard that no client maps
 * @unacked_since: time since which there are such extents
 * @committed:   number of its last request that was answered
 * @back:        time at which it resumed after an adoption; the deadlines of
 *               its open steps begin there
 * @away:        AWAY_*; a client that is away has no segments
 * @begun:       steps that it began, modulo 2^32
 * @draining:    it may begin nothing new, see operate.c
 * @leader:      client whose sequences it maps memory for: itself, unless it is a rank
 *               (ranks.c); CORE_NONE: that client has gone
 * @shards:      bit set of the shards of the domain that it maps
 * @member:      of a leader: the client that maps each shard; CORE_NONE: none does
 * @broken:      a client that it works with has died: it is killed, or will be when it
 *               is back
 * @quiet:       its process has ended, and its record waits for those of its ranks
 * @joining:     a new rank that has not mapped all extents that it was sent first: its
 *               shard counts as one that no client maps
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
	u32	unused_page;
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
	u32	leader;
	u32	shards;
	u32	broken;
	u32	quiet;
	u32	joining;
	u32	member[CORE_MAX_ZONES];
};

/**
 * struct kv_step - an open step
 * @held: list of the kv_hold records of blocks that the step may read and its
 *        sequences no longer map
 */
struct kv_step {
	u64	number;
	u64	begun;
	u32	nr;
	u32	held;
};

/* A granted entry of an open step; @src: blocks that its tails are copied from. */
struct kv_step_entry {
	u32	seq;
	u32	start;
	u32	end;
	u32	resv;
	u32	src[KVMM_MAX_GROUPS];
};

/**
 * struct kv_remap - one entry of the SEQ_REMAP under way; scratch of remap.c
 * @child:   sequence; CORE_NONE: the entry is not carried out
 * @other:   sequence whose table it gets
 * @readers: entries not yet carried out that read the child's old table
 * @order:   the entries that overwrite a table, in the order of doing so
 */
struct kv_remap {
	u32	child;
	u32	other;
	u32	readers;
	u32	order;
	s32	err;
	u32	resv;
};

/* ---- scratch of one event ---- */

/*
 * Scratch of a scan for memory.  It means nothing between events, so it is
 * kept outside the records, and an adopting core clears it.
 */

/**
 * struct span_scan - a span, as steal.c, displace.c and evacuate.c see it
 * @counted: first extent plus one of the run that would take the span; 0: none
 * @cost:    cost of taking the span, RUN_*
 * @pass:    cost of the pass in which the span was counted
 */
struct span_scan {
	u32	counted;
	u32	cost;
	u32	pass;
};

/**
 * struct domain_scan - a domain, as the same files see it
 * @spare: free blocks that it does not need, without those of counted spans
 * @lost:  blocks in use that it would lose with the counted spans
 */
struct domain_scan {
	u32	spare;
	u32	lost;
};

/**
 * struct tenant_scan - a tenant, as revoke_prepare() sees it
 * @keeps: it keeps its extents: one of its sequences waits longer than the
 *         sequence that memory is looked for
 * @stays: it keeps extents that it has had for less than starve_ns
 */
struct tenant_scan {
	u32	keeps;
	u32	stays;
};

/**
 * struct seq_scan - a sequence
 * @barred:   displace.c: core_head.bar_pass of the pass that spares its family
 * @plan:     remap.c: its entry as a child plus one, else 0
 * @plan_err: remap.c: why its family is left alone, else 0
 * @low:      migrate.c: first position that open steps may write
 */
struct seq_scan {
	u32	barred;
	u32	plan;
	s32	plan_err;
	u32	low;
};

/* ---- the arena ---- */

#define CORE_ARENA_MAGIC	0x31414d4d564b4843ull
/* Raise it when a record of the same size gets another meaning. */
#define CORE_ARENA_VERSION	6u

/* Without holes: an arena is adopted only if all bytes are the same. */
struct core_sizes {
	u32	nr_extents;		/* of all device pools */
	u32	all_extents;
	u32	nr_parts;
	u32	nr_entries;
	u32	blocks_per_extent;	/* a power of two, 1 << block_shift */
	u32	block_shift;
	u32	ids_per_extent;
	u32	nr_blocks;
	u64	unit_shift;		/* of a unit's bytes, see entry_unit() */
	u64	nr_ids;
	u32	nr_buckets;
	u32	nr_nodes;
	u32	nr_holds;
	u32	nr_ghosts;		/* in whole sets */
	u32	nr_seqs;
	u32	nr_tpages;
	u32	nr_idpages;
	u32	nr_steps;
	u64	nr_step_entries;
	u64	nr_scratch;		/* also an entry of each table page of a client */
};

/*
 * Most bytes that a block of the device may cost in all tables that grow with
 * the pool, without the ids, which take 4 bytes a token.
 */
#define CORE_BLOCK_BYTES	96u

static_assert(sizeof(struct kv_block) + sizeof(struct kv_node) +
	      sizeof(struct kv_ghost) + 4 /* bucket */ + 4 /* scratch */ <=
	      CORE_BLOCK_BYTES - 4, "leaves 4 for extents and spans");

/* The arrays of the arena: name, type, length. */
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
	x(tabs,		struct kv_tab,		(u64)s->nr_seqs * CORE_MORE_GROUPS) \
	x(leases,	u32,			s->nr_seqs)		\
	x(tpages,	struct kv_tpage,	s->nr_tpages)		\
	x(idpages,	struct kv_idpage,	s->nr_idpages)		\
	x(steps,	struct kv_step,		s->nr_steps)		\
	x(entries,	struct kv_step_entry,	s->nr_step_entries)	\
	x(holds,	struct kv_hold,		s->nr_holds)		\
	x(scratch,	u32,			s->nr_scratch) \
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
	u32	event;			/* an event is under way, see core_event() */
	u32	resv0;
	struct core_config cfg;
	struct core_sizes sizes;
	u64	arrival;		/* next arrival stamp */
	u32	family;			/* next family id */
	u32	free_idpage;
	u32	nr_free_idpages;
	u32	nr_revokes;
	u32	nr_tenants;		/* tenants in use */
	u32	nr_zones;		/* device pools */
	u32	bar_pass;		/* pass of displace.c, see seq_scan.barred */
	u32	more;			/* MORE_*: work that admit_all() left undone */
	u32	life_shift;		/* life.c samples one block in 2^this */
	u32	trace_on;		/* bit set of the events that are recorded */
	u32	serial;			/* kv_domain.serial of the last domain made */
	u32	draining;		/* no client may begin anything new, see operate.c */
	struct kv_zone zones[CORE_MAX_ZONES];
	struct kv_revoke revokes[CORE_MAX_REVOKES];
	u64	ticked;			/* time of the last tick */
	struct kv_pool pools[CORE_NR_POOLS];
	u32	free_entry;
	u32	nr_free_entries;
	u32	free_node;
	u32	nr_free_nodes;
	u32	nr_copies;		/* copies between device and host in flight */
	u32	nr_ios;
	u32	nr_overdue;		/* requests of nr_ios not answered in time */
	u32	stalled;		/* bit set of the areas with overdue requests */
	u64	copy_ns_kb;		/* of the last copies; 0: not known yet */
	struct kv_copies copies;
	u64	copy_last;		/* time of the last answer to a copy */
	u32	free_hold;
	u32	nr_moves;		/* moves in flight, not part of nr_copies */
	struct kv_move moves[CORE_MAX_MOVES];
	struct kv_evac evacs[CORE_MAX_EVACS];
	u64	evac_look;		/* time at which stalled domains are tried again */
	u64	clean_after;		/* time before which no block is cleaned ahead (tier.c) */
	u32	nr_leases;		/* entries of core.leases in use */
	u32	promote_head;		/* leases whose content is promoted, see leases.c */
	u32	promote_tail;
	u32	resv1;
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
	u32	again;		/* the first tick orders requests again, see adopt.c */
	u32	none_stalled;	/* no domain is stalled; 0: one may be */
	u32	trace_on;	/* as in the head; 0: there is no ring */
	struct core_trace *trace;	/* NULL: there is no ring, see trace.c */
	struct core_names *names;	/* NULL: the shell does not hear of names, see names.c */
	u32	wait;		/* reason for the next refusal, see why.c */
	u32	wait_dom;
	u32	taker;		/* domain that memory is taken for now */
	bool	demoted;	/* evicted blocks of a span are being copied, see reclaim.c */
#define x(name, type, count) type *name;
	CORE_ARENA(x)
#undef x
	struct core_bind bind[64];
	u32	prompt[KVMM_MAX_BLOCK_TOKENS];	/* scratch of match.c: ids of one block */
};

#endif /* KVMM_CORE_BASE_RECORDS_H */
