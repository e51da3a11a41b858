// SPDX-License-Identifier: Apache-2.0
/*
 * streams.c - clients that read many event streams at once, and count
 *
 * One thread with epoll.  The cost of clients is not measured, but they run on
 * the same machine, so they do as little as possible.  Bytes are searched for
 * the beginning of events and thrown away.  An event is counted by its first
 * bytes, "data: {", which no text of an event can hold, since a quote in it
 * would have a backslash before it.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/bench/bench.h"
#include "tests/bench/streams.h"

#define READ_BYTES	65536u
#define TAIL		16u		/* bytes kept of the last read, for marks that are cut */

static const char event_mark[] = "data: {";
static const char end_mark[] = "data: [DONE]";

/**
 * struct stream - one connection
 * @tail:   the last bytes that came
 * @events: that came
 * @last:   ticks of the last event; 0: none of this answer came
 */
struct stream {
	int	fd;
	u32	nr_tail;
	char	tail[TAIL];
	u64	events;
	u64	last;
};

struct streams {
	int			efd;
	u32			nr;
	u32			tokens;
	u32			asked;
	struct streams_count	count;
	struct bench_samples	*gaps;
	struct stream		*s;
	char			buf[TAIL + READ_BYTES];
};

static void ask(struct streams *all, struct stream *s)
{
	const u32 i = all->asked++;
	char body[512], head[1024];
	int n, len;

	len = snprintf(body, sizeof(body),
		       "{\"prompt\":\"%u times the people went out of the city\",\"max_tokens\":%u,\"temperature\":0,\"ignore_eos\":true,\"stream\":true}",
		       i, all->tokens / 2 + i * 7919u % all->tokens);
	n = snprintf(head, sizeof(head),
		     "POST /v1/completions HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
		     len, body);
	if (send(s->fd, head, (size_t)n, MSG_NOSIGNAL) != n)
		bench_die("a request cannot be sent: %s", strerror(errno));
}

static int connect_to(u32 port)
{
	struct sockaddr_in sa = {
		.sin_family = AF_INET, .sin_port = htons((u16)port),
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	const int on = 1;

	if (fd < 0 || connect(fd, (struct sockaddr *)&sa, sizeof(sa)))
		bench_die("a connection to port %u: %s", port, strerror(errno));
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	return fd;
}

void streams_get(u32 port, const char *path, char *text, size_t max)
{
	int fd = connect_to(port);
	size_t len = 0;
	ssize_t n;

	dprintf(fd, "GET %s HTTP/1.0\r\n\r\n", path);
	while (len < max - 1 &&
	       (n = recv(fd, text + len, max - 1 - len, 0)) > 0)
		len += (size_t)n;
	text[len] = '\0';
	close(fd);
}

static void stream_open(struct streams *all, struct stream *s, u32 port)
{
	struct epoll_event ev = { .events = EPOLLIN, .data.ptr = s };

	s->fd = connect_to(port);
	if (epoll_ctl(all->efd, EPOLL_CTL_ADD, s->fd, &ev))
		bench_die("epoll: %s", strerror(errno));
	if (all->tokens)
		ask(all, s);
}

struct streams *streams_open(u32 port, u32 nr, u32 tokens)
{
	struct streams *all = calloc(1, sizeof(*all));
	u32 i;

	if (all)
		all->s = calloc(nr, sizeof(*all->s));
	if (!all || !all->s)
		bench_die("no memory for %u streams", nr);
	all->efd = epoll_create1(EPOLL_CLOEXEC);
	all->nr = nr;
	all->tokens = tokens;
	for (i = 0; i < nr; i++)
		stream_open(all, &all->s[i], port);
	return all;
}

/* How often @p has @mark, without those that end before @from. */
static u32 count_mark(const char *p, size_t n, size_t from, const char *mark)
{
	const size_t len = strlen(mark);
	const char *at = p, *end = p + n;
	u32 nr = 0;

	while ((at = memmem(at, (size_t)(end - at), mark, len))) {
		nr += at + len > p + from;
		at += len;
	}
	return nr;
}

static void watch(struct streams *all, struct stream *s)
{
	const u64 now = bench_ticks();

	if (all->gaps && s->last)
		bench_add(all->gaps, now - s->last);
	s->last = now;
}

static void stream_read(struct streams *all, struct stream *s)
{
	const size_t had = s->nr_tail;
	u32 events, ends;
	ssize_t n;
	size_t len;

	memcpy(all->buf, s->tail, had);
	n = recv(s->fd, all->buf + had, READ_BYTES, MSG_DONTWAIT);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0)
		bench_die("a stream broke off: %s", n ? strerror(errno) : "closed");
	len = had + (size_t)n;
	events = count_mark(all->buf, len, had, event_mark);
	ends = count_mark(all->buf, len, had, end_mark);
	if (events)
		watch(all, s);
	s->events += events;
	all->count.events += events;
	all->count.ended += ends;
	all->count.bytes += (u64)n;
	s->nr_tail = (u32)min(len, (size_t)TAIL);
	memcpy(s->tail, all->buf + len - s->nr_tail, s->nr_tail);
	if (ends) {
		s->last = 0;
		ask(all, s);
	}
}

static void streams_turn(struct streams *all, int ms)
{
	struct epoll_event ev[128];
	int i, n = epoll_wait(all->efd, ev, ARRAY_SIZE(ev), ms);

	for (i = 0; i < n; i++)
		stream_read(all, ev[i].data.ptr);
}

void streams_run(struct streams *all, u32 ms)
{
	const u64 end = bench_now() + ms * 1000000ull;

	while (bench_now() < end)
		streams_turn(all, 1);
}

void streams_await(struct streams *all, u32 ms)
{
	const u64 end = bench_now() + ms * 1000000ull;
	u32 i = 0;

	while (i < all->nr) {
		if (all->s[i].events)
			i++;
		else
			streams_turn(all, 1);
		if (bench_now() > end)
			bench_die("stream %u of %u had no event in %u ms", i,
				  all->nr, ms);
	}
}

void streams_watch(struct streams *all, struct bench_samples *gaps)
{
	all->gaps = gaps;
}

void streams_count(const struct streams *all, struct streams_count *c)
{
	*c = all->count;
}

void streams_close(struct streams *all)
{
	u32 i;

	for (i = 0; i < all->nr; i++)
		close(all->s[i].fd);
	close(all->efd);
	free(all->s);
	free(all);
}
