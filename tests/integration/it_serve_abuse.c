// SPDX-License-Identifier: Apache-2.0
/*
 * it_serve_abuse.c - kvrt serve to clients that are slow, gone, or hostile
 *
 * budget: 60 s, full 200 s
 *
 * A bad client gets at most one clear answer, other clients are served
 * meanwhile, and afterwards none of its resources is left: no block, no
 * descriptor, no request.
 */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <kvmm/text.h>

#include "tests/integration/serve.h"

#define ENDLESS(more)	"{\"prompt\":\"In the beginning\",\"max_tokens\":1000,\"ignore_eos\":true" more "}"

static struct rig rig;
static struct served server;

static void setup(void)
{
	serve_loops = 3;
	rig_start(&rig, "--pool-size", "32M", "--extent-size", "512K", NULL);
}

static void teardown(void)
{
	rig_walk(&rig);
	serve_stop(&server);
	rig_stop(&rig);
}

/* The server must answer another client. */
static void expect_service(void)
{
	json_decref(complete(&server, "{\"prompt\":\"a\",\"max_tokens\":2}"));
}

/* ---- clients that go away ---- */

START_TEST(test_disconnect_in_a_stream)
{
	u32 i, fds;

	serve_start(&server, &rig, NULL);
	serve_await(&server, 200, 30);
	expect_service();
	fds = serve_fds(&server);
	for (i = 0; i < 5; i++) {
		struct web w;

		begin_stream(&server, &w, ENDLESS(",\"n\":4,\"stream\":true"));
		/* Counted when the step of the first token is over. */
		while (serve_figure(&server, "vllm:kv_cache_usage_perc") == 0)
			nap_ms(1);
		/* Tails that are full are sealed together, so Open may be 0. */
		ck_assert_int_gt(rig_value(&rig, "meminfo", "Open") +
				 rig_value(&rig, "meminfo", "Sealed"), 0);
		web_close(&w);
		serve_await_idle(&server, 1000);
	}
	serve_expect_fds(&server, fds);
	ck_assert(serve_figure(&server, "kvrt_http_vanished_total") == 5);
}
END_TEST

/* No byte was sent yet, so only the closed connection shows that the client is gone. */
START_TEST(test_disconnect_before_the_answer)
{
	struct web w;

	serve_start(&server, &rig, NULL);
	serve_await(&server, 200, 30);
	web_open(&w, server.port);
	ck_assert(web_post(&w, "/v1/completions", ENDLESS(",\"n\":8")));
	rig_await(&rig, "meminfo", "Open", 1, 10);
	web_close(&w);
	serve_await_idle(&server, 1000);
	ck_assert(serve_figure(&server, "kvrt_engine_generated_tokens_total") < 8 * 900);
}
END_TEST

/* The client never reads: its backlog is bounded, then the server drops it. */
START_TEST(test_reader_that_does_not_read)
{
	u64 end = now_ms() + 20000 * time_scale();
	char *text = NULL;
	struct web w;

	serve_start(&server, &rig, "--stream-buffer", "64K", NULL);
	serve_await(&server, 200, 30);
	web_open_narrow(&w, server.port);
	ck_assert(web_post(&w, "/v1/completions", ENDLESS(",\"n\":8,\"stream\":true,\"return_token_ids\":true,\"stream_options\":{\"continuous_usage_stats\":true}")));
	/* The backlog of one sample is small, so several samples are needed. */
	while (serve_figure(&server, "kvrt_calls") == 0)
		ck_assert(now_ms() < end);
	while (serve_figure(&server, "kvrt_calls") > 0) {
		expect_service();
		ck_assert_msg(now_ms() < end, "it is still served");
	}
	ck_assert_int_eq(web_ask(server.port, "/metrics", NULL, &text), 200);
	ck_assert_ptr_nonnull(strstr(text, "finished_reason=\"abort\"} 1\n"));
	free(text);
	serve_await_idle(&server, 1000);
	web_close(&w);
}
END_TEST

/* ---- clients that are slow ---- */

