// SPDX-License-Identifier: Apache-2.0
/*
 * check_ask.c - kvrt ask against servers of every kind
 *
 * A child plays the server: it takes one connection after the other, keeps the
 * requests and sends the answers of the test, whole or byte by byte.  The
 * output of kvrt ask and its exit code are compared with the expected ones.
 */
#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/cli/cli.h"
#include "runtime/cli/web.h"
#include "tests/unit/fake_server.h"

#define OK	"HTTP/1.1 200 OK\r\n"
#define STREAM	OK "Content-Type: text/event-stream\r\n\r\n"
#define DONE	"data: [DONE]\n\n"

static char said[16384];	/* both streams of kvrt ask */
static const char *out_path;	/* replaces its standard output */

/* Answer as many connections as there are answers, @piece bytes at a time. */
static void serve(const char * const *answers, size_t piece)
{
	server = fork();
	ck_assert_int_ge(server, 0);
	if (server)
		return;
	for (; *answers; answers++) {
		const int fd = accept(listener, NULL, NULL);
		const char *p = *answers, *end = p + strlen(p);

		serve_read(fd);
		while (p < end) {
			size_t n = min((size_t)(end - p), piece);

			if (send(fd, p, n, MSG_NOSIGNAL) <= 0)
				break;
			p += n;
			usleep(piece > 100 ? 0 : 50);
		}
		close(fd);
	}
	pause();
}

/* Run kvrt ask.  Return: its exit code; @said has its output. */
static int ask(const char * const *args)
{
	char *argv[16] = { (char[]){ "ask" } };
	int fd[2], status, argc = 1;
	size_t len = 0;
	ssize_t n;
	pid_t pid;

	for (; *args; args++)
		argv[argc++] = strdup(*args);
	ck_assert(!pipe(fd));
	pid = fork();
	if (!pid) {
		dup2(fd[1], STDOUT_FILENO);
		dup2(fd[1], STDERR_FILENO);
		close(fd[0]);
		if (out_path)
			dup2(open(out_path, O_WRONLY), STDOUT_FILENO);
		kv_log_init("kvrt", KV_LOG_INFO);
		status = cli_ask(argc, argv);
		fflush(stdout);
		_exit(status);
	}
	close(fd[1]);
	while ((n = read(fd[0], said + len, sizeof(said) - 1 - len)) > 0)
		len += (size_t)n;
	said[len] = '\0';
	close(fd[0]);
	while (argc > 1)
		free(argv[--argc]);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status), "kvrt ask died:\n%s", said);
	return WEXITSTATUS(status);
}

#define ASK(...)	ask((const char * const []){ __VA_ARGS__, NULL })
#define SERVE(piece, ...) \
	serve((const char * const []){ __VA_ARGS__, NULL }, piece)

static const char *requests(void)
{
	static char all[65536];

	rewind(asked);
	all[fread(all, 1, sizeof(all) - 1, asked)] = '\0';
	return all;
}

/* ---- URLs ---- */

START_TEST(test_urls)
{
	static const struct {
		const char *url, *host, *port, *base, *shown;
	} good[] = {
		{ "http://a", "a", "80", "", "http://a:80" },
		{ "HTTP://a:8000/", "a", "8000", "", "http://a:8000" },
		{ "http://a:8000/v1", "a", "8000", "", "http://a:8000" },
		{ "http://a:8000/v1/", "a", "8000", "", "http://a:8000" },
		{ "http://a:1/x/v1//", "a", "1", "/x", "http://a:1" },
		{ "http://a/xv1", "a", "80", "/xv1", "http://a:80" },
		{ "http://[::1]:9", "::1", "9", "", "http://[::1]:9" },
		{ "http://a:65535", "a", "65535", "", "http://a:65535" },
	};
	static const char * const bad[] = {
		"", "a", "a:80", "https://a", "http://", "http:///v1",
		"http://:80", "http://a:", "http://a:x", "http://a:123456",
		"http://a:99999", "http://a:65536", "http://a:0",
		"http://[::1", "http://a:80x", "http://a/b c", "http://a/\r\nX",
		"ftp://a", "unix:", "unix:x.sock",
	};
	struct web_server s;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(good); i++) {
		ck_assert_msg(!web_parse_url(&s, good[i].url), "%s",
			      good[i].url);
		ck_assert_str_eq(s.host, good[i].host);
		ck_assert_str_eq(s.port, good[i].port);
		ck_assert_str_eq(s.base, good[i].base);
		ck_assert_str_eq(s.shown, good[i].shown);
	}
	ck_assert(!web_parse_url(&s, "unix:/run/x.sock"));
	ck_assert_str_eq(s.path, "/run/x.sock");
	ck_assert_str_eq(s.shown, "unix:/run/x.sock");
	for (i = 0; i < ARRAY_SIZE(bad); i++)
		ck_assert_msg(web_parse_url(&s, bad[i]) == -EINVAL, "%s",
			      bad[i]);
}
END_TEST

