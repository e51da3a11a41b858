// SPDX-License-Identifier: Apache-2.0
/*
 * check_server_log.c - lines about requests, and about the work of some seconds
 */
#include <arpa/inet.h>
#include <check.h>
#include <jansson.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/un.h>
#include <unistd.h>

#include <kvmm/log.h>

#include "runtime/server/access.h"
#include "runtime/server/rates.h"

static int reader;

/* stderr becomes a pipe. */
static void setup(void)
{
	int fd[2];

	ck_assert_int_eq(pipe(fd), 0);
	ck_assert_int_eq(dup2(fd[1], STDERR_FILENO), STDERR_FILENO);
	close(fd[1]);
	reader = fd[0];
	kv_log_init("kvrt", KV_LOG_INFO);
}

static const char *said(void)
{
	static char buf[8192];
	ssize_t n = read(reader, buf, sizeof(buf) - 1);

	ck_assert_int_gt(n, 0);
	buf[n] = '\0';
	return buf;
}

/* ---- addresses ---- */

static struct access_peer peer_of(int family, const char *host, u16 port)
{
	struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_port = htons(port) };
	struct sockaddr_in four = { .sin_family = AF_INET, .sin_port = htons(port) };
	struct access_peer p;

	ck_assert_int_eq(inet_pton(family, host, family == AF_INET ?
				   (void *)&four.sin_addr : (void *)&six.sin6_addr), 1);
	access_peer_set(&p, family == AF_INET ? (void *)&four : (void *)&six);
	return p;
}

static const struct {
	int		family;
	const char	*host;
	const char	*text;
} peers[] = {
	{ AF_INET, "192.0.2.7", "192.0.2.7:41234" },
	{ AF_INET6, "2001:db8::1", "[2001:db8::1]:41234" },
	{ AF_INET6, "2001:db8:1111:2222:3333:4444:5555:6666",
	  "[2001:db8:1111:2222:3333:4444:5555:6666]:41234" },
	/* A client of IPv4 at a socket of IPv6 has one name. */
	{ AF_INET6, "::ffff:192.0.2.7", "192.0.2.7:41234" },
};

START_TEST(test_peers)
{
	const struct access_peer p = peer_of(peers[_i].family, peers[_i].host, 41234);
	char text[ACCESS_PEER];

	ck_assert_str_eq(access_peer_text(&p, text), peers[_i].text);
}
END_TEST

START_TEST(test_peer_of_a_socket)
{
	const struct sockaddr_un sun = { .sun_family = AF_UNIX };
	char text[ACCESS_PEER];
	struct access_peer p;

	access_peer_set(&p, (const struct sockaddr *)&sun);
	ck_assert_str_eq(access_peer_text(&p, text), "unix");
}
END_TEST

/* ---- requests ---- */

static const char path[] = "/v1/completions?q";

static struct http_head head = {
	.method = HTTP_POST, .path = path, .path_len = 15, .id = "abc",
};

START_TEST(test_line)
{
	const struct access_peer p = peer_of(AF_INET, "192.0.2.7", 9);
	const struct http_head none = { .path = NULL };
	struct access a = {
		.peer = &p, .head = &head, .id = "", .status = 401, .ns = 1500000,
	};

	access_log(&a);
	ck_assert_str_eq(said(), "kvrt: 192.0.2.7:9 \"POST /v1/completions\" 401, 0 tokens, 1.5 ms, id abc\n");
	a.id = "cmpl-1";
	a.key = "alice";
	a.status = 500;
	a.tokens = 7;
	access_log(&a);
	ck_assert_str_eq(said(), "kvrt: warning: 192.0.2.7:9 \"POST /v1/completions\" 500, 7 tokens, 1.5 ms, id cmpl-1, key alice\n");
	a.status = 400;
	a.code = "context_length_exceeded";
	a.param = "messages[0].max_tokens";
	access_log(&a);
	ck_assert_str_eq(said(), "kvrt: 192.0.2.7:9 \"POST /v1/completions\" 400, 7 tokens, 1.5 ms, id cmpl-1, key alice, code context_length_exceeded, param messages[0].max_tokens\n");
	a.param = "a \"name\"";
	a.key = NULL;
	access_log(&a);
	ck_assert_str_eq(said(), "kvrt: 192.0.2.7:9 \"POST /v1/completions\" 400, 7 tokens, 1.5 ms, id cmpl-1, code context_length_exceeded\n");
	a = (struct access){ .peer = &p, .head = &none, .id = "", .status = 400 };
	access_log(&a);
	ck_assert_str_eq(said(), "kvrt: 192.0.2.7:9 \"-\" 400, 0 tokens, 0.0 ms, id -\n");
}
END_TEST

