// SPDX-License-Identifier: Apache-2.0
/*
 * it_serve.c - kvrt serve to honest clients
 *
 * budget: 60 s, full 200 s
 *
 * An ordinary client of the OpenAI API must get: answers and streams with the
 * same text, the text that kvrt generate writes for the same seed, counted
 * tokens, stop strings that never show, errors that name the field.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/integration/serve.h"

#define LETTER	"My dear Watson, said Sherlock Holmes, as we sat on either side of the fire in his lodgings at Baker Street,"

static struct rig rig;
static struct served server;

static void setup(void)
{
	rig_start(&rig, "--pool-size", "32M", "--extent-size", "512K", NULL);
	serve_start(&server, &rig, "--mode", "exact", NULL);
	serve_await(&server, 200, 30);
}

static void teardown(void)
{
	serve_await_idle(&server, 2000);
	rig_walk(&rig);
	serve_stop(&server);
	rig_stop(&rig);
}

static json_t *chat(const char *body)
{
	json_t *v = web_json(server.port, "/v1/chat/completions", body, 200);

	ck_assert_ptr_nonnull(v);
	return v;
}

static const char *text_at(json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s ? s : "";
}

/* ---- small questions ---- */

START_TEST(test_small_questions)
{
	json_t *v, *m;
	char *text = NULL;

	v = web_json(server.port, "/v1/models", NULL, 200);
	m = json_array_get(json_object_get(v, "data"), 0);
	ck_assert_str_eq(text_at(m, "id"), "demo-model");
	ck_assert_str_eq(text_at(m, "object"), "model");
	ck_assert_int_eq(json_integer_value(json_object_get(m, "max_model_len")),
			 1024);
	json_decref(v);
	v = web_json(server.port, "/v1/models/demo-model", NULL, 200);
	ck_assert_str_eq(text_at(v, "id"), "demo-model");
	json_decref(v);
	v = web_json(server.port, "/v1/models/nobody", NULL, 404);
	ck_assert_str_eq(text_at(json_object_get(v, "error"), "code"),
			 "model_not_found");
	json_decref(v);
	v = web_json(server.port, "/version", NULL, 200);
	ck_assert(json_string_length(json_object_get(v, "version")) > 0);
	json_decref(v);
	json_decref(web_json(server.port, "/health", NULL, 200));
	ck_assert_int_eq(web_ask(server.port, "/nowhere", NULL, NULL), 404);
	ck_assert_int_eq(web_ask(server.port, "/v1/models", "{}", NULL), 405);
	ck_assert_int_eq(web_ask(server.port, "/v1/completions", NULL, NULL), 405);
	ck_assert_int_eq(web_ask(server.port, "/metrics", NULL, &text), 200);
	ck_assert_ptr_nonnull(strstr(text, "# TYPE kvrt_num_requests_running gauge\n"));
	ck_assert_ptr_nonnull(strstr(text, ",block_size=\"16\",num_gpu_blocks=\""));
	ck_assert_ptr_null(strstr(text, "num_gpu_blocks=\"0\""));
	free(text);
}
END_TEST

/* Three requests in one packet; the connection stays open. */
START_TEST(test_pipelining)
{
	struct web w;
	char *text;
	u32 i;

	web_open(&w, server.port);
	ck_assert(web_puts(&w, "GET /health HTTP/1.1\r\nHost: a\r\n\r\n"
			       "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 29\r\n\r\n"
			       "{\"prompt\":\"a\",\"max_tokens\":2}"
			       "GET /version HTTP/1.1\r\nHost: a\r\nX-Request-Id: q-7\r\n\r\n"));
	for (i = 0; i < 3; i++) {
		ck_assert_int_eq(web_status(&w), 200);
		ck_assert(!web_header(&w, "Connection"));
		text = web_body(&w);
		ck_assert_ptr_nonnull(text);
		ck_assert_msg(strstr(text, i == 0 ? "ok" : i == 1 ?
				     "text_completion" : "version") != NULL,
			      "%u: %s", i, text);
		free(text);
	}
	ck_assert_str_eq(web_header(&w, "X-Request-Id"), "q-7");
	ck_assert(web_get(&w, "/health"));
	ck_assert_int_eq(web_status(&w), 200);
	web_close(&w);
}
END_TEST

