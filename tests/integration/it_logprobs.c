// SPDX-License-Identifier: Apache-2.0
/*
 * it_logprobs.c - kvrt serve: logprobs, and fields that restrict drawing
 *
 * budget: 30 s, full 60 s
 *
 * Answers with logprobs have OpenAI's form in every kind of answer, and a
 * stream has the same content as a complete answer.  The server runs in exact
 * mode: a text generated with logprobs and then scored as a prompt must get the
 * same numbers, to the last bit, from other batches and chunks, cached or not.
 * Fields that restrict the tokens to draw must take effect.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/integration/serve.h"

#define LONG	"My dear Watson, said Sherlock Holmes, as we sat on either side of the fire in his lodgings at Baker Street, life is infinitely stranger than anything which the mind of man could invent. "

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

/* A list in choice @i's logprobs, which must have @nr entries. */
static json_t *list_of(json_t *answer, size_t i, const char *name, size_t nr)
{
	json_t *lp = json_object_get(choice(answer, i), "logprobs");
	json_t *list = json_object_get(lp, name);

	ck_assert_msg(json_array_size(list) == nr, "%s has %zu entries, not %zu",
		      name, json_array_size(list), nr);
	return list;
}

static double number_at(json_t *list, size_t i)
{
	json_t *v = json_array_get(list, i);

	ck_assert(json_is_number(v));
	return json_number_value(v);
}

/* ---- completions ---- */

/* The tokens together are the text, and each begins at the end of the previous one. */
static void check_tokens(json_t *v, size_t i, size_t nr)
{
	json_t *tokens = list_of(v, i, "tokens", nr);
	json_t *offsets = list_of(v, i, "text_offset", nr);
	char all[4096] = "";
	size_t k;

	for (k = 0; k < nr; k++) {
		const char *token = json_string_value(json_array_get(tokens, k));

		ck_assert_int_eq(json_integer_value(json_array_get(offsets, k)),
				 (json_int_t)strlen(all));
		/* Special tokens are listed, but are not in the text. */
		if (strcmp(token, "<|endoftext|>"))
			strcat(all, token);
	}
	ck_assert_str_eq(all, choice_text(v, i));
}

/*
 * Each object has the token and the @k likeliest ones; their numbers must be
 * consistent.
 */
static void check_tops(json_t *v, size_t i, size_t nr, size_t k, bool greedy)
{
	json_t *tokens = list_of(v, i, "tokens", nr);
	json_t *own = list_of(v, i, "token_logprobs", nr);
	json_t *tops = list_of(v, i, "top_logprobs", nr);
	const char *name;
	json_t *o, *lp;
	size_t at;

	for (at = 0; at < nr; at++) {
		const char *token = json_string_value(json_array_get(tokens, at));
		double best = -INFINITY, sum = 0;

		if (json_is_null(json_array_get(own, at))) {
			ck_assert_uint_eq(at, 0);
			ck_assert(json_is_null(json_array_get(tops, 0)));
			continue;
		}
		o = json_array_get(tops, at);
		ck_assert_uint_ge(json_object_size(o), k);
		ck_assert_uint_le(json_object_size(o), k + 1);
		json_object_foreach(o, name, lp) {
			best = fmax(best, json_number_value(lp));
			sum += exp(json_number_value(lp));
		}
		ck_assert(json_number_value(json_object_get(o, token)) ==
			  number_at(own, at));
		ck_assert_double_le(sum, 1 + 1e-5);
		ck_assert(!greedy || number_at(own, at) == best);
	}
}

START_TEST(test_completion)
{
	json_t *v = complete(&server, "{\"prompt\":\"In the beginning\",\"max_tokens\":20,\"n\":2,\"seed\":4,\"logprobs\":5,\"ignore_eos\":true}");
	json_t *g = complete(&server, "{\"prompt\":\"In the beginning\",\"max_tokens\":20,\"temperature\":0,\"logprobs\":3,\"ignore_eos\":true}");
	json_t *z = complete(&server, "{\"prompt\":\"In the beginning\",\"max_tokens\":5,\"logprobs\":0,\"ignore_eos\":true}");
	size_t i;

	for (i = 0; i < 2; i++) {
		check_tokens(v, i, 20);
		check_tops(v, i, 20, 5, false);
	}
	check_tokens(g, 0, 20);
	check_tops(g, 0, 20, 3, true);
	check_tops(z, 0, 5, 1, true);
	json_decref(v);
	json_decref(g);
	json_decref(z);
}
END_TEST

