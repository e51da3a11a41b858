// SPDX-License-Identifier: Apache-2.0
/*
 * streams.c - many event streams at once, read by one thread
 *
 * The server sends complete events in a chunk, and a chunk is judged when it
 * has arrived completely.  A slow client reads a few bytes at its times,
 * regardless of arrivals.
 */
#include <arpa/inet.h>
#include <jansson.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "tests/integration/harness.h"
#include "tests/integration/streams.h"

#define READ_BYTES	16384u
#define SIP_BYTES	200u

static u64 now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (u64)ts.tv_sec * 1000000000 + (u64)ts.tv_nsec;
}

void streams_init(struct streams *all, u32 nr)
{
	u32 i;

	memset(all, 0, sizeof(*all));
	all->nr = nr;
	all->max_gaps = nr * STREAM_IDS;
	all->s = calloc(nr, sizeof(*all->s));
	all->gaps = malloc(all->max_gaps * sizeof(*all->gaps));
	all->efd = epoll_create1(EPOLL_CLOEXEC);
	ck_assert(all->s && all->gaps && all->efd >= 0);
	for (i = 0; i < nr; i++)
		all->s[i].fd = -1;
}

void streams_free(struct streams *all)
{
	u32 i;

	for (i = 0; i < all->nr; i++)
		stream_end(all, &all->s[i]);
	close(all->efd);
	free(all->s);
	free(all->gaps);
}

static void wrong(struct stream *s, const char *what, const char *more)
{
	if (!*s->why)
		snprintf(s->why, sizeof(s->why), "%s: %.120s", what, more);
}

/* ---- events ---- */

static void take_choice(struct stream *s, json_t *choice)
{
	const char *text = json_string_value(json_object_get(choice, "text"));
	const char *end = json_string_value(json_object_get(choice,
							    "finish_reason"));
	json_t *ids = json_object_get(choice, "token_ids"), *v;
	const size_t len = strlen(s->text);
	size_t i;

	if (!text || !ids)
		wrong(s, "an event without text or ids", "");
	else if (*s->finish)
		wrong(s, "an event behind the last", text);
	else if (len + strlen(text) < STREAM_TEXT)
		strcat(s->text, text);
	json_array_foreach(ids, i, v) {
		if (s->nr_ids == STREAM_IDS) {
			wrong(s, "too many ids", "");
			return;
		}
		s->ids[s->nr_ids++] = (u32)json_integer_value(v);
	}
	if (end)
		snprintf(s->finish, sizeof(s->finish), "%s", end);
}

static void take_event(struct streams *all, struct stream *s, const char *p,
		       size_t n)
{
	const u64 now = now_ns();
	json_t *v, *choice;

	if (n == 12 && !memcmp(p, "data: [DONE]", 12)) {
		s->done = true;
		return;
	}
	v = n > 6 && !memcmp(p, "data: ", 6) ?
	    json_loadb(p + 6, n - 6, 0, NULL) : NULL;
	choice = json_array_get(json_object_get(v, "choices"), 0);
	if (choice && !s->done)
		take_choice(s, choice);
	else
		wrong(s, "no event", p);
	json_decref(v);
	if (s->began && all->nr_gaps < all->max_gaps)
		all->gaps[all->nr_gaps++] = (u32)((now - s->last) / 1000);
	if (!s->began && ++all->now > all->at_once)
		all->at_once = all->now;
	s->began = true;
	s->last = now;
}

/* Judge a chunk: complete events, each with an empty line behind it. */
static void take_chunk(struct streams *all, struct stream *s, const char *p,
		       size_t n)
{
	const char *end;

	while (n) {
		end = memmem(p, n, "\n\n", 2);
		if (!end) {
			wrong(s, "a chunk that ends in an event", "");
			return;
		}
		take_event(all, s, p, (size_t)(end - p));
		n -= (size_t)(end + 2 - p);
		p = end + 2;
	}
}

/* Judge a complete chunk at @p.  Return: its bytes, 0 if it is incomplete. */
static size_t take(struct streams *all, struct stream *s, const char *p,
		   size_t n)
{
	const char *line = memmem(p, n, "\r\n", 2), *end;
	size_t size, head;

	if (!s->headed) {
		end = memmem(p, n, "\r\n\r\n", 4);
		if (!end)
			return 0;
		s->headed = true;
		if (memcmp(p, "HTTP/1.1 200 ", 13))
			wrong(s, "the answer", p);
		return (size_t)(end + 4 - p);
	}
	if (!line)
		return 0;
	size = strtoull(p, NULL, 16);
	head = (size_t)(line + 2 - p);
	if (n < head + size + 2)
		return 0;
	if (memcmp(p + head + size, "\r\n", 2))
		wrong(s, "the end of a chunk", p);
	else if (!size)
		s->over = true;
	else
		take_chunk(all, s, p + head, size);
	return head + size + 2;
}

