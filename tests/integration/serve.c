// SPDX-License-Identifier: Apache-2.0
/*
 * serve.c - a server under test
 *
 * The server listens on a port that the system chose, and prints it, so that
 * tests do not compete for one.
 */
#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/integration/serve.h"

u32 serve_loops = 1;

const char *serve_said(struct served *s)
{
	char *text = slurp(s->job.err);
	const size_t n = strlen(text), most = 3000;	/* longest text of a failure */

	return n > most ? text + n - most : text;
}

static u32 listening_port(struct served *s)
{
	static const char mark[] = "listening on http://127.0.0.1:";
	char *text = slurp(s->job.err);
	char *at = strstr(text, mark);
	u32 port = 0;

	if (at)
		port = (u32)strtoul(at + sizeof(mark) - 1, NULL, 10);
	free(text);
	return port;
}

const char *serve_model;

void serve_start(struct served *s, struct rig *r, ...)
{
	char loops[16];
	const char *argv[RIG_ARGS + 1] = {
		"kvrt", "serve", serve_model ? serve_model : demo_model(), "--port", "0", "--threads", "1",
		"--loops", loops, "--dtype", "f32",
	};
	const u64 end = now_ms() + 30000;
	va_list ap;
	u32 n = 11;
	int code;

	snprintf(loops, sizeof(loops), "%u", serve_loops);
	va_start(ap, r);
	while (n < RIG_ARGS && (argv[n] = va_arg(ap, const char *)))
		n++;
	va_end(ap);
	argv[n] = NULL;
	s->rig = r;
	s->job = job_startv(r, "kvrt", (char *const *)(uintptr_t)argv);
	while (!(s->port = listening_port(s))) {
		if (job_ended(&s->job, &code) || now_ms() > end)
			ck_abort_msg("kvrt serve does not listen:\n%s",
				     serve_said(s));
		nap_ms(5);
	}
}

void serve_await(struct served *s, int status, u32 seconds)
{
	const u64 end = now_ms() + seconds * 1000ull;
	char *text = NULL;
	int have;

	while ((have = web_ask(s->port, "/ready", NULL, &text)) != status) {
		if (now_ms() > end)
			ck_abort_msg("/ready answers %d, not %d: %s\n%s", have,
				     status, text ? text : "",
				     slurp(s->job.err));
		free(text);
		text = NULL;
		nap_ms(10);
	}
	free(text);
}

void serve_stop(struct served *s)
{
	int code;

	job_kill(&s->job, SIGTERM);
	code = job_wait(&s->job, 40);
	ck_assert_msg(!code, "kvrt serve ended with %d:\n%s", code,
		      serve_said(s));
}

static u32 count_fds(struct served *s)
{
	char path[64];
	struct dirent *e;
	u32 n = 0;
	DIR *d;

	snprintf(path, sizeof(path), "/proc/%d/fd", s->job.pid);
	d = opendir(path);
	ck_assert_ptr_nonnull(d);
	while ((e = readdir(d)))
		n += e->d_name[0] != '.';
	closedir(d);
	return n;
}

u32 serve_fds(struct served *s)
{
	/* The figure is read over a connection, which is open meanwhile. */
	while (serve_figure(s, "kvrt_http_connections") > 1)
		nap_ms(10);
	nap_ms(100);
	return count_fds(s);
}

void serve_expect_fds(struct served *s, u32 want)
{
	const u64 end = now_ms() + 2000;
	u32 have;

	while ((have = count_fds(s)) != want) {
		ck_assert_msg(now_ms() < end, "%u descriptors, not %u", have,
			      want);
		nap_ms(10);
	}
}

double serve_figure(struct served *s, const char *name)
{
	char *text = NULL, *line, want[128];
	double v;

	ck_assert_int_eq(web_ask(s->port, "/metrics", NULL, &text), 200);
	snprintf(want, sizeof(want), "\n%s", name);
	for (line = strstr(text, want); line; line = strstr(line + 1, want))
		if (strchr("{ ", line[strlen(want)]))
			break;
	ck_assert_msg(line != NULL, "no %s in /metrics", name);
	line += strlen(want);
	v = strtod(*line == '{' ? strchr(line, '}') + 1 : line, NULL);
	free(text);
	return v;
}

