// SPDX-License-Identifier: Apache-2.0
/*
 * check_bench_serve.c - kvrt bench serve against servers of every kind
 *
 * A child plays the server: it takes one connection after the other, keeps the
 * requests and sends the answers of the test, then closes.  The output of the
 * program, its results and its exit code are compared with the expected ones.
 * Requests are sent one at a time, so that each gets the answer meant for it.
 */
#include <check.h>
#include <jansson.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime/cli/bench.h"
#include "runtime/cli/cli.h"
#include "tests/unit/fake_server.h"

#define OK	"HTTP/1.1 200 OK\r\n"
#define MODELS	OK "\r\n{\"data\":[{\"id\":\"m\\\"x\",\"max_model_len\":500}]}"
#define STREAM	OK "Content-Type: text/event-stream\r\n\r\n"
#define TOKEN	"data: {\"choices\":[{\"text\":\"a\",\"finish_reason\":null}]}\n\n"
#define USAGE(in, out) "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":" #in \
	",\"completion_tokens\":" #out "}}\n\n"
#define DONE	"data: [DONE]\n\n"
#define PROBED	STREAM TOKEN TOKEN USAGE(8, 2) DONE
#define GOOD	STREAM TOKEN TOKEN TOKEN USAGE(10, 3) DONE

static char said[65536];

/*
 * Answer as many connections as there are answers; an answer that begins with
 * '+' keeps its connection for the next one.  After the last the server is
 * gone.
 */
static void serve(const char * const *answers)
{
	int fd = -1;

	server = fork();
	ck_assert_int_ge(server, 0);
	if (server) {
		close(listener);
		listener = -1;
		return;
	}
	for (; *answers; answers++) {
		const char *p = *answers;
		const bool keep = *p == '+';

		/* A connection that closes without a byte is no request. */
		while (fd < 0 || !serve_read(fd)) {
			if (fd >= 0)
				close(fd);
			fd = accept(listener, NULL, NULL);
		}
		p += keep;
		if (!answers[1])
			close(listener);
		send(fd, p, strlen(p), MSG_NOSIGNAL);
		if (keep)
			continue;
		close(fd);
		fd = -1;
	}
	_exit(0);
}

/*
 * Run kvrt bench serve with --json -.  Return: its exit code; @said has its
 * output.
 */
static int bench(const char * const *args)
{
	char *argv[32] = { (char[]){ "serve" }, url, (char[]){ "--json" },
			   (char[]){ "-" }, (char[]){ "--max-concurrency" },
			   (char[]){ "1" }, (char[]){ "--input-len" },
			   (char[]){ "10" }, (char[]){ "--output-len" },
			   (char[]){ "3" } };
	int fd[2], status, argc = 10;
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
		kv_log_init("kvrt", KV_LOG_INFO);
		status = bench_serve(argc, argv);
		fflush(stdout);
		_exit(status);
	}
	close(fd[1]);
	while ((n = read(fd[0], said + len, sizeof(said) - 1 - len)) > 0)
		len += (size_t)n;
	said[len] = '\0';
	close(fd[0]);
	while (argc > 10)
		free(argv[--argc]);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(WIFEXITED(status), "kvrt bench died:\n%s", said);
	return WEXITSTATUS(status);
}

#define BENCH(...)	bench((const char * const []){ __VA_ARGS__, NULL })
#define SERVE(...)	serve((const char * const []){ __VA_ARGS__, NULL })

static const char *requests(void)
{
	static char all[262144];

	rewind(asked);
	all[fread(all, 1, sizeof(all) - 1, asked)] = '\0';
	return all;
}

static u32 count(const char *text, const char *what)
{
	u32 n = 0;

	while ((text = strstr(text, what))) {
		n++;
		text++;
	}
	return n;
}

/* A number of the results in the output. */
static double figure(const char *key)
{
	const char *p = strstr(said, "{\n");
	json_t *v;
	double x;

	ck_assert_msg(p != NULL, "no results:\n%s", said);
	v = json_loads(p, JSON_DISABLE_EOF_CHECK, NULL);
	ck_assert_msg(json_is_number(json_object_get(v, key)) ||
		      json_is_boolean(json_object_get(v, key)),
		      "no %s:\n%s", key, said);
	x = json_is_true(json_object_get(v, key)) ? 1 :
	    json_number_value(json_object_get(v, key));
	json_decref(v);
	return x;
}

