/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libkvmm.h - the client library: attach, rings, steps
 *
 * A struct kvmm is one attachment.  It belongs to one thread at a time.
 * Requests are prepared, submitted together and reaped in ring order; the
 * wrappers at the end do one request and wait for it.  Every call that
 * touches the rings answers -ECONNRESET once the daemon is gone or has
 * expelled this client, with kvmm_strerror_attach() saying why.
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

struct kvmm;

/*
 * The model identity: tagged, length-prefixed fields into 256 bits.  Stays
 * where it was initialized: not to be copied.
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
 * struct kvmm_params - what a client asks for
 * @socket:       path; NULL: $KVMM_SOCKET, else the default of this user
 * @domain:       name of the domain
 * @identity:     from kvmm_identity_final()
 * @block_tokens: 16, 32 or 64
 * @group:        KV layout of the one layer group
 * @min_bytes:    memory.min asked for: what no other domain takes
 * @low_bytes:    memory.low: what others take last
 * @high_bytes:   memory.high: above it new sequences wait; 0: none
 * @max_bytes:    memory.max asked for, KVMM_LIMIT_MAX: none
 * @swap_max_bytes: most bytes in the host pool, and in each area; 0: no limit
 * @weight:       part of what nobody is promised, 1 to 10000; 0: 100
 * @max_seqs:     sequences wanted; 0: 256
 * @max_steps:    steps open at once; 0: 2
 * @spin:         pauses before sleeping for an answer; 0: sleep at once,
 *                KVMM_SPIN_FOREVER: never sleep
 * @attach_timeout_ms: how long to wait for the daemon's answer; 0: 30000
 */
struct kvmm_params {
	const char		*socket;
	const char		*domain;
	const u8		*identity;
	u32			block_tokens;
	struct kvmm_group	group;
	u64			min_bytes;
	u64			low_bytes;
	u64			high_bytes;
	u64			max_bytes;
	u64			swap_max_bytes;
	u32			weight;
	u32			max_seqs;
	u32			max_steps;
	u32			spin;
	u32			attach_timeout_ms;
};

#define KVMM_SPIN_FOREVER	0xffffffffu

/**
 * kvmm_attach() - attach to the daemon
 * @p:    what to ask for
 * @out:  the attachment, on success
 * @text: at least 256 bytes for one line that says why it failed
 *
 * Reserves the pool's address range (MADV_DONTFORK); extents are mapped as
 * the daemon hands them out.
 *
 * Return: 0; -ENOENT or -ECONNREFUSED: no daemon; -EPROTONOSUPPORT: another
 * ABI; else what the daemon said.
 */
int __must_check kvmm_attach(const struct kvmm_params *p, struct kvmm **out,
			     char *text);

/**
 * kvmm_ask() - what the daemon's pool is made of, without attaching
 * @socket: as in struct kvmm_params
 * @memory: KVMM_MEMORY_*
 * @device: which GPU: kvmm_attach_rep.device
 * @text:   at least 256 bytes for one line that says why it failed
 *
 * Waits a few seconds at most.
 *
 * Return: 0, or as kvmm_attach().
 */
int __must_check kvmm_ask(const char *socket, u32 *memory, u32 *device,
			  char *text);

/**
 * kvmm_detach() - unmap everything, say DETACH, close; @k may be NULL
 *
 * Steps that are still open are ended without progress first: the device must
 * be quiet.  Waits a second or two for a daemon that does not answer.
 */
void kvmm_detach(struct kvmm *k);

/** kvmm_info() - the daemon's answer at attach: geometry and sizes */
const struct kvmm_attach_rep *kvmm_info(const struct kvmm *k);

/**
 * kvmm_pool() - base of the pool's address range in this process
 *
 * With KVMM_MEMORY_CUDA it is an address of the device (CUdeviceptr), good in
 * the primary context of that device alone.
 */
void *kvmm_pool(const struct kvmm *k);

/**
 * kvmm_backend() - what the pool's memory is: KVMM_MEMORY_*
 *
 * With KVMM_MEMORY_CUDA this library uses the device's primary context, on the
 * thread that the attachment belongs to, and makes it current there.  An extent
 * that is asked back is unmapped when nothing runs in that context: kvmm_wait()
 * and kvmm_poll_extents() then wait for the device.  Like everything that uses
 * CUDA an attachment does not survive fork(): the child may only execute another
 * program or end.
 */