START_TEST(test_old_http)
{
	struct web w;
	char *text;

	web_open(&w, server.port);
	ck_assert(web_puts(&w, "POST /v1/completions HTTP/1.0\r\nContent-Length: 43\r\n\r\n"
			       "{\"prompt\":\"a\",\"max_tokens\":2,\"stream\":true}"));
	ck_assert_int_eq(web_status(&w), 200);
	ck_assert(!web_header(&w, "Transfer-Encoding"));
	text = web_body(&w);
	ck_assert_ptr_nonnull(text);
	ck_assert_ptr_nonnull(strstr(text, "data: [DONE]"));
	free(text);
	ck_assert(web_closed(&w));
	web_close(&w);
}
END_TEST

/* ---- answers ---- */

START_TEST(test_completion)
{
	json_t *v = complete(&server, "{\"model\":\"demo-model\",\"prompt\":\"In the beginning\",\"max_tokens\":8,\"seed\":3}");
	json_t *c = choice(v, 0);

	ck_assert(!strncmp(text_at(v, "id"), "cmpl-", 5));
	ck_assert_str_eq(text_at(v, "object"), "text_completion");
	ck_assert_str_eq(text_at(v, "model"), "demo-model");
	ck_assert_int_gt(json_integer_value(json_object_get(v, "created")), 0);
	ck_assert(json_is_null(json_object_get(c, "logprobs")));
	ck_assert_str_eq(text_at(c, "finish_reason"), "length");
	ck_assert(strlen(choice_text(v, 0)) > 4);
	ck_assert_int_eq(usage(v, "prompt_tokens"), 4);
	ck_assert_int_eq(usage(v, "completion_tokens"), 8);
	ck_assert_int_eq(usage(v, "total_tokens"), 12);
	json_decref(v);
}
END_TEST

/* A prompt seen before is not computed again, and the usage says so. */
START_TEST(test_cached_tokens)
{
	static const char body[] = "{\"prompt\":\"" LETTER "\",\"max_tokens\":4,\"temperature\":0}";
	json_t *first = complete(&server, body);
	json_t *second = complete(&server, body);
	json_t *salted = complete(&server, "{\"prompt\":\"" LETTER "\",\"max_tokens\":4,\"temperature\":0,\"cache_salt\":\"mine\"}");

	ck_assert_int_eq(usage(first, "cached_tokens"), 0);
	ck_assert_int_ge(usage(second, "cached_tokens"), 16);
	ck_assert_int_eq(usage(second, "cached_tokens") % 16, 0);
	ck_assert_int_eq(usage(salted, "cached_tokens"), 0);
	ck_assert_str_eq(choice_text(first, 0), choice_text(second, 0));
	ck_assert_str_eq(choice_text(first, 0), choice_text(salted, 0));
	json_decref(first);
	json_decref(second);
	json_decref(salted);
}
END_TEST

START_TEST(test_many_prompts)
{
	json_t *v = complete(&server, "{\"prompt\":[\"In the beginning\",\"The kitten\"],\"n\":2,\"max_tokens\":6,\"seed\":5,\"echo\":true}");
	json_t *one = complete(&server, "{\"prompt\":\"The kitten\",\"n\":2,\"max_tokens\":6,\"seed\":5}");
	char want[256];

	ck_assert_uint_eq(json_array_size(json_object_get(v, "choices")), 4);
	ck_assert(!strncmp(choice_text(v, 0), "In the beginning", 16));
	snprintf(want, sizeof(want), "The kitten%s", choice_text(one, 1));
	ck_assert_str_eq(choice_text(v, 3), want);
	ck_assert_int_eq(usage(v, "completion_tokens"), 24);
	json_decref(v);
	json_decref(one);
}
END_TEST

