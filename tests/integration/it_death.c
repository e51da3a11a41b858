// SPDX-License-Identifier: Apache-2.0
/*
 * it_death.c - clients and daemons that stop or die at any moment
 *
 * budget: 80 s, full 300 s
 *
 * A witness generates all the time; its text is known from a run alone.  Beside
 * it a victim is killed at random points or stopped inside a step, or the
 * daemon itself is killed.  The witness's text must never change, the walkers
 * must find no fault, and the blocks that the victim computed must be cached
 * for its successor.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/integration/harness.h"
#include "tests/integration/prompts.h"

#define POOL	"48M"
#define DAEMON_DIED "kvrt: error: the kvmm daemon died; kvmm-hold starts it again: run this command again\n"

static struct rig rig;
static struct samples truth;	/* text of the witness alone */
static struct job witness;
static char witness_prompts[RIG_PATH + 32];

static struct job witness_start(void)
{
	return job_start(&rig, KVRT_GENERATE, demo_model(),
			 "--prompt-file", witness_prompts, "--temperature", "0",
			 "--max-tokens", "40", "--ignore-eos", "-n", "2",
			 "--threads", "1", "--json", NULL);
}

/* The witness has ended: check its exit code and its text. */
static void witness_judge(int code)
{
	struct samples s;

	if (code)
		ck_abort_msg("the witness ended with %d:\n%s", code,
			     slurp(witness.err));
	samples_read(&s, witness.out);
	samples_equal(&truth, &s);
	samples_free(&s);
	unlink(witness.out);
	unlink(witness.err);
}

/* Start the witness again when it ends; judge each of its runs. */
static u32 witness_poll(void)
{
	int code;

	if (!job_ended(&witness, &code))
		return 0;
	witness_judge(code);
	witness = witness_start();
	return 1;
}

static void witness_finish(void)
{
	witness_judge(job_wait(&witness, 60));
}

static void setup_with(const char *pool, const char *deadline)
{
	rig_start(&rig, "--adopt", "off", "--pool-size", pool,
		  "--extent-size", "512K",
		  "--step-deadline-ms", deadline, NULL);
	snprintf(witness_prompts, sizeof(witness_prompts), "%s/witness.txt",
		 rig.dir);
	prompts_write(witness_prompts, 0, 6, "");
	witness = witness_start();
	ck_assert_int_eq(job_wait(&witness, 60), 0);
	samples_read(&truth, witness.out);
	ck_assert_uint_eq(truth.nr, 12);
}

static struct job victim_start(const char *prompts, const char *tokens)
{
	return job_start(&rig, KVRT_GENERATE, demo_model(),
			 "--prompt-file", prompts, "--temperature", "0",
			 "--max-tokens", tokens, "--ignore-eos", "--threads",
			 "1", "--json", "--quiet", NULL);
}

/* Number of prompt tokens that a new runtime finds cached. */
static u32 cached_after(const char *prompts)
{
	struct job j = job_start(&rig, KVRT_GENERATE, demo_model(),
				 "--prompt-file", prompts, "--temperature", "0",
				 "--max-tokens", "1", "--threads", "1",
				 "--json", NULL);
	struct samples s;
	u32 i, cached = 0;

	if (job_wait(&j, 60))
		ck_abort_msg("the successor failed:\n%s", slurp(j.err));
	samples_read(&s, j.out);
	for (i = 0; i < s.nr; i++)
		cached += s.s[i].cached;
	samples_free(&s);
	unlink(j.out);
	unlink(j.err);
	return cached;
}

/* Kill a victim with new prompts @ms after its start.  Return: had it ended before? */
static bool kill_after(u32 ms, u32 round, const char *prompts, u32 *witnessed)
{
	const s64 attached = rig_value(&rig, "vmstat", "client_attach");
	char tag[32];
	struct job victim;
	int rc;

	snprintf(tag, sizeof(tag), "Round %u of %u:", round, random_below(1000));
	prompts_write(prompts, 100, 8, tag);
	victim = victim_start(prompts, "800");
	/* A busy machine starts it late. */
	if (ms >= 100)
		rig_await(&rig, "vmstat", "client_attach", attached + 1, 20);
	while (ms) {
		u32 part = min(ms, 20u);

		nap_ms(part);
		ms -= part;
		*witnessed += witness_poll();
	}
	job_kill(&victim, SIGKILL);
	rc = job_wait(&victim, 10);
	ck_assert_msg(rc == 128 + SIGKILL || !rc, "the victim ended with %d", rc);
	return rc == 0;
}

/*
 * One round: a victim is killed after it sealed some blocks, or at any moment.
 * The life of a victim varies; if one ended before the kill, the next one gets
 * half the time.
 */
