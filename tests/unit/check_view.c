// SPDX-License-Identifier: Apache-2.0
/*
 * check_view.c - an answer is whole, an error, or a failure; never a guess
 *
 * A thread plays the daemon: it accepts once, reads the request line and
 * sends the bytes of the test.
 */
#include <check.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <kvmm/view.h>

#include "tests/tmp.h"

#define TIMEOUT_MS	300

static char dir[64];
static char path[KV_VIEW_PATH_MAX];
static int listener;
static struct seq_file text;

/* The server's answer, and the request that it got. */
static const char *answer;
static size_t answer_len;
static bool hang;
static char asked[256];

static void setup(void)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };

	ck_assert_ptr_nonnull(mkdtemp(tmp_name(dir, sizeof(dir), "view")));
	ck_assert_int_eq(kv_view_path(dir, path), 0);
	strcpy(sun.sun_path, path);
	listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(listener, (struct sockaddr *)&sun, sizeof(sun)),
			 0);
	ck_assert_int_eq(listen(listener, 4), 0);
	seq_init(&text, 1 << 20);
	hang = false;
}

static void teardown(void)
{
	seq_free(&text);
	close(listener);
	unlink(path);
	rmdir(dir);
}

static void *serve(void *arg)
{
	int fd = accept(listener, NULL, NULL);
	size_t len = 0;

	while (len < sizeof(asked) - 1 && read(fd, asked + len, 1) == 1 &&
	       asked[len] != '\n')
		len++;
	asked[len] = '\0';
	if (answer_len)
		send(fd, answer, answer_len, MSG_NOSIGNAL);
	if (hang)
		usleep(3 * TIMEOUT_MS * 1000);
	close(fd);
	return NULL;
}

static int ask_bytes(const char *bytes, size_t len, int *status)
{
	pthread_t thread;
	int err;

	answer = bytes;
	answer_len = len;
	*status = -1;
	ck_assert_int_eq(pthread_create(&thread, NULL, serve, NULL), 0);
	err = kv_view_ask(path, "cat meminfo", TIMEOUT_MS, status, &text);
	pthread_join(thread, NULL);
	return err;
}

static int ask(const char *bytes, int *status)
{
	return ask_bytes(bytes, strlen(bytes), status);
}

START_TEST(test_whole_answer)
{
	int status;

	ck_assert_int_eq(ask("ok 12\nhello\nworld\n", &status), 0);
	ck_assert_int_eq(status, 0);
	ck_assert_str_eq(seq_text(&text), "hello\nworld\n");
	ck_assert_uint_eq(text.count, 12);
	ck_assert_str_eq(asked, "cat meminfo");
}
END_TEST

START_TEST(test_empty_file)
{
	int status;

	ck_assert_int_eq(ask("ok 0\n", &status), 0);
	ck_assert_int_eq(status, 0);
	ck_assert_str_eq(seq_text(&text), "");
}
END_TEST

START_TEST(test_error_answer)
{
	int status;

	ck_assert_int_eq(ask("error 2 foo: no such file\n", &status), 0);
	ck_assert_int_eq(status, ENOENT);
	ck_assert_str_eq(seq_text(&text), "foo: no such file");
}
END_TEST

static int wait_for(const char *bytes, int *status, int *fd)
{
	pthread_t thread;
	int err;

	answer = bytes;
	answer_len = strlen(bytes);
	*status = -1;
	*fd = -1;
	ck_assert_int_eq(pthread_create(&thread, NULL, serve, NULL), 0);
	err = kv_view_wait(path, "wait a b", TIMEOUT_MS, status, &text, fd);
	pthread_join(thread, NULL);
	return err;
}

/* Lines that arrive with the answer are not lost; then the connection ends. */
START_TEST(test_wait)
{
	int status, fd;

	ck_assert_int_eq(wait_for("ok 0\nfired 1\nfired 2\n", &status, &fd), 0);
	ck_assert_int_eq(status, 0);
	ck_assert_str_eq(asked, "wait a b");
	ck_assert_int_eq(kv_view_fired(fd), 2);
	ck_assert_int_eq(kv_view_fired(fd), -ECONNABORTED);
	close(fd);
	ck_assert_int_eq(wait_for("error 22 no\n", &status, &fd), 0);
	ck_assert_int_eq(status, EINVAL);
	ck_assert_int_eq(fd, -1);
	ck_assert_str_eq(seq_text(&text), "no");
	ck_assert_int_eq(wait_for("ok 3\nabc", &status, &fd), -ECONNABORTED);
	ck_assert_int_eq(wait_for("ok", &status, &fd), -ECONNABORTED);
	ck_assert_int_eq(wait_for("what\n", &status, &fd), -EPROTO);
	ck_assert_int_eq(fd, -1);
}
END_TEST

/* A large answer arrives in many pieces. */
START_TEST(test_large_answer)
{
	size_t len = 700000, head;
	char *buf = malloc(len + 32);
	int status;

	head = sprintf(buf, "ok %zu\n", len);
	memset(buf + head, 'z', len);
	ck_assert_int_eq(ask_bytes(buf, head + len, &status), 0);
	ck_assert_uint_eq(text.count, len);
	ck_assert_int_eq(text.buf[len - 1], 'z');
	free(buf);
}
END_TEST

