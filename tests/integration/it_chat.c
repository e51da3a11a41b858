// SPDX-License-Identifier: Apache-2.0
/*
 * it_chat.c - kvrt chat as a person uses it
 *
 * kvrt chat runs on a pseudo terminal and gets keys as a terminal sends them,
 * with kvrt serve behind it.  The test waits for the text that a person would
 * see; the chat that /save writes shows the messages that the model got.
 *
 * budget: 60 s
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "tests/integration/serve.h"
#include "tests/integration/terminal.h"

#define LEFT	"\033[D"
#define UP	"\033[A"

static struct rig rig;
static struct served srv;
static char url[64];
static struct terminal term = { .fd = -1 };

static void setup(void)
{
	rig_start(&rig, "--pool-size", "64M", "--extent-size", "1M", NULL);
	/* Slow, so that an answer can be stopped. */
	serve_start(&srv, &rig, "--kernels", "ref", NULL);
	serve_await(&srv, 200, 30);
	snprintf(url, sizeof(url), "http://127.0.0.1:%u", srv.port);
}

static void teardown(void)
{
	terminal_stop(&term);
	rig_stop(&rig);
}

static void start(const char *more, const char *value)
{
	char *const argv[] = {
		(char *)"kvrt", (char *)"chat", url, (char *)"--temperature",
		(char *)"0", (char *)(uintptr_t)more,
		(char *)(uintptr_t)value, NULL
	};

	terminal_start(&term, "kvrt", argv);
}

static void type(const char *keys)
{
	terminal_type(&term, keys);
}

static void see(const char *what)
{
	terminal_see(&term, what);
}

/* The messages of the chat, by way of /save. */
static json_t *saved(void)
{
	char path[RIG_PATH + 16], keys[RIG_PATH + 32];
	json_t *v, *list;

	snprintf(path, sizeof(path), "%s/chat.json", rig.dir);
	unlink(path);
	snprintf(keys, sizeof(keys), "/save %s\r", path);
	type(keys);
	see(" messages are in ");
	v = json_load_file(path, 0, NULL);
	ck_assert_ptr_nonnull(v);
	list = json_incref(json_object_get(v, "messages"));
	json_decref(v);
	return list;
}

static const char *content(json_t *list, size_t i, const char *role)
{
	json_t *m = json_array_get(list, i);

	ck_assert_ptr_nonnull(m);
	ck_assert_str_eq(json_string_value(json_object_get(m, "role")), role);
	return json_string_value(json_object_get(m, "content"));
}

START_TEST(test_talk)
{
	json_t *list;

	start("--max-tokens", "20");
	see("demo-model at http://");
	see("> ");
	/* Correct wrong letters, in a line with wide ones. */
	type("Gr\xc3\xbc\xc3\x9f" "e \xe6\x97\xa5\xe6\x9c\xacx" "\177" " endd"
	     "\177\033[HX" LEFT "\033[3~");
	type("\r");
	see("20 tokens, ");
	see("; cached ");
	see("> ");
	/* A second turn begins with the first, which is cached. */
	type(UP " again\r");
	see("20 tokens, ");
	see("; cached ");
	ck_assert_msg(term.screen[term.seen] >= '1' && term.screen[term.seen] <= '9',
		      "nothing was cached: %s", term.screen + term.seen);
	see("> ");
	list = saved();
	ck_assert_uint_eq(json_array_size(list), 4);
	ck_assert_str_eq(content(list, 0, "user"),
			 "Gr\xc3\xbc\xc3\x9f" "e \xe6\x97\xa5\xe6\x9c\xac end");
	ck_assert_str_eq(content(list, 2, "user"),
			 "Gr\xc3\xbc\xc3\x9f" "e \xe6\x97\xa5\xe6\x9c\xac end again");
	ck_assert_uint_gt(strlen(content(list, 1, "assistant")), 0);
	json_decref(list);
	type("\004");
	terminal_ended(&term, 0);
	serve_stop(&srv);
}
END_TEST

START_TEST(test_commands)
{
	json_t *list;

	start("--max-tokens", "5");
	see("> ");
	type("/help\r");
	see("/undo");
	see("> ");
	type("/nonsense\r");
	see("/nonsense is no command");
	type("/system Be brief.\r");
	see("from the next turn on");
	see("> ");
	type("One\r");
	see("5 tokens");
	see("> ");
	type("Two\r");
	see("5 tokens");
	see("> ");
	type("/undo\r");
	see("The last turn is forgotten");
	see("> ");
	type("/stats\r");
	see("2 turns, 10 tokens in ");
	list = saved();
	ck_assert_uint_eq(json_array_size(list), 3);
	ck_assert_str_eq(content(list, 0, "system"), "Be brief.");
	ck_assert_str_eq(content(list, 1, "user"), "One");
	json_decref(list);
	/* Keys that arrive at once are not lost. */
	type("/reset\r/undo\r");
	see("Forgotten");
	see("Nothing was said yet");
	list = saved();
	ck_assert_uint_eq(json_array_size(list), 1);
	json_decref(list);
	type("/quit\r");
	terminal_ended(&term, 0);
	serve_stop(&srv);
}
END_TEST

