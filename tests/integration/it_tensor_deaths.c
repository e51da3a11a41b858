// SPDX-License-Identifier: Apache-2.0
/*
 * it_tensor_deaths.c - deaths at random moments in tensor parallel groups
 *
 * budget: 90 s, full 600 s, soak 3000 s
 *
 * One daemon lives on, and group after group of two ranks serves streams over it.  At a
 * random moment, also while the group starts, one of its processes is killed or stopped.  A
 * group ends within its bound, with one line, and leaves no process and no file.  The groups
 * after it find the prefix of the first one and give its text.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/integration/serve.h"
#include "tests/shm_dir.h"

#define POOLS		"--backend", "host", "--pool", "host:16M", "--pool", "host:16M", \
			"--extent-size", "512K"
#define RANK_TIMEOUT	2u	/* seconds */
#define BOUND_MS	((RANK_TIMEOUT + 8) * 1000)	/* until the end of a group */
#define START_MS	26000	/* the same while it starts */
#define PROMPT		"In the beginning there was a river, and the river had no name, and nobody had ever seen its end"
#define BODY		"{\"prompt\":\"" PROMPT "\",\"max_tokens\":32,\"ignore_eos\":true,\"temperature\":0}"
#define NR_STREAMS	8u
#define PROCESSES	8u
#define LOOK_EVERY	4u	/* rounds between two looks at the text */

static struct rig rig;
static struct served server;
static struct web streams[NR_STREAMS];
static char *text_of_first;

enum victim { RANK_0, RANK_1, LAUNCHER, DAEMON, NR_VICTIMS };

static const char *const names[] = { "rank 0", "rank 1", "mpiexec", "kvmm" };

/* ---- processes ---- */

/* A process of a group: its rank, or -1 for mpiexec and the parent. */
struct member {
	pid_t	pid;
	int	rank;
	bool	launcher;
};

static char *read_proc(pid_t pid, const char *name, size_t *n)
{
	char path[64], *text = calloc(1, 65537);
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, name);
	f = fopen(path, "r");
	*n = f ? fread(text, 1, 65536, f) : 0;
	if (f)
		fclose(f);
	return text;
}

/* Is it kvrt or mpiexec of this rig? */
static bool member_read(pid_t pid, struct member *m)
{
	char want[RIG_PATH + 16], *env, *comm, *at;
	size_t n, k;
	bool is;

	snprintf(want, sizeof(want), "KVMM_RUNDIR=%s", rig.dir);
	env = read_proc(pid, "environ", &n);
	comm = read_proc(pid, "comm", &k);
	m->launcher = !strncmp(comm, "mpiexec", 7) || !strncmp(comm, "orterun", 7);
	is = (m->launcher || !strncmp(comm, "kvrt", 4)) && memmem(env, n, want, strlen(want));
	at = memmem(env, n, "OMPI_COMM_WORLD_RANK=", 21);
	m->rank = at ? atoi(at + 21) : -1;
	m->pid = pid;
	free(env);
	free(comm);
	return is;
}

static u32 members(struct member all[PROCESSES])
{
	DIR *d = opendir("/proc");
	struct dirent *e;
	u32 n = 0;

	while ((e = readdir(d)))
		if (n < PROCESSES && atoi(e->d_name) && member_read(atoi(e->d_name), &all[n]))
			n++;
	closedir(d);
	return n;
}

/* pid of the victim, 0: it has not started. */
static pid_t victim_pid(enum victim v)
{
	struct member all[PROCESSES];
	const u32 nr = members(all);
	u32 i;

	if (v == DAEMON)
		return rig_daemon(&rig);
	for (i = 0; i < nr; i++)
		if (v == LAUNCHER ? all[i].launcher : all[i].rank == (int)v)
			return all[i].pid;
	return 0;
}

