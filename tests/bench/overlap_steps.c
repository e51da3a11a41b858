// SPDX-License-Identifier: Apache-2.0
/*
 * overlap_steps.c - does a promotion hold up the steps of other sequences?
 *
 * A sequence steps without a pause.  It is of the runtime that has the promoted sequence,
 * or of another one.  Each round has three parts, in turns: without promotions, with
 * promotions of 70 MiB one after the other, and, as the control, with a process that
 * copies as many bytes a second from memory to memory, and takes as much CPU time as
 * kvmm took for the promotions.  Only what is beyond the control is a step that waits for
 * a promotion.
 */
#include <stdlib.h>
#include <string.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "tests/bench/overlap.h"

#define ROUNDS		9u
#define PART_NS		500000000ull
#define EXTENT		(8ull << 20)
#define POOL		(384ull << 20)
#define HOST		(128ull << 20)
#define BURST		(OV_BLOCKS * OV_BLOCK)

enum { SAME, OTHER, NR_RUNTIMES };
enum { ALONE, PROMOTED, COPIED, NR_ARMS };

static const char * const runtime_name[] = { "same", "other" };

static struct bench_daemon d;
static pid_t kvmm;
static struct ov_client own;
static struct ov_steps res[NR_RUNTIMES][NR_ARMS][ROUNDS];
static double rate[NR_RUNTIMES][ROUNDS];	/* promoted bytes a second */
static double cpu[NR_RUNTIMES][NR_ARMS][ROUNDS]; /* of kvmm, seconds a second */
static int to_other[2], from_other[2];

/**
 * struct control - shared with the process that copies
 * @rate: bytes a second, 0: none
 * @cpu:  seconds of CPU time a second
 */
static struct control {
	volatile double	rate;
	volatile double	cpu;
} *control;

/* ---- processes ---- */

static void __noreturn other_main(void)
{
	struct ov_client c;
	struct ov_steps s;
	char byte;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	ov_attach(&c, d.socket, "other");
	while (read(to_other[0], &byte, 1) == 1) {
		ov_steps(&c, PART_NS, false, &s);
		if (write(from_other[1], &s, sizeof(s)) != sizeof(s))
			_exit(1);
	}
	kvmm_detach(c.k);
	_exit(0);
}

static u64 own_cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &ts);
	return (u64)ts.tv_sec * 1000000000 + (u64)ts.tv_nsec;
}

/* Copy a burst in blocks, and go on without copying until it took its CPU time. */
static void copy_burst(char *to, const char *from, u64 cpu_ns)
{
	const u64 end = own_cpu_ns() + cpu_ns;
	u64 at;

	for (at = 0; at < BURST; at += OV_BLOCK)
		memcpy(to + at, from + at, OV_BLOCK);
	while (own_cpu_ns() < end)
		;
}

/* A burst, then a pause so long that the rate is right. */
static void __noreturn copy_main(void)
{
	char *from = malloc(BURST), *to = malloc(BURST);
	double period;
	u64 next = 0;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (!from || !to)
		bench_die("no memory");
	memset(from, 1, BURST);
	memset(to, 1, BURST);
	for (;;) {
		if (control->rate == 0 || bench_now() < next) {
			usleep(100);
			continue;
		}
		period = BURST * 1e9 / control->rate;
		next = max(next, bench_now() - 100000000) + (u64)period;
		copy_burst(to, from, (u64)(control->cpu * period));
	}
}

static pid_t start(void (*fn)(void))
{
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid < 0)
		bench_die("fork: %s", strerror(errno));
	if (!pid)
		fn();
	return pid;
}

/* ---- rounds ---- */

/* The other runtime steps; this one promotes meanwhile, or sleeps. */
static void other_steps(bool promote, struct ov_steps *out)
{
	struct pollfd p = { .fd = from_other[0], .events = POLLIN };

	if (write(to_other[1], "x", 1) != 1)
		bench_die("the other runtime is gone");
	while (promote && !poll(&p, 1, 0)) {
		ov_promote(&own);
		(void)kvmm_wait(own.k, 200000);
	}
	if (read(from_other[0], out, sizeof(*out)) != sizeof(*out))
		bench_die("the other runtime is gone");
}

/* As kvmm took for the promotions of this round, beyond its work for the steps. */
static void control_set(u32 who, u32 r)
{
	control->cpu = max(cpu[who][PROMOTED][r] - cpu[who][ALONE][r], 0.0);
	control->rate = rate[who][r];
}

