// SPDX-License-Identifier: Apache-2.0
/*
 * it_serve_malformed.c - kvrt serve and malformed requests of many kinds
 *
 * budget: 30 s, full 40 s
 *
 * Each row of the tables is one kind of malformed request, with the status, the
 * code and the parameter of its one answer.  After each the same server answers
 * an honest request, and holds no block, no descriptor, no connection and no
 * request more than before.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/integration/serve.h"

#define COMPLETIONS	"/v1/completions"
#define CHAT		"/v1/chat/completions"
#define RAW(s)		.bytes = s, .len = sizeof(s) - 1

/**
 * struct wrong - one malformed request
 * @bytes:  the request, @len of them; NULL: it is @body to @path
 * @piece:  put behind @bytes, or into @body for its first @, @times
 * @status, @code, @param: of the answer; param NULL: null
 */
struct wrong {
	const char	*name;
	const char	*bytes;
	size_t		len;
	const char	*path;
	const char	*body;
	const char	*piece;
	u32		times;
	int		status;
	const char	*code;
	const char	*param;
};

#define HTTP(_name, _raw, _status, _code)				\
	{ .name = _name, RAW(_raw), .status = _status, .code = _code }
#define LONG(_name, _raw, _piece, _times, _status, _code)		\
	{ .name = _name, RAW(_raw), .piece = _piece, .times = _times,	\
	  .status = _status, .code = _code }
#define BODY(_name, _path, _body, _status, _code, _param)		\
	{ .name = _name, .path = _path, .body = _body,			\
	  .status = _status, .code = _code, .param = _param }

