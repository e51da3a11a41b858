// SPDX-License-Identifier: Apache-2.0
/*
 * it_serve_lora.c - kvrt serve with adapters
 *
 * budget: 60 s, full 180 s
 *
 * Two made-up adapters of the demo model are loaded at start and while it serves.  A
 * request gets the adapter that it names, until its end, whatever happens to the name.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/integration/serve.h"

#define LOAD	"/v1/load_lora_adapter"
#define UNLOAD	"/v1/unload_lora_adapter"
#define ASK(name, more)	"{\"model\":\"" name "\",\"prompt\":\"In the beginning\",\"temperature\":0,\"ignore_eos\":true" more "}"

static struct rig rig;
static struct served server;
static char dirs[2][RIG_PATH + 16];
static char lora[2][RIG_PATH + 32];	/* for --lora */
static char loads[2][2 * RIG_PATH];	/* bodies that load them under names of their own */

/* The rank of both is 8. */
static void make_adapter(u32 i)
{
	const char *top = getenv("KVMM_TOP");
	char cmd[1200];

	snprintf(dirs[i], sizeof(dirs[i]), "%s/adapter-%u", rig.dir, i);
	snprintf(lora[i], sizeof(lora[i]), "%s=%s", i ? "blue" : "red", dirs[i]);
	snprintf(loads[i], sizeof(loads[i]), "{\"lora_name\":\"%s\",\"lora_path\":\"%s\"}",
		 i ? "blue" : "red", dirs[i]);
	snprintf(cmd, sizeof(cmd), "python3 '%s/tests/data/make_adapter.py' '%s' '%s' --targets all --seed %u",
		 top ? top : ".", demo_model(), dirs[i], i + 1);
	ck_assert_int_eq(system(cmd), 0);
}

static void setup(void)
{
	rig_start(&rig, "--pool-size", "64M", "--extent-size", "512K", "--adopt", "off", NULL);
	make_adapter(0);
	make_adapter(1);
}

static void teardown(void)
{
	char cmd[RIG_PATH + 32];

	rig_walk(&rig);
	serve_stop(&server);
	snprintf(cmd, sizeof(cmd), "rm -rf '%s'/adapter-*", rig.dir);
	ck_assert_int_eq(system(cmd), 0);
	rig_stop(&rig);
}

/* ---- requests ---- */

/* The text of an answer, to be freed; the answer names @model. */
static char *text_of(const char *model, const char *body)
{
	json_t *v = complete(&server, body);
	char *text = strdup(choice_text(v, 0));

	ck_assert_str_eq(json_string_value(json_object_get(v, "model")), model);
	json_decref(v);
	return text;
}

static void expect(const char *path, const char *body, int status, const char *code)
{
	char *text = NULL;
	const int have = web_ask(server.port, path, body, &text);

	ck_assert_msg(have == status, "%s %s: %d: %s", path, body ? body : "", have, text);
	ck_assert_msg(web_is_error(text, code), "%s", text);
	free(text);
}

static void done(const char *path, const char *body)
{
	char *text = NULL;
	const int have = web_ask(server.port, path, body, &text);

	ck_assert_msg(have == 200, "%s %s: %d: %s", path, body, have, text);
	free(text);
}

static void said(const char *words)
{
	char *err = slurp(server.job.err);

	ck_assert_msg(strstr(err, words) != NULL, "does not say '%s':\n%s", words, err);
	free(err);
}

/* kvrt_adapter_requests_total of an adapter; -1: it is not there. */
static int requests_of(const char *name)
{
	char *text = NULL, *at, want[64];
	int n = -1;

	ck_assert_int_eq(web_ask(server.port, "/metrics", NULL, &text), 200);
	snprintf(want, sizeof(want), ",adapter=\"%s\"} ", name);
	at = strstr(text, want);
	if (at)
		n = atoi(at + strlen(want));
	free(text);
	return n;
}

/* ---- names ---- */

