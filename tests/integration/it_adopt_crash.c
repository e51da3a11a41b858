// SPDX-License-Identifier: Apache-2.0
/*
 * it_adopt_crash.c - kvmm dies inside an event, at every point that the core
 * names, and the next one salvages
 *
 * budget: 90 s, full 600 s
 * from: full
 *
 * Two runtimes in exact mode work meanwhile, and beside them run all other
 * activities of a node (unrest.h), so that every point is passed: a point that
 * is not passed fails the test.  Both runtimes must print the same text as
 * undisturbed, the walkers must find no fault, and in the end no memory or slot
 * may be in use.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kvmm/fault.h>

#include "tests/integration/adopt_scene.h"
#include "tests/integration/load.h"
#include "tests/integration/unrest.h"

#define TOKENS	"100"
#define LOADS	5u	/* at most, until a point is passed */

static struct load_text truth;
static u32 nr_whole, nr_salvaged;

/* Points of the shell, late enough in each life for some work before the death. */
static const char * const shell_points[] = {
	"mm_die:1200", "mm_die_commit:1200", "mm_die_publish:1200",
};
/* A load of fewer tokens has fewer requests. */
static const char * const shell_points_gpu[] = {
	"mm_die:60", "mm_die_commit:60", "mm_die_publish:60",
};

static void print_point(const char *spec)
{
	const u32 whole = adopt_logged(": whole,");
	const u32 salvaged = adopt_logged(": salvaged,");

	printf("  %-24s %s\n", spec, salvaged ? "salvaged" : whole ? "whole" :
	       "not passed");
	fflush(stdout);
	nr_whole += whole;
	nr_salvaged += salvaged;
	ck_assert_msg(whole + salvaged, "%s: %u loads did not pass it", spec,
		      LOADS);
	/* A death before kvmm began to serve leaves nothing to adopt. */
	ck_assert_msg(adopt_logged("cold start:") ==
		      adopt_logged("it had not begun to serve"),
		      "%s: cold:\n%s", spec, adopt_log_end());
}

static bool has_failed(const struct job *j)
{
	siginfo_t si = { .si_pid = 0 };

	return !waitid(P_PID, (id_t)j->pid, &si, WEXITED | WNOHANG | WNOWAIT) &&
	       si.si_pid && si.si_status;
}

static void end(struct job *j)
{
	kill(j->pid, SIGKILL);
	(void)!job_wait(j, 30);
}

/*
 * Start both runtimes and wait until they attach; start them again if a death
 * ended one.
 */
static void load_begin(struct load *l)
{
	u32 tries;

	for (tries = 0; tries < 5; tries++) {
		const u32 was = adopt_logged("attached: kvrt");

		load_start(l, &adopt_rig, TOKENS, "f32");
		while (!has_failed(&l->single) && !has_failed(&l->forked) &&
		       !load_ended(l) &&
		       adopt_logged("attached: kvrt") < was + 2)
			nap_ms(2);
		if (!has_failed(&l->single) && !has_failed(&l->forked))
			return;
		end(&l->single);
		end(&l->forked);
	}
}

static bool has_died(void)
{
	return adopt_logged(": whole,") || adopt_logged(": salvaged,");
}

/* Run all other activities, each at least once, until the load is over. */
static void load_unrest(struct load *l)
{
	const u32 first = random_below(nr_unrests);
	u32 n;

	for (n = 0; n < nr_unrests || !load_ended(l); n++)
		unrest(&adopt_rig, first + n);
}

/* Without cache all memory is free: no client is left. */
static void expect_empty(void)
{
	static const char * const keys[] = {
		"Open", "Sealed", "Quarantine", "HostUsed", "HostLimbo",
		"SwapUsed",
	};
	const u64 end = now_ms() + ADOPT_WAIT_MS * time_scale();
	u32 i;

	unrest_caches_go(&adopt_rig);
	for (i = 0; i < ARRAY_SIZE(keys); i++)
		while (rig_value(&adopt_rig, "meminfo", keys[i])) {
			ck_assert_msg(now_ms() < end, "%s is left:\n%s",
				      keys[i], adopt_log_end());
			nap_ms(10);
		}
}

static void die_at(const char *spec)
{
	struct load l;
	u32 n;

	setenv("KVMM_FAULT", spec, 1);
	adopt_world("on", "60000", UNREST_ARGS, NULL);
	unsetenv("KVMM_FAULT");
	for (n = 0; n < LOADS && !has_died(); n++) {
		load_begin(&l);
		load_unrest(&l);
		load_judge(&l, &truth);
		rig_walk(&adopt_rig);
	}
	print_point(spec);
	expect_empty();
	adopt_world_stop();
}

static void truth_make(void)
{
	struct load l;

	adopt_world("on", "60000", NULL);
	load_start(&l, &adopt_rig, TOKENS, "f32");
	load_finish(&l, &truth);
	adopt_world_stop();
}

/* Choose a passing that the unrest is sure to reach, not always the first one. */
static u32 passing_of(u32 point)
{
	switch (point) {
	case CORE_CRASH_tenant_make:
		return 1 + random_below(2);
	case CORE_CRASH_area_add:
	case CORE_CRASH_area_del:
	case CORE_CRASH_resize:
	case CORE_CRASH_extent_gone:
		return 1 + random_below(4);
	case CORE_CRASH_extent_state:
		/* The host pool makes its extents before any client is served. */
		return 9 + random_below(600);
	default:
		return 1 + random_below(12);
	}
}

START_TEST(test_crash_points)
{
	const u32 each = by_level(18, 1, 1), rounds = by_level(1, 1, 10);
	u32 i, n;
	char spec[64];

	truth_make();
	for (n = 0; n < rounds; n++) {
		for (i = random_below(each); i < NR_CORE_CRASH_POINTS;
		     i += each) {
			const char *name = kv_fault_name(KV_FAULT_crash_first +
							 i);

			snprintf(spec, sizeof(spec), "%s:%u", name,
				 passing_of(i));
			die_at(spec);
		}
	}
	printf("total: kvmm died at %u passings of crash points under two runtimes and unrest: %u whole, %u salvaged, none not passed, all texts the same\n",
	       nr_whole + nr_salvaged, nr_whole, nr_salvaged);
	load_text_free(&truth);
}
END_TEST

START_TEST(test_shell_points)
{
	u32 i;

	truth_make();
	for (i = 0; i < ARRAY_SIZE(shell_points); i++)
		die_at(rig_on_gpu() ? shell_points_gpu[i] : shell_points[i]);
	load_text_free(&truth);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("adopt-crash");
	TCase *core = tcase_create("core"), *shell = tcase_create("shell");
	SRunner *sr;
	int failed;

	tcase_set_timeout(core, 3600);
	tcase_add_test(core, test_crash_points);
	suite_add_tcase(s, core);
	tcase_set_timeout(shell, 600);
	tcase_add_test(shell, test_shell_points);
	suite_add_tcase(s, shell);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
