/* SPDX-License-Identifier: Apache-2.0 */
/*
 * web.h - an HTTP/1.1 client: one request, one answer
 *
 * As much of HTTP as kvrt ask needs, over plain sockets.  A connection carries
 * one request; the caller waits for the descriptors of several calls with
 * poll().
 */
#ifndef RUNTIME_CLI_WEB_H
#define RUNTIME_CLI_WEB_H

#include <jansson.h>
#include <sys/socket.h>

#include <kvmm/http.h>

#define WEB_PATH_MAX	108u	/* bytes of the path of a Unix socket, with its NUL */

/**
 * struct web_server - the server
 * @host: name or address, without brackets
 * @port: as text
 * @shown: "http://HOST:PORT" or "unix:PATH", for messages
 * @base: path before "/v1/...", "" or "/..."
 * @path: of a Unix socket, or "": @host and @port count
 */
struct web_server {
	char	host[256];
	char	port[8];
	char	shown[288];
	char	base[256];
	char	path[WEB_PATH_MAX];
};

/**
 * web_parse_url() - "http://HOST[:PORT][/BASE][/v1][/]" or "unix:PATH"
 *
 * Return: 0, or -EINVAL after one line on stderr.
 */
int __must_check web_parse_url(struct web_server *s, const char *url);

/* web_unix_address() - the address of @s->path, and its length */
socklen_t web_unix_address(const struct web_server *s, struct sockaddr_storage *a);

/* web_is_word() - may @p be part of a request's head? */
bool web_is_word(const char *p);

/**
 * struct web_call - one request and its answer; web_call_end() frees it
 * @fd:     -1: no connection
 * @status: status of the answer, 0: not known yet
 * @over:   the answer is complete
 * @keep:   the connection will be used again, so the length is trusted
 * @closes: the server will close the connection
 * @left:   bytes of the body still to come, -1: up to the end; with @keep only
 * @body:   received part of the body; the caller may cut off the part it used
 * @out:    request being sent, @sent bytes are; of web_call_start()
 */
struct web_call {
	int			fd;
	int			status;
	bool			over;
	bool			chunked;
	bool			keep;
	bool			closes;
	s64			left;
	struct text		raw;
	struct text		body;
	struct text		out;
	size_t			sent;
	struct http_chunks	chunks;
};

/**
 * web_call_begin() - connect and send a request
 * @path:      path after the server's base
 * @key:       API key, or NULL
 * @body:      JSON to POST, or NULL: GET
 * @timeout_s: longest wait for the connection, and for the server to read
 *
 * Return: 0 or a negative errno; -ENXIO: there is no such host.
 */
int __must_check web_call_begin(struct web_call *c,
				const struct web_server *s, const char *path,
				const char *key, const struct text *body,
				u32 timeout_s);

/**
 * web_call_read() - take input, once poll() reports it
 *
 * Return: 0, with more in @c->body or @c->over set; -ECONNRESET: the answer was
 * cut off; -EPROTO: it is no HTTP/1.1; -ENOMEM.
 */
int __must_check web_call_read(struct web_call *c);

void web_call_end(struct web_call *c);

/* ---- web_many.c: many calls in one thread, without blocking ---- */

struct web_address {
	struct sockaddr_storage	addr;
	socklen_t		len;
	int			type;
};

/* web_resolve() - find the server once: 0, or -ENXIO: there is no such host */
int __must_check web_resolve(const struct web_server *s,
			     struct web_address *a);

/**
 * web_call_start() - begin a request, as web_call_begin() but without waiting
 * @a:    address of the server
 * @fd:   a connection from web_call_take(), or -1: a new one
 * @body: JSON to POST
 *
 * The request is only queued: call web_call_write() when the socket is
 * writable.
 * Return: 0 or a negative errno.
 */
int __must_check web_call_start(struct web_call *c, const struct web_server *s,
				const struct web_address *a, int fd,
				const char *path, const char *key,
				const struct text *body);

/*
 * web_call_write() - send.  Return: 0: all is sent; 1: not all; or a negative
 * errno
 */
int __must_check web_call_write(struct web_call *c);

/**
 * web_call_take() - take the connection of a complete call, to use it again
 * Return: its descriptor, or -1 when it cannot be used again.
 */
int web_call_take(struct web_call *c);

/* web_is_idle() - is a kept connection still open? */
bool web_is_idle(int fd);

/* ---- web_json.c: answers of OpenAI servers ---- */

/**
 * web_whole() - ask and wait for the whole answer, in @c->body
 *
 * Return: 0, or an exit code after a line on stderr; web_call_end() in any case.
 */
int web_whole(struct web_call *c, const struct web_server *s, const char *path,
	      const char *key, const struct text *body, u32 timeout_s);

/**
 * web_json() - ask and wait for a small answer
 * @body:   JSON to POST, or NULL: GET
 * @status: status of the answer
 * @v:      its JSON, or NULL: it is no JSON
 * Return: 0, or an exit code after a line on stderr.
 */
int web_json(const struct web_server *s, const char *path, const char *key,
	     const struct text *body, u32 timeout_s, int *status, json_t **v);

/**
 * web_models() - ask for the models of a server
 * @v: its answer: the names are in "data", each as "id"; at least one
 *
 * Return: 0, or an exit code after a line on stderr.
 */
int web_models(const struct web_server *s, const char *key, u32 timeout_s,
	       json_t **v);

/* web_error_text() - the error text of an answer, or NULL */
const char *web_error_text(const json_t *v);

/**
 * web_event() - the next whole event of a stream
 * @at: where to begin in @t, and where to go on
 * @p:  gets its @n bytes, after "data: "
 */
bool web_event(const struct text *t, size_t *at, const char **p, size_t *n);

/* web_event_text() - text that an event's choice adds, or NULL */
const json_t *web_event_text(const json_t *choice);

/* web_key() - the given key, else that of the environment; NULL: none */
int web_key(const char *given, const char **key);

/**
 * web_write_head() - write the head of a request
 * @len: bytes of its body; SIZE_MAX: GET, there is none
 */
void web_write_head(struct text *t, const struct web_server *s,
		    const char *path, const char *key, size_t len, bool keep);

/**
 * web_tame() - make untrusted text fit for one line of a terminal
 *
 * Control characters, which could move the cursor or worse, become '?'; an
 * incomplete character at the end is dropped.
 */
void web_tame(char *text);

/* web_is_tame() - has it no control characters? */
bool web_is_tame(const char *text);

/* web_failed() - print one line for @err of the above; returns the exit code */
int web_failed(const struct web_server *s, int err, u32 timeout_s);

/**
 * web_refused() - the same for an answer with an error status
 * @why: the server's own words, or NULL
 */
int web_refused(const struct web_server *s, int status, const char *why);

#endif /* RUNTIME_CLI_WEB_H */
