// SPDX-License-Identifier: Apache-2.0
/*
 * adopt_scene.c - a kvmm that dies and is adopted
 *
 * The tests read the course of events in the log, to which all processes write
 * in order.  To act between a death and the next start, a test stops hold and
 * continues it afterwards.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/integration/adopt_scene.h"

struct rig adopt_rig;

const char *adopt_pool_size(bool less)
{
	if (rig_on_gpu())
		return less ? "1280K" : "1536K";
	return less ? "1792K" : "2M";
}

void adopt_world(const char *adopt, const char *resume_ms, ...)
{
	char area[RIG_PATH + 16];
	const char *more[10] = { NULL };
	struct job j;
	va_list ap;
	u32 n = 0;

	/* A step takes long where a CPU stands in for a GPU, beside other processes. */
	if (rig_on_gpu()) {
		more[n++] = "--step-deadline-ms";
		more[n++] = "600000";
	}
	va_start(ap, resume_ms);
	while (n < ARRAY_SIZE(more) && (more[n] = va_arg(ap, const char *)))
		n++;
	va_end(ap);
	rig_start(&adopt_rig, "--pool-size", adopt_pool_size(false),
		  "--extent-size", "256K",
		  "--host-size", "2M", "--area-max", "32M", "--swappiness",
		  "200", "--max-seqs", "256", "--adopt", adopt, "--resume-ms",
		  resume_ms, more[0], more[1], more[2], more[3], more[4],
		  more[5], more[6], more[7], more[8], more[9], NULL);
	snprintf(area, sizeof(area), "%s/area", adopt_rig.dir);
	/* The daemon may die of swapon although the area was added. */
	for (n = 0; n < 3 && rig_value(&adopt_rig, "meminfo", "SwapTotal") <= 0;
	     n++) {
		j = job_start(&adopt_rig, "kvctl", "swapon", area, "--size",
			      "32M", NULL);
		if (job_wait(&j, 30))
			adopt_await_logged("kvmm: ready:", 1);
	}
	ck_assert_int_gt(rig_value(&adopt_rig, "meminfo", "SwapTotal"), 0);
}

void adopt_world_stop(void)
{
	rig_walk(&adopt_rig);
	rig_stop(&adopt_rig);
}

char *adopt_log(void)
{
	char path[RIG_PATH + 32];

	snprintf(path, sizeof(path), "%s/job-0.err", adopt_rig.dir);
	return slurp(path);
}

const char *adopt_log_end(void)
{
	const size_t most = 3000;	/* longest text of a failure */
	char *log = adopt_log();
	const size_t n = strlen(log);

	return n > most ? log + n - most : log;
}

u32 adopt_logged(const char *what)
{
	char *log = adopt_log(), *p;
	u32 n = 0;

	for (p = strstr(log, what); p; p = strstr(p + 1, what))
		n++;
	free(log);
	return n;
}

void adopt_await_logged(const char *what, u32 before)
{
	const u64 end = now_ms() + ADOPT_WAIT_MS * time_scale();

	while (adopt_logged(what) <= before) {
		ck_assert_msg(now_ms() < end, "'%s' is not said:\n%s", what,
			      adopt_log_end());
		nap_ms(2);
	}
}

u32 adopt_sum(const char *line, const char *what)
{
	char *log = adopt_log(), *p, *save = NULL, *at;
	u32 sum = 0;

	for (p = strtok_r(log, "\n", &save); p; p = strtok_r(NULL, "\n", &save)) {
		at = strstr(p, line) ? strstr(p, what) : NULL;
		if (!at)
			continue;
		while (at > p && at[-1] >= '0' && at[-1] <= '9')
			at--;
		sum += (u32)strtoul(at, NULL, 10);
	}
	free(log);
	return sum;
}

pid_t adopt_daemon(pid_t other)
{
	const u64 end = now_ms() + ADOPT_WAIT_MS * time_scale();
	pid_t pid;

	while (!(pid = rig_daemon(&adopt_rig)) || pid == other) {
		ck_assert_msg(now_ms() < end, "hold starts no daemon:\n%s",
			      adopt_log_end());
		nap_ms(1);
	}
	return pid;
}

