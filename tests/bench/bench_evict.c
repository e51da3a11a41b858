// SPDX-License-Identifier: Apache-2.0
/*
 * bench_evict.c - hits of the prefix cache, beside LRU, LFU, ARC and Belady
 *
 * Three kinds of traces (evict_trace.c) from fixed seeds.  The constants of the
 * policy were chosen on some of them; others were held out.  Sizes of the caches
 * are in percent of the working set: the blocks that the trace uses twice or
 * oftener.  The rate is the tokens found, over those that an unbounded cache
 * would find: in a trace of prompts that come once no cache finds most tokens.
 *
 * The core is the real one, driven through its requests (evict_core.c).  It is
 * deterministic and so is this program: no figure depends on the machine.
 *
 * A last table has chats of high priority among others: the hits of both, with
 * and without classes of retention.
 *
 * Aims: nowhere more than 2 points worse than the best of LRU, LFU and ARC; with
 * scans, 10 points better than LRU wherever the optimum is 10 points better.
 */
#include "tests/bench/bench.h"
#include "tests/bench/evict.h"

#include <stdlib.h>

#define SEEDS		2u
#define BEHIND_MAX	2.0	/* points */
#define GAIN_MIN	10.0
#define NORMAL		100u	/* priorities */
#define HIGH		200u

struct trace {
	const char	*name;
	void		(*make)(struct ev_trace *t,
				const struct ev_shape *shape, u64 seed);
	struct ev_shape	shape;
	u64		seed;		/* the first of SEEDS */
};

/* The constants of the policy were chosen on these traces. */
static const struct trace known[] = {
	{ "chats",	 ev_trace_chats, { 1.0, 0, 0 }, 1 },
	{ "chats-scans", ev_trace_chats, { 1.0, 20, 0 }, 1 },
	{ "zipf-drift",	 ev_trace_zipf,	 { 0.9, 0, 20 }, 1 },
};

/* No constant was chosen on these: other seeds, then other shapes too. */
static const struct trace held_out[] = {
	{ "held-chats",		ev_trace_chats, { 1.0, 0, 0 }, 1001 },
	{ "held-chats-scans",	ev_trace_chats, { 1.0, 20, 0 }, 1001 },
	{ "held-zipf-drift",	ev_trace_zipf,	{ 0.9, 0, 20 }, 1001 },
	{ "held-chats-flat",	ev_trace_chats, { 0.6, 0, 0 }, 2001 },
	{ "held-scans-10",	ev_trace_chats, { 1.3, 10, 0 }, 2001 },
	{ "held-scans-35",	ev_trace_chats, { 0.8, 35, 0 }, 2001 },
	{ "held-zipf-flat",	ev_trace_zipf,	{ 0.6, 0, 5 }, 2001 },
	{ "held-zipf-steep",	ev_trace_zipf,	{ 1.2, 0, 40 }, 2001 },
};

