// SPDX-License-Identifier: Apache-2.0
/*
 * check_engine_times.c - the stamps of a request, by a clock of the test
 *
 * The clock moves only between iterations and within a forward, each time by
 * another amount.  So every stamp has one right value.  The test computes it
 * from the batches of the model and the calls of the callbacks, not from the
 * engine's states.
 */
#include <libkvmm.h>

#include "runtime/engine/internal.h"
#include "runtime/model/model.h"

/* The functions below wrap those of the fakes. */
static int fk_status(const struct kvmm *k, u64 seq, struct kvmm_seq_status *st);
static int fm_forward(struct model *m, const struct model_kv *kv,
		      const struct model_seq_in *seqs, u32 nr_seqs,
		      const struct model_draws *draws, float *logits);
#define kvmm_seq_status(k, seq, st)	fk_status(k, seq, st)
#define model_forward_draw(m, kv, s, nr, d, out)	fm_forward(m, kv, s, nr, d, out)
#include "tests/unit/engine_fixture.h"
#undef kvmm_seq_status
#undef model_forward_draw

#include "runtime/server/times.h"
#include "tests/usdt.h"

/* Events that the probes must fire, while they are traced. */
static struct usdt_wants *want;

/* The right times of a request. */
struct truth {
	struct engine_times	t;
	u32			high;		/* positions computed so far */
	u32			lost;		/* of these, at a preemption; 0: none */
	s64			lost_at;
};

static s64 clock_ns;
static u32 ticks;
static struct truth truths[MAX_REQ];

s64 engine_now(void)
{
	return clock_ns;
}

/* Each step of the clock differs, so that no two intervals are confused. */
static void tick(void)
{
	clock_ns += 1000000 + 7000 * ++ticks;
}

/* Find the request of a sequence, by its handle or by the address of its ids. */
static struct truth *truth_of(u64 handle, const u32 *tokens)
{
	u32 i;

	for (i = 0; i < engine->nr_live; i++) {
		const struct seq *s = engine->live[i];

		if (tokens ? tokens >= s->ids && tokens < s->ids + s->cap :
		    s->opened && s->handle == handle)
			return &truths[(struct ask *)s->req->c.arg - asks];
	}
	ck_abort_msg("nobody's sequence");
	return NULL;
}

/* The sequence has all computed positions again. */
static void found(struct truth *t, u32 end)
{
	if (!t->lost || end < t->lost)
		return;
	t->t.preempted += clock_ns - t->lost_at;
	t->lost = 0;
}

/* A sequence that was swapped in has all its positions when it is READY. */
int kvmm_seq_status(const struct kvmm *k, u64 seq, struct kvmm_seq_status *st)
{
	const int ret = fk_status(k, seq, st);

	if (!ret && st->state == KVMM_SEQ_READY)
		found(truth_of(seq, NULL), st->valid_len);
	return ret;
}

int model_forward_draw(struct model *m, const struct model_kv *kv,
		       const struct model_seq_in *seqs, u32 nr_seqs,
		       const struct model_draws *draws, float *logits)
{
	const int ret = fm_forward(m, kv, seqs, nr_seqs, draws, logits);
	const s64 begun = clock_ns;
	u32 i, rows = 0;

	tick();
	for (i = 0; i < nr_seqs; i++)
		rows += seqs[i].nr_tokens;
	if (want) {
		usdt_want(want, "step_begin", USDT_ANY, nr_seqs, rows);
		usdt_want(want, "step_end", USDT_ANY, nr_seqs, rows,
			  (u64)(clock_ns - begun) / 1000,
			  (u64)(clock_ns - begun) / 1000);
	}
	for (i = 0; i < nr_seqs; i++) {
		struct truth *t = truth_of(0, seqs[i].tokens);
		const u32 end = seqs[i].start + seqs[i].nr_tokens;

		if (!t->t.scheduled && want)
			usdt_want(want, "request_scheduled", asks[t - truths].id,
				  (u64)(begun - t->t.queued) / 1000);
		if (!t->t.scheduled)
			t->t.scheduled = begun;
		found(t, end);
		t->high = max(t->high, end);
	}
	return ret;
}

