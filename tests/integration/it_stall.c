// SPDX-License-Identifier: Apache-2.0
/*
 * it_stall.c - swapd or its disk stands still, and waiting sequences go on
 *
 * budget: 60 s, full 180 s
 * from: full
 *
 * The truth is the text of two runtimes in a pool that fits everything.  Then
 * they live off a swap area in small pools, and swapd is stopped in the middle,
 * so that requests neither end nor fail.  Both runtimes must end meanwhile with
 * the true text, the daemon must answer all the time, and when swapd goes on no
 * slot may be missing.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/integration/load.h"

#define TOKENS		"72"
#define DEADLINE_MS	"300"

static struct load_text truth;
static struct rig rig;
static char area[RIG_PATH + 16];

static void find_truth(void)
{
	struct load l;

	rig_start(&rig, "--pool-size", "128M", "--extent-size", "1M", NULL);
	load_start(&l, &rig, TOKENS, "f32");
	load_finish(&l, &truth);
	rig_stop(&rig);
}

static void forget_truth(void)
{
	load_text_free(&truth);
}

/* kvctl must exit with @code; a line of its output must contain @says. */
static void kvctl(int code, const char *says, const char *verb,
		  const char *arg1, const char *arg2)
{
	struct job j = job_start(&rig, "kvctl", verb, area, arg1, arg2, NULL);
	char *out, *err;
	int got = job_wait(&j, 30);

	out = slurp(j.out);
	err = slurp(j.err);
	ck_assert_msg(got == code, "%s ended with %d, not %d (%s): %s%s", verb,
		      got, code, says, out, err);
	ck_assert_msg(strstr(code ? err : out, says), "%s says %s%s", verb, out,
		      err);
	free(out);
	free(err);
	unlink(j.out);
	unlink(j.err);
}

static void small_start(const char *engine)
{
	rig_start(&rig, "--adopt", "off", "--pool-size", "2M",
		  "--extent-size", "256K",
		  "--host-size", "1M", "--area-max", "32M", "--swappiness",
		  "200", "--swap-engine", engine, "--swap-deadline-ms",
		  DEADLINE_MS, NULL);
	snprintf(area, sizeof(area), "%s/area", rig.dir);
	kvctl(0, "swap area of", "swapon", "--size", "32M");
}

static bool area_is(const char *state)
{
	struct job j = job_start(&rig, "kvctl", "cat", "swapareas", NULL);
	char have[16] = "", *text, *line;
	bool is;

	ck_assert_int_eq(job_wait(&j, 10), 0);
	text = slurp(j.out);
	line = strchr(text, '\n');
	is = line && sscanf(line, " 0 %15s ", have) == 1 &&
	     !strcmp(have, state);
	free(text);
	unlink(j.out);
	unlink(j.err);
	return is;
}

/* Is every thread stopped? */
static bool all_stopped(pid_t pid)
{
	char path[64], line[128];
	const struct dirent *e;
	bool stopped = true;
	DIR *dir;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	dir = opendir(path);
	ck_assert_ptr_nonnull(dir);
	while ((e = readdir(dir))) {
		snprintf(path, sizeof(path), "/proc/%d/task/%.20s/stat",
			 (int)pid, e->d_name);
		f = fopen(path, "r");
		if (!f)
			continue;
		if (fgets(line, sizeof(line), f) && strrchr(line, ')'))
			stopped &= strrchr(line, ')')[2] == 'T';
		fclose(f);
	}
	closedir(dir);
	return stopped;
}

static void swapd_stop(pid_t pid)
{
	u64 end = now_ms() + 20000;

	ck_assert_int_eq(kill(pid, SIGSTOP), 0);
	while (!all_stopped(pid)) {
		ck_assert_msg(now_ms() < end, "swapd does not stop");
		nap_ms(1);
	}
	/* kvmm reads the completions so far before it answers this request. */
	rig_value(&rig, "swapstat", "nr_open");
	nap_ms(5);
}

/* Judge a round that ended in time, and start the next one. */
static void keep_busy(struct load *l)
{
	if (!load_ended(l))
		return;
	load_judge(l, &truth);
	load_start(l, &rig, TOKENS, "f32");
}

/* Stop swapd while requests are open. */
static pid_t stop_at_work(struct load *l)
{
	u64 end = now_ms() + 90000;
	pid_t pid = rig_swapd(&rig);

	ck_assert_int_gt(pid, 0);
	for (;;) {
		if (rig_value(&rig, "swapstat", "nr_open") > 0) {
			swapd_stop(pid);
			if (rig_value(&rig, "swapstat", "nr_open") > 0)
				return pid;
			kill(pid, SIGCONT);
		}
		nap_ms(2);
		keep_busy(l);
		ck_assert_msg(now_ms() < end, "no request is ever open");
	}
}