static void member(const json_t *v, const char *key, const char *want)
{
	char *got = json_dumps(json_object_get(v, key), JSON_ENCODE_ANY);

	ck_assert_msg(got && !strcmp(got, want), "%s: %s, want %s", key, got, want);
	free(got);
}

START_TEST(test_json)
{
	const struct access_peer p = peer_of(AF_INET6, "::1", 9);
	struct http_head quoted = head;
	struct access a = {
		.peer = &p, .head = &quoted, .id = "a\"b", .status = 404,
		.tokens = 3, .ns = 2000000,
	};
	json_t *v;

	quoted.path = "/\"\\x";
	quoted.path_len = 4;
	kv_log_format(KV_LOG_json);
	access_log(&a);
	v = json_loads(said(), 0, NULL);
	ck_assert_ptr_nonnull(v);
	member(v, "client", "\"[::1]:9\"");
	member(v, "id", "\"a\\\"b\"");
	member(v, "method", "\"POST\"");
	member(v, "path", "\"/\\\"\\\\x\"");
	member(v, "status", "404");
	member(v, "tokens", "3");
	member(v, "ms", "2.0");
	member(v, "key", "null");
	member(v, "code", "null");
	member(v, "param", "null");
	member(v, "level", "\"info\"");
	json_decref(v);
}
END_TEST

/* ---- the work of some seconds ---- */

START_TEST(test_rates)
{
	struct backend_view from = { .stats = { .prompt_tokens = 100 } };
	struct backend_view to = from;
	char text[RATES_TEXT], json[RATES_TEXT], object[RATES_TEXT + 2];
	json_t *v;

	ck_assert(!rates_text("demo", &from, &to, 10000000000, text, json));
	to.stats.prompt_tokens += 2000;
	to.stats.cached_tokens += 500;
	to.stats.generated_tokens += 45;
	to.stats.steps++;
	to.load = (struct engine_load){
		.running = 2, .waiting = 1, .extents = 3, .all_extents = 8,
	};
	ck_assert(rates_text("demo", &from, &to, 10000000000, text, json));
	ck_assert_str_eq(text, "demo: 200.0 prompt tokens/s, 4.5 generated tokens/s, running 2, waiting 1, prefix cache hits 25.0 %, pool 37.5 %");
	snprintf(object, sizeof(object), "{%s}", json);
	v = json_loads(object, 0, NULL);
	ck_assert_ptr_nonnull(v);
	member(v, "model", "\"demo\"");
	member(v, "prompt_tokens_per_s", "200.0");
	member(v, "prefix_cache_hits", "25.0");
	member(v, "waiting", "1");
	member(v, "pool", "37.5");
	json_decref(v);
	/* A sequence that waits has a line, though nothing else happened. */
	from = to;
	to.load.running = 0;
	ck_assert(rates_text("de\"mo", &from, &to, 10000000000, text, json));
	ck_assert_ptr_nonnull(strstr(text, "prefix cache hits - %"));
	ck_assert_ptr_nonnull(strstr(json, "\"model\":\"de\\\"mo\""));
	ck_assert_ptr_nonnull(strstr(json, "\"prefix_cache_hits\":null"));
	to.load.waiting = 0;
	ck_assert(!rates_text("demo", &from, &to, 10000000000, text, json));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("server-log");
	TCase *tc = tcase_create("lines");
	SRunner *sr;
	int failed;

	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_loop_test(tc, test_peers, 0, (int)ARRAY_SIZE(peers));
	tcase_add_test(tc, test_peer_of_a_socket);
	tcase_add_test(tc, test_line);
	tcase_add_test(tc, test_json);
	tcase_add_test(tc, test_rates);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
