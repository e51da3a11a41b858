/* SPDX-License-Identifier: Apache-2.0 */
/*
 * route.h - paths of the server and their handlers
 */
#ifndef RUNTIME_SERVER_ROUTE_H
#define RUNTIME_SERVER_ROUTE_H

#include "runtime/server/service.h"

/* Method, path, handler, whether the API key guards it, purpose. */
#define ROUTES(x)							\
	x(POST, "/v1/completions", completions, true, "complete prompts") \
	x(POST, "/v1/chat/completions", chat, true, "answer a chat")	\
	x(GET, "/v1/models", models, true, "the models that are served; /v1/models/NAME tells of one alone") \
	x(GET, "/v1/sessions", sessions, true, "the sessions of the client; /v1/sessions/NAME is one of them: GET, POST a hint, DELETE") \
	x(POST, "/v1/load_lora_adapter", load_adapter, true, "load an adapter; only with --enable-lora") \
	x(POST, "/v1/unload_lora_adapter", unload_adapter, true, "likewise: take its name away") \
	x(POST, "/tokenize", tokenize, true, "tokens of a text or a chat")	\
	x(POST, "/detokenize", detokenize, true, "the text of tokens")	\
	x(GET, "/health", health, false, "200 while the process lives; 503 when it is about to end since its GPU failed")	\
	x(GET, "/ready", ready, false, "200 when requests would be worked at now, else 503 and why") \
	x(GET, "/version", version, false, "of kvrt")			\
	x(GET, "/metrics", metrics, false, "figures for Prometheus")

/* route_request() - answer @r; @l->arg is the service */
void route_request(struct loop *l, struct conn *c,
		   const struct http_request *r);

/* route_headers() - as struct loop_ops.headers */
void route_headers(struct loop *l, const struct http_head *h, struct text *t);

/* route_refuse() - as struct loop_ops.refuse */
void route_refuse(struct text *t, int status, const char *code,
		  const char *why);

#endif /* RUNTIME_SERVER_ROUTE_H */
