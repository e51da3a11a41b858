// SPDX-License-Identifier: Apache-2.0
/*
 * Start, refusal, end: exit codes and one line each, the view socket under bad
 * readers, and kvmm-hold, of which kvmm or itself dies.
 *
 * budget: 40 s, full 60 s
 */
#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <sysexits.h>

#include <kvmm/view.h>

#include "kvmm/proc/proc.h"

#include "tests/unit/ipc_daemon.h"

#define SMALL "--pool-size 2M --extent-size 64K"
#define COLD SMALL " --adopt off"

static struct ipcd d;

static void setup_dir(void)
{
	ipcd_dir(&d);
}

static void teardown_dir(void)
{
	ipcd_discard(&d);
}

/* Number of directory entries besides the log. */
static int nr_left(void)
{
	DIR *dir = opendir(d.dir);
	struct dirent *e;
	int nr = 0;

	while ((e = readdir(dir)))
		nr += e->d_name[0] != '.' && strcmp(e->d_name, "log");
	closedir(dir);
	return nr;
}

/* Number of errors in the log. */
static int nr_errors(void)
{
	char path[128], line[1024];
	int nr = 0;
	FILE *f;

	snprintf(path, sizeof(path), "%s/log", d.dir);
	f = fopen(path, "r");
	while (f && fgets(line, sizeof(line), f))
		nr += strstr(line, "kvmm: error: ") != NULL;
	if (f)
		fclose(f);
	return nr;
}

/* ---- refused at start ---- */

static const struct {
	const char *args;
	const char *env;
	int code;
	const char *says;
} refusal[] = {
	{ "--nonsense", NULL, EX_USAGE, "--nonsense" },
	{ "--pool-size 5X", NULL, EX_USAGE, "'5X'" },
	{ "--pool-size 101%", NULL, EX_USAGE, "101% is out of range" },
	{ "--host-size -1%", NULL, EX_USAGE, "'-1%' is not a valid size" },
	{ "--host-size half", NULL, EX_USAGE, "or auto" },
	{ SMALL " --host-numa here", NULL, EX_USAGE, "'here' is not one of auto" },
	{ SMALL " --host-numa 1000", NULL, EX_CONFIG, "--host-numa 1000: there is no such memory node" },
	{ "--pool-size 2M --extent-size 64K --host-size 100%", NULL, EX_CONFIG,
	  "smaller --pool-size, --host-size" },
	{ "--pool-size 1% --extent-size 64G", NULL, EX_CONFIG,
	  "--pool-size comes to less than one extent of 64G" },
	{ SMALL " --host-size 1M", "KVMM_FAULT=host_fill", EX_OSERR,
	  "1M cannot be had: Cannot allocate memory: give a smaller --host-size" },
	{ "--max-clients 65", NULL, EX_USAGE, "1 to 64" },
	{ "stray", NULL, EX_USAGE, "'stray'" },
	{ SMALL, "KVMM_FAULT=nonsense", EX_USAGE, "nonsense" },
	{ SMALL " --overcommit 1", NULL, EX_CONFIG, "--overcommit 1 is not supported" },
	{ "--pool-size 3M --extent-size 2M", NULL, EX_CONFIG,
	  "--pool-size 3M is no multiple of --extent-size 2M: give 2M or 4M, or another --extent-size" },
	{ "--pool host:4M --pool host:3072K --extent-size 2M", NULL, EX_CONFIG,
	  "--pool host:3072K is no multiple of --extent-size 2M: give 2M or 4M, or another --extent-size" },
	{ "--pool host:3M --pool host:3M --extent-size 2M", NULL, EX_CONFIG,
	  "--pool host:3M is no multiple of --extent-size 2M" },
	{ "--pool-size 4M --extent-size 2M --host-size 3MB", NULL, EX_CONFIG,
	  "--host-size 3000000 is no multiple of --extent-size 2M: give 2M or 4M" },
	{ "--pool-size 4M --extent-size 2M --host-size 2M --area-max 1M", NULL,
	  EX_CONFIG, "--area-max 1M is no multiple of --extent-size 2M: give 2M" },
	{ "--pool-size 3M --extent-size 3M", NULL, EX_CONFIG, "power of two" },
	{ "--pool-size 512T --extent-size 1G --min-token-bytes 1048576", NULL,
	  EX_USAGE, "512T is out of range: give 64K to 16T" },
	{ "--pool-size 16T --extent-size 64G --min-token-bytes 1048576", NULL,
	  EX_CONFIG, "--pool-size 16T is too large: all pools together have less than 16T" },
	{ "--pool-size 250G --extent-size 1G --min-token-bytes 1048576", NULL,
	  EX_CONFIG, "smaller --pool-size" },
	{ "--pool host:200G --pool host:50G --extent-size 1G --min-token-bytes 1048576", NULL,
	  EX_CONFIG, "give a smaller --pool, " },
	{ "--pool-size 2M --extent-size 64K --min-token-bytes 8192", NULL,
	  EX_CONFIG, "--min-token-bytes" },
	{ "--pool-size 2M --extent-size 64K --min-token-bytes 1000", NULL,
	  EX_CONFIG, "--min-token-bytes" },
	{ SMALL " --socket /nonexistent/dir/a.sock", NULL, EX_CANTCREAT,
	  "/nonexistent/dir/a.sock" },
	{ SMALL " --socket-mode 999", NULL, EX_USAGE, "--socket-mode" },
	{ SMALL " --socket-mode rw", NULL, EX_USAGE, "'rw' is no mode" },
	{ SMALL, "KVMM_FAULT=socket_listen", EX_CANTCREAT, "--socket" },
	{ SMALL, "KVMM_FAULT=thread_create", EX_OSERR, "thread" },
};

