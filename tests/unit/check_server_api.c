// SPDX-License-Identifier: Apache-2.0
/*
 * check_server_api.c - every field of a request is read, or refused by its name
 *
 * The tests follow the table of fields.  A field that is not supported must be
 * refused by its name, and accepted if it is null or has the value of the
 * default behaviour.  Each supported field must have examples here.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/sampler/adjust.h"
#include "runtime/server/fields.h"
#include "runtime/template/chat.h"

static struct tokenizer *tok;
static struct chat *chat;
static struct model_info info;
static struct api_model m;
static struct api_params p;
static struct api_error err;

static const char *top(const char *path)
{
	static char full[512];
	const char *dir = getenv("KVMM_TOP");

	snprintf(full, sizeof(full), "%s/%s", dir ? dir : ".", path);
	return full;
}

static void setup(void)
{
	char why[TOKENIZER_ERR_MAX];

	ck_assert_int_eq(tokenizer_load(top("tests/data/demo-model"), &tok, why,
					sizeof(why)), 0);
	info = (struct model_info){
		.nr_vocab = 4096, .max_len = 1024, .nr_eos = 1,
		.gen = {
			.has = MODEL_GEN_TEMPERATURE | MODEL_GEN_TOP_P |
			       MODEL_GEN_MAX_NEW_TOKENS,
			.temperature = 0.8, .top_p = 0.95,
			.max_new_tokens = 256,
		},
	};
	m = (struct api_model){
		.name = "demo", .tok = tok, .info = &info,
		.priority = 100, .max_samples = 200,
	};
	ck_assert_int_eq(chat_load(top("tests/data/demo-model"), NULL, &chat,
				   why, sizeof(why)), 0);
	m.chat = chat;
}

static void teardown(void)
{
	chat_free(chat);
	tokenizer_free(tok);
}

/* Replace the template of the demo model. */
static void template_set(const char *source)
{
	char why[512];

	chat_free(chat);
	ck_assert_msg(!chat_load(top("tests/data/demo-model"), source, &chat,
				 why, sizeof(why)), "%s", why);
	m.chat = chat;
}

static int prepare_bytes(enum api_kind kind, const char *body, size_t len)
{
	/* The body is copied to a separate allocation, so that a read outside is found. */
	char *copy = malloc(len ? len : 1);
	struct text t = { 0 };
	int ret;

	ck_assert_ptr_nonnull(copy);
	memcpy(copy, body, len);
	memset(&err, 0, sizeof(err));
	ret = api_prepare(&m, kind, copy, len, &p, &err);
	free(copy);
	if (ret) {
		json_t *v;

		api_error_json(&t, &err);
		v = json_loadb(t.p, t.len, 0, NULL);
		ck_assert_msg(v != NULL, "%.*s", (int)t.len, t.p);
		json_decref(v);
		ck_assert_int_ge(err.status, 400);
		ck_assert_str_ne(err.message, "");
	}
	text_free(&t);
	return ret;
}

static int prepare(enum api_kind kind, const char *body)
{
	return prepare_bytes(kind, body, strlen(body));
}

/* A body with one more field. */
static const char *with(enum api_kind kind, const char *name,
			const char *value)
{
	static char body[4096];

	snprintf(body, sizeof(body), "{%s, \"%s\": %s}",
		 kind == API_CHAT ?
		 "\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]" :
		 "\"prompt\": \"Hi\"", name, value);
	return body;
}

static void accepted(enum api_kind kind, const char *name, const char *value)
{
	const char *body = with(kind, name, value);

	ck_assert_msg(!prepare(kind, body), "%s: %s", body, err.message);
	api_params_free(&p);
}

static void refused(enum api_kind kind, const char *name, const char *value,
		    const char *param)
{
	const char *body = with(kind, name, value);

	ck_assert_msg(prepare(kind, body), "accepted: %s", body);
	ck_assert_msg(err.status == 400 || err.status == 404, "%s: %d", body,
		      err.status);
	ck_assert_msg(!strcmp(err.param, param), "%s: names '%s'", body,
		      err.param);
	ck_assert_msg(strstr(err.message, name) != NULL || *err.code == 'm',
		      "%s: says '%s'", body, err.message);
	api_params_free(&p);
}

/* ---- the table ---- */

static const char *neutral_json(enum field_neutral n)
{
	switch (n) {
	case NEUTRAL_null:	return "null";
	case NEUTRAL_zero:	return "0.0";
	case NEUTRAL_one:	return "1";
	case NEUTRAL_off:	return "false";
	case NEUTRAL_on:	return "true";
	case NEUTRAL_empty:	return "[]";
	case NEUTRAL_text:	return "{\"type\": \"text\"}";
	case NEUTRAL_any:	return "\"none\"";
	}
	return "null";
}

/* 64 characters of two bytes, and one string more than metadata may have. */
#define E8	"\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9"
#define A16	"0123456789abcdef"
#define E64	E8 E8 E8 E8 E8 E8 E8 E8
#define SEVENTEEN							\
	"{\"a\":\"\",\"b\":\"\",\"c\":\"\",\"d\":\"\",\"e\":\"\",\"f\":\"\"," \
	"\"g\":\"\",\"h\":\"\",\"i\":\"\",\"j\":\"\",\"k\":\"\",\"l\":\"\"," \
	"\"m\":\"\",\"n\":\"\",\"o\":\"\",\"p\":\"\",\"q\":\"\"}"

static const enum api_kind kinds[] = { API_COMPLETION, API_CHAT };

START_TEST(test_unsupported_fields)
{
	const struct field *f = &api_fields[_i];
	u32 k;

	for (k = 0; k < ARRAY_SIZE(kinds); k++) {
		if (!(f->kinds & kinds[k])) {
			refused(kinds[k], f->name, "1", f->name);
			continue;
		}
		if (f->use != FIELD_NO)
			continue;
		accepted(kinds[k], f->name, "null");
		accepted(kinds[k], f->name, neutral_json(f->neutral));
		refused(kinds[k], f->name, "12345", f->name);
		refused(kinds[k], f->name, "\"something\"", f->name);
		refused(kinds[k], f->name, "{\"a\": 1}", f->name);
		refused(kinds[k], f->name, "[7]", f->name);
	}
}
END_TEST

