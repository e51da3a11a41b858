// SPDX-License-Identifier: Apache-2.0
/*
 * check_hold.c - records of a kvmm that means harm, in kvmm-hold
 *
 * Hold is root and does what records say.  A kvmm that was taken over can send
 * any, with any descriptor that it has: hold must not fill up, and must remove
 * no name but those of the sockets and the lock with which that kvmm began, and
 * must execute no file that came from elsewhere.
 */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "kvmm/hold/store.h"
#include "kvmm/hold/upgrade.h"

static struct store st;
static char dir[64];
static int sv[2];

static void setup(void)
{
	memset(&st, 0, sizeof(st));
	snprintf(dir, sizeof(dir), "%s/hold.XXXXXX", getenv("TMPDIR") ?
		 getenv("TMPDIR") : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0,
				    sv), 0);
}

static void teardown(void)
{
	store_clear(&st);
	close(sv[0]);
	close(sv[1]);
	ck_assert_int_eq(rmdir(dir), 0);
}

static const char *at(const char *name)
{
	static char path[4][108];
	static u32 n;
	char *p = path[n++ % 4];

	snprintf(p, sizeof(path[0]), "%s/%s", dir, name);
	return p;
}

static int file_at(const char *name)
{
	int fd = open(at(name), O_RDWR | O_CREAT | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	return fd;
}

static int socket_at(const char *name)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	int s = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	strcpy(sun.sun_path, at(name));
	ck_assert_int_eq(bind(s, (struct sockaddr *)&sun, sizeof(sun)), 0);
	return s;
}

static bool is_there(const char *name)
{
	return !access(at(name), F_OK);
}

static void put(u32 kind, u32 index, int fd)
{
	const struct hold_record r = {
		.magic = HOLD_MAGIC, .op = HOLD_PUT, .kind = kind,
		.index = index,
	};

	store_apply(&st, &r, fd);
}

static void start(void)
{
	put(HOLD_LOCK, 0, file_at("a.sock.lock"));
	put(HOLD_LISTEN, 1, socket_at("view.sock"));
	put(HOLD_LISTEN, 4, socket_at("tenant.sock"));
	put(HOLD_LISTEN, 0, socket_at("a.sock"));
}

/* As kvmm left them, which could not remove them itself. */
START_TEST(test_names_go)
{
	start();
	store_unlink(&st);
	ck_assert(!is_there("a.sock.lock"));
	ck_assert(!is_there("a.sock"));
	ck_assert(!is_there("view.sock"));
	ck_assert(!is_there("tenant.sock"));
}
END_TEST

/* A swap area, that an operator gave it, in place of the lock. */
START_TEST(test_other_lock_stays)
{
	start();
	put(HOLD_LOCK, 0, file_at("swapfile"));
	store_unlink(&st);
	ck_assert(is_there("swapfile"));
	ck_assert(is_there("a.sock"));
	unlink(at("swapfile"));
	unlink(at("a.sock"));
	unlink(at("a.sock.lock"));
	unlink(at("view.sock"));
	unlink(at("tenant.sock"));
}
END_TEST

/* Somebody's socket in place of one of its own, and as one more. */
START_TEST(test_other_socket_stays)
{
	start();
	put(HOLD_LISTEN, 0, socket_at("theirs.sock"));
	put(HOLD_LISTEN, 7, socket_at("more.sock"));
	store_unlink(&st);
	ck_assert(is_there("theirs.sock"));
	ck_assert(is_there("more.sock"));
	ck_assert(!is_there("a.sock"));
	ck_assert(!is_there("a.sock.lock"));
	unlink(at("theirs.sock"));
	unlink(at("more.sock"));
}
END_TEST

static u32 count_fds(void)
{
	u32 nr = 0;
	int fd;

	for (fd = 0; fd < 64; fd++)
		nr += fcntl(fd, F_GETFD) >= 0;
	return nr;
}

/* Room for one descriptor has room for two. */
START_TEST(test_one_descriptor)
{
	struct hold_record r = {
		.magic = HOLD_MAGIC, .op = HOLD_PUT, .kind = HOLD_CLIENT,
	};
	struct iovec iov = { .iov_base = &r, .iov_len = sizeof(r) };
	union {
		char		buf[CMSG_SPACE(8 * sizeof(int))];
		struct cmsghdr	align;
	} control;
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control,
		.msg_controllen = CMSG_SPACE((u32)_i * sizeof(int)),
	};
	u32 before = count_fds(), i;
	int fd[8];

	memset(&control, 0, sizeof(control));
	control.align.cmsg_level = SOL_SOCKET;
	control.align.cmsg_type = SCM_RIGHTS;
	control.align.cmsg_len = CMSG_LEN((u32)_i * sizeof(int));
	for (i = 0; i < (u32)_i; i++)
		fd[i] = sv[1];
	memcpy(CMSG_DATA(&control.align), fd, (u32)_i * sizeof(int));
	for (i = 0; i < 5; i++)
		ck_assert_int_eq(sendmsg(sv[1], &msg, 0), sizeof(r));
	ck_assert_int_eq(store_receive(&st, sv[0]), 0);
	ck_assert_uint_eq(st.nr, 1);
	ck_assert_int_ge(st.kept[0].fd, 0);
	ck_assert_uint_eq(count_fds(), before + 1);
}
END_TEST

