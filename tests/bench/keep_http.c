// SPDX-License-Identifier: Apache-2.0
/*
 * keep_http.c - ask kvrt serve for completions of made-up prompts
 */
#include <stdlib.h>
#include <string.h>

#include "tests/bench/keep.h"
#include "tests/bench/keep_http.h"
#include "tests/integration/http.h"

#define PATH		"/v1/completions"
#define FIRST_ID	300u		/* ids before it may be special tokens */
#define NR_IDS		3000u
#define ID_CHARS	6u
#define HEAD_CHARS	300u

static char *make_body(const struct keep_ask *q, bool stream)
{
	const size_t max = HEAD_CHARS + (size_t)q->nr * ID_CHARS;
	char *body = malloc(max);
	size_t n;
	u32 i;

	if (!body || q->nr > KEEP_HTTP_IDS)
		bench_die("a prompt of %u ids", q->nr);
	n = (size_t)snprintf(body, max,
			     "{\"model\":\"%s\",\"temperature\":0,\"ignore_eos\":true,\"max_tokens\":%u,%s\"prompt\":[",
			     q->model, q->answer,
			     stream ? "\"stream\":true,\"stream_options\":{\"include_usage\":true}," :
				      "");
	for (i = 0; i < q->nr; i++)
		n += (size_t)snprintf(body + n, max - n, "%s%u", i ? "," : "",
				      FIRST_ID + (u32)(keep_mix(keep_mix(q->seed) + i) %
						       NR_IDS));
	snprintf(body + n, max - n, "]}");
	return body;
}

static u64 hash(u64 h, const char *text)
{
	while (text && *text)
		h = keep_mix(h ^ (u8)*text++);
	return h;
}

/* Take the text of an answer or event, and its usage if that is there. */
static void take(const json_t *v, struct keep_answer *a)
{
	const json_t *choice = json_array_get(json_object_get(v, "choices"), 0);
	const json_t *usage = json_object_get(v, "usage");
	const json_t *details = json_object_get(usage, "prompt_tokens_details");

	a->text = hash(a->text,
		       json_string_value(json_object_get(choice, "text")));
	if (details)
		a->cached = (u32)json_integer_value(
			json_object_get(details, "cached_tokens"));
}

void keep_ask(const struct keep_ask *q, struct keep_answer *a)
{
	char *body = make_body(q, false);
	const u64 start = bench_now();
	json_t *v = web_json(q->port, PATH, body, 200);

	memset(a, 0, sizeof(*a));
	a->ns = bench_now() - start;
	if (!v)
		bench_die("kvrt on port %u has no answer", q->port);
	take(v, a);
	json_decref(v);
	free(body);
}

void keep_stream(const struct keep_ask *q, struct keep_answer *a)
{
	char *body = make_body(q, true), *event;
	const u64 start = bench_now();
	struct web w;
	json_t *v;

	memset(a, 0, sizeof(*a));
	web_open(&w, q->port);
	w.wait_ms = 120000;
	if (!web_post(&w, PATH, body) || web_status(&w) != 200)
		bench_die("kvrt on port %u has no stream", q->port);
	while ((event = web_event(&w))) {
		if (!a->first)
			a->first = bench_now() - start;
		v = json_loads(event, 0, NULL);
		take(v, a);
		json_decref(v);
		free(event);
	}
	a->ns = bench_now() - start;
	if (!a->first)
		bench_die("kvrt on port %u has no token", q->port);
	web_close(&w);
	free(body);
}
