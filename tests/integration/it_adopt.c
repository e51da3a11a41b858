// SPDX-License-Identifier: Apache-2.0
/*
 * it_adopt.c - kvmm dies under load, and the next one goes on
 *
 * budget: 90 s, full 600 s
 *
 * Two runtimes in exact mode work on one daemon with a host pool and a swap
 * area, so that there is always something under way; kvmm is killed at random
 * moments, and at every crash point that the core names.  What the runtimes
 * print must be what they print undisturbed, token by token; the walkers must
 * find nothing after each death; in the end nothing is left that was not there
 * before.  How long the clients paused is measured beside the cold start of the
 * same node.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/integration/census.h"
#include "tests/integration/load.h"

#define TOKENS	"200"
#define WAIT_MS	30000u

static struct rig rig;
static struct load_text truth;
static char area[RIG_PATH + 16];

/* ---- the world ---- */

static void world_start(const char *adopt)
{
	struct job j;

	rig_start(&rig, "--pool-size", "2M", "--extent-size", "256K",
		  "--host-size", "2M", "--area-max", "32M", "--swappiness",
		  "200", "--adopt", adopt, "--resume-ms", "60000", NULL);
	snprintf(area, sizeof(area), "%s/area", rig.dir);
	j = job_start(&rig, "kvctl", "swapon", area, "--size", "32M", NULL);
	ck_assert_msg(!job_wait(&j, 30), "swapon: %s", slurp(j.err));
}

static char *hold_log(void)
{
	char path[RIG_PATH + 32];

	snprintf(path, sizeof(path), "%s/job-0.err", rig.dir);
	return slurp(path);
}

static u32 logged(const char *what)
{
	char *log = hold_log(), *p;
	u32 n = 0;

	for (p = strstr(log, what); p; p = strstr(p + 1, what))
		n++;
	free(log);
	return n;
}

static pid_t daemon_await(pid_t other)
{
	const u64 end = now_ms() + WAIT_MS * time_scale();
	pid_t pid;

	while (!(pid = rig_daemon(&rig)) || pid == other) {
		ck_assert_msg(now_ms() < end, "hold starts no daemon");
		nap_ms(1);
	}
	return pid;
}

/* Until the next one says that it is ready. */
static void daemon_kill(void)
{
	const u32 ready = logged("kvmm: ready:");
	const u64 end = now_ms() + WAIT_MS * time_scale();
	pid_t old = daemon_await(0);

	ck_assert_int_eq(kill(old, SIGKILL), 0);
	daemon_await(old);
	while (logged("kvmm: ready:") == ready) {
		ck_assert_msg(now_ms() < end, "the next daemon is not ready:\n%s",
			      hold_log());
		nap_ms(1);
	}
}

/* ---- deaths at random moments ---- */

static void truth_make(void)
{
	struct load l;

	load_start(&l, &rig, TOKENS, "f32");
	load_finish(&l, &truth);
}

START_TEST(test_random_deaths)
{
	const u32 kills = by_level(25, 333, 1000);
	struct census before, after;
	u32 n = 0, runs = 0, cold;
	struct load l;
	char why[2200];

	world_start("on");
	truth_make();
	census_take(&before, &rig);
	while (n < kills) {
		load_start(&l, &rig, TOKENS, "f32");
		rig_await(&rig, "vmstat", "client_attach", 2, 30);
		while (n < kills && !load_ended(&l)) {
			/* Now and then one that has hardly begun. */
			nap_ms((n % 5 ? 200 * time_scale() : 0) +
			       random_below(100));
			if (load_ended(&l))
				break;
			daemon_kill();
			n++;
		}
		load_judge(&l, &truth);
		rig_walk(&rig);
		runs++;
	}
	nap_ms(500);
	census_take(&after, &rig);
	cold = logged("cold start:");
	printf("  %u deaths in %u runs: %u whole, %u salvaged, %u cold\n", n,
	       runs, logged(": whole,"), logged(": salvaged,"), cold);
	/* Of the arena there is what was ever looked at. */
	before.memfd_kib = after.memfd_kib;
	if (census_grew(&before, &after, why, sizeof(why)))
		ck_abort_msg("left: %s", why);
	load_text_free(&truth);
	rig_stop(&rig);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("adopt");
	TCase *tc = tcase_create("deaths");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 1800);
	tcase_add_test(tc, test_random_deaths);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
