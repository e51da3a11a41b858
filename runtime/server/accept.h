/* SPDX-License-Identifier: Apache-2.0 */
/*
 * accept.h - accept connections and choose their loops
 */
#ifndef RUNTIME_SERVER_ACCEPT_H
#define RUNTIME_SERVER_ACCEPT_H

#include "runtime/server/conn.h"

#define ACCEPT_SOCKETS	4u
#define ACCEPT_LOOPS	64u

struct evconnlistener;

/**
 * struct acceptor - listening sockets and the loops behind them
 * @loops:     [@nr]; the thread of the first one accepts for all
 * @next:      where the search for the loop with the fewest connections begins
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

/* acceptor_init() - 0 or -ENOMEM; call acceptor_close() in both cases */
int __must_check acceptor_init(struct acceptor *a, struct loop *first);

/* acceptor_add_loop() - add a loop that gets connections */
void acceptor_add_loop(struct acceptor *a, struct loop *l);

/* acceptor_add() - accept from a listening socket, which it owns from now on */
int __must_check acceptor_add(struct acceptor *a, int fd);

/* acceptor_close() - stop accepting */
void acceptor_close(struct acceptor *a);

#endif /* RUNTIME_SERVER_ACCEPT_H */
