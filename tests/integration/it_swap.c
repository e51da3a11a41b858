// SPDX-License-Identifier: Apache-2.0
/*
 * it_swap.c - the lower tiers under load and deaths: the text stays the same
 *
 * budget: 90 s, full 400 s
 * from: full
 *
 * The truth is the text of two runtimes in a pool that fits everything.  Then
 * the pool and the host pool are so small that families are swapped to the host
 * and on to an area, read back, and recomputed where no tier has room.  swapd
 * is killed at random moments; areas are removed under load; kvmm itself dies.
 * Every text must be the truth, the walkers must find no fault, and no slot may
 * be lost or stay in limbo.
 */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/load.h"
#include "tests/integration/throttle.h"

#define TOKENS		"72"
#define KILLS_A_RIG	10
#define MOST_RIGS	32
#define SLOW_MIB	2	/* a second, on the throttled disk */

static struct load_text truth;
static struct rig rig;
static char area[RIG_PATH + 16];
static struct throttle slow = { .how = "", .loop = -1 };

static void find_truth(void)
{
	struct load l;

	rig_start(&rig, "--pool-size", "128M", "--extent-size", "1M", NULL);
	load_start(&l, &rig, TOKENS, "f32");
	load_finish(&l, &truth);
	ck_assert_int_eq(rig_value(&rig, "vmstat", "preempt_mark"), 0);
	rig_stop(&rig);
}

static void forget_truth(void)
{
	load_text_free(&truth);
}

static void area_on(const char *size)
{
	struct job j;

	if (slow.device[0])
		snprintf(area, sizeof(area), "%s", slow.device);
	else
		snprintf(area, sizeof(area), "%s/area", rig.dir);
	j = job_start(&rig, "kvctl", "swapon", area, "--size", size, NULL);
	if (job_wait(&j, 30))
		ck_abort_msg("swapon: %s", slurp(j.err));
	unlink(j.out);
	unlink(j.err);
}

static void area_off(void)
{
	struct job j = job_start(&rig, "kvctl", "swapoff", area, "--timeout",
				 "60", NULL);

	if (job_wait(&j, 70))
		ck_abort_msg("swapoff: %s", slurp(j.err));
	unlink(j.out);
	unlink(j.err);
	ck_assert_int_eq(rig_value(&rig, "meminfo", "SwapTotal"), 0);
}

static void small_start(const char *pool, const char *host, const char *engine)
{
	rig_start(&rig, "--adopt", "off", "--pool-size", pool,
		  "--extent-size", "256K",
		  "--host-size", host, "--area-max", "32M", "--swappiness",
		  "200", "--swap-engine", engine, NULL);
	area_on("32M");
}

/* No request is under way, none is lost, and no transfer failed. */
static void expect_settled(void)
{
	u64 end = now_ms() + 10000;

	while (rig_value(&rig, "swapstat", "nr_open") ||
	       rig_value(&rig, "meminfo", "HostLimbo") ||
	       rig_value(&rig, "meminfo", "SwapLimbo")) {
		ck_assert_msg(now_ms() < end, "slots stay in limbo");
		nap_ms(20);
	}
	rig_walk(&rig);
	ck_assert_int_eq(rig_value(&rig, "swapstat", "nr_backlog"), 0);
	ck_assert_int_eq(rig_value(&rig, "swapstat", "nr_orphans"), 0);
	ck_assert_int_eq(rig_value(&rig, "swapstat", "strays"), 0);
	ck_assert_int_eq(rig_value(&rig, "meminfo", "SwapBad"), 0);
	ck_assert_int_eq(rig_value(&rig, "vmstat", "swap_read_error"), 0);
	ck_assert_int_eq(rig_value(&rig, "vmstat", "swap_write_error"), 0);
}

/* ---- all four ---- */

#define PROOFS(x)							\
	x(pgcow) x(preempt_swap) x(pgdemote) x(swap_restore)		\
	x(pgpromote) x(pswpout) x(pswpin) x(preempt_recompute)

enum {
#define x(name) PROOF_##name,
	PROOFS(x)
#undef x
	NR_PROOFS
};

static const char * const proof_name[] = {
#define x(name) #name,
	PROOFS(x)
#undef x
};

