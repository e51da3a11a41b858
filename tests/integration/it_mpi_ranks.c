// SPDX-License-Identifier: Apache-2.0
/*
 * it_mpi_ranks.c - groups of ranks that mpiexec starts
 *
 * This program is the test, and with the arguments `rank SCENE NR` it is a rank.  A rank
 * starts its group as kvrt does, by ranks_launch().  The test reads all output of a group,
 * kills or stops a rank, and judges the end: in time, with one line, without a process and
 * without a file in /dev/shm.
 */
#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "runtime/ranks/ranks.h"
#include "tests/level.h"
#include "tests/shm_dir.h"
#include "tests/tmp.h"

#define TIMEOUT_MS	1000u
#define END_MS		8000u	/* of a group: its bound, and the end of mpiexec */
#define START_MS	30000u
#define ROUNDS		5000u
#define ROOM		20000u

/* ---- a rank ---- */

static void __noreturn failed(struct ranks *r)
{
	ranks_abort(r, NULL);
	_exit(99);
}

static u32 word_of(u32 rank, u32 round)
{
	return rank * 7919 + round * 31 + 1;
}

static void exchange(struct ranks *r, u32 rounds)
{
	const u32 words = ROOM / sizeof(u32);
	const u32 *of;
	u32 round, i;
	u32 *room;

	for (round = 0; round < rounds; round++) {
		room = ranks_room(r);
		room[0] = room[words - 1] = word_of(ranks_number(r), round);
		if (ranks_share(r))
			failed(r);
		for (i = 0; i < ranks_nr(r); i++) {
			of = ranks_of(r, i);
			if (of[0] != word_of(i, round) || of[words - 1] != of[0])
				ranks_abort(r, "a room is wrong");
		}
	}
}

static void messages(struct ranks *r)
{
	static u8 buf[3 << 20];
	u64 bytes, n, i;

	for (n = 0; n < 40; n++) {
		const u64 want = n * n * n * 50 % sizeof(buf);

		if (!ranks_number(r)) {
			memset(buf, (int)n, want);
			if (ranks_send(r, buf, want))
				failed(r);
			continue;
		}
		if (ranks_recv(r, buf, sizeof(buf), &bytes, 10000))
			failed(r);
		for (i = 0; i < bytes && buf[i] == n; i++)
			;
		if (bytes != want || i < bytes)
			ranks_abort(r, "a message is wrong");
	}
}

static void gather(struct ranks *r)
{
	const u32 mine = 1000 + ranks_number(r);
	u32 all[RANKS_MAX], i;

	if (ranks_gather(r, &mine, sizeof(mine), all))
		failed(r);
	for (i = 0; i < ranks_nr(r); i++)
		if (all[i] != 1000 + i)
			ranks_abort(r, "a gather is wrong");
}

/* The leader has no work and looks at its ranks; the others wait for a message. */
static void idle(struct ranks *r)
{
	u64 bytes;
	int ret;

	for (;;) {
		if (!ranks_number(r)) {
			usleep(20000);
			ret = ranks_check(r);
		} else {
			ret = ranks_recv(r, NULL, 0, &bytes, 200);
		}
		if (ret && ret != -EAGAIN)
			failed(r);
	}
}

static void on_term(int sig)
{
}

/* A server finishes its requests after SIGTERM, which mpiexec sends when a rank has died. */
static void catch_term(void)
{
	const struct sigaction sa = { .sa_handler = on_term };

	sigaction(SIGTERM, &sa, NULL);
}

static int rank_main(const char *scene, u32 nr, char **argv)
{
	const struct ranks_opts o = { nr, ROOM, TIMEOUT_MS };
	char why[512] = "";
	struct ranks *r;

	if ((strcmp(scene, "bare") && ranks_launch(nr, argv, why, sizeof(why))) ||
	    ranks_open(&o, &r, why, sizeof(why))) {
		dprintf(STDERR_FILENO, "refused: %s\n", why);
		return ranks_exit_code(3);
	}
	dprintf(STDOUT_FILENO, "pid %u %d\n", ranks_number(r), getpid());
	catch_term();
	if (!strcmp(scene, "busy"))
		exchange(r, ~0u);
	if (!strcmp(scene, "idle"))
		idle(r);
	if (!strcmp(scene, "abort") && ranks_number(r) == 1)
		ranks_abort(r, "no weights");
	exchange(r, !strcmp(scene, "abort") ? ~0u : ROUNDS);
	messages(r);
	gather(r);
	(void)ranks_exit_code(0);
	ranks_close(r);
	dprintf(STDOUT_FILENO, "whole\n");
	return 0;
}

