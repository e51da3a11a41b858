// SPDX-License-Identifier: Apache-2.0
/*
 * web.c - an HTTP/1.1 client: one request, one answer
 *
 * Every request has "Connection: close", so an answer without chunks ends with
 * its connection and no length has to be trusted.  The code that parses chunked
 * requests also parses chunked answers.  Connecting and sending block, within
 * the socket's timeouts; input is read when poll() reports it.  Answers are not
 * trusted: they are bounded, and the reader of their JSON checks it.  Errors
 * are also reported here, in one line with the remedy.
 */
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sysexits.h>
#include <unistd.h>

#include <kvmm/log.h>

#include "runtime/cli/web.h"

#define WEB_HEAD_MAX	65536u
#define WEB_BODY_MAX	(1ull << 30)
#define WEB_PIECE	16384u

/* ---- URL ---- */

static int bad_url(const char *url, const char *why)
{
	pr_err("URL '%.80s': %s: write it like http://127.0.0.1:8000, or unix:/PATH",
	       url, why);
	return -EINVAL;
}

/* Parse HOST or [HOST] at @p.  Return: the text after it, NULL: no host. */
static const char *parse_host(struct web_server *s, const char *p)
{
	const bool six = *p == '[';
	size_t n;

	p += six;
	n = strcspn(p, six ? "]/" : ":/");
	if (!n || n >= sizeof(s->host) || (six && p[n] != ']'))
		return NULL;
	memcpy(s->host, p, n);
	return p + n + six;
}

/* A blank or a line end would begin another header. */
bool web_is_word(const char *p)
{
	for (; *p; p++)
		if ((u8)*p <= ' ' || (u8)*p >= 0x7f)
			return false;
	return true;
}

static int parse_unix(struct web_server *s, const char *url, const char *path)
{
	const size_t n = strlen(path);

	if (*path != '/' || n >= sizeof(s->path))
		return bad_url(url, "names no socket by its whole path, of up to 107 bytes");
	memcpy(s->path, path, n + 1);
	snprintf(s->shown, sizeof(s->shown), "unix:%s", path);
	return 0;
}

int web_parse_url(struct web_server *s, const char *url)
{
	static const char scheme[] = "http://";
	const char *p = url;
	size_t n;

	memset(s, 0, sizeof(*s));
	if (!strncasecmp(url, "https:", 6))
		return bad_url(url, "there is no TLS here");
	if (!web_is_word(url))
		return bad_url("", "holds blanks or control characters");
	if (!strncmp(url, "unix:", 5))
		return parse_unix(s, url, url + 5);
	if (strncasecmp(url, scheme, sizeof(scheme) - 1))
		return bad_url(url, "is no URL of a server");
	p = parse_host(s, p + sizeof(scheme) - 1);
	if (!p)
		return bad_url(url, "names no host");
	snprintf(s->port, sizeof(s->port), "80");
	if (*p == ':') {
		n = strspn(++p, "0123456789");
		if (!n || n > 5)
			return bad_url(url, "has no port behind the colon");
		snprintf(s->port, sizeof(s->port), "%.*s", (int)n, p);
		if (atoi(s->port) < 1 || atoi(s->port) > 65535)
			return bad_url(url, "has no port from 1 to 65535");
		p += n;
	}
	n = strlen(p);
	if ((n && *p != '/') || n >= sizeof(s->base))
		return bad_url(url, "is no URL of a server");
	memcpy(s->base, p, n);
	/* Clients are often given it with /v1 or with a slash at the end. */
	while (n && s->base[n - 1] == '/')
		n--;
	if (n >= 3 && !strncmp(s->base + n - 3, "/v1", 3))
		n -= 3;
	s->base[n] = '\0';
	snprintf(s->shown, sizeof(s->shown),
		 strchr(s->host, ':') ? "http://[%s]:%s" : "http://%s:%s",
		 s->host, s->port);
	return 0;
}

/* ---- the request ---- */

static int connect_one(const struct addrinfo *a, u32 timeout_s)
{
	const struct timeval tv = { .tv_sec = timeout_s };
	int fd, err;

	fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC,
		    a->ai_protocol);
	if (fd < 0)
		return -errno;
	if (!setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof(tv)) &&
	    !connect(fd, a->ai_addr, a->ai_addrlen))
		return fd;
	err = errno == EINPROGRESS || errno == EAGAIN ? -ETIMEDOUT : -errno;
	close(fd);
	return err;
}

socklen_t web_unix_address(const struct web_server *s, struct sockaddr_storage *a)
{
	struct sockaddr_un un = { .sun_family = AF_UNIX };

	memcpy(un.sun_path, s->path, sizeof(un.sun_path));
	memset(a, 0, sizeof(*a));
	memcpy(a, &un, sizeof(un));
	return sizeof(un);
}

