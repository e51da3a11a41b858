// SPDX-License-Identifier: Apache-2.0
/*
 * it_serve_explain.c - kvctl explain REQUEST: from the id of a request to its sequences
 *
 * budget: 20 s, full 40 s
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kvmm/lookup.h>

#include "tests/integration/serve.h"

#define SAMPLES	64

static struct rig rig;
static struct served server;
static struct web first;

/* A request that has more samples than the pool has room for, in one of two loops. */
static void setup(void)
{
	static const char body[] = "{\"prompt\":\"In the beginning\",\"max_tokens\":1000,\"ignore_eos\":true,\"n\":64,\"stream\":true}";
	char head[256];

	rig_start(&rig, "--pool-size", "8M", "--extent-size", "512K", NULL);
	serve_loops = 2;
	serve_start(&server, &rig, "--max-seqs", "64", NULL);
	serve_await(&server, 200, 30);
	web_open(&first, server.port);
	snprintf(head, sizeof(head), "POST /v1/completions HTTP/1.1\r\nHost: a\r\nX-Request-Id: mine/7\r\nContent-Length: %zu\r\n\r\n",
		 strlen(body));
	ck_assert(web_puts(&first, head) && web_puts(&first, body));
	ck_assert_int_eq(web_status(&first), 200);
	free(web_event(&first));
}

static void teardown(void)
{
	web_close(&first);
	serve_await_idle(&server, 5000);
	serve_stop(&server);
	rig_stop(&rig);
}

/* kvctl explain ID must exit with @code.  Return: its output; *@said: its errors. */
static char *explain(const char *id, int code, char **said)
{
	struct job j = job_start(&rig, "kvctl", "--json", "explain", id, NULL);
	const int rc = job_wait(&j, 30);

	*said = slurp(j.err);
	ck_assert_msg(rc == code, "explain %s: %d: %s", id, rc, *said);
	return slurp(j.out);
}

/* Does the answer of kvctl have sequences of client 0? */
static void has_sequences(const char *id)
{
	char *said, *out = explain(id, 0, &said);
	json_t *all = json_loads(out, 0, NULL), *one;
	const char *name;
	size_t i;

	/* The first sequence is that of the prompt, until it is a sample's. */
	ck_assert_msg(!strstr(said, "waits in the server"), "%s", said);
	ck_assert_msg(json_array_size(all) >= 1 && json_array_size(all) <= SAMPLES,
		      "%s: %s", id, out);
	json_array_foreach(all, i, one) {
		name = json_string_value(json_object_get(one, "Sequence"));
		ck_assert_msg(name && !strncmp(name, "0/", 2), "%s: %s", id, out);
	}
	json_decref(all);
	free(out);
	free(said);
}

START_TEST(test_ids)
{
	char *said;

	/* As the client named it, and as the answer and the log do. */
	has_sequences("mine/7");
	has_sequences("cmpl-mine/7");
	free(explain("mine/8", 1, &said));
	ck_assert_msg(strstr(said, "mine/8: no server here works at such a request"),
		      "%s", said);
	free(said);
	free(explain("cmpl", 1, &said));
	free(said);
}
END_TEST

/* A request for which there is no place has no sequence. */
START_TEST(test_in_the_queue)
{
	static const char body[] = "{\"prompt\":\"a\",\"max_tokens\":900,\"ignore_eos\":true,\"request_id\":\"late\",\"stream\":true}";
	char *said, *out;
	struct web w;
	u64 end = now_ms() + 30000;
	bool known = false;

	web_open(&w, server.port);
	ck_assert(web_post(&w, "/v1/completions", body));
	/* A reader reads it first. */
	while (!known && now_ms() < end) {
		struct job j = job_start(&rig, "kvctl", "explain", "cmpl-late", NULL);

		known = !job_wait(&j, 30);
		said = slurp(j.err);
		out = slurp(j.out);
		ck_assert_msg(!known || strstr(said, "waits in the server") || *out,
			      "%s", said);
		free(said);
		free(out);
	}
	ck_assert(known);
	web_close(&w);
}
END_TEST

/* Another user is told nothing, and his connection is closed before he asks. */
START_TEST(test_other_user)
{
	struct sockaddr_un sa;
	const socklen_t len = lookup_address(&sa, server.job.pid);
	const struct timeval wait = { .tv_sec = 1 };	/* a question has 2 s */
	char text[64] = "";
	int fd, status;
	pid_t pid;

	if (geteuid()) {
		printf("  note: only root can be another user\n");
		return;
	}
	pid = fork();
	if (!pid) {
		fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
		if (setgid(65534) || setuid(65534) ||
		    connect(fd, (const struct sockaddr *)&sa, len))
			_exit(1);
		setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
		_exit(recv(fd, text, sizeof(text) - 1, 0) != 0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("serve-explain");
	TCase *tc = tcase_create("requests");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 120);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_ids);
	tcase_add_test(tc, test_in_the_queue);
	tcase_add_test(tc, test_other_user);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
