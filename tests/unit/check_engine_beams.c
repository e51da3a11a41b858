// SPDX-License-Identifier: Apache-2.0
/*
 * check_engine_beams.c - beam search in the engine, also when it loses memory
 *
 * The texts of every search must equal those of a plain search that shares
 * nothing (tests/beam_reference.h), over the logits of the model without
 * blocks.  See engine_fixture.h for the daemon and the model.
 *
 * budget: 30 s, full 120 s
 */
#include "tests/beam_reference.h"
#include "tests/level.h"
#include "tests/unit/engine_fixture.h"

static const u32 stop_ids[] = { STOP_ID, 20, 33 };
static u32 nr_doubts, nr_checked;

static struct ask *ask_beams(u32 i, u32 from, u32 nr, u32 max_new, u32 n,
			     u32 width)
{
	struct ask *a = ask(i, from, nr, max_new, n);

	a->c.beam_width = width;
	a->c.length_penalty = 1.0f;
	a->c.stops = stop_ids;
	a->c.nr_stops = 1;
	return a;
}

static void row_of(void *arg, const u32 *ids, u32 nr, float *lp)
{
	fm_oracle(ids, nr, lp);
	ref_log_softmax(lp, FM_VOCAB);
}

static void check_text(const struct ask *a, u32 k, const struct ref_text *t)
{
	const struct got *g = &a->got[k];
	const u32 nr = t->nr - t->stopped;

	if ((a->cancelled && g->done.reason == ENGINE_CANCELLED) ||
	    (a->c.deadline_ns && g->done.reason == ENGINE_TIMEOUT)) {
		ck_assert_uint_le(g->nr, nr);
		ck_assert_mem_eq(g->ids, t->ids, g->nr * sizeof(u32));
		return;
	}
	ck_assert_msg(g->done.reason == (t->stopped ? ENGINE_STOP :
					 ENGINE_LENGTH), "%s", g->text);
	ck_assert_uint_eq(g->nr, nr);
	ck_assert_mem_eq(g->ids, t->ids, nr * sizeof(u32));
	if (t->stopped)
		ck_assert_uint_eq(g->done.stop_id, t->ids[nr]);
	ck_assert_double_eq_tol(g->done.logprob, t->sum, 1e-4);
	ck_assert_uint_eq(g->done.prompt_tokens, a->c.nr);
}

static void check_beams(const struct ask *a)
{
	static struct ref_text want[FK_SEQS];
	struct ref_search ref = {
		.vocab = FM_VOCAB, .width = a->c.beam_width,
		.max_new = min(a->c.max_new, FM_CONTEXT - a->c.nr),
		.stops = a->c.stops, .nr_stops = a->c.nr_stops,
		.penalty = (double)a->c.length_penalty,
		.early = a->c.early_stopping, .row = row_of,
	};
	u32 k, nr = ref_run(&ref, a->ids, a->c.nr, want);

	nr_checked++;
	nr_doubts += ref.doubt;
	for (k = 0; k < max(a->c.n, 1u); k++) {
		ck_assert_uint_eq(a->got[k].dones, 1);
		ck_assert_uint_lt(k, nr);
		if (!ref.doubt)
			check_text(a, k, &want[k]);
	}
}

/* ---- one feature a test ---- */

START_TEST(test_one_search)
{
	struct engine_stats st;

	start(NULL);
	submit(ask_beams(0, 3, 10, 20, 4, 4));
	run();
	check_beams(&asks[0]);
	ck_assert_uint_eq(nr_doubts, 0);
	engine_get_stats(engine, &st);
	ck_assert_uint_eq(st.prefilled_tokens, 10);
	ck_assert_uint_eq(st.forks, 3);
	ck_assert_uint_gt(st.remaps, 0);
	ck_assert_uint_eq(st.remaps, fk.nr_remaps);
	ck_assert_uint_eq(st.preemptions + st.retries + st.rolled_back, 0);
	/* Each beam has one row in each step; no row is computed twice or in vain. */
	ck_assert_uint_eq(st.decoded_tokens, 4 * (model.forwards - 1));
}
END_TEST

/* All widths, also of one beam, which makes no family. */
START_TEST(test_widths)
{
	const u32 width = 1 + (u32)_i;

	start(NULL);
	submit(ask_beams(0, 3, 9, 24, min(width, MAX_N), width));
	run();
	check_beams(&asks[0]);
}
END_TEST

