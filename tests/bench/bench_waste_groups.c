// SPDX-License-Identifier: Apache-2.0
/*
 * bench_waste_groups.c - how much of the pool holds tokens, with layer groups
 *
 * The load of bench_waste.c, with blocks of 16 tokens, on models with several layer
 * groups: group 0 attends to all tokens, the others to a window.  A token counts as
 * live in a group with a window only while the next step attends to it (waste.h).
 * Beside the figure stands the most that whole blocks allow: live over live, tails and
 * tokens behind the window.  One model has one group and stands for comparison.
 *
 * Then two engines whose blocks have different sizes share one pool.  Both have more
 * requests than memory.  Only free memory of the pool counts as free for certain; so
 * a second figure counts free blocks in the spans of either domain as held.
 *
 * Deterministic: no figure depends on the machine.
 */
#include "kvmm/core/node/node.h"
#include "tests/bench/bench.h"
#include "tests/bench/node.h"
#include "tests/bench/waste.h"

#include <stdlib.h>

#define SEED		1u
#define REQS		100000u
#define WARM		(60 * ND_SECOND)
#define MEASURED	(120 * ND_SECOND)
#define BT		16u
#define AIM_HELD	95.0

/* Layers of a group, and groups with their windows. */
struct model {
	const char	*name;
	u32		layers, heads, head_bytes;
	u32		nr_groups;
	u32		window[KVMM_MAX_GROUPS];
};

static const struct model models[] = {
	{ "full",		16, 8, 256, 1, { 0 } },
	{ "full_512",		16, 8, 256, 2, { 0, 512 } },
	{ "full_128",		16, 8, 256, 2, { 0, 128 } },
	{ "full_512_512",	16, 8, 256, 3, { 0, 512, 512 } },
	{ "full_512_128",	16, 8, 256, 3, { 0, 512, 128 } },
};

/* Two models of one pool. */
static const struct pair {
	const char	*name;
	u64		pool;
	struct model	model[2];
} pairs[] = {
	/* Blocks of 2 MiB and of 896 KiB. */
	{ "2m_896k", 4ull << 30, { { "a", 32, 8, 256, 1, { 0 } },
				   { "b", 28, 4, 256, 1, { 0 } } } },
	/* Blocks of 2 MiB and of 12.5 MiB. */
	{ "2m_12800k", 12ull << 30, { { "a", 32, 8, 256, 1, { 0 } },
				      { "b", 40, 40, 256, 1, { 0 } } } },
	/* Blocks of 2 MiB, and of 1 MiB of a model with two groups. */
	{ "2m_1m_groups", 4ull << 30, { { "a", 32, 8, 256, 1, { 0 } },
					{ "b", 16, 8, 256, 2, { 0, 512 } } } },
};

#define POOL	(4ull << 30)
#define EXTENT	(64ull << 20)

static struct nd_engine_cfg cfg_of(const struct model *m, const struct nd_req *reqs)
{
	struct nd_engine_cfg cfg = {
		.name = m->name, .block_tokens = BT, .layers = m->layers,
		.heads = m->heads, .head_bytes = m->head_bytes,
		.nr_groups = m->nr_groups, .reqs = reqs, .nr_reqs = REQS,
		.queue = ND_SEQS, .admit = ND_SEQS, .samples = 1,
	};

	memcpy(cfg.window, m->window, sizeof(cfg.window));
	return cfg;
}

static void serve(u64 pool, const struct nd_engine_cfg *cfg, u32 nr, struct use *u)
{
	struct nd_node *n = nd_start(pool, EXTENT, cfg, nr);
	u32 i;

	*u = (struct use){ .spans = NULL };
	nd_run(n, WARM);
	n->on_step = use_measure;
	n->arg = u;
	nd_stats_reset(n);
	nd_run(n, MEASURED);
	for (i = 0; i < nr; i++) {
		u->preempted += n->e[i]->st.preempted;
		if (n->e[i]->next_req == REQS)
			bench_die("%s: the trace is too short", cfg[i].name);
	}
	nd_stop(n);
}

/* Live in percent of the blocks that tokens of sequences are in. */
static double live_of_blocks(const struct use *u)
{
	return 100 * u->part[LIVE] /
	       (u->part[LIVE] + u->part[TAILS] + u->part[BEHIND]);
}

/* The same, of all but the cache and the free memory that no domain has. */
static double live_of_domains(const struct use *u)
{
	return 100 * u->part[LIVE] /
	       (u->total - u->part[FREE] + u->in_spans - u->part[CACHE]);
}

static void report(const char *name, enum nd_lengths lengths, const struct use *u)
{
	char text[128];
	struct bench_figure f = { .name = text, .unit = "%" };

	snprintf(text, sizeof(text), "waste_groups_%s_%s_live_of_held", name,
		 nd_lengths_name[lengths]);
	f.value = use_live_of_held(u);
	f.min_value = AIM_HELD;
	f.peer = "whole blocks";
	f.peer_value = live_of_blocks(u);
	bench_report(&f);
	printf("| %s, %s | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f | %.1f | %u |\n",
	       name, nd_lengths_name[lengths], use_live_of_held(u),
	       live_of_blocks(u), live_of_domains(u), use_percent(u, LIVE),
	       use_percent(u, TAILS), use_percent(u, BEHIND), use_percent(u, SPANS),
	       use_percent(u, HELD), use_percent(u, CACHE), use_percent(u, FREE),
	       (double)u->seqs / (double)u->steps, u->preempted);
}

int main(void)
{
	struct nd_engine_cfg cfg[2];
	struct use u;
	u32 i, n;

	setvbuf(stdout, NULL, _IOLBF, 0);
	printf("| model, requests | live of held | of blocks | of domains | live | tails | behind | spans | held | cache | free | batch | preempted |\n");
	printf("|---|---|---|---|---|---|---|---|---|---|---|---|---|\n");
	for (n = 0; n < ND_NR_LENGTHS; n++) {
		struct nd_req *reqs = nd_trace(n, SEED, REQS, 0);
		struct nd_req *more = nd_trace(n, SEED + 1, REQS, 0);

		for (i = 0; i < ARRAY_SIZE(models); i++) {
			cfg[0] = cfg_of(&models[i], reqs);
			serve(POOL, cfg, 1, &u);
			report(models[i].name, n, &u);
		}
		for (i = 0; i < ARRAY_SIZE(pairs); i++) {
			cfg[0] = cfg_of(&pairs[i].model[0], reqs);
			cfg[1] = cfg_of(&pairs[i].model[1], more);
			serve(pairs[i].pool, cfg, 2, &u);
			report(pairs[i].name, n, &u);
		}
		free(reqs);
		free(more);
	}
	return 0;
}