static void nothing_left(void)
{
	const u64 end = now_ms() + 10000ull * time_scale();
	struct member all[PROCESSES];
	char files[4096];
	u32 n;

	for (;; nap_ms(20)) {
		n = members(all);
		shm_dir_list(files, sizeof(files));
		if (!n && !files[0])
			return;
		ck_assert_msg(now_ms() < end, "%u processes are left, and files: %s\n%s", n,
			      files, serve_said(&server));
	}
}

/* ---- load ---- */

static void check_text(void)
{
	json_t *v = complete(&server, BODY);

	if (!text_of_first) {
		text_of_first = strdup(choice_text(v, 0));
	} else {
		ck_assert_int_ge(usage(v, "cached_tokens"), 16);
		ck_assert_str_eq(choice_text(v, 0), text_of_first);
	}
	json_decref(v);
}

static void load_begin(void)
{
	char *body;
	u32 i;

	for (i = 0; i < NR_STREAMS; i++) {
		ck_assert_int_gt(asprintf(&body, "{\"prompt\":\"%u. " PROMPT "\",\"max_tokens\":%u,\"ignore_eos\":true,\"temperature\":0.5,\"stream\":true}",
					  random_below(1000), 300 + random_below(300)), 0);
		web_open(&streams[i], server.port);
		(void)!web_post(&streams[i], "/v1/completions", body);
		free(body);
	}
}

static void load_end(bool whole)
{
	char *event, *all;
	size_t len;
	FILE *f;
	u32 i;

	for (i = 0; i < NR_STREAMS; i++) {
		if (whole) {
			ck_assert_int_eq(web_status(&streams[i]), 200);
			f = open_memstream(&all, &len);
			while ((event = web_event(&streams[i]))) {
				fputs(event, f);
				free(event);
			}
			fclose(f);
			ck_assert_msg(streams[i].over && !strstr(all, "\"error\""), "%s", all);
			free(all);
		}
		web_close(&streams[i]);
	}
}

/* ---- rounds ---- */

static void start_group(bool wait)
{
	const char *const argv[] = {
		"kvrt", "serve", demo_model(), "--port", "0", "--threads", "1", "--dtype",
		"f32", "--tensor-parallel", "2", "--mode", "exact", "--rank-timeout", "2", NULL
	};

	if (wait) {
		serve_start(&server, &rig, "--tensor-parallel", "2", "--mode", "exact",
			    "--rank-timeout", "2", NULL);
		serve_await(&server, 200, 30);
		return;
	}
	server.rig = &rig;
	server.job = job_startv(&rig, "kvrt", (char *const *)(uintptr_t)argv);
}

/* The group says once why it ended; @want: a part of the line, or NULL. */
static void said_once(const char *want, const char *victim, int code)
{
	char *text = slurp(server.job.err), *at = strstr(text, "kvrt: error");

	ck_assert_msg(at != NULL, "no line about %s, code %d:\n%s", victim, code, text);
	ck_assert_msg(!strstr(at + 1, "kvrt: error"), "two lines:\n%s", text);
	ck_assert_msg(!want || strstr(at, want), "no '%s':\n%s", want, text);
	free(text);
}

struct round {
	enum victim	victim;
	int		sig;
	bool		starting;	/* it falls while the group starts */
	pid_t		pid;
};

/* The first rounds kill each process once.  A rank that stops at the start takes 20 s. */
static struct round round_draw(u32 number)
{
	struct round r = { .sig = random_below(3) ? SIGKILL : SIGSTOP };

	r.victim = (enum victim)random_below(NR_VICTIMS);
	r.starting = number > NR_VICTIMS && r.victim <= RANK_1 && !random_below(4);
	if (number < NR_VICTIMS)
		r.victim = (enum victim)number;
	if (r.victim > RANK_1 || number < NR_VICTIMS || (r.starting && by_level(1, 0, 0)))
		r.sig = SIGKILL;
	return r;
}

