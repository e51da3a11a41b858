// SPDX-License-Identifier: Apache-2.0
/*
 * soak_load.c - clients of a server that never rest
 *
 * Each client is a thread that draws its next action: a known request, which
 * must get the same answer as when it was sent alone; a new prompt, which
 * evicts cached blocks; a request that it leaves; a wrong request.  It keeps a
 * connection for some of them.
 *
 * Threads of the test share only the results of soak_load_learn(), which are
 * written before they start, and @stop.  A client writes its counts alone;
 * others read them.
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/integration/soak_load.h"

#define CLIENTS_MAX	64u
#define CHOICES		4u
#define TEXT_MAX	4096u
#define BODY_MAX	4096u
#define LONG_WORDS	200u
#define WAIT_MS		600000u	/* a low priority waits behind all others */
#define COMPLETIONS	"/v1/completions"
#define CHAT		"/v1/chat/completions"

/* ---- requests ---- */

#define SHARED	"In the beginning there was a small house by the river, and in it lived an old man who had seen many winters. Every morning he went down to the water with a bucket, and every evening he told the children what he had seen there. "

static const char * const prompts[] = {
	"In the beginning",
	"And it came to pass in those days that",
	SHARED "One day",
	SHARED "The river",
	SHARED SHARED "But then the ice",
};

/**
 * struct form - a kind of request for a prompt
 * @fmt:    format of the body, without the closing brace
 * @whole:  it cannot be streamed
 */
static const struct form {
	const char	*path;
	const char	*fmt;
	bool		whole;
} forms[] = {
	{ COMPLETIONS, "{\"prompt\":\"%s\",\"temperature\":0,\"max_tokens\":64,\"ignore_eos\":true", false },
	{ COMPLETIONS, "{\"prompt\":\"%s\",\"temperature\":0,\"max_tokens\":24", false },
	{ COMPLETIONS, "{\"prompt\":\"%s\",\"temperature\":0.9,\"seed\":7,\"n\":4,\"max_tokens\":32,\"ignore_eos\":true", false },
	{ COMPLETIONS, "{\"prompt\":\"%s\",\"seed\":11,\"n\":2,\"best_of\":3,\"max_tokens\":20", true },
	{ COMPLETIONS, "{\"prompt\":\"%s\",\"temperature\":0,\"use_beam_search\":true,\"best_of\":4,\"n\":2,\"max_tokens\":24", true },
	{ COMPLETIONS, "{\"prompt\":\"%s\",\"temperature\":0,\"logprobs\":4,\"echo\":true,\"max_tokens\":12", false },
	{ COMPLETIONS, "{\"prompt\":\"%s\",\"temperature\":0,\"prompt_logprobs\":2,\"max_tokens\":4", true },
	{ COMPLETIONS, "{\"prompt\":\"%s\",\"temperature\":0,\"frequency_penalty\":0.7,\"presence_penalty\":0.4,\"repetition_penalty\":1.2,\"max_tokens\":40", false },
	{ COMPLETIONS, "{\"prompt\":\"%s\",\"seed\":3,\"top_k\":40,\"top_p\":0.9,\"min_p\":0.02,\"stop\":[\". \",\" the\"],\"min_tokens\":6,\"max_tokens\":64", false },
	{ CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}],\"temperature\":0,\"max_tokens\":32,\"ignore_eos\":true", false },
	{ CHAT, "{\"messages\":[{\"role\":\"system\",\"content\":\"Tell a tale.\"},{\"role\":\"user\",\"content\":\"%s\"}],\"seed\":5,\"n\":3,\"logprobs\":true,\"top_logprobs\":2,\"max_tokens\":20", false },
	{ CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}],\"temperature\":0,\"use_beam_search\":true,\"n\":3,\"max_tokens\":16", false },
};

/* Wrong requests; each is answered 4xx. */
static const struct wrong {
	const char	*path;
	const char	*body;
} wrongs[] = {
	{ COMPLETIONS, "{\"prompt\":\"a\"" },
	{ COMPLETIONS, "prompt=a&max_tokens=2" },
	{ COMPLETIONS, "{\"prompt\":\"a\",\"prompt\":\"b\"}" },
	{ COMPLETIONS, "{\"prompt\":[\"a\",1]}" },
	{ COMPLETIONS, "{\"prompt\":\"a\",\"no_such\":[1,{\"a\":\"b\"}]}" },
	{ COMPLETIONS, "{\"prompt\":\"a\",\"model\":\"gpt-99\"}" },
	{ COMPLETIONS, "{\"prompt\":\"a\",\"max_tokens\":99999}" },
	{ COMPLETIONS, "{\"prompt\":\"a\",\"stop\":[\"a\",\"b\",\"c\",\"d\",\"e\"]}" },
	{ CHAT, "{\"messages\":[{\"role\":\"king\",\"content\":\"a\"}]}" },
	{ CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":[1]}" },
	{ "/tokenize", "{\"prompt\":\"a\",\"messages\":[]}" },
	{ "/detokenize", "{\"tokens\":[999999]}" },
	{ "/nowhere", "{}" },
};

