// SPDX-License-Identifier: Apache-2.0
/*
 * bench_evict.c - what the prefix cache finds, beside LRU, LFU, ARC and Belady
 *
 * Three kinds of traces (evict_trace.c) from fixed seeds; caches of several
 * sizes, in percent of the working set: the blocks that the trace uses twice or
 * oftener.  The rate is tokens found over what a cache without bounds would
 * find: most of a trace with prompts that come once can be found by nobody.
 *
 * The core is the real one, driven through its requests (evict_core.c).  It is
 * deterministic and so is this program: no figure depends on the machine.
 *
 * What is aimed at: nowhere more than 2 points worse than the best of LRU, LFU
 * and ARC; with scans, 10 points better than LRU wherever the optimum is 10
 * points better.
 */
#include "tests/bench/bench.h"
#include "tests/bench/evict.h"

#include <stdlib.h>

#define SEEDS		2u
#define BEHIND_MAX	2.0	/* points */
#define GAIN_MIN	10.0

static const struct {
	const char *name;
	void (*make)(struct ev_trace *t, u64 seed);
	bool scans;
} traces[] = {
	{ "chats",	 ev_trace_chats,	false },
	{ "chats-scans", ev_trace_chats_scans,	true },
	{ "zipf-drift",	 ev_trace_zipf_drift,	false },
};

static const struct {
	const char *name;
	u64 (*run)(const struct ev_trace *t, u32 cap);
} caches[] = {
	{ "core",	ev_run_core },
	{ "lru",	ev_run_lru },
	{ "lfu",	ev_run_lfu },
	{ "arc",	ev_run_arc },
	{ "belady",	ev_run_belady },
};

#define NR_CACHES	ARRAY_SIZE(caches)

static const u32 percents[] = { 5, 10, 20, 35, 50 };

/* Rates in percent, means over the seeds. */
static void measure(u32 trace, u32 percent, double *rate)
{
	struct ev_trace t;
	u64 seed, most;
	u32 i, cap;

	memset(rate, 0, NR_CACHES * sizeof(*rate));
	for (seed = 1; seed <= SEEDS; seed++) {
		traces[trace].make(&t, seed);
		cap = ev_working_set(&t) / 100 * percent / 64 * 64;
		if (cap < t.longest + 64)
			bench_die("%s: %u %% is less than its longest prompt",
				  traces[trace].name, percent);
		most = ev_findable(&t);
		for (i = 0; i < NR_CACHES; i++)
			rate[i] += 100.0 * (double)caches[i].run(&t, cap) /
				   (double)most / SEEDS;
		ev_trace_free(&t);
	}
}

/*
 * In a report less is better: what was missed, beside what each peer missed;
 * how far the best of the three was ahead; what lacks to 10 points over LRU.
 */
static void report(u32 trace, u32 percent, const double *rate, double behind,
		   double lacking)
{
	char name[64];
	u32 i;

	for (i = 1; i < NR_CACHES; i++) {
		struct bench_figure f = {
			.name = name, .unit = "% missed",
			.value = 100 - rate[0],
			.peer = caches[i].name,
			/* A ratio to nothing is none. */
			.peer_value = max(100 - rate[i], 0.01),
		};

		snprintf(name, sizeof(name), "evict_%s_%u_%s",
			 traces[trace].name, percent, caches[i].name);
		bench_report(&f);
	}
	snprintf(name, sizeof(name), "evict_%s_%u_behind",
		 traces[trace].name, percent);
	bench_report(&(struct bench_figure){
		.name = name, .unit = "points", .value = behind,
		.max_value = BEHIND_MAX });
	if (lacking < -100)
		return;
	snprintf(name, sizeof(name), "evict_%s_%u_lacking",
		 traces[trace].name, percent);
	bench_report(&(struct bench_figure){
		.name = name, .unit = "points", .value = lacking,
		.max_value = 0.01 });
}

/* One row of the table; returns how many aims were missed. */
static u32 row(u32 trace, u32 percent)
{
	double r[NR_CACHES], behind, lacking = -1000;

	measure(trace, percent, r);
	behind = max(max(r[1], r[2]), r[3]) - r[0];
	if (traces[trace].scans && r[4] - r[1] >= GAIN_MIN)
		lacking = max(r[1] + GAIN_MIN - r[0], 0.0);
	printf("| %s | %u | %.1f | %.1f | %.1f | %.1f | %.1f |\n",
	       traces[trace].name, percent, r[0], r[1], r[2], r[3], r[4]);
	if (getenv("KVMM_BENCH_OUT"))
		report(trace, percent, r, max(behind, 0.0), lacking);
	return (behind > BEHIND_MAX) + (lacking > 0);
}

int main(int argc, char **argv)
{
	u32 i, n, missed = 0;

	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("| trace | cache %% | kvmm | LRU | LFU | ARC | optimum |\n");
	printf("|---|---|---|---|---|---|---|\n");
	for (i = 0; i < ARRAY_SIZE(traces); i++)
		for (n = 0; n < ARRAY_SIZE(percents); n++)
			missed += row(i, percents[n]);
	printf("aims missed: %u\n", missed);
	return 0;
}