static void proofs_add(s64 *sum)
{
	u32 i;

	for (i = 0; i < NR_PROOFS; i++) {
		s64 v = rig_value(&rig, "vmstat", proof_name[i]);

		ck_assert_int_ge(v, 0);
		printf(" %s %lld", proof_name[i], (long long)v);
		sum[i] += v;
	}
	printf("\n");
	fflush(stdout);
}

/*
 * Copy-on-write, swap out, swap in and recompute, each proven by counters.
 * Their numbers depend on timing, so several sizes are summed.
 */
START_TEST(test_all_four)
{
	static const char * const host[] = { "512K", "1M", "2M", "1M" };
	s64 sum[NR_PROOFS] = { 0 };
	struct load l;
	u32 i;

	for (i = 0; i < ARRAY_SIZE(host); i++) {
		small_start(i % 2 ? "2M" : "3M", host[i], "auto");
		load_start(&l, &rig, TOKENS, "f32");
		load_judge(&l, &truth);
		printf("  host %s:", host[i]);
		proofs_add(sum);
		expect_settled();
		area_off();
		rig_stop(&rig);
	}
	for (i = 0; i < NR_PROOFS; i++)
		ck_assert_msg(sum[i] > 0, "%s never happened", proof_name[i]);
}
END_TEST

/* ---- deaths ---- */

/* Kill swapd and wait for the next one.  Return: whether there was one. */
static bool swapd_kill(void)
{
	u64 end = now_ms() + 20000;
	pid_t pid = rig_swapd(&rig), next;

	if (!pid)
		return false;
	kill(pid, SIGKILL);
	do {
		nap_ms(2);
		next = rig_swapd(&rig);
		ck_assert_msg(now_ms() < end, "no new swapd");
	} while (!next || next == pid);
	return true;
}

/**
 * struct tally - results of a campaign
 * @slow:     of the kills, those on a throttled disk
 * @restarts: of swapd, as kvmm counted them
 * @orphans:  requests that were unfinished at a death
 * @merged:   requests that shared a transfer
 */
struct tally {
	u32	kills;
	u32	slow;
	u32	texts;
	s64	restarts;
	s64	orphans;
	s64	out;
	s64	in;
	s64	merged;
};

static void tally_add(struct tally *t, u32 kills)
{
	s64 deaths = rig_value(&rig, "swapstat", "deaths");

	/* A swapd that was killed before kvmm knew of it does not count. */
	ck_assert_int_gt(deaths, 0);
	ck_assert_int_le(deaths, kills);
	t->kills += kills;
	t->slow += slow.how[0] ? kills : 0;
	t->restarts += deaths;
	t->orphans += rig_value(&rig, "swapstat", "orphans");
	t->out += rig_value(&rig, "vmstat", "pswpout");
	t->merged += rig_value(&rig, "swapstat", "swapd_merged");
	t->in += rig_value(&rig, "vmstat", "pswpin");
}

/* Every slot is used or free, and all of them can be used again. */
static void expect_no_leak(struct tally *t)
{
	s64 before = rig_value(&rig, "vmstat", "pgdemote");
	struct load l;

	load_start(&l, &rig, TOKENS, "f32");
	load_judge(&l, &truth);
	t->texts++;
	expect_settled();
	ck_assert_int_gt(rig_value(&rig, "vmstat", "pgdemote"), before);
	ck_assert_int_eq(rig_value(&rig, "meminfo", "HostFree") +
			 rig_value(&rig, "meminfo", "HostUsed"),
			 rig_value(&rig, "meminfo", "HostTotal"));
	/* An area can be removed only when every slot is free. */
	area_off();
	ck_assert_int_eq(rig_value(&rig, "meminfo", "SwapUsed"), 0);
	rig_walk(&rig);
}

/* Run loads during @kills deaths of swapd. */
static void death_round(u32 kills, const char *engine, struct tally *t)
{
	struct load l;
	u32 n = 0;

	small_start("2M", "1M", engine);
	load_start(&l, &rig, TOKENS, "f32");
	while (n < kills) {
		nap_ms(random_below(80));
		n += swapd_kill();
		if (load_ended(&l)) {
			load_judge(&l, &truth);
			t->texts++;
			load_start(&l, &rig, TOKENS, "f32");
		}
	}
	load_judge(&l, &truth);
	t->texts++;
	expect_settled();
	tally_add(t, kills);
	expect_no_leak(t);
	rig_stop(&rig);
}