/* Ctrl-C stops the answer, also at the server; the chat goes on. */
START_TEST(test_interrupt)
{
	json_t *list;
	u32 n;

	start("--max-tokens", "900");
	see("> ");
	type("lost\003");
	see("^C");
	see("> ");
	type("Tell me everything\r");
	while (serve_figure(&srv, "kvrt_generation_tokens_total") < 10)
		terminal_take(&term, 5);
	type("\003");
	see("stopped; at least ");
	n = (u32)strtoul(term.screen + term.seen, NULL, 10);
	see("> ");
	ck_assert_msg(n > 0 && n < 900, "%u tokens", n);
	serve_await_idle(&srv, 2000);
	list = saved();
	ck_assert_uint_eq(json_array_size(list), 2);
	ck_assert_str_eq(content(list, 0, "user"), "Tell me everything");
	ck_assert_uint_gt(strlen(content(list, 1, "assistant")), 0);
	json_decref(list);
	type("\004");
	terminal_ended(&term, 0);
	serve_stop(&srv);
}
END_TEST

/* Pasted text is one line, though it has several; keys typed early are kept. */
START_TEST(test_paste)
{
	json_t *list;

	start("--max-tokens", "3");
	see("\033[?2004h");
	see("> ");
	type("\033[200~/first\nsecond\r\nthird\033[201~");
	see("\xe2\x86\xb5third");
	type("\033[Hx\r");
	see("3 tokens");
	type("typed ahead\r");
	see("3 tokens");
	see("> ");
	list = saved();
	ck_assert_uint_eq(json_array_size(list), 4);
	ck_assert_str_eq(content(list, 0, "user"),
			 "x/first\nsecond\n\nthird");
	ck_assert_str_eq(content(list, 2, "user"), "typed ahead");
	json_decref(list);
	type("\004");
	terminal_ended(&term, 0);
	ck_assert_ptr_nonnull(strstr(term.screen, "\033[?2004l"));
	serve_stop(&srv);
}
END_TEST

/* Without the server the chat prints a line, forgets the message and goes on. */
START_TEST(test_server_gone)
{
	json_t *list;

	start("--max-tokens", "3");
	see("> ");
	type("One\r");
	see("3 tokens");
	see("> ");
	serve_stop(&srv);
	type("Two\r");
	see("no server listens there");
	see("> ");
	list = saved();
	ck_assert_uint_eq(json_array_size(list), 2);
	json_decref(list);
	type("\004");
	terminal_ended(&term, 0);
}
END_TEST

/* The terminal's mode is restored, also when a signal ends the chat. */
START_TEST(test_terminal_restored)
{
	struct termios before, during, after;
	int status;

	start("--max-tokens", "3");
	ck_assert(!tcgetattr(term.fd, &before));
	see("> ");
	type("x");
	see("x");
	ck_assert(!tcgetattr(term.fd, &during));
	ck_assert(!(during.c_lflag & (ICANON | ECHO | ISIG)));
	kill(term.pid, SIGTERM);
	status = terminal_wait(&term);
	ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
	ck_assert(!tcgetattr(term.fd, &after));
	ck_assert_uint_eq(after.c_lflag, ICANON | ECHO | ISIG | (after.c_lflag
			  & ~(tcflag_t)(ICANON | ECHO | ISIG)));
	serve_stop(&srv);
}
END_TEST

/* Lines come from a pipe: no prompts, no editing. */
START_TEST(test_pipe)
{
	char cmd[512], path[RIG_PATH + 16], *text;

	snprintf(path, sizeof(path), "%s/said", rig.dir);
	snprintf(cmd, sizeof(cmd), "printf 'One\\n/stats\\n' | '%s' chat %s --max-tokens 4 >%s 2>&1",
		 build_path("kvrt"), url, path);
	ck_assert_int_eq(system(cmd), 0);
	text = slurp(path);
	ck_assert_msg(strstr(text, "\n1 turn, 4 tokens in "), "%s", text);
	ck_assert_msg(!strchr(text, '\033') && !strstr(text, "> "), "%s",
		      text);
	free(text);
	snprintf(cmd, sizeof(cmd), "'%s' chat 127.0.0.1:80 >%s 2>&1",
		 build_path("kvrt"), path);
	ck_assert_int_eq(WEXITSTATUS(system(cmd)), 64);
	text = slurp(path);
	ck_assert_msg(strstr(text, "write it like http://") &&
		      count_lines(text) == 1, "%s", text);
	free(text);
	serve_stop(&srv);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("chat");
	TCase *tc = tcase_create("terminal");
	SRunner *sr;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, test_talk);
	tcase_add_test(tc, test_commands);
	tcase_add_test(tc, test_interrupt);
	tcase_add_test(tc, test_paste);
	tcase_add_test(tc, test_server_gone);
	tcase_add_test(tc, test_terminal_restored);
	tcase_add_test(tc, test_pipe);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
