// SPDX-License-Identifier: Apache-2.0
/*
 * bench_flow.c - one request in progress
 *
 * The times of a stream are those at which its events were read; several events
 * of one read have the same time.  An event counts if it has text or, with
 * completions, if it says that the text goes on: a token may be half a
 * character.
 */
#include <stdarg.h>
#include <stdio.h>

#include "runtime/cli/bench_serve.h"

#define FLOW_LINE_MAX	(1u << 20)

void flow_fail(struct flow *f, const char *fmt, ...)
{
	va_list ap;

	if (f->failed)
		return;
	f->failed = true;
	va_start(ap, fmt);
	vsnprintf(f->why, sizeof(f->why), fmt, ap);
	va_end(ap);
	web_tame(f->why);
}

const char *flow_error(int err)
{
	switch (err) {
	case -ECONNREFUSED:
		return "no server listens there";
	case -ECONNRESET:
	case -EPIPE:
		return "the answer broke off";
	case -EPROTO:
		return "the answer is no HTTP/1.1";
	case -ENOMEM:
		return "no memory here";
	}
	return strerror(-err);
}

static u64 count_of(const json_t *o, const char *name)
{
	return (u64)max(json_integer_value(json_object_get(o, name)), 0);
}

void usage_take(struct usage *u, const json_t *v)
{
	if (!json_is_object(v))
		return;
	u->known = true;
	u->in = count_of(v, "prompt_tokens");
	u->out = count_of(v, "completion_tokens");
	u->cached = count_of(json_object_get(v, "prompt_tokens_details"),
			     "cached_tokens");
}

static bool brings_token(const json_t *choice, bool chat)
{
	const json_t *text = web_event_text(choice);
	const json_t *delta = json_object_get(choice, "delta");

	if (!chat)
		return text && (json_string_length(text) ||
				!json_is_string(json_object_get(choice,
							"finish_reason")));
	/* Thinking of a model has other keys, and is generated as well. */
	return (text && json_string_length(text)) ||
	       json_string_length(json_object_get(delta, "reasoning")) ||
	       json_string_length(json_object_get(delta, "reasoning_content"));
}

static void take_choice(struct flow *f, const json_t *choice, double now,
			bool chat)
{
	if (brings_token(choice, chat)) {
		if (f->events++)
			series_add(&f->gaps, now - f->last);
		else
			f->first = now;
	}
	f->last = now;
}

/* Handle one event, @n bytes. */
static void take_event(struct flow *f, const char *p, size_t n, double now,
		       bool chat)
{
	const json_t *choice;
	const char *why;
	json_t *v;

	if (n == 6 && !memcmp(p, "[DONE]", 6)) {
		f->ended = true;
		return;
	}
	v = json_loadb(p, n, 0, NULL);
	if (!json_is_object(v)) {
		flow_fail(f, "an event is no JSON object");
		json_decref(v);
		return;
	}
	if (json_is_true(json_object_get(v, "error")) ||
	    json_is_object(json_object_get(v, "error")) ||
	    json_is_string(json_object_get(v, "error"))) {
		why = web_error_text(v);
		flow_fail(f, "in the stream: %s", why ? why : "an error");
	}
	choice = json_array_get(json_object_get(v, "choices"), 0);
	if (choice)
		take_choice(f, choice, now, chat);
	usage_take(&f->usage, json_object_get(v, "usage"));
	json_decref(v);
}

static void take_refusal(struct flow *f)
{
	const struct text *t = &f->call.body;
	json_t *v = t->len ? json_loadb(t->p, t->len, 0, NULL) : NULL;
	const char *why = web_error_text(v);

	flow_fail(f, "%d: %s", f->call.status, why ? why : "no reason");
	json_decref(v);
}

void flow_take(struct flow *f, double now, bool chat)
{
	struct text *t = &f->call.body;
	size_t at = 0, n;
	const char *p;

	f->seen = now;
	if (f->call.status && f->call.status != 200) {
		if (f->call.over)
			take_refusal(f);
		return;
	}
	while (!f->failed && !f->ended && web_event(t, &at, &p, &n))
		take_event(f, p, n, now, chat);
	text_cut(t, f->ended ? t->len : at);
	if (t->len > FLOW_LINE_MAX)
		flow_fail(f, "an event has no end");
	if (f->call.over && !f->ended)
		flow_fail(f, f->events ? "the stream has no end" :
			  "the answer is no stream of events");
}
