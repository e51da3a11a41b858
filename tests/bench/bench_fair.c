// SPDX-License-Identifier: Apache-2.0
/*
 * bench_fair.c - shares of domains that want more than the pool has
 *
 * Engines on a simulated node (node.h), each with its own domain, all of the
 * same model: 4,096 blocks of 16 tokens, lengths as in ShareGPT, and more
 * requests than can be served.  The promises to a domain are compared with the
 * memory that it got:
 *
 *	min	times that others took memory that memory.min protects: blocks in
 *		use, cached, or reserved for admitted sequences
 *	grant	time until a request within memory.min had its memory, beside
 *		the longest step of the others
 *	weight	how far the parts of the surplus are from the weights
 *	useful	tokens/s at three times the load that can be served, beside
 *		the best fixed number of requests in the core that a search
 *		finds; and how long a request waited
 *
 * All domains start empty; the first 60 s are not measured, the next 240 are.
 * Time is the clock of the simulated node, so no figure depends on the machine.
 */
#include "kvmm/core/node/node.h"
#include "tests/bench/bench.h"
#include "tests/bench/node.h"

#include <stdlib.h>

#define POOL		(8ull << 30)
#define EXTENT		(64ull << 20)
#define BLOCK		(2ull << 20)
#define REQS		40000u
#define WARM		(60 * ND_SECOND)
#define MEASURED	(240 * ND_SECOND)
#define QUEUE		256u
#define ALL		QUEUE

#define AIM_WEIGHT	5.0
#define AIM_USEFUL	0.85
#define AIM_GRANT	1.0

static void engine_init(struct nd_engine_cfg *g, const char *name,
			const struct nd_req *reqs, u32 weight, u32 min_percent)
{
	*g = (struct nd_engine_cfg){
		.name = name, .block_tokens = 16, .layers = 32, .heads = 8,
		.head_bytes = 256, .weight = weight, .reqs = reqs,
		.nr_reqs = REQS, .queue = QUEUE, .admit = ALL,
		.limits.min = POOL / 100 * min_percent,
	};
}

/* ---- weights ---- */

struct surplus {
	double	sum[ND_CLIENTS];
};

static void surplus_add(struct nd_node *n)
{
	struct surplus *u = n->arg;
	u32 i;

	for (i = 0; i < n->nr; i++) {
		const struct kv_domain *d =
			&n->core->domains[n->e[i]->info.domain];

		u->sum[i] += domain_held(d) > d->elow ?
			     domain_held(d) - d->elow : 0;
	}
}

/* Largest distance of a domain's part from its weight, in percent. */
static void weights(const char *name, const u32 *weight, const u32 *min_percent,
		    u32 nr)
{
	struct nd_req *reqs[ND_CLIENTS];
	struct nd_engine_cfg cfg[ND_CLIENTS];
	struct surplus u = { 0 };
	struct bench_figure f = { .name = name, .unit = "% off",
				  .max_value = AIM_WEIGHT };
	double sum = 0, all = 0, off;
	struct nd_node *n;
	u32 i;

	for (i = 0; i < nr; i++) {
		reqs[i] = nd_trace(ND_SHAREGPT, i + 1, REQS, 0);
		engine_init(&cfg[i], (const char *[]){ "a", "b", "c" }[i],
			    reqs[i], weight[i], min_percent[i]);
		all += weight[i];
	}
	n = nd_start(POOL, EXTENT, cfg, nr);
	nd_run(n, WARM);
	n->on_tick = surplus_add;
	n->arg = &u;
	nd_run(n, MEASURED);
	for (i = 0; i < nr; i++)
		sum += u.sum[i];
	printf("| %s |", name);
	for (i = 0; i < nr; i++) {
		off = 100 * (u.sum[i] / sum / (weight[i] / all) - 1);
		f.value = max(f.value, off < 0 ? -off : off);
		printf(" %u: %.1f %% (%+.1f %%)", weight[i],
		       100 * u.sum[i] / sum, off);
	}
	printf(" | %.1f |\n", f.value);
	bench_report(&f);
	nd_stop(n);
	for (i = 0; i < nr; i++)
		free(reqs[i]);
}

