/* SPDX-License-Identifier: Apache-2.0 */
/*
 * lookup.h - tell kvctl which sequences a request has
 */
#ifndef RUNTIME_SERVER_LOOKUP_H
#define RUNTIME_SERVER_LOOKUP_H

#include "runtime/server/service.h"

struct evconnlistener;

/* The socket of a server: all zero is a closed one. */
struct lookup {
	struct site		*site;
	struct evconnlistener	*listener;
};

/*
 * lookup_open() - answer questions on the thread of the first loop of @site
 *
 * Without the socket, which is logged, everything else works.
 */
void lookup_open(struct lookup *l, struct site *site);
void lookup_close(struct lookup *l);

#endif /* RUNTIME_SERVER_LOOKUP_H */
