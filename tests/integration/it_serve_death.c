// SPDX-License-Identifier: Apache-2.0
/*
 * it_serve_death.c - kvrt serve without a daemon, and its own end
 *
 * budget: 60 s, full 120 s
 *
 * The daemon is away, stands still, or starts later; its deaths under load are
 * in it_kvmm_death.c.  Then the end of the server itself: signals, drains, and
 * its error when it cannot begin.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/integration/serve.h"

static struct rig rig;
static struct served server;

static void setup(void)
{
	rig_start(&rig, "--pool-size", "32M", "--extent-size", "512K",
		  "--adopt", "off", NULL);
	serve_start(&server, &rig, NULL);
	serve_await(&server, 200, 30);
}

/* ---- the daemon is away ---- */

/* The last event of a stream, to be freed. */
static char *last_event(struct web *w)
{
	char *event, *last = NULL;

	while ((event = web_event(w))) {
		free(last);
		last = event;
	}
	ck_assert(w->over);
	ck_assert_ptr_nonnull(last);
	return last;
}

/* 503, with a text for strangers: no path, no option, no program. */
static void refused_plainly(void)
{
	json_t *v = web_json(server.port, "/v1/completions",
			     "{\"prompt\":\"a\"}", 503);
	const char *text = json_string_value(json_object_get(
				json_object_get(v, "error"), "message"));

	ck_assert_ptr_nonnull(text);
	ck_assert_msg(!strstr(text, "kvmm") && !strstr(text, "--") &&
		      !strchr(text, '/'), "%s", text);
	json_decref(v);
}

static void kvctl_drain(const char *off)
{
	struct job j = job_start(&rig, "kvctl", "drain", off, NULL);

	ck_assert_int_eq(job_wait(&j, 10), 0);
}

/* A balancer must not send requests to a server whose daemon refuses them. */
START_TEST(test_drained_is_not_ready)
{
	json_t *v;

	kvctl_drain(NULL);
	serve_await(&server, 503, 10);
	v = web_json(server.port, "/ready", NULL, 503);
	ck_assert_str_eq(json_string_value(json_object_get(v, "status")),
			 "drained");
	json_decref(v);
	refused(&server, "/v1/completions", "{\"prompt\":\"a\"}", 503, NULL);
	kvctl_drain("--off");
	serve_await(&server, 200, 10);
}
END_TEST

START_TEST(test_daemon_is_away)
/* Without a daemon the server is alive, not ready, and answers 503. */
{
	pid_t old = rig_daemon(&rig);
	struct web w;
	json_t *v;
	char *last;

	begin_stream(&server, &w, "{\"prompt\":\"In\",\"max_tokens\":1000,\"ignore_eos\":true,\"stream\":true,\"n\":16}");
	/* While hold is stopped, no daemon is started. */
	kill(rig.hold, SIGSTOP);
	kill(old, SIGKILL);
	serve_await(&server, 503, 10);
	last = last_event(&w);
	ck_assert_msg(web_is_error(last, "daemon_gone"), "%s", last);
	ck_assert_uint_eq(serve_ended(&server, "error"), 1);
	free(last);
	web_close(&w);
	v = web_json(server.port, "/ready", NULL, 503);
	ck_assert_str_eq(json_string_value(json_object_get(v, "status")),
			 "detached");
	json_decref(v);
	refused(&server, "/v1/completions", "{\"prompt\":\"a\"}", 503, NULL);
	refused_plainly();
	json_decref(web_json(server.port, "/health", NULL, 200));
	json_decref(web_json(server.port, "/v1/models", NULL, 200));
	kill(rig.hold, SIGCONT);
	serve_await(&server, 200, 20);
	json_decref(complete(&server, "{\"prompt\":\"a\",\"max_tokens\":2}"));
	/* Requests refused without a daemon never ran. */
	ck_assert_uint_eq(serve_ended(&server, "error"), 1);
	serve_stop(&server);
	rig_stop(&rig);
}
END_TEST