START_TEST(test_chat)
{
	json_t *v = chat("{\"messages\":[{\"role\":\"system\",\"content\":\" Be brief. \"},{\"role\":\"user\",\"content\":\"Hello\"}],\"max_tokens\":6,\"seed\":1}");
	json_t *same = complete(&server, "{\"prompt\":\"Be brief.\\n\\nHello\\n\\n\",\"max_tokens\":6,\"seed\":1}");
	json_t *message = json_object_get(choice(v, 0), "message");

	ck_assert_str_eq(text_at(v, "object"), "chat.completion");
	ck_assert(!strncmp(text_at(v, "id"), "chatcmpl-", 9));
	ck_assert_str_eq(text_at(message, "role"), "assistant");
	ck_assert(json_is_null(json_object_get(message, "refusal")));
	ck_assert_str_eq(choice_text(v, 0), choice_text(same, 0));
	ck_assert_int_eq(usage(v, "prompt_tokens"), usage(same, "prompt_tokens"));
	json_decref(v);
	json_decref(same);
}
END_TEST

/* ---- streams ---- */

/* The chunks of a stream, joined. */
struct stream {
	char	text[8][8192];
	u32	chunks[8];
	u32	ends[8];
	u32	roles[8];
	u32	done;
	u32	nulls;		/* chunks with "usage": null */
	json_t	*usage;		/* the chunk with the usage */
};

static void stream_chunk(struct stream *s, json_t *v)
{
	json_t *c = json_array_get(json_object_get(v, "choices"), 0), *delta;
	const char *text;
	size_t i;

	s->nulls += json_is_null(json_object_get(v, "usage"));
	if (!c) {
		ck_assert_ptr_null(s->usage);
		s->usage = json_incref(v);
		return;
	}
	i = (size_t)json_integer_value(json_object_get(c, "index"));
	ck_assert_uint_lt(i, 8);
	ck_assert_uint_eq(s->ends[i], 0);
	delta = json_object_get(c, "delta");
	text = text_at(delta ? delta : c, delta ? "content" : "text");
	ck_assert_uint_lt(strlen(s->text[i]) + strlen(text), 8192);
	strcat(s->text[i], text);
	s->chunks[i]++;
	s->roles[i] += json_object_get(delta, "role") != NULL;
	s->ends[i] += json_is_string(json_object_get(c, "finish_reason"));
}

static void stream_read(struct stream *s, const char *path, const char *body)
{
	char *event, id[64] = "";
	struct web w;
	json_t *v;

	memset(s, 0, sizeof(*s));
	web_open(&w, server.port);
	ck_assert(web_post(&w, path, body));
	ck_assert_int_eq(web_status(&w), 200);
	ck_assert(!strncmp(web_header(&w, "Content-Type"), "text/event-stream", 17));
	while ((event = web_event(&w))) {
		ck_assert_uint_eq(s->done, 0);
		if (!strcmp(event, "[DONE]")) {
			s->done++;
			free(event);
			continue;
		}
		v = json_loads(event, 0, NULL);
		ck_assert_msg(v != NULL, "no JSON: %s", event);
		ck_assert_msg(!json_object_get(v, "error"), "%s", event);
		if (!*id)
			snprintf(id, sizeof(id), "%s", text_at(v, "id"));
		ck_assert_str_eq(text_at(v, "id"), id);
		stream_chunk(s, v);
		json_decref(v);
		free(event);
	}
	ck_assert(w.over);
	ck_assert_uint_eq(s->done, 1);
	web_close(&w);
}

