// SPDX-License-Identifier: Apache-2.0
/*
 * it_serve_many.c - kvrt serve with several threads, sockets, keys and models
 *
 * budget: 40 s, full 80 s
 *
 * Clients see one server, however many parts it has: connections spread over
 * all threads, limits hold for all of them together, answers are the same on
 * every socket, and a request gets the model that it names, or an error.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/integration/serve.h"

#define ENDLESS(more)	"{\"prompt\":\"In the beginning\",\"max_tokens\":1000,\"ignore_eos\":true" more "}"

static struct rig rig;
static struct served server;

static void setup(void)
{
	rig_start(&rig, "--pool-size", "32M", "--extent-size", "512K", NULL);
}

static void teardown(void)
{
	rig_walk(&rig);
	serve_stop(&server);
	rig_stop(&rig);
}

/* ---- threads ---- */

/* Nanoseconds of work of each thread with this name.  Return: number of threads. */
static u32 threads_at_work(const char *name, u64 *ns, u32 max)
{
	char path[128], *text;
	u32 i, nr = 0;

	for (i = 0; i < 64 && nr < max; i++) {
		const int tid = server.job.pid + (int)i;

		snprintf(path, sizeof(path), "/proc/%d/task/%d/comm", server.job.pid, tid);
		if (access(path, R_OK))
			continue;
		text = slurp(path);
		text[strcspn(text, "\n")] = '\0';
		if (!strcmp(text, name)) {
			free(text);
			snprintf(path, sizeof(path), "/proc/%d/task/%d/schedstat", server.job.pid, tid);
			text = slurp(path);
			ns[nr++] = strtoull(text, NULL, 10);
		}
		free(text);
	}
	return nr;
}

/* Eight connections with streams spread over four threads. */
START_TEST(test_loops_share)
{
	u64 before[8], after[8];
	struct web w[8];
	u32 i;

	serve_loops = 4;
	serve_start(&server, &rig, NULL);
	serve_await(&server, 200, 30);
	ck_assert(serve_figure(&server, "kvrt_http_loops") == 4);
	for (i = 0; i < ARRAY_SIZE(w); i++)
		web_open(&w[i], server.port);
	nap_ms(100 * time_scale());
	/* The connections are made; from now on only their threads work. */
	ck_assert_uint_eq(threads_at_work("kvrt-loop", before, 8), 3);
	for (i = 0; i < ARRAY_SIZE(w); i++)
		ck_assert(web_post(&w[i], "/v1/completions", "{\"prompt\":\"In\",\"max_tokens\":20,\"ignore_eos\":true,\"stream\":true}"));
	for (i = 0; i < ARRAY_SIZE(w); i++) {
		char *event;

		ck_assert_int_eq(web_status(&w[i]), 200);
		while ((event = web_event(&w[i])))
			free(event);
		ck_assert(w[i].over);
		web_close(&w[i]);
	}
	threads_at_work("kvrt-loop", after, 8);
	for (i = 0; i < 3; i++)
		ck_assert_msg(after[i] > before[i], "thread %u slept", i);
	/* The figures are sums over all threads. */
	ck_assert_uint_eq(serve_ended(&server, "length"), 8);
	ck_assert(serve_figure(&server, "kvrt_http_accepted_total") >= 9);
	serve_await_idle(&server, 2000);
}
END_TEST

/* Limits hold for all threads together, whichever thread a client has. */
START_TEST(test_loops_limits)
{
	struct web w[6], idle[3];
	const u64 end = now_ms() + 10000 * time_scale();
	u32 i, full = 0;

	serve_loops = 3;
	serve_start(&server, &rig, "--max-requests", "4", "--max-connections", "7", NULL);
	serve_await(&server, 200, 30);
	for (i = 0; i < ARRAY_SIZE(w); i++) {
		web_open(&w[i], server.port);
		ck_assert(web_post(&w[i], "/v1/completions", ENDLESS(",\"stream\":true")));
		if (web_status(&w[i]) == 429)
			full++;
	}
	ck_assert_uint_eq(full, 2);
	/* Two connections are idle now; the ones idle for longest make room. */
	for (i = 0; i < ARRAY_SIZE(idle); i++) {
		web_open(&idle[i], server.port);
		ck_assert(web_get(&idle[i], "/health"));
		ck_assert_int_eq(web_status(&idle[i]), 200);
		free(web_body(&idle[i]));
	}
	/* An idle connection is closed by its own thread, a moment later. */
	while (serve_figure(&server, "kvrt_http_connections") > 7)
		ck_assert_msg(now_ms() < end, "more connections than there may be");
	ck_assert(serve_figure(&server, "kvrt_http_evicted_total") >= 2);
	for (i = 0; i < ARRAY_SIZE(w); i++)
		web_close(&w[i]);
	for (i = 0; i < ARRAY_SIZE(idle); i++)
		web_close(&idle[i]);
	serve_await_idle(&server, 2000);
}
END_TEST

