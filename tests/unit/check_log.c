// SPDX-License-Identifier: Apache-2.0
/*
 * check_log.c - lines of the log, and a stderr that is not read
 *
 * An unread stderr costs the daemon lines, but does not block it.
 */
#include <check.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <kvmm/log.h>

#include "lib/log_form.h"

#define NR_LINES 1000

static int reader;

/* stderr becomes a full pipe. */
static void setup(void)
{
	char fill[4096];
	int fd[2], flags;

	ck_assert_int_eq(pipe(fd), 0);
	flags = fcntl(fd[1], F_GETFL);
	memset(fill, 'x', sizeof(fill));
	ck_assert_int_eq(fcntl(fd[1], F_SETFL, flags | O_NONBLOCK), 0);
	while (write(fd[1], fill, sizeof(fill)) > 0)
		;
	ck_assert_int_eq(fcntl(fd[1], F_SETFL, flags), 0);
	ck_assert_int_eq(dup2(fd[1], STDERR_FILENO), STDERR_FILENO);
	close(fd[1]);
	reader = fd[0];
	ck_assert_int_eq(fcntl(reader, F_SETFL, O_NONBLOCK), 0);
	signal(SIGPIPE, SIG_IGN);
	kv_log_init("prog", KV_LOG_INFO);
	kv_log_never_wait();
}

/* Read the pipe.  Return: the text after the filling. */
static char *drain(void)
{
	static char buf[1 << 20];
	ssize_t n;
	size_t len = 0;
	char *p;

	while ((n = read(reader, buf + len, sizeof(buf) - 1 - len)) > 0)
		len += (size_t)n;
	buf[len] = '\0';
	p = strstr(buf, "prog: ");
	return p ? p : buf + len;
}

/* If a line waited, Check's time limit would end the test. */
START_TEST(test_nobody_reads)
{
	int i;

	for (i = 0; i < NR_LINES; i++)
		pr_err("line %d", i);
	ck_assert_str_eq(drain(), "");
	pr_info("again");
	ck_assert_str_eq(drain(),
			 "prog: warning: 1000 lines were lost: stderr was not read\n"
			 "prog: again\n");
	pr_warn("and on");
	ck_assert_str_eq(drain(), "prog: warning: and on\n");
	/* A line below the log level does not count as lost. */
	pr_debug("hidden");
	pr_info("last");
	ck_assert_str_eq(drain(), "prog: last\n");
}
END_TEST

/* The reader ended, or there is no stderr at all. */
START_TEST(test_nobody_is_left)
{
	close(reader);
	pr_err("one");
	pr_err("two");
	close(STDERR_FILENO);
	pr_err("three");
}
END_TEST

/* ---- formats ---- */

/* stderr becomes an empty pipe. */
static void setup_empty(void)
{
	int fd[2];

	ck_assert_int_eq(pipe(fd), 0);
	ck_assert_int_eq(dup2(fd[1], STDERR_FILENO), STDERR_FILENO);
	close(fd[1]);
	reader = fd[0];
	unsetenv("JOURNAL_STREAM");
	kv_log_init("prog", KV_LOG_DEBUG);
}

/* The lines since the last call. */
static const char *said(void)
{
	static char buf[8192];
	ssize_t n = read(reader, buf, sizeof(buf) - 1);

	ck_assert_int_gt(n, 0);
	buf[n] = '\0';
	return buf;
}

/* The clock of the log: that of time() is some milliseconds behind. */
static time_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return t.tv_sec;
}

/* The rest of a line behind its time, which must be one between @from and now. */
static const char *behind_time(const char *line, time_t from)
{
	struct tm tm = { 0 };
	const char *p = strptime(line, "%Y-%m-%dT%H:%M:%S.", &tm);
	time_t at;

	ck_assert_msg(p && strlen(p) >= 4 && p[3] == 'Z', "%s", line);
	ck_assert_uint_eq(strspn(p, "0123456789"), 3);
	at = timegm(&tm);
	ck_assert_msg(at >= from && at <= now(), "%s", line);
	return p + 4;
}

START_TEST(test_text)
{
	const time_t from = now();

	kv_log_format(KV_LOG_auto);
	pr_info("one");
	ck_assert_str_eq(behind_time(said(), from), " prog: one\n");
	pr_err("two");
	ck_assert_str_eq(behind_time(said(), from), " prog: error: two\n");
	kv_log_with(KV_LOG_DEBUG, "\"a\":1", "three %d", 3);
	ck_assert_str_eq(behind_time(said(), from), " prog: debug: three 3\n");
}
END_TEST

/* The journal has the time, and wants a priority. */
START_TEST(test_journal)
{
	const time_t from = now();
	char name[64];
	struct stat st;

	ck_assert_int_eq(fstat(STDERR_FILENO, &st), 0);
	snprintf(name, sizeof(name), "%llu:%llu", (unsigned long long)st.st_dev,
		 (unsigned long long)st.st_ino);
	setenv("JOURNAL_STREAM", name, 1);
	kv_log_format(KV_LOG_auto);
	pr_err("a");
	pr_warn("b");
	pr_info("c");
	pr_debug("d");
	ck_assert_str_eq(said(), "<3>prog: a\n<4>prog: b\n<6>prog: c\n<7>prog: d\n");
	/* Standard error that was redirected is not the journal. */
	snprintf(name, sizeof(name), "%llu:%llu", (unsigned long long)st.st_dev,
		 (unsigned long long)st.st_ino + 1);
	setenv("JOURNAL_STREAM", name, 1);
	kv_log_format(KV_LOG_auto);
	pr_info("e");
	ck_assert_str_eq(behind_time(said(), from), " prog: e\n");
}
END_TEST

