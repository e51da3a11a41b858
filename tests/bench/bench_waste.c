// SPDX-License-Identifier: Apache-2.0
/*
 * bench_waste.c - how much of the pool holds tokens, beside reservation
 *
 * One engine on a simulated node (node.h) has more requests than memory, with
 * lengths as in ShareGPT and Alpaca (lengths.c).  After each step all bytes of
 * the pool are parted (waste.h), and two figures are made of it.  One is live over
 * all that is held, that is all but free and cache.  The other is live over all of
 * the pool, as in figure 2 of the PagedAttention paper (arXiv 2309.06180).  The peers, contiguous
 * reservation of three kinds, serve the same requests (orca.c).
 *
 * Then each request has several samples that share its prompt.  The figure is
 * the blocks that sharing saves, as in figure 15 of the paper: with few requests,
 * which fit together, and with a full pool, where families lose their memory and
 * come back.  Last the samples are beams of recorded searches (beams.h), with few
 * requests: beside the paper, and beside the savings of those searches under
 * perfect sharing, computed without the core.
 *
 * Deterministic: no figure depends on the machine.
 */
#include "kvmm/core/node/node.h"
#include "tests/bench/bench.h"
#include "tests/bench/node.h"
#include "tests/bench/orca.h"
#include "tests/bench/waste.h"

#include <stdlib.h>

#define SEED		1u
#define REQS		100000u
#define WARM		(60 * ND_SECOND)
#define MEASURED	(120 * ND_SECOND)
#define ORCA_STEPS	8000u
#define ROOMY		8u	/* requests that fit together */
#define AIM_BEST	0.9999	/* of the savings of perfect sharing */
#define AIM_HELD	97.0
#define PAPER_POOL	96.3

static const struct model {
	const char *name;
	u32 layers, heads, head_bytes;
	u64 pool, extent;
} models[] = {
	/* As in the paper: 800 KiB a token, 12 GiB for KV. */
	{ "opt13b",	 40, 40, 256, 12ull << 30, 64ull << 20 },
	{ "opt13b-256m", 40, 40, 256, 12ull << 30, 256ull << 20 },
	{ "llama8b",	 32, 8, 256, 4ull << 30, 64ull << 20 },
};

static const u32 sizes[] = { 16, 32, 64 };

static struct nd_engine_cfg cfg_of(const struct model *m,
				   const struct nd_req *reqs, u32 size,
				   u32 samples, u32 admit)
{
	return (struct nd_engine_cfg){
		.name = "bench", .block_tokens = size, .layers = m->layers,
		.heads = m->heads, .head_bytes = m->head_bytes, .reqs = reqs,
		.nr_reqs = REQS, .queue = ND_SEQS / samples,
		.admit = min(admit, ND_SEQS / samples), .samples = samples,
	};
}

static void serve(const struct model *m, const struct nd_engine_cfg *cfg,
		  struct use *u)
{
	struct nd_node *n = nd_start(m->pool, m->extent, cfg, 1);

	nd_run(n, WARM);
	n->on_step = use_measure;
	n->arg = u;
	nd_stats_reset(n);
	nd_run(n, MEASURED);
	u->preempted = n->e[0]->st.preempted;
	if (n->e[0]->next_req == REQS)
		bench_die("%s: the trace is too short", m->name);
	nd_stop(n);
}

/* ---- waste ---- */

static void report_waste(const char *name, const struct use *u,
			 enum nd_lengths lengths, u32 size,
			 const struct orca_use *orca)
{
	struct bench_figure f = { .name = name, .unit = "%" };
	char text[128];
	u32 i;

	f.name = text;
	f.value = use_live_of_held(u);
	f.min_value = lengths == ND_SHAREGPT && size == 16 ? AIM_HELD : 0;
	snprintf(text, sizeof(text), "%s_live_of_held", name);
	bench_report(&f);
	f.min_value = 0;
	f.value = use_percent(u, LIVE);
	for (i = 0; i < ORCA_NR; i++) {
		snprintf(text, sizeof(text), "%s_live_of_pool_%s", name,
			 orca_name[i]);
		f.peer = orca_name[i];
		f.peer_value = orca[i].live;
		bench_report(&f);
	}
	if (lengths != ND_SHAREGPT)
		return;
	snprintf(text, sizeof(text), "%s_live_of_pool", name);
	f.peer = "vLLM in the paper";
	f.peer_value = PAPER_POOL;
	bench_report(&f);
}