/* ---- a socket in the file system ---- */

static void unix_open(struct web *w, const char *path)
{
	struct sockaddr_un sa = { .sun_family = AF_UNIX };

	memset(w, 0, sizeof(*w));
	w->wait_ms = 10000;
	strcpy(sa.sun_path, path);
	w->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (!connect(w->fd, (struct sockaddr *)&sa, sizeof(sa)))
		return;
	close(w->fd);
	w->fd = -1;
}

static int unix_ask(const char *path, const char *body)
{
	struct web w;
	int status;

	unix_open(&w, path);
	if (w.fd < 0)
		return 0;
	ck_assert(web_post(&w, "/v1/completions", body));
	status = web_status(&w);
	free(web_body(&w));
	web_close(&w);
	return status;
}

static void refuses_unix(const char *path, const char *words)
{
	struct job j = job_start(&rig, "kvrt", "serve", demo_model(), "--port",
				 "0", "--threads", "1", "--unix", path, NULL);
	int code = job_wait(&j, 30);
	char *said = slurp(j.err);

	ck_assert_msg(code == 69 && strstr(said, words) &&
		      count_lines(said) == 1, "%d: %s", code, said);
	free(said);
}

START_TEST(test_unix_socket)
{
	char path[RIG_PATH + 32], *text;
	struct stat st;
	FILE *f;

	serve_loops = 2;
	snprintf(path, sizeof(path), "%s/serve.sock", rig.dir);
	serve_start(&server, &rig, "--unix", path, "--unix-mode", "620", NULL);
	serve_await(&server, 200, 30);
	ck_assert_int_eq(lstat(path, &st), 0);
	ck_assert(S_ISSOCK(st.st_mode));
	ck_assert_int_eq(st.st_mode & 0777, 0620);
	ck_assert_int_eq(unix_ask(path, "{\"prompt\":\"a\",\"max_tokens\":2}"), 200);
	ck_assert_int_eq(web_ask(server.port, "/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":2}", NULL), 200);
	refuses_unix(path, "another server listens there");
	ck_assert_int_eq(unix_ask(path, "{\"prompt\":\"a\",\"max_tokens\":2}"), 200);
	/* The server removes the socket when it ends; a killed one leaves it behind. */
	serve_stop(&server);
	ck_assert_int_eq(lstat(path, &st), -1);
	serve_start(&server, &rig, "--unix", path, NULL);
	serve_await(&server, 200, 30);
	job_kill(&server.job, SIGKILL);
	job_wait(&server.job, 10);
	ck_assert_int_eq(lstat(path, &st), 0);
	ck_assert_int_eq(st.st_mode & 0777, 0600);
	ck_assert_int_eq(unix_ask(path, "{}"), 0);
	serve_start(&server, &rig, "--unix", path, NULL);
	serve_await(&server, 200, 30);
	ck_assert_int_eq(unix_ask(path, "{\"prompt\":\"a\",\"max_tokens\":2}"), 200);
	/* A file that is not a socket must stay. */
	snprintf(path, sizeof(path), "%s/letter", rig.dir);
	f = fopen(path, "we");
	ck_assert(f && fputs("dear", f) >= 0 && !fclose(f));
	refuses_unix(path, "it is no socket");
	text = slurp(path);
	ck_assert_str_eq(text, "dear");
	free(text);
}
END_TEST

/* Without a port; the server above is only there for the teardown. */
START_TEST(test_unix_only)
{
	char path[RIG_PATH + 32], *said;
	const u64 end = now_ms() + 30000 * time_scale();
	struct job j;

	serve_start(&server, &rig, NULL);
	snprintf(path, sizeof(path), "%s/only.sock", rig.dir);
	j = job_start(&rig, "kvrt", "serve", "--dtype", "f32", demo_model(),
		      "--threads", "1", "--unix", path, "--unix-only", NULL);
	while (unix_ask(path, "{\"prompt\":\"a\",\"max_tokens\":2}") != 200) {
		ck_assert_msg(now_ms() < end, "%s", slurp(j.err));
		nap_ms(20);
	}
	said = slurp(j.err);
	ck_assert_msg(strstr(said, "listening on unix:/") != NULL, "%s", said);
	ck_assert_msg(strstr(said, "http://127") == NULL, "%s", said);
	free(said);
	job_kill(&j, SIGTERM);
	ck_assert_int_eq(job_wait(&j, 30), 0);
	j = job_start(&rig, "kvrt", "serve", demo_model(), "--unix-only", NULL);
	ck_assert_int_eq(job_wait(&j, 30), 64);
	j = job_start(&rig, "kvrt", "serve", demo_model(), "--unix", path,
		      "--unix-mode", "rw", NULL);
	ck_assert_int_eq(job_wait(&j, 30), 64);
}
END_TEST

/* ---- keys ---- */

static void send_with(struct web *w, const char *key, const char *path,
		      const char *body)
{
	char text[1024];

	snprintf(text, sizeof(text), "%s %s HTTP/1.1\r\nHost: a\r\n%s%s%sContent-Length: %zu\r\n\r\n%s",
		 body ? "POST" : "GET", path, key ? "Authorization: Bearer " : "",
		 key ? key : "", key ? "\r\n" : "", body ? strlen(body) : 0,
		 body ? body : "");
	web_open(w, server.port);
	ck_assert(web_puts(w, text));
}

/* Status of a request with this key; NULL: without a key. */
static int ask_with(const char *key, const char *path, const char *body)
{
	struct web w;
	int status;

	send_with(&w, key, path, body);
	status = web_status(&w);
	free(web_body(&w));
	web_close(&w);
	return status;
}

START_TEST(test_keys)
{
	static const char body[] = "{\"prompt\":\"a\",\"max_tokens\":2}";
	char path[RIG_PATH + 32], *said;
	struct job j;
	FILE *f;

	snprintf(path, sizeof(path), "%s/keys", rig.dir);
	f = fopen(path, "we");
	ck_assert(f && fputs("# ours\nalice:sk-alice\nsk-nobody\n", f) >= 0 && !fclose(f));
	serve_start(&server, &rig, "--api-key", "sk-one", "--api-key", "sk-two",
		    "--api-key-file", path, "--log-level", "debug", NULL);
	serve_await(&server, 200, 30);
	ck_assert_int_eq(ask_with("sk-one", "/v1/completions", body), 200);
	ck_assert_int_eq(ask_with("sk-two", "/v1/models", NULL), 200);
	ck_assert_int_eq(ask_with("sk-alice", "/v1/completions", body), 200);
	ck_assert_int_eq(ask_with("sk-nobody", "/tokenize", "{\"prompt\":\"a\"}"), 200);
	ck_assert_int_eq(ask_with("sk-bob", "/v1/completions", body), 401);
	ck_assert_int_eq(ask_with("alice", "/v1/completions", body), 401);
	ck_assert_int_eq(ask_with(NULL, "/tokenize", "{\"prompt\":\"a\"}"), 401);
	ck_assert_int_eq(ask_with(NULL, "/detokenize", "{\"tokens\":[1]}"), 401);
	ck_assert_int_eq(ask_with(NULL, "/metrics", NULL), 200);
	said = slurp(server.job.err);
	ck_assert_msg(strstr(said, ", key alice\n") && strstr(said, ", key key-1\n") &&
		      strstr(said, ", key key-2\n") && strstr(said, ", key key-4\n"),
		      "%s", said);
	ck_assert_msg(!strstr(said, "sk-"), "%s", said);
	ck_assert_msg(strstr(said, "can be read by others"), "%s", said);
	ck_assert_msg(strstr(said, "completions -H 'Authorization: Bearer KEY' -d '"), "%s", said);
	free(said);
	j = job_start(&rig, "kvrt", "serve", demo_model(), "--api-key-file", "/nowhere", NULL);
	ck_assert_int_eq(job_wait(&j, 30), 64);
	j = job_start(&rig, "kvrt", "serve", demo_model(), "--api-key", "a", "--api-key", "a", NULL);
	ck_assert_int_eq(job_wait(&j, 30), 64);
}
END_TEST

/* Many requests with one key do not delay a request with another key. */
START_TEST(test_keys_take_turns)
{
	static const char many[] = "{\"prompt\":\"a\",\"max_tokens\":200,\"ignore_eos\":true}";
	static const char one[] = "{\"prompt\":\"b\",\"max_tokens\":4}";
	struct web w[40];
	u32 i;

	serve_start(&server, &rig, "--api-key", "sk-one", "--api-key", "sk-two",
		    "--max-batch", "2", NULL);
	serve_await(&server, 200, 30);
	for (i = 0; i < ARRAY_SIZE(w); i++)
		send_with(&w[i], "sk-one", "/v1/completions", many);
	ck_assert_int_eq(ask_with("sk-two", "/v1/completions", one), 200);
	ck_assert_uint_lt(serve_ended(&server, "length"), ARRAY_SIZE(w) / 2);
	for (i = 0; i < ARRAY_SIZE(w); i++) {
		ck_assert_int_eq(web_status(&w[i]), 200);
		free(web_body(&w[i]));
		web_close(&w[i]);
	}
}
END_TEST

/* ---- ids and deadlines ---- */

static char *ask_id(const char *id, const char *body, int *status, char **answer)
{
	char text[1024];
	const char *have;
	struct web w;
	char *copy;

	snprintf(text, sizeof(text), "POST /v1/completions HTTP/1.1\r\nHost: a\r\n%s%s%sContent-Length: %zu\r\n\r\n%s",
		 id ? "X-Request-Id: " : "", id ? id : "", id ? "\r\n" : "",
		 strlen(body), body);
	web_open(&w, server.port);
	ck_assert(web_puts(&w, text));
	*status = web_status(&w);
	have = web_header(&w, "X-Request-Id");
	ck_assert_msg(have != NULL, "no id for %s", body);
	copy = strdup(have);
	*answer = web_body(&w);
	web_close(&w);
	return copy;
}

START_TEST(test_request_ids)
{
	static const char body[] = "{\"prompt\":\"a\",\"max_tokens\":2}";
	char *one, *two, *answer, want[256];
	int status;

	serve_start(&server, &rig, NULL);
	serve_await(&server, 200, 30);
	one = ask_id("mine/7@home", body, &status, &answer);
	ck_assert_int_eq(status, 200);
	ck_assert_str_eq(one, "mine/7@home");
	ck_assert_ptr_nonnull(strstr(answer, "\"id\":\"cmpl-mine/7@home\""));
	free(one);
	free(answer);
	one = ask_id("mine", "{\"prompt\":\"a\",\"max_tokens\":2,\"request_id\":\"other\"}", &status, &answer);
	ck_assert_str_eq(one, "mine");
	ck_assert_ptr_nonnull(strstr(answer, "\"id\":\"cmpl-other\""));
	free(one);
	free(answer);
	one = ask_id(NULL, body, &status, &answer);
	snprintf(want, sizeof(want), "\"id\":\"cmpl-%s\"", one);
	ck_assert_msg(strstr(answer, want) != NULL, "%s: %s", want, answer);
	free(answer);
	/* Errors have an id too, and a malformed id is replaced. */
	two = ask_id("not \"fit\"", "{}", &status, &answer);
	ck_assert_int_eq(status, 400);
	ck_assert_uint_eq(strlen(two), 24);
	ck_assert_str_ne(one, two);
	snprintf(want, sizeof(want), " ms, id %s, code missing_parameter, param prompt\n", two);
	free(answer);
	answer = slurp(server.job.err);
	ck_assert_msg(strstr(answer, want) != NULL, "%s\n%s", want, answer);
	free(answer);
	free(one);
	free(two);
}
END_TEST

/*
 * A long stream is ended by an error event.  Return: false: it had not begun when its
 * time was over, as happens on a busy machine; then its status was 504.
 */
static bool ends_a_stream(void)
{
	char *event, *last = NULL;
	struct web w;
	int status;

	web_open(&w, server.port);
	ck_assert(web_post(&w, "/v1/completions", ENDLESS(",\"n\":32,\"stream\":true")));
	status = web_status(&w);
	if (status != 200) {
		ck_assert_int_eq(status, 504);
		web_close(&w);
		return false;
	}
	while ((event = web_event(&w))) {
		free(last);
		last = event;
	}
	ck_assert_msg(last && web_is_error(last, "request_timeout"), "%s", last);
	free(last);
	web_close(&w);
	return true;
}

/* Long requests are ended: a whole answer, a begun stream; a short one is not. */
START_TEST(test_request_timeout)
{
	u64 begin;
	u32 tries = 1;
	char seconds[16], *text = NULL;

	snprintf(seconds, sizeof(seconds), "%u", time_scale());
	serve_start(&server, &rig, "--request-timeout", seconds, "--kernels", "ref", NULL);
	serve_await(&server, 200, 30);
	json_decref(complete(&server, "{\"prompt\":\"a\",\"max_tokens\":1}"));
	begin = now_ms();
	ck_assert_int_eq(web_ask(server.port, "/v1/completions", ENDLESS(",\"n\":64"), &text), 504);
	ck_assert_msg(web_is_error(text, "request_timeout"), "%s", text);
	ck_assert(now_ms() - begin >= 990 * time_scale());
	free(text);
	while (!ends_a_stream())
		ck_assert_uint_lt(++tries, 10);
	serve_await_idle(&server, 2000);
	ck_assert_uint_eq(serve_ended(&server, "error"), 1 + tries);
	json_decref(complete(&server, "{\"prompt\":\"a\",\"max_tokens\":1}"));
}
END_TEST

/* ---- models ---- */

static void copy_model(const char *dir)
{
	static const char * const files[] = {
		"config.json", "generation_config.json", "model.safetensors",
		"tokenizer.json", "tokenizer_config.json",
	};
	char from[512], to[512], *real;
	u32 i;

	ck_assert_int_eq(mkdir(dir, 0700), 0);
	for (i = 0; i < ARRAY_SIZE(files); i++) {
		snprintf(from, sizeof(from), "%s/%s", demo_model(), files[i]);
		snprintf(to, sizeof(to), "%s/%s", dir, files[i]);
		real = realpath(from, NULL);
		ck_assert(real && !symlink(real, to));
		free(real);
	}
}

static void expect_model(const char *body, int status, const char *words)
{
	char *text = NULL;
	int have = web_ask(server.port, "/v1/completions", body, &text);

	ck_assert_msg(have == status && strstr(text, words), "%s: %d %s", body,
		      have, text);
	free(text);
}

static u32 nr_of(const char *text, const char *what)
{
	u32 n = 0;

	for (; (text = strstr(text, what)); text++)
		n++;
	return n;
}

static double figure_of(const char *text, const char *name, const char *model)
{
	char key[128];
	const char *at;

	snprintf(key, sizeof(key), "\nkvrt_%s{model_name=\"%s\"} ", name, model);
	at = strstr(text, key);
	ck_assert_msg(at, "%s is not there", key + 1);
	return strtod(at + strlen(key), NULL);
}

/* Check the times of one request of @model: the parts make up the whole. */
static void check_times(const char *text, const char *model)
{
	double queue = figure_of(text, "request_queue_time_seconds_sum", model);
	double prefill = figure_of(text, "request_prefill_time_seconds_sum", model);
	double decode = figure_of(text, "request_decode_time_seconds_sum", model);
	double inference = figure_of(text, "request_inference_time_seconds_sum", model);

	ck_assert(figure_of(text, "request_queue_time_seconds_count", model) == 1);
	ck_assert(figure_of(text, "request_inference_time_seconds_count", model) == 1);
	ck_assert(figure_of(text, "request_preempted_time_seconds_count", model) == 0);
	ck_assert(queue > 0 && prefill > 0 && decode > 0);
	ck_assert_double_eq_tol(prefill + decode, inference, 1e-9);
	ck_assert_double_le(queue + prefill, figure_of(text, "time_to_first_token_seconds_sum", model));
	ck_assert_double_le(queue + inference, figure_of(text, "e2e_request_latency_seconds_sum", model));
}

START_TEST(test_models)
{
	char dir[RIG_PATH + 32], named[RIG_PATH + 64], *text = NULL;
	json_t *v, *list;
	struct job j;

	snprintf(dir, sizeof(dir), "%s/demo-model", rig.dir);
	copy_model(dir);
	snprintf(named, sizeof(named), "second=%s", dir);
	serve_loops = 2;
	serve_start(&server, &rig, "--mode", "exact", "--model", named, NULL);
	serve_await(&server, 200, 60);
	v = web_json(server.port, "/v1/models", NULL, 200);
	list = json_object_get(v, "data");
	ck_assert_uint_eq(json_array_size(list), 2);
	ck_assert_str_eq(json_string_value(json_object_get(json_array_get(list, 0), "id")), "demo-model");
	ck_assert_str_eq(json_string_value(json_object_get(json_array_get(list, 1), "id")), "second");
	json_decref(v);
	v = web_json(server.port, "/v1/models/second", NULL, 200);
	ck_assert_str_eq(json_string_value(json_object_get(v, "root")), dir);
	json_decref(v);
	expect_model("{\"model\":\"second\",\"prompt\":\"a\",\"max_tokens\":3,\"ignore_eos\":true}", 200, "\"model\":\"second\"");
	expect_model("{\"model\":\"demo-model\",\"prompt\":\"a\",\"max_tokens\":2,\"ignore_eos\":true}", 200, "\"model\":\"demo-model\"");
	expect_model("{\"model\":\"third\",\"prompt\":\"a\"}", 404, "model_not_found");
	expect_model("{\"model\":\"third\",\"prompt\":\"a\"}", 404, "has 'demo-model', 'second'");
	expect_model("{\"prompt\":\"a\"}", 400, "\"code\":\"missing_parameter\"");
	expect_model("{\"model\":null,\"prompt\":\"a\"}", 400, "\"param\":\"model\"");
	expect_model("{\"model\":7,\"prompt\":\"a\"}", 400, "\"code\":\"invalid_value\"");
	ck_assert_int_eq(web_ask(server.port, "/tokenize", "{\"model\":\"second\",\"prompt\":\"a\"}", NULL), 200);
	ck_assert_int_eq(web_ask(server.port, "/tokenize", "{\"prompt\":\"a\"}", NULL), 400);
	serve_await_idle(&server, 2000);
	/* Each model counts its own tokens, and every family appears once. */
	ck_assert_int_eq(web_ask(server.port, "/metrics", NULL, &text), 200);
	ck_assert_msg(strstr(text, "\nkvrt_generation_tokens_total{model_name=\"demo-model\"} 2\n") &&
		      strstr(text, "\nkvrt_generation_tokens_total{model_name=\"second\"} 3\n"),
		      "%s", text);
	ck_assert_uint_eq(nr_of(text, "# TYPE kvrt_generation_tokens_total "), 1);
	ck_assert_uint_eq(nr_of(text, "kvrt_e2e_request_latency_seconds_count{"), 2);
	check_times(text, "demo-model");
	check_times(text, "second");
	free(text);
	/*
	 * Two folders with the same name: each model has the domain of its
	 * served name.
	 */
	j = job_start(&rig, "kvctl", "cat", "domains", NULL);
	ck_assert_int_eq(job_wait(&j, 10), 0);
	text = slurp(j.out);
	ck_assert_msg(strstr(text, "second") && strstr(text, "demo-model"), "%s", text);
	free(text);
}
END_TEST

/* One model is not attached: /ready names it, and the other one works. */
START_TEST(test_models_ready)
{
	char dir[RIG_PATH + 32], named[RIG_PATH + 64], *text = NULL;
	struct served other = { 0 };
	u64 end = now_ms() + 30000 * time_scale();
	struct job j;
	int code;

	rig_stop(&rig);
	rig_start(&rig, "--adopt", "off", "--pool-size", "32M", "--extent-size", "512K", NULL);
	snprintf(dir, sizeof(dir), "%s/x", rig.dir);
	copy_model(dir);
	snprintf(named, sizeof(named), "demo-model=%s", dir);
	/*
	 * Names must differ, all folders must exist, and --domain is for one
	 * model only.
	 */
	j = job_start(&rig, "kvrt", "serve", demo_model(), "--model", named, NULL);
	ck_assert_int_eq(job_wait(&j, 30), 64);
	j = job_start(&rig, "kvrt", "serve", demo_model(), "/nowhere", NULL);
	ck_assert_int_eq(job_wait(&j, 30), 66);
	j = job_start(&rig, "kvrt", "serve", demo_model(), dir, "--domain", "d", NULL);
	ck_assert_int_eq(job_wait(&j, 30), 64);
	j = job_start(&rig, "kvrt", "serve", "--model", "=x", NULL);
	ck_assert_int_eq(job_wait(&j, 30), 64);
	/* Another model uses the domain: the first attachment fails for good. */
	snprintf(named, sizeof(named), "%s/y", rig.dir);
	copy_model(named);
	serve_start(&server, &rig, "--domain", "y", "--block-tokens", "32", NULL);
	serve_await(&server, 200, 30);
	j = job_start(&rig, "kvrt", "serve", "--dtype", "f32", demo_model(), named,
		      "--port", "0", "--threads", "1", NULL);
	ck_assert_int_eq(job_wait(&j, 30), 69);
	serve_stop(&server);
	serve_start(&server, &rig, dir, NULL);
	serve_await(&server, 200, 30);
	/* The daemon dies, and another server takes the domain of one model. */
	kill(server.job.pid, SIGSTOP);
	kill(rig_daemon(&rig), SIGKILL);
	serve_start(&other, &rig, "--domain", "x", "--block-tokens", "32", NULL);
	serve_await(&other, 200, 30);
	kill(server.job.pid, SIGCONT);
	do {
		ck_assert_msg(now_ms() < end, "%s", text);
		nap_ms(20);
		free(text);
		text = NULL;
		code = web_ask(server.port, "/ready", NULL, &text);
	} while (code != 503 || !strstr(text, "{\"id\":\"demo-model\",\"status\":\"ready\"},{\"id\":\"x\",\"status\":\"detached\"}"));
	free(text);
	expect_model("{\"model\":\"x\",\"prompt\":\"a\"}", 503, "daemon_gone");
	/* The other model may still look ready, without knowing of that death. */
	while (web_ask(server.port, "/v1/completions", "{\"model\":\"demo-model\",\"prompt\":\"a\",\"max_tokens\":2}",
		       NULL) != 200) {
		ck_assert_msg(now_ms() < end, "demo-model is not served again");
		nap_ms(20);
	}
	expect_model("{\"model\":\"demo-model\",\"prompt\":\"a\",\"max_tokens\":2}", 200, "\"choices\"");
	serve_stop(&other);
	serve_await(&server, 200, 30);
	expect_model("{\"model\":\"x\",\"prompt\":\"a\",\"max_tokens\":2}", 200, "\"choices\"");
}
END_TEST

static void add_tests(TCase *tc)
{
	tcase_add_test(tc, test_keys);
	tcase_add_test(tc, test_keys_take_turns);
	tcase_add_test(tc, test_request_ids);
	tcase_add_test(tc, test_request_timeout);
	tcase_add_test(tc, test_models);
	tcase_add_test(tc, test_models_ready);
	tcase_add_test(tc, test_loops_share);
	tcase_add_test(tc, test_loops_limits);
	tcase_add_test(tc, test_unix_socket);
	tcase_add_test(tc, test_unix_only);
}

int main(void)
{
	Suite *s = suite_create("serve-many");
	TCase *tc = tcase_create("several");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 300);
	tcase_add_checked_fixture(tc, setup, teardown);
	add_tests(tc);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