static void expect_entry(json_t *v, const char *id, const char *parent, const char *root)
{
	const char *have = json_string_value(json_object_get(v, "parent"));

	ck_assert_str_eq(json_string_value(json_object_get(v, "id")), id);
	ck_assert_str_eq(json_string_value(json_object_get(v, "root")), root);
	ck_assert(json_object_get(v, "parent") != NULL);
	ck_assert(parent ? have && !strcmp(have, parent) : !have);
}

static void expect_list(u32 nr)
{
	static const char * const names[] = { "demo-model", "red", "blue" };
	json_t *v = web_json(server.port, "/v1/models", NULL, 200);
	json_t *data = json_object_get(v, "data");
	u32 i;

	ck_assert_uint_eq(json_array_size(data), nr);
	for (i = 0; i < nr; i++)
		expect_entry(json_array_get(data, i), names[i], i ? "demo-model" : NULL,
			     i ? dirs[i - 1] : demo_model());
	json_decref(v);
}

START_TEST(test_names)
{
	char *text;
	json_t *v;

	serve_start(&server, &rig, "--lora", lora[0], "--lora", lora[1], NULL);
	serve_await(&server, 200, 30);
	said("adapter red: ");
	expect_list(3);
	v = web_json(server.port, "/v1/models/blue", NULL, 200);
	expect_entry(v, "blue", "demo-model", dirs[1]);
	json_decref(v);
	expect("/v1/models/green", NULL, 404, "model_not_found");
	expect("/v1/completions", "{\"model\":\"green\",\"prompt\":\"a\"}", 404, "model_not_found");
	v = web_json(server.port, "/v1/completions", "{\"model\":\"green\",\"prompt\":\"a\"}", 404);
	ck_assert_str_eq(json_string_value(json_object_get(json_object_get(v, "error"), "message")),
			 "The model 'green' does not exist: this server has 'demo-model', 'red', 'blue'");
	json_decref(v);
	v = web_json(server.port, "/tokenize", "{\"model\":\"red\",\"prompt\":\"In the\"}", 200);
	ck_assert_int_gt(json_integer_value(json_object_get(v, "count")), 0);
	json_decref(v);
	ck_assert(serve_figure(&server, "kvrt_adapters") == 2);
	/* A router sees which adapters are here; the value is the time. */
	ck_assert_int_eq(web_ask(server.port, "/metrics", NULL, &text), 200);
	ck_assert_ptr_nonnull(strstr(text, "\nvllm:lora_requests_info{model_name=\"demo-model\",max_lora=\"256\",running_lora_adapters=\"red,blue\",waiting_lora_adapters=\"\"} 1"));
	free(text);
	/* Adapters are served, but none may be loaded. */
	expect(LOAD, loads[0], 403, "adapters_disabled");
	expect(UNLOAD, "{\"lora_name\":\"red\"}", 403, "adapters_disabled");
	expect_list(3);
}
END_TEST

/* ---- loading while it serves ---- */

static void expect_loads_refused(void)
{
	char body[1024];

	refused(&server, LOAD, "{\"lora_name\":\"red\"}", 400, "lora_path");
	refused(&server, LOAD, "{\"lora_path\":\"/d\"}", 400, "lora_name");
	refused(&server, LOAD, "{\"lora_name\":\"x\",\"lora_path\":\"/nowhere\"}", 404, "lora_path");
	refused(&server, LOAD, "{\"lora_name\":\"demo-model\",\"lora_path\":\"/d\"}", 400, "lora_name");
	refused(&server, LOAD, "{\"lora_name\":\"x\",\"lora_path\":\"/d\",\"model\":\"y\"}", 404, "model");
	refused(&server, UNLOAD, "{\"lora_name\":\"red\"}", 404, "lora_name");
	refused(&server, UNLOAD, "{\"lora_name\":\"demo-model\"}", 404, "lora_name");
	/* A folder that has no adapter. */
	snprintf(body, sizeof(body), "{\"lora_name\":\"x\",\"lora_path\":\"%s\"}", demo_model());
	refused(&server, LOAD, body, 404, "lora_path");
}

