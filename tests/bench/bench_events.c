// SPDX-License-Identifier: Apache-2.0
/*
 * bench_events.c - cost of --kv-events for the mm thread
 *
 * Two daemons, one of which publishes events to a subscriber that takes them all.  A
 * client of each computes new prompts of 513 tokens, at a fixed pace, in turns of a
 * second; each prompt evicts as many blocks as it stores, by way of the host pool.  The
 * figure is the CPU time of the mm thread, as the kernel accounts it, as a part of one
 * core.  So the load is that of a runtime that prefills 100,000 new tokens a second.
 *
 * Then both take prompts without a pause.  There the figure is the time of a change of a
 * block, for information: it includes the ids of its tokens.
 */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>
#include <zmq.h>

#include "tests/bench/bench.h"
#include "tests/cache_probe.h"

#define ROUNDS		8u
#define TURN_NS		1000000000ull
#define PACE_NS		5000000ull	/* between the begins of two prompts */
#define WARM		800u		/* prompts that fill both pools */
#define AIM		0.01		/* of a core */

/* A daemon; @stat: schedstat of its mm thread. */
struct side {
	struct bench_daemon	node;
	struct kvmm		*k;
	int			stat;
	u32			number;
	u64			step;
};

static struct side side[2];	/* 1: with events */
static char dir[] = "/tmp/kvev.XXXXXX", live[64];

/* ---- load ---- */

/* Compute a new prompt and leave it to the cache. */
static void fill(struct side *s)
{
	const u32 *ids = cp_prompt(s->number++);
	u64 seq = cp_open(s->k, 0);
	struct kvmm_seq_status st;
	const u32 found = cp_match(s->k, seq, ids, &st);
	struct kvmm_begin_arg begin = {
		.seq = seq, .seq_epoch = st.seq_epoch, .start = found,
		.max_tokens = CP_LEN - found,
	};
	struct kvmm_end_arg end = {
		.seq = seq, .valid_len = CP_LEN, .nr_ids = CP_LEN - found,
	};
	struct kvmm_begin_res bres;
	struct kvmm_end_res eres;

	CP_MUST(!kvmm_step_begin(s->k, ++s->step, &begin, 1, &bres) && !bres.status);
	CP_MUST(!kvmm_step_end(s->k, s->step, 1000, CP_LEN, &end, 1, ids + found, &eres) &&
		!eres.status);
	CP_MUST(!kvmm_seq_close(s->k, &seq, 1));
}

/* ---- the threads ---- */

/* The entry of @dir with the comm @name and, for processes, the parent @parent. */
static int find_comm(const char *where, const char *name, pid_t parent)
{
	char path[400], comm[32];
	int found = 0, ppid;
	struct dirent *e;
	DIR *d = opendir(where);
	FILE *f;

	while (d && !found && (e = readdir(d))) {
		if (e->d_name[0] < '0' || e->d_name[0] > '9')
			continue;
		snprintf(path, sizeof(path), "%s/%s/stat", where, e->d_name);
		f = fopen(path, "re");
		if (f && fscanf(f, "%*d (%31[^)]) %*c %d", comm, &ppid) == 2 &&
		    !strcmp(comm, name) && (!parent || ppid == parent))
			found = atoi(e->d_name);
		if (f)
			fclose(f);
	}
	if (d)
		closedir(d);
	return found;
}

static void find_thread(struct side *s)
{
	const int kvmm = find_comm("/proc", "kvmm", s->node.pid);
	char path[96];

	snprintf(path, sizeof(path), "/proc/%d/task", kvmm);
	snprintf(path, sizeof(path), "/proc/%d/task/%d/schedstat", kvmm,
		 find_comm(path, "kvmm-mm", 0));
	s->stat = open(path, O_RDONLY | O_CLOEXEC);
	if (s->stat < 0)
		bench_die("%s: %s: this kernel accounts no CPU time of threads", path,
			  strerror(errno));
}

/* Nanoseconds that the mm thread ran. */
static u64 mm_ns(const struct side *s)
{
	char text[128] = "";

	CP_MUST(pread(s->stat, text, sizeof(text) - 1, 0) > 0);
	return strtoull(text, NULL, 10);
}