/* Valid and invalid values of every supported field, and of every hint. */
static const struct {
	const char	*name;
	const char	*good[8];
	const char	*bad[8];
} examples[] = {
	{ "model", { "\"demo\"" }, { "1", "\"other\"", "[]" } },
	{ "prompt", { NULL }, { NULL } },	/* have separate tests */
	{ "messages", { NULL }, { NULL } },
	{ "max_tokens", { "1", "16.0", "1000" },
	  { "0", "-1", "1.5", "\"1\"", "1e99", "true", "2000" } },
	{ "max_completion_tokens", { "1" }, { "0", "\"1\"", "2000" } },
	{ "n", { "1", "128" }, { "0", "129", "1.5", "-1", "[]", "true" } },
	{ "best_of", { "1", "2", "128" }, { "129", "0", "\"1\"" } },
	{ "use_beam_search", { "true", "false" }, { "1", "\"true\"" } },
	{ "length_penalty", { "1", "1.0" },
	  { "0.5", "11", "-10.5", "\"1\"", "true" } },
	{ "early_stopping", { "false" },
	  { "true", "\"never\"", "1", "\"always\"" } },
	{ "temperature", { "0", "0.7", "2", "100" },
	  { "-0.1", "101", "\"hot\"", "false", "[1]" } },
	{ "top_p", { "0.1", "1" }, { "0", "1.01", "-1", "\"1\"" } },
	{ "top_k", { "-1", "0", "40" }, { "-2", "1.5", "\"1\"" } },
	{ "seed", { "0", "-5", "9223372036854775807" }, { "1.5", "\"1\"" } },
	{ "stop", { "\"a\"", "[]", "[\"a\", \"b\", \"c\", \"d\"]" },
	  { "1", "\"\"", "[\"\"]", "[1]", "[\"a\", \"b\", \"c\", \"d\", \"e\"]" } },
	{ "stop_token_ids", { "[]", "[0, 4095]" }, { "1", "[4096]", "[-1]", "[\"a\"]" } },
	{ "include_stop_str_in_output", { "true", "false" }, { "1", "\"true\"" } },
	{ "ignore_eos", { "true" }, { "0" } },
	{ "skip_special_tokens", { "false" }, { "\"false\"" } },
	{ "stream", { "true", "false" }, { "1", "\"yes\"" } },
	{ "stream_options", { NULL }, { "{}", "1", "{\"include_usage\": true}" } },
	{ "echo", { "true" }, { "1" } },
	{ "add_special_tokens", { "true", "false" }, { "1" } },
	{ "add_generation_prompt", { "true", "false" }, { "1" } },
	{ "chat_template_kwargs", { "{}", "{\"a\": [1]}" }, { "1", "[]" } },
	{ "user", { "\"me\"", "\"\"" }, { "1", "{}" } },
	{ "safety_identifier", { "\"me\"" }, { "1" } },
	{ "metadata", { "{}", "{\"a\": \"b\", \"c\": \"\"}", "{\"" E64 "\": \"" E64 "\"}" },
	  { "1", "[]", "\"a\"", "{\"a\": 1}", "{\"a\": null}", "{\"e" E64 "\": \"\"}",
	    "{\"a\": \"" E64 E64 E64 E64 E64 E64 E64 E64 "e\"}", SEVENTEEN } },
	{ "store", { "true", "false" }, { "1", "\"true\"" } },
	{ "service_tier", { "\"auto\"", "\"flex\"", "\"fast\"" },
	  { "1", "\"aut\"", "\"auto,\"", "\"\"", "\"auto, default\"" } },
	{ "prompt_cache_key", { "\"k\"" }, { "1", "[]" } },
	{ "prompt_cache_retention", { "\"in_memory\"", "\"24h\"" }, { "\"1h\"", "24" } },
	{ "prompt_cache_options", { "{\"mode\": \"explicit\"}" }, { "1", "\"a\"" } },
	{ "prediction", { "{\"type\": \"content\", \"content\": \"a\"}" }, { "\"a\"", "[]" } },
	{ "verbosity", { "\"low\"", "\"high\"" }, { "\"loud\"", "1" } },
	{ "parallel_tool_calls", { "true", "false" }, { "1" } },
	{ "include_reasoning", { "true" }, { "0" } },
	{ "reasoning_effort", { "\"none\"", "\"minimal\"", "\"max\"" },
	  { "\"hard\"", "\"\"", "2", "\"low\", \"chat_template_kwargs\": {\"reasoning_effort\": \"low\"}" } },
	{ "priority", { "0", "-1000000", "100" }, { "101", "1.5", "\"1\"" } },
	{ "cache_salt", { "\"s\"" }, { "\"\"", "1", "\"a/b\"", "\"a@b\"", "\"a\\\\b\"" } },
	{ "session", { "\"a\"", "\"a.B_9:-\"", "\"" A16 A16 A16 A16 "\"", "{\"name\": \"a\"}",
		       "{\"name\": \"a\", \"retain\": 0.5}", "{\"name\": \"a\", \"retain\": null}" },
	  { "1", "\"a/b\"", "\"a b\"", "\"e" A16 A16 A16 A16 "\"", "\"\"",
	    "\"a\", \"n\": 2", "\"a\", \"prompt_logprobs\": 1", "[\"a\"]" } },
	{ "request_id", { "\"abc-1\"" }, { "\"\"", "1", "\"a b\"", "\"\\n\"" } },
	{ "return_token_ids", { "true" }, { "1" } },
	{ "frequency_penalty", { "-2", "0", "1.5" }, { "2.1", "-3", "\"1\"", "[]" } },
	{ "presence_penalty", { "-2", "0", "2" }, { "2.1", "-3", "\"1\"", "true" } },
	{ "repetition_penalty", { "1", "1.3", "0.5" }, { "0", "-1", "101", "\"1\"" } },
	{ "logit_bias", { "{}", "{\"0\": 100, \"4095\": -100.0}" },
	  { "[]", "1", "{\"4096\": 1}", "{\"a\": 1}", "{\"01\": 1}", "{\"-1\": 1}",
	    "{\"1\": 101}", "{\"1\": \"2\"}" } },
	{ "logprobs", { "false" }, { "\"1\"", "21", "-1", "1.5", "[]" } },
	{ "top_logprobs", { "0" }, { "1", "21", "-1", "\"1\"", "true" } },
	{ "logprob_token_ids", { "[]" }, { "1", "[1]", "[4096]", "[-1]", "[\"a\"]", "{}" } },
	{ "prompt_logprobs", { "0", "20", "false" }, { "21", "-1", "true", "\"1\"" } },
	{ "return_tokens_as_token_ids", { "true" }, { "1" } },
	{ "min_p", { "0", "0.05", "1" }, { "-0.1", "1.1", "\"0\"" } },
	{ "min_tokens", { "0", "3", "1000000" }, { "-1", "1.5", "\"1\"" } },
	{ "bad_words", { "[]", "[\"a\"]", "[\"the\", \" of the \"]" },
	  { "\"a\"", "[\"\"]", "[\" \"]", "[1]", "{}" } },
	{ "allowed_token_ids", { "[0]", "[4095, 3]" }, { "[]", "[4096]", "[-1]", "[\"a\"]", "7", "{}" } },
};

