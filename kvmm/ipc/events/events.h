/* SPDX-License-Identifier: Apache-2.0 */
/*
 * events.h - events of cached blocks, published for routers (--kv-events)
 *
 *	feed.c		the core's records of names into the ring; the mm thread
 *	ring.c		the ring between the two threads
 *	pack.c		MessagePack
 *	batch.c		records of the ring become a batch of events
 *	keep.c		the last batches, for subscribers that missed some
 *	listen.c	endpoints of the options, and their listening sockets
 *	publish.c	the thread: batches out, answers to requests for old ones
 *
 * The mm thread never waits for the publisher: a record that finds no room is lost, and
 * then the core tells all names anew (kvmm/core/names.h).  Only publish.c knows ZeroMQ.
 */
#ifndef KVMM_IPC_EVENTS_H
#define KVMM_IPC_EVENTS_H

#include <pthread.h>
#include <sys/un.h>

#include <kvmm/addr.h>

#include "kvmm/core/names.h"
#include "kvmm/ipc/base/base.h"
#include "kvmm/ipc/base/setup.h"

/* ---- ring.c ---- */

enum ev_kind {
	EV_PAD,		/* the rest of the memory, before its begin */
	EV_CLEAR,	/* no block is known from now on */
	EV_NAME,
	EV_DOMAIN,	/* @ids is the name of @domain from now on */
};

/**
 * struct ev_rec - a record of the ring
 * @bytes: of the whole record, a multiple of 8; a pad has this and @kind alone
 * @kind:  EV_*
 *
 * The other members are those of struct core_name.
 */
struct ev_rec {
	u32	bytes;
	u8	kind;
	u8	from;
	u8	to;
	u8	salted;
	u64	hash;
	u64	parent;
	u32	domain;
	u32	window;
	u16	group;
	u16	group_kind;
	u32	nr_ids;
	u32	ids[];
};
static_assert(sizeof(struct ev_rec) == 40, "records are multiples of 8");

/**
 * struct ev_ring - records of one thread for another
 * @size: bytes of @mem, a power of two
 * @head: bytes that the consumer took
 * @tail: bytes that the producer put
 * @seen: @head as the producer read it last
 * @next: @tail after the record that is reserved
 */
struct ev_ring {
	u8	*mem;
	u64	size;
	u64	head __attribute__((aligned(64)));
	u64	tail __attribute__((aligned(64)));
	u64	seen;
	u64	next;
};

int __must_check ev_ring_init(struct ev_ring *r, u64 size);
void ev_ring_exit(struct ev_ring *r);
struct ev_rec *ev_ring_reserve(struct ev_ring *r, u32 bytes);
void ev_ring_commit(struct ev_ring *r);
u64 ev_ring_used(const struct ev_ring *r);
const struct ev_rec *ev_ring_next(struct ev_ring *r);
void ev_ring_done(struct ev_ring *r, const struct ev_rec *rec);

/* ---- pack.c ---- */

/* struct pack - bytes of MessagePack; bytes that do not fit are cut, and @full says so */
struct pack {
	u8	*buf;
	u32	size;
	u32	len;
	bool	full;
};

void pack_nil(struct pack *p);
void pack_uint(struct pack *p, u64 n);
void pack_double(struct pack *p, double d);
void pack_str(struct pack *p, const char *s);
void pack_array(struct pack *p, u32 nr);
void pack_map(struct pack *p, u32 nr);
u32 pack_array_later(struct pack *p);
void pack_array_now(struct pack *p, u32 at, u32 nr);

/* ---- batch.c ---- */

#define EV_BATCH_BYTES	(16u << 10)	/* a batch of more bytes is sent */
#define EV_EVENT_HASHES	64u		/* of one event */
#define EV_EVENT_IDS	(2 * KVMM_MAX_BLOCK_TOKENS)
#define EV_BATCH_MOST	(EV_BATCH_BYTES + 2 * 10 * EV_EVENT_HASHES + 5 * EV_EVENT_IDS + 1024)

/**
 * struct ev_batch - a batch of events that is being made
 * @arrays: events are arrays, as in vLLM before 0.24, not maps
 * @nr:     events that are packed
 * @at:     place of their number
 * @first:  record of the event that is not packed yet, without ids
 * @nr_hash: blocks of this event; 0: there is none
 */
struct ev_batch {
	struct pack	pack;
	bool		arrays;
	u32		nr;
	u32		at;
	struct ev_rec	first;
	u32		nr_hash;
	u32		nr_ids;
	u64		hash[EV_EVENT_HASHES];
	u32		ids[EV_EVENT_IDS];
	u8		buf[EV_BATCH_MOST];
};