/* Bytes one by one, for ever: the answer is 408, at the limit. */
static void drip(const char *head, u32 seconds)
{
	const u32 late = seconds * 1000 + 5000 * time_scale();
	u64 begin = now_ms(), took;
	struct pollfd p;
	struct web w;

	web_open(&w, server.port);
	ck_assert(web_puts(&w, head));
	p = (struct pollfd){ .fd = w.fd, .events = POLLIN };
	do {
		ck_assert(web_send(&w, "x", 1));
		took = now_ms() - begin;
	} while (!poll(&p, 1, 50) && took < late);
	ck_assert_int_eq(web_status(&w), 408);
	ck_assert_uint_ge(took, seconds * 1000 - 100);
	ck_assert_uint_lt(took, late);
	ck_assert_str_eq(web_header(&w, "Connection"), "close");
	free(web_body(&w));
	ck_assert(web_closed(&w));
	web_close(&w);
}

START_TEST(test_slow_loris)
{
	struct web idle[20], w;
	u32 i;

	serve_start(&server, &rig, "--head-timeout", "1", "--body-timeout",
		    "1", "--idle-timeout", "2", NULL);
	serve_await(&server, 200, 30);
	for (i = 0; i < ARRAY_SIZE(idle); i++) {
		web_open(&idle[i], server.port);
		if (i % 2)
			ck_assert(web_puts(&idle[i], "GET / HT"));
	}
	drip("GET / HTTP/1.1\r\nX: ", 1);
	drip("POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 1000\r\n\r\n", 1);
	drip("POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3e8\r\n", 1);
	expect_service();
	for (i = 0; i < ARRAY_SIZE(idle); i++) {
		idle[i].wait_ms = 2000;
		ck_assert_msg(web_closed(&idle[i]), "connection %u is open", i);
		web_close(&idle[i]);
	}
	/* Between two requests the limit is longer, but finite. */
	web_open(&w, server.port);
	ck_assert(web_get(&w, "/health"));
	ck_assert_int_eq(web_status(&w), 200);
	free(web_body(&w));
	w.wait_ms = 4000;
	ck_assert(web_closed(&w));
	web_close(&w);
}
END_TEST

/* ---- bodies ---- */

/* The request announces 100 MB and sends as much as the server takes. */
START_TEST(test_huge_body)
{
	const size_t piece = 1 << 20;
	char *junk = malloc(piece);
	struct web w;
	u32 i, sent;

	ck_assert_ptr_nonnull(junk);
	memset(junk, '[', piece);
	serve_start(&server, &rig, "--max-body", "1M", NULL);
	serve_await(&server, 200, 30);
	for (i = 0; i < 2; i++) {
		web_open(&w, server.port);
		ck_assert(web_puts(&w, i ?
			"POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n6400000\r\n" :
			"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 104857600\r\n\r\n"));
		for (sent = 0; sent < 100 && web_send(&w, junk, piece); sent++)
			;
		ck_assert_uint_lt(sent, 100);
		ck_assert_int_eq(web_status(&w), 413);
		web_close(&w);
	}
	/* A client that stops early gets no reset, so that it can read the answer. */
	web_open(&w, server.port);
	ck_assert(web_puts(&w, "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 104857600\r\n\r\n"));
	for (sent = 0; sent < 4; sent++)
		ck_assert(web_send(&w, junk, piece));
	ck_assert_int_eq(web_status(&w), 413);
	free(web_body(&w));
	ck_assert(web_ended(&w));
	web_close(&w);
	/* With "Expect" the client sends no body at all. */
	web_open(&w, server.port);
	ck_assert(web_puts(&w, "POST /v1/completions HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 104857600\r\n\r\n"));
	ck_assert_int_eq(web_status(&w), 413);
	web_close(&w);
	expect_service();
	free(junk);
}
END_TEST