static int connect_unix(const struct web_server *s, u32 timeout_s)
{
	struct sockaddr_storage addr;
	const struct addrinfo a = {
		.ai_family = AF_UNIX, .ai_socktype = SOCK_STREAM,
		.ai_addr = (struct sockaddr *)&addr,
		.ai_addrlen = web_unix_address(s, &addr),
	};
	const int err = connect_one(&a, timeout_s);

	return err == -ENOENT ? -ECONNREFUSED : err;
}

static int connect_to(const struct web_server *s, u32 timeout_s)
{
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
	struct addrinfo *list, *a;
	int fd = -ENXIO;

	if (s->path[0])
		return connect_unix(s, timeout_s);
	if (getaddrinfo(s->host, s->port, &hints, &list))
		return -ENXIO;
	for (a = list; a && fd < 0; a = a->ai_next)
		fd = connect_one(a, timeout_s);
	freeaddrinfo(list);
	return fd;
}

static int send_all(int fd, const struct text *t)
{
	size_t done = 0;
	ssize_t n;

	while (done < t->len) {
		n = send(fd, t->p + done, t->len - done, MSG_NOSIGNAL);
		if (n >= 0)
			done += (size_t)n;
		else if (errno == EAGAIN)
			return -ETIMEDOUT;
		else if (errno != EINTR)
			return -errno;
	}
	return 0;
}

void web_write_head(struct text *t, const struct web_server *s,
		    const char *path, const char *key, size_t len, bool keep)
{
	const bool get = len == SIZE_MAX;

	text_printf(t, "%s %s%s HTTP/1.1\r\nHost: %s\r\nConnection: %s\r\n",
		    get ? "GET" : "POST", s->base, path,
		    s->path[0] ? "localhost" : s->shown + strlen("http://"), keep ? "keep-alive" : "close");
	if (key)
		text_printf(t, "Authorization: Bearer %s\r\n", key);
	if (!get)
		text_printf(t, "Content-Type: application/json\r\nContent-Length: %zu\r\n",
			    len);
	text_puts(t, "\r\n");
}

int web_call_begin(struct web_call *c, const struct web_server *s,
		   const char *path, const char *key, const struct text *body,
		   u32 timeout_s)
{
	struct text t = { 0 };
	int err = 0;

	memset(c, 0, sizeof(*c));
	c->left = -1;
	c->fd = connect_to(s, timeout_s);
	if (c->fd < 0) {
		err = c->fd;
		c->fd = -1;
		return err;
	}
	web_write_head(&t, s, path, key, body ? body->len : SIZE_MAX, false);
	if (body)
		text_add(&t, body->p, body->len);
	if (t.failed || (body && body->failed))
		err = -ENOMEM;
	if (!err)
		err = send_all(c->fd, &t);
	text_free(&t);
	/*
	 * A server that refuses a body may hang up before it has read all of
	 * it.
	 */
	if (err == -EPIPE || err == -ECONNRESET)
		err = 0;
	if (err)
		web_call_end(c);
	return err;
}

/* ---- the answer ---- */

/* The value of header @name, "\r\nName:", or NULL; the head ends with a line. */
static const char *head_value(const char *head, size_t n, const char *name)
{
	const size_t len = strlen(name);
	const char *p;

	for (p = head; (size_t)(p - head) + len < n; p++) {
		if (strncasecmp(p, name, len))
			continue;
		/* There is no NUL at the end. */
		for (p += len; *p == ' ' || *p == '\t'; p++)
			;
		return p;
	}
	return NULL;
}

/* Length of the body from the head, -1: up to the end of the connection. */
static s64 head_length(const char *head, size_t n)
{
	const char *p = head_value(head, n, "\r\nContent-Length:");
	s64 v = 0;

	if (!p || *p < '0' || *p > '9')
		return -1;
	for (; *p >= '0' && *p <= '9' && v <= (s64)WEB_BODY_MAX; p++)
		v = 10 * v + *p - '0';
	return v;
}

/* The number of three digits, 0 if they are none; @p has no NUL. */
static int three_digits(const char *p)
{
	int i, value = 0;

	for (i = 0; i < 3; i++) {
		if (p[i] < '0' || p[i] > '9')
			return 0;
		value = 10 * value + p[i] - '0';
	}
	return value;
}

/* Take the head, once it is whole. */
static int take_head(struct web_call *c)
{
	static const char version[] = "HTTP/1.";
	const size_t n = http_find_head(c->raw.p, c->raw.len);
	const char *p = c->raw.p;

	if (!n)
		return c->raw.len > WEB_HEAD_MAX ? -EPROTO : 0;
	if (n < 16 || memcmp(p, version, sizeof(version) - 1) || p[8] != ' ')
		return -EPROTO;
	c->status = three_digits(p + 9);
	if (c->status < 100)
		return -EPROTO;
	c->chunked = head_value(p, n, "\r\nTransfer-Encoding:");
	c->left = c->keep && !c->chunked ? head_length(p, n) : -1;
	p = head_value(p, n, "\r\nConnection:");
	c->closes = p && !strncasecmp(p, "close", 5);
	text_cut(&c->raw, n);
	if (c->status < 200) {		/* "100 Continue": another head follows */
		c->status = 0;
		return take_head(c);
	}
	return 0;
}