/* Tokens that are parts of characters; tokens named by their ids. */
START_TEST(test_token_names)
{
	json_t *v = complete(&server, "{\"prompt\":\"a\",\"max_tokens\":3,\"logprobs\":2,\"return_tokens_as_token_ids\":true,\"return_token_ids\":true,\"ignore_eos\":true}");
	json_t *tokens = list_of(v, 0, "tokens", 3);
	json_t *ids = json_object_get(choice(v, 0), "token_ids");
	char want[32];
	size_t i;

	for (i = 0; i < 3; i++) {
		snprintf(want, sizeof(want), "token_id:%lld",
			 json_integer_value(json_array_get(ids, i)));
		ck_assert_str_eq(json_string_value(json_array_get(tokens, i)),
				 want);
	}
	check_tops(v, 0, 3, 2, false);
	json_decref(v);
}
END_TEST

/* The request names the tokens that take the place of the likeliest ones. */
START_TEST(test_chosen_tokens)
{
	static const char ask[] = "\"max_tokens\":4,\"logprob_token_ids\":[301,7,300],\"return_tokens_as_token_ids\":true,\"ignore_eos\":true,\"logprobs\":";
	json_t *v, *o;
	char body[512];
	size_t i;

	snprintf(body, sizeof(body), "{\"prompt\":\"In the\",%s1}", ask);
	v = complete(&server, body);
	for (i = 0; i < 4; i++) {
		o = json_array_get(list_of(v, 0, "top_logprobs", 4), i);
		ck_assert_ptr_nonnull(json_object_get(o, "token_id:301"));
		ck_assert_ptr_nonnull(json_object_get(o, "token_id:7"));
		ck_assert_ptr_nonnull(json_object_get(o, "token_id:300"));
		ck_assert_uint_le(json_object_size(o), 4);
	}
	json_decref(v);
	snprintf(body, sizeof(body), "{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}],%strue}", ask);
	v = chat(body);
	o = json_object_get(json_array_get(list_of(v, 0, "content", 4), 3),
			    "top_logprobs");
	ck_assert_uint_eq(json_array_size(o), 3);
	ck_assert_str_eq(text_at(json_array_get(o, 0), "token"), "token_id:301");
	ck_assert_str_eq(text_at(json_array_get(o, 1), "token"), "token_id:7");
	json_decref(v);
}
END_TEST

/* The likeliest tokens after @id, as an object. */
static json_t *top_after(u32 id)
{
	char body[128], *text = NULL;
	json_t *v, *o;

	snprintf(body, sizeof(body), "{\"prompt\":[%u],\"max_tokens\":1,\"logprobs\":20,\"ignore_eos\":true}", id);
	ck_assert_int_eq(web_ask(server.port, "/v1/completions", body, &text), 200);
	v = json_loads(strchr(text, '{'), JSON_REJECT_DUPLICATES, NULL);
	ck_assert_msg(v != NULL, "%s", text);
	o = json_incref(json_array_get(list_of(v, 0, "top_logprobs", 1), 0));
	json_decref(v);
	free(text);
	return o;
}

/*
 * Tokens that are parts of characters have the same name.  An object has no
 * name twice, so it gets shorter.  Such tokens are likely after each other.
 */
START_TEST(test_names_that_look_alike)
{
	u32 id, shorter = 0;
	json_t *o;

	for (id = 128; id < 256; id++) {
		o = top_after(id);
		ck_assert_uint_le(json_object_size(o), 21);
		if (json_object_size(o) < 20) {
			ck_assert_ptr_nonnull(json_object_get(o, "\xef\xbf\xbd"));
			shorter++;
		}
		json_decref(o);
	}
	ck_assert_uint_gt(shorter, 0);
}
END_TEST

/* Join the lists for choice @i from all events of a stream. */
static json_t *stream_lists(const char *body, json_int_t i, u32 *events)
{
	static const char * const names[] = { "tokens", "token_logprobs",
					      "top_logprobs", "text_offset" };
	json_t *all = json_object(), *v, *c, *lp, *list;
	struct web w;
	char *event;
	size_t k;

	for (k = 0; k < ARRAY_SIZE(names); k++)
		json_object_set_new(all, names[k], json_array());
	web_open(&w, server.port);
	ck_assert(web_post(&w, "/v1/completions", body));
	ck_assert_int_eq(web_status(&w), 200);
	*events = 0;
	while ((event = web_event(&w))) {
		v = json_loads(event, JSON_REJECT_DUPLICATES, NULL);
		ck_assert(v || !strcmp(event, "[DONE]"));
		free(event);
		if (!v)
			continue;
		c = json_array_get(json_object_get(v, "choices"), 0);
		lp = json_object_get(c, "logprobs");
		if (json_integer_value(json_object_get(c, "index")) != i)
			lp = NULL;
		for (k = 0; lp && k < ARRAY_SIZE(names); k++) {
			list = json_object_get(lp, names[k]);
			ck_assert(json_is_array(list));
			json_array_extend(json_object_get(all, names[k]), list);
		}
		*events += lp != NULL;
		json_decref(v);
	}
	web_close(&w);
	return all;
}