static void ck_said(const char *what)
{
	ck_assert_msg(strstr(said, what) != NULL, "not said: %s\n%s", what,
		      said);
}

static void ck_figure(const char *key, double want)
{
	ck_assert_msg(figure(key) == want, "%s is %g, not %g\n%s", key,
		      figure(key), want, said);
}

START_TEST(test_good)
{
	const char *r;

	SERVE(MODELS, PROBED, GOOD, GOOD);
	ck_assert_int_eq(BENCH("--num-prompts", "2"), 0);
	ck_figure("completed", 2);
	ck_figure("failed", 0);
	ck_figure("total_input_tokens", 20);
	ck_figure("total_output_tokens", 6);
	ck_figure("probe_requests", 1);
	ck_figure("probe_input_tokens", 8);
	ck_figure("max_concurrent_requests", 1);
	r = requests();
	ck_assert_uint_eq(count(r, "POST /v1/completions HTTP/1.1"), 3);
	ck_assert_uint_eq(count(r, "\"model\":\"m\\\"x\""), 3);
	ck_assert_uint_eq(count(r, "\"max_tokens\":3,\"temperature\":0,\"ignore_eos\":true,\"stream\":true,\"stream_options\":{\"include_usage\":true}}"), 2);
	ck_assert_uint_eq(count(r, "\"prompt\":["), 3);
}
END_TEST

/* Connections are reused if the answers say where they end. */
#define CHUNKED "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
#define CHUNKS	"+" CHUNKED						\
	"92\r\n" TOKEN TOKEN "data: {\"choices\":[]}\n\n" DONE "\r\n0\r\n\r\n"

START_TEST(test_kept_connection)
{
	const char *r;

	SERVE(MODELS, PROBED, CHUNKS, CHUNKS, CHUNKS);
	ck_assert_msg(BENCH("--num-prompts", "3") == 0, "%s", said);
	ck_figure("completed", 3);
	/* Events are counted if the server counts no tokens. */
	ck_figure("total_output_tokens", 6);
	ck_figure("tokens_counted_by_server", 0);
	ck_figure("shorter_than_asked", 3);
	ck_said("3 of 3 answers are shorter than asked for");
	r = requests();
	ck_assert_uint_eq(count(r, "Connection: keep-alive"), 3);
}
END_TEST

/* The server closes a kept connection: the request is sent once more. */
START_TEST(test_connection_closed)
{
	SERVE(MODELS, PROBED, CHUNKS, "", GOOD, GOOD);
	ck_assert_msg(BENCH("--num-prompts", "3") == 0, "%s", said);
	ck_figure("completed", 3);
	ck_figure("failed", 0);
}
END_TEST

#define REFUSED "HTTP/1.1 400 Bad Request\r\nContent-Length: 31\r\n\r\n" \
	"{\"error\":{\"message\":\"no such\"}}"

START_TEST(test_ignore_eos_refused)
{
	SERVE(MODELS, REFUSED, PROBED, GOOD);
	ck_assert_int_eq(BENCH("--num-prompts", "1"), 0);
	ck_said("takes no ignore_eos (400: no such): answers may be shorter than asked for\n");
	ck_figure("ignore_eos", 0);
	ck_figure("probe_requests", 2);
	ck_assert_uint_eq(count(requests(), "ignore_eos"), 1);
}
END_TEST

START_TEST(test_ids_refused)
{
	SERVE(MODELS, REFUSED, REFUSED, PROBED, GOOD);
	ck_assert_int_eq(BENCH("--num-prompts", "1"), 0);
	ck_said("takes no token ids (400: no such)");
	ck_figure("ignore_eos", 1);
	ck_assert_uint_eq(count(requests(), "\"prompt\":\""), 2);
}
END_TEST

START_TEST(test_everything_refused)
{
	SERVE(MODELS, REFUSED, REFUSED, REFUSED, REFUSED, REFUSED, REFUSED,
	      REFUSED, REFUSED);
	ck_assert_int_eq(BENCH("--num-prompts", "1"), EX_DATAERR);
	ck_said("refuses a prompt of 8 tokens: 400: no such\n");
	ck_assert_uint_eq(count(said, "\n"), 1);
}
END_TEST

