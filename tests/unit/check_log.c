// SPDX-License-Identifier: Apache-2.0
/* check_log.c - an unread stderr costs the daemon lines, but does not block it */
#include <check.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <kvmm/log.h>

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
	sr = srunner_create(suite);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