START_TEST(test_stream)
{
	static const char ask[] = "\"prompt\":\"In the beginning\",\"max_tokens\":40,\"seed\":9,\"logprobs\":4,\"ignore_eos\":true,\"stop\":[\"no such words\"],\"echo\":";
	json_t *whole, *parts;
	char body[512];
	u32 events;

	snprintf(body, sizeof(body), "{%s%s}", ask, _i ? "true" : "false");
	whole = complete(&server, body);
	snprintf(body, sizeof(body), "{%s%s,\"stream\":true}", ask,
		 _i ? "true" : "false");
	parts = stream_lists(body, 0, &events);
	ck_assert_uint_ge(events, 2);
	check_tokens(whole, 0, _i ? 44 : 40);
	ck_assert(json_equal(parts, json_object_get(choice(whole, 0),
						    "logprobs")));
	json_decref(whole);
	json_decref(parts);
}
END_TEST

/* ---- scoring ---- */

/* The ids of @v's first choice as text of JSON, with the prompt's. */
static void ids_text(json_t *v, char *out, size_t n)
{
	json_t *all = json_copy(json_object_get(choice(v, 0),
						"prompt_token_ids"));
	char *text;

	json_array_extend(all, json_object_get(choice(v, 0), "token_ids"));
	text = json_dumps(all, JSON_COMPACT);
	ck_assert_uint_lt((size_t)snprintf(out, n, "%s", text), n);
	free(text);
	json_decref(all);
}

/* Scores of a text equal the logprobs of its generation, bit for bit. */
START_TEST(test_scored_as_generated)
{
	json_t *v = complete(&server, "{\"prompt\":\"In the beginning God created\",\"max_tokens\":150,\"seed\":6,\"logprobs\":3,\"ignore_eos\":true,\"return_token_ids\":true}");
	const size_t prompt = (size_t)usage(v, "prompt_tokens");
	json_t *told = list_of(v, 0, "token_logprobs", 150), *scored, *list;
	json_t *tops = list_of(v, 0, "top_logprobs", 150);
	char ids[2048], body[4096];
	size_t i, round;

	ids_text(v, ids, sizeof(ids));
	snprintf(body, sizeof(body), "{\"prompt\":%s,\"max_tokens\":0,\"echo\":true,\"logprobs\":3}", ids);
	for (round = 0; round < 2; round++) {
		scored = complete(&server, body);
		list = list_of(scored, 0, "token_logprobs", prompt + 150);
		ck_assert(json_is_null(json_array_get(list, 0)));
		for (i = 1; i < prompt; i++)
			ck_assert_double_lt(number_at(list, i), 0);
		for (i = 0; i < 150; i++)
			ck_assert(number_at(list, prompt + i) ==
				  number_at(told, i));
		check_tops(scored, 0, prompt + 150, 3, false);
		list = list_of(scored, 0, "top_logprobs", prompt + 150);
		for (i = 0; i < 150; i++)
			ck_assert(json_equal(json_array_get(list, prompt + i),
					     json_array_get(tops, i)));
		ck_assert_int_eq(usage(scored, "completion_tokens"), 0);
		ck_assert_int_eq(usage(scored, "cached_tokens"), 0);
		ck_assert_str_eq(text_at(choice(scored, 0), "finish_reason"),
				 "length");
		check_tokens(scored, 0, prompt + 150);
		json_decref(scored);
	}
	json_decref(v);
}
END_TEST

