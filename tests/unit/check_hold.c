// SPDX-License-Identifier: Apache-2.0
/*
 * check_hold.c - records of a malicious kvmm, in kvmm-hold
 *
 * Hold is root and obeys records.  A kvmm that was taken over can send any
 * record, with any descriptor that it has.  Hold must not run out of room.  It
 * must remove no name but those of the sockets and the lock with which that
 * kvmm began.  It must execute no file that came from elsewhere.
 */
#include <check.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "kvmm/hold/store.h"
#include "kvmm/hold/upgrade.h"
#include "tests/unit/page.h"

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

/* Hold removes the names of a kvmm that could not remove them. */
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

/* kvmm deposits a swap area, which an operator gave it, in place of the lock. */
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

/* kvmm deposits another program's socket in place of its own, and as one more. */
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

/* Room for one descriptor has room for two, because of its alignment. */
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

/* An empty message reads as the end, but may carry a descriptor. */
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

/* ---- a kvmm that does not stop ---- */

static u32 nr_asked;

static void on_ask(struct store *s, const struct hold_record *rec, int fd)
{
	nr_asked++;
	if (fd >= 0)
		close(fd);
}

static void flood(u32 nr, u32 op)
{
	struct hold_record r = {
		.magic = HOLD_MAGIC, .op = op, .kind = HOLD_CLIENT,
	};

	for (; r.index < nr; r.index++)
		ck_assert_int_eq(send(sv[1], &r, sizeof(r), MSG_DONTWAIT),
				 sizeof(r));
}

/* However many records come, hold looks at its other work after a few of them. */
START_TEST(test_turn)
{
	st.ask = on_ask;
	flood(STORE_TURN + 10, HOLD_PUT);
	ck_assert_int_eq(store_receive(&st, sv[0]), 1);
	ck_assert_uint_eq(st.nr, STORE_TURN);
	ck_assert_int_eq(store_receive(&st, sv[0]), 0);
	ck_assert_uint_eq(st.nr, STORE_TURN + 10);
	/* Questions take longer, so a turn has fewer of them. */
	flood(3, HOLD_ASK);
	ck_assert_int_eq(store_receive(&st, sv[0]), 1);
	ck_assert_uint_eq(nr_asked, 1);
}
END_TEST

/* All deposits of a dead kvmm count; a process that still has its socket adds none. */
START_TEST(test_rest)
{
	int status;
	pid_t pid;

	nr_asked = 0;
	st.ask = on_ask;
	flood(2 * STORE_TURN, HOLD_PUT);
	flood(1, HOLD_ASK);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid) {
		struct hold_record r = { .magic = HOLD_MAGIC, .op = HOLD_PUT,
					 .kind = HOLD_EPOCH };

		signal(SIGPIPE, SIG_IGN);
		alarm(20);
		while (send(sv[1], &r, sizeof(r), 0) > 0)
			;
		_exit(errno == EPIPE ? 0 : 1);
	}
	store_receive_rest(&st, sv[0]);
	ck_assert_uint_ge(st.nr, 2 * STORE_TURN);
	ck_assert_uint_le(st.nr, 2 * STORE_TURN + 1);
	ck_assert_uint_eq(nr_asked, 0);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
}
END_TEST

/* Once there are clients, a kvmm that was taken over cannot change these records. */
START_TEST(test_serves)
{
	static const u32 fixed[] = {
		HOLD_LOCK, HOLD_LISTEN, HOLD_EPOCH, HOLD_SIZE, HOLD_ARENA,
		HOLD_KEEP, HOLD_HOST, HOLD_LIFE, 77,
	};
	struct hold_record r = { .magic = HOLD_MAGIC, .op = HOLD_DROP };
	u32 i;

	for (i = 0; i < ARRAY_SIZE(fixed); i++)
		put(fixed[i], 1, dup(sv[0]));
	ck_assert_uint_eq(st.nr, ARRAY_SIZE(fixed));
	put(HOLD_SERVES, 0, -1);
	for (i = 0; i < ARRAY_SIZE(fixed); i++) {
		const int was = store_find(&st, fixed[i], 1)->fd;
		const int other = dup(sv[1]);

		put(fixed[i], 1, other);
		ck_assert_int_eq(fcntl(other, F_GETFD), -1);
		put(fixed[i], 2, dup(sv[1]));
		r.kind = fixed[i];
		r.index = 1;
		store_apply(&st, &r, -1);
		ck_assert_int_eq(store_find(&st, fixed[i], 1)->fd, was);
	}
	ck_assert_uint_eq(st.nr, ARRAY_SIZE(fixed));
	put(HOLD_CLIENT, 1, dup(sv[0]));
	put(HOLD_SWAP_AREA, 1, dup(sv[0]));
	ck_assert_uint_eq(st.nr, ARRAY_SIZE(fixed) + 2);
	/* HOLD_SERVES is no record. */
	ck_assert_ptr_null(store_find(&st, HOLD_SERVES, 0));
}
END_TEST