static void waste(const struct model *m, enum nd_lengths lengths)
{
	struct nd_req *reqs = nd_trace(lengths, SEED, REQS, 0);
	u32 slots = (u32)(m->pool / (2 * m->layers * m->heads *
				     m->head_bytes));
	struct orca_use orca[ORCA_NR];
	struct nd_engine_cfg cfg;
	struct use u;
	char name[64];
	u32 i;

	for (i = 0; i < ORCA_NR; i++) {
		struct orca_use *o = &orca[i];

		orca_run(i, reqs, REQS, slots, ORCA_STEPS, o);
		printf("| %s, %s | %s | %.1f | %.1f | later %.1f | internal %.1f | external %.1f | | | %.1f |\n",
		       m->name, nd_lengths_name[lengths], orca_name[i],
		       o->live, o->live, o->later, o->internal, o->external,
		       o->batch);
	}
	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		cfg = cfg_of(m, reqs, sizes[i], 1, ND_SEQS);
		u = (struct use){ .spans = NULL };
		serve(m, &cfg, &u);
		printf("| %s, %s | %u | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f |\n",
		       m->name, nd_lengths_name[lengths], sizes[i],
		       use_live_of_held(&u), use_percent(&u, LIVE),
		       use_percent(&u, TAILS), use_percent(&u, SPANS),
		       use_percent(&u, HELD), use_percent(&u, CACHE),
		       use_percent(&u, FREE), (double)u.seqs / (double)u.steps);
		snprintf(name, sizeof(name), "waste_%s_%s_%u", m->name,
			 nd_lengths_name[lengths], sizes[i]);
		report_waste(name, &u, lengths, sizes[i], orca);
	}
	free(reqs);
}

/* ---- sharing ---- */

static const double paper_saved[ND_NR_LENGTHS][3] = {
	[ND_SHAREGPT]	= { 16.2, 0, 30.5 },	/* the paper's text has no n=4 */
	[ND_ALPACA]	= { 6.09, 8.53, 9.79 },
};

static double saved(const struct use *u)
{
	return 100 * (1 - u->distinct / u->mapped);
}

static void sharing(const struct model *m, enum nd_lengths lengths, bool full)
{
	struct nd_req *reqs = nd_trace(lengths, SEED, REQS, 0);
	struct nd_engine_cfg cfg;
	char name[64];
	struct use u;
	u32 i;

	for (i = 0; i < 3; i++) {
		u32 n = 2 * i + 2;
		struct bench_figure f = { .name = name, .unit = "% saved" };

		cfg = cfg_of(m, reqs, 16, n, full ? ND_SEQS : ROOMY);
		u = (struct use){ .spans = NULL };
		serve(m, &cfg, &u);
		f.value = saved(&u);
		if (paper_saved[lengths][i] > 0) {
			f.peer = "vLLM in the paper";
			f.peer_value = paper_saved[lengths][i];
		}
		snprintf(name, sizeof(name), "sharing_%s_n%u%s",
			 nd_lengths_name[lengths], n, full ? "_full" : "");
		printf("| %s | %s | %u | %.1f | %.1f | %u |\n",
		       nd_lengths_name[lengths], full ? "full" : "room", n,
		       f.value, f.peer_value, u.preempted);
		bench_report(&f);
	}
	free(reqs);
}

/* ---- beams ---- */

static const double paper_beams[ND_NR_LENGTHS][3] = {
	[ND_SHAREGPT]	= { 44.3, 0, 66.3 },	/* the paper's text has the ends */
	[ND_ALPACA]	= { 37.6, 0, 55.2 },
};

/* Searches begin with prompts like those of the requests. */
static const u32 beam_prompts[ND_NR_LENGTHS] = {
	[ND_SHAREGPT]	= 160,
	[ND_ALPACA]	= 24,
};

static void searches_read(struct beams *b)
{
	const char *top = getenv("KVMM_TOP");
	char path[512];
	u32 line;
	int err;

	snprintf(path, sizeof(path), "%s/%s", top ? top : ".", BEAMS_FILE);
	err = beams_read(b, path, &line);
	if (err)
		bench_die("%s:%u: %s", path, line, strerror(-err));
}