/* The engine never asks for so much room that a REMAP would be refused. */
START_TEST(test_beside_others)
{
	u64 forwards;

	start(NULL);
	submit(ask(0, 5, 8, 60, 1));
	submit(ask_beams(1, 3, 10, 20, 2, 4));
	run();
	check_ask(&asks[0]);
	check_beams(&asks[1]);
	/* The other request never waited for the family. */
	forwards = model.forwards;
	ck_assert_uint_le(forwards, 60 + 4);
}
END_TEST

START_TEST(test_steps_at_once)
{
	const struct engine_opts o = { .max_steps = 1, .max_batch = 3 };

	start(&o);
	submit(ask_beams(0, 3, 10, 20, 5, 8));
	run();
	check_beams(&asks[0]);
}
END_TEST

/* The search ends with its first token, or has no second step. */
START_TEST(test_one_token)
{
	struct engine_stats st;

	start(NULL);
	submit(ask_beams(0, 3, 10, 1, 4, 4));
	run();
	check_beams(&asks[0]);
	engine_get_stats(engine, &st);
	ck_assert_uint_eq(st.forks, 0);
	ck_assert_uint_eq(st.decoded_tokens, 0);
}
END_TEST

START_TEST(test_penalties)
{
	static const float penalty[] = { 0, 1, 2, -1, 0.5f };
	u32 i;

	start(NULL);
	for (i = 0; i < 5; i++) {
		struct ask *a = ask_beams(i, 3, 10, 24, 3, 3);

		a->c.nr_stops = 3;
		a->c.length_penalty = penalty[i];
		a->c.early_stopping = (u32)_i;
		submit(a);
	}
	run();
	for (i = 0; i < 5; i++)
		check_beams(&asks[i]);
}
END_TEST

/* engine_fixture.h compares each logprob with the model's. */
START_TEST(test_logprobs)
{
	struct ask *a;
	u32 k;

	start(NULL);
	a = ask_beams(0, 3, 10, 20, 3, 4);
	a->c.logprobs = ENGINE_LOGPROBS(0);
	submit(a);
	run();
	check_beams(a);
	for (k = 0; k < 3; k++) {
		const struct engine_done *d = &a->got[k].done;

		if (d->reason == ENGINE_LENGTH)
			ck_assert_double_eq_tol(a->got[k].logprob, d->logprob,
						1e-4);
		else	/* the sum includes the stop id */
			ck_assert_double_gt(a->got[k].logprob, d->logprob);
	}
}
END_TEST

static const struct {
	const char *what;
	struct engine_request c;
} bad[] = {
	{ "no more texts", { .n = 5, .beam_width = 4 } },
	{ "are of beam search", { .length_penalty = 1 } },
	{ "are of beam search", { .early_stopping = 1 } },
	{ "temperature", { .beam_width = 2, .sampling.temperature = 1 } },
	{ "early_stopping", { .beam_width = 2, .early_stopping = 3 } },
	{ "length_penalty", { .beam_width = 2, .length_penalty = 11 } },
	{ "length_penalty", { .beam_width = 2, .length_penalty = NAN } },
	{ "no other tokens", { .beam_width = 2, .logprobs = 2 } },
	{ "sequences", { .beam_width = FK_SEQS + 1 } },
};

START_TEST(test_refused)
{
	struct engine_request c = bad[_i].c;
	struct engine_error err;
	const u32 id = 1;

	start(NULL);
	c.ids = &id;
	c.nr = 1;
	c.max_new = 4;
	c.sampling.top_p = 1;
	ck_assert_int_eq(engine_submit(engine, &c, NULL, &err), -EINVAL);
	ck_assert_msg(strstr(err.text, bad[_i].what), "%s", err.text);
}
END_TEST

/* ---- refusals and ends ---- */

START_TEST(test_forks_refused)
{
	u32 i;

	start(NULL);
	fk.no_forks = true;
	submit(ask_beams(0, 3, 10, 20, 2, 4));
	for (i = 0; i < 30; i++)
		ck_assert_int_eq(engine_step(engine, 20000), 1);
	ck_assert_uint_eq(model.forwards, 1);
	fk.no_forks = false;
	run();
	check_beams(&asks[0]);
}
END_TEST