void ev_batch_begin(struct ev_batch *b, double seconds);
bool ev_batch_add(struct ev_batch *b, const struct ev_rec *rec);
bool ev_batch_end(struct ev_batch *b);

/* ---- keep.c ---- */

/**
 * struct ev_keep - the last batches that were sent, each with its topic
 * @nr:    most of them
 * @first: number of the oldest
 * @next:  number of the next batch
 */
struct ev_keep {
	struct ev_kept {
		u8	*data;
		u32	len;
		char	*topic;
	}	*slot;
	u32	nr;
	u64	first;
	u64	next;
};

int __must_check ev_keep_init(struct ev_keep *k, u32 nr, u64 first);
void ev_keep_exit(struct ev_keep *k);
int __must_check ev_keep_add(struct ev_keep *k, const char *topic, const void *data, u32 len);
const struct ev_kept *ev_keep_get(const struct ev_keep *k, u64 seq);

/* ---- listen.c ---- */

#define EV_ENDPOINT	(sizeof(((struct sockaddr_un *)0)->sun_path) + 8)

/**
 * struct ev_listen - an endpoint that subscribers connect to
 * @fd:  listening socket, -1: there is none, or ZeroMQ has it
 * @made: the file of @path is ours
 * @url: the endpoint in ZeroMQ's words
 */
struct ev_listen {
	int			fd;
	bool			ipc;
	bool			made;
	struct kv_addr		addr;
	struct sockaddr_un	path;
	char			url[EV_ENDPOINT];
};

int __must_check ev_listen_parse(const char *text, struct ev_listen *l);
int __must_check ev_listen_open(struct ev_listen *l);
void ev_listen_close(struct ev_listen *l);

/* ---- the publisher ---- */

#define EV_REPLAYS	16u	/* requests for old batches that are answered at once */
#define EV_ID_MOST	255u	/* bytes of the name that ZeroMQ gives a peer */

/**
 * struct ev_replay - a peer that old batches are being sent to
 * @len: bytes of @id; 0: unused
 * @seq: number of the next batch for it
 * @moved: time at which it took something
 */
struct ev_replay {
	u32	len;
	u8	id[EV_ID_MOST];
	u64	seq;
	u64	moved;
};

/**
 * struct events - the publisher of cached blocks
 * @mm:      wakes the mm thread
 * @names:   memory that the core has for its records; NULL: nothing is published
 * @put:     the mm thread put records that the thread was not woken for
 * @serials: by domain: kv_domain.serial plus one that its name was put for; mm thread
 * @domains: by domain: its name, if topics have it
 * @domain:  that the batch being made is about, if topics have its name
 * @again:   all names are to be told anew; set by the thread, taken by the mm thread
 * @waits:   the core has more to tell and waits for room; written by the mm thread
 * @sleeper: wakes the thread
 * @first:   number of the first batch
 * @asked:   time of the last request for a new snapshot
 * @context, @pub, @router: ZeroMQ's
 */
struct events {
	struct setup		*setup;
	struct sleeper		*mm;
	void			*names;
	u64			names_bytes;
	bool			put;
	u32			*serials;
	char			(*domains)[KVMM_NAME_LEN];
	u32			domain;
	u32			again;
	u32			waits;
	struct ev_ring		ring;
	struct sleeper		sleeper;
	struct ev_listen	listen;
	struct ev_listen	replay;
	pthread_t		thread;
	bool			runs;
	u32			stop;
	struct ev_batch		*batch;
	struct ev_keep		keep;
	u64			first;
	u64			asked;
	struct ev_replay	replays[EV_REPLAYS];
	void			*context;
	void			*pub;
	void			*router;
};

/* A topic with this word is one for each domain, and has its name. */
#define EV_TOPIC_DOMAIN	"{domain}"

/* events_by_domain() - are there topics by domain? */
static inline bool events_by_domain(const struct events *e)
{
	return e->setup->opt.kv_events_topic &&
	       strstr(e->setup->opt.kv_events_topic, EV_TOPIC_DOMAIN);
}

/* events_wanted() - is anything to be published? */
static inline bool events_wanted(const struct events *e)
{
	return e->setup->opt.kv_events;
}

/* listen.c */
int __must_check events_options(struct events *e);
int __must_check events_listen(struct events *e);

/* feed.c */
int __must_check events_init(struct events *e);
bool events_turn(struct events *e);

/* events_waits() - is there work for the mm thread? */
static inline bool events_waits(const struct events *e)
{
	return READ_ONCE(e->again);
}

/* publish.c */
bool events_built(void);
int __must_check events_start(struct events *e);
void events_stop(struct events *e);
void events_exit(struct events *e);

#endif /* KVMM_IPC_EVENTS_H */
