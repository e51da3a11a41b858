/* SPDX-License-Identifier: Apache-2.0 */
/*
 * hint.h - the paths of sessions: hints from clients, and answers
 */
#ifndef RUNTIME_SERVER_HINT_H
#define RUNTIME_SERVER_HINT_H

#include "runtime/server/service.h"

/**
 * hint_start() - answer a request to /v1/sessions, or to a session below it
 * @name: of the session, @len bytes; NULL: all sessions of the client
 */
void hint_start(struct service *svc, struct conn *c, const struct http_request *r,
		const char *name, size_t len);

#endif /* RUNTIME_SERVER_HINT_H */