/* ---- the test ---- */

static struct {
	char	path[128];	/* of the output */
	char	text[65536];
	pid_t	pid;		/* the parent of mpiexec */
	pid_t	rank[RANKS_MAX];
	u32	nr;
	int	status;
} job;

static u64 now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (u64)ts.tv_sec * 1000 + (u64)ts.tv_nsec / 1000000;
}

static const char *output(void)
{
	const int fd = open(job.path, O_RDONLY | O_CLOEXEC);
	const ssize_t n = read(fd, job.text, sizeof(job.text) - 1);

	job.text[n > 0 ? n : 0] = '\0';
	close(fd);
	return job.text;
}

static u32 count(const char *text, const char *part)
{
	u32 n = 0;

	for (text = strstr(text, part); text; text = strstr(text + 1, part))
		n++;
	return n;
}

static void clear_launchers(void)
{
	unsetenv("OMPI_COMM_WORLD_SIZE");
	unsetenv("PMI_SIZE");
	unsetenv("PMI_RANK");
	unsetenv("PMIX_RANK");
	unsetenv("SLURM_PROCID");
}

static void start(char *const argv[])
{
	int fd = mkstemp(tmp_name(job.path, sizeof(job.path), "mpi"));

	ck_assert_int_ge(fd, 0);
	job.pid = fork();
	if (!job.pid) {
		dup2(fd, STDOUT_FILENO);
		dup2(fd, STDERR_FILENO);
		clear_launchers();
		execvp(argv[0], argv);
		_exit(98);
	}
	close(fd);
}

static void start_scene(const char *scene, u32 nr)
{
	char number[12], *argv[] = { (char *)"/proc/self/exe", (char *)"rank", (char *)scene,
				     number, NULL };

	snprintf(number, sizeof(number), "%u", nr);
	job.nr = nr;
	start(argv);
}

/* Wait until all ranks have told their pids. */
static void await_ranks(void)
{
	const u64 until = now_ms() + START_MS;
	char key[24];
	const char *at;
	u32 i;

	for (i = 0; i < job.nr; usleep(5000)) {
		ck_assert_msg(now_ms() < until, "no rank %u: %s", i, output());
		snprintf(key, sizeof(key), "pid %u ", i);
		at = strstr(output(), key);
		if (at && strchr(at, '\n'))
			job.rank[i++] = atoi(at + strlen(key));
	}
}

static void await_end(u32 ms)
{
	const u64 until = now_ms() + ms;

	while (!waitpid(job.pid, &job.status, WNOHANG)) {
		if (now_ms() > until) {
			kill(job.pid, SIGKILL);
			ck_abort_msg("the group has not ended: %s", output());
		}
		usleep(5000);
	}
}

/* No process and no file is left. */
static void check_nothing_left(void)
{
	const u64 until = now_ms() + 5000;
	char files[4096];
	u32 i, left;

	for (;; usleep(20000)) {
		for (i = left = 0; i < job.nr; i++)
			left += job.rank[i] && !kill(job.rank[i], 0);
		shm_dir_list(files, sizeof(files));
		if (!left && !files[0])
			return;
		ck_assert_msg(now_ms() < until, "%u ranks left, and files: %s", left, files);
	}
}

static void setup(void)
{
	memset(&job, 0, sizeof(job));
	shm_dir_create();
}

static void teardown(void)
{
	unlink(job.path);
	shm_dir_remove();
}

static void check_line(const char *line)
{
	ck_assert_msg(count(output(), "kvrt: error:") == 1, "%s", output());
	ck_assert_msg(strstr(output(), line) != NULL, "no '%s' in: %s", line, output());
}

