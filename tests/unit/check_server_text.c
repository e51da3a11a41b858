// SPDX-License-Identifier: Apache-2.0
/*
 * check_server_text.c - the server's small parts: text, stop strings, mail
 *
 * Stop strings are compared with a plain search over the whole text, for
 * random texts over few letters cut at random places, where false begins are
 * everywhere.  Mailboxes are driven by several threads.
 */
#include <check.h>
#include <jansson.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>

#include "runtime/server/mailbox.h"
#include "runtime/server/stop.h"

static u32 state = 1;

static u32 random_below(u32 n)
{
	state = state * 1664525u + 1013904223u;
	return (state >> 8) % n;
}

/* ---- text ---- */

START_TEST(test_text_grows)
{
	struct text t = { 0 };
	u32 i;

	for (i = 0; i < 1000; i++)
		text_printf(&t, "%u,", i % 10);
	ck_assert_uint_eq(t.len, 2000);
	ck_assert_mem_eq(t.p + 1998, "9,", 2);
	text_cut(&t, 1998);
	ck_assert_uint_eq(t.len, 2);
	ck_assert_mem_eq(t.p, "9,", 2);
	text_cut(&t, 5);
	ck_assert_uint_eq(t.len, 0);
	ck_assert(!t.failed);
	text_free(&t);
}
END_TEST