START_TEST(test_load)
{
	char body[1024];

	serve_start(&server, &rig, "--enable-lora", NULL);
	serve_await(&server, 200, 30);
	expect_loads_refused();
	expect_list(1);
	done(LOAD, loads[0]);
	refused(&server, LOAD, loads[0], 400, "lora_name");
	snprintf(body, sizeof(body), "{\"lora_name\":\"red\",\"lora_path\":\"%s\",\"load_inplace\":true}",
		 dirs[0]);
	done(LOAD, body);
	expect_list(2);
	done(LOAD, loads[1]);
	expect_list(3);
	done(UNLOAD, "{\"lora_name\":\"blue\",\"lora_int_id\":2}");
	expect_list(2);
	refused(&server, UNLOAD, "{\"lora_name\":\"blue\"}", 404, "lora_name");
	ck_assert_int_eq(web_ask(server.port, LOAD, NULL, NULL), 405);
}
END_TEST

/* Of several models an adapter belongs to the one that is named, its name to the server. */
START_TEST(test_models)
{
	char one[RIG_PATH + 32], name[RIG_PATH + 64], body[1024];
	struct job j;
	json_t *v;

	snprintf(one, sizeof(one), "one=%s", demo_model());
	snprintf(name, sizeof(name), "one:%s", lora[0]);
	j = job_start(&rig, "kvrt", "serve", demo_model(), "--model", one, "--port", "0",
		      "--lora", lora[0], NULL);
	ck_assert_int_eq(job_wait(&j, 60), 64);
	serve_start(&server, &rig, "--model", one, "--lora", name, "--enable-lora", NULL);
	serve_await(&server, 200, 30);
	v = web_json(server.port, "/v1/models/red", NULL, 200);
	expect_entry(v, "red", "one", dirs[0]);
	json_decref(v);
	refused(&server, LOAD, loads[1], 400, "model");
	snprintf(body, sizeof(body), "{\"model\":\"demo-model\",\"lora_name\":\"blue\",\"lora_path\":\"%s\"}",
		 dirs[1]);
	done(LOAD, body);
	v = web_json(server.port, "/v1/models/blue", NULL, 200);
	expect_entry(v, "blue", "demo-model", dirs[1]);
	json_decref(v);
	/* Another model's adapter cannot take the name, not even in its place. */
	snprintf(body, sizeof(body), "{\"model\":\"one\",\"lora_name\":\"blue\",\"lora_path\":\"%s\",\"load_inplace\":true}",
		 dirs[1]);
	refused(&server, LOAD, body, 400, "lora_name");
	free(text_of("red", ASK("red", ",\"max_tokens\":2")));
	free(text_of("blue", ASK("blue", ",\"max_tokens\":2")));
	done(UNLOAD, "{\"lora_name\":\"blue\"}");
	done(UNLOAD, "{\"lora_name\":\"red\"}");
}
END_TEST

/* A rank above --max-lora-rank is refused; of an adapter at start, with its exit code. */
START_TEST(test_rank)
{
	struct job j = job_start(&rig, "kvrt", "serve", demo_model(), "--port", "0",
				 "--lora", lora[0], "--max-lora-rank", "4", NULL);
	char *err;

	ck_assert_int_eq(job_wait(&j, 60), 65);
	err = slurp(j.err);
	ck_assert_msg(strstr(err, "adapter-0") != NULL, "%s", err);
	free(err);
	j = job_start(&rig, "kvrt", "serve", demo_model(), "--port", "0", "--lora", "red=/nowhere", NULL);
	ck_assert_int_eq(job_wait(&j, 60), 66);
	j = job_start(&rig, "kvrt", "serve", demo_model(), "--port", "0", "--lora", "red", NULL);
	ck_assert_int_eq(job_wait(&j, 60), 64);
	serve_start(&server, &rig, "--enable-lora", "--max-lora-rank", "4", NULL);
	serve_await(&server, 200, 30);
	refused(&server, LOAD, loads[0], 400, "lora_path");
}
END_TEST

