// SPDX-License-Identifier: Apache-2.0
/*
 * it_hostpool.c - the host pool of a real daemon, against the kernel's data
 *
 * budget: 40 s, full 60 s
 * alone: it takes and gives back huge pages of the machine, and limits a control group
 *
 * For each kind of pages that this machine has, meminfo and the log are
 * compared with /proc/PID/smaps and status.  Then the failures: a stop while
 * the pool is filled, a pool too large for a control group; and a share of
 * memory that stays the same over the death of kvmm.
 */
#include <ctype.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "kvmm/dev/memory.h"
#include "tests/integration/harness.h"

#define HUGE_NR	"/proc/sys/vm/nr_hugepages"
#define POOL_MB	32

static struct rig rig;

static bool file_write(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	bool ok = fd >= 0 &&
		  write(fd, text, strlen(text)) == (ssize_t)strlen(text);

	if (fd >= 0)
		close(fd);
	return ok;
}

/* Read a small file, also outside of a test; "" when it is unreadable. */
static void file_read(const char *path, char *text, size_t len)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, text, len - 1);

	text[max(n, (ssize_t)0)] = '\0';
	if (fd >= 0)
		close(fd);
}

static char *hold_log(void)
{
	char path[RIG_PATH + 32];

	snprintf(path, sizeof(path), "%s/job-0.err", rig.dir);
	return slurp(path);
}

static u32 count_text(const char *text, const char *what)
{
	u32 n = 0;

	while ((text = strstr(text, what))) {
		text += strlen(what);
		n++;
	}
	return n;
}

/* The sum of @key over the daemon's mappings of the host pool, in kB. */
static u64 smaps_kb(pid_t pid, const char *key)
{
	char path[64], line[512];
	bool inside = false;
	u64 sum = 0, kb;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/smaps", pid);
	f = fopen(path, "r");
	ck_assert_ptr_nonnull(f);
	while (fgets(line, sizeof(line), f)) {
		/* Keys begin with a capital letter, mappings with an address. */
		if (!isupper((unsigned char)line[0]))
			inside = strstr(line, "/memfd:kvmm-host-");
		if (inside && !strncmp(line, key, strlen(key)) &&
		    line[strlen(key)] == ':' &&
		    sscanf(line + strlen(key) + 1, "%" SCNu64, &kb) == 1)
			sum += kb;
	}
	fclose(f);
	return sum;
}

static u64 status_kb(pid_t pid, const char *key)
{
	char path[64], *text, *at;
	u64 kb = 0;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	text = slurp(path);
	at = strstr(text, key);
	if (at)
		ck_assert_int_eq(sscanf(at + strlen(key), ": %" SCNu64, &kb),
				 1);
	free(text);
	return kb;
}

/* ---- kinds of pages ---- */

enum kind { KIND_HUGETLB, KIND_THP, KIND_ORDINARY, KIND_UNLOCKED };

static const char * const kind_fault[] = {
	[KIND_HUGETLB]	= NULL,
	[KIND_THP]	= "host_huge",
	[KIND_ORDINARY]	= "host_huge,host_thp",
	[KIND_UNLOCKED]	= "host_huge,host_lock",
};

static char huge_old[32];	/* nr_hugepages before all tests */

/* Ask for huge pages for @mb MiB more; the kernel may set aside fewer. */
static bool huge_set_aside(u32 mb)
{
	char text[64];

	snprintf(text, sizeof(text), "%d", atoi(huge_old) + (int)mb / 2);
	if (file_write(HUGE_NR, text))
		return true;
	printf("no huge pages: " HUGE_NR " cannot be written: %s\n",
	       strerror(errno));
	return false;
}

static u64 huge_free(void)
{
	struct memory_room m;

	memory_look(&m, "");
	return m.huge_free;
}

static bool huge_for_pool(void)
{
	if (huge_free() >= (u64)POOL_MB << 20)
		return true;
	/* Other processes may want some at the same time. */
	if (!huge_set_aside(2 * POOL_MB))
		return false;
	if (huge_free() >= (u64)POOL_MB << 20)
		return true;
	printf("no huge pages: the kernel sets aside %" PRIu64 " MiB of them, not %d: memory is in pieces\n",
	       huge_free() >> 20, POOL_MB);
	return false;
}

/* The process that runs all tests does this, so it restores after a failed one. */
static void huge_remember(void)
{
	file_read(HUGE_NR, huge_old, sizeof(huge_old));
}

