// SPDX-License-Identifier: Apache-2.0
/*
 * it_pools.c - one daemon with two device pools, and a model in each
 *
 * budget: 60 s
 *
 * Two runtimes work at once, each in the pool that it asked for; one pool is far too
 * small for its load.  The other one must not notice it.  Then kvmm is killed, and the
 * device of one pool fails.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/integration/harness.h"

#define POOLS	"--backend", "host", "--pool", "host:1M", "--pool", "host:4M", \
		"--extent-size", "64K", "--host-size", "1M"

static struct rig rig;

static struct job generate(const char *pool, const char *domain, const char *n,
			   const char *tokens)
{
	return job_start(&rig, KVRT_GENERATE, demo_model(), "In", "-n", n,
			 "--max-tokens", tokens, "--ignore-eos", "--seed", "7", "--mode",
			 "exact", "--json", "--pool", pool, "--domain", domain, NULL);
}

static char *node_log(void)
{
	char path[RIG_PATH + 32];

	snprintf(path, sizeof(path), "%s/job-0.err", rig.dir);
	return slurp(path);
}

/* Both must end well, and print what @truth of each has. */
static void expect_texts(struct job *a, struct job *b, const struct samples *truth_a,
			 const struct samples *truth_b)
{
	struct samples got;

	ck_assert_msg(!job_wait(a, 60 * time_scale()), "%s", slurp(a->err));
	ck_assert_msg(!job_wait(b, 60 * time_scale()), "%s", slurp(b->err));
	samples_read(&got, a->out);
	samples_equal(&got, truth_a);
	samples_free(&got);
	samples_read(&got, b->out);
	samples_equal(&got, truth_b);
	samples_free(&got);
}

/* The texts of one runtime after the other. */
static void truths(struct samples *a, struct samples *b)
{
	struct job j = generate("gpu1", "one", "12", "160");

	ck_assert_msg(!job_wait(&j, 60 * time_scale()), "%s", slurp(j.err));
	samples_read(a, j.out);
	j = generate("gpu1", "two", "4", "160");
	ck_assert_msg(!job_wait(&j, 60 * time_scale()), "%s", slurp(j.err));
	samples_read(b, j.out);
}

/* Wait until both pools are in use. */
static void await_use(void)
{
	const u64 end = now_ms() + 30000 * time_scale();

	while (!rig_pool_value(&rig, "gpu0", "used_kb") ||
	       !rig_pool_value(&rig, "gpu1", "used_kb")) {
		ck_assert_msg(now_ms() < end, "no use:\n%s", node_log());
		nap_ms(5);
	}
}

START_TEST(test_one_is_too_small)
{
	struct samples truth_a, truth_b;
	struct job a, b;

	rig_start(&rig, POOLS, NULL);
	truths(&truth_a, &truth_b);
	a = generate("gpu0", "small", "12", "160");
	b = generate("gpu1", "large", "4", "160");
	await_use();
	ck_assert_uint_eq(rig_pool_value(&rig, "gpu0", "domains"), 1);
	expect_texts(&a, &b, &truth_a, &truth_b);
	/* The small pool preempts; the domain in the large one loses nothing. */
	ck_assert_int_gt(rig_value(&rig, "domain/small/memory.events", "preempt"), 0);
	ck_assert_int_eq(rig_value(&rig, "domain/large/memory.events", "preempt"), 0);
	rig_walk(&rig);
	samples_free(&truth_a);
	samples_free(&truth_b);
	rig_stop(&rig);
}
END_TEST

/* Without a wish a domain is made where there is more room. */
START_TEST(test_auto)
{
	struct job a, b;

	rig_start(&rig, POOLS, NULL);
	a = generate("auto", "first", "1", "8");
	ck_assert_int_eq(job_wait(&a, 60 * time_scale()), 0);
	ck_assert_uint_eq(rig_pool_value(&rig, "gpu1", "domains"), 1);
	b = generate("gpu0", "second", "1", "8");
	ck_assert_int_eq(job_wait(&b, 60 * time_scale()), 0);
	ck_assert_uint_eq(rig_pool_value(&rig, "gpu0", "domains"), 1);
	a = generate("gpu7", "third", "1", "8");
	ck_assert_int_ne(job_wait(&a, 60 * time_scale()), 0);
	rig_stop(&rig);
}
END_TEST

/* Run one, which must be refused with these words. */
static void refused(const char *pool, const char *domain, const char *says)
{
	struct job j = generate(pool, domain, "1", "8");
	char *err;

	ck_assert_int_ne(job_wait(&j, 60 * time_scale()), 0);
	err = slurp(j.err);
	ck_assert_msg(strstr(err, says) != NULL, "does not say '%s':\n%s", says, err);
	free(err);
}