/**
 * struct known - the right answer to a request
 * @choices: choices of the answer, as text
 * @text:    text of each choice
 */
static struct known {
	char	*choices;
	char	*text[CHOICES];
} known[ARRAY_SIZE(forms)][ARRAY_SIZE(prompts)];

/**
 * struct client - a thread that sends requests all the time
 * @because: the first wrong answer, in words
 */
static struct client {
	pthread_t		thread;
	struct web		w;
	u64			rng;
	u32			left;	/* requests until it connects again */
	struct soak_counts	n;
	char			because[512];
} client[CLIENTS_MAX];

static u32 nr_clients, port, stop;

static u32 draw(struct client *c, u32 n)
{
	c->rng = c->rng * 6364136223846793005ull + 1442695040888963407ull;
	return (u32)((c->rng >> 33) % n);
}

static void count(u64 *n)
{
	WRITE_ONCE(*n, *n + 1);
}

__attribute__((format(printf, 2, 3)))
static void wrong(struct client *c, const char *fmt, ...)
{
	va_list ap;

	if (c->because[0])
		return;
	va_start(ap, fmt);
	vsnprintf(c->because, sizeof(c->because), fmt, ap);
	va_end(ap);
	/* An empty text would mean that no answer was wrong. */
	if (!c->because[0])
		strcpy(c->because, "?");
}

/* ---- answers ---- */

static char *choices_of(const char *answer)
{
	json_t *v = json_loads(answer, 0, NULL);
	json_t *c = json_object_get(v, "choices");
	char *text = c ? json_dumps(c, JSON_COMPACT | JSON_SORT_KEYS) : NULL;

	json_decref(v);
	return text;
}

/* Text of a choice, in any of its forms. */
static const char *text_of(json_t *choice)
{
	json_t *t = json_object_get(choice, "text");

	if (!t)
		t = json_object_get(json_object_get(choice, "message"),
				    "content");
	if (!t)
		t = json_object_get(json_object_get(choice, "delta"),
				    "content");
	return json_string_value(t);
}

struct said {
	char	text[CHOICES][TEXT_MAX];
	bool	done;
	bool	error;
};

static void said_add(struct said *s, const char *event)
{
	json_t *v, *list, *c;
	const char *t;
	u32 i, k;

	if (!strcmp(event, "[DONE]")) {
		s->done = true;
		return;
	}
	v = json_loads(event, 0, NULL);
	list = json_object_get(v, "choices");
	s->error |= !list;
	for (i = 0; i < json_array_size(list); i++) {
		c = json_array_get(list, i);
		k = (u32)json_integer_value(json_object_get(c, "index"));
		t = text_of(c);
		if (t && k < CHOICES)
			strncat(s->text[k], t,
				TEXT_MAX - strlen(s->text[k]) - 1);
	}
	json_decref(v);
}

/* Read up to @most events, with a pause of @ms after each. */
static void read_events(struct client *c, struct said *s, u32 most, u32 ms)
{
	char *event;
	u32 n;

	memset(s, 0, sizeof(*s));
	for (n = 0; n < most && (event = web_event(&c->w)); n++) {
		said_add(s, event);
		if (s->error)
			wrong(c, "in a stream: %s", event);
		free(event);
		if (ms)
			nap_ms(ms);
	}
}

static void judge_stream(struct client *c, const struct known *k, u32 ms)
{
	struct said *s = malloc(sizeof(*s));
	u32 i;

	if (!s)
		return wrong(c, "no memory");
	read_events(c, s, UINT32_MAX, ms);
	if (!s->done)
		wrong(c, "a stream broke off");
	for (i = 0; k && i < CHOICES; i++)
		if (strcmp(s->text[i], k->text[i] ? k->text[i] : ""))
			wrong(c, "a stream said '%.150s', not '%.150s'",
			      s->text[i], k->text[i] ? k->text[i] : "");
	free(s);
	count(&c->n.streams);
}

static void judge_whole(struct client *c, const struct known *k)
{
	char *answer = web_body(&c->w), *choices;

	choices = answer ? choices_of(answer) : NULL;
	if (!choices)
		wrong(c, "answered %.300s", answer ? answer : "nothing");
	else if (k && strcmp(choices, k->choices))
		wrong(c, "answered %.200s, not %.200s", choices, k->choices);
	free(choices);
	free(answer);
}

/* ---- actions of a client ---- */

static void hang_up(struct client *c)
{
	web_close(&c->w);
	c->left = 0;
}