static void strike(struct round *r)
{
	const u64 end = now_ms() + 10000ull * time_scale();

	while (!(r->pid = victim_pid(r->victim))) {
		ck_assert_msg(now_ms() < end, "no %s:\n%s", names[r->victim],
			      serve_said(&server));
		if (!r->starting)
			nap_ms(5);
	}
	nap_ms(random_below(r->starting ? 400 : 1000));
	ck_assert_int_eq(kill(r->pid, r->sig), 0);
}

/* Milliseconds until the group has ended with its line. */
static u64 await_end(const struct round *r)
{
	const u64 start = now_ms(), most = r->starting ? START_MS : BOUND_MS;
	char line[64];
	int code;

	while (!job_ended(&server.job, &code)) {
		ck_assert_msg(now_ms() - start < most * time_scale(),
			      "still there after %s of %s (%d), starting %d:\n%s",
			      strsignal(r->sig), names[r->victim], r->pid, r->starting,
			      serve_said(&server));
		nap_ms(2);
	}
	ck_assert_int_ne(code, 0);
	snprintf(line, sizeof(line), "rank %d (pid %d)", (int)r->victim, r->pid);
	said_once(r->victim <= RANK_1 && !r->starting ? line : NULL,
		  names[r->victim], code);
	return now_ms() - start;
}

/*
 * Rank 0 was stopped while it did not compute, so that no rank waits for it: it goes on
 * where it was.  Return: whether that is so.
 */
static bool lives_on(pid_t leader)
{
	const u64 end = now_ms() + (RANK_TIMEOUT + 1) * 1000ull * time_scale();

	while (now_ms() < end) {
		if (!victim_pid(RANK_1))
			return false;
		nap_ms(10);
	}
	kill(leader, SIGCONT);
	return true;
}

/* Return: milliseconds from the blow to the end of the group, 0 if it lived on. */
static u64 run_round(u32 number)
{
	struct round r = round_draw(number);
	u64 ms = 0;

	start_group(!r.starting);
	if (!r.starting) {
		if (!(number % LOOK_EVERY))
			check_text();
		load_begin();
	}
	strike(&r);
	if (r.victim == DAEMON) {
		load_end(true);
		check_text();
		serve_stop(&server);
	} else if (r.victim == RANK_0 && r.sig == SIGSTOP && !r.starting && lives_on(r.pid)) {
		load_end(true);
		serve_stop(&server);
	} else {
		ms = await_end(&r);
		if (!r.starting)
			load_end(false);
	}
	nothing_left();
	if (getenv("KVMM_TEST_VERBOSE"))
		printf("round %u: %s of %s%s: %llu ms\n", number, strsignal(r.sig), names[r.victim],
		       r.starting ? " at the start" : "", (unsigned long long)ms);
	return ms;
}

START_TEST(test_deaths)
{
	const u32 nr = by_level(6, 30, 200);
	u64 ms, most = 0, sum = 0;
	u32 i, ended = 0;

	shm_dir_create();
	rig_start(&rig, POOLS, NULL);
	start_group(true);
	check_text();
	serve_stop(&server);
	for (i = 0; i < nr; i++) {
		ms = run_round(i);
		most = max(most, ms);
		sum += ms;
		ended += ms > 0;
	}
	start_group(true);
	check_text();
	serve_stop(&server);
	printf("note: %u groups ended in %llu ms, at most %llu ms\n", ended,
	       (unsigned long long)(sum / max(ended, 1u)), (unsigned long long)most);
	free(text_of_first);
	rig_walk(&rig);
	rig_stop(&rig);
	shm_dir_remove();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("tensor_deaths");
	TCase *tc = tcase_create("tensor_deaths");
	SRunner *sr;
	int failed;

	if (system("command -v mpiexec >/dev/null")) {
		printf("SKIP it_tensor_deaths: there is no mpiexec here\n");
		return 0;
	}
	mpi_leaks_ignore();
	tcase_set_timeout(tc, 2900);
	tcase_add_test(tc, test_deaths);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
