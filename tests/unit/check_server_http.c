// SPDX-License-Identifier: Apache-2.0
/*
 * check_server_http.c - the text of HTTP: heads, chunks, answers
 *
 * A table has valid heads, and invalid ones with their status.  Then the parser
 * gets damaged heads; it must not read outside its bytes (a sanitizer watches).
 * A chunked body must give the same answer however it is cut.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>

#include <kvmm/http.h>

static const struct {
	const char	*head;
	int		status;
} heads[] = {
	{ "GET / HTTP/1.1\r\nHost: a\r\n\r\n", 0 },
	{ "GET /v1/models?x=1 HTTP/1.1\r\nhOsT:a\r\n\r\n", 0 },
	{ "GET http://a.b:80/x HTTP/1.1\r\nHost: a\r\n\r\n", 0 },
	{ "GET / HTTP/1.0\r\n\r\n", 0 },
	{ "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\n", 0 },
	{ "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", 0 },
	{ "POST / HTTP/1.1\r\nHost:\r\nExpect: 100-continue\r\n\r\n", 0 },
	{ "GET / HTTP/1.1\r\nHost: a\r\nX:\tv \t\r\nEmpty:\r\n\r\n", 0 },
	{ "GET / HTTP/1.1\r\n\r\n", 400 },
	{ "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\n\r\n", 400 },
	{ "GET /\r\nHost: a\r\n\r\n", 400 },
	{ "GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400 },
	{ "GET / HTTP/1.1 \r\nHost: a\r\n\r\n", 400 },
	{ " GET / HTTP/1.1\r\nHost: a\r\n\r\n", 400 },
	{ "GET / HTTP/1.1\nHost: a\r\n\r\n", 400 },
	{ "GET / HTTP/1.1\r\nHost: a\nX: b\r\n\r\n", 400 },
	{ "GET x HTTP/1.1\r\nHost: a\r\n\r\n", 400 },
	{ "GET /\x80 HTTP/1.1\r\nHost: a\r\n\r\n", 400 },
	{ "GET /\x01 HTTP/1.1\r\nHost: a\r\n\r\n", 400 },
	{ "G@T / HTTP/1.1\r\nHost: a\r\n\r\n", 400 },
	{ "BREW / HTTP/1.1\r\nHost: a\r\n\r\n", 501 },
	{ "get / HTTP/1.1\r\nHost: a\r\n\r\n", 501 },
	{ "GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505 },
	{ "GET / HTTP/1.2\r\nHost: a\r\n\r\n", 505 },
	{ "GET / HTTX/1.1\r\nHost: a\r\n\r\n", 400 },
	{ "GET / HTTP/1.1\r\nHost: a\r\nX : b\r\n\r\n", 400 },
	{ "GET / HTTP/1.1\r\nHost: a\r\n X: b\r\n\r\n", 400 },
	{ "GET / HTTP/1.1\r\nHost: a\r\nX: b\r\n folded\r\n\r\n", 400 },
	{ "GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n", 400 },
	{ "GET / HTTP/1.1\r\nHost: a\r\nX: a\x01\r\n\r\n", 400 },
	{ "GET / HTTP/1.1\r\nHost: a\r\nX: a\rb\r\n\r\n", 400 },
	{ "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\n", 400 },
	{ "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +5\r\n\r\n", 400 },
	{ "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400 },
	{ "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 5\r\n\r\n", 400 },
	{ "POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n", 400 },
	{ "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n", 400 },
	{ "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n", 400 },
	{ "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", 501 },
	{ "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501 },
	{ "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", 400 },
	{ "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400 },
	{ "POST / HTTP/1.1\r\nHost: a\r\nExpect: more\r\n\r\n", 417 },
	{ "\r\n\r\n", 400 },
};

static int parse(const char *p, size_t n, struct http_head *h)
{
	/*
	 * The bytes are copied to a separate allocation, so that a read outside
	 * is found.
	 */
	char *copy = malloc(n ? n : 1);
	const char *why = NULL;
	int status;

	ck_assert_ptr_nonnull(copy);
	memcpy(copy, p, n);
	status = http_parse_head(copy, n, h, &why);
	if (status) {
		ck_assert_ptr_nonnull(why);
		ck_assert_str_ne(http_status_text(status), "Unknown");
	} else if (h->path) {
		ck_assert(h->path >= copy && h->path + h->path_len <= copy + n);
	}
	free(copy);
	return status;
}

START_TEST(test_heads)
{
	struct http_head h;
	int status = parse(heads[_i].head, strlen(heads[_i].head), &h);

	ck_assert_msg(status == heads[_i].status, "%d, want %d:\n%s", status,
		      heads[_i].status, heads[_i].head);
}
END_TEST

START_TEST(test_nul_in_head)
{
	static const char head[] = "GET / HTTP/1.1\r\nHost: a\r\nX: \0b\r\n\r\n";
	struct http_head h;

	ck_assert_int_eq(parse(head, sizeof(head) - 1, &h), 400);
}
END_TEST

