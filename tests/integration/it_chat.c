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
#include <poll.h>
#include <pty.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/serve.h"

#define LEFT	"\033[D"
#define UP	"\033[A"

static struct rig rig;
static struct served srv;
static char url[64];
static int term = -1;		/* the terminal's other end */
static pid_t chat;
static char screen[1 << 18];	/* all text that was printed */
static size_t len, seen;	/* its length, and the part that the test has waited for */

static void setup(void)
{
	rig_start(&rig, "--pool-size", "64M", "--extent-size", "1M", NULL);
	/* Slow, so that an answer can be stopped. */
	serve_start(&srv, &rig, "--kernels", "ref", NULL);
	serve_await(&srv, 200, 30);
	snprintf(url, sizeof(url), "http://127.0.0.1:%u", srv.port);
	len = seen = 0;
}

static void teardown(void)
{
	if (chat > 0) {
		kill(chat, SIGKILL);
		waitpid(chat, NULL, 0);
	}
	if (term >= 0)
		close(term);
	chat = 0;
	term = -1;
	rig_stop(&rig);
}

static void start(const char *more, const char *value)
{
	const struct winsize ws = { .ws_row = 30, .ws_col = 60 };
	const char *path = build_path("kvrt");

	chat = forkpty(&term, NULL, NULL, &ws);
	ck_assert_int_ge(chat, 0);
	if (!chat) {
		setenv("TERM", "xterm", 1);
		execl(path, "kvrt", "chat", url, "--temperature", "0",
		      more, value, NULL);
		_exit(127);
	}
}

static void type(const char *keys)
{
	ck_assert_int_eq(write(term, keys, strlen(keys)),
			 (ssize_t)strlen(keys));
}

static bool take(u32 ms)
{
	struct pollfd p = { .fd = term, .events = POLLIN };
	ssize_t n;

	if (poll(&p, 1, (int)ms) <= 0)
		return true;
	n = read(term, screen + len, sizeof(screen) - 1 - len);
	if (n <= 0)
		return false;
	len += (size_t)n;
	screen[len] = '\0';
	return true;
}

/* Wait until the text is printed, behind the text of the last call. */
static void see(const char *what)
{
	const u64 end = now_ms() + 10000 * time_scale();
	const char *at;

	while (!(at = strstr(screen + seen, what))) {
		if (!take(50) || now_ms() > end)
			ck_abort_msg("never seen: %s\nbut: %s", what,
				     screen + seen);
	}
	seen = (size_t)(at - screen) + strlen(what);
}

/* The chat must end without a signal from the test, with this code. */
static void ended(int want)
{
	const u64 end = now_ms() + 10000 * time_scale();
	int status;

	while (!waitpid(chat, &status, WNOHANG)) {
		take(20);
		ck_assert_msg(now_ms() < end, "it does not end:\n%s", screen);
	}
	chat = 0;
	ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == want,
		      "status %x:\n%s", status, screen);
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
	ck_assert_msg(screen[seen] >= '1' && screen[seen] <= '9',
		      "nothing was cached: %s", screen + seen);
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
	ended(0);
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
	ended(0);
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
		take(5);
	type("\003");
	see("stopped; at least ");
	n = (u32)strtoul(screen + seen, NULL, 10);
	see("> ");
	ck_assert_msg(n > 0 && n < 900, "%u tokens", n);
	serve_await_idle(&srv, 2000);
	list = saved();
	ck_assert_uint_eq(json_array_size(list), 2);
	ck_assert_str_eq(content(list, 0, "user"), "Tell me everything");
	ck_assert_uint_gt(strlen(content(list, 1, "assistant")), 0);
	json_decref(list);
	type("\004");
	ended(0);
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
	ended(0);
	ck_assert_ptr_nonnull(strstr(screen, "\033[?2004l"));
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
	see("nobody listens there");
	see("> ");
	list = saved();
	ck_assert_uint_eq(json_array_size(list), 2);
	json_decref(list);
	type("\004");
	ended(0);
}
END_TEST

/* The terminal's mode is restored, also when a signal ends the chat. */
START_TEST(test_terminal_restored)
{
	struct termios before, during, after;
	int status;

	start("--max-tokens", "3");
	ck_assert(!tcgetattr(term, &before));
	see("> ");
	type("x");
	see("x");
	ck_assert(!tcgetattr(term, &during));
	ck_assert(!(during.c_lflag & (ICANON | ECHO | ISIG)));
	kill(chat, SIGTERM);
	while (waitpid(chat, &status, WNOHANG) == 0)
		take(10);
	chat = 0;
	ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM);
	ck_assert(!tcgetattr(term, &after));
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
	snprintf(cmd, sizeof(cmd), "'%s' chat '%s' >%s 2>&1",
		 build_path("kvrt"), demo_model(), path);
	ck_assert_int_eq(WEXITSTATUS(system(cmd)), 64);
	text = slurp(path);
	ck_assert_msg(strstr(text, "is a folder: run `kvrt serve`") &&
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
