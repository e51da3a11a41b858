// SPDX-License-Identifier: Apache-2.0
/*
 * check_server_tokens.c - /tokenize and /detokenize
 *
 * The tokens of a text are those that a completion of it has, and text and
 * tokens are each other's inverse.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include "runtime/server/api.h"
#include "runtime/server/tokens.h"
#include "runtime/template/chat.h"

static struct tokenizer *tok;
static struct chat *chat;
static struct model_info info;
static struct api_model m;
static struct api_error err;

static void setup(void)
{
	const char *dir = getenv("KVMM_TOP");
	char why[TOKENIZER_ERR_MAX], path[512];

	snprintf(path, sizeof(path), "%s/tests/data/demo-model", dir ? dir : ".");
	ck_assert_int_eq(tokenizer_load(path, &tok, why, sizeof(why)), 0);
	ck_assert_int_eq(chat_load(path, NULL, &chat, why, sizeof(why)), 0);
	info = (struct model_info){ .nr_vocab = 4096, .max_len = 1024 };
	m = (struct api_model){
		.name = "demo", .tok = tok, .info = &info, .chat = chat,
		.priority = 100, .max_samples = 200,
	};
}

static void teardown(void)
{
	chat_free(chat);
	tokenizer_free(tok);
}

/* The answer, or NULL with the error in err. */
static json_t *ask(enum api_kind kind, const char *body)
{
	json_t *root = json_loads(body, 0, NULL), *v = NULL;
	struct text t = { 0 };

	ck_assert_msg(root != NULL, "%s", body);
	memset(&err, 0, sizeof(err));
	if (!tokens_read(&m, kind, root, &t, &err)) {
		v = json_loadb(t.p, t.len, 0, NULL);
		ck_assert_msg(v != NULL, "%.*s", (int)t.len, t.p);
	} else {
		ck_assert_int_ge(err.status, 400);
	}
	text_free(&t);
	json_decref(root);
	return v;
}

static json_t *have(enum api_kind kind, const char *body)
{
	json_t *v = ask(kind, body);

	ck_assert_msg(v != NULL, "%s: %s", body, err.message);
	return v;
}

/* @v has the same tokens as the prompt of this request. */
static void same_as(json_t *v, enum api_kind kind, const char *body)
{
	json_t *ids = json_object_get(v, "tokens");
	struct api_params p;
	u32 i;

	ck_assert_int_eq(api_prepare(&m, kind, body, strlen(body), &p, &err), 0);
	ck_assert_uint_eq(json_array_size(ids), p.prompts[0].nr);
	ck_assert_int_eq(json_integer_value(json_object_get(v, "count")),
			 p.prompts[0].nr);
	for (i = 0; i < p.prompts[0].nr; i++)
		ck_assert_int_eq(json_integer_value(json_array_get(ids, i)),
				 p.prompts[0].ids[i]);
	api_params_free(&p);
}

START_TEST(test_prompt)
{
	json_t *v = have(API_TOKENIZE, "{\"prompt\":\"In the beginning\"}");

	same_as(v, API_COMPLETION, "{\"prompt\":\"In the beginning\",\"max_tokens\":1}");
	ck_assert_int_eq(json_integer_value(json_object_get(v, "max_model_len")), 1024);
	ck_assert(json_is_null(json_object_get(v, "token_strs")));
	json_decref(v);
	v = have(API_TOKENIZE, "{\"model\":\"demo\",\"prompt\":\"In\",\"add_special_tokens\":false}");
	same_as(v, API_COMPLETION, "{\"prompt\":\"In\",\"add_special_tokens\":false,\"max_tokens\":1}");
	json_decref(v);
	v = have(API_TOKENIZE, "{\"prompt\":\"\",\"add_special_tokens\":false}");
	ck_assert_int_eq(json_integer_value(json_object_get(v, "count")), 0);
	ck_assert(json_is_array(json_object_get(v, "tokens")));
	json_decref(v);
}
END_TEST

START_TEST(test_messages)
{
	json_t *v = have(API_TOKENIZE, "{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}]}");

	same_as(v, API_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}],\"max_tokens\":1}");
	json_decref(v);
	v = have(API_TOKENIZE, "{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}],\"add_generation_prompt\":false,\"add_special_tokens\":true,\"chat_template_kwargs\":{\"x\":1}}");
	same_as(v, API_CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"Hello\"}],\"max_tokens\":1,\"add_generation_prompt\":false,\"add_special_tokens\":true,\"chat_template_kwargs\":{\"x\":1}}");
	json_decref(v);
}
END_TEST

/* The texts of the tokens together are the text. */
START_TEST(test_strings)
{
	json_t *v = have(API_TOKENIZE, "{\"prompt\":\"In the beginning\",\"add_special_tokens\":false,\"return_token_strs\":true}");
	json_t *strs = json_object_get(v, "token_strs");
	char all[64] = "";
	size_t i;

	ck_assert_uint_eq(json_array_size(strs), json_array_size(json_object_get(v, "tokens")));
	for (i = 0; i < json_array_size(strs); i++)
		strcat(all, json_string_value(json_array_get(strs, i)));
	ck_assert_str_eq(all, "In the beginning");
	json_decref(v);
}
END_TEST

