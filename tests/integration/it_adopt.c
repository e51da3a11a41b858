// SPDX-License-Identifier: Apache-2.0
/*
 * it_adopt.c - kvmm dies under load, and the next one goes on
 *
 * budget: 90 s, full 600 s
 * from: full
 *
 * Two runtimes in exact mode work on one node with a host pool and a swap area,
 * so that copies and transfers are always under way.  Meanwhile kvmm is killed
 * at random moments and at each of its fault points, and makes room for another
 * program.  The runtimes must print the same tokens as undisturbed runtimes;
 * the walkers must find no fault; in the end no process, descriptor, memory or
 * slot may be left.  The pause of a client is measured beside a cold start.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <libkvmm.h>

#include "tests/integration/adopt_scene.h"
#include "tests/integration/census.h"
#include "tests/integration/load.h"

#define TOKENS	"200"

static struct load_text truth;

static void truth_make(void)
{
	struct load l;

	load_start(&l, &adopt_rig, TOKENS, "f32");
	load_finish(&l, &truth);
	/* The pool is too small for the load, so that copies are under way. */
	ck_assert_int_gt(rig_value(&adopt_rig, "vmstat", "preempt_swap"), 0);
}

static void kvctl_does(const char *a, const char *b)
{
	struct job j = job_start(&adopt_rig, "kvctl", a, b, NULL);

	ck_assert_msg(!job_wait(&j, 60), "%s: %s", a, slurp(j.err));
	unlink(j.out);
	unlink(j.err);
}

static void await_none(const char *key)
{
	const u64 end = now_ms() + ADOPT_WAIT_MS * time_scale();

	while (rig_value(&adopt_rig, "meminfo", key)) {
		ck_assert_msg(now_ms() < end, "%s is %lld:\n%s", key,
			      (long long)rig_value(&adopt_rig, "meminfo", key),
			      adopt_log_end());
		nap_ms(20);
	}
}

/* No client is left, and all memory and all slots are free. */
static void expect_empty(void)
{
	rig_walk(&adopt_rig);
	await_none("HostLimbo");
	kvctl_does("drop_caches", NULL);
	await_none("SwapUsed");
	await_none("HostUsed");
	ck_assert_int_eq(rig_value(&adopt_rig, "swapstat", "nr_open"), 0);
	rig_walk(&adopt_rig);
}

static void print_how(const char *what, u32 n)
{
	printf("  %s: %u deaths: %u whole (%u sequences went on), %u salvaged (%u computed again), %u cold\n",
	       what, n, adopt_logged(": whole,"),
	       adopt_sum(": whole,", " sequence"),
	       adopt_logged(": salvaged,"),
	       adopt_sum(": salvaged,", " sequence"),
	       adopt_logged("cold start:"));
	fflush(stdout);
}

/* ---- deaths at random moments ---- */

/*
 * Wait until this kvmm has begun a step, or the load is over: an arena is not
 * adopted again if two daemons died before they did any work.  A runtime sees a
 * death after its step, which is long where a CPU stands in for a GPU.
 */
static void await_work(struct load *l)
{
	const u64 end = now_ms() + ADOPT_WAIT_MS * time_scale();
	const s64 before = rig_value(&adopt_rig, "vmstat", "step_begin");

	while (rig_value(&adopt_rig, "vmstat", "step_begin") <= before &&
	       !load_ended(l)) {
		ck_assert_msg(now_ms() < end, "it does no work:\n%s",
			      adopt_log_end());
		nap_ms(10);
	}
}

/* Kill kvmm until the load is over, @most times.  Return: deaths. */
static u32 kill_under(struct load *l, u32 most)
{
	u32 n = 0;

	while (n < most && !load_ended(l)) {
		/* One of five dies shortly after its start. */
		if (n % 5) {
			await_work(l);
			nap_ms(200 * time_scale());
		}
		nap_ms(random_below(100));
		if (load_ended(l))
			break;
		adopt_kill();
		n++;
	}
	return n;
}

/*
 * Compare with the census before.  Beside a GPU kvmm keeps the segments of a
 * client mapped until its process is proven quiet, which is a while after its
 * end.
 */
