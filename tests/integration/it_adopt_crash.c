// SPDX-License-Identifier: Apache-2.0
/*
 * it_adopt_crash.c - kvmm dies inside an event, at every point that the core
 * names, and the next one salvages
 *
 * budget: 90 s, full 600 s
 *
 * Two runtimes in exact mode work when it happens; before them a client comes
 * and goes, for the points that are passed then.  Both must print what they
 * print undisturbed, and the walkers find nothing.  Points that were not passed
 * are told.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kvmm/fault.h>
#include <libkvmm.h>

#include "tests/integration/adopt_scene.h"
#include "tests/integration/load.h"

#define TOKENS	"100"

static struct load_text truth;
static u32 nr_whole, nr_salvaged, nr_missed;

/* Points of the shell, in each life: so late that it did some work. */
static const char * const shell_points[] = {
	"mm_die:1200", "mm_die_commit:1200", "mm_die_publish:1200",
};

/* Those that a client passes who comes and goes. */
static bool is_of_life(const char *name)
{
	return strstr(name, "tenant_") || strstr(name, "domain_") ||
	       strstr(name, "client_") || strstr(name, "span_release") ||
	       strstr(name, "extent_gone") || strstr(name, "area_") ||
	       strstr(name, "resize");
}

static struct kvmm *attach(const char *domain)
{
	static u8 identity[KVMM_IDENTITY_LEN] = "it_adopt";
	char path[RIG_PATH + 32], text[256];
	const struct kvmm_params p = {
		.socket = path, .domain = domain, .identity = identity,
		.block_tokens = 16, .max_bytes = KVMM_LIMIT_MAX, .spin = 0,
		.group = { .layers = 2, .kv_heads = 2, .k_bytes = 512,
			   .v_bytes = 512 },
		.attach_timeout_ms = 20000,
	};
	const u64 end = now_ms() + ADOPT_WAIT_MS * time_scale();
	struct kvmm *k = NULL;

	snprintf(path, sizeof(path), "%s/attach.sock", adopt_rig.dir);
	/* The daemon may die of it. */
	while (kvmm_attach(&p, &k, text)) {
		ck_assert_msg(now_ms() < end, "%s", text);
		nap_ms(5);
	}
	return k;
}

/* A client opens a sequence, is served, and leaves. */
static void come_and_go(void)
{
	struct kvmm_open_arg arg = { .prompt_len = 40, .max_tokens = 10 };
	struct kvmm *k = attach("visitor");
	struct kvmm_open_res res;
	u32 ids[40], i;

	for (i = 0; i < ARRAY_SIZE(ids); i++)
		ids[i] = i;
	ck_assert_int_eq(kvmm_seq_open(k, &arg, 1, &res), 0);
	if (!res.status)
		(void)!kvmm_seq_match(k, res.seq, ids, ARRAY_SIZE(ids));
	for (i = 0; i < 20; i++)
		(void)!kvmm_wait(k, 5000000);
	kvmm_detach(k);
}

static void print_point(const char *spec)
{
	const u32 whole = adopt_logged(": whole,");
	const u32 salvaged = adopt_logged(": salvaged,");

	printf("  %-24s %s\n", spec, salvaged ? "salvaged" : whole ? "whole" :
	       "not passed");
	fflush(stdout);
	nr_whole += whole;
	nr_salvaged += salvaged;
	nr_missed += !whole && !salvaged;
	/* One that was passed before it served left nothing to adopt. */
	ck_assert_msg(adopt_logged("cold start:") ==
		      adopt_logged("it had not begun to serve"),
		      "%s: cold:\n%s", spec, adopt_log());
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

/* Until both are attached: one whose daemon dies of that begins again. */
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

static void die_at(const char *spec)
{
	struct load l;

	setenv("KVMM_FAULT", spec, 1);
	adopt_world("on", "60000", NULL);
	unsetenv("KVMM_FAULT");
	come_and_go();
	load_begin(&l);
	load_judge(&l, &truth);
	rig_walk(&adopt_rig);
	print_point(spec);
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

START_TEST(test_crash_points)
{
	const u32 each = by_level(6, 1, 1), rounds = by_level(1, 1, 10);
	u32 i, n;
	char spec[64];

	truth_make();
	for (n = 0; n < rounds; n++) {
		for (i = random_below(each); i < NR_CORE_CRASH_POINTS;
		     i += each) {
			const char *name = kv_fault_name(KV_FAULT_crash_first +
							 i);

			snprintf(spec, sizeof(spec), "%s:%u", name,
				 is_of_life(name) ? 1 + n :
				 1 + random_below(12));
			die_at(spec);
		}
	}
	printf("  crash points: %u deaths whole, %u salvaged, %u not passed\n",
	       nr_whole, nr_salvaged, nr_missed);
	ck_assert_uint_gt(nr_salvaged, 0);
	load_text_free(&truth);
}
END_TEST

START_TEST(test_shell_points)
{
	u32 i;

	truth_make();
	for (i = 0; i < ARRAY_SIZE(shell_points); i++)
		die_at(shell_points[i]);
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
