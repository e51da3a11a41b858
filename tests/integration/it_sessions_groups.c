// SPDX-License-Identifier: Apache-2.0
/*
 * it_sessions_groups.c - sessions of a model with two layer groups
 *
 * budget: 40 s
 *
 * Two of the three layers of this Gemma 2 have a window of 16 tokens.  A session holds
 * all blocks of the third one, and one window of the others, while other prompts need
 * several times the memory there is.  The text is that of a server with one group.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/integration/serve.h"

#define PROMPT	200u
#define NR_FLOOD 24u
#define FLOOD	400u

static struct rig rig;
static struct served server;
static char dir[RIG_PATH * 2];

static void link_file(const char *file)
{
	char from[RIG_PATH + 64], to[RIG_PATH * 3], *whole;

	snprintf(from, sizeof(from), "%s/%s", demo_model(), file);
	snprintf(to, sizeof(to), "%s/%s", dir, file);
	whole = realpath(from, NULL);
	ck_assert_msg(whole != NULL, "%s", from);
	ck_assert_int_eq(symlink(whole, to), 0);
	free(whole);
}

/* The family's small model, with the vocabulary and the context that prompts need. */
static void model_write(void)
{
	const char *top = getenv("KVMM_TOP");
	char path[RIG_PATH * 3];
	json_t *o;

	snprintf(dir, sizeof(dir), "%s/gemma2", rig.dir);
	snprintf(path, sizeof(path), "%s/tests/data/families/gemma2/config.json",
		 top ? top : ".");
	o = json_load_file(path, 0, NULL);
	ck_assert_msg(o != NULL, "%s", path);
	json_object_set_new(o, "vocab_size", json_integer(4096));
	json_object_set_new(o, "max_position_embeddings", json_integer(1024));
	ck_assert_msg(!mkdir(dir, 0700), "%s: %s", dir, strerror(errno));
	snprintf(path, sizeof(path), "%s/config.json", dir);
	ck_assert_int_eq(json_dump_file(o, path, 0), 0);
	json_decref(o);
	link_file("tokenizer.json");
	link_file("tokenizer_config.json");
}

static void serve_with(const char *groups)
{
	serve_model = dir;
	serve_start(&server, &rig, "--max-model-len", "512", "--load-format", "dummy",
		    "--mode", "exact", "--domain", groups, "--kv-groups", groups, NULL);
	serve_await(&server, 200, 30);
}

static void setup(void)
{
	rig_start(&rig, "--pool-size", "4M", "--extent-size", "256K", "--host-size",
		  "4M", "--min-token-bytes", "512", NULL);
	model_write();
}

static void teardown(void)
{
	serve_stop(&server);
	rig_stop(&rig);
}

/* Compute a prompt greedily; @more: more members.  @text, @cached: of the answer. */
static json_t *compute(u32 first, u32 nr, const char *more, char *text, u32 *cached)
{
	char body[8192];
	size_t n = (size_t)sprintf(body, "{\"prompt\":[%u", first);
	json_t *v;
	u32 i;

	for (i = 1; i < nr; i++)
		n += (size_t)sprintf(body + n, ",%u", (first + i * 7) % 4096);
	sprintf(body + n, "],\"max_tokens\":24,\"ignore_eos\":true,\"temperature\":0%s}", more);
	v = complete(&server, body);
	if (text)
		snprintf(text, 1024, "%s", choice_text(v, 0));
	if (cached)
		*cached = (u32)usage(v, "cached_tokens");
	return v;
}

static void flood(void)
{
	u32 i;

	for (i = 0; i < NR_FLOOD; i++)
		json_decref(compute(1000 + i * 100, FLOOD, "", NULL, NULL));
}

/* A hint for session a.  Return: the number of its answer. */
static u32 hint(const char *name, const char *member)
{
	char head[256], body[64], *text;
	struct web w;
	json_t *v;
	u32 n;

	snprintf(body, sizeof(body), "{\"hint\":\"%s\"}", name);
	snprintf(head, sizeof(head), "POST /v1/sessions/a HTTP/1.1\r\nHost: a\r\nContent-Length: %zu\r\n\r\n",
		 strlen(body));
	web_open(&w, server.port);
	ck_assert(web_puts(&w, head) && web_puts(&w, body));
	ck_assert_int_eq(web_status(&w), 200);
	text = web_body(&w);
	v = json_loads(text, 0, NULL);
	ck_assert_ptr_nonnull(v);
	ck_assert_msg(!strcmp(json_string_value(json_object_get(v, "answer")), "accepted"),
		      "%s", text);
	n = (u32)json_number_value(json_object_get(v, member));
	json_decref(v);
	free(text);
	web_close(&w);
	return n;
}

static u32 pinned(void)
{
	char *text = NULL;
	json_t *v;
	u32 n;

	ck_assert_int_eq(web_ask(server.port, "/v1/sessions/a", NULL, &text), 200);
	v = json_loads(text, 0, NULL);
	ck_assert_ptr_nonnull(v);
	n = (u32)json_number_value(json_object_get(v, "pinned"));
	json_decref(v);
	free(text);
	return n;
}

/* Blocks of a lease survive the flood on a lower tier, move, and give the same text. */
START_TEST(test_session)
{
	static const char session[] = ",\"session\":{\"name\":\"a\",\"retain\":60}";
	const u64 until = now_ms() + 20000 * time_scale();
	char first[1024], text[1024];
	u32 held, cached, moved = 0;
	json_t *v, *s;

	serve_with("one");
	json_decref(compute(1, PROMPT, "", first, NULL));
	serve_stop(&server);
	serve_with("auto");
	v = compute(1, PROMPT, session, text, NULL);
	ck_assert_str_eq(text, first);
	s = json_object_get(v, "session");
	held = (u32)json_number_value(json_object_get(s, "held"));
	ck_assert_uint_gt(held, PROMPT / 2);
	ck_assert_uint_eq(held, (u32)json_number_value(json_object_get(s, "tokens")));
	json_decref(v);
	flood();
	json_decref(compute(1, PROMPT, "", text, &cached));
	ck_assert_str_eq(text, first);
	ck_assert_uint_gt(cached, PROMPT / 2);
	while (moved < held) {
		ck_assert_msg(now_ms() < until, "%u of %u tokens moved", moved, held);
		moved += hint("demote", "moved");
		nap_ms(10);
	}
	ck_assert_uint_eq(hint("prefetch", "moved"), held);
	rig_await(&rig, "vmstat", "lease_promote", 1, 10);
	(void)hint("pin", "held");
	while (pinned() != held) {
		ck_assert(now_ms() < until);
		nap_ms(10);
	}
	ck_assert_int_ge(rig_value(&rig, "vmstat", "lease_open"), 1);
	flood();
	ck_assert_uint_eq(pinned(), held);
	json_decref(compute(1, PROMPT, "", text, &cached));
	ck_assert_str_eq(text, first);
	ck_assert_uint_gt(cached, PROMPT / 2);
	(void)hint("unpin", "held");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("sessions-groups");
	TCase *tc = tcase_create("session");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 120);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_session);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