START_TEST(test_meaning)
{
	static const char head[] =
		"POST /v1/completions?a=b HTTP/1.1\r\nHost: x\r\n"
		"Content-Length: 123\r\nConnection: foo , Close\r\n"
		"X-Request-Id: a-b.c/1\r\nAuthorization: bearer  sk-1 \r\n"
		"origin: http://a.b \r\nAccess-Control-Request-Headers: x, y\r\n\r\n";
	const char *why;
	struct http_head h;

	ck_assert_uint_eq(http_find_head(head, sizeof(head) - 1),
			  sizeof(head) - 1);
	ck_assert_uint_eq(http_find_head(head, sizeof(head) - 2), 0);
	ck_assert_uint_eq(http_find_head(NULL, 0), 0);
	ck_assert_int_eq(http_parse_head(head, sizeof(head) - 1, &h, &why), 0);
	ck_assert_int_eq(h.method, HTTP_POST);
	ck_assert_uint_eq(h.path_len, strlen("/v1/completions"));
	ck_assert_mem_eq(h.path, "/v1/completions", h.path_len);
	ck_assert_uint_eq(h.query_len, 3);
	ck_assert_mem_eq(h.query, "a=b", 3);
	ck_assert_uint_eq(h.length, 123);
	ck_assert(!h.keep_alive && !h.chunked && !h.expect && !h.http10);
	ck_assert_str_eq(h.id, "a-b.c/1");
	ck_assert_uint_eq(h.bearer_len, 4);
	ck_assert_mem_eq(h.bearer, "sk-1", 4);
	ck_assert_uint_eq(h.origin_len, strlen("http://a.b"));
	ck_assert_mem_eq(h.origin, "http://a.b", h.origin_len);
	ck_assert_uint_eq(h.asked_len, 4);
	ck_assert_mem_eq(h.asked, "x, y", 4);
}
END_TEST

START_TEST(test_keep_alive)
{
	static const struct {
		const char	*head;
		bool		keep;
	} t[] = {
		{ "GET / HTTP/1.1\r\nHost: a\r\n\r\n", true },
		{ "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", false },
		{ "GET / HTTP/1.0\r\n\r\n", false },
		{ "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", true },
	};
	struct http_head h;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(t); i++) {
		ck_assert_int_eq(parse(t[i].head, strlen(t[i].head), &h), 0);
		ck_assert(h.keep_alive == t[i].keep);
	}
}
END_TEST

/* An id that could break a header or a line of JSON is not repeated. */
START_TEST(test_request_id)
{
	char head[512];
	struct http_head h;

	snprintf(head, sizeof(head), "GET / HTTP/1.1\r\nHost: a\r\nX-Request-Id: a\"b\r\n\r\n");
	ck_assert_int_eq(parse(head, strlen(head), &h), 0);
	ck_assert_str_eq(h.id, "");
	snprintf(head, sizeof(head), "GET / HTTP/1.1\r\nHost: a\r\nX-Request-Id: %0200d\r\n\r\n", 1);
	ck_assert_int_eq(parse(head, strlen(head), &h), 0);
	ck_assert_str_eq(h.id, "");
}
END_TEST

START_TEST(test_too_many_headers)
{
	struct text t = { 0 };
	struct http_head h;
	u32 i;

	text_puts(&t, "GET / HTTP/1.1\r\nHost: a\r\n");
	for (i = 0; i < HTTP_HEADERS_MAX; i++)
		text_printf(&t, "X-%u: v\r\n", i);
	text_puts(&t, "\r\n");
	ck_assert_int_eq(parse(t.p, t.len, &h), 431);
	text_free(&t);
}
END_TEST

/* Good heads with bytes changed, cut and doubled at random. */
START_TEST(test_mutilated_heads)
{
	u32 state = 1, round, i;

	for (round = 0; round < 200000; round++) {
		const char *from = heads[round % ARRAY_SIZE(heads)].head;
		size_t n = strlen(from);
		struct http_head h;
		char buf[512];

		memcpy(buf, from, n);
		for (i = 0; i < 1 + round % 3; i++) {
			state = state * 1664525u + 1013904223u;
			buf[(state >> 8) % n] = (char)(state >> 24);
		}
		state = state * 1664525u + 1013904223u;
		parse(buf, round % 2 ? n : (state >> 8) % (n + 1), &h);
	}
	ck_assert_uint_eq(round, 200000);
}
END_TEST

/* ---- chunks ---- */

static const struct {
	const char	*body;
	const char	*text;	/* NULL: refused */
	int		status;
} chunked[] = {
	{ "0\r\n\r\n", "", 1 },
	{ "3\r\nabc\r\n0\r\n\r\n", "abc", 1 },
	{ "3;x=\"y\"\r\nabc\r\nA \r\n0123456789\r\n0\r\nT: v\r\nU: w\r\n\r\n", "abc0123456789", 1 },
	{ "000003\r\nabc\r\n000\r\n\r\n", "abc", 1 },
	{ "3\r\nabc\r\n", "abc", 0 },
	{ "3\r\nabcd\r\n0\r\n\r\n", NULL, -400 },
	{ "g\r\n", NULL, -400 },
	{ "\r\n", NULL, -400 },
	{ "-1\r\n", NULL, -400 },
	{ "3\nabc\r\n0\r\n\r\n", NULL, -400 },
	{ "3\r\nabc\n0\r\n\r\n", NULL, -400 },
	{ "0\r\nT: v\n\r\n", NULL, -400 },
	{ "1000000000000000\r\n", NULL, -400 },
	{ "fffffffffffffff\r\n", NULL, -413 },
	{ "20\r\n01234567890123456789012345678901\r\n1\r\nx\r\n", NULL, -413 },
};