static void connect_if(struct client *c, bool narrow)
{
	if (c->left && !narrow) {
		c->left--;
		return;
	}
	web_close(&c->w);
	if (narrow)
		web_open_narrow(&c->w, port);
	else
		web_open(&c->w, port);
	c->w.wait_ms = WAIT_MS * time_scale();
	c->left = draw(c, 12);
	count(&c->n.opened);
}

static bool post(struct client *c, const char *path, const char *body)
{
	if (!web_post(&c->w, path, body)) {
		wrong(c, "could not ask");
		return false;
	}
	count(&c->n.asked);
	return true;
}

static void end_body(char *body, bool stream)
{
	strncat(body, stream ? ",\"stream\":true}" : "}",
		BODY_MAX - strlen(body) - 1);
}

/* Send a request, and read the answer to its end. */
static void ask(struct client *c, const char *path, char *body, bool stream,
		const struct known *k, u32 ms)
{
	const u64 begin = now_ms();
	const size_t tail = 200;
	int status;

	end_body(body, stream);
	connect_if(c, ms > 0);
	if (!post(c, path, body))
		return;
	status = web_status(&c->w);
	WRITE_ONCE(c->n.longest, max(c->n.longest, now_ms() - begin));
	if (status != 200) {
		char *text = status ? web_body(&c->w) : NULL;

		wrong(c, "%d after %llu ms to ..%s: %.200s", status,
		      (unsigned long long)(now_ms() - begin),
		      body + strlen(body) - min(tail, strlen(body)),
		      text ? text : "");
		free(text);
		return;
	}
	if (stream)
		judge_stream(c, k, ms);
	else
		judge_whole(c, k);
	count(&c->n.whole);
	if (k)
		count(&c->n.compared);
	if (!strcmp(path, CHAT))
		count(&c->n.chats);
	if (ms)
		count(&c->n.slow);
}

static void do_known(struct client *c, bool slow)
{
	const u32 f = draw(c, ARRAY_SIZE(forms));
	const u32 p = draw(c, ARRAY_SIZE(prompts));
	const bool stream = !forms[f].whole && (slow || draw(c, 2));
	char body[BODY_MAX];

	snprintf(body, sizeof(body) - 32, forms[f].fmt, prompts[p]);
	ask(c, forms[f].path, body, stream, &known[f][p],
	    stream && slow ? 1 + draw(c, 40) : 0);
}

/* Make a new prompt, often behind a shared beginning. */
static void new_prompt(struct client *c, char *p, size_t len)
{
	static const char * const word[] = {
		"river", "stone", "and the", "winter", "he said", "light",
		"children", "of the", "old", "water", "came", "house",
	};
	u32 n = 1 + draw(c, draw(c, 3) ? 20 : LONG_WORDS);
	size_t at;

	at = (size_t)snprintf(p, len, "%s", draw(c, 2) ? SHARED : "");
	while (n-- && at + 16 < len)
		at += (size_t)snprintf(p + at, len - at, "%s ",
				       word[draw(c, ARRAY_SIZE(word))]);
}

static void new_body(struct client *c, char *body)
{
	char prompt[BODY_MAX / 2];
	int n;

	new_prompt(c, prompt, sizeof(prompt));
	n = snprintf(body, BODY_MAX - 64, "{\"prompt\":\"%s\",\"max_tokens\":%u,\"n\":%u,\"temperature\":0.%u",
		     prompt, 1 + draw(c, 120), 1 + draw(c, CHOICES),
		     draw(c, 10));
	if (!draw(c, 3))
		snprintf(body + n, BODY_MAX - 64 - (size_t)n,
			 ",\"cache_salt\":\"salt-%u\"", draw(c, 4));
	else if (!draw(c, 3))
		snprintf(body + n, BODY_MAX - 64 - (size_t)n,
			 ",\"priority\":%u", draw(c, 5));
}

static void do_new(struct client *c)
{
	char body[BODY_MAX];

	new_body(c, body);
	ask(c, COMPLETIONS, body, draw(c, 2), NULL, 0);
}

/* Leave before the answer or within it. */
static void do_leave(struct client *c)
{
	const u32 events = draw(c, 20);
	char body[BODY_MAX];
	struct said *s;

	new_body(c, body);
	end_body(body, events > 4 || draw(c, 2));
	connect_if(c, false);
	if (!post(c, COMPLETIONS, body))
		return;
	s = malloc(sizeof(*s));
	if (s && events > 4 && web_status(&c->w) == 200)
		read_events(c, s, events, 0);
	else
		nap_ms(draw(c, 30));
	free(s);
	hang_up(c);
	count(&c->n.cancelled);
}

