// SPDX-License-Identifier: Apache-2.0
/*
 * it_serve_cors.c - pages of other servers, OPTIONS and HEAD
 *
 * budget: 20 s, full 40 s
 *
 * A browser shows an answer to a page only if the answer admits its origin, and
 * asks by OPTIONS before it sends a key or JSON.
 */
#include <stdio.h>
#include <stdlib.h>

#include "runtime/server/route.h"
#include "tests/integration/serve.h"

#define PAGE	"https://chat.example.org"

static struct rig rig;
static struct served server;

static void setup(void)
{
	rig_start(&rig, "--pool-size", "32M", "--extent-size", "512K", NULL);
}

static void teardown(void)
{
	serve_stop(&server);
	rig_stop(&rig);
}

/* Send one request with more headers.  Return: the status; @w has the head. */
static int ask(struct web *w, const char *what, const char *headers)
{
	char text[1024];
	char *body;
	int status;

	snprintf(text, sizeof(text), "%s HTTP/1.1\r\nHost: a\r\n%s\r\n", what,
		 headers);
	web_open(w, server.port);
	ck_assert(web_puts(w, text));
	status = web_status(w);
	body = strncmp(what, "GET", 3) ? NULL : web_body(w);
	free(body);
	return status;
}

static void has(struct web *w, const char *name, const char *value)
{
	const char *got = web_header(w, name);

	ck_assert_msg(value ? got && !strcmp(got, value) : !got,
		      "%s is '%s', want '%s':\n%s", name, got ? got : "(none)",
		      value ? value : "(none)", w->head);
}

#define PREFLIGHT							\
	"Access-Control-Request-Method: POST\r\n"			\
	"Access-Control-Request-Headers: authorization,content-type,x-stainless-os\r\n"

/* A page that is admitted may ask, read answers, and read errors. */
START_TEST(test_admitted)
{
	struct web w;

	serve_start(&server, &rig, "--allow-origin", "http://localhost:5173",
		    "--allow-origin", PAGE, "--api-key", "sk-1", NULL);
	serve_await(&server, 200, 30);
	ck_assert_int_eq(ask(&w, "OPTIONS /v1/completions",
			     "Origin: " PAGE "\r\n" PREFLIGHT), 204);
	has(&w, "Access-Control-Allow-Origin", PAGE);
	has(&w, "Access-Control-Allow-Methods", "POST");
	has(&w, "Access-Control-Allow-Headers",
	    "authorization,content-type,x-stainless-os");
	has(&w, "Access-Control-Max-Age", "7200");
	has(&w, "Access-Control-Allow-Credentials", NULL);
	has(&w, "Content-Length", NULL);
	ck_assert_ptr_nonnull(strstr(w.head, "Vary: Origin\r\n"));
	ck_assert_ptr_nonnull(strstr(w.head, "Vary: Access-Control-Request-Headers\r\n"));
	/* The connection goes on. */
	ck_assert(web_get(&w, "/health"));
	ck_assert_int_eq(web_status(&w), 200);
	has(&w, "Access-Control-Allow-Origin", NULL);
	has(&w, "Vary", "Origin");
	web_close(&w);
	ck_assert_int_eq(ask(&w, "GET /v1/models", "Origin: http://localhost:5173\r\n"), 401);
	has(&w, "Access-Control-Allow-Origin", "http://localhost:5173");
	has(&w, "Access-Control-Expose-Headers", "X-Request-Id, Retry-After");
	web_close(&w);
	/* A body that is too long is refused before it comes. */
	ck_assert_int_eq(ask(&w, "POST /v1/completions", "Origin: " PAGE
			     "\r\nX-Request-Id: long\r\nContent-Length: 999999999999\r\n"), 413);
	has(&w, "Access-Control-Allow-Origin", PAGE);
	has(&w, "X-Request-Id", "long");
	web_close(&w);
	/* Nothing is repeated that could be another header. */
	ck_assert_int_eq(ask(&w, "OPTIONS /v1/models/demo-model", "Origin: " PAGE
			     "\r\nAccess-Control-Request-Headers: a;b\r\n"), 204);
	has(&w, "Access-Control-Allow-Headers", "Authorization, Content-Type, X-Request-Id");
	has(&w, "Access-Control-Allow-Methods", "GET, HEAD");
	web_close(&w);
}
END_TEST