static const char * const cut[] = {
	"", "o", "ok", "ok 12", "ok 12\n", "ok 12\nhello\nworld",
	"error 2 foo: no such fi",
};

START_TEST(test_cut_answer)
{
	int status;

	ck_assert_int_eq(ask(cut[_i], &status), -ECONNABORTED);
}
END_TEST

static const char * const forged[] = {
	"\n", "ok\n", "ok x\n", "ok 5 \nhello", "ok 4\nhello", "OK 5\nhello",
	"ok 5\r\nhello", "error\n", "error x y\n", "error 0 fine\n",
	"error -2 foo\n", "error 2 foo\nbar\n", "HTTP/1.1 400 Bad Request\n",
};

START_TEST(test_forged_answer)
{
	int status;

	ck_assert_int_eq(ask(forged[_i], &status), -EPROTO);
}
END_TEST

START_TEST(test_text_longer_than_allowed)
{
	int status;

	seq_free(&text);
	seq_init(&text, 8);
	ck_assert_int_eq(ask("ok 12\nhello\nworld\n", &status), -EOVERFLOW);
}
END_TEST

START_TEST(test_silence_is_a_timeout)
{
	int status;

	hang = true;
	ck_assert_int_eq(ask("ok 12\nhello", &status), -ETIMEDOUT);
}
END_TEST

START_TEST(test_nobody_there)
{
	int status;

	close(listener);
	ck_assert_int_eq(kv_view_ask(path, "ls", TIMEOUT_MS, &status, &text),
			 -ECONNREFUSED);
	unlink(path);
	ck_assert_int_eq(kv_view_ask(path, "ls", TIMEOUT_MS, &status, &text),
			 -ENOENT);
	listener = dup(0);
}
END_TEST

/* The attach socket in the same directory has another type. */
START_TEST(test_wrong_kind_of_socket)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	int status;

	close(listener);
	unlink(path);
	strcpy(sun.sun_path, path);
	listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(listener, (struct sockaddr *)&sun, sizeof(sun)),
			 0);
	ck_assert_int_eq(listen(listener, 4), 0);
	ck_assert_int_eq(kv_view_ask(path, "ls", TIMEOUT_MS, &status, &text),
			 -EPROTOTYPE);
}
END_TEST

START_TEST(test_path_in_order_of_precedence)
{
	char want[96], got[KV_VIEW_PATH_MAX];

	setenv("KVMM_RUNDIR", "/r", 1);
	setenv("XDG_RUNTIME_DIR", "/x", 1);
	ck_assert_int_eq(kv_view_path("/somewhere/v.sock", got), 0);
	ck_assert_str_eq(got, "/somewhere/v.sock");
	snprintf(want, sizeof(want), "%s/view.sock", dir);
	ck_assert_int_eq(kv_view_path(dir, got), 0);
	ck_assert_str_eq(got, want);
	ck_assert_int_eq(kv_view_path(NULL, got), 0);
	ck_assert_str_eq(got, "/r/view.sock");
	setenv("KVMM_RUNDIR", "", 1);
	ck_assert_int_eq(kv_view_path(NULL, got), 0);
	ck_assert_str_eq(got, "/x/kvmm/view.sock");
	unsetenv("XDG_RUNTIME_DIR");
	ck_assert_int_eq(kv_view_path(NULL, got), 0);
	if (geteuid())
		snprintf(want, sizeof(want), "/tmp/kvmm-%u/view.sock",
			 (u32)geteuid());
	else
		strcpy(want, "/run/kvmm/view.sock");
	ck_assert_str_eq(got, want);
}
END_TEST

START_TEST(test_path_too_long)
{
	char longer[200], got[KV_VIEW_PATH_MAX];

	memset(longer, 'a', sizeof(longer));
	longer[199] = '\0';
	ck_assert_int_eq(kv_view_path(longer, got), -ENAMETOOLONG);
	setenv("KVMM_RUNDIR", longer, 1);
	ck_assert_int_eq(kv_view_path(NULL, got), -ENAMETOOLONG);
}
END_TEST

static Suite *view_suite(void)
{
	Suite *s = suite_create("view");
	TCase *tc = tcase_create("answers");

	tcase_set_tags(tc, "unit view");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_whole_answer);
	tcase_add_test(tc, test_empty_file);
	tcase_add_test(tc, test_error_answer);
	tcase_add_test(tc, test_wait);
	tcase_add_test(tc, test_large_answer);
	tcase_add_loop_test(tc, test_cut_answer, 0, ARRAY_SIZE(cut));
	tcase_add_loop_test(tc, test_forged_answer, 0, ARRAY_SIZE(forged));
	tcase_add_test(tc, test_text_longer_than_allowed);
	tcase_add_test(tc, test_silence_is_a_timeout);
	tcase_add_test(tc, test_nobody_there);
	tcase_add_test(tc, test_wrong_kind_of_socket);
	suite_add_tcase(s, tc);

	tc = tcase_create("path");
	tcase_set_tags(tc, "unit view");
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_path_in_order_of_precedence);
	tcase_add_test(tc, test_path_too_long);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(view_suite());
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
