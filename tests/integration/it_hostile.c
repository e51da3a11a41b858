// SPDX-License-Identifier: Apache-2.0
/*
 * it_hostile.c - hostile programs beside an honest one
 *
 * budget: 40 s, full 160 s, soak 4200 s
 * alone: it measures what a step costs beside processes that take all CPUs
 *
 * An honest runtime generates, again and again; its text is known from a run
 * alone.  Hostile programs of its own user, and of another user where the test
 * has the right, attack the daemon in every way that the table knows.  The text
 * must not change, the daemon must stay the same process and write no more
 * lines than allowed; when the hostile programs are gone, the daemon must be
 * empty.  The cost of a step meanwhile is measured and printed, not judged: a
 * client that only measures (hostile_meter.c) runs alone, beside processes that
 * compute, and beside hostile ones, in turns.  Where CPUs are few, most of that
 * cost is waiting for one.  So in every other round the daemon and the meter go
 * before all other processes (SCHED_RR); the rest is work that hostile programs
 * cause in the daemon.  KVMM_HOSTILE_S: seconds among hostile programs.
 * Further tests make many descriptors at once that take long to close, also
 * when the daemon ends.
 */
#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/integration/hostile.h"
#include "tests/integration/prompts.h"

#define OTHER_UID	65534
#define ROUND_MS	30000u	/* the longest beside hostile programs */
#define LINES_ALWAYS	60	/* lines of the daemon, in any case */
#define LINES_PERIOD	102	/* and for each 5 s of its life, begun ones too */
#define BUSY		4	/* processes that only compute */
#define GROWTH_KB	8192	/* of the daemon's own memory */
#define BURST_FDS	90	/* 64 that wait to be closed, and those of an honest client */

static struct rig rig;
static struct samples truth;
static char prompts[RIG_PATH + 32];

/* Runs of the honest program in one kind of phase, and their total time. */
struct runs {
	u32	nr;
	u64	ms;
};

struct scene {
	struct hostile_counts	*counts;
	struct meter		meter;
	struct runs		runs[METER_PHASES];
	pid_t			daemon;
	u32			hostile_ms;
	u32			rounds;
	bool			can_first;	/* SCHED_RR is permitted */
};

static struct job honest_start(void)
{
	return job_start(&rig, KVRT_GENERATE, demo_model(),
			 "--prompt-file", prompts, "--temperature", "0",
			 "--max-tokens", "40", "--ignore-eos", "-n", "2",
			 "--threads", "1", "--mode", "exact", "--json", NULL);
}

static void honest_judge(struct job *j)
{
	int code = job_wait(j, 60 * time_scale());
	struct samples s;

	if (code)
		ck_abort_msg("the honest one ended with %d:\n%s", code,
			     slurp(j->err));
	samples_read(&s, j->out);
	samples_equal(&truth, &s);
	samples_free(&s);
	unlink(j->out);
	unlink(j->err);
}

/* One undisturbed run; its time in ms. */
static u64 honest_alone(void)
{
	u64 start = now_ms();
	struct job j = honest_start();

	honest_judge(&j);
	return now_ms() - start;
}

/* ---- resources of the daemon ---- */

/* Descriptors of the daemon except extents: these come and go. */
static u32 daemon_fds(pid_t pid)
{
	char path[RIG_PATH], to[RIG_PATH];
	struct dirent *e;
	ssize_t n;
	u32 nr = 0;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/fd", pid);
	dir = opendir(path);
	ck_assert_ptr_nonnull(dir);
	while ((e = readdir(dir))) {
		snprintf(path, sizeof(path), "/proc/%d/fd/%.20s", pid,
			 e->d_name);
		n = readlink(path, to, sizeof(to) - 1);
		if (n < 0)
			continue;
		to[n] = '\0';
		nr += !strstr(to, "/memfd:kvmm-extent");
	}
	closedir(dir);
	return nr;
}