/* The paths read folders of the server, so a key is needed. */
START_TEST(test_key)
{
	serve_start(&server, &rig, "--enable-lora", "--api-key", "sk-one", NULL);
	serve_await(&server, 200, 30);
	expect(LOAD, loads[0], 401, "invalid_api_key");
	expect(UNLOAD, "{\"lora_name\":\"red\"}", 401, "invalid_api_key");
}
END_TEST

/* KiB of the server that belong to no file. */
static u64 rss_anon(void)
{
	char path[64], *text, *at;
	u64 kib;

	snprintf(path, sizeof(path), "/proc/%d/status", server.job.pid);
	text = slurp(path);
	at = strstr(text, "RssAnon:");
	ck_assert_ptr_nonnull(at);
	kib = strtoull(at + 8, NULL, 10);
	free(text);
	return kib;
}

/* KiB that the server may grow by; sanitizers keep freed memory for a while. */
static u64 most_growth(void)
{
	const char *san = getenv("KVMM_SANITIZER");

	return san && *san ? 1 << 20 : 8 << 10;
}

static u32 count_maps(void)
{
	char path[64], *text;
	u32 n;

	snprintf(path, sizeof(path), "/proc/%d/maps", server.job.pid);
	text = slurp(path);
	n = count_lines(text);
	free(text);
	return n;
}

/* Load and unload both, @rounds times, with a request of each. */
static void load_often(u32 rounds)
{
	u32 i;

	for (i = 0; i < rounds; i++) {
		done(LOAD, loads[i % 2]);
		free(text_of(i % 2 ? "blue" : "red", i % 2 ?
			     ASK("blue", ",\"max_tokens\":2") : ASK("red", ",\"max_tokens\":2")));
		done(UNLOAD, i % 2 ? "{\"lora_name\":\"blue\"}" : "{\"lora_name\":\"red\"}");
	}
}

/* A client that asks one adapter after the other, on a thread of its own. */
struct asker {
	pthread_t	thread;
	bool		stop;
	u32		nr;
	u32		bad;
};

static void *ask_on(void *arg)
{
	struct asker *k = arg;

	while (!READ_ONCE(k->stop)) {
		char *text = NULL;
		const int status = web_ask(server.port, "/v1/completions", k->nr % 2 ?
					   ASK("blue", ",\"max_tokens\":30") :
					   ASK("red", ",\"max_tokens\":30"), &text);

		k->bad += status != 200;
		k->nr++;
		free(text);
	}
	return NULL;
}

/* Load and unload both under other names, @rounds times. */
static void load_others(u32 rounds)
{
	char body[2][1024];
	u32 i;

	for (i = 0; i < 2; i++)
		snprintf(body[i], sizeof(body[i]), "{\"lora_name\":\"other\",\"lora_path\":\"%s\"}",
			 dirs[i]);
	for (i = 0; i < rounds; i++) {
		done(LOAD, body[i % 2]);
		done(UNLOAD, "{\"lora_name\":\"other\"}");
	}
}

/* All loads and unloads succeed while adapters are in use, and nothing is left of them. */
START_TEST(test_loads_under_requests)
{
	const u32 rounds = by_level(200, 3000, 10000);
	struct asker k[3] = { 0 };
	u32 i, maps, fds;
	u64 before;

	serve_start(&server, &rig, "--enable-lora", "--lora", lora[0], "--lora", lora[1], NULL);
	serve_await(&server, 200, 30);
	load_others(20);
	nap_ms(300);
	fds = serve_fds(&server);
	for (i = 0; i < ARRAY_SIZE(k); i++)
		ck_assert_int_eq(pthread_create(&k[i].thread, NULL, ask_on, &k[i]), 0);
	load_others(rounds / 10);
	before = rss_anon();
	maps = count_maps();
	load_others(rounds);
	ck_assert_uint_lt(rss_anon(), before + most_growth());
	ck_assert_uint_lt(count_maps(), maps + 20);
	for (i = 0; i < ARRAY_SIZE(k); i++)
		WRITE_ONCE(k[i].stop, true);
	for (i = 0; i < ARRAY_SIZE(k); i++) {
		ck_assert_int_eq(pthread_join(k[i].thread, NULL), 0);
		ck_assert_uint_gt(k[i].nr, 0);
		ck_assert_uint_eq(k[i].bad, 0);
	}
	nap_ms(300);
	serve_expect_fds(&server, fds);
	ck_assert(serve_figure(&server, "kvrt_adapters") == 2);
	serve_await_idle(&server, 3000);
}
END_TEST