/* ---- memory.min ---- */

/* Requests in bursts: all requests of a period come at its begin. */
static struct nd_req *bursts(u64 seed, u32 per_burst, u64 period)
{
	struct nd_req *reqs = nd_trace(ND_SHAREGPT, seed, REQS, 0);
	u32 i;

	for (i = 0; i < REQS; i++)
		reqs[i].at = WARM + i / per_burst * period;
	return reqs;
}

/* Drop the cache between bursts, so each burst needs all its memory anew. */
static void forget(struct nd_node *n)
{
	const struct nd_engine *e = n->e[0];

	if (!e->nr_open && core_drop_caches(n->core, n->now, e->info.domain,
					    ~0u) < 0)
		bench_die("the cache cannot be dropped");
}

static u64 longest_step_of_others(const struct nd_node *n, u32 but)
{
	u64 ns = 0;
	u32 i;

	for (i = 0; i < n->nr; i++)
		if (i != but)
			ns = max(ns, n->e[i]->st.longest_step);
	return ns;
}

static void report_min(const struct nd_node *n, const char *name, u32 i)
{
	const struct nd_stats *st = &n->e[i]->st;
	char text[160];
	struct bench_figure f = { .name = text, .unit = "times",
				  .value = st->min_taken, .max_value = 0.01 };

	snprintf(text, sizeof(text), "%s_min_taken", name);
	bench_report(&f);
	printf("| %s | %u | %u | %.1f | %.1f |\n", name, st->min_taken,
	       st->nr_min, (double)st->longest_min / 1e6,
	       (double)longest_step_of_others(n, i) / 1e6);
	if (!st->nr_min)
		return;
	snprintf(text, sizeof(text), "%s_min_grant", name);
	f = (struct bench_figure){
		.name = text, .unit = "ms",
		.value = (double)st->longest_min / 1e6,
		.peer = "longest step of the others",
		.peer_value = (double)longest_step_of_others(n, i) / 1e6,
		.max_ratio = AIM_GRANT };
	bench_report(&f);
}

/* One of the engines has bursts that fit in its memory.min. */
static void protection(const char *name, u32 nr, u32 per_burst)
{
	struct nd_engine_cfg cfg[ND_CLIENTS];
	struct nd_req *reqs[ND_CLIENTS];
	struct nd_node *n;
	char text[128];
	u32 i;

	reqs[0] = bursts(1, per_burst, 40 * ND_SECOND);
	engine_init(&cfg[0], "protected", reqs[0], 100, 25);
	reqs[1] = nd_trace(ND_SHAREGPT, 2, REQS, 0);
	engine_init(&cfg[1], "greedy", reqs[1], 100, 0);
	reqs[2] = nd_trace(ND_SHAREGPT, 3, REQS, 0);
	engine_init(&cfg[2], "greedy too", reqs[2], 100, 20);
	n = nd_start(POOL, EXTENT, cfg, nr);
	n->on_tick = forget;
	nd_run(n, WARM);
	nd_stats_reset(n);
	nd_run(n, MEASURED);
	for (i = 0; i < nr; i++) {
		snprintf(text, sizeof(text), "%s_%u", name, i);
		if (n->e[i]->cfg.limits.min)
			report_min(n, text, i);
	}
	nd_stop(n);
	for (i = 0; i < 3; i++)
		free(reqs[i]);
}

/* ---- useful work ---- */

struct work {
	double	tokens;		/* a second */
	double	again;		/* tokens computed again, a second */
	u32	finished;
	u64	wait, pause;
};