START_TEST(test_stream)
{
	static const char ask[] = "\"prompt\":\"In the beginning\",\"max_tokens\":160,\"ignore_eos\":true,\"n\":2,\"seed\":11";
	struct stream *s = calloc(1, sizeof(*s));
	char body[512];
	json_t *v;
	u32 i;

	ck_assert_ptr_nonnull(s);
	snprintf(body, sizeof(body), "{%s}", ask);
	v = complete(&server, body);
	snprintf(body, sizeof(body), "{%s,\"stream\":true,\"stream_options\":{\"include_usage\":true}}", ask);
	stream_read(s, "/v1/completions", body);
	for (i = 0; i < 2; i++) {
		ck_assert_str_eq(s->text[i], choice_text(v, i));
		ck_assert_uint_eq(s->ends[i], 1);
		/* A chunk a token, though a busy machine may join some. */
		ck_assert_uint_ge(s->chunks[i], 10);
	}
	ck_assert_str_ne(s->text[0], s->text[1]);
	ck_assert_ptr_nonnull(s->usage);
	ck_assert_uint_eq(s->nulls, s->chunks[0] + s->chunks[1]);
	ck_assert_int_eq(usage(s->usage, "completion_tokens"), 320);
	json_decref(s->usage);
	json_decref(v);
	free(s);
}
END_TEST

START_TEST(test_stream_of_chat)
{
	static const char ask[] = "\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}],\"max_tokens\":20,\"n\":3,\"seed\":2";
	struct stream *s = calloc(1, sizeof(*s));
	char body[512];
	json_t *v;
	u32 i;

	ck_assert_ptr_nonnull(s);
	snprintf(body, sizeof(body), "{%s}", ask);
	v = chat(body);
	snprintf(body, sizeof(body), "{%s,\"stream\":true}", ask);
	stream_read(s, "/v1/chat/completions", body);
	for (i = 0; i < 3; i++) {
		ck_assert_str_eq(s->text[i], choice_text(v, i));
		ck_assert_uint_eq(s->ends[i], 1);
		ck_assert_uint_eq(s->roles[i], 1);
	}
	ck_assert_ptr_null(s->usage);
	json_decref(v);
	free(s);
}
END_TEST

/* The first event arrives long before the last token. */
START_TEST(test_stream_comes_as_it_is_made)
{
	u64 begin = now_ms(), first, all;
	struct web w;
	char *event;

	web_open(&w, server.port);
	ck_assert(web_post(&w, "/v1/completions", "{\"prompt\":\"In\",\"max_tokens\":600,\"ignore_eos\":true,\"stream\":true}"));
	ck_assert_int_eq(web_status(&w), 200);
	event = web_event(&w);
	first = now_ms() - begin;
	for (; event; event = web_event(&w))
		free(event);
	all = now_ms() - begin;
	ck_assert_msg(first * 3 < all, "first after %llu ms of %llu",
		      (unsigned long long)first, (unsigned long long)all);
	web_close(&w);
}
END_TEST

/* ---- stop strings ---- */

/* A piece from the middle of @text, longer than a token.  Return: its place. */
static size_t middle(const char *text, char *out, size_t n)
{
	size_t at = strlen(text) / 2;

	/* The first occurrence of the piece counts. */
	snprintf(out, n, "%.*s", (int)n - 1, text + at);
	ck_assert(strlen(out) == n - 1);
	return (size_t)(strstr(text, out) - text);
}

static void write_body(char *body, size_t n, const json_t *v)
{
	char *text = json_dumps(v, 0);

	ck_assert_ptr_nonnull(text);
	ck_assert_uint_lt((size_t)snprintf(body, n, "%s", text), n);
	free(text);
}

