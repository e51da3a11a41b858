// SPDX-License-Identifier: Apache-2.0
/*
 * check_engine_queue.c - the order, deadlines and cancellation of requests
 *
 * The clock is the machine's, so no test depends on how much time passes: a
 * deadline is either over when the request comes, or an hour away.
 */
#include <time.h>

#include "tests/unit/engine_fixture.h"

#define HOUR_NS		3600000000000ll

static s64 now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (s64)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

/* Blocks that sequences hold. */
static u32 blocks_held(void)
{
	u32 i, nr = 0;

	for (i = 0; i < fk.nr_blocks; i++)
		nr += fk.b[i].maps != 0;
	return nr;
}

/* ---- requests that end early ---- */

static void check_timeout(const struct ask *a)
{
	u32 k;

	for (k = 0; k < max(a->c.n, 1u); k++) {
		ck_assert_uint_eq(a->got[k].dones, 1);
		ck_assert_int_eq(a->got[k].done.reason, ENGINE_TIMEOUT);
		ck_assert_int_eq(a->got[k].done.err, -ETIMEDOUT);
		ck_assert_uint_gt(strlen(a->got[k].text), 0);
	}
}

/* A deadline passes in the queue: the request never becomes a sequence. */
START_TEST(test_deadline_in_the_queue)
{
	struct engine_stats st;

	start(NULL);
	ask(0, 3, 10, 20, 2)->c.deadline_ns = now_ns() - 1;
	submit(&asks[0]);
	ask(1, 5, 10, 20, 1)->c.deadline_ns = now_ns() + HOUR_NS;
	submit(&asks[1]);
	ck_assert_int_eq(engine_step(engine, 20000), 1);
	check_timeout(&asks[0]);
	run();
	check_ask(&asks[1]);
	engine_get_stats(engine, &st);
	ck_assert_uint_eq(st.timeouts, 2);
	ck_assert_uint_eq(st.prompt_tokens, 10);
}
END_TEST

/*
 * A deadline passes at work: the request ends in the next step, in any state of
 * its family.
 */
START_TEST(test_deadline_at_work)
{
	struct ask *a = ask(0, 3, 10, 60, 3);
	s64 left;
	int i;

	start(NULL);
	a->c.deadline_ns = now_ns() + 20000000;
	submit(a);
	submit(ask(1, 5, 10, 60, 1));
	for (i = 0; i < _i; i++)
		ck_assert_int_eq(engine_step(engine, 20000), 1);
	while ((left = a->c.deadline_ns - now_ns()) >= 0)
		nanosleep(&(struct timespec){ .tv_nsec = left + 1 }, NULL);
	if (!a->got[0].dones) {
		ck_assert_int_eq(engine_step(engine, 20000), 1);
		check_timeout(a);
	}
	run();
	check_ask(&asks[1]);
	ck_assert_uint_eq(blocks_held(), 0);
}
END_TEST

/* The earliest deadline is found, in whatever order requests come and go. */
START_TEST(test_deadlines_in_any_order)
{
	u32 i;

	start(NULL);
	for (i = 0; i < MAX_REQ; i++) {
		ask(i, i, 5, 10, 1);
		if (i % 5)
			asks[i].c.deadline_ns = now_ns() - 1 -
				fk_rand(1000000) + (i % 3 ? HOUR_NS : 0);
		submit(&asks[i]);
		if (i % 4 == 3) {
			asks[i].cancelled = true;
			engine_cancel(engine, asks[i].id);
		}
	}
	ck_assert_int_eq(engine_step(engine, 20000), 1);
	for (i = 0; i < MAX_REQ; i++)
		if (i % 5 && !(i % 3) && i % 4 != 3)
			check_timeout(&asks[i]);
	run();
	for (i = 0; i < MAX_REQ; i++)
		if (asks[i].got[0].done.reason != ENGINE_TIMEOUT)
			check_ask(&asks[i]);
}
END_TEST