/* ---- streams ---- */

/* Answers whole or byte by byte, in chunks or up to the end of the connection. */
START_TEST(test_stream)
{
	static const char * const answers[] = {
		STREAM ": a comment\n\n"
		"data: {\"choices\":[{\"index\":0,\"text\":\"gr\\u00fc\\u00df\"}],\"usage\":null}\n\n"
		"data:{\"choices\":[{\"index\":0,\"text\":\" dich\",\"finish_reason\":\"stop\"}]}\r\n\r\n"
		"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":8,\"completion_tokens\":2,\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\n"
		DONE,
		OK "transfer-ENCODING: chunked\r\n\r\n"
		"f\r\ndata: {\"choices\r\n"
		"30;x=y\r\n\":[{\"index\":0,\"delta\":{\"content\":\"gr\xc3\xbc\xc3\x9f dich\"}}\r\n"
		"3\r\n]}\n\r\n"
		"3f\r\n\ndata: {\"usage\":{\"prompt_tokens\":8,\"completion_tokens\":2,\"promp\r\n"
		"33\r\nt_tokens_details\":{\"cached_tokens\":4}}}\n\ndata: [DON\r\n"
		"4\r\nE]\n\n\r\n"
		"0\r\n\r\n",
	};
	static const char text[] = "gr\xc3\xbc\xc3\x9f dich\ncached tokens: 4 of 8 prompt tokens (50 %); 2 tokens in ";

	SERVE(_i % 2 ? 1 : 65536, answers[_i / 2]);
	ck_assert_msg(!ASK("--model", "m", url, "hallo"), "%s", said);
	ck_assert_msg(!strncmp(said, text, strlen(text)), "%s", said);
}
END_TEST

/* The request follows the options. */
START_TEST(test_request)
{
	const char *all;

	SERVE(65536, OK "\r\n{\"data\":[{\"id\":\"big \\\"one\\\"\"},{\"id\":\"other\"}]}",
	      STREAM DONE, STREAM DONE);
	ck_assert_msg(!ASK("--api-key", "sk-1", "--max-tokens", "9", "-n", "2",
			   "--temperature", "0.5", "--seed", "7",
			   "--ignore-eos", url, "say \"hi\"", "two"),
		      "%s", said);
	all = requests();
	ck_assert_ptr_nonnull(strstr(all, "GET /v1/models HTTP/1.1\r\n"));
	ck_assert_ptr_nonnull(strstr(all, "\r\nAuthorization: Bearer sk-1\r\n"));
	ck_assert_ptr_nonnull(strstr(all, "POST /v1/completions HTTP/1.1\r\n"));
	ck_assert_ptr_nonnull(strstr(all, "\r\n\r\n{\"model\":\"big \\\"one\\\"\",\"prompt\":\"say \\\"hi\\\"\",\"max_tokens\":9,\"temperature\":0.5,\"seed\":7,\"n\":2,\"ignore_eos\":true,\"stream\":true,\"stream_options\":{\"include_usage\":true}}"));
	ck_assert_ptr_nonnull(strstr(all, "\"prompt\":\"two\""));
}
END_TEST

START_TEST(test_chat)
{
	SERVE(65536, STREAM DONE);
	setenv("KVRT_API_KEY", "sk-2", 1);
	ck_assert_int_eq(ASK("--chat", "--model", "m", url, "hi"), 0);
	ck_assert_ptr_nonnull(strstr(requests(), "POST /v1/chat/completions "));
	ck_assert_ptr_nonnull(strstr(requests(), "Bearer sk-2\r\n"));
	ck_assert_ptr_nonnull(strstr(requests(), "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}],\"stream\":true,"));
}
END_TEST

START_TEST(test_models)
{
	SERVE(3, OK "\r\n{\"data\":[{\"id\":\"one\"},{\"id\":\"two\"}]}");
	ck_assert_int_eq(ASK("--models", url), 0);
	ck_assert_str_eq(said, "one\ntwo\n");
}
END_TEST