static void stream_over(struct streams *all, struct stream *s)
{
	if (s->over && !s->done)
		wrong(s, "it ended without [DONE]", "");
	stream_end(all, s);
	all->ended++;
}

static void stream_read(struct streams *all, struct stream *s, size_t most)
{
	size_t used = 0, n;
	ssize_t got;

	if (s->len + most + 1 > s->cap) {
		s->cap = s->len + most + 1;
		s->in = realloc(s->in, s->cap);
		ck_assert_ptr_nonnull(s->in);
	}
	got = recv(s->fd, s->in + s->len, most, MSG_DONTWAIT);
	if (got < 0 && errno == EAGAIN)
		return;
	if (got <= 0) {
		wrong(s, "it broke off", got ? strerror(errno) : "end of file");
		stream_over(all, s);
		return;
	}
	s->len += (size_t)got;
	s->in[s->len] = '\0';
	while (!*s->why && !s->over &&
	       (n = take(all, s, s->in + used, s->len - used)))
		used += n;
	s->len -= used;
	memmove(s->in, s->in + used, s->len + 1);
	if (*s->why || s->over)
		stream_over(all, s);
}

void streams_turn(struct streams *all, u32 ms)
{
	struct epoll_event ev[256];
	int i, n = epoll_wait(all->efd, ev, ARRAY_SIZE(ev), (int)ms);
	const u64 now = now_ms();
	u32 k;

	for (i = 0; i < n; i++)
		stream_read(all, ev[i].data.ptr, READ_BYTES);
	for (k = 0; k < all->nr; k++) {
		struct stream *s = &all->s[k];

		if (s->fd < 0)
			continue;
		if (s->gone_at && now >= s->gone_at) {
			stream_over(all, s);
		} else if (s->sip_ms && now >= s->next_sip) {
			s->next_sip = now + s->sip_ms;
			stream_read(all, s, SIP_BYTES);
		}
	}
}

/* ---- begin and end ---- */

static void stream_connect(struct stream *s, u32 port)
{
	struct sockaddr_in sa = {
		.sin_family = AF_INET, .sin_port = htons((u16)port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	const int small = 1;

	s->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_msg(s->fd >= 0, "socket: %s", strerror(errno));
	if (s->sip_ms)
		setsockopt(s->fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small));
	ck_assert_msg(!connect(s->fd, (struct sockaddr *)&sa, sizeof(sa)),
		      "connect: %s", strerror(errno));
}

void stream_begin(struct streams *all, struct stream *s, u32 port,
		  const char *prompt, u32 tokens, u32 sip_ms)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = s };
	char body[512], head[1024];
	int len, n;

	free(s->in);
	memset(s, 0, sizeof(*s));
	s->sip_ms = sip_ms;
	s->tokens = tokens;
	stream_connect(s, port);
	len = snprintf(body, sizeof(body),
		       "{\"prompt\":\"%s\",\"max_tokens\":%u,\"temperature\":0,\"ignore_eos\":true,\"stream\":true,\"return_token_ids\":true}",
		       prompt, tokens);
	n = snprintf(head, sizeof(head),
		     "POST /v1/completions HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		     len, body);
	if (send(s->fd, head, (size_t)n, MSG_NOSIGNAL) != n)
		wrong(s, "the request", strerror(errno));
	if (!sip_ms)
		ck_assert(!epoll_ctl(all->efd, EPOLL_CTL_ADD, s->fd, &ev));
}

void stream_end(struct streams *all, struct stream *s)
{
	if (s->fd >= 0) {
		close(s->fd);
		all->now -= s->began;
	}
	s->fd = -1;
	free(s->in);
	s->in = NULL;
	s->len = s->cap = 0;
}

static int cmp_u32(const void *a, const void *b)
{
	const u32 x = *(const u32 *)a, y = *(const u32 *)b;

	return (x > y) - (x < y);
}

void streams_gaps(struct streams *all, u32 *median, u32 *p99)
{
	*median = *p99 = 0;
	if (!all->nr_gaps)
		return;
	qsort(all->gaps, all->nr_gaps, sizeof(*all->gaps), cmp_u32);
	*median = all->gaps[all->nr_gaps / 2];
	*p99 = all->gaps[(u64)all->nr_gaps * 99 / 100];
}
