// SPDX-License-Identifier: Apache-2.0
/*
 * bench_replay.c - hits of the cache on all tiers, in replays of traces
 *
 * The traces are those of tests/data/traces: an hour of a public chat service, and
 * agents.  The core is the real one (evict_core.c).  It has a device pool, a host pool
 * and an area; copies and I/O are carried out at once, so the figures say what the
 * tiers keep, not how fast they are.  LRU, ARC and the optimum (evict_peers.c) have one
 * cache of the same total size, in which all content is at hand.  So has the core once
 * more, with a device pool of this size: its order of eviction without lower tiers.
 *
 * Sizes are in percent of all blocks of a trace.  The device must hold the longest
 * prompt: where its share is less than that, it takes from the share of the host pool.
 * The rate is the blocks found, in percent of the blocks of all prompts.
 *
 * It is deterministic: no figure depends on the machine.
 *
 * Aim: nowhere more than 2 points worse than the better of LRU and ARC.
 */
#include "tests/bench/bench.h"
#include "tests/bench/evict.h"

#include <stdlib.h>

#define BEHIND_MAX	2.0	/* points */
#define UNIT		64u	/* sizes of pools are multiples of so many blocks */

static const char * const traces[] = { "chats", "agents" };
static const u32 percents[] = { 5, 10, 25, 50, 100 };

/* Shares of the device pool, the host pool and the area. */
static const struct split {
	const char	*name;
	u32		part[EV_NR_TIERS];
} splits[] = {
	{ "1:3:0",  { 1, 3, 0 } },
	{ "1:3:12", { 1, 3, 12 } },
};

/* Caches of one tier. */
enum { LRU, ARC, BELADY, CORE, NR_PEERS };

static const struct {
	const char *name;
	u64 (*run)(const struct ev_trace *t, u32 cap);
} peers[NR_PEERS] = {
	[LRU]		= { "lru",	ev_run_lru },
	[ARC]		= { "arc",	ev_run_arc },
	[BELADY]	= { "belady",	ev_run_belady },
	[CORE]		= { "core",	ev_run_core },
};

static u64 missed[2];	/* aims missed, and all of them */
static double worst;

static void sizes_set(const struct ev_trace *t, const struct split *s, u32 total,
		      struct ev_replay *r)
{
	u32 all = s->part[0] + s->part[1] + s->part[2];
	u32 least = ALIGN_UP(t->longest + 8, UNIT);
	u32 device = (u32)((u64)total * s->part[EV_DEVICE] / all) / UNIT * UNIT;

	r->blocks[EV_DEVICE] = max(device, least);
	r->blocks[EV_AREA] = (u32)((u64)total * s->part[EV_AREA] / all);
	if (r->blocks[EV_DEVICE] + r->blocks[EV_AREA] + least > total)
		bench_die("%u blocks are too few for a prompt of %u", total,
			  t->longest);
	r->blocks[EV_HOST] = total - r->blocks[EV_DEVICE] - r->blocks[EV_AREA];
}

static void report(const char *trace, const char *split, u32 percent, double rate,
		   const double *peer, double behind)
{
	char name[64];
	u32 i;

	if (!getenv("KVMM_BENCH_OUT"))
		return;
	for (i = 0; i < NR_PEERS; i++) {
		snprintf(name, sizeof(name), "replay_%s_%u_%s_%s", trace, percent, split,
			 peers[i].name);
		bench_report(&(struct bench_figure){
			.name = name, .unit = "% missed", .value = 100 - rate,
			.peer = peers[i].name, .peer_value = max(100 - peer[i], 0.01) });
	}
	snprintf(name, sizeof(name), "replay_%s_%u_%s_behind", trace, percent, split);
	bench_report(&(struct bench_figure){
		.name = name, .unit = "points", .value = max(behind, 0.0),
		.max_value = BEHIND_MAX });
}