/* However many records are refused, hold's log does not fill the disk. */
START_TEST(test_refused_in_few_lines)
{
	char line[256];
	u32 i, nr = 0;
	FILE *f = tmpfile();

	ck_assert_ptr_nonnull(f);
	put(HOLD_SERVES, 0, -1);
	fflush(stderr);
	ck_assert_int_ge(dup2(fileno(f), STDERR_FILENO), 0);
	for (i = 0; i < 10000; i++)
		put(HOLD_LIFE, i, -1);
	rewind(f);
	while (fgets(line, sizeof(line), f))
		nr++;
	/* A period may end meanwhile; hold then logs how many lines it left out. */
	ck_assert_uint_gt(nr, 10);
	ck_assert_uint_lt(nr, 100);
	fclose(f);
}
END_TEST

/* ---- programs ---- */

/* A program that answers like kvmm, and leaves a file if it ran. */
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

static u64 now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (u64)ts.tv_sec * 1000 + (u64)ts.tv_nsec / 1000000;
}

static const char *as_user;	/* user of the program */

/* Return: the errno that kvmm gets; the call takes over @fd. */
static int upgrade_asked(int fd)
{
	struct hold_record r = {
		.magic = HOLD_MAGIC, .op = HOLD_ASK, .kind = HOLD_UPGRADE,
		.value = 7,
	};
	struct hold_record said = { .magic = 0 };
	struct upgrade u;

	upgrade_init(&u, as_user);
	if (!upgrade_ask(&u, &r, fd, &said))
		while (!upgrade_work(&u, &said)) {
			struct pollfd p = { u.probe.out, POLLIN, 0 };

			(void)!poll(&p, 1, 100);
		}
	r = said;
	ck_assert_uint_eq(r.op, HOLD_TELL);
	ck_assert_uint_eq(r.value, r.index ? 0 : 7);
	ck_assert_int_eq(u.next >= 0, !r.index);
	if (u.next >= 0)
		close(u.next);
	return (int)r.index;
}

static int script_at(const char *name, const char *text)
{
	FILE *f = fopen(at(name), "w");

	ck_assert_ptr_nonnull(f);
	fprintf(f, "#!/bin/sh\n%s", text);
	ck_assert_int_eq(fchmod(fileno(f), 0755), 0);
	ck_assert_int_eq(fclose(f), 0);
	return open(at(name), O_RDONLY | O_CLOEXEC);
}

/*
 * A program that looks at its own rights.  Without any it answers like kvmm;
 * else it prints the rights that it should not have.
 */
static const char look[] =
"bad=\n"
"no() { bad=$bad.$*; }\n"
"while read k a b c d e; do case $k in\n"
"Uid:) [ $a.$b.$c.$d = $U.$U.$U.$U ] || no uid $a $b $c $d;;\n"
"Gid:) [ $a.$b.$c.$d = $G.$G.$G.$G ] || no gid $a $b $c $d;;\n"
"Groups:) [ -z \"$G0\" ] || [ -z \"$a\" ] || no groups $a;;\n"
"CapBnd:) [ -z \"$G0\" ] || [ -z \"${a#0000000000000000}\" ] || no bnd $a;;\n"
"Cap*) [ -z \"${a#0000000000000000}\" ] || no $k $a;;\n"
"NoNewPrivs:) [ $a = 1 ] || no nnp;;\n"
"esac; done </proc/self/status\n"
"for f in /proc/self/fd/*; do case ${f##*/} in\n"
"0|1|2|3|10|11) ;; *) [ ! -e $f ] || no fd $f;;\n"
"esac; done\n"
"while read k a b c d; do case $k.$a.$b.$c in\n"
"Max.file.size.*) [ $c = 0 ] || no fsize $c;;\n"
"Max.core.file.size) [ ${d%% *} = 0 ] || no core $d;;\n"
"Max.cpu.time.*) [ $c = 5 ] || no cpu $c;;\n"
"Max.open.files.*) [ $c = 64 ] || no nofile $c;;\n"
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
/* Sanitizers start threads, so their builds have no such limit. */
"Max.processes.*) [ $b = 0 ] || no nproc $b;;\n"
#endif
"esac; done </proc/self/limits\n"
"if [ -n \"$bad\" ]; then echo $bad; else echo arena 7; fi\n";

