/* SPDX-License-Identifier: Apache-2.0 */
/*
 * web.h - the client's half of HTTP/1.1: one request, one answer
 *
 * As much as kvrt ask needs of it, over plain sockets.  A connection carries
 * one request; the caller waits for the descriptors of several with poll().
 */
#ifndef RUNTIME_CLI_WEB_H
#define RUNTIME_CLI_WEB_H

#include "runtime/server/http.h"

/**
 * struct web_server - who is asked
 * @host: name or address, without brackets
 * @port: as text
 * @shown: "http://HOST:PORT", for messages
 * @base: what goes before "/v1/...", "" or "/..."
 */
struct web_server {
	char	host[256];
	char	port[8];
	char	shown[288];
	char	base[256];
};

/**
 * web_parse_url() - "http://HOST[:PORT][/BASE][/v1][/]"
 *
 * Return: 0, or -EINVAL after one line on stderr.
 */
int __must_check web_parse_url(struct web_server *s, const char *url);

/* web_is_word() - may it stand in the head of a request? */
bool web_is_word(const char *p);

/**
 * struct web_call - one request and what came of it; web_call_end() frees it
 * @fd:     -1: no connection
 * @status: of the answer, 0: not yet known
 * @over:   the answer is whole
 * @body:   what came of it; the caller may cut off what it used
 */
struct web_call {
	int			fd;
	int			status;
	bool			over;
	bool			chunked;
	struct text		raw;
	struct text		body;
	struct http_chunks	chunks;
};

/**
 * web_call_begin() - connect and send a request
 * @path:      behind the server's base
 * @key:       of the API, or NULL
 * @body:      JSON to POST, or NULL: GET
 * @timeout_s: longest wait for the connection, and for the server to take more
 *
 * Return: 0 or a negative errno; -ENXIO: there is no such host.
 */
int __must_check web_call_begin(struct web_call *c,
				const struct web_server *s, const char *path,
				const char *key, const struct text *body,
				u32 timeout_s);

/**
 * web_call_read() - take what has come, once poll() says that something has
 *
 * Return: 0, with more in @c->body or @c->over set; -ECONNRESET: the answer
 * broke off; -EPROTO: it is no HTTP/1.1; -ENOMEM.
 */
int __must_check web_call_read(struct web_call *c);

void web_call_end(struct web_call *c);

/* web_failed() - one line on stderr for @err of the above; the exit code */
int web_failed(const struct web_server *s, int err, u32 timeout_s);

/**
 * web_refused() - the same for an answer that says no
 * @why: the server's own words, or NULL
 */
int web_refused(const struct web_server *s, int status, const char *why);

#endif /* RUNTIME_CLI_WEB_H */
