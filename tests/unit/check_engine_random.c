// SPDX-License-Identifier: Apache-2.0
/*
 * check_engine_random.c - the engine under everything at once
 *
 * Many short lives, each drawn from one number: pools from ample to hardly
 * enough, refusals, preemption by recompute and by swap, full rings, lost tables, forks, stops and
 * cancellation, chunks and batches of all sizes.  See engine_fixture.h.
 */
#include "tests/unit/engine_fixture.h"

static void random_asks(u32 nr)
{
	u32 i;

	for (i = 0; i < nr; i++) {
		struct ask *a = ask(i, fk_rand(3), 1 + fk_rand(40),
				    1 + fk_rand(30), 1 + fk_rand(MAX_N));

		if (fk_rand(2)) {
			a->c.sampling.temperature = 0.9f;
			a->c.sampling.top_k = fk_rand(20);
		}
		if (fk_rand(2)) {
			a->c.stops = &stop_id;
			a->c.nr_stops = 1;
		}
		a->c.priority = fk_rand(4) ? 0 : fk_rand(3);
		a->c.salt = fk_rand(5) ? 0 : 1;
		submit(a);
		if (fk_rand(2))
			(void)!engine_step(engine, 0);
	}
}

/* Somebody hangs up, between any two steps. */
static void random_cancels(u32 nr)
{
	struct ask *a;
	u32 i;

	for (i = 0; i < 40; i++) {
		(void)!engine_step(engine, 0);
		if (fk_rand(12))
			continue;
		a = &asks[fk_rand(nr)];
		a->cancelled = true;
		engine_cancel(engine, a->id);
	}
}

static u32 need_blocks(u32 nr)
{
	u32 i, most = 0;

	for (i = 0; i < nr; i++)
		most = max(most, DIV_ROUND_UP(asks[i].c.nr + asks[i].c.max_new,
					      FK_BT));
	return most;
}

/* One life of an engine, all of it drawn from @i. */
static void random_life(u32 i, struct engine_stats *st)
{
	const u32 nr = 1 + i % 12;
	struct engine_opts o = { 0 };
	u32 k;

	setup();
	fk.seed = 0x9e3779b9u * (i + 1);
	fk.again = i % 3 ? fk_rand(300) : 0;
	fk.preempt = i % 4 ? fk_rand(200) : 0;
	fk.full = i % 5 ? 0 : fk_rand(300);
	fk.lost = i % 7 ? 0 : fk_rand(100);
	fk.swap = i % 2 ? fk_rand(1001) : 0;
	fk.swap_lost = i % 8 == 3 ? fk_rand(300) : 0;
	fk.nr_blocks = i % 2 ? 22 + fk_rand(20) : 400;
	fm_init(&model, 1 + fk_rand(64));
	o.chunk = fk_rand(2) ? 1 + fk_rand(20) : 0;
	o.max_batch = fk_rand(2) ? 1 + fk_rand(8) : 0;
	o.max_steps = fk_rand(4) ? 2 : 1;
	start(&o);
	random_asks(nr);
	ck_assert_uint_le(need_blocks(nr), fk.nr_blocks);
	if (i % 3 == 1)
		random_cancels(nr);
	run();
	for (k = 0; k < nr; k++)
		check_ask(&asks[k]);
	engine_get_stats(engine, st);
	ck_assert_uint_eq(st->decoded_tokens + st->prefilled_tokens +
			  st->recomputed_tokens, model.rows);
	engine_destroy(engine);
	engine = NULL;
}

START_TEST(test_random)
{
	struct engine_stats st;
	u32 i;

	for (i = 0; i < 10; i++) {
		random_life((u32)_i * 10 + i, &st);
		if (fk.nr_blocks == 400 && !fk.preempt)
			ck_assert_uint_eq(st.recomputed_tokens, 0);
		if (!fk.nr_marks && !fk.lost)
			ck_assert_uint_eq(st.preemptions, 0);
		ck_assert_uint_le(st.copies, fk.nr_cows);
	}
}
END_TEST

/* The lives above are hard ones: everything that can happen does. */
START_TEST(test_random_covers)
{
	struct engine_stats sum = { 0 }, st;
	u64 evictions = 0, hits = 0, restored = 0, lost = 0;
	u32 i;

	for (i = 0; i < 24; i++) {
		random_life(i, &st);
#define x(name, text) sum.name += st.name;
		ENGINE_STATS(x)
#undef x
		evictions += fk.nr_evictions;
		hits += fk.nr_hits;
		restored += fk.nr_restored;
		lost += fk.nr_swap_lost;
	}
#define x(name, text) ck_assert_msg(sum.name, "never: " text);
	ENGINE_STATS(x)
#undef x
	ck_assert_uint_gt(evictions, 0);
	ck_assert_uint_gt(hits, 0);
	ck_assert_uint_gt(restored, 0);
	ck_assert_uint_gt(lost, 0);
}
END_TEST

static bool level_is_full(void)
{
	const char *level = getenv("KVMM_TEST_LEVEL");

	return level && !strcmp(level, "full");
}

static Suite *random_suite(void)
{
	Suite *s = suite_create("engine-random");
	TCase *tc = tcase_create("random");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_random_covers);
	tcase_add_loop_test(tc, test_random, 0, level_is_full() ? 200 : 20);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(random_suite());
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? 1 : 0;
}