/* Score only, also as a stream; a forced end of text must not matter then. */
START_TEST(test_score_only)
{
	json_t *v = complete(&server, "{\"prompt\":[\"In the beginning\",\"a b\"],\"max_tokens\":0,\"echo\":true,\"logit_bias\":{\"0\":100},\"n\":2}");
	json_t *parts, *list;
	u32 events;
	size_t i;

	ck_assert_uint_eq(json_array_size(json_object_get(v, "choices")), 4);
	ck_assert_str_eq(choice_text(v, 1), "In the beginning");
	ck_assert_str_eq(choice_text(v, 2), "a b");
	ck_assert_str_eq(text_at(choice(v, 3), "finish_reason"), "length");
	ck_assert(json_is_null(json_object_get(choice(v, 0), "logprobs")));
	json_decref(v);
	parts = stream_lists("{\"prompt\":\"In the beginning\",\"max_tokens\":0,\"echo\":true,\"logprobs\":1,\"stream\":true}", 0, &events);
	ck_assert_uint_eq(json_array_size(json_object_get(parts, "tokens")), 4);
	ck_assert_uint_eq(events, 2);
	json_decref(parts);
	/* The first prompt is scored long before the second one. */
	parts = stream_lists("{\"prompt\":[\"a b\",\"" LONG LONG LONG LONG LONG "\"],\"max_tokens\":0,\"echo\":true,\"logprobs\":1,\"stream\":true}", 1, &events);
	list = json_object_get(parts, "token_logprobs");
	ck_assert_uint_gt(json_array_size(list), 150);
	for (i = 1; i < json_array_size(list); i++)
		ck_assert_double_lt(number_at(list, i), 0);
	json_decref(parts);
}
END_TEST

/* Check one list of prompt_logprobs. */
static void check_prompt(json_t *list, json_t *ids, size_t k)
{
	const char *id;
	char own[16];
	json_t *o, *one;
	size_t i;

	ck_assert_uint_eq(json_array_size(list), json_array_size(ids));
	ck_assert(json_is_null(json_array_get(list, 0)));
	for (i = 1; i < json_array_size(list); i++) {
		o = json_array_get(list, i);
		snprintf(own, sizeof(own), "%lld",
			 json_integer_value(json_array_get(ids, i)));
		ck_assert_ptr_nonnull(json_object_get(o, own));
		ck_assert_uint_ge(json_object_size(o), k);
		ck_assert_uint_le(json_object_size(o), k + 1);
		json_object_foreach(o, id, one) {
			const json_int_t rank =
				json_integer_value(json_object_get(one, "rank"));

			ck_assert_int_ge(rank, 1);
			ck_assert(rank <= (json_int_t)k || !strcmp(id, own));
			ck_assert(json_is_string(json_object_get(one, "decoded_token")));
			ck_assert_double_le(json_number_value(
				json_object_get(one, "logprob")), 0);
		}
	}
}

START_TEST(test_prompt_logprobs)
{
	json_t *v, *c;
	char body[512];
	u32 round;

	for (round = 0; round < 2; round++) {
		snprintf(body, sizeof(body), "{\"prompt\":\"%s\",\"max_tokens\":2,\"prompt_logprobs\":3,\"return_token_ids\":true}", LONG);
		v = complete(&server, body);
		c = choice(v, 0);
		check_prompt(json_object_get(c, "prompt_logprobs"),
			     json_object_get(c, "prompt_token_ids"), 3);
		ck_assert(json_is_null(json_object_get(c, "logprobs")));
		ck_assert_int_eq(usage(v, "cached_tokens"), 0);
		json_decref(v);
	}
	v = chat("{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}],\"max_tokens\":2,\"prompt_logprobs\":0,\"return_token_ids\":true}");
	check_prompt(json_object_get(v, "prompt_logprobs"),
		     json_object_get(choice(v, 0), "prompt_token_ids"), 0);
	json_decref(v);
}
END_TEST

/* ---- chats ---- */

static void check_object(json_t *o)
{
	json_t *bytes = json_object_get(o, "bytes");
	const char *token = text_at(o, "token");
	size_t i;

	ck_assert(json_is_number(json_object_get(o, "logprob")));
	ck_assert(json_is_array(bytes));
	if (strstr(token, "\xef\xbf\xbd"))
		return;
	ck_assert_uint_eq(json_array_size(bytes), strlen(token));
	for (i = 0; i < strlen(token); i++)
		ck_assert_int_eq(json_integer_value(json_array_get(bytes, i)),
				 (u8)token[i]);
}