/* The bench gives up options of its choice only, not the token ids asked for. */
START_TEST(test_ids_wanted)
{
	SERVE(MODELS, REFUSED, REFUSED, REFUSED, REFUSED);
	ck_assert_int_eq(BENCH("--num-prompts", "1", "--prompt-form", "ids"),
			 EX_DATAERR);
	ck_assert_uint_eq(count(requests(), "\"prompt\":["), 4);
}
END_TEST

START_TEST(test_chat)
{
#define SAYS(delta) "data: {\"choices\":[{\"delta\":{" delta "},\"finish_reason\":null}]}\n\n"
#define CHATS STREAM SAYS("\"role\":\"assistant\",\"content\":\"\"")	\
	SAYS("\"content\":\"a\"") SAYS("\"content\":\"b\"")		\
	"data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"length\"}]}\n\n" DONE
	SERVE(MODELS, CHATS, CHATS);
	ck_assert_int_eq(BENCH("--num-prompts", "1", "--endpoint", "chat"), 0);
	ck_said("does not count tokens: events that bring text are counted");
	ck_figure("total_output_tokens", 2);
	ck_figure("total_input_tokens", 10);
	ck_assert_uint_eq(count(requests(),
				"POST /v1/chat/completions"), 2);
	ck_assert_uint_eq(count(requests(),
		"\"messages\":[{\"role\":\"user\",\"content\":\""), 2);
}
END_TEST

/* Each kind of failure is counted under its name, and the run continues. */
START_TEST(test_failures)
{
	SERVE(MODELS, PROBED,
	      "HTTP/1.1 429 Too Many\r\n\r\n{\"error\":{\"message\":\"f\\null\"}}",
	      STREAM TOKEN,
	      STREAM "data: {\"error\":{\"message\":\"died\"}}\n\n",
	      STREAM "data: {nonsense\n\n",
	      OK "\r\n<html>", "garbage\r\n\r\n", "", GOOD,
	      CHUNKED "ff\r\ndata: ");
	ck_assert_int_eq(BENCH("--num-prompts", "9"), EX_TEMPFAIL);
	ck_figure("completed", 1);
	ck_figure("failed", 8);
	ck_figure("total_output_tokens", 3);
	ck_said("\"429: f?ull\": 1");
	ck_said("\"the stream has no end\": 1");
	ck_said("\"in the stream: died\": 1");
	ck_said("\"an event is no JSON object\": 1");
	ck_said("\"the answer is no stream of events\": 1");
	ck_said("\"the answer is no HTTP/1.1\": 1");
	ck_said("\"the answer broke off\": 2");
}
END_TEST

START_TEST(test_server_dies)
{
	SERVE(MODELS, PROBED, GOOD, GOOD);
	ck_assert_int_eq(BENCH("--num-prompts", "50"), EX_TEMPFAIL);
	ck_said("no server listens there any more: 47 requests were not sent\n");
	ck_figure("completed", 2);
	ck_figure("failed", 1);
	ck_figure("not_sent", 47);
	ck_said("\"no server listens there\": 1");
	ck_assert_uint_eq(count(said, "kvrt: "), 1);
}
END_TEST

START_TEST(test_no_server)
{
	close(listener);
	listener = -1;
	ck_assert_int_eq(BENCH("--num-prompts", "1"), EX_UNAVAILABLE);
	ck_said("no server listens there: start kvrt serve");
	ck_assert_uint_eq(count(said, "\n"), 1);
}
END_TEST

START_TEST(test_no_openai_server)
{
	SERVE(OK "\r\n<html>hello</html>");
	ck_assert_int_eq(BENCH("--num-prompts", "1"), EX_PROTOCOL);
	ck_assert_uint_eq(count(said, "\n"), 1);
}
END_TEST

START_TEST(test_silence)
{
	SERVE(MODELS, PROBED, "+" STREAM TOKEN, GOOD);
	ck_assert_int_eq(BENCH("--num-prompts", "1", "--timeout", "1"),
			 EX_TEMPFAIL);
	ck_said("\"no answer for 1 s\": 1");
}
END_TEST