/* A text longer than the context is counted all the same. */
START_TEST(test_long)
{
	const size_t n = 60000;
	char *body = malloc(n + 64);
	json_t *v;
	size_t i;

	ck_assert_ptr_nonnull(body);
	strcpy(body, "{\"prompt\":\"");
	for (i = 0; i < n; i += 4)
		strcat(body + 11 + i, "the ");
	strcat(body, "\"}");
	v = have(API_TOKENIZE, body);
	ck_assert_int_gt(json_integer_value(json_object_get(v, "count")), 10000);
	json_decref(v);
	free(body);
}
END_TEST

START_TEST(test_there_and_back)
{
	static const char text[] = "Der K\xc3\xb6nig \xf0\x9f\x91\x91 said: \"no\"\n";
	json_t *q = json_pack("{s:s, s:b}", "prompt", text, "add_special_tokens", 0);
	char *body = json_dumps(q, 0);
	json_t *v = have(API_TOKENIZE, body), *back;

	free(body);
	json_decref(q);
	q = json_pack("{s:O}", "tokens", json_object_get(v, "tokens"));
	body = json_dumps(q, 0);
	back = have(API_DETOKENIZE, body);
	ck_assert_str_eq(json_string_value(json_object_get(back, "prompt")), text);
	ck_assert_uint_eq(json_object_size(back), 1);
	free(body);
	json_decref(q);
	json_decref(v);
	json_decref(back);
	v = have(API_DETOKENIZE, "{\"tokens\":[],\"model\":null}");
	ck_assert_str_eq(json_string_value(json_object_get(v, "prompt")), "");
	json_decref(v);
}
END_TEST

static const struct {
	enum api_kind	kind;
	const char	*body;
	int		status;
	const char	*code;
	const char	*param;
} refusals[] = {
	{ API_TOKENIZE, "[]", 400, "invalid_json", "" },
	{ API_TOKENIZE, "{}", 400, "missing_parameter", "prompt" },
	{ API_TOKENIZE, "{\"prompt\":null}", 400, "invalid_value", "prompt" },
	{ API_TOKENIZE, "{\"prompt\":[\"a\"]}", 400, "invalid_value", "prompt" },
	{ API_TOKENIZE, "{\"prompt\":[1]}", 400, "invalid_value", "prompt" },
	{ API_TOKENIZE, "{\"prompt\":\"a\",\"messages\":[]}", 400, "invalid_value", "messages" },
	{ API_TOKENIZE, "{\"messages\":[]}", 400, "invalid_value", "messages" },
	{ API_TOKENIZE, "{\"prompt\":\"a\",\"model\":\"b\"}", 404, "model_not_found", "model" },
	{ API_TOKENIZE, "{\"prompt\":\"a\",\"model\":7}", 400, "invalid_value", "model" },
	{ API_TOKENIZE, "{\"prompt\":\"a\",\"max_tokens\":7}", 400, "unknown_parameter", "max_tokens" },
	{ API_TOKENIZE, "{\"prompt\":\"a\",\"add_generation_prompt\":true}", 400, "unknown_parameter", "add_generation_prompt" },
	{ API_TOKENIZE, "{\"prompt\":\"a\",\"add_special_tokens\":1}", 400, "invalid_value", "add_special_tokens" },
	{ API_TOKENIZE, "{\"prompt\":\"a\",\"return_token_strs\":1}", 400, "invalid_value", "return_token_strs" },
	{ API_DETOKENIZE, "[7]", 400, "invalid_json", "" },
	{ API_DETOKENIZE, "{}", 400, "missing_parameter", "tokens" },
	{ API_DETOKENIZE, "{\"tokens\":\"a\"}", 400, "invalid_value", "tokens" },
	{ API_DETOKENIZE, "{\"tokens\":[1,-1]}", 400, "invalid_value", "tokens" },
	{ API_DETOKENIZE, "{\"tokens\":[4096]}", 400, "invalid_value", "tokens" },
	{ API_DETOKENIZE, "{\"tokens\":[1.0]}", 400, "invalid_value", "tokens" },
	{ API_DETOKENIZE, "{\"tokens\":[1],\"model\":7}", 400, "invalid_value", "model" },
	{ API_DETOKENIZE, "{\"tokens\":[1],\"prompt\":\"a\"}", 400, "unknown_parameter", "prompt" },
};

START_TEST(test_refusals)
{
	json_t *v = ask(refusals[_i].kind, refusals[_i].body);

	ck_assert_msg(!v && err.status == refusals[_i].status &&
		      !strcmp(err.code, refusals[_i].code) &&
		      !strcmp(err.param, refusals[_i].param), "%s: %d %s %s",
		      refusals[_i].body, err.status, err.code, err.param);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("server-tokens");
	TCase *tc = tcase_create("tokens");
	SRunner *sr;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_prompt);
	tcase_add_test(tc, test_messages);
	tcase_add_test(tc, test_strings);
	tcase_add_test(tc, test_long);
	tcase_add_test(tc, test_there_and_back);
	tcase_add_loop_test(tc, test_refusals, 0, ARRAY_SIZE(refusals));
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