void adopt_kill(void)
{
	const u32 ready = adopt_logged("kvmm: ready:");

	ck_assert_int_eq(kill(adopt_daemon(0), SIGKILL), 0);
	adopt_await_logged("kvmm: ready:", ready);
}

/* Was process @pid started to print the layout of its arena? */
static bool is_asked(const char *pid)
{
	char path[64], args[256] = "", *arg;
	FILE *f;
	size_t n;

	snprintf(path, sizeof(path), "/proc/%s/cmdline", pid);
	f = fopen(path, "re");
	n = f ? fread(args, 1, sizeof(args) - 1, f) : 0;
	if (f)
		fclose(f);
	for (arg = args; arg < args + n; arg += strlen(arg) + 1)
		if (!strcmp(arg, "--arena-layout"))
			return true;
	return false;
}

void adopt_await_probe(void)
{
	const u64 end = now_ms() + ADOPT_WAIT_MS * time_scale();
	bool asked = false;
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children",
		 (int)adopt_rig.hold, (int)adopt_rig.hold);
	while (!asked) {
		char *pids = slurp(path), *pid, *save = NULL;

		for (pid = strtok_r(pids, " ", &save); pid && !asked;
		     pid = strtok_r(NULL, " ", &save))
			asked = is_asked(pid);
		free(pids);
		ck_assert_msg(asked || now_ms() < end,
			      "hold asks no program:\n%s", adopt_log_end());
		nap_ms(1);
	}
}

void adopt_kill_and(void (*fn)(void *arg), void *arg)
{
	const u32 ready = adopt_logged("kvmm: ready:");
	const u64 end = now_ms() + ADOPT_WAIT_MS * time_scale();
	pid_t old = adopt_daemon(0);
	char path[64];

	snprintf(path, sizeof(path), "/proc/%d/task/%d/children", (int)old,
		 (int)old);
	kill(adopt_rig.hold, SIGSTOP);
	ck_assert_int_eq(kill(old, SIGKILL), 0);
	/* A zombie has no open files any more. */
	snprintf(path, sizeof(path), "/proc/%d/maps", (int)old);
	for (;;) {
		char *maps = slurp(path);
		const bool gone = !*maps;

		free(maps);
		if (gone)
			break;
		ck_assert(now_ms() < end);
		nap_ms(1);
	}
	fn(arg);
	kill(adopt_rig.hold, SIGCONT);
	adopt_await_logged("kvmm: ready:", ready);
}

static int kept_find(const char *name)
{
	char dir[64], path[400], link[300];
	struct dirent *e;
	int fd = -1;
	DIR *d;

	snprintf(dir, sizeof(dir), "/proc/%d/fd", (int)adopt_rig.hold);
	d = opendir(dir);
	ck_assert_ptr_nonnull(d);
	while (fd < 0 && (e = readdir(d))) {
		ssize_t n;

		snprintf(path, sizeof(path), "%s/%s", dir, e->d_name);
		n = readlink(path, link, sizeof(link) - 1);
		if (n <= 0)
			continue;
		link[n] = '\0';
		if (strstr(link, name))
			fd = open(path, O_RDWR | O_CLOEXEC);
	}
	closedir(d);
	return fd;
}

int adopt_kept(const char *name)
{
	return adopt_kept_after(name, 0);
}

int adopt_kept_after(const char *name, ino_t old)
{
	const u64 end = now_ms() + ADOPT_WAIT_MS * time_scale();
	struct stat st;
	int fd;

	/* hold takes a deposit in some later turn of its loop. */
	for (;;) {
		fd = kept_find(name);
		if (fd >= 0) {
			ck_assert_int_eq(fstat(fd, &st), 0);
			if (st.st_ino != old)
				return fd;
			close(fd);
		}
		ck_assert_msg(now_ms() < end, "hold keeps no new %s", name);
		nap_ms(1);
	}
}
