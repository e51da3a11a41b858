/* SPDX-License-Identifier: Apache-2.0 */
/*
 * accept.h - new connections, and which loop gets them
 */
#ifndef RUNTIME_SERVER_ACCEPT_H
#define RUNTIME_SERVER_ACCEPT_H

#include "runtime/server/conn.h"

#define ACCEPT_SOCKETS	4u
#define ACCEPT_LOOPS	64u

struct evconnlistener;

/**
 * struct acceptor - listening sockets and the loops behind them
 * @loops:     [@nr]; the thread of the first accepts for all
 * @next:      where the search for the emptiest begins
 * @listeners: [@nr_listeners]
 * @ev_again:  ends a pause
 */
struct acceptor {
	struct loop		*loops[ACCEPT_LOOPS];
	u32			nr;
	u32			next;
	struct evconnlistener	*listeners[ACCEPT_SOCKETS];
	u32			nr_listeners;
	struct event		*ev_again;
};

/* acceptor_init() - 0 or -ENOMEM; acceptor_close() is due in every case */
int __must_check acceptor_init(struct acceptor *a, struct loop *first);

/* acceptor_add_loop() - one more to give connections to */
void acceptor_add_loop(struct acceptor *a, struct loop *l);

/* acceptor_add() - accept from a listening socket, which is its own now */
int __must_check acceptor_add(struct acceptor *a, int fd);

/* acceptor_close() - accept no more */
void acceptor_close(struct acceptor *a);

#endif /* RUNTIME_SERVER_ACCEPT_H */
