// SPDX-License-Identifier: Apache-2.0
/*
 * it_nth.c - every call that may fail, failing once
 *
 * fail_nth.so intercepts the allocations and system calls of the daemons and
 * lets the Nth one fail, for N = 1, 2, ... up to the number of calls of a
 * phase.  The phase must end soon in any case.  Either it succeeded all the
 * same, or a line names the error and nothing is left behind: no process, no
 * socket, no descriptor, no area, no memory.
 *
 *	start		until the daemon answers
 *	attach		a client attaches, computes a little and detaches: the
 *			daemon's side of it
 *	client		the same, on the side of the client, from its start on
 *	swapon		an area is made and added
 *	swapoff		and taken away
 *	shutdown	from SIGTERM to the end of the last process
 *
 * Soak takes every N; the other levels take some, spread over the phase and
 * different in each run.  budget: 60 s, full 200 s, soak 1800 s
 *
 * from: full
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <sysexits.h>
#include <unistd.h>

#include "tests/integration/census.h"
#include "tests/integration/prompts.h"
#include "tests/preload/fail_nth.h"

#define PHASE_S	30	/* longest duration of a phase */

static struct rig rig;
static struct fail_page *page;
static char page_path[RIG_PATH], so[RIG_PATH];
static char prompts[RIG_PATH + 32], area[RIG_PATH + 32];

/* ---- the page ---- */

static void page_make(void)
{
	const char *tmp = getenv("TMPDIR");
	int fd;

	snprintf(page_path, sizeof(page_path), "%s/nth.XXXXXX",
		 tmp ? tmp : "/tmp");
	fd = mkstemp(page_path);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, 4096), 0);
	page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(page, MAP_FAILED);
	close(fd);
	ck_assert_ptr_nonnull(realpath(build_path("tests/fail_nth.so"), so));
}

static void page_end(void)
{
	munmap(page, 4096);
	unlink(page_path);
}

/* Start counting; call @n fails, 0: none. */
static void arm(u64 n)
{
	memset(page, 0, sizeof(*page));
	page->target = n;
	__atomic_store_n(&page->armed, 1, __ATOMIC_RELEASE);
}

static u64 disarm(void)
{
	__atomic_store_n(&page->armed, 0, __ATOMIC_RELEASE);
	return __atomic_load_n(&page->nr, __ATOMIC_RELAXED);
}

/* The failed call, for a message. */
static const char *culprit(void)
{
	static char text[160];

	if (!page->failed)
		return "nothing failed";
	snprintf(text, sizeof(text), "%s by %s+0x%llx failed: %s", page->call,
		 page->program, (unsigned long long)page->from,
		 strerror((int)page->error));
	return text;
}

/* ---- the daemon ---- */

/* Wait for the job's end, which must come soon after any failure. */
static int soon(struct job *j)
{
	u64 end = now_ms() + PHASE_S * 1000;
	int code;

	while (!job_ended(j, &code)) {
		if (now_ms() > end)
			ck_abort_msg("%s: no end after %u s; it said:\n%s",
				     culprit(), PHASE_S, slurp(j->err));
		nap_ms(2);
	}
	return code;
}

static void sockets_gone(void)
{
	DIR *dir = opendir(rig.dir);
	struct dirent *e;
	struct stat st;
	char path[RIG_PATH + 300];

	ck_assert_ptr_nonnull(dir);
	while ((e = readdir(dir))) {
		snprintf(path, sizeof(path), "%s/%s", rig.dir, e->d_name);
		if (!lstat(path, &st) && S_ISSOCK(st.st_mode))
			ck_abort_msg("%s: left behind: %s", culprit(), path);
	}
	closedir(dir);
}

static void processes_gone(void)
{
	u64 end = now_ms() + PHASE_S * 1000;
	struct census c;

	for (;;) {
		census_take(&c, &rig);
		if (!c.nr_procs)
			return;
		if (now_ms() > end)
			ck_abort_msg("%s: %s is left", culprit(),
				     c.proc[0].comm);
		nap_ms(5);
	}
}

static void rig_remove(void)
{
	char text[RIG_PATH + 32];

	snprintf(text, sizeof(text), "rm -rf '%s'", rig.dir);
	ck_assert_int_eq(system(text), 0);
}

/* A line of our own, or of ld.so about a library with thread-local variables. */
static bool said_why(const char *err)
{
	return strstr(err, "error:") ||
	       strstr(err, "cannot allocate memory for thread-local data");
}

/* It ended with @code by itself: it must have given the reason and left nothing. */
static void expect_refusal(int code, const char *err_path)
{
	char *err = slurp(err_path);

	if (!code || code >= 128 || !said_why(err))
		ck_abort_msg("%s: ended with %d and said:\n%s", culprit(),
			     code, err);
	free(err);
	processes_gone();
	sockets_gone();
	rig_remove();
}