static void part(u32 who, u32 arm, u32 r)
{
	struct ov_steps *out = &res[who][arm][r];
	const u64 before = own.count, began = bench_now(), used = bench_cpu_ns(kvmm);
	double ns;

	if (arm == COPIED)
		control_set(who, r);
	if (who == SAME)
		ov_steps(&own, PART_NS, arm == PROMOTED, out);
	else
		other_steps(arm == PROMOTED, out);
	control->rate = 0;
	ns = (double)(bench_now() - began);
	cpu[who][arm][r] = (double)(bench_cpu_ns(kvmm) - used) / ns;
	if (arm != PROMOTED)
		return;
	rate[who][r] = (double)((own.count - before) * BURST) * 1e9 / ns;
	if (own.count - before < 3)
		bench_die("%llu promotions in half a second",
			  (unsigned long long)(own.count - before));
}

/* ---- figures ---- */

enum { WHOLE_P50, WHOLE_P99, WAIT_P50, WAIT_P99, NR_FIGURES };

static const char * const figure_name[] = {
	"step_p50", "step_p99", "wait_p50", "wait_p99",
};

static double figure(const struct ov_steps *s, u32 f)
{
	return f < WAIT_P50 ? s->whole[f] : s->wait[f - WAIT_P50];
}

static void report_one(u32 who, u32 f)
{
	double v[NR_ARMS][ROUNDS], ratio[ROUNDS], med[NR_ARMS], lo, hi;
	char name[64];
	u32 r, arm;

	for (r = 0; r < ROUNDS; r++) {
		for (arm = 0; arm < NR_ARMS; arm++)
			v[arm][r] = figure(&res[who][arm][r], f);
		ratio[r] = v[PROMOTED][r] / v[COPIED][r];
	}
	for (arm = 0; arm < NR_ARMS; arm++)
		med[arm] = bench_median(v[arm], ROUNDS);
	bench_range(ratio, ROUNDS, &lo, &hi);
	printf("| %s | %s | %.0f | %.0f | %.0f | %.2f (%.2f to %.2f) |\n", runtime_name[who],
	       figure_name[f], med[ALONE], med[PROMOTED], med[COPIED],
	       bench_median(ratio, ROUNDS), lo, hi);
	snprintf(name, sizeof(name), "overlap.%s_%s", runtime_name[who], figure_name[f]);
	bench_report(&(struct bench_figure){
		.name = name, .value = med[PROMOTED], .unit = "us", .peer = "copies",
		.peer_value = med[COPIED], .ratio = bench_median(ratio, ROUNDS),
		.ratio_low = lo, .ratio_high = hi,
	});
	fprintf(stderr, "note: %s runtime, %s: %.0f us alone, %.0f beside promotions, %.0f beside copies; ratio of the last two %.2f (%.2f to %.2f)\n",
		runtime_name[who], figure_name[f], med[ALONE], med[PROMOTED], med[COPIED],
		bench_median(ratio, ROUNDS), lo, hi);
}

void ov_run(void)
{
	char pool[32], host[32];
	const char *const args[] = {
		"--backend", "host", "--pool-size", pool, "--host-size", host,
		"--min-token-bytes", "32768", "--swappiness", "200",
		"--max-clients", "4", NULL,
	};
	u32 r, who, arm, f;

	snprintf(pool, sizeof(pool), "%llu", POOL);
	snprintf(host, sizeof(host), "%llu", HOST);
	control = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (control == MAP_FAILED || pipe(to_other) || pipe(from_other))
		bench_die("no memory");
	bench_hold_start(&d, args);
	kvmm = bench_child(d.pid, "kvmm");
	start(copy_main);
	start(other_main);
	ov_attach(&own, d.socket, "own");
	ov_promoted_open(&own);
	/* Once before it counts: extents are made and mapped. */
	for (r = 0; r <= ROUNDS; r++)
		for (who = 0; who < NR_RUNTIMES; who++)
			for (arm = 0; arm < NR_ARMS; arm++)
				part(who, arm, r ? r - 1 : 0);
	printf("| runtime | figure, us | alone | beside promotions | beside copies | promotions to copies |\n");
	printf("|---|---|---|---|---|---|\n");
	for (who = 0; who < NR_RUNTIMES; who++) {
		for (f = 0; f < NR_FIGURES; f++)
			report_one(who, f);
		fprintf(stderr, "note: %s runtime: %.0f MB/s promoted meanwhile; kvmm took %.2f CPUs, %.2f without promotions\n",
			runtime_name[who], bench_median(rate[who], ROUNDS) / 1e6,
			bench_median(cpu[who][PROMOTED], ROUNDS),
			bench_median(cpu[who][ALONE], ROUNDS));
	}
	fprintf(stderr, "note: a request that orders %u copies is answered after %.0f us\n", OV_BLOCKS,
		(double)own.order_ns / (double)own.count / 1e3);
	kvmm_detach(own.k);
	close(to_other[1]);
	bench_daemon_stop(&d);
}