/* The name of a model must not move the cursor of the terminal. */
START_TEST(test_wild_names)
{
	static const char * const wild[] = {
		"\\u001b]0;x\\u0007", "\\u009b2J", "\xc2\x9b" "2J", "\\u007f",
		"a\\nb",
	};
	char answer[200];

	snprintf(answer, sizeof(answer), OK "\r\n{\"data\":[{\"id\":\"one\"},{\"id\":\"%s\"}]}",
		 wild[_i]);
	SERVE(65536, answer);
	ck_assert_int_eq(ASK("--models", url), EX_PROTOCOL);
	ck_assert_ptr_nonnull(strstr(said, "no OpenAI server"));
	ck_assert_ptr_null(strchr(said, '\033'));
	ck_assert_ptr_null(strstr(said, "one"));
}
END_TEST

/* The error message of a server must not move it either. */
START_TEST(test_wild_words)
{
	SERVE(65536, "HTTP/1.1 400 X\r\n\r\n{\"error\":{\"message\":\"a\\u001b[1m\\u009b2J\xc2\x85\xc3\xa4\"}}");
	ck_assert_int_eq(ASK("--model", "m", url, "p"), EX_DATAERR);
	ck_assert_msg(strstr(said, " answers 400: a?[1m?2J?\xc3\xa4\n") != NULL,
		      "%s", said);
}
END_TEST

/* Names of models that cannot be written to standard output are an error. */
START_TEST(test_full)
{
	static char many[65536];
	size_t at = 0;
	u32 i;

	if (access("/dev/full", W_OK)) {
		printf("note: no full disk is tried: there is no /dev/full\n");
		return;
	}
	/* First a few bytes, then more than the buffer of stdout takes. */
	at += (size_t)sprintf(many + at, OK "\r\n{\"data\":[{\"id\":\"m\"}");
	for (i = 0; _i && i < 3000; i++)
		at += (size_t)sprintf(many + at, ",{\"id\":\"m%u\"}", i);
	sprintf(many + at, "]}");
	SERVE(65536, many);
	out_path = "/dev/full";
	ck_assert_int_eq(ASK("--models", url), EX_IOERR);
	ck_assert_msg(strstr(said, "error: standard output: "), "%s", said);
}
END_TEST

/* A line of a stream that never ends is not buffered for ever. */
START_TEST(test_endless)
{
	static char line[(1 << 20) + 65536];
	size_t at = (size_t)sprintf(line, OK "Transfer-Encoding: chunked\r\n\r\n200000\r\ndata: ");

	memset(line + at, 'x', sizeof(line) - 1 - at);
	SERVE(65536, line);
	ck_assert_int_eq(ASK("--model", "m", url, "p"), EX_PROTOCOL);
	ck_assert_msg(strstr(said, "no OpenAI server"), "%s", said);
}
END_TEST

/* A key is one word, since a line break would begin another header. */
START_TEST(test_key)
{
	SERVE(65536, STREAM DONE);
	ck_assert_int_eq(ASK("--api-key", "a\r\nX: y", "--model", "m", url, "p"),
			 EX_USAGE);
	ck_assert_msg(strstr(said, "--api-key"), "%s", said);
	setenv("KVRT_API_KEY", "a b", 1);
	ck_assert_int_eq(ASK("--model", "m", url, "p"), EX_USAGE);
	ck_assert_str_eq(requests(), "");
}
END_TEST

/* Two prompts: lines with labels; samples beyond those requested are left out. */
START_TEST(test_labels)
{
	SERVE(65536, STREAM
	      "data: {\"choices\":[{\"index\":1,\"text\":\"b\"},{\"index\":0,\"text\":\"a\"},{\"index\":2,\"text\":\"c\"},{\"index\":-1,\"text\":\"d\"},{\"index\":0}]}\n\n"
	      DONE, STREAM DONE);
	ck_assert_int_eq(ASK("--quiet", "-n", "2", "--model", "m", url, "p", "q"), 0);
	ck_assert_ptr_nonnull(strstr(said, "[1] p\n"));
	ck_assert_ptr_nonnull(strstr(said, "[2] q\n"));
	ck_assert_ptr_nonnull(strstr(said, "[1.1] a\n"));
	ck_assert_ptr_nonnull(strstr(said, "[1.2] b\n"));
	ck_assert_ptr_null(strstr(said, "] c"));
	ck_assert_ptr_null(strstr(said, "] d"));
	ck_assert_ptr_null(strstr(said, "cached"));
}
END_TEST

/* ---- answers of another kind ---- */