START_TEST(test_refused)
{
	int code;

	ipcd_spawn(&d, "kvmm", refusal[_i].args, refusal[_i].env);
	code = ipcd_wait(&d, 10000);
	ck_assert_msg(code == refusal[_i].code, "%s: code %d",
		      refusal[_i].args, code);
	ck_assert_msg(ipcd_logged(&d, refusal[_i].says), "%s: '%s' not said",
		      refusal[_i].args, refusal[_i].says);
	ck_assert_int_eq(nr_errors(), 1);
	ck_assert_int_eq(nr_left(), 0);
}
END_TEST

START_TEST(test_refused_long_path)
{
	char args[400];

	snprintf(args, sizeof(args), SMALL " --socket %s/%0120d", d.dir, 1);
	ipcd_spawn(&d, "kvmm", args, NULL);
	ck_assert_int_eq(ipcd_wait(&d, 5000), EX_CANTCREAT);
	ck_assert(ipcd_logged(&d, "shorter --socket"));
}
END_TEST

/* A file at the name of the socket that is no socket is left alone. */
START_TEST(test_refused_file_in_the_way)
{
	int fd = open(d.attach, O_CREAT | O_WRONLY, 0600);

	ck_assert_int_ge(fd, 0);
	close(fd);
	ipcd_spawn(&d, "kvmm", SMALL, NULL);
	ck_assert_int_eq(ipcd_wait(&d, 5000), EX_CANTCREAT);
	ck_assert(ipcd_logged(&d, "is no socket"));
	ck_assert_int_eq(access(d.attach, F_OK), 0);
	ck_assert_int_eq(nr_left(), 1);
}
END_TEST

START_TEST(test_second_daemon)
{
	struct ipcd second = d;

	ipcd_spawn(&d, "kvmm", SMALL, NULL);
	ck_assert(ipcd_ready(&d, 5000));
	ipcd_spawn(&second, "kvmm", SMALL, NULL);
	ck_assert_int_eq(ipcd_wait(&second, 5000), EX_UNAVAILABLE);
	ck_assert(ipcd_logged(&d, "another daemon serves"));
	/* The first daemon was not disturbed. */
	ipcd_check(&d);
	ipcd_stop(&d);
	ipcd_dir(&d);
}
END_TEST