u32 kvmm_backend(const struct kvmm *k);

/** kvmm_strerror_attach() - why the attachment ended, one line */
const char *kvmm_strerror_attach(const struct kvmm *k);

/**
 * kvmm_device_failed() - has the pool's device failed in this process
 *
 * It ends the attachment, and no other can be made: a driver's context that has
 * failed stays so until the process ends.  An error that only the caller's own
 * calls of the driver have shown is not known here.
 */
bool kvmm_device_failed(const struct kvmm *k);

/**
 * kvmm_alive() - does the attachment still stand
 *
 * Looks at the daemon's word and, at most every 100 ms, at the socket.
 * Return: true, or false once it ended.
 */
bool kvmm_alive(struct kvmm *k);

/**
 * kvmm_resumed() - how often the daemon died and the next one went on
 * @salvaged: how many of these lost the steps that were open, or NULL
 *
 * The library resumes inside kvmm_wait(), kvmm_poll_extents() and
 * kvmm_confirm(); requests that had not taken effect are sent again.  After a
 * salvage steps that were open are void, and the records say which sequences
 * are to be matched again.  On a GPU the library waits for the context first.
 *
 * Return: all of them.
 */
u32 kvmm_resumed(const struct kvmm *k, u32 *salvaged);

/**
 * kvmm_confirm() - did the daemon live until now, or lose what steps read
 *
 * A daemon that salvages may give blocks that an open step reads to others
 * before this process knows of it.  So before anything is done with what came of
 * a step, when its kernels have ended, ask here; if kvmm_resumed() then counts
 * one more salvage, the step is void, and so is what was computed.
 *
 * Waits for the next daemon if there has to be one, up to 30 s; else it costs
 * one call of poll().
 *
 * Return: 0 or -ECONNRESET.
 */
int kvmm_confirm(struct kvmm *k);

/**
 * kvmm_prep() - prepare a request
 * @op:    KVMM_OP_*
 * @nr:    entries
 * @bytes: argument bytes, entries and ids together
 * @args:  where to write them, 8-byte aligned; valid until kvmm_submit()
 *
 * Return: the entry, with op, nr, number, arg_off and arg_len filled in;
 * NULL when the ring or the argument area is full: reap completions first.
 */
struct kvmm_sqe *kvmm_prep(struct kvmm *k, u16 op, u32 nr, u32 bytes,
			   void **args);

/** kvmm_submit() - publish what was prepared; rings the doorbell if needed */
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
 * Return: 1 with @done filled, 0: none yet, negative errno: the end.
 */
int kvmm_reap(struct kvmm *k, struct kvmm_done *done);

/**
 * kvmm_release() - give back arguments and results of all reaped so far
 *
 * Ring and areas are finite: a caller that reaps and never releases gets NULL
 * from kvmm_prep() and -EBUSY from the calls below.
 */
void kvmm_release(struct kvmm *k);

/**
 * kvmm_wait() - wait until a completion or an event may be there
 * @timeout_ns: give up after this; negative: no limit
 *
 * Spins as asked at attach, then sleeps.  Meanwhile maps extents that the
 * daemon hands out and acknowledges them.  Returns at once while a completion
 * was not reaped, or, once kvmm_next_event() was ever called, an event was not
 * taken; a caller that takes no events is woken by each of them once.
 *
 * Return: 0; -ETIMEDOUT; -ECONNRESET.
 */
int kvmm_wait(struct kvmm *k, s64 timeout_ns);

/**
 * kvmm_poll_extents() - map and acknowledge what the daemon handed out
 *
 * kvmm_wait() does it too; a client that does not wait must call it between
 * steps.
 * Return: extents mapped, or a negative errno.
 */
int kvmm_poll_extents(struct kvmm *k);

/** kvmm_next_event() - take one event: 1, 0: none, -EOVERFLOW: some were lost */
int kvmm_next_event(struct kvmm *k, struct kvmm_event *ev);

/**
 * kvmm_seq_status() - a consistent copy of a sequence's record
 * Return: 0; -ENOENT when the handle is not current; when the daemon stopped
 * in the middle of a change: -ECONNRESET if it is gone, -EAGAIN after a second
 * if it lives.
 */