static const struct {
	const char	*answer;
	int		code;
	const char	*why;
} wrong[] = {
	{ "HTTP/1.1 400 Bad\r\n\r\n{\"error\":{\"message\":\"too\\u001blong\"}}",
	  EX_DATAERR, "answers 400: too?long" },
	{ "HTTP/1.1 401 No\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
	  EX_NOPERM, "answers 401: it does not say why" },
	{ "HTTP/1.1 503 No\r\n\r\n{\"error\":{\"message\":\"loading\"}}",
	  EX_TEMPFAIL, "answers 503: loading" },
	{ "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 429 No\r\n\r\n",
	  EX_TEMPFAIL, "answers 429" },
	{ STREAM "data: {\"error\":{\"message\":\"daemon gone\"}}\n\n",
	  EX_TEMPFAIL, "daemon gone" },
	{ "", EX_TEMPFAIL, "broke off" },
	{ "HTTP/1.1 200", EX_TEMPFAIL, "broke off" },
	{ OK "Transfer-Encoding: chunked\r\n\r\nff\r\ndata: {", EX_TEMPFAIL,
	  "broke off" },
	{ OK "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n", EX_TEMPFAIL,
	  "broke off" },
	{ OK "Transfer-Encoding: chunked\r\n\r\nzz\r\n", EX_PROTOCOL,
	  "no OpenAI server" },
	{ STREAM "data: nonsense\n\n", EX_PROTOCOL, "no OpenAI server" },
	{ STREAM "data: [1]\n\n", EX_PROTOCOL, "no OpenAI server" },
	{ OK "\r\n<html>", EX_PROTOCOL, "no OpenAI server" },
	{ "SSH-2.0-OpenSSH_9.2p1 and so on\r\n\r\n", EX_PROTOCOL,
	  "no OpenAI server" },
};

START_TEST(test_wrong)
{
	const char *line;

	SERVE(65536, wrong[_i].answer);
	ck_assert_msg(ASK("--model", "m", url, "p") == wrong[_i].code,
		      "%s", said);
	line = strstr(said, "kvrt: error: ");
	ck_assert_msg(line && strstr(line, wrong[_i].why), "%s", said);
	ck_assert_msg(strchr(line, '\n') == line + strlen(line) - 1,
		      "more than one line: %s", said);
}
END_TEST

START_TEST(test_silent)
{
	ck_assert_int_eq(ASK("--timeout", "1", "--model", "m", url, "p"),
			 EX_TEMPFAIL);
	ck_assert_ptr_nonnull(strstr(said, "no answer for 1 s"));
	ck_assert_int_eq(ASK("--timeout", "1", "--models", url), EX_TEMPFAIL);
	ck_assert_ptr_nonnull(strstr(said, "no answer for 1 s"));
}
END_TEST

START_TEST(test_nobody)
{
	close(listener);
	ck_assert_int_eq(ASK(url, "p"), EX_UNAVAILABLE);
	ck_assert_ptr_nonnull(strstr(said, "no server listens there: start kvrt serve"));
	ck_assert_int_eq(ASK("https://a", "p"), EX_USAGE);
	ck_assert_int_eq(ask((const char * const []){ NULL }), EX_USAGE);
	ck_assert_int_eq(ASK("--temperature", "hot", url, "p"), EX_USAGE);
}
END_TEST

/* One refused prompt does not spoil the other one. */
START_TEST(test_one_of_two)
{
	SERVE(65536, "HTTP/1.1 400 Bad\r\n\r\n",
	      STREAM "data: {\"choices\":[{\"index\":0,\"text\":\"fine\"}]}\n\n" DONE);
	ck_assert_int_eq(ASK("--model", "m", url, "p", "q"), EX_DATAERR);
	ck_assert_msg(strstr(said, "[2.1] fine\n"), "%s", said);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("ask");
	TCase *t = tcase_create("ask");
	SRunner *sr;
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 20);
	tcase_add_test(t, test_urls);
	tcase_add_loop_test(t, test_stream, 0, 4);
	tcase_add_test(t, test_request);
	tcase_add_test(t, test_chat);
	tcase_add_test(t, test_models);
	tcase_add_loop_test(t, test_wild_names, 0, 5);
	tcase_add_test(t, test_wild_words);
	tcase_add_loop_test(t, test_full, 0, 2);
	tcase_add_test(t, test_endless);
	tcase_add_test(t, test_key);
	tcase_add_test(t, test_labels);
	tcase_add_loop_test(t, test_wrong, 0, ARRAY_SIZE(wrong));
	tcase_add_test(t, test_silent);
	tcase_add_test(t, test_nobody);
	tcase_add_test(t, test_one_of_two);
	suite_add_tcase(s, t);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
