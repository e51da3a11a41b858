// SPDX-License-Identifier: Apache-2.0
/*
 * it_alloc.c - the mm thread never allocates memory
 *
 * Every table of the daemon is sized at start, so the mm thread must not
 * allocate, free, map or unmap: not for requests, not when clients come, end or
 * are killed, not while blocks move between tiers or swapd dies, not for the
 * files of operators.  watch_alloc.so, preloaded into the daemon, counts such
 * calls once the thread has its name; the count must stay 0.  A probe under the
 * same library, which does allocate, proves that the count can rise.
 * budget: 60 s
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/load.h"
#include "tests/preload/watch_alloc.h"

#define PROBE		"--probe"
#define TOKENS		"72"
#define KILLED_TOKENS	"600"	/* of the runtime that is killed before its end */

static const char *self;
static struct rig rig;
static struct watch_page *page;
static char path[RIG_PATH];

/* ---- the watch ---- */

/* Watch every daemon that is started from now on. */
static void watch_start(void)
{
	const char *tmp = getenv("TMPDIR");
	char so[RIG_PATH];
	int fd;

	snprintf(path, sizeof(path), "%s/watch.XXXXXX", tmp ? tmp : "/tmp");
	fd = mkstemp(path);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, sizeof(*page)), 0);
	page = mmap(NULL, sizeof(*page), PROT_READ | PROT_WRITE, MAP_SHARED,
		    fd, 0);
	ck_assert_ptr_ne(page, MAP_FAILED);
	close(fd);
	ck_assert_ptr_nonnull(realpath(build_path("tests/watch_alloc.so"),
				       so));
	setenv("LD_PRELOAD", so, 1);
	setenv(WATCH_ENV, path, 1);
}

static void watch_no_more(void)
{
	unsetenv("LD_PRELOAD");
	unsetenv(WATCH_ENV);
}

static void watch_end(void)
{
	munmap(page, sizeof(*page));
	unlink(path);
}

/* Exactly one thread had that name, and it made no call. */
static void expect_no_call(void)
{
	const u64 nr = READ_ONCE(page->nr_calls);
	u32 i;

	for (i = 0; i < nr && i < WATCH_CALLS; i++)
		printf("  %s of %llu bytes from kvmm+0x%llx\n",
		       page->call[i].what,
		       (unsigned long long)page->call[i].bytes,
		       (unsigned long long)page->call[i].from);
	fflush(stdout);
	ck_assert_uint_eq(READ_ONCE(page->nr_threads), 1);
	ck_assert_uint_gt(READ_ONCE(page->nr_elsewhere), 0);
	ck_assert_msg(!nr, "%llu calls for memory on the mm thread",
		      (unsigned long long)nr);
}

/* ---- the count can rise ---- */

static void *probe_main(void *arg)
{
	void *volatile p;

	pthread_setname_np(pthread_self(), WATCH_THREAD);
	p = malloc(100);
	free(p);
	p = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	munmap(p, 4096);
	return NULL;
}

/* The process of the probe: one thread with the name of the daemon's. */
static int probe(void)
{
	void *volatile p = malloc(1);
	pthread_t t;

	free(p);
	return pthread_create(&t, NULL, probe_main, NULL) ||
	       pthread_join(t, NULL);
}

START_TEST(test_probe)
{
	static const char * const calls[] = {
		"malloc", "free", "mmap", "munmap",
	};
	int status;
	pid_t pid;
	u32 i;

	watch_start();
	pid = fork();
	if (!pid) {
		execl(self, self, PROBE, NULL);
		_exit(127);
	}
	watch_no_more();
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	ck_assert_uint_eq(page->nr_threads, 1);
	for (i = 0; i < ARRAY_SIZE(calls); i++)
		ck_assert_str_eq(page->call[i].what, calls[i]);
	ck_assert_uint_eq(page->call[0].bytes, 100);
	ck_assert_uint_gt(page->nr_elsewhere, 0);
	watch_end();
}
END_TEST

/* ---- the daemon ---- */

static void kvctl(const char *verb, const char *arg, const char *option,
		  const char *value)
{
	struct job j = job_start(&rig, "kvctl", verb, arg, option, value,
				 NULL);

	if (job_wait(&j, 60))
		ck_abort_msg("kvctl %s: %s", verb, slurp(j.err));
	unlink(j.out);
	unlink(j.err);
}

/* Read files for operators that together request every view. */
static void read_all_files(void)
{
	static const char * const files[] = {
		"status", "meminfo", "vmstat", "zoneinfo", "buddyinfo",
		"extentinfo", "prefixcache", "swaps", "swapareas", "swapstat",
		"pressure/memory", "domains", "clients",
	};
	u32 i;

	for (i = 0; i < ARRAY_SIZE(files); i++)
		(void)rig_value(&rig, files[i], "nothing");
	rig_walk(&rig);
}

/* Load in small tiers; a runtime and swapd are killed in the middle of it. */
static void storm(void)
{
	struct load l;

	load_start(&l, &rig, KILLED_TOKENS, "f32");
	rig_await(&rig, "vmstat", "pswpout", 1, 60);
	job_kill(&l.forked, SIGKILL);
	kill(rig_swapd(&rig), SIGKILL);
	ck_assert_int_eq(job_wait(&l.forked, 20), 128 + SIGKILL);
	read_all_files();
	job_kill(&l.single, SIGTERM);
	(void)job_wait(&l.single, 60);
}

START_TEST(test_no_call)
{
	char area[RIG_PATH + 16];
	struct load_text text;
	struct load l;

	watch_start();
	rig_start(&rig, "--pool-size", "3M", "--extent-size", "256K",
		  "--host-size", "1M", "--area-max", "32M", "--swappiness",
		  "200", NULL);
	watch_no_more();
	snprintf(area, sizeof(area), "%s/area", rig.dir);
	kvctl("swapon", area, "--size", "32M");
	storm();
	load_start(&l, &rig, TOKENS, "f32");
	load_finish(&l, &text);
	load_text_free(&text);
	read_all_files();
	kvctl("swapoff", area, "--timeout", "50");
	ck_assert_int_gt(rig_value(&rig, "vmstat", "pgcow"), 0);
	ck_assert_int_gt(rig_value(&rig, "vmstat", "preempt_mark"), 0);
	ck_assert_int_gt(rig_value(&rig, "vmstat", "pgdemote"), 0);
	expect_no_call();
	rig_stop(&rig);
	watch_end();
}
END_TEST

static int __maybe_unused run(void)
{
	Suite *s = suite_create("alloc");
	TCase *tc = tcase_create("mm thread");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 300);
	tcase_add_test(tc, test_probe);
	tcase_add_test(tc, test_no_call);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
	if (argc > 1 && !strcmp(argv[1], PROBE))
		return probe();
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
	puts("a sanitizer has its own allocator, which nothing may stand before");
	return 77;
#endif
	self = argv[0];
	return run();
}