/* An engine that waits for memory sleeps no longer than to the next deadline. */
START_TEST(test_deadline_ends_a_sleep)
{
	u32 i;

	fk.nr_blocks = 8;
	start(NULL);
	submit(ask(0, 3, 20, 8, 1));
	while (!asks[0].got[0].nr)
		ck_assert_int_eq(engine_step(engine, 20000), 1);
	ask(1, 7, 20, 4, 1)->c.deadline_ns = now_ns() + HOUR_NS;
	submit(&asks[1]);
	fk.longest_wait = 0;
	for (i = 0; i < 4; i++)
		ck_assert_int_eq(engine_step(engine, 2 * HOUR_NS), 1);
	ck_assert_int_gt(fk.longest_wait, 0);
	ck_assert_int_le(fk.longest_wait, HOUR_NS);
	run();
	check_ask(&asks[0]);
	check_ask(&asks[1]);
}
END_TEST

/*
 * After engine_cancel() the daemon gets the blocks back: only the steps that
 * were open still run.
 */
START_TEST(test_cancel_frees_within_the_open_steps)
{
	u32 held, before, open, i;

	start(NULL);
	submit(ask(0, 3, 10, 60, 1));
	submit(ask(1, 5, 20, 60, 1));
	for (i = 0; i < (u32)_i + 8; i++)
		ck_assert_int_eq(engine_step(engine, 20000), 1);
	ck_assert_uint_gt(asks[0].got[0].nr, 0);
	asks[1].cancelled = true;
	open = fk.nr_steps + (fk.submitted != fk.executed);
	ck_assert_int_eq(engine_cancel(engine, asks[1].id), 0);
	ck_assert_uint_eq(asks[1].got[0].dones, 1);
	before = model.forwards;
	/* Most blocks that the other request can hold, with its room ahead. */
	for (;;) {
		held = DIV_ROUND_UP(10 + asks[0].got[0].nr + 2, FK_BT);
		if (blocks_held() <= held)
			break;
		ck_assert_uint_le(model.forwards, before + open);
		ck_assert_int_eq(engine_step(engine, 20000), 1);
	}
	run();
	check_ask(&asks[0]);
	check_ask(&asks[1]);
}
END_TEST

