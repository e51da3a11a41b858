/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conn.h - connections of an HTTP thread
 *
 * A loop is one thread with one event base; every connection belongs to one
 * loop, which an acceptor (accept.h) chose.  A connection takes one request
 * after the other; whoever answers gets it from loop_ops.request and uses the
 * conn_ functions.  Nothing here knows what is served.
 */
#ifndef RUNTIME_SERVER_CONN_H
#define RUNTIME_SERVER_CONN_H

#include "runtime/server/access.h"
#include "runtime/server/mailbox.h"

#define CONN_ID_MAX	143u	/* bytes of an id, for the log */

struct conn;
struct event_base;
struct loop;

/**
 * struct conn_limits - what a client may take
 * @connections: at once, of all loops together
 * @body:        bytes of a body
 * @bodies:      bytes of all bodies being received, by all loops
 * @head_s:      seconds for a whole head
 * @body_s:      seconds for a whole body
 * @idle_s:      seconds between two requests
 * @write_s:     seconds in which a reader must take something
 */
struct conn_limits {
	u32	connections;
	u64	body;
	u64	bodies;
	u32	head_s;
	u32	body_s;
	u32	idle_s;
	u32	write_s;
};

/**
 * struct conn_owner - who answers a request that takes its time
 * @gone:     the client is gone; the connection must not be used any more
 * @writable: there is room in the output again
 */
struct conn_owner {
	void	(*gone)(struct conn_owner *o);
	void	(*writable)(struct conn_owner *o);
};

/**
 * struct http_request - a whole request, valid until it is answered
 * @head: its id is the client's, or was made up
 * @body: @len bytes
 */
struct http_request {
	struct http_head	head;
	const char		*body;
	size_t			len;
};

/**
 * struct loop_ops - what a server does with requests
 * @request: answer it now, or conn_own() it
 * @refuse:  the body of an answer to what was no request, or to one too many
 * @ended:   it was answered, or its client is gone
 */
struct loop_ops {
	void	(*request)(struct loop *l, struct conn *c,
			   const struct http_request *r);
	void	(*refuse)(struct text *t, int status, const char *code,
			  const char *why);
	void	(*ended)(const struct access *a);
};

/* Counters of a loop. */
#define LOOP_STATS(x)							\
	x(accepted,	"connections accepted")				\
	x(requests,	"requests received whole")			\
	x(refused,	"requests refused before they were whole")	\
	x(timeouts,	"connections closed since a client was too slow") \
	x(evicted,	"idle connections closed to make room")		\
	x(vanished,	"clients that went away before their answer")

struct loop_stats {
#define x(name, text) u64 name;
	LOOP_STATS(x)
#undef x
};

/* tally() - count in a figure that one thread writes and any thread reads */
static inline void tally(u64 *figure, u64 n)
{
	WRITE_ONCE(*figure, *figure + n);
}

/**
 * struct loop_crowd - what the loops of a server have together
 * @bodies: bytes of bodies being received
 */
struct loop_crowd {
	u64	bodies;
};

/* A list of connections, oldest first. */
struct conn_list {
	struct conn	*first;
	struct conn	*last;
};

/**
 * struct loop - one HTTP thread
 * @mail:     of this thread
 * @crowd:    what it shares with the others
 * @all:      open connections
 * @idle:     of these, those between two requests
 * @dead:     closed ones, freed when no handler is running
 * @nr_conns: connections that are its own, those on their way included: the
 *            acceptor adds, this thread takes away
 * @nr_idle, @nr_busy: of them, between two requests, and without their whole
 *            answer; read by others
 * @evict:    idle connections that the acceptor wants closed
 * @draining: connections end with their answer
 * @arg:      the server's
 * @ids:      state of the numbers that requests without an id get
 * @scratch:  for answers; used by the thread between two calls only
 * @status:   answers by hundreds of the status; see tally()
 */
struct loop {
	struct event_base		*base;
	struct mailbox			mail;
	const struct loop_ops		*ops;
	const struct conn_limits	*limits;
	struct loop_crowd		*crowd;
	void				*arg;
	struct event			*ev_mail;
	struct event			*ev_reap;
	struct conn_list		all;
	struct conn_list		idle;
	struct conn_list		dead;
	u32				nr_conns;
	u32				nr_idle;
	u32				nr_busy;
	u32				evict;
	struct mail			to_evict;
	struct mail			to_drain;
	struct mail			to_stop;
	bool				draining;
	u64				ids;
	struct text			scratch;
	struct loop_stats		stats;
	u64				status[6];
};

/* loop_create() - 0 or a negative errno; loop_destroy() is due in every case */
int __must_check loop_create(struct loop *l, const struct loop_ops *ops,
			     const struct conn_limits *limits,
			     struct loop_crowd *crowd, void *arg);
void loop_destroy(struct loop *l);

/*
 * loop_give() - an accepted socket is its own from now on, closed on failure
 *
 * Context: any thread.
 */
void loop_give(struct loop *l, int fd);

/* loop_evict() - close the connection that is idle longest; any thread */
void loop_evict(struct loop *l);

/*
 * loop_drain() - close idle connections, the rest with their answer
 *
 * Context: any thread; it happens later.
 */
void loop_drain(struct loop *l);

/* loop_run() - until loop_stop() */
void loop_run(struct loop *l);
/* loop_stop() - have loop_run() return; any thread */
void loop_stop(struct loop *l);

/* conn_own() - @o answers later; NULL: the answer is complete */
void conn_own(struct conn *c, struct conn_owner *o);

/**
 * conn_tell() - what the log is to say of the request being answered
 * @id:     at most CONN_ID_MAX bytes; copied, since an owner that is told of
 *          the client's leaving may be freed before the log is written
 * @tokens: generated for it
 * @status: how it ended where that is not the answer's status; 0: as that
 */
void conn_tell(struct conn *c, const char *id, u64 tokens, int status);

/*
 * conn_set_key() - whose the request is: a number and, for the log, a name
 *
 * @name is valid as long as there are connections; without a call 0 and NULL.
 */
void conn_set_key(struct conn *c, u32 key, const char *name);
u32 conn_key(const struct conn *c);

/* conn_steal_body() - keep the body of the request for longer than it */
void conn_steal_body(struct conn *c, struct text *out);

/**
 * conn_reply() - the whole answer
 * @headers: more of them, each with its CR LF, or NULL
 * @body:    @len bytes; left out for HEAD
 *
 * The connection goes on to its next request, or closes; @c must not be used
 * any more.
 */
void conn_reply(struct conn *c, int status, const char *type,
		const char *headers, const char *body, size_t len);

/* conn_stream_begin() - the head of an answer whose length is not known */
void conn_stream_begin(struct conn *c, const char *type, const char *headers);
/* conn_stream_add() - a piece of it, sent as soon as possible */
void conn_stream_add(struct conn *c, const char *p, size_t len);
/* conn_stream_end() - it is complete; as after conn_reply() */
void conn_stream_end(struct conn *c);

/* conn_backlog() - bytes that the reader has not taken */
size_t conn_backlog(const struct conn *c);

/* conn_abort() - close now, unfinished; its owner is not told */
void conn_abort(struct conn *c);

/* conn_loop() - whose it is */
struct loop *conn_loop(struct conn *c);

#endif /* RUNTIME_SERVER_CONN_H */