START_TEST(test_swapd_killed)
{
	const char *tmp = getenv("TMPDIR");
	u32 left = by_level(4 / time_scale() + 1, 67, 200), round = 0;
	char how[32] = "none here";
	struct tally t = { 0 };

	/* On a slow machine no read may be answered between two deaths. */
	for (; left || ((!t.in || !t.orphans) && round < MOST_RIGS); round++) {
		u32 n = left ? min(left, (u32)KILLS_A_RIG) : 1;
		bool late = round % 2 && throttle_enter(&slow, tmp ? tmp :
							"/tmp", SLOW_MIB,
							40u << 20);

		if (late)
			snprintf(how, sizeof(how), "%s", slow.how);
		death_round(n, round % 4 == 2 ? "sync" : "auto", &t);
		if (late)
			throttle_leave(&slow);
		left -= min(left, n);
	}
	ck_assert_int_gt(t.orphans, 0);
	ck_assert_int_gt(t.out, 0);
	ck_assert_int_gt(t.in, 0);
	printf("total: swapd killed %u times under two runtimes (%u on a throttled disk: %s), %lld restarts seen, %lld requests orphaned, pswpout %lld, pswpin %lld, %lld of these in shared transfers: %u pairs of texts the same, 0 slots lost\n",
	       t.kills, t.slow, how, (long long)t.restarts,
	       (long long)t.orphans, (long long)t.out, (long long)t.in,
	       (long long)t.merged, t.texts);
}
END_TEST

/* Points at which swapd ends itself in the middle of its work. */
static const char * const swapd_deaths[] = {
	"swapd_die_taken:7", "swapd_die_submitted:2", "swapd_die_published:5",
};

START_TEST(test_swapd_dies_in_the_middle)
{
	struct load l;

	setenv("KVMM_FAULT", swapd_deaths[_i], 1);
	small_start("2M", "1M", "auto");
	unsetenv("KVMM_FAULT");
	load_start(&l, &rig, TOKENS, "f32");
	load_judge(&l, &truth);
	expect_settled();
	ck_assert_int_gt(rig_value(&rig, "swapstat", "deaths"), 0);
	rig_stop(&rig);
}
END_TEST

/* Copies fail: lost blocks are recomputed. */
static const char * const copy_faults[] = {
	"copy_out_eio:5", "copy_in_eio:2", "copy_out_eio", "copy_in_eio",
	"copy_delay",
};

START_TEST(test_copies_fail)
{
	struct load l;

	setenv("KVMM_FAULT", copy_faults[_i], 1);
	small_start("3M", "2M", "auto");
	unsetenv("KVMM_FAULT");
	load_start(&l, &rig, TOKENS, "f32");
	load_judge(&l, &truth);
	expect_settled();
	rig_stop(&rig);
}
END_TEST

/* ---- areas come and go ---- */

START_TEST(test_areas_under_load)
{
	struct load l;
	u32 n;

	small_start("2M", "1M", "auto");
	load_start(&l, &rig, TOKENS, "f32");
	for (n = 0; n < by_level(2, 12, 40); n++) {
		nap_ms(random_below(100));
		area_off();
		nap_ms(random_below(50));
		area_on("32M");
	}
	load_judge(&l, &truth);
	expect_settled();
	area_off();
	rig_stop(&rig);
}
END_TEST

/* The next kvmm has the areas of the dead one, empty. */
START_TEST(test_kvmm_dies)
{
	struct load l;
	pid_t pid;
	s64 total;

	small_start("2M", "1M", "auto");
	total = rig_value(&rig, "meminfo", "SwapTotal");
	ck_assert_int_gt(total, 0);
	load_start(&l, &rig, TOKENS, "f32");
	/* A runtime that attaches later would attach to the next kvmm. */
	rig_await(&rig, "vmstat", "client_attach", 2, 30);
	rig_await(&rig, "vmstat", "pswpout", 1, 30);
	pid = rig_daemon(&rig);
	kill(pid, SIGKILL);
	ck_assert_int_ne(job_wait(&l.single, 30), -1);
	ck_assert_int_ne(job_wait(&l.forked, 30), -1);
	while (!rig_daemon(&rig) || rig_daemon(&rig) == pid)
		nap_ms(5);
	rig_await(&rig, "meminfo", "SwapTotal", total, 20);
	ck_assert_int_eq(rig_value(&rig, "meminfo", "SwapUsed"), 0);
	load_start(&l, &rig, TOKENS, "f32");
	load_judge(&l, &truth);
	ck_assert_int_gt(rig_value(&rig, "vmstat", "pswpout"), 0);
	expect_settled();
	rig_stop(&rig);
}
END_TEST