/* Print where content was lost: by tier, and for want of a copy. */
static void losses(const struct ev_replay *r)
{
	const u64 *n = r->counts;

	printf("lost: %lu evicted without a copy, %lu dropped by the host pool, %lu by the area; %lu copied down, %lu copied in, %lu written, %lu read\n",
	       n[CORE_EV_prefix_evict],
	       n[CORE_EV_host_drop] - n[CORE_EV_area_drop], n[CORE_EV_area_drop],
	       n[CORE_EV_pgdemote], n[CORE_EV_pgpromote], n[CORE_EV_pswpout],
	       n[CORE_EV_pswpin]);
}

/* A row of the table; @peer: rates of the peers. */
static void row(const struct ev_trace *t, const char *trace, const struct split *s,
		u32 percent, u32 total, const double *peer)
{
	double points = 100.0 / (double)ev_asked(t), rate, behind;
	struct ev_replay r;

	sizes_set(t, s, total, &r);
	ev_run_tiers(t, &r);
	if (r.blocks[0] + r.blocks[1] + r.blocks[2] != total)
		bench_die("the tiers have not %u blocks", total);
	rate = points * (double)(r.found[0] + r.found[1] + r.found[2]);
	behind = max(peer[LRU], peer[ARC]) - rate;
	printf("| %s | %u | %u:%u:%u | %.1f | %.1f | %.1f | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f |\n",
	       trace, percent, r.blocks[0], r.blocks[1], r.blocks[2],
	       points * (double)r.found[0], points * (double)r.found[1],
	       points * (double)r.found[2], rate, peer[LRU], peer[ARC], peer[BELADY],
	       peer[CORE], behind);
	if (getenv("KVMM_BENCH_LOSSES"))
		losses(&r);
	report(trace, s->name, percent, rate, peer, behind);
	worst = max(worst, behind);
	missed[0] += behind > BEHIND_MAX;
	missed[1]++;
}

static void rows(const struct ev_trace *t, const char *name, u32 percent)
{
	u32 total = (u32)((u64)t->nr_blocks * percent / 100) / UNIT * UNIT, i;
	double peer[NR_PEERS];

	for (i = 0; i < NR_PEERS; i++)
		peer[i] = 100.0 * (double)peers[i].run(t, total) /
			  (double)ev_asked(t);
	for (i = 0; i < ARRAY_SIZE(splits); i++)
		row(t, name, &splits[i], percent, total, peer);
}

static void table(const char *name)
{
	const char *top = getenv("KVMM_TOP");
	struct ev_trace t;
	char path[512];
	u32 i;

	snprintf(path, sizeof(path), "%s/tests/data/traces/%s.txt", top ? top : ".",
		 name);
	ev_trace_load(&t, path);
	for (i = 0; i < ARRAY_SIZE(percents); i++)
		rows(&t, name, percents[i]);
	printf("note: %s: %u requests, %lu blocks, %u different ones; an unbounded cache finds %.2f %%\n",
	       name, t.nr_reqs, ev_asked(&t), t.nr_blocks,
	       100.0 * (double)ev_findable(&t) / (double)ev_asked(&t));
	ev_trace_free(&t);
}

/* Arguments are names of traces; without any, all traces run. */
int main(int argc, char **argv)
{
	u32 i;

	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("| trace | %% | blocks | device | host | area | kvmm | LRU | ARC | optimum | one tier | behind |\n");
	printf("|---|---|---|---|---|---|---|---|---|---|---|---|\n");
	for (i = 1; i < (u32)argc; i++)
		table(argv[i]);
	for (i = 0; i < ARRAY_SIZE(traces) && argc < 2; i++)
		table(traces[i]);
	bench_verdict(!missed[0], "of %lu sizes of all tiers %lu are more than %.0f points worse than the better of LRU and ARC, %.2f at worst",
		      missed[1], missed[0], BEHIND_MAX, worst);
	return 0;
}