/* jansson reads back the same text, with U+FFFD for bytes that are no UTF-8. */
static void json_is(const char *in, size_t n, const char *want)
{
	struct text t = { 0 };
	size_t i;
	json_t *v;

	text_json(&t, in, n);
	for (i = 0; i < t.len; i++)
		ck_assert_uint_ge((u8)t.p[i], 0x20);
	v = json_loadb(t.p, t.len, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
	ck_assert_msg(v != NULL, "not JSON: %.*s", (int)t.len, t.p);
	ck_assert_uint_eq(json_string_length(v), strlen(want));
	ck_assert_str_eq(json_string_value(v), want);
	json_decref(v);
	text_free(&t);
}

#define FFFD "\xef\xbf\xbd"

START_TEST(test_json_strings)
{
	static const struct {
		const char	*in;
		const char	*want;
	} t[] = {
		{ "", "" },
		{ "plain", "plain" },
		{ "\"\\/\b\f\n\r\t\x01\x1f\x7f", "\"\\/\b\f\n\r\t\x01\x1f\x7f" },
		{ "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80", "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80" },
		{ "a\x80z", "a" FFFD "z" },
		{ "\xc3", FFFD },
		{ "\xe2\x82", FFFD FFFD },
		{ "\xc0\xaf", FFFD FFFD },
		{ "\xed\xa0\x80", FFFD FFFD FFFD },
		{ "\xf4\x90\x80\x80", FFFD FFFD FFFD FFFD },
		{ "\xf5\xff", FFFD FFFD },
	};
	u32 i;

	for (i = 0; i < ARRAY_SIZE(t); i++)
		json_is(t[i].in, strlen(t[i].in), t[i].want);
}
END_TEST

START_TEST(test_json_any_bytes)
{
	u32 round, i;

	for (round = 0; round < 20000; round++) {
		size_t n = random_below(12);
		struct text t = { 0 };
		char *in = malloc(n + 1);
		json_t *v;

		ck_assert_ptr_nonnull(in);
		for (i = 0; i < n; i++)
			in[i] = (char)random_below(256);
		text_json(&t, in, n);
		v = json_loadb(t.p, t.len, JSON_DECODE_ANY | JSON_ALLOW_NUL,
			       NULL);
		ck_assert_ptr_nonnull(v);
		ck_assert_ptr_null(memchr(t.p, '\n', t.len));
		json_decref(v);
		text_free(&t);
		free(in);
	}
}
END_TEST

START_TEST(test_json_null)
{
	struct text t = { 0 };

	text_jsons(&t, NULL);
	ck_assert_uint_eq(t.len, 4);
	ck_assert_mem_eq(t.p, "null", 4);
	text_free(&t);
}
END_TEST

/* ---- stop strings ---- */

static void stops_from(struct stops *s, const char * const *list, bool keep)
{
	memset(s, 0, sizeof(*s));
	s->keep = keep;
	for (; *list; list++)
		ck_assert_int_eq(stops_add(s, *list, strlen(*list)), 0);
}

/*
 * Feed @text in pieces of at most @step bytes; the text goes to @out.  Return:
 * index of the string that stopped it, or -1.
 */
static int stop_run(const struct stops *s, const char *text, u32 step,
		    struct text *out)
{
	struct stopper st = { .stops = s };
	size_t n = strlen(text), at = 0;
	int found = -1;

	while (at < n && found < 0) {
		size_t piece = min(n - at, (size_t)(1 + random_below(step)));

		found = stopper_push(&st, text + at, piece, out);
		at += piece;
	}
	if (found < 0)
		stopper_end(&st, out);
	stopper_free(&st);
	text_add(out, "", 1);
	return found;
}

static void stop_is(const char * const *list, bool keep, const char *text,
		    int found, const char *want)
{
	struct text out = { 0 };
	struct stops s;
	u32 step;

	stops_from(&s, list, keep);
	for (step = 1; step < 8; step++) {
		text_clear(&out);
		ck_assert_int_eq(stop_run(&s, text, step, &out), found);
		ck_assert_str_eq(out.p, want);
	}
	text_free(&out);
	stops_free(&s);
}

START_TEST(test_stop_strings)
{
	stop_is((const char *[]){ "the", NULL }, false, "on the way", 0, "on ");
	stop_is((const char *[]){ "the", NULL }, true, "on the way", 0, "on the");
	stop_is((const char *[]){ "xyz", NULL }, false, "on the way", -1,
		"on the way");
	stop_is((const char *[]){ "way!", NULL }, false, "on the way", -1,
		"on the way");
	/* The first complete string wins, of equals the longest. */
	stop_is((const char *[]){ "abcd", "c", NULL }, false, "xabcd", 1, "xab");
	stop_is((const char *[]){ "c", "abc", NULL }, false, "xabcd", 1, "x");
	stop_is((const char *[]){ "aab", NULL }, false, "aaaab", 0, "aa");
	stop_is((const char *[]){ "\xe2\x82\xac", NULL }, false,
		"1\xe2\x82\xac", 0, "1");
}
END_TEST

/* Plain search: the text before the stop string, and the index of that string. */
static int plain_search(const struct stops *s, const char *text, char *want)
{
	size_t n = strlen(text), end;
	int best = -1;
	u32 i;

	strcpy(want, text);
	for (end = 1; end <= n && best < 0; end++)
		for (i = 0; i < s->nr; i++)
			if (s->len[i] <= end &&
			    !memcmp(text + end - s->len[i], s->s[i], s->len[i]) &&
			    (best < 0 || s->len[i] > s->len[best]))
				best = (int)i;
	if (best >= 0)
		want[end - 1 - s->len[best]] = '\0';
	return best;
}

START_TEST(test_stop_strings_at_random)
{
	u32 round, i, k, hits = 0;

	for (round = 0; round < 20000; round++) {
		char text[64], want[64], stop[8];
		u32 n = random_below(40), nr = 1 + random_below(STOP_MAX);
		struct text out = { 0 };
		struct stops s = { 0 };
		int found;

		for (i = 0; i < n; i++)
			text[i] = (char)('a' + random_below(2));
		text[n] = '\0';
		for (i = 0; i < nr; i++) {
			u32 len = 1 + random_below(6);

			for (k = 0; k < len; k++)
				stop[k] = (char)('a' + random_below(2 + i % 2));
			ck_assert_int_eq(stops_add(&s, stop, len), 0);
		}
		found = plain_search(&s, text, want);
		ck_assert_int_eq(stop_run(&s, text, 5, &out), found);
		ck_assert_str_eq(out.p, want);
		hits += found >= 0;
		text_free(&out);
		stops_free(&s);
	}
	ck_assert_uint_gt(hits, 1000);
	ck_assert_uint_lt(hits, 19900);
}
END_TEST

/* Only text that can be part of a stop string is held back. */
START_TEST(test_stop_holds_little)
{
	const char *list[] = { "END", NULL };
	struct text out = { 0 };
	struct stopper st = { 0 };
	struct stops s;

	stops_from(&s, list, false);
	st.stops = &s;
	ck_assert_int_eq(stopper_push(&st, "abc", 3, &out), -1);
	ck_assert_uint_eq(out.len, 3);
	ck_assert_int_eq(stopper_push(&st, "E", 1, &out), -1);
	ck_assert_uint_eq(out.len, 3);
	ck_assert_int_eq(stopper_push(&st, "x", 1, &out), -1);
	ck_assert_uint_eq(out.len, 5);
	text_free(&out);
	stopper_free(&st);
	stops_free(&s);
}
END_TEST

START_TEST(test_stop_limits)
{
	char *big = malloc(STOP_LEN_MAX + 1);
	struct stops s = { 0 };
	u32 i;

	ck_assert_ptr_nonnull(big);
	memset(big, 'x', STOP_LEN_MAX + 1);
	ck_assert_int_eq(stops_add(&s, "", 0), -EINVAL);
	ck_assert_int_eq(stops_add(&s, big, STOP_LEN_MAX + 1), -E2BIG);
	for (i = 0; i < STOP_MAX; i++)
		ck_assert_int_eq(stops_add(&s, big, STOP_LEN_MAX), 0);
	ck_assert_int_eq(stops_add(&s, "y", 1), -E2BIG);
	stops_free(&s);
	free(big);
}
END_TEST

/* ---- mail ---- */

#define POSTERS	3u
#define ROUNDS	50000u

static struct mailbox box;

/* A counter, with the mail that announces its changes. */
struct thing {
	struct mail	mail;
	u64		said;
	u64		seen;
	u32		looks;
};

static struct thing things[POSTERS];
static u64 order, last_order[POSTERS];

static void on_thing(struct mail *m)
{
	struct thing *t = container_of(m, struct thing, mail);
	u64 said = load_acquire(&t->said);

	ck_assert_uint_ge(said, t->seen);
	sched_yield();		/* later changes come by another mail */
	t->seen = said;
	t->looks++;
	last_order[t - things] = ++order;
}

static void *poster(void *arg)
{
	struct thing *t = arg;
	u32 i;

	for (i = 0; i < ROUNDS; i++) {
		store_release(&t->said, t->said + 1);
		mailbox_post(&box, &t->mail);
	}
	return NULL;
}

/* One wake for many posts, as at the end of a step. */
static void *quiet_poster(void *arg)
{
	struct thing *t = arg;
	bool due = false;
	u32 i;

	for (i = 0; i < ROUNDS; i++) {
		store_release(&t->said, t->said + 1);
		due |= mailbox_post_quietly(&box, &t->mail);
		if (due && (i % 16 == 15 || i == ROUNDS - 1)) {
			mailbox_wake(&box);
			due = false;
		}
	}
	return NULL;
}

static bool all_seen(void)
{
	u32 i;

	for (i = 0; i < POSTERS; i++)
		if (things[i].seen != ROUNDS)
			return false;
	return true;
}

/* No change is lost, and no mail comes without a change. */
START_TEST(test_mail_from_threads)
{
	struct pollfd p = { .events = POLLIN };
	pthread_t thread[POSTERS];
	u32 i;

	ck_assert_int_eq(mailbox_init(&box), 0);
	p.fd = box.efd;
	for (i = 0; i < POSTERS; i++) {
		things[i].mail.fn = on_thing;
		ck_assert_int_eq(pthread_create(&thread[i], NULL, i ? poster :
						quiet_poster, &things[i]), 0);
	}
	while (!all_seen()) {
		/* A lost wake would time out here. */
		ck_assert_int_eq(poll(&p, 1, 10000), 1);
		mailbox_hush(&box);
		mailbox_deliver(&box);
	}
	for (i = 0; i < POSTERS; i++) {
		pthread_join(thread[i], NULL);
		ck_assert_uint_le(things[i].looks, ROUNDS);
	}
	ck_assert_uint_eq(mailbox_deliver(&box), 0);
	mailbox_destroy(&box);
}
END_TEST

START_TEST(test_mail_keeps_order)
{
	u32 i;

	ck_assert_int_eq(mailbox_init(&box), 0);
	for (i = 0; i < POSTERS; i++)
		things[i].mail.fn = on_thing;
	mailbox_post(&box, &things[2].mail);
	mailbox_post(&box, &things[0].mail);
	/* Only a post that finds the mailbox empty asks for a wake. */
	ck_assert(!mailbox_post_quietly(&box, &things[1].mail));
	mailbox_post(&box, &things[2].mail);
	ck_assert_uint_eq(mailbox_deliver(&box), 3);
	ck_assert_uint_eq(last_order[2], 1);
	ck_assert_uint_eq(last_order[0], 2);
	ck_assert_uint_eq(last_order[1], 3);
	ck_assert(mailbox_post_quietly(&box, &things[1].mail));
	ck_assert(!mailbox_post_quietly(&box, &things[1].mail));
	mailbox_destroy(&box);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("server-text");
	TCase *tc = tcase_create("parts");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 30);
	tcase_add_test(tc, test_text_grows);
	tcase_add_test(tc, test_json_strings);
	tcase_add_test(tc, test_json_any_bytes);
	tcase_add_test(tc, test_json_null);
	tcase_add_test(tc, test_stop_strings);
	tcase_add_test(tc, test_stop_strings_at_random);
	tcase_add_test(tc, test_stop_holds_little);
	tcase_add_test(tc, test_stop_limits);
	tcase_add_test(tc, test_mail_from_threads);
	tcase_add_test(tc, test_mail_keeps_order);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