/* The daemon answers without delay until both runtimes have ended. */
static void live_on(struct load *l)
{
	u64 end = now_ms() + 100000;

	while (!load_ended(l)) {
		ck_assert_int_ge(rig_value(&rig, "meminfo", "SwapTotal"), 0);
		rig_walk(&rig);
		nap_ms(50);
		ck_assert_msg(now_ms() < end, "runtimes wait for ever");
	}
}

/* Every request was answered; the stall leaves no trace. */
static void expect_healed(void)
{
	u64 end = now_ms() + 20000;

	while (rig_value(&rig, "swapstat", "nr_open") ||
	       rig_value(&rig, "swapstat", "nr_backlog") ||
	       rig_value(&rig, "meminfo", "HostLimbo") ||
	       rig_value(&rig, "meminfo", "SwapLimbo") || !area_is("live")) {
		ck_assert_msg(now_ms() < end, "slots stay in limbo");
		nap_ms(20);
	}
	rig_walk(&rig);
	ck_assert_int_eq(rig_value(&rig, "vmstat", "swap_late"),
			 rig_value(&rig, "vmstat", "swap_stall"));
	ck_assert_int_eq(rig_value(&rig, "swapstat", "strays"), 0);
	ck_assert_int_eq(rig_value(&rig, "meminfo", "SwapBad"), 0);
	ck_assert_int_eq(rig_value(&rig, "vmstat", "swap_read_error"), 0);
	ck_assert_int_eq(rig_value(&rig, "vmstat", "swap_write_error"), 0);
}

static u32 log_count(const char *what)
{
	char path[RIG_PATH + 16], *text, *p;
	u32 n = 0;

	snprintf(path, sizeof(path), "%s/job-0.err", rig.dir);
	text = slurp(path);
	for (p = text; (p = strstr(p, what)); p++)
		n++;
	free(text);
	return n;
}

/* One line when swapd stalled, and one when it answered again. */
static void expect_told(void)
{
	u64 end = now_ms() + 5000;
	u32 stalled = log_count("has not answered for " DEADLINE_MS " ms");

	ck_assert_uint_gt(stalled, 0);
	while (log_count("area answers again") != stalled) {
		ck_assert_msg(now_ms() < end, "%u stalls, %u ends", stalled,
			      log_count("area answers again"));
		nap_ms(20);
	}
}

static const char * const engines[] = { "auto", "sync" };

/* swapd is stopped until both runtimes have ended, then it goes on. */
START_TEST(test_swapd_stopped)
{
	struct load l;
	pid_t pid;

	small_start(engines[_i]);
	load_start(&l, &rig, TOKENS, "f32");
	pid = stop_at_work(&l);
	rig_await(&rig, "vmstat", "swap_stall", 1, 20);
	ck_assert(area_is("stalled"));
	live_on(&l);
	load_judge(&l, &truth);
	ck_assert(area_is("stalled"));
	kill(pid, SIGCONT);
	expect_healed();
	expect_told();
	/* swapd serves as before. */
	load_start(&l, &rig, TOKENS, "f32");
	load_judge(&l, &truth);
	ck_assert_int_eq(rig_swapd(&rig), pid);
	kvctl(0, "no swap area any more", "swapoff", "--timeout", "20");
	rig_stop(&rig);
}
END_TEST

/* swapd is stopped again and again, once for so long that requests are late. */
START_TEST(test_swapd_stutters)
{
	u32 n, stops = by_level(3, 20, 200);
	struct load l;
	pid_t pid;
	s64 late;

	small_start("auto");
	load_start(&l, &rig, TOKENS, "f32");
	pid = stop_at_work(&l);
	rig_await(&rig, "vmstat", "swap_stall", 1, 20);
	kill(pid, SIGCONT);
	for (n = 1; n < stops; n++) {
		pid = rig_swapd(&rig);
		swapd_stop(pid);
		nap_ms(random_below(900));
		rig_walk(&rig);
		kill(pid, SIGCONT);
		nap_ms(random_below(200));
		keep_busy(&l);
	}
	load_judge(&l, &truth);
	expect_healed();
	late = rig_value(&rig, "vmstat", "swap_late");
	printf("  stopped %u times: %lld requests were late\n", stops,
	       (long long)late);
	ck_assert_int_gt(late, 0);
	rig_stop(&rig);
}
END_TEST

/* Wait until the daemon writes no blocks ahead any more. */
static void await_quiet(void)
{
	u64 end = now_ms() + 20000;
	u32 quiet = 0;

	while (quiet < 5) {
		quiet = rig_value(&rig, "swapstat", "nr_open") ? 0 : quiet + 1;
		nap_ms(30);
		ck_assert_msg(now_ms() < end, "writes never end");
	}
}