static s64 daemon_kb(pid_t pid, const char *key)
{
	char path[64], *text, *line;
	s64 kb = -1;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	text = slurp(path);
	line = strstr(text, key);
	if (line)
		kb = strtoll(line + strlen(key), NULL, 10);
	free(text);
	return kb;
}

/* Is the signal pending for a stopped process? */
static bool is_pending(pid_t pid, int sig)
{
	char path[64], *text, *line;
	u64 mask = 0;

	snprintf(path, sizeof(path), "/proc/%d/status", pid);
	text = slurp(path);
	line = strstr(text, "\nShdPnd:");
	if (line)
		mask = strtoull(line + strlen("\nShdPnd:"), NULL, 16);
	free(text);
	return mask >> (sig - 1) & 1;
}

/* Segments of clients that the daemon has mapped. */
static u32 daemon_segments(pid_t pid)
{
	char path[64], *text, *p;
	u32 nr = 0;

	snprintf(path, sizeof(path), "/proc/%d/maps", pid);
	text = slurp(path);
	for (p = text; (p = strstr(p, "/memfd:kvmm-client")); p++)
		nr++;
	free(text);
	return nr;
}

static u32 daemon_lines(void)
{
	char path[RIG_PATH + 32], *text;
	u32 nr;

	snprintf(path, sizeof(path), "%s/job-0.err", rig.dir);
	text = slurp(path);
	nr = count_lines(text);
	free(text);
	return nr;
}

/* The last client may have been stopped; the daemon takes a while to kill it. */
static void await_nobody(u32 fds, pid_t pid)
{
	u64 end = now_ms() + 20000 * time_scale();

	while (rig_value(&rig, "vmstat", "nr_clients") ||
	       daemon_fds(pid) > fds) {
		if (now_ms() > end)
			ck_abort_msg("%lld clients and %u descriptors are left, not 0 and %u",
				     (long long)rig_value(&rig, "vmstat",
							  "nr_clients"),
				     daemon_fds(pid), fds);
		nap_ms(50);
	}
}

/* ---- the main test ---- */

/* Seconds among hostile programs, by the level or by KVMM_HOSTILE_S. */
static u32 hostile_seconds(void)
{
	const char *env = getenv("KVMM_HOSTILE_S");
	u32 s = env ? (u32)strtoul(env, NULL, 10) : 0;

	return s ? s : by_level(2, 60, 3600);
}

static void print_counts(const struct hostile_counts *c, bool foreign)
{
	u32 i;

	for (i = 0; i < HOSTILE_NR; i++)
		printf("  %7u  %s\n", c->done[i], hostile_words(i));
	printf("  %u sessions attached, %u were expelled, %u refused\n",
	       c->sessions, c->expelled, c->refused);
	fflush(stdout);
	for (i = 0; i < HOSTILE_NR; i++)
		if (i != HOSTILE_foreign || foreign)
			ck_assert_msg(c->done[i], "none was carried out: %s",
				      hostile_words(i));
	ck_assert_uint_gt(c->expelled, 0);
}

/*
 * Run the honest program again and again until @end_ms, and count its runs.  It
 * generates the same text in every phase.
 */
static void honest_until(u64 end_ms, struct runs *r)
{
	u64 start = now_ms();

	do {
		(void)honest_alone();
		r->nr++;
	} while (now_ms() < end_ms);
	r->ms += now_ms() - start;
}

static u32 runs_ms(const struct runs *r)
{
	return r->nr ? (u32)(r->ms / r->nr) : 0;
}

/* ---- cost of other load on the machine ---- */

/* As many processes as a hostile program has; they use no daemon. */
static void busy_start(pid_t *pid)
{
	u32 i;

	fflush(stdout);
	for (i = 0; i < BUSY; i++) {
		pid[i] = fork();
		ck_assert_int_ge(pid[i], 0);
		if (pid[i])
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;) {
			u64 end = now_ms() + 3 + i;

			while (now_ms() < end)
				;
			nap_ms(3);
		}
	}
}