/* ---- bad input ---- */

/* A shell command with kvctl's path as $1 must exit with @code and one line. */
__printf(4, 5)
static void expect_refused(struct rig *r, int code, const char *says,
			   const char *fmt, ...)
{
	char cmd[1024], full[2048], err[RIG_PATH + 16], *text;
	va_list ap;
	int status;

	va_start(ap, fmt);
	vsnprintf(cmd, sizeof(cmd), fmt, ap);
	va_end(ap);
	snprintf(err, sizeof(err), "%s/refused", r->dir);
	snprintf(full, sizeof(full), "export KVMM_RUNDIR='%s'; kvctl='%s'; ( %s ) 2>'%s'",
		 r->dir, build_path("kvctl"), cmd, err);
	status = system(full);
	text = slurp(err);
	ck_assert_msg(WEXITSTATUS(status) == code, "%s: ended with %d, not %d:\n%s",
		      cmd, WEXITSTATUS(status), code, text);
	ck_assert_msg(count_lines(text) == 1, "%s: not one line:\n%s", cmd,
		      text);
	ck_assert_msg(strstr(text, says), "%s: does not say '%s':\n%s", cmd,
		      says, text);
	free(text);
	unlink(err);
}

START_TEST(test_bad_areas)
{
	struct rig other;
	struct stat st;
	char path[RIG_PATH + 16];

	small_start("2M", "1M", "auto");
	expect_refused(&rig, 1, "already", "$kvctl swapon '%s'", area);
	expect_refused(&rig, 1, "directory", "$kvctl swapon '%s'", rig.dir);
	expect_refused(&rig, 1, "neither a file nor", "$kvctl swapon /dev/null");
	expect_refused(&rig, 1, "neither a file nor",
		       "mkfifo '%s/fifo'; $kvctl swapon '%s/fifo'", rig.dir,
		       rig.dir);
	expect_refused(&rig, 1, "--size", "$kvctl swapon '%s/none'", rig.dir);
	expect_refused(&rig, 1, "--size",
		       "umask 077; : >'%s/empty'; $kvctl swapon '%s/empty'",
		       rig.dir, rig.dir);
	expect_refused(&rig, 1, "at least 1280K, for one extent",
		       "$kvctl swapon '%s/tiny' --size 1088K", rig.dir);
	expect_refused(&rig, 1, "100K are too few: an area needs at least 1088K",
		       "umask 077; head -c 102400 /dev/zero >'%s/file'; $kvctl swapon '%s/file'",
		       rig.dir, rig.dir);
	expect_refused(&rig, 1, "holds something",
		       "umask 077; yes | head -c 4194304 >'%s/full'; $kvctl swapon '%s/full'",
		       rig.dir, rig.dir);
	/* The answer and the file show the same size. */
	expect_refused(&rig, 0, "",
		       "[ \"$($kvctl swapon '%s/odd' --size 1700K)\" = '%s/odd: swap area of 512K, of 1700K: whole extents of 256K behind a header of 1M' ] && $kvctl cat swaps | grep -q '/odd .*file[[:blank:]]*512[[:blank:]]' && $kvctl swapoff '%s/odd' >&2",
		       rig.dir, rig.dir, rig.dir);
	expect_refused(&rig, 1, "no swap area", "$kvctl swapoff '%s/none'",
		       rig.dir);
	expect_refused(&rig, 1, "link to nothing",
		       "ln -s none '%s/link'; $kvctl swapon '%s/link' --size 4M",
		       rig.dir, rig.dir);
	/* By the former name, from the former directory. */
	expect_refused(&rig, 1, "no swap area",
		       "kvctl=$(realpath $kvctl); cd '%s'; { $kvctl swapon gone --size 4M && rm gone && $kvctl swapoff gone; } >/dev/null || exit 9; $kvctl swapoff gone",
		       rig.dir);
	expect_refused(&rig, 64, "--size", "$kvctl swapon x --size 4Q");
	snprintf(path, sizeof(path), "%s/tiny", rig.dir);
	ck_assert_int_ne(stat(path, &st), 0);

	rig_start(&other, "--pool-size", "2M", "--extent-size", "256K",
		  "--host-size", "1M", NULL);
	expect_refused(&other, 1, "another daemon", "$kvctl swapon '%s'", area);
	rig_stop(&other);
	rig_start(&other, "--pool-size", "2M", "--extent-size", "256K", NULL);
	expect_refused(&other, 1, "--host-size",
		       "$kvctl swapon '%s/new' --size 4M", rig.dir);
	snprintf(path, sizeof(path), "%s/new", rig.dir);
	ck_assert_int_ne(stat(path, &st), 0);
	rig_stop(&other);
	rig_stop(&rig);
}
END_TEST