/* Another page gets no header that admits it, nor one that differs a little. */
START_TEST(test_not_admitted)
{
	static const char * const others[] = {
		"https://chat.example.org.evil", "https://chat.example.or",
		"http://chat.example.org", "https://chat.example.org:8443",
		"null", "*", "",
	};
	char header[256];
	struct web w;
	u32 i;

	serve_start(&server, &rig, "--allow-origin", PAGE, NULL);
	serve_await(&server, 200, 30);
	for (i = 0; i < ARRAY_SIZE(others); i++) {
		snprintf(header, sizeof(header), "Origin: %s\r\n" PREFLIGHT, others[i]);
		ck_assert_int_eq(ask(&w, "OPTIONS /v1/completions", header), 204);
		has(&w, "Access-Control-Allow-Origin", NULL);
		has(&w, "Access-Control-Allow-Headers", NULL);
		web_close(&w);
	}
	ck_assert_int_eq(ask(&w, "GET /health", "Origin: http://other\r\n"), 200);
	has(&w, "Access-Control-Allow-Origin", NULL);
	has(&w, "Vary", "Origin");
	web_close(&w);
}
END_TEST

START_TEST(test_all_pages)
{
	struct web w;

	serve_start(&server, &rig, "--allow-origin", "*", NULL);
	serve_await(&server, 200, 30);
	ck_assert_int_eq(ask(&w, "GET /health", "Origin: http://any\r\n"), 200);
	has(&w, "Access-Control-Allow-Origin", "*");
	has(&w, "Vary", NULL);
	web_close(&w);
}
END_TEST

/* Without the option no page is admitted, and OPTIONS tells the methods. */
START_TEST(test_options_and_head)
{
	static const struct {
		const char	*method;
		const char	*path;
	} paths[] = {
#define x(method, path, fn, guarded, text) { #method, path },
		ROUTES(x)
#undef x
		{ "GET", "/v1/models/demo-model" },
	};
	char what[64], length[16];
	struct web w;
	u32 i;

	serve_start(&server, &rig, NULL);
	serve_await(&server, 200, 30);
	for (i = 0; i < ARRAY_SIZE(paths); i++) {
		const bool post = !strcmp(paths[i].method, "POST");

		snprintf(what, sizeof(what), "OPTIONS %s", paths[i].path);
		ck_assert_int_eq(ask(&w, what, "Origin: " PAGE "\r\n" PREFLIGHT), 204);
		has(&w, "Allow", post ? "POST, OPTIONS" : "GET, HEAD, OPTIONS");
		has(&w, "Access-Control-Allow-Origin", NULL);
		has(&w, "Vary", NULL);
		web_close(&w);
		snprintf(what, sizeof(what), "HEAD %s", paths[i].path);
		ck_assert_int_eq(ask(&w, what, ""), post ? 405 : 200);
		ck_assert_ptr_nonnull(web_header(&w, "Content-Length"));
		snprintf(length, sizeof(length), "%s", web_header(&w, "Content-Length"));
		/* There is no body: the next answer follows at once. */
		ck_assert(web_get(&w, paths[i].path));
		ck_assert_int_eq(web_status(&w), post ? 405 : 200);
		if (strcmp(paths[i].path, "/metrics"))
			has(&w, "Content-Length", length);
		web_close(&w);
	}
	ck_assert_int_eq(ask(&w, "OPTIONS *", ""), 204);
	has(&w, "Allow", "GET, HEAD, POST, OPTIONS");
	web_close(&w);
	ck_assert_int_eq(ask(&w, "OPTIONS /nowhere", ""), 404);
	web_close(&w);
}
END_TEST

/* An origin that no browser would send ends the program. */
START_TEST(test_bad_origins)
{
	static const char * const bad[] = {
		"chat.example.org", "https://chat.example.org/", "https://Chat.org",
		"https://", "://a", "", "null", "https://a,https://b",
	};
	struct job j;
	char *said;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(bad); i++) {
		j = job_start(&rig, "kvrt", "serve", "--allow-origin", bad[i],
			      demo_model(), NULL);
		ck_assert_int_eq(job_wait(&j, 30), 64);
		said = slurp(j.err);
		ck_assert_ptr_nonnull(strstr(said, "give the origin of a page"));
		free(said);
	}
	serve_start(&server, &rig, NULL);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("serve-cors");
	TCase *tc = tcase_create("pages");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_admitted);
	tcase_add_test(tc, test_not_admitted);
	tcase_add_test(tc, test_all_pages);
	tcase_add_test(tc, test_options_and_head);
	tcase_add_test(tc, test_bad_origins);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
