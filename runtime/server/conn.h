/* SPDX-License-Identifier: Apache-2.0 */
/*
 * conn.h - connections of an HTTP thread
 *
 * A loop is one thread with one event base.  Every connection belongs to one
 * loop, which an acceptor (accept.h) has chosen.  A connection takes one
 * request after the other.  The answering code gets each request from
 * loop_ops.request and uses the conn_ functions.  This layer does not know
 * which service it carries.
 */
#ifndef RUNTIME_SERVER_CONN_H
#define RUNTIME_SERVER_CONN_H

#include "runtime/server/access.h"
#include "runtime/server/mailbox.h"

#define CONN_ID_MAX	143u	/* bytes of a request's id, for the log */

struct conn;
struct event_base;
struct loop;

/**
 * struct conn_limits - limits for clients
 * @connections: most at once, of all loops together
 * @body:        most bytes of a body
 * @bodies:      most bytes of all bodies being received, by all loops
 * @head_s:      seconds for a whole head
 * @body_s:      seconds for a whole body
 * @idle_s:      seconds between two requests
 * @write_s:     seconds in which a client must read something
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
 * struct conn_owner - the answering code, for a request that takes time
 * @gone:     the client has gone; the connection must not be used any more
 * @writable: there is room in the output again
 */
struct conn_owner {
	void	(*gone)(struct conn_owner *o);
	void	(*writable)(struct conn_owner *o);
};

/**
 * struct http_request - a whole request, valid until it is answered
 * @head: its id is the client's, or was generated
 * @body: @len bytes
 */
struct http_request {
	struct http_head	head;
	const char		*body;
	size_t			len;
};

/**
 * struct loop_ops - the server's callbacks
 * @headers: write headers that every answer to the request @h has; may be NULL
 * @request: answer the request now, or conn_own() it
 * @refuse:  write the body of an answer that refuses input or a request
 * @ended:   the request was answered, or its client has gone
 */
struct loop_ops {
	void	(*headers)(struct loop *l, const struct http_head *h,
			   struct text *t);
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

/* tally() - add to a counter that one thread writes and any thread reads */
static inline void tally(u64 *figure, u64 n)
{
	WRITE_ONCE(*figure, *figure + n);
}

/**
 * struct loop_crowd - counters shared by the loops of a server
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
 * @mail:     mailbox of this thread
 * @crowd:    counters shared with the other loops
 * @all:      open connections
 * @idle:     of these, the ones between two requests
 * @dead:     closed connections, freed when no handler is running
 * @nr_conns: connections of this loop, those on their way included: the
 *            acceptor adds, this thread subtracts @nr_idle, @nr_busy: how many
 *            of them are between two requests, and how many have no whole
 *            answer yet; read by other threads
 * @evict:    how many idle connections the acceptor wants closed
 * @draining: connections end with their answer
 * @arg:      the server's
 * @ids:      state of the generator of request ids
 * @scratch:  buffer for answers; only used within one call
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

/* loop_create() - 0 or a negative errno; call loop_destroy() in both cases */
int __must_check loop_create(struct loop *l, const struct loop_ops *ops,
			     const struct conn_limits *limits,
			     struct loop_crowd *crowd, void *arg);
void loop_destroy(struct loop *l);

/*
 * loop_give() - give an accepted socket to @l, which closes it also on failure
 * @addr: of its client
 *
 * Context: any thread.
 */
void loop_give(struct loop *l, int fd, const struct sockaddr *addr);

/* loop_evict() - close the connection that is idle longest; any thread */
void loop_evict(struct loop *l);

/*
 * loop_drain() - close idle connections now, the others after their answer
 *
 * Context: any thread; the loop does it later.
 */
void loop_drain(struct loop *l);

/* loop_run() - run until loop_stop() */
void loop_run(struct loop *l);
/* loop_stop() - make loop_run() return; any thread */
void loop_stop(struct loop *l);

/* conn_own() - @o will answer later; NULL: the answer is complete */
void conn_own(struct conn *c, struct conn_owner *o);

/**
 * conn_tell() - set the log's values of the request being answered
 * @id:     at most CONN_ID_MAX bytes; copied, since the owner may be freed
 *          after ->gone and before the log is written
 * @tokens: tokens generated for it
 * @status: how it ended, if that is not the answer's status; 0: the answer's
 */
void conn_tell(struct conn *c, const char *id, u64 tokens, int status);

/* conn_tell_error() - set the log's reason of a refusal; both are copied */
void conn_tell_error(struct conn *c, const char *code, const char *param);

/*
 * conn_set_key() - set the key of the request: a number and, for the log, a
 * name
 *
 * @name must be valid as long as there are connections.  The default is 0 and
 * NULL.
 */
void conn_set_key(struct conn *c, u32 key, const char *name);
u32 conn_key(const struct conn *c);

/* conn_steal_body() - take the request's body over from the connection */
void conn_steal_body(struct conn *c, struct text *out);

/**
 * conn_reply() - send a whole answer
 * @headers: further headers, each with its CR LF, or NULL
 * @body:    @len bytes; left out for HEAD
 *
 * The connection goes on to its next request, or closes.  The caller must not
 * use @c any more.
 */
void conn_reply(struct conn *c, int status, const char *type,
		const char *headers, const char *body, size_t len);

/* conn_stream_begin() - send the head of an answer of unknown length */
void conn_stream_begin(struct conn *c, const char *type, const char *headers);
/* conn_stream_add() - send a piece of the answer as soon as possible */
void conn_stream_add(struct conn *c, const char *p, size_t len);
/* conn_stream_end() - complete the answer; then as after conn_reply() */
void conn_stream_end(struct conn *c);

/* conn_backlog() - bytes that the client has not read yet */
size_t conn_backlog(const struct conn *c);

/* conn_abort() - close now, without an end and without telling the owner */
void conn_abort(struct conn *c);

/* conn_loop() - the loop of the connection */
struct loop *conn_loop(struct conn *c);

#endif /* RUNTIME_SERVER_CONN_H */
