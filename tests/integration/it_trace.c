// SPDX-License-Identifier: Apache-2.0
/*
 * it_trace.c - trace, last_oom, kmsg and blockmap of a daemon at work
 *
 * A runtime works in a pool that is too small for it, with all events on, while
 * the files are read.  Every line must be complete, known and in order, and the
 * events that the daemon counts must appear.  Switches take 0 and 1 only, by
 * kvctl and, where mounting is possible, by a write; another user finds neither
 * the files nor the switches.
 * budget: 20 s
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

#include <kvmm/seq.h>
#include <kvmm/view.h>

#include "kvmm/core/trace.h"
#include "tests/integration/harness.h"

#define PROC_UID	"4545"
#define READS		5u
#define LIMIT_S		60

static struct rig rig;
static const char *no_mount;

static const char * const names[NR_CORE_TRACE] = {
#define f(name)
#define x(name, text, fields) #name,
	CORE_TRACE_EVENTS(x, f)
#undef x
#undef f
};

static int kvctl(const char *verb, const char *path, const char *value,
		 char **text)
{
	struct job j = value ? job_start(&rig, "kvctl", verb, path, value, NULL) :
			       job_start(&rig, "kvctl", verb, path, NULL);
	int code = job_wait(&j, 30 * time_scale());

	*text = slurp(code ? j.err : j.out);
	unlink(j.out);
	unlink(j.err);
	return code;
}

static char *cat(const char *path)
{
	char *text;

	ck_assert_msg(!kvctl("cat", path, NULL, &text), "%s: %s", path, text);
	return text;
}

static void want(const char *path, const char *value)
{
	char *text = cat(path);

	ck_assert_msg(!strcmp(text, value), "%s: '%s'", path, text);
	free(text);
}

static void set(const char *path, const char *value, int code,
		const char *says)
{
	char *text;

	ck_assert_int_eq(kvctl("set", path, value, &text), code);
	ck_assert_msg(strstr(text, says), "%s: '%s'", path, text);
	free(text);
}

/* ---- the text of trace ---- */

static u32 event_of(const char *name, size_t len)
{
	u32 i;

	for (i = 0; i < NR_CORE_TRACE; i++)
		if (strlen(names[i]) == len && !memcmp(names[i], name, len))
			return i;
	ck_abort_msg("no event: %.80s", name);
	return 0;
}

/* Check one line.  Return: its event. */
static u32 want_line(const char *line, u64 *before)
{
	unsigned long long s, us;
	char name[64];
	u32 event;
	int at = 0;
	u64 now;

	ck_assert_msg(sscanf(line, " %llu.%6llu: %63[a-z_]:%n", &s, &us, name,
			     &at) == 3 && at, "'%.200s'", line);
	now = s * 1000000 + us;
	ck_assert_uint_ge(now, *before);
	*before = now;
	event = event_of(name, strlen(name));
	for (line += at; *line != '\n'; line += at) {
		at = 0;
		ck_assert_msg(sscanf(line, " %*[a-z]=%*[a-z0-9.-]%n", &at) == 0 &&
			      at, "'%.200s'", line);
	}
	return event;
}

/* Return: bits of the events with a record; *@written: number of records. */
static u32 want_trace(const char *text, u64 *written)
{
	unsigned long long in, all, lost;
	u64 before = 0, lines = 0;
	u32 seen = 0;
	int at = 0;

	ck_assert_msg(sscanf(text, "# entries-in-buffer/entries-written: %llu/%llu\n# lost %llu\n#\n#     TIMESTAMP  EVENT\n%n",
			     &in, &all, &lost, &at) == 3 && at, "'%.200s'", text);
	ck_assert_uint_eq(in + lost, all);
	*written = all;
	for (text += at; *text; text = strchr(text, '\n') + 1) {
		if (sscanf(text, "# lost %llu\n", &lost) == 1) {
			lines += lost;
			continue;
		}
		seen |= 1u << want_line(text, &before);
		lines++;
	}
	ck_assert_uint_eq(lines, in);
	return seen;
}

/* ---- tests ---- */

static void start(void)
{
	char path[RIG_PATH + 32];

	rig_start(&rig, "--pool-size", "2M", "--extent-size", "256K",
		  "--proc", no_mount ? "off" : "on", "--proc-user", PROC_UID,
		  NULL);
	snprintf(path, sizeof(path), "%s/proc/version", rig.dir);
	while (!no_mount && access(path, R_OK))
		nap_ms(5);
}

static void want_others(void)
{
	unsigned long long begin, end;
	char *text = cat("last_oom"), *p;

	ck_assert_msg(sscanf(text, "# %llu at ", &begin) == 1, "%s", text);
	ck_assert_ptr_nonnull(strstr(text, "\npool gpu0: total 2048kB "));
	ck_assert_ptr_nonnull(strstr(text, "\noom: outcome="));
	free(text);
	text = cat("blockmap");
	p = strstr(text, "# end ");
	ck_assert_msg(p && sscanf(text, "# begin %llu", &begin) == 1 &&
		      sscanf(p, "# end %llu", &end) == 1 && begin <= end, "%s",
		      text);
	free(text);
	text = cat("kmsg");
	p = strstr(text, ",-;events/enable: is set to 1, by an operator\n");
	ck_assert_msg(p && text[0] >= '3' && text[1] == ',', "%s", text);
	free(text);
}