static void huge_restore(void)
{
	char now[32];

	file_read(HUGE_NR, now, sizeof(now));
	if (strcmp(now, huge_old) && !file_write(HUGE_NR, huge_old))
		printf(HUGE_NR " is not what it was: %s", huge_old);
}

static void start_pool(const char *fault)
{
	if (fault)
		setenv("KVMM_FAULT", fault, 1);
	rig_start(&rig, "--pool-size", "4M", "--extent-size", "256K",
		  "--host-size", "32M", "--min-token-bytes", "4096", NULL);
	unsetenv("KVMM_FAULT");
}

/*
 * May kvmm lock that much here?  A user with a low limit may not, nor root
 * without the right to raise it.  With some sanitizers mlock() does nothing.
 */
static bool mlock_works(void)
{
	const size_t bytes = (size_t)POOL_MB << 20;
	struct rlimit old, high = { bytes, bytes };
	u64 locked;
	void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	ck_assert(p != MAP_FAILED && !getrlimit(RLIMIT_MEMLOCK, &old));
	high.rlim_max = max(old.rlim_max, high.rlim_max);
	(void)!setrlimit(RLIMIT_MEMLOCK, &high);
	(void)!mlock(p, bytes);
	locked = status_kb(getpid(), "VmLck");
	munmap(p, bytes);
	(void)!setrlimit(RLIMIT_MEMLOCK, &old);
	if (locked < POOL_MB << 10)
		printf("not locked: mlock() of %d MiB does not work here\n",
		       POOL_MB);
	return locked >= POOL_MB << 10;
}

static void expect_log(u64 huge, u64 thp, bool locked)
{
	char *log = hold_log();

	ck_assert_msg(strstr(log, huge ? "huge pages that were set aside" :
			     thp == POOL_MB << 10 ? "transparent huge pages" :
			     "ordinary pages"), "%s", log);
	ck_assert_msg(strstr(log, locked ? ", locked" : ", not locked"), "%s",
		      log);
	/* A warning must appear if its condition holds, and only then. */
	ck_assert_int_eq(!!strstr(log, "lie on ordinary ones"),
			 huge + thp < POOL_MB << 10);
	ck_assert_int_eq(!!strstr(log, "cannot be locked"), !locked);
	free(log);
}

/*
 * Huge pages that were set aside, in kB.  Sometimes the kernel shows none of
 * them for a moment (1 of 20 runs on a busy machine): if some are there, it is
 * asked again, with a line of output.
 */
static u64 huge_kb(pid_t pid, bool some)
{
	u32 tries;
	u64 kb = 0;

	for (tries = 0; tries < 200; tries++) {
		kb = smaps_kb(pid, "Shared_Hugetlb") +
		     smaps_kb(pid, "Private_Hugetlb");
		if (kb || !some)
			break;
		usleep(10000);
	}
	if (tries)
		printf("smaps of %d had no huge pages %u times, Size %" PRIu64 " kB\n",
		       pid, tries, smaps_kb(pid, "Size"));
	return kb;
}

START_TEST(test_kind)
{
	const enum kind kind = (enum kind)_i;
	u64 huge, thp, locked;
	pid_t pid;

	if (kind == KIND_HUGETLB && !huge_for_pool())
		return;
	start_pool(kind_fault[kind]);
	/* The daemon knows its pid; a list of children may leave one out. */
	pid = (pid_t)rig_value(&rig, "status", "Pid");
	huge = huge_kb(pid, kind == KIND_HUGETLB);
	thp = smaps_kb(pid, "ShmemPmdMapped");
	locked = kind == KIND_HUGETLB ? huge : status_kb(pid, "VmLck");
	/* The secrets of tenants take one or two locked pages more. */
	locked = locked % 1024 <= 64 ? locked - locked % 1024 : locked;
	printf("%s: %" PRIu64 " kB set aside, %" PRIu64 " kB transparent, %" PRIu64 " kB locked\n",
	       kind_fault[kind] ? kind_fault[kind] : "all", huge, thp, locked);
	ck_assert_int_eq(rig_value(&rig, "meminfo", "HostHugetlb"), huge);
	ck_assert_int_eq(rig_value(&rig, "meminfo", "HostShmemHuge"), thp);
	ck_assert_int_eq(rig_value(&rig, "meminfo", "HostLocked"), locked);
	ck_assert_uint_eq(huge, kind == KIND_HUGETLB ? POOL_MB << 10 : 0);
	ck_assert_uint_eq(smaps_kb(pid, "Rss") + huge, POOL_MB << 10);
	if (kind == KIND_UNLOCKED || (kind != KIND_HUGETLB && !mlock_works()))
		ck_assert_uint_eq(locked, 0);
	else
		ck_assert_uint_eq(locked, POOL_MB << 10);
	expect_log(huge, thp, locked);
	rig_walk(&rig);
	rig_stop(&rig);
}
END_TEST