/* An adapter has its file open, so one that is kept shows; so does its memory. */
START_TEST(test_many_loads)
{
	u64 before;
	u32 maps, fds;

	serve_start(&server, &rig, "--enable-lora", NULL);
	serve_await(&server, 200, 30);
	load_often(10);
	nap_ms(300);
	before = rss_anon();
	maps = count_maps();
	fds = serve_fds(&server);
	load_often(by_level(100, 300, 1000));
	nap_ms(300);
	ck_assert_msg(rss_anon() < before + most_growth(), "%llu KiB, %llu before",
		      (unsigned long long)rss_anon(), (unsigned long long)before);
	ck_assert_msg(count_maps() < maps + 20, "%u mappings, %u before", count_maps(), maps);
	serve_expect_fds(&server, fds);
	ck_assert(serve_figure(&server, "kvrt_adapters") == 0);
	expect_list(1);
}
END_TEST

/* A program that cuts a file and writes it again. */
struct writer {
	pthread_t	thread;
	const char	*path;
	const char	*data;
	size_t		len;
	bool		stop;
	bool		bad;
};

static void *write_on(void *arg)
{
	static const off_t cuts[] = { 0, 100, 4096, 8192 };
	struct writer *w = arg;
	const int fd = open(w->path, O_WRONLY);
	u32 i;

	for (i = 0; fd >= 0 && !READ_ONCE(w->stop); i++)
		w->bad |= ftruncate(fd, cuts[i % ARRAY_SIZE(cuts)]) ||
			  pwrite(fd, w->data, w->len, 0) != (ssize_t)w->len;
	w->bad |= fd < 0;
	close(fd);
	return NULL;
}

/* A file that is cut while it is loaded ends a load, not the server. */
START_TEST(test_load_under_writer)
{
	static char data[1 << 20];
	char path[RIG_PATH + 64];
	struct writer w = { .path = path, .data = data };
	u32 i, bad = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/adapter_model.safetensors", dirs[0]);
	f = fopen(path, "r");
	ck_assert_ptr_nonnull(f);
	w.len = fread(data, 1, sizeof(data), f);
	fclose(f);
	serve_start(&server, &rig, "--enable-lora", NULL);
	serve_await(&server, 200, 30);
	ck_assert_int_eq(pthread_create(&w.thread, NULL, write_on, &w), 0);
	for (i = 0; i < by_level(200, 1000, 10000); i++) {
		const int status = web_ask(server.port, LOAD, loads[0], NULL);

		ck_assert_msg(status == 200 || status == 400, "%d: %s", status, serve_said(&server));
		bad += status == 400;
		if (status == 200)
			done(UNLOAD, "{\"lora_name\":\"red\"}");
	}
	WRITE_ONCE(w.stop, true);
	ck_assert_int_eq(pthread_join(w.thread, NULL), 0);
	ck_assert(!w.bad);
	ck_assert_uint_gt(bad, 0);
	done(LOAD, loads[0]);
	expect_list(2);
}
END_TEST

/* ---- texts ---- */