/* Preload the library into all programs that are started from now on. */
static void preload(bool on)
{
	if (!on) {
		unsetenv("LD_PRELOAD");
		unsetenv(FAIL_ENV);
		return;
	}
	setenv("LD_PRELOAD", so, 1);
	setenv(FAIL_ENV, page_path, 1);
}

static struct job hold_start(void)
{
	const char *tmp = getenv("TMPDIR");
	struct job hold;

	memset(&rig, 0, sizeof(rig));
	snprintf(rig.dir, sizeof(rig.dir), "%s/rig.XXXXXX", tmp ? tmp : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(rig.dir));
	preload(true);
	hold = job_start(&rig, "kvmm-hold", "--pool-size", "2M",
			 "--extent-size", "256K", "--host-size", "1M",
			 "--area-max", "8M", NULL);
	preload(false);
	rig.hold = hold.pid;
	snprintf(prompts, sizeof(prompts), "%s/prompts", rig.dir);
	snprintf(area, sizeof(area), "%s/area", rig.dir);
	return hold;
}

/* Return: whether it answers.  Else it has ended, in order. */
static bool daemon_up(struct job *hold)
{
	struct job wait = job_start(&rig, "kvctl", "wait", "--timeout", "25",
				    NULL);
	u64 end = now_ms() + PHASE_S * 1000;
	int code;

	for (;;) {
		if (job_ended(&wait, &code)) {
			if (code)
				ck_abort_msg("%s: it neither answers nor ends:\n%s",
					     culprit(), slurp(hold->err));
			return true;
		}
		if (job_ended(hold, &code))
			break;
		ck_assert_uint_lt(now_ms(), end);
		nap_ms(2);
	}
	disarm();
	job_kill(&wait, SIGKILL);
	(void)job_wait(&wait, 10);
	expect_refusal(code, hold->err);
	return false;
}

/* End it with SIGTERM; if it fails, it must give the reason. */
static void daemon_down(struct job *hold)
{
	int code;

	kill(rig.hold, SIGTERM);
	code = soon(hold);
	disarm();
	if (code) {
		expect_refusal(code, hold->err);
		return;
	}
	processes_gone();
	sockets_gone();
	rig_remove();
}

/* ---- work of a client ---- */

static struct job generate(void)
{
	prompts_write(prompts, 0, 1, "");
	return job_start(&rig, KVRT_GENERATE, demo_model(),
			 "--prompt-file", prompts, "--temperature", "0",
			 "--max-tokens", "3", "--ignore-eos", "--threads", "1",
			 "--quiet", NULL);
}

static void job_forget(struct job *j)
{
	unlink(j->out);
	unlink(j->err);
}

/* A client must succeed now. */
static void expect_works(void)
{
	struct job j = generate();

	if (soon(&j))
		ck_abort_msg("%s: and then a client: %s", culprit(),
			     slurp(j.err));
	job_forget(&j);
	rig_walk(&rig);
}

/* It must end well, or give the reason.  Return: its exit code. */
static int expect_said(struct job *j)
{
	int code = soon(j);
	char *err = slurp(j->err);

	disarm();
	if (code && (code >= 128 || !said_why(err)))
		ck_abort_msg("%s: ended with %d and said:\n%s", culprit(), code,
			     err);
	free(err);
	job_forget(j);
	return code;
}

static struct job kvctl(const char *verb)
{
	if (!strcmp(verb, "swapon"))
		return job_start(&rig, "kvctl", verb, area, "--size", "8M",
				 NULL);
	return job_start(&rig, "kvctl", verb, area, "--timeout", "25", NULL);
}

static void expect_kvctl(const char *verb)
{
	struct job j = kvctl(verb);

	if (soon(&j))
		ck_abort_msg("%s: and then kvctl %s: %s", culprit(), verb,
			     slurp(j.err));
	job_forget(&j);
}

static bool area_is_on(void)
{
	struct job j = job_start(&rig, "kvctl", "cat", "swaps", NULL);
	char *text;
	bool on;

	ck_assert_int_eq(soon(&j), 0);
	text = slurp(j.out);
	on = strstr(text, area);
	free(text);
	job_forget(&j);
	return on;
}

/* ---- the phases ---- */

/* Each phase runs with call @n failing and returns the number of its calls. */
static u64 phase_start(u64 n)
{
	struct job hold;
	u64 nr;

	arm(n);
	hold = hold_start();
	if (!daemon_up(&hold))
		return READ_ONCE(page->nr);
	nr = disarm();
	expect_works();
	daemon_down(&hold);
	return nr;
}