static void check_whole(u32 nr)
{
	start_scene("whole", nr);
	await_ranks();
	await_end(START_MS);
	ck_assert_msg(WIFEXITED(job.status) && !WEXITSTATUS(job.status), "%s", output());
	ck_assert_uint_eq(count(output(), "whole"), nr);
	check_nothing_left();
}

START_TEST(two_ranks)
{
	check_whole(2);
}
END_TEST

START_TEST(four_ranks)
{
	check_whole(4);
}
END_TEST

struct victim {
	const char	*scene;
	u32		nr;
	u32		rank;
};

/* make check takes the first of them: most of a test is the wait for the end of mpiexec. */
static const struct victim victims[] = {
	{ "busy", 4, 2 }, { "busy", 2, 0 }, { "idle", 2, 0 },
	{ "busy", 2, 1 }, { "busy", 4, 0 }, { "idle", 2, 1 }, { "idle", 4, 3 },
};

#define CHECK_KILLED	3
#define CHECK_STOPPED	2

START_TEST(killed_rank_ends_all)
{
	const struct victim *v = &victims[_i];
	char line[80];

	start_scene(v->scene, v->nr);
	await_ranks();
	usleep((useconds_t)(now_ms() * 7919 % 200000));
	kill(job.rank[v->rank], SIGKILL);
	await_end(END_MS);
	ck_assert(!WIFEXITED(job.status) || WEXITSTATUS(job.status));
	snprintf(line, sizeof(line), "kvrt: error: rank %u (pid %d) has ended", v->rank,
		 job.rank[v->rank]);
	check_line(line);
	check_nothing_left();
}
END_TEST

/* The parent of @pid. */
static pid_t parent_of(pid_t pid)
{
	char path[32];
	int parent = 0;
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	f = fopen(path, "re");
	ck_assert_ptr_nonnull(f);
	ck_assert_int_eq(fscanf(f, "%*d %*s %*c %d", &parent), 1);
	fclose(f);
	return parent;
}

/* mpiexec is stopped and does nothing, so the ranks end by themselves. */
START_TEST(ranks_end_without_mpiexec)
{
	const u64 until = now_ms() + START_MS + END_MS;
	pid_t mpiexec;
	u32 i;

	start_scene("busy", 3);
	await_ranks();
	mpiexec = parent_of(job.rank[0]);
	kill(mpiexec, SIGSTOP);
	kill(job.rank[1], SIGKILL);
	for (i = 0; i < 3; i += 2) {
		char path[32], state = 'R';
		FILE *f;

		/* A stopped parent leaves them as zombies. */
		while (state != 'Z') {
			ck_assert_msg(now_ms() < until, "rank %u lives on", i);
			snprintf(path, sizeof(path), "/proc/%d/stat", job.rank[i]);
			f = fopen(path, "re");
			ck_assert_ptr_nonnull(f);
			ck_assert_int_eq(fscanf(f, "%*d %*s %c", &state), 1);
			fclose(f);
			usleep(5000);
		}
	}
	kill(mpiexec, SIGCONT);
	await_end(END_MS);
	check_line(") has ended");
	check_nothing_left();
}
END_TEST

START_TEST(ranks_end_when_mpiexec_is_killed)
{
	start_scene(_i % 2 ? "idle" : "busy", 2);
	await_ranks();
	/* mpiexec, or the process that started it. */
	kill(_i / 2 ? job.pid : parent_of(job.rank[0]), SIGKILL);
	await_end(END_MS);
	check_nothing_left();
}
END_TEST

START_TEST(stopped_rank_is_late)
{
	const struct victim *v = &victims[_i];
	const u64 began = now_ms();
	char line[80];

	start_scene("busy", v->nr);
	await_ranks();
	kill(job.rank[v->rank], SIGSTOP);
	await_end(END_MS);
	ck_assert_uint_ge(now_ms() - began, TIMEOUT_MS);
	snprintf(line, sizeof(line), "kvrt: error: rank %u (pid %d) did not answer in 1 s",
		 v->rank, job.rank[v->rank]);
	check_line(line);
	check_nothing_left();
}
END_TEST