static void busy_stop(const pid_t *pid)
{
	u32 i;

	for (i = 0; i < BUSY; i++) {
		kill(pid[i], SIGKILL);
		ck_assert_int_eq(waitpid(pid[i], NULL, 0), pid[i]);
	}
}

/* Put all threads of a process before all others, or back to normal. */
static bool first_in_line(pid_t pid, bool first)
{
	struct sched_param sp = { .sched_priority = first };
	char path[64];
	struct dirent *e;
	bool done = true;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", pid);
	dir = opendir(path);
	ck_assert_ptr_nonnull(dir);
	while ((e = readdir(dir)))
		if (e->d_name[0] != '.' &&
		    sched_setscheduler((pid_t)atoi(e->d_name), first ?
				       SCHED_RR : SCHED_OTHER, &sp))
			done = false;
	closedir(dir);
	return done;
}

static void scene_first(struct scene *sc, bool first)
{
	sc->can_first = first_in_line(sc->daemon, first) &&
			first_in_line(sc->meter.pid, first);
}

static void start_rig(void)
{
	rig_start(&rig, "--pool-size", "48M", "--extent-size", "512K",
		  "--step-deadline-ms", "400", "--quiet-deadline-ms", "1000",
		  "--socket-mode", "0666", NULL);
	snprintf(prompts, sizeof(prompts), "%s/honest.txt", rig.dir);
	prompts_write(prompts, 0, 6, "");
}

/* Hostile programs of this user and of another one for @ms, in phase @phase. */
static void scene_hostile(struct scene *sc, enum meter_phase phase, u32 ms,
			  bool last)
{
	bool root = !geteuid();
	struct hostile same, other;
	u64 start = now_ms();

	hostile_start(&same, &rig, sc->counts, 0, ms, last);
	if (root)
		hostile_start(&other, &rig, sc->counts, OTHER_UID, ms, last);
	meter_phase(&sc->meter, phase);
	honest_until(same.end_ms, &sc->runs[phase]);
	meter_phase(&sc->meter, METER_PHASES);
	hostile_finish(&same);
	if (root)
		hostile_finish(&other);
	sc->hostile_ms += (u32)(now_ms() - start);
	sc->rounds++;
}

/*
 * One phase of each kind: alone, beside programs that only compute, beside
 * hostile ones.  Other load on the machine varies, so the phases are short and
 * take turns.
 */
static void scene_round(struct scene *sc, u32 ms, u32 rest_ms, bool last)
{
	pid_t busy[BUSY];

	meter_phase(&sc->meter, METER_ALONE);
	honest_until(now_ms() + rest_ms, &sc->runs[METER_ALONE]);
	busy_start(busy);
	meter_phase(&sc->meter, METER_BUSY);
	honest_until(now_ms() + rest_ms, &sc->runs[METER_BUSY]);
	meter_phase(&sc->meter, METER_PHASES);
	busy_stop(busy);
	scene_hostile(sc, METER_BESIDE, ms, last);
}

/* The same, with the daemon and the meter first in line. */
static void scene_round_first(struct scene *sc, u32 ms, u32 rest_ms)
{
	scene_first(sc, true);
	if (sc->can_first) {
		meter_phase(&sc->meter, METER_FIRST_ALONE);
		honest_until(now_ms() + rest_ms, &sc->runs[METER_FIRST_ALONE]);
		scene_hostile(sc, METER_FIRST_BESIDE, ms, false);
	}
	(void)first_in_line(sc->daemon, false);
	(void)first_in_line(sc->meter.pid, false);
}

/*
 * Be hostile for @seconds in all, and a twentieth of that in each other phase:
 * libcheck does not report the end of a test of more than 71 minutes.
 */
static void scene_play(struct scene *sc, u32 seconds)
{
	u32 ms = min(seconds * 1000 / 2, ROUND_MS);

	sc->can_first = true;
	while (sc->hostile_ms < seconds * 1000) {
		if (sc->can_first)
			scene_round_first(sc, ms, ms / 20);
		scene_round(sc, ms, ms / 20, sc->hostile_ms + ms >=
			    seconds * 1000);
	}
	if (!sc->can_first)
		printf("  nobody was put first in line: SCHED_RR is not allowed\n");
}