/* The longest allowed body of brackets is parsed outside of the event loop. */
START_TEST(test_costly_body)
{
	const size_t n = (8 << 20) - 100;
	char *body = malloc(n + 1), *text = NULL;
	u64 begin;
	u32 i;

	ck_assert_ptr_nonnull(body);
	serve_start(&server, &rig, NULL);
	serve_await(&server, 200, 30);
	memset(body, '[', n);
	body[n] = '\0';
	ck_assert_int_eq(web_ask(server.port, "/v1/completions", body, &text), 400);
	free(text);
	/* {"prompt":[1,1,1...]}: millions of values, too many tokens */
	for (i = 11; i + 2 < n; i += 2)
		memcpy(body + i, "1,", 2);
	memcpy(body, "{\"prompt\":[", 11);
	memcpy(body + n - 4, "11]}", 4);
	begin = now_ms();
	ck_assert_int_eq(web_ask(server.port, "/v1/completions", body, &text), 400);
	ck_assert_ptr_nonnull(strstr(text, "context"));
	free(text);
	printf("  8 MB of token ids refused in %llu ms\n",
	       (unsigned long long)(now_ms() - begin));
	expect_service();
	free(body);
}
END_TEST

START_TEST(test_expect_continue)
{
	struct web w;

	serve_start(&server, &rig, NULL);
	serve_await(&server, 200, 30);
	web_open(&w, server.port);
	ck_assert(web_puts(&w, "POST /v1/completions HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 29\r\n\r\n"));
	ck_assert_int_eq(web_status(&w), 100);
	ck_assert(web_puts(&w, "{\"prompt\":\"a\",\"max_tokens\":2}"));
	ck_assert_int_eq(web_status(&w), 200);
	web_close(&w);
}
END_TEST