static void kill_round(u32 round, u32 *cached, u32 *witnessed)
{
	bool early = round % 4 == 3;
	char prompts[RIG_PATH + 32];
	u32 found, ms;
	s64 before;

	snprintf(prompts, sizeof(prompts), "%s/victim.txt", rig.dir);
	ms = early ? 1 + random_below(60) :
	     (100 + random_below(400)) * time_scale();
	do
		before = rig_value(&rig, "vmstat", "client_death");
	while (kill_after(ms, round, prompts, witnessed) && (ms /= 2));
	ck_assert_msg(ms, "round %u: each victim ended before it was killed", round);
	rig_walk(&rig);
	*witnessed += witness_poll();
	if (early)
		return;

	rig_await(&rig, "vmstat", "client_death", before + 1, 10);
	found = cached_after(prompts);
	ck_assert_msg(found > 0, "round %u: nothing cached after the death",
		      round);
	*cached += found;
}

START_TEST(test_kill_runtime)
{
	u32 rounds = by_level(4, 67, 200), i, cached = 0, witnessed = 0;

	setup_with(POOL, "30000");
	witness = witness_start();
	for (i = 0; i < rounds; i++)
		kill_round(i, &cached, &witnessed);
	witness_finish();
	rig_walk(&rig);
	ck_assert_int_eq(rig_value(&rig, "meminfo", "Quarantine"), 0);
	printf("  %u kills, witness judged %u times, %u cached tokens found by successors, deaths %lld, blocks quarantined %lld\n",
	       rounds, witnessed + 1, cached,
	       (long long)rig_value(&rig, "vmstat", "client_death"),
	       (long long)rig_value(&rig, "vmstat", "quarantine"));
	rig_stop(&rig);
}
END_TEST

/* Stop the victim, the only client, at a moment when it is inside a step. */
static void stop_inside_a_step(struct job *victim)
{
	u32 tries;

	rig_await(&rig, "vmstat", "step_begin", rig_value(&rig, "vmstat",
		  "step_begin") + 5, 20);
	for (tries = 0; tries < 200; tries++) {
		job_kill(victim, SIGSTOP);
		nap_ms(5);
		if (rig_value(&rig, "client/0/status", "OpenSteps") > 0)
			return;
		job_kill(victim, SIGCONT);
		nap_ms(1 + random_below(10));
	}
	ck_abort_msg("never found inside a step");
}

START_TEST(test_stop_runtime)
{
	char prompts[RIG_PATH + 32];
	struct job victim;
	int code;

	/* So small that the witness needs the memory of the stopped victim. */
	setup_with("2M", "1500");
	snprintf(prompts, sizeof(prompts), "%s/victim.txt", rig.dir);
	prompts_write(prompts, 100, 6, "Stopped:");
	victim = victim_start(prompts, "300");
	stop_inside_a_step(&victim);
	witness = witness_start();
	witness_finish();
	rig_walk(&rig);
	ck_assert(job_ended(&victim, &code));
	ck_assert_int_eq(code, 128 + SIGKILL);
	ck_assert_int_ge(rig_value(&rig, "vmstat", "client_kill"), 1);
	printf("  the one stopped in a step was killed: its memory was wanted\n");
	rig_walk(&rig);
	rig_stop(&rig);
}
END_TEST

/* The daemon dies: runtimes end with one line, and hold starts the next daemon. */
START_TEST(test_kill_daemon)
{
	u32 rounds = by_level(3, 10, 30), i;
	struct job run;
	char prompts[RIG_PATH + 32];
	pid_t old;
	char *err;
	int code;

	setup_with(POOL, "30000");
	snprintf(prompts, sizeof(prompts), "%s/victim.txt", rig.dir);
	prompts_write(prompts, 100, 24, "Daemon:");
	for (i = 0; i < rounds; i++) {
		const s64 steps = rig_value(&rig, "vmstat", "step_begin");

		run = victim_start(prompts, "800");
		/* A runtime that is not attached yet prints another line. */
		rig_await(&rig, "vmstat", "step_begin", steps + 1, 20);
		nap_ms(random_below(300));
		old = rig_daemon(&rig);
		ck_assert_int_gt(old, 0);
		kill(old, SIGKILL);
		code = job_wait(&run, 20);
		err = slurp(run.err);
		ck_assert_msg(code == 75, "kvrt ended with %d:\n%s", code, err);
		ck_assert_str_eq(err, DAEMON_DIED);
		free(err);
		rig_await(&rig, "vmstat", "step_begin", 0, 20);
		ck_assert_int_ne(rig_daemon(&rig), old);
		ck_assert_int_eq(rig_value(&rig, "vmstat", "client_attach"), 0);
		witness = witness_start();
		witness_finish();
		rig_walk(&rig);
	}
	rig_stop(&rig);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("death");
	TCase *tc = tcase_create("kill-and-stop");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 1200);
	tcase_add_test(tc, test_kill_runtime);
	tcase_add_test(tc, test_stop_runtime);
	tcase_add_test(tc, test_kill_daemon);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