/* The sockets and the lock of a killed daemon are replaced. */
START_TEST(test_stale_sockets)
{
	ipcd_spawn(&d, "kvmm", SMALL, NULL);
	ck_assert(ipcd_ready(&d, 5000));
	kill(d.pid, SIGKILL);
	ck_assert_int_eq(ipcd_wait(&d, 5000), 1000 + SIGKILL);
	ck_assert_int_eq(nr_left(), 4);
	ipcd_spawn(&d, "kvmm", SMALL, NULL);
	ck_assert(ipcd_ready(&d, 5000));
	ipcd_check(&d);
	kill(d.pid, SIGTERM);
	ck_assert_int_eq(ipcd_wait(&d, 5000), 0);
	ck_assert_int_eq(nr_left(), 0);
}
END_TEST

START_TEST(test_socket_modes)
{
	struct stat st;

	ipcd_spawn(&d, "kvmm", SMALL " --socket-mode 0666", NULL);
	ck_assert(ipcd_ready(&d, 5000));
	ck_assert_int_eq(stat(d.attach, &st), 0);
	ck_assert_uint_eq(st.st_mode & 0777, 0666);
	ck_assert_int_eq(stat(d.view, &st), 0);
	ck_assert_uint_eq(st.st_mode & 0777, 0600);
}
END_TEST

/* ---- the view socket ---- */

static int view_connect(void)
{
	struct sockaddr_un sun = { .sun_family = AF_UNIX };
	int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	strcpy(sun.sun_path, d.view);
	ck_assert_int_eq(connect(s, (struct sockaddr *)&sun, sizeof(sun)), 0);
	return s;
}

/* The first bytes of the answer, or "" at end of file. */
static void view_first(int s, char *buf, size_t len, int ms)
{
	struct pollfd p = { .fd = s, .events = POLLIN };
	ssize_t n;

	buf[0] = '\0';
	ck_assert_int_eq(poll(&p, 1, ipcd_ms(ms)), 1);
	n = recv(s, buf, len - 1, 0);
	buf[max(n, (ssize_t)0)] = '\0';
}

static const struct {
	const char *req;
	const char *answer;
} view_case[] = {
	{ "check\n", "ok " },
	{ "cat meminfo\nand more", "ok " },
	{ "cat nonsense\n", "error 2 " },
	{ "\n", "error " },
	{ "cat ../../etc/passwd\n", "error " },
	{ "\xff\xfe\x01\n", "error " },
};

START_TEST(test_view)
{
	char buf[64];
	int s;

	ipcd_spawn(&d, "kvmm", SMALL, NULL);
	ck_assert(ipcd_ready(&d, 5000));
	s = view_connect();
	ck_assert_int_gt(send(s, view_case[_i].req, strlen(view_case[_i].req),
			      MSG_NOSIGNAL), 0);
	view_first(s, buf, sizeof(buf), 5000);
	ck_assert_msg(!strncmp(buf, view_case[_i].answer,
			       strlen(view_case[_i].answer)), "'%s'", buf);
	close(s);
}
END_TEST

START_TEST(test_view_endless_request)
{
	char junk[8192], buf[64];
	int s, i;

	memset(junk, 'x', sizeof(junk));
	ipcd_spawn(&d, "kvmm", SMALL, NULL);
	ck_assert(ipcd_ready(&d, 5000));
	s = view_connect();
	ck_assert_int_eq(send(s, junk, PROC_REQ_MAX, MSG_NOSIGNAL),
			 PROC_REQ_MAX);
	view_first(s, buf, sizeof(buf), 5000);
	ck_assert_msg(!strncmp(buf, "error ", 6), "'%s'", buf);
	close(s);
	/*
	 * More bytes than the daemon reads: the answer may be lost, but the
	 * connection ends.
	 */
	s = view_connect();
	for (i = 0; i < 4; i++)
		if (send(s, junk, sizeof(junk), MSG_NOSIGNAL) < 0)
			break;
	view_first(s, buf, sizeof(buf), 5000);
	ck_assert_msg(!buf[0] || !strncmp(buf, "error", 5), "'%s'", buf);
	close(s);
	ipcd_check(&d);
}
END_TEST

