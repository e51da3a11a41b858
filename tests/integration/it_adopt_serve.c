// SPDX-License-Identifier: Apache-2.0
/*
 * it_adopt_serve.c - kvmm dies under a server, and clients see only a pause
 *
 * budget: 60 s, full 200 s
 *
 * Clients ask kvrt serve all the time, for streams and for complete answers,
 * while kvmm is killed again and again.  Every answer must be 200 with the text
 * of an undisturbed server, no stream may end with an error, and the server
 * must attach once.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/integration/adopt_scene.h"
#include "tests/integration/serve.h"

#define NR_CLIENTS	4u

/* Where a CPU stands in for a GPU, fewer tokens take the same time. */
#define ASK_OF(tokens) "{\"prompt\":\"In the beginning\",\"temperature\":0,\"max_tokens\":" tokens ",\"ignore_eos\":true,"
#define ASK(rest) (rig_on_gpu() ? ASK_OF("16") rest : ASK_OF("300") rest)

static struct served server;
static char *truth;
static u32 stop;

/**
 * struct asker - a thread that sends requests all the time
 * @whole:   answers that equalled the truth
 * @because: the first one that differed, in words
 */
struct asker {
	pthread_t	thread;
	bool		stream;
	u32		whole;
	char		because[256];
};

static struct asker askers[NR_CLIENTS];

static void wrong(struct asker *a, const char *what)
{
	if (!a->because[0])
		snprintf(a->because, sizeof(a->because), "%s", what);
}

/* Append the text of a stream's event to @text. */
static void add_event(const char *event, char *text, size_t len)
{
	json_t *v = json_loads(event, 0, NULL);
	json_t *c = json_array_get(json_object_get(v, "choices"), 0);
	const char *t = json_string_value(json_object_get(c, "text"));

	if (t)
		strncat(text, t, len - strlen(text) - 1);
	json_decref(v);
}

static void read_stream(struct asker *a, struct web *w)
{
	char text[8192] = "", *event;
	bool done = false;

	while ((event = web_event(w))) {
		done |= !strcmp(event, "[DONE]");
		if (web_is_error(event, "daemon_gone"))
			wrong(a, event);
		add_event(event, text, sizeof(text));
		free(event);
	}
	if (done && !strcmp(text, truth))
		WRITE_ONCE(a->whole, a->whole + 1);
	else
		wrong(a, done ? text : "a stream broke off");
}

static void read_answer(struct asker *a, struct web *w, int status)
{
	char *text = web_body(w);
	json_t *v = text ? json_loads(text, 0, NULL) : NULL;
	json_t *c = json_array_get(json_object_get(v, "choices"), 0);
	const char *t = json_string_value(json_object_get(c, "text"));

	if (status == 200 && t && !strcmp(t, truth))
		WRITE_ONCE(a->whole, a->whole + 1);
	else
		wrong(a, text ? text : "no answer");
	json_decref(v);
	free(text);
}

static void *asker_main(void *arg)
{
	struct asker *a = arg;
	struct web w;
	int status;

	while (!load_acquire(&stop)) {
		web_open(&w, server.port);
		if (w.fd < 0 || !web_post(&w, "/v1/completions", a->stream ?
					  ASK("\"stream\":true}") :
					  ASK("\"n\":1}")))
			wrong(a, "it could not be asked");
		status = web_status(&w);
		if (status == 200 && a->stream)
			read_stream(a, &w);
		else
			read_answer(a, &w, status);
		web_close(&w);
	}
	return NULL;
}

static u32 nr_whole(void)
{
	u32 i, n = 0;

	for (i = 0; i < NR_CLIENTS; i++) {
		ck_assert_msg(!askers[i].because[0], "client %u: %s\n%s\n%s", i,
			      askers[i].because, serve_said(&server),
			      adopt_log_end());
		n += READ_ONCE(askers[i].whole);
	}
	return n;
}

static void await_more(u32 more)
{
	const u64 end = now_ms() + ADOPT_WAIT_MS * time_scale();
	const u32 want = nr_whole() + more;

	while (nr_whole() < want) {
		ck_assert_msg(now_ms() < end, "no answer comes:\n%s\n%s",
			      serve_said(&server), adopt_log_end());
		nap_ms(5);
	}
}

START_TEST(test_streams_pause)
{
	const u32 kills = by_level(6, 40, 200);
	json_t *v;
	u32 i;

	adopt_world("on", "60000", NULL);
	serve_start(&server, &adopt_rig, "--mode", "exact", "--max-model-len",
		    "512", NULL);
	serve_await(&server, 200, 30);
	v = complete(&server, ASK("\"n\":1}"));
	truth = strdup(choice_text(v, 0));
	json_decref(v);
	for (i = 0; i < NR_CLIENTS; i++) {
		askers[i].stream = i % 2;
		ck_assert_int_eq(pthread_create(&askers[i].thread, NULL,
						asker_main, &askers[i]), 0);
	}
	for (i = 0; i < kills; i++) {
		await_more(2);
		nap_ms(200 * time_scale() + random_below(100));
		adopt_kill();
	}
	await_more(NR_CLIENTS);
	store_release(&stop, 1);
	for (i = 0; i < NR_CLIENTS; i++)
		pthread_join(askers[i].thread, NULL);
	printf("  kvmm killed %u times under a server: %u answers, all whole\n",
	       kills, nr_whole());
	ck_assert_uint_eq(adopt_logged("cold start:"), 0);
	ck_assert(serve_figure(&server, "kvrt_attaches_total") < 1.5);
	serve_stop(&server);
	free(truth);
	adopt_world_stop();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("adopt-serve");
	TCase *tc = tcase_create("streams");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 1800);
	tcase_add_test(tc, test_streams_pause);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