/* The first text of kvrt generate, to be freed. */
static char *generated(const char *option, const char *dir)
{
	struct job j = job_start(&rig, KVRT_GENERATE, demo_model(), "In the beginning", "--temperature", "0",
				 "--ignore-eos", "--max-tokens", "12", "--threads", "1", "--json",
				 "--quiet", "--domain", "other", option, dir, NULL);
	const int code = job_wait(&j, 60);
	char *out = slurp(j.out), *text;
	json_t *v;

	ck_assert_msg(!code, "%s", slurp(j.err));
	v = json_loads(out, JSON_DISABLE_EOF_CHECK, NULL);
	ck_assert_ptr_nonnull(v);
	text = strdup(json_string_value(json_object_get(v, "text")));
	json_decref(v);
	free(out);
	return text;
}

/* Each name has a text of its own, that of kvrt generate --lora, also from the cache. */
START_TEST(test_texts)
{
	char *base, *red, *blue, *again, *other;

	serve_start(&server, &rig, "--lora", lora[0], "--lora", lora[1], "--mode", "exact", NULL);
	serve_await(&server, 200, 30);
	base = text_of("demo-model", ASK("demo-model", ",\"max_tokens\":12"));
	red = text_of("red", ASK("red", ",\"max_tokens\":12"));
	blue = text_of("blue", ASK("blue", ",\"max_tokens\":12"));
	ck_assert_str_ne(base, red);
	ck_assert_str_ne(base, blue);
	ck_assert_str_ne(red, blue);
	again = text_of("red", ASK("red", ",\"max_tokens\":12"));
	ck_assert_str_eq(red, again);
	free(again);
	again = text_of("demo-model", ASK("demo-model", ",\"max_tokens\":12"));
	ck_assert_str_eq(base, again);
	other = generated("--lora", dirs[0]);
	ck_assert_str_eq(red, other);
	ck_assert_int_eq(requests_of("red"), 2);
	ck_assert_int_eq(requests_of("blue"), 1);
	ck_assert_int_eq(requests_of("demo-model"), -1);
	free(base);
	free(red);
	free(blue);
	free(again);
	free(other);
}
END_TEST

/* The answer of kvrt run, to be freed; @dir: NULL: without an adapter. */
static char *talked(const char *dir)
{
	struct job j = job_start(&rig, "kvrt", "run", demo_model(), "In the beginning", "--temperature", "0",
				 "--max-tokens", "12", "--threads", "1", "--quiet",
				 dir ? "--lora" : NULL, dir, NULL);
	const int code = job_wait(&j, 60);

	ck_assert_msg(!code, "%s", slurp(j.err));
	return slurp(j.out);
}

START_TEST(test_run)
{
	char *base = talked(NULL), *red = talked(dirs[0]), *blue = talked(dirs[1]);
	struct job j = job_start(&rig, KVRT_GENERATE, demo_model(), "a", "--lora", "/nowhere", NULL);

	ck_assert_int_eq(job_wait(&j, 60), 66);
	ck_assert_str_ne(base, red);
	ck_assert_str_ne(base, blue);
	ck_assert_str_ne(red, blue);
	free(base);
	free(red);
	free(blue);
	/* For teardown(). */
	serve_start(&server, &rig, NULL);
	serve_await(&server, 200, 30);
}
END_TEST

/* Sessions of an adapter are others than those of the model, and take no hints. */
START_TEST(test_sessions)
{
	serve_start(&server, &rig, "--lora", lora[0], NULL);
	serve_await(&server, 200, 30);
	free(text_of("red", ASK("red", ",\"max_tokens\":2,\"session\":\"s\"")));
	expect("/v1/sessions/s", NULL, 404, "session_not_found");
	json_decref(web_json(server.port, "/v1/sessions/s?model=red", NULL, 200));
	free(text_of("demo-model", ASK("demo-model", ",\"max_tokens\":2,\"session\":\"s\"")));
	json_decref(web_json(server.port, "/v1/sessions/s", NULL, 200));
	refused(&server, "/v1/sessions/s", "{\"hint\":\"pin\",\"model\":\"red\"}", 400, "hint");
	refused(&server, "/v1/completions", ASK("red", ",\"session\":{\"name\":\"s\",\"retain\":5}"), 400,
		"session.retain");
}
END_TEST

/* ---- the end of a name, of the daemon ---- */

