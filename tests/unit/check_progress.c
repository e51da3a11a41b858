// SPDX-License-Identifier: Apache-2.0
/*
 * check_progress.c - a long load gets more time from a service manager
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <kvmm/notify.h>

#include "runtime/cli/cli.h"

START_TEST(test_more_time)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
	struct model_progress mp;
	struct progress p;
	char text[512];
	ssize_t n;

	snprintf(a.sun_path, sizeof(a.sun_path), "%s/notify.%d",
		 getenv("TMPDIR"), (int)getpid());
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	setenv("NOTIFY_SOCKET", a.sun_path, 1);
	kv_notify_init();
	mp = progress_start(&p, "a-model");
	/* Nothing of a load that has just begun. */
	mp.fn(mp.arg, 1, 4);
	ck_assert_int_lt(recv(fd, text, sizeof(text), MSG_DONTWAIT), 0);
	/* A minute later. */
	p.begin -= 60000000000ll;
	p.said -= 60000000000ll;
	mp.fn(mp.arg, 1000000000, 4000000000);
	n = recv(fd, text, sizeof(text) - 1, MSG_DONTWAIT);
	ck_assert_int_gt(n, 0);
	text[n] = '\0';
	ck_assert_str_eq(text, "EXTEND_TIMEOUT_USEC=180000000\nSTATUS=loading a-model: 25 % of 4.0 GB");
	close(fd);
	unlink(a.sun_path);
}
END_TEST

/* Its rate is that of the pass over the weights that goes on. */
START_TEST(test_pass)
{
	struct model_progress mp;
	struct progress p;
	s64 begin;

	mp = progress_start(&p, "a-model");
	begin = p.begin;
	mp.fn(mp.arg, 1, 4);
	mp.fn(mp.arg, 4, 4);
	ck_assert_int_eq(p.begin, begin);
	ck_assert_uint_eq(p.pass, 0);
	mp.fn(mp.arg, 1, 5);
	ck_assert_int_gt(p.begin, begin);
	ck_assert_uint_eq(p.pass, 1);
	mp.fn(mp.arg, 5, 5);
	ck_assert_uint_eq(p.pass, 1);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("progress");
	TCase *tc = tcase_create("progress");
	SRunner *sr;
	int failed;

	tcase_add_test(tc, test_more_time);
	tcase_add_test(tc, test_pass);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? 1 : 0;
}