static void token_here(struct ask *a)
{
	struct truth *t = &truths[a - asks];

	if (!t->t.first && want)
		usdt_want(want, "first_token", a->id,
			  (u64)(clock_ns - t->t.queued) / 1000);
	if (!t->t.first)
		t->t.first = clock_ns;
	t->t.last = clock_ns;
}

static void on_token_timed(void *arg, u32 sample, const struct engine_token *tok)
{
	token_here(arg);
	on_token(arg, sample, tok);
}

static void on_done_timed(void *arg, const struct engine_done *done)
{
	struct ask *a = arg;

	/* A stop id is a token that the callback does not get. */
	if (done->reason == ENGINE_STOP)
		token_here(a);
	on_done(arg, done);
	if (want)
		usdt_want(want, "sample_done", a->id, done->sample, done->reason,
			  a->got[done->sample].nr,
			  (u64)(clock_ns - truths[a - asks].t.queued) / 1000);
}

static void times_setup(void)
{
	setup();
	clock_ns = 1000000000000ll;
	ticks = 0;
	memset(truths, 0, sizeof(truths));
}

static struct ask *ask_timed(u32 i, u32 from, u32 nr, u32 max_new, u32 n)
{
	struct ask *a = ask(i, from, nr, max_new, n);

	if (i % 2) {
		a->c.stops = &stop_id;
		a->c.nr_stops = 1;
	}
	a->c.on_token = on_token_timed;
	a->c.on_done = on_done_timed;
	tick();
	truths[i].t.queued = clock_ns;
	submit(a);
	if (want)
		usdt_want(want, "request_queued", a->id, nr, max_new, n, 0);
	return a;
}

/* One iteration, some time after the last one. */
static int iterate(void)
{
	tick();
	return engine_step(engine, 0);
}

/* The daemon takes the memory of a sequence, and the engine sees it. */
static void take_memory(struct seq *s)
{
	struct truth *t = truth_of(s->handle, NULL);

	tick();
	fk_mark(fk_find(s->handle)->family);
	t->lost = t->high;
	t->lost_at = clock_ns;
	t->t.preemptions++;
	if (want)
		usdt_want(want, "preempted", asks[t - truths].id, s->sample,
			  t->high, s->len);
	ck_assert(!seq_is_resident(engine, s));
}

/* Is the sequence in no open step, and does it have all its positions? */
static bool may_lose(const struct seq *s)
{
	return s->state == SEQ_RUNNING && !s->nr_open && s->computed &&
		!truth_of(s->handle, NULL)->lost;
}

static void check_times(u32 i)
{
	const struct engine_times *t = &truths[i].t;
	u32 k, last = 0;

	for (k = 0; k < max(asks[i].c.n, 1u); k++)
		if (asks[i].got[k].done.times.last >=
		    asks[i].got[last].done.times.last)
			last = k;
#define x(name)								\
	ck_assert_msg(asks[i].got[last].done.times.name == t->name,	\
		      "request %u: %s is %lld, want %lld", i, #name,	\
		      (long long)asks[i].got[last].done.times.name,	\
		      (long long)t->name);
	x(queued) x(scheduled) x(first) x(last) x(preempted) x(preemptions)
#undef x
}

/* Prompts in chunks; some requests wait for a place, have samples or a stop id. */
START_TEST(test_stamps)
{
	static const struct engine_opts o = { .max_seqs = 6, .chunk = 5 };
	u32 i;

	fk.seed += (u32)_i;
	start(&o);
	for (i = 0; i < 8; i++) {
		ask_timed(i, i * 7 + 1, 6 + i, 9, i % 3 == 2 ? 3 : 1);
		ck_assert_int_ge(iterate(), 0);
	}
	while (iterate() > 0)
		;
	run();			/* no request is left */
	for (i = 0; i < 8; i++) {
		check_ask(&asks[i]);
		check_times(i);
		ck_assert_int_gt(truths[i].t.scheduled, truths[i].t.queued);
		ck_assert_int_gt(truths[i].t.first, truths[i].t.scheduled);
		ck_assert_int_eq(truths[i].t.preempted, 0);
	}
}
END_TEST

