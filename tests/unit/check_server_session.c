// SPDX-License-Identifier: Apache-2.0
/*
 * check_server_session.c - named prompts: the ids, their owners, the bounds
 *
 * A real engine does the hints, with a daemon and a model in this program.
 */
#include <stdio.h>
#include <unistd.h>

#include "runtime/server/session.h"
#include "tests/unit/engine_fixture.h"

#define NR	20u		/* tokens of a prompt, whole blocks */

/* A job, and how often it was done. */
struct did {
	struct session_job	job;
	u32			dones;
	u32			at;	/* how many were done before */
};

static struct sessions t;
static struct did did[8];
static u32 nr_done;

static void on_job(struct session_job *job)
{
	struct did *d = container_of(job, struct did, job);

	d->dones++;
	d->at = nr_done++;
}

static void setup_sessions(void)
{
	const struct engine_opts o = { .max_leases = 6, .max_seqs = FK_SEQS - 6 };

	setup();
	memset(did, 0, sizeof(did));
	nr_done = 0;
	start(&o);
	sessions_init(&t);
	sessions_attach(&t, engine);
	submit(ask(0, 3, NR, 4, 1));
	run();
	check_ask(&asks[0]);
}

static void teardown_sessions(void)
{
	teardown();
	sessions_attach(&t, NULL);
	sessions_free(&t);
}

/* Give a job to the sessions, as number @i; with @nr: the ids of request 0. */
static struct session_told *give(u32 i, const char *name, enum session_op op,
				 enum engine_hint hint, u32 ms, u32 nr)
{
	struct session_job *job = &did[i].job;
	const u32 key = job->key;
	const u64 salt = job->salt, adapter = job->adapter;

	did[i].dones = 0;
	*job = (struct session_job){ .op = op, .hint = hint, .ms = ms, .nr = nr,
				     .key = key, .salt = salt, .adapter = adapter,
				     .done = on_job };
	snprintf(job->name, sizeof(job->name), "%s", name);
	if (op == SESSION_NOTE) {
		job->ids = calloc(max(nr, 1u), sizeof(u32));
		memcpy(job->ids, asks[0].ids, min(nr, NR) * sizeof(u32));
	}
	session_do(&t, job);
	return &job->told;
}

static struct session_told *told(u32 i, const char *name, enum session_op op,
				 enum engine_hint hint, u32 ms, u32 nr)
{
	struct session_told *r = give(i, name, op, hint, ms, nr);

	run();
	ck_assert_uint_eq(did[i].dones, 1);
	return r;
}

#define NOTE(i, name, ms)	told(i, name, SESSION_NOTE, 0, ms, NR)
#define LOOK(i, name)		told(i, name, SESSION_LOOK, 0, 0, 0)
#define HINT(i, name, h, ms)	told(i, name, SESSION_HINT, ENGINE_##h, ms, 0)
#define END(i, name)		told(i, name, SESSION_END, 0, 0, 0)

static void answers(const struct session_told *r, const char *answer, const char *why)
{
	ck_assert(!r->unknown);
	ck_assert_str_eq(r->answer, answer);
	ck_assert_str_eq(r->why, why);
}

/* ---- the ids ---- */

START_TEST(test_note)
{
	struct session_told *r = NOTE(0, "a", 0);

	answers(r, "accepted", "");
	ck_assert_uint_eq(r->tokens, NR);
	ck_assert(!r->held && !r->left_ms);
	ck_assert_uint_eq(fk.nr_lookups, 0);
	r = NOTE(0, "a", 5000);
	answers(r, "accepted", "");
	ck_assert_uint_eq(r->held, NR);
	ck_assert(r->left_ms > 4000 && r->left_ms <= 5000);
	ck_assert_uint_eq(t.nr, 1);
	ck_assert_uint_eq(t.nr_ids, NR);
	/* The same ids again: the lease is renewed; others: there is a new one. */
	NOTE(0, "a", 5000);
	ck_assert_uint_eq(fk.nr_leases, 1);
	r = told(0, "a", SESSION_NOTE, 0, 5000, NR - FK_BT);
	ck_assert_uint_eq(r->held, NR - FK_BT);
	ck_assert_uint_eq(fk.nr_leases, 2);
	ck_assert_uint_eq(t.nr_ids, NR - FK_BT);
	/* A longer text goes on behind the lease; of another one it holds a part. */
	r = told(0, "a", SESSION_NOTE, 0, 0, NR);
	ck_assert_uint_eq(r->held, NR - FK_BT);
	asks[0].ids[FK_BT] ^= 1;
	r = told(0, "a", SESSION_NOTE, 0, 0, NR);
	ck_assert_uint_eq(r->held, FK_BT);
	asks[0].ids[FK_BT] ^= 1;
	ck_assert_uint_eq(told(0, "a", SESSION_NOTE, 0, 0, NR)->held, FK_BT);
	ck_assert_uint_eq(fk.nr_leases, 2);
	ck_assert_uint_eq(told(0, "a", SESSION_NOTE, 0, 5000, NR)->held, NR);
}
END_TEST

