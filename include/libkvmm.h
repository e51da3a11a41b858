/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libkvmm.h - the client library: attach, rings, steps
 *
 * A struct kvmm is one attachment.  It belongs to one thread at a time: a lock of the
 * caller may hand it on.  Threads may use different attachments at once, and calls that
 * have no attachment (kvmm_attach(), kvmm_ask(), kvmm_identity_*(), kvmm_group_*(),
 * kvmm_state_blocks()).  Any thread may read and write the memory of a block.
 *
 * The shared library is libkvmm.so.N, N being KVMM_ABI_VERSION.  It needs the C library
 * alone, and exports the names of this file.
 *
 * Requests are prepared, submitted together and reaped in ring order.  The
 * wrappers at the end of this file do one request and wait for it.  Every call
 * that touches the rings answers -ECONNRESET after the daemon has died or has
 * expelled this client; kvmm_strerror_attach() gives the reason.
 *
 * The library installs no signal handler, starts no thread and never exits.
 */
#ifndef LIBKVMM_H
#define LIBKVMM_H

#include <uapi/kvmm.h>
#include <kvmm/types.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The library is built with hidden names, and exports those of this file. */
#pragma GCC visibility push(default)

struct kvmm;

/*
 * Digest of the model identity: tagged, length-prefixed fields into 256 bits.
 * Do not copy or move it once it is initialized.
 */
struct kvmm_identity {
	u64	state[160];
};

/** kvmm_identity_init() - start a digest */
void kvmm_identity_init(struct kvmm_identity *id);

/**
 * kvmm_identity_add() - add one field
 * @tag:  names the field; order and names matter
 * @data: @len bytes, may be large (a mapped weight file)
 */
void kvmm_identity_add(struct kvmm_identity *id, const char *tag,
		       const void *data, size_t len);

/** kvmm_identity_final() - write KVMM_IDENTITY_LEN bytes to @out */
void kvmm_identity_final(struct kvmm_identity *id, u8 *out);

/**
 * struct kvmm_params - parameters of an attachment
 * @socket:       path of the socket or of its directory; NULL: $KVMM_SOCKET, else
 *                the default of this user
 * @domain:       name of the domain
 * @identity:     from kvmm_identity_final()
 * @block_tokens: a multiple of 16, at most 4096
 * @nr_groups:    used entries of @group; 0: 1
 * @group:        KV layout of each layer group; that of group 0 has no window.
 *                kvmm_group_tokens() fills in the block_tokens of several groups
 * @step_tokens:  most tokens of a sequence that a step writes, a hint; 0: not known
 * @min_bytes:    memory.min asked for: bytes that no other domain takes
 * @low_bytes:    memory.low: bytes that other domains take last
 * @high_bytes:   memory.high: above it new sequences wait; 0: none
 * @max_bytes:    memory.max asked for, at least a block; KVMM_LIMIT_MAX: none
 * @swap_max_bytes: most bytes in the host pool, and in each area; 0: no limit
 * @pool:         device pool asked for, plus 1; 0: where the domain is, and a new one
 *                where there is the most room
 * @nr_shards:    device pools from there on that each block has a part in; 0: 1.
 *                @group and the limits are those of one part
 * @shard:        part that this process maps, from 1 on; 0: all parts
 * @leader:       kvmm_attach_rep.client, plus 1, of the process that opens sequences;
 *                this one is a rank that maps @shard for it.  0: it opens them itself
 * @weight:       share of the memory that is promised to no domain, 1 to 10000;
 *                0: 100
 * @max_seqs:     sequences wanted; 0: 256
 * @max_steps:    most steps open at once; 0: 2
 * @spin:         pauses before the library sleeps for an answer; 0: sleep at
 *                once, KVMM_SPIN_FOREVER: never sleep
 * @attach_timeout_ms: longest wait for the daemon's answer; 0: 30000
 */
struct kvmm_params {
	const char		*socket;
	const char		*domain;
	const u8		*identity;
	u32			block_tokens;
	u32			nr_groups;
	struct kvmm_group	group[KVMM_MAX_GROUPS];
	u32			step_tokens;
	u64			min_bytes;
	u64			low_bytes;
	u64			high_bytes;
	u64			max_bytes;
	u64			swap_max_bytes;
	u32			pool;
	u32			nr_shards;
	u32			shard;
	u32			leader;
	u32			weight;
	u32			max_seqs;
	u32			max_steps;
	u32			spin;
	u32			attach_timeout_ms;
};

#define KVMM_SPIN_FOREVER	0xffffffffu

