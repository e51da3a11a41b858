/* SPDX-License-Identifier: Apache-2.0 */
/*
 * internal.h - declarations shared by the files of libkvmm
 */
#ifndef LIBKVMM_INTERNAL_H
#define LIBKVMM_INTERNAL_H

#include <libkvmm.h>
#include <kvmm/cudrv.h>
#include <kvmm/ring.h>

#define LK_TEXT_LEN	256		/* length of every line for people */
#define LK_LOOK_NS	100000000ll	/* longest time between looks at the socket */
#define LK_MAP_NS	1000000ll	/* the same, when descriptors are due */
#define LK_ATTACH_MS	30000		/* for the answer to ATTACH */
#define LK_ASK_MS		5000	/* for the answer to ASK */
#define LK_DETACH_NS	1000000000ll	/* for the answer to DETACH */
#define LK_FIRST_LOOK_NS 1000000ll	/* first look while an answer is due */
#define LK_RESUME_NS	30000000000ll	/* for the daemon to come back */
#define LK_RETRY_NS	2000000ll	/* time between attempts to connect */
#define LK_NR_FDS	3		/* segment C, segment D, doorbell */

/* State of a request that the library still accounts for. */
enum lk_req_state {
	LK_CALLER,	/* the caller reaps and releases it */
	LK_OWN,		/* made by the library, which skips its completion */
	LK_TAKEN,	/* its completion was read out of turn */
};

/**
 * struct lk_req - a request that is not released yet
 * @number:  number of its entry
 * @arg_end: end of its arguments in the running count of argument bytes
 * @op:      KVMM_OP_*
 * @state:   enum lk_req_state
 */
struct lk_req {
	u64	number;
	u64	arg_end;
	u16	op;
	u8	state;
};

/**
 * struct lk_extent - one extent in this process
 * @generation: generation of the mapping
 * @mapped:     the extent is mapped in the pool's range
 * @ack:        KVMM_ACK_* still to be sent, or 0
 */
struct lk_extent {
	u32	generation;
	bool	mapped;
	u8	ack;
};

/**
 * struct lk_old - segment D of a dead daemon, until all its results are
 * released
 * @until: index of the first completion that is not in it
 */
struct lk_old {
	struct lk_old		*next;
	u32			until;
	const void		*seg_d;
	u64			bytes;
	const struct kvmm_cqe	*cqe;
	const char		*result;
};

/**
 * struct kvmm - one attachment
 *
 * Completions come in the order of requests, one each, so the request at
 * running index i is answered at index i of the completion ring.  The record of
 * a request is in @req at the same index:
 *
 *   cons.head <= reaped <= cons.tail <= sub.tail
 *   released     seen      completed     prepared
 *
 * and `sub.tail - cons.head` never exceeds the size of the completion ring: a
 * request that could not be answered is not prepared.
 *
 * The indices go on after a resume: the rings of the new segments begin at
 * @first, and completions before it are in segments of @old.
 *
 * @away:     the daemon died; @sock is the connection to the next one, or -1
 * @away_since: when the library noticed that
 * @retry_at: when to connect again
 * @asked:    the request to resume was sent
 * @news:     the attachment was resumed, so records may have changed
 * @spare:    descriptors kept to leave room for the daemon's
 * @look_ns:  longest time between looks at the socket
 * @pool:     base of the pool's range: a device address if @cu is set
 * @cu:       the driver, NULL: the pool is host memory
 * @ctx:      primary context of @device, retained
 * @device_failed: the context can no longer be used or waited for
 */
struct kvmm {
	struct kvmm_attach_rep		info;
	char				path[512];
	int				sock;
	int				bell;
	int				spare[KVMM_MAP_AT_ONCE];
	u32				nr_spare;
	bool				away;
	bool				asked;
	bool				news;
	s64				away_since;
	s64				retry_at;
	s64				look_ns;
	u32				first;
	u32				nr_resumed;
	u32				nr_salvaged;
	struct lk_old			*old;	/* oldest first */
	int				ended;	/* -ECONNRESET once it has ended */
	char				why[LK_TEXT_LEN];
	u32				spin;
	u32				hit_tokens;	/* see lk_hit_tokens() */
	u32				nr_groups;
	u32				layers[KVMM_MAX_GROUPS];
	s64				looked;	/* last look at the socket */