/* Too few pages are set aside: a line says so, and they stay free for others. */
START_TEST(test_too_few_set_aside)
{
	char *log, *at;
	u32 nr = 0;

	huge_restore();
	if (huge_free() || !huge_set_aside(POOL_MB / 4) || !huge_free()) {
		printf("not too few huge pages: %" PRIu64 " MiB are free\n",
		       huge_free() >> 20);
		return;
	}
	start_pool(NULL);
	ck_assert_int_eq(rig_value(&rig, "meminfo", "HostHugetlb"), 0);
	log = hold_log();
	at = strstr(log, " MiB were set aside as huge pages, too few for it, and stay unused: sysctl vm.nr_hugepages=");
	/* 16 for the pool, and the ones that others use by now. */
	ck_assert_msg(at && sscanf(strchr(at, '='), "=%u, or 0", &nr) == 1 &&
		      nr >= 16 && nr <= 20, "%s", log);
	free(log);
	rig_stop(&rig);
	huge_restore();
}
END_TEST

/* ---- no pool in the end ---- */

static void rig_dir(void)
{
	memset(&rig, 0, sizeof(rig));
	snprintf(rig.dir, sizeof(rig.dir), "%s/rig.XXXXXX",
		 getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(rig.dir));
}

static void rig_dir_remove(void)
{
	char cmd[RIG_PATH + 32];

	snprintf(cmd, sizeof(cmd), "rm -rf '%s'", rig.dir);
	ck_assert_int_eq(system(cmd), 0);
}

static void expect_nothing_left(void)
{
	char cmd[RIG_PATH + 64];

	snprintf(cmd, sizeof(cmd), "! ls '%s' | grep -v '^job-'", rig.dir);
	ck_assert_msg(!system(cmd), "something is left in %s", rig.dir);
}

/* Wait until the log of @j has these words. */
static char *await_line(struct job *j, const char *what)
{
	u64 end = now_ms() + 30000 * time_scale();
	char *text = slurp(j->err);

	while (!strstr(text, what)) {
		ck_assert_msg(now_ms() < end, "not said: %s\n%s", what, text);
		free(text);
		nap_ms(20);
		text = slurp(j->err);
	}
	return text;
}

/* SIGTERM while 4 GiB are filled; one slow thread has done less than half by then. */
START_TEST(test_stopped_while_filling)
{
	double done = 0, all = 0, rate = 0;
	cpu_set_t was, one;
	char *text;
	struct job j;
	int cpu;

	if (dev_memory_available() < 6ull << 30) {
		printf("not stopped while filling: 6 GiB must be available\n");
		return;
	}
	rig_dir();
	ck_assert_int_eq(sched_getaffinity(0, sizeof(was), &was), 0);
	CPU_ZERO(&one);
	for (cpu = 0; !CPU_ISSET(cpu, &was); cpu++)
		;
	CPU_SET(cpu, &one);
	ck_assert_int_eq(sched_setaffinity(0, sizeof(one), &one), 0);
	setenv("KVMM_FAULT", "host_huge,host_thp,host_slow", 1);
	j = job_start(&rig, "kvmm-hold", "--pool-size", "4M", "--extent-size",
		      "256K", "--host-size", "4G", "--min-token-bytes",
		      "16384", NULL);
	unsetenv("KVMM_FAULT");
	ck_assert_int_eq(sched_setaffinity(0, sizeof(was), &was), 0);
	text = await_line(&j, "GiB/s\n");
	ck_assert_msg(sscanf(strstr(text, "host pool: "),
			     "host pool: %lf of %lf GiB filled, %lf GiB/s",
			     &done, &all, &rate) == 3, "%s", text);
	free(text);
	ck_assert(all == 4.0 && done > 0 && done < 2.5 && rate > 0);
	job_kill(&j, SIGTERM);
	ck_assert_int_eq(job_wait(&j, 30), 0);
	text = slurp(j.err);
	ck_assert_msg(strstr(text, "shutting down before the host pool is filled"),
		      "%s", text);
	ck_assert_msg(!strstr(text, "ready") && !strstr(text, "error"), "%s",
		      text);
	free(text);
	expect_nothing_left();
	rig_dir_remove();
}
END_TEST

