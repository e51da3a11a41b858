// SPDX-License-Identifier: Apache-2.0
/*
 * it_tensor.c - kvrt serve --tensor-parallel: processes that share a model
 *
 * budget: 90 s, full 180 s
 *
 * Two ranks share the demo model, each with a pool of one daemon.  Their texts are those of
 * one process, and stay the same when the pools are too small, with forks, and when kvmm is
 * killed.  A rank that dies or stands still ends the group with one line, and the next group
 * finds the cached prefixes.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "tests/integration/serve.h"
#include "tests/shm_dir.h"

#define RANKS		"--tensor-parallel", "2", "--mode", "exact"
#define POOLS		"--backend", "host", "--pool", "host:16M", "--pool", "host:16M", \
			"--extent-size", "512K"
#define SMALL_POOLS	"--backend", "host", "--pool", "host:2M", "--pool", "host:2M", \
			"--extent-size", "256K"

#define PROMPT		"In the beginning there was a river, and the river had no name, and nobody had ever seen its end or counted the stones of its bed"
#define BODY		"{\"prompt\":\"" PROMPT "\",\"max_tokens\":48,\"ignore_eos\":true,\"temperature\":0}"
#define FORKED		"{\"prompt\":\"" PROMPT "\",\"max_tokens\":40,\"ignore_eos\":true,\"n\":4,\"seed\":7,\"temperature\":0.7,\"top_k\":8}"
#define NR_STREAMS	12u
#define STREAM_TOKENS	"120"

static struct rig rig;
static struct served server;

/* ---- processes ---- */

/* pids of the ranks; fails unless there are two. */
static void rank_pids(pid_t pid[2])
{
	DIR *d = opendir("/proc");
	char path[300], *text;
	struct dirent *e;
	char want[RIG_PATH + 16];

	snprintf(want, sizeof(want), "KVMM_RUNDIR=%s", rig.dir);
	pid[0] = pid[1] = 0;
	while ((e = readdir(d))) {
		FILE *f;
		size_t n;

		snprintf(path, sizeof(path), "/proc/%s/environ", e->d_name);
		f = fopen(path, "r");
		if (!f)
			continue;
		text = calloc(1, 65537);
		n = fread(text, 1, 65536, f);
		fclose(f);
		if (memmem(text, n, want, strlen(want))) {
			if (memmem(text, n, "OMPI_COMM_WORLD_RANK=0", 23))
				pid[0] = atoi(e->d_name);
			else if (memmem(text, n, "OMPI_COMM_WORLD_RANK=1", 23))
				pid[1] = atoi(e->d_name);
		}
		free(text);
	}
	closedir(d);
	ck_assert(pid[0] && pid[1]);
}

static void await_gone(pid_t pid, u32 seconds)
{
	const u64 end = now_ms() + seconds * 1000ull * time_scale();

	while (!kill(pid, 0)) {
		ck_assert_msg(now_ms() < end, "process %d is still there", pid);
		nap_ms(10);
	}
}

static void teardown(void)
{
	rig_walk(&rig);
	rig_stop(&rig);
}

static void start_ranks(void)
{
	serve_start(&server, &rig, RANKS, NULL);
	serve_await(&server, 200, 60);
}

/* The texts of all choices of an answer, to be freed. */
static char *texts(const char *body)
{
	json_t *v = complete(&server, body);
	size_t i, n = json_array_size(json_object_get(v, "choices"));
	char *all = NULL;
	size_t len;
	FILE *f = open_memstream(&all, &len);

	for (i = 0; i < n; i++)
		fprintf(f, "[%s]", choice_text(v, i));
	fclose(f);
	json_decref(v);
	return all;
}

static void same(const char *a, const char *b)
{
	ck_assert_msg(!strcmp(a, b), "\n%s\n%s", a, b);
}

/* ---- texts ---- */

/* One text, and four samples that fork: those of one process. */
START_TEST(test_same_texts)
{
	char *one[2], *two[2];

	rig_start(&rig, POOLS, NULL);
	serve_start(&server, &rig, "--mode", "exact", "--domain", "whole", NULL);
	serve_await(&server, 200, 30);
	one[0] = texts(BODY);
	one[1] = texts(FORKED);
	serve_stop(&server);
	start_ranks();
	two[0] = texts(BODY);
	two[1] = texts(FORKED);
	same(one[0], two[0]);
	same(one[1], two[1]);
	/* A second time, with the prompt in the cache. */
	free(two[0]);
	two[0] = texts(BODY);
	same(one[0], two[0]);
	serve_stop(&server);
	free(one[0]);
	free(one[1]);
	free(two[0]);
	free(two[1]);
	teardown();
}
END_TEST

