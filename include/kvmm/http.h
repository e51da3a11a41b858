/* SPDX-License-Identifier: Apache-2.0 */
/*
 * http.h - the text of HTTP/1.1: requests in, answers out
 *
 * Pure functions over bytes: no socket, no clock, no memory of their own.
 */
#ifndef KVMM_HTTP_H
#define KVMM_HTTP_H

#include <kvmm/text.h>

#define HTTP_HEAD_MAX		16384u	/* bytes of a request's head */
#define HTTP_HEADERS_MAX	100u
#define HTTP_ID_MAX		128u	/* bytes of an X-Request-Id */

#define HTTP_METHODS(x) x(GET) x(HEAD) x(POST) x(PUT) x(DELETE) x(OPTIONS) x(PATCH)

enum http_method {
#define x(name) HTTP_##name,
	HTTP_METHODS(x)
#undef x
	HTTP_NR_METHODS,
};

/* Statuses of this server's answers, with their names. */
#define HTTP_STATUSES(x)						\
	x(200, "OK")							\
	x(204, "No Content")						\
	x(400, "Bad Request")						\
	x(401, "Unauthorized")						\
	x(404, "Not Found")						\
	x(405, "Method Not Allowed")					\
	x(408, "Request Timeout")					\
	x(413, "Content Too Large")					\
	x(417, "Expectation Failed")					\
	x(429, "Too Many Requests")					\
	x(431, "Request Header Fields Too Large")			\
	x(500, "Internal Server Error")					\
	x(501, "Unsupported")						\
	x(503, "Service Unavailable")					\
	x(504, "Gateway Timeout")					\
	x(505, "HTTP Version Not Supported")

/**
 * struct http_head - the parsed head of a request
 * @method:     HTTP_GET ..
 * @path:       @path_len bytes inside the head, without the query
 * @query:      @query_len bytes behind its question mark; NULL: there is none
 * @http10:     HTTP/1.0: no chunked answer
 * @keep_alive: the client wants the connection to stay
 * @chunked:    the body comes in chunks
 * @expect:     the client waits for "100 Continue"
 * @length:     of the body, 0 without one
 * @id:         X-Request-Id if it may be repeated in the answer, else ""
 * @bearer:     the token of "Authorization: Bearer", or NULL; @bearer_len bytes
 * @origin:     Origin, or NULL; @origin_len bytes
 * @asked:      Access-Control-Request-Headers, or NULL; @asked_len bytes
 */
struct http_head {
	enum http_method	method;
	const char		*path;
	size_t			path_len;
	const char		*query;
	size_t			query_len;
	bool			http10;
	bool			keep_alive;
	bool			chunked;
	bool			expect;
	u64			length;
	char			id[HTTP_ID_MAX + 1];
	const char		*bearer;
	size_t			bearer_len;
	const char		*origin;
	size_t			origin_len;
	const char		*asked;
	size_t			asked_len;
};

/**
 * http_parse_head() - parse a head, strictly
 * @p:   @n bytes, up to and with the empty line
 * @why: on failure, a phrase
 *
 * A head that two readers could understand in two ways is refused: bare line
 * feeds, folded lines, blanks before a colon, several lengths, a length beside
 * chunks, chunks that are coded twice.
 *
 * Return: 0, or the status of the answer: 400, 417, 431, 501, 505.
 */
int http_parse_head(const char *p, size_t n, struct http_head *h,
		    const char **why);

/* http_find_head() - bytes of the head at @p with its empty line, 0: not yet */
size_t http_find_head(const char *p, size_t n);

/**
 * struct http_chunks - position in a chunked body; all zero is its start
 * @state: private
 * @left:  bytes of this chunk to come
 * @line:  bytes of the line being read
 * @total: bytes of body so far
 */
struct http_chunks {
	u32	state;
	u32	line;
	u64	left;
	u64	total;
};

/**
 * http_chunks_push() - decode a piece of a chunked body
 * @p:    @n bytes
 * @used: how many of them belong to this body
 * @out:  gets the decoded bytes
 * @max:  most bytes of body
 *
 * Return: 1: the body is whole; 0: more is to come; else minus the status of
 * the answer: -400 (malformed) or -413 (longer than @max).
 */
int http_chunks_push(struct http_chunks *c, const char *p, size_t n,
		     size_t *used, struct text *out, u64 max);

/* http_status_text() - "Not Found" */
const char *http_status_text(int status);

/**
 * struct http_answer - the head of an answer
 * @type:    of the content; an answer with status 204 has none, and no length
 * @length:  of the body; -1: in chunks, or up to the end of the connection
 * @http10:  http_head.http10 of the request
 * @close:   the connection ends after the answer
 * @id:      X-Request-Id to be repeated, or ""
 * @headers: more headers, each with its CR LF, or NULL
 */
struct http_answer {
	int		status;
	const char	*type;
	s64		length;
	bool		http10;
	bool		close;
	const char	*id;
	const char	*headers;
};

/* http_write_head() - append the head of an answer */
void http_write_head(struct text *t, const struct http_answer *a);

#endif /* KVMM_HTTP_H */