START_TEST(test_unknown)
{
	NOTE(0, "a", 0);
	ck_assert(LOOK(1, "b")->unknown);
	ck_assert(HINT(1, "b", PIN, 100)->unknown);
	ck_assert(!LOOK(1, "a")->unknown);
	did[1].job.salt = 7;
	ck_assert(LOOK(1, "a")->unknown);
	did[1].job.salt = 0;
	/* An adapter's session of the same name is another one. */
	did[1].job.adapter = 1;
	ck_assert(LOOK(1, "a")->unknown);
	NOTE(1, "a", 0);
	ck_assert_uint_eq(t.nr, 2);
	END(1, "a");
	ck_assert(!LOOK(0, "a")->unknown);
	did[1].job.adapter = 0;
	did[1].job.key = 2;
	ck_assert(LOOK(1, "a")->unknown);
	ck_assert(END(1, "a")->unknown);
	NOTE(1, "a", 0);
	ck_assert_uint_eq(t.nr, 2);
	END(1, "a");
	ck_assert(!LOOK(0, "a")->unknown);
}
END_TEST

START_TEST(test_list)
{
	struct session_job of = { .key = 0 };
	struct text out = { 0 };

	NOTE(0, "a", 0);
	NOTE(0, "b", 0);
	did[1].job.salt = 7;
	NOTE(1, "c", 0);
	did[2].job.adapter = 3;
	NOTE(2, "d", 0);
	sessions_list(&t, &of, &out);
	text_add(&out, "", 1);
	ck_assert_ptr_nonnull(strstr(out.p, "\"data\":[{\"name\":\"a\",\"tokens\":20,"));
	ck_assert_ptr_nonnull(strstr(out.p, "{\"name\":\"b\""));
	ck_assert_ptr_null(strstr(out.p, "\"c\""));
	ck_assert_ptr_null(strstr(out.p, "\"d\""));
	text_clear(&out);
	of.adapter = 3;
	sessions_list(&t, &of, &out);
	text_add(&out, "", 1);
	ck_assert_ptr_nonnull(strstr(out.p, "\"data\":[{\"name\":\"d\""));
	ck_assert_ptr_null(strstr(out.p, "\"a\""));
	text_clear(&out);
	of.adapter = 0;
	of.key = 1;
	sessions_list(&t, &of, &out);
	text_add(&out, "", 1);
	ck_assert_str_eq(out.p, "{\"object\":\"list\",\"data\":[]}\n");
	text_free(&out);
}
END_TEST

/* ---- answers ---- */

START_TEST(test_answers)
{
	struct session_told *r;

	NOTE(0, "a", 0);
	r = HINT(0, "a", DEMOTE, 5000);
	answers(r, "accepted", "");
	ck_assert_uint_eq(r->moved, NR);
	r = HINT(0, "a", PREFETCH, 5000);
	ck_assert_uint_eq(r->moved, NR);
	answers(HINT(0, "a", RETAIN, 700000), "clipped", "the daemon's longest lease is 600 s");
	answers(HINT(0, "a", UNPIN, 0), "accepted", "");
	asks[0].ids[NR - 1] ^= 1;
	answers(NOTE(0, "b", 5000), "clipped", "16 of 20 tokens are cached");
	asks[0].ids[0] ^= 1;
	answers(NOTE(0, "b", 5000), "refused", "nothing of it is cached");
	answers(told(0, "b", SESSION_NOTE, 0, 100, 0), "refused", "nothing of it is cached");
	asks[0].ids[0] ^= 1;
	asks[0].ids[NR - 1] ^= 1;
	fk.no_tier = true;
	r = NOTE(0, "b", 5000);
	answers(r, "clipped", "the host pool and the swap areas have no room");
	ck_assert_uint_eq(r->kept, NR);
	answers(HINT(0, "b", PIN, 100), "refused", "the host pool and the swap areas have no room");
	ck_assert_uint_eq(LOOK(0, "b")->kept, NR);
}
END_TEST