static void expect_nothing_left(const struct census *was)
{
	const u64 end = now_ms() + ADOPT_WAIT_MS * time_scale();
	static struct census before, after;
	char why[2200];

	for (;;) {
		census_take(&after, &adopt_rig);
		before = *was;
		/* The memory of the arena grows with every page that is read. */
		before.memfd_kib = after.memfd_kib;
		if (!census_grew(&before, &after, why, sizeof(why)))
			return;
		ck_assert_msg(now_ms() < end, "left: %s", why);
		nap_ms(20);
	}
}

START_TEST(test_random_deaths)
{
	const u32 kills = by_level(6 / time_scale(), 333, 1000);
	static struct census before;
	struct load l;
	u32 n = 0;

	adopt_world("on", "60000", NULL);
	truth_make();
	adopt_kill();
	nap_ms(300);
	census_take(&before, &adopt_rig);
	while (n < kills) {
		load_start(&l, &adopt_rig, TOKENS, "f32");
		rig_await(&adopt_rig, "status", "Clients", 2, 30);
		n += kill_under(&l, kills - n);
		load_judge(&l, &truth);
		rig_walk(&adopt_rig);
	}
	expect_empty();
	print_how("random", n);
	ck_assert_uint_eq(adopt_logged("cold start:"), 0);
	expect_nothing_left(&before);
	load_text_free(&truth);
	adopt_world_stop();
}
END_TEST

/* ---- upgrade to another program ---- */

START_TEST(test_upgrade)
{
	const u32 most = by_level(3 / time_scale() + 1, 20, 50);
	char fake[RIG_PATH + 16], *said;
	struct load l;
	struct job j;
	FILE *f;
	u32 n = 0;

	adopt_world("on", "60000", NULL);
	truth_make();
	snprintf(fake, sizeof(fake), "%s/fake", adopt_rig.dir);
	f = fopen(fake, "w");
	ck_assert_ptr_nonnull(f);
	fprintf(f, "#!/bin/sh\necho arena 123\n");
	fchmod(fileno(f), 0700);
	fclose(f);
	load_start(&l, &adopt_rig, TOKENS, "f32");
	rig_await(&adopt_rig, "status", "Clients", 2, 30);
	while (n < most && !load_ended(&l)) {
		kvctl_does("upgrade", n++ % 2 ? build_path("kvmm") : NULL);
		j = job_start(&adopt_rig, "kvctl", "upgrade", fake, NULL);
		ck_assert_int_eq(job_wait(&j, 60), 1);
		said = slurp(j.err);
		ck_assert_ptr_nonnull(strstr(said, "another layout"));
		free(said);
	}
	load_judge(&l, &truth);
	print_how("upgrade", n);
	ck_assert_uint_eq(adopt_logged(": whole,"), n);
	ck_assert_uint_eq(adopt_logged("cold start:"), 0);
	expect_empty();
	load_text_free(&truth);
	adopt_world_stop();
}
END_TEST

/* The program prints the right layout but is no kvmm: the last one is started again. */
START_TEST(test_upgrade_to_nothing)
{
	char fake[RIG_PATH + 16], fifo[RIG_PATH + 16];
	struct job j;
	pid_t old;
	FILE *f;

	adopt_world("on", "60000", NULL);
	truth_make();
	snprintf(fake, sizeof(fake), "%s/fake", adopt_rig.dir);
	f = fopen(fake, "w");
	ck_assert_ptr_nonnull(f);
	fprintf(f, "#!/bin/sh\ntest \"$1\" = --arena-layout && exec %s \"$1\"\n",
		build_path("kvmm"));
	fchmod(fileno(f), 0700);
	fclose(f);
	/* A FIFO without a writer must not make hold wait. */
	snprintf(fifo, sizeof(fifo), "%s/fifo", adopt_rig.dir);
	ck_assert_int_eq(mkfifo(fifo, 0700), 0);
	j = job_start(&adopt_rig, "kvctl", "upgrade", fifo, NULL);
	ck_assert_int_eq(job_wait(&j, 60), 1);
	old = adopt_daemon(0);
	kvctl_does("upgrade", fake);
	ck_assert_int_ne(adopt_daemon(0), old);
	ck_assert_uint_eq(adopt_logged("the one before is started again"), 1);
	ck_assert_uint_eq(adopt_logged(": whole,"), 1);
	load_text_free(&truth);
	adopt_world_stop();
}
END_TEST