/* An area is removed although its swapoff timed out. */
static void await_gone(void)
{
	u64 end = now_ms() + 20000;
	int code;

	do {
		struct job j = job_start(&rig, "kvctl", "swapoff", area,
					 "--timeout", "1", NULL);
		char *err;

		code = job_wait(&j, 30);
		err = slurp(j.err);
		if (strstr(err, "is no swap area"))
			code = 0;
		free(err);
		unlink(j.out);
		unlink(j.err);
		ck_assert_msg(now_ms() < end, "the area does not go");
	} while (code);
	ck_assert_int_eq(rig_value(&rig, "meminfo", "SwapTotal"), 0);
}

/* swapoff, swapon and the end of the daemon do not wait for swapd either. */
START_TEST(test_operators_go_on)
{
	struct load l;
	pid_t pid;

	small_start("auto");
	load_start(&l, &rig, TOKENS, "f32");
	pid = stop_at_work(&l);
	kvctl(1, "still in use", "swapoff", "--timeout", "1");
	live_on(&l);
	load_judge(&l, &truth);
	kvctl(1, "still in use", "swapoff", "--timeout", "1");
	kill(pid, SIGCONT);
	await_gone();

	/* The host pool has its content, too: swapd only has to close the area. */
	kvctl(0, "swap area of", "swapon", "--size", "32M");
	await_quiet();
	swapd_stop(pid);
	kvctl(1, "swapd does not answer", "swapoff", "--timeout", "1");
	kill(pid, SIGCONT);
	await_gone();
	kvctl(0, "swap area of", "swapon", "--size", "32M");
	rig_stop(&rig);
}
END_TEST

START_TEST(test_daemon_ends)
{
	struct load l;
	pid_t pid;
	u64 began;

	small_start("auto");
	load_start(&l, &rig, TOKENS, "f32");
	pid = stop_at_work(&l);
	rig_await(&rig, "vmstat", "swap_stall", 1, 20);
	live_on(&l);
	load_judge(&l, &truth);
	began = now_ms();
	rig_stop(&rig);
	printf("  ended after %llu ms\n", (unsigned long long)(now_ms() - began));
	ck_assert_int_ne(kill(pid, 0), 0);
}
END_TEST

static void await_other_daemon(pid_t old)
{
	u64 end = now_ms() + 20000 * time_scale();

	while (rig_daemon(&rig) <= 0 || rig_daemon(&rig) == old) {
		ck_assert_msg(now_ms() < end, "there is no other kvmm");
		nap_ms(5);
	}
}

/* Return: whether swapon succeeded. */
static bool area_try(void)
{
	struct job j = job_start(&rig, "kvctl", "swapon", area, "--size",
				 "32M", NULL);
	bool did = !job_wait(&j, 30);

	unlink(j.out);
	unlink(j.err);
	return did;
}

/*
 * kvmm dies while swapd is stopped, and the next swapd comes too late for all
 * waiting requests: the area comes with it.
 */
START_TEST(test_daemon_dies)
{
	u64 end = now_ms() + 60000 * time_scale();
	struct load l;
	pid_t pid;

	setenv("KVMM_FAULT", "swapd_late", 1);
	rig_start(&rig, "--adopt", "off", "--pool-size", "2M",
		  "--extent-size", "256K",
		  "--host-size", "1M", "--area-max", "32M", "--swappiness",
		  "200", "--swap-deadline-ms", DEADLINE_MS, NULL);
	unsetenv("KVMM_FAULT");
	snprintf(area, sizeof(area), "%s/area", rig.dir);
	/* swapon does not wait for swapd: it is refused until there is one. */
	while (!area_try())
		ck_assert_msg(now_ms() < end, "swapon is refused");
	load_start(&l, &rig, TOKENS, "f32");
	(void)stop_at_work(&l);
	pid = rig_daemon(&rig);
	ck_assert_int_eq(kill(pid, SIGKILL), 0);
	ck_assert_int_ne(job_wait(&l.single, 30), -1);
	ck_assert_int_ne(job_wait(&l.forked, 30), -1);
	await_other_daemon(pid);
	rig_await(&rig, "meminfo", "SwapTotal", 1, 30);
	ck_assert(area_is("live"));
	ck_assert_uint_gt(log_count("waits for a swapd"), 0);
	load_start(&l, &rig, TOKENS, "f32");
	load_judge(&l, &truth);
	kvctl(0, "no swap area any more", "swapoff", "--timeout", "20");
	rig_stop(&rig);
}
END_TEST

static Suite *stall_suite(void)
{
	Suite *s = suite_create("stall");
	TCase *tc = tcase_create("stopped");

	tcase_set_timeout(tc, 600);
	tcase_add_unchecked_fixture(tc, find_truth, forget_truth);
	tcase_add_loop_test(tc, test_swapd_stopped, 0, ARRAY_SIZE(engines));
	tcase_add_test(tc, test_swapd_stutters);
	tcase_add_test(tc, test_operators_go_on);
	tcase_add_test(tc, test_daemon_ends);
	tcase_add_test(tc, test_daemon_dies);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(stall_suite());
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