/* "p99 of a step A us alone, B us beside hostile ones: C times" */
static void print_p99(const struct meter *m, enum meter_phase alone,
		      enum meter_phase beside, const char *what)
{
	double a = (double)meter_quantile(m, alone, 990);
	double b = (double)meter_quantile(m, beside, 990);

	printf("total: p99 of a step%s: %.1f us %s, %.1f us beside hostile ones: %.2f times\n",
	       what, a / 1e3, alone == METER_BUSY ?
	       "beside processes that compute" : "alone", b / 1e3,
	       b / max(a, 1.0));
}

static void scene_print(struct scene *sc)
{
	const struct meter *m = &sc->meter;

	meter_print(m);
	printf("total: %u s beside hostile programs, in %u rounds: %u runs of the honest one, all tokens as alone; run %u ms alone, %u busy, %u hostile\n",
	       sc->hostile_ms / 2000, sc->rounds, sc->runs[METER_BESIDE].nr +
	       sc->runs[METER_FIRST_BESIDE].nr,
	       runs_ms(&sc->runs[METER_ALONE]), runs_ms(&sc->runs[METER_BUSY]),
	       runs_ms(&sc->runs[METER_BESIDE]));
	print_p99(m, METER_ALONE, METER_BESIDE, "");
	print_p99(m, METER_BUSY, METER_BESIDE, "");
	if (m->counts->nr[METER_FIRST_BESIDE])
		print_p99(m, METER_FIRST_ALONE, METER_FIRST_BESIDE,
			  ", daemon and meter first in line");
}

static void truth_read(void)
{
	struct job first = honest_start();

	ck_assert_int_eq(job_wait(&first, 60 * time_scale()), 0);
	samples_read(&truth, first.out);
	ck_assert_uint_eq(truth.nr, 12);
}