/* More idle connections than the daemon accepts: other readers are served. */
START_TEST(test_view_idle_readers)
{
	char buf[8];
	int s[40], i;

	ipcd_spawn(&d, "kvmm", SMALL, NULL);
	ck_assert(ipcd_ready(&d, 5000));
	for (i = 0; i < 40; i++)
		s[i] = view_connect();
	/* The daemon accepted the first 32, which may take their time. */
	for (i = 32; i < 40; i++) {
		view_first(s[i], buf, sizeof(buf), 5000);
		ck_assert_str_eq(buf, "");
	}
	for (i = 0; i < 32; i++)
		ck_assert_int_eq(recv(s[i], buf, 1, MSG_DONTWAIT), -1);
	for (i = 0; i < 40; i++)
		close(s[i]);
	for (i = 0; i < 10; i++) {
		s[i] = view_connect();
		ck_assert_int_gt(send(s[i], "cat vmst", 8, MSG_NOSIGNAL), 0);
	}
	ipcd_check(&d);
	for (i = 0; i < 10; i++)
		close(s[i]);
}
END_TEST

/* ---- kvmm-hold ---- */

START_TEST(test_hold_passes_code)
{
	ipcd_spawn(&d, "kvmm-hold", "--pool-size none", NULL);
	ck_assert_int_eq(ipcd_wait(&d, 5000), EX_USAGE);
	ck_assert_int_eq(nr_left(), 0);
}
END_TEST

static pid_t wait_child(pid_t not)
{
	int i;

	for (i = 0; i < 500; i++) {
		pid_t p = ipcd_child(d.pid);

		if (p && p != not)
			return p;
		usleep(5000);
	}
	return 0;
}

/* kvmm is killed again and again: it is back each time, with a new epoch, and whole. */
START_TEST(test_hold_restarts)
{
	u64 epoch = 0;
	pid_t child = 0;
	struct rawc r;
	int i;

	ipcd_spawn(&d, "kvmm-hold", COLD, NULL);
	for (i = 0; i < 3; i++) {
		ck_assert(ipcd_ready(&d, 5000));
		child = wait_child(child);
		ck_assert_int_gt(child, 0);
		rawc_open(&r, &d);
		ck_assert_uint_gt(r.rep.daemon_epoch, epoch);
		epoch = r.rep.daemon_epoch;
		kill(child, SIGKILL);
		ck_assert(rawc_hung_up(&r, 5000));
		rawc_close(&r);
	}
	ck_assert(wait_child(child));
	rawc_open(&r, &d);
	rawc_close(&r);
	ipcd_check(&d);
	kill(d.pid, SIGTERM);
	ck_assert_int_eq(ipcd_wait(&d, 5000), 0);
	ck_assert_int_eq(nr_left(), 0);
}
END_TEST

/*
 * While there is no daemon, clients wait in the queue of its socket, and no
 * other daemon may start in its place.
 */
