// SPDX-License-Identifier: Apache-2.0
/*
 * chats.c - clients that chat with a server, a few at a time
 *
 * A chat is the list of its tokens: a beginning that all have in common, then
 * made-up questions and the answers of the server.  Each turn asks with all of
 * the list, as chats do, so the server can use cached blocks of the turns
 * before.  The next chat is drawn: no order that a cache likes or dislikes.
 *
 * One thread and poll().  The cost of clients is not measured, but they run on
 * the machine that is: tokens are looked for in the text of the events when an
 * answer is whole, and nothing is parsed before.
 */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "tests/bench/bench.h"
#include "tests/bench/chats.h"

#define QUESTION_MIN	24u		/* tokens; at most three times as many */
#define ANSWER_MIN	16u
#define SLOTS_MAX	32u
#define ANSWER_BYTES	(1u << 18)
#define SILENCE_MS	60000ull	/* until a server is given up */
#define FIRST_ID	300u		/* below it are special tokens and bytes */

/**
 * struct chat - one conversation
 * @known: tokens whose KV was computed in a turn before
 */
struct chat {
	u32	*ids;
	u32	nr;
	u32	known;
	bool	busy;
};

/* A connection, and the turn that is on it. */
struct slot {
	int		fd;
	struct chat	*chat;		/* NULL: none */
	u64		sent;
	bool		begun;		/* its first token came */
	char		*text;
	size_t		len;
};

struct chats {
	struct chats_cfg	cfg;
	u64			state;
	struct chat		*chat;
	struct slot		slot[SLOTS_MAX];
	char			*body;
	u32			left;		/* turns to begin */
	u32			open;		/* that were begun */
	struct chats_take	*take;
};

static u32 draw(struct chats *c, u32 n)
{
	c->state ^= c->state << 13;
	c->state ^= c->state >> 7;
	c->state ^= c->state << 17;
	return (u32)((c->state >> 16) % n);
}

static void add_words(struct chats *c, struct chat *ch, u32 nr)
{
	for (; nr; nr--)
		ch->ids[ch->nr++] = FIRST_ID + draw(c, c->cfg.vocab - FIRST_ID);
}