/* kvctl cat swaps shows how swapd transfers. */
START_TEST(test_engine_is_shown)
{
	static const struct {
		const char *engine;
		const char *fault;
		const char *shown;
	} of[] = {
		{ "auto", NULL, "\tio_uring\n" },
		{ "auto", "swapd_register", "\tio_uring,unregistered\n" },
		{ "auto", "hold_ring", "\tthreads\n" },
		{ "sync", NULL, "\tthreads\n" },
	};
	struct job j;
	char *text;

	if (of[_i].fault)
		setenv("KVMM_FAULT", of[_i].fault, 1);
	small_start("2M", "1M", of[_i].engine);
	unsetenv("KVMM_FAULT");
	j = job_start(&rig, "kvctl", "cat", "swaps", NULL);
	ck_assert_int_eq(job_wait(&j, 30), 0);
	text = slurp(j.out);
	unlink(j.out);
	unlink(j.err);
	if (_i < 2 && strstr(text, "\tthreads\n"))
		printf("note: no io_uring here\n");
	else
		ck_assert_msg(strstr(text, of[_i].shown) != NULL, "%s", text);
	free(text);
	area_off();
	rig_stop(&rig);
}
END_TEST

/* One command gets a small file system, where that is allowed. */
START_TEST(test_full_disk)
{
	if (system("unshare -m true 2>/dev/null")) {
		printf("  full disk: not tried: no mount namespaces here\n");
		return;
	}
	small_start("2M", "1M", "auto");
	expect_refused(&rig, 1, "no room",
		       "mkdir '%s/m'; unshare -m sh -c 'mount -t tmpfs -o size=2m none \"%s/m\" && \"$0\" swapon \"%s/m/area\" --size 8M; r=$?; ls \"%s/m\" | grep -q . && exit 99; exit $r' \"$kvctl\"",
		       rig.dir, rig.dir, rig.dir, rig.dir);
	rig_stop(&rig);
}
END_TEST

/* An area in memory is taken, and kvctl says that it frees none. */
START_TEST(test_area_in_memory)
{
	if (system("unshare -m true 2>/dev/null")) {
		printf("  area in memory: not tried: no mount namespaces here\n");
		return;
	}
	small_start("2M", "1M", "auto");
	expect_refused(&rig, 0, "m/area: lies in memory (tmpfs): the area takes as much memory as it holds",
		       "mkdir '%s/m'; unshare -m sh -c 'mount -t tmpfs -o size=16m none \"%s/m\" && \"$0\" swapon \"%s/m/area\" --size 8M && \"$0\" swapoff \"%s/m/area\"' \"$kvctl\"",
		       rig.dir, rig.dir, rig.dir, rig.dir);
	rig_stop(&rig);
}
END_TEST

static Suite *swap_suite(void)
{
	Suite *s = suite_create("swap");
	TCase *tc = tcase_create("load");

	tcase_set_timeout(tc, 900);
	tcase_add_unchecked_fixture(tc, find_truth, forget_truth);
	tcase_add_test(tc, test_all_four);
	tcase_add_test(tc, test_swapd_killed);
	tcase_add_loop_test(tc, test_swapd_dies_in_the_middle, 0,
			    ARRAY_SIZE(swapd_deaths));
	tcase_add_loop_test(tc, test_copies_fail, 0, ARRAY_SIZE(copy_faults));
	tcase_add_test(tc, test_areas_under_load);
	tcase_add_test(tc, test_kvmm_dies);
	suite_add_tcase(s, tc);
	tc = tcase_create("input");
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, test_bad_areas);
	tcase_add_loop_test(tc, test_engine_is_shown, 0, 4);
	tcase_add_test(tc, test_full_disk);
	tcase_add_test(tc, test_area_in_memory);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(swap_suite());
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	throttle_sweep();
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