static void work(u32 nr, double per_second, u32 admit, struct work *w)
{
	struct nd_engine_cfg cfg[ND_CLIENTS];
	struct nd_req *reqs[ND_CLIENTS];
	struct nd_node *n;
	u32 i;

	memset(w, 0, sizeof(*w));
	for (i = 0; i < nr; i++) {
		reqs[i] = nd_trace(ND_SHAREGPT, i + 1, REQS, per_second);
		engine_init(&cfg[i], (const char *[]){ "a", "b", "c" }[i],
			    reqs[i], 100, 0);
		cfg[i].admit = admit;
		cfg[i].drop = true;
	}
	n = nd_start(POOL, EXTENT, cfg, nr);
	nd_run(n, WARM);
	nd_stats_reset(n);
	nd_run(n, MEASURED);
	for (i = 0; i < nr; i++) {
		const struct nd_stats *st = &n->e[i]->st;
		double s = (double)MEASURED / ND_SECOND;

		w->tokens += (double)st->tokens / s;
		w->again += (double)st->again / s;
		w->finished += st->finished;
		w->wait = max(w->wait, st->longest_wait);
		w->pause = max(w->pause, st->longest_pause);
		free(reqs[i]);
	}
	nd_stop(n);
}

static void work_print(const char *name, u32 admit, const struct work *w)
{
	printf("| %s | %u | %.0f | %.0f | %.2f | %.1f | %.1f |\n", name, admit,
	       w->tokens, w->again, w->finished * (double)ND_SECOND / MEASURED,
	       (double)w->wait / 1e9, (double)w->pause / 1e9);
}

/* Find the best admission limit, the same for all engines, by ever smaller steps. */
static u32 search(u32 nr, double per_second, struct work *best)
{
	u32 admit = 0, step, at, middle = 128 / nr;
	struct work w;

	memset(best, 0, sizeof(*best));
	for (step = middle / 2; step; step /= 2) {
		for (at = middle > step ? middle - step : 1;
		     at <= middle + step; at += step) {
			if (at == admit)
				continue;
			work(nr, per_second, at, &w);
			if (w.tokens > best->tokens) {
				*best = w;
				admit = at;
			}
		}
		middle = admit;
	}
	return admit;
}

static void useful(const char *name, u32 nr)
{
	struct work best, ours;
	char text[128];
	struct bench_figure f = { .name = text };
	double rate;
	u32 admit;

	/* Measure the load that can be served, then take three times that. */
	work(nr, 50, 128 / nr, &best);
	rate = 3 * best.finished * (double)ND_SECOND / MEASURED / nr;
	admit = search(nr, rate, &best);
	work(nr, rate, ALL, &ours);
	work_print(name, ALL, &ours);
	work_print(name, admit, &best);

	snprintf(text, sizeof(text), "%s_useful", name);
	f.unit = "tokens/s";
	f.value = ours.tokens;
	f.peer = "best fixed admission limit";
	f.peer_value = best.tokens;
	f.min_ratio = AIM_USEFUL;
	bench_report(&f);
	snprintf(text, sizeof(text), "%s_longest_wait", name);
	f.unit = "s";
	f.value = (double)ours.wait / 1e9;
	f.peer_value = (double)best.wait / 1e9;
	f.min_ratio = 0;
	bench_report(&f);
}

int main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("| | parts of the surplus by weight | %% off |\n|---|---|---|\n");
	weights("fair_weight_100_300", (u32[]){ 100, 300 }, (u32[]){ 0, 0 }, 2);
	weights("fair_weight_100_200_400", (u32[]){ 100, 200, 400 },
		(u32[]){ 0, 0, 0 }, 3);
	weights("fair_weight_100_300_min_20", (u32[]){ 100, 300 },
		(u32[]){ 20, 0 }, 2);
	printf("| | min taken | within min | longest ms | longest step ms |\n|---|---|---|---|---|\n");
	protection("fair_2_bursts_of_1", 2, 1);
	protection("fair_2_bursts_of_8", 2, 8);
	protection("fair_3_bursts_of_8", 3, 8);
	printf("| | admit | tokens/s | again/s | requests/s | longest wait s | longest pause s |\n|---|---|---|---|---|---|---|\n");
	useful("fair_2", 2);
	useful("fair_3", 3);
	return 0;
}