START_TEST(test_stop_strings)
{
	static const char ask[] = "\"prompt\":\"In the beginning\",\"max_tokens\":60,\"seed\":21,\"ignore_eos\":true";
	struct stream *s = calloc(1, sizeof(*s));
	json_t *whole, *cut, *body_v;
	char body[512], stop[9], *want;
	size_t at;

	ck_assert_ptr_nonnull(s);
	snprintf(body, sizeof(body), "{%s}", ask);
	whole = complete(&server, body);
	at = middle(choice_text(whole, 0), stop, sizeof(stop));
	want = strndup(choice_text(whole, 0), at);

	body_v = json_loads(body, 0, NULL);
	json_object_set_new(body_v, "stop", json_pack("[ss]", "no such text", stop));
	write_body(body, sizeof(body), body_v);
	cut = complete(&server, body);
	ck_assert_str_eq(choice_text(cut, 0), want);
	ck_assert_str_eq(text_at(choice(cut, 0), "finish_reason"), "stop");
	ck_assert_str_eq(text_at(choice(cut, 0), "stop_reason"), stop);
	ck_assert_int_lt(usage(cut, "completion_tokens"), 60);
	ck_assert_int_gt(usage(cut, "completion_tokens"), 0);

	json_object_set_new(body_v, "stream", json_true());
	json_object_set_new(body_v, "include_stop_str_in_output", json_true());
	write_body(body, sizeof(body), body_v);
	stream_read(s, "/v1/completions", body);
	ck_assert_uint_eq(strlen(s->text[0]), at + strlen(stop));
	ck_assert(!strncmp(s->text[0], choice_text(whole, 0), at + strlen(stop)));
	json_decref(whole);
	json_decref(cut);
	json_decref(body_v);
	free(want);
	free(s);
}
END_TEST

/* One sample stops; the others of its request go on to their end. */
START_TEST(test_stop_of_one_sample)
{
	static const char ask[] = "\"prompt\":\"In the beginning\",\"max_tokens\":50,\"n\":3,\"seed\":31,\"ignore_eos\":true";
	json_t *whole, *cut, *body_v;
	char body[512], stop[9];
	u32 i, stopped = 0;

	snprintf(body, sizeof(body), "{%s}", ask);
	whole = complete(&server, body);
	middle(choice_text(whole, 1), stop, sizeof(stop));
	body_v = json_loads(body, 0, NULL);
	json_object_set_new(body_v, "stop", json_string(stop));
	write_body(body, sizeof(body), body_v);
	cut = complete(&server, body);
	for (i = 0; i < 3; i++) {
		const char *text = choice_text(whole, i);
		const char *at = strstr(text, stop);
		size_t n = at ? (size_t)(at - text) : strlen(text);

		ck_assert_uint_eq(strlen(choice_text(cut, i)), n);
		ck_assert(!strncmp(choice_text(cut, i), text, n));
		ck_assert_str_eq(text_at(choice(cut, i), "finish_reason"),
				 at ? "stop" : "length");
		stopped += at != NULL;
	}
	ck_assert_uint_ge(stopped, 1);
	json_decref(whole);
	json_decref(cut);
	json_decref(body_v);
}
END_TEST

/* Tokens behind a stop string are not generated either. */
START_TEST(test_stop_saves_work)
{
	const double before = serve_figure(&server, "kvrt_engine_generated_tokens_total");
	json_t *v = complete(&server, "{\"prompt\":\"In the beginning\",\"max_tokens\":900,\"ignore_eos\":true,\"stop\":[\"e\",\"a\",\"i\",\"o\"]}");

	ck_assert_str_eq(text_at(choice(v, 0), "finish_reason"), "stop");
	ck_assert(serve_figure(&server, "kvrt_engine_generated_tokens_total") <
		  before + 400);
	json_decref(v);
}
END_TEST

START_TEST(test_stop_ids)
{
	json_t *whole = complete(&server, "{\"prompt\":\"In the beginning\",\"max_tokens\":30,\"temperature\":0,\"return_token_ids\":true}");
	json_t *ids = json_object_get(choice(whole, 0), "token_ids"), *cut;
	json_int_t id = json_integer_value(json_array_get(ids, 12));
	char body[256];
	size_t i;

	ck_assert_uint_eq(json_array_size(ids), 30);
	ck_assert_uint_eq(json_array_size(json_object_get(choice(whole, 0), "prompt_token_ids")), 4);
	for (i = 0; json_integer_value(json_array_get(ids, i)) != id; i++)
		;
	snprintf(body, sizeof(body), "{\"prompt\":\"In the beginning\",\"max_tokens\":30,\"temperature\":0,\"return_token_ids\":true,\"stop_token_ids\":[%lld]}", (long long)id);
	cut = complete(&server, body);
	ck_assert_uint_eq(json_array_size(json_object_get(choice(cut, 0), "token_ids")), i);
	ck_assert_int_eq(json_integer_value(json_object_get(choice(cut, 0), "stop_reason")), id);
	json_decref(whole);
	json_decref(cut);
}
END_TEST

