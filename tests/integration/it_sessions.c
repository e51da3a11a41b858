// SPDX-License-Identifier: Apache-2.0
/*
 * it_sessions.c - named sessions of kvrt serve, with a real daemon
 *
 * budget: 60 s
 *
 * A session's prefix is held, moved and pinned while other prompts need several times
 * the memory there is.  The pool and the host pool have room for 1,024 tokens each.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/integration/serve.h"

#define PROMPT	200u		/* tokens of a session's prompt */
#define WHOLE	192u		/* of these, those of whole blocks */
#define NR_FLOOD 16u
#define FLOOD	400u

static struct rig rig;
static struct served server;

static void setup_with(const char *host, const char *adopt)
{
	rig_start(&rig, "--pool-size", "4M", "--extent-size", "256K", "--host-size",
		  host, "--adopt", adopt, NULL);
	serve_start(&server, &rig, "--max-model-len", "512", NULL);
	serve_await(&server, 200, 30);
}

static void setup(void)
{
	setup_with("4M", "on");
}

static void teardown(void)
{
	serve_stop(&server);
	rig_stop(&rig);
}

/* ---- requests ---- */

/* A body for @nr ids that begin at @first, with more members. */
static const char *body_of(u32 first, u32 nr, const char *more)
{
	static char body[16384];
	size_t n = (size_t)sprintf(body, "{\"prompt\":[%u", first);
	u32 i;

	for (i = 1; i < nr; i++)
		n += (size_t)sprintf(body + n, ",%u", (first + i * 7) % 4096);
	sprintf(body + n, "],\"max_tokens\":1,\"ignore_eos\":true%s}", more);
	return body;
}

/* Compute prompt @first for a session; @how: the field.  Return: its member "session". */
static json_t *note(u32 first, u32 nr, const char *how)
{
	char more[200];
	json_t *v, *s;

	snprintf(more, sizeof(more), ",%s", how);
	v = complete(&server, body_of(first, nr, more));
	s = json_incref(json_object_get(v, "session"));
	ck_assert(json_is_object(s));
	json_decref(v);
	return s;
}

/* Prompt tokens that a request without a session finds cached. */
static u32 cached(u32 first)
{
	json_t *v = complete(&server, body_of(first, PROMPT + 1, ""));
	const s64 n = usage(v, "cached_tokens");

	json_decref(v);
	return (u32)n;
}

static void flood(void)
{
	u32 i;

	for (i = 0; i < NR_FLOOD; i++)
		json_decref(complete(&server, body_of(1000 + i * 100, FLOOD, "")));
}

/* Any request; the answer must have this status.  Return: its JSON. */
static json_t *ask(const char *method, const char *path, const char *headers,
		   const char *body, int status)
{
	char head[512], *text;
	struct web w;
	json_t *v;
	int have;

	web_open(&w, server.port);
	snprintf(head, sizeof(head), "%s %s HTTP/1.1\r\nHost: a\r\nContent-Length: %zu\r\n%s\r\n",
		 method, path, strlen(body), headers);
	ck_assert(web_puts(&w, head) && web_puts(&w, body));
	have = web_status(&w);
	text = web_body(&w);
	ck_assert_msg(have == status, "%s %s %s: %d, want %d: %s", method, path, body,
		      have, status, text ? text : "");
	v = json_loads(text, 0, NULL);
	ck_assert_ptr_nonnull(v);
	free(text);
	web_close(&w);
	return v;
}

static json_t *hint(const char *name, const char *hint, const char *seconds)
{
	char path[100], body[100];

	snprintf(path, sizeof(path), "/v1/sessions/%s", name);
	snprintf(body, sizeof(body), "{\"hint\":\"%s\"%s%s}", hint,
		 *seconds ? ",\"seconds\":" : "", seconds);
	return ask("POST", path, "", body, 200);
}

/* A number of an answer, which is freed if @end. */
static double number(json_t *v, const char *name, bool end)
{
	const json_t *n = json_object_get(v, name);
	double d;

	ck_assert_msg(json_is_number(n), "no %s", name);
	d = json_number_value(n);
	if (end)
		json_decref(v);
	return d;
}