START_TEST(test_hold_gap)
{
	struct ipcd second = d;
	struct kvmm_attach_req req;
	struct rawc r;
	pid_t child;

	ipcd_spawn(&d, "kvmm-hold", SMALL, NULL);
	ck_assert(ipcd_ready(&d, 5000));
	child = wait_child(0);
	/* After the second death in a row hold pauses. */
	kill(child, SIGKILL);
	child = wait_child(child);
	ck_assert(ipcd_ready(&d, 5000));
	rawc_open(&r, &d);
	kill(child, SIGKILL);
	ck_assert(rawc_hung_up(&r, 5000));
	rawc_close(&r);

	ipcd_spawn(&second, "kvmm", SMALL, NULL);
	ck_assert_int_eq(ipcd_wait(&second, 5000), EX_UNAVAILABLE);
	rawc_request(&req);
	ck_assert_int_eq(rawc_attach(&r, &d, &req), 0);
	rawc_close(&r);
	kill(d.pid, SIGTERM);
	ck_assert_int_eq(ipcd_wait(&d, 5000), 0);
}
END_TEST

/* hold is killed: its kvmm ends, and no file is left. */
START_TEST(test_hold_killed)
{
	pid_t child;
	int i;

	ipcd_spawn(&d, "kvmm-hold", SMALL, NULL);
	ck_assert(ipcd_ready(&d, 5000));
	child = wait_child(0);
	kill(d.pid, SIGKILL);
	ck_assert_int_eq(ipcd_wait(&d, 5000), 1000 + SIGKILL);
	for (i = 0; i < 1000 && nr_left(); i++)
		usleep(5000);
	ck_assert_int_eq(nr_left(), 0);
	for (i = 0; i < 1000 && !kill(child, 0); i++)
		usleep(5000);
	ck_assert_int_ne(kill(child, 0), 0);
}
END_TEST

/* hold is told to end while it waits to start kvmm again. */
START_TEST(test_hold_ended_in_pause)
{
	pid_t child = 0;
	int i;

	ipcd_spawn(&d, "kvmm-hold", SMALL, "KVMM_FAULT=control_die:1");
	ck_assert(ipcd_ready(&d, 5000));
	for (i = 0; i < 3; i++) {
		struct kvmm_attach_req req;
		struct rawc r;

		child = wait_child(child);
		rawc_request(&req);
		ck_assert_int_eq(rawc_attach(&r, &d, &req), -ECONNRESET);
		rawc_close(&r);
	}
	kill(d.pid, SIGTERM);
	ck_assert_int_ge(ipcd_wait(&d, 5000), 0);
	ck_assert_int_eq(nr_left(), 0);
}
END_TEST

/* kvmm dies before and after a request takes effect: the next life is whole. */
START_TEST(test_hold_dies_in_request)
{
	static const char * const point[] = {
		"KVMM_FAULT=mm_die:3", "KVMM_FAULT=mm_die_commit:3",
	};
	struct rawc r;
	int i;

	ipcd_spawn(&d, "kvmm-hold", SMALL, point[_i]);
	ck_assert(ipcd_ready(&d, 5000));
	rawc_open(&r, &d);
	for (i = 0; i < 3; i++)
		rawc_put(&r, KVMM_OP_NOP, 0, NULL, 0);
	rawc_publish(&r);
	ck_assert(rawc_hung_up(&r, 5000));
	ck_assert_uint_eq(r.dctl->cq_tail, 2);
	ck_assert_uint_eq(r.dctl->committed, 2 + (u32)_i);
	rawc_close(&r);

	rawc_open(&r, &d);
	ipcd_check(&d);
	rawc_close(&r);
	kill(d.pid, SIGTERM);
	ck_assert_int_eq(ipcd_wait(&d, 5000), 0);
}
END_TEST

/* Map memory that has the name of an extent of @epoch. */
static void map_extent(u64 epoch)
{
	char name[64];
	int fd;

	snprintf(name, sizeof(name), "kvmm-extent-%llx-0.1",
		 (unsigned long long)epoch);
	fd = memfd_create(name, 0);
	if (fd < 0 || ftruncate(fd, 4096) ||
	    mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0) == MAP_FAILED)
		_exit(1);
	close(fd);
}