/* The service manager hears of rank 0, which another process has started. */
START_TEST(test_notify)
{
	struct sockaddr_un a = { .sun_family = AF_UNIX };
	const struct timeval most = { .tv_sec = 20 };
	char name[64], text[256];
	ssize_t n;
	int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

	snprintf(name, sizeof(name), "@it-tensor-%d", getpid());
	strcpy(a.sun_path + 1, name + 1);
	ck_assert(!bind(fd, (void *)&a, (socklen_t)(offsetof(struct sockaddr_un, sun_path) +
						    strlen(name))));
	ck_assert(!setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof(most)));
	rig_start(&rig, POOLS, NULL);
	setenv("NOTIFY_SOCKET", name, 1);
	start_ranks();
	unsetenv("NOTIFY_SOCKET");
	do {
		n = recv(fd, text, sizeof(text) - 1, 0);
		ck_assert_msg(n > 0, "no READY=1");
		text[n] = '\0';
	} while (!strstr(text, "READY=1"));
	close(fd);
	serve_stop(&server);
	teardown();
}
END_TEST

static char *stream_body(u32 i)
{
	char *body;

	ck_assert_int_gt(asprintf(&body, "{\"prompt\":\"%u. " PROMPT "\",\"max_tokens\":" STREAM_TOKENS ",\"ignore_eos\":true,\"temperature\":0,\"stream\":true}",
				  i), 0);
	return body;
}

/* Run all streams at once; with @upset called when all have begun. */
static void run_streams(char *all[NR_STREAMS], void (*upset)(void))
{
	struct web w[NR_STREAMS];
	char *event, *text;
	size_t len;
	FILE *f;
	u32 i;

	for (i = 0; i < NR_STREAMS; i++) {
		char *body = stream_body(i);

		web_open(&w[i], server.port);
		ck_assert(web_post(&w[i], "/v1/completions", body));
		free(body);
	}
	if (upset)
		upset();
	for (i = 0; i < NR_STREAMS; i++) {
		ck_assert_int_eq(web_status(&w[i]), 200);
		f = open_memstream(&all[i], &len);
		while ((event = web_event(&w[i]))) {
			json_t *v = json_loads(event, 0, NULL);

			ck_assert_msg(!strstr(event, "\"error\""), "%s", event);
			text = v ? (char *)choice_text(v, 0) : NULL;
			fputs(text ? text : "", f);
			json_decref(v);
			free(event);
		}
		ck_assert(w[i].over);
		fclose(f);
		web_close(&w[i]);
	}
}

static void same_streams(char *a[NR_STREAMS], char *b[NR_STREAMS])
{
	u32 i;

	for (i = 0; i < NR_STREAMS; i++) {
		same(a[i], b[i]);
		free(b[i]);
	}
}

static void kill_kvmm(void)
{
	nap_ms(300);
	kill(rig_daemon(&rig), SIGKILL);
}

/* Streams in pools that hold a third of them, and with kvmm killed: the same texts. */
START_TEST(test_pressure)
{
	char *calm[NR_STREAMS], *again[NR_STREAMS];
	u32 i;

	rig_start(&rig, POOLS, NULL);
	start_ranks();
	run_streams(calm, NULL);
	ck_assert(serve_figure(&server, "kvrt_num_preemptions_total") == 0);
	run_streams(again, kill_kvmm);
	same_streams(calm, again);
	serve_stop(&server);
	teardown();
	rig_start(&rig, SMALL_POOLS, NULL);
	start_ranks();
	run_streams(again, NULL);
	same_streams(calm, again);
	ck_assert(serve_figure(&server, "kvrt_num_preemptions_total") > 0);
	run_streams(again, kill_kvmm);
	same_streams(calm, again);
	serve_stop(&server);
	for (i = 0; i < NR_STREAMS; i++)
		free(calm[i]);
	teardown();
}
END_TEST

/* ---- ranks that fail ---- */

/* One line of the group says which rank failed. */
static void failed_line(const char *want)
{
	char *text = slurp(server.job.err);

	ck_assert_msg(strstr(text, want) != NULL && strstr(text, "rank 1 (pid "),
		      "no '%s' in\n%s", want, text);
	free(text);
}

static const struct {
	int		sig;
	const char	*line;
} failures[] = {
	{ SIGKILL, ") has ended" },
	{ SIGSTOP, ") did not answer in 2 s" },
};