static int take_body(struct web_call *c)
{
	size_t used = c->raw.len;
	int ret = 0;

	if (c->left >= 0)
		used = (size_t)min((s64)used, c->left);
	if (c->chunked)
		ret = http_chunks_push(&c->chunks, c->raw.p, c->raw.len, &used,
				       &c->body, WEB_BODY_MAX);
	else
		text_add(&c->body, c->raw.p, used);
	c->closes |= used < c->raw.len;	/* bytes after the end do not belong to it */
	text_clear(&c->raw);
	if (ret < 0 || c->body.len > WEB_BODY_MAX)
		return -EPROTO;
	c->left -= c->left >= 0 ? (s64)used : 0;
	c->over = ret > 0 || !c->left;
	return c->body.failed ? -ENOMEM : 0;
}

/* The server has closed: the end of an answer without chunks. */
static int take_end(struct web_call *c)
{
	if (!c->status || c->chunked || c->left > 0)
		return -ECONNRESET;
	c->closes = true;
	c->over = true;
	return 0;
}

int web_call_read(struct web_call *c)
{
	char piece[WEB_PIECE];
	ssize_t n;
	int err = 0;

	n = recv(c->fd, piece, sizeof(piece), MSG_DONTWAIT);
	if (n < 0)
		return errno == EAGAIN || errno == EINTR ? 0 : -ECONNRESET;
	if (!n)
		return take_end(c);
	text_add(&c->raw, piece, (size_t)n);
	if (c->raw.failed)
		return -ENOMEM;
	if (!c->status)
		err = take_head(c);
	if (!err && c->status && (c->raw.len || !c->left))
		err = take_body(c);
	return err;
}

void web_call_end(struct web_call *c)
{
	if (c->fd >= 0)
		close(c->fd);
	c->fd = -1;
	text_free(&c->raw);
	text_free(&c->body);
	text_free(&c->out);
}

/* ---- errors ---- */

int web_failed(const struct web_server *s, int err, u32 timeout_s)
{
	const char *shown = s->shown;

	switch (err) {
	case -ECONNREFUSED:
		pr_err("%s: no server listens there: start kvrt serve, or give the URL that it printed",
		       shown);
		return EX_UNAVAILABLE;
	case -ENXIO:
		pr_err("%s: there is no such host: give a name or an address that can be reached",
		       shown);
		return EX_UNAVAILABLE;
	case -ETIMEDOUT:
		pr_err("%s: no answer for %u s: look at the server, or give --timeout",
		       shown, timeout_s);
		return EX_TEMPFAIL;
	case -ECONNRESET:
		pr_err("%s: the answer broke off: look at the server and ask again",
		       shown);
		return EX_TEMPFAIL;
	case -EPROTO:
		pr_err("%s: what answers is no OpenAI server: give the URL that kvrt serve printed",
		       shown);
		return EX_PROTOCOL;
	case -ENOMEM:
		pr_err("no memory for what %s answers: ask for less at once",
		       shown);
		return EX_OSERR;
	}
	pr_err("%s: %s: cannot be asked", shown, strerror(-err));
	return EX_UNAVAILABLE;
}

/* Length of the control character at @p (C0, DEL or C1); 0: it is none. */
static size_t control_len(const char *p)
{
	const u8 c = (u8)p[0], next = c ? (u8)p[1] : 0;

	if (c < ' ' || c == 0x7f)
		return 1;
	return c == 0xc2 && next >= 0x80 && next < 0xa0 ? 2 : 0;
}

void web_tame(char *text)
{
	size_t n = strlen(text), i = 0, len;
	char *to = text;

	while (i < n) {
		len = control_len(text + i);
		if (len) {
			*to++ = '?';
			i += len;
			continue;
		}
		len = text_utf8_len(text + i, n - i);
		if (!len)	/* the last character is cut off */
			break;
		memmove(to, text + i, len);
		to += len;
		i += len;
	}
	*to = '\0';
}

bool web_is_tame(const char *text)
{
	while (*text && !control_len(text))
		text++;
	return !*text;
}

int web_refused(const struct web_server *s, int status, const char *why)
{
	char text[200];

	snprintf(text, sizeof(text), "%s", why ? why : "it does not say why");
	web_tame(text);
	pr_err("%s answers %d: %s", s->shown, status, text);
	switch (status) {
	case 401:
	case 403:
		return EX_NOPERM;
	case 408:
	case 429:
	case 500 ... 599:
		return EX_TEMPFAIL;
	}
	return EX_DATAERR;
}