static double now_of(const char *name, const char *member)
{
	char path[100];

	snprintf(path, sizeof(path), "/v1/sessions/%s", name);
	return number(ask("GET", path, "", "", 200), member, true);
}

/* The answer must be this one; @v is freed. */
static void answers(json_t *v, const char *answer, const char *why)
{
	const char *have = json_string_value(json_object_get(v, "answer"));
	const char *text = json_string_value(json_object_get(v, "why"));

	ck_assert_ptr_nonnull(have);
	ck_assert_msg(!strcmp(have, answer) && text && strstr(text, why),
		      "%s: %s, want %s: %s", have, text, answer, why);
	json_decref(v);
}

static void end(const char *name)
{
	char path[100];

	snprintf(path, sizeof(path), "/v1/sessions/%s", name);
	json_decref(ask("DELETE", path, "", "", 200));
}

static void await_pinned(const char *name, u32 want)
{
	const u64 until = now_ms() + 10000 * time_scale();

	while ((u32)now_of(name, "pinned") != want) {
		ck_assert_msg(now_ms() < until, "%s: %g tokens are pinned, not %u", name,
			      now_of(name, "pinned"), want);
		nap_ms(10);
	}
}

/* Take all of a session off the device; copies of the lease may still be under way. */
static void demote_all(const char *name)
{
	const u64 until = now_ms() + 10000 * time_scale();
	u32 sum = 0;

	while (sum < WHOLE) {
		ck_assert_msg(now_ms() < until, "%u tokens left the device", sum);
		sum += (u32)number(hint(name, "demote", ""), "moved", true);
		nap_ms(10);
	}
	ck_assert_uint_eq(sum, WHOLE);
}

static s64 promoted(void)
{
	return rig_value(&rig, "vmstat", "pgpromote");
}

/* ---- leases ---- */

START_TEST(test_retain)
{
	json_t *v = note(1, PROMPT, "\"session\":{\"name\":\"a\",\"retain\":60}");
	s64 before;

	ck_assert_uint_eq((u32)number(v, "tokens", false), WHOLE);
	ck_assert_uint_eq((u32)number(v, "held", false), WHOLE);
	ck_assert(number(v, "until", false) > 50);
	answers(v, "accepted", "");
	v = note(500, PROMPT, "\"session\":\"b\"");
	ck_assert_uint_eq((u32)number(v, "tokens", false), WHOLE);
	ck_assert_uint_eq((u32)number(v, "held", true), 0);
	flood();
	before = promoted();
	ck_assert_uint_ge(cached(1), WHOLE);
	/* The flood had pushed it off the device, so the other tests see how it moves. */
	ck_assert_int_ge(promoted(), before + WHOLE / 16);
	ck_assert_uint_eq(cached(500), 0);
}
END_TEST

START_TEST(test_deadline)
{
	const double renewed = number(note(1, PROMPT, "\"session\":{\"name\":\"a\",\"retain\":1}"),
				      "until", true);

	ck_assert(renewed > 0 && renewed <= 1);
	answers(hint("a", "retain", "4"), "accepted", "");
	nap_ms(1500);
	ck_assert_uint_eq((u32)now_of("a", "held"), WHOLE);
	nap_ms(3000);
	ck_assert_uint_eq((u32)now_of("a", "held"), 0);
	ck_assert(now_of("a", "until") <= 0);
	rig_await(&rig, "vmstat", "lease_expired", 1, 10);
	flood();
	ck_assert_uint_eq(cached(1), 0);
	answers(hint("a", "retain", ""), "accepted", "");	/* cached() computed it */
	answers(hint("a", "retain", "3600"), "clipped", "the daemon's longest lease is 600 s");
	ck_assert(now_of("a", "until") > 590 && now_of("a", "until") <= 600);
}
END_TEST