START_TEST(test_hostile)
{
	struct scene sc = { 0 };
	bool root = !geteuid();
	u64 start = now_ms();
	u32 fds, lines;
	int metered;
	s64 kb;
	pid_t pid;

	sc.counts = mmap(NULL, sizeof(*sc.counts), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(sc.counts, MAP_FAILED);
	start_rig();
	truth_read();
	(void)honest_alone();
	pid = rig_daemon(&rig);
	ck_assert_int_gt(pid, 0);
	fds = daemon_fds(pid);
	kb = daemon_kb(pid, "RssAnon:");

	if (!root)
		printf("  no hostile program of another user: the test does not run as root\n");
	meter_start(&sc.meter, &rig);
	sc.daemon = pid;
	scene_play(&sc, hostile_seconds());
	metered = meter_stop(&sc.meter);

	print_counts(sc.counts, root);
	scene_print(&sc);
	fflush(stdout);
	ck_assert_int_eq(metered, 0);
	ck_assert_msg(!sc.counts->breaches, "%u breaches: %s",
		      sc.counts->breaches, sc.counts->breach);
	ck_assert_int_eq(rig_daemon(&rig), pid);
	await_nobody(fds, pid);
	rig_walk(&rig);
	(void)honest_alone();
	await_nobody(fds, pid);
	ck_assert_uint_eq(daemon_segments(pid), 0);
	ck_assert_int_eq(rig_value(&rig, "meminfo", "Quarantine"), 0);
	ck_assert_int_eq(rig_value(&rig, "meminfo", "Committed"), 0);
	ck_assert_int_eq(rig_value(&rig, "meminfo", "Open"), 0);
	lines = daemon_lines();
	printf("  the daemon: %u lines, %lld kB more\n", lines,
	       (long long)(daemon_kb(pid, "RssAnon:") - kb));
	ck_assert_uint_le(lines, LINES_ALWAYS + LINES_PERIOD *
			  (u32)((now_ms() - start) / 5000 + 2));
	/* Instrumented builds keep freed memory. */
	if (time_scale() == 1)
		ck_assert_int_le(daemon_kb(pid, "RssAnon:"), kb + GROWTH_KB);
	ck_assert_int_eq(rig_daemon(&rig), pid);
	samples_free(&truth);
	rig_stop(&rig);
	meter_free(&sc.meter);
	munmap(sc.counts, sizeof(*sc.counts));
}
END_TEST

static void close_all(int *fd, u32 n)
{
	while (n--)
		close(fd[n]);
}

/*
 * Make more slow-closing connections than the daemon closes meanwhile: the rest
 * waits in the backlog, and the daemon keeps descriptors for other clients.
 */
START_TEST(test_burst)
{
	int peer[HOSTILE_BURST];
	u32 fds, most = 0, i;
	struct job j;
	pid_t pid;
	u64 end;

	start_rig();
	pid = rig_daemon(&rig);
	fds = daemon_fds(pid);
	for (i = 0; i < 3; i++) {
		kill(pid, SIGSTOP);
		hostile_burst(&rig, peer);
		kill(pid, SIGCONT);
		j = honest_start();
		end = now_ms() + 300;
		while (now_ms() < end)
			most = max(most, daemon_fds(pid));
		ck_assert_int_eq(job_wait(&j, 60 * time_scale()), 0);
		close_all(peer, HOSTILE_BURST);
	}
	printf("  %u descriptors, with %d connections at once: %u\n", fds,
	       HOSTILE_BURST, most);
	ck_assert_uint_le(most, fds + BURST_FDS);
	ck_assert_uint_gt(most, fds + BURST_FDS / 3);
	await_nobody(fds, pid);
	ck_assert_int_eq(rig_daemon(&rig), pid);
	rig_stop(&rig);
}
END_TEST

/* The daemon ends without waiting for connections that it did not accept. */
START_TEST(test_burst_at_end)
{
	int peer[HOSTILE_BURST];
	pid_t pid;
	u64 began;

	start_rig();
	pid = rig_daemon(&rig);
	kill(pid, SIGSTOP);
	hostile_burst(&rig, peer);
	began = now_ms();
	kill(rig.hold, SIGTERM);
	while (!is_pending(pid, SIGTERM)) {
		ck_assert(now_ms() < began + 5000 * time_scale());
		nap_ms(1);
	}
	kill(pid, SIGCONT);
	rig_stop(&rig);
	printf("  ended after %llu ms\n",
	       (unsigned long long)(now_ms() - began));
	close_all(peer, HOSTILE_BURST);
}
END_TEST

/* Without kvmm-hold the daemon is the last process that has them. */
START_TEST(test_burst_at_end_alone)
{
	int peer[HOSTILE_BURST];
	struct job j, wait;
	u64 began;

	memset(&rig, 0, sizeof(rig));
	snprintf(rig.dir, sizeof(rig.dir), "%s/rig.XXXXXX", getenv("TMPDIR") ?
		 getenv("TMPDIR") : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(rig.dir));
	j = job_start(&rig, "kvmm", "--pool-size", "4M", "--extent-size",
		      "512K", NULL);
	wait = job_start(&rig, "kvctl", "wait", "--timeout", "20", NULL);
	ck_assert_int_eq(job_wait(&wait, 30), 0);
	kill(j.pid, SIGSTOP);
	hostile_burst(&rig, peer);
	kill(j.pid, SIGTERM);
	began = now_ms();
	kill(j.pid, SIGCONT);
	ck_assert_int_eq(job_wait(&j, 20 * time_scale()), 0);
	printf("  ended after %llu ms\n",
	       (unsigned long long)(now_ms() - began));
	close_all(peer, HOSTILE_BURST);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("hostile");
	TCase *tc = tcase_create("beside");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 600 + 2 * hostile_seconds());
	tcase_add_test(tc, test_hostile);
	tcase_add_test(tc, test_burst);
	tcase_add_test(tc, test_burst_at_end);
	tcase_add_test(tc, test_burst_at_end_alone);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
