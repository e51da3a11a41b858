// SPDX-License-Identifier: Apache-2.0
/*
 * it_exact.c - exactness under pressure: the same text in a small pool
 *
 * budget: 60 s, full 120 s
 *
 * Two runtimes that share one domain run 32 prompts.  Half of the prompts have
 * a long prefix in common; a quarter has four samples by fork.  One run has a
 * pool that fits everything, the other one a pool so small that the daemon's
 * counters prove copy-on-write, eviction from the prefix index and recompute.
 * In exact mode the tokens must be identical: greedy, and sampled from a seed
 * with penalties that depend on all earlier ids.
 */
#include <stdio.h>
#include <stdlib.h>

#include "tests/integration/harness.h"
#include "tests/integration/prompts.h"

#define NR_SINGLE	24	/* prompts with one sample */
#define NR_FORKED	8	/* prompts with four */

struct run {
	struct samples	single;
	struct samples	forked;
};

static struct job generate(struct rig *r, const char *prompts, const char *n,
			   const char *temperature, const char *dtype)
{
	const bool greedy = !strcmp(temperature, "0");

	return job_start(r, KVRT_GENERATE, demo_model(), "--prompt-file",
			 prompts, "-n", n, "--temperature", temperature,
			 "--seed", "7", "--max-tokens", "72", "--threads", "1",
			 "--ignore-eos", "--mode", "exact", "--dtype", dtype,
			 "--repetition-penalty", greedy ? "1" : "1.15",
			 "--frequency-penalty", greedy ? "0" : "0.3",
			 "--presence-penalty", greedy ? "0" : "0.2",
			 "--min-p", greedy ? "0" : "0.01", "--json", NULL);
}

static void expect_ok(struct job *j)
{
	int code = job_wait(j, 120);

	if (code)
		ck_abort_msg("kvrt ended with %d:\n%s", code, slurp(j->err));
}

/* Run both runtimes at once on one daemon. */
static void run_all(struct rig *r, struct run *out, const char *temperature,
		    const char *dtype)
{
	char single[RIG_PATH + 32], forked[RIG_PATH + 32];
	struct job a, b;

	snprintf(single, sizeof(single), "%s/single.txt", r->dir);
	snprintf(forked, sizeof(forked), "%s/forked.txt", r->dir);
	prompts_write(single, 0, NR_SINGLE, "");
	prompts_write(forked, NR_SINGLE, NR_FORKED, "");
	a = generate(r, single, "1", temperature, dtype);
	b = generate(r, forked, "4", temperature, dtype);
	expect_ok(&a);
	expect_ok(&b);
	rig_walk(r);
	samples_read(&out->single, a.out);
	samples_read(&out->forked, b.out);
	ck_assert_uint_eq(out->single.nr, NR_SINGLE);
	ck_assert_uint_eq(out->forked.nr, 4 * NR_FORKED);
}

static void show(struct rig *r, const char *pool)
{
	static const char * const key[] = { "pgcow", "pgreuse", "prefix_evict",
					    "preempt_recompute",
					    "recompute_tokens",
					    "prefix_hit_tokens",
					    "prefix_partial_tokens", "pgmerge" };
	u32 i;

	printf("  pool %s:", pool);
	for (i = 0; i < ARRAY_SIZE(key); i++)
		printf(" %s %lld", key[i],
		       (long long)rig_value(r, "vmstat", key[i]));
	printf("\n");
	fflush(stdout);
}

static void compare(const char *temperature, const char *dtype,
		    const char *small)
{
	struct run big_run, small_run;
	struct rig r;

	rig_start(&r, "--pool-size", "128M", "--extent-size", "1M", NULL);
	run_all(&r, &big_run, temperature, dtype);
	show(&r, "128M");
	ck_assert_int_eq(rig_value(&r, "vmstat", "preempt_recompute"), 0);
	ck_assert_int_eq(rig_value(&r, "vmstat", "prefix_evict"), 0);
	rig_stop(&r);

	rig_start(&r, "--pool-size", small, "--extent-size", "256K", NULL);
	run_all(&r, &small_run, temperature, dtype);
	show(&r, small);
	ck_assert_int_gt(rig_value(&r, "vmstat", "pgcow"), 0);
	ck_assert_int_gt(rig_value(&r, "vmstat", "prefix_partial_tokens"), 0);
	ck_assert_int_gt(rig_value(&r, "vmstat", "prefix_evict"), 0);
	ck_assert_int_gt(rig_value(&r, "vmstat", "preempt_recompute"), 0);
	ck_assert_int_gt(rig_value(&r, "vmstat", "recompute_tokens"), 0);
	rig_stop(&r);

	samples_equal(&big_run.single, &small_run.single);
	samples_equal(&big_run.forked, &small_run.forked);
	samples_free(&big_run.single);
	samples_free(&big_run.forked);
	samples_free(&small_run.single);
	samples_free(&small_run.forked);
}

START_TEST(test_greedy_f32)
{
	compare("0", "f32", "4M");
}
END_TEST

START_TEST(test_sampled_bf16)
{
	compare("0.8", "bf16", "2M");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("exact");
	TCase *tc = tcase_create("under-pressure");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, test_greedy_f32);
	tcase_add_test(tc, test_sampled_bf16);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