/* The system runs out of memory meanwhile: one line, and no file remains. */
START_TEST(test_fill_fails)
{
	struct job j;
	char *text;

	rig_dir();
	setenv("KVMM_FAULT", "host_huge,host_thp,host_fill:3", 1);
	j = job_start(&rig, "kvmm-hold", "--log-level", "err", "--pool-size",
		      "4M", "--extent-size", "256K", "--host-size", "512M",
		      "--min-token-bytes", "16384", NULL);
	unsetenv("KVMM_FAULT");
	ck_assert_int_eq(job_wait(&j, 30), 71);
	text = slurp(j.err);
	ck_assert_uint_eq(count_lines(text), 1);
	ck_assert_msg(strstr(text, "host pool: 512M cannot be had: Cannot allocate memory: give a smaller --host-size"),
		      "%s", text);
	free(text);
	expect_nothing_left();
	rig_dir_remove();
}
END_TEST

/* ---- shares ---- */

/* The sizes are computed once: the next kvmm takes over those of the first. */
START_TEST(test_auto_over_lives)
{
	pid_t first;
	s64 pool, host;
	char *log;

	rig_start(&rig, "--pool-size", "auto", "--extent-size", "1M",
		  "--host-size", "1%", "--min-token-bytes", "16384", NULL);
	pool = rig_value(&rig, "meminfo", "GpuTotal");
	host = rig_value(&rig, "meminfo", "HostTotal");
	ck_assert_int_gt(pool, 1024);
	ck_assert_int_ge(host, 1024);
	first = rig_daemon(&rig);
	ck_assert_int_eq(kill(first, SIGKILL), 0);
	while (rig_daemon(&rig) == first || !rig_daemon(&rig))
		nap_ms(10);
	rig_await(&rig, "meminfo", "GpuTotal", 1, 20);
	ck_assert_int_eq(rig_value(&rig, "meminfo", "GpuTotal"), pool);
	ck_assert_int_eq(rig_value(&rig, "meminfo", "HostTotal"), host);
	log = hold_log();
	ck_assert_uint_eq(count_text(log, "--pool-size comes to "), 1);
	ck_assert_uint_eq(count_text(log, "--host-size comes to "), 1);
	free(log);
	rig_stop(&rig);
}
END_TEST

/* A new control group below the one of this process. */
struct group {
	char dir[512];
	char limit[640];
	char used[640];
	char procs[600];
	char parent[600];
};

/* Paths of a group of that name; false if there are no groups for memory. */
static bool group_paths(struct group *g, pid_t pid, bool *v1)
{
	const char *mount = "/sys/fs/cgroup";
	char text[4096], *at;

	file_read("/proc/self/cgroup", text, sizeof(text));
	at = strstr(text, ":memory:");
	*v1 = at != NULL;
	if (*v1)
		mount = "/sys/fs/cgroup/memory";
	else
		at = strstr(text, "0::");
	if (at) {
		at += *v1 ? strlen(":memory:") : strlen("0::");
		at[strcspn(at, "\n")] = '\0';
		snprintf(g->parent, sizeof(g->parent), "%s%.200s/cgroup.procs",
			 mount, at);
		snprintf(g->dir, sizeof(g->dir), "%s%.200s/kvmm-hostpool-%d",
			 mount, at, (int)pid);
		snprintf(g->procs, sizeof(g->procs), "%s/cgroup.procs",
			 g->dir);
	}
	return at != NULL;
}

static bool group_enter(struct group *g, const char *limit)
{
	char pid[16];
	bool v1;

	/*
	 * The group has the name of the runner, which removes it after a failed
	 * test.
	 */
	if (!group_paths(g, getppid(), &v1)) {
		printf("no control group: this kernel has none for memory\n");
		return false;
	}
	snprintf(g->limit, sizeof(g->limit), "%s/%s", g->dir,
		 v1 ? "memory.limit_in_bytes" : "memory.max");
	snprintf(g->used, sizeof(g->used), "%s/%s", g->dir,
		 v1 ? "memory.usage_in_bytes" : "memory.current");
	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	if (!mkdir(g->dir, 0700) && file_write(g->limit, limit) &&
	    file_write(g->procs, pid))
		return true;
	printf("no control group: %s: %s\n", g->limit, strerror(errno));
	rmdir(g->dir);
	return false;
}

