/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fake_daemon.h - a daemon in a thread, honest or hostile
 *
 * It attaches one client after the other and answers every verb in the simplest
 * way, so libkvmm and its users can be tested alone.  A test changes the answer
 * to ATTACH before it starts the thread; while the thread runs the test uses
 * the functions below, or holds @lock.
 *
 * (A client maps the segments a second time, so ThreadSanitizer does not see
 * that the rings order the thread's counts and the test's reads.)
 */
#ifndef FAKE_DAEMON_H
#define FAKE_DAEMON_H

#include <pthread.h>
#include <sys/un.h>

#include <uapi/kvmm.h>
#include <kvmm/ring.h>

#define FAKE_EXTENTS	8u
#define FAKE_EXT_SIZE	65536u
#define FAKE_SEQS	64u
#define FAKE_TABLES	16u
#define FAKE_RING	16u
#define FAKE_ARG_BYTES	4096u
#define FAKE_RES_BYTES	4096u
#define FAKE_BLOCK	16u	/* tokens */
#define FAKE_EVENTS	8u

/**
 * struct fake - the daemon
 * @lock:        held by the thread while it works
 * @rep:         template of the answer to ATTACH
 * @rep_bytes:   bytes of @rep that are sent
 * @nr_fds:      descriptors that are sent with it, at most 4
 * @mute:        never answer ATTACH
 * @hang_up:     close the connection instead of answering
 * @keep_size:   leave the files of the segments at this size, if not 0
 * @hold:        by fake_hold(): take no requests for now
 * @spoil:       changes a completion before it is published, if not NULL
 * @short_by:    number of results that a completion leaves out
 * @cached:      leading tokens of a prompt that SEQ_LOOKUP finds, whole blocks
 * @on_device:   of those, tokens on the device; the others are in an area
 * @lookup_most: tokens that one answer finds at most
 * @hit_every: hits end at multiples of so many tokens; 0: at every block
 * @spoil_lookup: changes an answer to SEQ_LOOKUP, if not NULL
 * @req:         the last ATTACH
 * @ops:         requests seen, by verb
 * @broken:      the fault of a request, or NULL
 * @ids:         ids seen in SEQ_MATCH, and a checksum over them
 * @ack:         last EXTENT_ACK of each extent
 */
struct fake {
	pthread_mutex_t		lock;
	struct sockaddr_un	addr;
	struct kvmm_attach_rep	rep;
	size_t			rep_bytes;
	u32			nr_fds;
	bool			mute;
	bool			hang_up;
	size_t			keep_size;
	u32			hold;
	void			(*spoil)(struct kvmm_cqe *cqe);
	u32			short_by;
	u32			cached;
	u32			on_device;
	u32			lookup_most;
	u32			hit_every;
	void			(*spoil_lookup)(struct kvmm_lookup_res *res);

	struct kvmm_attach_req	req;
	u32			ops[KVMM_NR_OPS];
	const char		*broken;
	u64			nr_ids;
	u64			sum_ids;
	u32			match_end;
	bool			match_last;
	struct kvmm_ack_arg	ack[FAKE_EXTENTS];
	u32			nr_acks;

	/* the connection */
	u32			stop;
	u32			serving;
	pthread_t		thread;
	int			listen_fd;
	int			sock;
	int			bell;
	char			*c;
	char			*d;
	struct kvmm_client_ctl	*ctl;
	struct kvmm_daemon_ctl	*dctl;
	struct ring_cons	sq;
	struct ring_prod	cq;
	u64			last_number;
	u32			res_pos;
	u32			next_seq;
};

/* Prepare with a valid answer; the socket lies in $TMPDIR. */
void fake_init(struct fake *f);

/* Listen and serve in a thread. */
void fake_start(struct fake *f);

/* Spoil completions from now on. */
void fake_lie(struct fake *f, void (*spoil)(struct kvmm_cqe *cqe),
	      u32 short_by);

/* Counts of the thread so far. */
u32 fake_ops(struct fake *f, u32 op);
u32 fake_acks(struct fake *f);
struct kvmm_ack_arg fake_ack(struct fake *f, u32 extent);
void fake_ids(struct fake *f, u64 *nr, u64 *sum);
bool fake_match_is_last(struct fake *f);
const char *fake_broken(struct fake *f);

/* Stop serving, close and remove everything. */
void fake_stop(struct fake *f);

/* Wait until a client is attached. */
void fake_wait_serving(struct fake *f);

/* Stop reading the rings and close the connection, like a dead daemon. */
void fake_hold(struct fake *f, u32 hold);
void fake_die(struct fake *f);

/* Set the client's state and wake it. */
void fake_set_state(struct fake *f, u32 state, int reason);

/* Put an event into the ring and wake the client. */
void fake_event(struct fake *f, u32 type, u32 index);

/* A memfd of @bytes that could be an extent. */
int fake_memfd(size_t bytes);

/* Send a map message with @nr entries and these descriptors. */
void fake_send_map(struct fake *f, u64 magic, u32 nr,
		   const struct kvmm_map_entry *entry, const int *fds,
		   u32 nr_fds);

/* Records in segment D. */
struct kvmm_seq_status *fake_seq(struct fake *f, u32 index);
struct kvmm_extent_status *fake_extent(struct fake *f, u32 index);
struct kvmm_table_page *fake_table(struct fake *f, u32 index);

#endif /* FAKE_DAEMON_H */