/* Words about pools name them. */
START_TEST(test_words)
{
	struct job a, b;
	char *log;

	rig_start(&rig, POOLS, NULL);
	refused("gpu7", "mover", "kvmm has no device pool gpu7, it has gpu0 and gpu1: ");
	a = generate("gpu0", "mover", "1", "64");
	ck_assert_msg(!job_wait(&a, 60 * time_scale()), "%s", slurp(a.err));
	b = generate("gpu1", "mover", "4", "300");
	while (!rig_pool_value(&rig, "gpu1", "used_kb"))
		nap_ms(5);
	refused("gpu0", "mover",
		"domain mover is in use in the device pool gpu1: ask for --pool gpu1 or auto, ");
	ck_assert_msg(!job_wait(&b, 60 * time_scale()), "%s", slurp(b.err));
	b = job_start(&rig, "kvctl", "shrink_cost", NULL);
	ck_assert_int_eq(job_wait(&b, 60), 0);
	log = slurp(b.out);
	/* The only domain is in gpu1: its cache counts there alone. */
	ck_assert_msg(strstr(log, "pool gpu0:\n") && strstr(log, "pool gpu1:\n"), "%s", log);
	free(log);
	log = node_log();
	ck_assert_msg(strstr(log, "domain mover: moved from gpu0 to gpu1, "), "%s", log);
	ck_assert_msg(!strstr(log, "another model identity"), "%s", log);
	ck_assert_msg(strstr(log, "pool gpu0: 1M on host, 16 extents\n"), "%s", log);
	ck_assert_msg(strstr(log, "pool gpu1: 4M on host, 64 extents\n"), "%s", log);
	ck_assert_msg(strstr(log, "pools of 5M on host, 80 extents of 64K, "), "%s", log);
	free(log);
	rig_stop(&rig);
}
END_TEST

/* The next kvmm adopts the domains of both pools. */
START_TEST(test_adopted)
{
	struct samples truth_a, truth_b;
	struct job a, b;
	char *log;

	rig_start(&rig, POOLS, NULL);
	truths(&truth_a, &truth_b);
	a = generate("gpu0", "small", "12", "160");
	b = generate("gpu1", "large", "4", "160");
	await_use();
	kill(rig_daemon(&rig), SIGKILL);
	expect_texts(&a, &b, &truth_a, &truth_b);
	log = node_log();
	ck_assert_msg(strstr(log, "adopted 4 domains"), "%s", log);
	free(log);
	rig_walk(&rig);
	samples_free(&truth_a);
	samples_free(&truth_b);
	rig_stop(&rig);
}
END_TEST

/* The device of one pool fails: its runtime ends, that of the other pool does not. */
START_TEST(test_device_fails)
{
	struct samples truth_a, truth_b;
	struct samples got;
	struct job a, b;
	char *log, *at;

	rig_start(&rig, POOLS, NULL);
	truths(&truth_a, &truth_b);
	rig_stop(&rig);
	/* The third extent of gpu0. */
	setenv("KVMM_FAULT", "pool_lost:3", 1);
	rig_start(&rig, POOLS, NULL);
	unsetenv("KVMM_FAULT");
	b = generate("gpu1", "two", "4", "160");
	while (!rig_pool_value(&rig, "gpu1", "used_kb"))
		nap_ms(5);
	a = generate("gpu0", "one", "12", "160");
	ck_assert_int_ne(job_wait(&a, 60 * time_scale()), 0);
	log = slurp(a.err);
	at = strstr(log, "kvmm has lost what");
	ck_assert_msg(at && !strstr(at + 1, "kvmm has lost what"), "%s", log);
	free(log);
	ck_assert_msg(!job_wait(&b, 60 * time_scale()), "%s", slurp(b.err));
	samples_read(&got, b.out);
	samples_equal(&got, &truth_b);
	samples_free(&got);
	log = node_log();
	at = strstr(log, "gpu0: the device of the pool failed");
	ck_assert_msg(at && !strstr(at + 10, "the device of the pool failed"), "%s", log);
	free(log);
	rig_walk(&rig);
	samples_free(&truth_a);
	samples_free(&truth_b);
	rig_stop(&rig);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("pools");
	TCase *tc = tcase_create("two");
	SRunner *sr;
	int failed;

	tcase_set_tags(tc, "integration");
	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, test_one_is_too_small);
	tcase_add_test(tc, test_auto);
	tcase_add_test(tc, test_words);
	tcase_add_test(tc, test_adopted);
	tcase_add_test(tc, test_device_fails);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