/* Fields that are valid together, or not; and their effect. */
static const struct {
	const char	*body;
	const char	*param;		/* NULL: valid */
	u32		n, drawn, width, early;
} together[] = {
	{ "\"n\": 2, \"best_of\": 5", NULL, 2, 5, 0, 0 },
	{ "\"n\": 2, \"best_of\": 2, \"stream\": true", NULL, 2, 2, 0, 0 },
	{ "\"n\": 2, \"best_of\": 5, \"stream\": true", .param = "best_of" },
	{ "\"n\": 3, \"best_of\": 2", .param = "best_of" },
	{ "\"n\": 128, \"best_of\": 128, \"prompt\": [\"a\", \"b\"]", .param = "prompt" },
	{ "\"use_beam_search\": true", NULL, 1, 1, 1, 0 },
	{ "\"use_beam_search\": true, \"n\": 3", NULL, 3, 3, 3, 0 },
	{ "\"use_beam_search\": true, \"n\": 3, \"best_of\": 8, \"stream\": true",
	  NULL, 3, 3, 8, 0 },
	{ "\"use_beam_search\": true, \"n\": 3, \"best_of\": 2", .param = "best_of" },
	{ "\"use_beam_search\": true, \"early_stopping\": true, \"length_penalty\": 0, \"temperature\": 0, \"top_p\": 1, \"top_k\": -1",
	  NULL, 1, 1, 1, 1 },
	{ "\"early_stopping\": \"never\", \"use_beam_search\": true, \"length_penalty\": -10",
	  NULL, 1, 1, 1, 2 },
	{ "\"use_beam_search\": true, \"temperature\": 0.5", .param = "temperature" },
	{ "\"use_beam_search\": true, \"top_p\": 0.9", .param = "top_p" },
	{ "\"use_beam_search\": true, \"top_k\": 5", .param = "top_k" },
	{ "\"use_beam_search\": true, \"min_p\": 0.1", .param = "min_p" },
	{ "\"use_beam_search\": true, \"min_tokens\": 2", .param = "min_tokens" },
	{ "\"use_beam_search\": true, \"bad_words\": [\"a\"]", .param = "bad_words" },
	{ "\"use_beam_search\": true, \"logit_bias\": {\"3\": 1}", .param = "logit_bias" },
	{ "\"use_beam_search\": true, \"allowed_token_ids\": [3]", .param = "allowed_token_ids" },
	{ "\"use_beam_search\": true, \"presence_penalty\": 1", .param = "presence_penalty" },
	{ "\"use_beam_search\": true, \"frequency_penalty\": -1", .param = "frequency_penalty" },
	{ "\"use_beam_search\": true, \"repetition_penalty\": 1.1", .param = "repetition_penalty" },
	{ "\"use_beam_search\": true, \"logprobs\": 1", .param = "logprobs" },
	{ "\"use_beam_search\": true, \"min_p\": 0, \"min_tokens\": 0, \"presence_penalty\": 0, \"frequency_penalty\": 0, \"repetition_penalty\": 1, \"logprobs\": 0",
	  NULL, 1, 1, 1, 0 },
	{ "\"use_beam_search\": false, \"length_penalty\": 2", .param = "length_penalty" },
	{ "\"early_stopping\": true", .param = "early_stopping" },
};

START_TEST(test_best_of_and_beams)
{
	const char *want = together[_i].param;
	char body[512];
	int ret;

	snprintf(body, sizeof(body), "{%s%s}", together[_i].body,
		 strstr(together[_i].body, "prompt") ? "" :
		 ", \"prompt\": \"Hi\"");
	ret = prepare(API_COMPLETION, body);
	ck_assert_msg(!ret == !want, "%s: %s", body, err.message);
	if (want) {
		ck_assert_str_eq(err.param, want);
	} else {
		ck_assert_uint_eq(p.n, together[_i].n);
		ck_assert_uint_eq(p.drawn, together[_i].drawn);
		ck_assert_uint_eq(p.beam_width, together[_i].width);
		ck_assert_uint_eq(p.early_stopping, together[_i].early);
		if (p.beam_width)
			ck_assert(p.sampling.temperature == 0);
		else
			ck_assert(p.length_penalty == 0);
	}
	api_params_free(&p);
}
END_TEST

/* A member of session is refused by its own name. */
START_TEST(test_session_members)
{
	static const char * const bad[][2] = {
		{ "{\"name\": \"a b\"}", "session.name" },
		{ "{\"name\": 1}", "session.name" },
		{ "{}", "session.name" },
		{ "{\"name\": \"a\", \"retain\": 0}", "session.retain" },
		{ "{\"name\": \"a\", \"retain\": 86401}", "session.retain" },
		{ "{\"name\": \"a\", \"retain\": \"1\"}", "session.retain" },
		{ "{\"name\": \"a\", \"keep\": 1}", "session" },
	};
	u32 i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		refused(API_COMPLETION, "session", bad[i][0], bad[i][1]);
		refused(API_CHAT, "session", bad[i][0], bad[i][1]);
	}
	ck_assert(!prepare(API_CHAT, with(API_CHAT, "session",
					  "{\"name\": \"a\", \"retain\": 1.5}")));
	ck_assert_str_eq(p.session.name, "a");
	ck_assert_uint_eq(p.session.ms, 1500);
	api_params_free(&p);
	ck_assert(prepare(API_COMPLETION, "{\"prompt\": [\"a\", \"b\"], \"session\": \"a\"}"));
	ck_assert_str_eq(err.param, "session");
	api_params_free(&p);
	ck_assert(prepare(API_COMPLETION, "{\"prompt\": \"a\", \"session\": \"a\", \"best_of\": 2}"));
	ck_assert_str_eq(err.param, "session");
	api_params_free(&p);
}
END_TEST

