/* SPDX-License-Identifier: Apache-2.0 */
/*
 * serve.h - a server under test
 */
#ifndef TESTS_SERVE_H
#define TESTS_SERVE_H

#include "tests/integration/harness.h"
#include "tests/integration/http.h"

/**
 * struct served - a running kvrt serve
 * @port: port that it listens on
 */
struct served {
	struct rig	*rig;
	struct job	job;
	u32		port;
};

/* --loops of servers that are started from now on; 1 by default */
extern u32 serve_loops;

/* The model of servers that are started from now on; NULL: the demo model */
extern const char *serve_model;

/*
 * Start kvrt serve of the model with more options, NULL-terminated, and
 * wait until it prints its port.
 */
void serve_start(struct served *s, struct rig *r, ...);
/* The end of its stderr, for the text of a failure. */
const char *serve_said(struct served *s);
/* Wait until /ready answers @status; fails after @seconds. */
void serve_await(struct served *s, int status, u32 seconds);
/* End it with SIGTERM; it must exit with 0. */
void serve_stop(struct served *s);
/* Number of its open descriptors, without connections. */
u32 serve_fds(struct served *s);
/* That number must come back to @want within two seconds. */
void serve_expect_fds(struct served *s, u32 want);
/* A figure of /metrics, of the server or of its first model; fails if it is missing. */
double serve_figure(struct served *s, const char *name);
/* kvrt_request_success_total of one finished_reason. */
u32 serve_ended(struct served *s, const char *reason);
/*
 * Wait until no request runs and no block is held; fails after @ms, or later in
 * instrumented builds.
 */
void serve_await_idle(struct served *s, u32 ms);

/* POST to /v1/completions; the answer must be 200 and JSON. */
json_t *complete(struct served *s, const char *body);
/* The same, of a stream, on a new connection; its first event has come. */
void begin_stream(struct served *s, struct web *w, const char *body);
/* choices[i] of an answer. */
json_t *choice(json_t *answer, size_t i);
/* The text of the choice, or the content of its message. */
const char *choice_text(json_t *answer, size_t i);
/* usage.@name, or usage.prompt_tokens_details.@name. */
s64 usage(json_t *answer, const char *name);
/* A POST must get this status and an error that names @param. */
void refused(struct served *s, const char *path, const char *body, int status,
	     const char *param);

#endif /* TESTS_SERVE_H */