/**
 * kvmm_group_tokens() - choose the tokens of a block for each layer group
 * @group:   [@nr] the groups; their block_tokens are filled in, but those of
 *           KVMM_GROUP_STATE are the caller's
 * @nr:      groups, 1 to KVMM_MAX_GROUPS
 * @tokens:  the tokens of a block of each group are a multiple of it, at most
 *           KVMM_MAX_BLOCK_TOKENS
 * @max_lcm: limit of the least common multiple of all block_tokens that are filled in,
 *           in tokens.  Below @tokens: @tokens
 *
 * Blocks of all groups have the bytes of the largest.  Of all choices within the
 * limits, this is one with the least padding, as a share of a block, summed over the
 * groups; of these one with the least common multiple, of these one with the smallest
 * block.  A group of records adds no padding, but a block holds at least one of its units.
 *
 * Context: any; needs no attachment.
 * Return: the least common multiple of all block_tokens: prefix hits have a multiple of that
 * length; -EINVAL: no groups with KV, or tokens are out of range; -E2BIG: a block has
 * more than 1 GiB, or that multiple more than INT32_MAX tokens.
 */
int __must_check kvmm_group_tokens(struct kvmm_group *group, u32 nr, u32 tokens,
				   u32 max_lcm);

/**
 * kvmm_group_bytes() - bytes of a block of a layer group, without padding
 * @group:  the group
 * @tokens: tokens of a block, at most KVMM_MAX_BLOCK_TOKENS
 *
 * The daemon rounds the largest one of all groups up to kvmm_attach_rep.unit.  For
 * KVMM_GROUP_STATE these are the bytes of one unit, the least that a block has.
 */
u64 kvmm_group_bytes(const struct kvmm_group *group, u32 tokens);

/**
 * kvmm_state_blocks() - blocks of a record of KVMM_GROUP_STATE
 * @group:       the group
 * @block_bytes: bytes of a block
 *
 * A record has layers * kv_heads units, at multiples of 128 bytes in a block, and none
 * crosses the end of a block.
 *
 * Return: the blocks; 0 if no unit fits a block.
 */
u32 kvmm_state_blocks(const struct kvmm_group *group, u64 block_bytes);

/**
 * kvmm_attach() - attach to the daemon
 * @p:    parameters
 * @out:  the attachment, on success
 * @text: at least 256 bytes for one line that gives the reason of a failure
 *
 * Reserves the pool's address range (MADV_DONTFORK).  Extents are mapped when
 * the daemon hands them out.
 *
 * Return: 0; -ENOENT or -ECONNREFUSED: no daemon; -EPROTONOSUPPORT: another
 * ABI; else the error of the daemon.
 */
int __must_check kvmm_attach(const struct kvmm_params *p, struct kvmm **out,
			     char *text);

/**
 * kvmm_ask() - ask for the memory type of the daemon's pool, without attaching
 * @socket: as in struct kvmm_params
 * @memory: gets KVMM_MEMORY_*
 * @device: gets the GPU, as kvmm_attach_rep.device
 * @text:   at least 256 bytes for one line that gives the reason of a failure
 *
 * Waits a few seconds at most.
 *
 * Return: 0, or as kvmm_attach().
 */
int __must_check kvmm_ask(const char *socket, u32 *memory, u32 *device,
			  char *text);

/**
 * kvmm_detach() - unmap everything, send DETACH, close; @k may be NULL
 *
 * Steps that are still open are first ended without progress, so the device
 * must be quiet.  The call waits a second or two for a daemon that does not
 * answer.
 */
void kvmm_detach(struct kvmm *k);

/**
 * kvmm_draining() - does the daemon refuse new sequences of this client?
 *
 * An operator has drained the node, the tenant or the client: SEQ_OPEN answers
 * -ESHUTDOWN until that is undone.
 */
bool kvmm_draining(const struct kvmm *k);

/** kvmm_info() - the daemon's answer at attach: geometry and sizes */
const struct kvmm_attach_rep *kvmm_info(const struct kvmm *k);

/** kvmm_nr_groups() - layer groups of the attachment, at least 1 */
u32 kvmm_nr_groups(const struct kvmm *k);

/** kvmm_mapped() - extents of the pool that are mapped in this process */
u32 kvmm_mapped(const struct kvmm *k);

/**
 * kvmm_pool() - base of the pool's address range in this process
 *
 * With KVMM_MEMORY_CUDA it is a device address (CUdeviceptr), valid only in the
 * primary context of that device.
 */
void *kvmm_pool(const struct kvmm *k);

/**
 * kvmm_block() - address of a block in this process
 * @entry: of a table, or of the result of STEP_BEGIN
 * @shard: part of the block, less than kvmm_attach_rep.nr_shards
 *
 * Return: the address in kvmm_pool(); NULL: the entry names no block of the pool.
 */