u32 serve_ended(struct served *s, const char *reason)
{
	char *text = NULL, *at, want[64];
	u32 n;

	ck_assert_int_eq(web_ask(s->port, "/metrics", NULL, &text), 200);
	snprintf(want, sizeof(want), ",finished_reason=\"%s\"} ", reason);
	at = strstr(text, want);
	ck_assert_msg(at != NULL, "no %s in /metrics", want);
	n = (u32)strtoul(at + strlen(want), NULL, 10);
	free(text);
	return n;
}

void serve_await_idle(struct served *s, u32 ms)
{
	const u64 end = now_ms() + ms * time_scale();
	s64 open, sealed, committed;

	for (;;) {
		open = rig_value(s->rig, "meminfo", "Open");
		sealed = rig_value(s->rig, "meminfo", "Sealed");
		committed = rig_value(s->rig, "meminfo", "Committed");
		if (!open && !sealed && !committed)
			break;
		if (now_ms() > end)
			ck_abort_msg("after %u ms: Open %lld Sealed %lld Committed %lld",
				     ms, (long long)open, (long long)sealed,
				     (long long)committed);
		nap_ms(5);
	}
	/* The number of running requests is published together with the counters. */
	while (serve_figure(s, "kvrt_calls") != 0 ||
	       serve_figure(s, "kvrt_num_requests_running") != 0)
		ck_assert_msg(now_ms() < end + 2000, "requests are left");
	ck_assert(serve_figure(s, "vllm:kv_cache_usage_perc") == 0);
	ck_assert(serve_figure(s, "vllm:num_requests_waiting") == 0);
}

json_t *complete(struct served *s, const char *body)
{
	json_t *v = web_json(s->port, "/v1/completions", body, 200);

	ck_assert_ptr_nonnull(v);
	return v;
}

void begin_stream(struct served *s, struct web *w, const char *body)
{
	char *event;

	web_open(w, s->port);
	ck_assert(web_post(w, "/v1/completions", body));
	ck_assert_int_eq(web_status(w), 200);
	event = web_event(w);
	ck_assert_ptr_nonnull(event);
	free(event);
}

json_t *choice(json_t *answer, size_t i)
{
	json_t *c = json_array_get(json_object_get(answer, "choices"), i);

	ck_assert_ptr_nonnull(c);
	ck_assert_int_eq(json_integer_value(json_object_get(c, "index")),
			 (json_int_t)i);
	return c;
}

const char *choice_text(json_t *answer, size_t i)
{
	json_t *c = choice(answer, i);
	json_t *text = json_object_get(c, "text");

	if (!text)
		text = json_object_get(json_object_get(c, "message"),
				       "content");
	ck_assert(json_is_string(text));
	return json_string_value(text);
}

s64 usage(json_t *answer, const char *name)
{
	json_t *u = json_object_get(answer, "usage");
	json_t *v = json_object_get(u, name);

	if (!v)
		v = json_object_get(json_object_get(u, "prompt_tokens_details"),
				    name);
	ck_assert_msg(json_is_integer(v), "no usage.%s", name);
	return json_integer_value(v);
}

void refused(struct served *s, const char *path, const char *body, int status,
	     const char *param)
{
	json_t *v = web_json(s->port, path, body, status);
	json_t *e = json_object_get(v, "error");
	const char *have;

	ck_assert_ptr_nonnull(v);
	ck_assert(json_string_length(json_object_get(e, "message")) > 0);
	ck_assert(json_is_string(json_object_get(e, "type")));
	ck_assert_ptr_nonnull(json_object_get(e, "param"));
	ck_assert_ptr_nonnull(json_object_get(e, "code"));
	have = json_string_value(json_object_get(e, "param"));
	ck_assert_msg(param ? have && !strcmp(have, param) : !have,
		      "%s: names %s, not %s", body, have ? have : "nothing",
		      param ? param : "nothing");
	json_decref(v);
}