START_TEST(test_supported_fields)
{
	const struct field *f = &api_fields[_i];
	u32 e, k, i;

	if (f->use == FIELD_NO)
		return;
	for (e = 0; e < ARRAY_SIZE(examples); e++)
		if (!strcmp(examples[e].name, f->name))
			break;
	ck_assert_msg(e < ARRAY_SIZE(examples), "no example of %s", f->name);
	for (k = 0; k < ARRAY_SIZE(kinds); k++) {
		if (!(f->kinds & kinds[k]))
			continue;
		for (i = 0; i < 8 && examples[e].good[i]; i++)
			accepted(kinds[k], f->name, examples[e].good[i]);
		for (i = 0; i < 8 && examples[e].bad[i]; i++)
			refused(kinds[k], f->name, examples[e].bad[i], f->name);
		if (examples[e].good[0])
			accepted(kinds[k], f->name, "null");
	}
}
END_TEST

/* The fields of OpenAI's client for Python, version 3.57.0. */
#define OF_BOTH								\
	"model frequency_penalty logit_bias logprobs max_tokens n presence_penalty seed stop stream " \
	"stream_options temperature top_p user "
static const struct {
	enum api_kind	kind;
	const char	*names;
} openai[] = {
	{ API_COMPLETION, OF_BOTH "prompt best_of echo suffix" },
	{ API_CHAT, OF_BOTH "messages audio function_call functions max_completion_tokens metadata modalities moderation parallel_tool_calls prediction prompt_cache_key prompt_cache_options prompt_cache_retention reasoning_effort response_format safety_identifier service_tier store tool_choice tools top_logprobs verbosity web_search_options" },
};

/* The list has every field of OpenAI's API. */
START_TEST(test_fields_of_openai)
{
	const char *name;
	size_t n;
	u32 i;

	for (name = openai[_i].names; *name; name += n + strspn(name + n, " ")) {
		n = strcspn(name, " ");
		for (i = 0; i < api_nr_fields; i++)
			if (strlen(api_fields[i].name) == n &&
			    !memcmp(api_fields[i].name, name, n) &&
			    api_fields[i].kinds & openai[_i].kind)
				break;
		ck_assert_msg(i < api_nr_fields, "no %.*s", (int)n, name);
	}
}
END_TEST

START_TEST(test_stream_options)
{
	accepted(API_CHAT, "stream_options", "{\"include_usage\": true, \"include_obfuscation\": true}, \"stream\": true");
	accepted(API_CHAT, "stream_options", "{\"include_obfuscation\": false}, \"stream\": true");
	refused(API_CHAT, "stream_options", "{\"include_obfuscation\": 1}, \"stream\": true",
		"stream_options.include_obfuscation");
	refused(API_CHAT, "stream_options", "{\"include_more\": true}, \"stream\": true",
		"stream_options");
}
END_TEST

START_TEST(test_unknown_field)
{
	refused(API_CHAT, "temprature", "0.5", "temprature");
	ck_assert_int_ne(prepare(API_COMPLETION, "{\"prompt\":\"a\",\"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\":1}"), 0);
	ck_assert_uint_lt(strlen(err.param), sizeof(err.param));
	api_params_free(&p);
}
END_TEST

/* ---- bodies ---- */

static const char * const no_bodies[] = {
	"", "x", "{", "{\"prompt\":}", "[]", "1", "null", "\"a\"", "{} x",
	"{\"prompt\":\"a\",\"prompt\":\"b\"}", "{\"prompt\":\"\\u0000\"}",
	"{\"prompt\":\"\\ud800\"}", "{\"prompt\":\"\xff\"}",
	"{\"prompt\":\"\xc3\"}", "{\"seed\":99999999999999999999,\"prompt\":\"a\"}",
	"{\"prompt\":\"a\",}", "{'prompt':'a'}", "{\"prompt\":NaN}",
};

START_TEST(test_no_bodies)
{
	ck_assert_int_ne(prepare(API_COMPLETION, no_bodies[_i]), 0);
	ck_assert_int_eq(err.status, 400);
	ck_assert_str_eq(err.code, "invalid_json");
	api_params_free(&p);
}
END_TEST

START_TEST(test_deep_body)
{
	char *deep = malloc(200000);

	ck_assert_ptr_nonnull(deep);
	memset(deep, '[', 200000);
	memcpy(deep, "{\"prompt\":", 10);
	ck_assert_int_ne(prepare_bytes(API_COMPLETION, deep, 200000), 0);
	ck_assert_int_eq(err.status, 400);
	api_params_free(&p);
	free(deep);
}
END_TEST

/* Damaged bodies: never a crash, always an answer. */
START_TEST(test_mutilated_bodies)
{
	static const char good[] = "{\"model\":\"demo\",\"prompt\":[\"a\",\"b\"],\"max_tokens\":5,\"stop\":[\"x\",\"yy\"],\"stream\":true,\"stream_options\":{\"include_usage\":true},\"n\":2,\"seed\":7,\"temperature\":0.5}";
	u32 state = 7, round, i, ok = 0;
	char buf[sizeof(good)];

	for (round = 0; round < 20000; round++) {
		size_t n = sizeof(good) - 1;

		memcpy(buf, good, n);
		for (i = 0; i < 1 + round % 3; i++) {
			state = state * 1664525u + 1013904223u;
			buf[(state >> 8) % n] = round % 2 ?
				(char)(state >> 24) : "\"{}[],:019-e."[(state >> 24) % 13];
		}
		ok += !prepare_bytes(API_COMPLETION, buf, n);
		api_params_free(&p);
	}
	ck_assert_uint_gt(ok, 100);
	ck_assert_uint_lt(ok, 19900);
}
END_TEST

/* ---- prompts ---- */