/* A script may wait in a loop only: it has no right to start a process. */
#define SCRIPT_WAITS(s)							\
	"read up x </proc/uptime; end=$((${up%%.*} + " s "))\n"		\
	"while [ ${up%%.*} -lt $end ]; do read up x </proc/uptime; done\n"

/* A question replaces the one before, whose operator left. */
START_TEST(test_upgrade_twice)
{
	char slow[RIG_PATH + 16], *said;
	struct job j;
	pid_t old;
	FILE *f;

	adopt_world("on", "60000", NULL);
	snprintf(slow, sizeof(slow), "%s/slow", adopt_rig.dir);
	f = fopen(slow, "w");
	ck_assert_ptr_nonnull(f);
	fprintf(f, "#!/bin/sh\n" SCRIPT_WAITS("2") "exec %s \"$1\"\n",
		build_path("kvmm"));
	fchmod(fileno(f), 0700);
	fclose(f);
	old = adopt_daemon(0);
	j = job_start(&adopt_rig, "kvctl", "upgrade", slow, NULL);
	adopt_await_probe();
	job_kill(&j, SIGKILL);
	job_wait(&j, 60);
	j = job_start(&adopt_rig, "kvctl", "upgrade", "/bin/true", NULL);
	ck_assert_int_eq(job_wait(&j, 60), 1);
	said = slurp(j.err);
	ck_assert_msg(strstr(said, "is no kvmm"), "says: %s", said);
	free(said);
	ck_assert_int_eq(adopt_daemon(0), old);
	ck_assert_uint_eq(adopt_logged("makes room"), 0);
	adopt_world_stop();
}
END_TEST

/* kvmm dies while it waits for hold's answer about a program: no upgrade follows. */
START_TEST(test_upgrade_asked_and_died)
{
	char slow[RIG_PATH + 16];
	struct load l;
	struct job j;
	FILE *f;

	adopt_world("on", "60000", NULL);
	truth_make();
	snprintf(slow, sizeof(slow), "%s/slow", adopt_rig.dir);
	f = fopen(slow, "w");
	ck_assert_ptr_nonnull(f);
	fprintf(f, "#!/bin/sh\n" SCRIPT_WAITS("2") "exec %s \"$1\"\n",
		build_path("kvmm"));
	fchmod(fileno(f), 0700);
	fclose(f);
	load_start(&l, &adopt_rig, TOKENS, "f32");
	rig_await(&adopt_rig, "status", "Clients", 2, 30);
	j = job_start(&adopt_rig, "kvctl", "upgrade", slow, NULL);
	adopt_await_probe();
	adopt_kill();
	ck_assert_int_ne(job_wait(&j, 60), 0);
	load_judge(&l, &truth);
	/* The answer was for the kvmm that died. */
	ck_assert_uint_eq(adopt_logged("makes room"), 0);
	ck_assert_uint_eq(adopt_logged("the new kvmm"), 0);
	ck_assert_uint_eq(adopt_logged("cold start:"), 0);
	kvctl_does("upgrade", NULL);
	ck_assert_uint_eq(adopt_logged("makes room"), 1);
	expect_empty();
	load_text_free(&truth);
	adopt_world_stop();
}
END_TEST

