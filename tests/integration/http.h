/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http.h - a small HTTP client for the integration tests
 *
 * It does the work of an honest client, and lets a test send any bytes at any
 * speed.  Its functions do not assert, so that threads may use them: a failure
 * is a status of 0 or a NULL.
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
 * @left:    bytes of the body or the chunk still to come; -1: up to the end
 * @over:    the body is complete
 * @head:    head of the last answer
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
/* The same with the smallest receive buffer. */
void web_open_narrow(struct web *w, u32 port);
/* The same from the address 127.1.0.0 plus @from, which has ports of its own. */
void web_open_from(struct web *w, u32 port, u32 from);
void web_close(struct web *w);
/* Send bytes.  Return: whether all were sent. */
bool web_send(struct web *w, const void *p, size_t n);
bool web_puts(struct web *w, const char *s);
/* Send a request. */
bool web_get(struct web *w, const char *path);
bool web_post(struct web *w, const char *path, const char *body);

/* Read the head of an answer.  Return: its status, 0 when none comes. */
int web_status(struct web *w);
/* Value of a header of that answer; NULL: the header is missing. */
const char *web_header(struct web *w, const char *name);
/* Read the whole body, to be freed; NULL when the connection breaks off. */
char *web_body(struct web *w);
/* Next event of a stream, without "data: ", to be freed; NULL: no more events. */
char *web_event(struct web *w);
/* Return: whether the server closed within @w->wait_ms. */
bool web_closed(struct web *w);

/* The same, and the server closed without a reset. */
bool web_ended(struct web *w);

/* Is @text an error in JSON with this code? */
bool web_is_error(const char *text, const char *code);
/* One request on a new connection.  Return: status, and the body if wanted. */
int web_ask(u32 port, const char *path, const char *body, char **answer);
/* The same, parsed; NULL unless the status is @want and the body is JSON. */
json_t *web_json(u32 port, const char *path, const char *body, int want);

#endif /* TESTS_HTTP_H */