/* Jobs of one session are done in their order, and none waits for another session. */
START_TEST(test_order)
{
	u32 i;

	NOTE(0, "a", 0);
	nr_done = 0;
	give(0, "a", SESSION_HINT, ENGINE_PIN, 5000, 0);
	give(1, "a", SESSION_NOTE, 0, 5000, NR - FK_BT);
	give(2, "a", SESSION_HINT, ENGINE_DEMOTE, 5000, 0);
	give(3, "a", SESSION_LOOK, 0, 0, 0);
	give(4, "a", SESSION_END, 0, 0, 0);
	ck_assert_uint_eq(nr_done, 0);
	give(5, "b", SESSION_NOTE, 0, 0, NR);
	ck_assert_uint_eq(nr_done, 1);
	run();
	for (i = 0; i < 5; i++)
		ck_assert_uint_eq(did[i].at, i + 1);
	ck_assert_uint_eq(did[3].job.told.tokens, NR - FK_BT);
	ck_assert_uint_eq(fk_count_leases(), 0);
	ck_assert(LOOK(0, "a")->unknown);
}
END_TEST

/* ---- pins ---- */

START_TEST(test_pin_ends)
{
	struct session_told *r;
	u32 i;

	NOTE(0, "a", 5000);
	HINT(0, "a", PIN, 200);
	while (!(r = LOOK(0, "a"))->pinned)
		fk_restore_all();
	ck_assert_uint_eq(r->pinned, NR);
	ck_assert(r->pin_ms > 0 && r->pin_ms <= 200);
	sessions_tick(&t);
	run();
	ck_assert_uint_eq(LOOK(0, "a")->pinned, NR);
	usleep(250000);
	sessions_tick(&t);
	run();
	r = LOOK(0, "a");
	ck_assert(!r->pinned && !r->pin_ms && r->held == NR);
	for (i = 0; i < FK_SEQS; i++)
		ck_assert(fk.s[i].state == KVMM_SEQ_CLOSED || fk.s[i].lease);
}
END_TEST

/* A pin whose content is lost for good is ended before its time. */
START_TEST(test_pin_lost)
{
	u32 i;

	NOTE(0, "a", 5000);
	HINT(0, "a", PIN, 60000);
	fk_salvage();
	run();
	sessions_tick(&t);
	run();
	for (i = 0; i < FK_SEQS; i++)
		ck_assert_uint_eq(fk.s[i].state, KVMM_SEQ_CLOSED);
	ck_assert(!LOOK(0, "a")->pin_ms);
}
END_TEST

/* ---- bounds ---- */

static void note_as(u32 number, u32 ms, u32 nr)
{
	char name[16];

	snprintf(name, sizeof(name), "s%u", number);
	told(0, name, SESSION_NOTE, 0, ms, nr);
}

START_TEST(test_most_sessions)
{
	u32 i;

	NOTE(0, "old", 5000);
	NOTE(0, "used", 5000);
	for (i = 0; i < SESSIONS_MAX - 2; i++)
		note_as(i, 0, FK_BT);
	LOOK(0, "used");
	ck_assert_uint_eq(fk_count_leases(), 2);
	note_as(i, 0, FK_BT);
	ck_assert_uint_eq(t.nr, SESSIONS_MAX);
	ck_assert(LOOK(0, "old")->unknown);
	ck_assert(!LOOK(0, "used")->unknown);
	/* Its lease has ended, and its memory is free. */
	ck_assert_uint_eq(fk_count_leases(), 1);
	ck_assert(list_empty(&t.dead));
	note_as(i + 1, 0, FK_BT);
	ck_assert(LOOK(0, "s0")->unknown);
	ck_assert(!LOOK(0, "s1")->unknown);
}
END_TEST

START_TEST(test_most_ids)
{
	const u32 each = SESSIONS_IDS_MAX / 4;
	u32 i;

	for (i = 0; i < 4; i++)
		note_as(i, 0, each);
	ck_assert_uint_eq(t.nr, 4);
	note_as(4, 0, FK_BT);
	ck_assert_uint_eq(t.nr, 4);
	ck_assert(LOOK(0, "s0")->unknown);
	ck_assert(!LOOK(0, "s1")->unknown);
	ck_assert_uint_eq(t.nr_ids, 3 * each + FK_BT);
	/* The next ids of a session take the place of its own. */
	note_as(1, 0, each);
	ck_assert_uint_eq(t.nr, 4);
	note_as(1, 0, FK_BT);
	ck_assert_uint_eq(t.nr_ids, 2 * each + 2 * FK_BT);
	note_as(1, 0, 2 * each + FK_BT);
	ck_assert_uint_eq(t.nr, 3);
	ck_assert(LOOK(0, "s2")->unknown);
}
END_TEST

/* ---- ends ---- */