START_TEST(test_no_lower_tier)
{
	json_t *v = note(1, PROMPT, "\"session\":{\"name\":\"a\",\"retain\":60}");

	ck_assert_uint_eq((u32)number(v, "held", false), 0);
	ck_assert_uint_ge((u32)number(v, "kept", false), WHOLE / 2);
	answers(v, "clipped", "have no room");
	answers(hint("a", "demote", ""), "refused", "have no room");
	answers(hint("a", "pin", ""), "refused", "have no room");
}
END_TEST

/* ---- moves ---- */

START_TEST(test_move)
{
	s64 before;

	json_decref(note(1, PROMPT, "\"session\":{\"name\":\"a\",\"retain\":60}"));
	demote_all("a");
	answers(hint("a", "demote", ""), "accepted", "");
	ck_assert_int_eq(rig_value(&rig, "vmstat", "lease_demote"), WHOLE / 16);
	before = promoted();
	ck_assert_uint_eq((u32)number(hint("a", "prefetch", ""), "moved", true), WHOLE);
	rig_await(&rig, "vmstat", "lease_promote", WHOLE / 16, 10);
	rig_await(&rig, "vmstat", "pgpromote", before + WHOLE / 16, 10);
	before = promoted();
	ck_assert_uint_ge(cached(1), WHOLE);
	ck_assert_int_eq(promoted(), before);
	/* Demoted again, the request itself must fetch it. */
	demote_all("a");
	ck_assert_uint_ge(cached(1), WHOLE);
	ck_assert_int_ge(promoted(), before + WHOLE / 16);
	/* Without a lease the hint makes one. */
	json_decref(note(500, PROMPT, "\"session\":\"b\""));
	answers(hint("b", "prefetch", "30"), "accepted", "");
	ck_assert(now_of("b", "until") > 25);
}
END_TEST

START_TEST(test_pin)
{
	s64 before;

	json_decref(note(1, PROMPT, "\"session\":{\"name\":\"a\",\"retain\":60}"));
	answers(hint("a", "pin", "60"), "accepted", "");
	await_pinned("a", WHOLE);
	before = promoted();
	flood();
	ck_assert_uint_eq((u32)now_of("a", "pinned"), WHOLE);
	ck_assert_uint_eq((u32)number(hint("a", "demote", ""), "moved", true), 0);
	ck_assert_uint_ge(cached(1), WHOLE);
	ck_assert_int_eq(promoted(), before);
	answers(hint("a", "unpin", ""), "accepted", "");
	ck_assert_uint_eq((u32)now_of("a", "pinned"), 0);
	demote_all("a");
	/* The time of a pin is over; it comes back from the host pool before that. */
	answers(hint("a", "pin", "3"), "accepted", "");
	await_pinned("a", WHOLE);
	ck_assert(now_of("a", "pinned_until") <= 3);
	await_pinned("a", 0);
	demote_all("a");
	end("a");
	/* A quarter of the pool has 256 tokens. */
	json_decref(note(500, FLOOD, "\"session\":\"b\""));
	answers(hint("b", "pin", "60"), "refused", "quarter");
	end("b");
	serve_await_idle(&server, 5000);
}
END_TEST

/* ---- input ---- */

START_TEST(test_refused)
{
	static const char *const path = "/v1/sessions/a";

	refused(&server, "/v1/completions", "{\"prompt\":\"a\",\"session\":1}", 400, "session");
	refused(&server, "/v1/completions", "{\"prompt\":\"a\",\"session\":\"a\",\"n\":2}",
		400, "session");
	refused(&server, "/v1/chat/completions",
		"{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"session\":{\"name\":\"a\",\"retain\":-1}}",
		400, "session.retain");
	refused(&server, path, "{\"hint\":\"retain\"}", 404, "name");
	json_decref(ask("GET", path, "", "", 404));
	json_decref(ask("DELETE", path, "", "", 404));
	json_decref(note(1, PROMPT, "\"session\":\"a\""));
	refused(&server, path, "{\"hint\":\"hold\"}", 400, "hint");
	refused(&server, path, "{\"seconds\":1}", 400, "hint");
	refused(&server, path, "{\"hint\":\"pin\",\"seconds\":0}", 400, "seconds");
	refused(&server, path, "{\"hint\":\"pin\",\"size\":0}", 400, "size");
	refused(&server, path, "{\"hint\":", 400, NULL);
	refused(&server, "/v1/sessions/a/b", "{\"hint\":\"pin\"}", 400, "name");
	json_decref(ask("GET", "/v1/sessions?hint=pin", "", "", 400));
	json_decref(ask("PUT", "/v1/sessions/a", "", "", 405));
	refused(&server, "/v1/sessions/a?cache_salt=b", "{\"hint\":\"pin\"}", 400, NULL);
	json_decref(ask("POST", "/v1/sessions", "", "{}", 405));
}
END_TEST