static void group_leave(struct group *g)
{
	char pid[16];
	u32 i;

	snprintf(pid, sizeof(pid), "%d", (int)getpid());
	ck_assert(file_write(g->parent, pid));
	for (i = 0; rmdir(g->dir) && i < 200; i++)
		nap_ms(10);
	ck_assert_int_ne(access(g->dir, F_OK), 0);
}

START_TEST(test_control_group)
{
	struct group g;
	struct job j;
	char *text;

	if (!group_enter(&g, "536870912"))
		return;
	rig_dir();
	j = job_start(&rig, "kvmm-hold", "--log-level", "err", "--pool-size",
		      "4M", "--extent-size", "256K", "--host-size", "1G",
		      "--min-token-bytes", "16384", NULL);
	ck_assert_int_eq(job_wait(&j, 30), 78);
	text = slurp(j.err);
	ck_assert_uint_eq(count_lines(text), 1);
	ck_assert_msg(strstr(text, " in the control group /sys/fs/cgroup") &&
		      strstr(text, "kvmm-hostpool-"), "%s", text);
	free(text);
	rig_dir_remove();
	/* A quarter of the group's limit, not of the machine's memory. */
	rig_start(&rig, "--pool-size", "4M", "--extent-size", "256K",
		  "--host-size", "25%", "--min-token-bytes", "16384", NULL);
	ck_assert_int_eq(rig_value(&rig, "meminfo", "HostTotal"), 128 << 10);
	rig_stop(&rig);
	group_leave(&g);
}
END_TEST

/* Wait until the group uses @bytes; @j must not end before. */
static u64 await_used(const struct group *g, struct job *j, u64 bytes)
{
	u64 end = now_ms() + 20000, used = 0;
	char text[64];
	int code;

	while (used < bytes) {
		ck_assert_msg(now_ms() < end && !job_ended(j, &code),
			      "%s", slurp(j->err));
		file_read(g->used, text, sizeof(text));
		used = strtoull(text, NULL, 10);
		nap_ms(2);
	}
	return used;
}

/*
 * The pool fits at first, then another process takes the memory: the limit is
 * lowered to a little more than the current use.
 */
START_TEST(test_room_goes_while_filling)
{
	char text[64], *err;
	struct group g;
	struct job j;
	u64 used;

	if (!group_enter(&g, "1610612736"))
		return;
	rig_dir();
	setenv("KVMM_FAULT", "host_huge,host_thp,host_slow", 1);
	j = job_start(&rig, "kvmm-hold", "--pool-size", "4M", "--extent-size",
		      "256K", "--host-size", "768M", "--area-max", "4M",
		      "--min-token-bytes", "16384", NULL);
	unsetenv("KVMM_FAULT");
	used = await_used(&g, &j, 100ull << 20);
	ck_assert_uint_lt(used, 600ull << 20);
	snprintf(text, sizeof(text), "%llu", used + (90ull << 20));
	ck_assert(file_write(g.limit, text));
	ck_assert_int_eq(job_wait(&j, 30), 71);
	err = slurp(j.err);
	ck_assert_msg(strstr(err, "768M cannot be had: Cannot allocate memory"),
		      "%s", err);
	free(err);
	expect_nothing_left();
	rig_dir_remove();
	group_leave(&g);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("hostpool");
	TCase *tc = tcase_create("real");
	struct group g;
	SRunner *sr;
	int failed;
	bool v1;

	huge_remember();
	tcase_set_timeout(tc, 60 * time_scale());
	tcase_add_loop_test(tc, test_kind, 0, ARRAY_SIZE(kind_fault));
	tcase_add_test(tc, test_too_few_set_aside);
	tcase_add_test(tc, test_stopped_while_filling);
	tcase_add_test(tc, test_fill_fails);
	tcase_add_test(tc, test_auto_over_lives);
	tcase_add_test(tc, test_control_group);
	tcase_add_test(tc, test_room_goes_while_filling);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	huge_restore();
	if (failed && group_paths(&g, getpid(), &v1))
		rmdir(g.dir);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