static void prompts(const char *value, u32 nr, u32 first_nr)
{
	char body[256];

	snprintf(body, sizeof(body), "{\"prompt\": %s}", value);
	ck_assert_msg(!prepare(API_COMPLETION, body), "%s: %s", body,
		      err.message);
	ck_assert_uint_eq(p.nr_prompts, nr);
	ck_assert_uint_eq(p.prompts[0].nr, first_nr);
	api_params_free(&p);
}

START_TEST(test_prompt_forms)
{
	u32 i;
	static const char * const bad[] = {
		"1", "{}", "true", "[]", "[[]]", "[1, \"a\"]", "[\"a\", 1]",
		"[[1], 2]", "[1.5]", "[-1]", "[4096]", "[null]",
	};

	prompts("\"a\"", 1, 2);		/* BOS and a */
	prompts("[\"a\", \"b\", \"c\"]", 3, 2);
	prompts("[1, 2, 3]", 1, 3);
	prompts("[[1, 2], [3]]", 2, 2);
	prompts("[[1, 2], \"a\"]", 2, 2);
	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		char body[64];

		snprintf(body, sizeof(body), "{\"prompt\": %s}", bad[i]);
		ck_assert_msg(prepare(API_COMPLETION, body), "%s", body);
		ck_assert_str_eq(err.param, "prompt");
		api_params_free(&p);
	}
	ck_assert_int_ne(prepare(API_COMPLETION, "{}"), 0);
	ck_assert_str_eq(err.code, "missing_parameter");
	ck_assert_int_ne(prepare(API_CHAT, "{}"), 0);
	ck_assert_str_eq(err.param, "messages");
}
END_TEST

START_TEST(test_long_prompts)
{
	char *body = malloc(3000000);
	u32 n;

	ck_assert_ptr_nonnull(body);
	/*
	 * Longer than the context in tokens, and so long that tokens are not
	 * even counted.
	 */
	for (n = 5000; n < 2900000; n *= 20) {
		memset(body, 'q', n + 20);
		memcpy(body, "{\"prompt\":\"", 11);
		memcpy(body + n, "\"}", 3);
		ck_assert_int_ne(prepare(API_COMPLETION, body), 0);
		ck_assert_int_eq(err.status, 400);
		ck_assert_str_eq(err.code, "context_length_exceeded");
		api_params_free(&p);
	}
	free(body);
}
END_TEST

START_TEST(test_context_length)
{
	struct text t = { 0 };
	u32 i;

	text_puts(&t, "{\"prompt\":[1");
	for (i = 1; i < 1023; i++)
		text_puts(&t, ",1");
	text_puts(&t, "],\"max_tokens\":");
	text_puts(&t, "1}");
	ck_assert_int_eq(prepare_bytes(API_COMPLETION, t.p, t.len), 0);
	ck_assert_uint_eq(p.max_new, 1);
	api_params_free(&p);
	t.p[t.len - 2] = '2';
	ck_assert_int_ne(prepare_bytes(API_COMPLETION, t.p, t.len), 0);
	ck_assert_str_eq(err.param, "max_tokens");
	api_params_free(&p);
	text_free(&t);
}
END_TEST

START_TEST(test_too_many_samples)
{
	ck_assert_int_ne(prepare(API_COMPLETION, "{\"prompt\":[\"a\",\"b\"],\"n\":101}"), 0);
	ck_assert_str_eq(err.param, "prompt");
	api_params_free(&p);
	ck_assert_int_eq(prepare(API_COMPLETION, "{\"prompt\":[\"a\",\"b\"],\"n\":100}"), 0);
	api_params_free(&p);
}
END_TEST

START_TEST(test_echo)
{
	ck_assert_int_eq(prepare(API_COMPLETION, "{\"prompt\":\"Hi \xe2\x82\xac\",\"echo\":true}"), 0);
	ck_assert_uint_eq(p.prompts[0].len, 6);
	ck_assert_mem_eq(p.prompts[0].text, "Hi \xe2\x82\xac", 6);
	api_params_free(&p);
	ck_assert_int_eq(prepare(API_COMPLETION, "{\"prompt\":[0,67],\"echo\":true}"), 0);
	ck_assert_uint_eq(p.prompts[0].len, 1);		/* BOS has no text */
	ck_assert_mem_eq(p.prompts[0].text, "a", 1);
	api_params_free(&p);
}
END_TEST

/* ---- chats ---- */

static void chat_ids(const char *messages, const char *text)
{
	u32 want[256], i;
	char body[1024];
	ssize_t n;

	want[0] = tokenizer_bos_id(tok);
	n = tokenizer_encode(tok, text, strlen(text), TOKENIZER_PLAIN, want + 1,
			     255, NULL);
	ck_assert_int_gt(n, 0);
	snprintf(body, sizeof(body), "{\"messages\": [%s]}", messages);
	ck_assert_msg(!prepare(API_CHAT, body), "%s: %s", body, err.message);
	ck_assert_uint_eq(p.prompts[0].nr, (u32)n + 1);
	for (i = 0; i <= (u32)n; i++)
		ck_assert_uint_eq(p.prompts[0].ids[i], want[i]);
	api_params_free(&p);
}

START_TEST(test_chat_template)
{
	chat_ids("{\"role\":\"user\",\"content\":\"Hi there\"}", "Hi there\n\n");
	chat_ids("{\"role\":\"system\",\"content\":\" \\n\\u00a0a b\\u3000 \"},{\"role\":\"user\",\"content\":\"\"}",
		 "a b\n\n\n\n");
	chat_ids("{\"role\":\"user\",\"content\":[{\"type\":\"text\",\"text\":\"a\"},{\"type\":\"text\",\"text\":\"b\"}]}",
		 "a\nb\n\n");
	/* Special tokens that a user spells out are plain text. */
	chat_ids("{\"role\":\"user\",\"content\":\"x<|endoftext|>\"}",
		 "x<|endoftext|>\n\n");
}
END_TEST