/* A stream ends with a chunk that has the session; a chat has one, too. */
START_TEST(test_stream_and_chat)
{
	char *event, *last = NULL;
	struct web w;
	json_t *v;

	web_open(&w, server.port);
	ck_assert(web_post(&w, "/v1/completions", body_of(1, PROMPT,
		",\"stream\":true,\"session\":{\"name\":\"a\",\"retain\":60}")));
	ck_assert_int_eq(web_status(&w), 200);
	while ((event = web_event(&w)) && strcmp(event, "[DONE]")) {
		free(last);
		last = event;
	}
	ck_assert_ptr_nonnull(event);
	free(event);
	v = json_loads(last, 0, NULL);
	ck_assert_uint_eq(json_array_size(json_object_get(v, "choices")), 0);
	ck_assert_uint_eq((u32)number(json_object_get(v, "session"), "held", false), WHOLE);
	json_decref(v);
	free(last);
	web_close(&w);
	v = web_json(server.port, "/v1/chat/completions",
		     "{\"messages\":[{\"role\":\"user\",\"content\":\"In the beginning\"}],\"max_tokens\":40,\"ignore_eos\":true,\"session\":\"chat\"}",
		     200);
	ck_assert(number(json_object_get(v, "session"), "tokens", false) >= 32);
	json_decref(v);
}
END_TEST

static size_t nr_listed(const char *query, const char *headers)
{
	char path[100];
	json_t *v;
	size_t n;

	snprintf(path, sizeof(path), "/v1/sessions%s", query);
	v = ask("GET", path, headers, "", 200);
	n = json_array_size(json_object_get(v, "data"));
	json_decref(v);
	return n;
}

START_TEST(test_salts)
{
	static const char one[] = "\"session\":{\"name\":\"a\",\"retain\":60},\"cache_salt\":\"one two\"";

	json_decref(note(1, PROMPT, one));
	json_decref(note(500, 100, "\"session\":\"a\",\"cache_salt\":\"b\""));
	json_decref(ask("GET", "/v1/sessions/a", "", "", 404));
	ck_assert_uint_eq(nr_listed("", ""), 0);
	ck_assert_uint_eq(nr_listed("?cache_salt=b", ""), 1);
	ck_assert_uint_eq((u32)number(ask("GET", "/v1/sessions/a?cache_salt=one%20two", "",
					  "", 200), "held", true), WHOLE);
	answers(ask("POST", "/v1/sessions/a", "", "{\"hint\":\"retain\",\"cache_salt\":\"b\"}",
		    200), "accepted", "");
	json_decref(ask("DELETE", "/v1/sessions/a?cache_salt=one+two", "", "", 200));
	ck_assert_uint_eq(nr_listed("?cache_salt=one+two", ""), 0);
	ck_assert_uint_eq(nr_listed("?cache_salt=b", ""), 1);
}
END_TEST