START_TEST(test_chat)
{
	static const char ask[] = "\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}],\"max_tokens\":12,\"temperature\":0,\"ignore_eos\":true,\"logprobs\":true";
	json_t *v, *list, *tops;
	char body[512], all[1024] = "";
	double last;
	size_t i, k;

	snprintf(body, sizeof(body), "{%s,\"top_logprobs\":3}", ask);
	v = chat(body);
	list = list_of(v, 0, "content", 12);
	for (i = 0; i < 12; i++) {
		json_t *o = json_array_get(list, i);

		check_object(o);
		strcat(all, text_at(o, "token"));
		tops = json_object_get(o, "top_logprobs");
		ck_assert_uint_eq(json_array_size(tops), 3);
		ck_assert_str_eq(text_at(json_array_get(tops, 0), "token"),
				 text_at(o, "token"));
		for (k = 0, last = 0; k < 3; k++) {
			check_object(json_array_get(tops, k));
			ck_assert_double_le(json_number_value(json_object_get(
				json_array_get(tops, k), "logprob")), last);
			last = json_number_value(json_object_get(
				json_array_get(tops, k), "logprob"));
		}
	}
	ck_assert_str_eq(all, choice_text(v, 0));
	json_decref(v);
	snprintf(body, sizeof(body), "{%s}", ask);
	v = chat(body);
	list = list_of(v, 0, "content", 12);
	ck_assert_uint_eq(json_array_size(json_object_get(
			  json_array_get(list, 0), "top_logprobs")), 0);
	json_decref(v);
}
END_TEST

/* ---- restricted drawing ---- */

static json_t *ids_of(const char *body)
{
	json_t *v = complete(&server, body);
	json_t *ids = json_incref(json_object_get(choice(v, 0), "token_ids"));

	json_decref(v);
	return ids;
}

#define ASK	"{\"prompt\":\"In the beginning\",\"max_tokens\":24,\"seed\":3,\"return_token_ids\":true,"

START_TEST(test_what_may_be_drawn)
{
	json_t *ids, *other, *one;
	char body[512];
	size_t i;

	/* The end of text is forced, and comes as early as allowed. */
	ids = ids_of(ASK "\"logit_bias\":{\"0\":100}}");
	ck_assert_uint_eq(json_array_size(ids), 0);
	json_decref(ids);
	ids = ids_of(ASK "\"logit_bias\":{\"0\":100},\"min_tokens\":7}");
	ck_assert_uint_eq(json_array_size(ids), 7);
	json_decref(ids);
	ids = ids_of(ASK "\"allowed_token_ids\":[300,301,302],\"ignore_eos\":true}");
	ck_assert_uint_eq(json_array_size(ids), 24);
	json_array_foreach(ids, i, one)
		ck_assert(json_integer_value(one) >= 300 &&
			  json_integer_value(one) <= 302);
	json_decref(ids);
	/* A penalty makes repetition less likely. */
	ids = ids_of(ASK "\"allowed_token_ids\":[300,301],\"ignore_eos\":true,\"temperature\":0,\"frequency_penalty\":2}");
	other = ids_of(ASK "\"allowed_token_ids\":[300,301],\"ignore_eos\":true,\"temperature\":0}");
	ck_assert(!json_equal(ids, other));
	json_decref(ids);
	/* The first token is forbidden: another one must come. */
	snprintf(body, sizeof(body), ASK "\"allowed_token_ids\":[300,301],\"ignore_eos\":true,\"temperature\":0,\"logit_bias\":{\"%lld\":-100}}",
		 json_integer_value(json_array_get(other, 0)));
	ids = ids_of(body);
	ck_assert_int_ne(json_integer_value(json_array_get(other, 0)),
			 json_integer_value(json_array_get(ids, 0)));
	json_decref(ids);
	json_decref(other);
}
END_TEST

START_TEST(test_bad_words)
{
	json_t *v = complete(&server, "{\"prompt\":\"In the beginning\",\"max_tokens\":60,\"temperature\":0,\"ignore_eos\":true}");
	char body[512], word[64], *at;
	json_t *w;

	/* The first complete word of the text. */
	at = strchr(choice_text(v, 0), ' ');
	ck_assert_ptr_nonnull(at);
	snprintf(word, sizeof(word), "%.*s", (int)strcspn(at + 1, " ,.;:\n\""),
		 at + 1);
	ck_assert_uint_gt(strlen(word), 0);
	snprintf(body, sizeof(body), "{\"prompt\":\"In the beginning\",\"max_tokens\":60,\"temperature\":0,\"ignore_eos\":true,\"bad_words\":[\"%s\"],\"logprobs\":0}", word);
	w = complete(&server, body);
	ck_assert_str_ne(choice_text(w, 0), choice_text(v, 0));
	json_decref(v);
	json_decref(w);
}
END_TEST