/* Begin a chat as all begin; @nr tokens were said before the benchmark. */
static void chat_begin(struct chats *c, struct chat *ch, u32 nr)
{
	u32 i;

	for (i = 0; i < c->cfg.system; i++)
		ch->ids[i] = FIRST_ID + (i * 2654435761u >> 8) % (c->cfg.vocab - FIRST_ID);
	ch->nr = ch->known = c->cfg.system;
	add_words(c, ch, nr);
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

struct chats *chats_open(const struct chats_cfg *cfg)
{
	struct chats *c = calloc(1, sizeof(*c));
	const u32 longest = cfg->most + 3 * (QUESTION_MIN + ANSWER_MIN);
	u32 i;

	if (!c || cfg->at_once > SLOTS_MAX || cfg->at_once >= cfg->chats)
		bench_die("chats: no memory, or too many at once");
	c->cfg = *cfg;
	c->state = 88172645463325252ull + cfg->seed;
	c->chat = calloc(cfg->chats, sizeof(*c->chat));
	c->body = malloc(longest * 8 + 512);
	for (i = 0; i < cfg->chats; i++) {
		c->chat[i].ids = calloc(longest, sizeof(u32));
		chat_begin(c, &c->chat[i], draw(c, (cfg->most - cfg->system) / 2));
	}
	for (i = 0; i < cfg->at_once; i++) {
		c->slot[i].fd = connect_to(cfg->port);
		c->slot[i].text = malloc(ANSWER_BYTES);
	}
	return c;
}

void chats_close(struct chats *c)
{
	u32 i;

	for (i = 0; i < c->cfg.at_once; i++) {
		close(c->slot[i].fd);
		free(c->slot[i].text);
	}
	for (i = 0; i < c->cfg.chats; i++)
		free(c->chat[i].ids);
	free(c->chat);
	free(c->body);
	free(c);
}

/* ---- a turn ---- */

static struct chat *pick(struct chats *c)
{
	u32 i = draw(c, c->cfg.chats);

	while (c->chat[i].busy)
		i = (i + 1) % c->cfg.chats;
	return &c->chat[i];
}

static void send_all(const struct slot *s, const char *p, size_t n)
{
	ssize_t did;

	for (; n; p += did, n -= (size_t)did) {
		did = send(s->fd, p, n, MSG_NOSIGNAL);
		if (did <= 0)
			bench_die("a request cannot be sent: %s", strerror(errno));
	}
}

static void turn_send(struct chats *c, struct slot *s, u32 answer)
{
	const struct chat *ch = s->chat;
	char head[256], *p = c->body;
	u32 i;

	p += sprintf(p, "{\"max_tokens\":%u,\"temperature\":0,\"ignore_eos\":true,\"stream\":true,\"return_token_ids\":true,\"prompt\":[%u",
		     answer, ch->ids[0]);
	for (i = 1; i < ch->nr; i++)
		p += sprintf(p, ",%u", ch->ids[i]);
	p += sprintf(p, "]}");
	snprintf(head, sizeof(head),
		 "POST /v1/completions HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n\r\n",
		 (size_t)(p - c->body));
	s->sent = bench_now();
	send_all(s, head, strlen(head));
	send_all(s, c->body, (size_t)(p - c->body));
}

static void turn_begin(struct chats *c, struct slot *s)
{
	const u32 question = QUESTION_MIN + draw(c, 2 * QUESTION_MIN + 1);
	const u32 answer = ANSWER_MIN + draw(c, 2 * ANSWER_MIN + 1);
	struct chat *ch = pick(c);

	if (ch->nr + question + answer > c->cfg.most)
		chat_begin(c, ch, 0);
	add_words(c, ch, question);
	ch->busy = true;
	s->chat = ch;
	s->len = 0;
	s->begun = false;
	c->take->prompt += ch->nr;
	c->take->fresh += ch->nr - ch->known;
	c->left--;
	c->open++;
	turn_send(c, s, answer);
}

/* The tokens of the answer become part of the chat. */
static u32 take_ids(struct chat *ch, const char *p)
{
	static const char mark[] = "\"token_ids\":[";
	u32 nr = 0;
	char *end;

	while ((p = strstr(p, mark))) {
		p += strlen(mark);
		while (*p != ']') {
			ch->ids[ch->nr++] = (u32)strtoul(p, &end, 10);
			nr++;
			p = end + (*end == ',');
			if (*end != ',' && *end != ']')
				bench_die("token_ids of an answer are no list");
		}
	}
	return nr;
}

static void turn_end(struct chats *c, struct slot *s)
{
	struct chat *ch = s->chat;
	const u32 nr = take_ids(ch, s->text);

	if (!strstr(s->text, "HTTP/1.1 200") || !nr)
		bench_die("an answer is no good: %.400s", s->text);
	c->take->tokens += nr;
	c->take->requests++;
	ch->known = ch->nr - 1;		/* the last one was drawn, not computed */
	ch->busy = false;
	s->chat = NULL;
	c->open--;
}

static void slot_read(struct chats *c, struct slot *s)
{
	const size_t from = s->len > 16 ? s->len - 16 : 0;
	ssize_t n = recv(s->fd, s->text + s->len, ANSWER_BYTES - 1 - s->len,
			 MSG_DONTWAIT);

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0)
		bench_die("an answer broke off: %s", n ? strerror(errno) : "closed");
	s->len += (size_t)n;
	s->text[s->len] = '\0';
	if (!s->begun && strstr(s->text + from, "data: {")) {
		s->begun = true;
		c->take->ttft[c->take->begun++] = (double)(bench_now() - s->sent) / 1e6;
	}
	if (!s->begun && strstr(s->text, "\"error\""))
		bench_die("a request is refused: %.400s", s->text);
	if (strstr(s->text + from, "data: [DONE]"))
		turn_end(c, s);
}

/* ---- a run ---- */

/* Begin turns while some are left; connections that wait for data go to @p. */
static u32 slots_prepare(struct chats *c, struct pollfd *p)
{
	u32 i, nr = 0;

	for (i = 0; i < c->cfg.at_once; i++) {
		struct slot *s = &c->slot[i];

		if (!s->chat && c->left)
			turn_begin(c, s);
		if (s->chat)
			p[nr++] = (struct pollfd){ .fd = s->fd, .events = POLLIN };
	}
	return nr;
}

static void slots_read(struct chats *c, const struct pollfd *p, u32 nr)
{
	u32 i, at = 0;

	for (i = 0; i < c->cfg.at_once && at < nr; i++) {
		if (c->slot[i].fd != p[at].fd)
			continue;
		if (p[at++].revents)
			slot_read(c, &c->slot[i]);
	}
}

void chats_run(struct chats *const *list, u32 nr, u32 requests,
	       struct chats_take *take, u32 tick_ms, void (*tick)(void *arg),
	       void *arg)
{
	u64 last = bench_now(), heard = last, now;
	struct pollfd p[2 * SLOTS_MAX];
	u32 i, n, waits[2] = { 0 };

	for (i = 0; i < nr; i++) {
		take[i] = (struct chats_take){
			.ttft = calloc(requests, sizeof(double)) };
		list[i]->take = &take[i];
		list[i]->left = requests;
	}
	for (;;) {
		for (n = i = 0; i < nr; n += waits[i++])
			waits[i] = slots_prepare(list[i], p + n);
		if (!n)
			return;
		if (poll(p, n, (int)tick_ms) > 0)
			heard = bench_now();
		for (n = i = 0; i < nr; n += waits[i++])
			slots_read(list[i], p + n, waits[i]);
		now = bench_now();
		if (now - heard > SILENCE_MS * 1000000)
			bench_die("no answer for %llu ms", SILENCE_MS);
		if (now - last >= tick_ms * 1000000ull) {
			last = now;
			tick(arg);
		}
	}
}

void chats_take_free(struct chats_take *take)
{
	free(take->ttft);
	take->ttft = NULL;
}