/* ---- a subscriber ---- */

static void __noreturn subscribe(void)
{
	void *ctx = zmq_ctx_new(), *sock = zmq_socket(ctx, ZMQ_SUB);
	zmq_msg_t m;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	CP_MUST(!zmq_setsockopt(sock, ZMQ_SUBSCRIBE, "", 0) && !zmq_connect(sock, live));
	for (;;) {
		zmq_msg_init(&m);
		CP_MUST(zmq_msg_recv(&m, sock, 0) >= 0);
		zmq_msg_close(&m);
	}
}

/* ---- turns ---- */

/* CPU time of the mm thread for a prompt, and its part of a core in @part. */
static double turn(struct side *s, u64 pace, double *part)
{
	const u64 begin = bench_now(), ran = mm_ns(s);
	u64 now = begin;
	u32 nr = 0;

	for (; now < begin + TURN_NS; now = bench_now()) {
		fill(s);
		nr++;
		if (begin + nr * pace > bench_now())
			usleep((useconds_t)((begin + nr * pace - bench_now()) / 1000));
	}
	*part = (double)(mm_ns(s) - ran) / (double)(now - begin);
	return (double)(mm_ns(s) - ran) / nr;
}

static void measure(const char *load, u64 pace, bool aim)
{
	double part[2][ROUNDS], each[2][ROUNDS], more[ROUNDS], added[ROUNDS];
	char name[64];
	double with, without;
	u32 i, n;

	for (i = 0; i < ROUNDS; i++) {
		for (n = 0; n < 2; n++)
			each[(i + n) % 2][i] = turn(&side[(i + n) % 2], pace,
						    &part[(i + n) % 2][i]);
		more[i] = part[1][i] - part[0][i];
		added[i] = each[1][i] - each[0][i];
	}
	with = bench_median(part[1], ROUNDS);
	without = bench_median(part[0], ROUNDS);
	snprintf(name, sizeof(name), "events.%s.mm", load);
	bench_report(&(struct bench_figure){
		.name = name, .value = with, .unit = "cores", .peer = "no events",
		.peer_value = without,
	});
	printf("note: %s: a prompt of %u tokens takes the mm thread %.1f us, %.1f us without events: %.2f us more for each of its %u blocks\n",
	       load, CP_LEN, bench_median(each[1], ROUNDS) / 1000,
	       bench_median(each[0], ROUNDS) / 1000,
	       bench_median(added, ROUNDS) / 1000 / (CP_LEN / CP_TOKENS), CP_LEN / CP_TOKENS);
	if (!aim)
		return;
	snprintf(name, sizeof(name), "events.%s.added", load);
	bench_report(&(struct bench_figure){
		.name = name, .value = bench_median(more, ROUNDS), .unit = "cores",
		.max_value = AIM,
	});
	bench_verdict(bench_median(more, ROUNDS) <= AIM,
		      "%s: the mm thread takes %.3f %% of a core, %.3f %% without events: %.3f %% more",
		      load, 100 * with, 100 * without, 100 * bench_median(more, ROUNDS));
}

static void start(struct side *s, bool events)
{
	const char *args[] = {
		"--pool-size", "8M", "--extent-size", "1M", "--host-size", "4M",
		"--min-token-bytes", "64", events ? "--kv-events" : NULL, live, NULL,
	};
	u32 i;

	bench_hold_start(&s->node, args);
	s->k = cp_attach(s->node.socket);
	find_thread(s);
	for (i = 0; i < WARM; i++)
		fill(s);
}

int main(void)
{
	pid_t sub;
	u32 i;

	CP_MUST(mkdtemp(dir));
	snprintf(live, sizeof(live), "ipc://%s/live", dir);
	sub = fork();
	CP_MUST(sub >= 0);
	if (!sub)
		subscribe();
	for (i = 0; i < 2; i++)
		start(&side[i], i);
	measure("paced", PACE_NS, true);
	measure("full", 0, false);
	for (i = 0; i < 2; i++) {
		kvmm_detach(side[i].k);
		bench_daemon_stop(&side[i].node);
	}
	kill(sub, SIGKILL);
	unlink(live + strlen("ipc://"));
	rmdir(dir);
	return 0;
}