/*
 * While other sequences live, table pages may come back.  Without them the
 * search ends with one error.
 */
START_TEST(test_remap_without_room)
{
	u32 k;

	start(NULL);
	fk.no_remaps = true;
	submit(ask_beams(0, 3, 10, 20, 3, 4));
	if (_i) {
		submit(ask(1, 5, 8, 60, 1));
		while (asks[1].got[0].nr < 40)
			ck_assert_int_eq(engine_step(engine, 20000), 1);
		ck_assert_uint_eq(asks[0].got[0].dones, 0);
		fk.no_remaps = false;
		run();
		check_ask(&asks[1]);
		check_beams(&asks[0]);
		return;
	}
	run();
	for (k = 0; k < 3; k++) {
		ck_assert_uint_eq(asks[0].got[k].dones, 1);
		ck_assert_int_eq(asks[0].got[k].done.reason, ENGINE_ERROR);
		ck_assert_int_eq(asks[0].got[k].done.err, -ENOSPC);
		ck_assert_uint_eq(asks[0].got[k].nr, 0);
	}
}
END_TEST

/* Cancelled in any state: the whole request at once, or one text after the other. */
START_TEST(test_cancel)
{
	struct engine_load load;
	struct ask *a;
	int i;
	u32 k;

	start(NULL);
	fk.preempt = _i % 2 ? 200 : 0;
	fk.swap = _i % 4 == 3 ? 500 : 0;
	a = ask_beams(0, 3, 10, 60, 3, 4);
	a->c.nr_stops = 0;
	submit(a);
	submit(ask(1, 7, 8, 20, 2));
	for (i = 0; i < _i; i++)
		ck_assert_int_eq(engine_step(engine, 20000), 1);
	a->cancelled = true;
	if (_i % 3)
		ck_assert_int_eq(engine_cancel(engine, a->id), 0);
	for (k = 0; k < 3 && !(_i % 3); k++)
		ck_assert_int_eq(engine_cancel_sample(engine, a->id, k), 0);
	ck_assert_int_eq(engine_cancel(engine, a->id), -ENOENT);
	run();
	check_ask(&asks[1]);
	for (k = 0; k < 3; k++) {
		ck_assert_uint_eq(a->got[k].dones, 1);
		ck_assert_int_eq(a->got[k].done.reason, ENGINE_CANCELLED);
	}
	engine_get_load(engine, &load);
	ck_assert_uint_eq(load.running + load.waiting, 0);
}
END_TEST

/* One text is cancelled: its beam goes on for the others. */
START_TEST(test_cancel_a_text)
{
	struct ask *a;
	int i;

	start(NULL);
	a = ask_beams(0, 3, 10, 20, 3, 4);
	submit(a);
	for (i = 0; i < 2 + _i * 4; i++)
		ck_assert_int_eq(engine_step(engine, 20000), 1);
	a->cancelled = true;
	ck_assert_int_eq(engine_cancel_sample(engine, a->id, (u32)_i), 0);
	ck_assert_int_eq(engine_cancel_sample(engine, a->id, (u32)_i), -ENOENT);
	run();
	check_beams(a);
	for (i = 0; i < 3; i++)
		ck_assert((a->got[i].done.reason == ENGINE_CANCELLED) ==
			  (i == _i));
}
END_TEST

/* The same before its beam is forked. */
START_TEST(test_cancel_a_text_unborn)
{
	struct ask *a;
	int i;

	start(NULL);
	a = ask_beams(0, 3, 10, 20, 3, 4);
	fk.no_forks = true;
	submit(a);
	for (i = 0; i < 20; i++)
		ck_assert_int_eq(engine_step(engine, 20000), 1);
	a->cancelled = true;
	ck_assert_int_eq(engine_cancel_sample(engine, a->id, (u32)_i), 0);
	fk.no_forks = false;
	for (i = 0; i < 5000 && engine_step(engine, 20000) > 0; i++)
		;
	check_beams(a);
	for (i = 0; i < 3; i++)
		ck_assert((a->got[i].done.reason == ENGINE_CANCELLED) ==
			  (i == _i));
}
END_TEST