/* ---- the seed law ---- */

static void same_ids(const struct samples *all, json_t *answer, u32 n)
{
	size_t i;
	u32 k;

	ck_assert_uint_eq(all->nr, n);
	for (k = 0; k < n; k++) {
		const struct sample *s = &all->s[k];
		json_t *ids = json_object_get(choice(answer, s->sample - 1),
					      "token_ids");

		ck_assert_uint_eq(json_array_size(ids), s->nr_ids);
		for (i = 0; i < s->nr_ids; i++)
			ck_assert_int_eq(json_integer_value(json_array_get(ids, i)),
					 s->ids[i]);
		ck_assert_str_eq(text_at(choice(answer, s->sample - 1),
					 "finish_reason"), s->reason);
	}
}

/* Same seed, same text: over HTTP beside other requests, and by kvrt generate alone. */
START_TEST(test_seed_law)
{
	struct samples all;
	struct web other;
	struct job j;
	json_t *v;

	web_open(&other, server.port);
	ck_assert(web_post(&other, "/v1/completions", "{\"prompt\":\"The kitten\",\"n\":4,\"max_tokens\":400,\"ignore_eos\":true,\"stream\":true}"));
	ck_assert_int_eq(web_status(&other), 200);
	v = complete(&server, "{\"prompt\":\"" LETTER "\",\"max_tokens\":60,\"n\":3,\"seed\":77,\"return_token_ids\":true}");
	web_close(&other);
	j = job_start(&rig, KVRT_GENERATE, demo_model(), "--mode", "exact",
		      "--threads", "1", "--seed", "77", "-n", "3",
		      "--max-tokens", "60", "--json", "--quiet", LETTER, NULL);
	ck_assert_int_eq(job_wait(&j, 60), 0);
	samples_read(&all, j.out);
	same_ids(&all, v, 3);
	samples_free(&all);
	json_decref(v);
}
END_TEST

/* ---- refusals ---- */