static const struct {
	const char	*bytes;
	int		status;
} no_requests[] = {
	{ "\r\n\r\nGET /health HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 200 },
	{ "hello\r\n\r\n", 400 },
	{ "GET /health HTTP/9.9\r\nHost: a\r\n\r\n", 505 },
	{ "BREW / HTTP/1.1\r\nHost: a\r\n\r\n", 501 },
	{ "GET / HTTP/1.1\r\n\r\n", 400 },
	{ "\x16\x03\x01\x02\x01\x01\r\n\r\n", 400 },
	{ "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400 },
	{ "POST /v1/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400 },
	{ "POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n", 400 },
};

START_TEST(test_no_requests)
{
	char *answer;
	struct web w;
	char *head;
	u32 i;

	serve_start(&server, &rig, NULL);
	serve_await(&server, 200, 30);
	for (i = 0; i < ARRAY_SIZE(no_requests); i++) {
		web_open(&w, server.port);
		ck_assert(web_puts(&w, no_requests[i].bytes));
		ck_assert_int_eq(web_status(&w), no_requests[i].status);
		answer = web_body(&w);
		ck_assert_ptr_nonnull(answer);
		if (no_requests[i].status >= 400)
			ck_assert_ptr_nonnull(strstr(answer, "{\"error\":{\"message\":"));
		free(answer);
		ck_assert(web_closed(&w));
		web_close(&w);
	}
	head = malloc(40000);
	ck_assert_ptr_nonnull(head);
	memset(head, 'a', 40000);
	memcpy(head, "GET /", 5);
	web_open(&w, server.port);
	ck_assert(web_send(&w, head, 40000));
	ck_assert_int_eq(web_status(&w), 431);
	web_close(&w);
	free(head);
	expect_service();
}
END_TEST

/* ---- the log ---- */

static u32 count_of(const char *text, const char *what)
{
	u32 n = 0;

	for (; (text = strstr(text, what)); text++)
		n++;
	return n;
}

/* With --log-level debug every request has a line. */
START_TEST(test_log_of_all)
{
	char want[256], *said;
	json_t *v;

	serve_start(&server, &rig, "--log-level", "debug", NULL);
	serve_await(&server, 200, 30);
	v = complete(&server, "{\"prompt\":\"Zebras\",\"max_tokens\":5,\"ignore_eos\":true}");
	ck_assert_int_eq(web_ask(server.port, "/nowhere?key=secret", NULL, NULL), 404);
	said = slurp(server.job.err);
	snprintf(want, sizeof(want), "ms, id %s\n",
		 json_string_value(json_object_get(v, "id")));
	ck_assert_msg(strstr(said, want), "%s\n%s", want, said);
	ck_assert_ptr_nonnull(strstr(said, " \"POST /v1/completions\" 200, 5 tokens, "));
	ck_assert_msg(strstr(said, " \"GET /nowhere\" 404, 0 tokens, "), "%s", said);
	ck_assert_msg(strstr(said, ", code unknown_url\n"), "%s", said);
	ck_assert_ptr_nonnull(strstr(said, " \"GET /ready\" 200, "));
	ck_assert_ptr_null(strstr(said, "secret"));
	ck_assert_ptr_null(strstr(said, "Zebras"));
	free(said);
	json_decref(v);
}
END_TEST

/* By default only refusals have a line, and a flood of them a few. */
START_TEST(test_log_of_a_flood)
{
	u64 begin, periods;
	char *said;
	u32 i, n;

	serve_start(&server, &rig, NULL);
	serve_await(&server, 200, 30);
	json_decref(complete(&server, "{\"prompt\":\"In\",\"max_tokens\":5}"));
	begin = now_ms();
	for (i = 0; i < 400; i++)
		ck_assert_int_eq(web_ask(server.port, "/nowhere", NULL, NULL), 404);
	periods = 2 + (now_ms() - begin) / 5000;
	/* The next period counts the lines left out in this one. */
	for (said = slurp(server.job.err); !strstr(said, " left out\n");
	     said = slurp(server.job.err)) {
		free(said);
		ck_assert_msg(now_ms() - begin < 60000, "nothing left out");
		nap_ms(100);
		ck_assert_int_eq(web_ask(server.port, "/nowhere", NULL, NULL), 404);
	}
	n = count_of(said, " /nowhere\" 404, ");
	ck_assert_msg(n >= 40 && n <= 40 * periods + 1, "%u lines", n);
	ck_assert_ptr_nonnull(strstr(said, " lines about requests were left out\n"));
	ck_assert_ptr_null(strstr(said, " 200, "));
	free(said);
}
END_TEST

/* ---- too many ---- */

START_TEST(test_too_many_requests)
{
	struct web a, b, c;
	int status = 0;
	char *text;
	u32 tries;

	serve_start(&server, &rig, "--max-requests", "2", NULL);
	serve_await(&server, 200, 30);
	begin_stream(&server, &a, ENDLESS(",\"stream\":true"));
	begin_stream(&server, &b, ENDLESS(",\"stream\":true"));
	web_open(&c, server.port);
	ck_assert(web_post(&c, "/v1/completions", ENDLESS("")));
	ck_assert_int_eq(web_status(&c), 429);
	ck_assert_str_eq(web_header(&c, "Retry-After"), "1");
	text = web_body(&c);
	ck_assert_ptr_nonnull(strstr(text, "rate_limit_error"));
	free(text);
	web_close(&a);
	/* The same connection tries again until there is room. */
	for (tries = 0; tries < 1000; tries++) {
		ck_assert(web_post(&c, "/v1/completions", "{\"prompt\":\"a\",\"max_tokens\":1}"));
		status = web_status(&c);
		free(web_body(&c));
		if (status != 429)
			break;
		nap_ms(10);
	}
	ck_assert_int_eq(status, 200);
	web_close(&b);
	web_close(&c);
}
END_TEST

/* ---- requests that ask for much and need little ---- */

#define GREEDY	16u

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

/* 1024 samples of 1000 tokens, with 128 others beside each: a gigabyte. */
static void greedy_body(struct text *t)
{
	u32 i;

	text_puts(t, "{\"prompt\":[\"a\",\"b\",\"c\",\"d\",\"e\",\"f\",\"g\",\"h\"],\"n\":128,\"max_tokens\":1000,\"ignore_eos\":true,\"logprobs\":1,\"logprob_token_ids\":[0");
	for (i = 1; i < 128; i++)
		text_printf(t, ",%u", i);
	text_add(t, "]}", 3);
}

/* Large limits alone must not cost memory, however many requests have them. */
START_TEST(test_greedy_requests)
{
	const char *san = getenv("KVMM_SANITIZER");
	/* A sanitizer keeps freed memory. */
	const u64 most = san && *san ? 1 << 20 : 192 << 10;
	struct web w[GREEDY];
	struct text t = { 0 };
	u64 before;
	u32 i, k;

	serve_start(&server, &rig, NULL);
	serve_await(&server, 200, 30);
	expect_service();
	before = rss_anon();
	greedy_body(&t);
	for (k = 0; k < 4; k++) {
		for (i = 0; i < GREEDY; i++) {
			web_open(&w[i], server.port);
			ck_assert(web_post(&w[i], "/v1/completions", t.p));
		}
		nap_ms(700);
		ck_assert_msg(rss_anon() < before + most, "round %u: %llu KiB, %llu before",
			      k, (unsigned long long)rss_anon(),
			      (unsigned long long)before);
		for (i = 0; i < GREEDY; i++)
			web_close(&w[i]);
		serve_await_idle(&server, 1000);
	}
	expect_service();
	text_free(&t);
}
END_TEST

/* A new connection replaces an idle one; beside busy ones it gets 503. */
START_TEST(test_too_many_connections)
{
	struct web busy[4], idle, more;
	u32 i;

	serve_start(&server, &rig, "--max-connections", "4", NULL);
	serve_await(&server, 200, 30);
	for (i = 0; i < 3; i++)
		begin_stream(&server, &busy[i], ENDLESS(",\"stream\":true"));
	web_open(&idle, server.port);
	ck_assert(web_get(&idle, "/health"));
	ck_assert_int_eq(web_status(&idle), 200);
	free(web_body(&idle));
	begin_stream(&server, &busy[3], ENDLESS(",\"stream\":true"));
	ck_assert(web_closed(&idle));
	web_open(&more, server.port);
	ck_assert_int_eq(web_status(&more), 503);
	ck_assert_str_eq(web_header(&more, "Retry-After"), "1");
	web_close(&more);
	web_close(&idle);
	for (i = 0; i < 4; i++)
		web_close(&busy[i]);
	nap_ms(100);
	expect_service();
	serve_await_idle(&server, 2000);
}
END_TEST

/* No descriptor is free: idle connections are closed, and the server goes on. */
START_TEST(test_no_descriptors)
{
	struct rlimit few = { 0 };
	struct web w[12];
	u32 i;

	serve_start(&server, &rig, NULL);
	serve_await(&server, 200, 30);
	few.rlim_cur = few.rlim_max = serve_fds(&server) + 3;
	ck_assert_int_eq(prlimit(server.job.pid, RLIMIT_NOFILE, &few, NULL), 0);
	for (i = 0; i < ARRAY_SIZE(w); i++)
		web_open(&w[i], server.port);
	expect_service();
	for (i = 0; i < ARRAY_SIZE(w); i++)
		web_close(&w[i]);
	expect_service();
}
END_TEST

/* ---- a crowd ---- */

struct guest {
	pthread_t	thread;
	u32		seed;
	u32		asked;
	u32		served;
	u32		left;
	u32		nr;
	u32		wrong;
	const char	*how;		/* the last visit went wrong */
	int		status;
};

static u64 crowd_until;

static u32 guest_random(struct guest *g, u32 n)
{
	g->seed = g->seed * 1664525u + 1013904223u;
	return (g->seed >> 8) % n;
}

/*
 * One visit: send a request, and leave early or stay to the end.
 *
 * Thousands of visits a second use up the 28,232 ports of one address, since a closed
 * connection keeps its port for a minute.  So a guest has 256 addresses.
 */
static void guest_visit(struct guest *g)
{
	const bool stream = guest_random(g, 2);
	const bool leave = guest_random(g, 2);
	char body[256], *event, *text;
	struct web w;
	int status;
	u32 i;

	snprintf(body, sizeof(body), "{\"prompt\":\"Visit %u of\",\"max_tokens\":%u,\"n\":%u,\"stream\":%s,\"stop\":[\"the\"]}",
		 g->asked, 1 + guest_random(g, 60), 1 + guest_random(g, 3),
		 stream ? "true" : "false");
	web_open_from(&w, server.port, (g->nr + 1) << 8 | g->asked % 256);
	g->asked++;
	if (!web_post(&w, "/v1/completions", body)) {
		g->wrong++;
		g->how = w.fd < 0 ? "connect" : "send";
		g->status = errno;
	} else if (leave && !stream) {
		nap_ms(guest_random(g, 30));
		g->left++;
	} else if ((status = web_status(&w)) != 200) {
		g->wrong++;
		g->how = "answer";
		g->status = status;
	} else if (leave) {
		for (i = guest_random(g, 10); i; i--)
			free(web_event(&w));
		g->left++;
	} else if (stream) {
		while ((event = web_event(&w)))
			free(event);
		if (!w.over) {
			g->wrong++;
			g->how = "stream";
		}
		g->served++;
	} else {
		text = web_body(&w);
		if (!text) {
			g->wrong++;
			g->how = "body";
		}
		free(text);
		g->served++;
	}
	web_close(&w);
}

static void *guest_main(void *arg)
{
	struct guest *g = arg;

	while (now_ms() < crowd_until)
		guest_visit(g);
	return NULL;
}

START_TEST(test_crowd)
{
	struct guest guests[24] = { { 0 } };
	u32 i, asked = 0, served = 0, left = 0, fds, seed = random_below(1000);
	bool ended;
	int code = 0;

	serve_start(&server, &rig, NULL);
	serve_await(&server, 200, 30);
	expect_service();
	fds = serve_fds(&server);
	crowd_until = now_ms() + by_level(1, 20, 600) * 1000ull;
	for (i = 0; i < ARRAY_SIZE(guests); i++) {
		guests[i].seed = seed + i;
		guests[i].nr = i;
		ck_assert_int_eq(pthread_create(&guests[i].thread, NULL,
						guest_main, &guests[i]), 0);
	}
	for (i = 0; i < ARRAY_SIZE(guests); i++) {
		pthread_join(guests[i].thread, NULL);
		if (guests[i].wrong) {
			nap_ms(100);	/* until a server that died is a zombie */
			ended = job_ended(&server.job, &code);
			ck_abort_msg("guest %u: %u of %u wrong, the last one: %s, %d; the server %s, %d:\n%s",
				     i, guests[i].wrong, guests[i].asked,
				     guests[i].how, guests[i].status,
				     ended ? "ended" : "runs", code,
				     serve_said(&server));
		}
		asked += guests[i].asked;
		served += guests[i].served;
		left += guests[i].left;
	}
	printf("  %u requests, %u served, %u left before their end\n", asked,
	       served, left);
	ck_assert_uint_gt(served, 0);
	ck_assert_uint_gt(left, 0);
	serve_await_idle(&server, 2000);
	serve_expect_fds(&server, fds);
}
END_TEST

static void add_tests(TCase *tc)
{
	tcase_add_test(tc, test_disconnect_in_a_stream);
	tcase_add_test(tc, test_disconnect_before_the_answer);
	tcase_add_test(tc, test_reader_that_does_not_read);
	tcase_add_test(tc, test_slow_loris);
	tcase_add_test(tc, test_huge_body);
	tcase_add_test(tc, test_costly_body);
	tcase_add_test(tc, test_expect_continue);
	tcase_add_test(tc, test_no_requests);
	tcase_add_test(tc, test_log_of_all);
	tcase_add_test(tc, test_log_of_a_flood);
	tcase_add_test(tc, test_too_many_requests);
	tcase_add_test(tc, test_greedy_requests);
	tcase_add_test(tc, test_too_many_connections);
	tcase_add_test(tc, test_no_descriptors);
	tcase_add_test(tc, test_crowd);
}

int main(void)
{
	Suite *s = suite_create("serve-abuse");
	TCase *tc = tcase_create("clients");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 900);
	tcase_add_checked_fixture(tc, setup, teardown);
	add_tests(tc);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
