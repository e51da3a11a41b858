// SPDX-License-Identifier: Apache-2.0
/*
 * check_server_logprobs.c - logprobs in answers, from made-up tokens
 *
 * Results that are rare with an engine: halves of characters that look alike,
 * tokens that the model excludes, special tokens in the prompt, names that have
 * to be escaped.  Each answer must be JSON without a name twice in an object.
 */
#include <check.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#include "runtime/server/call.h"

#define K	4u
#define NR	6u

static struct tokenizer *tok;
static struct backend backend;
static struct service svc;
static struct call call;
static struct choice choice;
static struct work_prompt prompt;
static struct work_sample sample;
static struct api_prompt text;
static u32 prompt_ids[NR], ids[NR];
static struct work_told told[2][NR];
static struct token_logprob top[2][NR * K];

static u32 id_of(const char *bytes)
{
	const u32 id = tokenizer_find(tok, bytes, strlen(bytes));

	ck_assert_msg(id != TOKENIZER_NO_ID, "no token is '%s'", bytes);
	return id;
}

static void setup(void)
{
	const char *dir = getenv("KVMM_TOP");
	char path[512], err[TOKENIZER_ERR_MAX];

	snprintf(path, sizeof(path), "%s/tests/data/demo-model", dir ? dir : ".");
	ck_assert_msg(!tokenizer_load(path, &tok, err, sizeof(err)), "%s", err);
	memset(&call, 0, sizeof(call));
	memset(&choice, 0, sizeof(choice));
	memset(&text, 0, sizeof(text));
	memset(told, 0, sizeof(told));
	backend.api.tok = tok;
	call.work.b = &backend;
	call.svc = &svc;
	call.choices = &choice;
	call.nr_choices = 1;
	call.work.prompts = &prompt;
	call.params.kind = API_COMPLETION;
	call.params.logprobs = ENGINE_LOGPROBS(K);
	call.params.skip_special = true;
	call.params.prompts = &text;
	call.piece_max = detok_out_max(tok);
	call.piece = malloc(call.piece_max);
	prompt = (struct work_prompt){
		.ids = prompt_ids, .tops = { K, told[0], top[0] },
	};
	sample = (struct work_sample){
		.ids = ids, .tops = { K, told[1], top[1] },
	};
	choice.prompt = &prompt;
	choice.s = &sample;
	detok_init(&choice.lp, tok, true);
}

static void teardown(void)
{
	free(call.piece);
	tokenizer_free(tok);
}

/* Add one token of rank @rank, and up to four likeliest ones, each with a lower logprob. */
static void add(struct work_tops *tops, u32 i, u32 rank, const u32 *likeliest,
		u32 nr)
{
	u32 k;

	tops->told[i] = (struct work_told){
		.logprob = -(float)rank, .rank = rank, .nr_top = nr,
	};
	for (k = 0; k < nr; k++)
		tops->top[i * K + k] = (struct token_logprob){
			likeliest[k], -(float)(k + 1),
		};
}

/* The written member, as part of an object. */
static json_t *written(struct text *t)
{
	struct text whole = { 0 };
	json_error_t err;
	json_t *v;

	text_puts(&whole, "{\"a\":1");
	text_add(&whole, t->p, t->len);
	text_puts(&whole, "}");
	v = json_loadb(whole.p, whole.len, JSON_REJECT_DUPLICATES, &err);
	ck_assert_msg(v != NULL, "%s: %.*s", err.text, (int)whole.len, whole.p);
	text_free(&whole);
	text_free(t);
	return v;
}

static json_t *lists(u32 parts)
{
	struct text t = { 0 };

	logprobs_write(&call, 0, parts, &t);
	return written(&t);
}

static json_t *at(json_t *v, const char *list, size_t i)
{
	return json_array_get(json_object_get(json_object_get(v, "logprobs"),
					      list), i);
}

START_TEST(test_names_that_look_alike)
{
	const u32 halves[] = { id_of("\xc3"), id_of("\xe2"), id_of("a"),
			       id_of("\xc2") };
	json_t *v, *o;

	ids[0] = id_of("b");
	add(&sample.tops, 0, 7, halves, 4);
	ids[1] = halves[1];
	add(&sample.tops, 1, 2, halves, 4);
	ids[2] = halves[2];
	add(&sample.tops, 2, 3, halves, 3);
	choice.taken = 3;
	v = lists(LOGPROBS_TEXT);
	o = at(v, "top_logprobs", 0);
	ck_assert_uint_eq(json_object_size(o), 3);
	ck_assert(json_number_value(json_object_get(o, "b")) == -7);
	ck_assert(json_number_value(json_object_get(o, "\xef\xbf\xbd")) == -1);
	ck_assert(json_number_value(json_object_get(o, "a")) == -3);
	/* The token itself has its own logprob, even if another one looks like it. */
	o = at(v, "top_logprobs", 1);
	ck_assert_uint_eq(json_object_size(o), 2);
	ck_assert(json_number_value(json_object_get(o, "\xef\xbf\xbd")) == -2);
	ck_assert_uint_eq(json_object_size(at(v, "top_logprobs", 2)), 2);
	json_decref(v);
}
END_TEST

/* Characters of a name that are escaped, and ones that only look like its end. */
START_TEST(test_names_to_escape)
{
	const u32 odd[] = { id_of("\""), id_of(","), id_of("\\"), id_of(":") };
	json_t *v;

	ids[0] = odd[0];
	add(&sample.tops, 0, 1, odd, 4);
	choice.taken = 1;
	v = lists(LOGPROBS_TEXT);
	ck_assert_uint_eq(json_object_size(at(v, "top_logprobs", 0)), 4);
	ck_assert_str_eq(json_string_value(at(v, "tokens", 0)), "\"");
	json_decref(v);
}
END_TEST