/* All times are parts of one thread's time: their sum is at most the time that passed. */
START_TEST(test_times_are_parts)
{
	struct engine_stats st;
	const s64 begin = now_ns();
	u64 sum = 0;

	start(NULL);
	submit(ask(0, 3, 10, 60, 3));
	submit(ask(1, 5, 10, 60, 1));
	run();
	engine_get_stats(engine, &st);
#define x(name, text)							\
	if (strstr(#name, "_ns"))					\
		sum += st.name;
	ENGINE_STATS(x)
#undef x
	ck_assert_uint_gt(sum, 0);
	ck_assert_uint_le(sum, (u64)(now_ns() - begin));
}
END_TEST

/* ---- order of requests ---- */

#define MAX_JOBS	260u
#define PROMPT		8u

/* One of many small requests; times count forwards. */
struct job {
	u32	flow, max_new, sent, first, ended, tokens, order;
	u32	ids[2 * PROMPT];
	bool	over;
};

static struct job jobs[MAX_JOBS];
static u32 nr_jobs, nr_begun, prompt_len;

static void job_token(void *arg, u32 sample, const struct engine_token *t)
{
	struct job *j = arg;

	if (!j->tokens++) {
		j->first = model.forwards;
		j->order = ++nr_begun;
	}
}

static void job_done(void *arg, const struct engine_done *done)
{
	struct job *j = arg;

	ck_assert_int_eq(done->reason, ENGINE_LENGTH);
	j->ended = model.forwards;
	j->over = true;
}

static int job_try(u32 flow, u32 priority, u32 from, u32 nr, u32 max_new)
{
	struct job *j = &jobs[nr_jobs++];
	struct engine_request c = {
		.ids = j->ids, .nr = nr, .max_new = max_new, .flow = flow,
		.priority = priority, .on_token = job_token,
		.on_done = job_done, .arg = j, .sampling = SAMPLING_PARAMS_DEFAULT,
	};
	struct engine_error err = { "" };
	u32 k;

	ck_assert_uint_le(nr_jobs, MAX_JOBS);
	ck_assert_uint_le(nr, ARRAY_SIZE(j->ids));
	*j = (struct job){ .flow = flow, .max_new = max_new,
			   .sent = model.forwards };
	for (k = 0; k < nr; k++)
		j->ids[k] = (k ? from / FM_VOCAB + 3 * k : from) % FM_VOCAB;
	return engine_submit(engine, &c, NULL, &err);
}

/* A request; no other prompt begins like its own. */
static struct job *job_send(u32 flow, u32 priority, u32 max_new)
{
	ck_assert_int_eq(job_try(flow, priority, nr_jobs, prompt_len, max_new), 0);
	return &jobs[nr_jobs - 1];
}

static void jobs_send(u32 nr, u32 flow, u32 max_new)
{
	while (nr--)
		job_send(flow, 0, max_new);
}

static void step(void)
{
	ck_assert_int_eq(engine_step(engine, 20000), 1);
}

/* Prompt tokens read and tokens drawn, for one flow. */
static u32 given(u32 flow)
{
	u32 i, sum = 0;

	for (i = 0; i < nr_jobs; i++)
		if (jobs[i].flow == flow && jobs[i].tokens)
			sum += PROMPT + jobs[i].tokens;
	return sum;
}

/* Longest time from a first token to the last. */
static u32 residency(void)
{
	u32 i, most = 0;

	for (i = 0; i < nr_jobs; i++)
		if (jobs[i].over)
			most = max(most, jobs[i].ended - jobs[i].first);
	return most;
}

static void jobs_start(u32 max_batch)
{
	const struct engine_opts o = { .max_batch = max_batch,
				       .max_seqs = 16 };

	nr_jobs = nr_begun = 0;
	prompt_len = PROMPT;
	start(&o);
}

/*
 * One flow has 200 requests, another flow has one now and then.  That one waits
 * for one place, not for the hundreds before it.  The same with hardly any
 * memory: then the daemon gives the places, and it knows no flows.
 */
START_TEST(test_one_does_not_wait_for_hundreds)
{
	const u32 max_new = _i ? 8 : 20;
	u32 i, n, longest = 0;
	struct job *j;

	fk.nr_blocks = _i ? 24 : 256;
	jobs_start(_i ? 16 : 4);
	prompt_len = _i ? 2 * PROMPT : PROMPT;
	jobs_send(200, 1, max_new);
	for (n = 0; n < 6; n++) {
		for (i = 0; i < 25; i++)
			step();
		j = job_send(2, 0, max_new);
		while (!j->over)
			step();
		longest = max(longest, j->first - j->sent);
	}
	ck_assert(!jobs[199].over);
	printf("  %s: waits of 6 up to %u forwards, a residency is up to %u\n",
	       _i ? "little memory" : "ample memory", longest, residency());
	ck_assert_uint_le(longest, 2 * residency());
	run();
	for (i = 0; i < nr_jobs; i++)
		ck_assert(jobs[i].over);
}
END_TEST

/* One flow has ten times as many requests, three times as long: it gets no more tokens. */
START_TEST(test_flows_share_evenly)
{
	u32 a, b, i;

	jobs_start(4);
	for (i = 0; i < 100; i++)
		job_send(1, 0, 30);
	jobs_send(10 + 40 * (u32)_i, 2, 10);
	while (!jobs[nr_jobs - 1].tokens)
		step();
	a = given(1);
	b = given(2);
	printf("  100 x %u tokens to %u x %u: given %u and %u\n", PROMPT + 30,
	       10 + 40 * _i, PROMPT + 10, a, b);
	/* The flows differ at most by the requests that may be open at once. */
	ck_assert_uint_le(a, b + 8 * (PROMPT + 30));
	ck_assert_uint_le(b, a + 8 * (PROMPT + 30));
	run();
}
END_TEST

/* A flow cannot save its unused share; tokens that it used alone are no debt. */
START_TEST(test_nobody_saves_up)
{
	u32 a, b;

	jobs_start(4);
	jobs_send(100, 1 + (u32)_i, 20);
	while (!jobs[40].over)
		step();
	if (_i) {	/* no request waits for a moment: all flows begin anew */
		run();
		jobs_send(60, 2, 20);
	}
	a = given(1);
	b = given(2);
	jobs_send(60, 2 - (u32)_i, 20);
	while (!jobs[nr_jobs - 30].over)
		step();
	a = given(1) - a;
	b = given(2) - b;
	printf("  one was alone before: given %u and %u since\n", a, b);
	ck_assert_uint_le(a, b + 8 * (PROMPT + 20));
	ck_assert_uint_le(b, a + 8 * (PROMPT + 20));
	run();
}
END_TEST

/* Priority comes before fairness; each priority is fair by itself. */
START_TEST(test_priority_is_first)
{
	u32 i;

	jobs_start(2);
	jobs_send(40, 1, 12);
	jobs_send(10, 2, 12);
	while (!jobs[10].over)
		step();
	for (i = 0; i < 6; i++)
		job_send(1, 5, 12);
	nr_begun = 0;
	while (!jobs[nr_jobs - 1].over)
		step();
	for (i = nr_jobs - 6; i < nr_jobs; i++)
		ck_assert_uint_le(jobs[i].order, 6 + 5);
	run();
}
END_TEST

/* Prompts with a cached prefix go first, up to a limit. */
START_TEST(test_longest_prefix_is_next)
{
	struct engine_opts o = { .max_batch = 1, .max_seqs = 2,
				 .schedule = ENGINE_PREFIX };
	u32 i, before = 0;

	nr_jobs = nr_begun = 0;
	prompt_len = PROMPT;
	start(&o);
	job_send(1, 0, 4);
	run();
	for (i = 0; i < 4; i++)
		job_send(1, 0, 4);
	for (i = 0; i < 25; i++)
		ck_assert_int_eq(job_try(1, 0, 0, PROMPT, 4), 0);
	run();
	for (i = 5; i < nr_jobs; i++)
		before += jobs[i].order < jobs[1].order;
	printf("  %u of 25 with a known prefix overtook the first\n", before);
	ck_assert_uint_ge(before, 15);
	ck_assert_uint_le(before, 16 + 1);
	for (i = 2; i < 5; i++)
		ck_assert_uint_le(jobs[i].order, jobs[1].order + 4);
}
END_TEST

START_TEST(test_a_flow_is_bounded)
{
	const struct engine_opts o = { .max_flow = 3 };
	u32 i;

	nr_jobs = 0;
	prompt_len = PROMPT;
	start(&o);
	jobs_send(3, 1, 10);
	ck_assert_int_eq(job_try(1, 0, 9, PROMPT, 4), -EBUSY);
	jobs_send(3, 2, 10);
	jobs_send(5, 0, 10);		/* without a flow, no bound */
	run();
	jobs_send(3, 1, 10);
	ck_assert_int_eq(job_try(1, 0, 9, PROMPT, 4), -EBUSY);
	run();
	for (i = 0; i < 3; i++)
		ck_assert(jobs[i].over);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine-queue");
	TCase *tc = tcase_create("ends");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, test_deadline_in_the_queue);
	tcase_add_loop_test(tc, test_deadline_at_work, 0, 12);
	tcase_add_test(tc, test_deadlines_in_any_order);
	tcase_add_test(tc, test_deadline_ends_a_sleep);
	tcase_add_loop_test(tc, test_cancel_frees_within_the_open_steps, 0, 6);
	tcase_add_test(tc, test_times_are_parts);
	suite_add_tcase(s, tc);
	tc = tcase_create("turns");
	tcase_set_timeout(tc, 60);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, test_one_does_not_wait_for_hundreds, 0, 2);
	tcase_add_loop_test(tc, test_flows_share_evenly, 0, 2);
	tcase_add_loop_test(tc, test_nobody_saves_up, 0, 2);
	tcase_add_test(tc, test_priority_is_first);
	tcase_add_test(tc, test_longest_prefix_is_next);
	tcase_add_test(tc, test_a_flow_is_bounded);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