/* The daemon dies: jobs are refused, sessions stay; the next engine goes on. */
START_TEST(test_death)
{
	struct engine_error err;
	const struct engine_opts o = { .block_tokens = FK_BT, .max_leases = 6 };

	NOTE(0, "a", 5000);
	give(0, "a", SESSION_HINT, ENGINE_PIN, 5000, 0);
	give(1, "a", SESSION_HINT, ENGINE_DEMOTE, 5000, 0);
	give(2, "a", SESSION_END, 0, 0, 0);
	give(3, "b", SESSION_NOTE, 0, 5000, NR);
	fk.die_at = fk.number + 1;
	ck_assert_int_eq(run_status(), -ECONNRESET);
	engine_destroy(engine);
	engine = NULL;
	sessions_attach(&t, NULL);
	answers(&did[0].job.told, "refused", "the memory daemon is away");
	answers(&did[1].job.told, "refused", "the memory daemon is away");
	ck_assert_uint_eq(did[2].dones, 1);
	answers(&did[3].job.told, "refused", "the memory daemon is away");
	give(4, "b", SESSION_LOOK, 0, 0, 0);
	ck_assert_uint_eq(did[4].job.told.tokens, NR);
	ck_assert(!did[4].job.told.held);
	setup();
	ck_assert_int_eq(engine_create(&model, &o, &engine, &err), 0);
	sessions_attach(&t, engine);
	answers(HINT(0, "b", RETAIN, 5000), "refused", "nothing of it is cached");
	submit(ask(0, 3, NR, 4, 1));
	run();
	answers(HINT(0, "b", RETAIN, 5000), "accepted", "");
}
END_TEST

/* ---- hints of clients ---- */

static const struct {
	const char	*name;
	const char	*body;
	const char	*param;	/* NULL: it is accepted */
} bodies[] = {
	{ "a", "{\"hint\": \"pin\", \"seconds\": 1.5, \"cache_salt\": \"s\"}", NULL },
	{ "a", "{\"hint\": \"unpin\", \"seconds\": null, \"model\": \"m\"}", NULL },
	{ "a", "[]", "" },
	{ "a", "{}", "hint" },
	{ "a", "{\"hint\": 1}", "hint" },
	{ "a", "{\"hint\": \"keep\"}", "hint" },
	{ "a", "{\"hint\": \"pin\", \"seconds\": 0}", "seconds" },
	{ "a", "{\"hint\": \"pin\", \"seconds\": \"1\"}", "seconds" },
	{ "a", "{\"hint\": \"pin\", \"seconds\": 86401}", "seconds" },
	{ "a", "{\"hint\": \"unpin\", \"seconds\": 1}", "seconds" },
	{ "a", "{\"hint\": \"pin\", \"cache_salt\": 1}", "cache_salt" },
	{ "a", "{\"hint\": \"pin\", \"ttl\": 1}", "ttl" },
	{ "a%2f", "{\"hint\": \"pin\"}", "name" },
	{ "", "{\"hint\": \"pin\"}", "name" },
};

START_TEST(test_hint_read)
{
	struct session_job job = { .op = SESSION_HINT };
	const struct api_model m = { .name = "m" };
	json_t *root = json_loads(bodies[_i].body, 0, NULL);
	struct api_error err = { 0 };
	int ret = hint_read(&m, bodies[_i].name, strlen(bodies[_i].name), root, &job,
			    &err);

	ck_assert_int_eq(ret, bodies[_i].param ? -1 : 0);
	if (ret) {
		ck_assert_int_eq(err.status, 400);
		ck_assert_str_eq(err.param, bodies[_i].param);
	}
	if (!_i) {
		ck_assert(job.hint == ENGINE_PIN && job.ms == 1500 && job.salt);
		ck_assert_str_eq(job.name, "a");
	}
	if (_i == 1)
		ck_assert(job.hint == ENGINE_UNPIN && !job.salt);
	json_decref(root);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("server-session");
	TCase *tc = tcase_create("sessions"), *read = tcase_create("bodies");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup_sessions, teardown_sessions);
	tcase_add_test(tc, test_note);
	tcase_add_test(tc, test_unknown);
	tcase_add_test(tc, test_list);
	tcase_add_test(tc, test_answers);
	tcase_add_test(tc, test_order);
	tcase_add_test(tc, test_pin_ends);
	tcase_add_test(tc, test_pin_lost);
	tcase_add_test(tc, test_most_sessions);
	tcase_add_test(tc, test_most_ids);
	tcase_add_test(tc, test_death);
	suite_add_tcase(s, tc);
	tcase_add_loop_test(read, test_hint_read, 0, (int)ARRAY_SIZE(bodies));
	suite_add_tcase(s, read);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
