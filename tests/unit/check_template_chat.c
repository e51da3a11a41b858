// SPDX-License-Identifier: Apache-2.0
/*
 * check_template_chat.c - chat templates of a model's folder
 */
#include <check.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/template/chat.h"

static char dir[128], why[512];
static struct chat *chat;
static struct tmpl_error err;

static void setup(void)
{
	const char *tmp = getenv("TMPDIR");

	snprintf(dir, sizeof(dir), "%s/chat.XXXXXX", tmp ? tmp : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(dir));
}

static void teardown(void)
{
	char command[200];

	chat_free(chat);
	snprintf(command, sizeof(command), "rm -rf '%s'", dir);
	ck_assert_int_eq(system(command), 0);
}

static void file_write(const char *name, const char *text)
{
	char path[256];
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s", dir, name);
	f = fopen(path, "w");
	ck_assert_ptr_nonnull(f);
	ck_assert_int_ge(fputs(text, f), 0);
	ck_assert_int_eq(fclose(f), 0);
}

static void expect(const struct chat_input *in, const char *want)
{
	size_t len;
	char *text = chat_render(chat, in, NULL, &len, &err);

	ck_assert_msg(text, "%s", err.text);
	ck_assert_str_eq(text, want);
	free(text);
}

/* A folder that has only @config */
static int load(const char *config)
{
	chat_free(chat);
	file_write("tokenizer_config.json", config);
	return chat_load(dir, NULL, &chat, why, sizeof(why));
}

START_TEST(test_demo)
{
	const char *top = getenv("KVMM_TOP");
	struct chat_input in = { .messages = json_pack("[{ssss}]", "role",
				 "user", "content", " Hello ") };
	char path[512];

	snprintf(path, sizeof(path), "%s/tests/data/demo-model",
		 top ? top : ".");
	ck_assert_msg(!chat_load(path, NULL, &chat, why, sizeof(why)), "%s", why);
	expect(&in, "<|endoftext|>Hello\n\n");
	json_decref((json_t *)(uintptr_t)in.messages);
}
END_TEST

START_TEST(test_tokens)
{
	struct chat_input in = { .messages = json_array() };

	ck_assert_int_eq(load("{\"bos_token\": {\"content\": \"<s>\"},"
			      "\"eos_token\": \"</s>\", \"pad_token\": null,"
			      "\"model_max_length\": 1000000000000000019884624838656,"
			      "\"chat_template\": \"{{ bos_token }}{{ eos_token }}"
			      "{{ pad_token is defined }}{{ tools }}{{ documents }}"
			      "{{ add_generation_prompt }}{{ messages }}\"}"), 0);
	expect(&in, "<s></s>FalseNoneNoneFalse[]");
	in.add_generation_prompt = true;
	in.tools = in.documents = in.messages;
	in.more = json_pack("{s:s,s:i}", "eos_token", "E", "tools", 1);
	expect(&in, "<s>EFalse[][]True[]");
	json_decref((json_t *)(uintptr_t)in.more);
	json_decref((json_t *)(uintptr_t)in.messages);
}
END_TEST

START_TEST(test_named)
{
	static const char config[] =
		"{\"chat_template\": [{\"name\": \"default\", \"template\": \"D\"},"
		"{\"name\": \"tool_use\", \"template\": \"T\"},"
		"{\"name\": \"rag\", \"template\": \"R\"}]}";
	struct chat_input in = { .messages = json_array() };
	size_t len;

	ck_assert_int_eq(load(config), 0);
	expect(&in, "D");
	in.tools = in.messages;
	expect(&in, "T");
	in.name = "rag";
	expect(&in, "R");
	in.name = "other";
	ck_assert_ptr_null(chat_render(chat, &in, NULL, &len, &err));
	ck_assert_ptr_nonnull(strstr(err.text, "'other'"));
	in.name = NULL;
	/* Files have precedence over the configuration. */
	file_write("chat_template.jinja", "{{ 'file' }}\n");
	ck_assert_int_eq(load(config), 0);
	expect(&in, "T");
	in.tools = NULL;
	expect(&in, "file");
	ck_assert_int_eq(mkdir(strcat(dir, "/additional_chat_templates"), 0700),
			 0);
	file_write("tool_use.jinja", "tools");
	file_write("not-one.txt", "{{");
	*strrchr(dir, '/') = 0;
	ck_assert_int_eq(load(config), 0);
	in.tools = in.messages;
	expect(&in, "tools");
	json_decref((json_t *)(uintptr_t)in.messages);
}
END_TEST

