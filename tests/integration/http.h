/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http.h - a small HTTP client for the integration tests
 *
 * It does what an honest client does, and lets a test send any bytes at any
 * speed.  Nothing here asserts, so that threads may use it: a failure is a
 * status of 0 or a NULL.
 */
#ifndef TESTS_HTTP_H
#define TESTS_HTTP_H

#include <jansson.h>

#include <kvmm/types.h>

/**
 * struct web - one connection
 * @fd:      -1: none
 * @in:      bytes received and not used yet, @len of them
 * @chunked: the body of this answer comes in chunks
 * @left:    bytes of it, or of its chunk, still to come; -1: up to the end
 * @over:    the body is whole
 * @head:    of the last answer
 * @wait_ms: longest wait for more bytes
 */
struct web {
	int	fd;
	char	*in;
	size_t	len;
	size_t	cap;
	bool	chunked;
	s64	left;
	bool	over;
	char	head[4096];
	u32	wait_ms;
};

/* Connect to this port of 127.0.0.1; @w->fd is -1 on failure. */
void web_open(struct web *w, u32 port);
/* The same with a receive buffer as small as can be. */
void web_open_narrow(struct web *w, u32 port);
void web_close(struct web *w);
/* Send bytes: true when all went. */
bool web_send(struct web *w, const void *p, size_t n);
bool web_puts(struct web *w, const char *s);
/* Send a request. */
bool web_get(struct web *w, const char *path);
bool web_post(struct web *w, const char *path, const char *body);

/* Read the head of an answer: its status, 0 when none comes. */
int web_status(struct web *w);
/* Value of a header of it, cut at the end of its line; NULL: not there. */
const char *web_header(struct web *w, const char *name);
/* Read the whole body, to be freed; NULL when it breaks off. */
char *web_body(struct web *w);
/* Next event of a stream, without "data: ", to be freed; NULL: no more. */
char *web_event(struct web *w);
/* True when the other side has closed, within @w->wait_ms. */
bool web_closed(struct web *w);

/* The same, and it closed in order: no reset. */
bool web_ended(struct web *w);

/* Is this an error, in JSON, with this code? */
bool web_is_error(const char *text, const char *code);
/* One request on a connection of its own: status, and the body if wanted. */
int web_ask(u32 port, const char *path, const char *body, char **answer);
/* The same, parsed; NULL unless the status is @want and the body is JSON. */
json_t *web_json(u32 port, const char *path, const char *body, int want);

#endif /* TESTS_HTTP_H */