static const struct {
	const char	*path;
	const char	*body;
	int		status;
	const char	*param;
} refusals[] = {
	{ "/v1/completions", "{\"prompt\":\"a\",\"frequency_penalty\":2.5}", 400, "frequency_penalty" },
	{ "/v1/completions", "{\"prompt\":\"a\",\"logprobs\":21}", 400, "logprobs" },
	{ "/v1/completions", "{\"prompt\":\"a\",\"no_such_field\":3}", 400, "no_such_field" },
	{ "/v1/chat/completions", "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":[{\"type\":\"function\"}]}", 400, "tools" },
	{ "/v1/chat/completions", "{\"messages\":[]}", 400, "messages" },
	{ "/v1/completions", "{\"prompt\":\"a\",\"model\":\"gpt-99\"}", 404, "model" },
	{ "/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":5000}", 400, "max_tokens" },
	{ "/v1/completions", "{\"prompt\":\"a\",\"stop\":[\"a\",\"b\",\"c\",\"d\",\"e\"]}", 400, "stop" },
	{ "/v1/completions", "{\"prompt\":\"a\",\"stream\":true,\"top_p\":7}", 400, "top_p" },
	{ "/v1/completions", "{\"prompt\":\"a\",\"allowed_token_ids\":[7],\"logit_bias\":{\"9\":1},\"stop_token_ids\":[7],\"min_tokens\":2}", 400, NULL },
	{ "/v1/completions", "{\"max_tokens\":1}", 400, "prompt" },
	{ "/v1/completions", "{\"prompt\":\"a\"", 400, NULL },
	{ "/v1/completions", "what?", 400, NULL },
	{ "/v1/completions", "", 400, NULL },
};

START_TEST(test_refusals)
{
	const u32 errors = serve_ended(&server, "error");
	u32 i;

	for (i = 0; i < ARRAY_SIZE(refusals); i++)
		refused(&server, refusals[i].path, refusals[i].body,
			refusals[i].status, refusals[i].param);
	/* Mistakes of clients do not count as errors of the server. */
	ck_assert_uint_eq(serve_ended(&server, "error"), errors);
}
END_TEST

/* A request needs more memory than the pool has: the daemon refuses it. */
START_TEST(test_never_fits)
{
	struct served small;
	struct job j;
	json_t *v;

	serve_start(&small, &rig, "--domain", "small", "--mode", "exact", NULL);
	serve_await(&small, 200, 30);
	/* The operator lowers it later: a start with so little is refused. */
	j = job_start(&rig, "kvctl", "set", "domain/small/memory.max", "512K", NULL);
	ck_assert_int_eq(job_wait(&j, 30), 0);
	v = web_json(small.port, "/v1/completions",
		     "{\"prompt\":\"a\",\"max_tokens\":900,\"stream\":true}", 400);
	ck_assert_ptr_nonnull(v);
	ck_assert_ptr_nonnull(strstr(text_at(json_object_get(v, "error"), "message"), "memory"));
	json_decref(v);
	v = complete(&small, "{\"prompt\":\"a\",\"max_tokens\":8}");
	json_decref(v);
	ck_assert_uint_eq(serve_ended(&small, "error"), 0);
	ck_assert_uint_eq(serve_ended(&small, "length"), 1);
	serve_stop(&small);
}
END_TEST

START_TEST(test_api_key)
{
	struct served s;
	struct web w;

	serve_start(&s, &rig, "--mode", "exact", "--api-key", "sk-secret",
		    "--served-model-name", "bob", NULL);
	serve_await(&s, 200, 30);
	ck_assert_int_eq(web_ask(s.port, "/v1/models", NULL, NULL), 401);
	ck_assert_int_eq(web_ask(s.port, "/v1/completions", "{\"prompt\":\"a\"}", NULL), 401);
	ck_assert_int_eq(web_ask(s.port, "/health", NULL, NULL), 200);
	web_open(&w, s.port);
	ck_assert(web_puts(&w, "GET /v1/models HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer sk-secreT\r\n\r\n"));
	ck_assert_int_eq(web_status(&w), 401);
	free(web_body(&w));
	ck_assert(web_puts(&w, "GET /v1/models/bob HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer sk-secret\r\n\r\n"));
	ck_assert_int_eq(web_status(&w), 200);
	web_close(&w);
	serve_stop(&s);
}
END_TEST

static void add_tests(TCase *tc)
{
	tcase_add_test(tc, test_small_questions);
	tcase_add_test(tc, test_pipelining);
	tcase_add_test(tc, test_old_http);
	tcase_add_test(tc, test_completion);
	tcase_add_test(tc, test_cached_tokens);
	tcase_add_test(tc, test_many_prompts);
	tcase_add_test(tc, test_chat);
	tcase_add_test(tc, test_stream);
	tcase_add_test(tc, test_stream_of_chat);
	tcase_add_test(tc, test_stream_comes_as_it_is_made);
	tcase_add_test(tc, test_stop_strings);
	tcase_add_test(tc, test_stop_of_one_sample);
	tcase_add_test(tc, test_stop_saves_work);
	tcase_add_test(tc, test_stop_ids);
	tcase_add_test(tc, test_seed_law);
	tcase_add_test(tc, test_refusals);
	tcase_add_test(tc, test_never_fits);
	tcase_add_test(tc, test_api_key);
}

int main(void)
{
	Suite *s = suite_create("serve");
	TCase *tc = tcase_create("api");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 120);
	tcase_add_checked_fixture(tc, setup, teardown);
	add_tests(tc);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
