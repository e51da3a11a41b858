/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conn.h - connections of an HTTP thread
 *
 * A loop is one thread with one event base; every connection belongs to one
 * loop.  A connection takes one request after the other; whoever answers gets
 * it from loop_ops.request and uses the conn_ functions.  Nothing here knows
 * what is served.
 */
#ifndef RUNTIME_SERVER_CONN_H
#define RUNTIME_SERVER_CONN_H

#include "runtime/server/access.h"
#include "runtime/server/mailbox.h"

struct conn;
struct event_base;
struct evconnlistener;
struct loop;

/**
 * struct conn_limits - what a client may take
 * @connections: of one loop at once
 * @body:        bytes of a body
 * @bodies:      bytes of all bodies being received
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

/* A list of connections, oldest first. */
struct conn_list {
	struct conn	*first;
	struct conn	*last;
};

/**
 * struct loop - one HTTP thread
 * @mail:     of this thread
 * @all:      open connections
 * @idle:     of these, those between two requests
 * @dead:     closed ones, freed when no handler is running
 * @bodies:   bytes of bodies being received
 * @draining: connections end with their answer
 * @arg:      the server's
 * @scratch:  for answers; used by the thread between two calls only
 * @status:   answers by hundreds of the status
 */
struct loop {
	struct event_base		*base;
	struct mailbox			mail;
	const struct loop_ops		*ops;
	const struct conn_limits	*limits;
	void				*arg;
	struct evconnlistener		*listener;
	struct event			*ev_mail;
	struct event			*ev_reap;
	struct event			*ev_accept;
	struct conn_list		all;
	struct conn_list		idle;
	struct conn_list		dead;
	u32				nr_conns;
	u64				bodies;
	bool				draining;
	struct text			scratch;
	struct loop_stats		stats;
	u64				status[6];
};

/* loop_create() - 0 or a negative errno; loop_destroy() is due in every case */
int __must_check loop_create(struct loop *l, const struct loop_ops *ops,
			     const struct conn_limits *limits, void *arg);
void loop_destroy(struct loop *l);

/* loop_listen() - accept from a listening socket, which the loop now owns */
int __must_check loop_listen(struct loop *l, int fd);

/* loop_drain() - accept no more, close idle connections, the rest later */
void loop_drain(struct loop *l);

/* loop_busy() - connections that have not got their whole answer */
u32 loop_busy(const struct loop *l);

/* loop_run() - until loop_stop() */
void loop_run(struct loop *l);
void loop_stop(struct loop *l);

/* conn_own() - @o answers later; NULL: the answer is complete */
void conn_own(struct conn *c, struct conn_owner *o);

/**
 * conn_tell() - what the log is to say of the request being answered
 * @id:     valid until conn_tell() is called again or the answer is complete
 * @tokens: generated for it
 * @status: how it ended where that is not the answer's status; 0: as that
 */
void conn_tell(struct conn *c, const char *id, u64 tokens, int status);

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