START_TEST(rank_that_gives_up_ends_all)
{
	start_scene("abort", 2);
	await_ranks();
	await_end(END_MS);
	check_line(") gave up: no weights");
	check_nothing_left();
}
END_TEST

static void check_refused(const char *line)
{
	await_end(START_MS);
	ck_assert(!WIFEXITED(job.status) || WEXITSTATUS(job.status));
	ck_assert_msg(strstr(output(), line) != NULL, "no '%s' in: %s", line, output());
	check_nothing_left();
}

START_TEST(missing_plugin_is_named)
{
	setenv("KVRT_MPI_PLUGIN", "/nonexistent/kvrt-mpi.so", 1);
	start_scene("whole", 2);
	unsetenv("KVRT_MPI_PLUGIN");
	check_refused("refused: kvrt-mpi.so is missing: install libopenmpi-dev");
}
END_TEST

/* A folder that is not there refuses as a full /dev/shm does. */
START_TEST(window_without_room_is_refused)
{
	setenv("OMPI_MCA_osc_sm_backing_directory", "/nonexistent", 1);
	start_scene("whole", 2);
	check_refused("refused: no window of 1 MB: is /dev/shm full? MPI_Win_allocate_shared failed");
}
END_TEST

START_TEST(wrong_number_is_refused)
{
	char *argv[] = {
		(char *)"mpiexec", (char *)"--oversubscribe", (char *)"--allow-run-as-root",
		(char *)"-n", (char *)"3", realpath("/proc/self/exe", NULL), (char *)"rank",
		(char *)"whole", (char *)"2", NULL,
	};

	start(argv);
	check_refused("refused: 2 ranks are wanted, and MPI started 3");
	free(argv[5]);
}
END_TEST

START_TEST(process_without_launcher_is_refused)
{
	start_scene("bare", 2);
	check_refused("refused: no launcher started this process: use mpiexec -n 2");
}
END_TEST

static TCase *ends(void)
{
	const bool check = level_is_check();
	const int all = (int)ARRAY_SIZE(victims);
	TCase *tc = tcase_create("ends");

	tcase_set_timeout(tc, START_MS / 1000 + 30);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, killed_rank_ends_all, 0, check ? CHECK_KILLED : all);
	tcase_add_test(tc, ranks_end_without_mpiexec);
	tcase_add_loop_test(tc, ranks_end_when_mpiexec_is_killed, 0, 4);
	tcase_add_loop_test(tc, stopped_rank_is_late, 0, check ? CHECK_STOPPED : all);
	tcase_add_test(tc, rank_that_gives_up_ends_all);
	return tc;
}

static TCase *starts(void)
{
	TCase *tc = tcase_create("starts");

	tcase_set_timeout(tc, 90);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, two_ranks);
	tcase_add_test(tc, four_ranks);
	tcase_add_test(tc, missing_plugin_is_named);
	tcase_add_test(tc, window_without_room_is_refused);
	tcase_add_test(tc, wrong_number_is_refused);
	tcase_add_test(tc, process_without_launcher_is_refused);
	return tc;
}

/* Without mpiexec, or without a plugin, there is nothing to test. */
static bool can_run(void)
{
	char plugin[512];

	if (system("command -v mpiexec >/dev/null")) {
		puts("mpiexec is not installed");
		return false;
	}
	snprintf(plugin, sizeof(plugin), "%s/lib/kvrt-mpi.so", getenv("KVMM_BUILD") ?: "build");
	if (access(plugin, R_OK)) {
		puts("kvrt-mpi.so was not built: mpicc is not installed");
		return false;
	}
	return true;
}

int main(int argc, char **argv)
{
	Suite *s = suite_create("mpi_ranks");
	SRunner *sr;
	int failures;

	if (argc == 4 && !strcmp(argv[1], "rank"))
		return rank_main(argv[2], (u32)atoi(argv[3]), argv);
	if (!can_run())
		return 77;
	suite_add_tcase(s, starts());
	suite_add_tcase(s, ends());
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failures = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failures ? EXIT_FAILURE : EXIT_SUCCESS;
}
