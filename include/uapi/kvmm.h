/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kvmm.h - the ABI between kvmm and its clients
 *
 * A client attaches over a Unix seqpacket socket (struct kvmm_attach_req and
 * _rep), receives two shared segments and an eventfd, and from then on talks
 * through rings:
 *
 *   segment C, written by the client    struct kvmm_client_ctl, submission
 *                                       entries, the argument area
 *   segment D, written by the daemon    struct kvmm_daemon_ctl, completions,
 *   (mapped read-only by the client)    results, events, status records,
 *                                       block tables
 *
 * Rings have one producer and one consumer.  Indices run freely and are
 * masked on use; each side keeps its own privately and publishes copies, so
 * that a scribbled word can be noticed but never followed.  All words of a client
 * are hints: kvmm copies them once, checks the copy, then uses the copy.
 *
 * Rules of this header: fixed-size integers, explicit padding, no holes,
 * sizes that are multiples of eight, reserved fields that must be zero (kvmm
 * answers -EINVAL otherwise), no enum, pointer or C11 atomic in a structure.
 * It compiles as C11, C++17 and CUDA.  Accesses to shared words go through
 * the __atomic builtins (see include/kvmm/ring.h); the fields stay plain.
 */
#ifndef _UAPI_KVMM_H
#define _UAPI_KVMM_H

#include <linux/types.h>
#include <stddef.h>