/* The kvmm that takes over is killed at once: the previous one is started again. */
START_TEST(test_upgrade_dies)
{
	static const char back[] = "the one before is started again";
	const u32 most = by_level(3 / time_scale() + 1, 12, 40);
	struct load l;
	u32 n, ready;
	pid_t old;

	adopt_world("on", "60000", NULL);
	truth_make();
	/* On a slow machine most kills come too late for that. */
	for (n = 0; n < most || (n < 10 * most && !adopt_logged(back)); n++) {
		if (!n || load_ended(&l)) {
			if (n)
				load_judge(&l, &truth);
			load_start(&l, &adopt_rig, TOKENS, "f32");
			rig_await(&adopt_rig, "status", "Clients", 2, 30);
		}
		old = adopt_daemon(0);
		ready = adopt_logged("kvmm: ready:");
		kvctl_does("upgrade", build_path("kvmm"));
		if (n % 2)
			nap_ms(random_below(10));
		kill(adopt_daemon(old), SIGKILL);
		adopt_await_logged("kvmm: ready:", ready);
		nap_ms(200 * time_scale());
	}
	load_judge(&l, &truth);
	print_how("upgrade, and killed", n);
	ck_assert_uint_eq(adopt_logged("makes room"), n);
	ck_assert_uint_ge(adopt_logged(back), 1);
	ck_assert_uint_eq(adopt_logged("cold start:"), 0);
	expect_empty();
	load_text_free(&truth);
	adopt_world_stop();
}
END_TEST

/* ---- how long a client waits ---- */

static int attach_to(struct kvmm **k)
{
	static u8 identity[KVMM_IDENTITY_LEN] = "it_adopt";
	char path[RIG_PATH + 32], text[256];
	const struct kvmm_params p = {
		.socket = path, .domain = "pause", .identity = identity,
		.block_tokens = 16, .max_bytes = KVMM_LIMIT_MAX, .spin = 0,
		.group[0] = { .layers = 2, .kv_heads = 2, .k_bytes = 128,
			   .v_bytes = 128 },
		.attach_timeout_ms = 20000,
	};

	snprintf(path, sizeof(path), "%s/attach.sock", adopt_rig.dir);
	return kvmm_attach(&p, k, text);
}

static int by_size(const void *a, const void *b)
{
	return *(const double *)a < *(const double *)b ? -1 : 1;
}

static double clock_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (double)ts.tv_sec * 1000 + (double)ts.tv_nsec / 1e6;
}

/* Time from a death to the first answered request. */
static double one_pause(struct kvmm **k, bool adopts)
{
	const double began = clock_ms();

	kill(adopt_daemon(0), SIGKILL);
	while (kvmm_nop(*k)) {
		ck_assert_msg(!adopts, "%s", kvmm_strerror_attach(*k));
		kvmm_detach(*k);
		*k = NULL;
		while (attach_to(k))
			nap_ms(1);
	}
	return clock_ms() - began;
}

static void pauses(bool adopts, u32 nr)
{
	double ms[200];
	struct kvmm *k;
	u32 i;

	adopt_world(adopts ? "on" : "off", "60000", NULL);
	ck_assert_int_eq(attach_to(&k), 0);
	for (i = 0; i < nr; i++) {
		ms[i] = one_pause(&k, adopts);
		/* hold would delay the next start if deaths came faster. */
		nap_ms(400 * time_scale());
	}
	if (adopts)
		ck_assert_uint_eq(kvmm_resumed(k, NULL), nr);
	kvmm_detach(k);
	qsort(ms, nr, sizeof(ms[0]), by_size);
	printf("  pause of a client, %s: p50 %.1f ms, p99 %.1f ms of %u\n",
	       adopts ? "adopted" : "cold start", ms[nr / 2],
	       ms[nr * 99 / 100], nr);
	fflush(stdout);
	adopt_world_stop();
}

START_TEST(test_pause)
{
	const u32 nr = by_level(5, 50, 200);

	pauses(false, nr);
	pauses(true, nr);
}
END_TEST

/* ---- main ---- */

static void add(Suite *s, const char *name, const TTest *test)
{
	TCase *tc = tcase_create(name);

	tcase_set_timeout(tc, 3600);
	tcase_add_test(tc, test);
	suite_add_tcase(s, tc);
}

int main(void)
{
	Suite *s = suite_create("adopt");
	SRunner *sr;
	int failed;

	add(s, "random", test_random_deaths);
	add(s, "upgrade", test_upgrade);
	add(s, "nothing", test_upgrade_to_nothing);
	add(s, "twice", test_upgrade_twice);
	add(s, "asked", test_upgrade_asked_and_died);
	add(s, "dies", test_upgrade_dies);
	add(s, "pause", test_pause);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