/* A client of the last daemon.  With @keeps it keeps its mapping, else it attaches anew. */
static pid_t old_client(bool keeps)
{
	struct rawc r;
	pid_t pid;
	int p[2];
	char c;

	ck_assert_int_eq(pipe(p), 0);
	pid = fork();
	if (pid) {
		close(p[1]);
		ck_assert_int_eq(read(p[0], &c, 1), 1);
		close(p[0]);
		return pid;
	}
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	rawc_open(&r, &d);
	if (keeps)
		map_extent(r.rep.daemon_epoch);
	if (write(p[1], "x", 1) != 1)
		_exit(1);
	if (!keeps && rawc_hung_up(&r, 10000)) {
		rawc_open(&r, &d);
		map_extent(r.rep.daemon_epoch);
	}
	for (;;)
		pause();
}

/*
 * A client of the last daemon that keeps its memory is killed at the deadline;
 * one that unmapped it and attached anew lives.
 */
START_TEST(test_hold_old_clients)
{
	pid_t keeps, lets_go;
	int status;

	ipcd_spawn(&d, "kvmm-hold", COLD " --quiet-deadline-ms 1000", NULL);
	ck_assert(ipcd_ready(&d, 5000));
	keeps = old_client(true);
	lets_go = old_client(false);
	kill(wait_child(0), SIGKILL);
	ck_assert_int_eq(waitpid(keeps, &status, 0), keeps);
	ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
	usleep(200000);
	ck_assert_int_eq(waitpid(lets_go, NULL, WNOHANG), 0);
	ck_assert_int_eq(ipcd_number(&d, "vmstat", "client_attach"), 1);
	kill(lets_go, SIGKILL);
	waitpid(lets_go, NULL, 0);
	ck_assert(ipcd_logged(&d, "still holds its memory"));
	kill(d.pid, SIGTERM);
	ck_assert_int_eq(ipcd_wait(&d, 5000), 0);
}
END_TEST

/* hold kills a kvmm that does not react, and cleans up after it. */
START_TEST(test_hold_stuck_child)
{
	const char *level = getenv("KVMM_TEST_LEVEL");
	pid_t child;

	/* hold waits 10 seconds for it. */
	if (!level || strcmp(level, "check") == 0)
		return;
	ipcd_spawn(&d, "kvmm-hold", SMALL, NULL);
	ck_assert(ipcd_ready(&d, 5000));
	child = wait_child(0);
	kill(child, SIGSTOP);
	kill(d.pid, SIGTERM);
	ck_assert_int_eq(ipcd_wait(&d, 15000), 128 + SIGKILL);
	ck_assert_int_eq(nr_left(), 0);
}
END_TEST

static Suite *start_suite(void)
{
	Suite *s = suite_create("ipc-start");
	TCase *tc = tcase_create("start");

	tcase_set_timeout(tc, 30);
	tcase_add_checked_fixture(tc, setup_dir, teardown_dir);
	tcase_add_loop_test(tc, test_refused, 0, ARRAY_SIZE(refusal));
	tcase_add_test(tc, test_refused_long_path);
	tcase_add_test(tc, test_refused_file_in_the_way);
	tcase_add_test(tc, test_second_daemon);
	tcase_add_test(tc, test_stale_sockets);
	tcase_add_test(tc, test_socket_modes);
	tcase_add_loop_test(tc, test_view, 0, ARRAY_SIZE(view_case));
	tcase_add_test(tc, test_view_endless_request);
	tcase_add_test(tc, test_view_idle_readers);
	tcase_add_test(tc, test_hold_passes_code);
	tcase_add_test(tc, test_hold_restarts);
	tcase_add_test(tc, test_hold_gap);
	tcase_add_test(tc, test_hold_killed);
	tcase_add_test(tc, test_hold_ended_in_pause);
	tcase_add_loop_test(tc, test_hold_dies_in_request, 0, 2);
	tcase_add_test(tc, test_hold_old_clients);
	tcase_add_test(tc, test_hold_stuck_child);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	SRunner *sr = srunner_create(start_suite());
	int failed;

	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