/* A stopped daemon keeps requests waiting: the server is not ready. */
START_TEST(test_daemon_stands_still)
{
	pid_t daemon = rig_daemon(&rig);
	struct web w;
	json_t *v;

	serve_stop(&server);
	serve_start(&server, &rig, "--stall-timeout", "1", NULL);
	serve_await(&server, 200, 30);
	web_open(&w, server.port);
	ck_assert(web_post(&w, "/v1/completions", "{\"prompt\":\"In\",\"max_tokens\":700,\"ignore_eos\":true}"));
	rig_await(&rig, "meminfo", "Open", 1, 10);
	kill(daemon, SIGSTOP);
	serve_await(&server, 503, 5);
	v = web_json(server.port, "/ready", NULL, 503);
	ck_assert_str_eq(json_string_value(json_object_get(v, "status")),
			 "stalled");
	json_decref(v);
	kill(daemon, SIGCONT);
	ck_assert_int_eq(web_status(&w), 200);
	serve_await(&server, 200, 5);
	web_close(&w);
	serve_stop(&server);
	rig_stop(&rig);
}
END_TEST

START_TEST(test_daemon_comes_later)
{
	struct served early;
	char path[RIG_PATH + 32];

	snprintf(path, sizeof(path), "%s/later.sock", rig.dir);
	serve_start(&early, &rig, "--socket", path, NULL);
	serve_await(&early, 503, 10);
	refused(&early, "/v1/completions", "{\"prompt\":\"a\"}", 503, NULL);
	serve_stop(&early);
	serve_stop(&server);
	rig_stop(&rig);
}
END_TEST

/*
 * After the daemon's restart another server attaches first and takes the domain
 * of @server, which goes on trying.
 */
START_TEST(test_domain_is_taken)
{
	pid_t old = rig_daemon(&rig);
	struct served other;
	u64 end;
	char *said;

	kill(server.job.pid, SIGSTOP);
	kill(old, SIGKILL);
	serve_start(&other, &rig, "--block-tokens", "32", NULL);
	serve_await(&other, 200, 30);
	kill(server.job.pid, SIGCONT);
	end = now_ms() + 20000;
	do {
		ck_assert_msg(now_ms() < end, "it does not say that it is refused:\n%s",
			      serve_said(&server));
		nap_ms(20);
		said = slurp(server.job.err);
	} while (!strstr(said, "domain demo-model is in use") && (free(said), 1));
	free(said);
	refused_plainly();
	serve_stop(&other);
	serve_await(&server, 200, 20);
	serve_stop(&server);
	rig_stop(&rig);
}
END_TEST

/* ---- the server's own end ---- */

START_TEST(test_drain)
{
	struct web w, idle, late;
	char *last;

	begin_stream(&server, &w, "{\"prompt\":\"In\",\"max_tokens\":900,\"ignore_eos\":true,\"stream\":true}");
	web_open(&idle, server.port);
	job_kill(&server.job, SIGTERM);
	ck_assert(web_closed(&idle));
	web_open(&late, server.port);
	ck_assert_int_eq(late.fd, -1);
	last = last_event(&w);
	ck_assert_str_eq(last, "[DONE]");
	ck_assert_int_eq(job_wait(&server.job, 10), 0);
	free(last);
	web_close(&w);
	web_close(&idle);
	rig_walk(&rig);
	ck_assert_int_eq(rig_value(&rig, "meminfo", "Open"), 0);
	rig_stop(&rig);
}
END_TEST