int kvmm_seq_status(const struct kvmm *k, u64 seq, struct kvmm_seq_status *st);

/**
 * kvmm_seq_table() - copy a sequence's block table
 * @group: layer group
 * @first: first index wanted
 * @nr:    entries wanted
 * @out:   @nr offsets in units of kvmm_attach_rep.unit
 *
 * Entries of an open step do not change.  Others may: then the copy is of one
 * instant, or -EAGAIN when none could be had.
 *
 * Return: 0; -ERANGE when the chain is shorter; else as kvmm_seq_status().
 */
int kvmm_seq_table(const struct kvmm *k, u64 seq, u32 group, u32 first, u32 nr,
		   u32 *out);

/*
 * One request, one answer.  Whatever was prepared is submitted with it;
 * requests in flight stay there and are reaped later, in order.
 *
 * Return: the request's status; -E2BIG: more than one request can hold;
 * -EBUSY: no room until the caller releases; -ECONNRESET.
 */
int kvmm_nop(struct kvmm *k);
int kvmm_seq_open(struct kvmm *k, const struct kvmm_open_arg *args, u32 nr,
		  struct kvmm_open_res *res);
/*
 * In as many pieces as the argument area requires, from the first id on.
 * Return: as above, or the status of the entry that failed; -EAGAIN: the daemon
 * has no room for the ids now.
 */
int kvmm_seq_match(struct kvmm *k, u64 seq, const u32 *ids, u32 nr);
int kvmm_seq_fork(struct kvmm *k, u64 seq, u32 nr_children,
		  struct kvmm_open_res *res);
/**
 * kvmm_seq_remap() - sequences of a family become others of it: a beam step
 * @args: {child, other}: each child becomes what the other was before
 * @nr:   entries, of as many families as liked
 * @res:  @nr records; those of one family are all 0 or all errors: -EBUSY:
 *        one that is named is in an open step; -ESTALE: one is not READY;
 *        -EINVAL: not of one family, or a child named twice; -ENOENT; -ENOSPC:
 *        table pages do not suffice
 *
 * The tables of children are to be read again; the next grant's table_lo says
 * from where.
 *
 * Return: as above.
 */
int kvmm_seq_remap(struct kvmm *k, const struct kvmm_remap_arg *args, u32 nr,
		   struct kvmm_seq_res *res);
/**
 * kvmm_seq_truncate() - make sequences shorter
 * @args: {sequence, new length}; not longer than what is valid
 * @nr:   entries
 * @res:  @nr records: 0, -EBUSY, -ESTALE, -EINVAL or -ENOENT, and the length
 *
 * The next append may come with a copy, also where nothing was forked.
 *
 * Return: as above.
 */
int kvmm_seq_truncate(struct kvmm *k, const struct kvmm_len_arg *args, u32 nr,
		      struct kvmm_seq_res *res);
/**
 * kvmm_seq_trim() - give back whole blocks before a position
 * @args: {sequence, position}; nothing before it will be read again
 * @nr:   entries
 * @res:  @nr records: 0, -ESTALE, -EINVAL or -ENOENT, and the length
 *
 * The table keeps its indices; those given back are KVMM_NO_INDEX.  It takes
 * effect when the steps that are open have ended.
 *
 * Return: as above.
 */
int kvmm_seq_trim(struct kvmm *k, const struct kvmm_len_arg *args, u32 nr,
		  struct kvmm_seq_res *res);
/* Return: as above, or the status of the first entry that failed. */
int kvmm_seq_close(struct kvmm *k, const u64 *seqs, u32 nr);
int kvmm_step_begin(struct kvmm *k, u64 step,
		    const struct kvmm_begin_arg *args, u32 nr,
		    struct kvmm_begin_res *res);
/* @ids: the ids of all entries, one after the other. */
int kvmm_step_end(struct kvmm *k, u64 step, u64 device_ns, u64 prefill_tokens,
		  const struct kvmm_end_arg *args, u32 nr, const u32 *ids,
		  struct kvmm_end_res *res);

#ifdef __cplusplus
}
#endif

#endif /* LIBKVMM_H */
