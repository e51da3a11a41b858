// SPDX-License-Identifier: Apache-2.0
/*
 * check_engine_random.c - the engine under all events at once
 *
 * Many short lives of an engine, each drawn from one number: pools from ample
 * to hardly enough, refusals, preemption by recompute and by swap, full rings,
 * lost tables, forks, stops and cancellation, deadlines, chunks and batches of
 * all sizes; daemons that die and salvage.  See engine_fixture.h.
 */
#include "tests/level.h"
#include "tests/unit/engine_fixture.h"

/* A request uses some of all options of the draw. */
static void random_sampling(struct sampling_params *p, u32 i)
{
	static struct sampling_bias bias[MAX_REQ][4];
	static u32 allowed[MAX_REQ][20], bad[MAX_REQ][7];
	u32 k;

	if (fk_rand(2))
		p->min_p = (float)fk_rand(20) / 100;
	if (fk_rand(2))
		p->repetition_penalty = 0.8f + (float)fk_rand(10) / 10;
	if (fk_rand(2))
		p->presence_penalty = (float)fk_rand(40) / 10 - 2;
	if (fk_rand(2))
		p->frequency_penalty = (float)fk_rand(40) / 10 - 2;
	if (fk_rand(2))
		p->min_tokens = fk_rand(10);
	if (fk_rand(2)) {
		for (k = 0; k < 4; k++)
			bias[i][k] = (struct sampling_bias){
				k * 15 + fk_rand(15), (float)fk_rand(9) - 4,
			};
		p->bias = bias[i];
		p->nr_bias = 4;
	}
	if (!fk_rand(4)) {
		for (k = 0; k < 20; k++)
			allowed[i][k] = k * 3;
		p->allowed = allowed[i];
		p->nr_allowed = 20;
	}
	if (fk_rand(2)) {
		const u32 words[] = { 1, fk_rand(61), 2, fk_rand(20) * 3,
				      fk_rand(61), 1, fk_rand(61) };

		memcpy(bad[i], words, sizeof(words));
		p->bad = bad[i];
		p->nr_bad = ARRAY_SIZE(words);
	}
}

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
		if (fk_rand(2))
			random_sampling(&a->c.sampling, i);
		if (fk_rand(2)) {
			a->c.stops = &stop_id;
			a->c.nr_stops = 1;
		}
		if (fk_rand(2))
			a->c.logprobs = ENGINE_LOGPROBS(fk_rand(ENGINE_TOP_MAX));
		if (a->c.logprobs && a->c.logprobs <= FM_VOCAB && fk_rand(2))
			a->c.logprob_ids = a->ids;
		if (!fk_rand(3))
			a->c.prompt_logprobs = ENGINE_LOGPROBS(fk_rand(9));
		a->c.priority = fk_rand(4) ? 0 : fk_rand(3);
		a->c.salt = fk_rand(5) ? 0 : 1;
		a->c.flow = fk_rand(3);
		if (!fk_rand(8))
			a->c.deadline_ns = random_deadline();
		submit(a);
		if (fk_rand(2))
			(void)!engine_step(engine, 0);
	}
}

/* A caller cancels a request, between any two steps. */
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
static void random_life(u32 i, enum fm_groups groups, struct engine_stats *st)
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
	fm_use_groups(&model, groups);
	model.info.draws = i / 2 % 2;
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
	ck_assert_uint_eq(st->drawn_device, model.drawn);
	engine_destroy(engine);
	engine = NULL;
}

START_TEST(test_random)
{
	struct engine_stats st;
	u32 i;

	for (i = 0; i < 10; i++) {
		random_life((u32)_i * 10 + i, _i % 4 < 2 ? FM_ONE : _i % 4 - 1,
			    &st);
		if (fk.nr_blocks == 400 && !fk.preempt)
			ck_assert_uint_eq(st.recomputed_tokens, 0);
		if (!fk.nr_marks && !fk.lost)
			ck_assert_uint_eq(st.preemptions, 0);
		ck_assert_uint_le(st.copies, fk.nr_cows);
	}
}
END_TEST

/* The lives above meet every event that there is, with any layer groups. */
START_TEST(test_random_covers)
{
	struct engine_stats sum = { 0 }, st;
	u64 evictions = 0, hits = 0, restored = 0, lost = 0, dropped = 0;
	u32 i;

	for (i = 0; i < 24; i++) {
		random_life(i, _i, &st);
#define x(name, text) sum.name += st.name;
		ENGINE_STATS(x)
#undef x
		evictions += fk.nr_evictions;
		hits += fk.nr_hits;
		restored += fk.nr_restored;
		lost += fk.nr_swap_lost;
		dropped += fk.nr_dropped;
	}
	/* Beam searches are in check_engine_beams.c. */
	ck_assert_uint_eq(sum.remaps, 0);
	sum.remaps = 1;
	/* Adapters are in it_adapters.c. */
	sum.adapter_blocks_found = sum.adapter_blocks_read = 1;
#define x(name, text) ck_assert_msg(sum.name, "never: " text);
	ENGINE_STATS(x)
#undef x
	ck_assert_uint_gt(evictions, 0);
	ck_assert_uint_gt(hits, 0);
	ck_assert_uint_gt(restored, 0);
	ck_assert_uint_gt(lost, 0);
	ck_assert_int_eq(dropped != 0, _i != FM_ONE);
}
END_TEST

/*
 * The daemon dies during a forward and salvages.  The forward then reads blocks
 * that its sequences no longer own.  The engine hears of it when the forward is
 * over, and must not report its results.
 */
START_TEST(test_salvage)
{
	const u32 nr = 1 + (u32)_i % 6;
	u32 k;

	setup();
	fk.seed = 0x9e3779b9u * ((u32)_i + 1);
	fk.salvage = 150;
	fk.again = _i % 3 ? 0 : 200;
	fk.preempt = _i % 4 ? 0 : 100;
	fk.nr_blocks = _i % 2 ? 40 : 400;
	fm_init(&model, 1 + fk_rand(64));
	fm_use_groups(&model, _i / 2 % FM_NR_GROUPS);
	model.info.draws = _i / 2 % 2;
	start(NULL);
	for (k = 0; k < nr; k++)
		submit(ask(k, k, 4 + fk_rand(30), 9 + fk_rand(30),
			   1 + fk_rand(MAX_N)));
	run();
	for (k = 0; k < nr; k++)
		check_ask(&asks[k]);
	ck_assert_uint_gt(fk.nr_salvaged, 0);
}
END_TEST

static Suite *random_suite(void)
{
	Suite *s = suite_create("engine-random");
	TCase *tc = tcase_create("random");

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, test_random_covers, 0, FM_NR_GROUPS);
	tcase_add_loop_test(tc, test_random, 0, level_is_check() ? 6 : 200);
	tcase_add_loop_test(tc, test_salvage, 0, level_is_check() ? 8 : 100);
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