START_TEST(test_goodput)
{
	SERVE(MODELS, PROBED, GOOD, GOOD);
	ck_assert_int_eq(BENCH("--num-prompts", "2", "--goodput",
			       "ttft:60000 tpot:60000", "--goodput",
			       "e2el:60000"), 0);
	ck_assert(figure("request_goodput") == figure("request_throughput"));
}
END_TEST

START_TEST(test_goodput_none)
{
	SERVE(MODELS, PROBED, GOOD, GOOD);
	ck_assert_int_eq(BENCH("--num-prompts", "2", "--goodput",
			       "ttft:0.0000001"), 0);
	ck_figure("request_goodput", 0);
}
END_TEST

static const char * const wrong[][3] = {
	{ "--goodput", "ttft", NULL },
	{ "--goodput", "itl:3", NULL },
	{ "--goodput", "ttft:0", NULL },
	{ "--goodput", "ttft:5x", NULL },
	{ "--request-rate", "0", NULL },
	{ "--request-rate", "fast", NULL },
	{ "--burstiness", "0", NULL },
	{ "--burstiness", "nan", NULL },
	{ "--metric-percentiles", "50,x", NULL },
	{ "--temperature", "-1", NULL },
	{ "--dataset", "imaginary", NULL },
	{ "--api-key", "a b", NULL },
};

START_TEST(test_wrong_options)
{
	ck_assert_msg(bench(wrong[_i]) == EX_USAGE, "%s %s: %s", wrong[_i][0],
		      wrong[_i][1], said);
	ck_assert_uint_eq(count(said, "\n"), 1);
	ck_said(wrong[_i][0]);
}
END_TEST

/* A trace has its own times; its reader checks the other options of a trace. */
START_TEST(test_trace_options)
{
	ck_assert_int_eq(BENCH("--dataset", "trace", "--request-rate", "3"),
			 EX_USAGE);
	ck_said("--request-rate: a trace says when");
	SERVE(MODELS, PROBED, MODELS, PROBED);
	ck_assert_int_eq(BENCH("--dataset", "trace"), EX_USAGE);
	ck_said("give --trace FILE");
	ck_assert_int_eq(BENCH("--dataset", "trace", "--trace", "/nowhere/t"),
			 EX_NOINPUT);
	ck_said("/nowhere/t: ");
}
END_TEST

/* The gaps between requests are the drawn ones. */
START_TEST(test_rate)
{
	SERVE(MODELS, PROBED, GOOD, GOOD, GOOD, GOOD);
	ck_assert_int_eq(BENCH("--num-prompts", "4", "--request-rate", "20"),
			 0);
	ck_assert_double_ge(figure("duration"), 4 / 20.0);
}
END_TEST

START_TEST(test_key)
{
	SERVE(MODELS, PROBED, GOOD);
	ck_assert_int_eq(BENCH("--num-prompts", "1", "--api-key", "sk-1"), 0);
	ck_assert_uint_eq(count(requests(), "Authorization: Bearer sk-1\r\n"),
			  3);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("bench_serve");
	TCase *tc = tcase_create("servers");
	SRunner *sr;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 20);
	tcase_add_test(tc, test_good);
	tcase_add_test(tc, test_kept_connection);
	tcase_add_test(tc, test_connection_closed);
	tcase_add_test(tc, test_ignore_eos_refused);
	tcase_add_test(tc, test_ids_refused);
	tcase_add_test(tc, test_everything_refused);
	tcase_add_test(tc, test_ids_wanted);
	tcase_add_test(tc, test_chat);
	tcase_add_test(tc, test_failures);
	tcase_add_test(tc, test_server_dies);
	tcase_add_test(tc, test_no_server);
	tcase_add_test(tc, test_no_openai_server);
	tcase_add_test(tc, test_silence);
	tcase_add_test(tc, test_goodput);
	tcase_add_test(tc, test_goodput_none);
	tcase_add_loop_test(tc, test_wrong_options, 0, ARRAY_SIZE(wrong));
	tcase_add_test(tc, test_trace_options);
	tcase_add_test(tc, test_rate);
	tcase_add_test(tc, test_key);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed != 0;
}
