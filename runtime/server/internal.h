/* SPDX-License-Identifier: Apache-2.0 */
/*
 * internal.h - interface between a loop and its connections
 */
#ifndef RUNTIME_SERVER_INTERNAL_H
#define RUNTIME_SERVER_INTERNAL_H

#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/event_struct.h>

#include "runtime/server/conn.h"

/*
 *	HEAD -> BODY -> BUSY -> HEAD ...
 *	                  \--> FLUSH -> LINGER -> DEAD
 */
enum conn_state {
	CONN_HEAD,	/* waits for a head, or reads one */
	CONN_BODY,	/* reads a body */
	CONN_BUSY,	/* waits for the answer */
	CONN_FLUSH,	/* the answer is complete and was the last one */
	CONN_LINGER,	/* all is sent; the client may still be sending */
	CONN_DEAD,
};

/**
 * struct conn - one connection
 * @next, @prev: links in loop->all, then in loop->dead @idle_next, @idle_prev:
 * links in loop->idle, while @idle
 * @arrive:    mail that gives the connection to its loop
 * @fd:        its socket until then
 * @peer:      the client
 * @timer:     deadline of the state
 * @began:     the first byte of a head has come
 * @unread:    the client may be sending input that will not be read
 * @advancing: conn_advance() is running
 * @streaming: conn_stream_begin() was called
 * @head:      copy of the head; @req points into it
 * @body:      received part of the body
 * @counted:   its bytes in loop->crowd->bodies
 * @lingered:  bytes dropped in CONN_LINGER
 * @owner:     the code that answers, while it takes time
 * @since:     when the request was whole, in ns
 * @status:    status of the answer, for the log
 * @told:      status for the log instead, or 0 @id, @tokens: of the request,
 *             for the log @key, @who: see conn_set_key()
 */
struct conn {
	struct loop		*loop;
	struct conn		*next;
	struct conn		*prev;
	struct conn		*idle_next;
	struct conn		*idle_prev;
	struct bufferevent	*bev;
	struct mail		arrive;
	int			fd;
	struct access_peer	peer;
	struct event		timer;
	enum conn_state		state;
	bool			idle;
	bool			began;
	bool			unread;
	bool			advancing;
	bool			streaming;
	struct http_request	req;
	struct http_chunks	chunks;
	struct text		head;
	struct text		body;
	u64			counted;
	u64			lingered;
	struct conn_owner	*owner;
	s64			since;
	int			status;
	int			told;
	char			id[CONN_ID_MAX + 1];
	u64			tokens;
	u32			key;
	const char		*who;
	char			code[48];
	char			param[64];
};

/* conn_new() - a connection of an accepted socket, for loop_give(), or NULL */
struct conn *conn_new(struct loop *l, int fd, const struct sockaddr *addr);

/* conn_set_state() - set the state and count it */
void conn_set_state(struct conn *c, enum conn_state state);

/* conn_kill() - close in any state, tell the owner, free later */
void conn_kill(struct conn *c);

/* conn_close() - close an idle connection once its last answer is sent */
void conn_close(struct conn *c);

/* conn_free() - free a dead connection */
void conn_free(struct conn *c);

/* loop_link(), loop_unlink() - enter and leave the list of open connections */
void loop_link(struct loop *l, struct conn *c);
void loop_unlink(struct loop *l, struct conn *c);

/* loop_idle() - enter or leave the list of idle connections */
void loop_idle(struct loop *l, struct conn *c, bool idle);

#endif /* RUNTIME_SERVER_INTERNAL_H */
