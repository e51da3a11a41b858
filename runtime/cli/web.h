/* SPDX-License-Identifier: Apache-2.0 */
/*
 * web.h - the client's half of HTTP/1.1: one request, one answer
 *
 * As much as kvrt ask needs of it, over plain sockets.  A connection carries
 * one request; the caller waits for the descriptors of several with poll().
 */
#ifndef RUNTIME_CLI_WEB_H
#define RUNTIME_CLI_WEB_H

#include <jansson.h>
#include <sys/socket.h>

#include <kvmm/http.h>

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
 * @keep:   the connection is to be used again: its length is believed
 * @closes: the server will not have that
 * @left:   bytes of the body still to come, -1: up to the end; with @keep only
 * @body:   what came of it; the caller may cut off what it used
 * @out:    request that is being sent, @sent bytes are; of web_call_start()
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

/* ---- web_many.c: many calls of one thread, none of which waits ---- */

struct web_address {
	struct sockaddr_storage	addr;
	socklen_t		len;
	int			type;
};

/* web_resolve() - find the server once: 0, or -ENXIO: there is no such host */
int __must_check web_resolve(const struct web_server *s,
			     struct web_address *a);

/**
 * web_call_start() - begin a request, as web_call_begin() but for the waiting
 * @a:    of the server
 * @fd:   a connection that web_call_take() left over, or -1: a new one
 * @body: JSON to POST
 *
 * What is to be sent is: web_call_write(), when it is possible.
 * Return: 0 or a negative errno.
 */
int __must_check web_call_start(struct web_call *c, const struct web_server *s,
				const struct web_address *a, int fd,
				const char *path, const char *key,
				const struct text *body);

/* web_call_write() - 0: all is sent; 1: more is to be; or a negative errno */
int __must_check web_call_write(struct web_call *c);

/**
 * web_call_take() - the connection of a call that is over, for another one
 * Return: its descriptor, or -1 when it is of no more use.
 */
int web_call_take(struct web_call *c);

/* web_is_idle() - is a connection that was kept still there? */
bool web_is_idle(int fd);

/* ---- web_json.c: what OpenAI servers say ---- */

/**
 * web_whole() - ask and wait for the whole answer, in @c->body
 *
 * Return: 0, or an exit code after a line on stderr; web_call_end() in any case.
 */
int web_whole(struct web_call *c, const struct web_server *s, const char *path,
	      const char *key, const struct text *body, u32 timeout_s);

/**
 * web_json() - a whole small answer, waited for
 * @body:   to POST, or NULL: GET
 * @status: of the answer
 * @v:      its JSON, or NULL: it is none
 *
 * Return: 0, or an exit code after a line on stderr.
 */
int web_json(const struct web_server *s, const char *path, const char *key,
	     const struct text *body, u32 timeout_s, int *status, json_t **v);

/**
 * web_models() - the models that a server has
 * @v: its answer: the names are in "data", each as "id"; at least one
 *
 * Return: 0, or an exit code after a line on stderr.
 */
int web_models(const struct web_server *s, const char *key, u32 timeout_s,
	       json_t **v);

/* web_error_text() - what an answer that says no says, or NULL */
const char *web_error_text(const json_t *v);

/**
 * web_event() - the next whole event of a stream
 * @at: where to begin in @t, and where to go on
 * @p:  gets its @n bytes, behind "data: "
 */
bool web_event(const struct text *t, size_t *at, const char **p, size_t *n);

/* web_event_text() - what an event's choice adds to a text, or NULL */
const json_t *web_event_text(const json_t *choice);

/* web_key() - the key that is given, else of the environment; NULL: none */
int web_key(const char *given, const char **key);

/**
 * web_write_head() - the head of a request
 * @len: bytes of its body; SIZE_MAX: GET, there is none
 */
void web_write_head(struct text *t, const struct web_server *s,
		    const char *path, const char *key, size_t len, bool keep);

/**
 * web_tame() - make words of a stranger fit for one line of a terminal
 *
 * Control characters, which could move the cursor or worse, become '?'; a
 * character that was cut off goes.
 */
void web_tame(char *text);

/* web_is_tame() - has it no control characters? */
bool web_is_tame(const char *text);

/* web_failed() - one line on stderr for @err of the above; the exit code */
int web_failed(const struct web_server *s, int err, u32 timeout_s);

/**
 * web_refused() - the same for an answer that says no
 * @why: the server's own words, or NULL
 */
int web_refused(const struct web_server *s, int status, const char *why);

#endif /* RUNTIME_CLI_WEB_H */