void *kvmm_block(const struct kvmm *k, u32 entry, u32 shard);

/**
 * kvmm_backend() - memory type of the pool: KVMM_MEMORY_*
 *
 * With KVMM_MEMORY_CUDA this library uses the device's primary context on the
 * thread that the attachment belongs to, and makes it current there.  A revoked
 * extent is unmapped when nothing runs in that context, so kvmm_wait() and
 * kvmm_poll_extents() then wait for the device.  An attachment does not survive
 * fork(), nor does any other use of CUDA: the child may only execute another
 * program or end.
 */
u32 kvmm_backend(const struct kvmm *k);

/** kvmm_strerror_attach() - the reason why the attachment ended, one line */
const char *kvmm_strerror_attach(const struct kvmm *k);

/**
 * kvmm_device_failed() - has the pool's device failed in this process?
 *
 * A failed device ends the attachment, and no other can be made: a driver's
 * context stays failed until the process ends.  The library does not see errors
 * that only the caller's own driver calls have returned.
 */
bool kvmm_device_failed(const struct kvmm *k);

/**
 * kvmm_alive() - has the attachment not ended yet?
 *
 * Checks the state that the daemon published and, at most every 100 ms, the
 * socket.
 * Return: true, or false once the attachment has ended.
 */
bool kvmm_alive(struct kvmm *k);

/**
 * kvmm_resumed() - how many times the daemon died and the next one went on
 * @salvaged: how many of these times the open steps were lost, or NULL
 *
 * The library resumes inside kvmm_wait(), kvmm_poll_extents() and
 * kvmm_confirm().  It sends requests again that had not taken effect.  After a
 * salvage the open steps are void, and the status records say which sequences
 * are to be matched again.  On a GPU the library first waits for the context.
 *
 * Return: the number of all resumes.
 */
u32 kvmm_resumed(const struct kvmm *k, u32 *salvaged);

/**
 * kvmm_confirm() - has the daemon lived until now, or are steps void?
 *
 * A daemon that salvages may give blocks that an open step reads to other
 * sequences before this process learns of the salvage.  So call this after the
 * kernels of a step have ended and before their results are used.  If
 * kvmm_resumed() then counts one more salvage, the step and its results are
 * void.
 *
 * If the daemon has died, the call waits up to 30 s for the next one; otherwise
 * it costs one poll().
 *
 * Return: 0 or -ECONNRESET.
 */
int kvmm_confirm(struct kvmm *k);

/**
 * kvmm_prep() - prepare a request
 * @op:    KVMM_OP_*
 * @nr:    entries
 * @bytes: argument bytes, entries and ids together
 * @args:  gets the place of the arguments, 8-byte aligned; valid until
 *         kvmm_submit()
 *
 * Return: the entry, with op, nr, number, arg_off and arg_len filled in;
 * NULL when the ring or the argument area is full: reap completions first.
 */
struct kvmm_sqe *kvmm_prep(struct kvmm *k, u16 op, u32 nr, u32 bytes,
			   void **args);

/**
 * kvmm_submit() - publish all prepared requests; ring the doorbell if needed
 */
int kvmm_submit(struct kvmm *k);

/**
 * struct kvmm_done - one completion
 * @results: daemon-written records, valid until kvmm_release()
 */
struct kvmm_done {
	u64		number;
	u64		user_data;
	int		status;
	u32		nr;
	const void	*results;
};

/**
 * kvmm_reap() - take the next completion, without waiting
 * Return: 1: @done is filled; 0: there is none yet; negative errno: the
 * attachment has ended.
 */
int kvmm_reap(struct kvmm *k, struct kvmm_done *done);

/**
 * kvmm_release() - give back arguments and results of all reaped requests
 *
 * Ring and areas are finite: if the caller reaps and never releases,
 * kvmm_prep() returns NULL and the calls below return -EBUSY.
 */
void kvmm_release(struct kvmm *k);

/**
 * kvmm_wait() - wait until a completion or an event may be there
 * @timeout_ns: longest wait; negative: no limit
 *
 * Spins as asked at attach, then sleeps.  Meanwhile the library maps extents
 * that the daemon hands out, and acknowledges them.  The call returns at once
 * while a completion is not reaped.  Once kvmm_next_event() was ever called, it
 * also returns at once while an event is not taken; for a caller that never
 * takes events, each event ends one wait.
 *
 * Return: 0; -ETIMEDOUT; -ECONNRESET.
 */
int kvmm_wait(struct kvmm *k, s64 timeout_ns);