static const struct wrong wrongs[] = {
	/* Bytes that are not HTTP. */
	HTTP("words", "hello\r\n\r\n", 400, "bad_request"),
	HTTP("TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400, "bad_request"),
	HTTP("HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, "bad_request"),
	HTTP("version 9.9", "GET /health HTTP/9.9\r\nHost: a\r\n\r\n", 505, "bad_request"),
	HTTP("version without digits", "GET /health HTTP/x.y\r\nHost: a\r\n\r\n", 505, "bad_request"),
	HTTP("no version", "GET /health\r\nHost: a\r\n\r\n", 400, "bad_request"),
	HTTP("unknown method", "BREW / HTTP/1.1\r\nHost: a\r\n\r\n", 501, "bad_request"),
	HTTP("method in small letters", "get / HTTP/1.1\r\nHost: a\r\n\r\n", 501, "bad_request"),
	HTTP("path without slash", "GET health HTTP/1.1\r\nHost: a\r\n\r\n", 400, "bad_request"),
	HTTP("path with a blank", "GET /a b HTTP/1.1\r\nHost: a\r\n\r\n", 400, "bad_request"),
	HTTP("path with bytes", "GET /\xff\xfe HTTP/1.1\r\nHost: a\r\n\r\n", 400, "bad_request"),
	HTTP("line ended by LF", "GET / HTTP/1.1\nHost: a\r\n\r\n", 400, "bad_request"),
	HTTP("no host", "GET / HTTP/1.1\r\n\r\n", 400, "bad_request"),
	HTTP("two hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, "bad_request"),
	HTTP("header without colon", "GET / HTTP/1.1\r\nHost: a\r\nX\r\n\r\n", 400, "bad_request"),
	HTTP("header without name", "GET / HTTP/1.1\r\nHost: a\r\n: x\r\n\r\n", 400, "bad_request"),
	HTTP("blank before a colon", "GET / HTTP/1.1\r\nHost: a\r\nX : y\r\n\r\n", 400, "bad_request"),
	HTTP("folded header", "GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n z\r\n\r\n", 400, "bad_request"),
	HTTP("control in a header", "GET / HTTP/1.1\r\nHost: a\r\nX: y\x01z\r\n\r\n", 400, "bad_request"),
	HTTP("NUL in a header", "GET / HTTP/1.1\r\nHost: a\r\nX: y\0z\r\n\r\n", 400, "bad_request"),
	LONG("long head", "GET / HTTP/1.1\r\nHost: a\r\nX: ", "aaaaaaaaaaaaaaaa", 1100, 431, "header_too_large"),
	LONG("many headers", "GET / HTTP/1.1\r\nHost: a\r\n", "X: y\r\n", 200, 431, "bad_request"),
	HTTP("half a head", "GET / HTTP/1.1\r\nHo", 408, "request_timeout"),
	/* The end of the body is unclear. */
	HTTP("two lengths", "POST " COMPLETIONS " HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 400, "bad_request"),
	HTTP("lengths in a list", "POST " COMPLETIONS " HTTP/1.1\r\nHost: a\r\nContent-Length: 2, 2\r\n\r\n{}", 400, "bad_request"),
	HTTP("negative length", "POST " COMPLETIONS " HTTP/1.1\r\nHost: a\r\nContent-Length: -5\r\n\r\n", 400, "bad_request"),
	HTTP("length with a sign", "POST " COMPLETIONS " HTTP/1.1\r\nHost: a\r\nContent-Length: +2\r\n\r\n{}", 400, "bad_request"),
	HTTP("length of 64 bits and more", "POST " COMPLETIONS " HTTP/1.1\r\nHost: a\r\nContent-Length: 18446744073709551618\r\n\r\n{}", 400, "bad_request"),
	HTTP("length and chunks", "POST " COMPLETIONS " HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, "bad_request"),
	HTTP("chunks twice", "POST " COMPLETIONS " HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, "bad_request"),
	HTTP("another coding", "POST " COMPLETIONS " HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501, "bad_request"),
	HTTP("chunks in HTTP/1.0", "POST " COMPLETIONS " HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, "bad_request"),
	HTTP("chunk size of letters", "POST " COMPLETIONS " HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 400, "bad_request"),
	HTTP("chunk size of 64 bits and more", "POST " COMPLETIONS " HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n10000000000000002\r\n{}", 400, "bad_request"),
	HTTP("chunk ended by LF", "POST " COMPLETIONS " HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\n{}\r\n0\r\n\r\n", 400, "bad_request"),
	HTTP("chunk longer than it says", "POST " COMPLETIONS " HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n1\r\n{}\r\n0\r\n\r\n", 400, "bad_request"),
	HTTP("another expectation", "POST " COMPLETIONS " HTTP/1.1\r\nHost: a\r\nExpect: cake\r\nContent-Length: 2\r\n\r\n{}", 417, "bad_request"),
	HTTP("long body", "POST " COMPLETIONS " HTTP/1.1\r\nHost: a\r\nContent-Length: 1048577\r\n\r\n", 413, "request_too_large"),
	HTTP("long chunk", "POST " COMPLETIONS " HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n100001\r\n", 413, "request_too_large"),
	HTTP("half a body", "POST " COMPLETIONS " HTTP/1.1\r\nHost: a\r\nContent-Length: 20\r\n\r\n{\"prompt\"", 408, "request_timeout"),
	/* Requests for missing resources. */
	HTTP("unknown path", "GET /v2/completions HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 404, "unknown_url"),
	HTTP("GET of a path for POST", "GET " COMPLETIONS " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 405, "method_not_allowed"),
	HTTP("DELETE of a model", "DELETE /v1/models HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", 405, "method_not_allowed"),
	/* Bodies that are not JSON, or JSON of another form. */
	BODY("empty body", COMPLETIONS, "", 400, "invalid_json", NULL),
	BODY("form", COMPLETIONS, "prompt=a&max_tokens=2", 400, "invalid_json", NULL),
	BODY("JSON cut off", COMPLETIONS, "{\"prompt\":\"a\"", 400, "invalid_json", NULL),
	BODY("more behind JSON", COMPLETIONS, "{\"prompt\":\"a\"} x", 400, "invalid_json", NULL),
	BODY("list", COMPLETIONS, "[{\"prompt\":\"a\"}]", 400, "invalid_json", NULL),
	BODY("key twice", COMPLETIONS, "{\"prompt\":\"a\",\"prompt\":\"b\"}", 400, "invalid_json", NULL),
	BODY("no UTF-8", COMPLETIONS, "{\"prompt\":\"\xc3\x28\"}", 400, "invalid_json", NULL),
	BODY("half a pair of surrogates", COMPLETIONS, "{\"prompt\":\"\\ud83d\"}", 400, "invalid_json", NULL),
	BODY("NUL in a key", COMPLETIONS, "{\"prompt\\u0000\":\"a\"}", 400, "invalid_json", NULL),
	BODY("number past all", COMPLETIONS, "{\"prompt\":\"a\",\"top_p\":1e999}", 400, "invalid_json", NULL),
	BODY("NaN", COMPLETIONS, "{\"prompt\":\"a\",\"temperature\":NaN}", 400, "invalid_json", NULL),
	BODY("byte order mark", COMPLETIONS, "\xef\xbb\xbf{\"prompt\":\"a\"}", 400, "invalid_json", NULL),
	{ .name = "deep list", .path = COMPLETIONS, .body = "{\"prompt\":@", .piece = "[", .times = 100000,
	  .status = 400, .code = "invalid_json" },
	/* Fields. */
	BODY("no prompt", COMPLETIONS, "{}", 400, "missing_parameter", "prompt"),
	BODY("prompt of nothing", COMPLETIONS, "{\"prompt\":[]}", 400, "invalid_value", "prompt"),
	BODY("prompt of a kind", COMPLETIONS, "{\"prompt\":{\"text\":\"a\"}}", 400, "invalid_value", "prompt"),
	BODY("prompt of kinds", COMPLETIONS, "{\"prompt\":[\"a\",1]}", 400, "invalid_value", "prompt"),
	BODY("id too large", COMPLETIONS, "{\"prompt\":[1,4096]}", 400, "invalid_value", "prompt"),
	BODY("id negative", COMPLETIONS, "{\"prompt\":[-1]}", 400, "invalid_value", "prompt"),
	{ .name = "prompt longer than the context", .path = COMPLETIONS, .body = "{\"prompt\":\"@\"}",
	  .piece = "the cat ", .times = 9000, .status = 400, .code = "context_length_exceeded", .param = "prompt" },
	BODY("no tokens", COMPLETIONS, "{\"prompt\":\"a\",\"max_tokens\":0}", 400, "invalid_value", "max_tokens"),
	BODY("tokens as text", COMPLETIONS, "{\"prompt\":\"a\",\"max_tokens\":\"7\"}", 400, "invalid_value", "max_tokens"),
	BODY("half a token", COMPLETIONS, "{\"prompt\":\"a\",\"max_tokens\":1.5}", 400, "invalid_value", "max_tokens"),
	BODY("more than the context", COMPLETIONS, "{\"prompt\":\"a\",\"max_tokens\":99999}", 400, "context_length_exceeded", "max_tokens"),
	BODY("no samples", COMPLETIONS, "{\"prompt\":\"a\",\"n\":0}", 400, "invalid_value", "n"),
	BODY("samples past all", COMPLETIONS, "{\"prompt\":\"a\",\"n\":129}", 400, "invalid_value", "n"),
	BODY("cold", COMPLETIONS, "{\"prompt\":\"a\",\"temperature\":-1}", 400, "invalid_value", "temperature"),
	BODY("top of nothing", COMPLETIONS, "{\"prompt\":\"a\",\"top_p\":0}", 400, "invalid_value", "top_p"),
	BODY("seed of letters", COMPLETIONS, "{\"prompt\":\"a\",\"seed\":\"x\"}", 400, "invalid_value", "seed"),
	BODY("empty stop string", COMPLETIONS, "{\"prompt\":\"a\",\"stop\":\"\"}", 400, "invalid_value", "stop"),
	BODY("five stop strings", COMPLETIONS, "{\"prompt\":\"a\",\"stop\":[\"a\",\"b\",\"c\",\"d\",\"e\"]}", 400, "invalid_value", "stop"),
	BODY("stream of a word", COMPLETIONS, "{\"prompt\":\"a\",\"stream\":\"yes\"}", 400, "invalid_value", "stream"),
	BODY("options of no stream", COMPLETIONS, "{\"prompt\":\"a\",\"stream_options\":{}}", 400, "invalid_value", "stream_options"),
	BODY("unknown field", COMPLETIONS, "{\"prompt\":\"a\",\"no_such\":1}", 400, "unknown_parameter", "no_such"),
	BODY("field of chats", COMPLETIONS, "{\"prompt\":\"a\",\"messages\":[]}", 400, "unknown_parameter", "messages"),
	BODY("field that is not supported", CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":[1]}", 400, "unsupported_parameter", "tools"),
	BODY("unknown model", COMPLETIONS, "{\"prompt\":\"a\",\"model\":\"gpt-99\"}", 404, "model_not_found", "model"),
	BODY("model of a kind", COMPLETIONS, "{\"prompt\":\"a\",\"model\":7}", 400, "invalid_value", "model"),
	BODY("salt of a path", COMPLETIONS, "{\"prompt\":\"a\",\"cache_salt\":\"a/b\"}", 400, "invalid_value", "cache_salt"),
	/* Chats. */
	BODY("no messages", CHAT, "{}", 400, "missing_parameter", "messages"),
	BODY("messages of nothing", CHAT, "{\"messages\":[]}", 400, "invalid_value", "messages"),
	BODY("message without role", CHAT, "{\"messages\":[{\"content\":\"a\"}]}", 400, "invalid_value", "messages"),
	BODY("message of nobody", CHAT, "{\"messages\":[{\"role\":\"king\",\"content\":\"a\"}]}", 400, "unsupported_parameter", "messages"),
	BODY("content of a kind", CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":7}]}", 400, "invalid_value", "messages"),
	BODY("picture", CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":[{\"type\":\"image_url\",\"image_url\":{\"url\":\"x\"}}]}]}", 400, "unsupported_parameter", "messages"),
	/* Tokens. */
	BODY("tokens of nothing", "/tokenize", "{}", 400, "missing_parameter", "prompt"),
	BODY("tokens of two", "/tokenize", "{\"prompt\":\"a\",\"messages\":[]}", 400, "invalid_value", "messages"),
	BODY("text of no token", "/detokenize", "{\"tokens\":[999999]}", 400, "invalid_value", "tokens"),
};

static struct rig rig;
static struct served server;
static u32 fds;

static void setup(void)
{
	rig_start(&rig, "--pool-size", "32M", "--extent-size", "512K", NULL);
	serve_loops = 2;
	serve_start(&server, &rig, "--max-body", "1M", "--head-timeout", "1",
		    "--body-timeout", "1", NULL);
	serve_await(&server, 200, 30);
	json_decref(complete(&server, "{\"prompt\":\"a\",\"max_tokens\":2}"));
	fds = serve_fds(&server);
}

static void teardown(void)
{
	rig_walk(&rig);
	serve_stop(&server);
	rig_stop(&rig);
}

/* The request, @len bytes; to be freed. */
static char *request_of(const struct wrong *w, size_t *len)
{
	const char *body = w->body ? w->body : "";
	const char *at = w->piece && w->body ? strchr(body, '@') : NULL;
	const size_t piece = w->piece ? strlen(w->piece) : 0;
	const size_t before = at ? (size_t)(at - body) : strlen(body);
	const size_t all = strlen(body) - (at != NULL) +
			   (w->body ? piece * w->times : 0);
	char *p = malloc(w->len + piece * w->times + strlen(body) + 512);
	size_t n = 0;
	u32 i;

	ck_assert_ptr_nonnull(p);
	if (w->bytes) {
		memcpy(p, w->bytes, w->len);
		n = w->len;
	} else {
		n = (size_t)sprintf(p, "POST %s HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: %zu\r\n\r\n",
				    w->path, all);
		memcpy(p + n, body, before);
		n += before;
	}
	for (i = 0; i < w->times; i++, n += piece)
		memcpy(p + n, w->piece, piece);
	if (at) {
		memcpy(p + n, at + 1, strlen(at + 1));
		n += strlen(at + 1);
	}
	if (w->bytes && w->times) {
		memcpy(p + n, "\r\n\r\n", 4);
		n += 4;
	}
	*len = n;
	return p;
}

/* The error must have OpenAI's form, all its fields, and these values. */
static void expect_error(const struct wrong *w, const char *text)
{
	json_t *v = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	json_t *e = json_object_get(v, "error");
	const char *code = json_string_value(json_object_get(e, "code"));
	const char *param = json_string_value(json_object_get(e, "param"));

	ck_assert_msg(json_object_size(v) == 1 && json_object_size(e) == 4,
		      "%s: %s", w->name, text);
	ck_assert_msg(json_string_length(json_object_get(e, "message")) > 0 &&
		      json_is_string(json_object_get(e, "type")),
		      "%s: %s", w->name, text);
	ck_assert_msg(code && !strcmp(code, w->code), "%s: %s", w->name, text);
	ck_assert_msg(w->param ? param && !strcmp(param, w->param) : !param,
		      "%s: %s", w->name, text);
	json_decref(v);
}

START_TEST(test_malformed)
{
	const struct wrong *w = &wrongs[_i];
	char *bytes, *text;
	struct web c;
	size_t len;
	int status;

	bytes = request_of(w, &len);
	web_open(&c, server.port);
	(void)web_send(&c, bytes, len);	/* the server may refuse it half way */
	status = web_status(&c);
	text = web_body(&c);
	ck_assert_msg(status == w->status, "%s: %d, not %d: %s", w->name,
		      status, w->status, text);
	ck_assert_msg(text != NULL, "%s: no answer", w->name);
	expect_error(w, text);
	/* After this one answer the connection ends. */
	ck_assert_msg(web_closed(&c), "%s: it goes on", w->name);
	web_close(&c);
	free(text);
	free(bytes);
	json_decref(complete(&server, "{\"prompt\":\"a\",\"max_tokens\":2}"));
	serve_await_idle(&server, 2000);
	while (serve_figure(&server, "kvrt_http_connections") > 1)
		nap_ms(2);
	serve_expect_fds(&server, fds);
	printf("  %s: %d %s\n", w->name, status, w->code);
}
END_TEST

/* The names of the rows differ, and there are many rows. */
START_TEST(test_names)
{
	u32 i, k;

	ck_assert_uint_ge(ARRAY_SIZE(wrongs), 50);
	for (i = 0; i < ARRAY_SIZE(wrongs); i++)
		for (k = 0; k < i; k++)
			ck_assert_str_ne(wrongs[i].name, wrongs[k].name);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("serve-malformed");
	TCase *tc = tcase_create("requests");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_unchecked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_names);
	tcase_add_loop_test(tc, test_malformed, 0, ARRAY_SIZE(wrongs));
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
