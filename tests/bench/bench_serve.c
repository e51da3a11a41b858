// SPDX-License-Identifier: Apache-2.0
/*
 * bench_serve.c - cost of a streamed token around the model
 *
 * kvrt serve with kernels that compute nothing, a daemon, and 256 clients that
 * read streams, and ask again when one has ended: prompts of some ten tokens,
 * answers of 100 to 300.  The figure is the CPU time of all processes of the
 * project: kvrt and kvmm with all their threads, kvmm-hold and swapd.  Clients
 * are not counted.  Drawing a token from the row of logits is: with the demo
 * model that is 4096 of them, greedily.
 *
 * The engine needs no time for a step here, so it would be far ahead of the
 * threads that write, and many tokens would share an event.  So the engine is
 * made to wait: all threads of kvrt run on one CPU, the engine's only when no
 * other one wants to (SCHED_IDLE).  Then each step is sent before the next is
 * made, as with a slower model.  Tokens and events are counted apart; the aim is
 * for the fewer of the two.
 *
 * No server on such sockets can beat the peer by much: a process with libevent
 * that writes an event of the same size to as many connections, in turn, and
 * does no other work.  Rounds of the two alternate.
 *
 * After the rounds `perf`, if it is there, shows where the time goes, by groups
 * of functions.
 */
#include <dirent.h>
#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include "tests/bench/bench.h"
#include "tests/bench/kvrt.h"
#include "tests/bench/serve_profile.h"
#include "tests/bench/streams.h"

#define STREAMS		256u
#define TOKENS		200u		/* of an answer, in the mean */
#define ROUNDS		5u
#define WARM_MS		500u
#define SERVE_MS	2000u
#define FLOOR_MS	1000u
#define AIM		50000.0		/* tokens a second of CPU time */

static struct bench_daemon hold;
static struct bench_kvrt server;

/* ---- the server ---- */

/* Make the engine wait for a step until the one before is written. */
static void kvrt_pace(void)
{
	const struct sched_param none = { 0 };
	char path[320], comm[32];
	cpu_set_t last;
	struct dirent *e;
	DIR *d;
	FILE *f;

	CPU_ZERO(&last);
	CPU_SET((u32)sysconf(_SC_NPROCESSORS_ONLN) - 1, &last);
	snprintf(path, sizeof(path), "/proc/%d/task", (int)server.pid);
	d = opendir(path);
	while (d && (e = readdir(d))) {
		const pid_t tid = (pid_t)atoi(e->d_name);

		snprintf(path, sizeof(path), "/proc/%d/task/%d/comm", (int)server.pid,
			 (int)tid);
		f = tid ? fopen(path, "r") : NULL;
		if (!f || !fgets(comm, sizeof(comm), f))
			continue;
		fclose(f);
		if (sched_setaffinity(tid, sizeof(last), &last))
			bench_die("affinity of kvrt: %s", strerror(errno));
		if (!strcmp(comm, "kvrt-engine\n") &&
		    sched_setscheduler(tid, SCHED_IDLE, &none))
			bench_die("priority of kvrt: %s", strerror(errno));
	}
	if (d)
		closedir(d);
}

/* ---- rounds ---- */

struct round {
	double	tokens;		/* a CPU second */
	double	events;		/* the same */
	double	wall;		/* tokens a second of the clock */
	double	daemon;		/* share of the CPU time */
	double	bytes;		/* of an event */
};

static u64 ours_ns(u64 *daemon)
{
	*daemon = profile_tree_ns(hold.pid);
	return *daemon + bench_cpu_ns(server.pid);
}

static void serve_round(struct round *r)
{
	struct streams *s = streams_open(server.port, STREAMS, TOKENS);
	u64 tokens, cpu, wall, daemon, daemon_then;
	struct streams_count a, b;

	streams_await(s, 20000);
	streams_run(s, WARM_MS);
	tokens = bench_kvrt_tokens(&server);
	streams_count(s, &a);
	wall = bench_now();
	cpu = ours_ns(&daemon_then);
	streams_run(s, SERVE_MS);
	cpu = ours_ns(&daemon) - cpu;
	wall = bench_now() - wall;
	streams_count(s, &b);
	tokens = bench_kvrt_tokens(&server) - tokens;
	streams_close(s);
	r->tokens = (double)tokens * 1e9 / (double)cpu;
	r->events = (double)(b.events - a.events) * 1e9 / (double)cpu;
	r->wall = (double)tokens * 1e9 / (double)wall;
	r->daemon = (double)(daemon - daemon_then) / (double)cpu;
	r->bytes = (double)(b.bytes - a.bytes) / (double)(b.events - a.events);
	usleep(200000);		/* until open requests are cancelled */
}

