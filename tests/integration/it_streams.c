// SPDX-License-Identifier: Apache-2.0
/*
 * it_streams.c - very many streams at once, idle clients, slow ones, gone ones
 *
 * budget: 60 s, full 900 s
 *
 * Requests are greedy and in exact mode, so that their text is known: each
 * prompt is asked alone first, and every stream must be the beginning of that
 * answer, token for token and letter for letter, however many other streams
 * there are.
 *
 * The memory of a connection and of a stream is the growth of the server's
 * private pages (RssAnon) over their number.  It and the gaps between events
 * are printed; only bench_streams judges them.
 */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "tests/integration/serve.h"
#include "tests/integration/streams.h"

#define NR_TEXTS	16u
#define TOKENS		96u	/* of the longest stream */
#define SPARE_FDS	200u

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED	1
#else
#define SANITIZED	0
#endif

static struct rig rig;
static struct served server;

static struct {
	char	prompt[64];
	u32	ids[TOKENS];
	char	*text;
} texts[NR_TEXTS];

static void server_start(void)
{
	serve_start(&server, &rig, "--mode", "exact", "--dtype", "bf16",
		    "--max-requests", "2048", "--max-seqs", "1024",
		    "--max-batch", "1024", "--head-timeout", "3600",
		    NULL);
	serve_await(&server, 200, 60);
}

static void setup(void)
{
	rig_start(&rig, "--pool-size", by_level(1, 0, 0) ? "64M" : "512M",
		  "--extent-size", "1M", NULL);
	server_start();
}

/* The server's sockets take fewer bytes than they could. */
static void setup_short(void)
{
	char so[PATH_MAX];

	rig_start(&rig, "--pool-size", "64M", "--extent-size", "1M", NULL);
	ck_assert_ptr_nonnull(realpath(build_path("tests/short_send.so"), so));
	setenv("LD_PRELOAD", so, 1);
	server_start();
	unsetenv("LD_PRELOAD");
}

static void teardown(void)
{
	rig_walk(&rig);
	serve_stop(&server);
	rig_stop(&rig);
}

/* ---- the right texts ---- */

static void texts_ask(void)
{
	char body[256];
	json_t *v, *ids;
	u32 i, k;

	for (i = 0; i < NR_TEXTS; i++) {
		snprintf(texts[i].prompt, sizeof(texts[i].prompt),
			 "%c. And it came to pass in those days", 'A' + (int)i);
		snprintf(body, sizeof(body),
			 "{\"prompt\":\"%.63s\",\"max_tokens\":%u,\"temperature\":0,\"ignore_eos\":true,\"return_token_ids\":true}",
			 texts[i].prompt, TOKENS);
		v = complete(&server, body);
		ids = json_object_get(choice(v, 0), "token_ids");
		ck_assert_uint_eq(json_array_size(ids), TOKENS);
		for (k = 0; k < TOKENS; k++)
			texts[i].ids[k] = (u32)json_integer_value(json_array_get(ids, k));
		texts[i].text = strdup(choice_text(v, 0));
		json_decref(v);
	}
}

/* The text of @s must be the beginning of its prompt's answer. */
static void judge_begin(const struct stream *s)
{
	ck_assert_msg(!*s->why, "stream of %s: %s", texts[s->tag].prompt,
		      s->why);
	ck_assert_uint_le(s->nr_ids, s->tokens);
	ck_assert(!memcmp(s->ids, texts[s->tag].ids, s->nr_ids * sizeof(u32)));
	ck_assert_msg(!strncmp(s->text, texts[s->tag].text, strlen(s->text)),
		      "'%s' is not the begin of '%s'", s->text,
		      texts[s->tag].text);
}

static void judge(const struct stream *s)
{
	judge_begin(s);
	ck_assert_uint_eq(s->nr_ids, s->tokens);
	ck_assert_str_eq(s->finish, "length");
	ck_assert(s->over && s->done);
	ck_assert_uint_gt(strlen(s->text), 0);
}

static void begin(struct streams *all, struct stream *s, u32 tokens,
		  u32 sip_ms)
{
	const u32 tag = random_below(NR_TEXTS);

	stream_begin(all, s, server.port, texts[tag].prompt, tokens, sip_ms);
	s->tag = tag;
}

/* ---- memory ---- */

/* KiB of the server that are private and belong to no file. */
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

/* Raise the limit to that many descriptors, or as far as possible. */
static u32 allow_fds(u32 want)
{
	struct rlimit r;

	ck_assert(!getrlimit(RLIMIT_NOFILE, &r));
	if (r.rlim_cur < want) {
		r.rlim_cur = min(r.rlim_max, (rlim_t)want);
		ck_assert(!setrlimit(RLIMIT_NOFILE, &r));
	}
	return (u32)min(r.rlim_cur, (rlim_t)want);
}

/* Open connections without requests. */
static void idle_open(struct web *w, u32 nr)
{
	const u64 end = now_ms() + 30000 * time_scale();
	u32 i;

	for (i = 0; i < nr; i++) {
		web_open(&w[i], server.port);
		ck_assert_msg(w[i].fd >= 0, "idle connection %u: %s", i,
			      strerror(errno));
	}
	while (serve_figure(&server, "kvrt_http_connections") < nr) {
		ck_assert_msg(now_ms() < end, "they are not accepted");
		nap_ms(10);
	}
}

/*
 * Start all streams, and judge each when all have ended.  @rss: gets the memory of the
 * server while all were open.
 */
static void burst(struct streams *all, u32 nr, u64 *rss)
{
	const u64 end = now_ms() + 600000;
	u32 i;

	for (i = 0; i < nr; i++)
		begin(all, &all->s[i], TOKENS - random_below(TOKENS / 8), 0);
	while (all->ended < nr) {
		streams_turn(all, 100);
		if (!*rss && all->now == nr)
			*rss = rss_anon();
		ck_assert_msg(now_ms() < end, "%u of %u streams ended",
			      all->ended, nr);
	}
	for (i = 0; i < nr; i++)
		judge(&all->s[i]);
}