/* Feed @body in pieces of @step; bytes after its end are not consumed. */
static int feed(const char *body, size_t n, size_t step, struct text *out)
{
	struct http_chunks c = { 0 };
	size_t at = 0, used;
	int ret = 0;

	while (!ret && at < n) {
		ret = http_chunks_push(&c, body + at, min(step, n - at), &used,
				       out, 32);
		at += used;
	}
	if (ret == 1)
		ck_assert_uint_eq(at, n);
	return ret;
}

START_TEST(test_chunks)
{
	const char *body = chunked[_i].body;
	size_t n = strlen(body), step;

	for (step = 1; step <= n; step++) {
		struct text out = { 0 };
		int ret = feed(body, n, step, &out);

		ck_assert_msg(ret == chunked[_i].status, "%d in steps of %zu: %s",
			      ret, step, body);
		if (chunked[_i].text) {
			ck_assert_uint_eq(out.len, strlen(chunked[_i].text));
			ck_assert_mem_eq(out.len ? out.p : "", chunked[_i].text,
					 out.len);
		}
		text_free(&out);
	}
}
END_TEST

START_TEST(test_chunks_stop_at_their_end)
{
	static const char two[] = "1\r\nx\r\n0\r\n\r\nGET /";
	struct http_chunks c = { 0 };
	struct text out = { 0 };
	size_t used;

	ck_assert_int_eq(http_chunks_push(&c, two, sizeof(two) - 1, &used, &out,
					  100), 1);
	ck_assert_uint_eq(used, sizeof(two) - 1 - strlen("GET /"));
	text_free(&out);
}
END_TEST

/* A client cannot make the server read lines for ever. */
START_TEST(test_chunks_are_bounded)
{
	static const char * const begins[] = { "1;", "0\r\nX: " };
	char *more = malloc(20000);
	u32 i;

	ck_assert_ptr_nonnull(more);
	memset(more, 'x', 20000);
	for (i = 0; i < ARRAY_SIZE(begins); i++) {
		struct http_chunks c = { 0 };
		struct text out = { 0 };
		size_t used;

		ck_assert_int_eq(http_chunks_push(&c, begins[i],
						  strlen(begins[i]), &used,
						  &out, 100), 0);
		ck_assert_int_eq(http_chunks_push(&c, more, 20000, &used, &out,
						  100), -400);
		text_free(&out);
	}
	free(more);
}
END_TEST

START_TEST(test_answer_heads)
{
	struct http_answer a = {
		.status = 200, .type = "text/plain", .length = 5, .id = "q",
		.headers = "A: b\r\n",
	};
	struct text t = { 0 };

	http_write_head(&t, &a);
	text_add(&t, "", 1);
	ck_assert_str_eq(t.p, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 5\r\nX-Request-Id: q\r\nA: b\r\n\r\n");
	text_clear(&t);
	a = (struct http_answer){ .status = 503, .type = "x", .length = -1, .close = true };
	http_write_head(&t, &a);
	text_add(&t, "", 1);
	ck_assert_str_eq(t.p, "HTTP/1.1 503 Service Unavailable\r\nContent-Type: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n");
	text_clear(&t);
	a.http10 = true;
	http_write_head(&t, &a);
	text_add(&t, "", 1);
	ck_assert_ptr_null(strstr(t.p, "chunked"));
	text_clear(&t);
	/* An answer without content has neither a type nor a length. */
	a = (struct http_answer){ .status = 204, .headers = "Allow: GET\r\n" };
	http_write_head(&t, &a);
	text_add(&t, "", 1);
	ck_assert_str_eq(t.p, "HTTP/1.1 204 No Content\r\nAllow: GET\r\n\r\n");
	text_free(&t);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("server-http");
	TCase *tc = tcase_create("text");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 30);
	tcase_add_loop_test(tc, test_heads, 0, (int)ARRAY_SIZE(heads));
	tcase_add_test(tc, test_nul_in_head);
	tcase_add_test(tc, test_meaning);
	tcase_add_test(tc, test_keep_alive);
	tcase_add_test(tc, test_request_id);
	tcase_add_test(tc, test_too_many_headers);
	tcase_add_test(tc, test_mutilated_heads);
	tcase_add_loop_test(tc, test_chunks, 0, (int)ARRAY_SIZE(chunked));
	tcase_add_test(tc, test_chunks_stop_at_their_end);
	tcase_add_test(tc, test_chunks_are_bounded);
	tcase_add_test(tc, test_answer_heads);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
