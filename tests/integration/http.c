// SPDX-License-Identifier: Apache-2.0
/*
 * http.c - a small HTTP client for the integration tests
 *
 * Blocking sockets with a limit on each wait.  Bodies are decoded as they
 * come, so that a test can look at the first event of a stream while the rest
 * is not written yet.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/integration/http.h"

#define WEB_WAIT_MS	30000u

/* Connect from 127.0.0.1, or from 127.1.0.0 plus @from. */
static void web_connect(struct web *w, u32 port, bool narrow, u32 from)
{
	struct sockaddr_in sa = {
		.sin_family = AF_INET, .sin_port = htons((u16)port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	const struct sockaddr_in own = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(0x7f010000 + from),
	};
	const int small = 1, later = 1;

	memset(w, 0, sizeof(*w));
	w->wait_ms = WEB_WAIT_MS;
	w->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (narrow)
		setsockopt(w->fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	/* connect() chooses a port that is free for this destination. */
	if (from && (setsockopt(w->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &later,
				sizeof(later)) ||
		     bind(w->fd, (struct sockaddr *)&own, sizeof(own)))) {
		close(w->fd);
		w->fd = -1;
	}
	if (w->fd >= 0 && connect(w->fd, (struct sockaddr *)&sa, sizeof(sa))) {
		close(w->fd);
		w->fd = -1;
	}
}

void web_open(struct web *w, u32 port)
{
	web_connect(w, port, false, 0);
}

void web_open_narrow(struct web *w, u32 port)
{
	web_connect(w, port, true, 0);
}

void web_open_from(struct web *w, u32 port, u32 from)
{
	web_connect(w, port, false, from);
}

void web_close(struct web *w)
{
	if (w->fd >= 0)
		close(w->fd);
	free(w->in);
	memset(w, 0, sizeof(*w));
	w->fd = -1;
}

bool web_send(struct web *w, const void *p, size_t n)
{
	const char *from = p;
	ssize_t put;

	while (n && w->fd >= 0) {
		put = send(w->fd, from, n, MSG_NOSIGNAL);
		if (put < 0 && errno == EINTR)
			continue;
		if (put <= 0)
			return false;
		from += put;
		n -= (size_t)put;
	}
	return w->fd >= 0;
}

bool web_puts(struct web *w, const char *s)
{
	return web_send(w, s, strlen(s));
}

bool web_get(struct web *w, const char *path)
{
	char head[512];

	snprintf(head, sizeof(head), "GET %s HTTP/1.1\r\nHost: test\r\n\r\n",
		 path);
	return web_puts(w, head);
}

bool web_post(struct web *w, const char *path, const char *body)
{
	const size_t n = strlen(body);
	char head[512];

	snprintf(head, sizeof(head),
		 "POST %s HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
		 path, n);
	return web_puts(w, head) && web_send(w, body, n);
}

/* Receive more bytes.  Return: bytes, 0 at the end, -1 when it takes too long. */
static ssize_t web_more(struct web *w)
{
	struct pollfd p = { .fd = w->fd, .events = POLLIN };
	ssize_t n;
	char *in;

	if (w->fd < 0)
		return 0;
	if (w->len + 4096 > w->cap) {
		in = realloc(w->in, w->cap + 65536);
		if (!in)
			return -1;
		w->in = in;
		w->cap += 65536;
	}
	if (poll(&p, 1, (int)w->wait_ms) <= 0)
		return -1;
	n = recv(w->fd, w->in + w->len, w->cap - w->len - 1, 0);
	if (n <= 0)
		return 0;
	w->len += (size_t)n;
	return n;
}

static void web_drop(struct web *w, size_t n)
{
	memmove(w->in, w->in + n, w->len - n);
	w->len -= n;
}

const char *web_header(struct web *w, const char *name)
{
	const size_t n = strlen(name);
	char *line = strstr(w->head, "\r\n");
	static __thread char value[1024];

	for (; line; line = strstr(line + 2, "\r\n")) {
		const char *p = line + 2;

		if (strncasecmp(p, name, n) || p[n] != ':')
			continue;
		p += n + 1;
		p += strspn(p, " ");
		snprintf(value, sizeof(value), "%.*s", (int)strcspn(p, "\r"), p);
		return value;
	}
	return NULL;
}

static void web_expect(struct web *w)
{
	const char *coding = web_header(w, "Transfer-Encoding");
	const char *length;

	w->chunked = coding && !strcmp(coding, "chunked");
	length = web_header(w, "Content-Length");
	w->left = w->chunked ? 0 : length ? atoll(length) : -1;
	w->over = !w->chunked && !w->left;
}

int web_status(struct web *w)
{
	char *end;
	size_t n;

	for (;;) {
		end = w->len ? memmem(w->in, w->len, "\r\n\r\n", 4) : NULL;
		if (end)
			break;
		if (web_more(w) <= 0)
			return 0;
	}
	n = (size_t)(end - w->in) + 4;
	if (n >= sizeof(w->head) || strncmp(w->in, "HTTP/1.1 ", 9))
		return 0;
	memcpy(w->head, w->in, n);
	w->head[n] = '\0';
	web_drop(w, n);
	web_expect(w);
	return atoi(w->head + 9);
}

/* Begin the next chunk; false when the connection breaks off. */
static bool web_chunk(struct web *w)
{
	char size[32], *end;

	for (;;) {
		end = w->len ? memmem(w->in, w->len, "\r\n", 2) : NULL;
		if (end == w->in && w->len) {	/* after the previous chunk */
			web_drop(w, 2);
			continue;
		}
		if (end)
			break;
		if (web_more(w) <= 0)
			return false;
	}
	/* The received bytes do not end with a NUL. */
	snprintf(size, sizeof(size), "%.*s", (int)(end - w->in), w->in);
	w->left = strtoll(size, NULL, 16);
	web_drop(w, (size_t)(end - w->in) + 2);
	if (w->left)
		return true;
	while (w->len < 2)
		if (web_more(w) <= 0)
			return false;
	web_drop(w, 2);
	w->over = true;
	return true;
}

/* Append the next piece of the body to @body; false when it breaks off. */
static bool web_piece(struct web *w, char **body, size_t *len)
{
	size_t n;
	char *p;

	if (w->chunked && !w->left)
		return web_chunk(w);
	if (!w->left)
		return false;		/* no head was read: the answer came too late */
	if (!w->len && web_more(w) <= 0) {
		w->over = w->left < 0;
		return w->over;
	}
	n = w->left < 0 || w->len < (size_t)w->left ? w->len : (size_t)w->left;
	p = realloc(*body, *len + n + 1);
	if (!p)
		return false;
	memcpy(p + *len, w->in, n);
	*len += n;
	p[*len] = '\0';
	*body = p;
	web_drop(w, n);
	if (w->left > 0) {
		w->left -= (s64)n;
		w->over = !w->chunked && !w->left;
	}
	return true;
}

char *web_body(struct web *w)
{
	char *body = calloc(1, 1);
	size_t len = 0;

	while (body && !w->over) {
		if (!web_piece(w, &body, &len)) {
			free(body);
			return NULL;
		}
	}
	return body;
}

/*
 * Events end with an empty line.  A piece of the body may hold several events
 * or a part of one.  Decoded bytes that are not used go back in front, as a
 * chunk if the body is chunked.
 */
static bool web_put_back(struct web *w, const char *p, size_t n)
{
	char frame[32] = "", *in;
	size_t f = 0;

	if (!n)
		return true;
	if (w->chunked)
		f = (size_t)snprintf(frame, sizeof(frame), "%zx\r\n", n);
	in = malloc(w->len + n + f + 32);
	if (!in)
		return false;
	memcpy(in, frame, f);
	memcpy(in + f, p, n);
	if (w->chunked && w->left) {
		/* The rest of the cut chunk becomes a chunk too. */
		int g = snprintf(in + f + n, 32, "\r\n%llx\r\n",
				 (unsigned long long)w->left);

		memcpy(in + f + n + g, w->in, w->len);
		w->len += (size_t)g;
	} else {
		memcpy(in + f + n, w->in, w->len);
	}
	free(w->in);
	w->in = in;
	w->len += f + n;
	w->cap = w->len;
	w->left = w->chunked ? 0 : w->left;
	return true;
}

char *web_event(struct web *w)
{
	char *got = NULL, *end, *event;
	size_t len = 0, n;

	while (!(end = got ? strstr(got, "\n\n") : NULL)) {
		if (w->over || !web_piece(w, &got, &len)) {
			free(got);
			return NULL;
		}
	}
	n = (size_t)(end - got);
	event = !strncmp(got, "data: ", 6) ? strndup(got + 6, n - 6) : NULL;
	if (!web_put_back(w, got + n + 2, len - n - 2)) {
		free(event);
		event = NULL;
	}
	free(got);
	return event;
}

bool web_ended(struct web *w)
{
	struct pollfd p = { .fd = w->fd, .events = POLLIN };
	char c;

	return poll(&p, 1, (int)w->wait_ms) == 1 && !recv(w->fd, &c, 1, 0);
}

bool web_closed(struct web *w)
{
	ssize_t n;

	do {
		w->len = 0;
		n = web_more(w);
	} while (n > 0);
	return !n;
}

bool web_is_error(const char *text, const char *code)
{
	json_t *v = text ? json_loads(text, 0, NULL) : NULL;
	const char *have = json_string_value(json_object_get(
		json_object_get(v, "error"), "code"));
	bool yes = have && !strcmp(have, code);

	json_decref(v);
	return yes;
}

int web_ask(u32 port, const char *path, const char *body, char **answer)
{
	struct web w;
	int status = 0;
	char *text = NULL;

	web_open(&w, port);
	if (body ? web_post(&w, path, body) : web_get(&w, path))
		status = web_status(&w);
	if (status)
		text = web_body(&w);
	web_close(&w);
	if (answer)
		*answer = text;
	else
		free(text);
	return status;
}

json_t *web_json(u32 port, const char *path, const char *body, int want)
{
	char *text = NULL;
	int status = web_ask(port, path, body, &text);
	json_t *v = text && status == want ? json_loads(text, 0, NULL) : NULL;

	if (!v)
		fprintf(stderr, "%s: status %d, want %d: %s\n", path, status,
			want, text ? text : "no answer");
	free(text);
	return v;
}