START_TEST(test_wrong)
{
	static const struct {
		const char	*config;
		int		ret;
		const char	*words;
	} wrong[] = {
		{ "{}", -ENOENT, "no chat template" },
		{ "{\"chat_template\": null}", -ENOENT, "no chat template" },
		{ "{\"chat_template\": 5}", -EINVAL, "neither" },
		{ "{\"chat_template\": [{}]}", -EINVAL, "chat_template[0]" },
		{ "{\"chat_template\": \"a\\n{% include 'x' %}\"}", -EINVAL,
		  "tokenizer_config.json: chat template 'default', line 2:4: the tag 'include'" },
		{ "{", -EINVAL, "tokenizer_config.json: line 1" },
		{ "{\"chat_template\": [{\"name\": \"\\u001b[2J\", \"template\": \"{{\"}]}",
		  -EINVAL, "chat template '?[2J', line 1" },
	};
	u32 i;

	for (i = 0; i < ARRAY_SIZE(wrong); i++) {
		chat = NULL;
		ck_assert_int_eq(load(wrong[i].config), wrong[i].ret);
		ck_assert_msg(strstr(why, wrong[i].words), "%s", why);
		ck_assert_ptr_null(chat);
	}
	unlink(strcat(dir, "/tokenizer_config.json"));
	*strrchr(dir, '/') = 0;
	ck_assert_int_eq(chat_load(dir, NULL, &chat, why, sizeof(why)), -ENOENT);
}
END_TEST

/* A pipe or an endless file in place of a template is refused, not read */
START_TEST(test_no_file)
{
	char path[256];

	file_write("tokenizer_config.json", "{\"chat_template\": \"x\"}");
	snprintf(path, sizeof(path), "%s/chat_template.jinja", dir);
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	ck_assert_int_eq(chat_load(dir, NULL, &chat, why, sizeof(why)), -EINVAL);
	ck_assert_msg(strstr(why, "jinja: not a regular file"), "%s", why);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(symlink("/dev/zero", path), 0);
	ck_assert_int_eq(chat_load(dir, NULL, &chat, why, sizeof(why)), -EINVAL);
	ck_assert_msg(strstr(why, "jinja: not a regular file"), "%s", why);
	ck_assert_int_eq(unlink(path), 0);
	snprintf(path, sizeof(path), "%s/tokenizer_config.json", dir);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(symlink("/dev/zero", path), 0);
	ck_assert_int_eq(chat_load(dir, NULL, &chat, why, sizeof(why)), -EINVAL);
	ck_assert_msg(strstr(why, "config.json: not a regular file"), "%s", why);
	ck_assert_int_eq(unlink(path), 0);
	file_write("tokenizer_config.json", "version https://git-lfs.github.com/spec/v1\n");
	ck_assert_int_eq(chat_load(dir, NULL, &chat, why, sizeof(why)), -EINVAL);
	ck_assert_msg(strstr(why, "config.json: a Git LFS pointer"), "%s", why);
}
END_TEST

/* Messages whose form in OpenAI's API differs from the one that templates want */
START_TEST(test_messages)
{
	json_t *messages = json_loads(
		"[{\"role\": \"assistant\", \"reasoning\": \"r\", \"tool_calls\":"
		"[{\"function\": {\"name\": \"f\", \"arguments\": \"{\\\"a\\\": 1}\"}},"
		"{\"function\": {\"name\": \"g\", \"arguments\": \"no\"}}]}]", 0,
		NULL);
	char *before = json_dumps(messages, 0), *after;
	struct chat_input in = { .messages = messages };

	ck_assert_int_eq(load("{\"chat_template\": \"{% for c in messages[0].tool_calls %}"
			      "{{ c.function.arguments | tojson }}{% endfor %}"
			      "{{ messages[0].thinking }}{{ messages[0].reasoning_content }}\"}"),
			 0);
	expect(&in, "\"{\\\"a\\\": 1}\"\"no\"rr");
	in.parse_arguments = true;
	expect(&in, "{\"a\": 1}\"no\"rr");
	after = json_dumps(messages, 0);
	ck_assert_str_eq(before, after);
	free(before);
	free(after);
	json_decref(messages);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("template chat");
	TCase *tc = tcase_create("all");
	SRunner *sr;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_demo);
	tcase_add_test(tc, test_tokens);
	tcase_add_test(tc, test_named);
	tcase_add_test(tc, test_wrong);
	tcase_add_test(tc, test_messages);
	tcase_add_test(tc, test_no_file);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? 1 : 0;
}