START_TEST(test_storm)
{
	const u64 end = now_ms() + LIMIT_S * 1000ull * time_scale();
	const u32 both = 1u << CORE_TRACE_preempt | 1u << CORE_TRACE_oom |
			 1u << CORE_TRACE_grant | 1u << CORE_TRACE_admit;
	u64 written = 0, before = 0;
	u32 seen = 0, nr = 0;
	struct job j;
	char *text;

	start();
	text = cat("trace");
	ck_assert_uint_eq(want_trace(text, &written), 0);
	ck_assert_uint_eq(written, 0);
	free(text);
	want("last_oom", "");
	set("events/enable", "1", 0, "is set to 1");
	j = job_start(&rig, KVRT_GENERATE, demo_model(), "-n", "6",
		      "--max-tokens", "200", "In the beginning",
		      "Holmes leaned", NULL);
	while ((seen & both) != both || nr < READS) {
		ck_assert_msg(now_ms() < end, "seen: %#x", seen);
		text = cat("trace");
		seen |= want_trace(text, &written);
		ck_assert_uint_ge(written, before);
		before = written;
		free(text);
		nr++;
	}
	ck_assert_int_eq(job_wait(&j, 120 * time_scale()), 0);
	want_others();
	/* Once switched off, no event is recorded. */
	set("events/enable", "0", 0, "is set to 0");
	text = cat("trace");
	want_trace(text, &before);
	free(text);
	set("domain/nobody/memory.max", "1G", 1, "no such domain");
	text = cat("trace");
	want_trace(text, &written);
	free(text);
	ck_assert_uint_eq(written, before);
	rig_walk(&rig);
	rig_stop(&rig);
}
END_TEST

/* Ask as kvmm-proc does for a reader of the mounted files. */
static void refused(const char *req)
{
	char path[RIG_PATH + 16];
	struct seq_file text;
	int status = 0;

	snprintf(path, sizeof(path), "%s/view.sock", rig.dir);
	seq_init(&text, 1 << 20);
	ck_assert_int_eq(kv_view_ask(path, req, 20000, &status, &text), 0);
	ck_assert_msg(status == ENOENT || status == EPERM, "%s: %d", req,
		      status);
	seq_free(&text);
}

static int write_switch(const char *value)
{
	char path[RIG_PATH + 64];
	int fd, err = 0;

	snprintf(path, sizeof(path), "%s/proc/events/swap_in/enable", rig.dir);
	fd = open(path, O_WRONLY | O_TRUNC);
	ck_assert_msg(fd >= 0, "%s: %s", path, strerror(errno));
	if (write(fd, value, strlen(value)) < 0)
		err = errno;
	close(fd);
	return err;
}

static void want_mounted(void)
{
	char path[RIG_PATH + 64];
	struct stat st;

	ck_assert_int_eq(write_switch("2\n"), EINVAL);
	ck_assert_int_eq(write_switch("on\n"), EINVAL);
	want("events/swap_in/enable", "0\n");
	ck_assert_int_eq(write_switch("1\n"), 0);
	want("events/swap_in/enable", "1\n");
	ck_assert_int_eq(write_switch("0"), 0);
	want("events/swap_in/enable", "0\n");
	snprintf(path, sizeof(path), "%s/proc/trace", rig.dir);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq(st.st_mode, S_IFREG | 0400);
}

START_TEST(test_switches)
{
	start();
	want("events/enable", "0\n");
	set("events/grant/enable", "1", 0, "events/grant/enable: is set to 1");
	want("events/grant/enable", "1\n");
	want("events/enable", "X\n");
	set("events/grant/enable", "2", 1, "out of bounds: 0 or 1");
	set("events/enable", "18446744073709551615", 1, "out of bounds: 0 or 1");
	set("events/grants/enable", "1", 1, "no such event");
	set("events/grant/enable", "yes", EX_USAGE, "not a valid number");
	set("events/grant", "1", EX_USAGE, "cannot be set");
	want("events/grant/enable", "1\n");
	want("events/enable", "X\n");
	refused("as 4646 cat trace");
	refused("as 4646 cat last_oom");
	refused("as 4646 cat kmsg");
	refused("as 4646 cat blockmap");
	refused("as 4646 cat events/enable");
	refused("as 4646 stat events");
	refused("as 4646 set events/enable 1");
	want("events/enable", "X\n");
	if (!no_mount)
		want_mounted();
	rig_stop(&rig);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("trace");
	TCase *tc = tcase_create("trace");
	SRunner *sr;
	int failed;

	no_mount = mount_hindrance();
	if (no_mount)
		printf("note: %s: the mount is not tried\n", no_mount);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, test_storm);
	tcase_add_test(tc, test_switches);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