	char				*pool;
	const struct cu_api		*cu;
	CUcontext			ctx;
	CUdevice			device;
	bool				device_failed;
	void				*seg_c;
	const void			*seg_d;
	struct kvmm_client_ctl		*ctl;
	const struct kvmm_daemon_ctl	*dctl;
	struct kvmm_sqe			*sqe;
	char				*arg;
	const struct kvmm_cqe		*cqe;
	const char			*result;
	const struct kvmm_event		*event;
	const struct kvmm_seq_status	*seq;
	const struct kvmm_extent_status	*ext_status;
	const struct kvmm_table_page	*table;

	struct ring_prod		sub;
	struct ring_cons		cons;
	u32				reaped;
	u32				release_to;
	u32				submitted;
	u64				number;	/* number of the last request */
	u64				step[KVMM_MAX_STEPS];	/* steps not ended */
	u64				object_step;	/* last step of objects.c */
	u64				over[KVMM_MAX_STEPS];	/* of these, to be ended */
	u32				nr_over;
	u32				nr_steps;
	u64				arg_head;
	u64				arg_tail;
	struct lk_req			*req;	/* [info.cq_entries] */

	u32				event_head;	/* the caller's index */
	u32				event_scan;	/* the library's index */
	u32				event_told;
	bool				events_used;

	struct lk_extent		*extent;	/* [info.nr_extents] */
	u32				nr_acks;
	u32				nr_mapped;	/* all mappings ever made */
	bool				maps_due;
};

s64 lk_now(void);

/* reach.c */
int __printf(3, 4) lk_fail(char *text, int err, const char *fmt, ...);
int __must_check lk_socket_path(const char *name, char *path, size_t size,
				char *text);
int __must_check lk_connect(const char *path, u32 timeout_ms, char *text);

/* attach.c */
int __must_check lk_judge_reply(const char *path, struct kvmm_attach_rep *rep,
				int bytes, int nr_fds, char *text);
int __must_check lk_receive_reply(int sock, const char *path, u32 timeout_ms,
				  struct kvmm_attach_rep *rep, int *fds,
				  int *nr_fds, char *text);
int __must_check lk_map_segments(struct kvmm *k, const int *fds, char *text);
void lk_place_pointers(struct kvmm *k, u32 first);

/* resume.c */
bool lk_resume_begin(struct kvmm *k);
int lk_resume(struct kvmm *k);
void lk_resume_sleep(const struct kvmm *k, s64 ns);
void lk_old_release(struct kvmm *k);

/* end.c */
int lk_end(struct kvmm *k, const char *fmt, ...) __printf(2, 3);
int lk_check_state(struct kvmm *k);
void lk_destroy(struct kvmm *k);

/* groups.c */
u32 lk_hit_tokens(const struct kvmm_attach_req *req);

/* geometry.c */
int __must_check lk_check_reply(const struct kvmm *k, u64 c_size, u64 d_size,
				char *text);

/* extents.c */
int __must_check lk_pool_reserve(struct kvmm *k, char *text);
void lk_pool_release(struct kvmm *k);
int lk_look_socket(struct kvmm *k);
int lk_look_events(struct kvmm *k);
void lk_send_acks(struct kvmm *k);

/* spare.c */
void lk_spare_give(struct kvmm *k);
void lk_spare_take(struct kvmm *k);

/* device.c */
int __must_check lk_device_reserve(struct kvmm *k, char *text);
void lk_device_release(struct kvmm *k);
int __must_check lk_device_map(struct kvmm *k, u32 extent, int fd);
int __must_check lk_device_unmap(struct kvmm *k, u32 extent);
int __must_check lk_device_quiet(struct kvmm *k);

/* ring.c */
u32 lk_result_size(u16 op);
int lk_look_completions(struct kvmm *k);
struct kvmm_sqe *lk_prep(struct kvmm *k, u16 op, u32 nr, u32 bytes,
			 enum lk_req_state state, void **args);
int lk_publish(struct kvmm *k);
int lk_look_around(struct kvmm *k, s64 now);
int lk_wait_for(struct kvmm *k, u32 index, s64 timeout_ns);
int lk_take(struct kvmm *k, u32 index, struct kvmm_done *done);
void lk_collect(struct kvmm *k);

/* One request that is prepared and waited for. */
struct lk_verb {
	struct kvmm_sqe		*sqe;
	void			*args;
	u32			index;
	struct kvmm_done	done;
};

/* verbs.c */
int lk_verb_prep(struct kvmm *k, struct lk_verb *v, u16 op, u32 nr, u64 bytes);
int lk_verb_run(struct kvmm *k, struct lk_verb *v, void *out, u32 want);

#endif /* LIBKVMM_INTERNAL_H */