/* The text of a stream, to be freed; it must end as it should. */
static char *end_stream(struct web *w)
{
	char *event, *last = NULL;

	while ((event = web_event(w))) {
		free(last);
		last = event;
	}
	ck_assert_ptr_nonnull(last);
	ck_assert_msg(!strcmp(last, "[DONE]"), "%s", last);
	ck_assert(w->over);
	web_close(w);
	return last;
}

START_TEST(test_unload_under_stream)
{
	struct web w[3];
	u32 i;

	serve_start(&server, &rig, "--lora", lora[0], "--enable-lora", NULL);
	serve_await(&server, 200, 30);
	for (i = 0; i < 3; i++)
		begin_stream(&server, &w[i], ASK("red", ",\"max_tokens\":200,\"stream\":true"));
	done(UNLOAD, "{\"lora_name\":\"red\"}");
	expect("/v1/completions", ASK("red", ""), 404, "model_not_found");
	/* The name is free for another one, while requests use the old one. */
	done(LOAD, loads[0]);
	free(text_of("red", ASK("red", ",\"max_tokens\":2")));
	done(UNLOAD, "{\"lora_name\":\"red\"}");
	for (i = 0; i < 3; i++)
		free(end_stream(&w[i]));
	serve_await_idle(&server, 3000);
}
END_TEST

/* A client that goes away during its request, and one that unloads meanwhile. */
START_TEST(test_unload_under_abort)
{
	struct web w[4];
	u32 i, k;

	serve_start(&server, &rig, "--enable-lora", NULL);
	serve_await(&server, 200, 30);
	for (k = 0; k < 4; k++) {
		done(LOAD, loads[k % 2]);
		for (i = 0; i < 4; i++)
			begin_stream(&server, &w[i], k % 2 ? ASK("blue", ",\"max_tokens\":500,\"stream\":true") :
						    ASK("red", ",\"max_tokens\":500,\"stream\":true"));
		done(UNLOAD, k % 2 ? "{\"lora_name\":\"blue\"}" : "{\"lora_name\":\"red\"}");
		for (i = 0; i < 4; i++)
			web_close(&w[i]);
	}
	serve_await_idle(&server, 3000);
	expect_list(1);
}
END_TEST

/* Adapters are there again when the daemon is. */
START_TEST(test_daemon_returns)
{
	const u64 end = now_ms() + 20000 * time_scale();
	char *before, *after;
	double attaches;

	serve_start(&server, &rig, "--lora", lora[0], "--mode", "exact", NULL);
	serve_await(&server, 200, 30);
	before = text_of("red", ASK("red", ",\"max_tokens\":12"));
	attaches = serve_figure(&server, "kvrt_attaches_total");
	kill(rig_daemon(&rig), SIGKILL);
	while (serve_figure(&server, "kvrt_attaches_total") == attaches) {
		ck_assert_msg(now_ms() < end, "%s", serve_said(&server));
		nap_ms(20);
	}
	serve_await(&server, 200, 30);
	after = text_of("red", ASK("red", ",\"max_tokens\":12"));
	ck_assert_str_eq(before, after);
	expect_list(2);
	free(before);
	free(after);
}
END_TEST

static void add_tests(TCase *tc)
{
	tcase_add_test(tc, test_names);
	tcase_add_test(tc, test_load);
	tcase_add_test(tc, test_models);
	tcase_add_test(tc, test_rank);
	tcase_add_test(tc, test_key);
	tcase_add_test(tc, test_many_loads);
	tcase_add_test(tc, test_loads_under_requests);
	tcase_add_test(tc, test_load_under_writer);
	tcase_add_test(tc, test_texts);
	tcase_add_test(tc, test_run);
	tcase_add_test(tc, test_sessions);
	tcase_add_test(tc, test_unload_under_stream);
	tcase_add_test(tc, test_unload_under_abort);
	tcase_add_test(tc, test_daemon_returns);
}

int main(void)
{
	Suite *s = suite_create("serve-lora");
	TCase *tc = tcase_create("adapters");
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
