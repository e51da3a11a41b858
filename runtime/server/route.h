/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route.h - paths of the server, and what answers there
 */
#ifndef RUNTIME_SERVER_ROUTE_H
#define RUNTIME_SERVER_ROUTE_H

#include "runtime/server/call.h"

/* Method, path, handler, whether the API key guards it, what it is for. */
#define ROUTES(x)							\
	x(POST, "/v1/completions", completions, true, "complete prompts") \
	x(POST, "/v1/chat/completions", chat, true, "answer a chat")	\
	x(GET, "/v1/models", models, true, "the model that is served; /v1/models/NAME tells of it alone") \
	x(GET, "/health", health, false, "200 while the process lives")	\
	x(GET, "/ready", ready, false, "200 when requests would be worked at now, else 503 and why") \
	x(GET, "/version", version, false, "of kvrt")			\
	x(GET, "/metrics", metrics, false, "figures for Prometheus")

/**
 * struct site - what handlers look at
 * @key:     the API key, or NULL: none is wanted
 * @stall_s: as in struct server_opts
 */
struct site {
	struct service	*svc;
	const char	*key;
	u32		stall_s;
	s64		created;
};

/* route_request() - answer @r; @l->arg is the site */
void route_request(struct loop *l, struct conn *c,
		   const struct http_request *r);

/* route_refuse() - as struct loop_ops.refuse */
void route_refuse(struct text *t, int status, const char *code,
		  const char *why);

#endif /* RUNTIME_SERVER_ROUTE_H */