/* The caller cancels in a callback. */
START_TEST(test_cancel_while_told)
{
	struct ask *a;

	start(NULL);
	a = ask_beams(0, 3, 10, 20, 3, 4);
	a->cancel_after = 2;
	a->cancel_sample = 1;
	a->cancelled = true;
	submit(a);
	run();
	check_beams(a);
	ck_assert_int_ne(a->got[0].done.reason, ENGINE_CANCELLED);
	ck_assert_uint_eq(a->got[1].nr, 2);
	ck_assert_int_eq(a->got[2].done.reason, ENGINE_CANCELLED);
}
END_TEST

START_TEST(test_model_fails)
{
	u32 k;

	start(NULL);
	submit(ask_beams(0, 3, 10, 20, 3, 4));
	while (model.forwards < 1 + (u32)_i)
		ck_assert_int_eq(engine_step(engine, 20000), 1);
	model.fail = -EIO;
	run();
	for (k = 0; k < 3; k++) {
		ck_assert_uint_eq(asks[0].got[k].dones, 1);
		ck_assert_int_eq(asks[0].got[k].done.err, -EIO);
	}
}
END_TEST

/* The daemon ends at each request, all in one process, so that leaks are found. */
START_TEST(test_daemon_ends)
{
	u32 k, told;
	u64 at;

	teardown();
	for (at = 1; at < 200; at++) {
		setup();
		fk.die_at = at;
		start(NULL);
		submit(ask_beams(0, 3, 10, 20, 3, 4));
		submit(ask(1, 7, 8, 6, 1));
		(void)!run_status();
		for (told = 0, k = 0; k < 3; k++)
			told += asks[0].got[k].dones;
		ck_assert_uint_eq(told, 3);
		teardown();
	}
	setup();
	start(NULL);
}
END_TEST

/* ---- everything at once ---- */

static u32 need_blocks(const struct ask *a)
{
	return max(a->c.beam_width, 1u) *
		DIV_ROUND_UP(a->c.nr + a->c.max_new, FK_BT);
}

/*
 * Beams, and other requests that take their memory.  Return: blocks that the
 * largest one needs.
 */
static u32 random_asks(u32 nr, bool late)
{
	u32 i, most = 0;

	for (i = 0; i < nr; i++) {
		struct ask *a = ask(i, fk_rand(3), 1 + fk_rand(40),
				    1 + fk_rand(30), 1 + fk_rand(MAX_N));

		if (fk_rand(3)) {
			static const float penalty[] = { 1, 0, 2, -1 };

			a->c.beam_width = max(a->c.n, 1 + fk_rand(8));
			a->c.length_penalty = penalty[fk_rand(4)];
			a->c.early_stopping = fk_rand(3);
			a->c.stops = stop_ids;
			a->c.nr_stops = fk_rand(4);
		}
		a->c.priority = fk_rand(4) ? 0 : fk_rand(3);
		a->c.salt = fk_rand(5) ? 0 : 1;
		if (late)
			a->c.deadline_ns = random_deadline();
		most = max(most, need_blocks(a));
	}
	return most;
}

static struct {
	u64	stale, rematched, restored, lost, cancelled;
} seen;

static void random_life(u32 i, struct engine_stats *st)
{
	const u32 nr = 1 + i % 5;
	struct engine_opts o = { 0 };
	u32 k, need;

	setup();
	fk.seed = 0x9e3779b9u * (i + 1);
	need = random_asks(nr, i % 12 == 5);
	fk.again = i % 3 ? fk_rand(300) : 0;
	fk.remap_again = i % 3 ? fk_rand(500) : 0;
	fk.preempt = i % 4 ? fk_rand(400) : 0;
	fk.full = i % 5 ? 0 : fk_rand(300);
	fk.lost = i % 7 ? 0 : fk_rand(100);
	fk.swap = i % 2 ? fk_rand(1001) : 0;
	fk.swap_lost = i % 8 == 3 ? fk_rand(300) : 0;
	fk.nr_blocks = i % 3 ? need + FK_SEQS + fk_rand(20) : FK_BLOCKS;
	fm_init(&model, 1 + fk_rand(64));
	fm_use_groups(&model, i % 4 == 3 ? 1 + i / 4 % 2 : FM_ONE);
	model.info.draws = i / 2 % 2;
	o.chunk = fk_rand(2) ? 1 + fk_rand(20) : 0;
	o.max_batch = fk_rand(2) ? 1 + fk_rand(8) : 0;
	o.max_steps = fk_rand(4) ? 2 : 1;
	start(&o);
	for (k = 0; k < nr; k++) {
		submit(&asks[k]);
		if (fk_rand(2))
			(void)!engine_step(engine, 0);
	}
	for (k = 0; k < 60 && i % 6 == 5; k++) {
		struct ask *a = &asks[fk_rand(nr)];

		(void)!engine_step(engine, 0);
		if (fk_rand(40))
			continue;
		a->cancelled = true;
		engine_cancel(engine, a->id);
	}
	run();
	for (k = 0; k < nr; k++) {
		if (asks[k].c.beam_width)
			check_beams(&asks[k]);
		else
			check_ask(&asks[k]);
		seen.cancelled += asks[k].cancelled;
	}
	engine_get_stats(engine, st);
	ck_assert_uint_eq(st->decoded_tokens + st->prefilled_tokens +
			  st->recomputed_tokens, model.rows);
	/* A daemon answers some REMAPs after their search was cancelled. */
	if (i % 6 != 5)
		ck_assert_uint_eq(st->remaps, fk.nr_remaps);
	seen.stale += fk.nr_remaps_stale;
	seen.rematched += fk.nr_rematched;
	seen.restored += fk.nr_restored;
	seen.lost += fk.nr_swap_lost;
	engine_destroy(engine);
	engine = NULL;
}