START_TEST(test_bad_chats)
{
	static const char * const bad[] = {
		"[]", "{}", "\"a\"", "[1]", "[{}]",
		"[{\"role\":\"user\"}]",
		"[{\"role\":\"tool\",\"content\":\"a\"}]",
		"[{\"role\":1,\"content\":\"a\"}]",
		"[{\"role\":\"user\",\"content\":1}]",
		"[{\"role\":\"user\",\"content\":[]}]",
		"[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{}}]}]",
		"[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]",
		"[{\"role\":\"user\",\"content\":\"a\",\"name\":\"n\"}]",
		"[{\"role\":\"assistant\",\"content\":null}]",
	};
	char body[256];
	u32 i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		snprintf(body, sizeof(body), "{\"messages\": %s}", bad[i]);
		ck_assert_msg(prepare(API_CHAT, body), "%s", body);
		ck_assert_str_eq(err.param, "messages");
		api_params_free(&p);
	}
	m.chat = NULL;
	ck_assert_int_ne(prepare(API_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}"), 0);
	ck_assert_str_eq(err.code, "no_chat_template");
}
END_TEST

/* Ids of a chat whose template writes @text, special tokens and all. */
static void rendered_ids(const char *body, const char *text, u32 flags)
{
	u32 want[256], i;
	ssize_t n = tokenizer_encode(tok, text, strlen(text), flags, want, 256,
				     NULL);

	ck_assert_int_gt(n, 0);
	ck_assert_msg(!prepare(API_CHAT, body), "%s: %s", body, err.message);
	ck_assert_msg(p.prompts[0].nr == (u32)n, "%s: %u ids", body,
		      p.prompts[0].nr);
	for (i = 0; i < (u32)n; i++)
		ck_assert_uint_eq(p.prompts[0].ids[i], want[i]);
	api_params_free(&p);
}

#define USER_SAYS(text) "{\"messages\":[{\"role\":\"user\",\"content\":\"" text "\"}]"

START_TEST(test_other_templates)
{
	template_set("{% for m in messages %}{{ m.role }}: {{ m.content }}<|endoftext|>{% endfor %}{% if add_generation_prompt %}assistant:{% endif %}{{ more }}");
	rendered_ids(USER_SAYS("hi") "}", "user: hi<|endoftext|>assistant:", 0);
	rendered_ids(USER_SAYS("hi") ",\"add_generation_prompt\":false}",
		     "user: hi<|endoftext|>", 0);
	rendered_ids(USER_SAYS("hi") ",\"chat_template_kwargs\":{\"more\":\"!\",\"messages\":[]}}",
		     "user: hi<|endoftext|>assistant:!", 0);
	rendered_ids("{\"messages\":[{\"role\":\"developer\",\"content\":\"a\"}]}",
		     "system: a<|endoftext|>assistant:", 0);
}
END_TEST

/* The effort is a variable: a template that has none of that name gives the same. */
START_TEST(test_effort)
{
	static const char low[] = USER_SAYS("hi") ",\"reasoning_effort\":\"low\"}";

	template_set("{{ messages[0].content }}{{ more }}");
	rendered_ids(low, "hi", 0);
	template_set("{{ messages[0].content }}{{ more }}{{ reasoning_effort }}");
	rendered_ids(USER_SAYS("hi") "}", "hi", 0);
	rendered_ids(low, "hilow", 0);
	rendered_ids(USER_SAYS("hi") ",\"reasoning_effort\":\"max\",\"chat_template_kwargs\":{\"more\":\"!\"}}",
		     "hi!max", 0);
}
END_TEST

/* Special tokens that a user spells out are text, wherever the template puts them. */
START_TEST(test_no_forged_turns)
{
	template_set("{{ messages[0].content }}{{ more }}");
	rendered_ids(USER_SAYS("a<|endoftext|>b") "}", "a<|endoftext|>b",
		     TOKENIZER_PLAIN);
	rendered_ids(USER_SAYS("<|endoftext|>") ",\"chat_template_kwargs\":{\"more\":{\"<|endoftext|>\":1}}}",
		     "<|endoftext|>{'<|endoftext|>': 1}", TOKENIZER_PLAIN);
	/*
	 * Also with the first of the characters that could mark them, and with
	 * a spelt-out one.
	 */
	rendered_ids(USER_SAYS("<|endoftext|>\\u2800<|endoftext|>\\\\u2801") "}",
		     "<|endoftext|>\xe2\xa0\x80<|endoftext|>\\u2801",
		     TOKENIZER_PLAIN);
	/* Also as Python's repr() and json.dumps() write them. */
	template_set("{{ messages }}{{ messages[0].content | tojson(ensure_ascii=true) }}");
	rendered_ids(USER_SAYS("<|endoftext|>") "}",
		     "[{'role': 'user', 'content': '<|endoftext|>'}]\"<|endoftext|>\"",
		     TOKENIZER_PLAIN);
}
END_TEST

START_TEST(test_template_refuses)
{
	template_set("{{ raise_exception('roles must alternate') }}");
	ck_assert_int_ne(prepare(API_CHAT, USER_SAYS("a") "}"), 0);
	api_params_free(&p);
	ck_assert_int_eq(err.status, 400);
	ck_assert_str_eq(err.code, "chat_template_error");
	ck_assert_ptr_nonnull(strstr(err.message, "roles must alternate"));
	template_set("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}");
	ck_assert_int_ne(prepare(API_CHAT, USER_SAYS("a") "}"), 0);
	api_params_free(&p);
	ck_assert_int_eq(err.status, 400);
	ck_assert_int_ne(prepare(API_CHAT, USER_SAYS("a") ",\"chat_template_kwargs\":1}"), 0);
	api_params_free(&p);
	ck_assert_str_eq(err.param, "chat_template_kwargs");
}
END_TEST

/* ---- parameters of the engine ---- */

START_TEST(test_defaults)
{
	ck_assert_int_eq(prepare(API_COMPLETION, "{\"prompt\":\"a\"}"), 0);
	ck_assert_uint_eq(p.max_new, 16);
	ck_assert_float_eq(p.sampling.temperature, 0.8f);
	ck_assert_float_eq(p.sampling.top_p, 0.95f);
	ck_assert_uint_eq(p.priority, 100);
	ck_assert_uint_eq(p.salt, 0);
	ck_assert_uint_eq(p.nr_stop_ids, 1);
	ck_assert_uint_eq(p.nr_own_ids, 0);
	ck_assert(!p.stream && !p.echo && p.skip_special);
	api_params_free(&p);
	ck_assert_int_eq(prepare(API_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}"), 0);
	ck_assert_uint_eq(p.max_new, 256);
	api_params_free(&p);
	info.gen.has = 0;
	ck_assert_int_eq(prepare(API_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}]}"), 0);
	ck_assert_uint_eq(p.max_new + p.prompts[0].nr, 1024);
	ck_assert_float_eq(p.sampling.temperature, 1.0f);
	api_params_free(&p);
}
END_TEST