static void do_wrong(struct client *c)
{
	const struct wrong *w = &wrongs[draw(c, ARRAY_SIZE(wrongs))];
	char *text;
	int status;

	connect_if(c, false);
	if (!post(c, w->path, w->body))
		return;
	status = web_status(&c->w);
	text = status ? web_body(&c->w) : NULL;
	if (status < 400 || status > 499 || !text)
		wrong(c, "%d to %s: %.200s", status, w->body,
		      text ? text : "");
	free(text);
	count(&c->n.refused);
	/* The server may close the connection after an error. */
	hang_up(c);
}

/* Send bytes that are no request, or half of one; wait for no answer. */
static void do_noise(struct client *c)
{
	static const char * const noise[] = {
		"hello\r\n\r\n", "GET / HTTP/1.1\r\nHo",
		"POST " COMPLETIONS " HTTP/1.1\r\nHost: a\r\nContent-Length: 20\r\n\r\n{\"prompt\"",
		"POST " COMPLETIONS " HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n{\"pr",
	};

	hang_up(c);
	connect_if(c, false);
	(void)web_puts(&c->w, noise[draw(c, ARRAY_SIZE(noise))]);
	nap_ms(draw(c, 20));
	hang_up(c);
}

static void do_look(struct client *c)
{
	static const char * const path[] = {
		"/metrics", "/v1/models", "/health", "/version",
	};
	char *text = NULL;

	connect_if(c, false);
	if (web_get(&c->w, path[draw(c, ARRAY_SIZE(path))]) &&
	    web_status(&c->w) == 200)
		text = web_body(&c->w);
	if (!text)
		wrong(c, "no figures");
	free(text);
}

static void *client_main(void *arg)
{
	struct client *c = arg;
	u32 what;

	while (!load_acquire(&stop) && !c->because[0]) {
		what = draw(c, 100);
		if (what < 45)
			do_known(c, false);
		else if (what < 50)
			do_known(c, true);
		else if (what < 72)
			do_new(c);
		else if (what < 86)
			do_leave(c);
		else if (what < 94)
			do_wrong(c);
		else if (what < 97)
			do_noise(c);
		else
			do_look(c);
	}
	web_close(&c->w);
	return NULL;
}

/* ---- all of them ---- */

static void learn(struct served *s, u32 f, u32 p)
{
	struct known *k = &known[f][p];
	char body[BODY_MAX];
	json_t *v;
	u32 i;

	snprintf(body, sizeof(body) - 32, forms[f].fmt, prompts[p]);
	end_body(body, false);
	v = web_json(s->port, forms[f].path, body, 200);
	ck_assert_msg(v != NULL, "%s", body);
	k->choices = json_dumps(json_object_get(v, "choices"),
				JSON_COMPACT | JSON_SORT_KEYS);
	ck_assert_ptr_nonnull(k->choices);
	for (i = 0; i < json_array_size(json_object_get(v, "choices")); i++)
		k->text[i] = strdup(choice_text(v, i));
	json_decref(v);
}

void soak_load_learn(struct served *s)
{
	u32 f, p;

	for (f = 0; f < ARRAY_SIZE(forms); f++)
		for (p = 0; p < ARRAY_SIZE(prompts); p++)
			learn(s, f, p);
}

void soak_load_start(struct served *s, u32 clients)
{
	u32 i;

	ck_assert_uint_le(clients, CLIENTS_MAX);
	port = s->port;
	for (i = 0; i < clients; i++) {
		client[i].w.fd = -1;
		client[i].rng = (u64)random_below(1u << 30) << 30 ^ i;
		ck_assert(!pthread_create(&client[i].thread, NULL, client_main,
					  &client[i]));
		nr_clients++;
	}
}

void soak_load_counts(struct soak_counts *sum)
{
	u64 *to = (u64 *)sum, longest = 0;
	size_t k;
	u32 i;

	memset(sum, 0, sizeof(*sum));
	for (i = 0; i < nr_clients; i++) {
		for (k = 0; k < sizeof(*sum) / sizeof(u64); k++)
			to[k] += READ_ONCE(((u64 *)&client[i].n)[k]);
		longest = max(longest, READ_ONCE(client[i].n.longest));
	}
	sum->longest = longest;
}

void soak_load_judge(void)
{
	u32 i;

	for (i = 0; i < nr_clients; i++)
		ck_assert_msg(!client[i].because[0], "client %u: %s", i,
			      client[i].because);
}

void soak_load_stop(void)
{
	u32 i, f, p, n;

	store_release(&stop, 1);
	for (i = 0; i < nr_clients; i++)
		pthread_join(client[i].thread, NULL);
	soak_load_judge();
	for (f = 0; f < ARRAY_SIZE(forms); f++) {
		for (p = 0; p < ARRAY_SIZE(prompts); p++) {
			free(known[f][p].choices);
			for (n = 0; n < CHOICES; n++)
				free(known[f][p].text[n]);
		}
	}
}