/* A fifth of the chats in these traces is of high priority. */
static const struct trace with_high[] = {
	{ "high-chats",		ev_trace_chats, { 1.0, 0, 0 }, 3001 },
	{ "high-chats-scans",	ev_trace_chats, { 1.0, 20, 0 }, 3001 },
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
static void measure(const struct trace *tr, u32 percent, double *rate)
{
	struct ev_trace t;
	u64 seed, most;
	u32 i, cap;

	memset(rate, 0, NR_CACHES * sizeof(*rate));
	for (seed = tr->seed; seed < tr->seed + SEEDS; seed++) {
		tr->make(&t, &tr->shape, seed);
		cap = ev_working_set(&t) / 100 * percent / 64 * 64;
		if (cap < t.longest + 64)
			bench_die("%s: %u %% is less than its longest prompt",
				  tr->name, percent);
		most = ev_findable(&t);
		for (i = 0; i < NR_CACHES; i++)
			rate[i] += 100.0 * (double)caches[i].run(&t, cap) /
				   (double)most / SEEDS;
		ev_trace_free(&t);
	}
}

/*
 * In a report less is better: misses, beside the misses of each peer; how far
 * the best of the three was ahead; the points that lack to 10 over LRU.
 */
static void report(const struct trace *tr, u32 percent, const double *rate,
		   double behind, double lacking)
{
	char name[64];
	u32 i;

	for (i = 1; i < NR_CACHES; i++) {
		struct bench_figure f = {
			.name = name, .unit = "% missed",
			.value = 100 - rate[0],
			.peer = caches[i].name,
			/* Avoid a ratio to 0. */
			.peer_value = max(100 - rate[i], 0.01),
		};

		snprintf(name, sizeof(name), "evict_%s_%u_%s",
			 tr->name, percent, caches[i].name);
		bench_report(&f);
	}
	snprintf(name, sizeof(name), "evict_%s_%u_behind",
		 tr->name, percent);
	bench_report(&(struct bench_figure){
		.name = name, .unit = "points", .value = behind,
		.max_value = BEHIND_MAX });
	if (lacking < -100)
		return;
	snprintf(name, sizeof(name), "evict_%s_%u_lacking",
		 tr->name, percent);
	bench_report(&(struct bench_figure){
		.name = name, .unit = "points", .value = lacking,
		.max_value = 0.01 });
}

/* Print a row of the table; add its @aims.  Return: how many were missed. */
static u32 row(const struct trace *tr, u32 percent, u32 *aims)
{
	double r[NR_CACHES], behind, lacking = -1000;

	measure(tr, percent, r);
	behind = max(max(r[1], r[2]), r[3]) - r[0];
	if (tr->shape.scans && r[4] - r[1] >= GAIN_MIN)
		lacking = max(r[1] + GAIN_MIN - r[0], 0.0);
	printf("| %s | %u | %.1f | %.1f | %.1f | %.1f | %.1f |\n",
	       tr->name, percent, r[0], r[1], r[2], r[3], r[4]);
	if (getenv("KVMM_BENCH_OUT"))
		report(tr, percent, r, max(behind, 0.0), lacking);
	*aims += 1 + (lacking > -100);
	return (behind > BEHIND_MAX) + (lacking > 0);
}

/*
 * Effect of classes of retention: a fifth of the chats is of high priority.
 * Percent that high chats, others and all found, first without classes.
 */
static void measure_high(const struct trace *tr, u32 percent, double rate[][2])
{
	u64 seed, all, most, found, found_high;
	struct ev_trace t;
	u32 i, cap;

	memset(rate, 0, 3 * sizeof(*rate));
	for (seed = tr->seed; seed < tr->seed + SEEDS; seed++) {
		tr->make(&t, &tr->shape, seed);
		cap = ev_working_set(&t) / 100 * percent / 64 * 64;
		all = ev_findable(&t);
		most = ev_findable_high(&t);
		for (i = 0; i < 2; i++) {
			ev_run_core_high(&t, cap, i ? HIGH : NORMAL, &found,
					 &found_high);
			rate[0][i] += 100.0 * (double)found_high /
				      (double)most / SEEDS;
			rate[1][i] += 100.0 * (double)found /
				      (double)(all - most) / SEEDS;
			rate[2][i] += 100.0 * (double)(found + found_high) /
				      (double)all / SEEDS;
		}
		ev_trace_free(&t);
	}
}

static void row_high(const struct trace *tr, u32 percent)
{
	static const char * const who[] = { "high", "others", "all" };
	double rate[3][2];
	char name[64];
	u32 i;

	measure_high(tr, percent, rate);
	printf("| %s | %u | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f |\n",
	       tr->name, percent, rate[0][0], rate[0][1], rate[1][0],
	       rate[1][1], rate[2][0], rate[2][1]);
	for (i = 0; i < ARRAY_SIZE(who) && getenv("KVMM_BENCH_OUT"); i++) {
		snprintf(name, sizeof(name), "evict_%s_%u_class_%s", tr->name,
			 percent, who[i]);
		bench_report(&(struct bench_figure){
			.name = name, .unit = "% missed",
			.value = 100 - rate[i][1], .peer = "no classes",
			.peer_value = max(100 - rate[i][0], 0.01) });
	}
}

static bool wanted(const char *name, char **names)
{
	u32 i;

	for (i = 0; names[i]; i++)
		if (!strcmp(name, names[i]))
			return true;
	return !i;
}

static void table(const struct trace *tr, u32 nr, char **names,
		  const char *what)
{
	u32 i, n, missed = 0, aims = 0;

	printf("| trace | cache %% | kvmm | LRU | LFU | ARC | optimum |\n");
	printf("|---|---|---|---|---|---|---|\n");
	for (i = 0; i < nr; i++)
		for (n = 0; n < ARRAY_SIZE(percents) &&
		     wanted(tr[i].name, names); n++)
			missed += row(&tr[i], percents[n], &aims);
	printf("note: %s: %u of %u aims missed\n", what, missed, aims);
}

static void table_high(const struct trace *tr, u32 nr, char **names)
{
	u32 i, n;

	printf("| trace | cache %% | high, no classes | high | others, no classes | others | all, no classes | all |\n");
	printf("|---|---|---|---|---|---|---|---|\n");
	for (i = 0; i < nr; i++)
		for (n = 0; n < ARRAY_SIZE(percents) &&
		     wanted(tr[i].name, names); n++)
			row_high(&tr[i], percents[n]);
}

/* Arguments are names of traces; without any, all traces run. */
int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	table(known, ARRAY_SIZE(known), argv + 1, "traces that it was made on");
	table(held_out, ARRAY_SIZE(held_out), argv + 1, "traces held out");
	table_high(with_high, ARRAY_SIZE(with_high), argv + 1);
	return 0;
}