/* JSON has no infinity, so an excluded token has -9999. */
START_TEST(test_excluded)
{
	json_t *v;

	ids[0] = id_of("a");
	add(&sample.tops, 0, 5, NULL, 0);
	told[1][0].logprob = -INFINITY;
	choice.taken = 1;
	v = lists(LOGPROBS_TEXT);
	ck_assert(json_number_value(at(v, "token_logprobs", 0)) == -9999);
	ck_assert(json_number_value(json_object_get(at(v, "top_logprobs", 0),
						    "a")) == -9999);
	json_decref(v);
}
END_TEST

static void offsets_are(json_t *v, const int *want, size_t nr)
{
	size_t i;

	ck_assert_uint_eq(json_array_size(json_object_get(json_object_get(
			  v, "logprobs"), "text_offset")), nr);
	for (i = 0; i < nr; i++)
		ck_assert_int_eq(json_integer_value(at(v, "text_offset", i)),
				 want[i]);
	json_decref(v);
}

/*
 * Offsets count characters.  A half begins where its character does; special
 * tokens have no text.  The text after a prompt begins where the prompt's text
 * ends, also in the middle of a character.
 */
START_TEST(test_offsets)
{
	static const int both[] = { 0, 0, 1, 1, 3, 3, 4 };
	static const int more[] = { 5 };
	u32 i;

	prompt_ids[0] = id_of("<|endoftext|>");
	prompt_ids[1] = id_of("a");
	prompt_ids[2] = id_of("\xc3");
	prompt_ids[3] = id_of("\xa9");
	prompt.nr = 4;
	/* The prompt's text differs from the text of its ids. */
	text.text = (char *)(uintptr_t)"a\xc3\xa9!";
	text.len = 4;
	ids[0] = id_of("\xc3");
	ids[1] = id_of("\xa8");
	ids[2] = id_of("c");
	ids[3] = id_of("a");
	for (i = 0; i < 4; i++) {
		add(&prompt.tops, i, 1, NULL, 0);
		add(&sample.tops, i, 1, NULL, 0);
	}
	if (_i) {
		offsets_are(lists(LOGPROBS_PROMPT), both, 4);
		choice.taken = 3;
		offsets_are(lists(LOGPROBS_TEXT), both + 4, 3);
	} else {
		choice.taken = 3;
		offsets_are(lists(LOGPROBS_PROMPT | LOGPROBS_TEXT), both, 7);
	}
	choice.told = 3;
	choice.taken = 4;
	offsets_are(lists(LOGPROBS_TEXT), more, 1);
}
END_TEST

START_TEST(test_prompt_logprobs)
{
	const u32 likeliest[] = { id_of("a"), id_of("\xc3"), id_of("b") };
	struct text t = { 0 };
	char own[16];
	json_t *v, *o;
	u32 i;

	for (i = 0; i < 3; i++)
		prompt_ids[i] = id_of(i == 1 ? "b" : "c");
	prompt.nr = 3;
	add(&prompt.tops, 1, 3, likeliest, 3);
	add(&prompt.tops, 2, 9, likeliest, 3);
	logprobs_prompt(&call, &prompt, &t);
	ck_assert_uint_eq(t.len, 0);
	/* Fewer tokens than are known, since echo asked for more. */
	call.params.prompt_logprobs = ENGINE_LOGPROBS(2);
	logprobs_prompt(&call, &prompt, &t);
	v = written(&t);
	o = json_object_get(v, "prompt_logprobs");
	ck_assert_uint_eq(json_array_size(o), 3);
	ck_assert(json_is_null(json_array_get(o, 0)));
	ck_assert_uint_eq(json_object_size(json_array_get(o, 1)), 3);
	ck_assert_uint_eq(json_object_size(json_array_get(o, 2)), 3);
	snprintf(own, sizeof(own), "%u", prompt_ids[1]);
	o = json_object_get(json_array_get(o, 1), own);
	ck_assert_int_eq(json_integer_value(json_object_get(o, "rank")), 3);
	ck_assert_str_eq(json_string_value(json_object_get(o, "decoded_token")),
			 "b");
	json_decref(v);
}
END_TEST

START_TEST(test_chat)
{
	const u32 halves[] = { id_of("\xc3"), id_of("\xe2") };
	json_t *v, *o, *tops;

	call.params.kind = API_CHAT;
	ids[0] = halves[1];
	add(&sample.tops, 0, 2, halves, 2);
	choice.taken = 1;
	v = lists(LOGPROBS_TEXT);
	o = at(v, "content", 0);
	ck_assert_int_eq(json_integer_value(json_array_get(
			 json_object_get(o, "bytes"), 0)), 0xe2);
	tops = json_object_get(o, "top_logprobs");
	ck_assert_uint_eq(json_array_size(tops), 2);
	ck_assert_int_eq(json_integer_value(json_array_get(json_object_get(
			 json_array_get(tops, 0), "bytes"), 0)), 0xc3);
	json_decref(v);
	call.params.logprobs = ENGINE_NO_LOGPROBS;
	v = lists(LOGPROBS_TEXT);
	ck_assert(json_is_null(json_object_get(v, "logprobs")));
	json_decref(v);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("server-logprobs");
	TCase *tc = tcase_create("answers");
	SRunner *sr;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_names_that_look_alike);
	tcase_add_test(tc, test_names_to_escape);
	tcase_add_test(tc, test_excluded);
	tcase_add_loop_test(tc, test_offsets, 0, 2);
	tcase_add_test(tc, test_prompt_logprobs);
	tcase_add_test(tc, test_chat);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
