/* SPDX-License-Identifier: Apache-2.0 */
/*
 * serve.h - a server under test
 */
#ifndef TESTS_SERVE_H
#define TESTS_SERVE_H

#include "tests/integration/harness.h"
#include "tests/integration/http.h"

/**
 * struct served - kvrt serve, running
 * @port: that it chose
 */
struct served {
	struct rig	*rig;
	struct job	job;
	u32		port;
};

/* --loops of the servers started from now on, 1 unless told. */
extern u32 serve_loops;

/*
 * Start kvrt serve of the demo model with more options, NULL-terminated, and
 * wait until it says where it listens.
 */
void serve_start(struct served *s, struct rig *r, ...);
/* The end of what it said on stderr, for a failure's text. */
const char *serve_said(struct served *s);
/* Wait until /ready answers @status; fails after @seconds. */
void serve_await(struct served *s, int status, u32 seconds);
/* End it with SIGTERM; it must end with 0. */
void serve_stop(struct served *s);
/* Descriptors that it has open, without connections. */
u32 serve_fds(struct served *s);
/* It must come back to so many, within two seconds. */
void serve_expect_fds(struct served *s, u32 want);
/* A figure of /metrics, of the server or of its first model; fails when missing. */
double serve_figure(struct served *s, const char *name);
/* kvrt_request_success_total of one finished_reason. */
u32 serve_ended(struct served *s, const char *reason);
/*
 * Wait until no request is being worked at and no block is held; fails after
 * @ms, longer where it is instrumented.
 */
void serve_await_idle(struct served *s, u32 ms);

/* POST to /v1/completions; the answer must be 200 and JSON. */
json_t *complete(struct served *s, const char *body);
/* choices[i] of an answer. */
json_t *choice(json_t *answer, size_t i);
/* Its text, or the content of its message. */
const char *choice_text(json_t *answer, size_t i);
/* usage.@name, or usage.prompt_tokens_details.@name. */
s64 usage(json_t *answer, const char *name);
/* POST must be answered with this status and an error that names @param. */
void refused(struct served *s, const char *path, const char *body, int status,
	     const char *param);

#endif /* TESTS_SERVE_H */