/* Preemptions by recompute and by swap, in prompts and after them. */
START_TEST(test_preempted)
{
	static const struct engine_opts o = { .max_steps = 1, .chunk = 5 };
	u32 i, at, nr = 0;

	fk.seed += (u32)_i;
	fk.swap = _i % 2 ? 1000 : 0;
	start(&o);
	for (i = 0; i < 4; i++)
		ask_timed(i, i * 7 + 1, 12 + i, 12, 1);
	for (at = 0; iterate() > 0; at++) {
		struct seq *s = engine->live[at % max(engine->nr_live, 1u)];

		if (at % 3 || !engine->nr_live || !may_lose(s))
			continue;
		take_memory(s);
		nr++;
	}
	ck_assert_uint_ge(nr, 2);
	for (i = 0; i < 4; i++) {
		check_ask(&asks[i]);
		check_times(i);
		ck_assert_int_eq(!truths[i].t.preempted,
				 !truths[i].t.preemptions);
	}
}
END_TEST

/*
 * A sequence loses its memory in an open step.  The step ends well, and the
 * sequence is preempted all the same.
 */
START_TEST(test_preempted_in_a_step)
{
	static const struct engine_opts o = { .max_steps = 2, .chunk = 5 };
	struct seq *s = NULL;
	u32 waits = 0;

	start(&o);
	ask_timed(0, 1, 12, 12, 1);
	while (!s || !s->nr_open || s->state != SEQ_RUNNING) {
		ck_assert_int_gt(iterate(), 0);
		s = engine->live[0];
	}
	take_memory(s);
	for (; s->lost; waits++) {
		ck_assert(s->behind);
		ck_assert_int_gt(iterate(), 0);
	}
	ck_assert_uint_gt(waits, 1);
	while (iterate() > 0)
		;
	check_ask(&asks[0]);
}
END_TEST

/* While one sample is preempted, another ends: each end reports the preempted time. */
START_TEST(test_preempted_together)
{
	static const struct engine_opts o = { .max_steps = 1 };
	struct engine_times t;
	s64 lost_at;
	u32 i;

	start(&o);
	ask_timed(0, 3, 10, 30, 2);
	for (i = 0; engine->nr_live < 2 || !may_lose(engine->live[0]) ||
	     !may_lose(engine->live[1]); i++)
		ck_assert_int_gt(iterate(), 0);
	tick();
	lost_at = clock_ns;
	fk.nr_blocks = 0;		/* no sequence comes back */
	fk_mark(fk_find(engine->live[0]->handle)->family);
	ck_assert(!seq_is_resident(engine, engine->live[0]));
	tick();
	ck_assert(!seq_is_resident(engine, engine->live[1]));
	tick();
	ck_assert_int_eq(engine_cancel_sample(engine, asks[0].id, 0), 0);
	t = asks[0].got[0].done.times;
	ck_assert_uint_eq(t.preemptions, 2);
	ck_assert_int_eq(t.preempted, clock_ns - lost_at);
	for (i = 0; i < 5; i++)
		ck_assert_int_gt(iterate(), 0);
	ck_assert_int_eq(engine_cancel(engine, asks[0].id), 0);
	t = asks[0].got[1].done.times;
	ck_assert_int_eq(t.preempted, clock_ns - lost_at);
	fk.nr_blocks = 128;
	while (iterate() > 0)
		;
}
END_TEST

START_TEST(test_never_scheduled)
{
	struct engine_times t;

	start(NULL);
	ask_timed(0, 3, 10, 30, 1);
	tick();
	ck_assert_int_eq(engine_cancel(engine, asks[0].id), 0);
	t = asks[0].got[0].done.times;
	ck_assert_int_eq(t.queued, truths[0].t.queued);
	ck_assert(!t.scheduled && !t.first && !t.last && !t.preempted);
	while (iterate() > 0)
		;
}
END_TEST

/* ---- probes ---- */

#if defined(KV_HAVE_PROBES) && defined(__x86_64__)

static struct usdt_file file;