START_TEST(test_keys)
{
	static const char one[] = "Authorization: Bearer one\r\n";
	static const char two[] = "Authorization: Bearer two\r\n";

	rig_start(&rig, "--pool-size", "4M", "--extent-size", "256K", NULL);
	serve_start(&server, &rig, "--max-model-len", "512", "--api-key", "one",
		    "--api-key", "two", NULL);
	serve_await(&server, 200, 30);
	json_decref(ask("POST", "/v1/completions", one,
			body_of(1, 50, ",\"session\":\"a\""), 200));
	json_decref(ask("GET", "/v1/sessions/a", "", "", 401));
	json_decref(ask("GET", "/v1/sessions/a", two, "", 404));
	json_decref(ask("POST", "/v1/sessions/a", two, "{\"hint\":\"retain\"}", 404));
	ck_assert_uint_eq(nr_listed("", two), 0);
	ck_assert_uint_eq(nr_listed("", one), 1);
	json_decref(ask("DELETE", "/v1/sessions/a", one, "", 200));
	teardown();
}
END_TEST

/* ---- the daemon dies ---- */

static void kill_daemon(void)
{
	const pid_t old = rig_daemon(&rig);
	const u64 until = now_ms() + 20000;

	kill(old, SIGKILL);
	while (rig_daemon(&rig) == old || !rig_daemon(&rig)) {
		ck_assert(now_ms() < until);
		nap_ms(10);
	}
}

/* The next daemon goes on: the session is held, or the next hint holds it again. */
START_TEST(test_adopted)
{
	u32 i, held;

	setup();
	json_decref(note(1, PROMPT, "\"session\":{\"name\":\"a\",\"retain\":60}"));
	for (i = 0; i < by_level(3, 10, 30); i++) {
		json_decref(hint("a", "pin", "60"));
		kill_daemon();
		ck_assert_uint_eq((u32)now_of("a", "tokens"), WHOLE);
		held = (u32)number(hint("a", "retain", "60"), "held", true);
		ck_assert_uint_gt(held, 0);	/* all, unless it died inside an event */
		flood();
		ck_assert_uint_ge(cached(1), held);
		answers(hint("a", "unpin", ""), "accepted", "");
	}
	ck_assert(serve_figure(&server, "kvrt_attaches_total") < 1.5);
	rig_walk(&rig);
	teardown();
}
END_TEST

/* The daemon is away, and the next one knows nothing. */
START_TEST(test_cold)
{
	setup_with("4M", "off");
	json_decref(note(1, PROMPT, "\"session\":{\"name\":\"a\",\"retain\":60}"));
	answers(hint("a", "pin", "60"), "accepted", "");
	kill(rig.hold, SIGSTOP);
	kill(rig_daemon(&rig), SIGKILL);
	serve_await(&server, 503, 10);
	refused(&server, "/v1/sessions/a", "{\"hint\":\"retain\"}", 503, NULL);
	kill(rig.hold, SIGCONT);
	serve_await(&server, 200, 20);
	ck_assert_uint_eq((u32)now_of("a", "tokens"), WHOLE);
	ck_assert_uint_eq((u32)now_of("a", "held"), 0);
	answers(hint("a", "retain", ""), "refused", "nothing of it is cached");
	ck_assert_uint_eq(cached(1), 0);
	answers(hint("a", "retain", ""), "accepted", "");
	ck_assert_uint_eq((u32)now_of("a", "held"), WHOLE);
	teardown();
}
END_TEST

static void setup_low(void)
{
	setup_with("0", "on");
}

int main(void)
{
	Suite *s = suite_create("sessions");
	TCase *tc = tcase_create("hints"), *low = tcase_create("no-host-pool");
	TCase *own = tcase_create("own-daemon");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 120);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_retain);
	tcase_add_test(tc, test_deadline);
	tcase_add_test(tc, test_move);
	tcase_add_test(tc, test_pin);
	tcase_add_test(tc, test_refused);
	tcase_add_test(tc, test_stream_and_chat);
	tcase_add_test(tc, test_salts);
	suite_add_tcase(s, tc);
	tcase_set_timeout(low, 120);
	tcase_add_checked_fixture(low, setup_low, teardown);
	tcase_add_test(low, test_no_lower_tier);
	suite_add_tcase(s, low);
	tcase_set_timeout(own, 240);
	tcase_add_test(own, test_keys);
	tcase_add_test(own, test_adopted);
	tcase_add_test(own, test_cold);
	suite_add_tcase(s, own);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