START_TEST(test_json)
{
	const time_t from = now();
	char *long_text = malloc(20000);
	json_t *v;

	kv_log_format(KV_LOG_json);
	ck_assert(kv_log_is_json());
	kv_log_with(KV_LOG_WARN, "\"status\":401,\"path\":\"/\"",
		    "a \"b\" \\ \x01\t \xff %s", "\xe2\x82\xac");
	v = json_loads(said(), 0, NULL);
	ck_assert_ptr_nonnull(v);
	ck_assert_uint_eq(json_object_size(v), 6);
	ck_assert_str_eq(behind_time(json_string_value(json_object_get(v, "time")), from), "");
	ck_assert_str_eq(json_string_value(json_object_get(v, "level")), "warn");
	ck_assert_str_eq(json_string_value(json_object_get(v, "program")), "prog");
	ck_assert_str_eq(json_string_value(json_object_get(v, "message")),
			 "a \"b\" \\ \x01\t \xef\xbf\xbd \xe2\x82\xac");
	ck_assert_int_eq(json_integer_value(json_object_get(v, "status")), 401);
	json_decref(v);
	/* A message that becomes too long is cut, and the line is JSON still. */
	ck_assert_ptr_nonnull(long_text);
	memset(long_text, '\1', 19999);
	long_text[19999] = '\0';
	pr_info("%s", long_text);
	v = json_loads(said(), 0, NULL);
	ck_assert_ptr_nonnull(v);
	ck_assert_uint_gt(json_string_length(json_object_get(v, "message")), 100);
	json_decref(v);
	free(long_text);
}
END_TEST

/* The dates are those of the C library. */
START_TEST(test_dates)
{
	char got[LOG_FORM_TIME], want[LOG_FORM_TIME];
	struct tm tm;
	time_t t;

	for (t = 0; t < (time_t)500 * 366 * 86400; t += 7 * 86400 - 1) {
		ck_assert_ptr_nonnull(gmtime_r(&t, &tm));
		strftime(want, sizeof(want), "%Y-%m-%dT%H:%M:%S.007Z", &tm);
		ck_assert_int_eq(log_form_time(got, (u64)t, 7), 24);
		ck_assert_str_eq(got, want);
	}
}
END_TEST

/* ---- kept lines ---- */

#define KEPT		2u	/* so that readers and writers often meet */
#define WRITERS		3
#define WRITTEN		20000

static u32 nr_ended;

static void *writer(void *arg)
{
	const char who = *(const char *)arg;
	int i;

	for (i = 0; i < WRITTEN; i++)
		pr_info("%c %d %800s%c %d", who, i, "", who, i);
	__atomic_fetch_add(&nr_ended, 1, __ATOMIC_RELEASE);
	return NULL;
}

/* Lines are whole and in order, while threads write. */
static u64 read_kept(u64 from)
{
	struct kv_log_line line;
	int n, again;
	char a, b;

	while (kv_log_kept(from, &line)) {
		ck_assert_uint_ge(line.seq, from);
		ck_assert_uint_eq(line.level, KV_LOG_INFO);
		ck_assert_msg(sscanf(line.text, "%c %d %c %d", &a, &n, &b,
				     &again) == 4 && a == b && n == again,
			      "'%s'", line.text);
		from = line.seq + 1;
	}
	return from;
}

START_TEST(test_kept_while_written)
{
	static const char who[WRITERS] = { 'a', 'b', 'c' };
	pthread_t t[WRITERS];
	u64 from = 0;
	int i;

	close(STDERR_FILENO);
	ck_assert_int_eq(kv_log_keep(KEPT), 0);
	for (i = 0; i < WRITERS; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, writer,
						(void *)&who[i]), 0);
	while (__atomic_load_n(&nr_ended, __ATOMIC_ACQUIRE) < WRITERS)
		from = read_kept(from);
	for (i = 0; i < WRITERS; i++)
		pthread_join(t[i], NULL);
	from = read_kept(from);
	ck_assert_uint_gt(from, WRITERS * WRITTEN / 2);
	ck_assert_uint_le(from, WRITERS * WRITTEN);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("log");
	TCase *tc = tcase_create("log");
	SRunner *sr;
	int failed;

	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, test_nobody_reads);
	tcase_add_test(tc, test_nobody_is_left);
	tcase_add_test(tc, test_kept_while_written);
	suite_add_tcase(suite, tc);
	tc = tcase_create("formats");
	tcase_set_timeout(tc, 30);
	tcase_add_checked_fixture(tc, setup_empty, NULL);
	tcase_add_test(tc, test_text);
	tcase_add_test(tc, test_journal);
	tcase_add_test(tc, test_json);
	tcase_add_test(tc, test_dates);
	suite_add_tcase(suite, tc);
	sr = srunner_create(suite);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