/* Three requests; one of them is preempted. */
static void scene(void)
{
	static const struct engine_opts o = { .max_steps = 1, .chunk = 5 };
	bool taken = false;
	u32 i;

	times_setup();
	start(&o);
	for (i = 0; i < 3; i++) {
		ask_timed(i, i * 7 + 1, 6 + i, 9, 1 + i % 2);
		usdt_want(want, "request_opened", asks[i].id, USDT_ANY, USDT_ANY);
		usdt_want_among(want, "request_admitted", asks[i].id, USDT_ANY,
				6 + i, 0);
	}
	while (iterate() > 0) {
		if (taken || !engine->nr_live || !may_lose(engine->live[0]))
			continue;
		usdt_want(want, "restored", asks[0].id, USDT_ANY, USDT_ANY,
			  engine->live[0]->len);
		take_memory(engine->live[0]);
		taken = true;
	}
	ck_assert(taken);
	for (i = 0; i < 3; i++)
		check_ask(&asks[i]);
}

START_TEST(test_probes)
{
	struct usdt_hit *hits = calloc(USDT_HITS, sizeof(*hits));
	u32 nr;
	int err;

	want = usdt_wants_make();
	ck_assert(want && hits && !usdt_read("/proc/self/exe", &file));
	err = usdt_trace(&file, scene, hits, &nr);
	if (err == -EPERM) {
		puts("note: ptrace is forbidden here: no probe of the engine was traced");
		return;
	}
	ck_assert_int_eq(err, 0);
	ck_assert(usdt_compare(want, hits, nr));
	free(hits);
}
END_TEST
#endif

/* ---- the server's metrics of these times ---- */

static struct metrics seen;

/* @h has one observation, of @ns. */
static void check_seen(enum metric_histogram h, u64 nr, s64 ns)
{
	u64 sum = 0;
	u32 i;

	for (i = 0; i <= METRIC_BOUNDS_MAX; i++)
		sum += seen.h[h].count[i];
	ck_assert_uint_eq(sum, nr);
	ck_assert_double_eq_tol(seen.h[h].sum, (double)ns / 1e9, 1e-12);
}

START_TEST(test_observed)
{
	static const struct engine_times prompts[] = {
		{ .queued = 100, .scheduled = 5000, .first = 9000, .last = 20000,
		  .preempted = 30, .preemptions = 1 },
		{ .queued = 200, .scheduled = 4000, .first = 9500, .last = 31000,
		  .preempted = 700, .preemptions = 2 },
		{ .queued = 300 },
	};
	struct engine_times t = { 0 };
	u32 i;

	memset(&seen, 0, sizeof(seen));
	times_observe(&seen, &prompts[2]);
	check_seen(METRIC_request_queue_time_seconds, 0, 0);
	for (i = 0; i < ARRAY_SIZE(prompts); i++)
		times_add(&t, &prompts[i]);
	times_observe(&seen, &t);
	check_seen(METRIC_request_queue_time_seconds, 1, 4000 - 100);
	check_seen(METRIC_request_prefill_time_seconds, 1, 9000 - 4000);
	check_seen(METRIC_request_decode_time_seconds, 1, 31000 - 9000);
	check_seen(METRIC_request_inference_time_seconds, 1, 31000 - 4000);
	check_seen(METRIC_request_preempted_time_seconds, 1, 700);
	t.preemptions = 0;
	times_observe(&seen, &t);
	check_seen(METRIC_request_queue_time_seconds, 2, 2 * (4000 - 100));
	check_seen(METRIC_request_preempted_time_seconds, 1, 700);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine-times");
	TCase *tc = tcase_create("times");
	SRunner *sr;
	int failed;

	tcase_add_checked_fixture(tc, times_setup, teardown);
	tcase_add_loop_test(tc, test_stamps, 0, 10);
	tcase_add_loop_test(tc, test_preempted, 0, 20);
	tcase_add_test(tc, test_preempted_in_a_step);
	tcase_add_test(tc, test_preempted_together);
	tcase_add_test(tc, test_never_scheduled);
	tcase_add_test(tc, test_observed);
#if defined(KV_HAVE_PROBES) && defined(__x86_64__)
	tcase_add_test(tc, test_probes);
#endif
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
