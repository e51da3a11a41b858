// SPDX-License-Identifier: Apache-2.0
/*
 * chat_turn.c - one answer of a chat
 *
 * One request, one stream, printed as it comes.  Ctrl-C closes the connection,
 * which makes a server stop; the text until then is kept.
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <kvmm/clock.h>

#include "runtime/cli/chat.h"

#define TURN_LINE_MAX	(1u << 20)	/* longest line of a stream */

static volatile sig_atomic_t interrupted;

void turn_interrupt(void)
{
	interrupted = 1;
}

static void write_body(const struct turn *t, struct text *b)
{
	char *messages = json_dumps(t->messages, JSON_COMPACT);

	text_puts(b, "{\"model\":");
	text_jsons(b, t->model);
	text_puts(b, ",\"messages\":");
	text_puts(b, messages ? messages : "");
	b->failed |= !messages;
	free(messages);
	if (t->max_tokens)
		text_printf(b, ",\"max_tokens\":%u", t->max_tokens);
	if (t->temperature >= 0)
		text_printf(b, ",\"temperature\":%g", t->temperature);
	if (t->seed != UINT64_MAX)
		text_printf(b, ",\"seed\":%llu", (unsigned long long)t->seed);
	text_puts(b, ",\"stream\":true,\"stream_options\":{\"include_usage\":true}}");
}

static u64 count_of(const json_t *o, const char *name)
{
	return (u64)max(json_integer_value(json_object_get(o, name)), 0);
}

static void take_choice(struct turn *t, const json_t *c, struct printed *to)
{
	const json_t *text = web_event_text(c);
	const char *reason;

	reason = json_string_value(json_object_get(c, "finish_reason"));
	t->length |= reason && !strcmp(reason, "length");
	if (!text || !json_string_length(text))
		return;
	if (!t->events++)
		t->first = kv_now_s() - t->begin;
	text_add(&t->text, json_string_value(text), json_string_length(text));
	printer_text(to, json_string_value(text), json_string_length(text));
}

/* Keep the server's refusal; it is printed after the text. */
static int refuse(struct turn *t, int status, const char *why)
{
	t->status = status;
	snprintf(t->why, sizeof(t->why), "%s",
		 why ? why : "it does not say why");
	return -EREMOTEIO;
}

/* Handle one event, @n bytes.  Return: 0 or a negative errno. */
static int take_event(struct turn *t, const char *p, size_t n,
		      struct printed *to)
{
	const json_t *usage, *choice;
	json_t *v;
	int ret = 0;

	if (n == 6 && !memcmp(p, "[DONE]", 6)) {
		t->ended = true;
		return 0;
	}
	v = json_loadb(p, n, 0, NULL);
	usage = json_object_get(v, "usage");
	choice = json_array_get(json_object_get(v, "choices"), 0);
	if (!json_is_object(v))
		ret = -EPROTO;
	else if (json_is_object(json_object_get(v, "error")))
		ret = refuse(t, 503, web_error_text(v));
	if (choice)
		take_choice(t, choice, to);
	if (json_is_object(usage)) {
		t->prompt_tokens = count_of(usage, "prompt_tokens");
		t->tokens = count_of(usage, "completion_tokens");
		t->cached_tokens = count_of(json_object_get(usage,
					"prompt_tokens_details"),
					"cached_tokens");
	}
	json_decref(v);
	return ret;
}

static int refusal(struct turn *t, const struct web_call *c)
{
	json_t *v = c->body.len ? json_loadb(c->body.p, c->body.len, 0, NULL) :
				  NULL;
	const int ret = refuse(t, c->status, web_error_text(v));

	json_decref(v);
	return ret;
}

/* Handle input.  Return: 0 or a negative errno. */
static int take(struct turn *t, struct web_call *c, struct printed *to)
{
	const int err = web_call_read(c);
	size_t at = 0, n;
	const char *p;
	int ret = 0;

	while (!ret && c->status == 200 && web_event(&c->body, &at, &p, &n))
		ret = take_event(t, p, n, to);
	text_cut(&c->body, c->status == 200 ? at : 0);
	if (ret || t->ended)
		return ret;
	if (err)
		return err;
	if (c->status == 200 && c->body.len > TURN_LINE_MAX)
		return -EPROTO;
	if (c->over && c->status != 200)
		return refusal(t, c);
	return !c->over ? 0 : t->events ? -ECONNRESET : -EPROTO;
}

/* Read events until the answer ends or the user stops it. */
static int read_answer(struct turn *t, struct web_call *c, struct output *out,
		       struct printed *to, const sigset_t *mask)
{
	const struct timespec wait = { .tv_sec = t->timeout_s };
	struct pollfd p = { .fd = c->fd, .events = POLLIN };
	int n, ret = 0;

	while (!ret && !t->ended && !interrupted && !out->err) {
		n = ppoll(&p, 1, &wait, mask);
		if (n > 0)
			ret = take(t, c, to);
		else if (!n)
			ret = -ETIMEDOUT;
		output_flush(out);
	}
	t->stopped = interrupted;
	return ret;
}

int turn_run(struct turn *t, struct output *out)
{
	struct printer printer = { 0 };
	struct text body = { 0 };
	sigset_t block, mask;
	struct web_call c;
	int ret;

	if (printer_create(&printer, PRINT_STREAM, out, NULL, 1, 1, 1)) {
		printer_destroy(&printer);
		return web_failed(t->server, -ENOMEM, t->timeout_s);
	}
	/* Ctrl-C is only handled during the wait. */
	sigemptyset(&block);
	sigaddset(&block, SIGINT);
	sigprocmask(SIG_BLOCK, &block, &mask);
	interrupted = 0;
	write_body(t, &body);
	t->begin = kv_now_s();
	ret = web_call_begin(&c, t->server, "/v1/chat/completions", t->key,
			     &body, t->timeout_s);
	if (!ret) {
		ret = read_answer(t, &c, out, printer_of(&printer, 0), &mask);
		web_call_end(&c);
	}
	t->took = kv_now_s() - t->begin;
	if (t->events)
		printer_end(printer_of(&printer, 0), true);
	output_close(out);
	sigprocmask(SIG_SETMASK, &mask, NULL);
	printer_destroy(&printer);
	text_free(&body);
	if (ret == -EREMOTEIO)
		return web_refused(t->server, t->status, t->why);
	return ret ? web_failed(t->server, ret, t->timeout_s) : 0;
}