/* An answer other than a number fails the test, which prints it. */
START_TEST(test_program_has_no_rights)
{
	char all[4096];
	const bool root = !geteuid();
	int fd[8], i;

	for (i = 0; i < 8; i++)
		fd[i] = dup(sv[0]);
	as_user = root ? "4242:4343" : NULL;
	snprintf(all, sizeof(all), "U=%u G=%u G0=%s\n%s",
		 root ? 4242 : geteuid(), root ? 4343 : getegid(),
		 root ? "y" : "", look);
	i = upgrade_asked(script_at("prog", all));
	ck_assert_msg(!i, "%s, said:\n%s", strerror(i), all);
	if (!root)
		printf("note: not root: the program has our user\n");
	/* Without another user the program has no capability either. */
	as_user = NULL;
	snprintf(all, sizeof(all), "U=%u G=%u G0=\n%s", geteuid(), getegid(),
		 look);
	ck_assert_int_eq(upgrade_asked(script_at("prog", all)), 0);
	/* That user may not execute the file: hold says so, and does not run it. */
	if (root) {
		as_user = "4242:4343";
		ck_assert_int_eq(upgrade_asked(program_at("prog", 0700)),
				 EACCES);
	}
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	/* Nor may the program start processes that outlive it, except as uid 0. */
	as_user = root ? "4242:4343" : NULL;
	ck_assert_int_eq(upgrade_asked(script_at("prog",
						 "(echo arena 7); :\n")),
			 ENOEXEC);
#endif
	as_user = NULL;
	for (i = 0; i < 8; i++)
		close(fd[i]);
	ck_assert_int_eq(unlink(at("prog")), 0);
}
END_TEST

/* hold goes on meanwhile: it takes kvmm's records and sees the program's end. */
START_TEST(test_program_is_not_waited_for)
{
	const struct hold_record r = {
		.magic = HOLD_MAGIC, .op = HOLD_ASK, .kind = HOLD_UPGRADE,
		.value = 7, .generation = 1,
	};
	struct hold_record again = r, said = { .magic = 0 };
	const u64 from = now_ms();
	struct upgrade u;

	upgrade_init(&u, NULL);
	ck_assert(!upgrade_ask(&u, &r, script_at("prog", "exec sleep 60\n"),
			       &said));
	flood(3, HOLD_PUT);
	ck_assert_int_eq(store_receive(&st, sv[0]), 0);
	ck_assert_uint_eq(st.nr, 3);
	ck_assert(!upgrade_work(&u, &said));
	/* The next question replaces this one. */
	again.generation = 2;
	ck_assert(!upgrade_ask(&u, &again, script_at("prog", "exec sleep 60\n"),
			       &said));
	ck_assert(!upgrade_work(&u, &said));
	upgrade_cancel(&u);
	ck_assert_int_eq(u.probe.pid, 0);
	ck_assert_uint_lt(now_ms() - from, PROBE_MS);
	ck_assert_int_eq(unlink(at("prog")), 0);
}
END_TEST

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

/* A file of root that has no name which hold can see, as from mounts of a container. */
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

/* A program that never stops printing: hold ends its wait, for it must restart kvmm. */
START_TEST(test_program_trickles)
{
	struct timespec from, to;
	FILE *f = fopen(at("prog"), "w");

	ck_assert_ptr_nonnull(f);
	if (geteuid())
		printf("note: not root: it may not start sleep, and ends at once\n");
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

/* ---- the page ---- */

START_TEST(test_page_limits)
{
	static const char * const rows[] = {
#define x(name, value, text) "\n| `RLIMIT_" #name "` | " text " |\n",
		PROBE_LIMITS(x)
#undef x
	};
	char *page = page_read("security.md");
	u32 i;

	for (i = 0; i < ARRAY_SIZE(rows); i++)
		ck_assert_row(page, "security.md", rows[i]);
	ck_assert_uint_eq(page_count(page, "| `RLIMIT_"), ARRAY_SIZE(rows));
	free(page);
}
END_TEST

/* The page says how each record protects the next kvmm, and names no others. */
START_TEST(test_page)
{
	static const char * const rows[] = {
#define x(kind, text) "\n| `HOLD_" #kind "` | " text " |\n",
		HOLD_KEPT(x)
#undef x
	};
	char *page = page_read("security.md");
	u32 i;

	for (i = 0; i < ARRAY_SIZE(rows); i++)
		ck_assert_row(page, "security.md", rows[i]);
	ck_assert_uint_eq(page_count(page, "| `HOLD_"), ARRAY_SIZE(rows));
	free(page);
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
	tcase_add_test(tc, test_serves);
	tcase_add_test(tc, test_refused_in_few_lines);
	tcase_add_test(tc, test_turn);
	tcase_add_test(tc, test_rest);
	tcase_add_test(tc, test_program_has_no_rights);
	tcase_add_test(tc, test_program_is_not_waited_for);
	tcase_add_test(tc, test_program_runs);
	tcase_add_test(tc, test_program_unseen);
	tcase_add_test(tc, test_program_trickles);
	tcase_add_test(tc, test_page);
	tcase_add_test(tc, test_page_limits);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