/* Events a CPU second. */
static double floor_round(u32 bytes)
{
	struct streams_count a, b;
	struct floor_server f;
	struct streams *s;
	u64 cpu;

	floor_start(&f, STREAMS, bytes);
	s = streams_open(f.port, STREAMS, 0);
	streams_await(s, 20000);
	streams_count(s, &a);
	cpu = bench_cpu_ns(f.pid);
	streams_run(s, FLOOR_MS);
	cpu = bench_cpu_ns(f.pid) - cpu;
	streams_count(s, &b);
	floor_stop(&f);
	streams_close(s);
	return (double)(b.events - a.events) * 1e9 / (double)cpu;
}

/* ---- figures ---- */

static struct round rounds[ROUNDS];
static double floors[ROUNDS];

static double median_of(size_t offset, double *lo, double *hi)
{
	double v[ROUNDS];
	u32 i;

	for (i = 0; i < ROUNDS; i++)
		v[i] = *(const double *)((const char *)&rounds[i] + offset);
	bench_range(v, ROUNDS, lo, hi);
	return bench_median(v, ROUNDS);
}

#define MEDIAN(field, lo, hi) median_of(offsetof(struct round, field), lo, hi)

static void report(void)
{
	double lo, hi, events_lo, events_hi, tokens, events, few, floor;
	double x, y;

	tokens = MEDIAN(tokens, &lo, &hi);
	events = MEDIAN(events, &events_lo, &events_hi);
	floor = bench_median(floors, ROUNDS);
	few = min(tokens, events);
	bench_report(&(struct bench_figure){
		.name = "serve_tokens_per_cpu_second", .value = tokens,
		.unit = "tokens/s",
	});
	bench_report(&(struct bench_figure){
		.name = "serve_events_per_cpu_second", .value = events,
		.unit = "events/s", .peer = "libevent, events alone",
		.peer_value = floor,
	});
	bench_report(&(struct bench_figure){
		.name = "serve_streamed_per_cpu_second", .value = few,
		.unit = "tokens/s", .min_value = AIM,
	});
	bench_report(&(struct bench_figure){
		.name = "serve_tokens_per_second",
		.value = MEDIAN(wall, &x, &y), .unit = "tokens/s",
	});
	fprintf(stderr, "note: %u streams: %.0f tokens a CPU second (%.0f to %.0f), %.0f events (%.0f to %.0f), %.0f tokens a second of the clock\n",
		STREAMS, tokens, lo, hi, events, events_lo, events_hi,
		MEDIAN(wall, &x, &y));
	fprintf(stderr, "note: events of %.0f bytes; writing alone: %.0f events a CPU second, %.2f times as many; kvmm has %.0f%% of the time\n",
		MEDIAN(bytes, &x, &y), floor, floor / events,
		100 * MEDIAN(daemon, &x, &y));
	bench_verdict(few >= AIM, "%.0f streamed tokens a CPU second of kvrt and kvmm, aim %.0f",
		      few, AIM);
}

static void profile_round(void)
{
	struct streams *s;

	if (!profile_possible()) {
		fprintf(stderr, "note: no profile: perf is not there, or may not be used\n");
		return;
	}
	s = streams_open(server.port, STREAMS, TOKENS);
	streams_await(s, 20000);
	streams_run(s, WARM_MS);
	profile_start(server.pid, hold.pid, hold.dir, SERVE_MS);
	streams_run(s, SERVE_MS);
	streams_close(s);
	profile_print();
}

int main(void)
{
	static const char *const args[] = {
		"--pool-size", "512M", "--extent-size", "4M", NULL,
	};
	static const char *const options[] = {
		"--kernels", "null", "--threads", "1", NULL,
	};
	u32 i;

	bench_hold_start(&hold, args);
	bench_kvrt_start(&server, &hold, options);
	kvrt_pace();
	for (i = 0; i < ROUNDS; i++) {
		serve_round(&rounds[i]);
		floors[i] = floor_round((u32)rounds[i].bytes);
	}
	report();
	profile_round();
	bench_kvrt_stop(&server);
	bench_daemon_stop(&hold);
	return 0;
}