/* A second signal ends the drain at once; so does the end of its time. */
START_TEST(test_drain_cut_short)
{
	struct web w;
	char *last;

	if (_i) {
		serve_stop(&server);
		serve_start(&server, &rig, "--drain-timeout", "0", NULL);
		serve_await(&server, 200, 30);
	}
	begin_stream(&server, &w, "{\"prompt\":\"In\",\"max_tokens\":1000,\"ignore_eos\":true,\"stream\":true,\"n\":16}");
	job_kill(&server.job, SIGINT);
	if (!_i) {
		nap_ms(50);
		job_kill(&server.job, SIGTERM);
	}
	last = last_event(&w);
	ck_assert_msg(web_is_error(last, "shutting_down"), "%s", last);
	ck_assert_int_eq(job_wait(&server.job, 10), 0);
	free(last);
	last = slurp(server.job.err);
	ck_assert_msg(strstr(last, "finishing 1 request, for at most") &&
		      strstr(last, "a second signal ends them now\n") &&
		      strstr(last, _i ? "1 request did not finish in 0 s: cut short\n" :
			     "a second signal: 1 request cut short\n"),
		      "%s", last);
	free(last);
	web_close(&w);
	ck_assert_int_eq(rig_value(&rig, "meminfo", "Open"), 0);
	rig_stop(&rig);
}
END_TEST

/* The server ended with @code after one line on stderr that has both words. */
static void expect_line(struct job *j, int code, const char *thing,
			const char *remedy)
{
	int have = job_wait(j, 30);
	char *err = slurp(j->err), *line = strrchr(err, '\n');

	ck_assert_msg(have == code, "ended with %d, not %d:\n%s", have, code,
		      err);
	ck_assert(line && !line[1]);
	/* The error may follow the line "listening", but no other line. */
	ck_assert_msg(count_lines(err) == 1 + !!strstr(err, "listening"),
		      "not one line:\n%s", err);
	ck_assert_msg(strstr(err, thing) && strstr(err, remedy),
		      "does not say '%s' and '%s':\n%s", thing, remedy, err);
	free(err);
}

static struct job serve_with(const char *dir, const char *option,
			     const char *value)
{
	return job_start(&rig, "kvrt", "serve", dir, option, value, "--threads",
			 "1", NULL);
}

START_TEST(test_bad_begins)
{
	char port[16], *said;
	struct job j;

	snprintf(port, sizeof(port), "%u", server.port);
	j = serve_with(demo_model(), "--port", port);
	expect_line(&j, 69, port, "--port");
	j = serve_with(demo_model(), "--host", "no.such.host.invalid");
	expect_line(&j, 64, "no.such.host.invalid", "127.0.0.1");
	j = serve_with(demo_model(), "--host", "203.0.113.7");
	expect_line(&j, 69, "203.0.113.7", "--host");
	j = serve_with("/nowhere", "--port", "0");
	expect_line(&j, 66, "kvrt: error: MODEL '/nowhere'", "model folder");
	said = slurp(j.err);
	ck_assert_ptr_null(strstr(said, "listening"));
	free(said);
	j = serve_with(demo_model(), "--port", "70000");
	expect_line(&j, 64, "--port", "65535");
	j = serve_with(demo_model(), "--ports", "1");
	expect_line(&j, 64, "--ports", "did you mean --port?");
	j = job_start(&rig, "kvrt", "serve", NULL);
	expect_line(&j, 64, "model folder", "MODEL");
	j = job_start(&rig, "kvrt", "serve", demo_model(), "--port", "0",
		      "--threads", "1", "--block-tokens", "32", NULL);
	expect_line(&j, 69, "domain demo-model", "another --domain");
	serve_stop(&server);
	rig_stop(&rig);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("serve-death");
	TCase *tc = tcase_create("ends");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 600);
	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, test_drained_is_not_ready);
	tcase_add_test(tc, test_daemon_is_away);
	tcase_add_test(tc, test_daemon_stands_still);
	tcase_add_test(tc, test_daemon_comes_later);
	tcase_add_test(tc, test_domain_is_taken);
	tcase_add_test(tc, test_drain);
	tcase_add_loop_test(tc, test_drain_cut_short, 0, 2);
	tcase_add_test(tc, test_bad_begins);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