static u64 phase_attach(u64 n)
{
	struct job j;

	arm(n);
	j = generate();
	(void)expect_said(&j);
	expect_works();
	return READ_ONCE(page->nr);
}

/* The calls of the daemons do not count: they were started before. */
static u64 phase_client(u64 n)
{
	struct job j;

	arm(n);
	preload(true);
	j = generate();
	preload(false);
	(void)expect_said(&j);
	expect_works();
	return READ_ONCE(page->nr);
}

static u64 phase_swapon(u64 n)
{
	struct job j;
	int code;
	bool on;

	arm(n);
	j = kvctl("swapon");
	code = expect_said(&j);
	on = area_is_on();
	/* After a cut answer it is unknown whether the area was added. */
	if (code != EX_PROTOCOL && on != !code)
		ck_abort_msg("%s: swapon ended with %d, and the area is%s there",
			     culprit(), code, on ? "" : " not");
	if (!on)
		expect_kvctl("swapon");
	expect_kvctl("swapoff");
	ck_assert(!area_is_on());
	return READ_ONCE(page->nr);
}

static u64 phase_swapoff(u64 n)
{
	struct job j;

	expect_kvctl("swapon");
	arm(n);
	j = kvctl("swapoff");
	if (expect_said(&j) && area_is_on())
		expect_kvctl("swapoff");
	ck_assert(!area_is_on());
	return READ_ONCE(page->nr);
}

static u64 phase_shutdown(u64 n)
{
	struct job hold = hold_start();

	ck_assert(daemon_up(&hold));
	expect_kvctl("swapon");
	arm(n);
	daemon_down(&hold);
	return READ_ONCE(page->nr);
}

/* Fail the calls of a phase one after the other, all of them or some. */
static void every_call(const char *name, u64 (*phase)(u64 n), u32 some)
{
	u64 nr = phase(0), n, step = max(1u, (u32)nr / some), tried = 0, hit = 0;

	ck_assert_uint_gt(nr, 0);
	for (n = 1 + random_below((u32)step); n <= nr; n += step) {
		phase(n);
		tried++;
		hit += page->failed;
	}
	printf("it_nth: %s: %llu calls that may fail, %llu of %llu tried did\n",
	       name, (unsigned long long)nr, (unsigned long long)hit,
	       (unsigned long long)tried);
	fflush(stdout);
	ck_assert_uint_gt(hit, tried / 2);
}

static void setup(void)
{
	page_make();
}

/* Compare with the census before; a swapd that ended needs a while to be back. */
static void expect_nothing_left(const struct census *was)
{
	u64 end = now_ms() + 5000;
	struct census now;
	char why[512];

	for (;;) {
		census_take(&now, &rig);
		if (!census_grew(was, &now, why, sizeof(why)))
			return;
		if (now_ms() > end)
			ck_abort_msg("left behind: %s", why);
		nap_ms(100);
	}
}

START_TEST(test_start)
{
	every_call("start", phase_start, by_level(8, 200, 100000));
}
END_TEST

START_TEST(test_running)
{
	u32 some = by_level(5, 100, 100000);
	struct job hold = hold_start();
	struct census was;

	ck_assert(daemon_up(&hold));
	expect_works();
	expect_kvctl("swapon");
	expect_kvctl("swapoff");
	census_take(&was, &rig);
	every_call("attach", phase_attach, some);
	every_call("swapon", phase_swapon, some);
	every_call("swapoff", phase_swapoff, some);
	expect_nothing_left(&was);
	daemon_down(&hold);
}
END_TEST

/* The daemon runs without the library, and the clients' calls fail. */
START_TEST(test_client)
{
	struct census was;

	rig_start(&rig, "--pool-size", "2M", "--extent-size", "256K", NULL);
	snprintf(prompts, sizeof(prompts), "%s/prompts", rig.dir);
	expect_works();
	census_take(&was, &rig);
	every_call("client", phase_client, by_level(5, 100, 1000));
	expect_nothing_left(&was);
	rig_stop(&rig);
}
END_TEST

START_TEST(test_shutdown)
{
	every_call("shutdown", phase_shutdown, by_level(10, 60, 100000));
}
END_TEST

static int __maybe_unused run(void)
{
	Suite *s = suite_create("nth");
	TCase *tc = tcase_create("failures");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 1800);
	tcase_add_checked_fixture(tc, setup, page_end);
	tcase_add_test(tc, test_start);
	tcase_add_test(tc, test_running);
	tcase_add_test(tc, test_client);
	tcase_add_test(tc, test_shutdown);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

int main(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	puts("a sanitizer has its own allocator, which nothing may stand before");
	return 77;
#endif
	return run();
}
