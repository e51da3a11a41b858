// SPDX-License-Identifier: Apache-2.0
/*
 * check_reach.c - the line for people when no daemon can be reached
 *
 * Directories and sockets are made in each of the states that a node can be in,
 * and the line must name the one that it is, and its remedy.  The test of another
 * user needs root and a mount namespace.
 */
#define _GNU_SOURCE
#include <check.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <libkvmm.h>

#define NOBODY	65534u

static char base[128], path[160];

static void begin(void)
{
	snprintf(base, sizeof(base), "%s/reach.XXXXXX", getenv("TMPDIR"));
	ck_assert_ptr_nonnull(mkdtemp(base));
}

static void end(void)
{
	char line[160];

	snprintf(line, sizeof(line), "rm -rf '%s'", base);
	ck_assert_int_eq(system(line), 0);
}

/* Have an empty /run, which every user can look into, as the base. */
static bool own_run(void)
{
	if (geteuid() || unshare(CLONE_NEWNS) ||
	    mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("tmpfs", "/run", "tmpfs", 0, "mode=0755")) {
		puts("note: a mount namespace is wanted: other users were not tried");
		return false;
	}
	strcpy(base, "/run");
	return true;
}

static void be_nobody(void)
{
	ck_assert_int_eq(setgid(NOBODY), 0);
	ck_assert_int_eq(setuid(NOBODY), 0);
}

/* A directory @name below the base, with @mode. */
static const char *dir(const char *name, mode_t mode)
{
	snprintf(path, sizeof(path), "%s/%s", base, name);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	ck_assert_int_eq(chmod(path, mode), 0);
	return path;
}

/* A socket attach.sock in @in that a program listens on.  Return: its descriptor */
static int listen_in(const char *in, mode_t mode)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	snprintf(a.sun_path, sizeof(a.sun_path), "%s/attach.sock", in);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
	ck_assert_int_eq(listen(fd, 8), 0);
	ck_assert_int_eq(chmod(a.sun_path, mode), 0);
	return fd;
}

/* The line for a client of the socket in @in below the base */
static const char *line(const char *in, int err)
{
	static char text[256];
	char sock[256];
	u32 memory, device;

	snprintf(sock, sizeof(sock), "%s/%s/attach.sock", base, in);
	ck_assert_int_eq(kvmm_ask(sock, &memory, &device, text), err);
	return text;
}

static void says(const char *text, const char *part)
{
	ck_assert_msg(strstr(text, part), "'%s' does not say '%s'", text, part);
}

START_TEST(test_no_daemon)
{
	const char *t = line("run", -ENOENT);

	says(t, "no daemon at ");
	says(t, "/run/attach.sock: start it with kvmm-hold");
	ck_assert_ptr_null(strstr(t, "tenant"));
	/* A socket that a daemon which was killed left behind is no daemon. */
	close(listen_in(dir("run", 0755), 0600));
	says(line("run", -ECONNREFUSED), "no daemon at ");
	says(line("run/lab", -ENOENT), "no daemon at ");
}
END_TEST

START_TEST(test_no_tenant)
{
	const int fd = listen_in(dir("run", 0755), 0600);
	const char *t = line("run/lab", -ENOENT);

	says(t, "/run has no tenant lab: ");
	says(t, "`tenant = lab,owner=");
	says(t, "/run/lab/attach.sock)");
	ck_assert_ptr_null(strstr(t, "no daemon"));
	/* The directory of a tenant stays when its line is gone. */
	dir("run/lab", 0755);
	says(line("run/lab", -ENOENT), "has no tenant lab: ");
	close(fd);
}
END_TEST

START_TEST(test_closed)
{
	const char *t;
	int fd[3];

	if (!own_run())
		return;
	fd[0] = listen_in(dir("shut", 0700), 0666);
	fd[1] = listen_in(dir("run", 0755), 0600);
	fd[2] = listen_in(dir("run/lab", 0755), 0600);
	ck_assert_int_eq(mknod("/run/run/admin.sock", S_IFREG | 0600, 0), 0);
	be_nobody();
	t = line("shut", -EACCES);
	says(t, "may not look into ");
	says(t, "/shut, of user root with mode 0700: become root");
	t = line("run/lab", -EACCES);
	says(t, "no permission for ");
	says(t, "/lab/attach.sock, of user root with mode 0600");
	says(t, "owner= and mode= of its `tenant =` line");
	/* A daemon's own socket, which has admin.sock beside it. */
	t = line("run", -EACCES);
	says(t, "/run/attach.sock, of user root with mode 0600, is not for user ");
	says(t, "`tenant = NAME,owner=");
	/* A daemon that admits others only is one. */
	says(line("run/other", -ENOENT), "has no tenant other: ");
	close(fd[0]);
	close(fd[1]);
	close(fd[2]);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("reach");
	TCase *tc = tcase_create("reach");
	SRunner *sr;
	int failed;

	tcase_add_checked_fixture(tc, begin, end);
	tcase_add_test(tc, test_no_daemon);
	tcase_add_test(tc, test_no_tenant);
	suite_add_tcase(s, tc);
	tc = tcase_create("node");
	tcase_add_test(tc, test_closed);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? 1 : 0;
}
