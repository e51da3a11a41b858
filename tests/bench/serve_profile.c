// SPDX-License-Identifier: Apache-2.0
/*
 * serve_profile.c - CPU time of a server, by groups of functions
 *
 * `perf` samples on the clock of the CPU; its report is read line by line, and
 * each function is put into the first group that names its program, library or
 * the beginning of its name.  The group of all others is "other".
 */
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/bench/bench.h"
#include "tests/bench/serve_profile.h"

#define PIDS_MAX	PROFILE_PIDS_MAX

static pid_t sampler;
static char data[160];

/* ---- processes ---- */

static pid_t parent_of(pid_t pid)
{
	char path[64], text[512], *at;
	FILE *f;
	size_t n;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	f = fopen(path, "r");
	n = f ? fread(text, 1, sizeof(text) - 1, f) : 0;
	if (f)
		fclose(f);
	text[n] = '\0';
	at = strrchr(text, ')');
	return at && strlen(at) > 4 ? (pid_t)atoi(at + 4) : 0;
}

u32 profile_tree(pid_t root, pid_t *pids)
{
	struct dirent *e;
	u32 nr = 1, i;
	DIR *d;

	pids[0] = root;
	/* Children have larger numbers, unless numbers wrapped. */
	d = opendir("/proc");
	while (d && (e = readdir(d))) {
		const pid_t pid = (pid_t)atoi(e->d_name), up = parent_of(pid);

		for (i = 0; pid > 0 && i < nr && nr < PIDS_MAX; i++) {
			if (pids[i] == up) {
				pids[nr++] = pid;
				break;
			}
		}
	}
	if (d)
		closedir(d);
	return nr;
}

u64 profile_tree_ns(pid_t root)
{
	pid_t pids[PIDS_MAX];
	u32 i, nr = profile_tree(root, pids);
	u64 sum = 0;

	for (i = 0; i < nr; i++)
		sum += bench_cpu_ns(pids[i]);
	return sum;
}

/* ---- sampling ---- */

bool profile_possible(void)
{
	return !system("perf record -o /dev/null -e cpu-clock true >/dev/null 2>&1");
}

void profile_start(pid_t kvrt, pid_t hold, const char *dir, u32 ms)
{
	char list[PIDS_MAX * 12], seconds[24];
	pid_t pids[PIDS_MAX];
	u32 i, nr = profile_tree(hold, pids), n;

	snprintf(data, sizeof(data), "%s/perf.data", dir);
	snprintf(seconds, sizeof(seconds), "%u.%03u", ms / 1000, ms % 1000);
	n = (u32)snprintf(list, sizeof(list), "%d", (int)kvrt);
	for (i = 0; i < nr; i++)
		n += (u32)snprintf(list + n, sizeof(list) - n, ",%d",
				   (int)pids[i]);
	sampler = fork();
	if (sampler < 0)
		bench_die("fork: %s", strerror(errno));
	if (sampler)
		return;
	if (!freopen("/dev/null", "w", stderr) ||
	    !freopen("/dev/null", "w", stdout))
		_exit(127);
	execlp("perf", "perf", "record", "-o", data, "-e", "cpu-clock", "-F",
	       "1999", "-p", list, "sleep", seconds, NULL);
	_exit(127);
}

/* ---- groups ---- */

/* Names of programs or libraries, or beginnings of names of functions. */
struct group {
	const char	*name;
	const char	*comms;
	const char	*objects;
	const char	*symbols;
	double		share;
};

static struct group groups[] = {
	{ .name = "daemon, kernel", .comms = " kvmm kvmm-hold swapd kvmm-* ",
	  .objects = " [kernel.kallsyms] [kernel] [vdso] " },
	{ .name = "daemon", .comms = " kvmm kvmm-hold swapd kvmm-* " },
	{ .name = "sockets and other system calls",
	  .objects = " [kernel.kallsyms] [kernel] [vdso] " },
	{ .name = "libevent", .objects = " libevent* " },
	{ .name = "sampler", .symbols = " sampler_* logits_* logprob_* row_* draw cand_* " },
	{ .name = "detokenizer", .symbols = " detok_* push_* out_* held_* utf8_* " },
	{ .name = "JSON and events",
	  .symbols = " text_* json_* answer_* write_* chunk_* utf8_second_ok " },
	{ .name = "HTTP and calls",
	  .symbols = " conn_* call_* choice_* stopper_* metrics_* on_* loop_* mailbox_* http_* now_ns work_* sample_end " },
	{ .name = "engine",
	  .symbols = " engine_* seq_* seqs_* sched_* step_* pick_* plan_* entry_* count_* sample_* model_* null_* queue_* request_* family_* prefix_* publish " },
	{ .name = "rings", .symbols = " link_* kvmm_* lk_* ring_* wait_* read_completion skip_own shared_* " },
	{ .name = "libc", .objects = " libc.so* libc-* ld-linux* " },
	{ .name = "other" },
};

/* Is @word in the list, where an asterisk stands for any end? */
static bool listed(const char *list, const char *word)
{
	const size_t len = strlen(word);
	const char *p = list;
	size_t n;

	for (; p && *p; p += n) {
		p += strspn(p, " ");
		n = strcspn(p, " ");
		if (!n)
			break;
		if (p[n - 1] == '*' ? !strncmp(p, word, n - 1) :
		    n == len && !memcmp(p, word, n))
			return true;
	}
	return false;
}

static void add_line(const char *line)
{
	char comm[64], object[128], symbol[200];
	double share;
	u32 i;

	if (sscanf(line, "%lf%% ;%63[^;];%127[^;];[%*c] %199s", &share, comm,
		   object, symbol) != 4)
		return;
	comm[strcspn(comm, " ")] = '\0';
	object[strcspn(object, " ")] = '\0';
	symbol[strcspn(symbol, ".")] = '\0';
	for (i = 0; i < ARRAY_SIZE(groups) - 1; i++) {
		const struct group *g = &groups[i];

		if (g->comms && !listed(g->comms, comm))
			continue;
		if (g->objects && !listed(g->objects, object))
			continue;
		if (!g->symbols || listed(g->symbols, symbol))
			break;
	}
	groups[i].share += share;
}

void profile_print(void)
{
	char cmd[320], line[512];
	int status;
	FILE *f;
	u32 i;

	if (waitpid(sampler, &status, 0) != sampler || status)
		bench_die("perf ended with status 0x%x", status);
	snprintf(cmd, sizeof(cmd),
		 "perf report -i '%s' --stdio --no-children -F overhead,comm,dso,sym -t ';' 2>/dev/null",
		 data);
	f = popen(cmd, "r");
	while (f && fgets(line, sizeof(line), f)) {
		fputs(line, stderr);
		add_line(line);
	}
	if (!f || pclose(f))
		bench_die("perf report failed");
	for (i = 0; i < ARRAY_SIZE(groups); i++)
		fprintf(stderr, "note: %5.1f%% %s\n", groups[i].share,
			groups[i].name);
}