/* An empty message reads as the end, and may bring one all the same. */
START_TEST(test_empty_with_descriptor)
{
	struct iovec iov = { .iov_base = NULL, .iov_len = 0 };
	union {
		char		buf[CMSG_SPACE(sizeof(int))];
		struct cmsghdr	align;
	} control;
	struct msghdr msg = {
		.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control,
		.msg_controllen = sizeof(control.buf),
	};
	u32 before = count_fds();

	memset(&control, 0, sizeof(control));
	control.align.cmsg_level = SOL_SOCKET;
	control.align.cmsg_type = SCM_RIGHTS;
	control.align.cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(&control.align), &sv[1], sizeof(int));
	ck_assert_int_eq(sendmsg(sv[1], &msg, 0), 0);
	ck_assert_int_eq(store_receive(&st, sv[0]), -EPIPE);
	ck_assert_uint_eq(count_fds(), before);
}
END_TEST

/* ---- programs ---- */

/* A program that says that it is a kvmm, and leaves a file where it ran. */
static int program_at(const char *name, mode_t mode)
{
	FILE *f = fopen(at(name), "w");
	int fd;

	ck_assert_ptr_nonnull(f);
	fprintf(f, "#!/bin/sh\n: > %s\necho arena 7\n", at("ran"));
	ck_assert_int_eq(fchmod(fileno(f), mode), 0);
	ck_assert_int_eq(fclose(f), 0);
	fd = open(at(name), O_RDONLY | O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	return fd;
}

/* Return: errno that kvmm is told; @fd is taken over. */
static int upgrade_asked(int fd)
{
	struct hold_record r = {
		.magic = HOLD_MAGIC, .op = HOLD_ASK, .kind = HOLD_UPGRADE,
		.value = 7,
	};
	struct upgrade u;

	upgrade_init(&u);
	upgrade_ask(&u, &r, fd);
	ck_assert_int_eq(u.next >= 0, !r.index);
	if (u.next >= 0)
		close(u.next);
	return (int)r.index;
}

START_TEST(test_program_runs)
{
	ck_assert_int_eq(upgrade_asked(program_at("prog", 0700)), 0);
	ck_assert_int_eq(unlink(at("ran")), 0);
	ck_assert_int_eq(upgrade_asked(program_at("prog", 0720)), EPERM);
	ck_assert_int_eq(upgrade_asked(program_at("prog", 0702)), EPERM);
	ck_assert_int_eq(upgrade_asked(program_at("prog", 0600)), EPERM);
	ck_assert_int_eq(upgrade_asked(-1), EBADF);
	ck_assert_int_eq(upgrade_asked(open(dir, O_RDONLY | O_CLOEXEC)),
			 EPERM);
	ck_assert_int_ne(access(at("ran"), F_OK), 0);
	ck_assert_int_eq(unlink(at("prog")), 0);
}
END_TEST

/* Of root's, and nowhere that hold sees: as from mounts of a container. */
START_TEST(test_program_unseen)
{
	int fd = program_at("prog", 0700);

	ck_assert_int_eq(unlink(at("prog")), 0);
	ck_assert_int_eq(upgrade_asked(fd), EPERM);
	fd = program_at("prog", 0700);
	ck_assert_int_eq(unlink(at("prog")), 0);
	close(program_at("prog", 0700));
	ck_assert_int_eq(upgrade_asked(fd), EPERM);
	fd = memfd_create("prog", MFD_CLOEXEC);
	ck_assert_int_eq(fchmod(fd, 0700), 0);
	ck_assert_int_eq(upgrade_asked(fd), EPERM);
	ck_assert_int_ne(access(at("ran"), F_OK), 0);
	ck_assert_int_eq(unlink(at("prog")), 0);
}
END_TEST

/* One that goes on to print: hold, which waits, has a kvmm to start again. */
START_TEST(test_program_trickles)
{
	struct timespec from, to;
	FILE *f = fopen(at("prog"), "w");

	ck_assert_ptr_nonnull(f);
	fprintf(f, "#!/bin/sh\nfor i in 0 1 2 3 4 5 6 7 8 9; do printf x; sleep 2; done\n");
	ck_assert_int_eq(fchmod(fileno(f), 0700), 0);
	ck_assert_int_eq(fclose(f), 0);
	clock_gettime(CLOCK_MONOTONIC, &from);
	ck_assert_int_eq(upgrade_asked(open(at("prog"), O_RDONLY | O_CLOEXEC)),
			 ENOEXEC);
	clock_gettime(CLOCK_MONOTONIC, &to);
	ck_assert_int_lt(to.tv_sec - from.tv_sec, 15);
	ck_assert_int_eq(unlink(at("prog")), 0);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("hold");
	TCase *tc = tcase_create("records");
	SRunner *sr;
	int failed;

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 40);
	tcase_add_test(tc, test_names_go);
	tcase_add_test(tc, test_other_lock_stays);
	tcase_add_test(tc, test_other_socket_stays);
	tcase_add_loop_test(tc, test_one_descriptor, 1, 9);
	tcase_add_test(tc, test_empty_with_descriptor);
	tcase_add_test(tc, test_program_runs);
	tcase_add_test(tc, test_program_unseen);
	tcase_add_test(tc, test_program_trickles);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