/**
 * kvmm_poll_extents() - map and acknowledge extents that the daemon handed out
 *
 * kvmm_wait() does the same.  A client that does not wait must call this
 * function between steps.
 * Return: extents mapped, or a negative errno.
 */
int kvmm_poll_extents(struct kvmm *k);

/**
 * kvmm_next_event() - take one event: 1; 0: none; -EOVERFLOW: some were lost
 */
int kvmm_next_event(struct kvmm *k, struct kvmm_event *ev);

/**
 * kvmm_seq_status() - a consistent copy of a sequence's record
 * Return: 0; -ENOENT: the handle is not current.  When the daemon stopped in
 * the middle of a change: -ECONNRESET if it has died, -EAGAIN after a second if
 * it lives.
 */
int kvmm_seq_status(const struct kvmm *k, u64 seq, struct kvmm_seq_status *st);

/**
 * kvmm_seq_table() - copy a sequence's block table
 * @group: layer group
 * @first: first index wanted
 * @nr:    entries wanted
 * @out:   @nr offsets in units of kvmm_attach_rep.unit
 *
 * Entries of an open step do not change.  Other entries may: then the copy is
 * of one instant, or the answer is -EAGAIN.
 *
 * Return: 0; -ERANGE: the chain is shorter; else as kvmm_seq_status().
 */
int kvmm_seq_table(const struct kvmm *k, u64 seq, u32 group, u32 first, u32 nr,
		   u32 *out);

/*
 * One request, one answer.  All prepared requests are submitted with it.
 * Requests in flight are not affected and are reaped later, in order.
 *
 * Return: the request's status; -E2BIG: more entries than one request can hold;
 * -EBUSY: no room until the caller releases; -ECONNRESET.
 */
int kvmm_nop(struct kvmm *k);
int kvmm_seq_open(struct kvmm *k, const struct kvmm_open_arg *args, u32 nr,
		  struct kvmm_open_res *res);
/*
 * The ids are sent in as many pieces as the argument area requires, from the
 * first id on.
 * Return: as above, or the status of the piece that failed; -EAGAIN: the daemon
 * has no room for the ids now.
 */
int kvmm_seq_match(struct kvmm *k, u64 seq, const u32 *ids, u32 nr);

/**
 * struct kvmm_found - how much of a prompt is cached, and where
 * @found:  tokens of the longest cached prefix that can be a hit: whole blocks of each
 *          group
 * @ready:  tokens before the first block that is not on the device or in the
 *          host pool: a match at once finds as many, but never the last token; with
 *          several groups only if @ready is @found
 * @tokens: of @found, tokens in each KVMM_TIER_*
 * @cookie: names the prompt up to @found, for kvmm_lease()
 */
struct kvmm_found {
	u32	found;
	u32	ready;
	u32	tokens[KVMM_NR_LOOKUP_TIERS];
	u64	cookie[2];
};

/**
 * kvmm_lookup() - ask how much of a prompt is cached, without a sequence
 * @salt: as in SEQ_OPEN
 * @ids:  the whole prompt
 * @nr:   its tokens, at least 1
 * @out:  the answer
 *
 * Never waits for memory, and changes nothing but which content is dropped
 * first.  The prompt is sent in pieces until one is not found, each as one
 * request.  The cache may change between two pieces, and after the last one.
 * For a lookup beside other work prepare KVMM_OP_SEQ_LOOKUP with kvmm_prep().
 *
 * Return: as above; -EINVAL: no ids.
 */
int kvmm_lookup(struct kvmm *k, u64 salt, const u32 *ids, u32 nr,
		struct kvmm_found *out);

/**
 * kvmm_lease() - keep what a lookup found
 * @salt:  as in the lookup
 * @found: answer of kvmm_lookup(), with at least one block
 * @ms:    duration, at most the daemon's lease-ms
 * @label: for kvctl leases: up to KVMM_LABEL_LEN characters of ASCII, printable, without
 *         blanks; NULL: none
 * @res:   the answer; @res->held may be less than was found, see @res->reason
 *
 * The lease is a sequence of this client: kvmm_seq_close() of @res->seq ends it, and
 * kvmm_seq_advise() renews it (KVMM_ADV_KEEP_UNTIL), brings its content to the device
 * (KVMM_ADV_WILLNEED), or takes it from there (KVMM_ADV_PAGEOUT).  Any client of the
 * domain can open a sequence with @res->number (kvmm_open_arg.lease).
 *
 * Return: 0, the status of the request, or that of its entry: -ENOENT: the prefix is
 * not cached any more; -ERANGE: @ms is too long, @res->until is the latest deadline;
 * -EINVAL: @ms is 0, or @label is wrong; -EDQUOT: the leases of the domain or of its
 * tenant hold all that they may; -ENOSPC: the lower tiers have no room, or the client no
 * sequence; -EAGAIN: not now; -ECONNRESET.
 */