/* Stop strings do not count among the first min_tokens tokens. */
START_TEST(test_min_tokens_and_stop_strings)
{
	static const char ask[] = "\"prompt\":\"In the beginning\",\"max_tokens\":30,\"temperature\":0,\"ignore_eos\":true,\"stop\":[\" \"]";
	json_t *v, *w;
	char body[512];

	snprintf(body, sizeof(body), "{%s}", ask);
	v = complete(&server, body);
	ck_assert_int_lt(usage(v, "completion_tokens"), 10);
	snprintf(body, sizeof(body), "{%s,\"min_tokens\":15}", ask);
	w = complete(&server, body);
	ck_assert_int_ge(usage(w, "completion_tokens"), 15);
	ck_assert_int_lt(usage(w, "completion_tokens"), 30);
	json_decref(v);
	json_decref(w);
}
END_TEST

/* The same for kvrt generate, which has options instead of fields. */
static const struct {
	const char *option;
	const char *value;
	const char *field;
} options[] = {
	{ "--min-p", "0.2", "\"min_p\":0.2" },
	{ "--repetition-penalty", "1.3", "\"repetition_penalty\":1.3" },
	{ "--presence-penalty", "-1.5", "\"presence_penalty\":-1.5" },
	{ "--frequency-penalty", "0.75", "\"frequency_penalty\":0.75" },
	{ "--min-tokens", "39", "\"min_tokens\":39" },
};

#define GENERATE "{\"prompt\":\"The kitten\",\"max_tokens\":40,\"seed\":5,\"n\":64,\"temperature\":3,\"return_token_ids\":true"

/*
 * Each sample of kvrt generate with the option must equal the server's with the
 * field.
 */
static void compare_generate(const json_t *without, const char *option,
			     const char *value, const char *field)
{
	json_t *with, *ids;
	struct samples all;
	char body[512];
	struct job j;
	size_t i;

	snprintf(body, sizeof(body), GENERATE ",%s}", field);
	with = complete(&server, body);
	j = job_start(&rig, KVRT_GENERATE, demo_model(), "--mode", "exact",
		      "--threads", "1", "--seed", "5", "-n", "64",
		      "--temperature", "3", "--max-tokens", "40", "--json", "--quiet",
		      option, value, "The kitten", NULL);
	ck_assert_int_eq(job_wait(&j, 60), 0);
	samples_read(&all, j.out);
	ck_assert_uint_eq(all.nr, 64);
	for (i = 0; i < 64; i++) {
		const struct sample *s = &all.s[i];
		u32 k;

		ids = json_object_get(choice(with, s->sample - 1), "token_ids");
		ck_assert_uint_eq(json_array_size(ids), s->nr_ids);
		for (k = 0; k < s->nr_ids; k++)
			ck_assert_int_eq(json_integer_value(
					 json_array_get(ids, k)), s->ids[k]);
	}
	ck_assert_msg(!json_equal(json_object_get(with, "choices"),
				  json_object_get(without, "choices")), "%s", option);
	samples_free(&all);
	json_decref(with);
}

/* High temperature and many samples, so that some texts end early. */
START_TEST(test_generate)
{
	json_t *without = complete(&server, GENERATE "}");
	size_t i;

	for (i = 0; i < ARRAY_SIZE(options); i++)
		compare_generate(without, options[i].option, options[i].value,
				 options[i].field);
	json_decref(without);
}
END_TEST

static void add_tests(TCase *tc)
{
	tcase_add_test(tc, test_completion);
	tcase_add_test(tc, test_token_names);
	tcase_add_test(tc, test_chosen_tokens);
	tcase_add_test(tc, test_names_that_look_alike);
	tcase_add_loop_test(tc, test_stream, 0, 2);
	tcase_add_test(tc, test_scored_as_generated);
	tcase_add_test(tc, test_score_only);
	tcase_add_test(tc, test_prompt_logprobs);
	tcase_add_test(tc, test_chat);
	tcase_add_test(tc, test_what_may_be_drawn);
	tcase_add_test(tc, test_bad_words);
	tcase_add_test(tc, test_generate);
	tcase_add_test(tc, test_min_tokens_and_stop_strings);
}

int main(void)
{
	Suite *s = suite_create("logprobs");
	TCase *tc = tcase_create("api");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 120);
	tcase_add_unchecked_fixture(tc, setup, teardown);
	add_tests(tc);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
