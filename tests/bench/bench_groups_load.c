// SPDX-License-Identifier: Apache-2.0
/*
 * bench_groups_load.c - an overloaded server of a model with windows, in simulated time
 *
 * The model has the shape of Gemma 3: one of six layers attends to all tokens, the others
 * to a window of 512.  It is served with a group for each layer, and with one group that
 * keeps all tokens for all layers.  More requests wait than fit the memory.  Each has a
 * prompt of 1,024 tokens and an answer of 7,168, so nearly all time is decode.  A step of
 * node.h's device takes 8 ms and 20 us for each sequence.  So tokens a second grow a
 * little slower than the batch; the figure stands beside that of this device alone for
 * the batch.
 *
 * Deterministic: no figure depends on the machine.
 */
#include <stdlib.h>

#include "kvmm/core/node/node.h"
#include "tests/bench/bench.h"
#include "tests/bench/node.h"
#include "tests/bench/waste.h"

#define POOL		(8ull << 30)
#define EXTENT		(64ull << 20)
#define PROMPT		1024u
#define ANSWER		7168u
#define REQS		20000u
#define WINDOW		512u
#define LAYERS		6u
#define WARM		(400 * ND_SECOND)
#define MEASURED	(400 * ND_SECOND)

/* Figures of a layout. */
struct result {
	double	batch;		/* sequences in a step */
	double	tokens;		/* generated in a second */
	u32	preempted;
};

static struct nd_req *requests(void)
{
	struct nd_req *reqs = calloc(REQS, sizeof(*reqs));
	u32 i;

	if (!reqs)
		bench_die("out of memory");
	for (i = 0; i < REQS; i++)
		reqs[i] = (struct nd_req){ .prompt = PROMPT, .out = ANSWER };
	return reqs;
}

static struct result serve(const struct nd_req *reqs, u32 nr_groups)
{
	struct nd_engine_cfg cfg = {
		.name = nr_groups > 1 ? "groups" : "one", .block_tokens = 16,
		.layers = LAYERS / nr_groups, .heads = 8, .head_bytes = 256,
		.nr_groups = nr_groups, .reqs = reqs, .nr_reqs = REQS,
		.queue = ND_SEQS, .admit = ND_SEQS, .samples = 1,
	};
	struct use u = { .spans = NULL };
	struct result r;
	struct nd_node *n;
	u32 g;

	for (g = 1; g < nr_groups; g++)
		cfg.window[g] = WINDOW;
	n = nd_start(POOL, EXTENT, &cfg, 1);
	nd_run(n, WARM);
	n->on_step = use_measure;
	n->arg = &u;
	nd_stats_reset(n);
	nd_run(n, MEASURED);
	if (n->e[0]->next_req == REQS)
		bench_die("the trace is too short");
	r = (struct result){
		.batch = (double)u.seqs / (double)u.steps,
		.tokens = (double)n->e[0]->st.tokens / ((double)MEASURED / ND_SECOND),
		.preempted = n->e[0]->st.preempted,
	};
	nd_stop(n);
	return r;
}

/* Tokens that the device gives in a second for a batch that only decodes. */
static double device_tokens(double batch)
{
	return batch * ND_SECOND / (ND_STEP_NS + batch * ND_DECODE_NS);
}

int main(void)
{
	struct nd_req *reqs = requests();
	struct result one = serve(reqs, 1), groups = serve(reqs, LAYERS);
	struct bench_figure f = {
		.name = "groups_load_tokens", .unit = "times", .peer = "the device's for the batch",
		.value = groups.tokens / one.tokens,
		.peer_value = device_tokens(groups.batch) / device_tokens(one.batch),
	};

	printf("| layout | sequences in a step | tokens a second | preempted |\n|---|---|---|---|\n");
	printf("| one group | %.1f | %.0f | %u |\n", one.batch, one.tokens, one.preempted);
	printf("| six groups | %.1f | %.0f | %u |\n", groups.batch, groups.tokens,
	       groups.preempted);
	printf("%.2f times the sequences, %.2f times the tokens a second\n",
	       groups.batch / one.batch, f.value);
	bench_report(&f);
	free(reqs);
	return 0;
}