/* Choose the searches that are @width wide and fit @lengths.  Return: how many. */
static u32 searches_choose(const struct beams *b, enum nd_lengths lengths,
			   u32 width, struct beam_search *chosen)
{
	u32 i, nr = 0;

	for (i = 0; i < b->nr; i++)
		if (b->search[i].width == width &&
		    b->search[i].length == beam_prompts[lengths])
			chosen[nr++] = b->search[i];
	if (!nr)
		bench_die("no search has %u beams and a prompt of %u tokens",
			  width, beam_prompts[lengths]);
	return nr;
}

/* How far back the common ancestor is, over answers of the mean length. */
static double ancestor_mean(const struct beam_search *s, u32 nr,
			    const struct nd_req *reqs)
{
	double sum = 0, out = 0;
	u32 i;

	for (i = 0; i < REQS; i++)
		out += reqs[i].out;
	for (i = 0; i < nr; i++)
		sum += beams_ancestor(&s[i], (u32)(out / REQS + 0.5));
	return sum / nr;
}

/* Savings of the same steps under perfect sharing. */
static double saved_at_best(const struct nd_engine_cfg *cfg,
			    const struct use *u)
{
	struct beam_blocks sum = { 0 };
	u32 i;

	for (i = 0; i < REQS; i++)
		if (u->spans[i].seen)
			beams_blocks(&cfg->beams[i % cfg->nr_beams],
				     cfg->reqs[i].prompt, u->spans[i].from,
				     u->spans[i].to, cfg->block_tokens, &sum);
	return 100 * (1 - (double)sum.distinct / (double)sum.mapped);
}

static void report_beams(const char *name, double value, double best,
			 double paper, double ancestor)
{
	struct bench_figure f = { .name = name, .unit = "% saved" };
	char text[128];

	f.value = value;
	if (paper > 0) {
		f.peer = "vLLM in the paper";
		f.peer_value = paper;
	}
	bench_report(&f);
	snprintf(text, sizeof(text), "%s_of_best", name);
	f.name = text;
	f.peer = "all that can be shared";
	f.peer_value = best;
	f.min_ratio = AIM_BEST;
	bench_report(&f);
	snprintf(text, sizeof(text), "%s_ancestor", name);
	f = (struct bench_figure){ .name = text, .unit = "tokens ago",
				   .value = ancestor };
	bench_report(&f);
	printf("| %s | %.1f | %.1f | %.1f | %.1f |\n", name, value, best,
	       paper, ancestor);
}

static void beam_sharing(const struct model *m, enum nd_lengths lengths,
			 const struct beams *b)
{
	struct nd_req *reqs = nd_trace(lengths, SEED, REQS, 0);
	struct beam_search chosen[BEAMS_SEARCHES];
	struct nd_engine_cfg cfg;
	char name[64];
	struct use u;
	u32 i;

	for (i = 0; i < 3; i++) {
		u32 n = 2 * i + 2;

		cfg = cfg_of(m, reqs, 16, n, ROOMY);
		cfg.beams = chosen;
		cfg.nr_beams = searches_choose(b, lengths, n, chosen);
		u = (struct use){ .spans = calloc(REQS, sizeof(*u.spans)) };
		if (!u.spans)
			bench_die("no memory for steps");
		serve(m, &cfg, &u);
		snprintf(name, sizeof(name), "beams_%s_w%u",
			 nd_lengths_name[lengths], n);
		report_beams(name, saved(&u), saved_at_best(&cfg, &u),
			     paper_beams[lengths][i],
			     ancestor_mean(chosen, cfg.nr_beams, reqs));
		free(u.spans);
	}
	free(reqs);
}

int main(void)
{
	struct beams beams = { .nr = 0 };
	u32 i, n;

	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("| trace | block or policy | live of held | live of pool | tails | spans | held | cache | free | batch |\n");
	printf("|---|---|---|---|---|---|---|---|---|---|\n");
	for (i = 0; i < ARRAY_SIZE(models); i++)
		for (n = 0; n < ND_NR_LENGTHS; n++)
			waste(&models[i], n);
	printf("| trace | pool | samples | %% saved | paper | preempted |\n|---|---|---|---|---|---|\n");
	for (n = 0; n < ND_NR_LENGTHS; n++)
		for (i = 0; i < 2; i++)
			sharing(&models[2], n, i);
	searches_read(&beams);
	printf("| trace, beams | %% saved | at best | paper | ancestor, tokens ago |\n|---|---|---|---|---|\n");
	for (n = 0; n < ND_NR_LENGTHS; n++)
		beam_sharing(&models[2], n, &beams);
	beams_free(&beams);
	return 0;
}