START_TEST(test_values)
{
	ck_assert_int_eq(prepare(API_COMPLETION, "{\"prompt\":\"a\",\"priority\":-5,\"seed\":42,\"stop_token_ids\":[9,8],\"ignore_eos\":true,\"temperature\":0,\"request_id\":\"r1\",\"stream\":true,\"stream_options\":{\"include_usage\":true,\"include_obfuscation\":false},\"stop\":[\"x\"],\"include_stop_str_in_output\":true}"), 0);
	ck_assert_uint_eq(p.priority, 105);
	ck_assert_uint_eq(p.sampling.seed, 42);
	ck_assert_uint_eq(p.nr_stop_ids, 2);
	ck_assert_uint_eq(p.stop_ids[1], 8);
	ck_assert_str_eq(p.id, "r1");
	ck_assert(p.stream && p.usage && p.stops.keep);
	ck_assert_uint_eq(p.stops.nr, 1);
	api_params_free(&p);
	ck_assert_int_ne(prepare(API_CHAT, with(API_CHAT, "max_tokens", "5, \"max_completion_tokens\": 5")), 0);
	api_params_free(&p);
	ck_assert_int_ne(prepare(API_CHAT, with(API_CHAT, "stream", "true, \"stream_options\": {\"foo\": 1}")), 0);
	ck_assert_str_eq(err.param, "stream_options");
	api_params_free(&p);
}
END_TEST

/* Each field of sampling arrives in the member that the engine reads. */
START_TEST(test_sampling_values)
{
	const struct sampling_params *s = &p.sampling;

	ck_assert_int_eq(prepare(API_COMPLETION, "{\"prompt\":\"a\",\"min_p\":0.25,\"frequency_penalty\":0.5,\"presence_penalty\":-0.5,\"repetition_penalty\":1.5,\"min_tokens\":3,\"logit_bias\":{\"7\":-2.5,\"4095\":100},\"allowed_token_ids\":[5,6,7],\"logprobs\":4,\"prompt_logprobs\":2,\"return_tokens_as_token_ids\":true}"), 0);
	ck_assert_float_eq(s->min_p, 0.25f);
	ck_assert_float_eq(s->frequency_penalty, 0.5f);
	ck_assert_float_eq(s->presence_penalty, -0.5f);
	ck_assert_float_eq(s->repetition_penalty, 1.5f);
	ck_assert_uint_eq(s->min_tokens, 3);
	ck_assert_uint_eq(s->nr_bias, 2);
	ck_assert_uint_eq(s->bias[0].id + s->bias[1].id, 4102);
	ck_assert_float_eq(s->bias[s->bias[0].id != 7].bias, -2.5f);
	ck_assert_uint_eq(s->nr_allowed, 3);
	ck_assert_uint_eq(s->allowed[2], 7);
	ck_assert_uint_eq(p.logprobs, ENGINE_LOGPROBS(4));
	ck_assert_uint_eq(p.prompt_logprobs, ENGINE_LOGPROBS(2));
	ck_assert_uint_eq(p.score, ENGINE_LOGPROBS(2));
	ck_assert(p.ids_for_tokens);
	ck_assert_int_eq(sampling_ids_check(s, info.nr_vocab, NULL), 0);
	api_params_free(&p);
	ck_assert_int_eq(prepare(API_COMPLETION, "{\"prompt\":\"a\"}"), 0);
	ck_assert_uint_eq(p.logprobs | p.prompt_logprobs | p.score,
			  ENGINE_NO_LOGPROBS);
	ck_assert(!sampling_adjusts(s));
	api_params_free(&p);
	info.gen.has |= MODEL_GEN_MIN_P | MODEL_GEN_REPETITION_PENALTY;
	info.gen.min_p = 0.125;
	info.gen.repetition_penalty = 1.25;
	ck_assert_int_eq(prepare(API_COMPLETION, "{\"prompt\":\"a\"}"), 0);
	ck_assert_float_eq(s->min_p, 0.125f);
	ck_assert_float_eq(s->repetition_penalty, 1.25f);
	api_params_free(&p);
}
END_TEST

/* A word is two sequences of tokens if a space before it changes its token. */
START_TEST(test_bad_words)
{
	const struct sampling_params *s = &p.sampling;
	const char *words[] = { "Holmes", " Holmes" };
	u32 ids[16], at = 0, i;
	ssize_t n;

	ck_assert_int_eq(prepare(API_COMPLETION, "{\"prompt\":\"a\",\"bad_words\":[\" Holmes\"]}"), 0);
	for (i = 0; i < 2; i++) {
		n = tokenizer_encode(tok, words[i], strlen(words[i]),
				     TOKENIZER_PLAIN, ids, 16, NULL);
		ck_assert_int_gt(n, 0);
		if (i && n != (ssize_t)s->bad[0])
			continue;
		ck_assert_uint_lt(at, s->nr_bad);
		ck_assert_uint_eq(s->bad[at], (u32)n);
		ck_assert(!memcmp(s->bad + at + 1, ids, (u32)n * sizeof(*ids)));
		at += 1 + (u32)n;
	}
	ck_assert_uint_eq(s->nr_bad, at);
	api_params_free(&p);
	/* After a space it has as many tokens, so it is there twice. */
	ck_assert_int_eq(prepare(API_COMPLETION, "{\"prompt\":\"a\",\"bad_words\":[\"the\"]}"), 0);
	ck_assert_uint_eq(s->nr_bad, 4);
	ck_assert_uint_ne(s->bad[1], s->bad[3]);
	api_params_free(&p);
}
END_TEST