int kvmm_lease(struct kvmm *k, u64 salt, const struct kvmm_found *found, u32 ms,
	       const char *label, struct kvmm_lease_res *res);

/**
 * kvmm_seq_fork() - make children of a sequence, which share all of its blocks
 * @res: @nr_children records
 *
 * Return: 0, with a status for each child in @res; the status of the request;
 * -ECONNRESET.
 */
int kvmm_seq_fork(struct kvmm *k, u64 seq, u32 nr_children,
		  struct kvmm_open_res *res);
/**
 * kvmm_seq_remap() - sequences of a family become others of it: a beam step
 * @args: {child, other}: each child becomes the sequence that the other was
 *        before
 * @nr:   entries, of any number of families
 * @res:  @nr records; those of one family are all 0 or all errors: -EBUSY: an
 *        open step names one of its sequences; -ESTALE: a sequence is not
 *        READY; -EINVAL: not of one family, or a child named twice; -ENOENT;
 *        -ENOSPC: not enough table pages
 *
 * The caller must read the tables of the children again; the next grant's
 * table_lo says from where.
 *
 * Return: as above.
 */
int kvmm_seq_remap(struct kvmm *k, const struct kvmm_remap_arg *args, u32 nr,
		   struct kvmm_seq_res *res);
/**
 * kvmm_seq_truncate() - make sequences shorter
 * @args: {sequence, new length}; not more than the valid length
 * @nr:   entries
 * @res:  @nr records: 0, -EBUSY, -ESTALE, -EINVAL or -ENOENT, and the length
 *
 * The next append may order a copy, even if the sequence was never forked.
 *
 * Return: as above.
 */
int kvmm_seq_truncate(struct kvmm *k, const struct kvmm_len_arg *args, u32 nr,
		      struct kvmm_seq_res *res);
/**
 * kvmm_seq_trim() - give back whole blocks before a position
 * @args: {sequence, position}; positions before it will never be read again
 * @nr:   entries
 * @res:  @nr records: 0, -ESTALE, -EINVAL or -ENOENT, and the length
 *
 * The table keeps its indices; entries of blocks given back are KVMM_NO_INDEX.
 * The call takes effect when the steps that are open now have ended.
 *
 * Return: as above.
 */
int kvmm_seq_trim(struct kvmm *k, const struct kvmm_len_arg *args, u32 nr,
		  struct kvmm_seq_res *res);
/**
 * kvmm_seq_advise() - advice about the cache or the memory of sequences and leases
 * @args: KVMM_ADV_*, with its value
 * @nr:   entries
 * @res:  @nr records: 0 or an error, and for a lease the tokens that move
 *
 * Return: as above.
 */
int kvmm_seq_advise(struct kvmm *k, const struct kvmm_advise_arg *args, u32 nr,
		    struct kvmm_seq_res *res);
/*
 * @seqs: handles; those of results are __u64, which is another type for the compiler
 * Return: as above, or the status of the first entry that failed.
 */
int kvmm_seq_close(struct kvmm *k, const u64 *seqs, u32 nr);
/*
 * @res: a record for each (entry, group), group fastest: @nr * kvmm_nr_groups()
 */
int kvmm_step_begin(struct kvmm *k, u64 step,
		    const struct kvmm_begin_arg *args, u32 nr,
		    struct kvmm_begin_res *res);
/*
 * @ids: the ids of all entries, one entry after the other.
 */
int kvmm_step_end(struct kvmm *k, u64 step, u64 device_ns, u64 prefill_tokens,
		  const struct kvmm_end_arg *args, u32 nr, const u32 *ids,
		  struct kvmm_end_res *res);

/**
 * struct kvmm_piece - a range of memory that is copied
 * @to:    address of its new place
 * @from:  its address
 * @bytes: its length
 */
struct kvmm_piece {
	__u64 to;
	__u64 from;
	__u64 bytes;
};

/**
 * kvmm_copy() - copy several ranges of memory in one call
 * @pieces: no new place overlaps another range or another new place
 * @nr:     entries
 *
 * For bindings of languages in which a call costs more than a copy: a thread of Python
 * waits up to 5 ms for the interpreter's lock after each call.
 *
 * Context: any thread; no attachment is needed.
 */
void kvmm_copy(const struct kvmm_piece *pieces, u32 nr);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif /* LIBKVMM_H */