/* ---- tests ---- */

/* All streams start at once, beside idle connections; each must be complete. */
START_TEST(test_very_many)
{
	const u32 nr = by_level(100, 1000, 1000);
	u32 idle = by_level(300, 10000, 10000), got, i, median, p99, tries;
	u64 before, with_idle, with_streams = 0, start;
	struct streams all;
	struct web *w;

	got = allow_fds(idle + nr + SPARE_FDS);
	if (got < idle + nr + SPARE_FDS) {
		idle = got - nr - SPARE_FDS;
		printf("note: only %u idle connections: the hard limit of descriptors is %u\n",
		       idle, got);
	}
	w = calloc(idle, sizeof(*w));
	ck_assert_ptr_nonnull(w);
	streams_init(&all, nr);
	texts_ask();
	before = rss_anon();
	idle_open(w, idle);
	with_idle = rss_anon();
	/* On a busy machine the first may have ended before the last begins. */
	for (tries = 0; ; tries++) {
		start = now_ms();
		burst(&all, nr, &with_streams);
		if (all.at_once == nr || tries == 5)
			break;
		streams_free(&all);
		streams_init(&all, nr);
	}
	ck_assert_msg(all.at_once == nr, "%u of %u streams at once",
		      all.at_once, nr);
	streams_gaps(&all, &median, &p99);
	printf("total: %u streams at once beside %u idle connections in %llu ms, all complete and right; %.1f KiB an idle connection, %.1f KiB a stream; gaps of %u us, 99%% within %u us, %.1f times\n",
	       nr, idle, (unsigned long long)(now_ms() - start),
	       (double)(with_idle - before) / idle,
	       ((double)with_streams - (double)with_idle) / nr, median, p99,
	       (double)p99 / median);
	/* Idle connections are still served. */
	for (i = 0; i < idle; i += idle / 10) {
		ck_assert(web_get(&w[i], "/health"));
		ck_assert_int_eq(web_status(&w[i]), 200);
	}
	for (i = 0; i < idle; i++)
		web_close(&w[i]);
	streams_free(&all);
	free(w);
	serve_await_idle(&server, 5000);
}
END_TEST

/* Start another client, of a random kind, in the place of one that ended. */
static void renew(struct streams *all, struct stream *s)
{
	const u32 kind = random_below(4);

	begin(all, s, 1 + random_below(TOKENS),
	      kind == 1 ? 1 + random_below(50) : 0);
	if (kind == 2)
		s->gone_at = now_ms() + random_below(300);
	else if (kind == 3)
		s->gone_at = now_ms() + random_below(5);
}

/*
 * Some clients read on, some read slowly, some leave.  The remaining ones get
 * their complete answer, and afterwards every block is free or cached.  On a
 * busy machine it goes on until each kind was seen.
 */
START_TEST(test_slow_and_gone)
{
	const u32 nr = by_level(60, 200, 300);
	const u64 until = now_ms() + by_level(2 * time_scale(), 60, 600) * 1000;
	const u64 end = until + 40000 * time_scale();
	u32 i, whole = 0, slow = 0, gone = 0, late = 0, fds;
	struct streams all;

	allow_fds(nr + SPARE_FDS);
	streams_init(&all, nr);
	texts_ask();
	fds = serve_fds(&server);
	while (now_ms() < until ||
	       (!(whole && slow && gone && late) && now_ms() < end)) {
		for (i = 0; i < nr; i++) {
			struct stream *s = &all.s[i];

			if (s->fd >= 0)
				continue;
			if (s->over) {
				judge(s);
				whole++;
				slow += s->sip_ms > 0;
			} else if (s->gone_at) {
				judge_begin(s);
				gone++;
				late += s->began;
			} else {
				ck_assert_msg(!s->tokens, "stream %u: %s", i,
					      s->why);
			}
			renew(&all, s);
		}
		streams_turn(&all, 5);
	}
	streams_free(&all);
	serve_await_idle(&server, 10000);
	serve_expect_fds(&server, fds);
	ck_assert(whole && slow && gone && late);
	printf("total: %u streams whole, %u of them slow; %u left, %u of them in the middle; nothing of them is held\n",
	       whole, slow, gone, late);
}
END_TEST

/* The socket takes a part of an event: the rest must follow. */
START_TEST(test_short_writes)
{
	const u32 nr = by_level(40, 200, 200);
	const u64 end = now_ms() + 300000;
	struct streams all;
	u32 i;

	streams_init(&all, nr);
	texts_ask();
	for (i = 0; i < nr; i++)
		begin(&all, &all.s[i], TOKENS, i % 4 ? 0 : 10);
	while (all.ended < nr) {
		streams_turn(&all, 10);
		ck_assert_msg(now_ms() < end, "%u of %u streams ended",
			      all.ended, nr);
	}
	for (i = 0; i < nr; i++)
		judge(&all.s[i]);
	streams_free(&all);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("streams");
	TCase *tc = tcase_create("streams"), *cut = tcase_create("short");
	SRunner *r;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 900);
	tcase_add_test(tc, test_very_many);
	tcase_add_test(tc, test_slow_and_gone);
	suite_add_tcase(s, tc);
	tcase_add_checked_fixture(cut, setup_short, teardown);
	tcase_set_timeout(cut, 400);
	if (SANITIZED)
		puts("note: sockets that take a part: not tried, a sanitizer wants to be loaded first");
	else
		tcase_add_test(cut, test_short_writes);
	suite_add_tcase(s, cut);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