/* Fields of sampling that contradict each other. */
START_TEST(test_sampling_judged)
{
	refused(API_COMPLETION, "min_tokens", "5, \"max_tokens\": 4", "min_tokens");
	accepted(API_COMPLETION, "min_tokens", "5, \"max_tokens\": 5");
	refused(API_CHAT, "top_logprobs", "2, \"logprobs\": false", "top_logprobs");
	refused(API_CHAT, "logprobs", "3", "logprobs");
	refused(API_COMPLETION, "logprob_token_ids", "[1], \"logprobs\": 1, \"echo\": true", "logprob_token_ids");
	ck_assert_int_eq(prepare(API_COMPLETION, with(API_COMPLETION, "logprob_token_ids", "[7, 9], \"logprobs\": 1")), 0);
	ck_assert_uint_eq(p.logprobs, ENGINE_LOGPROBS(2));
	ck_assert_uint_eq(p.logprob_ids[1], 9);
	api_params_free(&p);
	refused(API_COMPLETION, "logprobs", "true", "logprobs");
	refused(API_COMPLETION, "prompt_logprobs", "1, \"stream\": true", "prompt_logprobs");
	ck_assert_int_eq(prepare(API_CHAT, with(API_CHAT, "logprobs", "true")), 0);
	ck_assert_uint_eq(p.logprobs, ENGINE_LOGPROBS(0));
	api_params_free(&p);
	ck_assert_int_eq(prepare(API_CHAT, with(API_CHAT, "logprobs", "true, \"top_logprobs\": 20")), 0);
	ck_assert_uint_eq(p.logprobs, ENGINE_LOGPROBS(20));
	api_params_free(&p);
	ck_assert_int_eq(prepare(API_COMPLETION, with(API_COMPLETION, "echo", "true, \"logprobs\": 3, \"max_tokens\": 0")), 0);
	ck_assert_uint_eq(p.score, ENGINE_LOGPROBS(3));
	ck_assert_uint_eq(p.prompt_logprobs, ENGINE_NO_LOGPROBS);
	ck_assert_uint_eq(p.max_new, 0);
	api_params_free(&p);
}
END_TEST

/* A prompt of @nr ids with other fields. */
static int prepare_ids(u32 nr, const char *fields)
{
	struct text t = { 0 };
	u32 i;
	int ret;

	text_printf(&t, "{%s, \"prompt\": [1", fields);
	for (i = 1; i < nr; i++)
		text_puts(&t, ",1");
	text_puts(&t, "]}");
	ret = prepare_bytes(API_COMPLETION, t.p, t.len);
	api_params_free(&p);
	text_free(&t);
	return ret;
}

START_TEST(test_told)
{
	static const struct {
		u32		nr;	/* most ids of a prompt */
		const char	*fields;
	} most[] = {
		{ 780, "\"n\": 64, \"prompt_logprobs\": 20" },
		{ 744, "\"n\": 64, \"echo\": true, \"logprobs\": 20" },
		{ 8192, "\"n\": 128, \"return_token_ids\": true" },
		{ 8192, "\"n\": 128, \"echo\": true, \"stream\": true" },
		{ 381, "\"n\": 64, \"echo\": true, \"logprobs\": 20, \"prompt_logprobs\": 20" },
	};
	u32 i;

	info.max_len = 100000;
	for (i = 0; i < ARRAY_SIZE(most); i++) {
		ck_assert_msg(!prepare_ids(most[i].nr, most[i].fields), "%s",
			      err.message);
		ck_assert_int_ne(prepare_ids(most[i].nr + 1, most[i].fields), 0);
		ck_assert_int_eq(err.status, 400);
		ck_assert_str_eq(err.param, "n");
		ck_assert_ptr_nonnull(strstr(err.message, "1048576"));
	}
	/* Alone each may report as much as it has. */
	ck_assert_int_eq(prepare_ids(60000, "\"prompt_logprobs\": 20"), 0);
	ck_assert_int_eq(prepare_ids(90000, "\"n\": 128"), 0);
}
END_TEST

START_TEST(test_salts)
{
	u64 a, b;

	ck_assert_int_eq(prepare(API_COMPLETION, "{\"prompt\":\"a\",\"cache_salt\":\"one\"}"), 0);
	a = p.salt;
	api_params_free(&p);
	ck_assert_int_eq(prepare(API_COMPLETION, "{\"prompt\":\"a\",\"cache_salt\":\"two\"}"), 0);
	b = p.salt;
	api_params_free(&p);
	ck_assert_int_eq(prepare(API_COMPLETION, "{\"prompt\":\"a\",\"cache_salt\":\"one\"}"), 0);
	ck_assert(a && b && a != b);
	ck_assert(p.salt == a);
	api_params_free(&p);
}
END_TEST

static void add_tests(TCase *tc)
{
	const int nr = (int)api_nr_fields;

	tcase_add_loop_test(tc, test_unsupported_fields, 0, nr);
	tcase_add_loop_test(tc, test_supported_fields, 0, nr);
	tcase_add_test(tc, test_session_members);
	tcase_add_loop_test(tc, test_best_of_and_beams, 0,
			    (int)ARRAY_SIZE(together));
	tcase_add_loop_test(tc, test_fields_of_openai, 0, (int)ARRAY_SIZE(openai));
	tcase_add_test(tc, test_stream_options);
	tcase_add_test(tc, test_unknown_field);
	tcase_add_loop_test(tc, test_no_bodies, 0, (int)ARRAY_SIZE(no_bodies));
	tcase_add_test(tc, test_deep_body);
	tcase_add_test(tc, test_mutilated_bodies);
	tcase_add_test(tc, test_prompt_forms);
	tcase_add_test(tc, test_long_prompts);
	tcase_add_test(tc, test_context_length);
	tcase_add_test(tc, test_too_many_samples);
	tcase_add_test(tc, test_echo);
	tcase_add_test(tc, test_chat_template);
	tcase_add_test(tc, test_bad_chats);
	tcase_add_test(tc, test_other_templates);
	tcase_add_test(tc, test_effort);
	tcase_add_test(tc, test_no_forged_turns);
	tcase_add_test(tc, test_template_refuses);
	tcase_add_test(tc, test_defaults);
	tcase_add_test(tc, test_values);
	tcase_add_test(tc, test_sampling_values);
	tcase_add_test(tc, test_bad_words);
	tcase_add_test(tc, test_sampling_judged);
	tcase_add_test(tc, test_told);
	tcase_add_test(tc, test_salts);
}

int main(void)
{
	Suite *s = suite_create("server-api");
	TCase *tc = tcase_create("fields");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 30);
	tcase_add_checked_fixture(tc, setup, teardown);
	add_tests(tc);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