START_TEST(test_random)
{
	struct engine_stats st;
	u32 i;

	for (i = 0; i < 50; i++)
		random_life((u32)_i * 50 + i, &st);
	ck_assert_uint_gt(nr_checked, 50);
	ck_assert_uint_le(nr_doubts, 1);
}
END_TEST

static bool covered(const struct engine_stats *sum)
{
#define x(name, text) if (!sum->name) return false;
	ENGINE_STATS(x)
#undef x
	return seen.stale && seen.rematched && seen.restored && seen.lost &&
	       seen.cancelled;
}

/*
 * The clock decides which search meets which event, for some have deadlines.
 * On a slow machine rare events take more lives than the sixty that are enough
 * elsewhere.
 */
START_TEST(test_random_covers)
{
	/* Adapters are in it_adapters.c. */
	struct engine_stats sum = { .adapter_blocks_found = 1, .adapter_blocks_read = 1 }, st;
	u32 i;

	for (i = 0; i < 60 || (i < 3000 && !covered(&sum)); i++) {
		random_life(i, &st);
#define x(name, text) sum.name += st.name;
		ENGINE_STATS(x)
#undef x
	}
#define x(name, text) ck_assert_msg(sum.name, "never: " text);
	ENGINE_STATS(x)
#undef x
	ck_assert_uint_gt(seen.stale, 0);
	ck_assert_uint_gt(seen.rematched, 0);
	ck_assert_uint_gt(seen.restored, 0);
	ck_assert_uint_gt(seen.lost, 0);
	ck_assert_uint_gt(seen.cancelled, 0);
}
END_TEST

static Suite *beams_suite(void)
{
	Suite *s = suite_create("engine-beams");
	TCase *tc = tcase_create("beams");

	tcase_set_timeout(tc, 120);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_one_search);
	tcase_add_loop_test(tc, test_widths, 0, 16);
	tcase_add_test(tc, test_beside_others);
	tcase_add_test(tc, test_steps_at_once);
	tcase_add_test(tc, test_one_token);
	tcase_add_loop_test(tc, test_penalties, 0, 3);
	tcase_add_test(tc, test_logprobs);
	tcase_add_loop_test(tc, test_refused, 0,
			    sizeof(bad) / sizeof(bad[0]));
	tcase_add_test(tc, test_forks_refused);
	tcase_add_loop_test(tc, test_remap_without_room, 0, 2);
	tcase_add_loop_test(tc, test_cancel, 0, 40);
	tcase_add_loop_test(tc, test_cancel_a_text, 0, 3);
	tcase_add_loop_test(tc, test_cancel_a_text_unborn, 0, 3);
	tcase_add_test(tc, test_cancel_while_told);
	tcase_add_loop_test(tc, test_model_fails, 0, 6);
	tcase_add_test(tc, test_daemon_ends);
	tcase_add_test(tc, test_random_covers);
	tcase_add_loop_test(tc, test_random, 0, level_is_check() ? 2 : 100);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(beams_suite());
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
