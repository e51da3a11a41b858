// SPDX-License-Identifier: Apache-2.0
/*
 * check_engine_cancel.c - samples that end early, daemons that end early
 *
 * One sample of several is cancelled at every moment of its life: the others
 * must not change.  The daemon ends at every request: each sample ends once,
 * and no memory leaks (the leak sanitizer checks every child).
 */
#include "tests/unit/engine_fixture.h"

#define NOBODY	UINT32_MAX

static u32 victim, after;

/* Like on_token(), but cancels the victim after @after tokens. */
static void on_token_victim(void *arg, u32 sample,
			    const struct engine_token *t)
{
	struct ask *a = arg;

	on_token(arg, sample, t);
	if (sample != victim || a->got[sample].nr != after)
		return;
	a->cancelled = true;
	ck_assert_int_eq(engine_cancel_sample(engine, a->id, victim), 0);
	ck_assert_int_eq(engine_cancel_sample(engine, a->id, victim), -ENOENT);
}

/* The victim ended early; the others are as if it had not been cancelled. */
static void check_victim(const struct ask *a, u32 nr)
{
	u32 k;

	check_ask(a);
	for (k = 0; k < max(a->c.n, 1u); k++)
		ck_assert((a->got[k].done.reason == ENGINE_CANCELLED) ==
			  (k == victim));
	ck_assert_uint_eq(a->got[victim].nr, nr);
}

static struct ask *ask_victim(u32 i, u32 n)
{
	struct ask *a = ask(i, 3, 10, 20, n);

	a->c.on_token = on_token_victim;
	return a;
}

/* Any sample, at any of its tokens; its first token is drawn before the fork. */
START_TEST(test_cancel_at_a_token)
{
	struct engine_load load;
	struct ask *a;

	victim = (u32)_i / 6;
	after = 1 + (u32)_i % 6;
	start(NULL);
	a = ask_victim(0, 4);
	submit(a);
	submit(ask(1, 7, 8, 20, 2));
	run();
	check_victim(a, after);
	check_ask(&asks[1]);
	engine_get_load(engine, &load);
	ck_assert_uint_eq(load.running + load.waiting, 0);
}
END_TEST

/*
 * While FORK is refused, every sample has its first token.  The victim's
 * sequence is the parent of all forks, or does not exist yet.
 */
START_TEST(test_cancel_while_forks_are_refused)
{
	struct engine_stats st;
	struct ask *a;
	u32 i;

	victim = (u32)_i;
	after = NOBODY;
	start(NULL);
	a = ask_victim(0, 3);
	fk.no_forks = true;
	submit(a);
	for (i = 0; i < 30; i++)
		ck_assert_int_eq(engine_step(engine, 20000), 1);
	a->cancelled = true;
	ck_assert_int_eq(engine_cancel_sample(engine, a->id, victim), 0);
	for (i = 0; i < 10; i++)
		ck_assert_int_eq(engine_step(engine, 20000), 1);
	fk.no_forks = false;
	run();
	check_victim(a, 1);
	/* Two samples read their drawn tokens; the victim read none. */
	engine_get_stats(engine, &st);
	ck_assert_uint_eq(st.decoded_tokens, 2 * 19);
}
END_TEST

START_TEST(test_cancel_in_the_queue)
{
	static const struct engine_opts o = { .max_seqs = 4 };
	struct engine_load load;
	struct ask *a;

	victim = 1;
	after = NOBODY;
	start(&o);
	submit(ask(0, 7, 8, 20, 4));
	a = ask_victim(1, 2);
	submit(a);
	ck_assert_int_eq(engine_step(engine, 20000), 1);
	engine_get_load(engine, &load);
	ck_assert_uint_ge(load.waiting, 2);
	a->cancelled = true;
	ck_assert_int_eq(engine_cancel_sample(engine, a->id, 1), 0);
	ck_assert_int_eq(engine_cancel_sample(engine, a->id, 2), -ENOENT);
	run();
	check_victim(a, 0);
}
END_TEST

/* The request ends with its last sample, in any state. */
START_TEST(test_cancel_one_by_one)
{
	struct ask *a;
	u64 forwards;
	int i;

	start(NULL);
	a = ask(0, 3, 10, 40, 3);
	submit(a);
	for (i = 0; i < _i; i++)
		ck_assert_int_eq(engine_step(engine, 20000), 1);
	a->cancelled = true;
	for (i = 0; i < 3; i++)
		ck_assert_int_eq(engine_cancel_sample(engine, a->id, (u32)i), 0);
	ck_assert_int_eq(engine_cancel(engine, a->id), -ENOENT);
	forwards = model.forwards;
	run();
	ck_assert_uint_eq(model.forwards, forwards);
	check_ask(a);
	for (i = 0; i < 3; i++)
		ck_assert_int_eq(a->got[i].done.reason, ENGINE_CANCELLED);
}
END_TEST

/* ---- the daemon ends ---- */

static void live_and_die(u64 at)
{
	u32 k, told;
	int ret;

	setup();
	fk.die_at = at;
	victim = 1;
	after = 3;
	start(NULL);
	submit(ask_victim(0, 3));
	submit(ask(1, 7, 8, 6, 1));
	ret = run_status();
	ck_assert(ret == 0 || ret == -ECONNRESET);
	for (told = 0, k = 0; k < 3; k++)
		told += asks[0].got[k].dones;
	ck_assert_uint_eq(told, 3);
	ck_assert_uint_eq(asks[1].got[0].dones, 1);
	teardown();
	engine = NULL;
}

/* The daemon ends at each request, all in one process, so that leaks are found. */
START_TEST(test_daemon_ends)
{
	u64 at;

	teardown();
	for (at = 1; at < 120; at++)
		live_and_die(at);
	setup();
	start(NULL);
}
END_TEST

/* The engine uses an identity that the caller computed before. */
START_TEST(test_identity_is_taken)
{
	u8 identity[KVMM_IDENTITY_LEN], other[KVMM_IDENTITY_LEN];
	struct engine_opts o = { .identity = other };

	memset(other, 0x5a, sizeof(other));
	start(&o);
	ck_assert_mem_eq(fk.identity, other, sizeof(other));
	engine_destroy(engine);
	ck_assert_int_eq(engine_identity(&model, identity), 0);
	start(NULL);
	ck_assert_mem_eq(fk.identity, identity, sizeof(identity));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine-cancel");
	TCase *tc = tcase_create("ends");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, test_cancel_at_a_token, 0, 24);
	tcase_add_loop_test(tc, test_cancel_while_forks_are_refused, 0, 3);
	tcase_add_test(tc, test_cancel_in_the_queue);
	tcase_add_loop_test(tc, test_cancel_one_by_one, 0, 12);
	tcase_add_test(tc, test_daemon_ends);
	tcase_add_test(tc, test_identity_is_taken);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