/* A rank dies, or stands still: the group ends, and the next one finds the prefix. */
START_TEST(test_rank_fails)
{
	char *before, *after;
	pid_t pid[2];
	struct web w;
	json_t *v;
	int code;

	rig_start(&rig, POOLS, NULL);
	serve_start(&server, &rig, RANKS, "--rank-timeout", "2", NULL);
	serve_await(&server, 200, 60);
	before = texts(BODY);
	begin_stream(&server, &w, "{\"prompt\":\"In\",\"max_tokens\":900,\"ignore_eos\":true,\"stream\":true}");
	rank_pids(pid);
	kill(pid[1], failures[_i].sig);
	code = job_wait(&server.job, 20 * time_scale());
	ck_assert_int_eq(code, 79);
	web_close(&w);
	await_gone(pid[0], 5);
	await_gone(pid[1], 5);
	failed_line(failures[_i].line);
	start_ranks();
	v = complete(&server, BODY);
	ck_assert_int_ge(usage(v, "cached_tokens"), 16);
	json_decref(v);
	after = texts(BODY);
	same(before, after);
	serve_stop(&server);
	free(before);
	free(after);
	teardown();
}
END_TEST

/* ---- refusals ---- */

/* A rank leaves before the others know, and mpiexec says so. */
static bool leaves_early;

static void refused_start(const char *const more[], const char *line, bool one_pool)
{
	const char *argv[RIG_ARGS] = {
		"kvrt", "serve", demo_model(), "--port", "0", "--threads", "1",
	};
	struct job j;
	char *text, *at;
	u32 n = 7;

	while (*more)
		argv[n++] = *more++;
	if (one_pool)
		rig_start(&rig, "--backend", "host", "--pool-size", "16M", NULL);
	else
		rig_start(&rig, POOLS, NULL);
	j = job_startv(&rig, "kvrt", (char *const *)(uintptr_t)argv);
	ck_assert_int_ne(job_wait(&j, 8 * time_scale()), 0);
	text = slurp(j.err);
	at = strstr(text, line);
	ck_assert_msg(at != NULL, "no '%s' in\n%s", line, text);
	ck_assert_msg(!strstr(at + 1, line), "twice:\n%s", text);
	ck_assert_msg(leaves_early || !strstr(text, "PMIX"), "a line of mpiexec:\n%s", text);
	free(text);
	teardown();
}

/* A port of 127.0.0.1 that is in use until @fd is closed. */
static u32 listen_somewhere(int *fd)
{
	struct sockaddr_in a = {
		.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	socklen_t len = sizeof(a);

	*fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(*fd, (void *)&a, len), 0);
	ck_assert_int_eq(listen(*fd, 1), 0);
	ck_assert_int_eq(getsockname(*fd, (void *)&a, &len), 0);
	return ntohs(a.sin_port);
}

START_TEST(test_refused)
{
	static const char * const three[] = { "--tensor-parallel", "3", NULL };
	static const char * const two[] = { "--tensor-parallel", "2", NULL };
	static const char * const lora[] = {
		"--tensor-parallel", "2", "--enable-lora", NULL,
	};
	static const char * const keys[] = {
		"--tensor-parallel", "2", "--api-key-file", "/nonexistent", NULL,
	};
	static const char * const cuda[] = {
		"--tensor-parallel", "2", "--backend", "cuda", NULL,
	};
	char port[12];
	int fd;
	const char *taken[] = { "--tensor-parallel", "2", "--port", port, NULL };

	refused_start(three, "3 ranks cannot share 4 attention heads", false);
	refused_start(two, "too few device pools for the 2 shards", true);
	refused_start(lora, "--tensor-parallel is for one model without adapters", false);
	refused_start(cuda, "the daemon's pool is in host memory", false);
	refused_start(keys, "--api-key-file /nonexistent", false);
	/* Rank 0 leaves the group while rank 1 still loads. */
	snprintf(port, sizeof(port), "%u", listen_somewhere(&fd));
	leaves_early = true;
	refused_start(taken, "cannot listen on 127.0.0.1", false);
	close(fd);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("tensor");
	TCase *tc = tcase_create("tensor");
	SRunner *sr;
	int failed;

	if (system("command -v mpiexec >/dev/null")) {
		printf("SKIP it_tensor: there is no mpiexec here\n");
		return 0;
	}
	mpi_leaks_ignore();
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, test_same_texts);
	tcase_add_test(tc, test_notify);
	tcase_add_test(tc, test_pressure);
	tcase_add_loop_test(tc, test_rank_fails, 0, ARRAY_SIZE(failures));
	tcase_add_test(tc, test_refused);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_ENV);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