#ifdef __cplusplus
#define KVMM_STATIC_ASSERT(cond, why)	static_assert(cond, why)
#else
#define KVMM_STATIC_ASSERT(cond, why)	_Static_assert(cond, why)
#endif
#define KVMM_ASSERT_SIZE(type, size)					\
	KVMM_STATIC_ASSERT(sizeof(struct type) == (size),		\
			   "size of " #type " is ABI")
#define KVMM_ASSERT_OFFSET(type, field, off)				\
	KVMM_STATIC_ASSERT(offsetof(struct type, field) == (off),	\
			   "offset of " #type "." #field " is ABI")

#define KVMM_ABI_VERSION	2	/* raised by changes that old clients would misread */
/*
 * FNV-1a over tests/data/uapi-layout.txt, the list of every structure, field, offset, size and
 * number of this header; the test that writes that list checks it.
 */
#define KVMM_LAYOUT_HASH	0x1e3a448123977527ull	/* of the layout below */

/* Sizes, and numbers that stand for none */

#define KVMM_MAX_GROUPS		8	/* layer groups of a model */
#define KVMM_MAX_SHARDS		8	/* device pools that a block has a part in */
#define KVMM_MAX_TIERS		3	/* device, host, swap */
#define KVMM_NAME_LEN		64	/* domain name, with its NUL */
#define KVMM_IDENTITY_LEN	32	/* digest of the model identity */
#define KVMM_LABEL_LEN		16	/* label of a lease */
#define KVMM_MAX_STEPS		4	/* open at once, for one client */
#define KVMM_MIN_BLOCK_TOKENS	16	/* block_tokens is a multiple of it */
#define KVMM_MAX_BLOCK_TOKENS	4096	/* most block_tokens */
#define KVMM_NO_INDEX		0xffffffffu	/* no block, no table page */
#define KVMM_NO_POOL		0xffffffffu	/* the sequence waits for no pool */
#define KVMM_LIMIT_MAX		0xffffffffffffffffull	/* "max": no limit */

/* ------------------------------------------------------------------ */
/* Attach                                                              */

/* First word of each message on the socket */
#define KVMM_ATTACH_MAGIC	0x3148434154544131ull	/* kvmm_attach_req.magic */
#define KVMM_REPLY_MAGIC	0x31594c5045523131ull	/* kvmm_attach_rep.magic */
#define KVMM_MAP_MAGIC		0x315458454d414d31ull	/* kvmm_map_msg.magic */

/* kvmm_attach_req.flags */
#define KVMM_ATTACH_RESUME	(1u << 0)	/* resume_* name the old attachment */
#define KVMM_ATTACH_ASK		(1u << 1)	/* ask only for the memory type of the pool */

/* Feature bits: asked for in the request, granted in the reply. */
#define KVMM_FEAT_REMAP		(1ull << 0)	/* SEQ_REMAP */
#define KVMM_FEAT_TRUNCATE	(1ull << 1)	/* SEQ_TRUNCATE */
#define KVMM_FEAT_TRIM		(1ull << 2)	/* SEQ_TRIM */
#define KVMM_FEAT_ADVISE	(1ull << 3)	/* SEQ_ADVISE */
#define KVMM_FEAT_SWAP		(1ull << 4)	/* sequences may be swapped out */
#define KVMM_FEAT_RESUME	(1ull << 5)	/* the next daemon may take it back */

/* kvmm_group.kind */
#define KVMM_GROUP_KV		0	/* K and V of each token */
#define KVMM_GROUP_STATE	1	/* a record that each token changes */

/**
 * struct kvmm_group - the shape of one layer group's KV
 * @layers:      layers of the group
 * @kv_heads:    KV heads in this shard; of KVMM_GROUP_STATE: units of a layer
 * @k_bytes:     bytes of K for one head and token; of KVMM_GROUP_STATE: bytes of a unit
 * @v_bytes:     bytes of V for one head and token; 0 for MLA
 * @scale_bytes: bytes of scale for one head and token, K and V each; 0: none
 * @window:      tokens that a token attends to, itself included; 0: all before it
 * @block_tokens: tokens of a block of this group: a multiple of KVMM_MIN_BLOCK_TOKENS, at most
 *               KVMM_MAX_BLOCK_TOKENS; 0: kvmm_attach_req.block_tokens; of KVMM_GROUP_STATE:
 *               tokens between two records that are kept as cache
 * @kind:        KVMM_GROUP_*
 *
 * Blocks of all groups of a domain have the same number of bytes, that of the largest.  A prefix
 * hit has a length that is a multiple of the block_tokens of each group.
 */
struct kvmm_group {
	__u32	layers;
	__u32	kv_heads;
	__u32	k_bytes;
	__u32	v_bytes;
	__u32	scale_bytes;
	__u32	window;
	__u32	block_tokens;
	__u32	kind;
};
KVMM_ASSERT_SIZE(kvmm_group, 32);

/**
 * struct kvmm_limits - limits that a domain asks for in one tier, in bytes
 * @min:  other domains never take memory below it
 * @low:  other domains take memory below it only when nothing else is left
 * @high: above it new sequences wait and the domain reclaims its own cache
 * @max:  never exceeded; KVMM_LIMIT_MAX: no limit
 */
struct kvmm_limits {
	__u64	min;
	__u64	low;
	__u64	high;
	__u64	max;
};
KVMM_ASSERT_SIZE(kvmm_limits, 32);

/**
 * struct kvmm_attach_req - first and only message of a client
 * @magic:        KVMM_ATTACH_MAGIC
 * @abi_version:  KVMM_ABI_VERSION
 * @flags:        KVMM_ATTACH_*
 * @layout_hash:  KVMM_LAYOUT_HASH
 * @features:     KVMM_FEAT_* that the client would use
 * @domain:       name of the domain, unique in the tenant, NUL-terminated
 * @identity:     digest of the model identity
 * @block_tokens: tokens of a block: a multiple of KVMM_MIN_BLOCK_TOKENS, at most
 *                KVMM_MAX_BLOCK_TOKENS
 * @nr_shards:    device pools that each block has a part in, 1 to KVMM_MAX_SHARDS.  @group
 *                and @limits are those of one part
 * @pool:         first device pool that the domain is to be in, plus 1; the other shards are
 *                in the pools behind it.  0: where it is, and a new domain where there is the
 *                most room
 * @shard:        part of each block that the client maps, from 1 on; 0: all parts
 * @leader:       client id, plus 1, of a client of the domain that opens sequences: this
 *                client is a rank that maps @shard for it.  0: it opens sequences itself
 * @nr_groups:    used entries of @group, 1 to KVMM_MAX_GROUPS
 * @max_steps:    most steps open at once, 1 to KVMM_MAX_STEPS
 * @sq_entries:   submission entries wanted, a power of two
 * @max_seqs:     sequences wanted
 * @group:        the layout of KV
 * @limits:       limits asked for, one entry a tier
 * @weight:       share of the surplus under contention, 1 to 10000
 * @step_tokens:  most tokens of a sequence that one step writes, a hint for the reservation of
 *                groups with a window; 0: not known
 * @resume_epoch: daemon_epoch of the attachment to resume
 * @resume_token: token of that attachment
 * @resume_seen:  number of the last request that has a completion in the client's ring
 * @resume_client: client id of that attachment
 * @resume_index: index of the first completion that is not in the client's ring
 *
 * With KVMM_ATTACH_RESUME the daemon ignores the fields from @domain to @weight: they stay as they
 * were.  With KVMM_ATTACH_ASK it ignores all fields behind @layout_hash: the reply's status is
 * -ECANCELED, its memory and device are valid, and the daemon hangs up.
 */
struct kvmm_attach_req {
	__u64			magic;
	__u32			abi_version;
	__u32			flags;
	__u64			layout_hash;
	__u64			features;
	char			domain[KVMM_NAME_LEN];
	__u8			identity[KVMM_IDENTITY_LEN];
	__u32			block_tokens;
	__u32			nr_shards;
	__u32			nr_groups;
	__u32			max_steps;
	__u32			sq_entries;
	__u32			max_seqs;
	struct kvmm_group	group[KVMM_MAX_GROUPS];
	struct kvmm_limits	limits[KVMM_MAX_TIERS];
	__u32			weight;
	__u32			step_tokens;
	__u64			resume_epoch;
	__u64			resume_token[2];
	__u64			resume_seen;
	__u32			resume_client;
	__u32			resume_index;
	__u32			pool;
	__u32			shard;
	__u32			leader;
	__u32			resv;
};
KVMM_ASSERT_SIZE(kvmm_attach_req, 568);
KVMM_ASSERT_OFFSET(kvmm_attach_req, group, 152);
KVMM_ASSERT_OFFSET(kvmm_attach_req, resume_seen, 536);
KVMM_ASSERT_OFFSET(kvmm_attach_req, pool, 552);

/* kvmm_attach_rep.resumed */
#define KVMM_RESUMED_NO		0	/* a new attachment */
#define KVMM_RESUMED_WHOLE	1	/* all is as it was */
#define KVMM_RESUMED_SALVAGED	2	/* no step is open, all sequences are to be matched again */

/* kvmm_attach_rep.memory: type of the descriptors of extents */
#define KVMM_MEMORY_HOST	0	/* files in memory, to be mapped */
#define KVMM_MEMORY_CUDA	1	/* allocations of a CUDA driver, to be imported */

/**
 * struct kvmm_attach_rep - the daemon's answer
 * @magic:         KVMM_REPLY_MAGIC
 * @abi_version:   the daemon's KVMM_ABI_VERSION, also when it refuses
 * @status:        0, or a negative errno; then only @text is valid further
 * @layout_hash:   the daemon's KVMM_LAYOUT_HASH
 * @features:      KVMM_FEAT_* granted
 * @daemon_epoch:  raised at every cold start
 * @token:         names this attachment for a later resume
 * @client:        id of the client in the daemon's files
 * @domain:        id of the domain
 * @pool_bytes:    address range to reserve: extent i lies at i * extent_size; it has room for
 *                 all device pools
 * @extent_size:   bytes
 * @nr_extents:    of all device pools
 * @unit:          bytes of one step of a table entry
 * @stride:        bytes between layers of a block, for each group
 * @block_bytes:   bytes of a block, all layers; the same for all groups
 * @span_extents:  neighbouring extents that a span takes
 * @span_blocks:   blocks cut from a span
 * @span_tail:     bytes of a span that no block uses
 * @c_bytes:       size of segment C
 * @d_bytes:       size of segment D
 * @sq_off:        submission entries in C
 * @sq_entries:    number, a power of two
 * @arg_off:       argument area in C
 * @arg_bytes:     its size
 * @cq_off:        completions in D
 * @cq_entries:    number, a power of two
 * @result_off:    result area in D
 * @result_bytes:  its size
 * @event_off:     event ring in D
 * @event_entries: number, a power of two
 * @seq_off:       struct kvmm_seq_status array in D
 * @max_seqs:      its length: a handle's index is below it
 * @extent_off:    struct kvmm_extent_status array in D
 * @table_off:     struct kvmm_table_page array in D
 * @nr_tables:     its length
 * @max_steps:     granted
 * @max_batch:     most entries of one request
 * @step_deadline_ms: a client that keeps a step open longer, while a sequence waits
 *                 for memory, is killed
 * @committed:     resumed: number of the last request that took effect; its
 *                 completion is in the old ring, even if the old tail does not cover it
 * @ring_index:    resumed: index at which both new rings begin; requests from
 *                 there on are to be sent again
 * @resumed:       KVMM_RESUMED_*
 * @memory:        KVMM_MEMORY_*
 * @device:        FNV-1a of the device's UUID, 32 bits, 1 for 0; 0: the host
 * @pool:          first device pool of the domain, from 0: the client is sent extents of its
 *                 pools alone
 * @nr_pools:      device pools of the daemon
 * @nr_shards:     device pools of the domain
 * @pool_extents:  extents of the smallest of these pools: the room of the domain
 * @shard_off:     bytes from the part of a block in the first of these pools to its part in
 *                 each of them, in the address range; table entries name the first part
 * @text:          one line with the reason, when @status is not 0
 *
 * Three file descriptors travel with a @status of 0: segment C, segment D
 * and the eventfd that is the daemon's doorbell.
 */
struct kvmm_attach_rep {
	__u64	magic;
	__u32	abi_version;
	__s32	status;
	__u64	layout_hash;
	__u64	features;
	__u64	daemon_epoch;
	__u64	token[2];
	__u32	client;
	__u32	domain;
	__u64	pool_bytes;
	__u64	extent_size;
	__u32	nr_extents;
	__u32	unit;
	__u64	stride[KVMM_MAX_GROUPS];
	__u64	block_bytes;
	__u32	span_extents;
	__u32	span_blocks;
	__u64	span_tail;
	__u64	c_bytes;
	__u64	d_bytes;
	__u32	sq_off;
	__u32	sq_entries;
	__u32	arg_off;
	__u32	arg_bytes;
	__u32	cq_off;
	__u32	cq_entries;
	__u32	result_off;
	__u32	result_bytes;
	__u32	event_off;
	__u32	event_entries;
	__u32	seq_off;
	__u32	max_seqs;
	__u32	extent_off;
	__u32	table_off;
	__u32	nr_tables;
	__u32	max_steps;
	__u32	max_batch;
	__u32	step_deadline_ms;
	__u64	committed;
	__u32	ring_index;
	__u32	resumed;
	__u32	memory;
	__u32	device;
	__u32	pool;
	__u32	nr_pools;
	__u32	nr_shards;
	__u32	pool_extents;
	__u64	shard_off[KVMM_MAX_SHARDS];
	char	text[256];
};
KVMM_ASSERT_SIZE(kvmm_attach_rep, 624);
KVMM_ASSERT_OFFSET(kvmm_attach_rep, sq_off, 192);
KVMM_ASSERT_OFFSET(kvmm_attach_rep, shard_off, 304);
KVMM_ASSERT_OFFSET(kvmm_attach_rep, text, 368);

#define KVMM_MAP_BATCH	253	/* most extents of a message: SCM_MAX_FD */
#define KVMM_MAP_AT_ONCE	32	/* most in one message: a client keeps room for them */

/**
 * struct kvmm_map_entry - one extent of a struct kvmm_map_msg
 * @extent:     its index: it is mapped at @extent * extent_size
 * @generation: of its memory; EXTENT_ACK names it
 */
struct kvmm_map_entry {
	__u32	extent;
	__u32	generation;
};
KVMM_ASSERT_SIZE(kvmm_map_entry, 8);

/**
 * struct kvmm_map_msg - extents to map, one file descriptor each, in order
 * @magic: KVMM_MAP_MAGIC
 * @nr:    used entries of @entry; only these are sent
 * @entry: the extents
 *
 * Sent on the socket at any time after the attach reply.  The client maps
 * every extent at its offset and answers with EXTENT_ACK in the ring.
 */
struct kvmm_map_msg {
	__u64			magic;
	__u32			nr;
	__u32			resv;
	struct kvmm_map_entry	entry[KVMM_MAP_BATCH];
};
KVMM_ASSERT_SIZE(kvmm_map_msg, 16 + 8 * KVMM_MAP_BATCH);

/* ------------------------------------------------------------------ */
/* Control words                                                       */

/**
 * struct kvmm_client_ctl - offset 0 of segment C; the client writes it
 * @sq_tail:   submission entries produced
 * @cq_head:   completions consumed; frees their arguments and results
 * @need_wake: non-zero while the client sleeps on kvmm_daemon_ctl.wake
 */
struct kvmm_client_ctl {
	__u32	sq_tail;
	__u32	resv0[15];
	__u32	cq_head;
	__u32	resv1[15];
	__u32	need_wake;
	__u32	resv2[15];
};
KVMM_ASSERT_SIZE(kvmm_client_ctl, 192);
KVMM_ASSERT_OFFSET(kvmm_client_ctl, cq_head, 64);
KVMM_ASSERT_OFFSET(kvmm_client_ctl, need_wake, 128);

/**
 * struct kvmm_daemon_ctl - offset 0 of segment D; the daemon writes it
 * @sq_head:       submission entries consumed
 * @cq_tail:       completions produced
 * @event_tail:    events produced; a hint, old ones are overwritten
 * @wake:          futex word, raised with every completion and event
 * @need_doorbell: non-zero while the daemon sleeps: write the eventfd
 * @seqcount:      odd while the words below it change
 * @state:         KVMM_CLIENT_*
 * @reason:        negative errno that explains @state
 * @pressure:      0 none, 1 some, 2 full
 * @daemon_epoch:  as in the attach reply
 * @committed:     number of the last request that took effect
 * @draining:      not 0 while SEQ_OPEN answers -ESHUTDOWN: the node, the tenant
 *                 or the client is drained
 */
struct kvmm_daemon_ctl {
	__u32	sq_head;
	__u32	resv0[15];
	__u32	cq_tail;
	__u32	event_tail;
	__u32	wake;
	__u32	resv1[13];
	__u32	need_doorbell;
	__u32	resv2[15];
	__u32	seqcount;
	__u32	state;
	__s32	reason;
	__u32	pressure;
	__u64	daemon_epoch;
	__u64	committed;
	__u32	draining;
	__u32	resv3;
	__u64	resv4[3];
};
KVMM_ASSERT_SIZE(kvmm_daemon_ctl, 256);
KVMM_ASSERT_OFFSET(kvmm_daemon_ctl, cq_tail, 64);
KVMM_ASSERT_OFFSET(kvmm_daemon_ctl, need_doorbell, 128);
KVMM_ASSERT_OFFSET(kvmm_daemon_ctl, seqcount, 192);

/* kvmm_daemon_ctl.state */
#define KVMM_CLIENT_ALIVE	1	/* attached */
#define KVMM_CLIENT_DETACHED	2	/* by its own DETACH */
#define KVMM_CLIENT_EXPELLED	3	/* by the daemon: see reason */
#define KVMM_CLIENT_SHUTDOWN	4	/* the daemon ends */

/* ------------------------------------------------------------------ */
/* Requests                                                            */

/* Verbs, kvmm_sqe.op: entries in the argument area; results, "-" for none; effect */
#define KVMM_OP_NOP		0	/* -; -; nothing, in its turn */
#define KVMM_OP_SEQ_OPEN	1	/* kvmm_open_arg; kvmm_open_res; a handle, WAITING */
#define KVMM_OP_SEQ_MATCH	2	/* kvmm_match_arg, ids; kvmm_seq_res; its ids, in pieces */
#define KVMM_OP_STEP_BEGIN	3	/* kvmm_begin_arg; kvmm_begin_res; room to write */
#define KVMM_OP_STEP_END	4	/* kvmm_end_arg, ids; kvmm_end_res; the new valid length */
#define KVMM_OP_SEQ_FORK	5	/* kvmm_fork_arg; kvmm_open_res; children share all */
#define KVMM_OP_SEQ_REMAP	6	/* kvmm_remap_arg; kvmm_seq_res; children become others */
#define KVMM_OP_SEQ_CLOSE	7	/* kvmm_seq_arg; kvmm_seq_res; it ends with its last step */
#define KVMM_OP_SEQ_TRUNCATE	8	/* kvmm_len_arg; kvmm_seq_res; the sequence is shorter */
#define KVMM_OP_SEQ_TRIM	9	/* kvmm_len_arg; kvmm_seq_res; blocks are given back */
#define KVMM_OP_SEQ_ADVISE	10	/* kvmm_advise_arg; kvmm_seq_res; advice of the client */
#define KVMM_OP_SEQ_SETPRIO	11	/* kvmm_prio_arg; kvmm_seq_res; another priority */
#define KVMM_OP_EXTENT_ACK	12	/* kvmm_ack_arg; kvmm_seq_res; it was mapped, or unmapped */
#define KVMM_OP_DETACH		13	/* -; -; the end; -EBUSY while a step is open */
#define KVMM_OP_SEQ_LOOKUP	14	/* kvmm_lookup_arg, ids; kvmm_lookup_res; its tiers */
#define KVMM_OP_SEQ_LEASE	15	/* kvmm_lease_arg; kvmm_lease_res; what was found stays */
#define KVMM_NR_OPS		16	/* verbs that there are */

/**
 * struct kvmm_sqe - one request, client to daemon
 * @op:        KVMM_OP_*
 * @flags:     none are defined; must be zero
 * @nr:        entries in the argument area
 * @number:    the client's request number, strictly rising
 * @user_data: returned untouched
 * @step:      step number for STEP_BEGIN and STEP_END, strictly rising over
 *             BEGINs; zero for every other verb
 * @arg_off:   byte offset in the argument area, a multiple of eight
 * @arg_len:   bytes used there: entries, then token ids where a verb has them
 * @param:     STEP_END: device ns of the step, tokens of prefill in it (hints); else zero
 */
struct kvmm_sqe {
	__u16	op;
	__u16	flags;
	__u32	nr;
	__u64	number;
	__u64	user_data;
	__u64	step;
	__u32	arg_off;
	__u32	arg_len;
	__u64	param[2];
	__u64	resv;
};
KVMM_ASSERT_SIZE(kvmm_sqe, 64);
KVMM_ASSERT_OFFSET(kvmm_sqe, arg_off, 32);

/**
 * struct kvmm_cqe - one completion, daemon to client
 * @number:     of the request
 * @user_data:  of the request
 * @status:     0, or a negative errno when the whole request was refused; each entry has a result
 * @nr:         result records
 * @result_off: byte offset of the first in the result area
 */
struct kvmm_cqe {
	__u64	number;
	__u64	user_data;
	__s32	status;
	__u32	nr;
	__u32	result_off;
	__u32	resv;
};
KVMM_ASSERT_SIZE(kvmm_cqe, 32);

/* A sequence's handle: index in the low half, generation in the high one. */
#define KVMM_SEQ(index, gen)	(((__u64)(gen) << 32) | (__u32)(index))	/* the handle */
#define KVMM_SEQ_INDEX(seq)	((__u32)(seq))		/* of its status record */
#define KVMM_SEQ_GEN(seq)	((__u32)((seq) >> 32))	/* that of a closed one never comes back */

/* kvmm_open_arg.flags */
#define KVMM_OPEN_NO_MATCH	(1u << 0)	/* do not look in the index */
#define KVMM_OPEN_NO_INDEX	(1u << 1)	/* do not enter the index */
#define KVMM_OPEN_WHOLE_BLOCKS	(1u << 2)	/* no hit ends inside a block */
#define KVMM_OPEN_WHOLE_PROMPT	(1u << 3)	/* a hit may have the last token, too */

/**
 * struct kvmm_open_arg - SEQ_OPEN
 * @prompt_len: tokens of the prompt, at least 1
 * @max_tokens: tokens that may follow it
 * @flags:      KVMM_OPEN_*
 * @priority:   0 is the first to lose its memory
 * @salt:       separates users inside a domain; that of the lease if there is one
 * @lease:      number of a lease of any client of the domain, or 0: the sequence begins SWAPPED,
 *              with the leased tokens valid, and is READY when they are on the device
 */
struct kvmm_open_arg {
	__u32	prompt_len;
	__u32	max_tokens;
	__u32	flags;
	__u32	priority;
	__u64	salt;
	__u64	lease;
};
KVMM_ASSERT_SIZE(kvmm_open_arg, 32);

/**
 * struct kvmm_open_res - of one SEQ_OPEN entry, of each child of a SEQ_FORK entry
 * @status:        0, or a negative errno
 * @limiting_pool: tier that refused, 0 is the device, or KVMM_NO_POOL
 * @seq:           the new handle
 */
struct kvmm_open_res {
	__s32	status;
	__u32	limiting_pool;
	__u64	seq;
};
KVMM_ASSERT_SIZE(kvmm_open_res, 16);

/* kvmm_match_arg.flags */
#define KVMM_MATCH_LAST		(1u << 0)	/* the ids are complete */

/**
 * struct kvmm_match_arg - SEQ_MATCH; the entries' ids follow the entries
 * @seq:    a sequence that is WAITING or RECOMPUTE
 * @start:  position of the first id: where the piece before ended; 0 starts anew
 * @nr_ids: ids of this piece
 * @flags:  KVMM_MATCH_*
 *
 * After a preemption by recompute the sequence is matched again, with all
 * the ids that it should have: the daemon does not keep them.
 */
struct kvmm_match_arg {
	__u64	seq;
	__u32	start;
	__u32	nr_ids;
	__u32	flags;
	__u32	resv;
};
KVMM_ASSERT_SIZE(kvmm_match_arg, 24);

/**
 * struct kvmm_seq_res - of verbs that answer with a status and a length alone
 * @status:    0, or a negative errno
 * @valid_len: valid tokens of the sequence
 */
struct kvmm_seq_res {
	__s32	status;
	__u32	valid_len;
};
KVMM_ASSERT_SIZE(kvmm_seq_res, 8);

/* kvmm_lookup_arg.flags */
#define KVMM_LOOKUP_LAST	(1u << 0)	/* the prompt ends with these ids */

/**
 * struct kvmm_lookup_arg - SEQ_LOOKUP; the entries' ids follow the entries
 * @salt:   as in SEQ_OPEN
 * @cookie: of the answer to the piece before; zeros where @start is 0
 * @start:  tokens of the prompt before the first id, whole blocks: those that earlier pieces found
 * @nr_ids: ids of this piece, whole blocks; with KVMM_LOOKUP_LAST any number, and those after
 *          the last whole block are ignored; with several groups a block is a multiple of the
 *          block_tokens of each group, the least one
 * @flags:  KVMM_LOOKUP_*
 */
struct kvmm_lookup_arg {
	__u64	salt;
	__u64	cookie[2];
	__u32	start;
	__u32	nr_ids;
	__u32	flags;
	__u32	resv0;
	__u64	resv[2];
};
KVMM_ASSERT_SIZE(kvmm_lookup_arg, 56);

/* Tiers of an answer to SEQ_LOOKUP */
#define KVMM_TIER_DEVICE	0	/* a match uses the content without a copy */
#define KVMM_TIER_HOST		1	/* in the host pool */
#define KVMM_TIER_AREA		2	/* in a swap area only: a match does not use it */
#define KVMM_TIER_MOVING	3	/* a copy or a read between tiers is in flight */
#define KVMM_NR_LOOKUP_TIERS	4	/* tiers that there are */

#define KVMM_LOOKUP_RUNS	8	/* runs of one answer */

/* kvmm_lookup_res.flags */
#define KVMM_LOOKUP_MORE	(1u << 0)	/* the ids after those found were not looked at */

/**
 * struct kvmm_lookup_run - neighbouring blocks of a prompt in one tier
 * @tier:   KVMM_TIER_*
 * @blocks: number of blocks, each of the tokens that kvmm_lookup_arg.nr_ids counts in
 */
struct kvmm_lookup_run {
	__u32	tier;
	__u32	blocks;
};
KVMM_ASSERT_SIZE(kvmm_lookup_run, 8);

/**
 * struct kvmm_lookup_res - of one SEQ_LOOKUP entry
 * @status:  0, or a negative errno
 * @flags:   KVMM_LOOKUP_MORE
 * @found:   tokens found from @start on, whole blocks
 * @nr_runs: used entries of @run
 * @tokens:  of those, tokens in each KVMM_TIER_*
 * @cookie:  names the prompt up to @start + @found, for the next piece
 * @run:     the blocks found, in the order of the prompt
 * @hit:     the longest beginning of the prompt, in tokens, that ends in this piece and can be
 *           a hit: every group with a window has the last window; 0: none.  With one group
 *           @start + @found
 * @hit_cookie: names the prompt up to @hit, for a lease
 */
struct kvmm_lookup_res {
	__s32			status;
	__u32			flags;
	__u32			found;
	__u32			nr_runs;
	__u32			tokens[KVMM_NR_LOOKUP_TIERS];
	__u64			cookie[2];
	struct kvmm_lookup_run	run[KVMM_LOOKUP_RUNS];
	__u32			hit;
	__u32			resv;
	__u64			hit_cookie[2];
};
KVMM_ASSERT_SIZE(kvmm_lookup_res, 136);

/**
 * struct kvmm_lease_arg - SEQ_LEASE
 * @salt:   as in the lookup
 * @cookie: hit_cookie of the answer to the lookup
 * @len:    tokens from the beginning of the prompt, whole blocks: hit of that lookup
 * @ms:     duration, at least 1, at most the daemon's lease-ms
 * @flags:  none are defined; must be zero
 * @label:  for operators, such as the name of a session: printable ASCII without spaces, then
 *          zeros; all zeros: none
 */
struct kvmm_lease_arg {
	__u64	salt;
	__u64	cookie[2];
	__u32	len;
	__u32	ms;
	__u32	flags;
	__u32	resv0;
	char	label[KVMM_LABEL_LEN];
};
KVMM_ASSERT_SIZE(kvmm_lease_arg, 56);

/**
 * struct kvmm_lease_res - of one SEQ_LEASE entry
 * @status: 0, or a negative errno: there is no lease
 * @reason: negative errno that explains why @held is below the length asked for, or 0
 * @held:   tokens from the beginning of the prompt that are not dropped before @until
 * @kept:   tokens after them that are dropped after all other cache, until @until
 * @seq:    handle of the lease: SEQ_CLOSE ends it, SEQ_ADVISE moves it or sets another deadline
 * @number: for SEQ_OPEN of any client of the domain
 * @until:  CLOCK_MONOTONIC ns at which it ends; with -ERANGE the latest that is allowed
 */
struct kvmm_lease_res {
	__s32	status;
	__s32	reason;
	__u32	held;
	__u32	kept;
	__u64	seq;
	__u64	number;
	__u64	until;
};
KVMM_ASSERT_SIZE(kvmm_lease_res, 40);

/**
 * struct kvmm_begin_arg - STEP_BEGIN
 * @seq:        a READY sequence
 * @seq_epoch:  epoch that the client knows; -ESTALE when it has changed
 * @start:      first position that the step may write: from the ended length
 *              to the end of the positions that the sequence's open steps cover
 * @max_tokens: positions that it may write; 0: the step reads the sequence and writes nothing,
 *              and @start is not 0
 */
struct kvmm_begin_arg {
	__u64	seq;
	__u32	seq_epoch;
	__u32	start;
	__u32	max_tokens;
	__u32	resv;
};
KVMM_ASSERT_SIZE(kvmm_begin_arg, 24);

/**
 * struct kvmm_begin_res - result for one (entry, group), group fastest
 * @status:        0: granted.  -EAGAIN: no memory now, @limiting_pool says where;
 *                 -ESTALE: preempted meanwhile; -EDQUOT: it no longer fits alone
 * @valid_len:     valid tokens of the sequence
 * @table_lo:      lowest table index changed, or KVMM_NO_INDEX
 * @limiting_pool: tier that refused, 0 is the device, or KVMM_NO_POOL
 * @copy_from:     table entry of the block to copy from.  In a KVMM_GROUP_STATE: table index
 *                 of the record that has the state before the step, KVMM_NO_INDEX: there is none
 * @copy_to:       table entry of the block to copy to.  In a KVMM_GROUP_STATE: table index of
 *                 the record that has the state after the step's first token
 * @copy_tokens:   leading tokens to copy; 0: no copy.  The client runs the copies of
 *                 every granted entry, before any append of the step
 * @seq_epoch:     epoch of the sequence, now
 */
struct kvmm_begin_res {
	__s32	status;
	__u32	valid_len;
	__u32	table_lo;
	__u32	limiting_pool;
	__u32	copy_from;
	__u32	copy_to;
	__u32	copy_tokens;
	__u32	seq_epoch;
};
KVMM_ASSERT_SIZE(kvmm_begin_res, 32);

/**
 * struct kvmm_end_arg - STEP_END; the entries' ids follow the entries
 * @seq:       a sequence of the step; those not named made no progress
 * @valid_len: new valid length
 * @nr_ids:    ids from the old valid length to the new one, all of them
 */
struct kvmm_end_arg {
	__u64	seq;
	__u32	valid_len;
	__u32	nr_ids;
};
KVMM_ASSERT_SIZE(kvmm_end_arg, 16);

/**
 * struct kvmm_end_res - result of one STEP_END entry
 * @status:    0, or a negative errno
 * @valid_len: valid tokens of the sequence, now
 * @seq_epoch: epoch of the sequence, now
 */
struct kvmm_end_res {
	__s32	status;
	__u32	valid_len;
	__u32	seq_epoch;
	__u32	resv;
};
KVMM_ASSERT_SIZE(kvmm_end_res, 16);

/**
 * struct kvmm_fork_arg - SEQ_FORK
 * @seq:         the parent
 * @nr_children: children to make; each has one answer, a struct kvmm_open_res
 */
struct kvmm_fork_arg {
	__u64	seq;
	__u32	nr_children;
	__u32	resv;
};
KVMM_ASSERT_SIZE(kvmm_fork_arg, 16);

/**
 * struct kvmm_remap_arg - SEQ_REMAP
 * @child: becomes the sequence that @other was before the request
 * @other: a sequence of the same family
 */
struct kvmm_remap_arg {
	__u64	child;
	__u64	other;
};
KVMM_ASSERT_SIZE(kvmm_remap_arg, 16);

/**
 * struct kvmm_seq_arg - SEQ_CLOSE
 * @seq: the sequence
 */
struct kvmm_seq_arg {
	__u64	seq;
};
KVMM_ASSERT_SIZE(kvmm_seq_arg, 8);

/**
 * struct kvmm_len_arg - SEQ_TRUNCATE, SEQ_TRIM
 * @seq: the sequence
 * @len: TRUNCATE: the new length.  TRIM: whole blocks before it are given back
 */
struct kvmm_len_arg {
	__u64	seq;
	__u32	len;
	__u32	resv;
};
KVMM_ASSERT_SIZE(kvmm_len_arg, 16);

/* kvmm_advise_arg.advice */
#define KVMM_ADV_COLD		1	/* its cache is evicted before the rest */
#define KVMM_ADV_PAGEOUT	2	/* its family is swapped out; a lease's cache, too */
#define KVMM_ADV_WILLNEED	3	/* it may come back; a lease's content comes now */
#define KVMM_ADV_KEEP_UNTIL	4	/* value: CLOCK_MONOTONIC ns; a lease ends then */
#define KVMM_ADV_DONTNEED	5	/* its cache is dropped when it ends */
#define KVMM_ADV_RETAIN		6	/* value: KVMM_RANGE() */

/* kvmm_advise_arg.value of KVMM_ADV_DONTNEED */
#define KVMM_DONTNEED_OWN	0	/* content that no lookup ever found */
#define KVMM_DONTNEED_FOUND	1	/* content that lookups found, too */

/* kvmm_advise_arg.retain, and the class by priority without advice */
#define KVMM_RETAIN_PRIO	0	/* by priority */
#define KVMM_RETAIN_LOW		1	/* below that */
#define KVMM_RETAIN_NORMAL	2	/* from KVMM_PRIO_NORMAL on */
#define KVMM_RETAIN_HIGH	3	/* from KVMM_PRIO_HIGH on */
#define KVMM_PRIO_NORMAL	50	/* priorities from here on retain normally */
#define KVMM_PRIO_HIGH		150	/* and from here on longer */

/* Tokens from up to to - 1; 0xffffffff: up to the end, wherever that will be. */
#define KVMM_RANGE(from, to)	((__u64)(to) << 32 | (__u32)(from))	/* the value */

/**
 * struct kvmm_advise_arg - SEQ_ADVISE
 * @seq:    the sequence
 * @advice: KVMM_ADV_*
 * @retain: KVMM_RETAIN_* with KVMM_ADV_RETAIN, else 0
 * @value:  value of the advice if it has one, else 0
 */
struct kvmm_advise_arg {
	__u64	seq;
	__u32	advice;
	__u32	retain;
	__u64	value;
};
KVMM_ASSERT_SIZE(kvmm_advise_arg, 24);

/**
 * struct kvmm_prio_arg - SEQ_SETPRIO
 * @seq:      the sequence
 * @priority: 0 is the first to lose its memory
 */
struct kvmm_prio_arg {
	__u64	seq;
	__u32	priority;
	__u32	resv;
};
KVMM_ASSERT_SIZE(kvmm_prio_arg, 16);

/* kvmm_ack_arg.what */
#define KVMM_ACK_MAP		1	/* it has been mapped */
#define KVMM_ACK_REVOKE		2	/* it has been unmapped */

/**
 * struct kvmm_ack_arg - EXTENT_ACK: this client has mapped, or unmapped, the extent
 * @extent:     its index
 * @generation: of the message, or of the record that asked for it back
 * @what:       KVMM_ACK_*
 */
struct kvmm_ack_arg {
	__u32	extent;
	__u32	generation;
	__u32	what;
	__u32	resv;
};
KVMM_ASSERT_SIZE(kvmm_ack_arg, 16);

/* ------------------------------------------------------------------ */
/* Status, events and tables: segment D                                */

/* kvmm_seq_status.state */
#define KVMM_SEQ_CLOSED		0	/* the handle is not current */
#define KVMM_SEQ_WAITING	1	/* for its ids, or for memory */
#define KVMM_SEQ_READY		2	/* may be named in STEP_BEGIN */
#define KVMM_SEQ_MARKED		3	/* victim, taken when its steps end */
#define KVMM_SEQ_SWAPPED	4	/* in the lower tiers */
#define KVMM_SEQ_RECOMPUTE	5	/* to be matched again */
#define KVMM_SEQ_RESTORING	6	/* on its way back */
#define KVMM_SEQ_FAILED		7	/* see reason */
#define KVMM_NR_SEQ_STATES	8	/* states that there are */

/**
 * struct kvmm_seq_status - one sequence, at its handle's index
 * @seqcount:      odd while the record changes
 * @generation:    of the handle
 * @state:         KVMM_SEQ_*
 * @reason:        negative errno that explains @state, or 0
 * @limiting_pool: pool that it waits for, or KVMM_NO_POOL
 * @valid_len:     tokens with valid KV
 * @seq_epoch:     raised when the sequence is preempted
 * @cached_len:    tokens that the last admission found in the index
 * @table:         first table page of each group, or KVMM_NO_INDEX
 */
struct kvmm_seq_status {
	__u32	seqcount;
	__u32	generation;
	__u32	state;
	__s32	reason;
	__u32	limiting_pool;
	__u32	valid_len;
	__u32	seq_epoch;
	__u32	cached_len;
	__u32	table[KVMM_MAX_GROUPS];
};
KVMM_ASSERT_SIZE(kvmm_seq_status, 64);

/* kvmm_extent_status.state */
#define KVMM_EXTENT_ABSENT	0	/* not this client's */
#define KVMM_EXTENT_MAP		1	/* its fd is under way: map and ack */
#define KVMM_EXTENT_MAPPED	2	/* acknowledged */
#define KVMM_EXTENT_REVOKE	3	/* unmap and ack */

/**
 * struct kvmm_extent_status - one extent, as this client has it
 * @state:      KVMM_EXTENT_*
 * @generation: raised each time the extent gets new memory
 */
struct kvmm_extent_status {
	__u32	state;
	__u32	generation;
};
KVMM_ASSERT_SIZE(kvmm_extent_status, 8);

/* kvmm_event.type */
#define KVMM_EV_PREEMPTED	1	/* a sequence lost its memory */
#define KVMM_EV_READY		2	/* a sequence may be named in STEP_BEGIN */
#define KVMM_EV_FAILED		3	/* a sequence is to be closed: see reason */
#define KVMM_EV_PRESSURE	4	/* kvmm_daemon_ctl.pressure changed */
#define KVMM_EV_MAP		5	/* an extent is under way */
#define KVMM_EV_REVOKE		6	/* an extent is asked back */
#define KVMM_EV_POISONED	7	/* the device lost the content of the pool */
#define KVMM_EV_SHUTDOWN	8	/* the daemon ends */

/**
 * struct kvmm_event - a hint that a level in D changed
 * @type:  KVMM_EV_*
 * @index: of the sequence or the extent
 * @seq:   the sequence's handle, or 0
 *
 * Read the record, not the event: old events are overwritten.
 */
struct kvmm_event {
	__u32	type;
	__u32	index;
	__u64	seq;
};
KVMM_ASSERT_SIZE(kvmm_event, 16);

#define KVMM_TABLE_ENTRIES	122	/* of a struct kvmm_table_page */

/**
 * struct kvmm_table_page - part of a sequence's block table, for reading
 * @seq:   handle of the owner
 * @group: layer group
 * @first: table index of entry[0]
 * @next:  next page of the chain, or KVMM_NO_INDEX
 * @entry: offset of the block from the pool's base, in units; KVMM_NO_INDEX: none
 */
struct kvmm_table_page {
	__u64	seq;
	__u32	group;
	__u32	first;
	__u32	next;
	__u32	resv;
	__u32	entry[KVMM_TABLE_ENTRIES];
};
KVMM_ASSERT_SIZE(kvmm_table_page, 512);
KVMM_ASSERT_OFFSET(kvmm_table_page, entry, 24);

#endif /* _UAPI_KVMM_H */
